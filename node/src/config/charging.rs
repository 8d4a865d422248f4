//! Charging of a data network's sessions (TS 32.255): the rating group, and what is asked of the CHF.

use std::collections::BTreeMap;

use whimbrel_control::charging::RatingGroup;
use whimbrel_control::config::{ChargingPolicy, FailureHandling};

use super::Config;
use super::sbi::ChfSource;
use super::section::{Pass, Section};
use super::value::words;

/// 100 MiB: most of a second at 1 Gbit/s, so that a quota outlives the request for the next one.
const REQUESTED_OCTETS: u32 = 100 << 20;

/// CHFs that read volumes as signed numbers of 32 bits refuse more.
const REQUESTED_OCTETS_MAX: u32 = i32::MAX as u32;

/// Charging of one data network's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargingConfig {
    pub rating_group: u32,
    pub failure_handling: FailureHandling,
    pub requested_octets: u32,
}

words! { FailureHandling {
    FailureHandling::Terminate = "terminate",
    FailureHandling::Continue = "continue",
} }

/// Reads the section of a data network.
pub(super) fn read(s: &mut Section<'_, '_>) -> Option<ChargingConfig> {
    let doc = "Charging of its sessions by the CHF of `sbi.chf` (TS 32.255), if `rating_group` is given. See docs/sbi.md.";
    s.section("charging", doc, |s| {
        let rating_group =
            s.optional("rating_group", "1", "The rating group of all traffic, as the CHF has it (TS 32.299 §7.2.165a).");
        let failure_handling = s.value(
            "failure_handling",
            FailureHandling::Terminate,
            "While no CHF answers: `terminate` (no session begins, and one whose quota is used up is released), or `continue` (sessions \
             begin and go on without a quota).",
        );
        let requested_octets = s.value(
            "requested_octets",
            REQUESTED_OCTETS,
            "Octets of both directions that each request for a quota asks for. The CHF may grant another amount.",
        );
        let what = format!("a quota of {requested_octets} octets cannot be asked for");
        let is_within = (1..=REQUESTED_OCTETS_MAX).contains(&requested_octets);
        s.bound("requested_octets", is_within, what, format!("1 to {REQUESTED_OCTETS_MAX}"));
        // The printed defaults have no rating group and charge nothing.
        let is_default = (failure_handling, requested_octets) == (FailureHandling::default(), REQUESTED_OCTETS);
        if rating_group.is_none() && !is_default {
            s.refuse("rating_group", "without a rating group nothing is charged", "write `rating_group`, or delete `charging`");
        }
        Some(ChargingConfig { rating_group: rating_group?, failure_handling, requested_octets })
    })
}

/// Reports contradictions with other keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    // What `sbi` lacks for a CHF of others is reported there.
    let is_chf_named = config.chf.source != ChfSource::Off;
    for (i, network) in config.data_networks.iter().enumerate() {
        let (dnn, key) = (&network.dnn, format!("data_networks[{i}].charging"));
        if network.charging.is_some() && !is_chf_named {
            let what = format!("sessions of `{dnn}` are to be charged, and no CHF is named that could do it");
            pass.refuse(&key, what, "write `sbi.chf`: embedded, nrf, or the API root of a CHF");
        }
    }
}

impl ChargingConfig {
    pub(super) fn control(&self) -> ChargingPolicy {
        ChargingPolicy {
            rating_group: RatingGroup(self.rating_group),
            failure_handling: self.failure_handling,
        }
    }
}

impl Config {
    /// Octets that requests for a quota of a rating group ask for: the most that one of its data networks names.
    pub fn requested_octets(&self) -> BTreeMap<RatingGroup, u64> {
        let mut requested: BTreeMap<RatingGroup, u64> = BTreeMap::new();
        for charging in self.data_networks.iter().filter_map(|network| network.charging) {
            let octets = requested.entry(RatingGroup(charging.rating_group)).or_default();
            *octets = (*octets).max(charging.requested_octets.into());
        }
        requested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHF: &str = "sbi:\n  address: 192.0.2.1:7777\n  chf: http://192.0.2.9:8000\n";

    fn parse(text: &str) -> Result<Config, String> {
        crate::config::parse(text, std::path::Path::new("w.yaml")).map_err(|e| e.to_string())
    }

    #[test]
    fn charging_of_a_data_network_is_read() {
        let text = format!(
            "{CHF}data_networks:\n  - dnn: internet\n    charging:\n      rating_group: 7\n      failure_handling: continue\n  - dnn: ims\n"
        );
        let config = parse(&text).unwrap();
        let control = config.control();
        let of = |dnn: &str| control.smf.data_networks[&dnn.parse().unwrap()].charging;
        let policy = of("internet").unwrap();
        assert_eq!(
            (policy.rating_group, policy.failure_handling),
            (RatingGroup(7), FailureHandling::Continue)
        );
        assert_eq!(of("ims"), None);
        assert_eq!(config.requested_octets(), [(RatingGroup(7), 104_857_600)].into());
    }

    #[test]
    fn charging_without_a_chf_is_refused_with_its_line() {
        let network = "data_networks:\n  - dnn: internet\n    charging:\n      rating_group: 1\n";
        for text in [network.to_owned(), format!("{network}sbi:\n  address: 192.0.2.1:7777\n  chf: off\n")] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains("w.yaml:4:") && error.contains("no CHF is named"), "{error}");
            assert!(error.contains("write `sbi.chf`"), "{error}");
        }
        parse(&format!("{network}{CHF}")).unwrap();
    }

    #[test]
    fn charging_that_says_too_little_or_too_much_is_refused() {
        let with =
            |keys: &str| parse(&format!("{CHF}data_networks:\n  - dnn: internet\n    charging:\n{keys}"));
        for (keys, sentence) in [
            ("      failure_handling: continue\n", "without a rating group nothing is charged"),
            ("      rating_group: 1\n      failure_handling: retry\n", "`retry` is not understood"),
            ("      rating_group: 1\n      requested_octets: 0\n", "a quota of 0 octets cannot be asked for"),
            ("      rating_group: 1\n      requested_octets: 2147483648\n", "write 1 to 2147483647"),
        ] {
            let error = with(keys).expect_err(keys);
            assert!(error.contains(sentence), "{keys}{error}");
        }
    }

    #[test]
    fn a_chf_that_the_nrf_names_needs_an_nrf() {
        let error = parse("sbi:\n  address: 192.0.2.1:7777\n  chf: nrf\n").unwrap_err();
        assert!(error.contains("no NRF is named that could say where the CHF is"), "{error}");
        let error = parse("sbi:\n  chf: nrf\n").unwrap_err();
        assert!(error.contains("other functions could not notify this core"), "{error}");
    }
}
