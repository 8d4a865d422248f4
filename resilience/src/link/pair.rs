//! Messages between the primary CTA and its replica.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use whimbrel_ids::SNssai;

use super::octets::{read, whole, write};
use super::{HeartbeatKey, LinkError};
use crate::CodeVersion;
use crate::membership::CtaInstance;
use crate::replication::CpfId;

/// The CPFs of a CTA, for a replica that takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpfTable {
    /// The incarnation of the pair in which their numbers are valid.
    pub life: u64,
    /// The newest number.
    pub newest: u16,
    /// The CPFs that are connected.
    pub members: Vec<CpfEntry>,
}

/// A CPF of a CTA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpfEntry {
    /// Number of the CPF.
    pub id: CpfId,
    /// Where it is reached.
    pub address: SocketAddr,
    /// Region of the CPF.
    pub region: String,
    /// The code that it runs.
    pub code: CodeVersion,
    /// The CPF drains.
    pub draining: bool,
    /// Its number at etcd, once it was seen listed there.
    pub listed: Option<CpfId>,
    /// The slice whose UEs it serves, if it serves one alone.
    pub slice: Option<SNssai>,
}

/// From the primary CTA to its replica.
pub enum ToCtaReplica<'a> {
    /// The replica is accepted: so many octets of a [`Snapshot`](crate::cta_replica::Snapshot) come in pieces, with records between them.
    Begin {
        /// Octets of the snapshot.
        octets: u64,
        /// The key of heartbeats between the two.
        heartbeats: HeartbeatKey,
        /// The primary's endpoints for gNBs, which are removed there when it is gone.
        endpoints: Vec<IpAddr>,
    },
    /// A piece of the snapshot.
    Piece(&'a [u8]),
    /// A [`ReplicaRecord`](crate::cta_replica::ReplicaRecord). An earlier list of CPFs applies to it.
    Record(&'a [u8]),
    /// The CPFs, from here on.
    Cpfs(CpfTable),
    /// Entries of the primary's subscriber store.
    Subscribers(&'a [u8]),
}

/// From a replica, or a CTA that asks to become one, to the primary.
#[derive(Debug, PartialEq, Eq)]
pub enum ToPrimaryCta {
    /// It asks to become the replica: the first message.
    Follow {
        /// The CTA that sent it.
        place: CtaInstance,
        /// Where CPFs, and heartbeats, reach it; an unspecified address stands for the one that it calls from.
        address: SocketAddr,
        /// Where gNBs reach it.
        endpoints: Vec<IpAddr>,
        /// The address of its SMF.
        smf: IpAddr,
    },
    /// It has received so many pieces of the snapshot.
    Pieces(u64),
    /// It holds the inputs up to this one.
    Held(u64),
}

#[derive(Serialize, Deserialize)]
pub(super) enum CtaReplicaHead {
    Begin { octets: u64, heartbeats: HeartbeatKey, endpoints: Vec<IpAddr> },
    Piece,
    Record,
    Cpfs(CpfTable),
    Subscribers,
}

#[derive(Serialize, Deserialize)]
pub(super) enum PrimaryHead {
    Follow { place: CtaInstance, address: SocketAddr, endpoints: Vec<IpAddr>, smf: IpAddr },
    Pieces(u64),
    Held(u64),
}

/// Lengths alone: the rest may hold keys.
impl fmt::Debug for ToCtaReplica<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { octets, .. } => write!(f, "Begin({octets} octets)"),
            Self::Piece(octets) => write!(f, "Piece({} octets)", octets.len()),
            Self::Record(octets) => write!(f, "Record({} octets)", octets.len()),
            Self::Cpfs(members) => members.fmt(f),
            Self::Subscribers(octets) => write!(f, "Subscribers({} octets)", octets.len()),
        }
    }
}

impl<'a> ToCtaReplica<'a> {
    /// Appends its octets. They may hold keys.
    pub fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Begin { octets, heartbeats, endpoints } => {
                let (octets, heartbeats, endpoints) = (*octets, *heartbeats, endpoints.clone());
                write(&CtaReplicaHead::Begin { octets, heartbeats, endpoints }, &[], to);
            }
            Self::Piece(octets) => write(&CtaReplicaHead::Piece, octets, to),
            Self::Record(octets) => write(&CtaReplicaHead::Record, octets, to),
            Self::Subscribers(octets) => write(&CtaReplicaHead::Subscribers, octets, to),
            Self::Cpfs(members) => write(&CtaReplicaHead::Cpfs(members.clone()), &[], to),
        }
    }

    /// Reads what [`Self::write`] wrote. Errors: [`LinkError::Malformed`].
    pub fn read(octets: &'a [u8]) -> Result<Self, LinkError> {
        let (head, rest) = read(octets)?;
        match head {
            CtaReplicaHead::Begin { octets, heartbeats, endpoints } => {
                whole(Self::Begin { octets, heartbeats, endpoints }, rest)
            }
            CtaReplicaHead::Piece => Ok(Self::Piece(rest)),
            CtaReplicaHead::Record => Ok(Self::Record(rest)),
            CtaReplicaHead::Subscribers => Ok(Self::Subscribers(rest)),
            CtaReplicaHead::Cpfs(members) => whole(Self::Cpfs(members), rest),
        }
    }
}

impl ToPrimaryCta {
    /// Appends its octets.
    pub fn write(&self, to: &mut Vec<u8>) {
        let head = match self {
            Self::Follow { place, address, endpoints, smf } => {
                let endpoints = endpoints.clone();
                PrimaryHead::Follow { place: *place, address: *address, endpoints, smf: *smf }
            }
            Self::Pieces(pieces) => PrimaryHead::Pieces(*pieces),
            Self::Held(number) => PrimaryHead::Held(*number),
        };
        write(&head, &[], to);
    }

    /// Reads what [`Self::write`] wrote. Errors: [`LinkError::Malformed`].
    pub fn read(octets: &[u8]) -> Result<Self, LinkError> {
        let (head, rest) = read(octets)?;
        let message = match head {
            PrimaryHead::Follow { place, address, endpoints, smf } => {
                Self::Follow { place, address, endpoints, smf }
            }
            PrimaryHead::Pieces(pieces) => Self::Pieces(pieces),
            PrimaryHead::Held(number) => Self::Held(number),
        };
        whole(message, rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::detector::Incarnation;

    fn members() -> CpfTable {
        let address = ([192, 0, 2, 7], 7381).into();
        let member = CpfEntry {
            code: CodeVersion(7),
            id: CpfId(3),
            address,
            region: "home/site".into(),
            draining: true,
            listed: Some(CpfId(9)),
            slice: Some(SNssai::sst(2)),
        };
        CpfTable { life: u64::MAX, newest: 9, members: vec![member] }
    }

    fn octets(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut octets = Vec::new();
        write(&mut octets);
        octets
    }

    #[test]
    fn each_message_is_read_as_it_was_written() {
        let endpoints = vec![[192, 0, 2, 1].into(), [0; 16].into()];
        let begin = ToCtaReplica::Begin { octets: 1 << 40, heartbeats: HeartbeatKey([7; 32]), endpoints };
        for message in [
            begin,
            ToCtaReplica::Piece(b"snap"),
            ToCtaReplica::Record(b"rec"),
            ToCtaReplica::Cpfs(members()),
            ToCtaReplica::Subscribers(b"set"),
        ] {
            let written = octets(|to| message.write(to));
            let read = ToCtaReplica::read(&written).expect("it was written so");
            assert_eq!(octets(|to| read.write(to)), written);
            assert_eq!(format!("{read:?}"), format!("{message:?}"));
        }
        let place = CtaInstance { cta: 2, incarnation: Incarnation(7) };
        let endpoints = vec![[192, 0, 2, 2].into()];
        let (address, smf) = (([192, 0, 2, 2], 7380).into(), [192, 0, 2, 2].into());
        let follow = ToPrimaryCta::Follow { place, address, endpoints, smf };
        for message in [follow, ToPrimaryCta::Pieces(9), ToPrimaryCta::Held(1 << 50)] {
            let written = octets(|to| message.write(to));
            assert_eq!(ToPrimaryCta::read(&written), Ok(message));
            assert_eq!(ToPrimaryCta::read(&[&written[..], &[0]].concat()), Err(LinkError::Malformed));
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_refused_or_read(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(message) = ToPrimaryCta::read(&octets) {
                let mut again = Vec::new();
                message.write(&mut again);
                prop_assert_eq!(ToPrimaryCta::read(&again), Ok(message));
            }
            let _ = ToCtaReplica::read(&octets);
        }
    }
}
