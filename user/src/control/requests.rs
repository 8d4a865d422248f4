//! Requests of our own: sequence numbers, retransmission (TS 29.244 §6.4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::{Message, SEQUENCE_MAX, message_type};

use super::{Outbox, UpfC};
use crate::event::Event;
use crate::exchange::{Change, Effects};
use crate::limits::{REQUESTS_MAX, RETRANSMISSIONS_PER_TICK_MAX};
use crate::session_id::{SessionId, mix};
use crate::state::stored;

/// T1: how long to wait for an answer. The clause leaves it open; 3 s is what deployments use.
const T1: Duration = Duration::from_secs(3);
/// N1: how often to send in all.
const N1: u8 = 3;
/// N1 times T1: how long a peer may leave a request unanswered.
pub(super) const PATIENCE: Duration = Duration::from_secs(N1 as u64 * T1.as_secs());

struct Request {
    peer: SocketAddr,
    message_type: u8,
    octets: Box<[u8]>,
    sent: u8,
    deadline: Instant,
    session: Option<SessionId>,
    /// It reports usage that is recorded in no other place: a successor repeats it.
    usage: bool,
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
    by_sequence: BTreeMap<u32, Request>,
    by_deadline: BTreeSet<(Instant, u32)>,
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
        let stored = |r: &Request| StoredRequest {
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
        session: Option<SessionId>,
        out: &mut Outbox,
    ) {
        let deadline = now + T1;
        out.datagrams.push((r.peer, r.octets.clone()));
        self.by_deadline.insert((deadline, sequence));
        let StoredRequest { peer, message_type, octets, .. } = r;
        let octets = octets.into();
        let request = Request { peer, message_type, octets, sent: 1, deadline, session, usage: true };
        self.by_sequence.insert(sequence, request);
    }

    /// A request is done.
    fn remove(&mut self, sequence: u32) -> Option<Request> {
        let r = self.by_sequence.remove(&sequence)?;
        self.by_deadline.remove(&(r.deadline, sequence));
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
        seid: Option<Seid>,
        session: Option<SessionId>,
        message: &Message,
        out: &mut Outbox,
    ) -> Option<u32> {
        if self.by_sequence.len() >= REQUESTS_MAX {
            return None;
        }
        // Fewer requests wait than there are numbers, so a free one is near.
        while self.by_sequence.contains_key(&self.next_sequence) {
            self.next_sequence = (self.next_sequence + 1) & SEQUENCE_MAX;
        }
        let sequence = self.next_sequence;
        self.next_sequence = (sequence + 1) & SEQUENCE_MAX;
        let octets = message.to_octets(seid, sequence);
        out.datagrams.push((peer, octets.clone()));
        let deadline = now + T1;
        self.by_deadline.insert((deadline, sequence));
        let request = Request {
            peer,
            message_type: message.message_type(),
            octets: octets.into(),
            sent: 1,
            deadline,
            session,
            usage: matches!(message, Message::SessionReportRequest(m) if !m.usage_reports.is_empty()),
        };
        if request.usage {
            self.touched.push(sequence);
        }
        self.by_sequence.insert(sequence, request);
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
            out.datagrams.push((r.peer, r.octets.to_vec()));
        }
    }

    /// Requests of a kind to a peer are not repeated any more.
    pub(super) fn forget(&mut self, peer: IpAddr, message_type: u8) {
        let of_it = |r: &Request| r.peer.ip() == peer && r.message_type == message_type;
        let gone: Vec<u32> = self.by_sequence.iter().filter(|(_, r)| of_it(r)).map(|(s, _)| *s).collect();
        for sequence in gone {
            self.remove(sequence);
        }
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
                r.deadline = now + T1;
                self.requests.by_deadline.insert((r.deadline, sequence));
                out.datagrams.push((r.peer, r.octets.to_vec()));
                // Another of the SMF's set may have gone on meanwhile, and not have spoken yet.
                for address in self.associations.others(r.peer) {
                    out.datagrams.push((SocketAddr::new(*address, r.peer.port()), r.octets.to_vec()));
                }
                continue;
            }
            let Some(r) = self.requests.remove(sequence) else { continue };
            match r.message_type {
                message_type::HEARTBEAT_REQUEST => {
                    self.silent(now, r.peer, out);
                    self.holder_is_silent(now, r.peer, out);
                }
                message_type::ASSOCIATION_SETUP_REQUEST => {}
                _ => {
                    out.events.push(Event::ReportUnanswered { peer: r.peer });
                    // Else the UE would not be paged until its rules change.
                    if let Some((session, s)) =
                        r.session.and_then(|id| self.sessions.get(id).map(|s| (id, s)))
                    {
                        let effects = Effects { notify_again: true, ..Effects::default() };
                        out.changes.push(Change::Put { session, rules: Arc::clone(&s.rules), effects });
                    }
                }
            }
        }
    }
}
