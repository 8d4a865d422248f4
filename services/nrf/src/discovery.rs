//! The instances that fit a discovery: TS 29.510 §5.3.2.2, §6.2.3.2.3.1.
//!
//! An attribute that a profile lacks excludes nothing: the instance serves all slices, areas and subscribers (TS 29.510 §6.1.6.2).

use serde_json::{Map, Value, json};
use whimbrel_sbi_types::BoundedList;
use whimbrel_sbi_types::common::{ExtSnssai, PlmnId, Snssai, Tai};
use whimbrel_sbi_types::nnrf::{
    AmfInfo, DnnSmfInfoItem, DnnUpfInfoItem, NfProfile, NfService, SmfInfo, SupiRange, TaiRange, UpfInfo,
};

use crate::profile::{Requester, StoredProfile};
use crate::query::DiscoveryParameters;

/// Seconds for which a consumer may keep an answer: three heartbeats, after which an instance that is lost is suspended anyway.
pub const VALIDITY_PERIOD_S: u32 = 30;

/// Feature of Nnrf_NFDiscovery: the consumer reads services as a map, `nfServiceList` (TS 29.510 §6.2.9).
const SERVICE_MAP: u32 = 6;

/// True if an instance that is registered fits the query. `own` is the network of this NRF.
pub fn fits(profile: &NfProfile, query: &DiscoveryParameters, own: &PlmnId) -> bool {
    let requester = requester(query, own);
    profile.nf_type == query.target_nf_type
        && requester.is_allowed_at(profile)
        && query
            .target_nf_instance_id
            .as_ref()
            .is_none_or(|id| id.as_str().eq_ignore_ascii_case(profile.nf_instance_id.as_str()))
        && has_service(profile, query, &requester)
        && serves_plmn(profile, &query.target_plmn_list, own)
        && serves_slices(profile, query)
        && serves_dnn(profile, query)
        && is_amf_of(profile.amf_info.as_ref(), query)
        && query.tai.as_ref().is_none_or(|tai| serves_tai(profile, tai))
        && serves_subscriber(profile, query)
}

fn requester<'a>(query: &'a DiscoveryParameters, own: &'a PlmnId) -> Requester<'a> {
    let plmns = match query.requester_plmn_list.as_slice() {
        [] => core::slice::from_ref(own),
        list => list,
    };
    Requester { nf_type: Some(&query.requester_nf_type), plmns }
}

fn is_requested(service: &NfService, query: &DiscoveryParameters, requester: &Requester<'_>) -> bool {
    let is_named = query.service_names.is_empty() || query.service_names.contains(&service.service_name);
    is_named && requester.is_served_by(service)
}

fn has_service(profile: &NfProfile, query: &DiscoveryParameters, requester: &Requester<'_>) -> bool {
    query.service_names.is_empty()
        || profile.services().any(|service| is_requested(service, query, requester))
}

fn entries<T, const MIN: usize>(list: &Option<BoundedList<T, MIN>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

fn serves_plmn(profile: &NfProfile, targets: &[PlmnId], own: &PlmnId) -> bool {
    let plmns = match entries(&profile.plmn_list) {
        [] => core::slice::from_ref(own),
        list => list,
    };
    targets.is_empty() || targets.iter().any(|plmn| plmns.contains(plmn))
}

fn is_slice(served: &ExtSnssai, asked: &Snssai) -> bool {
    let in_range = || {
        let ranges = served.sd_ranges.iter().flat_map(|ranges| ranges.iter());
        ranges.into_iter().any(|range| {
            asked.sd.is_some_and(|sd| {
                range.start.is_none_or(|start| start <= sd) && range.end.is_none_or(|end| sd <= end)
            })
        })
    };
    served.sst == asked.sst && (served.sd == asked.sd || served.wildcard_sd == Some(true) || in_range())
}

fn serves_slices(profile: &NfProfile, query: &DiscoveryParameters) -> bool {
    let mut served = entries(&profile.s_nssais)
        .iter()
        .chain(entries(&profile.per_plmn_snssai_list).iter().flat_map(|of_plmn| of_plmn.s_nssai_list.iter()));
    let has_none = entries(&profile.s_nssais).is_empty() && entries(&profile.per_plmn_snssai_list).is_empty();
    query.snssais.is_empty()
        || has_none
        || served.any(|served| query.snssais.iter().any(|asked| is_slice(served, asked)))
}

/// Compares the network identifiers of two DNNs; the operator identifier may be missing (TS 23.003 §9.1).
fn is_dnn(served: &str, asked: &str) -> bool {
    let identifier = |dnn: &str| {
        let dnn = dnn.to_ascii_lowercase();
        let operator = dnn.strip_suffix(".gprs").and_then(|rest| rest.rfind(".mnc"));
        operator.map_or(dnn.clone(), |at| dnn.get(..at).unwrap_or_default().to_owned())
    };
    served == "*" || identifier(served) == identifier(asked)
}

/// Slices and data networks that belong together in the information of an SMF or a UPF.
fn serves_dnn(profile: &NfProfile, query: &DiscoveryParameters) -> bool {
    let asked = query.dnn.as_ref();
    let fits_dnn = |dnn: &str| asked.is_none_or(|asked| is_dnn(dnn, asked.as_str()));
    let fits_slice = |slice: &ExtSnssai| {
        query.snssais.is_empty() || query.snssais.iter().any(|asked| is_slice(slice, asked))
    };
    let smf = |info: &SmfInfo| {
        info.s_nssai_smf_info_list.iter().any(|item| {
            let mut dnns = item.dnn_smf_info_list.iter().map(|DnnSmfInfoItem { dnn, .. }| dnn.as_str());
            fits_slice(&item.s_nssai) && dnns.any(fits_dnn)
        })
    };
    let upf = |info: &UpfInfo| {
        info.s_nssai_upf_info_list.iter().any(|item| {
            let mut dnns = item.dnn_upf_info_list.iter().map(|DnnUpfInfoItem { dnn, .. }| dnn.as_str());
            fits_slice(&item.s_nssai) && dnns.any(fits_dnn)
        })
    };
    if asked.is_none() && query.snssais.is_empty() {
        return true;
    }
    let pcf = profile.pcf_info.as_ref().map(|info| entries(&info.dnn_list)).unwrap_or_default();
    smf_infos(profile).is_none_or(|mut infos| infos.any(smf))
        && profile.upf_info.as_ref().is_none_or(upf)
        && (pcf.is_empty() || pcf.iter().any(|dnn| fits_dnn(dnn.as_str())))
}

/// The information of an SMF; `None` if there is none.
fn smf_infos(profile: &NfProfile) -> Option<impl Iterator<Item = &SmfInfo>> {
    let listed = profile.smf_info_list.iter().flat_map(|map| map.values());
    let mut all = profile.smf_info.iter().chain(listed).peekable();
    all.peek().is_some().then_some(all)
}

fn is_amf_of(info: Option<&AmfInfo>, query: &DiscoveryParameters) -> bool {
    if query.amf_set_id.is_none() && query.amf_region_id.is_none() && query.guami.is_none() {
        return true;
    }
    info.is_some_and(|info| {
        query.amf_set_id.is_none_or(|set| info.amf_set_id == set)
            && query.amf_region_id.is_none_or(|region| info.amf_region_id == region)
            && query.guami.as_ref().is_none_or(|guami| info.guami_list.contains(guami))
    })
}

fn serves_tai(profile: &NfProfile, tai: &Tai) -> bool {
    let fits = |list: &Option<BoundedList<Tai, 0>>, ranges: &Option<BoundedList<TaiRange, 0>>| {
        let (list, ranges) = (entries(list), entries(ranges));
        (list.is_empty() && ranges.is_empty())
            || list.contains(tai)
            || ranges.iter().any(|range| is_in_range(range, tai))
    };
    let amf = profile.amf_info.as_ref().is_none_or(|info| fits(&info.tai_list, &info.tai_range_list));
    let smf = smf_infos(profile)
        .is_none_or(|mut infos| infos.any(|info| fits(&info.tai_list, &info.tai_range_list)));
    let upf = profile.upf_info.as_ref().is_none_or(|info| fits(&info.tai_list, &info.tai_range_list));
    amf && smf && upf
}

fn is_in_range(range: &TaiRange, tai: &Tai) -> bool {
    let number =
        |tac: &whimbrel_sbi_types::common::Tac| u32::from_str_radix(&tac.to_string(), 16).unwrap_or_default();
    let asked = number(&tai.tac);
    let has = |start: &Option<_>, end: &Option<_>| match (start, end) {
        (Some(start), Some(end)) => (number(start)..=number(end)).contains(&asked),
        // A pattern is not evaluated, and excludes nothing.
        _ => true,
    };
    range.plmn_id == tai.plmn_id
        && range.nid == tai.nid
        && range.tac_range_list.iter().any(|range| has(&range.start, &range.end))
}

fn serves_subscriber(profile: &NfProfile, query: &DiscoveryParameters) -> bool {
    let udm = profile.udm_info.as_ref();
    let ausf = profile.ausf_info.as_ref();
    let ranges = [
        udm.map(|info| &info.supi_ranges),
        ausf.map(|info| &info.supi_ranges),
        profile.udr_info.as_ref().map(|info| &info.supi_ranges),
        profile.pcf_info.as_ref().map(|info| &info.supi_ranges),
        profile.chf_info.as_ref().map(|info| &info.supi_range_list),
    ];
    let mut ranges = ranges.into_iter().flatten().map(entries);
    let supi = query.supi.as_ref().and_then(|supi| supi.as_str().strip_prefix("imsi-"));
    let serves_supi = supi.is_none_or(|digits| {
        ranges.all(|list| list.is_empty() || list.iter().any(|range| has(range, digits)))
    });
    let indicators = [udm.map(|info| &info.routing_indicators), ausf.map(|info| &info.routing_indicators)];
    let mut indicators = indicators.into_iter().flatten().map(entries);
    let serves_indicator = query
        .routing_indicator
        .as_ref()
        .is_none_or(|asked| indicators.all(|list| list.is_empty() || list.contains(asked)));
    serves_supi && serves_indicator
}

fn has(range: &SupiRange, digits: &str) -> bool {
    match (&range.start, &range.end) {
        (Some(start), Some(end)) => {
            let (start, end) = (start.as_str(), end.as_str());
            let is_as_long = start.len() == digits.len() && end.len() == digits.len();
            is_as_long && start <= digits && digits <= end
        }
        // A pattern is not evaluated, and excludes nothing.
        _ => true,
    }
}

/// The profile as an answer has it: with the services that were asked for, and that allow the requester.
pub fn answered(stored: &StoredProfile, query: &DiscoveryParameters, own: &PlmnId) -> Value {
    let requester = requester(query, own);
    let profile = stored.profile();
    let is_requested = |service: &NfService| is_requested(service, query, &requester);
    let reads_map = query.requester_features.as_ref().is_some_and(|features| features.has(SERVICE_MAP));
    let mut json = stored.json();
    if let Value::Object(members) = &mut json {
        keep_services(members, profile, is_requested, reads_map);
    }
    json
}

/// Members of a profile whose services are in one form alone: the map for consumers that read it, or the array (TS 29.510 §6.2.6.2.3).
pub(crate) fn keep_services(
    members: &mut Map<String, Value>,
    profile: &NfProfile,
    is_requested: impl Fn(&NfService) -> bool,
    reads_map: bool,
) {
    let mut array = None;
    if let (Some(Value::Array(json)), Some(services)) = (members.remove("nfServices"), &profile.nf_services) {
        let kept = json.into_iter().zip(services.iter()).filter(|(_, service)| is_requested(service));
        array = Some(kept.map(|(json, _)| json).collect::<Vec<_>>());
    }
    let map = members.remove("nfServiceList");
    if let (Some(Value::Object(json)), Some(services)) = (map, &profile.nf_service_list) {
        let is_kept =
            |key: &str| services.iter().any(|(of, service)| of.as_str() == key && is_requested(service));
        let kept: Map<String, Value> = json.into_iter().filter(|(key, _)| is_kept(key)).collect();
        if reads_map {
            if !kept.is_empty() {
                members.insert("nfServiceList".into(), Value::Object(kept));
            }
            return;
        }
        array = Some(kept.into_iter().map(|(_, service)| service).collect());
    }
    if let Some(array) = array.filter(|array| !array.is_empty()) {
        members.insert("nfServices".into(), Value::Array(array));
    }
}

/// The answer with these instances, of which there are `found`.
pub(crate) fn search_result(
    mut instances: Vec<&StoredProfile>,
    query: &DiscoveryParameters,
    own: &PlmnId,
) -> Value {
    // By priority, then by load.
    instances.sort_by_key(|stored| {
        let profile = stored.profile();
        (profile.priority.unwrap_or(u16::MAX), profile.load.map_or(0, |load| load.value()))
    });
    let found = instances.len();
    let mut octets = 0;
    let kept: Vec<Value> = instances
        .into_iter()
        .take(query.limit.unwrap_or(usize::MAX))
        .map_while(|stored| {
            octets += stored.octets() + 1;
            // The members around the instances have some hundred octets.
            (octets + 128 <= query.payload_octets_max).then(|| answered(stored, query, own))
        })
        .collect();
    let mut result = json!({"validityPeriod": VALIDITY_PERIOD_S});
    if kept.len() < found {
        result["numNfInstComplete"] = found.into();
    }
    if query.requester_features.is_some() {
        // Feature 6 alone.
        result["nrfSupportedFeatures"] = "20".into();
    }
    result["nfInstances"] = Value::Array(kept);
    result
}
