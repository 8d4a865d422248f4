//! CPFs of a region that are replaced by others which run other code, whatever UEs are at: no UE notices, and no log is run by
//! both.

use crate::common::day::{Stage, live, stage};
use whimbrel_resilience::CodeVersion;
use whimbrel_sim::CpfLoss;

const NEW: CodeVersion = CodeVersion(2);

/// Messages of a day of a UE in which nothing happens.
fn messages() -> u64 {
    let mut stage = stage(2, 1);
    live(&mut stage, &|| "no upgrade".into());
    stage.net.links_taken()
}

/// Runs all procedures, and gives how many UEs could not be taken over.
fn lost(mut stage: Stage, what: &str) -> u64 {
    live(&mut stage, &|| what.into());
    let counts = stage.net.cta().replication_counters();
    assert_eq!((counts.diverged, counts.unreadable, counts.fenced), (0, 0, 0), "{what}");
    assert!(counts.cpfs_lost >= 3, "{what}: those of the former version are gone");
    counts.lost
}

#[test]
fn an_upgrade_at_every_message_of_every_procedure() {
    for message in 1..=messages() {
        let mut stage = stage(2, 1);
        stage.net.upgrade_cpfs_at(message, NEW);
        let what = format!("upgrade at message {message}");
        assert_eq!(lost(stage, &what), 0, "{what}");
    }
}

#[test] // a CPF that takes over during a procedure runs the code version that began it
fn a_cpf_that_is_lost_while_others_come() {
    for message in (1..=messages()).step_by(3) {
        for (after, how) in (1..6).zip(CpfLoss::ALL.into_iter().cycle()) {
            let mut stage = stage(2, 1);
            stage.net.upgrade_cpfs_at(message, NEW);
            stage.net.lose_cpf_at(message + after, how);
            let what = format!("upgrade at message {message}, {how:?} {after} later");
            assert_eq!(lost(stage, &what), 0, "{what}");
        }
    }
}
