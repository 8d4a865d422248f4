//! The one instruction that loads a cache line without waiting for it.
//!
//! A load that is only made early would do the same in safe code, but the processor keeps it until the line is there, and everything
//! behind it: some five hundred instructions, which is six packets. With twelve million sessions `./x bench upf throughput` shows the
//! difference. The crate is apart so that the packet pipeline itself has no unsafe code.

/// Begins to load the cache line in which `of` begins.
#[inline(always)]
pub fn prefetch<T>(of: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is of SSE, which every x86-64 processor has; it is a hint that changes no value, and no address
    // makes it fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(of).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = of; // elsewhere the hint has no stable intrinsic yet, and packets wait for memory
}
