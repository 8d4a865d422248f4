//! What the network offers: tracking areas, slices, data networks and the policies of their QoS flows, as they are in force.

use std::sync::Arc;

use serde::Serialize;
use whimbrel_control::policy::{FlowPolicy, describe};
use whimbrel_node::config::DataNetworkConfig;
use whimbrel_node::config::value::Value;
use whimbrel_node::observation::RatesView;

use super::HandlerContext;
use super::handlers::HandlerResult;
use super::routes::{Reply, RoutedRequest};

/// What is offered.
#[derive(Serialize)]
struct NetworkView {
    plmn: String,
    tacs: Vec<u32>,
    slices: Vec<String>,
    /// NAS integrity algorithms, the preferred one first.
    integrity: Vec<String>,
    /// NAS ciphering algorithms, the preferred one first.
    ciphering: Vec<String>,
    data_networks: Vec<DataNetworkView>,
}

/// A data network.
#[derive(Serialize)]
struct DataNetworkView {
    dnn: String,
    ipv4_pool: Option<String>,
    ipv6_pool: Option<String>,
    dns: Vec<String>,
    mtu: u16,
    /// Its QoS flows beside the default one.
    flows: Vec<PolicyView>,
}

/// The policy of a QoS flow.
#[derive(Serialize)]
struct PolicyView {
    name: String,
    five_qi: u8,
    arp_priority: u8,
    gfbr: Option<RatesView>,
    mfbr: Option<RatesView>,
    precedence: u8,
    filters: Vec<String>,
    /// Directions that are open: `open`, `uplink`, `downlink`, `closed`.
    gate: &'static str,
    /// The side that sets it up.
    setup: String,
}

pub(super) async fn show(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    // What can change while the core runs is in the control plane's configuration.
    let (config, control) = (&shared.config, shared.console.control());
    let (tacs, slices) = match &control {
        Some(control) => (&control.amf.tacs, &control.amf.slices),
        None => (&config.amf.tacs, &config.amf.slices),
    };
    Reply::json(&NetworkView {
        plmn: config.amf.plmn.to_string(),
        tacs: tacs.iter().map(|tac| tac.value()).collect(),
        slices: slices.iter().map(ToString::to_string).collect(),
        integrity: config.amf.integrity.iter().map(Value::show).collect(),
        ciphering: config.amf.ciphering.iter().map(Value::show).collect(),
        data_networks: config.data_networks.iter().map(data_network).collect(),
    })
}

fn data_network(network: &DataNetworkConfig) -> DataNetworkView {
    DataNetworkView {
        dnn: network.dnn.to_string(),
        ipv4_pool: network.ipv4_pool.map(|p| p.show()),
        ipv6_pool: network.ipv6_pool.map(|p| p.show()),
        dns: network.dns.iter().map(ToString::to_string).collect(),
        mtu: network.mtu,
        flows: network.flows.iter().map(policy).collect(),
    }
}

fn policy(flow: &FlowPolicy) -> PolicyView {
    let rates = |(ul_kbps, dl_kbps)| RatesView { ul_kbps, dl_kbps };
    PolicyView {
        name: flow.name.to_string(),
        five_qi: flow.five_qi.0,
        arp_priority: flow.arp.priority,
        gfbr: flow.gbr.map(|g| rates((g.guaranteed.ul_kbps, g.guaranteed.dl_kbps))),
        mfbr: flow.gbr.map(|g| rates((g.maximum.ul_kbps, g.maximum.dl_kbps))),
        precedence: flow.precedence,
        filters: flow.filters.iter().map(describe).collect(),
        gate: match (flow.gate.uplink, flow.gate.downlink) {
            (true, true) => "open",
            (true, false) => "uplink",
            (false, true) => "downlink",
            (false, false) => "closed",
        },
        setup: flow.setup.show(),
    }
}
