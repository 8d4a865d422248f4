//! Coroutines on which scavengers run, one after another.

use std::arch::{asm, naked_asm};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::layout;
use crate::load::Work;
use crate::thread::Slot;
use crate::{FINISHED, fail, runtime};

/// Octets of a scavenger's stack: a thread's default; pages that are not touched cost nothing.
const STACK_OCTETS: usize = 8 << 20;
const GUARD_OCTETS: usize = 4096;

/// Programs that wait for a coroutine.
pub(crate) struct Pool {
    works: Vec<Work>,
    next: AtomicUsize,
    /// Held by a thread that takes several.
    taking: Mutex<()>,
}

/// A coroutine: its stack, and the program that runs on it.
pub(crate) struct Worker {
    top: usize,
    work: UnsafeCell<usize>,
}

/// No scavenger is added behind those whose yields go on to the next with this probability in a row.
const UNHIDDEN_MAX: f64 = 0.1;

impl Pool {
    pub(crate) fn new(works: Vec<Work>) -> Self {
        Self { works, next: AtomicUsize::new(0), taking: Mutex::new(()) }
    }

    /// At the end of the process.
    pub(crate) fn stop_yields(&self) {
        self.works.iter().for_each(Work::stop_yields);
    }

    pub(crate) fn total(&self) -> usize {
        self.works.len()
    }

    fn take(&self) -> Option<usize> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        (next < self.works.len()).then_some(next)
    }

    /// Takes scavengers for a thread: until it is unlikely that all of them wait for memory at once.
    pub(crate) fn fetch(&self, have: &mut f64, slots: &mut Vec<Slot>, slots_max: usize) {
        let Ok(_taking) = self.taking.lock() else { return };
        while slots.len() < slots_max && *have > UNHIDDEN_MAX {
            let Some(work) = self.take() else { return };
            *have *= self.works[work].special;
            slots.push(Worker::begin(work, &self.works[work]));
        }
    }

    pub(crate) fn special(&self, work: usize) -> f64 {
        self.works[work].special
    }

    pub(crate) fn stays(&self, work: usize) -> bool {
        self.works[work].stays
    }
}

impl Worker {
    /// A coroutine that has not begun.
    fn begin(work: usize, _: &Work) -> Slot {
        // SAFETY: a new mapping at an address that the kernel chooses; it is never unmapped.
        let bottom = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
            let bottom = libc::mmap(
                ptr::null_mut(),
                STACK_OCTETS + GUARD_OCTETS,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            );
            if bottom == libc::MAP_FAILED {
                fail("no memory for the stack of a scavenger");
            }
            libc::syscall(libc::SYS_mprotect, bottom, GUARD_OCTETS, libc::PROT_NONE);
            bottom as usize
        };
        let top = bottom + GUARD_OCTETS + STACK_OCTETS;
        let worker: &'static Worker = Box::leak(Box::new(Worker { top, work: UnsafeCell::new(work) }));
        let stack = (top - 32) as *mut usize;
        // SAFETY: the highest words of the new stack.
        unsafe { stack.write(worker as *const Worker as usize) };
        Slot {
            stack: stack as usize,
            instruction: begin as *const () as usize,
            next: 0,
            worker: worker as *const Worker,
        }
    }

    /// The program that runs on it.
    pub(crate) fn work(&self) -> usize {
        // SAFETY: only the coroutine itself writes it, and it does not run while a thread moves or counts coroutines.
        unsafe { *self.work.get() }
    }
}

/// The first instructions of a coroutine, on whose stack its address is.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    naked_asm!("pop rdi", "and rsp, -16", "push 0", "push 0", "xor ebp, ebp", "call {}", "ud2", sym run)
}

/// Runs scavengers until none is left, then nothing.
extern "C" fn run(worker: &'static Worker) -> ! {
    let Some(runtime) = runtime() else { fail("a scavenger runs without a runtime") };
    loop {
        let work = &runtime.pool.works[worker.work()];
        // Nothing is allocated here: the primary may have yielded in an allocator of its own.
        let count = work.arguments.len() as c_int;
        // SAFETY: `main` with a terminated list of terminated arguments and the environment.
        unsafe { (work.main)(count, work.argument_list.as_ptr(), environ.cast()) };
        run_end_of(worker);
        done(worker);
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Runs what a scavenger has for its end, as `exit` does.
fn run_end_of(worker: &'static Worker) {
    let Some(runtime) = runtime() else { return };
    let work = &runtime.pool.works[worker.work()];
    // SAFETY: the scavenger has ended, and this is its coroutine: its own functions, which run once, and those of its own library.
    unsafe {
        if let Some(finalize) = work.finalize {
            finalize(ptr::null_mut());
        }
        work.destructors.iter().for_each(|destructor| destructor());
        if let Some(flush) = work.flush {
            flush(ptr::null_mut::<c_void>());
        }
    }
}

/// Counts a scavenger that has ended, and takes another; without one, the coroutine returns to the primary for ever.
fn done(worker: &'static Worker) {
    let Some(runtime) = runtime() else { return };
    let finished = FINISHED.fetch_add(1, Ordering::Relaxed) + 1;
    match runtime.pool.take() {
        // SAFETY: this is the coroutine itself.
        Some(next) => unsafe { *worker.work.get() = next },
        None => {
            if finished as usize == runtime.pool.works.len() {
                runtime.enable(false);
            }
            loop {
                return_to_primary();
            }
        }
    }
}

/// What scavengers call for `exit`.
pub(crate) unsafe extern "C" fn exit_of_scavenger(_status: c_int) -> ! {
    let worker = running();
    run_end_of(worker);
    end(worker)
}

/// What they call for `_exit` and the like, which run nothing of what is registered for the end.
pub(crate) unsafe extern "C" fn quick_exit_of_scavenger(_status: c_int) -> ! {
    end(running())
}

/// Ends the scavenger that runs, without what is registered for its end.
pub(crate) fn end_of_scavenger() -> ! {
    if runtime().is_none() {
        fail("a scavenger ends before it has begun");
    }
    end(running())
}

/// The coroutine that runs.
fn running() -> &'static Worker {
    // SAFETY: the thread that runs a scavenger has a context at GS, whose current slot is the scavenger's; coroutines are never freed.
    unsafe {
        let slot: *const Slot;
        asm!("mov {}, gs:[{current}]", out(reg) slot, current = const layout::CURRENT);
        &*(*slot).worker
    }
}

fn end(worker: &'static Worker) -> ! {
    done(worker);
    // SAFETY: the frames of the scavenger that has exited are given up; the coroutine begins again on its stack.
    unsafe {
        asm!("mov rsp, {top}", "xor ebp, ebp", "push 0", "push 0", "call {run}", "ud2",
            top = in(reg) worker.top, in("rdi") worker, run = sym run, options(noreturn))
    }
}

/// As an instrumented scavenger yields.
fn return_to_primary() {
    // SAFETY: this runs on a coroutine's stack, so the primary is suspended and its slot valid. Registers are declared as overwritten or pushed.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "mov rax, gs:[{current}]",
            "lea rcx, [rip + 2f]",
            "mov [rax], rsp",
            "mov [rax + 8], rcx",
            "mov rsp, gs:[{primary}]",
            "jmp gs:[{primary} + 8]",
            "2:",
            "pop rbp",
            "pop rbx",
            current = const layout::CURRENT,
            primary = const layout::PRIMARY,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("C"),
        );
    }
}
