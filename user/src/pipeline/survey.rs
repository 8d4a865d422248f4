//! The usage survey: what all sessions have carried, added up by data network, a few sessions at a time.
//!
//! No packet waits for it, so the packet thread does it where it has nothing else to do: between two empty looks at its sources, or
//! while the memory of a burst is being loaded ([`StageObserver::loading`](super::StageObserver::loading)). It only reads.

use std::time::Duration;

use whimbrel_ids::Instant;

use super::UpfU;
use super::sessions::Sessions;
use crate::config::DnIndex;

/// A session is active if a packet has passed within this time.
pub const ACTIVE_WITHIN: Duration = Duration::from_secs(60);
/// So many sessions ahead of the one that is read are loaded, and twice as many ahead their places in the table: a survey that reads one session
/// at a time, between looks at the sources, has nothing of what the processor loads ahead by itself. Packets need some line fill buffers, too.
const AHEAD: u32 = 8;

/// What the sessions of one data network have carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkUsage {
    /// Sessions that stand.
    pub sessions: u64,
    /// Those with a packet within [`ACTIVE_WITHIN`].
    pub active: u64,
    /// Octets of packets from UEs since the sessions began.
    pub ul_octets: u64,
    /// Octets of packets to UEs.
    pub dl_octets: u64,
}

impl NetworkUsage {
    /// Adds what the sessions of another packet thread have carried.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.active += other.active;
        self.ul_octets += other.ul_octets;
        self.dl_octets += other.dl_octets;
    }
}

/// A round over all sessions, and how far it has come.
#[derive(Clone, Debug, Default)]
pub struct UsageSurvey {
    next: u32,
    sums: Vec<NetworkUsage>,
}

impl UsageSurvey {
    /// What was added up so far, by data network in the order of the configuration, up to the last one with a session.
    pub fn sums(&self) -> &[NetworkUsage] {
        &self.sums
    }

    fn sum(&mut self, network: DnIndex) -> &mut NetworkUsage {
        let at = usize::from(network.0);
        if at >= self.sums.len() {
            self.sums.resize(at + 1, NetworkUsage::default());
        }
        &mut self.sums[at]
    }
}

/// The sessions of a pipeline, to be read.
#[derive(Clone, Copy)]
pub struct SessionTable<'u>(&'u Sessions);

impl<'u> SessionTable<'u> {
    pub(super) fn new(sessions: &'u Sessions) -> Self {
        Self(sessions)
    }

    /// Adds up the next places of the table, at most so many. Returns how many there were: fewer than asked for at the end of the round.
    pub fn survey(self, now: Instant, survey: &mut UsageSurvey, places: u32) -> u32 {
        let end = survey.next.saturating_add(places).min(self.0.places());
        for place in survey.next..end {
            self.0.prefetch_place(place + 2 * AHEAD);
            self.0.prefetch_usage(place + AHEAD);
            let Some((network, last_packet, counted)) = self.0.usage_at(place) else { continue };
            let sum = survey.sum(network);
            sum.sessions += 1;
            sum.active += u64::from(now.since(last_packet) < ACTIVE_WITHIN);
            sum.ul_octets += counted.ul_octets;
            sum.dl_octets += counted.dl_octets;
        }
        let read = end - survey.next;
        survey.next = end;
        read
    }
}

impl UpfU {
    /// Its sessions, to be read.
    pub fn session_table(&self) -> SessionTable<'_> {
        SessionTable::new(&self.sessions)
    }
}
