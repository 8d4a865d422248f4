#!/usr/bin/env bash
# UEs send, receive and move while each process of a unit is killed in turn, some hang, and all are replaced by a program of another code; then all are
# restarted: no UE registers again, loses a session or fails at a step.
#
# Usage: survive.sh [UES]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
. "$(dirname "$0")/../needs.sh"
needs_tools ip
needs_namespace
newer=$(mktemp)
trap 'rm -f "$newer"' EXIT
cat >"$newer" <<END
#!/bin/sh
WHIMBREL_CODE_VERSION=7 exec "$(realpath "$WHIMBREL")" "\$@"
END
chmod 755 "$newer"
"$WHIMBREL_LAB" demo --scenario survive --ues "${1:-20}" --upgrade-to "$newer"
