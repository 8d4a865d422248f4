//! Datagrams to an initiator and a reflector of S-BFD, whole, changed and forged, while time passes and steps: none is answered with more than it has, and a
//! reflector answers no more than its bound.
//!
//! The input is a sequence of datagrams: what becomes of it, where it comes from, milliseconds, and an octet to change.
#![no_main]

use std::net::SocketAddr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use whimbrel_ids::Instant;
use whimbrel_resilience::sbfd::{
    SBFD_OCTETS, SBFD_PORT, SbfdDiscriminator, SbfdInitiator, SbfdOutbox, SbfdReflector, SbfdTarget, SbfdTiming,
};

fuzz_target!(|octets: &[u8]| {
    let named = |n| SbfdDiscriminator::new(n).expect("not zero");
    let timing = SbfdTiming::new(Duration::from_millis(5), 3).expect("within its bounds");
    let peer = SocketAddr::from(([192, 0, 2, 1], SBFD_PORT));
    let mut now = Instant(1_000_000_000);
    let mut initiator = SbfdInitiator::new(timing, true);
    initiator.watch(now, named(1001), SbfdTarget { address: peer, discriminator: named(1), among: false });
    let mut reflector = SbfdReflector::new(named(1), true);
    let (mut answer, mut received) = ([0; SBFD_OCTETS], 0);
    for [what, from, ms, change] in octets.as_chunks::<4>().0 {
        now = match what & 0x80 {
            0 => now + Duration::from_millis((*ms).into()),
            _ => Instant(now.0.saturating_sub(u64::from(*ms) * 1_000_000)),
        };
        let mut out = SbfdOutbox::default();
        initiator.tick(now, &mut out);
        let from = if *from == 0 { peer } else { SocketAddr::from(([192, 0, 2, *from], SBFD_PORT)) };
        let ttl = (what & 0x40 == 0).then_some(if what & 0x20 == 0 { 255 } else { *ms });
        let mut datagram = out.probes.first().map_or(answer, |(_, probe)| *probe);
        if what & 0x10 != 0 {
            datagram[usize::from(*change) % SBFD_OCTETS] ^= what | 1;
        }
        received += 1;
        if let Some(answered) = reflector.handle(now, from.ip(), ttl, &datagram) {
            answer = answered;
        }
        let of_answer = if what & 8 == 0 { &answer[..] } else { &answer[..usize::from(*change) % SBFD_OCTETS] };
        initiator.receive(now, from, ttl, of_answer, &mut out);
    }
    let (probed, reflected) = (initiator.counters(), reflector.counters());
    assert_eq!(reflected.sent, reflected.accepted);
    assert!(reflected.accepted <= received && probed.accepted <= received);
    let (up, all) = initiator.sessions();
    assert!(up <= all && all == 1);
});
