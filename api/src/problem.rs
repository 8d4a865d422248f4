//! Refusals of the API: problem documents of RFC 9457.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use whimbrel_node::observation::AskError;

/// Why a request was refused (RFC 9457).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemDetails {
    /// HTTP status of the answer.
    pub status: u16,
    /// The kind of problem.
    pub title: String,
    /// This occurrence, in a sentence with its fix.
    pub detail: String,
    /// Of an import: what is wrong with each line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineProblem>,
    /// A field that the request lacks and that a page has to ask the user for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub needs: Option<String>,
    /// Methods that the path takes, for the header Allow.
    #[serde(skip)]
    pub allow: Option<Box<str>>,
}

/// What is wrong with a line of an import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WrongLine")]
pub(crate) struct LineProblem {
    /// Its number, from 1.
    pub line: u64,
    /// The fault of the line, with the fix.
    pub problem: String,
}

impl ProblemDetails {
    fn new(status: u16, title: &str, detail: impl Into<String>) -> Self {
        Self {
            status,
            title: title.into(),
            detail: detail.into(),
            lines: Vec::new(),
            needs: None,
            allow: None,
        }
    }

    /// The same with what is wrong with each line.
    pub(crate) fn with_lines(self, lines: Vec<LineProblem>) -> Self {
        Self { lines, ..self }
    }

    /// The same problem, with a field that the request lacks.
    pub(crate) fn needing(self, what: &str) -> Self {
        Self { needs: Some(what.into()), ..self }
    }

    /// Its HTTP status.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The request is wrong.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(400, "Bad request", detail)
    }

    /// The request has no login, or one that is not valid.
    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(401, "Unauthorized", detail)
    }

    /// The request comes from a foreign page, or its sender lacks the permission.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", detail)
    }

    /// There is no such thing.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(404, "Not found", detail)
    }

    /// The path exists, the method does not.
    pub(crate) fn method_not_allowed(allowed: &str) -> Self {
        let problem = Self::new(405, "Method not allowed", format!("this path takes {allowed}"));
        Self { allow: Some(allowed.into()), ..problem }
    }

    /// The request took too long to arrive.
    pub(crate) fn timeout(detail: impl Into<String>) -> Self {
        Self::new(408, "Request timeout", detail)
    }

    /// The thing exists already, or was changed meanwhile.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(409, "Conflict", detail)
    }

    /// What was to be changed is not what the caller saw.
    pub(crate) fn precondition_failed(detail: impl Into<String>) -> Self {
        Self::new(412, "Precondition failed", detail)
    }

    /// The body is larger than the route takes.
    pub(crate) fn too_large(most: usize) -> Self {
        Self::new(413, "Content too large", format!("at most {most} octets are taken here"))
    }

    /// The body is not of the type that the route takes.
    pub(crate) fn unsupported(takes: &str) -> Self {
        Self::new(415, "Unsupported media type", format!("send Content-Type: {takes}"))
    }

    /// The content is well-formed and wrong.
    pub(crate) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(422, "Unprocessable content", detail)
    }

    /// The caller has to wait.
    pub(crate) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(429, "Too many requests", detail)
    }

    /// Something failed here.
    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(500, "Internal error", detail)
    }

    /// A part is not there.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(503, "Service unavailable", detail)
    }
}

impl From<AskError> for ProblemDetails {
    fn from(e: AskError) -> Self {
        Self::unavailable(e.to_string())
    }
}
