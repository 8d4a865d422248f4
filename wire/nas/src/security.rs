//! The envelope of a security protected 5GMM message (TS 24.501 §9.1.1, §9.3, §9.8, §9.10). No cryptography here: the
//! caller that holds the keys computes the MAC and the key stream over the octets that this module names.

use whimbrel_ids::Reader;

use crate::EPD_5GMM;
use crate::error::{NasError, NasErrorKind};

/// Security header type of a protected message (TS 24.501 §9.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SecurityHeaderType {
    /// The message is integrity protected.
    IntegrityProtected = 1,
    /// Integrity protected and ciphered.
    IntegrityProtectedCiphered = 2,
    /// Integrity protected with new 5G NAS security context: SECURITY MODE COMMAND only.
    IntegrityProtectedNewContext = 3,
    /// Integrity protected and ciphered with new 5G NAS security context: SECURITY MODE COMPLETE only.
    IntegrityProtectedCipheredNewContext = 4,
}

impl SecurityHeaderType {
    /// From the four bits; `None` for plain and for reserved values.
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::IntegrityProtected),
            2 => Some(Self::IntegrityProtectedCiphered),
            3 => Some(Self::IntegrityProtectedNewContext),
            4 => Some(Self::IntegrityProtectedCipheredNewContext),
            _ => None,
        }
    }

    /// The four bits.
    pub const fn value(self) -> u8 {
        self as u8
    }

    /// Whether the payload is ciphered.
    pub const fn is_ciphered(self) -> bool {
        matches!(self, Self::IntegrityProtectedCiphered | Self::IntegrityProtectedCipheredNewContext)
    }

    /// Whether a new security context is taken into use.
    pub const fn is_new_context(self) -> bool {
        matches!(self, Self::IntegrityProtectedNewContext | Self::IntegrityProtectedCipheredNewContext)
    }
}

/// A security protected 5GMM message: a view over the received octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityProtected<'a> {
    /// How it is protected.
    pub header_type: SecurityHeaderType,
    /// Message authentication code, over [`Self::authenticated`].
    pub mac: [u8; 4],
    /// Sequence number: the low octet of the NAS COUNT.
    pub sequence_number: u8,
    /// The NAS message, ciphered or not by the header type.
    pub payload: &'a [u8],
    /// The octets under the MAC: sequence number and payload (TS 24.501 §4.4.3.3).
    pub authenticated: &'a [u8],
}

/// Octets before the payload: discriminator, security header type, MAC, sequence number.
pub const HEADER_LEN: usize = 7;

impl<'a> SecurityProtected<'a> {
    /// Reads the envelope.
    ///
    /// Errors: too short; another discriminator; a plain message or a reserved header type (named as
    /// [`NasErrorKind::SecurityProtected`] with its value). All of them have the message ignored.
    pub fn parse(octets: &'a [u8]) -> Result<Self, NasError> {
        let short = |_| NasError::new(NasErrorKind::TooShort);
        let mut r = Reader::new(octets);
        let [epd, header] = r.array("header").map_err(short)?;
        if epd != EPD_5GMM {
            return Err(NasError::new(NasErrorKind::ProtocolDiscriminator(epd)));
        }
        let header_type = SecurityHeaderType::from_u8(header & 0x0f)
            .ok_or(NasError::new(NasErrorKind::SecurityProtected(header & 0x0f)))?;
        let mac = r.array("MAC").map_err(short)?;
        let authenticated = r.rest();
        let sequence_number = r.u8("sequence number").map_err(short)?;
        let payload = r.take_rest();
        // The shortest NAS message has three octets (5GMM) up to its message type.
        if payload.len() < 3 {
            return Err(NasError::new(NasErrorKind::TooShort));
        }
        Ok(Self { header_type, mac, sequence_number, payload, authenticated })
    }
}

/// A security protected message as it is built: the caller ciphers and authenticates in place, then seals.
///
/// ```
/// use whimbrel_nas::security::{ProtectedBuilder, SecurityHeaderType};
/// let header_type = SecurityHeaderType::IntegrityProtectedCiphered;
/// let mut built = ProtectedBuilder::new(header_type, 7, &[0x7e, 0x00, 0x55]);
/// built.payload_mut().iter_mut().for_each(|o| *o ^= 0xff); // the cipher
/// let mac = [built.authenticated().len() as u8; 4]; // the MAC over sequence number and payload
/// assert_eq!(built.seal(mac), [0x7e, 0x02, 4, 4, 4, 4, 7, 0x81, 0xff, 0xaa]);
/// ```
#[derive(Clone, Debug)]
pub struct ProtectedBuilder(Vec<u8>);

impl ProtectedBuilder {
    /// An envelope with room for the MAC around a plain message.
    pub fn new(header_type: SecurityHeaderType, sequence_number: u8, plain: &[u8]) -> Self {
        let mut octets = Vec::with_capacity(HEADER_LEN + plain.len());
        octets.extend_from_slice(&[EPD_5GMM, header_type.value(), 0, 0, 0, 0, sequence_number]);
        octets.extend_from_slice(plain);
        Self(octets)
    }

    /// The payload, to be ciphered in place.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.0.get_mut(HEADER_LEN..).unwrap_or_default()
    }

    /// What the MAC is computed over: sequence number and payload.
    pub fn authenticated(&self) -> &[u8] {
        self.0.get(HEADER_LEN - 1..).unwrap_or_default()
    }

    /// The finished message.
    pub fn seal(mut self, mac: [u8; 4]) -> Vec<u8> {
        if let Some(room) = self.0.get_mut(2..6) {
            room.copy_from_slice(&mac);
        }
        self.0
    }
}
