//! What the SMF stores of a PDU session (TS 23.502 Table 4.3.2.2.1, TS 29.502).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, Instant, PduSessionId, Qfi, SNssai, Seid, Teid};
use whimbrel_nas::ie::{PduSessionType, SscMode};
use whimbrel_nas::sm::Pti;
use whimbrel_ngap::ie::{TransportLayerAddress, UpTransportLayerInformation};

use super::qos_flow::{Marks, QosFlow};
use super::session_charging::SessionCharging;
use super::session_policy::SessionPolicy;
use super::subscription::{Ambr, Arp};
use crate::config::UpSecurity;
use crate::policy::{FlowGate, FlowName};
use crate::upf::UpfId;

/// One PDU session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SmContext {
    /// Identity of the session.
    pub psi: PduSessionId,
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// Its data network.
    pub dnn: Dnn,
    /// Its type, as granted.
    pub session_type: PduSessionType,
    /// The addresses of the UE.
    pub address: UeAddress,
    /// Its QoS, as UE, gNB and UPF have it.
    pub qos: SessionQos,
    /// The UPF that has it.
    pub upf: UpfId,
    /// The CP SEID.
    pub cp_seid: Seid,
    /// The UP SEID; none before N4 was set up.
    pub up_seid: Option<Seid>,
    /// The UPF's end of the N3 tunnel.
    pub n3: Option<Tunnel>,
    /// The gNB's end of the N3 tunnel, while there is a user plane; boxed, so that an inactive session needs no memory
    /// for it.
    pub an: Option<Box<Tunnel>>,
    /// Forwarding during a handover: the number of forwarding rules at the UPF; none: direct forwarding.
    pub forwarding: Option<u8>,
    /// The state of the user plane.
    pub up: UpState,
    /// The UPF is being prepared for a handover. A checkpoint never has it, as the UE is not idle.
    #[serde(skip)]
    pub departing: bool,
    /// Downlink packets wait for a UE that is idle.
    pub awaited: bool,
    /// SSC mode (TS 23.501 §5.6.9).
    pub ssc_mode: SscMode,
    /// When it ends: only in SSC mode 3, once the UE was asked to set up the session that replaces it (TS 23.502 §4.3.5.2).
    pub until: Instant,
    /// Always-on PDU session (TS 23.501 §5.6.13).
    pub always_on: bool,
    /// The UE supports integrity protection at full rate, not only at 64 kbit/s (TS 24.501 §9.11.4.7).
    pub full_rate_integrity: bool,
    /// The transaction of the 5GSM message that the UE is to complete.
    pub pti: Pti,
    /// What was reported of its traffic.
    pub usage: SessionUsage,
    /// An emergency session.
    pub emergency: bool,
    /// User plane security policy, for the lifetime of the session (TS 33.501 §6.6.1); none: the gNB decides.
    pub up_security: Option<UpSecurity>,
    /// Charging by the CHF; boxed, since most sessions are not charged.
    pub charging: Option<Box<SessionCharging>>,
    /// Policies of a PCF. None: those of the data network and of the subscriber.
    pub policy: Option<Box<SessionPolicy>>,
}

/// The addresses of a UE in one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeAddress {
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The /64 prefix.
    pub ipv6: Option<Ipv6Addr>,
    /// The interface identifier of its link-local address (TS 23.501 §5.8.2.2.3).
    pub interface_id: [u8; 8],
}

/// The QoS of a session (TS 23.501 §5.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionQos {
    /// 5QI of the default QoS flow.
    pub five_qi: FiveQi,
    /// Priority of the default QoS flow.
    pub arp: Arp,
    /// Session AMBR in both directions.
    pub ambr: Ambr,
    /// QoS flows beside the default one.
    pub flows: Vec<QosFlow>,
    /// The outer DSCPs of its packets to the gNB.
    pub marks: Marks,
    /// The pending change.
    pub pending_change: Option<Box<PendingChange>>,
    /// Packet filters that the UE supports (TS 24.501 §9.11.4.9).
    pub filters_max: u16,
    /// The UE supports reflective QoS (RQoS, TS 24.501 §9.11.4.1).
    pub reflects: bool,
}

/// What UPF and gNB reported of a session's traffic, in octets, uplink and downlink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUsage {
    /// By the UPF.
    pub octets: (u64, u64),
    /// The reports that are counted in it.
    pub counted: Option<Box<CountedReports>>,
    /// The part of it over a secondary RAT.
    pub secondary: Option<Box<(u64, u64)>>,
}

impl SmContext {
    /// The UE was asked to set up the session that replaces it.
    pub fn is_leaving(&self) -> bool {
        self.until != Instant::FAR_FUTURE
    }

    /// Sets the downlink tunnel.
    pub(crate) fn active_at(&mut self, an: Tunnel) {
        (self.up, self.an, self.departing, self.awaited) = (UpState::Active, Some(an.into()), false, false);
    }

    /// Clears the downlink tunnel.
    pub(crate) fn inactive(&mut self) {
        (self.up, self.an, self.departing) = (UpState::Inactive, None, false);
    }

    /// The flow with this identifier, except the default flow.
    pub fn flow(&self, qfi: Qfi) -> Option<&QosFlow> {
        self.qos.flows.iter().find(|f| f.qfi == qfi)
    }
}

/// One end of a GTP-U tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Identifier of the tunnel's end.
    pub teid: Teid,
    /// Where it is.
    pub address: IpAddr,
}

impl Tunnel {
    /// The gNB's end of a tunnel; IPv4 where it offers both.
    pub(crate) fn of_gnb(information: &UpTransportLayerInformation) -> Self {
        let UpTransportLayerInformation::GtpTunnel(t) = information;
        let address = match t.transport_layer_address {
            TransportLayerAddress::V4(a) | TransportLayerAddress::V4V6(a, _) => IpAddr::V4(a),
            TransportLayerAddress::V6(a) => IpAddr::V6(a),
        };
        Self { teid: t.gtp_teid, address }
    }
}

/// The user plane of a session (TS 23.501 §5.6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpState {
    /// Being set up for the first time.
    Establishing,
    /// Packets flow in both directions.
    Active,
    /// Downlink packets wait in the UPF.
    Inactive,
}

/// Which usage reports of a session were counted: the newest, and a window before it. Reports may arrive out of order,
/// and a UPF may repeat one under another PFCP sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedReports {
    pub(crate) newest: u32,
    /// The lowest bit is for the report just before the newest.
    pub(crate) before: u64,
}

/// The target state of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingChange {
    /// Its QoS flows beside the default one.
    pub flows: Vec<QosFlow>,
    /// The session's new AMBR.
    pub ambr: Ambr,
    /// 5QI of its default QoS flow.
    pub five_qi: FiveQi,
    /// Priority of its default QoS flow.
    pub arp: Arp,
    /// The UE was asked to set up the session that replaces it (TS 23.502 §4.3.5.2).
    pub leaving: bool,
}

impl PendingChange {
    /// The present state of a session.
    pub(crate) fn of(s: &SmContext) -> Self {
        let (ambr, five_qi, arp) = (s.qos.ambr, s.qos.five_qi, s.qos.arp);
        Self { flows: s.qos.flows.clone(), ambr, five_qi, arp, leaving: s.is_leaving() }
    }
}

/// An operator's change of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Modification {
    /// Sets up the policy's flow of this name.
    AddFlow(FlowName),
    /// Removes the flow of this name.
    RemoveFlow(FlowName),
    /// Sets the session AMBR.
    Ambr(Ambr),
    /// Moves a session of SSC mode 2 or 3 to another anchor: mode 2 releases it, and the UE sets it up again (TS 23.502
    /// §4.3.5.1); in mode 3 the UE sets up the new session first (TS 23.502 §4.3.5.2).
    Reanchor,
    /// Opens or closes the gates of the flow of this name (TS 29.244 §5.4.3).
    Gate(FlowName, FlowGate),
    /// Deactivates its user plane; the UE stays connected (TS 23.502 §4.3.7).
    Deactivate,
    /// Releases it (TS 23.502 §4.3.4.2 step 1e).
    Release,
}
