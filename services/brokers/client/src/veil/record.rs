//! Recordings: everything that a party receives, sends and stores, appended to a file, from which the knowledge ledger
//! ([`whimbrel_privacy::ledger`]) is computed. Off unless configured; a recording holds what its party's memory holds.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use whimbrel_privacy::crypto::hash;
use whimbrel_privacy::ledger::How;
use whimbrel_privacy::msg::ClaimRequest;

use crate::{hex, unhex};

/// Where a party records; cheap to clone, and without a file nothing is recorded.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<Arc<Mutex<File>>>);

/// One entry of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedMessage {
    /// How the party came by the octets.
    pub how: How,
    /// What they are.
    pub what: String,
    /// From or to where; empty for what is stored.
    pub peer: String,
    /// The octets that passed.
    pub octets: Vec<u8>,
}

const HOWS: [(How, &str); 3] = [(How::Received, "received"), (How::Sent, "sent"), (How::Stored, "stored")];

impl Recorder {
    /// Records into a file that its owner alone can read. Errors: one sentence.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        Ok(Self(Some(Arc::new(Mutex::new(file)))))
    }

    /// Adds an entry. What cannot be written is left out: the party itself goes on.
    pub fn add(&self, how: How, what: &str, peer: &str, octets: &[u8]) {
        let Some(file) = &self.0 else { return };
        let name = HOWS.iter().find(|(h, _)| *h == how).map_or("", |(_, name)| name);
        let line = format!("{name}\t{what}\t{peer}\t{}\n", hex(octets));
        let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }
}

/// Octets of a recording that is read: a day of tests has some hundred MiB.
const FILE_OCTETS_MAX: u64 = 4 << 30;

/// Reads a recording. Errors: one sentence that names the line.
pub fn read(path: &Path) -> Result<Vec<RecordedMessage>, String> {
    let text = whimbrel_files::read_text(path, FILE_OCTETS_MAX)
        .map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    let parsed = text.lines().enumerate().map(|(n, line)| {
        entry(line).ok_or_else(|| format!("line {} of {} is no recording", n + 1, path.display()))
    });
    parsed.collect()
}

fn entry(line: &str) -> Option<RecordedMessage> {
    let mut parts = line.split('\t');
    let (how, what, peer, octets) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let how = HOWS.iter().find(|(_, name)| *name == how)?.0;
    Some(RecordedMessage { how, what: what.into(), peer: peer.into(), octets: unhex(octets)? })
}

/// A claim for a recording: a proof is hundreds of thousands of octets in which everything that is short stands by chance, so that its hash
/// takes its place.
pub fn claim_without_proof(octets: &[u8]) -> Vec<u8> {
    let Ok(mut claim) = ClaimRequest::parse(octets) else { return octets.to_vec() };
    claim.proof = hash(&[&claim.proof]).to_vec();
    claim.to_octets()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        Recorder::default().add(How::Sent, "nothing", "", b"is kept without a file");
        let recorder = Recorder::open(&path).unwrap();
        recorder.add(How::Received, "group request", "127.0.0.9:4711", &[1, 2]);
        recorder.add(How::Stored, "spent token", "", &[]);
        let read = read(&path).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(
            (read[0].how, &read[0].what[..], &read[0].octets[..]),
            (How::Received, "group request", &[1, 2][..])
        );
        assert_eq!((read[1].how, &read[1].peer[..]), (How::Stored, ""));
    }
}
