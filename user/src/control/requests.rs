//! Requests of our own: sequence numbers, retransmission (TS 29.244 §6.4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::{Frame, Message, SEQUENCE_MAX, message_type};

use super::{Outbox, UpfC};
use crate::event::Event;
use crate::exchange::{Effects, UserPlaneChange};
use crate::limits::{
    REPORTS_KEPT_MAX, REPORTS_PER_ASSOCIATION_MAX, REQUESTS_MAX, RETRANSMISSIONS_PER_TICK_MAX,
};
use crate::session_id::{SessionId, mix};
use crate::state::stored;

/// T1: how long to wait for an answer. The clause leaves it open; 3 s is what deployments use.
const T1: Duration = Duration::from_secs(3);
/// N1: how often to send in all.
const N1: u8 = 3;
/// N1 times T1: how long a peer may leave a request unanswered.
pub(super) const PATIENCE: Duration = Duration::from_secs(N1 as u64 * T1.as_secs());

struct SentRequest {
    peer: SocketAddr,
    message_type: u8,
    octets: Box<[u8]>,
    sent: u8,
    first_sent: Instant,
    /// When it is sent again; [`Instant::FAR_FUTURE`] while it is kept for an SMF that is silent.
    deadline: Instant,
    session: Option<SessionId>,
    /// The association that a report is for; zero for other requests.
    association: u32,
    /// It reports usage that is recorded in no other place: a successor repeats it.
    usage: bool,
    /// Set if it reports packets for an idle UE.
    downlink_data: bool,
}

/// A report to an SMF, and where it goes.
pub(super) struct OutgoingReport {
    pub(super) peer: SocketAddr,
    /// Number of the association that it is for.
    pub(super) association: u32,
    pub(super) seid: Option<Seid>,
    pub(super) session: Option<SessionId>,
    pub(super) message: Message,
}

impl OutgoingReport {
    fn has_downlink_data(&self) -> bool {
        matches!(&self.message, Message::SessionReportRequest(m) if m.downlink_data_report.is_some())
    }
}

/// Reports of one association that await answers.
#[derive(Default)]
struct AssociationReports {
    count: usize,
    /// The reports that are kept while the SMF is silent.
    kept: BTreeSet<u32>,
}

/// One that a successor repeats.
pub(super) struct StoredRequest {
    peer: SocketAddr,
    message_type: u8,
    octets: Vec<u8>,
    /// Of its session, or zero.
    pub(super) session: u64,
}

stored!(StoredRequest { peer, message_type, octets, session });

/// What awaits an answer.
pub(super) struct Requests {
    by_sequence: BTreeMap<u32, SentRequest>,
    by_deadline: BTreeSet<(Instant, u32)>,
    by_association: BTreeMap<u32, AssociationReports>,
    next_sequence: u32,
    /// Requests with usage that were sent, or are done, since they were taken last.
    touched: Vec<u32>,
}

impl Requests {
    pub(super) fn new(seed: u64) -> Self {
        // Not from one, so that a restart does not meet answers to its former self.
        let next_sequence = mix(seed ^ 0x0053_4551) as u32 & SEQUENCE_MAX;
        Self {
            by_sequence: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            by_association: BTreeMap::new(),
            next_sequence,
            touched: Vec::new(),
        }
    }

    /// Sequence numbers far from those of former lives, whose answers an SMF may still have.
    pub(super) fn skip(&mut self, seed: u64, life: u32) {
        self.next_sequence = mix(seed ^ 0x0053_4551 ^ u64::from(life) << 32) as u32 & SEQUENCE_MAX;
    }

    /// The requests with usage that have changed since the last call; `None` where one is done.
    pub(super) fn take_touched(&mut self) -> Vec<(u32, Option<StoredRequest>)> {
        let stored = |r: &SentRequest| StoredRequest {
            peer: r.peer,
            message_type: r.message_type,
            octets: r.octets.to_vec(),
            session: r.session.map_or(0, |s| s.seid().0),
        };
        let of = |sequence| (sequence, self.by_sequence.get(&sequence).map(stored));
        std::mem::take(&mut self.touched).into_iter().map(of).collect()
    }

    /// Repeats a request of a former process.
    pub(super) fn restore(
        &mut self,
        now: Instant,
        sequence: u32,
        r: StoredRequest,
        (session, association): (Option<SessionId>, u32),
        out: &mut Outbox,
    ) {
        out.datagrams.push((r.peer, r.octets.clone()));
        let StoredRequest { peer, message_type, octets, .. } = r;
        let (octets, deadline, usage) = (octets.into(), now + T1, true);
        let request = SentRequest {
            peer,
            message_type,
            octets,
            sent: 1,
            first_sent: now,
            deadline,
            session,
            association,
            usage,
            downlink_data: false,
        };
        self.insert(sequence, request);
    }

    fn insert(&mut self, sequence: u32, r: SentRequest) {
        if r.deadline != Instant::FAR_FUTURE {
            self.by_deadline.insert((r.deadline, sequence));
        }
        if r.association != 0 {
            let reports = self.by_association.entry(r.association).or_default();
            reports.count += 1;
            if r.deadline == Instant::FAR_FUTURE {
                reports.kept.insert(sequence);
            }
        }
        self.by_sequence.insert(sequence, r);
    }

    /// A request is done.
    fn remove(&mut self, sequence: u32) -> Option<SentRequest> {
        let r = self.by_sequence.remove(&sequence)?;
        self.by_deadline.remove(&(r.deadline, sequence));
        if let Some(reports) = self.by_association.get_mut(&r.association) {
            reports.count -= 1;
            reports.kept.remove(&sequence);
            if reports.count == 0 {
                self.by_association.remove(&r.association);
            }
        }
        if r.usage {
            self.touched.push(sequence);
        }
        Some(r)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(at, _)| *at)
    }

    /// Sends a request, and returns its sequence number; `None` if too many await answers.
    pub(super) fn send(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        message: &Message,
        out: &mut Outbox,
    ) -> Option<u32> {
        let sequence = self.free_sequence()?;
        let octets = message.to_octets(None, sequence);
        out.datagrams.push((peer, octets.clone()));
        let request = SentRequest {
            peer,
            message_type: message.message_type(),
            octets: octets.into(),
            sent: 1,
            first_sent: now,
            deadline: now + T1,
            session: None,
            association: 0,
            usage: false,
            downlink_data: false,
        };
        self.insert(sequence, request);
        Some(sequence)
    }

    /// Sends a report, or keeps it if the SMF is silent. Returns its sequence number; `None` if too many await answers: then it is lost.
    pub(super) fn send_report(
        &mut self,
        now: Instant,
        report: &OutgoingReport,
        is_silent: bool,
        out: &mut Outbox,
    ) -> Option<u32> {
        let OutgoingReport { peer, association, seid, session, message } = report;
        let has_room = self.by_association.get(association).is_none_or(|reports| match is_silent {
            true => reports.kept.len() < REPORTS_KEPT_MAX,
            false => reports.count < REPORTS_PER_ASSOCIATION_MAX,
        });
        let sequence = self.free_sequence().filter(|_| has_room)?;
        let octets = message.to_octets(*seid, sequence);
        if !is_silent {
            out.datagrams.push((*peer, octets.clone()));
        }
        let request = SentRequest {
            peer: *peer,
            message_type: message.message_type(),
            octets: octets.into(),
            sent: u8::from(!is_silent),
            first_sent: now,
            deadline: if is_silent { Instant::FAR_FUTURE } else { now + T1 },
            session: *session,
            association: *association,
            usage: matches!(message, Message::SessionReportRequest(m) if !m.usage_reports.is_empty()),
            downlink_data: report.has_downlink_data(),
        };
        if request.usage {
            self.touched.push(sequence);
        }
        self.insert(sequence, request);
        Some(sequence)
    }

    /// A sequence number that no request has; `None` if too many await answers.
    fn free_sequence(&mut self) -> Option<u32> {
        if self.by_sequence.len() >= REQUESTS_MAX {
            return None;
        }
        // Fewer requests wait than there are numbers, so a free one is near.
        while self.by_sequence.contains_key(&self.next_sequence) {
            self.next_sequence = (self.next_sequence + 1) & SEQUENCE_MAX;
        }
        let sequence = self.next_sequence;
        self.next_sequence = (sequence + 1) & SEQUENCE_MAX;
        Some(sequence)
    }

    /// True if a request with this sequence number awaits its response.
    pub(super) fn awaits(&self, sequence: u32) -> bool {
        self.by_sequence.contains_key(&sequence)
    }

    /// Takes the HEARTBEAT REQUEST that a response ends; returns false if there is none. It must come from
    /// where the request went: whether sessions end depends on the answer.
    pub(super) fn heartbeat_answered(&mut self, peer: SocketAddr, sequence: u32) -> bool {
        let is_answer = self.by_sequence.get(&sequence).is_some_and(|r| r.peer == peer);
        is_answer && self.answered(peer, sequence, message_type::HEARTBEAT_REQUEST).is_some()
    }

    /// Takes the request that an answer from `peer` ends, if there is such; the session that it was about.
    pub(super) fn answered(
        &mut self,
        peer: SocketAddr,
        sequence: u32,
        message_type: u8,
    ) -> Option<Option<SessionId>> {
        let r = self.by_sequence.get(&sequence)?;
        if r.peer.ip() != peer.ip() || r.message_type != message_type {
            return None;
        }
        self.remove(sequence).map(|r| r.session)
    }
}

impl Requests {
    /// What was asked of one is asked of another in its place, and at once.
    pub(super) fn redirect(&mut self, from: IpAddr, to: IpAddr, out: &mut Outbox) {
        for r in self.by_sequence.values_mut().filter(|r| r.peer.ip() == from) {
            r.peer.set_ip(to);
            if r.deadline != Instant::FAR_FUTURE {
                out.datagrams.push((r.peer, r.octets.to_vec()));
            }
        }
    }

    /// Requests of a kind to a peer are not repeated any more.
    pub(super) fn forget(&mut self, peer: IpAddr, message_type: u8) {
        let of_it = |r: &SentRequest| r.peer.ip() == peer && r.message_type == message_type;
        let gone: Vec<u32> = self.by_sequence.iter().filter(|(_, r)| of_it(r)).map(|(s, _)| *s).collect();
        for sequence in gone {
            self.remove(sequence);
        }
    }

    /// Keeps a report that an SMF which is silent has left unanswered, unless as many as are kept at most are there. Returns whether it is kept.
    fn keep_unanswered(&mut self, sequence: u32) -> bool {
        let Some(r) = self.by_sequence.get_mut(&sequence) else { return false };
        let Some(reports) = self.by_association.get_mut(&r.association) else { return false };
        if reports.kept.len() >= REPORTS_KEPT_MAX {
            return false;
        }
        self.by_deadline.remove(&(r.deadline, sequence));
        r.deadline = Instant::FAR_FUTURE;
        reports.kept.insert(sequence)
    }

    /// Sends the reports that are kept for an association. Returns how many there are.
    pub(super) fn repeat_kept(&mut self, now: Instant, association: u32, out: &mut Outbox) -> usize {
        let kept = self.by_association.get_mut(&association).map(|reports| std::mem::take(&mut reports.kept));
        let kept = kept.unwrap_or_default();
        for sequence in &kept {
            let Some(r) = self.by_sequence.get_mut(sequence) else { continue };
            (r.sent, r.first_sent, r.deadline) = (1, now, now + T1);
            self.by_deadline.insert((r.deadline, *sequence));
            out.datagrams.push((r.peer, r.octets.to_vec()));
        }
        kept.len()
    }

    /// Takes the reports of downlink data that await answers about a session.
    pub(super) fn take_downlink_data_of(&mut self, session: SessionId) -> Vec<Message> {
        let of_it = |r: &SentRequest| r.session == Some(session) && r.downlink_data;
        let those: Vec<u32> =
            self.by_sequence.iter().filter(|(_, r)| of_it(r)).map(|(sequence, _)| *sequence).collect();
        let taken = those.into_iter().filter_map(|sequence| self.remove(sequence));
        taken.filter_map(|r| Message::parse(&Frame::parse(&r.octets).ok()?).ok()).collect()
    }

    /// The number of reports that are kept for an association.
    pub(super) fn kept(&self, association: u32) -> usize {
        self.by_association.get(&association).map_or(0, |reports| reports.kept.len())
    }

    /// Reports of an association that has ended are not repeated any more. Returns how many there were.
    pub(super) fn forget_reports(&mut self, association: u32) -> usize {
        if !self.by_association.contains_key(&association) {
            return 0;
        }
        let of_it = |(s, r): (&u32, &SentRequest)| (r.association == association).then_some(*s);
        let gone: Vec<u32> = self.by_sequence.iter().filter_map(of_it).collect();
        for sequence in &gone {
            self.remove(*sequence);
        }
        gone.len()
    }
}

impl UpfC {
    /// Repeats what was not answered; gives up after N1.
    pub(super) fn retransmit(&mut self, now: Instant, out: &mut Outbox) {
        for _ in 0..RETRANSMISSIONS_PER_TICK_MAX {
            let Some(&(at, sequence)) = self.requests.by_deadline.first() else { return };
            if at > now {
                return;
            }
            self.requests.by_deadline.remove(&(at, sequence));
            let Some(r) = self.requests.by_sequence.get_mut(&sequence) else { continue };
            if r.sent < N1 {
                r.sent += 1;
                let repeated = usize::from(r.sent);
                r.deadline = now + T1;
                self.requests.by_deadline.insert((r.deadline, sequence));
                out.datagrams.push((r.peer, r.octets.to_vec()));
                // Another of the SMF's set may have gone on meanwhile, and not have spoken yet.
                for address in self.associations.others(r.peer) {
                    out.datagrams.push((SocketAddr::new(*address, r.peer.port()), r.octets.to_vec()));
                }
                let unnoticed =
                    r.session.filter(|_| r.downlink_data).map(|session| (session, r.octets.clone()));
                if let Some((session, octets)) = unnoticed {
                    self.report_to_set(session, (sequence, repeated), &octets, out);
                }
                continue;
            }
            let silence = self.associations.note_unanswered(now, r.association, r.first_sent, out);
            if silence.is_some() && self.requests.keep_unanswered(sequence) {
                continue;
            }
            let Some(r) = self.requests.remove(sequence) else { continue };
            match r.message_type {
                message_type::HEARTBEAT_REQUEST => {
                    self.silent(now, r.peer, r.first_sent, out);
                    self.holder_is_silent(now, r.peer, out);
                }
                message_type::ASSOCIATION_SETUP_REQUEST | message_type::ASSOCIATION_UPDATE_REQUEST => {}
                _ => {
                    let unnoticed = r.session.filter(|_| r.downlink_data);
                    self.report_lost(r.peer, r.association, unnoticed, out);
                }
            }
        }
    }

    /// Sends a report; while its SMF is silent, it is kept, up to a bound.
    pub(super) fn send_report(&mut self, now: Instant, report: &OutgoingReport, out: &mut Outbox) {
        let is_silent = self.associations.silence_of(report.association).is_some();
        let unnoticed = report.session.filter(|_| report.has_downlink_data());
        match self.requests.send_report(now, report, is_silent, out) {
            None => self.report_lost(report.peer, report.association, unnoticed, out),
            Some(sequence) if is_silent => {
                if let Some(session) = unnoticed {
                    self.report_to_set(
                        session,
                        (sequence, 0),
                        &report.message.to_octets(None, sequence),
                        out,
                    );
                }
            }
            Some(_) => {}
        }
    }

    /// The SMF of a session does not answer: another one of its set gets the report, and goes on with the session if it has a copy of the UE's context
    /// (TS 29.244 §5.22.3). It is one at a time, `repeated` after `repeated`, since two that have a copy would both go on.
    fn report_to_set(
        &mut self,
        session: SessionId,
        (sequence, repeated): (u32, usize),
        octets: &[u8],
        out: &mut Outbox,
    ) {
        let Some(s) = self.sessions.get(session) else { return };
        let others: Vec<SocketAddr> = self.associations.others_of_set(s.association).collect();
        let turn = (sequence as usize).wrapping_add(repeated).checked_rem(others.len());
        let Some(other) = turn.and_then(|turn| others.get(turn)) else { return };
        let parsed = Frame::parse(octets).ok().and_then(|frame| Message::parse(&frame).ok());
        let Some(Message::SessionReportRequest(mut report)) = parsed else { return };
        report.old_cp_f_seid = Some(s.cp_f_seid);
        out.datagrams
            .push((*other, Message::SessionReportRequest(report).to_octets(Some(Seid(0)), sequence)));
    }

    /// An SMF does not get a report. `unnoticed`: a session with packets for an idle UE, of which the SMF does not hear. Unless they are reported again,
    /// the UE would not be paged until its rules change.
    fn report_lost(
        &mut self,
        peer: SocketAddr,
        association: u32,
        unnoticed: Option<SessionId>,
        out: &mut Outbox,
    ) {
        let silence = self.associations.silence_of(association);
        // While the SMF is silent, not with each packet.
        let quiet = silence.as_ref().map(|_| PATIENCE);
        match silence {
            Some(silence) => silence.reports_lost += 1,
            None => out.events.push(Event::ReportUnanswered { peer }),
        }
        if let Some((session, s)) = unnoticed.and_then(|id| self.sessions.get(id).map(|s| (id, s))) {
            let effects = Effects { notify_again: quiet.is_none(), quiet, ..Effects::default() };
            out.changes.push(UserPlaneChange::Put { session, rules: Arc::clone(&s.rules), effects });
        }
    }
}
