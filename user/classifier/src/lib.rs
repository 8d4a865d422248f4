//! Packet classification: from a packet's fields to the rule of lowest precedence value that it matches (TS 29.244
//! §5.2.1, §8.2.11).
//!
//! [`Classifier`] holds a few hash tables and a scan with vector instructions. The tests compare it with a linear list
//! (`tests/common/linear.rs`), and `./x bench upf classifier` with the list, with tuple space search and with PartitionSort.
//!
//! `unsafe` is in `simd.rs` alone, which says why.

#![deny(unsafe_code)]

mod block;
mod choose;
mod classifier;
mod key;
#[cfg(feature = "measure")]
pub mod measure;
mod rows;
mod rule;
mod scan;
mod simd;
mod table;

pub use classifier::Classifier;
pub use key::{Fields, PacketKey};
pub use rule::{AddressPrefix, Pdi, Rank, Rule};
pub use simd::Instructions;
