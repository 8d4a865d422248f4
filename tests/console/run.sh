#!/usr/bin/env bash
# The console in a real browser: a core with emulated gNBs and UEs, and headless Chromium that logs in by a one-time link, opens each
# page in dark and light and at several widths, compares some with kept pictures, and takes screenshots. Then an audit of a default
# installation, and a live capture that tshark reads. Not a part of `./x test`: Chromium is large.
#
# Usage: run.sh [--keep|--bench] [FOLDER]     where the screenshots go; default: target/console
#   --keep    keeps the pictures of this run in tests/console/pictures
#   --bench   measures times instead: `./x bench console`
# Environment: the programs to test (tests/programs.sh).
set -uo pipefail

HERE=$(dirname "$(readlink -f "$0")") && export HERE
. "$HERE/../programs.sh"
MODE=${CONSOLE_MODE:-pages}
case ${1:-} in --keep | --bench) MODE=${1#--}; shift ;; esac
export CONSOLE_MODE=$MODE
CONSOLE_SHOTS=$(realpath -m "${1:-${CONSOLE_SHOTS:-target/console}}") && export CONSOLE_SHOTS
command -v chromium >/dev/null || { echo "skip - console: chromium is not installed"; exit 0; }

# axe-core finds violations of WCAG. It is used here alone: the program does not contain it.
axe() {
  local version=4.10.3 sum=880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb folder=$HERE/../../.x/axe
  AXE=$(realpath -m "$folder/axe-$version.min.js")
  if [ ! -e "$AXE" ] && command -v npm >/dev/null; then
    mkdir -p "$folder" && (cd "$folder" && npm pack --silent "axe-core@$version" >/dev/null 2>&1 && tar -xzf "axe-core-$version.tgz" package/axe.min.js &&
      echo "$sum  package/axe.min.js" | sha256sum --check --status && mv package/axe.min.js "$AXE")
  fi
  [ -e "$AXE" ] && export AXE && return
  unset AXE
  echo "skip - console: axe-core cannot be had (npm); simpler checks of accessibility are made"
}
[ -n "${WHIMBREL_FAULTS_INSIDE:-}" ] || axe

. "$HERE/../faults/core.sh"
mkdir -p "$CONSOLE_SHOTS"

imsi() { printf '99970000000%04d' "$1"; }
# ue N ARGUMENTS...: the UE of number N at a gNB of its own.
ue() {
  local n=$1
  shift
  case " $* " in *' --imsi '*) ;; *) set -- --imsi "$(imsi "$n")" "$@" ;; esac
  timeout 500 "$WHIMBREL_LAB" ran --gnb-id "$n" --gnb-address "127.0.$n.1" "$@" >"$tmp/w/ran.$n" 2>&1
}
# stays N STEPS ARGUMENTS...: the same in the background; it waits after its steps.
stays() {
  local n=$1 what=$2
  shift 2
  echo "steps: [$what, {wait: 480}]" >"$tmp/w/steps.$n.yaml"
  ue "$n" "$@" "$tmp/w/steps.$n.yaml" &
}

OTHER_KEY='--k ffeeddccbbaa99887766554433221100 --opc 00112233445566778899aabbccddeeff'
PUBLIC=5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650
# Twelve faults, each with its subject and what the first page has to say of it.
faults() {
  subscriber edit "imsi-$(imsi 6)" --status barred >/dev/null
  subscriber edit "imsi-$(imsi 15)" --set '{"subscription": {"forbidden_areas": [1, 9]}}' >/dev/null
  subscriber edit "imsi-$(imsi 17)" --set '{"subscription": {"rat_restrictions": ["NR"]}}' >/dev/null
  echo 'steps: [register, {session: {dnn: nowhere}}]' >"$tmp/w/nowhere.yaml"
  # shellcheck disable=SC2086
  local jobs=()
  ue 11 $OTHER_KEY & jobs+=($!)
  ue 90 & jobs+=($!)
  ue 6 & jobs+=($!)
  ue 7 --imsi 001010000000007 & jobs+=($!)
  ue 8 --suci A --home-network-key "$PUBLIC" --home-network-key-id 7 & jobs+=($!)
  ue 12 --nia 0 & jobs+=($!)
  ue 13 --nea 0 & jobs+=($!)
  ue 15 & jobs+=($!)
  ue 17 & jobs+=($!)
  ue 18 "$tmp/w/nowhere.yaml" & jobs+=($!)
  ue 50 --plmn 001/01 & jobs+=($!)
  ue 51 --tac 7 & jobs+=($!)
  wait "${jobs[@]}"
  cat <<LIST
imsi-$(imsi 11)|its K or OPc differs
imsi-$(imsi 90)|not in the store
imsi-$(imsi 6)|barred
imsi-001010000000007|not served here
ue-|home network key 7
imsi-$(imsi 12)|no common algorithm
imsi-$(imsi 13)|no common algorithm
imsi-$(imsi 15)|forbids tracking area
imsi-$(imsi 17)|bars New Radio
imsi-$(imsi 18)|nowhere
gnb-001/01-32|PLMN
gnb-999/70-33|TAC
LIST
}

configure "$(cat <<'YAML'
tacs: [1]
slices: [1]
log: { level: info }
timers: { t3550: 1s }
home_network_keys: [{ id: 1, scheme: A, private_key: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }]
gnb_positions:
  - { gnb: 999/70-1, latitude: 52.3702, longitude: 4.8952 }
  - { gnb: 999/70-2, latitude: 52.3791, longitude: 4.9003 }
  - { gnb: 999/70-3, latitude: 52.3584, longitude: 4.8811 }
  - { gnb: 999/70-4, latitude: 52.3664, longitude: 4.9269 }
  - { gnb: 999/70-5, latitude: 52.3900, longitude: 4.8730 }
YAML
)"
"$WHIMBREL_LAB" ran --ues 30 --write-subscribers "$tmp/w/thirty.csv" >/dev/null && subscriber import "$tmp/w/thirty.csv" --on-existing skip >/dev/null
RUN_OPTIONS="--capture $tmp/w/all.pcap"
start || { cat "$tmp/w/log"; not_ok "the core does not start"; exit 1; }
core_capture() { "$WHIMBREL" capture --ue "imsi-$(imsi "$1")" -c "$tmp/w/whimbrel.yaml" "${@:2}"; }

for n in 1 2 3 4 5; do stays "$n" "register, {session: {}}"; done
until_registered() {
  for _ in $(seq 300); do
    [ "$("$WHIMBREL" ue list -c "$tmp/w/whimbrel.yaml" 2>/dev/null | grep -c registered)" -ge "$1" ] && return
    sleep 0.1
  done
}
until_registered 5
link() { "$WHIMBREL" console -c "$tmp/w/whimbrel.yaml" | head -n 1; }

if [ "$MODE" = bench ]; then
  timeout 300 python3 "$HERE/bench.py" "$(link)" "imsi-$(imsi 1)" "$tmp/w/whimbrel.yaml" "$tmp/chromium" || FAILED=1
  stop
  exit "$FAILED"
fi

# ---- a live capture, read by tshark ---------------------------------------------------------------------------------
core_capture 9 --live --output "$tmp/w/live.pcapng" &
LIVE=$!
sleep 0.5
echo 'steps: [register, session, {ping: 10.45.0.1}, {wait: 1}]' >"$tmp/w/steps.9.yaml"
ue 9 "$tmp/w/steps.9.yaml"
sleep 1
kill "$LIVE" 2>/dev/null
wait "$LIVE" 2>/dev/null
if command -v tshark >/dev/null; then
  read_live() { tshark -r "$tmp/w/live.pcapng" "$@" 2>/dev/null; }
  read_live -V >"$tmp/w/live.txt"
  for part in InitialUEMessage 'Registration accept' 'Registration complete' 'PDU session establishment accept' 'PFCP Session Establishment Request' 'Echo (ping) request' 'Echo (ping) reply' 'NAS, deciphered'; do
    if grep -qF "$part" "$tmp/w/live.txt"; then ok "console: a live capture has $part"; else not_ok "console: a live capture has $part"; fi
  done
  if grep -qiE 'malformed' "$tmp/w/live.txt"; then not_ok "console: tshark finds a malformed packet in a live capture"; else ok "console: tshark finds no malformed packet in a live capture"; fi
  if read_live -Y 'ip.addr == 127.0.1.1' | grep -q .; then not_ok "console: a live capture has messages of another UE"; else ok "console: a live capture has messages of its UE alone"; fi
else
  echo "skip - console: tshark is not installed, so the live capture is not read"
fi

faults >"$tmp/w/faults"
# A UE is deregistered while the browser sleeps (pages.py, sleeps).
(
  until [ -e "$CONSOLE_SHOTS/asleep" ]; do sleep 0.1; done
  "$WHIMBREL" ue deregister "imsi-$(imsi 5)" -c "$tmp/w/whimbrel.yaml" >/dev/null
  rm -f "$CONSOLE_SHOTS/asleep"
) &
SLEEPER=$!
rm -f "$CONSOLE_SHOTS/asleep"
FAULTS=$tmp/w/faults CAPTURE=$tmp/w/all.pcap GNB=127.0.1.1 timeout 400 python3 "$HERE/pages.py" "$(link)" "imsi-$(imsi 1)" "$CONSOLE_SHOTS" "$tmp/chromium" "--$MODE" || FAILED=1
kill "$SLEEPER" 2>/dev/null

stop

# ---- the page of a cluster, of which a CPF is killed --------------------------------------------------------------------
configure 'cluster: { listen: "127.0.0.1:7380", replicas: 1 }'
RUN_OPTIONS='' CPFS=()
if start; then
  # One after the other, so that their numbers are those of this list.
  for n in 1 2 3; do
    "$WHIMBREL" cpf >/dev/null 2>&1 &
    CPFS+=($!)
    for _ in $(seq 100); do why cpfs | grep -q "$n CPF" && break; sleep 0.05; done
  done
  for n in 1 2 3 4 5 6; do stays "$n" "register, {session: {}}"; done
  until_registered 6
  timeout 100 python3 "$HERE/cluster.py" "$(link)" "$CONSOLE_SHOTS" "$tmp/chromium2" "${CPFS[@]}" || FAILED=1
  kill "${CPFS[@]}" 2>/dev/null
  wait "${CPFS[@]}" 2>/dev/null
  stop
else
  not_ok "console: the CTA of a cluster does not start"
fi
python3 -W ignore "$HERE/audit.py" "$WHIMBREL" "$tmp/audit" || FAILED=1
exit "$FAILED"
