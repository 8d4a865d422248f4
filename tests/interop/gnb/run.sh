#!/usr/bin/env bash
# The gNB and UE of this folder against the core: the core in a network namespace, the gNB in a guest kernel beside it,
# because it needs the kernel's SCTP. Prints `ok - `, `not ok - ` or `skip - ` lines. What the core sent is judged by tshark,
# too, in a run of its own with the null cipher, in a network whose MNC has three digits.
#
# Environment: WHIMBREL, the program; WHIMBREL_PYTHON, a Python with pycrate; KEEP, a folder for logs, traces and captures;
# PLMN, the network of the first run (999/70).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../guest/guest.sh"
. "$here/../../programs.sh"

NAME="gNB in a guest kernel"
SECONDS_MAX=240   # all scenarios take about ten seconds of answers; a core that is silent costs four seconds a step
PLMN=${PLMN:-999/70}
PLMN_CAPTURED=310/260                 # of three digits: NAS and NGAP order them differently (TS 24.501 §9.11.3.4, TS 38.413 §9.3.3.5)
K=465b5ce8b199b49faa5f0a2ee238a6bc    # TS 35.208 §4.3, test set 1
OPC=cd63cb71954a9f4e48a5994e37a02baf
UE_GATEWAY=10.45.0.1                  # the first address of the default pool is the core's own: what the UE pings

skip() { echo "skip - $NAME: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root for namespaces and a TAP device"
[ -x "$WHIMBREL" ] || skip "the program is not built"
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

# imsi PLMN: the subscriber of that network, 15 digits.
imsi() { local digits=${1/\//}; printf '%s%0*d' "$digits" $((15 - ${#digits})) 1; }

# core_configure PLMN: configures the core's addresses and subscribers.
core_configure() {
  rm -f "$out"/subscribers.*
  cat >"$out/whimbrel.yaml" <<YAML
plmn: $1
security:
  ciphering: [NEA2, NEA0]  # NEA0 for the UE that offers nothing else, so that its capture can be read
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
  "$WHIMBREL" subscriber add "imsi-$(imsi "$1")" --k "$K" --opc "$OPC" --config "$out/whimbrel.yaml" >"$out/subscriber.log" 2>&1
}

# core_start PLMN
core_start() {
  core_configure "$1" || { sed 's/^/    /' "$out/subscriber.log"; echo "not ok - $NAME: the subscriber could not be added"; exit 1; }
  # Not by guest_in: a function in the background is a shell of its own, and signals would end that.
  ip netns exec "$GUEST_NS" "$WHIMBREL" run --config "$out/whimbrel.yaml" >>"$out/core.log" 2>&1 &
  CORE=$!
  sleep 1
  kill -0 "$CORE" 2>/dev/null || { tail -n 5 "$out/core.log" | sed 's/^/    /'; echo "not ok - $NAME: the core did not start"; exit 1; }
}

# core_stop NETWORK: it is there still, and stops.
core_stop() {
  local rc=0
  if kill -0 "$CORE" 2>/dev/null; then echo "ok - the core of $1 is still there after it all"; else
    tail -n 5 "$out/core.log" | sed 's/^/    /'
    echo "not ok - the core of $1 is still there after it all: it has ended"
  fi
  end "$CORE" 10 || rc=$?
  if [ "$rc" = 0 ]; then echo "ok - the core of $1 stops cleanly"; else echo "not ok - the core of $1 stops cleanly: status $rc"; fi
}

# counters: what the core counted of packets, for a step that failed.
counters() {
  guest_in curl -sS http://127.0.0.1:8070/metrics | grep -E '^whimbrel_(n3|n6|upf_(dropped|io_dropped|buffered|sessions))' | grep -v ' 0$' | sed 's/^/    /'
}

# scenarios LABEL PLMN ARGUMENTS...: boot a guest that runs scenario.py with ARGUMENTS in that network; its lines under LABEL.
scenarios() {
  local label=$1 plmn=$2 rc=0
  shift 2
  {
    echo "export PYTHONDONTWRITEBYTECODE=1"
    printf '%q ' "$WHIMBREL_PYTHON" "$here/scenario.py" --amf "$GUEST_HOST_IP" --n3 "$GUEST_IP" --mcc "${plmn%/*}" \
      --mnc "${plmn#*/}" --imsi "$(imsi "$plmn")" --k "$K" \
      --opc "$OPC" --ping "$UE_GATEWAY" --trace "$out/$label.trace" "$@"
  } >"$out/$label.sh"
  local boot
  for boot in first second; do # a guest that does not come up has tested nothing
    rc=0
    guest_boot "$out" "$out/$label.sh"
    guest_wait "$SECONDS_MAX" 2>"$out/$label.wait" || rc=$?
    end "$GUEST_PID" 10 # it powers itself off
    if guest_booted; then break; fi
    echo "    the $boot guest did not boot"
  done
  cp "$out/job.log" "$out/$label.log" 2>/dev/null
  sed -nE "s/^(ok|not ok) - /&$label: /p" "$out/$label.log"
  ! grep -q '^not ok' "$out/$label.log" || counters
  # The scenarios end with status 0 or 1 and say what failed; anything else is the guest's or Python's failure.
  if [ "$rc" -gt 1 ] || ! grep -q '^# ' "$out/$label.log"; then
    tail -n 5 "$out/$label.log" "$out/$label.wait" | sed 's/^/    /'
    echo "not ok - $label: the guest ended early (status $rc)"
  fi
}

guest_up || { guest_down; guest_up; } || { echo "not ok - $NAME: cannot make the namespace"; exit 1; }
core_start "$PLMN"
scenarios gnb "$PLMN"
core_stop "$PLMN"

# networks FIELD...: the values that tshark reads in these fields of what the core sent, each once.
networks() {
  local field fields=()
  for field in "$@"; do fields+=(-e "$field"); done
  tshark -n -r "$out/core.pcap" -Y "ip.src == $GUEST_HOST_IP" -o nas-5gs.null_decipher:TRUE -o sctp.reassembly:TRUE \
    -T fields "${fields[@]}" 2>/dev/null | tr '\t,' '\n\n' | sed '/^$/d' | sort -u | tr '\n' ' '
}

if command -v tshark >/dev/null; then
  core_start "$PLMN_CAPTURED"
  ip netns exec "$GUEST_NS" tshark -q -i tap0 -f 'ip proto 132 or udp port 2152 or udp port 9899' -w "$out/core.pcap" >"$out/tshark.log" 2>&1 &
  capture=$!
  sleep 1
  scenarios gnb-null-cipher "$PLMN_CAPTURED" --null-cipher "one UE's day" "return with a 5G-GUTI" "GTP-U" "paging" "Xn handover" "N2 handover"
  end "$capture" 5
  if JUDGE_FROM=$GUEST_HOST_IP "$here/../tshark_judge.sh" "$out/core.pcap" >"$out/judge.log" 2>&1; then
    echo "ok - tshark: nothing malformed or unknown in what the core sent"
  else
    head -n 20 "$out/judge.log" | sed 's/^/    /'
    echo "not ok - tshark: findings in what the core sent"
  fi
  # In PLMN support lists and NAS identities, tracking areas, GUAMIs and 5G-GUTIs.
  for place in e212 e212.5gstai e212.guami; do
    found="$(networks $place.mcc)$(networks $place.mnc)"
    if [ "$found" = "${PLMN_CAPTURED/\// } " ]; then echo "ok - tshark: $place is of $PLMN_CAPTURED wherever the core writes it"; else
      echo "not ok - tshark: $place is of $PLMN_CAPTURED wherever the core writes it: tshark reads $found"
    fi
  done
  core_stop "$PLMN_CAPTURED"
fi
