//! What the SMF stores of a PDU session (TS 23.502 Table 4.3.2.2.1, TS 29.502).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, Instant, PduSessionId, Qfi, SNssai, Seid, Teid};
use whimbrel_nas::ie::{PduSessionType, SscMode};
use whimbrel_nas::sm::Pti;

use super::qos_flow::{Marks, QosFlow};
use super::subscription::{Ambr, Arp};
use crate::config::UpSecurity;
use crate::policy::{FlowGate, FlowName};
use crate::upf::UpfId;

/// One PDU session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SmContext {
    /// Its identity.
    pub psi: PduSessionId,
    /// Its slice.
    pub s_nssai: SNssai,
    /// Its data network.
    pub dnn: Dnn,
    /// Its type, as granted.
    pub session_type: PduSessionType,
    /// The UE's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The UE's /64 prefix.
    pub ipv6: Option<Ipv6Addr>,
    /// The interface identifier of its link-local address (TS 23.501 §5.8.2.2.3).
    pub interface_id: [u8; 8],
    /// 5QI of the default QoS flow.
    pub five_qi: FiveQi,
    /// Priority of the default QoS flow.
    pub arp: Arp,
    /// Session AMBR.
    pub ambr: Ambr,
    /// QoS flows beside the default one, as UE, gNB and UPF have them.
    pub flows: Vec<QosFlow>,
    /// What its packets to the gNB are marked with.
    pub marks: Marks,
    /// What it is to have and has not yet.
    pub pending_change: Option<Box<PendingChange>>,
    /// Packet filters that the UE can hold (TS 24.501 §9.11.4.9).
    pub filters_max: u16,
    /// The UPF that has it.
    pub upf: UpfId,
    /// Our name of it towards the UPF.
    pub cp_seid: Seid,
    /// The UPF's session; none before N4 was set up.
    pub up_seid: Option<Seid>,
    /// Where the gNB sends uplink packets.
    pub n3: Option<Tunnel>,
    /// Where the gNB awaits downlink packets, while it does; a session at rest holds no memory for it.
    pub an: Option<Box<Tunnel>>,
    /// Packets of it are forwarded between its gNBs, by so many rules of the UPF; none: directly.
    pub forwarding: Option<u8>,
    /// Whether packets can flow.
    pub up: UpState,
    /// Its UPF prepares for the UE to leave for another gNB. That of no UE at rest does, so no checkpoint has it.
    #[serde(skip)]
    pub departing: bool,
    /// Downlink packets wait for a UE that is idle.
    pub awaited: bool,
    /// Whether its anchor stays (TS 23.501 §5.6.9).
    pub ssc_mode: SscMode,
    /// When it ends: never, but in SSC mode 3, once the UE was asked to set up the session that replaces it (TS 23.502 §4.3.5.2).
    pub until: Instant,
    /// Its user plane is set up whenever the UE returns (TS 23.501 §5.6.13).
    pub always_on: bool,
    /// The UE learns rules by reflective QoS (RQoS, TS 24.501 §9.11.4.1).
    pub reflects: bool,
    /// The UE's radio protects integrity at any rate, not at 64 kbit/s only (TS 24.501 §9.11.4.7).
    pub full_rate_integrity: bool,
    /// The transaction of the 5GSM message that the UE is to complete.
    pub pti: Pti,
    /// Octets that the UPF reported, uplink and downlink.
    pub usage: (u64, u64),
    /// Which of its reports are in that.
    pub counted: Option<Box<Counted>>,
    /// Of what it used, the octets that gNBs sent over a secondary radio, uplink and downlink.
    pub secondary_usage: Option<Box<(u64, u64)>>,
    /// It is an emergency session.
    pub emergency: bool,
    /// How its user plane is to be protected, for as long as it stands (TS 33.501 §6.6.1); none: as gNBs see fit.
    pub up_security: Option<UpSecurity>,
}

impl SmContext {
    /// The UE was asked to set up the session that replaces it.
    pub fn is_leaving(&self) -> bool {
        self.until != Instant::FAR_FUTURE
    }

    /// A gNB takes its packets at this tunnel.
    pub(crate) fn active_at(&mut self, an: Tunnel) {
        (self.up, self.an, self.departing, self.awaited) = (UpState::Active, Some(an.into()), false, false);
    }

    /// No gNB takes its packets.
    pub(crate) fn inactive(&mut self) {
        (self.up, self.an, self.departing) = (UpState::Inactive, None, false);
    }

    /// The flow of this identifier, if it is none but the default one.
    pub fn flow(&self, qfi: Qfi) -> Option<&QosFlow> {
        self.flows.iter().find(|f| f.qfi == qfi)
    }
}

/// One end of a GTP-U tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Its identifier.
    pub teid: Teid,
    /// Where it is.
    pub address: IpAddr,
}

/// The user plane of a session (TS 23.501 §5.6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpState {
    /// Being set up for the first time.
    Establishing,
    /// Packets flow.
    Active,
    /// Downlink packets wait in the UPF.
    Inactive,
}

/// Which reports of a session were counted: the newest one, and those before it. They may come in another order than they
/// were made in, the answer to a modification before a report on its way, and a UPF may say one again under another
/// sequence number of PFCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub(crate) newest: u32,
    /// The lowest bit is the one just before the newest.
    pub(crate) before: u64,
}

/// What a session is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingChange {
    /// Its QoS flows beside the default one.
    pub flows: Vec<QosFlow>,
    /// Its AMBR.
    pub ambr: Ambr,
    /// 5QI of its default QoS flow.
    pub five_qi: FiveQi,
    /// Priority of its default QoS flow.
    pub arp: Arp,
    /// The UE was asked to set up the session that replaces it (TS 23.502 §4.3.5.2).
    pub leaving: bool,
}

impl PendingChange {
    /// What a session has.
    pub(crate) fn of(s: &SmContext) -> Self {
        let (ambr, five_qi, arp) = (s.ambr, s.five_qi, s.arp);
        Self { flows: s.flows.clone(), ambr, five_qi, arp, leaving: s.is_leaving() }
    }
}

/// What an operator changes in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Modification {
    /// Sets up the flow that the policy has under this name.
    AddFlow(FlowName),
    /// Takes down the flow of this name.
    RemoveFlow(FlowName),
    /// Gives it this AMBR.
    Ambr(Ambr),
    /// Moves a session of SSC mode 2 or 3 to another anchor: it is released, and the UE asks anew (TS 23.502 §4.3.5.1); or
    /// the UE asks for its successor first (TS 23.502 §4.3.5.2).
    Reanchor,
    /// Opens or closes the gates of the flow of this name (TS 29.244 §5.4.3).
    Gate(FlowName, FlowGate),
    /// Lets its user plane go; the UE stays connected (TS 23.502 §4.3.7).
    Deactivate,
    /// Ends it (TS 23.502 §4.3.4.2 step 1e).
    Release,
}
