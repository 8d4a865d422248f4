#!/usr/bin/env bash
# Builds the Debian package of a program: deb.sh PROGRAM FOLDER. Prints the package's path. Needs dpkg-deb and strip, no network.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$(realpath "$1")
out=$(realpath "$2")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root

install -D -m 755 "$program" "$root/usr/bin/whimbrel"
strip --strip-debug "$root/usr/bin/whimbrel"
install -D -m 644 "$here/systemd/whimbrel.service" "$root/usr/lib/systemd/system/whimbrel.service"
install -D -m 644 "$here/systemd/whimbrel.sysusers" "$root/usr/lib/sysusers.d/whimbrel.conf"
install -D -m 644 "$here/systemd/whimbrel.tmpfiles" "$root/usr/lib/tmpfiles.d/whimbrel.conf"
install -D -m 640 "$here/whimbrel.yaml" "$root/etc/whimbrel/whimbrel.yaml"

doc=$root/usr/share/doc/whimbrel
install -D -m 644 "$here/debian/copyright" "$doc/copyright"
install -D -m 644 -t "$doc/examples/prometheus" "$here"/prometheus/*.yml
install -D -m 644 -t "$doc/examples/grafana" "$here"/grafana/*.json
"$program" config --all >"$doc/examples/whimbrel.yaml"
gzip -9n <"$here/../CHANGELOG.md" >"$doc/changelog.gz"

man=$root/usr/share/man/man1
mkdir -p "$man"
"$program" man "$man"
gzip -9n "$man"/*.1
install -d "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
  "$root/usr/share/fish/vendor_completions.d"
"$program" completions bash >"$root/usr/share/bash-completion/completions/whimbrel"
"$program" completions zsh >"$root/usr/share/zsh/vendor-completions/_whimbrel"
"$program" completions fish >"$root/usr/share/fish/vendor_completions.d/whimbrel.fish"

version=$("$program" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
# The newest symbol of the C library that the program asks for.
libc=$(readelf -V "$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -n 1)
install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: whimbrel
Version: $version
Architecture: $architecture
Maintainer: The Whimbrel authors <whimbrel@localhost>
Section: net
Priority: optional
Depends: libc6 (>= $libc), libgcc-s1
Recommends: systemd, iproute2
Installed-Size: $(du -sk "$root" | cut -f1)
Description: 5G core in one program
 AMF, SMF, UPF, UDM and AUSF of a 5G network (3GPP Release 17), with a web
 console, an HTTP API and metrics. It runs as several processes of which each
 may be replaced while UEs are served.
CONTROL
echo /etc/whimbrel/whimbrel.yaml >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "$here/debian/$script" "$root/DEBIAN/$script"; done
(cd "$root" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)

package=$out/whimbrel_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$package" >/dev/null
echo "$package"
