#!/usr/bin/env bash
# UEs are handed over between the areas of two UPFs, each a program of its own, by N2 and by Xn: an intermediate UPF is inserted and removed over PFCP, and their
# packets pass both over GTP-U (TS 23.502 §4.9.1.2.3, §4.9.1.2.4, §4.9.1.3). Then the second UPF is killed: UEs in the first area are still served. tshark judges N4, if it
# is there. In a network namespace of its own.
#
# Usage: upf_change.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl)
logs=(core.log east.log west.log play.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs ping
west=127.0.0.1:8083 east=127.0.0.1:8082

cat >"$tmp/core.yaml" <<EOF
tacs: [1, 2]
security: { ciphering: [NEA0] } # for tshark
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: { node_id: 127.0.0.31 }
upfs:
  - { name: west, address: "127.0.0.33:8805", tacs: [1] }
  - { name: east, address: "127.0.0.32:8805", tacs: [2] }
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
upf west 127.0.0.33 10.60.0.0/16 "$west"
upf east 127.0.0.32 10.50.0.0/16 "$east"
dies=$!

# scenario VIA: UEs go from the first gNB to the second, in the other UPF's area, and back.
scenario() {
  cat >"$tmp/play.yaml" <<EOF
ues: 8
gnbs: 2
arrival: { rate: 50 }
steps:
  - register
  - session: { dnn: internet, type: ipv4 }
  - ping: 203.0.113.1
  - handover: { via: $1 }
  - ping: 203.0.113.1
  - wait: 1.5
  - ping: 203.0.113.1
  - handover: { via: $1 }
  - ping: 203.0.113.1
  - deregister
EOF
}
# play VIA WHERE: the gNBs counted from 0 are in the areas 1 and 2.
play() {
  scenario "$1"
  "$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 --other-amf 1=127.0.0.31,2 >"$tmp/play.log" 2>&1 || wrong "UEs failed $2"
}
# settled METRIC API VALUE: waits until a metric has this value.
settled() {
  for _ in $(seq 100); do
    [ "$(metric "$1" "$2")" = "$3" ] && return
    sleep 0.05
  done
  wrong "$1 of $2 is $(metric "$1" "$2"), not $3"
}

scenario n2
"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
"$WHIMBREL" run --strict --config "$tmp/core.yaml" --capture "$tmp/n4.pcap" 2>>"$tmp/core.log" &
core=$!
running+=("$core")
await core " ready"
await core "the UPF east answers"
await core "the UPF west answers"

relayed=(0 0)
for via in n2 xn; do
  play "$via" "by $via"
  for n in 0 1; do
    [ "$n" = 0 ] && at=$west || at=$east
    for _ in $(seq 60); do
      now=$(metric whimbrel_n3_relayed_total "$at")
      [ "$now" -gt "${relayed[n]}" ] && break
      sleep 0.1
    done
    settled whimbrel_upf_sessions "$at" 0
    echo "$via: the UPF of $at has relayed $((now - relayed[n])) packets"
    relayed[n]=$now
  done
done
[ "${relayed[0]}" -gt 0 ] && [ "${relayed[1]}" -gt 0 ] || wrong "packets did not pass an intermediate UPF"

# A UPF that is dead and not yet detected, then detected: UEs in the other area keep their sessions.
kill -9 "$dies"
await core "the UPF east does not answer"
scenario n2
sed -i '/handover/d' "$tmp/play.yaml"
"$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 >"$tmp/play.log" 2>&1 || wrong "UEs failed in the west, with the other UPF dead"
echo "UEs in the west are served while the UPF of the east is dead"

kill "$core"
wait "$core" || wrong "the core does not stop in order"
if command -v tshark >/dev/null; then
  "$(dirname "$0")/tshark_judge.sh" "$tmp/n4.pcap"
  requests=$(tshark -r "$tmp/n4.pcap" -Y 'pfcp.msg_type == 50 && pfcp.source_interface == 1 && pfcp.f_teid_flags.ch == 1' 2>/dev/null | wc -l)
  [ "$requests" -ge 16 ] || wrong "tshark finds $requests requests to intermediate UPFs"
fi
