//! Registrations at three in the morning: the radio loses, repeats and reorders, every timer expires, gNBs and the UPF
//! restart. With seeds: the same seed gives the same octets, and so does a replay from any point where a UE was idle.
//!
//! `./x sim --chaos-runs 1000` runs more of them.

use std::sync::Arc;

use whimbrel_sim::{Faults, Sim, chaos_run, default_config, heal_and_verify};

#[test]
fn every_ue_registers_after_the_worst_chaos_run() {
    for seed in 0..60 {
        println!("./x sim --chaos-runs 1 --from {seed}");
        heal_and_verify(&mut chaos_run(seed, Faults::worst()));
    }
}

#[test]
fn the_same_seed_gives_the_same_octets() {
    for seed in 0..10 {
        let digest = |net: &mut Sim| (net.recorder().digest(), net.recorder().inputs());
        let (mut a, mut b) = (chaos_run(seed, Faults::worst()), chaos_run(seed, Faults::worst()));
        assert_eq!(digest(&mut a), digest(&mut b), "seed {seed}");
        let mut other = chaos_run(seed + 1000, Faults::worst());
        assert_ne!(digest(&mut a), digest(&mut other));
    }
}

#[test] // DESIGN: replay is what makes plain code durable
fn a_ue_replays_from_every_point_where_it_was_idle() {
    let config = Arc::new(default_config());
    let mut runs = 0;
    for seed in 0..20 {
        let mut net = chaos_run(seed, Faults::worst());
        let ues: Vec<_> = net.recorder().contexts().map(|(p, _)| p).collect();
        assert!(!ues.is_empty());
        for ue in ues {
            runs += net.recorder().replay(ue, &config);
        }
    }
    assert!(runs > 1000, "{runs} inputs ran again");
}
