//! Slow memory that is real: a file, whose pages the kernel drops and reads again.

#![allow(clippy::disallowed_methods, reason = "what is waited for is the kernel's writing to a disk")]

use std::thread::sleep;
use std::time::Duration;

use whimbrel_memory::{Activation, Backing, Config, Heap, Owner, REGION_OCTETS, RecordLocation, Slice};

const RECORDS: u32 = 100_000;

fn record(owner: Owner) -> [u8; 200] {
    let mut octets = [owner as u8; 200];
    octets[..4].copy_from_slice(&owner.to_be_bytes());
    octets
}

fn cycles(heap: &mut Heap, table: &mut [RecordLocation], cycles: usize) {
    let mut ended = 0;
    while ended < cycles {
        let slice = heap.colocate(5_000, |owner, place| table[owner as usize] = place);
        ended += usize::from(slice != Slice::Unfinished);
    }
}

/// Records in a file, and fast memory for a tenth of them: paged out, as far as the kernel does it.
fn paged_out() -> (tempfile::TempDir, Heap, Vec<RecordLocation>) {
    // A file in the target folder: /tmp may be in memory, where nothing can be paged out to.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let config = Config::new(REGION_OCTETS as u64, Backing::File(folder.path().join("heap")));
    let mut heap = Heap::new(config, Activation::one_in(1)).expect("a heap");
    let mut table: Vec<RecordLocation> =
        (0..RECORDS).map(|owner| heap.insert(owner, &record(owner)).expect("room")).collect();
    // The kernel writes the pages while cycles go on, and drops them when they are written.
    for _ in 0..1_000 {
        cycles(&mut heap, &mut table, 1);
        if heap.stats().slow_octets >= 8 * REGION_OCTETS as u64 {
            return (folder, heap, table);
        }
        sleep(Duration::from_millis(10));
    }
    panic!("the kernel has not paged out what was written: {:?}", heap.stats());
}

#[test]
fn records_are_paged_out_and_read_again() {
    let (_folder, mut heap, table) = paged_out();
    for owner in 0..RECORDS {
        assert_eq!(heap.read(owner, table[owner as usize]).expect("it is there"), record(owner));
    }
    heap.check();
}

#[test]
fn a_scan_touches_no_page_that_is_paged_out() {
    let (_folder, mut heap, mut table) = paged_out();
    let before = heap.resident_octets();
    assert!(
        before < heap.stats().slow_octets / 2,
        "most of what counts as slow is not in memory: {before} octets are"
    );
    cycles(&mut heap, &mut table, 3);
    assert!(heap.resident_octets() <= before, "a colocation cycle read paged-out memory");
}

#[test]
fn a_record_that_is_read_in_slow_memory_moves_to_fast_memory() {
    let (_folder, mut heap, mut table) = paged_out();
    // Which regions the kernel has paged out by now is its choice: the first record in one of them.
    let owner = (0..RECORDS)
        .find(|&owner| {
            assert!(heap.read(owner, table[owner as usize]).is_ok());
            heap.stats().slow_reads == 1
        })
        .expect("a record in slow memory");
    cycles(&mut heap, &mut table, 1);
    assert!(heap.read(owner, table[owner as usize]).is_ok());
    assert_eq!(heap.stats().slow_reads, 1, "the second read is from fast memory");
}

#[test]
fn a_backing_file_that_cannot_be_made_is_an_error() {
    let config = Config::new(0, Backing::File("/nonexistent/heap".into()));
    assert!(Heap::new(config, Activation::one_in(1)).is_err());
}
