//! N2 SM information: transfers between SMF and RAN, which the AMF forwards unread (TS 38.413 §9.3.4).

mod handover;
mod path_switch_request;
mod pdu_session_resource_modify;
mod pdu_session_resource_modify_indication;
mod pdu_session_resource_notify;
mod pdu_session_resource_release;
mod pdu_session_resource_setup;
mod secondary_rat_data_usage_report;
mod transparent_container;

pub use handover::*;
pub use path_switch_request::*;
pub use pdu_session_resource_modify::*;
pub use pdu_session_resource_modify_indication::*;
pub use pdu_session_resource_notify::*;
pub use pdu_session_resource_release::*;
pub use pdu_session_resource_setup::*;
pub use secondary_rat_data_usage_report::*;
pub use transparent_container::*;

use whimbrel_ids::{DecodeError, DecodeErrorKind};

#[cfg(any(test, feature = "samples"))]
use crate::aper::sample::Source;
use crate::aper::{Aper, Reader, Writer};
use crate::container::{Diagnosis, IeSequence};

/// The face of the transfers: what messages carry as octets.
macro_rules! face {
    ($($name:ident),* $(,)?) => { $(
        impl $name {
            /// Reads the octets of a transfer.
            ///
            /// Errors: [`DecodeError`] of kind `Unknown` for what an unknown extension or value asks to reject.
            pub fn decode(octets: &[u8]) -> Result<Self, DecodeError> {
                let mut r = Reader::new(octets, 0, stringify!($name));
                Self::read(&mut r).map_err(|fault| fault.into_decode_error(stringify!($name)))
            }

            /// The octets of the transfer.
            pub fn to_vec(&self) -> Vec<u8> {
                let mut out = Vec::with_capacity(64);
                self.write(&mut Writer::new(&mut out));
                out
            }
        }
    )* };
}

face!(SourceToTargetTransparentContainer, TargetToSourceTransparentContainer);

/// The transfers that are plain sequences.
macro_rules! transfers {
    ($($name:ident),* $(,)?) => {
        face!($($name),*);

        /// A sample of each transfer that is a plain sequence: its name in the standard's words, and its octets.
        #[cfg(any(test, feature = "samples"))]
        fn sequence_samples(s: &mut Source) -> Vec<(&'static str, Vec<u8>)> {
            vec![$( (stringify!($name), $name::sample(s).to_vec()), )*]
        }
    };
}

transfers!(
    PduSessionResourceSetupResponseTransfer,
    PduSessionResourceSetupUnsuccessfulTransfer,
    PduSessionResourceReleaseCommandTransfer,
    PduSessionResourceReleaseResponseTransfer,
    PduSessionResourceModifyResponseTransfer,
    PduSessionResourceModifyUnsuccessfulTransfer,
    PduSessionResourceModifyIndicationTransfer,
    PduSessionResourceModifyConfirmTransfer,
    PduSessionResourceModifyIndicationUnsuccessfulTransfer,
    PduSessionResourceNotifyTransfer,
    PduSessionResourceNotifyReleasedTransfer,
    PathSwitchRequestTransfer,
    PathSwitchRequestAcknowledgeTransfer,
    PathSwitchRequestSetupFailedTransfer,
    PathSwitchRequestUnsuccessfulTransfer,
    HandoverRequiredTransfer,
    HandoverCommandTransfer,
    HandoverRequestAcknowledgeTransfer,
    HandoverPreparationUnsuccessfulTransfer,
    HandoverResourceAllocationUnsuccessfulTransfer,
    SecondaryRatDataUsageReportTransfer,
);

/// The same face for the transfers that are containers of protocol IEs.
macro_rules! container_transfers {
    ($($name:ident),* $(,)?) => {
        $(
        impl $name {
            /// Reads the octets of a transfer.
            ///
            /// Errors: [`DecodeError`] of kind `MissingMandatory` or `Unknown` for an IE that is missing, or not
            /// understood and marked "reject"; `InvalidValue` for an IE that comes twice.
            pub fn decode(octets: &[u8]) -> Result<Self, DecodeError> {
                let mut diagnosis = Diagnosis::default();
                let mut r = Reader::new(octets, 0, stringify!($name));
                let read = Self::read_body(&mut r, &mut diagnosis);
                if let Some(kind) = refused(&diagnosis) {
                    return Err(DecodeError::new(kind, stringify!($name), 0));
                }
                read.map_err(|fault| fault.into_decode_error(stringify!($name)))
            }

            /// The octets of the transfer.
            pub fn to_vec(&self) -> Vec<u8> {
                let mut out = Vec::with_capacity(64);
                self.write_body(&mut Writer::new(&mut out));
                out
            }
        }
        )*

        /// A sample of each transfer that is a container.
        #[cfg(any(test, feature = "samples"))]
        fn container_samples(s: &mut Source) -> Vec<(&'static str, Vec<u8>)> {
            vec![$( (stringify!($name), $name::sample(s).to_vec()), )*]
        }
    };
}

container_transfers!(PduSessionResourceSetupRequestTransfer, PduSessionResourceModifyRequestTransfer);

/// Why a container is refused as a whole, if it is.
fn refused(diagnosis: &Diagnosis) -> Option<DecodeErrorKind> {
    if diagnosis.has_repeated_ie {
        return Some(DecodeErrorKind::InvalidValue);
    }
    let missing = diagnosis.ies.iter().any(|ie| ie.type_of_error == crate::ie::TypeOfError::Missing);
    let kind = if missing { DecodeErrorKind::MissingMandatory } else { DecodeErrorKind::Unknown };
    diagnosis.reject.then_some(kind)
}

/// A sample of each transfer: the name of its type, and its octets.
#[cfg(any(test, feature = "samples"))]
pub fn transfer_samples(s: &mut Source) -> Vec<(&'static str, Vec<u8>)> {
    let mut samples = sequence_samples(s);
    samples.extend(container_samples(s));
    samples
}

#[cfg(test)]
mod tests;
