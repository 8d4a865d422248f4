//! Registration in all ways, and deregistration by the UE (TS 23.502 §4.2.2).

use std::time::Duration;

use whimbrel_control::Command as CoreCommand;
use whimbrel_control::smf::UpState;
use whimbrel_ran::ue::{MmState, UeCommand};
use whimbrel_security::{K, Milenage, Opc, Usim, UsimSqn};

use super::bring::{
    at_home, connected, go_idle, gone, gone_and_fresh, idle, is_gone, order, register, with_session,
};
use super::{ProcedureCase, ProcedureEffect};
use crate::{Sim, UeIndex, registered};

pub(super) static ALL: &[ProcedureCase] = &[
    ProcedureCase::new(
        "initial registration",
        gone,
        |net, ue| net.command(ue, UeCommand::Register),
        |net, ue, _| registered(net, ue),
    )
    .ends(ProcedureEffect::Registration),
    ProcedureCase::new(
        "initial registration of a UE that has lost its state",
        with_session,
        |net, ue| {
            net.lose_power(ue);
            net.switch_on(ue);
            net.command(ue, UeCommand::Register);
        },
        |net, ue, _| registered(net, ue) && net.ue_ref(ue).sessions().count() == 0,
    )
    .ends(ProcedureEffect::Registration),
    ProcedureCase::new(
        "EAP-AKA'",
        |net, ue| {
            gone_and_fresh(net, ue);
            let supi = net.ue_ref(ue).config().supi;
            net.home().eap_aka_prime.push(supi);
        },
        |net, ue| net.command(ue, UeCommand::Register),
        |net, ue, _| registered(net, ue),
    )
    .ends(ProcedureEffect::Registration)
    .afterwards(|net, _| net.home().eap_aka_prime.clear()),
    ProcedureCase::new(
        "synchronisation failure", // of a fresh USIM, to which the time is too far ahead
        gone_and_fresh,
        |net, ue| net.command(ue, UeCommand::Register),
        |net, ue, _| registered(net, ue),
    )
    .ends(ProcedureEffect::Registration),
    ProcedureCase::new(
        "authentication failure",
        |net, ue| {
            gone(net, ue);
            net.lose_power(ue); // nor does it have keys of before
            net.switch_on(ue);
            let other = Milenage::new(&K::new([0x5a; 16]), Opc::new([0x5a; 16]));
            net.ue_mut(ue).insert(Usim::new(other, UsimSqn::default()));
        },
        |net, ue| net.command(ue, UeCommand::Register),
        |net, ue, _| is_gone(net, ue) && net.cta().occupancy().1 == 0,
    )
    .ends(ProcedureEffect::Registration)
    .afterwards(gone_and_fresh),
    ProcedureCase::new(
        "a 5G-GUTI that the AMF does not know",
        |net, ue| {
            connected(net, ue);
            go_idle(net, ue);
            net.leave_coverage(ue);
            order(net, ue, CoreCommand::Deregister);
            let given_up = net.settle_until(Duration::from_secs(120), |net| net.known(ue).is_none());
            assert!(given_up, "it was given up: {:?}{}", net.known(ue), net.trace_text());
            net.switch_on(ue);
        },
        |net, ue| net.command(ue, UeCommand::Register),
        |net, ue, _| registered(net, ue),
    )
    .ends(ProcedureEffect::Registration),
    ProcedureCase::new(
        "an emergency",
        gone,
        |net, ue| {
            net.command(ue, UeCommand::RegisterForEmergency);
            net.command(ue, UeCommand::EstablishEmergencySession);
        },
        |net, _, _| net.contexts().any(|p| p.amf.emergency && p.sessions.len() == 1),
    )
    .ends(ProcedureEffect::Registration),
    ProcedureCase::new(
        "mobility registration update",
        with_session,
        |net, ue| net.command(ue, UeCommand::Register),
        |net, ue, _| registered(net, ue),
    ),
    ProcedureCase::new(
        "mobility registration update of an idle UE in another cell",
        |net, ue| {
            idle(net, ue);
            let there = super::bring::other_gnb(net, ue);
            net.move_ue(ue, there);
        },
        |net, ue| net.command(ue, UeCommand::Register),
        |net, ue, _| registered(net, ue),
    ),
    ProcedureCase::new(
        "periodic registration update",
        idle,
        |net, ue| net.command(ue, UeCommand::PeriodicRegistration),
        |net, ue, _| registered(net, ue),
    ),
    ProcedureCase::new(
        "re-authentication",
        |net, ue| {
            gone(net, ue);
            with_session(net, ue);
            (0..2).for_each(|_| register(net, ue));
        },
        |net, ue| net.command(ue, UeCommand::Register),
        |net, ue, _| {
            let keys = net.known(ue).and_then(|p| p.amf.security.current.as_ref());
            keys.is_some_and(|keys| keys.counts().uplink_next < 4)
        },
    ),
    ProcedureCase::new(
        "deregistration by the UE",
        with_session,
        |net, ue| net.command(ue, UeCommand::Deregister { switch_off: false }),
        |net, ue, _| is_gone(net, ue),
    )
    .ends(ProcedureEffect::Registration),
    ProcedureCase::new(
        "deregistration by a UE that is switched off",
        with_session,
        |net, ue| net.command(ue, UeCommand::Deregister { switch_off: true }),
        |net, ue, _| is_gone(net, ue),
    )
    .ends(ProcedureEffect::Registration),
    ProcedureCase::new(
        "deregistration by an idle UE",
        idle,
        |net, ue| net.command(ue, UeCommand::Deregister { switch_off: false }),
        |net, ue, _| is_gone(net, ue),
    )
    .ends(ProcedureEffect::Registration),
    ProcedureCase::new(
        "service request during a periodic registration update",
        idle,
        |net, ue| {
            net.command(ue, UeCommand::PeriodicRegistration);
            net.command(ue, UeCommand::ServiceRequest);
        },
        |net, ue, _| {
            let flows =
                |p: &whimbrel_control::UeContext| p.sessions.values().all(|s| s.up == UpState::Active);
            net.ue_ref(ue).state() == MmState::Registered && net.known(ue).is_some_and(flows)
        },
    ),
    ProcedureCase::new(
        "registration and a session at once",
        deregistered,
        |net, ue| {
            net.command(ue, UeCommand::Register);
            net.command(ue, super::bring::session(whimbrel_nas::ie::PduSessionType::Ipv4v6));
        },
        |net, ue, _| net.ue_ref(ue).sessions().count() == 1 && super::bring::all_flow(net, ue),
    )
    .ends(ProcedureEffect::Registration),
];

fn deregistered(net: &mut Sim, ue: UeIndex) {
    at_home(net, ue);
    gone(net, ue);
}
