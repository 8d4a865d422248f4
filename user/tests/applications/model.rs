//! The names of a UE's packets, looked up in all DNS and TLS messages so far.

use std::net::Ipv4Addr;

use super::octets::Record;

/// An answer's address stands at least and at most as long, in seconds.
const TTL: std::ops::RangeInclusive<u64> = 10..=86_400;
/// Seconds without a packet after which a flow is forgotten.
const IDLE_S: u64 = 300;
/// Seconds that an answer may take.
const ANSWERED_WITHIN_S: u64 = 10;

/// Both ends of a flow: the server, its port, the UE's, and the protocol.
pub(crate) type Ends = (Ipv4Addr, u16, u16, u8);

/// The applications, in the order of the rules that name them: by name, in questions and in greetings.
pub(crate) struct ApplicationNames {
    pub(crate) asked: fn(&str) -> Vec<usize>,
    pub(crate) greeted: fn(&str) -> Vec<usize>,
}

/// A UE of the model.
#[derive(Default)]
pub(crate) struct Ue {
    /// When, server, port, identifier; taken out when answered.
    asked: Vec<(u64, Ipv4Addr, u16, u16)>,
    /// Until when, address, applications.
    addresses: Vec<(u64, Ipv4Addr, Vec<usize>)>,
    /// Last packet, ends, applications.
    flows: Vec<(u64, Ends, Vec<usize>)>,
}

impl Ue {
    pub(crate) fn ask(
        &mut self,
        names: &ApplicationNames,
        now: u64,
        server: Ipv4Addr,
        port: u16,
        id: u16,
        name: &str,
    ) {
        if !(names.asked)(name).is_empty() {
            self.asked.push((now, server, port, id));
        }
    }

    pub(crate) fn answer(
        &mut self,
        names: &ApplicationNames,
        now: u64,
        (server, port, id): (Ipv4Addr, u16, u16),
        name: &str,
        records: &[Record],
    ) {
        let fits =
            |a: &(u64, _, _, _)| (a.1, a.2, a.3) == (server, port, id) && now - a.0 < ANSWERED_WITHIN_S;
        let Some(at) = self.asked.iter().position(fits) else { return };
        self.asked.remove(at);
        if (names.asked)(name).is_empty() {
            return; // it is about another name than the question, and says nothing of the addresses that are known
        }
        let (mut of, mut most) = (name, u64::MAX);
        for r in records {
            match r {
                Record::Alias(owner, alias, ttl) if *owner == of => {
                    (of, most) = (alias, most.min((*ttl).into()));
                }
                Record::Address(owner, address, ttl) if *owner == of => {
                    let ttl = u64::from(*ttl).min(most).clamp(*TTL.start(), *TTL.end());
                    let mut known = self.of_address(now, *address);
                    known.extend((names.asked)(name));
                    self.addresses.retain(|a| a.1 != *address);
                    self.addresses.push((now + ttl, *address, known));
                }
                Record::Alias(..) | Record::Address(..) => {}
            }
        }
    }

    fn of_address(&self, now: u64, address: Ipv4Addr) -> Vec<usize> {
        let known = self.addresses.iter().find(|a| a.1 == address && now < a.0);
        known.map_or(Vec::new(), |a| a.2.clone())
    }

    /// The applications of a packet's flow, which may greet.
    pub(crate) fn packet(
        &mut self,
        names: &ApplicationNames,
        now: u64,
        ends: Ends,
        greets: Option<&str>,
    ) -> Vec<usize> {
        let flow = self.flows.iter().find(|f| f.1 == ends && now - f.0 < IDLE_S);
        let mut known = flow.map_or_else(|| self.of_address(now, ends.0), |f| f.2.clone());
        known.extend(greets.map_or(Vec::new(), names.greeted));
        if !known.is_empty() {
            self.flows.retain(|f| f.1 != ends);
            self.flows.push((now, ends, known.clone()));
        }
        known
    }
}
