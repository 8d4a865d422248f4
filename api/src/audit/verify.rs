//! The chain of the audit log: each line carries the hash of the line before.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::{HASH_DIGITS, LINE_OCTETS_MAX, file_of, hash_of, set_aside};

/// A log whose chain is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedLog {
    /// Lines that are chained.
    pub lines: u64,
    /// Lines before them, of a release that did not chain.
    pub unchained: u64,
    /// True if the chain begins with the log's first line; false if older files were deleted.
    pub is_from_the_beginning: bool,
    /// Hash of the last line: a copy of the log elsewhere has the same, unless lines at the end were removed.
    pub last: String,
}

/// Verifies the chain of a store's audit log. Errors: one sentence that names the line.
pub fn verify(store: &Path) -> Result<VerifiedLog, String> {
    let file = file_of(store);
    let cannot = |path: &Path, e: std::io::Error| format!("{} cannot be read: {e}", path.display());
    let aside = set_aside(&file).map_err(|e| cannot(&file, e))?;
    let all: Vec<PathBuf> = aside.into_iter().map(|(_, path)| path).chain([file.clone()]).collect();
    let mut log =
        VerifiedLog { lines: 0, unchained: 0, is_from_the_beginning: true, last: "0".repeat(HASH_DIGITS) };
    for path in all {
        let opened = match whimbrel_files::open(&path) {
            // None was written since the last one was set aside.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && path == file => continue,
            opened => opened.map_err(|e| cannot(&path, e))?,
        };
        let mut reader = BufReader::new(opened);
        for number in 1u64.. {
            let mut line = Vec::new();
            let mut bounded = std::io::Read::take(&mut reader, LINE_OCTETS_MAX as u64);
            if bounded.read_until(b'\n', &mut line).map_err(|e| cannot(&path, e))? == 0 {
                break;
            }
            log.take(line.strip_suffix(b"\n").unwrap_or(&line))
                .map_err(|what| format!("{}:{number}: {what}", path.display()))?;
        }
    }
    Ok(log)
}

impl VerifiedLog {
    /// Takes the next line. Errors: what is wrong with it.
    fn take(&mut self, line: &[u8]) -> Result<(), &'static str> {
        const FORMER: &[u8] = b" former=";
        let at = line.len().checked_sub(FORMER.len() + HASH_DIGITS);
        let former = at.and_then(|at| line.get(at..)?.strip_prefix(FORMER));
        match former {
            None if self.lines == 0 => self.unchained += 1,
            None => {
                return Err(
                    "this line has no hash of the line before: it was written or changed outside of the core",
                );
            }
            Some(former) => {
                let is_first = self.lines == 0 && self.unchained == 0;
                if is_first && former != self.last.as_bytes() {
                    self.is_from_the_beginning = false;
                } else if former != self.last.as_bytes() {
                    return Err(
                        "this line does not follow the line before: one of the two was changed, or lines between them were removed or added",
                    );
                }
                self.lines += 1;
            }
        }
        self.last = hash_of(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{AuditedAccess, aside, record};
    use super::*;
    use whimbrel_node::config::Audit;

    fn written(count: usize) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("s.db");
        for i in 0..count {
            let request = format!("request {i}");
            let access = AuditedAccess {
                caller: "uid=0",
                user: None,
                request: &request,
                subscriber: None,
                outcome: "200",
            };
            record(&store, &Audit::default(), None, &access);
        }
        (folder, store)
    }

    #[test] // TS 33.117 §4.2.3.6.3: integrity
    fn a_line_that_was_changed_removed_or_inserted_is_found() {
        let (_folder, store) = written(5);
        let file = file_of(&store);
        let whole = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        assert_eq!(
            verify(&store).unwrap(),
            VerifiedLog {
                lines: 5,
                unchained: 0,
                is_from_the_beginning: true,
                last: hash_of(lines[4].as_bytes())
            }
        );
        let joined = |lines: &[&str]| lines.join("\n") + "\n";
        let changed = whole.replace("request 1", "request 7");
        let removed = joined(&[lines[0], lines[1], lines[3], lines[4]]);
        let inserted = joined(&[lines[0], lines[0], lines[1]]);
        let foreign = joined(&[lines[0], "2026-01-01T00:00:00.000Z caller=uid=0 request=\"x\"", lines[1]]);
        for (text, line) in [(changed, 3), (removed, 3), (inserted, 2), (foreign, 2)] {
            fs::write(&file, text).unwrap();
            let wrong = verify(&store).unwrap_err();
            assert!(wrong.contains(&format!(".audit:{line}: ")), "{wrong}");
        }
    }

    #[test]
    fn the_chain_goes_on_over_files_and_from_lines_of_a_former_release() {
        let (_folder, store) = written(3);
        let file = file_of(&store);
        fs::rename(&file, aside(&file, 1)).unwrap();
        for (request, count) in [("a", 4), ("b", 5)] {
            let access =
                AuditedAccess { caller: "uid=0", user: None, request, subscriber: None, outcome: "200" };
            record(&store, &Audit::default(), None, &access);
            assert_eq!(verify(&store).unwrap().lines, count);
        }
        fs::remove_file(aside(&file, 1)).unwrap();
        let rest = verify(&store).unwrap();
        assert!(rest.lines == 2 && !rest.is_from_the_beginning, "{rest:?}");
        fs::write(&file, "2026-01-01T00:00:00.000Z caller=uid=0 request=\"x\" subscriber=- outcome=200\n")
            .unwrap();
        let access =
            AuditedAccess { caller: "uid=0", user: None, request: "c", subscriber: None, outcome: "200" };
        record(&store, &Audit::default(), None, &access);
        // That line is a year old in some years: it may be in a file that was set aside.
        let log = verify(&store).unwrap();
        assert_eq!((log.lines, log.unchained), (1, 1), "{log:?}");
    }

    #[test]
    fn a_line_whose_end_a_crash_has_cut_off_is_found_and_the_next_one_is_a_line_of_its_own() {
        let (_folder, store) = written(2);
        let file = file_of(&store);
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - 20]).unwrap();
        let access =
            AuditedAccess { caller: "uid=0", user: None, request: "c", subscriber: None, outcome: "200" };
        record(&store, &Audit::default(), None, &access);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 3);
        assert!(verify(&store).unwrap_err().contains(".audit:2: "));
    }
}
