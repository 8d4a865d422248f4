//! Work that runs on a core while it waits for memory (memory stall software harvesting).
//!
//! A load that misses the last cache leaves a core idle for some hundred nanoseconds. A **primary** that knows where it will wait begins the
//! load with a prefetch and calls [`Harvest::stall`]: a **scavenger**, another computation on a stack of its own, runs until it calls
//! [`Primary::resume`]. Neither the kernel nor a second hardware thread takes part. A switch stores what the compiler says is live, which takes
//! one or two nanoseconds.
//!
//! On other processors than x86-64, and on other systems than Linux, [`Harvest::new`] returns `None`, and nothing else changes.
//!
//! `services/background/tool` does the same to compiled programs without their sources.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod pool;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod stack;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod switch;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[path = "elsewhere.rs"]
mod pool;

pub use pool::{Harvest, Primary, Work};
