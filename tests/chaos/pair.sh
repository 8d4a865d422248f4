# Two CTAs with the etcd that decides which is the primary, a UPF, three CPFs and UEs that use them, sourced by scenarios
# after hosts.sh: the second CTA is on the host behind the wire.
#
# Set before, beside what hosts.sh needs (`curl` among the `tools`): `etcd`, the addresses of its members; empty for one beside the first CTA. Set
# after: the functions below. `$code`, if set, is the code version that started processes announce (resilience/src/version.rs).
gnbs=$(sed -n 's/^gnbs: //p' "$tmp/play.yaml")
etcds=${etcd:-192.0.2.1}
urls=()
for at in $etcds; do urls+=("http://$at:2379"); done
code=

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
overload: { start_delay_ms: 10000 } # a host that is held up repeatedly would rightly send OVERLOAD START
cluster:
  listen: "${address[$name]}:7380"
  key_file: $tmp/cluster.key
  etcd: [$(printf '"%s", ' "${urls[@]}" | sed 's/, $//')]
  cta: ${number[$name]}
  heartbeat_interval: 40ms # a busy host makes false alarms, which are harmless
  heartbeat_misses: 4
END
done
cat >"$tmp/upf.yaml" <<END
n3: { address: 192.0.2.5 }
n4: { node_id: 192.0.2.5, listen: "192.0.2.5:8805" }
api: { address: "127.0.0.1:8085" }
store: { path: $tmp/upf.db }
END

# CTA NAME: starts it.
cta() {
  WHIMBREL_CODE_VERSION=$code runs ${host[$1]} "$WHIMBREL" run --config "$tmp/$1.yaml" 2>>"$tmp/$1.log"
  pid[$1]=$last
}
# cpf NAME: starts a CPF; the one called c finds the CTAs at etcd.
cpf() {
  local at=(--cta 192.0.2.1:7380 --cta 192.0.2.2:7380)
  [ "$1" != c ] || at=($(printf -- '--etcd %s ' "${urls[@]}"))
  WHIMBREL_CODE_VERSION=$code runs "$WHIMBREL" cpf "${at[@]}" --listen 192.0.2.1:0 --key-file "$tmp/cluster.key" 2>>"$tmp/$1.log"
  pid[$1]=$last
}
# ended NAME SIGNAL: sends it, and waits until the process is gone.
ended() {
  kill "-$2" "${pid[$1]}"
  while kill -0 "${pid[$1]}" 2>/dev/null; do sleep 0.01; done
}
# logged TEXT: how often both CTAs have logged it.
logged() { cat "$tmp"/one.log "$tmp"/two.log 2>/dev/null | grep -c "$1" || true; }
# pair_says TEXT N WHY: waits until they have logged it N times; WHY is the failure.
pair_says() {
  for _ in $(seq 600); do
    [ "$(logged "$1")" -ge "$2" ] && return
    sleep 0.05
  done
  wrong "$3"
}
# pairs N: waits until a CTA has got a replica N more times, and the gNBs, if any, are connected to the replica.
paired=0
pairs() {
  paired=$((paired + $1))
  pair_says "this CTA has a CTA replica" "$paired" "the CTAs do not become a pair"
  gnbs_at "$(other "$(active)")"
}
# metric_of NAME METRIC: one of a CTA's metrics.
metric_of() { ${host[$1]} curl -sf "http://127.0.0.1:808${number[$1]}/metrics" | awk -v n="$2" '$1 == n { v = $2 } END { print v + 0 }'; }
# gnbs_at NAME: waits until each gNB has an association with the replica. A gNB without one loses its UEs with the primary.
gnbs_at() {
  for _ in $(seq 200); do
    [ -n "${play:-}" ] && kill -0 "$play" 2>/dev/null || return 0
    [ "$(metric_of "$1" whimbrel_gnbs)" -lt "$gnbs" ] || return 0
    sleep 0.05
  done
  wrong "gNBs do not connect to the CTA replica"
}
# active: the primary, which is the CTA that logged so last.
active() {
  grep -h -o "^[^ ]* .*this CTA is the primary" "$tmp/one.log" "$tmp/two.log" | sort | tail -n 1 >"$tmp/last"
  if grep -qF "$(cut -d' ' -f1 "$tmp/last")" "$tmp/one.log"; then echo one; else echo two; fi
}
# decided JSON: writes the cluster configuration, as an operator does with etcdctl.
decided() {
  local key
  key=$(printf whimbrel/whimbrel/configuration | base64)
  curl -sf http://192.0.2.1:2379/v3/kv/put -d "{\"key\": \"$key\", \"value\": \"$(printf %s "$1" | base64 -w 0)\"}" >/dev/null || wrong "the configuration cannot be written to etcd"
}
other() { if [ "$1" = one ]; then echo two; else echo one; fi; }

# etcd_member N: starts the Nth member of etcd; one that ran before continues with its data.
declare -A etcd_pid
members=
n=0
for at in $etcds; do
  n=$((n + 1))
  members=$members${members:+,}m$n=http://$at:2380
done
etcd_member() {
  local at
  at=$(echo $etcds | cut -d' ' -f"$1")
  runs ${etcd_host[$1]:-} etcd --name "m$1" --data-dir "$tmp/etcd/$1" --listen-client-urls "http://$at:2379" --advertise-client-urls "http://$at:2379" \
    --listen-peer-urls "http://$at:2380" --initial-advertise-peer-urls "http://$at:2380" --initial-cluster "$members" >>"$tmp/etcd.log" 2>&1
  etcd_pid[$1]=$last
}
mkdir -p "$tmp/etcd"
for n in $(seq "$(echo $etcds | wc -w)"); do etcd_member "$n"; done
for _ in $(seq 400); do
  etcd_health=$(curl -sf -m 1 "http://$(echo $etcds | cut -d" " -f1):2379/health" || true)
  [[ $etcd_health != *true* ]] || break
  sleep 0.05
done
[[ $etcd_health == *true* ]] || setup_failed "etcd does not answer"

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/one.yaml" >/dev/null # the other CTA copies them
runs "$WHIMBREL" upf --config "$tmp/upf.yaml" 2>"$tmp/upf.log"
cta one
pair_says "this CTA is the primary" 1 "the first CTA does not become the primary"
cta two
pairs 1
pair_says "subscribers are copied from the primary CTA" 1 "subscribers are not copied to the CTA replica"
for name in a b c; do cpf "$name"; done
pair_says "a CPF joined" 3 "CPFs do not join"
pair_says "the UPF answers" 1 "the UPF cannot be reached"

"$WHIMBREL_LAB" ran "$tmp/play.yaml" --amf "${address[$(active)]}" --gnb-address 192.0.2.11 --fastwire=0 -v >"$tmp/play.log" 2>&1 &
play=$!
running+=("$play")

# judge: waits for the UEs, and checks whether they noticed anything. Sets `again`, the number of repeated messages, and `answers`.
judge() {
  local rc=0 stale wrongs
  wait "$play" || rc=$?
  sed -n '/^step /,$p' "$tmp/play.log" | grep -v '^{' || true
  stale=$(awk -f "$(dirname "$0")/histories.awk" "$tmp/play.log")
  answers=$(grep '^imsi-' "$tmp/play.log" | grep -cv ': Holds' || true)
  [ -z "$stale" ] || { echo "$stale" | head -n 5; wrong "an answer contradicts an earlier one to its UE"; }
  # A CTA that takes over repeats messages that may not have left: a gNB may get one twice, after its procedure has ended, and reports that; or it
  # gets a HANDOVER REQUEST twice, and its second answer belongs to no handover.
  local twice=(-e 'which has no context$' -e 'stands already$' -e 'was not awaited$'
    -e 'a UE that has not arrived: ERROR INDICATION: unknown-local-UE-NGAP-ID$')
  again=$(grep '^violation: ' "$tmp/play.log" | grep -c "${twice[@]}" || true)
  wrongs=$(grep '^violation: ' "$tmp/play.log" | grep -cv "${twice[@]}" || true)
  [ "$rc" = 0 ] || { [ "$wrongs" = 0 ] && grep -q '^48 of 48 UEs completed all steps' "$tmp/play.log"; } || noticed "$tmp/$(active).yaml" ${host[$(active)]}
}
