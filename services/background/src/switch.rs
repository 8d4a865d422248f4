//! The switch from one stack to another.
//!
//! Safe Rust has no way to leave a function but by returning; threads of the kernel have, but a switch between them takes a microsecond.
//! `./x bench harvest yields` shows two nanoseconds for the way there and back.

use std::arch::{asm, naked_asm};

/// Where a suspended computation goes on. The registers that were live are on its stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Context {
    instruction: usize,
    stack: usize,
}

impl Context {
    /// Of nothing that could be resumed.
    pub(crate) const NONE: Self = Self { instruction: 0, stack: 0 };

    /// Of a computation that has not begun: it calls `entry` with `argument` on the stack that ends at `top`, which is aligned to 16 octets.
    ///
    /// # Safety
    /// `top` ends a writable stack that nothing else uses, of which the highest 32 octets are free.
    pub(crate) unsafe fn new(top: *mut u8, entry: extern "sysv64" fn(usize) -> !, argument: usize) -> Self {
        let stack = top.wrapping_sub(32).cast::<usize>();
        // SAFETY: both words are in the 32 octets that the caller promises.
        unsafe {
            stack.write(argument);
            stack.add(1).write(entry as usize);
        }
        Self { instruction: begin as *const () as usize, stack: stack as usize }
    }
}

/// The first instructions of a computation: its argument and its function are on its stack.
#[unsafe(naked)]
unsafe extern "sysv64" fn begin() {
    // The function sees the stack as after a call: aligned to 16 octets, less the return address, which is zero, so that a backtrace ends.
    naked_asm!("pop rdi", "pop rax", "push 0", "push rax", "ret")
}

/// Suspends the computation that runs now in `from` and resumes the one in `to`. Returns when something resumes `from`.
///
/// The compiler saves what is live here and nothing else: to it, every register is overwritten.
///
/// # Safety
/// `to` is of a computation that is suspended and whose stack is mapped; both are of this thread.
#[inline(always)]
pub(crate) unsafe fn switch(from: *mut Context, to: *const Context) {
    // SAFETY: all registers are declared as overwritten, but for two that the compiler keeps for itself and that are pushed, and the stack
    // pointer, which is restored at the resumption. Without `nostack` the compiler keeps nothing below the stack pointer here.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "lea rax, [rip + 2f]",
            "mov [rdi], rax",
            "mov [rdi + 8], rsp",
            "mov rsp, [rsi + 8]",
            "jmp [rsi]",
            "2:",
            "pop rbp",
            "pop rbx",
            inout("rdi") from => _,
            inout("rsi") to => _,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        );
    }
}
