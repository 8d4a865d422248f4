//! A copy of the subscribers' file while it is in use, and what moves the file itself.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use crate::error::{StoreError, of_file, of_sqlite};
use crate::schema;
use crate::store::Store;

/// The layout that this version writes, of the subscribers' file.
pub const LAYOUT: i64 = schema::VERSION;

impl Store {
    /// Copies the file, as of one moment, to a new file with mode 0600. Other processes read and write meanwhile. The copy is one
    /// file, without a WAL; the keys in it stay sealed under the key file. Returns how many subscribers it has.
    ///
    /// Errors: [`StoreError::DiskFull`] and others; nothing is left of the new file then.
    pub fn copy_to(&self, to: &Path) -> Result<u64, StoreError> {
        if !schema::create_private(to)? {
            return Err(of_file(to, std::io::ErrorKind::AlreadyExists.into()));
        }
        let copied = self.copy_into(to);
        if copied.is_err() {
            for end in ["", "-wal", "-shm"] {
                let mut left = to.as_os_str().to_owned();
                left.push(end);
                let _ = std::fs::remove_file(left);
            }
        }
        copied
    }

    fn copy_into(&self, to: &Path) -> Result<u64, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |e| of_sqlite(to, e);
        let mut copy = Connection::open_with_flags(to, flags).map_err(failed)?;
        {
            let backup = Backup::new(&self.db, &mut copy).map_err(failed)?;
            // All pages in one step: a reader of the WAL blocks no writer, and a copy in several steps would begin again with each
            // transaction of another process.
            match backup.step(-1).map_err(failed)? {
                StepResult::Done => {}
                _ => return Err(StoreError::Locked { path: self.path.clone() }),
            }
        }
        copy.pragma_update(None, "journal_mode", "DELETE").map_err(failed)?;
        let count =
            copy.query_row("SELECT count(*) FROM subscriber", [], |r| r.get::<_, i64>(0)).map_err(failed)?;
        copy.close().map_err(|(_, e)| failed(e))?;
        Ok(count.unsigned_abs())
    }
}

/// Brings the file to the layout of the release before this one, and returns that layout. No other process may have the file open.
///
/// Errors: [`StoreError::Locked`]; [`StoreError::NotInPreviousLayout`] if a subscriber would lose something, and nothing is changed.
pub fn downgrade(path: &Path) -> Result<i64, StoreError> {
    schema::downgrade(path)
}

/// Makes the file whole without its WAL, so that it can be moved.
///
/// Errors: [`StoreError::Locked`] while another process, such as a running core, has it open.
pub fn release(path: &Path) -> Result<(), StoreError> {
    schema::release(path)
}
