//! Cause, Offending IE and Failed Rule ID: how a request fared.

use core::fmt;

use whimbrel_ids::{DecodeErrorKind, Reader};

use crate::codec::{Ie, code};
use crate::error::Error;
use crate::ie::{BarId, FarId, PdrId, QerId, UrrId};

code! {
    /// Outcome of a request (TS 29.244 §8.2.1, table 8.2.1-1).
    pub enum Cause(mask 0xff): "Cause" {
        /// The request is accepted.
        RequestAccepted = 1,
        /// Accepted, and further usage reports follow in Session Report Requests.
        MoreUsageReportToSend = 2,
        /// Accepted in part.
        RequestPartiallyAccepted = 3,
        /// Rejected without a more specific reason.
        RequestRejected = 64,
        /// No session of that SEID.
        SessionContextNotFound = 65,
        /// A mandatory element is absent.
        MandatoryIeMissing = 66,
        /// An element that this case demands is absent.
        ConditionalIeMissing = 67,
        /// An element's length is wrong.
        InvalidLength = 68,
        /// A mandatory element has a wrong value.
        MandatoryIeIncorrect = 69,
        /// The forwarding policy is not known.
        InvalidForwardingPolicy = 70,
        /// F-TEIDs are chosen by one side only, and this asked the other.
        InvalidFTeidAllocationOption = 71,
        /// No association with that node.
        NoEstablishedPfcpAssociation = 72,
        /// A rule could not be created or changed.
        RuleCreationModificationFailure = 73,
        /// The node is too busy.
        PfcpEntityInCongestion = 74,
        /// A resource has run out.
        NoResourcesAvailable = 75,
        /// Something asked for is not supported.
        ServiceNotSupported = 76,
        /// Failure of the system itself.
        SystemFailure = 77,
        /// Try the entity named instead.
        RedirectionRequested = 78,
        /// The pool of UE addresses is empty.
        AllDynamicAddressesAreOccupied = 79,
        /// No predefined rule of that name.
        UnknownPreDefinedRule = 80,
        /// No application of that identifier.
        UnknownApplicationId = 81,
        /// The L2TP tunnel could not be set up.
        L2tpTunnelEstablishmentFailure = 82,
        /// The L2TP session could not be set up.
        L2tpSessionEstablishmentFailure = 83,
        /// The L2TP tunnel was released.
        L2tpTunnelRelease = 84,
        /// The L2TP session was released.
        L2tpSessionRelease = 85,
        /// A session could not be restored.
        PfcpSessionRestorationFailure = 86,
    }
}

/// The cause in the standard's words (TS 29.244 §8.2.1).
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestAccepted => "request accepted",
            Self::MoreUsageReportToSend => "more usage report to send",
            Self::RequestPartiallyAccepted => "request partially accepted",
            Self::RequestRejected => "request rejected",
            Self::SessionContextNotFound => "session context not found",
            Self::MandatoryIeMissing => "mandatory IE missing",
            Self::ConditionalIeMissing => "conditional IE missing",
            Self::InvalidLength => "invalid length",
            Self::MandatoryIeIncorrect => "mandatory IE incorrect",
            Self::InvalidForwardingPolicy => "invalid forwarding policy",
            Self::InvalidFTeidAllocationOption => "invalid F-TEID allocation option",
            Self::NoEstablishedPfcpAssociation => "no established PFCP association",
            Self::RuleCreationModificationFailure => "rule creation/modification failure",
            Self::PfcpEntityInCongestion => "PFCP entity in congestion",
            Self::NoResourcesAvailable => "no resources available",
            Self::ServiceNotSupported => "service not supported",
            Self::SystemFailure => "system failure",
            Self::RedirectionRequested => "redirection requested",
            Self::AllDynamicAddressesAreOccupied => "all dynamic addresses are occupied",
            Self::UnknownPreDefinedRule => "unknown pre-defined rule",
            Self::UnknownApplicationId => "unknown application ID",
            Self::L2tpTunnelEstablishmentFailure => "L2TP tunnel establishment failure",
            Self::L2tpSessionEstablishmentFailure => "L2TP session establishment failure",
            Self::L2tpTunnelRelease => "L2TP tunnel release",
            Self::L2tpSessionRelease => "L2TP session release",
            Self::PfcpSessionRestorationFailure => "PFCP session restoration failure",
        })
    }
}

impl Cause {
    /// Whether the request took effect, wholly or in part.
    pub const fn is_accepted(self) -> bool {
        (self as u8) < 64
    }
}

/// Type of the element that was missing or wrong (TS 29.244 §8.2.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffendingIe(pub u16);

impl Ie for OffendingIe {
    const NAME: &'static str = "Offending IE";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.u16(Self::NAME)?))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }
}

/// The rule that could not be stored (TS 29.244 §8.2.80).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant names a kind of rule")]
pub enum FailedRuleId {
    Pdr(PdrId),
    Far(FarId),
    Qer(QerId),
    Urr(UrrId),
    Bar(BarId),
}

impl Ie for FailedRuleId {
    const NAME: &'static str = "Failed Rule ID";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        Ok(match r.u8(Self::NAME)? & 0x1f {
            0 => Self::Pdr(PdrId(r.u16(Self::NAME)?)),
            1 => Self::Far(FarId(r.u32(Self::NAME)?)),
            2 => Self::Qer(QerId(r.u32(Self::NAME)?)),
            3 => Self::Urr(UrrId(r.u32(Self::NAME)?)),
            4 => Self::Bar(BarId(r.u8(Self::NAME)?)),
            _ => return Err(Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at)),
        })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, id: &[u8]| {
            out.push(kind);
            out.extend_from_slice(id);
        };
        match self {
            Self::Pdr(id) => put(0, &id.0.to_be_bytes()),
            Self::Far(id) => put(1, &id.0.to_be_bytes()),
            Self::Qer(id) => put(2, &id.0.to_be_bytes()),
            Self::Urr(id) => put(3, &id.0.to_be_bytes()),
            Self::Bar(id) => put(4, &id.0.to_be_bytes()),
        }
    }
}
