//! Procedures that a day of a phone (`common::day`) does not have, each with the loss of a control function and of the aggregator
//! at every message: each comes to what it should, nobody registers anew, and all agree.

mod common;

use common::by_hand::psi;
use common::day::{Stage, of};
use common::stage::session;
use common::*;
use whimbrel_control::config::{Config, Emergency};
use whimbrel_control::policy::{FlowGate, FlowPolicy, Setup, packet_filter};
use whimbrel_control::smf::{Modification, UpState};
use whimbrel_control::{Command as CoreCommand, Locate, Phone, UpfId};
use whimbrel_ids::FiveQi;
use whimbrel_nas::ie::{
    FilterComponent, FilterDirection, FlowOperation, FlowParameter, PacketFilter, QosFlowDescription,
    QosRule, RuleBinding, RuleOperation,
};
use whimbrel_ran::PhoneId;
use whimbrel_ran::gnb::{self, Via};
use whimbrel_ran::ue::{Command, QosRequest};
use whimbrel_security::{K, Milenage, Opc, Usim, UsimSqn};
use whimbrel_sim::{CtaLoss, Faults, Loss, Sim, UeIndex, default_config};

/// A procedure.
struct Procedure {
    name: &'static str,
    /// What there is before it.
    before: fn(&mut Stage, UeIndex),
    act: fn(&mut Stage, UeIndex),
    /// What it comes to.
    done: fn(&Stage, UeIndex) -> bool,
}

/// The phone of the stage, by its gNB's name.
const AT_GNB: PhoneId = PhoneId(0);

/// What phones, gNBs and packets begin.
const BEGUN: [Procedure; 19] = [
    Procedure {
        name: "network triggered service request",
        before: |s, ue| {
            with_session(s, ue);
            go_idle(&mut s.net, ue);
        },
        act: |s, ue| assert!(s.net.downlink(ue, psi(1)).is_some()),
        done: |s, ue| s.net.ue_ref(ue).has_user_plane(psi(1)),
    },
    Procedure {
        name: "service request",
        before: |s, ue| {
            with_session(s, ue);
            go_idle(&mut s.net, ue);
        },
        act: |s, ue| s.net.command(ue, Command::ServiceRequest),
        done: |s, ue| s.net.ue_ref(ue).has_user_plane(psi(1)),
    },
    Procedure {
        name: "a user plane that its gNB lets go",
        before: with_session,
        act: |s, _| s.net.gnb_input(s.gnbs[0], gnb::Input::LetSessionGo(AT_GNB, psi(1))),
        done: |s, ue| known(s, ue).sessions[&psi(1)].up == UpState::Inactive,
    },
    Procedure {
        name: "a packet for a connected phone",
        before: |s, ue| {
            with_session(s, ue);
            s.net.gnb_input(s.gnbs[0], gnb::Input::LetSessionGo(AT_GNB, psi(1)));
        },
        act: |s, ue| assert!(s.net.downlink(ue, psi(1)).is_some()),
        done: |s, ue| s.net.ue_ref(ue).has_user_plane(psi(1)),
    },
    Procedure {
        name: "modification by the phone",
        before: with_session,
        act: |s, ue| s.net.command(ue, Command::ModifySession(psi(1), Box::new(wish()))),
        done: |s, ue| flows(s, ue) == 1,
    },
    Procedure {
        name: "modification by the gNB",
        before: with_session,
        act: |s, _| s.net.gnb_input(s.gnbs[0], gnb::Input::IndicateModification(AT_GNB)),
        done: |s, ue| s.net.ue_ref(ue).has_user_plane(psi(1)),
    },
    Procedure {
        name: "N2 handover that the target refuses",
        before: |s, ue| {
            with_session(s, ue);
            let cause = whimbrel_ngap::ie::CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell;
            s.net.gnb_mut(s.gnbs[1]).faults_mut().refuse_handover = Some(cause.into());
        },
        act: |s, ue| s.net.hand_over(ue, s.gnbs[1], Via::N2),
        done: |s, ue| s.net.gnb_of(ue) == s.gnbs[0] && known(s, ue).amf.target.is_none(),
    },
    Procedure {
        name: "N2 handover that the source cancels",
        before: |s, ue| {
            with_session(s, ue);
            s.net.gnb_mut(s.gnbs[0]).faults_mut().cancel_at_command = true;
        },
        act: |s, ue| s.net.hand_over(ue, s.gnbs[1], Via::N2),
        done: |s, ue| s.net.gnb_of(ue) == s.gnbs[0] && known(s, ue).amf.target.is_none(),
    },
    Procedure {
        name: "N2 handover with one session of two",
        before: |s, ue| {
            with_session(s, ue);
            s.net.command(ue, session());
            s.net.settle(SECOND);
            s.net.gnb_mut(s.gnbs[1]).faults_mut().refuse_sessions = vec![psi(2)];
        },
        act: |s, ue| s.net.hand_over(ue, s.gnbs[1], Via::N2),
        done: |s, ue| s.net.gnb_of(ue) == s.gnbs[1] && !s.net.ue_ref(ue).has_user_plane(psi(2)),
    },
    Procedure {
        name: "Xn handover with one session of two",
        before: |s, ue| {
            with_session(s, ue);
            s.net.command(ue, session());
            s.net.settle(SECOND);
            s.net.gnb_mut(s.gnbs[1]).faults_mut().refuse_sessions = vec![psi(2)];
        },
        act: |s, ue| s.net.hand_over(ue, s.gnbs[1], Via::Xn),
        done: |s, ue| s.net.gnb_of(ue) == s.gnbs[1] && !s.net.ue_ref(ue).has_user_plane(psi(2)),
    },
    Procedure {
        name: "EAP-AKA'",
        before: |s, ue| {
            let supi = s.net.ue_ref(ue).config().supi;
            s.net.home().eap_aka_prime.push(supi);
        },
        act: |s, ue| s.net.command(ue, Command::Register),
        done: |s, ue| registered(&s.net, ue),
    },
    Procedure {
        name: "a failure to synchronise", // of a fresh USIM, to which the time is too far ahead
        before: |_, _| {},
        act: |s, ue| s.net.command(ue, Command::Register),
        done: |s, ue| registered(&s.net, ue),
    },
    Procedure {
        name: "an authentication that fails",
        before: |s, ue| {
            let other = Milenage::new(&K::new([0x5a; 16]), Opc::new([0x5a; 16]));
            s.net.ue_mut(ue).insert(Usim::new(other, UsimSqn::default()));
        },
        act: |s, ue| s.net.command(ue, Command::Register),
        done: |s, ue| !registered(&s.net, ue) && s.net.cta().occupancy() == (0, 0),
    },
    Procedure {
        name: "a UPF that starts anew",
        before: with_session,
        act: |s, _| {
            s.net.advance(SECOND * 2); // recovery time stamps count seconds
            s.net.restart_upf();
            s.net.associate_upf(UpfId(0));
        },
        done: |s, ue| s.net.upf_sessions() == known(s, ue).sessions.len(),
    },
    Procedure {
        name: "keys that are proved anew",
        before: |s, ue| {
            with_session(s, ue);
            (0..2).for_each(|_| register(s, ue));
        },
        act: |s, ue| s.net.command(ue, Command::Register),
        done: |s, ue| known(s, ue).amf.security.as_ref().is_some_and(|c| c.counts().uplink_next < 4),
    },
    Procedure {
        name: "a 5G-GUTI that nobody knows",
        before: |s, ue| {
            register(s, ue);
            go_idle(&mut s.net, ue);
            s.net.unplug(ue);
            order(s, ue, CoreCommand::Deregister);
            s.net.settle(SECOND * 60);
            assert_eq!(s.net.phones().count(), 0, "it was given up");
            s.net.switch_on(ue);
        },
        act: |s, ue| s.net.command(ue, Command::Register),
        done: |s, ue| registered(&s.net, ue),
    },
    Procedure {
        name: "an emergency",
        before: |_, _| {},
        act: |s, ue| {
            s.net.command(ue, Command::RegisterForEmergency);
            s.net.command(ue, Command::EstablishEmergencySession);
        },
        done: |s, ue| known(s, ue).amf.emergency && known(s, ue).sessions.len() == 1,
    },
    Procedure {
        name: "RRC_INACTIVE",
        before: with_session,
        act: |s, _| s.net.gnb_input(s.gnbs[0], gnb::Input::Inactive(AT_GNB, true)),
        done: |s, ue| known(s, ue).amf.connection.as_ref().is_some_and(|c| c.rrc_inactive),
    },
    Procedure {
        name: "NG RESET by the gNB",
        before: with_session,
        act: |s, _| s.net.gnb_input(s.gnbs[0], gnb::Input::Reset),
        done: |s, ue| !known(s, ue).is_connected(),
    },
];

/// What the operator or the subscribers' store begins: an order that is lost with the aggregator is given again by who gave it.
const ORDERED: [Procedure; 8] = [
    Procedure {
        name: "modification by the network",
        before: with_session,
        act: |s, ue| modify(s, ue, Modification::AddFlow("voice".parse().expect("a name"))),
        done: |s, ue| flows(s, ue) == 1,
    },
    Procedure {
        name: "modification by the network, of an idle phone",
        before: |s, ue| {
            with_session(s, ue);
            go_idle(&mut s.net, ue);
        },
        act: |s, ue| modify(s, ue, Modification::AddFlow("voice".parse().expect("a name"))),
        done: |s, ue| flows(s, ue) == 1,
    },
    Procedure {
        name: "a flow that is taken away",
        before: |s, ue| {
            with_session(s, ue);
            modify(s, ue, Modification::AddFlow("voice".parse().expect("a name")));
        },
        act: |s, ue| modify(s, ue, Modification::RemoveFlow("voice".parse().expect("a name"))),
        done: |s, ue| flows(s, ue) == 0,
    },
    Procedure {
        name: "another UE-AMBR: configuration update and UE context modification",
        before: with_session,
        act: |s, ue| {
            let mut poorer = subscription();
            poorer.ue_ambr.dl_kbps = 50_000;
            s.net.home().subscribe(poorer);
            let supi = s.net.ue_ref(ue).config().supi;
            s.net.subscriber_changed(supi);
        },
        done: |s, ue| known(s, ue).amf.subscription.as_ref().is_some_and(|t| t.ue_ambr.dl_kbps == 50_000),
    },
    Procedure {
        name: "deregistration by the network",
        before: with_session,
        act: |s, ue| order(s, ue, CoreCommand::Deregister),
        done: |s, _| s.net.phones().count() == 0 && s.net.upf_sessions() == 0,
    },
    Procedure {
        name: "deregistration by the network, of an idle phone",
        before: |s, ue| {
            with_session(s, ue);
            go_idle(&mut s.net, ue);
        },
        act: |s, ue| order(s, ue, CoreCommand::Deregister),
        done: |s, _| s.net.phones().count() == 0 && s.net.upf_sessions() == 0,
    },
    Procedure {
        name: "location reporting, of an idle phone",
        before: |s, ue| {
            register(s, ue);
            go_idle(&mut s.net, ue);
        },
        act: |s, ue| order(s, ue, CoreCommand::Locate(Locate::Now)),
        done: |s, ue| known(s, ue).amf.seen.is_some(),
    },
    Procedure {
        name: "NG RESET by the AMF",
        before: with_session,
        act: |s, _| assert!(s.net.reset_gnb(gnb_config(1).id)),
        done: |s, ue| !known(s, ue).is_connected(),
    },
];

/// How the network is set up: keys are proved after two registrations, a flow by the operator's word and one on request, emergency
/// services, reports of RRC_INACTIVE.
fn config() -> Config {
    let mut config = default_config();
    let flow = |name: &str, setup| FlowPolicy {
        name: name.parse().expect("a name"),
        five_qi: FiveQi(7),
        arp: whimbrel_control::udm::Arp { priority: 5, may_preempt: false, preemptable: true },
        gbr: None,
        precedence: 10,
        filters: vec![packet_filter("permit out 17 from any 5004 to assigned").expect("a filter")],
        gate: FlowGate::default(),
        setup,
    };
    let flows = [flow("voice", Setup::ByOperator), flow("game", Setup::OnRequest)];
    config.smf.data_networks.values_mut().for_each(|n| n.flows = flows.to_vec());
    config.amf.access.authentication.every_registrations = Some(2);
    config.amf.access.rrc_reports = true;
    config.amf.access.emergency = Some(Emergency {
        unauthenticated: false,
        s_nssai: whimbrel_ids::SNssai::sst(1),
        dnn: "ims".parse().expect("a DNN"),
        arp: whimbrel_control::udm::Arp { priority: 1, may_preempt: true, preemptable: false },
        five_qi: FiveQi(5),
        ambr: whimbrel_control::udm::Ambr { ul_kbps: 2000, dl_kbps: 2000 },
    });
    config
}

/// A flow of the policy `game`, for UDP to one port.
fn wish() -> QosRequest {
    let qfi = whimbrel_ids::Qfi::new(0).expect("6 bits");
    let components = vec![FilterComponent::Protocol([17]), FilterComponent::RemotePort([0, 80])];
    let filter = PacketFilter { id: 0, direction: FilterDirection::Bidirectional, components };
    let binding = Some(RuleBinding { precedence: 70, segregation: false, qfi });
    let rule = QosRule { id: 0, operation: RuleOperation::Create(vec![filter]), default: false, binding };
    let parameters = vec![FlowParameter::FiveQi(FiveQi(7))];
    let flow = QosFlowDescription { qfi, operation: FlowOperation::Create, e_bit: true, parameters };
    QosRequest { rules: vec![rule], flows: vec![flow] }
}

fn register(s: &mut Stage, ue: UeIndex) {
    s.net.command(ue, Command::Register);
    s.net.settle(SECOND);
}

fn with_session(s: &mut Stage, ue: UeIndex) {
    register(s, ue);
    s.net.command(ue, session());
    s.net.settle(SECOND);
}

fn order(s: &mut Stage, ue: UeIndex, command: CoreCommand) {
    let phone = s.net.cta().find(s.net.ue_ref(ue).config().supi).expect("it is registered");
    s.net.order(phone, command);
}

fn modify(s: &mut Stage, ue: UeIndex, modification: Modification) {
    order(s, ue, CoreCommand::ModifySession(psi(1), modification));
    s.net.settle(SECOND);
}

fn known(s: &Stage, ue: UeIndex) -> &Phone {
    let supi = Some(s.net.ue_ref(ue).config().supi);
    s.net.phones().find(|p| p.amf.supi == supi).expect("the core knows it")
}

fn flows(s: &Stage, ue: UeIndex) -> usize {
    known(s, ue).sessions[&psi(1)].flows.len()
}

/// Has the procedure run after `lose` has said what is lost. Gives what was counted before it and after it.
fn run(procedure: &Procedure, net: Sim, lose: &dyn Fn(&mut Sim), what: &str) -> (Stage, [(u64, u64); 2]) {
    let mut stage = of(net, 1);
    let ue = stage.ues[0];
    (procedure.before)(&mut stage, ue);
    stage.net.settle(SECOND * 5);
    let name = procedure.name;
    let forgotten = stage.net.phones().count() == 0; // which a phone that believes to be registered cannot know
    assert!(forgotten || stage.net.agree() == Ok(()), "before {name}");
    let count = |s: &Stage| (s.net.links_taken(), s.net.inputs_taken());
    let before = count(&stage);
    lose(&mut stage.net);
    (procedure.act)(&mut stage, ue);
    stage.net.settle(SECOND * 9); // before what is said every ten seconds in any case
    let after = count(&stage);
    stage.net.settle(SECOND * 20);
    assert!((procedure.done)(&stage, ue), "{name}, {what}");
    assert_eq!(stage.net.agree(), Ok(()), "{name}, {what}");
    let told = stage.net.cta().replicated();
    assert_eq!((told.lost, told.diverged), (0, 0), "{name}, {what}");
    (stage, [before, after])
}

fn region() -> Sim {
    Sim::in_region(3, config(), Faults::default(), 3, 1)
}

#[test] // Neutrino §4.2.5, scenarios 1 and 2
fn a_control_function_lost_at_every_message_of_every_procedure() {
    let mut taken_over = 0;
    for procedure in BEGUN.iter().chain(&ORDERED) {
        let (_, [before, after]) = run(procedure, region(), &|_| {}, "no loss");
        assert!(after.0 > before.0, "{} has messages", procedure.name);
        for how in Loss::ALL {
            for message in before.0 + 1..=after.0 {
                let what = format!("{how:?} at message {message} of {} to {}", before.0 + 1, after.0);
                let (stage, _) = run(procedure, region(), &|net| net.lose_cpf_at(message, how), &what);
                no_violations(&stage.net);
                taken_over += stage.net.cta().replicated().taken_over;
            }
        }
    }
    assert!(taken_over > 300, "{taken_over} takeovers");
}

#[test] // the same where who took over is lost as well, at every message that follows
fn two_control_functions_lost_one_after_the_other() {
    let net = || Sim::in_region(3, config(), Faults::default(), 4, 2);
    let mut taken_over = 0;
    for procedure in BEGUN.iter().filter(|p| ["service request", "EAP-AKA'"].contains(&p.name)) {
        let (_, [before, after]) = run(procedure, net(), &|_| {}, "no loss");
        for first in before.0 + 1..=after.0 {
            for second in first + 1..=after.0 + 6 {
                let losses = [(first, Loss::After), (second, Loss::Before)];
                let what = format!("lost at messages {first} and {second}");
                let (stage, _) = run(procedure, net(), &|net| net.lose_cpfs_at(&losses), &what);
                no_violations(&stage.net);
                taken_over += stage.net.cta().replicated().taken_over;
            }
        }
    }
    assert!(taken_over > 100, "{taken_over} takeovers");
}

#[test] // (a) of the issue: two aggregators hold each other's log
fn an_aggregator_lost_at_every_input_of_every_procedure() {
    let net = || Sim::mirrored(3, config(), Faults::default(), 3, 1);
    let mut takeovers = 0;
    let begun = BEGUN.iter().map(|p| (p, false)).chain(ORDERED.iter().map(|p| (p, true)));
    for (procedure, ordered) in begun {
        let (_, [before, after]) = run(procedure, net(), &|_| {}, "no loss");
        for how in CtaLoss::ALL {
            let order_is_lost = ordered && matches!(how, CtaLoss::Before | CtaLoss::Untold);
            for input in before.1 + 1 + u64::from(order_is_lost)..=after.1 {
                let what = format!("{how:?} at input {input} of {} to {}", before.1 + 1, after.1);
                let (stage, _) = run(procedure, net(), &|net| net.lose_cta_at(input, how), &what);
                takeovers += stage.net.takeovers();
            }
        }
    }
    assert!(takeovers > 500, "{takeovers} takeovers");
}
