#!/usr/bin/env bash
# One host opens more idle connections to a broker than it serves: an operator at another address still gets its TLS handshake, and health is still
# answered. In a network namespace of its own.
#
# Usage: broker_slots.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(broker.log)
. "$(dirname "$0")/../netns.sh"
ulimit -n 16384 2>/dev/null || skip "4,200 connections at once are not permitted here"

"$WHIMBREL_BROKER" init --domain b.example "$tmp" >"$tmp/init.txt"
authority=$("$WHIMBREL" open key "$tmp/authority.key" | awk '{ print $3 }')
key=$(sed -n 's/.*--public-key \([0-9a-f]*\).*/\1/p' "$tmp/init.txt")
"$WHIMBREL" open certify --authority "$tmp/authority.key" --broker b.example --public-key "$key" --out "$tmp/broker.cert" >/dev/null
sed -i "s/^authorities: .*/authorities: [\"$authority\"]/; s/0.0.0.0:7443/127.0.0.1:7443/" "$tmp/broker.yaml"
"$WHIMBREL_BROKER" run --config "$tmp/broker.yaml" 2>"$tmp/broker.log" &
running+=($!)
for _ in $(seq 200); do curl -sf http://127.0.0.1:8071/health >/dev/null && break; sleep 0.05; done
curl -sf http://127.0.0.1:8071/health >/dev/null || exit 75

cat >"$tmp/idle.py" <<'END'
import socket, time
held = []
def keep(source, port, n):
    until = time.monotonic() + 20
    for _ in range(n):
        if time.monotonic() > until:
            return
        # Each is up before the next one: begun at once, most of them would wait for room in the listener's queue, and take no place of the broker.
        s = socket.socket()
        s.bind((source, 0))
        s.settimeout(0.5)
        try:
            s.connect(("127.0.0.1", port))
        except OSError:
            pass
        held.append(s)
keep("127.0.0.66", 7443, 4200)
keep("127.0.0.66", 8071, 40)
print("held", flush=True)
while True: # what the broker gives up is taken again
    time.sleep(1)
    for s in held[:50]:
        s.close()
    del held[:50]
    keep("127.0.0.66", 7443, 50)
END
cat >"$tmp/operator.py" <<'END'
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.set_alpn_protocols(["h2"])
raw = socket.create_connection(("127.0.0.1", 7443), timeout=2.5, source_address=("127.0.0.2", 0))
raw.settimeout(2.5) # less than the broker awaits a handshake
with context.wrap_socket(raw, server_hostname="b.example") as tls:
    print(tls.version(), tls.selected_alpn_protocol())
END
python3 "$tmp/operator.py" "$tmp/tls.pem" >"$tmp/out" 2>&1 || exit 75 # the broker serves operators
python3 "$tmp/idle.py" >"$tmp/idle.log" 2>&1 &
running+=($!)
for _ in $(seq 1000); do grep -qs held "$tmp/idle.log" && break; sleep 0.05; done
grep -qs held "$tmp/idle.log" || exit 75
python3 "$tmp/operator.py" "$tmp/tls.pem" >"$tmp/out" 2>&1 || wrong "an operator is shut out: $(tail -n 1 "$tmp/out")"
echo "ok - an operator connects while one host holds 4,200 idle connections ($(cat "$tmp/out"))"
curl -sf --max-time 4 http://127.0.0.1:8071/health >/dev/null || wrong "health is shut out"
echo "ok - health is answered"
