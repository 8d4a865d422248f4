//! CPFs of a region that are lost in the middle of anything (Neutrino §4.2, failure scenarios 1 and 2): no UE
//! notices. A loss at each message that a CPF takes, in each way.

use std::time::Duration;

use crate::common::day::{Stage, live, of, stage};
use crate::common::stage::session;
use crate::common::*;
use whimbrel_control::{Batch, Checkpoint, Envelope, Payload, UeContext, UeId};
use whimbrel_ids::{Instant, Tmsi};
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::link::{CpfCommand, CpfReport, PeerMessage, UeCheckpoint};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CodeVersion, CpfOutbox, ProtocolViolation, ReplicatedCpf};
use whimbrel_sim::{
    ChaosRun, CpfLoss, Deployment, Sim, UpfState, default_config, heal_and_verify, ue_config,
};

#[test]
fn procedures_without_losses_leave_nothing_behind() {
    let mut stage = stage(1, 3);
    live(&mut stage, &|| "no loss".into());
    assert_eq!(stage.net.cta().replication_counters(), Default::default());
    stage.net.advance(Duration::from_secs(1));
    assert_eq!(stage.net.backed(), 0, "no replica has the state of a UE that has left");
}

#[test] // Neutrino §4.2.5, scenarios 1 and 2
fn a_cpf_lost_at_any_message_of_a_ues_procedures() {
    let taken = {
        let mut stage = stage(2, 1);
        live(&mut stage, &|| "no loss".into());
        stage.net.links_taken()
    };
    assert!(taken > 75, "{taken} messages are not a day");
    let mut taken_over = 0;
    // One way at each message, and what the UE does afterwards; `losses.rs` has every way at every message of each procedure.
    for (message, how) in (1..=taken).zip(CpfLoss::ALL.into_iter().cycle()) {
        let mut stage = stage(2, 1);
        stage.net.lose_cpf_at(message, how);
        live(&mut stage, &|| format!("{how:?} at message {message} of {taken}"));
        let replicated = stage.net.cta().replication_counters();
        assert_eq!(
            (replicated.cpfs_lost, replicated.lost, replicated.diverged),
            (1, 0, 0),
            "{how:?} at message {message}"
        );
        taken_over += replicated.taken_over;
    }
    assert!(taken_over > taken / 4, "{taken_over} takeovers");
}

#[test] // with radio, gNBs and UPF at their worst; without a replica UEs register again, and nothing of their former contexts is left
fn every_ue_registers_after_chaos_runs_with_losses() {
    for replicas in 0..=2 {
        let (mut lost, mut taken_over) = (0, 0);
        for seed in 0..10 {
            let run = ChaosRun::worst(seed, Deployment::Region(replicas));
            println!("{run}");
            let mut net = run.run();
            heal_and_verify(&mut net);
            let replicated = net.cta().replication_counters();
            assert_eq!(replicated.diverged, 0, "seed {seed}");
            let of = net.lost_ues();
            assert_eq!((of.unexplained, of.lost_all_holders), (0, replicated.lost), "seed {seed}");
            (lost, taken_over) = (lost + replicated.lost, taken_over + replicated.taken_over);
        }
        match replicas {
            0 => assert!(lost > 15 && taken_over == 0, "{lost} UEs registered again"),
            1 => assert!(taken_over > 50 * lost, "{lost} UEs registered again of {taken_over}"),
            _ => assert!(taken_over > 150 * lost, "{lost} UEs registered again of {taken_over}"),
        }
    }
}

#[test] // it counts as one that lags, and the log has what it should hold
fn a_state_that_contradicts_its_envelope_is_not_stored() {
    let mut member = ReplicatedCpf::new(default_config().into());
    let ue = UeId { slot: 1, generation: 1 };
    let other = UeId { slot: 2, ..ue };
    let mut at_four = UeContext::new(ue);
    at_four.clock = 4;
    let at_four = Checkpoint::of(&at_four).expect("it rests");
    let mut out = CpfOutbox::default();
    for (ue, clock) in [(ue, 7), (other, 4)] {
        member.peer(
            CpfId(2),
            PeerMessage::State(UeCheckpoint { ue, term: 1, clock, state: at_four.clone() }),
            &mut out,
        );
    }
    member.peer(CpfId(2), state(ue, u32::MAX, 4), &mut out);
    assert_eq!((member.refused(), member.backed()), (3, 0));
    let replicated =
        |of| move |up: &CpfReport| matches!(up, CpfReport::CheckpointUnusable { ue, .. } if *ue == of);
    assert!(
        std::iter::zip(out.up.drain(..), [ue, other, ue]).all(|(up, of)| replicated(of)(&up)),
        "it reports each"
    );
    member.peer(
        CpfId(2),
        PeerMessage::State(UeCheckpoint { ue, term: 1, clock: 4, state: at_four }),
        &mut out,
    );
    assert!(matches!(out.up[..], [CpfReport::CheckpointHeld { ue: of, term: 1, clock: 4 }] if of == ue));
    assert_eq!((member.refused(), member.backed()), (3, 1));
}

fn tick(ue: UeId, clock: u64) -> Envelope {
    Envelope {
        code_version: CodeVersion::own().0,
        ue,
        cta_term: 1,
        owner_term: 2,
        clock,
        time: Instant(clock),
        seed: [1; 16],
        tmsi: Tmsi(5),
        config_version: 1,
        upfs: Default::default(),
        payload: Payload::Tick,
    }
}

/// The state of a UE that rests, as it is sent under a term.
fn state(ue: UeId, term: u32, clock: u64) -> PeerMessage {
    let mut at = UeContext::new(ue);
    at.clock = clock;
    PeerMessage::State(UeCheckpoint { ue, term, clock, state: Checkpoint::of(&at).expect("it rests") })
}

#[test] // a UE comes back whose state was to be forgotten: its new state comes from another member, and may be there before that word
fn a_word_to_forget_is_not_about_a_state_that_has_overtaken_it() {
    let mut member = ReplicatedCpf::new(default_config().into());
    let (ue, mut out) = (UeId { slot: 1, generation: 1 }, CpfOutbox::default());
    member.peer(CpfId(2), state(ue, 3, 7), &mut out);
    member.handle(CpfCommand::Forget { ue, term: 3 }, &mut out);
    assert_eq!(member.holds(ue), Some(7));
    member.handle(CpfCommand::Forget { ue, term: 4 }, &mut out);
    assert_eq!(member.holds(ue), None);

    // The same of a UE that it serves.
    member.handle(CpfCommand::Serve { ue, term: 5, backups: Vec::new() }, &mut out);
    member.handle(CpfCommand::Forget { ue, term: 5 }, &mut out);
    member.handle(CpfCommand::Run(tick(ue, 1)), &mut out);
    assert!(matches!(out.up[..], [CpfReport::CheckpointHeld { .. }, CpfReport::Ran { term: 5, .. }]));
    member.handle(CpfCommand::Forget { ue, term: 6 }, &mut out);
    member.handle(CpfCommand::Run(tick(ue, 2)), &mut out);
    assert_eq!(out.up.len(), 2);
}

#[test] // a UE moves again at once: a state of its new primary may arrive before the assignment
fn a_word_to_serve_is_not_heeded_once_another_serves() {
    let mut member = ReplicatedCpf::new(default_config().into());
    let (ue, mut out) = (UeId { slot: 1, generation: 1 }, CpfOutbox::default());
    member.handle(CpfCommand::Serve { ue, term: 1, backups: vec![CpfId(2)] }, &mut out);
    member.peer(CpfId(2), state(ue, 3, 7), &mut out);
    member.handle(CpfCommand::Serve { ue, term: 2, backups: vec![CpfId(2), CpfId(3)] }, &mut out);
    assert_eq!((member.holds(ue), member.cpf().contexts().count()), (Some(7), 0));
    member.handle(CpfCommand::Serve { ue, term: 4, backups: vec![CpfId(2)] }, &mut out);
    assert_eq!((member.holds(ue), member.cpf().contexts().count()), (None, 1));
}

#[test] // its state may be newer than the CTA knew when it was chosen
fn of_inputs_that_are_to_be_tried_those_are_that_the_state_lacks() {
    let mut member = ReplicatedCpf::new(default_config().into());
    let ue = UeId { slot: 1, generation: 1 };
    let mut out = CpfOutbox::default();
    member.peer(CpfId(2), state(ue, 1, 4), &mut out);
    member.handle(CpfCommand::Serve { ue, term: 2, backups: Vec::new() }, &mut out);
    member.handle(
        CpfCommand::RunAfterTrial { ue, inputs: (3..=6).map(|clock| tick(ue, clock)).collect() },
        &mut out,
    );
    let tried = out.trials[0].inputs.iter().map(|input| input.clock);
    assert_eq!(tried.collect::<Vec<_>>(), [5, 6]);
}

/// What a CPF says of an input.
fn says(ue: UeId, term: u32, clock: u64, batch: Batch) -> CpfReport {
    CpfReport::Ran { ue, term, clock, from: None, batch: Box::new(batch) }
}

#[test] // forged and repeated clocks, by one that is of the region: none does a UE harm, and each is counted
fn a_faulty_cpf_is_not_believed() {
    let mut stage = of(Sim::builder(1).cpfs(3, 1).build(), 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    let context = stage.net.contexts().next().expect("it is registered").id;
    let (serves, backs) =
        (stage.net.cta().served_by(context).unwrap(), stage.net.cta().backed_by(context)[0]);
    let neither = [1, 2, 3].map(CpfId).into_iter().find(|c| *c != serves && *c != backs).unwrap();
    let heard = stage.net.ue_events(ue).len();

    // It reports a state that does not exist yet; and a CPF that is no replica reports a state.
    stage.net.inject_from_cpf(backs, CpfReport::CheckpointHeld { ue: context, term: 1, clock: u64::MAX });
    stage.net.inject_from_cpf(neither, CpfReport::CheckpointHeld { ue: context, term: 1, clock: 1 });
    assert_eq!(stage.net.cta().replication_counters().checkpoint_acks_refused, 1);
    assert_eq!(stage.net.cta().backed_by(context), [backs]);
    // It answers for a UE that another one serves, under terms of all kinds; and for inputs that never were.
    for (from, term, clock) in [(backs, 1, 1), (neither, 2, u64::MAX), (serves, 1, u64::MAX), (serves, 9, 1)]
    {
        stage.net.inject_from_cpf(from, says(context, term, clock, Batch::default()));
    }
    stage.net.inject_from_cpf(neither, CpfReport::CheckpointUnusable { ue: context, term: 1 });
    stage.net.inject_from_cpf(backs, CpfReport::CheckpointUnusable { ue: context, term: 1 });
    stage.net.inject_from_cpf(neither, CpfReport::Poisoned { ue: context, term: 1, inputs: (1, 1) });
    // Inputs that cannot have ended it: none, and such as never were.
    for inputs in [(9, 8), (1, u64::MAX)] {
        stage.net.inject_from_cpf(serves, CpfReport::Poisoned { ue: context, term: 1, inputs });
    }
    assert_eq!(
        (stage.net.cta().replication_counters().fenced, stage.net.cta().replication_counters().unreadable),
        (8, 1)
    );
    let once = [(backs, ProtocolViolation::AckRefused)].into_iter();
    let once = once.chain([backs, neither, serves].map(|of| (of, ProtocolViolation::Fenced)));
    let once = once.chain([(backs, ProtocolViolation::CheckpointUnusable)]);
    assert_eq!(stage.net.events.cpf_violations, Vec::from_iter(once), "each is reported once");
    // Of a UE that is not there, nothing is known.
    let unknown = UeId { slot: 999, generation: 3 };
    stage.net.inject_from_cpf(serves, says(unknown, 1, 1, Batch::default()));
    stage.net.inject_from_cpf(serves, CpfReport::CheckpointHeld { ue: unknown, term: 1, clock: 7 });
    stage.net.settle(SECOND); // a CPF that has a state without being a replica has to delete it
    assert_eq!(stage.net.ue_events(ue).len(), heard, "nothing of all that left");

    // The UE continues, also at the faulty one when the other is lost.
    let next = stage.net.links_taken() + 1;
    stage.net.lose_cpf_at(next, CpfLoss::BeforeInput);
    stage.net.command(ue, session());
    stage.net.settle(SECOND * 3);
    assert_eq!(stage.net.cta().served_by(context), Some(backs));
    let replicated = stage.net.cta().replication_counters();
    assert_eq!(
        (replicated.taken_over, replicated.lost, replicated.diverged, replicated.poisoned),
        (1, 0, 0, 0)
    );
    stage.net.check_user_plane();
    no_violations(&stage.net);
}

#[test] // DESIGN: "key stream"; TS 33.501 §6.4.3.1
fn an_answer_that_uses_a_count_again_does_not_leave() {
    let mut stage = of(Sim::builder(1).cpfs(3, 1).build(), 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    let context = stage.net.contexts().next().expect("it is registered").id;
    let serves = stage.net.cta().served_by(context).expect("a CPF serves it");
    stage.net.repeat_a_count(serves);
    stage.net.tap();
    stage.net.command(ue, session());
    stage.net.settle(SECOND / 10);
    let is_release =
        |m: &whimbrel_ngap::Message| matches!(m, whimbrel_ngap::Message::UeContextReleaseCommand(_));
    let heard = stage.net.tapped();
    assert!(heard.len() == 1 && is_release(&heard[0]), "nothing but that its connection ends: {heard:?}");
    assert_eq!(stage.net.events.cpf_violations, [(serves, ProtocolViolation::NasCountReuse)]);
    assert_eq!(stage.net.cta().replication_counters().nas_count_reuse, 1);
    assert!(stage.net.contexts().all(|p| p.id != context), "its keys are not used any more");
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND * 3);
    assert!(registered(&stage.net, ue), "under new ones");
    no_violations(&stage.net);
}

/// A UE with a session and two replicas, of which these get states that cannot be read; its CPF is lost at its service request.
fn taken_over_from_spoilt_states(spoilt: &[usize]) -> Stage {
    let mut stage = of(Sim::builder(1).cpfs(4, 2).build(), 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    let context = stage.net.contexts().next().expect("it is registered").id;
    let backs = stage.net.cta().backed_by(context);
    spoilt.iter().for_each(|&nth| stage.net.spoil_states_to(backs[nth]));
    stage.net.command(ue, session());
    stage.net.settle(SECOND);
    assert_eq!(stage.net.backed(), 2, "the check has not run yet");
    go_idle(&mut stage.net, ue);
    stage.net.lose_cpf_at(stage.net.links_taken() + 1, CpfLoss::BeforeInput);
    stage.net.command(ue, UeCommand::ServiceRequest);
    stage.net.settle(SECOND * 3);
    stage
}

#[test] // no CPF that has to serve a UE relies on what a peer reports of it
fn a_state_that_cannot_be_read_costs_a_backup_and_not_the_ue() {
    let unreadable = [0, 1].map(|spoilt| {
        let stage = taken_over_from_spoilt_states(&[spoilt]);
        let replicated = stage.net.cta().replication_counters();
        assert_eq!((replicated.cpfs_lost, replicated.lost, replicated.diverged), (1, 0, 0));
        assert!(is_served(&stage));
        no_violations(&stage.net);
        replicated.unreadable
    });
    assert_eq!(unreadable.iter().sum::<u64>(), 1, "one of the two is asked first");
}

#[test]
fn a_ue_whose_states_are_all_unreadable_registers_again() {
    let stage = taken_over_from_spoilt_states(&[0, 1]);
    let replicated = stage.net.cta().replication_counters();
    assert_eq!((replicated.cpfs_lost, replicated.lost, replicated.unreadable), (1, 1, 2));
    assert!(registered(&stage.net, stage.ues[0]));
    assert_eq!(stage.net.upf_sessions(), 0, "what it had is ended");
}

/// Whether the UE's last service request was accepted.
fn is_served(stage: &Stage) -> bool {
    let last = stage.net.ue_events(stage.ues[0]).last();
    matches!(last, Some((_, whimbrel_ran::ue::Event::ServiceAccepted { .. })))
}

/// A UE with two replicas, of which this one has got nothing since the UE registered; its CPF is lost at its service request.
fn taken_over_although_one_backup_has_nothing(nth: usize, wrong: fn(UeId, u64) -> CpfReport) -> Stage {
    let mut stage = of(Sim::builder(1).cpfs(4, 2).build(), 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    let context = stage.net.contexts().next().expect("it is registered").clone();
    let serves = stage.net.cta().served_by(context.id).expect("a CPF serves it");
    let backs = stage.net.cta().backed_by(context.id)[nth];
    stage.net.hold_between_cpfs(serves, backs);
    stage.net.command(ue, session());
    stage.net.settle(SECOND);
    go_idle(&mut stage.net, ue);
    let clock = stage.net.context(context.id).expect("it is there").clock;
    stage.net.inject_from_cpf(backs, wrong(context.id, clock));
    stage.net.lose_cpf_at(stage.net.links_taken() + 1, CpfLoss::BeforeInput);
    stage.net.command(ue, UeCommand::ServiceRequest);
    stage.net.settle(SECOND * 3);
    stage
}

#[test] // what it is asked to go on with begins behind what it has
fn a_backup_that_claims_a_state_that_it_has_not_costs_a_backup_and_not_the_ue() {
    let found_out = [0, 1].map(|nth| {
        let wrong = |ue, clock| CpfReport::CheckpointHeld { ue, term: 1, clock };
        let stage = taken_over_although_one_backup_has_nothing(nth, wrong);
        let replicated = stage.net.cta().replication_counters();
        assert_eq!((replicated.cpfs_lost, replicated.lost, replicated.diverged), (1, 0, 0));
        assert!(is_served(&stage), "the other one goes on with it");
        no_violations(&stage.net);
        replicated.unreadable
    });
    assert_eq!(found_out.iter().sum::<u64>(), 1, "one of the two is asked first: {found_out:?}");
}

/// A UE of which a CPF gets a state under a term that never was; then its primary is lost, unless that is the receiver.
fn with_wrong_report(is_served_there: bool, (term, ahead): (u32, u64)) -> Stage {
    let mut stage = of(Sim::builder(1).cpfs(3, 1).build(), 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.command(ue, session());
    stage.net.settle(SECOND);
    go_idle(&mut stage.net, ue);
    let context = stage.net.contexts().next().expect("it is registered").clone();
    let serves = stage.net.cta().served_by(context.id).expect("a CPF serves it");
    let backs = stage.net.cta().backed_by(context.id)[0];
    let (from, to) = if is_served_there { (backs, serves) } else { (serves, backs) };
    for _ in 0..2 {
        stage.net.inject_between_cpfs(from, to, state(context.id, term, context.clock + ahead));
        stage.net.settle(SECOND / 10);
    }
    assert_eq!(stage.net.cta().replication_counters().checkpoint_acks_refused, 2);
    assert_eq!(stage.net.events.cpf_violations, [(to, ProtocolViolation::AckRefused)], "reported once");
    assert_eq!(stage.net.cta().without_backup(), 0);
    if !is_served_there {
        stage.net.lose_cpf_at(stage.net.links_taken() + 1, CpfLoss::BeforeInput);
    }
    stage.net.command(ue, UeCommand::ServiceRequest);
    stage.net.settle(SECOND * 3);
    stage
}

#[test] // the primary stops serving it, or a replica refuses states of the current term or of later clocks: none of it costs the
// UE anything
fn a_replica_with_a_wrong_term_or_clock_is_detected() {
    for (is_served_there, wrong) in [(true, (9, 0)), (false, (9, 0)), (false, (1, 100)), (true, (2, 100))] {
        let stage = with_wrong_report(is_served_there, wrong);
        assert!(is_served(&stage), "it is served elsewhere: {is_served_there}");
        let replicated = stage.net.cta().replication_counters();
        assert_eq!((replicated.lost, replicated.diverged, replicated.unreadable), (0, 0, 0));
        stage.net.check_user_plane();
        no_violations(&stage.net);
    }
}

#[test] // chaos runs that failed once: the UPF's answer was in flight to a UE that left, and the session was not released
fn a_session_that_comes_up_while_its_ue_leaves() {
    for (seed, replicas) in [(497, 2), (142, 2), (250, 1), (671, 1), (833, 1), (1002, 1)] {
        heal_and_verify(&mut ChaosRun::worst(seed, Deployment::Region(replicas)).run());
    }
}

#[test] // TS 38.413 §8.7.4: the UEs of a reset are lost with their CPFs, and the gNB is answered all the same
fn a_reset_whose_ues_are_lost_is_acknowledged() {
    let mut net = Sim::builder(3).cpfs(2, 0).build();
    let gnb = net.add_gnb(gnb_config(1));
    net.settle(SECOND);
    let ue = net.add_ue(gnb, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.tap();
    net.lose_cpf_at(net.links_taken() + 1, CpfLoss::BeforeInput);
    net.gnb_input(gnb, whimbrel_ran::gnb::Input::Reset);
    net.settle(SECOND / 10);
    let answered = |m: &whimbrel_ngap::Message| matches!(m, whimbrel_ngap::Message::NgResetAcknowledge(_));
    assert_eq!(net.tapped().iter().filter(|m| answered(m)).count(), 1);
    assert_eq!(net.cta().replication_counters().lost, 1);
}

#[test] // also where there was no CPF to be a replica when the UEs registered, or at the last loss
fn a_cpf_that_joins_becomes_replica_of_ues_without_one() {
    let mut net = Sim::builder(3).cpfs(1, 1).build();
    let gnb = net.add_gnb(whimbrel_sim::gnb_config(1));
    let ues: Vec<_> = (0..6).map(|n| net.add_ue(gnb, ue_config(n))).collect();
    ues.iter().for_each(|&ue| net.command(ue, UeCommand::Register));
    net.settle(SECOND * 2);
    assert_eq!((net.backed(), net.cta().without_backup()), (0, 6), "there is none, which is reported");
    for _ in 0..3 {
        net.add_cpf();
        net.settle(SECOND * 2);
        assert_eq!((net.backed(), net.cta().without_backup()), (6, 0));
        net.lose_cpf_at(net.links_taken() + 1, CpfLoss::BeforeInput);
        net.command(ues[0], UeCommand::PeriodicRegistration);
        net.settle(SECOND * 2);
    }
    let replicated = net.cta().replication_counters();
    assert_eq!((replicated.cpfs_lost, replicated.lost), (3, 0));
    assert!(ues.iter().all(|&ue| whimbrel_sim::registered(&net, ue)));
}

/// A UE of which a procedure runs: the UPF does not answer.
fn at_something(cpfs: u16, replicas: usize) -> (Stage, UeId) {
    let net = Sim::builder(5).cpfs(cpfs, replicas).build();
    let mut stage = of(net, 1);
    let ue = stage.ues[0];
    stage.net.command(ue, UeCommand::Register);
    stage.net.settle(SECOND);
    stage.net.set_upf(UpfState::Silent);
    stage.net.command(ue, session());
    stage.net.advance(SECOND / 10);
    let context = stage.net.contexts().next().expect("it is registered").id;
    assert_eq!(stage.net.cta().logged().1, 1, "its session is not there yet");
    (stage, context)
}

#[test] // the state is of before the procedure, and the log leads on from it
fn a_new_replica_may_take_over_before_the_procedure_ends() {
    let (mut stage, ue) = at_something(4, 1);
    for _ in 0..3 {
        let backs = stage.net.cta().backed_by(ue)[0];
        stage.net.lose_cpf(backs);
        stage.net.advance(SECOND / 10);
        assert_eq!(stage.net.cta().without_backup(), 0);
        let serves = stage.net.cta().served_by(ue).expect("a CPF serves it");
        stage.net.lose_cpf(serves);
        stage.net.add_cpf();
        stage.net.add_cpf();
        stage.net.advance(SECOND / 10);
    }
    stage.net.set_upf(UpfState::Answering);
    stage.net.settle(SECOND * 10);
    let replicated = stage.net.cta().replication_counters();
    assert_eq!(
        (replicated.cpfs_lost, replicated.taken_over, replicated.lost, replicated.diverged),
        (6, 3, 0, 0)
    );
    assert_eq!(stage.net.ue_ref(stage.ues[0]).sessions().count(), 1);
    stage.net.check_user_plane();
    no_violations(&stage.net);
}

#[test] // it is among those that are at something and among all
fn a_ue_that_is_lost_in_the_middle_of_a_procedure_is_lost_once() {
    let (mut stage, ue) = at_something(4, 1);
    let serves = stage.net.cta().served_by(ue).expect("a CPF serves it");
    let backs = stage.net.cta().backed_by(ue)[0];
    (1..=4).for_each(|other| stage.net.hold_between_cpfs(serves, CpfId(other)));
    for lost in [backs, serves] {
        stage.net.lose_cpf(lost);
        stage.net.advance(SECOND / 10);
    }
    assert_eq!((stage.net.cta().replication_counters().lost, stage.net.tally().deregistered), (1, 1));
}
