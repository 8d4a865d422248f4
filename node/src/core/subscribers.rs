//! The UDM's view of the store: records in the form that the control plane uses.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tracing::error;
use whimbrel_control::config::{UpProtection, UpSecurity};
use whimbrel_control::policy::{FlowGate, FlowPolicy, Gbr, Setup, packet_filter};
use whimbrel_control::udm::{
    self, AuthenticationSubscription, SessionTypes, SubscribedDnn, SubscribedSlice, Subscribers, UdmError,
};
use whimbrel_ids::{Instant, Supi};
use whimbrel_nas::ie::SscMode;
use whimbrel_security::{SqnOffset, SqnSlot};
use whimbrel_store::{
    self as stored, AuthMethod, Changes, FlowSetup, SessionType, Store, StoreError, SubscriberRecord,
    SubscriberStatus,
};

use crate::config::Config;

/// Subscriptions whose form for the control plane is kept; far more than operators sell.
const FORMS_MAX: usize = 4096;

/// Saved offsets that are kept by name until they are taken, at each turn.
const SAVED_MAX: usize = 4096;

/// The store, for the control thread.
pub(crate) struct StoredSubscribers {
    store: Store,
    /// Subscribers whose offsets were saved here since they were taken last.
    saved: Vec<Supi>,
    /// The control plane's form of each subscription in use, by the stored one's address.
    forms: HashMap<usize, (Weak<stored::Subscription>, Arc<udm::Subscription>)>,
}

impl StoredSubscribers {
    /// Over an open store.
    pub(crate) fn new(store: Store) -> Self {
        Self { store, saved: Vec::new(), forms: HashMap::new() }
    }

    /// Reads edits that other processes made. Errors: the store's sentence.
    pub(crate) fn refresh(&mut self) -> Result<Changes, String> {
        self.store.refresh().map_err(|e| e.to_string())
    }

    /// When a change that the last [`Self::refresh`] found was made, by the store; of all of them with `None`.
    pub(super) fn changed_at(&self, supi: Option<Supi>) -> Option<Instant> {
        self.store.changed_at(supi).map(Instant)
    }

    /// The store of subscribers.
    pub(super) fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Takes the subscribers whose offsets were saved here; [`Self::refresh`] reports edits of other processes.
    pub(crate) fn saved(&mut self) -> Vec<Supi> {
        std::mem::take(&mut self.saved)
    }

    fn record(&mut self, supi: Supi) -> Result<Arc<SubscriberRecord>, UdmError> {
        let record = self.store.cached(supi).map_err(unavailable)?.ok_or(UdmError::UserNotFound)?;
        match record.status {
            SubscriberStatus::Enabled => Ok(record),
            SubscriberStatus::Barred => Err(UdmError::Barred),
        }
    }

    fn form(&mut self, stored: &Arc<stored::Subscription>) -> Arc<udm::Subscription> {
        let key = Arc::as_ptr(stored) as usize;
        if let Some((alive, form)) = self.forms.get(&key)
            && alive.upgrade().is_some_and(|s| Arc::ptr_eq(&s, stored))
        {
            return form.clone();
        }
        if self.forms.len() >= FORMS_MAX {
            self.forms.retain(|_, (alive, _)| alive.strong_count() > 0);
        }
        if self.forms.len() >= FORMS_MAX {
            self.forms.clear();
        }
        let form = Arc::new(subscription(stored));
        self.forms.insert(key, (Arc::downgrade(stored), form.clone()));
        form
    }
}

impl Subscribers for StoredSubscribers {
    fn authentication(&mut self, supi: Supi) -> Result<AuthenticationSubscription, UdmError> {
        let record = self.record(supi)?;
        let functions = record.functions().ok_or(UdmError::Unavailable)?;
        let method = match record.auth {
            AuthMethod::FiveGAka => udm::AuthMethod::FiveGAka,
            AuthMethod::EapAkaPrime => udm::AuthMethod::EapAkaPrime,
        };
        Ok(AuthenticationSubscription { functions, method, amf: record.amf, sqn_offset: record.sqn_offset })
    }

    fn subscription(&mut self, supi: Supi) -> Result<Arc<udm::Subscription>, UdmError> {
        let record = self.record(supi)?;
        Ok(self.form(&record.subscription))
    }

    fn save_sqn_offset(&mut self, supi: Supi, offset: SqnOffset) -> Result<(), UdmError> {
        self.store.set_sqn_offsets(&[(supi, offset)]).map_err(unavailable)?;
        if self.saved.len() < SAVED_MAX {
            self.saved.push(supi);
        }
        Ok(())
    }
}

/// The slot of this core's SQNs: that of the configuration, or the one that it has leased (docs/postgres.md).
pub(super) fn sqn_slot(config: &Config, store: &Store) -> Option<SqnSlot> {
    let leased = || {
        let home = store.home().inspect_err(|e| error!("{e}")).ok()?;
        home.sqn_slot.and_then(SqnSlot::new)
    };
    config.store.sqn_slot.or_else(|| config.store.postgres.as_ref().and_then(|_| leased()))
}

fn unavailable(e: StoreError) -> UdmError {
    error!("{e}");
    UdmError::Unavailable
}

pub fn subscription(s: &stored::Subscription) -> udm::Subscription {
    udm::Subscription {
        ue_ambr: ambr(s.ue_ambr),
        slices: s.slices.iter().map(slice).collect(),
        rfsp: s.rfsp,
        restrictions: restrictions(s),
        priority: udm::Priority { mps: s.mps_priority, mcs: s.mcs_priority },
    }
}

fn restrictions(s: &stored::Subscription) -> udm::MobilityRestrictions {
    udm::MobilityRestrictions {
        nr_barred: s.rat_restrictions.contains(&stored::RatType::Nr),
        forbidden_areas: s.forbidden_areas.clone(),
        service_area: s.service_area.as_ref().map(|area| match area {
            stored::ServiceArea::Allowed(tacs) => udm::ServiceArea::Allowed(tacs.clone()),
            stored::ServiceArea::NotAllowed(tacs) => udm::ServiceArea::NotAllowed(tacs.clone()),
        }),
    }
}

fn slice(s: &stored::SubscribedSlice) -> SubscribedSlice {
    SubscribedSlice { s_nssai: s.s_nssai, default: s.default, dnns: s.dnns.iter().map(dnn).collect() }
}

fn dnn(d: &stored::DnnConfiguration) -> SubscribedDnn {
    let allows = |of: [SessionType; 2]| d.allowed_session_types.iter().any(|t| of.contains(t));
    SubscribedDnn {
        dnn: d.dnn.clone(),
        default: d.default,
        session_types: SessionTypes {
            ipv4: allows([SessionType::Ipv4, SessionType::Ipv4v6]),
            ipv6: allows([SessionType::Ipv6, SessionType::Ipv4v6]),
            ethernet: allows([SessionType::Ethernet; 2]),
            unstructured: allows([SessionType::Unstructured; 2]),
        },
        ssc_mode: match d.ssc_mode {
            stored::SscMode::One => SscMode::One,
            stored::SscMode::Two => SscMode::Two,
            stored::SscMode::Three => SscMode::Three,
        },
        five_qi: d.five_qi,
        arp: arp(d.arp),
        session_ambr: ambr(d.session_ambr),
        static_ipv4: d.ipv4,
        static_ipv6: d.ipv6.map(|p| p.address()),
        flows: d
            .flows
            .iter()
            .filter_map(|f| flow(f).map_err(|wrong| error!("flow `{}`: {wrong}", f.name)).ok())
            .collect(),
        framed_routes: d.framed_routes.iter().map(|r| r.network()).collect(),
        up_security: d.up_security.map(|s| UpSecurity {
            integrity: protection(s.integrity),
            confidentiality: protection(s.confidentiality),
        }),
    }
}

fn protection(p: stored::UpProtection) -> UpProtection {
    match p {
        stored::UpProtection::Required => UpProtection::Required,
        stored::UpProtection::Preferred => UpProtection::Preferred,
        stored::UpProtection::NotNeeded => UpProtection::NotNeeded,
    }
}

fn arp(a: stored::Arp) -> udm::Arp {
    udm::Arp { priority: a.priority_level, may_preempt: a.may_preempt, preemptable: a.preemptable }
}

/// Checks a flow of a subscription as [`subscription`] does, which leaves out a wrong one. Errors: what is wrong with it, in words.
pub fn check_flow(f: &stored::SubscribedFlow) -> Result<(), String> {
    flow(f).map(|_| ())
}

/// A flow as the control plane takes it. Errors: what is wrong with it, in words.
pub(super) fn flow(f: &stored::SubscribedFlow) -> Result<FlowPolicy, String> {
    let filter = |text: &String| packet_filter(text).ok_or_else(|| format!("`{text}` is no packet filter"));
    let policy = FlowPolicy {
        name: f.name.parse()?,
        five_qi: f.five_qi,
        arp: arp(f.arp),
        gbr: f.guaranteed.map(|g| Gbr { guaranteed: ambr(g), maximum: ambr(f.maximum.unwrap_or(g)) }),
        precedence: f.precedence,
        filters: f.filters.iter().map(filter).collect::<Result<_, _>>()?,
        gate: FlowGate {
            uplink: matches!(f.gate, stored::FlowGate::Enabled | stored::FlowGate::Uplink),
            downlink: matches!(f.gate, stored::FlowGate::Enabled | stored::FlowGate::Downlink),
        },
        setup: match f.setup {
            FlowSetup::Always => Setup::Always,
            FlowSetup::OnRequest => Setup::OnRequest,
            FlowSetup::ByOperator => Setup::ByOperator,
        },
    };
    policy.check().map_err(|wrong| wrong.to_string())?;
    Ok(policy)
}

fn ambr(a: stored::Ambr) -> udm::Ambr {
    udm::Ambr { ul_kbps: a.uplink.kbps(), dl_kbps: a.downlink.kbps() }
}

#[cfg(test)]
mod tests {
    use whimbrel_security::{K, Opc};
    use whimbrel_store::OperatorCode;

    use super::*;

    #[test]
    fn a_barred_and_an_unknown_subscriber_differ_and_forms_are_shared() {
        let folder = std::env::temp_dir().join(format!("whimbrel-udm-test-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut store = Store::open(&folder.join("s.db"), &folder.join("s.key")).unwrap();
        let supi = |n: u8| -> Supi { format!("imsi-9997000000000{n:02}").parse().unwrap() };
        for n in 1..=3 {
            let mut record =
                SubscriberRecord::new(supi(n), K::new([n; 16]), OperatorCode::Opc(Opc::new([2; 16])));
            if n == 3 {
                record.status = SubscriberStatus::Barred;
            }
            store.add(&record).unwrap();
        }
        let mut udm = StoredSubscribers::new(store);
        let (one, two) = (udm.subscription(supi(1)).unwrap(), udm.subscription(supi(2)).unwrap());
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(one.slices[0].dnns[0].dnn.as_str(), "internet");
        assert!(one.slices[0].dnns[0].session_types.ipv6);
        assert_eq!(one.ue_ambr.ul_kbps, 1_000_000);
        assert_eq!(udm.subscription(supi(3)).err(), Some(UdmError::Barred));
        assert_eq!(udm.authentication(supi(4)).err(), Some(UdmError::UserNotFound));
        udm.save_sqn_offset(supi(1), SqnOffset::new(77)).unwrap();
        assert_eq!(udm.authentication(supi(1)).unwrap().sqn_offset.value(), 77);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
