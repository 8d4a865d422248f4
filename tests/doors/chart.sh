#!/usr/bin/env bash
# The unit as the Helm chart runs it, without a cluster: root with NET_ADMIN and NET_RAW alone, no new privileges, the volume's group among its own, and volumes
# with the modes that a kubelet gives them for `fsGroup`. It starts, on a new volume and on one that it has used; both probes succeed while one client of the API
# holds all connections that it gets; and no other user of the node opens its sockets or files. In a network namespace of its own, by root.
#
# Usage: chart.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(setpriv python3)
logs=(unit.log)
[ "$(id -u)" = 0 ] || { echo "only root can be root with two capabilities"; exit 77; }
. "$(dirname "$0")/../netns.sh"
chart=$(dirname "$0")/../../packaging/helm/whimbrel/templates/statefulset.yaml
group=$(sed -n 's/^ *fsGroup: *//p' "$chart")
[ -n "$group" ] || wrong "the chart has no fsGroup"
# packaging/helm/check.py holds the chart to these.
caps=-all,+net_admin,+net_raw
as_pod=(setpriv --reuid 0 --regid 0 --groups "$group" --no-new-privs --bounding-set "$caps" --inh-caps "$caps")
chmod 711 "$tmp"
install -m 755 "$WHIMBREL" "$tmp/whimbrel"

# A Secret is mounted with `defaultMode` 0400, to which a kubelet adds what the group may read; other volumes are the group's, which may write.
mkdir "$tmp/config" "$tmp/key" "$tmp/store" "$tmp/run"
# The address is that of the pod, which the configuration takes from its environment; another home is away.
export POD_IP=127.0.0.31
cat >"$tmp/config/whimbrel.yaml" <<'END'
n2: { addresses: ["${POD_IP}"] }
n3: { address: "${POD_IP}" }
peer_amfs: { listen: "${POD_IP}:7390", amfs: [{ pointer: 1, tacs: [2], addresses: ["127.0.0.32:7390"] }] }
END
cat >>"$tmp/config/whimbrel.yaml" <<END
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/store/whimbrel.db, key_file: $tmp/store/whimbrel.key }
unit: { enabled: true, directory: $tmp/run }
END
python3 -c 'print("5a" * 32)' >"$tmp/key/whimbrel.key"
volumes() { # as a kubelet finds and leaves them when a pod starts
  chgrp -R "$group" "$tmp/config" "$tmp/key" "$tmp/store" "$tmp/run"
  chmod 440 "$tmp/config/whimbrel.yaml" "$tmp/key/whimbrel.key"
  find "$tmp/store" "$tmp/run" -type d -exec chmod 2770 {} +
  find "$tmp/store" -type f -exec chmod ug+rw {} +
  chmod 2777 "$tmp/run"
}
at_pod() { "${as_pod[@]}" env CREDENTIALS_DIRECTORY="$tmp/key" timeout 5 "$tmp/whimbrel" "$@" --config "$tmp/config/whimbrel.yaml"; }
begin() {
  volumes
  "${as_pod[@]}" env CREDENTIALS_DIRECTORY="$tmp/key" "$tmp/whimbrel" run --unit --config "$tmp/config/whimbrel.yaml" 2>>"$tmp/unit.log" &
  manager=$!
  running+=("$manager")
  for _ in $(seq 400); do
    at_pod unit >"$tmp/state" 2>&1 || true
    grep -q ' primary ' "$tmp/state" && grep -q ' replica ' "$tmp/state" && ! grep -q ' starting ' "$tmp/state" && return
    kill -0 "$manager" 2>/dev/null || break
    sleep 0.05
  done
  wrong "the unit does not become complete: $(tail -n 1 "$tmp/state")"
}
leave() {
  awk '$3 ~ /^[0-9]+$/ { print $3 }' "$tmp/state" | xargs -r kill -9 2>/dev/null || true
  finish
}
trap leave EXIT

begin
for name in $(awk '$3 ~ /^[0-9]+$/ { print $3 }' "$tmp/state"); do
  effective=$(sed -n 's/^CapEff:\t*//p' "/proc/$name/status")
  [ $((0x$effective & ~0x3000)) = 0 ] || wrong "the process $name has the capabilities $effective"
done
echo "ok - the unit runs with the capabilities of the chart alone"
kill -TERM "$manager"
wait "$manager" || wrong "it does not stop in order"
begin
echo "ok - it starts again on its volume"

cat >"$tmp/client.py" <<'END'
import socket, time
held = []
for _ in range(200):
    s = socket.create_connection(("127.0.0.1", 8081))
    s.sendall(b"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:8081\r\nContent-Length: 64\r\n\r\n")
    held.append(s)
print("held", flush=True)
time.sleep(60)
END
python3 "$tmp/client.py" >"$tmp/client.log" &
running+=($!)
for _ in $(seq 100); do grep -qs held "$tmp/client.log" && break; sleep 0.05; done
grep -qs held "$tmp/client.log" || exit 75
at_pod unit >"$tmp/out" 2>&1 || wrong "liveness fails: $(cat "$tmp/out")"
at_pod gnb list >"$tmp/out" 2>&1 || wrong "readiness fails: $(cat "$tmp/out")"
echo "ok - both probes succeed while one client holds the API's connections"

# `other` users of the node: the runtime folder may be opened by all, as an emptyDir may, so that its files must be closed.
other=(setpriv --reuid 65534 --regid 65534 --clear-groups)
# A Python that this user may run: one below a home folder is not.
for python in /usr/bin/python3 python3 ''; do "${other[@]}" "$python" -c '' 2>/dev/null && break; done
[ -n "$python" ] || skip "there is no Python that another user may run"
connects() { "${other[@]}" "$python" -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$1" 2>/dev/null; }
# What is open is reached, so that a refusal below is one of the unit.
python3 -c 'import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listener.listen()
time.sleep(60)' "$tmp/run/open" &
running+=($!)
for _ in $(seq 100); do ! connects "$tmp/run/open" || break; sleep 0.05; done
connects "$tmp/run/open" || setup_failed "another user does not reach a socket that is open to all"
for socket in "$tmp/run/manager" "$tmp/run/api"; do
  [ -S "$socket" ] || wrong "there is no $socket"
  ! connects "$socket" || wrong "another user connects to $socket"
done
for file in "$tmp"/run/* "$tmp"/store/* "$tmp"/key/* "$tmp"/config/*; do
  [ ! -f "$file" ] || ! "${other[@]}" cat "$file" >/dev/null 2>&1 || wrong "another user reads $file"
done
echo "ok - no other user opens its sockets and files"
