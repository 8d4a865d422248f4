#!/usr/bin/env bash
# One host takes all places of N2: 300 associations without NG SETUP (256 may wait), and as many invented gNBs as there may be. A gNB at another address is served all the
# same, and keeps its place. In a network namespace of its own.
#
# Usage: n2_bounds.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(core.log gnb.log)
. "$(dirname "$0")/../netns.sh"

cat >"$tmp/core.yaml" <<EOF
n2: { sctp: udp }
n6: { nat: false }
limits: { ran_nodes: 16 }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
EOF
cat >"$tmp/gnb.yaml" <<'EOF'
ues: 1
steps: [register, deregister]
EOF
# serves N WHEN: a gNB of this number, at an address of its own, sets up and serves a UE.
serves() {
  timeout 5 "$WHIMBREL_LAB" ran "$tmp/gnb.yaml" --sctp udp --gnb-id "$1" --gnb-address "127.0.1.$1" >"$tmp/gnb.log" 2>&1 ||
    { echo "not ok - a gNB is kept out $2"; tail -n 3 "$tmp/gnb.log"; exit 1; }
  echo "ok - a gNB at another address is served $2"
}
# flood NUMBER [setup]: so many associations from 127.0.2.1, over which nothing comes, or NG SETUP of another gNB each. It ends when they are up, and sends nothing more.
flood() { python3 "$(dirname "$0")/sctp_flood.py" "$@"; }

"$WHIMBREL_LAB" ran "$tmp/gnb.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
start core run
flood 300
serves 1 "while one host has 300 associations without NG SETUP"
flood 20 setup
serves 2 "while one host has invented as many gNBs as there may be"
