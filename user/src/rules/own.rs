//! A session's rules as two parts: what is its own, and the shape that many sessions share.
//!
//! An operator's UEs are served by a handful of shapes. With millions of sessions, each shape is stored once.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use whimbrel_ids::Teid;

use super::{PeerTunnel, SessionRules};
use crate::limits::TUNNELS_PER_SESSION_MAX;

/// What stands in a shape for a tunnel of the session's own.
const SOME_TUNNEL: PeerTunnel =
    PeerTunnel { teid: Teid(0), peer: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0) };

/// What of its rules is a session's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnRules {
    pub(crate) ue_ipv4: Option<Ipv4Addr>,
    pub(crate) ue_ipv6: Option<Ipv6Addr>,
    pub(crate) tunnels: [Teid; TUNNELS_PER_SESSION_MAX],
    pub(crate) tunnels_given: u16,
    /// Of the PDRs from the UE.
    pub(crate) teid: Teid,
    /// Of the FARs that have one.
    pub(crate) tunnel: Option<PeerTunnel>,
    /// Uplink and downlink, in kbit/s, of the first QERs that have rates: an AMBR, and a flow's own.
    pub(crate) mbr_kbps: [[u64; 2]; 2],
}

impl SessionRules {
    /// Both parts; `None` where more is the session's own than [`OwnRules`] holds: several tunnels or rates.
    pub(crate) fn split(&self) -> Option<(OwnRules, Self)> {
        let rated = self.qers.iter().filter(|q| q.has_rates());
        let mut rates = rated.map(|q| [q.mbr_ul_kbps, q.mbr_dl_kbps].map(|kbps| kbps.unwrap_or(0)));
        let own = OwnRules {
            ue_ipv4: self.ue_ipv4,
            ue_ipv6: self.ue_ipv6,
            tunnels: self.tunnels,
            tunnels_given: self.tunnels_given,
            teid: self.pdrs.iter().find(|p| p.is_uplink()).map_or(Teid(0), |p| p.teid),
            tunnel: self.fars.iter().find_map(|f| f.tunnel),
            mbr_kbps: [(); 2].map(|()| rates.next().unwrap_or([0; 2])),
        };
        let none = OwnRules {
            ue_ipv4: self.ue_ipv4.map(|_| Ipv4Addr::UNSPECIFIED),
            ue_ipv6: self.ue_ipv6.map(|_| Ipv6Addr::UNSPECIFIED),
            tunnels: [Teid(0); TUNNELS_PER_SESSION_MAX],
            tunnels_given: 0,
            teid: Teid(0),
            tunnel: Some(SOME_TUNNEL),
            mbr_kbps: [[0; 2]; 2],
        };
        let shape = self.clone().with(&none);
        (shape.clone().with(&own) == *self).then_some((own, shape))
    }

    /// These rules as another session's.
    pub(crate) fn with(mut self, own: &OwnRules) -> Self {
        self.ue_ipv4 = own.ue_ipv4;
        self.ue_ipv6 = own.ue_ipv6;
        self.tunnels = own.tunnels;
        self.tunnels_given = own.tunnels_given;
        self.pdrs.iter_mut().filter(|p| p.is_uplink()).for_each(|p| p.teid = own.teid);
        self.fars.iter_mut().filter(|f| f.tunnel.is_some()).for_each(|f| f.tunnel = own.tunnel);
        for (q, [ul, dl]) in self.qers.iter_mut().filter(|q| q.has_rates()).zip(own.mbr_kbps) {
            q.mbr_ul_kbps = q.mbr_ul_kbps.map(|_| ul);
            q.mbr_dl_kbps = q.mbr_dl_kbps.map(|_| dl);
        }
        self
    }
}
