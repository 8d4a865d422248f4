#!/usr/bin/env bash
# Etcd dies while UEs are busy. Three members, each in a network namespace of its own: one of them dies, and then a CTA, from
# which the other one takes over; all three die for longer than every lease lasts (a minute, in a run of two), while UEs begin and end procedures, and
# start again. No UE may notice.
#
# Usage: etcd.sh [SECONDS] [SEED]     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
seconds=${1:-60}
[ "$seconds" -ge 45 ] || seconds=45
seed=${2:-1}
tools=(etcd nsenter curl)
logs=(one.log two.log etcd.log play.log)
. "$(dirname "$0")/hosts.sh"

# A wire to each member; packets between them, and to the second CTA, are forwarded here.
echo 1 2>/dev/null >/proc/sys/net/ipv4/ip_forward || { echo "packets cannot be forwarded between network namespaces here"; exit 77; }
nsenter -t "$elsewhere" -n ip route add default via 192.0.2.1
etcd='' etcd_host=('')
for n in 1 2 3; do
  runs unshare --net sleep infinity
  there=$last
  own_network "$there"
  ip link add "wire$n" type veth peer name eth0 netns "$there"
  ip address add "198.51.100.$((8 * n + 1))/29" dev "wire$n"
  ip link set "wire$n" up
  for what in "address add 198.51.100.$((8 * n + 2))/29 dev eth0" "link set lo up" "link set eth0 up" "route add default via 198.51.100.$((8 * n + 1))"; do
    nsenter -t "$there" -n ip $what
  done
  etcd="$etcd 198.51.100.$((8 * n + 2))"
  etcd_host+=("nsenter -t $there -n")
done
. "$(dirname "$0")/pair.sh"

# etcd_dies N...: kills these members.
etcd_dies() {
  local n
  for n in "$@"; do kill -9 "${etcd_pid[$n]}"; done
}
sleep 2
etcd_dies $((seed % 3 + 1))
sleep 1
serves=$(active)
ended "$serves" KILL
pair_says "is the primary after a takeover" 1 "with two of three etcds no CTA takes over"
cta "$serves"
pairs 1
etcd_member $((seed % 3 + 1))
sleep 2

# A CTA's lease lasts five seconds, a CPF's ten.
gone_for=$((seconds - 46))
[ "$gone_for" -ge 14 ] || gone_for=14
[ "$gone_for" -le 60 ] || gone_for=60
# ended_procedures: how many procedures of UEs have ended so far.
ended_procedures() { grep -cE '^imsi-[^ ]* (Registered|SessionUp|ServiceAccepted|HandedOver|Deregistered)' "$tmp/play.log" || true; }
before=$(logged "this CTA is the primary")
alone=$(logged "continues without a CTA replica") lost=$(logged "a CPF is lost")
etcd_dies 1 2 3
begun=$SECONDS
ended_before=$(ended_procedures)
sleep "$gone_for"
meanwhile=$(($(ended_procedures) - ended_before))
[ "$(logged "this CTA is the primary") $(logged "continues without a CTA replica") $(logged "a CPF is lost")" = "$before $alone $lost" ] ||
  wrong "a takeover or a loss happened without etcd"
[ "$meanwhile" -ge $((50 * gone_for)) ] || wrong "UEs ended $meanwhile procedures in the $gone_for s without etcd"
for n in 1 2 3; do etcd_member "$n"; done
away=$((SECONDS - begun))
api=127.0.0.1:808${number[$(active)]}
for _ in $(seq 200); do
  etcd_answers=$(curl -sf -m 1 "http://$(echo $etcd | cut -d' ' -f1):2379/health" || true)
  [[ $etcd_answers == *true* ]] && break
  sleep 0.1
done
[[ $etcd_answers == *true* ]] || wrong "etcd does not come back"
sleep 4 # all leases are renewed
# Now a CTA dies.
serves=$(active)
ended "$serves" KILL
pair_says "is the primary after a takeover" 2 "after etcd is back no CTA takes over"
cta "$serves"
pairs 1

judge
echo "etcd: one of three members killed; all three away for $away s, in which UEs ended $meanwhile procedures; CTAs killed beside: 2, and taken over: $(logged "is the primary after a takeover")"
echo "{\"chaos\": \"etcd\", \"seconds\": $seconds, \"seed\": $seed, \"away_s\": $away, \"meanwhile\": $meanwhile, \"takeovers\": $(logged "is the primary after a takeover")," \
  "\"repeated\": $again, \"answers_in_histories\": $answers, \"stale\": 0}"
