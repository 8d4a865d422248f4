//! bpf(2): maps, programs, and links that attach a program to an interface for as long as their descriptor lives.
//!
//! Own code because the calls that we need are four, with fixed arguments: a loader library brings ELF, BTF and C
//! compilers for programs that we do not have.

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

use whimbrel_user::FastEntry;

use super::mapping::Mapping;

/// An instruction: struct bpf_insn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) op: u8,
    /// Source above, destination below.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// Code points of linux/bpf.h.
mod code {
    pub(super) const MAP_CREATE: libc::c_long = 0;
    pub(super) const MAP_UPDATE_ELEM: libc::c_long = 2;
    pub(super) const PROG_LOAD: libc::c_long = 5;
    #[cfg(any(test, feature = "measure"))]
    pub(super) const PROG_TEST_RUN: libc::c_long = 10;
    pub(super) const LINK_CREATE: libc::c_long = 28;
    #[cfg(feature = "measure")]
    pub(super) const MAP_TYPE_HASH: u32 = 1;
    pub(super) const MAP_TYPE_ARRAY: u32 = 2;
    pub(super) const MAP_TYPE_DEVMAP: u32 = 14;
    pub(super) const MAP_TYPE_XSKMAP: u32 = 17;
    /// A map's flag: its memory may be mapped.
    pub(super) const F_MMAPABLE: u32 = 1 << 10;
    pub(super) const PROG_TYPE_SOCKET_FILTER: u32 = 1;
    pub(super) const PROG_TYPE_XDP: u32 = 6;
    /// An attach type.
    pub(super) const XDP: u32 = 37;
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    /// In the driver, before the kernel makes a packet of a frame. Not every driver can.
    Driver = 1 << 2,
    /// After that: works with every interface, and gains little.
    Generic = 1 << 1,
}

/// Octets of the verifier's report that are kept: its last lines say what it refuses.
const LOG_OCTETS: usize = 64 << 10;

/// Our programs call no helper that is kept for GPL programs.
const LICENSE: &CStr = c"Apache-2.0";

/// A call with its arguments: fields of union bpf_attr for a command, without padding, in order.
///
/// SAFETY: the addresses among `fields` must be those of memory that the command may read or write as linux/bpf.h says,
/// and that lives through the call.
unsafe fn call<const N: usize>(command: libc::c_long, mut fields: [u32; N]) -> io::Result<libc::c_int> {
    // SAFETY: `fields` is as many octets as given; what it points to is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, fields.as_mut_ptr(), size_of_val(&fields)) };
    super::check(result as libc::c_int)
}

/// An address as two fields.
fn halves<T: ?Sized>(p: *const T) -> [u32; 2] {
    let address = p.cast::<u8>().addr() as u64;
    let b = address.to_ne_bytes();
    [u32::from_ne_bytes([b[0], b[1], b[2], b[3]]), u32::from_ne_bytes([b[4], b[5], b[6], b[7]])]
}

/// A map of four octets by number.
fn map(kind: u32, value_octets: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    // map_type, key_size, value_size, max_entries, map_flags.
    // SAFETY: no addresses; a descriptor or -1 out.
    let fd = unsafe { call(code::MAP_CREATE, [kind, 4, value_octets, entries, flags]) };
    super::owned(fd?)
}

/// Sets a value of four octets.
fn set(map: &OwnedFd, key: u32, value: u32) -> io::Result<()> {
    let ([k0, k1], [v0, v1]) = (halves(&raw const key), halves(&raw const value));
    // map_fd, padding, key, value, flags.
    // SAFETY: key and value are four octets each, as the map was made, and live through the call.
    unsafe { call(code::MAP_UPDATE_ELEM, [map.as_raw_fd() as u32, 0, k0, k1, v0, v1, 0, 0]) }.map(drop)
}

/// A map from a receive queue to the AF_XDP socket that takes its frames.
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    pub(crate) fn new(queues: u32) -> io::Result<Self> {
        map(code::MAP_TYPE_XSKMAP, 4, queues, 0).map(Self)
    }

    pub(crate) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        set(&self.0, queue, socket.as_raw_fd() as u32)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A map from a number to the interface by which frames leave.
pub(crate) struct DeviceMap(OwnedFd);

impl DeviceMap {
    pub(crate) fn new(devices: u32) -> io::Result<Self> {
        map(code::MAP_TYPE_DEVMAP, 4, devices, 0).map(Self)
    }

    pub(crate) fn set(&self, number: u32, interface: u32) -> io::Result<()> {
        set(&self.0, number, interface)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// What may be shared with a program.
///
/// # Safety
/// All of it is atomic integers, for which all zeroes are a value, and its size is a multiple of its alignment and of eight: so are
/// the places in an array of the kernel's.
pub(crate) unsafe trait Sharable {}

// SAFETY: an atomic integer of eight octets.
unsafe impl Sharable for AtomicU64 {}
// SAFETY: atomic integers, 128 octets in all, as is asserted where it is declared.
unsafe impl Sharable for FastEntry {}
// SAFETY: an array of what is sharable.
unsafe impl<T: Sharable, const N: usize> Sharable for [T; N] {}

/// An array in memory that programs and we both use.
pub(crate) struct SharedArray<T> {
    map: OwnedFd,
    memory: Mapping,
    entries: usize,
    of: PhantomData<T>,
}

// SAFETY: the mapping is owned, bound to no thread, and all its contents are atomic.
unsafe impl<T: Sharable> Send for SharedArray<T> {}
// SAFETY: likewise.
unsafe impl<T: Sharable> Sync for SharedArray<T> {}

impl<T: Sharable> SharedArray<T> {
    /// Zeroes. Errors: those of bpf(2) and mmap(2).
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() <= 4096) };
        let map = map(code::MAP_TYPE_ARRAY, size_of::<T>() as u32, entries, code::F_MMAPABLE)?;
        let octets = entries as usize * size_of::<T>();
        let memory = Mapping::new(octets, libc::MAP_SHARED, map.as_raw_fd(), 0)?;
        Ok(Self { map, memory, entries: entries as usize, of: PhantomData })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }
}

impl<T: Sharable> std::ops::Deref for SharedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many entries are mapped as long as `self` lives, at a page's start; any octets are a `T`, and any
        // other writes them, writes whole words, as `Sharable` demands to be done here.
        unsafe { std::slice::from_raw_parts(self.memory.start.cast::<T>().as_ptr(), self.entries) }
    }
}

/// A hash map from four octets to something that begins as zeroes.
#[cfg(feature = "measure")]
pub(crate) struct HashOf<T>(OwnedFd, PhantomData<T>);

#[cfg(feature = "measure")]
impl<T: Sharable + Default> HashOf<T> {
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        map(code::MAP_TYPE_HASH, size_of::<T>() as u32, entries, 0).map(|fd| Self(fd, PhantomData))
    }

    /// Adds an entry.
    pub(crate) fn put(&self, key: u32) -> io::Result<()> {
        let value = T::default();
        let ([k0, k1], [v0, v1]) = (halves(&raw const key), halves(&raw const value));
        // map_fd, padding, key, value, flags.
        // SAFETY: the key is four octets and the value those of a `T`, as the map was made; both live through the call.
        unsafe { call(code::MAP_UPDATE_ELEM, [self.0.as_raw_fd() as u32, 0, k0, k1, v0, v1, 0, 0]) }.map(drop)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A program that the kernel has verified.
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Errors: those of bpf(2), `EPERM` without CAP_BPF and CAP_NET_ADMIN of the initial user namespace; where the
    /// verifier refuses, its report's end.
    pub(crate) fn load(instructions: &[Instruction]) -> io::Result<Self> {
        Self::of_kind(code::PROG_TYPE_XDP, code::XDP, instructions)
    }

    /// One that chooses the queue of a packet, and looks at it as socket filters do. Errors: as of [`Self::load`].
    pub(crate) fn load_chooser(instructions: &[Instruction]) -> io::Result<Self> {
        Self::of_kind(code::PROG_TYPE_SOCKET_FILTER, 0, instructions)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn of_kind(kind: u32, attach_type: u32, instructions: &[Instruction]) -> io::Result<Self> {
        let load = |log: &mut [u8]| {
            let ([i0, i1], [l0, l1]) = (halves(instructions.as_ptr()), halves(LICENSE.as_ptr()));
            let (level, octets) = (u32::from(!log.is_empty()), log.len() as u32);
            let [g0, g1] = if log.is_empty() { [0, 0] } else { halves(log.as_mut_ptr()) };
            let len = instructions.len() as u32;
            // prog_type, insn_cnt, insns, license, log_level, log_size, log_buf, kern_version, prog_flags, prog_name
            // (16 octets), prog_ifindex, expected_attach_type.
            let fields = [kind, len, i0, i1, l0, l1, level, octets, g0, g1, 0, 0, 0, 0, 0, 0, 0, attach_type];
            // SAFETY: the instructions are `len` of eight octets, the licence ends with a zero, the log is `octets`
            // writable octets; all live through the call.
            unsafe { call(code::PROG_LOAD, fields) }
        };
        let refused = match load(&mut []) {
            Ok(fd) => return super::owned(fd).map(Self),
            Err(e) => e,
        };
        if !matches!(refused.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) {
            return Err(refused);
        }
        let mut log = vec![0; LOG_OCTETS];
        match load(&mut log) {
            Ok(fd) => super::owned(fd).map(Self),
            Err(e) => {
                let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
                let text = String::from_utf8_lossy(&log[..end]);
                let last = text.lines().rev().find(|l| !l.starts_with("processed")).unwrap_or_default();
                Err(io::Error::new(e.kind(), format!("{e}; the verifier says: {last}")))
            }
        }
    }

    /// Attaches it to an interface. Errors: `EBUSY` or `EEXIST` where another program is; the driver's own where it
    /// cannot.
    pub(crate) fn attach(&self, interface: u32, how: Attach) -> io::Result<BpfLink> {
        // prog_fd, target_ifindex, attach_type, flags.
        // SAFETY: no addresses; a descriptor or -1 out.
        let fd =
            unsafe { call(code::LINK_CREATE, [self.0.as_raw_fd() as u32, interface, code::XDP, how as u32]) };
        super::owned(fd?).map(BpfLink)
    }
}

/// A program on an interface; dropping it, or the process's end however it comes, takes the program off.
pub(crate) struct BpfLink(#[expect(dead_code, reason = "held for its drop")] OwnedFd);

#[cfg(feature = "measure")]
impl Program {
    /// Runs it over so many copies of a frame, which go where it says. Errors: those of bpf(2).
    pub(crate) fn flood(&self, frame: &[u8], times: u32) -> io::Result<()> {
        /// The flag `BPF_F_TEST_XDP_LIVE_FRAMES`.
        const LIVE_FRAMES: u32 = 1 << 1;
        let [d0, d1] = halves(frame.as_ptr());
        // prog_fd, retval, data_size_in, data_size_out, data_in, data_out, repeat, duration, ctx_size_in, ctx_size_out, ctx_in,
        // ctx_out, flags, cpu, batch_size, padding.
        let mut fields = [0; 20];
        fields[..10].copy_from_slice(&[
            self.0.as_raw_fd() as u32,
            0,
            frame.len() as u32,
            0,
            d0,
            d1,
            0,
            0,
            times,
            0,
        ]);
        fields[16] = LIVE_FRAMES;
        // SAFETY: the frame is as many readable octets as given and lives through the call.
        unsafe { call(code::PROG_TEST_RUN, fields) }.map(drop)
    }
}

#[cfg(test)]
impl Program {
    /// Runs it once over a frame, without any interface: its verdict.
    pub(crate) fn verdict(&self, frame: &[u8]) -> io::Result<u32> {
        self.run(frame).map(|(verdict, _)| verdict)
    }

    /// Likewise, and what it has made of the frame.
    pub(crate) fn run(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let mut out = vec![0; 4096];
        let ([d0, d1], [o0, o1]) = (halves(frame.as_ptr()), halves(out.as_mut_ptr()));
        let (octets, room) = (frame.len() as u32, out.len() as u32);
        // prog_fd, retval, data_size_in, data_size_out, data_in, data_out, repeat, duration.
        let mut fields = [self.0.as_raw_fd() as u32, 0, octets, room, d0, d1, o0, o1, 1, 0];
        // SAFETY: the frame is as many readable octets as given, the other buffer as many writable ones, and both live through the
        // call, which also writes the verdict and a length into `fields`.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, code::PROG_TEST_RUN, fields.as_mut_ptr(), size_of_val(&fields))
        };
        super::check(result as libc::c_int)?;
        out.truncate(fields[3] as usize);
        Ok((fields[1], out))
    }
}
