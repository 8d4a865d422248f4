//! What is compared: the same program, with other codecs, replication and recovery.

use whimbrel_resilience::LogLimits;
use whimbrel_resilience::replication::{Marking, UeLogLimits};

use super::codec::Codec;

/// When a UE's state goes to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replication {
    /// State is never replicated.
    Never,
    /// When a procedure has ended.
    EveryProcedure,
    /// After every message, also in the middle of a procedure.
    EveryMessage,
}

/// Whether another CPF serves a UE after a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No change of the region.
    None,
    /// One that has the UE's state: the fast form.
    ToReplica,
    /// One that has to get it first: the default form.
    ToOther,
}

/// One way to build the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheme {
    pub(super) name: &'static str,
    pub(super) codec: Codec,
    pub(super) replication: Replication,
    /// How many others get a UE's state.
    pub(super) backups: usize,
    /// States go to them whole, also where what differs from the one before is smaller.
    pub(super) whole_states: bool,
    /// Inputs are kept, so that another CPF can run them again.
    pub(super) log: bool,
    /// The gNB knows the UE's context from the UE, and answers what the core would ask before it is asked.
    pub(super) device_state: bool,
    pub(super) change: Change,
    /// The CPF is a part of the CTA: one process, one core, no links.
    pub(super) one_process: bool,
    /// A second CTA holds each input before anything that it caused leaves.
    pub(super) replicated: bool,
    /// When a backup that lags may not serve a UE any more.
    pub(super) marking: Marking,
}

/// Ours: standard gNBs, a log, and two backups that get a UE's state when a procedure has ended.
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
    replicated: false,
    marking: Marking::WithoutLog,
};

/// Ours, but a backup that lags when a UE's next procedure begins may not serve it, as in the paper.
pub(super) const OURS_MARKED: Scheme =
    Scheme { name: "ours, the paper's marking", marking: Marking::AtNextProcedure, ..OURS };

/// Ours, with gNBs that agreed on fastwire.
pub(super) const OURS_FASTWIRE: Scheme = Scheme { name: "ours, fastwire", codec: Codec::Fastwire, ..OURS };

/// Ours, whose states always go to backups whole.
pub(super) const OURS_WHOLE: Scheme = Scheme { name: "ours, whole states", whole_states: true, ..OURS };

/// Ours, but with the conventional codec: what of the gain is replication's and recovery's.
pub(super) const OURS_CONVENTIONAL: Scheme =
    Scheme { name: "ours, conventional codec", codec: Codec::Conventional, ..OURS };

/// An existing core: the conventional codec, nothing is kept or copied, UEs attach again after a failure.
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

/// DPCM: an existing core whose gNBs get the UE's state from the UE.
pub(super) const DPCM: Scheme = Scheme { name: "DPCM", device_state: true, ..EXISTING };

/// SkyCore: an existing core that sends the UE's state to all others at every message.
pub(super) const SKYCORE: Scheme =
    Scheme { name: "SkyCore", replication: Replication::EveryMessage, backups: 4, ..EXISTING };

/// Our program as one process: CTA and CPF on one core, no log.
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

/// The same, and a CTA replica of the CTA.
pub(super) const LOG_CTA_REPLICAED: Scheme =
    Scheme { name: "log and CTA replica", replicated: true, ..LOG_ONLY };

/// A log, and the UE's state to as many as ours, at every message.
pub(super) const PER_MESSAGE: Scheme =
    Scheme { name: "at every message", replication: Replication::EveryMessage, ..OURS };

/// Ours, where a handover changes the CPF and the state has to travel first.
pub(super) const OURS_DEFAULT: Scheme = Scheme { name: "ours, default", change: Change::ToOther, ..OURS };

/// Ours, where a handover leads to a CPF that has the state.
pub(super) const OURS_FAST: Scheme = Scheme { name: "ours, fast", change: Change::ToReplica, ..OURS };

/// An existing core where a handover changes the CPF.
pub(super) const EXISTING_CHANGE: Scheme = Scheme { change: Change::ToOther, ..EXISTING };

/// The same with our codec.
pub(super) const EXISTING_CHANGE_LEAN: Scheme = Scheme { change: Change::ToOther, ..EXISTING_LEAN };

impl Scheme {
    /// What is kept of UEs' logs.
    pub(super) fn logs(&self) -> LogLimits {
        let (inputs, octets) =
            if self.log { (UeLogLimits::default().inputs, UeLogLimits::default().octets) } else { (0, 0) };
        LogLimits { ue: UeLogLimits { inputs, octets, marking: self.marking }, ..LogLimits::default() }
    }
}
