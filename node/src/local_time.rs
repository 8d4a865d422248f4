//! Times as a person reads them: the host's local time, and how long ago.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use whimbrel_ids::Instant;

/// `2026-11-25 23:30:05 CET, 12 s ago`.
pub fn when(at: Instant, now: Instant) -> String {
    in_zone(at, now, TimeZone::system())
}

fn in_zone(at: Instant, now: Instant, zone: TimeZone) -> String {
    let microseconds = i64::try_from(at.0).unwrap_or(i64::MAX);
    let local = Timestamp::from_microsecond(microseconds)
        .map(|t| t.to_zoned_datetime(zone).strftime("%Y-%m-%d %H:%M:%S %Z").to_string())
        .unwrap_or_default();
    format!("{local}, {} ago", long(now.since(at)))
}

/// A length of time in its largest unit, and in the next one where that says more.
fn long(length: Duration) -> String {
    let (s, min, h) = (length.as_secs(), length.as_secs() / 60, length.as_secs() / 3600);
    match (h, min) {
        (0, 0) => format!("{s} s"),
        (0, 1..=9) => format!("{min} min {} s", s % 60),
        (0, _) => format!("{min} min"),
        (1..=47, _) => format!("{h} h {} min", min % 60),
        _ => format!("{} days", h / 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_local_and_has_its_age() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = Instant(1_751_371_200 * 1_000_000);
        let text = |s| in_zone(at, at + Duration::from_secs(s), zone.clone());
        assert_eq!(text(12), "2025-07-01 14:00:00 CEST, 12 s ago");
        assert_eq!(text(125), "2025-07-01 14:00:00 CEST, 2 min 5 s ago");
        assert_eq!(text(3_599), "2025-07-01 14:00:00 CEST, 59 min ago");
        assert_eq!(text(7_265), "2025-07-01 14:00:00 CEST, 2 h 1 min ago");
        assert_eq!(text(400_000), "2025-07-01 14:00:00 CEST, 4 days ago");
        let winter = Instant(1_764_110_000 * 1_000_000);
        assert_eq!(in_zone(winter, winter, zone), "2025-11-25 23:33:20 CET, 0 s ago");
    }
}
