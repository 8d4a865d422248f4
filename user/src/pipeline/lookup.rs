//! From a UE's address to its session.

use std::collections::BTreeMap;
use std::net::IpAddr;

use whimbrel_pages::{PAGE_OCTETS, Pages};
use whimbrel_pfcp::ie::RouteNetwork;
use whimbrel_prefetch::prefetch;

use crate::config::DataNetwork;
use crate::limits::POOL_ADDRESSES_MAX;
use crate::rules::{masked_v4, masked_v6, upper};

/// The sessions of the first numbers of a range are in one allocation, which grows with use; those of further numbers in large
/// pages.
const NEAR: usize = 65_536;
/// Places of a large page.
const BLOCK: usize = PAGE_OCTETS / size_of::<SessionSlot>();

/// The session of a number, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SessionSlot(u32);

impl Default for SessionSlot {
    fn default() -> Self {
        VACANT
    }
}

/// A place without a session.
const VACANT: SessionSlot = SessionSlot(u32::MAX);

/// Consecutive numbers, each with a session or none: a direct index.
struct Range {
    first: u64,
    near: Vec<SessionSlot>,
    far: Vec<Pages<SessionSlot>>,
    len: u32,
}

impl Range {
    fn new(first: u64, count: u64) -> Self {
        // Filled as far as it is used: an empty pool of a million addresses costs nothing.
        Self {
            first,
            near: Vec::new(),
            far: Vec::new(),
            len: count.min(u64::from(POOL_ADDRESSES_MAX)) as u32,
        }
    }

    #[inline]
    fn position(&self, number: u64) -> Option<usize> {
        let at = number.checked_sub(self.first)?;
        (at < u64::from(self.len)).then_some(at as usize)
    }

    #[inline]
    fn place(&self, at: usize) -> Option<&SessionSlot> {
        match at.checked_sub(NEAR) {
            None => self.near.get(at),
            Some(far) => self.far.get(far / BLOCK)?.get(far % BLOCK),
        }
    }

    fn set(&mut self, at: usize, session: SessionSlot) {
        match at.checked_sub(NEAR) {
            None => {
                if self.near.len() <= at {
                    self.near.resize(at + 1, VACANT);
                }
                self.near[at] = session;
            }
            Some(far) => {
                while self.far.len() <= far / BLOCK {
                    self.far.push(Pages::new(BLOCK));
                }
                self.far[far / BLOCK][far % BLOCK] = session;
            }
        }
    }
}

/// The numbers of one family and network.
#[derive(Default)]
struct Family {
    ranges: Vec<Range>,
    /// Static addresses outside the pools.
    others: BTreeMap<u64, u32>,
}

impl Family {
    #[inline]
    fn find(&self, number: u64) -> Option<u32> {
        for r in &self.ranges {
            if let Some(at) = r.position(number) {
                return r.place(at).filter(|s| **s != VACANT).map(|s| s.0);
            }
        }
        self.others.get(&number).copied()
    }

    /// Begins to load what [`Self::find`] reads of a number in a pool.
    #[inline]
    fn prefetch(&self, number: u64) {
        for r in &self.ranges {
            if let Some(place) = r.position(number).and_then(|at| r.place(at)) {
                prefetch(place);
            }
        }
    }

    fn set(&mut self, number: u64, session: Option<u32>) {
        for r in &mut self.ranges {
            if let Some(at) = r.position(number) {
                return r.set(at, session.map_or(VACANT, SessionSlot));
            }
        }
        match session {
            Some(s) => self.others.insert(number, s),
            None => self.others.remove(&number),
        };
    }
}

/// Networks behind UEs (TS 29.244 §5.16), the longest prefixes first.
#[derive(Default)]
struct Routes {
    by_length: Vec<(u8, BTreeMap<IpAddr, u32>)>,
}

impl Routes {
    /// The session behind whose UE an address is.
    #[cold]
    fn find(&self, address: IpAddr) -> Option<u32> {
        self.by_length.iter().find_map(|(length, sessions)| {
            let network = match address {
                IpAddr::V4(a) => masked_v4(a, *length).into(),
                IpAddr::V6(a) => masked_v6(a, *length).into(),
            };
            sessions.get(&network).copied()
        })
    }

    /// The newest session has a network that several name.
    fn insert(&mut self, (network, length): RouteNetwork, session: u32) {
        let at = self.by_length.partition_point(|(l, _)| *l > length);
        if self.by_length.get(at).is_none_or(|(l, _)| *l != length) {
            self.by_length.insert(at, (length, BTreeMap::new()));
        }
        if let Some((_, sessions)) = self.by_length.get_mut(at) {
            sessions.insert(network, session);
        }
    }

    fn remove(&mut self, (network, length): RouteNetwork, session: u32) {
        let Some((_, sessions)) = self.by_length.iter_mut().find(|(l, _)| *l == length) else { return };
        if sessions.get(&network) == Some(&session) {
            sessions.remove(&network);
        }
        self.by_length.retain(|(_, sessions)| !sessions.is_empty());
    }
}

/// The UEs of one data network by address.
pub(crate) struct UeAddresses {
    ipv4: Family,
    ipv6: Family,
    routes: Routes,
}

impl UeAddresses {
    pub(crate) fn new(dn: &DataNetwork) -> Self {
        let ipv4 = dn.all_ipv4_pools().map(|p| Range::new(p.first().into(), p.numbers()));
        let ipv6 = dn.all_ipv6_pools().map(|p| Range::new(p.first(), p.numbers()));
        Self {
            ipv4: Family { ranges: ipv4.collect(), others: BTreeMap::new() },
            ipv6: Family { ranges: ipv6.collect(), others: BTreeMap::new() },
            routes: Routes::default(),
        }
    }

    /// The session of an address; of an IPv6 address, by its prefix of 64 bits.
    #[inline]
    pub(crate) fn find(&self, address: IpAddr) -> Option<u32> {
        let own = match address {
            IpAddr::V4(a) => self.ipv4.find(u64::from(a.to_bits())),
            IpAddr::V6(a) => self.ipv6.find(upper(a)),
        };
        if own.is_none() && !self.routes.by_length.is_empty() { self.routes.find(address) } else { own }
    }

    /// Begins to load what [`Self::find`] reads.
    #[inline]
    pub(crate) fn prefetch(&self, address: IpAddr) {
        match address {
            IpAddr::V4(a) => self.ipv4.prefetch(u64::from(a.to_bits())),
            IpAddr::V6(a) => self.ipv6.prefetch(upper(a)),
        }
    }

    /// A network behind a session's UE is there, or no longer.
    pub(crate) fn set_route(&mut self, network: RouteNetwork, session: u32, there: bool) {
        if there {
            self.routes.insert(network, session);
        } else {
            self.routes.remove(network, session);
        }
    }

    pub(crate) fn set(&mut self, address: IpAddr, session: Option<u32>) {
        match address {
            IpAddr::V4(a) => self.ipv4.set(u64::from(a.to_bits()), session),
            IpAddr::V6(a) => self.ipv6.set(upper(a), session),
        }
    }
}
