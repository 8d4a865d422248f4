//! A small country, in a build without optimisation: `./x sim` runs large ones.

use std::time::Duration;

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
