//! Service-based interfaces of a 5G core over HTTP/2: TS 29.500 and TS 29.501, Release 17.
//!
//! | part | supported | not supported |
//! | --- | --- | --- |
//! | [`client`] | HTTP/2 in clear with prior knowledge or over TLS 1.2 and 1.3; one warm connection for each peer; bounds on connections, streams, times and responses | HTTP/1.1, server push, proxies |
//! | [`retry`] | another instance after 429, 503, 504 or a failure; `Retry-After`; idempotency keys | load and overload control headers (`3gpp-Sbi-Lci`, `3gpp-Sbi-Oci`), redirection |
//! | [`server`] | HTTP/2 in clear or over TLS, client certificates; bounds on connections, streams, headers, bodies and times; late requests | HTTP/1.1, compression |
//! | [`headers`] | priority, callback, target API root, sender timestamp and longest response time, request info | binding, routing, correlation, access scope |
//! | [`nrf`] | registration with heartbeats, discovery with a cache, subscriptions, access tokens | stored searches, subscriptions to slices or sets |
//! | [`token`] | check of access tokens with RS256, RS512 or ES256; signatures with ES256 | encrypted tokens, other curves |
//! | [`tls`] | both sides; certificates that are replaced while connections are open; NF instances that a certificate names | revocation |
//! | [`problem`] | `application/problem+json` with the causes of TS 29.500 §5.2.7.2 | |
#![forbid(unsafe_code)]
#![allow(clippy::result_large_err, reason = "a refusal is a response, and is made once for a request")]

pub mod client;
mod der;
pub mod endpoint;
pub mod error;
pub mod headers;
pub mod message;
pub mod nrf;
pub mod problem;
pub mod retry;
pub mod server;
pub mod tls;
pub mod token;

pub use client::{ClientSettings, SbiClient};
pub use endpoint::{ApiRoot, SbiEndpoint};
pub use error::SendError;
pub use message::{SbiRequest, SbiResponse};
pub use nrf::{DiscoveryQuery, NrfClient, NrfSettings};
pub use problem::ProtocolCause;
pub use server::{ReceivedRequest, SbiServer, ServerSettings};
