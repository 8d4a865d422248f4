//! TCP_INFO of all TCP connections of a network namespace with a given port, by sock_diag(7).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const AF_INET: u8 = 2;
const IPPROTO_TCP: u8 = 6;
/// The attribute that holds `struct tcp_info`; a request asks for it by a bit mask that counts from 1.
const INET_DIAG_INFO: u16 = 2;
/// Established connections only: the bit of TCP_ESTABLISHED.
const ESTABLISHED: u32 = 1 << 1;
const HEADER_OCTETS: usize = 16;
/// `struct inet_diag_msg`.
const MESSAGE_OCTETS: usize = 72;
/// The kernel fills a datagram of a dump up to this size.
const DUMP_OCTETS_MAX: usize = 32_768;

/// What the kernel counts of one connection, or the sums of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpInfo {
    /// Smoothed round-trip time; of several connections the longest.
    pub(super) rtt_us: u32,
    /// Congestion window, in segments.
    pub(super) window: u32,
    /// Segments that were sent and are not acknowledged.
    pub(super) unacknowledged: u32,
    pub(super) retransmitted: u32,
    pub(super) segments_out: u32,
    pub(super) segments_in: u32,
    pub(super) data_segments_in: u32,
    pub(super) data_segments_out: u32,
    /// Segments of which the receiver reported by DSACK that it has them twice.
    pub(super) repeated: u32,
}

impl TcpInfo {
    /// From `struct tcp_info`; a kernel that counts less leaves zeros.
    fn parse(octets: &[u8]) -> Self {
        let word = |at: usize| {
            let word = octets.get(at..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |word| u32::from_ne_bytes(*word))
        };
        Self {
            unacknowledged: word(24),
            rtt_us: word(68),
            window: word(80),
            retransmitted: word(100),
            segments_out: word(136),
            segments_in: word(140),
            data_segments_in: word(152),
            data_segments_out: word(156),
            repeated: word(216),
        }
    }

    pub(super) fn add(self, other: Self) -> Self {
        Self {
            rtt_us: self.rtt_us.max(other.rtt_us),
            window: self.window + other.window,
            unacknowledged: self.unacknowledged + other.unacknowledged,
            retransmitted: self.retransmitted + other.retransmitted,
            segments_out: self.segments_out + other.segments_out,
            segments_in: self.segments_in + other.segments_in,
            data_segments_in: self.data_segments_in + other.data_segments_in,
            data_segments_out: self.data_segments_out + other.data_segments_out,
            repeated: self.repeated + other.repeated,
        }
    }
}

/// A socket of sock_diag, in the network namespace of the thread that opened it.
pub(super) struct Diagnosis(OwnedFd);

impl Diagnosis {
    pub(super) fn open() -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        Ok(Self(socket_with(family, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?))
    }

    /// The established connections over IPv4 of which one end has this port: of the server if `local`, else of the clients.
    pub(super) fn connections(&self, port: u16, local: bool) -> io::Result<Vec<TcpInfo>> {
        send(&self.0, &request(), SendFlags::empty())?;
        let (mut found, mut buffer) = (Vec::new(), vec![0; DUMP_OCTETS_MAX]);
        loop {
            let (n, _) = recv(&self.0, &mut buffer, RecvFlags::empty())?;
            if read(buffer.get(..n).unwrap_or_default(), port, local, &mut found)? {
                return Ok(found);
            }
        }
    }
}

/// A dump of established connections, with their TCP_INFO.
fn request() -> Vec<u8> {
    // struct nlmsghdr, then struct inet_diag_req_v2, whose socket identity is left open.
    let mut request = vec![0; HEADER_OCTETS + 56];
    let length = (request.len() as u32).to_ne_bytes();
    request[..4].copy_from_slice(&length);
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request[HEADER_OCTETS..HEADER_OCTETS + 3].copy_from_slice(&[
        AF_INET,
        IPPROTO_TCP,
        1 << (INET_DIAG_INFO - 1),
    ]);
    request[HEADER_OCTETS + 4..HEADER_OCTETS + 8].copy_from_slice(&ESTABLISHED.to_ne_bytes());
    request
}

/// Reads the messages of one datagram; true at the end of the dump. Errors: the kernel refuses.
fn read(mut octets: &[u8], port: u16, local: bool, found: &mut Vec<TcpInfo>) -> io::Result<bool> {
    while let Some(head) = octets.first_chunk::<HEADER_OCTETS>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(message) = octets.get(HEADER_OCTETS..length) else { break };
        match u16::from_ne_bytes([head[4], head[5]]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return Err(io::Error::other("the kernel reports no TCP connections")),
            _ => {
                // Ports are in network order; the server's is the one of the two that is asked for.
                let at = if local { 4 } else { 6 };
                let own = message.get(at..at + 2) == Some(&port.to_be_bytes());
                found.extend(
                    message.get(MESSAGE_OCTETS..).filter(|_| own).and_then(attribute).map(TcpInfo::parse),
                );
            }
        }
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The content of INET_DIAG_INFO.
fn attribute(mut octets: &[u8]) -> Option<&[u8]> {
    loop {
        let head = octets.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]])).max(4);
        if u16::from_ne_bytes([head[2], head[3]]) == INET_DIAG_INFO {
            return octets.get(4..length);
        }
        octets = octets.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernel_reports_the_segments_of_both_ends_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(&[7; 1000]).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        let diagnosis = Diagnosis::open().unwrap();
        let [of_server] = diagnosis.connections(address.port(), true).unwrap()[..] else {
            panic!("one connection")
        };
        let [of_client] = diagnosis.connections(address.port(), false).unwrap()[..] else {
            panic!("one connection")
        };
        assert_eq!((of_server.data_segments_out, of_client.data_segments_in), (1, 1));
        assert_eq!((of_server.retransmitted, of_client.data_segments_out), (0, 0));
        assert!(of_server.rtt_us > 0 && of_server.window > 0);
        assert!(of_client.segments_out >= 1 && of_client.segments_in >= 1);
    }

    #[test]
    fn messages_that_are_cut_short_are_left_out() {
        let mut found = Vec::new();
        for octets in [&[][..], &[0; 15], &[200, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(!read(octets, 80, true, &mut found).unwrap());
        }
        assert!(found.is_empty());
        assert_eq!(attribute(&[3, 0, 2, 0]), Some(&[][..]));
        assert_eq!(attribute(&[0, 0, 1, 0, 0]), None);
    }
}
