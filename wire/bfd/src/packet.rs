//! The control packet (RFC 5880 §4.1).
//!
//! | octets | what |
//! | --- | --- |
//! | 1 | version (3 bits), diagnostic (5) |
//! | 1 | state (2 bits), then P, F, C, A, D, M |
//! | 1 | detection multiplier |
//! | 1 | length |
//! | 4 | My Discriminator |
//! | 4 | Your Discriminator |
//! | 4 | Desired Min TX Interval, in microseconds |
//! | 4 | Required Min RX Interval, in microseconds |
//! | 4 | Required Min Echo RX Interval, in microseconds |

use core::fmt;
use core::num::{NonZeroU8, NonZeroU32};

use whimbrel_ids::{DecodeError, Reader};

/// Octets of a packet without authentication section.
pub const OCTETS: usize = 24;
const VERSION: u8 = 1;

const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
const AUTHENTICATION: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// Names a session at one system. Never zero (RFC 5880 §6.8.1); for a reflector, unique in the network (RFC 7880 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Discriminator(pub NonZeroU32);

impl Discriminator {
    /// `None`: zero, which names no session.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// As a number.
    pub const fn number(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Discriminator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// State of the sender's session (RFC 5880 §4.1, Sta).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Held down by the operator.
    AdminDown,
    /// It gets no packets of the other system.
    Down,
    /// It gets packets of the other system, which may get none of its own. Seamless BFD has no such state (RFC 7880 §7.1).
    Init,
    /// It is up.
    Up,
}

impl State {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

/// Why the sender's session left the state Up the last time (RFC 5880 §4.1, Diag): five bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic(u8);

#[allow(missing_docs, reason = "each name is the code point's own")]
impl Diagnostic {
    pub const NONE: Self = Self(0);
    pub const DETECTION_TIME_EXPIRED: Self = Self(1);
    pub const NEIGHBOR_SIGNALED_DOWN: Self = Self(3);
    pub const ADMINISTRATIVELY_DOWN: Self = Self(7);

    /// Any of the 32 codes; `None`: more.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    pub const fn code(self) -> u8 {
        self.0
    }
}

/// A control packet without authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlPacket {
    /// Diagnostic of the last change (Diag).
    pub diagnostic: Diagnostic,
    /// State of the session (Sta).
    pub state: State,
    /// P: an answer is asked for.
    pub poll: bool,
    /// F: this is the answer to a poll.
    pub r#final: bool,
    /// C: the sender's BFD does not share the fate of its control plane.
    pub control_plane_independent: bool,
    /// D: set by initiators, clear in what reflectors send (RFC 7880 §7.2, §7.3).
    pub demand: bool,
    /// Detection time multiplier (Detect Mult).
    pub multiplier: NonZeroU8,
    /// Discriminator of the sender (My Discriminator).
    pub mine: Discriminator,
    /// Your Discriminator; `None`: the sender does not know it yet, which [`State::Down`] and [`State::AdminDown`] permit.
    pub yours: Option<Discriminator>,
    /// Desired Min TX Interval.
    pub desired_min_tx_us: u32,
    /// Required Min RX Interval; zero: the sender wants no periodic packets.
    pub required_min_rx_us: u32,
    /// Required Min Echo RX Interval; zero: the sender returns no echo packets.
    pub required_min_echo_rx_us: u32,
}

/// Why a packet is discarded before its session is looked up (RFC 5880 §6.8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invalid {
    /// Fewer octets than the length field says, or than a packet has.
    Truncated,
    /// The length field is less than a packet has.
    Length,
    /// Another version than 1.
    Version,
    /// The detection multiplier is zero.
    Multiplier,
    /// The M bit is set.
    Multipoint,
    /// My Discriminator is zero.
    MyDiscriminator,
    /// Your Discriminator is zero in a state that must know it.
    YourDiscriminator,
    /// The A bit is set, and no authentication is in use.
    Authentication,
}

impl Invalid {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Truncated,
        Self::Length,
        Self::Version,
        Self::Multiplier,
        Self::Multipoint,
        Self::MyDiscriminator,
        Self::YourDiscriminator,
        Self::Authentication,
    ];

    /// A word for counters.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Length => "length",
            Self::Version => "version",
            Self::Multiplier => "multiplier",
            Self::Multipoint => "multipoint",
            Self::MyDiscriminator => "my_discriminator",
            Self::YourDiscriminator => "your_discriminator",
            Self::Authentication => "authentication",
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "it is cut short",
            Self::Length => "its length field is less than 24 octets",
            Self::Version => "its version is not 1",
            Self::Multiplier => "its detection multiplier is zero",
            Self::Multipoint => "its multipoint bit is set",
            Self::MyDiscriminator => "its My Discriminator is zero",
            Self::YourDiscriminator => "its Your Discriminator is zero",
            Self::Authentication => "it has an authentication section, and none is in use",
        })
    }
}

impl core::error::Error for Invalid {}

impl From<DecodeError> for Invalid {
    fn from(_: DecodeError) -> Self {
        Self::Truncated
    }
}

impl ControlPacket {
    /// Reads the payload of a UDP datagram, in the order of RFC 5880 §6.8.6. Octets behind the packet's length are ignored, as there.
    ///
    /// Errors: why it is to be discarded.
    pub fn parse(octets: &[u8]) -> Result<Self, Invalid> {
        let mut r = Reader::new(octets);
        let first = r.u8("version and diagnostic")?;
        if first >> 5 != VERSION {
            return Err(Invalid::Version);
        }
        let flags = r.u8("state and flags")?;
        let multiplier = r.u8("detection multiplier")?;
        let length = usize::from(r.u8("length")?);
        if length < OCTETS {
            return Err(Invalid::Length);
        }
        if length > octets.len() {
            return Err(Invalid::Truncated);
        }
        let multiplier = NonZeroU8::new(multiplier).ok_or(Invalid::Multiplier)?;
        if flags & MULTIPOINT != 0 {
            return Err(Invalid::Multipoint);
        }
        let mine = Discriminator::new(r.u32("My Discriminator")?).ok_or(Invalid::MyDiscriminator)?;
        let yours = Discriminator::new(r.u32("Your Discriminator")?);
        let state = State::from_bits(flags >> 6);
        if yours.is_none() && matches!(state, State::Init | State::Up) {
            return Err(Invalid::YourDiscriminator);
        }
        if flags & AUTHENTICATION != 0 {
            return Err(Invalid::Authentication);
        }
        Ok(Self {
            diagnostic: Diagnostic(first & 0x1f),
            state,
            poll: flags & POLL != 0,
            r#final: flags & FINAL != 0,
            control_plane_independent: flags & CONTROL_PLANE_INDEPENDENT != 0,
            demand: flags & DEMAND != 0,
            multiplier,
            mine,
            yours,
            desired_min_tx_us: r.u32("Desired Min TX Interval")?,
            required_min_rx_us: r.u32("Required Min RX Interval")?,
            required_min_echo_rx_us: r.u32("Required Min Echo RX Interval")?,
        })
    }

    /// As it is sent.
    pub fn to_octets(&self) -> [u8; OCTETS] {
        let state = match self.state {
            State::AdminDown => 0,
            State::Down => 1,
            State::Init => 2,
            State::Up => 3u8,
        };
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let mut octets = [0; OCTETS];
        octets[0] = VERSION << 5 | self.diagnostic.0;
        octets[1] = state << 6
            | bit(self.poll, POLL)
            | bit(self.r#final, FINAL)
            | bit(self.control_plane_independent, CONTROL_PLANE_INDEPENDENT)
            | bit(self.demand, DEMAND);
        octets[2] = self.multiplier.get();
        octets[3] = OCTETS as u8;
        let words = [
            self.mine.number(),
            self.yours.map_or(0, Discriminator::number),
            self.desired_min_tx_us,
            self.required_min_rx_us,
            self.required_min_echo_rx_us,
        ];
        for (place, word) in octets[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        octets
    }
}
