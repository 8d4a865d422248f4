//! What the logger and the UPFs behind it send each other over their sealed links, besides packets.

use std::net::{IpAddr, SocketAddr};

use whimbrel_pfcp::ie::RecoveryTimeStamp;

use crate::isolation::{HostAddresses, IpNetwork};
use crate::state::{STATE_VERSION, Stored, StoredReader, stored};

/// The form of frames and datagrams. Both ends have the same one.
const VERSION: u32 = 1;
/// What a hello begins with.
const MAGIC: [u8; 8] = *b"whimlog\0";

/// A record of the UPF's state, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    pub(crate) kind: u8,
    pub(crate) id: u32,
    /// Later writes have higher numbers.
    pub(crate) write: u64,
    /// `None`: it was removed.
    pub(crate) octets: Option<Vec<u8>>,
}

impl StateRecord {
    /// Octets that it takes in a frame, or a little less.
    pub fn octets(&self) -> usize {
        18 + self.octets.as_ref().map_or(0, Vec::len)
    }
}

stored!(StateRecord { kind, id, write, octets });

/// The first octets of a UPF on its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggerHello {
    /// Names the configuration: two UPFs are each other's replicas if it is the same ([`Config::state_key`](crate::Config::state_key)).
    pub configuration: u64,
    /// What its packets name. It is drawn by chance for each process.
    pub token: u64,
    /// The term in which it serves or has served, zero if it has not.
    pub term: u64,
}

impl LoggerHello {
    /// The encoded form, as it is sent.
    pub fn to_octets(self) -> Vec<u8> {
        let mut to = Vec::new();
        (MAGIC, VERSION).store(&mut to);
        (STATE_VERSION, self.configuration).store(&mut to);
        (self.token, self.term).store(&mut to);
        to
    }

    /// Reads it. `None`: it is not a UPF of this version.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let mut from = StoredReader::new(octets);
        let (magic, version): ([u8; 8], u32) = Stored::restore(&mut from)?;
        let (state, configuration): (u32, u64) = Stored::restore(&mut from)?;
        let (token, term) = Stored::restore(&mut from)?;
        let known = magic == MAGIC && version == VERSION && state == STATE_VERSION && from.is_empty();
        known.then_some(Self { configuration, token, term })
    }
}

/// A frame between logger and UPF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggerFrame {
    /// To a UPF: it is to serve, in this term.
    Serve {
        /// The term that begins.
        term: u64,
    },
    /// To a UPF: it is to be the replica.
    Follow,
    /// To a UPF: another one serves in its place.
    Replaced,
    /// To the UPF that serves: its whole state is to be sent, for a replica.
    SendState,
    /// To a UPF: its address for packets is not known yet.
    SendAddress,
    /// To a UPF: addresses that the logger's host takes packets for.
    HostAddresses(Vec<(IpAddr, u8)>),
    /// To the UPF that serves: a message of an SMF.
    FromSmf {
        /// Counter of the message.
        counter: u64,
        /// The SMF's address.
        peer: SocketAddr,
        /// The datagram as it came.
        octets: Vec<u8>,
    },
    /// The state of the UPF that serves is this from now on; its records follow.
    State {
        /// The key of F-TEIDs.
        seed: u64,
        /// The Recovery Time Stamp.
        recovery: RecoveryTimeStamp,
    },
    /// Records that have changed, in the order of their writes. To the replica with the number of the batch.
    Records {
        /// The number; zero from the UPF.
        batch: u64,
        /// The last of a whole state, or any later ones.
        complete: bool,
        /// Records that have changed.
        records: Vec<StateRecord>,
    },
    /// From the replica: it has all batches up to this one.
    Acknowledge {
        /// Number of the batch that is applied.
        batch: u64,
    },
    /// From a replica that serves now.
    Serves,
    /// From the UPF: a datagram for an SMF.
    ToSmf {
        /// The SMF's address.
        to: SocketAddr,
        /// The datagram as it leaves.
        octets: Vec<u8>,
    },
    /// From the UPF: it has handled a message of an SMF.
    Handled {
        /// Counter of the message that is handled.
        counter: u64,
    },
}

impl LoggerFrame {
    /// Addresses of a host.
    pub fn host_addresses(addresses: &HostAddresses) -> Self {
        let singles = addresses.singles().iter().map(|a| IpNetwork::host(*a));
        let all = singles.chain(addresses.networks().iter().copied());
        Self::HostAddresses(all.map(|n| (n.address, n.prefix)).collect())
    }

    /// The encoded form, as it is sent.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Serve { term } => (1u8, *term).store(&mut to),
            Self::Follow => 2u8.store(&mut to),
            Self::Replaced => 3u8.store(&mut to),
            Self::SendState => 4u8.store(&mut to),
            Self::SendAddress => 5u8.store(&mut to),
            Self::HostAddresses(all) => (6u8, all.clone()).store(&mut to),
            Self::FromSmf { counter, peer, octets } => {
                (7u8, (*counter, *peer)).store(&mut to);
                to.extend_from_slice(octets);
            }
            Self::State { seed, recovery } => (8u8, (*seed, *recovery)).store(&mut to),
            Self::Records { batch, complete, records } => {
                (9u8, (*batch, *complete)).store(&mut to);
                records.store(&mut to);
            }
            Self::Acknowledge { batch } => (10u8, *batch).store(&mut to),
            Self::Serves => 11u8.store(&mut to),
            Self::ToSmf { to: smf, octets } => {
                (12u8, *smf).store(&mut to);
                to.extend_from_slice(octets);
            }
            Self::Handled { counter } => (13u8, *counter).store(&mut to),
        }
        to
    }

    /// Reads it. `None`: no such frame.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let mut from = StoredReader::new(octets);
        let frame = match u8::restore(&mut from)? {
            1 => Self::Serve { term: Stored::restore(&mut from)? },
            2 => Self::Follow,
            3 => Self::Replaced,
            4 => Self::SendState,
            5 => Self::SendAddress,
            6 => Self::HostAddresses(Stored::restore(&mut from)?),
            7 => {
                let (counter, peer) = Stored::restore(&mut from)?;
                return Some(Self::FromSmf { counter, peer, octets: from.rest().to_vec() });
            }
            8 => {
                let (seed, recovery) = Stored::restore(&mut from)?;
                Self::State { seed, recovery }
            }
            9 => {
                let (batch, complete) = Stored::restore(&mut from)?;
                Self::Records { batch, complete, records: Stored::restore(&mut from)? }
            }
            10 => Self::Acknowledge { batch: Stored::restore(&mut from)? },
            11 => Self::Serves,
            12 => {
                let to = Stored::restore(&mut from)?;
                return Some(Self::ToSmf { to, octets: from.rest().to_vec() });
            }
            13 => Self::Handled { counter: Stored::restore(&mut from)? },
            _ => return None,
        };
        from.is_empty().then_some(frame)
    }

    /// The addresses of [`Self::HostAddresses`]; none of another frame. Prefixes that cannot be are left out.
    pub fn addresses(&self) -> HostAddresses {
        let Self::HostAddresses(all) = self else { return HostAddresses::default() };
        let can_be = |(address, prefix): &&(IpAddr, u8)| *prefix <= if address.is_ipv4() { 32 } else { 128 };
        all.iter()
            .filter(can_be)
            .map(|(address, prefix)| IpNetwork { address: *address, prefix: *prefix })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::datagram::DatagramHead;
    use super::*;

    fn frames() -> Vec<LoggerFrame> {
        let smf: SocketAddr = "[2001:db8::7]:8805".parse().unwrap();
        let one = StateRecord { kind: 3, id: 7, write: 1 << 40, octets: Some(vec![1, 2, 3]) };
        let gone = StateRecord { octets: None, ..one.clone() };
        let host = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()].map(IpNetwork::host);
        vec![
            LoggerFrame::Serve { term: 3 },
            LoggerFrame::Follow,
            LoggerFrame::Replaced,
            LoggerFrame::SendState,
            LoggerFrame::SendAddress,
            LoggerFrame::host_addresses(&host.into_iter().collect()),
            LoggerFrame::FromSmf { counter: 9, peer: smf, octets: vec![1, 2] },
            LoggerFrame::State { seed: 8, recovery: RecoveryTimeStamp(3) },
            LoggerFrame::Records { batch: 2, complete: true, records: vec![one, gone] },
            LoggerFrame::Acknowledge { batch: 2 },
            LoggerFrame::Serves,
            LoggerFrame::ToSmf { to: smf, octets: vec![] },
            LoggerFrame::Handled { counter: 9 },
        ]
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        for frame in frames() {
            assert_eq!(LoggerFrame::read(&frame.to_octets()), Some(frame));
        }
        let hello = LoggerHello { configuration: 7, token: 1 << 63, term: 2 };
        assert_eq!(LoggerHello::read(&hello.to_octets()), Some(hello));
        assert_eq!(LoggerHello::read(&hello.to_octets()[1..]), None);
    }

    #[test] // fuzz/seeds/logger
    #[allow(clippy::disallowed_methods, reason = "a test reads the corpus")]
    fn the_kept_inputs_of_the_fuzzer_are_what_their_names_say() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/logger");
        let mut kept = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            let octets = std::fs::read(file.path()).unwrap();
            let read = (
                LoggerFrame::read(&octets).is_some(),
                LoggerHello::read(&octets).is_some(),
                DatagramHead::read(&octets).is_some(),
            );
            let expected = match name.split('-').next() {
                Some("frame") => (true, false, false),
                Some("hello") => (false, true, false),
                Some("head") => (false, false, true),
                _ => (false, false, false),
            };
            assert_eq!(read, expected, "{name}");
            kept += 1;
        }
        assert!(kept > 13, "{kept} inputs");
    }

    #[test]
    fn addresses_that_cannot_be_are_left_out() {
        let all = vec![([192, 0, 2, 1].into(), 33), ([192, 0, 2, 2].into(), 32)];
        let read = LoggerFrame::HostAddresses(all).addresses();
        assert_eq!(read.singles(), [IpAddr::from([192, 0, 2, 2])]);
    }

    proptest! {
        #[test]
        fn any_octets_are_a_frame_or_none(octets in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..15) {
            let octets = [&[kind][..], &octets].concat();
            if let Some(frame) = LoggerFrame::read(&octets) {
                prop_assert_eq!(LoggerFrame::read(&frame.to_octets()), Some(frame));
            }
            LoggerHello::read(&octets);
        }
    }
}
