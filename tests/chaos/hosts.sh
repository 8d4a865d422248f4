# What the chaos scenarios stand on, sourced by them: a network namespace with a second host behind a wire, a cluster key and the phones.
#
# Before: `seconds`, `seed`; `tools`, the programs that the scenario needs beside ip and nsenter; `logs`, of which the last lines are
# shown when something is wrong. After: `tmp`, a folder that is removed at the end; `elsewhere`, a process whose network namespace is the host
# behind the wire; what is appended to `running` is killed at the end; `near` is this host's end of the wire, `$tmp/cluster.key` the
# key, `$tmp/play.yaml` what phones do for so long; `metric` and `backed` ask the core whose API is at 127.0.0.1:8081.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
skip() { echo "$1"; exit 77; }

if [ -z "${WHIMBREL_INSIDE:-}" ]; then
  [ -x "${WHIMBREL:-}" ] || skip "no program to test: WHIMBREL does not name one"
  for tool in ip nsenter "${tools[@]}"; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
  done
  (: <>/dev/net/tun) 2>/dev/null || skip "/dev/net/tun cannot be opened here"
  user=(); [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
  unshare --net "${user[@]}" true 2>/dev/null || skip "network namespaces are not permitted here"
  WHIMBREL=$(realpath "$WHIMBREL") WHIMBREL_INSIDE=1 exec unshare --net "${user[@]}" "$0" "$seconds" "$seed"
fi

tmp=${WHIMBREL_CHAOS_DIR:-$(mktemp -d)}
mkdir -p "$tmp"
rm -rf "$tmp"/*.log "$tmp"/*.db* "$tmp"/etcd # of a run before
running=()
finish() {
  kill -9 "${running[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  [ -n "${WHIMBREL_CHAOS_DIR:-}" ] || rm -rf "$tmp"
}
trap finish EXIT
# runs COMMAND...: starts it; its death at the end is no news. Its number is in `last`.
runs() {
  "$@" &
  last=$!
  running+=("$last")
  disown
}
wrong() {
  echo "WRONG: $1 (seed $seed)"
  (cd "$tmp" && tail -n 15 "${logs[@]}" 2>/dev/null | cut -c1-400)
  exit 1
}

# metric NAME: one of the core's metrics, 0 if it is not there yet.
metric() { curl -sf http://127.0.0.1:8081/metrics | awk -v n="$1" '$1 == n { v = $2 } END { print v + 0 }'; }
# backed: waits until each phone has a backup again; metrics are half a second old at most.
backed() {
  sleep 0.55
  for _ in $(seq 100); do
    [ "$(metric whimbrel_phones_unbacked)" = 0 ] && return
    sleep 0.05
  done
  wrong "phones have no backup for five seconds"
}

ip link set lo up
ip link add near type veth peer name far
ip address add 192.0.2.1/24 dev near
ip link set near up
runs unshare --net sleep infinity
elsewhere=$last
for _ in $(seq 100); do
  [ "$(readlink "/proc/$elsewhere/ns/net")" != "$(readlink /proc/self/ns/net)" ] && break
  sleep 0.02
done
ip link set far netns "$elsewhere"
nsenter -t "$elsewhere" -n ip address add 192.0.2.2/24 dev far
nsenter -t "$elsewhere" -n ip link set far up
nsenter -t "$elsewhere" -n ip link set lo up

head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$tmp/cluster.key"
chmod 600 "$tmp/cluster.key"
sed "s/^seconds: .*/seconds: $seconds/" "$(dirname "$0")/phones.yaml" >"$tmp/play.yaml"
