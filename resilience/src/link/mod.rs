//! What a CTA and its CPFs say to each other, and those among themselves. Each link is reliable and keeps
//! its order. That one with a CTA ends means the loss of whom it led to; where one between CPFs ends and both live, the next
//! one begins with all that the former may have lost ([`ReplicatedCpf::peer_reconnected`](crate::ReplicatedCpf::peer_reconnected)).
//!
//! [`CpfCommand`], [`CpfReport`] and [`PeerMessage`] are what the protocol says. Between processes each is a message of octets, as are the few
//! that only processes need: who calls ([`Hello`]), of which life a message between CPFs is ([`ToPeer`]), what an operator wants to see ([`ToCpf`], [`ToCta`]), and what a pair of CTAs
//! says to each other ([`ToCtaReplica`], [`ToPrimaryCta`]).

mod hello;
mod octets;
mod pair;
#[cfg(test)]
mod stored;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::Config;
use whimbrel_control::{AssociationId, Batch, Delta, Envelope, Flat, UeId};

use crate::replication::{Checkpoint, CpfId};
pub use hello::{Hello, HelloError, LinkVersions, PeerAmfHello, Role};
pub use octets::{HeartbeatKey, LinkError, ToCpf, ToCta, ToPeer, UeQuery};
pub(crate) use octets::{read_envelopes, write_envelopes};
pub use pair::{CpfEntry, CpfTable, ToCtaReplica, ToPrimaryCta};

/// From a CTA to a CPF.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CpfCommand {
    /// Run this input of a UE that is served there.
    Run(Envelope),
    /// The same as it is logged: how a CTA says it. Whoever reads it has [`CpfCommand::Run`].
    RunLogged(Flat),
    /// Run these inputs of a UE that is served there, in order, but have them tried before: the member that had them is lost, and
    /// it may have died of one.
    RunAfterTrial {
        /// The UE.
        ue: UeId,
        /// All that its state lacks so far.
        inputs: Vec<Envelope>,
    },
    /// Serve a UE from now on, from the state that is held or from nothing; or go on, with other backups.
    Serve {
        /// The UE.
        ue: UeId,
        /// Term of the assignment.
        term: u32,
        /// Who shall have its state.
        backups: Vec<CpfId>,
    },
    /// Whatever is older than this of a UE is outdated (Neutrino §4.2.4): it is never served from, and what is not is asked of others.
    Outdated {
        /// The UE.
        ue: UeId,
        /// Clock of the state that is not.
        clock: u64,
        /// Other backups that have that state. Who serves the UE sends it unasked.
        up_to_date: Vec<CpfId>,
    },
    /// So many batches of this link were released, from its beginning.
    Released(u64),
    /// A UE is gone, or others back it. A state of a newer assignment, which came from another member meanwhile, stays.
    Forget {
        /// The UE.
        ue: UeId,
        /// What is of a term before this one is nobody's; [`u32::MAX`] for a UE that is gone.
        term: u32,
    },
    /// The configuration that is in force for the inputs to come.
    Configure(Arc<Config>),
}

/// From a CPF to its CTA.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CpfReport {
    /// An input was run.
    Ran {
        /// The UE.
        ue: UeId,
        /// Term of the assignment under which.
        term: u32,
        /// The input's clock.
        clock: u64,
        /// The gNB that it came from, if from one.
        from: Option<AssociationId>,
        /// What it caused.
        batch: Box<Batch>,
    },
    /// Inputs of a UE were tried, and whoever did so died of one or did not come to an end. None of them is run, nor is anything after
    /// them: nobody can go on with the UE.
    Poisoned {
        /// The UE.
        ue: UeId,
        /// Term of the assignment under which.
        term: u32,
        /// The first and the last input that may have done it: one, where that is known.
        inputs: (u64, u64),
    },
    /// This state of a UE, or a newer one, is held here.
    CheckpointHeld {
        /// The UE.
        ue: UeId,
        /// Term of the assignment under which it was sent: who was told to forget since does not hold it any more.
        term: u32,
        /// Its clock.
        clock: u64,
    },
    /// A UE was to be served here, and the state that was held of it cannot be read, or is not what its sender said, or not the one that the log
    /// leads on from: no input of the UE is run. Or its state was sent here, and is not what its sender says: it is not held.
    CheckpointUnusable {
        /// The UE.
        ue: UeId,
        /// Term of the assignment under which.
        term: u32,
    },
}

/// From a CPF to another.
#[derive(Clone, Debug)]
pub enum PeerMessage {
    /// A UE's state, for who backs it: from who serves the UE, or from another that backs it and was asked.
    State(State),
    /// The step to a UE's state from the one that was sent before: what it is smaller than. Who does not hold that one fetches the state.
    Delta {
        /// Term of the assignment under which the state was cut.
        term: u32,
        /// The step.
        delta: Delta,
    },
    /// The state of a UE is wanted, whole, of this clock or later.
    Fetch {
        /// The UE.
        ue: UeId,
        /// The clock.
        clock: u64,
    },
}

/// The state of a UE: the UE in its flat form.
pub type State = Checkpoint<whimbrel_control::Checkpoint>;
