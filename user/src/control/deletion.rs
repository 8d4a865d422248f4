//! Session deletion in the UP function (TS 29.244 §6.3.4.3).

use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::Cause;
use whimbrel_pfcp::msg::SessionDeletionResponse;

use super::replies::ReplyKey;
use super::{NO_SESSION, Outbox, UpfC};
use crate::event::Event;
use crate::exchange::{UsageToken, UserPlaneChange};
use crate::session_id::SessionId;

impl UpfC {
    pub(super) fn delete(
        &mut self,
        now: Instant,
        key: ReplyKey,
        session: Option<SessionId>,
        out: &mut Outbox,
    ) {
        let named = session.filter(|id| self.may_speak_of(key, *id));
        let Some((session, s)) = named.and_then(|id| self.sessions.remove(id).map(|s| (id, s))) else {
            let response = SessionDeletionResponse::new(NO_SESSION);
            return self.answer(now, key, Some(Seid(0)), &response.into(), out);
        };
        let (load_control_information, overload_control_information) = self.tell_load(now, s.association);
        let response = SessionDeletionResponse {
            load_control_information,
            overload_control_information,
            ..SessionDeletionResponse::new(Cause::RequestAccepted)
        };
        let cp_seid = s.cp_f_seid.seid;
        let token = if s.rules.urrs.is_empty() {
            self.answer(now, key, Some(cp_seid), &response.into(), out);
            None
        } else {
            self.wait(now, key, cp_seid, response.into(), out)
        };
        out.changes.push(UserPlaneChange::Remove { session, token });
        out.events.push(Event::SessionDeleted { session });
    }

    /// Figures that a response has waited for (TS 29.244 §6.3.3).
    pub(super) fn figures(
        &mut self,
        now: Instant,
        token: UsageToken,
        reports: Vec<whimbrel_pfcp::rule::UsageReport>,
        out: &mut Outbox,
    ) {
        let Some(mut w) = self.waiting.remove(&token) else { return };
        match &mut w.response {
            Message::SessionDeletionResponse(m) => m.usage_reports = reports,
            Message::SessionModificationResponse(m) => m.usage_reports = reports,
            _ => {}
        }
        self.answer(now, w.key, Some(w.cp_seid), &w.response, out);
        self.keep_sessions(w.touched, Some(w.key), out);
    }
}
