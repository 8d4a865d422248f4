//! Links on one host, without protection.

use super::common;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::{End, LinkReport, linked, send_raw, until};
use whimbrel_link::{DownReason, HELLO_OCTETS_MAX, LinkId, LinkOpenError, LinkSettings, Links};

/// A greeting that is accepted.
const GREETING: &[u8] = b"WBLK\x02\x00\x00\x02me";

#[test]
fn both_ends_get_the_hello_and_frames_pass_both_ways() {
    let (mut b, at) = End::listening(|_| {});
    let mut a = End::calling(|_| {});
    let (ab, ba) = linked(&mut a, &mut b, at);
    assert_eq!(a.reports, [LinkReport::Up(ab, b"the listener".to_vec(), true)]);
    assert_eq!(b.reports, [LinkReport::Up(ba, b"the caller".to_vec(), false)]);
    a.links.send(ab, b"one");
    a.links.send(ab, b"");
    b.links.send(ba, b"two");
    until(&mut [&mut a, &mut b], |e| e[0].frames().len() == 1 && e[1].frames().len() == 2);
    assert_eq!(a.frames(), [b"two"]);
    assert_eq!(b.frames(), [b"one".to_vec(), b"".to_vec()]);
}

#[test]
fn frames_sent_before_the_link_is_up_wait_for_it() {
    let (mut b, at) = End::listening(|_| {});
    let mut a = End::calling(|_| {});
    let link = a.links.connect(a.now, at);
    a.links.send(link, b"early");
    a.links.flush();
    until(&mut [&mut a, &mut b], |e| e[1].frames().len() == 1);
    assert_eq!(b.frames(), [b"early"]);
}

#[test]
fn the_frames_of_a_turn_leave_in_one_write() {
    let (mut b, at) = End::listening(|_| {});
    let mut a = End::calling(|_| {});
    let (link, _) = linked(&mut a, &mut b, at);
    let before = a.links.counters().writes;
    for n in 0..100u32 {
        a.links.send(link, &n.to_be_bytes());
    }
    until(&mut [&mut a, &mut b], |e| e[1].frames().len() == 100);
    assert_eq!(a.links.counters().writes, before + 1);
    assert!(b.frames().iter().zip(0u32..).all(|(f, n)| f[..] == n.to_be_bytes()));
}

#[test]
fn frames_as_long_as_allowed_pass_in_order_through_a_full_socket() {
    let (mut b, at) = End::listening(|_| {});
    let mut a = End::calling(|_| {});
    let (link, _) = linked(&mut a, &mut b, at);
    for n in 0..16u8 {
        a.links.send(link, &vec![n; 1024 * 1024]);
    }
    // The other end sleeps: octets that the kernel does not take wait here.
    for _ in 0..100 {
        a.turn();
    }
    until(&mut [&mut a, &mut b], |e| e[1].frames().len() == 16);
    assert!(b.frames().iter().zip(0u8..).all(|(f, n)| f.len() == 1024 * 1024 && f.iter().all(|o| *o == n)));
}

#[test]
fn a_peer_that_takes_nothing_loses_the_link_at_the_bound() {
    let (mut b, at) = End::listening(|_| {});
    let mut a = End::calling(|s| s.queue_octets_max = 8 * 1024 * 1024);
    let (link, _) = linked(&mut a, &mut b, at);
    for _ in 0..64 {
        a.links.send(link, &[7; 1024 * 1024]);
        a.turn();
    }
    assert_eq!(a.reports.last(), Some(&LinkReport::Down(link, DownReason::QueueFull)));
    assert_eq!(a.links.counters().down(DownReason::QueueFull), 1);
    assert_eq!(a.ended().len(), 1, "reported once");
    // Frames that arrived whole before are delivered; an incomplete one is not.
    until(&mut [&mut b], |e| e[0].ended().len() == 1);
    assert!(matches!(b.ended()[0], DownReason::Truncated | DownReason::Broken | DownReason::Closed));
}

#[test]
fn a_closed_link_is_reported_to_the_other_end_alone_and_its_number_is_not_used_again() {
    let (mut b, at) = End::listening(|_| {});
    let mut a = End::calling(|_| {});
    let (ab, ba) = linked(&mut a, &mut b, at);
    a.links.send(ab, b"last frame");
    a.links.close(ab);
    until(&mut [&mut a, &mut b], |e| !e[1].ended().is_empty());
    assert_eq!(
        b.reports[1..],
        [LinkReport::Frame(ba, b"last frame".to_vec()), LinkReport::Down(ba, DownReason::Closed)]
    );
    assert_eq!(a.ended(), []);
    a.links.send(ab, b"too late");
    b.links.send(ba, b"too late");
    let (again, _) = linked(&mut a, &mut b, at);
    assert_ne!(again, ab);
    assert_eq!(b.frames().len(), 1);
}

#[test]
fn a_refused_connection_is_reported_as_unreachable() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut a = End::calling(|_| {});
    let link = a.links.connect(a.now, closed);
    until(&mut [&mut a], |e| !e[0].ended().is_empty());
    assert_eq!(a.reports, [LinkReport::Down(link, DownReason::Unreachable)]);
}

#[test]
fn without_protection_links_stay_on_the_host() {
    let elsewhere: SocketAddr = "192.0.2.1:7000".parse().unwrap();
    for at in [elsewhere, "0.0.0.0:0".parse().unwrap(), "[::]:0".parse().unwrap()] {
        let mut settings = LinkSettings::new(Vec::new());
        settings.listen = Some(at);
        assert!(matches!(Links::open(settings), Err(LinkOpenError::Unprotected(_))));
    }
    let mut a = End::calling(|_| {});
    let link = a.links.connect(a.now, elsewhere);
    assert_eq!(a.links.next_deadline(), Some(whimbrel_ids::Instant::ZERO), "there is an event");
    a.turn();
    assert_eq!(a.reports, [LinkReport::Down(link, DownReason::Unprotected)]);
}

#[test]
fn the_hello_is_bounded() {
    assert!(Links::open(LinkSettings::new(vec![0; HELLO_OCTETS_MAX])).is_ok());
    let long = Links::open(LinkSettings::new(vec![0; HELLO_OCTETS_MAX + 1]));
    assert!(matches!(long, Err(LinkOpenError::HelloTooLong(_))));
}

#[test]
fn a_peer_with_a_malformed_greeting_is_rejected_with_the_reason() {
    let (mut b, at) = End::listening(|s| s.frame_octets_max = 1000);
    let cases: &[(&[u8], bool, DownReason)] = &[
        (b"GET / HTTP/1.1\r\n\r\n", false, DownReason::Foreign),
        (b"WBLK\x03", false, DownReason::Version),
        (b"WBLK\x02\x00\xff\xff", false, DownReason::HelloTooLong),
        (b"WBLK\x02\x01", false, DownReason::Protection),
        (b"WBLK\x02\x00\x00\x02m", true, DownReason::Left),
        (b"", true, DownReason::Left),
    ];
    for (octets, then_closes, reason) in cases {
        assert_eq!(send_raw(&mut b, at, octets, *then_closes), *reason);
        assert_eq!(b.reports.last(), Some(&LinkReport::Rejected(*reason)));
    }
    let frame = |tail: &[u8]| [GREETING, tail].concat();
    assert_eq!(send_raw(&mut b, at, &frame(&[0, 0, 3, 0xe9]), false), DownReason::FrameTooLong);
    assert_eq!(send_raw(&mut b, at, &frame(&[0, 0, 0, 2, 1]), true), DownReason::Truncated);
    assert_eq!(send_raw(&mut b, at, GREETING, true), DownReason::Closed);
    assert_eq!(b.ups().len(), 3);
    assert_eq!(b.links.counters().down(DownReason::Truncated), 1);
}

#[test]
fn a_silent_peer_is_rejected_in_time() {
    let (mut b, at) = End::listening(|_| {});
    let _silent = TcpStream::connect(at).unwrap();
    let mut slow = TcpStream::connect(at).unwrap();
    until(&mut [&mut b], |e| e[0].links.next_deadline().is_some());
    b.pass(Duration::from_secs(4));
    slow.write_all(b"W").unwrap();
    b.turn();
    b.pass(Duration::from_secs(1));
    b.turn();
    b.turn();
    assert_eq!(
        b.reports,
        [LinkReport::Rejected(DownReason::NoGreeting), LinkReport::Rejected(DownReason::NoGreeting)]
    );
    assert_eq!(b.links.next_deadline(), None);
}

#[test]
fn silent_peers_do_not_keep_another_peer_out() {
    let (mut b, at) = End::listening(|s| s.pending_max = 4);
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(at).unwrap()).collect();
    until(&mut [&mut b], |e| e[0].ended().len() == 16);
    assert!(b.ended().iter().all(|r| *r == DownReason::Displaced));
    let mut a = End::calling(|_| {});
    linked(&mut a, &mut b, at);
    drop(silent);
}

#[test]
fn there_are_no_more_links_than_allowed() {
    let (mut b, at) = End::listening(|s| s.links_max = 2);
    let mut a = End::calling(|s| s.links_max = 3);
    linked(&mut a, &mut b, at);
    linked(&mut a, &mut b, at);
    let third = a.links.connect(a.now, at);
    until(&mut [&mut a, &mut b], |e| !e[0].ended().is_empty() && !e[1].ended().is_empty());
    assert_eq!(b.reports.last(), Some(&LinkReport::Rejected(DownReason::NoRoom)));
    assert!(a.reports.iter().any(|t| matches!(t, LinkReport::Down(link, _) if *link == third)));
    let full: Vec<LinkId> = (0..2).map(|_| a.links.connect(a.now, at)).collect();
    a.turn();
    assert!(a.reports.contains(&LinkReport::Down(full[1], DownReason::NoRoom)));
}

#[test]
fn a_frame_longer_than_allowed_ends_the_link_at_its_sender() {
    let (mut b, at) = End::listening(|_| {});
    let mut a = End::calling(|s| s.frame_octets_max = 10);
    let (link, _) = linked(&mut a, &mut b, at);
    a.links.send(link, &[0; 11]);
    a.turn();
    assert_eq!(a.reports.last(), Some(&LinkReport::Down(link, DownReason::FrameTooLong)));
}
