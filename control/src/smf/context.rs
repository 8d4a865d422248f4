//! What the SMF knows of a session (TS 23.502 Table 4.3.2.2.1, TS 29.502).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, Instant, PduSessionId, Qfi, SNssai, Seid, Teid};
use whimbrel_nas::ie::{PduSessionType, SscMode};
use whimbrel_nas::sm::Pti;
use whimbrel_ngap::ie::{
    self, ConfidentialityProtectionIndication, GtpTunnel, IntegrityProtectionIndication,
    MaximumIntegrityProtectedDataRate, PduSessionAggregateMaximumBitRate, QosFlowSetupRequestItem,
    SecurityIndication, TransportLayerAddress, UpTransportLayerInformation,
};
use whimbrel_ngap::transfer::PduSessionResourceSetupRequestTransfer;

use super::marking::Marks;
use super::qos::{QosFlow, level_qos};
use super::usage::Counted;
use super::wanted::Wanted;
use crate::amf::bits;
use crate::config::{UpProtection, UpSecurity};
use crate::udm::{Ambr, Arp};
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
    pub wanted: Option<Box<Wanted>>,
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
    /// Its UPF was told that the UE leaves for another gNB. That of no UE at rest was, so no checkpoint has it.
    #[serde(skip)]
    pub departing: bool,
    /// Downlink packets wait for a UE that is idle.
    pub awaited: bool,
    /// Whether its anchor stays (TS 23.501 §5.6.9).
    pub ssc_mode: SscMode,
    /// When it ends: never, but in SSC mode 3, once the UE was told to set its successor up (TS 23.502 §4.3.5.2).
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

/// The QoS flow that every session has. Its identifier is ours to choose (TS 23.501 §5.7.1.3).
pub(crate) const DEFAULT_QFI: Qfi = match Qfi::new(1) {
    Some(qfi) => qfi,
    None => panic!("1 is a QFI"),
};

impl SmContext {
    /// The UE was told to set its successor up.
    pub fn is_leaving(&self) -> bool {
        self.until != Instant::FAR_FUTURE
    }

    /// A gNB takes its packets at this tunnel.
    pub(super) fn active_at(&mut self, an: Tunnel) {
        (self.up, self.an, self.departing, self.awaited) = (UpState::Active, Some(an.into()), false, false);
    }

    /// No gNB takes its packets.
    pub(super) fn inactive(&mut self) {
        (self.up, self.an, self.departing) = (UpState::Inactive, None, false);
    }

    /// The N2 SM information of a setup; `None` before the UPF has given its tunnel.
    pub(super) fn setup_request_transfer(&self) -> Option<PduSessionResourceSetupRequestTransfer> {
        let n3 = self.n3?;
        let mut flows =
            vec![QosFlowSetupRequestItem::new(DEFAULT_QFI, level_qos(self.five_qi, self.arp, None, false))];
        flows.extend(self.flows.iter().map(|f| QosFlowSetupRequestItem::new(f.qfi, f.level_qos())));
        let session_type = match self.session_type {
            PduSessionType::Ipv4 => ie::PduSessionType::Ipv4,
            PduSessionType::Ipv6 => ie::PduSessionType::Ipv6,
            PduSessionType::Ipv4v6 => ie::PduSessionType::Ipv4v6,
            PduSessionType::Ethernet => ie::PduSessionType::Ethernet,
            PduSessionType::Unstructured => ie::PduSessionType::Unstructured,
        };
        let mut transfer = PduSessionResourceSetupRequestTransfer::new(tunnel(n3), session_type, flows);
        transfer.pdu_session_aggregate_maximum_bit_rate =
            Some(PduSessionAggregateMaximumBitRate::new(bits(self.ambr.dl_kbps), bits(self.ambr.ul_kbps)));
        transfer.security_indication = self.security_indication();
        Some(transfer)
    }

    /// TS 38.413 §9.3.1.27. The rate is told where integrity may be protected.
    pub(super) fn security_indication(&self) -> Option<SecurityIndication> {
        let s = self.up_security?;
        let integrity = match s.integrity {
            UpProtection::Required => IntegrityProtectionIndication::Required,
            UpProtection::Preferred => IntegrityProtectionIndication::Preferred,
            UpProtection::NotNeeded => IntegrityProtectionIndication::NotNeeded,
        };
        let confidentiality = match s.confidentiality {
            UpProtection::Required => ConfidentialityProtectionIndication::Required,
            UpProtection::Preferred => ConfidentialityProtectionIndication::Preferred,
            UpProtection::NotNeeded => ConfidentialityProtectionIndication::NotNeeded,
        };
        let mut indication = SecurityIndication::new(integrity, confidentiality);
        let rate = if self.full_rate_integrity {
            MaximumIntegrityProtectedDataRate::MaximumUeRate
        } else {
            MaximumIntegrityProtectedDataRate::Bitrate64kbs
        };
        indication.maximum_integrity_protected_data_rate_ul =
            (s.integrity != UpProtection::NotNeeded).then_some(rate);
        Some(indication)
    }
}

/// A tunnel in the form of NGAP.
pub(super) fn tunnel(t: Tunnel) -> UpTransportLayerInformation {
    let address = match t.address {
        IpAddr::V4(a) => TransportLayerAddress::V4(a),
        IpAddr::V6(a) => TransportLayerAddress::V6(a),
    };
    UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(address, t.teid))
}

/// The gNB's end of a tunnel; IPv4 where it offers both.
pub(super) fn an_tunnel(information: &UpTransportLayerInformation) -> Option<Tunnel> {
    let UpTransportLayerInformation::GtpTunnel(t) = information;
    let address = match t.transport_layer_address {
        TransportLayerAddress::V4(a) | TransportLayerAddress::V4V6(a, _) => IpAddr::V4(a),
        TransportLayerAddress::V6(a) => IpAddr::V6(a),
    };
    Some(Tunnel { teid: t.gtp_teid, address })
}
