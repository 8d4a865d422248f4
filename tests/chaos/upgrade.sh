#!/usr/bin/env bash
# A cluster is upgraded while UEs are busy (docs/cluster.md, "Upgrading"): CPFs and CTAs that run other code replace
# the present ones, and one of each dies meanwhile. A version with incompatible messages is refused. No UE may notice.
#
# Both versions are one build; `WHIMBREL_CODE_VERSION` and `WHIMBREL_LINK_VERSION` make it announce another version (debug builds, feature `faults`).
#
# Usage: upgrade.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
seconds=${1:-40}
[ "$seconds" -ge 30 ] || seconds=30
seed=${2:-1}
tools=(etcd nsenter curl)
logs=(one.log two.log play.log)
. "$(dirname "$0")/hosts.sh"
grep -q WHIMBREL_CODE_VERSION "$WHIMBREL" || { echo "the program was built without the feature faults"; exit 77; }
. "$(dirname "$0")/pair.sh"

sleep 1
# A version with incompatible messages.
WHIMBREL_LINK_VERSION=99 cpf incompatible
pair_says "a link is refused: it is another version of whimbrel" 1 "links of another version are not logged"
await incompatible "this process is not a usable CTA: it is another version of whimbrel"
for _ in $(seq 100); do # it connects again after five seconds
  refused=$(metric_of "$(active)" whimbrel_link_versions_refused_total)
  [ "$refused" -lt 2 ] || break
  sleep 0.2
done
kill -9 "${pid[incompatible]}"
[ "$refused" -ge 2 ] || wrong "links of another version are not counted ($refused)"
[ "$(logged "a link is refused")" = 1 ] || wrong "links of another version are logged again and again"

# The CPFs.
code=2
for name in d e f; do cpf "$name"; done
pair_says "the CPF waits: it runs other code" 3 "CPFs that run other code do not wait"
ended a TERM
pair_says "the UEs of a CPF have moved to other CPFs" 2 "the UEs of the former CPFs do not move to the new ones"
ended b TERM
ended c KILL
sleep 1
for name in a b c; do cpf "$name"; done # more of the new ones

# The CTAs.
serves=$(active) cta_replica=$(other "$(active)")
ended "$cta_replica" TERM
pair_says "continues without a CTA replica" 1 "a CTA whose replica left does not continue"
cta "$cta_replica"
pair_says "a CTA that runs other code takes over when this one stops" 1 "a CTA that runs other code does not wait"
gnbs_at "$cta_replica"
ended "$serves" TERM
pair_says "is the primary after a takeover" 1 "a CTA that runs other code does not take over"
cta "$serves"
pairs 2 # for a moment, to hand over; and from now on
# And they are a pair as before.
ended "$cta_replica" KILL
pair_says "is the primary after a takeover" 2 "the upgraded CTA's CTA replica does not take over"
cta "$cta_replica"
pairs 1
cpf_lost=$(metric_of "$(active)" whimbrel_ues_lost_total) unreadable=$(metric_of "$(active)" whimbrel_checkpoints_unusable_total)

judge
[ "$cpf_lost" = 0 ] || wrong "UEs were lost"
[ "$unreadable" = 0 ] || wrong "a state, or a log, of one version was given to another"
echo "upgraded: three CPFs and two CTAs; links of an incompatible version: $refused, all refused"
echo "{\"chaos\": \"upgrade\", \"seconds\": $seconds, \"seed\": $seed, \"refused\": $refused, \"lost\": $cpf_lost, \"unreadable\": $unreadable," \
  "\"repeated\": $again, \"answers_in_histories\": $answers, \"stale\": 0}"
