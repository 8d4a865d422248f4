//! UEs and gNBs as the API shows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A gNB that has set up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Gnb")]
pub struct GnbView {
    /// Global gNB identifier, `999/70-1`.
    pub id: String,
    /// How many bits the gNB's part of it has.
    pub id_bits: u8,
    /// RAN node name, where it gave one.
    pub name: Option<String>,
    /// Its transport address and port.
    pub address: String,
    /// Tracking areas that it broadcasts.
    pub tais: Vec<String>,
    /// Slices that it supports.
    pub slices: Vec<String>,
    /// UEs with a connection through it.
    pub connected_ues: u64,
    /// Since when it is up, RFC 3339.
    pub since: String,
    /// Latitude of the place where it stands, in degrees, if the configuration says so.
    pub latitude: Option<f64>,
    /// Longitude of the same place, in degrees.
    pub longitude: Option<f64>,
}

/// A UE as the API shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Ue")]
pub struct UeView {
    /// SUPI, such as `imsi-999700000000001`.
    pub supi: String,
    /// 5GMM state: registered, deregistered, or the procedure that is under way (TS 24.501 §5.1.3.4).
    pub state: String,
    /// 5GMM mode: connected or idle (TS 24.501 §5.1.3.5).
    pub mode: String,
    /// CM-CONNECTED or CM-IDLE (TS 23.501 §5.3.3).
    pub cm_state: String,
    /// PEI, once known.
    pub pei: Option<String>,
    /// 5G-GUTI's 5G-TMSI in hexadecimal digits.
    pub tmsi: Option<String>,
    /// AMF-UE-NGAP-ID of its connection.
    pub amf_ue_ngap_id: Option<u64>,
    /// RAN-UE-NGAP-ID of its connection.
    pub ran_ue_ngap_id: Option<u64>,
    /// Its gNB, or the last one.
    pub gnb: Option<String>,
    /// Its TAI, or the last known one.
    pub tai: Option<String>,
    /// Its cell, or the last known one: PLMN and cell identity in hexadecimal digits.
    pub cell: Option<String>,
    /// When it was there, RFC 3339.
    pub seen: Option<String>,
    /// How many seconds ago that was.
    pub seen_s: Option<u64>,
    /// Its gNB reported RRC_INACTIVE.
    pub rrc_inactive: bool,
    /// In a cluster or a unit: the number of the CPF that serves it.
    pub cpf: Option<u16>,
    /// The code version of that CPF.
    pub cpf_code: Option<String>,
    /// It is one of the UEs of a canary.
    pub canary: bool,
    /// Slices that are allowed to the UE.
    pub allowed_slices: Vec<String>,
    /// NAS algorithms in use, `NIA2 NEA2`.
    pub algorithms: Option<String>,
    /// UE-AMBR as subscribed.
    pub subscribed_ue_ambr: Option<RatesView>,
    /// UE-AMBR in force: the sum of the session AMBRs of the sessions that have a user plane, up to the subscribed one (TS 23.501
    /// §5.7.2.6).
    pub ue_ambr: Option<RatesView>,
    /// Timers that run.
    pub timers: Vec<TimerView>,
    /// Its PDU sessions.
    pub sessions: Vec<SessionView>,
}

/// A PDU session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Session")]
pub struct SessionView {
    /// PDU session identity.
    pub id: u8,
    /// DNN of the data network.
    pub dnn: String,
    /// Slice of the session.
    pub s_nssai: String,
    /// IPv4 address of the session.
    pub ipv4: Option<String>,
    /// IPv6 prefix of the session.
    pub ipv6: Option<String>,
    /// Whether its user plane is up.
    pub active: bool,
    /// SSC mode, 1 to 3 (TS 23.501 §5.6.9).
    pub ssc_mode: u8,
    /// The UPF that serves it.
    pub upf: String,
    /// The UPF's end of the N3 tunnel.
    pub n3_upf: Option<TunnelView>,
    /// The gNB's end, while the user plane is up.
    pub n3_gnb: Option<TunnelView>,
    /// Session AMBR in both directions.
    pub ambr: RatesView,
    /// QoS flows, the default one first.
    pub flows: Vec<FlowView>,
    /// A modification is under way, or waits for the UE.
    pub changing: bool,
    /// Octets from the UE.
    pub ul_octets: u64,
    /// Octets to the UE.
    pub dl_octets: u64,
    /// Of these, octets received over a secondary RAT.
    pub secondary_rat_ul_octets: u64,
    /// Of these, octets sent over a secondary RAT.
    pub secondary_rat_dl_octets: u64,
}

/// A pair of rates, in kbit/s (1 kbit = 1000 bit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Rates")]
pub struct RatesView {
    /// Uplink rate in kbit/s.
    pub ul_kbps: u64,
    /// Downlink rate in kbit/s.
    pub dl_kbps: u64,
}

/// One end of a GTP-U tunnel: an F-TEID (TS 29.244 §8.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tunnel")]
pub struct TunnelView {
    /// TEID in eight hexadecimal digits.
    pub teid: String,
    /// IP address of the tunnel's end.
    pub address: String,
}

/// A QoS flow (TS 23.501 §5.7.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Flow")]
pub struct FlowView {
    /// Identifier of the QoS flow (QFI).
    pub qfi: u8,
    /// The policy that it comes from; empty for the default flow.
    pub name: String,
    /// 5QI of the flow.
    pub five_qi: u8,
    /// ARP priority level, 1 (highest) to 15.
    pub arp_priority: u8,
    /// ARP pre-emption capability: it may take resources from others.
    pub arp_may_preempt: bool,
    /// ARP pre-emption vulnerability: it may lose resources to others.
    pub arp_preemptable: bool,
    /// GFBR of a GBR flow.
    pub gfbr: Option<RatesView>,
    /// MFBR of a GBR flow.
    pub mfbr: Option<RatesView>,
    /// The gate for uplink packets is open.
    pub ul_open: bool,
    /// The gate for downlink packets is open.
    pub dl_open: bool,
    /// The gNB has not reported that it cannot fulfil the guaranteed rate.
    pub fulfilled: bool,
}

/// A timer that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Timer")]
pub struct TimerView {
    /// Its name: the standard's where it has one.
    pub name: String,
    /// Its PDU session, if it has one.
    pub session: Option<u8>,
    /// Seconds until it expires, rounded up.
    pub left_s: u64,
}

/// Some UEs, and whether there are more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UePage {
    /// The UEs of this page.
    pub ues: Vec<UeView>,
    /// The `after` of the next request; absent at the end.
    pub next: Option<String>,
}

/// A warning message (TS 23.041) and its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Warning")]
pub struct WarningView {
    /// Message identifier, 0 to 65535 (TS 23.041 §9.4.1.2.2).
    pub message_identifier: u16,
    /// Serial number, 0 to 65535.
    pub serial_number: u16,
    /// `in force`, `over` or `cancelled`.
    pub state: String,
    /// When it was sent, RFC 3339.
    pub sent: String,
    /// Where: `everywhere`, tracking areas or cells.
    pub area: Vec<String>,
    /// Seconds between broadcasts.
    pub repetition_period_s: u32,
    /// Requested broadcasts; 0: until cancelled.
    pub broadcasts: u16,
    /// Its outcome at each gNB.
    pub gnbs: Vec<WarningAtGnb>,
}

/// Outcome of a warning message at a gNB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WarningAtGnb {
    /// Global gNB identifier.
    pub gnb: String,
    /// The gNB's answer in words.
    pub outcome: String,
}

/// A gNB that the operator has disconnected.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Disconnected")]
pub struct DisconnectedView {
    /// Its name, `gnb-999/70-1`.
    pub gnb: String,
}

/// The planned removal of this AMF from its set (TS 23.501 §5.21.2.2.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Removal")]
pub struct RemovalView {
    /// The AMF of the set that takes the UEs over; without it, there is no removal.
    pub successor: Option<String>,
    /// UEs that are still here, or went less than three seconds ago.
    pub ues_left: u64,
    /// gNBs were informed that this AMF is not available, and connected UEs are released.
    pub announced: bool,
}

/// The drain of a UPF before maintenance (TS 23.502 §4.3.5, TS 29.244 §6.2.8.3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UpfDrain")]
pub struct UpfDrainView {
    /// Name of the UPF in `upfs`.
    pub upf: String,
    /// The originator of the drain: `operator`, or `upf` if it asked for its release; none if it is not drained.
    pub ordered_by: Option<String>,
    /// Seconds until the sessions that cannot be moved are released.
    pub released_in_s: Option<u64>,
    /// UEs with sessions there.
    pub ues_left: u32,
    /// A place whose sessions no other UPF that answers can have: slice, data network and tracking area.
    pub served_by_none_but: Option<String>,
}

/// Whether OVERLOAD START is in force at gNBs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Overload")]
pub struct OverloadView {
    /// It is in force.
    pub overloaded: bool,
    /// `rule`: the configured thresholds decide; `start` or `stop`: the operator does.
    pub order: String,
}

/// The state of the prediction of handovers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Foresight")]
pub struct ForesightView {
    /// It is on.
    pub enabled: bool,
    /// The predictor was trained before; else it learns from the UEs that it follows.
    pub trained: bool,
    /// gNBs are asked for their containers, so that targets are prepared too.
    pub early_containers: bool,
    /// UEs that are followed.
    pub ues: usize,
    /// Cells that are known.
    pub cells: usize,
    /// Predictions that live.
    pub live: usize,
    /// The most that live at a time.
    pub live_max: usize,
    /// Seconds that a prediction lives.
    pub lifetime_s: u64,
    /// Predictions that were made.
    pub made: u64,
    /// Handovers to the predicted cell.
    pub hits: u64,
    /// Handovers to another cell than the predicted one.
    pub misses: u64,
    /// Handovers to the predicted cell soon after the prediction had expired.
    pub late: u64,
    /// Predictions that expired.
    pub expired: u64,
    /// Predictions beyond the bound.
    pub refused: u64,
    /// Handovers without a prediction.
    pub unpredicted: u64,
    /// Targets that were prepared.
    pub prepared: u64,
    /// Mean probability of evaluated predictions.
    pub probability: f64,
    /// Share of hits among them.
    pub share: f64,
    /// Predictions have become clearly worse.
    pub drifts: bool,
}
