//! XDP programs: what the driver's receive path does with a frame before the kernel sees it; and the one that chooses queues of TUN
//! devices.
//!
//! They are assembled here, instruction by instruction, and checked by the kernel's verifier when they are loaded. So
//! neither building nor running the product needs a C compiler, the kernel's headers or an ELF loader.

mod asm;
pub(crate) mod chooser;
pub(crate) mod fast;
mod headers;
#[cfg(feature = "measure")]
pub(crate) mod measure;
#[cfg(test)]
mod reference;
pub(crate) mod steer;
