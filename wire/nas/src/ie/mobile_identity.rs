//! 5GS mobile identity (TS 24.501 §9.11.3.4) and identity type (§9.11.3.3).

use core::fmt;

use whimbrel_ids::{
    AmfId, DecodeError, DecodeErrorKind, Guami, Guti, Pei, PlmnId, Reader, STmsi, Supi, Tmsi,
};

use super::Octets;
use super::octets::code_half;
use crate::codec::Ie;

const IE: &str = "5GS mobile identity";

/// The longest scheme output or NAI: the maximum of a length of two octets less the eight octets of a SUCI's head.
const SUCI_PART_LEN_MAX: usize = 65535 - 8;

code_half! {
    /// Which identity is asked for (TS 24.501 §9.11.3.3). Unused codes mean SUCI.
    IdentityType, 0x07 {
        /// A SUCI as identity.
        Suci = 1 | 0 | 7,
        /// A 5G-GUTI as identity.
        Guti = 2,
        /// An IMEI as identity.
        Imei = 3,
        /// A 5G-S-TMSI as identity.
        STmsi = 4,
        /// An IMEISV as identity.
        Imeisv = 5,
        /// A MAC address as identity.
        MacAddress = 6,
    }
}

/// 5GS mobile identity (TS 24.501 §9.11.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MobileIdentity {
    /// It has no identity to offer.
    NoIdentity,
    /// The subscription, concealed.
    Suci(Suci),
    /// The temporary identity that an AMF gave.
    Guti(Guti),
    /// The equipment: IMEI or IMEISV.
    Pei(Pei),
    /// The short form of the temporary identity.
    STmsi(STmsi),
    /// The equipment, by its MAC address.
    MacAddress {
        /// The six octets of the address.
        address: [u8; 6],
        /// It must not be used to identify the equipment (the MAURI bit).
        not_usable: bool,
    },
    /// The equipment, by its EUI-64.
    Eui64([u8; 8]),
}

/// Subscription concealed identifier (TS 23.003 §2.2B; wire form TS 24.501 §9.11.3.4).
#[derive(Clone, PartialEq, Eq)]
pub enum Suci {
    /// Of a SUPI that is an IMSI.
    Imsi {
        /// The home network.
        plmn: PlmnId,
        /// Which UDM group of the home network.
        routing_indicator: RoutingIndicator,
        /// The MSIN, plain or concealed.
        output: SchemeOutput,
    },
    /// Of another SUPI, as a network access identifier in UTF-8 (TS 23.003 §28.7.3).
    Nai {
        /// Which kind of SUPI.
        format: NaiFormat,
        /// The identifier in NAI form.
        nai: Octets<0, SUCI_PART_LEN_MAX>,
    },
}

/// The kinds of SUPI that are not an IMSI: the SUPI format of the octet that begins the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NaiFormat {
    /// Network specific identifier.
    NetworkSpecific = 1,
    /// Global cable identifier.
    Gci = 2,
    /// Global line identifier.
    Gli = 3,
}

/// Routing indicator: one to four digits (TS 23.003 §2.2B).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutingIndicator {
    digits: [u8; 4],
    len: u8,
}

impl RoutingIndicator {
    /// The indicator "0", of a subscription to which none was assigned.
    pub const NONE: RoutingIndicator = RoutingIndicator { digits: [0; 4], len: 1 };

    /// `None` unless there are one to four digits of 0 to 9.
    pub fn from_digits(given: &[u8]) -> Option<Self> {
        if !(1..=4).contains(&given.len()) || given.iter().any(|d| *d > 9) {
            return None;
        }
        let mut digits = [0; 4];
        digits.iter_mut().zip(given).for_each(|(to, from)| *to = *from);
        Some(Self { digits, len: given.len() as u8 })
    }

    /// The digits, each 0 to 9.
    pub fn digits(&self) -> &[u8] {
        self.digits.get(..usize::from(self.len)).unwrap_or(&self.digits)
    }

    fn from_octets([a, b]: [u8; 2]) -> Option<Self> {
        let nibbles = [a & 0xf, a >> 4, b & 0xf, b >> 4];
        let len = nibbles.iter().position(|d| *d == 0xf).unwrap_or(4);
        // The digits that are not used are 1111; a stray digit behind them names no indicator.
        let (digits, filler) = nibbles.split_at(len);
        if filler.iter().any(|d| *d != 0xf) { None } else { Self::from_digits(digits) }
    }

    fn octets(&self) -> [u8; 2] {
        let d = |i: usize| self.digits().get(i).copied().unwrap_or(0xf);
        [d(0) | d(1) << 4, d(2) | d(3) << 4]
    }
}

impl fmt::Display for RoutingIndicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits().iter().try_for_each(|d| write!(f, "{d}"))
    }
}

impl fmt::Debug for RoutingIndicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The MSIN of a SUCI under its protection scheme (TS 33.501 Annex C).
#[derive(Clone, PartialEq, Eq)]
pub enum SchemeOutput {
    /// Null scheme: the digits themselves.
    Null(Msin),
    /// A scheme with a key of the home network: ECIES profile A (1), B (2), or one of the operator's (12 to 15).
    Concealed {
        /// Protection scheme identifier, 1 to 15.
        scheme: SchemeId,
        /// Which of the home network's keys: home network public key identifier.
        key_id: u8,
        /// Scheme output: ephemeral public key, cipher text, MAC tag for the profiles A and B.
        output: Octets<0, SUCI_PART_LEN_MAX>,
    },
}

/// Protection scheme identifier other than the null scheme (TS 33.501 Annex C.1): 1 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemeId(u8);

impl SchemeId {
    /// ECIES with Curve25519.
    pub const PROFILE_A: SchemeId = SchemeId(1);
    /// ECIES with secp256r1.
    pub const PROFILE_B: SchemeId = SchemeId(2);

    /// `None` for the null scheme (0) and above 15.
    pub const fn new(value: u8) -> Option<Self> {
        if value >= 1 && value <= 15 { Some(Self(value)) } else { None }
    }

    /// As a number.
    pub const fn value(self) -> u8 {
        self.0
    }
}

/// Mobile subscriber identification number: up to 10 decimal digits, what an IMSI has behind MCC and MNC.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Msin {
    digits: [u8; 10],
    len: u8,
}

impl Msin {
    /// `None` unless there are 1 to 10 digits, each 0 to 9.
    pub fn from_digits(given: impl IntoIterator<Item = u8>) -> Option<Self> {
        let mut msin = Self { digits: [0; 10], len: 0 };
        for d in given {
            if d > 9 {
                return None;
            }
            *msin.digits.get_mut(usize::from(msin.len))? = d;
            msin.len += 1;
        }
        (msin.len > 0).then_some(msin)
    }

    /// The digits, each 0 to 9.
    pub fn digits(&self) -> &[u8] {
        self.digits.get(..usize::from(self.len)).unwrap_or(&self.digits)
    }

    /// The MSIN of a SUPI of this network; `None` if it is of another, or empty.
    pub fn of(supi: Supi, plmn: PlmnId) -> Option<Self> {
        let msin = Self::from_digits(supi.digits().skip(plmn.digits().count()))?;
        supi.is_of(plmn).then_some(msin)
    }

    /// The SUPI that it makes with the digits of the network; `None` if they are fewer than a SUPI has.
    pub fn supi(&self, plmn: PlmnId) -> Option<Supi> {
        Supi::from_digits(plmn.digits().chain(self.digits().iter().copied()))
    }

    /// From swapped nibbles, as a protection scheme conceals them (TS 33.501 Annex C.3.2); `None` if a nibble is no
    /// digit but for the filler at the end, or if they are not 1 to 10.
    pub fn from_bcd(octets: &[u8]) -> Option<Self> {
        Self::from_digits(bcd_digits(octets))
    }

    /// As swapped nibbles, the input of a protection scheme.
    pub fn bcd(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(5);
        push_bcd(self.digits().iter().copied(), &mut out);
        out
    }
}

/// Redacted: it is a SUPI but for its first digits.
impl fmt::Debug for Msin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Msin(…)")
    }
}

/// Redacted if the subscriber's number is in clear.
impl fmt::Debug for SchemeOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(_) => f.write_str("Null(…)"),
            Self::Concealed { scheme, key_id, .. } => {
                write!(f, "Concealed {{ scheme: {}, key_id: {key_id}, .. }}", scheme.0)
            }
        }
    }
}

/// Redacted if the subscriber's name is in clear.
impl fmt::Debug for Suci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Imsi { plmn, routing_indicator, output } => {
                write!(f, "Suci({plmn:?}, {routing_indicator:?}, {output:?})")
            }
            Self::Nai { format, .. } => write!(f, "Suci({format:?}, …)"),
        }
    }
}

impl Suci {
    /// A SUPI under the null scheme: the MSIN begins behind the digits of `plmn`. `None` if the SUPI is not of that
    /// network or has no MSIN.
    pub fn null(supi: Supi, plmn: PlmnId, routing_indicator: RoutingIndicator) -> Option<Self> {
        let output = SchemeOutput::Null(Msin::of(supi, plmn)?);
        Some(Self::Imsi { plmn, routing_indicator, output })
    }

    /// The home network's key under which it is concealed; 0 for none.
    pub fn key_id(&self) -> u8 {
        match self {
            Self::Imsi { output: SchemeOutput::Concealed { key_id, .. }, .. } => *key_id,
            _ => 0,
        }
    }

    /// The SUPI, where it is not concealed and is an IMSI.
    pub fn plain_supi(&self) -> Option<Supi> {
        match self {
            Self::Imsi { plmn, output: SchemeOutput::Null(msin), .. } => msin.supi(*plmn),
            _ => None,
        }
    }

    fn decode(format: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let format = match format {
            0 => return Self::decode_imsi(r),
            1 => NaiFormat::NetworkSpecific,
            2 => NaiFormat::Gci,
            3 => NaiFormat::Gli,
            _ => return Err(r.error(DecodeErrorKind::InvalidValue, IE)),
        };
        Ok(Self::Nai { format, nai: Octets::decode(r)? })
    }

    fn decode_imsi(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let plmn = PlmnId::from_nas_octets(r.array(IE)?).ok_or(invalid)?;
        let routing_indicator = RoutingIndicator::from_octets(r.array(IE)?).ok_or(invalid)?;
        let scheme = r.u8(IE)? & 0x0f;
        let key_id = r.u8(IE)?;
        let output = match SchemeId::new(scheme) {
            None => SchemeOutput::Null(Msin::from_bcd(r.take_rest()).ok_or(invalid)?),
            Some(scheme) => SchemeOutput::Concealed { scheme, key_id, output: Octets::decode(r)? },
        };
        Ok(Self::Imsi { plmn, routing_indicator, output })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Imsi { plmn, routing_indicator, output } => {
                out.push(0x01);
                out.extend_from_slice(&plmn.nas_octets());
                out.extend_from_slice(&routing_indicator.octets());
                match output {
                    SchemeOutput::Null(msin) => {
                        out.extend_from_slice(&[0, 0]); // the key identifier of the null scheme is 0
                        push_bcd(msin.digits().iter().copied(), out);
                    }
                    SchemeOutput::Concealed { scheme, key_id, output } => {
                        out.extend_from_slice(&[scheme.0, *key_id]);
                        out.extend_from_slice(output);
                    }
                }
            }
            Self::Nai { format, nai } => {
                out.push((*format as u8) << 4 | 0x01);
                out.extend_from_slice(nai);
            }
        }
    }
}

/// Digits as swapped nibbles, without the filler that ends an odd number of them.
fn bcd_digits(octets: &[u8]) -> impl Iterator<Item = u8> {
    let filled = octets.last().is_some_and(|o| o >> 4 == 0xf);
    let len = octets.len() * 2 - usize::from(filled);
    octets.iter().flat_map(|o| [o & 0xf, o >> 4]).take(len)
}

fn push_bcd(mut digits: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    while let Some(low) = digits.next() {
        out.push(low | digits.next().unwrap_or(0xf) << 4);
    }
}

impl Ie for MobileIdentity {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let first = r.u8(IE)?;
        Ok(match first & 0x07 {
            0 => Self::NoIdentity,
            1 => Self::Suci(Suci::decode(first >> 4 & 0x07, r)?),
            2 => Self::Guti(decode_guti(r)?),
            kind @ (3 | 5) => {
                let filled = r.rest().last().is_some_and(|o| o >> 4 == 0xf);
                let digits = core::iter::once(first >> 4).chain(bcd_digits(r.take_rest()));
                let pei = Pei::from_digits(digits).ok_or(invalid)?;
                // The odd/even bit, the filler and the type must all tell the same number of digits.
                let even = first & 0x08 == 0;
                if pei.is_imeisv() != (kind == 5) || even != pei.is_imeisv() || even != filled {
                    return Err(invalid);
                }
                Self::Pei(pei)
            }
            4 => {
                let [a, b] = r.array(IE)?;
                let tmsi = Tmsi(r.u32(IE)?);
                Self::STmsi(STmsi { set: u16::from(a) << 2 | u16::from(b) >> 6, pointer: b & 0x3f, tmsi })
            }
            6 => Self::MacAddress { not_usable: first & 0x08 != 0, address: r.array(IE)? },
            _ => Self::Eui64(r.array(IE)?),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            // Without identity the digits are zero, with the indication of an even number.
            Self::NoIdentity => out.extend_from_slice(&[0x00]),
            Self::Suci(suci) => suci.encode(out),
            Self::Guti(guti) => {
                out.push(0xf2);
                out.extend_from_slice(&guti.guami.plmn.nas_octets());
                out.extend_from_slice(&guti.guami.amf_id.octets());
                out.extend_from_slice(&guti.tmsi.0.to_be_bytes());
            }
            Self::Pei(pei) => {
                let mut digits = pei.digits();
                let kind = if pei.is_imeisv() { 0x05 } else { 0x0b };
                out.push(digits.next().unwrap_or(0) << 4 | kind);
                push_bcd(digits, out);
            }
            Self::STmsi(s) => {
                let [high, low] = (s.set << 6 | u16::from(s.pointer & 0x3f)).to_be_bytes();
                out.extend_from_slice(&[0xf4, high, low]);
                out.extend_from_slice(&s.tmsi.0.to_be_bytes());
            }
            Self::MacAddress { address, not_usable } => {
                out.push(if *not_usable { 0x0e } else { 0x06 });
                out.extend_from_slice(address);
            }
            Self::Eui64(eui) => {
                out.push(0x07);
                out.extend_from_slice(eui);
            }
        }
    }
}

fn decode_guti(r: &mut Reader<'_>) -> Result<Guti, DecodeError> {
    let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
    let plmn = PlmnId::from_nas_octets(r.array(IE)?).ok_or(invalid)?;
    let amf_id = AmfId::from_octets(r.array(IE)?);
    Ok(Guti { guami: Guami { plmn, amf_id }, tmsi: Tmsi(r.u32(IE)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 33.501 Annex C.3.2: the concealed part is the MSIN in BCD
    fn msin_of_odd_and_even_length_in_bcd() {
        let plmn: PlmnId = "310410".parse().unwrap();
        let supi: Supi = "310410123456789".parse().unwrap();
        let msin = Msin::of(supi, plmn).unwrap();
        assert_eq!(msin.bcd(), [0x21, 0x43, 0x65, 0x87, 0xf9]);
        assert_eq!(Msin::from_bcd(&msin.bcd()), Some(msin));
        assert_eq!(msin.supi(plmn), Some(supi));
        assert_eq!(Msin::of(supi, PlmnId::TEST), None, "of another network");
        assert_eq!(Msin::from_bcd(&[0x10, 0x32]).unwrap().digits(), [0, 1, 2, 3]);
        for bad in [&[][..], &[0xff], &[0x1f, 0x21], &[0xf1, 0x21], &[0x11; 6]] {
            assert_eq!(Msin::from_bcd(bad), None, "{bad:02x?}");
        }
    }

    #[test] // a subscriber's number does not reach a log
    fn debug_hides_the_subscriber() {
        let suci = Suci::null("999700000000001".parse().unwrap(), PlmnId::TEST, RoutingIndicator::NONE);
        let text = format!("{:?}", MobileIdentity::Suci(suci.unwrap()));
        assert!(text.contains("999/70") && !text.contains("00000001"), "{text}");
    }
}
