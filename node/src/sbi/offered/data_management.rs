//! Nudm_SubscriberDataManagement (TS 29.503 §5.2, §6.1): data sets of a subscription, and notifications of their changes.

use std::collections::BTreeMap;

use hyper::{StatusCode, Uri};
use whimbrel_control::udm::Subscription;
use whimbrel_ids::{SNssai, Supi};
use whimbrel_sbi::problem::{of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse};
use whimbrel_sbi_types::common::{
    ChangeItem, ChangePath, ChangeType, NotifyItem, ShortText, Snssai, Uri as UriText,
};
use whimbrel_sbi_types::nudm_sdm::{
    ModificationNotification, RegisteredPduSession, SdmSubscription, SmSubsData, SubscriptionDataSets,
    UeContextInSmfData,
};
use whimbrel_sbi_types::{BoundedList, BoundedMap, from_slice, to_vec};

use super::super::identity::supi_of;
use super::super::subscription;
use super::{OfferedServices, Served, no_such_resource, random_name, user_not_found};

/// Subscriptions to changes that are kept, and how many of one subscriber: an AMF and the SMFs of its sessions, with some that were lost.
const SUBSCRIPTIONS_MAX: usize = 1 << 20;
const OF_SUBSCRIBER_MAX: usize = 64;

/// Subscriptions to changes by subscriber and identity.
#[derive(Default)]
pub(super) struct Subscriptions {
    by_subscriber: BTreeMap<Supi, BTreeMap<String, (Uri, Vec<UriText>)>>,
    count: usize,
}

impl Subscriptions {
    fn insert(&mut self, supi: Supi, callback: Uri, resources: Vec<UriText>) -> Option<String> {
        if self.count >= SUBSCRIPTIONS_MAX {
            return None;
        }
        let of = self.by_subscriber.entry(supi).or_default();
        // A function that forgot its subscription makes another: the same callback has one.
        let same = of.iter().find(|(_, (to, _))| *to == callback).map(|(id, _)| id.clone());
        if let Some(id) = same {
            of.insert(id.clone(), (callback, resources));
            return Some(id);
        }
        if of.len() >= OF_SUBSCRIBER_MAX {
            return None;
        }
        let id = random_name();
        of.insert(id.clone(), (callback, resources));
        self.count += 1;
        Some(id)
    }

    fn remove(&mut self, supi: Supi, id: &str) -> bool {
        let Some(of) = self.by_subscriber.get_mut(&supi) else { return false };
        let removed = of.remove(id).is_some();
        self.count -= usize::from(removed);
        if of.is_empty() {
            self.by_subscriber.remove(&supi);
        }
        removed
    }
}

impl OfferedServices {
    pub(super) async fn data_management(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        let [subscriber, rest @ ..] = path else { return Err(no_such_resource()) };
        let supi = supi_of(subscriber).ok_or_else(user_not_found)?;
        let no_data = || of_status(404, Some("DATA_NOT_FOUND"), "the subscriber has no such data");
        match (request.method.as_str(), rest) {
            ("GET", []) => {
                let s = self.subscription(supi)?;
                let names = query_value(request, "dataset-names").unwrap_or_default();
                let asks = |name: &str| names.split(',').any(|asked| asked == name);
                let sets = SubscriptionDataSets {
                    am_data: asks("AM").then(|| subscription::am_data(&s)),
                    smf_sel_data: asks("SMF_SEL").then(|| subscription::smf_selection(&s)),
                    uec_smf_data: asks("UEC_SMF").then(|| self.sessions_of(supi)),
                    sm_data: asks("SM")
                        .then(|| BoundedList::new(subscription::sm_data(&s)).map(SmSubsData::Slices))
                        .flatten(),
                    ..Default::default()
                };
                Ok(SbiResponse::json(StatusCode::OK, &sets))
            }
            ("GET", ["am-data"]) => {
                Ok(SbiResponse::json(StatusCode::OK, &subscription::am_data(&self.subscription(supi)?)))
            }
            ("GET", ["nssai"]) => {
                let nssai = subscription::nssai(&self.subscription(supi)?).ok_or_else(no_data)?;
                Ok(SbiResponse::json(StatusCode::OK, &nssai))
            }
            ("GET", ["smf-select-data"]) => {
                let data = subscription::smf_selection(&self.subscription(supi)?);
                Ok(SbiResponse::json(StatusCode::OK, &data))
            }
            ("GET", ["sm-data"]) => {
                let mut data = subscription::sm_data(&self.subscription(supi)?);
                if let Some(text) = query_value(request, "single-nssai") {
                    let wrong =
                        |_| problem(ProtocolCause::OptionalQueryParamIncorrect, "single-nssai is no S-NSSAI");
                    let asked: Snssai = from_slice(text.as_bytes()).map_err(wrong)?;
                    data.retain(|of| SNssai::from(of.single_nssai) == SNssai::from(asked));
                }
                if let Some(dnn) = query_value(request, "dnn") {
                    for of in &mut data {
                        let all = of.dnn_configurations.take().map(BoundedMap::into_map).unwrap_or_default();
                        of.dnn_configurations = BoundedMap::new(
                            all.into_iter().filter(|(name, _)| name.as_str() == dnn).collect(),
                        );
                    }
                    data.retain(|of| {
                        of.dnn_configurations.as_ref().is_some_and(|all| all.iter().next().is_some())
                    });
                }
                if data.is_empty() { Err(no_data()) } else { Ok(SbiResponse::json(StatusCode::OK, &data)) }
            }
            ("GET", ["ue-context-in-smf-data"]) => {
                self.subscription(supi)?;
                Ok(SbiResponse::json(StatusCode::OK, &self.sessions_of(supi)))
            }
            ("GET", ["sms-data" | "sms-mng-data" | "trace-data" | "lcs-mo-data" | "v2x-data"]) => {
                Err(no_data())
            }
            ("POST", ["sdm-subscriptions"]) => {
                let mut subscription: SdmSubscription = request.read()?;
                self.subscription(supi)?;
                let reference = subscription.callback_reference.as_ref().ok_or_else(|| {
                    problem(ProtocolCause::MandatoryIeMissing, "there is no callbackReference")
                })?;
                let callback = self.callback(request, reference.as_str())?;
                let resources = subscription.monitored_resource_uris.iter().cloned().collect();
                let mut all = self.subscriptions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let id = all.insert(supi, callback, resources).ok_or_else(|| {
                    problem(ProtocolCause::InsufficientResources, "too many subscriptions to changes")
                })?;
                drop(all);
                subscription.subscription_id = ShortText::new(&id).ok();
                let location = format!("{}/nudm-sdm/v2/{subscriber}/sdm-subscriptions/{id}", self.root);
                Ok(SbiResponse::created(&location, &subscription))
            }
            ("DELETE", ["sdm-subscriptions", id]) => {
                let mut all = self.subscriptions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                match all.remove(supi, id) {
                    true => Ok(SbiResponse::no_content()),
                    false => {
                        Err(problem(ProtocolCause::SubscriptionNotFound, "there is no such subscription"))
                    }
                }
            }
            _ => Err(no_such_resource()),
        }
    }

    fn sessions_of(&self, supi: Supi) -> UeContextInSmfData {
        let all = self.registrations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let sessions: BTreeMap<_, _> = all
            .sessions(supi)
            .filter_map(|(psi, smf)| {
                let session = RegisteredPduSession {
                    dnn: smf.dnn.clone()?,
                    smf_instance_id: smf.smf_instance_id.clone(),
                    plmn_id: smf.plmn_id.clone(),
                    single_nssai: Some(smf.single_nssai),
                };
                Some((ShortText::new(&psi.to_string()).ok()?, session))
            })
            .collect();
        let pdu_sessions = (!sessions.is_empty()).then(|| BoundedMap::new(sessions)).flatten();
        UeContextInSmfData { pdu_sessions, ..Default::default() }
    }

    /// Subscribers have changed in the store; all of them with `None`.
    pub(crate) fn changed(&self, subscribers: Option<&[Supi]>) {
        self.policies_changed(subscribers);
        let all = self.subscriptions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let of = |supi: &Supi| {
            let of = all.by_subscriber.get(supi)?;
            Some((*supi, of.values().cloned().collect::<Vec<_>>()))
        };
        let notified: Vec<_> = match subscribers {
            Some(changed) => changed.iter().filter_map(of).collect(),
            None => all.by_subscriber.keys().filter_map(of).collect(),
        };
        drop(all);
        for (supi, subscriptions) in notified {
            let Ok(present) = self.subscription(supi) else {
                self.withdrawn(supi);
                continue;
            };
            for (callback, resources) in subscriptions {
                if let Some(body) = notification(&present, &resources) {
                    self.notify(("UDM", "Nudm_SDM_Notification"), 2, callback, to_vec(&body));
                }
            }
        }
    }
}

/// The whole of each data set is replaced by what it is now.
fn notification(present: &Subscription, resources: &[UriText]) -> Option<ModificationNotification> {
    let item = |resource_id: UriText| {
        let value = match resource_id.as_str().rsplit('/').next()? {
            "am-data" => to_vec(&subscription::am_data(present)),
            "smf-select-data" => to_vec(&subscription::smf_selection(present)),
            "sm-data" => to_vec(&subscription::sm_data(present)),
            "nssai" => to_vec(&subscription::nssai(present)?),
            _ => return None,
        };
        let change = ChangeItem {
            op: ChangeType::Replace,
            // The whole resource (RFC 6901 §5), as Open5GS's AMF reads it.
            path: ChangePath::new("").ok()?,
            from: None,
            orig_value: None,
            new_value: Some(serde_json::from_slice(&value).ok()?),
        };
        Some(NotifyItem { resource_id, changes: BoundedList::new(vec![change])? })
    };
    Some(ModificationNotification {
        notify_items: BoundedList::new(resources.iter().cloned().filter_map(item).collect())?,
    })
}

/// A parameter of the query, decoded (RFC 3986 §2.1).
fn query_value(request: &ReceivedRequest, name: &str) -> Option<String> {
    let parameters = request.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let text = parameters.filter(|(key, _)| *key == name).map(|(_, value)| value).next()?;
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'+' => b' ',
            b'%' => {
                let digit = |c: Option<u8>| char::from(c?).to_digit(16);
                (digit(rest.next())? << 4 | digit(rest.next())?) as u8
            }
            plain => plain,
        });
    }
    String::from_utf8(octets).ok()
}
