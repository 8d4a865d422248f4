//! Network time: time zone (TS 24.008 §10.5.3.8), time zone and time (§10.5.3.9), daylight saving time (§10.5.3.12).

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::codec::Ie;

/// Local time as quarters of an hour ahead of UTC, −79 to 79, summer time included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeZone(i8);

impl TimeZone {
    /// The time zone of UTC.
    pub const UTC: TimeZone = TimeZone(0);

    /// `None` beyond 79 quarters of an hour either way.
    pub const fn from_quarters(quarters: i8) -> Option<Self> {
        if quarters >= -79 && quarters <= 79 { Some(Self(quarters)) } else { None }
    }

    /// Quarters of an hour ahead of UTC.
    pub const fn quarters(self) -> i8 {
        self.0
    }
}

/// A two-digit number as swapped nibbles.
fn semi_octet(value: u8) -> u8 {
    ((value % 10) << 4) | (value / 10 % 10)
}

fn from_semi_octet(octet: u8) -> Option<u8> {
    let (tens, units) = (octet & 0x0f, octet >> 4);
    (tens <= 9 && units <= 9).then_some(tens * 10 + units)
}

impl Ie for TimeZone {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "time zone");
        let octet = r.u8("time zone")?;
        let quarters = from_semi_octet(octet & !0x08).ok_or(invalid)? as i8;
        Self::from_quarters(if octet & 0x08 != 0 { -quarters } else { quarters }).ok_or(invalid)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(semi_octet(self.0.unsigned_abs()) | if self.0 < 0 { 0x08 } else { 0 });
    }
}

/// Universal time and local time zone (TS 24.501 §9.11.3.53): the time is UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniversalTime {
    year: u8,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    zone: TimeZone,
}

impl UniversalTime {
    /// Of seconds since the Unix epoch; only the last two digits of the year are encoded.
    pub const fn from_unix_secs(secs: u64, zone: TimeZone) -> Self {
        // The civil calendar from a count of days, by 400-year eras that begin on 1 March.
        let of_day = secs % 86_400;
        let days = secs / 86_400 + 719_468;
        let of_era = days % 146_097;
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = days / 146_097 * 400 + year_of_era + (month <= 2) as u64;
        Self {
            year: (year % 100) as u8,
            month: month as u8,
            day: (of_year - (153 * march_month + 2) / 5 + 1) as u8,
            hour: (of_day / 3_600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
            zone,
        }
    }

    /// Year (0 to 99), month, day, hour, minute and second.
    pub const fn parts(self) -> [u8; 6] {
        [self.year, self.month, self.day, self.hour, self.minute, self.second]
    }

    /// The local time zone.
    pub const fn zone(self) -> TimeZone {
        self.zone
    }
}

impl Ie for UniversalTime {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "universal time");
        let mut next = || from_semi_octet(r.u8("universal time")?).ok_or(invalid);
        let [year, month, day, hour, minute, second] = [next()?, next()?, next()?, next()?, next()?, next()?];
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
            return Err(invalid);
        }
        Ok(Self { year, month, day, hour, minute, second, zone: TimeZone::decode(r)? })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.parts().map(semi_octet));
        self.zone.encode(out);
    }
}

/// Network daylight saving time (TS 24.008 §10.5.3.12): the adjustment that is part of the local time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DaylightSaving {
    /// No adjustment for summer time.
    None = 0,
    /// Summer time of one hour.
    OneHour = 1,
    /// Summer time of two hours.
    TwoHours = 2,
}

impl Ie for DaylightSaving {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "network daylight saving time");
        Ok(match r.u8("network daylight saving time")? & 0x03 {
            0 => Self::None,
            1 => Self::OneHour,
            2 => Self::TwoHours,
            _ => return Err(invalid),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}
