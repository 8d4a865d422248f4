//! A small country, in a build without optimisation: `./x sim` runs large ones.

use std::time::Duration;

use whimbrel_sim::{Country, Plan};

#[test] // the invariants hold after every step, everyone comes back, and nothing is left over when everyone has left
fn nothing_is_left_of_a_bad_week() {
    for seed in 0..3 {
        println!("./x sim --seeds 1 --from {seed} --county");
        let mut country = Country::new(seed, Plan::county());
        country.run(Duration::from_secs(900));
        country.evening();
        println!("{:?}", country.net.tally());
        assert!(country.net.tally().procedures() > 2000, "{:?}", country.net.tally());
    }
}
