//! An AF_XDP socket: frames of one receive queue of an interface, in memory shared with the kernel.
//!
//! Frames move between four rings. Those for reception go from the fill ring to the receive ring and back; those for
//! transmission from our stock to the transmit ring, and over the completion ring back. Own code because what wraps it
//! elsewhere builds a C library that needs a BPF compiler; safe code cannot share memory with the kernel.
//!
//! Invariant of the rings: an index is written by one side only, with release order after the entries that it hands
//! over, and read by the other with acquire order before it touches them. A frame is in one ring or in our stock, never
//! in two, so its holder has it alone.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::mapping::Mapping;

/// Frames for reception: 20 ms of 200,000 datagrams a second, or 3 ms of 10 Gbit/s.
const RECEIVE_FRAMES: u32 = 4096;
/// Frames for transmission: as many as the kernel may owe us while its device is busy.
const TRANSMIT_FRAMES: u32 = 2048;
/// Octets that the kernel keeps in front of a received frame (XDP_PACKET_HEADROOM).
const KERNEL_HEADROOM: u32 = 256;
/// A page: the largest frame that the kernel allows in this mode.
const FRAME_OCTETS_MAX: u32 = 4096;
/// Frames that the driver may receive in one call that polls busily: a burst of NAPI.
const BUSY_BUDGET: libc::c_int = 64;
/// Options of a socket (asm-generic/socket.h); `libc` has them not for every C library.
const SO_INCOMING_NAPI_ID: libc::c_int = 56;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// System calls in a row that start transmission, each of 32 frames (the kernel's TX_BATCH_SIZE).
const KICKS_MAX: u32 = TRANSMIT_FRAMES / 32;

/// A ring of entries that one side produces and the other consumes.
struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    /// Our index, which the other side may not know yet.
    own: u32,
    /// The other side's index as it was when we last looked.
    other: u32,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Sets the size of a ring of the socket, a power of two, and maps it.
    fn new(
        socket: &OwnedFd,
        option: libc::c_int,
        page_offset: u64,
        entries: u32,
        which: fn(&libc::xdp_mmap_offsets) -> libc::xdp_ring_offset,
    ) -> io::Result<Self> {
        set(socket, option, &entries)?;
        // SAFETY: for this plain C struct all zeroes are a value.
        let mut all: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get(socket, libc::XDP_MMAP_OFFSETS, &mut all)?;
        let offsets = which(&all);
        let octets = offsets.desc as usize + entries as usize * size_of::<T>();
        let mapping = Mapping::new(octets, libc::MAP_SHARED, socket.as_raw_fd(), page_offset as libc::off_t)?;
        Ok(Self { mapping, offsets, entries, own: 0, other: 0, of: std::marker::PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel reported that a word of the ring is there, inside what is mapped as long as `self` lives;
        // the kernel touches it as an atomic too.
        unsafe { self.mapping.start.add(offset as usize).cast().as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        let i = (index & (self.entries - 1)) as usize;
        // SAFETY: `i` is less than `entries`, and that many entries from `desc` on are mapped.
        unsafe { self.mapping.start.add(self.offsets.desc as usize).cast::<T>().add(i) }
    }

    /// Whether the kernel waits for a system call.
    fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that the kernel fills.
struct Consumer<T>(Ring<T>);

impl<T: Copy> Consumer<T> {
    fn pop(&mut self) -> Option<T> {
        let r = &mut self.0;
        if r.own == r.other {
            r.other = r.word(r.offsets.producer).load(Ordering::Acquire);
        }
        // SAFETY: the kernel has handed over the entries from ours to its index, and does not touch them again before
        // `release`.
        let entry = (r.own != r.other).then(|| unsafe { r.entry(r.own).read() });
        r.own = r.own.wrapping_add(u32::from(entry.is_some()));
        entry
    }

    fn is_empty(&self) -> bool {
        self.0.own == self.0.word(self.0.offsets.producer).load(Ordering::Acquire)
    }

    /// Gives the places of what was taken back to the kernel.
    fn release(&self) {
        self.0.word(self.0.offsets.consumer).store(self.0.own, Ordering::Release);
    }
}

/// A ring that we fill.
struct Producer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    /// False where there is no place.
    fn push(&mut self, entry: T) -> bool {
        let r = &mut self.0;
        if r.own.wrapping_sub(r.other) == r.entries {
            r.other = r.word(r.offsets.consumer).load(Ordering::Acquire);
        }
        let free = r.own.wrapping_sub(r.other) < r.entries;
        if free {
            // SAFETY: the kernel has given this place back, and does not look at it before `publish`.
            unsafe { r.entry(r.own).write(entry) };
            r.own = r.own.wrapping_add(1);
        }
        free
    }

    /// Shows the kernel what was filled in.
    fn publish(&self) {
        self.0.word(self.0.offsets.producer).store(self.0.own, Ordering::Release);
    }

    /// Entries that the kernel has not taken yet.
    fn pending(&self) -> u32 {
        self.0.own.wrapping_sub(self.0.word(self.0.offsets.consumer).load(Ordering::Acquire))
    }
}

/// How frames get from the driver into the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMode {
    /// The device writes there itself.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

/// The socket of one queue.
pub(crate) struct Xsk {
    receive: Consumer<libc::xdp_desc>,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    transmit: Option<Transmit>,
    memory: Mapping,
    frame_octets: u32,
    /// The driver receives when we look; until it has shown that it cannot.
    busy: bool,
    /// It has shown that it can.
    polled: bool,
    socket: OwnedFd,
}

/// What a socket that also sends has.
struct Transmit {
    ring: Producer<libc::xdp_desc>,
    /// Frames that are free.
    stock: Vec<u64>,
}

// SAFETY: what the mappings point to is owned by the socket's one user; nothing in it is bound to a thread.
unsafe impl Send for Xsk {}

impl Xsk {
    /// Octets of a frame that the kernel receives whole, on an interface whose frames have up to `octets`; `None` if they
    /// are too long.
    fn frame_octets(octets: usize) -> Option<u32> {
        [FRAME_OCTETS_MAX / 2, FRAME_OCTETS_MAX]
            .into_iter()
            .find(|f| octets <= (f - KERNEL_HEADROOM) as usize)
    }

    /// A socket for a queue of an interface whose frames have up to `octets`, headers included.
    ///
    /// Errors: `EINVAL` where there is no such queue, `EOPNOTSUPP` and others where the driver has no zero-copy, `EBUSY`
    /// where another socket has the queue, `EMSGSIZE` where frames are longer than a page holds.
    pub(crate) fn open(
        interface: u32,
        queue: u32,
        octets: usize,
        copying: CopyMode,
        transmits: bool,
    ) -> io::Result<Self> {
        let too_long = || io::Error::from_raw_os_error(libc::EMSGSIZE);
        let frame_octets = Self::frame_octets(octets).ok_or_else(too_long)?;
        // SAFETY: plain values in, a descriptor or -1 out.
        let socket =
            super::owned(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        let frames = RECEIVE_FRAMES + if transmits { TRANSMIT_FRAMES } else { 0 };
        let memory = Mapping::new(
            frames as usize * frame_octets as usize,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )?;
        let region = libc::xdp_umem_reg {
            addr: memory.start.as_ptr().addr() as u64,
            len: memory.octets as u64,
            chunk_size: frame_octets,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::XDP_UMEM_REG, &region)?;
        let page = libc::XDP_UMEM_PGOFF_FILL_RING;
        let mut fill =
            Producer(Ring::new(&socket, libc::XDP_UMEM_FILL_RING, page, RECEIVE_FRAMES, |o| o.fr)?);
        let page = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let option = libc::XDP_UMEM_COMPLETION_RING;
        let completion = Consumer(Ring::new(&socket, option, page, TRANSMIT_FRAMES, |o| o.cr)?);
        let page = libc::XDP_PGOFF_RX_RING as u64;
        let receive = Consumer(Ring::new(&socket, libc::XDP_RX_RING, page, RECEIVE_FRAMES, |o| o.rx)?);
        let start_of = |i: u32| u64::from(i) * u64::from(frame_octets);
        let transmit = if transmits {
            let page = libc::XDP_PGOFF_TX_RING as u64;
            let ring = Producer(Ring::new(&socket, libc::XDP_TX_RING, page, TRANSMIT_FRAMES, |o| o.tx)?);
            Some(Transmit { ring, stock: (RECEIVE_FRAMES..frames).map(start_of).collect() })
        } else {
            None
        };
        for i in 0..RECEIVE_FRAMES {
            let pushed = fill.push(start_of(i));
            debug_assert!(pushed, "the ring has a place for each");
        }
        fill.publish();
        let mode = match copying {
            CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
            CopyMode::Copy => libc::XDP_COPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as _,
            sxdp_flags: mode | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the address is as long as given and lives through the call.
        super::check(unsafe {
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as _)
        })?;
        Ok(Self {
            receive,
            fill,
            transmit,
            completion,
            memory,
            frame_octets,
            busy: false,
            polled: false,
            socket,
        })
    }

    /// From now on the driver receives in our system calls, where the host defers its interrupts, and each of them looks for so long at
    /// most.
    ///
    /// Errors: `EPERM` without CAP_NET_ADMIN, `ENOPROTOOPT` where the kernel has no busy polling (Linux 5.11 and later do).
    pub(crate) fn poll_busily(&mut self, within: Duration) -> io::Result<()> {
        let us = libc::c_int::try_from(within.as_micros()).unwrap_or(libc::c_int::MAX);
        let options =
            [(SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, us), (SO_BUSY_POLL_BUDGET, BUSY_BUDGET)];
        options
            .into_iter()
            .try_for_each(|(option, value)| set_at(&self.socket, libc::SOL_SOCKET, option, &value))?;
        self.busy = true;
        Ok(())
    }

    /// Takes up to `max` frames and shows each to `each`; how many there were.
    pub(crate) fn receive(&mut self, max: usize, mut each: impl FnMut(&[u8])) -> usize {
        let mut n = 0;
        if self.busy && self.receive.is_empty() {
            self.ask();
        } else if self.busy && !self.polled {
            self.polled = self.napi().is_some();
            self.busy = self.polled;
        }
        while n < max {
            let Some(d) = self.receive.pop() else { break };
            let (start, octets) = (d.addr as usize, d.len as usize);
            if start.checked_add(octets).is_some_and(|end| end <= self.memory.octets) {
                // SAFETY: inside the memory, and the frame is ours from `pop` until it is in the fill ring again.
                each(unsafe { std::slice::from_raw_parts(self.memory.start.add(start).as_ptr(), octets) });
            }
            let pushed = self.fill.push(d.addr & !u64::from(self.frame_octets - 1));
            debug_assert!(pushed, "the fill ring has a place for each frame");
            n += 1;
        }
        if n > 0 {
            self.receive.release();
            self.fill.publish();
        }
        if self.fill.0.needs_wakeup() && !self.busy {
            self.ask();
        }
        n
    }

    /// What in the driver has received the last frame; `None` where that cannot be polled.
    fn napi(&self) -> Option<NonZeroU32> {
        let (mut id, mut octets) = (0u32, size_of::<u32>() as libc::socklen_t);
        // SAFETY: the value is as many writable octets as given.
        super::check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_INCOMING_NAPI_ID,
                (&raw mut id).cast(),
                &raw mut octets,
            )
        })
        .ok()?;
        NonZeroU32::new(id)
    }

    /// Has the driver receive.
    fn ask(&self) {
        // SAFETY: no buffer is given; it only wakes the driver. What it says is shown by the rings.
        unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Whether it also sends.
    pub(crate) fn transmits(&self) -> bool {
        self.transmit.is_some()
    }

    /// Puts a frame up for transmission: `write` fills it and says how many octets it has. False where there is no room;
    /// [`Self::flush`] sends.
    pub(crate) fn send(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(transmit) = &mut self.transmit else { return false };
        if transmit.stock.is_empty() {
            while let Some(start) = self.completion.pop() {
                transmit.stock.push(start);
            }
            self.completion.release();
        }
        let Some(start) = transmit.stock.pop() else { return false };
        let octets = self.frame_octets as usize;
        // SAFETY: the frame is inside the memory, and is ours as long as it is in neither stock nor ring.
        let frame =
            unsafe { std::slice::from_raw_parts_mut(self.memory.start.add(start as usize).as_ptr(), octets) };
        let len = write(frame).min(octets) as u32;
        let pushed = transmit.ring.push(libc::xdp_desc { addr: start, len, options: 0 });
        debug_assert!(pushed, "the transmit ring has a place for each frame");
        true
    }

    /// Has the kernel send what was put up.
    ///
    /// Errors: of the device; what it does not take now stays in the ring for the next call.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let Some(Transmit { ring, .. }) = &self.transmit else { return Ok(()) };
        ring.publish();
        for kick in 0..KICKS_MAX {
            // A thread that busy-polls starts the driver even if that does not say that it sleeps.
            let needed = ring.0.needs_wakeup() || self.busy && kick == 0;
            if ring.pending() == 0 || !needed {
                break;
            }
            // SAFETY: no buffer is given; it only has the kernel look at the ring.
            let sent = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            if sent < 0 {
                let e = io::Error::last_os_error();
                match e.raw_os_error() {
                    Some(libc::EAGAIN) => {} // it took as many as it takes at once
                    Some(libc::EBUSY | libc::ENOBUFS) => break,
                    _ => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// Frames that were lost since the socket was opened, because no frame or no place in the ring was free for them or
    /// because they were too long.
    pub(crate) fn lost(&self) -> u64 {
        // SAFETY: for this plain C struct all zeroes are a value.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        match get(&self.socket, libc::XDP_STATISTICS, &mut statistics) {
            Ok(()) => statistics.rx_dropped + statistics.rx_ring_full,
            Err(_) => 0,
        }
    }
}

impl AsFd for Xsk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets an option of AF_XDP.
fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(socket, libc::SOL_XDP, option, value)
}

/// Sets an option of the socket.
fn set_at<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let (value, octets): (*const T, _) = (value, size_of::<T>() as libc::socklen_t);
    // SAFETY: the value is as many readable octets as given.
    super::check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), octets) })
        .map(drop)
}

/// Reads an option of the socket. `T` is a plain C struct, of which the kernel fills the part that it knows.
fn get<T>(socket: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let (value, mut octets): (*mut T, _) = (value, size_of::<T>() as libc::socklen_t);
    // SAFETY: the value is as many writable octets as given.
    super::check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value.cast(), &mut octets)
    })
    .map(drop)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A socket of no queue.
    pub(crate) fn unbound() -> OwnedFd {
        // SAFETY: plain values in, a descriptor or -1 out.
        super::super::owned(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
            .unwrap()
    }

    /// A ring whose other side is played by the test, in memory of its own.
    fn ring(entries: u32) -> Ring<u64> {
        let octets = 64 + entries as usize * 8;
        let mapping = Mapping::new(octets, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0).unwrap();
        let offsets = libc::xdp_ring_offset { producer: 0, consumer: 16, flags: 32, desc: 64 };
        Ring { mapping, offsets, entries, own: 0, other: 0, of: std::marker::PhantomData }
    }

    fn step(ring: &Ring<u64>, offset: u64, by: u32) {
        ring.word(offset).fetch_add(by, Ordering::AcqRel);
    }

    #[test]
    fn a_producer_stops_when_the_ring_is_full_and_goes_on_past_the_end_of_its_numbers() {
        let mut p = Producer(ring(4));
        // Just before the indices wrap.
        let start = u32::MAX - 1;
        (p.0.own, p.0.other) = (start, start);
        step(&p.0, 0, start);
        step(&p.0, 16, start);
        assert_eq!((0..5).map(|i| p.push(i)).collect::<Vec<_>>(), [true, true, true, true, false]);
        assert_eq!(p.0.word(0).load(Ordering::Acquire), start, "not shown before it is published");
        p.publish();
        assert_eq!((p.0.word(0).load(Ordering::Acquire), p.pending()), (start.wrapping_add(4), 4));
        step(&p.0, 16, 1);
        assert!(p.push(5) && !p.push(6), "one place was given back");
        assert_eq!(p.pending(), 4);
    }

    #[test]
    fn a_consumer_takes_what_was_published_in_order() {
        let mut c = Consumer(ring(4));
        assert_eq!(c.pop(), None);
        for i in 0..4 {
            // SAFETY: the test plays the kernel; no other code accesses the entry.
            unsafe { c.0.entry(i).write(u64::from(i) * 10) };
        }
        step(&c.0, 0, 3);
        assert_eq!([c.pop(), c.pop()], [Some(0), Some(10)]);
        assert_eq!(c.0.word(16).load(Ordering::Acquire), 0, "not given back before it is released");
        c.release();
        assert_eq!(c.0.word(16).load(Ordering::Acquire), 2);
        assert_eq!([c.pop(), c.pop()], [Some(20), None]);
    }

    #[test]
    fn frames_are_as_large_as_the_interface_needs() {
        assert_eq!(Xsk::frame_octets(1518), Some(2048));
        assert_eq!(Xsk::frame_octets(1792), Some(2048));
        assert_eq!(Xsk::frame_octets(1793), Some(4096));
        assert_eq!(Xsk::frame_octets(3840), Some(4096));
        assert_eq!(Xsk::frame_octets(9018), None);
    }
}
