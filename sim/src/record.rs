//! The core's inputs, recorded so that they can be replayed.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_control::config::Config;
use whimbrel_control::{Batch, Checkpoint, Delta, Disposition, Effect, Envelope, Output, Shard, UeId};
use whimbrel_resilience::Inspect;

/// One input and its result.
#[derive(Clone, Debug)]
pub struct RecordedInput {
    /// The input with its clock and time.
    pub envelope: Envelope,
    /// Digest of its batch.
    pub digest: u64,
    /// No procedure was in flight after it.
    pub idle: bool,
    /// The UE's context ended with it.
    pub ended: bool,
}

/// Stores every input of every UE, in order.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Off by default: a long simulation would fill the memory.
    pub on: bool,
    /// A faulty CPF may use a COUNT again.
    pub(crate) has_faulty_cpfs: bool,
    ues: BTreeMap<UeId, Vec<RecordedInput>>,
    digest: u64,
    inputs: u64,
    /// The newest downlink NAS COUNT of each UE.
    counts: BTreeMap<UeId, u32>,
    /// The clock of the last input of each UE whose outputs may have left.
    last_inputs: BTreeMap<UeId, u64>,
    /// UEs with an input since they were last asked for.
    touched: Vec<UeId>,
}

impl Inspect for Recorder {
    fn ran(&mut self, envelope: &Envelope, batch: &Batch) {
        let digest = batch.digest();
        self.digest = self.digest.rotate_left(7) ^ digest;
        self.inputs += 1;
        self.touched.push(envelope.ue);
        if self.on {
            let ended = matches!(batch.disposition, Disposition::Ended | Disposition::Elsewhere(_));
            let recorded = RecordedInput { envelope: envelope.clone(), digest, idle: batch.idle, ended };
            self.ues.entry(envelope.ue).or_default().push(recorded);
        }
    }

    fn released(&mut self, ue: UeId, clock: u64, batch: &Batch) {
        self.check_counts(ue, batch);
        if !batch.no_effect {
            self.last_inputs.insert(ue, clock);
        }
    }
}

impl Recorder {
    /// TS 33.501 §6.4.3.1: a downlink COUNT is used once under its keys. It begins again with a message under new keys,
    /// SECURITY MODE COMMAND, and with no other (TS 24.501 §9.3.1: security header type 3).
    fn check_counts(&mut self, ue: UeId, batch: &Batch) {
        for output in &batch.outputs {
            let Some(count) = output.downlink_count else { continue };
            let before = self.counts.insert(ue, count);
            let grows = before.is_none_or(|b| b < count);
            assert!(
                grows || new_keys(output) || self.has_faulty_cpfs,
                "{ue:?} used COUNT {count} after {before:?}"
            );
        }
    }

    /// The clocks of the last inputs of UEs.
    pub(crate) fn last_inputs(&self) -> &BTreeMap<UeId, u64> {
        &self.last_inputs
    }

    /// The UEs that had an input since the last call.
    pub(crate) fn touched(&mut self) -> Vec<UeId> {
        std::mem::take(&mut self.touched)
    }

    /// What a restart of the core keeps: the digest and the number of inputs, and the COUNTs of UEs if it keeps UEs.
    pub(crate) fn restarted(&mut self, keeps_ues: bool) -> Self {
        let counts = if keeps_ues { std::mem::take(&mut self.counts) } else { BTreeMap::new() };
        let last_inputs = std::mem::take(&mut self.last_inputs);
        Self { digest: self.digest, inputs: self.inputs, on: self.on, counts, last_inputs, ..Self::default() }
    }

    /// The UE is gone.
    pub(crate) fn ended(&mut self, ue: UeId) {
        self.counts.remove(&ue);
    }

    /// A digest of everything that the core did: the same seed gives the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many inputs ran.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// The recorded UEs.
    pub fn contexts(&self) -> impl Iterator<Item = (UeId, &[RecordedInput])> {
        self.ues.iter().map(|(&p, r)| (p, r.as_slice()))
    }

    /// Runs a UE's inputs again, once from the beginning and once from each point where it was idle, on shards of
    /// their own, and compares every batch. Inputs, batches and the UE at rest go through the octets in which they
    /// travel between processes. Returns how many inputs ran again.
    ///
    /// # Panics
    /// Where a batch differs: the result depends on more than the inputs, or the octets do not contain all of them.
    pub fn replay(&self, ue: UeId, config: &Arc<Config>) -> usize {
        let Some(log) = self.ues.get(&ue) else { return 0 };
        let mut shard = Shard::new(config.clone());
        let mut checkpoints: Vec<(usize, Checkpoint)> = Vec::new();
        let mut runs = 0;
        for (i, recorded) in log.iter().enumerate() {
            rerun(&mut shard, recorded, i);
            runs += 1;
            if let Some(ue) = shard.checkpoint(ue) {
                assert!(recorded.idle || recorded.ended, "input {i}: idle only in replay");
                let checkpoint = Checkpoint::of(&ue).expect("it is idle");
                if let Some((_, base)) = checkpoints.last()
                    && let Some(delta) = Delta::between(base, &checkpoint)
                {
                    let delta =
                        Delta::from_octets(delta.octets()).expect("a delta is read as it was written");
                    assert_eq!(delta.apply(base).as_ref(), Ok(&checkpoint), "input {i}");
                }
                checkpoints.push((i + 1, checkpoint));
            }
        }
        for (from, checkpoint) in checkpoints {
            let mut shard = Shard::new(config.clone());
            let travelled = Checkpoint::from_octets(checkpoint.octets()).and_then(|c| c.context());
            let ue = travelled.expect("a checkpoint is read as it was written");
            assert_eq!(Checkpoint::of(&ue).as_ref(), Some(&checkpoint), "before input {from}");
            shard.restore(ue);
            for (i, recorded) in log.iter().enumerate().skip(from) {
                rerun(&mut shard, recorded, i);
                runs += 1;
            }
        }
        runs
    }
}

/// Whether the output holds a NAS message that is integrity protected with a new security context.
fn new_keys(output: &Output) -> bool {
    let Effect::N2 { octets, .. } = &output.effect else { return false };
    octets.windows(2).any(|w| w == [0x7e, 3])
}

fn rerun(shard: &mut Shard, recorded: &RecordedInput, i: usize) {
    let octets = recorded.envelope.to_flat();
    let envelope = Envelope::from_flat(octets.octets()).expect("an envelope is read as it was written");
    assert_eq!(envelope.to_flat(), octets, "input {i}");
    let octets = shard.handle(&envelope).to_flat();
    let batch = Batch::from_flat(octets.octets()).expect("a batch is read as it was written");
    assert_eq!(batch.to_flat(), octets, "input {i}");
    assert_eq!(
        batch.digest(),
        recorded.digest,
        "input {i} of {:?} led elsewhere in replay: {:?}",
        recorded.envelope.ue,
        recorded.envelope.payload
    );
}
