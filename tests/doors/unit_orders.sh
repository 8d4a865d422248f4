#!/usr/bin/env bash
# What code in one process of a unit could do to the others, under the user and with the capabilities of the service: have the manager run a program, with the
# unit's token that each function has; put a program where root takes one from; exchange one between its check and its start; read the memory of the AMF; write
# into the memory by which functions reach each other. Each must be refused. In a network namespace of its own, by root; the service runs as another user.
#
# Usage: unit_orders.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(setpriv openssl)
logs=(unit.log order.log)
[ "$(id -u)" = 0 ] || { echo "only root can give the service a user of its own"; exit 77; }
. "$(dirname "$0")/../netns.sh"
umask 022
service=61234
as_service=(setpriv --reuid $service --regid $service --clear-groups --inh-caps=-all,+net_admin,+net_raw --ambient-caps=-all,+net_admin,+net_raw)
chmod 711 "$tmp"
mkdir "$tmp/own" "$tmp/programs"
chown $service:$service "$tmp/own"
cp "$WHIMBREL" "$tmp/whimbrel"
chmod 755 "$tmp/whimbrel"
cat >"$tmp/unit.yaml" <<END
n2: { addresses: [127.0.0.31] }
n3: { address: 127.0.0.31 }
n6: { nat: false, forwarding: false }
api: { address: "127.0.0.1:8081" }
store: { path: $tmp/own/unit.db, key_file: $tmp/own/unit.key }
unit: { directory: $tmp/own/unit }
END
bad=0
judge() { # judge NAME COMMAND...: the exploit does not succeed
  local name=$1
  shift
  if "$@"; then
    echo "ok - $name"
  else
    echo "not ok - $name"
    bad=1
  fi
}
unit() { "$tmp/whimbrel" unit --config "$tmp/unit.yaml"; }
process() { unit | awk -v what="$1" '$1 == what || $2 == what { print $3; exit }'; }
leave() {
  unit 2>/dev/null | awk '$3 ~ /^[0-9]+$/ { print $3 }' | xargs -r kill -9 2>/dev/null || true
  finish
}
trap leave EXIT
manager() { # manager CONFIGURATION
  "${as_service[@]}" "$tmp/whimbrel" run --unit --config "$1" 2>>"$tmp/unit.log" &
  manager=$!
  running+=("$manager")
}
manager "$tmp/unit.yaml"
for _ in $(seq 400); do
  unit >"$tmp/state" 2>/dev/null || true
  grep -q ' primary ' "$tmp/state" && grep -q ' replica ' "$tmp/state" && ! grep -q ' starting ' "$tmp/state" && break
  sleep 0.05
done
grep -q ' replica ' "$tmp/state" || wrong "the unit is not complete"
[ "$(stat -c %u "/proc/$(process upf)")" = $service ] || wrong "the UPF does not run under the service's user"

# A program that shows that it ran.
cat >"$tmp/programs/other" <<END
#!/bin/sh
touch "$tmp/own/ran"
echo "whimbrel 0.0.0 (code 00000009)"
END
chmod 755 "$tmp/programs/other"
# refused COMMAND...: the manager refuses the order, and the program did not run.
refused() {
  rm -f "$tmp/own/ran"
  ! timeout 20 "$@" --config "$tmp/unit.yaml" >"$tmp/order.log" 2>&1 && grep -q '^failed: ' "$tmp/order.log" && [ ! -e "$tmp/own/ran" ]
}
judge "a function's user with the unit's token cannot have the manager run a program" refused "${as_service[@]}" "$tmp/whimbrel" upgrade "$tmp/programs/other"
judge "nor as a canary" refused "${as_service[@]}" "$tmp/whimbrel" upgrade "$tmp/programs/other" --canary 10%
judge "nor does it restart the control functions" refused "${as_service[@]}" "$tmp/whimbrel" unit restart control

# What root names could be the service's.
order=("$tmp/whimbrel" upgrade "$tmp/programs/other")
chmod 777 "$tmp/programs/other"
judge "a program that everybody may write is not run" refused "${order[@]}"
chmod 755 "$tmp/programs/other"
chown $service "$tmp/programs/other"
judge "a program of the service's user is not run" refused "${order[@]}"
chown 0 "$tmp/programs/other"
chown $service "$tmp/programs"
judge "a program in a folder of the service's user is not run" refused "${order[@]}"
chown 0 "$tmp/programs"

# From the packet parser's process.
cta=$(process cta-1)
[ -d "/proc/$cta/fd" ] && [ -n "$cta" ] || wrong "cta-1 does not run"
# Its opening is what is refused (ptrace(2), access mode checking); with it open, all of the memory can be read.
cannot_read() { ! "${as_service[@]}" bash -c ": <'/proc/$1/mem'" 2>/dev/null; }
judge "a function's memory with keys is not read by the packet parser's user" cannot_read "$cta"
cannot_list() { ! "${as_service[@]}" ls "/proc/$1/fd" >/dev/null 2>&1; }
judge "nor are its descriptors taken" cannot_list "$cta"
judge "nor those of the manager" cannot_list "$manager"
upf=$(process upf)
cannot_write() {
  local fd found=0
  for fd in "/proc/$upf/fd"/*; do
    [[ $(readlink "$fd") == /memfd:whimbrel-@(pool|area)* ]] || continue
    found=1
    # The last octets, which are of no use to anybody.
    if head -c 8 /dev/zero | "${as_service[@]}" dd of="$fd" conv=notrunc oflag=seek_bytes seek=$(($(stat -Lc %s "$fd") - 8)) 2>/dev/null; then return 1; fi
  done
  [ $found = 1 ] || wrong "the UPF shares no memory"
}
judge "the memory through which functions reach each other is not written through descriptors that are opened again" cannot_write

# The name leads to another program after the check.
cat >"$tmp/programs/good" <<END
#!/bin/sh
[ "\$1" != --version ] || { touch "$tmp/own/checked"; sleep 0.5; echo "whimbrel 0.0.0 (code 00000009)"; exit; }
WHIMBREL_CODE_VERSION=9 exec "$tmp/whimbrel" "\$@"
END
chmod 755 "$tmp/programs/good"
rm -f "$tmp/own/ran"
"$tmp/whimbrel" upgrade "$tmp/programs/good" --config "$tmp/unit.yaml" >"$tmp/order.log" 2>&1 &
running+=($!)
for _ in $(seq 200); do [ ! -e "$tmp/own/checked" ] || break; sleep 0.02; done
[ -e "$tmp/own/checked" ] || wrong "the manager does not look at a program of root"
mv "$tmp/programs/other" "$tmp/programs/good"
for _ in $(seq 200); do ! grep -qs 'are started' "$tmp/order.log" || break; sleep 0.02; done
grep -q 'are started' "$tmp/order.log" || wrong "no function of the program that was checked is started"
sleep 0.5
judge "a program that takes the name of another after the check is not run" [ ! -e "$tmp/own/ran" ]

# Signed programs.
openssl genpkey -algorithm ed25519 -out "$tmp/key" 2>/dev/null
openssl pkey -in "$tmp/key" -pubout -out "$tmp/upgrade.pem"
sed "s|^unit:.*|unit: { directory: $tmp/own/signed, upgrade_key: $tmp/upgrade.pem }|; s/8081/8082/; s/127.0.0.31/127.0.0.32/" "$tmp/unit.yaml" >"$tmp/signed.yaml"
leave_first() {
  unit | awk '$3 ~ /^[0-9]+$/ { print $3 }' | xargs -r kill -9
  kill -9 "$manager"
}
leave_first
cp "$tmp/signed.yaml" "$tmp/unit.yaml"
mv "$tmp/programs/good" "$tmp/programs/other"
manager "$tmp/unit.yaml"
for _ in $(seq 200); do ! unit >/dev/null 2>&1 || break; sleep 0.05; done
judge "without its signature a program is not run if the configuration asks for it" refused "${order[@]}"
openssl pkeyutl -sign -rawin -inkey "$tmp/key" -in "$tmp/whimbrel" -out "$tmp/programs/other.sig"
judge "nor with the signature of another program" refused "${order[@]}"
openssl pkeyutl -sign -rawin -inkey "$tmp/key" -in "$tmp/programs/other" -out "$tmp/programs/other.sig"
"${order[@]}" --config "$tmp/unit.yaml" >"$tmp/order.log" 2>&1 &
running+=($!)
for _ in $(seq 200); do [ ! -e "$tmp/own/ran" ] || break; sleep 0.02; done
judge "with its signature it is run" [ -e "$tmp/own/ran" ]
[ $bad = 0 ] || exit 1
echo "a unit: orders from root alone, programs that only root could have written, memory of functions closed to each other"
