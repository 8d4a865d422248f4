//! What an aggregator and its control functions say to each other, and those among themselves. Each link is reliable and keeps
//! its order. That one with an aggregator ends means the loss of whom it led to; where one between control functions ends and both live, the next
//! one begins with all that the former may have lost ([`Member::reached_again`](crate::Member::reached_again)).
//!
//! [`Down`], [`Up`] and [`Peer`] are what the protocol says. Between processes each is a message of octets, as are the few
//! that only processes need: who calls ([`Hello`]), of which life a message between control functions is ([`ToPeer`]), what an operator wants to see ([`ToCpf`], [`ToCta`]), and what a pair of aggregators
//! says to each other ([`ToMirror`], [`ToActive`]).

mod hello;
mod octets;
mod pair;
#[cfg(test)]
mod stored;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::Config;
use whimbrel_control::{AssociationId, Batch, Delta, Envelope, Flat, PhoneId};

use crate::replication::{Checkpoint, CpfId};
pub use hello::{BadHello, Hello, Language, NeighbourHello, Role};
pub use octets::{HeartbeatKey, LinkError, Show, ToCpf, ToCta, ToPeer};
pub(crate) use octets::{read_envelopes, write_envelopes};
pub use pair::{MemberAt, Members, ToActive, ToMirror};

/// From an aggregator to a control function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Down {
    /// Run this input of a phone that is served there.
    Run(Envelope),
    /// The same as it is logged: how an aggregator says it. Whoever reads it has [`Down::Run`].
    Logged(Flat),
    /// Run these inputs of a phone that is served there, in order, but have them tried before: the member that had them is lost, and
    /// it may have died of one.
    Try {
        /// The phone.
        phone: PhoneId,
        /// All that its state lacks so far.
        inputs: Vec<Envelope>,
    },
    /// Serve a phone from now on, from the state that is held or from nothing; or go on, with other backups.
    Serve {
        /// The phone.
        phone: PhoneId,
        /// Term of the assignment.
        term: u32,
        /// Who shall have its state.
        backups: Vec<CpfId>,
    },
    /// Whatever is older than this of a phone is outdated (Neutrino §4.2.4): it is never served from, and what is not is asked of others.
    Outdated {
        /// The phone.
        phone: PhoneId,
        /// Clock of the state that is not.
        clock: u64,
        /// Other backups that have that state. Who serves the phone sends it unasked.
        up_to_date: Vec<CpfId>,
    },
    /// So many batches of this link were released, from its beginning.
    Released(u64),
    /// A phone is gone, or others back it. A state of a newer assignment, which came from another member meanwhile, stays.
    Forget {
        /// The phone.
        phone: PhoneId,
        /// What is of a term before this one is nobody's; [`u32::MAX`] for a phone that is gone.
        term: u32,
    },
    /// The configuration that is in force for the inputs to come.
    Configure(Arc<Config>),
}

/// From a control function to its aggregator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Up {
    /// An input was run.
    Ran {
        /// The phone.
        phone: PhoneId,
        /// Term of the assignment under which.
        term: u32,
        /// The input's clock.
        clock: u64,
        /// The gNB that it came from, if from one.
        from: Option<AssociationId>,
        /// What it caused.
        batch: Box<Batch>,
    },
    /// Inputs of a phone were tried, and whoever did so died of one or did not come to an end. None of them is run, nor is anything after
    /// them: nobody can go on with the phone.
    Poisoned {
        /// The phone.
        phone: PhoneId,
        /// Term of the assignment under which.
        term: u32,
        /// The first and the last input that may have done it: one, where that is known.
        inputs: (u64, u64),
    },
    /// This state of a phone, or a newer one, is held here.
    Holds {
        /// The phone.
        phone: PhoneId,
        /// Term of the assignment under which it was sent: who was told to forget since does not hold it any more.
        term: u32,
        /// Its clock.
        clock: u64,
    },
    /// A phone was to be served here, and the state that was held of it cannot be read, or is not what its sender said, or not the one that the log
    /// leads on from: no input of the phone is run. Or its state was sent here, and is not what its sender says: it is not held.
    Unreadable {
        /// The phone.
        phone: PhoneId,
        /// Term of the assignment under which.
        term: u32,
    },
}

/// From a control function to another.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A phone's state, for who backs it: from who serves the phone, or from another that backs it and was asked.
    State(State),
    /// The step to a phone's state from the one that was sent before: what it is smaller than. Who does not hold that one fetches the state.
    Delta {
        /// Term of the assignment under which the state was cut.
        term: u32,
        /// The step.
        delta: Delta,
    },
    /// The state of a phone is wanted, whole, of this clock or later.
    Fetch {
        /// The phone.
        phone: PhoneId,
        /// The clock.
        clock: u64,
    },
}

/// The state of a phone: the phone in its flat form.
pub type State = Checkpoint<whimbrel_control::Checkpoint>;
