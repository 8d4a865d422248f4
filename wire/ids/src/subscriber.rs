//! Names of a subscriber and of its equipment.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use crate::network::{ParseIdError, PlmnId};

/// Subscription permanent identifier (TS 23.003 §2.2A): an IMSI of 6 to 15 decimal digits (§2.2), or a network specific identifier in
/// the form of a network access identifier (§28.7.2), whose user part is 16 octets in hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Supi(SupiForm);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum SupiForm {
    /// Number of digits, then the digits as a number: ordering by it keeps equal-length IMSIs sorted.
    Imsi {
        len: u8,
        value: u64,
    },
    Nai {
        user: [u8; 16],
        realm: Realm,
    },
}

/// The realm of a network access identifier. There are few: each is kept once and never freed, so that a [`Supi`] can be copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Realm(&'static str);

impl Realm {
    /// The longest: with the 32 digits of the user part and the `@` it fills the 253 octets of a network access identifier
    /// (RFC 7542 §2.2).
    const OCTETS_MAX: usize = 220;

    fn new(text: &str) -> Option<Self> {
        static KEPT: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());
        let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        if !(1..=Self::OCTETS_MAX).contains(&text.len()) || !text.bytes().all(ok) {
            return None;
        }
        if let Some(kept) = KEPT.read().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Some(Self(kept));
        }
        let mut all = KEPT.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = all.get(text) {
            return Some(Self(kept));
        }
        let kept: &'static str = Box::leak(text.into());
        all.insert(kept);
        Some(Self(kept))
    }
}

impl Supi {
    /// An IMSI from decimal digits (each 0-9); `None` unless there are 6 to 15.
    pub fn from_digits(digits: impl IntoIterator<Item = u8>) -> Option<Self> {
        let (mut len, mut value) = (0u8, 0u64);
        for d in digits {
            if d > 9 || len == 15 {
                return None;
            }
            value = value * 10 + u64::from(d);
            len += 1;
        }
        (len >= 6).then_some(Self(SupiForm::Imsi { len, value }))
    }

    /// A network specific identifier; `None` if the realm is no domain name in lower case of at most 220 octets. The memory of a
    /// realm is never freed: pass only authenticated realms.
    pub fn from_nai(user: [u8; 16], realm: &str) -> Option<Self> {
        Some(Self(SupiForm::Nai { user, realm: Realm::new(realm)? }))
    }

    /// Whether it is a network specific identifier.
    pub const fn is_nai(self) -> bool {
        matches!(self.0, SupiForm::Nai { .. })
    }

    /// The digits of an IMSI, most significant first; none of a network specific identifier.
    pub fn digits(self) -> impl Iterator<Item = u8> {
        let (len, value) = match self.0 {
            SupiForm::Imsi { len, value } => (len, value),
            SupiForm::Nai { .. } => (0, 0),
        };
        (0..u32::from(len)).rev().map(move |i| (value / 10u64.pow(i) % 10) as u8)
    }

    /// Whether it is an IMSI that begins with this network's digits.
    pub fn is_of(self, plmn: PlmnId) -> bool {
        let mut own = self.digits();
        plmn.digits().all(|d| own.next() == Some(d))
    }

    /// Its value without the prefix for its type: what keys are bound to (TS 33.501 §A.7).
    pub fn value(self) -> String {
        match self.0 {
            SupiForm::Imsi { len, value } => format!("{value:0width$}", width = usize::from(len)),
            SupiForm::Nai { user, realm } => {
                let mut text: String = user.iter().map(|o| format!("{o:02x}")).collect();
                text.push('@');
                text.push_str(realm.0);
                text
            }
        }
    }

    /// The digits of an IMSI as text, without the `imsi-` prefix; empty for a network specific identifier.
    pub fn imsi(self) -> String {
        if self.is_nai() { String::new() } else { self.value() }
    }
}

/// The form in which our processes pass it on: how many digits, and their number; or 255, the user part, and the realm.
#[cfg(feature = "serde")]
mod form {
    use core::fmt;

    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Supi, SupiForm};

    /// Stands where an IMSI has the number of its digits.
    const NAI: u8 = 255;

    impl Serialize for Supi {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            match self.0 {
                SupiForm::Imsi { len, value } => (len, value).serialize(to),
                SupiForm::Nai { user, realm } => (NAI, user, realm.0).serialize(to),
            }
        }
    }

    impl<'de> Deserialize<'de> for Supi {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            struct SupiVisitor;

            impl<'de> Visitor<'de> for SupiVisitor {
                type Value = Supi;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a SUPI")
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Supi, A::Error> {
                    let no = || A::Error::custom("no SUPI");
                    let len: u8 = parts.next_element()?.ok_or_else(no)?;
                    if len == NAI {
                        let user = parts.next_element()?.ok_or_else(no)?;
                        let realm: String = parts.next_element()?.ok_or_else(no)?;
                        return Supi::from_nai(user, &realm).ok_or_else(no);
                    }
                    let value: u64 = parts.next_element()?.ok_or_else(no)?;
                    let fits = (6..=15).contains(&len) && value < 10u64.pow(len.into());
                    fits.then_some(Supi(SupiForm::Imsi { len, value })).ok_or_else(no)
                }
            }

            from.deserialize_tuple(3, SupiVisitor)
        }
    }
}

impl FromStr for Supi {
    type Err = ParseIdError;

    /// Reads `imsi-999700000000001` or the digits alone, and `nai-` with 32 hexadecimal digits, `@`, and a realm.
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError =
            ParseIdError { expected: "a SUPI of 6 to 15 digits, such as imsi-999700000000001" };
        if let Some(nai) = s.strip_prefix("nai-") {
            return nai_of(nai).ok_or(E);
        }
        let digits = s.strip_prefix("imsi-").unwrap_or(s);
        if !digits.bytes().all(|c| c.is_ascii_digit()) {
            return Err(E);
        }
        Self::from_digits(digits.bytes().map(|c| c - b'0')).ok_or(E)
    }
}

fn nai_of(text: &str) -> Option<Supi> {
    let (user, realm) = text.split_once('@')?;
    let (pairs, rest) = user.as_bytes().as_chunks::<2>();
    let nibble = |b: u8| char::from(b).to_digit(16).filter(|_| !b.is_ascii_uppercase()).map(|v| v as u8);
    let mut octets = [0; 16];
    if pairs.len() != octets.len() || !rest.is_empty() {
        return None;
    }
    for (octet, [high, low]) in octets.iter_mut().zip(pairs) {
        *octet = nibble(*high)? << 4 | nibble(*low)?;
    }
    Supi::from_nai(octets, realm)
}

impl fmt::Display for Supi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", if self.is_nai() { "nai" } else { "imsi" }, self.value())
    }
}

/// Redacted: a SUPI in a log reveals where a person was.
impl fmt::Debug for Supi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Supi(…)")
    }
}

/// Permanent equipment identifier: IMEI (15 digits) or IMEISV (16) (TS 23.003 §6.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pei {
    sv: bool,
    value: u64,
}

impl Pei {
    /// From decimal digits; `None` unless there are 15 (IMEI) or 16 (IMEISV).
    pub fn from_digits(digits: impl IntoIterator<Item = u8>) -> Option<Self> {
        let (mut len, mut value) = (0u8, 0u64);
        for d in digits {
            if d > 9 || len == 16 {
                return None;
            }
            value = value * 10 + u64::from(d);
            len += 1;
        }
        match len {
            15 => Some(Self { sv: false, value }),
            16 => Some(Self { sv: true, value }),
            _ => None,
        }
    }

    /// Whether it carries a software version (IMEISV).
    pub const fn is_imeisv(self) -> bool {
        self.sv
    }

    /// The digits, most significant first.
    pub fn digits(self) -> impl Iterator<Item = u8> {
        let n = if self.sv { 16 } else { 15 };
        (0..n).rev().map(move |i| (self.value / 10u64.pow(i) % 10) as u8)
    }
}

/// The form of [`serde_as`](crate::serde_as): whether it has a software version, and its digits' number.
#[cfg(feature = "serde")]
impl Pei {
    pub(crate) const fn parts(&self) -> (bool, u64) {
        (self.sv, self.value)
    }

    pub(crate) fn from_parts((sv, value): (bool, u64)) -> Option<Self> {
        (value < 10u64.pow(15 + u32::from(sv))).then_some(Self { sv, value })
    }
}

impl fmt::Display for Pei {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sv { write!(f, "imeisv-{:016}", self.value) } else { write!(f, "imei-{:015}", self.value) }
    }
}

/// Redacted, as a SUPI is.
impl fmt::Debug for Pei {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pei(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 23.003 §28.7.2
    fn a_network_specific_identifier_is_read_as_it_is_written() {
        let text = "nai-000102030405060708090a0b0c0d0e0f@b.example";
        let supi: Supi = text.parse().unwrap();
        assert!(supi.is_nai() && supi.to_string() == text && supi.imsi().is_empty());
        assert_eq!(supi, Supi::from_nai(core::array::from_fn(|i| i as u8), "b.example").unwrap());
        assert!(supi.digits().next().is_none() && !supi.is_of(PlmnId::TEST));
        for bad in ["nai-00@b.example", "nai-000102030405060708090A0B0C0D0E0F@b.example", "nai-", &text[..36]]
        {
            assert!(bad.parse::<Supi>().is_err(), "{bad}");
        }
    }

    #[test]
    fn supi_keeps_leading_zeros_and_hides_in_debug() {
        let s: Supi = "imsi-001010000000001".parse().unwrap();
        assert_eq!(s.to_string(), "imsi-001010000000001");
        assert_eq!(s.imsi().len(), 15);
        assert!(s.is_of("001/01".parse().unwrap()));
        assert!(!s.is_of("001/02".parse().unwrap()));
        assert_eq!(format!("{s:?}"), "Supi(…)");
        assert!("imsi-12345".parse::<Supi>().is_err());
        assert!("imsi-1234567890123456".parse::<Supi>().is_err());
    }

    #[test]
    fn pei_of_15_or_16_digits() {
        assert_eq!(Pei::from_digits([1; 15]).unwrap().to_string(), "imei-111111111111111");
        assert!(Pei::from_digits([1; 16]).unwrap().is_imeisv());
        assert_eq!(Pei::from_digits([1; 14]), None);
    }
}
