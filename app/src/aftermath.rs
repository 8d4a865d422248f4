//! Whether the program before this one ended in order, and what is left of it if it did not.

use std::fs;
use std::path::{Path, PathBuf};

/// A file beside the store that stands while the program runs: whoever finds it knows that its predecessor was killed.
/// Dropping it takes the file away.
#[derive(Debug)]
pub(crate) struct RunMark(PathBuf);

impl RunMark {
    /// Sets the mark, and says whether one was left behind. Errors: the file cannot be written.
    pub(crate) fn set(store: &Path) -> std::io::Result<(Self, bool)> {
        let file = store.with_extension("running");
        let left = file.exists();
        fs::write(&file, "")?;
        Ok((Self(file), left))
    }
}

impl Drop for RunMark {
    fn drop(&mut self) {
        // What stays makes the next start say too much, nothing worse.
        let _ = fs::remove_file(&self.0);
    }
}

/// What a predecessor that was killed left, in one sentence.
pub(crate) fn told(subscribers: u64) -> String {
    format!(
        "the program before this did not end in order: kept are {subscribers} subscribers with their keys and sequence \
         numbers; lost are registrations and sessions, so gNBs connect again and phones register anew; what it had set \
         on this host is put back"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_stands_tells_of_a_kill() {
        let folder = std::env::temp_dir().join(format!("whimbrel-mark-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let store = folder.join("whimbrel.db");
        let (mark, left) = RunMark::set(&store).unwrap();
        assert!(!left);
        std::mem::forget(mark); // as a kill does
        let (mark, left) = RunMark::set(&store).unwrap();
        assert!(left);
        drop(mark);
        assert!(!RunMark::set(&store).unwrap().1);
        fs::remove_dir_all(folder).unwrap();
        assert!(RunMark::set(&store).is_err());
    }
}
