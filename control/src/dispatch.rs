//! Dispatches inputs of a UE to network functions, and does the work that is due after each input.

use whimbrel_ngap::ie::CauseNas;

use crate::amf;
use crate::config::Config;
use crate::envelope::{Command, Payload};
use crate::event::DeregistrationReason;
use crate::input::Input;
use crate::procedure::{Lane, Ue};
use crate::services::NetworkFunctions;
use crate::smf;
use crate::state::UeContext;

/// The functions that serve a UE at this input: those of this program, or its AMF with another vendor's SMF, or its SMF with another vendor's
/// AMF. The first input of a UE of such an AMF is a request of that AMF.
pub(crate) fn network_functions(config: &Config, ue: &UeContext, payload: &Payload) -> NetworkFunctions {
    let is_of_remote_amf = ue.remote_amf.is_some() || matches!(payload, Payload::SmContextRequested(_));
    match (is_of_remote_amf, config.amf.uses_remote_smf) {
        (true, _) => NetworkFunctions { amf: &smf::remote_amf::RemoteAmf, smf: &smf::service::Smf },
        (false, true) => NetworkFunctions { amf: &amf::service::Amf, smf: &amf::remote_smf::RemoteSmf },
        (false, false) => NetworkFunctions { amf: &amf::service::Amf, smf: &smf::service::Smf },
    }
}

/// Dispatches an input.
pub(crate) fn admit(ue: Ue, payload: &Payload) {
    match payload {
        Payload::InitialUeMessage { association, amf_ue_ngap_id, octets, addressed } => {
            amf::ngap_dispatch::initial_ue_message(ue, *association, *amf_ue_ngap_id, octets, *addressed);
        }
        Payload::Ngap { association, octets } => amf::ngap_dispatch::uplink(ue, *association, octets, None),
        Payload::HandoverRequired { association, octets, target } => {
            amf::ngap_dispatch::uplink(ue, *association, octets, target.as_ref());
        }
        Payload::PfcpAnswer { to, upf, octets } => smf::n4::answered(ue, *to, *upf, octets.as_deref()),
        Payload::PfcpReport { upf, psi, octets } => smf::n4::report(ue, *upf, *psi, octets),
        Payload::Udm { to, answer } => {
            let late = ue.with(|p| p.lanes.answer(*to, Input::Udm(Box::new(answer.clone())))).is_err();
            if late {
                ue.update_batch(|b| b.no_effect = true);
            }
        }
        Payload::Charging { to, answer } => {
            let late = ue.with(|p| p.lanes.answer(*to, Input::Charging(answer.clone()))).is_err();
            if late {
                ue.update_batch(|b| b.no_effect = true);
            }
        }
        Payload::Policy { to, answer } => {
            let late = ue.with(|p| p.lanes.answer(*to, Input::Policy(answer.clone()))).is_err();
            if late {
                ue.update_batch(|b| b.no_effect = true);
            }
        }
        Payload::PolicyNotified { psi, notification } => {
            smf::sm_policy::notified(ue, *psi, (**notification).clone());
        }
        Payload::SmContext { to, psi, answer } => {
            let late = ue.with(|p| p.lanes.answer(*to, Input::SmContext(answer.clone()))).is_err();
            if late {
                amf::remote_smf::answered_late(ue, *psi, answer);
            }
        }
        Payload::SmfOrdered { psi, order } => amf::remote_smf::ordered(ue, *psi, (**order).clone()),
        Payload::PeerAmf { from, octets, target } => amf::n14::received(ue, *from, octets, target.as_ref()),
        Payload::Broker { to, answer } => {
            let late = ue.with(|p| p.lanes.answer(*to, Input::Broker(answer.clone()))).is_err();
            if late {
                ue.update_batch(|b| b.no_effect = true);
            }
        }
        Payload::SmContextRequested(request) => smf::remote_amf::request(ue, request),
        Payload::TransferAnswered(answer) => smf::remote_amf::transfer_answered(ue, *answer),
        Payload::Predicted { target, gnb, tai } => amf::predicted_handover::start(ue, target, *gnb, *tai),
        Payload::Tick => tick(ue),
        Payload::Command(command) => handle_command(ue, *command),
    }
}

/// A deadline has expired: of an await, or one of the UE context.
fn tick(ue: Ue) {
    let now = ue.now();
    ue.with(|p| p.lanes.expire(now));
    if ue.with(|p| p.leaving_until().is_some_and(|t| t <= now)) {
        smf::reanchoring::lifetimes_over(ue); // TS 23.502 §4.3.5.2 step 5
    }
    amf::predicted_handover::expire(ue);
    if ue.with(|p| p.amf.mobility.forwarding_source.as_ref().and_then(|s| s.until).is_some_and(|t| t <= now))
    {
        amf::target::release_source(ue); // TS 23.502 §4.9.1.3.3 steps 14 and 15
    }
    if ue.with(|p| p.amf.implicit_deregistration_at.is_some_and(|t| t <= now)) {
        ue.with(|p| p.amf.implicit_deregistration_at = None);
        return amf::deregistration::implicitly(ue, DeregistrationReason::Implicitly); // TS 24.501 §5.3.7
    }
    if ue.with(|p| p.amf.inactivity_deadline.is_some_and(|t| t <= now)) {
        if ue.with(|p| p.awaits_release()) {
            return amf::end::dismiss(ue); // TS 24.501 §5.3.1.3: it has not registered again
        }
        ue.with(|p| p.amf.inactivity_deadline = None);
        if ue.with(|p| p.lanes.idle()) && !ue.smf().has_user_plane(ue) {
            amf::an_release::start(ue, CauseNas::NormalRelease.into());
        }
    }
}

fn handle_command(ue: Ue, command: Command) {
    if ue.with(|p| p.remote_amf.is_some()) {
        match command {
            Command::Superseded | Command::RegisteredElsewhere | Command::Deregister => {
                return smf::remote_amf::release_all(ue);
            }
            Command::SubscriptionChanged => return smf::remote_amf::subscription_changed(ue),
            Command::PolicyChanged => {
                smf::policy_change::policy_changed(ue);
                return smf::area::area_changed(ue);
            }
            // Another AMF has the UE's connection.
            Command::ConnectionLost(_)
            | Command::Relocate { .. }
            | Command::NotifyReachable
            | Command::Locate(_)
            | Command::LocalTimeChanged => return,
            _ => {} // about its sessions
        }
    }
    match command {
        Command::ConnectionLost(association) => {
            amf::target::association_lost(ue, association);
        }
        // The AMF to which the UE is moving has registered it, and takes the sessions before it says so: this context ends with the transfer
        // (TS 23.502 §4.2.2.2.2 step 14).
        Command::RegisteredElsewhere if ue.with(|p| p.amf.outbound().is_some()) => {}
        // The UDM has the subscriber in another slot: there is nothing to deregister there.
        Command::Superseded | Command::RegisteredElsewhere => {
            ue.with(|p| p.amf.registered = false);
            amf::deregistration::implicitly(ue, DeregistrationReason::Superseded);
        }
        Command::Deregister => amf::deregistration::by_network(ue),
        Command::Relocate { to, gnb } => amf::n14::removal::relocate(ue, to, gnb),
        Command::NotifyReachable => amf::reachability::notify(ue),
        Command::Locate(wish) => amf::location_reporting::ask(ue, wish),
        Command::ModifySession(psi, modification) => smf::pending_change::by_operator(ue, psi, modification),
        Command::SubscriptionChanged => amf::subscription_change::notified(ue),
        Command::PolicyChanged => {
            smf::policy_change::policy_changed(ue);
            area_changed(ue);
            amf::ladn::changed(ue);
        }
        Command::LocalTimeChanged => amf::configuration_update::local_time_changed(ue),
        Command::UpfRestarted(upf) => smf::release::upf_restarted(ue, upf),
        Command::LeaveUpf(upf) => smf::release::leave_upf(ue, upf),
        Command::DrainUpf(upf, step) => smf::upf_drain::move_sessions(ue, upf, step),
        Command::RestoreSessions(upf) => smf::restoration::restore_sessions(ue, upf),
        Command::Intercept(to) => smf::interception::intercept(ue, to),
        Command::ReportCharging(psi) => smf::charging::reauthorise(ue, psi),
        Command::AbortCharging(psi) => smf::charging::abort(ue, psi),
        #[cfg(feature = "fault-injection")]
        Command::Panic => ue.with(|_| panic!("a fault was injected")),
    }
}

/// The UE's tracking area or its data networks' service areas have changed.
fn area_changed(ue: Ue) {
    ue.with(|p| p.amf.location.is_area_check_pending = false);
    smf::area::area_changed(ue);
}

/// After each input: deletes the context of a UE that is not registered and has no procedure. Else unauthenticated UEs
/// would fill the table.
pub(crate) fn housekeeping(ue: Ue) {
    if ue.with(|p| p.remote_amf.is_some()) {
        return smf::remote_amf::housekeeping(ue);
    }
    if ue.with(|p| p.lanes.idle() && !p.amf.registered && !p.awaits_release()) {
        return amf::end::dismiss(ue);
    }
    // Work that waited for the end of the UE's procedure; each function checks whether it is due.
    if ue.with(|p| p.lanes.procedure(Lane::Mobility).is_none()) {
        amf::rekeying::begin_if_due(ue);
        amf::subscription_change::begin_if_due(ue);
    }
    if ue.with(|p| p.amf.location.is_area_check_pending && p.amf.mobility.target.is_none()) {
        area_changed(ue);
    }
    amf::deregistration::deregister_if_requested(ue);
    amf::open_grant::end_if_over(ue);
    amf::reachability::report_if_requested(ue);
    smf::modification::begin_pending_changes(ue);
    amf::pending_setup::await_abandoned_setups(ue);
    amf::end::watch_connection(ue);
}
