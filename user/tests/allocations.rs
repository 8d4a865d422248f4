//! Packets that pass, or are dropped, take no memory from the allocator and give none back: whatever their session's rules are.

use super::common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::SessionEstablishmentRequest;
use whimbrel_user::*;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts calls by thread.
struct Counting;

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are the callee's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        CALLS.with(|n| n.set(n.get() + 1));
        // SAFETY: likewise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Packets of both ways that pass, and one that uses an address that is not its own.
fn slots(s: &Session) -> Vec<BurstPacket> {
    let ue = s.ipv4.unwrap();
    let slot = |(origin, octets): (Origin, Vec<u8>)| {
        let mut packet = Packet::with_room(2048);
        packet.fill(&octets);
        BurstPacket { origin, packet, verdict: PacketVerdict::Pending }
    };
    let both = (0..30).flat_map(|n| {
        let up = udp4(ue, SERVER, (7, 5_000 + n), 100);
        let down = udp4(SERVER, ue, (5_000 + n, 7), 100);
        [(from_gnb(), g_pdu(s.teid, 1, &up)), (Origin::N6 { dn: DnIndex(0) }, down)]
    });
    let spoofed = g_pdu(s.teid, 1, &udp4(SERVER, ue, (1, 2), 0));
    both.chain([(from_gnb(), spoofed)]).map(slot).collect()
}

/// Calls of the allocator in many bursts of a session's packets, behind some that warm up; and how many packets passed.
fn calls(m: SessionEstablishmentRequest) -> (u64, u64) {
    let mut net = Net::new();
    let r = net.establish(m);
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let mut slots = slots(&s);
    let fresh: Vec<_> = slots.iter().map(|slot| slot.packet.octets().to_vec()).collect();
    assert!(CALLS.with(Cell::get) > 0, "they are counted");
    let mut burst = |net: &mut Net| {
        for (slot, octets) in slots.iter_mut().zip(&fresh) {
            slot.packet.fill(octets);
            slot.verdict = PacketVerdict::Pending;
        }
        net.now = Instant(net.now.0 + 1_000);
        let before = CALLS.with(Cell::get);
        net.upf.u.only().expect("one pipeline").burst(net.now, &mut slots);
        let after = CALLS.with(Cell::get);
        (after - before, slots.iter().filter(|s| matches!(s.verdict, PacketVerdict::Send(_))).count() as u64)
    };
    for _ in 0..10 {
        burst(&mut net);
    }
    (0..200).map(|_| burst(&mut net)).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[test]
fn packets_of_a_plain_session_allocate_nothing() {
    assert_eq!(calls(smf_establishment(1, true, false)), (0, 200 * 60));
}

#[test]
fn packets_of_a_session_with_two_rates_allocate_nothing() {
    let mut m = smf_establishment(1, true, false);
    m.create_qers[1].mbr = Some(QerBitRate { ul_kbps: 1_000_000, dl_kbps: 1_000_000 });
    assert_eq!(calls(m), (0, 200 * 60));
}

#[test] // few, asked one after the other; some, remembered by flow; many, with an index
fn packets_of_a_session_with_filters_allocate_nothing() {
    for filters in [1, 8, 15] {
        let mut m = smf_establishment(1, true, false);
        for at in 0..2 {
            let mut pdr = m.create_pdrs[at].clone();
            (pdr.pdr_id, pdr.precedence) = (PdrId(3 + at as u16), Precedence(100));
            let filter = |port| SdfFilter::flow(&format!("permit out 17 from any {port} to assigned"));
            pdr.pdi.sdf_filters = (5_010..5_010 + filters).map(filter).collect();
            m.create_pdrs.push(pdr);
        }
        assert_eq!(calls(m), (0, 200 * 60), "{filters} filters");
    }
}
