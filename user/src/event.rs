//! What happened on N4, for logs, metrics and "why".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use whimbrel_ids::Seid;
use whimbrel_pfcp::ie::{Cause, NodeId};

use crate::config::DnIndex;
use crate::rules::RuleRefusal;
use crate::session_id::SessionId;

/// What happened on N4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An SMF set up an association.
    AssociationSetUp {
        /// Node identity of the SMF.
        node: NodeId,
        /// Address from which it has set up the association.
        peer: SocketAddr,
        /// Sessions of an earlier association that were deleted.
        sessions_deleted: usize,
    },
    /// An SMF's association, or what it was before a restart, has ended; its sessions are deleted.
    AssociationEnded {
        /// Node identity of the SMF.
        node: NodeId,
        /// How many sessions it had.
        sessions_deleted: usize,
        /// Reason of the end.
        why: AssociationEnd,
    },
    /// An SMF no longer answers heartbeats. Its sessions stay.
    AssociationSilent {
        /// Node identity of the SMF.
        node: NodeId,
    },
    /// Another peer asks for the association of an SMF that answers heartbeats: two SMFs have one node identity.
    AssociationContested {
        /// Node identity that both claim.
        node: NodeId,
        /// The peer that asks for it.
        peer: SocketAddr,
    },
    /// Another SMF of its set goes on for an SMF, from another address; the sessions stay.
    AssociationMoved {
        /// The node, whose identity both have.
        node: NodeId,
        /// Where it is now.
        peer: SocketAddr,
    },
    /// A session is established.
    SessionEstablished {
        /// The session that was established.
        session: SessionId,
        /// The SMF's name of it.
        cp_seid: Seid,
        /// Data network of the session.
        data_network: DnIndex,
        /// The UE's IPv4 address.
        ue_ipv4: Option<Ipv4Addr>,
        /// The UE's IPv6 prefix.
        ue_ipv6: Option<Ipv6Addr>,
    },
    /// A session was refused or a change of it was: the rule and what is wrong with it.
    SessionRefused {
        /// Address of the SMF.
        peer: SocketAddr,
        /// What is wrong.
        refusal: RuleRefusal,
        /// The cause sent to the SMF.
        cause: Cause,
    },
    /// An SMF has provisioned or removed PFDs of applications (TS 29.244 §6.2.5).
    PfdsProvisioned {
        /// Address of the SMF.
        peer: SocketAddr,
        /// The number of applications.
        applications: usize,
    },
    /// A session is deleted.
    SessionDeleted {
        /// The session that was deleted.
        session: SessionId,
    },
    /// A message was not understood, or not expected.
    BadMessage {
        /// Address of the sender.
        peer: SocketAddr,
        /// Its type; 0 where not even that could be read.
        message_type: u8,
        /// The cause sent to the peer, if there was an answer.
        cause: Option<Cause>,
    },
    /// A gNB or UPF does not answer echo requests any longer, or does again.
    Path {
        /// The peer at the other end of the path.
        peer: IpAddr,
        /// It does not.
        failed: bool,
    },
    /// The state has no room for a record: without it, a successor has the former one, or none.
    StateFull {
        /// The session; `None` for what is of the UPF as a whole.
        session: Option<SessionId>,
    },
    /// A report is lost: the SMF did not answer it, though it has sent other messages, or too many reports await its answers.
    ReportUnanswered {
        /// Address of the SMF.
        peer: SocketAddr,
    },
    /// An SMF left a report unanswered and has sent nothing since: until it does, its reports are kept up to a bound.
    ReportsKept {
        /// Node identity of the SMF.
        node: NodeId,
        /// Address of its association.
        peer: SocketAddr,
    },
    /// Reports are no longer kept for an SMF: it sends messages again, or its association or this UPF ends.
    ReportsNotKept {
        /// Node identity of the SMF.
        node: NodeId,
        /// Kept reports that are sent now.
        repeated: usize,
        /// Reports that it will not get.
        lost: u64,
    },
}

/// Why an SMF's sessions ended all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssociationEnd {
    /// It released its association (TS 29.244 §6.2.8).
    Released,
    /// It has restarted (TS 23.527 §4.2).
    Restarted,
    /// It was silent for too long (TS 23.527 §4.4).
    Silent,
}
