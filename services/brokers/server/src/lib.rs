//! The broker of CellBricks as a service: chapter 3.4.1's broker as a program that operators reach over HTTP/2 and TLS 1.3.
//!
//! | part | here |
//! | --- | --- |
//! | the thread that runs the machine of `whimbrel-open` and commits its records before answers leave | [`engine`] |
//! | what is durable: users, epoch keys, operators, answers, grants | [`storage`] |
//! | usage reports: accounts, blame, reputation, receipts | [`accounting`] |
//! | an operator's own reports and the receipts for them | [`ledger`] |
//! | settlement statements in files | [`statement`] |
//! | HTTP/2 over TLS for operators, HTTP/1.1 for health and metrics | [`server`] |
//! | connections of a listener, shared fairly among their senders | [`slots`] |
//! | the operator's warm connection to a broker | [`client`] |
//! | keys and certificates in files, the profile of a SIM | [`files`], [`profile`] |
//! | X.509 certificates of TLS | [`tls`] |
//! | veiled users: tokens, grants to unknown operators, relays | [`veil`] |
//!
//! An edge crate: it has sockets, threads, a clock and randomness. The decisions are those of `whimbrel_open::broker`.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod client;
mod clock;
pub mod engine;
pub mod files;
mod hex;
pub mod ledger;
pub mod metrics;
pub mod profile;
mod quota;
pub mod server;
pub mod slots;
pub mod statement;
pub mod storage;
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
