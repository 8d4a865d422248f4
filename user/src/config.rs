//! What an operator says of a UPF.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::ops::Range;
use std::time::Duration;

use whimbrel_ids::{Dnn, SNssai};
use whimbrel_pfcp::ie::NodeId;

use crate::applications::{ApplicationError, Applications};
use crate::buffering::{Buffering, BufferingError};
use crate::firewall::Firewall;
use crate::isolation::{IpNetwork, Isolation};
use crate::limits::{
    DATA_NETWORKS_MAX, FIREWALL_RULES_MAX, FLOWS_MAX, FLOWS_REMEMBERED_MAX, NAT_ADDRESSES_MAX,
    POOL_ADDRESSES_MAX, POOLS_PER_NETWORK_MAX, SESSIONS_MAX, SHARDS_MAX, SLICES_MAX,
};
use crate::session_id::Teids;

/// A data network's place in [`Config::data_networks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnIndex(pub u8);

/// An IPv4 network: every address whose first `prefix` bits are those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Net {
    /// Any address of it.
    pub address: Ipv4Addr,
    /// 0 to 32.
    pub prefix: u8,
}

impl Ipv4Net {
    /// The first address.
    pub const fn first(self) -> u32 {
        let mask = if self.prefix == 0 {
            0
        } else {
            u32::MAX << (32 - if self.prefix > 32 { 32 } else { self.prefix })
        };
        self.address.to_bits() & mask
    }

    /// The first host address of it, which the UPF's own side takes.
    pub const fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first().wrapping_add(1))
    }

    /// How many addresses it has.
    pub(crate) const fn numbers(self) -> u64 {
        1 << (32 - if self.prefix > 32 { 32 } else { self.prefix })
    }
}

/// An IPv6 network out of which UEs get prefixes of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Net {
    /// Any address of it.
    pub address: Ipv6Addr,
    /// 0 to 64.
    pub prefix: u8,
}

impl Ipv6Net {
    /// The first prefix, as the upper 64 bits.
    pub const fn first(self) -> u64 {
        let mask = if self.prefix == 0 {
            0
        } else {
            u64::MAX << (64 - if self.prefix > 64 { 64 } else { self.prefix })
        };
        (self.address.to_bits() >> 64) as u64 & mask
    }

    /// The address of the UPF's own side: in the first prefix, which no UE gets.
    pub const fn gateway(self) -> Ipv6Addr {
        Ipv6Addr::from_bits((self.first() as u128) << 64 | 1)
    }

    /// How many prefixes it has; all at most but one of the longest pool.
    pub(crate) const fn numbers(self) -> u64 {
        let bits = if self.prefix > 64 { 64 } else { self.prefix };
        1 << (64 - if bits == 0 { 1 } else { bits })
    }
}

/// A data network that sessions reach through this UPF.
#[derive(Clone, Debug)]
pub struct DataNetwork {
    /// Its name: matched with the Network Instance, or the APN/DNN, of a session.
    pub dnn: Dnn,
    /// Pools of UEs' IPv4 addresses. The first, second (gateway) and last address of each stay unused.
    pub ipv4_pools: Vec<Ipv4Net>,
    /// Pools of UEs' IPv6 prefixes. The first prefix of each stays unused (gateway).
    pub ipv6_pools: Vec<Ipv6Net>,
    /// Pools for some sessions of it alone.
    pub reserved: Vec<ReservedPools>,
    /// IPv6 resolvers that router advertisements announce (RFC 8106).
    pub dns_ipv6: Vec<Ipv6Addr>,
    /// Link MTU that router advertisements announce, octets.
    pub mtu: u16,
    /// Whether sessions of Ethernet frames reach it too: as [`crate::Origin::Frames`] and [`crate::Destination::Frames`].
    pub ethernet: bool,
    /// Where unstructured sessions go, if there may be any. They take prefixes of the IPv6 pools.
    pub unstructured: Option<PointToPoint>,
    /// What stands between it and UEs of IP sessions, if anything.
    pub firewall: Option<Firewall>,
}

/// Pools of which only some sessions of a data network get addresses: those of a slice, or those for which the SMF names
/// the pool, as it may by area (TS 23.501 §5.8.2.2.1, TS 29.244 §5.21.3). Sessions for which there is none of a family
/// get theirs from the network's own pools.
#[derive(Clone, Debug, Default)]
pub struct ReservedPools {
    /// Its name (UE IP Address Pool Identity).
    pub name: Option<Box<str>>,
    /// Slices whose sessions get their addresses here.
    pub slices: Vec<SNssai>,
    /// As of [`DataNetwork`].
    pub ipv4_pools: Vec<Ipv4Net>,
    /// As of [`DataNetwork`].
    pub ipv6_pools: Vec<Ipv6Net>,
}

/// The tunnel of unstructured sessions in their data network: UDP over IPv6 (TS 23.501 §5.6.10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointToPoint {
    /// The application server.
    pub peer: SocketAddrV6,
    /// The UPF's own port, at the first address of each session's prefix.
    pub port: u16,
}

impl DataNetwork {
    /// A network of IP sessions without addresses yet, of the MTU of an Ethernet link.
    pub const fn new(dnn: Dnn) -> Self {
        Self {
            dnn,
            ipv4_pools: Vec::new(),
            ipv6_pools: Vec::new(),
            reserved: Vec::new(),
            dns_ipv6: Vec::new(),
            mtu: 1500,
            ethernet: false,
            unstructured: None,
            firewall: None,
        }
    }

    /// The addresses that its UEs are translated to.
    pub fn nat_pools(&self) -> impl Iterator<Item = Ipv4Net> {
        self.firewall.iter().flat_map(|f| &f.nat).flat_map(|n| &n.pools).copied()
    }

    /// Whether its firewall, if it has one, can be built. Errors: the first contradiction.
    fn check_firewall(&self) -> Result<(), FirewallError> {
        let Some(f) = &self.firewall else { return Ok(()) };
        let conditions: usize = f.rules.iter().map(|r| r.conditions(Default::default()).count()).sum();
        if conditions > FIREWALL_RULES_MAX {
            return Err(FirewallError::Rules { given: conditions });
        }
        if !(1..=FLOWS_MAX).contains(&f.flows_max) || f.flows_per_ue == 0 {
            return Err(FirewallError::Flows);
        }
        let Some(nat) = &f.nat else { return Ok(()) };
        if nat.pools.is_empty()
            || nat.addresses() > NAT_ADDRESSES_MAX
            || nat.pools.iter().any(|p| p.prefix > 32)
        {
            return Err(FirewallError::NatPool);
        }
        if nat.ports_per_ue == 0 {
            return Err(FirewallError::NatPorts);
        }
        let meet = |a: Ipv4Net, b: Ipv4Net| {
            let shorter = if a.prefix < b.prefix { a.prefix } else { b.prefix };
            let first = |n: Ipv4Net| Ipv4Net { prefix: shorter, ..n }.first();
            first(a) == first(b)
        };
        match nat.pools.iter().find(|n| self.all_ipv4_pools().any(|p| meet(**n, p))) {
            Some(_) => Err(FirewallError::NatOfUes),
            None => Ok(()),
        }
    }

    /// All IPv4 pools: its own, then the reserved ones in their order.
    pub fn all_ipv4_pools(&self) -> impl Iterator<Item = Ipv4Net> {
        self.ipv4_pools.iter().chain(self.reserved.iter().flat_map(|r| &r.ipv4_pools)).copied()
    }

    /// All IPv6 pools, likewise.
    pub fn all_ipv6_pools(&self) -> impl Iterator<Item = Ipv6Net> {
        self.ipv6_pools.iter().chain(self.reserved.iter().flat_map(|r| &r.ipv6_pools)).copied()
    }

    /// Which of [`Self::reserved`] a session is for: the one that its SMF names, else that of its slice.
    pub(crate) fn reserved_for(&self, name: Option<&str>, slice: Option<SNssai>) -> Option<usize> {
        let named = |r: &ReservedPools| name.is_some() && r.name.as_deref() == name;
        let of_slice = |r: &ReservedPools| slice.is_some_and(|s| r.slices.contains(&s));
        self.reserved.iter().position(named).or_else(|| self.reserved.iter().position(of_slice))
    }

    /// Places in [`Self::all_ipv4_pools`] of the pools for a session.
    pub(crate) fn ipv4_range(&self, reserved: Option<usize>) -> Range<usize> {
        range(self.ipv4_pools.len(), self.reserved.iter().map(|r| r.ipv4_pools.len()), reserved)
    }

    /// Places in [`Self::all_ipv6_pools`] of the pools for a session.
    pub(crate) fn ipv6_range(&self, reserved: Option<usize>) -> Range<usize> {
        range(self.ipv6_pools.len(), self.reserved.iter().map(|r| r.ipv6_pools.len()), reserved)
    }
}

/// The places of a reservation's pools behind the `own` ones; those of the own where it has none.
fn range(own: usize, mut lens: impl Iterator<Item = usize> + Clone, reserved: Option<usize>) -> Range<usize> {
    let Some(at) = reserved else { return 0..own };
    let start = own + lens.clone().take(at).sum::<usize>();
    match lens.nth(at) {
        Some(len) if len > 0 => start..start + len,
        _ => 0..own,
    }
}

/// What an operator says of a UPF, and the randomness that it may use.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name towards SMFs.
    pub node_id: NodeId,
    /// Its N4 address, which its F-SEIDs carry.
    pub n4: IpAddr,
    /// Its IPv4 address on N3 and N9.
    pub n3_ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address on N3 and N9.
    pub n3_ipv6: Option<Ipv6Addr>,
    /// The networks behind it.
    pub data_networks: Vec<DataNetwork>,
    /// What flows may be guaranteed, all sessions together; `None`: whatever SMFs ask for.
    pub guaranteed: Option<GuaranteedRates>,
    /// Slices whose sessions together have a rate, up to [`SLICES_MAX`].
    pub slices: Vec<SliceRate>,
    /// Sessions at most, up to [`SESSIONS_MAX`].
    pub sessions_max: u32,
    /// Packet pipelines that share the sessions, each to be driven by a thread of its own: 1, 2, 4, 8 or 16 ([`SHARDS_MAX`]).
    pub shards: u8,
    /// Time between heartbeats to each SMF; `None` sends none. 60 s is what TS 23.527 §4 implementations use.
    pub heartbeat_interval: Option<Duration>,
    /// How long the sessions of an SMF are kept that answers no heartbeat (TS 23.527 §4.4).
    pub path_failure: Duration,
    /// Time between echo requests to each gNB and UPF; `None` sends none.
    pub echo_interval: Option<Duration>,
    /// Applications that rules may name.
    pub applications: Applications,
    /// What waits for UEs, at most.
    pub buffering: Buffering,
    /// What UEs do not reach, and whose GTP-U is taken.
    pub isolation: Isolation,
    /// Flows of sessions with filters whose rule is remembered in a core's second cache, those used last; all pipelines together.
    pub flows_first: u32,
    /// The same in memory, 66 octets each, taken when they are first used; with none, filters are asked for each packet.
    pub flows_second: u32,
    /// SMFs allocate the F-TEIDs of their sessions, as TS 29.244 §5.5.2 of release 15 has it, and the UPF allocates none.
    ///
    /// Deviation: from release 16 on the UPF alone allocates them (TS 29.244 §5.5.1). Some SMFs have stayed with the former way.
    pub smf_f_teids: bool,
    /// Port to which requests of the UPF go: 8805 (TS 29.244 §6.5.2).
    pub cp_port: u16,
    /// Random, secret: TEIDs and SEIDs are drawn from it.
    pub seed: u64,
}

/// What the sessions of a slice may send together through this UPF (the throughput of a slice in GSMA NG.116).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRate {
    /// The slice, as SMFs name it.
    pub slice: SNssai,
    /// From UEs, kbit/s.
    pub ul_kbps: u64,
    /// To UEs, kbit/s.
    pub dl_kbps: u64,
}

/// What this UPF and its links can keep of promises to flows of guaranteed rate (TS 23.501 §5.7.2.5): a rule that promises more is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuaranteedRates {
    /// From UEs, kbit/s.
    pub ul_kbps: u64,
    /// To UEs, kbit/s.
    pub dl_kbps: u64,
}

/// What is wrong with a configuration, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There is no address for N3.
    NoN3Address,
    /// There is no data network, or more than the bound.
    DataNetworks {
        /// How many there are.
        given: usize,
    },
    /// Two networks have one name.
    DuplicateDnn(Dnn),
    /// A prefix length that its family does not have, or more than 64 for IPv6.
    Prefix {
        /// Data network with the wrong prefix.
        dnn: Dnn,
        /// The length given.
        prefix: u8,
    },
    /// More pools than the bound.
    Pools {
        /// Data network with the wrong pools.
        dnn: Dnn,
    },
    /// Sessions beyond the bound, or none.
    Sessions {
        /// How many were asked for.
        given: u32,
    },
    /// Not a number of pipelines that there can be.
    Shards {
        /// How many were asked for.
        given: u8,
    },
    /// More slices with a rate than the bound.
    Slices {
        /// How many there are.
        given: usize,
    },
    /// A slice has two rates, or one of zero.
    SliceRate(SNssai),
    /// More flows to be remembered than the bound.
    Flows {
        /// How many were asked for.
        given: u32,
    },
    /// A bound of what waits for UEs that is zero or too high.
    Buffering(BufferingError),
    /// Definitions of applications that cannot be used.
    Applications(ApplicationError),
    /// Echo requests more often than once in 60 s (TS 29.281 §7.2.1).
    EchoInterval(Duration),
    /// A firewall cannot be built.
    Firewall {
        /// Data network with the wrong firewall.
        dnn: Dnn,
        /// The fault in its firewall.
        why: FirewallError,
    },
    /// An MTU below the least that IPv6 permits (RFC 8200 §5), or above what a packet buffer holds.
    Mtu {
        /// Data network with the wrong MTU.
        dnn: Dnn,
        /// The MTU given.
        mtu: u16,
    },
}

/// What is wrong with a firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirewallError {
    /// More rules, each range of ports counted, than the bound.
    Rules {
        /// How many there are.
        given: usize,
    },
    /// No room for flows, or for more than the bound.
    Flows,
    /// No addresses to translate to, or more than the bound.
    NatPool,
    /// No ports for a UE.
    NatPorts,
    /// Addresses to translate to that UEs have themselves.
    NatOfUes,
}

impl fmt::Display for FirewallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules { given } => {
                write!(f, "{given} rules and ranges of ports: give at most {FIREWALL_RULES_MAX}")
            }
            Self::Flows => write!(f, "it has no room for flows, or too much: give 1 to {FLOWS_MAX}"),
            Self::NatPool => write!(f, "UEs are translated to 1 to {NAT_ADDRESSES_MAX} addresses"),
            Self::NatPorts => write!(f, "a UE has no port to be translated to"),
            Self::NatOfUes => write!(f, "the addresses that UEs are translated to are UEs' own"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoN3Address => {
                write!(f, "the UPF has no N3 address: give an IPv4 or IPv6 address that gNBs reach")
            }
            Self::DataNetworks { given } => {
                write!(f, "the UPF has {given} data networks: give 1 to {DATA_NETWORKS_MAX}")
            }
            Self::DuplicateDnn(dnn) => write!(f, "the data network {dnn} is configured twice: remove one"),
            Self::Prefix { dnn, prefix } => write!(
                f,
                "a pool of {dnn} has a prefix of {prefix} bits: IPv4 pools have 8 to 30, IPv6 pools up to 63"
            ),
            Self::Pools { dnn } => {
                write!(f, "{dnn} has more than {POOLS_PER_NETWORK_MAX} pools of one family")
            }
            Self::Sessions { given } => {
                write!(f, "the UPF is to hold {given} sessions: give 1 to {}", SESSIONS_MAX - 1)
            }
            Self::Shards { given } => {
                write!(f, "the UPF is to have {given} packet threads: give 1, 2, 4, 8 or {SHARDS_MAX}")
            }
            Self::Slices { given } => write!(f, "{given} slices have a rate: give at most {SLICES_MAX}"),
            Self::SliceRate(slice) => {
                write!(f, "the rate of slice {slice} is given twice, or is zero: give one, above zero")
            }
            Self::Flows { given } => {
                write!(
                    f,
                    "the rules of {given} flows are to be remembered: give at most {FLOWS_REMEMBERED_MAX}"
                )
            }
            Self::Buffering(BufferingError { bound, most }) => {
                write!(f, "the bound `{bound}` of what waits for ues: give 1 to {most}")
            }
            Self::Applications(wrong) => wrong.fmt(f),
            Self::EchoInterval(given) => {
                write!(f, "gNBs are to be asked for an echo every {given:?}: once in 60 s is the most often")
            }
            Self::Firewall { dnn, why } => write!(f, "the firewall of {dnn}: {why}"),
            Self::Mtu { dnn, mtu } => {
                write!(f, "the MTU of {dnn} is {mtu}: give 1280 to {}", Config::MTU_MAX)
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// The largest link MTU: jumbo frames' 9,000 less outer headers.
    pub const MTU_MAX: u16 = 8_940;
    /// Time between heartbeats by default.
    pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(60);
    /// How long a silent SMF's sessions are kept by default: time to restart an SMF by hand.
    pub const PATH_FAILURE: Duration = Duration::from_secs(600);
    /// Time between echo requests by default: no path is to be asked more often (TS 29.281 §7.2.1).
    pub const ECHO_INTERVAL: Duration = Duration::from_secs(60);
    /// Half a megabyte: a quarter of the second cache of a server's core.
    pub const FLOWS_FIRST: u32 = 8_192;
    /// As many as a firewall has: sixteen megabytes.
    pub const FLOWS_SECOND: u32 = 262_144;
    /// The port of PFCP (TS 29.244 §6.5.2).
    pub const PFCP_PORT: u16 = 8805;

    /// Judges it as a whole. Errors: the first contradiction.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.n3_ipv4.is_none() && self.n3_ipv6.is_none() {
            return Err(ConfigError::NoN3Address);
        }
        let given = self.data_networks.len();
        if given == 0 || given > DATA_NETWORKS_MAX {
            return Err(ConfigError::DataNetworks { given });
        }
        if self.sessions_max == 0 || self.sessions_max >= SESSIONS_MAX {
            return Err(ConfigError::Sessions { given: self.sessions_max });
        }
        if !self.shards.is_power_of_two() || self.shards > SHARDS_MAX {
            return Err(ConfigError::Shards { given: self.shards });
        }
        if self.slices.len() > SLICES_MAX {
            return Err(ConfigError::Slices { given: self.slices.len() });
        }
        for (i, s) in self.slices.iter().enumerate() {
            if s.ul_kbps == 0 || s.dl_kbps == 0 || self.slices[..i].iter().any(|o| o.slice == s.slice) {
                return Err(ConfigError::SliceRate(s.slice));
            }
        }
        self.buffering.check().map_err(ConfigError::Buffering)?;
        self.applications.check().map_err(ConfigError::Applications)?;
        let given = self.flows_first.max(self.flows_second);
        if given > FLOWS_REMEMBERED_MAX {
            return Err(ConfigError::Flows { given });
        }
        if let Some(given) = self.echo_interval.filter(|i| *i < Self::ECHO_INTERVAL) {
            return Err(ConfigError::EchoInterval(given));
        }
        for (i, dn) in self.data_networks.iter().enumerate() {
            let dnn = || dn.dnn.clone();
            if self.data_networks[..i].iter().any(|o| o.dnn == dn.dnn) {
                return Err(ConfigError::DuplicateDnn(dnn()));
            }
            let (ipv4, ipv6) = (dn.all_ipv4_pools().count(), dn.all_ipv6_pools().count());
            if ipv4 > POOLS_PER_NETWORK_MAX || ipv6 > POOLS_PER_NETWORK_MAX {
                return Err(ConfigError::Pools { dnn: dnn() });
            }
            let v4 = dn.all_ipv4_pools().map(|p| p.prefix).find(|p| !(8..=30).contains(p));
            let v6 = dn.all_ipv6_pools().map(|p| p.prefix).find(|p| !(1..=63).contains(p));
            if let Some(prefix) = v4.or(v6) {
                return Err(ConfigError::Prefix { dnn: dnn(), prefix });
            }
            dn.check_firewall().map_err(|why| ConfigError::Firewall { dnn: dnn(), why })?;
            if !(1280..=Self::MTU_MAX).contains(&dn.mtu) {
                return Err(ConfigError::Mtu { dnn: dnn(), mtu: dn.mtu });
            }
        }
        Ok(())
    }

    /// Whether an address is one of a UE.
    pub(crate) fn has_pool_of(&self, address: IpAddr) -> bool {
        let network = |address: IpAddr, prefix| IpNetwork { address, prefix };
        self.data_networks.iter().any(|d| {
            let ipv4 = d.all_ipv4_pools().chain(d.nat_pools()).map(|p| network(p.address.into(), p.prefix));
            let ipv6 = d.all_ipv6_pools().map(|p| network(p.address.into(), p.prefix));
            ipv4.chain(ipv6).any(|n| n.contains(address))
        })
    }

    /// How its TEIDs lead to sessions.
    pub fn teids(&self) -> Teids {
        Teids::new(self.sessions_max, self.seed)
    }

    /// The place of a session's slice among those that have a rate.
    pub(crate) fn slice_rate(&self, slice: Option<SNssai>) -> Option<u8> {
        let at = self.slices.iter().position(|s| Some(s.slice) == slice)?;
        u8::try_from(at).ok()
    }

    /// The network of a name: its DNN, or the DNN with an operator identifier behind it (TS 23.003 §9.1.2).
    pub fn data_network(&self, name: &str) -> Option<DnIndex> {
        let is = |dnn: &str| match name.strip_prefix(dnn) {
            Some(rest) => rest.is_empty() || rest.starts_with(".mnc"),
            None => false,
        };
        self.data_networks.iter().position(|d| is(d.dnn.as_str())).map(|i| DnIndex(i as u8))
    }
}

const _: () = assert!(DATA_NETWORKS_MAX < 256 && POOL_ADDRESSES_MAX <= 1 << 24);
