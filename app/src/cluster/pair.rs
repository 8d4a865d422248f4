//! The aggregator that serves, as one of a pair: how another one becomes its mirror, and what becomes of it without.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::udm::Subscribers;
use whimbrel_ids::Instant;
use whimbrel_resilience::link::{ToActive, ToMirror};
use whimbrel_resilience::membership::{Claim, ClaimError, Home, MemberId, Place};
use whimbrel_resilience::mirror::{Active, Record, Snapshot};
use whimbrel_resilience::{Entropy, Inspect, Order, Outbox};

use super::Pool;
use super::heartbeat::Answering;
use super::witness::{News, Witness};

/// Octets of a piece of a snapshot, and how many pieces may be under way.
const PIECE_OCTETS: usize = 256 * 1024;
const PIECES_AHEAD: u64 = 16;
/// A mirror that has not confirmed an input for so long, while it confirms no other, works no more.
const MIRROR_WITHIN: Duration = Duration::from_millis(500);

/// The other aggregator.
#[derive(Clone, Debug)]
struct Other {
    place: Place,
    address: SocketAddr,
    endpoints: Vec<IpAddr>,
    smf: IpAddr,
}

enum State {
    /// Nobody follows.
    Alone,
    /// A snapshot is on its way. Nothing waits for whom it goes to.
    Copied { other: Other, snapshot: Snapshot, sent: u64 },
    /// It has the snapshot; when it holds this input, it can take over at any moment.
    CatchingUp { other: Other, until: u64 },
    /// It can, and etcd is to say that it may.
    Named { other: Other },
    /// It may.
    Paired { other: Other },
    /// It is lost. Nothing leaves until etcd has said that this one goes on alone.
    Widowed,
}

/// What comes of a turn.
#[derive(Debug)]
pub(crate) enum Turned {
    /// The aggregator is to carry this out.
    Order(Order),
    /// The other one serves: this one stops at once.
    Replaced,
}

/// One side of a pair: the one that serves.
pub(crate) struct Pair {
    witness: Witness,
    answering: Answering,
    me: Place,
    /// Where gNBs reach it, and where they reached the one whose place it took.
    endpoints: Vec<IpAddr>,
    former: Vec<IpAddr>,
    term: u32,
    state: State,
    /// Since when something waits for the mirror.
    waits: Option<Instant>,
    records: u64,
    octets: u64,
}

impl Pair {
    /// The one that etcd has named in this record.
    pub(super) fn new(
        witness: Witness,
        answering: Answering,
        home: Home,
        endpoints: Vec<IpAddr>,
        former: Vec<IpAddr>,
    ) -> Self {
        let (me, term) = (home.active, home.term);
        Self {
            witness,
            answering,
            me,
            endpoints,
            former,
            term,
            state: State::Alone,
            waits: None,
            records: 0,
            octets: 0,
        }
    }

    /// The home's term.
    pub(crate) fn term(&self) -> u32 {
        self.term
    }

    /// Where gNBs reached the one whose place it took.
    pub(crate) fn former(&self) -> &[IpAddr] {
        &self.former
    }

    /// What it stands on, when it serves no more.
    pub(super) fn into_parts(self) -> (Witness, Answering) {
        self.answering.be(None);
        (self.witness, self.answering)
    }

    /// The process ends in order.
    pub(crate) fn leave(self) {
        self.witness.leave();
    }

    pub(crate) fn witness(&self) -> &Witness {
        &self.witness
    }

    /// A sentence for who asks how it stands.
    pub(crate) fn condition(&self) -> (bool, String) {
        match &self.state {
            State::Paired { other } => (true, format!("aggregator {} at {}", other.place.cta, other.address)),
            State::Alone => (false, "none: phones register anew if this aggregator is lost".into()),
            State::Copied { other, .. } | State::CatchingUp { other, .. } | State::Named { other } => {
                (false, format!("aggregator {} gets ready", other.place.cta))
            }
            State::Widowed => (false, "lost; etcd is asked whether this aggregator goes on alone".into()),
        }
    }

    /// Records sent, and their octets.
    pub(crate) fn sent(&self) -> (u64, u64) {
        (self.records, self.octets)
    }

    /// The mirror is to hold this.
    pub(crate) fn record(&mut self, now: Instant, pool: &mut Pool, record: &Record) {
        if matches!(self.state, State::CatchingUp { .. } | State::Named { .. } | State::Paired { .. }) {
            self.waits.get_or_insert(now);
        }
        self.records += 1;
        self.octets += record.octets().len() as u64;
        pool.tell_mirror(&ToMirror::Record(record.octets()));
    }

    /// The other aggregator says this.
    pub(crate) fn said<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        message: ToActive,
        active: &mut Active<S, E, I>,
        pool: &mut Pool,
        out: &mut Outbox,
    ) {
        match message {
            ToActive::Follow { place, address, endpoints, smf } => {
                let other = Other { place, address, endpoints, smf };
                self.follows(other, active, pool);
            }
            ToActive::Pieces(pieces) => self.pieces(pieces, pool),
            ToActive::Held(number) => self.held(now, number, active, pool, out),
        }
    }

    fn follows<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        other: Other,
        active: &mut Active<S, E, I>,
        pool: &mut Pool,
    ) {
        // It calls again when etcd has told us of it, or when we are ready.
        let free = matches!(self.state, State::Alone) && self.witness.lists(other.place);
        let Some(snapshot) = free.then(|| active.snapshot()).flatten() else { return pool.part() };
        self.answering.be(Some((MemberId::Cta(self.me.cta), pool.heartbeats())));
        pool.begin_mirror(snapshot.octets().len() as u64, self.endpoints.clone());
        self.state = State::Copied { other, snapshot, sent: 0 };
        self.pieces(0, pool);
    }

    fn pieces(&mut self, has: u64, pool: &mut Pool) {
        let State::Copied { snapshot, sent, .. } = &mut self.state else { return };
        let pieces = snapshot.octets().chunks(PIECE_OCTETS);
        let until = has.saturating_add(PIECES_AHEAD).min(pieces.len() as u64);
        let due = until.saturating_sub(*sent) as usize;
        pieces.skip(*sent as usize).take(due).for_each(|piece| pool.tell_mirror(&ToMirror::Piece(piece)));
        *sent = until.max(*sent);
    }

    fn held<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        number: u64,
        active: &mut Active<S, E, I>,
        pool: &mut Pool,
        out: &mut Outbox,
    ) {
        active.acknowledged(number, out);
        self.waits = (active.waiting() > 0).then_some(now);
        if let State::Copied { other, .. } = &self.state
            && let Some(until) = active.wait()
        {
            self.state = State::CatchingUp { other: other.clone(), until };
        }
        if let State::CatchingUp { other, until } = &self.state
            && number >= *until
        {
            let other = other.clone();
            self.witness.claim(Claim::Pair(other.place));
            self.state = State::Named { other };
        }
        if let Some(record) = active.left() {
            let waits = self.waits;
            self.record(now, pool, &record);
            self.waits = waits; // nothing waits for this one
        }
    }

    /// The mirror is lost.
    pub(crate) fn mirror_lost<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        active: &mut Active<S, E, I>,
        out: &mut Outbox,
    ) {
        self.waits = None;
        match &self.state {
            State::Alone | State::Widowed => {}
            // Nobody was told that it may take over.
            State::Copied { .. } | State::CatchingUp { .. } => self.alone(active, out),
            State::Named { .. } | State::Paired { .. } => {
                warn!("the mirror is lost: until etcd has said who goes on, nothing leaves");
                self.witness.claim(Claim::Alone);
                self.state = State::Widowed;
            }
        }
    }

    fn alone<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        active: &mut Active<S, E, I>,
        out: &mut Outbox,
    ) {
        self.answering.be(None);
        active.alone(out);
        self.state = State::Alone;
    }

    /// Takes what etcd said, and looks whether the mirror still works: its heartbeats are answered beside what it does.
    pub(crate) fn turn<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        active: &mut Active<S, E, I>,
        pool: &mut Pool,
        out: &mut Outbox,
    ) -> Vec<Turned> {
        let mut turned = Vec::new();
        if self.waits.take_if(|since| now >= *since + MIRROR_WITHIN).is_some() {
            warn!("the mirror answers heartbeats and takes nothing");
            pool.part();
            self.mirror_lost(active, out);
        }
        for news in self.witness.turn() {
            match (news, &self.state) {
                (News::Claimed(Claim::Pair(_), Ok(home)), State::Named { other }) => {
                    let other = other.clone();
                    info!(aggregator = other.place.cta, address = %other.address, term = home.term, "this aggregator has a mirror");
                    self.term = home.term;
                    pool.mirrored_at(Some(other.address));
                    turned.push(Turned::Order(Order::Endpoints(other.endpoints.clone())));
                    turned.push(Turned::Order(Order::SmfAddresses(vec![other.smf])));
                    self.state = State::Paired { other };
                }
                (News::Claimed(claim @ Claim::Pair(_), Err(ClaimError::NoAnswer)), State::Named { .. }) => {
                    self.witness.claim(claim);
                }
                (News::Claimed(Claim::Alone, Ok(home)), State::Widowed) => {
                    warn!(term = home.term, "this aggregator goes on without a mirror");
                    self.term = home.term;
                    self.alone(active, out);
                    turned.push(Turned::Order(Order::Endpoints(Vec::new())));
                }
                // The record says that this one is alone already: the mirror never came into it. A claim without an answer does not
                // say so: it may have been heard, and the mirror may be promoted by it.
                (
                    News::Claimed(_, Err(ClaimError::NotYours | ClaimError::Outrun)),
                    State::Named { .. } | State::Widowed,
                ) if self.is_alone() => {
                    pool.part();
                    self.alone(active, out);
                }
                (News::Claimed(Claim::Alone, Err(_)), State::Widowed) if !self.is_replaced() => {
                    self.witness.claim(Claim::Alone);
                }
                _ => {}
            }
        }
        if self.is_replaced() {
            turned.push(Turned::Replaced);
        }
        turned
    }

    fn is_alone(&self) -> bool {
        self.witness.home().is_some_and(|home| home.active == self.me && home.mirror.is_none())
    }

    fn is_replaced(&self) -> bool {
        self.witness.home().is_some_and(|home| home.active != self.me && home.term > self.term)
    }

    /// Whether somebody can go on at once, if this one stops.
    pub(crate) fn has_mirror(&self) -> bool {
        matches!(self.state, State::Paired { .. })
    }

    /// Whether the other one serves now.
    pub(crate) fn has_handed_over(&mut self) -> bool {
        let _ = self.witness.turn();
        self.is_replaced()
    }
}
