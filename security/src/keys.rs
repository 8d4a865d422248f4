//! The key hierarchy of TS 33.501 §6.2.2 and Annex A; the horizontal K_AMF of TS 33.501 §6.9.3.
//!
//! K → CK, IK → K_AUSF → K_SEAF → K_AMF → K_NASenc, K_NASint, K_gNB, NH, K_N3IWF. Each arrow is one function here;
//! those of K_AUSF and RES*, which need the vector, are in [`crate::aka`].

use whimbrel_ids::Supi;

use crate::aka::ServingNetworkName;
use crate::kdf::{kdf, low_128};
use crate::nas::{CipheringAlgorithm, IntegrityAlgorithm, NasCount};
use crate::secret::secret;

secret!(
    /// The key that the home network keeps of an authentication.
    KAusf,
    32
);
secret!(
    /// The anchor key of the serving network.
    KSeaf,
    32
);
secret!(
    /// The key of the access and mobility management function.
    KAmf,
    32
);
secret!(
    /// The key under which NAS is ciphered.
    KNasEnc,
    16
);
secret!(
    /// The key under which NAS is protected in its integrity.
    KNasInt,
    16
);
secret!(
    /// The key of a gNB, also K_NG-RAN* after a handover.
    KGnb,
    32
);
secret!(
    /// Next hop parameter for the forward security of handovers.
    Nh,
    32
);
secret!(
    /// The key of a non-3GPP interworking function.
    KN3iwf,
    32
);
secret!(
    /// The key under which RRC is ciphered.
    KRrcEnc,
    16
);
secret!(
    /// The key under which RRC is protected in its integrity.
    KRrcInt,
    16
);
secret!(
    /// The key under which user data is ciphered.
    KUpEnc,
    16
);
secret!(
    /// The key under which user data is protected in its integrity.
    KUpInt,
    16
);

/// Anti-bidding-down between architectures (TS 33.501 Annex A.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abba(pub [u8; 2]);

impl Abba {
    /// The value of this release.
    pub const RELEASE_15: Abba = Abba([0, 0]);
}

/// Access type distinguisher (TS 33.501 Annex A.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessType {
    /// 3GPP access: the derived key is K_gNB.
    ThreeGpp,
    /// Non-3GPP access: the derived key is K_N3IWF, K_TNGF or another key for non-3GPP access.
    NonThreeGpp,
}

impl AccessType {
    const fn distinguisher(self) -> u8 {
        match self {
            AccessType::ThreeGpp => 1,
            AccessType::NonThreeGpp => 2,
        }
    }
}

// Algorithm type distinguishers of Annex A.8, table A.8-1.
const N_NAS_ENC_ALG: u8 = 1;
const N_NAS_INT_ALG: u8 = 2;
const N_RRC_ENC_ALG: u8 = 3;
const N_RRC_INT_ALG: u8 = 4;
const N_UP_ENC_ALG: u8 = 5;
const N_UP_INT_ALG: u8 = 6;

impl KAusf {
    /// K_SEAF (Annex A.6).
    pub fn k_seaf(&self, serving_network: &ServingNetworkName) -> KSeaf {
        KSeaf::new(kdf(self.octets(), 0x6c, &[serving_network.octets()]))
    }
}

impl KSeaf {
    /// K_AMF (Annex A.7); the SUPI is the input without the prefix for its type.
    pub fn k_amf(&self, supi: Supi, abba: Abba) -> KAmf {
        KAmf::new(kdf(self.octets(), 0x6d, &[supi.value().as_bytes(), &abba.0]))
    }
}

impl KAmf {
    /// K_NASenc of the selected algorithm (Annex A.8).
    pub fn k_nas_enc(&self, algorithm: CipheringAlgorithm) -> KNasEnc {
        KNasEnc::new(algorithm_key(self.octets(), N_NAS_ENC_ALG, algorithm.identity()))
    }

    /// K_NASint of the selected algorithm (Annex A.8).
    pub fn k_nas_int(&self, algorithm: IntegrityAlgorithm) -> KNasInt {
        KNasInt::new(algorithm_key(self.octets(), N_NAS_INT_ALG, algorithm.identity()))
    }

    /// K_gNB from the uplink NAS COUNT of the message that leads to it (Annex A.9).
    pub fn k_gnb(&self, uplink: NasCount) -> KGnb {
        KGnb::new(self.access_key(uplink, AccessType::ThreeGpp))
    }

    /// K_N3IWF, likewise (Annex A.9).
    pub fn k_n3iwf(&self, uplink: NasCount) -> KN3iwf {
        KN3iwf::new(self.access_key(uplink, AccessType::NonThreeGpp))
    }

    /// The first NH, from K_gNB (Annex A.10).
    pub fn first_nh(&self, k_gnb: &KGnb) -> Nh {
        Nh::new(kdf(self.octets(), 0x6f, &[k_gnb.octets()]))
    }

    /// The NH after `nh` (Annex A.10).
    pub fn next_nh(&self, nh: &Nh) -> Nh {
        Nh::new(kdf(self.octets(), 0x6f, &[nh.octets()]))
    }

    /// K_AMF' for the target AMF of a mobility registration, from the uplink COUNT of its request (Annex A.13).
    pub fn for_mobility_registration(&self, uplink: NasCount) -> KAmf {
        KAmf::new(kdf(self.octets(), 0x72, &[&[0], &uplink.octets()]))
    }

    /// K_AMF' for the target AMF of an N2 handover, from the downlink COUNT (Annex A.13).
    pub fn for_handover(&self, downlink: NasCount) -> KAmf {
        KAmf::new(kdf(self.octets(), 0x72, &[&[1], &downlink.octets()]))
    }

    fn access_key(&self, uplink: NasCount, access: AccessType) -> [u8; 32] {
        kdf(self.octets(), 0x6e, &[&uplink.octets(), &[access.distinguisher()]])
    }
}

impl KGnb {
    /// K_NG-RAN* by horizontal derivation towards the gNB of this cell (Annex A.11).
    ///
    /// `arfcn_dl` has 24 bits; wider values lose their upper bits.
    pub fn k_ng_ran_star(&self, pci: u16, arfcn_dl: u32) -> KGnb {
        ng_ran_star(self.octets(), pci, arfcn_dl)
    }

    /// K_RRCenc of the selected algorithm (Annex A.8).
    pub fn k_rrc_enc(&self, algorithm: CipheringAlgorithm) -> KRrcEnc {
        KRrcEnc::new(algorithm_key(self.octets(), N_RRC_ENC_ALG, algorithm.identity()))
    }

    /// K_RRCint of the selected algorithm (Annex A.8).
    pub fn k_rrc_int(&self, algorithm: IntegrityAlgorithm) -> KRrcInt {
        KRrcInt::new(algorithm_key(self.octets(), N_RRC_INT_ALG, algorithm.identity()))
    }

    /// K_UPenc of the selected algorithm (Annex A.8).
    pub fn k_up_enc(&self, algorithm: CipheringAlgorithm) -> KUpEnc {
        KUpEnc::new(algorithm_key(self.octets(), N_UP_ENC_ALG, algorithm.identity()))
    }

    /// K_UPint of the selected algorithm (Annex A.8).
    pub fn k_up_int(&self, algorithm: IntegrityAlgorithm) -> KUpInt {
        KUpInt::new(algorithm_key(self.octets(), N_UP_INT_ALG, algorithm.identity()))
    }
}

impl Nh {
    /// K_NG-RAN* by vertical derivation towards the gNB of this cell (Annex A.11); see [`KGnb::k_ng_ran_star`].
    pub fn k_ng_ran_star(&self, pci: u16, arfcn_dl: u32) -> KGnb {
        ng_ran_star(self.octets(), pci, arfcn_dl)
    }
}

fn ng_ran_star(key: &[u8; 32], pci: u16, arfcn_dl: u32) -> KGnb {
    let [_, a, b, c] = arfcn_dl.to_be_bytes();
    KGnb::new(kdf(key, 0x70, &[&pci.to_be_bytes(), &[a, b, c]]))
}

/// The derivation of TS 33.501 Annex A.8.
fn algorithm_key(key: &[u8; 32], distinguisher: u8, identity: u8) -> [u8; 16] {
    low_128(kdf(key, 0x69, &[&[distinguisher], &[identity]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aka::{AuthenticationManagementField, AuthenticationVector, Rand};
    use crate::milenage::{K, Milenage, Opc};
    use crate::nas::{CipheringAlgorithm as C, IntegrityAlgorithm as I};
    use crate::sqn::Sqn;
    use crate::testing::{bytes, lines, octets};

    fn number(hex: &str) -> u32 {
        u32::from_str_radix(hex, 16).unwrap()
    }

    #[test] // TS 33.501 §6.2.2, §6.9.3: each arrow of Annex A, against testdata/hierarchy.py
    fn every_key_is_that_of_another_implementation() {
        let cases = lines(include_str!("../testdata/hierarchy.txt"));
        assert_eq!(cases.len(), 12);
        for case in &cases {
            let fields = case.fields::<35>();
            let (input, expected) = fields.split_at(11);
            let &[k, opc, rand, sqn, amf, plmn, supi, abba, count, pci, arfcn] = input else {
                unreachable!()
            };
            let milenage = Milenage::new(&K::new(octets(k)), Opc::new(octets(opc))).into();
            let name = ServingNetworkName::new(plmn.parse().unwrap());
            let (rand, amf) = (Rand(octets(rand)), AuthenticationManagementField(octets(amf)));
            let v =
                AuthenticationVector::generate(&milenage, rand, Sqn::from_octets(octets(sqn)), amf, &name);
            let k_amf = v.k_seaf.k_amf(supi.parse().unwrap(), Abba(octets(abba)));
            let count = NasCount::new(number(count)).unwrap();
            let (k_gnb, pci, arfcn) = (k_amf.k_gnb(count), number(pci) as u16, number(arfcn));
            let nh = k_amf.first_nh(&k_gnb);
            let found: [Vec<u8>; 24] = [
                v.autn.0.to_vec(),
                v.xres_star.octets().to_vec(),
                v.hxres_star.octets().to_vec(),
                v.k_ausf.octets().to_vec(),
                v.k_seaf.octets().to_vec(),
                k_amf.octets().to_vec(),
                k_amf.k_nas_enc(C::Nea1).octets().to_vec(),
                k_amf.k_nas_enc(C::Nea2).octets().to_vec(),
                k_amf.k_nas_enc(C::Nea3).octets().to_vec(),
                k_amf.k_nas_int(I::Nia1).octets().to_vec(),
                k_amf.k_nas_int(I::Nia2).octets().to_vec(),
                k_amf.k_nas_int(I::Nia3).octets().to_vec(),
                k_gnb.octets().to_vec(),
                k_amf.k_n3iwf(count).octets().to_vec(),
                nh.octets().to_vec(),
                k_amf.next_nh(&nh).octets().to_vec(),
                k_amf.for_mobility_registration(count).octets().to_vec(),
                k_amf.for_handover(count).octets().to_vec(),
                k_gnb.k_ng_ran_star(pci, arfcn).octets().to_vec(),
                nh.k_ng_ran_star(pci, arfcn).octets().to_vec(),
                k_gnb.k_rrc_enc(C::Nea2).octets().to_vec(),
                k_gnb.k_rrc_int(I::Nia2).octets().to_vec(),
                k_gnb.k_up_enc(C::Nea2).octets().to_vec(),
                k_gnb.k_up_int(I::Nia2).octets().to_vec(),
            ];
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert_eq!(*found, bytes(expected), "output {i} of {}", case.name);
            }
        }
    }
}
