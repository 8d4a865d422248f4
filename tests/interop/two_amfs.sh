#!/usr/bin/env bash
# Two cores, each with a gNB, and one UPF of both: connected UEs go from one AMF to the other and back by N2 handover (TS 23.502 §4.9.1.3),
# with their sessions, while packets pass; then one core is killed, and UEs of the other stay. In a network namespace of its own.
#
# Usage: two_amfs.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl)
logs=(north.log south.log upf.log play.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs ping
(umask 077; head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$tmp/peer-amfs.key")

cat >"$tmp/upf.yaml" <<EOF
n3: { address: 127.0.0.33 }
n4: { listen: "127.0.0.33:8805", smfs: ["127.0.0.31:8805", "127.0.0.32:8805"] }
n6: { device: both, nat: false, ue_to_host: true } # the server is this host
data_networks:
  - { dnn: internet, ipv4_pool: 10.50.0.0/16, ipv6_pool: none }
api: { address: "127.0.0.1:8083" }
store: { path: $tmp/upf.db }
EOF
# core NAME ADDRESS TAC POINTER OTHER OTHERS-ADDRESS OTHERS-TAC OTHERS-POINTER API
core() {
  cat >"$tmp/$1.yaml" <<EOF
tacs: [$3]
amf: { pointer: $4 }
n2: { addresses: [$2] }
n3: { address: $2 }
n4: { node_id: $2 }
upfs: [{ name: both, address: "127.0.0.33:8805" }]
peer_amfs:
  listen: "$2:7390"
  key_file: $tmp/peer-amfs.key
  amfs: [{ name: $5, pointer: $8, tacs: [$7], addresses: ["$6:7390"], replicas: 100 }]
api: { address: "$9" }
store: { path: $tmp/$1.db }
EOF
  "$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/$1.yaml" >/dev/null
  start "$1" run
}
registered() { "$WHIMBREL" ue list -c "$tmp/$1.yaml" | grep -c 'imsi-' || true; }

cat >"$tmp/play.yaml" <<'EOF'
ues: 12
gnbs: 2
arrival: { rate: 50 }
steps:
  - register
  - session: { dnn: internet, type: ipv4 }
  - ping: 203.0.113.1
  - handover: { via: n2 }
  - ping: 203.0.113.1
  - wait: 0.5 # states go to the other AMF every 100 ms; a busy host takes longer
  - handover: { via: n2 }
  - ping: 203.0.113.1
  - wait: 0.5
  - handover: { via: n2 }
  - idle
  - wait: 0.1
  - return
  - ping: 203.0.113.1
  - deregister
EOF
ran() { "$WHIMBREL_LAB" ran "$1" --amf 127.0.0.31 --other-amf 1=127.0.0.32,2 "${@:2}"; }
ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
start upf upf
core north 127.0.0.31 1 0 south 127.0.0.32 2 1 127.0.0.1:8081
core south 127.0.0.32 2 1 north 127.0.0.31 1 0 127.0.0.1:8082
south=$!
await north "the UPF answers"
await south "the UPF answers"
await north "a peer AMF is connected"
await south "a peer AMF is connected"

ran "$tmp/play.yaml" -v >"$tmp/play.log" 2>&1 || wrong "UEs failed"
[ "$(grep -c '^imsi-[0-9]*: HandedOver' "$tmp/play.log")" = 36 ] || wrong "not all were handed over"
[ "$(registered north)" = 0 ] && [ "$(registered south)" = 0 ] || wrong "a UE that has left is still registered"
for _ in $(seq 100); do # metrics are half a second old at most
  used=$(($(metric whimbrel_peer_replicas_used_total) + $(metric whimbrel_peer_replicas_used_total 127.0.0.1:8082)))
  [ "$used" -lt 24 ] || break
  sleep 0.05
done
[ "$used" -ge 24 ] || wrong "only $used of 36 handovers began at a state that the other AMF had"
echo "12 UEs went to the other AMF, back, and there again with their sessions, and slept and woke there"

kill -9 "$south"
await north "a peer AMF cannot be reached"
cat >"$tmp/alone.yaml" <<'EOF'
ues: 6
gnbs: 1
steps: [register, session: { dnn: internet, type: ipv4 }, ping: 203.0.113.1, idle, wait: 0.1, return, deregister]
EOF
"$WHIMBREL_LAB" ran "$tmp/alone.yaml" --amf 127.0.0.31 >"$tmp/alone.log" 2>&1 || wrong "UEs of the AMF that is left failed"
echo "UEs of one AMF do not notice that the other one is dead"
