//! Refusals of requests, with the causes of TS 29.500 §5.2.7.2.

use core::fmt;

use whimbrel_sbi_types::{BodyError, BodyErrorKind};

/// A refused request: status, cause, a sentence, and the parameter or member that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NrfRefusal {
    /// Status of HTTP.
    pub status: u16,
    /// Cause of the problem details.
    pub cause: &'static str,
    /// The reason, for the log of the other side.
    pub detail: String,
    /// Name of a query parameter, or JSON Pointer of a member.
    pub param: Option<String>,
}

/// The longest part of a request that a refusal repeats, in octets.
const REPEATED_OCTETS_MAX: usize = 200;

impl NrfRefusal {
    pub(crate) fn new(status: u16, cause: &'static str, detail: impl Into<String>) -> Self {
        Self { status, cause, detail: cut(detail.into()), param: None }
    }

    /// The same with the parameter or member that is wrong.
    pub(crate) fn of(self, param: impl Into<String>) -> Self {
        Self { param: Some(cut(param.into())).filter(|param| !param.is_empty()), ..self }
    }

    pub(crate) fn not_found() -> Self {
        Self::new(404, "RESOURCE_CONTEXT_NOT_FOUND", "no such instance is registered")
    }

    pub(crate) fn no_subscription() -> Self {
        Self::new(404, "SUBSCRIPTION_NOT_FOUND", "there is no such subscription")
    }

    pub(crate) fn full(detail: &str) -> Self {
        Self::new(503, "NF_CONGESTION", detail)
    }

    pub(crate) fn not_allowed(detail: &str) -> Self {
        Self::new(403, "MODIFICATION_NOT_ALLOWED", detail)
    }
}

fn cut(text: String) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let mut end = REPEATED_OCTETS_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

impl From<BodyError> for NrfRefusal {
    fn from(e: BodyError) -> Self {
        debug_assert!(e.kind != BodyErrorKind::Format || e.pointer.is_empty());
        Self::new(400, e.kind.cause(), e.reason).of(e.pointer)
    }
}

impl fmt::Display for NrfRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.cause, self.detail)
    }
}

impl core::error::Error for NrfRefusal {}
