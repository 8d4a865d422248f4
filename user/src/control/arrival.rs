//! Predicted handovers: sessions, and changes of sessions, that wait for their UE to arrive.
//!
//! The requests are those of TS 29.244, as the SMF would send them when the UE is there; that they come early an element of ours in
//! them says ([`OnArrival`]), for PFCP has no word for it. They are answered at once, and tunnels and addresses given, so that the gNB can be
//! prepared. If the UE does not come within some five seconds it was never asked; if it comes, the SMF confirms by any request
//! of its own within ten. What was predicted and does not happen leaves no trace.

use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{ApplyAction, OnArrival};
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::UpdateFar;

use super::{Outbox, UpfC};
use crate::rules::SessionRules;
use crate::session_id::SessionId;

/// When a request's rules begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RulesStart {
    /// The rules begin at once.
    Now,
    /// With the first packet that shows that the UE has arrived.
    OnArrival,
}

impl RulesStart {
    pub(super) fn of(on_arrival: Option<OnArrival>) -> Self {
        if on_arrival.is_some() { Self::OnArrival } else { Self::Now }
    }
}

/// How long a predicted session may wait for its UE: as long as the prediction lives in the pipeline, and time for its report.
const ARRIVES_WITHIN: Duration = Duration::from_secs(6);
/// How long a session whose UE has arrived may wait for the SMF to say so too: a handover's signalling, generously.
pub(super) const CONFIRMED_WITHIN: Duration = Duration::from_secs(10);

/// Whether a request makes packets wait and changes nothing else: the handover that is predicted begins, and what is predicted still holds.
pub(super) fn only_holds(m: &SessionModificationRequest) -> bool {
    let holds = |far: &UpdateFar| {
        far.apply_action == Some(ApplyAction::BUFF) && far.update_forwarding_parameters.is_none()
    };
    let rest = SessionModificationRequest { update_fars: Vec::new(), ..m.clone() };
    !m.update_fars.is_empty()
        && m.update_fars.iter().all(holds)
        && rest == SessionModificationRequest::default()
}

impl UpfC {
    /// A session stands for its UE alone, until the SMF confirms it.
    pub(super) fn await_ue(&mut self, now: Instant, session: SessionId) {
        self.await_until(now + ARRIVES_WITHIN, session);
    }

    fn await_until(&mut self, at: Instant, session: SessionId) {
        let Some(s) = self.sessions.get_mut(session) else { return };
        if let Some(old) = s.provisional_until.replace(at) {
            self.provisional.remove(&(old, session));
        }
        self.provisional.insert((at, session));
    }

    /// The SMF has spoken of a session: it stands for good.
    pub(super) fn confirm(&mut self, session: SessionId) {
        let until = self.sessions.get_mut(session).and_then(|s| s.provisional_until.take());
        if let Some(at) = until {
            self.provisional.remove(&(at, session));
            if self.sessions.get(session).is_some_and(|s| !s.rules.applications.is_empty()) {
                self.outdated.insert(session);
            }
        }
    }

    /// The rules of a change, which are the session's now or when its UE has moved. `keeps_prediction`: what is predicted of it still holds.
    pub(super) fn set_rules(
        &mut self,
        now: Instant,
        session: SessionId,
        when: RulesStart,
        keeps_prediction: bool,
        rules: &Arc<SessionRules>,
    ) {
        let Some(s) = self.sessions.get_mut(session) else { return };
        match when {
            RulesStart::Now => {
                if !keeps_prediction {
                    s.predicted = None;
                }
                self.sessions.set_rules(session, Arc::clone(rules));
                self.confirm(session);
            }
            RulesStart::OnArrival if s.provisional_until.is_some() => {
                self.sessions.set_rules(session, Arc::clone(rules));
                self.await_ue(now, session);
            }
            RulesStart::OnArrival => s.predicted = Some((now, Arc::clone(rules))),
        }
    }

    /// UPF-U has seen the UE: what was predicted is so.
    pub(super) fn arrived(&mut self, now: Instant, session: SessionId) {
        let Some(s) = self.sessions.get_mut(session) else { return };
        if s.provisional_until.is_some() {
            self.await_until(now + CONFIRMED_WITHIN, session);
        } else if let Some((_, rules)) = s.predicted.take() {
            self.sessions.set_rules(session, rules);
        }
    }

    /// UEs that did not come, and those that the SMF does not know of.
    pub(super) fn give_up_provisional(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(&(at, session)) = self.provisional.first().filter(|(at, _)| *at <= now) {
            self.provisional.remove(&(at, session));
            if self.sessions.get(session).is_some_and(|s| s.provisional_until == Some(at)) {
                self.drop_session(session, out);
            }
        }
    }
}
