//! The keys of session groups on disk, encrypted under the store's key file: UEs that heard a token are served after a restart of the core, and
//! sessions that ended before it are reported.

use std::path::{Path, PathBuf};

use tracing::warn;
use whimbrel_ids::Instant;
use whimbrel_privacy::operator::Group;
use whimbrel_store::SealedLog;
use zeroize::Zeroizing;

/// The file of session groups.
pub(super) struct KeptGroups {
    path: PathBuf,
    key_file: PathBuf,
    /// What it holds, by their names.
    written: Vec<[u8; 32]>,
}

/// A group, and until when it is kept.
pub(super) type KeptGroup = (Group, Instant);

impl KeptGroups {
    /// Opens it, with the groups that are kept still. A file that cannot be read is begun again: its groups are lost.
    pub(super) fn open(path: &Path, key_file: &Path, now: Instant) -> (Self, Vec<KeptGroup>) {
        let read = SealedLog::read(path, key_file).unwrap_or_else(|e| {
            warn!("the keys of session groups of an earlier run are lost: {e}");
            None
        });
        let records = read.map(|read| read.records).unwrap_or_default();
        let groups = records.iter().filter_map(|record| {
            let (until, group) = record.split_first_chunk::<8>()?;
            let until = Instant(u64::from_be_bytes(*until));
            Some((Group::parse(group).ok()?, until)).filter(|_| now <= until)
        });
        let groups = groups.collect();
        (Self { path: path.into(), key_file: key_file.into(), written: Vec::new() }, groups)
    }

    /// Brings the groups to disk, if they are others than before.
    pub(super) fn keep(&mut self, groups: &[KeptGroup]) {
        let names: Vec<[u8; 32]> = groups.iter().map(|(group, _)| group.hash().0).collect();
        if names == self.written {
            return;
        }
        let records: Vec<_> = groups
            .iter()
            .map(|(group, until)| {
                let mut record = Zeroizing::new(until.0.to_be_bytes().to_vec());
                record.extend_from_slice(&group.to_octets());
                record
            })
            .collect();
        match SealedLog::create(&self.path, &self.key_file, records.iter().map(|r| &r[..]), true) {
            Ok(_) => self.written = names,
            Err(e) => warn!("the keys of session groups are not kept for a restart: {e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_groups_are_read_back_until_their_time_and_are_not_in_clear() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key_file) = (folder.path().join("x.groups"), folder.path().join("x.key"));
        whimbrel_store::Store::open(&folder.path().join("x.db"), &key_file).unwrap();
        let group =
            |n: u8| Group::parse(&[[n; 32].as_slice(), &[n; 32], &7u64.to_be_bytes()].concat()).unwrap();
        let (mut kept, none) = KeptGroups::open(&path, &key_file, Instant(0));
        assert!(none.is_empty());
        kept.keep(&[(group(1), Instant(10)), (group(2), Instant(20))]);
        let names = |now| {
            let (_, groups) = KeptGroups::open(&path, &key_file, Instant(now));
            groups.iter().map(|(group, until)| (group.hash().0[0], until.0)).collect::<Vec<_>>()
        };
        assert_eq!(names(10), [(1, 10), (2, 20)]);
        assert_eq!(names(11), [(2, 20)]);
        let octets = std::fs::read(&path).unwrap();
        assert!(!octets.windows(32).any(|w| w == [1; 32]));
    }
}
