#!/bin/bash
# run.sh OUT JOB SECONDS HOST-COMMAND...: boots a guest that runs JOB, and HOST-COMMAND beside it in the guest's
# network namespace. Ends with JOB's status (124: it took longer than SECONDS; 77: no guest here, and why; 75: the guest did not boot).
# Whatever happens, nothing is left behind. OUT gets job.log, host.log and console.log.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/guest.sh"
out=$1 job=$2 seconds=$3
shift 3
guest_available || { echo "guest: user-mode-linux is not installed (apt-get install user-mode-linux)" >&2; exit 77; }
[ "$(id -u)" = 0 ] || { echo "guest: only root may make its network namespace" >&2; exit 77; }
trap guest_down EXIT
trap 'exit 130' INT TERM
guest_up || exit 75
mkdir -p "$out"
ip netns exec "$GUEST_NS" "$@" >"$out/host.log" 2>&1 &
disown
guest_boot "$out" "$job"
rc=0
guest_wait "$seconds" || rc=$?
guest_booted || rc=75
exit "$rc"
