//! How keys and their contexts travel between processes of ours (feature `serde`): whole, so the
//! writer has to wipe the octets afterwards, and send them only to a process that may hold the keys.

use whimbrel_ids::{PlmnId, serde_as, serde_as_octets};

use crate::Bearer;
use crate::aka::{Autn, Auts, HresStar, Rand, ResStar, ServingNetworkName};
use crate::keys::{KAmf, KAusf, KNasEnc, KNasInt, KSeaf, Nh};
use crate::milenage::{Ck, Ik, Res};
use crate::nas::{CipheringAlgorithm, IntegrityAlgorithm, NasCount, NasCounts, NasSide};

macro_rules! keys {
    ($($name:ident)*) => {
        serde_as_octets! { $( $name: $name::octets, |v| Some($name::new(v.try_into().ok()?)); )* }
    };
}
keys!(KAmf KAusf KNasEnc KNasInt KSeaf Nh Ck Ik Res ResStar HresStar);

serde_as_octets! {
    Rand: |v: &Rand| v.0, |v| Some(Rand(v.try_into().ok()?));
    Autn: |v: &Autn| v.0, |v| Some(Autn(v.try_into().ok()?));
    Auts: |v: &Auts| v.0, |v| Some(Auts(v.try_into().ok()?));
    ServingNetworkName: ServingNetworkName::octets, serving_network;
}

serde_as! {
    NasCount as u32: |v| v.value(), NasCount::new;
    NasCounts as (u32, u32): |v| (v.uplink_next, v.downlink_next), counts;
    CipheringAlgorithm as u8: |v| v.identity(), CipheringAlgorithm::from_identity;
    IntegrityAlgorithm as u8: |v| v.identity(), IntegrityAlgorithm::from_identity;
    NasSide as bool: |v| *v == NasSide::Ue, |ue| Some(if ue { NasSide::Ue } else { NasSide::Network });
    Bearer as u8: |v| v.value(), Bearer::new;
}

fn counts((uplink_next, downlink_next): (u32, u32)) -> Option<NasCounts> {
    let used_up = NasCount::MAX + 1;
    (uplink_next <= used_up && downlink_next <= used_up).then_some(NasCounts { uplink_next, downlink_next })
}

/// An MNC of two digits reads as one of three, which gives the same name.
fn serving_network(octets: &[u8]) -> Option<ServingNetworkName> {
    let digits = [octets.get(13..16)?, octets.get(6..9)?].concat();
    let plmn: PlmnId = core::str::from_utf8(&digits).ok()?.parse().ok()?;
    let name = ServingNetworkName::new(plmn);
    (name.octets()[..] == *octets).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serving_network_name_is_of_a_network() {
        for plmn in ["999/70", "310/410", "001/01"] {
            let name = ServingNetworkName::new(plmn.parse().unwrap());
            assert_eq!(serving_network(name.octets()), Some(name));
        }
        assert_eq!(serving_network(b"5G:mnc070.mcc999.3gppnetwork.com"), None);
        assert_eq!(serving_network(b"5G:mnc07\xff.mcc999.3gppnetwork.org"), None);
        assert_eq!(serving_network(b"5G:"), None);
    }

    #[test]
    fn a_count_past_its_end_does_not_come_in() {
        assert!(counts((1 << 24, 1 << 24)).is_some());
        assert_eq!(counts(((1 << 24) + 1, 0)), None);
        assert_eq!(counts((0, u32::MAX)), None);
    }
}
