//! The state of the NRF: instances, their heartbeats, and the subscribers to their changes (TS 29.510 §5.2.2).

use core::fmt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_ids::Instant;
use whimbrel_sbi_types::common::{DateTime, NfInstanceId, PatchItem, PatchOperation, PlmnId};
use whimbrel_sbi_types::nnrf::{
    AccessTokenClaims, AccessTokenErrorCode, NfProfile, NfStatus, NfType, NotificationEventType,
    SubscriptionData, SubscriptionId,
};
use whimbrel_sbi_types::{from_slice, to_vec};

use crate::discovery;
use crate::patch;
use crate::profile::{Requester, StoredProfile, lower_case};
use crate::query::{DiscoveryParameters, list_parameters};
use crate::refusal::NrfRefusal;
use crate::token::{self, TokenRefusal};

/// Instances at once: some hundred functions of a large operator, and their predecessors that have not been removed yet.
pub const INSTANCES_MAX: usize = 4096;
/// Octets of all profiles together.
pub const TOTAL_OCTETS_MAX: usize = 32 << 20;
/// Subscriptions at once.
pub const SUBSCRIPTIONS_MAX: usize = 4096;
/// Notifications that wait to be sent; the oldest are given up.
pub const NOTIFICATIONS_MAX: usize = 4096;

/// Interval of heartbeats of an instance that asks for none: that of Open5GS.
const HEARTBEAT_DEFAULT_S: u32 = 10;
/// Longest interval that is granted: a lost instance stays in discoveries for two of it.
const HEARTBEAT_MAX_S: u32 = 300;
/// Intervals without a heartbeat after which an instance is suspended: one that is lost on the way costs nothing. A second of delay is added.
const SUSPENDED_AFTER: u32 = 2;
/// Intervals without a heartbeat after which an instance is removed.
const REMOVED_AFTER: u32 = 12;
/// Longest validity of a subscription.
const SUBSCRIBED_FOR: Duration = Duration::from_secs(24 * 3600);

/// Feature of Nnrf_NFManagement: the subscriber reads services as a map, `nfServiceList` (TS 29.510 §6.1.9).
const SERVICE_MAP: u32 = 1;

/// This NRF, as others see it.
#[derive(Clone, Debug)]
pub struct NrfIdentity {
    /// Its own profile, which is registered and does not age.
    pub profile: NfProfile,
    /// The root of its services, without a slash at its end.
    pub root: String,
    /// The network to which it belongs.
    pub plmn: PlmnId,
    /// Instances that send no heartbeat are suspended and then removed. Without it, those that have never sent one stay.
    pub demands_heartbeats: bool,
}

/// A notification to be sent by POST (TS 29.510 §5.2.2.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusNotification {
    /// The subscriber's URI.
    pub uri: String,
    /// The body, `NotificationData`.
    pub body: Arc<[u8]>,
}

impl StatusNotification {
    /// The same for a subscriber that refuses notifications of changed profiles: a suspended instance is gone, another one is new.
    ///
    /// Deviation: Open5GS's functions understand NF_REGISTERED and NF_DEREGISTERED alone.
    pub fn without_changes(body: &[u8]) -> Option<Vec<u8>> {
        let mut body: Value = from_slice(body).ok()?;
        if body["event"] != NotificationEventType::NfProfileChanged.as_str() {
            return None;
        }
        let is_suspended = body["nfProfile"]["nfStatus"] == NfStatus::Suspended.as_str();
        let event = match is_suspended {
            true => NotificationEventType::NfDeregistered,
            false => NotificationEventType::NfRegistered,
        };
        let members = body.as_object_mut()?;
        if is_suspended {
            members.remove("nfProfile");
        }
        members.insert("event".into(), event.as_str().into());
        Some(to_vec(&body))
    }
}

/// An answered registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The instance was not registered before: 201 instead of 200.
    pub is_new: bool,
    /// The profile as it is stored.
    pub profile: Value,
}

/// An answered update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated {
    /// Nothing but state and load was replaced.
    pub is_heartbeat: bool,
    /// The profile as it is stored.
    pub profile: Value,
}

struct Instance {
    stored: StoredProfile,
    interval: Duration,
    heard: Instant,
    has_sent_heartbeat: bool,
    is_suspended: bool,
    is_own: bool,
}

impl Instance {
    /// The profile with the state that the NRF gives it.
    fn json(&self) -> Value {
        let mut json = self.stored.json();
        if self.is_suspended {
            json["nfStatus"] = NfStatus::Suspended.as_str().into();
        }
        json
    }

    fn is_discoverable(&self) -> bool {
        !self.is_suspended && self.stored.profile().nf_status == NfStatus::Registered
    }
}

struct StatusSubscription {
    data: SubscriptionData,
    ends: Instant,
}

/// The state machine of the NRF.
pub struct Nrf {
    identity: NrfIdentity,
    instances: BTreeMap<NfInstanceId, Instance>,
    octets: usize,
    subscriptions: BTreeMap<SubscriptionId, StatusSubscription>,
    notifications: VecDeque<StatusNotification>,
    notifications_lost: u64,
    is_changed: bool,
}

impl fmt::Debug for Nrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nrf({} instances, {} subscriptions)", self.instances.len(), self.subscriptions.len())
    }
}

impl Nrf {
    /// An NRF that knows itself alone.
    pub fn new(identity: NrfIdentity) -> Result<Self, NrfRefusal> {
        let json = serde_json::to_value(&identity.profile)
            .map_err(|e| NrfRefusal::new(500, "SYSTEM_FAILURE", e.to_string()))?;
        let stored = StoredProfile::read(json)?;
        let mut nrf = Self {
            identity,
            instances: BTreeMap::new(),
            octets: 0,
            subscriptions: BTreeMap::new(),
            notifications: VecDeque::new(),
            notifications_lost: 0,
            is_changed: false,
        };
        nrf.octets = stored.octets();
        let own = Instance {
            interval: Duration::ZERO,
            heard: Instant::ZERO,
            has_sent_heartbeat: false,
            is_suspended: false,
            is_own: true,
            stored,
        };
        nrf.instances.insert(own.stored.id(), own);
        Ok(nrf)
    }

    // Registration.

    /// NFRegister, and NFUpdate of a whole profile: `PUT /nf-instances/{id}` (TS 29.510 §5.2.2.2, §5.2.2.3.1).
    pub fn register(
        &mut self,
        now: Instant,
        id: &NfInstanceId,
        profile: StoredProfile,
    ) -> Result<Registered, NrfRefusal> {
        let id = lower_case(id);
        if profile.id() != id {
            let detail = "the profile is that of another instance than the path";
            return Err(NrfRefusal::new(400, "MANDATORY_IE_INCORRECT", detail).of("/nfInstanceId"));
        }
        let asked = profile.profile().heart_beat_timer.filter(|seconds| *seconds > 0);
        let granted = asked.unwrap_or(HEARTBEAT_DEFAULT_S).min(HEARTBEAT_MAX_S);
        let stored = profile.with("heartBeatTimer", granted.into())?;
        let before = self.instances.get(&id);
        if before.is_some_and(|instance| instance.is_own) {
            return Err(NrfRefusal::not_allowed("the instance is this NRF itself"));
        }
        let octets = self.octets - before.map_or(0, |instance| instance.stored.octets()) + stored.octets();
        if (before.is_none() && self.instances.len() >= INSTANCES_MAX) || octets > TOTAL_OCTETS_MAX {
            return Err(NrfRefusal::full("this NRF has as many profiles as it can keep"));
        }
        let event = match before {
            None => Some(NotificationEventType::NfRegistered),
            Some(instance) if instance.is_suspended || differs(&instance.stored.json(), &stored.json()) => {
                Some(NotificationEventType::NfProfileChanged)
            }
            Some(_) => None,
        };
        let is_new = before.is_none();
        let has_sent_heartbeat = before.is_some_and(|instance| instance.has_sent_heartbeat);
        let instance = Instance {
            stored,
            interval: Duration::from_secs(granted.into()),
            heard: now,
            has_sent_heartbeat,
            is_suspended: false,
            is_own: false,
        };
        let profile = instance.json();
        self.octets = octets;
        self.instances.insert(id.clone(), instance);
        self.is_changed = true;
        if let Some(event) = event {
            self.notify(&event, &id);
        }
        Ok(Registered { is_new, profile })
    }

    /// NFUpdate of some members, and heartbeats: `PATCH /nf-instances/{id}` (TS 29.510 §5.2.2.3).
    pub fn update(
        &mut self,
        now: Instant,
        id: &NfInstanceId,
        patch: &[PatchItem],
    ) -> Result<Updated, NrfRefusal> {
        let id = lower_case(id);
        let instance = self.instances.get_mut(&id).ok_or_else(NrfRefusal::not_found)?;
        if instance.is_own {
            return Err(NrfRefusal::not_allowed("the instance is this NRF itself"));
        }
        let stored = StoredProfile::read(patch::apply(&instance.stored.json(), patch)?)?;
        let (old, new) = (instance.stored.profile(), stored.profile());
        if stored.id() != id || old.nf_type != new.nf_type {
            return Err(NrfRefusal::not_allowed("identity and type of an instance do not change"));
        }
        let asked = new.heart_beat_timer.filter(|seconds| *seconds > 0).unwrap_or(HEARTBEAT_DEFAULT_S);
        let granted = asked.min(HEARTBEAT_MAX_S);
        let stored = stored.with("heartBeatTimer", granted.into())?;
        let octets = self.octets - instance.stored.octets() + stored.octets();
        if octets > TOTAL_OCTETS_MAX {
            return Err(NrfRefusal::full("this NRF has as many profiles as it can keep"));
        }
        let is_changed = instance.is_suspended || differs(&instance.stored.json(), &stored.json());
        self.octets = octets;
        instance.stored = stored;
        instance.interval = Duration::from_secs(granted.into());
        instance.heard = now;
        instance.has_sent_heartbeat = true;
        instance.is_suspended = false;
        let profile = instance.json();
        if is_changed {
            self.is_changed = true;
            self.notify(&NotificationEventType::NfProfileChanged, &id);
        }
        Ok(Updated { is_heartbeat: patch::is_heartbeat(patch), profile })
    }

    /// NFDeregister: `DELETE /nf-instances/{id}` (TS 29.510 §5.2.2.4).
    pub fn deregister(&mut self, id: &NfInstanceId) -> Result<(), NrfRefusal> {
        let id = lower_case(id);
        match self.instances.get(&id) {
            None => Err(NrfRefusal::not_found()),
            Some(instance) if instance.is_own => {
                Err(NrfRefusal::not_allowed("the instance is this NRF itself"))
            }
            Some(_) => {
                self.remove(&id);
                Ok(())
            }
        }
    }

    fn remove(&mut self, id: &NfInstanceId) {
        self.notify(&NotificationEventType::NfDeregistered, id);
        if let Some(instance) = self.instances.remove(id) {
            self.octets -= instance.stored.octets();
            self.is_changed = true;
        }
    }

    /// NFProfileRetrieval: `GET /nf-instances/{id}` (TS 29.510 §5.2.2.9).
    pub fn profile(&self, id: &NfInstanceId) -> Result<Value, NrfRefusal> {
        self.instances.get(&lower_case(id)).map(Instance::json).ok_or_else(NrfRefusal::not_found)
    }

    /// NFListRetrieval: `GET /nf-instances?…` (TS 29.510 §5.2.2.8). The identities that the query names, and the number of all that fit it.
    pub fn list(&self, query: &str) -> Result<(Vec<NfInstanceId>, usize), NrfRefusal> {
        let (nf_type, limit) = list_parameters(query)?;
        let is_of =
            |instance: &Instance| nf_type.as_ref().is_none_or(|t| *t == instance.stored.profile().nf_type);
        let all: Vec<_> =
            self.instances.iter().filter(|(_, instance)| is_of(instance)).map(|(id, _)| id.clone()).collect();
        let found = all.len();
        Ok((all.into_iter().take(limit.unwrap_or(found)).collect(), found))
    }

    /// Suspends and removes instances without heartbeats, and ends subscriptions.
    pub fn advance(&mut self, now: Instant) {
        let mut suspended = Vec::new();
        let mut removed = Vec::new();
        for (id, instance) in &mut self.instances {
            let ages = self.identity.demands_heartbeats || instance.has_sent_heartbeat;
            if instance.is_own || !ages {
                continue;
            }
            let silent = now.since(instance.heard);
            if silent > instance.interval * REMOVED_AFTER {
                removed.push(id.clone());
            } else if silent > instance.interval * SUSPENDED_AFTER + Duration::from_secs(1)
                && !instance.is_suspended
            {
                instance.is_suspended = true;
                suspended.push(id.clone());
            }
        }
        for id in suspended {
            self.notify(&NotificationEventType::NfProfileChanged, &id);
        }
        for id in removed {
            self.remove(&id);
        }
        let before = self.subscriptions.len();
        self.subscriptions.retain(|_, subscription| subscription.ends > now);
        self.is_changed |= self.subscriptions.len() != before;
    }

    /// Instances that are registered, without this NRF, and how many of them are suspended.
    pub fn counts(&self) -> (usize, usize) {
        let suspended = self.instances.values().filter(|instance| instance.is_suspended).count();
        (self.instances.len() - 1, suspended)
    }

    /// Octets of all profiles.
    pub fn octets(&self) -> usize {
        self.octets
    }

    // Discovery and tokens.

    /// NFDiscover: `GET /nf-instances?…` (TS 29.510 §5.3.2.2).
    pub fn discover(&self, query: &DiscoveryParameters) -> Value {
        let own = &self.identity.plmn;
        let fitting = self.instances.values().filter(|instance| {
            instance.is_discoverable() && discovery::fits(instance.stored.profile(), query, own)
        });
        discovery::search_result(fitting.map(|instance| &instance.stored).collect(), query, own)
    }

    /// Nnrf_AccessToken_Get: `POST /oauth2/token` (TS 29.510 §5.4.2.2). The claims of the token, which the caller signs.
    pub fn token(&self, now: Instant, form: &[u8]) -> Result<AccessTokenClaims, TokenRefusal> {
        let request = token::read_form(form)?;
        self.grant(now, &request)
    }

    /// The same for a form that was read.
    pub fn grant(
        &self,
        now: Instant,
        request: &whimbrel_sbi_types::nnrf::AccessTokenReq,
    ) -> Result<AccessTokenClaims, TokenRefusal> {
        let consumer = self.instances.get(&request.nf_instance_id).ok_or_else(|| {
            token::refuse(AccessTokenErrorCode::InvalidClient, "the instance is not registered")
        })?;
        let producers = self.instances.values().map(|instance| instance.stored.profile());
        let identity = (&self.identity.profile.nf_instance_id, &self.identity.plmn);
        token::grant(request, consumer.stored.profile(), producers, identity, now)
    }

    // Subscriptions.

    /// NFStatusSubscribe: `POST /subscriptions` (TS 29.510 §5.2.2.5). `name` identifies the subscription, and cannot be guessed.
    pub fn subscribe(
        &mut self,
        now: Instant,
        json: &Value,
        name: &SubscriptionId,
    ) -> Result<SubscriptionData, NrfRefusal> {
        let mut data: SubscriptionData = from_slice(&to_vec(json))?;
        check_condition(json, &data)?;
        if self.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return Err(NrfRefusal::full("this NRF has as many subscriptions as it can keep"));
        }
        let ends = end_of(now, data.validity_time);
        data.subscription_id = Some(name.clone());
        data.validity_time = Some(date_of(ends));
        data.nrf_supported_features =
            data.requester_features.as_ref().and_then(|_| SERVICE_MAP.to_string().parse().ok());
        self.subscriptions.insert(name.clone(), StatusSubscription { data: data.clone(), ends });
        self.is_changed = true;
        Ok(data)
    }

    /// Update of a subscription, whose validity alone can change: `PATCH /subscriptions/{id}` (TS 29.510 §5.2.2.5.6).
    pub fn renew(
        &mut self,
        now: Instant,
        name: &SubscriptionId,
        patch: &[PatchItem],
    ) -> Result<SubscriptionData, NrfRefusal> {
        let subscription = self.subscriptions.get_mut(name).ok_or_else(NrfRefusal::no_subscription)?;
        let mut ends = subscription.ends;
        for item in patch {
            let replaces = matches!(item.op, PatchOperation::Replace | PatchOperation::Add);
            if !replaces || item.path.as_str() != "/validityTime" {
                return Err(NrfRefusal::not_allowed("the validity of a subscription alone can be replaced"));
            }
            let time = item.value.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok());
            let time = time.ok_or_else(|| {
                NrfRefusal::new(400, "MANDATORY_IE_INCORRECT", "a time is expected").of("/validityTime")
            })?;
            ends = end_of(now, Some(time));
        }
        subscription.ends = ends;
        subscription.data.validity_time = Some(date_of(ends));
        self.is_changed = true;
        Ok(subscription.data.clone())
    }

    /// NFStatusUnsubscribe: `DELETE /subscriptions/{id}` (TS 29.510 §5.2.2.7).
    pub fn unsubscribe(&mut self, name: &SubscriptionId) -> Result<(), NrfRefusal> {
        self.subscriptions.remove(name).ok_or_else(NrfRefusal::no_subscription)?;
        self.is_changed = true;
        Ok(())
    }

    /// The instance that made a subscription, where it named itself.
    pub fn subscriber(&self, name: &SubscriptionId) -> Option<&NfInstanceId> {
        self.subscriptions.get(name)?.data.req_nf_instance_id.as_ref()
    }

    /// Puts notifications of an event of an instance into the queue: NFStatusNotify (TS 29.510 §5.2.2.6).
    fn notify(&mut self, event: &NotificationEventType, id: &NfInstanceId) {
        let Some(instance) = self.instances.get(id) else { return };
        let stored = &instance.stored;
        let subscribed =
            self.subscriptions.values().filter(|s| is_subscribed(&s.data, event, stored.profile()));
        let receivers: Vec<_> = subscribed
            .map(|s| {
                let features = s.data.requester_features.as_ref();
                (
                    s.data.nf_status_notification_uri.as_str().to_owned(),
                    features.is_some_and(|f| f.has(SERVICE_MAP)),
                )
            })
            .collect();
        // One body for those that read services as a map, and one for those that read the array.
        let mut bodies: [Option<Arc<[u8]>>; 2] = [None, None];
        for (uri, reads_map) in receivers {
            let body = bodies[usize::from(reads_map)].get_or_insert_with(|| {
                let mut body = json!({
                    "event": event.as_str(),
                    "nfInstanceUri": format!("{}/nnrf-nfm/v1/nf-instances/{id}", self.identity.root),
                });
                if *event != NotificationEventType::NfDeregistered {
                    let mut profile = instance.json();
                    if let Value::Object(members) = &mut profile {
                        discovery::keep_services(members, stored.profile(), |_| true, reads_map);
                    }
                    body["nfProfile"] = profile;
                }
                to_vec(&body).into()
            });
            if self.notifications.len() >= NOTIFICATIONS_MAX {
                self.notifications.pop_front();
                self.notifications_lost += 1;
            }
            self.notifications.push_back(StatusNotification { uri, body: body.clone() });
        }
    }

    /// The notifications that are to be sent since the last call.
    pub fn take_notifications(&mut self) -> Vec<StatusNotification> {
        self.notifications.drain(..).collect()
    }

    /// Notifications that were given up because too many waited.
    pub fn notifications_lost(&self) -> u64 {
        self.notifications_lost
    }

    // A restart.

    /// The state for the next start, if it has changed since the last call: a line of JSON for each profile and each subscription.
    pub fn take_changed(&mut self) -> Option<String> {
        core::mem::take(&mut self.is_changed).then(|| {
            let mut state = String::new();
            let mut line = |kind: &str, json: &str| state.push_str(&format!("{{\"{kind}\":{json}}}\n"));
            for instance in self.instances.values().filter(|instance| !instance.is_own) {
                line("profile", instance.stored.text());
            }
            for subscription in self.subscriptions.values() {
                line("subscription", &String::from_utf8_lossy(&to_vec(&subscription.data)));
            }
            state
        })
    }

    /// Takes the state of [`Nrf::take_changed`] after a restart. Each instance has a whole interval for its next heartbeat. Lines that cannot
    /// be used are left out; their number is the result.
    pub fn restore(&mut self, now: Instant, state: &str) -> usize {
        let left_out = state.lines().filter(|line| self.restore_line(now, line).is_none()).count();
        self.notifications.clear();
        self.is_changed = false;
        left_out
    }

    fn restore_line(&mut self, now: Instant, line: &str) -> Option<()> {
        let mut json: Value = serde_json::from_str(line).ok()?;
        if let Some(json) = json.get_mut("profile") {
            let profile = StoredProfile::read(json.take()).ok()?;
            let id = profile.id();
            return self.register(now, &id, profile).ok().map(drop);
        }
        let json = json.get("subscription")?;
        let name = json.get("subscriptionId")?.as_str()?.parse().ok()?;
        self.subscribe(now, json, &name).ok().map(drop)
    }
}

/// True if profiles differ in more than what a heartbeat has. Deviation from TS 29.510 §5.2.2.6: a load alone is not notified, of which each
/// heartbeat would have another.
fn differs(old: &Value, new: &Value) -> bool {
    const UNMONITORED: [&str; 3] = ["load", "loadTimeStamp", "heartBeatTimer"];
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return true };
    let monitored = |members: &serde_json::Map<String, Value>| -> BTreeMap<String, Value> {
        let kept = members.iter().filter(|(name, _)| !UNMONITORED.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    monitored(old) != monitored(new)
}

/// Refuses a condition of a kind that is not known: it must not apply to all instances (TS 29.510 §6.1.6.2.35).
fn check_condition(json: &Value, data: &SubscriptionData) -> Result<(), NrfRefusal> {
    let Some(condition) = &data.subscr_cond else { return Ok(()) };
    let known =
        [condition.nf_instance_id.is_some(), condition.nf_type.is_some(), condition.service_name.is_some()];
    let named = json.get("subscrCond").and_then(Value::as_object);
    // free5GC writes members that it does not use as null or as an empty text.
    let is_set = |value: &Value| !value.is_null() && value.as_str() != Some("");
    let named = named.map_or(0, |members| members.values().filter(|value| is_set(value)).count());
    match named == known.iter().filter(|known| **known).count() && named > 0 {
        true => Ok(()),
        false => {
            let detail = "conditions are nfInstanceId, nfType or serviceName here";
            Err(NrfRefusal::new(400, "OPTIONAL_IE_INCORRECT", detail).of("/subscrCond"))
        }
    }
}

fn is_subscribed(data: &SubscriptionData, event: &NotificationEventType, profile: &NfProfile) -> bool {
    let events = data.req_notif_events.as_deref().unwrap_or_default();
    let fits = data.subscr_cond.as_ref().is_none_or(|condition| {
        let is_instance =
            |id: &NfInstanceId| id.as_str().eq_ignore_ascii_case(profile.nf_instance_id.as_str());
        condition.nf_instance_id.as_ref().is_none_or(is_instance)
            && condition.nf_type.as_ref().is_none_or(|nf_type| *nf_type == profile.nf_type)
            && condition
                .service_name
                .as_ref()
                .is_none_or(|name| profile.services().any(|service| service.service_name == *name))
    });
    let plmns = data.plmn_id.as_slice();
    let nf_type: Option<&NfType> = data.req_nf_type.as_ref();
    // A subscriber without a PLMN is of this network, which profiles that name PLMNs have among them.
    let is_allowed = match plmns {
        [] => Requester { nf_type, plmns: profile.allowed_plmns.as_deref().unwrap_or_default() },
        plmns => Requester { nf_type, plmns },
    };
    (events.is_empty() || events.contains(event)) && fits && is_allowed.is_allowed_at(profile)
}

fn date_of(at: Instant) -> DateTime {
    DateTime::from_unix_ms(i64::try_from(at.0 / 1000).unwrap_or(i64::MAX))
}

/// The end of a subscription that asks for a time.
fn end_of(now: Instant, asked: Option<DateTime>) -> Instant {
    let longest = now + SUBSCRIBED_FOR;
    let asked =
        asked.map(|time| Instant(u64::try_from(time.unix_ms()).unwrap_or_default().saturating_mul(1000)));
    asked.map_or(longest, |asked| asked.min(longest))
}
