//! Octets from anywhere: no panic, no hang, and no more memory than a small multiple of what came.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use whimbrel_ngap::{Message, ResetType, peek};

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

fn allocated<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.get();
    let v = f();
    (v, ALLOCATED.get() - before)
}

/// All allocations of a decoding together, per octet of the input: the in-memory form of the densest lists, with the
/// growth of vectors on the way.
const MULTIPLE: usize = 16;
/// And a fixed part: first small vectors, diagnostics.
const FIXED: usize = 2048;

#[track_caller]
fn survives(octets: &[u8]) {
    let _ = peek(octets);
    let (result, n) = allocated(|| Message::decode_with_notices(octets));
    assert!(n <= FIXED + MULTIPLE * octets.len(), "{n} octets for {}: {octets:02x?}", octets.len());
    if let Ok((message, _)) = result {
        let again = message.to_vec();
        assert_eq!(Message::decode(&again).as_ref(), Ok(&message), "{octets:02x?}");
    }
}

/// The random numbers of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn vectors() -> Vec<Vec<u8>> {
    let lines = include_str!("../testdata/vectors.txt").lines().map(|l| l.split('\t').nth(1).unwrap());
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    lines.filter(|h| !h.contains('(')).map(|h| h.as_bytes().chunks(2).map(octet).collect()).collect()
}

#[test]
fn mutated_messages() {
    let mut s = 1;
    for vector in vectors() {
        for _ in 0..200 {
            let mut octets = vector.clone();
            for _ in 0..=next(&mut s) % 4 {
                let at = next(&mut s) as usize % octets.len();
                match next(&mut s) % 4 {
                    0 => octets[at] ^= 1 << (next(&mut s) % 8),
                    1 => octets[at] = next(&mut s) as u8,
                    2 => octets.insert(at, next(&mut s) as u8),
                    _ => {
                        octets.remove(at);
                    }
                }
                if octets.is_empty() {
                    break;
                }
            }
            survives(&octets);
        }
    }
}

#[test]
fn cut_messages() {
    for vector in vectors() {
        for n in 0..vector.len() {
            survives(&vector[..n]);
        }
    }
}

#[test] // The densest list there is: 65536 connections of four bits each, both names absent (TS 38.413 §9.3.3.25)
fn the_densest_message() {
    let mut reset = vec![0x40, 0xc4]; // part of the NG interface; 65536 items as four fragments
    reset.extend(vec![0; 32_768]);
    reset.push(0); // and none after them
    let fragments = |mut v: &[u8]| {
        let mut out = Vec::new();
        while v.len() >= 16_384 {
            let k = (v.len() / 16_384).min(4);
            out.push(0xc0 | k as u8);
            out.extend(&v[..k * 16_384]);
            v = &v[k * 16_384..];
        }
        out.extend((0x8000 | v.len() as u16).to_be_bytes());
        out.extend(v);
        out
    };
    let mut content = vec![0, 0, 1, 0, 88, 0];
    content.extend(fragments(&reset));
    let mut octets = vec![0, 20, 0];
    octets.extend(fragments(&content));
    let (result, n) = allocated(|| Message::decode(&octets));
    let Ok(Message::NgReset(m)) = result else { panic!() };
    let ResetType::PartOfNgInterface(connections) = &m.reset_type else { panic!() };
    assert_eq!(connections.len(), 65_536);
    let message = Message::from(m);
    assert_eq!(Message::decode(&message.to_vec()), Ok(message));
    assert!(n < 128 * octets.len(), "{n} octets for {}", octets.len());
}

#[test]
fn random_octets() {
    let mut s = 2;
    for _ in 0..20_000 {
        let n = next(&mut s) as usize % 200;
        let mut octets: Vec<u8> = (0..n).map(|_| next(&mut s) as u8).collect();
        // Half of them begin like a message, so that they get further.
        if n > 6 && n.is_multiple_of(2) {
            octets[0] &= 0x60;
            octets[1] %= 64;
            octets[2] &= 0xc0;
            octets[3] = (n - 4) as u8 & 0x7f;
            octets[4] = 0;
            octets[5] = 0;
        }
        survives(&octets);
    }
}
