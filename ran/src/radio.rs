//! What phone and gNB say to one another over the radio, as far as the core can tell: RRC without its encoding.

use core::fmt;

use whimbrel_ids::{Guami, PduSessionId, STmsi};
use whimbrel_ngap::RrcEstablishmentCause;

/// A phone of the emulated RAN, by the number that its owner gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhoneId(pub u32);

impl PhoneId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PhoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phone {}", self.0)
    }
}

/// RRC SETUP REQUEST and COMPLETE (TS 38.331 §5.3.3): what goes up with the first NAS message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The initial NAS message.
    pub nas: Vec<u8>,
    /// Why the phone connects.
    pub cause: RrcEstablishmentCause,
    /// Its short temporary identity, if the cell's area knows it.
    pub s_tmsi: Option<STmsi>,
    /// The AMF that it was registered with, if any.
    pub guami: Option<Guami>,
}

/// What a phone sends up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Up {
    /// It sets up a connection.
    Connect(Connect),
    /// A NAS message on the connection that it has.
    Nas(Vec<u8>),
    /// It left the connection without a word; in truth the gNB finds out by silence.
    Gone,
}

/// What a gNB sends down to one phone.
#[derive(Clone, PartialEq, Eq)]
pub enum Down {
    /// A NAS message.
    Nas(Vec<u8>),
    /// The AS security is activated: the phone must have derived the same K_gNB (TS 38.331 §5.3.4).
    AsSecurity {
        /// K_gNB as the AMF gave it to the gNB.
        k_gnb: [u8; 32],
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
}

/// Redacted where a key stands.
impl fmt::Debug for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nas(nas) => write!(f, "Nas({} octets)", nas.len()),
            Self::AsSecurity { .. } => f.write_str("AsSecurity(…)"),
            Self::UserPlane { session, up } => write!(f, "UserPlane({session}, up: {up})"),
            Self::Released => f.write_str("Released"),
        }
    }
}
