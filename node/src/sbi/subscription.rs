//! A subscription as the data sets of Nudm_SubscriberDataManagement (TS 29.503 §6.1.6), read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_control::config::{UpProtection, UpSecurity};
use whimbrel_control::udm::{
    Ambr, Arp, MobilityRestrictions, Priority, ServiceArea, SessionTypes, SubscribedDnn, SubscribedSlice,
    Subscription,
};
use whimbrel_ids::{Dnn, FiveQi, SNssai, Tac};
use whimbrel_nas::ie::SscMode;
use whimbrel_sbi_types::common as body;
use whimbrel_sbi_types::nudm_sdm::{
    AccessAndMobilitySubscriptionData, DnnConfiguration, DnnInfo, FrameRouteInfo, Nssai, PduSessionTypes,
    SessionManagementSubscriptionData, SmfSelectionSubscriptionData, SnssaiInfo, SscModes,
};
use whimbrel_sbi_types::{BoundedList, BoundedMap};

/// 5QI and ARP of a data network whose data set names none: those of the default bearer of ordinary traffic.
const DEFAULT_QOS: (FiveQi, Arp) = (FiveQi(9), Arp { priority: 8, may_preempt: false, preemptable: true });

/// The rate where no data set names one, 4 Tbit/s: the greatest that TS 38.413 §9.3.1.4 can carry.
const UNLIMITED: Ambr = Ambr { ul_kbps: 4_000_000_000, dl_kbps: 4_000_000_000 };

/// Reads a subscription from its data sets. A slice without data for its sessions has no data networks.
pub(crate) fn from_data_sets(
    am: &AccessAndMobilitySubscriptionData,
    selection: &SmfSelectionSubscriptionData,
    sessions: &[SessionManagementSubscriptionData],
) -> Subscription {
    let ue_ambr = am.subscribed_ue_ambr.as_ref().map_or(UNLIMITED, ambr);
    let of_selection = || {
        let infos = selection.subscribed_snssai_infos.iter().flat_map(|map| map.iter());
        infos.filter_map(|(key, _)| Some((key.snssai()?, true))).collect::<Vec<_>>()
    };
    // Without a list of slices, those in which a data network is subscribed are the defaults.
    let named = am.nssai.as_ref().map_or_else(of_selection, |nssai| {
        let defaults = nssai.default_single_nssais.iter().map(|s| (SNssai::from(*s), true));
        let others =
            nssai.single_nssais.iter().flat_map(|list| list.iter()).map(|s| (SNssai::from(*s), false));
        defaults.chain(others).collect()
    });
    let mut slices: Vec<SubscribedSlice> = Vec::new();
    for (s_nssai, default) in named {
        if slices.iter().all(|slice| slice.s_nssai != s_nssai) {
            let dnns = data_networks(s_nssai, selection, sessions, ue_ambr);
            slices.push(SubscribedSlice { s_nssai, default, dnns });
        }
    }
    Subscription {
        ue_ambr,
        slices,
        rfsp: am.rfsp_index.map(body::RfspIndex::value),
        restrictions: restrictions(am),
        priority: Priority { mps: am.mps_priority == Some(true), mcs: am.mcs_priority == Some(true) },
    }
}

/// The data networks of each slice.
pub(super) fn data_networks_of(selection: &SmfSelectionSubscriptionData) -> Vec<(SNssai, String)> {
    let infos = selection.subscribed_snssai_infos.iter().flat_map(|map| map.iter());
    let names = infos.filter_map(|(key, info)| Some((key.snssai()?, &info.dnn_infos)));
    names
        .flat_map(|(s_nssai, infos)| {
            // The wildcard DNN names no data network.
            let named = infos.iter().map(|info| info.dnn.as_str()).filter(|dnn| *dnn != "*");
            named.map(move |dnn| (s_nssai, dnn.to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

fn data_networks(
    s_nssai: SNssai,
    selection: &SmfSelectionSubscriptionData,
    sessions: &[SessionManagementSubscriptionData],
    ue_ambr: Ambr,
) -> Vec<SubscribedDnn> {
    let infos = selection.subscribed_snssai_infos.iter().flat_map(|map| map.iter());
    let infos: Vec<&DnnInfo> = infos
        .filter(|(key, _)| key.snssai() == Some(s_nssai))
        .flat_map(|(_, info)| info.dnn_infos.iter())
        .collect();
    let only_one = infos.len() == 1;
    let of_slice = sessions.iter().filter(|data| SNssai::from(data.single_nssai) == s_nssai);
    let configurations = of_slice.flat_map(|data| data.dnn_configurations.iter().flat_map(|map| map.iter()));
    let mut seen = BTreeSet::new();
    configurations
        // A UDM may answer each of several requests with the data of all.
        .filter(|(dnn, _)| seen.insert(dnn.as_str()))
        .filter_map(|(dnn, configuration)| {
            // The wildcard DNN admits names that only its network knows; here data networks are configured by name.
            let name: Dnn = dnn.as_str().parse().ok()?;
            let info = infos.iter().find(|info| info.dnn == *dnn);
            if info.is_some_and(|info| info.dnn_barred == Some(true)) {
                return None;
            }
            let default =
                info.map_or(infos.is_empty(), |info| info.default_dnn_indicator.unwrap_or(only_one));
            Some(data_network(name, default, configuration, ue_ambr))
        })
        .collect()
}

/// The priority that a body has.
pub(super) fn arp(arp: &body::SbiArp) -> Arp {
    Arp {
        priority: arp.priority_level.value(),
        may_preempt: arp.preempt_cap == body::PreemptionCapability::MayPreempt,
        preemptable: arp.preempt_vuln == body::PreemptionVulnerability::Preemptable,
    }
}

/// 5QI and priority of a default QoS flow, as a body; `None` for a priority that none can have.
pub(super) fn default_qos(five_qi: FiveQi, arp: Arp) -> Option<body::SubscribedDefaultQos> {
    let five_qi = body::FiveQi::new(five_qi.0)?;
    Some(body::SubscribedDefaultQos { five_qi, arp: arp_body(arp)?, priority_level: None })
}

/// A priority as a body; `None` for one that is none.
pub(super) fn arp_body(arp: Arp) -> Option<body::SbiArp> {
    Some(body::SbiArp {
        priority_level: body::ArpPriorityLevel::new(arp.priority)?,
        preempt_cap: match arp.may_preempt {
            true => body::PreemptionCapability::MayPreempt,
            false => body::PreemptionCapability::NotPreempt,
        },
        preempt_vuln: match arp.preemptable {
            true => body::PreemptionVulnerability::Preemptable,
            false => body::PreemptionVulnerability::NotPreemptable,
        },
    })
}

fn data_network(dnn: Dnn, default: bool, c: &DnnConfiguration, ue_ambr: Ambr) -> SubscribedDnn {
    let (five_qi, arp) = c
        .five_g_qos_profile
        .as_ref()
        .map_or(DEFAULT_QOS, |profile| (FiveQi(profile.five_qi.value()), arp(&profile.arp)));
    let addresses = || c.static_ip_address.iter().flat_map(|list| list.iter());
    let prefix = |address: &body::IpAddr| {
        let of_prefix = address.ipv6_prefix.as_ref().and_then(|p| p.as_str().split_once('/')?.0.parse().ok());
        of_prefix.or(address.ipv6_addr)
    };
    SubscribedDnn {
        dnn,
        default,
        session_types: session_types(&c.pdu_session_types),
        ssc_mode: match c.ssc_modes.default_ssc_mode {
            body::SscMode::SscMode2 => SscMode::Two,
            body::SscMode::SscMode3 => SscMode::Three,
            body::SscMode::SscMode1 | body::SscMode::Unknown(_) => SscMode::One,
        },
        five_qi,
        arp,
        session_ambr: c.session_ambr.as_ref().map_or(ue_ambr, ambr),
        static_ipv4: addresses().find_map(|address| address.ipv4_addr),
        static_ipv6: addresses().find_map(prefix).map(network_of),
        // Dedicated flows are the PCF's, not the UDM's.
        flows: Vec::new(),
        framed_routes: framed_routes(c),
        up_security: c.up_security.as_ref().and_then(|security| {
            let integrity = match security.up_integr {
                body::UpIntegrity::Required => UpProtection::Required,
                body::UpIntegrity::Preferred => UpProtection::Preferred,
                body::UpIntegrity::NotNeeded => UpProtection::NotNeeded,
                body::UpIntegrity::Unknown(_) => return None,
            };
            let confidentiality = match security.up_confid {
                body::UpConfidentiality::Required => UpProtection::Required,
                body::UpConfidentiality::Preferred => UpProtection::Preferred,
                body::UpConfidentiality::NotNeeded => UpProtection::NotNeeded,
                body::UpConfidentiality::Unknown(_) => return None,
            };
            Some(UpSecurity { integrity, confidentiality })
        }),
    }
}

/// The /64 of an address.
fn network_of(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))
}

fn session_types(types: &PduSessionTypes) -> SessionTypes {
    let allowed = types.allowed_session_types.iter().flat_map(|list| list.iter());
    let mut all = SessionTypes::NONE;
    for each in types.default_session_type.iter().chain(allowed) {
        match each {
            body::PduSessionType::Ipv4 => all.ipv4 = true,
            body::PduSessionType::Ipv6 => all.ipv6 = true,
            body::PduSessionType::Ipv4v6 => (all.ipv4, all.ipv6) = (true, true),
            body::PduSessionType::Ethernet => all.ethernet = true,
            body::PduSessionType::Unstructured => all.unstructured = true,
            body::PduSessionType::Unknown(_) => {}
        }
    }
    all
}

fn framed_routes(c: &DnnConfiguration) -> Vec<(IpAddr, u8)> {
    let ipv4 = c.ipv4_frame_route_list.iter().flat_map(|list| list.iter()).filter_map(|route| {
        let text = route.ipv4_mask.as_ref()?.as_str();
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        Some((address.parse::<Ipv4Addr>().ok()?.into(), length.parse().ok()?))
    });
    let ipv6 = c.ipv6_frame_route_list.iter().flat_map(|list| list.iter()).filter_map(|route| {
        let (address, length) = route.ipv6_prefix.as_ref()?.as_str().split_once('/')?;
        Some((address.parse::<Ipv6Addr>().ok()?.into(), length.parse().ok()?))
    });
    ipv4.chain(ipv6).collect()
}

fn restrictions(am: &AccessAndMobilitySubscriptionData) -> MobilityRestrictions {
    let tacs = |areas: &[body::Area]| -> Vec<Tac> {
        let tacs = areas.iter().flat_map(|area| area.tacs.iter().flat_map(|list| list.iter()));
        tacs.map(|tac| Tac::from(*tac)).collect()
    };
    let rats = [&am.rat_restrictions, &am.primary_rat_restrictions];
    MobilityRestrictions {
        nr_barred: rats.into_iter().flatten().any(|list| list.contains(&body::RatType::Nr)),
        forbidden_areas: am.forbidden_areas.as_deref().map(tacs).unwrap_or_default(),
        service_area: am.service_area_restriction.as_ref().and_then(|restriction| {
            let areas = tacs(restriction.areas.as_deref()?);
            match restriction.restriction_type.as_ref()? {
                body::RestrictionType::AllowedAreas => Some(ServiceArea::Allowed(areas)),
                body::RestrictionType::NotAllowedAreas => Some(ServiceArea::NotAllowed(areas)),
                body::RestrictionType::Unknown(_) => None,
            }
        }),
    }
}

/// Rates of another interface in bit/s are rounded up.
pub(super) fn ambr(rates: &body::SbiAmbr) -> Ambr {
    Ambr { ul_kbps: rates.uplink.0.div_ceil(1000), dl_kbps: rates.downlink.0.div_ceil(1000) }
}

pub(super) fn rates(ambr: Ambr) -> body::SbiAmbr {
    let bits = |kbps: u64| body::SbiBitRate(kbps.saturating_mul(1000));
    body::SbiAmbr { uplink: bits(ambr.ul_kbps), downlink: bits(ambr.dl_kbps) }
}

/// `am-data` of a subscription.
pub(crate) fn am_data(s: &Subscription) -> AccessAndMobilitySubscriptionData {
    let area = |tacs: &[Tac]| body::Area {
        tacs: BoundedList::new(tacs.iter().map(|tac| (*tac).into()).collect()),
        area_code: None,
    };
    let service_area = s.restrictions.service_area.as_ref().map(|allowed| {
        let (restriction_type, tacs) = match allowed {
            ServiceArea::Allowed(tacs) => (body::RestrictionType::AllowedAreas, tacs),
            ServiceArea::NotAllowed(tacs) => (body::RestrictionType::NotAllowedAreas, tacs),
        };
        body::ServiceAreaRestriction {
            restriction_type: Some(restriction_type),
            areas: BoundedList::new(if tacs.is_empty() { vec![] } else { vec![area(tacs)] }),
            max_num_of_tas: None,
            max_num_of_tas_for_not_allowed_areas: None,
        }
    });
    let forbidden = &s.restrictions.forbidden_areas;
    AccessAndMobilitySubscriptionData {
        subscribed_ue_ambr: Some(rates(s.ue_ambr)),
        nssai: nssai(s),
        rat_restrictions: s
            .restrictions
            .nr_barred
            .then(|| BoundedList::new(vec![body::RatType::Nr]))
            .flatten(),
        forbidden_areas: (!forbidden.is_empty()).then(|| BoundedList::new(vec![area(forbidden)])).flatten(),
        service_area_restriction: service_area,
        rfsp_index: s.rfsp.and_then(body::RfspIndex::new),
        mps_priority: s.priority.mps.then_some(true),
        mcs_priority: s.priority.mcs.then_some(true),
        ..Default::default()
    }
}

/// `nssai` of a subscription; `None` if no slice is a default one.
pub(crate) fn nssai(s: &Subscription) -> Option<Nssai> {
    let of = |default: bool| -> Vec<body::Snssai> {
        s.slices.iter().filter(|slice| slice.default == default).map(|slice| slice.s_nssai.into()).collect()
    };
    let others = of(false);
    Some(Nssai {
        supported_features: None,
        default_single_nssais: BoundedList::new(of(true))?,
        single_nssais: (!others.is_empty()).then(|| BoundedList::new(others)).flatten(),
        provisioning_time: None,
        additional_snssai_data: None,
        suppress_nssrg_ind: None,
    })
}

/// `smf-select-data` of a subscription.
pub(crate) fn smf_selection(s: &Subscription) -> SmfSelectionSubscriptionData {
    let info = |d: &SubscribedDnn| DnnInfo {
        dnn: (&body::Dnn::from(&d.dnn)).into(),
        default_dnn_indicator: d.default.then_some(true),
        lbo_roaming_allowed: None,
        iwk_eps_ind: None,
        dnn_barred: None,
        invoke_nef_ind: None,
        smf_list: None,
        same_smf_ind: None,
    };
    let infos: BTreeMap<_, _> = s
        .slices
        .iter()
        .filter_map(|slice| {
            let dnn_infos = BoundedList::new(slice.dnns.iter().map(info).collect())?;
            Some((slice.s_nssai.into(), SnssaiInfo { dnn_infos }))
        })
        .collect();
    SmfSelectionSubscriptionData { subscribed_snssai_infos: BoundedMap::new(infos), ..Default::default() }
}

/// `sm-data` of a subscription, for all slices.
pub(crate) fn sm_data(s: &Subscription) -> Vec<SessionManagementSubscriptionData> {
    let of_slice = |slice: &SubscribedSlice| SessionManagementSubscriptionData {
        single_nssai: slice.s_nssai.into(),
        dnn_configurations: BoundedMap::new(
            slice.dnns.iter().map(|d| ((&body::Dnn::from(&d.dnn)).into(), configuration(d))).collect(),
        ),
        internal_group_ids: None,
        shared_dnn_configurations_id: None,
        odb_packet_services: None,
        charging_characteristics: None,
        supported_features: None,
    };
    s.slices.iter().map(of_slice).collect()
}

fn configuration(d: &SubscribedDnn) -> DnnConfiguration {
    let SessionTypes { ipv4, ipv6, ethernet, unstructured } = d.session_types;
    let types = [
        (ipv4, body::PduSessionType::Ipv4),
        (ipv6, body::PduSessionType::Ipv6),
        (ipv4 && ipv6, body::PduSessionType::Ipv4v6),
        (ethernet, body::PduSessionType::Ethernet),
        (unstructured, body::PduSessionType::Unstructured),
    ];
    let types: Vec<_> = types.into_iter().filter(|(allowed, _)| *allowed).map(|(_, name)| name).collect();
    let ssc = match d.ssc_mode {
        SscMode::Two => body::SscMode::SscMode2,
        SscMode::Three => body::SscMode::SscMode3,
        _ => body::SscMode::SscMode1,
    };
    let mode_1 =
        (ssc != body::SscMode::SscMode1).then(|| BoundedList::new(vec![body::SscMode::SscMode1])).flatten();
    let address = |ipv4, ipv6: Option<Ipv6Addr>| body::IpAddr {
        ipv4_addr: ipv4,
        ipv6_addr: None,
        ipv6_prefix: ipv6.and_then(|prefix| format!("{prefix}/64").parse().ok()),
    };
    let statics: Vec<body::IpAddr> = [
        d.static_ipv4.map(|ipv4| address(Some(ipv4), None)),
        d.static_ipv6.map(|prefix| address(None, Some(prefix))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let routes = |ipv4: bool| -> Vec<FrameRouteInfo> {
        let of_family = d.framed_routes.iter().filter(|(address, _)| address.is_ipv4() == ipv4);
        let route = |(address, length): &(IpAddr, u8)| {
            let text = format!("{address}/{length}");
            match ipv4 {
                true => FrameRouteInfo { ipv4_mask: text.parse().ok(), ipv6_prefix: None },
                false => FrameRouteInfo { ipv4_mask: None, ipv6_prefix: text.parse().ok() },
            }
        };
        of_family.map(route).collect()
    };
    let some = |list: Vec<FrameRouteInfo>| (!list.is_empty()).then(|| BoundedList::new(list)).flatten();
    DnnConfiguration {
        pdu_session_types: PduSessionTypes {
            default_session_type: types.first().cloned(),
            allowed_session_types: BoundedList::new(types),
        },
        ssc_modes: SscModes { default_ssc_mode: ssc, allowed_ssc_modes: mode_1 },
        iwk_eps_ind: None,
        five_g_qos_profile: default_qos(d.five_qi, d.arp),
        session_ambr: Some(rates(d.session_ambr)),
        charging_characteristics: None,
        static_ip_address: (!statics.is_empty()).then(|| BoundedList::new(statics)).flatten(),
        up_security: d.up_security.map(|security| body::SbiUpSecurity {
            up_integr: match security.integrity {
                UpProtection::Required => body::UpIntegrity::Required,
                UpProtection::Preferred => body::UpIntegrity::Preferred,
                UpProtection::NotNeeded => body::UpIntegrity::NotNeeded,
            },
            up_confid: match security.confidentiality {
                UpProtection::Required => body::UpConfidentiality::Required,
                UpProtection::Preferred => body::UpConfidentiality::Preferred,
                UpProtection::NotNeeded => body::UpConfidentiality::NotNeeded,
            },
        }),
        pdu_session_continuity_ind: None,
        redundant_session_allowed: None,
        ipv4_frame_route_list: some(routes(true)),
        ipv6_frame_route_list: some(routes(false)),
        atsss_allowed: None,
        secondary_auth: None,
        dn_aaa_ip_address_allocation: None,
        dn_aaa_address: None,
        dn_aaa_fqdn: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Subscription {
        let dnn = |name: &str, default: bool, session_types| SubscribedDnn {
            dnn: name.parse().unwrap(),
            default,
            session_types,
            ssc_mode: if default { SscMode::One } else { SscMode::Three },
            five_qi: FiveQi(if default { 9 } else { 5 }),
            arp: Arp { priority: 3, may_preempt: default, preemptable: !default },
            session_ambr: Ambr { ul_kbps: 1_500, dl_kbps: 2_000_000 },
            static_ipv4: default.then_some([10, 45, 0, 7].into()),
            static_ipv6: default.then_some("2001:db8:1:7::".parse().unwrap()),
            flows: Vec::new(),
            framed_routes: if default {
                vec![([192, 0, 2, 0].into(), 24), ("2001:db8:2::".parse().unwrap(), 48)]
            } else {
                Vec::new()
            },
            up_security: (!default).then_some(UpSecurity {
                integrity: UpProtection::Required,
                confidentiality: UpProtection::NotNeeded,
            }),
        };
        let area = ServiceArea::NotAllowed(vec![Tac::new(7).unwrap()]);
        Subscription {
            ue_ambr: Ambr { ul_kbps: 1_000_000, dl_kbps: 4_000_001 },
            slices: vec![
                SubscribedSlice {
                    s_nssai: SNssai::sst(1),
                    default: true,
                    dnns: vec![
                        dnn("ims", false, SessionTypes { ethernet: true, ..SessionTypes::IP }),
                        dnn("internet", true, SessionTypes::IP),
                    ],
                },
                SubscribedSlice {
                    s_nssai: "2-0000ab".parse().unwrap(),
                    default: false,
                    dnns: vec![dnn("internet", true, SessionTypes { ipv4: true, ..SessionTypes::NONE })],
                },
            ],
            rfsp: Some(256),
            restrictions: MobilityRestrictions {
                nr_barred: true,
                forbidden_areas: vec![Tac::new(1).unwrap(), Tac::new(0xff_fffe).unwrap()],
                service_area: Some(area),
            },
            priority: Priority { mps: true, mcs: false },
        }
    }

    #[test]
    fn a_subscription_is_read_as_it_is_written() {
        let written = example();
        let octets = |body: Vec<u8>| String::from_utf8(body).unwrap();
        let am = octets(whimbrel_sbi_types::to_vec(&am_data(&written)));
        let selection = octets(whimbrel_sbi_types::to_vec(&smf_selection(&written)));
        let sessions = octets(whimbrel_sbi_types::to_vec(&sm_data(&written)));
        let read = from_data_sets(
            &whimbrel_sbi_types::from_slice(am.as_bytes()).unwrap(),
            &whimbrel_sbi_types::from_slice(selection.as_bytes()).unwrap(),
            &whimbrel_sbi_types::from_slice::<Vec<_>>(sessions.as_bytes()).unwrap(),
        );
        assert_eq!(read, written, "{am} {selection} {sessions}");
    }

    #[test] // what a UDM may leave out (TS 29.503 §6.1.6.2.4, §6.1.6.2.9)
    fn data_sets_with_nothing_but_what_is_mandatory_are_read() {
        let selection = r#"{"subscribedSnssaiInfos":{"1":{"dnnInfos":[{"dnn":"internet"}]}}}"#;
        let sessions = r#"[{"singleNssai":{"sst":1},"dnnConfigurations":{"internet":{
            "pduSessionTypes":{"defaultSessionType":"IPV4"},"sscModes":{"defaultSscMode":"SSC_MODE_1"}}}}]"#;
        let read = from_data_sets(
            &whimbrel_sbi_types::from_slice(b"{}").unwrap(),
            &whimbrel_sbi_types::from_slice(selection.as_bytes()).unwrap(),
            &whimbrel_sbi_types::from_slice::<Vec<_>>(sessions.as_bytes()).unwrap(),
        );
        let slice = &read.slices[0];
        assert_eq!((slice.s_nssai, slice.default, read.ue_ambr), (SNssai::sst(1), true, UNLIMITED));
        let internet = &slice.dnns[0];
        assert!(internet.default && internet.session_types.ipv4 && !internet.session_types.ipv6);
        assert_eq!((internet.five_qi, internet.session_ambr), (FiveQi(9), UNLIMITED));
    }
}
