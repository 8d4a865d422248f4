//! The state file of a UPF: [`whimbrel_user::SessionMemory`] in a file that is mapped.

use std::fs::{File, OpenOptions, read_to_string};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use whimbrel_user::{Config, SessionMemory, StateMemory};

use crate::sys::inotify::Inotify;
use crate::sys::shared_file::SharedFile;

/// A state file on disk, or a memfd that another process created.
pub struct StateFile(SharedFile);

impl StateFile {
    /// Opens the file for a UPF of this configuration, or makes it, for this user alone. Errors: `WouldBlock` where another process has it, and
    /// those of opening it.
    pub fn open(path: &Path, config: &Config) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Self::of_file(options.open(path)?, config)
    }

    /// Creates a memfd that is lost when this process ends. Errors: those of memfd_create(2) and mmap(2).
    pub fn in_memory(config: &Config) -> io::Result<Self> {
        Self::of_file(File::from(crate::sys::memory_file(c"whimbrel-state")?), config)
    }

    /// Of a descriptor that was inherited. Errors: `WouldBlock` where another process has it locked, and those of mmap(2).
    pub fn of(descriptor: OwnedFd, config: &Config) -> io::Result<Self> {
        Self::of_file(File::from(descriptor), config)
    }

    /// Opens the state file of a running UPF to follow it; once that UPF has ended, this process may take the
    /// file over. Errors: `NotFound` if that UPF has not made it yet, and those of opening it.
    pub fn follow(path: &Path, config: &Config) -> io::Result<(Self, StateLock)> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let octets = usize::try_from(SessionMemory::octets_for(config)).map_err(io::Error::other)?;
        let followed = Self(SharedFile::of_other(file, octets)?);
        let lock = StateLock(followed.0.try_clone_file()?);
        Ok((followed, lock))
    }

    /// The file, for packets that wait for idle UEs. Errors: those of dup(2).
    pub fn try_clone_file(&self) -> io::Result<File> {
        self.0.try_clone_file()
    }

    /// The file of another [`StateFile`] of this process, mapped once more for the packets that wait. Errors: those of mmap(2).
    pub(crate) fn map_for_held_packets(file: &File, config: &Config) -> io::Result<Self> {
        let octets = usize::try_from(SessionMemory::octets_for(config)).map_err(io::Error::other)?;
        let mapped = SharedFile::of_other(file.try_clone()?, octets)?;
        Ok(Self(mapped.reserve_behind(SessionMemory::held_at(config))))
    }

    fn of_file(file: File, config: &Config) -> io::Result<Self> {
        let octets = usize::try_from(SessionMemory::octets_for(config)).map_err(io::Error::other)?;
        SharedFile::new(file, octets).map(Self)
    }
}

/// The lock on a state file, held by the UPF that writes it. The kernel passes it to the waiting process once
/// the last thread of that UPF has exited, for whatever reason.
pub struct StateLock(File);

impl StateLock {
    /// Waits until this process has the file. Errors: those of flock(2).
    pub fn acquire(&self) -> io::Result<()> {
        self.0.lock()
    }

    /// Converts the acquired lock into the state file. Errors: those of [`StateFile::of`].
    pub fn into_state(self, config: &Config) -> io::Result<StateFile> {
        StateFile::of_file(self.0, config)
    }
}

/// Reports changes of a state file to the process that follows it. The kernel does not report writes to
/// mapped memory, so the UPF that writes them sets the file's time, by [`announce_changes`].
pub struct StateChangeWatch(Inotify);

impl StateChangeWatch {
    /// Of the file at this path, from now on. Errors: those of inotify(7), of which a user has a bounded number.
    pub fn of(path: &Path) -> io::Result<Self> {
        Inotify::of(path).map(Self)
    }

    /// Discards pending notifications; call it before reading the file.
    pub fn clear(&self) {
        self.0.drain();
    }
}

impl AsFd for StateChangeWatch {
    /// Readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Announces changes to the process that follows the state file. Errors: those of futimens(2).
pub fn announce_changes(file: &File) -> io::Result<()> {
    file.set_modified(SystemTime::now())
}

impl StateMemory for StateFile {
    fn octets(&self) -> u64 {
        self.0.octets()
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        self.0.read(at, to);
    }

    fn write(&mut self, at: u64, octets: &[u8]) {
        self.0.write(at, octets);
    }

    fn reserve(&mut self, until: u64) -> bool {
        self.0.reserve(until).is_ok()
    }
}

/// True if a state file of this process was found truncated by another process since this one began. The
/// content of such a file is lost, and later writes to it are not kept.
pub fn is_state_file_truncated() -> bool {
    crate::sys::truncation::was_found()
}

/// The boot ID of the host; zero if the kernel does not provide it.
pub fn boot_id() -> [u8; 16] {
    let text = read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::poll::which_are_readable;

    #[test]
    fn the_boot_has_a_name() {
        assert_ne!(boot_id(), [0; 16]);
        assert_eq!(boot_id(), boot_id());
    }

    #[test]
    fn changes_of_a_state_file_reach_the_process_that_follows_it_when_they_are_announced() {
        let path = std::env::temp_dir().join(format!("whimbrel-state-announced-{}", std::process::id()));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let mut written = SharedFile::new(file, 8192).map(StateFile).unwrap();
        let changes = StateChangeWatch::of(&path).unwrap();
        let is_announced = || {
            let announced = which_are_readable(&[changes.as_fd()], Duration::ZERO).unwrap()[0];
            changes.clear();
            announced
        };
        written.write(5_000, b"sessions");
        assert!(!is_announced(), "writes to mapped memory cost the kernel nothing");
        for _ in 0..3 {
            announce_changes(&written.try_clone_file().unwrap()).unwrap();
            assert!(is_announced());
            assert!(!is_announced(), "once");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_was_written_is_there_when_the_file_is_opened_again_and_one_process_at_a_time_has_it() {
        let path = std::env::temp_dir().join(format!("whimbrel-state-{}", std::process::id()));
        let open = || {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            SharedFile::new(file, 100_000).map(StateFile)
        };
        let mut one = open().unwrap();
        assert_eq!(open().err().map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
        assert!(one.reserve(50_000));
        one.write(40_000, b"sessions");
        one.write(99_998, b"beyond the end");
        // Another process may read it meanwhile, and has it afterwards.
        let followed = SharedFile::of_other(
            std::fs::File::options().read(true).write(true).open(&path).unwrap(),
            100_000,
        );
        let followed = StateFile(followed.unwrap());
        let lock = StateLock(followed.0.try_clone_file().unwrap());
        let mut read = [1; 10];
        followed.read(40_000, &mut read);
        assert_eq!(&read, b"sessions\0\0");
        let waits = std::thread::spawn(move || lock.acquire());
        drop(one);
        waits.join().unwrap().unwrap();
        assert_eq!(
            open().err().map(|e| e.kind()),
            Some(io::ErrorKind::WouldBlock),
            "the lock is its own now"
        );
        drop(followed);
        let one = open().unwrap();
        let mut read = [1; 10];
        one.read(40_000, &mut read);
        assert_eq!(&read, b"sessions\0\0");
        one.read(99_998, &mut read);
        assert_eq!(&read, b"be\0\0\0\0\0\0\0\0");
        one.read(200_000, &mut read);
        assert_eq!(read, [0; 10]);
        std::fs::remove_file(&path).unwrap();
    }
}
