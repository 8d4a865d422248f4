//! Functions that scavengers call for handlers of signals.
//!
//! Signals are the process's, and so the primary's. What a person or another program sends to a process (an interrupt, a broken connection) does not
//! mean the scavenger: its handler is taken and never called. A signal that its own code would raise is another thing: a scavenger that wants to handle
//! one needs that to work as it should, and ends instead.

use std::ffi::c_int;

use libc::{sigaction, sighandler_t};

use crate::worker;

/// Signals that come from elsewhere than from the code of the program.
const FROM_OUTSIDE: [c_int; 12] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGPIPE,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
];

fn take(number: c_int, is_default: bool) {
    if !is_default && !FROM_OUTSIDE.contains(&number) {
        eprintln!(
            "whimbrel-harvest: a scavenger wants to handle signal {number}, but signals belong to the primary: the scavenger ends"
        );
        worker::end_of_scavenger();
    }
}

/// A signal from outside has its default, as when a process begins. One of a fault is taken: Rust's library then wants no handler for it.
pub(crate) unsafe extern "C" fn sigaction_of_scavenger(
    number: c_int,
    new: *const sigaction,
    old: *mut sigaction,
) -> c_int {
    // SAFETY: the caller's structures, or null; all octets zero are a value of them.
    unsafe {
        if let Some(new) = new.as_ref() {
            take(number, matches!(new.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN));
        }
        if let Some(old) = old.as_mut() {
            *old = std::mem::zeroed();
            old.sa_sigaction = if FROM_OUTSIDE.contains(&number) { libc::SIG_DFL } else { libc::SIG_IGN };
        }
    }
    0
}

/// A handler that is never called ends with it, and so does a program that is to end by a signal.
pub(crate) unsafe extern "C" fn raise_of_scavenger(number: c_int) -> c_int {
    eprintln!(
        "whimbrel-harvest: a scavenger raises signal {number}, which would be the primary's: the scavenger ends"
    );
    worker::end_of_scavenger();
}

/// The stack on which no handler runs.
pub(crate) unsafe extern "C" fn sigaltstack_of_scavenger(
    _: *const libc::stack_t,
    old: *mut libc::stack_t,
) -> c_int {
    // SAFETY: the caller's structure, or null.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    }
    0
}

pub(crate) unsafe extern "C" fn signal_of_scavenger(number: c_int, handler: sighandler_t) -> sighandler_t {
    take(number, matches!(handler, libc::SIG_DFL | libc::SIG_IGN));
    libc::SIG_DFL
}
