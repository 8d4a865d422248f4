//! The simulated scenarios, in one program: each links the whole core, and sixty programs took five gigabytes.

mod common;

mod access;
mod areas;
mod authentication;
mod bad_n2;
mod bad_nas;
mod canary;
mod causes;
mod chaos;
mod core_restart;
mod crowd;
mod cta_replica;
mod deltas;
mod draining;
mod emergency;
mod failover;
mod fast_path;
mod fastwire;
mod faults;
mod faulty_cpf;
mod flows;
mod gnb_identity;
mod handover_between_amfs;
mod handover_collisions;
mod handover_waits;
mod key_changes;
mod late_answers;
mod location;
mod losses;
mod losses_between_amfs;
mod lower_layer;
mod mobility;
mod modification;
mod moving;
mod moving_between_amfs;
mod moving_between_cpfs;
mod n2;
mod n2_handover;
mod network_run;
mod not_ip;
mod open;
mod open_home;
mod open_run;
mod out_of_state;
mod outdated;
mod packets_in_handover;
mod paging;
mod partitions;
mod poison;
mod prediction;
mod reachability;
mod regions;
mod registration;
mod release_delay;
mod replicas_at_peer_amfs;
mod resting;
mod rrc_inactive;
mod scas_amf;
mod scas_smf;
mod security;
mod session_terms;
mod session_types;
mod sessions;
mod several_upfs;
mod slice_cpfs;
mod timers;
mod treatment;
mod unit;
mod upf;
mod upf_change;
mod upgrade;
mod user_inactivity;
mod veil;
mod xn_handover;

/// A scenario that is not named above would never run.
#[test]
fn every_file_is_named_here() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let (name, kind) = (file.file_stem().unwrap().to_str().unwrap(), file.extension());
        if name != "main" && kind.is_some_and(|kind| kind == "rs") {
            assert!(
                include_str!("main.rs").contains(&format!("\nmod {name};\n")),
                "tests/main.rs does not name {name}"
            );
            files += 1;
        }
    }
    assert!(files > 50, "{files} files found");
}
