//! The test cases of TS 33.515 for the SMF, as far as they apply, each named after its case.

use std::collections::BTreeSet;

use crate::common::by_hand::{self, context, octets, psi, to_switch};
use crate::common::*;
use whimbrel_control::Event as CoreEvent;
use whimbrel_control::config::{Config, UpProtection, UpSecurity};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    ConfidentialityProtectionIndication, ConfidentialityProtectionResult, IntegrityProtectionIndication,
    IntegrityProtectionResult, SecurityIndication, SecurityResult, UserPlaneSecurityInformation,
};
use whimbrel_ngap::transfer::{
    PathSwitchRequestAcknowledgeTransfer, PathSwitchRequestTransfer, PduSessionResourceSetupRequestTransfer,
};
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{Sim, default_config, ue_config};

const REQUIRED: UpSecurity =
    UpSecurity { integrity: UpProtection::Required, confidentiality: UpProtection::Required };
const NOT_NEEDED: UpSecurity =
    UpSecurity { integrity: UpProtection::NotNeeded, confidentiality: UpProtection::NotNeeded };

fn internet() -> UeCommand {
    let pdu_session_type = PduSessionType::Ipv4;
    UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

/// What gNBs get of a session under the operator's policy and the subscription's.
fn indication(local: Option<UpSecurity>, subscribed: Option<UpSecurity>) -> Option<SecurityIndication> {
    let mut config: Config = default_config();
    config.smf.data_networks.values_mut().for_each(|n| n.up_security = local);
    let mut net = Sim::builder(1).config(config).build();
    let mut of_all = subscription();
    of_all.slices[0].dnns[0].up_security = subscribed;
    net.home().subscribe(of_all);
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.tap();
    net.command(ue, UeCommand::Register);
    net.command(ue, internet());
    net.settle(SECOND);
    assert_eq!(net.ue_ref(ue).sessions().count(), 1);
    let transfer = net.tapped().into_iter().find_map(|m| match m {
        Message::PduSessionResourceSetupRequest(m) => {
            let item = m.pdu_session_resource_setup_list_su_req.into_iter().next();
            item.map(|i| i.pdu_session_resource_setup_request_transfer)
        }
        Message::InitialContextSetupRequest(m) => {
            let item = m.pdu_session_resource_setup_list_cxt_req.into_iter().next();
            item.map(|i| i.pdu_session_resource_setup_request_transfer)
        }
        _ => None,
    });
    let transfer = PduSessionResourceSetupRequestTransfer::decode(&transfer.expect("a setup"));
    transfer.expect("its transfer").security_indication
}

#[test] // TS 33.515 §4.2.2.1.1 TC_UP_POLICY_PRECEDENCE_SMF; TS 23.501 §5.10.3: the subscription's policy, whatever the local one
fn tc_up_policy_precedence_smf() {
    let integrity = |i: Option<SecurityIndication>| i.map(|i| i.integrity_protection_indication);
    for (local, subscribed, reported) in [
        (None, None, None),
        (Some(NOT_NEEDED), None, Some(IntegrityProtectionIndication::NotNeeded)),
        (None, Some(REQUIRED), Some(IntegrityProtectionIndication::Required)),
        (Some(NOT_NEEDED), Some(REQUIRED), Some(IntegrityProtectionIndication::Required)),
        (Some(REQUIRED), Some(NOT_NEEDED), Some(IntegrityProtectionIndication::NotNeeded)),
    ] {
        assert_eq!(integrity(indication(local, subscribed)), reported, "{local:?} {subscribed:?}");
    }
}

/// The policy that a target reports to have got from its source.
fn policy(integrity: IntegrityProtectionIndication) -> UserPlaneSecurityInformation {
    let result = SecurityResult::new(
        IntegrityProtectionResult::NotPerformed,
        ConfidentialityProtectionResult::NotPerformed,
    );
    UserPlaneSecurityInformation::new(
        result,
        SecurityIndication::new(integrity, ConfidentialityProtectionIndication::NotNeeded),
    )
}

/// A path switch of a session under the operator's policy; the policy in the acknowledgement, and whether an alarm was raised.
fn switched(reported: Option<UserPlaneSecurityInformation>) -> (Option<SecurityIndication>, bool) {
    let mut config = default_config();
    config.smf.data_networks.values_mut().for_each(|n| n.up_security = Some(REQUIRED));
    let mut net = Sim::builder(2).config(config).build();
    net.add_gnb(gnb_config(1));
    net.add_gnb(gnb_config(2));
    let ue = net.add_ue(by_hand::SOURCE, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.command(ue, internet());
    net.settle(SECOND);
    net.take_over(by_hand::TARGET);
    let mut request = by_hand::path_switch_request(&net, &[1]);
    let mut item = to_switch(1);
    let mut transfer = PathSwitchRequestTransfer::decode(&item.transfer).expect("a transfer");
    transfer.user_plane_security_information = reported;
    item.transfer = transfer.to_vec();
    request.pdu_session_resource_to_be_switched_dl_list = vec![item];
    net.inject(by_hand::TARGET, &octets(request));
    net.settle(SECOND);
    let acknowledged = net.take_ngap(by_hand::TARGET).into_iter().find_map(|m| match m {
        Message::PathSwitchRequestAcknowledge(m) => m.pdu_session_resource_switched_list.into_iter().next(),
        _ => None,
    });
    let transfer =
        PathSwitchRequestAcknowledgeTransfer::decode(&acknowledged.expect("an acknowledgement").transfer);
    let alarm = core_events(&net)
        .any(|e| matches!(e, CoreEvent::UpSecurityPolicyDiffers { psi: which, .. } if *which == psi(1)));
    assert!(context(&net).sessions.contains_key(&psi(1)));
    (transfer.expect("its transfer").security_indication, alarm)
}

#[test] // TS 33.515 §4.2.2.1.3, TS 33.501 §6.6.1: a target gNB with another policy gets ours, and the event is logged
fn tc_up_policy_check_smf() {
    let (ours, alarm) = switched(Some(policy(IntegrityProtectionIndication::NotNeeded)));
    let ours = ours.expect("the policy in force");
    assert_eq!(ours.integrity_protection_indication, IntegrityProtectionIndication::Required);
    assert!(alarm);
    // One that has ours does not get it again.
    let (again, alarm) = switched(Some(UserPlaneSecurityInformation::new(
        SecurityResult::new(IntegrityProtectionResult::Performed, ConfidentialityProtectionResult::Performed),
        ours.clone(),
    )));
    assert!(again.is_none() && !alarm);
    // One that reports none may have got none.
    assert_eq!(switched(None), (Some(ours), false));
}

#[test] // TS 33.515 §4.2.2.1.4: what a session's usage is counted under is no other session's, now or before
fn tc_charging_id_uniqueness_smf() {
    let mut net = network(3);
    let gnb = net.add_gnb(gnb_config(1));
    let ues: Vec<_> = (1..=20).map(|n| net.add_ue(gnb, ue_config(n))).collect();
    for &ue in &ues {
        net.command(ue, UeCommand::Register);
    }
    net.settle(SECOND);
    let mut seen = BTreeSet::new();
    for round in 0..20 {
        for &ue in &ues {
            (0..3).for_each(|_| net.command(ue, internet()));
        }
        net.settle(SECOND * 3);
        let now: Vec<_> = net.cta().contexts().flat_map(|p| p.sessions.values().map(|s| s.cp_seid)).collect();
        assert_eq!(now.len(), 60);
        for seid in now {
            assert!(seen.insert(seid), "{seid:?} again in round {round}");
        }
        for &ue in &ues {
            let sessions: Vec<_> = net.ue_ref(ue).sessions().map(|s| s.id).collect();
            sessions.into_iter().for_each(|id| net.command(ue, UeCommand::ReleaseSession(id)));
        }
        net.settle(SECOND * 3);
    }
    no_violations(&net);
}
