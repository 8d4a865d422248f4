//! Registration: TS 23.502 §4.2.2.2.2; NAS part TS 24.501 §5.5.1.2 and §5.5.1.3.

use std::rc::Rc;

use whimbrel_ids::{Guti, SNssai, Supi, Tai, Tmsi};
use whimbrel_nas::ie::{
    Accesses, GprsTimer, MobileIdentity, NetworkFeatureSupport, NetworkSlicingIndication, PduSessionSet,
    RegistrationKind, RegistrationResult,
};
use whimbrel_nas::mm::{self, RegistrationAccept, RegistrationReject, RegistrationRequest};
use whimbrel_ngap::ie::CauseNas;

use super::authentication::ClaimedIdentity;
use super::context_setup::{context_answer, context_answered, deliver, is_context_answer};
use super::identification::identify;
use super::mobility_restrictions::{permitted, service_area_list};
use super::n2::{ids, send_nas};
use super::security_mode::{Secured, secure_nas};
use super::service_request::Activation;
use super::slices::{self, Slices};
use super::{
    an_release, configuration_update, emergency, end, equipment, ladn, n14, open_attach, priority,
    radio_capability_check, reach, session_resources, udm_client, ue_context_modification,
};
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{Lane, Procedure, ProcedureEnd, RepeatedMessage, Ue, attempt};
use crate::refusal::Refusal;
use crate::services::nudm::Identity;
use crate::state::DownlinkProtection;

/// Starts a registration. `sealed`: the request as received, if its keys are not here.
pub(crate) fn start(
    ue: Ue,
    request: Box<RegistrationRequest>,
    protected: bool,
    digest: u64,
    sealed: Option<Box<[u8]>>,
) {
    ue.with(|p| p.amf.initial_nas_digest = digest);
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::Registration, async move {
        let began = ue.now();
        let kind = request.registration_type.kind;
        let initial = kind == RegistrationKind::Initial;
        // The earlier registration stays until this one is accepted.
        let moved = protected && !initial && kind != RegistrationKind::Emergency;
        let admitted = match admission(ue, request.into(), protected, sealed).await {
            Ok(admitted) => admitted,
            Err(ProcedureEnd::Refused(refusal)) => return reject(ue, refusal, moved),
            Err(ProcedureEnd::Interrupted(why)) => return end::interrupted(ue, why),
        };
        let context = ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.context_set_up));
        match accept(ue, admitted).await {
            Ok(()) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::Registration, subject, took });
                if initial || configuration_update::is_local_time_new(ue) {
                    configuration_update::send_network_name(ue);
                }
                end::arm_inactivity_timer(ue);
                // If the gNB had the UE's context before, it gets the new 5G-GUTI and registration area.
                if context
                    && let Err(ProcedureEnd::Interrupted(why)) =
                        ue_context_modification::new_assistance(ue).await
                {
                    end::interrupted(ue, why);
                }
            }
            Err(ProcedureEnd::Refused(refusal)) => unconfirmed(ue, refusal),
            Err(ProcedureEnd::Interrupted(why)) => end::interrupted(ue, why),
        }
    });
}

/// The input of REGISTRATION ACCEPT.
struct AcceptInput {
    request: Rc<RegistrationRequest>,
    tai: Tai,
    /// None for an emergency registration.
    slices: Option<Slices>,
}

/// The steps before REGISTRATION ACCEPT.
async fn admission(
    ue: Ue,
    request: Rc<RegistrationRequest>,
    protected: bool,
    sealed: Option<Box<[u8]>>,
) -> Result<AcceptInput, ProcedureEnd> {
    if emergency::is_emergency(&request) {
        let tai = ue.with(|p| p.amf.location.tai).ok_or(NO_AREA)?;
        let request = emergency::admission(ue, request, protected).await?;
        return Ok(AcceptInput { request, tai, slices: None });
    }
    let tai = here(ue)?;
    priority::uncongested(ue)?;
    // Steps 4 and 5: the UE's context from another AMF.
    if !protected
        && let Some(n14::registration::BroughtContext { request, sessions }) =
            n14::registration::fetch(ue, &request, sealed).await?
        && let mm::Message::RegistrationRequest(request) = *request
    {
        let request = Rc::new(request);
        let admitted = match subscribe(ue, None).await {
            Ok(()) => judged(ue, request, true, tai).await,
            Err(why) => Err(why),
        };
        match &admitted {
            Ok(_) => drop(n14::registration::here(ue, sessions).await?), // step 10
            Err(_) => n14::registration::not_here(ue),
        }
        return admitted;
    }
    judged(ue, request, protected, tai).await
}

/// Identifies and authenticates the UE, and checks whether it may register here.
async fn judged(
    ue: Ue,
    request: Rc<RegistrationRequest>,
    protected: bool,
    tai: Tai,
) -> Result<AcceptInput, ProcedureEnd> {
    let request = if protected && !must_authenticate(ue) {
        known(ue, request)? // the security context in force identifies the UE: step 9 may be skipped
    } else {
        let started = (request.ng_ksi, protected);
        let claim = if started.1 { own(ue)? } else { identify_unknown_ue(ue, &request).await? };
        let open_attach::Authentication { proof, granted } =
            open_attach::authenticate(ue, claim, started.0).await?; // step 9: 5G-AKA or EAP-AKA'; or SAP
        let Secured { initial_message } = secure_nas(ue, Some(&request), proof, !protected).await?; // step 9

        let request = initial_message.unwrap_or(request);
        equipment::check(ue).await?; // steps 11, 12: 5G-EIR
        subscribe(ue, granted).await?; // step 14: Nudm_UECM, Nudm_SDM
        request
    };
    priority::entitled(ue)?; // priority: TS 23.501 §5.22.3
    permitted(ue, tai)?; // areas: TS 23.501 §5.3.4.1.1
    let slices = slices(ue, request.clone(), tai).await?; // slices: TS 23.501 §5.15.5.2.1
    ue.with(|p| p.amf.emergency = false);
    Ok(AcceptInput { request, tai, slices: Some(slices) }) // steps 21, 22: REGISTRATION ACCEPT, T3550
}

const NO_AREA: Refusal = Refusal::Protocol("its gNB did not tell a tracking area");

/// Whether a UE with a context is authenticated again: before a NAS COUNT wraps (TS 24.501 §4.4.3.5), after an emergency
/// registration, whose keys may not be the subscriber's, where its keys are doubtful, and as often as the operator configures (TS 33.501 §6.1.2).
fn must_authenticate(ue: Ue) -> bool {
    let policy = ue.config().amf.access.authentication;
    let now = ue.now();
    ue.with(|p| {
        let amf = &mut p.amf;
        let near = amf.security.current.as_ref().is_some_and(|s| s.wrap_is_near());
        let often = policy.every_registrations.is_some_and(|n| amf.security.registrations >= n);
        let old = policy.after.is_some_and(|d| amf.security.authenticated_at.is_none_or(|at| now >= at + d));
        amf.security.registrations = amf.security.registrations.saturating_add(1);
        // A UE that had deregistered may use its earlier keys, but is not registered at the UDM.
        near || often || old || amf.emergency || amf.subscription.is_none() || amf.has_unknown_nas_counts()
    })
}

/// Steps 6 and 7: IDENTITY REQUEST.
async fn identify_unknown_ue(ue: Ue, request: &RegistrationRequest) -> Result<ClaimedIdentity, ProcedureEnd> {
    require_initial_registration(request)?;
    identify(ue, request).await.map(ClaimedIdentity::Received)
}

/// The authenticated identity.
fn own(ue: Ue) -> Result<ClaimedIdentity, ProcedureEnd> {
    let supi = ue.with(|p| p.amf.supi).ok_or(Refusal::NoIdentity)?;
    Ok(ClaimedIdentity::Remembered(Identity::Supi(supi)))
}

/// The tracking area must be served (TS 24.501 §5.5.1.2.5).
fn here(ue: Ue) -> Result<Tai, ProcedureEnd> {
    let tai = ue.with(|p| p.amf.location.tai).ok_or(NO_AREA)?;
    if ue.config().amf.serves(tai) { Ok(tai) } else { Err(Refusal::TaiNotServed(tai).into()) }
}

/// A request that verified under the UE's keys proves an earlier registration.
fn known(ue: Ue, request: Rc<RegistrationRequest>) -> Result<Rc<RegistrationRequest>, ProcedureEnd> {
    let complete = ue.with(|p| p.amf.supi.is_some() && p.amf.subscription.is_some());
    if complete { Ok(request) } else { Err(Refusal::NoIdentity.into()) }
}

/// A periodic registration lacks the IEs that a new context needs: the UE has to register initially (TS 24.501
/// §5.5.1.3.5, cause #9).
fn require_initial_registration(request: &RegistrationRequest) -> Result<(), ProcedureEnd> {
    let periodic = request.registration_type.kind == RegistrationKind::PeriodicUpdating;
    if periodic && request.ue_security_capability.is_none() { Err(Refusal::NoContext.into()) } else { Ok(()) }
}

/// Step 14: the subscription is read.
pub(super) async fn subscribe(
    ue: Ue,
    granted: Option<open_attach::GrantedAttach>,
) -> Result<(), ProcedureEnd> {
    let supi: Supi = ue.with(|p| p.amf.supi).ok_or(Refusal::NoIdentity)?;
    let guest = supi.is_nai() || granted.is_some() || ue.with(|p| p.grant.is_some());
    let subscription = match guest {
        true => open_attach::register(ue, supi, granted).await?,
        false => udm_client::register(ue, supi).await?,
    };
    ue.with(|p| {
        p.amf.subscription = Some(subscription);
        p.amf.subscription_stale = false;
    });
    ue.update_batch(|b| b.authenticated = true);
    Ok(())
}

/// Nudm_SDM_Get alone: this AMF may serve the UE, which is registered at another one. A broker's user has to register again.
pub(super) async fn subscribed(ue: Ue) -> Result<(), ProcedureEnd> {
    let supi: Supi = ue.with(|p| p.amf.supi).ok_or(Refusal::NoIdentity)?;
    if supi.is_nai() || ue.with(|p| p.grant.is_some()) {
        return Err(Refusal::NoIdentity.into());
    }
    let subscription = udm_client::subscription(ue, supi).await?;
    ue.with(|p| p.amf.subscription = Some(subscription));
    Ok(())
}

/// The allowed slices (TS 23.501 §5.15.5.2.1). A slice at its limit of UEs admits no further UE (TS 23.501 §5.15.11.1).
async fn slices(ue: Ue, request: Rc<RegistrationRequest>, here: Tai) -> Result<Slices, ProcedureEnd> {
    let subscription = ue.with(|p| p.amf.subscription.clone()).ok_or(Refusal::NoIdentity)?;
    let requested = slices::requested(ue, &request);
    let mut full = Vec::new();
    loop {
        let config = ue.config();
        let slices = slices::admit(&config, &subscription, &requested, here, &full)?;
        let limits = &config.amf.access.slice_ues_max;
        let limited: Vec<_> = slices.allowed.iter().filter_map(|s| Some((*s, *limits.get(s)?))).collect();
        if limits.is_empty() {
            return Ok(slices);
        }
        let more = udm_client::enter_slices(ue, limited).await?;
        if more.is_empty() {
            return Ok(slices);
        }
        full.extend(more); // each iteration names slices that no earlier one named
    }
}

/// Steps 21 and 22: the UE gets its 5G-GUTI, its registration area and its sessions, and confirms.
async fn accept(ue: Ue, admitted: AcceptInput) -> Result<(), ProcedureEnd> {
    let AcceptInput { request, tai, slices } = admitted;
    if let Some(status) = request.pdu_session_status {
        session_resources::keep_only(ue, |psi| status.contains(psi)); // step 17
    }
    // TS 24.501 §5.3.5.2: no user plane where the UE may not start services.
    let Activation { sessions, failed } = Activation::of(ue, request.uplink_data_status, false);
    let mut message = registration_accept(ue, tai, slices);
    reach::negotiate(ue, &request, &mut message);
    message.pdu_session_status = request.pdu_session_status.map(|_| self::sessions(ue));
    message.ladn_information = ladn::information(ue, Some(&request));
    message.reactivation_result = request.uplink_data_status.map(|_| failed.set);
    message.reactivation_errors = failed.errors;
    let message: Box<mm::Message> = Box::new((*message).into());
    ue.with(|p| {
        p.amf.registered = true;
        p.amf.slices.is_update_pending = false;
        if let Some(c) = &mut p.amf.connection {
            c.follow_on = request.registration_type.follow_on_request;
        }
    });

    // The answers of gNB and UE may come in either order.
    let mut awaiting = deliver(ue, &message, &sessions);
    let mut repeated = RepeatedMessage::new("REGISTRATION ACCEPT", "T3550", ue.config().timers.t3550);
    let mut confirmed = false;
    while !confirmed {
        match attempt(ue, &mut repeated, is_confirmation).await? {
            Some(Input::Ngap(m)) => {
                awaiting = None;
                context_answered(ue, *m)?;
            }
            // §5.5.1.2.8 d: the UE has repeated its request; this repetition of the accept is not counted.
            Some(Input::Mm(m)) if matches!(*m, mm::Message::RegistrationRequest(_)) => {
                send_nas(ue, &message, DownlinkProtection::Current);
            }
            Some(_complete) => {
                confirmed = true;
                ue.with(|p| p.amf.confirm_tmsi());
            }
            None => send_nas(ue, &message, DownlinkProtection::Current), // TS 24.501 §5.5.1.2.8 c
        }
    }
    match awaiting {
        Some(awaiting) => context_answer(ue, awaiting).await,
        None => Ok(()),
    }
}

fn is_confirmation(input: &Input) -> bool {
    match input {
        Input::Mm(m) => {
            matches!(**m, mm::Message::RegistrationComplete(_) | mm::Message::RegistrationRequest(_))
        }
        other => is_context_answer(other),
    }
}

fn registration_accept(ue: Ue, tai: Tai, slices: Option<Slices>) -> Box<RegistrationAccept> {
    let config = ue.config();
    let tmsi = ue.take_tmsi(); // TS 33.512 §4.2.2.5.1
    ue.with(|p| {
        p.amf.former_tmsi = p.amf.tmsi.replace(tmsi);
        if let Some(slices) = &slices {
            p.amf.slices.allowed.clone_from(&slices.allowed);
        }
    });
    let mut result = RegistrationResult::over(Accesses::ThreeGpp);
    result.emergency_registered = slices.is_none();
    let mut m = Box::new(RegistrationAccept::new(result));
    m.guti = Some(MobileIdentity::Guti(Guti { guami: config.amf.guami(), tmsi }));
    let allowed: &[SNssai] = slices.as_ref().map_or(&[], |s| &s.allowed);
    m.tai_list = Some(slices::registration_area(ue, tai, allowed));
    m.service_area_list = service_area_list(ue);
    let features = NetworkFeatureSupport::default()
        .with_ims_vops_3gpp(radio_capability_check::carries_voice(ue))
        .with_emc_nr(config.amf.access.emergency.is_some());
    m.network_feature_support = Some(priority::with_priority(ue, features));
    // T3502: the UE's pause after five failed attempts (TS 24.501 §5.3.8).
    m.t3502 = Some(GprsTimer::from_duration(config.timers.t3502));
    if let Some(slices) = slices {
        send_slices(ue, slices, &mut m);
    }
    m
}

/// TS 24.501 §4.6.2.2, TS 24.501 §5.5.1.2.4: allowed, rejected and configured slices, and that the subscription has changed.
fn send_slices(ue: Ue, slices: Slices, m: &mut RegistrationAccept) {
    let config = ue.config();
    let (subscription, changed) = ue.with(|p| (p.amf.subscription.clone(), p.amf.slices.is_update_pending));
    m.allowed_nssai = Some(slices::nssai(&slices.allowed));
    m.rejected_nssai = slices::rejected_nssai(slices.rejected);
    m.extended_rejected_nssai = slices::full_nssai(&slices.full);
    m.configured_nssai = subscription.map(|s| slices::nssai(&slices::configured(&config, &s)));
    m.network_slicing_indication = changed
        .then_some(NetworkSlicingIndication { subscription_changed: true, default_configured_nssai: false });
}

/// The sessions that the network has for this UE.
pub(crate) fn sessions(ue: Ue) -> PduSessionSet {
    ue.smf().session_ids(ue).into_iter().collect()
}

/// TS 24.501 §5.5.1.2.8 b, c: the accept was not confirmed, or the gNB did not take the UE's context. The UE is
/// registered, under both its 5G-GUTIs, and its connection is released.
fn unconfirmed(ue: Ue, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure: Procedure::Registration, subject, ran_ue_ngap_id, refusal });
    an_release::start(ue, CauseNas::Unspecified.into());
}

/// The UE uses one of its two 5G-TMSIs: the other one is no longer valid (TS 24.501 §5.5.1.2.4, §5.4.4.4).
pub(crate) fn settle_tmsi(ue: Ue, shown: Tmsi) {
    ue.with(|p| {
        if p.amf.former_tmsi == Some(shown) {
            p.amf.tmsi = p.amf.former_tmsi.take();
        } else if p.amf.tmsi == Some(shown) {
            p.amf.confirm_tmsi();
        }
    });
}

/// TS 24.501 §5.5.1.2.5, §5.5.1.3.5: REGISTRATION REJECT, or nothing more where AUTHENTICATION REJECT was sent.
/// `moved`: the UE was registered before and stays so if the cause allows.
fn reject(ue: Ue, refusal: Refusal, moved: bool) {
    if refusal.reject_was_sent() {
        return end::refused(ue, Procedure::Registration, refusal);
    }
    let config = ue.config();
    let cause = refusal.mm_cause(&config);
    let mut m = RegistrationReject::new(cause);
    m.t3346 = refusal.back_off(&config).map(GprsTimer::from_duration);
    m.eap_message = open_attach::refusal_for_ue(ue, &refusal);
    // Before it has a security context, a UE accepts a reject without protection (TS 24.501 §4.4.4.2).
    send_nas(ue, &m.into(), DownlinkProtection::Current);
    let registered = moved && ue.with(|p| p.amf.registered);
    end::refused_with(ue, Procedure::Registration, refusal, cause, registered);
}
