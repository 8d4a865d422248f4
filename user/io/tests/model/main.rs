//! Each kind of packet I/O against the reference model of the pipeline's own tests (`user/tests/reference`): the same random steps,
//! packet for packet and octet for octet as they come out, count for count.

#[path = "../../../tests/reference/account.rs"]
mod account;
#[path = "../../../tests/common/mod.rs"]
mod common;
mod live;
#[allow(clippy::module_inception, reason = "a model of the UPF in the test of that name")]
#[path = "../../../tests/reference/model.rs"]
mod model;
#[allow(dead_code, reason = "here pipelines have threads")]
#[path = "../../../tests/reference/pair.rs"]
mod pair;
mod wires;

use super::common as host;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use host::{Namespace, SURELY, with_io};
use live::{Live, clock};
use pair::{BUFFERING, Pair, SEATS, SLICE, Scope, is_change, isolation};
use proptest::prelude::*;
use whimbrel_user::{Buffering, Origin};
use whimbrel_user_io::{Config, N3Io, RouterLink, UserPlane, system_clock};

/// What goes on at once, and what waited and goes on with it, come out by one way: their order cannot be observed.
const ALONE: Scope = Scope { predicts: false, wide: false, ..Scope::ALL };
/// Bounds of each session alone: those of all together depend on whose packet is first where there are several threads.
const EACH: Buffering = Buffering { packets: 100_000, octets: 1 << 30, ..BUFFERING };
const TOGETHER: Scope = Scope { bounds: EACH, sliced: false, ..ALONE };

type Step = (u8, u8, u16);

fn whole_life(pair: &mut Pair<Live>, steps: &[Step]) {
    for step in steps {
        pair.step(*step);
    }
    (0..SEATS).for_each(|at| pair.delete(at));
}

/// A user plane of the pipeline's own tests.
fn config(shards: u8, scope: Scope) -> Config {
    let path_failure = Duration::from_secs(1_000_000);
    let slices = if scope.sliced { vec![SLICE] } else { Vec::new() };
    let user = whimbrel_user::Config {
        shards,
        slices,
        buffering: scope.bounds,
        path_failure,
        isolation: isolation(),
        ..common::config()
    };
    Config::new(user, "upf")
}

fn in_memory(threads: u8, scope: Scope, steps: &[Step]) {
    let (time, clock) = clock();
    let config = Config { clock, ..config(threads, scope) };
    let (handle, memory) = UserPlane::start_in_memory(config.clone()).unwrap_or_else(|e| panic!("{e}"));
    let wire = Box::new(wires::InMemory::new(memory, threads));
    let mut pair = Live::new(config.user, handle, Some(time), wire).pair(scope);
    whole_life(&mut pair, steps);
    pair.net.upf.handle.stop().unwrap();
}

proptest! {
    // Where packets are waited for, to make a failing case smaller takes longer than to read it.
    #![proptest_config(ProptestConfig { cases: 30, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_packet_thread_decides_as_the_model_decides(
        steps in proptest::collection::vec(any::<(u8, u8, u16)>(), 1..60),
    ) {
        in_memory(1, ALONE, &steps);
    }

    #[test]
    fn packet_threads_decide_together_as_the_model_decides(
        steps in proptest::collection::vec(any::<(u8, u8, u16)>(), 1..60),
    ) {
        in_memory(4, TOGETHER, &steps);
    }
}

/// Steps that are the same each time.
fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut random = seed;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 40) as u16
    };
    (0..count).map(|_| (next() as u8, next() as u8, next())).collect()
}

/// Changes of rules without packets between them, then one long burst, whose packets are in the file.
#[test]
fn a_capture_is_decided_on_as_the_model_decides() {
    let folder = std::env::temp_dir().join(format!("whimbrel-model-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (from, to) = (folder.join("in.pcap"), folder.join("out.pcap"));
    let scope = Scope { burst_max: 2_000, ..ALONE };
    for seed in 0..12 {
        // No end markers: nothing comes out before packets come.
        let changes =
            steps(seed, 40).into_iter().filter(is_change).map(|(what, which, n)| (what, which, n & !8));
        let changes: Vec<Step> = changes.collect();
        // Sessions are the same each time, so one user plane says what another is to be given.
        let packets = Rc::new(RefCell::new(Vec::<(Origin, Vec<u8>)>::new()));
        let seen = Rc::clone(&packets);
        let mut first = Pair::with(|_| {
            Box::new(move |u, now, slots| {
                seen.borrow_mut().extend(slots.iter().map(|s| live::carried(s.origin, s.packet.octets())));
                u.burst(now, slots);
            })
        });
        first.scope = scope;
        let mut first = first.of_both_families();
        changes.iter().for_each(|step| first.step(*step));
        first.burst(0, seed);
        std::fs::write(&from, wires::capture(&packets.borrow())).unwrap();
        let (time, clock) = clock();
        let config = Config { clock, ..config(1, scope) };
        let (handle, replay) =
            UserPlane::start_on_capture(config.clone(), &from, &to).unwrap_or_else(|e| panic!("{e}"));
        let wire = Box::new(wires::Captures::new(replay, to.clone()));
        let mut pair = Live::new(config.user, handle, Some(time), wire).pair(scope);
        changes.iter().for_each(|step| pair.step(*step));
        pair.burst(0, seed);
        (0..SEATS).for_each(|at| pair.delete(at));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// One processor for all: what one thread sends by several is not in its order any more.
fn on_one_processor() {
    // SAFETY: for this plain C struct all zeroes are a value; it lives through both calls, and its length is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|n| libc::CPU_ISSET(*n, &set)).unwrap();
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// The Ethernet address in what `ip link` says.
fn mac(text: &str) -> &str {
    text.split("link/ether ").nth(1).and_then(|t| t.split(' ').next()).unwrap()
}

const ROUTERS: [&str; 2] = ["203.0.113.2", "2001:db8:113::2"];

/// A gNB and, where the data network has an interface, a router, each in a namespace of its own; `None`, with a sentence, where the host
/// does not permit the kind.
fn between(io: N3Io, ran: &Namespace, server: &Namespace, scope: Scope) -> Option<Pair<Live>> {
    on_one_processor();
    // What leaves the UPF is seen there, and goes nowhere.
    let nowhere = "ip route add blackhole default; ip -6 route add blackhole default";
    host::sh(nowhere);
    server.sh(nowhere);
    // The kernel knows all neighbours, and so does the UPF.
    let (gnb, router) = (ran.sh("ip -o link show gnb"), server.sh("ip -o link show server"));
    host::sh(&format!("ip neigh replace {GNB} lladdr {} dev n3 nud permanent", mac(&gnb), GNB = host::GNB));
    for address in ROUTERS {
        host::sh(&format!("ip neigh replace {address} lladdr {} dev n6 nud permanent", mac(&router)));
    }
    let n6 = host::sh("ip -o link show n6");
    let by_interface = io != N3Io::Udp;
    let mut config = Config { n3_io: io, ..config(host::threads(), scope) };
    let (time, clock) = if scope.times { clock_of_ours() } else { (None, system_clock()) };
    config.clock = clock;
    config.user.data_networks[0].mtu = 1_500;
    if by_interface {
        ran.takes_redirected("gnb");
        server.takes_redirected("server");
        ["n3", "n6"].into_iter().for_each(host::sends_in_order);
        let routers = ROUTERS.map(|r| r.parse().unwrap()).into();
        config.devices[0].link =
            Some(RouterLink { interface: "n6".into(), routers, vlan: None, tunnel: None });
    }
    let handle = host::started(&config)?;
    let network = match by_interface {
        true => server.enter(|| wires::network_socket("server")),
        false => wires::network_socket("upf0"),
    };
    let octets: Vec<u8> = mac(&n6).split(':').map(|o| u8::from_str_radix(o, 16).unwrap()).collect();
    let to = by_interface.then(|| octets.try_into().unwrap());
    let wire = wires::Sockets::new(ran.socket(host::GNB.into()), network, to);
    Some(Live::new(config.user, handle, time, Box::new(wire)).pair(scope))
}

fn clock_of_ours() -> (Option<std::sync::Arc<std::sync::atomic::AtomicU64>>, whimbrel_user_io::Clock) {
    let (time, clock) = clock();
    (Some(time), clock)
}

/// Other packets than ours come by the kernel's devices: of neighbour discovery.
const BY_KERNEL: Scope = Scope { one_source: false, quiet: false, ..ALONE };

/// The same, of one thread or of several.
fn by_kernel() -> Scope {
    if host::threads() == 1 { BY_KERNEL } else { Scope { bounds: EACH, sliced: false, ..BY_KERNEL } }
}

#[test]
fn sockets_and_devices_decide_as_the_model_decides() {
    let test = "sockets_and_devices_decide_as_the_model_decides";
    with_io(test, &[("udp", N3Io::Udp), ("udp/threads", N3Io::Udp)], |io, ran| {
        let server = Namespace::server_by(1);
        let mut pair = between(io, &ran, &server, by_kernel()).unwrap();
        pair.net.upf.begin();
        (0..ROUNDS).for_each(|seed| whole_life(&mut pair, &steps(seed, 60)));
    });
}

/// Lives of all sessions, one after the other.
const ROUNDS: u64 = 8;

#[test]
fn rings_decide_as_the_model_decides() {
    let test = "rings_decide_as_the_model_decides";
    with_io(test, &[("af_xdp", N3Io::AfXdp), ("af_xdp/threads", N3Io::AfXdp)], |io, ran| {
        let server = Namespace::server_by(1);
        let Some(mut pair) = between(io, &ran, &server, by_kernel()) else { return };
        warm_up(&mut pair);
        (0..ROUNDS).for_each(|seed| whole_life(&mut pair, &steps(seed, 60)));
        let io = pair.net.upf.handle.io_counters();
        assert!(io.n6_sent > io.n6_sent_by_device && io.n3_sent > io.n3_sent_by_socket, "{io:?}");
    });
}

/// In the driver time is the kernel's, so nothing is asked that depends on it.
const BY_DRIVER: Scope = Scope {
    times: false,
    sliced: false,
    bounds: Buffering { age: Duration::from_secs(3_600), ..BUFFERING },
    ..BY_KERNEL
};

#[test]
fn the_driver_and_rings_decide_together_as_the_model_decides() {
    let test = "the_driver_and_rings_decide_together_as_the_model_decides";
    with_io(test, &[("xdp", N3Io::Xdp)], |io, ran| {
        let server = Namespace::server_by(1);
        let Some(mut pair) = between(io, &ran, &server, BY_DRIVER) else { return };
        warm_up(&mut pair);
        for seed in 0..ROUNDS {
            pair.scope.odd = seed % 4 == 3;
            whole_life(&mut pair, &steps(seed, 60));
        }
        // Else this would show nothing of it.
        pair.scope.odd = false;
        pair.establish(0, 0x3041);
        let forwarded = |pair: &Pair<Live>| {
            let io = pair.net.upf.handle.io_counters();
            io.fast_uplink.min(io.fast_downlink)
        };
        let (before, begun) = (forwarded(&pair), Instant::now());
        for random in 0.. {
            assert!(begun.elapsed() < SURELY, "{:?}", pair.net.upf.handle.io_counters());
            pair.step((7, 0, 0));
            pair.burst(0, random);
            if forwarded(&pair) > before + 100 {
                break;
            }
        }
        pair.delete(0);
    });
}

/// Packets until they go by the rings: each thread asks for the next hops when it sends to them first, and until it knows them the kernel
/// has its packets. There are as many seats as threads, so each thread has a session.
fn warm_up(pair: &mut Pair<Live>) {
    let by_rings = |pair: &Pair<Live>| {
        let io = pair.net.upf.handle.io_counters();
        let n6 = (io.n6_sent + io.fast_uplink).saturating_sub(io.n6_sent_by_device);
        let n3 = (io.n3_sent + io.fast_downlink).saturating_sub(io.n3_sent_by_socket);
        n6.min(n3)
    };
    (0..SEATS).for_each(|at| pair.establish(at, 0x3041));
    for at in 0..SEATS {
        let (before, begun) = (by_rings(pair), Instant::now());
        while by_rings(pair) < before + 20 {
            assert!(begun.elapsed() < SURELY, "{:?}", pair.net.upf.handle.io_counters());
            pair.offer(at, Live::put);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    (0..SEATS).for_each(|at| pair.forget(at));
    pair.net.upf.begin();
}
