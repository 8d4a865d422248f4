//! The network repository function: TS 29.510, Release 17.
//!
//! | part | supported | not supported |
//! | --- | --- | --- |
//! | Nnrf_NFManagement | registration, full and partial update, heartbeats, deregistration, retrieval, list, subscriptions by instance, type or service | shared data, subscriptions by set, group, slice or area, `notifCondition` |
//! | Nnrf_NFDiscovery | see [`query`] | stored searches, complex queries, other NRFs |
//! | Nnrf_AccessToken | client credentials for a type or an instance | tokens for sets, slices and other PLMNs |
#![forbid(unsafe_code)]

pub mod discovery;
pub mod patch;
pub mod profile;
pub mod query;
pub mod refusal;
pub mod registry;
pub mod token;

pub use profile::StoredProfile;
pub use query::DiscoveryParameters;
pub use refusal::NrfRefusal;
pub use registry::{Nrf, NrfIdentity, StatusNotification};
pub use token::TokenRefusal;

#[cfg(test)]
mod tests;
