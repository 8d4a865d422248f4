//! The ports of later fragments, which show none: the first fragment of their packet leaves word.
//!
//! Only of sessions with a rule that asks for ports. A later fragment that comes before its first is one without ports, as it would be
//! without this; so is one whose place another packet has taken.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_ids::Instant;

use super::firewall::Fragment;
use super::inner::InnerPacket;
use crate::limits::PORTS_AWAITED_MAX;
use crate::session_id::{SessionId, mix};

/// Time for the later fragments: as long as a host waits at least (RFC 1122 §3.3.2).
const WAIT: Duration = Duration::from_secs(60);

/// A packet in fragments. Its identification is chosen by its sender, so the other fields that distinguish it are compared too.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Whole {
    session: SessionId,
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    protocol: u8,
}

/// What a first fragment has shown.
#[derive(Clone, Copy)]
struct FirstFragment {
    whole: Whole,
    ports: (u16, u16),
    until: Instant,
}

/// What first fragments have shown.
pub(super) struct Fragments {
    seed: u64,
    /// Made with the first of them.
    places: Box<[Option<FirstFragment>]>,
}

impl Fragments {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, places: [].into() }
    }

    fn place(&self, whole: &Whole) -> usize {
        let fold = |a: IpAddr| match a {
            IpAddr::V4(a) => a.to_bits().into(),
            IpAddr::V6(a) => (a.to_bits() >> 64) as u64 ^ mix(a.to_bits() as u64),
        };
        let word = u64::from(whole.identification) << 8 | u64::from(whole.protocol);
        let ends = mix(fold(whole.source)) ^ fold(whole.destination);
        mix(self.seed ^ mix(ends ^ mix(word)) ^ u64::from(whole.session.index)) as usize % PORTS_AWAITED_MAX
    }

    /// The ports of a packet that is a later fragment, if its first has come. A first one leaves its own.
    #[cold]
    pub(super) fn ports(
        &mut self,
        now: Instant,
        session: SessionId,
        inner: &InnerPacket,
        packet: &[u8],
    ) -> Option<(u16, u16)> {
        let fragment = Fragment::of(packet, inner)?;
        let whole = Whole {
            session,
            source: inner.source,
            destination: inner.destination,
            identification: fragment.identification,
            protocol: inner.protocol,
        };
        let at = self.place(&whole);
        if !fragment.is_first {
            let shown = self.places.get(at)?.as_ref()?;
            return (shown.whole == whole && now < shown.until).then_some(shown.ports);
        }
        let ports = inner.ports()?;
        if self.places.is_empty() {
            self.places = vec![None; PORTS_AWAITED_MAX].into();
        }
        self.places[at] = Some(FirstFragment { whole, ports, until: now + WAIT });
        None
    }
}
