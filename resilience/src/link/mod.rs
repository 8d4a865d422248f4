//! Messages between a CTA and its CPFs, and between CPFs. Each link is reliable and ordered. The end of a link to a CTA means the loss of
//! the peer; where one between CPFs ends and both live, the next one begins with all that may have been lost
//! ([`ReplicatedCpf::peer_reconnected`](crate::ReplicatedCpf::peer_reconnected)).
//!
//! [`CpfCommand`], [`CpfReport`] and [`PeerMessage`] are the messages of the replication protocol. Between processes each is a message of
//! octets, as are the few that only processes need: the first message ([`Hello`]), the incarnation that a message between CPFs belongs to
//! ([`ToPeer`]), operators' queries ([`ToCpf`], [`ToCta`]), the messages between a pair of CTAs ([`ToCtaReplica`], [`ToPrimaryCta`]), and those with network functions of a
//! unit ([`ToFunction`], [`FromFunction`]).

mod function;
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
pub use function::{
    FromFunction, FunctionAnswer, FunctionOrder, FunctionRequest, PolicyReference, ToFunction,
};
pub use hello::{HELLO_SLICES_MAX, Hello, HelloError, LinkRole, LinkVersions, PeerAmfHello};
pub use octets::{HeartbeatKey, LinkError, ToCpf, ToCta, ToPeer, UeQuery};
pub(crate) use octets::{read_envelopes, write_envelopes};
pub use pair::{CpfEntry, CpfTable, ToCtaReplica, ToPrimaryCta};

/// From a CTA to a CPF.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CpfCommand {
    /// Run this input of a UE of which the CPF is primary.
    Run(Envelope),
    /// The same in its logged form, as a CTA sends it. It is read as [`CpfCommand::Run`].
    RunLogged(Flat),
    /// Run these inputs of a UE in order, but in the replay sandbox first: the lost primary had them, and one may have ended it.
    RunAfterTrial {
        /// The UE whose inputs run.
        ue: UeId,
        /// All inputs after its checkpoint.
        inputs: Vec<Envelope>,
    },
    /// Become primary of a UE, from the held checkpoint or from nothing; or stay primary, with other backups.
    Serve {
        /// The UE that is served.
        ue: UeId,
        /// Term of the assignment.
        term: u32,
        /// The CPFs that get its checkpoints.
        backups: Vec<CpfId>,
    },
    /// Checkpoints of a UE older than this are outdated (Neutrino §4.2.4): they are never used, and a newer one is asked of others.
    Outdated {
        /// The UE with the outdated state.
        ue: UeId,
        /// Clock of the oldest checkpoint that is not outdated.
        clock: u64,
        /// Other backups that have that checkpoint. The primary sends it unasked.
        up_to_date: Vec<CpfId>,
    },
    /// So many batches of this link were released, from its beginning.
    Released(u64),
    /// A UE is gone, or this CPF is no backup of it any more. A checkpoint of a newer assignment, which another CPF sent meanwhile, stays.
    Forget {
        /// The UE that is forgotten.
        ue: UeId,
        /// Checkpoints of earlier terms are dropped; [`u32::MAX`] for a UE that is gone.
        term: u32,
    },
    /// The configuration for later inputs.
    Configure(Arc<Config>),
    /// Hold this checkpoint of a UE that the core has restored; what the CPF is to the UE follows. It needs no acknowledgement.
    Hold {
        /// The UE of the checkpoint.
        ue: UeId,
        /// Term of the assignment.
        term: u32,
        /// The checkpoint as it was sent.
        state: Box<[u8]>,
    },
    /// Send the states of the UEs of which the CPF is primary, to be stored: all, or those that have changed since the last time. UEs with a running
    /// procedure are left out.
    Store {
        /// All of them.
        all: bool,
    },
}

/// From a CPF to its CTA.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CpfReport {
    /// An input was run.
    Ran {
        /// The UE whose inputs ran.
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
    /// The replay sandbox ended, or did not return, on one of these inputs. Neither they nor later ones are run: the UE is to be discarded.
    Poisoned {
        /// The UE with the poisoned input.
        ue: UeId,
        /// Term of the assignment under which.
        term: u32,
        /// The first and the last input that may have done it: one, where that is known.
        inputs: (u64, u64),
    },
    /// A checkpoint of a UE, this one or a newer one, is held here.
    CheckpointHeld {
        /// The UE of the checkpoint.
        ue: UeId,
        /// Term of the assignment under which it was sent: a CPF that was ordered to forget since does not hold it any more.
        term: u32,
        /// Clock of the checkpoint.
        clock: u64,
    },
    /// The checkpoint of a UE that this CPF was to take over is unreadable, not what its sender claimed, or not the one at which the log
    /// begins: no input of the UE is run. Or a checkpoint that was sent here is not what its sender claims: it is not stored.
    CheckpointUnusable {
        /// The UE of the checkpoint.
        ue: UeId,
        /// Term of the assignment under which.
        term: u32,
    },
    /// The state of a UE of which this CPF is primary, to be stored.
    Stored {
        /// Term of the assignment.
        term: u32,
        /// The checkpoint as it is stored.
        state: Box<[u8]>,
    },
    /// All states that were to be stored are sent.
    AllStored,
}

/// From a CPF to another.
#[derive(Clone, Debug)]
pub enum PeerMessage {
    /// A UE's checkpoint for a backup: from the primary, or from another backup that was asked.
    State(UeCheckpoint),
    /// The difference from the checkpoint that was sent before, where it is smaller. A backup without that one fetches the whole.
    Delta {
        /// Term of the assignment under which the checkpoint was made.
        term: u32,
        /// The step from the checkpoint before.
        delta: Delta,
    },
    /// A request for a UE's whole checkpoint of this clock or later.
    Fetch {
        /// The UE whose state is fetched.
        ue: UeId,
        /// Clock that the state has to have.
        clock: u64,
    },
}

/// The state of a UE: the UE in its flat form.
pub type UeCheckpoint = Checkpoint<whimbrel_control::Checkpoint>;
