//! `whimbrel session modify`.

use clap::Args;

use super::operation::{Status, Waiting, order};
use whimbrel_node::client::path_part;

/// A change of one session.
#[derive(Args, Clone, Debug)]
pub(crate) struct Change {
    /// SUPI, imsi-999700000000001 or its digits.
    supi: String,
    /// PDU session identity, 1 to 15; `whimbrel ue show` lists them.
    session: u8,
    /// Set up the QoS flow of this name (`data_networks: flows`).
    #[arg(long, value_name = "FLOW")]
    add_flow: Option<String>,
    /// Remove the QoS flow of this name.
    #[arg(long, value_name = "FLOW")]
    remove_flow: Option<String>,
    /// New uplink session AMBR, such as 10Mbps; with --downlink.
    #[arg(long, value_name = "RATE", requires = "downlink")]
    uplink: Option<String>,
    /// New downlink session AMBR; with --uplink.
    #[arg(long, value_name = "RATE", requires = "uplink")]
    downlink: Option<String>,
    /// Set the gate of a flow: FLOW:open, FLOW:closed, FLOW:uplink or FLOW:downlink (that direction only).
    #[arg(long, value_name = "FLOW:STATE")]
    gate: Option<String>,
    /// Relocate the PDU session anchor of a session of SSC mode 2 or 3: the UE establishes it again.
    #[arg(long)]
    reanchor: bool,
    /// Deactivate the user plane; it is activated again when there are packets.
    #[arg(long)]
    deactivate: bool,
    /// Release the session.
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// Has the running core change a session, and waits for the answers of UE, gNB and UPF.
pub(crate) fn modify(change: &Change) -> Result<Status, String> {
    let values = [
        ("add_flow", &change.add_flow),
        ("remove_flow", &change.remove_flow),
        ("uplink", &change.uplink),
        ("downlink", &change.downlink),
        ("gate", &change.gate),
    ];
    let mut query: Vec<String> =
        values.iter().filter_map(|(name, v)| Some(format!("{name}={}", path_part(v.as_ref()?)))).collect();
    let flags =
        [("reanchor", change.reanchor), ("deactivate", change.deactivate), ("release", change.release)];
    query.extend(flags.iter().filter(|(_, given)| *given).map(|(name, _)| format!("{name}=")));
    let (supi, session) = (path_part(&change.supi), change.session);
    let path = format!("/api/v1/ues/{supi}/sessions/{session}/modify?{}", query.join("&"));
    order(&change.waiting, "POST", &path, None)
}
