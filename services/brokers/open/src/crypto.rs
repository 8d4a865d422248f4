//! The labels of SAP, what its signatures are over, and the secret of the user and the broker. Keys, signatures and HPKE are those of the crate
//! `common`.

pub use whimbrel_broker_common::crypto::{
    KAusf, KSeaf, PrivateKey, Seed, Share, SharedSecret, Signature, SigningKey, VerifyingKey, hash,
};
use whimbrel_broker_common::crypto::{derive, derive_salted};
use whimbrel_broker_common::envelope::{ExportedSecret, OneCipher, Protocol};
use whimbrel_broker_common::signed_kinds;
use zeroize::Zeroizing;

/// The labels of SAP.
pub(crate) const SAP: Protocol =
    Protocol { seed: b"SAP-v1 seed ", draw: b"SAP-v1 draw", exporter: b"SAP-v1 exporter" };

/// The label of K_SEAF.
pub(crate) const K_SEAF: &[u8] = b"SAP-v1 K_SEAF";

signed_kinds! {
    /// What a signature is over. An authority's certificate is in the crate `common`.
    pub Signed, "SAP-v1 " {
        /// The user's request.
        UserRequest = "user request";
        /// The operator's request.
        OperatorRequest = "operator request";
        /// The broker's grant.
        Grant = "grant";
        /// The broker's refusal.
        Refusal = "refusal";
        /// The operator's question for a challenge of an ordinary UE.
        VectorRequest = "vector request";
        /// The operator's question for the key, with the UE's response.
        Confirmation = "confirmation";
        /// The broker's challenge.
        Challenge = "challenge";
        /// What the user or the operator has measured.
        UsageReport = "usage report";
        /// Reports that the operator sends.
        UsageDelivery = "usage delivery";
        /// The broker's answer to them.
        UsageAnswer = "usage answer";
        /// The amount that the broker pays for a cycle.
        Receipt = "receipt";
        /// The sum of receipts.
        Statement = "statement";
    }
}

/// What the user and the broker alone share: exported from the HPKE context of the user's request.
#[derive(Clone)]
pub struct Exporter(ExportedSecret);

impl From<ExportedSecret> for Exporter {
    fn from(secret: ExportedSecret) -> Self {
        Self(secret)
    }
}

impl Exporter {
    /// K_AUSF of the attach.
    pub fn k_ausf(&self) -> KAusf {
        KAusf::new(*derive(&self.0[..], &[b"SAP-v1 K_AUSF"]))
    }

    fn answer_cipher(&self, salt: &[u8; 16]) -> OneCipher {
        OneCipher::new(&derive_salted(salt, &self.0[..], &[b"SAP-v1 answer"]))
    }

    /// Seals the broker's answer to the user. The salt is random for each answer, so that no two are sealed under one key.
    pub fn seal(&self, salt: &[u8; 16], plain: &[u8]) -> Vec<u8> {
        self.answer_cipher(salt).seal(plain)
    }

    /// Opens the broker's answer at the user.
    pub fn open(&self, salt: &[u8; 16], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.answer_cipher(salt).open(sealed)
    }
}

impl core::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Exporter(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_an_envelope_open_an_answer_and_derive_one_k_ausf() {
        let [user, broker] = [1, 1].map(|n| Exporter::from(Zeroizing::new([n; 32])));
        assert_eq!(user.k_ausf(), broker.k_ausf());
        let answer = broker.seal(&[1; 16], b"answer");
        assert_eq!(&user.open(&[1; 16], &answer).unwrap()[..], b"answer");
        assert!(user.open(&[2; 16], &answer).is_none());
        assert!(Exporter::from(Zeroizing::new([2; 32])).open(&[1; 16], &answer).is_none());
    }
}
