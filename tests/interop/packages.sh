#!/usr/bin/env bash
# The Debian packages of $WHIMBREL and of the programs beside it are written, and lintian finds nothing in them; the core's is installed below a folder and used; systemd's own tools judge its units; umoci unpacks the image, whose
# program runs in it; the chart's manifests are checked.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/../needs.sh"
PATH=$PATH:/usr/sbin:/sbin
needs_tools dpkg-deb strip python3
[ -x "$WHIMBREL" ] || skip "no program to test: there is no $WHIMBREL"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
wrong() { echo "WRONG: $1"; [ ! -e "$tmp/out" ] || tail -n 20 "$tmp/out"; exit 1; }
without=()

PROGRAM=$WHIMBREL "$root/x" package deb "$tmp" >"$tmp/packages" 2>"$tmp/out" || wrong "the packages cannot be built"
[ "$(cd "$tmp" && sha256sum --check --quiet SHA256SUMS 2>&1 && wc -l <SHA256SUMS)" = "$(grep -c '\.deb$' "$tmp/packages")" ] || wrong "SHA256SUMS does not have the sums of all packages"
package=$(grep '/whimbrel_' "$tmp/packages")
for name in whimbrel-broker whimbrel-lab; do
  dpkg-deb --contents "$(grep "/${name}_" "$tmp/packages")" >"$tmp/out" || wrong "dpkg-deb does not read the package of $name"
  for file in usr/bin/$name usr/share/man/man1/$name.1.gz usr/share/bash-completion/completions/$name; do
    grep -q "root/root .* \./$file\$" "$tmp/out" || wrong "the package of $name has no $file of root"
  done
  ! grep -q 'usr/bin/whimbrel$' "$tmp/out" || wrong "the package of $name has the core"
done
# Where the tool was built beside the core, it has a package, too.
if harvest=$(grep '/whimbrel-harvest_' "$tmp/packages"); then
  dpkg-deb --extract "$harvest" "$tmp/harvest" || wrong "the package of whimbrel-harvest cannot be extracted"
  for file in usr/bin/whimbrel-harvest usr/lib/whimbrel-harvest usr/share/man/man1/whimbrel-harvest.1.gz; do
    [ -e "$tmp/harvest/$file" ] || wrong "the package of whimbrel-harvest has no $file"
  done
  ls "$tmp/harvest/usr/lib/whimbrel-harvest/"lib*_preload.so >"$tmp/out" 2>&1 || wrong "the package of whimbrel-harvest lacks the library that it preloads"
  "$tmp/harvest/usr/bin/whimbrel-harvest" --version | grep -q '^whimbrel-harvest ' || wrong "whimbrel-harvest does not run from its package"
fi
dpkg-deb --contents "$package" >"$tmp/out" || wrong "dpkg-deb does not read it"
for file in usr/bin/whimbrel etc/whimbrel/whimbrel.yaml usr/lib/systemd/system/whimbrel.service usr/lib/sysusers.d/whimbrel.conf \
  usr/share/man/man1/whimbrel-backup.1.gz usr/share/bash-completion/completions/whimbrel; do
  grep -q "root/root .* \./$file\$" "$tmp/out" || wrong "the package has no $file of root"
done
dpkg-deb --field "$package" Depends Conffiles >"$tmp/out"
grep -q 'libc6 (>= 2\.' "$tmp/out" || wrong "it depends on no C library"

# Spelling is left out: it looks for words among the octets of programs, for half a minute.
if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error,warning --dont-check-part binaries/spelling "$tmp"/*.deb >"$tmp/out" 2>&1 || wrong "lintian finds faults in the packages"
else
  without+=("lintian")
fi

# Installed below a folder, its scripts run outside (dpkg's own way of making images).
target=$tmp/root
mkdir -p "$target"/var/lib/dpkg/{info,updates} "$target/etc"
touch "$target/var/lib/dpkg/status" "$target/etc/passwd" "$target/etc/group"
if [ "$(id -u)" = 0 ]; then
  dpkg --root="$target" --force-script-chrootless --force-depends --install "$package" >"$tmp/out" 2>&1 || wrong "dpkg does not install it"
  dpkg --root="$target" --status whimbrel | grep -q '^Status: install ok installed' || wrong "it is not installed"
  dpkg --root="$target" --status whimbrel | grep -q '/etc/whimbrel/whimbrel.yaml' || wrong "its configuration is no conffile"
  if command -v systemd-sysusers >/dev/null; then
    grep -q '^whimbrel:' "$target/etc/passwd" || wrong "the user was not made"
    [ "$(stat -c %a "$target/var/lib/whimbrel")" = 700 ] || wrong "others can read the store's folder"
    [ "$(stat -c %a "$target/etc/whimbrel/whimbrel.yaml")" = 640 ] || wrong "others can read the configuration"
  fi
else
  dpkg-deb --extract "$package" "$target" || wrong "it cannot be extracted"
  without+=("installed by root")
fi
"$target/usr/bin/whimbrel" check "$target/etc/whimbrel/whimbrel.yaml" >"$tmp/out" 2>&1 || wrong "its configuration is not valid"
grep -q "/var/lib/whimbrel/whimbrel.db" "$tmp/out" || wrong "its store is elsewhere"
bash -n "$target/usr/share/bash-completion/completions/whimbrel" || wrong "the completions are no bash"

unit=$target/usr/lib/systemd/system/whimbrel.service
if command -v systemd-analyze >/dev/null; then
  # 20 is an exposure of 2.0.
  systemd-analyze security --offline=true --no-pager --threshold=20 "$unit" >"$tmp/out" 2>&1 || wrong "the service is exposed above 2.0"
  grep -o 'Overall exposure.*' "$tmp/out"
  sed "s|/usr/bin/whimbrel|$target/usr/bin/whimbrel|" "$unit" >"$tmp/whimbrel.service"
  systemd-analyze verify --man=no "$tmp/whimbrel.service" >"$tmp/out" 2>&1 || wrong "systemd does not accept the unit"
else
  without+=("systemd-analyze")
fi

# What the installation does under systemd: the subscribers' key becomes a credential, once; a key or subscribers that are there stay.
grep -qx 'LoadCredentialEncrypted=whimbrel.key' "$unit" || wrong "the service gets no credential"
if [ "$(id -u)" = 0 ] && command -v systemd-creds >/dev/null && unshare --mount true 2>/dev/null; then
  { sed -n '/^make_key()/,/^}/p' "$root/packaging/debian/postinst"; echo 'make_key'; } >"$tmp/make_key"
  unshare --mount sh -c "
    set -e
    cp -a /etc '$tmp/etc' && rm -rf '$tmp/etc/credstore.encrypted' && mount --bind '$tmp/etc' /etc
    mkdir -p '$tmp'/lib/systemd '$tmp'/lib/whimbrel && mount --bind '$tmp/lib' /var/lib && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system
    sealed=/etc/credstore.encrypted/whimbrel.key link=/var/lib/whimbrel/whimbrel.key
    touch /var/lib/whimbrel/whimbrel.db; sh '$tmp/make_key'; [ ! -e \$sealed ] || { echo 'a key for a store that has one'; exit 1; }
    rm /var/lib/whimbrel/whimbrel.db; sh '$tmp/make_key' || { [ -z \"\$(ls /etc/credstore.encrypted /var/lib/whimbrel | grep whimbrel.key)\" ]; exit 77; }
    [ \$(stat -c %a /etc/credstore.encrypted) = 700 ] && [ \$(readlink \$link) = /run/credentials/whimbrel.service/whimbrel.key ]
    cp \$sealed '$tmp/sealed'; sh '$tmp/make_key'; cmp \$sealed '$tmp/sealed'
    mkdir -p -m 700 /run/credentials/whimbrel.service
    (umask 077; systemd-creds decrypt --name=whimbrel.key \$sealed /run/credentials/whimbrel.service/whimbrel.key)
    printf 'store: { path: /var/lib/whimbrel/whimbrel.db, key_file: %s }\n' \$link >/run/w.yaml
    K=465b5ce8b199b49faa5f0a2ee238a6bc
    '$target/usr/bin/whimbrel' subscriber add 999700000000001 --k \$K --opc \$K -c /run/w.yaml
    CREDENTIALS_DIRECTORY=/run/credentials/whimbrel.service '$target/usr/bin/whimbrel' subscriber list -c /run/w.yaml | grep imsi-999700000000001
    rm -r /run/credentials; ! '$target/usr/bin/whimbrel' subscriber list -c /run/w.yaml" >"$tmp/out" 2>&1
  case $? in
    0) grep -q 'is a credential of the service' "$tmp/out" || wrong "a stopped service's credential is not named" ;;
    77) without+=("the subscribers' key as a credential: systemd-creds seals nothing here") ;;
    *) wrong "the installation makes no credential that the core can use" ;;
  esac
else
  without+=("the subscribers' key as a credential")
fi

# The core as the service's user with the service's capabilities alone.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && unshare --net true 2>/dev/null; then
  mkdir "$tmp/state" && chown 64999 "$tmp/state" && chmod 755 "$tmp"
  printf 'store: { path: %s/w.db, key_file: %s/w.key }\nunit: { directory: %s/run }\nn2: { sctp: raw }\n' "$tmp/state" "$tmp/state" "$tmp/state" >"$tmp/w.yaml"
  # As udev has it on most systems; in a container the device may be root's alone.
  unshare --net --mount bash -c "
    mknod -m 666 '$tmp/tun' c 10 200 && mount --bind '$tmp/tun' /dev/net/tun
    ip link set lo up; cd '$tmp/state'
    setpriv --reuid 64999 --regid 64999 --clear-groups --no-new-privs --inh-caps -all,+net_admin,+net_raw --ambient-caps -all,+net_admin,+net_raw \
      --bounding-set -all,+net_admin,+net_raw '$target/usr/bin/whimbrel' run --strict -c '$tmp/w.yaml' 2>'$tmp/state/log' &
    core=\$!
    for _ in \$(seq 400); do grep -qs ' ready' '$tmp/state/log' && break; kill -0 \$core || exit 1; sleep 0.05; done
    grep -q ' ready' '$tmp/state/log' && kill -TERM \$core && wait \$core" >"$tmp/out" 2>&1 || { cat "$tmp/state/log"; wrong "the core does not start as the service's user"; }
else
  without+=("the core as the service's user")
fi

"$root/packaging/oci/image.py" "$WHIMBREL" "$tmp/oci" --tag test >"$tmp/out" 2>&1 || wrong "the image cannot be written"
if command -v umoci >/dev/null; then
  umoci stat --image "$tmp/oci:test" >"$tmp/out" 2>&1 || wrong "umoci does not read the image"
  umoci unpack --rootless --image "$tmp/oci:test" "$tmp/bundle" >"$tmp/out" 2>&1 || wrong "umoci does not unpack the image"
  rootfs=$tmp/bundle/rootfs
  # The specification knows ports of TCP and UDP alone; podman refuses an image that names another one.
  python3 - "$tmp/oci" >"$tmp/out" 2>&1 <<'PYTHON' || wrong "the image names ports that container runtimes refuse"
import json, pathlib, sys
def blob(entry):
    return json.loads((pathlib.Path(sys.argv[1]) / "blobs" / entry["digest"].replace(":", "/")).read_text())
index = json.loads((pathlib.Path(sys.argv[1]) / "index.json").read_text())
ports = blob(blob(index["manifests"][0])["config"])["config"]["ExposedPorts"]
assert all(port.endswith(("/tcp", "/udp")) for port in ports), ports
PYTHON
  user=(); [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
  if unshare --mount "${user[@]}" true 2>/dev/null; then
    unshare --mount "${user[@]}" chroot "$rootfs" /usr/bin/whimbrel check /etc/whimbrel/whimbrel.yaml >"$tmp/out" 2>&1 ||
      wrong "the image's program does not run in its root file system"
    if [ -e /usr/share/zoneinfo/Europe/Berlin ]; then
      echo 'amf: { time_zone: Europe/Berlin }' >"$rootfs/zone.yaml"
      unshare --mount "${user[@]}" chroot "$rootfs" /usr/bin/whimbrel check /zone.yaml >"$tmp/out" 2>&1 || wrong "the image knows no time zones"
      rm "$rootfs/zone.yaml"
    else
      without+=("the image's time zones: this host has none")
    fi
  else
    without+=("the image's program in its root file system")
  fi

  # A unit in the image's root file system, as compose.yaml has it: its command, its capabilities and its device alone, on a read-only root.
  if [ "$(id -u)" = 0 ] && python3 -c 'import yaml' 2>/dev/null && command -v setpriv >/dev/null && unshare --net --pid --fork true 2>/dev/null; then
    python3 - "$root/packaging/oci/compose.yaml" >"$tmp/compose" <<'PYTHON' || wrong "compose.yaml is not what a unit needs"
import sys, yaml
service = yaml.safe_load(open(sys.argv[1]))["services"]["whimbrel"]
assert service["cap_drop"] == ["ALL"] and service["devices"] == ["/dev/net/tun"] and service["read_only"] and service["user"] == "0"
folders = [mount.split(":")[0] for mount in service["tmpfs"]] + [volume.split(":")[1] for volume in service["volumes"]]
assert folders == ["/run/whimbrel", "/var/lib/whimbrel"], folders
print(",".join("+" + capability.lower() for capability in service["cap_add"]))
print(" ".join(service["command"]))
PYTHON
    { read -r capabilities; read -r command; } <"$tmp/compose"
    mkdir -p "$rootfs"/{proc,dev/net,run/whimbrel,var/lib/whimbrel}
    # chroot itself needs sys_chroot beside what compose.yaml gives.
    unshare --net --mount --pid --fork bash -c "
      mount --bind '$rootfs' '$rootfs' && mount -t proc proc '$rootfs/proc' && mount -t tmpfs tmpfs '$rootfs/dev' && mkdir '$rootfs/dev/net'
      mount -t tmpfs -o mode=0700 tmpfs '$rootfs/run/whimbrel' && mount -t tmpfs -o mode=0700,uid=10001,gid=10001 tmpfs '$rootfs/var/lib/whimbrel'
      mknod -m 666 '$rootfs/dev/null' c 1 3 && mknod -m 600 '$rootfs/dev/net/tun' c 10 200 && mount -o remount,bind,ro '$rootfs'
      ip link set lo up
      setpriv --no-new-privs --inh-caps -all --bounding-set -all,$capabilities,+sys_chroot chroot '$rootfs' /usr/bin/whimbrel $command 2>'$tmp/unit.log' &
      manager=\$!
      for _ in \$(seq 400); do grep -qs 'the unit is complete' '$tmp/unit.log' && break; kill -0 \$manager || exit 1; sleep 0.05; done
      chroot '$rootfs' /usr/bin/whimbrel unit --config /etc/whimbrel/whimbrel.yaml
      grep -q 'the unit is complete' '$tmp/unit.log' && kill -TERM \$manager && wait \$manager" >"$tmp/out" 2>&1 ||
      { tail -n 20 "$tmp/unit.log"; wrong "no unit runs in the image's root file system"; }
    [ "$(grep -cE '^(cta|cpf|upf)' "$tmp/out")" = 6 ] || wrong "a unit in the image does not have all functions"
  else
    without+=("a unit in the image's root file system")
  fi
else
  without+=("umoci")
fi

"${WHIMBREL_HELM:-python3}" "$root/packaging/helm/check.py" "$root/packaging/helm/whimbrel" "$WHIMBREL" >"$tmp/out" 2>&1 || wrong "the chart"
grep -q '^without' "$tmp/out" && without+=("$(sed -n 's/^without //p' "$tmp/out")")
[ ${#without[@]} = 0 ] || printf 'not tested here: %s\n' "${without[*]}"
echo "the package, the image and the chart are good"
