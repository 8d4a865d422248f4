#!/usr/bin/env bash
# A UPF that is killed, stopped and started again with its state file, while UEs download, ping, sleep and return: they keep their sessions and
# addresses, and neither the core nor a UE establishes a session again (TS 23.527 §4.2). Then packets wait there for an idle UE that does not answer PAGING, and
# the UPF is killed again: when the UE answers, it gets all of them in order. In a network namespace of its own.
#
# Usage: upf_dies.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(core.log east.log play.log download.log numbers.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs use
mkdir "$tmp/pages"
head -c 12000000 /dev/urandom >"$tmp/pages/file"
python3 -m http.server --bind 203.0.113.1 --directory "$tmp/pages" 8000 >/dev/null 2>&1 &
running+=($!)
for _ in $(seq 400); do
  curl -sf -o /dev/null http://203.0.113.1:8000/ && break
  sleep 0.05
done
curl -sf -o /dev/null http://203.0.113.1:8000/ || setup_failed "the HTTP server does not start"
cat >"$tmp/echo.py" <<'END'
# As a server: returns each datagram. As a client: sends one every 2 ms until the file of its argument is there and an answer has come after that; prints the
# longest time without an answer.
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if len(sys.argv) == 1:
    s.bind(("203.0.113.1", 7007))
    while True:
        octets, peer = s.recvfrom(2048)
        s.sendto(octets, peer)
s.settimeout(0.002)
last, gap, sent, received, asked = None, 0, 0, 0, None
while asked is None or (last or 0) < asked and time.time() < asked + 20:
    if asked is None and os.path.exists(sys.argv[1]):
        asked = time.time()
    s.sendto(b"x" * 100, ("203.0.113.1", 7007))
    sent += 1
    begun = time.time()
    while time.time() - begun < 0.002:
        try:
            s.recv(2048)
        except TimeoutError:
            break
        now, received = time.time(), received + 1
        gap, last = max(gap, now - (last or now)), now
print(f"{gap * 1000:.0f} {sent - received} {sent} {'answered' if (last or 0) >= asked else 'silent'}")
END
python3 "$tmp/echo.py" &
running+=($!)

cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: { node_id: 127.0.0.31 }
upfs:
  - { name: east, address: "127.0.0.32:8805" }
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
# east: starts the UPF, with its state file; `again` counts how often.
again=0
east() {
  "$WHIMBREL" upf --strict --config "$tmp/east.yaml" --state "$tmp/east.state" 2>>"$tmp/east.log" &
  upf=$!
  running+=("$upf")
  again=$((again + 1))
  for _ in $(seq 1000); do
    [ "$(grep -c " ready" "$tmp/east.log" 2>/dev/null || true)" -ge "$again" ] && return
    kill -0 "$upf" 2>/dev/null || break
    sleep 0.01
  done
  wrong "the UPF does not start"
}

cat >"$tmp/play.yaml" <<'END'
seconds: 7
gnbs: 2
groups:
  - name: awake
    ues: 12
    begin: [register, session: { dnn: internet, type: ipv4 }]
    repeat: [ping: 203.0.113.1, wait: 0.2]
    end: [deregister]
  - name: sleepers
    ues: 8
    begin: [register, session: { dnn: internet, type: ipv4 }]
    repeat: [ping: 203.0.113.1, idle, wait: 0.7, return]
    end: [deregister]
  - name: walkers
    ues: 8
    begin: [register, session: { dnn: internet, type: ipv4 }]
    repeat: [handover: { via: xn }, ping: 203.0.113.1, wait: 0.4]
    end: [deregister]
END
# procedures: PDU session establishments that the core has counted.
procedures() {
  curl -sf http://127.0.0.1:8081/metrics | awk '/^whimbrel_procedures_total/ && /"pdu_session_establishment"/ { n += $2 } END { print n + 0 }'
}
east
"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL_LAB" ran --imsi 999700000000090 --ues 1 --write-subscribers "$tmp/one.csv" >/dev/null
for list in ues one; do "$WHIMBREL" subscriber import "$tmp/$list.csv" --config "$tmp/core.yaml" >/dev/null; done
start core run
await core "the UPF answers"

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 >"$tmp/play.log" 2>&1 &
play=$!
running+=("$play")
# One more UE downloads, and sends a datagram every 2 ms that the server returns.
"$WHIMBREL_LAB" ran --imsi 999700000000090 --gnb-id 9 --gnb-address 127.0.1.9 --amf 127.0.0.31 -- sh -c "
  python3 '$tmp/echo.py' '$tmp/stop' >'$tmp/gap' &
  curl -sf --limit-rate 2000k -o '$tmp/got' http://203.0.113.1:8000/file || exit 1
  wait" >"$tmp/download.log" 2>&1 &
download=$!
running+=("$download")
for _ in $(seq 400); do
  established=$(procedures)
  [ "$established" -ge 29 ] && [ -s "$tmp/got" ] && break
  sleep 0.05
done
[ "$established" = 29 ] && [ -s "$tmp/got" ] || wrong "$established sessions were established, and a download should run"
sleep 0.5

kill -9 "$upf"
wait "$upf" 2>/dev/null || true
east
await east "goes on with .* sessions of 1 SMFs" 1
echo "killed: $(grep -o 'goes on with.*' "$tmp/east.log" | tail -n 1)"
sleep 1.5
kill "$upf" # to start another version, say
wait "$upf" || wrong "the UPF does not stop in order"
east
await east "goes on with .* sessions of 1 SMFs" 2
echo "stopped and started: $(grep -o 'goes on with.*' "$tmp/east.log" | tail -n 1)"
touch "$tmp/stop"
wait "$download" || wrong "the download ended"
cmp -s "$tmp/got" "$tmp/pages/file" || wrong "the download is not the file"
read -r gap lost sent silent <"$tmp/gap"
echo "a download of 12 MB went on; the longest time without an answer was $gap ms, $lost of $sent datagrams were lost"
[ "$silent" = answered ] || wrong "no answer came at the end"
wait "$play" || wrong "UEs failed"
[ "$(procedures)" = "$established" ] || wrong "sessions were established again: $(procedures), not $established"
echo "0 of $established sessions were established again"
! grep -h "does not answer\|has restarted\|sessions were deleted" "$tmp/core.log" "$tmp/east.log" || wrong "a session or an association was lost"
grep -h "completed all steps" "$tmp/play.log"

# A UE becomes idle after a second without packets, from now on.
sed -i '/^n4:/a timers: { session_inactivity: 1s }' "$tmp/core.yaml"
"$WHIMBREL" reload --config "$tmp/core.yaml" >/dev/null
cat >"$tmp/numbers.py" <<'END'
# As a server: answers the UE that shows its address, each time, and sends it the numbers from 1 to 40 when a line comes in. As the UE's program (with an
# argument): shows its address until something comes, and prints the numbers that it gets, until all are there or none has come for a while.
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if len(sys.argv) == 1:
    s.bind(("203.0.113.1", 7008))
    print("bound", flush=True)
    peer = None
    while sys.stdin not in (ready := select.select([s, sys.stdin], [], [])[0]):
        _, peer = s.recvfrom(2048)
        s.sendto(b"known", peer)
        print("known", flush=True)
    for n in range(1, 41):
        s.sendto(str(n).encode(), peer)
    sys.exit()
s.settimeout(1)
got = None
# The emulated UE drops what it has to send while it is idle, and returns; an answer that meets the release of its connection is lost on the radio.
while got is None:
    s.sendto(b"here", ("203.0.113.1", 7008))
    try:
        got = [s.recv(2048).decode()]
    except TimeoutError:
        pass
s.settimeout(60)
try:
    while len(got) < 40 or "known" in got:
        got = [number for number in got if number != "known"] + [s.recv(2048).decode()]
except TimeoutError:
    pass
print(" ".join(got))
END
mkfifo "$tmp/now"
python3 "$tmp/numbers.py" <"$tmp/now" >"$tmp/server.log" &
running+=($!)
exec 9>"$tmp/now"
await server bound
"$WHIMBREL_LAB" ran --imsi 999700000000090 --gnb-id 9 --gnb-address 127.0.1.9 --amf 127.0.0.31 -- \
  sh -c "python3 '$tmp/numbers.py' ue >'$tmp/numbers'" >"$tmp/numbers.log" 2>&1 &
ue=$!
running+=("$ue")
await server known
is_idle() { "$WHIMBREL" ue show 999700000000090 --json --config "$tmp/core.yaml" | grep -q CM-IDLE; }
idle() {
  for _ in $(seq 400); do
    is_idle && return
    sleep 0.05
  done
  wrong "the UE does not become idle"
}
# Stopped, it does not answer PAGING. Its kernel sends IPv6 packets at random times: it may have returned just before that.
until idle && kill -STOP "$ue" && is_idle; do kill -CONT "$ue"; done
echo now >&9
for _ in $(seq 400); do
  [ "$(metric whimbrel_upf_buffered 127.0.0.1:8082)" = 40 ] && break
  sleep 0.05
done
[ "$(metric whimbrel_upf_buffered 127.0.0.1:8082)" = 40 ] || wrong "$(metric whimbrel_upf_buffered 127.0.0.1:8082) packets wait, not 40"
kill -9 "$upf"
wait "$upf" 2>/dev/null || true
east
kill -CONT "$ue"
wait "$ue" || wrong "the UE failed"
[ "$(cat "$tmp/numbers")" = "$(seq -s ' ' 40)" ] || wrong "the UE got: $(cat "$tmp/numbers")"
echo "40 packets that waited for an idle UE while the UPF was killed came, in order"
