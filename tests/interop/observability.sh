#!/usr/bin/env bash
# A core in its own network namespace is scraped by Prometheus, whose rules are checked and tested by promtool, and which evaluates the dashboards'
# queries; spans of its procedures reach a collector; the log's level changes while it runs; tshark follows a UE's messages; a support bundle of
# the core has no key and no identity.
set -uo pipefail
tools=(curl promtool prometheus python3 tar)
logs=(core.log prometheus.log collector.log tshark.log out)
. "$(dirname "${BASH_SOURCE[0]}")/../netns.sh"
packaging=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../packaging" && pwd)

promtool check rules "$packaging/prometheus/whimbrel.rules.yml" >"$tmp/out" 2>&1 || wrong "promtool does not accept the rules"
promtool check config "$packaging/prometheus/prometheus.yml" >"$tmp/out" 2>&1 || wrong "promtool does not accept the configuration"
promtool test rules "$packaging/prometheus/whimbrel.test.yml" >"$tmp/out" 2>&1 || wrong "a rule does not do what its test says"

# A collector that writes what is posted to it, a body a line.
cat >"$tmp/collector.py" <<'PY'
import http.server, sys
class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        open(sys.argv[1], "ab").write(self.path.encode() + b" " + body + b"\n")
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
http.server.HTTPServer(("127.0.0.1", 4318), Collector).serve_forever()
PY
python3 "$tmp/collector.py" "$tmp/spans" 2>"$tmp/collector.log" &
running+=($!)

K=465b5ce8b199b49faa5f0a2ee238a6bc
cat >"$tmp/core.yaml" <<YAML
store: { path: $tmp/w.db, key_file: $tmp/w.key }
api: { address: "127.0.0.1:8070" }
n2: { addresses: [127.0.0.1], sctp: udp }
otlp: { endpoint: "http://127.0.0.1:4318", service_name: core-1 }
home_network_keys: [{ id: 1, scheme: A, private_key: "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d" }]
YAML
w() { "$WHIMBREL" "$@" -c "$tmp/core.yaml" >"$tmp/out" 2>&1; }
w subscriber add 999700000000001 --k $K --opc $K || wrong "no subscriber can be added"
start core run
(cd "$tmp" && exec prometheus --config.file="$packaging/prometheus/prometheus.yml" --storage.tsdb.path="$tmp/tsdb" --web.listen-address=127.0.0.1:9090 >"$tmp/prometheus.log" 2>&1) &
running+=($!)

# One subscriber registers, another one that the core does not know is refused.
ran() { timeout 30 "$WHIMBREL_LAB" ran --sctp udp --ues 1 --imsi "$1" --k $K --opc $K >"$tmp/out" 2>&1; }
ran 999700000000001 || wrong "the UE does not register"
! ran 999700000000009 || wrong "an unknown subscriber registers"

spans() {
  python3 - "$tmp/spans" <<'PY'
import json, sys
for line in open(sys.argv[1]):
    path, body = line.split(" ", 1)
    assert path == "/v1/traces", path
    resource = json.loads(body)["resourceSpans"][0]
    assert resource["resource"]["attributes"][0]["value"]["stringValue"] == "core-1"
    for span in resource["scopeSpans"][0]["spans"]:
        assert len(span["traceId"]) == 32 and int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"])
        print(span["name"], span["status"]["code"])
PY
}
for _ in $(seq 100); do
  spans >"$tmp/out" 2>/dev/null && grep -q '^registration 1' "$tmp/out" && grep -q '^registration 2' "$tmp/out" && break
  sleep 0.1
done
for span in 'registration 1' 'registration 2' 'pdu_session_establishment 1'; do
  grep -q "^$span" "$tmp/out" || wrong "there is no span: $span"
done
! grep -q 99970000 "$tmp/spans" || wrong "a span has a SUPI"

# Prometheus has scraped it, and knows each metric of the rules that the core has.
query() { curl -sf --get http://127.0.0.1:9090/api/v1/query --data-urlencode "query=$1"; }
for _ in $(seq 300); do
  query 'up{job="whimbrel"} == 1' | grep -q '"value"' && break
  sleep 0.1
done
query 'up{job="whimbrel"} == 1' | grep -q '"value"' || wrong "Prometheus does not scrape the core"
query 'whimbrel_uptime_seconds' | grep -q '"value"' || wrong "Prometheus has no metric of the core"
curl -sf http://127.0.0.1:9090/api/v1/rules | python3 -c '
import json, sys
groups = json.load(sys.stdin)["data"]["groups"]
bad = [r["name"] for g in groups for r in g["rules"] if r["health"] == "err"]
assert sum(len(g["rules"]) for g in groups) >= 15 and not bad, bad' || wrong "rules fail on the core's metrics"
python3 - "$packaging"/grafana/*.json >"$tmp/out" 2>&1 <<'PY' || wrong "Prometheus does not evaluate a dashboard's query"
import json, sys, urllib.parse, urllib.request
for file in sys.argv[1:]:
    for panel in json.load(open(file))["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "1m").replace("$instance", "127.0.0.1:8070")
            assert "$" not in query, query
            print(panel["title"], query)
            address = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": query})
            assert json.load(urllib.request.urlopen(address))["status"] == "success"
PY
curl -sf http://127.0.0.1:8070/metrics | promtool check metrics >"$tmp/out" 2>&1
[ $? -le 3 ] && ! grep -qi "error while" "$tmp/out" || wrong "promtool does not read the metrics"

lines() { grep -c ' DEBUG ' "$tmp/core.log"; }
[ "$(lines)" = 0 ] || wrong "debug lines are logged at level info"
# tshark follows the messages of the UE: those of its first registration, then those that come.
followed() { [ "$(grep -c "Registration request" "$tmp/followed")" = "$1" ]; }
follow() {
  "$WHIMBREL" capture --ue imsi-999700000000001 --live -c "$tmp/core.yaml" 2>>"$tmp/core.log" | tshark -l -n -i - >"$tmp/followed" 2>"$tmp/tshark.log"
}
if command -v tshark >/dev/null; then
  touch "$tmp/followed"
  follow &
  running+=($!)
  for _ in $(seq 200); do followed 1 && break; sleep 0.1; done
  followed 1 || wrong "tshark does not read the UE's messages"
fi

w log-level debug --for 300 || wrong "the level cannot be set"
grep -q "level is debug; the configuration says info" "$tmp/out" || wrong "the level is not shown"
ran 999700000000001 || wrong "the UE does not register again"
[ "$(lines)" -gt 0 ] || wrong "the level is not in force"
if command -v tshark >/dev/null; then
  for _ in $(seq 200); do followed 2 && break; sleep 0.1; done
  followed 2 && ! grep -qi malformed "$tmp/followed" || wrong "tshark does not follow the UE's messages"
fi
w log-level info || wrong "the level cannot be set back"

w support-bundle "$tmp/bundle.tar" || wrong "no support bundle can be written"
mkdir "$tmp/bundle" && tar -xf "$tmp/bundle.tar" -C "$tmp/bundle" || wrong "tar does not read the bundle"
for file in about.json configuration.json api/status.json api/events.json api/metrics.txt host/version; do
  [ -s "$tmp/bundle/$file" ] || wrong "the bundle has no $file"
done
grep -q '"gnbs"' "$tmp/bundle/api/status.json" || wrong "the bundle has no state"
for secret in $K c53c22208b61860b 999700000000001 999700000000009 "$(cut -c1-40 "$tmp/w.key")"; do
  ! grep -rqa "$secret" "$tmp/bundle" || wrong "the bundle has the secret $(cut -c1-6 <<<"$secret")…"
done
echo "scraped, traced, followed, made verbose, bundled"
