#!/usr/bin/env bash
# `whimbrel why` against injected faults: each row of the table in docs/why.md names a fault, the subject of the question and the
# expected answer. The functions below inject each fault into one running core; a row without a function, or a function
# without a row, fails. Prints one line a row, as run.sh does, which `./x test` counts.
#
# Usage: why.sh [FAULT...]     names of rows; default: all
# Environment: WHIMBREL, the program to test; WHY_SHOW=1 prints the answers as rows of the table, without a verdict.
set -uo pipefail

. "$(dirname "$0")/core.sh"
TABLE=$(dirname "$0")/../../docs/why.md
WITHIN_MS=25000 # for all rows together, from the injection on: five repetitions of T3550 among them

# ---- the core and its UEs -----------------------------------------------------------------------------------------

configuration='tacs: [1]
slices: [1, 2]
timers: { t3550: 1s }
access: { congestion: { dnns: [held] } }
home_network_keys: [{ id: 1, scheme: A, private_key: "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d" }]
data_networks: [{ dnn: internet }, { dnn: ims, ipv4_pool: 10.46.0.0/16, ipv6_pool: none }, { dnn: held, ipv4_pool: 10.48.0.0/16, ipv6_pool: none }, { dnn: tiny, ipv4_pool: 10.47.0.0/29, ipv6_pool: none }]'
KEY='--k 00112233445566778899aabbccddeeff --opc 00112233445566778899aabbccddeeff'
OTHER_KEY='--k ffeeddccbbaa99887766554433221100 --opc 00112233445566778899aabbccddeeff'
PUBLIC=5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650 # belongs to the private key above
OTHER_PUBLIC=8d6d4b0e8cb31c7f0e4eb06ec4ef87ccee5ed8fd9fa3a9d6e9f7eef5b0ca1d38

imsi() { printf '99970000000%04d' "$1"; }

# ue N ARGUMENTS...: the UE of number N at a gNB of its own, gnb-999/70-N in hexadecimal digits; it registers, opens a
# session and leaves unless a scenario says otherwise.
ue() {
  local n=$1
  shift
  case " $* " in *' --imsi '*) ;; *) set -- --imsi "$(imsi "$n")" "$@" ;; esac
  timeout 100 "$WHIMBREL_LAB" ran --gnb-id "$n" --gnb-address "127.0.$n.1" "$@" >"$tmp/w/ran.$n" 2>&1
}

# steps N STEPS: a scenario file.
steps() { echo "steps: [$2]" >"$tmp/w/steps.$1.yaml"; echo "$tmp/w/steps.$1.yaml"; }

# stays N STEPS ARGUMENTS...: such a UE in the background, which waits after its steps; returns when it waits.
stays() {
  local n=$1 what=$2
  shift 2
  ue "$n" "$(steps "$n" "$what, {wait: 90}")" -v "$@" &
  until_says "$(imsi "$n")" 'is registered'
  sleep 0.3
}

# leaves N: stops the gNB of that UE, as an operator does.
leaves() { kill -INT "$(pgrep -f "^$WHIMBREL_LAB ran .*--gnb-id $1 ")"; }

# until_says SUBJECT PATTERN: waits until the answer matches, which the fault needs first.
until_says() {
  for _ in $(seq 100); do
    why "$1" 2>/dev/null | head -n 1 | grep -qE "$2" && return 0
    sleep 0.1
  done
  return 1
}

reload() { sed -i "$1" "$tmp/w/whimbrel.yaml" && "$WHIMBREL" reload -c "$tmp/w/whimbrel.yaml" >/dev/null; }
at_core() { "$WHIMBREL" "$@" -c "$tmp/w/whimbrel.yaml" >/dev/null 2>&1; }

# ---- faults: UEs that are refused ---------------------------------------------------------------------------------

wrong_key() { ue 1 $OTHER_KEY; }
key_set_since() { ue 2 $OTHER_KEY; until_says "$(imsi 2)" refused; subscriber edit "$(imsi 2)" $KEY >/dev/null; }
key_mended() {
  ue 3 $OTHER_KEY
  until_says "$(imsi 3)" refused
  subscriber edit "$(imsi 3)" $OTHER_KEY >/dev/null
  until_says "$(imsi 3)" 'changed later'
  stays 3 'register, session' $OTHER_KEY
}
sqn() { ue 4 --sqn-delta 0 $KEY; }
unknown_subscriber() { ue 90 $KEY; }
added_since() { ue 91 $KEY; until_says "$(imsi 91)" refused; subscriber add "$(imsi 91)" $KEY >/dev/null; }
barred() { subscriber edit "$(imsi 5)" --status barred >/dev/null; ue 5 $KEY; }
enabled_since() {
  subscriber edit "$(imsi 6)" --status barred >/dev/null
  ue 6 $KEY
  until_says "$(imsi 6)" refused
  subscriber edit "$(imsi 6)" --status enabled >/dev/null
}
foreign_sim() { ue 7 --imsi 001010000000007 $KEY; }
suci_key_missing() { ue 8 --suci A --home-network-key "$PUBLIC" --home-network-key-id 7 $KEY; }
suci_key_wrong() { ue 9 --suci A --home-network-key "$OTHER_PUBLIC" $KEY; }
no_nia() { ue 10 --nia 0 $KEY; }
no_nea() { ue 11 --nea 0 $KEY; }
slice_not_subscribed() { ue 12 "$(steps 12 'register, {session: {s-nssai: 2}}')" --gnb-slices 1,2 --slices 1,2 $KEY; }
slice_not_configured() { subscriber edit "$(imsi 13)" --slice 3=internet >/dev/null; ue 13 --gnb-slices 1,3 --slices 3 $KEY; }
slice_requested_not_subscribed() { subscriber edit "$(imsi 14)" --slice 3=internet >/dev/null; ue 14 --slices 1 $KEY; }
forbidden_area() { subscriber edit "$(imsi 15)" --set '{"subscription": {"forbidden_areas": [1, 9]}}' >/dev/null; ue 15 $KEY; }
service_area() {
  subscriber edit "$(imsi 16)" --set '{"subscription": {"service_area": {"allowed": [9]}}}' >/dev/null
  ue 16 $KEY
}
rat() { subscriber edit "$(imsi 17)" --set '{"subscription": {"rat_restrictions": ["NR"]}}' >/dev/null; ue 17 $KEY; }
registration_accept() { ue 18 --ignore registration-accept $KEY; }

# ---- faults: sessions ---------------------------------------------------------------------------------------------

dnn_not_subscribed() { ue 30 "$(steps 30 'register, {session: {dnn: ims}}')" $KEY; }
dnn_unknown() { ue 31 "$(steps 31 'register, {session: {dnn: nowhere}}')" $KEY; }
dnn_not_configured() { subscriber edit "$(imsi 32)" --add-slice 1=corp >/dev/null; ue 32 "$(steps 32 'register, {session: {dnn: corp}}')" $KEY; }
dnn_subscribed_since() {
  ue 33 "$(steps 33 'register, {session: {dnn: ims}}')" $KEY
  until_says "$(imsi 33)" refused
  subscriber edit "$(imsi 33)" --add-slice 1=ims >/dev/null
}
session_type() { ue 34 "$(steps 34 'register, {session: {type: ethernet}}')" $KEY; }
empty_pool() { # eight addresses
  local n
  for n in $(seq 61 70) 38; do subscriber edit "$(imsi "$n")" --slice 1=tiny >/dev/null; done
  ue 35 --imsi "$(imsi 61)" --ues 10 "$(steps 35 'register, session, {wait: 90}')" --subscribers "$tmp/pool.csv" &
  until_says 10.47.0.6 'is registered'
  ue 38 $KEY
}
dnn_congested() { subscriber edit "$(imsi 20)" --slice 1=held >/dev/null; ue 20 $KEY; }
session_released() {
  stays 39 'register, session' $KEY
  until_says "$(imsi 39)" 'with PDU session'
  at_core session modify "$(imsi 39)" 1 --release
}

# ---- no fault, and UEs that were on and left ----------------------------------------------------------------------

registered() {
  subscriber edit "$(imsi 40)" --set '{"subscription": {"slices": [{"s_nssai": "1", "dnns": [{"dnn": "internet", "default": true, "ipv4": "10.45.200.1"}]}]}}' >/dev/null
  stays 40 'register, session' $KEY
}
by_address() { :; }
switched_off() { ue 41 "$(steps 41 'register, session, switch-off')" $KEY; }
deregistered_by_operator() { stays 42 'register' $KEY; at_core ue deregister "$(imsi 42)"; }
removed_since() { ue 43 "$(steps 43 'register, deregister')" $KEY; subscriber remove "$(imsi 43)" >/dev/null; }
gnb_of_ue_lost() {
  ue 44 "$(steps 44 'register, session, {wait: 90}')" $KEY &
  until_says "$(imsi 44)" 'with PDU session'
  leaves 44
}
implicitly_deregistered() { # its gNB goes, and it does not come back in T3512 and the time that is added to it
  reload 's/^timers: .*/timers: { t3512: 2s, implicit_deregistration: 1s }/'
  ue 45 "$(steps 45 'register, {wait: 90}')" $KEY &
  until_says "$(imsi 45)" 'is registered'
  leaves 45
}
never_heard() { :; }
no_subscriber() { :; }

# ---- gNBs ---------------------------------------------------------------------------------------------------------

gnb_up() { :; }
gnb_by_name() { :; }
gnb_left() { :; }
gnb_plmn() { ue 50 --plmn 001/01 $KEY; }
gnb_tac() { ue 51 --tac 7 $KEY; }
gnb_slice() { ue 52 --gnb-slices 9 $KEY; }
gnb_tac_added_since() {
  ue 53 --tac 8 $KEY
  until_says gnb-999/70-33 refused # it names the TACs that were served before
  until_says gnb-999/70-35 refused
  reload 's/^tacs: .*/tacs: [1, 8]/'
}
gnb_reset_by_operator() { stays 54 'register' $KEY; at_core gnb reset gnb-999/70-36; }
# The list of gNBs is in force from here on: the others of this script are not in it.
gnb_not_listed() {
  echo 'n2: { gnbs: [{ gnb: 999/70-38, networks: [192.0.2.0/28] }] }' >>"$tmp/w/whimbrel.yaml"
  reload ''
  ue 55 $KEY
}
gnb_outside_networks() { until_says gnb-999/70-37 refused; ue 56 $KEY; }
gnb_never_heard() { :; }

# ---- names --------------------------------------------------------------------------------------------------------

not_a_name() { :; }
tmsi() { :; }
part() { :; }

# ---- all of them --------------------------------------------------------------------------------------------------

# What differs from run to run: times, and how often something happened.
same_each_time() {
  sed -E 's/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} [A-Za-z0-9+-]+, [^;,()]* ago/TIME/g; s/ \([0-9]+ times since TIME\)//g; s/[0-9]+ gNBs? (is|are) up/N gNBs are up/; s/\(internet, 10\.45\.0\.[0-9]+\)/(internet, ADDRESS)/g'
}

rows() { sed -nE 's/^\| `([a-z_]+)` \| .* \| `([^`]+)` \| (.*) \|$/\1\t\2\t\3/p' "$TABLE"; }

configure "$configuration" || exit 1
{
  echo supi,k,opc
  for n in $(seq 70); do echo "imsi-$(imsi "$n"),00112233445566778899aabbccddeeff,00112233445566778899aabbccddeeff"; done
} >"$tmp/all.csv"
sed -n '1p;62,71p' "$tmp/all.csv" >"$tmp/pool.csv"
subscriber import --on-existing replace "$tmp/all.csv" >/dev/null
start || { echo "not ok - why: the core does not start: $(tail -n 1 "$tmp/w/log")"; exit 1; }

# judge NAMES: injects these faults, all at once, and compares the answers. Those that need something reloaded which the others
# would notice come after them.
judge() {
  local name subject expected
  BEGIN_MS=$(now_ms)
  while IFS=$'\t' read -r name subject expected; do
    case " $1 " in *" $name "*) ;; *) continue ;; esac
    declare -F "$name" >/dev/null || { not_ok "why: docs/why.md has a row \`$name\`, and tests/faults/why.sh injects no such fault"; continue; }
    "$name" &
  done < <(rows)
  while IFS=$'\t' read -r name subject expected; do
    case " $1 " in *" $name "*) ;; *) continue ;; esac
    while :; do
      LINE=$(why "$subject" | head -n 1 | same_each_time)
      TOOK=$(($(now_ms) - BEGIN_MS))
      [ "$LINE" = "$expected" ] || [ "$TOOK" -ge "$WITHIN_MS" ] && break
      sleep 0.1
    done
    if [ -n "${WHY_SHOW:-}" ]; then
      printf '| `%s` |  | `%s` | %s |\n' "$name" "$subject" "$LINE"
    elif [ "$LINE" = "$expected" ]; then
      ok "why, $name: \"$LINE\""
    else
      not_ok "why, $name: after $TOOK ms it says \"$LINE\" and not \"$expected\""
    fi
  done < <(rows)
}

ALL=$(rows | cut -f1 | tr '\n' ' ')
LATE='implicitly_deregistered'
LAST='gnb_not_listed gnb_outside_networks'
judged=${*:-$ALL}
# of LIST: those to be judged that are in it.
of() { for name in $judged; do case " $1 " in *" $name "*) echo "$name" ;; esac; done | tr '\n' ' '; }
judge "$(for name in $judged; do case " $LATE $LAST " in *" $name "*) ;; *) echo "$name" ;; esac; done | tr '\n' ' ')"
for group in "$LATE" "$LAST"; do
  names=$(of "$group")
  [ -z "$names" ] || judge "$names"
done
rows=$(wc -w <<<"$ALL")
[ "$rows" -ge 25 ] || not_ok "why: docs/why.md has $rows rows that can be read"
if why foo >/dev/null; then not_ok "why: a name that is none ends with 0"; else ok "why: a name that is none ends with an exit status of its own"; fi
stop
[ "$FAILED" = 0 ]
