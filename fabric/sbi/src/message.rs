//! Requests and responses of both sides, with their bodies read.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_sbi_types::BodyError;
use whimbrel_sbi_types::common::ProblemDetails;

use crate::endpoint::ApiRoot;
use crate::error::SendError;
use crate::headers::TARGET_API_ROOT;

/// Media type of bodies (TS 29.500 §5.4).
pub const JSON: &str = "application/json";
/// Media type of refusals (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";
/// Media type of partial changes (RFC 7396).
pub const MERGE_PATCH_JSON: &str = "application/merge-patch+json";
/// Media type of partial changes by operations (RFC 6902).
pub const PATCH_JSON: &str = "application/json-patch+json";
/// Media type of a JSON body with binary parts beside it (TS 29.500 §6.1.2.4, RFC 2387).
pub const MULTIPART: &str = "multipart/related";
/// Media type of token requests (RFC 6749).
pub const FORM: &str = "application/x-www-form-urlencoded";

/// Longest response that is read unless a request says otherwise: an NRF's answer with some hundred profiles.
pub const RESPONSE_OCTETS_MAX: usize = 1 << 20;

/// A request of a consumer.
#[derive(Clone, Debug)]
pub struct SbiRequest {
    /// Method of HTTP.
    pub method: Method,
    /// Absolute URI of the resource.
    pub uri: Uri,
    /// Headers beside those that the client adds: `content-type` of JSON, `accept`, `user-agent`.
    pub headers: HeaderMap,
    /// Body; empty for none.
    pub body: Bytes,
    /// Time for the whole exchange, with the connection and all attempts.
    pub within: Duration,
    /// Octets of the longest response body that is read.
    pub response_octets_max: usize,
}

impl SbiRequest {
    /// A request without a body.
    pub fn new(method: Method, uri: Uri, within: Duration) -> Self {
        Self {
            method,
            uri,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            within,
            response_octets_max: RESPONSE_OCTETS_MAX,
        }
    }

    /// `GET` of a resource.
    pub fn get(uri: Uri, within: Duration) -> Self {
        Self::new(Method::GET, uri, within)
    }

    /// `POST` of a JSON body.
    pub fn post(uri: Uri, body: &impl Serialize, within: Duration) -> Self {
        Self::new(Method::POST, uri, within).json(body)
    }

    /// `PUT` of a JSON body.
    pub fn put(uri: Uri, body: &impl Serialize, within: Duration) -> Self {
        Self::new(Method::PUT, uri, within).json(body)
    }

    /// The same with a JSON body.
    pub fn json(self, body: &impl Serialize) -> Self {
        self.body(JSON, whimbrel_sbi_types::to_vec(body).into())
    }

    /// The same with a body of a media type.
    pub fn body(mut self, media_type: &'static str, body: Bytes) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Self { body, ..self }
    }

    /// The same with a body; `content_type` has the media type with its parameters, such as the boundary of several parts.
    pub fn content(mut self, content_type: HeaderValue, body: Bytes) -> Self {
        self.headers.insert(CONTENT_TYPE, content_type);
        Self { body, ..self }
    }

    /// The same with a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The same through an SCP, in indirect communication without delegated discovery (TS 29.500 §6.10.2): it goes to the SCP, with the root
    /// of the producer in `3gpp-Sbi-Target-apiRoot`.
    pub fn through(mut self, scp: &ApiRoot) -> Result<Self, SendError> {
        let wrong = || SendError::Uri(self.uri.to_string().chars().take(200).collect::<String>().into());
        let (scheme, authority) = self.uri.scheme_str().zip(self.uri.authority()).ok_or_else(wrong)?;
        let target = format!("{scheme}://{authority}").parse().map_err(|_| wrong())?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = scp.uri(path)?;
        self.headers.insert(TARGET_API_ROOT, target);
        Ok(Self { uri, ..self })
    }
}

/// A response, as a consumer receives it and a producer sends it.
#[derive(Clone, Debug)]
pub struct SbiResponse {
    /// Status of HTTP.
    pub status: StatusCode,
    /// Headers with `content-type`.
    pub headers: HeaderMap,
    /// Body; empty for none.
    pub body: Bytes,
}

impl SbiResponse {
    /// A response without a body.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// 204 No Content.
    pub fn no_content() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    /// A response with a JSON body.
    pub fn json(status: StatusCode, body: &impl Serialize) -> Self {
        Self::with_body(status, JSON, whimbrel_sbi_types::to_vec(body).into())
    }

    /// A response with a body of a media type.
    pub fn with_body(status: StatusCode, media_type: &'static str, body: Bytes) -> Self {
        let mut response = Self::empty(status);
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Self { body, ..response }
    }

    /// 201 Created, with the URI of the resource. A URI that cannot stand in a header is left out.
    pub fn created(location: &str, body: &impl Serialize) -> Self {
        let mut response = Self::json(StatusCode::CREATED, body);
        if let Ok(location) = location.parse() {
            response.headers.insert(LOCATION, location);
        }
        response
    }

    /// The same with a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The body as a type. A body with problem details is read by [`SbiResponse::problem`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, BodyError> {
        whimbrel_sbi_types::from_slice(&self.body)
    }

    /// The problem details of a refusal. A refusal without a body, or with one that cannot be read, has its status alone.
    pub fn problem(&self) -> ProblemDetails {
        let read = || self.read::<ProblemDetails>().ok();
        // Some producers send problem details as plain JSON.
        let problem = if self.status.is_success() { None } else { read() };
        let status = Some(self.status.as_u16());
        ProblemDetails { status, ..problem.unwrap_or_default() }
    }

    /// The header with the media type, such as the boundary of several parts; empty for none.
    pub fn content_type(&self) -> &str {
        content_type(&self.headers)
    }

    /// The URI of a created resource, `Location`.
    pub fn location(&self) -> Option<&str> {
        self.headers.get(LOCATION)?.to_str().ok()
    }
}

/// The header with the media type; empty for none.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

/// The media type of a message in lower case, without parameters; empty for none.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    content_type(headers).split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.500 §6.10.2, §5.2.3.2.4: the SCP gets the request, and the producer's root in a header
    fn a_request_through_an_scp_names_its_producer() {
        let within = Duration::from_secs(1);
        let request =
            SbiRequest::get("http://udm:8000/nudm-sdm/v2/imsi-1/nssai?a=b".parse().unwrap(), within);
        let request = request.through(&"https://scp.example/prefix".parse().unwrap()).unwrap();
        assert_eq!(request.uri, "https://scp.example/prefix/nudm-sdm/v2/imsi-1/nssai?a=b");
        assert_eq!(request.headers[TARGET_API_ROOT], "http://udm:8000");
        let relative = SbiRequest::get("/nudm-sdm".parse().unwrap(), within);
        assert!(relative.through(&"https://scp.example".parse().unwrap()).is_err());
    }
}
