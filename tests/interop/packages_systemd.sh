#!/usr/bin/env bash
# The core's Debian package on root file systems of Debian releases, each booted with its own systemd in a container: installed, started, upgraded, removed, installed
# again and purged. Not a part of `./x test`: it fetches each release from the archive of Debian, and takes minutes. It needs root, debootstrap and systemd-nspawn.
#
# Usage: packages_systemd.sh [RELEASE...]     bookworm and trixie
# Environment: WHIMBREL, the program to test; DEBIAN_ROOTS, a folder in which root file systems are kept between runs; DEBIAN_ARCHIVE.
# The exit status: 0 good, 77 this host cannot run it (the last line says why).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# ---- within: a service of the booted system -------------------------------------------------------------------------------------------------------------------
if [ "${1:-}" = drive ]; then
  export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive
  configuration=/etc/whimbrel/whimbrel.yaml
  wrong() { echo "WRONG: $1"; journalctl -u whimbrel --no-pager -n 25 2>/dev/null | cut -c1-300; exit 1; }
  within() { # within TENTHS COMMAND...
    local n=$1
    shift
    for _ in $(seq "$n"); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    return 1
  }
  dpkg_quietly() { dpkg "$@" >/tmp/out 2>&1 </dev/null || { cat /tmp/out; wrong "dpkg $*"; }; }
  state() { timeout 20 whimbrel unit --config "$configuration" 2>/dev/null; }
  is_complete() { local s; s=$(state); grep -q ' primary ' <<<"$s" && grep -q ' replica ' <<<"$s" && ! grep -Eq ' (starting|joining) ' <<<"$s"; }
  functions() { state | awk '$3 ~ /^[0-9]+$/ { print $3 }' | sort; }
  subscribers() { timeout 20 whimbrel subscriber list --config "$configuration"; }
  has_no_process() { ! grep -qs "^Uid:.*[[:space:]]$(id -u whimbrel)[[:space:]]" /proc/[0-9]*/status; }
  # Files, users, devices and settings of the kernel.
  host() {
    find / -xdev \( -path /tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/tmp \) -prune -o -print
    find /run -path '*whimbrel*'
    cut -d: -f1 /etc/passwd | sed 's/^/user /'
    ip -o link | cut -d: -f2 | sort
    cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding
  }

  host | sort >/tmp/before
  dpkg_quietly --install /packages/old.deb
  ! systemctl is-active --quiet whimbrel && ! systemctl is-enabled --quiet whimbrel || wrong "the installation starts or enables the service"
  systemctl enable --now whimbrel || wrong "the service does not start"
  within 1200 is_complete || { state; wrong "the unit does not become complete"; }
  [ "$(stat -c '%U:%G %a' $configuration)" = "root:whimbrel 640" ] || wrong "others can read the configuration"
  K=465b5ce8b199b49faa5f0a2ee238a6bc
  whimbrel subscriber add 999700000000001 --k $K --opc $K --config $configuration >/tmp/out 2>&1 || { cat /tmp/out; wrong "no subscriber can be added"; }
  echo "ok - installed: the service starts by order, and takes a subscriber"

  # The operator's line stays, although the newer package has another configuration.
  echo "amf: { name: edited }" >>$configuration
  before=$(functions)
  dpkg_quietly --force-confdef --force-confold --install /packages/new.deb
  [ "$(dpkg-query -f '${Version}' -W whimbrel)" != "$(dpkg-deb -f /packages/old.deb Version)" ] || wrong "the newer package is not installed"
  systemctl is-active --quiet whimbrel && within 1200 is_complete || { state; wrong "the core does not serve after the upgrade"; }
  [ -n "$before" ] && [ -z "$(comm -12 <(echo "$before") <(functions))" ] || wrong "the upgrade did not replace the running functions"
  ! grep -q "could not be replaced" /tmp/out || wrong "the upgrade could not replace the running functions"
  grep -q "name: edited" $configuration || wrong "the upgrade lost the operator's configuration"
  subscribers | grep -q imsi-999700000000001 || wrong "the upgrade lost the subscriber"
  echo "ok - upgraded: each function was replaced, configuration and subscribers were kept"

  dpkg_quietly --remove whimbrel
  ! systemctl is-active --quiet whimbrel || wrong "the service runs without its package"
  within 100 has_no_process || wrong "processes of the core outlive its package"
  [ ! -e /usr/bin/whimbrel ] && grep -q "name: edited" $configuration && [ -s /var/lib/whimbrel/whimbrel.db ] || wrong "a removal does not keep configuration and subscribers alone"
  dpkg_quietly --install /packages/new.deb
  systemctl is-enabled --quiet whimbrel || wrong "a service that was enabled is not after another installation"
  systemctl start whimbrel && within 1200 is_complete || wrong "the core does not start after another installation"
  subscribers | grep -q imsi-999700000000001 || wrong "another installation lost the subscriber"
  echo "ok - removed and installed again: configuration, subscribers and the enabled service came back"

  dpkg_quietly --purge whimbrel
  ! systemctl is-active --quiet whimbrel || wrong "the service runs after a purge"
  host | sort >/tmp/after
  # Subscribers and their key are the operator's to delete; the user owns them. dpkg and systemd keep records of their own.
  left=$(comm -13 /tmp/before /tmp/after | grep -Ev '^(/etc/credstore.encrypted(/whimbrel.key)?|/var/lib/whimbrel(/.*)?|user whimbrel|/etc/(passwd|group|shadow|gshadow)-|/etc/.pwd.lock|/var/lib/systemd/(credential.secret|random-seed|timers.*|catalog.*)|/root/.*)$' || true)
  [ -z "$left" ] || { echo "$left"; wrong "a purge leaves what is listed above"; }
  lost=$(comm -23 /tmp/before /tmp/after)
  [ -z "$lost" ] || { echo "$lost"; wrong "a purge takes what is listed above"; }
  [ -s /var/lib/whimbrel/whimbrel.db ] || wrong "a purge deletes the subscribers"
  echo "ok - purged: subscribers, their key and the user are left, and nothing else"
  exit 0
fi

# ---- outside ------------------------------------------------------------------------------------------------------------------------------------------------
. "$here/../needs.sh"
PATH=$PATH:/usr/sbin:/sbin
needs_tools dpkg-deb strip debootstrap systemd-nspawn
[ -x "$WHIMBREL" ] || skip "no program to test: there is no $WHIMBREL"
[ "$(id -u)" = 0 ] || skip "only root can boot systemd in a container"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
roots=${DEBIAN_ROOTS:-$tmp}
[ $# -gt 0 ] || set -- bookworm trixie

mkdir "$tmp/packages" "$tmp/put"
mknod -m 666 "$tmp/tun" c 10 200 # as udev has it
PROGRAM=$WHIMBREL "$here/../../x" package deb "$tmp" >"$tmp/built" 2>"$tmp/out" || { tail -n 5 "$tmp/out"; echo "WRONG: the packages cannot be built"; exit 1; }
mv "$(grep '/whimbrel_' "$tmp/built")" "$tmp/packages/old.deb"
# The same as a newer version, whose configuration has one line more.
dpkg-deb --raw-extract "$tmp/packages/old.deb" "$tmp/newer"
sed -i 's/^Version: .*/&+1/' "$tmp/newer/DEBIAN/control"
echo "# A line of the newer package." >>"$tmp/newer/etc/whimbrel/whimbrel.yaml"
dpkg-deb --root-owner-group -Zxz -z1 --build "$tmp/newer" "$tmp/packages/new.deb" >/dev/null
rm -rf "$tmp/newer"
install -m 755 "${BASH_SOURCE[0]}" "$tmp/put/packages_systemd.sh"
cat >"$tmp/drive.service" <<'UNIT'
[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/put/packages_systemd.sh drive
StandardOutput=file:/result/out
StandardError=file:/result/out
ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS >/result/status; systemctl exit --force'
UNIT

failed=0
for release; do
  root=$roots/$release
  if [ ! -x "$root/usr/bin/systemctl" ]; then
    mkdir -p "$root"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,iproute2,libgcc-s1 "$release" "$root" "${DEBIAN_ARCHIVE:-http://deb.debian.org/debian}" >"$tmp/out" 2>&1 ||
      { tail -n 3 "$tmp/out"; skip "$release cannot be fetched"; }
  fi
  mkdir "$tmp/result"
  # What is written goes to memory; the hierarchy of cgroups is the one that newer releases ask for.
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout 900 systemd-nspawn --quiet --directory="$root" --volatile=overlay --register=no --keep-unit --private-network --bind="$tmp/tun:/dev/net/tun" \
    --bind-ro="$tmp/packages:/packages" --bind-ro="$tmp/put:/put" --bind-ro="$tmp/drive.service:/etc/systemd/system/drive.service" --bind="$tmp/result:/result" \
    --console=pipe --boot systemd.wants=drive.service </dev/null >"$tmp/console" 2>&1 || true
  sed "s|^ok - |ok - $release: |" "$tmp/result/out" 2>/dev/null || tail -n 15 "$tmp/console"
  [ "$(cat "$tmp/result/status" 2>/dev/null)" = 0 ] || { echo "not ok - packages under the systemd of $release"; failed=1; }
  rm -rf "$tmp/result"
done
exit $failed
