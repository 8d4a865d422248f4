#!/usr/bin/env bash
# Programs use the PDU session of an emulated UE: `whimbrel-lab ran -- PROGRAM` and `whimbrel-lab ran --tun --netns NAME`. They reach a
# server behind N6 over IPv4 and IPv6, find the session's DNS servers and MTU, and nothing of it is left afterwards.
# In a network namespace of its own.
#
# Usage: ue_programs.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl python3 nsenter)
logs=(core.log ran.log out)
. "$(dirname "$0")/../netns.sh"
[ "$(id -u)" = 0 ] && [ -w /run ] && [ -w /etc ] || skip "named network namespaces need root"

# The data network: a host behind a wire, where a server says hello.
ip link add near type veth peer name far
unshare --net sleep 120 &
running+=($!)
server=$!
disown
own_network "$server"
ip link set far netns "$server"
there() { nsenter -t "$server" -n "$@"; }
ip address add 203.0.113.2/24 dev near
ip address add 2001:db8:113::2/64 dev near nodad
ip link set near up
there ip link set lo up
there ip link set far up
there ip address add 203.0.113.1/24 dev far
there ip address add 2001:db8:113::1/64 dev far nodad
there ip route add default via 203.0.113.2
there ip route add default via 2001:db8:113::2
mkdir -p "$tmp/www"
echo hello >"$tmp/www/hello"
there python3 -m http.server --bind :: --directory "$tmp/www" 80 >"$tmp/www.log" 2>&1 &
running+=($!)
for _ in $(seq 100); do there curl -s -o "$tmp/ready" http://127.0.0.1/hello && break; sleep 0.1; done

cat >"$tmp/core.yaml" <<YAML
data_networks: [{ dnn: internet, dns: [203.0.113.53, "2001:db8:113::53"], mtu: 1380 }]
n6: { nat: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/core.db }
YAML
"$WHIMBREL_LAB" ran --ues 3 --write-subscribers "$tmp/ues.csv" >/dev/null
"$WHIMBREL" subscriber import "$tmp/ues.csv" --config "$tmp/core.yaml" >/dev/null
start core run

# program EXPECTED-STATUS ARGUMENTS...: `whimbrel-lab ran`, whose exit status must be this; what it prints is in `out`.
program() {
  local expected=$1 status=0
  shift
  timeout 30 "$WHIMBREL_LAB" ran "$@" >"$tmp/out" 2>"$tmp/ran.log" || status=$?
  [ "$status" = "$expected" ] || wrong "exit status $status instead of $expected: $*"
}
# printed WHAT TEXT
printed() { grep -qF -- "$2" "$tmp/out" || wrong "$1: the program does not print: $2"; }
# no_ue_is_registered: the core has no registered UE.
no_ue_is_registered() {
  for _ in $(seq 40); do
    "$WHIMBREL" ue list --json -c "$tmp/core.yaml" 2>/dev/null | grep -q '"imsi-' || return 0
    sleep 0.05
  done
  wrong "a UE is registered still: $("$WHIMBREL" ue list -c "$tmp/core.yaml")"
}

program 7 -- sh -c 'curl -sS -m 5 http://203.0.113.1/hello && curl -sS -m 5 "http://[2001:db8:113::1]/hello" &&
  cat /etc/resolv.conf && ip link show dev wbue0 && ip route && exit 7'
[ "$(grep -cx hello "$tmp/out")" = 2 ] || wrong "the server is not reached over both IPv4 and IPv6"
printed DNS "nameserver 203.0.113.53"
printed DNS "nameserver 2001:db8:113::53"
printed MTU "mtu 1380"
grep -q '"figures"' "$tmp/out" && wrong "the report is mixed into the program's output"
no_ue_is_registered
echo "a program reached the server over IPv4 and IPv6, and its exit status was ours"

program 127 -- no-such-program
program 125 --k "$(printf '0%.0s' {1..32})" --opc "$(printf '0%.0s' {1..32})" -- true
program 125 --ues 2 -- true
echo "what is no program's end has an exit status of its own"

# A scenario and a namespace with a name: it is there when the steps are done, until an interrupt.
name=wb-ue-$$
echo 'steps: [register, session: { dnn: internet, type: ipv4v6 }]' >"$tmp/steps.yaml"
"$WHIMBREL_LAB" ran "$tmp/steps.yaml" --imsi 999700000000002 --tun --netns "$name" >"$tmp/out" 2>"$tmp/ran.log" &
held=$!
running+=($held)
await ran "uses device wbue0"
sleep 0.3 # the steps are long done
for url in http://203.0.113.1/hello "http://[2001:db8:113::1]/hello"; do
  [ "$(ip netns exec "$name" curl -sS -m 5 "$url")" = hello ] || wrong "no answer in the namespace from $url"
done
[ "$(ip netns exec "$name" cat /etc/resolv.conf | grep -c ^nameserver)" = 2 ] || wrong "no resolver in the namespace"
ip -n "$name" link show dev lo | grep -q UP || wrong "the loopback device is down"
kill -INT "$held"
status=0
wait "$held" || status=$?
[ "$status" = 0 ] || wrong "an interrupt gives exit status $status"
[ ! -e "/run/netns/$name" ] && [ ! -e "/etc/netns/$name" ] || wrong "the namespace is left behind"
no_ue_is_registered
echo "a scenario's session was held until the interrupt, and nothing was left"

# SIGTERM ends the program too.
"$WHIMBREL_LAB" ran --imsi 999700000000003 -- sleep 57.25 >"$tmp/out" 2>"$tmp/ran.log" &
held=$!
running+=($held)
for _ in $(seq 200); do
  child=$(pgrep -P "$held" -x sleep) && break
  sleep 0.05
done
kill -TERM "$held"
status=0
wait "$held" || status=$?
[ "$status" = 130 ] || wrong "a program that SIGINT ended gives exit status $status"
[ ! -e "/proc/$child" ] || wrong "the program outlives the run"
no_ue_is_registered
echo "SIGTERM ended the program and the session"
