//! Homes and UPFs, and their configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::amf::PeerAmfId;
use whimbrel_control::config::{self, Config};
use whimbrel_control::udm::Directory;
use whimbrel_control::{Prf, RestVec, UeId};
use whimbrel_ids::{AmfId, Instant, Tac};
use whimbrel_ran::gnb::AmfIndex;
use whimbrel_resilience::{Cta, PeerReplicas};
use whimbrel_security::HomeNetworkKeys;
use whimbrel_user::{Ipv4Net, Upf};

use super::{SitesFault, SitesPlan};
use crate::{EPOCH, SimSubscribers, default_config, upf_config};

/// When a UE without an input rests: `memory.rest_after` of the product.
const REST_AFTER: Duration = Duration::from_secs(2);

/// A home, with what it has of other homes.
pub(super) struct SimHome {
    pub(super) cta: Cta<SimSubscribers, (Prf, u64)>,
    pub(super) replicas: PeerReplicas,
    pub(super) site: u8,
    pointer: u8,
    /// The home that holds its replicas.
    pub(super) partner: usize,
    pub(super) is_there: bool,
    pub(super) lost_since: Option<Instant>,
    /// Its partner has connected, and gets all.
    pub(super) replicates_all: bool,
    /// The homes by their numbers as its peers, and the other way round.
    homes: Vec<usize>,
    peers: Vec<PeerAmfId>,
}

impl SimHome {
    /// Its number at the gNBs of its site.
    pub(super) fn amf_index(&self) -> AmfIndex {
        AmfIndex(self.pointer)
    }

    /// Its address on N4.
    pub(super) fn n4(&self) -> SocketAddr {
        SocketAddr::new(n4(self.site, self.pointer), 8805)
    }

    pub(super) fn peer(&self, home: usize) -> PeerAmfId {
        self.peers[home]
    }

    pub(super) fn home_of(&self, peer: PeerAmfId) -> usize {
        self.homes[usize::from(peer.0)]
    }
}

fn n4(site: u8, pointer: u8) -> IpAddr {
    Ipv4Addr::new(127, 1, site, pointer + 1).into()
}

fn upf_address(site: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 2, site, 1)
}

/// The tracking area of a district: paging and registration areas have the same size, however many districts a site has.
pub(super) fn tac(plan: &SitesPlan, site: u8, district: u16) -> Tac {
    Tac::new(1 + u32::from(site) * u32::from(plan.districts) + u32::from(district)).expect("24 bits")
}

fn tacs(plan: &SitesPlan, site: u8) -> Vec<Tac> {
    (0..plan.districts).map(|district| tac(plan, site, district)).collect()
}

/// All homes, by site and pointer.
pub(super) fn all(plan: &SitesPlan) -> Vec<SimHome> {
    (0..usize::from(plan.sites) * usize::from(plan.homes)).map(|at| home(plan, at)).collect()
}

/// A home without UEs.
pub(super) fn home(plan: &SitesPlan, at: usize) -> SimHome {
    let per_site = usize::from(plan.homes);
    let (site, pointer) = ((at / per_site) as u8, (at % per_site) as u8);
    let homes = peers(plan, site, pointer);
    let mut numbers = vec![PeerAmfId(u8::MAX); homes.len() + 1];
    (0..).zip(&homes).for_each(|(n, home)| numbers[*home] = PeerAmfId(n));
    // Each home holds the replicas of one other: two and two, and the last of an odd number beside them.
    let partner = match pointer ^ 1 {
        other if other < plan.homes => at - usize::from(pointer) + usize::from(other),
        _ => at - 1,
    };
    let config = Arc::new(config(plan, (site, pointer), &homes));
    let replicated = |home: usize| match plan.replicas && home == partner {
        true => UeId::SLOTS as usize,
        false => 0,
    };
    let peers = (0u8..).map(PeerAmfId).zip(&homes).zip(&config.amf.peer_amfs);
    let peers = peers.map(|((id, home), peer)| (id, peer.amf_id, replicated(*home)));
    let replicas = PeerReplicas::new(peers, config.smf.upfs.iter().map(|upf| upf.address).collect());
    let directory = Directory::new(config.amf.plmn, HomeNetworkKeys::new());
    let mut key = [0x5e; 16];
    key[..8].copy_from_slice(&(plan.seed ^ (at as u64) << 32).to_be_bytes());
    let subscribers = SimSubscribers::default();
    let mut cta = Cta::new(config, directory, subscribers, (Prf::new(&key), 0), (), EPOCH);
    if let Some(cpf) = cta.cpf_mut() {
        cpf.set_rest_store(Box::new(RestVec::default()), REST_AFTER);
    }
    SimHome {
        cta,
        replicas,
        site,
        pointer,
        partner,
        is_there: true,
        lost_since: None,
        replicates_all: false,
        homes,
        peers: numbers,
    }
}

/// The peers of a home in the order of its configuration: those of its own site, and of each other site first those that are there all the time, from
/// another one on at each home, so that UEs that are handed over are spread over them.
fn peers(plan: &SitesPlan, site: u8, pointer: u8) -> Vec<usize> {
    let at = |site: u8, pointer: u8| usize::from(site) * usize::from(plan.homes) + usize::from(pointer);
    let own = (0..plan.homes).filter(|other| *other != pointer).map(|other| at(site, other));
    let steady = plan.homes - 1;
    let others = (0..plan.sites).filter(|other| *other != site).flat_map(|other| {
        let first = (0..steady).map(move |n| (pointer + n) % steady);
        first.chain([steady]).map(move |pointer| at(other, pointer))
    });
    own.chain(others).collect()
}

fn amf_id(site: u8, pointer: u8) -> AmfId {
    AmfId::new(2, u16::from(site) + 1, pointer).expect("within its bits")
}

fn config(plan: &SitesPlan, (site, pointer): (u8, u8), peers: &[usize]) -> Config {
    let mut config = default_config();
    let per_site = usize::from(plan.homes);
    let place = |home: usize| ((home / per_site) as u8, (home % per_site) as u8);
    let name = |(site, pointer): (u8, u8)| format!("site-{site}-home-{pointer}");
    config.amf.name = name((site, pointer));
    config.amf.amf_id = amf_id(site, pointer);
    config.amf.tacs = tacs(plan, site);
    config.amf.areas.registration = tacs(plan, site).into_iter().map(|tac| vec![tac]).collect();
    let peer = |&home: &usize| {
        let at = place(home);
        let tacs = if at.0 == site { Vec::new() } else { tacs(plan, at.0) };
        config::PeerAmf { name: name(at), amf_id: amf_id(at.0, at.1), tacs }
    };
    config.amf.peer_amfs = peers.iter().map(peer).collect();
    config.smf.node_id = n4(site, pointer);
    config.smf.set_id = Some(format!("set{}.smfset.5gc.mnc070.mcc999.3gppnetwork.org", site + 1));
    let of_site = |n: u8| config::Upf {
        name: format!("upf-{n}"),
        address: Some(upf_address(n).into()),
        priority: if n == site { 1 } else { 2 },
        ..config::Upf::default()
    };
    config.smf.upfs = (0..plan.sites).map(of_site).collect();
    config.limits.ran_nodes = plan.gnbs() + 1;
    config.limits.ran_nodes_waiting = plan.gnbs() + 1;
    config.limits.ues = UeId::SLOTS;
    config
}

/// The UPF of a site.
pub(super) fn upf(plan: &SitesPlan, site: u8) -> Upf {
    let mut config = upf_config(plan.seed ^ u64::from(site));
    let address = upf_address(site);
    config.node_id = IpAddr::V4(address).into();
    (config.n4, config.n3_ipv4) = (address.into(), Some(address));
    config.sessions_max = whimbrel_user::SESSIONS_MAX.min((plan.ues + 1).next_power_of_two().max(1 << 10));
    config.data_networks.truncate(1);
    let of = if plan.fault == Some(SitesFault::OverlappingPools) { 0 } else { site };
    config.data_networks[0].ipv4_pools = vec![Ipv4Net { address: pool(of), prefix: 12 }];
    config.data_networks[0].ipv6_pools.clear();
    Upf::new(config, EPOCH).expect("a configuration that holds")
}

/// The addresses of a site's UEs.
fn pool(site: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 16 * site, 0, 0)
}

/// The UPF whose pool an address is of.
pub(super) fn upf_of(address: Ipv4Addr) -> usize {
    usize::from(address.octets()[1] / 16)
}
