//! Operations on SM contexts (TS 23.502 Table 4.3.2.2.1, TS 29.502).

use std::net::IpAddr;

use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::ie::{
    self, ConfidentialityProtectionIndication, GtpTunnel, IntegrityProtectionIndication,
    MaximumIntegrityProtectedDataRate, PduSessionAggregateMaximumBitRate, QosFlowSetupRequestItem,
    SecurityIndication, TransportLayerAddress, UpTransportLayerInformation,
};
use whimbrel_ngap::transfer::PduSessionResourceSetupRequestTransfer;

use super::qos::level_qos;
use crate::config::UpProtection;
use crate::state::{DEFAULT_QFI, SmContext, Tunnel, bits};

impl SmContext {
    /// The N2 SM information of a setup; `n3`: the core's end of the tunnel.
    pub(super) fn setup_request_transfer(&self, n3: Tunnel) -> PduSessionResourceSetupRequestTransfer {
        let mut flows = vec![QosFlowSetupRequestItem::new(
            DEFAULT_QFI,
            level_qos(self.qos.five_qi, self.qos.arp, None, false),
        )];
        flows.extend(self.qos.flows.iter().map(|f| QosFlowSetupRequestItem::new(f.qfi, f.level_qos())));
        let session_type = match self.session_type {
            PduSessionType::Ipv4 => ie::PduSessionType::Ipv4,
            PduSessionType::Ipv6 => ie::PduSessionType::Ipv6,
            PduSessionType::Ipv4v6 => ie::PduSessionType::Ipv4v6,
            PduSessionType::Ethernet => ie::PduSessionType::Ethernet,
            PduSessionType::Unstructured => ie::PduSessionType::Unstructured,
        };
        let mut transfer = PduSessionResourceSetupRequestTransfer::new(tunnel(n3), session_type, flows);
        transfer.pdu_session_aggregate_maximum_bit_rate = Some(PduSessionAggregateMaximumBitRate::new(
            bits(self.qos.ambr.dl_kbps),
            bits(self.qos.ambr.ul_kbps),
        ));
        transfer.security_indication = self.security_indication();
        transfer
    }

    /// TS 38.413 §9.3.1.27. The rate is included if integrity protection is possible.
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
    Some(Tunnel::of_gnb(information))
}
