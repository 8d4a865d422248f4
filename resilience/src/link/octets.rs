//! The messages of links as octets: a head, which is the whole message or describes what follows, and a flat form where there is one. Heads
//! are postcard's (see [`whimbrel_control::flat`]); links carry whole messages, unchanged and with their sender, so nothing of that is
//! repeated here.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use whimbrel_control::config::Config;
use whimbrel_control::{AssociationId, Batch, Checkpoint, Delta, Envelope, FlatError, UeId, UeSummary};
use whimbrel_ids::{SNssai, Supi};

use super::{CpfCommand, CpfReport, PeerMessage, UeCheckpoint};
use crate::region::Region;
use crate::replication::CpfId;

/// From a CTA's process to that of a CPF.
#[derive(Debug)]
pub enum ToCpf {
    /// The CPF is accepted, under this number of this incarnation of the CTA.
    Welcome {
        /// The CTA's incarnation: its numbers are invalid in another.
        life: u64,
        /// Number of the CPF.
        id: CpfId,
        /// The key of its heartbeats.
        heartbeats: HeartbeatKey,
        /// The CTA may get a replica: reports are kept until [`ToCpf::Taken`] acknowledges them.
        keep: bool,
    },
    /// The address of the CTA replica.
    CtaReplica(Option<SocketAddr>),
    /// So many of its [`CpfReport`] messages are here to stay, from the beginning of its membership.
    Taken(u64),
    /// The replica of its former CTA is primary now and resumes the link: the CPF repeats its reports after so many.
    Resumed {
        /// Number of reports that are here.
        taken: u64,
        /// The new key of its heartbeats.
        heartbeats: HeartbeatKey,
    },
    /// The CPF is unknown: it has to join again.
    Forgotten,
    /// All CPFs and their addresses.
    Peers(Vec<(CpfId, SocketAddr)>),
    /// A message of the replication protocol.
    Command(CpfCommand),
    /// An operator's query of UEs.
    ListUes {
        /// To be repeated in the answer.
        ask: u32,
        /// The UEs that are asked for.
        which: UeQuery,
    },
}

/// A key of heartbeats, of one incarnation of a CTA. Secret.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct HeartbeatKey(pub [u8; 32]);

impl fmt::Debug for HeartbeatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeartbeatKey(…)")
    }
}

/// An operator's query of UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UeQuery {
    /// The UEs of a subscriber.
    Subscriber(Supi),
    /// So many UEs in the order of their SUPI, after this one.
    Page(Option<Supi>, u32),
}

/// From a CPF's process to that of its CTA.
#[derive(Debug)]
pub enum ToCta {
    /// It asks to join: the first message.
    Join {
        /// Region of the CPF.
        region: Region,
        /// Where other CPFs, and heartbeats, reach it; an unspecified address stands for the one that it calls from.
        address: SocketAddr,
        /// The slice whose UEs it serves, if it serves one alone.
        slice: Option<SNssai>,
    },
    /// It belongs to the former primary: the first message to the CTA replica.
    Resume {
        /// The incarnation of that CTA.
        life: u64,
        /// Number of the CPF.
        id: CpfId,
        /// How many [`CpfCommand`] messages it has, from the beginning of its membership.
        has: u64,
    },
    /// It has so many [`CpfCommand`] messages.
    Taken(u64),
    /// Etcd lists it under this number.
    Listed(CpfId),
    /// It drains: its UEs move away, and then the CTA closes the link.
    Leave,
    /// What the protocol says.
    Report(CpfReport),
    /// The answer to a query.
    UeList {
        /// The number of the query.
        ask: u32,
        /// Summaries of the UEs.
        ues: Vec<UeSummary>,
    },
}

/// Why a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// It cannot be decoded.
    Malformed,
    /// The flat form in it is invalid.
    Flat(FlatError),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("a message of the link is malformed"),
            Self::Flat(why) => write!(f, "a message of the link holds an invalid form: {why}"),
        }
    }
}

impl std::error::Error for LinkError {}

impl From<FlatError> for LinkError {
    fn from(why: FlatError) -> Self {
        Self::Flat(why)
    }
}

/// What stands in front of a message to a CPF.
#[derive(Serialize, Deserialize)]
pub(super) enum CommandHead {
    Run,
    RunAfterTrial(UeId),
    Serve { ue: UeId, term: u32, backups: Vec<CpfId> },
    Outdated { ue: UeId, clock: u64, up_to_date: Vec<CpfId> },
    Released(u64),
    Forget { ue: UeId, term: u32 },
    Configure,
    Welcome { life: u64, id: CpfId, heartbeats: HeartbeatKey, keep: bool },
    CtaReplica(Option<SocketAddr>),
    Taken(u64),
    Resumed { taken: u64, heartbeats: HeartbeatKey },
    Forgotten,
    Peers(Vec<(CpfId, SocketAddr)>),
    ListUes { ask: u32, which: UeQuery },
    Hold { ue: UeId, term: u32 },
    Store { all: bool },
}

/// What stands in front of a message to a CTA.
#[derive(Serialize, Deserialize)]
pub(super) enum ReportHead {
    Join { region: String, address: SocketAddr, slice: Option<SNssai> },
    Resume { life: u64, id: CpfId, has: u64 },
    Taken(u64),
    Listed(CpfId),
    Leave,
    Ran { ue: UeId, term: u32, clock: u64, from: Option<AssociationId> },
    CheckpointHeld { ue: UeId, term: u32, clock: u64 },
    Poisoned { ue: UeId, term: u32, inputs: (u64, u64) },
    UeList { ask: u32, ues: Vec<UeSummary> },
    CheckpointUnusable { ue: UeId, term: u32 },
    Stored { term: u32 },
    AllStored,
}

/// From a CPF's process to that of another.
#[derive(Debug)]
pub struct ToPeer {
    /// The incarnation of the CTA in which both have their numbers.
    pub life: u64,
    /// The CPF that sent it.
    pub from: CpfId,
    /// What the protocol says.
    pub message: PeerMessage,
}

/// What stands in front of a message to another CPF.
#[derive(Serialize, Deserialize)]
pub(super) enum PeerHead {
    State { ue: UeId, term: u32, clock: u64 },
    Delta { term: u32 },
    Fetch { ue: UeId, clock: u64 },
}

pub(super) fn write(head: &impl Serialize, flat: &[u8], to: &mut Vec<u8>) {
    let mut octets = std::mem::take(to);
    octets.reserve(32 + flat.len());
    *to = postcard::to_extend(head, octets).expect("heads can be written");
    to.extend_from_slice(flat);
}

/// The head, and what follows it.
pub(super) fn read<T: DeserializeOwned>(octets: &[u8]) -> Result<(T, &[u8]), LinkError> {
    postcard::take_from_bytes(octets).map_err(|_| LinkError::Malformed)
}

/// Nothing may follow a head that is a whole message.
pub(super) fn whole<T>(message: T, rest: &[u8]) -> Result<T, LinkError> {
    if rest.is_empty() { Ok(message) } else { Err(LinkError::Malformed) }
}

impl ToCpf {
    /// Appends its octets. They may hold keys.
    pub fn write(&self, to: &mut Vec<u8>) {
        let head = match self {
            Self::Command(CpfCommand::Run(envelope)) => {
                write(&CommandHead::Run, &[], to);
                return envelope.write_flat(to);
            }
            Self::Command(CpfCommand::RunLogged(input)) => {
                return write(&CommandHead::Run, input.octets(), to);
            }
            Self::Command(CpfCommand::RunAfterTrial { ue, inputs }) => {
                write(&CommandHead::RunAfterTrial(*ue), &[], to);
                return write_envelopes(inputs, to);
            }
            Self::Command(CpfCommand::Configure(config)) => {
                return write(&CommandHead::Configure, config.to_flat().octets(), to);
            }
            Self::Command(CpfCommand::Hold { ue, term, state }) => {
                return write(&CommandHead::Hold { ue: *ue, term: *term }, state, to);
            }
            Self::Command(CpfCommand::Store { all }) => CommandHead::Store { all: *all },
            Self::Command(CpfCommand::Serve { ue, term, backups }) => {
                CommandHead::Serve { ue: *ue, term: *term, backups: backups.clone() }
            }
            Self::Command(CpfCommand::Outdated { ue, clock, up_to_date }) => {
                CommandHead::Outdated { ue: *ue, clock: *clock, up_to_date: up_to_date.clone() }
            }
            Self::Command(CpfCommand::Released(batches)) => CommandHead::Released(*batches),
            Self::Command(CpfCommand::Forget { ue, term }) => CommandHead::Forget { ue: *ue, term: *term },
            Self::Welcome { life, id, heartbeats, keep } => {
                CommandHead::Welcome { life: *life, id: *id, heartbeats: *heartbeats, keep: *keep }
            }
            Self::CtaReplica(at) => CommandHead::CtaReplica(*at),
            Self::Taken(messages) => CommandHead::Taken(*messages),
            Self::Resumed { taken, heartbeats } => {
                CommandHead::Resumed { taken: *taken, heartbeats: *heartbeats }
            }
            Self::Forgotten => CommandHead::Forgotten,
            Self::Peers(peers) => CommandHead::Peers(peers.clone()),
            Self::ListUes { ask, which } => CommandHead::ListUes { ask: *ask, which: *which },
        };
        write(&head, &[], to);
    }

    /// Reads what [`Self::write`] wrote. Errors: each [`LinkError`].
    pub fn read(octets: &[u8]) -> Result<Self, LinkError> {
        let (head, rest) = read(octets)?;
        let message = match head {
            CommandHead::Run => return Ok(Self::Command(CpfCommand::Run(Envelope::from_flat(rest)?))),
            CommandHead::RunAfterTrial(ue) => {
                return Ok(Self::Command(CpfCommand::RunAfterTrial { ue, inputs: read_envelopes(rest)? }));
            }
            CommandHead::Configure => {
                return Ok(Self::Command(CpfCommand::Configure(Arc::new(Config::from_flat(rest)?))));
            }
            CommandHead::Hold { ue, term } => {
                return Ok(Self::Command(CpfCommand::Hold { ue, term, state: rest.into() }));
            }
            CommandHead::Store { all } => Self::Command(CpfCommand::Store { all }),
            CommandHead::Serve { ue, term, backups } => {
                Self::Command(CpfCommand::Serve { ue, term, backups })
            }
            CommandHead::Outdated { ue, clock, up_to_date } => {
                Self::Command(CpfCommand::Outdated { ue, clock, up_to_date })
            }
            CommandHead::Released(batches) => Self::Command(CpfCommand::Released(batches)),
            CommandHead::Forget { ue, term } => Self::Command(CpfCommand::Forget { ue, term }),
            CommandHead::Welcome { life, id, heartbeats, keep } => {
                Self::Welcome { life, id, heartbeats, keep }
            }
            CommandHead::CtaReplica(at) => Self::CtaReplica(at),
            CommandHead::Taken(messages) => Self::Taken(messages),
            CommandHead::Resumed { taken, heartbeats } => Self::Resumed { taken, heartbeats },
            CommandHead::Forgotten => Self::Forgotten,
            CommandHead::Peers(peers) => Self::Peers(peers),
            CommandHead::ListUes { ask, which } => Self::ListUes { ask, which },
        };
        whole(message, rest)
    }
}

impl ToCta {
    /// Appends its octets. They may hold keys.
    pub fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Join { region, address, slice } => {
                let region = region.to_string();
                write(&ReportHead::Join { region, address: *address, slice: *slice }, &[], to);
            }
            Self::Resume { life, id, has } => {
                write(&ReportHead::Resume { life: *life, id: *id, has: *has }, &[], to);
            }
            Self::Taken(messages) => write(&ReportHead::Taken(*messages), &[], to),
            Self::Listed(number) => write(&ReportHead::Listed(*number), &[], to),
            Self::Leave => write(&ReportHead::Leave, &[], to),
            Self::Report(CpfReport::Ran { ue, term, clock, from, batch }) => {
                let head = ReportHead::Ran { ue: *ue, term: *term, clock: *clock, from: *from };
                write(&head, &[], to);
                batch.write_flat(to);
            }
            Self::Report(CpfReport::CheckpointHeld { ue, term, clock }) => {
                write(&ReportHead::CheckpointHeld { ue: *ue, term: *term, clock: *clock }, &[], to);
            }
            Self::Report(CpfReport::Poisoned { ue, term, inputs }) => {
                write(&ReportHead::Poisoned { ue: *ue, term: *term, inputs: *inputs }, &[], to);
            }
            Self::Report(CpfReport::CheckpointUnusable { ue, term }) => {
                write(&ReportHead::CheckpointUnusable { ue: *ue, term: *term }, &[], to);
            }
            Self::Report(CpfReport::Stored { term, state }) => {
                write(&ReportHead::Stored { term: *term }, state, to);
            }
            Self::Report(CpfReport::AllStored) => write(&ReportHead::AllStored, &[], to),
            Self::UeList { ask, ues } => {
                write(&ReportHead::UeList { ask: *ask, ues: ues.clone() }, &[], to);
            }
        }
    }

    /// Reads what [`Self::write`] wrote. Errors: each [`LinkError`].
    pub fn read(octets: &[u8]) -> Result<Self, LinkError> {
        let (head, rest) = read(octets)?;
        let message = match head {
            ReportHead::Ran { ue, term, clock, from } => {
                let batch = Box::new(Batch::from_flat(rest)?);
                return Ok(Self::Report(CpfReport::Ran { ue, term, clock, from, batch }));
            }
            ReportHead::Stored { term } => {
                return Ok(Self::Report(CpfReport::Stored { term, state: rest.into() }));
            }
            ReportHead::AllStored => Self::Report(CpfReport::AllStored),
            ReportHead::Join { region, address, slice } => {
                Self::Join { region: region.parse().map_err(|_| LinkError::Malformed)?, address, slice }
            }
            ReportHead::Resume { life, id, has } => Self::Resume { life, id, has },
            ReportHead::Taken(messages) => Self::Taken(messages),
            ReportHead::Listed(number) => Self::Listed(number),
            ReportHead::Leave => Self::Leave,
            ReportHead::CheckpointHeld { ue, term, clock } => {
                Self::Report(CpfReport::CheckpointHeld { ue, term, clock })
            }
            ReportHead::Poisoned { ue, term, inputs } => {
                Self::Report(CpfReport::Poisoned { ue, term, inputs })
            }
            ReportHead::CheckpointUnusable { ue, term } => {
                Self::Report(CpfReport::CheckpointUnusable { ue, term })
            }
            ReportHead::UeList { ask, ues } => Self::UeList { ask, ues },
        };
        whole(message, rest)
    }
}

/// Appends envelopes, each behind its length. They may hold keys.
pub(crate) fn write_envelopes(inputs: &[Envelope], to: &mut Vec<u8>) {
    for input in inputs {
        let at = to.len();
        to.extend_from_slice(&[0; size_of::<u32>()]);
        input.write_flat(to);
        let length = u32::try_from(to.len() - at - size_of::<u32>()).expect("an input is far shorter");
        to[at..at + size_of::<u32>()].copy_from_slice(&length.to_be_bytes());
    }
}

/// Reads what [`write_envelopes`] wrote, to its end. Errors: each [`LinkError`].
pub(crate) fn read_envelopes(mut octets: &[u8]) -> Result<Vec<Envelope>, LinkError> {
    let mut inputs = Vec::new();
    while let Some((length, rest)) = octets.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let (input, rest) = rest.split_at_checked(length).ok_or(LinkError::Malformed)?;
        inputs.push(Envelope::from_flat(input)?);
        octets = rest;
    }
    whole(inputs, octets)
}

impl ToPeer {
    /// Appends its octets. They may hold keys.
    pub fn write(&self, to: &mut Vec<u8>) {
        let (head, flat) = match &self.message {
            PeerMessage::State(UeCheckpoint { ue, term, clock, state }) => {
                (PeerHead::State { ue: *ue, term: *term, clock: *clock }, state.octets())
            }
            PeerMessage::Delta { term, delta } => (PeerHead::Delta { term: *term }, delta.octets()),
            PeerMessage::Fetch { ue, clock } => (PeerHead::Fetch { ue: *ue, clock: *clock }, &[][..]),
        };
        write(&(self.life, self.from, head), flat, to);
    }

    /// Reads what [`Self::write`] wrote; a UE in it stays unread. Errors: each [`LinkError`].
    pub fn read(octets: &[u8]) -> Result<Self, LinkError> {
        let ((life, from, head), rest) = read(octets)?;
        let message = match head {
            PeerHead::State { ue, term, clock } => {
                PeerMessage::State(UeCheckpoint { ue, term, clock, state: Checkpoint::from_octets(rest)? })
            }
            PeerHead::Delta { term } => PeerMessage::Delta { term, delta: Delta::from_octets(rest)? },
            PeerHead::Fetch { ue, clock } => whole(PeerMessage::Fetch { ue, clock }, rest)?,
        };
        Ok(Self { life, from, message })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_control::UeContext;

    use super::*;

    const UE: UeId = UeId { slot: 0x00ff_fffe, generation: 3 };

    fn down(message: &ToCpf) -> Vec<u8> {
        let mut octets = Vec::new();
        message.write(&mut octets);
        octets
    }

    fn up(message: &ToCta) -> Vec<u8> {
        let mut octets = Vec::new();
        message.write(&mut octets);
        octets
    }

    fn to_peer(message: &ToPeer) -> Vec<u8> {
        let mut octets = Vec::new();
        message.write(&mut octets);
        octets
    }

    fn to_cpf() -> Vec<ToCpf> {
        let supi = "imsi-999700000000001".parse().ok();
        vec![
            ToCpf::Welcome {
                life: u64::MAX,
                id: CpfId(u16::MAX),
                heartbeats: HeartbeatKey([7; 32]),
                keep: true,
            },
            ToCpf::CtaReplica(Some(([192, 0, 2, 2], 7380).into())),
            ToCpf::CtaReplica(None),
            ToCpf::Taken(1 << 40),
            ToCpf::Forgotten,
            ToCpf::Resumed { taken: 7, heartbeats: HeartbeatKey([9; 32]) },
            ToCpf::Peers(vec![(CpfId(1), ([192, 0, 2, 7], 7380).into()), (CpfId(2), ([0; 16], 1).into())]),
            ToCpf::Command(CpfCommand::Serve { ue: UE, term: 7, backups: vec![CpfId(2), CpfId(3)] }),
            ToCpf::Command(CpfCommand::Outdated { ue: UE, clock: 1 << 40, up_to_date: vec![CpfId(4)] }),
            ToCpf::Command(CpfCommand::Released(u64::MAX)),
            ToCpf::Command(CpfCommand::Forget { ue: UE, term: 3 }),
            ToCpf::Command(CpfCommand::RunAfterTrial { ue: UE, inputs: vec![] }),
            ToCpf::ListUes { ask: 1, which: UeQuery::Page(supi, 100) },
            ToCpf::ListUes { ask: 2, which: UeQuery::Page(None, 1) },
            ToCpf::Command(CpfCommand::Store { all: true }),
        ]
    }

    #[test]
    fn each_message_is_read_as_it_was_written_and_nothing_may_follow_or_lack() {
        for message in to_cpf() {
            let octets = down(&message);
            assert_eq!(format!("{:?}", ToCpf::read(&octets).unwrap()), format!("{message:?}"));
            assert_eq!(ToCpf::read(&[&octets[..], &[0]].concat()).unwrap_err(), LinkError::Malformed);
            assert!(ToCpf::read(&octets[..octets.len() - 1]).is_err());
        }
        let batch = Box::new(Batch { terms: (1, 2), idle: true, ..Batch::default() });
        let ran = CpfReport::Ran { ue: UE, term: 1, clock: 9, from: Some(AssociationId(4)), batch };
        for message in [
            ToCta::Join {
                region: "north/harbour".parse().unwrap(),
                address: ([192, 0, 2, 7], 7380).into(),
                slice: Some(SNssai::new(1, Some(7))),
            },
            ToCta::Resume { life: 1 << 60, id: CpfId(9), has: 300 },
            ToCta::Taken(1 << 40),
            ToCta::Listed(CpfId(20318)),
            ToCta::Leave,
            ToCta::Report(ran),
            ToCta::Report(CpfReport::CheckpointHeld { ue: UE, term: 2, clock: 9 }),
            ToCta::Report(CpfReport::Poisoned { ue: UE, term: 3, inputs: (8, 9) }),
            ToCta::Report(CpfReport::CheckpointUnusable { ue: UE, term: 3 }),
            ToCta::UeList { ask: 3, ues: vec![] },
            ToCta::Report(CpfReport::AllStored),
        ] {
            let octets = up(&message);
            assert_eq!(format!("{:?}", ToCta::read(&octets).unwrap()), format!("{message:?}"));
            assert!(ToCta::read(&octets[..octets.len() - 1]).is_err());
        }
    }

    #[test]
    fn what_cpfs_say_to_each_other_is_read_as_it_was_written() {
        let mut ue = UeContext::new(UE);
        ue.clock = 9;
        let base = Checkpoint::of(&ue).unwrap();
        ue.clock = 10;
        let state = Checkpoint::of(&ue).unwrap();
        let delta = Delta::between(&base, &state).expect("they differ in a number");
        let state = PeerMessage::State(UeCheckpoint { ue: UE, term: 3, clock: 10, state });
        for message in
            [state, PeerMessage::Delta { term: 3, delta }, PeerMessage::Fetch { ue: UE, clock: 1 << 40 }]
        {
            let message = ToPeer { life: u64::MAX, from: CpfId(7), message };
            let octets = to_peer(&message);
            assert_eq!(format!("{:?}", ToPeer::read(&octets).unwrap()), format!("{message:?}"));
            assert!(ToPeer::read(&[&octets[..], &[0]].concat()).is_err());
            assert!(ToPeer::read(&octets[..octets.len() - 1]).is_err());
        }
    }

    #[test]
    fn a_form_that_was_damaged_is_named() {
        let ran = CpfReport::Ran { ue: UE, term: 1, clock: 9, from: None, batch: Box::default() };
        let mut octets = up(&ToCta::Report(ran));
        let last = octets.len() - 1;
        octets[last] ^= 1;
        assert_eq!(ToCta::read(&octets).unwrap_err(), LinkError::Flat(FlatError::Damaged));
    }

    proptest! {
        #[test]
        fn any_octets_are_refused_or_read(octets in proptest::collection::vec(any::<u8>(), 0..200), head in 0u8..16) {
            for octets in [octets.clone(), [&[head], octets.as_slice()].concat()] {
                if let Ok(message) = ToCpf::read(&octets) {
                    prop_assert!(ToCpf::read(&down(&message)).is_ok());
                }
                if let Ok(message) = ToCta::read(&octets) {
                    prop_assert!(ToCta::read(&up(&message)).is_ok());
                }
                if let Ok(message) = ToPeer::read(&octets) {
                    prop_assert!(matches!(message.message, PeerMessage::Fetch { .. }), "states have a CRC");
                    prop_assert!(ToPeer::read(&to_peer(&message)).is_ok());
                }
            }
        }
    }
}
