#!/usr/bin/env bash
# The cluster's key is changed while UEs are busy, as docs/cluster.md describes ("change the key"): two CTAs and three CPFs are
# restarted in each of three rounds. No UE may notice, and a process with only the former key is rejected in the end.
#
# Usage: key.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
seconds=${1:-40}
[ "$seconds" -ge 40 ] || seconds=40
seed=${2:-1}
tools=(etcd nsenter curl)
logs=(one.log two.log play.log)
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/pair.sh"

former=$(cat "$tmp/cluster.key")
new=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
began=$SECONDS
# While UEs have no replica, a restart would cost them: the next restart waits until they have.
backed() {
  sleep 0.55
  for _ in $(seq 100); do
    [ "$(metric_of "$(active)" whimbrel_ues_without_backup)" = 0 ] && return
    sleep 0.05
  done
  wrong "UEs have no replica for five seconds"
}
lost=0
for keys in "$former\n$new" "$new\n$former" "$new"; do
  printf "$keys\n" >"$tmp/cluster.key"
  for name in "$(other "$(active)")" "$(active)"; do # the primary hands over to the CTA that was restarted
    backed
    lost=$((lost + $(metric_of "$name" whimbrel_ues_lost_total)))
    ended "$name" TERM
    cta "$name"
    pairs 1
  done
  for name in a b c; do
    backed
    ended "$name" TERM
    : >"$tmp/$name.log"
    cpf "$name"
    await "$name" "this CPF has joined a CTA"
  done
done
backed
took=$((SECONDS - began))
# On a slow machine the UEs may end before: the run then shows less, but the core is not at fault.
kill -0 "$play" 2>/dev/null || echo "UEs were done before the key was changed everywhere ($took s): give it more seconds than $seconds"

printf "$former\n" >"$tmp/cluster.key"
cpf former_key
await former_key "must hold the key"
kill -9 "${pid[former_key]}"
lost=$((lost + $(metric_of "$(active)" whimbrel_ues_lost_total)))
judge
[ "$lost" = 0 ] || wrong "UEs were lost"
echo "the key was changed in $took s: each of two CTAs and three CPFs was restarted three times"
echo "{\"chaos\": \"key\", \"seconds\": $seconds, \"seed\": $seed, \"took_s\": $took, \"lost\": $lost, \"repeated\": $again," \
  "\"answers_in_histories\": $answers, \"stale\": 0}"
