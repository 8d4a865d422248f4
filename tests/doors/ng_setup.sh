#!/usr/bin/env bash
# A host at another address names the identity of a gNB that is up, which its cells broadcast, in NG SETUP: the gNB keeps its UEs, and `why` names both addresses.
# A gNB that died loses its identity, and the operator can disconnect one that came first. In a network namespace of its own.
#
# Usage: ng_setup.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(core.log gnb.log attacker.log)
. "$(dirname "$0")/../netns.sh"

cat >"$tmp/core.yaml" <<EOF
n2: { sctp: udp }
n6: { nat: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
EOF
cat >"$tmp/gnb.yaml" <<'EOF'
ues: 4
arrival: { rate: 50 }
steps: [register, wait: 60]
EOF
cat >"$tmp/attacker.yaml" <<'EOF'
ues: 1
steps: [wait: 60]
EOF
# Over the socket of commands; a program without it answers over loopback.
gnb() { curl -sf --unix-socket "$tmp/core.db.socket" http://localhost/api/v1/gnbs 2>/dev/null || curl -sf http://127.0.0.1:8081/api/v1/gnbs; }
# holds ADDRESS UES: waits until the gNB is up from there with so many connected UEs.
holds() {
  for _ in $(seq 100); do
    gnb | python3 -c '
import json, sys
[gnb] = json.load(sys.stdin)
sys.exit(not (gnb["address"].startswith(sys.argv[1] + ":") and gnb["connected_ues"] == int(sys.argv[2])))' "$@" 2>/dev/null && return
    sleep 0.05
  done
  echo "not ok - the gNB at $1 is not up with $2 UEs: $(gnb)"
  exit 1
}
# ran NAME ADDRESS: emulates gNB 1 there.
ran() {
  "$WHIMBREL_LAB" ran "$tmp/$1.yaml" --sctp udp --gnb-id 1 --gnb-address "$2" >"$tmp/$1.log" 2>&1 &
  running+=($!)
}

"$WHIMBREL_LAB" ran "$tmp/gnb.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
start core run
ran gnb 127.0.1.1
real=$!
holds 127.0.1.1 4
ran attacker 127.0.1.66
for _ in $(seq 100); do
  kill -0 $! 2>/dev/null || break
  grep -qs 'took its place' "$tmp/core.log" && break
  sleep 0.05
done
! grep -q 'took its place' "$tmp/core.log" || { echo "not ok - another host took the place of a gNB that is up"; exit 1; }
holds 127.0.1.1 4
why=$("$WHIMBREL" why gnb-999/70-1 --config "$tmp/core.yaml")
grep -q '127.0.1.1:.*127.0.1.66:' <<<"$why" || { echo "not ok - why does not name both addresses: $why"; exit 1; }
echo "ok - another host does not get the identity of a gNB that is up, and its UEs stay connected"

# The same host came first: the operator disconnects it.
kill -9 "$real"
ran attacker 127.0.1.66
for _ in $(seq 160); do gnb | grep -q 127.0.1.66 && break; sleep 0.05; done
gnb | grep -q 127.0.1.66 || { echo "not ok - a gNB whose former host is silent does not get its identity: $(gnb)"; exit 1; }
echo "ok - a gNB that died loses its identity to a new address"
"$WHIMBREL" gnb disconnect gnb-999/70-1 --config "$tmp/core.yaml" >/dev/null
ran gnb 127.0.1.1
holds 127.0.1.1 4
echo "ok - the operator disconnects a gNB, and the one at another address takes its place"
