//! Service request: TS 23.502 §4.2.3.2, TS 24.501 §5.6.1.

use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::{MmCause, PduSessionSet, ReactivationErrors, ServiceType};
use whimbrel_nas::mm::{self, ServiceAccept, ServiceReject, ServiceRequest};

use super::context_setup::{context_answer, deliver};
use super::mobility_restrictions::{permitted, service_allowed};
use super::n2::send_nas;
use super::{configuration_update, end, n14, priority, registration, rekeying, session_resources};
use crate::event::Event;
use crate::procedure::{Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::state::DownlinkProtection;

/// Starts a service request. The message was protected and from a registered UE. `sealed`: the request as received, if its keys are not here.
pub(crate) fn start(ue: Ue, request: ServiceRequest, digest: u64, sealed: Option<Box<[u8]>>) {
    ue.with(|p| p.amf.initial_nas_digest = digest);
    let ue = ue.on(Lane::Mobility);
    let paged = request.service_type == ServiceType::MobileTerminatedServices;
    ue.start(Lane::Mobility, Procedure::ServiceRequest, async move {
        let began = ue.now();
        match admitted(ue, Box::new(request), sealed).await {
            Ok(()) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::ServiceRequest, subject, took });
                end::arm_inactivity_timer(ue);
                let has_peers_guti = ue.with(|p| p.amf.peer_gutis.is_some());
                if (paged || has_peers_guti) && !ue.with(|p| p.amf.deregistration_requested) {
                    configuration_update::reallocate_guti(ue); // TS 33.501 §6.12.3
                } else if configuration_update::is_local_time_new(ue) {
                    configuration_update::send_network_name(ue);
                }
            }
            Err(ProcedureEnd::Refused(
                refusal @ (Refusal::RadioFailure(_) | Refusal::RefusedByGnb { .. }),
            )) => {
                not_served(ue, refusal);
            }
            Err(ProcedureEnd::Refused(refusal)) if refusal == STAYS_AT_SOURCE => {
                end::refused(ue, Procedure::ServiceRequest, refusal);
            }
            // The request was not the UE's own, or the UE did not answer: its context stays for the UE itself.
            Err(ProcedureEnd::Refused(refusal)) if ue.with(|p| p.amf.has_unknown_nas_counts()) => {
                not_served(ue, refusal)
            }
            Err(ProcedureEnd::Refused(refusal)) => refuse(ue, refusal),
            Err(ProcedureEnd::Interrupted(why)) => end::interrupted(ue, why),
        }
    });
}

/// Its own AMF is busy with the UE, or could not be asked to the end: the UE tries again there.
const STAYS_AT_SOURCE: Refusal = Refusal::Protocol("the other AMF of the set keeps the UE");

/// A UE of another AMF of the set comes with its context from there (TS 23.501 §5.21.2.2.2).
async fn admitted(
    ue: Ue,
    request: Box<ServiceRequest>,
    sealed: Option<Box<[u8]>>,
) -> Result<(), ProcedureEnd> {
    let Some(sealed) = sealed else { return service_request(ue, request).await };
    let Some(brought) = n14::registration::fetch_in_set(ue, &request, &sealed).await? else {
        return Err(Refusal::NoContext.into());
    };
    let n14::registration::BroughtContext { request, sessions } = brought;
    let mm::Message::ServiceRequest(request) = *request else { return Err(Refusal::NoContext.into()) };
    let request = Box::new(request);
    match n14::registration::take_over(ue, sessions).await? {
        n14::registration::UeHolder::Here => service_request(ue, request).await,
        n14::registration::UeHolder::AtSource => Err(STAYS_AT_SOURCE.into()),
    }
}

async fn service_request(ue: Ue, request: Box<ServiceRequest>) -> Result<(), ProcedureEnd> {
    let tai =
        ue.with(|p| p.amf.location.tai).ok_or(Refusal::Protocol("its gNB did not tell a tracking area"))?;
    if !ue.config().amf.serves(tai) && !ue.with(|p| p.amf.emergency) {
        return Err(Refusal::TaiNotServed(tai).into());
    }
    if ue.with(|p| p.amf.has_unknown_nas_counts()) {
        rekeying::authenticate(ue).await?;
    }
    permitted(ue, tai)?;
    if !passes_restrictions(request.service_type) {
        service_allowed(ue)?;
    }
    // TS 24.501 §5.6.1.5 #22: answers to paging and urgent requests are served all the same.
    let own = matches!(
        request.service_type,
        ServiceType::MobileTerminatedServices
            | ServiceType::EmergencyServices
            | ServiceType::HighPriorityAccess
    );
    if !own {
        priority::entitled(ue)?;
    }
    if let Some(status) = request.pdu_session_status {
        session_resources::keep_only(ue, |psi| status.contains(psi)); // step 4: sessions that the UE no longer has
    }
    let prioritised = is_prioritised(request.service_type);
    let Activation { sessions, failed } = Activation::of(ue, request.uplink_data_status, prioritised); // steps 5 to 11
    let mut accept = ServiceAccept::new();
    if request.pdu_session_status.is_some() {
        accept.pdu_session_status = Some(registration::sessions(ue));
    }
    accept.reactivation_result = request.uplink_data_status.map(|_| failed.set);
    accept.reactivation_errors = failed.errors;
    let awaiting = deliver(ue, &accept.into(), &sessions); // steps 12 to 13
    if let Some(awaiting) = awaiting {
        context_answer(ue, awaiting).await?; // step 14; steps 15 to 20 run on each session's lane
    }
    Ok(())
}

/// Requests that are accepted in a non-allowed area too (TS 24.501 §5.3.5.2): answers to paging, signalling without user
/// plane, and urgent requests.
fn passes_restrictions(service: ServiceType) -> bool {
    matches!(service, ServiceType::MobileTerminatedServices | ServiceType::Signalling)
        || is_prioritised(service)
}

/// Regulatory prioritised services have their user plane everywhere (TS 23.501 §5.3.4.1.1).
fn is_prioritised(service: ServiceType) -> bool {
    matches!(
        service,
        ServiceType::EmergencyServices
            | ServiceType::EmergencyServicesFallback
            | ServiceType::HighPriorityAccess
    )
}

/// The user planes to set up, and those that are refused.
pub(crate) struct Activation {
    /// The sessions with data, uplink or downlink, that wait for a user plane.
    pub(crate) sessions: Vec<PduSessionId>,
    pub(crate) failed: RefusedSessions,
}

/// Sessions that the UE requests and that are refused.
pub(crate) struct RefusedSessions {
    /// PDU session reactivation result: a set bit is a session whose user plane cannot be set up (TS 24.501 §9.11.3.42).
    pub(crate) set: PduSessionSet,
    /// The cause, if the clause has one (TS 24.501 §9.11.3.43: #28, #43).
    pub(crate) errors: Option<ReactivationErrors>,
}

impl Activation {
    /// The sessions that the UE requests or that have waiting packets, if they may have a user plane in the present
    /// area (TS 24.501 §5.6.1.4.1).
    pub(crate) fn of(ue: Ue, uplink_data: Option<PduSessionSet>, prioritised: bool) -> Self {
        let asked = uplink_data.unwrap_or_default();
        let mut set = asked;
        let (mut sessions, mut errors) = (Vec::new(), Vec::new());
        let tai = ue.with(|p| p.amf.location.tai);
        for s in ue.smf().sm_contexts(ue) {
            let psi = s.psi;
            if s.being_released || !(s.awaited || asked.contains(psi)) {
                continue;
            }
            match tai.and_then(|tai| ue.smf().barred(ue, psi, tai.tac)) {
                Some(cause) if cause != MmCause::RestrictedServiceArea || !prioritised => {
                    errors.extend(asked.contains(psi).then_some((psi, cause)));
                }
                _ if s.can_be_activated => {
                    sessions.push(psi);
                    set.remove(psi);
                }
                _ if s.active => set.remove(psi),
                _ => {}
            }
        }
        let errors = (!errors.is_empty()).then_some(ReactivationErrors(errors));
        Self { sessions, failed: RefusedSessions { set, errors } }
    }
}

/// The gNB refused the UE context (TS 38.413 §8.3.1.3, §8.3.1.4). The UE stays registered, the connection is released, and the
/// UE repeats its request when T3517 expires (TS 24.501 §5.6.1.7 b).
fn not_served(ue: Ue, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = super::n2::ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure: Procedure::ServiceRequest, subject, ran_ue_ngap_id, refusal });
    super::an_release::start(ue, whimbrel_ngap::ie::CauseNas::Unspecified.into());
}

fn refuse(ue: Ue, refusal: Refusal) {
    let cause = refusal.mm_cause(&ue.config());
    reject(ue, cause, refusal.back_off(&ue.config()));
    end::refused_with(ue, Procedure::ServiceRequest, refusal, cause, true);
}

/// SERVICE REJECT #9 to an unknown UE, which then registers again (TS 24.501 §5.6.1.5).
pub(crate) fn reject_unknown_ue(ue: Ue) {
    reject(ue, MmCause::UeIdentityCannotBeDerived, None);
    end::dismiss_later(ue, end::Keys::Removed);
}

fn reject(ue: Ue, cause: MmCause, back_off: Option<std::time::Duration>) {
    let mut m = ServiceReject::new(cause);
    m.t3346 = back_off.map(whimbrel_nas::ie::GprsTimer::from_duration);
    send_nas(ue, &m.into(), DownlinkProtection::Current);
}
