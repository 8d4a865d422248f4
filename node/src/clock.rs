//! The program's clock: monotonic, anchored to the wall once, as [`whimbrel_ids::Instant`] promises.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_ids::Instant;

static ANCHOR: OnceLock<(std::time::Instant, u64)> = OnceLock::new();

/// Microseconds since the Unix epoch; never steps back while the program runs.
pub fn now() -> Instant {
    let (start, epoch_us) = ANCHOR.get_or_init(|| {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (std::time::Instant::now(), wall.as_micros() as u64)
    });
    Instant(epoch_us + start.elapsed().as_micros() as u64)
}

/// A point in time as RFC 3339 writes it, in UTC with milliseconds.
pub fn rfc3339(at: Instant) -> String {
    let (secs, millis) = (at.as_secs(), at.0 / 1000 % 1000);
    let (year, month, day) = civil(secs / 86_400);
    let (h, m, s) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{millis:03}Z")
}

/// The Gregorian date of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that a leap day ends its year; 146,097 days are 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = (if month < 10 { month + 3 } else { month - 9 }, day - (153 * month + 2) / 5 + 1);
    (era * 400 + year + u64::from(date.0 <= 2), date.0, date.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_gregorian_calendar() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_210_096, "2024-02-29T12:34:56.000Z"),
            (4_102_444_799, "2099-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(rfc3339(Instant(secs * 1_000_000)), text);
        }
        assert!(now() <= now());
    }
}
