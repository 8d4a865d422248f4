//! Messages as an independent codec encodes them (testdata/generate.py): each decodes to what it was built from, and
//! encodes to the same octets again.

use super::common;

use std::collections::BTreeSet;
use std::fmt::Write;

use common::{hex, unhex};
use whimbrel_ids::{Guti, SNssai};
use whimbrel_nas::ie::*;
use whimbrel_nas::{Envelope, HalfIe, Ie, mm, sm};

const VECTORS: &str = include_str!("../testdata/vectors.txt");

/// Messages of the standard that this crate does not hold would be a gap; each type has its vectors.
#[test]
fn vectors_decode_to_what_they_say_and_encode_back() {
    let mut types = BTreeSet::new();
    let mut wrong = String::new();
    for (n, line) in VECTORS.lines().enumerate().filter(|(_, l)| !l.starts_with('#')) {
        let mut words = line.split(' ');
        let (octets, title) = (unhex(words.next().unwrap()), words.next().unwrap().replace('_', " "));
        let decoded =
            match Envelope::parse(&octets).unwrap() {
                Envelope::PlainMm(o) => mm::Message::decode(o)
                    .map(|m| (m.message_type().to_string(), m.to_octets(), describe_mm(&m))),
                Envelope::PlainSm(o) => sm::Message::decode(o)
                    .map(|m| (m.message_type().to_string(), m.to_octets(), describe_sm(&m))),
                Envelope::Protected(_) => unreachable!("vectors are plain"),
            };
        let n = n + 1;
        match decoded {
            Err(e) => writeln!(wrong, "line {n}: {title}: {e}").unwrap(),
            Ok((name, again, facts)) => {
                types.insert(name.clone());
                if name != title {
                    writeln!(wrong, "line {n}: {title} read as {name}").unwrap();
                }
                if again != octets {
                    writeln!(wrong, "line {n}: {title}\n   was {}\n   now {}", hex(&octets), hex(&again))
                        .unwrap();
                }
                for field in words.map(|w| w.replace('_', " ")) {
                    let norm = |s: &str| s.replace('_', " ");
                    if !facts.iter().any(|f| norm(f) == field) {
                        writeln!(wrong, "line {n}: {title}: no {field} among {facts:?}").unwrap();
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(types.len(), mm::MessageType::ALL.len() + sm::MessageType::ALL.len(), "a type has no vector");
}

fn join<T>(items: impl IntoIterator<Item = T>, f: impl Fn(T) -> String) -> String {
    items.into_iter().map(f).collect::<Vec<_>>().join(",")
}

fn slice(s: MappedSNssai) -> String {
    s.mapped_hplmn.map_or(s.s_nssai.to_string(), |m| format!("{}:{m}", s.s_nssai))
}

fn guti(g: &Guti) -> String {
    let a = g.guami.amf_id;
    format!("{}-{}-{}-{}-{:?}", g.guami.plmn, a.region, a.set(), a.pointer(), g.tmsi)
}

fn identity(id: &MobileIdentity) -> Vec<String> {
    match id {
        MobileIdentity::NoIdentity => vec!["id=none".into()],
        MobileIdentity::Guti(g) => vec!["id=guti".into(), format!("guti={}", guti(g))],
        MobileIdentity::Pei(p) => {
            vec![format!("id=imei{}", if p.is_imeisv() { "sv" } else { "" }), format!("pei={p}")]
        }
        MobileIdentity::STmsi(s) => {
            vec!["id=s-tmsi".into(), format!("s_tmsi={}-{}-{:?}", s.set, s.pointer, s.tmsi)]
        }
        MobileIdentity::MacAddress { address, not_usable } => {
            vec![format!("mac={}/{not_usable}", hex(address))]
        }
        MobileIdentity::Eui64(e) => vec![format!("eui64={}", hex(e))],
        MobileIdentity::Suci(suci) => suci_facts(suci),
    }
}

fn suci_facts(suci: &Suci) -> Vec<String> {
    let mut facts = vec!["id=suci".to_owned()];
    match suci {
        Suci::Imsi { routing_indicator, output, .. } => {
            facts.push(format!("rid={routing_indicator}"));
            facts.extend(suci.plain_supi().map(|s| format!("supi={}", s.imsi())));
            match output {
                SchemeOutput::Null(_) => facts.push("scheme=0".into()),
                SchemeOutput::Concealed { scheme, key_id, output } => facts.extend([
                    format!("scheme={}", scheme.value()),
                    format!("key={key_id}"),
                    format!("output={}", hex(output)),
                ]),
            }
        }
        Suci::Nai { format, nai } => {
            let text = std::str::from_utf8(nai).unwrap();
            let user = text.split("userid").nth(1).unwrap().split('@').next().unwrap();
            facts.push(format!("nai={}-{user}", *format as u8));
        }
    }
    facts
}

fn tais(list: &PartialTaiList) -> String {
    match list {
        PartialTaiList::OnePlmn { plmn, tacs } => format!("0:{plmn}:{}", join(tacs, |t| t.to_string())),
        PartialTaiList::Consecutive { first, count } => format!("1:{first}x{count}"),
        PartialTaiList::Tais(tais) => format!("2:{}", join(tais, |t| t.to_string())),
    }
}

fn tai_list(list: &TaiList) -> String {
    format!("tais={}", list.0.iter().map(tais).collect::<Vec<_>>().join(";"))
}

fn area(list: &ServiceAreaList) -> String {
    let part = |p: &PartialServiceArea| match p {
        PartialServiceArea::Areas(l) => tais(l),
        PartialServiceArea::AllOf(plmn) => format!("3:{plmn}"),
    };
    format!("area={}:{}", list.non_allowed, list.parts.iter().map(part).collect::<Vec<_>>().join(";"))
}

fn sessions(set: &PduSessionSet) -> String {
    format!("sessions={}", join(set.iter(), |id| id.to_string()))
}

fn secs(d: Option<std::time::Duration>) -> String {
    d.map_or("secs=off".into(), |d| format!("secs={}", d.as_secs()))
}

fn nssai(n: &Nssai) -> String {
    format!("nssai={}", join(&n.0, |s| slice(*s)))
}

fn rejected(r: &RejectedNssai) -> String {
    format!("rejected={}", join(&r.0, |(s, c): &(SNssai, _)| format!("{s}:{}", *c as u8)))
}

fn algorithms(a: &SecurityAlgorithms) -> [String; 2] {
    [format!("nea={}", a.ciphering.value()), format!("nia={}", a.integrity.value())]
}

fn zone(z: TimeZone) -> i8 {
    z.quarters()
}

/// The names of the bits that are set.
macro_rules! bits {
    ($of:expr => $($name:ident)*) => {{
        let of = $of;
        let set = [$( (stringify!($name), of.$name()) ),*];
        format!("bits={}", join(set.into_iter().filter(|(_, on)| *on), |(name, _)| name.to_owned()))
    }};
}

fn security_capability(c: &UeSecurityCapability) -> [String; 2] {
    [
        format!("nea={}", join((0..8).filter(|n| c.supports_nea(*n)), |n| n.to_string())),
        format!("nia={}", join((0..8).filter(|n| c.supports_nia(*n)), |n| n.to_string())),
    ]
}

fn network_features(n: &NetworkFeatureSupport) -> [String; 3] {
    let named = bits!(n => ims_vops_3gpp ims_vops_non_3gpp interworking_without_n26 mps emc_non_3gpp mcs cp_ciot
        n3_data_not_supported hc_cp_ciot up_ciot lcs atsss);
    [named, format!("emc={}", n.emergency_services()), format!("emf={}", n.emergency_fallback())]
}

fn describe_mm(message: &mm::Message) -> Vec<String> {
    let mut f: Vec<String> = Vec::new();
    match message {
        mm::Message::RegistrationRequest(m) => {
            f.push(format!("for={}", u8::from(m.registration_type.follow_on_request)));
            f.push(format!("kind={}", m.registration_type.kind as u8));
            f.push(format!("ksi={:?}", m.ng_ksi));
            f.extend(identity(&m.mobile_identity));
            f.extend(m.mm_capability.iter().map(|c| {
                bits!(c => s1_mode ho_attach lpp restrict_ec cp_ciot n3_data_not_supported hc_cp_ciot sgc srvcc
                    up_ciot v2x lcs nssaa racs cag)
            }));
            f.extend(m.ue_security_capability.iter().flat_map(security_capability));
            f.extend(m.ue_status.iter().map(|s| bits!(s => emm_registered mm_registered)));
            f.extend(m.update_type.iter().map(|t| bits!(t => sms_requested radio_capability_update)));
            f.extend(m.requested_nssai.iter().map(nssai));
            let sets = [&m.uplink_data_status, &m.pdu_session_status, &m.allowed_pdu_session_status];
            f.extend(sets.into_iter().flatten().map(sessions));
            f.extend([&m.t3324, &m.requested_t3512].into_iter().flatten().map(|t| secs(t.duration())));
        }
        mm::Message::RegistrationAccept(m) => {
            f.push(format!("result={}", m.registration_result.registered.half()));
            f.push(format!("sms={}", u8::from(m.registration_result.sms_allowed)));
            f.extend(m.guti.iter().flat_map(identity));
            f.extend(m.equivalent_plmns.iter().map(|p| format!("plmns={}", join(&p.0, |p| p.to_string()))));
            f.extend(m.tai_list.iter().map(tai_list));
            f.extend(
                [&m.forbidden_tais_roaming, &m.forbidden_tais_regional].into_iter().flatten().map(tai_list),
            );
            f.extend(
                [&m.allowed_nssai, &m.configured_nssai, &m.pending_nssai].into_iter().flatten().map(nssai),
            );
            f.extend(m.rejected_nssai.iter().map(rejected));
            f.extend(m.network_feature_support.iter().flat_map(network_features));
            f.extend([&m.pdu_session_status, &m.reactivation_result].into_iter().flatten().map(sessions));
            f.extend(
                m.reactivation_errors
                    .iter()
                    .map(|e| format!("react={}", join(&e.0, |(id, c)| format!("{id}:{}", c.value())))),
            );
            f.extend(
                m.ladn_information.iter().map(|l| format!("ladn={}", join(&l.0, |(d, _)| d.to_string()))),
            );
            f.extend(m.service_area_list.iter().map(area));
            f.extend([&m.t3512, &m.t3447, &m.t3324].into_iter().flatten().map(|t| secs(t.duration())));
            let timers = [&m.t3502, &m.non_3gpp_deregistration_timer, &m.t3448];
            f.extend(timers.into_iter().flatten().map(|t| secs(t.duration())));
        }
        mm::Message::RegistrationReject(m) => {
            f.push(format!("cause={}", m.cause));
            f.extend([&m.t3346, &m.t3502].into_iter().flatten().map(|t| secs(t.duration())));
            f.extend(m.rejected_nssai.iter().map(rejected));
            f.extend(m.lower_bound_timer.iter().map(|t| secs(t.duration())));
            f.extend(
                [&m.forbidden_tais_roaming, &m.forbidden_tais_regional].into_iter().flatten().map(tai_list),
            );
        }
        mm::Message::DeregistrationRequestUeOriginating(m) => {
            f.extend(deregistration(&m.deregistration_type));
            f.push(format!("ksi={:?}", m.ng_ksi));
            f.extend(identity(&m.mobile_identity));
        }
        mm::Message::DeregistrationRequestUeTerminated(m) => {
            f.extend(deregistration(&m.deregistration_type));
            f.extend(m.cause.map(|c| format!("cause={c}")));
            f.extend(m.t3346.map(|t| secs(t.duration())));
            f.extend(m.lower_bound_timer.map(|t| secs(t.duration())));
            f.extend(m.rejected_nssai.iter().map(rejected));
            f.extend(
                [&m.forbidden_tais_roaming, &m.forbidden_tais_regional].into_iter().flatten().map(tai_list),
            );
        }
        mm::Message::ServiceRequest(m) => {
            f.push(format!("service={}", m.service_type as u8));
            f.push(format!("ksi={:?}", m.ng_ksi));
            f.extend(identity(&m.s_tmsi));
            let sets = [&m.uplink_data_status, &m.pdu_session_status, &m.allowed_pdu_session_status];
            f.extend(sets.into_iter().flatten().map(sessions));
        }
        mm::Message::ServiceAccept(m) => {
            f.extend([&m.pdu_session_status, &m.reactivation_result].into_iter().flatten().map(sessions));
            f.extend(
                m.reactivation_errors
                    .iter()
                    .map(|e| format!("react={}", join(&e.0, |(id, c)| format!("{id}:{}", c.value())))),
            );
            f.extend(m.t3448.map(|t| secs(t.duration())));
            f.extend(
                [&m.forbidden_tais_roaming, &m.forbidden_tais_regional].into_iter().flatten().map(tai_list),
            );
        }
        mm::Message::ServiceReject(m) => {
            f.push(format!("cause={}", m.cause));
            f.extend(m.pdu_session_status.iter().map(sessions));
            f.extend([&m.t3346, &m.t3448].into_iter().flatten().map(|t| secs(t.duration())));
            f.extend(m.lower_bound_timer.map(|t| secs(t.duration())));
            f.extend(
                [&m.forbidden_tais_roaming, &m.forbidden_tais_regional].into_iter().flatten().map(tai_list),
            );
        }
        mm::Message::ControlPlaneServiceRequest(m) => {
            f.push(format!("ksi={:?}", m.ng_ksi));
            f.extend(m.pdu_session_id.map(|id| format!("psi={id}")));
            let sets = [&m.uplink_data_status, &m.pdu_session_status, &m.allowed_pdu_session_status];
            f.extend(sets.into_iter().flatten().map(sessions));
        }
        mm::Message::SliceAuthenticationCommand(m) => f.push(format!("s_nssai={}", slice(m.s_nssai))),
        mm::Message::SliceAuthenticationComplete(m) => f.push(format!("s_nssai={}", slice(m.s_nssai))),
        mm::Message::SliceAuthenticationResult(m) => f.push(format!("s_nssai={}", slice(m.s_nssai))),
        mm::Message::ConfigurationUpdateCommand(m) => {
            f.extend(m.guti.iter().flat_map(identity));
            f.extend(m.tai_list.iter().map(tai_list));
            f.extend([&m.allowed_nssai, &m.configured_nssai].into_iter().flatten().map(nssai));
            f.extend(m.service_area_list.iter().map(area));
            f.extend(m.full_name.iter().map(|n| format!("name={}", n.as_str())));
            f.extend(m.local_time_zone.map(|z| format!("zone={}", zone(z))));
            f.extend(
                m.universal_time
                    .map(|t| format!("time={}{:+}", join(t.parts(), |p| p.to_string()), zone(t.zone()))),
            );
            f.extend(
                m.ladn_information.iter().map(|l| format!("ladn={}", join(&l.0, |(d, _)| d.to_string()))),
            );
            f.extend(m.rejected_nssai.iter().map(rejected));
            f.extend(m.t3447.map(|t| secs(t.duration())));
            f.extend(m.registration_result.map(|r| format!("result={}", r.registered.half())));
            f.extend(m.registration_result.map(|r| format!("sms={}", u8::from(r.sms_allowed))));
        }
        mm::Message::AuthenticationRequest(m) => {
            f.push(format!("ksi={:?}", m.ng_ksi));
            f.push(format!("abba={}", hex(&m.abba)));
            f.extend(m.rand.map(|r| format!("rand={}", hex(&r.0))));
            f.extend(m.autn.map(|a| format!("autn={}", hex(&a.0))));
        }
        mm::Message::AuthenticationResponse(m) => f.extend(m.res_star.map(|r| format!("res={}", hex(&r.0)))),
        mm::Message::AuthenticationResult(m) => {
            f.push(format!("ksi={:?}", m.ng_ksi));
            f.extend(m.abba.iter().map(|a| format!("abba={}", hex(a))));
        }
        mm::Message::AuthenticationFailure(m) => {
            f.push(format!("cause={}", m.cause));
            f.extend(m.auts.map(|a| format!("auts={}", hex(&a.0))));
        }
        mm::Message::IdentityRequest(m) => f.push(format!("type={}", m.identity_type as u8)),
        mm::Message::IdentityResponse(m) => f.extend(identity(&m.mobile_identity)),
        mm::Message::SecurityModeCommand(m) => {
            f.extend(algorithms(&m.selected_algorithms));
            f.extend(security_capability(&m.replayed_ue_security_capability));
            f.push(format!("ksi={:?}", m.ng_ksi));
            f.extend(m.imeisv_request.map(|r| format!("imeisv_request={}", u8::from(r.requested))));
            f.extend(
                m.additional_security
                    .iter()
                    .map(|a| format!("rinmr={}", u8::from(a.retransmission_requested()))),
            );
            f.extend(m.abba.iter().map(|a| format!("abba={}", hex(a))));
        }
        mm::Message::SecurityModeComplete(m) => f.extend(m.imeisv.iter().flat_map(identity)),
        mm::Message::SecurityModeReject(m) => f.push(format!("cause={}", m.cause)),
        mm::Message::MmStatus(m) => f.push(format!("cause={}", m.cause)),
        mm::Message::NotificationResponse(m) => f.extend(m.pdu_session_status.iter().map(sessions)),
        mm::Message::UlNasTransport(m) => {
            f.push(format!("payload={}", m.payload_container_type.value()));
            f.extend(m.pdu_session_id.map(|id| format!("psi={id}")));
            f.extend(m.request_type.map(|r| format!("request={}", r as u8)));
            f.extend(m.s_nssai.map(|s| format!("s_nssai={}", slice(s))));
            f.extend(m.dnn.iter().map(|d| format!("dnn={d}")));
        }
        mm::Message::DlNasTransport(m) => {
            f.push(format!("payload={}", m.payload_container_type.value()));
            f.extend(m.pdu_session_id.map(|id| format!("psi={id}")));
            f.extend(m.cause.map(|c| format!("cause={c}")));
            f.extend(
                [m.back_off_timer, m.lower_bound_timer].into_iter().flatten().map(|t| secs(t.duration())),
            );
        }
        mm::Message::RegistrationComplete(_)
        | mm::Message::DeregistrationAcceptUeOriginating(_)
        | mm::Message::DeregistrationAcceptUeTerminated(_)
        | mm::Message::ConfigurationUpdateComplete(_)
        | mm::Message::AuthenticationReject(_)
        | mm::Message::Notification(_) => {}
    }
    f
}

fn deregistration(d: &DeregistrationType) -> [String; 3] {
    [
        format!("switch_off={}", u8::from(d.switch_off)),
        format!("rereg={}", u8::from(d.re_registration_required)),
        format!("accesses={}", d.accesses.half()),
    ]
}

fn rules(rules: &QosRules) -> String {
    let rule = |r: QosRule| {
        let (name, n) = match &r.operation {
            RuleOperation::Create(f) => ("Create", f[0].components.len()),
            RuleOperation::Delete => ("Delete", 0),
            RuleOperation::AddFilters(f) => ("AddFilters", f[0].components.len()),
            RuleOperation::ReplaceFilters(f) => ("ReplaceFilters", f[0].components.len()),
            RuleOperation::DeleteFilters(ids) => ("DeleteFilters", ids.len()),
            RuleOperation::KeepFilters => ("KeepFilters", 0),
        };
        let binding = r.binding.map_or("-".into(), |b| format!("{}/{}", b.precedence, b.qfi.value()));
        format!("{}:{name}:{n}:{}:{binding}", r.id, r.default)
    };
    let read = rules.rules().expect("the rules are sound");
    assert_eq!(QosRules::new(&read).as_ref(), Some(rules), "rules written again");
    format!("rules={}", join(read, rule))
}

fn flows(flows: &QosFlowDescriptions) -> String {
    let parameter = |p: &FlowParameter| match p {
        FlowParameter::FiveQi(q) => format!("5qi{}", q.0),
        FlowParameter::GfbrUplink(r) => format!("gfbr_ul{}", r.kbps()),
        FlowParameter::GfbrDownlink(r) => format!("gfbr_dl{}", r.kbps()),
        FlowParameter::MfbrUplink(r) => format!("mfbr_ul{}", r.kbps()),
        FlowParameter::MfbrDownlink(r) => format!("mfbr_dl{}", r.kbps()),
        FlowParameter::AveragingWindow(ms) => format!("window{ms}"),
        FlowParameter::EpsBearerIdentity(id) => format!("ebi{id}"),
    };
    let read = flows.flows().expect("the flow descriptions are sound");
    assert_eq!(QosFlowDescriptions::new(&read).as_ref(), Some(flows), "flow descriptions written again");
    let flow = |f: QosFlowDescription| {
        format!("{}:{:?}:{}:{}", f.qfi.value(), f.operation, f.e_bit, join(&f.parameters, parameter))
    };
    format!("flows={}", join(read, flow))
}

fn pco(pco: &ExtendedPco) -> Vec<String> {
    let containers: Vec<_> = pco.containers(PcoDirection::FromUe).collect();
    assert_eq!(
        ExtendedPco::new(PcoDirection::FromUe, &containers).as_ref(),
        Some(pco),
        "options written again"
    );
    let ipcp =
        containers.iter().filter(|c| c.id == container_id::IPCP).filter_map(|c| Ipcp::parse(&c.contents));
    let mut facts: Vec<_> = ipcp
        .map(|p| {
            let kinds = p.options.iter().map(|(k, _)| *k);
            format!(
                "ipcp={}/{}:{}",
                p.code,
                p.identifier,
                join(kinds, |k| format!("{k}={}", p.address(k).unwrap()))
            )
        })
        .collect();
    facts.push(format!("pco={}", join(&containers, |c| format!("{:04x}:{}", c.id, hex(&c.contents)))));
    facts
}

fn address(a: &PduAddress) -> String {
    let v6 = |id: [u8; 8]| std::net::Ipv6Addr::from(u128::from(u64::from_be_bytes(id)));
    match a.kind {
        PduAddressKind::Ipv4(v4) => format!("address={v4}"),
        PduAddressKind::Ipv6 { interface_id } => format!("address={}/64", v6(interface_id)),
        PduAddressKind::Ipv4v6 { ipv4, interface_id } => format!("address={ipv4}+{}/64", v6(interface_id)),
    }
}

fn ambr(a: &SessionAmbr) -> String {
    format!("ambr={}/{}", a.downlink.kbps(), a.uplink.kbps())
}

fn rate(r: &IntegrityMaxDataRate) -> String {
    format!("rate={}/{}", r.uplink as u8, r.downlink as u8)
}

fn describe_sm(message: &sm::Message) -> Vec<String> {
    let mut f = vec![format!("header={}/{}", message.pdu_session_id.unwrap(), message.pti.0)];
    match &message.body {
        sm::Body::EstablishmentRequest(m) => {
            f.push(rate(&m.integrity_max_data_rate));
            f.extend(m.pdu_session_type.map(|t| format!("session_type={}", t as u8)));
            f.extend(m.ssc_mode.map(|s| format!("ssc={}", s as u8)));
            f.extend(m.sm_capability.iter().map(|c| bits!(c => reflective_qos multi_homed_ipv6 ethernet_s1)));
            f.extend(m.max_packet_filters.map(|n| format!("filters={}", n.value())));
            f.extend(m.extended_pco.iter().flat_map(pco));
            f.extend(m.suggested_interface_identifier.iter().map(address));
        }
        sm::Body::EstablishmentAccept(m) => {
            f.push(format!("session_type={}", m.pdu_session_type as u8));
            f.push(format!("ssc={}", m.ssc_mode as u8));
            f.push(rules(&m.qos_rules));
            f.push(ambr(&m.session_ambr));
            f.extend(m.cause.map(|c| format!("cause={c}")));
            f.extend(m.pdu_address.iter().map(address));
            f.extend(m.rq_timer.map(|t| secs(t.duration())));
            f.extend(m.s_nssai.map(|s| format!("s_nssai={}", slice(s))));
            f.extend(m.qos_flow_descriptions.iter().map(flows));
            f.extend(m.extended_pco.iter().flat_map(pco));
            f.extend(m.dnn.iter().map(|d| format!("dnn={d}")));
        }
        sm::Body::EstablishmentReject(m) => {
            f.push(format!("cause={}", m.cause));
            f.extend(m.back_off_timer.map(|t| secs(t.duration())));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::SessionAuthenticationCommand(m) => f.extend(m.extended_pco.iter().flat_map(pco)),
        sm::Body::SessionAuthenticationComplete(m) => f.extend(m.extended_pco.iter().flat_map(pco)),
        sm::Body::SessionAuthenticationResult(m) => f.extend(m.extended_pco.iter().flat_map(pco)),
        sm::Body::ModificationRequest(m) => {
            f.extend(m.cause.map(|c| format!("cause={c}")));
            f.extend(m.sm_capability.iter().map(|c| bits!(c => reflective_qos multi_homed_ipv6 ethernet_s1)));
            f.extend(m.max_packet_filters.map(|n| format!("filters={}", n.value())));
            f.extend(m.integrity_max_data_rate.iter().map(rate));
            f.extend(m.qos_rules.iter().map(rules));
            f.extend(m.qos_flow_descriptions.iter().map(flows));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::ModificationReject(m) => {
            f.push(format!("cause={}", m.cause));
            f.extend(m.back_off_timer.map(|t| secs(t.duration())));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::ModificationCommand(m) => {
            f.extend(m.cause.map(|c| format!("cause={c}")));
            f.extend(m.session_ambr.iter().map(ambr));
            f.extend(m.rq_timer.map(|t| secs(t.duration())));
            f.extend(m.qos_rules.iter().map(rules));
            f.extend(m.qos_flow_descriptions.iter().map(flows));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::ModificationComplete(m) => f.extend(m.extended_pco.iter().flat_map(pco)),
        sm::Body::ModificationCommandReject(m) => {
            f.push(format!("cause={}", m.cause));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::ReleaseRequest(m) => {
            f.extend(m.cause.map(|c| format!("cause={c}")));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::ReleaseReject(m) => {
            f.push(format!("cause={}", m.cause));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::ReleaseCommand(m) => {
            f.push(format!("cause={}", m.cause));
            f.extend(m.back_off_timer.map(|t| secs(t.duration())));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::ReleaseComplete(m) => {
            f.extend(m.cause.map(|c| format!("cause={c}")));
            f.extend(m.extended_pco.iter().flat_map(pco));
        }
        sm::Body::SmStatus(m) => f.push(format!("cause={}", m.cause)),
    }
    f
}

#[test] // TS 24.501 §9.11.3.39: several payloads in one container
fn multiple_payloads() {
    let octets = unhex("02000921120105810d0a0b0c000201ff");
    // Count 2; 9 octets: two optional elements would not fit, so one of them is read short.
    assert!(MultiplePayloads::decode(&mut whimbrel_ids::Reader::new(&octets)).is_err());
    let entry = |t: PayloadContainerType, contents: &[u8]| PayloadEntry {
        container_type: t,
        optional: vec![(0x12, Octets::new([5]).unwrap())],
        contents: Octets::new(contents).unwrap(),
    };
    let payloads = MultiplePayloads(vec![
        entry(PayloadContainerType::N1_SM_INFORMATION, &[0x2e, 5, 1, 0xc1, 0xff, 0xff]),
        entry(PayloadContainerType::SMS, &[9]),
    ]);
    let mut out = Vec::new();
    payloads.encode(&mut out);
    assert_eq!(hex(&out), "02000a111201052e0501c1ffff00051212010509");
    assert_eq!(MultiplePayloads::decode(&mut whimbrel_ids::Reader::new(&out)), Ok(payloads));
}
