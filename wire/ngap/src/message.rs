//! Any NGAP message, by procedure and outcome (TS 38.413 §9.4.3).

use core::fmt;

use crate::aper::codec::Own;
use crate::aper::{Aper, Fault, Reader, Writer};
use crate::container::{Diagnosis, IeSequence};
use crate::fast::{self, Fast, Form};
use crate::ie::{Criticality, IeDiagnostic, TriggeringMessage};
use crate::msg::*;
use crate::refusal::Refusal;
use crate::syntax::TransferSyntax;

/// The code of an elementary procedure (TS 38.413 §9.4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureCode(pub u8);

impl fmt::Display for ProcedureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The message types by procedure code and outcome.
macro_rules! procedures {
    ($($code:literal $crit:ident $constant:ident { $($outcome:ident $name:ident),* $(,)? }),* $(,)?) => {
        /// An NGAP message.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant)] // A message lives briefly and moves by reference.
        pub enum Message {
            $($( #[doc = concat!("Procedure ", stringify!($code), ", ", stringify!($outcome), ".")] $name($name), )*)*
        }

        /// The procedures of [`Message`].
        #[allow(missing_docs)] // The names are the standard's.
        impl ProcedureCode {
            $( pub const $constant: Self = Self($code); )*
        }

        impl Message {
            /// The code of the message's procedure.
            pub const fn procedure_code(&self) -> ProcedureCode {
                match self { $($( Message::$name(_) => ProcedureCode::$constant, )*)* }
            }

            /// Which message of its procedure this is.
            pub const fn kind(&self) -> TriggeringMessage {
                match self { $($( Message::$name(_) => procedures!(@kind $outcome), )*)* }
            }

            /// The criticality of the message's procedure.
            pub const fn procedure_criticality(&self) -> Criticality {
                match self { $($( Message::$name(_) => criticality!($crit), )*)* }
            }

            /// The name of the message's type.
            pub const fn name(&self) -> &'static str {
                match self { $($( Message::$name(_) => stringify!($name), )*)* }
            }

            /// Reads the content of a message; one of another procedure or outcome than those that are known is not comprehended.
            fn read_body(head: MessageHead, r: &mut Reader<'_>, diagnosis: &mut Diagnosis) -> Result<Message, Fault> {
                match (head.procedure_code.0, head.kind) {
                    $($( ($code, procedures!(@kind $outcome)) => $name::read_body(r, diagnosis).map(Message::$name), )*)*
                    _ => {
                        diagnosis.unknown_procedure = true;
                        Err(Fault::NotComprehended)
                    }
                }
            }

            /// Some message of any type: the same seed gives the same one.
            #[cfg(any(test, feature = "samples"))]
            pub fn sample(s: &mut crate::aper::sample::Source) -> Message {
                let samples: &[fn(&mut crate::aper::sample::Source) -> Message] =
                    &[$($( |s| Message::$name($name::sample(s)), )*)*];
                samples[s.number() as usize % samples.len()](s)
            }

            fn write_body(&self, w: &mut Writer<'_>) {
                match self { $($( Message::$name(m) => m.write_body(w), )*)* }
            }
        }

        impl Message {
            /// Writes the table of the message.
            pub(crate) fn put_body(&self, spot: whimbrel_fastwire::Spot, w: &mut whimbrel_fastwire::Writer<'_>) {
                match self { $($( Message::$name(m) => <Own as Fast<$name>>::put(m, spot, w), )*)* }
            }

            /// Reads the table of a message.
            pub(crate) fn get_body(
                slot: whimbrel_fastwire::Slot<'_, '_>,
            ) -> Result<Message, whimbrel_ids::DecodeError> {
                match slot.tag() {
                    $($(
                        tag if tag == const { fast::number(ProcedureCode::$constant, procedures!(@kind $outcome)) } =>
                            <Own as Fast<$name>>::get(slot).map(Message::$name),
                    )*)*
                    _ => Err(slot.error(whimbrel_ids::DecodeErrorKind::Unknown)),
                }
            }

            /// The field positions of the message with this number; `None` if there is none.
            pub(crate) fn places(number: u8) -> Option<&'static [(u16, usize)]> {
                match number {
                    $($(
                        n if n == const { fast::number(ProcedureCode::$constant, procedures!(@kind $outcome)) } =>
                            Some(<$name as fast::Places>::PLACES),
                    )*)*
                    _ => None,
                }
            }

            /// Declares every message and their union.
            pub(crate) fn declare_all(s: &mut whimbrel_fastwire::Schema) {
                let alternatives = [$($((
                    stringify!($name).to_owned(),
                    fast::number(ProcedureCode::$constant, procedures!(@kind $outcome)),
                    <Own as Fast<$name>>::declare(s),
                )),*),*];
                s.union("Message", &alternatives);
            }
        }

        $($(
            impl From<$name> for Message {
                fn from(m: $name) -> Self {
                    Message::$name(m)
                }
            }
        )*)*
    };
    (@kind initiating) => { TriggeringMessage::InitiatingMessage };
    (@kind successful) => { TriggeringMessage::SuccessfulOutcome };
    (@kind unsuccessful) => { TriggeringMessage::UnsuccessfulOutcome };
}

procedures! {
    0 reject AMF_CONFIGURATION_UPDATE {
        initiating AmfConfigurationUpdate,
        successful AmfConfigurationUpdateAcknowledge,
        unsuccessful AmfConfigurationUpdateFailure,
    },
    1 ignore AMF_STATUS_INDICATION { initiating AmfStatusIndication },
    2 ignore CELL_TRAFFIC_TRACE { initiating CellTrafficTrace },
    4 ignore DOWNLINK_NAS_TRANSPORT { initiating DownlinkNasTransport },
    5 ignore DOWNLINK_NON_UE_ASSOCIATED_NRPPA_TRANSPORT { initiating DownlinkNonUeAssociatedNrppaTransport },
    6 ignore DOWNLINK_RAN_CONFIGURATION_TRANSFER { initiating DownlinkRanConfigurationTransfer },
    7 ignore DOWNLINK_RAN_STATUS_TRANSFER { initiating DownlinkRanStatusTransfer },
    8 ignore DOWNLINK_UE_ASSOCIATED_NRPPA_TRANSPORT { initiating DownlinkUeAssociatedNrppaTransport },
    9 ignore ERROR_INDICATION { initiating ErrorIndication },
    10 reject HANDOVER_CANCEL { initiating HandoverCancel, successful HandoverCancelAcknowledge },
    11 ignore HANDOVER_NOTIFICATION { initiating HandoverNotify },
    12 reject HANDOVER_PREPARATION {
        initiating HandoverRequired,
        successful HandoverCommand,
        unsuccessful HandoverPreparationFailure,
    },
    13 reject HANDOVER_RESOURCE_ALLOCATION {
        initiating HandoverRequest,
        successful HandoverRequestAcknowledge,
        unsuccessful HandoverFailure,
    },
    14 reject INITIAL_CONTEXT_SETUP {
        initiating InitialContextSetupRequest,
        successful InitialContextSetupResponse,
        unsuccessful InitialContextSetupFailure,
    },
    15 ignore INITIAL_UE_MESSAGE { initiating InitialUeMessage },
    16 ignore LOCATION_REPORTING_CONTROL { initiating LocationReportingControl },
    17 ignore LOCATION_REPORTING_FAILURE_INDICATION { initiating LocationReportingFailureIndication },
    18 ignore LOCATION_REPORT { initiating LocationReport },
    19 ignore NAS_NON_DELIVERY_INDICATION { initiating NasNonDeliveryIndication },
    20 reject NG_RESET { initiating NgReset, successful NgResetAcknowledge },
    21 reject NG_SETUP { initiating NgSetupRequest, successful NgSetupResponse, unsuccessful NgSetupFailure },
    22 ignore OVERLOAD_START { initiating OverloadStart },
    23 reject OVERLOAD_STOP { initiating OverloadStop },
    24 ignore PAGING { initiating Paging },
    25 reject PATH_SWITCH_REQUEST {
        initiating PathSwitchRequest,
        successful PathSwitchRequestAcknowledge,
        unsuccessful PathSwitchRequestFailure,
    },
    26 reject PDU_SESSION_RESOURCE_MODIFY {
        initiating PduSessionResourceModifyRequest,
        successful PduSessionResourceModifyResponse,
    },
    27 reject PDU_SESSION_RESOURCE_MODIFY_INDICATION {
        initiating PduSessionResourceModifyIndication,
        successful PduSessionResourceModifyConfirm,
    },
    28 reject PDU_SESSION_RESOURCE_RELEASE {
        initiating PduSessionResourceReleaseCommand,
        successful PduSessionResourceReleaseResponse,
    },
    29 reject PDU_SESSION_RESOURCE_SETUP {
        initiating PduSessionResourceSetupRequest,
        successful PduSessionResourceSetupResponse,
    },
    30 ignore PDU_SESSION_RESOURCE_NOTIFY { initiating PduSessionResourceNotify },
    32 reject PWS_CANCEL { initiating PwsCancelRequest, successful PwsCancelResponse },
    33 ignore PWS_FAILURE_INDICATION { initiating PwsFailureIndication },
    34 ignore PWS_RESTART_INDICATION { initiating PwsRestartIndication },
    35 reject RAN_CONFIGURATION_UPDATE {
        initiating RanConfigurationUpdate,
        successful RanConfigurationUpdateAcknowledge,
        unsuccessful RanConfigurationUpdateFailure,
    },
    36 reject REROUTE_NAS_REQUEST { initiating RerouteNasRequest },
    37 ignore RRC_INACTIVE_TRANSITION_REPORT { initiating RrcInactiveTransitionReport },
    40 reject UE_CONTEXT_MODIFICATION {
        initiating UeContextModificationRequest,
        successful UeContextModificationResponse,
        unsuccessful UeContextModificationFailure,
    },
    41 reject UE_CONTEXT_RELEASE { initiating UeContextReleaseCommand, successful UeContextReleaseComplete },
    42 ignore UE_CONTEXT_RELEASE_REQUEST { initiating UeContextReleaseRequest },
    43 reject UE_RADIO_CAPABILITY_CHECK {
        initiating UeRadioCapabilityCheckRequest,
        successful UeRadioCapabilityCheckResponse,
    },
    44 ignore UE_RADIO_CAPABILITY_INFO_INDICATION { initiating UeRadioCapabilityInfoIndication },
    45 ignore UE_TNLA_BINDING_RELEASE { initiating UeTnlaBindingReleaseRequest },
    46 ignore UPLINK_NAS_TRANSPORT { initiating UplinkNasTransport },
    47 ignore UPLINK_NON_UE_ASSOCIATED_NRPPA_TRANSPORT { initiating UplinkNonUeAssociatedNrppaTransport },
    48 ignore UPLINK_RAN_CONFIGURATION_TRANSFER { initiating UplinkRanConfigurationTransfer },
    49 ignore UPLINK_RAN_STATUS_TRANSFER { initiating UplinkRanStatusTransfer },
    50 ignore UPLINK_UE_ASSOCIATED_NRPPA_TRANSPORT { initiating UplinkUeAssociatedNrppaTransport },
    51 reject WRITE_REPLACE_WARNING {
        initiating WriteReplaceWarningRequest,
        successful WriteReplaceWarningResponse,
    },
    52 ignore SECONDARY_RAT_DATA_USAGE_REPORT { initiating SecondaryRatDataUsageReport },
    58 reject UE_CONTEXT_RESUME { initiating UeContextResumeRequest, unsuccessful UeContextResumeFailure },
    59 reject UE_CONTEXT_SUSPEND { initiating UeContextSuspendRequest, unsuccessful UeContextSuspendFailure },
    60 reject UE_RADIO_CAPABILITY_ID_MAPPING {
        initiating UeRadioCapabilityIdMappingRequest,
        successful UeRadioCapabilityIdMappingResponse,
    },
    61 ignore HANDOVER_SUCCESS { initiating HandoverSuccess },
    62 reject UPLINK_RAN_EARLY_STATUS_TRANSFER { initiating UplinkRanEarlyStatusTransfer },
    63 ignore DOWNLINK_RAN_EARLY_STATUS_TRANSFER { initiating DownlinkRanEarlyStatusTransfer },
}

impl Message {
    /// Reads a message in either transfer syntax; notifications of its sender are dropped
    /// ([`Message::decode_with_notices`] keeps it).
    ///
    /// Errors: a [`Refusal`] with the standard's answer.
    pub fn decode(octets: &[u8]) -> Result<Message, Refusal> {
        Self::decode_and_note(octets, &mut Diagnosis::default())
    }

    /// Reads a message, and lists its missing or unknown IEs with criticality notify.
    ///
    /// Errors: a [`Refusal`] with the standard's answer.
    pub fn decode_with_notices(octets: &[u8]) -> Result<(Message, Vec<IeDiagnostic>), Refusal> {
        let mut diagnosis = Diagnosis::default();
        let message = Self::decode_and_note(octets, &mut diagnosis)?;
        Ok((message, diagnosis.ies))
    }

    #[inline]
    fn decode_and_note(octets: &[u8], diagnosis: &mut Diagnosis) -> Result<Message, Refusal> {
        if TransferSyntax::of(octets) == TransferSyntax::Fastwire {
            return Self::decode_fast(octets, Form::SingleValue).map_err(|e| Refusal::of_fastwire(octets, e));
        }
        let mut head = None;
        let error = match Self::read(octets, &mut head, diagnosis) {
            Ok(message) if !diagnosis.reject && !diagnosis.has_repeated_ie => return Ok(message),
            Ok(_) => None,
            Err(_) if diagnosis.unknown_procedure => return Err(Refusal::of_procedure(octets, head)),
            Err(Fault::Syntax(e)) => Some(e),
            Err(Fault::NotComprehended | Fault::RejectedExtension(_)) => {
                diagnosis.reject = true;
                None
            }
        };
        Err(Refusal::of_message(octets, head, core::mem::take(diagnosis), error))
    }

    #[inline]
    fn read(
        octets: &[u8],
        head: &mut Option<MessageHead>,
        diagnosis: &mut Diagnosis,
    ) -> Result<Message, Fault> {
        let mut r = Reader::new(octets, 0, "NGAP-PDU");
        if r.bit()? {
            return Err(Fault::NotComprehended);
        }
        let kind = TriggeringMessage::read(&mut r)?;
        let procedure_code = ProcedureCode(r.whole(0, 255)? as u8);
        let criticality = Criticality::read(&mut r)?;
        let is = *head.insert(MessageHead { procedure_code, kind, criticality });
        r.open(|r| Self::read_body(is, r, diagnosis))
    }

    /// Appends the message to `out` in this transfer syntax.
    pub fn encode_in(&self, syntax: TransferSyntax, out: &mut Vec<u8>) {
        match syntax {
            TransferSyntax::Per => self.encode(out),
            TransferSyntax::Fastwire => self.encode_fast(Form::SingleValue, out),
        }
    }

    /// Appends the message to `out` in aligned PER.
    ///
    /// A list longer than the standard's bound is our own bug: it is cut, and asserted against in debug builds.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.bit(false);
        self.kind().write(&mut w);
        w.whole(u64::from(self.procedure_code().0), 0, 255);
        self.procedure_criticality().write(&mut w);
        w.open(|w| self.write_body(w));
    }

    /// The message as octets of its own, in aligned PER.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.encode(&mut out);
        out
    }
}

/// The header of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHead {
    pub(crate) procedure_code: ProcedureCode,
    pub(crate) kind: TriggeringMessage,
    pub(crate) criticality: Criticality,
}
