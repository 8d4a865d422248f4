//! Which procedure an input belongs to, and what becomes of those that run: the one place where collisions are decided.
//!
//! TS 24.501 §5.4.1.3.7, §5.4.2.7, §5.4.4.6, TS 24.501 §5.4.6.3, §5.5.1.2.8, §5.5.1.3.8, §5.5.2.2.7,
//! §5.5.2.3.5, §5.6.1.8; TS 23.502 §4.2.6, §4.9.1.

use whimbrel_nas::ie::{MmCause, MobileIdentity, RegistrationKind};
use whimbrel_nas::mm::{Message, MmStatus};
use whimbrel_ngap::ie::{Cause, CauseNas};
use whimbrel_ngap::msg::{HandoverRequired, PathSwitchRequest};

use crate::amf::{self, Received};
use crate::envelope::{AssociationId, Command, HandoverTarget, Payload};
use crate::event::{Deregistered, Dropped, Event};
use crate::input::Input;
use crate::procedure::{Lane, Procedure, Ue};
use crate::smf;
use crate::state::{Phase, Security};

#[cfg(test)]
mod tests;

/// Brings an input to where it belongs.
pub(crate) fn admit(ue: Ue, payload: &Payload) {
    match payload {
        Payload::InitialUeMessage { association, amf_ue_ngap_id, octets, addressed } => {
            amf::initial_ue_message(ue, *association, *amf_ue_ngap_id, octets, *addressed);
        }
        Payload::Ngap { association, octets } => amf::uplink(ue, *association, octets, None),
        Payload::HandoverRequired { association, octets, target } => {
            amf::uplink(ue, *association, octets, target.as_ref());
        }
        Payload::PfcpAnswer { to, upf, octets } => smf::answered(ue, *to, *upf, octets.as_deref()),
        Payload::PfcpReport { upf, psi, octets } => smf::report(ue, *upf, *psi, octets),
        Payload::Udm { to, answer } => {
            let late = ue.with(|p| p.lanes.answer(*to, Input::Udm(Box::new(answer.clone())))).is_err();
            if late {
                ue.remark(|b| b.no_effect = true);
            }
        }
        Payload::Neighbour { from, octets, target } => {
            amf::neighbour_said(ue, *from, octets, target.as_ref())
        }
        Payload::Broker { to, answer } => {
            let late = ue.with(|p| p.lanes.answer(*to, Input::Broker(answer.clone()))).is_err();
            if late {
                ue.remark(|b| b.no_effect = true);
            }
        }
        Payload::Tick => tick(ue),
        Payload::Command(command) => obey(ue, *command),
    }
}

/// A deadline has come: of an await, or of the UE's own.
fn tick(ue: Ue) {
    let now = ue.now();
    ue.with(|p| p.lanes.expire(now));
    if ue.with(|p| p.leaving_until().is_some_and(|t| t <= now)) {
        smf::lifetimes_over(ue); // TS 23.502 §4.3.5.2 step 5
    }
    if ue.with(|p| p.amf.source.as_ref().and_then(|s| s.until).is_some_and(|t| t <= now)) {
        amf::release_source(ue); // TS 23.502 §4.9.1.3.3 steps 14 and 15
    }
    if ue.with(|p| p.amf.reachable_until.is_some_and(|t| t <= now)) {
        ue.with(|p| p.amf.reachable_until = None);
        return amf::implicitly(ue, Deregistered::Implicitly); // TS 24.501 §5.3.7
    }
    if ue.with(|p| p.amf.connection_until.is_some_and(|t| t <= now)) {
        if ue.with(|p| p.awaits_release()) {
            return amf::dismiss(ue); // TS 24.501 §5.3.1.3: it has not registered again
        }
        ue.with(|p| p.amf.connection_until = None);
        if ue.with(|p| p.lanes.idle() && !smf::any_active(p)) {
            amf::release(ue, CauseNas::NormalRelease.into());
        }
    }
}

fn obey(ue: Ue, command: Command) {
    match command {
        Command::ConnectionLost(association) => {
            amf::association_lost(ue, association);
        }
        // The UDM has the subscriber elsewhere already: there is nothing to deregister there.
        Command::Superseded => {
            ue.with(|p| p.amf.registered = false);
            amf::implicitly(ue, Deregistered::Superseded);
        }
        Command::Deregister => amf::by_network(ue),
        Command::TellReachable => amf::reachability_wanted(ue),
        Command::Locate(wish) => amf::locate(ue, wish),
        Command::ModifySession(psi, modification) => smf::modify_by_operator(ue, psi, modification),
        Command::SubscriptionChanged => amf::subscription_changed(ue),
        Command::PolicyChanged => {
            smf::policy_changed(ue);
            smf::area_changed(ue);
            amf::ladn_changed(ue);
        }
        Command::Expected(psi, at) => smf::expect(ue, psi, at),
        Command::UpfRestarted(upf) => smf::upf_restarted(ue, upf),
        Command::LeaveUpf(upf) => smf::leave_upf(ue, upf),
        #[cfg(feature = "fault-injection")]
        Command::Panic => ue.with(|_| panic!("a fault was injected")),
    }
}

/// A 5GMM message that passed the security rules.
pub(crate) fn mm(ue: Ue, received: Received) {
    let Received { message, protected, content, sealed } = received;
    let running = ue.with(|p| p.lanes.procedure(Lane::Mobility));
    let repeated = ue.with(|p| p.amf.answering == content);
    if ue.with(|p| p.awaits_release()) {
        match message {
            Message::RegistrationRequest(_) => amf::registers_in_time(ue, protected),
            Message::ServiceRequest(_)
            | Message::ControlPlaneServiceRequest(_)
            | Message::DeregistrationRequestUeOriginating(_) => {}
            _ => return amf::out_of_state(ue),
        }
    }
    match message {
        // §5.5.1.2.8 d, e: the same request again has REGISTRATION ACCEPT sent again if that was sent, else it changes
        // nothing; another one starts over.
        Message::RegistrationRequest(_) if running == Some(Procedure::Registration) && repeated => {
            let again = Input::Mm(Box::new(message));
            if ue.with(|p| p.lanes.deliver(Lane::Mobility, again)).is_err() {
                duplicate(ue);
            }
        }
        // §5.5.2.3.5 d, e, f: the network's deregistration goes on; an initial registration takes its place.
        Message::RegistrationRequest(ref m)
            if running == Some(Procedure::DeregistrationByNetwork)
                && m.registration_type.kind != RegistrationKind::Initial =>
        {
            amf::out_of_state(ue);
        }
        Message::ServiceRequest(_) if running == Some(Procedure::DeregistrationByNetwork) => {
            amf::out_of_state(ue);
        }
        Message::RegistrationRequest(m) => {
            if protected && let MobileIdentity::Guti(guti) = &m.mobile_identity {
                amf::settle_tmsi(ue, guti.tmsi);
            }
            if m.registration_type.kind == RegistrationKind::Initial {
                smf::release_all(ue); // §5.5.1.2.4: an initial registration begins without sessions
                amf::begins_anew(ue);
            }
            amf::register(ue, Box::new(m), protected, content, sealed);
        }
        // §5.6.1.8 c.
        Message::ServiceRequest(_) if running == Some(Procedure::ServiceRequest) && repeated => duplicate(ue),
        Message::ServiceRequest(m) if protected && ue.with(|p| p.amf.registered) => {
            if let MobileIdentity::STmsi(s_tmsi) = &m.s_tmsi {
                amf::settle_tmsi(ue, s_tmsi.tmsi);
            }
            amf::serve(ue, m, content);
        }
        Message::ServiceRequest(_) | Message::ControlPlaneServiceRequest(_) => amf::reject_stranger(ue),
        // §5.5.2.2.7 b: whatever runs, the UE leaves.
        Message::DeregistrationRequestUeOriginating(m) => amf::by_ue(ue, &m),
        Message::UlNasTransport(m) => amf::uplink_nas_transport(ue, m),
        Message::MmStatus(_) | Message::NotificationResponse(_) => amf::out_of_state(ue),
        Message::IdentityResponse(_)
        | Message::AuthenticationResponse(_)
        | Message::AuthenticationFailure(_)
        | Message::SecurityModeComplete(_)
        | Message::SecurityModeReject(_)
        | Message::RegistrationComplete(_)
        | Message::ConfigurationUpdateComplete(_)
        | Message::DeregistrationAcceptUeTerminated(_) => {
            // §5.4.4.6 e: it answers a command whose procedure gave way to another. Which 5G-GUTI is good, the UE shows next.
            let completes = matches!(message, Message::ConfigurationUpdateComplete(_));
            let stray = ue.with(|p| p.lanes.deliver(Lane::Mobility, Input::Mm(Box::new(message)))).is_err();
            if stray && completes {
                return amf::out_of_state(ue);
            }
            if stray {
                incompatible(ue, protected);
            }
        }
        // What only a network sends, or what no function here serves.
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

/// A gNB says that the UE is at its cell (TS 38.413 §8.4.4). A handover that still runs is over with that: the UE is not
/// where it was being taken to. A connection that is being released stays so: the check of the path switch refuses.
pub(crate) fn path_switch_requested(ue: Ue, association: AssociationId, m: Box<PathSwitchRequest>) {
    amf::switch_path(ue, association, m);
}

/// A gNB wants the UE handed over (TS 38.413 §8.4.1). A handover that runs, by either way, gives way: its gNB has begun anew
/// without cancelling it (§8.4.1.4), or the UE is at another gNB by now. What else runs with the UE goes on beside it:
/// registration, service request, security mode control, configuration update, deregistration by the network, and what its
/// sessions are at (TS 33.501 §6.9.5 is kept where messages leave).
pub(crate) fn handover_required(ue: Ue, m: Box<HandoverRequired>, to: Option<HandoverTarget>) {
    amf::hand_over(ue, m, to);
}

/// The gNB wants the connection gone (TS 23.502 §4.2.6 step 1b). It does not wait for what runs over it.
pub(crate) fn release_requested(ue: Ue, cause: Cause) {
    if ue.with(|p| p.lanes.procedure(Lane::Mobility)) == Some(Procedure::AnRelease) {
        return duplicate(ue);
    }
    if ue.with(|p| p.awaits_release()) {
        return amf::dismiss(ue);
    }
    if amf::source_leaves(ue, &cause) {
        return; // a UE that is on its way to another gNB is that one's
    }
    amf::release(ue, cause);
}

/// After each input: a UE that is not registered, and for which nothing is under way, has nothing to stay for. What
/// strangers leave behind would else fill the table.
pub(crate) fn settle(ue: Ue) {
    if ue.with(|p| p.lanes.idle() && !p.amf.registered && !p.awaits_release()) {
        return amf::dismiss(ue);
    }
    // What waited for the UE's procedure to end; each looks itself whether it is due.
    if ue.with(|p| p.lanes.procedure(Lane::Mobility).is_none()) {
        amf::rekey_if_due(ue);
        amf::subscription_change_if_due(ue);
    }
    if ue.with(|p| p.amf.moved && p.amf.target.is_none()) {
        smf::area_changed(ue);
    }
    amf::deregister_if_wanted(ue);
    amf::tell_reachable_if_wanted(ue);
    smf::begin_wanted(ue);
    smf::await_abandoned_setups(ue);
    amf::watch_connection(ue);
}

/// What becomes of a UE's request that meets a procedure of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It begins; what runs gives way.
    Proceed,
    /// It begins once what runs has ended.
    Wait,
    /// It is dropped; what runs goes on.
    Ignore,
}

/// HANDOVER REQUIRED and PATH SWITCH REQUEST meet what the UE, its connection or an earlier handover is at: TS 23.502 §4.9.1,
/// TS 38.413 §8.4.1.2, §8.4.4.2. [`Verdict::Ignore`]: the gNB is refused, and what runs goes on.
pub(crate) fn handover_meets(running: Option<Procedure>) -> Verdict {
    match running {
        // The connection is on its way out: there is nothing to hand over.
        Some(Procedure::AnRelease) => Verdict::Ignore,
        // Of two handovers the later one is where the UE is, or goes: the earlier gives way, its target is told.
        Some(Procedure::Handover | Procedure::PathSwitch) => Verdict::Proceed,
        // What is said to the UE goes on beside it; what leaves meanwhile is judged by `message_meets`.
        None
        | Some(
            Procedure::Registration
            | Procedure::DeregistrationByUe
            | Procedure::DeregistrationByNetwork
            | Procedure::Authentication
            | Procedure::SubscriptionChange
            | Procedure::ServiceRequest
            | Procedure::Paging
            | Procedure::UeContextTransfer
            | Procedure::ConfigurationUpdate,
        ) => Verdict::Proceed,
        // Sessions have lanes of their own, and wait for the handover where they need a gNB (TS 23.502 §4.9.1.3.1).
        Some(
            Procedure::PduSessionModifyIndication
            | Procedure::PduSessionEstablishment
            | Procedure::PduSessionModificationByUe
            | Procedure::PduSessionModificationByNetwork
            | Procedure::PduSessionReleaseByUe
            | Procedure::PduSessionReleaseByNetwork
            | Procedure::UpConnectionActivation
            | Procedure::UpConnectionDeactivation
            | Procedure::PduSessionResourceSetup,
        ) => Verdict::Proceed,
    }
}

/// A 5GMM message to a UE that is being handed over. Until its target has answered, the UE hears; new NAS keys are proposed
/// to no UE whose radio gets new keys (TS 33.501 §6.9.5). On its way it hears nothing: what is to be said waits.
pub(crate) fn message_meets(phase: Option<Phase>, security: Security) -> Verdict {
    match (phase, security) {
        (Some(Phase::Waiting | Phase::Preparing), Security::Plain | Security::Current) => Verdict::Proceed,
        (Some(Phase::Waiting | Phase::Preparing), Security::Proposed) => Verdict::Wait,
        (Some(Phase::Executing) | None, _) => Verdict::Wait,
    }
}

/// PDU SESSION MODIFICATION REQUEST: TS 24.501 §6.4.2.6, §6.3.2.5, §6.3.3.5.
pub(crate) fn modification_meets(running: Option<Procedure>) -> Verdict {
    match running {
        None => Verdict::Proceed,
        // The network's modification goes on, and the UE gives its own up (§6.4.2.5 b); so does any release (§6.4.2.6 b).
        Some(
            Procedure::PduSessionModificationByNetwork
            | Procedure::PduSessionReleaseByUe
            | Procedure::PduSessionReleaseByNetwork,
        ) => Verdict::Ignore,
        // The same request again: T3591 answers it (§7.3.1).
        Some(Procedure::PduSessionModificationByUe) => Verdict::Ignore,
        // The UE has its accept before the gNB has answered; the user plane comes and goes in a moment.
        Some(_) => Verdict::Wait,
    }
}

/// PDU SESSION RELEASE REQUEST: TS 24.501 §6.4.3.6, §6.3.2.5 c, §6.3.3.5.
pub(crate) fn release_meets(running: Option<Procedure>) -> Verdict {
    match running {
        // The network's release goes on: its command answers both (§6.4.3.6). So does the UE's own, repeated.
        Some(Procedure::PduSessionReleaseByNetwork | Procedure::PduSessionReleaseByUe) => Verdict::Ignore,
        // A modification is given up (§6.3.2.5 c), and whatever else runs.
        _ => Verdict::Proceed,
    }
}

fn duplicate(ue: Ue) {
    let subject = ue.with(|p| p.subject());
    ue.event(Event::Dropped { subject, why: Dropped::Duplicate });
    ue.remark(|b| b.no_effect = true);
}

/// TS 24.501 §7.4: 5GMM STATUS, if the UE proved to be itself; strangers get no echo.
fn incompatible(ue: Ue, protected: bool) {
    amf::out_of_state(ue);
    if protected {
        amf::send_nas(ue, &MmStatus::new(MmCause::MessageTypeNotCompatible).into(), Security::Current);
    }
}
