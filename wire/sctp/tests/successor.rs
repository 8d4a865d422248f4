//! Another endpoint goes on with the associations of one that is gone, whatever moment it dies in: the peer keeps its association, and both
//! users get each message once and in its stream's order.

use super::sim;

use std::time::Duration;

use proptest::prelude::*;
use sim::replaced::{Bank, Dies, Replaced, SECRET};
use sim::{Net, PORT, Weather};
use whimbrel_ids::Instant;
use whimbrel_sctp::{
    AssociationId, Config, Defect, DownReason, Endpoint, Input, Layout, Outbox, SavedStore, Send, State,
};

const STREAMS: u16 = 5;

fn tune(c: &mut Config) {
    c.export = true;
    c.send_buffer_octets = 128 * 1024;
    c.receive_window_octets = 32 * 1024;
    c.inbound_streams_max = 16;
    c.outbound_streams = 16;
    c.association_max_retrans = 1_000;
    c.path_max_retrans = 1_000;
}

/// A node whose endpoint has a successor.
fn add(net: &mut Net, hold: bool, dies: Dies) -> usize {
    let mut config = None;
    let n = net.add(1, |c| {
        tune(c);
        c.hold_acknowledgements = hold;
        config = Some(c.clone());
    });
    let config = config.unwrap();
    net.nodes[n].endpoint = Endpoint::new(config.clone(), SECRET, net.now);
    net.nodes[n].replaced = Some(Replaced::new(config, dies));
    n
}

/// A message that holds its sender and its number within its stream.
fn message(from: usize, number: u32, octets: usize) -> Vec<u8> {
    let mut message = vec![number as u8; octets.max(6)];
    message[..2].copy_from_slice(&(from as u16).to_be_bytes());
    message[2..6].copy_from_slice(&number.to_be_bytes());
    message
}

fn number(message: &[u8]) -> u32 {
    u32::from_be_bytes([message[2], message[3], message[4], message[5]])
}

/// Sends as a user whose outputs a replica knows: what the mark does not cover is sent again.
fn send(net: &mut Net, n: usize, id: AssociationId, stream: u16, mark: u64, octets: &[u8]) {
    for _ in 0..1_000 {
        if net.nodes[n].mark(id).is_none_or(|had| had >= mark) {
            return;
        }
        let send = Send { association: id, stream, ppid: 60, unordered: false, octets };
        if net.nodes[n].endpoint.send(send).is_ok() {
            net.nodes[n].endpoint.set_mark(id, mark);
            net.flush(n);
        } else {
            net.run(Duration::from_millis(50)); // the buffer is full
        }
    }
    panic!("message {mark} is not taken");
}

/// The replica has all messages but the newest so many.
fn release_all_but(net: &mut Net, n: usize, id: AssociationId, lag: u64) {
    let came = net.nodes[n].messages();
    net.nodes[n].endpoint.release(id, came.saturating_sub(lag));
    net.flush(n);
}

fn aborted(net: &Net) -> bool {
    net.sent.iter().any(|(.., packet)| packet.get(12) == Some(&6))
}

/// Each stream's numbers, in the order in which they came.
fn streams(net: &Net, n: usize) -> Vec<Vec<u32>> {
    let mut streams = vec![Vec::new(); usize::from(STREAMS)];
    net.nodes[n]
        .data()
        .iter()
        .for_each(|(stream, octets)| streams[usize::from(*stream)].push(number(octets)));
    streams
}

fn exchange(seed: u64, percent: u64) -> (Net, u32) {
    let mut net = Net::new(seed);
    let dies = Dies::Randomly { percent };
    add(&mut net, true, Dies::Never);
    add(&mut net, true, Dies::Never);
    let client = net.connect(0, 1);
    net.run(Duration::from_millis(100));
    let server = net.nodes[1].up().unwrap();
    net.nodes[1].replaced.as_mut().unwrap().dies = dies;
    if seed.is_multiple_of(2) {
        net.nodes[0].replaced.as_mut().unwrap().dies = dies;
    }
    net.weather = Weather {
        loss_percent: seed % 3 * 8,
        duplicate_percent: 5,
        delay_us: 500,
        jitter_us: 2_000,
        ..Weather::default()
    };
    let mut sent = [vec![0; 5], vec![0; 5]];
    for mark in 1..60u64 {
        for (n, id) in [(0, client), (1, server)] {
            let stream = net.random.below(STREAMS.into()) as u16;
            let longest = if mark.is_multiple_of(7) { 9_000 } else { 400 };
            let octets = net.random.below(longest) as usize;
            let this = &mut sent[n][usize::from(stream)];
            send(&mut net, n, id, stream, mark, &message(n, *this, octets));
            *this += 1;
        }
        let pause = net.random.below(8_000);
        net.run(Duration::from_micros(pause));
        for (n, id) in [(0, client), (1, server)] {
            let lag = net.random.below(4);
            release_all_but(&mut net, n, id, lag);
        }
    }
    for n in 0..2 {
        net.nodes[n].replaced.as_mut().unwrap().dies = Dies::Never;
    }
    for _ in 0..400 {
        net.run(Duration::from_millis(500));
        release_all_but(&mut net, 0, client, 0);
        release_all_but(&mut net, 1, server, 0);
        let idle = |n: usize, id| net.nodes[n].endpoint.status(id).is_some_and(|s| s.queued_octets == 0);
        if idle(0, client) && idle(1, server) {
            break;
        }
    }
    for (n, from) in [(0, 1), (1, 0)] {
        let refused = &net.nodes[n].replaced.as_ref().unwrap().refused;
        assert!(refused.is_empty(), "seed {seed}: {refused:?}");
        let expected: Vec<Vec<u32>> = sent[from].iter().map(|count| (0..*count).collect()).collect();
        assert_eq!(streams(&net, n), expected, "seed {seed}: node {n} got each message once, in order");
        assert!(!net.nodes[n].ended(), "seed {seed}: {:?}", net.nodes[n].down());
    }
    assert!(!aborted(&net), "seed {seed}");
    let deaths = net.nodes.iter().map(|n| n.replaced.as_ref().unwrap().deaths).sum();
    (net, deaths)
}

#[test]
fn an_association_goes_on_whenever_its_endpoint_dies() {
    let deaths: u32 = (0..30).map(|seed| exchange(seed, 10).1).sum();
    assert!(deaths > 300, "{deaths}");
}

#[test] // also when each packet is handled by another endpoint
fn an_association_goes_on_when_its_endpoint_dies_at_each_packet() {
    for seed in 100..104 {
        let (_, deaths) = exchange(seed, 40);
        assert!(deaths > 100, "{deaths}");
    }
}

/// One message in each direction, the server's endpoint dying after it has exported so many octets. Returns whether it died.
fn killed_after(octets: usize) -> bool {
    let mut net = Net::new(3);
    add(&mut net, false, Dies::Never);
    add(&mut net, true, Dies::Never);
    let client = net.connect(0, 1);
    net.run(Duration::from_millis(100));
    let server = net.nodes[1].up().unwrap();
    let replaced = net.nodes[1].replaced.as_mut().unwrap();
    replaced.banks[0].written = 0;
    replaced.dies = Dies::After { octets };
    send(&mut net, 0, client, 1, 1, &message(0, 0, 3_000));
    net.run(Duration::from_millis(5));
    send(&mut net, 1, server, 1, 1, &message(1, 0, 3_000));
    net.nodes[1].endpoint.release(server, 1);
    net.flush(1);
    net.seconds(5);
    net.nodes[1].endpoint.release(server, 1);
    net.flush(1);
    net.seconds(5);
    assert_eq!(
        (net.nodes[0].data().len(), net.nodes[1].data().len()),
        (1, 1),
        "killed after {octets} octets"
    );
    assert!(!aborted(&net) && !net.nodes[0].ended());
    net.nodes[1].replaced.as_ref().unwrap().deaths == 1
}

#[test]
fn any_octet_that_is_written_may_be_the_last() {
    let mut octets = 0;
    while killed_after(octets) {
        octets += 29;
    }
    assert!(octets > 3_000, "{octets}");
}

/// A store with one association that has messages in both directions, and the configuration of its endpoint.
fn a_store() -> (Bank, Config, Instant) {
    let mut net = Net::new(5);
    add(&mut net, false, Dies::Never);
    add(&mut net, true, Dies::Never);
    let client = net.connect(0, 1);
    net.run(Duration::from_millis(100));
    let server = net.nodes[1].up().unwrap();
    for (mark, stream) in (1..).zip([0, 3, 2, 2]) {
        send(&mut net, 1, server, stream, mark, &message(1, 0, 700));
    }
    for (mark, octets) in (1..).zip([100, 4_000, 100, 9_000]) {
        send(&mut net, 0, client, mark as u16 % 2, mark, &message(0, 0, octets));
        net.run(Duration::from_millis(2));
        net.weather.loss_percent = 50;
    }
    net.run(Duration::from_millis(20));
    let node = &mut net.nodes[1];
    let replaced = node.replaced.take().unwrap();
    let [bank, _] = replaced.banks;
    (bank, replaced.config, net.now)
}

fn adopted(bank: &Bank, config: &Config, now: Instant) -> Result<bool, Defect> {
    let mut endpoint = Endpoint::successor(config.clone(), SECRET, 1, now);
    let adopted = endpoint.adopt(now, 0, bank)?;
    if let Some(adopted) = &adopted {
        let mut out = Outbox::default();
        endpoint.resume(now, adopted.association, 0, &mut out);
        for second in 0..10 {
            let now = now + Duration::from_secs(second);
            endpoint.handle(now, Input::Tick, &mut out);
            endpoint.flush(now, &mut out);
        }
    }
    Ok(adopted.is_some())
}

#[test]
fn memory_that_was_overwritten_is_refused() {
    let (mut bank, config, now) = a_store();
    assert_eq!(adopted(&bank, &config, now), Ok(true));
    let word = bank.slots[0].0;
    let [head, other] = [0, 1].map(|n| 64 + n * bank.layout.head_octets);
    let published = if (word >> 32) & 1 == 0 { head } else { other };
    for at in published..published + 200 {
        bank.slots[0].1[at] ^= 4;
        let result = adopted(&bank, &config, now);
        assert!(matches!(result, Err(Defect::Checksum | Defect::Version)), "octet {at}: {result:?}");
        bank.slots[0].1[at] ^= 4;
    }
    for bit in 0..64 {
        bank.slots[0].0 = word ^ 1 << bit;
        assert_eq!(adopted(&bank, &config, now), Err(Defect::Checksum), "bit {bit} of the word");
    }
    bank.slots[0].0 = 0;
    assert_eq!(adopted(&bank, &config, now), Ok(false), "no association");
}

#[test] // what was published before is no fallback: the packets of the newer state may have left
fn the_former_state_is_not_taken_for_a_damaged_newer_one() {
    let (mut bank, config, now) = a_store();
    let sequence = bank.slots[0].0 >> 32;
    let at = 64 + (sequence as usize & 1) * bank.layout.head_octets;
    bank.slots[0].1[at..at + 64].fill(0);
    assert_eq!(adopted(&bank, &config, now), Err(Defect::Version));
}

#[test]
fn an_association_of_another_port_is_refused() {
    let (bank, config, now) = a_store();
    let other = Config { port: PORT + 1, ..config };
    assert_eq!(adopted(&bank, &other, now), Err(Defect::NotOurs));
}

/// Where a head's body has the checksum of the journal.
const JOURNAL_SUM_AT: usize = 16 + 10;

/// Makes the sums right again, as a writer would that is wrong about all else.
fn seal(bank: &mut Bank, journal: usize) {
    let (word, memory) = &mut bank.slots[0];
    let layout = bank.layout;
    let at = 64 + ((*word >> 32) as usize & 1) * layout.head_octets;
    let octets = u32::from_be_bytes(memory[at + 8..at + 12].try_into().unwrap()) as usize;
    let length = at + 16 + 6;
    let length = u32::from_be_bytes(memory[length..length + 4].try_into().unwrap()) as usize;
    let journal_at = 64 + 2 * layout.head_octets + journal * layout.journal_octets;
    let sum = memory.get(journal_at..journal_at + length).map_or(0, crc32c::crc32c);
    memory[at + JOURNAL_SUM_AT..at + JOURNAL_SUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
    let head = &memory[at..at + 16 + octets.min(layout.head_octets - 16)];
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), &head[16..]);
    memory[at + 12..at + 16].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn no_content_of_the_memory_makes_a_successor_panic() {
    let (bank, config, now) = a_store();
    let word = bank.slots[0].0;
    let at = 64 + ((word >> 32) as usize & 1) * bank.layout.head_octets;
    let journal = usize::from(bank.slots[0].1[at + 16 + 5] & 1);
    let octets = u32::from_be_bytes(bank.slots[0].1[at + 8..at + 12].try_into().unwrap()) as usize;
    let journal_at = 64 + 2 * bank.layout.head_octets + journal * bank.layout.journal_octets;
    let in_head = (0..octets).map(|n| at + 16 + n);
    let in_journal = (0..600).map(|n| journal_at + n * 5);
    let mut bank = bank;
    let mut refused = 0;
    for place in in_head.chain(in_journal) {
        for change in [0xff, 0x01] {
            let before = bank.slots[0].1[place];
            bank.slots[0].1[place] ^= change;
            seal(&mut bank, journal);
            refused += u32::from(adopted(&bank, &config, now).is_err());
            bank.slots[0].1[place] = before;
        }
    }
    seal(&mut bank, journal);
    assert_eq!(adopted(&bank, &config, now), Ok(true), "it is as it was");
    assert!(refused > 100, "{refused}");
}

proptest! {
    #[test]
    fn no_octets_make_a_successor_panic(
        word in any::<u64>(),
        octets in prop::collection::vec(any::<u8>(), 0..4_000),
    ) {
        struct Anything(u64, Vec<u8>);
        impl SavedStore for Anything {
            fn layout(&self) -> Layout {
                Layout::of(&Config::new(PORT))
            }
            fn word(&self, _: u32) -> u64 {
                self.0
            }
            fn read(&self, _: u32, at: usize, octets: usize) -> Option<Vec<u8>> {
                self.1.get(at..at.checked_add(octets)?).map(<[u8]>::to_vec)
            }
        }
        let mut endpoint = Endpoint::new(Config::new(PORT), SECRET, Instant(1));
        let saved = Anything(word, octets);
        prop_assert!(!matches!(endpoint.adopt(Instant(1), 0, &saved), Ok(Some(_))));
    }
}

#[test] // RFC 9260 §9.2
fn a_successor_completes_a_shutdown() {
    let mut net = Net::new(9);
    add(&mut net, false, Dies::Never);
    add(&mut net, false, Dies::Never);
    let client = net.connect(0, 1);
    net.run(Duration::from_millis(100));
    let server = net.nodes[1].up().unwrap();
    net.cut.push(sim::address(0, 0));
    net.input_and_flush(1, Input::Shutdown { association: server });
    assert_eq!(net.nodes[1].endpoint.status(server).map(|s| s.state), Some(State::ShutdownSent));
    let mut out = Outbox::default();
    net.nodes[1].replace(net.now, &mut out);
    assert_eq!(net.nodes[1].endpoint.status(server).map(|s| s.state), Some(State::ShutdownSent));
    net.cut.clear();
    net.seconds(5);
    assert_eq!([0, 1].map(|n| net.nodes[n].down()), [Some(DownReason::Shutdown); 2]);
    assert!(net.nodes[0].endpoint.status(client).is_none());
    net.nodes[1].replace(net.now, &mut out);
    assert_eq!(net.nodes[1].endpoint.associations().count(), 0, "what has ended is not continued");
}

#[test] // RFC 9260 §5.1.3: nothing is kept of a handshake, so a successor has to know the cookies that were given
fn a_cookie_of_the_former_endpoint_is_good() {
    let mut net = Net::new(11);
    add(&mut net, false, Dies::Never);
    add(&mut net, false, Dies::Never);
    net.connect(0, 1);
    net.run(Duration::from_micros(1_200)); // INIT and INIT ACK
    assert!(net.nodes[1].up().is_none());
    net.nodes[1].replace(net.now, &mut Outbox::default());
    net.run(Duration::from_millis(100));
    assert!(net.nodes[1].up().is_some() && net.nodes[0].up().is_some());
}

#[test]
fn messages_that_the_user_does_not_have_follow_and_no_others() {
    let (bank, config, now) = a_store();
    for has in 0..3 {
        let mut endpoint = Endpoint::successor(config.clone(), SECRET, 1, now);
        let adopted = endpoint.adopt(now, 0, &bank).unwrap().unwrap();
        assert_eq!((adopted.notes.mark, adopted.peer_port, adopted.released), (4, PORT, 0));
        let mut out = Outbox::default();
        endpoint.resume(now, adopted.association, has, &mut out);
        let data =
            out.events.iter().filter(|e| matches!(e, whimbrel_sctp::Event::Data { .. })).count() as u64;
        assert!(adopted.messages > 0);
        assert_eq!(data, adopted.messages.saturating_sub(has));
    }
}

#[test] // RFC 9260 §5.2.4.1 A: the successor does not take the peer's new life for its former one
fn what_the_user_kept_with_an_association_ends_when_its_peer_restarts() {
    let mut net = Net::new(13);
    add(&mut net, false, Dies::Never);
    add(&mut net, false, Dies::Never);
    net.connect(0, 1);
    net.run(Duration::from_millis(100));
    let server = net.nodes[1].up().unwrap();
    net.nodes[1].endpoint.set_label(server, 7);
    net.nodes[0].replaced = None;
    net.reboot(0);
    net.connect(0, 1);
    net.run(Duration::from_millis(100));
    assert!(net.nodes[1].seen.iter().any(|s| matches!(s, sim::Seen::Restarted(_))));
    assert_eq!(net.nodes[1].endpoint.notes(server), Some(Default::default()));
    net.nodes[1].replace(net.now, &mut Outbox::default());
    net.run(Duration::from_millis(100));
    let up = net.nodes[0].up().unwrap();
    send(&mut net, 0, up, 1, 1, &message(0, 0, 100));
    net.run(Duration::from_millis(100));
    assert_eq!(net.nodes[1].messages(), 1);
}
