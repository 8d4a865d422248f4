//! Sites of homes: UEs move within a site and between sites while a home is added and another one is drained and removed.

use crate::common::*;
use whimbrel_sim::{Activity, SiteLink, SitesFault, SitesMeter, SitesPlan, SitesRun};

fn run(ues: u32, fault: Option<SitesFault>) -> SitesRun {
    let plan = SitesPlan {
        sites: 2,
        homes: 2,
        districts: 1,
        ues,
        at_rest: 0,
        replicas: true,
        arrival: SECOND * 20,
        measured: SECOND * 120,
        pause: SECOND * 40,
        seed: 1,
        fault,
    };
    let mut run = SitesRun::new(plan, SitesMeter { nanos: || 0, octets: || 0, reference: || {} });
    run.live();
    run
}

#[test] // TS 23.501 §5.19, §5.21.2.2
fn ues_of_two_sites_notice_no_home_that_is_added_or_removed() {
    let mut run = run(300, None);
    assert_eq!(run.verdict(), Vec::<String>::new());
    let registered = run.registered();
    assert_eq!((registered.iter().sum::<usize>(), registered[run.home_to_remove()]), (300, 0));
    assert!(registered[run.home_to_add()] > 0, "new UEs come to a home that is added: {registered:?}");
    let figures = run.figures();
    for activity in Activity::PROCEDURES {
        let possible = activity != Activity::MobilityWithinSite; // a site of one district is one tracking area
        assert_eq!(figures.count(activity) > 0, possible, "{activity:?}");
    }
    assert!(figures.messages(Activity::HandoverBetweenSites, SiteLink::N14BetweenSites) >= 4.0);
    assert!(figures.messages_in_all(Activity::Replication, SiteLink::N14WithinSite) > 300);
    assert_eq!(figures.messages_in_all(Activity::Replication, SiteLink::N14BetweenSites), 0);
}

#[test]
fn a_planted_fault_breaks_a_promise() {
    let verdict = run(100, Some(SitesFault::HomeForgets)).verdict();
    assert!(verdict.iter().any(|line| line.contains("has lost its session")), "{verdict:?}");
}
