#!/usr/bin/env bash
# Homes of two sites are killed and upgraded, PostgreSQL is away or loses its primary, the sites are cut from each other, a home is added: at random, while UEs send, move
# within and between the sites, become idle and return: no UE registers again, loses its session or gets a stale answer, and no address is given twice (docs/sites.md).
# The seed decides which faults there are.
#
# Usage: sites.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
. "$(dirname "$0")/../needs.sh"
needs_tools ip nft unshare etcd
needs_namespace
histories=$(mktemp)
trap 'rm -f "$histories"' EXIT
echo "seed ${2:-1}, ${1:-300} s"
"$WHIMBREL_LAB" demo --scenario sites --random --seconds "${1:-300}" --seed "${2:-1}" --ues "${UES:-100}" --histories "$histories"
stale=$(awk -f "$(dirname "$0")/histories.awk" "$histories")
[ -z "$stale" ] || { echo "$stale" | head -n 5; echo "WRONG: an answer contradicts an earlier one to its UE (seed ${2:-1})"; exit 1; }
echo "$(grep -c '^imsi-' "$histories") lines of histories, and no answer contradicts an earlier one"
