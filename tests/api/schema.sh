#!/usr/bin/env bash
# schemathesis sends requests that the OpenAPI document of a running core allows, and others that it does not, and compares the answers with the document.
#
# Usage: schema.sh [REQUESTS]     for each operation (50); tests `$WHIMBREL`; SCHEMATHESIS names the judge, `./x test long` has it in .x/schemathesis
# Exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3)
logs=(core.log schemathesis.log)
. "$(dirname "$0")/../netns.sh"
[ -x "${SCHEMATHESIS:-}" ] || skip "schemathesis is not there: SCHEMATHESIS names no program"

cat >"$tmp/core.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db, key_file: $tmp/core.key }
END
start core run
"$WHIMBREL" gnb list --config "$tmp/core.yaml" >/dev/null || wrong "root's commands do not reach the core"
local_api() { curl -sf --unix-socket "$tmp/core.db.socket" "http://localhost/api/v1/$1" -H 'Content-Type: application/json' -d "$2"; }
key=465b5ce8b199b49faa5f0a2ee238a6bc
local_api subscribers "{\"supi\": \"imsi-999700000000001\", \"k\": \"$key\", \"opc\": \"$key\"}" >/dev/null || wrong "no subscriber can be added"
token=$(local_api tokens '{"name": "judge", "scopes": ["metrics", "read", "nas", "operate", "subscribers", "admin"]}' |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])') || wrong "no token can be made"

rules=$(realpath "$(dirname "$0")/schemathesis.toml")
cd "$tmp" # where it keeps what failed
if ! "$SCHEMATHESIS" --config-file "$rules" run http://127.0.0.1:8081/openapi.json --no-color --seed "${SEED:-1}" \
  --max-examples "${1:-50}" --header "Authorization: Bearer $token" >"$tmp/schemathesis.log" 2>&1; then
  cat "$tmp/schemathesis.log"
  wrong "the answers of the API are not those of its OpenAPI document"
fi
tail -n 20 "$tmp/schemathesis.log"
"$WHIMBREL" gnb list --config "$tmp/core.yaml" >/dev/null || wrong "the core does not serve any more"
echo "ok - API: the OpenAPI document says what handlers check, and what they answer"
