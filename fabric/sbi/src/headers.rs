//! Headers of TS 29.500 §5.2.3 as typed values.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use whimbrel_sbi_types::common::{DateTime, UtcTime};

/// Priority of a message (TS 29.500 §5.2.3.2.2).
pub const MESSAGE_PRIORITY: HeaderName = HeaderName::from_static("3gpp-sbi-message-priority");
/// Purpose of a notification (TS 29.500 §5.2.3.2.3).
pub const CALLBACK: HeaderName = HeaderName::from_static("3gpp-sbi-callback");
/// Producer behind an SCP or SEPP (TS 29.500 §5.2.3.2.4).
pub const TARGET_API_ROOT: HeaderName = HeaderName::from_static("3gpp-sbi-target-apiroot");
/// Time at which a request was sent (TS 29.500 §5.2.3.3.2).
pub const SENDER_TIMESTAMP: HeaderName = HeaderName::from_static("3gpp-sbi-sender-timestamp");
/// Time that the sender waits for the response (TS 29.500 §5.2.3.3.3).
pub const MAX_RSP_TIME: HeaderName = HeaderName::from_static("3gpp-sbi-max-rsp-time");
/// Properties of a request, with its idempotency key (TS 29.500 §5.2.3.3.12).
pub const REQUEST_INFO: HeaderName = HeaderName::from_static("3gpp-sbi-request-info");

/// Longest wait that the header can ask for: five digits of milliseconds.
const MAX_RSP_TIME_MS: u128 = 99_999;
/// Longest idempotency key that is kept: a UUID has 36 octets.
const IDEMPOTENCY_KEY_OCTETS_MAX: usize = 128;

/// Priority of a message, 0 (highest) to 31. TS 29.500 §6.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessagePriority(u8);

impl MessagePriority {
    /// Priority of a message without the header: TS 29.500 §6.8.4.1 lets an operator choose, and names 24.
    pub const DEFAULT: Self = Self(24);

    /// `None` above 31.
    pub const fn new(priority: u8) -> Option<Self> {
        if priority <= 31 { Some(Self(priority)) } else { None }
    }

    /// The number in the header.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// The priority of a message; the default where the header is missing or wrong.
    pub fn of(headers: &HeaderMap) -> Self {
        let read = || text(headers, &MESSAGE_PRIORITY)?.parse().ok().and_then(Self::new);
        read().unwrap_or(Self::DEFAULT)
    }

    /// The header's value.
    pub fn header(self) -> HeaderValue {
        HeaderValue::from(u16::from(self.0))
    }
}

/// Time until which the sender of a request waits. TS 29.500 §6.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseDeadline {
    /// Time at which the request was sent.
    pub sent: DateTime,
    /// Time that the sender waits for the response.
    pub within: Duration,
}

impl ResponseDeadline {
    /// Adds both headers. A wait beyond the header's five digits is written as the longest.
    pub fn write(self, headers: &mut HeaderMap) {
        let ms = self.within.as_millis().min(MAX_RSP_TIME_MS);
        if let (Ok(sent), Ok(within)) =
            (HeaderValue::try_from(http_date(self.sent, true)), HeaderValue::try_from(ms.to_string()))
        {
            headers.insert(SENDER_TIMESTAMP, sent);
            headers.insert(MAX_RSP_TIME, within);
        }
    }

    /// Reads both headers; `None` where one is missing or wrong.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let sent = parse_http_date(text(headers, &SENDER_TIMESTAMP)?)?;
        let ms = text(headers, &MAX_RSP_TIME)?;
        if !(1..=5).contains(&ms.len()) || !ms.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        Some(Self { sent, within: Duration::from_millis(ms.parse().ok()?) })
    }

    /// True if the sender has stopped waiting.
    pub fn is_over(self, now: DateTime) -> bool {
        let within = i64::try_from(self.within.as_millis()).unwrap_or(i64::MAX);
        now.unix_ms() > self.sent.unix_ms().saturating_add(within)
    }
}

/// Properties of a request. TS 29.500 §5.2.3.3.12; use for repeated requests: §5.2.8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The request may have been sent before.
    pub retrans: bool,
    /// The request was redirected.
    pub redirect: bool,
    /// Identity of the request, the same in each repetition.
    pub idempotency_key: Option<String>,
}

impl RequestInfo {
    /// The header's value; `None` if there is nothing to send, or the key is no token (RFC 9110 §5.6.2).
    pub fn header(&self) -> Option<HeaderValue> {
        let mut parts = Vec::new();
        if self.retrans {
            parts.push("retrans=true".to_owned());
        }
        if self.redirect {
            parts.push("redirect=true".to_owned());
        }
        if let Some(key) = &self.idempotency_key {
            if !is_token(key) {
                return None;
            }
            parts.push(format!("idempotency-key={key}"));
        }
        if parts.is_empty() { None } else { HeaderValue::try_from(parts.join("; ")).ok() }
    }

    /// Reads the header. Parameters that are not known or not well formed are skipped.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut info = Self::default();
        for part in text(headers, &REQUEST_INFO).unwrap_or_default().split(';') {
            let Some((name, value)) = part.split_once('=') else { continue };
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "retrans" => info.retrans = value.eq_ignore_ascii_case("true"),
                "redirect" => info.redirect = value.eq_ignore_ascii_case("true"),
                "idempotency-key" if is_token(value) && value.len() <= IDEMPOTENCY_KEY_OCTETS_MAX => {
                    info.idempotency_key = Some(value.to_owned());
                }
                _ => {}
            }
        }
        info
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c))
}

/// Value of `3gpp-Sbi-Callback`: purpose, such as `Nudm_SDM_Notification`, and the major version of the API. `None` for other signs.
pub fn callback(purpose: &str, api_version: u8) -> Option<HeaderValue> {
    let is_purpose = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
    if purpose.is_empty() || !purpose.bytes().all(is_purpose) {
        return None;
    }
    HeaderValue::try_from(format!("{purpose}; apiversion={api_version}")).ok()
}

/// Longest `Retry-After` that is kept: a peer must not stop requests to it for ever.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// The wait of `Retry-After` (RFC 9110 §10.2.3), at most [`RETRY_AFTER_MAX`].
pub fn retry_after(headers: &HeaderMap, now: DateTime) -> Option<Duration> {
    let value = text(headers, &RETRY_AFTER)?;
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = parse_http_date(value)?.unix_ms();
            Duration::from_millis(u64::try_from(until - now.unix_ms()).unwrap_or(0))
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// The time of the host's clock.
pub fn now() -> DateTime {
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
    DateTime::from_unix_ms(i64::try_from(ms).unwrap_or(i64::MAX))
}

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date of RFC 9110 §5.6.7, with milliseconds where TS 29.500 §5.2.3.3.2 has them.
fn http_date(time: DateTime, with_ms: bool) -> String {
    let t = time.utc();
    let name = |names: &'static [&'static str], at: i64| {
        usize::try_from(at).ok().and_then(|at| names.get(at)).copied().unwrap_or_default()
    };
    let (weekday, month) = (name(&WEEKDAYS, t.weekday), name(&MONTHS, t.month - 1));
    let ms = if with_ms { format!(".{:03}", t.ms) } else { String::new() };
    let (year, day, hour, minute, second) = (t.year, t.day, t.hour, t.minute, t.second);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02}{ms} GMT")
}

fn parse_http_date(text: &str) -> Option<DateTime> {
    let (weekday, rest) = text.split_once(", ")?;
    WEEKDAYS.contains(&weekday).then_some(())?;
    let mut parts = rest.strip_suffix(" GMT")?.split(' ');
    let number = |text: &str, digits: usize| -> Option<i64> {
        if text.len() == digits && text.bytes().all(|c| c.is_ascii_digit()) {
            text.parse().ok()
        } else {
            None
        }
    };
    let day = number(parts.next()?, 2)?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    let year = number(parts.next()?, 4)?;
    let time = parts.next()?;
    if parts.next().is_some() {
        return None;
    }
    let (clock, ms) = match time.split_once('.') {
        Some((clock, ms)) => (clock, number(ms, 3)?),
        None => (time, 0),
    };
    let mut clock = clock.split(':');
    let (hour, minute, second) =
        (number(clock.next()?, 2)?, number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    if clock.next().is_some() {
        return None;
    }
    DateTime::from_utc(UtcTime { year, month, day, weekday: 0, hour, minute, second, ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test] // TS 29.500 §5.2.3.2.2: 0 to 31; a message without the header has the default
    fn priorities_are_read_and_wrong_ones_are_the_default() {
        let of = |value: &str| MessagePriority::of(&with(MESSAGE_PRIORITY, value)).value();
        assert_eq!([of("0"), of(" 31 "), of("32"), of("-1"), of("x")], [0, 31, 24, 24, 24]);
        assert_eq!(MessagePriority::of(&HeaderMap::new()), MessagePriority::DEFAULT);
        assert_eq!(MessagePriority(7).header(), "7");
    }

    #[test] // TS 29.500 §5.2.3.3.2, §5.2.3.3.3; §6.11: a request whose sender waits no longer is late
    fn deadlines_go_there_and_back_and_run_out() {
        let sent: DateTime = "2019-08-04T08:49:37.845Z".parse().unwrap();
        let deadline = ResponseDeadline { sent, within: Duration::from_millis(1500) };
        let mut headers = HeaderMap::new();
        deadline.write(&mut headers);
        assert_eq!(headers[SENDER_TIMESTAMP], "Sun, 04 Aug 2019 08:49:37.845 GMT");
        assert_eq!(headers[MAX_RSP_TIME], "1500");
        assert_eq!(ResponseDeadline::read(&headers), Some(deadline));
        let at = |ms: i64| DateTime::from_unix_ms(sent.unix_ms() + ms);
        assert!(!deadline.is_over(at(1500)) && deadline.is_over(at(1501)));
        for (name, wrong) in [
            (MAX_RSP_TIME, "100000"),
            (MAX_RSP_TIME, "+5"),
            (MAX_RSP_TIME, ""),
            (SENDER_TIMESTAMP, "Sun, 31 Feb 2019 08:49:37.845 GMT"),
            (SENDER_TIMESTAMP, "Sun, 04 Aug 2019 08:49:37.8 GMT"),
            (SENDER_TIMESTAMP, "Sun, 04 Aug 2019 08:49:37.845"),
            (SENDER_TIMESTAMP, "Sun, 04 Aug 2019"),
        ] {
            let mut headers = headers.clone();
            headers.insert(name, HeaderValue::from_static(wrong));
            assert_eq!(ResponseDeadline::read(&headers), None, "{wrong}");
        }
    }

    #[test] // TS 29.500 §5.2.3.3.12: parameters are separated by semicolons, and unknown ones are skipped
    fn request_info_goes_there_and_back() {
        let info = RequestInfo { retrans: true, redirect: false, idempotency_key: Some("a-1".into()) };
        let header = info.header().unwrap();
        assert_eq!(header, "retrans=true; idempotency-key=a-1");
        assert_eq!(RequestInfo::of(&HeaderMap::from_iter([(REQUEST_INFO, header)])), info);
        let read = RequestInfo::of(&with(REQUEST_INFO, "later=1;idempotency-key= k ;;x; redirect=TRUE"));
        assert_eq!(read, RequestInfo { redirect: true, idempotency_key: Some("k".into()), retrans: false });
        let long = format!("idempotency-key={}", "k".repeat(IDEMPOTENCY_KEY_OCTETS_MAX + 1));
        assert_eq!(RequestInfo::of(&with(REQUEST_INFO, &long)), RequestInfo::default());
        assert_eq!(RequestInfo { idempotency_key: Some("a b".into()), ..info }.header(), None);
        assert_eq!(RequestInfo::default().header(), None);
    }

    #[test] // RFC 9110 §10.2.3: seconds or a date
    fn retry_after_is_read_in_both_forms_and_bounded() {
        let now: DateTime = "2019-08-04T08:49:37Z".parse().unwrap();
        let of = |value: &str| retry_after(&with(RETRY_AFTER, value), now);
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("Sun, 04 Aug 2019 08:49:39 GMT"), Some(Duration::from_secs(2)));
        assert_eq!(of("Sun, 04 Aug 2019 08:49:36 GMT"), Some(Duration::ZERO));
        assert_eq!(of("99999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!([of("soon"), of("-1")], [None, None]);
    }

    #[test] // TS 29.500 §5.2.3.2.3
    fn callbacks_name_the_notification_and_its_version() {
        assert_eq!(callback("Nudm_SDM_Notification", 2).unwrap(), "Nudm_SDM_Notification; apiversion=2");
        assert_eq!(callback("a b", 1), None);
    }
}
