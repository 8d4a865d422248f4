//! Detects that the previous run of the program was killed, and what it left.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use whimbrel_sctp_io::{Former, Path as SctpPath};

/// A file beside the store that exists while the program runs: a start that finds it knows that its predecessor was killed.
/// Dropping this removes the file.
#[derive(Debug)]
pub struct RunMark(PathBuf);

impl RunMark {
    /// Writes the file, and returns the SCTP associations that a former one names. Errors: the file cannot be written.
    pub fn set(store: &Path) -> std::io::Result<(Self, Option<Vec<Former>>)> {
        let file = store.with_extension("running");
        let left = fs::read_to_string(&file).ok().map(|text| text.lines().filter_map(read_former).collect());
        // Only its owner may read it: an association's verification tag is enough to end it.
        let _ = fs::remove_file(&file);
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        Ok((Self(file), left))
    }

    /// Where [`remember`] keeps associations.
    pub fn file(&self) -> &Path {
        &self.0
    }
}

/// Stores these SCTP associations for the next start, should this program be killed. If they cannot be written, gNBs learn of the kill
/// with the next packet that they send.
pub fn remember(file: &Path, associations: &[Former]) {
    let mut text = String::new();
    for Former { path, local_port, peer_port, peer_tag } in associations {
        let SctpPath { local, remote, udp_port } = path;
        let _ = writeln!(text, "{local} {remote} {udp_port} {local_port} {peer_port} {peer_tag}");
    }
    let written = fs::OpenOptions::new().write(true).truncate(true).open(file);
    let _ = written.and_then(|mut f| f.write_all(text.as_bytes()));
}

/// Reads one line of [`remember`]; `None` if a kill cut it off.
fn read_former(line: &str) -> Option<Former> {
    let mut words = line.split(' ');
    let path = SctpPath {
        local: words.next()?.parse().ok()?,
        remote: words.next()?.parse().ok()?,
        udp_port: words.next()?.parse().ok()?,
    };
    let (local_port, peer_port) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Former { path, local_port, peer_port, peer_tag: words.next()?.parse().ok()? })
}

impl Drop for RunMark {
    fn drop(&mut self) {
        // A file that stays makes the next start log a warning too many.
        let _ = fs::remove_file(&self.0);
    }
}

/// The log line about a predecessor that was killed.
pub fn warning(subscribers: u64) -> String {
    format!(
        "the previous run of this program was killed: its registrations and sessions are lost, unless `store.keep_ues` is always, so gNBs \
         connect and UEs register again; its {subscribers} subscribers with their keys and sequence numbers are kept; its devices and routes on this \
         host are restored"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_mark_that_is_left_behind_reports_a_kill() {
        let folder = std::env::temp_dir().join(format!("whimbrel-mark-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let store = folder.join("whimbrel.db");
        let (mark, left) = RunMark::set(&store).unwrap();
        assert_eq!(left, None);
        let former = |peer_tag| Former {
            path: SctpPath {
                local: [10, 0, 0, 1].into(),
                remote: "fd00::7".parse().unwrap(),
                udp_port: 9899,
            },
            local_port: 38412,
            peer_port: 61000,
            peer_tag,
        };
        remember(mark.file(), &[former(1), former(2), former(3)]);
        remember(mark.file(), &[former(7), former(u32::MAX)]);
        std::mem::forget(mark); // as a kill does
        let (mark, left) = RunMark::set(&store).unwrap();
        assert_eq!(left, Some(vec![former(7), former(u32::MAX)]));
        drop(mark);
        assert_eq!(RunMark::set(&store).unwrap().1, None);
        assert_eq!(read_former("10.0.0.1 fd00::7 9899 384"), None);
        fs::remove_dir_all(folder).unwrap();
        assert!(RunMark::set(&store).is_err());
    }
}
