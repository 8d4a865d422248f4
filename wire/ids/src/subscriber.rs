//! Names of a subscriber and of its equipment.

use core::fmt;
use core::str::FromStr;

use crate::network::{ParseIdError, PlmnId};

/// Subscription permanent identifier of type IMSI (TS 23.003 §2.2, §2.2A): 6 to 15 decimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Supi {
    /// Number of digits, then the digits as a number: ordering by it keeps equal-length IMSIs sorted.
    len: u8,
    value: u64,
}

impl Supi {
    /// From decimal digits (each 0-9); `None` unless there are 6 to 15.
    pub fn from_digits(digits: impl IntoIterator<Item = u8>) -> Option<Self> {
        let (mut len, mut value) = (0u8, 0u64);
        for d in digits {
            if d > 9 || len == 15 {
                return None;
            }
            value = value * 10 + u64::from(d);
            len += 1;
        }
        (len >= 6).then_some(Self { len, value })
    }

    /// The digits, most significant first.
    pub fn digits(self) -> impl Iterator<Item = u8> {
        (0..u32::from(self.len)).rev().map(move |i| (self.value / 10u64.pow(i) % 10) as u8)
    }

    /// Whether the IMSI begins with this network's digits.
    pub fn is_of(self, plmn: PlmnId) -> bool {
        let mut own = self.digits();
        plmn.digits().all(|d| own.next() == Some(d))
    }

    /// The digits as text, without the `imsi-` prefix.
    pub fn imsi(self) -> String {
        format!("{:0width$}", self.value, width = usize::from(self.len))
    }
}

/// The form of [`serde_as`](crate::serde_as): how many digits, and their number.
#[cfg(feature = "serde")]
impl Supi {
    pub(crate) const fn parts(&self) -> (u8, u64) {
        (self.len, self.value)
    }

    pub(crate) fn from_parts((len, value): (u8, u64)) -> Option<Self> {
        ((6..=15).contains(&len) && value < 10u64.pow(len.into())).then_some(Self { len, value })
    }
}

impl FromStr for Supi {
    type Err = ParseIdError;

    /// Reads `imsi-999700000000001` or the digits alone.
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError =
            ParseIdError { expected: "a SUPI of 6 to 15 digits, such as imsi-999700000000001" };
        let digits = s.strip_prefix("imsi-").unwrap_or(s);
        if !digits.bytes().all(|c| c.is_ascii_digit()) {
            return Err(E);
        }
        Self::from_digits(digits.bytes().map(|c| c - b'0')).ok_or(E)
    }
}

impl fmt::Display for Supi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imsi-{}", self.imsi())
    }
}

/// Redacted: a SUPI in a log says where a person was.
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
