//! What waits for UEs, at most (TS 23.501 §5.8.3): packets, octets and time, of one session and of all.

use std::time::Duration;

use crate::limits::{HELD_MAX, HELD_PER_SESSION_MAX, STRAYS_MAX};

/// Bounds on packets that wait for UEs. What each of them refuses is dropped by a [`crate::DropReason`] of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffering {
    /// Packets of one session, where no BAR suggests fewer; up to [`HELD_PER_SESSION_MAX`].
    pub packets_per_session: u16,
    /// Octets of one session.
    pub octets_per_session: u32,
    /// Packets of all sessions, up to [`HELD_MAX`]. Each keeps a buffer of some 2 KiB.
    pub packets: u32,
    /// Octets of all sessions.
    pub octets: u32,
    /// Packets of no session that wait while it is asked whether one is on its way, up to [`STRAYS_MAX`]; with none, they are dropped at once.
    pub strays: u16,
    /// How long a packet waits; longer where the SMF says so (DL Buffering Duration, TS 29.244 §5.2.4.2).
    pub age: Duration,
    /// Whether packets whose ends know no ECN are dropped by chance as a session's buffer fills from half on (RFC 7567). Without, a buffer
    /// loses nothing up to its bounds, as a handover wants it.
    pub early_drop: bool,
}

impl Default for Buffering {
    fn default() -> Self {
        Self {
            // 10,000 a second through a handover of 130 ms (L25GC §5.4.2), of 1,500 octets.
            packets_per_session: 1_500,
            octets_per_session: 1_500 * 1_500,
            // 32 MiB of buffers.
            packets: 16_384,
            octets: 16_384 * 1_500,
            strays: 0,
            // Longer than a UE without power saving is paged (T3513, four times), and than most ends wait for an answer.
            age: Duration::from_secs(60),
            early_drop: false,
        }
    }
}

/// A bound that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferingError {
    /// Name of the field that is out of bounds.
    pub bound: &'static str,
    /// What it may be at most.
    pub most: u64,
}

impl Buffering {
    /// The longest age: what a UE that sleeps for the longest eDRX cycle (10,486 s) is waited for.
    pub const AGE_MAX: Duration = Duration::from_secs(3 * 3_600);

    /// How long a packet of no session waits: longer than UPF-C takes to answer and a flood of changes to be applied, shorter than
    /// its sender takes to repeat it.
    pub const STRAY_AGE: Duration = Duration::from_millis(200);

    /// Errors: the first bound that is zero or too high.
    pub(crate) fn check(&self) -> Result<(), BufferingError> {
        let age_ms = u64::try_from(self.age.as_millis()).unwrap_or(u64::MAX);
        let bounds = [
            ("packets_per_session", self.packets_per_session.into(), HELD_PER_SESSION_MAX.into()),
            ("octets_per_session", self.octets_per_session.into(), u32::MAX.into()),
            ("packets", self.packets.into(), HELD_MAX as u64),
            ("octets", self.octets.into(), u32::MAX.into()),
            ("age", age_ms, Self::AGE_MAX.as_millis() as u64),
        ];
        if self.strays > STRAYS_MAX {
            return Err(BufferingError { bound: "strays", most: STRAYS_MAX.into() });
        }
        match bounds.into_iter().find(|(_, given, most)| !(1..=*most).contains(given)) {
            Some((bound, _, most)) => Err(BufferingError { bound, most }),
            None => Ok(()),
        }
    }
}
