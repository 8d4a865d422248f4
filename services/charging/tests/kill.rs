//! A process that is killed at any moment: what it has confirmed is on the disk, and what it has not comes again and counts once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{create, handle, open, supi, update, used, with_credit};

/// The folder of the file, in the environment of the process that is killed.
const FOLDER: &str = "WHIMBREL_CHARGING_KILLED";

/// The process that is killed: it charges one octet after the other, and says so.
#[test]
fn charges_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut chf = open(&folder);
    let first = next(&folder);
    for number in first.. {
        handle(&mut chf, 1, &update("a", number, used(number, 0, 1))).unwrap();
        println!("\ncharged {number}");
    }
}

/// The number of the next container, as the consumer has it.
fn next(folder: &Path) -> u32 {
    std::fs::read_to_string(folder.join("next")).unwrap().parse().unwrap()
}

#[test]
fn a_kill_loses_nothing_and_counts_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut chf = with_credit(folder.path(), 1_000_000);
    handle(&mut chf, 0, &create(supi(1), 7, "a")).unwrap();
    drop(chf);
    let mut confirmed = 0;
    for round in 0..6_u32 {
        std::fs::write(folder.path().join("next"), (confirmed + 1).to_string()).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::charges_until_it_is_killed", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let charged = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("charged ").and_then(|number| number.parse::<u32>().ok()));
        let stop_at = confirmed + 5 + 7 * round;
        for number in charged {
            confirmed = number;
            // Lines that it had written when it was killed are read as well.
            if number == stop_at {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let mut chf = open(folder.path());
        assert_eq!(chf.verify().unwrap(), Ok(()));
        let used_octets = chf.account(supi(1)).unwrap().unwrap().used_octets;
        assert!(
            [confirmed, confirmed + 1].contains(&(used_octets as u32)),
            "{confirmed} octets were confirmed, and {used_octets} are charged"
        );
        // The request without an answer comes again.
        confirmed += 1;
        handle(&mut chf, 2, &update("a", confirmed, used(confirmed, 0, 1))).unwrap();
        assert_eq!(chf.account(supi(1)).unwrap().unwrap().used_octets, u64::from(confirmed));
    }
}
