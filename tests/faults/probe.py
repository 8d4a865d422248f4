#!/usr/bin/env python3
"""Says to a core what a UE should not be able to say: probe.py ADDRESS...

One line for each protocol and address that answers. Protocols: NGAP's SCTP (INIT), PFCP (heartbeat), GTP-U (echo), TCP.
"""
import os
import select
import socket
import struct
import sys

WITHIN_S = 0.4


def crc32c(octets):
    crc = 0xFFFFFFFF
    for octet in octets:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sctp_init(port):
    chunk = struct.pack("!BBHIIHHI", 1, 0, 20, 0x12345678, 65535, 2, 2, 1)
    header = struct.pack("!HHII", 40000, port, 0, 0)
    return header[:8] + struct.pack("<I", crc32c(header + chunk)) + chunk


def main():
    waiting = {}
    for address in sys.argv[1:]:
        sctp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)
        sctp.sendto(sctp_init(38412), (address, 0))
        waiting[sctp] = "ngap", address
        inner = bytes.fromhex("4500001c0000000040110000") + socket.inet_aton("10.45.0.3") + socket.inet_aton("192.0.2.1") + bytes(8)
        for name, port, octets in [
            ("pfcp", 8805, bytes.fromhex("2001000c0000010000600004") + os.urandom(4)),
            ("gtpu", 2152, bytes.fromhex("320100040000000000010000")),
            ("gtpu-in-gtpu", 2152, struct.pack("!BBHI", 0x30, 255, len(inner), 0x10000001) + inner),
        ]:
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.connect((address, port))
            udp.send(octets)
            waiting[udp] = name, address
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        tcp.setblocking(False)
        tcp.connect_ex((address, 7022))
        waiting[tcp] = "tcp", address
    poll = select.poll()
    names = {}
    for sock, what in waiting.items():
        names[sock.fileno()] = sock, what
        poll.register(sock, select.POLLOUT if what[0] == "tcp" else select.POLLIN)
    answered = set()
    while ready := poll.poll(WITHIN_S * 1000):
        for fd, _ in ready:
            sock, what = names[fd]
            poll.unregister(fd)
            if what[0] == "tcp":
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    answered.add(what)
            elif what[0] == "ngap":
                packet = sock.recv(2048)
                # INIT ACK; on the host itself the socket also sees what it has sent.
                if packet[(packet[0] & 15) * 4 + 12] == 2:
                    answered.add(what)
                else:
                    poll.register(sock, select.POLLIN)
            else:
                try:
                    sock.recv(2048)
                    answered.add(what)
                except OSError:
                    pass
    for name, address in sorted(answered):
        print(name, address)


main()
