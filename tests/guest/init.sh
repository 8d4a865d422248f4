#!/bin/bash
# The guest's init: root is the host's filesystem, read-only; $G_OUT and /run are writable. Runs $G_JOB, leaves its status in
# $G_OUT/rc, powers off.
export PATH=${G_PATH:-/usr/sbin:/usr/bin:/sbin:/bin}:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev 2>/dev/null
mkdir -p /dev/net
[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
for d in /run /dev/shm; do mkdir -p "$d" 2>/dev/null; mount -t tmpfs t "$d"; done
export TMPDIR=/run
mkdir -p "$G_OUT" && mount -t hostfs -o "$G_OUT" none "$G_OUT"
for m in net/ipv4/udp_tunnel net/ipv6/ip6_udp_tunnel lib/crc-ccitt net/ipv6/ipv6 net/sctp/sctp drivers/net/tun; do
  [ -f "$G_MODULES/$m.ko" ] && insmod "$G_MODULES/$m.ko"
done
ip link set lo up
ip link set vec0 name eth0 2>/dev/null || true
ip addr add "$GUEST_IP/24" dev eth0
ip addr add "$GUEST_IP2/24" dev eth0
ip -6 addr add "$GUEST_IP6/64" dev eth0 nodad
ip link set eth0 up
ip route add default via "$HOST_IP"
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
  net.core.rmem_max=33554432 net.core.wmem_max=33554432 net.core.rmem_default=16777216 net.core.wmem_default=16777216
# SCTP's cookies need no signature here, and the crypto modules for it would have to be loaded.
sysctl -qw net.sctp.cookie_hmac_alg=none 2>/dev/null
cd /run || exit
bash "$G_JOB" >"$G_OUT/job.log" 2>&1
echo $? >"$G_OUT/rc.tmp" && mv "$G_OUT/rc.tmp" "$G_OUT/rc"
sync
echo o >/proc/sysrq-trigger
sleep 5
halt -f -p
