//! What signatures are over, and the keys of an attach. Keys, signatures, seeds and HPKE are those of the crate `common`.
//!
//! The suite is fixed for version 1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM; Ed25519 (RFC 8032) with strict
//! verification; SHA-256.

use whimbrel_broker_common::crypto::{KSeaf, PrivateKey, Share, SharedSecret, derive, k_seaf};
pub use whimbrel_broker_common::crypto::{SigningKey, VerifyingKey, hash_parts as hash};
use whimbrel_broker_common::envelope::{ExportedSecret, OneCipher, Protocol, TAG_OCTETS};
use whimbrel_broker_common::{secret, signed_kinds};
use whimbrel_ids::PlmnId;
use zeroize::Zeroizing;

/// The labels of the veiled attach.
pub(crate) const VEIL: Protocol =
    Protocol { seed: b"VEIL-v1 seed ", draw: b"VEIL-v1 draw", exporter: b"VEIL-v1 exporter" };

/// The label of K_SEAF, which is derived as in SAP.
const K_SEAF: &[u8] = b"SAP-v1 K_SEAF";

/// Whether two strings are equal, in constant time.
pub(crate) fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    bool::from(subtle::ConstantTimeEq::ct_eq(&a[..], &b[..]))
}

signed_kinds! {
    /// What a signature is over. The name stands before the signed octets, so that one kind never passes for another.
    pub Signed, "VEIL-v1 " {
        /// The operator asks for tokens, under its name.
        TokenRequest = "token request";
        /// The broker's statement on its log of issuing keys.
        TreeHead = "tree head";
        /// A witness's statement on the same.
        Cosignature = "cosignature";
        /// The user's request.
        UserRequest = "user request";
        /// A request under the key of a token.
        OperatorRequest = "operator request";
        /// The broker's grant.
        Grant = "grant";
        /// The broker's refusal.
        Refusal = "refusal";
        /// What a session has used, under the key of a token.
        UsageReport = "usage report";
        /// The broker's statement on the table of a settlement period.
        PeriodHead = "period head";
        /// A witness's statement on the same.
        PeriodCosignature = "period cosignature";
        /// The operator claims, under its name.
        Claim = "claim";
        /// The broker pays a claim.
        Payment = "payment";
        /// A request for an ordinary UE, under the key of a token.
        HomeRequest = "home request";
        /// An agency's order.
        Order = "order";
        /// Whether there are orders, under the key of a token.
        OrdersRequest = "orders request";
        /// The answer to an order, under the key of a token.
        OrderAnswer = "order answer";
    }
}

/// What the user and the broker alone share: exported from the HPKE context of the user's request. It is the
/// SSK of chapter 4.4.2 for one attach: only the maker of the request that the user signed, and the holder of
/// the broker's key, have it.
#[derive(Clone)]
pub struct Exporter(ExportedSecret);

impl From<ExportedSecret> for Exporter {
    fn from(secret: ExportedSecret) -> Self {
        Self(secret)
    }
}

impl Exporter {
    fn cipher(&self, salt: &[u8; 16]) -> OneCipher {
        OneCipher::new(&derive(&self.0[..], &[b"VEIL-v1 challenge", salt]))
    }

    /// Seals the broker's challenge to the user. The salt is random for each, so that no two are sealed under one key.
    pub(crate) fn seal(&self, salt: &[u8; 16], plain: &[u8]) -> Box<[u8]> {
        self.cipher(salt).seal(plain).into()
    }

    /// Opens it at the user.
    pub(crate) fn open(&self, salt: &[u8; 16], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.cipher(salt).open(sealed)
    }

    /// The user's response to the challenge, for this request.
    pub(crate) fn response(&self, challenge: &[u8; 32], request: &[u8; 32]) -> Response {
        Response::new(*derive(&self.0[..], &[b"VEIL-v1 response", challenge, request]))
    }
}

impl core::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Exporter(…)")
    }
}

secret! {
    /// The user's response (RES): it shows the operator that the user is there, and later shows the broker that
    /// the operator had the user there.
    Response, 32
}

impl Response {
    /// By what the operator checks a response that it cannot foresee (HXRES).
    pub fn expected(&self) -> [u8; 32] {
        hash(&[b"VEIL-v1 expected response\0", self.octets()])
    }
}

/// Octets of a sealed K_AMF.
pub(crate) const SEALED_K_AMF_OCTETS: usize = 32 + TAG_OCTETS;

/// What the broker and the operator derive from the RES* of an ordinary UE: the key under which K_AMF is
/// sealed, and the response by which the operator shows that the UE was there. `half` is the secret that the
/// broker has sealed to the operator: RES* alone, which the radio carries in clear, opens nothing.
pub(crate) struct HomeKeys<'a> {
    pub(crate) half: &'a [u8; 32],
    pub(crate) res_star: &'a [u8; 16],
    pub(crate) rand: &'a [u8; 16],
    pub(crate) group: &'a [u8; 32],
}

impl HomeKeys<'_> {
    fn derive<const N: usize>(&self, label: &[u8]) -> Zeroizing<[u8; N]> {
        let mut ikm = Zeroizing::new([0; 48]);
        ikm[..32].copy_from_slice(self.half);
        ikm[32..].copy_from_slice(self.res_star);
        derive(&ikm[..], &[label, self.rand, self.group])
    }

    fn cipher(&self) -> OneCipher {
        OneCipher::new(&self.derive(b"VEIL-v1 home key\0"))
    }

    /// Seals K_AMF. RAND is fresh for each, so that no two are sealed under one key.
    pub(crate) fn seal(&self, k_amf: &[u8; 32]) -> [u8; SEALED_K_AMF_OCTETS] {
        self.cipher().seal(k_amf).try_into().expect("the octets of a key and a tag")
    }

    /// Opens the sealed K_AMF.
    pub(crate) fn open(&self, sealed: &[u8; SEALED_K_AMF_OCTETS]) -> Option<Zeroizing<[u8; 32]>> {
        let plain = self.cipher().open(sealed)?;
        plain[..].try_into().ok().map(Zeroizing::new)
    }

    /// The response of the UE, in place of a veiled UE's.
    pub(crate) fn presence(&self) -> Response {
        Response::new(*self.derive(b"VEIL-v1 home presence\0"))
    }
}

/// K_SEAF as SAP derives it, where ss is HKDF(half ‖ response): the broker gives `half` to the
/// operator and the user, and only the user's response completes it, so the operator has no key for a user
/// that is not there. `None` if the peer's share is of small order.
///
/// The serving network is the broker's: its PLMN stands in the transcript, as the serving network name does in TS 33.501 §6.1.1.4.
pub(crate) fn attach_key(
    half: &[u8; 32],
    response: &Response,
    own: &PrivateKey,
    peer: &Share,
    transcript: &[u8; 32],
) -> Option<KSeaf> {
    let mut ikm = Zeroizing::new([0; 64]);
    ikm[..32].copy_from_slice(half);
    ikm[32..].copy_from_slice(response.octets());
    let ss = SharedSecret::new(*derive(&ikm[..], &[b"VEIL-v1 ss"]));
    k_seaf(K_SEAF, &ss, own, peer, transcript)
}

/// H(H(the user's request) ‖ grant ‖ PLMN of the serving network).
pub(crate) fn transcript(request: &[u8; 32], grant: &[u8], network: PlmnId) -> [u8; 32] {
    hash(&[request, grant, &network.nas_octets()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_of_one_kind_is_none_of_another() {
        let key = SigningKey::new(&[7; 32]);
        let signature = key.sign(Signed::Grant, b"octets");
        assert!(key.verifying_key().verifies(Signed::Grant, b"octets", &signature));
        assert!(!key.verifying_key().verifies(Signed::Refusal, b"octets", &signature));
        let mut weak = [0; 32];
        weak[0] = 1;
        assert!(VerifyingKey::from_octets(weak).is_none());
    }

    #[test]
    fn k_seaf_depends_on_each_of_its_parts() {
        let [u, o] = [1, 2].map(|n| PrivateKey::new([n; 32]));
        let [a, b] = [3, 4].map(|n| Response::new([n; 32]));
        let key = |half, response, own: &PrivateKey, peer: &PrivateKey, transcript| {
            attach_key(&[half; 32], response, own, &peer.share(), &[transcript; 32]).unwrap()
        };
        let base = key(1, &a, &u, &o, 1);
        assert_eq!(key(1, &a, &o, &u, 1), base);
        let third = PrivateKey::new([5; 32]);
        for other in
            [key(2, &a, &u, &o, 1), key(1, &b, &u, &o, 1), key(1, &a, &u, &third, 1), key(1, &a, &u, &o, 2)]
        {
            assert_ne!(other, base);
        }
        assert!(attach_key(&[1; 32], &a, &u, &Share::NONE, &[1; 32]).is_none());
        let [home, other] =
            [[0x99, 0xf9, 0x07], [0x00, 0xf1, 0x10]].map(|o| PlmnId::from_nas_octets(o).unwrap());
        assert_ne!(transcript(&[1; 32], b"grant", home), transcript(&[1; 32], b"grant", other));
    }

    #[test]
    fn responses_are_independent_and_redacted() {
        let exporter = Exporter(Zeroizing::new([1; 32]));
        let response = exporter.response(&[1; 32], &[2; 32]);
        assert_ne!(response.octets(), exporter.response(&[3; 32], &[2; 32]).octets());
        assert_ne!(response.octets(), exporter.response(&[1; 32], &[3; 32]).octets());
        assert_eq!(format!("{response:?} {exporter:?}"), "Response(…) Exporter(…)");
    }
}
