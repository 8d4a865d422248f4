//! An input that ends every process that runs it: a process that aborts, overflows its stack or never comes back. It costs the CPF that
//! met it first, and its own UE a registration (DESIGN: "poison").

use crate::common::stage::session;
use crate::common::*;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::{Envelope, Event, Payload, UeId};
use whimbrel_ids::{Instant, Tmsi};
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::link::{CpfCommand, CpfReport};
use whimbrel_resilience::{CodeVersion, CpfOutbox, ReplicatedCpf, Trial, TrialOutcome};
use whimbrel_sim::{
    ChaosRun, Deployment, FaultProfile, Faults, GnbIndex, Sim, UeIndex, default_config, heal_and_verify,
    ue_config,
};

/// Two gNBs, three UEs, three CPFs with so many replicas a UE.
fn stage(replicas: usize) -> (Sim, [GnbIndex; 2], Vec<UeIndex>) {
    let mut net = Sim::builder(1).cpfs(3, replicas).build();
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
    net.settle(SECOND);
    let ues = (1..=3).map(|n| net.add_ue(gnbs[0], ue_config(n))).collect();
    (net, gnbs, ues)
}

/// What the UEs do, all at once.
fn live(net: &mut Sim, gnbs: [GnbIndex; 2], ues: &[UeIndex]) {
    for step in 0..6 {
        for &ue in ues {
            match step {
                0 => net.command(ue, UeCommand::Register),
                1 => net.command(ue, session()),
                2 => net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity)),
                3 => net.command(ue, UeCommand::ServiceRequest),
                4 => net.hand_over(ue, gnbs[1], Via::Xn),
                _ => net.command(ue, UeCommand::PeriodicRegistration),
            }
        }
        net.settle(SECOND * 3);
    }
}

/// The UEs that were given up for an input.
fn given_up(net: &Sim) -> usize {
    let fault = |e: &Event| matches!(e, Event::Deregistered { why: DeregistrationReason::Fault, .. });
    net.events.ues.iter().filter(|(_, e)| fault(&e.event)).count()
}

#[test]
fn a_poisoned_input_costs_one_cpf_and_one_registration() {
    let inputs = {
        let (mut net, gnbs, ues) = stage(1);
        net.poison(u64::MAX);
        live(&mut net, gnbs, &ues);
        net.handed()
    };
    assert!(inputs > 60, "{inputs} inputs are not a day of three UEs");
    for nth in 1..=inputs {
        let (mut net, gnbs, ues) = stage(1);
        net.poison(nth);
        live(&mut net, gnbs, &ues);
        let counts = net.cta().replication_counters();
        assert_eq!((counts.cpfs_lost, counts.poisoned, counts.lost), (1, 1, 0), "input {nth} of {inputs}");
        assert_eq!((given_up(&net), counts.diverged), (1, 0), "input {nth} of {inputs}");
        let unaffected = ues.iter().filter(|&&ue| registered(&net, ue)).count();
        assert!(unaffected >= ues.len() - 1, "input {nth} of {inputs}: {unaffected} UEs are there");
        heal_and_verify(&mut net);
    }
}

#[test]
fn without_a_trial_every_cpf_is_lost_after_the_first() {
    for (sandboxes, left) in [(false, 0), (true, 2)] {
        let (mut net, gnbs, ues) = stage(2);
        if !sandboxes {
            net.without_replay_sandboxes();
        }
        net.poison(20);
        live(&mut net, gnbs, &ues);
        assert_eq!(net.cpfs(), left, "with sandboxes: {sandboxes}");
    }
}

/// Losses of all kinds, and a radio without faults.
fn good_radio() -> FaultProfile {
    FaultProfile { faults: Faults::default(), ..FaultProfile::worst() }
}

#[test]
fn a_trial_of_a_harmless_input_discards_no_ue() {
    // The inputs that were unanswered at each loss are tried.
    let mut tried = 0;
    for seed in 0..10 {
        let mut net = ChaosRun { profile: good_radio(), ..ChaosRun::new(seed, Deployment::Region(2)) }.run();
        heal_and_verify(&mut net);
        let counts = net.cta().replication_counters();
        assert_eq!((counts.poisoned, counts.diverged, given_up(&net)), (0, 0, 0), "seed {seed}");
        tried += counts.tried;
    }
    assert!(tried > 10, "{tried} inputs were tried");
}

#[test]
fn one_poisoned_input_in_a_chaos_run_costs_one_ue() {
    let mut poisoned = 0;
    for seed in 0..14 {
        let run = ChaosRun::worst(seed, Deployment::Region(2));
        let mut net = ChaosRun { poison: Some(30 + 7 * seed), ..run }.run();
        heal_and_verify(&mut net);
        let counts = net.cta().replication_counters();
        assert_eq!(counts.diverged, 0, "seed {seed}");
        assert!(counts.poisoned <= 1, "seed {seed}: one input, one UE");
        poisoned += counts.poisoned;
    }
    assert!(poisoned > 3, "{poisoned} UEs met it");
}

/// A member that serves two UEs, and has an input of the first tried.
fn member_with_a_trial() -> (ReplicatedCpf, Trial) {
    let mut member = ReplicatedCpf::new(default_config().into());
    let mut out = CpfOutbox::default();
    for ue in [FIRST, SECOND_UE] {
        member.handle(CpfCommand::Serve { ue, term: 2, backups: Vec::new() }, &mut out);
    }
    member.handle(CpfCommand::RunAfterTrial { ue: FIRST, inputs: vec![tick(FIRST, 1)] }, &mut out);
    assert!(out.up.is_empty(), "nothing ran");
    let trial = out.trials.pop().expect("one is to be tried");
    (member, trial)
}

const FIRST: UeId = UeId { slot: 1, generation: 1 };
const SECOND_UE: UeId = UeId { slot: 2, generation: 1 };

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

/// Which inputs were run, in order.
fn ran(out: &CpfOutbox) -> Vec<(UeId, u64)> {
    let ran =
        |up: &CpfReport| if let CpfReport::Ran { ue, clock, .. } = up { Some((*ue, *clock)) } else { None };
    out.up.iter().filter_map(ran).collect()
}

#[test]
fn while_one_ue_waits_for_a_trial_the_others_go_on() {
    let (mut member, trial) = member_with_a_trial();
    let mut out = CpfOutbox::default();
    member.handle(CpfCommand::Run(tick(FIRST, 2)), &mut out);
    member.handle(CpfCommand::Run(tick(SECOND_UE, 1)), &mut out);
    assert_eq!(ran(&out), [(SECOND_UE, 1)]);
    member.tried(trial.id, TrialOutcome::Passed, &mut out);
    assert_eq!(ran(&out), [(SECOND_UE, 1), (FIRST, 1), (FIRST, 2)]);
    member.tried(trial.id, TrialOutcome::Passed, &mut out);
    assert_eq!(ran(&out).len(), 3, "it is reported once");
}

#[test]
fn an_input_that_ends_the_sandbox_is_not_run_nor_are_later_ones() {
    let (mut member, trial) = member_with_a_trial();
    let mut out = CpfOutbox::default();
    member.tried(trial.id, TrialOutcome::CrashedAfter(0), &mut out);
    assert!(matches!(out.up[..], [CpfReport::Poisoned { ue: FIRST, term: 2, inputs: (1, 1) }]));
    member.handle(CpfCommand::Run(tick(FIRST, 2)), &mut out);
    assert_eq!(ran(&out), []);
    member.handle(CpfCommand::Forget { ue: FIRST, term: u32::MAX }, &mut out);
    member.handle(CpfCommand::Run(tick(FIRST, 3)), &mut out);
    assert_eq!(ran(&out), []);
}

#[test]
fn a_ue_with_too_many_inputs_during_a_trial_is_discarded() {
    let (mut member, _) = member_with_a_trial();
    let mut out = CpfOutbox::default();
    for clock in 2..=65 {
        member.handle(CpfCommand::Run(tick(FIRST, clock)), &mut out);
    }
    assert!(out.up.is_empty());
    member.handle(CpfCommand::Run(tick(FIRST, 66)), &mut out);
    assert!(matches!(out.up[..], [CpfReport::Poisoned { ue: FIRST, .. }]));
}

#[test]
fn a_trial_of_a_ue_that_is_gone_has_no_effect() {
    let (mut member, trial) = member_with_a_trial();
    let mut out = CpfOutbox::default();
    member.handle(CpfCommand::Forget { ue: FIRST, term: u32::MAX }, &mut out);
    member.tried(trial.id, TrialOutcome::CrashedAfter(0), &mut out);
    assert!(out.up.is_empty());
}
