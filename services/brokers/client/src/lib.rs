//! An operator's connection to a broker, and what both ends share: paths, keys and certificates in files, TLS, recordings.
//!
//! | part | here |
//! | --- | --- |
//! | the operator's warm connection to a broker | [`client`] |
//! | veiled users: requests, and channels that do not show where the operator is | [`veil`] |
//! | an operator's own reports and the receipts for them | [`ledger`] |
//! | settlement statements in files | [`statement`] |
//! | keys and certificates in files | [`files`] |
//! | X.509 certificates of TLS | [`tls`] |
//! | connections of a listener, shared fairly among their senders | [`slots`] |
//!
//! An edge crate: it has sockets, a clock and randomness. A core links it, and not the broker's server.
#![forbid(unsafe_code)]

pub mod client;
mod clock;
pub mod files;
mod hex;
pub mod ledger;
pub mod slots;
pub mod statement;
pub mod tls;
pub mod veil;

pub use clock::now;
pub use hex::{hex, unhex};

/// The path of an attach request at a broker.
pub const ATTACH_PATH: &str = "/sap/v1/attach";
/// The path of usage reports at a broker.
pub const USAGE_PATH: &str = "/sap/v1/usage";
/// The media type of SAP messages.
pub const MEDIA_TYPE: &str = "application/octet-stream";
/// The TCP port of brokers whose address comes from DNS: fixed, so that a domain chosen by a UE cannot lead an operator to another service.
pub const PORT: u16 = 7443;

/// Random octets of the system. Errors: one sentence.
pub fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut octets = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut octets[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("the system gives no random octets: {e}")),
        }
    }
    Ok(octets)
}
