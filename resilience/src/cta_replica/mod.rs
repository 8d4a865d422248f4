//! The CTA replica: a second CTA that holds the state of the primary and takes over from it.
//!
//! **A replicated state machine.** A [`Cta`](crate::Cta) is a function of its inputs, of the entropy that it draws and of the UDM's
//! answers. The [`PrimaryCta`] sends all three to its [`CtaReplica`] as [`ReplicaRecord`]s in order; the replica runs them through a CTA of its
//! own and stores the outputs. Outputs leave the primary only when the replica has acknowledged their input
//! ([`Gate`](crate::replication::Gate)). So the replica always knows at least what any peer has received, and when it [takes
//! over](CtaReplica::take_over), it continues with every UE, gNB, UPF and CPF where the primary stopped:
//!
//! - *CPFs.* Their links are [`LinkEnd`]s: both sides keep unacknowledged messages, and the replica knows the same messages under the same
//!   numbers. It asks each CPF how many it has ([`PrimaryCta::resume`]), and both repeat the rest.
//! - *UPFs.* Requests are known by their sequence numbers; the CTA replica repeats what it does not know to have left.
//! - *gNBs.* The same for NGAP, for the few messages between the last that is known to have left and the last that could have;
//!   see [`CtaReplica::take_over`] for what is repeated there.
//!
//! An input that was lost with the primary before the replica had it is like a message lost in the network: no peer has seen an effect of
//! it.
//!
//! Two primaries at once are harmless: a replaced one gets no acknowledgements any more, so its outputs do not leave. That the replica
//! takes over, or that the primary continues [alone](PrimaryCta::continue_without_replica), is decided at etcd (`membership`): never both.
//!
//! A replica starts from a [`Snapshot`] of the primary between two inputs ([`PrimaryCta::snapshot`], [`CtaReplica::new`]) and follows from
//! there; so does the next one after a takeover. Making it stops the CTA for as long as it takes to write a few hundred octets a UE.
//!
//! **For an edge.** Hand every input to [`PrimaryCta::handle`] and every order to [`PrimaryCta::order`], send the record that comes back to
//! the CTA replica's host over one ordered connection, and carry out what stands in the outbox. Hand each number that comes back to
//! [`PrimaryCta::acknowledged`], carry out what it releases, and then send what [`PrimaryCta::sent_report`] gives. On links to CPFs each message
//! carries how many of the other side's one has: towards them that is [`PrimaryCta::durable_messages`], and what comes from them goes to
//! [`PrimaryCta::confirmed`] before the message itself. The CTA replica's host hands each record to [`CtaReplica::take`] and sends the
//! number back. An error there means that this CTA replica is of no use any more. gNBs that connect to the CTA replica's host are the
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
pub use record::{ReplicaRecord, Snapshot};
pub use replica::CtaReplica;

/// Why a CTA replica cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaFault {
    /// A record cannot be decoded.
    Unreadable,
    /// The primary runs other code, or other versions of the link messages.
    OtherVersion,
    /// A record is missing, or came twice.
    OutOfOrder,
    /// The same input gave other outputs here.
    Diverged,
}

impl fmt::Display for ReplicaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "a record cannot be read",
            Self::OtherVersion => "the other CTA is of another version",
            Self::OutOfOrder => "a record is missing or came twice",
            Self::Diverged => "the same input gave other outputs here",
        })
    }
}

impl std::error::Error for ReplicaFault {}
