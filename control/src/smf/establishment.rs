//! PDU session establishment: TS 23.502 §4.3.2.2.1; NAS part TS 24.501 §6.4.1.

use std::time::Duration;

use whimbrel_ids::{Instant, PduSessionId};
use whimbrel_nas::ie::{
    AllowedSscMode, AlwaysOn, CongestionReattemptIndicator, GprsTimer, GprsTimer3, IntegrityDataRate,
    IntegrityMaxDataRate, PduAddress, PduAddressKind, PduSessionType, QosFlowDescriptions, QosRules,
    ReattemptIndicator, SessionAmbr, SmCause, SscMode,
};
use whimbrel_nas::sm::{self, EstablishmentAccept, EstablishmentReject, EstablishmentRequest, Pti};

use super::qos::{QosConstraints, initial_flows, marks};
use super::up_connection::{UpConnectionFailure, set_downlink_tunnel, set_up};
use super::{
    area, charging, families, n4, pco,
    release::{self, release_locally},
    send, sm_policy,
    status::{self, status},
    udm_client,
};
use crate::config::{Config, UpProtection, UpSecurity};
use crate::event::{Event, SessionChange};
use crate::policy::merged;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, Ue, out_of_state};
use crate::refusal::{Refusal, UPF_CONGESTED};
use crate::services::nsmf::SmContextCreateData;
use crate::state::{SessionQos, SessionTypes, SessionUsage, SmContext, SubscribedDnn, UeAddress, UpState};
use crate::upf::UpfId;

/// Nsmf_PDUSession_CreateSMContext (step 3).
pub(crate) fn create_sm_context(ue: Ue, data: SmContextCreateData, n1: &[u8]) {
    let psi = data.psi;
    let (pti, request) = match sm::Message::decode(n1) {
        Ok(m) if status::is_unaddressed(&m) => return out_of_state(ue),
        // §7.3.2: the message names another session than its envelope.
        Ok(m) if m.pdu_session_id != Some(psi) => {
            return status(ue, psi, m.pti, SmCause::InvalidPduSessionIdentity);
        }
        // §7.3.1 a: a request without transaction identity is answered with 5GSM STATUS and dropped.
        Ok(m) if !m.pti.is_assigned() => return status(ue, psi, m.pti, SmCause::InvalidPtiValue),
        Ok(sm::Message { pti, body: sm::Body::EstablishmentRequest(request), .. }) => (pti, request),
        // §7.4: no other message begins a session.
        Ok(m) => return status(ue, psi, m.pti, SmCause::MessageTypeNotCompatible),
        Err(e) => return status::unreadable(ue, psi, &e),
    };
    if data.existing {
        let reject = EstablishmentReject::new(SmCause::PduSessionDoesNotExist);
        return send(ue, psi, sm::Message::new(psi, pti, reject));
    }
    // §6.4.1.7 b, §7.3.1: a repeated request changes nothing while it is being processed.
    let running = ue.with(|p| p.lanes.procedure(Lane::Session(psi)));
    let again = running == Some(Procedure::PduSessionEstablishment)
        && ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.pti == pti));
    if again {
        return out_of_state(ue);
    }
    release_locally(ue, psi); // §6.4.1.7 a, c: the identity was in use; the UE has started again
    let ue = ue.on(Lane::Session(psi));
    ue.start(Lane::Session(psi), Procedure::PduSessionEstablishment, async move {
        let began = ue.now();
        match establishment(ue, data, pti, Box::new(request)).await {
            Ok(()) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::PduSessionEstablishment, subject, took });
                emit_change(ue, psi, SessionChange::Established);
            }
            Err(ProcedureEnd::Refused(refusal)) => reject(ue, psi, pti, refusal),
            Err(ProcedureEnd::Interrupted(Interrupt::ConnectionLost)) => n4::delete(ue, psi),
            Err(ProcedureEnd::Interrupted(_)) => {} // the procedure that took the lane handles the session
        }
    });
}

async fn establishment(
    ue: Ue,
    data: SmContextCreateData,
    pti: Pti,
    request: Box<EstablishmentRequest>,
) -> Result<(), ProcedureEnd> {
    let psi = data.psi;
    let mut terms = authorise(ue, &data, &request)?; // steps 4 to 9: subscription and policy
    let narrowed = terms.narrowed;
    terms.session.pti = pti;
    ue.with(|p| p.sessions.insert(psi, Box::new(terms.session)));
    udm_client::register_session(ue, psi); // step 4
    charging::begin(ue, psi).await?; // TS 32.255 §5.2.2.2: before the UPF forwards anything
    n4::establish(ue, psi, terms.subscribed).await?; // step 10: N4, tunnel and addresses
    // Deviation: step 7 comes after step 10, since the UPF allocates the address, which Open5GS's PCF demands. No packet passes before.
    sm_policy::associate(ue, psi).await?;
    let accept = accept(ue, psi, pti, &request, narrowed)?;
    let tunnel = match set_up(ue, psi, Some(&accept)).await {
        Ok(tunnel) => tunnel, // steps 11 to 14
        // A gNB that refuses has not delivered the accept; a silent one may have.
        Err(UpConnectionFailure::Refused(refusal)) => return Err(refusal.into()),
        Err(UpConnectionFailure::Unknown(refusal)) => return Err(undo(ue, psi, refusal)),
        Err(UpConnectionFailure::Interrupted(why)) => return Err(why.into()),
    };
    match set_downlink_tunnel(ue, psi, &tunnel).await {
        Err(ProcedureEnd::Refused(refusal)) => Err(undo(ue, psi, refusal)),
        done => done, // steps 15 and 16: the UPF gets the gNB's tunnel
    }
}

/// The UE has got the accept, but the gNB has no resources: the network releases the session again (TS 24.501 §6.3.3).
fn undo(ue: Ue, psi: PduSessionId, refusal: Refusal) -> ProcedureEnd {
    let cause = refusal.sm_cause(&ue.config());
    refused(ue, refusal);
    release::by_network(ue, psi, cause);
    ProcedureEnd::Interrupted(Interrupt::Superseded(Procedure::PduSessionReleaseByNetwork))
}

/// Default of the packet filters that a UE supports (TS 24.501 §6.4.1.2).
const FILTERS_OF_ANY_UE: u16 = 16;

/// The granted parameters of a session.
struct Terms {
    session: SmContext,
    subscribed: SubscribedDnn,
    /// The cause if only one of two requested address families is granted.
    narrowed: Option<SmCause>,
}

/// Steps 4 to 9: combines the UE's request, the subscription and the data network.
fn authorise(ue: Ue, data: &SmContextCreateData, request: &EstablishmentRequest) -> Result<Terms, Refusal> {
    let config = ue.config();
    let network = config.smf.data_networks.get(&data.dnn);
    let network = network.ok_or_else(|| Refusal::DnnNotConfigured(data.dnn.clone()))?;
    let here = ue.amf().ue_state(ue).tai;
    if let Some(tai) = here.filter(|tai| !data.emergency && area::outside(&config, &data.dnn, tai.tac)) {
        return Err(Refusal::OutOfLadn(data.dnn.clone(), tai));
    }
    let subscribed = match &config.amf.access.emergency {
        Some(emergency) if data.emergency => emergency.terms(),
        _ => subscribed(ue, data)?,
    };
    let types = subscribed.session_types;
    let allowed = SessionTypes {
        ipv4: network.ipv4 && types.ipv4,
        ipv6: network.ipv6 && types.ipv6,
        ethernet: network.ethernet && types.ethernet,
        unstructured: network.unstructured && types.unstructured,
    };
    let (session_type, narrowed) = choose_type(request.pdu_session_type, allowed)?;
    let ssc_mode = choose_ssc_mode(request.ssc_mode, subscribed.ssc_mode, session_type)?;
    let up_security = subscribed.up_security.or(network.up_security); // TS 23.501 §5.10.3: the subscription has precedence
    protectable(up_security, request.integrity_max_data_rate)?;
    let filters_max = request.max_packet_filters.map_or(FILTERS_OF_ANY_UE, |m| m.value());
    let interface_id = suggested(request).unwrap_or_else(|| interface_id(ue.random()));
    let policies = || merged(&network.flows, &subscribed.flows);
    let marks = marks(&config.smf, network, subscribed.five_qi, policies());
    let reflects = request.sm_capability.as_ref().is_some_and(|c| c.reflective_qos());
    let treatments = Some(&network.treatments);
    let ground =
        QosConstraints { session_type, filters_max, reflects, marks: &marks, smf: &config.smf, treatments };
    let flows = initial_flows(policies(), ground);
    let session = SmContext {
        psi: data.psi,
        s_nssai: data.s_nssai,
        dnn: data.dnn.clone(),
        session_type,
        address: UeAddress {
            ipv4: subscribed.static_ipv4.filter(|_| families(session_type).0),
            ipv6: subscribed.static_ipv6.filter(|_| families(session_type).1),
            interface_id,
        },
        qos: SessionQos {
            five_qi: subscribed.five_qi,
            arp: subscribed.arp,
            ambr: subscribed.session_ambr,
            flows,
            marks,
            pending_change: None,
            filters_max,
            reflects,
        },
        upf: UpfId::default(),
        cp_seid: ue.with(|p| p.id.seid(data.psi.value(), p.clock as u16)),
        up_seid: None,
        n3: None,
        an: None,
        forwarding: None,
        up: UpState::Establishing,
        departing: false,
        awaited: false,
        ssc_mode,
        until: Instant::FAR_FUTURE,
        always_on: network.always_on && request.always_on_requested.is_some_and(|a| a.on),
        full_rate_integrity: request.integrity_max_data_rate.uplink == IntegrityDataRate::Full,
        pti: Pti::UNASSIGNED,
        usage: SessionUsage::default(),
        emergency: data.emergency,
        up_security, // TS 33.515 §4.2.2.1.1
        charging: None,
        policy: None,
    };
    Ok(Terms { session, subscribed, narrowed })
}

/// Refuses a session with required integrity protection to a UE that does not support it (TS 24.501 §6.4.1.4.1 #82,
/// §9.11.4.7). Support at 64 kbit/s suffices: the gNB gets the rate.
fn protectable(policy: Option<UpSecurity>, rate: IntegrityMaxDataRate) -> Result<(), Refusal> {
    let required = policy.is_some_and(|p| p.integrity == UpProtection::Required);
    let never = rate.uplink == IntegrityDataRate::Null || rate.downlink == IntegrityDataRate::Null;
    if required && never { Err(Refusal::IntegrityRate) } else { Ok(()) }
}

/// The subscription for this slice and data network.
fn subscribed(ue: Ue, data: &SmContextCreateData) -> Result<SubscribedDnn, Refusal> {
    let subscription = ue.with(|p| p.subscription().cloned()).ok_or(Refusal::NoIdentity)?;
    let slice = subscription.slice(data.s_nssai).ok_or(Refusal::SliceNotAllowed(data.s_nssai))?;
    let subscribed = slice.dnns.iter().find(|d| d.dnn == data.dnn).cloned();
    subscribed.ok_or_else(|| Refusal::DnnNotSubscribed {
        dnn: data.dnn.clone(),
        s_nssai: data.s_nssai,
        subscribed: slice.dnns.iter().map(|d| d.dnn.clone()).collect(),
    })
}

/// The interface identifier that the UE suggests (TS 24.501 §6.4.1.3). It is accepted, as no other host is on the link.
fn suggested(request: &EstablishmentRequest) -> Option<[u8; 8]> {
    match request.suggested_interface_identifier.as_ref()?.kind {
        PduAddressKind::Ipv6 { interface_id } | PduAddressKind::Ipv4v6 { interface_id, .. } => {
            Some(interface_id).filter(|id| *id != [0; 8])
        }
        _ => None,
    }
}

/// A random interface identifier, not derived from a hardware address (RFC 7217 §5) and not zero, which is the
/// subnet-router's (RFC 4291 §2.6.1).
fn interface_id(random: [u8; 16]) -> [u8; 8] {
    let mut id = [0; 8];
    id.copy_from_slice(&random[..8]);
    id[0] &= !0x02; // not globally unique
    id[7] |= 0x01;
    id
}

/// TS 24.501 §6.4.1.3: IPv4v6 is narrowed to the allowed family, with the cause for that. A UE that does not name a type
/// gets the data network's (TS 23.502 §4.3.2.2.1 step 4).
fn choose_type(
    asked: Option<PduSessionType>,
    allowed: SessionTypes,
) -> Result<(PduSessionType, Option<SmCause>), Refusal> {
    let SessionTypes { ipv4, ipv6, ethernet, unstructured } = allowed;
    let requested = asked.unwrap_or(match allowed {
        SessionTypes { ipv4: false, ipv6: false, ethernet: true, .. } => PduSessionType::Ethernet,
        SessionTypes { ipv4: false, ipv6: false, unstructured: true, .. } => PduSessionType::Unstructured,
        _ => PduSessionType::Ipv4v6,
    });
    let narrowed = |cause| asked.map(|_| cause);
    match requested {
        PduSessionType::Ipv4v6 if ipv4 && ipv6 => Ok((requested, None)),
        PduSessionType::Ipv4v6 if ipv4 => {
            Ok((PduSessionType::Ipv4, narrowed(SmCause::PduSessionTypeIpv4OnlyAllowed)))
        }
        PduSessionType::Ipv4v6 if ipv6 => {
            Ok((PduSessionType::Ipv6, narrowed(SmCause::PduSessionTypeIpv6OnlyAllowed)))
        }
        PduSessionType::Ipv4 if ipv4 => Ok((requested, None)),
        PduSessionType::Ipv6 if ipv6 => Ok((requested, None)),
        PduSessionType::Ethernet if ethernet => Ok((requested, None)),
        PduSessionType::Unstructured if unstructured => Ok((requested, None)),
        _ => Err(Refusal::SessionType(allowed)),
    }
}

/// SSC mode 1 is always allowed, mode 2 or 3 if it is the subscribed one (TS 23.501 §5.6.9.3); mode 3 only for IP sessions (TS
/// 23.501 §5.6.9.2.3).
fn choose_ssc_mode(
    asked: Option<SscMode>,
    subscribed: SscMode,
    session_type: PduSessionType,
) -> Result<SscMode, Refusal> {
    let ip = families(session_type) != (false, false);
    let most = if subscribed == SscMode::Three && !ip { SscMode::One } else { subscribed };
    match asked.unwrap_or(most) {
        mode if mode == SscMode::One || mode == most => Ok(mode),
        asked => Err(Refusal::SscMode { asked, subscribed: most }),
    }
}

/// PDU SESSION ESTABLISHMENT ACCEPT (TS 24.501 §8.3.2).
fn accept(
    ue: Ue,
    psi: PduSessionId,
    pti: Pti,
    request: &EstablishmentRequest,
    narrowed: Option<SmCause>,
) -> Result<sm::Message, Refusal> {
    let config = ue.config();
    ue.with(|p| {
        let session = p.sessions.get(&psi).ok_or(Refusal::Protocol("the session ended"))?;
        let network = config.smf.data_networks.get(&session.dnn);
        let (rules, descriptions) = session.authorised();
        let rules = QosRules::new(&rules).ok_or(Refusal::Protocol("QoS rules"))?;
        let ambr = SessionAmbr {
            downlink: whimbrel_nas::ie::BitRate::from_kbps(session.qos.ambr.dl_kbps),
            uplink: whimbrel_nas::ie::BitRate::from_kbps(session.qos.ambr.ul_kbps),
        };
        let mut m = EstablishmentAccept::new(session.session_type, session.ssc_mode, rules, ambr);
        m.cause = narrowed;
        m.pdu_address = address(session);
        m.s_nssai = Some(session.s_nssai.into());
        m.always_on = request.always_on_requested.map(|_| AlwaysOn { on: session.always_on });
        m.qos_flow_descriptions = QosFlowDescriptions::new(&descriptions);
        m.rq_timer = session
            .qos
            .flows
            .iter()
            .any(|f| f.reflective)
            .then(|| GprsTimer::from_duration(config.timers.reflective_qos));
        m.extended_pco =
            network.and_then(|n| pco::answer(request.extended_pco.as_ref(), n, session.session_type));
        m.dnn = Some(session.dnn.clone());
        Ok(sm::Message::new(psi, pti, m))
    })
}

/// `None` for a session that is not of type IP.
fn address(session: &SmContext) -> Option<PduAddress> {
    let ipv4 = session.address.ipv4.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED);
    let interface_id = session.address.interface_id;
    let kind = match session.session_type {
        PduSessionType::Ipv6 => PduAddressKind::Ipv6 { interface_id },
        PduSessionType::Ipv4v6 => PduAddressKind::Ipv4v6 { ipv4, interface_id },
        PduSessionType::Ipv4 => PduAddressKind::Ipv4(ipv4),
        PduSessionType::Ethernet | PduSessionType::Unstructured => return None,
    };
    Some(PduAddress { kind, smf_link_local: None })
}

/// TS 24.501 §6.4.1.4: PDU SESSION ESTABLISHMENT REJECT.
pub(super) fn reject(ue: Ue, psi: PduSessionId, pti: Pti, refusal: Refusal) {
    let config = ue.config();
    let mut m = EstablishmentReject::new(refusal.sm_cause(&config));
    m.back_off_timer = back_off(&refusal, &config, ue.random()).map(GprsTimer3::from_duration);
    if m.back_off_timer.is_some() {
        (m.congestion_reattempt, m.reattempt) = elsewhere(m.cause);
    }
    // §6.4.1.4.1: the allowed modes.
    m.allowed_ssc_mode = match refusal {
        Refusal::SscMode { subscribed, .. } => Some(AllowedSscMode {
            one: true,
            two: subscribed == SscMode::Two,
            three: subscribed == SscMode::Three,
        }),
        _ => None,
    };
    send(ue, psi, sm::Message::new(psi, pti, m));
    refused(ue, refusal);
    n4::delete(ue, psi);
}

/// The re-attempt indicators of a reject (TS 24.501 §6.4.1.4.2, §6.4.1.4.3): a congestion back-off applies to this network
/// only; for other causes there is neither S1 mode nor an equivalent network to try. Causes that say themselves what may be
/// requested have no indicator.
fn elsewhere(cause: SmCause) -> (Option<CongestionReattemptIndicator>, Option<ReattemptIndicator>) {
    match cause {
        SmCause::InsufficientResources
        | SmCause::InsufficientResourcesForSliceAndDnn
        | SmCause::InsufficientResourcesForSlice => (Some(CongestionReattemptIndicator::default()), None),
        SmCause::UnknownPduSessionType
        | SmCause::ReactivationRequested
        | SmCause::OutOfLadnServiceArea
        | SmCause::PduSessionTypeIpv4OnlyAllowed
        | SmCause::PduSessionTypeIpv6OnlyAllowed
        | SmCause::PduSessionDoesNotExist
        | SmCause::PduSessionTypeIpv4v6OnlyAllowed
        | SmCause::PduSessionTypeUnstructuredOnlyAllowed
        | SmCause::PduSessionTypeEthernetOnlyAllowed
        | SmCause::NotSupportedSscMode => (None, None),
        _ => {
            let nowhere = ReattemptIndicator::default().with_not_in_s1_mode(true);
            (None, Some(nowhere.with_not_in_equivalent_plmn(true)))
        }
    }
}

/// The default minimum of T3396 after congestion, in seconds (TS 24.501 §6.2.8): long enough that a thousand UEs do not
/// come back at once, short enough not to be noticed as an outage.
const CONGESTED_S: u8 = 60;

/// T3396. A minute and up to four more, so that UEs that were refused together do not return together.
fn back_off(refusal: &Refusal, config: &Config, random: [u8; 16]) -> Option<Duration> {
    let congested =
        matches!(refusal, Refusal::PoolEmpty(_) | Refusal::Limit(_) | Refusal::Upf(Some(UPF_CONGESTED)));
    let spread = u64::from(CONGESTED_S) + u64::from(random[0]);
    refusal.back_off(config).or(congested.then(|| Duration::from_secs(spread)))
}

fn refused(ue: Ue, refusal: Refusal) {
    super::refused(ue, Procedure::PduSessionEstablishment, refusal);
}

/// Emits the event of a session change.
pub(super) fn emit_change(ue: Ue, psi: PduSessionId, change: SessionChange) {
    let session = ue.with(|p| p.sessions.get(&psi).map(|s| (p.subject(), s.dnn.clone())));
    if let Some((subject, dnn)) = session {
        ue.event(Event::Session { subject, psi, dnn, change });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 24.501 §6.4.1.3: the suggested interface identifier is granted, unless it is zero
    fn suggested_interface_identifier() {
        let rate = whimbrel_nas::ie::IntegrityMaxDataRate {
            uplink: IntegrityDataRate::Full,
            downlink: IntegrityDataRate::Full,
        };
        let mut request = EstablishmentRequest::new(rate);
        assert_eq!(suggested(&request), None);
        for (wish, granted) in [([3; 8], Some([3; 8])), ([0; 8], None)] {
            let kind = PduAddressKind::Ipv6 { interface_id: wish };
            request.suggested_interface_identifier = Some(PduAddress { kind, smf_link_local: None });
            assert_eq!(suggested(&request), granted);
        }
    }

    #[test] // TS 23.501 §5.6.9.3
    fn ssc_modes_are_granted_as_subscribed() {
        use SscMode::{One, Three, Two};
        let choose = |asked, subscribed| choose_ssc_mode(asked, subscribed, PduSessionType::Ipv4);
        for subscribed in [One, Two, Three] {
            assert_eq!(choose(None, subscribed), Ok(subscribed));
            assert_eq!(choose(Some(subscribed), subscribed), Ok(subscribed));
            assert_eq!(choose(Some(One), subscribed), Ok(One));
        }
        for (asked, subscribed) in [(Two, One), (Three, One), (Three, Two), (Two, Three)] {
            assert_eq!(choose(Some(asked), subscribed), Err(Refusal::SscMode { asked, subscribed }));
        }
        // Mode 3 is for IP sessions only.
        assert_eq!(choose_ssc_mode(None, Three, PduSessionType::Ethernet), Ok(One));
        assert!(choose_ssc_mode(Some(Three), Three, PduSessionType::Unstructured).is_err());
    }

    #[test] // TS 24.501 §6.2.8: a congestion reject has a back-off that differs between UEs
    fn congestion_back_off_is_spread() {
        let config = crate::ue_harness::config();
        let wait = |random| back_off(&Refusal::Limit("sessions"), &config, [random; 16]);
        assert_ne!(wait(1), wait(200));
        assert_eq!(back_off(&Refusal::StoreUnavailable, &config, [0; 16]), None);
    }

    #[test] // RFC 4291 §2.6.1, §2.5.1: never zero, never globally unique
    fn interface_identifiers_are_usable() {
        for random in [[0; 16], [0xff; 16]] {
            let id = interface_id(random);
            assert!(id != [0; 8] && id[0] & 0x02 == 0);
        }
    }

    #[test] // TS 24.501 §6.4.1.3: a UE that requested both gets the cause for the other family
    fn ipv4v6_is_narrowed_to_the_allowed_family() {
        let allowed = |ipv4, ipv6| SessionTypes { ipv4, ipv6, ..SessionTypes::NONE };
        let both = Some(PduSessionType::Ipv4v6);
        assert_eq!(choose_type(both, allowed(true, true)), Ok((PduSessionType::Ipv4v6, None)));
        let only = Some(SmCause::PduSessionTypeIpv6OnlyAllowed);
        assert_eq!(choose_type(both, allowed(false, true)), Ok((PduSessionType::Ipv6, only)));
        assert_eq!(choose_type(None, allowed(true, false)), Ok((PduSessionType::Ipv4, None)));
        let refused = Err(Refusal::SessionType(allowed(true, false)));
        assert_eq!(choose_type(Some(PduSessionType::Ipv6), allowed(true, false)), refused);
    }
}
