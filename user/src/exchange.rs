//! Messages between UPF-C and UPF-U: plain values for a queue in both directions.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{Qfi, Teid};
use whimbrel_pfcp::ie::{PdrId, UrrId};
use whimbrel_pfcp::rule::UsageReport;

use crate::config::DnIndex;
use crate::rules::{SessionRules, upper};
use crate::session_id::SessionId;

/// What in a packet identifies its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKey {
    /// The local tunnel by which it comes.
    Tunnel(Teid),
    /// The UE's address that it is for, or one of the UE's prefix, and the data network that it is from.
    Ue(DnIndex, IpAddr),
}

impl SessionKey {
    /// Of a packet to a UE: every address of a prefix gives the same key.
    pub(crate) fn to_ue(dn: DnIndex, address: IpAddr) -> Self {
        Self::Ue(
            dn,
            match address {
                IpAddr::V4(_) => address,
                IpAddr::V6(a) => Ipv6Addr::from_bits(u128::from(upper(a)) << 64).into(),
            },
        )
    }
}

/// Ties a [`UserPlaneReport::Usage`] to the change that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageToken(pub u32);

/// What UPF-C has decided; UPF-U applies it before its next burst. Absolute: a session's rules come whole.
#[derive(Clone, Debug)]
pub enum UserPlaneChange {
    /// The session has these rules from now on.
    Put {
        /// The session that gets the rules.
        session: SessionId,
        /// Rules of the session, complete.
        rules: Arc<SessionRules>,
        /// What else to do, once.
        effects: Effects,
    },
    /// The session will have these rules: from when a packet shows that its UE has come, for which it has some five seconds.
    /// Any later change of the session ends the prediction.
    Predict {
        /// The session, which may not stand yet.
        session: SessionId,
        /// Its rules then.
        rules: Arc<SessionRules>,
        /// What else to do then, once.
        effects: Effects,
    },
    /// The session stood before this process did: it has these rules, and had counted this.
    Restore {
        /// The session that is restored.
        session: SessionId,
        /// Rules of the session, complete.
        rules: Arc<SessionRules>,
        /// The last [`UserPlaneReport::Counted`], if there was one.
        counted: Option<Box<[u8]>>,
    },
    /// No session has this key: packets that wait for one are dropped.
    NoSession {
        /// Key under which the session would be found.
        lead: SessionKey,
        /// The pipeline that asked.
        shard: u8,
    },
    /// The session is gone.
    Remove {
        /// The session that is removed.
        session: SessionId,
        /// Names the answer, if the last usage is to be reported.
        token: Option<UsageToken>,
    },
}

/// What a change does once, besides setting rules.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Tunnels to which an end marker goes before newer packets go elsewhere.
    pub end_markers: Vec<EndMarker>,
    /// Drop what is buffered (DROBU).
    pub drop_buffered: bool,
    /// The SMF has no report of the buffered packets: the next one is reported again.
    pub notify_again: bool,
    /// Packets that are buffered, and those that come within this time, are not reported again (DL Buffering Duration).
    pub quiet: Option<Duration>,
    /// Usage rules to report at once.
    pub query: Query,
    /// What is predicted of the session still holds.
    pub keeps_prediction: bool,
    /// Names the answer, if usage (queried, or of removed rules) is to be reported.
    pub token: Option<UsageToken>,
}

/// Which usage rules to report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// None but those removed.
    #[default]
    Nothing,
    /// All of the session.
    All,
    /// The URRs of this list.
    Some(Vec<UrrId>),
}

/// A tunnel that ends: at the peer, where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// The peer's tunnel.
    pub teid: Teid,
    /// The gNB or UPF that gets the end marker.
    pub peer: SocketAddr,
    /// Type of service of the outer header.
    pub tos: u8,
}

/// What UPF-U has observed; UPF-C reports it to the SMF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserPlaneReport {
    /// The first packet for a UE without a tunnel was buffered.
    DownlinkData {
        /// The session with the packet.
        session: SessionId,
        /// The rule that matched.
        pdr_id: PdrId,
        /// The flow, where the rule names one.
        qfi: Option<Qfi>,
        /// DSCP of the packet.
        dscp: u8,
        /// Octets of the packet.
        octets: u16,
    },
    /// Usage: asked for (`token`), or due.
    Usage {
        /// The session that was measured.
        session: SessionId,
        /// The request that asked for it.
        token: Option<UsageToken>,
        /// The figures; may be empty where asked for.
        reports: Vec<UsageReport>,
    },
    /// What a session has counted, to be kept for a successor of this process.
    Counted {
        /// The session that was measured.
        session: SessionId,
        /// The figures, as [`UserPlaneChange::Restore`] gives them back.
        counted: Box<[u8]>,
    },
    /// A peer does not know a tunnel of the session.
    ErrorIndication {
        /// The session whose tunnel is unknown to the peer.
        session: SessionId,
        /// The tunnel, as the peer names it.
        teid: Teid,
        /// The peer that sent the indication.
        peer: IpAddr,
    },
    /// A peer does not answer echo requests any longer, or does again.
    Path {
        /// The peer at the other end of the path.
        peer: IpAddr,
        /// It does not.
        failed: bool,
    },
    /// A UE has arrived as predicted: the session has the predicted rules now.
    Arrived {
        /// The session to which the UE has come.
        session: SessionId,
    },
    /// A packet without a session waits for one, and others may follow.
    Stray {
        /// Key under which the session would be found.
        lead: SessionKey,
        /// The pipeline that asks.
        shard: u8,
    },
    /// No packet within the session's inactivity timer.
    Inactivity {
        /// The session that is inactive.
        session: SessionId,
    },
}
