//! A session as the packet side knows it: its rules, and what changes with every packet.

use std::sync::Arc;

use whimbrel_ids::Instant;

use super::ethernet::Learnt;
use super::held::BufferedPackets;
use super::meter::Meter;
use super::naming::Naming;
use super::usage::Usage;
use crate::exchange::UserPlaneReport;
use crate::rules::SessionRules;
use crate::session_id::SessionId;
use crate::state::stored;

/// What one session sent, received and lost. Octets of inner packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Packets that the UE sent and the UPF forwarded.
    pub ul_packets: u64,
    /// Octets of the uplink packets.
    pub ul_octets: u64,
    /// Packets forwarded to the UE.
    pub dl_packets: u64,
    /// Octets of the downlink packets.
    pub dl_octets: u64,
    /// Packets of the session that were dropped.
    pub dropped: u64,
}

stored!(SessionCounters { ul_packets, ul_octets, dl_packets, dl_octets, dropped });

/// A session: its rules, which are shared and immutable, and what changes with every packet.
#[repr(C)]
pub(super) struct SessionU {
    pub(super) rules: Arc<SessionRules>,
    pub(super) state: SessionState,
}

/// What changes with every packet. What every packet touches stands first.
#[repr(C)]
pub(super) struct SessionState {
    pub(super) meters: Box<[Meter]>,
    pub(super) usage: Box<[Usage]>,
    pub(super) generation: u32,
    /// The SMF knows that packets wait.
    pub(super) notified: bool,
    /// The SMF knows that no packets come.
    pub(super) inactive: bool,
    /// The SMF knows that a peer lost the tunnel.
    pub(super) error_reported: bool,
    /// The deadline is to be computed again.
    pub(super) rearm: bool,
    pub(super) last_packet: Instant,
    /// Of the rules: no others in this pipeline have it. Zero where no packet meets a filter.
    pub(super) rules_number: u64,
    pub(super) counters: SessionCounters,
    // From here on only what happens seldom.
    pub(super) index: u32,
    pub(super) deadline: Option<Instant>,
    pub(super) next_advertisement: Option<Instant>,
    pub(super) held: BufferedPackets,
    /// The report for the SMF when its delay is over, if packets are still buffered then.
    pub(super) notice: Option<Box<(Instant, UserPlaneReport)>>,
    /// Until when buffered packets are not reported again.
    pub(super) quiet_until: Option<Instant>,
    /// When to see whether it can be folded; zero before the first look.
    pub(super) fold_at: Instant,
    /// By which names its packets are known, where a rule asks.
    pub(super) naming: Option<Box<Naming>>,
    /// Addresses that the UE uses, in an Ethernet session.
    pub(super) macs: Vec<Learnt>,
}

// Two cache lines are hot.
const _: () = assert!(std::mem::offset_of!(SessionState, index) <= 120 && size_of::<SessionU>() <= 256);

impl SessionState {
    pub(super) fn id(&self) -> SessionId {
        SessionId { index: self.index, generation: self.generation }
    }
}
