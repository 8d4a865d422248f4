#!/usr/bin/env bash
# One client takes all connections of the API, each with a login whose body never comes: this host's commands, a new client and Prometheus are still
# answered, and each of these logins ends within some seconds. In a network namespace of its own.
#
# Usage: api_slots.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(core.log)
. "$(dirname "$0")/../netns.sh"

cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db, key_file: $tmp/core.key }
END
start core run

cat >"$tmp/client.py" <<'END'
import select, socket, sys, time
LOGIN = b"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:8081\r\nContent-Type: application/json\r\nContent-Length: 64\r\n\r\n"
held = []
def connect():
    s = socket.create_connection(("127.0.0.1", 8081))
    s.sendall(LOGIN)
    return s
for _ in range(200):
    held.append(connect())
print("held", flush=True)
last, began = held[-1], time.monotonic()
last.settimeout(20)
try:
    answer = last.recv(4096)
    print("ended", b" 408 " in answer, flush=True)
except TimeoutError:
    print("still open", flush=True)
time.sleep(30)
END
python3 "$tmp/client.py" >"$tmp/client.log" &
running+=($!)
for _ in $(seq 100); do grep -qs held "$tmp/client.log" && break; sleep 0.05; done
grep -qs held "$tmp/client.log" || exit 75

timeout 4 "$WHIMBREL" gnb list --config "$tmp/core.yaml" >"$tmp/out" 2>&1 || wrong "commands are shut out: $(cat "$tmp/out")"
echo "ok - this host's commands are answered while one client holds 200 connections"
[ "$(curl -sf --max-time 4 http://127.0.0.1:8081/metrics | grep -c '^whimbrel_ues ')" = 1 ] || wrong "Prometheus is shut out"
echo "ok - a new client is answered"
for _ in $(seq 160); do grep -qs "ended\|still" "$tmp/client.log" && break; sleep 0.05; done
grep -qs "ended True" "$tmp/client.log" || wrong "a login without its body is awaited for longer than 8 s"
echo "ok - a login whose body does not come ends"
