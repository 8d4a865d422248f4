//! The configuration of the UPF and of its packet threads, from that of the core.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_pfcp::ie::NodeId;
use whimbrel_user::{Config, DataNetwork, Ipv4Net, Ipv6Net, PointToPoint, ReservedPools, TEID_INDEX_BITS};
use whimbrel_user_io::{DataNetworkDevice, FramesDevice, N3Io};

use crate::clock;
use crate::config;
use crate::config::typed::sixes;

/// How long SMFs may take to notice that a UPF has restarted, by a heartbeat, and to restore its sessions.
const RESTORED_WITHIN: Duration = Config::HEARTBEAT_INTERVAL;

/// The configuration of the UPF.
pub fn user_plane_config(c: &config::Config, seed: u64) -> Config {
    // For external SMFs, the address at which they reach it.
    let listens = c.n4.listen.map(|l| l.ip()).filter(|a| !a.is_unspecified());
    let own = if c.deployment.unit_function().is_some() { c.unit_upf().ip() } else { c.n4.node_id };
    let node = listens.unwrap_or(own);
    Config {
        node_id: match node {
            IpAddr::V4(a) => NodeId::Ipv4(a),
            IpAddr::V6(a) => NodeId::Ipv6(a),
        },
        n4: node,
        n3_ipv4: if let IpAddr::V4(a) = c.n3.address { Some(a) } else { None },
        n3_ipv6: if let IpAddr::V6(a) = c.n3.address { Some(a) } else { None },
        data_networks: c.data_networks.iter().map(data_network).collect(),
        // At most as many as leave the TEIDs' tags at full length.
        sessions_max: ((1 << TEID_INDEX_BITS) - 1).min(c.limits.ues.saturating_mul(2)),
        // If both ends are in one process, heartbeats would show nothing.
        heartbeat_interval: (c.n4.listen.is_some() || c.deployment.unit_function().is_some())
            .then_some(Config::HEARTBEAT_INTERVAL),
        path_failure: c.n4.path_failure,
        echo_interval: Some(Config::ECHO_INTERVAL),
        guaranteed: c.guaranteed_rates,
        slices: c.slice_rates.clone(),
        shards: c.n3.threads,
        applications: c.detection.clone(),
        buffering: c.buffering,
        flows_first: Config::FLOWS_FIRST,
        isolation: config::isolation::of(c),
        flows_second: Config::FLOWS_SECOND,
        smf_f_teids: c.n4.smf_f_teids,
        cp_port: Config::PFCP_PORT,
        seed,
    }
}

fn reserved(p: &config::ReservedPool) -> ReservedPools {
    ReservedPools {
        name: None,
        slices: vec![p.slice],
        ipv4_pools: p.ipv4_pool.iter().map(|p| Ipv4Net { address: p.address, prefix: p.length }).collect(),
        ipv6_pools: p.ipv6_pool.iter().map(|p| Ipv6Net { address: p.address, prefix: p.length }).collect(),
    }
}

fn data_network(n: &config::DataNetworkConfig) -> DataNetwork {
    DataNetwork {
        dnn: n.dnn.clone(),
        ipv4_pools: n.ipv4_pool.iter().map(|p| Ipv4Net { address: p.address, prefix: p.length }).collect(),
        ipv6_pools: n.ipv6_pool.iter().map(|p| Ipv6Net { address: p.address, prefix: p.length }).collect(),
        dns_ipv6: sixes(&n.dns),
        mtu: n.mtu,
        ethernet: n.ethernet,
        unstructured: n.unstructured_server.filter(|_| n.unstructured).and_then(|server| match server {
            SocketAddr::V6(peer) => Some(PointToPoint { peer, port: peer.port() }),
            SocketAddr::V4(_) => None,
        }),
        reserved: n.reserved_pools.iter().map(reserved).collect(),
        firewall: n.firewall.clone(),
    }
}

/// The configuration of the packet threads. `alone`: there is no SMF in this program.
pub fn plane_config(
    c: &config::Config,
    user: &Config,
    keeps_state: bool,
    alone: bool,
) -> whimbrel_user_io::Config {
    let frames = |i: usize, n: &config::DataNetworkConfig| FramesDevice {
        device: c.n6.frames_device_of(i),
        bridge: n.ethernet_bridge.clone(),
    };
    let device = |(i, n): (usize, &config::DataNetworkConfig)| DataNetworkDevice {
        device: c.n6.device_of(i),
        nat: c.n6.nat && n.n6_link.is_none(),
        link: n.n6_link.clone(),
        frames: n.ethernet.then(|| frames(i, n)),
    };
    whimbrel_user_io::Config {
        devices: c.data_networks.iter().enumerate().map(device).collect(),
        port: c.n3.port,
        n3_io: match c.n3.io {
            config::IoChoice::Auto => N3Io::Auto,
            config::IoChoice::Udp => N3Io::Udp,
            config::IoChoice::AfXdp => N3Io::AfXdp,
            config::IoChoice::Xdp => N3Io::Xdp,
        },
        spread_by: c.n3.spread_by,
        busy_poll: Duration::from_micros(c.n3.busy_poll_us.into()),
        forwarding: c.n6.forwarding,
        journal: Some(c.store.path.with_extension("host")),
        keeps_state,
        held: None,
        harvest: c.n3.harvest,
        restored_within: if alone { RESTORED_WITHIN } else { Duration::ZERO },
        clock: Arc::new(clock::now),
        user: user.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::function::{Function, UnitDirectory, UnitFunction};

    #[test]
    fn the_upf_of_a_unit_has_a_node_identity_of_its_own_and_sends_heartbeats() {
        let of_unit = UnitFunction::new(Function::Upf, UnitDirectory::of(Path::new("/run/u")), "t".into());
        let upf = user_plane_config(&config::default().deployed_as(config::Deployment::UnitUpf(of_unit)), 7);
        assert_eq!(upf.n4, IpAddr::from([127, 0, 0, 88]), "its node identity, by which no datagram is sent");
        assert!(upf.heartbeat_interval.is_some(), "it is another process than the SMF");
    }

    #[test]
    fn what_spreads_packets_among_the_packet_threads_reaches_the_user_plane() {
        use whimbrel_user_io::SpreadBy;
        let of = |text: &str| {
            let c = config::parse(text, Path::new("w.yaml")).unwrap();
            plane_config(&c, &user_plane_config(&c, 1), false, true).spread_by
        };
        assert_eq!(of(""), SpreadBy::Teid);
        for (word, by) in [
            ("teid", SpreadBy::Teid),
            ("ue_address", SpreadBy::UeAddress),
            ("gnb_address", SpreadBy::GnbAddress),
            ("gnb_flow", SpreadBy::GnbFlow),
        ] {
            assert_eq!(of(&format!("n3:\n  spread_by: {word}\n")), by);
        }
    }
}
