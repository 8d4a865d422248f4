//! A small country, in a build without optimisation: `./x sim` runs large ones.

use std::time::Duration;

use whimbrel_control::Checkpoint;
use whimbrel_sim::{Country, Plan};

#[test] // the invariants hold after every step, everyone comes back, and nothing is left over when everyone has left
fn nothing_is_left_of_a_bad_week() {
    for seed in 0..2 {
        println!("./x sim --seeds 1 --from {seed} --minutes 10 --county");
        let mut country = Country::new(seed, Plan::county());
        country.run(Duration::from_secs(600));
        country.evening();
        assert!(country.net.tally().procedures() > 1500, "{:?}", country.net.tally());
    }
}

#[test] // the same at CPFs of which one is lost every ten seconds, and so is the CTA, if it has a CTA replica
fn nothing_is_left_of_bad_minutes_full_of_losses() {
    for replicated in [false, true] {
        let (mut lost, mut takeovers) = (0, 0);
        for seed in 0..6 {
            let how = if replicated { "--cta-replica" } else { "--region" };
            println!("./x sim --seeds 1 --from {seed} --minutes 3 --village {how}");
            let mut village = Country::new(seed, Plan::village().governed(replicated));
            village.run(Duration::from_secs(180));
            village.evening();
            let told = village.net.cta().replication_counters();
            assert_eq!(told.diverged, 0);
            (lost, takeovers) = (lost + told.cpfs_lost, takeovers + village.net.takeovers());
        }
        assert!(lost > 50 && (takeovers > 50) == replicated, "{lost} CPFs, {takeovers} CTAs");
    }
}

#[test] // DESIGN: replay is what makes plain code durable; what a replica has is octets
fn every_ue_of_a_county_goes_on_from_the_octets_of_each_rest() {
    let mut county = Country::new(5, Plan::county());
    county.net.recorder().on = true;
    county.run(Duration::from_secs(240));
    let config = county.net.config();
    let ues: Vec<_> = county.net.recorder().contexts().map(|(id, _)| id).collect();
    let runs: usize = ues.iter().map(|id| county.net.recorder().replay(*id, &config)).sum();
    assert!(ues.len() > 50 && runs > 10_000, "{} UEs, {runs} inputs", ues.len());
}

#[test] // a log under 2 KB per active UE; and so the state of one that is registered and has a session
fn logs_between_rests_and_states_are_small() {
    let mut county = Country::new(7, Plan::county()); // one whose core does not restart near the end
    county.net.recorder().on = true;
    county.run(Duration::from_secs(400));
    let states = county.net.cta().contexts().filter(|p| p.amf.registered && p.sessions.len() == 1);
    let states: Vec<usize> = states.filter_map(|p| Some(Checkpoint::of(p)?.octets().len())).collect();
    let mut logs = Vec::new();
    for (_, log) in county.net.recorder().contexts() {
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
