//! Commands that were moved to another program.

use std::process::Command;

#[test]
fn a_command_of_another_program_is_answered_with_that_programs_name() {
    for (former, current) in [
        (&["ran", "--ues", "3"][..], "whimbrel-lab ran"),
        (&["demo", "--scenario", "open"], "whimbrel-lab demo"),
        (&["broker", "run"], "whimbrel-broker"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_whimbrel")).args(former).output().expect("it starts");
        let sentence = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{sentence}");
        assert!(sentence.lines().count() == 1 && sentence.contains(&format!("`{current}`")), "{sentence}");
    }
}
