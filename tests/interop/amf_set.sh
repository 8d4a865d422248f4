#!/usr/bin/env bash
# Two cores as two AMFs of one set (TS 23.501 §5.19, §5.21.2), which serve one tracking area with one UPF: idle UEs are served by the other one by SERVICE
# REQUEST; one is drained, and its UEs, idle ones and connected ones, are the other's; one is killed, and its UEs go on from the other's replicas, with their
# sessions. In a network namespace of its own.
#
# Usage: amf_set.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl)
logs=(north.log south.log upf.log play.log connected.log drain.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs ping
(umask 077; head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$tmp/peer-amfs.key")

cat >"$tmp/upf.yaml" <<END
n3: { address: 127.0.0.33 }
n4: { listen: "127.0.0.33:8805", smfs: ["127.0.0.31:8805", "127.0.0.32:8805"] }
n6: { device: both, nat: false, ue_to_host: true } # the server is this host
data_networks:
  - { dnn: internet, ipv4_pool: 10.50.0.0/16, ipv6_pool: none }
api: { address: "127.0.0.1:8083" }
store: { path: $tmp/upf.db }
END
# core NAME ADDRESS POINTER OTHER OTHERS-ADDRESS OTHERS-POINTER API
core() {
  cat >"$tmp/$1.yaml" <<END
amf: { name: $1, pointer: $3 }
n2: { addresses: [$2] }
n3: { address: $2 }
n4: { node_id: $2 }
upfs: [{ name: both, address: "127.0.0.33:8805" }]
peer_amfs:
  listen: "$2:7390"
  key_file: $tmp/peer-amfs.key
  amfs: [{ name: $4, pointer: $6, addresses: ["$5:7390"], replicas: 100 }]
api: { address: "$7" }
store: { path: $tmp/$1.db }
END
  "$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/$1.yaml" >/dev/null
  start "$1" run
}
registered() { "$WHIMBREL" ue list -c "$tmp/$1.yaml" | grep -c 'imsi-' || true; }
# become NAME COUNT: waits until so many UEs are registered there
become() {
  for _ in $(seq 120); do
    [ "$(registered "$1")" = "$2" ] && return
    sleep 0.05
  done
  wrong "$1 has $(registered "$1") UEs, and not $2"
}
# scenario NAME UES STEPS: the first UE is at the gNB of north, the second at that of south, and so on
scenario() { printf 'ues: %s\ngnbs: 2\narrival: { rate: 100 }\nsteps: [%s]\n' "$2" "$3" >"$tmp/$1.yaml"; }
ran() { "$WHIMBREL_LAB" ran "$tmp/$1.yaml" --amf 127.0.0.31 --other-amf 1=127.0.0.32,1 "${@:2}"; }
# played NAME: waits for a scenario that runs in the background
played() { wait "$playing" || wrong "UEs failed: $1"; }
play() { ran "$1" -v >"$tmp/play.log" 2>&1 & playing=$!; running+=("$playing"); }
# reached NAME EVENT COUNT: so many UEs have done that
reached() {
  for _ in $(seq 400); do
    [ "$(grep -c "$2" "$tmp/play.log" || true)" -ge "$3" ] && return
    sleep 0.05
  done
  wrong "$1: not all UEs have reached: $2"
}
begin='register, session: { dnn: internet, type: ipv4 }, ping: 203.0.113.1'

scenario away 12 "$begin, idle, move, return, ping: 203.0.113.1, idle, move, return, ping: 203.0.113.1, deregister"
ran away --write-subscribers "$tmp/ues.csv" >/dev/null
start upf upf
core north 127.0.0.31 0 south 127.0.0.32 1 127.0.0.1:8081
north=$!
core south 127.0.0.32 1 north 127.0.0.31 0 127.0.0.1:8082
await north "the UPF answers"
await south "the UPF answers"
await north "a peer AMF is connected"
await south "a peer AMF is connected"

play away
played "service requests at the other AMF"
become north 0 # a UE context stays for three seconds, in case an answer to the other AMF is lost
become south 0
echo "12 UEs were served by the other AMF and back, by service requests alone"

scenario drained 1 "$begin, idle, wait: 3, move, return, ping: 203.0.113.1, wait: 0.2, idle, wait: 0.2, return, ping: 203.0.113.1, deregister"
# Two UEs that stay connected, one at each AMF, at a gNB that selects among both.
printf 'ues: 2\ngnbs: 1\nsteps: [%s]\n' "$begin, wait: 4, ping: 203.0.113.1, idle, wait: 0.2, return, ping: 203.0.113.1, deregister" >"$tmp/connected.yaml"
"$WHIMBREL_LAB" ran "$tmp/connected.yaml" --amf-set 127.0.0.31,127.0.0.32 --gnb-id 9 --gnb-address 127.0.1.9 --imsi 999700000000011 -v >"$tmp/connected.log" 2>&1 &
connected=$!
running+=("$connected")
await connected SessionUp 2
become south 1
play drained
reached drained "ContextReleased" 1
"$WHIMBREL" drain --config "$tmp/north.yaml" >"$tmp/drain.log" 2>&1 || wrong "not drained"
grep -q "all UEs are at south" "$tmp/drain.log" || wrong "drained otherwise"
become south 3
played "after a drain"
wait "$connected" || wrong "a connected UE failed after a drain"
"$WHIMBREL" drain --cancel --config "$tmp/north.yaml" >/dev/null
echo "the idle UE and the connected UE of a drained AMF were served by the other one"

scenario killed 1 "$begin, idle, move, paged, ping: 203.0.113.1, idle, wait: 0.2, return, ping: 203.0.113.1, deregister"
play killed
reached killed "ContextReleased" 1
ue=$("$WHIMBREL" ue list -c "$tmp/north.yaml" --json | grep -oE '10\.50\.[0-9]+\.[0-9]+')
sleep 0.5 # replicas go to the other AMF every 100 ms
kill -9 "$north"
await south "a peer AMF cannot be reached"
ping -c 1 -W 15 "$ue" >"$tmp/ping.log" 2>&1 || wrong "the UE did not answer a ping that came while it was idle: $(cat "$tmp/ping.log")"
played "after the loss of their AMF"
promoted=$(metric whimbrel_peer_replicas_promoted_total 127.0.0.1:8082)
[ "$promoted" = 1 ] || wrong "the UE did not go on from its replica"
echo "the idle UE of a dead AMF was paged by the other one, and went on with its session"
