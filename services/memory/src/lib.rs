//! A heap of relocatable records, each in fast or slow memory by its own hotness.
//!
//! Operating systems move memory between tiers by pages. Small hot objects are scattered over pages that are otherwise cold, so most
//! of what a page tier keeps in fast memory is never used. This heap counts the accesses to each record, collects the hot records in
//! regions of their own, and pages out the regions that are left with cold ones (Fava).
//!
//! One thread owns a heap. Only the switch that turns counting on and off ([`Activation`]) is shared with another thread; a thread of the
//! heap writes copies of cold regions to a [`Device`], so that the owner waits for no disk but when it reads a cold record.

mod activation;
mod colocate;
mod device;
mod heap;
mod histogram;
mod memory;
mod record;
mod writer;

pub use activation::Activation;
pub use colocate::{Colocation, Slice};
pub use device::Device;
pub use heap::{Config, Error, Heap, Stats};
pub use memory::{Backing, REGION_OCTETS};
pub use record::{MAX_RECORD_OCTETS, Owner, RecordLocation};
