#!/usr/bin/env bash
# A client without a login sends requests until the audit log's entries would be pushed out; a user with access to the host edits the
# log; a token is revoked while its live stream is open.
#
# Usage: audit_flood.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -uo pipefail
tools=(curl python3)
logs=(core.log out)
. "$(dirname "${BASH_SOURCE[0]}")/../netns.sh"

cat >"$tmp/core.yaml" <<YAML
store: { path: $tmp/w.db, key_file: $tmp/w.key }
api: { address: "127.0.0.1:8070" }
n2: { addresses: [127.0.0.1], sctp: udp }
audit: { mirror: $tmp/log }
YAML
# A program that does not know the key is tested all the same.
"$WHIMBREL" check "$tmp/core.yaml" >/dev/null 2>&1 || sed -i '/^audit:/d' "$tmp/core.yaml"
cat >"$tmp/syslog.py" <<'PY'
import os, socket, sys
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(sys.argv[1])
with open(sys.argv[2], "wb", buffering=0) as out:
    while True:
        out.write(receiver.recv(65536) + b"\n")
PY
python3 "$tmp/syslog.py" "$tmp/log" "$tmp/mirrored" &
running+=($!)
for _ in $(seq 200); do [ -S "$tmp/log" ] && break; sleep 0.05; done
start core run
failed=0
ok() { echo "ok - $1"; }
not_ok() { echo "not ok - $1"; failed=1; }
log=$tmp/w.db.audit
w() { "$WHIMBREL" "$@" -c "$tmp/core.yaml" >"$tmp/out" 2>&1; }
w subscriber add 999700000000001 --k 465b5ce8b199b49faa5f0a2ee238a6bc --opc cd63cb71954a9f4e48a5994e37a02baf || wrong "no subscriber can be added"

before=$(stat -c %s "$log")
python3 - <<'PY' || wrong "requests are not answered"
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 8070, timeout=20)
for i in range(3000):
    if i % 2:
        connection.request("GET", "/api/v1/subscribers/imsi-%015d" % i)
    else:
        connection.request("DELETE", "/api/v1/users/u%d" % i, headers={"Authorization": "Bearer x%d" % i})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 401, answer.status
PY
grown=$(($(stat -c %s "$log") - before))
if [ "$grown" -lt 20000 ]; then
  ok "3,000 refused requests take $grown octets of the audit log"
else
  not_ok "3,000 refused requests take $grown octets of the audit log: 250,000 push everything else out"
fi

api=http://127.0.0.1:8070/api/v1
link=$("$WHIMBREL" console --json -c "$tmp/core.yaml" | sed -n 's/.*"url": *"[^"]*#\/link\/\([0-9a-f]*\)".*/\1/p')
csrf=$(curl -s -c "$tmp/jar" -H 'Content-Type: application/json' -d "{\"link\": \"$link\"}" "$api/session" | sed -n 's/.*"csrf":"\([0-9a-f]*\)".*/\1/p')
send() { curl -s -b "$tmp/jar" -H "X-CSRF-Token: $csrf" -H 'Content-Type: application/json' "$@"; }
token=$(send -d '{"name": "thief", "scopes": ["read"]}' "$api/tokens" | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
[ -n "$token" ] || wrong "no token can be made"
curl -sN --max-time 30 -H "Authorization: Bearer $token" -H 'Accept: text/event-stream' "$api/events" >"$tmp/events" &
stream=$!
for _ in $(seq 100); do [ -s "$tmp/events" ] && break; sleep 0.05; done
[ -s "$tmp/events" ] || wrong "there is no live stream"
send -X DELETE "$api/tokens/thief" >/dev/null
for _ in $(seq 100); do kill -0 $stream 2>/dev/null || break; sleep 0.05; done
if kill -0 $stream 2>/dev/null; then
  not_ok "a live stream goes on 5 s after its token was revoked"
else
  ok "a live stream ends when its token is revoked"
fi

kill -TERM "${running[1]}"
wait "${running[1]}"
counted=$(awk '/ outcome=401/ { n += match($0, / times=[0-9]+/) ? substr($0, RSTART + 7, RLENGTH - 7) : 1 } END { print n }' "$log")
if [ "$counted" = 3000 ]; then ok "each refused request is counted"; else not_ok "$counted of 3,000 refused requests are counted"; fi
if w audit verify; then ok "the chain of the audit log is whole"; else not_ok "the audit log has no chain that can be verified"; fi
cp "$log" "$tmp/whole"
sed -i 's/ request="subscriber add"/ request="subscriber list"/' "$log"
if ! w audit verify && grep -q 'w.db.audit:2: ' "$tmp/out"; then ok "a line that was changed is found"; else not_ok "a line that was changed is not found"; fi
sed '2d' "$tmp/whole" >"$log"
if ! w audit verify && grep -q 'w.db.audit:2: ' "$tmp/out"; then ok "a line that was removed is found"; else not_ok "a line that was removed is not found"; fi
for _ in $(seq 50); do [ "$(wc -l <"$tmp/mirrored")" -ge "$(wc -l <"$tmp/whole")" ] && break; sleep 0.1; done
if [ "$(wc -l <"$tmp/mirrored")" = "$(wc -l <"$tmp/whole")" ] && ! grep -vqE '^<109>1 [0-9T:.Z-]+ [^ ]+ whimbrel [0-9]+ audit - caller=' "$tmp/mirrored"; then
  ok "each line reached the syslog as well"
else
  not_ok "the syslog lacks lines of the audit log"
fi
exit $failed
