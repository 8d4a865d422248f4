//! One process's side of membership.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_ids::Instant;

use super::record::MemberRecord;
use super::view::EtcdKey;
use super::{
    ClaimAction, ClaimError, CtaHome, CtaInstance, EtcdAnswer, EtcdFailure, EtcdReply, EtcdRequest,
    HomeClaim, Kv, Member, MemberId, MembershipChange, MembershipView, WatchedChange,
};
use crate::detector::Incarnation;

/// An answer that takes longer is not waited for: etcd elects a leader in a second or two.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// Between a failure and the next try.
const RETRY: Duration = Duration::from_millis(500);
/// Within this a claim is granted or refused: UEs wait for it.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);
/// Claims that wait: a CTA has its own home and CTA replicas a few.
const CLAIMS_MAX: usize = 16;

/// The settings of a process.
#[derive(Clone, Debug)]
pub struct MembershipSettings {
    /// The cluster's name: its keys begin with `whimbrel/NAME/`.
    pub cluster: String,
    /// Its name. No two processes may have the same: the second is not listed.
    pub me: MemberId,
    /// Where, and how.
    pub member: Member,
    /// How long it is listed without reaching etcd; 5 s or more, since an election there takes two.
    pub lease: Duration,
}

/// What the machine takes.
#[derive(Clone, Debug)]
pub enum Input {
    /// Its deadline has come.
    Tick,
    /// What became of a request.
    Answered(u64, Result<EtcdReply, EtcdFailure>),
    /// Changes of a watch, by the number of its request.
    Watched(u64, Vec<WatchedChange>),
    /// A watch has ended.
    WatchEnded(u64),
    /// A command of the process.
    Command(MembershipCommand),
}

/// A command of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipCommand {
    /// To get no new UEs, or to get them again.
    Drain(bool),
    /// To begin a new incarnation, since it was replaced in this one.
    Rejoin,
    /// To claim the home of this number.
    Claim(u16, HomeClaim),
    /// To be listed no longer.
    Leave,
}

/// An event of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Etcd answers again.
    Reached,
    /// It does not: everything continues, but no CTA is promoted.
    Unreachable(String),
    /// It is another one, or has forgotten: what was known stays, and it is not believed. Stop all processes of the cluster
    /// before the first one starts on it.
    Replaced,
    /// The process is listed, in this life.
    Joined(Incarnation),
    /// Another process is listed under this name, or the former life's lease has not run out yet: it is tried again.
    Occupied(Incarnation),
    /// The lease could not be renewed and may have run out.
    Doubtful(Incarnation),
    /// It was renewed in time after all.
    Renewed(Incarnation),
    /// It did run out. The process goes on, and is listed again as soon as it can, in the same life.
    Expelled(Incarnation),
    /// It is listed no longer, as it asked.
    Left,
    /// The view changed.
    Changed(MembershipChange),
    /// A claim is granted.
    Claimed(u16, CtaHome),
    /// A claim is not.
    Refused(u16, ClaimError),
}

/// What the machine gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbox {
    /// For etcd, with their numbers.
    pub requests: Vec<(u64, EtcdRequest)>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    List,
    Grant,
    KeepAlive,
    Join,
    Update,
    /// Has etcd its majority? One that has just lost it may take a swap and do it when it has it again, minutes later.
    Look,
    Claim,
    Revoke,
}

#[derive(Debug)]
struct RequestInFlight {
    id: u64,
    purpose: Purpose,
    sent: Instant,
    /// How far etcd was known to be then: an answer that is behind is not of the same etcd.
    furthest: u64,
    /// The key and the value of a swap.
    swap: Option<(String, Vec<u8>)>,
}

#[derive(Debug)]
struct Lease {
    id: i64,
    renew_at: Instant,
    /// It lives that long at least, counted from when its renewal was sent.
    until: Instant,
    doubted: bool,
}

#[derive(Debug)]
struct PendingClaim {
    home: u16,
    claim: HomeClaim,
    refused_at: Instant,
    /// Etcd had its majority when it was looked at for this claim.
    looked: bool,
    /// What it was asked for with.
    proposed: Option<CtaHome>,
}

/// What is known of etcd.
#[derive(Debug, Default)]
struct Etcd {
    /// The identity of the cluster that is believed, and its highest revision.
    known: Option<(u64, u64)>,
    reachable: Option<bool>,
    /// Another cluster answers in its place, which has been reported.
    replaced: bool,
}

/// Requests to etcd.
#[derive(Debug)]
struct Requests {
    /// How many there have been: the number of the last one.
    count: u64,
    /// The one that waits for its answer.
    flight: Option<RequestInFlight>,
    watch: Option<u64>,
    /// When the next one may be sent.
    not_before: Instant,
}

/// The record of this process in etcd.
#[derive(Debug)]
struct OwnListing {
    lease: Option<Lease>,
    incarnation: Option<Incarnation>,
    /// The revision of the record, if it is listed.
    revision: Option<u64>,
    join_at: Instant,
    /// Another process has our name, which has been reported.
    occupied: bool,
}

/// One process's side of membership. One request is under way at a time, beside the watch.
#[derive(Debug)]
pub struct Membership {
    prefix: String,
    me: MemberId,
    ttl: Duration,
    /// What is to be listed, and whether in a new life.
    desired: Member,
    new_life: bool,
    view: MembershipView,
    etcd: Etcd,
    requests: Requests,
    listing: OwnListing,
    claims: VecDeque<PendingClaim>,
    leaving: bool,
    left: bool,
}

impl Membership {
    /// A process that is to be listed.
    pub fn new(settings: MembershipSettings) -> Self {
        Self {
            prefix: format!("whimbrel/{}/", settings.cluster),
            me: settings.me,
            ttl: settings.lease,
            desired: settings.member,
            new_life: false,
            view: MembershipView::default(),
            etcd: Etcd::default(),
            requests: Requests { count: 0, flight: None, watch: None, not_before: Instant::ZERO },
            listing: OwnListing {
                lease: None,
                incarnation: None,
                revision: None,
                join_at: Instant::ZERO,
                occupied: false,
            },
            claims: VecDeque::new(),
            leaving: false,
            left: false,
        }
    }

    /// What is known of the cluster.
    pub fn view(&self) -> &MembershipView {
        &self.view
    }

    /// Which life this is; `None` before the process was listed for the first time.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.listing.incarnation
    }

    /// Takes an input.
    pub fn handle(&mut self, now: Instant, input: Input, out: &mut Outbox) {
        match input {
            Input::Tick => {
                if let Some(flight) = &self.requests.flight
                    && now >= flight.sent + ANSWER_PATIENCE
                {
                    self.failed(now, "no answer in time".into(), out);
                }
            }
            Input::Answered(id, answer) => {
                if let Some(flight) = self.requests.flight.take_if(|flight| flight.id == id) {
                    match answer {
                        Ok(answered) => self.answered(now, flight, answered, out),
                        Err(EtcdFailure::Unreachable(why)) => self.failed(now, why, out),
                        Err(EtcdFailure::NoLease) => self.lease_gone(out),
                    }
                }
            }
            Input::Watched(id, changes) if self.requests.watch == Some(id) => {
                changes.into_iter().for_each(|change| self.watched(change, out));
                self.own_record(out);
            }
            Input::Watched(..) => {}
            Input::WatchEnded(id) => {
                if self.requests.watch == Some(id) {
                    self.requests.watch = None;
                    self.requests.not_before = self.requests.not_before.max(now + RETRY / 5);
                }
            }
            Input::Command(command) => self.command(now, command, out),
        }
        self.doubt(now, out);
        self.give_up_claims(now, out);
        self.go(now, out);
    }

    /// When [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let work = match &self.requests.flight {
            Some(flight) => Some(flight.sent + ANSWER_PATIENCE),
            None => self.work().map(|(at, _)| at.max(self.requests.not_before)).min(),
        };
        let doubt = self
            .listing
            .lease
            .as_ref()
            .filter(|l| !l.doubted && self.listing.revision.is_some())
            .map(|l| l.until);
        let claim = self.claims.iter().map(|c| c.refused_at).min();
        [work, doubt, claim].into_iter().flatten().min()
    }

    fn command(&mut self, now: Instant, command: MembershipCommand, out: &mut Outbox) {
        match command {
            MembershipCommand::Drain(draining) => self.desired.draining = draining,
            MembershipCommand::Rejoin => self.new_life = true,
            MembershipCommand::Leave => self.leaving = true,
            MembershipCommand::Claim(home, _) if self.claims.len() >= CLAIMS_MAX => {
                out.events.push(Event::Refused(home, ClaimError::NoAnswer));
            }
            MembershipCommand::Claim(home, claim) => {
                self.claims.push_back(PendingClaim {
                    home,
                    claim,
                    refused_at: now + CLAIM_PATIENCE,
                    looked: false,
                    proposed: None,
                });
            }
        }
    }

    /// What there is to do, the most pressing first, and from when on.
    fn work(&self) -> impl Iterator<Item = (Instant, Purpose)> {
        const NOW: Instant = Instant::ZERO;
        let lease = self.listing.lease.as_ref();
        let joined = lease.is_some() && self.listing.revision.is_some();
        let work = [
            self.requests.watch.is_none().then_some((NOW, Purpose::List)),
            (lease.is_some() && self.leaving).then_some((NOW, Purpose::Revoke)),
            (lease.is_none() && !self.leaving).then_some((NOW, Purpose::Grant)),
            lease.map(|l| (l.renew_at, Purpose::KeepAlive)),
            (lease.is_some() && self.listing.revision.is_none())
                .then_some((self.listing.join_at, Purpose::Join)),
            (joined
                && (self.new_life || self.view.member(self.me).is_some_and(|l| l.member != self.desired)))
            .then_some((NOW, Purpose::Update)),
            self.claims.front().map(|claim| (NOW, if claim.looked { Purpose::Claim } else { Purpose::Look })),
        ];
        // Nothing is done on a view that is not known to be today's.
        let enough = if self.requests.watch.is_none() { 1 } else { work.len() };
        let done = self.left;
        work.into_iter().take(enough).flatten().filter(move |_| !done)
    }

    fn go(&mut self, now: Instant, out: &mut Outbox) {
        while self.requests.flight.is_none() && now >= self.requests.not_before {
            let Some((_, purpose)) = self.work().find(|(at, _)| *at <= now) else { break };
            let Some(request) = self.request(&purpose, out) else { continue };
            let swap = match &request {
                EtcdRequest::Swap { key, value, .. } => Some((key.clone(), value.clone())),
                _ => None,
            };
            let id = self.ask(request, out);
            let furthest = self.etcd.known.map_or(0, |(_, furthest)| furthest);
            self.requests.flight = Some(RequestInFlight { id, purpose, sent: now, furthest, swap });
        }
        if self.leaving && self.listing.lease.is_none() && self.requests.flight.is_none() && !self.left {
            self.left = true;
            out.events.push(Event::Left);
        }
    }

    fn ask(&mut self, request: EtcdRequest, out: &mut Outbox) -> u64 {
        self.requests.count += 1;
        out.requests.push((self.requests.count, request));
        self.requests.count
    }

    /// The request for a purpose; `None`: it has found its end without one.
    fn request(&mut self, purpose: &Purpose, out: &mut Outbox) -> Option<EtcdRequest> {
        let lease = self.listing.lease.as_ref().map_or(0, |l| l.id);
        let ttl_s = u32::try_from(self.ttl.as_secs()).unwrap_or(u32::MAX).max(1);
        Some(match purpose {
            Purpose::List | Purpose::Look => EtcdRequest::List { prefix: self.prefix.clone() },
            Purpose::Grant => EtcdRequest::Grant { ttl_s },
            Purpose::KeepAlive => EtcdRequest::KeepAlive { lease },
            Purpose::Revoke => EtcdRequest::Revoke { lease },
            Purpose::Join | Purpose::Update => {
                let incarnation = if self.new_life { None } else { self.listing.incarnation.map(|i| i.0) };
                let record = MemberRecord { member: self.desired.clone(), incarnation };
                let value = serde_json::to_vec(&record).expect("a record of plain values");
                let key = EtcdKey::Member(self.me).write(&self.prefix);
                EtcdRequest::Swap { key, expected: self.listing.revision.unwrap_or(0), value, lease }
            }
            Purpose::Claim => match self.claim()? {
                Ok(request) => request,
                Err(event) => {
                    self.claims.pop_front();
                    out.events.push(event);
                    return None;
                }
            },
        })
    }

    /// The first claim's request, or how the claim ended.
    fn claim(&mut self) -> Option<Result<EtcdRequest, Event>> {
        let PendingClaim { home, claim, proposed, .. } = self.claims.front_mut()?;
        let (MemberId::Cta(cta), Some(incarnation)) = (self.me, self.listing.incarnation) else {
            return Some(Err(Event::Refused(*home, ClaimError::NotYours)));
        };
        let me = CtaInstance { cta, incarnation };
        Some(match self.view.claim(*home, me, *claim, proposed.as_ref()) {
            Ok((_, ClaimAction::Granted(record))) => Err(Event::Claimed(*home, record)),
            Ok((expected, ClaimAction::Write(record))) => {
                *proposed = Some(record);
                let value = serde_json::to_vec(&record).expect("a record of plain values");
                Ok(EtcdRequest::Swap {
                    key: EtcdKey::Home(*home).write(&self.prefix),
                    expected,
                    value,
                    lease: 0,
                })
            }
            Err(why) => Err(Event::Refused(*home, why)),
        })
    }

    fn answered(&mut self, now: Instant, flight: RequestInFlight, answered: EtcdReply, out: &mut Outbox) {
        let EtcdReply { cluster, revision, answer } = answered;
        // Lists and swaps are answered by the majority; what one etcd alone says of its revision may be behind.
        let agreed = matches!(answer, EtcdAnswer::Listed(_) | EtcdAnswer::Swapped | EtcdAnswer::Differs(_));
        let (known, _) = *self.etcd.known.get_or_insert((cluster, 0));
        if cluster != known || agreed && revision < flight.furthest {
            self.requests.watch = None;
            self.requests.not_before = now + RETRY;
            if !std::mem::replace(&mut self.etcd.replaced, true) {
                out.events.push(Event::Replaced);
            }
            return;
        }
        self.etcd.replaced = false;
        if agreed {
            self.heard_of(revision);
        }
        if self.etcd.reachable != Some(true) {
            self.etcd.reachable = Some(true);
            out.events.push(Event::Reached);
        }
        match (flight.purpose, answer) {
            (purpose @ (Purpose::List | Purpose::Look), EtcdAnswer::Listed(kvs)) => {
                let changes = self.view.snapshot(revision, kvs, &self.prefix);
                changes.into_iter().for_each(|change| self.changed(change, out));
                self.own_record(out);
                self.claims.iter_mut().for_each(|claim| claim.looked = true);
                if purpose == Purpose::List {
                    let watch = EtcdRequest::Watch { prefix: self.prefix.clone(), from: revision + 1 };
                    self.requests.watch = Some(self.ask(watch, out));
                }
            }
            (Purpose::Grant, EtcdAnswer::Granted { lease, ttl_s }) => {
                self.listing.lease = Some(Lease::new(lease, flight.sent, ttl_s));
            }
            (Purpose::KeepAlive, EtcdAnswer::KeptAlive { ttl_s: 0 }) => self.lease_gone(out),
            (Purpose::KeepAlive, EtcdAnswer::KeptAlive { ttl_s }) => {
                let Some(lease) = &mut self.listing.lease else { return };
                if lease.doubted
                    && let Some(incarnation) = self.listing.incarnation
                {
                    out.events.push(Event::Renewed(incarnation));
                }
                *lease = Lease::new(lease.id, flight.sent, ttl_s);
            }
            (Purpose::Revoke, EtcdAnswer::Revoked) => {
                self.listing.lease = None;
                self.listing.revision = None;
            }
            (Purpose::Join | Purpose::Update, EtcdAnswer::Swapped) => {
                self.written(flight.swap, revision, out);
                self.joined(revision, out);
            }
            (Purpose::Join | Purpose::Update, EtcdAnswer::Differs(present)) => {
                self.differs(now, present, out)
            }
            (Purpose::Claim, EtcdAnswer::Swapped) => self.written(flight.swap, revision, out),
            (Purpose::Claim, EtcdAnswer::Differs(present)) => {
                let gone = flight.swap.map(|(key, _)| WatchedChange::Deleted { key, revision });
                if let Some(change) = present.map(WatchedChange::Put).or(gone) {
                    self.watched(change, out);
                }
            }
            _ => self.failed(now, "it answers something else".into(), out),
        }
    }

    /// A record that we wrote is known before the watch reports it.
    fn written(&mut self, swap: Option<(String, Vec<u8>)>, revision: u64, out: &mut Outbox) {
        if let Some((key, value)) = swap {
            let kv = Kv { key, value, mod_revision: revision, lease: 0 };
            self.watched(WatchedChange::Put(kv), out);
        }
    }

    fn watched(&mut self, change: WatchedChange, out: &mut Outbox) {
        let change = match change {
            WatchedChange::Put(kv) => {
                self.heard_of(kv.mod_revision);
                self.view.put(kv, &self.prefix)
            }
            WatchedChange::Deleted { key, revision } => {
                self.heard_of(revision);
                self.view.deleted(&key, revision, &self.prefix)
            }
        };
        if let Some(change) = change {
            self.changed(change, out);
        }
    }

    fn heard_of(&mut self, revision: u64) {
        if let Some((_, furthest)) = &mut self.etcd.known {
            *furthest = revision.max(*furthest);
        }
    }

    fn changed(&mut self, change: MembershipChange, out: &mut Outbox) {
        if matches!(change, MembershipChange::Gone(id, _) if id == self.me) {
            (self.listing.occupied, self.listing.join_at) = (false, Instant::ZERO);
        }
        out.events.push(Event::Changed(change));
    }

    /// Is our record still there, and ours?
    fn own_record(&mut self, out: &mut Outbox) {
        let writing = self
            .requests
            .flight
            .as_ref()
            .is_some_and(|f| matches!(f.purpose, Purpose::Join | Purpose::Update));
        if self.listing.revision.is_none() || writing {
            return; // its answer will tell
        }
        match self.view.member(self.me) {
            Some(listed) if Some(listed.incarnation) == self.listing.incarnation => {
                self.listing.revision = Some(listed.revision())
            }
            _ => self.expelled(out),
        }
    }

    /// Our record was written at this revision.
    fn joined(&mut self, revision: u64, out: &mut Outbox) {
        self.listing.occupied = false;
        let before = self.listing.revision.replace(revision);
        let Some(incarnation) = self.view.member(self.me).map(|listed| listed.incarnation) else { return };
        self.new_life &= Some(incarnation) == self.listing.incarnation;
        if before.is_none() || self.listing.incarnation != Some(incarnation) {
            self.listing.incarnation = Some(incarnation);
            out.events.push(Event::Joined(incarnation));
        }
    }

    /// Something else stands where our record was to be written.
    fn differs(&mut self, now: Instant, present: Option<Kv>, out: &mut Outbox) {
        let ours = |kv: &Kv| self.listing.lease.as_ref().is_some_and(|lease| lease.id == kv.lease);
        let Some(kv) = present else {
            self.expelled(out); // deleted meanwhile
            return;
        };
        let (ours, revision) = (ours(&kv), kv.mod_revision);
        self.watched(WatchedChange::Put(kv), out);
        if ours {
            self.joined(revision, out); // an earlier try that we heard nothing of
            return;
        }
        self.expelled(out);
        self.listing.join_at = now + RETRY;
        if !std::mem::replace(&mut self.listing.occupied, true) {
            let by = self.view.member(self.me).map_or(Incarnation(0), |listed| listed.incarnation);
            out.events.push(Event::Occupied(by));
        }
    }

    fn lease_gone(&mut self, out: &mut Outbox) {
        self.listing.lease = None;
        self.expelled(out);
    }

    fn expelled(&mut self, out: &mut Outbox) {
        if let (Some(_), Some(incarnation)) = (self.listing.revision.take(), self.listing.incarnation)
            && !self.leaving
        {
            out.events.push(Event::Expelled(incarnation));
        }
    }

    /// A request failed. All records are asked for again, of any etcd that answers.
    fn failed(&mut self, now: Instant, why: String, out: &mut Outbox) {
        self.requests.flight = None;
        self.requests.watch = None;
        self.claims.iter_mut().for_each(|claim| claim.looked = false);
        self.requests.not_before = now + RETRY;
        if self.etcd.reachable != Some(false) {
            self.etcd.reachable = Some(false);
            out.events.push(Event::Unreachable(why));
        }
    }

    fn doubt(&mut self, now: Instant, out: &mut Outbox) {
        if let (Some(lease), Some(_), Some(incarnation)) =
            (&mut self.listing.lease, self.listing.revision, self.listing.incarnation)
            && now >= lease.until
            && !std::mem::replace(&mut lease.doubted, true)
        {
            out.events.push(Event::Doubtful(incarnation));
        }
    }

    fn give_up_claims(&mut self, now: Instant, out: &mut Outbox) {
        self.claims.retain(|claim| {
            let waits = now < claim.refused_at;
            if !waits {
                out.events.push(Event::Refused(claim.home, ClaimError::NoAnswer));
            }
            waits
        });
    }
}

impl Lease {
    fn new(id: i64, sent: Instant, ttl_s: u32) -> Self {
        let ttl = Duration::from_secs(ttl_s.into());
        Self { id, renew_at: sent + ttl / 3, until: sent + ttl, doubted: false }
    }
}
