"""One SCTP association through the kernel's own SCTP (RFC 6458), with streams and payload protocol identifiers."""
import socket
import struct

IPPROTO_SCTP = 132
PPID_NGAP = 60  # TS 38.412 §7

# linux/sctp.h: socket options, ancillary data and flags
SCTP_INITMSG, SCTP_NODELAY, SCTP_EVENTS = 2, 3, 11
CMSG_SNDRCV = 1
MSG_NOTIFICATION = 0x8000
SNDRCVINFO = struct.Struct("=HHHxxIIIIIi")  # stream, ssn, flags, ppid, context, lifetime, tsn, cumulative tsn, association


class Closed(Exception):
    """The peer has ended the association."""


class Association:
    """A client's association. One message is one NGAP PDU, however long."""

    def __init__(self, peer, port=38412, local=None):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SCTP)
        if local:
            self.socket.bind((local, 0))
        self.socket.setsockopt(IPPROTO_SCTP, SCTP_INITMSG, struct.pack("=HHHH", 8, 8, 4, 2000))
        self._tune()
        self.socket.settimeout(8)
        self.socket.connect((peer, port))

    def _tune(self):
        self.socket.setsockopt(IPPROTO_SCTP, SCTP_NODELAY, 1)
        self.socket.setsockopt(IPPROTO_SCTP, SCTP_EVENTS, b"\x01" + bytes(7))  # data_io_event: say stream and PPID

    @classmethod
    def accepted(cls, listener):
        """The next association of a listening socket."""
        association = cls.__new__(cls)
        association.socket, _ = listener.accept()
        association._tune()
        return association

    def fileno(self):
        return self.socket.fileno()

    def send(self, octets, stream=0, ppid=PPID_NGAP):
        info = SNDRCVINFO.pack(stream, 0, 0, socket.htonl(ppid), 0, 0, 0, 0, 0)
        self.socket.sendmsg([octets], [(IPPROTO_SCTP, CMSG_SNDRCV, info)])

    def receive(self, timeout):
        """(stream, ppid, octets) of the next message. Raises TimeoutError or Closed."""
        self.socket.settimeout(timeout)
        message, stream, ppid = b"", 0, 0
        while True:
            try:
                part, ancillary, flags, _ = self.socket.recvmsg(1 << 18, 256)
            except ConnectionError as error:
                raise Closed(str(error)) from error
            if not part:
                raise Closed("the association was shut down")
            if flags & MSG_NOTIFICATION:
                continue
            for level, kind, data in ancillary:
                if (level, kind) == (IPPROTO_SCTP, CMSG_SNDRCV):
                    fields = SNDRCVINFO.unpack(data[: SNDRCVINFO.size])
                    stream, ppid = fields[0], socket.ntohl(fields[3])
            message += part
            if flags & socket.MSG_EOR:
                return stream, ppid, message

    def close(self):
        """Graceful: SHUTDOWN (RFC 9260 §9.2)."""
        self.socket.close()

    def abort(self):
        """ABORT (RFC 9260 §9.1): what a gNB that loses power looks like, at best."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
