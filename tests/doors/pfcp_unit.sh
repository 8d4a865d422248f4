#!/usr/bin/env bash
# A unit whose UEs have sessions, and a program of another user on the same host: one forged ASSOCIATION SETUP REQUEST in the name of the unit's
# SMF must not end the sessions, neither without `n4.listen` nor with it. In a network namespace of its own.
#
# Usage: pfcp_unit.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3 setpriv)
logs=(unit.log ran.log)
. "$(dirname "$0")/../netns.sh"
here=$(dirname "$0")

# An unprivileged user, where this one may become another one.
other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
"${other[@]}" true 2>/dev/null || other=()
# A Python that this user may run: one below a home folder is not.
for python in /usr/bin/python3 python3 ''; do "${other[@]}" "$python" -c '' 2>/dev/null && break; done
[ -n "$python" ] || { python=python3 other=(); }
cp "$here/forged_pfcp.py" "$tmp/"
cat >"$tmp/ues.yaml" <<'END'
ues: 3
steps: [register, session, wait: 60]
END
chmod 755 "$tmp"

# begin N4: a unit with this configuration of N4, and three UEs with sessions.
begin() {
  cat >"$tmp/unit.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: $1
n6: { nat: false, forwarding: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/unit.db, key_file: $tmp/unit.key }
unit: { directory: $tmp/unit }
END
  "$WHIMBREL_LAB" ran --imsi 999700000000090 --ues 3 --write-subscribers "$tmp/ues.csv" >/dev/null
  "$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/unit.yaml" >/dev/null
  : >"$tmp/unit.log"
  "$WHIMBREL" run --unit --config "$tmp/unit.yaml" 2>>"$tmp/unit.log" &
  manager=$!
  running+=("$manager")
  await unit "N4 with the UPF of this unit goes over its link"
  for _ in $(seq 200); do
    "$WHIMBREL" unit --config "$tmp/unit.yaml" 2>/dev/null | grep -q ' primary ' && break
    sleep 0.05
  done
  "$WHIMBREL_LAB" ran "$tmp/ues.yaml" --imsi 999700000000090 --gnb-address 127.0.1.9 --amf 127.0.0.31 >"$tmp/ran.log" 2>&1 &
  running+=($!)
  sessions 3
}

# sessions N: waits until the UPF has so many; its counters are half a second old at most.
sessions() {
  for _ in $(seq 200); do
    [ "$(metric whimbrel_upf_sessions)" -ne "$1" ] || return 0
    sleep 0.05
  done
  wrong "the UPF has $(metric whimbrel_upf_sessions) sessions, not $1"
}

functions() { "$WHIMBREL" unit --config "$tmp/unit.yaml" 2>/dev/null | awk '$3 ~ /^[0-9]+$/ { print $3 }'; }
# The functions outlive a manager, so they are ended by their own numbers.
leave() {
  functions | xargs -r kill -9 2>/dev/null || true
  finish
}
trap leave EXIT

# attack WHEN SOURCE...: the request, from each of these; the sessions stay.
attack() {
  local source when=$1
  shift
  for source in "$@"; do
    "${other[@]}" "$python" "$tmp/forged_pfcp.py" "$source" 127.0.0.1 >>"$tmp/answers"
  done
  sleep 0.6 # the counters are half a second old at most
  ! grep -q "sessions were deleted" "$tmp/unit.log" || wrong "not ok - forged requests deleted the sessions of a unit $when"
  [ "$(metric whimbrel_upf_sessions)" -eq 3 ] || wrong "not ok - sessions of a unit ended $when"
  ! grep -q " 1$" "$tmp/answers" || wrong "not ok - a forged request was accepted $when"
}

: >"$tmp/answers"
chmod 666 "$tmp/answers"
begin "{}"
attack "without n4.listen" 127.0.0.1:18805 127.0.0.50:8805
echo "ok - without n4.listen no datagram ends the sessions of a unit"
functions >"$tmp/functions"
kill -TERM "$manager"
wait "$manager" 2>/dev/null || true
xargs -r kill -9 <"$tmp/functions" 2>/dev/null || true
kill -9 "${running[@]}" 2>/dev/null || true # the emulated gNB has the address of the next one
wait 2>/dev/null || true
running=()
rm -rf "$tmp/unit" "$tmp"/unit.db* "$tmp/unit.key"

# Another SMF may associate from 127.0.0.40; the unit's own SMF sends from no UDP address.
begin '{ listen: "127.0.0.9:8805", peers: [127.0.0.40, 127.0.0.1] }'
attack "with n4.listen" 127.0.0.1:18805 127.0.0.40:8805 127.0.0.50:8805
[ "$(metric whimbrel_n4_spoofed_total)" -ge 2 ] || wrong "not ok - the forged requests are not counted"
[ "$(metric whimbrel_n4_unknown_peer_total)" -ge 1 ] || wrong "not ok - a host that n4.peers does not list is not counted"
echo "ok - with n4.listen datagrams in the name of the unit's SMF are dropped"
