//! The rings over a memory of the test's own: in every order in which one process's operation falls between the accesses of the other's,
//! with stores that become visible late and out of order, as processors have them; and with rubbish in every word.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use crate::layout::Layout;
use crate::pool::{Area, Pool, PoolOpenError, create};
use crate::port::{HEAD_EVERY, Memory, Port, PortFault, Receiver};

/// Rings of two descriptors and blocks of two words: full, and wrapped, soon.
const SMALL: Layout = Layout::new(3, 2, 2, 1, 1);

/// A store that other processes do not see yet; `None`: what is stored after it is not seen before what is stored before it.
type Pending = Option<(usize, u64)>;

#[derive(Default)]
struct Machine {
    words: RefCell<Vec<u64>>,
    rings: RefCell<Vec<usize>>,
    /// Accesses of the process whose stores are delayed.
    steps: Cell<usize>,
}

/// What happens between two accesses.
struct Interruption {
    at_step: usize,
    /// So many of the pending stores are visible by then, in order, …
    visible: usize,
    /// … and this one of those behind them, if no barrier is between.
    early: usize,
    action: Box<dyn FnOnce()>,
}

/// A process's view of the machine.
#[derive(Clone)]
struct MachineView {
    machine: Rc<Machine>,
    own: usize,
    /// Stores of this process become visible late.
    delayed: Option<Rc<RefCell<Vec<Pending>>>>,
    interruption: Rc<RefCell<Option<Interruption>>>,
}

impl MachineView {
    fn of(machine: &Rc<Machine>, own: usize, delayed: bool) -> Self {
        machine.words.borrow_mut().resize(SMALL.words(), 0);
        let delayed = delayed.then(Rc::default);
        Self { machine: machine.clone(), own, delayed, interruption: Rc::default() }
    }

    fn step(&self) {
        let Some(delayed) = &self.delayed else { return };
        self.machine.steps.set(self.machine.steps.get() + 1);
        let due = self.interruption.borrow().as_ref().is_some_and(|i| i.at_step == self.machine.steps.get());
        let Some(interruption) = due.then(|| self.interruption.take()).flatten() else { return };
        let mut pending = delayed.borrow_mut();
        let visible = interruption.visible.min(pending.len());
        let visible: Vec<Pending> = pending.drain(..visible).collect();
        self.apply(visible);
        let before_barrier = pending.iter().take_while(|p| p.is_some()).count();
        if interruption.early < before_barrier {
            // It overtakes the others, but not one to the same word.
            let (at, _) = pending[interruption.early].unwrap();
            if pending.iter().take(interruption.early).all(|p| p.is_some_and(|(other, _)| other != at)) {
                let early = pending.remove(interruption.early);
                self.apply(vec![early]);
            }
        }
        drop(pending);
        (interruption.action)();
    }

    fn apply(&self, stores: Vec<Pending>) {
        for (at, value) in stores.into_iter().flatten() {
            self.machine.words.borrow_mut()[at] = value;
        }
    }

    fn settle(&self) {
        let pending = self.delayed.as_ref().map(|d| d.take()).unwrap_or_default();
        self.apply(pending);
    }
}

impl Memory for MachineView {
    fn load(&self, at: usize) -> u64 {
        self.step();
        let own = self.delayed.as_ref().and_then(|d| {
            d.borrow().iter().rev().flatten().find(|(to, _)| *to == at).map(|(_, value)| *value)
        });
        own.unwrap_or_else(|| self.machine.words.borrow().get(at).copied().unwrap_or(0))
    }

    fn store(&self, at: usize, value: u64) {
        let area = SMALL.area(self.own);
        assert!((area..area + SMALL.area_words()).contains(&at), "a store into another's area");
        self.step();
        match &self.delayed {
            Some(delayed) => delayed.borrow_mut().push(Some((at, value))),
            None => self.machine.words.borrow_mut()[at] = value,
        }
    }

    fn fence(&self, order: Ordering) {
        self.step();
        match (&self.delayed, order) {
            (Some(_), Ordering::SeqCst) => self.settle(),
            (Some(delayed), Ordering::Release) => delayed.borrow_mut().push(None),
            _ => {}
        }
    }

    fn ring(&self, of: usize) {
        self.machine.rings.borrow_mut().push(of);
    }
}

type SharedPort = Rc<RefCell<Port<MachineView>>>;

/// Function 0 sends to function 1 under a first generation.
struct Pair {
    machine: Rc<Machine>,
    sender: SharedPort,
    receiver: SharedPort,
    ring: Rc<RefCell<Receiver>>,
}

fn pair(sender_delayed: bool) -> Pair {
    let machine = Rc::new(Machine::default());
    let mut sender = Port::open(MachineView::of(&machine, 0, sender_delayed), SMALL, 0);
    let receiver = Port::open(MachineView::of(&machine, 1, !sender_delayed), SMALL, 1);
    let generation = sender.begin(1).unwrap();
    sender.memory().settle();
    receiver.memory().settle();
    let ring = Rc::new(RefCell::new(receiver.receiver(0, generation)));
    Pair { machine, sender: Rc::new(RefCell::new(sender)), receiver: Rc::new(RefCell::new(receiver)), ring }
}

/// Frames of more than a block, and the numbers in them.
fn frame(n: u8) -> Vec<u8> {
    vec![n; 11]
}

fn send(port: &SharedPort, n: u8) -> bool {
    let mut port = port.borrow_mut();
    let sent = port.push(1, &frame(n), true).unwrap();
    port.publish(1);
    sent
}

fn receive(port: &SharedPort, ring: &Rc<RefCell<Receiver>>) -> Vec<u8> {
    let (mut port, mut ring) = (port.borrow_mut(), ring.borrow_mut());
    let mut all = Vec::new();
    let mut octets = Vec::new();
    while let Some(last) = port.take(&mut ring, &mut octets).unwrap() {
        assert!(last);
        assert_eq!(octets, frame(octets[0]), "a frame is whole");
        all.push(octets[0]);
        octets.clear();
    }
    port.confirm(&mut ring);
    all
}

/// Runs `outer`, with `inner` between any two of its accesses and any of its stores visible by then or not. `check` gets what both returned.
fn every_order<A, B: 'static>(
    sender_is_outer: bool,
    prepare: impl Fn(&Pair),
    outer: impl Fn(&Pair) -> A,
    inner: impl Fn(&Pair) -> B + Clone + 'static,
    check: impl Fn(&Pair, A, B),
) -> usize {
    let mut orders = 0;
    for at_step in 1.. {
        let mut interrupted = false;
        for visible in 0..8 {
            for early in 0..8 {
                let pair = pair(sender_is_outer);
                prepare(&pair);
                let result = Rc::new(RefCell::new(None));
                let view = match sender_is_outer {
                    true => pair.sender.borrow().memory().clone(),
                    false => pair.receiver.borrow().memory().clone(),
                };
                view.settle();
                view.machine.steps.set(0);
                let (inner, of_inner) = (inner.clone(), result.clone());
                let of = Pair {
                    machine: pair.machine.clone(),
                    sender: pair.sender.clone(),
                    receiver: pair.receiver.clone(),
                    ring: pair.ring.clone(),
                };
                let action = Box::new(move || *of_inner.borrow_mut() = Some(inner(&of)));
                *view.interruption.borrow_mut() = Some(Interruption { at_step, visible, early, action });
                let of_outer = outer(&pair);
                view.step();
                view.settle();
                if let Some(of_inner) = result.take() {
                    interrupted = true;
                    orders += 1;
                    check(&pair, of_outer, of_inner);
                }
            }
        }
        if !interrupted {
            break;
        }
    }
    orders
}

/// Sets the word for sleep and looks again; whether it may sleep.
fn may_sleep(pair: &Pair) -> bool {
    let port = pair.receiver.borrow();
    port.before_sleep();
    !port.has_arrived(&pair.ring.borrow())
}

fn sender_may_sleep(pair: &Pair) -> bool {
    if send(&pair.sender, 9) {
        return false;
    }
    let port = pair.sender.borrow();
    port.before_sleep();
    !port.is_unblocked(1)
}

fn rung(pair: &Pair, of: usize) -> bool {
    pair.machine.rings.borrow().contains(&of)
}

#[test]
fn what_is_sent_while_a_process_goes_to_sleep_is_seen_or_rings_its_bell() {
    let check = |pair: &Pair, sleeps: bool, sent: bool| {
        assert!(
            sent && (!sleeps || rung(pair, 1)),
            "a frame is sent, its receiver sleeps, and no bell rings"
        );
    };
    let orders = every_order(false, |_| {}, may_sleep, |pair| send(&pair.sender, 1), check);
    assert!(orders > 100, "{orders}");
    let check = |pair: &Pair, sent, sleeps| check(pair, sleeps, sent);
    let orders = every_order(true, |_| {}, |pair| send(&pair.sender, 1), may_sleep, check);
    assert!(orders > 100, "{orders}");
}

#[test]
fn room_that_appears_while_a_sender_goes_to_sleep_is_seen_or_rings_its_bell() {
    let fill = |pair: &Pair| assert!(send(&pair.sender, 1) && send(&pair.sender, 2));
    let take = |pair: &Pair| receive(&pair.receiver, &pair.ring);
    let check = |pair: &Pair, sleeps: bool, taken: Vec<u8>| {
        assert!(
            !sleeps || taken.is_empty() || rung(pair, 0),
            "there is room, its sender sleeps, and no bell rings"
        );
    };
    assert!(every_order(true, fill, sender_may_sleep, take, check) > 100);
    let check = |pair: &Pair, taken, sleeps| check(pair, sleeps, taken);
    assert!(every_order(false, fill, take, sender_may_sleep, check) > 100);
}

#[test]
fn frames_arrive_whole_once_and_in_order_however_sender_and_receiver_interleave() {
    let outer = |pair: &Pair| [1, 2, 3].map(|n| send(&pair.sender, n));
    let take = |pair: &Pair| receive(&pair.receiver, &pair.ring);
    let check = |pair: &Pair, sent: [bool; 3], mut taken: Vec<u8>| {
        taken.extend(receive(&pair.receiver, &pair.ring));
        let sent: Vec<u8> = (1..).zip(sent).filter_map(|(n, sent)| sent.then_some(n)).collect();
        assert_eq!(taken, sent);
    };
    assert!(every_order(true, |_| {}, outer, take, check) > 500);
}

#[test]
fn a_ring_is_lent_again_when_the_link_before_has_been_read_or_its_reader_is_gone() {
    let pair = pair(false);
    assert_eq!(pair.sender.borrow_mut().begin(1), None, "a link uses it");
    assert!(send(&pair.sender, 1));
    pair.sender.borrow_mut().end(1, false);
    assert_eq!(pair.sender.borrow_mut().begin(1), None, "its last frame is not read");
    assert_eq!(receive(&pair.receiver, &pair.ring), [1]);
    let second = pair.sender.borrow_mut().begin(1).unwrap();
    let former = &mut *pair.ring.borrow_mut();
    let mut looks = (0..HEAD_EVERY).map(|_| pair.receiver.borrow().take(former, &mut Vec::new()));
    assert_eq!(looks.find(|look| *look != Ok(None)), Some(Err(PortFault::Superseded)));
    drop(looks);
    *former = pair.receiver.borrow_mut().receiver(0, second);
    assert!(send(&pair.sender, 2));
    pair.sender.borrow_mut().end(1, false);
    // The receiver dies, and another process takes its place.
    let successor = Port::open(MachineView::of(&pair.machine, 1, false), SMALL, 1);
    assert_eq!(successor.incarnation(), 2);
    assert!(pair.sender.borrow_mut().begin(1).is_some());
    pair.sender.borrow_mut().end(1, true);
    assert!(pair.sender.borrow_mut().begin(1).is_some(), "the peer has ended the link");
    assert_eq!(pair.sender.borrow_mut().begin(0), None, "no ring leads to oneself");
}

#[test]
fn a_head_without_its_descriptor_is_rubbish_and_one_behind_what_was_taken_is_not() {
    let pair = pair(false);
    let words = &pair.machine.words;
    let (receiver, mut ring) = (pair.receiver.borrow(), pair.ring.borrow_mut());
    let generation = words.borrow()[SMALL.head(0, 1)];
    assert!(!receiver.has_arrived(&ring));
    words.borrow_mut()[SMALL.head(0, 1)] = generation | 1;
    assert!(receiver.has_arrived(&ring), "a process that is about to sleep looks at the head");
    assert_eq!(receiver.take(&mut ring, &mut Vec::new()), Err(PortFault::Rubbish));
    words.borrow_mut()[SMALL.head(0, 1)] = generation;
    assert!(send(&pair.sender, 1));
    // Its sender is just about to raise the head.
    words.borrow_mut()[SMALL.head(0, 1)] = generation;
    assert_eq!(receiver.take(&mut ring, &mut Vec::new()), Ok(Some(true)));
    assert!(!receiver.has_arrived(&ring));
    assert_eq!(receiver.take(&mut ring, &mut Vec::new()), Ok(None));
    for head in [generation | 3, generation | 0xffff_fffe] {
        words.borrow_mut()[SMALL.head(0, 1)] = head;
        let mut again = receiver.receiver(0, (generation >> 32) as u32);
        assert_eq!(receiver.take(&mut again, &mut Vec::new()), Ok(Some(true)), "what is named is there");
        let mut looks = (0..=HEAD_EVERY).map(|_| receiver.take(&mut again, &mut Vec::new()));
        let found = looks.find(|look| *look != Ok(None));
        assert_eq!(found, Some(Err(PortFault::Rubbish)));
    }
}

#[test]
fn a_function_can_write_into_its_own_area_alone() {
    let made = create().unwrap();
    let (near, mut far) = (made.open(0).unwrap(), made.open(1).unwrap());
    assert!(far.port.begin(0).is_some());
    let head = Layout::POOL.head(1, 0);
    let before = near.port.memory().load(head);
    near.port.memory().store(head, 7);
    near.port.memory().write(head, b"rubbish!");
    assert_eq!((far.port.memory().load(head), before & 0xffff_ffff), (before, 0));
    // And the kernel holds it: of both mappings one area each is writable. The tests beside this one map areas of their own, in files of other inodes.
    let inode = |area: &Area| rustix::fs::fstat(&area.memory).unwrap().st_ino.to_string();
    let inodes: Vec<String> = made.areas.iter().map(inode).collect();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_of_these =
        |line: &&str| line.split_whitespace().nth(4).is_some_and(|i| inodes.iter().any(|of| of == i));
    let writable = maps.lines().filter(is_of_these).filter(|line| line.contains(" rw"));
    let octets = writable.map(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        usize::from_str_radix(to, 16).unwrap() - usize::from_str_radix(from, 16).unwrap()
    });
    assert_eq!(octets.sum::<usize>(), 2 * 8 * Layout::POOL.area_words());
}

#[test] // what code in another function's process would try
fn a_sealed_area_is_written_by_its_owner_alone_however_another_opens_it() {
    use std::os::fd::AsRawFd;

    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let area = Area::create(7).unwrap();
    let mut owner = Pool::open(&area, 0).unwrap();
    let given = area.try_clone().unwrap();
    let map = |file: &std::os::fd::OwnedFd, may| {
        // SAFETY: the kernel chooses the address, and nothing uses the mapping.
        unsafe { mmap(std::ptr::null_mut(), 4096, may, MapFlags::SHARED, file, 0) }
    };
    assert!(map(&given.memory, ProtFlags::READ | ProtFlags::WRITE).is_ok(), "before it is sealed");
    area.seal().unwrap();
    area.seal().unwrap();
    let path = format!("/proc/self/fd/{}", given.memory.as_raw_fd());
    let again = std::fs::File::options().read(true).write(true).open(path).unwrap();
    for file in [&given.memory, &again.into()] {
        assert!(map(file, ProtFlags::READ | ProtFlags::WRITE).is_err());
        assert!(rustix::io::pwrite(file, b"rubbish", 4096).is_err());
        assert!(rustix::fs::ftruncate(file, 0).is_err());
        let read_only = map(file, ProtFlags::READ).unwrap();
        // SAFETY: it is the mapping that was just made.
        let changed = unsafe {
            rustix::mm::mprotect(
                read_only,
                4096,
                rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE,
            )
        };
        assert!(changed.is_err(), "a mapping to read becomes none to write");
    }
    // A second process cannot take an area that has an owner, and the owner goes on.
    assert!(Pool::open(&given, 0).is_err());
    assert!(owner.port.begin(1).is_some());
    let head = Layout::POOL.head(0, 1);
    let mut peer = Pool::open(&Area::create(7).unwrap(), 1).unwrap();
    assert_eq!(peer.port.memory().load(head), 0, "it has not been given");
    assert!(!peer.maps(0, owner.port.incarnation()));
    peer.add(0, given).unwrap();
    assert_ne!(peer.port.memory().load(head), 0);
    assert!(peer.maps(0, owner.port.incarnation()));
    // The area of another pool.
    assert!(matches!(peer.add(2, Area::create(8).unwrap()), Err(PoolOpenError::Foreign)));
}

#[test]
fn the_area_of_a_functions_next_life_takes_the_place_of_the_one_before() {
    let mut peer = Pool::open(&Area::create(7).unwrap(), 1).unwrap();
    let mut generations = Vec::new();
    for _ in 0..2 {
        let area = Area::create(7).unwrap();
        let mut owner = Pool::open(&area, 0).unwrap();
        area.seal().unwrap();
        peer.arrivals().put(0, area);
        for (of, area) in peer.take_arrived() {
            peer.add(of, area).unwrap();
        }
        assert!(peer.take_arrived().is_empty());
        assert!(peer.maps(0, owner.port.incarnation()));
        let generation = owner.port.begin(1).unwrap();
        generations.push(generation);
        assert_eq!(owner.port.push(1, b"frame", true), Ok(true));
        owner.port.publish(1);
        let (mut ring, mut octets) = (peer.port.receiver(0, generation), Vec::new());
        assert_eq!(peer.port.take(&mut ring, &mut octets), Ok(Some(true)));
        assert_eq!(octets, b"frame");
    }
    assert_ne!(generations[0], generations[1], "what a peer remembers of the life before means nothing");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Function 0 writes rubbish into its area; functions 1 and 2 talk to each other and to it.
    #[test]
    fn a_function_that_writes_rubbish_harms_no_other(
        writes in prop::collection::vec((0..SMALL.area_words(), prop_oneof![any::<u64>(), 0..16u64, (1..4u64).prop_map(|g| g << 32 | 1)]), 1..40),
        between in 1..6usize,
    ) {
        let machine = Rc::new(Machine::default());
        let mut ports: Vec<_> =
            (0..3).map(|n| Port::open(MachineView::of(&machine, n, false), SMALL, n)).collect();
        let from_0 = ports[0].begin(1).unwrap();
        let from_2 = ports[2].begin(1).unwrap();
        prop_assert!(ports[1].begin(0).is_some());
        let mut rubbish = ports[1].receiver(0, from_0);
        let mut good = ports[1].receiver(2, from_2);
        for (n, writes) in (0u8..).zip(writes.chunks(between)) {
            for (at, value) in writes {
                machine.words.borrow_mut()[SMALL.area(0) + at] = *value;
            }
            let mut octets = Vec::new();
            // At most as many pieces as a ring has, each at most a block.
            for _ in 0..4 {
                if !matches!(ports[1].take(&mut rubbish, &mut octets), Ok(Some(_))) {
                    break;
                }
            }
            prop_assert!(octets.len() <= 4 * SMALL.block_octets());
            ports[1].confirm(&mut rubbish);
            // What it claims to have read frees no block twice: each is still used by one frame at a time.
            let _ = ports[1].push(0, &[1; 16], true);
            ports[1].publish(0);
            prop_assert_eq!(ports[2].push(1, &[n; 16], true), Ok(true));
            ports[2].publish(1);
            let mut octets = Vec::new();
            prop_assert_eq!(ports[1].take(&mut good, &mut octets), Ok(Some(true)));
            prop_assert_eq!(octets, vec![n; 16]);
            ports[1].confirm(&mut good);
        }
    }

    /// Every word of the pool holds anything: nothing panics, and no piece is longer than a block.
    #[test]
    fn any_content_of_all_words_is_a_value(words in prop::collection::vec(prop_oneof![any::<u64>(), 0..4u64], SMALL.words())) {
        let machine = Rc::new(Machine::default());
        let mut port = Port::open(MachineView::of(&machine, 1, false), SMALL, 1);
        let begun = port.begin(0);
        machine.words.borrow_mut().copy_from_slice(&words);
        let mut ring = port.receiver(0, words[SMALL.head(0, 1)] as u32);
        let mut octets = Vec::new();
        let _ = (begun, port.take(&mut ring, &mut octets), port.push(0, b"frame", true));
        prop_assert!(octets.len() <= SMALL.block_octets());
        port.confirm(&mut ring);
        port.before_sleep();
        port.after_sleep();
        port.end(0, false);
        let _ = port.begin(0);
        let mut again = Port::open(MachineView::of(&machine, 1, false), SMALL, 1);
        prop_assert!(again.begin(2).is_some());
    }
}
