//! Any octets against one end of a link, for the fuzzer; its seeds run with the tests.

use std::net::SocketAddr;

use crate::event::{Counters, DownReason, LinkEvents};
use crate::frame::{FRAME_HEADER, GREETING_HEADER};
use crate::protocol::{LinkTurn, Protocol};
use crate::seal::BODY_OCTETS_MAX;
use crate::{ClusterKey, LinkId, LinkSettings};

/// The longest frame that is accepted here.
pub(crate) const FRAME_MAX: usize = 4096;
/// The longest sealed record with its length, and the octets of a record that may wait.
const RECORD: usize = 2 + 65_535;

/// One end, its settings and its events.
pub(crate) struct HostileEnd {
    pub(crate) settings: LinkSettings,
    pub(crate) protocol: Protocol,
    pub(crate) events: LinkEvents,
    pub(crate) counters: Counters,
}

impl HostileEnd {
    pub(crate) fn new(we_call: bool, keys: Vec<ClusterKey>) -> Self {
        let mut settings = LinkSettings::new(if we_call { b"caller".to_vec() } else { b"called".to_vec() });
        settings.keys = keys;
        settings.frame_octets_max = FRAME_MAX;
        let protocol = match we_call {
            true => Protocol::calling(&settings).expect("the system gives random octets"),
            false => Protocol::called(&settings),
        };
        Self { settings, protocol, events: LinkEvents::default(), counters: Counters::default() }
    }

    pub(crate) fn take(&mut self, octets: &[u8]) -> Result<(), DownReason> {
        let mut turn = LinkTurn {
            link: LinkId(1),
            peer: SocketAddr::from(([127, 0, 0, 1], 1)),
            settings: &self.settings,
            events: &mut self.events,
            counters: &mut self.counters,
            room: true,
        };
        self.protocol.arrived(octets, &mut turn)
    }

    /// All octets that it has to write.
    pub(crate) fn wire(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        loop {
            let now = self.protocol.outgoing().expect("a link of few records");
            if now.is_empty() {
                return wire;
            }
            let octets = now.len();
            wire.extend_from_slice(now);
            self.protocol.wrote(octets);
        }
    }
}

/// Exchanges octets until neither end has more.
pub(crate) fn settle(a: &mut HostileEnd, b: &mut HostileEnd) -> Result<(), DownReason> {
    loop {
        let (from_a, from_b) = (a.wire(), b.wire());
        if from_a.is_empty() && from_b.is_empty() {
            return Ok(());
        }
        b.take(&from_a)?;
        a.take(&from_b)?;
    }
}

/// The case that the first octet of an input selects.
const KEYED: u8 = 1;
const VICTIM_CALLS: u8 = 2;
const AFTER_HANDSHAKE: u8 = 4;
const WITH_THE_KEY: u8 = 8;

/// Gives one end the rest of the input, in pieces (a length, then so many octets): instead of the handshake or after it, as they are or
/// sealed by a peer that has the key.
///
/// Panics: when the end does, or holds more than it may.
pub fn run(input: &[u8]) {
    let Some((case, mut rest)) = input.split_first() else { return };
    let keys = || if case & KEYED != 0 { vec![ClusterKey::new([7; 32])] } else { Vec::new() };
    let victim_calls = case & VICTIM_CALLS != 0;
    let (mut victim, mut peer) =
        (HostileEnd::new(victim_calls, keys()), HostileEnd::new(!victim_calls, keys()));
    if case & AFTER_HANDSHAKE != 0 {
        settle(&mut victim, &mut peer).expect("a handshake between equals");
        assert!(victim.protocol.is_up() && peer.protocol.is_up());
    }
    while let Some((length, more)) = rest.split_first() {
        let (piece, more) = more.split_at(more.len().min(usize::from(*length)));
        rest = more;
        let octets = if case & WITH_THE_KEY != 0 && peer.protocol.is_up() {
            peer.protocol.send_raw(piece);
            peer.wire()
        } else {
            piece.to_vec()
        };
        let ended = victim.take(&octets).is_err();
        let held = victim.protocol.held();
        let bound = match victim.protocol.is_up() {
            false => GREETING_HEADER + BODY_OCTETS_MAX,
            true => FRAME_HEADER + FRAME_MAX + RECORD,
        };
        assert!(ended || held <= bound, "{held} octets held");
        if ended {
            return;
        }
    }
    victim.protocol.closed();
}
