//! What UE and gNB say to one another over the radio, as far as the core can tell: RRC without its encoding.

use core::fmt;

use whimbrel_ids::{GlobalGnbId, Guami, PduSessionId, RanUeNgapId, STmsi, Tai};
use whimbrel_ngap::RrcEstablishmentCause;

/// A UE of the emulated RAN, by the number that its owner gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UeId(pub u32);

impl UeId {
    /// In a gNB: a UE that is on its way and has not arrived.
    pub(crate) const NOBODY: Self = Self(u32::MAX);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for UeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NOBODY => f.write_str("a UE that has not arrived"),
            Self(number) => write!(f, "UE {number}"),
        }
    }
}

/// RRC SETUP REQUEST and COMPLETE (TS 38.331 §5.3.3): what goes up with the first NAS message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The initial NAS message.
    pub nas: Vec<u8>,
    /// Why the UE connects.
    pub cause: RrcEstablishmentCause,
    /// Its short temporary identity, if the cell's area knows it.
    pub s_tmsi: Option<STmsi>,
    /// The AMF that it was registered with, if any.
    pub guami: Option<Guami>,
}

/// What a UE sends up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Up {
    /// It sets up a connection.
    Connect(Connect),
    /// A NAS message on the connection that it has.
    Nas(Vec<u8>),
    /// It has gone over to another cell, as it was told (RRCReconfigurationComplete, TS 38.331 §5.3.5.3).
    HandoverComplete {
        /// The gNB of the cell.
        to: GlobalGnbId,
        /// By what the gNB knows it: the RAN UE NGAP ID stands for the random access preamble.
        target: RanUeNgapId,
    },
    /// It left the connection without a word; in truth the gNB finds out by silence.
    Gone,
}

/// What a gNB sends down to one UE.
#[derive(Clone, PartialEq, Eq)]
pub enum Down {
    /// A NAS message.
    Nas(Vec<u8>),
    /// The AS security is activated: the UE must have derived the same K_gNB (TS 38.331 §5.3.4).
    AsSecurity {
        /// K_gNB as the AMF gave it to the gNB.
        k_gnb: [u8; 32],
    },
    /// Go over to another cell (RRCReconfiguration with synchronisation, TS 38.331 §5.3.5.5.2).
    Handover {
        /// The gNB of the cell.
        to: GlobalGnbId,
        /// The cell's area.
        tai: Tai,
        /// By what the gNB knows the UE.
        target: RanUeNgapId,
        /// Next hop chaining count of the key there.
        ncc: u8,
        /// keySetChangeIndicator: the key there is of the K_AMF that is in use now, not of the one before.
        key_set_change: bool,
        /// The cell's physical identifier.
        pci: u16,
        /// Its frequency.
        arfcn_dl: u32,
        /// The sessions that move; the bearers of others end.
        sessions: Vec<PduSessionId>,
    },
    /// The key that the target of a handover uses, for the UE to judge: not a message of RRC.
    HandoverKey {
        /// K_NG-RAN*.
        k_gnb: [u8; 32],
    },
    /// The pair that the AMF gave the gNB for the next handover, for the UE to judge: not a message of RRC.
    NextHop {
        /// Next hop chaining count.
        ncc: u8,
        /// NH.
        nh: [u8; 32],
    },
    /// The radio bearers of a session were set up or taken down.
    UserPlane {
        /// The session.
        session: PduSessionId,
        /// Whether they stand now.
        up: bool,
    },
    /// The connection is gone.
    Released,
    /// The cell does not let the UE in, as the overloaded AMF asked (RRCReject, TS 38.331 §5.3.15).
    Rejected,
}

/// Redacted where a key stands.
impl fmt::Debug for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nas(nas) => write!(f, "Nas({} octets)", nas.len()),
            Self::AsSecurity { .. } => f.write_str("AsSecurity(…)"),
            Self::Handover { to, sessions, .. } => write!(f, "Handover({to}, {} sessions)", sessions.len()),
            Self::HandoverKey { .. } => f.write_str("HandoverKey(…)"),
            Self::NextHop { ncc, .. } => write!(f, "NextHop({ncc}, …)"),
            Self::UserPlane { session, up } => write!(f, "UserPlane({session}, up: {up})"),
            Self::Released => f.write_str("Released"),
            Self::Rejected => f.write_str("Rejected"),
        }
    }
}
