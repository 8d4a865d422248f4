//! Server names of a session's packets: those that its UE has resolved by DNS or sent in a TLS ClientHello.
//!
//! Only sessions whose rules name an application with domain names learn. What is learnt stays within the session: the queries and
//! answers of one UE do not affect another UE's packets. An answer counts if the UE sent that query to that
//! server. An address is known by a name as long as the answer says; a flow that began by then is known by it as long as it
//! has packets. A UE can ask for an application's name, or send it in a ClientHello, to be classified as it: no rule that lets more pass can rest
//! on names alone (docs/applications.md).
//!
//! One packet is looked at, nothing is put together: a greeting whose name is in its second segment names nothing, nor do answers in
//! fragments, over TCP, or encrypted, nor QUIC's greeting.

mod dns;
mod name;
mod tls;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::Instant;

use super::inner::{InnerPacket, protocol};
use super::session::SessionState;
use super::shared::PipelineContext;
use crate::applications::DomainNameProtocol;
use crate::limits::{NAMED_ADDRESSES_MAX, NAMED_FLOWS_MAX, NAMES_READ_PER_SECOND_MAX, QUESTIONS_MAX};
use crate::rules::{Application, Flow, Names, SessionRules};
use dns::Message;
use name::Name;

/// How long an answer is waited for: longer than a UE does.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// An answer stands for as long at least, so that the UE can begin.
const TTL_MIN_S: u32 = 10;
/// And for a day at most (RFC 8767 §4 would have no more than a week).
const TTL_MAX_S: u32 = 86_400;
/// A flow without packets is forgotten after as long as UDP is by a firewall (RFC 4787 §4.3).
const FLOW_IDLE: Duration = Duration::from_secs(300);

/// Both ends of a flow, seen from the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowEnds {
    remote: IpAddr,
    local: IpAddr,
    ports: (u16, u16),
    protocol: u8,
}

/// What is known by names, and until when. Of more than there is room for, the one goes whose time would be over first.
struct KnownNames<K>(BTreeMap<K, (Names, Instant)>);

impl<K> Default for KnownNames<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> KnownNames<K> {
    fn find(&self, key: &K, now: Instant) -> Option<Names> {
        self.0.get(key).filter(|(_, until)| now < *until).map(|(names, _)| *names)
    }

    /// Whether there is one more than before.
    fn put(&mut self, key: K, names: Names, until: Instant, most: usize) -> i64 {
        let before = self.0.len();
        if before >= most
            && !self.0.contains_key(&key)
            && let Some(first) = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(k, _)| *k)
        {
            self.0.remove(&first);
        }
        self.0.insert(key, (names, until));
        self.0.len() as i64 - before as i64
    }
}

/// A question that awaits its answer.
struct AskedName {
    server: IpAddr,
    port: u16,
    id: u16,
    at: Instant,
}

/// The names that a session's UE has used.
#[derive(Default)]
pub(super) struct Naming {
    /// The oldest first.
    asked: Vec<AskedName>,
    addresses: KnownNames<IpAddr>,
    flows: KnownNames<FlowEnds>,
    /// In which second how many were read.
    read: (u64, u32),
}

impl Naming {
    /// Addresses and flows that are known.
    pub(super) fn len(&self) -> usize {
        self.addresses.0.len() + self.flows.0.len()
    }

    /// Whether one more may be read in this second: to read names costs more than to forward.
    fn may_read(&mut self, now: Instant) -> bool {
        if self.read.0 != now.as_secs() {
            self.read = (now.as_secs(), 0);
        }
        self.read.1 += 1;
        self.read.1 <= NAMES_READ_PER_SECOND_MAX
    }

    /// A question of the UE is remembered, if it is about a name that matters.
    fn ask(&mut self, now: Instant, applications: &[Arc<Application>], flow: &Flow, octets: &[u8]) {
        let Some((server, (_, port))) = Some(flow.remote).zip(flow.ports) else { return };
        let Some(m) = Message::question(octets) else { return };
        if of_name(applications, &m.name, DomainNameProtocol::Query).is_empty() {
            return;
        }
        self.asked.retain(|a| now.since(a.at) < ANSWERED_WITHIN);
        if self.asked.len() >= QUESTIONS_MAX {
            self.asked.remove(0);
        }
        self.asked.push(AskedName { server, port, id: m.id, at: now });
    }

    /// An answer names addresses, if the UE has asked for it.
    fn answer(
        &mut self,
        now: Instant,
        applications: &[Arc<Application>],
        flow: &Flow,
        octets: &[u8],
        room: i64,
    ) -> i64 {
        let (Some((_, port)), Some(m)) = (flow.ports, Message::answer(octets)) else { return 0 };
        let is_of = |a: &AskedName| {
            (a.server, a.port, a.id) == (flow.remote, port, m.id) && now.since(a.at) < ANSWERED_WITHIN
        };
        let Some(asked) = self.asked.iter().position(is_of) else { return 0 };
        self.asked.remove(asked);
        let names = of_name(applications, &m.name, DomainNameProtocol::Query);
        let mut more = 0;
        if names.is_empty() {
            return more;
        }
        m.addresses(|address, ttl| {
            let until = now + Duration::from_secs(ttl.clamp(TTL_MIN_S, TTL_MAX_S).into());
            let known = self.addresses.find(&address, now).unwrap_or_default();
            let names = names.with(known);
            let most = if more < room { NAMED_ADDRESSES_MAX } else { self.addresses.0.len() };
            if most > 0 {
                more += self.addresses.put(address, names, until, most);
            }
        });
        more
    }

    /// The names of a packet's flow; a greeting may give it some.
    fn of_flow(
        &mut self,
        now: Instant,
        applications: &[Arc<Application>],
        flow: &Flow,
        greeting: Option<&[u8]>,
        room: i64,
    ) -> (Names, i64) {
        let by_address = |n: &Self| n.addresses.find(&flow.remote, now).unwrap_or_default();
        let Some(ports) = flow.ports else { return (by_address(self), 0) };
        let ends = FlowEnds { remote: flow.remote, local: flow.local, ports, protocol: flow.protocol };
        let known = self.flows.find(&ends, now);
        let mut names = known.unwrap_or_else(|| by_address(self));
        if let Some(octets) = greeting
            && let Some(name) = tls::server_name(octets)
        {
            names = names.with(of_name(applications, &name, DomainNameProtocol::ServerName));
        }
        if names.is_empty() {
            return (names, 0);
        }
        if let Some((names_then, until)) = self.flows.0.get_mut(&ends) {
            (*names_then, *until) = (names, now + FLOW_IDLE);
            return (names, 0);
        }
        let most = if room > 0 { NAMED_FLOWS_MAX } else { self.flows.0.len() };
        let more = if most > 0 { self.flows.put(ends, names, now + FLOW_IDLE, most) } else { 0 };
        (names, more)
    }
}

/// The descriptions of a session's applications that a name is one of.
fn of_name(applications: &[Arc<Application>], name: &Name, protocol: DomainNameProtocol) -> Names {
    let mut found = Names::NONE;
    applications.iter().for_each(|a| a.of_name(name.octets(), protocol, &mut found));
    found
}

/// The names that a packet's flow is known by, with what the packet itself says.
#[cold]
pub(super) fn names_of(
    state: &mut SessionState,
    shared: &mut PipelineContext,
    rules: &SessionRules,
    now: Instant,
    uplink: bool,
    inner: &InnerPacket,
    packet: &[u8],
) -> Names {
    let flow = if uplink { inner.uplink() } else { inner.downlink() };
    let payload = packet.get(inner.payload_at..inner.octets).unwrap_or_default();
    let naming = state.naming.get_or_insert_default();
    let room = |shared: &PipelineContext| shared.names_room();
    let to_server = flow.protocol == protocol::UDP && flow.ports.is_some_and(|(far, _)| far == dns::PORT);
    if to_server && shared.believes(flow.remote) && naming.may_read(now) {
        let octets = payload.get(8..).unwrap_or_default();
        if uplink {
            naming.ask(now, &rules.applications, &flow, octets);
        } else {
            let more = naming.answer(now, &rules.applications, &flow, octets, room(shared));
            shared.names_known(more);
        }
    }
    let segment = || payload.get(usize::from(payload.get(12)? >> 4) * 4..);
    let greeting = (uplink && flow.protocol == protocol::TCP && flow.ports.is_some())
        .then(segment)
        .flatten()
        .filter(|octets| tls::may_be_hello(octets))
        .filter(|_| naming.may_read(now));
    let (names, more) = naming.of_flow(now, &rules.applications, &flow, greeting, room(shared));
    shared.names_known(more);
    names
}

/// For fuzzing the parsers.
#[cfg(any(test, feature = "samples"))]
pub(crate) fn read_names(octets: &[u8]) {
    for m in [Message::question(octets), Message::answer(octets)].into_iter().flatten() {
        assert!(m.name.octets().len() <= crate::applications::NAME_OCTETS_MAX);
        m.addresses(|_, _| {});
    }
    if let Some(name) = tls::server_name(octets) {
        assert!(!name.octets().is_empty());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Message, dns, read_names, tls};

    /// As they are, and cut.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "saved inputs are in files")]
    fn questions_answers_and_greetings_that_were_kept_are_read_to_an_end() {
        let kept = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/names")).unwrap();
        let all: Vec<_> = kept.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        let named = |octets: &&Vec<u8>| {
            Message::question(octets).is_some()
                || Message::answer(octets).is_some()
                || tls::server_name(octets).is_some()
        };
        let names = all.iter().filter(named).count();
        assert!(names >= 5 && names < all.len(), "{names} of {}", all.len());
        for octets in &all {
            (0..=octets.len()).for_each(|len| read_names(&octets[..len]));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        /// Answers and greetings, cut and with some octets changed: whatever becomes of them, reading them ends.
        #[test]
        fn what_is_nearly_an_answer_or_a_greeting_is_read_to_an_end(
            greeting in any::<bool>(),
            changes in proptest::collection::vec(any::<(u16, u8)>(), 0..6),
            cut in any::<u16>(),
        ) {
            let alias = ("a.b", 5, 60, dns::tests::labels("c.d"));
            let mut octets = match greeting {
                true => tls::tests::hello(b"video.example"),
                false => dns::tests::message(0x8180, "a.b", &[alias, ("c.d", 1, 60, vec![192, 0, 2, 1])]),
            };
            for (at, octet) in changes {
                let at = usize::from(at) % octets.len();
                octets[at] = octet;
            }
            octets.truncate(usize::from(cut) % (2 * octets.len()));
            read_names(&octets);
        }
    }
}
