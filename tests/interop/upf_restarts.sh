#!/usr/bin/env bash
# A UPF without a state file is killed and started again: the SMF restores its sessions there (TS 23.527 §4.3), and UEs that ping, sleep and return keep
# sessions and addresses without a message. In a network namespace of its own.
#
# Usage: upf_restarts.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl)
logs=(core.log east.log play.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # what UEs ping
cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: { node_id: 127.0.0.31 }
upfs:
  - { name: east, address: "127.0.0.32:8805" }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
END
cat >"$tmp/east.yaml" <<END
n3: { address: 127.0.0.32 }
n4: { listen: "127.0.0.32:8805", smfs: ["127.0.0.31:8805"] }
n6: { device: east, nat: false, ue_to_host: true } # what is pinged is this host
data_networks:
  - { dnn: internet, ipv4_pool: 10.50.0.0/16 }
api: { address: "127.0.0.1:8082" }
store: { path: $tmp/east.db }
END
# east: starts the UPF; `again` counts how often.
again=0
east() {
  "$WHIMBREL" upf --strict --config "$tmp/east.yaml" 2>>"$tmp/east.log" &
  upf=$!
  running+=("$upf")
  again=$((again + 1))
  for _ in $(seq 1000); do
    [ "$(grep -c " ready" "$tmp/east.log" 2>/dev/null || true)" -ge "$again" ] && return
    kill -0 "$upf" 2>/dev/null || break
    sleep 0.01
  done
  wrong "the UPF does not start"
}
cat >"$tmp/play.yaml" <<'END'
seconds: 12
gnbs: 2
groups:
  - name: awake
    ues: 8
    begin: [register, session: { dnn: internet, type: ipv4 }, wait: 4.5]
    repeat: [ping: 203.0.113.1, wait: 0.2]
    end: [deregister]
  - name: sleepers
    ues: 8
    begin: [register, session: { dnn: internet, type: ipv4 }, ping: 203.0.113.1, idle, wait: 4.5]
    repeat: [return, ping: 203.0.113.1, idle, wait: 0.3]
    end: [deregister]
END
# procedures NAME: how often the core has completed it.
procedures() {
  curl -sf http://127.0.0.1:8081/metrics | awk -v name="\"$1\"" '/^whimbrel_procedures_total/ && index($0, name) { n += $2 } END { print n + 0 }'
}
east
"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
start core run
await core "the UPF answers"
"$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 >"$tmp/play.log" 2>&1 &
play=$!
running+=("$play")
for _ in $(seq 80); do
  established=$(procedures pdu_session_establishment)
  [ "$established" -lt 16 ] || break
  sleep 0.05
done
[ "$established" = 16 ] || wrong "$established sessions were established, not 16"
kill -9 "$upf"
wait "$upf" 2>/dev/null || true
east
await core "has restarted without its sessions"
for _ in $(seq 40); do
  restored=$(procedures session_restoration)
  [ "$restored" -lt 16 ] || break
  sleep 0.05
done
[ "$restored" = 16 ] || wrong "$restored sessions were restored, not 16"
wait "$play" || wrong "UEs failed"
[ "$(procedures pdu_session_establishment)" = 16 ] || wrong "sessions were established again"
echo "16 of 16 sessions were restored, and none was established again"
grep -h "completed all steps" "$tmp/play.log"
