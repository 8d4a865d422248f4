//! Where cold regions go that are neither in memory nor in swap.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// A slow tier that is written by region and read by record.
///
/// A region that could not be written stays in memory, so a device may refuse at any time.
pub trait Device: fmt::Debug + Send + Sync {
    /// Writes octets. When it returns without an error, they can be read, and no copy of them is left in memory. Called in a thread of
    /// its own.
    ///
    /// # Errors
    /// The device is full or fails. What was there before is void.
    fn write(&self, offset: u64, octets: &[u8]) -> io::Result<()>;

    /// Reads what was written.
    ///
    /// # Errors
    /// The device fails.
    fn read(&self, offset: u64, octets: &mut [u8]) -> io::Result<()>;
}

/// A file without a name.
#[derive(Debug)]
pub(crate) struct BackingFile(File);

impl BackingFile {
    /// Errors: the file cannot be created.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        // Records may hold secrets: other users may not read the file while it has a name.
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        std::fs::remove_file(path)?;
        // A record is read alone: what follows it in the file is not needed.
        advise(&file, 0, 0, libc::POSIX_FADV_RANDOM);
        Ok(Self(file))
    }
}

impl Device for BackingFile {
    fn write(&self, offset: u64, octets: &[u8]) -> io::Result<()> {
        self.0.write_all_at(octets, offset)?;
        // An error of the disk shows here, while the region is still in memory.
        self.0.sync_data()?;
        advise(&self.0, offset, octets.len(), libc::POSIX_FADV_DONTNEED);
        Ok(())
    }

    fn read(&self, offset: u64, octets: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(octets, offset)
    }
}

/// What the kernel makes of it changes no octet.
fn advise(file: &File, offset: u64, octets: usize, advice: libc::c_int) {
    let (offset, octets) = (offset as libc::off_t, octets as libc::off_t);
    // SAFETY: the descriptor is open, and the call touches no memory of ours.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, octets, advice) };
}
