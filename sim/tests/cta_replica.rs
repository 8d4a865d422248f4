//! A CTA with a CTA replica: the CTA replica does the same, octet by octet, and when the CTA is lost at whatever message no
//! UE notices.

use crate::common::day::{Stage, live, live_patiently, of};
use crate::common::stage::session;
use crate::common::*;
use std::sync::Arc;

use whimbrel_control::event::Event;
use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, Prf};
use whimbrel_ids::Instant;
use whimbrel_ran::gnb::Event as GnbEvent;
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::cta_replica::{CtaReplica, PrimaryCta, ReplicaFault};
use whimbrel_resilience::region::{Region, Regions};
use whimbrel_resilience::{Cta, Input, Outbox};
use whimbrel_security::HomeNetworkKeys;
use whimbrel_sim::{
    ChaosRun, CtaLoss, Deployment, FaultProfile, Sim, SimSubscribers, UeIndex, default_config,
    heal_and_verify, ue_config,
};

/// A chaos run in which no process of the core is lost.
fn without_losses(seed: u64) -> ChaosRun {
    let profile = FaultProfile { cta_losses: 0, cpf_losses: 0, ..FaultProfile::worst() };
    ChaosRun { profile, ..ChaosRun::new(seed, Deployment::Replicated(1)) }
}

/// One in which the CTA is lost in this way.
fn with_cta_losses(seed: u64, how: CtaLoss) -> ChaosRun {
    let profile = FaultProfile { cta_loss_kinds: vec![how], ..FaultProfile::worst() };
    ChaosRun { profile, ..ChaosRun::new(seed, Deployment::Replicated(2)) }
}

#[test]
fn a_cta_replica_does_the_same_in_whole_chaos_runs() {
    let mut followed = 0;
    for seed in 0..13 {
        let mut net = without_losses(seed).run();
        heal_and_verify(&mut net);
        followed += net.followed();
    }
    assert!(followed > 9_000, "{followed} inputs");
}

/// A UE whose USIM has been elsewhere: its first challenge fails.
fn day(ues: u32) -> Stage {
    of(Sim::builder(2).cpfs(3, 1).cta_replica().build(), ues)
}

/// The first and the last input of such a day.
fn inputs() -> (u64, u64) {
    let mut stage = day(1);
    let first = stage.net.inputs_taken() + 1;
    live(&mut stage, &|| "no loss".into());
    (first, stage.net.inputs_taken())
}

#[test]
fn a_cta_lost_at_any_input_affects_no_ue() {
    let (first, last) = inputs();
    assert!(last - first > 100, "{first} to {last} is not a day");
    // One way at each input; `losses.rs` has every way at every input of each procedure.
    let ways = [CtaLoss::BeforeInput, CtaLoss::AfterReplication, CtaLoss::FalseAlarm];
    for (input, how) in (first..=last).zip(ways.into_iter().cycle()) {
        let mut stage = day(1);
        stage.net.lose_cta_at(input, how);
        live(&mut stage, &|| format!("{how:?} at input {input} of {last}"));
        assert_eq!(
            (stage.net.takeovers(), stage.net.cta().replication_counters().lost),
            (1, 0),
            "{how:?} {input}"
        );
    }
}

#[test] // the CTA replica sends outputs again of which it does not know that they have left: receivers drop them, and no procedure fails
fn outputs_that_are_sent_twice_after_a_takeover_are_harmless() {
    let (first, last) = inputs();
    for (input, how) in
        (first..=last).zip([CtaLoss::AfterOutput, CtaLoss::BeforeReplication].into_iter().cycle())
    {
        let mut stage = day(1);
        stage.net.lose_cta_at(input, how);
        live_patiently(&mut stage, SECOND * 3, &|| format!("{how:?} at input {input} of {last}"));
        assert_eq!(
            (stage.net.takeovers(), stage.net.cta().replication_counters().lost),
            (1, 0),
            "{how:?} {input}"
        );
    }
}

#[test] // the primary dies between the gate and the socket: no record that the CTA replica has by then says that the outputs have left
fn outputs_that_passed_the_gate_and_were_not_sent_are_sent_by_the_cta_replica() {
    let (first, last) = inputs();
    for input in (first..=last).step_by(2) {
        let mut stage = day(1);
        stage.net.lose_cta_before_sending(input);
        live(&mut stage, &|| format!("input {input} of {last}"));
        assert_eq!((stage.net.takeovers(), stage.net.cta().replication_counters().lost), (1, 0), "{input}");
    }
}

#[test] // RFC 9260 §11.1: a gNB says again what was not acknowledged, though the CTA replica has all of it
fn messages_that_gnbs_send_twice_after_a_takeover_are_harmless() {
    let (first, last) = inputs();
    for (input, sacks) in (first..=last).zip([1, 3, 12].into_iter().cycle()) {
        let mut stage = day(1);
        stage.net.lose_sacks(sacks);
        stage.net.lose_cta_at(input, CtaLoss::BeforeInput);
        let what = || format!("{sacks} inputs before {input} of {last}");
        match sacks {
            // A message that came before its connection ended gets ERROR INDICATION, which is harmless.
            12 => live_patiently(&mut stage, SECOND * 3, &what),
            _ => live(&mut stage, &what),
        }
        assert_eq!(
            (stage.net.takeovers(), stage.net.cta().replication_counters().lost),
            (1, 0),
            "{sacks} {input}"
        );
    }
}

#[test] // with radio, gNBs, UPF and CPFs at their worst; an input that is lost with it is one that the radio lost
fn every_ue_is_registered_after_chaos_runs_with_losses() {
    let mut takeovers = 0;
    for seed in 0..30 {
        println!("seed {seed}");
        let how = CtaLoss::ALL[seed as usize % CtaLoss::ALL.len()];
        let mut net = with_cta_losses(seed, how).run();
        heal_and_verify(&mut net);
        let counts = net.cta().replication_counters();
        assert_eq!((counts.lost, counts.diverged), (0, 0), "seed {seed}, {how:?}");
        takeovers += net.takeovers();
    }
    assert!(takeovers > 75, "{takeovers} takeovers");
}

/// How often UEs have registered with an authentication, or otherwise.
fn registrations(net: &Sim) -> u64 {
    net.tally().completed.get("Registration").copied().unwrap_or(0)
}

/// A UE at rest with a session wants something after the CTA was lost.
fn afterwards(mut net: Sim, lose: impl FnOnce(&mut Sim)) -> (Sim, UeIndex) {
    let gnb = net.add_gnb(gnb_config(1));
    net.settle(SECOND);
    let ue = net.add_ue(gnb, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, session());
    net.settle(SECOND);
    go_idle(&mut net, ue);
    lose(&mut net);
    net.settle(SECOND);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND * 20);
    (net, ue)
}

#[test]
fn without_a_cta_replica_a_ue_registers_again() {
    let region = |replicated| match replicated {
        true => Sim::builder(4).cpfs(3, 1).cta_replica().build(),
        false => Sim::builder(4).cpfs(3, 1).build(),
    };
    let (net, ue) = afterwards(region(false), Sim::restart_core);
    assert!(registered(&net, ue));
    assert_eq!((registrations(&net), net.contexts().map(|p| p.sessions.len()).sum::<usize>()), (2, 0));

    let (net, ue) =
        afterwards(region(true), |net| net.lose_cta_at(net.inputs_taken() + 1, CtaLoss::BeforeInput));
    assert!(registered(&net, ue));
    assert_eq!((registrations(&net), net.contexts().map(|p| p.sessions.len()).sum::<usize>()), (1, 1));
    assert_eq!(net.takeovers(), 1);
    let lost = |e: &Event| matches!(e, Event::Deregistered { .. });
    assert!(!net.events.ues.iter().any(|(_, e)| lost(&e.event)));
}

/// A connected UE with a session, whose gNB has an association with the CTA replica's host too, or has not.
fn connected(single: bool) -> (Sim, UeIndex) {
    let mut net = Sim::builder(5).cpfs(3, 1).cta_replica().build();
    let gnb = net.add_gnb(gnb_config(1));
    if single {
        net.keep_to_one_association(gnb);
    }
    net.settle(SECOND);
    let ue = net.add_ue(gnb, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, session());
    net.settle(SECOND);
    net.lose_cta_at(net.inputs_taken() + 1, CtaLoss::BeforeInput);
    (net, ue)
}

/// The contexts that gNBs have released.
fn released(net: &Sim) -> usize {
    net.events.gnbs.iter().filter(|(_, e)| matches!(e, GnbEvent::ContextReleased(..))).count()
}

#[test] // TS 23.501 §5.21.1.2, TS 38.412 §7, TS 38.413 §8.7.3.2
fn a_gnb_continues_on_its_association_with_the_cta_replicas_host() {
    let (mut net, ue) = connected(false);
    net.command(ue, session());
    net.settle(SECOND * 3);
    assert_eq!((net.takeovers(), released(&net)), (1, 0));
    assert_eq!((registrations(&net), net.contexts().map(|p| p.sessions.len()).sum::<usize>()), (1, 2));
    assert!(net.ue_ref(ue).is_connected());
    no_violations(&net);
}

#[test] // TS 38.413 §8.7.1: it sets up again, and its UEs are idle; none registers again
fn a_gnb_with_one_association_sets_up_again_and_its_ues_stay_registered() {
    let (mut net, ue) = connected(true);
    net.command(ue, session());
    net.settle(SECOND * 3);
    assert_eq!((net.takeovers(), released(&net)), (1, 1));
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND * 3);
    assert!(registered(&net, ue) && net.ue_ref(ue).is_connected());
    assert_eq!(registrations(&net), 1);
}

const NOW: Instant = Instant(1_793_700_000_000_000);

#[test] // TS 29.244 §5.22.2: the sessions' F-SEIDs name the address of the one that began
fn a_ue_is_paged_by_a_upf_that_knows_only_the_cta_that_took_over() {
    let mut net = Sim::builder(6).cpfs(3, 1).cta_replica().build();
    let gnb = net.add_gnb(gnb_config(1));
    net.settle(SECOND);
    let ue = net.add_ue(gnb, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.lose_cta_at(net.inputs_taken() + 1, CtaLoss::BeforeInput);
    net.advance(SECOND * 20);
    assert_eq!(net.takeovers(), 1);
    net.restart_upf();
    net.advance(SECOND * 20);
    net.command(ue, session());
    net.settle(SECOND);
    go_idle(&mut net, ue);
    let id = net.ue_ref(ue).sessions().next().expect("it has one").id;
    net.check_path(ue, id);
    net.settle(SECOND);
    assert!(net.ue_ref(ue).has_user_plane(id));
    no_violations(&net);
}

fn directory() -> Directory {
    Directory::new(default_config().amf.plmn, HomeNetworkKeys::new())
}

fn cta() -> PrimaryCta<SimSubscribers, (Prf, u64)> {
    let region: Region = "coast/home".parse().expect("a region");
    let regions = Regions::new([region.clone()]).expect("one region");
    let rings = regions.rings(&region, 1).expect("the region is known");
    let (config, entropy) = (Arc::new(default_config()), (Prf::new(&[1; 16]), 0));
    PrimaryCta::new(Cta::of_region(config, directory(), SimSubscribers::default(), entropy, (), rings, NOW))
}

fn cta_replica_of(snapshot: &[u8]) -> Result<CtaReplica<SimSubscribers, (Prf, u64)>, ReplicaFault> {
    CtaReplica::new(snapshot, directory(), SimSubscribers::default(), (Prf::new(&[2; 16]), 0), ())
}

#[test] // DESIGN: "versions"
fn a_snapshot_that_is_not_whole_or_of_other_code_is_refused() {
    let snapshot = cta().snapshot().expect("it has no CTA replica");
    let whole = snapshot.octets();
    assert!(cta_replica_of(whole).is_ok());
    for length in 0..whole.len() {
        assert!(cta_replica_of(&whole[..length]).is_err(), "{length} octets of it");
    }
    let changed = |at: usize| {
        let mut octets = whole.to_vec();
        octets[at] ^= 1;
        cta_replica_of(&octets).err()
    };
    assert_eq!(
        (changed(1), changed(100)),
        (Some(ReplicaFault::OtherVersion), Some(ReplicaFault::Unreadable))
    );
}

#[test]
fn outputs_leave_when_the_cta_replica_has_the_input_or_is_discarded() {
    let mut active = cta();
    let snapshot = active.snapshot().expect("it has no CTA replica");
    assert!(active.snapshot().is_none(), "it has one now");
    let mut cta_replica = cta_replica_of(snapshot.octets()).expect("it follows");
    let mut out = Outbox::default();
    let record =
        active.handle(NOW, Input::Waited(SECOND), &mut out).expect("there is a record for the CTA replica");
    assert_eq!(active.waiting(), 0, "nothing waits for one that has to catch up");
    assert_eq!(
        cta_replica.take(record.octets()),
        active.begin_holding().ok_or(ReplicaFault::OutOfOrder),
        "it has"
    );
    let record = active.handle(NOW, Input::Tick, &mut out).expect("there is a record for the CTA replica");
    assert_eq!((out.pfcp.len(), active.waiting()), (0, 1));
    let held = cta_replica.take(record.octets()).expect("it follows");
    assert_eq!(cta_replica.take(record.octets()), Err(ReplicaFault::OutOfOrder), "it came twice");
    active.acknowledged(held, &mut out);
    assert_eq!((out.pfcp.len(), active.waiting()), (1, 0), "the association is asked for");
    assert!(active.sent_report().is_none(), "the edge has yet to send it");
    active.mark_outputs_sent();
    assert!(active.sent_report().is_some() && active.sent_report().is_none(), "reported once");

    active.handle(NOW, Input::Pfcp(whimbrel_control::UpfId(0), &[]), &mut out);
    let later = NOW + SECOND;
    active.handle(later, Input::Tick, &mut out);
    assert_eq!((out.pfcp.len(), active.waiting()), (1, 2));
    active.acknowledged(held + 1, &mut out);
    assert_eq!((out.pfcp.len(), active.waiting()), (1, 1), "the CTA replica does not hold the second");
    active.continue_without_replica(&mut out);
    assert_eq!((out.pfcp.len(), active.is_replicated()), (2, false));
    assert!(active.handle(later + SECOND, Input::Tick, &mut out).is_none());
    assert_eq!(out.pfcp.len(), 3, "and from then on at once");
}

#[test] // hosts' clocks differ, and a machine that starts before it knows the time may be years off
fn time_for_ues_continues_by_the_former_ctas_clock() {
    let year = SECOND * 31_536_000;
    for (ahead, here) in [("behind", Instant(NOW.0 - year.as_micros() as u64)), ("ahead", NOW + year)] {
        let mut active = cta();
        let snapshot = active.snapshot().expect("it has no CTA replica");
        let mut cta_replica = cta_replica_of(snapshot.octets()).expect("it follows");
        cta_replica.timed(here);
        let record = active
            .handle(NOW, Input::Tick, &mut Outbox::default())
            .expect("there is a record for the CTA replica");
        cta_replica.take(record.octets()).expect("it follows");
        cta_replica.timed(here);
        active.acknowledged(1, &mut Outbox::default());
        active.mark_outputs_sent();
        let left = active.sent_report().expect("the association was asked for");
        cta_replica.take(left.octets()).expect("it follows");
        cta_replica.timed(here + SECOND / 4);
        let (mut active, first) = cta_replica.take_over();
        assert_eq!(first.pfcp.len(), 0, "that has left");
        let mut out = Outbox::default();
        active.handle(here + SECOND / 2, Input::Tick, &mut out);
        assert_eq!(out.pfcp.len(), 0, "{ahead}: the UPF has a second for its answer");
        let due = active.next_deadline();
        assert_eq!(due, here + SECOND, "{ahead}");
        active.handle(due, Input::Tick, &mut out);
        assert_eq!(out.pfcp.len(), 1, "{ahead}: it is asked again");
    }
}

/// A message that cannot be decoded: it is answered with ERROR INDICATION (TS 38.413 §10.2).
const UNREADABLE: [u8; 3] = [0xff; 3];

#[test] // the next primary sends none again that its endpoint knows to have left
fn an_ngap_message_has_one_mark_in_the_primary_and_its_replica() {
    let association = AssociationId(0);
    let mut active = cta();
    let mut out = Outbox::default();
    active.handle(
        NOW,
        Input::AssociationUp { association, outbound_streams: 2, addresses: vec![] },
        &mut out,
    );
    active.handle(NOW, Input::Ngap(association, 0, &UNREADABLE), &mut out);
    let alone = active.take_sent_message_numbers();
    assert_eq!((alone.len(), out.ngap.len()), (1, 1));
    let snapshot = active.snapshot().expect("it has no CTA replica");
    let mut cta_replica = cta_replica_of(snapshot.octets()).expect("it follows");
    active.begin_holding();
    out = Outbox::default();
    for _ in 0..3 {
        let record = active.handle(NOW, Input::Ngap(association, 0, &UNREADABLE), &mut out);
        cta_replica.take(record.expect("it goes to the CTA replica").octets()).expect("it follows");
    }
    assert_eq!((out.ngap.len(), active.take_sent_message_numbers()), (0, vec![]), "they wait");
    active.acknowledged(cta_replica.held() - 1, &mut out);
    let left = active.take_sent_message_numbers();
    assert_eq!((out.ngap.len(), left.len()), (2, 2));
    let (mut active, first) = cta_replica.take_over();
    let doubtful = active.take_sent_message_numbers();
    assert_eq!((first.ngap.len(), &doubtful[..2]), (3, &left[..]));
    assert!(alone.iter().chain(&doubtful).is_sorted_by(|a, b| a < b), "they grow through a takeover");
    active.handle(NOW, Input::Ngap(association, 0, &UNREADABLE), &mut out);
    assert!(active.take_sent_message_numbers()[0] > doubtful[2]);
}

#[test]
fn a_cta_replica_knows_which_messages_of_an_association_it_has() {
    let association = AssociationId(0);
    let mut active = cta();
    let mut out = Outbox::default();
    active.handle(
        NOW,
        Input::AssociationUp { association, outbound_streams: 2, addresses: vec![] },
        &mut out,
    );
    let snapshot = active.snapshot().expect("it has no CTA replica");
    let mut cta_replica = cta_replica_of(snapshot.octets()).expect("it follows");
    let mut take = |active: &mut PrimaryCta<_, _>, input| {
        let record = active.handle(NOW, input, &mut out).expect("it goes to the CTA replica");
        cta_replica.take(record.octets()).expect("it follows");
        cta_replica.received().get(&association).copied()
    };
    assert_eq!(take(&mut active, Input::Tick), None);
    active.set_next_message(association, 7);
    assert_eq!(take(&mut active, Input::Ngap(association, 0, &UNREADABLE)), Some(7));
    assert_eq!(take(&mut active, Input::Tick), Some(7));
    active.set_next_message(association, 9);
    assert_eq!(take(&mut active, Input::Ngap(association, 0, &UNREADABLE)), Some(9));
    assert_eq!(take(&mut active, Input::AssociationDown(association)), None);
}
