//! Faults of ours and of peers stay with the UE that they hit: DESIGN §4 rules 10 (poison) and 12 (unauthenticated UEs).

use std::time::Duration;

use crate::common::*;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::Message;
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Rng, Sim, UeIndex, ue_config};

/// Registered UEs with a session each.
fn ues(seed: u64, n: u32) -> Sim {
    let mut net = network(seed);
    let gnb = net.add_gnb(gnb_config(1));
    net.settle(SECOND / 10);
    for i in 0..n {
        let ue = net.add_ue(gnb, ue_config(i));
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        net.command(
            ue,
            UeCommand::EstablishSession(SessionRequest {
                dnn: None,
                s_nssai: None,
                pdu_session_type: PduSessionType::Ipv4,
            }),
        );
        net.settle(SECOND);
    }
    assert_eq!(net.upf_sessions(), n as usize);
    net
}

#[test] // DESIGN §4 rule 10: a panic discards the context of its UE, and affects no other one
fn a_panic_discards_one_ue() {
    let mut net = ues(1, 3);
    let hit = net.cta().contexts().nth(1).expect("three").id;
    net.tap();
    net.order(hit, CoreCommand::Panic);
    assert!(net.cta().cpf().is_some_and(|c| c.is_clean()));
    let reported = core_events(&net)
        .any(|e| matches!(e, CoreEvent::Deregistered { why: DeregistrationReason::Fault, .. }));
    assert!(reported, "the operator learns it");
    assert!(net.tapped().iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))), "its gNB too");
    assert_eq!(net.cta().contexts().count(), 2);
    assert_eq!(net.cta().occupancy(), (2, 0));
    net.settle(SECOND);
    assert_eq!(net.upf_sessions(), 2, "and the UPF");
    // The others did not notice, and the one that was hit comes back.
    net.command(UeIndex(0), UeCommand::ServiceRequest);
    net.command(UeIndex(1), UeCommand::Register);
    net.settle(Duration::from_secs(60));
    for i in 0..3 {
        assert!(registered(&net, UeIndex(i)), "UE {i}");
    }
}

#[test] // DESIGN §4 rule 12: garbage between valid messages changes no UE but, at most, the one whose connection it uses
fn malformed_messages_affect_no_other_ue() {
    for seed in 0..40 {
        let mut net = ues(seed, 3);
        let mut rng = Rng::new(seed);
        net.tap();
        net.command(UeIndex(2), UeCommand::Deregister { switch_off: false });
        let victim = net.cta().contexts().nth(2).expect("three").id;
        let look = |net: &Sim| -> Vec<String> {
            net.cta()
                .contexts()
                .filter(|p| p.id != victim)
                .map(|p| format!("{:?} {:?}", p.amf, p.sessions))
                .collect()
        };
        let before = look(&net);
        // Octets that name the third UE, mutated everywhere but in that name.
        let names = net.cta().context(victim).and_then(|p| p.amf.connection.clone()).expect("connected");
        let mut valid = Vec::new();
        let nas = (0..40).map(|_| rng.draw() as u8).collect();
        let m = whimbrel_ngap::msg::UplinkNasTransport::new(names.amf_ue_ngap_id, names.ran_ue_ngap_id, nas);
        Message::from(m).encode(&mut valid);
        for _ in 0..200 {
            let mut octets = valid.clone();
            for _ in 0..=rng.below(4) {
                let at = rng.below(octets.len() as u64) as usize;
                if !(7..16).contains(&at) {
                    octets[at] = rng.draw() as u8;
                }
            }
            octets.truncate(rng.below(octets.len() as u64 + 40) as usize);
            net.inject(GnbIndex(0), &octets);
        }
        assert_eq!(before, look(&net), "seed {seed}");
        net.check_invariants();
        net.settle(SECOND);
        assert!(registered(&net, UeIndex(0)) && registered(&net, UeIndex(1)));
    }
}

#[test] // DESIGN §4 rule 12: a flood of unauthenticated UEs is bounded, and its end gives the room back
fn a_flood_of_first_messages_is_bounded() {
    let mut config = whimbrel_sim::default_config();
    config.limits.unauthenticated_ues = 8;
    let mut net = Sim::builder(5).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    net.settle(SECOND / 10);
    let ues: Vec<_> = (0..20).map(|i| net.add_ue(gnb, ue_config(i))).collect();
    for &ue in &ues {
        net.ue_mut(ue).faults_mut().ignore.push((whimbrel_nas::mm::MessageType::AuthenticationRequest, 1));
        net.command(ue, UeCommand::Register);
    }
    net.settle(SECOND);
    assert_eq!(net.cta().occupancy(), (8, 8));
    net.advance(Duration::from_secs(600));
    assert_eq!(net.cta().occupancy().1, 0);
    assert!(ues.iter().filter(|&&ue| registered(&net, ue)).count() >= 8);
}
