//! Archives that `tar` opens (POSIX.1-2017 ustar): regular files only, each with its length. Backups and support bundles are such.

use std::io::{self, Read, Write};

/// Octets of a block; headers and contents are padded to it.
const BLOCK: usize = 512;
/// Most octets of one file: what eleven octal digits say.
const FILE_OCTETS_MAX: u64 = (1 << 33) - 1;
/// Most octets of a name.
const NAME_OCTETS_MAX: usize = 100;

/// Writes an archive.
pub(crate) struct Writer<W: Write>(W);

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Self {
        Self(out)
    }

    /// Adds a file of that many octets, readable by its owner only. Errors: the content has another length.
    pub(crate) fn file(&mut self, name: &str, length: u64, content: &mut dyn Read) -> io::Result<()> {
        self.0.write_all(&header(name, length)?)?;
        let copied = io::copy(&mut content.take(length), &mut self.0)?;
        if copied != length {
            return Err(io::Error::other(format!("{name} became shorter while it was read")));
        }
        let padding = (BLOCK - (length % BLOCK as u64) as usize) % BLOCK;
        self.0.write_all(&[0; BLOCK][..padding])
    }

    /// Adds a file with this content.
    pub(crate) fn octets(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.file(name, content.len() as u64, &mut &*content)
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.0.write_all(&[0; 2 * BLOCK])?;
        self.0.flush()?;
        Ok(self.0)
    }
}

fn header(name: &str, length: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() > NAME_OCTETS_MAX || length > FILE_OCTETS_MAX {
        return Err(io::Error::other(format!("{name} is too large for an archive")));
    }
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{length:011o}"));
    put(136, "00000000000");
    put(148, "        "); // the checksum counts as blanks
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum = checksum(&block);
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    Ok(block)
}

fn checksum(block: &[u8; BLOCK]) -> u32 {
    block.iter().enumerate().map(|(at, o)| u32::from(if (148..156).contains(&at) { b' ' } else { *o })).sum()
}

/// Why an archive cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It is no archive of regular files.
    Foreign,
    /// It ends early.
    Short,
    /// The file cannot be read, or what was read cannot be written.
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Reads an archive, one file after the other.
pub(crate) struct Reader<R: Read> {
    input: R,
    /// Octets of the present file's content, and of its padding, that were not read yet.
    left: u64,
    padding: usize,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0 }
    }

    /// The name and the length of the next file; `None` at the archive's end.
    pub(crate) fn next_file(&mut self) -> Result<Option<(String, u64)>, ReadError> {
        self.content(&mut io::sink())?;
        let mut block = [0; BLOCK];
        self.exact(&mut block)?;
        if block.iter().all(|o| *o == 0) {
            return Ok(None);
        }
        let octal = |at: usize, digits: usize| {
            let text = std::str::from_utf8(&block[at..at + digits]).ok()?;
            u64::from_str_radix(text.trim_matches([' ', '\0']), 8).ok()
        };
        let is_file = matches!(block[156], b'0' | 0) && block[257..262] == *b"ustar";
        let (Some(sum), Some(length), true) = (octal(148, 8), octal(124, 12), is_file) else {
            return Err(ReadError::Foreign);
        };
        let end = block[..NAME_OCTETS_MAX].iter().position(|o| *o == 0).unwrap_or(NAME_OCTETS_MAX);
        let name = std::str::from_utf8(&block[..end]).map_err(|_| ReadError::Foreign)?.to_owned();
        if sum != u64::from(checksum(&block)) || name.is_empty() {
            return Err(ReadError::Foreign);
        }
        self.left = length;
        self.padding = (BLOCK - (length % BLOCK as u64) as usize) % BLOCK;
        Ok(Some((name, length)))
    }

    /// Writes what is left of the present file's content to `out`.
    pub(crate) fn content(&mut self, out: &mut dyn Write) -> Result<(), ReadError> {
        let copied = io::copy(&mut (&mut self.input).take(self.left), out)?;
        if copied != self.left {
            return Err(ReadError::Short);
        }
        self.left = 0;
        let mut padding = [0; BLOCK];
        let padded = std::mem::take(&mut self.padding);
        self.exact(&mut padding[..padded])
    }

    fn exact(&mut self, block: &mut [u8]) -> Result<(), ReadError> {
        self.input.read_exact(block).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Short,
            _ => ReadError::Io(e),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut archive = Writer::new(Vec::new());
        files.iter().for_each(|(name, content)| archive.octets(name, content).unwrap());
        archive.finish().unwrap()
    }

    fn read(octets: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ReadError> {
        let (mut archive, mut files) = (Reader::new(octets), Vec::new());
        while let Some((name, _)) = archive.next_file()? {
            let mut content = Vec::new();
            archive.content(&mut content)?;
            files.push((name, content));
        }
        Ok(files)
    }

    #[test]
    fn tar_lists_and_extracts_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tar");
        let content = vec![b'x'; 1025];
        std::fs::write(&file, written(&[("manifest.json", b"{}".to_vec()), ("a/b", content.clone())]))
            .unwrap();
        let Ok(output) = std::process::Command::new("tar").arg("-tvf").arg(&file).output() else { return };
        let listed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && listed.contains("-rw-------"), "{listed}");
        let output = std::process::Command::new("tar").arg("-xOf").arg(&file).arg("a/b").output().unwrap();
        assert_eq!(output.stdout, content);
    }

    #[test]
    fn an_archive_cut_anywhere_is_short_and_what_is_none_is_foreign() {
        let whole = written(&[("a", vec![1; 700]), ("b", Vec::new())]);
        assert_eq!(read(&whole).unwrap().len(), 2);
        for length in 0..whole.len() - 2 * BLOCK + 1 {
            assert!(matches!(read(&whole[..length]), Err(ReadError::Short)), "{length}");
        }
        for foreign in [vec![b'x'; 2048], [b"\x1f\x8b".as_slice(), &[7; 600]].concat()] {
            assert!(matches!(read(&foreign), Err(ReadError::Foreign)));
        }
    }

    proptest! {
        #[test]
        fn files_come_back_as_they_were_written(files in proptest::collection::vec(("[a-z]{1,100}", proptest::collection::vec(any::<u8>(), 0..1500)), 0..4)) {
            let archive = written(&files.iter().map(|(n, c)| (n.as_str(), c.clone())).collect::<Vec<_>>());
            prop_assert_eq!(read(&archive).unwrap(), files);
        }

        #[test]
        fn any_octets_are_read_or_refused(octets in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = read(&octets);
        }
    }
}
