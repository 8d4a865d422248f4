//! The PDU session user plane protocol: QoS flow of each packet between UP function and gNB.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Qfi};

const IE: &str = "PDU session container";

/// Content of the PDU session container (TS 38.415 §5.5.2). Delay and sequence fields are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduSessionInformation {
    /// DL PDU SESSION INFORMATION (TS 38.415 §5.5.2.1), towards the gNB.
    Dl {
        /// Identifier of the QoS flow.
        qfi: Qfi,
        /// Reflective QoS indicator.
        rqi: bool,
        /// Paging policy indicator, 0 to 7, if paging policies are distinguished.
        ppi: Option<u8>,
    },
    /// UL PDU SESSION INFORMATION (TS 38.415 §5.5.2.2), from the gNB.
    Ul {
        /// Identifier of the QoS flow.
        qfi: Qfi,
    },
}

impl PduSessionInformation {
    /// The QoS flow.
    pub const fn qfi(self) -> Qfi {
        match self {
            Self::Dl { qfi, .. } | Self::Ul { qfi } => qfi,
        }
    }

    /// Reads the content of the extension header that begins at `offset` of the message.
    pub(crate) fn parse(content: &[u8], offset: usize) -> Result<Self, DecodeError> {
        let error = |kind| DecodeError::new(kind, IE, offset);
        let &[first, second, ref rest @ ..] = content else {
            return Err(error(DecodeErrorKind::Truncated));
        };
        let qfi = Qfi::new(second & 0x3f).ok_or(error(DecodeErrorKind::InvalidValue))?;
        match first >> 4 {
            0 => {
                let ppi = match (second & 0x80 != 0, rest.first()) {
                    (false, _) => None,
                    (true, Some(o)) => Some(o >> 5),
                    (true, None) => return Err(error(DecodeErrorKind::Truncated)),
                };
                Ok(Self::Dl { qfi, rqi: second & 0x40 != 0, ppi })
            }
            1 => Ok(Self::Ul { qfi }),
            _ => Err(error(DecodeErrorKind::Unknown)),
        }
    }

    /// The extension header: length, content, padding, and "no more" as the next type; and how many octets
    /// of it count.
    pub(crate) const fn extension_header(self) -> ([u8; 8], usize) {
        match self {
            Self::Dl { qfi, rqi, ppi: None } => ([1, 0x00, (rqi as u8) << 6 | qfi.value(), 0, 0, 0, 0, 0], 4),
            Self::Dl { qfi, rqi, ppi: Some(ppi) } => {
                ([2, 0x00, 0x80 | (rqi as u8) << 6 | qfi.value(), (ppi & 7) << 5, 0, 0, 0, 0], 8)
            }
            Self::Ul { qfi } => ([1, 0x10, qfi.value(), 0, 0, 0, 0, 0], 4),
        }
    }
}
