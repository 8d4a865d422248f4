#!/usr/bin/env bash
# The Debian package under a systemd that has booted: PID 1 of namespaces of its own, over the host's files (which nothing is written to). The package is installed
# by dpkg and its service enabled and started. Then: the subscribers' key is a credential that only the service has; each function runs under the service's user
# with its two capabilities and was started once; no other user reaches its socket, key or memory; the service reloads, and a manager that is killed comes back to
# the functions that run.
#
# Usage: package.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../needs.sh"
PATH=$PATH:/usr/sbin:/sbin
systemd=/lib/systemd/systemd

# ---- within: what is done to the booted system --------------------------------------------------------------------------------------------------------------
if [ "${WHIMBREL_BOOT:-}" = drive ]; then
  configuration=/etc/whimbrel/whimbrel.yaml
  wrong() { echo "WRONG: $1"; systemctl status whimbrel --no-pager -l 2>&1 | head -30; journalctl -u whimbrel --no-pager 2>/dev/null | tail -n 25 | cut -c1-300; exit 1; }
  within() { # within TENTHS COMMAND...
    local n=$1
    shift
    for _ in $(seq "$n"); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    return 1
  }
  state() { timeout 5 whimbrel unit --config "$configuration" 2>/dev/null; }
  is_complete() { local s; s=$(state); grep -q ' primary ' <<<"$s" && grep -q ' replica ' <<<"$s" && ! grep -Eq ' (starting|joining) ' <<<"$s"; }
  functions() { state | awk '$3 ~ /^[0-9]+$/ { print $1, $3 }'; }
  as_other() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

  within 300 systemctl is-active basic.target || { echo "systemd did not boot"; exit 75; }
  ip link set lo up
  dpkg --force-depends --install /package.deb >/out 2>&1 || { cat /out; wrong "dpkg does not install the package"; }
  [ -s /etc/credstore.encrypted/whimbrel.key ] || wrong "the installation has sealed no key"
  systemctl enable --now whimbrel >/out 2>&1 || { cat /out; wrong "the service does not start"; }
  within 400 is_complete || { state; wrong "the unit does not become complete"; }
  echo "ok - the package's service starts under systemd, with the subscribers' key as its credential"

  ended=$(state | awk '$3 ~ /^[0-9]+$/ { n += $NF } END { print n + 0 }')
  [ "$ended" = 0 ] && ! journalctl -u whimbrel --no-pager | grep -q "cannot be started" || wrong "functions had to be started $ended times more"
  user=$(id -u whimbrel)
  while read -r name pid; do
    [ "$(stat -c %u "/proc/$pid")" = "$user" ] || [ "$(awk '/^Uid:/ { print $2 }' "/proc/$pid/status")" = "$user" ] || wrong "$name is not of the service's user"
    [ $((0x$(sed -n 's/^CapEff:\t*//p' "/proc/$pid/status") & ~0x3000)) = 0 ] || wrong "$name has more than two capabilities"
    case $name in upf*) ;; *) ! setpriv --reuid "$user" --regid "$user" --clear-groups cat "/proc/$pid/environ" >/dev/null 2>&1 || wrong "the memory of $name is open to the service's user" ;; esac
  done < <(functions)
  echo "ok - each function was started once, under the service's user, with two capabilities"
  for file in /run/whimbrel/manager /run/whimbrel/api /run/credentials/whimbrel.service/whimbrel.key /etc/credstore.encrypted/whimbrel.key /var/lib/whimbrel/whimbrel.db $configuration; do
    [ -e "$file" ] || wrong "there is no $file"
    case $file in
      /etc/credstore*) ! as_other cat "$file" >/dev/null 2>&1 || wrong "another user reads $file" ;;
      *) ! as_other test -r "$file" || wrong "another user reaches $file" ;;
    esac
  done
  [ "$(systemctl show -P TasksMax whimbrel)" = 2048 ] && [ "$(systemctl show -P MemoryMax whimbrel)" != infinity ] || wrong "the service has no bounds"
  echo "ok - no other user reaches its sockets, key, subscribers and configuration"

  before=$(functions)
  kill -9 "$(systemctl show -P MainPID whimbrel)"
  within 300 is_complete || wrong "the manager does not come back"
  [ "$(functions)" = "$before" ] || wrong "functions did not outlive the manager: $before; $(functions)"
  echo "ok - a manager that was killed is started again and takes its functions over"
  timeout 120 systemctl reload whimbrel >/out 2>&1 || { cat /out; wrong "the service does not reload"; }
  within 300 is_complete || wrong "the unit is not complete after a reload"
  [ -z "$(comm -12 <(sort <<<"$before") <(functions | sort))" ] || wrong "functions were not replaced"
  echo "ok - a reload by root replaces the functions"
  exit
fi

# ---- within: PID 1 ------------------------------------------------------------------------------------------------------------------------------------------
if [ "${WHIMBREL_BOOT:-}" = inner ]; then
  t=$1
  mount --make-rprivate /
  mount -t tmpfs tmpfs "$t" && mkdir "$t/upper" "$t/work" "$t/root"
  r=$t/root
  mount -t overlay overlay -o "lowerdir=/,upperdir=$t/upper,workdir=$t/work" "$r"
  cp "$2" "$r/package.deb"
  mount -t proc proc "$r/proc" && mount -t sysfs -o ro sysfs "$r/sys" && mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
  for at in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$r/$at"; done
  chmod 1777 "$r/tmp"
  for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
    read -r name major minor <<<"$node"
    mknod -m 666 "$r/dev/$name" c "$major" "$minor"
  done
  mkdir "$r/dev/net" "$r/dev/shm" "$r/dev/pts"
  mknod -m 666 "$r/dev/net/tun" c 10 200
  mount -t tmpfs tmpfs "$r/dev/shm" && mount -t devpts -o newinstance,ptmxmode=666 devpts "$r/dev/pts"
  ln -s pts/ptmx "$r/dev/ptmx"
  ln -s /proc/self/fd "$r/dev/fd"
  # The host's own services are not this test's: basic.target alone is booted.
  printf '[Unit]\nRequires=basic.target\nAfter=basic.target\n' >"$r/etc/systemd/system/boot.target"
  for service in systemd-udevd systemd-udev-trigger systemd-timesyncd systemd-networkd; do ln -sf /dev/null "$r/etc/systemd/system/$service.service"; done
  # systemd makes / shared when it boots a machine; without that, credentials do not appear.
  mount --make-rshared "$r"
  mkdir -p "$r/doors"
  cp "$here/package.sh" "$r/doors/" && cp "$here/../needs.sh" "$here/../programs.sh" "$r/"
  ( trap '' HUP; rc=0; WHIMBREL_BOOT=drive chroot "$r" bash /doors/package.sh || rc=$?; echo "$rc" >"$3" ) >"$3.out" 2>&1 </dev/null &
  exec chroot "$r" env -i container=whimbrel PATH=/usr/sbin:/usr/bin:/sbin:/bin "$systemd" --system --unit=boot.target --log-target=null --show-status=0 </dev/null >/dev/null 2>&1
fi

# ---- outside ------------------------------------------------------------------------------------------------------------------------------------------------
needs_tools dpkg-deb strip unshare setpriv systemd-creds ip
[ -x "$systemd" ] || { echo "systemd is not installed"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "only root can boot systemd in namespaces"; exit 77; }
tmp=$(mktemp -d)
group=whimbrel-door-$$
clean() {
  [ -z "${booted:-}" ] || kill -9 "$booted" 2>/dev/null || true
  # All that systemd has started, and then the cgroups, of which each goes once its processes have ended.
  for _ in $(seq 100); do
    [ -d "$tmp/cgroup/$group" ] || break
    echo 1 >"$tmp/cgroup/$group/cgroup.kill" 2>/dev/null || true
    find "$tmp/cgroup/$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    sleep 0.1
  done
  wait 2>/dev/null || true
  umount "$tmp/cgroup" 2>/dev/null || umount -l "$tmp/cgroup" || true
  rm -rf "$tmp" || true
}
trap clean EXIT
mkdir "$tmp/cgroup" "$tmp/boot"
mount -t cgroup2 cgroup2 "$tmp/cgroup" 2>/dev/null && mkdir "$tmp/cgroup/$group" || { echo "no cgroup can be made here"; exit 77; }
unshare --mount sh -c "mount -t tmpfs t '$tmp/boot' && mkdir '$tmp/boot/u' '$tmp/boot/w' '$tmp/boot/r' && mount -t overlay o -o 'lowerdir=/,upperdir=$tmp/boot/u,workdir=$tmp/boot/w' '$tmp/boot/r'" 2>/dev/null || { echo "no overlay of the host's files can be made here"; exit 77; }
packages=$(PROGRAM=$WHIMBREL "$here/../../x" package deb "$tmp" 2>"$tmp/out") || { tail -n 5 "$tmp/out"; echo "WRONG: the packages cannot be built"; exit 1; }
package=$(grep '/whimbrel_' <<<"$packages") || { echo "WRONG: the core's package is not among these: $packages"; exit 1; }
(
  echo $BASHPID >"$tmp/cgroup/$group/cgroup.procs"
  WHIMBREL_BOOT=inner exec unshare --cgroup --mount --pid --fork --kill-child --uts --ipc --net bash "$0" "$tmp/boot" "$package" "$tmp/rc"
) &
booted=$!
for _ in $(seq 1800); do [ ! -s "$tmp/rc" ] && kill -0 "$booted" 2>/dev/null || break; sleep 0.1; done
[ -s "$tmp/rc" ] || { cat "$tmp/rc.out" 2>/dev/null; echo "systemd ended, or nothing came of it in 180 s"; exit 75; }
cat "$tmp/rc.out"
exit "$(cat "$tmp/rc")"
