#!/usr/bin/env bash
# S-BFD between two hosts: a CPF and a UPF on the far one are found when the link is cut and when they are stopped or killed, long before heartbeats would find them;
# nothing is found on a loaded host whose peers live; hostile packets are dropped and counted. In network namespaces of its own.
#
# Usage: sbfd.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3 nsenter)
logs=(core.log near.log far.log east.log)
. "$(dirname "$0")/../netns.sh"

ip link add near type veth peer name far
ip address add 192.0.2.1/24 dev near
ip link set near up
unshare --net sleep infinity &
elsewhere=$!
running+=("$elsewhere")
own_network "$elsewhere"
ip link set far netns "$elsewhere"
elsewhere() { nsenter -t "$elsewhere" -n "$@"; }
elsewhere ip address add 192.0.2.2/24 dev far
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

east
start core run
cpf near 192.0.2.1
near=$!
cpf far 192.0.2.2 nsenter -t "$elsewhere" -n
far=$!
sessions 3
shows "all 1 S-BFD peers answer"

# A loaded host: four threads for each processor that compute, for three seconds.
for _ in $(seq $((4 * $(nproc)))); do timeout 3 sh -c "while :; do :; done" & done
sleep 3.2
sleep 0.6
case $(cat "$tmp/core.log") in
  *"that sends S-BFD probes runs under SCHED_FIFO"*)
    [ "$(metric whimbrel_sbfd_failures_total)" = 0 ] || wrong "$(metric whimbrel_sbfd_failures_total) false failures under load" ;;
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
[ "$(grep -c "heartbeats are not answered" "$tmp/core.log" || true)" = 0 ] || wrong "heartbeats were faster"
echo "link cut, UPF stopped and killed, CPF stopped: each found by S-BFD; $probes probes under load"
