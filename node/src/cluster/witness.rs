//! The witness of a pair of CTAs, which decides which of them is the primary: etcd, or the manager of their unit.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tracing::{debug, error, info, warn};
use whimbrel_etcd::{Agent, MembershipUpdate};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::detector::{Incarnation, Timing};
use whimbrel_resilience::membership::{
    ClaimError, CpfRoster, CtaHome, CtaInstance, Event, HomeClaim, Member, MemberId, MembershipChange,
    MembershipCommand, MembershipSettings,
};

use crate::clock;
use crate::config::{Cluster, PairOf};
use crate::log_limiter::LogLimiter;

/// How long etcd may take to delete the record of a CTA that leaves.
const LEAVING: Duration = Duration::from_secs(1);

/// What the thread that watches etcd has found.
#[derive(Default)]
struct WitnessedRecords {
    events: VecDeque<Event>,
    home: Option<CtaHome>,
    ctas: BTreeMap<u16, (Incarnation, SocketAddr)>,
    roll: CpfRoster,
    incarnation: Option<Incarnation>,
}

/// A change in etcd that concerns the pair.
#[derive(Debug)]
pub enum WitnessEvent {
    /// The outcome of a claim.
    Claimed(HomeClaim, Result<CtaHome, ClaimError>),
    /// The primary, the replica or the registered members may have changed.
    Changed,
}

/// This CTA's registration in etcd.
pub struct Witness {
    agent: Agent,
    number: u16,
    home: u16,
    found: Arc<Mutex<WitnessedRecords>>,
    wake: Arc<OwnedFd>,
    /// Claims without an answer, in their order.
    claims: VecDeque<HomeClaim>,
    /// Claims that could not be handed to the thread, which counts as no answer.
    failed_claims: Vec<HomeClaim>,
    /// Number of invalid records.
    ignored: u64,
    log_ignored: LogLimiter<(String, String)>,
    /// What log lines call it.
    name: &'static str,
}

impl Witness {
    /// Registers this CTA with its address. Errors: one sentence.
    pub fn start(pair: &PairOf, cluster: &Cluster, address: SocketAddr) -> Result<Self, String> {
        let no_wake = |e| format!("the system gives no eventfd: {e}");
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(no_wake)?);
        let found = Arc::new(Mutex::new(WitnessedRecords::default()));
        let settings = MembershipSettings {
            cluster: pair.name.clone(),
            me: MemberId::Cta(pair.number),
            member: Member {
                region: cluster.region.to_string(),
                address,
                draining: false,
                code_version: CodeVersion::own(),
            },
            lease: pair.lease,
        };
        let (shared, wakes, home) = (found.clone(), wake.clone(), pair.home);
        let on_update = move |update: MembershipUpdate<'_>| {
            let mut found = shared.lock().unwrap_or_else(PoisonError::into_inner);
            found.home = update.view.home(home).copied();
            found.incarnation = update.incarnation;
            let ctas = update.view.members().filter_map(|(id, listed)| match id {
                MemberId::Cta(n) => Some((n, (listed.incarnation, listed.member.address))),
                MemberId::Cpf(_) => None,
            });
            found.ctas = ctas.collect();
            found.roll = CpfRoster::of(update.view);
            found.events.push_back(update.event);
            drop(found);
            // A counter at its limit is readable already, so a failed write loses nothing.
            let _ = rustix::io::write(&wakes, &1u64.to_ne_bytes());
        };
        let agent =
            Agent::start(settings, &pair.etcd, on_update).map_err(|e| format!("cluster.etcd: {e}"))?;
        Ok(Self {
            agent,
            number: pair.number,
            home,
            found,
            wake,
            claims: VecDeque::new(),
            failed_claims: Vec::new(),
            ignored: 0,
            log_ignored: LogLimiter::new("records at etcd"),
            name: super::witness_name(&pair.etcd),
        })
    }

    /// How many records were invalid.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    fn with_found<R>(&self, what: impl FnOnce(&mut WitnessedRecords) -> R) -> R {
        what(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// This CTA's number and incarnation; `None` before it is registered.
    pub fn me(&self) -> Option<CtaInstance> {
        let incarnation = self.with_found(|h| h.incarnation)?;
        Some(CtaInstance { cta: self.number, incarnation })
    }

    /// The record of the primary and its replica, as far as is known.
    pub fn home(&self) -> Option<CtaHome> {
        self.with_found(|h| h.home)
    }

    /// The registered CPFs and the configuration of the cluster.
    pub fn roll(&self) -> CpfRoster {
        self.with_found(|h| h.roll.clone())
    }

    /// The timing of heartbeats: that of etcd's configuration, or else this one.
    pub fn heartbeat(&self, own: Timing) -> Timing {
        self.with_found(|h| h.roll.configuration().and_then(|c| c.heartbeat)).unwrap_or(own)
    }

    /// The address of a registered CTA, in any incarnation.
    pub fn address(&self, cta: u16) -> Option<SocketAddr> {
        self.with_found(|h| h.ctas.get(&cta).map(|(_, at)| *at))
    }

    /// Whether a CTA is registered in this incarnation.
    pub fn lists(&self, place: CtaInstance) -> bool {
        self.with_found(|h| h.ctas.get(&place.cta).is_some_and(|(life, _)| *life == place.incarnation))
    }

    /// Claims the home. The answer comes as [`WitnessEvent::Claimed`].
    pub fn claim(&mut self, claim: HomeClaim) {
        if self.agent.command(MembershipCommand::Claim(self.home, claim)) {
            self.claims.push_back(claim);
        } else {
            self.failed_claims.push(claim);
        }
    }

    /// Registers again, as another incarnation.
    pub fn rejoin(&self) {
        // A command that is not accepted is given again.
        let _ = self.agent.command(MembershipCommand::Rejoin);
    }

    /// Deletes the record, so that the next start need not wait until its lease expires; waits a little for that.
    pub fn leave(self) {
        let until = std::time::Instant::now() + LEAVING;
        self.agent.command(MembershipCommand::Leave);
        while std::time::Instant::now() < until && !self.with_found(|h| h.events.contains(&Event::Left)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the changes in etcd.
    pub fn turn(&mut self) -> Vec<WitnessEvent> {
        let unanswered = |claim| WitnessEvent::Claimed(claim, Err(ClaimError::NoAnswer));
        let mut witness_events: Vec<WitnessEvent> = self.failed_claims.drain(..).map(unanswered).collect();
        let events = self.with_found(|h| std::mem::take(&mut h.events));
        if !events.is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
        }
        witness_events.extend(events.into_iter().filter_map(|event| self.event(event)));
        witness_events
    }

    fn event(&mut self, event: Event) -> Option<WitnessEvent> {
        match event {
            Event::Claimed(_, home) => Some(WitnessEvent::Claimed(self.claims.pop_front()?, Ok(home))),
            Event::Refused(_, why) => Some(WitnessEvent::Claimed(self.claims.pop_front()?, Err(why))),
            Event::Joined(life) => {
                info!(cta = self.number, incarnation = life.0, "this CTA is registered in {}", self.name);
                Some(WitnessEvent::Changed)
            }
            Event::Changed(MembershipChange::Ignored { key, why }) => {
                self.ignored += 1;
                if self.log_ignored.allows(clock::now(), (key.clone(), why.clone())) {
                    warn!(key, "a record at {} is ignored: {why}", self.name);
                }
                None
            }
            Event::Changed(_) => Some(WitnessEvent::Changed),
            Event::Reached => {
                info!("{} answers", self.name);
                None
            }
            Event::Unreachable(why) => {
                match self.me() {
                    Some(_) => {
                        warn!(
                            "{} does not answer: {why}; UEs are served, but no takeover is possible",
                            self.name
                        )
                    }
                    None => warn!(
                        "{} does not answer: {why}; until it does, this CTA does not serve, because it decides which CTA is the primary (`cluster.etcd`)",
                        self.name
                    ),
                }
                None
            }
            Event::Replaced => {
                error!(
                    "{} has lost its data, or is another one: what it holds now is not used; see docs/cluster.md",
                    self.name
                );
                None
            }
            Event::Occupied(life) => {
                warn!(
                    cta = self.number,
                    incarnation = life.0,
                    "{} lists another CTA, or an earlier run of this one, under this number: the registration is repeated",
                    self.name
                );
                None
            }
            Event::Doubtful(_) | Event::Expelled(_) => {
                warn!("this CTA may no longer be registered in {}: it continues to serve", self.name);
                None
            }
            Event::Renewed(_) => {
                debug!("this CTA is registered in {} again", self.name);
                None
            }
            Event::Left => None,
        }
    }
}

impl AsFd for Witness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
