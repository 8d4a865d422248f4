//! The flows of later fragments: they have no ports, so the verdict on the first one is stored (RFC 4787 §11).
//!
//! Fragments that arrive before their first one are dropped and counted. An entry may be overwritten by another packet's.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_ids::Instant;

use super::flows::Hash;
use crate::limits::FRAGMENTED_MAX;
use crate::pipeline::inner::{InnerPacket, protocol};

/// How long later fragments are accepted: the minimum reassembly time of a host (RFC 1122 §3.3.2).
const WAIT: Duration = Duration::from_secs(60);

/// A fragment of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipeline) struct Fragment {
    pub(in crate::pipeline) identification: u32,
    pub(in crate::pipeline) is_first: bool,
}

impl Fragment {
    /// The fragment that an IP packet is; `None` if it is unfragmented.
    pub(in crate::pipeline) fn of(p: &[u8], inner: &InnerPacket) -> Option<Self> {
        match inner.source {
            IpAddr::V4(_) => {
                let word = |at: usize| p.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
                let (identification, field) = (u32::from(word(4)?), word(6)?);
                // More fragments, or an offset.
                (field & 0x3fff != 0).then_some(Self { identification, is_first: field & 0x1fff == 0 })
            }
            IpAddr::V6(_) if inner.payload_at > 40 => Self::of_ipv6(p, inner),
            IpAddr::V6(_) => None,
        }
    }

    fn of_ipv6(p: &[u8], inner: &InnerPacket) -> Option<Self> {
        let (mut header, mut at) = (*p.get(6)?, 40);
        while at < inner.payload_at {
            if header == protocol::FRAGMENT {
                let rest: &[u8; 8] = p.get(at..)?.first_chunk()?;
                let field = u16::from_be_bytes([rest[2], rest[3]]);
                let identification = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
                // Without offset and more-fragments flag it is an atomic fragment (RFC 6946).
                return (field & !6 != 0).then_some(Self { identification, is_first: field >> 3 == 0 });
            }
            (header, at) = (*p.get(at)?, at + (usize::from(*p.get(at + 1)?) + 1) * 8);
        }
        None
    }
}

/// The verdict on the first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// The translated address, if any: the source of a UE's packet, the destination of one to it.
    pub(super) address: Option<IpAddr>,
}

/// A packet whose later fragments are awaited.
#[derive(Clone, Copy)]
struct AwaitedFragments {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    protocol: u8,
    until: Instant,
    session: u32,
    /// The session's generation when the first fragment passed.
    life: u32,
    word: Word,
}

/// All of them.
pub(super) struct Fragments {
    hash: Hash,
    places: Box<[Option<AwaitedFragments>]>,
    /// Generation of each session's index.
    lives: Vec<u32>,
}

impl Fragments {
    pub(super) fn new(hash: Hash) -> Self {
        Self { hash, places: vec![None; FRAGMENTED_MAX].into(), lives: Vec::new() }
    }

    /// Allocates for a session, not while a packet is processed.
    pub(super) fn welcome(&mut self, session: u32) {
        let needed = session as usize + 1;
        if self.lives.len() < needed {
            self.lives.resize(needed, 0);
        }
    }

    /// Forgets a session's fragments: its addresses may be another's from now on.
    pub(super) fn forget(&mut self, session: u32) {
        if let Some(life) = self.lives.get_mut(session as usize) {
            *life = life.wrapping_add(1);
        }
    }

    fn life(&self, session: u32) -> u32 {
        self.lives.get(session as usize).copied().unwrap_or(0)
    }

    fn place(&self, inner: &InnerPacket, f: Fragment) -> usize {
        let halves = |a: IpAddr| match a {
            IpAddr::V4(a) => (u64::from(a.to_bits()), 0),
            IpAddr::V6(a) => (a.to_bits() as u64, (a.to_bits() >> 64) as u64),
        };
        let ((a, b), (c, d)) = (halves(inner.source), halves(inner.destination));
        let word = u64::from(f.identification) << 8 | u64::from(inner.protocol);
        self.hash.of(&[a, b, c, d, word]) as usize % self.places.len()
    }

    /// The first fragment has passed, of this session.
    pub(super) fn passed(
        &mut self,
        now: Instant,
        inner: &InnerPacket,
        f: Fragment,
        session: u32,
        word: Word,
    ) {
        let at = self.place(inner, f);
        self.places[at] = Some(AwaitedFragments {
            source: inner.source,
            destination: inner.destination,
            identification: f.identification,
            protocol: inner.protocol,
            until: now + WAIT,
            session,
            life: self.life(session),
            word,
        });
    }

    /// The verdict for a later fragment, from its first one.
    pub(super) fn find(&self, now: Instant, inner: &InnerPacket, f: Fragment) -> Option<Word> {
        let a = self.places[self.place(inner, f)].as_ref()?;
        let is = a.source == inner.source
            && a.destination == inner.destination
            && (a.identification, a.protocol) == (f.identification, inner.protocol)
            && self.life(a.session) == a.life
            && now < a.until;
        is.then_some(a.word)
    }
}
