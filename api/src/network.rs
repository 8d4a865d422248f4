//! What the network offers: tracking areas, slices, data networks and the policies of their QoS flows, as they are in force.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use whimbrel_control::policy::{FlowPolicy, describe};
use whimbrel_node::config::DataNetworkConfig;
use whimbrel_node::config::value::Value;
use whimbrel_node::observation::RatesView;

use super::HandlerContext;
use super::routes::{HandlerResult, Json, RoutedRequest, TypedReply};

/// The services of the network.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Network")]
pub(super) struct NetworkView {
    /// PLMN that is served.
    plmn: String,
    /// Tracking area codes.
    tacs: Vec<u32>,
    /// Slices that are served.
    slices: Vec<String>,
    /// NAS integrity algorithms, the preferred one first.
    integrity: Vec<String>,
    /// NAS ciphering algorithms, the preferred one first.
    ciphering: Vec<String>,
    /// Data networks that sessions reach.
    data_networks: Vec<DataNetworkView>,
}

/// A data network.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DataNetwork")]
struct DataNetworkView {
    /// DNN of the data network.
    dnn: String,
    /// IPv4 addresses of UEs.
    ipv4_pool: Option<String>,
    /// IPv6 prefixes of UEs.
    ipv6_pool: Option<String>,
    /// DNS servers sent to UEs.
    dns: Vec<String>,
    /// MTU in octets.
    mtu: u16,
    /// Its QoS flows beside the default one.
    flows: Vec<PolicyView>,
}

/// The policy of a QoS flow.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "QosPolicy")]
struct PolicyView {
    /// Name of the flow.
    name: String,
    /// 5QI of the flow.
    five_qi: u8,
    /// ARP priority level, 1 (highest) to 15.
    arp_priority: u8,
    /// GFBR of a GBR flow.
    gfbr: Option<RatesView>,
    /// MFBR of a GBR flow.
    mfbr: Option<RatesView>,
    /// Precedence of its QoS rule.
    precedence: u8,
    /// Packet filters of its QoS rule.
    filters: Vec<String>,
    /// Directions that are open: `open`, `uplink`, `downlink`, `closed`.
    gate: &'static str,
    /// The side that sets it up.
    setup: String,
}

pub(super) async fn show(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult<Json<NetworkView>> {
    // What can change while the core runs is in the control plane's configuration.
    let (config, control) = (&shared.config, shared.console.control());
    let (tacs, slices) = match &control {
        Some(control) => (&control.amf.tacs, &control.amf.slices),
        None => (&config.amf.tacs, &config.amf.slices),
    };
    TypedReply::json(&NetworkView {
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
