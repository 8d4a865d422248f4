//! Messages between UE and gNB: the part of RRC that affects the core, without its encoding.

use core::fmt;

use whimbrel_ids::{GlobalGnbId, Guami, PduSessionId, RanUeNgapId, STmsi, Tai};
use whimbrel_ngap::RrcEstablishmentCause;

/// Number of a UE of the emulated RAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UeId(pub u32);

impl UeId {
    /// In a gNB: the UE of a handover that has not arrived.
    pub(crate) const NOT_ARRIVED: Self = Self(u32::MAX);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for UeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NOT_ARRIVED => f.write_str("a UE that has not arrived"),
            Self(number) => write!(f, "UE {number}"),
        }
    }
}

/// RRC SETUP REQUEST and COMPLETE (TS 38.331 §5.3.3): the data with the first NAS message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The initial NAS message.
    pub nas: Vec<u8>,
    /// The establishment cause.
    pub cause: RrcEstablishmentCause,
    /// Its 5G-S-TMSI, if valid in the cell's area.
    pub s_tmsi: Option<STmsi>,
    /// The AMF that it was registered with, if any.
    pub guami: Option<Guami>,
}

/// An uplink message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UplinkMessage {
    /// It sets up a connection.
    Connect(Connect),
    /// A NAS message on its connection.
    Nas(Vec<u8>),
    /// It has completed a handover (RRCReconfigurationComplete, TS 38.331 §5.3.5.3).
    HandoverComplete {
        /// The target gNB.
        to: GlobalGnbId,
        /// The target's RAN UE NGAP ID, in place of the random access preamble.
        target: RanUeNgapId,
    },
    /// It left the connection locally; a real gNB would detect that by timeout.
    Gone,
}

/// A downlink message.
#[derive(Clone, PartialEq, Eq)]
pub enum DownlinkMessage {
    /// A NAS message.
    Nas(Vec<u8>),
    /// The AS security is activated: the UE must have derived the same K_gNB (TS 38.331 §5.3.4).
    AsSecurity {
        /// K_gNB as the AMF gave it to the gNB.
        k_gnb: [u8; 32],
    },
    /// Handover command (RRCReconfiguration with sync, TS 38.331 §5.3.5.5.2).
    Handover {
        /// The target gNB.
        to: GlobalGnbId,
        /// The cell's area.
        tai: Tai,
        /// The target's RAN UE NGAP ID.
        target: RanUeNgapId,
        /// Next hop chaining count of the key there.
        ncc: u8,
        /// keySetChangeIndicator: the key derives from the present K_AMF, not from the former one.
        key_set_change: bool,
        /// The cell's physical identifier.
        pci: u16,
        /// Downlink frequency of the target cell.
        arfcn_dl: u32,
        /// The admitted sessions; the bearers of others are released.
        sessions: Vec<PduSessionId>,
    },
    /// The target's key, for the UE to check: not an RRC message.
    HandoverKey {
        /// The key K_NG-RAN* of the target.
        k_gnb: [u8; 32],
    },
    /// The AMF's {NH, NCC} for the next handover, for the UE to check: not an RRC message.
    NextHop {
        /// Next hop chaining count.
        ncc: u8,
        /// The next hop parameter NH.
        nh: [u8; 32],
    },
    /// The radio bearers of a session were set up or released.
    UserPlane {
        /// Identity of the session.
        session: PduSessionId,
        /// Whether they are set up.
        up: bool,
    },
    /// The connection was released.
    Released,
    /// The connection is rejected because of AMF overload (RRCReject, TS 38.331 §5.3.15).
    Rejected,
}

/// Keys are redacted.
impl fmt::Debug for DownlinkMessage {
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
