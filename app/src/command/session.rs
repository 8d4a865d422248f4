//! `whimbrel session modify`.

use clap::Args;

use super::operation::{Status, Waiting, order};
use crate::client::path_part;

/// A change of one session.
#[derive(Args, Clone, Debug)]
pub(crate) struct Change {
    /// SUPI, imsi-999700000000001 or its digits.
    supi: String,
    /// PDU session identity, 1 to 15, as `whimbrel ue show` tells it.
    session: u8,
    /// Set up the flow that the policy has under this name.
    #[arg(long, value_name = "FLOW")]
    add_flow: Option<String>,
    /// Take down the flow of this name.
    #[arg(long, value_name = "FLOW")]
    remove_flow: Option<String>,
    /// The session's AMBR from the UE, with --downlink.
    #[arg(long, value_name = "RATE", requires = "downlink")]
    uplink: Option<String>,
    /// The session's AMBR to the UE, with --uplink.
    #[arg(long, value_name = "RATE", requires = "uplink")]
    downlink: Option<String>,
    /// Open or close a flow: FLOW:open, FLOW:closed, FLOW:uplink or FLOW:downlink.
    #[arg(long, value_name = "FLOW:STATE")]
    gate: Option<String>,
    /// Move a session of SSC mode 2 or 3 to another anchor: the UE asks for it anew, after or before it ends.
    #[arg(long)]
    reanchor: bool,
    /// Deactivate its user plane; the UE stays connected, and has it set up again when there are packets.
    #[arg(long)]
    deactivate: bool,
    /// Release it.
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// Has the running core change a session, and waits for what UE, gNB and UPF say to it.
pub(crate) fn modify(change: &Change) -> Result<Status, String> {
    let said = [
        ("add_flow", &change.add_flow),
        ("remove_flow", &change.remove_flow),
        ("uplink", &change.uplink),
        ("downlink", &change.downlink),
        ("gate", &change.gate),
    ];
    let mut query: Vec<String> =
        said.iter().filter_map(|(name, v)| Some(format!("{name}={}", path_part(v.as_ref()?)))).collect();
    let whole =
        [("reanchor", change.reanchor), ("deactivate", change.deactivate), ("release", change.release)];
    query.extend(whole.iter().filter(|(_, said)| *said).map(|(name, _)| format!("{name}=")));
    let (supi, session) = (path_part(&change.supi), change.session);
    let path = format!("/api/v1/ues/{supi}/sessions/{session}/modify?{}", query.join("&"));
    order(&change.waiting, "POST", &path, None)
}
