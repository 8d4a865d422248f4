#!/usr/bin/env bash
# A packet logger in front of two UPFs on two hosts. The host of the UPF that serves is lost: its UPF is killed and its link cut, then (the other one) its link
# is cut alone, while a UE sends and receives a packet each millisecond: none is lost, doubled or reordered. In network namespaces of its own.
#
# Usage: packet_logger.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3 nsenter)
logs=(logger.log core.log a.log b.log ue.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs use
ip address add 192.0.2.8/32 dev lo   # the packet logger: N3, N4 and the links to the UPFs
ip address add 192.0.2.7/32 dev lo   # the SMF
head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$tmp/cluster.key"
chmod 600 "$tmp/cluster.key"
# The hosts a and b, each behind a wire.
declare -A host upf
wire() {
  unshare --net sleep infinity &
  host[$1]=$!
  running+=("${host[$1]}")
  own_network "${host[$1]}"
  ip link add "to-$1" type veth peer name wire
  ip link set wire netns "${host[$1]}"
  ip address add "$2.1/24" dev "to-$1"
  ip link set "to-$1" up
  on "$1" ip link set lo up
  on "$1" ip address add "$2.2/24" dev wire
  on "$1" ip link set wire up
  on "$1" ip route add default via "$2.1"
}
on() { nsenter -t "${host[$1]}" -n "${@:2}"; }
wire a 198.51.100
wire b 198.51.101

cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: { node_id: 192.0.2.7 }
upfs:
  - { name: pair, address: "192.0.2.8:8805" }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
END
for name in logger a b; do
  cat >"$tmp/$name.yaml" <<END
n3: { address: 192.0.2.8 }
n4: { listen: "192.0.2.8:8805", node_id: 192.0.2.8 }
n6: { device: pair, nat: false, ue_to_host: true } # the server is this host
data_networks:
  - { dnn: internet, ipv4_pool: 10.50.0.0/16 }
packet_logger: { address: "192.0.2.8:7390", key_file: $tmp/cluster.key, detection: ${DETECTION:-200ms}, packets: ${PACKETS:-16384} }
api: { address: "127.0.0.1:8082" }
store: { path: $tmp/$name.db }
END
done
cat >"$tmp/judge.py" <<'END'
# Both ends send each other a numbered datagram each millisecond. A server prints what it has of the client, a client what it has of the server: packets, lost,
# doubled, reordered, and the longest gap in milliseconds.
import socket, struct, sys, threading, time
role, seconds = sys.argv[1], float(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
s.settimeout(0.5)
peer, got, gaps = ("203.0.113.1", 7007), [], []
if role == "server":
    s.bind(peer)
    s.settimeout(60)
    _, peer = s.recvfrom(2048)
    s.settimeout(0.5)
else:
    for _ in range(40): # until the session is there
        s.sendto(struct.pack("!I", 0), peer)
        try:
            s.recv(2048)
            break
        except TimeoutError:
            pass
ended, end = threading.Event(), time.time() + seconds
def send():
    number, due = 0, time.time()
    while time.time() < end:
        number += 1
        s.sendto(struct.pack("!I", number) + b"x" * 100, peer)
        due += 0.001
        time.sleep(max(0, due - time.time()))
    ended.number = number
    time.sleep(1)
    for _ in range(5):
        s.sendto(struct.pack("!II", 0, number), peer)
        time.sleep(0.05)
    ended.set()
threading.Thread(target=send, daemon=True).start()
last, theirs, stop = None, None, end + 4
while time.time() < stop and not (ended.is_set() and theirs is not None):
    try:
        octets = s.recv(2048)
    except TimeoutError:
        continue
    now, (number,) = time.time(), struct.unpack("!I", octets[:4])
    if number == 0:
        theirs = struct.unpack("!I", octets[4:8])[0] if len(octets) == 8 else theirs
        continue
    got.append(number)
    gaps.append((now - (last or now)) * 1000)
    last = now
ended.wait(5)
if theirs is None:
    sys.exit("the other end was not heard at the end")
# The first packets may be from before the other end began to count.
known = set(got)
lost = theirs + 1 - min(known) - len(known)
doubled = len(got) - len(known)
reordered = sum(b < a for a, b in zip(got, got[1:]))
print(len(got), lost, doubled, reordered, round(max(gaps)))
END
# upf NAME: starts the UPF of a host.
upf() {
  # Not by `on`, so that the number is the program's.
  nsenter -t "${host[$1]}" -n "$WHIMBREL" upf --config "$tmp/$1.yaml" 2>>"$tmp/$1.log" &
  upf[$1]=$!
  running+=("$!")
}
"$WHIMBREL" packet-logger --config "$tmp/logger.yaml" 2>>"$tmp/logger.log" &
running+=($!)
await logger " ready"
upf a
await a " ready"
upf b
await logger "has the whole state" 1
"$WHIMBREL_LAB" ran --imsi 999700000000090 --ues 1 --write-subscribers "$tmp/one.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/one.csv" --config "$tmp/core.yaml" >/dev/null
start core run
await core "the UPF answers"

python3 "$tmp/judge.py" server 9 >"$tmp/up" &
server=$!
running+=("$server")
"$WHIMBREL_LAB" ran --imsi 999700000000090 --gnb-id 9 --gnb-address 127.0.1.9 --amf 127.0.0.31 -- \
  sh -c "python3 '$tmp/judge.py' client 9 >'$tmp/down'" >"$tmp/ue.log" 2>&1 &
ue=$!
running+=("$ue")
sleep 3
kill -9 "${upf[a]}"
ip link set to-a down
await logger "takes over, in term 2"
sleep 0.5
ip link set to-a up
upf a
await logger "has the whole state" 2
sleep 0.5
ip link set to-b down
await logger "takes over, in term 3"
sleep 0.5
ip link set to-b up
await logger "has the whole state" 3
wait "$ue" || wrong "the UE failed"
wait "$server" || wrong "the server heard no end"
for way in up down; do
  read -r packets lost doubled reordered gap <"$tmp/$way"
  echo "$way: $packets packets, $lost lost, $doubled doubled, $reordered reordered, the longest gap was $gap ms"
  [ "$lost $doubled $reordered" = "0 0 0" ] || bad=1
  [ "$packets" -gt 5000 ] || bad=1
done
[ -z "${bad:-}" ] || wrong "packets were lost, doubled or reordered, or too few came"
curl -sf http://127.0.0.1:8082/metrics | grep "^whimbrel_logger_" | sed 's/^/# /'
grep -h "takes over\|goes on in its place" "$tmp"/*.log | sed 's/^[^ ]* *//' | cut -c1-200
! grep -h "does not answer\|has restarted\|sessions were deleted" "$tmp/core.log" || wrong "the SMF has noticed a loss"
