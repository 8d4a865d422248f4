//! Network name, full and short (TS 24.501 §9.11.3.35, TS 24.008 §10.5.3.5a), in the default alphabet of
//! TS 23.038 §6.2.1 or in UCS2.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::codec::Ie;

const IE: &str = "network name";

/// The default alphabet of TS 23.038 §6.2.1, in the order of its codes; 0x1B, which leads into an extension
/// table, reads as the space that the clause has shown in its stead.
const DEFAULT_ALPHABET: [char; 128] = [
    '@', '£', '$', '¥', 'è', 'é', 'ù', 'ì', 'ò', 'Ç', '\n', 'Ø', 'ø', '\r', 'Å', 'å', //
    'Δ', '_', 'Φ', 'Γ', 'Λ', 'Ω', 'Π', 'Ψ', 'Σ', 'Θ', 'Ξ', '\u{a0}', 'Æ', 'æ', 'ß', 'É', //
    ' ', '!', '"', '#', '¤', '%', '&', '\'', '(', ')', '*', '+', ',', '-', '.', '/', //
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ':', ';', '<', '=', '>', '?', //
    '¡', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'N', 'O', //
    'P', 'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z', 'Ä', 'Ö', 'Ñ', 'Ü', '§', //
    '¿', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', //
    'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z', 'ä', 'ö', 'ñ', 'ü', 'à',
];

/// How a network name is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCoding {
    /// The default alphabet, seven bits a character.
    Gsm7,
    /// Two octets a character.
    Ucs2,
}

/// Network name (TS 24.008 §10.5.3.5a).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkName {
    text: String,
    coding: NameCoding,
    /// The UE should add the letters of the country's initials to the name.
    pub add_country_initials: bool,
}

impl NetworkName {
    /// The longest name in octets of its coded text, so that the element fits one octet of length.
    const CODED_LEN_MAX: usize = 254;

    /// A name in the default alphabet where it has all characters, else in UCS2; `None` if neither has, or if the
    /// name is too long.
    pub fn new(text: &str) -> Option<Self> {
        let coding = if text.chars().all(|c| c != '\u{a0}' && gsm7_code(c).is_some()) {
            NameCoding::Gsm7
        } else if text.chars().all(|c| u32::from(c) <= 0xffff) {
            NameCoding::Ucs2
        } else {
            return None;
        };
        let chars = text.chars().count();
        let len = match coding {
            NameCoding::Gsm7 => (chars * 7).div_ceil(8),
            NameCoding::Ucs2 => chars * 2,
        };
        let fits = len <= Self::CODED_LEN_MAX;
        fits.then(|| Self { text: text.to_owned(), coding, add_country_initials: false })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How it is coded.
    pub const fn coding(&self) -> NameCoding {
        self.coding
    }
}

fn gsm7_code(c: char) -> Option<u8> {
    DEFAULT_ALPHABET.iter().position(|d| *d == c).map(|i| i as u8)
}

/// Packs septets, the first in the lowest bits of the first octet (TS 23.038 §6.1.2.1).
fn pack(septets: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    let (mut bits, mut held) = (0u16, 0u32);
    for septet in septets {
        bits |= u16::from(septet) << held;
        held += 7;
        if held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        out.push(bits as u8);
    }
}

fn unpack(octets: &[u8], spare_bits: usize) -> String {
    let count = (octets.len() * 8).saturating_sub(spare_bits) / 7;
    let bit = |i: usize| octets.get(i / 8).is_some_and(|o| o >> (i % 8) & 1 != 0);
    let septet = |n: usize| (0..7).fold(0, |v, b| v | usize::from(bit(n * 7 + b)) << b);
    (0..count).filter_map(|n| DEFAULT_ALPHABET.get(septet(n))).collect()
}

impl Ie for NetworkName {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let head = r.u8(IE)?;
        let octets = r.take_rest();
        let octets = octets.get(..Self::CODED_LEN_MAX).unwrap_or(octets);
        let (coding, text) = match head >> 4 & 0x07 {
            0 => (NameCoding::Gsm7, unpack(octets, usize::from(head & 0x07))),
            1 => {
                let units = octets.chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]]));
                let text = char::decode_utf16(units).collect::<Result<String, _>>().map_err(|_| invalid)?;
                (NameCoding::Ucs2, text)
            }
            _ => return Err(invalid),
        };
        Ok(Self { text, coding, add_country_initials: head & 0x08 != 0 })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let initials = u8::from(self.add_country_initials) << 3;
        match self.coding {
            NameCoding::Gsm7 => {
                let bits = self.text.chars().count() * 7;
                out.push(0x80 | initials | (bits.next_multiple_of(8) - bits) as u8);
                pack(self.text.chars().map(|c| gsm7_code(c).unwrap_or(b'?')), out);
            }
            NameCoding::Ucs2 => {
                out.push(0x90 | initials);
                self.text.encode_utf16().for_each(|u| out.extend_from_slice(&u.to_be_bytes()));
            }
        }
    }
}
