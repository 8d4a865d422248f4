#!/usr/bin/env bash
# S-BFD between two hosts: a CPF and a UPF on the far one are found when the link is cut and when they are stopped or killed, long before heartbeats would find them;
# nothing is found on a loaded host whose peers live; hostile packets are dropped and counted. The same of a unit's CPFs and CTAs, and, where etcd is installed,
# of two CTAs on the two hosts. In network namespaces of its own.
#
# Usage: sbfd.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3 nsenter)
logs=(core.log near.log far.log east.log unit.log one.log two.log)
. "$(dirname "$0")/../netns.sh"

ip link add near type veth peer name far
for host in 1 11; do ip address add 192.0.2.$host/24 dev near; done
ip link set near up
unshare --net sleep infinity &
elsewhere=$!
running+=("$elsewhere")
own_network "$elsewhere"
ip link set far netns "$elsewhere"
elsewhere() { nsenter -t "$elsewhere" -n "$@"; }
for host in 2 12; do elsewhere ip address add 192.0.2.$host/24 dev far; done
elsewhere ip link set far up
elsewhere ip link set lo up

head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$tmp/cluster.key"
chmod 600 "$tmp/cluster.key"
# Heartbeats of CPFs would take 17 s.
cat >"$tmp/core.yaml" <<END
n2: { addresses: [192.0.2.1] }
n4: { node_id: 192.0.2.1 }
upfs: [{ name: east, address: "192.0.2.2:8805" }]
cluster: { listen: "192.0.2.1:7380", key_file: $tmp/cluster.key, heartbeat_interval: 1s, heartbeat_misses: 16 }
sbfd: { interval: 50ms, multiplier: 4, listen: "192.0.2.1:7784", peers: [{ name: east, address: "192.0.2.2:7784" }] }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
END
cat >"$tmp/east.yaml" <<END
n3: { address: 192.0.2.2 }
n4: { node_id: 192.0.2.2, listen: "192.0.2.2:8805", smfs: ["192.0.2.1:8805"] }
n6: { device: east }
data_networks: [{ dnn: internet, ipv4_pool: 10.50.0.0/16 }]
sbfd: { listen: "192.0.2.2:7784" }
api: { address: "127.0.0.1:8082" }
store: { path: $tmp/east.db }
END
# A unit, and two CTAs on the two hosts: heartbeats would take 17 s here, too.
cat >"$tmp/unit.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false, forwarding: false }
cluster: { heartbeat_interval: 1s, heartbeat_misses: 16 }
sbfd: { interval: 50ms, multiplier: 4 }
api: { address: "127.0.0.1:8083" }
store: { path: $tmp/unit.db, key_file: $tmp/unit.key }
unit: { directory: $tmp/unit }
END
for n in 1 2; do
  cat >"$tmp/cta$n.yaml" <<END
n2: { addresses: [192.0.2.1$n] }
n4: { node_id: 192.0.2.1$n }
upfs: [{ address: "192.0.2.19:8805" }]
cluster: { listen: "192.0.2.1$n:7380", key_file: $tmp/cluster.key, etcd: ["http://192.0.2.11:2379"], cta: $n, heartbeat_interval: 1s, heartbeat_misses: 16 }
sbfd: { interval: 50ms, multiplier: 4 }
api: { address: "127.0.0.1:8084" }
store: { path: $tmp/cta$n.db }
END
done
# east: starts the UPF of the far host.
east() {
  nsenter -t "$elsewhere" -n "$WHIMBREL" upf --config "$tmp/east.yaml" 2>>"$tmp/east.log" &
  upf=$!
  running+=("$upf")
}
# cpf NAME ADDRESS COMMAND...: starts a CPF there.
cpf() {
  local name=$1 at=$2
  shift 2
  "$@" "$WHIMBREL" cpf --cta 192.0.2.1:7380 --listen "$at:0" --key-file "$tmp/cluster.key" 2>>"$tmp/$name.log" &
  running+=($!)
}
# unit: the unit's functions. The functions outlive a manager, so they are ended by their own numbers.
unit() { "$WHIMBREL" unit --config "$tmp/unit.yaml" 2>/dev/null; }
leave() {
  unit | awk '$3 ~ /^[0-9]+$/ { print $3 }' | xargs -r kill -9 2>/dev/null || true
  finish
}
trap leave EXIT
# complete [PROCESS]: waits until the unit has two CTAs, and two CPFs that its primary probes, and this process is gone.
complete() {
  for _ in $(seq 400); do
    unit >"$tmp/state" || true
    if grep -q ' primary ' "$tmp/state" && grep -q ' replica ' "$tmp/state" && ! grep -qE ' (starting|leaving|given-up) ' "$tmp/state" &&
      ! grep -qw "${1:-none}" "$tmp/state" && [ "$(metric whimbrel_sbfd_sessions_up 127.0.0.1:8083)" = 3 ]; then return; fi
    sleep 0.05
  done
  cat "$tmp/state"
  wrong "the unit is not complete"
}
# process WHAT: the number of the unit's function of this name or state.
process() { awk -v what="$1" '$1 == what || $2 == what { print $3; exit }' "$tmp/state"; }
why() { "$WHIMBREL" why "$1" -c "$tmp/core.yaml"; }
# sessions N: waits until so many peers answer.
sessions() {
  for _ in $(seq 200); do
    [ "$(metric whimbrel_sbfd_sessions_up)" = "$1" ] && return
    sleep 0.05
  done
  wrong "$1 S-BFD peers should answer, not $(metric whimbrel_sbfd_sessions_up)"
}
# shows TEXT: waits until `why sbfd` says it.
shows() {
  for _ in $(seq 100); do
    case $(why sbfd) in *"$1"*) return ;; esac
    sleep 0.05
  done
  wrong "why sbfd does not say \"$1\": $(why sbfd)"
}

"$WHIMBREL" run --unit --config "$tmp/unit.yaml" 2>>"$tmp/unit.log" &
running+=($!)
pair=()
if command -v etcd >/dev/null; then
  etcd --name one --data-dir "$tmp/etcd" --listen-client-urls http://192.0.2.11:2379 --advertise-client-urls http://192.0.2.11:2379 \
    --listen-peer-urls http://192.0.2.11:2380 --initial-advertise-peer-urls http://192.0.2.11:2380 --initial-cluster one=http://192.0.2.11:2380 \
    >>"$tmp/etcd.log" 2>&1 &
  running+=($!)
  "$WHIMBREL" run --config "$tmp/cta1.yaml" 2>>"$tmp/one.log" &
  pair=($!)
  running+=($!)
fi
east
start core run
cpf near 192.0.2.1
near=$!
cpf far 192.0.2.2 nsenter -t "$elsewhere" -n
far=$!
sessions 3
shows "all 1 S-BFD peers answer"
complete
if [ ${#pair[@]} -gt 0 ]; then
  await one "this CTA is the primary"
  nsenter -t "$elsewhere" -n "$WHIMBREL" run --config "$tmp/cta2.yaml" 2>>"$tmp/two.log" &
  pair+=($!)
  running+=($!)
  await one "this CTA has a CTA replica"
fi

# A loaded host: four threads for each processor that compute, for three seconds.
for _ in $(seq $((4 * $(nproc)))); do timeout 3 sh -c "while :; do :; done" & done
sleep 3.2
sleep 0.6
case $(cat "$tmp/core.log") in
  *"that sends S-BFD probes runs under SCHED_FIFO"*)
    [ "$(metric whimbrel_sbfd_failures_total)" = 0 ] || wrong "$(metric whimbrel_sbfd_failures_total) false failures under load"
    ! grep -h "S-BFD probes are not answered" "$tmp"/*.log || wrong "a CPF or CTA was taken for dead under load" ;;
  *) echo "threads are ordinary here: false failures under load are not judged" ;;
esac
probes=$(metric whimbrel_sbfd_probes_total)
[ "$probes" -gt 100 ] || wrong "only $probes probes left"
sessions 3

# The far host's probes of its own reflector, and hostile packets of others: dropped, counted, logged once for each reason.
cat >"$tmp/hostile.py" <<'END'
import socket, struct, sys
def packet(first=0x20, flags=0xC2, multiplier=3, length=24, mine=7, yours=0xC0000201, rest=(5000, 0, 0)):
    return struct.pack(">4B5I", first, flags, multiplier, length, mine, yours, *rest)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("192.0.2.2", 0))
s.settimeout(1)
to = ("192.0.2.1", 7784)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
s.sendto(packet(), to)
answer, source = s.recvfrom(99)
assert source == to and struct.unpack(">4B5I", answer) == (0x20, 0xC0, 3, 24, 0xC0000201, 7, 5000, 1000, 0), (source, answer)
for octets in (
    b"", packet()[:23], packet(length=23), packet(length=25), packet(first=0x40), packet(multiplier=0), packet(flags=0xC3), packet(mine=0),
    packet(yours=0), packet(flags=0xC6), packet(flags=0xC0), packet(yours=8),
):
    s.sendto(octets, to)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 64)
s.sendto(packet(), to)
s.settimeout(0.3)
try:
    raise SystemExit(f"answered: {s.recvfrom(99)}")
except TimeoutError:
    pass
s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
for _ in range(20000):
    s.sendto(packet(), to)
END
elsewhere python3 "$tmp/hostile.py" || wrong "the reflector does not answer as it should"
sleep 0.6
dropped() { curl -sf http://127.0.0.1:8081/metrics | sed -n "s/^whimbrel_sbfd_dropped_total{reason=\"$1\"} //p"; }
for reason in truncated length version multiplier multipoint my_discriminator your_discriminator authentication direction discriminator ttl rate; do
  [ "$(dropped "$reason")" -gt 0 ] || wrong "no packet was dropped for its $reason"
done
lines=$(grep -c "an S-BFD packet is dropped" "$tmp/core.log" || true)
[ "$lines" -ge 10 ] && [ "$lines" -le 13 ] || wrong "$lines lines about dropped packets"
[ "$(metric whimbrel_sbfd_failures_total)" = 0 ] || wrong "a flood made a peer fail"

# The link is cut.
ip link set near down
await core "S-BFD probes are not answered"
await core "an S-BFD peer does not answer"
shows "east at 192.0.2.2:7784 has not answered"
await core "the UPF does not answer on N4"
grep -A3 "an S-BFD peer does not answer" "$tmp/core.log" | grep -q "the UPF does not answer on N4" || wrong "a heartbeat of N4 found the UPF's failure, not S-BFD"
[ "$(grep -c "heartbeats are not answered" "$tmp/core.log" || true)" = 0 ] || wrong "heartbeats were faster"
ip link set near up
sessions 3
shows "all 1 S-BFD peers answer"

# The UPF is stopped, goes on, and is killed.
kill -STOP "$upf"
await core "an S-BFD peer does not answer" 2
kill -CONT "$upf"
await core "an S-BFD peer answers" 3
kill -9 "$upf"
await core "an S-BFD peer does not answer" 3
east
await core "an S-BFD peer answers" 4

# The far CPF hangs.
sessions 3
found=$(grep -c "S-BFD probes are not answered" "$tmp/core.log")
kill -STOP "$far"
await core "S-BFD probes are not answered" $((found + 1))
kill -CONT "$far"
sessions 3

# A CPF of the unit hangs, and its primary: the other CPF serves, and the CTA replica. The manager starts them again.
complete
found=$(grep -c "S-BFD probes are not answered" "$tmp/unit.log" || true)
for what in cpf-1 primary; do
  victim=$(process $what)
  kill -STOP "$victim"
  found=$((found + 1))
  await unit "S-BFD probes are not answered" $found
  complete "$victim"
done
grep -q "S-BFD probes are not answered.* member=cpf-" "$tmp/unit.log" || wrong "the CPF of the unit was not found by S-BFD"
grep -q "S-BFD probes are not answered.* the primary CTA is lost" "$tmp/unit.log" || wrong "the primary of the unit was not found by S-BFD"
await unit "this CTA is the primary after a takeover"

# Of two CTAs on two hosts the replica hangs, and goes on: it is the replica again. Then the primary does: the replica has taken over, and the former primary
# becomes its replica. So a false alarm costs a takeover. The cut of the link has done the same to them before.
# once_more CTA TEXT: waits until it logs that once more; `before-CTA` is its log until then.
once_more() { await "$1" "$2" $(($(grep -c "$2" "$tmp/before-$1" || true) + 1)); }
if [ ${#pair[@]} -gt 0 ]; then
  for _ in $(seq 200); do # it is in order after the cut
    [ "$(grep -c "this CTA has a CTA replica" "$tmp/one.log")" -gt "$(grep -c "continues without a CTA replica" "$tmp/one.log")" ] && break
    sleep 0.05
  done
  cp "$tmp/one.log" "$tmp/before-one"
  kill -STOP "${pair[1]}"
  once_more one "S-BFD probes are not answered"
  once_more one "continues without a CTA replica"
  kill -CONT "${pair[1]}"
  once_more one "this CTA has a CTA replica"
  cp "$tmp/two.log" "$tmp/before-two"
  kill -STOP "${pair[0]}"
  once_more two "S-BFD probes are not answered"
  once_more two "this CTA is the primary after a takeover"
  kill -CONT "${pair[0]}"
  once_more two "this CTA has a CTA replica"
fi
[ "$(cat "$tmp"/*.log | grep -c "heartbeats are not answered" || true)" = 0 ] || wrong "heartbeats were faster"
echo "link cut, UPF stopped and killed, CPFs and CTAs stopped: each found by S-BFD; $probes probes under load"
[ ${#pair[@]} -gt 0 ] || echo "two CTAs on two hosts: not judged, etcd is not installed"
