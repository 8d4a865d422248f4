#!/usr/bin/env bash
# tshark as a judge: fails if a capture holds a packet of ours that tshark finds malformed, an expert error in one of our
# protocols (NGAP, NAS-5GS, PFCP, GTP-U, SCTP), or an element that tshark does not know and that may not be ignored.
#
# Usage: tshark_judge.sh FILE.pcap...    prints each finding; exit status 0 clean, 1 findings, 2 could not judge
#        tshark_judge.sh --selftest      plants faults in small captures and sees that they, and only they, are found
#
# JUDGE_FROM=ADDRESS in the environment: judge only what that address sent.
# NAS is readable only where the null cipher (5G-EA0) was used: capture with that. SCTP is looked for in UDP port 9899,
# too (RFC 6951).
set -euo pipefail

OPTIONS=(
  -o nas-5gs.null_decipher:TRUE      # decode what a 5G-EA0 header covers
  -o "sctp.checksum:CRC 32c"          # a wrong checksum is an expert error
  -o sctp.reassembly:TRUE            # an NGAP message may span DATA chunks
  -d sctp.ppi==60,ngap               # TS 38.412 §7: payload protocol identifier 60
  -d udp.port==9899,sctp
)
FROM=${JUDGE_FROM:+ip.src == $JUDGE_FROM && }
OURS='(sctp || ngap || nas-5gs || pfcp || gtp)'
SEVERITY_ERROR=8388608               # PI_ERROR of Wireshark's expert information

# The fields by which this version of tshark marks what it could not decode, as one filter expression.
unknown_fields() {
  tshark -G fields 2>/dev/null | awk -F'\t' '
    $1 == "F" && $4 == "FT_NONE" && $3 ~ /^(nas[-_]5gs|pfcp|gtp)\./ &&
    $3 ~ /unknown_pd$|unknown_msg_type|unknown_value|iei\.unknown|unknown_extension|not_decoded|undecoded/ {
      printf "%s%s", sep, $3; sep = " || " }'
}

# by_filter FILE: what tshark itself marks.
by_filter() {
  tshark -n -r "$1" "${OPTIONS[@]}" \
    -Y "$FROM$OURS && (_ws.malformed || _ws.short || _ws.expert.severity >= $SEVERITY_ERROR || $UNKNOWN)" \
    -T fields -E separator=' ' -e frame.number -e frame.protocols -e _ws.expert.message 2>"$tmp/err" |
    sed "s|^|$(basename "$1"): frame |"
}

# by_text FILE: unknown NGAP procedures, and unknown NGAP elements of criticality reject. They have no field of their own.
by_text() {
  tshark -n -r "$1" "${OPTIONS[@]}" -Y "${FROM}ngap" -V -O ngap 2>"$tmp/err" | awk -v file="$(basename "$1")" '
    /^Frame [0-9]+:/ { frame = $2 + 0 }
    /procedureCode: Unknown/ { print file ": frame " frame " NGAP " $0 }
    /id: Unknown \(/ { unknown = $0; next }
    unknown && /criticality: / { if (/reject/) print file ": frame " frame " NGAP, criticality reject:" unknown; unknown = "" }'
}

judge() {
  local file findings=0
  for file; do
    [ -s "$file" ] || { echo "tshark_judge: no capture $file" >&2; return 2; }
    [ "$(tshark -n -r "$file" "${OPTIONS[@]}" -Y "$FROM$OURS" 2>/dev/null | wc -l)" -gt 0 ] ||
      { echo "tshark_judge: $file holds nothing to judge" >&2; return 2; }
    { by_filter "$file" && by_text "$file"; } >"$tmp/findings" || { cat "$tmp/err" >&2; return 2; }
    tr -s ' \t' ' ' <"$tmp/findings"
    findings=$((findings + $(wc -l <"$tmp/findings")))
  done
  [ "$findings" = 0 ]
}

# ---- the judge judged ---------------------------------------------------------------------------------------------

# An NG SETUP REQUEST (PLMN 999/70, TAC 1, SST 1) that pycrate encoded, and a PFCP heartbeat request.
NG_SETUP=0015002e000004001b00080099f90710000001005240050100676e620066000d00000000010099f907000000080015400140
HEARTBEAT=2001000c00000100006000040a0b0c0d

# capture TRANSPORT HEX: a capture of one packet; TRANSPORT as text2pcap takes it.
capture() {
  local transport
  read -ra transport <<<"$1"
  echo "000000 $(sed 's/../& /g' <<<"$2")" | text2pcap -q "${transport[@]}" - "$tmp/one.pcap" >/dev/null 2>&1
}

expect() { # expect clean|faulty NAME TRANSPORT HEX
  local rc=0
  capture "$3" "$4"
  judge "$tmp/one.pcap" >"$tmp/verdict" || rc=$?
  case $1:$rc in
    clean:0 | faulty:1) echo "as expected, $1: $2" ;;
    *) echo "WRONG, not $1 (status $rc): $2"; cat "$tmp/verdict"; WRONG=1 ;;
  esac
}

selftest() {
  local ngap="-S 38412,38412,60" pfcp="-u 8805,8805"
  WRONG=0
  expect clean "NG SETUP REQUEST" "$ngap" "$NG_SETUP"
  expect faulty "the same, cut short" "$ngap" "${NG_SETUP:0:80}"
  expect faulty "the same with an unknown element of criticality reject" "$ngap" "${NG_SETUP/005240/fffe00}"
  expect clean "the same with an unknown element of criticality ignore" "$ngap" "${NG_SETUP/005240/fffe40}"
  expect faulty "the same with an unknown procedure" "$ngap" "00ee${NG_SETUP:4}"
  expect clean "PFCP heartbeat" "$pfcp" "$HEARTBEAT"
  expect faulty "the same, its element longer than the message" "$pfcp" "${HEARTBEAT/00600004/00600009}"
  expect faulty "the same with an unknown element" "$pfcp" "${HEARTBEAT/00600004/7ffe0004}"
  expect clean "NGAP over SCTP over UDP" "-u 9899,9899" "$(sctp_packet "$NG_SETUP" good)"
  expect faulty "the same with a wrong SCTP checksum" "-u 9899,9899" "$(sctp_packet "$NG_SETUP" bad)"
  return "$WRONG"
}

# sctp_packet HEX good|bad: HEX as one DATA chunk of PPID 60 behind an SCTP header, with a right or a wrong checksum.
sctp_packet() {
  python3 - "$1" "$2" <<'PYTHON'
import struct, sys
data = bytes.fromhex(sys.argv[1])
def crc32c(octets):
    crc = 0xFFFFFFFF
    for octet in octets:
        crc ^= octet
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
chunk = struct.pack(">BBHIHHI", 0, 3, 16 + len(data), 1, 0, 0, 60) + data + bytes(-len(data) % 4)
packet = struct.pack(">HHII", 38412, 38412, 7, 0) + chunk
checksum = crc32c(packet) ^ (sys.argv[2] == "bad")
print((packet[:8] + struct.pack("<I", checksum) + packet[12:]).hex())
PYTHON
}

[ $# -gt 0 ] || { sed -n '5,6s/^# //p' "$0" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
UNKNOWN=$(unknown_fields)
[ -n "$UNKNOWN" ] || { echo "tshark_judge: this tshark does not list its fields" >&2; exit 2; }
if [ "$1" = --selftest ]; then selftest; else judge "$@"; fi
