#!/usr/bin/env bash
# CPFs that die, hang and are cut off, from all, from one another or from TCP alone, while UEs are busy: no UE may notice
# (Neutrino §4.2, failure scenarios 1 and 2).
# A CTA, three CPFs beside it and one behind a wire, in network namespaces of their own. UEs and gNBs judge each
# answer; a step that fails, or an answer that a UE's history does not allow, fails the run. The histories are kept.
#
# Four more UEs send a message that ends the process that runs it: by a panic, an abort, an endless loop, a stack overflow
# (resilience/src/cpf/fault_injection.rs, with the feature faults): it costs one CPF at most, and its own UE a registration.
#
# Usage: control.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
seconds=${1:-20}
seed=${2:-1}
tools=(curl nsenter nft)
logs=(core.log play.log)
. "$(dirname "$0")/hosts.sh"

cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n4: { node_id: 127.0.0.31 }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
overload: { start_delay_ms: 10000 } # a host that is held up repeatedly would rightly send OVERLOAD START
cluster: { listen: "192.0.2.1:7380", key_file: $tmp/cluster.key, replicas: 1 }
END

# cpf NAME [HOST]: starts a CPF, beside the CTA or behind the wire.
declare -A pid
cpf() {
  local at=192.0.2.1 host=()
  [ -z "${2:-}" ] || { at=192.0.2.2; host=(nsenter -t "$elsewhere" -n); }
  runs "${host[@]}" "$WHIMBREL" cpf --cta 192.0.2.1:7380 --listen "$at:0" --key-file "$tmp/cluster.key" 2>>"$tmp/$1.log"
  pid[$1]=$last
}
export WHIMBREL_POISON=999700000000091=panic,999700000000092=abort,999700000000093=hang,999700000000094=overflow
fatal=(abort hang overflow)
grep -q WHIMBREL_POISON "$WHIMBREL" || fatal=()
cat >"$tmp/wakes.yaml" <<END
steps: [register, session: { dnn: internet }, wait: 0.1, idle, wait: 0.1, return]
END
cat >"$tmp/again.yaml" <<END
steps: [register, session: { dnn: internet }, ping: 10.45.0.1, deregister]
END
alone() { "$WHIMBREL_LAB" ran "$1" --imsi "$2" --amf 127.0.0.31 --gnb-id 9 --gnb-address 127.0.1.9 "${@:3}"; }
# poison IMSI: a UE sends the message that ends its CPF, and registers again; `dead` is the CPF that ended.
poisoned=0
poison() {
  ! alone "$tmp/wakes.yaml" "$1" >"$tmp/wakes.log" 2>&1 && grep -q "at step return: service request: the connection was lost" "$tmp/wakes.log" ||
    wrong "a UE does not learn that its message failed"
  alone "$tmp/again.yaml" "$1" >"$tmp/again.log" 2>&1 || wrong "a UE whose message failed cannot register again"
  dead=''
  local name
  for name in "${!pid[@]}"; do
    kill -0 "${pid[$name]}" 2>/dev/null || dead="$dead$name"
  done
}
# members N: waits until N more CPFs have joined.
came=0
members() {
  came=$((came + $1))
  await core "a CPF joined" "$came"
}
# lost: waits until the CTA has noticed another loss.
noticed=0
lost() {
  noticed=$((noticed + 1))
  await core "are served by other CPFs" "$noticed"
}

# apart HOW: packets between the CPFs and the one behind the wire are dropped or rejected; the CTA, at port 7380, reaches all.
apart() {
  nsenter -t "$elsewhere" -n nft -f - <<END
table inet apart {
  chain in { type filter hook input priority 0; tcp sport 7380 accept; meta l4proto tcp ip saddr 192.0.2.1 $1; }
  chain out { type filter hook output priority 0; tcp dport 7380 accept; meta l4proto tcp ip daddr 192.0.2.1 $1; }
}
END
}

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
alone "$tmp/wakes.yaml" 999700000000091 --ues 4 --write-subscribers "$tmp/alone.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/alone.csv" --config "$tmp/core.yaml" >/dev/null
start core run
cpf one; cpf two; cpf three; cpf far behind
members 4

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf 127.0.0.31 -v >"$tmp/play.log" 2>&1 &
play=$!
running+=("$play")

RANDOM=$seed
near=(one two three)
killed=0 stopped=0 cut=0 left=0 apart=0 muted=0
end=$((SECONDS + seconds - 2))
sleep 1
if [ ${#fatal[@]} -gt 0 ]; then
  poison 999700000000091
  [ -z "$dead" ] || wrong "a panic ended a CPF: $dead"
fi
while [ $SECONDS -lt $end ] && kill -0 "$play" 2>/dev/null; do
  if [ "$poisoned" -lt ${#fatal[@]} ]; then
    poison 99970000000009$((poisoned + 2))
    case $dead in one | two | three) cpf "$dead" ;; far) cpf far behind ;; *) wrong "${fatal[poisoned]} ended '$dead'" ;; esac
    poisoned=$((poisoned + 1))
    lost
    members 1
    backed
  fi
  victim=${near[RANDOM % 3]}
  comes=1
  case $((RANDOM % 6)) in
    0) # it dies
      kill -9 "${pid[$victim]}"
      lost
      cpf "$victim"
      killed=$((killed + 1)) ;;
    1) # it hangs for a while, and continues
      kill -STOP "${pid[$victim]}"
      lost
      sleep 0.2
      kill -CONT "${pid[$victim]}"
      stopped=$((stopped + 1)) ;;
    2) # it cannot be reached for a while
      ip link set near down
      lost
      sleep 0.2
      ip link set near up
      ip address add 192.0.2.1/24 dev near 2>/dev/null || true
      cut=$((cut + 1)) ;;
    3) # it leaves in order
      kill -TERM "${pid[$victim]}"
      lost
      cpf "$victim"
      left=$((left + 1)) ;;
    4) # checkpoints do not pass between CPFs for a while, as in a slow network, or their links end
      if [ $((RANDOM % 2)) = 0 ]; then apart drop; else apart "reject with tcp reset"; fi
      sleep 0.5
      together
      comes=0
      apart=$((apart + 1)) ;;
    5) # it answers heartbeats, but messages to it, or from it, do not arrive
      mute
      lost
      together
      muted=$((muted + 1)) ;;
  esac
  members "$comes"
  sleep 0.$((RANDOM % 5 + 2))
  backed
done

rc=0
wait "$play" || rc=$?
sed -n '/^step /,$p' "$tmp/play.log" | grep -v '^{' || true
sleep 0.7
taken=$(metric whimbrel_ues_taken_over_total) replayed=$(metric whimbrel_inputs_replayed_total)
gone=$(metric whimbrel_ues_lost_total) diverged=$(metric whimbrel_replays_diverged_total) alarms=$(metric whimbrel_cpf_false_alarms_total)
echo "CPFs lost: $killed killed, $stopped stopped, $cut cut off, $muted from TCP alone, $poisoned by a message; $left left in order; cut off from one another: $apart; UEs taken over: $taken; messages replayed: $replayed;" \
  "false alarms: $alarms; UEs lost: $gone; replays that diverged: $diverged"
stale=$(awk -f "$(dirname "$0")/histories.awk" "$tmp/play.log")
answers=$(grep '^imsi-' "$tmp/play.log" | grep -cv ': Holds' || true)
[ -z "$stale" ] || { echo "$stale" | head -n 5; wrong "an answer contradicts an earlier one to its UE"; }
[ "$rc" = 0 ] || noticed "$tmp/core.yaml"
[ "$(metric whimbrel_ues_discarded_total)" = "$poisoned" ] || wrong "the number of poisoned messages is wrong"
[ "$(metric whimbrel_cpf_unresponsive_total)" -ge "$muted" ] || wrong "a link that passed nothing was not noticed"
[ "$gone" = 0 ] || wrong "UEs were lost"
[ "$diverged" = 0 ] || wrong "a replay gave other outputs"
[ "$((killed + stopped + cut + left + apart + muted))" -gt 0 ] && [ "$taken" -gt 0 ] || wrong "nothing happened: the run shows nothing"
echo "{\"chaos\": \"control\", \"seconds\": $seconds, \"seed\": $seed, \"killed\": $killed, \"stopped\": $stopped, \"cut\": $cut, \"poisoned\": $poisoned, \"left\": $left, \"apart\": $apart, \"muted\": $muted," \
  "\"taken_over\": $taken, \"replayed\": $replayed, \"false_alarms\": $alarms, \"lost\": $gone, \"diverged\": $diverged, \"answers_in_histories\": $answers, \"stale\": 0}"
