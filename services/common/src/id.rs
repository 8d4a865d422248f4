//! Names of the parties: operator, broker, user, and the pseudonym of a session.

use core::fmt;
use core::str::FromStr;

use whimbrel_ids::{DecodeError, DecodeErrorKind, ParseIdError, PlmnId, Reader};

use crate::codec::MessageField;

/// Network identifier that makes a PLMN a stand-alone non-public network: 44 bits (TS 23.003 §12.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid(u64);

impl Nid {
    /// `None` above 44 bits.
    pub const fn new(v: u64) -> Option<Self> {
        if v < 1 << 44 { Some(Self(v)) } else { None }
    }

    /// The 44 bits.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// An operator: a PLMN, with a NID if it is a non-public network. The UE reads both from the broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId {
    /// PLMN of the operator.
    pub plmn: PlmnId,
    /// The network identifier of a non-public network.
    pub nid: Option<Nid>,
}

impl MessageField for OperatorId {
    const NAME: &'static str = "operator";
    const FIELD_OCTETS_MAX: usize = 3 + 1 + 6;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.plmn.nas_octets());
        match self.nid {
            None => out.push(0),
            Some(nid) => {
                out.push(1);
                out.extend_from_slice(&nid.0.to_be_bytes()[2..]);
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = OperatorId::NAME;
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let plmn = PlmnId::from_nas_octets(r.array(IE)?).ok_or(invalid)?;
        let nid = match r.u8(IE)? {
            0 => None,
            1 => {
                let mut octets = [0; 8];
                octets[2..].copy_from_slice(&r.array::<6>(IE)?);
                Some(Nid::new(u64::from_be_bytes(octets)).ok_or(invalid)?)
            }
            _ => return Err(invalid),
        };
        Ok(Self { plmn, nid })
    }
}

impl fmt::Display for OperatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plmn)?;
        match self.nid {
            None => Ok(()),
            Some(nid) => write!(f, ":{:011x}", nid.0),
        }
    }
}

impl FromStr for OperatorId {
    type Err = ParseIdError;

    /// Reads `999/70`, or with a NID `999/70:0000000001f`.
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        let wrong = ParseIdError {
            expected: "a PLMN and perhaps a NID of 11 digits, such as 999/70 or 999/70:0000000001f",
        };
        let (plmn, nid) = match s.split_once(':') {
            None => (s, None),
            Some((plmn, nid)) if nid.len() == 11 && nid.bytes().all(|b| b.is_ascii_hexdigit()) => {
                (plmn, Some(u64::from_str_radix(nid, 16).ok().and_then(Nid::new).ok_or(wrong)?))
            }
            Some(_) => return Err(wrong),
        };
        Ok(Self { plmn: plmn.parse().map_err(|_| wrong)?, nid })
    }
}

/// A broker: the domain that its users carry as realm.
///
/// Lower-case labels of letters, digits and hyphens, at least two of them; never an address, so that a UE cannot make an
/// operator connect to a number of its choice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(Box<str>);

impl Domain {
    /// The longest domain, in octets: with the 32 digits of a pseudonym and the `@` it fills the 253 octets of a network
    /// access identifier (RFC 7542 §2.2).
    pub const OCTETS_MAX: usize = 220;

    /// The domain as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl MessageField for Domain {
    const NAME: &'static str = "broker domain";
    const FIELD_OCTETS_MAX: usize = 1 + Self::OCTETS_MAX;

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        out.extend_from_slice(self.0.as_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = Domain::NAME;
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let len = usize::from(r.u8(IE)?);
        let text = core::str::from_utf8(r.take(len, IE)?).map_err(|_| invalid)?;
        text.parse().map_err(|_| invalid)
    }
}

impl FromStr for Domain {
    type Err = ParseIdError;

    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        let label = |l: &str| {
            (1..=63).contains(&l.len())
                && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        let top = s.rsplit('.').next().unwrap_or_default();
        let named = s.contains('.') && s.split('.').all(label) && top.bytes().any(|b| b.is_ascii_lowercase());
        if s.len() <= Self::OCTETS_MAX && named {
            Ok(Self(s.into()))
        } else {
            Err(ParseIdError { expected: "a domain in lower case, such as broker.example" })
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A user within its broker's domain (idU): 16 octets that the broker assigns. All are of one length, so that the length
/// of a sealed request says nothing about its sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub [u8; 16]);

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserId(…)")
    }
}

/// The user part of a session's network access identifier: random, and never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pseudonym(pub [u8; 16]);

impl Pseudonym {
    /// The network access identifier, which is the SUPI of the session (TS 23.003 §28.7.2): 32 hexadecimal digits at the
    /// broker's domain.
    pub fn nai(&self, broker: &Domain) -> String {
        let mut nai: String = self.0.iter().map(|o| format!("{o:02x}")).collect();
        nai.push('@');
        nai.push_str(broker.as_str());
        nai
    }
}

impl fmt::Debug for Pseudonym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pseudonym(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_name_in_one_spelling_and_never_an_address() {
        let longest = format!("{}.{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(28));
        assert_eq!(longest.len(), Domain::OCTETS_MAX);
        for good in ["b.example", "a-1.b2.example", &longest] {
            assert_eq!(good.parse::<Domain>().unwrap().as_str(), good);
        }
        let too_long = format!("{longest}d");
        for bad in [
            "",
            "example",
            "B.example",
            "b..example",
            ".b.example",
            "b.example.",
            "-b.example",
            "b-.example",
            "10.0.0.1",
            "b.exa mple",
            "[::1].x:",
            &too_long,
        ] {
            assert!(bad.parse::<Domain>().is_err(), "{bad}");
        }
        let nai = Pseudonym([0xab; 16]).nai(&longest.parse().unwrap());
        assert_eq!(nai.len(), 253);
    }

    #[test] // TS 23.003 §12.7.1
    fn a_nid_has_44_bits() {
        assert!(Nid::new((1 << 44) - 1).is_some() && Nid::new(1 << 44).is_none());
        let operator = OperatorId { plmn: PlmnId::TEST, nid: Nid::new(0x1f) };
        assert_eq!(operator.to_string(), "999/70:0000000001f");
        assert_eq!("999/70:0000000001f".parse(), Ok(operator));
        assert_eq!("999/70".parse(), Ok(OperatorId { plmn: PlmnId::TEST, nid: None }));
        for wrong in ["999/70:1f", "999/70:+000000001f", "999/70:", "999"] {
            assert!(wrong.parse::<OperatorId>().is_err(), "{wrong}");
        }
    }
}
