#!/usr/bin/env bash
# Packets wait at the UPF for an idle UE that does not answer paging yet; the UPF is killed and started again with its state file; then the UE returns, and has all
# of them, in order. In a network namespace of its own.
#
# Usage: upf_buffers.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(core.log east.log server.log ue.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs use
cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: { node_id: 127.0.0.31 }
upfs:
  - { name: east, address: "127.0.0.32:8805" }
timers: { session_inactivity: 1s }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
END
cat >"$tmp/east.yaml" <<END
n3: { address: 127.0.0.32 }
n4: { listen: "127.0.0.32:8805", smfs: ["127.0.0.31:8805"] }
n6: { device: east, nat: false, ue_to_host: true } # the server is this host
data_networks:
  - { dnn: internet, ipv4_pool: 10.50.0.0/16 }
api: { address: "127.0.0.1:8082" }
store: { path: $tmp/east.db }
END
east() {
  "$WHIMBREL" upf --strict --config "$tmp/east.yaml" --state "$tmp/east.state" 2>>"$tmp/east.log" &
  upf=$!
  running+=("$upf")
  await east " ready" "$1"
}
cat >"$tmp/numbers.py" <<'END'
# The UE's program: shows the server its address, then prints the numbers that it gets, until none has come for some seconds.
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(40):
    s.sendto(b"here", ("203.0.113.1", 7007))
    s.settimeout(0.5)
    try:
        if s.recv(2048) == b"known":
            break
    except TimeoutError:
        pass
s.settimeout(12)
got = []
while True:
    try:
        octets = s.recv(2048)
    except TimeoutError:
        break
    if octets != b"known":
        got.append(octets.decode())
    if len(got) >= 40:
        break
print(" ".join(got))
END
cat >"$tmp/server.py" <<'END'
# Learns the UE's address; then sends it the numbers up to 40 whenever a line comes in.
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("203.0.113.1", 7007))
_, peer = s.recvfrom(2048)
s.sendto(b"known", peer)
print("known", flush=True)
sys.stdin.readline()
for n in range(1, 41):
    s.sendto(str(n).encode(), peer)
END
east 1
"$WHIMBREL" ran --imsi 999700000000090 --ues 1 --write-subscribers "$tmp/one.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/one.csv" --config "$tmp/core.yaml" >/dev/null
start core run
await core "the UPF answers"
mkfifo "$tmp/now"
python3 "$tmp/server.py" <"$tmp/now" >"$tmp/server.log" &
running+=($!)
exec 9>"$tmp/now"
"$WHIMBREL" ran --imsi 999700000000090 --gnb-id 9 --gnb-address 127.0.1.9 --amf 127.0.0.31 -- \
  sh -c "python3 '$tmp/numbers.py' >'$tmp/numbers'" >"$tmp/ue.log" 2>&1 &
ue=$!
running+=("$ue")
await server known
sleep 0.6 # metrics are half a second old at most
for _ in $(seq 200); do
  [ "$(metric whimbrel_ues_connected)" = 0 ] && break
  sleep 0.05
done
[ "$(metric whimbrel_ues_connected)" = 0 ] || wrong "the UE does not become idle"
kill -STOP "$ue" # it does not answer paging
echo now >&9
for _ in $(seq 100); do
  [ "$(metric whimbrel_upf_buffered 127.0.0.1:8082)" = 40 ] && break
  sleep 0.05
done
[ "$(metric whimbrel_upf_buffered 127.0.0.1:8082)" = 40 ] || wrong "40 packets do not wait: $(metric whimbrel_upf_buffered 127.0.0.1:8082)"
kill -9 "$upf"
wait "$upf" 2>/dev/null || true
east 2
kill -CONT "$ue"
wait "$ue" || wrong "the UE failed"

[ "$(cat "$tmp/numbers")" = "$(seq -s ' ' 40)" ] || wrong "the UE got: $(cat "$tmp/numbers")"
echo "40 packets that waited for an idle UE while the UPF was killed came, in order"
