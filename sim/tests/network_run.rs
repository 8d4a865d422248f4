//! A medium network, in a build without optimisation: `./x sim` runs large ones.

use std::time::Duration;

use whimbrel_control::Checkpoint;
use whimbrel_sim::{NetworkPlan, NetworkRun};

#[test] // the invariants hold after every step, everyone comes back, and nothing is left over when everyone has left
fn a_medium_network_with_faults_leaves_nothing_behind() {
    for seed in 0..2 {
        println!("./x sim --seeds 1 --from {seed} --minutes 10 --size medium");
        let mut run = NetworkRun::new(seed, NetworkPlan::medium());
        run.run(Duration::from_secs(600));
        run.heal_and_verify();
        assert!(run.net.tally().procedures() > 1500, "{:?}", run.net.tally());
    }
}

#[test] // the same at CPFs of which one is lost every ten seconds, and so is the CTA, if it has a CTA replica
fn small_networks_with_lost_cpfs_and_ctas_leave_nothing_behind() {
    for replicated in [false, true] {
        let (mut lost, mut takeovers) = (0, 0);
        for seed in 0..6 {
            let how = if replicated { "--cta-replica" } else { "--region" };
            println!("./x sim --seeds 1 --from {seed} --minutes 3 --size small {how}");
            let mut run = NetworkRun::new(seed, NetworkPlan::small().with_cpfs(replicated));
            run.run(Duration::from_secs(180));
            run.heal_and_verify();
            let counts = run.net.cta().replication_counters();
            assert_eq!(counts.diverged, 0);
            (lost, takeovers) = (lost + counts.cpfs_lost, takeovers + run.net.takeovers());
        }
        assert!(lost > 50 && (takeovers > 50) == replicated, "{lost} CPFs, {takeovers} CTAs");
    }
}

#[test] // DESIGN: replay is what makes plain code durable; what a replica has is octets
fn every_ue_replays_from_the_octets_of_each_idle_point() {
    let mut run = NetworkRun::new(5, NetworkPlan::medium());
    run.net.recorder().on = true;
    run.run(Duration::from_secs(240));
    let config = run.net.config();
    let ues: Vec<_> = run.net.recorder().contexts().map(|(id, _)| id).collect();
    let runs: usize = ues.iter().map(|id| run.net.recorder().replay(*id, &config)).sum();
    assert!(ues.len() > 50 && runs > 10_000, "{} UEs, {runs} inputs", ues.len());
}

#[test] // a log under 2 KB per active UE; and so the state of one that is registered and has a session
fn logs_between_rests_and_states_are_small() {
    let mut run = NetworkRun::new(7, NetworkPlan::medium()); // one whose core does not restart near the end
    run.net.recorder().on = true;
    run.run(Duration::from_secs(400));
    let states = run.net.cta().contexts().filter(|p| p.amf.registered && p.sessions.len() == 1);
    let states: Vec<usize> = states.filter_map(|p| Some(Checkpoint::of(p)?.octets().len())).collect();
    let mut logs = Vec::new();
    for (_, log) in run.net.recorder().contexts() {
        let mut octets = 0;
        for recorded in log {
            octets += recorded.envelope.to_flat().octets().len();
            if recorded.idle {
                logs.push(octets);
                octets = 0;
            }
        }
    }
    logs.sort_unstable();
    let median = logs[logs.len() / 2];
    let longest = (logs[logs.len() - 1], states.iter().max().copied().unwrap_or_default());
    println!(
        "octets: {} logs, median {median}, longest {}; longest state {}",
        logs.len(),
        longest.0,
        longest.1
    );
    assert!(logs.len() > 500 && states.len() > 10);
    assert!(median < 1024 && longest.1 < 1024, "{median} {}", longest.1);
}
