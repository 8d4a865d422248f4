//! Aggregate claims (LOCA, chapter 4.4.5): an operator proves what K rows of the broker's table of N add up to, without saying which rows.
//!
//! | part | here |
//! | --- | --- |
//! | elements, nonces, nullifiers and hashes of the table | `whimbrel-claims-digest`, which reports need alone |
//! | the broker's table of reported sessions, and its root | [`table`] |
//! | what a claim states; proving and verifying it | [`claim`] |
//! | the constraints of a claim | `air` |
//! | the rows that satisfy them | `trace` |
//! | the proof system and its parameters | [`stark`] |
//!
//! The crate is pure: the entropy of a proof is an argument. No octets make the verifier panic, and what it allocates is bounded by
//! [`stark::PROOF_OCTETS_MAX`].
#![forbid(unsafe_code)]

mod air;
pub mod claim;
pub mod stark;
pub mod table;
mod trace;

pub use claim::{Claim, ClaimError, ProveError, Slots, prove, verify};
pub use table::{Row, Table, TableError};
pub(crate) use whimbrel_claims_digest as digest;
pub use whimbrel_claims_digest::{ClaimSecret, DigestOctets, nonce, nullifier};
