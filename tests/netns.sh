# A network namespace of its own for a script that starts `$WHIMBREL` in it, sourced as the first thing: the script starts again within.
#
# Before: `tools`, the programs that it needs beside ip; `logs`, of which the last lines are shown when something is wrong; `seed`, if it
# has one. After: `tmp`, a folder that is removed at the end (WHIMBREL_CHAOS_DIR, which stays); what is appended to `running` is killed then.
PATH=$PATH:/usr/sbin:/sbin
. "$(dirname "${BASH_SOURCE[0]}")/needs.sh"

if [ -z "${WHIMBREL_INSIDE:-}" ]; then
  needs_tools ip "${tools[@]}"
  needs_namespace
  WHIMBREL_INSIDE=1 exec unshare --net "${user[@]}" "$0" "$@"
fi

# Programs that a script writes are run only if their group may not write to them.
umask 022
tmp=${WHIMBREL_CHAOS_DIR:-$(mktemp -d)}
mkdir -p "$tmp"
running=()
finish() {
  kill -9 "${running[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  [ -n "${WHIMBREL_CHAOS_DIR:-}" ] || rm -rf "$tmp"
}
trap finish EXIT
wrong() {
  echo "WRONG: $1${seed:+ (seed $seed)}"
  (cd "$tmp" && tail -n 15 "${logs[@]}" 2>/dev/null | cut -c1-400)
  exit 1
}
# start NAME COMMAND: the program with `$tmp/NAME.yaml` and NAME.log, once it is ready; its number is left in `$!`.
start() {
  "$WHIMBREL" "$2" --strict --config "$tmp/$1.yaml" 2>>"$tmp/$1.log" &
  running+=($!)
  for _ in $(seq 400); do
    grep -qs " ready" "$tmp/$1.log" && return
    kill -0 $! 2>/dev/null || break
    sleep 0.05
  done
  wrong "$1 does not start"
}
# await NAME TEXT [N]: waits until NAME.log says it, for the Nth time.
await() {
  for _ in $(seq 400); do
    [ "$(cat "$tmp/$1.log" 2>/dev/null | grep -c "$2")" -ge "${3:-1}" ] && return
    sleep 0.05
  done
  wrong "$1 does not say: $2"
}
# own_network PID: waits until a process that was started by `unshare --net` has a network of its own.
own_network() {
  for _ in $(seq 100); do
    [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ] && return
    sleep 0.02
  done
  setup_failed "a process gets no network of its own"
}
# metric NAME [API]: one of the metrics of the program there, 0 if it is not there yet; half a second old at most.
metric() { curl -sf "http://${2:-127.0.0.1:8081}/metrics" | awk -v n="$1" '$1 == n { v = $2 } END { print v + 0 }'; }

ip link set lo up
