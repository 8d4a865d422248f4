#!/usr/bin/env bash
# A core in its own network namespace: it is backed up while it runs, a restore under it is refused, and after its end the backup is
# restored, also onto a host that has nothing. A backup that does not fit on the disk leaves nothing behind.
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
w backup "$tmp/b.tar" || wrong "the running core cannot be backed up"
tar -tf "$tmp/b.tar" >"$tmp/out" || wrong "tar does not read the backup"
for name in manifest.json subscribers.db subscribers.key configuration.yaml; do
  grep -qx "$name" "$tmp/out" || wrong "the backup has no $name"
done
tar -xOf "$tmp/b.tar" manifest.json | grep -q '"subscribers": 2' || wrong "the manifest does not say two subscribers"
! tar -xOf "$tmp/b.tar" subscribers.db | grep -qa "$K" || wrong "a key stands in clear in the store"
curl -sf http://127.0.0.1:8081/metrics >/dev/null || wrong "the core does not answer after a backup"
refused "is in use: stop the core" restore "$tmp/b.tar"
refused "is locked\|keeps the subscribers' file" migrate --back
add 3
kill -TERM "$core"
wait "$core"

head -c 5000 "$tmp/b.tar" >"$tmp/cut.tar"
refused "cut short" restore "$tmp/cut.tar"
refused "is no backup of whimbrel" restore "$WHIMBREL"
[ "$(count)" = 3 ] || wrong "a refused restore changed the store"
w restore "$tmp/b.tar" || wrong "the backup cannot be restored"
[ "$(count)" = 2 ] || wrong "the restored store has not two subscribers"
[ -s "$state/w.db.before-restore" ] || wrong "the former store was not kept"
start core run
kill -TERM $!
wait $!

w migrate --back || wrong "the layout does not go back"
grep -q "layout 1" "$tmp/out" || wrong "the layout is not 1"
[ "$(count)" = 2 ] || wrong "subscribers were lost between the layouts"

rm -rf "$state" && mkdir "$state" && mv "$tmp/core.yaml" "$tmp/former.yaml"
w restore "$tmp/b.tar" || wrong "a host with nothing cannot be restored"
cmp -s "$tmp/core.yaml" "$tmp/former.yaml" || wrong "the configuration was not restored"
[ "$(count)" = 2 ] || wrong "the new host has not two subscribers"

# A disk of 64 KiB: the backup does not fit, and neither does the restored store.
mkdir "$tmp/small"
if unshare --mount sh -c "mount -t tmpfs -o size=64k none '$tmp/small'" 2>/dev/null; then
  unshare --mount bash -c "
    mount -t tmpfs -o size=64k none '$tmp/small' && cd '$tmp/small' || exit 9
    '$WHIMBREL' backup b -c '$tmp/core.yaml' 2>err && exit 1
    grep -q 'no room is left' err && [ \"\$(ls)\" = err ] || { ls; cat err; exit 2; }
    sed 's|$state|$tmp/small|' '$tmp/core.yaml' >small.yaml
    '$WHIMBREL' restore '$tmp/b.tar' -c small.yaml 2>err && exit 3
    grep -q 'no room is left' err && [ ! -e w.db ] && [ ! -e w.db.restoring ] || { ls; cat err; exit 4; }
  " >"$tmp/out" 2>&1 || wrong "a full disk (step $?)"
fi
echo "backed up while it ran; refused under a core, cut, foreign, on a full disk; restored twice"
