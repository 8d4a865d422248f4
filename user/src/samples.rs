//! Many sessions like one that an SMF asked for: for measurements of the packet pipeline alone.

use std::net::Ipv4Addr;
use std::sync::Arc;

use whimbrel_ids::Teid;

use crate::exchange::{Effects, UserPlaneChange};
use crate::rules::{OwnRules, SessionRules};
use crate::session_id::{SessionId, Teids};

/// A session that UPF-C made, after which others are made.
pub struct SampleSession {
    rules: Arc<SessionRules>,
    own: OwnRules,
    teids: Teids,
}

impl SampleSession {
    /// From the change that UPF-C made of it, the sessions that the UPF may have at most, and its seed. `None` if the change
    /// does not set rules of the usual shape.
    pub fn of(change: &UserPlaneChange, sessions_max: u32, key: u64) -> Option<Self> {
        let UserPlaneChange::Put { rules, .. } = change else { return None };
        let (own, _) = rules.split()?;
        Some(Self { rules: Arc::clone(rules), own, teids: Teids::new(sessions_max, key) })
    }

    /// Another session with these rules: with an address, a tunnel and a gNB's tunnel of its own. Its uplink tunnel, and the change
    /// that puts it into the pipeline.
    pub fn session(&self, id: SessionId, ue_ipv4: Ipv4Addr, gnb_teid: Teid) -> (Teid, UserPlaneChange) {
        // No index has only the name that there cannot be.
        let teid = (0..2).find_map(|given| self.teids.teid(id, given)).unwrap_or(Teid(0));
        let mut own = self.own;
        own.tunnels[0] = teid;
        (own.teid, own.ue_ipv4) = (teid, Some(ue_ipv4));
        if let Some(tunnel) = &mut own.tunnel {
            tunnel.teid = gnb_teid;
        }
        let rules = SessionRules::clone(&self.rules).with(&own);
        (teid, UserPlaneChange::Put { session: id, rules: Arc::new(rules), effects: Effects::default() })
    }
}
