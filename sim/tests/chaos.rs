//! Chaos runs of a single CTA: the radio loses, repeats and reorders messages, every timer expires, gNBs and the UPF restart. The same seed
//! gives the same octets, and so does a replay from any point at which a UE was idle.
//!
//! `./x sim --chaos-runs 1000` runs more of them.

use std::sync::Arc;

use whimbrel_sim::{ChaosRun, Deployment, FaultProfile, Sim, default_config, heal_and_verify};

fn worst(seed: u64) -> Sim {
    ChaosRun::worst(seed, Deployment::Single).run()
}

#[test]
fn every_ue_registers_after_a_chaos_run() {
    for seed in 0..20 {
        for run in [ChaosRun::worst(seed, Deployment::Single), ChaosRun::new(seed, Deployment::Single)] {
            println!("{run}");
            heal_and_verify(&mut run.run());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_octets() {
    for seed in 0..10 {
        let digest = |net: &mut Sim| (net.recorder().digest(), net.recorder().inputs());
        let (mut a, mut b) = (worst(seed), worst(seed));
        assert_eq!(digest(&mut a), digest(&mut b), "seed {seed}");
        let mut other = worst(seed + 1000);
        assert_ne!(digest(&mut a), digest(&mut other));
    }
}

#[test] // DESIGN: replay is what makes plain code durable
fn a_ue_replays_from_every_point_where_it_was_idle() {
    let config = Arc::new(default_config());
    let mut runs = 0;
    for seed in 0..20 {
        let mut net = worst(seed);
        let ues: Vec<_> = net.recorder().contexts().map(|(p, _)| p).collect();
        assert!(!ues.is_empty());
        for ue in ues {
            runs += net.recorder().replay(ue, &config);
        }
    }
    assert!(runs > 1000, "{runs} inputs ran again");
}

#[test]
fn each_kind_of_fault_is_in_some_runs_and_not_in_others() {
    let profiles: Vec<FaultProfile> = (0..100).map(FaultProfile::draw).collect();
    let rates: [fn(&FaultProfile) -> u64; 14] = [
        |p| p.faults.lost_per_mille,
        |p| p.faults.repeated_per_mille,
        |p| p.faults.reordered_per_mille,
        |p| p.gnb_restarts,
        |p| p.gnb_resets,
        |p| p.upf_outages,
        |p| p.cpf_losses,
        |p| p.cta_losses,
        |p| p.partitions,
        |p| p.lossy_links,
        |p| p.core_restarts,
        |p| p.core_kills,
        |p| p.upf_deaths,
        |p| p.manager_losses,
    ];
    for (n, rate) in rates.iter().enumerate() {
        let absent = profiles.iter().filter(|p| rate(p) == 0).count();
        assert!((10..90).contains(&absent), "rate {n} is 0 in {absent} of 100 runs");
    }
    assert_eq!(FaultProfile::draw(7), FaultProfile::draw(7));
    assert!(profiles.iter().all(|p| !p.cpf_loss_kinds.is_empty() && !p.cta_loss_kinds.is_empty()));
}
