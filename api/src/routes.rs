//! The table of routes: what each needs, and what it answers. axum finds the route of a request (server.rs).

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};

use super::auth::{self, Caller, RequestPeer, Scope};
use super::problem::ProblemDetails;
use super::subscribers::{self, IMPORT_OCTETS_MAX};
use super::{
    HandlerContext, alarms, audit_entries, capture, handlers, live, log_level, network, operations, ran,
    settings, signalling, uri, why,
};

/// Octets of a body where the route says nothing else: one subscriber is under 2 KB.
pub(super) const BODY_OCTETS_MAX: usize = 256 << 10;

/// A request that found its route, read whole.
pub(super) struct RoutedRequest {
    /// The path's variable parts, decoded, in order.
    pub(super) params: Vec<String>,
    /// The query, decoded. Of a name given twice the last counts.
    pub(super) query: BTreeMap<String, String>,
    /// Media type of the body, without its parameters.
    pub(super) content_type: String,
    pub(super) headers: HeaderMap,
    /// The body of the request, complete.
    pub(super) body: Bytes,
    /// Where it came from.
    pub(super) peer: RequestPeer,
    /// Its sender; `None` where the route needs no login.
    pub(super) caller: Option<Caller>,
}

impl RoutedRequest {
    /// The `n`th variable part of the path.
    pub(super) fn param(&self, n: usize) -> &str {
        self.params.get(n).map_or("", String::as_str)
    }

    /// Whether its sender may do something further.
    pub(super) fn may(&self, scope: Scope) -> bool {
        self.caller.as_ref().is_some_and(|c| c.may(scope))
    }

    /// A header as text; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// A number of the query.
    pub(super) fn number(&self, name: &str, default: u64) -> Result<u64, ProblemDetails> {
        self.query.get(name).map_or(Ok(default), |text| {
            text.parse().map_err(|_| ProblemDetails::bad_request(format!("`{name}` must be a whole number")))
        })
    }
}

/// What goes back.
pub(super) struct Reply {
    status: StatusCode,
    content_type: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Body,
}

impl Reply {
    fn new(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Self {
        Self { status, content_type, headers: Vec::new(), body: body.into() }
    }

    /// A value as JSON.
    pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<Self, ProblemDetails> {
        let body = serde_json::to_vec(value).map_err(|e| ProblemDetails::internal(e.to_string()))?;
        Ok(Self::new(StatusCode::OK, "application/json", body))
    }

    /// A text of that type.
    pub(super) fn text(content_type: &'static str, body: impl Into<Body>) -> Self {
        Self::new(StatusCode::OK, content_type, body)
    }

    /// Done, with nothing to say.
    pub(super) fn empty() -> Self {
        Self::new(StatusCode::NO_CONTENT, "", Body::empty())
    }

    /// Its HTTP status.
    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The same with another status.
    pub(super) fn with(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The same with a further header.
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// As it is sent.
    pub(super) fn into_response(self) -> axum::response::Response {
        let mut response = axum::response::Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if !self.content_type.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        self.headers.into_iter().for_each(|(name, value)| drop(headers.insert(name, value)));
        response
    }
}

impl From<ProblemDetails> for Reply {
    fn from(problem: ProblemDetails) -> Self {
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let reply = Self::new(status, "application/problem+json", body);
        match status {
            StatusCode::UNAUTHORIZED => {
                reply.header(hyper::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
            }
            _ => reply,
        }
    }
}

pub(super) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Reply, ProblemDetails>> + Send>>;

/// What a route asks of the sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing: it shows nothing of this core, or is the way to log in.
    Nothing,
    /// Only to be known.
    Login,
    /// The scope `metrics`; on a loopback address nothing, for Prometheus.
    Metrics,
    /// A scope that the caller has to have.
    May(Scope),
}

/// A route with what it needs.
pub(super) struct Route {
    pub(super) method: Method,
    /// `{name}` stands for one part.
    pub(super) path: &'static str,
    /// What its sender must be allowed to do.
    pub(super) needs: Needs,
    /// Octets of its body at most.
    pub(super) body_max: usize,
    pub(super) handler: fn(Arc<HandlerContext>, RoutedRequest) -> HandlerFuture,
}

impl Route {
    /// Whether it shows or changes what is personal: subscribers, and UEs by their subscribers' names.
    pub(super) fn is_personal(&self) -> bool {
        const PERSONAL: [&str; 8] =
            ["ues", "ue-summaries", "why", "refusals", "events", "alarms", "subscribers", "operations"];
        self.path
            .strip_prefix("/api/v1/")
            .is_some_and(|p| PERSONAL.contains(&p.split('/').next().unwrap_or(p)))
    }

    /// Whether each access is recorded in the audit log: what is personal, and whatever changes something.
    pub(super) fn is_audited(&self) -> bool {
        // A check of a configuration changes nothing, and is a way to ask about this host: it is recorded like a change.
        self.is_personal() || self.method != Method::GET || self.needs == Needs::May(Scope::Admin)
    }
}

macro_rules! route {
    ($method:ident $path:literal $needs:expr, $handler:path) => {
        route!($method $path $needs, $handler, BODY_OCTETS_MAX)
    };
    ($method:ident $path:literal $needs:expr, $handler:path, $body_max:expr) => {
        Route {
            method: Method::$method,
            path: $path,
            needs: $needs,
            body_max: $body_max,
            handler: |shared, request| Box::pin($handler(shared, request)),
        }
    };
}

const READ: Needs = Needs::May(Scope::Read);
const OPERATE: Needs = Needs::May(Scope::Operate);
const PROVISION: Needs = Needs::May(Scope::Subscribers);
const ADMIN: Needs = Needs::May(Scope::Admin);

/// Every route that there is; `openapi.json` describes each, and a test holds them together.
pub(super) static ROUTES: &[Route] = &[
    route!(GET "/api/v1/session" Needs::Login, auth::handlers::me),
    route!(POST "/api/v1/session" Needs::Nothing, auth::handlers::login),
    route!(DELETE "/api/v1/session" Needs::Login, auth::handlers::logout),
    route!(PUT "/api/v1/session/password" Needs::Login, auth::handlers::change_password),
    route!(POST "/api/v1/session/second-factor" Needs::Login, auth::handlers::begin_enrolment),
    route!(PUT "/api/v1/session/second-factor" Needs::Login, auth::handlers::end_enrolment),
    route!(POST "/api/v1/links" ADMIN, auth::handlers::link),
    route!(GET "/api/v1/users" ADMIN, auth::handlers::users),
    route!(POST "/api/v1/users" ADMIN, auth::handlers::add_user),
    route!(PATCH "/api/v1/users/{name}" ADMIN, auth::handlers::edit_user),
    route!(DELETE "/api/v1/users/{name}" ADMIN, auth::handlers::remove_user),
    route!(DELETE "/api/v1/users/{name}/second-factor" ADMIN, auth::handlers::reset_second_factor),
    route!(GET "/api/v1/tokens" ADMIN, auth::handlers::tokens),
    route!(POST "/api/v1/tokens" ADMIN, auth::handlers::add_token),
    route!(DELETE "/api/v1/tokens/{name}" ADMIN, auth::handlers::remove_token),
    route!(GET "/api/v1/audit" ADMIN, audit_entries::list),
    route!(GET "/api/v1/status" READ, handlers::status),
    route!(GET "/api/v1/alarms" READ, alarms::list),
    route!(GET "/api/v1/cluster" READ, handlers::cluster),
    route!(GET "/api/v1/network" READ, network::show),
    route!(GET "/api/v1/config" OPERATE, settings::show),
    route!(PUT "/api/v1/config" ADMIN, settings::change),
    route!(GET "/api/v1/config/defaults" READ, settings::defaults),
    route!(POST "/api/v1/config/check" OPERATE, settings::check),
    route!(GET "/api/v1/config/history" OPERATE, settings::versions),
    route!(GET "/api/v1/config/history/{number}" OPERATE, settings::version),
    route!(GET "/api/v1/gnbs" READ, handlers::gnbs),
    route!(POST "/api/v1/gnbs/{gnb}/reset" OPERATE, ran::reset),
    route!(POST "/api/v1/gnbs/{gnb}/disconnect" OPERATE, ran::disconnect),
    route!(GET "/api/v1/warnings" READ, ran::warnings),
    route!(POST "/api/v1/warnings" OPERATE, ran::warn),
    route!(DELETE "/api/v1/warnings/{message_identifier}/{serial_number}" OPERATE, ran::cancel),
    route!(GET "/api/v1/overload" READ, ran::overload),
    route!(GET "/api/v1/foresight" READ, ran::foresight),
    route!(POST "/api/v1/overload/{order}" OPERATE, ran::order_overload),
    route!(GET "/api/v1/log-level" READ, log_level::show),
    route!(POST "/api/v1/log-level/{level}" OPERATE, log_level::set),
    route!(POST "/api/v1/reload" OPERATE, ran::reload),
    route!(GET "/api/v1/ues" READ, handlers::ues),
    route!(GET "/api/v1/ue-summaries" READ, handlers::ue_summaries),
    route!(GET "/api/v1/ues/{supi}" READ, handlers::ue),
    route!(GET "/api/v1/ues/{supi}/capture" Needs::May(Scope::Nas), capture::of_ue),
    route!(GET "/api/v1/ues/{supi}/signalling" READ, signalling::list),
    route!(POST "/api/v1/ues/{supi}/deregister" OPERATE, handlers::deregister),
    route!(POST "/api/v1/ues/{supi}/reachability" OPERATE, handlers::notify_reachable),
    route!(POST "/api/v1/ues/{supi}/locate" OPERATE, handlers::locate),
    route!(POST "/api/v1/ues/{supi}/sessions/{id}/modify" OPERATE, handlers::modify_session),
    route!(GET "/api/v1/operations" READ, operations::list),
    route!(GET "/api/v1/operations/{id}" READ, operations::show),
    route!(GET "/api/v1/why/{subject}" READ, why::why),
    route!(GET "/api/v1/refusals" READ, handlers::refusals),
    route!(GET "/api/v1/events" READ, live::events),
    route!(GET "/api/v1/subscribers" READ, subscribers::list),
    route!(POST "/api/v1/subscribers" PROVISION, subscribers::add),
    route!(POST "/api/v1/subscribers/import" PROVISION, subscribers::import, IMPORT_OCTETS_MAX),
    route!(GET "/api/v1/subscribers/{supi}" READ, subscribers::show),
    route!(PATCH "/api/v1/subscribers/{supi}" PROVISION, subscribers::edit),
    route!(DELETE "/api/v1/subscribers/{supi}" PROVISION, subscribers::remove),
    route!(GET "/metrics" Needs::Metrics, handlers::metrics),
    route!(GET "/openapi.json" Needs::Nothing, handlers::openapi),
];

/// The methods of a path, where it is a path of ours.
pub(super) fn methods_of(path: &str) -> Vec<&'static str> {
    let fits = ROUTES.iter().filter(|r| uri::matches(r.path, path).is_some());
    fits.map(|r| r.method.as_str()).collect()
}

/// A query's names and values.
pub(super) fn query(text: &str) -> Result<BTreeMap<String, String>, ProblemDetails> {
    uri::query(text).ok_or_else(|| ProblemDetails::bad_request("the query is not percent-encoded UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_a_path_are_listed() {
        assert_eq!(methods_of("/api/v1/subscribers/x"), ["GET", "PATCH", "DELETE"]);
        assert!(methods_of("/api/v1/why/").is_empty() && methods_of("").is_empty());
    }

    #[test] // TS 33.117 §4.2.3.4.1: no function is usable without authentication, but those that begin it
    fn routes_that_need_no_login_show_nothing_of_the_core() {
        let open: Vec<&str> = ROUTES.iter().filter(|r| r.needs == Needs::Nothing).map(|r| r.path).collect();
        assert_eq!(open, ["/api/v1/session", "/openapi.json"]);
        for route in ROUTES.iter().filter(|r| r.method != Method::GET && r.path != "/api/v1/session") {
            assert_ne!(route.needs, READ, "{} {} changes something", route.method, route.path);
        }
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
