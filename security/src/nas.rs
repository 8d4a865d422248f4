//! The NAS security context: TS 24.501 §4.4, §9.1; TS 33.501 §6.4.3, TS 33.501 §6.4.4; of one UE and one serving network, TS 33.501 §6.3.2.1.
//!
//! One [`NasSecurityContext`] serves one NAS connection of one UE, on either side. It owns the two COUNTs, so a COUNT
//! cannot be used twice under a key, and a received one cannot be taken twice. Expanded key schedules (1.5 KB) are
//! built at first use and can be freed while a UE is idle.

use core::fmt;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::keys::{KAmf, KNasEnc, KNasInt};
use crate::nea::Nea;
use crate::nia::Nia;
use crate::secret::ct_eq;
use crate::{Bearer, Direction};

/// 5G ciphering algorithm: the identities of TS 33.501 §5.11.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CipheringAlgorithm {
    /// No ciphering at all.
    Nea0,
    /// Ciphering by SNOW 3G.
    Nea1,
    /// Ciphering by AES in counter mode.
    Nea2,
    /// Ciphering by ZUC.
    Nea3,
}

/// 5G integrity algorithm: the identities of TS 33.501 §5.11.1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntegrityAlgorithm {
    /// None: for unauthenticated emergency sessions alone (TS 33.501 §5.5.2).
    Nia0,
    /// Integrity by SNOW 3G.
    Nia1,
    /// Integrity by AES-CMAC.
    Nia2,
    /// Integrity by ZUC.
    Nia3,
}

impl CipheringAlgorithm {
    /// All, in the order of their identities.
    pub const ALL: [Self; 4] = [Self::Nea0, Self::Nea1, Self::Nea2, Self::Nea3];

    /// The 4-bit identity.
    pub const fn identity(self) -> u8 {
        self as u8
    }

    /// From a 4-bit identity; `None` for those not assigned.
    pub fn from_identity(v: u8) -> Option<Self> {
        Self::ALL.get(usize::from(v)).copied()
    }
}

impl IntegrityAlgorithm {
    /// All, in the order of their identities.
    pub const ALL: [Self; 4] = [Self::Nia0, Self::Nia1, Self::Nia2, Self::Nia3];

    /// The 4-bit identity.
    pub const fn identity(self) -> u8 {
        self as u8
    }

    /// From a 4-bit identity; `None` for those not assigned.
    pub fn from_identity(v: u8) -> Option<Self> {
        Self::ALL.get(usize::from(v)).copied()
    }
}

/// NAS COUNT: overflow counter of 16 bits and sequence number of 8 (TS 24.501 §4.4.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NasCount(u32);

impl NasCount {
    /// The largest value.
    pub const MAX: u32 = (1 << 24) - 1;

    /// `None` above 24 bits.
    pub const fn new(v: u32) -> Option<Self> {
        if v <= Self::MAX { Some(Self(v)) } else { None }
    }

    /// As the 32-bit COUNT of the ciphers and of key derivation, its upper octet zero.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The four octets that enter key derivation (TS 33.501 Annex A.9).
    pub const fn octets(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The sequence number that a message carries.
    pub const fn sequence_number(self) -> u8 {
        self.0 as u8
    }
}

/// The next COUNT of each direction: what a checkpoint keeps beside the keys. A value of 2^24 says that a direction is
/// used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NasCounts {
    /// Next to be sent by the UE, or expected from it at least.
    pub uplink_next: u32,
    /// Next to be sent by the network, or expected from it at least.
    pub downlink_next: u32,
}

/// COUNTs that are left when the wrap is near: 256 runs of the sequence number, far more than the procedures until a
/// new authentication can use (TS 24.501 §4.4.3.5 asks for one in time).
const COUNTS_LEFT_NEAR_WRAP: u32 = 1 << 16;

/// Security header type of a protected message (TS 24.501 §9.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecurityHeaderType {
    /// The message is integrity protected.
    IntegrityProtected = 1,
    /// Integrity protected and ciphered.
    IntegrityProtectedAndCiphered = 2,
    /// Integrity protected with new 5G NAS security context: SECURITY MODE COMMAND.
    IntegrityProtectedWithNewContext = 3,
    /// Integrity protected and ciphered with new 5G NAS security context: SECURITY MODE COMPLETE.
    IntegrityProtectedAndCipheredWithNewContext = 4,
}

impl SecurityHeaderType {
    /// From the half octet; `None` for plain messages and values not assigned.
    pub const fn from_value(v: u8) -> Option<Self> {
        Some(match v {
            1 => Self::IntegrityProtected,
            2 => Self::IntegrityProtectedAndCiphered,
            3 => Self::IntegrityProtectedWithNewContext,
            4 => Self::IntegrityProtectedAndCipheredWithNewContext,
            _ => return None,
        })
    }

    /// Whether the message inside is ciphered.
    pub const fn is_ciphered(self) -> bool {
        matches!(
            self,
            Self::IntegrityProtectedAndCiphered | Self::IntegrityProtectedAndCipheredWithNewContext
        )
    }
}

/// Which end of the NAS connection a context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NasSide {
    /// The AMF: sends downlink.
    Network,
    /// The UE: sends uplink.
    Ue,
}

impl NasSide {
    const fn sends(self) -> Direction {
        match self {
            NasSide::Network => Direction::Downlink,
            NasSide::Ue => Direction::Uplink,
        }
    }

    const fn receives(self) -> Direction {
        match self {
            NasSide::Network => Direction::Uplink,
            NasSide::Ue => Direction::Downlink,
        }
    }
}

/// Extended protocol discriminator of 5GMM, the first octet of every protected message (TS 24.007 §11.2.3.1A).
const EPD_5GMM: u8 = 0x7e;
/// EPD, security header type, MAC and sequence number (TS 24.501 §9.1.1).
const HEADER_OCTETS: usize = 7;

/// A message cannot be sent under this context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectError {
    /// All COUNTs of this direction are used: authenticate again, or release (TS 24.501 §4.4.3.5).
    CountExhausted,
}

/// Why a received message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnprotectError {
    /// The octets are no security protected 5GMM message.
    Decode(DecodeError),
    /// The MAC is wrong: discard, unless TS 24.501 §4.4.4.3 lets the message be processed without protection.
    MacMismatch,
    /// The MAC is right for a COUNT that was taken before: a repeated message.
    Replayed,
    /// The sequence number would wrap the COUNT.
    CountExhausted,
}

impl fmt::Display for ProtectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the NAS COUNT is used up under these keys")
    }
}

impl core::error::Error for ProtectError {}

impl fmt::Display for UnprotectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnprotectError::Decode(e) => fmt::Display::fmt(e, f),
            UnprotectError::MacMismatch => f.write_str("the NAS message authentication code is wrong"),
            UnprotectError::Replayed => f.write_str("the NAS message was received before"),
            UnprotectError::CountExhausted => f.write_str("the NAS COUNT is used up under these keys"),
        }
    }
}

impl core::error::Error for UnprotectError {}

impl From<DecodeError> for UnprotectError {
    fn from(e: DecodeError) -> Self {
        UnprotectError::Decode(e)
    }
}

/// How an accepted message was protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unprotected {
    /// Its security header type.
    pub header: SecurityHeaderType,
    /// Its COUNT, from which K_gNB may be derived.
    pub count: NasCount,
}

/// Keys, algorithms and COUNTs of one NAS connection.
#[derive(Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NasSecurityContext {
    side: NasSide,
    bearer: Bearer,
    ciphering: CipheringAlgorithm,
    integrity: IntegrityAlgorithm,
    counts: NasCounts,
    k_nas_enc: KNasEnc,
    k_nas_int: KNasInt,
    #[cfg_attr(feature = "serde", serde(skip))]
    schedules: Option<Box<Schedules>>,
}

#[derive(Clone)]
struct Schedules {
    nea: Nea,
    nia: Nia,
}

impl fmt::Debug for NasSecurityContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NasSecurityContext")
            .field("side", &self.side)
            .field("ciphering", &self.ciphering)
            .field("integrity", &self.integrity)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl NasSecurityContext {
    /// The context of `k_amf` and the selected algorithms. `counts` is the default for a new K_AMF; those of the
    /// context before where only algorithms change, or those of a checkpoint.
    pub fn new(
        side: NasSide,
        bearer: Bearer,
        k_amf: &KAmf,
        ciphering: CipheringAlgorithm,
        integrity: IntegrityAlgorithm,
        counts: NasCounts,
    ) -> Self {
        let (k_nas_enc, k_nas_int) = (k_amf.k_nas_enc(ciphering), k_amf.k_nas_int(integrity));
        Self { side, bearer, ciphering, integrity, counts, k_nas_enc, k_nas_int, schedules: None }
    }

    /// The ciphering algorithm.
    pub const fn ciphering(&self) -> CipheringAlgorithm {
        self.ciphering
    }

    /// The integrity algorithm.
    pub const fn integrity(&self) -> IntegrityAlgorithm {
        self.integrity
    }

    /// The next COUNTs.
    pub const fn counts(&self) -> NasCounts {
        self.counts
    }

    /// The COUNT of the newest message that came or went in `direction`, if any did.
    pub fn newest(&self, direction: Direction) -> Option<NasCount> {
        self.next(direction).checked_sub(1).and_then(NasCount::new)
    }

    /// The COUNT that the next message sent will have, unless they are used up.
    pub fn next_sent(&self) -> Option<NasCount> {
        NasCount::new(self.next(self.side.sends()))
    }

    /// Whether a new authentication is due before a COUNT wraps (TS 24.501 §4.4.3.5).
    pub const fn wrap_is_near(&self) -> bool {
        let limit = NasCount::MAX - COUNTS_LEFT_NEAR_WRAP;
        self.counts.uplink_next > limit || self.counts.downlink_next > limit
    }

    /// Skips COUNTs of sent messages that another node, which had the context for a while, may have used.
    pub fn leave_out(&mut self, counts: u8) {
        let next = self.next_mut(self.side.sends());
        *next = (*next + u32::from(counts)).min(NasCount::MAX + 1);
    }

    /// Frees the expanded keys; the next message expands them again.
    pub fn release_schedules(&mut self) {
        self.schedules = None;
    }

    /// Appends `plain`, a whole plain 5GMM message, as a protected message to `out` (TS 24.501 §4.4.4, §4.4.5).
    ///
    /// Errors: [`ProtectError::CountExhausted`]; nothing is appended then.
    pub fn protect(
        &mut self,
        header: SecurityHeaderType,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<NasCount, ProtectError> {
        let count = self.next_sent().ok_or(ProtectError::CountExhausted)?;
        let (bearer, direction) = (self.bearer, self.side.sends());
        let start = out.len();
        out.reserve(HEADER_OCTETS + plain.len());
        out.extend_from_slice(&[EPD_5GMM, header as u8, 0, 0, 0, 0, count.sequence_number()]);
        out.extend_from_slice(plain);
        let Schedules { nea, nia } = self.schedules();
        if header.is_ciphered() {
            nea.apply(count.value(), bearer, direction, &mut out[start + HEADER_OCTETS..]);
        }
        let mac = nia.mac(count.value(), bearer, direction, &out[start + HEADER_OCTETS - 1..]);
        out[start + 2..start + 6].copy_from_slice(&mac);
        *self.next_mut(direction) = count.value() + 1;
        Ok(count)
    }

    /// Checks a protected message and writes the plain message in it over `plain` (TS 24.501 §4.4.3, §4.4.4).
    ///
    /// The context changes only if the message is taken. With NIA0 nothing is checked (TS 33.501 Annex D.1).
    pub fn unprotect(&mut self, message: &[u8], plain: &mut Vec<u8>) -> Result<Unprotected, UnprotectError> {
        plain.clear();
        let envelope = SecurityEnvelope::read(message)?;
        let (bearer, direction) = (self.bearer, self.side.receives());
        let next = self.next(direction);
        let estimate = estimate(next, envelope.sequence_number);
        let unchecked = self.integrity == IntegrityAlgorithm::Nia0;
        let Schedules { nea, nia } = self.schedules();
        let fits = |count| {
            unchecked || ct_eq(&nia.mac(count, bearer, direction, envelope.authenticated), &envelope.mac)
        };
        let count = match NasCount::new(estimate) {
            Some(count) if fits(count.value()) => count,
            // The same sequence number one run before was surely taken or passed.
            _ if estimate.checked_sub(256).is_some_and(fits) => return Err(UnprotectError::Replayed),
            Some(_) => return Err(UnprotectError::MacMismatch),
            None => return Err(UnprotectError::CountExhausted),
        };
        plain.extend_from_slice(envelope.payload());
        if envelope.header.is_ciphered() {
            nea.apply(count.value(), bearer, direction, plain);
        }
        *self.next_mut(direction) = count.value() + 1;
        Ok(Unprotected { header: envelope.header, count })
    }

    /// The plain message in one that was sent or taken under these keys before; the COUNTs stay as they are. For a display of past
    /// messages: it is no check that a message is fresh. `None` if the message is not under these keys, or more than 511 COUNTs old.
    pub fn read_again(&self, direction: Direction, message: &[u8]) -> Option<Vec<u8>> {
        let envelope = SecurityEnvelope::read(message).ok()?;
        let (bearer, newest) = (self.bearer, self.newest(direction)?.value());
        let same_run = (newest & !0xff) | u32::from(envelope.sequence_number);
        let last = if same_run > newest { same_run.checked_sub(256)? } else { same_run };
        let nia = Nia::new(self.integrity, self.k_nas_int.octets());
        let unchecked = self.integrity == IntegrityAlgorithm::Nia0;
        let fits = |count: &u32| {
            unchecked || ct_eq(&nia.mac(*count, bearer, direction, envelope.authenticated), &envelope.mac)
        };
        let count = std::iter::once(last).chain(last.checked_sub(256)).find(fits)?;
        let mut plain = envelope.payload().to_vec();
        if envelope.header.is_ciphered() {
            Nea::new(self.ciphering, self.k_nas_enc.octets()).apply(count, bearer, direction, &mut plain);
        }
        Some(plain)
    }

    /// Ciphers or deciphers the value of the NAS message container of an initial NAS message, under the COUNT of that
    /// message (TS 24.501 §4.4.6).
    pub fn apply_to_container(&mut self, direction: Direction, count: NasCount, value: &mut [u8]) {
        let bearer = self.bearer;
        self.schedules().nea.apply(count.value(), bearer, direction, value);
    }

    fn schedules(&mut self) -> &Schedules {
        self.schedules.get_or_insert_with(|| {
            let nea = Nea::new(self.ciphering, self.k_nas_enc.octets());
            let nia = Nia::new(self.integrity, self.k_nas_int.octets());
            Box::new(Schedules { nea, nia })
        })
    }

    const fn next(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Uplink => self.counts.uplink_next,
            Direction::Downlink => self.counts.downlink_next,
        }
    }

    const fn next_mut(&mut self, direction: Direction) -> &mut u32 {
        match direction {
            Direction::Uplink => &mut self.counts.uplink_next,
            Direction::Downlink => &mut self.counts.downlink_next,
        }
    }
}

/// The COUNT that a sequence number stands for: the smallest not under `next` (TS 24.501 §4.4.3.1).
fn estimate(next: u32, sequence_number: u8) -> u32 {
    let same_run = (next & !0xff) | u32::from(sequence_number);
    if same_run < next { same_run + 256 } else { same_run }
}

/// A security protected 5GS NAS message (TS 24.501 §9.1.1), its parts in place.
struct SecurityEnvelope<'a> {
    header: SecurityHeaderType,
    mac: [u8; 4],
    sequence_number: u8,
    /// Sequence number and payload: what the MAC covers.
    authenticated: &'a [u8],
}

impl<'a> SecurityEnvelope<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(message);
        if r.peek() != Some(EPD_5GMM) && r.peek().is_some() {
            return Err(r.error(DecodeErrorKind::Unknown, "Extended protocol discriminator"));
        }
        r.u8("Extended protocol discriminator")?;
        let unknown = r.error(DecodeErrorKind::InvalidValue, "Security header type");
        let header = SecurityHeaderType::from_value(r.u8("Security header type")? & 0xf).ok_or(unknown)?;
        let mac = r.array("Message authentication code")?;
        let authenticated = r.rest();
        let sequence_number = r.u8("Sequence number")?;
        if r.is_empty() {
            return Err(r.error(DecodeErrorKind::Truncated, "Plain 5GS NAS message"));
        }
        Ok(Self { header, mac, sequence_number, authenticated })
    }

    fn payload(&self) -> &'a [u8] {
        self.authenticated.get(1..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
