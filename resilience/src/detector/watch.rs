//! The detector: sends probes and decides which processes have failed.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_security::Hmac;

use super::datagram::{Datagram, LENGTH, ProbeKind, Unread};
use super::{Discriminator, Incarnation, Timing};

/// What a detector takes.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Octets that came on its socket.
    Datagram(&'a [u8]),
    /// The connection to a peer was closed or reset.
    Closed(Discriminator),
    /// Its deadline has come. What has arrived by then is to be given before.
    Tick,
}

/// Why a peer is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerDownCause {
    /// It did not answer.
    Silent,
    /// Its connection was closed.
    Closed,
    /// It answers as a later incarnation.
    Restarted,
}

/// What changed with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerChange {
    /// The process answers probes.
    Up(Incarnation),
    /// It misses probes: avoid new work for it where another can take it. Nothing else follows yet.
    Suspect,
    /// It answers again.
    Trusted,
    /// Failed; final for this incarnation: others take over its work.
    Down(Incarnation, PeerDownCause),
    /// The verdict was wrong: it answers. Its probes carry that it was replaced; nothing else follows.
    FalseAlarm(Incarnation),
}

/// What a detector gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbox {
    /// To be sent.
    pub probes: Vec<(Discriminator, [u8; LENGTH])>,
    /// What changed, in order.
    pub changes: Vec<(Discriminator, PeerChange)>,
}

/// What a detector did and ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Probes that were sent.
    pub probes: u64,
    /// Answers that counted.
    pub answers: u64,
    /// Octets that are no heartbeat.
    pub malformed: u64,
    /// Heartbeats that are not of the cluster.
    pub forged: u64,
    /// Heartbeats that are no answers to this process, or of a process that is not watched.
    pub foreign: u64,
    /// Answers that came too late, again, to a former incarnation of this process, or from one of the peer.
    pub stale: u64,
    /// Suspicions that were raised.
    pub suspected: u64,
    /// Processes that were declared lost.
    pub downs: u64,
    /// Verdicts that were wrong.
    pub false_alarms: u64,
    /// Times that this process itself came an interval or more too late to ask.
    pub late: u64,
    /// Verdicts that were deferred by an interval, because no other process answers either.
    pub put_off: u64,
}

/// How a peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// It has not answered yet, which has no consequence.
    New,
    /// The peer answers probes.
    Up,
    /// It misses probes.
    Suspect,
    /// It was declared failed; its answers are ignored (false alarm).
    Down,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// How it does.
    pub state: PeerState,
    /// The last incarnation that was up.
    pub incarnation: Incarnation,
    /// How long the last answer took that came before the next probe left.
    pub round_trip: Option<Duration>,
}

#[derive(Debug)]
struct WatchedPeer {
    view: PeerView,
    /// Incarnations up to this one have been judged.
    replaced: Incarnation,
    /// Whether it is judged by comparison with others of which this is so.
    among: bool,
    /// The false alarm was reported.
    alarmed: bool,
    /// The last probe's number, and when it left.
    sent: u64,
    sent_at: Instant,
    /// The last probe that was answered.
    answered: u64,
    /// Probes since an answer came.
    unanswered: u8,
    next: Instant,
}

/// Watches processes by their heartbeats.
#[derive(Debug)]
pub struct Detector {
    me: Discriminator,
    incarnation: Incarnation,
    key: Hmac,
    timing: Timing,
    peers: BTreeMap<Discriminator, WatchedPeer>,
    /// All peers run on this host.
    one_host: bool,
    counters: Counters,
}

impl Detector {
    /// Of a process, under the cluster's key. A process that restarts must come with a later incarnation.
    pub fn new(me: Discriminator, incarnation: Incarnation, key: &[u8; 32], timing: Timing) -> Self {
        let (key, counters) = (Hmac::new(key), Counters::default());
        Self { me, incarnation, key, timing, peers: BTreeMap::new(), one_host: false, counters }
    }

    /// All peers run on this host, where another process sees their ends. Several of them that are silent at the same time are not declared failed: the
    /// host is held up, and would lose two processes that replace each other.
    pub fn set_one_host(&mut self, one_host: bool) {
        self.one_host = one_host;
    }

    /// Asks and judges by this from the next probe of each peer on.
    pub fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Watches a peer from now on; one that is watched already stays as it is.
    pub fn watch(&mut self, now: Instant, peer: Discriminator) {
        self.watch_as(now, peer, false);
    }

    /// The same for one of several processes that can replace one another. It is not declared failed for its silence while none of the
    /// others answers: none could take over, and this process or its host is more likely held up than all of them failed at once.
    pub fn watch_among(&mut self, now: Instant, peer: Discriminator) {
        self.watch_as(now, peer, true);
    }

    fn watch_as(&mut self, now: Instant, peer: Discriminator, among: bool) {
        self.peers.entry(peer).or_insert(WatchedPeer {
            among,
            view: PeerView { state: PeerState::New, incarnation: Incarnation(0), round_trip: None },
            replaced: Incarnation(0),
            alarmed: false,
            sent: 0,
            sent_at: now,
            answered: 0,
            unanswered: 0,
            next: now,
        });
    }

    /// Watches a peer no longer: it has left in order.
    pub fn forget(&mut self, peer: Discriminator) {
        self.peers.remove(&peer);
    }

    /// Takes an input.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::Datagram(octets) => match Datagram::read(octets, &self.key) {
                Ok(answer) => self.answer(now, answer, out),
                Err(Unread::Malformed) => self.counters.malformed += 1,
                Err(Unread::Forged) => self.counters.forged += 1,
            },
            Input::Closed(of) => {
                if let Some(peer) = self.peers.get_mut(&of) {
                    peer.down(of, PeerDownCause::Closed, &mut self.counters, out);
                }
            }
            Input::Tick => {
                let others_answer =
                    self.peers.values().any(|peer| peer.among && peer.answers(now, self.timing));
                let silent = self.peers.values().filter(|peer| peer.is_silent(now, self.timing)).count();
                let held_up = self.one_host && silent > 1;
                for (of, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.next <= now) {
                    if now.since(peer.next) >= self.timing.interval {
                        self.counters.late += 1;
                    }
                    let put_off = held_up || peer.among && !others_answer;
                    peer.judge(*of, self.timing, put_off, &mut self.counters, out);
                    peer.ask(now, self.timing);
                    self.counters.probes += 1;
                    let probe = Datagram {
                        kind: ProbeKind::Probe,
                        from: self.me,
                        to: *of,
                        incarnation: self.incarnation,
                        number: peer.sent,
                        other: peer.replaced,
                    };
                    out.probes.push((*of, probe.write(&self.key)));
                }
            }
        }
    }

    /// When [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.peers.values().map(|peer| peer.next).min()
    }

    /// What is known of a peer.
    pub fn peer(&self, peer: Discriminator) -> Option<PeerView> {
        self.peers.get(&peer).map(|peer| peer.view)
    }

    /// What was done and ignored.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn answer(&mut self, now: Instant, answer: Datagram, out: &mut Outbox) {
        let Some(peer) = self
            .peers
            .get_mut(&answer.from)
            .filter(|_| answer.kind == ProbeKind::Answer && answer.to == self.me)
        else {
            self.counters.foreign += 1;
            return;
        };
        // One that comes later than a verdict would have taken shows nothing of today.
        let window = peer.sent.saturating_sub(u64::from(self.timing.multiplier))..=peer.sent;
        let fresh = answer.number > peer.answered && window.contains(&answer.number);
        if !fresh || answer.other != self.incarnation || answer.incarnation < peer.view.incarnation {
            self.counters.stale += 1;
            return;
        }
        self.counters.answers += 1;
        peer.answered = answer.number;
        peer.unanswered = 0;
        if answer.number == peer.sent {
            peer.view.round_trip = Some(now.since(peer.sent_at));
        }
        peer.alive(answer.from, answer.incarnation, &mut self.counters, out);
    }
}

impl WatchedPeer {
    /// Whether it has answered the last probe, or the one before and was asked again only just now.
    fn answers(&self, now: Instant, timing: Timing) -> bool {
        let just_asked = now.since(self.sent_at) < timing.interval / 4;
        let up = matches!(self.view.state, PeerState::Up | PeerState::Suspect);
        up && self.unanswered <= u8::from(just_asked)
    }

    /// Whether it has answered before, and not lately.
    fn is_silent(&self, now: Instant, timing: Timing) -> bool {
        matches!(self.view.state, PeerState::Up | PeerState::Suspect) && !self.answers(now, timing)
    }

    /// An interval has passed since the last probe.
    fn judge(
        &mut self,
        me: Discriminator,
        timing: Timing,
        put_off: bool,
        counters: &mut Counters,
        out: &mut Outbox,
    ) {
        let silent = self.unanswered >= timing.multiplier;
        if silent && !put_off {
            self.down(me, PeerDownCause::Silent, counters, out);
            return;
        }
        let judged = matches!(self.view.state, PeerState::New | PeerState::Down);
        counters.put_off += u64::from(silent && !judged);
        if self.unanswered >= timing.suspected_at() && self.view.state == PeerState::Up {
            self.view.state = PeerState::Suspect;
            counters.suspected += 1;
            out.changes.push((me, PeerChange::Suspect));
        }
    }

    /// The next probe leaves. A detector that is late does not catch up: each probe has its whole interval.
    fn ask(&mut self, now: Instant, timing: Timing) {
        self.sent += 1;
        self.sent_at = now;
        self.unanswered = self.unanswered.saturating_add(1);
        self.next = now + timing.interval;
    }

    /// A fresh answer of an incarnation came.
    fn alive(
        &mut self,
        me: Discriminator,
        incarnation: Incarnation,
        counters: &mut Counters,
        out: &mut Outbox,
    ) {
        if incarnation <= self.replaced {
            if !self.alarmed {
                self.alarmed = true;
                counters.false_alarms += 1;
                out.changes.push((me, PeerChange::FalseAlarm(incarnation)));
            }
            return;
        }
        if incarnation > self.view.incarnation {
            self.down(me, PeerDownCause::Restarted, counters, out);
            self.view.incarnation = incarnation;
            self.view.state = PeerState::Up;
            out.changes.push((me, PeerChange::Up(incarnation)));
        } else if self.view.state == PeerState::Suspect {
            self.view.state = PeerState::Up;
            out.changes.push((me, PeerChange::Trusted));
        }
    }

    fn down(&mut self, me: Discriminator, cause: PeerDownCause, counters: &mut Counters, out: &mut Outbox) {
        if matches!(self.view.state, PeerState::New | PeerState::Down) {
            return;
        }
        self.view.state = PeerState::Down;
        self.replaced = self.view.incarnation;
        // A restarted process cannot answer as its former self: what does is late, and older than what is up.
        self.alarmed = cause == PeerDownCause::Restarted;
        counters.downs += 1;
        out.changes.push((me, PeerChange::Down(self.replaced, cause)));
    }
}
