//! TCP between a UE's kernel and a server's, of which the UPF's kernel cuts nothing and writes no checksum.

use super::common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::Teid;
use whimbrel_user_io::N3Io;

/// Octets that go each way.
const OCTETS: usize = 4 << 20;

/// Carries packets between a UE's device and its gNB's socket, until the process ends; the longest that came to the UE.
fn carry(device: File, gnb: UdpSocket, teid: Teid) -> Arc<AtomicUsize> {
    let longest = Arc::new(AtomicUsize::new(0));
    let (mut from_ue, up) = (device.try_clone().unwrap(), gnb.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut b = [0; 4096];
        while let Ok(n) = from_ue.read(&mut b) {
            up.send_to(&g_pdu(teid, &b[..n]), (UPF, 2152)).unwrap();
        }
    });
    let (mut to_ue, seen) = (device, Arc::clone(&longest));
    gnb.set_read_timeout(None).unwrap();
    std::thread::spawn(move || {
        let mut b = [0; 65_536];
        while let Ok((n, _)) = gnb.recv_from(&mut b) {
            let Ok(m) = Gtpu::parse(&b[..n]) else { continue };
            if m.message_type == message_type::G_PDU {
                seen.fetch_max(m.payload.len(), Ordering::Relaxed);
                to_ue.write_all(m.payload).ok();
            }
        }
    });
    longest
}

fn octet(at: usize) -> u8 {
    (at / 7) as u8 ^ (at >> 12) as u8
}

/// The server sends so much, and gets as much back, of which each octet says where it stands.
fn download_and_upload(server: &Namespace, ran: &Namespace, address: SocketAddr) {
    let listener = server.listen(address);
    let serving = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let all: Vec<u8> = (0..OCTETS).map(octet).collect();
        connection.write_all(&all).unwrap();
        let mut back = Vec::new();
        connection.read_to_end(&mut back).unwrap();
        assert!(back == all, "what came to the server is not what was sent to it");
    });
    let mut ue = ran.connect(address);
    let mut all = vec![0; OCTETS];
    ue.read_exact(&mut all).unwrap();
    assert!(
        all.iter().enumerate().all(|(at, &o)| o == octet(at)),
        "what came to the UE is not what was sent to it"
    );
    ue.write_all(&all).unwrap();
    drop(ue);
    serving.join().unwrap();
}

#[test]
fn tcp_passes_uncut_through_the_kernel_and_cut_to_the_ues_mtu() {
    let test = "tcp_passes_uncut_through_the_kernel_and_cut_to_the_ues_mtu";
    with_io(test, &[("udp", N3Io::Udp), ("udp/threads", N3Io::Udp)], |io, ran| {
        let server = Namespace::server();
        let Some(mut net) = Control::start(config(io)) else { return };
        let (_, teid, ue, prefix) = net.session();
        let ue6 = (prefix.to_bits() | 9).into();
        server.sh(
            "ip route add 10.45.0.0/16 via 203.0.113.1; ip -6 route add 2001:db8:45::/48 via 2001:db8:113::1",
        );
        let longest = carry(ran.ue(ue, ue6), ran.socket(GNB.into()), teid);
        let to: Ipv4Addr = SERVER;
        download_and_upload(&server, &ran, (to, 5201).into());
        let long = || net.handle.io_counters().n6_long;
        eventually(|| long() > 0, || format!("{:?}", net.handle.io_counters()));
        let of_ipv4 = long();
        download_and_upload(&server, &ran, "[2001:db8:113::2]:5201".parse().unwrap());
        eventually(|| long() > of_ipv4, || format!("{:?}", net.handle.io_counters()));
        assert!((1_300..=1_400).contains(&longest.load(Ordering::Relaxed)), "{longest:?}");
        let io = net.handle.io_counters();
        assert_eq!((io.malformed, io.receive_errors, io.send_errors), (0, 0, 0));
        eprintln!("{} long packets of {}", io.n6_long, io.n6_received);
    });
}
