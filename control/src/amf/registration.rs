//! Registration: TS 23.502 §4.2.2.2.2; NAS part TS 24.501 §5.5.1.2 and §5.5.1.3.

use std::rc::Rc;

use whimbrel_ids::{Guti, SNssai, Supi, Tai, Tmsi};
use whimbrel_nas::ie::{
    Accesses, GprsTimer, GprsTimer3, MappedSNssai, MobileIdentity, NetworkFeatureSupport, Nssai,
    PduSessionSet, RegistrationKind, RegistrationResult, RejectedNssai, SliceRejectCause, TaiList,
};
use whimbrel_nas::mm::{self, RegistrationAccept, RegistrationReject, RegistrationRequest};
use whimbrel_ngap::ie::CauseNas;

use super::authentication::{Claim, authenticate};
use super::connection::{ids, send_nas};
use super::context_setup::{context_answered, deliver, is_context_answer};
use super::identification::identify;
use super::mobility_restrictions::{permitted, service_allowed, service_area_list};
use super::nas::Security;
use super::security_mode::{Secured, secure_nas};
use super::{an_release, configuration_update, end, service_request, udm_client};
use crate::config::Config;
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{End, Repeated, attempt};
use crate::refusal::Refusal;
use crate::shard::{Lane, Procedure, Ue};
use crate::smf;
use crate::udm::Identity;

/// Begins the registration that a message asks for.
pub(crate) fn start(ue: Ue, request: Box<RegistrationRequest>, protected: bool, digest: u64) {
    ue.with(|p| p.amf.answering = digest);
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::Registration, async move {
        let began = ue.now();
        let initial = request.registration_type.kind == RegistrationKind::Initial;
        let admitted = match admission(ue, request.into(), protected).await {
            Ok(admitted) => admitted,
            Err(End::Refused(refusal)) => return reject(ue, refusal),
            Err(End::Interrupted(why)) => return end::interrupted(ue, why),
        };
        match accept(ue, admitted).await {
            Ok(()) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::Registration, subject, took });
                if initial {
                    configuration_update::tell_network_name(ue);
                }
                end::let_go_when_unused(ue);
            }
            Err(End::Refused(refusal)) => unconfirmed(ue, refusal),
            Err(End::Interrupted(why)) => end::interrupted(ue, why),
        }
    });
}

/// What REGISTRATION ACCEPT is made of.
struct Admitted {
    request: Rc<RegistrationRequest>,
    tai: Tai,
    slices: Slices,
}

/// All that comes before REGISTRATION ACCEPT.
async fn admission(ue: Ue, request: Rc<RegistrationRequest>, protected: bool) -> Result<Admitted, End> {
    let tai = here(ue)?;
    no_emergency(&request)?;
    let request = if protected && !counts_run_out(ue) {
        known(ue, request)? // the context in force proved who it is: step 9 may be skipped
    } else {
        let claim = if protected { own(ue)? } else { identify_stranger(ue, &request).await? };
        let authenticated = authenticate(ue, claim, request.ng_ksi).await?; // step 9: 5G-AKA or EAP-AKA'
        let Secured { initial_message } = secure_nas(ue, &request, authenticated, !protected).await?; // step 9: SECURITY MODE COMMAND
        let request = initial_message.unwrap_or(request);
        subscribe(ue).await?; // step 14: Nudm_UECM, Nudm_SDM
        request
    };
    permitted(ue, tai)?; // areas: TS 23.501 §5.3.4.1.1
    let slices = admit(ue, &request, tai)?; // slices: TS 23.501 §5.15.5.2
    Ok(Admitted { request, tai, slices }) // steps 21, 22: REGISTRATION ACCEPT, T3550
}

/// Before a NAS COUNT wraps, new keys are due (TS 24.501 §4.4.3.5).
fn counts_run_out(ue: Ue) -> bool {
    ue.with(|p| p.amf.security.as_ref().is_some_and(|s| s.wrap_is_near()))
}

/// Steps 4 to 7: old AMF, IDENTITY REQUEST.
async fn identify_stranger(ue: Ue, request: &RegistrationRequest) -> Result<Claim, End> {
    started_over(request)?;
    identify(ue, request).await.map(Claim::Told)
}

/// Who the phone has proved to be.
fn own(ue: Ue) -> Result<Claim, End> {
    let supi = ue.with(|p| p.amf.supi).ok_or(Refusal::NoIdentity)?;
    Ok(Claim::Remembered(Identity::Supi(supi)))
}

/// There is no emergency service here, and the network feature support says so (TS 24.501 §5.5.1.2.7).
fn no_emergency(request: &RegistrationRequest) -> Result<(), End> {
    match request.registration_type.kind {
        RegistrationKind::Emergency => Err(Refusal::Emergency.into()),
        _ => Ok(()),
    }
}

/// Where the phone is must be served (TS 24.501 §5.5.1.2.5).
fn here(ue: Ue) -> Result<Tai, End> {
    let tai = ue.with(|p| p.amf.tai).ok_or(Refusal::Protocol("its gNB did not tell a tracking area"))?;
    if ue.config().amf.serves(tai) { Ok(tai) } else { Err(Refusal::TaiNotServed(tai).into()) }
}

/// A protected request comes from a phone that registered before.
fn known(ue: Ue, request: Rc<RegistrationRequest>) -> Result<Rc<RegistrationRequest>, End> {
    let complete = ue.with(|p| p.amf.supi.is_some() && p.amf.subscription.is_some());
    if complete { Ok(request) } else { Err(Refusal::NoIdentity.into()) }
}

/// A periodic registration does not bring what a new context needs: the phone is told to register initially
/// (TS 24.501 §5.5.1.3.5, cause #9).
fn started_over(request: &RegistrationRequest) -> Result<(), End> {
    let periodic = request.registration_type.kind == RegistrationKind::PeriodicUpdating;
    if periodic && request.ue_security_capability.is_none() { Err(Refusal::NoContext.into()) } else { Ok(()) }
}

/// Step 14.
async fn subscribe(ue: Ue) -> Result<(), End> {
    let supi: Supi = ue.with(|p| p.amf.supi).ok_or(Refusal::NoIdentity)?;
    let subscription = udm_client::register(ue, supi).await?;
    ue.with(|p| p.amf.subscription = Some(subscription));
    ue.remark(|b| b.authenticated = true);
    Ok(())
}

/// The slices that the phone may use here, and those that it asked for in vain.
struct Slices {
    allowed: Vec<SNssai>,
    rejected: Vec<(SNssai, SliceRejectCause)>,
}

/// Requested, subscribed and offered: the slices that all three name. Without a request, the subscribed defaults.
fn admit(ue: Ue, request: &RegistrationRequest, _served: Tai) -> Result<Slices, End> {
    let subscription = ue.with(|p| p.amf.subscription.clone()).ok_or(Refusal::NoIdentity)?;
    let config = ue.config();
    let requested: Vec<SNssai> =
        request.requested_nssai.iter().flat_map(|n| n.0.iter().map(|s| s.s_nssai)).collect();
    let usable = |s: &SNssai| config.amf.slices.contains(s) && subscription.slice(*s).is_some();
    let mut allowed: Vec<SNssai> = requested.iter().copied().filter(usable).collect();
    if allowed.is_empty() {
        let defaults = subscription.slices.iter().filter(|s| s.default).map(|s| s.s_nssai);
        allowed = defaults.filter(usable).collect();
    }
    let mut seen = Vec::with_capacity(allowed.len());
    allowed.retain(|s| {
        !seen.contains(s) && {
            seen.push(*s);
            true
        }
    });
    allowed.truncate(ALLOWED_SLICES_MAX);
    if allowed.is_empty() {
        let subscribed = subscription.slices.iter().map(|s| s.s_nssai).collect();
        return Err(Refusal::NoSlice { requested, subscribed }.into());
    }
    let rejected = requested.into_iter().filter(|s| !usable(s));
    let rejected =
        rejected.map(|s| (s, SliceRejectCause::NotAvailableInPlmn)).take(ALLOWED_SLICES_MAX).collect();
    Ok(Slices { allowed, rejected })
}

/// The allowed NSSAI holds eight slices (TS 24.501 §9.11.3.37).
const ALLOWED_SLICES_MAX: usize = 8;

/// Steps 21 and 22: the phone gets its 5G-GUTI, its registration area and its sessions, and confirms.
async fn accept(ue: Ue, admitted: Admitted) -> Result<(), End> {
    let Admitted { request, tai, slices } = admitted;
    if let Some(status) = request.pdu_session_status {
        smf::keep_only(ue, |psi| status.contains(psi)); // step 17
    }
    // TS 24.501 §5.3.5.2: no user plane where the phone may not start services.
    let sessions = match service_allowed(ue) {
        Ok(()) => service_request::sessions_to_activate(ue, request.uplink_data_status),
        Err(_) => Vec::new(),
    };
    let mut message = registration_accept(ue, tai, slices);
    message.pdu_session_status = request.pdu_session_status.map(|_| self::sessions(ue));
    message.reactivation_result =
        request.uplink_data_status.map(|asked| service_request::failed(asked, &sessions));
    let message: Box<mm::Message> = Box::new((*message).into());
    ue.with(|p| {
        p.amf.registered = true;
        if let Some(c) = &mut p.amf.connection {
            c.follow_on = request.registration_type.follow_on_request;
        }
    });

    // The gNB's answer and the phone's may come in either order.
    let mut awaiting = deliver(ue, &message, &sessions);
    let mut repeated = Repeated::new("REGISTRATION ACCEPT", ue.config().timers.t3550);
    let mut confirmed = false;
    while !confirmed || awaiting.is_some() {
        match attempt(ue, &mut repeated, is_confirmation).await? {
            Some(Input::Ngap(m)) => {
                awaiting = None;
                context_answered(ue, *m)?;
            }
            // §5.5.1.2.8 d: the phone asks again; this repetition is not counted.
            Some(Input::Mm(m)) if matches!(*m, mm::Message::RegistrationRequest(_)) => {
                send_nas(ue, &message, Security::Current);
            }
            Some(_complete) => {
                confirmed = true;
                ue.with(|p| p.amf.former_tmsi = None);
            }
            None if confirmed => {
                return Err(Refusal::RadioFailure("no answer to INITIAL CONTEXT SETUP REQUEST").into());
            }
            None => send_nas(ue, &message, Security::Current), // TS 24.501 §5.5.1.2.8 c
        }
    }
    Ok(())
}

fn is_confirmation(input: &Input) -> bool {
    match input {
        Input::Mm(m) => {
            matches!(**m, mm::Message::RegistrationComplete(_) | mm::Message::RegistrationRequest(_))
        }
        other => is_context_answer(other),
    }
}

fn registration_accept(ue: Ue, tai: Tai, slices: Slices) -> Box<RegistrationAccept> {
    let config = ue.config();
    let tmsi = ue.take_tmsi();
    ue.with(|p| {
        p.amf.former_tmsi = p.amf.tmsi.replace(tmsi);
        p.amf.allowed_nssai.clone_from(&slices.allowed);
    });
    let mut m = Box::new(RegistrationAccept::new(RegistrationResult::over(Accesses::ThreeGpp)));
    m.guti = Some(MobileIdentity::Guti(Guti { guami: config.amf.guami(), tmsi }));
    m.tai_list = Some(registration_area(ue, &config, tai));
    m.service_area_list = service_area_list(ue);
    m.allowed_nssai = Some(Nssai(slices.allowed.into_iter().map(MappedSNssai::from).collect()));
    m.rejected_nssai = (!slices.rejected.is_empty()).then_some(RejectedNssai(slices.rejected));
    m.configured_nssai = Some(Nssai(configured(ue).map(MappedSNssai::from).collect()));
    m.network_feature_support =
        Some(NetworkFeatureSupport::default().with_ims_vops_3gpp(config.amf.ims_vops));
    m.t3512 = Some(GprsTimer3::from_duration(config.timers.t3512));
    m.t3502 = Some(GprsTimer::from_duration(config.timers.t3502));
    m
}

/// The slices configured for this phone: those that it subscribes to and that the network offers (TS 23.501 §5.15.4).
fn configured(ue: Ue) -> impl Iterator<Item = SNssai> {
    let config = ue.config();
    let subscription = ue.with(|p| p.amf.subscription.clone());
    let subscribed: Vec<SNssai> =
        subscription.iter().flat_map(|s| s.slices.iter().map(|s| s.s_nssai)).collect();
    subscribed.into_iter().filter(move |s| config.amf.slices.contains(s)).take(16)
}

/// Where the phone may move without telling (TS 24.501 §5.5.1.2.4). What is forbidden to it is not among it.
fn registration_area(ue: Ue, config: &Config, here: Tai) -> TaiList {
    let area = ue.with(|p| {
        let forbidden = p.amf.subscription.iter().flat_map(|s| &s.restrictions.forbidden_areas);
        let forbidden: Vec<_> = forbidden.copied().collect();
        let area =
            config.amf.registration_area(here).filter(|tai| *tai == here || !forbidden.contains(&tai.tac));
        p.amf.registration_area = area.take(whimbrel_nas::ie::TAI_LIST_MAX).collect();
        p.amf.registration_area.to_vec()
    });
    area.into_iter().collect()
}

/// The sessions that the network has for this phone.
pub(crate) fn sessions(ue: Ue) -> PduSessionSet {
    ue.with(|p| p.sessions.keys().copied().collect())
}

/// TS 24.501 §5.5.1.2.8 b, c: the accept was not confirmed, or the gNB did not take the phone's context. The phone counts as
/// registered, under both its 5G-GUTIs, and its connection is let go.
fn unconfirmed(ue: Ue, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure: Procedure::Registration, subject, ran_ue_ngap_id, refusal });
    an_release::start(ue, CauseNas::Unspecified.into());
}

/// The phone shows one of its two 5G-TMSIs: that one it has, the other is good no more (TS 24.501 §5.5.1.2.4, §5.4.4.4).
pub(crate) fn settle_tmsi(ue: Ue, shown: Tmsi) {
    ue.with(|p| {
        if p.amf.former_tmsi == Some(shown) {
            p.amf.tmsi = p.amf.former_tmsi.take();
        } else if p.amf.tmsi == Some(shown) {
            p.amf.former_tmsi = None;
        }
    });
}

/// TS 24.501 §5.5.1.2.5: REGISTRATION REJECT, or nothing more where AUTHENTICATION REJECT was said already.
fn reject(ue: Ue, refusal: Refusal) {
    let config = ue.config();
    if !refusal.was_told() {
        let mut m = RegistrationReject::new(refusal.mm_cause(&config));
        m.t3346 = refusal.back_off(&config).map(GprsTimer::from_duration);
        // A phone takes a reject without protection before it has a context (TS 24.501 §4.4.4.2).
        send_nas(ue, &m.into(), Security::Current);
    }
    end::refused(ue, Procedure::Registration, refusal);
}
