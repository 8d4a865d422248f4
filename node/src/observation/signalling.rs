//! The signalling of each UE, live and past: N2 messages with the NAS in them, and N4 messages, as they came and went.
//!
//! The control thread copies a message's octets and finds its UE by the identities in its head; the API decodes when it is asked. A
//! message that names no UE yet (INITIAL UE MESSAGE, a request to a UPF) is attached when the answer names it. Bounded in octets: the
//! oldest messages of all are dropped first. No key is kept here; ciphered NAS stays ciphered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use whimbrel_control::{AssociationId, UeId};
use whimbrel_ids::{AmfUeNgapId, Instant, RanUeNgapId, Supi};

/// Octets that a message takes beside its own.
const OVERHEAD: usize = 96;
/// Messages that wait for the answer that names their UE; more are under way only in a flood.
const UNNAMED_MAX: usize = 4096;
/// Contexts of one subscriber, the newest of which are shown together: a UE that registers again gets a new one.
const CONTEXTS_MAX: usize = 8;
/// Names and ends of former UEs that are kept before those without messages are removed.
const INDEX_MAX: usize = 65_536;

/// The reference point of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Between gNB and AMF, with N1 inside.
    N2,
    /// Between SMF and UPF.
    N4,
}

/// A message as it was.
#[derive(Clone, Debug)]
pub struct Message {
    /// Number in order among all, from 1.
    pub seq: u64,
    pub at: Instant,
    pub interface: Interface,
    /// Whether the core received it; else it sent it.
    pub received: bool,
    /// The gNB or UPF.
    pub peer: Arc<str>,
    pub octets: Box<[u8]>,
    /// The UE, once it is known.
    pub ue: Option<UeId>,
    /// Number in the order in which messages were attached to their UEs; a reader goes on behind the last one that it has.
    pub attached: u64,
    /// The UE's message that was attached before; 0 for none.
    before: u64,
}

/// What a message says of its UE.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    pub ue: Option<UeId>,
    /// For messages that arrive after their UE has left: its slot is that of the UE, its connection number not that of the next one there.
    pub amf_ue_ngap_id: Option<AmfUeNgapId>,
    /// The gNB's name of it.
    pub ran: Option<(AssociationId, RanUeNgapId)>,
    /// UPF, sequence number, and whether the UPF began the exchange.
    pub exchange: Option<(u8, u32, bool)>,
    /// Whether an answer may be needed to learn the UE.
    pub begins: bool,
}

/// The newest message of a UE that has a slot.
#[derive(Clone, Copy, Default)]
struct Chain {
    generation: u16,
    /// Whether its subscriber is known.
    named: bool,
    newest: u64,
    /// The AMF-UE-NGAP-ID of its newest connection.
    amf_ue_ngap_id: Option<AmfUeNgapId>,
}

/// All messages that are kept.
pub struct Signalling {
    octets_max: usize,
    octets: usize,
    messages: VecDeque<Message>,
    /// Messages since the start.
    pushed: u64,
    attached: u64,
    /// Chains of messages, by the UE's slot.
    chains: Vec<Chain>,
    /// Newest messages of UEs whose slot another UE has now.
    former: BTreeMap<UeId, u64>,
    unnamed_n2: BTreeMap<(AssociationId, RanUeNgapId), u64>,
    unnamed_n4: BTreeMap<(u8, u32, bool), u64>,
    /// The UEs of a subscriber, the newest last.
    names: BTreeMap<Supi, VecDeque<UeId>>,
}

/// A UE's messages, and whether older ones were dropped.
#[derive(Debug, Default)]
pub struct Messages {
    /// In the order of their time.
    pub messages: Vec<Message>,
    /// Where to go on.
    pub last: u64,
    /// Whether older messages were dropped to make room.
    pub dropped: bool,
}

impl Signalling {
    /// Keeps messages of so many octets; 0: none.
    pub fn new(octets_max: usize) -> Self {
        Self {
            octets_max,
            octets: 0,
            messages: VecDeque::new(),
            pushed: 0,
            attached: 0,
            chains: Vec::new(),
            former: BTreeMap::new(),
            unnamed_n2: BTreeMap::new(),
            unnamed_n4: BTreeMap::new(),
            names: BTreeMap::new(),
        }
    }

    /// Sets how many octets are kept.
    pub fn limit(&mut self, octets_max: usize) {
        self.octets_max = octets_max;
    }

    /// Whether messages are kept.
    pub fn is_on(&self) -> bool {
        self.octets_max > 0
    }

    /// Adds a message. Returns its UE if that has no subscriber yet.
    pub fn push(
        &mut self,
        at: Instant,
        (interface, received): (Interface, bool),
        peer: Arc<str>,
        names: Names,
        octets: &[u8],
    ) -> Option<UeId> {
        if !self.is_on() {
            return None;
        }
        self.pushed += 1;
        let seq = self.pushed;
        self.octets += octets.len() + OVERHEAD;
        let octets = octets.into();
        let message =
            Message { seq, at, interface, received, peer, octets, ue: None, attached: 0, before: 0 };
        self.messages.push_back(message);
        while self.octets > self.octets_max
            && let Some(oldest) = self.messages.pop_front()
        {
            self.octets -= oldest.octets.len() + OVERHEAD;
        }
        let of_connection = |id: AmfUeNgapId| {
            let slot = id.value() as u32 & (UeId::SLOTS - 1);
            let chain =
                self.chains.get(slot as usize).filter(|c| c.newest > 0 && c.amf_ue_ngap_id == Some(id))?;
            Some(UeId { slot, generation: chain.generation })
        };
        let ue = names.ue.or_else(|| names.amf_ue_ngap_id.and_then(of_connection));
        match ue {
            Some(ue) => {
                if let Some(ran) = names.ran
                    && let Some(first) = self.unnamed_n2.remove(&ran)
                {
                    self.attach(first, ue);
                }
                if let Some(exchange) = names.exchange
                    && let Some(first) = self.unnamed_n4.remove(&exchange)
                {
                    self.attach(first, ue);
                }
                self.attach(seq, ue);
                if let (Some(_), Some(chain)) = (names.amf_ue_ngap_id, self.chains.get_mut(ue.slot as usize))
                {
                    chain.amf_ue_ngap_id = names.amf_ue_ngap_id;
                }
                // The UPF's request names the UE, and the answer to it only the UPF's session.
                if let (true, Some(exchange)) = (names.begins, names.exchange) {
                    wait(&mut self.unnamed_n4, exchange, seq);
                }
            }
            None => {
                // The UE whose first message waits was refused at once and gets no name; its gNB may give the identity to another UE.
                if let Some(ran) = names.ran.filter(|_| !names.begins) {
                    self.unnamed_n2.remove(&ran);
                }
                let known = names.exchange.and_then(|e| self.unnamed_n4.remove(&e)).filter(|_| !names.begins);
                if let Some(ue) = known.and_then(|first| self.get(first)?.ue) {
                    self.attach(seq, ue);
                } else if let Some(exchange) = names.exchange.filter(|_| names.begins) {
                    wait(&mut self.unnamed_n4, exchange, seq);
                } else if let Some(ran) = names.ran.filter(|_| names.begins) {
                    wait(&mut self.unnamed_n2, ran, seq);
                }
            }
        }
        let is_unnamed = |ue: &UeId| self.chains.get(ue.slot as usize).is_some_and(|c| !c.named);
        ue.filter(is_unnamed)
    }

    /// A message turns out to be of a UE.
    fn attach(&mut self, seq: u64, ue: UeId) {
        let slot = ue.slot as usize;
        if self.chains.len() <= slot {
            self.chains.resize(slot + 1, Chain::default());
        }
        let Some(chain) = self.chains.get(slot).copied() else { return };
        if chain.generation != ue.generation && chain.newest > 0 {
            self.former.insert(UeId { slot: ue.slot, generation: chain.generation }, chain.newest);
            self.prune();
        }
        let is_same = chain.generation == ue.generation;
        let before = if is_same { chain.newest } else { 0 };
        let attached = self.attached + 1;
        let Some(message) = self.get_mut(seq).filter(|m| m.ue.is_none()) else { return };
        (message.ue, message.before, message.attached) = (Some(ue), before, attached);
        self.attached = attached;
        self.chains[slot] = Chain {
            generation: ue.generation,
            named: is_same && chain.named,
            newest: seq,
            amf_ue_ngap_id: chain.amf_ue_ngap_id.filter(|_| is_same),
        };
    }

    /// A UE is one of this subscriber's.
    pub fn name(&mut self, supi: Supi, ue: UeId) {
        if !self.is_on() {
            return;
        }
        let chain = self.chains.get_mut(ue.slot as usize).filter(|c| c.generation == ue.generation);
        if let Some(chain) = chain {
            chain.named = true;
        }
        let ues = self.names.entry(supi).or_default();
        if ues.back() == Some(&ue) {
            return;
        }
        ues.retain(|u| *u != ue);
        ues.push_back(ue);
        if ues.len() > CONTEXTS_MAX {
            ues.pop_front();
        }
        if self.names.len() > INDEX_MAX {
            let first = self.first();
            let (chains, former) = (&self.chains, &self.former);
            let newest = |ue: &UeId| match chains.get(ue.slot as usize) {
                Some(c) if c.generation == ue.generation => c.newest,
                _ => former.get(ue).copied().unwrap_or(0),
            };
            self.names.retain(|_, ues| ues.iter().any(|ue| newest(ue) >= first));
        }
    }

    /// The UEs of a subscriber that have messages here.
    pub fn ues_of(&self, supi: Supi) -> Vec<UeId> {
        self.names.get(&supi).map(|ues| ues.iter().copied().collect()).unwrap_or_default()
    }

    /// The messages of some UEs that were attached after `after`, the newest `limit` of them.
    pub fn of(&self, ues: &[UeId], after: u64, limit: usize) -> Messages {
        let mut found = Messages { last: after, ..Messages::default() };
        for ue in ues {
            let chain = self.chains.get(ue.slot as usize);
            let current = chain.filter(|c| c.generation == ue.generation).map(|c| c.newest);
            let mut next = current.or_else(|| self.former.get(ue).copied()).unwrap_or(0);
            let mut taken = 0;
            while next > 0 {
                let Some(message) = self.get(next) else {
                    found.dropped = true;
                    break;
                };
                if message.attached <= after || taken == limit {
                    break;
                }
                found.last = found.last.max(message.attached);
                found.messages.push(message.clone());
                (next, taken) = (message.before, taken + 1);
            }
        }
        found.messages.sort_by_key(|m| m.seq);
        let surplus = found.messages.len().saturating_sub(limit);
        found.messages.drain(..surplus);
        found
    }

    /// The number of the newest attached message of some UEs.
    pub fn newest_of(&self, ues: &[UeId]) -> u64 {
        let newest = ues.iter().filter_map(|ue| {
            let chain = self.chains.get(ue.slot as usize).filter(|c| c.generation == ue.generation)?;
            Some(self.get(chain.newest)?.attached)
        });
        newest.max().unwrap_or(0)
    }

    fn first(&self) -> u64 {
        self.messages.front().map_or(self.pushed + 1, |m| m.seq)
    }

    fn get(&self, seq: u64) -> Option<&Message> {
        self.messages.get(usize::try_from(seq.checked_sub(self.first())?).ok()?)
    }

    fn get_mut(&mut self, seq: u64) -> Option<&mut Message> {
        let index = usize::try_from(seq.checked_sub(self.first())?).ok()?;
        self.messages.get_mut(index)
    }

    /// Forgets former UEs that have no message any more.
    fn prune(&mut self) {
        if self.former.len() > INDEX_MAX {
            let first = self.first();
            self.former.retain(|_, newest| *newest >= first);
            while self.former.len() > INDEX_MAX {
                self.former.pop_first();
            }
        }
    }
}

/// Notes a message that waits for its UE's name; in a flood, the one with the lowest number of all gives way.
fn wait<K: Ord + Copy>(waiting: &mut BTreeMap<K, u64>, key: K, seq: u64) {
    if waiting.len() >= UNNAMED_MAX
        && let Some(oldest) = waiting.iter().min_by_key(|(_, seq)| **seq).map(|(key, _)| *key)
    {
        waiting.remove(&oldest);
    }
    waiting.insert(key, seq);
}

#[cfg(test)]
mod tests {
    use super::*;

    const UE: UeId = UeId { slot: 3, generation: 1 };
    const RECEIVED: (Interface, bool) = (Interface::N2, true);
    const SENT: (Interface, bool) = (Interface::N2, false);

    fn of(ue: UeId) -> Names {
        Names { ue: Some(ue), ..Names::default() }
    }

    fn push(s: &mut Signalling, how: (Interface, bool), names: Names, octet: u8) {
        s.push(Instant(u64::from(octet)), how, "gnb".into(), names, &[octet]);
    }

    fn octets(s: &Signalling, ues: &[UeId], after: u64) -> Vec<u8> {
        s.of(ues, after, 100).messages.iter().map(|m| m.octets[0]).collect()
    }

    #[test] // TS 38.413 §8.6.1.2: INITIAL UE MESSAGE has no AMF-UE-NGAP-ID
    fn the_first_message_is_attached_when_an_answer_names_the_ue() {
        let mut s = Signalling::new(1 << 20);
        let ran = Some((AssociationId(1), RanUeNgapId(7)));
        push(&mut s, RECEIVED, Names { ran, begins: true, ..Names::default() }, 1);
        push(&mut s, RECEIVED, of(UeId { slot: 4, generation: 0 }), 2);
        assert!(octets(&s, &[UE], 0).is_empty());
        push(&mut s, SENT, Names { ran, ..of(UE) }, 3);
        assert_eq!(octets(&s, &[UE], 0), [1, 3]);
        // Its subscriber is asked for until it is known.
        let unnamed = |s: &mut Signalling| s.push(Instant(0), SENT, "gnb".into(), of(UE), &[9]);
        assert_eq!(unnamed(&mut s), Some(UE));
        s.name("imsi-999700000000001".parse().unwrap(), UE);
        assert_eq!(unnamed(&mut s), None);
        let last = s.of(&[UE], 0, 100).last;
        push(&mut s, SENT, of(UE), 4);
        assert_eq!(octets(&s, &[UE], last), [4]);
        assert!(s.newest_of(&[UE]) > last);
    }

    #[test] // TS 29.244 §7.2.2.4.2: the request has the UPF's SEID, the response the SMF's
    fn a_request_to_a_upf_is_attached_by_its_response_even_behind_a_later_message() {
        let mut s = Signalling::new(1 << 20);
        let exchange = Some((0, 9, false));
        push(&mut s, (Interface::N4, false), Names { exchange, begins: true, ..Names::default() }, 1);
        push(&mut s, SENT, of(UE), 2);
        let last = s.of(&[UE], 0, 100).last;
        push(&mut s, (Interface::N4, true), Names { exchange, ..of(UE) }, 3);
        assert_eq!(octets(&s, &[UE], last), [1, 3], "a reader that had the second message misses none");
        assert_eq!(octets(&s, &[UE], 0), [1, 2, 3]);
        // A report of the UPF names the UE, and the answer to it does not.
        let exchange = Some((0, 5, true));
        push(&mut s, (Interface::N4, true), Names { exchange, begins: true, ..of(UE) }, 4);
        push(&mut s, (Interface::N4, false), Names { exchange, ..Names::default() }, 5);
        assert_eq!(octets(&s, &[UE], 0), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn another_ue_in_the_slot_has_messages_of_its_own() {
        let mut s = Signalling::new(1 << 20);
        let supi: Supi = "imsi-999700000000001".parse().unwrap();
        let next = UeId { generation: 2, ..UE };
        push(&mut s, SENT, of(UE), 1);
        s.name(supi, UE);
        push(&mut s, SENT, of(next), 2);
        assert_eq!((octets(&s, &[UE], 0), octets(&s, &[next], 0)), (vec![1], vec![2]));
        s.name(supi, next);
        assert_eq!(octets(&s, &s.ues_of(supi), 0), [1, 2], "a subscriber's UEs are shown together");
        // A message that crosses the release of its UE names the connection alone.
        let connection = |number: u64| AmfUeNgapId::new(number << 24 | u64::from(UE.slot));
        push(&mut s, SENT, Names { amf_ue_ngap_id: connection(1), ..of(next) }, 3);
        push(&mut s, RECEIVED, Names { amf_ue_ngap_id: connection(1), ..Names::default() }, 4);
        assert_eq!(octets(&s, &[next], 0), [2, 3, 4]);
        // A UE that is refused at once has left the slot when the answer to it is sent: it is not the former one.
        let ran = Some((AssociationId(1), RanUeNgapId(7)));
        push(&mut s, RECEIVED, Names { ran, begins: true, ..Names::default() }, 5);
        push(&mut s, SENT, Names { ran, amf_ue_ngap_id: connection(2), ..Names::default() }, 6);
        push(&mut s, RECEIVED, Names { ran, amf_ue_ngap_id: connection(2), ..Names::default() }, 7);
        push(&mut s, RECEIVED, Names { ran, amf_ue_ngap_id: connection(1), ..of(next) }, 8);
        assert_eq!(octets(&s, &[next], 0), [2, 3, 4, 8]);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_messages_go_first() {
        let mut s = Signalling::new(100 * (OVERHEAD + 1));
        for i in 0..250u8 {
            push(&mut s, SENT, of(UE), i);
        }
        let all = s.of(&[UE], 0, 1000);
        assert_eq!((all.messages.len(), all.messages[0].octets[0], all.dropped), (100, 150, true));
        assert!(s.octets <= s.octets_max);
        assert_eq!(s.of(&[UE], 0, 10).messages[0].octets[0], 240, "the newest of them");
        for i in 0..2 * UNNAMED_MAX as u32 {
            let ran = Some((AssociationId(1), RanUeNgapId(i)));
            push(&mut s, RECEIVED, Names { ran, begins: true, ..Names::default() }, 0);
        }
        assert_eq!(s.unnamed_n2.len(), UNNAMED_MAX);
        let mut off = Signalling::new(0);
        push(&mut off, SENT, of(UE), 1);
        assert_eq!(off.messages.len(), 0);
    }
}
