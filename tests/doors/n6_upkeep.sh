#!/usr/bin/env bash
# What other programs do to N6 while the core runs. What the core has set up is put back; what another program has set up is named by `whimbrel why n6` with the command that
# permits it; a pool of UEs that is one of the host's networks is refused at the start.
#
# Environment: WHIMBREL, the program to test.
set -euo pipefail

tools=(nft timeout)
logs=(core.log)
. "$(dirname "$0")/../netns.sh"

configure() { # POOL
  cat >"$tmp/core.yaml" <<YAML
store: { path: $tmp/w.db, key_file: $tmp/w.key }
api: { address: "127.0.0.1:8081" }
n6: { device: up }
data_networks: [{ dnn: internet, ipv4_pool: $1 }]
YAML
}
FAILED=0
ok() { echo "ok - $1"; }
not_ok() { echo "not ok - $1: $2"; FAILED=1; }
why() { "$WHIMBREL" why n6 -c "$tmp/core.yaml" 2>&1 | head -n 1; }
# within NAME COMMAND...: the command succeeds within ten seconds.
within() {
  local name=$1
  shift
  for _ in $(seq 100); do
    "$@" >/dev/null 2>&1 && { ok "$name"; return; }
    sleep 0.1
  done
  not_ok "$name" "$(why)"
}
says() { why | grep -qE "$1"; }
addresses() { ip -o address show dev "$device" scope global 2>/dev/null | awk '{ print $4 }'; }
has_addresses() { [ "$(addresses)" = "$own" ]; }
translates() { nft list table inet "whimbrel-$device" | grep -q masquerade; }

ip link add eth9 type veth peer name far && ip address add 10.50.7.1/24 dev eth9 && ip link set eth9 up
configure 10.50.0.0/16
refusal=$(timeout 20 "$WHIMBREL" run -c "$tmp/core.yaml" 2>&1 | tail -n 1) || true
if grep -q "pool 10.50.0.0/16 of .internet. overlaps 10.50.7.0/24, the network of eth9" <<<"$refusal"; then
  ok "a pool inside one of the host's networks is refused with both names"
else
  not_ok "a pool inside one of the host's networks is refused with both names" "$refusal"
fi

configure 10.45.0.0/16
start core run
device=$(ip -o link show type tun | awk -F': ' '{ print $2; exit }')
own=$(addresses)
within "N6 is up" says 'n6 is up: '

ip link delete "$device"
within "a deleted TUN device is made again with its addresses" has_addresses
ip address flush dev "$device" scope global
within "flushed addresses are given again" has_addresses
ip link set "$device" down && ip link set "$device" up
within "IPv6 returns to a device that was taken down and up" has_addresses
nft flush ruleset
within "address translation returns after a firewall's restart" translates
await core "by another program; it was put back" 4

nft add table inet theirs
nft 'add chain inet theirs forward { type filter hook forward priority 0; policy drop; }'
within "a chain that drops what is forwarded is named with the command that permits it" says 'inet theirs drops .*fix: `nft insert rule'
eval "$(why | sed -E 's/.*fix: `([^`]*)`.*/\1/')"
within "the command mends it" says 'n6 is up: '
echo 0 >/proc/sys/net/ipv4/ip_forward
within "forwarding that another program has switched off is named" says 'fix: `sysctl -w net.ipv4.ip_forward=1`'
echo 1 >/proc/sys/net/ipv4/ip_forward
within "forwarding again" says 'n6 is up: '
ip address add 10.45.9.1/24 dev eth9
within "a network that appears inside a pool is named" says '10.45.0.0/16 of `internet` overlaps 10.45.9.0/24, the network of eth9'
exit $FAILED
