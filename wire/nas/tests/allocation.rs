//! Reading never takes more memory than a small multiple of what was received.

use super::common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::unhex;
use whimbrel_ids::Reader;
use whimbrel_nas::ie::{ExtendedPco, MultiplePayloads, PcoDirection, QosFlowDescriptions, QosRules};
use whimbrel_nas::{Ie, mm, sm};

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting what is asked of it.
struct Counting;

// SAFETY: every call is handed on to `System` unchanged; counting touches a plain cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|a| a.set(a.get() + layout.size()));
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Octets that may be allocated in all, freed or not, for each octet received: a match-all component of one octet
/// becomes a value of 18, and a growing vector is allocated about twice over.
const PER_OCTET: usize = 64;

fn allocated_by(octets: &[u8]) -> usize {
    let before = ALLOCATED.with(Cell::get);
    drop(mm::Message::decode(octets));
    drop(sm::Message::decode(octets));
    drop(QosRules::decode(&mut Reader::new(octets)).map(|r| r.rules()));
    drop(QosFlowDescriptions::decode(&mut Reader::new(octets)).map(|f| f.flows()));
    drop(MultiplePayloads::decode(&mut Reader::new(octets)));
    let _ = ExtendedPco::decode(&mut Reader::new(octets)).map(|p| p.containers(PcoDirection::ToUe).count());
    ALLOCATED.with(Cell::get) - before
}

#[test]
fn reading_is_bounded_by_what_was_received() {
    let vectors = include_str!("../testdata/vectors.txt").lines().filter(|l| !l.starts_with('#'));
    let mut inputs: Vec<Vec<u8>> = vectors.map(|l| unhex(l.split(' ').next().unwrap())).collect();
    // Messages that are all of one element, as small as it comes, and lengths that promise more than there is.
    for filler in 0..=255u8 {
        for head in [&[0x7e, 0, 0x41, 0x79, 0, 1, 0][..], &[0x7e, 0, 0x42, 1, 1], &[0x2e, 5, 1, 0xcb], &[]] {
            let mut message = head.to_vec();
            message.resize(4000, filler);
            inputs.push(message);
        }
        // A QoS rule of match-all components, and a container that claims 255 entries.
        inputs.push([&[1, 0x0f, 0xa0, 0x2f][..], &[0x31, 0xff].repeat(8), &vec![1; 4000]].concat());
        inputs.push([&[255][..], &[0, 1, filler].repeat(255)].concat());
    }
    for input in inputs {
        let allocated = allocated_by(&input);
        let bound = PER_OCTET * input.len() + 4096;
        assert!(
            allocated <= bound,
            "{allocated} octets for {} received: {:02x?}",
            input.len(),
            &input[..8.min(input.len())]
        );
    }
}
