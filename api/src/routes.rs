//! The table of routes: what each needs, and what it answers. axum finds the route of a request (server.rs).

use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};

use schemars::JsonSchema;
use serde::Serialize;
use whimbrel_node::observation::{OperationState, OperationView};

use super::auth::{self, Caller, RequestPeer, Scope};
use super::input::HandlerInput;
use super::openapi::OperationDescription;
use super::problem::ProblemDetails;
use super::subscribers::{self, IMPORT_OCTETS_MAX};
use super::{
    HandlerContext, alarms, audit_entries, capture, charging, handlers, live, log_level, network, operations,
    ran, settings, signalling, uri, why,
};

/// Octets of a body where the route says nothing else: one subscriber is under 2 KB.
pub(super) const BODY_OCTETS_MAX: usize = 256 << 10;

/// A request that found its route, read whole.
pub(super) struct RoutedRequest {
    /// The pattern of its route.
    pub(super) path: &'static str,
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
    /// Whether its sender may do something further.
    pub(super) fn may(&self, scope: Scope) -> bool {
        self.caller.as_ref().is_some_and(|c| c.may(scope))
    }

    /// A header as text; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
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
    pub(super) fn json<T: Serialize>(value: &T) -> Result<Self, ProblemDetails> {
        let body = serde_json::to_vec(value).map_err(|e| ProblemDetails::internal(e.to_string()))?;
        Ok(Self::new(StatusCode::OK, "application/json", body))
    }

    /// A status alone.
    pub(super) fn without_body(status: StatusCode) -> Self {
        Self::new(status, "", Body::empty())
    }

    /// A text of that type.
    pub(super) fn text(content_type: &'static str, body: impl Into<Body>) -> Self {
        Self::new(StatusCode::OK, content_type, body)
    }

    /// Its HTTP status.
    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
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
        if let Some(Ok(allow)) = problem.allow.as_deref().map(HeaderValue::from_str) {
            return reply.header(hyper::header::ALLOW, allow);
        }
        match status {
            StatusCode::UNAUTHORIZED => {
                reply.header(hyper::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
            }
            _ => reply,
        }
    }
}

/// The answer of a handler, of a kind that the OpenAPI document describes.
pub(super) struct TypedReply<K> {
    reply: Reply,
    kind: PhantomData<fn() -> K>,
}

/// What handlers return.
pub(super) type HandlerResult<K> = Result<TypedReply<K>, ProblemDetails>;

impl<K> TypedReply<K> {
    /// The same with a further header.
    pub(super) fn header(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { reply: self.reply.header(name, value), ..self }
    }
}

impl<K> From<Reply> for TypedReply<K> {
    fn from(reply: Reply) -> Self {
        Self { reply, kind: PhantomData }
    }
}

impl<T: Serialize> TypedReply<Json<T>> {
    /// A value as JSON.
    pub(super) fn json(value: &T) -> HandlerResult<Json<T>> {
        Reply::json(value).map(Self::from)
    }

    /// The same with the status of something new.
    pub(super) fn created(mut self) -> TypedReply<Created<T>> {
        self.reply.status = StatusCode::CREATED;
        self.reply.into()
    }
}

impl TypedReply<Empty> {
    /// Done, with nothing to say.
    pub(super) fn empty() -> Self {
        Reply::without_body(StatusCode::NO_CONTENT).into()
    }
}

impl TypedReply<OperationAnswer> {
    /// An operation: 200 once its outcome is known, 202 while it is not.
    pub(super) fn operation(operation: &OperationView) -> HandlerResult<OperationAnswer> {
        let mut reply = TypedReply::json(operation)?.reply;
        reply.status = match operation.state {
            OperationState::Pending => StatusCode::ACCEPTED,
            OperationState::Succeeded | OperationState::Failed | OperationState::Deferred => StatusCode::OK,
        };
        Ok(reply.into())
    }
}

/// A kind of answer, as the OpenAPI document describes it.
pub(super) trait AnswerKind {
    /// Adds its responses to the description of an operation.
    fn describe(operation: &mut OperationDescription<'_>);
}

/// A value as JSON.
pub(super) struct Json<T>(PhantomData<T>);

impl<T: JsonSchema> AnswerKind for Json<T> {
    fn describe(operation: &mut OperationDescription<'_>) {
        let schema = operation.answer_schema::<T>();
        operation.add_answer("200", "Done", &[("application/json", schema)]);
    }
}

/// A value as JSON, of something that is new.
pub(super) struct Created<T>(PhantomData<T>);

impl<T: JsonSchema> AnswerKind for Created<T> {
    fn describe(operation: &mut OperationDescription<'_>) {
        let schema = operation.answer_schema::<T>();
        operation.add_answer("201", "Done", &[("application/json", schema)]);
    }
}

/// Nothing but the status.
pub(super) struct Empty;

impl AnswerKind for Empty {
    fn describe(operation: &mut OperationDescription<'_>) {
        operation.add_answer("204", "Done", &[]);
    }
}

/// An operation, which has ended or not.
pub(super) struct OperationAnswer;

impl AnswerKind for OperationAnswer {
    fn describe(operation: &mut OperationDescription<'_>) {
        let schema = operation.answer_schema::<OperationView>();
        let content = [("application/json", schema)];
        operation.add_answer("200", "The outcome is known: `state` says which it is", &content);
        let pending = "The order was accepted, and its outcome is not known yet: GET /api/v1/operations/{id}";
        operation.add_answer("202", pending, &content);
    }
}

/// A handler, whose arguments after the request are its inputs.
pub(super) trait Handler<Arguments>: Send + 'static {
    /// Reads the inputs and calls it.
    fn call(self, shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerFuture;
    /// Adds its inputs and its answer to the description of an operation.
    fn describe(operation: &mut OperationDescription<'_>);
}

macro_rules! handlers_of {
    ($($input:ident)*) => {
        impl<F, R, K, $($input,)*> Handler<(K, $($input,)*)> for F
        where
            F: Fn(Arc<HandlerContext>, RoutedRequest, $($input,)*) -> R + Send + Sync + 'static,
            R: Future<Output = HandlerResult<K>> + Send + 'static,
            K: AnswerKind + 'static,
            $($input: HandlerInput + 'static,)*
        {
            fn call(self, shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerFuture {
                Box::pin(async move {
                    $(
                        #[allow(non_snake_case, reason = "the argument has the name of its type")]
                        let $input = $input::read(&request)?;
                    )*
                    self(shared, request, $($input,)*).await.map(|answer| answer.reply)
                })
            }

            fn describe(operation: &mut OperationDescription<'_>) {
                $($input::describe(operation);)*
                K::describe(operation);
            }
        }
    };
}

handlers_of!();
handlers_of!(I1);
handlers_of!(I1 I2);
handlers_of!(I1 I2 I3);

/// Calls a handler.
fn call<A, H: Handler<A>>(handler: H, shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerFuture {
    handler.call(shared, request)
}

/// Describes a handler.
fn describe<A, H: Handler<A>>(_: H, operation: &mut OperationDescription<'_>) {
    H::describe(operation);
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
    /// The name by which clients call it.
    pub(super) operation_id: &'static str,
    /// One line about it.
    pub(super) summary: &'static str,
    /// What else its caller should know; may be empty.
    pub(super) notes: &'static str,
    /// Adds its inputs and answers to its description.
    pub(super) describe: fn(&mut OperationDescription<'_>),
}

impl Route {
    /// Whether it shows or changes what is personal: subscribers, and UEs by their subscribers' names.
    pub(super) fn is_personal(&self) -> bool {
        const PERSONAL: [&str; 9] = [
            "ues",
            "ue-summaries",
            "why",
            "refusals",
            "events",
            "alarms",
            "subscribers",
            "operations",
            "charging",
        ];
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
    ($method:ident $path:literal $needs:expr, $handler:path, $id:literal, $summary:literal
        $(, notes $notes:literal)? $(, body_max $body_max:expr)?) => {
        Route {
            method: Method::$method,
            path: $path,
            needs: $needs,
            body_max: route!(@or BODY_OCTETS_MAX $(, $body_max)?),
            handler: |shared, request| call($handler, shared, request),
            operation_id: $id,
            summary: $summary,
            notes: route!(@or "" $(, $notes)?),
            describe: |operation| describe($handler, operation),
        }
    };
    (@or $default:expr) => { $default };
    (@or $default:expr, $given:expr) => { $given };
}

const READ: Needs = Needs::May(Scope::Read);
const OPERATE: Needs = Needs::May(Scope::Operate);
const PROVISION: Needs = Needs::May(Scope::Subscribers);
const ADMIN: Needs = Needs::May(Scope::Admin);

/// Every route that there is. The OpenAPI document is made of them.
pub(super) static ROUTES: &[Route] = &[
    route!(
        GET "/api/v1/session" Needs::Login, auth::handlers::me,
        "show_session", "The caller's name and scopes"
    ),
    route!(
        POST "/api/v1/session" Needs::Nothing, auth::handlers::login,
        "log_in", "Log in, by name and password or by a one-time link",
        notes "Sets the session's cookie. Changes that use the cookie repeat `csrf` in the header X-CSRF-Token."
    ),
    route!(
        DELETE "/api/v1/session" Needs::Login, auth::handlers::logout,
        "log_out", "Log out"
    ),
    route!(
        PUT "/api/v1/session/password" Needs::Login, auth::handlers::change_password,
        "change_password", "Change one's own password"
    ),
    route!(
        POST "/api/v1/session/second-factor" Needs::Login, auth::handlers::begin_enrolment,
        "begin_second_factor", "Begin to set up a second factor of one's own",
        notes "The answer has the secret for an app that shows codes (TOTP, RFC 6238); PUT with the first code ends it within ten minutes."
    ),
    route!(
        PUT "/api/v1/session/second-factor" Needs::Login, auth::handlers::end_enrolment,
        "end_second_factor", "End setting up a second factor of one's own, by its first code"
    ),
    route!(
        POST "/api/v1/links" ADMIN, auth::handlers::link,
        "add_link", "Make a one-time link to the console; for commands on the core's host"
    ),
    route!(
        GET "/api/v1/users" ADMIN, auth::handlers::users,
        "list_users", "The users"
    ),
    route!(
        POST "/api/v1/users" ADMIN, auth::handlers::add_user,
        "add_user", "Make a user; the first one must be an admin"
    ),
    route!(
        PATCH "/api/v1/users/{name}" ADMIN, auth::handlers::edit_user,
        "edit_user", "Change a user's role or password; its sessions end"
    ),
    route!(
        DELETE "/api/v1/users/{name}" ADMIN, auth::handlers::remove_user,
        "remove_user", "Remove a user; its sessions end"
    ),
    route!(
        DELETE "/api/v1/users/{name}/second-factor" ADMIN, auth::handlers::reset_second_factor,
        "reset_second_factor", "Remove a user's second factor; the user's sessions end"
    ),
    route!(
        GET "/api/v1/tokens" ADMIN, auth::handlers::tokens,
        "list_tokens", "The API tokens, without their secrets"
    ),
    route!(
        POST "/api/v1/tokens" ADMIN, auth::handlers::add_token,
        "add_token", "Make an API token; its secret is shown this once"
    ),
    route!(
        DELETE "/api/v1/tokens/{name}" ADMIN, auth::handlers::remove_token,
        "remove_token", "Remove an API token"
    ),
    route!(
        GET "/api/v1/audit" ADMIN, audit_entries::list,
        "list_audit_entries", "The newest lines of the audit log, newest first"
    ),
    route!(
        GET "/api/v1/status" READ, handlers::status,
        "show_status", "State of the core",
        notes "Of a CPF (`whimbrel cpf --api`) only `version`, `started`, `now`, `uptime_s`, `condition` and `components`."
    ),
    route!(
        GET "/api/v1/alarms" READ, alarms::list,
        "list_alarms", "What is wrong now, worst first, with reason and fix"
    ),
    route!(
        GET "/api/v1/cluster" READ, handlers::cluster,
        "show_cluster", "The processes that serve UEs, and what happened to them"
    ),
    route!(
        GET "/api/v1/network" READ, network::show,
        "show_network", "Tracking areas, slices, data networks and QoS policies in force"
    ),
    route!(
        GET "/api/v1/config" OPERATE, settings::show,
        "show_config", "The configuration file, its secrets hidden"
    ),
    route!(
        PUT "/api/v1/config" ADMIN, settings::change,
        "change_config", "Write the configuration file and reload it"
    ),
    route!(
        GET "/api/v1/config/defaults" READ, settings::defaults,
        "show_config_defaults", "All configuration keys with their defaults"
    ),
    route!(
        POST "/api/v1/config/check" OPERATE, settings::check,
        "check_config", "Check a configuration without saving it"
    ),
    route!(
        GET "/api/v1/config/history" OPERATE, settings::versions,
        "list_config_versions", "Versions of the configuration file, newest first"
    ),
    route!(
        GET "/api/v1/config/history/{number}" OPERATE, settings::version,
        "show_config_version", "The text of a version"
    ),
    route!(
        GET "/api/v1/gnbs" READ, handlers::gnbs,
        "list_gnbs", "The gNBs that are up"
    ),
    route!(
        POST "/api/v1/gnbs/{gnb}/reset" OPERATE, ran::reset,
        "reset_gnb", "Reset all connections of a gNB (TS 38.413 §8.7.4)"
    ),
    route!(
        POST "/api/v1/gnbs/{gnb}/disconnect" OPERATE, ran::disconnect,
        "disconnect_gnb", "Disconnect a gNB; for 60 s its addresses do not get its identity"
    ),
    route!(
        GET "/api/v1/warnings" READ, ran::warnings,
        "list_warnings", "Warning messages, oldest first"
    ),
    route!(
        POST "/api/v1/warnings" OPERATE, ran::warn,
        "send_warning", "Send a warning message (TS 38.413 §8.9.1, TS 23.041)"
    ),
    route!(
        DELETE "/api/v1/warnings/{message_identifier}/{serial_number}" OPERATE, ran::cancel,
        "cancel_warning", "Cancel a warning message (TS 38.413 §8.9.2)"
    ),
    route!(
        GET "/api/v1/overload" READ, ran::overload,
        "show_overload", "Whether OVERLOAD START is in force at gNBs"
    ),
    route!(
        GET "/api/v1/removal" READ, ran::removal,
        "show_removal", "The planned removal of this AMF from its set"
    ),
    route!(
        POST "/api/v1/removal" OPERATE, ran::begin_removal,
        "begin_removal", "Give all UEs to another AMF of the set (TS 23.501 §5.21.2.2.1)"
    ),
    route!(
        DELETE "/api/v1/removal" OPERATE, ran::end_removal,
        "end_removal", "End the removal: this AMF serves new UEs again"
    ),
    route!(
        GET "/api/v1/upfs/{upf}/drain" READ, ran::upf_drain,
        "show_upf_drain", "The drain of a UPF"
    ),
    route!(
        POST "/api/v1/upfs/{upf}/drain" OPERATE, ran::begin_upf_drain,
        "begin_upf_drain", "Drain a UPF before maintenance (TS 23.502 §4.3.5)"
    ),
    route!(
        DELETE "/api/v1/upfs/{upf}/drain" OPERATE, ran::end_upf_drain,
        "end_upf_drain", "End the drain: the UPF gets sessions again"
    ),
    route!(
        GET "/api/v1/foresight" READ, ran::foresight,
        "show_foresight", "The state of the prediction of handovers"
    ),
    route!(
        POST "/api/v1/overload/{order}" OPERATE, ran::order_overload,
        "order_overload", "Set whether gNBs get OVERLOAD START (TS 38.413 §8.7.7, §8.7.8)"
    ),
    route!(
        GET "/api/v1/log-level" READ, log_level::show,
        "show_log_level", "The level of the log"
    ),
    route!(
        POST "/api/v1/log-level/{level}" OPERATE, log_level::set,
        "set_log_level", "Set the level of the log until the next start"
    ),
    route!(
        POST "/api/v1/reload" OPERATE, ran::reload,
        "reload_config", "Reload the configuration and put in force what can change while the core runs"
    ),
    route!(
        GET "/api/v1/ues" READ, handlers::ues,
        "list_ues", "UEs"
    ),
    route!(
        GET "/api/v1/ue-summaries" READ, handlers::ue_summaries,
        "list_ue_summaries", "UEs in the order of their SUPI, with what a list of many shows of each"
    ),
    route!(
        GET "/api/v1/ues/{supi}" READ, handlers::ue,
        "show_ue", "One UE"
    ),
    route!(
        GET "/api/v1/ues/{supi}/capture" Needs::May(Scope::Nas), capture::of_ue,
        "capture_ue", "The messages of a UE as a capture (pcapng) that Wireshark and tshark read"
    ),
    route!(
        GET "/api/v1/ues/{supi}/signalling" READ, signalling::list,
        "list_signalling", "The N2 and N4 messages of a UE, decoded",
        notes "Ciphered NAS is deciphered for the scope `nas`, under the keys that the UE has now."
    ),
    route!(
        POST "/api/v1/ues/{supi}/deregister" OPERATE, handlers::deregister,
        "deregister_ue", "Deregister a UE (TS 23.502 §4.2.2.3.3)"
    ),
    route!(
        POST "/api/v1/ues/{supi}/reachability" OPERATE, handlers::notify_reachable,
        "notify_reachable", "Emit the event `reachable` when the UE becomes reachable (TS 23.502 §4.2.5.2)"
    ),
    route!(
        POST "/api/v1/ues/{supi}/locate" OPERATE, handlers::locate,
        "locate_ue", "Locate a UE, or start or stop its location reports (TS 23.502 §4.10); the UE and the events have the result"
    ),
    route!(
        POST "/api/v1/ues/{supi}/sessions/{id}/modify" OPERATE, handlers::modify_session,
        "modify_session", "Change one property of a PDU session (TS 23.502 §4.3.3.2), or release it"
    ),
    route!(
        GET "/api/v1/operations" READ, operations::list,
        "list_operations", "The newest operations: orders to UEs and gNBs, with their outcome"
    ),
    route!(
        GET "/api/v1/operations/{id}" READ, operations::show,
        "show_operation", "One operation"
    ),
    route!(
        GET "/api/v1/why/{subject}" READ, why::why,
        "explain", "Why a UE is not registered or a gNB not set up, since when, and the fix; 404: the name is not understood"
    ),
    route!(
        GET "/api/v1/refusals" READ, handlers::refusals,
        "list_refusals", "The newest refusals, newest first"
    ),
    route!(
        GET "/api/v1/events" READ, live::events,
        "list_events", "Events after number `since`, oldest first",
        notes "With `Accept: text/event-stream` a stream of server-sent events (counts, event, ue, gnb, signalling, reset) that Last-Event-ID resumes."
    ),
    route!(
        GET "/api/v1/subscribers" READ, subscribers::list,
        "list_subscribers", "The subscribers, without their keys"
    ),
    route!(
        POST "/api/v1/subscribers" PROVISION, subscribers::add,
        "add_subscriber", "Add a subscriber"
    ),
    route!(
        POST "/api/v1/subscribers/import" PROVISION, subscribers::import,
        "import_subscribers", "Import a list of subscribers, all of it or nothing",
        body_max IMPORT_OCTETS_MAX
    ),
    route!(
        GET "/api/v1/subscribers/{supi}" READ, subscribers::show,
        "show_subscriber", "One subscriber, without its keys"
    ),
    route!(
        PATCH "/api/v1/subscribers/{supi}" PROVISION, subscribers::edit,
        "edit_subscriber", "Change a subscriber by a merge patch (RFC 7396)"
    ),
    route!(
        DELETE "/api/v1/subscribers/{supi}" PROVISION, subscribers::remove,
        "remove_subscriber", "Remove a subscriber"
    ),
    route!(
        GET "/api/v1/charging/accounts" READ, charging::list,
        "list_charging_accounts", "The accounts of the charging function, in the order of their SUPI"
    ),
    route!(
        GET "/api/v1/charging/accounts/{supi}" READ, charging::show,
        "show_charging_account", "One account, with its open sessions"
    ),
    route!(
        PUT "/api/v1/charging/accounts/{supi}" PROVISION, charging::put,
        "put_charging_account", "Make an account, or change its kind and status; consumers of its sessions are notified of a change"
    ),
    route!(
        DELETE "/api/v1/charging/accounts/{supi}" PROVISION, charging::remove,
        "remove_charging_account", "Remove an account; the charging of its sessions is aborted"
    ),
    route!(
        POST "/api/v1/charging/accounts/{supi}/credit" PROVISION, charging::credit,
        "credit_charging_account", "Add octets to the credit of an account, or take back what is left"
    ),
    route!(
        GET "/api/v1/charging/records" READ, charging::records,
        "list_charging_records", "Charging records with numbers greater than `after`, in order"
    ),
    route!(
        GET "/api/v1/charging/records.csv" READ, charging::records_as_csv,
        "export_charging_records", "The same as CSV (RFC 4180)"
    ),
    route!(
        GET "/metrics" Needs::Metrics, handlers::metrics,
        "read_metrics", "Metrics for Prometheus"
    ),
    route!(
        GET "/openapi.json" Needs::Nothing, handlers::openapi,
        "read_openapi", "This document"
    ),
];

/// The methods of a path, where it is a path of ours.
pub(super) fn methods_of(path: &str) -> Vec<&'static str> {
    // A path that stands in the table is not one with a variable part.
    let is_whole = ROUTES.iter().any(|r| r.path == path);
    let fits = ROUTES.iter().filter(|r| match is_whole {
        true => r.path == path,
        false => uri::matches(r.path, path).is_some(),
    });
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
        assert_eq!(methods_of("/api/v1/subscribers/import"), ["POST"]);
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
