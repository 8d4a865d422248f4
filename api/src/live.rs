//! Live events: `GET /api/v1/events` as server-sent events, resumed by `Last-Event-ID`; or a page of past events as JSON.
//!
//! A stream has no queue. It polls the console twenty times a second and sends what is newer than its
//! client's position, so that it holds one chunk at most, however slow the client is. A client that does not
//! read is cut off (patience.rs) and resumes where it was, or receives `reset` if the missed events are no
//! longer stored.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Bytes, Frame};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use whimbrel_control::UeId;
use whimbrel_node::observation::{EventRecord, Metric};
use whimbrel_store::Count;

use super::auth::Caller;
use super::handlers::Throughput;
use super::input::{PageLimit, Query, page};
use super::openapi::OperationDescription;
use super::problem::ProblemDetails;
use super::routes::{AnswerKind, HandlerResult, Reply, RoutedRequest, TypedReply};
use super::{HandlerContext, signalling, why};

/// Maximum number of open event streams; each console page has one.
pub(super) const STREAMS_MAX: usize = 32;
/// Maximum number of streams of one user or API token: a few browser tabs each.
const STREAMS_OF_CALLER_MAX: usize = 8;
/// Poll interval of the console: a new message is sent within 50 ms and shown within 100 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polls between two reports of the counts, if they changed.
const POLLS_PER_COUNT: u64 = 20;
/// Polls between two comments that keep the connection alive through proxies.
const POLLS_PER_COMMENT: u64 = 300;
/// Maximum number of events of one poll; the rest follows at the next one.
const MAX_EVENTS_PER_POLL: usize = 200;

/// The events that are asked for.
#[derive(Deserialize, JsonSchema)]
pub(super) struct EventsQuery {
    /// Only events after this number.
    since: Option<Count>,
    /// Most items to return; 100 if absent.
    limit: Option<PageLimit>,
    /// Of a stream: the UE whose signalling is watched.
    ue: Option<String>,
    /// Of a stream: where to go on, as the header Last-Event-ID says.
    last_event_id: Option<String>,
}

/// A list of events, or a stream of them.
pub(super) struct Events;

impl AnswerKind for Events {
    fn describe(operation: &mut OperationDescription<'_>) {
        let (list, stream) =
            (operation.answer_schema::<Vec<EventRecord>>(), operation.answer_schema::<String>());
        operation.add_answer("200", "Done", &[("application/json", list), ("text/event-stream", stream)]);
    }
}

/// Past events as JSON, or a stream of new ones, as the client accepts.
pub(super) async fn events(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    Query(query): Query<EventsQuery>,
) -> HandlerResult<Events> {
    if request.header("accept").split(',').any(|t| t.trim().starts_with("text/event-stream")) {
        return stream(&shared, &request, query).map(TypedReply::from);
    }
    let since = query.since.map_or(0, Count::value);
    let events: Vec<EventRecord> = shared.console.events(|e| e.since(since, page(query.limit)));
    Reply::json(&events).map(TypedReply::from)
}

fn stream(
    shared: &Arc<HandlerContext>,
    request: &RoutedRequest,
    query: EventsQuery,
) -> Result<Reply, ProblemDetails> {
    let permit = shared.streams.clone().try_acquire_owned().map_err(|_| {
        ProblemDetails::unavailable(format!(
            "all {STREAMS_MAX} event streams are in use: close another console page"
        ))
    })?;
    let share = request
        .caller
        .as_ref()
        .filter(|c| !c.is_local())
        .map(|c| StreamShare::of(shared, &c.name))
        .transpose()?;
    let watched = query.ue;
    if let Some(ue) = &watched {
        signalling::ues(shared, ue)?;
    }
    let resumes = match request.header("last-event-id") {
        "" => query.last_event_id.as_deref().unwrap_or_default(),
        header => header,
    };
    let now = StreamPosition::newest(shared);
    let known = resumes.parse::<StreamPosition>().ok().filter(|place| place.is_at_or_before(&now));
    let mut stream = EventStream {
        shared: shared.clone(),
        caller: request.caller.clone(),
        position: known.unwrap_or(now),
        watched_ue: watched,
        signalling_sent: None,
        counts: None,
        polls: 0,
        sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
        chunk: String::new(),
        _permit: permit,
        _share: share,
    };
    if !resumes.is_empty() && known.is_none() {
        stream.chunk += "event: reset\ndata: {}\n\n";
    }
    Ok(Reply::text("text/event-stream", Body::new(stream)))
}

/// Position of a client, in the form `RUN-EVENT-CHANGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StreamPosition {
    /// Start time of the core: positions of an earlier run are not valid.
    core_started: u64,
    events: u64,
    changes: u64,
}

impl StreamPosition {
    fn newest(shared: &HandlerContext) -> Self {
        let console = &shared.console;
        Self {
            core_started: console.started.0,
            events: console.events(|e| e.last()),
            changes: console.histories(|h| h.last()),
        }
    }

    fn is_at_or_before(&self, now: &Self) -> bool {
        self.core_started == now.core_started && self.events <= now.events && self.changes <= now.changes
    }
}

impl std::fmt::Display for StreamPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{}-{}", self.core_started, self.events, self.changes)
    }
}

impl std::str::FromStr for StreamPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('-');
        let run = parts.next().and_then(|p| u64::from_str_radix(p, 16).ok()).ok_or(())?;
        let mut number = || parts.next().and_then(|p| p.parse().ok()).ok_or(());
        let place = Self { core_started: run, events: number()?, changes: number()? };
        parts.next().is_none().then_some(place).ok_or(())
    }
}

/// The counts of the overview.
#[derive(Clone, Copy, PartialEq, Serialize)]
struct OverviewCounts {
    gnbs: u64,
    ues: u64,
    ues_registered: u64,
    ues_connected: u64,
    pdu_sessions: u64,
    throughput: Throughput,
}

/// A UE or gNB that changed.
#[derive(Serialize)]
struct ChangeNotice {
    subject: String,
}

/// New messages in the signalling of the UE that is watched.
#[derive(Serialize)]
struct NewSignalling<'a> {
    ue: &'a str,
    last: u64,
}

/// The body of a stream.
struct EventStream {
    shared: Arc<HandlerContext>,
    caller: Option<Caller>,
    position: StreamPosition,
    /// The UE whose signalling is watched.
    watched_ue: Option<String>,
    signalling_sent: Option<u64>,
    counts: Option<OverviewCounts>,
    polls: u64,
    sleep: Pin<Box<Sleep>>,
    chunk: String,
    _permit: OwnedSemaphorePermit,
    _share: Option<StreamShare>,
}

/// Counts one open stream of a caller until it is dropped.
struct StreamShare {
    shared: Arc<HandlerContext>,
    caller: String,
}

impl StreamShare {
    fn of(shared: &Arc<HandlerContext>, caller: &str) -> Result<Self, ProblemDetails> {
        let mut open = shared.streams_of.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = open.entry(caller.to_owned()).or_default();
        if *streams >= STREAMS_OF_CALLER_MAX {
            return Err(ProblemDetails::too_many(format!(
                "{caller} has {STREAMS_OF_CALLER_MAX} event streams open, which is the limit: close one"
            )));
        }
        *streams += 1;
        Ok(Self { shared: shared.clone(), caller: caller.to_owned() })
    }
}

impl Drop for StreamShare {
    fn drop(&mut self) {
        let mut open = self.shared.streams_of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(streams) = open.get_mut(&self.caller) {
            *streams -= 1;
            if *streams == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

impl EventStream {
    fn add(&mut self, event: &str, data: &impl Serialize) {
        let data = serde_json::to_string(data).unwrap_or_default();
        self.chunk += &format!("id: {}\nevent: {event}\ndata: {data}\n\n", self.position);
    }

    /// Adds what is new to the chunk. Returns whether the stream goes on.
    fn poll_console(&mut self) -> bool {
        let looks = self.polls;
        self.polls += 1;
        let shared = self.shared.clone();
        let console = &shared.console;
        if looks.is_multiple_of(POLLS_PER_COUNT) {
            if self.caller.as_ref().is_some_and(|c| !shared.auth.is_still_valid(c)) {
                return false;
            }
            let m = &console.metrics;
            let counts = OverviewCounts {
                gnbs: m.value(Metric::Gnbs),
                ues: m.value(Metric::Ues),
                ues_registered: m.value(Metric::UesRegistered),
                ues_connected: m.value(Metric::UesConnected),
                pdu_sessions: m.value(Metric::PduSessions),
                throughput: Throughput {
                    ul_packets: m.sample(Metric::N3UlPackets),
                    ul_octets: m.sample(Metric::N3UlBytes),
                    dl_packets: m.sample(Metric::N3DlPackets),
                    dl_octets: m.sample(Metric::N3DlBytes),
                    // These grow with every heartbeat, and are not on the page.
                    n2_received: 0,
                    n2_sent: 0,
                },
            };
            if self.counts.replace(counts) != Some(counts) {
                self.add("counts", &counts);
            }
        }
        let events = console.events(|e| e.since(self.position.events, MAX_EVENTS_PER_POLL));
        if events.first().is_some_and(|e| e.seq > self.position.events + 1) {
            self.chunk += "event: reset\ndata: {}\n\n";
        }
        for event in events {
            self.position.events = event.seq;
            self.add("event", &event);
        }
        for (seq, name) in console.histories(|h| h.changed_since(self.position.changes, MAX_EVENTS_PER_POLL))
        {
            self.position.changes = seq;
            let kind = if matches!(name, whimbrel_node::observation::Name::Gnb(_)) { "gnb" } else { "ue" };
            self.add(kind, &ChangeNotice { subject: why::shown(&name) });
        }
        self.look_at_signalling();
        if self.chunk.is_empty() && looks % POLLS_PER_COMMENT == POLLS_PER_COMMENT - 1 {
            self.chunk += ": \n\n";
        }
        true
    }

    fn look_at_signalling(&mut self) {
        let Some(watched) = self.watched_ue.take() else { return };
        let ues: Vec<UeId> = signalling::ues(&self.shared, &watched).unwrap_or_default();
        let last = self.shared.console.signalling(|s| s.newest_of(&ues));
        if self.signalling_sent.replace(last) != Some(last) && last > 0 {
            self.add("signalling", &NewSignalling { ue: &watched, last });
        }
        self.watched_ue = Some(watched);
    }
}

impl hyper::body::Body for EventStream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if !self.chunk.is_empty() {
                let chunk = std::mem::take(&mut self.chunk);
                return Poll::Ready(Some(Ok(Frame::data(chunk.into()))));
            }
            match self.sleep.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => {}
            }
            let next = tokio::time::Instant::now() + POLL_INTERVAL;
            self.sleep.as_mut().reset(next);
            if !self.poll_console() {
                return Poll::Ready(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_and_another_runs_is_none() {
        let place = StreamPosition { core_started: 0x12ab, events: 7, changes: 9 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "12ab", "12ab-7", "12ab-7-9-1", "12ab-x-9", "-1-2"] {
            assert!(wrong.parse::<StreamPosition>().is_err(), "{wrong}");
        }
        let now = StreamPosition { events: 8, ..place };
        assert!(place.is_at_or_before(&now) && !now.is_at_or_before(&place));
        assert!(!StreamPosition { core_started: 1, ..place }.is_at_or_before(&now));
    }
}
