//! Authentication, keys, ciphers and identity concealment of TS 33.501 (Release 17).
//!
//! | clause | what | module |
//! | --- | --- | --- |
//! | TS 35.206 | Milenage f1, f1*, f2 to f5, f5* | [`milenage`] |
//! | TS 35.231 | TUAK f1, f1*, f2 to f5, f5* | [`tuak`] |
//! | TS 33.102 Annex C | sequence numbers, network and USIM side | [`sqn`] |
//! | TS 33.501 §6.1.3.2 | 5G-AKA, network and UE side | [`aka`] |
//! | RFC 9048, TS 33.501 §6.1.3.1 | EAP-AKA', network and UE side | [`eap`] |
//! | TS 33.501 Annex A | the key hierarchy | [`keys`] |
//! | RFC 2104, FIPS 180-4 | HMAC-SHA-256, under which hosts of a cluster speak | [`Hmac`] |
//! | TS 33.501 §6.4, TS 24.501 §4.4 | NAS security context | [`nas`] |
//! | TS 33.501 Annex D | 128-NEA1 to 3, 128-NIA1 to 3 | [`nea`], [`nia`] |
//! | TS 33.501 Annex C | SUCI: null, profile A, profile B | [`suci`] |
//!
//! Not here: the keys of interworking with EPS.
//!
//! The crate is pure: RAND, ephemeral private keys and time come as arguments. Every key is a type of its own that
//! is wiped when dropped, compares in constant time and redacts itself in `Debug`.

#![forbid(unsafe_code)]

pub mod aka;
mod ctr;
pub mod eap;
mod functions;
mod kdf;
pub mod keys;
pub mod milenage;
pub mod nas;
pub mod nea;
pub mod nia;
mod secret;
#[cfg(feature = "serde")]
mod serde_as;
mod snow3g;
pub mod sqn;
pub mod suci;
#[cfg(test)]
mod testing;
pub mod tuak;
mod zuc;

pub use aka::{
    AuthenticationFailure, AuthenticationManagementField, AuthenticationVector, Autn, Auts, HresStar, Rand,
    ResStar, ServingNetworkName, UeAuthentication, Usim,
};
pub use eap::{
    EapAkaPrimePeer, EapAkaPrimeServer, EapAkaPrimeVector, EapIdentity, EapRefusal, EapVerdict, PeerAnswer,
};
pub use functions::AkaFunctions;
pub use kdf::{Hmac, kdf};
pub use keys::{
    Abba, AccessType, KAmf, KAusf, KGnb, KN3iwf, KNasEnc, KNasInt, KRrcEnc, KRrcInt, KSeaf, KUpEnc, KUpInt,
    Nh,
};
pub use milenage::{Ck, Ik, K, Milenage, Op, Opc};
pub use nas::{
    CipheringAlgorithm, IntegrityAlgorithm, NasCount, NasCounts, NasSecurityContext, NasSide, ProtectError,
    SecurityHeaderType, UnprotectError, Unprotected,
};
pub use sqn::{Sqn, SqnOffset, SqnSlot, SqnState, UsimSqn};
pub use suci::{HomeNetworkKeys, HomeNetworkPrivateKey, HomeNetworkPublicKey, ProtectionScheme, SuciError};
pub use tuak::{K256, LongTermKey, Top, Topc, Tuak};

/// Which way a message travels: the DIRECTION bit of the ciphers (TS 33.501 Annex D.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the UE.
    Uplink,
    /// To the UE.
    Downlink,
}

impl Direction {
    /// The bit, in the lowest place.
    pub const fn bit(self) -> u8 {
        match self {
            Direction::Uplink => 0,
            Direction::Downlink => 1,
        }
    }
}

/// Bearer identity of 5 bits; for NAS the NAS connection identifier (TS 33.501 §6.3.2.3, Annex D.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bearer(u8);

impl Bearer {
    /// The NAS connection over 3GPP access.
    pub const NAS_3GPP: Bearer = Bearer(1);
    /// The NAS connection over non-3GPP access.
    pub const NAS_NON_3GPP: Bearer = Bearer(2);

    /// `None` above 5 bits.
    pub const fn new(v: u8) -> Option<Self> {
        if v < 1 << 5 { Some(Self(v)) } else { None }
    }

    /// As a number.
    pub const fn value(self) -> u8 {
        self.0
    }
}
