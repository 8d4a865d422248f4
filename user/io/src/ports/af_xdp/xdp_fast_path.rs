//! What the fast path's programs and the pipeline share, and the next hops of the programs.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use whimbrel_user::{
    DATA_NETWORKS_MAX, DestinationFilter, DnIndex, FastEntry, FastPath, FastPathCounters, IpNetwork, Teids,
};

pub(crate) use super::hops::Hop;
use crate::sys::bpf::{DeviceMap, SharedArray};
use crate::xdp::fast::{self, DROPS, Fast, ProcessorCounters, Time, slot};
use crate::xdp::steer::UeAddressPool;

/// gNBs that the fast path reaches, as many as paths are supervised; sessions of others stay with the pipeline.
const GNBS_MAX: usize = 4_096;
/// Addresses of all pools; UEs of pools beyond stay with the pipeline. Eight octets each, that are there from the start.
const UES_MAX: u32 = 1 << 24;
/// Interfaces by which frames leave.
const DEVICES_MAX: u32 = DATA_NETWORKS_MAX as u32 + 1;
/// Processors, as many as Linux is built for anywhere we know of.
const PROCESSORS_MAX: u32 = 8_192;
/// How long a driver may collect packets before it shows them to our rings. A burst of 64 takes tens of microseconds, but a virtual machine
/// may lose its processor in the middle of one.
const SETTLES_IN: Duration = Duration::from_millis(2);

/// The memory, and whose address stands where in it.
pub(crate) struct FastPathMemory {
    sessions: SharedArray<FastEntry>,
    ues: SharedArray<AtomicU64>,
    prefixes: SharedArray<AtomicU64>,
    hops: SharedArray<fast::Hop>,
    counters: SharedArray<ProcessorCounters>,
    suspects: SharedArray<[AtomicU64; DestinationFilter::WORDS]>,
    devices: DeviceMap,
    /// Pools of all data networks.
    all: Vec<UeAddressPool>,
    /// Those of which there are UEs here, and where they begin among those of their family.
    pools: Vec<(UeAddressPool, DnIndex, u32)>,
    /// Data networks that have a next hop.
    networks: Vec<DnIndex>,
    /// gNBs and the numbers of their next hops.
    gnbs: Mutex<BTreeMap<Ipv4Addr, u16>>,
}

impl FastPathMemory {
    /// For so many sessions at most, and UEs of these pools.
    ///
    /// Errors: of the kernel, where it has no memory for them or does not permit it.
    pub(crate) fn new(
        sessions_max: u32,
        all: &[(UeAddressPool, DnIndex)],
        networks: Vec<DnIndex>,
    ) -> io::Result<Self> {
        let (mut pools, mut ues, mut prefixes) = (Vec::new(), 0u32, 0u32);
        for (pool, dn) in all {
            let (bits, count) = if pool.first.is_ipv4() { (32, &mut ues) } else { (64, &mut prefixes) };
            let of_pool = 1u32.checked_shl(bits - u32::from(pool.prefix)).unwrap_or(u32::MAX);
            let next = count.saturating_add(of_pool);
            if next <= UES_MAX {
                pools.push((*pool, *dn, *count));
                *count = next;
            }
        }
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        // A program may run where this process may not.
        let processors = possible_processors().unwrap_or(processors).min(PROCESSORS_MAX);
        Ok(Self {
            sessions: SharedArray::new(sessions_max)?,
            ues: SharedArray::new(ues.max(1))?,
            prefixes: SharedArray::new(prefixes.max(1))?,
            hops: SharedArray::new((2 * DATA_NETWORKS_MAX + GNBS_MAX) as u32)?,
            counters: SharedArray::new(processors)?,
            suspects: SharedArray::new(1)?,
            devices: DeviceMap::new(DEVICES_MAX)?,
            all: all.iter().map(|(pool, _)| *pool).collect(),
            pools,
            networks,
            gnbs: Mutex::default(),
        })
    }

    /// What a program has to know of it; packets to `denied` networks are the pipeline's to judge, as those to UEs are.
    pub(crate) fn fast(
        &self,
        teids: Teids,
        denied: &[IpNetwork],
        own: Ipv4Addr,
        port: u16,
        time: Time,
    ) -> Fast {
        let network =
            |n: &IpNetwork| UeAddressPool { first: n.address, prefix: n.prefix, gateway: n.address, mtu: 0 };
        Fast {
            sessions: self.sessions.fd(),
            ues: self.ues.fd(),
            prefixes: self.prefixes.fd(),
            hops: self.hops.fd(),
            devices: self.devices.fd(),
            counters: self.counters.fd(),
            suspects: self.suspects.fd(),
            teids,
            pools: self.all.iter().copied().chain(denied.iter().map(network)).collect(),
            places: self.pools.iter().map(|(pool, _, first)| (*pool, *first)).collect(),
            time,
            own: own.octets(),
            port,
        }
    }

    /// Frames leave by interface `number` of ours.
    pub(crate) fn set_device(&self, number: u32, interface: u32) -> io::Result<()> {
        self.devices.set(number, interface)
    }

    /// The gNBs that sessions name, and the numbers of their next hops.
    pub(crate) fn gnbs(&self) -> Vec<(Ipv4Addr, u16)> {
        let gnbs = self.gnbs.lock().unwrap_or_else(PoisonError::into_inner);
        gnbs.iter().map(|(gnb, number)| (*gnb, *number)).collect()
    }

    /// The data networks that have a next hop by IPv4: its number is theirs.
    pub(crate) fn networks(&self) -> &[DnIndex] {
        &self.networks
    }

    /// The number of a data network's next hop by IPv6, if it has one.
    pub(crate) fn ipv6_hop(dn: DnIndex) -> u16 {
        (DATA_NETWORKS_MAX + GNBS_MAX) as u16 + u16::from(dn.0)
    }

    /// Says where a next hop is; `None`: packets that need it go up.
    pub(crate) fn set_hop(&self, number: u16, device: u16, from: [u8; 6], to: Option<Hop>) {
        let Some([first, second]) = self.hops.get(usize::from(number)) else { return };
        let word = |mac: [u8; 6], above: u16| {
            let mut octets = [0; 8];
            octets[..6].copy_from_slice(&mac);
            octets[6..].copy_from_slice(&above.to_ne_bytes());
            u64::from_ne_bytes(octets)
        };
        second.store(word(from, device), Ordering::Relaxed);
        let mtu = |hop: Hop| u16::try_from(hop.mtu).unwrap_or(u16::MAX);
        first.store(to.map_or(0, |hop| word(hop.mac, mtu(hop))), Ordering::Release);
    }

    /// A session's rules are about to change.
    pub(crate) fn recall(&self, index: u32) {
        if let Some(entry) = self.sessions.get(index as usize) {
            entry.recall();
        }
    }

    /// The pool that has an address, and where its UEs begin.
    fn pool_of(&self, dn: DnIndex, ue: IpAddr) -> Option<(&UeAddressPool, u32)> {
        let of = |(pool, network, _): &&(UeAddressPool, DnIndex, u32)| *network == dn && pool.contains(ue);
        self.pools.iter().find(of).map(|(pool, _, first)| (pool, *first))
    }

    /// What all processors have counted at a place.
    fn sum(&self, slot: usize) -> u64 {
        self.counters.iter().map(|c| c[slot].load(Ordering::Relaxed)).sum()
    }

    /// Packets that programs forwarded, uplink and downlink, and those that they had no room for.
    pub(crate) fn forwarded(&self) -> [u64; 3] {
        [slot::UL_PACKETS, slot::DL_PACKETS, slot::NO_ROOM].map(|slot| self.sum(slot))
    }
}

/// Processors that there may ever be: the kernel's list ends with the last.
fn possible_processors() -> Option<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let last = list.trim().rsplit([',', '-']).next()?.parse::<u32>().ok()?;
    last.checked_add(1)
}

/// The pipeline's side.
pub(crate) struct XdpFastPath {
    pub(crate) memory: Arc<FastPathMemory>,
    pub(crate) settles_in: Duration,
}

impl XdpFastPath {
    pub(crate) fn new(memory: Arc<FastPathMemory>) -> Self {
        Self { memory, settles_in: SETTLES_IN }
    }
}

impl FastPath for XdpFastPath {
    fn entries(&self) -> &[FastEntry] {
        &self.memory.sessions
    }

    fn ipv4(&self, dn: DnIndex, ue: Ipv4Addr) -> Option<&AtomicU64> {
        let (pool, first) = self.memory.pool_of(dn, ue.into())?;
        let IpAddr::V4(pool) = pool.first else { return None };
        self.memory.ues.get((ue.to_bits() - pool.to_bits() + first) as usize)
    }

    fn prefix(&self, dn: DnIndex, ue: u64) -> Option<&AtomicU64> {
        let (pool, first) = self.memory.pool_of(dn, Ipv6Addr::from_bits(u128::from(ue) << 64).into())?;
        let IpAddr::V6(pool) = pool.first else { return None };
        let number = ue - (pool.to_bits() >> 64) as u64 + u64::from(first);
        self.memory.prefixes.get(usize::try_from(number).ok()?)
    }

    fn hops(&mut self, dn: DnIndex, gnb: Ipv4Addr) -> Option<(u16, u16, u16)> {
        if !self.memory.networks.contains(&dn) {
            return None;
        }
        let mut gnbs = self.memory.gnbs.lock().unwrap_or_else(PoisonError::into_inner);
        let next = gnbs.len();
        let number = match gnbs.get(&gnb) {
            Some(&number) => number,
            None if next < GNBS_MAX => {
                let number = (DATA_NETWORKS_MAX + next) as u16;
                gnbs.insert(gnb, number);
                number
            }
            None => return None,
        };
        Some((number, dn.0.into(), FastPathMemory::ipv6_hop(dn)))
    }

    fn leads(&self, (gnb, network): (u16, u16)) -> bool {
        let known = |number: u16| {
            let hop = self.memory.hops.get(usize::from(number));
            hop.is_some_and(|[to, _]| to.load(Ordering::Relaxed) != 0)
        };
        known(gnb) && known(network)
    }

    fn suspects(&self) -> &[AtomicU64; DestinationFilter::WORDS] {
        &self.memory.suspects[0]
    }

    fn counted(&self) -> FastPathCounters {
        let sum = |slot| self.memory.sum(slot);
        let mut counted = FastPathCounters {
            ul_packets: sum(slot::UL_PACKETS),
            ul_octets: sum(slot::UL_OCTETS),
            dl_packets: sum(slot::DL_PACKETS),
            dl_octets: sum(slot::DL_OCTETS),
            ..FastPathCounters::default()
        };
        for (i, reason) in DROPS.into_iter().enumerate() {
            counted.dropped[reason as usize] = sum(slot::UL_DROPPED + i) + sum(slot::DL_DROPPED + i);
        }
        counted
    }

    fn settles_in(&self) -> Duration {
        self.settles_in
    }
}
