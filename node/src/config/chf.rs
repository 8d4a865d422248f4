//! The charging function of this core (TS 32.290): its file, and what it grants.

use std::path::PathBuf;
use std::time::Duration;

use whimbrel_charging::{AccountKind, CREDIT_MAX, ChargingPolicy};

use super::Config;
use super::sbi::{ChfSource, OfferedService};
use super::section::{Pass, Section};
use super::value::words;
use crate::api_files::charging_file;

/// 100 MiB: most of a second at 1 Gbit/s, so that a quota outlives the request for the next one.
const GRANT_OCTETS: u64 = 100 << 20;
/// A quota of more would keep a subscriber's whole credit in one session: 1 TiB is a day at 100 Mbit/s.
const GRANT_OCTETS_MAX: u64 = 1 << 40;
/// Time for the next quota at full rate, without asking much more often.
const THRESHOLD_PERCENT: u8 = 20;
/// An hour: usage is at most so old in the accounts.
const VALIDITY: Duration = Duration::from_secs(3600);
/// A week: SMFs read it as a number of 32 bits, and half of them as a signed one.
const VALIDITY_MAX: Duration = Duration::from_secs(7 * 86_400);
/// A quarter of a year, after which a bill has been made.
const KEEP_DAYS: u32 = 90;
const KEEP_DAYS_MAX: u32 = 3660;
/// As many open sessions as an AMF may have UEs (`limits.ues`).
const SESSIONS_MAX: u64 = 1 << 20;
/// As many accounts as that without an operator.
const ACCOUNTS_MAX: u64 = 1 << 20;

/// The account that a subscriber without one gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultAccount {
    /// The subscriber is unknown.
    #[default]
    None,
    Prepaid,
    Postpaid,
}

words! { DefaultAccount {
    DefaultAccount::None = "none",
    DefaultAccount::Prepaid = "prepaid",
    DefaultAccount::Postpaid = "postpaid",
} }

/// The charging function of this core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chf {
    /// The file of the accounts, where the configuration names one.
    pub path: Option<PathBuf>,
    pub policy: ChargingPolicy,
    /// Where requests of this core's SMF go: `sbi.chf`, which is known without an address, too.
    pub source: ChfSource,
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Chf {
    let doc = "The charging function of this core (docs/sbi.md), used with `sbi.chf: embedded` and `sbi.offer: [chf]`.";
    root.section("chf", doc, |s| {
        let path = s.optional(
            "path",
            "/var/lib/whimbrel/charging.db",
            "File of accounts, sessions and charging records, created if missing, readable by its owner only. Without it: `charging.db` beside the \
             subscriber store.",
        );
        let kind = s.value(
            "default_account",
            DefaultAccount::None,
            "The account that a subscriber without one gets: `none` (the subscriber is refused), `prepaid` with `default_credit`, or `postpaid`.",
        );
        let credit = s.value("default_credit", 0_u64, "Octets of such a prepaid account at its beginning.");
        s.bound("default_credit", credit <= CREDIT_MAX, "an account does not hold that", format!("0 to {CREDIT_MAX}"));
        let grant_octets = s.value(
            "grant_octets",
            GRANT_OCTETS,
            "Octets of a quota at most, and of one for which a consumer names no amount.",
        );
        let is_within = (1..=GRANT_OCTETS_MAX).contains(&grant_octets);
        s.bound("grant_octets", is_within, "it is out of bounds", format!("1 to {GRANT_OCTETS_MAX}"));
        let threshold_percent = s.value(
            "threshold_percent",
            THRESHOLD_PERCENT,
            "Part of a quota that is left when the next one is to be asked for, in percent. 0: it is asked for when the quota is used up.",
        );
        s.bound("threshold_percent", threshold_percent < 100, "it is out of bounds", "0 to 99");
        let validity = s.value(
            "validity",
            VALIDITY,
            "How long a quota is valid. A session without a report for twice as long is closed, and its quota comes free.",
        );
        let is_within = (Duration::from_secs(10)..=VALIDITY_MAX).contains(&validity);
        s.bound("validity", is_within, "it is out of bounds", "10s to 168h");
        let keep_days = s.value("keep_days", KEEP_DAYS, "Days for which charging records are kept.");
        let is_within = (1..=KEEP_DAYS_MAX).contains(&keep_days);
        s.bound("keep_days", is_within, format!("{keep_days} is out of bounds"), format!("1 to {KEEP_DAYS_MAX}"));
        let kind = match kind {
            DefaultAccount::None => None,
            DefaultAccount::Prepaid => Some(AccountKind::Prepaid),
            DefaultAccount::Postpaid => Some(AccountKind::Postpaid),
        };
        if credit > 0 && kind != Some(AccountKind::Prepaid) {
            s.refuse("default_credit", "no prepaid account is made that could have it", "write `default_account: prepaid`");
        }
        let policy = ChargingPolicy {
            grant_octets,
            threshold_percent,
            validity_s: u32::try_from(validity.as_secs()).unwrap_or(u32::MAX),
            default_account: kind.map(|kind| (kind, credit)),
            sessions_max: SESSIONS_MAX,
            accounts_max: ACCOUNTS_MAX,
            records_kept: Duration::from_secs(u64::from(keep_days) * 86_400),
        };
        Chf { path, policy, source: ChfSource::Off }
    })
}

/// Reports contradictions with other keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    if config.uses_own_chf() && config.cluster.pair.is_some() {
        pass.refuse(
            "sbi",
            "the accounts of this core's CHF are in a file of this host, and a CTA that takes over on another host would not have them",
            "use a CHF of its own (`sbi.chf` with its API root), or a core without a CTA replica",
        );
    }
}

impl Config {
    /// The charging function of this core is used, by its own SMF or by others.
    pub fn uses_own_chf(&self) -> bool {
        self.has_embedded_chf()
            || self.sbi.as_ref().is_some_and(|sbi| sbi.offer.contains(&OfferedService::Chf))
    }

    /// The SMF of this core uses the charging function of this core.
    pub fn has_embedded_chf(&self) -> bool {
        self.chf.source == ChfSource::Embedded
    }

    /// The file of the accounts.
    pub fn charging_file(&self) -> PathBuf {
        self.chf.path.clone().unwrap_or_else(|| charging_file(&self.store.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        crate::config::parse(text, std::path::Path::new("w.yaml")).map_err(|e| e.to_string())
    }

    const CHARGED: &str = "data_networks:\n  - dnn: internet\n    charging:\n      rating_group: 1\n";

    #[test]
    fn the_embedded_chf_needs_no_address() {
        let config = parse(&format!("{CHARGED}sbi:\n  chf: embedded\n")).unwrap();
        assert!(config.uses_own_chf() && config.has_embedded_chf() && config.sbi.is_none());
        assert_eq!(config.charging_file(), PathBuf::from("charging.db"));
        let config = parse("store:\n  path: /var/lib/w/subscribers.db\n").unwrap();
        assert!(!config.uses_own_chf());
        assert_eq!(config.charging_file(), PathBuf::from("/var/lib/w/charging.db"));
    }

    #[test]
    fn an_offered_chf_needs_an_address_and_no_charging_of_this_core() {
        let error = parse("sbi:\n  offer: [chf]\n").unwrap_err();
        assert!(error.contains("other functions could not notify this core"), "{error}");
        let config = parse("sbi:\n  address: 192.0.2.1:7777\n  offer: [chf]\n").unwrap();
        assert!(config.uses_own_chf() && !config.has_embedded_chf());
    }

    #[test]
    fn charging_without_a_chf_is_refused_without_an_address_too() {
        let error = parse(&format!("{CHARGED}sbi:\n  chf: off\n")).unwrap_err();
        assert!(error.contains("no CHF is named"), "{error}");
    }

    #[test]
    fn what_it_grants_is_bounded() {
        for (keys, sentence) in [
            ("grant_octets: 0", "write 1 to"),
            ("threshold_percent: 100", "write 0 to 99"),
            ("validity: 1s", "write 10s to 168h"),
            ("keep_days: 0", "write 1 to 3660"),
            ("default_credit: 5", "write `default_account: prepaid`"),
        ] {
            let error = parse(&format!("chf:\n  {keys}\n")).expect_err(keys);
            assert!(error.contains(sentence), "{keys}: {error}");
        }
        let config = parse("chf:\n  default_account: prepaid\n  default_credit: 5\n").unwrap();
        assert_eq!(config.chf.policy.default_account, Some((AccountKind::Prepaid, 5)));
    }
}
