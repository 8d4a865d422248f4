//! The operator's orders to drain UPFs, in a file beside the store, so that the core goes on with them when it starts again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tracing::warn;
use whimbrel_ids::Instant;

/// More than the lines of all UPFs of a core.
const OCTETS_MAX: u64 = 65_536;

/// By the name of each drained UPF, when its last sessions are released.
pub(super) type Drained = BTreeMap<String, Instant>;

/// The file, with the ending `.drained`.
pub(super) struct DrainOrders {
    path: PathBuf,
    kept: Drained,
}

impl DrainOrders {
    /// The file beside this store, with the orders of the former start.
    pub(super) fn open(store: &Path) -> Self {
        let path = store.with_extension("drained");
        let kept = match whimbrel_files::read_text(&path, OCTETS_MAX) {
            Ok(text) => text.lines().filter_map(read_line).collect(),
            Err(e) if e.kind() == ErrorKind::NotFound => Drained::new(),
            Err(e) => {
                warn!("the UPFs that were drained are not known, as {} cannot be read: {e}", path.display());
                Drained::new()
            }
        };
        Self { path, kept }
    }

    /// The orders that the file has.
    pub(super) fn kept(&self) -> &Drained {
        &self.kept
    }

    /// Keeps the orders that stand, durably.
    pub(super) fn keep(&mut self, standing: Drained) {
        if standing == self.kept {
            return;
        }
        if let Err(e) = self.write(&standing) {
            warn!(
                "UPFs would not be drained after a restart, as {} cannot be written: {e}",
                self.path.display()
            );
        }
        self.kept = standing;
    }

    fn write(&self, standing: &Drained) -> std::io::Result<()> {
        let new = self.path.with_extension("drained-new");
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        for (name, until) in standing {
            writeln!(file, "{} {name}", until.0)?;
        }
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }
}

fn read_line(line: &str) -> Option<(String, Instant)> {
    let (until, name) = line.split_once(' ')?;
    Some((name.into(), Instant(until.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("core.db");
        let mut orders = DrainOrders::open(&store);
        assert!(orders.kept().is_empty());
        let standing: Drained =
            [("west 2".to_string(), Instant(7)), ("east".into(), Instant(u64::MAX))].into();
        orders.keep(standing.clone());
        assert_eq!(DrainOrders::open(&store).kept(), &standing);
        orders.keep(Drained::new());
        assert!(DrainOrders::open(&store).kept().is_empty());
    }

    #[test]
    fn a_line_that_cannot_be_read_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("core.db");
        fs::write(store.with_extension("drained"), "x west\n\n12\n5 east\n").unwrap();
        assert_eq!(DrainOrders::open(&store).kept(), &Drained::from([("east".into(), Instant(5))]));
    }
}
