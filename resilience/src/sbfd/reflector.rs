//! The reflector (RFC 7880 §7.2): one session that answers all initiators.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::time::Duration;

use whimbrel_bfd::{ControlPacket, Diagnostic, Discriminator, OCTETS, State};
use whimbrel_ids::Instant;

use super::{SBFD_TTL, SbfdCounters, SbfdDrop, SbfdTiming};

/// Probes of one source that are answered at once, and each second: two initiators of a host at the shortest interval, and as much again.
const BURST: u32 = 400;
const PER_SECOND: u32 = 4_000;
/// Sources whose rate is known; the others share one. A cluster has tens of initiators.
const SOURCES_MAX: usize = 256;
/// A source that sends nothing for so long is forgotten when there are too many.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);
/// How often it is looked for such sources, at most: a flood from many addresses costs one look a second.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// What a source may still send.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// Thousandths of a probe.
    left: u64,
    at: Instant,
}

impl Allowance {
    fn full(now: Instant) -> Self {
        Self { left: u64::from(BURST) * 1000, at: now }
    }

    /// Whether one more probe is answered.
    fn take(&mut self, now: Instant) -> bool {
        let us = now.since(self.at).as_micros().min(1_000_000) as u64;
        self.left = (self.left + us * u64::from(PER_SECOND) / 1000).min(u64::from(BURST) * 1000);
        self.at = now;
        let takes = self.left >= 1000;
        self.left -= if takes { 1000 } else { 0 };
        takes
    }
}

/// Answers the probes to one discriminator.
#[derive(Debug)]
pub struct SbfdReflector {
    discriminator: Discriminator,
    in_service: bool,
    one_link: bool,
    sources: BTreeMap<IpAddr, Allowance>,
    others: Allowance,
    swept: Instant,
    counters: SbfdCounters,
}

impl SbfdReflector {
    /// `one_link`: initiators are on the links of this node, so probes with another TTL than 255 are forged (RFC 5082).
    pub fn new(discriminator: Discriminator, one_link: bool) -> Self {
        Self {
            discriminator,
            in_service: true,
            one_link,
            sources: BTreeMap::new(),
            others: Allowance::full(Instant::ZERO),
            swept: Instant::ZERO,
            counters: SbfdCounters::default(),
        }
    }

    /// Whether the node is in service: answers say Up, or AdminDown (RFC 7880 §7.2.2).
    pub fn set_in_service(&mut self, in_service: bool) {
        self.in_service = in_service;
    }

    /// Takes a datagram; returns the answer, to be sent to where it came from. `ttl`: that of its packet, as far as the system says.
    pub fn handle(
        &mut self,
        now: Instant,
        source: IpAddr,
        ttl: Option<u8>,
        octets: &[u8],
    ) -> Option<[u8; OCTETS]> {
        match self.answer(now, source, ttl, octets) {
            Ok(answer) => {
                self.counters.accepted += 1;
                self.counters.sent += 1;
                Some(answer.to_octets())
            }
            Err(why) => {
                self.counters.drop(why);
                None
            }
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        source: IpAddr,
        ttl: Option<u8>,
        octets: &[u8],
    ) -> Result<ControlPacket, SbfdDrop> {
        if !self.may_send(now, source) {
            return Err(SbfdDrop::Rate);
        }
        if self.one_link && ttl.is_some_and(|ttl| ttl != SBFD_TTL) {
            return Err(SbfdDrop::Ttl);
        }
        let probe = ControlPacket::parse(octets).map_err(SbfdDrop::Invalid)?;
        if !probe.demand {
            return Err(SbfdDrop::Direction);
        }
        if probe.yours != Some(self.discriminator) {
            return Err(SbfdDrop::Discriminator);
        }
        Ok(ControlPacket {
            diagnostic: Diagnostic::NONE,
            state: if self.in_service { State::Up } else { State::AdminDown },
            poll: false,
            r#final: probe.poll,
            control_plane_independent: false,
            demand: false,
            multiplier: probe.multiplier,
            mine: self.discriminator,
            yours: Some(probe.mine),
            desired_min_tx_us: probe.desired_min_tx_us,
            required_min_rx_us: SbfdTiming::INTERVAL_MIN.as_micros() as u32,
            required_min_echo_rx_us: 0,
        })
    }

    fn may_send(&mut self, now: Instant, source: IpAddr) -> bool {
        if let Some(known) = self.sources.get_mut(&source) {
            return known.take(now);
        }
        if self.sources.len() >= SOURCES_MAX && now >= self.swept + SWEPT_EVERY {
            self.swept = now;
            self.sources.retain(|_, known| now < known.at + FORGOTTEN_AFTER);
        }
        if self.sources.len() >= SOURCES_MAX {
            return self.others.take(now);
        }
        self.sources.entry(source).or_insert(Allowance::full(now)).take(now)
    }

    /// What went over its socket.
    pub fn counters(&self) -> SbfdCounters {
        self.counters
    }
}

/// A multiplier that is not zero.
pub(super) fn nonzero(multiplier: u8) -> NonZeroU8 {
    NonZeroU8::new(multiplier).unwrap_or(NonZeroU8::MIN)
}
