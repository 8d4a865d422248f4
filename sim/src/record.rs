//! The core's inputs, kept so that they can be run again.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_control::config::Config;
use whimbrel_control::{Batch, Disposition, Envelope, Phone, PhoneId, Shard};
use whimbrel_resilience::Inspect;

/// One input, and what it led to.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The input.
    pub envelope: Envelope,
    /// Digest of its batch.
    pub digest: u64,
    /// No procedure was in flight after it.
    pub idle: bool,
    /// The phone's context ended with it.
    pub ended: bool,
}

/// Keeps every input of every phone, in order.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Off by default: a long simulation would fill the memory.
    pub on: bool,
    phones: BTreeMap<PhoneId, Vec<Recorded>>,
    digest: u64,
    inputs: u64,
    /// The newest downlink NAS COUNT of each phone.
    counts: BTreeMap<PhoneId, u32>,
}

impl Inspect for Recorder {
    fn ran(&mut self, envelope: &Envelope, batch: &Batch) {
        let digest = batch.digest();
        self.digest = self.digest.rotate_left(7) ^ digest;
        self.inputs += 1;
        self.check_counts(envelope.phone, batch);
        if self.on {
            let ended = matches!(batch.disposition, Disposition::Ended | Disposition::Elsewhere(_));
            let recorded = Recorded { envelope: envelope.clone(), digest, idle: batch.idle, ended };
            self.phones.entry(envelope.phone).or_default().push(recorded);
        }
    }
}

impl Recorder {
    /// TS 33.501 §6.4.3.1: a downlink COUNT is used once under its keys. New keys begin at zero.
    fn check_counts(&mut self, phone: PhoneId, batch: &Batch) {
        for count in batch.outputs.iter().filter_map(|o| o.downlink_count) {
            let before = self.counts.insert(phone, count);
            assert!(
                count == 0 || before.is_none_or(|b| b < count),
                "{phone:?} used COUNT {count} after {before:?}"
            );
        }
    }

    /// A digest of everything that the core did: the same seed gives the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many inputs ran.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// The recorded phones.
    pub fn phones(&self) -> impl Iterator<Item = (PhoneId, &[Recorded])> {
        self.phones.iter().map(|(&p, r)| (p, r.as_slice()))
    }

    /// Runs a phone's inputs again, once from the beginning and once from each point where it was idle, on shards of
    /// their own, and compares every batch. Returns how many inputs ran again.
    ///
    /// # Panics
    /// Where a batch differs: the machine is not a function of its inputs.
    pub fn replay(&self, phone: PhoneId, config: &Arc<Config>) -> usize {
        let Some(log) = self.phones.get(&phone) else { return 0 };
        let mut shard = Shard::new(config.clone());
        let mut checkpoints: Vec<(usize, Box<Phone>)> = Vec::new();
        let mut runs = 0;
        for (i, recorded) in log.iter().enumerate() {
            rerun(&mut shard, recorded, i);
            runs += 1;
            if let Some(checkpoint) = shard.checkpoint(phone) {
                assert!(recorded.idle || recorded.ended, "input {i}: idle only in replay");
                checkpoints.push((i + 1, checkpoint));
            }
        }
        for (from, checkpoint) in checkpoints {
            let mut shard = Shard::new(config.clone());
            shard.restore(checkpoint);
            for (i, recorded) in log.iter().enumerate().skip(from) {
                rerun(&mut shard, recorded, i);
                runs += 1;
            }
        }
        runs
    }
}

fn rerun(shard: &mut Shard, recorded: &Recorded, i: usize) {
    let batch = shard.handle(&recorded.envelope);
    assert_eq!(
        batch.digest(),
        recorded.digest,
        "input {i} of {:?} led elsewhere in replay: {:?}",
        recorded.envelope.phone,
        recorded.envelope.payload
    );
}
