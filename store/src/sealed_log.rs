//! A sealed log: records in a file of their own, encrypted and authenticated under the store's key. A part that is cut off, changed, repeated or moved
//! is recognised: the records before it stand, the rest is lost.
//!
//! The file: a magic number, the version, a random number of the log, then frames. A frame is its length and the sealed records; it is bound to the log and to
//! its place in it. The last frame of a log that was ended in order says so.

use core::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::error::StoreError;
use crate::seal::Sealer;

const MAGIC: &[u8; 8] = b"WHIMBRSL";
/// Version of the file's layout and of the records in it.
const VERSION: u16 = 1;
/// Octets before the first frame.
const HEAD: usize = MAGIC.len() + size_of::<u16>() + size_of::<LogNumber>();
/// Octets of records that are sealed together: large enough that a frame's overhead does not matter.
const FRAME: usize = 256 << 10;
/// The longest frame that is read: one record may be as long as a frame.
const FRAME_MAX: usize = 8 << 20;
/// Octets of a log that is read: ten million UEs at rest, with room.
const FILE_OCTETS_MAX: u64 = 16 << 30;
/// Begin of a frame's plain text: records, or the end of the log.
const RECORDS: u8 = 0;
const END: u8 = 1;

type LogNumber = [u8; 16];

/// Why a sealed log cannot be read or written, as a sentence.
#[derive(Debug)]
#[non_exhaustive]
pub enum SealedLogError {
    /// The file is something else, or its beginning is lost.
    NoLog(PathBuf),
    /// It was written by a program of another version.
    OtherVersion(PathBuf, u16),
    /// It was sealed under another key, or its beginning is damaged.
    OtherKey(PathBuf),
    /// The system's error.
    Io(PathBuf, io::Error),
    /// The key file cannot be used.
    Key(StoreError),
}

impl fmt::Display for SealedLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLog(path) => write!(f, "{} is cut short, or no file of this kind", path.display()),
            Self::OtherVersion(path, version) => {
                write!(
                    f,
                    "{} was written in version {version}, and this program reads {VERSION}",
                    path.display()
                )
            }
            Self::OtherKey(path) => {
                write!(f, "{} was encrypted with another key file, or is damaged", path.display())
            }
            Self::Io(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Key(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SealedLogError {}

/// The records of a log. They may hold keys.
#[derive(Debug, Default)]
pub struct SealedRecords {
    /// They, in order.
    pub records: Vec<Zeroizing<Vec<u8>>>,
    /// The log was ended in order, and nothing is lost.
    pub ended: bool,
}

/// A log that is open for writing.
pub struct SealedLog {
    file: File,
    path: PathBuf,
    sealer: Sealer,
    number: LogNumber,
    frames: u64,
    octets: u64,
}

impl fmt::Debug for SealedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedLog({}, {} octets)", self.path.display(), self.octets)
    }
}

impl SealedLog {
    /// Replaces the file by a log of these records, or leaves it as it is: there is no moment without the one or the other. `ended`: the log is complete.
    ///
    /// Errors: each [`SealedLogError`] but those of reading.
    pub fn create<'a>(
        path: &Path,
        key_file: &Path,
        records: impl IntoIterator<Item = &'a [u8]>,
        ended: bool,
    ) -> Result<Self, SealedLogError> {
        let sealer = Sealer::open(key_file, false, path).map_err(SealedLogError::Key)?;
        let mut number = LogNumber::default();
        getrandom::fill(&mut number).map_err(|_| SealedLogError::Key(StoreError::NoRandomness))?;
        let failed = |e| SealedLogError::Io(path.to_owned(), e);
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        let draft = PathBuf::from(draft);
        let written = || {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            let mut log = Self { file, path: path.to_owned(), sealer, number, frames: 0, octets: 0 };
            log.file.write_all(&[&MAGIC[..], &VERSION.to_be_bytes(), &number].concat())?;
            log.write(records)?;
            if ended {
                log.frame(&mut Zeroizing::new(vec![END]))?;
            }
            log.file.sync_all()?;
            fs::rename(&draft, path)?;
            sync_folder(path)?;
            Ok(log)
        };
        let log = written();
        if log.is_err() {
            let _ = fs::remove_file(&draft);
        }
        log.map_err(failed)
    }

    /// Appends records, which are on the disk when this returns. After an error the log ends where it did before, or is cut short there.
    ///
    /// Errors: [`SealedLogError::Io`].
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = &'a [u8]>) -> Result<(), SealedLogError> {
        let appended = self.write(records).and_then(|()| self.file.sync_data());
        appended.map_err(|e| SealedLogError::Io(self.path.clone(), e))
    }

    /// Octets that were written.
    pub fn octets(&self) -> u64 {
        self.octets
    }

    fn write<'a>(&mut self, records: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let mut plain = Zeroizing::new(vec![RECORDS]);
        for record in records {
            if plain.len() > 1 && plain.len() + record.len() > FRAME {
                self.frame(&mut plain)?;
                plain = Zeroizing::new(vec![RECORDS]);
            }
            let length = u32::try_from(record.len()).map_err(io::Error::other)?;
            plain.extend_from_slice(&length.to_be_bytes());
            plain.extend_from_slice(record);
        }
        // The first frame stands even without records: it shows under which key the log is sealed.
        if plain.len() > 1 || self.frames == 0 { self.frame(&mut plain) } else { Ok(()) }
    }

    fn frame(&mut self, plain: &mut Zeroizing<Vec<u8>>) -> io::Result<()> {
        let context = context(&self.number, self.frames);
        let sealed = self.sealer.seal_octets(&context, plain).map_err(|e| io::Error::other(e.to_string()))?;
        let length = u32::try_from(sealed.len()).map_err(io::Error::other)?;
        self.file.write_all(&[&length.to_be_bytes()[..], &sealed].concat())?;
        self.frames += 1;
        self.octets += (size_of::<u32>() + sealed.len()) as u64;
        Ok(())
    }

    /// Reads a log; `None`: there is none.
    ///
    /// Errors: each [`SealedLogError`].
    pub fn read(path: &Path, key_file: &Path) -> Result<Option<SealedRecords>, SealedLogError> {
        let octets = match whimbrel_files::read(path, FILE_OCTETS_MAX) {
            Ok(octets) => octets,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(SealedLogError::Io(path.to_owned(), e)),
        };
        let no_log = || SealedLogError::NoLog(path.to_owned());
        let (head, mut rest) = octets.split_at_checked(HEAD).ok_or_else(no_log)?;
        let versioned = head.strip_prefix(MAGIC).and_then(<[u8]>::split_first_chunk);
        let (version, number) = versioned.ok_or_else(no_log)?;
        let version = u16::from_be_bytes(*version);
        if version != VERSION {
            return Err(SealedLogError::OtherVersion(path.to_owned(), version));
        }
        let number = LogNumber::try_from(number).map_err(|_| no_log())?;
        let sealer = Sealer::open(key_file, false, path).map_err(SealedLogError::Key)?;
        let mut read = SealedRecords::default();
        let mut frames = 0;
        while let Some((sealed, after)) = first_frame(rest) {
            let Some(plain) = sealer.open_octets(&context(&number, frames), sealed) else { break };
            match plain.split_first() {
                Some((&RECORDS, records)) => take_records(records, &mut read.records),
                Some((&END, _)) => {
                    read.ended = after.is_empty();
                    break;
                }
                _ => break,
            }
            (rest, frames) = (after, frames + 1);
        }
        if frames == 0 {
            let is_whole = first_frame(rest).is_some();
            return Err(if is_whole { SealedLogError::OtherKey(path.to_owned()) } else { no_log() });
        }
        Ok(Some(read))
    }

    /// Deletes a log; nothing is left of it after a power failure either. Errors: [`SealedLogError::Io`].
    pub fn remove(path: &Path) -> Result<(), SealedLogError> {
        let removed = match fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.and_then(|()| sync_folder(path)),
        };
        removed.map_err(|e| SealedLogError::Io(path.to_owned(), e))
    }
}

/// What a frame is bound to.
fn context(number: &LogNumber, frame: u64) -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_be_bytes(), number, &frame.to_be_bytes()].concat()
}

/// The first frame, and what follows it.
fn first_frame(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = octets.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    (length <= FRAME_MAX).then(|| rest.split_at_checked(length))?
}

fn take_records(mut octets: &[u8], to: &mut Vec<Zeroizing<Vec<u8>>>) {
    while let Some((record, rest)) = octets
        .split_first_chunk()
        .and_then(|(length, rest)| rest.split_at_checked(u32::from_be_bytes(*length) as usize))
    {
        to.push(Zeroizing::new(record.to_vec()));
        octets = rest;
    }
}

/// The folder's entry of a file is on the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("whimbrel-log-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            let it = Self(folder);
            for key in ["key", "other"] {
                Sealer::open(&it.at(key), true, &it.at("db")).unwrap();
            }
            it
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn create(&self, records: &[Vec<u8>], ended: bool) -> SealedLog {
            let records = records.iter().map(Vec::as_slice);
            SealedLog::create(&self.at("log"), &self.at("key"), records, ended).unwrap()
        }

        fn read(&self) -> Result<Option<SealedRecords>, SealedLogError> {
            SealedLog::read(&self.at("log"), &self.at("key"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn records() -> Vec<Vec<u8>> {
        (0..400usize).map(|n| vec![n as u8; 3 * n]).collect()
    }

    fn read_of(read: &SealedRecords) -> Vec<Vec<u8>> {
        read.records.iter().map(|r| r.to_vec()).collect()
    }

    #[test]
    fn a_log_is_read_as_it_was_written_and_knows_whether_it_was_ended() {
        let folder = Folder::new("whole");
        assert!(folder.read().unwrap().is_none());
        folder.create(&records(), true);
        let read = folder.read().unwrap().unwrap();
        assert!(read_of(&read) == records() && read.ended);
        let mut log = folder.create(&records()[..2], false);
        log.append([&b"later"[..]]).unwrap();
        let read = folder.read().unwrap().unwrap();
        assert!(!read.ended);
        assert_eq!(read_of(&read).last().unwrap(), b"later");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 3, "no draft is left");
        SealedLog::remove(&folder.at("log")).unwrap();
        assert!(folder.read().unwrap().is_none());
    }

    #[test]
    fn no_secret_stands_in_the_file() {
        let folder = Folder::new("secret");
        folder.create(&[b"a key of a subscriber".to_vec()], true);
        let octets = fs::read(folder.at("log")).unwrap();
        assert!(!octets.windows(5).any(|w| w == b"a key"));
    }

    #[test]
    fn a_log_that_is_cut_short_or_changed_gives_what_stands_before_and_is_not_ended() {
        let folder = Folder::new("cut");
        folder.create(&[vec![1; FRAME], vec![2; FRAME], vec![3; 10]], true);
        let whole = fs::read(folder.at("log")).unwrap();
        for cut in [whole.len() - 1, whole.len() - 40, FRAME + 200] {
            fs::write(folder.at("log"), &whole[..cut]).unwrap();
            let read = folder.read().unwrap().unwrap();
            assert!(!read.ended && read.records.iter().all(|r| r.len() >= 10));
            assert_eq!(read.records.first().unwrap()[0], 1);
        }
        let mut changed = whole.clone();
        changed[FRAME + 100] ^= 1; // in the second frame
        fs::write(folder.at("log"), &changed).unwrap();
        let read = folder.read().unwrap().unwrap();
        assert!(read.records.len() == 1 && !read.ended);
        fs::write(folder.at("log"), [&whole[..], &whole[HEAD..HEAD + 60]].concat()).unwrap();
        assert!(!folder.read().unwrap().unwrap().ended, "something follows the end");
    }

    #[test]
    fn a_log_of_another_key_or_version_and_a_file_that_is_none_are_refused() {
        let folder = Folder::new("other");
        folder.create(&records(), true);
        let other = SealedLog::read(&folder.at("log"), &folder.at("other")).unwrap_err();
        assert!(matches!(other, SealedLogError::OtherKey(_)), "{other}");
        let mut octets = fs::read(folder.at("log")).unwrap();
        octets[MAGIC.len() + 1] = 9;
        fs::write(folder.at("log"), &octets).unwrap();
        assert!(matches!(folder.read(), Err(SealedLogError::OtherVersion(_, 9))));
        for octets in [&b""[..], b"WHIMBRSL", b"not a log at all, but long enough to be one"] {
            fs::write(folder.at("log"), octets).unwrap();
            assert!(matches!(folder.read(), Err(SealedLogError::NoLog(_))));
        }
    }

    #[test]
    fn a_log_that_cannot_be_written_leaves_the_former_one() {
        let folder = Folder::new("full");
        folder.create(&records(), true);
        fs::create_dir(folder.at("log.new")).unwrap(); // stands in the way of the draft
        let failed = SealedLog::create(&folder.at("log"), &folder.at("key"), [&b"x"[..]], true);
        assert!(matches!(failed, Err(SealedLogError::Io(..))));
        assert!(folder.read().unwrap().unwrap().ended);
    }
}
