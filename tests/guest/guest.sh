# A guest kernel with its own SCTP and TUN, as a process beside a network namespace: functions to source.
#
#   guest_up                        makes the namespace $GUEST_NS (unique to this shell) with a TAP to the guest
#   guest_boot OUT JOB [K=V...]     boots the guest, which runs JOB (a bash script) with K=V in its environment
#   guest_wait SECONDS              waits until JOB has ended; its exit status, or 124 if it takes longer
#   guest_booted                    whether it came as far as JOB
#   guest_in COMMAND...             runs a command in the namespace
#   guest_down                      ends what still runs in the namespace, then removes it
#
# Host and guest, on one link:  10.77.0.1 10.78.0.1 fd00:77::1  |  10.77.0.2 10.78.0.2 fd00:77::2
# The guest sees the host's files read-only, and OUT (an absolute path) writable. Its console is OUT/console.log.
# Needs root, and Debian's packages user-mode-linux and iproute2.

GUEST_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
GUEST_BIN=${GUEST_BIN:-linux.uml}
GUEST_MEM=${GUEST_MEM:-512M}
GUEST_NS=${GUEST_NS:-wguest$$}
GUEST_HOST_IP=10.77.0.1 GUEST_HOST_IP2=10.78.0.1 GUEST_HOST_IP6=fd00:77::1
GUEST_IP=10.77.0.2 GUEST_IP2=10.78.0.2 GUEST_IP6=fd00:77::2

guest_available() { command -v "$GUEST_BIN" >/dev/null && [ -n "$(guest_modules)" ]; }
guest_modules() { ls -d /usr/lib/uml/modules/*/kernel 2>/dev/null | head -1; }
guest_in() { ip netns exec "$GUEST_NS" "$@"; }

guest_up() {
  ip netns add "$GUEST_NS" || return
  guest_in ip link set lo up
  guest_in ip tuntap add tap0 mode tap
  guest_in ip addr add "$GUEST_HOST_IP/24" dev tap0
  guest_in ip addr add "$GUEST_HOST_IP2/24" dev tap0
  guest_in ip -6 addr add "$GUEST_HOST_IP6/64" dev tap0 nodad
  guest_in ip link set tap0 txqueuelen 4000 up
}

# Processors with AMX have more state than the guest's kernel has room for: see whole_xstate.c.
guest_preload() {
  grep -qw amx_tile /proc/cpuinfo || return 0
  cc -shared -fPIC -O2 -o "$1/whole_xstate.so" "$GUEST_HERE/whole_xstate.c" -ldl && echo "$1/whole_xstate.so"
}

guest_boot() {
  local out=$1 job=$2
  shift 2
  mkdir -p "$out"
  rm -f "$out/rc" "$out/job.log"
  ip netns exec "$GUEST_NS" env TMPDIR=/dev/shm LD_PRELOAD="$(guest_preload "$out")" "$GUEST_BIN" "mem=$GUEST_MEM" rootfstype=hostfs rootflags=/ ro \
    init="$GUEST_HERE/init.sh" "vec0:transport=tap,ifname=tap0,depth=128" con=null con0=null,fd:1 quiet \
    "G_OUT=$out" "G_JOB=$job" "G_MODULES=$(guest_modules)" "G_PATH=$PATH" \
    "HOST_IP=$GUEST_HOST_IP" "HOST_IP2=$GUEST_HOST_IP2" "HOST_IP6=$GUEST_HOST_IP6" \
    "GUEST_IP=$GUEST_IP" "GUEST_IP2=$GUEST_IP2" "GUEST_IP6=$GUEST_IP6" "$@" \
    </dev/null >"$out/console.log" 2>&1 &
  GUEST_PID=$!
  GUEST_OUT=$out
}

guest_wait() {
  local end=$((SECONDS + $1))
  while [ $SECONDS -lt $end ]; do
    if [ -f "$GUEST_OUT/rc" ]; then return "$(cat "$GUEST_OUT/rc")"; fi
    kill -0 "$GUEST_PID" 2>/dev/null || break
    sleep 0.2
  done
  [ -f "$GUEST_OUT/rc" ] && return "$(cat "$GUEST_OUT/rc")"
  echo "guest: no result after $1 s; the console printed:" >&2
  tail -20 "$GUEST_OUT/console.log" >&2
  return 124
}

guest_booted() { [ -f "$GUEST_OUT/job.log" ]; }

guest_down() {
  local pids
  pids=$(ip netns pids "$GUEST_NS" 2>/dev/null)
  [ -n "$pids" ] && kill -KILL $pids 2>/dev/null
  [ -n "${GUEST_PID:-}" ] && wait "$GUEST_PID" 2>/dev/null
  ip netns del "$GUEST_NS" 2>/dev/null
  return 0
}
