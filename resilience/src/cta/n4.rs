//! The aggregator's end of N4: the one PFCP entity that UPFs see, whoever runs a phone's procedures.
//!
//! It sets up the association and keeps it alive, stamps sequence numbers, repeats what is not answered from the
//! same address under the same number (TS 29.244 §6.4), answers a UPF's repeated report from memory, and so keeps
//! a failover of control functions invisible to a UPF.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use whimbrel_control::{OutputId, PhoneId};
use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::ie::{Cause, NodeId, RecoveryTimeStamp};
use whimbrel_pfcp::msg::{
    AssociationSetupRequest, HeartbeatRequest, HeartbeatResponse, NodeReportResponse, SessionReportResponse,
};
use whimbrel_pfcp::{Frame, Message, SEQUENCE_MAX, message_type};

/// T1 of TS 29.244 §6.4: how long an answer may take. A UPF answers within milliseconds; a second is patient.
const T1: Duration = Duration::from_secs(1);
/// N1 of TS 29.244 §6.4: how often a request is sent in all.
const N1: u8 = 3;
/// Between heartbeats (TS 23.527 §4.2 leaves it to the operator).
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Between attempts to set up an association.
const RETRY: Duration = Duration::from_secs(2);
/// Requests that are in doubt at once: as many as a UPF that is silent between two heartbeats can leave at a thousand sessions
/// a second. Beyond it the oldest are forgotten.
const DOUBTFUL_MAX: usize = 8192;
/// Reports whose answers are remembered: more than a UPF can have outstanding within its own T1.
const REPORTS_REMEMBERED: usize = 1024;

/// What came over N4, for the phones.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// The answer to a session request; `None`: there was none in time.
    Answer { phone: PhoneId, to: OutputId, octets: Option<Vec<u8>> },
    /// A report on a session.
    Report { phone: PhoneId, psi: u8, octets: Vec<u8> },
    /// The UPF answers.
    Up,
    /// The UPF stopped answering, or lost its sessions.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Association,
    Heartbeat,
    Session { phone: PhoneId, to: OutputId },
}

#[derive(Debug)]
struct Pending {
    purpose: Purpose,
    octets: Vec<u8>,
    sent: u8,
    deadline: Instant,
}

/// One UPF, as the control plane sees it.
pub(super) struct N4 {
    node_id: NodeId,
    recovery: RecoveryTimeStamp,
    sequence: u32,
    /// The recovery time stamp of the UPF while the association stands.
    peer: Option<RecoveryTimeStamp>,
    /// When to try an association, or a heartbeat, next.
    next: Instant,
    pending: BTreeMap<u32, Pending>,
    /// When each of them is due. All wait equally long, so the oldest stands first; those answered since are passed over.
    due: VecDeque<(Instant, u32)>,
    /// Requests that were given up towards their phones while the association stood: whether the UPF has done them nobody
    /// knows. They are repeated, unchanged, whenever the UPF shows that it lives, so that no session of nobody stays there.
    doubtful: BTreeMap<u32, Pending>,
    /// Answers to reports, by the UPF's sequence number, newest last.
    answered: VecDeque<(u32, Vec<u8>)>,
    reports: VecDeque<(u32, PhoneId)>,
}

impl N4 {
    pub(super) fn new(node_id: IpAddr, started: Instant) -> Self {
        Self {
            node_id: node_id.into(),
            recovery: RecoveryTimeStamp::at(started),
            sequence: 0,
            peer: None,
            next: started,
            pending: BTreeMap::new(),
            due: VecDeque::new(),
            doubtful: BTreeMap::new(),
            answered: VecDeque::new(),
            reports: VecDeque::new(),
        }
    }

    /// Whether the association stands.
    pub(super) fn is_up(&self) -> bool {
        self.peer.is_some()
    }

    /// Sends a phone's request. Without an association it is answered at once: there is none.
    pub(super) fn request(
        &mut self,
        now: Instant,
        phone: PhoneId,
        to: OutputId,
        octets: Vec<u8>,
        out: &mut Vec<Vec<u8>>,
    ) -> Option<Arrived> {
        if !self.is_up() {
            return Some(Arrived::Answer { phone, to, octets: None });
        }
        self.send(now, Purpose::Session { phone, to }, octets, out);
        None
    }

    fn send(&mut self, now: Instant, purpose: Purpose, mut octets: Vec<u8>, out: &mut Vec<Vec<u8>>) {
        self.sequence = if self.sequence == SEQUENCE_MAX { 1 } else { self.sequence + 1 };
        stamp(&mut octets, self.sequence);
        out.push(octets.clone());
        self.pending.insert(self.sequence, Pending { purpose, octets, sent: 1, deadline: now + T1 });
        self.due.push_back((now + T1, self.sequence));
    }

    /// A phone answers a report: remembered, in case the UPF asks again.
    pub(super) fn answer_report(&mut self, phone: PhoneId, octets: Vec<u8>, out: &mut Vec<Vec<u8>>) {
        let Ok(frame) = Frame::parse(&octets) else { return };
        let sequence = frame.header.sequence;
        self.reports.retain(|r| *r != (sequence, phone));
        if self.answered.len() == REPORTS_REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back((sequence, octets.clone()));
        out.push(octets);
    }

    /// Takes a datagram of the UPF.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        octets: &[u8],
        out: &mut Vec<Vec<u8>>,
        arrived: &mut Vec<Arrived>,
    ) {
        let Ok(frame) = Frame::parse(octets) else { return };
        let sequence = frame.header.sequence;
        match frame.header.message_type {
            message_type::HEARTBEAT_REQUEST => {
                let response = HeartbeatResponse { recovery_time_stamp: self.recovery };
                out.push(Message::from(response).to_octets(None, sequence));
            }
            message_type::NODE_REPORT_REQUEST => {
                // What it tells, the UPF's events and metrics tell the operator. Its sessions stay until their gNB says
                // more: a path that fails takes N2 with it, or only looks failed (TS 23.527 §5.4).
                let node_id = self.node_id.clone();
                let response =
                    NodeReportResponse { node_id, cause: Cause::RequestAccepted, offending_ie: None };
                out.push(Message::from(response).to_octets(None, sequence));
            }
            message_type::SESSION_REPORT_REQUEST => self.report(frame, octets, out, arrived),
            message_type::HEARTBEAT_RESPONSE
            | message_type::ASSOCIATION_SETUP_RESPONSE
            | message_type::SESSION_ESTABLISHMENT_RESPONSE
            | message_type::SESSION_MODIFICATION_RESPONSE
            | message_type::SESSION_DELETION_RESPONSE => self.response(now, frame, octets, out, arrived),
            _ => {}
        }
    }

    fn report(
        &mut self,
        frame: Frame<'_>,
        octets: &[u8],
        out: &mut Vec<Vec<u8>>,
        arrived: &mut Vec<Arrived>,
    ) {
        let sequence = frame.header.sequence;
        if let Some((_, answer)) = self.answered.iter().find(|(s, _)| *s == sequence) {
            out.push(answer.clone());
            return;
        }
        let Some((phone, psi)) = frame.header.seid.and_then(PhoneId::from_seid) else {
            let response = SessionReportResponse::new(Cause::SessionContextNotFound);
            out.push(Message::from(response).to_octets(Some(Seid(0)), sequence));
            return;
        };
        if self.reports.contains(&(sequence, phone)) {
            return; // The phone is at it already.
        }
        if self.reports.len() == REPORTS_REMEMBERED {
            self.reports.pop_front();
        }
        self.reports.push_back((sequence, phone));
        arrived.push(Arrived::Report { phone, psi, octets: octets.to_vec() });
    }

    fn response(
        &mut self,
        now: Instant,
        frame: Frame<'_>,
        octets: &[u8],
        out: &mut Vec<Vec<u8>>,
        arrived: &mut Vec<Arrived>,
    ) {
        let sequence = frame.header.sequence;
        let doubtful = || self.doubtful.remove(&sequence);
        let Some(pending) = self.pending.remove(&sequence).or_else(doubtful) else { return };
        self.pass_over();
        match pending.purpose {
            Purpose::Session { phone, to } => {
                arrived.push(Arrived::Answer { phone, to, octets: Some(octets.to_vec()) });
            }
            Purpose::Association | Purpose::Heartbeat => {
                let peer = match Message::parse(&frame) {
                    Ok(Message::AssociationSetupResponse(m)) if m.cause == Cause::RequestAccepted => {
                        m.recovery_time_stamp
                    }
                    Ok(Message::HeartbeatResponse(m)) => m.recovery_time_stamp,
                    _ => {
                        self.next = now + RETRY;
                        return;
                    }
                };
                self.alive(now, pending.purpose, peer, arrived);
                out.extend(self.doubtful.values().map(|p| p.octets.clone()));
            }
        }
    }

    fn alive(&mut self, now: Instant, purpose: Purpose, peer: RecoveryTimeStamp, arrived: &mut Vec<Arrived>) {
        match (self.peer, purpose) {
            (None, Purpose::Association) => {
                self.peer = Some(peer);
                self.next = now + HEARTBEAT;
                arrived.push(Arrived::Up);
            }
            // Another recovery time stamp: the UPF restarted and has no sessions (TS 23.527 §4.3.2).
            (Some(before), _) if before != peer => self.lost(now, arrived),
            _ => self.next = now + HEARTBEAT,
        }
    }

    fn lost(&mut self, now: Instant, arrived: &mut Vec<Arrived>) {
        self.peer = None;
        self.next = now;
        // A restarted UPF counts its sequence numbers anew.
        self.answered.clear();
        self.reports.clear();
        arrived.push(Arrived::Lost);
        self.due.clear();
        self.doubtful.clear(); // with the association, its sessions are gone (TS 29.244 §6.2.6.2.2)
        for (_, pending) in std::mem::take(&mut self.pending) {
            if let Purpose::Session { phone, to } = pending.purpose {
                arrived.push(Arrived::Answer { phone, to, octets: None });
            }
        }
    }

    /// Does what is due: repeats, gives up, keeps the association alive.
    pub(super) fn tick(&mut self, now: Instant, out: &mut Vec<Vec<u8>>, arrived: &mut Vec<Arrived>) {
        while let Some(&(at, sequence)) = self.due.front()
            && at <= now
        {
            self.due.pop_front();
            let Some(pending) = self.pending.get_mut(&sequence).filter(|p| p.deadline == at) else {
                continue;
            };
            if pending.sent < N1 {
                pending.sent += 1;
                pending.deadline = now + T1;
                self.due.push_back((pending.deadline, sequence));
                out.push(pending.octets.clone());
                continue;
            }
            let Some(pending) = self.pending.remove(&sequence) else { continue };
            match pending.purpose {
                Purpose::Session { phone, to } => {
                    arrived.push(Arrived::Answer { phone, to, octets: None });
                    self.doubt(sequence, pending);
                }
                Purpose::Heartbeat => self.lost(now, arrived),
                Purpose::Association => self.next = now + RETRY,
            }
        }
        if self.next <= now {
            self.keep_alive(now, out);
        }
    }

    fn keep_alive(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        self.next = Instant::FAR_FUTURE; // until this one is answered or given up
        let (purpose, message) = if self.is_up() {
            (Purpose::Heartbeat, HeartbeatRequest { recovery_time_stamp: self.recovery }.into())
        } else {
            let request = AssociationSetupRequest {
                node_id: self.node_id.clone(),
                recovery_time_stamp: self.recovery,
                up_function_features: None,
                cp_function_features: None,
                session_retention_information: None,
                user_plane_ip_resource_information: Vec::new(),
            };
            (Purpose::Association, Message::from(request))
        };
        self.send(now, purpose, message.to_octets(None, 0), out);
    }

    /// Keeps a request that nobody waits for any more, if it may have made a session or left one. A modification is not kept:
    /// it would undo later ones.
    fn doubt(&mut self, sequence: u32, pending: Pending) {
        let kind = pending.octets.get(1).copied();
        let makes_or_ends =
            [message_type::SESSION_ESTABLISHMENT_REQUEST, message_type::SESSION_DELETION_REQUEST];
        if !kind.is_some_and(|k| makes_or_ends.contains(&k)) {
            return;
        }
        if self.doubtful.len() == DOUBTFUL_MAX {
            self.doubtful.pop_first();
        }
        self.doubtful.insert(sequence, pending);
    }

    /// Forgets the oldest deadlines as far as they were met.
    fn pass_over(&mut self) {
        while let Some(&(at, sequence)) = self.due.front()
            && self.pending.get(&sequence).is_none_or(|p| p.deadline != at)
        {
            self.due.pop_front();
        }
    }

    /// When [`N4::tick`] has something to do.
    pub(super) fn next_deadline(&self) -> Instant {
        self.due.front().map_or(Instant::FAR_FUTURE, |&(at, _)| at).min(self.next)
    }
}

/// Writes the sequence number into an encoded message (TS 29.244 §7.2.2.1).
fn stamp(octets: &mut [u8], sequence: u32) {
    let has_seid = octets.first().is_some_and(|f| f & 1 != 0);
    let at = if has_seid { 12 } else { 4 };
    octets[at..at + 3].copy_from_slice(&sequence.to_be_bytes()[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_pfcp::msg::{AssociationSetupResponse, SessionDeletionRequest, SessionDeletionResponse};

    const PHONE: PhoneId = PhoneId { slot: 7, generation: 1 };
    const TO: OutputId = OutputId { clock: 3, index: 0 };

    fn up() -> N4 {
        let mut n4 = N4::new([127, 0, 0, 1].into(), Instant(1_000_000));
        let (mut out, mut arrived) = (vec![], vec![]);
        n4.tick(Instant(1_000_000), &mut out, &mut arrived);
        let sequence = Frame::parse(&out[0]).unwrap().header.sequence;
        let response = AssociationSetupResponse {
            node_id: NodeId::Ipv4([127, 0, 0, 2].into()),
            cause: Cause::RequestAccepted,
            recovery_time_stamp: RecoveryTimeStamp(9),
            up_function_features: None,
            cp_function_features: None,
            pfcpasrsp_flags: None,
            user_plane_ip_resource_information: vec![],
        };
        let octets = Message::from(response).to_octets(None, sequence);
        n4.receive(Instant(1_000_001), &octets, &mut vec![], &mut arrived);
        assert_eq!(arrived, [Arrived::Up]);
        n4
    }

    fn request() -> Vec<u8> {
        Message::from(SessionDeletionRequest::default()).to_octets(Some(Seid(5)), 0)
    }

    #[test] // TS 29.244 §6.4
    fn an_unanswered_request_is_repeated_unchanged_and_then_given_up() {
        let mut n4 = up();
        let (mut out, mut arrived) = (vec![], vec![]);
        let mut now = Instant(2_000_000);
        assert_eq!(n4.request(now, PHONE, TO, request(), &mut out), None);
        while arrived.is_empty() {
            now = n4.next_deadline();
            n4.tick(now, &mut out, &mut arrived);
        }
        let sent: Vec<_> = out.iter().filter(|o| o[1] == message_type::SESSION_DELETION_REQUEST).collect();
        assert_eq!(sent.len(), usize::from(N1));
        assert!(sent.iter().all(|o| *o == sent[0]));
        assert_eq!(arrived, [Arrived::Answer { phone: PHONE, to: TO, octets: None }]);
    }

    #[test] // DESIGN §4 rule 8: what a UPF may have done without our knowing is found out when it shows that it lives
    fn a_request_that_was_given_up_is_repeated_once_the_upf_lives() {
        let mut n4 = up();
        let (mut out, mut arrived) = (vec![], vec![]);
        n4.request(Instant(2_000_000), PHONE, TO, request(), &mut out);
        let asked = out[0].clone();
        while arrived.is_empty() {
            n4.tick(n4.next_deadline(), &mut out, &mut arrived);
        }
        out.clear();
        n4.tick(n4.next_deadline(), &mut out, &mut arrived);
        let sequence = Frame::parse(&out[0]).unwrap().header.sequence;
        out.clear();
        let beat = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(9) };
        let beat = Message::from(beat).to_octets(None, sequence);
        n4.receive(Instant(14_000_000), &beat, &mut out, &mut arrived);
        assert_eq!(out, [asked]);
    }

    #[test]
    fn an_answer_reaches_its_phone_once() {
        let mut n4 = up();
        let (mut out, mut arrived) = (vec![], vec![]);
        n4.request(Instant(2), PHONE, TO, request(), &mut out);
        let sequence = Frame::parse(&out[0]).unwrap().header.sequence;
        let response = SessionDeletionResponse::new(Cause::RequestAccepted);
        let octets = Message::from(response).to_octets(Some(PHONE.seid(1, 7)), sequence);
        n4.receive(Instant(3), &octets, &mut out, &mut arrived);
        n4.receive(Instant(4), &octets, &mut out, &mut arrived);
        assert_eq!(arrived, [Arrived::Answer { phone: PHONE, to: TO, octets: Some(octets) }]);
    }

    #[test] // TS 23.527 §4.3.2
    fn another_recovery_time_stamp_means_that_sessions_are_gone() {
        let mut n4 = up();
        let (mut out, mut arrived) = (vec![], vec![]);
        n4.tick(n4.next_deadline(), &mut out, &mut arrived);
        let sequence = Frame::parse(&out[0]).unwrap().header.sequence;
        let beat = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(10) };
        n4.receive(Instant(3), &Message::from(beat).to_octets(None, sequence), &mut out, &mut arrived);
        assert_eq!(arrived, [Arrived::Lost]);
        assert!(!n4.is_up());
    }

    #[test]
    fn garbage_is_ignored() {
        let mut n4 = up();
        for octets in [&[][..], &[0x21], &[0x20; 8], &[0xff; 64]] {
            n4.receive(Instant(3), octets, &mut vec![], &mut vec![]);
        }
        assert!(n4.is_up());
    }
}
