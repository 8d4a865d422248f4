#!/usr/bin/env bash
# The gNB and phone of this folder against the core: the core in a network namespace, the gNB in a guest kernel beside it,
# because it needs the kernel's SCTP. Prints `ok - `, `not ok - ` or `skip - ` lines. What the core sent is judged by tshark,
# too, in a run of its own with the null cipher.
#
# Environment: WHIMBREL, the program; WHIMBREL_PYTHON, a Python with pycrate; KEEP, a folder for logs, traces and captures.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../guest/guest.sh"

NAME="gNB in a guest kernel"
SECONDS_MAX=240   # all scenarios take about ten seconds of answers; a core that is silent costs four seconds a step
IMSI=999700000000001
K=465b5ce8b199b49faa5f0a2ee238a6bc    # TS 35.208 §4.3, test set 1
OPC=cd63cb71954a9f4e48a5994e37a02baf
UE_GATEWAY=10.45.0.1                  # the first address of the default pool is the core's own: what the phone pings

skip() { echo "skip - $NAME: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root for namespaces and a TAP device"
[ -x "${WHIMBREL:-}" ] || skip "the program is not built"
[ -n "${WHIMBREL_PYTHON:-}" ] || skip "no Python with pycrate"
command -v insmod >/dev/null || skip "kmod is not installed"
guest_available || skip "user-mode-linux is not installed"

out=${KEEP:-$(mktemp -d)}
mkdir -p "$out"
finish() {
  guest_down
  [ -n "${KEEP:-}" ] || rm -rf "$out"
}
trap finish EXIT
trap 'exit 130' INT TERM

# end PID SECONDS: its exit status once it has ended by itself or by SIGTERM; 124 if it had to be killed.
end() {
  local tick
  kill -TERM "$1" 2>/dev/null
  for ((tick = 0; tick < 10 * $2; tick++)); do
    kill -0 "$1" 2>/dev/null || { wait "$1"; return; }
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null
  return 124
}

# How the core is told where it is and whom it serves.
core_configure() {
  cat >"$out/whimbrel.yaml" <<YAML
security:
  ciphering: [NEA2, NEA0]  # NEA0 for the phone that offers nothing else, so that its capture can be read
n2:
  addresses: [$GUEST_HOST_IP]
n3:
  address: $GUEST_HOST_IP
n6:
  nat: false
store:
  path: $out/subscribers.db
  key_file: $out/subscribers.key
YAML
  "$WHIMBREL" subscriber add "imsi-$IMSI" --k "$K" --opc "$OPC" --config "$out/whimbrel.yaml" >"$out/subscriber.log" 2>&1
}

core_start() {
  # Not by guest_in: a function in the background is a shell of its own, and signals would end that.
  ip netns exec "$GUEST_NS" "$WHIMBREL" run --config "$out/whimbrel.yaml" >"$out/core.log" 2>&1 &
  CORE=$!
  sleep 1
  kill -0 "$CORE" 2>/dev/null
}

# scenarios LABEL ARGUMENTS...: boot a guest that runs scenario.py with ARGUMENTS; its lines under LABEL.
scenarios() {
  local label=$1 rc=0
  shift
  {
    echo "export PYTHONDONTWRITEBYTECODE=1"
    printf '%q ' "$WHIMBREL_PYTHON" "$here/scenario.py" --amf "$GUEST_HOST_IP" --n3 "$GUEST_IP" --imsi "$IMSI" --k "$K" \
      --opc "$OPC" --ping "$UE_GATEWAY" --trace "$out/$label.trace" "$@"
  } >"$out/$label.sh"
  guest_boot "$out" "$out/$label.sh"
  guest_wait "$SECONDS_MAX" 2>"$out/$label.wait" || rc=$?
  end "$GUEST_PID" 10 # it powers itself off
  cp "$out/job.log" "$out/$label.log" 2>/dev/null
  sed -nE "s/^(ok|not ok) - /&$label: /p" "$out/$label.log"
  # The scenarios end with status 0 or 1 and say what failed; anything else is the guest's or Python's failure.
  if [ "$rc" -gt 1 ] || ! grep -q '^# ' "$out/$label.log"; then
    tail -n 5 "$out/$label.log" "$out/$label.wait" | sed 's/^/    /'
    echo "not ok - $label: the guest ended early (status $rc)"
  fi
}

guest_up || { echo "not ok - $NAME: cannot make the namespace"; exit 1; }
core_configure || { sed 's/^/    /' "$out/subscriber.log"; echo "not ok - $NAME: the subscriber could not be added"; exit 1; }
core_start || { tail -n 5 "$out/core.log" | sed 's/^/    /'; echo "not ok - $NAME: the core did not start"; exit 1; }

scenarios gnb

if command -v tshark >/dev/null; then
  ip netns exec "$GUEST_NS" tshark -q -i tap0 -f 'ip proto 132 or udp port 2152 or udp port 9899' -w "$out/core.pcap" >"$out/tshark.log" 2>&1 &
  capture=$!
  sleep 1
  scenarios gnb-null-cipher --null-cipher "one phone's day" "return with a 5G-GUTI" "GTP-U" "paging" "Xn handover" "N2 handover"
  end "$capture" 5
  if JUDGE_FROM=$GUEST_HOST_IP "$here/../tshark_judge.sh" "$out/core.pcap" >"$out/judge.log" 2>&1; then
    echo "ok - tshark: nothing malformed or unknown in what the core sent"
  else
    head -n 20 "$out/judge.log" | sed 's/^/    /'
    echo "not ok - tshark: findings in what the core sent"
  fi
fi

if kill -0 "$CORE" 2>/dev/null; then echo "ok - the core is still there after it all"; else
  tail -n 5 "$out/core.log" | sed 's/^/    /'
  echo "not ok - the core is still there after it all: it has ended"
fi
rc=0
end "$CORE" 10 || rc=$?
if [ "$rc" = 0 ]; then echo "ok - the core stops cleanly"; else echo "not ok - the core stops cleanly: status $rc"; fi
