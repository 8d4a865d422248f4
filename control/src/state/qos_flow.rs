//! The QoS flows and QoS rules of a PDU session (TS 23.501 §5.7.1).

use serde::{Deserialize, Serialize};
use whimbrel_ids::{FiveQi, Qfi};
use whimbrel_nas::ie::PacketFilter;

use super::subscription::Arp;
use crate::policy::{FlowGate, FlowName, Gbr};

/// A QoS flow beside the default one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosFlow {
    /// Identifier of the QoS flow.
    pub qfi: Qfi,
    /// The name of its policy.
    pub name: FlowName,
    /// 5QI of the flow.
    pub five_qi: FiveQi,
    /// Allocation and retention priority.
    pub arp: Arp,
    /// The rates of a GBR flow.
    pub gbr: Option<Gbr>,
    /// Which directions pass.
    pub gate: FlowGate,
    /// Its QoS rules.
    pub rules: Vec<FlowRule>,
    /// The index of its DSCP in the session's markings.
    pub mark: u8,
    /// Reflective QoS: the UE derives its uplink rules and gets none.
    pub reflective: bool,
    /// The UE requested it, and may change it.
    pub of_ue: bool,
    /// The gNB fulfils its guarantee, as last reported (TS 23.501 §5.7.2.4).
    pub fulfilled: bool,
}

/// A QoS rule of a flow (TS 23.501 §5.7.1.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRule {
    /// Its identifier, 1 to 255.
    pub id: u8,
    /// Precedence: the lowest is evaluated first.
    pub precedence: u8,
    /// Its packet filters.
    pub filters: Vec<PacketFilter>,
    /// Instead of filters: the application whose packets match. The UE does not get such a rule.
    pub application: Option<Box<str>>,
}

/// The default rule's identifier.
pub(crate) const DEFAULT_RULE: u8 = 1;

/// The default QoS flow of every session. The SMF chooses its identifier (TS 23.501 §5.7.1.3).
pub(crate) const DEFAULT_QFI: Qfi = match Qfi::new(1) {
    Some(qfi) => qfi,
    None => panic!("1 is a QFI"),
};

/// The DSCPs of a session's packets to its gNB, a downlink FAR each, the default flow's first. None: one FAR, without marking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks(pub(crate) Box<[u8]>);
