//! EAP (RFC 3748) as far as EAP-AKA' needs it, and EAP-AKA' itself (RFC 9048, RFC 4187).

pub mod aka_prime;
mod packet;

pub use aka_prime::{
    EapAkaPrimePeer, EapAkaPrimeServer, EapAkaPrimeVector, EapIdentity, EapRefusal, EapVerdict, PeerAnswer,
};
