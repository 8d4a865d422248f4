#!/usr/bin/env bash
# CTAs that die, hang, are cut off and stop while UEs are busy, also while etcd is slow, and CPFs that die beside or drain:
# no UE may notice.
# Two CTAs, one etcd as their witness, three CPFs and a UPF in a network namespace; the second CTA behind a
# wire. UEs and gNBs judge each answer, as in control.sh.
#
# Usage: cta.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
seconds=${1:-20}
seed=${2:-1}
tools=(etcd nsenter curl nft)
logs=(one.log two.log play.log)
. "$(dirname "$0")/hosts.sh"

. "$(dirname "$0")/pair.sh"

RANDOM=$seed
killed=0 stopped=0 slow=0 left=0 cut=0 cta_replicas=0 both=0 muted=0 cpfs=(a b c)
end=$((SECONDS + seconds - 2))
sleep 1
# The operator drains c, while it runs and its UEs are busy, and takes that back.
c=$(grep -o 'this CPF is registered in etcd.*' "$tmp/c.log" | grep -o '[0-9]*$' | tail -n 1)
decided "{\"draining\": [\"cpf-$c\"]}"
pair_says "no longer on the rings" 1 "a CPF does not drain"
pair_says "the UEs of a CPF have moved to other CPFs" 1 "the UEs of a draining CPF do not move"
decided '{}'
pair_says "a CPF is on the rings" 1 "a CPF that no longer drains is not on the rings"
while [ $SECONDS -lt $end ] && kill -0 "$play" 2>/dev/null; do
  serves=$(active)
  cta_replica=$(other "$serves")
  case $((RANDOM % 8)) in
    0) # it dies
      ended "$serves" KILL
      cta "$serves"
      killed=$((killed + 1)) ;;
    1) # it hangs for a while, and continues
      kill -STOP "${pid[$serves]}"
      sleep 0.5
      kill -CONT "${pid[$serves]}"
      stopped=$((stopped + 1)) ;;
    2) # it stops in order
      ended "$serves" TERM
      cta "$serves"
      left=$((left + 1)) ;;
    3) # the second CTA, primary or replica, is cut off
      ip link set near down
      sleep 0.4
      ip link set near up
      cut=$((cut + 1)) ;;
    4) # the CTA replica dies
      ended "$cta_replica" KILL
      cta "$cta_replica"
      cta_replicas=$((cta_replicas + 1)) ;;
    5) # a CPF dies, and the CTA before it notices
      victim=${cpfs[RANDOM % 3]}
      kill -KILL "${pid[$victim]}"
      ended "$serves" KILL
      cta "$serves"
      cpf "$victim"
      both=$((both + 1)) ;;
    6) # the CTA replica answers heartbeats, but messages to it, or from it, do not arrive; not if the second CTA is the primary, whose links are not the ones that are cut
      [ "$serves" = one ] || continue
      muted=$((muted + 1))
      mute
      pair_says "the CTA replica answers heartbeats but confirms no inputs: it is treated as lost" "$muted" "a CTA replica that confirms nothing is not treated as lost"
      together ;;
    7) # it dies, and etcd takes a second and more to decide
      kill -STOP "${etcd_pid[1]}"
      ended "$serves" KILL
      sleep 1.$((RANDOM % 9))
      kill -CONT "${etcd_pid[1]}"
      cta "$serves"
      slow=$((slow + 1)) ;;
  esac
  pairs 1
  sleep 0.$((RANDOM % 5 + 2))
done

judge
takeovers=$(logged "is the primary after a takeover") alone=$(logged "continues without a CTA replica")
echo "CTAs lost while they served: $killed killed, $slow while etcd was slow, $stopped stopped, $left left in order, $both with a CPF;" \
  "CTA replicas killed: $cta_replicas, from TCP alone cut off: $muted; cut off: $cut; taken over: $takeovers; continued alone: $alone"
[ $((takeovers + alone)) -gt 0 ] || wrong "nothing happened: the run shows nothing"
echo "{\"chaos\": \"cta\", \"seconds\": $seconds, \"seed\": $seed, \"killed\": $killed, \"etcd_slow\": $slow, \"stopped\": $stopped, \"left\": $left, \"cut\": $cut," \
  "\"cta_replicas_killed\": $cta_replicas, \"muted\": $muted, \"with_a_cpf\": $both, \"takeovers\": $takeovers, \"alone\": $alone, \"repeated\": $again, \"answers_in_histories\": $answers, \"stale\": 0}"
