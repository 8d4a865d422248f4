//! The CTA replica of a CTA: a second one that holds all that the first holds, and goes on in its place.
//!
//! **A replicated state machine.** A [`Cta`](crate::Cta) is a function of its inputs, of the entropy that it draws and of the UDM's
//! answers. The [`PrimaryCta`] one tells its [`CtaReplica`] all three, as [`Record`]s in order; the CTA replica runs them through a CTA
//! of its own and keeps what would leave. What an input causes leaves the active one only when the CTA replica has said that it holds
//! that input ([`Gate`](crate::replication::Gate)). So at any moment the CTA replica knows at least what anybody was told, and when it
//! [takes over](CTA replica::take_over), it goes on with every UE, gNB, UPF and CPF where the other one stopped:
//!
//! - *CPFs.* Their links are [`LinkEnd`]s: both sides keep what the other has not confirmed, and the CTA replica knows the same
//!   messages under the same numbers. It asks each how much it has ([`PrimaryCta::resume`]), and both repeat the rest.
//! - *UPFs.* Requests are known by their sequence numbers; the CTA replica repeats what it does not know to have left.
//! - *gNBs.* The same for NGAP, for the few messages between the last that is known to have left and the last that could have;
//!   see [`CtaReplica::take_over`] for what is repeated there.
//!
//! An input that was lost with the active one before the CTA replica had it is a message lost under way. Nobody was told anything of it.
//!
//! Two at once are harmless: a CTA that was replaced hears of no acknowledgement any more, so nothing of it gets out.
//! That the CTA replica takes over, or that the active one goes on [alone](PrimaryCta::alone) without it, is for the caller to have decided
//! by one who can decide between them (`membership`): never both.
//!
//! A CTA replica begins with a [`Snapshot`] of the active one between two inputs ([`PrimaryCta::snapshot`], [`CtaReplica::new`]), and follows from there; so
//! does the next one after a takeover. Making it stops the CTA for as long as it takes to write a few hundred octets a UE.
//!
//! **For an edge.** Hand every input to [`PrimaryCta::handle`] and every order to [`PrimaryCta::order`], send the record that comes back to the
//! CTA replica's host over one ordered connection, and carry out what stands in the outbox. Hand each number that comes back to
//! [`PrimaryCta::acknowledged`], carry out what it lets go, and then send what [`PrimaryCta::left`] gives. On links to CPFs
//! each message carries how many of the other side's one has: towards them that is [`PrimaryCta::taken`], and what comes
//! from them goes to [`PrimaryCta::confirmed`] before the message itself. The CTA replica's host hands each record to [`CtaReplica::take`]
//! and sends the number back. An error there means that this CTA replica is of no use any more. gNBs that connect to the CTA replica's host are the
//! matter of [`Associations`], before and after the takeover.

mod associations;
mod link_end;
mod machine;
mod primary;
mod record;
mod replica;

use std::fmt;

pub use associations::{Associations, GRACE, LocalAssociation, MessageRoute};
pub use link_end::LinkEnd;
pub use primary::PrimaryCta;
pub use record::{Record, Snapshot};
pub use replica::CtaReplica;

/// Why a CTA replica cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaFault {
    /// A record is not what one is.
    Unreadable,
    /// The active one runs other code, or speaks another language of the links.
    OtherVersion,
    /// A record is missing, or came twice.
    OutOfOrder,
    /// The same input led elsewhere here.
    Diverged,
}

impl fmt::Display for ReplicaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "a record cannot be read",
            Self::OtherVersion => "the other CTA is of another version",
            Self::OutOfOrder => "a record is missing or came twice",
            Self::Diverged => "the same input led elsewhere here",
        })
    }
}

impl std::error::Error for ReplicaFault {}
