//! Functions of the C library that start a thread, may block it, or take and release its locks.

use std::ffi::{CStr, c_int, c_long, c_uint, c_void};

use libc::{pthread_attr_t, pthread_cond_t, pthread_mutex_t, pthread_t, timespec};

use crate::thread::{blocking, locked, unlocked};
use crate::{Next, runtime, thread};

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

struct Beginning {
    start: Start,
    argument: *mut c_void,
}

extern "C" fn begin(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below made it for this thread alone.
    let beginning = unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    if let Some(runtime) = runtime() {
        thread::begin(runtime);
    }
    (beginning.start)(beginning.argument)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(
        *mut pthread_t,
        *const pthread_attr_t,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    static NEXT: Next = Next::new(c"pthread_create", None);
    // SAFETY: the type is that of `pthread_create`.
    let create: Create = unsafe { NEXT.get() };
    let beginning = Box::into_raw(Box::new(Beginning { start, argument })).cast();
    // SAFETY: the caller's arguments; `begin` takes what it is given.
    let result = unsafe { create(thread, attributes, begin, beginning) };
    if result != 0 {
        // SAFETY: no thread was made that would take it.
        drop(unsafe { Box::from_raw(beginning.cast::<Beginning>()) });
    }
    result
}

/// Functions that may block and do nothing else that matters here.
macro_rules! may_block {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $version:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name with a zero"),
            };
            static NEXT: Next = Next::new(NAME, $version);
            // SAFETY: the type is that of the function of this name.
            let function: Function = unsafe { NEXT.get() };
            // SAFETY: the caller's arguments, passed on.
            blocking(|| unsafe { function($($argument),*) })
        }
    )*};
}

may_block! {
    pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int, None;
    pthread_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int, Some(c"GLIBC_2.3.2");
    pthread_cond_timedwait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int, Some(c"GLIBC_2.3.2");
    sem_wait(semaphore: *mut libc::sem_t) -> c_int, None;
    nanosleep(time: *const timespec, left: *mut timespec) -> c_int, None;
    clock_nanosleep(clock: c_int, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int, None;
    usleep(time: c_uint) -> c_int, None;
    sleep(time: c_uint) -> c_uint, None;
    poll(descriptors: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int, None;
    epoll_wait(epoll: c_int, events: *mut libc::epoll_event, events_max: c_int, timeout: c_int) -> c_int, None;
    accept(socket: c_int, address: *mut libc::sockaddr, octets: *mut libc::socklen_t) -> c_int, None;
    recv(socket: c_int, buffer: *mut c_void, octets: usize, flags: c_int) -> isize, None;
    read(file: c_int, buffer: *mut c_void, octets: usize) -> isize, None;
}

/// Rust's locks wait with it; and it may do what [`crate::mprotect`] looks at.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    static NEXT: Next = Next::new(c"syscall", None);
    if matches!(number, libc::SYS_mprotect | libc::SYS_pkey_mprotect) {
        crate::refuse_writable_code(a, b, c as c_int);
    }
    // SAFETY: the type is that of `syscall`.
    let function: Syscall = unsafe { NEXT.get() };
    // SAFETY: the caller's arguments, passed on.
    blocking(|| unsafe { function(number, a, b, c, d, e, f) })
}

static LOCK: Next = Next::new(c"pthread_mutex_lock", None);
static TRY_LOCK: Next = Next::new(c"pthread_mutex_trylock", None);
static UNLOCK: Next = Next::new(c"pthread_mutex_unlock", None);

type OfMutex = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the types are those of the functions.
    let (lock, try_lock): (OfMutex, OfMutex) = unsafe { (LOCK.get(), TRY_LOCK.get()) };
    // SAFETY: the caller's mutex.
    let mut result = unsafe { try_lock(mutex) };
    if result == libc::EBUSY {
        // SAFETY: as above.
        result = blocking(|| unsafe { lock(mutex) });
    }
    if matches!(result, 0 | libc::EOWNERDEAD) {
        locked();
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the type is that of the function, the mutex the caller's.
    let result = unsafe { TRY_LOCK.get::<OfMutex>()(mutex) };
    if matches!(result, 0 | libc::EOWNERDEAD) {
        locked();
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the type is that of the function, the mutex the caller's.
    let result = unsafe { UNLOCK.get::<OfMutex>()(mutex) };
    if result == 0 {
        unlocked();
    }
    result
}
