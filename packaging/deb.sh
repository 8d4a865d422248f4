#!/usr/bin/env bash
# Builds the Debian package of a program: deb.sh PROGRAM FOLDER. The name of the program's file is the package's: whimbrel, whimbrel-broker,
# whimbrel-lab or whimbrel-harvest. Prints the package's path. Needs dpkg-deb and strip, no network. DEBFULLNAME and DEBEMAIL, as Debian's own tools
# have them, name the publisher of the package.
#
# A broker and a lab are packages of their own: a broker is another party than an operator, and its host runs no core (an operator installs it for
# `whimbrel-broker settle` alone); emulated UEs do not belong on the host of a core that is in service.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$(realpath "$1")
name=$(basename "$program")
out=$(realpath "$2")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
doc=$root/usr/share/doc/$name

version=$("$program" --version | cut -d' ' -f2)
maintainer="${DEBFULLNAME:-The Whimbrel authors} <${DEBEMAIL:-packages@whimbrel.example}>"

install -D -m 755 "$program" "$root/usr/bin/$name"
strip --strip-debug "$root/usr/bin/$name"
install -D -m 644 "$here/debian/copyright" "$doc/copyright"
install -D -m 644 "$here/debian/$name.lintian-overrides" "$root/usr/share/lintian/overrides/$name"
gzip -9n <"$here/../CHANGELOG.md" >"$doc/CHANGELOG.md.gz"

# Debian's form of a changelog, which its tools read (deb-changelog(5)): the releases, and where their changes are.
grep -q "^## \[$version\] - " "$here/../CHANGELOG.md" || { echo "deb.sh: CHANGELOG.md has no heading of version $version, which $program says it is" >&2; exit 1; }
sed -n 's/^## \[\([0-9][^]]*\)\] - \([0-9-]*\)$/\1 \2/p' "$here/../CHANGELOG.md" | while read -r released on; do
  printf '%s (%s) stable; urgency=medium\n\n  * Release %s: see /usr/share/doc/%s/CHANGELOG.md.gz.\n\n -- %s  %s\n\n' \
    "$name" "$released" "$released" "$name" "$maintainer" "$(LC_ALL=C date -Rud "$on")"
done | gzip -9n >"$doc/changelog.gz"

man=$root/usr/share/man/man1
mkdir -p "$man"
"$program" man "$man"
gzip -9n "$man"/*.1
install -d "$root/DEBIAN"
completions() {
  install -d "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d"
  "$program" completions bash >"$root/usr/share/bash-completion/completions/$name"
  "$program" completions zsh >"$root/usr/share/zsh/vendor-completions/_$name"
  "$program" completions fish >"$root/usr/share/fish/vendor_completions.d/$name.fish"
}
# Its arguments are those of other programs, which a shell completes as it would without it.
[ "$name" = whimbrel-harvest ] || completions

# The core: its service, user, folders and configuration.
core() {
  install -D -m 644 "$here/systemd/whimbrel.service" "$root/usr/lib/systemd/system/whimbrel.service"
  install -D -m 644 "$here/systemd/whimbrel.sysusers" "$root/usr/lib/sysusers.d/whimbrel.conf"
  install -D -m 644 "$here/systemd/whimbrel.tmpfiles" "$root/usr/lib/tmpfiles.d/whimbrel.conf"
  install -D -m 640 "$here/whimbrel.yaml" "$root/etc/whimbrel/whimbrel.yaml"
  install -D -m 644 -t "$doc/examples/prometheus" "$here"/prometheus/*.yml
  install -D -m 644 -t "$doc/examples/grafana" "$here"/grafana/*.json
  "$program" config --all >"$doc/examples/whimbrel.yaml"
  echo /etc/whimbrel/whimbrel.yaml >"$root/DEBIAN/conffiles"
  for script in postinst prerm postrm; do install -m 755 "$here/debian/$script" "$root/DEBIAN/$script"; done
}

case $name in
  whimbrel)
    core
    recommends="systemd, iproute2"
    description='5G core in one program
 AMF, SMF, UPF, UDM and AUSF of a 5G network (3GPP Release 17), with a web
 console, an HTTP API and metrics. It runs as several processes of which each
 may be replaced while UEs are served.'
    ;;
  whimbrel-broker)
    mkdir -p "$doc/examples"
    "$program" config >"$doc/examples/broker.yaml"
    recommends=""
    description='Broker: operators of Whimbrel serve its users without a contract
 Operators reach the broker over HTTP/2 and TLS; it authenticates its users,
 takes usage reports and settles them. Relays and commands of agencies for
 veiled users are in it, and the command with which an operator claims what
 it is due for them.'
    ;;
  whimbrel-lab)
    install -D -m 644 -t "$doc/examples" "$here"/../ran/scenarios/*.yaml
    recommends="whimbrel, whimbrel-broker, iproute2"
    description='Emulated gNBs and UEs for a 5G core, and demonstrations
 gNBs and UEs that use a running core over SCTP and GTP-U, with programs that
 use their PDU sessions, and demonstrations that start a core (package
 whimbrel) in a network namespace of its own.'
    ;;
  whimbrel-harvest)
    # The runtime that `run` preloads into other programs.
    runtime=lib${name//-/_}_preload.so
    install -D -m 644 "$(dirname "$program")/$runtime" "$root/usr/lib/whimbrel-harvest/$runtime"
    strip --strip-debug "$root/usr/lib/whimbrel-harvest/$runtime"
    recommends="valgrind"
    description='Other programs run while a compiled program waits for memory
 Programs and libraries for x86-64 that are linked with --emit-relocs are
 profiled, instrumented and run in the stalls of one another, on the same
 core and without their sources.'
    ;;
  *) echo "deb.sh: no package has the program $name" >&2; exit 1 ;;
esac

architecture=$(dpkg --print-architecture)
# The newest symbol of the C library that the program asks for.
libc=$(readelf -V "$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -n 1)
cat >"$root/DEBIAN/control" <<CONTROL
Package: $name
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: net
Priority: optional
Depends: libc6 (>= $libc), libgcc-s1
${recommends:+Recommends: $recommends
}Installed-Size: $(du -sk "$root" | cut -f1)
Description: $description
CONTROL
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)

package=$out/${name}_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$package" >/dev/null
echo "$package"
