//! The time zone of the network (`amf.time_zone`), whose local time UEs show.

use jiff::Timestamp;
use jiff::tz::{self, Dst, TimeZone};
use whimbrel_control::config::LocalTime;
use whimbrel_ids::Instant;

use super::value::Value;

/// Characters of the longest name that is looked up: the longest one of the database has 32.
const NAME_MAX: usize = 64;

/// The time zone of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkTimeZone {
    /// That of the host, with its rules.
    Host,
    /// A name of the IANA time zone database, such as `Europe/Berlin`.
    Named(String),
    /// A fixed offset from UTC in quarters of an hour (TS 24.008 §10.5.3.8).
    Offset(i8),
}

impl NetworkTimeZone {
    /// Local time at an instant, daylight saving time included. Errors: why the host does not know the zone.
    pub fn local_time(&self, at: Instant) -> Result<LocalTime, jiff::Error> {
        let zone = match self {
            Self::Offset(quarters) => return Ok(LocalTime { quarters: *quarters, ..LocalTime::default() }),
            Self::Named(name) => TimeZone::get(name)?,
            Self::Host => TimeZone::try_system()?,
        };
        local_time_in(&zone, at)
    }

    /// Why UEs get UTC as local time, if the host does not know the zone: a sentence.
    pub fn obstacle(&self, at: Instant) -> Option<String> {
        let error = self.local_time(at).err()?;
        Some(format!(
            "the time zone of this host is not known, and UEs get UTC as local time: {error}; fix: set the host's time zone \
             (/etc/localtime), or write `amf.time_zone`"
        ))
    }
}

fn local_time_in(zone: &TimeZone, at: Instant) -> Result<LocalTime, jiff::Error> {
    let microseconds = i64::try_from(at.0).unwrap_or(i64::MAX);
    let at = Timestamp::from_microsecond(microseconds)?;
    // A transition counts from its own instant on.
    let behind = Timestamp::from_microsecond(microseconds.saturating_add(1)).unwrap_or(at);
    let info = zone.to_offset_info(at);
    let seconds = info.offset().seconds();
    let since = zone.preceding(behind).next().map_or(0, |t| t.timestamp().as_microsecond());
    let standard = || zone.preceding(behind).find(|t| t.dst() == Dst::No).map(|t| t.offset().seconds());
    let saved =
        if info.dst() == Dst::Yes { standard().map_or(3600, |standard| seconds - standard) } else { 0 };
    Ok(LocalTime {
        quarters: i8::try_from(seconds / 900).unwrap_or_default(),
        daylight_saving_hours: Some(((saved + 1800) / 3600).clamp(0, 2) as u8),
        since: Instant(u64::try_from(since).unwrap_or_default()),
    })
}

fn offset(text: &str) -> Option<i8> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i8, i8) = (hours.parse().ok()?, minutes.parse().ok()?);
    let fits = (0..=14).contains(&hours) && matches!(minutes, 0 | 15 | 30 | 45);
    fits.then_some(sign * (hours * 4 + minutes / 15))
}

/// True if no other file than one of the database can have this name.
fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+'))
    };
    text.len() <= NAME_MAX && text.split('/').all(is_part)
}

impl Value for NetworkTimeZone {
    fn read(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "host, a name such as Europe/Berlin, or an offset from UTC in quarters of an hour, quoted, such as \"+01:00\"";
        match text.trim() {
            "host" => Ok(Self::Host),
            text if is_name(text) => match TimeZone::get(text) {
                Ok(_) => Ok(Self::Named(text.to_owned())),
                Err(_) if tz::db().is_definitively_empty() => Err(format!(
                    "{EXPECTED}; this host has no time zones by name, for /usr/share/zoneinfo is empty or missing (package tzdata)"
                )),
                Err(_) => Err(EXPECTED.into()),
            },
            text => offset(text).map(Self::Offset).ok_or_else(|| EXPECTED.into()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Host => "host".to_owned(),
            Self::Named(name) => name.clone(),
            Self::Offset(offset) => {
                let quarters = offset.unsigned_abs();
                let sign = if *offset < 0 { '-' } else { '+' };
                format!("\"{sign}{:02}:{:02}\"", quarters / 4, quarters % 4 * 15)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Central European time, without the host's database.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000)
    }

    #[test]
    fn offsets_are_in_quarters_of_an_hour() {
        let read = NetworkTimeZone::read;
        assert_eq!(read("+05:45"), Ok(NetworkTimeZone::Offset(23)));
        assert_eq!(read("-03:30"), Ok(NetworkTimeZone::Offset(-14)));
        assert_eq!(NetworkTimeZone::Offset(-14).show(), "\"-03:30\"");
        assert_eq!(read("host"), Ok(NetworkTimeZone::Host));
        for bad in [
            "+05:20",
            "5",
            "",
            "Europe/Berlinn",
            "../../etc/passwd",
            "/etc/passwd",
            "Europe/../Europe/Berlin",
            "Europe/",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let fixed = NetworkTimeZone::Offset(23).local_time(at(1)).unwrap();
        assert_eq!((fixed.quarters, fixed.daylight_saving_hours), (23, None), "its rules are not known");
    }

    #[test]
    fn names_are_those_of_the_hosts_database() {
        // A host without one has its own sentence.
        match NetworkTimeZone::read("Europe/Berlin") {
            Ok(zone) => assert_eq!(zone.show(), "Europe/Berlin"),
            Err(expected) => assert!(expected.ends_with("(package tzdata)"), "{expected}"),
        }
    }

    #[test] // TS 24.008 §10.5.3.8, §10.5.3.12: of the summer and the winter of Central Europe
    fn local_time_follows_the_rules_of_the_zone() {
        let local = |seconds| local_time_in(&berlin(), at(seconds)).unwrap();
        // 2026-03-29 and 2026-10-25, 01:00 UTC.
        let (spring, autumn) = (1_774_746_000, 1_792_890_000);
        let summer = LocalTime { quarters: 8, daylight_saving_hours: Some(1), since: at(spring) };
        let winter = LocalTime { quarters: 4, daylight_saving_hours: Some(0), since: at(autumn) };
        assert_eq!(local(spring - 1).quarters, 4);
        assert_eq!([local(spring), local(autumn - 1)], [summer, summer]);
        assert_eq!([local(autumn), local(autumn + 1_000_000)], [winter, winter]);
        let tokyo = TimeZone::posix("JST-9").unwrap();
        let fixed = LocalTime { quarters: 36, daylight_saving_hours: Some(0), since: Instant::ZERO };
        assert_eq!(local_time_in(&tokyo, at(spring)).unwrap(), fixed);
        let troll = TimeZone::posix("<+00>0<+02>-2,M3.5.0/1,M10.5.0/3").unwrap();
        assert_eq!(local_time_in(&troll, at(autumn - 86_400)).unwrap().daylight_saving_hours, Some(2));
    }
}
