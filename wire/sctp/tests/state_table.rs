//! The table of the association's states (RFC 9260 §4) and inputs: docs/state-machines/sctp-association.md.

use std::time::Duration;

use whimbrel_sctp::{AssociationId, Connect, DownReason, Input, Path, Send, State};
use whimbrel_state_tables::{Outcome, StateTable, assert_page};

use super::sim::craft::*;
use super::sim::{Net, PORT, Seen, address};

/// The peer's tag and its first TSN.
const PEER_TAG: u32 = 0x5ee7_0001;
const PEER_TSN: u32 = 1000;
/// The tag of the peer after a restart.
const NEW_TAG: u32 = 0x5ee7_0002;

/// An association of node 0 with a peer whose packets are made by hand, at the address of node 1.
struct Machine {
    net: Net,
    id: AssociationId,
    /// Our tag and first TSN.
    tag: u32,
    tsn: u32,
    /// A cookie with the tags of the association.
    own_cookie: Vec<u8>,
    /// The cookie of an INIT of the peer after a restart, and the tag for which it was made.
    new_cookie: (u32, Vec<u8>),
}

/// A state to drive an association to.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Closed,
    CookieWait,
    CookieEchoed,
    Established,
    EstablishedInFlight,
    ShutdownPending,
    ShutdownSent,
    ShutdownReceived,
    ShutdownAckSent,
}

const STAGES: [(&str, Stage); 9] = [
    ("CLOSED", Stage::Closed),
    ("COOKIE-WAIT", Stage::CookieWait),
    ("COOKIE-ECHOED", Stage::CookieEchoed),
    ("ESTABLISHED", Stage::Established),
    ("ESTABLISHED, DATA in flight", Stage::EstablishedInFlight),
    ("SHUTDOWN-PENDING", Stage::ShutdownPending),
    ("SHUTDOWN-SENT", Stage::ShutdownSent),
    ("SHUTDOWN-RECEIVED", Stage::ShutdownReceived),
    ("SHUTDOWN-ACK-SENT", Stage::ShutdownAckSent),
];

type Step = fn(&mut Machine);

impl Machine {
    /// The association in this state.
    fn at(stage: Stage) -> Self {
        let mut net = Net::new(3);
        let (own, peer) = (net.add(1, |_| {}), net.add(1, |_| {}));
        net.cut = vec![address(1, 0)];
        let id = net.connect(own, peer);
        let init = chunks(&net.sent[0].2)[0].2.clone();
        let (tag, tsn) = (word(&init, 0), word(&init, 12));
        let mut machine = Self { net, id, tag, tsn, own_cookie: vec![], new_cookie: (0, vec![]) };
        machine.own_cookie = machine.cookie_for(PEER_TAG).unwrap().1;
        machine.new_cookie = machine.cookie_for(NEW_TAG).unwrap();
        machine.advance(stage);
        machine.net.nodes[0].seen.clear();
        machine
    }

    fn advance(&mut self, stage: Stage) {
        if stage == Stage::CookieWait {
            return;
        }
        self.init_ack();
        if stage == Stage::CookieEchoed {
            return;
        }
        self.give(&[chunk(COOKIE_ACK, 0, &[])]);
        self.new_cookie = self.cookie_for(NEW_TAG).unwrap();
        let in_flight =
            [Stage::EstablishedInFlight, Stage::ShutdownPending, Stage::ShutdownReceived].contains(&stage);
        if in_flight {
            self.send();
        }
        match stage {
            Stage::Closed => self.user(Input::Abort { association: self.id }),
            Stage::ShutdownPending | Stage::ShutdownSent => {
                self.user(Input::Shutdown { association: self.id });
            }
            Stage::ShutdownReceived | Stage::ShutdownAckSent => self.shutdown_chunk(self.tsn.wrapping_sub(1)),
            _ => {}
        }
    }

    fn state(&self) -> &'static str {
        let status = self.net.nodes[0].endpoint.associations().next();
        let status = status.and_then(|id| self.net.nodes[0].endpoint.status(id));
        match status.map(|s| (s.state, s.queued_octets > 0)) {
            None => "CLOSED",
            Some((State::CookieWait, _)) => "COOKIE-WAIT",
            Some((State::CookieEchoed, _)) => "COOKIE-ECHOED",
            Some((State::Established, false)) => "ESTABLISHED",
            Some((State::Established, true)) => "ESTABLISHED, DATA in flight",
            Some((State::ShutdownPending, _)) => "SHUTDOWN-PENDING",
            Some((State::ShutdownSent, _)) => "SHUTDOWN-SENT",
            Some((State::ShutdownReceived, _)) => "SHUTDOWN-RECEIVED",
            Some((State::ShutdownAckSent, _)) => "SHUTDOWN-ACK-SENT",
        }
    }

    fn give(&mut self, chunks: &[Vec<u8>]) {
        self.give_tagged(self.tag, chunks);
    }

    fn give_tagged(&mut self, tag: u32, chunks: &[Vec<u8>]) {
        give_from(&mut self.net, address(1, 0), &packet(PORT, tag, chunks));
    }

    fn user(&mut self, input: Input<'_>) {
        self.net.input_and_flush(0, input);
    }

    fn send(&mut self) {
        let (association, octets) = (self.id, b"message".as_slice());
        self.user(Input::Send(Send { association, stream: 0, ppid: 60, unordered: false, octets }));
    }

    fn init(&mut self, tag: u32) {
        self.give_tagged(0, &[chunk(INIT, 0, &init_value(tag, 9000, (10, 10), PEER_TSN, &[]))]);
    }

    /// Our tag and the cookie in the answer to an INIT with this tag.
    fn cookie_for(&mut self, tag: u32) -> Option<(u32, Vec<u8>)> {
        let before = self.net.sent.len();
        self.init(tag);
        let answer = self.net.sent.split_off(before).pop()?.2;
        let [(INIT_ACK, _, value)] = &chunks(&answer)[..] else { return None };
        Some((word(value, 0), cookie(value)))
    }

    fn init_ack(&mut self) {
        let value = init_value(PEER_TAG, 9000, (10, 10), PEER_TSN, &parameter(7, b"cookie"));
        self.give(&[chunk(INIT_ACK, 0, &value)]);
    }

    fn data(&mut self, user: &[u8]) {
        self.give(&[data(3, PEER_TSN, 0, 0, user)]);
    }

    fn shutdown_chunk(&mut self, cumulative: u32) {
        self.give(&[chunk(SHUTDOWN, 0, &cumulative.to_be_bytes())]);
    }

    /// The TSN of the last DATA that was sent, or the one before the first.
    fn last_sent(&self) -> u32 {
        let in_flight = self.net.nodes[0].endpoint.status(self.id).is_some_and(|s| s.queued_octets > 0);
        self.tsn.wrapping_sub(u32::from(!in_flight))
    }

    /// The next timer expires.
    fn expire(&mut self) {
        if let Some(at) = self.net.nodes[0].endpoint.next_deadline() {
            self.net.now = self.net.now.max(at);
            self.user(Input::Tick);
        }
    }

    /// Timers expire until the association has ended.
    fn stay_silent(&mut self) {
        for _ in 0..100 {
            if self.state() == "CLOSED" {
                return;
            }
            self.expire();
        }
        panic!("an association whose peer is silent ends");
    }

    /// The names of the packets that left since then, each as its chunks.
    fn sent_since(&self, before: usize) -> Vec<String> {
        let name = |(kind, _, value): &(u8, u8, Vec<u8>)| chunk_name(*kind, value);
        let names = |octets: &[u8]| chunks(octets).iter().map(name).collect::<Vec<_>>().join(" + ");
        self.net.sent[before..].iter().map(|(_, _, octets)| names(octets)).collect()
    }
}

fn chunk_name(kind: u8, value: &[u8]) -> String {
    let cause = || match value.get(..2) {
        Some(&[hi, lo]) => format!(" #{}", u16::from_be_bytes([hi, lo])),
        _ => String::new(),
    };
    match kind {
        DATA => "DATA".into(),
        INIT => "INIT".into(),
        INIT_ACK => "INIT ACK".into(),
        SACK => "SACK".into(),
        HEARTBEAT => "HEARTBEAT".into(),
        HEARTBEAT_ACK => "HEARTBEAT ACK".into(),
        ABORT => format!("ABORT{}", cause()),
        SHUTDOWN => "SHUTDOWN".into(),
        SHUTDOWN_ACK => "SHUTDOWN ACK".into(),
        ERROR => format!("ERROR{}", cause()),
        COOKIE_ECHO => "COOKIE ECHO".into(),
        COOKIE_ACK => "COOKIE ACK".into(),
        SHUTDOWN_COMPLETE => "SHUTDOWN COMPLETE".into(),
        other => panic!("a chunk of type {other} was sent"),
    }
}

fn event_name(seen: &Seen) -> String {
    match seen {
        Seen::Up(..) => "up".into(),
        Seen::Data(..) => "message delivered".into(),
        Seen::Unacknowledged(..) => "message not acknowledged".into(),
        Seen::Down(_, DownReason::AbortedByPeer { .. }) => "down: aborted by the peer".into(),
        Seen::Down(_, reason) => format!("down: {}", words(&format!("{reason:?}"))),
        Seen::Restarted(_) => "restarted by the peer".into(),
        Seen::Adaptation(_) => "adaptation".into(),
        Seen::PathDown(_) => "path down".into(),
        Seen::PathUp(_) => "path up".into(),
        Seen::Refused(refusal) => format!("refused: {}", words(&format!("{refusal:?}"))),
    }
}

/// `NotEstablished` as "not established".
fn words(name: &str) -> String {
    let spaced = name.chars().flat_map(|c| [c.is_ascii_uppercase().then_some(' '), Some(c)]);
    spaced.flatten().collect::<String>().trim().to_ascii_lowercase()
}

fn outcome(stage: &Stage, input: &Step) -> Outcome {
    let mut machine = Machine::at(*stage);
    let name = STAGES.iter().find(|(_, s)| s == stage).map(|(name, _)| *name).unwrap();
    assert_eq!(machine.state(), name, "the machine was driven there");
    let before = machine.net.sent.len();
    input(&mut machine);
    let reported = machine.net.nodes[0].seen.iter().map(event_name).collect();
    Outcome::between(name, machine.state(), machine.sent_since(before), reported)
}

const OF_THE_USER: [(&str, Step); 5] = [
    ("connect", |m| m.user(Input::Connect(Connect { addresses: &[address(1, 0)], port: PORT, udp_port: 0 }))),
    ("send", Machine::send),
    ("shut down", |m| m.user(Input::Shutdown { association: m.id })),
    ("abort", |m| m.user(Input::Abort { association: m.id })),
    ("probe", |m| m.user(Input::Probe { association: m.id })),
];

const OF_SETTING_UP: [(&str, Step); 9] = [
    ("INIT of the same peer", |m| m.init(PEER_TAG)),
    ("INIT of a peer that restarted", |m| m.init(NEW_TAG)),
    ("INIT ACK", Machine::init_ack),
    ("INIT ACK without a cookie", |m| {
        m.give(&[chunk(INIT_ACK, 0, &init_value(PEER_TAG, 9000, (10, 10), PEER_TSN, &[]))]);
    }),
    ("COOKIE ECHO with the tags of the association", |m| {
        let echo = chunk(COOKIE_ECHO, 0, &m.own_cookie.clone());
        m.give(&[echo]);
    }),
    ("COOKIE ECHO of a peer that restarted", |m| {
        let (tag, cookie) = m.new_cookie.clone();
        m.give_tagged(tag, &[chunk(COOKIE_ECHO, 0, &cookie)]);
    }),
    ("COOKIE ECHO that is too old", |m| {
        m.net.now = m.net.now + Duration::from_secs(3600);
        let (tag, cookie) = m.new_cookie.clone();
        m.give_tagged(tag, &[chunk(COOKIE_ECHO, 0, &cookie)]);
    }),
    ("COOKIE ECHO with a forged cookie", |m| m.give(&[chunk(COOKIE_ECHO, 0, &[7; 120])])),
    ("COOKIE ACK", |m| m.give(&[chunk(COOKIE_ACK, 0, &[])])),
];

const OF_TRANSFER: [(&str, Step); 6] = [
    ("DATA", |m| m.data(b"x")),
    ("DATA without user data", |m| m.data(b"")),
    ("SACK of all DATA", |m| m.give(&[sack(m.last_sent(), 9000)])),
    ("SACK of DATA that was not sent", |m| m.give(&[sack(m.tsn.wrapping_add(9), 9000)])),
    ("HEARTBEAT", |m| m.give(&[chunk(HEARTBEAT, 0, &parameter(1, b"nonce"))])),
    ("HEARTBEAT ACK that was not asked for", |m| m.give(&[chunk(HEARTBEAT_ACK, 0, &parameter(1, &[0; 12]))])),
];

const OF_CLOSING: [(&str, Step); 8] = [
    ("SHUTDOWN that acknowledges all DATA", |m| m.shutdown_chunk(m.last_sent())),
    ("SHUTDOWN that acknowledges DATA that was not sent", |m| m.shutdown_chunk(m.tsn.wrapping_add(9))),
    ("SHUTDOWN ACK", |m| m.give(&[chunk(SHUTDOWN_ACK, 0, &[])])),
    ("SHUTDOWN COMPLETE", |m| m.give(&[chunk(SHUTDOWN_COMPLETE, 0, &[])])),
    ("ABORT", |m| m.give(&[chunk(ABORT, 0, &parameter(12, &[]))])),
    ("ABORT with the T bit and the peer's tag", |m| m.give_tagged(PEER_TAG, &[chunk(ABORT, 1, &[])])),
    ("ERROR, stale cookie", |m| m.give(&[chunk(ERROR, 0, &parameter(3, &[0, 0, 0, 1]))])),
    ("ERROR, another cause", |m| m.give(&[chunk(ERROR, 0, &parameter(1, &[0, 9, 0, 0]))])),
];

const OTHERS: [(&str, Step); 6] = [
    ("unknown chunk, to be reported", |m| m.give(&[chunk(0x7e, 0, b"what")])),
    ("DATA with a wrong tag", |m| m.give_tagged(m.tag ^ 1, &[data(3, PEER_TSN, 0, 0, b"x")])),
    ("packet with a wrong checksum", |m| {
        let mut octets = packet(PORT, m.tag, &[data(3, PEER_TSN, 0, 0, b"x")]);
        octets[8] ^= 1;
        let path = Path { local: address(0, 0), remote: address(1, 0), udp_port: 0 };
        m.user(Input::Packet { path, octets: &octets });
    }),
    ("the next timer expires", Machine::expire),
    ("the peer stays silent", Machine::stay_silent),
    ("the endpoint stops", |m| {
        let by = m.net.now + Duration::from_secs(5);
        m.user(Input::Stop { by });
    }),
];

#[test] // RFC 9260 §4, §5.2, §8.4, §8.5.1, §9.2: each state against each input
fn every_state_and_input_of_an_association_is_as_the_page_shows() {
    let table = |title, inputs: &[(&str, Step)]| StateTable::new(title, &STAGES, inputs, outcome);
    assert_page(
        "sctp-association.md",
        &[
            table("The user", &OF_THE_USER),
            table("Setting up", &OF_SETTING_UP),
            table("Transfer", &OF_TRANSFER),
            table("Closing", &OF_CLOSING),
            table("Other packets, and timers", &OTHERS),
        ],
    );
}
