//! Login throttling: after some failures, a source and a name have to wait, each time twice as long.
//!
//! A source is the prefix that one customer of a provider has, with any number of addresses in it. A name
//! waits later than a source does: one source must not be able to lock the operators out by failing in their
//! names.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use whimbrel_ids::Instant;

/// A name may fail this many times as often as a source before it has to wait: a password is then guessed from several sources at once.
const NAME_FACTOR: u32 = 4;
/// The longest wait: a forgotten password must not lock an operator out for hours.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Without a failure for this long, an entry is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Maximum number of sources. The oldest is dropped first: an attacker needs as many networks to fill the table.
const SOURCES_MAX: usize = 4096;
/// Names that no user has share this many entries: they wait as users do, and cannot fill the table of users.
const UNKNOWN_NAMES: u16 = 1024;
/// Bits of the prefixes that are one source: a customer's network has at least these.
const SOURCE_BITS: (u32, u32) = (24, 48);

/// A prefix of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourcePrefix(IpAddr);

impl fmt::Display for SourcePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.0.is_ipv4() { SOURCE_BITS.0 } else { SOURCE_BITS.1 };
        write!(f, "{}/{bits}", self.0)
    }
}

/// The source that an address belongs to.
pub(crate) fn source_of(address: IpAddr) -> SourcePrefix {
    SourcePrefix(match address.to_canonical() {
        IpAddr::V4(a) => Ipv4Addr::from(u32::from(a) & u32::MAX << (32 - SOURCE_BITS.0)).into(),
        IpAddr::V6(a) => Ipv6Addr::from(u128::from(a) & u128::MAX << (128 - SOURCE_BITS.1)).into(),
    })
}

/// The name of a login.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LoginName {
    User(String),
    /// One that no user has, as a number of few.
    Unknown(u16),
}

impl LoginName {
    /// The name that was typed.
    pub(super) fn of(typed: &str, is_user: bool) -> Self {
        let [a, b, ..] = super::digest_of(typed);
        if is_user {
            Self::User(typed.into())
        } else {
            Self::Unknown(u16::from_be_bytes([a, b]) % UNKNOWN_NAMES)
        }
    }
}

struct Failures {
    in_a_row: u32,
    last: Instant,
    /// When the one before the last was, for a login that was counted as a failure and was none.
    before: Instant,
    /// The only name that failed; `None`: several did.
    name: Option<LoginName>,
}

/// Failed logins, by name and by source.
pub(super) struct Throttle {
    /// Failures of a source that cost nothing: people mistype.
    free: u32,
    names: BTreeMap<LoginName, Failures>,
    sources: BTreeMap<SourcePrefix, Failures>,
}

impl Throttle {
    pub(super) fn new(free: u8) -> Self {
        Self { free: free.into(), names: BTreeMap::new(), sources: BTreeMap::new() }
    }

    /// Until when a login has to wait, if it has to.
    pub(super) fn wait(&self, now: Instant, name: &LoginName, source: SourcePrefix) -> Option<Instant> {
        let until = |failures: &Failures, free: u32| {
            let doublings = failures.in_a_row.checked_sub(free)?;
            let wait = Duration::from_secs(1) * 2u32.saturating_pow(doublings.min(16));
            Some(failures.last + wait.min(WAIT_MAX))
        };
        let of_name = self.names.get(name).and_then(|failures| until(failures, self.free * NAME_FACTOR));
        let of_source = self.sources.get(&source).and_then(|failures| until(failures, self.free));
        of_name.max(of_source).filter(|until| *until > now)
    }

    pub(super) fn failed(&mut self, now: Instant, name: &LoginName, source: SourcePrefix) {
        self.names.retain(|_, f| now.since(f.last) < FORGOTTEN_AFTER);
        self.sources.retain(|_, f| now.since(f.last) < FORGOTTEN_AFTER);
        if self.sources.len() >= SOURCES_MAX
            && !self.sources.contains_key(&source)
            && let Some(oldest) = self.sources.iter().min_by_key(|(_, f)| f.last).map(|(source, _)| *source)
        {
            self.sources.remove(&oldest);
        }
        let first = || Failures { in_a_row: 0, last: now, before: now, name: Some(name.clone()) };
        for failures in [
            self.names.entry(name.clone()).or_insert_with(first),
            self.sources.entry(source).or_insert_with(first),
        ] {
            (failures.in_a_row, failures.before, failures.last) = (failures.in_a_row + 1, failures.last, now);
            failures.name = failures.name.take().filter(|failed| failed == name);
        }
    }

    /// A login of a name succeeded. It was counted as a failure before, which is taken back from its source. All of the source's count is
    /// reset only if no other name failed there: otherwise the holder of one password could guess another one without limit.
    pub(super) fn succeeded(&mut self, name: &LoginName, source: SourcePrefix) {
        self.names.remove(name);
        if self.sources.get(&source).is_some_and(|failures| failures.name.as_ref() == Some(name)) {
            self.sources.remove(&source);
        } else {
            take_one_back(&mut self.sources, &source);
        }
    }

    /// A login that was counted as a failure did not fail, and is not complete either: its password is right, and the code is missing.
    pub(super) fn not_failed(&mut self, name: &LoginName, source: SourcePrefix) {
        take_one_back(&mut self.names, name);
        take_one_back(&mut self.sources, &source);
    }
}

/// Takes the last failure back: a caller that waits because of those before it waits no longer for it. An entry without failures is removed.
fn take_one_back<K: Ord>(entries: &mut BTreeMap<K, Failures>, key: &K) {
    if let Some(failures) = entries.get_mut(key) {
        failures.in_a_row = failures.in_a_row.saturating_sub(1);
        failures.last = failures.before;
        if failures.in_a_row == 0 {
            entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant(s * 1_000_000)
    }

    fn source(text: &str) -> SourcePrefix {
        source_of(text.parse().unwrap())
    }

    fn user(name: &str) -> LoginName {
        LoginName::of(name, true)
    }

    #[test]
    fn waits_double_up_to_a_bound_and_end_with_a_success() {
        let mut throttle = Throttle::new(5);
        let (anna, here) = (user("anna"), source("192.0.2.1"));
        for i in 0..4 {
            throttle.failed(at(i), &anna, here);
            assert_eq!(throttle.wait(at(i), &anna, here), None, "{i}");
        }
        throttle.failed(at(10), &anna, here);
        assert_eq!(throttle.wait(at(10), &anna, here), Some(at(11)));
        throttle.failed(at(11), &anna, here);
        assert_eq!(throttle.wait(at(11), &anna, here), Some(at(13)));
        assert_eq!(
            throttle.wait(at(11), &user("olaf"), here),
            Some(at(13)),
            "the source waits with any name"
        );
        for _ in 0..40 {
            throttle.failed(at(20), &anna, here);
        }
        assert_eq!(throttle.wait(at(20), &anna, here), Some(at(320)));
        throttle.succeeded(&anna, here);
        assert_eq!(throttle.wait(at(20), &anna, here), None);
    }

    #[test] // TS 33.117 §4.2.3.4.5: brute force
    fn a_source_is_a_prefix_and_other_sources_do_not_wait() {
        let mut throttle = Throttle::new(5);
        for i in 0..5 {
            throttle.failed(at(0), &user("anna"), source(&format!("2001:db8:1:{i}::{i}")));
        }
        assert!(throttle.wait(at(0), &user("olaf"), source("2001:db8:1:ffff::1")).is_some());
        assert!(throttle.wait(at(0), &user("anna"), source("2001:db8:2::1")).is_none(), "anna is elsewhere");
        assert_eq!(source("192.0.2.1").to_string(), "192.0.2.0/24");
        assert_eq!(source("::ffff:192.0.2.9"), source("192.0.2.1"));
    }

    #[test] // a login that succeeds does not make others of the same network wait again
    fn a_login_that_succeeds_does_not_begin_the_wait_of_its_source_again() {
        for complete in [true, false] {
            let mut throttle = Throttle::new(5);
            let (anna, olaf, here) = (user("anna"), user("olaf"), source("192.0.2.1"));
            for i in 0..8 {
                throttle.failed(at(i), if i % 2 == 0 { &anna } else { &olaf }, here);
            }
            assert_eq!(throttle.wait(at(14), &olaf, here), Some(at(15)), "8 s since the last failure");
            throttle.failed(at(15), &anna, here);
            if complete {
                throttle.succeeded(&anna, here)
            } else {
                throttle.not_failed(&anna, here)
            }
            assert_eq!(throttle.wait(at(15), &olaf, here), None, "{complete}");
            throttle.failed(at(16), &olaf, here);
            assert_eq!(throttle.wait(at(16), &olaf, here), Some(at(32)), "the failures are not forgotten");
        }
    }

    #[test]
    fn a_name_that_is_guessed_from_many_sources_waits_everywhere() {
        let mut throttle = Throttle::new(5);
        for i in 0..20 {
            throttle.failed(at(0), &user("anna"), source(&format!("10.0.{i}.1")));
        }
        assert!(throttle.wait(at(0), &user("anna"), source("198.51.100.1")).is_some());
        assert!(throttle.wait(at(0), &user("olaf"), source("198.51.100.1")).is_none());
    }

    #[test]
    fn a_password_of_ones_own_does_not_buy_guesses_of_another() {
        let mut throttle = Throttle::new(5);
        let here = source("192.0.2.1");
        for _ in 0..5 {
            throttle.failed(at(0), &user("anna"), here);
            // As the handler does: counted before the password is compared.
            throttle.failed(at(0), &user("mallory"), here);
            throttle.succeeded(&user("mallory"), here);
        }
        assert!(throttle.wait(at(0), &user("anna"), here).is_some());
    }

    #[test]
    fn correct_logins_do_not_make_their_source_wait() {
        let mut throttle = Throttle::new(5);
        let here = source("192.0.2.1");
        throttle.failed(at(0), &user("anna"), here);
        for i in 1..=50 {
            assert_eq!(throttle.wait(at(i), &user("olaf"), here), None, "{i}");
            throttle.failed(at(i), &user("olaf"), here);
            throttle.succeeded(&user("olaf"), here);
        }
        assert_eq!(throttle.wait(at(50), &user("anna"), here), None);
        // The failure before them still counts.
        assert_eq!(throttle.sources[&here].in_a_row, 1);
    }

    #[test]
    fn a_right_password_without_its_code_is_not_a_failure() {
        let mut throttle = Throttle::new(5);
        let here = source("192.0.2.1");
        for i in 0..50 {
            throttle.failed(at(i), &user("anna"), here);
            throttle.not_failed(&user("anna"), here);
            assert_eq!(throttle.wait(at(i), &user("anna"), here), None, "{i}");
        }
        assert!(throttle.names.is_empty() && throttle.sources.is_empty());
    }

    #[test]
    fn entries_are_bounded() {
        let mut throttle = Throttle::new(5);
        for i in 0..2 * SOURCES_MAX as u32 {
            let here = source_of(Ipv4Addr::from(i << 8).into());
            throttle.failed(Instant(i.into()), &LoginName::of(&i.to_string(), false), here);
        }
        assert_eq!(throttle.sources.len(), SOURCES_MAX);
        assert!(throttle.names.len() <= usize::from(UNKNOWN_NAMES));
    }
}
