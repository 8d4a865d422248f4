//! UEs and gNBs as the API shows them.

use serde::{Deserialize, Serialize};

/// A gNB that has set up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GnbView {
    /// Global gNB identifier, `999/70-1`.
    pub(crate) id: String,
    /// How many bits the gNB's part of it has.
    pub(crate) id_bits: u8,
    /// RAN node name, where it gave one.
    pub(crate) name: Option<String>,
    /// Its transport address and port.
    pub(crate) address: String,
    /// Tracking areas that it broadcasts.
    pub(crate) tais: Vec<String>,
    /// Slices that it supports.
    pub(crate) slices: Vec<String>,
    /// UEs with a connection through it.
    pub(crate) connected_ues: u64,
    /// Since when it is up, RFC 3339.
    pub(crate) since: String,
    /// Where it stands, in degrees, if the configuration says so.
    pub(crate) latitude: Option<f64>,
    pub(crate) longitude: Option<f64>,
}

/// A UE.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct UeView {
    /// SUPI, `imsi-999700000000001`.
    pub(crate) supi: String,
    /// 5GMM state: registered, deregistered, or the procedure that is under way (TS 24.501 §5.1.3.4).
    pub(crate) state: String,
    /// 5GMM mode: connected or idle (TS 24.501 §5.1.3.5).
    pub(crate) mode: String,
    /// CM-CONNECTED or CM-IDLE (TS 23.501 §5.3.3).
    pub(crate) cm_state: String,
    /// PEI, once known.
    pub(crate) pei: Option<String>,
    /// 5G-GUTI's 5G-TMSI in hexadecimal digits.
    pub(crate) tmsi: Option<String>,
    /// AMF-UE-NGAP-ID of its connection.
    pub(crate) amf_ue_ngap_id: Option<u64>,
    /// RAN-UE-NGAP-ID of its connection.
    pub(crate) ran_ue_ngap_id: Option<u64>,
    /// Its gNB, or the last one.
    pub(crate) gnb: Option<String>,
    /// Its TAI, or the last known one.
    pub(crate) tai: Option<String>,
    /// Its cell, or the last known one: PLMN and cell identity in hexadecimal digits.
    pub(crate) cell: Option<String>,
    /// When it was there, RFC 3339.
    pub(crate) seen: Option<String>,
    /// How many seconds ago that was.
    pub(crate) seen_s: Option<u64>,
    /// Its gNB reported RRC_INACTIVE.
    pub(crate) rrc_inactive: bool,
    /// In a cluster or a unit: the number of the CPF that serves it.
    pub(crate) cpf: Option<u16>,
    /// The code version of that CPF.
    pub(crate) cpf_code: Option<String>,
    /// It is one of the UEs of a canary.
    pub(crate) canary: bool,
    /// Allowed slices.
    pub(crate) allowed_slices: Vec<String>,
    /// NAS algorithms in use, `NIA2 NEA2`.
    pub(crate) algorithms: Option<String>,
    /// UE-AMBR as subscribed.
    pub(crate) subscribed_ue_ambr: Option<RatesView>,
    /// UE-AMBR in force: the sum of the session AMBRs of the sessions that have a user plane, up to the subscribed one (TS 23.501
    /// §5.7.2.6).
    pub(crate) ue_ambr: Option<RatesView>,
    /// Timers that run.
    pub(crate) timers: Vec<TimerView>,
    /// Its PDU sessions.
    pub(crate) sessions: Vec<SessionView>,
}

/// A PDU session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionView {
    /// PDU session identity.
    pub(crate) id: u8,
    /// Data network.
    pub(crate) dnn: String,
    /// Slice.
    pub(crate) s_nssai: String,
    /// IPv4 address.
    pub(crate) ipv4: Option<String>,
    /// IPv6 prefix.
    pub(crate) ipv6: Option<String>,
    /// Whether its user plane is up.
    pub(crate) active: bool,
    /// SSC mode, 1 to 3 (TS 23.501 §5.6.9).
    pub(crate) ssc_mode: u8,
    /// The UPF that serves it.
    pub(crate) upf: String,
    /// The UPF's end of the N3 tunnel.
    pub(crate) n3_upf: Option<TunnelView>,
    /// The gNB's end, while the user plane is up.
    pub(crate) n3_gnb: Option<TunnelView>,
    /// Session AMBR.
    pub(crate) ambr: RatesView,
    /// QoS flows, the default one first.
    pub(crate) flows: Vec<FlowView>,
    /// A modification is under way, or waits for the UE.
    pub(crate) changing: bool,
    /// Octets from the UE.
    pub(crate) ul_octets: u64,
    /// Octets to the UE.
    pub(crate) dl_octets: u64,
    /// Of these, octets received over a secondary RAT.
    pub(crate) secondary_rat_ul_octets: u64,
    /// Of these, octets sent over a secondary RAT.
    pub(crate) secondary_rat_dl_octets: u64,
}

/// A pair of rates, in kbit/s (1 kbit = 1000 bit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RatesView {
    /// Uplink.
    pub(crate) ul_kbps: u64,
    /// Downlink.
    pub(crate) dl_kbps: u64,
}

/// One end of a GTP-U tunnel: an F-TEID (TS 29.244 §8.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TunnelView {
    /// TEID in eight hexadecimal digits.
    pub(crate) teid: String,
    /// IP address.
    pub(crate) address: String,
}

/// A QoS flow (TS 23.501 §5.7.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FlowView {
    /// QFI.
    pub(crate) qfi: u8,
    /// The policy that it comes from; empty for the default flow.
    pub(crate) name: String,
    /// 5QI.
    pub(crate) five_qi: u8,
    /// ARP priority level, 1 (highest) to 15.
    pub(crate) arp_priority: u8,
    /// ARP pre-emption capability: it may take resources from others.
    pub(crate) arp_may_preempt: bool,
    /// ARP pre-emption vulnerability: it may lose resources to others.
    pub(crate) arp_preemptable: bool,
    /// GFBR of a GBR flow.
    pub(crate) gfbr: Option<RatesView>,
    /// MFBR of a GBR flow.
    pub(crate) mfbr: Option<RatesView>,
    /// The gate for uplink packets is open.
    pub(crate) ul_open: bool,
    /// The gate for downlink packets is open.
    pub(crate) dl_open: bool,
    /// The gNB has not reported that it cannot fulfil the guaranteed rate.
    pub(crate) fulfilled: bool,
}

/// A timer that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimerView {
    /// Its name: the standard's where it has one.
    pub(crate) name: String,
    /// Its PDU session, if it has one.
    pub(crate) session: Option<u8>,
    /// Seconds until it expires, rounded up.
    pub(crate) left_s: u64,
}

/// Some UEs, and whether there are more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct UePage {
    /// The UEs.
    pub(crate) ues: Vec<UeView>,
    /// The `after` of the next request; absent at the end.
    pub(crate) next: Option<String>,
}

/// A warning message (TS 23.041) and its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WarningView {
    /// Message identifier, 0 to 65535 (TS 23.041 §9.4.1.2.2).
    pub(crate) message_identifier: u16,
    /// Serial number, 0 to 65535.
    pub(crate) serial_number: u16,
    /// `in force`, `over` or `cancelled`.
    pub(crate) state: String,
    /// When it was sent, RFC 3339.
    pub(crate) sent: String,
    /// Where: `everywhere`, tracking areas or cells.
    pub(crate) area: Vec<String>,
    /// Seconds between broadcasts.
    pub(crate) repetition_period_s: u32,
    /// Requested broadcasts; 0: until cancelled.
    pub(crate) broadcasts: u16,
    /// Its outcome at each gNB.
    pub(crate) gnbs: Vec<WarningAtGnb>,
}

/// Outcome of a warning message at a gNB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WarningAtGnb {
    /// Global gNB identifier.
    pub(crate) gnb: String,
    /// In words.
    pub(crate) outcome: String,
}

/// A gNB that the operator has disconnected.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DisconnectedView {
    /// Its name, `gnb-999/70-1`.
    pub(crate) gnb: String,
}

/// Whether OVERLOAD START is in force at gNBs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OverloadView {
    /// It is in force.
    pub(crate) overloaded: bool,
    /// `rule`: the configured thresholds decide; `start` or `stop`: the operator does.
    pub(crate) order: String,
}

/// The state of the prediction of handovers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForesightView {
    /// It is on.
    pub(crate) enabled: bool,
    /// The predictor was trained before; else it learns from the UEs that it follows.
    pub(crate) trained: bool,
    /// gNBs are asked for their containers, so that targets are prepared too.
    pub(crate) early_containers: bool,
    /// UEs that are followed.
    pub(crate) ues: usize,
    /// Cells that are known.
    pub(crate) cells: usize,
    /// Predictions that live.
    pub(crate) live: usize,
    /// The most that live at a time.
    pub(crate) live_max: usize,
    /// Seconds that a prediction lives.
    pub(crate) lifetime_s: u64,
    /// Predictions.
    pub(crate) made: u64,
    /// Handovers to the predicted cell.
    pub(crate) hits: u64,
    /// Handovers to another cell than the predicted one.
    pub(crate) misses: u64,
    /// Handovers to the predicted cell soon after the prediction had expired.
    pub(crate) late: u64,
    /// Predictions that expired.
    pub(crate) expired: u64,
    /// Predictions beyond the bound.
    pub(crate) refused: u64,
    /// Handovers without a prediction.
    pub(crate) unpredicted: u64,
    /// Targets that were prepared.
    pub(crate) prepared: u64,
    /// Mean probability of evaluated predictions.
    pub(crate) probability: f64,
    /// Share of hits among them.
    pub(crate) share: f64,
    /// Predictions have become clearly worse.
    pub(crate) drifts: bool,
}
