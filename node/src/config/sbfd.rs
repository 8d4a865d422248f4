//! Seamless BFD (RFC 7880): which nodes this process probes, and where it answers probes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use whimbrel_resilience::sbfd::{SBFD_PORT, SbfdDiscriminator, SbfdTiming};

use super::section::Section;

/// Most peers: probing more from one thread at the shortest interval would fill a processor.
const PEERS_MAX: usize = 64;

/// The section `sbfd` of the configuration.
#[derive(Clone, Debug)]
pub struct Sbfd {
    /// `None`: nothing is probed.
    pub probing: Option<ProbingConfig>,
    /// `None`: no probes are answered, but those to members of a cluster.
    pub reflecting: Option<ReflectorConfig>,
    /// What is probed beside the members of a cluster.
    pub peers: Vec<SbfdPeer>,
}

/// How peers are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbingConfig {
    pub timing: SbfdTiming,
    /// Peers are on the links of this host: packets with another TTL than 255 are forged.
    pub one_link: bool,
    /// The threads may run under SCHED_FIFO.
    pub real_time: bool,
}

/// Where probes are answered, and the discriminator that they have to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorConfig {
    pub listen: SocketAddr,
    pub discriminator: SbfdDiscriminator,
    /// Initiators are on the links of this host.
    pub one_link: bool,
    /// The thread may run under SCHED_FIFO.
    pub real_time: bool,
}

/// A node that answers probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SbfdPeer {
    pub name: String,
    pub address: SocketAddr,
    pub discriminator: SbfdDiscriminator,
}

/// What a reflector's discriminator is if none is configured: its IPv4 address, which is unique in the network as well.
fn discriminator_of(address: IpAddr) -> Option<SbfdDiscriminator> {
    match address.to_canonical() {
        IpAddr::V4(address) => SbfdDiscriminator::new(u32::from(address)),
        IpAddr::V6(_) => None,
    }
}

/// Reads `discriminator` of a reflector at `address`.
fn discriminator(s: &mut Section<'_, '_>, address: Option<IpAddr>) -> Option<SbfdDiscriminator> {
    let doc = "Discriminator of the reflector, unique in the network, not 0. Default: its IPv4 address as a number.";
    let number: Option<u32> = s.optional("discriminator", "3221225985", doc);
    match (number, address) {
        (Some(number), _) if SbfdDiscriminator::new(number).is_none() => {
            s.refuse("discriminator", "0 names no session", "write another number");
            None
        }
        (Some(number), _) => SbfdDiscriminator::new(number),
        (None, Some(address)) => {
            let of_address = discriminator_of(address);
            if of_address.is_none() {
                s.refuse(
                    "discriminator",
                    format!("{address} is no number of 32 bits"),
                    "write the reflector's discriminator",
                );
            }
            of_address
        }
        (None, None) => None,
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Sbfd {
    let doc = "Seamless BFD (RFC 7880, RFC 7881): failures of nodes and links are found within milliseconds (docs/sbfd.md).";
    root.section("sbfd", doc, |s| {
        let interval: Option<Duration> = s.optional(
            "interval",
            "5ms",
            "Time between probes of a peer, at most: 1 ms to 1 s. With it, the members of the cluster and `peers` are probed, beside heartbeats. Without it, \
             nothing is: a false failure costs a takeover, and how short an interval the host permits has to be measured (`./x bench detection`).",
        );
        let multiplier = s.value(
            "multiplier",
            3u8,
            "Probes in a row without an answer after which a peer has failed: 2 to 50. With 5 ms and 3, a failure is found within 20 ms.",
        );
        let one_link = s.value(
            "one_link",
            true,
            "Peers are on this host's links: packets with another TTL than 255 came through a router and are dropped, as forged (RFC 5082). false: peers are behind \
             routers.",
        );
        let real_time = s.value(
            "real_time",
            true,
            "Threads that probe and answer run before ordinary ones (SCHED_FIFO), where the process may: CAP_SYS_NICE or RLIMIT_RTPRIO.",
        );
        let listen: Option<SocketAddr> = s.optional(
            "listen",
            "192.0.2.1:7784",
            "Address and UDP port at which probes to this host are answered; RFC 7881 has port 7784. CPFs and CTAs answer those of their cluster without it, on \
             the port of their links.",
        );
        if listen.is_some_and(|at| at.port() == 0) {
            s.refuse("listen", "initiators cannot know port 0", format!("write port {SBFD_PORT}"));
        }
        let own = discriminator(s, listen.map(|at| at.ip()));
        let doc = "Nodes that are probed: UPFs (`name` is that of `upfs`, or the address that of its N4), whose failure gives new sessions to other UPFs, \
                   and others, whose failure is logged and shown (`whimbrel why sbfd`).";
        let peers = s.sections("peers", 0, doc, |s, i| {
            let name: String = s.value("name", format!("peer{}", i + 1), "Name in logs; that of the UPF, if it is one.");
            let default = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SBFD_PORT));
            let address: SocketAddr = s.value("address", default, "Address and UDP port of its reflector.");
            if address.ip().is_unspecified() || address.port() == 0 {
                s.refuse("address", "there is no such reflector", format!("write ADDRESS:{SBFD_PORT}"));
            }
            let discriminator = discriminator(s, Some(address.ip()));
            discriminator.map(|discriminator| SbfdPeer { name, address, discriminator })
        });
        let peers: Vec<SbfdPeer> = peers.into_iter().flatten().collect();
        if peers.len() > PEERS_MAX {
            let fix = format!("list {PEERS_MAX} at most");
            s.refuse("peers", format!("one thread cannot probe {} peers", peers.len()), fix);
        }
        if !peers.is_empty() && interval.is_none() {
            s.refuse("peers", "nothing is probed without an interval", "write `interval`, such as 5ms");
        }
        let twice = |(i, peer): (usize, &SbfdPeer)| peers[..i].iter().any(|p| p.address == peer.address);
        if peers.iter().enumerate().any(twice) {
            s.refuse("peers", "two peers have the same address", "name each reflector once");
        }
        let probing = interval.and_then(|interval| match SbfdTiming::new(interval, multiplier) {
            Ok(timing) => Some(ProbingConfig { timing, one_link, real_time }),
            Err(e) => {
                s.refuse("interval", e.to_string(), "write values in these bounds");
                None
            }
        });
        let reflecting = listen.zip(own).map(|(listen, discriminator)| ReflectorConfig { listen, discriminator, one_link, real_time });
        Sbfd { probing, reflecting, peers }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    fn parse(text: &str) -> Result<Sbfd, String> {
        config::parse(text, Path::new("test")).map(|c| c.sbfd).map_err(|e| e.to_string())
    }

    #[test]
    fn sbfd_is_off_by_default() {
        let sbfd = parse("").unwrap();
        assert_eq!((sbfd.probing, sbfd.reflecting, sbfd.peers), (None, None, Vec::new()));
    }

    #[test]
    fn a_discriminator_that_is_not_configured_is_the_ipv4_address() {
        let text = "sbfd: { interval: 5ms, listen: \"192.0.2.1:7784\", peers: [{ name: east, address: \"192.0.2.2:7784\" }] }";
        let sbfd = parse(text).unwrap();
        let own = sbfd.reflecting.unwrap();
        assert_eq!((own.discriminator.number(), own.one_link), (0xc000_0201, true));
        assert_eq!(sbfd.peers[0].discriminator.number(), 0xc000_0202);
        assert_eq!(sbfd.probing.unwrap().timing.detection_max(), Duration::from_millis(20));
        let v6 = "sbfd: { listen: \"[2001:db8::1]:7784\" }";
        assert!(parse(v6).unwrap_err().contains("discriminator"));
        assert!(parse("sbfd: { listen: \"[2001:db8::1]:7784\", discriminator: 7 }").is_ok());
    }

    #[test]
    fn what_cannot_serve_is_refused_with_its_key() {
        for (text, key) in [
            ("interval: 500us", "interval"),
            ("interval: 2s", "interval"),
            ("interval: 5ms, multiplier: 1", "interval"),
            ("interval: 5ms, multiplier: 51", "interval"),
            ("listen: \"192.0.2.1:0\"", "listen"),
            ("listen: \"192.0.2.1:7784\", discriminator: 0", "discriminator"),
            ("peers: [{ address: \"192.0.2.2:7784\" }]", "peers"),
            ("interval: 5ms, peers: [{ name: east }]", "address"),
            (
                "interval: 5ms, peers: [{ address: \"192.0.2.2:7784\" }, { address: \"192.0.2.2:7784\" }]",
                "peers",
            ),
        ] {
            let refused = parse(&format!("sbfd: {{ {text} }}")).unwrap_err();
            assert!(refused.contains(&format!("sbfd.{key}")) || refused.contains(key), "{text}: {refused}");
        }
    }
}
