//! The program as it is called. Since this asks for it, `cargo test` builds it: `./x test` runs it, with what the other tests are built of.

use std::process::Command;

#[test]
fn a_command_that_does_not_exist_is_answered_with_the_usage() {
    let wrong = Command::new(env!("CARGO_BIN_EXE_whimbrel-live")).arg("n5").output().expect("it runs");
    let errors = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{errors}");
    assert!(errors.contains("named"), "{errors}");
}
