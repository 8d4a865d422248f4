//! Dispatches 5GMM messages to their procedures and resolves collisions: TS 24.501 §5.4.1.3.7, §5.4.2.7, §5.4.4.6, §5.4.6.3, §5.5.1.2.8,
//! §5.5.1.3.8, §5.5.2.2.7, §5.5.2.3.5, §5.6.1.8.

use whimbrel_nas::ie::{MmCause, MobileIdentity, RegistrationKind};
use whimbrel_nas::mm::{Message, MmStatus};

use super::n2::send_nas;
use super::nas::Received;
use super::{deregistration, end, n14, nas_transport, registration, service_request, session_resources};
use crate::event::{Event, MessageDropReason};
use crate::input::Input;
use crate::procedure::{Lane, Procedure, Ue, out_of_state};
use crate::state::DownlinkProtection;

/// A 5GMM message that passed the security rules.
pub(crate) fn received(ue: Ue, received: Received) {
    let Received { message, protected, content, sealed } = received;
    let running = ue.with(|p| p.lanes.procedure(Lane::Mobility));
    let repeated = ue.with(|p| p.amf.initial_nas_digest == content);
    if ue.with(|p| p.awaits_release()) {
        match message {
            Message::RegistrationRequest(_) => end::registers_in_time(ue, protected),
            Message::ServiceRequest(_)
            | Message::ControlPlaneServiceRequest(_)
            | Message::DeregistrationRequestUeOriginating(_) => {}
            _ => return out_of_state(ue),
        }
    }
    match message {
        // §5.5.1.2.8 d, e: a repeated request has REGISTRATION ACCEPT sent again if it was sent, else it changes
        // nothing; a different request starts over.
        Message::RegistrationRequest(_) if running == Some(Procedure::Registration) && repeated => {
            let again = Input::Mm(Box::new(message));
            if ue.with(|p| p.lanes.deliver(Lane::Mobility, again)).is_err() {
                duplicate(ue);
            }
        }
        // §5.5.2.3.5 d, e, f: the network's deregistration continues; only an initial registration supersedes it.
        Message::RegistrationRequest(ref m)
            if running == Some(Procedure::DeregistrationByNetwork)
                && m.registration_type.kind != RegistrationKind::Initial =>
        {
            out_of_state(ue);
        }
        Message::ServiceRequest(_) if running == Some(Procedure::DeregistrationByNetwork) => {
            out_of_state(ue);
        }
        Message::RegistrationRequest(m) => {
            if protected && let MobileIdentity::Guti(guti) = &m.mobile_identity {
                registration::settle_tmsi(ue, guti.tmsi);
            }
            if m.registration_type.kind == RegistrationKind::Initial {
                session_resources::release_all(ue); // §5.5.1.2.4: an initial registration begins without sessions
                deregistration::superseded_by_registration(ue);
            }
            registration::start(ue, Box::new(m), protected, content, sealed);
        }
        // §5.6.1.8 c.
        Message::ServiceRequest(_) if running == Some(Procedure::ServiceRequest) && repeated => duplicate(ue),
        Message::ServiceRequest(m) if protected && ue.with(|p| p.amf.registered) => {
            if let MobileIdentity::STmsi(s_tmsi) = &m.s_tmsi {
                registration::settle_tmsi(ue, s_tmsi.tmsi);
            }
            service_request::start(ue, m, content, None);
        }
        // Another AMF of the set may have the UE's context.
        Message::ServiceRequest(m)
            if !protected && sealed.is_some() && n14::registration::is_of_set(ue, &m).is_some() =>
        {
            service_request::start(ue, m, content, sealed);
        }
        Message::ServiceRequest(_) | Message::ControlPlaneServiceRequest(_) => {
            service_request::reject_unknown_ue(ue)
        }
        // §5.5.2.2.7 b: a deregistration by the UE ends any other procedure.
        Message::DeregistrationRequestUeOriginating(m) => deregistration::by_ue(ue, &m),
        Message::UlNasTransport(m) => nas_transport::uplink(ue, m),
        Message::MmStatus(_) | Message::NotificationResponse(_) => out_of_state(ue),
        Message::IdentityResponse(_)
        | Message::AuthenticationResponse(_)
        | Message::AuthenticationFailure(_)
        | Message::SecurityModeComplete(_)
        | Message::SecurityModeReject(_)
        | Message::RegistrationComplete(_)
        | Message::ConfigurationUpdateComplete(_)
        | Message::DeregistrationAcceptUeTerminated(_) => {
            // §5.4.4.6 e: it answers a command whose procedure was superseded. The UE's next message shows which 5G-GUTI is
            // valid.
            let completes = matches!(message, Message::ConfigurationUpdateComplete(_));
            let stray = ue.with(|p| p.lanes.deliver(Lane::Mobility, Input::Mm(Box::new(message)))).is_err();
            if stray && completes {
                return out_of_state(ue);
            }
            if stray {
                incompatible(ue, protected);
            }
        }
        // Messages that only a network sends, or that no function here serves.
        Message::RegistrationAccept(_)
        | Message::RegistrationReject(_)
        | Message::DeregistrationAcceptUeOriginating(_)
        | Message::DeregistrationRequestUeTerminated(_)
        | Message::ServiceReject(_)
        | Message::ServiceAccept(_)
        | Message::SliceAuthenticationCommand(_)
        | Message::SliceAuthenticationComplete(_)
        | Message::SliceAuthenticationResult(_)
        | Message::ConfigurationUpdateCommand(_)
        | Message::AuthenticationRequest(_)
        | Message::AuthenticationReject(_)
        | Message::AuthenticationResult(_)
        | Message::IdentityRequest(_)
        | Message::SecurityModeCommand(_)
        | Message::Notification(_)
        | Message::DlNasTransport(_) => incompatible(ue, protected),
    }
}

pub(crate) fn duplicate(ue: Ue) {
    let subject = ue.with(|p| p.subject());
    ue.event(Event::Dropped { subject, why: MessageDropReason::Duplicate });
    ue.update_batch(|b| b.no_effect = true);
}

/// TS 24.501 §7.4: 5GMM STATUS, if the message was protected; unauthenticated UEs get no answer.
fn incompatible(ue: Ue, protected: bool) {
    out_of_state(ue);
    if protected {
        send_nas(ue, &MmStatus::new(MmCause::MessageTypeNotCompatible).into(), DownlinkProtection::Current);
    }
}
