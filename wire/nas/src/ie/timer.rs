//! GPRS timer (TS 24.008 §10.5.7.3, also the coding of GPRS timer 2, §10.5.7.4) and GPRS timer 3 (§10.5.7.4a).

use core::fmt;
use core::time::Duration;

use whimbrel_ids::{DecodeError, Reader};

use crate::codec::Ie;

macro_rules! gprs_timer {
    ( $(#[$meta:meta])* $name:ident, other $other:literal { $( $unit:literal $secs:literal, )* } ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name(u8);

        impl $name {
            /// The timer is deactivated.
            pub const DEACTIVATED: Self = Self(0xe0);

            /// The units and their lengths in seconds, shortest first.
            const UNITS: &'static [(u8, u64)] = &[ $( ($unit, $secs), )* ];

            /// The shortest value that is not below `d`, or the longest that there is.
            pub fn from_duration(d: Duration) -> Self {
                let secs = d.as_secs() + u64::from(d.subsec_nanos() > 0);
                for (unit, len) in Self::UNITS {
                    let value = secs.div_ceil(*len);
                    if value <= 31 {
                        return Self(unit << 5 | value as u8);
                    }
                }
                Self(Self::UNITS.last().map_or(0, |(unit, _)| unit << 5) | 31)
            }

            /// How long it is; `None` if it is deactivated.
            pub fn duration(self) -> Option<Duration> {
                let unit = self.0 >> 5;
                if unit == 7 {
                    return None;
                }
                let len = Self::UNITS.iter().find(|(u, _)| *u == unit).map_or($other, |(_, len)| *len);
                Some(Duration::from_secs(u64::from(self.0 & 0x1f) * len))
            }

            /// From the octet of unit and value.
            pub const fn from_octet(octet: u8) -> Self {
                Self(octet)
            }

            /// The octet of unit and value.
            pub const fn octet(self) -> u8 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.duration() {
                    Some(d) => write!(f, "{}s", d.as_secs()),
                    None => f.write_str("deactivated"),
                }
            }
        }

        impl Ie for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                r.u8("GPRS timer").map(Self)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.push(self.0);
            }
        }
    };
}

gprs_timer! {
    /// GPRS timer, and GPRS timer 2: 2 seconds to 186 minutes. Undefined units mean minutes.
    GprsTimer, other 60 { 0 2, 1 60, 2 360, }
}

gprs_timer! {
    /// GPRS timer 3: 2 seconds to 9920 hours.
    GprsTimer3, other 3600 { 3 2, 4 30, 5 60, 0 600, 1 3600, 2 36000, 6 1152000, }
}
