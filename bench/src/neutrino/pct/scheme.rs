//! What is compared: the same program, with other codecs, replication and recovery.

use whimbrel_resilience::Logs;
use whimbrel_resilience::replication::{Bounds, Marking};

use super::codec::Codec;

/// When a phone's state goes to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replication {
    /// Never.
    Never,
    /// When a procedure has ended.
    EveryProcedure,
    /// After every message, also in the middle of a procedure.
    EveryMessage,
}

/// Whether another control function serves a phone after a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No.
    None,
    /// One that has the phone's state: the fast form.
    ToReplica,
    /// One that has to get it first: the default form.
    ToStranger,
}

/// One way to build the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheme {
    pub(super) name: &'static str,
    pub(super) codec: Codec,
    pub(super) replication: Replication,
    /// How many others get a phone's state.
    pub(super) backups: usize,
    /// States go to them whole, also where what differs from the one before is smaller.
    pub(super) whole_states: bool,
    /// Inputs are kept, so that another control function can run them again.
    pub(super) log: bool,
    /// The gNB knows the phone's context from the phone, and answers what the core would ask before it is asked.
    pub(super) device_state: bool,
    pub(super) change: Change,
    /// The control function is a part of the aggregator: one process, one core, no links.
    pub(super) one_process: bool,
    /// A second aggregator holds each input before anything that it caused leaves.
    pub(super) mirrored: bool,
    /// When a backup that lags may not serve a phone any more.
    pub(super) marking: Marking,
}

/// Ours: standard gNBs, a log, and two backups that get a phone's state when a procedure has ended.
pub(super) const OURS: Scheme = Scheme {
    name: "ours",
    codec: Codec::Lean,
    replication: Replication::EveryProcedure,
    backups: 2,
    whole_states: false,
    log: true,
    device_state: false,
    change: Change::None,
    one_process: false,
    mirrored: false,
    marking: Marking::WithoutLog,
};

/// Ours, but a backup that lags when a phone's next procedure begins may not serve it, as in the paper.
pub(super) const OURS_MARKED: Scheme =
    Scheme { name: "ours, the paper's marking", marking: Marking::AtNextProcedure, ..OURS };

/// Ours, with gNBs that agreed on fastwire.
pub(super) const OURS_FASTWIRE: Scheme = Scheme { name: "ours, fastwire", codec: Codec::Fastwire, ..OURS };

/// Ours, whose states always go to backups whole.
pub(super) const OURS_WHOLE: Scheme = Scheme { name: "ours, whole states", whole_states: true, ..OURS };

/// Ours, but with the conventional codec: what of the gain is replication's and recovery's.
pub(super) const OURS_CONVENTIONAL: Scheme =
    Scheme { name: "ours, conventional codec", codec: Codec::Conventional, ..OURS };

/// An existing core: the conventional codec, nothing is kept or copied, phones attach anew after a failure.
pub(super) const EXISTING: Scheme = Scheme {
    name: "existing",
    codec: Codec::Conventional,
    replication: Replication::Never,
    backups: 0,
    log: false,
    ..OURS
};

/// The same with our codec: what of the gain is the codec's.
pub(super) const EXISTING_LEAN: Scheme =
    Scheme { name: "existing, our codec", codec: Codec::Lean, ..EXISTING };

/// DPCM: an existing core whose gNBs get the phone's state from the phone.
pub(super) const DPCM: Scheme = Scheme { name: "DPCM", device_state: true, ..EXISTING };

/// SkyCore: an existing core that sends the phone's state to all others at every message.
pub(super) const SKYCORE: Scheme =
    Scheme { name: "SkyCore", replication: Replication::EveryMessage, backups: 4, ..EXISTING };

/// Our program as one process: aggregator and control function on one core, no log.
pub(super) const ONE_PROCESS: Scheme = Scheme {
    name: "ours, one process",
    replication: Replication::Never,
    backups: 0,
    log: false,
    one_process: true,
    ..OURS
};

/// Nothing is kept or copied.
pub(super) const NO_REPLICA: Scheme = Scheme { codec: Codec::Lean, name: "never", ..EXISTING };

/// Inputs are kept until their outputs have left, and nothing is copied.
pub(super) const LOG_ONLY: Scheme = Scheme { name: "log alone", log: true, ..NO_REPLICA };

/// The same, and a mirror of the aggregator.
pub(super) const LOG_MIRRORED: Scheme = Scheme { name: "log and mirror", mirrored: true, ..LOG_ONLY };

/// A log, and the phone's state to as many as ours, at every message.
pub(super) const PER_MESSAGE: Scheme =
    Scheme { name: "at every message", replication: Replication::EveryMessage, ..OURS };

/// Ours, where a handover changes the control function and the state has to travel first.
pub(super) const OURS_DEFAULT: Scheme = Scheme { name: "ours, default", change: Change::ToStranger, ..OURS };

/// Ours, where a handover leads to a control function that has the state.
pub(super) const OURS_FAST: Scheme = Scheme { name: "ours, fast", change: Change::ToReplica, ..OURS };

/// An existing core where a handover changes the control function.
pub(super) const EXISTING_CHANGE: Scheme = Scheme { change: Change::ToStranger, ..EXISTING };

/// The same with our codec.
pub(super) const EXISTING_CHANGE_LEAN: Scheme = Scheme { change: Change::ToStranger, ..EXISTING_LEAN };

impl Scheme {
    /// What is kept of phones' logs.
    pub(super) fn logs(&self) -> Logs {
        let (inputs, octets) =
            if self.log { (Bounds::default().inputs, Bounds::default().octets) } else { (0, 0) };
        Logs { phone: Bounds { inputs, octets, marking: self.marking }, ..Logs::default() }
    }
}
