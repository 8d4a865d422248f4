//! What the standard answers to a message that cannot be taken (TS 38.413 §10).

use core::fmt;

use whimbrel_ids::{AmfUeNgapId, DecodeError, DecodeErrorKind, RanUeNgapId};

use crate::container::Diagnosis;
use crate::fast::{Form, View};
use crate::ie::{Cause, CauseProtocol, Criticality, CriticalityDiagnostics, IeDiagnostic, TriggeringMessage};
use crate::message::{MessageHead, ProcedureCode};
use crate::msg::ErrorIndication;
use crate::peek::peek;

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The octets break the transfer syntax (TS 38.413 §10.2).
    TransferSyntax(DecodeError),
    /// A mandatory IE is missing, or something marked "reject" was not comprehended (TS 38.413 §10.3.4, §10.3.5).
    AbstractSyntaxReject,
    /// An unknown procedure with criticality notify (TS 38.413 §10.3.4.1A).
    AbstractSyntaxNotify,
    /// An unknown procedure with criticality ignore: no answer.
    AbstractSyntaxIgnore,
    /// An IE came too often (TS 38.413 §10.3.6).
    FalselyConstructed,
}

/// A message that was refused, with all that an answer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of the fault.
    pub kind: RefusalKind,
    /// The procedure, if the message could be read so far.
    pub procedure_code: Option<ProcedureCode>,
    /// Which message of the procedure.
    pub triggering_message: Option<TriggeringMessage>,
    /// The criticality of the procedure, as its sender gave it.
    pub procedure_criticality: Option<Criticality>,
    /// The IEs that were missing or not comprehended, without those of criticality ignore.
    pub ies: Vec<IeDiagnostic>,
    /// The AMF's name of the UE, if it could be read.
    pub amf_ue_ngap_id: Option<AmfUeNgapId>,
    /// The RAN's name of the UE, if it could be read.
    pub ran_ue_ngap_id: Option<RanUeNgapId>,
}

impl Refusal {
    /// Of a message whose procedure is known, or that was not read as far as that.
    pub(crate) fn of_message(
        octets: &[u8],
        head: Option<MessageHead>,
        diagnosis: Diagnosis,
        syntax: Option<DecodeError>,
    ) -> Self {
        let kind = match (syntax, head) {
            (Some(e), _) => RefusalKind::TransferSyntax(e),
            // An alternative of NGAP-PDU that does not exist yet.
            (None, None) => {
                RefusalKind::TransferSyntax(DecodeError::new(DecodeErrorKind::Unknown, "NGAP-PDU", 0))
            }
            (None, Some(_)) if diagnosis.has_repeated_ie => RefusalKind::FalselyConstructed,
            (None, Some(_)) => RefusalKind::AbstractSyntaxReject,
        };
        Self::new(octets, head, kind, diagnosis.ies)
    }

    /// Of octets in the fast form. A peer with this form has the same declarations, so an error is one of transfer syntax.
    pub(crate) fn of_fastwire(octets: &[u8], error: DecodeError) -> Self {
        let view = View::new(octets, Form::SingleValue).ok();
        Self {
            procedure_code: view.as_ref().map(View::procedure_code),
            triggering_message: view.as_ref().map(View::kind),
            ..Self::new(octets, None, RefusalKind::TransferSyntax(error), Vec::new())
        }
    }

    /// Of a message whose procedure is not known.
    pub(crate) fn of_procedure(octets: &[u8], head: Option<MessageHead>) -> Self {
        let kind = match head.map(|h| h.criticality) {
            Some(Criticality::Ignore) => RefusalKind::AbstractSyntaxIgnore,
            Some(Criticality::Notify) => RefusalKind::AbstractSyntaxNotify,
            Some(Criticality::Reject) | None => RefusalKind::AbstractSyntaxReject,
        };
        Self::new(octets, head, kind, Vec::new())
    }

    fn new(octets: &[u8], head: Option<MessageHead>, kind: RefusalKind, ies: Vec<IeDiagnostic>) -> Self {
        let peek = peek(octets);
        Self {
            kind,
            procedure_code: head.map(|h| h.procedure_code),
            triggering_message: head.map(|h| h.kind),
            procedure_criticality: head.map(|h| h.criticality),
            ies,
            amf_ue_ngap_id: peek.and_then(|p| p.amf_ue_ngap_id),
            ran_ue_ngap_id: peek.and_then(|p| p.ran_ue_ngap_id),
        }
    }

    /// The cause of the answer; `None` if the standard has no answer.
    pub fn cause(&self) -> Option<Cause> {
        let cause = match self.kind {
            RefusalKind::TransferSyntax(_) => CauseProtocol::TransferSyntaxError,
            RefusalKind::AbstractSyntaxReject => CauseProtocol::AbstractSyntaxErrorReject,
            RefusalKind::AbstractSyntaxNotify => CauseProtocol::AbstractSyntaxErrorIgnoreAndNotify,
            RefusalKind::AbstractSyntaxIgnore => return None,
            RefusalKind::FalselyConstructed => CauseProtocol::AbstractSyntaxErrorFalselyConstructedMessage,
        };
        Some(Cause::Protocol(cause))
    }

    /// The diagnostics to answer with.
    pub fn criticality_diagnostics(&self) -> CriticalityDiagnostics {
        CriticalityDiagnostics {
            procedure_code: self.procedure_code.map(|c| c.0),
            triggering_message: self.triggering_message,
            procedure_criticality: self.procedure_criticality,
            ies: self.ies.clone(),
        }
    }

    /// The ERROR INDICATION to answer with (TS 38.413 §8.7.4.2); `None` if the standard has no answer. If the message
    /// begins a procedure that has a failure message, the caller sends that one instead, with [`Refusal::cause`] and
    /// [`Refusal::criticality_diagnostics`].
    pub fn error_indication(&self) -> Option<ErrorIndication> {
        let mut answer = ErrorIndication::new();
        answer.amf_ue_ngap_id = self.amf_ue_ngap_id;
        answer.ran_ue_ngap_id = self.ran_ue_ngap_id;
        answer.cause = Some(self.cause()?);
        answer.criticality_diagnostics = Some(self.criticality_diagnostics());
        Some(answer)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RefusalKind::TransferSyntax(e) => write!(f, "transfer syntax error: {e}")?,
            RefusalKind::AbstractSyntaxReject => f.write_str("abstract syntax error (reject)")?,
            RefusalKind::AbstractSyntaxNotify => f.write_str("abstract syntax error (ignore and notify)")?,
            RefusalKind::AbstractSyntaxIgnore => f.write_str("unknown procedure, to be ignored")?,
            RefusalKind::FalselyConstructed => f.write_str("falsely constructed message")?,
        }
        if let Some(code) = self.procedure_code {
            write!(f, " in procedure {code}")?;
        }
        for ie in &self.ies {
            write!(f, ", IE {} {}", ie.ie_id, ie.type_of_error)?;
        }
        Ok(())
    }
}

impl core::error::Error for Refusal {}
