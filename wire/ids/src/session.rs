//! Names of a session and of its tunnels.

use core::fmt;
use core::str::FromStr;

use crate::network::ParseIdError;

/// PDU session identity: 1 to 15, chosen by the UE (TS 24.007 §11.2.3.1b).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PduSessionId(u8);

impl PduSessionId {
    /// `None` outside 1..=15.
    pub const fn new(v: u8) -> Option<Self> {
        if v >= 1 && v <= 15 { Some(Self(v)) } else { None }
    }

    /// As a number.
    pub const fn value(self) -> u8 {
        self.0
    }
}

impl fmt::Display for PduSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Data network name (TS 23.003 §9): labels of letters, digits and hyphens, joined by dots, up to 100 octets.
///
/// Comparison ignores case, so the name is held in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dnn(Box<str>);

impl Dnn {
    /// The longest name, in octets of its text (TS 23.003 §9.1).
    pub const LEN_MAX: usize = 100;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Dnn {
    type Err = ParseIdError;
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError =
            ParseIdError { expected: "a DNN of letters, digits, hyphens and dots, such as internet" };
        let fits = |label: &str| {
            (1..=63).contains(&label.len()) && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
        };
        if s.len() > Self::LEN_MAX || !s.split('.').all(fits) {
            return Err(E);
        }
        Ok(Self(s.to_ascii_lowercase().into()))
    }
}

impl fmt::Display for Dnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Dnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// GTP tunnel endpoint identifier (TS 29.281 §5.1). Zero never names a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Teid(pub u32);

impl fmt::Debug for Teid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// PFCP session endpoint identifier (TS 29.244 §7.2.2.4.2). Zero means "not yet known".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Seid(pub u64);

impl fmt::Debug for Seid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// QoS flow identifier: 6 bits (TS 24.501 §9.11.4.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qfi(u8);

impl Qfi {
    /// `None` above 63.
    pub const fn new(v: u8) -> Option<Self> {
        if v < 64 { Some(Self(v)) } else { None }
    }

    /// As a number.
    pub const fn value(self) -> u8 {
        self.0
    }
}

/// 5G QoS identifier (TS 23.501 §5.7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FiveQi(pub u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dnn_ignores_case_and_refuses_empty_labels() {
        assert_eq!("Internet".parse::<Dnn>().unwrap(), "internet".parse::<Dnn>().unwrap());
        for bad in ["", ".", "a..b", "a b", &"x".repeat(64), &"ab.".repeat(40)] {
            assert!(bad.parse::<Dnn>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn pdu_session_id_is_1_to_15() {
        assert_eq!(PduSessionId::new(0), None);
        assert_eq!(PduSessionId::new(15).unwrap().value(), 15);
        assert_eq!(PduSessionId::new(16), None);
    }
}
