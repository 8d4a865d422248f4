#!/usr/bin/env bash
# A forged backup names files elsewhere, such as a job of cron, and root restores it: nothing is written outside the core's
# folders, by no path, link or special file, and nothing at all of a sealed backup that was changed.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../needs.sh"
needs_tools python3 mkfifo
[ -x "$WHIMBREL" ] || skip "no program to test: there is no $WHIMBREL"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0
ok() { echo "ok - $1"; }
not_ok() { echo "not ok - $1"; tail -n 5 "$tmp/out"; status=1; }

etc=$tmp/etc/whimbrel state=$tmp/var/lib/whimbrel
mkdir -p "$etc" "$state" "$tmp/etc/cron.d"
yaml=$etc/whimbrel.yaml
echo "store: { path: $state/w.db, key_file: $state/w.key }" >"$yaml"
"$WHIMBREL" subscriber add 999700000000001 --k 465b5ce8b199b49faa5f0a2ee238a6bc --opc cd63cb71954a9f4e48a5994e37a02baf -c "$yaml" >"$tmp/out" 2>&1 &&
  { "$WHIMBREL" backup --unsealed "$tmp/good" -c "$yaml" || "$WHIMBREL" backup "$tmp/good" -c "$yaml"; } >"$tmp/out" 2>&1 ||
  { not_ok "a backup is written"; exit 1; }
rm "$yaml"

# forge PATH: the backup with one more file, which belongs there.
forge() {
  python3 - "$tmp/good" "$tmp/forged" "$1" <<'PYTHON'
import hashlib, io, json, sys, tarfile
source, out, path = sys.argv[1:]
content = b"* * * * * root id\n"
with tarfile.open(source) as good, tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as forged:
    files = [(m.name, good.extractfile(m).read()) for m in good.getmembers()]
    manifest = json.loads(files[0][1])
    manifest["files"].append(
        {"name": "named/9", "octets": len(content), "sha256": hashlib.sha256(content).hexdigest(), "path": path})
    files[0] = ("manifest.json", json.dumps(manifest).encode())
    for name, octets in files + [("named/9", content)]:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(octets), 0o600
        forged.addfile(member, io.BytesIO(octets))
PYTHON
}
# restore FILE OPTION...: a restore onto a host without configuration, where the store's folder is allowed, by a program that asks for such options or not.
restore() {
  rm -f "$yaml"
  "$WHIMBREL" restore "$@" -c "$yaml" >"$tmp/out" 2>&1 || "$WHIMBREL" restore --unauthenticated --allow "$state" "$@" -c "$yaml" >"$tmp/out" 2>&1
}
# stays_out NAME TEXT PATH [OPTION...]: a restore that names the path is refused with that text, and no file is left anywhere.
stays_out() {
  local name=$1 text=$2
  forge "$3"
  shift 3
  if restore "$tmp/forged" "$@"; then
    not_ok "$name: it was restored"
  elif ! grep -qF -- "$text" "$tmp/out"; then
    not_ok "$name: it does not say '$text'"
  elif [ -n "$(find "$tmp/etc" -type f)" ] || [ -n "$(find "$state" -name '*.restoring')" ]; then
    not_ok "$name: $(find "$tmp/etc" -type f) was written"
  else
    ok "$name"
  fi
  rm -f "$tmp"/etc/cron.d/* "$etc"/*.before-restore "$etc/x"
}

ln -s ../cron.d "$etc/link"
mkfifo "$etc/pipe"
stays_out "a manifest that names a job of cron is refused" "add --allow $tmp/etc/cron.d" "$tmp/etc/cron.d/job"
stays_out "a manifest that leads there by '..' is refused" 'a path with `..`' "$etc/../cron.d/job"
stays_out "a manifest that leads there by a link is refused" "has a symbolic link on the way" "$etc/link/job" --allow "$etc"
stays_out "a manifest that names a pipe or a device is refused" "is no regular file" "$etc/pipe"
rm "$etc/link" "$etc/pipe"

forge "$tmp/etc/cron.d/job"
if restore "$tmp/forged" --allow "$tmp/etc/cron.d" && [ -s "$tmp/etc/cron.d/job" ] && [ "$(stat -c %a "$tmp/etc/cron.d/job")" = 600 ]; then
  ok "what the operator allows is written"
else
  not_ok "what the operator allows is written"
fi

if "$WHIMBREL" restore "$tmp/good" -c "$yaml" >"$tmp/out" 2>&1; then
  not_ok "a backup that is not sealed is restored on demand alone"
else
  ok "a backup that is not sealed is restored on demand alone"
fi

# A sealed backup of several chunks, with one bit changed near its end, then cut at the border of a chunk.
head -c 200000 /dev/zero >"$state/w.db.accounts"
ls "$yaml" >/dev/null && "$WHIMBREL" backup keygen "$tmp/key" >"$tmp/out" 2>&1 && "$WHIMBREL" backup --recipient "$tmp/key.pub" "$tmp/sealed" -c "$yaml" >"$tmp/out" 2>&1 ||
  not_ok "a backup is sealed"
before=$(cd "$tmp" && find etc var -type f -exec sha256sum {} + | sort)
touch "$state/w.db.restoring" # the first file that a restore would make
python3 - "$tmp/sealed" "$tmp/changed" "$tmp/cut" <<'PYTHON' 2>>"$tmp/out" || not_ok "a sealed backup can be changed for this test"
import sys
octets = bytearray(open(sys.argv[1], "rb").read())
head, chunk = 97, 65552
open(sys.argv[3], "wb").write(octets[: head + (len(octets) - head - 1) // chunk * chunk])
octets[-100] ^= 1
open(sys.argv[2], "wb").write(octets)
PYTHON
for changed in changed cut; do
  if "$WHIMBREL" restore --key "$tmp/key" "$tmp/$changed" -c "$yaml" >"$tmp/out" 2>&1 || ! grep -q "was cut short" "$tmp/out" ||
    [ ! -e "$state/w.db.restoring" ]; then
    not_ok "a sealed backup ($changed) is refused before anything is written"
  else
    ok "a sealed backup ($changed) is refused before anything is written"
  fi
done
rm -f "$state/w.db.restoring"
[ "$before" = "$(cd "$tmp" && find etc var -type f -exec sha256sum {} + | sort)" ] || not_ok "refused backups change no file"
if "$WHIMBREL" restore --key "$tmp/key" "$tmp/sealed" -c "$yaml" >"$tmp/out" 2>&1; then
  ok "a sealed backup is restored with its key"
else
  not_ok "a sealed backup is restored with its key"
fi
exit $status
