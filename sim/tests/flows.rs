//! QoS flows of a session: TS 23.501 §5.7, TS 23.502 §4.3.2.2.1, TS 24.501 §6.2.5.

use crate::common::*;
use whimbrel_control::policy::{FlowGate, FlowPolicy, Gbr, Setup, packet_filter};
use whimbrel_control::udm::{Ambr, Arp};
use whimbrel_ids::{FiveQi, Qfi};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::PduSessionResourceSetupRequestTransfer;
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex};

fn qfi(n: u8) -> Qfi {
    Qfi::new(n).expect("6 bits")
}

/// A voice flow of 64 kbit/s.
fn voice(setup: Setup) -> FlowPolicy {
    let rate = Ambr { ul_kbps: 64, dl_kbps: 64 };
    FlowPolicy {
        name: "voice".parse().expect("a name"),
        five_qi: FiveQi(1),
        arp: Arp { priority: 2, may_preempt: true, preemptable: false },
        gbr: Some(Gbr { guaranteed: rate, maximum: rate }),
        precedence: 10,
        filters: vec![packet_filter("permit out 17 from any 5004 to assigned").expect("a filter")],
        gate: FlowGate::default(),
        setup,
    }
}

fn with_flows(seed: u64, flows: Vec<FlowPolicy>) -> (Sim, UeIndex) {
    let mut config = whimbrel_sim::default_config();
    config.smf.data_networks.values_mut().for_each(|n| n.flows.clone_from(&flows));
    let mut net = Sim::builder(seed).config(config).recorded().build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.tap();
    let dnn = Some("internet".parse().expect("a DNN"));
    let request = SessionRequest { dnn, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    (net, ue)
}

#[test] // TS 23.502 §4.3.2.2.1 steps 10 to 14, TS 23.501 §5.7.2.2: the flows of the policy come with the session
fn a_session_begins_with_the_flows_of_its_policy() {
    let (mut net, _) = with_flows(
        1,
        vec![
            voice(Setup::Always),
            FlowPolicy { name: "later".parse().expect("a name"), precedence: 11, ..voice(Setup::ByOperator) },
        ],
    );
    let asked = net.tapped().into_iter().find_map(|m| match m {
        whimbrel_ngap::Message::PduSessionResourceSetupRequest(m) => {
            m.pdu_session_resource_setup_list_su_req.into_iter().next()
        }
        _ => None,
    });
    let transfer = asked.expect("a setup").pdu_session_resource_setup_request_transfer;
    let transfer = PduSessionResourceSetupRequestTransfer::decode(&transfer).expect("its transfer");
    let flows = &transfer.qos_flow_setup_request_list;
    assert_eq!(flows.iter().map(|f| f.qos_flow_identifier).collect::<Vec<_>>(), [qfi(1), qfi(2)]);
    let gbr = flows[1].qos_flow_level_qos_parameters.gbr_qos_information.as_ref().expect("a GBR flow");
    assert_eq!(gbr.guaranteed_flow_bit_rate_ul, 64_000);
    assert!(flows[0].qos_flow_level_qos_parameters.gbr_qos_information.is_none());
    let arp = |n: usize| &flows[n].qos_flow_level_qos_parameters.allocation_and_retention_priority;
    let level = |n| arp(n).priority_level_arp;
    assert_eq!((level(0), level(1)), (8, 2), "of the subscription, of the policy");
    let ue = net.cta().contexts().next().expect("a UE");
    let session = ue.sessions.values().next().expect("a session");
    assert_eq!(session.qos.flows.len(), 1);
    assert_eq!(session.qos.flows[0].name.as_str(), "voice");
    no_violations(&net);
}

#[test] // TS 24.501 §9.11.4.13: one default rule, and a rule of each flow before it
fn the_ue_gets_the_qos_rules_of_all_flows() {
    let (net, ue) = with_flows(2, vec![voice(Setup::Always)]);
    let session = net.ue_ref(ue).sessions().next().expect("a session");
    let rules = &session.rules;
    let reported: Vec<_> =
        rules.iter().filter_map(|r| Some((r.id, r.default, r.binding?.precedence, r.binding?.qfi))).collect();
    assert_eq!(reported, [(1, true, 255, qfi(1)), (2, false, 10, qfi(2))]);
}

#[test] // TS 24.501 §9.11.4.9: the UE cannot hold more packet filters than it says
fn flows_beyond_the_ues_packet_filters_are_left_out() {
    let filter = packet_filter("permit out 17 from any 5004 to assigned").expect("a filter");
    let many = |name: &str, precedence| FlowPolicy {
        name: name.parse().expect("a name"),
        filters: vec![filter.clone(); 10],
        precedence,
        ..voice(Setup::Always)
    };
    let (net, _) = with_flows(3, vec![many("one", 10), many("two", 11)]);
    let ue = net.cta().contexts().next().expect("a UE");
    assert_eq!(ue.sessions.values().next().map(|s| s.qos.flows.len()), Some(1));
}

#[test] // TS 23.501 §5.7.2.6: the sum of the sessions' AMBRs, up to what is subscribed
fn the_ue_ambr_is_the_sum_of_the_sessions() {
    let (mut net, ue) = one_ue(7);
    let mut subscription = subscription();
    subscription.ue_ambr = Ambr { ul_kbps: 1500, dl_kbps: 5000 };
    let each = Ambr { ul_kbps: 1000, dl_kbps: 2000 };
    subscription.slices[0].dnns.iter_mut().for_each(|d| d.session_ambr = each);
    net.home().subscribe(subscription);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.tap();
    for dnn in ["internet", "ims"] {
        let dnn = Some(dnn.parse().expect("a DNN"));
        let request = SessionRequest { dnn, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
        net.command(ue, UeCommand::EstablishSession(request));
        net.settle(SECOND);
    }
    let reported: Vec<_> = net
        .tapped()
        .into_iter()
        .filter_map(|m| match m {
            whimbrel_ngap::Message::PduSessionResourceSetupRequest(m) => m.ue_aggregate_maximum_bit_rate,
            whimbrel_ngap::Message::InitialContextSetupRequest(m) => m.ue_aggregate_maximum_bit_rate,
            _ => None,
        })
        .map(|a| (a.ue_aggregate_maximum_bit_rate_ul, a.ue_aggregate_maximum_bit_rate_dl))
        .collect();
    assert_eq!(reported, [(1_000_000, 2_000_000), (1_500_000, 4_000_000)]);
    no_violations(&net);
}
