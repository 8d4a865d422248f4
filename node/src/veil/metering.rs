//! What veiled sessions have used, from what UPFs report on N4. A session is reported once, when it has ended; after a takeover by another
//! CTA the sessions that stand are not measured.

use std::collections::BTreeMap;

use whimbrel_control::{Event, Procedure, UeEvent, UeId};
use whimbrel_ids::Seid;
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::UrSeqn;
use whimbrel_pfcp::rule::UsageReport;
use whimbrel_privacy::token::TokenHash;

use crate::open::of_session;

/// A session that has ended, and its volume in octets.
pub(super) struct EndedSession {
    pub(super) group: TokenHash,
    pub(super) session: [u8; 32],
    pub(super) presence: [u8; 32],
    pub(super) octets: u64,
}

/// A session of a veiled UE.
struct MeteredSession {
    measured: EndedSession,
    /// PDU sessions that stand at UPFs, and the number of the last usage report of each.
    open: BTreeMap<Seid, Option<UrSeqn>>,
    /// The UE has deregistered: what its UPFs still report is the last.
    ended: bool,
}

#[derive(Default)]
pub(super) struct Metering {
    sessions: BTreeMap<UeId, MeteredSession>,
    /// The groups of sessions that have begun.
    pub(super) began: Vec<TokenHash>,
    /// Sessions that have ended.
    pub(super) ended: Vec<EndedSession>,
}

impl Metering {
    /// Something happened to a UE.
    pub(super) fn event(&mut self, UeEvent { ue, event, .. }: &UeEvent) {
        match event {
            Event::VeilGranted { group, session, presence, .. } => {
                self.close(*ue);
                let (group, session, presence) = (TokenHash(*group), *session, *presence);
                self.began.push(group);
                let measured = EndedSession { group, session, presence, octets: 0 };
                self.sessions.insert(*ue, MeteredSession { measured, open: BTreeMap::new(), ended: false });
            }
            Event::Deregistered { .. }
            | Event::Completed {
                procedure: Procedure::DeregistrationByUe | Procedure::DeregistrationByNetwork,
                ..
            } => {
                let Some(session) = self.sessions.get_mut(ue) else { return };
                session.ended = true;
                self.close_if_over(*ue);
            }
            _ => {}
        }
    }

    /// The UE of a session.
    pub(super) fn ue_of(&self, session: &[u8; 32]) -> Option<UeId> {
        self.sessions.iter().find(|(_, s)| !s.ended && s.measured.session == *session).map(|(ue, _)| *ue)
    }

    /// A message of a UPF.
    pub(super) fn pfcp(&mut self, octets: &[u8]) {
        if self.sessions.is_empty() {
            return;
        }
        let Some((ue, seid, message)) = of_session(octets) else { return };
        let Some(session) = self.sessions.get_mut(&ue) else { return };
        match message {
            Message::SessionEstablishmentResponse(m) if m.up_f_seid.is_some() => {
                session.open.insert(seid, None);
            }
            Message::SessionReportRequest(m) => session.count(seid, &m.usage_reports),
            Message::SessionModificationResponse(m) => session.count(seid, &m.usage_reports),
            Message::SessionDeletionResponse(m) => {
                session.count(seid, &m.usage_reports);
                session.open.remove(&seid);
                self.close_if_over(ue);
            }
            _ => {}
        }
    }

    fn close_if_over(&mut self, ue: UeId) {
        if self.sessions.get(&ue).is_some_and(|session| session.ended && session.open.is_empty()) {
            self.close(ue);
        }
    }

    fn close(&mut self, ue: UeId) {
        self.ended.extend(self.sessions.remove(&ue).map(|session| session.measured));
    }
}

impl MeteredSession {
    /// Adds the volumes of reports that were not here before (TS 29.244 §8.2.71).
    fn count(&mut self, seid: Seid, reports: &[UsageReport]) {
        let Some(last) = self.open.get_mut(&seid) else { return };
        for report in reports {
            let Some(volume) = &report.volume_measurement else { continue };
            let UrSeqn(number) = report.ur_seqn;
            let is_new =
                last.is_none_or(|UrSeqn(last)| (1..=u32::MAX / 2).contains(&number.wrapping_sub(last)));
            if is_new {
                *last = Some(report.ur_seqn);
                let both = volume.ul.unwrap_or(0).saturating_add(volume.dl.unwrap_or(0));
                self.measured.octets = self.measured.octets.saturating_add(both);
            }
        }
    }
}
