//! Nudm_UEAuthentication: TS 29.503 §6.3.6.

use core::fmt;
use core::str::FromStr;

use crate::common::{
    CagId, DateTime, NfInstanceId, NfSetId, RoutingIndicator, Supi, SupportedFeatures, hex_of_length,
};
use crate::json::{BoundedList, WrongValue, write_hex};

octets! {
    /// RAND of an authentication vector. TS 29.503 §6.3.6.3.2.
    pub struct Rand(16);
    /// AUTN of an authentication vector. TS 29.503 §6.3.6.3.2.
    pub struct Autn(16);
    /// AUTS of a resynchronisation. TS 29.503 §6.3.6.3.2.
    pub struct Auts(14);
    /// Expected response of 5G-AKA: secret until the UE has sent its own. TS 29.503 §6.3.6.3.2.
    pub struct XresStar(16) redacted;
    /// Key of the AUSF: secret. TS 29.503 §6.3.6.3.2.
    pub struct Kausf(32) redacted;
    /// CK': secret. TS 29.503 §6.3.6.3.2.
    pub struct CkPrime(16) redacted;
    /// IK': secret. TS 29.503 §6.3.6.3.2.
    pub struct IkPrime(16) redacted;
}

text! {
    /// Name of the serving network, to which keys are bound (TS 24.501 §9.12.1). TS 29.503 §6.3.6.3.2.
    pub struct ServingNetworkName(64, is_serving_network, "a serving network name such as 5G:mnc070.mcc999.3gppnetwork.org");
}

fn is_serving_network(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("5G:") else { return false };
    if rest == "NSWO" {
        return true;
    }
    let (network, nid) = match rest.split_once(':') {
        Some((network, nid)) => (network, Some(nid)),
        None => (rest, None),
    };
    let three_digits = |part: &str, name: &str| {
        part.strip_prefix(name).is_some_and(|d| d.len() == 3 && d.bytes().all(|c| c.is_ascii_digit()))
    };
    let mut parts = network.split('.');
    parts.next().is_some_and(|mnc| three_digits(mnc, "mnc"))
        && parts.next().is_some_and(|mcc| three_digits(mcc, "mcc"))
        && parts.eq(["3gppnetwork", "org"])
        && nid.is_none_or(|nid| nid.len() == 11 && nid.bytes().all(|c| c.is_ascii_hexdigit()))
}

impl ServingNetworkName {
    /// The name of a public network: TS 24.501 §9.12.1 pads an MNC of two digits.
    pub fn of_plmn(plmn: whimbrel_ids::PlmnId) -> Self {
        let [a, b, c] = plmn.mcc();
        let (mnc, n) = plmn.mnc();
        let [d, e, f] = if n == 2 { [0, mnc[0], mnc[1]] } else { mnc };
        Self(format!("5G:mnc{d}{e}{f}.mcc{a}{b}{c}.3gppnetwork.org").into())
    }
}

/// Expected response of EAP-AKA', 4 to 16 octets: secret until the UE has sent its own. TS 29.503 §6.3.6.3.2.
#[derive(Clone, PartialEq, Eq)]
pub struct Xres(Box<[u8]>);

impl Xres {
    /// `None` unless there are 4 to 16 octets.
    pub fn new(octets: &[u8]) -> Option<Self> {
        (4..=16).contains(&octets.len()).then(|| Self(octets.into()))
    }

    /// The octets themselves.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Xres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Xres(…)")
    }
}

impl fmt::Display for Xres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl FromStr for Xres {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        let octets = hex_of_length(text, 4, 16)
            .ok_or(WrongValue { expected: "hexadecimal digits of 4 to 16 octets" })?;
        Ok(Self(octets.into()))
    }
}

crate::macros::serde_as_text!(Xres);

enumeration! {
    /// Method of authentication. TS 29.503 §6.3.6.3.3.
    pub enum AuthType: extensible {
        FiveGAka = "5G_AKA",
        EapAkaPrime = "EAP_AKA_PRIME",
        EapTls = "EAP_TLS",
        None = "NONE",
        EapTtls = "EAP_TTLS",
    }
    /// Kind of an authentication vector. TS 29.503 §6.3.6.3.4.
    pub enum AvType: extensible {
        FiveGHeAka = "5G_HE_AKA",
        EapAkaPrime = "EAP_AKA_PRIME",
    }
}

object! {
    /// Request for an authentication vector, `POST /{supiOrSuci}/security-information/generate-auth-data`. TS 29.503 §6.3.6.2.2.
    pub struct AuthenticationInfoRequest {
        pub supported_features: Option<SupportedFeatures>,
        pub serving_network_name: ServingNetworkName,
        pub resynchronization_info: Option<ResynchronizationInfo>,
        pub ausf_instance_id: NfInstanceId,
        pub cell_cag_info: Option<BoundedList<CagId>>,
        pub n5gc_ind: Option<bool>,
        pub nswo_ind: Option<bool>,
        pub disaster_roaming_ind: Option<bool>,
    }
    /// Authentication vector with the SUPI. TS 29.503 §6.3.6.2.3.
    pub struct AuthenticationInfoResult {
        pub auth_type: AuthType,
        pub supported_features: Option<SupportedFeatures>,
        pub authentication_vector: Option<AuthenticationVector>,
        pub supi: Option<Supi>,
        pub akma_ind: Option<bool>,
        pub auth_aaa: Option<bool>,
        pub routing_id: Option<RoutingIndicator>,
    }
    /// Vector of EAP-AKA'. TS 29.503 §6.3.6.2.4.
    pub struct AvEapAkaPrime {
        pub av_type: AvType,
        pub rand: Rand,
        pub xres: Xres,
        pub autn: Autn,
        pub ck_prime: CkPrime,
        pub ik_prime: IkPrime,
    }
    /// Vector of the home environment for 5G-AKA. TS 29.503 §6.3.6.2.5.
    pub struct Av5GHeAka {
        pub av_type: AvType,
        pub rand: Rand,
        pub xres_star: XresStar,
        pub autn: Autn,
        pub kausf: Kausf,
    }
    /// RAND that a UE answered with AUTS. TS 29.503 §6.3.6.2.6.
    pub struct ResynchronizationInfo {
        pub rand: Rand,
        pub auts: Auts,
    }
    /// Outcome of an authentication, `POST /{supi}/auth-events`. TS 29.503 §6.3.6.2.7.
    pub struct AuthEvent {
        pub nf_instance_id: NfInstanceId,
        pub success: bool,
        pub time_stamp: DateTime,
        pub auth_type: AuthType,
        pub serving_network_name: ServingNetworkName,
        pub auth_removal_ind: Option<bool>,
        pub nf_set_id: Option<NfSetId>,
    }
}

either! {
    /// Vector of either method. TS 29.503 §6.3.6.2.8.
    pub enum AuthenticationVector {
        /// Vector for EAP-AKA'.
        EapAkaPrime(AvEapAkaPrime),
        /// Vector for 5G-AKA.
        FiveGHeAka(Av5GHeAka),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 24.501 §9.12.1: the MNC has three digits
    fn serving_network_names_are_padded_and_checked() {
        let name = ServingNetworkName::of_plmn("999/70".parse().unwrap());
        assert_eq!(name.as_str(), "5G:mnc070.mcc999.3gppnetwork.org");
        assert_eq!(ServingNetworkName::new(name.as_str()), Ok(name));
        assert!(ServingNetworkName::new("5G:mnc070.mcc999.3gppnetwork.org:0123456789A").is_ok());
        assert!(ServingNetworkName::new("5G:NSWO").is_ok());
        for wrong in [
            "5G:mnc70.mcc999.3gppnetwork.org",
            "mnc070.mcc999.3gppnetwork.org",
            "5G:mnc070.mcc999.3gppnetwork.org.",
            "5G:mnc070.mcc999.3gppnetwork.org:1",
        ] {
            assert!(ServingNetworkName::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test] // TS 33.501 §6.1.3.2: keys and expected responses are secrets
    fn debug_shows_no_secret() {
        let vector = Av5GHeAka {
            av_type: AvType::FiveGHeAka,
            rand: Rand([1; 16]),
            xres_star: XresStar([0x55; 16]),
            autn: Autn([2; 16]),
            kausf: Kausf([0x66; 32]),
        };
        let text = format!("{vector:?} {:?} {:?}", Xres::new(&[0x55; 4]), CkPrime([0x66; 16]));
        assert!(!text.contains("55") && !text.contains("66") && text.contains("0101"), "{text}");
    }
}
