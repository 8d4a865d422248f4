#!/usr/bin/env bash
# A core without a user plane of its own, and two UPFs in programs of theirs: UEs get sessions at both, ping through both, and
# go to the other when one is killed (TS 23.501 §6.3.3, TS 23.527 §4.4) or drained (TS 23.502 §4.3.5). In a network namespace of its own.
#
# Usage: several_upfs.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl)
logs=(core.log east.log west.log play.log stays.log drain.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs ping

cat >"$tmp/core.yaml" <<EOF
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: { node_id: 127.0.0.31 }
upfs:
  - { name: east, address: "127.0.0.32:8805" }
  - { name: west, address: "127.0.0.33:8805" }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
EOF
# upf NAME ADDRESS POOL API
upf() {
  cat >"$tmp/$1.yaml" <<EOF
n3: { address: $2 }
n4: { listen: "$2:8805", smfs: ["127.0.0.31:8805"] }
n6: { device: $1, nat: false, ue_to_host: true } # the server is this host
data_networks:
  - { dnn: internet, ipv4_pool: $3, ipv6_pool: none }
api: { address: "$4" }
store: { path: $tmp/$1.db }
EOF
  start "$1" upf
}

# uplink API: packets that a UPF has carried from UEs.
uplink() { metric whimbrel_n3_ul_packets_total "$1"; }

# carried API LEAST: waits until a UPF has carried more than so many; its metrics are half a second old at most.
carried() {
  for _ in $(seq 60); do
    [ "$(uplink "$1")" -gt "$2" ] && return
    sleep 0.1
  done
  wrong "the UPF of $1 has carried no more than $2"
}

cat >"$tmp/play.yaml" <<'EOF'
ues: 12
arrival: { rate: 50 }
steps: [register, session: { dnn: internet, type: ipv4 }, ping: 203.0.113.1, deregister]
EOF
play() {
  "$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 >"$tmp/play.log" 2>&1 || wrong "UEs failed $1"
  echo "12 UEs were served $1"
}

upf east 127.0.0.32 10.50.0.0/16 127.0.0.1:8082
east=$!
upf west 127.0.0.33 10.60.0.0/16 127.0.0.1:8083
west=$!
"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
start core run
core=$!
await core "the UPF east answers"
await core "the UPF west answers"

play "by two UPFs"
carried 127.0.0.1:8082 0
carried 127.0.0.1:8083 0
sleep 1
before=$(uplink 127.0.0.1:8083)

kill -9 "$east"
play "while one of them is dead and not yet detected"
carried 127.0.0.1:8083 "$before"
await core "the UPF east does not answer"

upf east 127.0.0.32 10.50.0.0/16 127.0.0.1:8082
await core "the UPF east answers" 2
play "after it has come back"

# One that is drained loses its sessions, keeps its association, and gets no session, also from a core that starts again, until the drain ends.
cat >"$tmp/stays.yaml" <<'EOF'
ues: 8
arrival: { rate: 100 }
steps: [register, session: { dnn: internet, type: ipv4 }, wait: 3]
EOF
order() { "$WHIMBREL" upf drain east --config "$tmp/core.yaml" "$@"; }
"$WHIMBREL_LAB" ran "$tmp/stays.yaml" --amf 127.0.0.31 >"$tmp/stays.log" 2>&1 &
stays=$!
running+=("$stays")
for _ in $(seq 60); do
  [ "$(metric 'whimbrel_smf_upf_ues{upf="east"}')" -gt 0 ] && break
  sleep 0.05
done
order --within 1 >"$tmp/drain.log" || wrong "UEs stay at the UPF that is drained"
grep -q "UEs have sessions at east, which are released in" "$tmp/drain.log" || wrong "the drain does not show its progress"
grep -q "no UE has a session at east" "$tmp/drain.log" || wrong "the drain does not say that it is done"
kill -9 "$core"
kill "$stays" # its gNBs have the addresses of those that come next
wait "$stays" || true
start core run
core=$!
await core "the UPF east is drained, as the operator ordered before the core started"
await core "the UPF east answers" 3
await core "the UPF west answers" 2
before=$(uplink 127.0.0.1:8082)
play "while the other one is drained"
order --show | grep -q "no UE has a session at east" || wrong "the drain does not outlive the core"
sleep 0.6 # metrics
[ "$(uplink 127.0.0.1:8082)" -eq "$before" ] || wrong "the UPF that is drained has got sessions"
order --cancel | grep -q "east is not being drained" || wrong "the drain does not end"
play "after it has ended"
carried 127.0.0.1:8082 "$before"

# One that is stopped in order asks to be left, and is (TS 29.244 §6.2.8.3).
kill "$west"
wait "$west" || wrong "west does not stop in order"
await core "the UPF west requests its release"
await core "the UPF west was released"
play "by the one that is left"

kill "$core"
wait "$core" || wrong "the core does not stop in order"
await east "ended: it released it"
echo "the core has released its UPF"
