#!/usr/bin/env bash
# An unprivileged user of the core's host tries to command the core: over the API's port on loopback, over the socket of commands (also one whose mode
# an administrator has opened), and by answering root's commands at the port while the core is down. In a network namespace of its own.
#
# Usage: api_loopback.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3 setpriv)
logs=(core.log)
. "$(dirname "$0")/../netns.sh"
[ "$(id -u)" = 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null || skip "another user cannot be taken on here"
unprivileged() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

# The folder is open to all, so that what protects the core is its own.
chmod 755 "$tmp"
program=$WHIMBREL
unprivileged test -x "$program" || { cp "$WHIMBREL" "$tmp/whimbrel"; program=$tmp/whimbrel; } # where that user can run it
cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db, key_file: $tmp/core.key }
END
chmod 644 "$tmp/core.yaml"
start core run
core=${running[-1]}
"$WHIMBREL" gnb list --config "$tmp/core.yaml" >/dev/null || wrong "root's commands do not reach the core"

status() { unprivileged curl -s -o /dev/null -w '%{http_code}' --max-time 4 "$@"; }
for request in "POST links" "POST reload" "POST overload/start" "POST log-level/trace" "POST subscribers" "POST tokens" "POST users" "PUT config" \
  "GET subscribers" "GET ues" "GET config" "GET audit"; do
  answered=$(status -X "${request% *}" "http://127.0.0.1:8081/api/v1/${request#* }")
  [ "$answered" = 401 ] || wrong "$request over loopback is answered with $answered"
done
echo "ok - requests without authentication over loopback are refused"
[ "$(status http://127.0.0.1:8081/metrics)" = 200 ] || wrong "/metrics needs a login on loopback"

unprivileged "$program" console --config "$tmp/core.yaml" >"$tmp/out" 2>&1 && wrong "an unprivileged user gets a link to the console: $(cat "$tmp/out")"
echo "ok - the program does not command the core for that user"
if [ -S "$tmp/core.db.socket" ]; then
  chmod 666 "$tmp/core.db.socket"
  answered=$(status --unix-socket "$tmp/core.db.socket" -X POST http://localhost/api/v1/links)
  [ "$answered" = 403 ] || wrong "the socket answers that user with $answered"
  echo "ok - the socket serves root and the core's user only, whatever its mode"
fi

# The core is down, and another process has its port.
kill -9 "$core"
wait "$core" 2>/dev/null || true
cat >"$tmp/fake.py" <<'END'
import socket
listener = socket.create_server(("127.0.0.1", 8081))
print("listens", flush=True)
while True:
    stream, _ = listener.accept()
    print(stream.recv(4096).decode(errors="replace"), flush=True)
    body = b'{"path": "/@198.51.100.66/#/link/0", "expires_s": 600}'
    stream.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    stream.close()
END
chmod 644 "$tmp/fake.py"
unprivileged env PATH=/usr/bin:/bin python3 "$tmp/fake.py" >"$tmp/fake.log" &
running+=($!)
for _ in $(seq 100); do grep -qs listens "$tmp/fake.log" && break; sleep 0.05; done
grep -qs listens "$tmp/fake.log" || exit 75
timeout 5 "$WHIMBREL" console --config "$tmp/core.yaml" >"$tmp/out" 2>&1 && wrong "root is given another user's link to the console: $(head -n 1 "$tmp/out")"
grep -qi authorization "$tmp/fake.log" && wrong "another user is sent root's credentials"
echo "ok - root's commands are not answered by another user at the core's port, and send nothing there"
