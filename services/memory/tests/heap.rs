//! The heap against a simple model: a table of owners, with a copy of each record.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_memory::{
    Activation, Backing, Config, Device, Error, Heap, Owner, REGION_OCTETS, RecordLocation, Slice,
};

#[derive(Clone, Debug)]
enum Op {
    Insert {
        len: usize,
    },
    Replace {
        owner: usize,
        len: usize,
    },
    Remove {
        owner: usize,
    },
    Read {
        owner: usize,
        times: usize,
    },
    Colocate {
        records: usize,
    },
    /// Whether the device has room from now on.
    Device {
        full: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..40_000usize).prop_map(|len| Op::Insert { len }),
        2 => (any::<usize>(), 0..40_000usize).prop_map(|(owner, len)| Op::Replace { owner, len }),
        2 => any::<usize>().prop_map(|owner| Op::Remove { owner }),
        3 => (any::<usize>(), 1..300usize).prop_map(|(owner, times)| Op::Read { owner, times }),
        3 => (1..6000usize).prop_map(|records| Op::Colocate { records }),
        1 => any::<bool>().prop_map(|full| Op::Device { full }),
    ]
}

/// The caller of a heap: its table, and what each record should hold.
struct Model {
    heap: Heap,
    table: BTreeMap<Owner, (RecordLocation, Vec<u8>)>,
    next: Owner,
    device: Arc<Disk>,
}

/// A device whose faults the test decides.
#[derive(Debug, Default)]
struct Disk {
    octets: Mutex<Vec<u8>>,
    full: AtomicBool,
    unreadable: AtomicBool,
}

impl Device for Disk {
    fn write(&self, offset: u64, octets: &[u8]) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (from, to) = (offset as usize, offset as usize + octets.len());
        let mut disk = self.octets.lock().expect("no test panics here");
        let len = disk.len().max(to);
        disk.resize(len, 0);
        disk[from..to].copy_from_slice(octets);
        Ok(())
    }

    fn read(&self, offset: u64, octets: &mut [u8]) -> io::Result<()> {
        if self.unreadable.load(Ordering::Relaxed) {
            return Err(io::Error::other("EIO"));
        }
        let disk = self.octets.lock().expect("no test panics here");
        octets.copy_from_slice(&disk[offset as usize..][..octets.len()]);
        Ok(())
    }
}

impl Model {
    fn new(config: Config) -> Self {
        let heap = Heap::new(config, Activation::one_in(1)).expect("a heap");
        Self { heap, table: BTreeMap::new(), next: 0, device: Arc::default() }
    }

    /// With a device for cold regions, and fast memory for two regions.
    fn on_disk() -> Self {
        let device = Arc::<Disk>::default();
        let config = Config { backing: Backing::Device(device.clone()), ..crowded() };
        Self { device, ..Self::new(config) }
    }

    /// Cycles until something holds: regions are written in a thread of the heap.
    fn cycles_until(&mut self, holds: impl Fn(&Heap) -> bool) {
        for _ in 0..100_000 {
            self.cycles(1);
            if holds(&self.heap) {
                return;
            }
            std::thread::yield_now();
        }
        panic!("{:?}", self.heap.stats());
    }

    fn octets(&mut self, len: usize) -> Vec<u8> {
        self.next += 1;
        (0..len).map(|i| (i as u32 ^ self.next.wrapping_mul(2_654_435_761)) as u8).collect()
    }

    fn insert(&mut self, len: usize) -> Owner {
        let octets = self.octets(len);
        let owner = self.next;
        let place = self.heap.insert(owner, &octets).expect("room");
        self.table.insert(owner, (place, octets));
        owner
    }

    fn read(&mut self, owner: Owner) {
        let (place, octets) = &self.table[&owner];
        assert_eq!(self.heap.read(owner, *place).expect("it is there"), octets);
    }

    fn colocate(&mut self, records: usize) -> Slice {
        let table = &mut self.table;
        self.heap.colocate(records, |owner, place| table.get_mut(&owner).expect("a live owner").0 = place)
    }

    /// Runs whole cycles of the model.
    fn cycles(&mut self, cycles: usize) {
        let mut ended = 0;
        while ended < cycles {
            ended += usize::from(matches!(self.colocate(5_000), Slice::Finished(_)));
        }
    }

    fn pick(&self, number: usize) -> Option<Owner> {
        self.table.keys().nth(number % self.table.len().max(1)).copied()
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Insert { len } => {
                self.insert(len);
            }
            Op::Replace { owner, len } => {
                let Some(owner) = self.pick(owner) else { return };
                let octets = self.octets(len);
                let place = self.heap.replace(owner, self.table[&owner].0, &octets).expect("room");
                self.table.insert(owner, (place, octets));
            }
            Op::Remove { owner } => {
                let Some(owner) = self.pick(owner) else { return };
                let (place, _) = self.table.remove(&owner).expect("picked");
                self.heap.remove(owner, place).expect("it is there");
                assert!(matches!(self.heap.read(owner, place), Err(Error::NotHere { .. })), "it is gone");
            }
            Op::Read { owner, times } => {
                let Some(owner) = self.pick(owner) else { return };
                (0..times).for_each(|_| self.read(owner));
            }
            Op::Colocate { records } => {
                self.colocate(records);
            }
            Op::Device { full } => self.device.full.store(full, Ordering::Relaxed),
        }
    }

    fn check(&mut self) {
        self.heap.check();
        assert_eq!(self.heap.stats().records, self.table.len() as u64);
        self.table.keys().copied().collect::<Vec<_>>().into_iter().for_each(|owner| self.read(owner));
    }
}

/// Little fast memory, and swap whether the host has any or not: regions count as paged out, and all paths run.
fn crowded() -> Config {
    Config { decay_cycles: 2, ..Config::new(2 * REGION_OCTETS as u64, Backing::Swap) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_is_read_as_it_was_written_wherever_it_is(ops in vec(op(), 1..600)) {
        let mut model = Model::new(crowded());
        ops.iter().for_each(|op| model.apply(op));
        model.check();
    }

    #[test]
    fn every_record_is_read_as_it_was_written_while_regions_go_to_a_device_that_is_full_at_times(
        ops in vec(op(), 1..600)
    ) {
        let mut model = Model::on_disk();
        ops.iter().for_each(|op| model.apply(op));
        model.check();
    }
}

/// Ten regions of records on a device, but for two.
fn mostly_on_disk() -> (Model, Vec<Owner>) {
    let mut model = Model::on_disk();
    let owners: Vec<Owner> = (0..50_000).map(|_| model.insert(400)).collect();
    model.cycles_until(|heap| heap.stats().slow_octets >= 8 * REGION_OCTETS as u64);
    (model, owners)
}

#[test]
fn a_region_that_a_device_has_takes_no_memory_and_its_records_are_read_moved_and_removed() {
    let (mut model, owners) = mostly_on_disk();
    assert_eq!(model.heap.stats().slow_octets, 8 * REGION_OCTETS as u64);
    assert!(model.heap.resident_octets() <= 3 * REGION_OCTETS as u64);
    model.check();
    for owner in owners.iter().step_by(3) {
        let (place, _) = model.table.remove(owner).expect("inserted");
        model.heap.remove(*owner, place).expect("it is there");
        assert!(matches!(model.heap.read(*owner, place), Err(Error::NotHere { .. })), "it is gone");
        assert!(matches!(model.heap.peek(*owner, place), Err(Error::NotHere { .. })), "it is gone");
    }
    for owner in owners.iter().skip(1).step_by(30) {
        model.apply(&Op::Replace { owner: *owner as usize, len: 300 });
    }
    let before = model.heap.stats();
    assert!(before.slow_reads >= 20_000, "{before:?}");
    model.cycles(2);
    assert!(model.heap.stats().moved > before.moved, "records that were read come to fast memory");
    model.check();
}

#[test]
fn a_device_that_is_full_costs_fast_memory_and_no_record() {
    let mut model = Model::on_disk();
    model.device.full.store(true, Ordering::Relaxed);
    for _ in 0..50_000 {
        model.insert(400);
    }
    model.cycles_until(|heap| heap.stats().write_errors >= 8);
    let stats = model.heap.stats();
    assert_eq!((stats.slow_octets, stats.paged_out), (0, 0));
    model.cycles(5);
    assert_eq!(model.heap.stats().write_errors, 8, "it is not asked again in every cycle");
    model.check();
    model.device.full.store(false, Ordering::Relaxed);
    model.cycles_until(|heap| heap.stats().slow_octets >= 8 * REGION_OCTETS as u64);
    model.check();
}

#[test]
fn a_record_that_a_device_cannot_read_is_lost_and_the_others_are_not() {
    let (mut model, owners) = mostly_on_disk();
    let slow = |model: &Model, owner: &&Owner| model.heap.is_slow(model.table[*owner].0);
    let (fast, cold) = owners.iter().partition::<Vec<Owner>, _>(|owner| !slow(&model, owner));
    model.device.unreadable.store(true, Ordering::Relaxed);
    let place = model.table[&cold[0]].0;
    assert!(matches!(model.heap.read(cold[0], place), Err(Error::Unreadable(_))));
    assert!(matches!(model.heap.peek(cold[0], place), Err(Error::Unreadable(_))));
    assert_eq!(model.heap.stats().read_errors, 1);
    // A record that is written again is in memory.
    let new = model.heap.replace(cold[0], place, b"new").expect("room");
    assert_eq!(model.heap.read(cold[0], new).expect("it is there"), b"new");
    model.heap.remove(cold[1], model.table[&cold[1]].0).expect("it is of no use");
    fast.iter().for_each(|owner| model.read(*owner));
    model.insert(700);
    model.device.unreadable.store(false, Ordering::Relaxed);
    cold[2..].iter().for_each(|owner| model.read(*owner));
    assert_eq!(model.heap.stats().records, 50_000);
}

#[test]
fn a_slice_moves_a_bounded_number_of_records() {
    let (mut model, owners) = scattered();
    let hot: Vec<Owner> = owners.iter().copied().step_by(16).collect();
    hot.iter().for_each(|owner| model.read(*owner));
    let (mut most, mut slices) = (0, 0);
    loop {
        let before = model.heap.stats().moved;
        let slice = model.colocate(100);
        most = most.max(model.heap.stats().moved - before);
        slices += 1;
        if slice != Slice::Unfinished {
            break;
        }
    }
    assert!(most <= 25, "{most} records moved in one slice");
    assert!(slices >= 500, "50,000 counters are read in slices of a hundred");
}

#[test]
fn a_record_that_is_too_long_is_refused() {
    let mut heap = Heap::new(crowded(), Activation::one_in(1)).expect("a heap");
    assert!(matches!(heap.insert(1, &vec![0; 65_536]), Err(Error::TooLong { octets: 65_536 })));
}

#[test]
fn a_heap_at_its_limit_refuses_and_takes_records_again_once_some_are_removed() {
    let limit = Config { max_octets: REGION_OCTETS as u64, ..Config::new(u64::MAX, Backing::None) };
    let mut model = Model::new(limit);
    let mut owners = Vec::new();
    while model.heap.stats().live_octets + 20_016 < REGION_OCTETS as u64 {
        owners.push(model.insert(20_000));
    }
    assert!(matches!(model.heap.insert(u32::MAX - 1, &[0; 60_000]), Err(Error::Full)));
    for owner in owners {
        let (place, _) = model.table.remove(&owner).expect("inserted");
        model.heap.remove(owner, place).expect("it is there");
    }
    model.insert(60_000);
    model.check();
}

#[test]
fn a_stale_place_is_refused() {
    let mut model = Model::new(crowded());
    let owner = model.insert(100);
    let (old, _) = model.table[&owner].clone();
    let new = model.heap.replace(owner, old, &[7; 500]).expect("room");
    assert!(matches!(model.heap.read(owner, old), Err(Error::NotHere { .. })));
    assert_eq!(model.heap.read(owner, new).expect("it is there"), [7; 500]);
    assert!(matches!(model.heap.remove(owner + 1, new), Err(Error::NotHere { .. })), "another owner's place");
}

/// Ten regions of records in fast memory for two; every 16th record is hot: an eighth of a region.
fn scattered() -> (Model, Vec<Owner>) {
    let mut model = Model::new(Config::new(2 * REGION_OCTETS as u64, Backing::Swap));
    let owners: Vec<Owner> = (0..50_000).map(|_| model.insert(400)).collect();
    (model, owners)
}

fn share_of_fast_reads(model: &mut Model, hot: &[Owner]) -> f64 {
    let before = model.heap.stats();
    hot.iter().for_each(|owner| model.read(*owner));
    let after = model.heap.stats();
    (after.fast_reads - before.fast_reads) as f64 / hot.len() as f64
}

#[test]
fn hot_records_are_collected_in_fast_memory_and_the_rest_is_paged_out() {
    let (mut model, owners) = scattered();
    let hot: Vec<Owner> = owners.iter().copied().step_by(16).collect();
    for _ in 0..8 {
        hot.iter().for_each(|owner| model.read(*owner));
    }
    model.cycles(1);
    let stats = model.heap.stats();
    assert!(stats.fast_octets <= 4 * REGION_OCTETS as u64, "{stats:?}");
    assert_eq!(share_of_fast_reads(&mut model, &hot), 1.0);
    model.heap.check();
}

#[test]
fn regions_that_a_cycle_has_filled_with_hot_records_stay_when_it_pages_out() {
    let mut model = Model::new(Config::new(6 * REGION_OCTETS as u64, Backing::Swap));
    let owners: Vec<Owner> = (0..50_000).map(|_| model.insert(400)).collect();
    let hot: Vec<Owner> = owners.iter().copied().step_by(4).collect();
    for _ in 0..8 {
        hot.iter().for_each(|owner| model.read(*owner));
    }
    model.cycles(1);
    assert!(model.heap.stats().paged_out > 0);
    assert_eq!(share_of_fast_reads(&mut model, &hot), 1.0);
}

#[test]
fn a_hot_set_that_moves_is_followed_within_two_cycles() {
    let (mut model, owners) = scattered();
    let first: Vec<Owner> = owners.iter().copied().step_by(16).collect();
    let second: Vec<Owner> = owners.iter().copied().skip(8).step_by(16).collect();
    for _ in 0..8 {
        first.iter().for_each(|owner| model.read(*owner));
    }
    model.cycles(1);
    for _ in 0..2 {
        for _ in 0..8 {
            second.iter().for_each(|owner| model.read(*owner));
        }
        model.cycles(1);
    }
    assert_eq!(share_of_fast_reads(&mut model, &second), 1.0);
    model.check();
}

#[test]
fn counters_at_their_end_are_halved_and_records_stay_apart() {
    let (mut model, owners) = scattered();
    for owner in &owners[..20] {
        (0..70_000).for_each(|_| drop(model.heap.read(*owner, model.table[owner].0).map(<[u8]>::len)));
    }
    (0..6).for_each(|_| model.cycles(1));
    let hot = owners[..20].to_vec();
    assert_eq!(share_of_fast_reads(&mut model, &hot), 1.0);
    model.heap.check();
}

#[test]
fn a_record_that_is_only_peeked_at_is_read_by_its_number_and_not_counted() {
    let mut heap = Heap::new(Config::new(u64::MAX, Backing::None), Activation::one_in(1)).expect("a heap");
    let place = heap.insert(7, b"record").expect("room");
    let again = RecordLocation::from_number(place.number());
    assert_eq!(&*heap.peek(7, again).expect("it is there"), b"record");
    assert_eq!(heap.stats_of_reads().fast_reads, 0);
    assert!(heap.peek(8, again).is_err(), "another owner's");
    assert_eq!(heap.read(7, again).expect("it is there"), b"record");
    assert_eq!((heap.stats_of_reads().fast_reads, heap.has_promotions()), (1, false));
}

#[test]
fn outside_of_a_window_no_read_is_counted() {
    let activation = Activation::one_in(2);
    activation.next_period();
    let mut heap = Heap::new(Config::new(REGION_OCTETS as u64, Backing::Swap), activation).expect("a heap");
    let place = heap.insert(1, &[0; 400]).expect("room");
    (0..100).for_each(|_| assert!(heap.read(1, place).is_ok()));
    let Slice::Finished(done) =
        (0..10).map(|_| heap.colocate(5_000, |_, _| ())).find(|s| *s != Slice::Unfinished).expect("ends")
    else {
        unreachable!("found above")
    };
    assert_eq!((done.scanned, done.hot), (1, 0));
}
