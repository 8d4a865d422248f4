#!/usr/bin/env bash
# CPFs of a slice in a unit: UEs of two slices are served by their CPFs. A CPF of the one slice dies: its UEs go on, and those of the other slice stay where they
# are. While the manager is dead the other CPF of the slice dies too: all UEs are served by the CPFs that are left. The next manager starts them again, and
# UEs come back with their next procedures. No step of a UE fails. In a network namespace of its own.
#
# Usage: slices.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(unit.log play-1.log play-2.log)
. "$(dirname "$0")/../netns.sh"
. "$(dirname "$0")/../unit_manager.sh"

ues=8 # of each slice
cat >"$tmp/unit.yaml" <<END
slices: [1, 2]
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false, forwarding: false }
cluster: { slices: [2] }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/unit.db, key_file: $tmp/unit.key }
overload: { start_delay_ms: 10000 } # a host that is held up repeatedly would rightly send OVERLOAD START
unit: { directory: $tmp/unit, slice_cpfs: 2 }
END
cat >"$tmp/play.yaml" <<END
gnbs: 2
seconds: 600
patience-s: 10
groups:
  - name: commuters
    ues: $ues
    begin: [register, session: { dnn: internet }]
    repeat: [wait: 0.1, handover: { via: xn }, wait: 0.1, idle, wait: 0.05, return, wait: 0.1, handover: { via: n2 }]
END

# cpfs: a line for each CPF: its number, its slice or -, and the UEs that it serves.
cpfs() {
  curl -sf --unix-socket "$tmp/unit.db.socket" http://localhost/api/v1/cluster |
    python3 -c 'import json, sys
for cpf in json.load(sys.stdin)["cpfs"]: print(cpf["id"], cpf["slice"] or "-", cpf["primary_of"])'
}
# serve OF_SLICE OTHERS: whether the CPFs of slice 2 serve so many UEs, and the other ones so many.
serve() { [ "$(cpfs 2>/dev/null | awk '{ n[$2] += $3 } END { print n["2"] + 0, n["-"] + 0 }')" = "$1 $2" ]; }
# number_of FUNCTION: the number of the process's CPF.
number_of() { grep "^$1: .*this CPF has joined a CTA" "$tmp/unit.log" | grep -o 'cpf=[0-9]*' | tail -n 1 | cut -d= -f2; }
all_have_replicas() {
  sleep 0.6 # metrics are half a second old at most
  [ "$(metric whimbrel_ues_without_backup)" = 0 ]
}
# lost N: waits until the CTA has found that this CPF is lost.
lost() { await unit "the UEs of a lost CPF are served by other CPFs.* cpf=$1 "; }

for slice in 1 2; do
  options=(--imsi "99970000000${slice}001" --gnb-slices 1,2 --slices $slice)
  "$WHIMBREL_LAB" ran "$tmp/play.yaml" "${options[@]}" --write-subscribers "$tmp/ues.csv" >/dev/null
  "$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/unit.yaml" >/dev/null
done
manager
until_true "the unit is not complete" is_complete
for slice in 1 2; do
  options=(--imsi "99970000000${slice}001" --gnb-slices 1,2 --slices $slice --gnb-id ${slice}0 --gnb-address 127.0.${slice}.1)
  "$WHIMBREL_LAB" ran "$tmp/play.yaml" "${options[@]}" --amf 127.0.0.31 -v >"$tmp/play-$slice.log" 2>&1 &
  play[slice]=$!
  running+=($!)
done
until_true "the CPFs of each slice do not serve its UEs" serve $ues $ues
until_true "UEs have no replicas" all_have_replicas

# A CPF of the slice dies: cpf-3 and cpf-4 are the slice's.
cpfs | awk '$2 == "-" { print $1, $3 }' >"$tmp/others"
victim=$(number_of cpf-3)
served=$(cpfs | awk -v n="$victim" '$1 == n && $2 == "2" { print $3 }')
[ "${served:-0}" -gt 0 ] || { cpfs; wrong "cpf-3 serves no UE of the slice"; }
kill -9 "$(awk '$1 == "cpf-3" { print $3 }' "$tmp/state")"
lost "$victim"
until_true "the UEs of the slice are not served by its other CPF" serve $ues $ues
[ "$(cpfs | awk '$2 == "-" { print $1, $3 }')" = "$(cat "$tmp/others")" ] || wrong "UEs of the other slice have moved"
until_true "the unit is not complete again" is_complete
until_true "UEs have no replicas" all_have_replicas

# All CPFs of the slice die while there is no manager, one after the other.
kill -9 "$manager"
wait "$manager" 2>/dev/null || true
for function in cpf-3 cpf-4; do
  victim=$(number_of $function)
  kill -9 "$(awk -v f=$function '$1 == f { print $3 }' "$tmp/state")"
  lost "$victim"
  until_true "UEs have no replicas" all_have_replicas
done
until_true "UEs of a slice without CPFs are not served by the others" serve 0 $((2 * ues))
manager
until_true "the next manager does not start the CPFs of the slice" is_complete
until_true "the UEs of the slice do not come back to its CPFs" serve $ues $ues

for slice in 1 2; do
  kill -0 "${play[slice]}" 2>/dev/null || wrong "the UEs of slice $slice have ended"
  kill -INT "${play[slice]}"
  wait "${play[slice]}" || { tail -n 5 "$tmp/play-$slice.log"; wrong "a step of a UE of slice $slice failed"; }
done
grep "the UEs of a lost CPF are served by other CPFs" "$tmp/unit.log" >"$tmp/losses"
! grep -v "lost=0" "$tmp/losses" || wrong "UEs were lost"
echo "CPFs of a slice: $(wc -l <"$tmp/losses") died, all of them at last; UEs of both slices went on"
