//! Background work of a packet thread: the usage survey, in the time in which packets leave the core idle.
//!
//! Two places have such time: an empty look at the sources, where a thread would look again or sleep, and the loads of a burst
//! ([`StageObserver::loading`]). How much is done at once decides what packets pay, and [`Budget`] decides how much: short windows with
//! work alternate with windows without, and the 95th percentile of the packets' stay with work is held within what the operator permits
//! over that without.

use std::time::{Duration, Instant as Clock};

use whimbrel_ids::Instant;
use whimbrel_user::{NetworkUsage, SessionTable, Stage, StageObserver, UpfU, UsageSurvey};

/// How much the packet threads' background work may cost packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Harvest {
    /// There is none.
    #[default]
    Off,
    /// The 95th percentile of the time that packets stay in the packet thread may grow.
    P95 {
        /// By so many per cent.
        percent: u16,
        /// From the beginning of one survey to that of the next.
        every: Duration,
    },
}

impl Harvest {
    /// With surveys as often as the product has them: metrics are usually read every 15 s or more.
    pub fn p95(percent: u16) -> Self {
        Self::P95 { percent, every: Duration::from_secs(10) }
    }
}

/// A window: many bursts at any rate that matters, and short beside how fast load changes.
const WINDOW: Duration = Duration::from_millis(5);
/// Of so many windows the first is without work: an eighth of the time is what the comparison costs.
const WINDOWS: u32 = 8;
/// Stays of either kind before they are compared: twenty of them are beyond the 95th percentile.
const STAYS_MIN: u32 = 400;
/// Cycles of windows until more work is tried again after it was too much: 2.5 s.
const RETRY_CYCLES: u32 = 64;
/// Work at once by level: places of the session table after an empty look, and at each load of a burst. One place takes 10 to 30 ns.
const LEVELS: [(u32, u32); 9] =
    [(0, 0), (4, 0), (8, 0), (16, 0), (32, 0), (32, 1), (32, 2), (64, 4), (64, 8)];

/// Steps of a stay for each power of two nanoseconds, from the first one that has so many up to a minute.
const STEPS: u32 = 32;
const OCTAVES: u32 = 31;

/// How long packets stayed.
#[derive(Clone)]
struct Stays {
    counts: Box<[u32]>,
    all: u32,
}

impl Default for Stays {
    fn default() -> Self {
        Self { counts: vec![0; (STEPS * OCTAVES) as usize].into(), all: 0 }
    }
}

impl Stays {
    /// Packets stayed for so long, as all of a burst do.
    fn add(&mut self, ns: u64, packets: u32) {
        let ns = ns.max(STEPS.into());
        let octave = ns.ilog2() - STEPS.ilog2();
        let step = octave * STEPS + (ns >> octave) as u32 % STEPS;
        let at = (step as usize).min(self.counts.len() - 1);
        self.counts[at] = self.counts[at].saturating_add(packets);
        self.all = self.all.saturating_add(packets);
    }

    /// The 95th percentile, in nanoseconds, between the steps; zero of none.
    fn p95(&self) -> u64 {
        let rank = u64::from(self.all) * 95;
        let mut below = 0;
        for (step, &count) in self.counts.iter().enumerate() {
            let upto = below + u64::from(count) * 100;
            if count > 0 && upto >= rank {
                let (octave, in_octave) = (step as u32 / STEPS, step as u64 % u64::from(STEPS));
                let width = 1u64 << octave;
                let within = (rank - below) * width / (u64::from(count) * 100);
                return (u64::from(STEPS) + in_octave) * width + within;
            }
            below = upto;
        }
        0
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.all = 0;
    }

    /// Halves the weight of what was counted: the next comparison sees it still, the one after that hardly.
    fn age(&mut self) {
        self.counts.iter_mut().for_each(|n| *n /= 2);
        self.all = self.counts.iter().sum();
    }
}

/// Decides how much work is done at once.
pub(crate) struct Budget {
    percent: u64,
    level: usize,
    /// Cycles in which there is not more work at once.
    barred: u32,
    window: u32,
    window_ends: Instant,
    with: Stays,
    without: Stays,
    /// The percentiles that were compared last, with work and without.
    compared: (u64, u64),
}

impl Budget {
    fn new(percent: u16, now: Instant) -> Self {
        Self {
            percent: percent.into(),
            level: 1,
            barred: 0,
            window: 0,
            window_ends: now + WINDOW,
            with: Stays::default(),
            without: Stays::default(),
            compared: (0, 0),
        }
    }

    /// Work at once: after an empty look, and at each load of a burst.
    fn at_once(&self) -> (u32, u32) {
        if self.window == 0 { (0, 0) } else { LEVELS[self.level] }
    }

    /// Packets of one burst stayed for so long at most: since the look before theirs ended.
    fn stayed(&mut self, ns: u64, packets: u32) {
        if self.window == 0 { self.without.add(ns, packets) } else { self.with.add(ns, packets) }
    }

    /// Goes on to the next window, if it is time; after the last one of a cycle the level is judged.
    fn turn(&mut self, now: Instant) {
        if now < self.window_ends {
            return;
        }
        self.window_ends = now + WINDOW;
        self.window = (self.window + 1) % WINDOWS;
        if self.window == 0 && self.with.all.min(self.without.all) >= STAYS_MIN {
            self.judge();
        }
    }

    fn judge(&mut self) {
        let (with, without) = (self.with.p95(), self.without.p95());
        self.compared = (with, without);
        self.barred = self.barred.saturating_sub(1);
        // Above two thirds of what is permitted it stays where it is, so that it does not go up and down for ever.
        if with * 100 > without * (100 + self.percent) {
            self.level = self.level.saturating_sub(1);
            self.barred = RETRY_CYCLES;
            self.with.clear();
        } else if self.barred == 0
            && with * 300 <= without * (300 + 2 * self.percent)
            && self.level + 1 < LEVELS.len()
        {
            self.level += 1;
            self.with.clear();
        } else {
            self.with.age();
        }
        self.without.age();
    }
}

/// What background work was done, and what packets paid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HarvestCounters {
    /// Surveys that have ended.
    pub surveys: u64,
    /// Places of the session table that were read after an empty look.
    pub places_idle: u64,
    /// Those that were read while packets' memory was loaded.
    pub places_in_stalls: u64,
    /// Nanoseconds of the work after empty looks.
    pub idle_ns: u64,
    /// The 95th percentile of packets' stay in the thread with work, in nanoseconds, as it was compared last; of several threads the longest.
    pub p95_with_ns: u64,
    /// The same without work.
    pub p95_without_ns: u64,
    /// What the last survey added up, by data network in the order of the configuration.
    pub usage: Vec<NetworkUsage>,
}

impl HarvestCounters {
    /// Nanoseconds of all work: a place that was read while memory was loaded counts as long as one that was read after an empty look.
    pub fn work_ns(&self) -> u64 {
        let in_stalls = u128::from(self.idle_ns) * u128::from(self.places_in_stalls);
        self.idle_ns + in_stalls.checked_div(self.places_idle.into()).unwrap_or(0) as u64
    }

    /// By how many per cent packets stayed longer with work.
    pub fn cost_percent(&self) -> u64 {
        let more = self.p95_with_ns.saturating_sub(self.p95_without_ns);
        (more * 100).checked_div(self.p95_without_ns).unwrap_or(0)
    }

    /// Adds those of another packet thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.surveys += other.surveys;
        self.places_idle += other.places_idle;
        self.places_in_stalls += other.places_in_stalls;
        self.idle_ns += other.idle_ns;
        self.p95_with_ns = self.p95_with_ns.max(other.p95_with_ns);
        self.p95_without_ns = self.p95_without_ns.max(other.p95_without_ns);
        self.usage.resize(self.usage.len().max(other.usage.len()), NetworkUsage::default());
        self.usage.iter_mut().zip(&other.usage).for_each(|(own, other)| own.add(other));
    }
}

/// The background work of one packet thread.
pub(crate) struct Background {
    budget: Budget,
    every: Duration,
    /// The survey that is not at its end.
    survey: Option<UsageSurvey>,
    /// When the next one begins.
    next: Instant,
    /// When the last look at the sources, and all that it led to, ended.
    looked: Clock,
    counters: HarvestCounters,
}

impl Background {
    /// `None` if there is to be none.
    pub(crate) fn new(harvest: Harvest, now: Instant) -> Option<Self> {
        let Harvest::P95 { percent, every } = harvest else { return None };
        Some(Self {
            budget: Budget::new(percent, now),
            every,
            survey: None,
            next: now,
            looked: Clock::now(),
            counters: HarvestCounters::default(),
        })
    }

    pub(crate) fn counters(&self) -> &HarvestCounters {
        &self.counters
    }

    /// When the thread has to be awake for it.
    pub(crate) fn next_deadline(&self) -> Instant {
        if self.survey.is_some() { self.budget.window_ends } else { self.next }
    }

    /// Work for the loads of the next burst, if there is any.
    pub(crate) fn in_stalls(&mut self, now: Instant) -> Option<InStalls<'_>> {
        let (_, places) = self.budget.at_once();
        let survey = self.survey.as_mut().filter(|_| places > 0)?;
        Some(InStalls { survey, now, places, read: &mut self.counters.places_in_stalls })
    }

    /// A look at the sources has brought so many packets, which are sent. Works if there was none; whether it did.
    pub(crate) fn looked(&mut self, now: Instant, packets: usize, upf: &UpfU) -> bool {
        let Some(survey) = &mut self.survey else {
            if self.next <= now {
                (self.survey, self.next) = (Some(UsageSurvey::default()), now + self.every);
                self.looked = Clock::now();
            }
            return false;
        };
        let ended = Clock::now();
        if packets > 0 {
            let stay = ended.duration_since(self.looked).as_nanos() as u64;
            self.budget.stayed(stay, packets as u32);
        }
        self.looked = ended;
        self.budget.turn(now);
        (self.counters.p95_with_ns, self.counters.p95_without_ns) = self.budget.compared;
        let (places, _) = self.budget.at_once();
        if packets > 0 || places == 0 {
            return false;
        }
        let read = upf.session_table().survey(now, survey, places);
        self.counters.places_idle += u64::from(read);
        self.counters.idle_ns += ended.elapsed().as_nanos() as u64;
        if read < places {
            self.counters.surveys += 1;
            self.counters.usage = survey.sums().to_vec();
            self.survey = None;
        }
        true
    }
}

/// Reads sessions while the memory of a burst is loaded.
pub(crate) struct InStalls<'b> {
    survey: &'b mut UsageSurvey,
    now: Instant,
    places: u32,
    read: &'b mut u64,
}

impl StageObserver for InStalls<'_> {
    #[inline]
    fn done(&mut self, _: Stage) {}

    #[inline]
    fn loading(&mut self, sessions: SessionTable<'_>) {
        *self.read += u64::from(sessions.survey(self.now, self.survey, self.places));
    }
}

#[cfg(test)]
mod tests;
