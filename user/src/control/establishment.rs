//! Session establishment in the UP function (TS 29.244 §6.3.2.3).

use std::sync::Arc;

use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::ie::{Cause, FSeid, OffendingIe};
use whimbrel_pfcp::msg::{SessionEstablishmentRequest, SessionEstablishmentResponse};

use super::replies::ReplyKey;
use super::sessions::empty;
use super::{Outbox, UpfC};
use crate::event::Event;
use crate::exchange::{Change, Effects};
use crate::rules::{Allocator, Changed, Draft, RuleRefusal, SessionRules};
use crate::session_id::SessionId;

impl UpfC {
    pub(super) fn establish(
        &mut self,
        now: Instant,
        key: ReplyKey,
        m: SessionEstablishmentRequest,
        out: &mut Outbox,
    ) {
        let cp = m.cp_f_seid;
        let node_id = self.config.node_id.clone();
        let Some(association) = self.associations.get(&m.node_id).map(|a| a.id) else {
            let response = SessionEstablishmentResponse::new(node_id, Cause::NoEstablishedPfcpAssociation);
            return self.answer(now, key, Some(cp.seid), &response.into(), out);
        };
        let response = match self.build(association, &m) {
            Ok((session, rules, changed)) => {
                let rules = Arc::new(rules);
                self.sessions.put(session, association, cp, Arc::clone(&rules));
                out.events.push(Event::SessionEstablished {
                    session,
                    cp_seid: cp.seid,
                    data_network: rules.data_network,
                    ue_ipv4: rules.ue_ipv4,
                    ue_ipv6: rules.ue_ipv6,
                });
                out.changes.push(Change::Put { session, rules, effects: Effects::default() });
                SessionEstablishmentResponse {
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

    /// The rules of a new session; or, for a CP F-SEID that already has one, of that session from now on, with the
    /// addresses and tunnels that it had: an SMF that does not know whether we heard it simply asks again.
    fn build(
        &mut self,
        association: u32,
        m: &SessionEstablishmentRequest,
    ) -> Result<(SessionId, SessionRules, Changed), RuleRefusal> {
        let network = Allocator::network(&self.config, m)?;
        let known = self.sessions.of_cp(association, &m.cp_f_seid);
        let known =
            known.filter(|id| self.sessions.get(*id).is_some_and(|s| s.rules.data_network == network));
        let session = match known {
            Some(id) => id,
            None => self.sessions.vacant().ok_or(RuleRefusal::NoSession)?,
        };
        let mut base = empty(network);
        if let Some(old) = known.and_then(|id| self.sessions.get(id)) {
            (base.ue_ipv4, base.ue_ipv6) = (old.rules.ue_ipv4, old.rules.ue_ipv6);
        }
        let mut draft = Draft::open(&base);
        let mut allocator = Allocator::new(&self.config, session, &mut self.sessions.pools);
        match allocator.establish(&mut draft, m).and_then(|()| draft.close()) {
            Ok(rules) => Ok((session, rules, allocator.keep())),
            Err(refusal) => {
                allocator.undo(network);
                Err(refusal)
            }
        }
    }
}
