#!/usr/bin/env bash
# A unit: its API answers while the primary CTA is killed; a second manager is refused; the manager dies and the next one adopts the functions;
# another version replaces them; SIGTERM leaves nothing behind. That UEs notice nothing is what `whimbrel-lab demo --scenario survive` judges.
# In a network namespace of its own.
#
# Usage: unit.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl)
logs=(unit.log)
. "$(dirname "$0")/../netns.sh"

cat >"$tmp/unit.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false, forwarding: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/unit.db, key_file: $tmp/unit.key }
unit: { directory: $tmp/unit }
END

unit() { "$WHIMBREL" unit --config "$tmp/unit.yaml"; }
# manager: starts one.
manager() {
  "$WHIMBREL" run --unit --config "$tmp/unit.yaml" 2>>"$tmp/unit.log" &
  manager=$!
  running+=("$manager")
}
# process STATE or FUNCTION: its number.
process() { unit | awk -v what="$1" '$1 == what || $2 == what { print $3; exit }'; }
# complete [OTHER]: waits until all functions run and the primary has a replica; the process OTHER is gone.
complete() {
  for _ in $(seq 400); do
    unit >"$tmp/state" 2>/dev/null || true
    if grep -q ' primary ' "$tmp/state" && grep -q ' replica ' "$tmp/state" && ! grep -qE ' (starting|leaving|given-up) ' "$tmp/state" &&
      ! grep -qw "${1:-none}" "$tmp/state"; then return; fi
    sleep 0.05
  done
  cat "$tmp/state"
  wrong "the unit is not complete"
}
# The functions outlive a manager, so they are ended by their own numbers.
leave() {
  unit 2>/dev/null | awk '$3 ~ /^[0-9]+$/ { print $3 }' | xargs -r kill -9 2>/dev/null || true
  finish
}
trap leave EXIT

manager
complete
# woken FUNCTION: how often its threads have been woken.
woken() { cat /proc/"$(process "$1")"/task/*/status | awk '$1 == "voluntary_ctxt_switches:" { n += $2 } END { print n }'; }
# A replica of the UPF takes no time of a processor as long as nothing changes. Its last look at what the start has changed may be under way.
for _ in $(seq 30); do
  before=$(woken upf-replica)
  sleep 1.2
  at_rest=$(woken upf-replica)
  [ "$at_rest" -ne "$before" ] || break
done
[ "$at_rest" -eq "$before" ] || wrong "the replica of the UPF is woken although nothing changes"

shown=
for _ in $(seq 100); do # the UPF's counters are half a second old at most
  shown=$(curl -sf http://127.0.0.1:8081/metrics | grep '^whimbrel_upf_sessions ' || true)
  [ -z "$shown" ] || break
  sleep 0.05
done
[ -n "$shown" ] || wrong "the counters of the UPF are not shown"
through=0
for _ in $(seq 100); do # CPFs that have nothing to say are probed after half a second
  through=$(curl -sf http://127.0.0.1:8081/metrics | awk '$1 == "whimbrel_link_frames_shared_total" { print $2 }')
  [ "${through:-0}" -eq 0 ] || break
  sleep 0.05
done
[ "${through:-0}" -gt 0 ] || wrong "no message of the CPFs came through shared memory"

# N4 of a session goes through shared memory; the UPF dies, and its replica takes N4 over in the same way.
subscriber=999700000000090
"$WHIMBREL_LAB" ran --imsi $subscriber --ues 1 --write-subscribers "$tmp/one.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/one.csv" --config "$tmp/unit.yaml" >/dev/null
# n4 LINKS: waits for so many links between CTA and UPF, then establishes a session; the N4 messages that came through shared memory.
n4() {
  for _ in $(seq 100); do
    [ "$(grep -c "N4 with the UPF of this unit goes over its link" "$tmp/unit.log")" -lt "$1" ] || break
    sleep 0.05
  done
  "$WHIMBREL_LAB" ran --imsi $subscriber --gnb-address 127.0.1.9 --amf 127.0.0.31 -- true >"$tmp/ran.log" 2>&1 || wrong "no session is established"
  shared=0
  for _ in $(seq 40); do
    shared=$(curl -sf http://127.0.0.1:8081/metrics | awk '$1 == "whimbrel_smf_n4_shared_total" { print $2 }')
    [ "${shared:-0}" -le "${2:-0}" ] || break
    sleep 0.05
  done
  [ "${shared:-0}" -gt "${2:-0}" ] || wrong "N4 of the session did not go through shared memory"
  echo "$shared"
}
first=$(n4 1)
for _ in $(seq 100); do
  [ "$(woken upf-replica)" -eq "$at_rest" ] || break
  sleep 0.05
done
[ "$(woken upf-replica)" -gt "$at_rest" ] || wrong "the replica of the UPF does not hear of a session"
kill -9 "$(process upf)"
n4 2 "$first" >/dev/null
complete
"$WHIMBREL" top --once --config "$tmp/unit.yaml" >/dev/null || wrong "whimbrel top does not work on a unit"

# Two managers.
if "$WHIMBREL" run --unit --config "$tmp/unit.yaml" 2>"$tmp/second"; then wrong "a second manager runs"; fi
grep -q "another manager runs" "$tmp/second" || wrong "a second manager does not say why it ends"

# A runtime directory that cannot be made.
sed 's|^unit:.*|unit: { directory: /proc/unit }|' "$tmp/unit.yaml" >"$tmp/bad.yaml"
if "$WHIMBREL" run --unit --config "$tmp/bad.yaml" 2>"$tmp/bad"; then wrong "a unit runs without a directory"; fi
grep -q 'unit.directory' "$tmp/bad" || wrong "a directory that cannot be made is not reported with its key"

# The API stays reachable while the primary CTA dies.
victim=$(process primary)
kill -9 "$victim"
for _ in $(seq 20); do
  curl -sf --max-time 3 http://127.0.0.1:8081/metrics >/dev/null || wrong "the API does not answer during a takeover"
  timeout 5 "$WHIMBREL" gnb list --config "$tmp/unit.yaml" >/dev/null || wrong "commands are not answered during a takeover"
done
[ "$(stat -Lc %a "$tmp/unit.db.socket")" = 600 ] && [ -S "$tmp/unit/api" ] || wrong "the socket of commands is not private, or not in the runtime directory"
complete "$victim"
grep -q "is the primary after a takeover" "$tmp/unit.log" || wrong "no CTA has taken over"

# The manager dies: the functions continue, and the next manager adopts them.
before=$(unit | awk '$3 ~ /^[0-9]+$/ { print $3 }' | sort)
kill -9 "$manager"
wait "$manager" 2>/dev/null || true
curl -sf --max-time 3 http://127.0.0.1:8081/metrics >/dev/null || wrong "the functions end with their manager"
manager
complete
[ "$before" = "$(unit | awk '$3 ~ /^[0-9]+$/ { print $3 }' | sort)" ] || wrong "the next manager does not adopt the functions"

# Another version replaces the functions, and the manager itself.
cat >"$tmp/newer" <<END
#!/bin/sh
WHIMBREL_CODE_VERSION=7 exec "$WHIMBREL" "\$@"
END
chmod +x "$tmp/newer"
code=$("$tmp/newer" --version | sed 's/.*code \(.*\))/\1/')
"$WHIMBREL" upgrade "$tmp/newer" --config "$tmp/unit.yaml" >"$tmp/upgraded" || { cat "$tmp/upgraded"; wrong "the functions are not replaced"; }
complete
[ "$(unit | grep -c " $code ")" = 6 ] || { unit; wrong "some functions run the former code"; }

# It stops in order, and leaves nothing.
kill -TERM "$manager"
wait "$manager" || wrong "the manager does not end in order"
[ -z "$(ip -o link show | grep whimbrel)" ] || wrong "a device of the UPF is left behind"
for number in $(awk '$3 ~ /^[0-9]+$/ { print $3 }' "$tmp/state"); do
  grep -qsE '^State:\s+[^ZX]' "/proc/$number/status" || continue
  sleep 1 # one that was killed may take a moment
  ! grep -qsE '^State:\s+[^ZX]' "/proc/$number/status" || wrong "a function runs without a manager"
done
echo "a unit: API during a takeover, adoption, another version, orderly end"
