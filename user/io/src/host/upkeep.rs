//! Keeps what the program has set up on its host: when another program deletes a device, takes it down, removes an address, a route or the table of nftables,
//! it is put back. What belongs to others is left as it is, and named with the command that changes it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use whimbrel_user::{DataNetwork, IpNetwork};

use super::forwarding::{self, NamedDevice, rules_of};
use super::links::{HostLinks, overlap};
use super::nat::{self, Nat};
use super::{link, set_up, set_up_frames};
use crate::config::{Config, FramesDevice};
use crate::error::StartError;
use crate::ports::descriptors::steer;
use crate::sys::event::Event;
use crate::sys::netlink::Netlink;
use crate::sys::poll;
use crate::sys::tun::{DeviceKind, Tun};

/// Time between two looks when the kernel reports no change: of what it does not report.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long changes may follow each other before they are looked at together: a firewall's restart makes hundreds.
const TOGETHER: Duration = Duration::from_millis(50);
/// The same where they go on, as on a router or in a cluster whose rules change all the time.
const TOGETHER_IF_MANY: Duration = Duration::from_millis(500);
/// Changes are many if they come within this time of the last look.
const MANY_WITHIN: Duration = Duration::from_millis(200);
/// Repairs within [`LOOK_EVERY`], after which the next look waits for so long: another program undoes each.
const REPAIRS_MAX: usize = 10;
/// Lines for the log that wait to be taken.
const EVENTS_MAX: usize = 64;

/// The kernel's reports of interfaces, addresses, and forwarding that is switched on or off (RTNLGRP_IPV4_NETCONF, _IPV6_NETCONF).
const ROUTE_GROUPS: u32 =
    (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32 | 1 << 23 | 1 << 24;
/// The kernel's reports of IPv4 routes, of which a router has many.
const ROUTES_GROUP: u32 = libc::RTMGRP_IPV4_ROUTE as u32;
/// The kernel's reports of changes to nftables (NFNLGRP_NFTABLES).
const NFTABLES_GROUP: u32 = 1 << 6;

/// Something on this host that keeps packets from UEs, or from where they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostProblem {
    /// A device or a table is gone or changed, and cannot be put back.
    NotPutBack {
        /// Change that another program made.
        change: String,
        /// The system's reason.
        error: String,
    },
    /// Forwarding between interfaces is off.
    ForwardingOff {
        /// The kernel's setting.
        setting: &'static str,
    },
    /// A chain drops what no rule of it permits, and none names the device of UEs.
    Dropped {
        /// Family of nftables.
        family: u8,
        /// Table that the chain is in.
        table: String,
        /// Name of the chain that drops.
        chain: String,
        /// The device of UEs.
        device: String,
    },
    /// A pool of UE addresses overlaps a network of this host.
    PoolOverlaps {
        /// The data network.
        dnn: String,
        /// Address pool of the data network.
        pool: IpNetwork,
        /// Interface of this host whose network overlaps the pool.
        interface: String,
        /// Network of that interface.
        network: IpNetwork,
    },
    /// No interface has an address of N3 any more.
    NoN3Address(IpAddr),
}

impl fmt::Display for HostProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPutBack { change, error } => write!(
                f,
                "{change} by another program, and putting it back failed ({error}), so UEs of it have no data network; fix: restart \
                 Whimbrel"
            ),
            Self::ForwardingOff { setting } => write!(
                f,
                "{setting} is 0, by another program or because this one may not set it, so UEs reach this host but nothing beyond it; fix: \
                 `sysctl -w {setting}=1`, for a container on its host"
            ),
            Self::Dropped { family, table, chain, device } => {
                let family_name = match *family {
                    nat::nft::FAMILY_IPV4 => "ip",
                    nat::nft::FAMILY_IPV6 => "ip6",
                    _ => "inet",
                };
                let of_iptables =
                    (table.as_str(), chain.as_str()) == ("filter", "FORWARD") && family_name != "inet";
                let permit = |direction: &str| match (of_iptables, direction) {
                    (true, "iifname") => {
                        format!("{}tables -I FORWARD -i {device} -j ACCEPT", family_name)
                    }
                    (true, _) => format!("{}tables -I FORWARD -o {device} -j ACCEPT", family_name),
                    (false, _) => {
                        format!("nft insert rule {family_name} {table} {chain} {direction} {device} accept")
                    }
                };
                write!(
                    f,
                    "the chain {chain} of the nftables table {family_name} {table} drops what it does not permit, and no rule there names \
                     {device}, so UEs reach this host but nothing beyond it; fix: `{} && {}`",
                    permit("iifname"),
                    permit("oifname")
                )
            }
            Self::PoolOverlaps { dnn, pool, interface, network } => write!(
                f,
                "the pool {}/{} of `{dnn}` overlaps {}/{}, the network of {interface}, so that hosts there, gNBs among them, cannot be \
                 answered; fix: choose another pool",
                pool.address, pool.prefix, network.address, network.prefix
            ),
            Self::NoN3Address(address) => write!(
                f,
                "no interface of this host has N3's address {address} any more, so gNBs cannot send packets; fix: `ip address add {address} \
                 dev INTERFACE`"
            ),
        }
    }
}

/// A pool of UEs that is a network of this host, too; devices of this configuration aside.
fn overlapping(networks: &[DataNetwork], devices: &[&str], links: &HostLinks) -> Vec<HostProblem> {
    let mut problems = Vec::new();
    for dn in networks {
        for pool in pools_of(dn) {
            let others = links.networks().filter(|(name, _)| !devices.contains(name));
            problems.extend(others.filter(|(_, network)| overlap(*network, pool)).map(|(name, network)| {
                HostProblem::PoolOverlaps {
                    dnn: dn.dnn.to_string(),
                    pool,
                    interface: name.to_owned(),
                    network,
                }
            }));
        }
    }
    problems
}

fn pools_of(dn: &DataNetwork) -> impl Iterator<Item = IpNetwork> {
    let v4 =
        |p: whimbrel_user::Ipv4Net| IpNetwork { address: IpAddr::V4(p.first().into()), prefix: p.prefix };
    let v6 = |p: whimbrel_user::Ipv6Net| {
        let first = std::net::Ipv6Addr::from_bits(u128::from(p.first()) << 64);
        IpNetwork { address: IpAddr::V6(first), prefix: p.prefix }
    };
    dn.all_ipv4_pools().map(v4).chain(dn.all_ipv6_pools().map(v6))
}

/// Errors: a pool of UEs is one of the host's networks. Where the kernel does not say which those are, it is looked for later.
pub(crate) fn check_pools(config: &Config) -> Result<(), StartError> {
    let devices: Vec<&str> = config.devices.iter().map(|d| d.device.as_str()).collect();
    let Ok(links) = HostLinks::now() else { return Ok(()) };
    match overlapping(&config.user.data_networks, &devices, &links).pop() {
        Some(problem) => Err(StartError::Pool(problem)),
        None => Ok(()),
    }
}

/// Queues of a TUN or TAP device, as duplicates of the packet threads' descriptors.
pub(crate) struct DeviceQueues {
    pub(crate) kind: DeviceKind,
    pub(crate) queues: Vec<OwnedFd>,
}

/// A device of UEs.
struct Device {
    name: String,
    queues: DeviceQueues,
    network: DataNetwork,
    /// Of a TAP device.
    frames: Option<FramesDevice>,
    /// The kernel forwards its packets; else they leave by an interface of their own.
    is_forwarded: bool,
}

impl Device {
    /// Sentence about what another program has changed of the device; `None` if nothing.
    fn change(&self, links: &HostLinks) -> Option<String> {
        let name = &self.name;
        let Some(link) = links.named(name) else { return Some(format!("the interface {name} was deleted")) };
        if !link.is_up {
            return Some(format!("the interface {name} was taken down"));
        }
        if self.frames.is_some() {
            return None;
        }
        let v4 = self.network.all_ipv4_pools().map(|p| (IpAddr::V4(p.gateway()), p.prefix));
        let v6 = self.network.all_ipv6_pools().map(|p| (IpAddr::V6(p.gateway()), p.prefix));
        let gone = v4.chain(v6).find(|(address, prefix)| !links.has(link.index, *address, *prefix));
        if let Some((address, prefix)) = gone {
            return Some(format!("the address {address}/{prefix} of {name} was removed"));
        }
        let mut routed = self.network.nat_pools().peekable();
        routed.peek()?;
        let routes = link::routes_of(link.index).ok()?;
        let gone = routed.find(|p| !routes.contains(&(p.first(), p.prefix)))?;
        Some(format!(
            "the route to {}/{} was removed",
            std::net::Ipv4Addr::from_bits(gone.first()),
            gone.prefix
        ))
    }

    /// Puts it back, with the same descriptors: the packet threads go on with them.
    fn put_back(&self, is_gone: bool, stays: bool) -> io::Result<()> {
        if is_gone {
            let DeviceQueues { kind, queues } = &self.queues;
            for queue in queues {
                Tun::attach(queue.as_fd(), &self.name, *kind, queues.len() > 1)?;
            }
            if let Some(first) = queues.first().filter(|_| stays) {
                Tun::let_stay(first.as_fd())?;
            }
            if let Some(first) = queues.first().filter(|_| queues.len() > 1) {
                // Without it threads hand packets over.
                steer(first.as_fd(), queues.len()).ok();
            }
        }
        match &self.frames {
            Some(frames) => set_up_frames(frames, self.network.mtu).map(drop),
            None => set_up(&self.name, &self.network).map(drop),
        }
    }
}

/// Set-up of the host that is checked, and put back if another program changes it.
struct HostSetting {
    devices: Vec<Device>,
    stays: bool,
    /// Networks that the kernel translates, each with its device, and rules of the table.
    nat: Option<(Vec<(String, DataNetwork)>, usize)>,
    forwarding: bool,
    n3: Vec<IpAddr>,
}

/// Findings on the host since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostReport {
    /// Problems that exist now.
    pub problems: Vec<HostProblem>,
    /// Log lines, one for each thing that was put back.
    pub put_back: Vec<String>,
}

impl HostSetting {
    fn look(&self, report: &Mutex<HostReport>) -> io::Result<usize> {
        let links = HostLinks::now()?;
        let (mut problems, mut put_back) = (Vec::new(), Vec::new());
        // Attempts that fail count, too: they may change the host, which would wake the thread for ever.
        let mut attempts = 0;
        let mut note = |change: String, result: io::Result<()>| {
            attempts += 1;
            match result {
                Ok(()) => put_back.push(format!("{change} by another program; it was put back")),
                Err(e) => problems.push(HostProblem::NotPutBack { change, error: e.to_string() }),
            }
        };
        for device in &self.devices {
            if let Some(change) = device.change(&links) {
                let is_gone = links.named(&device.name).is_none();
                note(change, device.put_back(is_gone, self.stays));
            }
        }
        if let Some((networks, rules)) = &self.nat {
            let all: Vec<_> = networks.iter().map(|(name, dn)| (name.as_str(), dn)).collect();
            let table = Nat::table_of(&all);
            if rules_of(&table).is_ok_and(|found| found != *rules) {
                note(
                    format!("the nftables table inet {table} was removed or changed"),
                    Nat::put(&all).map(drop),
                );
            }
        }
        let networks: Vec<DataNetwork> = self.devices.iter().map(|d| d.network.clone()).collect();
        let names: Vec<&str> = self.devices.iter().map(|d| d.name.as_str()).collect();
        problems.extend(overlapping(&networks, &names, &links));
        problems
            .extend(self.n3.iter().filter(|a| !links.has_address(**a)).map(|a| HostProblem::NoN3Address(*a)));
        problems.extend(self.forwarding_problems());
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.problems = problems;
        report.put_back.extend(put_back);
        report.put_back.truncate(EVENTS_MAX);
        Ok(attempts)
    }

    fn forwarding_problems(&self) -> Vec<HostProblem> {
        if !self.forwarding {
            return Vec::new();
        }
        let with_packets = || self.devices.iter().filter(|d| d.is_forwarded);
        let any = |f: fn(&DataNetwork) -> bool| with_packets().any(|d| f(&d.network));
        let (ipv4, ipv6) = (any(|d| d.all_ipv4_pools().count() > 0), any(|d| d.all_ipv6_pools().count() > 0));
        let octets = |n: IpNetwork| match n.address {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        let pools: Vec<Vec<Vec<u8>>> =
            with_packets().map(|d| pools_of(&d.network).map(octets).collect()).collect();
        let named: Vec<_> = with_packets()
            .zip(&pools)
            .filter(|(_, pools)| !pools.is_empty())
            .map(|(d, networks)| NamedDevice { device: &d.name, networks })
            .collect();
        let dropped = forwarding::that_is_dropped(&named).unwrap_or_default();
        forwarding::that_is_off(ipv4, ipv6).chain(dropped).collect()
    }
}

struct Wishes {
    stop: AtomicBool,
    changed: Event,
}

/// A thread that keeps up what was set; dropping it ends it.
pub(crate) struct Upkeep {
    wishes: Arc<Wishes>,
    report: Arc<Mutex<HostReport>>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// `queues`: of the TUN devices in their order, then of the TAP devices. `rules`: of the table of nftables, where it was made. Errors: the system gives no
    /// descriptor or thread.
    pub(crate) fn start(
        config: &Config,
        queues: Vec<DeviceQueues>,
        rules: Option<usize>,
    ) -> io::Result<Self> {
        let networks = || config.devices.iter().zip(&config.user.data_networks);
        let packets = networks().map(|(d, dn)| (d.device.clone(), dn.clone(), None, d.link.is_none()));
        let frames = networks().filter_map(|(d, dn)| {
            d.frames.as_ref().map(|f| (f.device.clone(), dn.clone(), Some(f.clone()), false))
        });
        let devices = packets.chain(frames).zip(queues);
        let devices = devices.map(|((name, network, frames, is_forwarded), queues)| Device {
            name,
            queues,
            network,
            frames,
            is_forwarded,
        });
        let translated: Vec<_> =
            networks().filter(|(d, _)| d.nat).map(|(d, dn)| (d.device.clone(), dn.clone())).collect();
        let links = HostLinks::now().unwrap_or_default();
        let kept = HostSetting {
            devices: devices.collect(),
            stays: config.keeps_state,
            nat: rules.map(|rules| (translated, rules)),
            forwarding: config.forwarding,
            // One that no interface has from the start is the host's by a local route.
            n3: config.n3_addresses().map(|a| a.ip()).filter(|a| links.has_address(*a)).collect(),
        };
        let mut routing = Netlink::open(libc::NETLINK_ROUTE)?;
        let routes = if networks().any(|(_, dn)| dn.nat_pools().next().is_some()) { ROUTES_GROUP } else { 0 };
        routing.subscribe(ROUTE_GROUPS | routes)?;
        // Without nftables there is nothing to be reported.
        let mut nftables = Netlink::open(libc::NETLINK_NETFILTER).ok();
        nftables = nftables.and_then(|mut n| n.subscribe(NFTABLES_GROUP).ok().map(|()| n));
        let wishes = Arc::new(Wishes { stop: AtomicBool::new(false), changed: Event::new()? });
        let report = Arc::new(Mutex::new(HostReport::default()));
        let (wished, to) = (Arc::clone(&wishes), Arc::clone(&report));
        let thread = std::thread::Builder::new().name("upf-upkeep".into()).spawn(move || {
            let mut repairs: VecDeque<Instant> = VecDeque::new();
            loop {
                let now = Instant::now();
                while repairs.front().is_some_and(|at| now.duration_since(*at) > LOOK_EVERY) {
                    repairs.pop_front();
                }
                if let Ok(n) = kept.look(&to) {
                    repairs.extend(std::iter::repeat_n(now, n));
                }
                let stop: Vec<_> = vec![wished.changed.as_fd()];
                let mut all = stop.clone();
                if repairs.len() < REPAIRS_MAX {
                    all.push(routing.as_fd());
                    all.extend(nftables.as_ref().map(Netlink::as_fd));
                }
                let looked = Instant::now();
                let waited = poll::readable(&all, LOOK_EVERY);
                let together = if looked.elapsed() < MANY_WITHIN { TOGETHER_IF_MANY } else { TOGETHER };
                if waited.is_err() || poll::readable(&stop, together).is_err() {
                    std::thread::sleep(TOGETHER);
                }
                if wished.stop.load(Ordering::SeqCst) {
                    return;
                }
                routing.drain();
                nftables.iter_mut().for_each(Netlink::drain);
            }
        })?;
        Ok(Self { wishes, report, thread: Some(thread) })
    }

    /// Problems that exist now, and what was put back since the last call.
    pub(crate) fn report(&self) -> HostReport {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        HostReport { problems: report.problems.clone(), put_back: std::mem::take(&mut report.put_back) }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.wishes.stop.store(true, Ordering::SeqCst);
        self.wishes.changed.raise();
        self.thread.take().map(JoinHandle::join);
    }
}
