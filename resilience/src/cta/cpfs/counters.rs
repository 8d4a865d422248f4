//! Figures of replication, and the rules that a CPF can break.

use serde::{Deserialize, Serialize};

/// Counters of takeovers, moves, logs and checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationCounters {
    /// CPFs that were lost.
    pub cpfs_lost: u64,
    /// UEs that another CPF took over.
    pub taken_over: u64,
    /// Inputs that were replayed for that.
    pub replayed: u64,
    /// Of these, inputs that may have ended the lost CPF and went through the replay sandbox first.
    pub tried: u64,
    /// UEs with an input that ended the replay sandbox: their contexts were discarded.
    pub poisoned: u64,
    /// UEs without a usable checkpoint: they register again.
    pub lost: u64,
    /// Checkpoints that could not be used: unreadable, or of another UE or clock than their sender claimed.
    pub unreadable: u64,
    /// UEs that moved to another CPF without a loss.
    pub moved: u64,
    /// Of these, moves that needed no transfer, since the checkpoint was there (Neutrino §4.3, fast handover).
    pub moved_fast: u64,
    /// Moves that were given up, since the checkpoint did not arrive in time.
    pub moves_given_up: u64,
    /// Backups for which a log was not kept any longer.
    pub lagging: u64,
    /// Batches of CPFs that are not the UE's primary, discarded.
    pub fenced: u64,
    /// Acknowledgements of checkpoints that cannot exist: their clock was not released yet, or their term has not begun.
    pub checkpoint_acks_refused: u64,
    /// Replays whose outputs differed from those that had left.
    pub diverged: u64,
    /// Batches that used a downlink NAS COUNT twice: none of their outputs left.
    pub nas_count_reuse: u64,
}

/// A rule of the replication protocol that a CPF breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProtocolViolation {
    /// It sends for a UE of which it is not the primary; it may have been until a moment ago.
    Fenced,
    /// It acknowledges a checkpoint that cannot exist yet.
    AckRefused,
    /// Its checkpoint of a UE is unusable, or the one that it was sent is.
    CheckpointUnusable,
    /// Its outputs for an input differ from those that have left.
    Diverged,
    /// It used a downlink NAS COUNT twice under the same keys (TS 33.501 §6.4.3.1).
    NasCountReuse,
    /// It does not acknowledge checkpoints, and a log is not kept for it any longer.
    Lagging,
}
