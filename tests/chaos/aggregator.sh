#!/usr/bin/env bash
# Aggregators that die, hang, are cut off and stop while phones are busy, and control functions that die beside or drain: no phone may notice.
# Two aggregators, one etcd as their witness, three control functions and a UPF in a network namespace; the second aggregator behind a
# wire. Phones and gNBs judge each answer, as in control.sh.
#
# Usage: aggregator.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
seconds=${1:-20}
seed=${2:-1}
tools=(etcd nsenter)
logs=(one.log two.log play.log)
. "$(dirname "$0")/hosts.sh"

for host in 5 11 12 13; do ip address add 192.0.2.$host/24 dev near; done # the UPF, gNBs
declare -A address=([one]=192.0.2.1 [two]=192.0.2.2) number=([one]=1 [two]=2) host=([one]="" [two]="nsenter -t $elsewhere -n") pid
for name in one two; do
  cat >"$tmp/$name.yaml" <<END
n2: { addresses: [${address[$name]}] }
n3: { address: ${address[$name]} }
n4: { node_id: ${address[$name]} }
upfs: [{ address: "192.0.2.5:8805" }]
api: { address: "127.0.0.1:808${number[$name]}" }
store: { path: $tmp/$name.db }
cluster:
  listen: "${address[$name]}:7380"
  key_file: $tmp/cluster.key
  etcd: ["http://192.0.2.1:2379"]
  aggregator: ${number[$name]}
  heartbeat_interval: 40ms # a machine that does much else makes false alarms, which are harmless and no news
  heartbeat_misses: 4
END
done
cat >"$tmp/upf.yaml" <<END
n3: { address: 192.0.2.5 }
n4: { node_id: 192.0.2.5, listen: "192.0.2.5:8805" }
api: { address: "127.0.0.1:8085" }
store: { path: $tmp/upf.db }
END

# aggregator NAME: starts it.
aggregator() {
  runs ${host[$1]} "$WHIMBREL" run --config "$tmp/$1.yaml" 2>>"$tmp/$1.log"
  pid[$1]=$last
}
# cpf NAME: starts a control function; the one called c finds the aggregators at etcd.
cpf() {
  local at=(--aggregator 192.0.2.1:7380 --aggregator 192.0.2.2:7380)
  [ "$1" != c ] || at=(--etcd http://192.0.2.1:2379)
  runs "$WHIMBREL" cpf "${at[@]}" --listen 192.0.2.1:0 --key-file "$tmp/cluster.key" 2>>"$tmp/$1.log"
  pid[$1]=$last
}
# ended NAME SIGNAL: sends it, and waits until the process is gone.
ended() {
  kill "-$2" "${pid[$1]}"
  while kill -0 "${pid[$1]}" 2>/dev/null; do sleep 0.01; done
}
# said TEXT: how often both aggregators have said this.
said() { cat "$tmp"/one.log "$tmp"/two.log 2>/dev/null | grep -c "$1" || true; }
# pair_says TEXT N WHY: waits until they have said it so often.
pair_says() {
  for _ in $(seq 600); do
    [ "$(said "$1")" -ge "$2" ] && return
    sleep 0.05
  done
  wrong "$3"
}
# pairs N: waits until an aggregator has got a mirror so many times in all.
paired=0
pairs() {
  paired=$((paired + $1))
  pair_says "this aggregator has a mirror" "$paired" "the aggregators do not become a pair"
}
# Whoever said last that it serves, does.
active() {
  grep -h -o "^[^ ]* .*this aggregator serves" "$tmp/one.log" "$tmp/two.log" | sort | tail -n 1 >"$tmp/last"
  if grep -qF "$(cut -d' ' -f1 "$tmp/last")" "$tmp/one.log"; then echo one; else echo two; fi
}
# decided JSON: what holds for the whole cluster, as an operator writes it with etcdctl.
decided() {
  local key
  key=$(printf whimbrel/whimbrel/configuration | base64)
  curl -sf http://192.0.2.1:2379/v3/kv/put -d "{\"key\": \"$key\", \"value\": \"$(printf %s "$1" | base64 -w 0)\"}" >/dev/null || wrong "etcd is not written to"
}
other() { if [ "$1" = one ]; then echo two; else echo one; fi; }

runs etcd --name witness --data-dir "$tmp/etcd" --listen-client-urls http://192.0.2.1:2379 --advertise-client-urls http://192.0.2.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
  --initial-cluster witness=http://127.0.0.1:2380 >"$tmp/etcd.log" 2>&1
"$WHIMBREL" ran "$tmp/play.yaml" --write-subscribers "$tmp/phones.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/phones.csv" --config "$tmp/one.yaml" >/dev/null # the other one gets them from this one
runs "$WHIMBREL" upf --config "$tmp/upf.yaml" 2>"$tmp/upf.log"
aggregator one
pair_says "this aggregator serves" 1 "the first aggregator does not serve"
aggregator two
pairs 1
pair_says "subscribers as at the aggregator that serves" 1 "subscribers are not carried to the mirror"
for name in a b c; do cpf "$name"; done
pair_says "a control function has come" 3 "control functions do not come"
pair_says "the UPF answers" 1 "the UPF is not reached"

"$WHIMBREL" ran "$tmp/play.yaml" --amf "${address[$(active)]}" --gnb-address 192.0.2.11 --fastwire=0 -v >"$tmp/play.log" 2>&1 &
play=$!
running+=("$play")

RANDOM=$seed
killed=0 stopped=0 left=0 cut=0 mirrors=0 both=0 cpfs=(a b c)
end=$((SECONDS + seconds - 2))
sleep 1
# By the operator's word c gives its phones away, while it runs and they are busy, and comes back.
c=$(grep -o 'etcd lists this control function.*' "$tmp/c.log" | grep -o '[0-9]*$' | tail -n 1)
decided "{\"draining\": [\"cpf-$c\"]}"
pair_says "on the rings no more" 1 "a control function that is to drain does not"
pair_says "others have the phones of a control function" 1 "the phones of a control function that drains do not go to others"
decided '{}'
pair_says "a control function is on the rings" 1 "a control function that drains no more gets no phones"
while [ $SECONDS -lt $end ] && kill -0 "$play" 2>/dev/null; do
  serves=$(active)
  mirror=$(other "$serves")
  case $((RANDOM % 6)) in
    0) # it dies
      ended "$serves" KILL
      aggregator "$serves"
      killed=$((killed + 1)) ;;
    1) # it hangs for a while, and wakes up as if nothing had been
      kill -STOP "${pid[$serves]}"
      sleep 0.5
      kill -CONT "${pid[$serves]}"
      stopped=$((stopped + 1)) ;;
    2) # it stops in order
      ended "$serves" TERM
      aggregator "$serves"
      left=$((left + 1)) ;;
    3) # the second one, whatever it is just now, is cut off
      ip link set near down
      sleep 0.4
      ip link set near up
      cut=$((cut + 1)) ;;
    4) # the mirror dies
      ended "$mirror" KILL
      aggregator "$mirror"
      mirrors=$((mirrors + 1)) ;;
    5) # a control function dies, and the aggregator before it knows
      victim=${cpfs[RANDOM % 3]}
      kill -KILL "${pid[$victim]}"
      ended "$serves" KILL
      aggregator "$serves"
      cpf "$victim"
      both=$((both + 1)) ;;
  esac
  pairs 1
  sleep 0.$((RANDOM % 5 + 2))
done

rc=0
wait "$play" || rc=$?
sed -n '/^step /,$p' "$tmp/play.log" | grep -v '^{' || true
takeovers=$(said "serves in the other one's place") alone=$(said "goes on without a mirror")
echo "aggregators lost while they served: $killed killed, $stopped stopped, $left left in order, $both with a control function; mirrors killed: $mirrors;" \
  "cut off: $cut; taken over: $takeovers; went on alone: $alone"
stale=$(awk -f "$(dirname "$0")/histories.awk" "$tmp/play.log")
answers=$(grep -c '^imsi-' "$tmp/play.log" || true)
[ -z "$stale" ] || { echo "$stale" | head -n 5; wrong "an answer contradicts what its phone was told before"; }
# What is not known to have left is sent again by who takes over: a gNB may get it twice, when what it is about has ended, and says so.
again=$(grep '^violation: ' "$tmp/play.log" | grep -c -e 'which has no context$' -e 'stands already$' -e 'was not awaited$' || true)
wrongs=$(grep '^violation: ' "$tmp/play.log" | grep -cv -e 'which has no context$' -e 'stands already$' -e 'was not awaited$' || true)
[ "$rc" = 0 ] || { [ "$wrongs" = 0 ] && grep -q '^48 of 48 phones did all steps' "$tmp/play.log"; } || wrong "phones noticed"
[ $((takeovers + alone)) -gt 0 ] || wrong "nothing happened: the run shows nothing"
echo "{\"chaos\": \"aggregator\", \"seconds\": $seconds, \"seed\": $seed, \"killed\": $killed, \"stopped\": $stopped, \"left\": $left, \"cut\": $cut," \
  "\"mirrors_killed\": $mirrors, \"with_a_cpf\": $both, \"takeovers\": $takeovers, \"alone\": $alone, \"said_twice\": $again, \"answers_in_histories\": $answers, \"stale\": 0}"
