#!/usr/bin/env bash
# A console user of role operator asks `POST /api/v1/config/check` for the SUCI private key of the running core, and has the core open
# files that the text names: a device without end, a FIFO without a writer, a file of which only the existence is asked for.
#
# Usage: config_check.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -uo pipefail
tools=(curl mkfifo python3)
logs=(core.log answer)
. "$(dirname "${BASH_SOURCE[0]}")/../netns.sh"

KEY=c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d
PUBLIC=d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a # a public key of RFC 8032
cat >"$tmp/core.yaml" <<YAML
store: { path: $tmp/w.db, key_file: $tmp/w.key }
api: { address: "127.0.0.1:8070" }
n2: { addresses: [127.0.0.1], sctp: udp }
home_network_keys: [{ id: 1, scheme: A, private_key: "$KEY" }]
YAML
# What a check may cost is bounded here, so that a core that reads a device without end does not take the host with it.
ulimit -v 16000000
start core run
core=$!
failed=0
ok() { echo "ok - $1"; }
not_ok() { echo "not ok - $1"; failed=1; }

# A one-time link creates the operator, a user that then logs in.
api=http://127.0.0.1:8070/api/v1
link=$("$WHIMBREL" console --json -c "$tmp/core.yaml" | sed -n 's/.*"url": *"[^"]*#\/link\/\([0-9a-f]*\)".*/\1/p')
[ -n "$link" ] || wrong "there is no one-time link"
login() { # login JAR BODY: leaves the CSRF token in `csrf`
  csrf=$(curl -s -c "$1" -H 'Content-Type: application/json' -d "$2" "$api/session" | sed -n 's/.*"csrf":"\([0-9a-f]*\)".*/\1/p')
  [ -n "$csrf" ] || wrong "a login fails"
}
send() { curl -s --max-time 20 -b "$jar" -H "X-CSRF-Token: $csrf" -H 'Content-Type: application/json' "$@"; }
jar=$tmp/admin && login "$jar" "{\"link\": \"$link\"}"
send -d '{"name": "first", "role": "admin", "password": "a curlew in the mud"}' "$api/users" >/dev/null
send -d '{"name": "olaf", "role": "operator", "password": "a curlew in the mud"}' "$api/users" >/dev/null
admin_jar=$jar admin_csrf=$csrf
jar=$tmp/olaf && login "$jar" '{"name": "olaf", "password": "a curlew in the mud"}'
# check TEXT: the answer to it.
check() { python3 -c 'import json, sys; print(json.dumps({"text": sys.argv[1]}))' "$1" | send -d @- "$api/config/check"; }

shown=
for text in '"(secret 1)": 1' 'plmn: "(secret 1)"' 'amf: { name: "(secret 1)", region: "(secret 1)" }' '["(secret 1)"]' \
  'home_network_keys: [{ private_key_file: "(secret 1)" }]' '"(secret 1)": 1
"(secret 1)": 2' "home_network_keys: [{ id: 1, private_key: \"(secret 1)\", scheme: B }, { id: \"(secret 1)\" }]"; do
  check "$text" >"$tmp/answer"
  grep -q '"problems"' "$tmp/answer" || wrong "a check is not answered: $text"
  ! grep -qi "${KEY:0:12}" "$tmp/answer" || shown=$text
done
if [ -z "$shown" ]; then ok "no check answers with the SUCI private key"; else not_ok "a check answers with the SUCI private key: $shown"; fi

# naming FILE: a text that names it where certificates are read.
naming() {
  printf 'veil: { broker: b.example, address: "192.0.2.7:7443", broker_key: "%s", witnesses: ["%s"], key_file: %s, certificate: %s }' \
    $PUBLIC $PUBLIC "$1" "$1"
}
memory() { sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$core/status" 2>/dev/null; }
before=$(memory)
check "$(naming /dev/zero)" >"$tmp/answer"
after=$(memory)
if [ -n "$after" ] && [ $((after - before)) -lt 200000 ] && kill -0 $core; then
  ok "a device without end is not read"
else
  not_ok "a device without end is read: the core took $(((${after:-0} - before) / 1024)) MiB more, or ended"
fi
if grep -q '"not_checked":\["veil.key_file: /dev/zero","veil.certificate: /dev/zero"\]' "$tmp/answer"; then
  ok "the answer names files that were not checked"
else
  not_ok "the answer does not say which files were not checked: $(cut -c1-300 "$tmp/answer")"
fi
there=$(check "$(naming /etc/passwd)" | sed 's/passwd/X/g')
if ! grep -q '"problems"' <<<"$there"; then
  not_ok "a check that names a file is not answered"
elif [ "$there" = "$(check "$(naming /etc/X)")" ]; then
  ok "a check does not show whether a file exists"
else
  not_ok "a check shows whether a file exists"
fi
mkfifo "$tmp/fifo"
check "$(naming "$tmp/fifo")" >/dev/null &
sleep 0.5
if check 'plmn: 999/70' | grep -q '"problems":\[\]'; then
  ok "a FIFO does not keep later checks waiting"
else
  not_ok "a check that names a FIFO keeps all later ones waiting"
fi
jar=$admin_jar csrf=$admin_csrf
if send "$api/audit?limit=500" | grep -q 'user=olaf request=\\"POST /api/v1/config/check\\"'; then
  ok "checks are in the audit log"
else
  not_ok "no check is in the audit log"
fi
exit $failed
