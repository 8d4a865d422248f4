//! Refusals of a producer: `application/problem+json` with the causes of TS 29.500 §5.2.7.2.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use whimbrel_sbi_types::common::{InvalidParam, JsonPointer, ProblemDetails, Sentence, ShortText};
use whimbrel_sbi_types::{BodyError, BodyErrorKind, BoundedList};

use crate::message::{PROBLEM_JSON, SbiResponse};

macro_rules! causes {
    ($($variant:ident = $status:literal $text:literal,)*) => {
        /// Causes of refusals that all interfaces share. TS 29.500 Table 5.2.7.2-1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each name is the cause's own")]
        pub enum ProtocolCause {
            $($variant,)*
        }

        impl ProtocolCause {
            /// All causes of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The status of HTTP that the table gives.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$variant => $status,)*
                }
            }

            /// The cause in the body.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

causes! {
    InvalidApi = 400 "INVALID_API",
    InvalidMsgFormat = 400 "INVALID_MSG_FORMAT",
    InvalidQueryParam = 400 "INVALID_QUERY_PARAM",
    MandatoryIeIncorrect = 400 "MANDATORY_IE_INCORRECT",
    MandatoryIeMissing = 400 "MANDATORY_IE_MISSING",
    MandatoryQueryParamIncorrect = 400 "MANDATORY_QUERY_PARAM_INCORRECT",
    MandatoryQueryParamMissing = 400 "MANDATORY_QUERY_PARAM_MISSING",
    OptionalIeIncorrect = 400 "OPTIONAL_IE_INCORRECT",
    OptionalQueryParamIncorrect = 400 "OPTIONAL_QUERY_PARAM_INCORRECT",
    UnspecifiedMsgFailure = 400 "UNSPECIFIED_MSG_FAILURE",
    ModificationNotAllowed = 403 "MODIFICATION_NOT_ALLOWED",
    ResourceContextNotFound = 404 "RESOURCE_CONTEXT_NOT_FOUND",
    ResourceUriStructureNotFound = 404 "RESOURCE_URI_STRUCTURE_NOT_FOUND",
    SubscriptionNotFound = 404 "SUBSCRIPTION_NOT_FOUND",
    NfDiscoveryFailure = 404 "NF_DISCOVERY_FAILURE",
    IncorrectLength = 411 "INCORRECT_LENGTH",
    NfCongestionRisk = 429 "NF_CONGESTION_RISK",
    InsufficientResources = 500 "INSUFFICIENT_RESOURCES",
    UnspecifiedNfFailure = 500 "UNSPECIFIED_NF_FAILURE",
    SystemFailure = 500 "SYSTEM_FAILURE",
    NfFailover = 500 "NF_FAILOVER",
    NfServiceFailover = 500 "NF_SERVICE_FAILOVER",
    NfCongestion = 503 "NF_CONGESTION",
    TargetNfNotReachable = 504 "TARGET_NF_NOT_REACHABLE",
    TimedOutRequest = 504 "TIMED_OUT_REQUEST",
}

/// A refusal with its sentence for the log of the other side.
pub fn problem(cause: ProtocolCause, detail: &str) -> SbiResponse {
    of_status(cause.status(), Some(cause.as_str()), detail)
}

/// A refusal with a cause of one interface, such as `USER_NOT_FOUND`, or with a status alone.
pub fn of_status(status: u16, cause: Option<&str>, detail: &str) -> SbiResponse {
    let body = ProblemDetails {
        status: Some(status),
        cause: cause.and_then(|cause| ShortText::new(cause).ok()),
        detail: Sentence::new(detail).ok(),
        ..ProblemDetails::default()
    };
    with_details(status, &body)
}

/// A refusal with details of its own.
pub fn with_details(status: u16, body: &ProblemDetails) -> SbiResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    SbiResponse::with_body(status, PROBLEM_JSON, whimbrel_sbi_types::to_vec(body).into())
}

/// A refusal of a load that is too high, with the wait after which the sender may come again. TS 29.500 §6.4.
pub fn congestion(detail: &str, retry_after: Duration) -> SbiResponse {
    let seconds = HeaderValue::from(retry_after.as_secs().max(1));
    problem(ProtocolCause::NfCongestion, detail).header(RETRY_AFTER, seconds)
}

impl From<&BodyError> for SbiResponse {
    /// 400 with the member that is wrong.
    fn from(e: &BodyError) -> Self {
        let cause = match e.kind {
            BodyErrorKind::Format => ProtocolCause::InvalidMsgFormat,
            BodyErrorKind::MandatoryMissing => ProtocolCause::MandatoryIeMissing,
            BodyErrorKind::MandatoryIncorrect => ProtocolCause::MandatoryIeIncorrect,
            BodyErrorKind::OptionalIncorrect => ProtocolCause::OptionalIeIncorrect,
        };
        let reason = Sentence::new(&e.reason).ok();
        let param = JsonPointer::new(&e.pointer).ok();
        let body = ProblemDetails {
            status: Some(cause.status()),
            cause: ShortText::new(cause.as_str()).ok(),
            detail: reason.clone(),
            invalid_params: param.map(|param| BoundedList::one(InvalidParam { param, reason })),
            ..ProblemDetails::default()
        };
        with_details(cause.status(), &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.500 §5.2.7.2: the body names the cause, the member and the reason
    fn a_refused_body_is_answered_with_its_cause_and_member() {
        let e = BodyError {
            kind: BodyErrorKind::OptionalIncorrect,
            pointer: "/guami/amfId".into(),
            reason: "hexadecimal digits of 3 octets is expected".into(),
        };
        let response = SbiResponse::from(&e);
        let details = response.problem();
        assert_eq!(response.status, 400);
        assert_eq!(details.cause.unwrap().as_str(), "OPTIONAL_IE_INCORRECT");
        assert_eq!(details.invalid_params.unwrap()[0].param.as_str(), "/guami/amfId");
        assert!(ProtocolCause::ALL.iter().all(|c| ShortText::new(c.as_str()).is_ok() && c.status() >= 400));
    }

    #[test] // TS 29.500 §6.4: a server that is overloaded names a wait
    fn congestion_names_a_wait_of_at_least_a_second() {
        let response = congestion("too many UEs register", Duration::from_millis(10));
        assert_eq!((response.status.as_u16(), &response.headers[RETRY_AFTER]), (503, &HeaderValue::from(1)));
    }
}
