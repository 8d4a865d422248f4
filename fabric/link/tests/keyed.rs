//! Links under the cluster's key, over sockets: what `src/protocol/tests.rs` shows of the octets, here with peers that connect.

use super::common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::{End, LinkReport, linked, send_raw, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whimbrel_link::{ClusterKey, DownReason, LinkSettings, Links};

fn keyed(of: u8) -> impl FnOnce(&mut LinkSettings) {
    move |settings| settings.keys = vec![ClusterKey::new([of; 32])]
}

#[test]
fn frames_of_all_lengths_pass_both_ways() {
    let (mut b, at) = End::listening(keyed(1));
    let mut a = End::calling(keyed(1));
    let (ab, ba) = linked(&mut a, &mut b, at);
    assert_eq!(a.reports, [LinkReport::Up(ab, b"the listener".to_vec(), true)]);
    assert_eq!(b.reports, [LinkReport::Up(ba, b"the caller".to_vec(), false)]);
    let sent: Vec<Vec<u8>> = [0, 1, 600, 65_535, 70_000, 1024 * 1024].map(|n| vec![n as u8; n]).to_vec();
    for frame in &sent {
        a.links.send(ab, frame);
        b.links.send(ba, frame);
    }
    until(&mut [&mut a, &mut b], |e| e.iter().all(|e| e.frames().len() == 6));
    assert!(a.frames() == sent && b.frames() == sent);
}

#[test] // a process sleeps when nothing arrives and nothing is due: what it has still to send is due
fn frames_that_one_turn_could_not_seal_are_due_in_the_next() {
    let (mut b, at) = End::listening(keyed(1));
    let mut a = End::calling(keyed(1));
    let (link, _) = linked(&mut a, &mut b, at);
    (0..12u8).for_each(|n| a.links.send(link, &vec![n; 256 * 1024]));
    a.links.flush();
    for _ in 0..10_000 {
        b.turn();
        if b.frames().len() == 12 {
            return;
        }
        if a.links.next_deadline().is_some_and(|due| due <= a.now) || is_ready(&a.links) {
            a.turn();
        }
    }
    panic!("{} of 12 have come, and the rest is not due", b.frames().len());
}

fn is_ready(links: &Links) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(links.fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

#[test]
fn a_long_queue_passes_through_a_full_socket() {
    let (mut b, at) = End::listening(keyed(1));
    let mut a = End::calling(keyed(1));
    let link = a.links.connect(a.now, at);
    for n in 0..16u8 {
        a.links.send(link, &vec![n; 1024 * 1024]);
    }
    for _ in 0..100 {
        a.turn();
    }
    until(&mut [&mut a, &mut b], |e| e[1].frames().len() == 16);
    assert!(b.frames().iter().zip(0u8..).all(|(f, n)| f.len() == 1024 * 1024 && f.iter().all(|o| *o == n)));
}

#[test]
fn a_peer_that_takes_nothing_loses_the_link_at_the_bound() {
    let (mut b, at) = End::listening(keyed(1));
    let mut a = End::calling(|s| {
        keyed(1)(s);
        s.queue_octets_max = 8 * 1024 * 1024;
        // The kernel's time, which passes while a busy host encrypts: it is not to find the peer silent first.
        s.silence_max = Duration::from_secs(3_600);
    });
    let (link, _) = linked(&mut a, &mut b, at);
    for _ in 0..64 {
        a.links.send(link, &[7; 1024 * 1024]);
        a.turn();
    }
    assert_eq!(a.reports.last(), Some(&LinkReport::Down(link, DownReason::QueueFull)));
}

#[test]
fn with_a_key_links_may_leave_the_host() {
    let mut settings = LinkSettings::new(Vec::new());
    keyed(1)(&mut settings);
    settings.listen = Some("0.0.0.0:0".parse().unwrap());
    let listener = Links::open(settings).unwrap();
    assert!(listener.local_addr().is_some_and(|at| at.ip().is_unspecified()));
}

#[test]
fn a_wrong_key_is_reported_at_the_called_end() {
    let (mut b, at) = End::listening(keyed(1));
    let mut a = End::calling(keyed(2));
    let link = a.links.connect(a.now, at);
    until(&mut [&mut a, &mut b], |e| !e[0].ended().is_empty() && !e[1].ended().is_empty());
    assert_eq!(b.reports, [LinkReport::Rejected(DownReason::WrongKey)]);
    assert!(
        a.reports == [LinkReport::Down(link, DownReason::Left)]
            || a.reports == [LinkReport::Down(link, DownReason::Broken)]
    );
    assert_eq!(b.links.counters().down(DownReason::WrongKey), 1);
}

#[test]
fn different_protection_is_reported_at_both_ends() {
    for (caller, listener) in [(false, true), (true, false)] {
        let of = |yes: bool| {
            move |s: &mut LinkSettings| {
                if yes {
                    keyed(1)(s)
                }
            }
        };
        let (mut b, at) = End::listening(of(listener));
        let mut a = End::calling(of(caller));
        a.links.connect(a.now, at);
        until(&mut [&mut a, &mut b], |e| !e[1].ended().is_empty());
        assert_eq!(b.reports, [LinkReport::Rejected(DownReason::Protection)]);
    }
}

#[test]
fn a_peer_without_the_key_is_rejected_and_gets_no_octet() {
    let (mut b, at) = End::listening(keyed(1));
    let long = [b"WBLK\x02\x01\x04\x31".as_slice(), &[0; 2000]].concat();
    let garbage = [b"WBLK\x02\x01\x00\x30".as_slice(), &[9; 48]].concat();
    for (octets, reason) in [
        (&b"GET / HTTP/1.1\r\n"[..], DownReason::Foreign),
        (b"WBLK\x02\x00\x00\x02me", DownReason::Protection),
        (b"WBLK\x02\x01\x00\x00", DownReason::WrongKey),
        (&garbage, DownReason::WrongKey),
        (&long, DownReason::HelloTooLong),
    ] {
        assert_eq!(send_raw(&mut b, at, octets, false), reason);
        assert_eq!(b.reports.last(), Some(&LinkReport::Rejected(reason)));
    }
    assert_eq!(b.links.counters().octets_out, 0);
}

/// An attacker between a caller and a listener that can change what passes.
struct Between {
    at: SocketAddr,
    listener: TcpListener,
    to: SocketAddr,
    pair: Option<[TcpStream; 2]>,
}

impl Between {
    fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { at: listener.local_addr().unwrap(), listener, to, pair: None }
    }

    /// Passes on what both ends sent, as `change` leaves it; its first argument is the sender, 0 for the caller.
    fn pass(&mut self, change: &mut impl FnMut(usize, &mut Vec<u8>)) {
        if let (None, Ok((caller, _))) = (&self.pair, self.listener.accept()) {
            let called = TcpStream::connect(self.to).unwrap();
            caller.set_nonblocking(true).unwrap();
            called.set_nonblocking(true).unwrap();
            self.pair = Some([caller, called]);
        }
        let Some(pair) = &mut self.pair else { return };
        for from in 0..2 {
            let mut octets = vec![0; 4096];
            let Ok(read) = pair[from].read(&mut octets) else { continue };
            octets.truncate(read);
            change(from, &mut octets);
            let _ = pair[1 - from].write_all(&octets);
        }
    }
}

/// Brings a link up through an attacker and sends a frame each way. Returns both ends.
fn through(mut change: impl FnMut(usize, &mut Vec<u8>)) -> (End, End) {
    let (mut b, at) = End::listening(keyed(1));
    let mut a = End::calling(keyed(1));
    let mut between = Between::new(at);
    let link = a.links.connect(a.now, between.at);
    a.links.send(link, b"from the caller");
    for turn in 0..3000 {
        a.turn();
        between.pass(&mut change);
        b.turn();
        if turn > 100 {
            std::thread::sleep(Duration::from_micros(200));
        }
        let done = b.frames().len() == 1 || !a.ended().is_empty() || !b.ended().is_empty();
        if done && turn > 100 {
            break;
        }
    }
    (a, b)
}

#[test]
fn a_relay_changes_nothing() {
    let (a, b) = through(|_, _| {});
    assert_eq!((a.ups().len(), b.frames()), (1, vec![b"from the caller".to_vec()]));
}

#[test]
fn a_changed_record_ends_the_link() {
    let mut packets = 0;
    let (_, b) = through(|from, octets| {
        packets += usize::from(from == 0);
        if from == 0 && packets > 1 {
            *octets.last_mut().unwrap() ^= 1;
        }
    });
    assert_eq!(b.ended(), [DownReason::Forged]);
    assert_eq!(b.frames(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_changed_answer_ends_the_link() {
    let (a, b) = through(|from, octets| {
        if from == 1 {
            *octets.last_mut().unwrap() ^= 1;
        }
    });
    assert_eq!((a.ended(), a.ups().len()), (vec![DownReason::WrongKey], 0));
    assert_eq!(b.ups().len(), 0);
}

#[test]
fn repeated_octets_end_the_link() {
    let (_, b) = through(|from, octets| {
        if from == 0 {
            octets.extend_from_within(..);
        }
    });
    assert_eq!(b.ended(), [DownReason::Forged]);
    assert_eq!(b.ups().len(), 0);
}

#[test]
fn a_recorded_greeting_holds_a_pending_link_only_for_the_greeting_time() {
    let mut recorded = Vec::new();
    let _ = through(|from, octets| {
        if from == 0 && recorded.is_empty() {
            recorded.clone_from(octets);
        }
    });
    let (mut b, at) = End::listening(keyed(1));
    let mut again = TcpStream::connect(at).unwrap();
    again.write_all(&recorded).unwrap();
    until(&mut [&mut b], |e| e[0].links.counters().octets_out > 0);
    b.pass(Duration::from_secs(5));
    b.turn();
    assert_eq!(b.reports, [LinkReport::Rejected(DownReason::NoGreeting)]);
}
