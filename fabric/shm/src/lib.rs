//! Frames between the processes of one host through shared memory, without a system call while both sides are busy.
//!
//! A *pool* is the memory of functions that are linked with each other. Each process of it has an *area* ([`Area`]) for as long as it lives: a memfd, with a *bell* (eventfd).
//! The unit's manager creates both, gives them to the process that it has started, and seals the file when that one has mapped it (`F_SEAL_FUTURE_WRITE`): from
//! then on it is written through that mapping alone. Then the manager gives it to the functions that are linked with the owner, and to no others. Of a CTA the CPFs
//! see another area than the UPF, in another pool. In each process the areas have the addresses of one [`Layout`]; those that it was not given read as zeros:
//!
//! ```text
//! page | area 0 | area 1 | …
//! area     control words | for each other function a ring of descriptors | blocks
//! ```
//!
//! A function writes into its own area alone, and maps others read-only, so that a stray write ends the process that makes it. What goes
//! from function A to function B: A copies the octets into a free block of its own, writes a descriptor (offset, length) into its
//! ring to B, then the descriptor's name (generation, number), and raises the ring's head. B waits for the name, checks the descriptor, copies the
//! octets out, and raises the tail in its own area. A then uses the block again.
//!
//! - **Waking.** A process that is about to sleep sets a word in its area and looks once more at the rings; a process that sends afterwards sees the word and
//!   rings the bell, which the sleeper waits on. Neither happens while both are busy.
//! - **Trust.** Nothing that another process wrote is used before it is checked: heads and tails against what is possible, descriptors against
//!   bounds, alignment, length and generation; octets are copied before anybody looks at them, so that they cannot change afterwards. All
//!   accesses are atomic, so any content, at any time, is a value. A function that writes rubbish loses its links ([`PortFault`]); others go on.
//! - **Quotas.** A ring has [`RING`] descriptors, and an area has as many blocks as all its rings have descriptors. A process that takes nothing
//!   holds up what is for it, and nothing else.
//! - **Life.** A ring is used by one link at a time, under a generation that no link before had; a process that dies leaves nothing half-written
//!   that counts, because a descriptor's name is written last.
//!
//! The links themselves (which processes have one, authentication, the end of a peer) are those of `fabric/link`, which moves frames to the rings.
//!
//! `unsafe` stands in `memory` alone, which maps the file. The logic of rings ([`Port`]) is safe code over any [`Memory`]; its tests run it over
//! a memory of their own, in every order of its accesses.

mod layout;
mod memory;
mod pool;
mod port;
#[cfg(test)]
mod tests;

pub use layout::{FUNCTIONS, Layout, RING};
pub use memory::Mapping;
pub use pool::{Area, AreaArrivals, Made, Pool, PoolOpenError, create};
pub use port::{Memory, Port, PortFault, Receiver};
