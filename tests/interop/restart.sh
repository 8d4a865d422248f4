#!/usr/bin/env bash
# The core as one process is stopped in order and started again, and then killed and started again with `store.keep_ues: always`, while UEs have sessions: no
# UE registers again, and each keeps its session and address (TS 23.527 §4.3). A file of UEs that is cut short costs UEs an authentication; a full disk is reported. In a network
# namespace of its own.
#
# Usage: restart.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl)
logs=(core.log play.log)
. "$(dirname "$0")/../netns.sh"

ip address add 203.0.113.1/32 dev lo # the server that UEs ping
cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false, ue_to_host: true } # the server is this host
data_networks:
  - { dnn: internet, ipv4_pool: 10.50.0.0/16, ipv6_pool: none }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db, key_file: $tmp/core.key, keep_ues: on-stop }
END
cat >"$tmp/play.yaml" <<'END'
ues: 20
gnbs: 2
arrival: { rate: 100 }
patience-s: 10
steps:
  - register
  - session: { dnn: internet, type: ipv4 }
  - ping: 203.0.113.1
  - wait: 3
  - ping: 203.0.113.1
  - wait: 0.5
  - ping: 203.0.113.1
  - deregister
END
# completed PROCEDURE: how many the running core has counted.
completed() {
  curl -sf http://127.0.0.1:8081/metrics |
    awk -v p="\"$1\"" '/^whimbrel_procedures_total/ && index($0, p) && /completed/ { n += $2 } END { print n + 0 }'
}
starts=0
core() {
  "$WHIMBREL" run --strict --config "$tmp/core.yaml" 2>>"$tmp/core.log" &
  core=$!
  running+=("$core")
  starts=$((starts + 1))
  await core " ready" "$starts"
}
# play: UEs with sessions, in the background; returns when all have one.
play() {
  "$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 >"$tmp/play.log" 2>&1 &
  play=$!
  running+=("$play")
  for _ in $(seq 200); do
    [ "$(completed pdu_session_establishment)" -ge 20 ] && return
    sleep 0.02
  done
  wrong "not all UEs have a session"
}
# judged WHAT: the UEs came back by service requests alone.
judged() {
  wait "$play" || wrong "UEs failed after $1"
  [ "$(metric whimbrel_ues_restored)" = 20 ] || wrong "$(metric whimbrel_ues_restored) UEs were restored after $1"
  [ "$(completed registration)" = 0 ] || wrong "$(completed registration) UEs registered again after $1"
  [ "$(completed pdu_session_establishment)" = 0 ] || wrong "sessions were established again after $1"
  [ "$(completed session_restoration)" = 20 ] || wrong "$(completed session_restoration) sessions were restored after $1"
  echo "$1: $(completed service_request) service requests, 0 registrations, 0 sessions lost; $(grep -o 'ues=.*' "$tmp/core.log" | tail -n 1)"
}

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
core
play
begun=$(date +%s%N)
kill "$core"
wait "$core" || wrong "the core does not stop in order"
[ -s "$tmp/core.ues" ] || wrong "no UEs are kept"
[ "$(stat -c %a "$tmp/core.ues")" = 600 ] || wrong "others can read the UEs"
core
echo "the core was away for $((($(date +%s%N) - begun) / 1000000)) ms"
[ ! -e "$tmp/core.ues" ] || wrong "the UEs would be restored again"
judged "a restart in order"

# Killed.
kill "$core"
wait "$core"
rm -f "$tmp/core.ues"
sed -i 's/on-stop/always/' "$tmp/core.yaml"
core
play
sleep 1.2 # what has changed is written twice a second
kill -9 "$core"
wait "$core" 2>/dev/null || true
core
judged "a kill"
grep "authenticated_again=20" "$tmp/core.log" >/dev/null || wrong "UEs were served under keys whose COUNTs are not known"

# A file that is cut short is used as far as it reaches.
play
kill "$core"
wait "$core"
truncate -s -1 "$tmp/core.ues"
core
[ "$(grep -c "authenticated_again=20" "$tmp/core.log")" = 2 ] || wrong "a file without an end was taken for exact"
wait "$play" || wrong "UEs failed after their file was cut short"
# One that is none is not read.
kill "$core"
wait "$core"
echo "something else" >"$tmp/core.ues"
core
grep "register again: .*core.ues is cut short, or no file of this kind" "$tmp/core.log" >/dev/null || wrong "a file that is none is not reported"
[ "$(metric whimbrel_ue_storage_failures_total)" = 1 ] || wrong "it is not counted"
# UEs of an AMF with another GUAMI: their 5G-GUTIs do not lead here.
play
kill "$core"
wait "$core"
kill "$play"
sed -i '1i amf: { pointer: 5 }' "$tmp/core.yaml"
core
grep "register again: they are of an AMF with another GUAMI" "$tmp/core.log" >/dev/null || wrong "UEs of another AMF are not reported"
[ "$(metric whimbrel_ues_not_restored)" = 20 ] || wrong "they are not counted"
# A disk that is full: logged and counted while the core runs; when it stops, no file is left that a later start would take for the last state.
kill "$core"
wait "$core"
mkdir "$tmp/small"
sed "s|$tmp/core|$tmp/small/core|g; /pointer/d" "$tmp/core.yaml" >"$tmp/small.yaml"
unshare --mount sh -c 'mount -t tmpfs -o size=4m none "$1/small" && cp "$1/core.db" "$1/core.key" "$1/small" && exec "$2" run --strict --config "$1/small.yaml"' \
  sh "$tmp" "$WHIMBREL" 2>>"$tmp/core.log" &
core=$!
running+=("$core")
starts=$((starts + 1))
await core " ready" "$starts"
nsenter -t "$core" -m sh -c "head -c 8000000 /dev/zero >'$tmp/small/full'" 2>/dev/null || true
play
for _ in $(seq 60); do # what has changed is written twice a second
  [ "$(metric whimbrel_ue_storage_failures_total)" = 0 ] || break
  sleep 0.05
done
[ "$(metric whimbrel_ue_storage_failures_total)" = 1 ] || wrong "a full disk is not counted"
grep "UEs are not kept for the next start, and this is tried again in a minute: .*No space left" "$tmp/core.log" >/dev/null || wrong "a full disk is not reported"
kill "$core"
wait "$core" || wrong "a core with a full disk does not stop in order"
kill "$play" 2>/dev/null || true
grep "UEs are not kept for the next start, and register again: .*No space left" "$tmp/core.log" >/dev/null || wrong "a stop with a full disk is not reported"
echo "a full disk: reported, counted, and no UE is kept"
