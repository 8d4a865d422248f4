//! Session modification in the UP function (TS 29.244 §6.3.3.3).

use std::sync::Arc;

use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::ie::{Cause, FSeid, NodeId, OffendingIe, SessionModificationFlags};
use whimbrel_pfcp::msg::{SessionModificationRequest, SessionModificationResponse};

use super::arrival::{RulesStart, only_holds};
use super::association::Association;
use super::kept::StateRoom;
use super::replies::ReplyKey;
use super::requests::OutgoingReport;
use super::{NO_SESSION, Outbox, UpfC};
use crate::event::Event;
use crate::exchange::{Effects, Query, UserPlaneChange};
use crate::rules::{Allocator, Draft, RequestEffects, RuleRefusal, SessionRules};
use crate::session_id::SessionId;

impl UpfC {
    pub(super) fn modify(
        &mut self,
        now: Instant,
        key: ReplyKey,
        session: Option<SessionId>,
        m: SessionModificationRequest,
        out: &mut Outbox,
    ) {
        let when = RulesStart::of(m.on_arrival);
        let allowed =
            |id: &SessionId| self.may_speak_of(key, *id) || self.may_take_over(key, *id, m.cp_f_seid);
        let Some(session) = session.filter(allowed) else {
            let response = SessionModificationResponse::new(NO_SESSION);
            return self.answer(now, key, Some(Seid(0)), &response.into(), out);
        };
        if let Some(f) = m.cp_f_seid {
            self.give(now, session, f, out);
        }
        let cp_seid = self.sessions.get(session).map_or(Seid(0), |s| s.cp_f_seid.seid);
        let (rules, changed) = match self.rebuild(session, when, &m) {
            Ok(ok) => ok,
            Err(refusal) => {
                let (cause, offending_ie, failed_rule_id) = refusal.answer();
                out.events.push(Event::SessionRefused { peer: key.peer, refusal, cause });
                let response = SessionModificationResponse {
                    offending_ie: offending_ie.map(OffendingIe),
                    failed_rule_id,
                    ..SessionModificationResponse::new(cause)
                };
                return self.answer(now, key, Some(cp_seid), &response.into(), out);
            }
        };
        let rules = Arc::new(rules);
        let keeps_prediction = only_holds(&m);
        self.set_rules(now, session, when, keeps_prediction, &rules);
        let flags = m.pfcpsmreq_flags.unwrap_or_default();
        let query = match () {
            () if flags.has(SessionModificationFlags::QAURR) => Query::All,
            () if !m.query_urrs.is_empty() => Query::Some(m.query_urrs.iter().map(|q| q.urr_id).collect()),
            () => Query::Nothing,
        };
        let response = SessionModificationResponse {
            created_pdrs: changed.created_pdrs,
            created_traffic_endpoints: changed.created_traffic_endpoints,
            ..SessionModificationResponse::new(Cause::RequestAccepted)
        };
        let mut effects = Effects {
            end_markers: changed.end_markers,
            drop_buffered: flags.has(SessionModificationFlags::DROBU),
            query,
            keeps_prediction,
            ..Effects::default()
        };
        if when == RulesStart::OnArrival {
            // Figures are of the time of asking: whoever wants them asks when the UE is there.
            effects.query = Query::Nothing;
            self.answer(now, key, Some(cp_seid), &response.into(), out);
            return out.changes.push(UserPlaneChange::Predict { session, rules, effects });
        }
        if effects.query == Query::Nothing && m.remove_urrs.is_empty() {
            self.answer(now, key, Some(cp_seid), &response.into(), out);
        } else {
            effects.token = self.wait(now, key, cp_seid, response.into(), out);
        }
        out.changes.push(UserPlaneChange::Put { session, rules, effects });
    }

    /// The SMF's end of a session has moved. At the address of another SMF that is associated it is that one's: it goes on when the former
    /// is lost, and the former may not speak of it any more. It gets what the former one has not answered.
    fn give(&mut self, now: Instant, session: SessionId, to: FSeid, out: &mut Outbox) {
        let Some(present) = self.sessions.get(session).map(|s| s.association) else { return };
        let address = super::sessions::address(&to);
        // By the address that it speaks from, or the one that it is named by.
        let of = |(node, a): &(&NodeId, &Association)| {
            Some(a.peer.ip()) == address || address.is_some_and(|ip| **node == NodeId::from(ip))
        };
        let those: Vec<u32> = self.associations.iter().filter(of).map(|(_, a)| a.id).collect();
        let stays = those.contains(&present);
        let association = those.first().filter(|_| !stays).copied().unwrap_or(present);
        self.sessions.rename(session, association, to);
        let peer = self.associations.by_id(association).filter(|_| !stays).map(|a| a.peer);
        for message in
            peer.iter().flat_map(|_| self.requests.take_downlink_data_of(session)).collect::<Vec<_>>()
        {
            let (Some(peer), seid) = (peer, Some(to.seid)) else { continue };
            let report = OutgoingReport { peer, association, seid, session: Some(session), message };
            self.send_report(now, &report, out);
        }
    }

    /// Whether the sender may speak of the session: it is the SMF that set it up, or its F-SEID's address.
    pub(super) fn may_speak_of(&self, key: ReplyKey, session: SessionId) -> bool {
        let Some(s) = self.sessions.get(session) else { return false };
        let from = key.peer.ip();
        s.cp_address() == Some(from)
            || self.associations.by_id(s.association).is_some_and(|a| a.peer.ip() == from)
    }

    /// True if the sender is another SMF of the set of the one that has the session, and goes on for it at its own address (TS 29.244 §5.22.3).
    fn may_take_over(&self, key: ReplyKey, session: SessionId, to: Option<FSeid>) -> bool {
        let from = key.peer.ip();
        let at_its_own = to.is_some_and(|to| super::sessions::address(&to) == Some(from));
        let set_of = |a: &Association| a.smf_set.clone();
        let present =
            self.sessions.get(session).and_then(|s| self.associations.by_id(s.association)).and_then(set_of);
        let mut senders = self.associations.iter().map(|(_, a)| a).filter(|a| a.peer.ip() == from);
        at_its_own && present.is_some() && senders.any(|a| set_of(a) == present)
    }

    fn rebuild(
        &mut self,
        session: SessionId,
        when: RulesStart,
        m: &SessionModificationRequest,
    ) -> Result<(SessionRules, RequestEffects), RuleRefusal> {
        let Some(s) = self.sessions.get(session) else { return Err(RuleRefusal::NoSession) };
        let network = s.rules.data_network;
        let addresses = (s.rules.ue_ipv4, s.rules.ue_ipv6);
        let room = self.room_to_promise(Some(session));
        let mut draft = Draft::open(&s.rules);
        let state = StateRoom::of(self.keeper.as_ref(), true);
        let teids = self.sessions.smf_teids.as_ref();
        let mut allocator =
            Allocator::new(&self.config, &self.applications, session, &mut self.sessions.pools, teids);
        let rules = allocator
            .modify(&mut draft, m)
            .and_then(|()| draft.close())
            .and_then(|r| room.judge(r))
            .and_then(|r| state.judge(r));
        let stays = |r: &SessionRules| when == RulesStart::Now || (r.ue_ipv4, r.ue_ipv6) == addresses;
        match rules.and_then(|r| if stays(&r) { Ok(r) } else { Err(RuleRefusal::PredictedAddress) }) {
            Ok(rules) => Ok((rules, allocator.keep())),
            Err(refusal) => {
                allocator.undo(network);
                Err(refusal)
            }
        }
    }
}
