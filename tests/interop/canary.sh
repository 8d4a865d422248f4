#!/usr/bin/env bash
# A canary on a unit, while UEs register, move and become idle: CPFs of another version serve half of the UEs; the manager dies, and the primary CTA; the
# canary is rolled back by an order; another one, whose CPFs are killed repeatedly, by itself; a third one serves a listed UE and is promoted. No step of a UE
# fails, and no UE registers again. In a network namespace of its own.
#
# Usage: canary.sh [SECONDS]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
seconds=${1:-60}
tools=(curl)
logs=(unit.log play.log canary.log)
. "$(dirname "$0")/../netns.sh"
. "$(dirname "$0")/../unit_manager.sh"

cat >"$tmp/unit.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false, forwarding: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/unit.db, key_file: $tmp/unit.key }
overload: { start_delay_ms: 10000 } # a host that is held up repeatedly would rightly send OVERLOAD START
unit: { directory: $tmp/unit, canary: { deaths: 1, samples: 50 } }
END
for n in 7 8; do
  printf '#!/bin/sh\nWHIMBREL_CODE_VERSION=%s exec "%s" "$@"\n' "$n" "$WHIMBREL" >"$tmp/version-$n"
  chmod +x "$tmp/version-$n"
done
sed -e "s/^seconds: .*/seconds: $seconds/" -e 's/ues: 24/ues: 12/' "$(dirname "$0")/../chaos/ues.yaml" >"$tmp/play.yaml"

canary() { "$WHIMBREL" canary --config "$tmp/unit.yaml" "$@"; }
upgrade() { "$WHIMBREL" upgrade "$@" --config "$tmp/unit.yaml" >"$tmp/canary.log" 2>&1; }
# of_canary CODE FIELD: what the canary's version has done: ues 3, procedures 4, failed 5.
of_canary() { canary 2>/dev/null | awk -v code="$1" -v field="$2" '$1 == code && $2 == "(canary)" { v = $field } END { print v + 0 }'; }
has_upf() { "$WHIMBREL" why upf --config "$tmp/unit.yaml" 2>/dev/null | grep -q 'is up'; }
has_procedures() { [ "$(of_canary "$1" 4)" -ge "$2" ]; }
has_ended() { canary 2>/dev/null | grep -q '^No canary is under way'; }

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/unit.yaml" >/dev/null
manager
until_true "the unit is not complete" is_complete
until_true "the UPF does not answer" has_upf
if upgrade "$WHIMBREL" --canary 10%; then wrong "the version in force is accepted as a canary"; fi
grep -q "run code .* already" "$tmp/canary.log" || wrong "a canary of the version in force is not refused with its reason"
if canary promote >"$tmp/canary.log" 2>&1; then wrong "no canary is promoted"; fi

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 -v >"$tmp/play.log" 2>&1 &
play=$!
running+=("$play")
sleep 1

# Half of the UEs; then the manager dies, and the next one knows of the canary.
upgrade "$tmp/version-7" --canary 50% || { cat "$tmp/canary.log"; wrong "a canary does not begin"; }
until_true "the canary serves no UE" has_procedures 00000007 60
[ "$(of_canary 00000007 3)" -gt 0 ] || wrong "no UE is the canary's"
unit | grep -c ' canary ' | grep -qx 2 || wrong "the unit does not show two CPFs of the canary"
sleep 0.6 # metrics are half a second old at most
[ "$(metric 'whimbrel_canary_procedures_total{side="canary"}')" -ge 60 ] || wrong "the metrics do not show the canary"
if upgrade "$tmp/version-8"; then wrong "an upgrade begins amid a canary"; fi
kill -9 "$manager"
wait "$manager" 2>/dev/null || true
manager
until_true "the next manager does not answer" is_complete
canary | grep -q 'code 00000007 .* serves 50 % of UEs' || wrong "the next manager does not know of the canary"
before=$(of_canary 00000007 4)
kill -9 "$(unit | awk '$2 == "primary" { print $3; exit }')"
until_true "the unit is not complete after a takeover" is_complete
[ "$(of_canary 00000007 4)" -ge "$before" ] || wrong "the canary's figures end with the primary CTA"
canary share 25% >/dev/null || wrong "its share cannot be changed"

# An order rolls it back.
canary roll-back >"$tmp/canary.log" 2>&1 || { cat "$tmp/canary.log"; wrong "the canary is not rolled back"; }
has_ended || wrong "the canary goes on after its roll-back"
! unit | grep -q ' 00000007 ' || wrong "CPFs of the canary run after its roll-back"
until_true "the unit is not complete after the roll-back" is_complete

# One whose CPFs are killed repeatedly is rolled back by itself.
upgrade "$tmp/version-8" --canary 50% || { cat "$tmp/canary.log"; wrong "the second canary does not begin"; }
until_true "the second canary serves no UE" has_procedures 00000008 20
for _ in $(seq 30); do
  victim=$(unit | awk '$2 == "canary" { print $3; exit }')
  has_ended && break
  if [[ "${victim:-}" =~ ^[0-9]+$ ]] && grep -q 'serves 50 %' <<<"$(canary)"; then kill -9 "$victim"; fi
  sleep 1.5
done
until_true "a canary of which CPFs die is not rolled back" has_ended
canary | grep -q '^last: .*code 00000008 was rolled back: .* of its CPFs were lost' || { canary; wrong "the reason of the roll-back is not shown"; }
until_true "the unit is not complete after the second roll-back" is_complete

# A listed UE; then it is everyone's.
listed=$(awk -F, 'NR == 2 { print $1 }' "$tmp/ues.csv")
upgrade "$tmp/version-7" --ues "$listed" || { cat "$tmp/canary.log"; wrong "the third canary does not begin"; }
until_true "the listed UE is not served by the canary" has_procedures 00000007 3
[ "$(of_canary 00000007 3)" = 1 ] || wrong "the canary serves other UEs than the listed one"
canary promote >"$tmp/canary.log" 2>&1 || { cat "$tmp/canary.log"; wrong "the canary is not promoted"; }
until_true "the unit is not complete after the promotion" is_complete
[ "$(unit | grep -c ' 00000007 ')" = 6 ] || { unit; wrong "some functions run the former code"; }
has_ended || wrong "the canary goes on after its promotion"

kill -0 "$play" 2>/dev/null || wrong "UEs had nothing to do at the end: give more seconds than $seconds"
wait "$play" || { tail -n 5 "$tmp/play.log"; wrong "a step of a UE failed"; }
lost=$(metric whimbrel_ues_lost_total)
[ "$lost" = 0 ] || wrong "$lost UEs were lost"
echo "a canary: half of the UEs, another manager, rolled back by order and by itself, a listed UE, promoted; no step of a UE failed"
