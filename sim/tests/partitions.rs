//! Links between processes of the core that pass nothing for a while: CTA and CPF, CPF and CPF, CTA and CTA replica. A short one delays procedures, a
//! long one ends in a takeover, and no UE loses its registration.

use std::time::Duration;

use crate::common::day::{Stage, live, live_patiently, of, stage};
use crate::common::*;
use whimbrel_resilience::replication::CpfId;
use whimbrel_sim::{ChaosRun, CpfCut, Cut, Deployment, FaultProfile, Sim, Survivor, heal_and_verify};

/// Shorter than the time in which a CPF, or a CTA, has to answer.
const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_millis(2500);

/// Three CPFs, two replicas per UE, and a CTA replica.
fn replicated() -> Stage {
    of(Sim::builder(2).cpfs(3, 2).cta_replica().build(), 1)
}

/// Messages that CPFs take, and inputs that the CTA takes, while a UE runs all procedures.
fn span(begin: fn() -> Stage) -> (u64, u64) {
    let mut stage = begin();
    live(&mut stage, &|| "no partition".into());
    (stage.net.links_taken(), stage.net.inputs_taken())
}

#[test]
fn a_short_cut_of_a_cpf_at_any_message_only_delays_procedures() {
    let (messages, _) = span(|| stage(2, 1));
    for (message, what) in (1..=messages).zip(CpfCut::ALL.into_iter().cycle()) {
        let mut stage = stage(2, 1);
        stage.net.cut_cpfs_at(&[(message, what, SHORT)]);
        live(&mut stage, &|| format!("{what:?} at message {message}"));
        let counts = stage.net.cta().replication_counters();
        assert_eq!((counts.cpfs_lost, counts.lost, counts.diverged), (0, 0, 0), "{what:?} at {message}");
    }
}

#[test]
fn a_cpf_that_is_cut_off_for_long_is_excluded_and_its_ues_are_taken_over() {
    let (messages, _) = span(|| stage(2, 1));
    let mut taken_over = 0;
    for message in (1..=messages).step_by(2) {
        let what = if message % 4 == 1 { CpfCut::FromCta } else { CpfCut::FromAll };
        let mut stage = stage(2, 1);
        stage.net.cut_cpfs_at(&[(message, what, LONG)]);
        live_patiently(&mut stage, SECOND * 5, &|| format!("{what:?} at message {message}"));
        let counts = stage.net.cta().replication_counters();
        assert_eq!((counts.cpfs_lost, counts.lost, counts.diverged), (1, 0, 0), "{what:?} at {message}");
        taken_over += counts.taken_over;
    }
    assert!(taken_over > 10, "{taken_over} takeovers");
}

#[test]
fn a_cpf_is_not_excluded_when_no_other_one_answers() {
    let mut stage = stage(3, 1);
    for cpf in 1..=3 {
        stage.net.cut(Cut::CtaCpf(CpfId(cpf)), LONG);
    }
    live_patiently(&mut stage, SECOND * 5, &|| "all are cut off".into());
    assert_eq!((stage.net.cta().replication_counters().cpfs_lost, stage.net.cpfs()), (0, 3));
}

#[test]
fn a_short_cut_of_the_pair_only_delays_procedures() {
    let (_, inputs) = span(replicated);
    for input in (1..=inputs).step_by(4) {
        let mut stage = replicated();
        stage.net.cut_cta_at(input, Survivor::Replica, SHORT);
        live(&mut stage, &|| format!("at input {input}"));
        assert_eq!(
            (stage.net.takeovers(), stage.net.cta().replication_counters().lost),
            (0, 0),
            "at input {input}"
        );
    }
}

#[test]
fn after_a_long_cut_of_the_pair_one_of_the_two_goes_on() {
    let (first, last) = (replicated().net.inputs_taken() + 1, span(replicated).1);
    for survivor in Survivor::ALL {
        for input in (first..=last).step_by(6) {
            let mut stage = replicated();
            stage.net.cut_cta_at(input, survivor, LONG);
            live_patiently(&mut stage, SECOND * 5, &|| format!("{survivor:?} after input {input}"));
            let takeovers = u64::from(survivor == Survivor::Replica);
            let counts = stage.net.cta().replication_counters();
            assert_eq!(
                (stage.net.takeovers(), counts.lost),
                (takeovers, 0),
                "{survivor:?} after input {input}"
            );
            stage.net.add_cta_replica();
            stage.net.advance(SECOND);
            assert!(stage.net.snapshot().is_none(), "{survivor:?}: it has a CTA replica again");
        }
    }
}

#[test]
fn every_ue_registers_after_chaos_runs_with_partitions() {
    let mut partitioned = 0;
    for seed in 0..20 {
        let deployment =
            if seed % 2 == 0 { Deployment::Region(2) } else { Deployment::Replicated(1 + seed as usize % 3) };
        let run = ChaosRun::new(seed, deployment);
        println!("{run}");
        partitioned += u64::from(run.profile.partitions > 0);
        let mut net = run.run();
        heal_and_verify(&mut net);
        let counts = net.cta().replication_counters();
        assert_eq!((counts.diverged, counts.checkpoint_acks_refused), (0, 0));
        let lost = net.lost_ues();
        assert_eq!((lost.unexplained, lost.lost_all_holders), (0, counts.lost));
    }
    assert!((5..20).contains(&partitioned), "{partitioned} runs have partitions, and some have none");
}

#[test]
fn partitions_alone_cost_no_ue_its_registration() {
    for seed in 0..4 {
        let quiet = FaultProfile {
            faults: Default::default(),
            gnb_restarts: 0,
            gnb_resets: 0,
            upf_restarts: 0,
            upf_outages: 0,
            cpf_losses: 0,
            cta_losses: 0,
            partitions: 800,
            partition_max: LONG,
            ..FaultProfile::worst()
        };
        let run = ChaosRun { profile: quiet, ..ChaosRun::new(seed, Deployment::Replicated(2)) };
        println!("{run}");
        let mut net = run.run();
        heal_and_verify(&mut net);
        assert_eq!(
            (net.cta().replication_counters().lost, net.cta().replication_counters().diverged),
            (0, 0),
            "seed {seed}"
        );
    }
}
