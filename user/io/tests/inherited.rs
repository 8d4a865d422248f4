//! A user plane that ends and begins again with its state, on sockets and devices that are held meanwhile: no packet is lost.

use super::common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use common::*;
use whimbrel_user::SessionMemory;
use whimbrel_user_io::{Config, Descriptors, Handle, N3Io, StateFile, UserPlane, boot_id};

const PACKETS: u16 = 40;

/// A packet thread, and four of them.
fn each_way(test: &str, run: impl Fn(Config, Namespace)) {
    with_io(test, &[("udp", N3Io::Udp), ("udp/threads", N3Io::Udp)], |io, ran| {
        // As after a kill: what a user plane has set on the host stays.
        sh("echo 1 >/proc/sys/net/ipv4/ip_forward");
        run(Config { keeps_state: true, forwarding: false, ..config(io) }, ran);
    });
}

fn open(path: &std::path::Path, config: &mut Config) -> SessionMemory {
    let file = StateFile::open(path, &config.user).unwrap();
    SessionMemory::open(Box::new(file), &mut config.user, boot_id(), (config.clock)())
}

fn server() -> (Namespace, UdpSocket) {
    let server = Namespace::server();
    server.sh("ip route add 10.45.0.0/16 via 203.0.113.1");
    let socket = server.socket(SERVER.into());
    (server, socket)
}

/// The sequence numbers of pings of a UE whose answers come to its gNB.
fn answers(gnb: &UdpSocket, count: u16) -> Vec<u16> {
    gnb.set_read_timeout(Some(SURELY)).unwrap();
    let mut all: Vec<u16> = (0..count)
        .map(|_| {
            let (_, p) = receive(gnb);
            u16::from_be_bytes([p[26], p[27]])
        })
        .collect();
    all.sort_unstable();
    all
}

fn pings(gnb: &UdpSocket, teid: whimbrel_ids::Teid, ue: Ipv4Addr, numbers: std::ops::Range<u16>) {
    for n in numbers {
        gnb.send_to(&g_pdu(teid, &ping4(ue, SERVER, n, 40)), (UPF, 2152)).unwrap();
    }
}

fn begins(held: &Descriptors, config: &Config) -> Handle {
    UserPlane::start_on(config.clone(), held.try_clone().unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn packets_wait_in_held_sockets_and_devices_while_no_user_plane_reads_them() {
    each_way("packets_wait_in_held_sockets_and_devices_while_no_user_plane_reads_them", |mut config, ran| {
        let (_server, to_ue) = server();
        let path = std::env::temp_dir().join(format!("whimbrel-inherited-{}", std::process::id()));
        let state = open(&path, &mut config);
        let held = Descriptors::open(&config).unwrap();
        let (mut net, _) = Control::keeping(begins(&held, &config), config.clone(), state);
        let (_, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        pings(&gnb, teid, ue, 0..PACKETS);
        assert_eq!(answers(&gnb, PACKETS), (0..PACKETS).collect::<Vec<_>>());
        drop(net);

        pings(&gnb, teid, ue, PACKETS..2 * PACKETS);
        (0..PACKETS).for_each(|_| _ = to_ue.send_to(&[7; 60], (ue, 9)).unwrap());
        assert_eq!(answered(&gnb, Duration::from_millis(50)), None, "nothing reads");
        // Those of the former process, in the form in which they are handed on.
        let held = Descriptors::from_list(held.into_list(), &config).unwrap();
        let state = open(&path, &mut config);
        let (mut net, sessions) = Control::keeping(begins(&held, &config), config.clone(), state);
        assert_eq!(sessions, 1);
        // Those of the server among the answers to the pings.
        let mut all = answers(&gnb, 2 * PACKETS);
        all.retain(|n| (PACKETS..2 * PACKETS).contains(n));
        assert_eq!(all, (PACKETS..2 * PACKETS).collect::<Vec<_>>());
        let (counters, io) = (net.handle.counters(), net.handle.io_counters());
        assert_eq!((counters.dropped.iter().sum::<u64>(), io.receive_full), (0, 0), "{io:?}");
        assert_eq!(counters.error_indications_sent, 0);
        assert_ne!(net.next_session().1, teid);
        drop(net);
        std::fs::remove_file(path).unwrap();
    });
}
