//! Packets of EAP (RFC 3748 §4) and attributes of EAP-AKA' (RFC 4187 §8, §10, RFC 9048 §3).

/// The longest EAP packet that NAS carries (TS 24.501 §9.11.2.2).
pub(super) const OCTETS_MAX: usize = 1500;
/// Key derivation functions that one message may offer; one is defined (RFC 9048 §3.2).
pub(super) const KDFS_MAX: usize = 8;

/// EAP method type of EAP-AKA' (RFC 9048 §9.1).
const TYPE_AKA_PRIME: u8 = 50;
/// Octets before the attributes: code, identifier, length, type, subtype, reserved.
const HEADER: usize = 8;

/// EAP code (RFC 3748 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Request = 1,
    Response = 2,
    Success = 3,
    Failure = 4,
}

/// What kind of EAP-AKA' message (RFC 4187 §11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subtype {
    Challenge = 1,
    AuthenticationReject = 2,
    SynchronizationFailure = 4,
    Notification = 12,
    ClientError = 14,
}

// Attribute types (RFC 4187 §11, RFC 9048 §9.2). From 128 on, a receiver may skip what it does not know.
const AT_RAND: u8 = 1;
const AT_AUTN: u8 = 2;
const AT_RES: u8 = 3;
const AT_AUTS: u8 = 4;
const AT_MAC: u8 = 11;
const AT_NOTIFICATION: u8 = 12;
const AT_CLIENT_ERROR_CODE: u8 = 22;
const AT_KDF_INPUT: u8 = 23;
const AT_KDF: u8 = 24;
const SKIPPABLE: u8 = 128;
const AT_CHECKCODE: u8 = 134;

/// A message that breaks the rules of its RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// A packet of EAP-AKA', read; nothing in it is believed yet.
#[derive(Debug)]
pub(super) struct EapPacket<'a> {
    pub(super) code: Code,
    pub(super) identifier: u8,
    pub(super) subtype: Subtype,
    pub(super) rand: Option<[u8; 16]>,
    pub(super) autn: Option<[u8; 16]>,
    pub(super) res: Option<&'a [u8]>,
    pub(super) auts: Option<[u8; 14]>,
    pub(super) kdf_input: Option<&'a [u8]>,
    pub(super) kdfs: Vec<u16>,
    pub(super) checkcode: Option<&'a [u8]>,
    pub(super) notification: Option<u16>,
    pub(super) client_error: Option<u16>,
    /// The code that AT_MAC carries, and where in the packet.
    mac: Option<([u8; 16], usize)>,
    /// The packet, without what followed its length.
    octets: &'a [u8],
}

/// A packet without a method: Success or Failure, with its identifier (RFC 3748 §4.2).
pub(super) fn bare(octets: &[u8]) -> Option<(Code, u8)> {
    match octets {
        [3, identifier, 0, 4, ..] => Some((Code::Success, *identifier)),
        [4, identifier, 0, 4, ..] => Some((Code::Failure, *identifier)),
        _ => None,
    }
}

impl<'a> EapPacket<'a> {
    /// Reads a request or a response of EAP-AKA'. Octets beyond the packet's own length are padding (RFC 3748 §4.1).
    pub(super) fn parse(octets: &'a [u8]) -> Result<Self, Malformed> {
        let &[code, identifier, high, low, method, subtype, _, _, ..] = octets else {
            return Err(Malformed("an EAP packet that is too short"));
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > OCTETS_MAX {
            return Err(Malformed("an EAP packet that is too long"));
        }
        let octets = octets.get(..length).ok_or(Malformed("an EAP packet of another length than it says"))?;
        let mut attributes = octets.get(HEADER..).ok_or(Malformed("an EAP packet that is too short"))?;
        let code = match code {
            1 => Code::Request,
            2 => Code::Response,
            _ => return Err(Malformed("an EAP packet that is neither request nor response")),
        };
        if method != TYPE_AKA_PRIME {
            return Err(Malformed("another EAP method than EAP-AKA'"));
        }
        let mut packet = Self {
            code,
            identifier,
            subtype: match subtype {
                1 => Subtype::Challenge,
                2 => Subtype::AuthenticationReject,
                4 => Subtype::SynchronizationFailure,
                12 => Subtype::Notification,
                14 => Subtype::ClientError,
                _ => return Err(Malformed("an EAP-AKA' message of another subtype")),
            },
            rand: None,
            autn: None,
            res: None,
            auts: None,
            kdf_input: None,
            kdfs: Vec::new(),
            checkcode: None,
            notification: None,
            client_error: None,
            mac: None,
            octets,
        };
        while let [kind, words, ..] = *attributes {
            let (attribute, rest) = attributes
                .split_at_checked(usize::from(words) * 4)
                .filter(|(a, _)| !a.is_empty())
                .ok_or(Malformed("an attribute longer than its packet"))?;
            let at = octets.len() - attributes.len();
            packet.take(kind, attribute.get(2..).unwrap_or_default(), at)?;
            attributes = rest;
        }
        if attributes.is_empty() { Ok(packet) } else { Err(Malformed("octets after the last attribute")) }
    }

    /// Notes one attribute; `value` is what follows its type and length, at `at` begins the attribute.
    fn take(&mut self, kind: u8, value: &'a [u8], at: usize) -> Result<(), Malformed> {
        match kind {
            AT_RAND => once(&mut self.rand, reserved(value)?),
            AT_AUTN => once(&mut self.autn, reserved(value)?),
            AT_RES => once(&mut self.res, counted(value, 8)?),
            AT_AUTS => once(&mut self.auts, exactly(value)?),
            AT_MAC => once(&mut self.mac, (reserved(value)?, at + 4)),
            AT_KDF_INPUT => once(&mut self.kdf_input, counted(value, 1)?),
            AT_KDF if self.kdfs.len() < KDFS_MAX => {
                self.kdfs.push(number(value)?);
                Ok(())
            }
            AT_KDF => Err(Malformed("too many AT_KDF")),
            AT_NOTIFICATION => once(&mut self.notification, number(value)?),
            AT_CLIENT_ERROR_CODE => once(&mut self.client_error, number(value)?),
            AT_CHECKCODE => once(&mut self.checkcode, value.get(2..).unwrap_or_default()),
            SKIPPABLE.. => Ok(()),
            // RFC 4187 §8.1: what may not be skipped makes the whole message unusable.
            _ => Err(Malformed("an attribute that may not be skipped")),
        }
    }

    /// Whether AT_MAC is there and right under K_aut (RFC 9048 §3.4): the code over the packet in which it is zero.
    pub(super) fn mac_is_right(&self, code: impl FnOnce(&[&[u8]]) -> [u8; 32]) -> bool {
        let Some((mac, at)) = self.mac else { return false };
        let (Some(before), Some(after)) = (self.octets.get(..at), self.octets.get(at + 16..)) else {
            return false;
        };
        crate::secret::ct_eq(&mac, &code(&[before, &[0; 16], after])[..16])
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed("an attribute that comes twice")),
    }
}

/// Two reserved octets and a value (AT_RAND, AT_AUTN, AT_MAC).
fn reserved<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    exactly(value.get(2..).unwrap_or_default())
}

fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed("an attribute of the wrong length"))
}

fn number(value: &[u8]) -> Result<u16, Malformed> {
    exactly(value).map(u16::from_be_bytes)
}

/// A length in units of `1 / unit` octets, then so many octets, then padding to the next word.
fn counted(value: &[u8], unit: usize) -> Result<&[u8], Malformed> {
    const E: Malformed = Malformed("an attribute of another length than it says");
    let (count, rest) = value.split_first_chunk::<2>().ok_or(E)?;
    let count = usize::from(u16::from_be_bytes(*count));
    let padding = rest.len().checked_sub(count / unit).ok_or(E)?;
    if !count.is_multiple_of(unit) || padding > 3 {
        return Err(E);
    }
    rest.get(..count / unit).ok_or(E)
}

/// Writes a packet of EAP-AKA'.
pub(super) struct EapWriter {
    octets: Vec<u8>,
    mac: Option<usize>,
}

impl EapWriter {
    pub(super) fn new(code: Code, identifier: u8, subtype: Subtype) -> Self {
        let octets = vec![code as u8, identifier, 0, 0, TYPE_AKA_PRIME, subtype as u8, 0, 0];
        Self { octets, mac: None }
    }

    /// An attribute whose value follows type and length, padded to a word.
    pub(super) fn attribute(mut self, kind: u8, parts: &[&[u8]]) -> Self {
        let octets = 2 + parts.iter().map(|p| p.len()).sum::<usize>();
        let words = octets.div_ceil(4);
        self.octets.extend_from_slice(&[kind, u8::try_from(words).unwrap_or(u8::MAX)]);
        parts.iter().for_each(|p| self.octets.extend_from_slice(p));
        self.octets.resize(self.octets.len() + words * 4 - octets, 0);
        self
    }

    pub(super) fn rand(self, rand: &[u8; 16]) -> Self {
        self.attribute(AT_RAND, &[&[0, 0], rand])
    }

    pub(super) fn autn(self, autn: &[u8; 16]) -> Self {
        self.attribute(AT_AUTN, &[&[0, 0], autn])
    }

    /// RES, whose length is given in bits (RFC 4187 §10.8).
    pub(super) fn res(self, res: &[u8]) -> Self {
        let bits = (res.len() as u16) * 8;
        self.attribute(AT_RES, &[&bits.to_be_bytes(), res])
    }

    pub(super) fn auts(self, auts: &[u8; 14]) -> Self {
        self.attribute(AT_AUTS, &[auts])
    }

    pub(super) fn kdf_input(self, name: &[u8]) -> Self {
        self.attribute(AT_KDF_INPUT, &[&(name.len() as u16).to_be_bytes(), name])
    }

    pub(super) fn kdf(self, kdf: u16) -> Self {
        self.attribute(AT_KDF, &[&kdf.to_be_bytes()])
    }

    pub(super) fn notification(self, code: u16) -> Self {
        self.attribute(AT_NOTIFICATION, &[&code.to_be_bytes()])
    }

    pub(super) fn client_error(self, code: u16) -> Self {
        self.attribute(AT_CLIENT_ERROR_CODE, &[&code.to_be_bytes()])
    }

    /// Room for the code that [`EapWriter::finish`] fills in.
    pub(super) fn mac(mut self) -> Self {
        self.mac = Some(self.octets.len() + 4);
        self.attribute(AT_MAC, &[&[0, 0], &[0; 16]])
    }

    /// The packet; `code` computes what AT_MAC carries.
    pub(super) fn finish(mut self, code: impl FnOnce(&[&[u8]]) -> [u8; 32]) -> Vec<u8> {
        let length = u16::try_from(self.octets.len()).unwrap_or(u16::MAX).to_be_bytes();
        self.octets[2..4].copy_from_slice(&length);
        if let Some(at) = self.mac {
            let mac = code(&[&self.octets]);
            if let Some(place) = self.octets.get_mut(at..at + 16) {
                place.copy_from_slice(&mac[..16]);
            }
        }
        self.octets
    }

    /// A packet without AT_MAC.
    pub(super) fn plain(self) -> Vec<u8> {
        self.finish(|_| [0; 32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn challenge() -> EapWriter {
        EapWriter::new(Code::Request, 7, Subtype::Challenge)
            .rand(&[1; 16])
            .autn(&[2; 16])
            .kdf(1)
            .kdf_input(b"5G:mnc070.mcc999.3gppnetwork.org")
    }

    #[test] // RFC 9048 §3, RFC 4187 §8.1
    fn what_is_written_is_read() {
        let octets = challenge().mac().finish(|_| [9; 32]);
        let packet = EapPacket::parse(&octets).unwrap();
        assert_eq!((packet.code, packet.identifier, packet.subtype), (Code::Request, 7, Subtype::Challenge));
        assert_eq!((packet.rand, packet.autn), (Some([1; 16]), Some([2; 16])));
        assert_eq!(packet.kdf_input, Some(&b"5G:mnc070.mcc999.3gppnetwork.org"[..]));
        assert_eq!(packet.kdfs, [1]);
        assert!(packet.mac_is_right(|_| [9; 32]) && !packet.mac_is_right(|_| [8; 32]));
    }

    #[test] // RFC 4187 §8.1: 0 to 127 may not be skipped, 128 to 255 may
    fn unknown_attributes() {
        let skippable = challenge().attribute(200, &[&[0; 6]]).plain();
        assert!(EapPacket::parse(&skippable).is_ok());
        let not = challenge().attribute(99, &[&[0; 6]]).plain();
        assert!(EapPacket::parse(&not).is_err());
        let twice = challenge().rand(&[3; 16]).plain();
        assert!(EapPacket::parse(&twice).is_err());
    }

    #[test] // RFC 4187 §8.1: attributes with wrong lengths
    fn wrong_lengths_are_refused() {
        let whole = challenge().mac().plain();
        for n in 0..whole.len() {
            assert!(EapPacket::parse(&whole[..n]).is_err(), "cut at {n}");
        }
        let mut zero = whole.clone();
        zero[9] = 0;
        assert!(EapPacket::parse(&zero).is_err(), "an attribute of no words");
        let mut long = whole.clone();
        long[9] = 255;
        assert!(EapPacket::parse(&long).is_err());
        let mut padded = whole.clone();
        padded.extend_from_slice(&[0xaa; 5]);
        assert!(EapPacket::parse(&padded).is_ok(), "octets after the packet are padding (RFC 3748 §4.1)");
        let res =
            EapWriter::new(Code::Response, 1, Subtype::Challenge).attribute(AT_RES, &[&[0, 65], &[0; 9]]);
        assert!(EapPacket::parse(&res.plain()).is_err(), "RES of 65 bits");
    }

    proptest! {
        #[test]
        fn any_octets_are_answered(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = EapPacket::parse(&octets);
            let mut plausible = vec![2, 1, 0, (octets.len() + 8) as u8, TYPE_AKA_PRIME, 1, 0, 0];
            plausible.extend_from_slice(&octets);
            let _ = EapPacket::parse(&plausible).map(|p| p.mac_is_right(|_| [0; 32]));
        }
    }
}
