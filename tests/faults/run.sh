#!/usr/bin/env bash
# Whole-product tests: a fault is put into a really running core, and what it says of it is judged. `./x test` calls this
# and counts its lines:   ok - NAME: …        not ok - NAME: WHY        skip - NAME: WHY
#
# Usage: run.sh [CASE...]      the names of functions below, such as wrong_key; without any, all of them
# Environment: WHIMBREL, the program to test. Needs root: it makes namespaces of its own, which are gone with it.
set -uo pipefail

WITHIN_MS=2000                        # how soon a fault must be reported
. "$(dirname "$0")/core.sh"

# explained SUBJECT PATTERN: waits until the answer of `whimbrel why SUBJECT` matches, for at most WITHIN_MS from
# BEGIN_MS.
explained() {
  while :; do
    LINE=$(why "$1" | head -n 1)
    TOOK=$(($(now_ms) - BEGIN_MS))
    grep -qE "$2" <<<"$LINE" && return 0
    [ "$TOOK" -lt "$WITHIN_MS" ] || return 1
    sleep 0.05
  done
}

# refused NAME SUBJECT PATTERN RAN-ARGUMENTS...: the UEs must fail, and `why` must explain it in time, with a fix.
refused() {
  local name=$1 subject=$2 pattern=$3
  shift 3
  BEGIN_MS=$(now_ms)
  ran "$@" &
  local ues=$! rc=0
  if explained "$subject" "$pattern.*fix: "; then
    wait "$ues" || rc=$?
    if [ "$rc" != 0 ]; then ok "$name ($TOOK ms): \"$LINE\""; else not_ok "$name: \`whimbrel-lab ran\` ended with 0"; fi
  else
    kill "$ues" 2>/dev/null
    wait "$ues" 2>/dev/null
    not_ok "$name: after $TOOK ms it says \"$LINE\""
    sed 's/^/    /' "$tmp/w/ran" | head -n 20
  fi
}

# one_sentence NAME PATTERN COMMAND...: the command must fail with one line that matches, and no more.
one_sentence() {
  local name=$1 pattern=$2 rc=0
  shift 2
  LINE=$(cd "$tmp" && timeout 20 "$@" 2>&1 | grep -vE '^[0-9T:.-]+Z +(INFO|WARN) '; exit "${PIPESTATUS[0]}") || rc=$?
  if [ "$rc" = 0 ] || [ "$rc" = 124 ]; then not_ok "$name: exit status $rc, \"$LINE\""; return; fi
  if [ "$(wc -l <<<"$LINE")" != 1 ] || ! grep -qE "$pattern" <<<"$LINE"; then
    not_ok "$name: it says \"$LINE\""
    return
  fi
  ok "$name: \"${LINE//$tmp\//}\""
}

imsi() { printf 'imsi-9997000000000%02d' "$1"; }

# No fault: a UE whose TUN device is in a namespace of its own, where any program can use it.
any_program() {
  command -v ping >/dev/null || { echo "skip - any program: ping is not installed"; return; }
  ip netns add ue
  "$WHIMBREL_LAB" ran --imsi 999700000000008 --ues 1 --tun --netns ue >"$tmp/w/ran" 2>&1 &
  local ue=$! rc=0
  for _ in $(seq 100); do
    ip -n ue addr show dev wbue0 2>/dev/null | grep -q 'inet ' && break
    sleep 0.05
  done
  LINE=$(ip netns exec ue ping -c 3 -i 0.2 -W 1 10.45.0.1 2>&1 | grep transmitted)
  kill -INT "$ue"
  wait "$ue" || rc=$?
  ip netns del ue
  if [ "$rc" = 0 ] && grep -q ' 0% packet loss' <<<"$LINE"; then ok "any program can use a UE's TUN device: ping: $LINE"; else
    not_ok "any program can use a UE's TUN device: exit status $rc, ping: $LINE"
    sed 's/^/    /' "$tmp/w/ran" | head -n 20
  fi
}

# What a UE says through its session to the core's own interfaces, to the host and to its router's other ports (TS 33.513 §4.2.2). From the host
# itself all of it is answered, which shows that the probe can tell.
isolation() {
  local probe nat reached
  probe=$(dirname "$(readlink -f "$0")")/probe.py
  command -v python3 >/dev/null || { echo "skip - isolation: python3 is not installed"; return; }
  ip addr add 192.0.2.11/24 dev outside
  for nat in true false; do
    stop
    configure "n2: { addresses: [192.0.2.10] }
n3: { address: 192.0.2.10 }
n4: { listen: 192.0.2.10:8805 }
n6: { nat: $nat }" && start || { not_ok "isolation: the core does not start: $(tail -n 1 "$tmp/w/log")"; return; }
    python3 -c 'import socket, time
s = socket.create_server(("", 7022), backlog=64)
time.sleep(60)' &
    local server=$!
    for _ in $(seq 200); do
      (exec 3<>/dev/tcp/192.0.2.10/7022) 2>/dev/null && break
      sleep 0.05
    done
    ip netns add ue
    "$WHIMBREL_LAB" ran --amf 192.0.2.10 --gnb-address 192.0.2.11 --imsi 999700000000009 --ues 1 --tun --netns ue >"$tmp/w/ran" 2>&1 &
    local ue=$!
    for _ in $(seq 100); do
      ip -n ue addr show dev wbue0 2>/dev/null | grep -q 'inet ' && break
      sleep 0.05
    done
    ip -n ue route replace default dev wbue0
    reached=$(python3 "$probe" 192.0.2.10 | tr '\n' ';')
    LINE=$(ip netns exec ue python3 "$probe" 192.0.2.10 192.0.2.255 10.45.0.1 2>&1)
    sleep 0.6
    if [ "$reached" = "gtpu 192.0.2.10;ngap 192.0.2.10;pfcp 192.0.2.10;tcp 192.0.2.10;" ]; then
      ok "isolation, nat $nat: the host itself reaches N2, N3, N4 and its own server"
    else not_ok "isolation, nat $nat: the host itself reaches only: $reached"; fi
    if [ -z "$LINE" ]; then ok "isolation, nat $nat: a UE reaches none of them"; else not_ok "isolation, nat $nat: a UE reaches $(tr '\n' ';' <<<"$LINE")"; fi
    LINE=$(ip netns exec ue ping -c 1 -W 1 10.45.0.1 2>&1 | grep transmitted)
    if grep -q ' 0% packet loss' <<<"$LINE"; then ok "isolation, nat $nat: its router answers a ping: $LINE"; else not_ok "isolation, nat $nat: ping: $LINE"; fi
    LINE=$(dropped ue_to_core)/$(dropped ue_to_host)
    if [ "${LINE%/*}" -ge 8 ] && [ "${LINE#*/}" -ge 2 ]; then ok "isolation, nat $nat: $LINE packets are counted as ue_to_core/ue_to_host"; else
      not_ok "isolation, nat $nat: counted as ue_to_core/ue_to_host: $LINE"
    fi
    ip addr add 198.51.100.77/32 dev lo
    sleep 0.2
    LINE=$(ip netns exec ue python3 "$probe" 198.51.100.77 2>&1)
    if [ -z "$LINE" ]; then ok "isolation, nat $nat: nor an address that the host gets later"; else not_ok "isolation, nat $nat: a UE reaches a later address by $LINE"; fi
    ip addr del 198.51.100.77/32 dev lo
    kill -INT "$ue"
    wait "$ue"
    kill "$server"
    ip netns del ue
  done
  ip addr del 192.0.2.11/24 dev outside
}

# dropped REASON: packets that the UPF dropped for it; the figure is half a second old at most.
dropped() {
  python3 -c 'import sys, urllib.request
lines = urllib.request.urlopen("http://127.0.0.1:8070/metrics").read().decode().splitlines()
print(sum(int(l.split()[-1]) for l in lines if l.startswith("whimbrel_upf_dropped_total{") and f"\"{sys.argv[1]}\"" in l))' "$1"
}

# ---- faults of UEs ---------------------------------------------------------------------------------------------

wrong_key() {
  refused "wrong key" "$(imsi 1)" "K|key|OPc" --k 00112233445566778899aabbccddeeff --opc 00112233445566778899aabbccddeeff
}
sqn_twice() { refused "SQN out of range twice" "$(imsi 2)" SQN --imsi 999700000000002 --ues 1 --sqn-delta 0; }
unknown_imsi() {
  refused "unknown IMSI" "$(imsi 99)" "not in the store" --imsi 999700000000099 --ues 1
}
wrong_dnn() { refused "wrong DNN" "$(imsi 3)" 'DNN `nowhere`' --imsi 999700000000003 --ues 1 --dnn nowhere; }
wrong_slice() {
  subscriber edit 999700000000004 --slice 2-0000ab=internet >/dev/null
  refused "wrong slice" "$(imsi 4)" "slices.*2-0000ab" --imsi 999700000000004 --ues 1
}
no_algorithm() { refused "no common algorithm" "$(imsi 5)" "NIA" --imsi 999700000000005 --ues 1 --nia 0; }

# ---- faults of gNBs -----------------------------------------------------------------------------------------------

gnb_plmn() { refused "wrong PLMN" gnb-001/01-1 "PLMN" --plmn 001/01; }
gnb_tac() { refused "wrong TAC" gnb-999/70-7 "TAC" --gnb-id 7 --tac 7; }
gnb_slice() { refused "wrong slice of a gNB" gnb-999/70-9 "slice" --gnb-id 9 --gnb-slices 9; }

# ---- faults of the core's own making ------------------------------------------------------------------------------

empty_pool() {
  stop
  configure 'data_networks: [{ dnn: internet, ipv4_pool: 10.46.0.0/29, ipv6_pool: none }]' && start || {
    not_ok "empty address pool: the core does not start: $(tail -n 1 "$tmp/w/log")"
    return
  }
  local steps=$tmp/w/ten.yaml last
  printf 'ues: 10\nsteps: [register, session, {wait: 1}]\n' >"$steps"
  BEGIN_MS=$(now_ms)
  if ran "$steps"; then not_ok "empty address pool: all ten UEs got an address of eight"; return; fi
  last=$(sed -n 's/^failed: \(imsi-[0-9]*\) .*/\1/p' "$tmp/w/ran" | tail -n 1)
  BEGIN_MS=$(now_ms)
  if explained "${last:-imsi-999700000000010}" "no address is left.*fix: "; then ok "empty address pool: \"$LINE\""; else
    not_ok "empty address pool: it says \"$LINE\""
  fi
}

port_taken() {
  stop
  configure && start || { not_ok "port taken: the core does not start: $(tail -n 1 "$tmp/w/log")"; return; }
  sed 's/8070/8071/' "$tmp/w/whimbrel.yaml" >"$tmp/w/second.yaml"
  printf 'n6: { device: second }\nn2: { addresses: [127.0.0.2] }\n' >>"$tmp/w/second.yaml"
  one_sentence "port taken (API)" "in use by [^ ]+ \(process [0-9]+\).*\`api.address\`" "$WHIMBREL" run -c "$tmp/w/whimbrel.yaml"
  one_sentence "port taken (GTP-U)" "in use by [^ ]+ \(process [0-9]+\).*\`n3" "$WHIMBREL" run -c "$tmp/w/second.yaml"
}

no_privilege() {
  stop
  configure
  local caps=-net_raw,-net_admin,-sys_admin,-net_bind_service
  if ! start setpriv --bounding-set "$caps" --inh-caps "$caps"; then
    not_ok "no privilege: the API is not up to show it: $(tail -n 2 "$tmp/w/log")"
    return
  fi
  BEGIN_MS=$(now_ms)
  if explained "$(imsi 1)" "CAP_NET_ADMIN"; then ok "no privilege: \"$LINE\""; else not_ok "no privilege: it says \"$LINE\""; fi
  LINE=$(grep -E 'CAP_NET_RAW' "$tmp/w/log" | head -n 1 | sed -E 's/^[0-9T:.-]+Z +[A-Z]+ //')
  if [ -n "$LINE" ]; then ok "no privilege, SCTP: \"$LINE\""; else not_ok "no privilege, SCTP: the start-up does not name CAP_NET_RAW"; fi
  if stop; then not_ok "no privilege: a core that did not carry packets ended with 0"; else ok "no privilege: it ends with an exit status of its own"; fi
}

wrong_interface() {
  stop
  configure 'n2: { addresses: [192.0.2.99] }'
  one_sentence "wrong interface (N2)" "192.0.2.99 is not an address of this host.*\`n2.addresses\`" "$WHIMBREL" run -c "$tmp/w/whimbrel.yaml"
  configure 'n3: { address: 192.0.2.99 }'
  one_sentence "wrong interface (N3)" "192.0.2.99 is not an address of this host.*\`n3.address\`" "$WHIMBREL" run -c "$tmp/w/whimbrel.yaml"
}

# ---- wrong configuration ------------------------------------------------------------------------------------------

configuration() {
  local command
  for command in check "run -c"; do
    echo 'n2: { prot: 38412 }' >"$tmp/bad.yaml"
    one_sentence "unknown key ($command)" "bad.yaml:1:[0-9]+: .*prot.*port" $WHIMBREL $command bad.yaml
    printf '# ours\nplmn: 9997\n' >"$tmp/bad.yaml"
    one_sentence "PLMN of four digits ($command)" "bad.yaml:2:[0-9]+: .*999/70" $WHIMBREL $command bad.yaml
    printf 'data_networks:\n  - dnn: internet\n    ipv4_pool: 10.45.0.0/16\n  - dnn: ims\n    ipv4_pool: 10.45.128.0/24\n' >"$tmp/bad.yaml"
    one_sentence "overlapping pools ($command)" "bad.yaml:5:[0-9]+: .*overlaps" $WHIMBREL $command bad.yaml
  done
}

# ---- a cluster ----------------------------------------------------------------------------------------------------

# says NAME PATTERN COMMAND...: the command, which goes on, logs a matching line within some seconds.
says() {
  local name=$1 pattern=$2
  shift 2
  timeout -k 1 15 "$@" >"$tmp/w/says" 2>&1 &
  local process=$!
  for _ in $(seq 100); do
    grep -qE "$pattern" "$tmp/w/says" && break
    sleep 0.1
  done
  kill "$process"
  wait "$process" 2>/dev/null
  LINE=$(grep -E "$pattern" "$tmp/w/says" | head -n 1 | sed -E 's/^[0-9T:.-]+Z +[A-Z]+ //')
  if [ -n "$LINE" ]; then ok "$name: \"$LINE\""; else not_ok "$name: it says \"$(tail -n 1 "$tmp/w/says")\""; fi
}

cluster() {
  stop
  local key=$tmp/w/cluster.key other=$tmp/w/other.key at=192.0.2.10:7380 here=192.0.2.10:0
  configure
  (umask 077; printf '0%.0s' {1..64} >"$key"; printf '1%.0s' {1..64} >"$other")
  echo "cluster: { listen: \"$at\", key_file: $key }" >>"$tmp/w/whimbrel.yaml"
  start || { not_ok "cluster: the CTA does not start: $(tail -n 1 "$tmp/w/log")"; return; }
  local cpf=("$WHIMBREL" cpf)
  one_sentence "CPF with an unreachable address" "^--listen: .*127.0.0.1.*address of this host" "${cpf[@]}" --cta "$at" --key-file "$key"
  says "CPF with another key" "accepts.*key.*\`--key-file\`" "${cpf[@]}" --cta "$at" --listen "$here" --key-file "$other"
  one_sentence "CPF without a key" "^links at 0.0.0.0:0 .*\`--key-file\`" "${cpf[@]}" --cta "$at" --listen 0.0.0.0:0
  says "CPF of a wrong port" "accepts.*no process accepts links at this address.*\`cluster.listen\`" "${cpf[@]}" --cta 192.0.2.10:7381 --listen "$here" --key-file "$key"
  says "CPF of an unknown region" "accepts.*log says why" "${cpf[@]}" --cta "$at" --listen "$here" --key-file "$key" --region far/away
  LINE=$(grep -o "a CPF is refused.*far/away.*cluster.other_regions.*" "$tmp/w/log")
  if [ -n "$LINE" ]; then ok "the same at its CTA: \"$LINE\""; else not_ok "the same at its CTA: $(tail -n 1 "$tmp/w/log")"; fi
  says "CPF, etcd that is not there" "etcd does not answer.*\`--etcd\`.*no CTA is known" "${cpf[@]}" --etcd http://192.0.2.10:2379 --listen "$here" --key-file "$key"
  stop
  printf 'n2: { addresses: [192.0.2.10] }\nn4: { node_id: 192.0.2.10 }\nupfs: [{ address: "192.0.2.3:8805" }]\n' >>"$tmp/w/whimbrel.yaml"
  sed -i "s|^cluster: .*|cluster: { listen: \"$at\", key_file: $key, etcd: [\"http://192.0.2.10:2379\"], cta: 1 }|" "$tmp/w/whimbrel.yaml"
  says "CTA, etcd that is not there" "etcd does not answer.*this CTA does not.*\`cluster.etcd\`" "$WHIMBREL" run -c "$tmp/w/whimbrel.yaml"
}

# ---- a full disk --------------------------------------------------------------------------------------------------

full_disk() {
  stop
  configure
  local disk=$tmp/disk before after free
  mkdir -p "$disk"
  mount -t tmpfs -o size=1m none "$disk" || { echo "skip - full disk: no tmpfs can be mounted"; return; }
  sed -i "s|$tmp/w/whimbrel\.|$disk/whimbrel.|g" "$tmp/w/whimbrel.yaml"
  subscriber import "$tmp/w/ten.csv" >/dev/null
  before=$(subscriber export --secrets | cksum)
  "$WHIMBREL_LAB" ran --imsi 999700000100000 --ues 20000 --write-subscribers "$tmp/w/many.csv" >/dev/null
  one_sentence "full disk, import" "no room is left for the subscribers' file" "$WHIMBREL" subscriber import "$tmp/w/many.csv" -c "$tmp/w/whimbrel.yaml"
  after=$(subscriber export --secrets | cksum)
  if [ "$before" = "$after" ]; then ok "full disk: the ten subscribers that were there are as they were"; else not_ok "full disk: subscribers were lost or changed"; fi
  head -c 2m /dev/zero >"$disk/filler" 2>/dev/null
  one_sentence "full disk, one more" "no room is left for the subscribers' file" "$WHIMBREL" subscriber add 999700000200000 --k "$(printf '0%.0s' {1..32})" --opc "$(printf '0%.0s' {1..32})" -c "$tmp/w/whimbrel.yaml"
  if start; then
    stop
    free="it starts on it all the same"
  else
    wait "$CORE"
    free="exit status $?, \"$(grep -v INFO "$tmp/w/log" | tail -n 1)\""
    CORE=''
  fi
  rm -f "$disk/filler"
  after=$(subscriber export --secrets | cksum)
  if [ "$before" = "$after" ] && grep -q "no room is left\|all the same" <<<"$free"; then ok "full disk, start: ${free//$tmp\//}; nothing is lost"; else not_ok "full disk, start: ${free}, or subscribers were lost or changed"; fi
  umount "$disk"
}

# ---- the end of the core, and of the host's settings ---------------------------------------------------------------

killed() {
  stop
  configure && start || { not_ok "kill -9: the core does not start: $(tail -n 1 "$tmp/w/log")"; return; }
  printf 'steps: [register, session, {ping: 10.45.0.1}, {wait: 3}, idle, {wait: 3}, register, session, {ping: 10.45.0.1}, deregister]\n' >"$tmp/w/day.yaml"
  ran -v "$tmp/w/day.yaml" &
  local ue=$! begin took rc=0
  for _ in $(seq 100); do
    "$WHIMBREL" ue list -c "$tmp/w/whimbrel.yaml" | grep -q '10\.45\.' && break
    sleep 0.05
  done
  sleep 0.5
  kill -9 "$CORE"
  wait "$CORE" 2>/dev/null
  begin=$(now_ms)
  start || { not_ok "kill -9: it does not start again: $(tail -n 1 "$tmp/w/log")"; return; }
  took=$(($(now_ms) - begin))
  if [ "$took" -lt 5000 ]; then ok "kill -9: back after $took ms"; else not_ok "kill -9: back after $took ms"; fi
  # The UE still waits, so the gNB has nothing to say: it learns of the kill by ABORT.
  BEGIN_MS=$begin
  if noticed ': Idle$' "$tmp/w/ran" 1000; then ok "kill -9: a gNB that says nothing notices $TOOK ms after the next start began"; else
    not_ok "kill -9: a gNB that says nothing notices nothing in $TOOK ms"
  fi
  LINE=$(grep -E 'lost.*kept' "$tmp/w/log" | head -n 1 | sed -E 's/^[0-9T:.-]+Z +[A-Z]+ //')
  if [ -n "$LINE" ]; then ok "kill -9, what is kept: \"$LINE\""; else not_ok "kill -9: the log does not say what was kept and lost"; fi
  wait "$ue" || rc=$?
  if [ "$rc" = 0 ]; then ok "kill -9: the UE registers again, opens a session, pings and leaves"; else
    not_ok "kill -9: the UE does not come back"
    tail -n 25 "$tmp/w/ran" | sed 's/^/    /'
  fi
}

# gnb_on_line: the emulated gNB with a UE that stays connected, as job GNB; then nothing of it reaches the core any more.
gnb_on_line() {
  printf 'steps: [register, session, {wait: 20}]\n' >"$tmp/w/day.yaml"
  timeout 60 "$WHIMBREL_LAB" ran -v --sctp raw "$tmp/w/day.yaml" >"$tmp/w/ran" 2>&1 &
  GNB=$!
  for _ in $(seq 100); do
    "$WHIMBREL" ue list -c "$tmp/w/whimbrel.yaml" | grep -q '10\.45\.' && break
    sleep 0.05
  done
  nft 'add table ip silent; add chain ip silent out { type filter hook output priority 0; }'
  nft 'add rule ip silent out ip protocol sctp sctp dport 38412 drop'
}

gnb_off_line() {
  nft delete table ip silent
  kill "$GNB"
  wait "$GNB" 2>/dev/null
}

# noticed PATTERN FILE MS: how long after BEGIN_MS the file says so.
noticed() {
  until grep -qE "$1" "$2"; do
    [ $(($(now_ms) - BEGIN_MS)) -lt "$3" ] || { TOOK=$(($(now_ms) - BEGIN_MS)); return 1; }
    sleep 0.02
  done
  TOOK=$(($(now_ms) - BEGIN_MS))
}

# RFC 9260 §9.1: a gNB that has DATA unacknowledged learns of SIGTERM within a second
stopped() {
  local signals
  for signals in TERM "INT TERM"; do
    stop
    configure 'n2: { sctp: raw }' && start || { not_ok "stop: the core does not start: $(tail -n 1 "$tmp/w/log")"; return; }
    gnb_on_line
    BEGIN_MS=$(now_ms)
    for signal in $signals; do kill -"$signal" "$CORE"; sleep 0.05; done
    if noticed ': Idle$' "$tmp/w/ran" 1000; then
      ok "SIG${signals/ /, SIG}: a gNB whose DATA is unacknowledged notices after $TOOK ms"
    else
      not_ok "SIG${signals/ /, SIG}: a gNB whose DATA is unacknowledged notices nothing in $TOOK ms"
    fi
    wait "$CORE" || not_ok "SIG${signals/ /, SIG}: exit status $?"
    CORE=''
    gnb_off_line
  done
}

# RFC 9260 §8.1: a gNB that loses its power is noticed within the time that the configuration says
gnb_power() {
  stop
  configure 'n2: { sctp: raw, sctp_heartbeat_interval: 500ms, sctp_path_max_retrans: 2, sctp_rto_max: 400ms }' && start || {
    not_ok "gNB without power: the core does not start: $(tail -n 1 "$tmp/w/log")"
    return
  }
  gnb_on_line
  BEGIN_MS=$(now_ms)
  # 500 ms, the RTO of 400 ms, and three timeouts of 400 ms.
  if noticed 'association.*(ended|lost)' "$tmp/w/log" 3000; then ok "gNB without power: noticed after $TOOK ms"; else
    not_ok "gNB without power: not noticed after $TOOK ms"
  fi
  gnb_off_line
}

# What a core may touch on its host.
host_state() {
  nft list ruleset
  ip -4 rule; ip -6 rule
  ip -4 route show table all; ip -6 route show table all
  ip -o addr | sed -E 's/ (valid|preferred)_lft .*//'
  ip -o link | sed -E 's/^[0-9]+: //'
  local f
  for f in $NET/ipv4/ip_forward $NET/ipv[46]/conf/*/{forwarding,accept_redirects,rp_filter,accept_ra,disable_ipv6}; do
    [ -r "$f" ] && echo "$f $(cat "$f")"
  done
}

host() {
  stop
  configure
  echo 0 >$NET/ipv4/ip_forward
  host_state >"$tmp/before"
  start || { not_ok "host: the core does not start: $(tail -n 1 "$tmp/w/log")"; return; }
  host_state >"$tmp/during"
  if cmp -s "$tmp/before" "$tmp/during"; then not_ok "host: nothing changes while it runs, so nothing is tested"; return; fi
  stop || not_ok "host: SIGTERM gives exit status $?"
  host_state >"$tmp/after"
  if cmp -s "$tmp/before" "$tmp/after"; then
    ok "host, SIGTERM: rules, routes, addresses and sysctls are byte-identical ($(diff "$tmp/before" "$tmp/during" | grep -c '^[<>]') lines differed meanwhile)"
  else
    not_ok "host, SIGTERM: $(diff "$tmp/before" "$tmp/after" | grep '^[<>]' | head -n 5 | tr '\n' ';')"
  fi
  start && kill -9 "$CORE" && wait "$CORE" 2>/dev/null
  host_state >"$tmp/killed"
  start && stop
  host_state >"$tmp/after"
  if cmp -s "$tmp/before" "$tmp/after"; then
    ok "host, kill -9: the next start and stop leave it byte-identical ($(diff "$tmp/before" "$tmp/killed" | grep -c '^[<>]') lines were left behind)"
  else
    not_ok "host, kill -9: $(diff "$tmp/before" "$tmp/after" | grep '^[<>]' | head -n 5 | tr '\n' ';')"
  fi
}

# ---- all of them --------------------------------------------------------------------------------------------------

ONE_CORE=(any_program wrong_key sqn_twice unknown_imsi wrong_dnn wrong_slice no_algorithm gnb_plmn gnb_tac gnb_slice)
OWN_CORE=(empty_pool port_taken no_privilege wrong_interface configuration cluster isolation full_disk killed stopped gnb_power host)
[ $# -gt 0 ] || set -- "${ONE_CORE[@]}" "${OWN_CORE[@]}"
configure && start || { echo "not ok - faults: the core does not start: $(tail -n 1 "$tmp/w/log")"; exit 1; }
for case; do "$case"; done
stop
[ "$FAILED" = 0 ]
