#!/usr/bin/env bash
# UEs drive among sixteen gNBs, without prediction of handovers and with it, and a CPF is killed in the middle of each drive: no UE fails at a step,
# registers again or loses a session, and predictions come true.
#
# Usage: commute.sh [UES] [SECONDS]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
. "$(dirname "$0")/../needs.sh"
needs_tools ip
needs_namespace
plots=$(mktemp -d)
trap 'rm -rf "$plots"' EXIT
"$WHIMBREL_LAB" demo --scenario commute --ues "${1:-12}" --seconds "${2:-8}" --plots "$plots"
grep -q polyline "$plots/commute.svg"
grep -q circle "$plots/commute-map.svg"
