//! The witness of a pair of CTAs: etcd, which says which of them serves.

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
    Change, Claim, ClaimError, Command, CpfRoster, CtaInstance, Event, Home, Member, MemberId, Settings,
};

use crate::clock;
use crate::config::{Cluster, PairOf};
use crate::log_limiter::LogLimiter;

/// How long etcd has to take note of one that leaves.
const LEAVING: Duration = Duration::from_secs(1);

/// What the thread that speaks with etcd has heard.
#[derive(Default)]
struct Heard {
    events: VecDeque<Event>,
    home: Option<Home>,
    ctas: BTreeMap<u16, (Incarnation, SocketAddr)>,
    roll: CpfRoster,
    incarnation: Option<Incarnation>,
}

/// What an event means for who serves.
#[derive(Debug)]
pub(crate) enum WitnessEvent {
    /// What became of a claim.
    Claimed(Claim, Result<Home, ClaimError>),
    /// Who serves, who CTA replicas or who is listed may be another.
    Changed,
}

/// This process's place among the CTAs at etcd.
pub(crate) struct Witness {
    agent: Agent,
    number: u16,
    home: u16,
    heard: Arc<Mutex<Heard>>,
    wake: Arc<OwnedFd>,
    /// Claims that have no answer yet, in their order.
    asked: VecDeque<Claim>,
    /// Claims that the thread could not be given: they have no answer.
    unasked: Vec<Claim>,
    /// Records that say what cannot be, and which of them were told.
    ignored: u64,
    wrong: LogLimiter<(String, String)>,
}

impl Witness {
    /// Has this CTA listed, as reached at this address. Errors: one sentence.
    pub(crate) fn start(pair: &PairOf, cluster: &Cluster, address: SocketAddr) -> Result<Self, String> {
        let no_wake = |e| format!("the system gives no eventfd: {e}");
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(no_wake)?);
        let heard = Arc::new(Mutex::new(Heard::default()));
        let settings = Settings {
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
        let (hears, wakes, home) = (heard.clone(), wake.clone(), pair.home);
        let told = move |told: MembershipUpdate<'_>| {
            let mut heard = hears.lock().unwrap_or_else(PoisonError::into_inner);
            heard.home = told.view.home(home).copied();
            heard.incarnation = told.incarnation;
            let ctas = told.view.members().filter_map(|(id, listed)| match id {
                MemberId::Cta(n) => Some((n, (listed.incarnation, listed.member.address))),
                MemberId::Cpf(_) => None,
            });
            heard.ctas = ctas.collect();
            heard.roll = CpfRoster::of(told.view);
            heard.events.push_back(told.event);
            drop(heard);
            // A counter at its limit is readable already, so a failed write loses nothing.
            let _ = rustix::io::write(&wakes, &1u64.to_ne_bytes());
        };
        let agent = Agent::start(settings, &pair.etcd, told).map_err(|e| format!("cluster.etcd: {e}"))?;
        Ok(Self {
            agent,
            number: pair.number,
            home,
            heard,
            wake,
            asked: VecDeque::new(),
            unasked: Vec::new(),
            ignored: 0,
            wrong: LogLimiter::new("records at etcd"),
        })
    }

    /// Records that said what cannot be.
    pub(crate) fn ignored(&self) -> u64 {
        self.ignored
    }

    fn heard<R>(&self, what: impl FnOnce(&mut Heard) -> R) -> R {
        what(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// This CTA in this life; `None` before etcd has listed it.
    pub(crate) fn me(&self) -> Option<CtaInstance> {
        let incarnation = self.heard(|h| h.incarnation)?;
        Some(CtaInstance { cta: self.number, incarnation })
    }

    /// Who serves and who CTA replicas, as far as is known.
    pub(crate) fn home(&self) -> Option<Home> {
        self.heard(|h| h.home)
    }

    /// What etcd says of CPFs, and of the cluster.
    pub(crate) fn roll(&self) -> CpfRoster {
        self.heard(|h| h.roll.clone())
    }

    /// How the other CTA is watched: as is decided for the cluster, or said here.
    pub(crate) fn heartbeat(&self, said: Timing) -> Timing {
        self.heard(|h| h.roll.configuration().and_then(|c| c.heartbeat)).unwrap_or(said)
    }

    /// Where a CTA is reached that is listed, in whichever life.
    pub(crate) fn address(&self, cta: u16) -> Option<SocketAddr> {
        self.heard(|h| h.ctas.get(&cta).map(|(_, at)| *at))
    }

    /// Whether a CTA is listed in this life.
    pub(crate) fn lists(&self, place: CtaInstance) -> bool {
        self.heard(|h| h.ctas.get(&place.cta).is_some_and(|(life, _)| *life == place.incarnation))
    }

    /// UeQueries for the home. The answer comes as [`WitnessEvent::Claimed`].
    pub(crate) fn claim(&mut self, claim: Claim) {
        if self.agent.command(Command::Claim(self.home, claim)) {
            self.asked.push_back(claim);
        } else {
            self.unasked.push(claim);
        }
    }

    /// Begins another life at etcd.
    pub(crate) fn rejoin(&self) {
        // If it is not taken, it is asked for again.
        let _ = self.agent.command(Command::Rejoin);
    }

    /// Leaves in order: it is listed no longer, and its next life need not wait for its lease to run out. Waits for that a little.
    pub(crate) fn leave(self) {
        let until = std::time::Instant::now() + LEAVING;
        self.agent.command(Command::Leave);
        while std::time::Instant::now() < until && !self.heard(|h| h.events.contains(&Event::Left)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes what etcd said.
    pub(crate) fn turn(&mut self) -> Vec<WitnessEvent> {
        let unanswered = |claim| WitnessEvent::Claimed(claim, Err(ClaimError::NoAnswer));
        let mut news: Vec<WitnessEvent> = self.unasked.drain(..).map(unanswered).collect();
        let events = self.heard(|h| std::mem::take(&mut h.events));
        if !events.is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
        }
        news.extend(events.into_iter().filter_map(|event| self.news(event)));
        news
    }

    fn news(&mut self, event: Event) -> Option<WitnessEvent> {
        match event {
            Event::Claimed(_, home) => Some(WitnessEvent::Claimed(self.asked.pop_front()?, Ok(home))),
            Event::Refused(_, why) => Some(WitnessEvent::Claimed(self.asked.pop_front()?, Err(why))),
            Event::Joined(life) => {
                info!(cta = self.number, life = life.0, "this CTA is registered in etcd");
                Some(WitnessEvent::Changed)
            }
            Event::Changed(Change::Ignored { key, why }) => {
                self.ignored += 1;
                if self.wrong.allows(clock::now(), (key.clone(), why.clone())) {
                    warn!(key, "a record at etcd is ignored: {why}");
                }
                None
            }
            Event::Changed(_) => Some(WitnessEvent::Changed),
            Event::Reached => {
                info!("etcd answers");
                None
            }
            Event::Unreachable(why) => {
                match self.me() {
                    Some(_) => {
                        warn!("etcd does not answer: {why}; UEs are served, but no takeover is possible")
                    }
                    None => warn!(
                        "etcd does not answer: {why}; until it does, this CTA does not serve, because etcd decides which CTA is the primary (`cluster.etcd`)"
                    ),
                }
                None
            }
            Event::Replaced => {
                error!(
                    "etcd has lost its data, or is another one: what it holds now is not used; see docs/cluster.md"
                );
                None
            }
            Event::Occupied(life) => {
                warn!(
                    cta = self.number,
                    life = life.0,
                    "etcd lists another CTA, or an earlier run of this one, under this number: the registration is repeated"
                );
                None
            }
            Event::Doubtful(_) | Event::Expelled(_) => {
                warn!("this CTA may no longer be registered in etcd: it continues to serve");
                None
            }
            Event::Renewed(_) => {
                debug!("this CTA is registered in etcd again");
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
