#!/usr/bin/env bash
# The host is as it was: firewall, routes, rules, addresses and kernel settings are byte-identical before `whimbrel run` and
# after it, where it was stopped, and where it was killed, started again and stopped. In a network namespace of its own,
# with settings and a firewall table of another program in it.
#
# Usage: host_restored.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
#
# While the program runs, an SMF made of octets asks it on N4 (`n4.listen`), from two addresses.
set -euo pipefail
tools=(nft python3)
logs=(core.log)
. "$(dirname "$0")/../netns.sh"

snapshot() {
  { grep -rs '' /proc/sys/net/ipv4 /proc/sys/net/ipv6 || true; } | sort # some may be written only
  ip address
  for family in -4 -6; do ip $family rule; ip $family route show table all; done
  nft list ruleset
}

# same WHEN: compares the host with what it was.
same() {
  snapshot >"$tmp/after"
  diff "$tmp/before" "$tmp/after" || { echo "WRONG: the host is not as it was $1"; exit 1; }
  echo "the host is as it was $1"
}

# begins: starts the core again; its process id is in `core`.
begins() {
  rm -f "$tmp/core.log"
  start core run
  core=$!
}

# SMFs at 127.0.0.21 and 127.0.0.22 send a heartbeat and set up an association (TS 29.244 §7.4.2, §7.4.4); then one speaks
# with the Node ID of the program's own SMF, and is not heard.
smfs() {
  python3 - <<'PYTHON'
import ipaddress, socket, struct, sys

def message(kind, sequence, *elements):
    body = b"".join(struct.pack(">HH", t, len(v)) + v for t, v in elements)
    return struct.pack(">BBH", 0x20, kind, 4 + len(body)) + sequence.to_bytes(3, "big") + b"\0" + body

def ask(address, octets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind((address, 8805)); s.settimeout(1)
        s.sendto(octets, ("127.0.0.1", 8805))
        try:
            return s.recv(2048)
        except TimeoutError:
            return None

started = (96, struct.pack(">I", 0xE0000001))
for n, address in enumerate(["127.0.0.21", "127.0.0.22"]):
    node = (60, b"\0" + ipaddress.ip_address(address).packed)
    for kind, elements in [(1, [started]), (5, [node, started])]:
        answer = ask(address, message(kind, 77 + n, *elements))
        if answer is None or answer[1] != kind + 1 or int.from_bytes(answer[4:7], "big") != 77 + n:
            sys.exit(f"WRONG: {address} asked {kind} and got {answer and answer.hex()}")
        if kind == 5 and b"\x00\x13\x00\x01\x01" not in answer:
            sys.exit(f"WRONG: no association: {answer.hex()}")
own = (60, b"\0" + ipaddress.ip_address("127.0.0.1").packed)
if ask("127.0.0.21", message(5, 99, own, started)) is not None:
    sys.exit("WRONG: another peer is accepted as the program's own SMF")
print("the UPF answers two other SMFs on N4, and none that pretends to be its own")
PYTHON
}

# Settings that the kernel changes by itself when forwarding is switched, at values that it would not choose.
ip tuntap add odd0 mode tun
ip link set odd0 up
ip address add 192.0.2.1/24 dev odd0
ip route add 198.51.100.0/24 via 192.0.2.2 onlink dev odd0 table 77
ip rule add from 192.0.2.1 lookup 77
nft 'table inet theirs { chain forward { type filter hook forward priority 0; ip saddr 192.0.2.9 drop; }; }'
cd /proc/sys/net
echo 0 >ipv4/conf/all/accept_redirects
for family in ipv4 ipv6; do echo 1 >$family/conf/odd0/forwarding; done
cd /

cat >"$tmp/core.yaml" <<YAML
store: { path: $tmp/whimbrel.db, key_file: $tmp/whimbrel.key }
n2: { sctp: udp }
n4: { listen: "127.0.0.1:8805" }
n6: { nat: true, forwarding: true }
YAML

snapshot >"$tmp/before"
begins
snapshot >"$tmp/while"
grep -q masquerade "$tmp/while" || { echo "WRONG: nothing masquerades while the program runs"; exit 1; }
grep -q '/net/ipv4/ip_forward:1' "$tmp/while" || { echo "WRONG: the host does not forward meanwhile"; exit 1; }
smfs
kill -TERM "$core"; wait "$core"
same "after a stop"

begins
kill -9 "$core"; wait "$core" 2>/dev/null || true
snapshot >"$tmp/after"
if diff -q "$tmp/before" "$tmp/after" >/dev/null; then echo "WRONG: a kill leaves nothing to put back"; exit 1; fi
begins
kill -TERM "$core"; wait "$core"
same "after a kill, a start and a stop"
