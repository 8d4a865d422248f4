#!/usr/bin/env bash
# A gNB that offers fastwire beside one that does not: UEs register, use their sessions, are idle, return and hand over between the two, and
# tshark finds nothing wrong in the core's capture, which is in ASN.1. Then a core that is configured not to agree: the UEs are served
# alike. In a network namespace of its own.
#
# Usage: fastwire.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl tshark)
logs=(core.log off.log play.log)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs ping
# config NAME REST
config() {
  cat >"$tmp/$1.yaml" <<EOF
security: { ciphering: [NEA0] }
n6: { nat: false, ue_to_host: true } # the server is this host
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
$2
EOF
}
cat >"$tmp/play.yaml" <<'EOF'
ues: 8
gnbs: 2
arrival: { rate: 50 }
steps:
  - register
  - session: { dnn: internet, type: ipv4 }
  - ping: 203.0.113.1
  - handover: { via: xn }
  - ping: 203.0.113.1
  - wait: 0.3
  - handover: { via: n2 }
  - ping: 203.0.113.1
  - wait: 0.3
  - idle
  - wait: 0.1
  - return
  - handover: { via: xn }
  - ping: 203.0.113.1
  - deregister
EOF
play() { "$WHIMBREL_LAB" ran "$tmp/play.yaml" "$@" >"$tmp/play.log" 2>&1 || wrong "UEs failed"; }
"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
config core ""
config off "n2: { fastwire: false }"
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null

"$WHIMBREL" run --strict --config "$tmp/core.yaml" --capture "$tmp/core.pcap" 2>>"$tmp/core.log" &
running+=($!)
await core " ready"
play --fastwire=0
[ "$(grep -c 'a gNB uses fastwire' "$tmp/core.log")" = 1 ] || wrong "one of the two gNBs speaks fastwire"
[ "$(metric whimbrel_ngap_refused_total)" = 0 ] || wrong "messages were refused"
kill -TERM "${running[0]}"
wait "${running[0]}" || true
"$here/tshark_judge.sh" "$tmp/core.pcap" || wrong "the capture cannot be read"
heard() { tshark -n -r "$tmp/core.pcap" -o sctp.reassembly:TRUE -Y "$1" -T fields -e frame.number 2>/dev/null | wc -l; }
for what in NGSetupRequest NGSetupResponse; do
  [ "$(heard "ngap.${what}_element")" = 2 ] || wrong "the capture has $(heard "ngap.${what}_element") of 2 $what"
done
[ "$(heard ngap.HandoverRequired_element)" -ge 8 ] || wrong "the capture lacks handovers"

start off run
play --fastwire
! grep -q fastwire "$tmp/off.log" || wrong "no gNB was to use fastwire"
echo "8 UEs in both forms, and in ASN.1 alone where the core does not agree"
