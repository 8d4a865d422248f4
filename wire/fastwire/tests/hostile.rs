//! Octets from outside: every answer is a message or an error, within bounded work and memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use proptest::prelude::*;
use whimbrel_ids::DecodeErrorKind;
use whimbrel_ngap::fast::{Form, View};
use whimbrel_ngap::{CauseNas, Message, NgReset, ResetType, Source, UeAssociatedLogicalNgConnectionItem};

const FORMS: [Form; 2] = [Form::Plain, Form::SingleValue];

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; the count beside it has no effect on memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|a| a.set(a.get() + layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// All allocations of a decoding together, per octet of the input: an item of a list costs eight octets at least, and
/// its value with the growth of the vector a few hundred at most.
const MULTIPLE: usize = 64;
/// And a fixed part: first small vectors.
const FIXED: usize = 4096;

/// Reads in every way there is; a message that was read can be written in PER.
fn read(octets: &[u8]) {
    for form in FORMS {
        if let Ok(view) = View::new(octets, form) {
            let _ = (view.peek(), view.nas_pdu());
        }
        let before = ALLOCATED.get();
        let message = Message::decode_fast(octets, form);
        let allocated = ALLOCATED.get() - before;
        assert!(allocated <= FIXED + MULTIPLE * octets.len(), "{allocated} octets for {}", octets.len());
        if let Ok(message) = message {
            assert_eq!(Message::decode(&message.to_vec()).as_ref(), Ok(&message));
        }
    }
}

proptest! {
    #[test]
    fn any_octets(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&octets);
    }

    #[test]
    fn changed_messages(seed: u64, changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let message = Message::sample(&mut Source::without_fragments(seed));
        for form in FORMS {
            let mut octets = Vec::new();
            message.encode_fast(form, &mut octets);
            for (at, to) in &changes {
                let at = at % octets.len();
                octets[at] = *to;
            }
            read(&octets);
        }
    }

    #[test]
    fn cut_messages_are_refused(seed: u64, cut: usize) {
        let message = Message::sample(&mut Source::without_fragments(seed));
        for form in FORMS {
            let mut octets = Vec::new();
            message.encode_fast(form, &mut octets);
            let cut = cut % octets.len();
            read(&octets[..cut]);
            // What a last string or table lost may be padding or its closing zero, and no more.
            if cut + 8 < octets.len() {
                prop_assert!(Message::decode_fast(&octets[..cut], form).is_err());
            }
        }
    }
}

/// A list of which every item is the same one, whose lists do the same: what the offsets describe is far more than
/// the octets that came.
#[test]
fn items_that_are_shared_count_each_time() {
    let mut source = Source::without_fragments(7);
    let (mut octets, mut shared) = (Vec::new(), 0);
    while shared < 20 {
        let message = Message::sample(&mut source);
        octets.clear();
        message.encode_fast(Form::Plain, &mut octets);
        // Where a word looks like an offset, let the eight words after it lead to the same place.
        let mut found = false;
        for at in (0..octets.len().saturating_sub(36)).step_by(4) {
            let distance = u32::from_le_bytes(octets[at..at + 4].try_into().unwrap());
            if distance >= 40 && (at + distance as usize) < octets.len() {
                let mut changed = octets.clone();
                for i in 1..9 {
                    let led = distance - 4 * i as u32;
                    changed[at + 4 * i..at + 4 * i + 4].copy_from_slice(&led.to_le_bytes());
                }
                read(&changed);
                let answer = Message::decode_fast(&changed, Form::Plain);
                found |= answer.is_err_and(|e| e.kind == DecodeErrorKind::TooMany);
            }
        }
        shared += usize::from(found);
    }
}

/// As many items as a list may have, each the same empty table: every one counts against what came.
#[test]
fn a_list_of_one_empty_table() {
    let mut octets = Vec::new();
    let item = UeAssociatedLogicalNgConnectionItem { amf_ue_ngap_id: None, ran_ue_ngap_id: None };
    let reset = ResetType::PartOfNgInterface(vec![item; 65_536]);
    Message::from(NgReset::new(CauseNas::Unspecified.into(), reset)).encode_fast(Form::Plain, &mut octets);
    read(&octets);
    // The offsets all lead to the last table now; the other tables are cut off.
    let first = octets.len() - 65_536 * 8;
    for i in 0..65_536 {
        let distance = (65_536 - i) as u32 * 4;
        octets[first + 4 * i..first + 4 * i + 4].copy_from_slice(&distance.to_le_bytes());
    }
    octets.truncate(first + 65_536 * 4 + 4);
    read(&octets);
    assert_eq!(Message::decode_fast(&octets, Form::Plain).unwrap_err().kind, DecodeErrorKind::TooMany);
}

#[test]
fn nothing_is_no_message() {
    for form in FORMS {
        assert!(Message::decode_fast(&[], form).is_err());
        assert!(View::new(&[0; 8], form).is_err());
    }
}
