//! What an operator can do about a refusal. It is judged by the present configuration and subscription, not by those at
//! the time of the refusal.

use std::fmt::Write as _;

use whimbrel_ids::{Dnn, SNssai, Supi, Tac, Tai};

use crate::config::{Config, UdmFunction};
use crate::open::Unreachable;
use crate::refusal::{BrokerFault, Refusal};
use crate::services::nchf::ChargingDenial;
use crate::state::{ServiceArea, Subscription};

/// The state of a subscriber in the store.
#[derive(Clone, Copy, Debug)]
pub enum Subscriber<'a> {
    /// Unknown: the store was not asked.
    NotAsked,
    /// There is no such subscriber.
    Absent,
    /// The subscriber is barred.
    Barred,
    /// The subscriber may use this.
    Enabled(&'a Subscription),
}

/// The input of a remedy.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// The configuration in force.
    pub config: &'a Config,
    /// The refused UE's subscriber, where it is known.
    pub supi: Option<Supi>,
    /// Its state in the store.
    pub subscriber: Subscriber<'a>,
    /// Whether the subscriber's record was changed after the refusal.
    pub changed_since: bool,
}

/// What to do about a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The cause persists: this removes it.
    Fix(String),
    /// The cause is removed: what has changed. The UE only has to try again.
    Mended(String),
}

fn fix(text: impl Into<String>) -> Remedy {
    Remedy::Fix(text.into())
}

fn mended(text: impl Into<String>) -> Remedy {
    Remedy::Mended(text.into())
}

const LOOK_AT_UE: &str = "see the UE's own log";

impl Refusal {
    /// The part of the subscriber's data that caused it, if any did.
    const fn of_subscriber(&self) -> Option<&'static str> {
        Some(match self {
            Self::Barred => "the subscriber's status",
            Self::WrongResponse | Self::MacFailure | Self::BadAuts => "K and OPc, or the SIM,",
            Self::UnknownHomeNetworkKey(_) | Self::BadSuci => "the home network keys, or that of the SIM,",
            Self::AreaForbidden(_) | Self::RestrictedServiceArea(_) => "the subscriber's areas",
            Self::RadioBarred => "the subscriber's restrictions of radio",
            Self::DnnNotSubscribed { .. } => "the subscriber's data networks",
            _ => return None,
        })
    }

    /// What to do about it now.
    pub fn remedy(&self, now: &Present<'_>) -> Remedy {
        if now.config.udm == UdmFunction::Remote
            && let Some(what) = self.of_subscriber()
        {
            return fix(format!("correct {what} at the UDM, which has this core's subscribers"));
        }
        match self {
            Self::UnknownSubscriber => match now.subscriber {
                Subscriber::Enabled(_) => mended("the subscriber was added later"),
                Subscriber::Barred => fix(format!("`{} --status enabled`", now.edit())),
                Subscriber::Absent | Subscriber::NotAsked => fix(format!(
                    "`whimbrel subscriber add {} --k K --opc OPC` with the keys of its SIM, or correct the IMSI on the SIM",
                    now.name()
                )),
            },
            Self::Barred => match now.subscriber {
                Subscriber::Enabled(_) => mended("the subscriber was enabled later"),
                _ => fix(format!("`{} --status enabled`", now.edit())),
            },
            Self::WrongResponse | Self::MacFailure | Self::BadAuts => now.keys(),
            Self::SynchFailure => fix(
                "if another core uses this SIM too, let only one of them authenticate it; otherwise replace the SIM",
            ),
            Self::ChallengeRefused(_) => fix(format!("{LOOK_AT_UE} for why it refused the challenge")),
            Self::UnknownHomeNetworkKey(id) => fix(format!(
                "add the private key with identifier {id} to `home_network_keys` and restart, or provision the SIM with a configured key"
            )),
            Self::BadSuci => fix(
                "provision the SIM with the public key that belongs to the private key in `home_network_keys`",
            ),
            Self::OtherHomeNetwork(plmn) => fix(format!(
                "use a SIM of PLMN {}, or set `plmn` to {plmn} and restart; roaming is not supported",
                now.config.amf.plmn
            )),
            Self::Broker { broker, why } => now.broker(broker, why),
            Self::NoIdentity => {
                fix(format!("{LOOK_AT_UE}: it sent no SUCI when it was asked for its identity"))
            }
            Self::NoContext => fix("none: the UE registers again by itself"),
            Self::Emergency => fix(
                "set `access.emergency.service`, if UEs are to have emergency services here; else the UE tries another network by itself",
            ),
            Self::EquipmentRefused => fix(
                "remove its IMEI from `access.refused_equipment` and run `whimbrel reload`, if it may be used",
            ),
            Self::EquipmentUnknown => {
                fix(format!("{LOOK_AT_UE}: it sent no IMEISV when it was asked for it"))
            }
            Self::Congested(key) => now.congestion(key),
            Self::NoCommonAlgorithm { ciphering, integrity } => now.algorithms(*ciphering, *integrity),
            Self::IntegrityRate => fix(
                "set `up_integrity: preferred` for the data network and restart, if such a UE may have a session without integrity protection",
            ),
            Self::SecurityModeRejected(_) => {
                fix(format!("{LOOK_AT_UE} for why it refused the security mode"))
            }
            Self::TaiNotServed(tai) => now.tracking_area(*tai),
            Self::AreaForbidden(tai) => now.forbidden_area(tai.tac),
            Self::RadioBarred => match now.subscription() {
                Some(s) if !s.restrictions.nr_barred => mended("the subscription allows New Radio later"),
                _ => fix(format!(
                    "`{} --set '{{\"subscription\": {{\"rat_restrictions\": []}}}}'`",
                    now.edit()
                )),
            },
            Self::RestrictedServiceArea(tai) => now.service_area(tai.tac),
            Self::OutOfLadn(dnn, tai) => now.ladn(dnn, tai.tac),
            Self::NoSlice { requested, subscribed } => now.slices(requested, subscribed),
            Self::SliceNotAllowed(s) => now.slice(*s),
            Self::NoAnswer("REGISTRATION ACCEPT") => now.registration_accept(),
            Self::NoAnswer(_) => {
                fix("look at the radio: the UE is out of coverage, switched off, or stopped")
            }
            Self::RadioFailure(_) | Self::RefusedByGnb { .. } => fix("look at the gNB's log for this UE"),
            Self::Limit(name) => fix(format!("raise `limits.{name}` and run `whimbrel reload`")),
            Self::StoreUnavailable => fix("look at the error log for what the subscriber store says"),
            Self::NetworkFunction(function, _) => fix(format!(
                "look at the log for what the {function} answered, and at `sbi` in the configuration for where it is"
            )),
            Self::Charging(ChargingDenial::QuotaLimitReached) => {
                fix("add credit for the subscriber at the CHF")
            }
            Self::Charging(_) => fix("look at the subscriber and the tariff of the rating group at the CHF"),
            Self::Policy(_) => fix("look at the subscriber and the data network at the PCF"),
            Self::UnknownToUdm => fix("add the subscriber at the UDM, or correct the IMSI on the SIM"),
            Self::ServingNetworkNotAuthorized | Self::RoamingNotAllowed => {
                fix("the operator of the UDM has to allow this network for the subscriber")
            }
            Self::Upf(_) => fix("look at the UPF: `whimbrel why upf`"),
            Self::PoolEmpty(dnn) => fix(format!(
                "widen the address pools of data network `{dnn}` and restart, or wait for sessions to end"
            )),
            Self::DnnNotSubscribed { dnn, s_nssai, subscribed } => now.dnn(dnn, *s_nssai, subscribed),
            Self::DnnNotConfigured(dnn) if now.config.smf.data_networks.contains_key(dnn) => {
                mended(format!("data network `{dnn}` was configured later"))
            }
            Self::DnnNotConfigured(dnn) => {
                fix(format!("add `{dnn}` to `data_networks` and restart, or correct the DNN (APN) on the UE"))
            }
            Self::SessionType(allowed) => fix(format!(
                "set the PDU session type on the UE to {allowed}, or allow the requested type in the subscription and in `data_networks`"
            )),
            Self::Qos(_) => fix(
                "give the data network a flow with `setup: on-request` that allows it, or correct what the UE asks for",
            ),
            Self::ModificationRejected(_) => fix(format!("{LOOK_AT_UE} for why it refused the modification")),
            Self::SscMode { asked, .. } => fix(format!(
                "subscribe SSC mode {} (`ssc_mode` of the DNN), or use mode 1 on the UE",
                *asked as u8
            )),
            Self::Protocol(_) => {
                fix("capture the exchange with `whimbrel run --capture FILE` and look at the peer")
            }
        }
    }
}

impl Present<'_> {
    /// The remedy for a refused user of a broker: by operator, broker or user.
    fn broker(&self, broker: &str, why: &BrokerFault) -> Remedy {
        match why {
            BrokerFault::NotServed
                if self.config.veil.as_ref().is_some_and(|v| v.broker.as_str() == broker) =>
            {
                mended(format!("{broker} is served since"))
            }
            BrokerFault::NotServed => match &self.config.open {
                None => fix("set `open` or `veil` and restart, if users of brokers are to be served"),
                Some(open) => match broker.parse() {
                    Ok(domain) if open.serves(&domain) => mended(format!("{broker} is served since")),
                    _ => fix(format!(
                        "add {broker} to `open.brokers` and restart, if its users are to be served"
                    )),
                },
            },
            BrokerFault::Unreachable(Unreachable::ForbiddenAddress) => fix(format!(
                "none is needed here: the address records of {broker} are at fault, or an attacker tries to make the core call itself"
            )),
            BrokerFault::Unreachable(Unreachable::NoToken) => fix(
                "none if a token is broadcast now: the UE registers again with that one; if none is, look at the log for why the wallet of `veil` is empty",
            ),
            BrokerFault::Unreachable(_) => fix(format!(
                "look whether {broker} can be reached from here by HTTPS; if it can from elsewhere, the fault is on this side"
            )),
            BrokerFault::Refused(refused) if refused.of_operator => fix(format!(
                "compare `open.terms` with what {broker} accepts, or ask {broker}: the fault is between this operator and it"
            )),
            BrokerFault::Refused(_) => {
                fix(format!("none is needed here: the user has to settle it with {broker}"))
            }
            BrokerFault::Rejected(_) => fix(format!(
                "look at `open.certificate`, its key and this host's clock: {broker} does not take this operator for what it claims to be"
            )),
            BrokerFault::BadAnswer(_) => fix(format!(
                "tell {broker}, which is at fault; if its certificate is not believed, look at `open.authorities` and `open.revoked`"
            )),
            BrokerFault::Orders => {
                fix(format!("tell {broker} that sessions are neither intercepted nor filtered here"))
            }
            BrokerFault::InClear => fix(format!(
                "none is needed here: {broker} has to issue a USIM that conceals the SUPI (TS 33.501 §6.12.2)"
            )),
        }
    }

    fn name(&self) -> String {
        self.supi.map_or_else(|| "SUPI".into(), |s| s.to_string())
    }

    fn edit(&self) -> String {
        format!("whimbrel subscriber edit {}", self.name())
    }

    fn subscription(&self) -> Option<&Subscription> {
        match self.subscriber {
            Subscriber::Enabled(s) => Some(s),
            Subscriber::NotAsked | Subscriber::Absent | Subscriber::Barred => None,
        }
    }

    /// The key of the UE and that of the subscriber differ.
    fn keys(&self) -> Remedy {
        if self.changed_since {
            return mended("the subscriber's record was changed later");
        }
        fix(format!(
            "`{} --k K --opc OPC` with the keys of its SIM (`--op OP` if its vendor names OP)",
            self.edit()
        ))
    }

    fn congestion(&self, key: &str) -> Remedy {
        let congestion = &self.config.amf.access.congestion;
        let stands = match key {
            "general" => congestion.general,
            "dnns" => !congestion.dnns.is_empty(),
            _ => !congestion.slices.is_empty(),
        };
        match (stands, key) {
            (false, _) => mended(format!("`access.congestion.{key}` was lifted later")),
            (true, "general") => fix(
                "set `access.congestion.general: false` and run `whimbrel reload` when the congestion is over",
            ),
            (true, _) => fix(format!(
                "remove it from `access.congestion.{key}` and run `whimbrel reload` when the congestion is over"
            )),
        }
    }

    /// TS 33.501 §5.5.2: NIA0 is for emergency services only, so it is no remedy.
    fn algorithms(&self, ciphering: u8, integrity: u8) -> Remedy {
        let offered = |bits: u8, n: usize| bits & 0x80 >> n != 0;
        let amf = &self.config.amf;
        let missing = |bits: u8, from: usize| (from..4).find(|n| offered(bits, *n));
        if !amf.integrity.iter().any(|a| offered(integrity, *a as usize)) {
            return match missing(integrity, 1) {
                Some(n) => fix(format!("add NIA{n} to `security.integrity` and run `whimbrel reload`")),
                None => fix(
                    "have the UE offer NIA1, NIA2 or NIA3: the null algorithm NIA0 is for emergency services alone",
                ),
            };
        }
        if !amf.ciphering.iter().any(|a| offered(ciphering, *a as usize)) {
            return match missing(ciphering, 0) {
                Some(n) => fix(format!("add NEA{n} to `security.ciphering` and run `whimbrel reload`")),
                None => fix("have the UE offer NEA0, NEA1, NEA2 or NEA3"),
            };
        }
        mended("an algorithm of the UE was configured later")
    }

    fn tracking_area(&self, tai: Tai) -> Remedy {
        let amf = &self.config.amf;
        if tai.plmn != amf.plmn {
            return fix(format!("set the PLMN of the gNB's cell to {}", amf.plmn));
        }
        if amf.tacs.contains(&tai.tac) {
            return mended(format!("TAC {} was added to `tacs` later", tai.tac));
        }
        fix(format!(
            "add {} to `tacs` and run `whimbrel reload`, or change the TAC of the gNB's cell",
            tai.tac
        ))
    }

    fn forbidden_area(&self, tac: Tac) -> Remedy {
        let areas = self.subscription().map(|s| &s.restrictions.forbidden_areas);
        match areas {
            Some(areas) if !areas.contains(&tac) => {
                mended(format!("TAC {tac} was taken out of the subscriber's forbidden areas later"))
            }
            areas => {
                let rest = areas.into_iter().flatten().filter(|t| **t != tac);
                fix(self.set("forbidden_areas", &list(rest)))
            }
        }
    }

    fn service_area(&self, tac: Tac) -> Remedy {
        let area = self.subscription().map(|s| s.restrictions.service_area.as_ref());
        match area {
            Some(area) if area.is_none_or(|a| a.allows(tac)) => {
                mended(format!("the subscriber's service area was widened by TAC {tac} later"))
            }
            Some(Some(ServiceArea::Allowed(tacs))) => {
                fix(self
                    .set("service_area", &format!("{{\"allowed\": {}}}", list(tacs.iter().chain([&tac])))))
            }
            Some(Some(ServiceArea::NotAllowed(tacs))) => {
                let rest = tacs.iter().filter(|t| **t != tac);
                fix(self.set("service_area", &format!("{{\"not_allowed\": {}}}", list(rest))))
            }
            Some(None) | None => fix(format!("add TAC {tac} to the subscriber's `service_area`")),
        }
    }

    fn set(&self, name: &str, value: &str) -> String {
        format!("`{} --set '{{\"subscription\": {{\"{name}\": {value}}}}}'`", self.edit())
    }

    fn ladn(&self, dnn: &Dnn, tac: Tac) -> Remedy {
        let ladn = self.config.smf.data_networks.get(dnn).and_then(|d| d.ladn.as_ref());
        if ladn.is_none_or(|l| l.tacs.contains(&tac)) {
            return mended(format!("data network `{dnn}` was opened to TAC {tac} later"));
        }
        fix(format!(
            "add {tac} to `ladn` of data network `{dnn}` and restart, or use the UE where `{dnn}` is served"
        ))
    }

    /// A data network for a slice that is to be subscribed.
    fn any_dnn(&self) -> String {
        let networks = &self.config.smf.data_networks;
        let internet = networks.keys().find(|d| d.as_str() == "internet");
        internet.or(networks.keys().next()).map_or_else(|| "DNN".into(), ToString::to_string)
    }

    fn subscribe(&self, s: SNssai) -> String {
        format!("`{} --add-slice {s}={}`", self.edit(), self.any_dnn())
    }

    /// First a requested slice that is offered but not subscribed, then one that is subscribed but not offered.
    fn slices(&self, requested: &[SNssai], then: &[SNssai]) -> Remedy {
        let offered = &self.config.amf.slices;
        let subscribed: Vec<SNssai> = self
            .subscription()
            .map_or_else(|| then.to_vec(), |s| s.slices.iter().map(|s| s.s_nssai).collect());
        let common = |subscribed: &[SNssai]| subscribed.iter().find(|s| offered.contains(s)).copied();
        if let Some(s) = common(&subscribed) {
            let access = &self.config.amf.access;
            let bounded = access.slice_areas.contains_key(&s) || access.slice_ues_max.contains_key(&s);
            return match common(then) {
                Some(_) if bounded => fix(format!(
                    "slice {s} is subscribed and configured: widen its `access.slice_areas` or raise its `access.slice_limits`"
                )),
                Some(_) => mended(format!("slice {s} was added to `slices` later")),
                None => mended(format!("slice {s} was subscribed later")),
            };
        }
        if let Some(s) = requested.iter().find(|s| offered.contains(s)) {
            return fix(self.subscribe(*s));
        }
        if let Some(s) = requested.iter().find(|s| subscribed.contains(s)).or(subscribed.first()) {
            return fix(format!("add {s} to `slices` and run `whimbrel reload`"));
        }
        match offered.first() {
            Some(s) => fix(self.subscribe(*s)),
            None => fix("name a slice in `slices`"),
        }
    }

    fn slice(&self, s: SNssai) -> Remedy {
        let offered = self.config.amf.slices.contains(&s);
        match (offered, self.subscription().map(|x| x.slice(s).is_some())) {
            (false, Some(true)) => fix(format!("add {s} to `slices` and run `whimbrel reload`")),
            (false, _) => fix(format!(
                "add {s} to `slices`, run `whimbrel reload`, and subscribe it: {}",
                self.subscribe(s)
            )),
            (true, Some(false)) => fix(self.subscribe(s)),
            // Lines of the log are written without the subscription, so it can be either of two causes.
            (true, None) => fix(format!(
                "add {s} to the UE's requested slices if it is subscribed, else {}",
                self.subscribe(s)
            )),
            (true, Some(true)) if self.changed_since => {
                mended(format!("slice {s} was subscribed later; the UE gets it with its next registration"))
            }
            (true, Some(true)) => fix(format!(
                "slice {s} is configured and subscribed, but the UE did not request it when it registered: add it to the UE's requested slices"
            )),
        }
    }

    fn dnn(&self, dnn: &Dnn, s: SNssai, then: &[Dnn]) -> Remedy {
        let configured = self.config.smf.data_networks.contains_key(dnn);
        let slice = self.subscription().and_then(|x| x.slice(s));
        match (configured, slice.is_some_and(|s| s.dnns.iter().any(|d| d.dnn == *dnn))) {
            (true, true) => mended(format!("DNN `{dnn}` was subscribed in slice {s} later")),
            (true, false) => fix(format!("`{} --add-slice {s}={dnn}`", self.edit())),
            (false, true) => fix(format!("add `{dnn}` to `data_networks` and restart")),
            (false, false) => {
                let now: Vec<String> = slice.map_or_else(
                    || then.iter().map(ToString::to_string).collect(),
                    |s| s.dnns.iter().map(|d| d.dnn.to_string()).collect(),
                );
                fix(format!(
                    "set the DNN (APN) on the UE to `{}`: `{dnn}` is neither subscribed nor in `data_networks`",
                    now.join("` or `")
                ))
            }
        }
    }

    /// A UE that deciphers NAS wrongly has answered SECURITY MODE COMMAND, which is not ciphered, and cannot read what follows.
    fn registration_accept(&self) -> Remedy {
        use whimbrel_security::nas::CipheringAlgorithm::Nea0;
        let ciphered = self.config.amf.ciphering.first().is_some_and(|a| *a != Nea0);
        if ciphered {
            return fix(
                "set `security.ciphering: [NEA0]` and run `whimbrel reload` to see whether the UE deciphers NAS wrongly (the UE of srsRAN 4G does with NEA2); if that changes nothing, check the radio link",
            );
        }
        fix(
            "check the radio link and the UE's own log: NAS is not ciphered, so deciphering is not the problem",
        )
    }
}

fn list<'a>(tacs: impl Iterator<Item = &'a Tac>) -> String {
    let mut out = String::from("[");
    for (i, tac) in tacs.enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        let _ = write!(out, "{comma}{}", tac.value());
    }
    out + "]"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ue_harness;

    fn s(text: &str) -> SNssai {
        text.parse().unwrap()
    }

    /// A configuration with these slices, and a subscription to these.
    fn ground(configured: &[&str], subscribed: &[&str]) -> (Config, Subscription) {
        let mut config = ue_harness::config();
        config.amf.slices = configured.iter().map(|t| s(t)).collect();
        let mut subscription = ue_harness::subscription();
        let one = subscription.slices[0].clone();
        let slice = |t: &&str| crate::state::SubscribedSlice { s_nssai: s(t), ..one.clone() };
        subscription.slices = subscribed.iter().map(slice).collect();
        (config, subscription)
    }

    fn remedy(refusal: &Refusal, config: &Config, subscription: &Subscription) -> Remedy {
        let subscriber = Subscriber::Enabled(subscription);
        let supi = "imsi-999700000000001".parse().ok();
        refusal.remedy(&Present { config, supi, subscriber, changed_since: false })
    }

    #[test]
    fn with_another_vendors_udm_the_subscriber_is_corrected_there() {
        let (mut config, subscription) = ground(&["1"], &["1"]);
        let Remedy::Fix(here) = remedy(&Refusal::MacFailure, &config, &subscription) else {
            panic!("mended")
        };
        config.udm = UdmFunction::Remote;
        let Remedy::Fix(there) = remedy(&Refusal::MacFailure, &config, &subscription) else {
            panic!("mended")
        };
        assert!(here.contains("whimbrel subscriber edit") && there.contains("at the UDM"), "{here}; {there}");
    }

    #[test] // TS 23.501 §5.15.5.2.1: allowed is what is requested, subscribed and offered
    fn a_configured_slice_is_to_be_subscribed_and_a_subscribed_one_to_be_configured() {
        let no_slice = |requested: &str, subscribed: &str| Refusal::NoSlice {
            requested: vec![s(requested)],
            subscribed: vec![s(subscribed)],
        };
        let (config, subscription) = ground(&["1", "2"], &["3"]);
        let Remedy::Fix(fix) = remedy(&no_slice("2", "3"), &config, &subscription) else { panic!("mended") };
        assert!(fix.contains("subscriber edit imsi-999700000000001 --add-slice 2="), "{fix}");
        let (config, subscription) = ground(&["1"], &["3"]);
        let Remedy::Fix(fix) = remedy(&no_slice("3", "3"), &config, &subscription) else { panic!("mended") };
        assert!(fix.starts_with("add 3 to `slices`"), "{fix}");
        let (config, subscription) = ground(&["1"], &["3"]);
        let Remedy::Fix(fix) = remedy(&Refusal::SliceNotAllowed(s("2")), &config, &subscription) else {
            panic!("mended")
        };
        assert!(fix.contains("add 2 to `slices`") && fix.contains("--add-slice 2="), "{fix}");
        let (config, subscription) = ground(&["1", "2"], &["1", "2"]);
        let Remedy::Fix(fix) = remedy(&Refusal::SliceNotAllowed(s("2")), &config, &subscription) else {
            panic!("mended")
        };
        assert!(fix.contains("did not request it"), "{fix}");
        let present =
            Present { config: &config, supi: None, subscriber: Subscriber::NotAsked, changed_since: false };
        let Remedy::Fix(fix) = Refusal::SliceNotAllowed(s("2")).remedy(&present) else { panic!("mended") };
        assert!(
            fix.contains("requested slices if it is subscribed") && fix.contains("--add-slice 2="),
            "{fix}"
        );
    }

    #[test]
    fn a_slice_that_was_added_since_needs_no_remedy() {
        let refusal = Refusal::NoSlice { requested: vec![s("2")], subscribed: vec![s("3")] };
        let (config, subscription) = ground(&["2"], &["2", "3"]);
        assert_eq!(remedy(&refusal, &config, &subscription), mended("slice 2 was subscribed later"));
        let (mut config, subscription) = ground(&["2", "3"], &["3"]);
        assert_eq!(remedy(&refusal, &config, &subscription), mended("slice 3 was added to `slices` later"));
        config.amf.access.slice_areas.insert(s("3"), BTreeSet::new());
        let Remedy::Fix(fix) = remedy(&refusal, &config, &subscription) else { panic!("mended") };
        assert!(fix.contains("`access.slice_areas`"), "{fix}");
    }

    #[test]
    fn no_remedy_adds_a_tracking_area_of_another_plmn() {
        let (config, subscription) = ground(&["1"], &["1"]);
        let other = Tai { plmn: "001/01".parse().unwrap(), tac: config.amf.tacs[0] };
        let Remedy::Fix(fix) = remedy(&Refusal::TaiNotServed(other), &config, &subscription) else {
            panic!("mended")
        };
        assert!(fix.contains("PLMN of the gNB's cell"), "{fix}");
        let own = Tai { plmn: config.amf.plmn, tac: config.amf.tacs[0] };
        assert!(matches!(remedy(&Refusal::TaiNotServed(own), &config, &subscription), Remedy::Mended(_)));
    }

    #[test]
    fn deciphering_is_suspected_only_where_nas_is_ciphered() {
        let (mut config, subscription) = ground(&["1"], &["1"]);
        let refusal = Refusal::NoAnswer("REGISTRATION ACCEPT");
        let fix = |config: &Config| match remedy(&refusal, config, &subscription) {
            Remedy::Fix(fix) => fix,
            Remedy::Mended(what) => panic!("{what}"),
        };
        config.amf.ciphering = vec![whimbrel_security::CipheringAlgorithm::Nea2];
        assert!(fix(&config).contains("`security.ciphering: [NEA0]`"));
        config.amf.ciphering = vec![whimbrel_security::CipheringAlgorithm::Nea0];
        assert!(!fix(&config).contains("[NEA0]"));
    }
}
