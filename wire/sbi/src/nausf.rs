//! Nausf_UEAuthentication: TS 29.509 §6.1.6.

use crate::common::{
    Base64Octets, CagId, Links, NfGroupId, Pei, RoutingIndicator, Supi, SupiOrSuci, SupportedFeatures, link,
};
use crate::json::BoundedList;
use crate::nudm_ueau::{AuthType, Autn, Rand, ResynchronizationInfo, ServingNetworkName};

/// The longest EAP packet: TS 24.501 §9.11.2.2 has a length of 16 bits, and a NAS message no more than a few kilooctets.
pub const EAP_OCTETS_MAX: usize = 1500;

octets! {
    /// Hash of the expected response. TS 29.509 §6.1.6.3.2.
    pub struct HxresStar(16);
    /// Response of the UE. TS 29.509 §6.1.6.3.2.
    pub struct ResStar(16) redacted;
    /// Anchor key of the serving network: secret. TS 29.509 §6.1.6.3.2.
    pub struct Kseaf(32) redacted;
    /// Master session key of EAP: secret. TS 29.509 §6.1.6.3.2.
    pub struct Msk(64) redacted;
}

/// EAP packet in base64. TS 29.509 §6.1.6.3.2.
pub type EapPayload = Base64Octets<EAP_OCTETS_MAX>;

enumeration! {
    /// Outcome of an authentication. TS 29.509 §6.1.6.3.3.
    pub enum AuthResult: closed {
        Success = "AUTHENTICATION_SUCCESS",
        Failure = "AUTHENTICATION_FAILURE",
        Ongoing = "AUTHENTICATION_ONGOING",
    }
}

object! {
    /// Request for authentication, `POST /ue-authentications`. TS 29.509 §6.1.6.2.2.
    pub struct AuthenticationInfo {
        pub supi_or_suci: SupiOrSuci,
        pub serving_network_name: ServingNetworkName,
        pub resynchronization_info: Option<ResynchronizationInfo>,
        pub pei: Option<Pei>,
        pub udm_group_id: Option<NfGroupId>,
        pub routing_indicator: Option<RoutingIndicator>,
        pub cell_cag_info: Option<BoundedList<CagId>>,
        pub n5gc_ind: Option<bool>,
        pub supported_features: Option<SupportedFeatures>,
        pub nswo_ind: Option<bool>,
        pub disaster_roaming_ind: Option<bool>,
        pub onboarding_ind: Option<bool>,
    }
    /// Challenge with the resource at which it is confirmed. TS 29.509 §6.1.6.2.3.
    pub struct UEAuthenticationCtx {
        pub auth_type: AuthType,
        #[serde(rename = "5gAuthData")]
        pub five_g_auth_data: FiveGAuthData,
        #[serde(rename = "_links")]
        pub links: Links,
        pub serving_network_name: Option<ServingNetworkName>,
    }
    /// Challenge of 5G-AKA. TS 29.509 §6.1.6.2.5.
    pub struct Av5gAka {
        pub rand: Rand,
        pub hxres_star: HxresStar,
        pub autn: Autn,
    }
    /// Response of the UE, `PUT …/5g-aka-confirmation`; null if it gave none. TS 29.509 §6.1.6.2.6.
    pub struct ConfirmationData {
        #[serde(deserialize_with = "nullable")]
        pub res_star: NullableResStar,
        pub supported_features: Option<SupportedFeatures>,
    }
    /// Exchange of EAP packets, `POST …/eap-session`. TS 29.509 §6.1.6.2.7.
    pub struct EapSession {
        pub eap_payload: EapPayload,
        #[serde(rename = "kSeaf")]
        pub kseaf: Option<Kseaf>,
        #[serde(rename = "_links")]
        pub links: Option<Links>,
        pub auth_result: Option<AuthResult>,
        pub supi: Option<Supi>,
        pub supported_features: Option<SupportedFeatures>,
        pub msk: Option<Msk>,
    }
    /// Outcome of a confirmation. TS 29.509 §6.1.6.2.8.
    pub struct ConfirmationDataResponse {
        pub auth_result: AuthResult,
        pub supi: Option<Supi>,
        pub kseaf: Option<Kseaf>,
    }
    /// Context that an AUSF is to remove, `POST /ue-authentications/deregister`. TS 29.509 §6.1.6.2.13.
    pub struct DeregistrationInfo {
        pub supi: Supi,
        pub supported_features: Option<SupportedFeatures>,
    }
}

/// RES*, or null where the UE answered with a failure. A null is written here: the member is mandatory.
type NullableResStar = Option<ResStar>;

fn nullable<'de, D: serde::Deserializer<'de>>(from: D) -> Result<NullableResStar, D::Error> {
    serde::Deserialize::deserialize(from)
}

either! {
    /// Challenge of either method. TS 29.509 §6.1.6.2.4.
    pub enum FiveGAuthData {
        /// Challenge of 5G-AKA.
        FiveGAka(Av5gAka),
        /// EAP packet of EAP-AKA' or EAP-TLS.
        Eap(EapPayload),
    }
}

impl UEAuthenticationCtx {
    /// Relation of the resource that takes RES*.
    pub const FIVE_G_AKA: &str = "5g-aka";
    /// Relation of the resource that takes EAP packets.
    pub const EAP_SESSION: &str = "eap-session";

    /// The resource at which the challenge's method is confirmed.
    pub fn confirmation(&self) -> Option<&crate::common::Uri> {
        let relation = match self.five_g_auth_data {
            FiveGAuthData::FiveGAka(_) => Self::FIVE_G_AKA,
            FiveGAuthData::Eap(_) => Self::EAP_SESSION,
        };
        link(&self.links, relation)
    }
}
