#!/usr/bin/env bash
# Network functions of a unit as processes of their own: two UDMs, two PCFs for each of two slices, and a CHF, which the CTA reaches through shared memory. UEs of
# both slices register, have sessions and deregister. Each process is killed, then both UDMs at once, then the CTA, and a UDM hangs: no step of a UE fails, and each
# session has one charging record. A change of a subscriber comes into force in its session. In a network namespace of its own.
#
# Usage: unit_functions.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(unit.log play-1.log play-2.log)
. "$(dirname "$0")/../netns.sh"
. "$(dirname "$0")/../unit_manager.sh"

ues=6 # of each slice
cat >"$tmp/unit.yaml" <<END
slices: [1, 2]
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false, forwarding: false }
cluster: { slices: [2] }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/unit.db, key_file: $tmp/unit.key }
data_networks:
  - dnn: internet
    charging: { rating_group: 1, failure_handling: terminate }
sbi: { chf: embedded }
chf: { default_account: postpaid }
overload: { start_delay_ms: 10000 } # a host that is held up repeatedly would rightly send OVERLOAD START
unit: { directory: $tmp/unit, functions: [udm, pcf, chf], function_instances: 2 }
END
cat >"$tmp/play.yaml" <<END
gnbs: 1
seconds: 600
patience-s: 10
groups:
  - name: commuters
    ues: $ues
    begin: [wait: 0.1]
    repeat: [register, session: { dnn: internet }, wait: 0.1, idle, wait: 0.05, return, wait: 0.1, deregister]
END
cat >"$tmp/stay.yaml" <<END
gnbs: 1
seconds: 600
groups: [{ name: stays, ues: 1, begin: [register, session: { dnn: internet }], repeat: [wait: 0.5] }]
END

pid_of() { unit | awk -v f="$1" '$1 == f { print $3 }'; }
asked() { metric "whimbrel_function_requests_total{function=\"$1\"}"; }
grows() { [ "$(asked "$1")" -gt "$2" ]; }
# goes_on: waits until each function has answered ten more requests.
goes_on() {
  local nf
  for nf in udm pcf chf; do
    until_true "the $nf is not asked any more" grows $nf $(($(asked $nf) + 10))
  done
  for slice in 1 2; do
    kill -0 "${play[slice]}" 2>/dev/null || wrong "the UEs of slice $slice have ended"
  done
}

for slice in 1 2; do
  options=(--imsi "99970000000${slice}001" --gnb-slices 1,2 --slices $slice)
  "$WHIMBREL_LAB" ran "$tmp/play.yaml" "${options[@]}" --write-subscribers "$tmp/ues.csv" >/dev/null
  "$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/unit.yaml" >/dev/null
done
stay=(--imsi 999700000003001 --gnb-slices 1,2 --slices 1 --gnb-id 30 --gnb-address 127.0.3.1)
"$WHIMBREL_LAB" ran "$tmp/stay.yaml" "${stay[@]}" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/unit.yaml" >/dev/null
manager
until_true "the unit is not complete" is_complete
[ "$(grep -cE '^(udm|pcf|chf)-' "$tmp/state")" = 7 ] || { cat "$tmp/state"; wrong "there are not two UDMs, four PCFs and a CHF"; }
for slice in 1 2; do
  options=(--imsi "99970000000${slice}001" --gnb-slices 1,2 --slices $slice --gnb-id ${slice}0 --gnb-address 127.0.${slice}.1)
  "$WHIMBREL_LAB" ran "$tmp/play.yaml" "${options[@]}" --amf 127.0.0.31 -v >"$tmp/play-$slice.log" 2>&1 &
  play[slice]=$!
  running+=($!)
done
goes_on

# A flow that a subscriber gets comes into force in its session: the PCF orders it.
"$WHIMBREL_LAB" ran "$tmp/stay.yaml" "${stay[@]}" --amf 127.0.0.31 -v >"$tmp/stay.log" 2>&1 &
running+=($!)
await stay "gnb.*=1:1000000/1000000"
voice=$("$WHIMBREL" subscriber show imsi-999700000003001 --config "$tmp/unit.yaml" |
  python3 -c 'import json, sys
slices = json.load(sys.stdin)["subscription"]["slices"]
slices[0]["dnns"][0]["flows"] = [{"name": "voice", "five_qi": 5, "precedence": 20, "filters": ["permit out 17 from any 5060 to assigned"], "setup": "ALWAYS"}]
print(json.dumps({"subscription": {"slices": slices}}))')
"$WHIMBREL" subscriber edit imsi-999700000003001 --set "$voice" --config "$tmp/unit.yaml" >/dev/null
await stay "SessionModified"

# Each dies, and the other instance goes on.
for function in udm-1 udm-2 pcf-1 pcf-2 pcf-3 pcf-4 chf-1; do
  kill -9 "$(pid_of $function)"
  await unit "a network function of this unit is lost.* function=$function"
  goes_on
  until_true "the unit is not complete again" is_complete
done
# Without any UDM, requests wait for the next one. One that hangs is killed.
kill -9 "$(pid_of udm-1)" "$(pid_of udm-2)"
goes_on
until_true "the unit is not complete again" is_complete
kill -STOP "$(pid_of udm-1)"
await unit "a function hangs.* function=udm-1"
goes_on
until_true "the unit is not complete again" is_complete
# Each request was answered, if not by the process that had it first: one that was lost would have failed after five seconds.
sleep 5
for nf in udm pcf chf; do
  [ "$(metric "whimbrel_function_faults_total{function=\"$nf\"}")" = 0 ] || wrong "a request to the $nf was not answered"
done
# The next primary CTA asks them.
kill -9 "$(awk '/ primary / { print $3 }' "$tmp/state")"
until_true "the unit is not complete again" is_complete
goes_on

for slice in 1 2; do
  kill -INT "${play[slice]}"
  wait "${play[slice]}" || { tail -n 5 "$tmp/play-$slice.log"; wrong "a step of a UE of slice $slice failed"; }
done

# Each session has one record once its UE has deregistered; those that were stopped in their sessions have none yet.
begun() { awk -v step="$1" '$1 == step { n += $2 } END { print n }' "$tmp"/play-?.log; }
"$WHIMBREL" charging records --csv --config "$tmp/unit.yaml" >"$tmp/records.csv"
records=$(($(wc -l <"$tmp/records.csv") - 1))
[ "$records" -ge "$(begun deregister)" ] && [ "$records" -le "$(begun session)" ] ||
  wrong "there are $records charging records of $(begun session) sessions, with $(begun deregister) deregistrations"
echo "network functions as processes: ten were killed, one hung; $(begun session) sessions, $records charging records"
