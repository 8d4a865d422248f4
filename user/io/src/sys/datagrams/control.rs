//! Control messages, which say and ask what a datagram's type of service is, and how a message is cut.

/// Words of control messages: a type of service, and the octets of a segment.
const CONTROL_WORDS_MAX: usize = 6;

/// Control messages: struct cmsghdr (length, level, type) and a value each, padded to eight octets.
#[derive(Clone, Copy, Default)]
pub(super) struct ControlMessages {
    pub(super) octets: [u64; CONTROL_WORDS_MAX],
    pub(super) words: usize,
}

impl ControlMessages {
    /// Octets of one with an int, unpadded.
    pub(super) const ONE_OCTETS: usize = size_of::<libc::cmsghdr>() + size_of::<libc::c_int>();

    /// Zeroes into which the kernel may write one.
    pub(super) fn room_for_one() -> Self {
        Self { octets: [0; CONTROL_WORDS_MAX], words: 3 }
    }

    /// The value of the first, if it is of this kind.
    pub(super) fn int_of(&self, level: libc::c_int, kind: libc::c_int) -> Option<libc::c_int> {
        let mut expected = Self::default();
        expected.int(level, kind, 0);
        let [a, b, c, d, ..] = self.octets[2].to_ne_bytes();
        (self.octets[..2] == expected.octets[..2]).then(|| libc::c_int::from_ne_bytes([a, b, c, d]))
    }

    pub(super) fn put(&mut self, level: libc::c_int, kind: libc::c_int, value_octets: u64, value: u64) {
        const HEADER: u64 = size_of::<libc::cmsghdr>() as u64;
        let half = |n: libc::c_int| u64::from(u32::from_ne_bytes(n.to_ne_bytes()));
        let kinds = if cfg!(target_endian = "little") {
            half(level) | half(kind) << 32
        } else {
            half(level) << 32 | half(kind)
        };
        self.octets[self.words..self.words + 3].copy_from_slice(&[HEADER + value_octets, kinds, value]);
        self.words += 3;
    }

    pub(super) fn int(&mut self, level: libc::c_int, kind: libc::c_int, value: libc::c_int) {
        let mut octets = [0; 8];
        octets[..4].copy_from_slice(&value.to_ne_bytes());
        self.put(level, kind, 4, u64::from_ne_bytes(octets));
    }

    pub(super) fn short(&mut self, level: libc::c_int, kind: libc::c_int, value: u16) {
        let mut octets = [0; 8];
        octets[..2].copy_from_slice(&value.to_ne_bytes());
        self.put(level, kind, 2, u64::from_ne_bytes(octets));
    }
}

// The layout that `ControlMessages` writes is that of 64-bit Linux.
const _: () = assert!(size_of::<libc::cmsghdr>() == 16 && size_of::<usize>() == 8);
