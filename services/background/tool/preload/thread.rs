//! The context of a thread: where its primary and its scavengers stand.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::layout;
use crate::worker::Worker;
use crate::{Runtime, STOLEN, runtime};

/// Scavengers of a thread: with eight that chase pointers, memory is as busy as one core can make it.
const SLOTS: usize = 8;
/// Threads that have scavengers at once; others run without.
const THREADS_MAX: usize = 1024;

/// Where a coroutine goes on.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) stack: usize,
    pub(crate) instruction: usize,
    pub(crate) next: usize,
    pub(crate) worker: *const Worker,
}

/// A thread's context. Its first line is what a primary yields with, and what it touches around a call that may block.
#[repr(C, align(64))]
pub(crate) struct Thread {
    enabled: AtomicU8,
    stack: Cell<usize>,
    instruction: Cell<usize>,
    first: Cell<usize>,
    current: Cell<usize>,
    yields: AtomicU64,
    budget: Cell<i32>,
    /// Whether others may take its scavengers: it is blocked or has ended, and no one takes them at this moment.
    stealable: AtomicBool,
    /// Whether some were taken since it became blocked.
    stolen: AtomicBool,
    /// Its thread has ended.
    ended: AtomicBool,
    slots: [Cell<Slot>; SLOTS],
    count: Cell<usize>,
    /// Locks that the thread holds, and whether it could yield before the first.
    locks: Cell<u32>,
    enabled_unlocked: Cell<bool>,
    /// Its scavengers are being looked for: what that calls looks for none.
    takes: Cell<bool>,
}

const _: () = assert!(std::mem::offset_of!(Thread, enabled) == layout::ENABLED as usize);
const _: () = assert!(std::mem::offset_of!(Thread, stack) == layout::PRIMARY as usize);
const _: () = assert!(
    std::mem::offset_of!(Thread, instruction) == (layout::PRIMARY + layout::SLOT_INSTRUCTION) as usize
);
const _: () = assert!(std::mem::offset_of!(Thread, first) == layout::FIRST as usize);
const _: () = assert!(std::mem::offset_of!(Thread, current) == layout::CURRENT as usize);
const _: () = assert!(std::mem::offset_of!(Thread, yields) == layout::YIELDS as usize);
const _: () = assert!(std::mem::offset_of!(Thread, budget) == layout::BUDGET as usize);
const _: () = assert!(std::mem::offset_of!(Thread, stolen) < 64);
const _: () = assert!(std::mem::offset_of!(Slot, next) == layout::SLOT_NEXT as usize);

static THREADS: [AtomicPtr<Thread>; THREADS_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; THREADS_MAX];

thread_local! {
    static MINE: Mine = const { Mine(Cell::new(ptr::null())) };
}

/// The context of this thread; gives it up when the thread ends.
struct Mine(Cell<*const Thread>);

impl Drop for Mine {
    fn drop(&mut self) {
        let thread = self.0.replace(ptr::null());
        if thread.is_null() {
            return;
        }
        // What the thread still runs meets a context without scavengers: another thread may take over its own.
        set_base(Box::leak(Box::new(Thread::new())));
        // SAFETY: contexts are never freed.
        let thread = unsafe { &*thread };
        thread.enabled.store(0, Ordering::Relaxed);
        thread.locks.set(0);
        thread.ended.store(true, Ordering::Relaxed);
        thread.stealable.store(true, Ordering::Release);
    }
}

const NO_SLOT: Slot = Slot { stack: 0, instruction: 0, next: 0, worker: ptr::null() };

impl Thread {
    fn new() -> Self {
        Self {
            enabled: AtomicU8::new(0),
            stack: Cell::new(0),
            instruction: Cell::new(0),
            first: Cell::new(0),
            current: Cell::new(0),
            yields: AtomicU64::new(0),
            budget: Cell::new(0),
            stealable: AtomicBool::new(false),
            stolen: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            slots: [const { Cell::new(NO_SLOT) }; SLOTS],
            count: Cell::new(0),
            locks: Cell::new(0),
            enabled_unlocked: Cell::new(false),
            takes: Cell::new(false),
        }
    }

    /// Each slot goes on to the next, and the last to the primary.
    fn link(&self) {
        let count = self.count.get();
        let address =
            |k: usize| if k < count { self.slots[k].as_ptr() as usize } else { self.stack.as_ptr() as usize };
        for k in 0..count {
            let slot = self.slots[k].get();
            self.slots[k].set(Slot { next: address(k + 1), ..slot });
        }
        self.first.set(address(0));
    }

    /// Probability that all its scavengers wait for memory in a row.
    fn unhidden(&self, runtime: &Runtime) -> f64 {
        // SAFETY: workers are never freed.
        (0..self.count.get())
            .map(|k| runtime.pool.special(unsafe { (*self.slots[k].get().worker).work() }))
            .product()
    }

    /// Takes scavengers of blocked threads, else new ones from the pool.
    fn get_scavengers(&self, runtime: &Runtime) {
        for other in &THREADS {
            let other = other.load(Ordering::Acquire);
            if other.is_null() {
                break;
            }
            if ptr::eq(other, self) {
                continue;
            }
            // SAFETY: contexts are never freed.
            let other = unsafe { &*other };
            if other.stealable.load(Ordering::Relaxed)
                && other.stealable.compare_exchange(true, false, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                if self.migrate(other, runtime) {
                    other.stolen.store(true, Ordering::Relaxed);
                }
                other.stealable.store(true, Ordering::Release);
            }
        }
        let mut slots = Vec::new();
        let mut unhidden = self.unhidden(runtime);
        if self.count.get() == 0 {
            unhidden = 1.0;
        }
        runtime.pool.fetch(&mut unhidden, &mut slots, SLOTS - self.count.get());
        for slot in slots {
            self.slots[self.count.get()].set(slot);
            self.count.set(self.count.get() + 1);
        }
        self.link();
    }

    /// Moves scavengers here; says whether there were any.
    fn migrate(&self, other: &Self, runtime: &Runtime) -> bool {
        let mut left = 0;
        let mut moved = false;
        for k in 0..other.count.get() {
            let slot = other.slots[k].get();
            // SAFETY: workers are never freed.
            let stays = runtime.pool.stays(unsafe { (*slot.worker).work() });
            if stays || self.count.get() == SLOTS {
                other.slots[left].set(slot);
                left += 1;
            } else {
                self.slots[self.count.get()].set(slot);
                self.count.set(self.count.get() + 1);
                STOLEN.fetch_add(1, Ordering::Relaxed);
                moved = true;
            }
        }
        other.count.set(left);
        other.link();
        moved
    }

    fn primary_may_yield(&self) -> bool {
        if self.locks.get() > 0 {
            self.enabled_unlocked.get()
        } else {
            self.enabled.load(Ordering::Relaxed) != 0
        }
    }

    fn set_enabled(&self, enabled: bool) {
        if self.locks.get() > 0 {
            self.enabled_unlocked.set(enabled);
        } else {
            self.enabled.store(enabled.into(), Ordering::Relaxed);
        }
    }
}

/// Gives the calling thread a context and scavengers.
pub(crate) fn begin(runtime: &'static Runtime) {
    let thread = adopt().or_else(register);
    let Some(thread) = thread else {
        set_base(Box::leak(Box::new(Thread::new())));
        return;
    };
    thread.get_scavengers(runtime);
    MINE.with(|mine| mine.0.set(thread));
    set_base(thread);
    thread.set_enabled(thread.count.get() > 0);
}

/// The context of a thread that has ended, with its scavengers.
fn adopt() -> Option<&'static Thread> {
    for thread in &THREADS {
        let thread = thread.load(Ordering::Acquire);
        if thread.is_null() {
            return None;
        }
        // SAFETY: contexts are never freed.
        let thread = unsafe { &*thread };
        if thread.ended.load(Ordering::Relaxed)
            && thread.stealable.compare_exchange(true, false, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            if thread.ended.swap(false, Ordering::Relaxed) {
                thread.stolen.store(false, Ordering::Relaxed);
                return Some(thread);
            }
            thread.stealable.store(true, Ordering::Release);
        }
    }
    None
}

fn register() -> Option<&'static Thread> {
    let thread = Box::into_raw(Box::new(Thread::new()));
    for place in &THREADS {
        if place.compare_exchange(ptr::null_mut(), thread, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // SAFETY: contexts are never freed.
            return Some(unsafe { &*thread });
        }
    }
    // SAFETY: made above and given to no one.
    drop(unsafe { Box::from_raw(thread) });
    None
}

fn set_base(thread: &'static Thread) {
    const ARCH_SET_GS: usize = 0x1001;
    // SAFETY: only instrumented code uses GS, and it expects this.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, thread as *const Thread as usize) };
}

fn mine() -> Option<&'static Thread> {
    let thread = MINE.try_with(|mine| mine.0.get()).unwrap_or(ptr::null());
    // SAFETY: contexts are never freed.
    unsafe { thread.as_ref() }
}

/// Runs a call that may block: meanwhile other threads may take this one's scavengers.
pub(crate) fn blocking<R>(call: impl FnOnce() -> R) -> R {
    let Some(thread) = mine() else { return call() };
    // A thread of a pool begins while all others compute, and has no scavenger. What it waited for may be another one's work, which waits in turn.
    if thread.count.get() == 0 && !thread.takes.get() {
        let result = call();
        let number = std::io::Error::last_os_error().raw_os_error();
        take_scavengers(thread, number);
        return result;
    }
    // A signal handler that interrupts a scavenger is no blocked primary.
    if !thread.primary_may_yield() {
        return call();
    }
    thread.set_enabled(false);
    thread.stealable.store(true, Ordering::Release);
    let result = call();
    let number = std::io::Error::last_os_error().raw_os_error();
    while thread.stealable.compare_exchange_weak(true, false, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::hint::spin_loop();
    }
    if thread.stolen.load(Ordering::Relaxed) {
        thread.stolen.store(false, Ordering::Relaxed);
        take_scavengers(thread, number);
    } else {
        thread.set_enabled(thread.count.get() > 0);
    }
    result
}

/// Takes scavengers for a thread that computes from now on, and leaves `errno` as the call before has set it.
fn take_scavengers(thread: &Thread, number: Option<i32>) {
    if let Some(runtime) = runtime() {
        thread.takes.set(true);
        thread.get_scavengers(runtime);
        thread.takes.set(false);
    }
    thread.set_enabled(thread.count.get() > 0);
    if let Some(number) = number {
        // SAFETY: this thread's own `errno`.
        unsafe { *libc::__errno_location() = number };
    }
}

/// The thread holds one lock more: it does not yield until it holds none.
pub(crate) fn locked() {
    if let Some(thread) = mine() {
        if thread.locks.get() == 0 {
            thread.enabled_unlocked.set(thread.enabled.swap(0, Ordering::Relaxed) != 0);
        }
        thread.locks.set(thread.locks.get() + 1);
    }
}

/// The thread holds one lock less.
pub(crate) fn unlocked() {
    if let Some(thread) = mine().filter(|t| t.locks.get() > 0) {
        thread.locks.set(thread.locks.get() - 1);
        if thread.locks.get() == 0 {
            thread.enabled.store(thread.enabled_unlocked.get().into(), Ordering::Relaxed);
        }
    }
}

/// Yields of all threads so far.
pub(crate) fn yields() -> u64 {
    let threads = THREADS.iter().map(|t| t.load(Ordering::Acquire)).take_while(|t| !t.is_null());
    // SAFETY: contexts are never freed; the counter is a word that its thread adds to.
    threads.map(|t| unsafe { (*t).yields.load(Ordering::Relaxed) }).sum()
}
