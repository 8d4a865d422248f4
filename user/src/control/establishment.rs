//! Session establishment in the UP function (TS 29.244 §6.3.2.3).

use std::sync::Arc;

use whimbrel_ids::{Instant, Seid, Teid};
use whimbrel_pfcp::ie::{Cause, Choice, FSeid, FTeid, OffendingIe, SessionEstablishmentFlags};
use whimbrel_pfcp::msg::{SessionEstablishmentRequest, SessionEstablishmentResponse};

use super::arrival::RulesStart;
use super::kept::StateRoom;
use super::replies::ReplyKey;
use super::{Outbox, UpfC};
use crate::event::Event;
use crate::exchange::{Effects, UserPlaneChange};
use crate::rules::{Allocator, Draft, RequestEffects, RuleRefusal, SessionKind, SessionRules, upper};
use crate::session_id::SessionId;

impl UpfC {
    pub(super) fn establish(
        &mut self,
        now: Instant,
        key: ReplyKey,
        m: SessionEstablishmentRequest,
        out: &mut Outbox,
    ) {
        let when = RulesStart::of(m.on_arrival);
        let cp = m.cp_f_seid;
        let node_id = self.config.node_id.clone();
        let of_peer = self.associations.get(&m.node_id).filter(|a| a.peer.ip() == key.peer.ip());
        // TS 29.244 §6.2.1: no session without association.
        let Some(association) = of_peer.map(|a| a.id) else {
            let response = SessionEstablishmentResponse::new(node_id, Cause::NoEstablishedPfcpAssociation);
            return self.answer(now, key, Some(cp.seid), &response.into(), out);
        };
        if when == RulesStart::OnArrival && self.sessions.of_cp(association, &cp).is_some() {
            // It stands; what is predicted of it is a modification.
            let response = SessionEstablishmentResponse::new(node_id, Cause::RequestRejected);
            return self.answer(now, key, Some(cp.seid), &response.into(), out);
        }
        self.end_elsewhere(association, &m, out);
        let response = match self.build(association, &m) {
            Ok((session, rules, changed)) => {
                let rules = Arc::new(rules);
                self.confirm(session); // as one that stood already; a new one is not known
                self.sessions.put(session, association, cp, Arc::clone(&rules));
                out.events.push(Event::SessionEstablished {
                    session,
                    cp_seid: cp.seid,
                    data_network: rules.data_network,
                    ue_ipv4: rules.ue_ipv4,
                    ue_ipv6: rules.ue_ipv6,
                });
                let effects = Effects::default();
                out.changes.push(match when {
                    RulesStart::Now => UserPlaneChange::Put { session, rules, effects },
                    RulesStart::OnArrival => UserPlaneChange::Predict { session, rules, effects },
                });
                if when == RulesStart::OnArrival {
                    self.await_ue(now, session);
                }
                let (load_control_information, overload_control_information) =
                    self.tell_load(now, association);
                SessionEstablishmentResponse {
                    load_control_information,
                    overload_control_information,
                    up_f_seid: Some(self.up_f_seid(session.seid())),
                    created_pdrs: changed.created_pdrs,
                    created_traffic_endpoints: changed.created_traffic_endpoints,
                    ..SessionEstablishmentResponse::new(node_id, Cause::RequestAccepted)
                }
            }
            Err(refusal) => {
                let (cause, offending_ie, failed_rule_id) = refusal.answer();
                out.events.push(Event::SessionRefused { peer: key.peer, refusal, cause });
                SessionEstablishmentResponse {
                    offending_ie: offending_ie.map(OffendingIe),
                    failed_rule_id,
                    ..SessionEstablishmentResponse::new(node_id, cause)
                }
            }
        };
        self.answer(now, key, Some(cp.seid), &response.into(), out);
    }

    pub(super) fn up_f_seid(&self, seid: Seid) -> FSeid {
        FSeid::new(seid, self.config.n4)
    }

    /// A session of that CP F-SEID in another network, or with another address than now given, is not the
    /// same one.
    fn end_elsewhere(&mut self, association: u32, m: &SessionEstablishmentRequest, out: &mut Outbox) {
        let Some(id) = self.sessions.of_cp(association, &m.cp_f_seid) else { return };
        let Some(s) = self.sessions.get(id) else { return };
        let of_pdrs = m.create_pdrs.iter().flat_map(|p| &p.pdi.ue_ip_addresses);
        let of_endpoints = m.create_traffic_endpoints.iter().flat_map(|e| &e.ue_ip_addresses);
        let moved = of_pdrs.chain(of_endpoints).any(|a| {
            let ipv4 =
                a.ipv4.and_then(Choice::given).zip(s.rules.ue_ipv4).is_some_and(|(new, old)| new != old);
            let ipv6 = a.ipv6.and_then(Choice::given).zip(s.rules.ue_ipv6);
            ipv4 || ipv6.is_some_and(|(new, old)| upper(new) != upper(old))
        });
        let network = Allocator::network(&self.config, m);
        // Nor is one of another type.
        let moved = moved || SessionKind::of(m.pdn_type) != s.rules.kind;
        if moved || network.is_ok_and(|n| n != s.rules.data_network) {
            self.drop_session(id, out);
        }
    }

    /// The rules of a new session; or, for a CP F-SEID that already has one, of that session from now on,
    /// with the addresses and tunnels that it had: an SMF that does not know whether we heard it simply
    /// asks again.
    fn build(
        &mut self,
        association: u32,
        m: &SessionEstablishmentRequest,
    ) -> Result<(SessionId, SessionRules, RequestEffects), RuleRefusal> {
        if m.cp_f_seid.seid == Seid(0) {
            return Err(RuleRefusal::CpSeid);
        }
        let network = Allocator::network(&self.config, m)?;
        let known = self.sessions.of_cp(association, &m.cp_f_seid);
        let known =
            known.filter(|id| self.sessions.get(*id).is_some_and(|s| s.rules.data_network == network));
        let restores = m.pfcpsereq_flags.is_some_and(|f| f.has(SessionEstablishmentFlags::RESTI));
        let session = match (known, former_tunnel(m).filter(|_| restores && !self.config.smf_f_teids)) {
            (Some(id), _) => id,
            (None, Some(teid)) => {
                let teids = self.config.teids();
                self.sessions.vacant_with(&teids, teid).ok_or(RuleRefusal::TunnelInUse)?
            }
            (None, None) => {
                // A switch joins Ethernet sessions, and the longest prefix is looked for among all routes: of one shard.
                let routed = m
                    .create_pdrs
                    .iter()
                    .any(|p| !p.pdi.framed_routes.is_empty() || !p.pdi.framed_ipv6_routes.is_empty());
                let of_first = routed || SessionKind::of(m.pdn_type) == SessionKind::Ethernet;
                self.sessions.vacant(of_first).ok_or(RuleRefusal::NoSession)?
            }
        };
        let room = self.room_to_promise(known);
        let mut base = SessionRules::empty(network);
        if let Some(old) = known.and_then(|id| self.sessions.get(id)) {
            (base.ue_ipv4, base.ue_ipv6) = (old.rules.ue_ipv4, old.rules.ue_ipv6);
        }
        let mut draft = Draft::open(&base);
        let state = StateRoom::of(self.keeper.as_ref(), known.is_some());
        let teids = self.sessions.smf_teids.as_ref();
        let mut allocator =
            Allocator::new(&self.config, &self.applications, session, &mut self.sessions.pools, teids);
        allocator.restores = restores;
        match allocator
            .establish(&mut draft, m)
            .and_then(|()| draft.close())
            .and_then(|r| room.judge(r))
            .and_then(|r| state.judge(r))
        {
            Ok(rules) => Ok((session, rules, allocator.keep())),
            Err(refusal) => {
                allocator.undo(network);
                Err(refusal)
            }
        }
    }
}

/// The first F-TEID that a request gives.
fn former_tunnel(m: &SessionEstablishmentRequest) -> Option<Teid> {
    let of_pdrs = m.create_pdrs.iter().filter_map(|p| p.pdi.f_teid);
    let mut all = of_pdrs.chain(m.create_traffic_endpoints.iter().filter_map(|e| e.local_f_teid));
    all.find_map(|f| match f {
        FTeid::Given { teid, .. } => Some(teid),
        FTeid::Choose { .. } => None,
    })
}
