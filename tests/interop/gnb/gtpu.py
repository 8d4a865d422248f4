"""GTP-U (TS 29.281) with the PDU session container (TS 38.415), and the few IPv4 packets that a ping needs."""
import socket
import struct

PORT = 2152
ECHO_REQUEST, ECHO_RESPONSE, ERROR_INDICATION, END_MARKER, G_PDU = 1, 2, 26, 254, 255
CONTAINER = 0x85


class Malformed(Exception):
    """Octets that are not GTP-U; the text says why."""


def g_pdu(teid, qfi, packet, downlink=False):
    """An uplink G-PDU: the container's PDU type is 1 and it names the QoS flow (TS 38.415 §5.5.2.2). What a source gNB
    forwards to a target is downlink: type 0."""
    body = struct.pack(">HBB", 0, 0, CONTAINER) + bytes([1, 0x00 if downlink else 0x10, qfi, 0]) + packet
    return struct.pack(">BBHI", 0x34, G_PDU, len(body), teid) + body


def echo_request(sequence):
    return struct.pack(">BBHIHBB", 0x32, ECHO_REQUEST, 4, 0, sequence, 0, 0)


def echo_response(sequence):
    return struct.pack(">BBHIHBB", 0x32, ECHO_RESPONSE, 6, 0, sequence or 0, 0, 0) + b"\x0e\0"


def parse(octets):
    """(message type, TEID, sequence number or None, {extension header type: content}, rest)."""
    if len(octets) < 8:
        raise Malformed("shorter than a header")
    flags, kind, length, teid = struct.unpack_from(">BBHI", octets)
    if flags >> 5 != 1 or not flags & 0x10:
        raise Malformed(f"flags {flags:#x}: not GTP version 1")
    if length != len(octets) - 8:
        raise Malformed(f"length {length}, {len(octets) - 8} octets follow")
    at, extensions, sequence = 8, {}, None
    if flags & 7:
        if len(octets) < 12:
            raise Malformed("no room for the optional fields")
        if flags & 2:
            sequence = struct.unpack_from(">H", octets, 8)[0]
        following, at = (octets[11] if flags & 4 else 0), 12
        while following:
            size = octets[at] * 4 if at < len(octets) else 0
            if size == 0 or at + size > len(octets):
                raise Malformed("an extension header does not fit")
            extensions[following] = octets[at + 1 : at + size - 1]
            following, at = octets[at + size - 1], at + size
    return kind, teid, sequence, extensions, octets[at:]


def elements(octets):
    """The information elements of a signalling message as {type: value} (TS 29.281 §8.1)."""
    found, at = {}, 0
    sizes = {14: 1, 16: 4}  # Recovery, TEID Data I: fixed sizes, no length field
    while at < len(octets):
        kind, at = octets[at], at + 1
        if kind < 128:
            if kind not in sizes:
                raise Malformed(f"unknown element {kind} without a length")
            size = sizes[kind]
        else:
            size, at = struct.unpack_from(">H", octets, at)[0], at + 2
        if at + size > len(octets):
            raise Malformed(f"element {kind} does not fit")
        found[kind], at = octets[at : at + size], at + size
    return found


def checksum(octets):
    octets += bytes(len(octets) % 2)
    total = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ping(source, destination, identifier, sequence, payload=bytes(range(56))):
    """An IPv4 packet with an ICMP echo request; the addresses are text."""
    icmp = struct.pack(">BBHHH", 8, 0, 0, identifier, sequence) + payload
    icmp = icmp[:2] + checksum(icmp).to_bytes(2, "big") + icmp[4:]
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), sequence, 0, 64, 1, 0,
                         socket.inet_aton(source), socket.inet_aton(destination))
    return header[:10] + checksum(header).to_bytes(2, "big") + header[12:] + icmp


def is_pong(packet, ping_packet):
    """Whether `packet` is the echo reply to `ping_packet`, with right checksums."""
    return (
        len(packet) == len(ping_packet)
        and packet[0] == 0x45
        and checksum(packet[:20]) == 0
        and packet[9] == 1
        and packet[12:16] == ping_packet[16:20]
        and packet[16:20] == ping_packet[12:16]
        and checksum(packet[20:]) == 0
        and packet[20] == 0
        and packet[24:] == ping_packet[24:]
    )
