#!/usr/bin/env bash
# A core in its own network namespace: it is backed up while it runs, a restore under it is refused, and after its end the backup is
# restored, sealed or not, also onto a host that has nothing. A backup that does not fit on the disk leaves nothing behind.
set -uo pipefail
tools=(curl tar)
logs=(core.log out)
. "$(dirname "${BASH_SOURCE[0]}")/../netns.sh"

state=$tmp/state
mkdir -p "$state"
cat >"$tmp/core.yaml" <<YAML
store: { path: $state/w.db, key_file: $state/w.key }
api: { address: "127.0.0.1:8081" }
n2: { addresses: [127.0.0.1], sctp: udp }
YAML
K=465b5ce8b199b49faa5f0a2ee238a6bc
w() { "$WHIMBREL" "$@" -c "$tmp/core.yaml" >"$tmp/out" 2>&1; }
add() { w subscriber add "99970000000000$1" --k $K --opc $K || wrong "$1 cannot be added"; }
count() { w subscriber list && grep -c '^imsi-' "$tmp/out"; }
refused() { # refused TEXT COMMAND...
  local text=$1
  shift
  if w "$@"; then wrong "this was not refused: $*"; fi
  grep -q "$text" "$tmp/out" || wrong "$* does not say: $text"
}

add 1
add 2
start core run
core=$!
refused "choose the readers of the backup" backup "$tmp/b.tar"
w backup --unsealed "$tmp/b.tar" || wrong "the running core cannot be backed up"
tar -tf "$tmp/b.tar" >"$tmp/out" || wrong "tar does not read the backup"
for name in manifest.json subscribers.db subscribers.key configuration.yaml; do
  grep -qx "$name" "$tmp/out" || wrong "the backup has no $name"
done
tar -xOf "$tmp/b.tar" manifest.json >"$tmp/out" && grep -q '"subscribers": 2' "$tmp/out" || wrong "the manifest does not say two subscribers"
tar -xOf "$tmp/b.tar" subscribers.db >"$tmp/out" && ! grep -qa "$K" "$tmp/out" || wrong "a key stands in clear in the store"
"$WHIMBREL" backup --unsealed - -c "$tmp/core.yaml" 2>"$tmp/out" | tar -tf - >"$tmp/names" && grep -qx subscribers.db "$tmp/names" || wrong "the running core cannot be backed up to standard output"
[ ! -e "$state/w.db.backup" ] || wrong "a backup to standard output leaves a file"
"$WHIMBREL" backup keygen "$tmp/backup.key" >"$tmp/out" || wrong "no keys for backups are made"
echo "five random words of mine" >"$tmp/words" && chmod 600 "$tmp/words"
w backup --recipient "$tmp/backup.key.pub" "$tmp/b.key" || wrong "the running core cannot be backed up for a key"
w backup --passphrase-file "$tmp/words" "$tmp/b.words" || wrong "the running core cannot be backed up with a passphrase"
for sealed in "$tmp/b.key" "$tmp/b.words"; do
  ! grep -qaE 'SQLite format|manifest.json|subscribers.key' "$sealed" || wrong "$sealed is not sealed"
done
curl -sf http://127.0.0.1:8081/metrics >/dev/null || wrong "the core does not answer after a backup"
refused "is in use: stop the core" restore --unauthenticated "$tmp/b.tar"
refused "is locked\|keeps the subscribers' file" migrate --back
add 3
kill -TERM "$core"
wait "$core"

head -c 5000 "$tmp/b.tar" >"$tmp/cut.tar"
head -c 5000 "$tmp/b.key" >"$tmp/cut.key"
refused "cut short" restore --unauthenticated "$tmp/cut.tar"
refused "cut short" restore --key "$tmp/backup.key" "$tmp/cut.key"
refused "is no backup of whimbrel" restore "$WHIMBREL"
refused "is not sealed" restore "$tmp/b.tar"
refused "is sealed for a key" restore "$tmp/b.key"
refused "is sealed with a passphrase" restore --key "$tmp/backup.key" "$tmp/b.words"
[ "$(count)" = 3 ] || wrong "a refused restore changed the store"
for sealed in "--key $tmp/backup.key $tmp/b.key" "--passphrase-file $tmp/words $tmp/b.words" "--unauthenticated $tmp/b.tar"; do
  # shellcheck disable=SC2086 # options and file
  w restore $sealed || wrong "the backup cannot be restored: $sealed"
  [ "$(count)" = 2 ] || wrong "the restored store has not two subscribers: $sealed"
  add 3
done
w subscriber remove 999700000000003 || wrong "3 cannot be deleted"
[ -s "$state/w.db.before-restore" ] || wrong "the former store was not kept"
start core run
kill -TERM $!
wait $!

w migrate --back || wrong "the layout does not go back"
grep -q "layout 1" "$tmp/out" || wrong "the layout is not 1"
[ "$(count)" = 2 ] || wrong "subscribers were lost between the layouts"

rm -rf "$state" && mkdir "$state" && mv "$tmp/core.yaml" "$tmp/former.yaml"
refused "add --allow $state" restore --key "$tmp/backup.key" "$tmp/b.key" # the archive's own configuration names that folder
w restore --allow "$state" --key "$tmp/backup.key" "$tmp/b.key" || wrong "a host with nothing cannot be restored"
cmp -s "$tmp/core.yaml" "$tmp/former.yaml" || wrong "the configuration was not restored"
[ "$(count)" = 2 ] || wrong "the new host has not two subscribers"

# A key that the service manager gives is used, no other one is made, and a restore leaves it where it is.
"$WHIMBREL" check "$tmp/core.yaml" >"$tmp/out" || wrong "the restored configuration is not valid"
grep -q 'is in the folder of the subscribers' "$tmp/out" || wrong "check does not say that key and subscribers are in one folder"
mkdir "$tmp/credentials" && mv "$state/w.key" "$tmp/credentials/whimbrel.key"
ln -s "$tmp/none" "$state/w.key"
refused "is a credential of the service, which is not running" subscriber list
rm "$state/w.key"
refused "$state/w.key" subscriber list
export CREDENTIALS_DIRECTORY=$tmp/credentials
[ "$(count)" = 2 ] || wrong "the subscribers cannot be read with a credential"
"$WHIMBREL" check "$tmp/core.yaml" >"$tmp/out" || wrong "the configuration is not valid with a credential"
! grep -q 'is in the folder' "$tmp/out" || wrong "check warns of a key that is a credential"
w backup --recipient "$tmp/backup.key.pub" "$tmp/b.credential" || wrong "no backup with a credential"
add 3
w restore --key "$tmp/backup.key" "$tmp/b.credential" || wrong "no restore with a credential"
[ "$(count)" = 2 ] && [ ! -e "$state/w.key" ] || wrong "the restore did not keep the credential"
echo "$(printf 'ab%.0s' $(seq 32))" >"$tmp/credentials/whimbrel.key"
refused "$tmp/credentials/whimbrel.key" restore --key "$tmp/backup.key" "$tmp/b.credential"
unset CREDENTIALS_DIRECTORY
w restore --key "$tmp/backup.key" "$tmp/b.credential" || wrong "the key of a backup is not restored where there is no credential"
[ "$(count)" = 2 ] && [ -s "$state/w.key" ] || wrong "the key of the backup is not there"

# A disk of 64 KiB: the backup does not fit, and neither does the restored store.
mkdir "$tmp/small"
if unshare --mount sh -c "mount -t tmpfs -o size=64k none '$tmp/small'" 2>/dev/null; then
  unshare --mount bash -c "
    mount -t tmpfs -o size=64k none '$tmp/small' && cd '$tmp/small' || exit 9
    '$WHIMBREL' backup --unsealed b -c '$tmp/core.yaml' 2>err && exit 1
    grep -q 'no room is left' err && [ \"\$(ls)\" = err ] || { ls; cat err; exit 2; }
    sed 's|$state|$tmp/small|' '$tmp/core.yaml' >small.yaml
    '$WHIMBREL' restore --unauthenticated '$tmp/b.tar' -c small.yaml 2>err && exit 3
    grep -q 'no room is left' err && [ ! -e w.db ] && [ ! -e w.db.restoring ] || { ls; cat err; exit 4; }
  " >"$tmp/out" 2>&1 || wrong "a full disk (step $?)"
fi
echo "backed up while it ran; refused under a core, cut, foreign, unsealed, on a full disk; restored with a key, a passphrase and without"
