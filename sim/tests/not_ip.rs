//! PDU sessions that are not of IP: TS 23.501 §5.6.10.2, §5.6.10.3.

use crate::common::*;
use whimbrel_control::smf::UpState;
use whimbrel_control::udm::SessionTypes;
use whimbrel_nas::ie::{PduSessionType, SmCause};
use whimbrel_ran::ue::{Reason, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex};

/// A UE that may have whatever its data network has.
fn on_air(seed: u64, ethernet: bool, unstructured: bool) -> (Sim, UeIndex) {
    let mut config = whimbrel_sim::default_config();
    config.smf.data_networks.values_mut().for_each(|n| {
        (n.ethernet, n.unstructured) = (ethernet, unstructured);
        (n.ipv4, n.ipv6) = (false, false);
    });
    let mut net = Sim::builder(seed).config(config).recorded().build();
    let mut subscription = subscription();
    let all = SessionTypes { ethernet: true, unstructured: true, ..SessionTypes::IP };
    subscription.slices[0].dnns.iter_mut().for_each(|d| d.session_types = all);
    net.home().subscribe(subscription);
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    (net, ue)
}

fn ask(net: &mut Sim, ue: UeIndex, pdu_session_type: PduSessionType) {
    let dnn = Some("internet".parse().expect("a DNN"));
    net.command(ue, UeCommand::EstablishSession(SessionRequest { dnn, s_nssai: None, pdu_session_type }));
    net.settle(SECOND);
}

#[test] // TS 23.501 §5.6.10.2, §5.6.10.3, TS 24.501 §6.4.1.3 Ethernet, §6.4.1.3 unstructured: no address; set up, deactivated, activated again, released
fn sessions_without_addresses() {
    for (seed, session_type) in [(1, PduSessionType::Ethernet), (2, PduSessionType::Unstructured)] {
        let (mut net, ue) = on_air(seed, true, true);
        ask(&mut net, ue, session_type);
        let info = net.ue_ref(ue).sessions().next().expect("a session").clone();
        assert_eq!(info.pdu_session_type, session_type);
        assert!(info.ipv4.is_none() && info.interface_id.is_none());
        assert_eq!(net.upf_sessions(), 1);
        go_idle(&mut net, ue);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        let context = net.cta().contexts().next().expect("a UE");
        assert_eq!(context.sessions.get(&info.id).map(|s| s.up), Some(UpState::Active));
        net.command(ue, UeCommand::ReleaseSession(info.id));
        net.settle(SECOND);
        assert_eq!(net.upf_sessions(), 0);
        no_violations(&net);
    }
}

#[test] // TS 24.501 §6.4.1.4.1 #61, #58: the UE gets the cause with the only allowed type
fn the_only_allowed_session_type_is_sent() {
    for (seed, ethernet, cause) in [
        (3, true, SmCause::PduSessionTypeEthernetOnlyAllowed),
        (4, false, SmCause::PduSessionTypeUnstructuredOnlyAllowed),
    ] {
        let (mut net, ue) = on_air(seed, ethernet, !ethernet);
        ask(&mut net, ue, PduSessionType::Ipv4);
        assert!(refused_with(&net, ue, Reason::Sm(cause)));
    }
}
