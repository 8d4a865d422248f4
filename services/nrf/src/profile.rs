//! A profile as it was received, beside what is read from it (TS 29.510 §6.1.6.2.2).

use core::net::IpAddr;

use serde_json::Value;
use whimbrel_sbi_types::common::{NfInstanceId, PlmnId};
use whimbrel_sbi_types::nnrf::{NfProfile, NfService, NfServiceStatus, NfType};
use whimbrel_sbi_types::{BoundedList, from_slice};

use crate::refusal::NrfRefusal;

/// Octets of a profile: as a server of these interfaces takes them in a body. Profiles of cores in use have 1 to 8 KiB.
pub const PROFILE_OCTETS_MAX: usize = 64 << 10;

/// A profile that can be stored.
///
/// The JSON stays text: parsed, small members take a hundred times the room that they have on the wire.
#[derive(Clone, Debug)]
pub struct StoredProfile {
    text: Box<str>,
    profile: NfProfile,
}

/// The function that asks, by the attributes that profiles may restrict (`allowedNfTypes`, `allowedPlmns`).
#[derive(Clone, Debug)]
pub struct Requester<'a> {
    /// Its type; without one each type is allowed.
    pub nf_type: Option<&'a NfType>,
    /// The networks to which it belongs.
    pub plmns: &'a [PlmnId],
}

impl Requester<'_> {
    fn is_allowed(
        &self,
        nf_types: Option<&BoundedList<NfType, 0>>,
        plmns: Option<&BoundedList<PlmnId, 0>>,
    ) -> bool {
        let by_type = |types: &BoundedList<NfType, 0>| {
            types.is_empty() || self.nf_type.is_none_or(|nf_type| types.contains(nf_type))
        };
        let by_plmn = |plmns: &BoundedList<PlmnId, 0>| {
            plmns.is_empty() || self.plmns.iter().any(|plmn| plmns.contains(plmn))
        };
        nf_types.is_none_or(by_type) && plmns.is_none_or(by_plmn)
    }

    /// True if an instance allows the function.
    pub fn is_allowed_at(&self, profile: &NfProfile) -> bool {
        self.is_allowed(profile.allowed_nf_types.as_ref(), profile.allowed_plmns.as_ref())
    }

    /// True if a service of an instance is registered and allows the function.
    pub fn is_served_by(&self, service: &NfService) -> bool {
        service.nf_service_status == NfServiceStatus::Registered
            && self.is_allowed(service.allowed_nf_types.as_ref(), service.allowed_plmns.as_ref())
    }
}

impl StoredProfile {
    /// Reads a profile. Refuses one that is too large, or whose known members are not of their types.
    pub fn read(json: Value) -> Result<Self, NrfRefusal> {
        let text = json.to_string();
        if text.len() > PROFILE_OCTETS_MAX {
            let detail = format!("a profile of more than {PROFILE_OCTETS_MAX} octets is not taken");
            return Err(NrfRefusal::new(413, "INVALID_MSG_FORMAT", detail));
        }
        let profile = from_slice(text.as_bytes())?;
        Ok(Self { text: text.into(), profile })
    }

    /// The profile as it was received.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The same as text, on one line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Octets of its JSON.
    pub fn octets(&self) -> usize {
        self.text.len()
    }

    /// The members that this core knows.
    pub fn profile(&self) -> &NfProfile {
        &self.profile
    }

    /// The instance's identity in lower case, as RFC 9562 §4 has UUIDs compared.
    pub fn id(&self) -> NfInstanceId {
        lower_case(&self.profile.nf_instance_id)
    }

    /// The same with another member.
    pub(crate) fn with(self, member: &str, value: Value) -> Result<Self, NrfRefusal> {
        let mut json = self.json();
        if let Value::Object(members) = &mut json {
            members.insert(member.into(), value);
        }
        Self::read(json)
    }

    /// Addresses at which the profile says that the instance or its services are reached, with ports where it has them, and URIs for
    /// notifications.
    pub fn addresses(&self) -> (Vec<(IpAddr, Option<u16>)>, Vec<&str>) {
        let profile = &self.profile;
        let v4 = profile.ipv4_addresses.iter().flat_map(|list| list.iter()).map(|ip| IpAddr::V4(*ip));
        let v6 = profile.ipv6_addresses.iter().flat_map(|list| list.iter()).map(|ip| IpAddr::V6(*ip));
        let mut addresses: Vec<_> = v4.chain(v6).map(|ip| (ip, None)).collect();
        let mut uris = Vec::new();
        // Both forms of the list, whichever a consumer reads.
        let listed = profile.nf_service_list.iter().flat_map(|map| map.values());
        let array = profile.nf_services.iter().flat_map(|list| list.iter());
        for service in listed.chain(array) {
            for point in service.ip_end_points.iter().flat_map(|list| list.iter()) {
                addresses.extend(point.ipv4_address.map(|ip| (IpAddr::V4(ip), point.port)));
                addresses.extend(point.ipv6_address.map(|ip| (IpAddr::V6(ip), point.port)));
            }
            let notified = service.default_notification_subscriptions.iter().flat_map(|list| list.iter());
            uris.extend(notified.map(|to| to.callback_uri.as_str()));
        }
        let notified = profile.default_notification_subscriptions.iter().flat_map(|list| list.iter());
        uris.extend(notified.map(|to| to.callback_uri.as_str()));
        (addresses, uris)
    }
}

/// An identity as it stands in the registry.
pub(crate) fn lower_case(id: &NfInstanceId) -> NfInstanceId {
    NfInstanceId::new(&id.as_str().to_ascii_lowercase()).unwrap_or_else(|_| id.clone())
}
