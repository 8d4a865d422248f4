//! 5G-AKA: vectors and their checks on the network side, the answer on the UE's (TS 33.501 §6.1.3.2).

use core::fmt;

use whimbrel_ids::{Instant, PlmnId};

use crate::functions::AkaFunctions;
use crate::kdf::{Hmac, Sha256, low_128};
use crate::keys::{KAusf, KSeaf};
use crate::milenage::{Ak, Ck, Ik, Mac, Res};
use crate::secret::{ct_eq, secret};
use crate::sqn::{Sqn, SqnOffset, SqnState, UsimSqn};

secret!(
    /// RES* or XRES*: the response of 5G-AKA (TS 33.501 Annex A.4).
    ResStar,
    16
);
secret!(
    /// HRES* or HXRES*: what the serving network compares (TS 33.501 Annex A.5).
    HresStar,
    16
);

/// Random challenge (TS 33.102 §6.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rand(pub [u8; 16]);

/// Authentication token: SQN ⊕ AK ‖ AMF ‖ MAC (TS 33.102 §6.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Autn(pub [u8; 16]);

/// Token of a synchronisation failure: SQN_MS ⊕ AK ‖ MAC-S (TS 33.102 §6.3.3).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Auts(pub [u8; 14]);

macro_rules! redacted {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    )*};
}
redacted!(Rand Autn Auts);

/// Authentication management field of 16 bits (TS 33.102 §6.3.2, Annex H).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationManagementField(pub [u8; 2]);

impl AuthenticationManagementField {
    /// Only the separation bit set: the value for 5G-AKA where the operator uses no bits of its own.
    pub const FIVE_G: Self = Self([0x80, 0x00]);
    /// The dummy value under which MAC-S is computed (TS 33.102 §6.3.3).
    pub const RESYNCHRONISATION: Self = Self([0, 0]);

    /// Whether the separation bit (bit 0, the most significant) is set, as 5G-AKA demands (TS 33.501 §6.1.3.2.0).
    pub const fn separation_bit(self) -> bool {
        self.0[0] & 0x80 != 0
    }
}

/// Serving network name `5G:mnc070.mcc999.3gppnetwork.org` (TS 33.501 §6.1.1.4, TS 24.501 §9.12.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServingNetworkName([u8; 32]);

impl ServingNetworkName {
    /// The name of a network; an MNC of two digits gets a zero in front.
    pub fn new(plmn: PlmnId) -> Self {
        let mut name = *b"5G:mnc000.mcc000.3gppnetwork.org";
        let (mnc, digits) = plmn.mnc();
        let skipped = 3 - digits.min(3);
        for (place, digit) in name[6 + skipped..9].iter_mut().zip(mnc) {
            *place = b'0' + digit;
        }
        for (place, digit) in name[13..16].iter_mut().zip(plmn.mcc()) {
            *place = b'0' + digit;
        }
        Self(name)
    }

    /// Its ASCII text.
    pub const fn octets(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ServingNetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&c| fmt::Write::write_char(f, char::from(c)))
    }
}

impl fmt::Debug for ServingNetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The vector of one authentication, for the home and the serving network (TS 33.501 §6.1.3.2, steps 1 to 4).
///
/// The serving network may see only RAND, AUTN and HXRES* before the UE has answered.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AuthenticationVector {
    /// The challenge that the UE gets.
    pub rand: Rand,
    /// The authentication token that the UE gets.
    pub autn: Autn,
    /// The expected answer of the UE.
    pub xres_star: ResStar,
    /// The home network's key.
    pub k_ausf: KAusf,
    /// The digest of the answer, for the serving network.
    pub hxres_star: HresStar,
    /// The anchor key, for the serving network once the answer is right.
    pub k_seaf: KSeaf,
}

impl AuthenticationVector {
    /// The vector for `rand` and a fresh `sqn`.
    ///
    /// `amf` must have its separation bit set; [`AuthenticationManagementField::FIVE_G`] has.
    pub fn generate(
        functions: &AkaFunctions,
        rand: Rand,
        sqn: Sqn,
        amf: AuthenticationManagementField,
        serving_network: &ServingNetworkName,
    ) -> Self {
        let (mac_a, out) = functions.f12345(&rand, sqn, amf);
        let (autn, sqn_xor_ak) = autn_of(sqn, &out.ak, amf, &mac_a);
        let (k_ausf, xres_star) =
            k_ausf_and_res_star(&out.ck, &out.ik, &out.res, &rand, sqn_xor_ak, serving_network);
        Self::from_home(rand, autn, xres_star, k_ausf, serving_network)
    }

    /// The vector of another network function: a 5G HE AV (TS 33.501 §6.1.3.2 step 1), with what the AUSF derives from it (steps 3 and 4).
    pub fn from_home(
        rand: Rand,
        autn: Autn,
        xres_star: ResStar,
        k_ausf: KAusf,
        serving_network: &ServingNetworkName,
    ) -> Self {
        let hxres_star = HresStar::derive(&rand, &xres_star);
        let k_seaf = k_ausf.k_seaf(serving_network);
        Self { rand, autn, xres_star, k_ausf, hxres_star, k_seaf }
    }

    /// The serving network's check: HRES* of what the UE sent (TS 33.501 §6.1.3.2, step 9).
    pub fn hres_star_matches(&self, res_star: &ResStar) -> bool {
        HresStar::derive(&self.rand, res_star) == self.hxres_star
    }

    /// The home network's check (TS 33.501 §6.1.3.2, step 11).
    pub fn res_star_matches(&self, res_star: &ResStar) -> bool {
        *res_star == self.xres_star
    }
}

/// AUTN, and the concealed SQN at its head to which keys are bound (TS 33.102 §6.3.2).
pub(crate) fn autn_of(sqn: Sqn, ak: &Ak, amf: AuthenticationManagementField, mac_a: &Mac) -> (Autn, [u8; 6]) {
    let sqn_xor_ak = xor(sqn.octets(), *ak.octets());
    let mut autn = [0; 16];
    autn[..6].copy_from_slice(&sqn_xor_ak);
    autn[6..8].copy_from_slice(&amf.0);
    autn[8..].copy_from_slice(mac_a.octets());
    (Autn(autn), sqn_xor_ak)
}

impl HresStar {
    /// The 128 least significant bits of SHA-256(RAND ‖ RES*) (Annex A.5).
    pub fn derive(rand: &Rand, res_star: &ResStar) -> Self {
        let mut sha = Sha256::new();
        sha.update(&rand.0);
        sha.update(res_star.octets());
        Self::new(low_128(sha.finish()))
    }
}

/// K_AUSF (Annex A.2) and RES* (Annex A.4), both under CK ‖ IK.
fn k_ausf_and_res_star(
    ck: &Ck,
    ik: &Ik,
    res: &Res,
    rand: &Rand,
    sqn_xor_ak: [u8; 6],
    serving_network: &ServingNetworkName,
) -> (KAusf, ResStar) {
    let mut key = zeroize::Zeroizing::new([0; 32]);
    key[..16].copy_from_slice(ck.octets());
    key[16..].copy_from_slice(ik.octets());
    let kdf = Hmac::new(&key);
    let name = &serving_network.octets()[..];
    let k_ausf = KAusf::new(kdf.derive(0x6a, &[name, &sqn_xor_ak]));
    let res_star = ResStar::new(low_128(kdf.derive(0x6b, &[name, &rand.0, res.octets()])));
    (k_ausf, res_star)
}

/// SQN_MS out of AUTS, if its MAC-S is right for this subscriber and challenge (TS 33.102 §6.3.5).
pub fn verify_auts(functions: &AkaFunctions, rand: &Rand, auts: &Auts) -> Option<Sqn> {
    let mut concealed = [0; 6];
    concealed.copy_from_slice(&auts.0[..6]);
    let sqn_ms = Sqn::from_octets(xor(concealed, *functions.f5_star(rand).octets()));
    let mac_s = functions.f1_star(rand, sqn_ms, AuthenticationManagementField::RESYNCHRONISATION);
    ct_eq(mac_s.octets(), &auts.0[6..]).then_some(sqn_ms)
}

/// Verifies AUTS and moves the sequence: the outer `None` means that MAC-S is wrong and nothing was changed, the inner
/// that the sequence was fresh already and its offset stays.
pub fn resynchronise(
    functions: &AkaFunctions,
    rand: &Rand,
    auts: &Auts,
    state: &mut SqnState,
    now: Instant,
) -> Option<Option<SqnOffset>> {
    let sqn_ms = verify_auts(functions, rand, auts)?;
    Some(state.resynchronise(now, sqn_ms))
}

/// The UE's side: a USIM, and for 5G-AKA the part of the ME that derives RES* and K_AUSF.
#[derive(Clone, Debug)]
pub struct Usim {
    functions: AkaFunctions,
    /// The sequence numbers that it has accepted.
    pub sqn: UsimSqn,
}

/// The result of an accepted challenge.
#[derive(Clone, Debug)]
pub struct UeAuthentication {
    /// The UE's answer, RES*.
    pub res_star: ResStar,
    /// The home network's key.
    pub k_ausf: KAusf,
    /// The anchor key.
    pub k_seaf: KSeaf,
}

/// The USIM's output for an accepted challenge.
pub(crate) struct UsimOutput {
    pub(crate) res: Res,
    pub(crate) ck: Ck,
    pub(crate) ik: Ik,
    /// The head of AUTN, to which keys are bound.
    pub(crate) sqn_xor_ak: [u8; 6],
}

/// Why a UE refuses a challenge (TS 24.501 §5.4.1.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationFailure {
    /// MAC-A is wrong: 5GMM cause #20.
    MacFailure,
    /// The separation bit is not set: 5GMM cause #26, non-5G authentication unacceptable.
    Non5gAuthenticationUnacceptable,
    /// SQN is not fresh: 5GMM cause #21, with the token for the network.
    SynchFailure(Auts),
}

impl Usim {
    /// A new USIM.
    pub fn new(functions: impl Into<AkaFunctions>, sqn: UsimSqn) -> Self {
        Self { functions: functions.into(), sqn }
    }

    /// Checks a challenge and answers it (TS 33.102 §6.3.3, TS 33.501 §6.1.3.2.0).
    pub fn authenticate(
        &mut self,
        rand: &Rand,
        autn: &Autn,
        serving_network: &ServingNetworkName,
    ) -> Result<UeAuthentication, AuthenticationFailure> {
        let UsimOutput { res, ck, ik, sqn_xor_ak } = self.challenge(rand, autn)?;
        let (k_ausf, res_star) = k_ausf_and_res_star(&ck, &ik, &res, rand, sqn_xor_ak, serving_network);
        let k_seaf = k_ausf.k_seaf(serving_network);
        Ok(UeAuthentication { res_star, k_ausf, k_seaf })
    }

    /// Checks a challenge as both methods of 5G do (TS 33.102 §6.3.3, TS 33.501 §6.1.3).
    pub(crate) fn challenge(
        &mut self,
        rand: &Rand,
        autn: &Autn,
    ) -> Result<UsimOutput, AuthenticationFailure> {
        let amf = AuthenticationManagementField([autn.0[6], autn.0[7]]);
        let mut sqn_xor_ak = [0; 6];
        sqn_xor_ak.copy_from_slice(&autn.0[..6]);
        let out = self.functions.f2345(rand);
        let sqn = Sqn::from_octets(xor(sqn_xor_ak, *out.ak.octets()));
        if !ct_eq(self.functions.f1(rand, sqn, amf).octets(), &autn.0[8..]) {
            return Err(AuthenticationFailure::MacFailure);
        }
        if !amf.separation_bit() {
            return Err(AuthenticationFailure::Non5gAuthenticationUnacceptable);
        }
        if self.sqn.accept(sqn).is_err() {
            return Err(AuthenticationFailure::SynchFailure(self.auts(rand)));
        }
        Ok(UsimOutput { res: out.res, ck: out.ck, ik: out.ik, sqn_xor_ak })
    }

    fn auts(&self, rand: &Rand) -> Auts {
        let sqn_ms = self.sqn.highest();
        let mut auts = [0; 14];
        auts[..6].copy_from_slice(&xor(sqn_ms.octets(), *self.functions.f5_star(rand).octets()));
        let mac_s = self.functions.f1_star(rand, sqn_ms, AuthenticationManagementField::RESYNCHRONISATION);
        auts[6..].copy_from_slice(mac_s.octets());
        Auts(auts)
    }
}

fn xor(a: [u8; 6], b: [u8; 6]) -> [u8; 6] {
    core::array::from_fn(|i| a[i] ^ b[i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::milenage::{K, Milenage, Opc};

    const NOW: Instant = Instant(1_800_000_000_000_000);

    fn subscriber() -> AkaFunctions {
        Milenage::new(&K::new([0x46; 16]), Opc::new([0xcd; 16])).into()
    }

    fn name() -> ServingNetworkName {
        ServingNetworkName::new(PlmnId::TEST)
    }

    #[test] // TS 24.501 §9.12.1
    fn serving_network_name_pads_a_short_mnc() {
        assert_eq!(name().to_string(), "5G:mnc070.mcc999.3gppnetwork.org");
        let plmn: PlmnId = "310/410".parse().unwrap();
        assert_eq!(ServingNetworkName::new(plmn).to_string(), "5G:mnc410.mcc310.3gppnetwork.org");
    }

    #[test] // TS 33.501 §6.1.3.2
    fn both_sides_agree() {
        let mut he = SqnState::new(SqnOffset::with_seq_at(NOW, 1));
        let mut usim = Usim::new(subscriber(), UsimSqn::default());
        for i in 0..5 {
            let amf = AuthenticationManagementField::FIVE_G;
            let v = AuthenticationVector::generate(&subscriber(), Rand([i; 16]), he.next(NOW), amf, &name());
            let ue = usim.authenticate(&v.rand, &v.autn, &name()).unwrap();
            assert!(v.hres_star_matches(&ue.res_star) && v.res_star_matches(&ue.res_star));
            assert_eq!((&v.k_ausf, &v.k_seaf), (&ue.k_ausf, &ue.k_seaf));
            assert!(!v.hres_star_matches(&ResStar::new([0; 16])));
        }
    }

    #[test] // TS 33.501 §6.1.3.3.2
    fn a_stale_challenge_leads_to_resynchronisation() {
        let mut he = SqnState::new(SqnOffset::ZERO);
        let mut usim = Usim::new(subscriber(), UsimSqn::default());
        let (rand, amf) = (Rand([9; 16]), AuthenticationManagementField::FIVE_G);
        let v = AuthenticationVector::generate(&subscriber(), rand, he.next(NOW), amf, &name());
        let Err(AuthenticationFailure::SynchFailure(auts)) = usim.authenticate(&rand, &v.autn, &name())
        else {
            panic!("the bare time is too far ahead of a fresh USIM");
        };
        let mut wrong = auts;
        wrong.0[13] ^= 1;
        assert_eq!(resynchronise(&subscriber(), &rand, &wrong, &mut he, NOW), None);
        assert!(resynchronise(&subscriber(), &rand, &auts, &mut he, NOW).unwrap().is_some());
        let v = AuthenticationVector::generate(&subscriber(), rand, he.next(NOW), amf, &name());
        assert!(usim.authenticate(&rand, &v.autn, &name()).is_ok());
    }

    #[test] // TS 24.501 §5.4.1.3.7
    fn a_forged_or_foreign_challenge_is_refused() {
        let mut usim = Usim::new(subscriber(), UsimSqn::default());
        let rand = Rand([1; 16]);
        let amf = AuthenticationManagementField::FIVE_G;
        let mut v = AuthenticationVector::generate(&subscriber(), rand, Sqn::new(1, 1), amf, &name());
        v.autn.0[15] ^= 1;
        assert_eq!(
            usim.authenticate(&rand, &v.autn, &name()).unwrap_err(),
            AuthenticationFailure::MacFailure
        );
        let amf = AuthenticationManagementField([0x7f, 0xff]);
        let v = AuthenticationVector::generate(&subscriber(), rand, Sqn::new(1, 1), amf, &name());
        assert_eq!(
            usim.authenticate(&rand, &v.autn, &name()).unwrap_err(),
            AuthenticationFailure::Non5gAuthenticationUnacceptable
        );
    }
}
