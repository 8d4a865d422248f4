//! The CTA that serves, as one of a pair: how another one becomes its CTA replica, and what becomes of it without.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::udm::Subscribers;
use whimbrel_ids::Instant;
use whimbrel_resilience::cta_replica::{PrimaryCta, Record, Snapshot};
use whimbrel_resilience::link::{ToCtaReplica, ToPrimaryCta};
use whimbrel_resilience::membership::{CtaInstance, Home, MemberId};
use whimbrel_resilience::pair::{PrimaryAction, PrimaryRole};
use whimbrel_resilience::{Entropy, Inspect, Order, Outbox};

use super::Pool;
use super::heartbeat::{HeartbeatResponder, Ignored};
use super::witness::{Witness, WitnessEvent};
use crate::clock;

/// Octets of a piece of a snapshot, and how many pieces may be under way.
const PIECE_OCTETS: usize = 256 * 1024;
const PIECES_AHEAD: u64 = 16;
/// A CTA replica that has not confirmed an input for so long, while it confirms no other, works no more.
const CTA_REPLICA_WITHIN: Duration = Duration::from_millis(500);

/// A copy holds UEs up while it is made. So much of the time may go there: a CTA replica that cannot follow calls again and again.
const COPYING_SHARE: u32 = 20;
/// A CTA replica takes the place of one that is silent for so long at least: two heartbeats of 20 ms.
const REPLACED_AFTER: Duration = Duration::from_millis(40);

/// The other CTA: how it is reached, and by gNBs and UPFs.
struct Other {
    address: SocketAddr,
    endpoints: Vec<IpAddr>,
    smf: IpAddr,
    /// What it is to follow from, while that is on its way, and how many pieces were sent.
    snapshot: Option<(Snapshot, u64)>,
}

/// What comes of a turn.
#[derive(Debug)]
pub(crate) enum PairEvent {
    /// The CTA is to carry this out.
    Order(Order),
    /// The other one serves: this one stops at once.
    Replaced,
}

/// One side of a pair: the one that serves. What it decides is [`PrimaryRole`]'s.
pub(crate) struct PairPrimary {
    witness: Witness,
    answering: HeartbeatResponder,
    serving: PrimaryRole,
    other: Option<Other>,
    /// Where gNBs reach it, and where they reached the one whose place it took.
    endpoints: Vec<IpAddr>,
    former: Vec<IpAddr>,
    /// Where its SMF speaks from.
    smf: IpAddr,
    /// Since when something waits for the CTA replica.
    waits: Option<Instant>,
    /// When the next copy may be made.
    copy_at: Instant,
    /// This one was held up after this input, and the CTA replica may have taken its place since.
    doubted: Option<u64>,
    turned: Vec<PairEvent>,
    records: u64,
    octets: u64,
}

impl PairPrimary {
    /// While something waits for the CTA replica, the thread works so often: when it does not, it was held up.
    pub(crate) const LOOKS_WITHIN: Duration = Duration::from_millis(20);

    /// The one that etcd has named in this record.
    pub(super) fn new(
        witness: Witness,
        answering: HeartbeatResponder,
        home: Home,
        (endpoints, smf): (Vec<IpAddr>, IpAddr),
        former: Vec<IpAddr>,
    ) -> Self {
        Self {
            witness,
            answering,
            serving: PrimaryRole::new(&home),
            other: None,
            endpoints,
            former,
            smf,
            waits: None,
            copy_at: Instant::ZERO,
            doubted: None,
            turned: Vec::new(),
            records: 0,
            octets: 0,
        }
    }

    /// The home's term.
    pub(crate) fn term(&self) -> u32 {
        self.serving.term()
    }

    /// Where gNBs reached the one whose place it took.
    pub(crate) fn former(&self) -> &[IpAddr] {
        &self.former
    }

    /// What it stands on, when it serves no more.
    pub(super) fn into_parts(self) -> (Witness, HeartbeatResponder) {
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
    pub(crate) fn condition(&self, awaited: Option<CtaInstance>) -> (bool, String) {
        match (self.serving.other(), &self.other) {
            (Some(place), Some(other)) if self.serving.has_cta_replica() => {
                (true, format!("CTA {} at {}", place.cta, other.address))
            }
            (Some(place), _) => (false, format!("CTA {} receives the snapshot", place.cta)),
            (None, _) if self.serving.is_replica_lost() => {
                (false, "lost; this CTA waits until etcd has decided whether it continues alone".into())
            }
            (None, _) if let Some(CtaInstance { cta, .. }) = awaited => (
                false,
                format!("none; CTA {cta}, which runs other code, takes over when this CTA is stopped"),
            ),
            (None, _) => (false, "none: all UEs have to register again if this CTA is lost".into()),
        }
    }

    /// Records sent, and their octets.
    pub(crate) fn sent(&self) -> (u64, u64) {
        (self.records, self.octets)
    }

    /// Records at etcd that say what cannot be.
    pub(crate) fn ignored(&self) -> u64 {
        self.witness.ignored()
    }

    /// Heartbeats of its CTA replica's that did not count.
    pub(crate) fn heartbeats_ignored(&self) -> Ignored {
        self.answering.ignored()
    }

    /// The CTA that follows, from where on it may be told of subscribers.
    pub(crate) fn follower(&self) -> Option<CtaInstance> {
        self.serving.other()
    }

    /// The CTA replica is to hold this.
    pub(crate) fn record(&mut self, now: Instant, pool: &mut Pool, record: &Record) {
        if self.serving.other().is_some() && !self.serving.copies() {
            self.waits.get_or_insert(now);
        }
        self.records += 1;
        self.octets += record.octets().len() as u64;
        pool.tell_cta_replica(&ToCtaReplica::Record(record.octets()));
    }

    /// The other CTA says this.
    pub(crate) fn said<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        message: ToPrimaryCta,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut Pool,
        out: &mut Outbox,
    ) {
        match message {
            ToPrimaryCta::Follow { place, address, endpoints, smf } => {
                let other = Other { address, endpoints, smf, snapshot: None };
                self.follows(now, place, other, active, pool, out);
            }
            ToPrimaryCta::Pieces(pieces) => self.pieces(pieces, pool),
            // It may have said so before it took this one's place.
            ToPrimaryCta::Held(number) if self.doubted.is_some_and(|before| number <= before) => {}
            ToPrimaryCta::Held(number) => {
                self.doubted = None;
                active.acknowledged(number, out);
                self.waits = (active.waiting() > 0).then_some(now);
                let duties = self.serving.held(number, active.last());
                self.do_all(duties, active, pool, out);
                if let Some(record) = active.left() {
                    let waits = self.waits;
                    self.record(now, pool, &record);
                    self.waits = waits; // nothing waits for this one
                }
            }
        }
    }

    fn follows<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        place: CtaInstance,
        other: Other,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut Pool,
        out: &mut Outbox,
    ) {
        // It calls again when etcd has told us of it, or when we are ready.
        let begins = now >= self.copy_at && self.serving.follows(place, self.witness.lists(place));
        let begun = clock::now();
        let Some(snapshot) = begins.then(|| active.snapshot()).flatten() else {
            pool.part();
            return self.cta_replica_lost(active, pool, out);
        };
        let made = clock::now();
        self.copy_at = made + made.since(begun) * COPYING_SHARE;
        info!(cta = place.cta, address = %other.address, "another CTA begins to replicate this one");
        self.answering.be(Some((MemberId::Cta(self.serving.me().cta), pool.heartbeats())));
        pool.begin_cta_replica(snapshot.octets().len() as u64, self.endpoints.clone());
        self.other = Some(Other { snapshot: Some((snapshot, 0)), ..other });
        self.pieces(0, pool);
    }

    fn pieces(&mut self, has: u64, pool: &mut Pool) {
        let Some((snapshot, sent)) = self.other.as_mut().and_then(|other| other.snapshot.as_mut()) else {
            return;
        };
        let pieces = snapshot.octets().chunks(PIECE_OCTETS);
        let until = has.saturating_add(PIECES_AHEAD).min(pieces.len() as u64);
        let due = until.saturating_sub(*sent) as usize;
        pieces
            .skip(*sent as usize)
            .take(due)
            .for_each(|piece| pool.tell_cta_replica(&ToCtaReplica::Piece(piece)));
        *sent = until.max(*sent);
    }

    /// A copy may be made at once: it is the last.
    pub(crate) fn hastens(&mut self) {
        self.copy_at = Instant::ZERO;
    }

    /// This one begins to work after so long. If something waited for the CTA replica, what that one said meanwhile may be from before it took this
    /// one's place: nothing leaves until it has answered to what it is told from now on, for which it has its time. Whether it is to be told
    /// something.
    pub(crate) fn was_away(&mut self, away: Duration, last: u64, waiting: usize) -> bool {
        let doubts = away >= REPLACED_AFTER && waiting > 0;
        if doubts {
            self.doubted = Some(last);
            self.waits = self.waits.map(|since| since + away);
        }
        doubts
    }

    /// The CTA replica is lost.
    pub(crate) fn cta_replica_lost<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut Pool,
        out: &mut Outbox,
    ) {
        (self.waits, self.doubted) = (None, None);
        let duties = self.serving.lost();
        if self.serving.is_replica_lost() && !duties.is_empty() {
            warn!("the CTA replica is lost: outputs wait until etcd has decided which CTA continues");
        }
        self.do_all(duties, active, pool, out);
    }

    fn do_all<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        duties: Vec<PrimaryAction>,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut Pool,
        out: &mut Outbox,
    ) {
        for duty in duties {
            match duty {
                PrimaryAction::HoldOutputs => {
                    active.wait();
                    if let Some(other) = &mut self.other {
                        other.snapshot = None;
                    }
                }
                PrimaryAction::ReleaseOutputs => {
                    self.answering.be(None);
                    self.other = None;
                    active.alone(out);
                }
                PrimaryAction::CloseLink => pool.part(),
                PrimaryAction::Claim(claim) => self.witness.claim(claim),
                PrimaryAction::ReplicaReady(place) => {
                    let Some(other) = &self.other else { continue };
                    info!(cta = place.cta, address = %other.address, term = self.term(), "this CTA has a CTA replica");
                    pool.replicated_at(Some(other.address));
                    let (endpoints, smf) = (other.endpoints.clone(), vec![other.smf, self.smf]);
                    self.turned.push(PairEvent::Order(Order::Endpoints(endpoints)));
                    self.turned.push(PairEvent::Order(Order::SmfAddresses(smf)));
                }
                PrimaryAction::NoReplica => {
                    warn!(term = self.term(), "this CTA continues without a CTA replica");
                    self.turned.push(PairEvent::Order(Order::Endpoints(Vec::new())));
                }
                PrimaryAction::Stop => self.turned.push(PairEvent::Replaced),
            }
        }
    }

    /// Takes what etcd said, and looks whether the CTA replica still works: its heartbeats are answered beside what it does.
    pub(crate) fn turn<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut Pool,
        out: &mut Outbox,
    ) -> Vec<PairEvent> {
        if self.waits.take_if(|since| now >= *since + CTA_REPLICA_WITHIN).is_some() {
            warn!("the CTA replica answers heartbeats but confirms no inputs: it is treated as lost");
            pool.part();
            self.cta_replica_lost(active, pool, out);
        }
        for news in self.witness.turn() {
            match news {
                WitnessEvent::Claimed(claim, outcome) => {
                    let duties = self.serving.claimed(claim, outcome);
                    self.do_all(duties, active, pool, out);
                }
                WitnessEvent::Changed => pool.enrol(self.witness.roll()),
            }
        }
        let duties = self.serving.home(self.witness.home().as_ref());
        self.do_all(duties, active, pool, out);
        std::mem::take(&mut self.turned)
    }

    /// Whether somebody can go on at once, if this one stops.
    pub(crate) fn has_cta_replica(&self) -> bool {
        self.serving.has_cta_replica()
    }

    /// Whether the other one serves now.
    pub(crate) fn has_handed_over(&mut self) -> bool {
        let _ = self.witness.turn();
        self.serving.home(self.witness.home().as_ref()).contains(&PrimaryAction::Stop)
    }
}
