//! Regular files, read with a bound.
//!
//! A configuration, a command line or an archive names files. The name may lead to a device without end (`/dev/zero`), to a FIFO that has
//! no writer, or to a file that grows: each reader names the most octets that its file may have, and gets an error for everything else.
#![forbid(unsafe_code)]

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Octets of a PEM file with certificates or keys: the authorities of a Linux distribution have a quarter of a MiB.
pub const PEM_OCTETS_MAX: u64 = 4 << 20;

/// Octets of a list that a command reads, such as subscribers to import: ten million subscribers have a third.
pub const LIST_OCTETS_MAX: u64 = 8 << 30;

/// Opens a regular file for reading.
///
/// Errors: those of the system, and `InvalidInput` for a folder, a device, a FIFO or a socket. None of these is opened if it is there
/// when the call begins: opening a device can change its state. One that takes the file's place meanwhile is opened without waiting, and
/// refused.
pub fn open(path: &Path) -> Result<File> {
    check_regular(&std::fs::metadata(path)?)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits();
    // The bits of open(2) fit an i32.
    let file = OpenOptions::new().read(true).custom_flags(flags as i32).open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file of at most this many octets. Errors: those of [`open`], and `FileTooLarge`.
pub fn open_bounded(path: &Path, octets_max: u64) -> Result<File> {
    let file = open(path)?;
    match file.metadata()?.len() {
        octets if octets > octets_max => Err(too_long(octets_max)),
        _ => Ok(file),
    }
}

/// Reads a regular file of at most this many octets. Errors: those of [`open_bounded`].
pub fn read(path: &Path, octets_max: u64) -> Result<Vec<u8>> {
    let file = open_bounded(path, octets_max)?;
    // Room for the whole file, so that a secret in it is not moved and a copy left behind.
    let room = file.metadata()?.len().saturating_add(1);
    let mut octets = Vec::with_capacity(usize::try_from(room).unwrap_or_default());
    let length = file.take(octets_max.saturating_add(1)).read_to_end(&mut octets)?;
    if length as u64 > octets_max { Err(too_long(octets_max)) } else { Ok(octets) }
}

/// Reads a regular file of UTF-8 text of at most this many octets. Errors: those of [`read`], and `InvalidData` for other octets.
pub fn read_text(path: &Path, octets_max: u64) -> Result<String> {
    let octets = read(path, octets_max)?;
    String::from_utf8(octets).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("octet {at} is not UTF-8 text"))
    })
}

fn too_long(octets_max: u64) -> Error {
    Error::new(ErrorKind::FileTooLarge, format!("it has more than {octets_max} octets"))
}

fn check_regular(meta: &Metadata) -> Result<()> {
    let kind = meta.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let found = if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("it is {found}, not a regular file")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_regular_file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "abc").unwrap();
        assert_eq!(read_text(&path, 3).unwrap(), "abc");
        assert_eq!(read(&path, 2).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(open_bounded(&path, 2).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read(&link, 3).unwrap(), b"abc");
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 3).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read(&folder.path().join("none"), 3).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_whose_length_the_system_does_not_know_is_bounded_while_it_is_read() {
        // procfs gives its files the length 0.
        let path = Path::new("/proc/self/maps");
        assert_eq!(read(path, 10).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(!read(path, 1 << 20).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in [
            (Path::new("/dev/zero"), "a device"),
            (folder.path(), "a folder"),
            (&fifo, "a FIFO"),
            (&socket, "a socket"),
        ] {
            let e = read(path, u64::MAX).unwrap_err();
            assert!(e.kind() == ErrorKind::InvalidInput && e.to_string().contains(what), "{e}");
        }
    }
}
