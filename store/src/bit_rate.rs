//! Bit rates and aggregate maximum bit rates.

use core::fmt;
use core::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_ids::ParseIdError;

use crate::forms::{Text, TextForm};
use crate::text::serde_as_text;

/// A bit rate, written as TS 29.571 §5.5.2 does: `1 Gbps`, `256 Kbps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate {
    bps: u64,
}

const UNITS: [(&str, u64); 5] =
    [("Tbps", 1_000_000_000_000), ("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("Kbps", 1_000), ("bps", 1)];

impl BitRate {
    /// The largest that PFCP carries: 40 bits of kbit/s (TS 29.244 §8.2.8).
    pub const BPS_MAX: u64 = ((1 << 40) - 1) * 1_000;

    /// `None` for zero and above [`BitRate::BPS_MAX`].
    pub const fn from_bps(bps: u64) -> Option<Self> {
        if bps > 0 && bps <= Self::BPS_MAX { Some(Self { bps }) } else { None }
    }

    /// The rate in bit/s.
    pub const fn bps(self) -> u64 {
        self.bps
    }

    /// In kbit/s, rounded up, as PFCP carries it (TS 29.244 §8.2.8).
    pub const fn kbps(self) -> u64 {
        self.bps.div_ceil(1_000)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last unit divides everything.
        let (name, unit) =
            UNITS.into_iter().find(|(_, unit)| self.bps.is_multiple_of(*unit)).unwrap_or(UNITS[4]);
        write!(f, "{} {name}", self.bps / unit)
    }
}

impl FromStr for BitRate {
    type Err = ParseIdError;

    /// Reads `1 Gbps`, `1Gbps`, `2.5 Mbps`, or a bare number of bit/s.
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError =
            ParseIdError { expected: "a bit rate above zero, such as 1 Gbps or 256 Kbps" };
        let at = s.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(s.len());
        let (number, unit) = s.split_at(at);
        let unit = match unit.trim() {
            "" => 1,
            name => UNITS.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).ok_or(E)?.1,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        // Six decimals are more than any unit here needs.
        if fraction.is_empty() || fraction.len() > 6 {
            return Err(E);
        }
        let millionths = format!("{fraction:0<6}").parse::<u64>().map_err(|_| E)?;
        let whole: u64 = whole.parse().map_err(|_| E)?;
        let bps = whole.checked_mul(unit).and_then(|w| w.checked_add(millionths * (unit / 1_000) / 1_000));
        bps.and_then(Self::from_bps).ok_or(E)
    }
}

serde_as_text!(BitRate);

/// Numbers of as many digits as stay below [`BitRate::BPS_MAX`], with up to six decimals.
impl TextForm for BitRate {
    const PATTERN: &'static str = "^([1-9][0-9]{0,14}(\\.[0-9]{1,6})?( ?bps)?|[1-9][0-9]{0,11}(\\.[0-9]{1,6})? ?Kbps\
        |[1-9][0-9]{0,8}(\\.[0-9]{1,6})? ?Mbps|[1-9][0-9]{0,5}(\\.[0-9]{1,6})? ?Gbps|[1-9][0-9]{0,2}(\\.[0-9]{1,6})? ?Tbps\
        |0\\.[1-9][0-9]{0,5} ?[KMGT]bps)$";
}

impl JsonSchema for BitRate {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BitRate".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Text::<Self>::json_schema(generator)
    }
}

/// Aggregate maximum bit rate of a UE or of a session (TS 23.501 §5.7.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ambr {
    /// From the UE.
    pub uplink: BitRate,
    /// To the UE.
    pub downlink: BitRate,
}

impl Ambr {
    /// 1 Gbit/s each way: the default of a UE.
    pub const DEFAULT: Ambr =
        Ambr { uplink: BitRate { bps: 1_000_000_000 }, downlink: BitRate { bps: 1_000_000_000 } };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.571 §5.5.2
    fn bit_rates_are_read_and_written() {
        for (text, bps, written) in [
            ("1 Gbps", 1_000_000_000, "1 Gbps"),
            ("2.5Mbps", 2_500_000, "2500 Kbps"),
            ("0.000001 Tbps", 1_000_000, "1 Mbps"),
            ("1000", 1_000, "1 Kbps"),
            ("7 bps", 7, "7 bps"),
        ] {
            let rate: BitRate = text.parse().unwrap();
            assert_eq!((rate.bps(), rate.to_string().as_str()), (bps, written));
        }
        for bad in ["", "0", "Gbps", "1 Gbit", "-1 Kbps", "1. Mbps", "99999999999 Tbps", "1 2", "1e3"] {
            assert!(bad.parse::<BitRate>().is_err(), "{bad}");
        }
        assert_eq!("1 bps".parse::<BitRate>().unwrap().kbps(), 1);
    }
}
