//! What the tests share.

pub(crate) mod amfs;
pub(crate) mod by_hand;
pub(crate) mod day;
pub(crate) mod pdu;
pub(crate) mod stage;

use std::time::Duration;

use whimbrel_control::udm::{Ambr, Arp, SessionTypes, SubscribedDnn, SubscribedSlice, Subscription};
use whimbrel_control::{Event as CoreEvent, Refusal};
use whimbrel_ids::{FiveQi, GlobalGnbId, PlmnId, SNssai, Tac};
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{Event as GnbEvent, GnbConfig, SupportedTa};
use whimbrel_ran::ue::{Event, MmState, Reason};
use whimbrel_sim::{Sim, UeIndex, ue_config};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A network without gNBs.
pub(crate) fn network(seed: u64) -> Sim {
    Sim::builder(seed).recorded().build()
}

/// A network with one gNB and one UE.
pub(crate) fn one_ue(seed: u64) -> (Sim, UeIndex) {
    let mut net = network(seed);
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.settle(SECOND / 10);
    (net, ue)
}

/// The `n`th gNB, of tracking area 1 and slice 1. Every second one speaks fastwire.
pub(crate) fn gnb_config(n: u32) -> GnbConfig {
    let id = GlobalGnbId::new(PlmnId::TEST, n, 28).expect("28 bits");
    let address = std::net::Ipv4Addr::new(127, 0, 1, n as u8).into();
    let mut config = GnbConfig::new(id, Tac::new(1).expect("24 bits"), vec![SNssai::sst(1)], address);
    config.fastwire = n.is_multiple_of(2);
    config
}

pub(crate) fn area(tac: u32) -> SupportedTa {
    SupportedTa { tac: Tac::new(tac).expect("24 bits"), plmns: vec![(PlmnId::TEST, vec![SNssai::sst(1)])] }
}

/// Both sides hold the UE registered.
pub(crate) fn registered(net: &Sim, ue: UeIndex) -> bool {
    let supi = net.ue_ref(ue).config().supi;
    net.ue_ref(ue).state() == MmState::Registered
        && net.contexts().any(|p| p.amf.supi == Some(supi) && p.amf.registered)
}

pub(crate) fn refused_with(net: &Sim, ue: UeIndex, expected: Reason) -> bool {
    net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Refused { reason, .. } if *reason == expected))
}

pub(crate) fn core_events(net: &Sim) -> impl Iterator<Item = &CoreEvent> {
    net.events.ues.iter().map(|(_, e)| &e.event)
}

pub(crate) fn first_refusal(net: &Sim) -> Option<Refusal> {
    core_events(net).find_map(|e| match e {
        CoreEvent::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    })
}

/// The gNB finds the UE inactive and has its connection released.
pub(crate) fn go_idle(net: &mut Sim, ue: UeIndex) {
    net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
    net.settle(SECOND);
    assert!(!net.ue_ref(ue).is_connected(), "the UE is idle");
}

/// Neither UEs nor gNBs found the core at fault.
pub(crate) fn no_violations(net: &Sim) {
    for i in 0..net.ues() {
        for (at, event) in net.ue_events(UeIndex(i)) {
            assert!(!matches!(event, Event::Violation(_) | Event::Discarded(_)), "{at:?}: {event:?}");
        }
    }
    for event in &net.events.gnbs {
        assert!(!matches!(event.1, GnbEvent::Violation { .. }), "{event:?}");
    }
}

/// One slice, `internet` and `ims`.
pub(crate) fn subscription() -> Subscription {
    let ambr = Ambr { ul_kbps: 100_000, dl_kbps: 100_000 };
    let dnn = |name: &str, default| SubscribedDnn {
        dnn: name.parse().expect("a DNN"),
        default,
        session_types: SessionTypes::IP,
        ssc_mode: whimbrel_nas::ie::SscMode::One,
        five_qi: FiveQi(9),
        arp: Arp { priority: 8, may_preempt: false, preemptable: true },
        session_ambr: ambr,
        static_ipv4: None,
        static_ipv6: None,
        up_security: None,
        flows: Vec::new(),
        framed_routes: Vec::new(),
    };
    let dnns = vec![dnn("internet", true), dnn("ims", false)];
    let slices = vec![SubscribedSlice { s_nssai: SNssai::sst(1), default: true, dnns }];
    Subscription {
        ue_ambr: ambr,
        slices,
        rfsp: None,
        restrictions: Default::default(),
        priority: Default::default(),
    }
}
