#!/usr/bin/env bash
# Processes of a unit are killed and frozen and lose their links at random, alone and several at once, while UEs send, move, become idle, come and go: no UE
# registers again, loses its session or gets a stale answer; packets that are sent each millisecond are lost within the documented bound, and none is
# doubled or reordered (docs/unit.md, "What survives").
# The seed decides which kinds of faults there are, and when.
#
# Usage: unit.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
. "$(dirname "$0")/../needs.sh"
needs_tools ip
needs_namespace
histories=$(mktemp)
trap 'rm -f "$histories"' EXIT
echo "seed ${2:-1}, ${1:-120} s"
"$WHIMBREL_LAB" demo --scenario unit-chaos --seconds "${1:-120}" --seed "${2:-1}" --ues "${UES:-40}" --histories "$histories"
stale=$(awk -f "$(dirname "$0")/histories.awk" "$histories")
[ -z "$stale" ] || { echo "$stale" | head -n 5; echo "WRONG: an answer contradicts an earlier one to its UE (seed ${2:-1})"; exit 1; }
echo "$(grep -c '^imsi-' "$histories") lines of histories, and no answer contradicts an earlier one"
