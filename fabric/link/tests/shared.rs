//! Links whose frames go through shared memory.

use super::common;

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use common::{End, LinkReport, send_raw, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whimbrel_ids::Instant;
use whimbrel_link::{ClusterKey, DownReason, LinkId, LinkSettings, Links};
use whimbrel_shm::{Area, Layout, Made, Memory, Pool, create};

fn keyed(settings: &mut LinkSettings) {
    settings.keys = vec![ClusterKey::new([1; 32])];
}

fn area(made: &Made, function: usize) -> Pool {
    made.open(function).unwrap()
}

fn sharing(mut end: End, made: &Made, function: usize) -> End {
    end.links.share(area(made, function)).unwrap();
    end
}

/// A link whose frames go through rings in both directions, or stay on the socket.
fn linked(caller: &mut End, listener: &mut End, at: SocketAddr, shared: usize) -> (LinkId, LinkId) {
    let links = common::linked(caller, listener, at);
    for _ in 0..50 {
        until_a_turn(caller, listener);
    }
    assert_eq!((caller.links.shared(), listener.links.shared()), (shared, shared));
    links
}

fn until_a_turn(a: &mut End, b: &mut End) {
    for end in [a, b] {
        end.pass(Duration::from_micros(20));
        end.turn();
    }
}

fn pair(made: &Made) -> (End, End, SocketAddr) {
    let (listener, at) = End::listening(keyed);
    (sharing(End::calling(keyed), made, 0), sharing(listener, made, 1), at)
}

fn is_ready(links: &Links) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(links.fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

#[test]
fn frames_of_all_lengths_arrive_in_order_before_and_after_they_leave_the_socket() {
    let made = create().unwrap();
    let (mut a, mut b, at) = pair(&made);
    let link = a.links.connect(a.now, at);
    let mut sent = Vec::new();
    // Some are sent before the link is up, and some while the rings are agreed on.
    for (n, octets) in [5, 0, 700, 2048, 1, 2049, 70_000, 9, 1 << 20, 3, 4096, 8].into_iter().enumerate() {
        let frame = vec![n as u8; octets];
        a.links.send(link, &frame);
        sent.push(frame);
        until_a_turn(&mut a, &mut b);
    }
    until(&mut [&mut a, &mut b], |e| e[1].frames().len() == 12);
    assert!(b.frames() == sent);
    assert_eq!((a.links.shared(), b.links.shared()), (1, 1));
    let back = *b.ups().last().unwrap();
    b.links.send(back, b"back");
    until(&mut [&mut a, &mut b], |e| e[0].frames().len() == 1);
    assert!(b.links.counters().ring_in > 0 && a.links.counters().ring_in == 1);
    let writes = a.links.counters().writes;
    a.links.send(link, b"without a write");
    until(&mut [&mut a, &mut b], |e| e[1].frames().len() == 13);
    assert_eq!(a.links.counters().writes, writes);
}

#[test]
fn frames_stay_on_the_socket_between_processes_without_a_pool_in_common() {
    let (one, other) = (create().unwrap(), create().unwrap());
    let (listener, at) = End::listening(keyed);
    let mut listener = sharing(listener, &one, 1);
    let mut callers = [sharing(End::calling(keyed), &other, 0), End::calling(keyed)];
    for caller in &mut callers {
        let (link, _) = linked(caller, &mut listener, at, 0);
        let before = listener.frames().len();
        caller.links.send(link, b"frame");
        until(&mut [caller, &mut listener], |e| e[1].frames().len() > before);
    }
    assert_eq!(listener.links.counters().ring_in, 0);
}

/// Areas as the manager of a unit gives them: one of each function's life, sealed when it has mapped it.
fn life(pool: u64, function: usize) -> (Pool, Area) {
    let area = Area::create(pool).unwrap();
    let opened = Pool::open(&area, function).unwrap();
    area.seal().unwrap();
    (opened, area)
}

#[test]
fn a_link_uses_the_pool_that_both_ends_have_as_soon_as_each_has_the_others_area() {
    let (listener, at) = End::listening(keyed);
    let mut cta = listener;
    let ((core, of_cta), (n4, _)) = (life(1, 0), life(2, 0));
    let (to_core, to_n4) = (core.arrivals(), n4.arrivals());
    cta.links.share(core).unwrap();
    cta.links.share(n4).unwrap();
    let mut cpf = End::calling(keyed);
    let (pool, of_cpf) = life(1, 1);
    let to_cpf = pool.arrivals();
    cpf.links.share(pool).unwrap();
    let (link, _) = linked(&mut cpf, &mut cta, at, 0);
    cpf.links.send(link, b"over the socket");
    until(&mut [&mut cpf, &mut cta], |e| e[1].frames().len() == 1);
    to_cpf.put(0, of_cta);
    (0..50).for_each(|_| until_a_turn(&mut cpf, &mut cta));
    assert_eq!((cpf.links.shared(), cta.links.shared()), (0, 0), "the CTA does not have the area of the CPF");
    to_core.put(1, of_cpf);
    until(&mut [&mut cpf, &mut cta], |e| e[0].links.shared() == 1 && e[1].links.shared() == 1);
    cpf.links.send(link, b"through the ring");
    until(&mut [&mut cpf, &mut cta], |e| e[1].frames().len() == 2);
    assert_eq!(cta.links.counters().ring_in, 1);
    // A UPF has the area of N4 alone, and nothing of the others.
    let mut upf = End::calling(keyed);
    let (pool, of_upf) = life(2, 1);
    assert!(pool.port.memory().load(Layout::POOL.area(0)) == 0);
    upf.links.share(pool).unwrap();
    to_n4.put(1, of_upf);
    let to_cta = upf.links.connect(upf.now, at);
    until(&mut [&mut upf, &mut cta], |e| e[1].ups().len() == 2 && !e[0].ups().is_empty());
    upf.links.send(to_cta, b"N4");
    until(&mut [&mut upf, &mut cta], |e| e[1].frames().len() == 3);
    assert_eq!((upf.links.shared(), cta.links.shared()), (0, 1), "it was not given the CTA's area of N4");
}

#[test]
fn the_area_of_a_next_life_waits_until_the_last_frames_of_the_one_before_are_read() {
    let (mut b, at) = End::listening(keyed);
    let (pool, of_b) = life(1, 0);
    let to_b = pool.arrivals();
    b.links.share(pool).unwrap();
    for n in 1..=3usize {
        let mut a = End::calling(keyed);
        let (pool, of_a) = life(1, 1);
        pool.arrivals().put(0, of_b.try_clone().unwrap());
        a.links.share(pool).unwrap();
        to_b.put(1, of_a);
        let link = a.links.connect(a.now, at);
        until(&mut [&mut a, &mut b], |e| e[0].links.shared() == 1 && e[1].links.shared() == 1);
        a.links.send(link, &[n as u8]);
        a.links.flush();
        drop(a);
        // The next life is there before anything of this one was read.
        to_b.put(1, life(1, 1).1);
        until(&mut [&mut b], |e| e[0].ended().len() == n);
        assert_eq!(b.frames().last(), Some(&vec![n as u8]));
    }
    assert_eq!(b.links.counters().ring_in, 3);
}

#[test]
fn the_last_frames_before_a_link_is_closed_arrive_and_the_next_link_has_the_ring_again() {
    let made = create().unwrap();
    let (mut a, mut b, at) = pair(&made);
    for n in 1..=3usize {
        let (link, _) = linked(&mut a, &mut b, at, 1);
        a.links.send(link, &[n as u8]);
        a.links.close(link);
        until(&mut [&mut b], |e| e[0].ended().len() == n);
        assert_eq!(b.ended().last(), Some(&DownReason::Closed));
        assert_eq!(b.frames().last(), Some(&vec![n as u8]), "before the end");
        assert!(matches!(b.reports.last(), Some(LinkReport::Down(..))));
    }
}

#[test]
fn a_second_link_between_the_same_processes_stays_on_its_socket() {
    let made = create().unwrap();
    let (mut a, mut b, at) = pair(&made);
    linked(&mut a, &mut b, at, 1);
    let (second, _) = linked(&mut a, &mut b, at, 1);
    a.links.send(second, b"second");
    until(&mut [&mut a, &mut b], |e| e[1].frames() == [b"second"]);
    assert_eq!(b.links.counters().ring_in, 0);
}

#[test]
fn a_full_ring_has_frames_wait_and_room_wakes_the_sender() {
    let made = create().unwrap();
    let (mut a, mut b, at) = pair(&made);
    let (link, _) = linked(&mut a, &mut b, at, 1);
    (0..2000u32).for_each(|n| a.links.send(link, &n.to_be_bytes()));
    a.links.flush();
    assert!(a.links.waiting(link) > 0);
    assert_eq!(a.links.next_deadline(), None, "it waits for the peer");
    assert!(!is_ready(&a.links));
    b.pass(Duration::from_micros(20));
    b.turn();
    assert!(is_ready(&a.links), "room rings the bell");
    until(&mut [&mut a, &mut b], |e| e[1].frames().len() == 2000);
    assert!((0..2000u32).zip(b.frames()).all(|(n, frame)| frame == n.to_be_bytes()));
    assert_eq!(a.links.waiting(link), 0);
}

#[test]
fn a_frame_wakes_a_process_that_waits() {
    let made = create().unwrap();
    let (mut a, mut b, at) = pair(&made);
    let (link, _) = linked(&mut a, &mut b, at, 1);
    for _ in 0..3 {
        assert_eq!(b.links.next_deadline(), None);
        assert!(!is_ready(&b.links));
        a.links.send(link, b"wake");
        a.links.flush();
        assert!(is_ready(&b.links));
        b.turn();
        assert!(!is_ready(&b.links), "the bell is heard");
        a.links.send(link, b"there before");
        a.links.flush();
        assert_eq!(b.links.next_deadline(), Some(Instant::ZERO), "it would miss what is there");
        b.turn();
    }
    assert_eq!(b.frames().len(), 6);
}

#[test]
fn control_frames_that_no_process_sends_end_the_link() {
    let made = create().unwrap();
    let (listener, at) = End::listening(|_| {});
    let mut listener = sharing(listener, &made, 1);
    let pool = area(&made, 5).id().to_be_bytes();
    let place = |function| [&[0x80, 0, 0, 14, 1][..], &pool, &[function, 0, 0, 0, 1]].concat();
    let ring = [0x80, 0, 0, 5, 2, 0, 0, 0, 9];
    let mapped = [0x80, 0, 0, 1, 3];
    let cases = [
        ring.to_vec(),
        [&place(1)[..], &ring].concat(),  // the listener's own area
        [&place(16)[..], &ring].concat(), // an area that no pool has
        [place(0), place(0)].concat(),
        [place(0), place(2)].concat(), // two places in one pool
        [&place(0)[..], &mapped, &mapped].concat(),
        mapped.to_vec(), // before its place
        [&place(0)[..], &ring, &ring].concat(),
        [&place(0)[..], &ring, &[0, 0, 0, 1, 7]].concat(), // a frame behind the last one
        vec![0x80, 0, 0, 1, 4],
    ];
    for case in cases {
        let octets = [b"WBLK\x02\x00\x00\x02me".as_slice(), &case].concat();
        assert_eq!(send_raw(&mut listener, at, &octets, true), DownReason::BadControl, "{case:?}");
    }
}

#[test]
fn a_queue_beyond_the_bound_ends_the_link() {
    let made = create().unwrap();
    let (listener, at) = End::listening(keyed);
    let mut b = sharing(listener, &made, 1);
    let small = |settings: &mut LinkSettings| {
        keyed(settings);
        settings.queue_octets_max = 10_000;
    };
    let mut a = sharing(End::calling(small), &made, 0);
    let (link, _) = linked(&mut a, &mut b, at, 1);
    (0..1000).for_each(|_| a.links.send(link, &[1; 2000]));
    a.turn();
    assert_eq!(a.ended(), [DownReason::QueueFull]);
    until(&mut [&mut a, &mut b], |e| !e[1].ended().is_empty());
    assert_eq!(b.frames().len(), 256, "what was in the ring arrives");
}

/// Overwrites words of an area with numbers that no function writes there.
fn overwrite(made: &Made, function: usize, seed: u64) {
    let file = File::from(made.areas[function].memory.try_clone().unwrap());
    let mut random = seed;
    for at in 0..Layout::POOL.area_words() - Layout::POOL.block_octets() * 4096 / 8 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = 8 * (Layout::POOL.page + at) as u64;
        file.write_all_at(&random.to_ne_bytes(), at).unwrap();
    }
}

#[test]
fn a_peer_that_writes_rubbish_loses_its_link_and_is_reached_over_the_socket_from_then_on() {
    let made = create().unwrap();
    let (mut a, mut b, at) = pair(&made);
    let mut c = sharing(End::calling(keyed), &made, 2);
    let (link, _) = linked(&mut a, &mut b, at, 1);
    let to_b = c.links.connect(c.now, at);
    until(&mut [&mut c, &mut b], |e| e[1].links.shared() == 2 && e[0].links.shared() == 1);
    a.links.send(link, b"before");
    until(&mut [&mut a, &mut b], |e| e[1].frames() == [b"before"]);
    overwrite(&made, 0, 1);
    until(&mut [&mut b], |e| !e[0].ended().is_empty());
    assert_eq!(b.ended(), [DownReason::BadRing]);
    until(&mut [&mut a], |e| !e[0].ended().is_empty());
    // Another function's link goes on.
    c.links.send(to_b, b"others");
    until(&mut [&mut c, &mut b], |e| e[1].frames().len() == 2);
    // And the peer itself is reached, without its ring.
    let again = a.links.connect(a.now, at);
    until(&mut [&mut a, &mut b], |e| e[1].ups().len() == 3 && e[0].ups().len() == 2);
    a.links.send(again, b"over the socket?");
    b.links.send(*b.ups().last().unwrap(), b"yes");
    let ring_in = (a.links.counters().ring_in, b.links.counters().ring_in);
    until(&mut [&mut a, &mut b], |e| e[0].frames().len() == 1);
    assert_eq!(a.links.counters().ring_in, ring_in.0, "b sends nothing through its ring to a");
    assert!(c.ended().is_empty());
}

/// The number of a process's descriptor.
fn raw(fd: impl AsFd) -> i32 {
    use std::os::fd::AsRawFd;
    fd.as_fd().as_raw_fd()
}

const ROLE: &str = "WHIMBREL_TEST_SHARED_PEER";
/// The frame before the other process is killed, and what it prints once it has sent that back.
const THE_LAST_ONE: &[u8] = b"the last one";
const ECHOED: &str = "the last one was sent back";

/// The other process of the tests below; does nothing when the tests run.
#[test]
fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let made = create().unwrap();
    let (end, at) = End::listening(keyed);
    let mut end = sharing(end, &made, 1);
    let areas = made.areas.iter().map(|area| format!("{}/{}", raw(&area.memory), raw(&area.bell)));
    println!("\nready {} {at}", areas.collect::<Vec<_>>().join(","));
    let begun = std::time::Instant::now();
    let mut seed = 0;
    while begun.elapsed() < Duration::from_secs(120) {
        end.pass(Duration::from_micros(20));
        end.turn();
        for report in std::mem::take(&mut end.reports) {
            match report {
                LinkReport::Frame(link, _) if role == "rubbish" => {
                    end.links.send(link, b"last");
                    end.links.flush();
                    seed += 1;
                    overwrite(&made, 1, seed);
                }
                LinkReport::Frame(link, octets) => {
                    end.links.send(link, &octets);
                    end.links.flush();
                    if octets == THE_LAST_ONE {
                        println!("{ECHOED}");
                    }
                }
                _ => {}
            }
        }
        end.links.flush();
    }
}

/// Starts the other process, and takes its pool. Also returns what it prints from then on.
fn start(role: &str) -> (std::process::Child, Made, SocketAddr, impl Iterator<Item = String>) {
    use std::io::{BufRead, BufReader};
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["shared::other_process", "--exact", "--nocapture"])
        .env(ROLE, role)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("ready ")).unwrap();
    let fields: Vec<&str> = line.split(' ').collect();
    let pid = rustix::process::Pid::from_child(&child);
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let get = |n: &str| {
        let flags = rustix::process::PidfdGetfdFlags::empty();
        rustix::process::pidfd_getfd(&pidfd, n.parse().unwrap(), flags).unwrap()
    };
    let area = |pair: &str| {
        let (memory, bell) = pair.split_once('/').unwrap();
        Area { memory: get(memory), bell: get(bell) }
    };
    let made = Made { areas: fields[1].split(',').map(area).collect() };
    let at = fields[2].parse().unwrap();
    (child, made, at, lines)
}

#[test]
fn a_process_that_is_killed_ends_its_link_and_what_it_sent_before_arrives() {
    let (mut child, made, at, mut prints) = start("echo");
    let mut a = sharing(End::calling(keyed), &made, 0);
    let link = a.links.connect(a.now, at);
    until(&mut [&mut a], |e| e[0].links.shared() == 1);
    for n in 0..500u32 {
        a.links.send(link, &n.to_be_bytes());
    }
    until(&mut [&mut a], |e| e[0].frames().len() == 500);
    assert!(a.links.counters().ring_in > 400, "{:?}", a.links.counters());
    a.links.send(link, THE_LAST_ONE);
    a.links.flush();
    assert!(prints.any(|line| line == ECHOED));
    child.kill().unwrap();
    child.wait().unwrap();
    until(&mut [&mut a], |e| !e[0].ended().is_empty());
    assert_eq!(a.frames().last().map(Vec::as_slice), Some(THE_LAST_ONE));
    assert!(matches!(a.ended()[..], [DownReason::Closed | DownReason::Broken]), "{:?}", a.ended());
}

#[test]
fn a_process_that_writes_rubbish_into_its_area_harms_no_link_of_others() {
    let (mut child, made, at, _prints) = start("rubbish");
    let mut a = sharing(End::calling(keyed), &made, 0);
    let (listener, of_b) = End::listening(keyed);
    let mut b = sharing(listener, &made, 2);
    let (good, _) = linked(&mut a, &mut b, of_b, 1);
    let bad = a.links.connect(a.now, at);
    until(&mut [&mut a, &mut b], |e| e[0].links.shared() == 2);
    a.links.send(bad, b"begin");
    until(&mut [&mut a, &mut b], |e| !e[0].ended().is_empty());
    assert_eq!(a.ended(), [DownReason::BadRing]);
    a.links.send(good, b"good");
    until(&mut [&mut a, &mut b], |e| e[1].frames() == [b"good"]);
    assert!(b.ended().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
}
