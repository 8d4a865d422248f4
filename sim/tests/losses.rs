//! All procedures, each with the loss of a CPF and of the CTA at every message and in every way: each comes to what it
//! should, no UE registers again, and all agree. `./x sim --schedules N` has them in any order, with two losses, and between regions.

use std::sync::LazyLock;

use whimbrel_sim::{LostNode, SCHEDULES_PER_NETWORK, ScheduleReport, Schedules};

/// The lengths of all procedures, which are measured once.
static SCHEDULES: LazyLock<Schedules> = LazyLock::new(Schedules::default);

#[test] // Neutrino §4.2.5, scenarios 1 and 2
fn a_cpf_lost_at_every_message_of_every_procedure() {
    let (runs, lost) = SCHEDULES.at_each_boundary(LostNode::Cpf);
    assert!(runs > 2000 && lost * 10 > runs * 9, "{lost} losses in {runs} runs");
}

#[test] // the same where the CPF that took over is lost as well, at every message that follows
fn two_cpfs_lost_one_after_the_other() {
    let lost = ["service request by the UE", "EAP-AKA'"].map(|p| SCHEDULES.at_each_two_boundaries(p));
    assert!(lost.iter().all(|&times| times > 100), "{lost:?}");
}

#[test] // two CTAs hold each other's log
fn a_cta_lost_at_every_input_of_every_procedure() {
    let (runs, lost) = SCHEDULES.at_each_boundary(LostNode::Cta);
    assert!(runs > 3000 && lost * 10 > runs * 9, "{lost} losses in {runs} runs");
}

/// Schedules that have failed, and how.
const FAILED: &[(u64, &str)] = &[
    (7536, "a state that had overtaken the word to forget its UE was forgotten"),
    (
        1_229_546,
        "HANDOVER REQUEST twice: the second context stayed at the gNB when the handover was cancelled",
    ),
    (1_277_187, "the same when another handover took its place"),
    (1_649_327, "a word to serve a UE was heeded when another served it already"),
    (
        1_812_613,
        "a UE left while its connection was released, and the simulation waited for the core to hear of it",
    ),
    (2_058_296, "the same"),
    (2_204_145, "HANDOVER REQUEST twice"),
    (2_495_629, "a procedure began while a session was asked for, still, that one before had lost"),
    (
        20_028_553,
        "a UPF asked one of a set of SMFs for an association that another one had, until it came back and ended its sessions",
    ),
    (80_020_399, "a procedure began while a request of a session was repeated that had crossed a release"),
    (
        310_049_054,
        "a UPF did not hear the CTA that had taken its place back within 200 ms, and forgot the other one",
    ),
    (310_053_233, "the same"),
    (310_098_391, "the same"),
];

#[test]
fn schedules_that_have_failed() {
    for &(schedule, how) in FAILED {
        let ran = SCHEDULES.history(schedule, schedule, &mut ScheduleReport::default());
        assert_eq!(ran, Ok(()), "schedule {schedule}: {how}");
    }
}

#[test] // a failing one is run again by its number alone
fn the_same_schedules_are_run_again() {
    let run = |from: u64| {
        let mut report = ScheduleReport::default();
        let ran = SCHEDULES.history(from, 3 * SCHEDULES_PER_NETWORK - 1, &mut report);
        assert_eq!(ran, Ok(()));
        report
    };
    let (whole, rest) = (run(2 * SCHEDULES_PER_NETWORK), run(2 * SCHEDULES_PER_NETWORK + 10));
    assert_eq!((whole.schedules, rest.schedules), (SCHEDULES_PER_NETWORK, SCHEDULES_PER_NETWORK - 10));
    assert_eq!((whole.losses, whole.at), (rest.losses, rest.at));
}
