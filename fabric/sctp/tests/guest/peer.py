"""The other side: Linux kernel SCTP in the guest, against our endpoint on the host. Prints a line per check."""

import os
import random
import socket
import struct
import subprocess
import sys
import time

SCTP = 132  # IPPROTO_SCTP
INITMSG, NODELAY, PEER_ADDR_PARAMS, EVENTS, BINDX_ADD = 2, 3, 9, 11, 100
SNDRCV, UNORDERED, NOTIFICATION = 1, 1, 0x8000
HOST, HOST2, HOST6 = (os.environ[k] for k in ("HOST_IP", "HOST_IP2", "HOST_IP6"))
GUEST, GUEST2 = os.environ["GUEST_IP"], os.environ["GUEST_IP2"]
OUT = os.environ["G_OUT"]
INFO = "<HHHxxIIIIIi"  # struct sctp_sndrcvinfo


def sctp_socket(family=socket.AF_INET, port=0, nodelay=True, address=""):
    s = socket.socket(family, socket.SOCK_STREAM, SCTP)
    s.settimeout(15)
    s.setsockopt(SCTP, INITMSG, struct.pack("<HHHH", 32, 1024, 0, 0))
    s.setsockopt(SCTP, EVENTS, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    s.setsockopt(SCTP, NODELAY, int(nodelay))
    s.bind(("::" if family == socket.AF_INET6 else address, port))
    return s


def client(host=HOST, to_port=38412, **how):
    s = sctp_socket(socket.AF_INET6 if ":" in host else socket.AF_INET, **how)
    s.connect((host, to_port))
    return s


def send(s, data, stream=0, flags=0):
    info = struct.pack(INFO, stream, 0, flags, socket.htonl(60), 0, 0, 0, 0, 0)
    s.sendmsg([data], [(SCTP, SNDRCV, info)])


def receive(s):
    """A whole message: its octets, stream and PPID. None at the end."""
    parts = []
    while True:
        data, control, flags, _ = s.recvmsg(1 << 18, 256)
        if flags & NOTIFICATION:
            continue
        if not data:
            return None
        parts.append(data)
        if flags & socket.MSG_EOR:
            stream, _, _, ppid, *_ = struct.unpack(INFO, control[0][2])
            return b"".join(parts), stream, socket.ntohl(ppid)


def echo(s, data, stream=0, flags=0):
    send(s, data, stream, flags)
    got = receive(s)
    assert got == (data, stream, 60), (got and (len(got[0]), got[1:]), len(data), stream)


def abort(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def ip(*args):
    subprocess.run(["ip", *args], check=True)


def sizes_and_streams(s):
    for stream, size in [(0, 1), (1, 3), (5, 1000), (31, 1452), (2, 5000), (7, 60000), (3, 100000)]:
        echo(s, random.randbytes(size), stream)


def check_sizes_and_streams():
    s = client()
    sizes_and_streams(s)
    s.close()


def check_ipv6():
    s = client(HOST6)
    sizes_and_streams(s)
    s.close()


def check_burst_with_nagle():
    s = client(nodelay=False)
    sent = {stream: [] for stream in range(8)}
    for i in range(300):
        message = b"%d " % i + bytes(80)
        send(s, message, i % 8)
        sent[i % 8].append(message)
    for _ in range(300):
        data, stream, _ = receive(s)
        assert data == sent[stream].pop(0)
    s.close()


def check_unordered():
    s = client()
    messages = {b"%d" % i for i in range(50)}
    for m in messages:
        send(s, m, 4, UNORDERED)
    assert {receive(s)[0] for _ in messages} == messages
    s.close()


def check_heartbeats_both_ways():
    s = client()
    params = struct.pack("<i128sIHIII", 0, bytes(128), 500, 5, 0, 0, 1)  # struct sctp_paddrparams, 500 ms
    s.setsockopt(SCTP, PEER_ADDR_PARAMS, params.ljust(152, b"\0"))
    time.sleep(5)
    echo(s, b"still here")
    s.close()


def check_peer_shuts_down():
    s = client()
    send(s, b"please shut down")
    assert receive(s) is None
    s.close()


def check_peer_aborts():
    s = client()
    send(s, b"please abort")
    try:
        assert receive(s) is None
    except ConnectionError:
        pass
    s.close()


def check_we_abort():
    s = client()
    echo(s, b"here")
    abort(s)


def check_reboot():
    """A gNB that loses its power: the association vanishes here without a word, then a new INIT comes."""
    s = client(port=4000)
    echo(s, b"before")
    ip("link", "set", "eth0", "down")
    abort(s)
    ip("link", "set", "eth0", "up")
    ip("-6", "addr", "replace", os.environ["GUEST_IP6"] + "/64", "dev", "eth0", "nodad")
    s = client(port=4000)
    echo(s, b"after")
    sizes_and_streams(s)
    s.close()


def check_multihomed_failover():
    s = sctp_socket_multihomed()
    s.connect((HOST, 38412))
    echo(s, b"both paths")
    time.sleep(2)  # the other path is confirmed meanwhile
    ip("addr", "del", GUEST + "/24", "dev", "eth0")
    for i in range(5):
        echo(s, b"one path %d" % i)
    abort(s)
    ip("addr", "add", GUEST + "/24", "dev", "eth0")


def sctp_socket_multihomed():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, SCTP)
    s.settimeout(60)
    s.setsockopt(SCTP, INITMSG, struct.pack("<HHHH", 32, 1024, 0, 0))
    s.setsockopt(SCTP, EVENTS, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    s.setsockopt(SCTP, NODELAY, 1)
    s.bind((GUEST, 4100))
    second = struct.pack("=H", socket.AF_INET) + struct.pack(">H", 4100) + socket.inet_aton(GUEST2) + bytes(8)
    s.setsockopt(SCTP, BINDX_ADD, second)
    return s


def check_garbage():
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, SCTP)
    for _ in range(500):
        header = struct.pack(">HHI", random.randrange(65536), 38412, random.getrandbits(32))
        raw.sendto(header + random.randbytes(random.randrange(200)), (HOST, 0))
    check_sizes_and_streams()


def check_udp_encapsulation():
    """RFC 6951, the kernel's against ours. Small messages: the guest itself drops encapsulated packets of full size."""
    subprocess.run(["sysctl", "-qw", "net.sctp.udp_port=9899", "net.sctp.encap_port=9899"], check=True)
    s = client(to_port=38413)
    for size in (1, 100, 1000):
        echo(s, random.randbytes(size), 1)
    s.close()
    subprocess.run(["sysctl", "-qw", "net.sctp.encap_port=0", "net.sctp.udp_port=0"], check=True)


def check_we_are_the_server():
    """The host connects, vanishes without a word, connects again from the same port, and shuts down."""
    listener = sctp_socket(port=7000)
    listener.listen(4)
    open(OUT + "/connect", "w").close()
    s, _ = listener.accept()
    s.settimeout(30)
    s.setsockopt(SCTP, EVENTS, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    n = 0
    while (got := receive(s)) is not None:
        send(s, got[0], got[1])
        n += 1
    assert n == 8, n
    s.close()


def check_our_kernel_mode():
    """Our transport over this kernel's SCTP, with this kernel's socket and with the host's raw endpoint."""
    log = open(OUT + "/kernel.log", "w")
    env = dict(os.environ, GUEST_ROLE="kernel")
    server = subprocess.Popen([os.environ["TEST_BINARY"], "--exact", "guest::role", "--nocapture"], env=env, stdout=log, stderr=log)
    time.sleep(1)
    s = sctp_socket()
    s.connect(("127.0.0.1", 38414))
    sizes_and_streams(s)
    s.close()
    s = sctp_socket()
    s.connect(("127.0.0.1", 38414))
    echo(s, b"here")
    abort(s)
    probed(log.name)
    open(OUT + "/connect-kernel", "w").close()
    # Five associations one after the other, and each lost packet of them costs a retransmission timer that doubles from a second on.
    wait_for("the host's client", 90, lambda: os.path.exists(OUT + "/connect-kernel-done"))
    stopped_with_unacknowledged_data()
    server.kill()


def wait_for(what, seconds, is_done):
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, what + " did not finish"
        time.sleep(0.2)


def probed(log):
    """Two peers that are probed: one answers, the other has lost its address, and its association must stand all the same."""
    ip("addr", "add", "10.99.0.1/32", "dev", "lo")
    alive, silent = sctp_socket(), sctp_socket(address="10.99.0.1")
    alive.connect(("127.0.0.1", 38414))
    silent.connect((GUEST, 38414))
    for s in alive, silent:
        send(s, b"please probe")
    time.sleep(0.5)  # it is acknowledged
    ip("addr", "del", "10.99.0.1/32", "dev", "lo")
    open(OUT + "/fell-silent", "w").close()
    wait_for("probing", 20, lambda: open(log).read().count("kernel probed") == 2)
    echo(alive, b"still here")
    alive.close()
    ip("addr", "add", "10.99.0.1/32", "dev", "lo")
    abort(silent)
    ip("addr", "del", "10.99.0.1/32", "dev", "lo")


def stopped_with_unacknowledged_data():
    """A peer that does not read what it gets leaves DATA unacknowledged: the stop of the server reaches it by ABORT, at once."""
    s, idle = sctp_socket(), sctp_socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects: a small window, and no room behind it
    s.connect(("127.0.0.1", 38414))
    idle.connect(("127.0.0.1", 38414))
    for _ in range(8):
        send(s, bytes(60_000))
    send(s, b"please stop")
    idle.settimeout(3)
    assert receive(idle) is None  # SHUTDOWN: nothing is outstanding there
    time.sleep(0.6)  # the server waits 300 ms
    s.settimeout(3)
    try:
        while receive(s) is not None:
            pass
        raise AssertionError("a graceful end, which waits for the peer")
    except ConnectionError:
        pass
    late = sctp_socket()
    try:
        late.connect(("127.0.0.1", 38414))
        raise AssertionError("a server that stops takes no new association")
    except ConnectionError:
        pass


def main():
    only = sys.argv[1:]
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_") or only and name[6:] not in only:
            continue
        start = time.monotonic()
        try:
            check()
            print(f"ok {name[6:]} ({time.monotonic() - start:.1f} s)", flush=True)
        except Exception as e:
            failed += 1
            print(f"FAILED {name[6:]}: {e!r}", flush=True)
    sys.exit(1 if failed else 0)


main()
