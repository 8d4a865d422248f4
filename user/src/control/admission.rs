//! Promises to flows of guaranteed rate (TS 23.501 §5.7.2.5): not more, of all sessions together, than the operator says can be kept.

use whimbrel_pfcp::ie::QerId;

use super::UpfC;
use crate::rules::{RuleRefusal, SessionRules};
use crate::session_id::SessionId;

/// Rates promised, kbit/s, uplink and downlink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PromisedRates {
    ul_kbps: u64,
    dl_kbps: u64,
}

impl PromisedRates {
    /// By the rules of a session.
    pub(super) fn of(rules: &SessionRules) -> Self {
        rules.qers.iter().fold(Self::default(), |all, q| Self {
            ul_kbps: all.ul_kbps + u64::from(q.gbr_ul_kbps),
            dl_kbps: all.dl_kbps + u64::from(q.gbr_dl_kbps),
        })
    }

    /// These and those.
    pub(super) fn with(self, other: Self) -> Self {
        Self { ul_kbps: self.ul_kbps + other.ul_kbps, dl_kbps: self.dl_kbps + other.dl_kbps }
    }

    /// These less those, which are among them.
    pub(super) fn without(self, other: Self) -> Self {
        Self {
            ul_kbps: self.ul_kbps.saturating_sub(other.ul_kbps),
            dl_kbps: self.dl_kbps.saturating_sub(other.dl_kbps),
        }
    }
}

/// What a session may promise: what it does already, and what others leave.
#[derive(Clone, Copy)]
pub(super) struct Room(Option<(PromisedRates, PromisedRates)>);

impl UpfC {
    /// Of a session that stands, or of a new one.
    pub(super) fn room_to_promise(&self, session: Option<SessionId>) -> Room {
        let Some(most) = self.config.guaranteed else { return Room(None) };
        let most = PromisedRates { ul_kbps: most.ul_kbps, dl_kbps: most.dl_kbps };
        let own = session.and_then(|id| self.sessions.get(id));
        let own = own.map_or(PromisedRates::default(), |s| PromisedRates::of(&s.rules));
        Room(Some((own, most.without(self.sessions.promised().without(own)))))
    }
}

impl Room {
    /// Lets rules pass that promise no more. Those of a session that promises less than before pass in any case.
    pub(super) fn judge(self, rules: SessionRules) -> Result<SessionRules, RuleRefusal> {
        let Some((own, most)) = self.0 else { return Ok(rules) };
        let new = PromisedRates::of(&rules);
        let above = |new: u64, own: u64, most: u64| new > own && new > most;
        if above(new.ul_kbps, own.ul_kbps, most.ul_kbps) || above(new.dl_kbps, own.dl_kbps, most.dl_kbps) {
            let promising = rules.qers.iter().rfind(|q| q.gbr_ul_kbps > 0 || q.gbr_dl_kbps > 0);
            return Err(RuleRefusal::Guaranteed(promising.map_or(QerId(0), |q| q.qer_id)));
        }
        Ok(rules)
    }
}
