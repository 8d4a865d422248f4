#!/usr/bin/env bash
# Veiled UEs attach at two operators, load pages and are billed while CPFs die; the ledger of what each party recorded is that of LOCA, and finds leaks
# that are planted. Without relays it finds that the broker knows the operators.
#
# Usage: veil.sh [UES]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
. "$(dirname "$0")/../needs.sh"
needs_tools ip
needs_namespace
"$WHIMBREL_LAB" demo --scenario veil --ues "${1:-8}"
output=$("$WHIMBREL_LAB" demo --scenario veil --ues 8 --direct 2>&1) && { echo "the ledger does not find that there are no relays"; exit 1; }
grep -q "operator identity in channel" <<<"$output" || { echo "$output"; exit 1; }
