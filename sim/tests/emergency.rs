//! Emergency services: TS 23.501 §5.16.4, TS 24.501 §5.5.1.2, TS 33.501 §10.2.2.

use crate::common::*;
use whimbrel_control::Refusal;
use whimbrel_control::config::{Config, Emergency};
use whimbrel_control::udm::{Ambr, Arp};
use whimbrel_ids::{FiveQi, SNssai};
use whimbrel_nas::ie::MmCause;
use whimbrel_ran::ue::{Event, MmState, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex, default_config, ue_config};

/// Emergency services over `ims`, also for UEs that cannot be authenticated, or not.
fn config(unauthenticated: bool) -> Config {
    let mut config = default_config();
    config.amf.access.emergency = Some(Emergency {
        unauthenticated,
        s_nssai: SNssai::sst(1),
        dnn: "ims".parse().expect("a DNN"),
        arp: Arp { priority: 1, may_preempt: true, preemptable: false },
        five_qi: FiveQi(5),
        ambr: Ambr { ul_kbps: 2000, dl_kbps: 2000 },
    });
    config
}

fn with(seed: u64, config: Config) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.settle(SECOND / 10);
    (net, ue)
}

fn dnns(net: &Sim) -> Vec<String> {
    let sessions = net.cta().contexts().flat_map(|p| p.sessions.values());
    sessions.map(|s| s.dnn.as_str().to_owned()).collect()
}

fn internet() -> UeCommand {
    let pdu_session_type = whimbrel_nas::ie::PduSessionType::Ipv4;
    UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

#[test] // TS 24.501 §5.5.1.2.4 emergency; TS 23.501 §5.16.4.1, §5.16.4.3; TS 23.502 §4.3.2.2.1 emergency: a subscriber registers for an emergency and has its session
fn a_subscriber_in_an_emergency() {
    let (mut net, ue) = with(1, config(false));
    net.command(ue, UeCommand::RegisterForEmergency);
    net.command(ue, UeCommand::EstablishEmergencySession);
    net.settle(SECOND);
    assert_eq!(net.ue_ref(ue).state(), MmState::Registered);
    assert_eq!(dnns(&net), ["ims"], "the operator's data network, whatever the UE subscribes to");
    let context = net.cta().contexts().next().expect("it is here");
    let session = context.sessions.values().next().expect("its session");
    assert!(context.amf.emergency && session.emergency && session.qos.arp.priority == 1);
    no_violations(&net);
}

#[test] // TS 23.501 §5.16.4.9: nothing else is served
fn a_ue_that_is_here_for_an_emergency_gets_no_other_session() {
    let (mut net, ue) = with(2, config(false));
    net.command(ue, UeCommand::RegisterForEmergency);
    net.command(ue, internet());
    net.settle(SECOND);
    assert!(dnns(&net).is_empty());
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Refused { reason: Reason::Mm(_), .. })));
}

#[test] // TS 23.501 §5.16.4.1: an emergency passes barring, slices and the subscription
fn a_barred_subscriber_in_an_emergency() {
    let (mut net, ue) = with(3, config(true));
    let supi = net.ue_ref(ue).config().supi;
    net.home().barred.push(supi);
    net.ue_mut(ue).faults_mut().no_usim = true;
    net.command(ue, UeCommand::RegisterForEmergency);
    net.command(ue, UeCommand::EstablishEmergencySession);
    net.settle(SECOND);
    assert_eq!((net.ue_ref(ue).state(), dnns(&net)), (MmState::Registered, vec!["ims".to_owned()]));
}

#[test] // TS 33.501 §10.2.2, §6.10.2; TS 23.502 §4.2.2.2.2 emergency: a UE without a USIM, by its equipment, under null integrity
fn a_ue_without_usim() {
    let (mut net, ue) = with(4, config(true));
    net.ue_mut(ue).faults_mut().no_usim = true;
    net.command(ue, UeCommand::RegisterForEmergency);
    net.command(ue, UeCommand::EstablishEmergencySession);
    net.settle(SECOND);
    assert_eq!((net.ue_ref(ue).state(), dnns(&net)), (MmState::Registered, vec!["ims".to_owned()]));
    let context = net.cta().contexts().next().expect("it is here");
    let security = context.amf.security.current.as_ref().expect("the form of security");
    assert_eq!(security.integrity(), whimbrel_security::IntegrityAlgorithm::Nia0);
    assert!(context.amf.supi.is_none() && context.amf.pei.is_some());
    no_violations(&net);
}

#[test] // TS 33.501 §5.5.2: null integrity is off unless the operator wants it
fn a_ue_without_usim_is_refused_by_default() {
    let (mut net, ue) = with(5, config(false));
    net.ue_mut(ue).faults_mut().no_usim = true;
    net.command(ue, UeCommand::RegisterForEmergency);
    net.settle(SECOND);
    assert_ne!(net.ue_ref(ue).state(), MmState::Registered);
    assert_eq!(first_refusal(&net), Some(Refusal::Emergency));
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 24.501 §5.5.1.2.6, TS 24.501 §5.5.1.2.5 #5: there is no emergency service here
fn no_emergency_service() {
    let (mut net, ue) = with(6, default_config());
    net.command(ue, UeCommand::RegisterForEmergency);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::PeiNotAccepted)));
    assert_eq!(first_refusal(&net), Some(Refusal::Emergency));
}

#[test] // TS 23.501 §5.16.4.3, TS 24.501 §6.4.1.2: a UE that is registered as ever adds an emergency session
fn an_emergency_session_beside_others() {
    let (mut net, ue) = with(7, config(false));
    net.command(ue, UeCommand::Register);
    net.command(ue, internet());
    net.command(ue, UeCommand::EstablishEmergencySession);
    net.settle(SECOND);
    let mut found = dnns(&net);
    found.sort();
    assert_eq!(found, ["ims", "internet"]);
    assert!(net.cta().contexts().all(|p| !p.amf.emergency));
    net.command(ue, UeCommand::EstablishEmergencySession);
    net.settle(SECOND);
    assert_eq!(dnns(&net).len(), 2, "a UE has one emergency session");
}

#[test] // TS 23.501 §5.3.4.1.1 emergency, §5.16.4.1: a forbidden area, a barred radio and areas without service are no reason
fn an_emergency_passes_all_restrictions() {
    use whimbrel_control::udm::{MobilityRestrictions, ServiceArea};
    let here = whimbrel_ids::Tac::new(1).expect("24 bits");
    for (nr_barred, forbidden) in [(true, false), (false, true)] {
        let (mut net, ue) = with(11, config(false));
        let restrictions = MobilityRestrictions {
            nr_barred,
            forbidden_areas: if forbidden { vec![here] } else { Vec::new() },
            service_area: Some(ServiceArea::NotAllowed(vec![here])),
        };
        net.home().subscribe(whimbrel_control::udm::Subscription { restrictions, ..subscription() });
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert_ne!(net.ue_ref(ue).state(), MmState::Registered, "as ever it is not served here");
        net.command(ue, UeCommand::RegisterForEmergency);
        net.command(ue, UeCommand::EstablishEmergencySession);
        net.settle(SECOND);
        assert_eq!((net.ue_ref(ue).state(), dnns(&net)), (MmState::Registered, vec!["ims".to_owned()]));
        go_idle(&mut net, ue);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(net.ue_ref(ue).is_connected(), "its emergency session goes on");
        no_violations(&net);
    }
}

#[test] // TS 24.501 §5.3.7 emergency: after the emergency the UE is released, and nothing of it is stored
fn after_the_emergency() {
    let (mut net, ue) = with(8, config(true));
    net.ue_mut(ue).faults_mut().no_usim = true;
    net.command(ue, UeCommand::RegisterForEmergency);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 23.501 §5.19.7.2: an emergency passes congestion control
fn an_emergency_passes_congestion() {
    let mut config = config(false);
    config.amf.access.congestion.general = true;
    let (mut net, ue) = with(9, config);
    net.command(ue, UeCommand::RegisterForEmergency);
    net.settle(SECOND);
    assert_eq!(net.ue_ref(ue).state(), MmState::Registered);
}

#[test] // TS 24.501 §5.5.1.2.4: a UE that was here for an emergency registers as ever, and proves its key
fn from_emergency_to_normal() {
    let (mut net, ue) = with(10, config(true));
    net.ue_mut(ue).faults_mut().no_usim = true;
    net.command(ue, UeCommand::RegisterForEmergency);
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().no_usim = false;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 20);
    let context = net.cta().contexts().find(|p| p.amf.registered && !p.amf.emergency);
    let security = context.and_then(|p| p.amf.security.current.as_ref()).expect("registered as ever");
    assert_eq!(security.integrity(), whimbrel_security::IntegrityAlgorithm::Nia2);
}
