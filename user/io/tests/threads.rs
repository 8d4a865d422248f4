//! Several packet threads that share the sessions: each packet is decided on by the one that has its session, wherever it arrives.

use super::common;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use common::*;
use whimbrel_gtpu::Gtpu;
use whimbrel_ids::{Instant, Teid};
use whimbrel_user::{Destination, DnIndex, Origin, SessionId};
use whimbrel_user_io::{Harvest, HarvestCounters, MemoryOuterEnd, N3Io, SpreadBy, UserPlane};

const THREADS: usize = 4;
const GNB_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(GNB), 2152);

/// A user plane in memory, with an SMF, and sessions.
fn in_memory(sessions: u64) -> (Control, MemoryOuterEnd, Vec<(SessionId, Teid, Ipv4Addr)>) {
    let mut config = config(N3Io::Udp);
    config.user.shards = THREADS as u8;
    config.user.sessions_max = 1_000;
    let (handle, memory) = UserPlane::start_in_memory(config.clone()).unwrap_or_else(|e| panic!("{e}"));
    let mut net = Control::with(handle, config);
    let sessions =
        (0..sessions).map(|_| net.next_session()).map(|(id, teid, ipv4, _)| (id, teid, ipv4)).collect();
    (net, memory, sessions)
}

fn udp(from: Ipv4Addr, to: Ipv4Addr, number: u32) -> Vec<u8> {
    let mut p = ping4(from, to, 0, 12);
    p[28..32].copy_from_slice(&number.to_be_bytes());
    p
}

fn number(p: &[u8]) -> u32 {
    u32::from_be_bytes(p[28..32].try_into().unwrap())
}

/// Packets of many UEs, each UE's at a thread of chance: none is lost or doubled, each UE's come in order each way, and are
/// counted once.
#[test]
fn packets_that_arrive_at_any_thread_come_out_once_and_in_order() {
    const EACH: u32 = 500;
    let (net, memory, sessions) = in_memory(40);
    let by_tunnel: BTreeMap<_, _> = sessions.iter().enumerate().map(|(n, s)| (s.2, n)).collect();
    let mut next = vec![[0u32; 2]; sessions.len()];
    let mut out = 0;
    let mut take = || {
        for (to, octets) in memory.take() {
            let (ue, uplink, n) = match to {
                Destination::N6 { .. } => {
                    (Ipv4Addr::from(<[u8; 4]>::try_from(&octets[12..16]).unwrap()), true, number(&octets))
                }
                Destination::N3 { .. } => {
                    let m = Gtpu::parse(&octets).unwrap();
                    if m.payload[0] >> 4 == 6 {
                        continue; // a router advertisement
                    }
                    (
                        Ipv4Addr::from(<[u8; 4]>::try_from(&m.payload[16..20]).unwrap()),
                        false,
                        number(m.payload),
                    )
                }
                Destination::Frames { .. } => panic!("{to:?}"),
            };
            let expected = &mut next[by_tunnel[&ue]][usize::from(uplink)];
            assert_eq!(n, *expected, "{ue} uplink {uplink}");
            *expected += 1;
            out += 1;
        }
        out
    };
    let own = |thread: usize| (thread * 7 + 3) % THREADS;
    for n in 0..EACH {
        for (i, (_, teid, ue)) in sessions.iter().enumerate() {
            let from_gnb = Origin::N3 { peer: GNB_ADDRESS, local: UPF.into() };
            assert!(memory.put_at(own(i), from_gnb, &g_pdu(*teid, &udp(*ue, SERVER, n))));
            let from_network = Origin::N6 { dn: DnIndex(0) };
            assert!(memory.put_at(own(i + 1), from_network, &udp(SERVER, *ue, n)));
        }
        // As fast as it is taken, so that none finds a queue full.
        let begun = std::time::Instant::now();
        while take() < (n + 1) * sessions.len() as u32 * 2 {
            assert!(
                begun.elapsed().as_secs() < 20,
                "{:?} {:?}",
                net.handle.io_counters(),
                net.handle.counters()
            );
            std::thread::yield_now();
        }
    }
    for (id, ..) in &sessions {
        let c = net.session_counters(*id);
        assert_eq!((c.ul_packets, c.dl_packets, c.dropped), (EACH.into(), EACH.into(), 0));
    }
    let all = u64::from(EACH) * sessions.len() as u64;
    let passed = || {
        let c = net.handle.counters();
        (c.ul_packets, c.dl_packets) == (all, all) && net.handle.io_counters().handed_over > all
    };
    eventually(passed, || format!("{:?} {:?}", net.handle.io_counters(), net.handle.counters()));
    let (c, io) = (net.handle.counters(), net.handle.io_counters());
    assert_eq!((c.dropped.iter().sum::<u64>(), io.hand_over_full), (0, 0));
}

/// A change that is answered applies to packets at whatever thread they arrive.
#[test]
fn a_packet_that_follows_a_change_meets_it_at_any_thread() {
    let (mut net, memory, _) = in_memory(0);
    for round in 0..50 {
        let (id, teid, ue, _) = net.next_session();
        for thread in 0..THREADS {
            let from_gnb = Origin::N3 { peer: GNB_ADDRESS, local: UPF.into() };
            memory.put_at(thread, from_gnb, &g_pdu(teid, &udp(ue, SERVER, 0)));
            memory.put_at(thread, Origin::N6 { dn: DnIndex(0) }, &udp(SERVER, ue, 0));
        }
        let passed = || {
            let c = net.session_counters(id);
            (c.ul_packets, c.dl_packets) == (4, 4)
        };
        eventually(passed, || format!("round {round}: {:?}", net.handle.counters()));
        net.delete(id);
    }
    eventually(|| net.handle.counters().sessions == 0, || "sessions are left".into());
    assert_eq!(net.handle.counters().dropped.iter().sum::<u64>(), 0);
}

/// Packets of sessions of all threads pass as without background work, and the survey's sums are those of the counters.
#[test]
fn background_work_surveys_the_sessions_of_all_threads() {
    let (net, memory, sessions) = in_memory(40);
    net.handle.set_harvest(Harvest::p95(50));
    for n in 0..20 {
        for (i, (_, teid, ue)) in sessions.iter().enumerate() {
            let from_gnb = Origin::N3 { peer: GNB_ADDRESS, local: UPF.into() };
            assert!(memory.put_at(i % THREADS, from_gnb, &g_pdu(*teid, &udp(*ue, SERVER, n))));
        }
    }
    let passed = || net.handle.counters().ul_packets == 20 * sessions.len() as u64;
    eventually(passed, || format!("{:?}", net.handle.counters()));
    // The rounds that run have read some of the sessions before their packets came: others begin.
    net.handle.set_harvest(Harvest::p95(50));
    let sums = || {
        let harvested = net.handle.harvest_counters();
        let usage = harvested.usage.first().copied().unwrap_or_default();
        (harvested.surveys, usage.sessions, usage.active, usage.ul_octets)
    };
    let octets = net.handle.counters().ul_octets;
    let all = (THREADS as u64, 40, 40, octets);
    eventually(|| sums() == all, || format!("{:?} instead of {all:?}", sums()));
    let harvested = net.handle.harvest_counters();
    assert!(harvested.places_idle > 0 && harvested.work_ns() > 0, "{harvested:?}");
    net.handle.set_harvest(Harvest::Off);
    eventually(|| net.handle.harvest_counters() == HarvestCounters::default(), || "it is not off".into());
}

/// How often the kernel has woken this process's thread of that name; `None`: it has not given itself that name yet.
fn wakings(name: &str) -> Option<u64> {
    let is_it = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let all = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let status = std::fs::read_to_string(all.into_iter().find(is_it)?.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Some(line.unwrap().trim().parse().unwrap())
}

/// Until it may take packets, a packet thread wakes for changes alone. No other test has so many threads as to have one of this name.
#[test]
fn a_packet_thread_that_stands_by_takes_no_time_of_a_processor() {
    let mut config = config(N3Io::Udp);
    (config.user.shards, config.keeps_state) = (16, true);
    let (handle, memory) = UserPlane::start_in_memory(config.clone()).unwrap_or_else(|e| panic!("{e}"));
    // It has begun to wait when the number no longer changes; that of a thread which looks now and then, twice a second, always does.
    let begun = std::time::Instant::now();
    loop {
        let before = wakings("upf-u-15");
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        if before.is_some() && wakings("upf-u-15") == before {
            break;
        }
        assert!(begun.elapsed() < SURELY, "it wakes now and then: {before:?}");
    }
    let mut net = Control::with(handle, config);
    let (id, teid, ue) = loop {
        let (id, teid, ue, _) = net.next_session();
        if id.index % 16 == 15 {
            break (id, teid, ue);
        }
    };
    let from_gnb = Origin::N3 { peer: GNB_ADDRESS, local: UPF.into() };
    assert!(memory.put_at(15, from_gnb, &g_pdu(teid, &udp(ue, SERVER, 0))));
    net.handle.begin();
    let passed = || net.session_counters(id).ul_packets == 1;
    eventually(passed, || format!("{:?}", net.handle.counters()));
}

/// It ends without ever having taken a packet.
#[test]
fn a_user_plane_that_stands_by_ends_when_it_is_dropped() {
    let mut config = config(N3Io::Udp);
    config.keeps_state = true;
    for _ in 0..50 {
        let (handle, _memory) = UserPlane::start_in_memory(config.clone()).unwrap_or_else(|e| panic!("{e}"));
        drop(handle);
    }
}

/// What a thread cannot hand over, because the other has too much, is counted.
#[test]
fn what_finds_no_room_at_another_thread_is_counted() {
    let mut config = config(N3Io::Udp);
    config.user.shards = 2;
    // A clock that stands still for the threads while a test holds it.
    let gate = std::sync::Arc::new(std::sync::Mutex::new(()));
    let inner = std::sync::Arc::clone(&gate);
    config.clock = std::sync::Arc::new(move || {
        if std::thread::current().name() == Some("upf-u-1") {
            drop(inner.lock().unwrap());
        }
        Instant(1_800_000_000_000_000)
    });
    let (handle, memory) = UserPlane::start_in_memory(config.clone()).unwrap_or_else(|e| panic!("{e}"));
    let mut net = Control::with(handle, config);
    let sessions = [net.next_session(), net.next_session()];
    let (_, teid, ue, _) = *sessions.iter().find(|s| s.0.index % 2 == 1).unwrap();
    let held = gate.lock().unwrap();
    const SENT: u64 = 5_000;
    let from_gnb = Origin::N3 { peer: GNB_ADDRESS, local: UPF.into() };
    for n in 0..SENT {
        assert!(memory.put_at(0, from_gnb, &g_pdu(teid, &udp(ue, SERVER, n as u32))));
    }
    let lost = || net.handle.io_counters().hand_over_full;
    eventually(
        || lost() + net.handle.io_counters().handed_over == SENT && lost() > 1_000,
        || format!("{:?}", net.handle.io_counters()),
    );
    drop(held);
    let passed = || net.handle.counters().ul_packets == SENT - lost();
    eventually(passed, || format!("{:?}", net.handle.counters()));
}

/// The kernel brings packets to the thread that has their session, both ways; where it is not permitted to, threads do.
#[test]
fn the_kernel_steers_packets_to_their_threads() {
    let test = "the_kernel_steers_packets_to_their_threads";
    with_io(test, &[("udp/threads", N3Io::Udp)], |io, ran| {
        let Some(mut net) = Control::start(config(io)) else { return };
        assert_eq!(net.handle.threads(), 4);
        let gnb = ran.socket(GNB.into());
        let gateway = Ipv4Addr::new(10, 45, 0, 1);
        let gateway6 = "2001:db8:45::1".parse().unwrap();
        let sessions: Vec<_> = (0..16).map(|_| net.next_session()).collect();
        for sequence in 0..20 {
            for (_, teid, ue, prefix) in &sessions {
                gnb.send_to(&g_pdu(*teid, &ping4(*ue, gateway, sequence, 100)), (UPF, 2152)).unwrap();
                let (_, reply) = receive(&gnb);
                assert_eq!((&reply[16..20], &reply[26..28]), (&ue.octets()[..], &sequence.to_be_bytes()[..]));
                let ue6 = (prefix.to_bits() | 9).into();
                gnb.send_to(&g_pdu(*teid, &ping6(ue6, gateway6, sequence, 100)), (UPF, 2152)).unwrap();
                let (_, reply) = receive(&gnb);
                assert_eq!(
                    (&reply[24..40], &reply[46..48]),
                    (&ue6.octets()[..], &sequence.to_be_bytes()[..])
                );
            }
        }
        let steered = net.handle.notices().is_empty();
        eventually(|| net.handle.counters().dl_packets == 640, || format!("{:?}", net.handle.counters()));
        let handed = net.handle.io_counters().handed_over;
        assert!(handed == 0 || !steered, "{handed} packets arrived elsewhere");
    });
}

/// Whatever the kernel spreads datagrams by, one thread decides on all packets of a session: its counters, which that thread alone has, are of all of them.
/// By TEID and by the UE's address no thread hands any to another.
#[test]
fn one_thread_decides_on_all_uplink_packets_of_a_session_whatever_they_are_spread_by() {
    let test = "one_thread_decides_on_all_uplink_packets_of_a_session_whatever_they_are_spread_by";
    with_io(test, &[("udp/threads", N3Io::Udp)], |io, ran| {
        for by in [SpreadBy::Teid, SpreadBy::UeAddress, SpreadBy::GnbAddress, SpreadBy::GnbFlow] {
            let mut config = config(io);
            config.spread_by = by;
            let Some(mut net) = Control::start(config) else { return };
            // Ports of one gNB, which spreads its flows over them (TS 29.281 §4.4.2.3).
            let ports: Vec<_> = (0..8).map(|_| ran.socket_at(GNB.into(), 0)).collect();
            let sessions: Vec<_> = (0..8).map(|_| net.next_session()).collect();
            const ROUNDS: u64 = 20;
            // The host does not answer a packet with such a checksum.
            let gateway = Ipv4Addr::new(10, 45, 0, 1);
            for n in 0..ROUNDS {
                for (_, teid, ue, _) in &sessions {
                    for port in &ports {
                        port.send_to(&g_pdu(*teid, &udp(*ue, gateway, n as u32)), (UPF, 2152)).unwrap();
                    }
                }
            }
            let each = ROUNDS * ports.len() as u64;
            for (id, ..) in &sessions {
                let passed = || net.session_counters(*id).ul_packets == each;
                eventually(passed, || format!("{by:?}: {:?}", net.handle.io_counters()));
            }
            let all = each * sessions.len() as u64;
            let published =
                || net.handle.counters().ul_packets == all && net.handle.io_counters().n6_sent >= all;
            eventually(published, || format!("{by:?}: {:?}", net.handle.io_counters()));
            // The thread that hands packets over publishes its counters after the one that has passed them.
            let handed = match by {
                SpreadBy::Teid | SpreadBy::UeAddress => 0,
                // Of eight sessions on four threads, six are at others than the one at which a datagram arrives.
                SpreadBy::GnbAddress | SpreadBy::GnbFlow => each * 6,
            };
            let as_expected = || net.handle.io_counters().handed_over == handed;
            eventually(as_expected, || format!("{by:?}: {:?}", net.handle.io_counters()));
        }
    });
}

/// Where an interface has fewer queues than threads were asked for, there are fewer threads, and they have all sessions.
#[test]
fn there_are_no_more_threads_than_queues() {
    with_io("there_are_no_more_threads_than_queues", &[("af_xdp", N3Io::AfXdp)], |io, ran| {
        let mut config = config(io);
        config.user.shards = 4;
        let Some(mut net) = Control::start(config) else { return };
        assert_eq!((net.handle.rings().unwrap().queues, net.handle.threads()), (1, 1));
        let gnb = ran.socket(GNB.into());
        for sequence in 0..8 {
            let (_, teid, ue, _) = net.next_session();
            let ping = ping4(ue, Ipv4Addr::new(10, 45, 0, 1), sequence, 100);
            let reply = exchange(&gnb, teid, &ping, |p| p.get(16..20) == Some(&ue.octets()));
            assert_eq!(reply[26..28], sequence.to_be_bytes());
        }
    });
}
