//! Several operators and brokers of which every process and link fails (`sim/src/open_run`), and the faults that it must find.
//!
//! `./x sim --open` runs more of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use whimbrel_sim::{OpenFaults, OpenPlan, OpenRun, PlantedFault};

#[test]
fn users_of_brokers_are_served_by_grants_while_every_party_fails() {
    let mut all = whimbrel_sim::OpenCounts::default();
    for seed in 0..5 {
        let mut run = OpenRun::new(seed, OpenPlan::SMALL, 2);
        println!("{run}");
        run.run();
        run.heal_and_verify();
        all.add(&run.counts());
    }
    println!("{all:?}");
    let happened = [
        all.moves,
        all.refused_ues,
        all.repeated,
        all.grants_over,
        all.brokers_lost,
        all.cpfs_lost,
        all.ctas_lost,
    ];
    assert!(happened.iter().all(|times| *times > 0), "each kind of event is in one of the runs: {all:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let counts = |seed| {
        let mut run = OpenRun::new(seed, OpenPlan::SMALL, 1);
        run.run();
        run.counts()
    };
    assert_eq!(counts(1), counts(1));
    assert_ne!(counts(1), counts(2));
}

/// The faults under which a planted one shows within minutes.
fn faults_for(planted: PlantedFault) -> OpenFaults {
    let mut faults = OpenFaults::none();
    match planted {
        PlantedFault::GrantMissingAtBackup | PlantedFault::RegistrationMissingAtBackup => {
            faults.cpf_losses = 500
        }
        PlantedFault::UsageMissingAtBackup => (faults.cpf_losses, faults.credit_micros) = (500, 125),
        PlantedFault::EntropyRepeats | PlantedFault::AnswersBeforeCommit => faults.broker_losses = 500,
        PlantedFault::RefusalNotDurable => {
            (faults.broker_losses, faults.price_caps, faults.sap.replayed) = (500, 200, 1_000);
        }
        PlantedFault::KeyLostWithPower => faults.power_losses = 500,
    }
    faults
}

#[test]
fn each_invariant_has_a_planted_fault_that_is_found() {
    for (planted, broken) in PlantedFault::ALL {
        let found = (0..4).find_map(|seed| {
            let mut run = OpenRun::with_faults(seed, OpenPlan::SMALL, 3, faults_for(planted), Some(planted));
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                run.run();
                run.heal_and_verify();
            }))
            .err()?;
            let words = panicked.downcast_ref::<String>().cloned();
            Some(
                words
                    .or_else(|| panicked.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                    .unwrap_or_default(),
            )
        });
        let words = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        assert!(words.contains(broken), "{planted:?} was found as: {words}");
    }
}

#[test]
fn nodes_are_compared_when_nothing_is_in_flight() {
    let mut run = OpenRun::with_faults(1, OpenPlan::SMALL, 1, OpenFaults::none(), None);
    assert!(run.advance_until_a_checkpoint_is_in_flight(), "the primary is ahead of its backup for a moment");
    run.verify_agreement();
}

#[test]
fn each_kind_of_fault_is_absent_from_some_runs_and_present_in_most() {
    let drawn: Vec<_> = (0..100).map(OpenFaults::draw).collect();
    let rates: [fn(&OpenFaults) -> u64; 14] = [
        |p| p.faults.lost_per_mille,
        |p| p.radio_cuts,
        |p| p.n2_cuts,
        |p| p.core_cuts,
        |p| p.sap_cuts,
        |p| p.cpf_losses,
        |p| p.cta_losses,
        |p| p.broker_losses,
        |p| p.sap.lost,
        |p| p.sap.replayed,
        |p| p.power_losses,
        |p| p.suspicions,
        |p| p.price_caps,
        |p| p.epochs,
    ];
    for (n, rate) in rates.iter().enumerate() {
        let absent = drawn.iter().filter(|p| rate(p) == 0).count();
        assert!((10..50).contains(&absent), "rate {n} is 0 in {absent} of 100 runs");
    }
    assert!(drawn.iter().all(|p| !p.broker_loss_kinds.is_empty()));
}
