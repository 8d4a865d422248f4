#!/usr/bin/env bash
# The console in a real browser: a core with emulated gNBs and UEs, and headless Chromium that logs in by a one-time link, opens each
# page in dark and light and at two widths, and takes screenshots. Not a part of `./x test`: Chromium is large.
#
# Usage: run.sh [FOLDER]     where the screenshots go; default: target/console
# Environment: WHIMBREL, the program to test.
set -uo pipefail

WHIMBREL=$(readlink -f "${WHIMBREL:-target/debug/whimbrel}") && export WHIMBREL
CONSOLE_SHOTS=$(realpath -m "${1:-${CONSOLE_SHOTS:-target/console}}") && export CONSOLE_SHOTS
command -v chromium >/dev/null || { echo "skip - console: chromium is not installed"; exit 0; }
. "$(dirname "$0")/../faults/core.sh"
mkdir -p "$CONSOLE_SHOTS"

imsi() { printf '99970000000%04d' "$1"; }
# stays N STEPS ARGUMENTS...: the UE of number N at a gNB of its own, which waits after its steps.
stays() {
  local n=$1 what=$2
  shift 2
  echo "steps: [$what, {wait: 120}]" >"$tmp/w/steps.$n.yaml"
  timeout 150 "$WHIMBREL" ran --gnb-id "$n" --gnb-address "127.0.$n.1" --imsi "$(imsi "$n")" "$@" "$tmp/w/steps.$n.yaml" >"$tmp/w/ran.$n" 2>&1 &
}

configure "$(printf 'log: { level: info }\ntimers: { t3550: 1s }')"
start || { cat "$tmp/w/log"; not_ok "the core does not start"; exit 1; }
for n in 1 2 3 4 5; do stays "$n" "register, {session: {}}"; done
subscriber edit "imsi-$(imsi 6)" --status barred >/dev/null
stays 6 "register"
for _ in $(seq 150); do
  [ "$("$WHIMBREL" ue list -c "$tmp/w/whimbrel.yaml" 2>/dev/null | grep -c registered)" -ge 5 ] && break
  sleep 0.1
done
link=$("$WHIMBREL" console -c "$tmp/w/whimbrel.yaml" | head -n 1)
timeout 120 python3 "$(dirname "$0")/pages.py" "$link" "imsi-$(imsi 1)" "$CONSOLE_SHOTS" "$tmp/chromium" || FAILED=1
stop
exit "$FAILED"
