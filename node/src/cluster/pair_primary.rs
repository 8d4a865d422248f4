//! The primary CTA of a pair: how the other CTA becomes its replica, and how the primary continues without one.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::udm::Subscribers;
use whimbrel_ids::Instant;
use whimbrel_resilience::cta_replica::{PrimaryCta, ReplicaRecord, Snapshot};
use whimbrel_resilience::link::{ToCtaReplica, ToPrimaryCta};
use whimbrel_resilience::membership::{CtaHome, CtaInstance, MemberId};
use whimbrel_resilience::pair::{PrimaryAction, PrimaryRole};
use whimbrel_resilience::{CtaOrder, Entropy, Inspect, Outbox};

use super::CpfPool;
use super::heartbeat::{HeartbeatResponder, IgnoredHeartbeats};
use super::witness::{Witness, WitnessEvent};
use crate::clock;
use crate::observation::CtaView;
use crate::sbfd::SbfdFigures;

/// Octets of a piece of a snapshot, and how many unconfirmed pieces may be sent.
const PIECE_OCTETS: usize = 256 * 1024;
const MAX_UNCONFIRMED_PIECES: u64 = 16;
/// A CTA replica that confirms no input for so long has stopped working.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_millis(500);

/// UEs wait while a snapshot is made. The pause before the next one is this many times the time it took,
/// because a CTA that cannot replicate reconnects in a loop.
const PAUSE_PER_SNAPSHOT: u32 = 20;
/// A CTA replica takes over from a primary that is silent for so long at least: two heartbeats of 20 ms.
const MIN_TAKEOVER_TIMEOUT: Duration = Duration::from_millis(40);

/// The other CTA, and where CPFs, gNBs and UPFs reach it.
struct PeerCta {
    address: SocketAddr,
    endpoints: Vec<IpAddr>,
    smf: IpAddr,
    /// The snapshot while it is transferred, and how many pieces were sent.
    snapshot: Option<(Snapshot, u64)>,
}

/// Result of one iteration of [`PairPrimary::turn`].
#[derive(Debug)]
pub enum PairEvent {
    /// An order for the CTA to execute.
    Order(CtaOrder),
    /// The other CTA has taken over: this one stops at once.
    Replaced,
}

/// The primary of a pair. [`PrimaryRole`] makes its decisions.
pub struct PairPrimary {
    witness: Witness,
    responder: HeartbeatResponder,
    role: PrimaryRole,
    other: Option<PeerCta>,
    /// N2 endpoints of this CTA, and of the CTA that it replaced.
    endpoints: Vec<IpAddr>,
    replaced_endpoints: Vec<IpAddr>,
    /// The address of its SMF.
    smf: IpAddr,
    /// Time since which an input has been unconfirmed.
    unconfirmed_since: Option<Instant>,
    /// When the next snapshot may be made.
    next_snapshot_at: Instant,
    /// This process was stalled after this input, and the replica may have taken over meanwhile.
    last_input_before_stall: Option<u64>,
    pair_events: Vec<PairEvent>,
    records: u64,
    octets: u64,
}

impl PairPrimary {
    /// Interval at which the control thread runs while an input is unconfirmed; a longer gap means that it
    /// was stalled.
    pub const CHECK_INTERVAL: Duration = Duration::from_millis(20);

    /// Starts the primary that the `home` record in etcd names.
    pub(super) fn new(
        witness: Witness,
        responder: HeartbeatResponder,
        home: CtaHome,
        (endpoints, smf): (Vec<IpAddr>, IpAddr),
        former: Vec<IpAddr>,
    ) -> Self {
        Self {
            witness,
            responder,
            role: PrimaryRole::new(&home),
            other: None,
            endpoints,
            replaced_endpoints: former,
            smf,
            unconfirmed_since: None,
            next_snapshot_at: Instant::ZERO,
            last_input_before_stall: None,
            pair_events: Vec::new(),
            records: 0,
            octets: 0,
        }
    }

    /// The term in which it is the primary.
    pub fn term(&self) -> u32 {
        self.role.term()
    }

    /// N2 endpoints of the CTA that it replaced.
    pub fn replaced_endpoints(&self) -> &[IpAddr] {
        &self.replaced_endpoints
    }

    /// Returns the parts that are used again once it is no longer the primary.
    pub(super) fn into_parts(self) -> (Witness, HeartbeatResponder) {
        self.responder.set_identity(None);
        (self.witness, self.responder)
    }

    /// Ends the membership before a regular shutdown.
    pub fn leave(self) {
        self.witness.leave();
    }

    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Whether there is a replica, and a sentence about it. `successor`: the CTA that waits for this one to stop.
    pub fn replica_status(&self, successor: Option<CtaInstance>) -> (bool, String) {
        match (self.role.other(), &self.other) {
            (Some(place), Some(other)) if self.role.has_cta_replica() => {
                (true, format!("CTA {} at {}", place.cta, other.address))
            }
            (Some(place), _) => (false, format!("not yet: CTA {} is receiving the snapshot", place.cta)),
            (None, _) if self.role.is_replica_lost() => {
                (false, "lost; this CTA waits until etcd has decided whether it continues alone".into())
            }
            (None, _) if let Some(CtaInstance { cta, .. }) = successor => (
                false,
                format!("none; CTA {cta}, which runs other code, takes over when this CTA is stopped"),
            ),
            (None, _) => (false, "none: all UEs have to register again if this CTA is lost".into()),
        }
    }

    /// This CTA and its replica.
    pub fn views(&self, pool: &CpfPool) -> Vec<CtaView> {
        let (replicated, detail) = self.replica_status(pool.successor());
        let own = match self.witness.me() {
            Some(me) => format!("CTA {}", me.cta),
            None => "this CTA".into(),
        };
        let primary = CtaView { role: "primary", term: Some(self.term()), up: true, detail: own };
        vec![primary, CtaView { role: "replica", term: None, up: replicated, detail }]
    }

    /// Records sent to the replica, and their octets.
    pub fn sent(&self) -> (u64, u64) {
        (self.records, self.octets)
    }

    /// Invalid records in etcd.
    pub fn invalid_etcd_records(&self) -> u64 {
        self.witness.ignored()
    }

    /// Heartbeats that it did not answer.
    pub fn heartbeats_ignored(&self) -> IgnoredHeartbeats {
        self.responder.ignored()
    }

    /// What it answered by S-BFD.
    pub fn sbfd_figures(&self) -> SbfdFigures {
        self.responder.sbfd_figures()
    }

    /// The CTA that is, or becomes, the replica.
    pub fn other(&self) -> Option<CtaInstance> {
        self.role.other()
    }

    /// Sends a record to the CTA replica, which has to confirm it in time.
    pub fn replicate(&mut self, now: Instant, pool: &mut CpfPool, record: &ReplicaRecord) {
        if self.role.other().is_some() && !self.role.copies() {
            self.unconfirmed_since.get_or_insert(now);
        }
        self.send_record(pool, record);
    }

    fn send_record(&mut self, pool: &mut CpfPool, record: &ReplicaRecord) {
        self.records += 1;
        self.octets += record.octets().len() as u64;
        pool.send_to_replica(&ToCtaReplica::Record(record.octets()));
    }

    /// Handles a message of the other CTA.
    pub fn handle_replica_message<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        message: ToPrimaryCta,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut CpfPool,
        out: &mut Outbox,
    ) {
        match message {
            ToPrimaryCta::Follow { place, address, endpoints, smf } => {
                let other = PeerCta { address, endpoints, smf, snapshot: None };
                self.begin_replica(now, place, other, active, pool, out);
            }
            ToPrimaryCta::Pieces(pieces) => self.send_pieces(pieces, pool),
            // The replica may have sent this before it took over.
            ToPrimaryCta::Held(number)
                if self.last_input_before_stall.is_some_and(|before| number <= before) => {}
            ToPrimaryCta::Held(number) => {
                self.last_input_before_stall = None;
                active.acknowledged(number, out);
                self.unconfirmed_since = (active.waiting() > 0).then_some(now);
                let duties = self.role.held(number, active.last());
                self.perform(duties, active, pool, out);
            }
        }
    }

    /// All outputs have been sent: the next input reports it to the CTA replica, or a record of its own does
    /// at once if the replica has confirmed every input, because the next input may come late.
    pub fn outputs_sent<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut CpfPool,
    ) {
        active.mark_outputs_sent();
        let record = if active.waiting() == 0 { active.sent_report() } else { None };
        if let Some(record) = record {
            self.send_record(pool, &record); // no output waits for this one
            pool.flush();
        }
    }

    fn begin_replica<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        place: CtaInstance,
        other: PeerCta,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut CpfPool,
        out: &mut Outbox,
    ) {
        // If it may not begin yet, it connects again: etcd has to list it, and the pause after the last snapshot has to be over.
        let begins = now >= self.next_snapshot_at && self.role.follows(place, self.witness.lists(place));
        let begun = clock::now();
        let Some(snapshot) = begins.then(|| active.snapshot()).flatten() else {
            pool.disconnect_replica();
            return self.cta_replica_lost(active, pool, out);
        };
        let made = clock::now();
        self.next_snapshot_at = made + made.since(begun) * PAUSE_PER_SNAPSHOT;
        info!(cta = place.cta, address = %other.address, "another CTA begins to replicate this one");
        self.responder.set_identity(Some((MemberId::Cta(self.role.me().cta), pool.heartbeat_key())));
        pool.begin_replica(snapshot.octets().len() as u64, self.endpoints.clone());
        self.other = Some(PeerCta { snapshot: Some((snapshot, 0)), ..other });
        self.send_pieces(0, pool);
    }

    fn send_pieces(&mut self, has: u64, pool: &mut CpfPool) {
        let Some((snapshot, sent)) = self.other.as_mut().and_then(|other| other.snapshot.as_mut()) else {
            return;
        };
        let pieces = snapshot.octets().chunks(PIECE_OCTETS);
        let until = has.saturating_add(MAX_UNCONFIRMED_PIECES).min(pieces.len() as u64);
        let due = until.saturating_sub(*sent) as usize;
        pieces
            .skip(*sent as usize)
            .take(due)
            .for_each(|piece| pool.send_to_replica(&ToCtaReplica::Piece(piece)));
        *sent = until.max(*sent);
    }

    /// Allows the next snapshot without the pause: it is the last one.
    pub fn allow_snapshot_now(&mut self) {
        self.next_snapshot_at = Instant::ZERO;
    }

    /// This process was stalled for `away`. If an input was unconfirmed, confirmations that came meanwhile
    /// may be older than a takeover by the replica: outputs wait until the replica has confirmed a later
    /// input, for which it gets the usual time. Returns whether such an input is needed.
    pub fn record_stall(&mut self, away: Duration, last: u64, waiting: usize) -> bool {
        let doubts = away >= MIN_TAKEOVER_TIMEOUT && waiting > 0;
        if doubts {
            self.last_input_before_stall = Some(last);
            self.unconfirmed_since = self.unconfirmed_since.map(|since| since + away);
        }
        doubts
    }

    /// The CTA replica is lost.
    pub fn cta_replica_lost<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut CpfPool,
        out: &mut Outbox,
    ) {
        (self.unconfirmed_since, self.last_input_before_stall) = (None, None);
        let duties = self.role.lost();
        if self.role.is_replica_lost() && !duties.is_empty() {
            warn!("the CTA replica is lost: outputs wait until etcd has decided which CTA continues");
        }
        self.perform(duties, active, pool, out);
    }

    fn perform<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        duties: Vec<PrimaryAction>,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut CpfPool,
        out: &mut Outbox,
    ) {
        for duty in duties {
            match duty {
                PrimaryAction::HoldOutputs => {
                    active.begin_holding();
                    if let Some(other) = &mut self.other {
                        other.snapshot = None;
                    }
                }
                PrimaryAction::ReleaseOutputs => {
                    self.responder.set_identity(None);
                    self.other = None;
                    active.continue_without_replica(out);
                }
                PrimaryAction::CloseLink => pool.disconnect_replica(),
                PrimaryAction::Claim(claim) => self.witness.claim(claim),
                PrimaryAction::ReplicaReady(place) => {
                    let Some(other) = &self.other else { continue };
                    info!(cta = place.cta, address = %other.address, term = self.term(), "this CTA has a CTA replica");
                    pool.announce_replica(Some(other.address));
                    let (endpoints, smf) = (other.endpoints.clone(), vec![other.smf, self.smf]);
                    self.pair_events.push(PairEvent::Order(CtaOrder::Endpoints(endpoints)));
                    self.pair_events.push(PairEvent::Order(CtaOrder::SmfAddresses(smf)));
                }
                PrimaryAction::NoReplica => {
                    warn!(term = self.term(), "this CTA continues without a CTA replica");
                    self.pair_events.push(PairEvent::Order(CtaOrder::Endpoints(Vec::new())));
                }
                PrimaryAction::Stop => self.pair_events.push(PairEvent::Replaced),
            }
        }
    }

    /// Handles changes in etcd, and checks that the CTA replica still works: a thread of its own answers its heartbeats.
    pub fn turn<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        active: &mut PrimaryCta<S, E, I>,
        pool: &mut CpfPool,
        out: &mut Outbox,
    ) -> Vec<PairEvent> {
        if self.unconfirmed_since.take_if(|since| now >= *since + CONFIRMATION_TIMEOUT).is_some() {
            warn!("the CTA replica answers heartbeats but confirms no inputs: it is treated as lost");
            pool.disconnect_replica();
            self.cta_replica_lost(active, pool, out);
        }
        for event in self.witness.turn() {
            match event {
                WitnessEvent::Claimed(claim, outcome) => {
                    let duties = self.role.claimed(claim, outcome);
                    self.perform(duties, active, pool, out);
                }
                WitnessEvent::Changed => pool.apply_etcd(self.witness.roll()),
            }
        }
        let duties = self.role.home(self.witness.home().as_ref());
        self.perform(duties, active, pool, out);
        std::mem::take(&mut self.pair_events)
    }

    /// Whether a replica can take over at once if this CTA stops.
    pub fn has_cta_replica(&self) -> bool {
        self.role.has_cta_replica()
    }

    /// Whether the other CTA has taken over.
    pub fn has_handed_over(&mut self) -> bool {
        let _ = self.witness.turn();
        self.role.home(self.witness.home().as_ref()).contains(&PrimaryAction::Stop)
    }
}
