//! The number of each UE's last input whose outputs may have left, in a file on the unit's memory file system: it outlives the process that writes it. If all
//! control functions of a unit end at once, the next CTA learns from it which UEs' stored states are their last (TS 33.501 §6.4.3.1).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use whimbrel_control::UeId;

/// Octets of a slot's entry: the generation of its UE, one more than it is, so that zero is none; six octets of zero; the clock.
const ENTRY: usize = 16;

/// The file, as the primary CTA writes it.
pub(super) struct LastInputs(File);

impl LastInputs {
    /// Opens it; one that is not there is made. Errors: those of the file system.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(file).map(Self)
    }

    /// The outputs of this input are about to leave. Errors: those of the file system.
    pub(super) fn note(&self, ue: UeId, clock: u64) -> io::Result<()> {
        let mut entry = [0; ENTRY];
        entry[..2].copy_from_slice(&ue.generation.wrapping_add(1).to_be_bytes());
        entry[8..].copy_from_slice(&clock.to_be_bytes());
        self.0.write_all_at(&entry, u64::from(ue.slot) * ENTRY as u64)
    }

    /// Forgets all. Errors: those of the file system.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.0.set_len(0)
    }

    /// The clocks of all UEs. Errors: those of the file system.
    pub(super) fn read(&self) -> io::Result<BTreeMap<UeId, u64>> {
        let mut octets = vec![0; usize::try_from(self.0.metadata()?.len()).unwrap_or(0)];
        self.0.read_exact_at(&mut octets, 0)?;
        let (entries, _) = octets.as_chunks::<ENTRY>();
        let of = |(slot, entry): (u32, &[u8; ENTRY])| {
            let generation = u16::from_be_bytes([entry[0], entry[1]]);
            let (_, clock) = entry.split_last_chunk::<8>()?;
            let used = generation != 0;
            used.then(|| (UeId { slot, generation: generation.wrapping_sub(1) }, u64::from_be_bytes(*clock)))
        };
        Ok((0u32..).zip(entries).filter_map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_reads_the_last_input_of_each_ue() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("inputs");
        let first = LastInputs::open(&file).unwrap();
        assert!(first.read().unwrap().is_empty());
        let (a, b) = (UeId { slot: 0, generation: 0 }, UeId { slot: 5, generation: 7 });
        for (ue, clock) in [(a, 1), (b, 1 << 40), (a, 2)] {
            first.note(ue, clock).unwrap();
        }
        drop(first);
        let next = LastInputs::open(&file).unwrap();
        assert_eq!(next.read().unwrap(), BTreeMap::from([(a, 2), (b, 1 << 40)]));
        // Another UE has the slot.
        let other = UeId { slot: 5, generation: 8 };
        next.note(other, 1).unwrap();
        assert_eq!(next.read().unwrap(), BTreeMap::from([(a, 2), (other, 1)]));
    }
}
