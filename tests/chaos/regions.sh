#!/usr/bin/env bash
# gNBs of three regions under one CTA, and UEs that hand over between them while CPFs die: a UE is served in the region
# that it is in (Neutrino §4.3), its state goes with it, and no UE notices anything. All on one host, in a network namespace of its own.
#
# Usage: regions.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
seconds=${1:-20}
seed=${2:-1}
tools=(curl nsenter)
logs=(core.log play.log)
. "$(dirname "$0")/hosts.sh"

cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: { node_id: 127.0.0.31 }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
overload: { start_delay_ms: 10000 } # a host that is held up repeatedly would rightly send OVERLOAD START
cluster:
  listen: "127.0.0.1:7380"
  region: coast/harbour
  other_regions: [coast/town, coast/cape]
  areas:
    - { region: coast/town, gnbs: [2] }
    - { region: coast/cape, gnbs: [3] }
END

# cpf NAME: starts a CPF in the region coast/NAME, whatever follows a dot.
declare -A pid
cpf() {
  runs "$WHIMBREL" cpf --region "coast/${1%.*}" 2>>"$tmp/$1.log"
  pid[$1]=$last
}

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
start core run
all=(harbour.1 harbour.2 town.1 town.2 cape.1)
for name in "${all[@]}"; do cpf "$name"; done
came=${#all[@]}
await core "a CPF joined" "$came"

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 -v >"$tmp/play.log" 2>&1 &
play=$!
running+=("$play")

RANDOM=$seed
killed=0
end=$((SECONDS + seconds - 2))
sleep 1
while [ $SECONDS -lt $end ] && kill -0 "$play" 2>/dev/null; do
  victim=${all[RANDOM % ${#all[@]}]}
  kill -9 "${pid[$victim]}"
  killed=$((killed + 1))
  await core "are served by other CPFs" "$killed"
  cpf "$victim"
  came=$((came + 1))
  await core "a CPF joined" "$came"
  sleep 0.$((RANDOM % 5 + 2))
  backed
done

rc=0
wait "$play" || rc=$?
sed -n '/^step /,$p' "$tmp/play.log" | grep -v '^{' || true
sleep 0.7
fast=$(metric 'whimbrel_ues_moved_total{form="fast"}') default=$(metric 'whimbrel_ues_moved_total{form="default"}')
stayed=$(metric whimbrel_ue_moves_abandoned_total) taken=$(metric whimbrel_ues_taken_over_total)
gone=$(metric whimbrel_ues_lost_total) diverged=$(metric whimbrel_replays_diverged_total)
echo "CPFs killed: $killed; UEs taken over: $taken; UEs that moved to the CPF of another region: $fast at once," \
  "$default with their state, $stayed stayed; UEs lost: $gone; replays that diverged: $diverged"
stale=$(awk -f "$(dirname "$0")/histories.awk" "$tmp/play.log")
answers=$(grep '^imsi-' "$tmp/play.log" | grep -cv ': Holds' || true)
[ -z "$stale" ] || { echo "$stale" | head -n 5; wrong "an answer contradicts an earlier one to its UE"; }
[ "$rc" = 0 ] || noticed "$tmp/core.yaml"
[ "$gone" = 0 ] || wrong "UEs were lost"
[ "$diverged" = 0 ] || wrong "a replay gave other outputs"
[ "$fast" -gt 0 ] && [ "$default" -gt 0 ] && [ "$taken" -gt 0 ] || wrong "not all happened: the run shows nothing"
echo "{\"chaos\": \"regions\", \"seconds\": $seconds, \"seed\": $seed, \"killed\": $killed, \"taken_over\": $taken, \"moved_fast\": $fast," \
  "\"moved_default\": $default, \"stayed\": $stayed, \"lost\": $gone, \"diverged\": $diverged, \"answers_in_histories\": $answers, \"stale\": 0}"
