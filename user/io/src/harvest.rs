//! Background work of a packet thread: the usage survey, in the time in which packets leave the core idle.
//!
//! Two places have such time: an empty look at the sources, where a thread would look again or sleep, and the loads of a burst
//! ([`StageObserver::loading`]). How much is done at once decides what packets pay, and [`Budget`] decides how much: short windows with
//! work alternate with windows without, and the 95th percentile of the packets' stay with work is held within what the operator permits
//! over that without. A look that finds half of what it can take has no time to give: packets wait already, and work would cost some of them.

use std::time::{Duration, Instant as Clock};

use whimbrel_ids::Instant;
use whimbrel_user::{NetworkUsage, SessionTable, Stage, StageObserver, UpfU, UsageSurvey};

use crate::ports::BURST;

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

/// A window in the mean: long beside a burst, and short beside how fast load changes. Windows are of different lengths, and which ones have work
/// is by chance: else what happens every few milliseconds, as the kernel's timer, would be in windows of one kind for seconds.
const WINDOW: Duration = Duration::from_micros(500);
/// Windows after which the level is judged.
const WINDOWS: u32 = 16;
/// One of so many windows is without work; while the level is looked for, one of [`SEARCHED`].
const SETTLED: u64 = 8;
const SEARCHED: u64 = 2;
/// Bursts of either kind before they are compared: twenty of them are beyond the 95th percentile.
const BURSTS_MIN: u32 = 400;
/// Cycles of windows after which the percentiles are compared as they are, though chance may have made the difference: a quarter of a second.
const UNCLEAR_CYCLES_MAX: u32 = 32;
/// Cycles until a level that was too much is tried again, at first and at most: 64 ms, and 2.6 s for one that fails again and again.
const RETRY_CYCLES: u32 = 8;
const RETRY_CYCLES_MAX: u32 = 320;
/// Standard errors by which percentiles have to differ: chance alone makes so much in one of ten comparisons.
const ERRORS: f64 = 1.64;
/// Packets of a look from which on nothing is read meanwhile.
const FULL: usize = BURST / 2;
/// Pieces of work after empty looks of which one is timed: reading the clock takes as long as reading a session.
const TIMED: u32 = 16;

/// How much is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadLevel {
    /// After one of so many empty looks.
    looks: u32,
    /// Places of the session table after such a look. One takes 5 to 30 ns.
    idle: u32,
    /// Places at each of the three loads of a burst.
    stall: u32,
}

/// The first reads nothing. Those up to [`FIRST_LEVEL`] read one place after few looks: fewer than one in twenty packets meets it, so that even
/// a budget below the time of one place permits them. From there on each is at most twice the one before.
const LEVELS: [ReadLevel; 24] = {
    const fn level(looks: u32, idle: u32, stall: u32) -> ReadLevel {
        ReadLevel { looks, idle, stall }
    }
    [
        level(1, 0, 0),
        level(64, 1, 0),
        level(16, 1, 0),
        level(4, 1, 0),
        level(1, 1, 0),
        level(1, 2, 0),
        level(1, 3, 1),
        level(1, 4, 1),
        level(1, 6, 1),
        level(1, 8, 1),
        level(1, 10, 1),
        level(1, 12, 2),
        level(1, 16, 2),
        level(1, 20, 2),
        level(1, 24, 3),
        level(1, 32, 4),
        level(1, 40, 5),
        level(1, 48, 6),
        level(1, 64, 8),
        level(1, 80, 10),
        level(1, 96, 12),
        level(1, 128, 16),
        level(1, 160, 20),
        level(1, 192, 24),
    ]
};
/// Where a survey begins.
const FIRST_LEVEL: usize = 4;

/// Steps of a stay for each power of two nanoseconds, from the first one that has so many up to a second: finer than any budget.
const STEPS: u32 = 64;
const OCTAVES: u32 = 24;

/// How long packets stayed.
#[derive(Clone)]
struct Stays {
    counts: Box<[u32]>,
    packets: u64,
    bursts: u32,
}

impl Default for Stays {
    fn default() -> Self {
        Self { counts: vec![0; (STEPS * OCTAVES) as usize].into(), packets: 0, bursts: 0 }
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
        self.packets += u64::from(packets);
        self.bursts += 1;
    }

    /// What this part of the packets stayed for at most, in nanoseconds, between the steps; zero of none.
    fn quantile(&self, part: f64) -> f64 {
        let rank = self.packets as f64 * part;
        let mut below = 0.0;
        for (step, &count) in self.counts.iter().enumerate() {
            let count = f64::from(count);
            if count > 0.0 && below + count >= rank {
                let (octave, in_octave) = (step as u32 / STEPS, step as u32 % STEPS);
                let width = f64::from(1u32 << octave);
                return (f64::from(STEPS + in_octave) + (rank - below) / count) * width;
            }
            below += count;
        }
        0.0
    }

    /// The 95th percentile.
    fn p95(&self) -> f64 {
        self.quantile(0.95)
    }

    /// What the 95th percentile of so many bursts may be without chance: between these two.
    fn p95_range(&self) -> (f64, f64) {
        // The standard error of the part that is below the percentile.
        let error = ERRORS * (0.95 * 0.05 / f64::from(self.bursts.max(1))).sqrt();
        (self.quantile(0.95 - error), self.quantile((0.95 + error).min(1.0)))
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        (self.packets, self.bursts) = (0, 0);
    }

    /// Halves the weight of what was counted: the next comparison sees it still, the one after that hardly.
    fn age(&mut self) {
        self.counts.iter_mut().for_each(|n| *n /= 2);
        self.packets = self.counts.iter().map(|n| u64::from(*n)).sum();
        self.bursts /= 2;
    }
}

/// What work costs packets, beside what is permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// So little that there may be more work.
    Low,
    /// Above four fifths of what is permitted: the level stays, so that it does not go up and down for ever.
    Permitted,
    TooHigh,
    /// Chance may have made the difference.
    Unclear,
}

/// Decides how much work is done at once.
pub(crate) struct Budget {
    percent: u16,
    level: usize,
    /// The lowest level that was too much, for how many cycles it is not tried, and for how many more.
    failed: usize,
    retry: u32,
    barred: u32,
    /// Half of the windows are without work: the level has changed, or what it costs is not clear.
    searches: bool,
    /// Cycles since the last decision.
    cycles: u32,
    /// Windows of this cycle so far, whether this one has work, and when it ends.
    windows: u32,
    works: bool,
    window_ends: Instant,
    random: u64,
    with: Stays,
    without: Stays,
    /// Bursts since the last decision that could have work, and those that were too large for it.
    small: u32,
    full: u32,
    /// The percentiles that were compared last, in nanoseconds, with work and without.
    compared: (u64, u64),
}

impl Budget {
    fn new(percent: u16, now: Instant) -> Self {
        Self {
            percent,
            level: FIRST_LEVEL,
            failed: LEVELS.len(),
            retry: RETRY_CYCLES,
            barred: 0,
            searches: true,
            cycles: 0,
            windows: 0,
            works: false,
            window_ends: now + WINDOW,
            random: 0x9e37_79b9_7f4a_7c15,
            with: Stays::default(),
            without: Stays::default(),
            small: 0,
            full: 0,
            compared: (0, 0),
        }
    }

    fn at_once(&self) -> ReadLevel {
        if self.works { LEVELS[self.level] } else { LEVELS[0] }
    }

    /// Packets of one burst stayed for so long at most: since the look before theirs began.
    fn stayed(&mut self, ns: u64, packets: u32) {
        *(if packets < FULL as u32 { &mut self.small } else { &mut self.full }) += 1;
        if self.works { self.with.add(ns, packets) } else { self.without.add(ns, packets) }
    }

    /// Goes on to the next window, if it is time; after the last one of a cycle the level is judged. Whether that was done.
    fn turn(&mut self, now: Instant) -> bool {
        if now < self.window_ends {
            return false;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let micros = WINDOW.as_micros() as u64;
        self.window_ends = now + Duration::from_micros(micros / 2 + (self.random >> 8) % micros);
        let one_of = if self.searches { SEARCHED } else { SETTLED };
        self.works = !(self.random >> 40).is_multiple_of(one_of);
        self.windows += 1;
        if self.windows < WINDOWS {
            return false;
        }
        self.windows = 0;
        self.barred = self.barred.saturating_sub(1);
        self.cycles += 1;
        let enough = self.with.bursts.min(self.without.bursts) >= BURSTS_MIN;
        if enough {
            self.judge();
        }
        enough
    }

    /// What work costs; `unclear` only if that may still become clear.
    fn cost(&self) -> Cost {
        let permitted = |without: f64| without * (1.0 + f64::from(self.percent) / 100.0);
        let low = |without: f64| without * (1.0 + f64::from(self.percent) / 125.0);
        if self.cycles >= UNCLEAR_CYCLES_MAX {
            let (with, without) = (self.with.p95(), self.without.p95());
            return match with {
                with if with > permitted(without) => Cost::TooHigh,
                with if with > low(without) => Cost::Permitted,
                _ => Cost::Low,
            };
        }
        let ((with_from, with_to), (without_from, without_to)) =
            (self.with.p95_range(), self.without.p95_range());
        match () {
            () if with_from > permitted(without_to) => Cost::TooHigh,
            () if with_to <= low(without_from) => Cost::Low,
            () if with_to <= permitted(without_from) && with_from > low(without_to) => Cost::Permitted,
            () => Cost::Unclear,
        }
    }

    fn judge(&mut self) {
        self.compared = (self.with.p95() as u64, self.without.p95() as u64);
        // Without work there is nothing that could cost too much.
        let cost = if self.level == 0 { Cost::Low } else { self.cost() };
        let before = self.level;
        match cost {
            Cost::Unclear => {
                self.searches = true;
                return;
            }
            Cost::TooHigh => {
                self.retry = if self.failed == self.level {
                    (2 * self.retry).min(RETRY_CYCLES_MAX)
                } else {
                    RETRY_CYCLES
                };
                (self.failed, self.barred) = (self.level, self.retry);
                self.level -= 1;
            }
            Cost::Permitted | Cost::Low => {
                if self.level >= self.failed {
                    self.failed = LEVELS.len();
                }
                let next = self.level + 1;
                // Where most bursts have no work it costs nothing, and says nothing of what more of it would cost when load falls.
                let says = self.small >= self.full;
                if says
                    && cost == Cost::Low
                    && next < LEVELS.len()
                    && (next < self.failed || self.barred == 0)
                {
                    self.level = next;
                }
            }
        }
        (self.cycles, self.small, self.full) = (0, 0, 0);
        self.searches = self.level != before;
        self.without.age();
        if self.searches { self.with.clear() } else { self.with.age() }
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
    /// What the next one finds has come since.
    since: Clock,
    /// Empty looks in windows with work, and pieces of work after them.
    looks: u32,
    pieces: u32,
    /// What a place took in the last piece that was timed.
    place: Duration,
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
            since: Clock::now(),
            looks: 0,
            pieces: 0,
            place: Duration::ZERO,
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

    /// The thread has slept, or done something else: packets of the next look did not stay since the one before.
    pub(crate) fn woke(&mut self) {
        self.looked = Clock::now();
        self.since = self.looked;
    }

    /// Work for the loads of the next burst, of so many packets, if there is any.
    pub(crate) fn in_stalls(&mut self, now: Instant, packets: usize) -> Option<InStalls<'_>> {
        let places = if packets < FULL { self.budget.at_once().stall } else { 0 };
        let survey = self.survey.as_mut().filter(|_| places > 0)?;
        Some(InStalls { survey, now, places, read: &mut self.counters.places_in_stalls })
    }

    /// A look at the sources has brought so many packets, which are sent. Works if there was none. Whether the thread is to look again at
    /// once: in windows without work, too, or packets would wait for it to wake up in one kind of window alone.
    pub(crate) fn looked(&mut self, now: Instant, packets: usize, upf: &UpfU) -> bool {
        if self.survey.is_none() {
            if self.next <= now {
                (self.survey, self.next) = (Some(UsageSurvey::default()), now + self.every);
                self.woke();
            }
            return false;
        }
        let ended = Clock::now();
        if packets > 0 {
            self.budget.stayed(ended.duration_since(self.since).as_nanos() as u64, packets as u32);
        }
        // While packets were decided on, others came.
        self.since = if packets > 0 { self.looked } else { ended };
        self.looked = ended;
        if self.budget.turn(now) {
            self.woke(); // the next packets did not stay because of work
        }
        (self.counters.p95_with_ns, self.counters.p95_without_ns) = self.budget.compared;
        if packets == 0 {
            self.work(now, upf);
        }
        self.budget.level > 0
    }

    /// Reads the next places of the survey, if it is time.
    fn work(&mut self, now: Instant, upf: &UpfU) {
        let ReadLevel { looks, idle: places, .. } = self.budget.at_once();
        let Some(survey) = self.survey.as_mut().filter(|_| places > 0) else { return };
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(looks) {
            return;
        }
        self.pieces = self.pieces.wrapping_add(1);
        let begun = self.pieces.is_multiple_of(TIMED).then(Clock::now);
        let read = upf.session_table().survey(now, survey, places);
        self.counters.places_idle += u64::from(read);
        if let Some(took) = begun.map(|begun| begun.elapsed()) {
            self.counters.idle_ns += took.as_nanos() as u64 * u64::from(TIMED);
            self.place = took / read.max(1);
        }
        self.looked += self.place * read;
        if read < places {
            self.counters.surveys += 1;
            self.counters.usage = survey.sums().to_vec();
            self.survey = None;
        }
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
