//! Scavengers of one thread, in a ring: the primary runs the first, one that stalls itself runs the next, each returns to the primary.

use std::cell::{Cell, UnsafeCell};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::stack::Stack;
use crate::switch::{Context, switch};

/// A computation that runs in the stalls of a primary. It calls [`Primary::resume`] every hundred nanoseconds or so.
pub type Work = Box<dyn FnOnce(&Primary)>;

/// A scavenger: where it stands. Its stack is kept beside.
struct Scavenger {
    context: UnsafeCell<Context>,
    /// What it begins with; empty once it has begun.
    work: Cell<Option<Work>>,
    finished: Cell<bool>,
    failed: Cell<bool>,
    stack: Stack,
}

/// The primary, as its scavengers see it.
pub struct Primary {
    primary: UnsafeCell<Context>,
    /// The scavenger that runs, or will run next.
    current: Cell<usize>,
    scavengers: Box<[Scavenger]>,
    unfinished: Cell<usize>,
}

impl Primary {
    /// Returns to the primary; returns here when the primary stalls again.
    #[inline(always)]
    pub fn resume(&self) {
        let scavenger = &self.scavengers[self.current.get()];
        // SAFETY: this runs on a scavenger's stack only (`Primary` is given to scavengers only), so the primary is suspended in `stall`.
        unsafe { switch(scavenger.context.get(), self.primary.get()) }
    }

    /// Lets the next scavenger run, for one that itself waits for memory; with one scavenger, returns to the primary.
    #[inline(always)]
    pub fn next(&self) {
        let current = self.current.get();
        let mut next = current;
        loop {
            next = if next + 1 == self.scavengers.len() { 0 } else { next + 1 };
            if next == current {
                return self.resume();
            }
            if !self.scavengers[next].finished.get() {
                break;
            }
        }
        self.current.set(next);
        // SAFETY: the next scavenger is another than the one that runs, so it is suspended, and it has not finished.
        unsafe { switch(self.scavengers[current].context.get(), self.scavengers[next].context.get()) }
    }

    /// Leaves a scavenger for good.
    fn finish(&self) -> ! {
        let current = self.current.get();
        self.scavengers[current].finished.set(true);
        self.unfinished.set(self.unfinished.get() - 1);
        if let Some(next) = self.scavengers.iter().position(|s| !s.finished.get()) {
            self.current.set(next);
        }
        // SAFETY: as in `resume`. Nothing resumes a scavenger that has finished.
        unsafe { switch(self.scavengers[current].context.get(), self.primary.get()) }
        unreachable!("a scavenger that has finished was resumed")
    }
}

/// Where every scavenger begins.
extern "sysv64" fn begin(primary: usize) -> ! {
    // SAFETY: `Harvest::new` gave the address of the `Primary` in its box, which `Harvest::drop` keeps while scavengers are suspended.
    let primary = unsafe { &*(primary as *const Primary) };
    let scavenger = &primary.scavengers[primary.current.get()];
    if let Some(work) = scavenger.work.take() {
        // This stack has no frame of the primary: a panic ends here.
        if catch_unwind(AssertUnwindSafe(|| work(primary))).is_err() {
            primary.scavengers[primary.current.get()].failed.set(true);
        }
    }
    primary.finish()
}

/// Scavengers and where each of them stands; of one thread.
pub struct Harvest {
    shared: Box<Primary>,
    switches: u64,
}

impl Harvest {
    /// Makes a stack for each scavenger; none of them begins yet. `None` without scavengers, or if the system has no memory for stacks.
    pub fn new(works: Vec<Work>) -> Option<Self> {
        if works.is_empty() {
            return None;
        }
        let scavengers: Option<Vec<_>> = works.into_iter().map(|w| Scavenger::new(w).ok()).collect();
        let scavengers = scavengers?.into_boxed_slice();
        let unfinished = Cell::new(scavengers.len());
        let primary = UnsafeCell::new(Context::NONE);
        let shared = Box::new(Primary { primary, current: Cell::new(0), scavengers, unfinished });
        let argument = &raw const *shared as usize;
        for scavenger in &shared.scavengers {
            // SAFETY: the stack is new and its top aligned to a page; nothing else reads the context yet.
            unsafe { *scavenger.context.get() = Context::new(scavenger.stack.top(), begin, argument) };
        }
        Some(Self { shared, switches: 0 })
    }

    /// Runs a scavenger until it returns to the primary; to be called between a prefetch and the load that it is for. Returns at once if all
    /// have finished.
    #[inline(always)]
    pub fn stall(&mut self) {
        let shared = &*self.shared;
        if shared.unfinished.get() == 0 {
            return;
        }
        self.switches += 1;
        let scavenger = &shared.scavengers[shared.current.get()];
        // SAFETY: `current` has not finished, as one that finishes moves it on; it is suspended, as the primary runs, and of this thread, as
        // `Harvest` cannot be sent to another.
        unsafe { switch(shared.primary.get(), scavenger.context.get()) }
    }

    /// Scavengers that have not finished.
    pub fn unfinished(&self) -> usize {
        self.shared.unfinished.get()
    }

    /// Scavengers that ended in a panic.
    pub fn failed(&self) -> usize {
        self.shared.scavengers.iter().filter(|s| s.failed.get()).count()
    }

    /// Switches to scavengers so far.
    pub fn switches(&self) -> u64 {
        self.switches
    }
}

impl Drop for Harvest {
    fn drop(&mut self) {
        // What a suspended scavenger has on its stack may be referred to from elsewhere, and cannot be dropped from here: it stays mapped.
        if self.shared.scavengers.iter().any(Scavenger::is_suspended) {
            let empty = Primary {
                primary: UnsafeCell::new(Context::NONE),
                current: Cell::new(0),
                scavengers: Box::default(),
                unfinished: Cell::new(0),
            };
            mem::forget(mem::replace(&mut self.shared, Box::new(empty)));
        }
    }
}

impl Scavenger {
    fn new(work: Work) -> std::io::Result<Self> {
        Ok(Self {
            context: UnsafeCell::new(Context::NONE),
            work: Cell::new(Some(work)),
            finished: Cell::new(false),
            failed: Cell::new(false),
            stack: Stack::new()?,
        })
    }

    /// Whether it has begun and not finished.
    fn is_suspended(&self) -> bool {
        let work = self.work.take();
        let begun = work.is_none();
        self.work.set(work);
        begun && !self.finished.get()
    }
}

#[cfg(test)]
mod tests;
