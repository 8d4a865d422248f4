#!/usr/bin/env bash
# The demonstration's capture, judged by tshark: all messages between the core and the UEs on N2, N3 and N4, with NAS in
# clear. It fails on a malformed packet, on an element that tshark does not know and that may not be ignored, and on a
# protocol or message of the demonstration that the capture lacks.
#
# Usage: demo_capture.sh               runs `$WHIMBREL_LAB demo` and judges its capture
#        demo_capture.sh FILE.pcap     judges that capture of a demonstration with $UES UEs
# Exit status 0 good, 77 this host cannot run it (the last line says why), else a fault.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ues=${UES:-10}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. "$here/../needs.sh"

needs_tools tshark
capture=${1:-$tmp/demo.pcap}
if [ $# = 0 ]; then
  needs_namespace
  "$WHIMBREL_LAB" demo --ues "$ues" --null-cipher --capture "$capture" || exit
fi

wrong=0
"$here/tshark_judge.sh" "$capture" || wrong=1

# count FILTER: packets of the capture that it selects, twice where they carry two such messages.
count() {
  tshark -n -r "$capture" -o nas-5gs.null_decipher:TRUE -o sctp.reassembly:TRUE -Y "$1" -T fields -e frame.number \
    2>"$tmp/err" | wc -l || { cat "$tmp/err" >&2; exit 2; }
}

# holds AT-LEAST WHAT FILTER
holds() {
  local found
  found=$(count "$3")
  if [ "$found" -ge "$1" ]; then
    echo "$found of $2"
  else
    echo "WRONG: $found of $2, where at least $1 are due"
    wrong=1
  fi
}

holds 1 "NG SETUP REQUEST" "ngap.NGSetupRequest_element"
holds 1 "NG SETUP RESPONSE" "ngap.NGSetupResponse_element"
holds "$ues" "REGISTRATION REQUEST" "nas_5gs.mm.message_type == 0x41"
holds "$ues" "AUTHENTICATION REQUEST" "nas_5gs.mm.message_type == 0x56"
holds "$ues" "SECURITY MODE COMPLETE" "nas_5gs.mm.message_type == 0x5e"
holds "$ues" "REGISTRATION ACCEPT" "nas_5gs.mm.message_type == 0x42"
holds "$ues" "REGISTRATION ACCEPT in INITIAL CONTEXT SETUP REQUEST" \
  "ngap.InitialContextSetupRequest_element && nas_5gs.mm.message_type == 0x42"
holds "$ues" "PDU SESSION ESTABLISHMENT REQUEST" "nas_5gs.sm.message_type == 0xc1"
holds "$ues" "PDU SESSION ESTABLISHMENT ACCEPT in PDU SESSION RESOURCE SETUP REQUEST" \
  "ngap.PDUSessionResourceSetupRequest_element && nas_5gs.sm.message_type == 0xc2"
holds "$ues" "SERVICE ACCEPT" "nas_5gs.mm.message_type == 0x4e"
holds "$ues" "UE CONTEXT RELEASE COMMAND" "ngap.UEContextReleaseCommand_element"
holds "$ues" "DEREGISTRATION ACCEPT" "nas_5gs.mm.message_type == 0x46"
holds 1 "PFCP Association Setup Response, accepted" "pfcp.msg_type == 6 && pfcp.cause == 1"
holds "$ues" "PFCP Session Establishment Request" "pfcp.msg_type == 50 && pfcp.pdr_id && pfcp.far_id"
holds "$ues" "PFCP Session Establishment Response, accepted" "pfcp.msg_type == 51 && pfcp.cause == 1"
holds "$ues" "PFCP Session Modification Response, accepted" "pfcp.msg_type == 53 && pfcp.cause == 1"
holds "$ues" "PFCP Session Deletion Response, accepted" "pfcp.msg_type == 55 && pfcp.cause == 1"
holds "$ues" "uplink G-PDU with a PDU session container" \
  "gtp.message == 0xff && gtp.ext_hdr.pdu_ses_con.pdu_type == 1 && gtp.ext_hdr.pdu_ses_con.qos_flow_id && ip"
holds "$ues" "downlink G-PDU with a PDU session container" \
  "gtp.message == 0xff && gtp.ext_hdr.pdu_ses_con.pdu_type == 0 && gtp.ext_hdr.pdu_ses_con.qos_flow_id && ip"
holds "$ues" "DNS answer within GTP-U" "gtp && dns.flags.response == 1"
holds "$ues" "page within GTP-U" "gtp && http.response.code == 200"
none=$(count "gtp.message == 0xff && !gtp.ext_hdr.pdu_ses_con.pdu_type")
[ "$none" = 0 ] || { echo "WRONG: $none G-PDU without a PDU session container"; wrong=1; }
exit "$wrong"
