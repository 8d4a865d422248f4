//! The broker of CellBricks as a service: chapter 3.4.1's broker as a program that operators reach over HTTP/2 and TLS 1.3.
//!
//! | part | here |
//! | --- | --- |
//! | the thread that runs the machine of `whimbrel-open` and commits its records before answers leave | [`engine`] |
//! | what is durable: users, epoch keys, operators, answers, grants | [`storage`] |
//! | usage reports: accounts, blame, reputation, receipts | [`accounting`] |
//! | HTTP/2 over TLS for operators, HTTP/1.1 for health and metrics | [`server`] |
//! | the profile of a SIM | [`profile`] |
//! | veiled users: tokens, grants to unknown operators, relays | [`veil`] |
//!
//! An edge crate: it has sockets, threads, a clock and randomness. The decisions are those of `whimbrel_open::broker`; the other end of its
//! connections is `whimbrel_broker_client`.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod engine;
pub mod metrics;
pub mod profile;
mod quota;
pub mod server;
pub mod storage;
pub mod veil;
