# bash: what the tests of faults share. Namespaces of their own, a core, and the commands that ask it. To be sourced; the script
# starts again inside the namespaces.

. "$(dirname "${BASH_SOURCE[0]}")/../programs.sh"
NET=/proc/sys/net

if [ -z "${WHIMBREL_FAULTS_INSIDE:-}" ]; then
  for tool in unshare setpriv ip nft mount; do
    command -v "$tool" >/dev/null || { echo "skip - faults: $tool is not installed"; exit 0; }
  done
  [ "$(id -u)" = 0 ] || { echo "skip - faults: they need root, to make network namespaces and to take privileges away"; exit 0; }
  [ -x "$WHIMBREL" ] || { echo "not ok - faults: there is no program $WHIMBREL"; exit 1; }
  # A process namespace too: whatever the cases leave running ends with it.
  export WHIMBREL_FAULTS_INSIDE=1
  unshare --net --mount --pid --fork --kill-child --mount-proc true 2>/dev/null ||
    { echo "skip - faults: this host permits no namespaces"; exit 0; }
  exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mount -t tmpfs none /run # the names of network namespaces: those made here are visible only here
ip link set lo up
ip link add outside type veth peer name far 2>/dev/null && ip addr add 192.0.2.10/24 dev outside &&
  ip link set outside up && ip link set far up && ip route add default via 192.0.2.1
FAILED=0 CORE='' LINE='' TOOK=0

# ---- the core and its UEs --------------------------------------------------------------------------------------

now_ms() { local t=$EPOCHREALTIME; echo $((${t/./} / 1000)); }

# configure [YAML]: a fresh folder with a configuration, and ten subscribers with the keys that `whimbrel-lab ran` has.
configure() {
  rm -rf "$tmp/w"
  mkdir "$tmp/w"
  cat >"$tmp/w/whimbrel.yaml" <<YAML
store: { path: $tmp/w/whimbrel.db, key_file: $tmp/w/whimbrel.key }
api: { address: "127.0.0.1:8070" }
${1:-}
YAML
  "$WHIMBREL_LAB" ran --ues 10 --write-subscribers "$tmp/w/ten.csv" >/dev/null &&
    subscriber import "$tmp/w/ten.csv" >/dev/null
}

subscriber() { local what=$1; shift; "$WHIMBREL" subscriber "$what" "$@" -c "$tmp/w/whimbrel.yaml"; }
why() { "$WHIMBREL" why "$1" -c "$tmp/w/whimbrel.yaml" 2>&1; }

# start [COMMAND...]: the core, through COMMAND if given; returns when its API answers, and fails if it does not.
start() {
  # shellcheck disable=SC2086
  "$@" "$WHIMBREL" run -c "$tmp/w/whimbrel.yaml" ${RUN_OPTIONS:-} >"$tmp/w/log" 2>&1 &
  CORE=$!
  local begin
  begin=$(now_ms)
  until "$WHIMBREL" gnb list -c "$tmp/w/whimbrel.yaml" >/dev/null 2>&1; do
    kill -0 "$CORE" 2>/dev/null && [ $(($(now_ms) - begin)) -lt 20000 ] || return 1
    sleep 0.02
  done
}

# stop: as an operator does; the core's exit status.
stop() {
  local rc=0
  [ -n "$CORE" ] || return 0
  kill -TERM "$CORE" 2>/dev/null
  wait "$CORE" || rc=$?
  CORE=''
  return "$rc"
}

ran() { timeout 60 "$WHIMBREL_LAB" ran "$@" >"$tmp/w/ran" 2>&1; }

ok() { echo "ok - $1"; }
not_ok() { echo "not ok - $1"; FAILED=$((FAILED + 1)); }
