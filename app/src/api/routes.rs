//! The table of routes, and how a request finds its own.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};

use super::problem::Problem;
use super::subscribers::{self, IMPORT_OCTETS_MAX};
use super::{Shared, handlers, operations, ran, uri, why};

/// Octets of a body where the route says nothing else: one subscriber is under 2 KB.
pub(super) const BODY_OCTETS_MAX: usize = 256 << 10;

/// A request that found its route, read whole.
pub(super) struct Request {
    /// The path's variable parts, decoded, in order.
    pub(super) params: Vec<String>,
    /// The query, decoded. Of a name given twice the last counts.
    pub(super) query: BTreeMap<String, String>,
    /// Media type of the body, without its parameters.
    pub(super) content_type: String,
    /// The body.
    pub(super) body: Bytes,
}

impl Request {
    /// The `n`th variable part of the path.
    pub(super) fn param(&self, n: usize) -> &str {
        self.params.get(n).map_or("", String::as_str)
    }

    /// A number of the query.
    pub(super) fn number(&self, name: &str, default: u64) -> Result<u64, Problem> {
        self.query.get(name).map_or(Ok(default), |text| {
            text.parse().map_err(|_| Problem::bad_request(format!("`{name}` must be a whole number")))
        })
    }
}

/// What goes back.
pub(super) struct Reply {
    status: StatusCode,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Reply {
    /// A value as JSON.
    pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<Self, Problem> {
        let body = serde_json::to_vec(value).map_err(|e| Problem::internal(e.to_string()))?;
        Ok(Self { status: StatusCode::OK, content_type: "application/json", body })
    }

    /// A text of that type.
    pub(super) fn text(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: StatusCode::OK, content_type, body: body.into() }
    }

    /// Done, with nothing to say.
    pub(super) fn empty() -> Self {
        Self { status: StatusCode::NO_CONTENT, content_type: "", body: Vec::new() }
    }

    /// Its status.
    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The same with another status.
    pub(super) fn with(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// As hyper sends it.
    pub(super) fn into_response(self) -> hyper::Response<Full<Bytes>> {
        let mut response = hyper::Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        if !self.content_type.is_empty() {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        response.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
        response
    }
}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Self {
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, content_type: "application/problem+json", body }
    }
}

pub(super) type Answer = Pin<Box<dyn Future<Output = Result<Reply, Problem>> + Send>>;

/// One route.
pub(super) struct Route {
    pub(super) method: Method,
    /// `{name}` stands for one part.
    pub(super) path: &'static str,
    /// Octets of its body at most.
    pub(super) body_max: usize,
    pub(super) handler: fn(Arc<Shared>, Request) -> Answer,
}

impl Route {
    /// Whether it shows or changes what is personal: subscribers, and UEs by their subscribers' names.
    pub(super) fn is_personal(&self) -> bool {
        const PERSONAL: [&str; 6] = ["ues", "why", "refusals", "events", "subscribers", "operations"];
        self.path
            .strip_prefix("/api/v1/")
            .is_some_and(|p| PERSONAL.contains(&p.split('/').next().unwrap_or(p)))
    }
}

macro_rules! route {
    ($method:ident $path:literal $handler:path) => {
        route!($method $path $handler, BODY_OCTETS_MAX)
    };
    ($method:ident $path:literal $handler:path, $body_max:expr) => {
        Route {
            method: Method::$method,
            path: $path,
            body_max: $body_max,
            handler: |shared, request| Box::pin($handler(shared, request)),
        }
    };
}

/// Every route that there is; `openapi.json` describes each, and a test holds them together.
pub(super) static ROUTES: &[Route] = &[
    route!(GET "/api/v1/status" handlers::status),
    route!(GET "/api/v1/gnbs" handlers::gnbs),
    route!(POST "/api/v1/gnbs/{gnb}/reset" ran::reset),
    route!(GET "/api/v1/warnings" ran::warnings),
    route!(POST "/api/v1/warnings" ran::warn),
    route!(DELETE "/api/v1/warnings/{message_identifier}/{serial_number}" ran::cancel),
    route!(GET "/api/v1/overload" ran::overload),
    route!(POST "/api/v1/overload/{order}" ran::order_overload),
    route!(POST "/api/v1/reload" ran::reload),
    route!(GET "/api/v1/ues" handlers::ues),
    route!(GET "/api/v1/ues/{supi}" handlers::ue),
    route!(POST "/api/v1/ues/{supi}/deregister" handlers::deregister),
    route!(POST "/api/v1/ues/{supi}/reachability" handlers::notify_reachable),
    route!(POST "/api/v1/ues/{supi}/locate" handlers::locate),
    route!(POST "/api/v1/ues/{supi}/sessions/{id}/modify" handlers::modify_session),
    route!(GET "/api/v1/operations" operations::list),
    route!(GET "/api/v1/operations/{id}" operations::show),
    route!(GET "/api/v1/why/{subject}" why::why),
    route!(GET "/api/v1/refusals" handlers::refusals),
    route!(GET "/api/v1/events" handlers::events),
    route!(GET "/api/v1/subscribers" subscribers::list),
    route!(POST "/api/v1/subscribers" subscribers::add),
    route!(POST "/api/v1/subscribers/import" subscribers::import, IMPORT_OCTETS_MAX),
    route!(GET "/api/v1/subscribers/{supi}" subscribers::show),
    route!(PATCH "/api/v1/subscribers/{supi}" subscribers::edit),
    route!(DELETE "/api/v1/subscribers/{supi}" subscribers::remove),
    route!(GET "/metrics" handlers::metrics),
    route!(GET "/openapi.json" handlers::openapi),
];

/// Finds the route of a method and a path, with the path's variable parts.
pub(super) fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), Problem> {
    let mut allowed = Vec::new();
    for route in ROUTES {
        let Some(params) = uri::matches(route.path, path) else { continue };
        if route.method == *method || (*method == Method::HEAD && route.method == Method::GET) {
            let params =
                params.ok_or_else(|| Problem::bad_request("the path is not percent-encoded UTF-8"))?;
            return Ok((route, params));
        }
        allowed.push(route.method.as_str());
    }
    if allowed.is_empty() {
        return Err(Problem::not_found("no such path; GET /openapi.json lists them"));
    }
    Err(Problem::method_not_allowed(&allowed.join(", ")))
}

/// A query's names and values.
pub(super) fn query(text: &str) -> Result<BTreeMap<String, String>, Problem> {
    uri::query(text).ok_or_else(|| Problem::bad_request("the query is not percent-encoded UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_their_route() {
        let (route, params) = find(&Method::GET, "/api/v1/why/999%2F70-1").unwrap();
        assert_eq!((route.path, params), ("/api/v1/why/{subject}", vec!["999/70-1".to_string()]));
        assert_eq!(find(&Method::PUT, "/api/v1/status").err().unwrap().status, 405);
        assert_eq!(find(&Method::GET, "/api/v1/why/").err().unwrap().status, 404);
        assert_eq!(find(&Method::GET, "/api/v1/why/%ff").err().unwrap().status, 400);
        assert_eq!(find(&Method::GET, "/api/v1/why/%f").err().unwrap().status, 400);
        assert_eq!(find(&Method::GET, "").err().unwrap().status, 404);
    }

    #[test]
    fn queries_are_decoded() {
        let q = query("a=1&b=x%20y+z&c&&a=2").unwrap();
        assert_eq!(q["a"], "2");
        assert_eq!(q["b"], "x y z");
        assert_eq!(q["c"], "");
        assert!(query("a=%zz").is_err());
    }
}
