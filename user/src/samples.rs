//! Many sessions like one that an SMF asked for: for measurements of the packet pipeline alone.

use std::net::Ipv4Addr;
use std::sync::Arc;

use whimbrel_ids::Teid;

use crate::exchange::{Change, Effects};
use crate::rules::SessionRules;
use crate::session_id::{SessionId, TeidLayout};

/// A session that UPF-C made, after which others are made.
pub struct Sample {
    rules: Arc<SessionRules>,
    teids: TeidLayout,
    key: u64,
}

impl Sample {
    /// From the change that UPF-C made of it, the sessions that the UPF may have at most, and its seed. `None` if the change is none
    /// that sets rules.
    pub fn of(change: &Change, sessions_max: u32, key: u64) -> Option<Self> {
        let Change::Put { rules, .. } = change else { return None };
        Some(Self { rules: Arc::clone(rules), teids: TeidLayout::of(sessions_max), key })
    }

    /// Another session with these rules: with an address, a tunnel and a gNB's tunnel of its own. Its uplink tunnel, and the change
    /// that puts it into the pipeline.
    pub fn session(&self, id: SessionId, ue_ipv4: Ipv4Addr, gnb_teid: Teid) -> (Teid, Change) {
        let teid = self.teids.teid(id, 0, 0, self.key);
        let mut rules = SessionRules::clone(&self.rules);
        let (former, uplink) = (rules.tunnels[0], teid);
        rules.tunnels[0] = uplink;
        rules.ue_ipv4 = Some(ue_ipv4);
        rules.pdrs.iter_mut().filter(|p| p.teid == former).for_each(|p| p.teid = uplink);
        rules.fars.iter_mut().filter_map(|f| f.tunnel.as_mut()).for_each(|t| t.teid = gnb_teid);
        (teid, Change::Put { session: id, rules: Arc::new(rules), effects: Effects::default() })
    }
}
