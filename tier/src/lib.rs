//! A heap of relocatable records, each in fast or slow memory by its own hotness.
//!
//! Operating systems move memory between tiers by pages. Small hot objects are scattered over pages that are otherwise cold, so most
//! of what a page tier keeps in fast memory is never used. This heap counts the accesses to each record, collects the hot records in
//! regions of their own, and pages out the regions that are left with cold ones (Fava).
//!
//! One thread owns a heap. Only the switch that turns counting on and off ([`Activation`]) is shared with another thread.

mod activation;
mod colocate;
mod heap;
mod histogram;
mod memory;
mod record;

pub use activation::Activation;
pub use colocate::{Colocation, Slice};
pub use heap::{Config, Error, Heap, Stats};
pub use memory::{Backing, REGION_OCTETS};
pub use record::{MAX_RECORD_OCTETS, Owner, Place};
