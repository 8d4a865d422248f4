//! `whimbrel-broker` as its operator starts it.

mod settle;

use std::process::{Command, Output};

fn broker(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_whimbrel-broker")).args(arguments).output().expect("the program starts")
}

#[test]
fn a_broker_that_init_has_made_has_a_database_of_users_and_lacks_its_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().display().to_string();
    let made = broker(&["init", "--domain", "broker.example", &at]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = folder.path().join("broker.yaml").display().to_string();
    let users = broker(&["user", "list", "-c", &file]);
    assert!(users.status.success(), "{}", String::from_utf8_lossy(&users.stderr));
    let checked = broker(&["check", "-c", &file]);
    let sentence = String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success() && sentence.contains("broker.cert"), "{sentence}");
}
