//! UE addresses that the SMF allocates for a UPF, from pools of its configuration (TS 23.501 §5.8.2.2.1, TS 29.244 §5.21). Most UPFs of
//! other makes allocate none.
//!
//! A UE's procedures ask every UPF alike to choose the addresses. Where the SMF has pools, the choice is made here: the request leaves with
//! the addresses, and they stand in the UPF's answer when it reaches the UE, as if the UPF had chosen them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use whimbrel_control::config::UePool;
use whimbrel_ids::{Dnn, Seid};
use whimbrel_pfcp::ie::{Choice, UeIpAddress};
use whimbrel_pfcp::msg::{SessionEstablishmentRequest, SessionEstablishmentResponse};
use whimbrel_pfcp::rule::CreatedPdr;
use whimbrel_pfcp::{Frame, Message};

/// The pools of one UPF, and which session has which address.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct UeAddresses {
    networks: Vec<NetworkAddresses>,
    /// By UP SEID.
    sessions: BTreeMap<u64, SessionAddresses>,
    /// The UP SEID of each: another one after a restart of the UPF.
    seids: BTreeMap<SessionAddresses, u64>,
}

/// The addresses of one data network.
#[derive(Serialize, Deserialize)]
struct NetworkAddresses {
    dnn: Dnn,
    ipv4: Option<Numbers>,
    /// The upper 64 bits.
    ipv6: Option<Numbers>,
}

/// The addresses of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct SessionAddresses {
    /// Place of its data network among the pools.
    network: usize,
    ipv4: Option<u32>,
    ipv6: Option<u64>,
}

/// A range of numbers, of which some are in use. A number that was given back is given out again as late as possible.
#[derive(Serialize, Deserialize)]
struct Numbers {
    end: u64,
    /// From here on none has been chosen yet.
    fresh: u64,
    returned: VecDeque<u64>,
    used: BTreeSet<u64>,
    /// Those of `used` that stand in neither of the former two.
    chosen: BTreeSet<u64>,
}

/// All addresses of the pool are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolUsedUp;

impl SessionAddresses {
    fn ipv4(self) -> Option<Ipv4Addr> {
        self.ipv4.map(Ipv4Addr::from_bits)
    }

    fn ipv6(self) -> Option<Ipv6Addr> {
        self.ipv6.map(|upper| Ipv6Addr::from_bits(u128::from(upper) << 64))
    }
}

impl Numbers {
    fn new(first: u64, count: u64) -> Self {
        let [used, chosen] = [BTreeSet::new(), BTreeSet::new()];
        Self { end: first.saturating_add(count), fresh: first, returned: VecDeque::new(), used, chosen }
    }

    fn choose(&mut self) -> Option<u64> {
        while self.fresh < self.end {
            let number = self.fresh;
            self.fresh += 1;
            if self.used.insert(number) {
                self.chosen.insert(number);
                return Some(number);
            }
            self.returned.push_back(number);
        }
        for _ in 0..self.returned.len() {
            let number = self.returned.pop_front()?;
            if self.used.insert(number) {
                self.chosen.insert(number);
                return Some(number);
            }
            self.returned.push_back(number);
        }
        None
    }

    /// A session has this number: a static address, or one of the former run.
    fn keep(&mut self, number: u64) {
        self.used.insert(number);
    }

    fn give_back(&mut self, number: u64) {
        self.used.remove(&number);
        if self.chosen.remove(&number) {
            self.returned.push_back(number);
        }
    }
}

impl NetworkAddresses {
    /// The first address of a pool is left to the UPF, which often has it as its own.
    fn new(pool: &UePool) -> Self {
        let ipv4 = pool.ipv4.map(|(first, length)| {
            let size = 1u64 << 32u8.saturating_sub(length);
            Numbers::new(u64::from(first.to_bits()) + 2, size.saturating_sub(3))
        });
        let ipv6 = pool.ipv6.map(|(first, length)| {
            let size = 1u64 << 64u8.saturating_sub(length).min(63);
            Numbers::new((first.to_bits() >> 64) as u64 + 1, size - 1)
        });
        Self { dnn: pool.dnn.clone(), ipv4, ipv6 }
    }

    fn give_back(&mut self, addresses: SessionAddresses) {
        if let (Some(pool), Some(number)) = (&mut self.ipv4, addresses.ipv4) {
            pool.give_back(number.into());
        }
        if let (Some(pool), Some(number)) = (&mut self.ipv6, addresses.ipv6) {
            pool.give_back(number);
        }
    }
}

impl UeAddresses {
    pub(super) fn new(pools: &[UePool]) -> Self {
        Self { networks: pools.iter().map(NetworkAddresses::new).collect(), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    #[cfg(test)]
    pub(super) fn is_unused(&self) -> bool {
        let unused = |numbers: &Option<Numbers>| numbers.as_ref().is_none_or(|n| n.used.is_empty());
        self.sessions.is_empty() && self.networks.iter().all(|n| unused(&n.ipv4) && unused(&n.ipv6))
    }

    /// All sessions are gone.
    pub(super) fn clear(&mut self) {
        self.sessions.clear();
        for (addresses, _) in std::mem::take(&mut self.seids) {
            self.give_back(addresses);
        }
    }

    /// Writes addresses into a session's request, in place of the choice that it asks for. `None`: the data network has no pool, or there
    /// is nothing to choose. Errors: the pool is used up.
    pub(super) fn choose(
        &mut self,
        request: &mut SessionEstablishmentRequest,
    ) -> Result<Option<SessionAddresses>, PoolUsedUp> {
        let dnn = request.apn_dnn.as_ref();
        let Some((place, network)) = self.networks.iter_mut().enumerate().find(|(_, n)| Some(&n.dnn) == dnn)
        else {
            return Ok(None);
        };
        let mut addresses = SessionAddresses { network: place, ipv4: None, ipv6: None };
        let ue_addresses = |r: &mut SessionEstablishmentRequest, f: &mut dyn FnMut(&mut UeIpAddress)| {
            r.create_pdrs.iter_mut().flat_map(|pdr| &mut pdr.pdi.ue_ip_addresses).for_each(f);
        };
        let mut requested = (None, None);
        ue_addresses(request, &mut |a| requested = (requested.0.or(a.ipv4), requested.1.or(a.ipv6)));
        match (&mut network.ipv4, requested.0) {
            (Some(pool), Some(Choice::Choose)) => {
                addresses.ipv4 = Some(pool.choose().ok_or(PoolUsedUp)? as u32);
            }
            (Some(pool), Some(Choice::Given(given))) => {
                pool.keep(given.to_bits().into());
                addresses.ipv4 = Some(given.to_bits());
            }
            _ => {}
        }
        match (&mut network.ipv6, requested.1) {
            (Some(pool), Some(Choice::Choose)) => match pool.choose() {
                Some(number) => addresses.ipv6 = Some(number),
                None => {
                    network.give_back(addresses);
                    return Err(PoolUsedUp);
                }
            },
            (Some(pool), Some(Choice::Given(given))) => {
                let number = (given.to_bits() >> 64) as u64;
                pool.keep(number);
                addresses.ipv6 = Some(number);
            }
            _ => {}
        }
        ue_addresses(request, &mut |a| {
            if let (Some(Choice::Choose), Some(chosen)) = (a.ipv4, addresses.ipv4()) {
                a.ipv4 = Some(Choice::Given(chosen));
            }
            if let (Some(Choice::Choose), Some(chosen)) = (a.ipv6, addresses.ipv6()) {
                a.ipv6 = Some(Choice::Given(chosen));
            }
        });
        Ok((addresses.ipv4.is_some() || addresses.ipv6.is_some()).then_some(addresses))
    }

    /// A UPF has answered the request with these addresses. Returns its answer as if it had chosen them, if it accepted.
    pub(super) fn answered(
        &mut self,
        addresses: SessionAddresses,
        request: &[u8],
        answer: &[u8],
    ) -> Option<Vec<u8>> {
        let frame = Frame::parse(answer).ok();
        let accepted = frame.as_ref().and_then(|frame| match Message::parse(frame) {
            Ok(Message::SessionEstablishmentResponse(m)) if m.cause.is_accepted() => Some(m),
            _ => None,
        });
        let (Some(frame), Some(mut m)) = (frame, accepted) else {
            self.give_back(addresses);
            return None;
        };
        match m.up_f_seid {
            Some(seid) => self.keep(seid.seid, addresses),
            None => self.give_back(addresses), // an answer that gives no session
        }
        add_addresses(&mut m, request);
        Some(Message::from(*m).to_octets(frame.header.seid, frame.header.sequence))
    }

    /// A session of the former run, by its UP SEID.
    pub(super) fn restore(
        &mut self,
        up_seid: Seid,
        dnn: &Dnn,
        ipv4: Option<Ipv4Addr>,
        ipv6: Option<Ipv6Addr>,
    ) {
        let Some((place, network)) = self.networks.iter_mut().enumerate().find(|(_, n)| n.dnn == *dnn) else {
            return;
        };
        let ipv4 = ipv4.filter(|_| network.ipv4.is_some()).map(Ipv4Addr::to_bits);
        let ipv6 = ipv6.filter(|_| network.ipv6.is_some()).map(|a| (a.to_bits() >> 64) as u64);
        if let (Some(pool), Some(number)) = (&mut network.ipv4, ipv4) {
            pool.keep(number.into());
        }
        if let (Some(pool), Some(number)) = (&mut network.ipv6, ipv6) {
            pool.keep(number);
        }
        self.keep(up_seid, SessionAddresses { network: place, ipv4, ipv6 });
    }

    /// A session has these addresses, perhaps under another UP SEID than before a restart of the UPF.
    fn keep(&mut self, up_seid: Seid, addresses: SessionAddresses) {
        let former = self.seids.insert(addresses, up_seid.0).filter(|seid| *seid != up_seid.0);
        if let Some(seid) = former.filter(|seid| self.sessions.get(seid) == Some(&addresses)) {
            self.sessions.remove(&seid);
        }
        self.sessions.insert(up_seid.0, addresses);
    }

    /// The UPF has no such session any more.
    pub(super) fn deleted(&mut self, up_seid: Seid) {
        if let Some(addresses) = self.sessions.remove(&up_seid.0) {
            self.seids.remove(&addresses);
            self.give_back(addresses);
        }
    }

    /// A request came to nothing. A session that had the addresses before, and was to be restored, keeps them.
    pub(super) fn give_back(&mut self, addresses: SessionAddresses) {
        if self.seids.contains_key(&addresses) {
            return;
        }
        if let Some(network) = self.networks.get_mut(addresses.network) {
            network.give_back(addresses);
        }
    }
}

/// Adds the addresses of the request's PDRs to the answer, unless the UPF names its own.
fn add_addresses(answer: &mut SessionEstablishmentResponse, request: &[u8]) {
    if answer.created_pdrs.iter().any(|pdr| !pdr.ue_ip_addresses.is_empty()) {
        return;
    }
    let request = Frame::parse(request).ok().and_then(|frame| Message::parse(&frame).ok());
    let Some(Message::SessionEstablishmentRequest(request)) = request else {
        return;
    };
    let Some(pdr) = request.create_pdrs.iter().find(|pdr| !pdr.pdi.ue_ip_addresses.is_empty()) else {
        return;
    };
    let ue_ip_addresses = pdr.pdi.ue_ip_addresses.clone();
    match answer.created_pdrs.iter_mut().find(|created| created.pdr_id == pdr.pdr_id) {
        Some(created) => created.ue_ip_addresses = ue_ip_addresses,
        None => {
            let created = CreatedPdr { pdr_id: pdr.pdr_id, local_f_teid: None, ue_ip_addresses };
            answer.created_pdrs.push(created);
        }
    }
}
