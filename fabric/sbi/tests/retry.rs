//! One request to several instances.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::HeaderValue;
use whimbrel_sbi::headers::{REQUEST_INFO, RequestInfo};
use whimbrel_sbi::server::ServerSettings;
use whimbrel_sbi::{ApiRoot, SbiRequest, SbiResponse, SbiServer, SendError, problem};

use crate::common::{client, get, listener, post, run};

type Received = Arc<Mutex<Vec<RequestInfo>>>;

/// A server with one answer, which notes what it gets.
fn server(answer: impl Fn() -> SbiResponse + Send + Sync + 'static) -> (SbiServer, ApiRoot, Received) {
    let received = Received::default();
    let noted = received.clone();
    let server = SbiServer::start(listener(), ServerSettings::default(), move |request| {
        noted.lock().unwrap().push(RequestInfo::of(&request.headers));
        let response = answer();
        async { response }
    });
    let server = server.unwrap();
    let root = root(server.address());
    (server, root, received)
}

fn root(at: SocketAddr) -> ApiRoot {
    format!("http://{at}").parse().unwrap()
}

fn closed() -> ApiRoot {
    root(listener().local_addr().unwrap())
}

fn count(received: &Received) -> usize {
    received.lock().unwrap().len()
}

fn request() -> SbiRequest {
    post("127.0.0.1:1".parse().unwrap(), "/", 2)
}

#[test] // TS 29.500 §6.4: another instance is tried after 429, 503 or 504, and where none can be reached
fn the_next_instance_serves_what_one_refuses() {
    run(async {
        let client = client();
        let (_ok, good, served) = server(SbiResponse::no_content);
        for status in [429, 503, 504] {
            let (_bad, bad, refused) = server(move || problem::of_status(status, None, "overloaded"));
            let response =
                client.send_to_any(&request(), "/x", &[closed(), bad, good.clone()]).await.unwrap();
            assert_eq!((response.status, count(&refused)), (StatusCode::NO_CONTENT, 1));
        }
        assert_eq!(count(&served), 3);
        let (_bad, bad, _) = server(|| problem::of_status(404, Some("USER_NOT_FOUND"), "unknown"));
        let response = client.send_to_any(&request(), "/x", &[bad, good]).await.unwrap();
        assert_eq!(
            response.problem().cause.unwrap().as_str(),
            "USER_NOT_FOUND",
            "a refusal of the request stands"
        );
        assert_eq!(count(&served), 3);
        assert_eq!(client.send_to_any(&request(), "/x", &[]).await.unwrap_err(), SendError::NoInstance);
        let all = [closed(), closed(), closed(), closed()];
        assert!(matches!(client.send_to_any(&request(), "/x", &all).await, Err(SendError::Connect(..))));
    });
}

#[test] // TS 29.500 §6.4; RFC 9110 §10.2.3: Retry-After keeps later requests away
fn an_instance_that_names_a_wait_is_left_alone_for_it() {
    run(async {
        let client = client();
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let (_busy, busy, _) = server(move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => problem::congestion("overloaded", Duration::from_secs(1)),
            _ => SbiResponse::no_content(),
        });
        let (_other, other, served) = server(SbiResponse::no_content);
        let both = [busy.clone(), other];
        for _ in 0..3 {
            client.send_to_any(&request(), "/x", &both).await.unwrap();
        }
        assert_eq!((calls.load(Ordering::Relaxed), count(&served)), (1, 3));
        let mut short = request();
        short.within = Duration::from_millis(100);
        let e = client.send_to_any(&short, "/x", std::slice::from_ref(&busy)).await.unwrap_err();
        assert!(matches!(e, SendError::RetryAfter(..)), "{e}");
        let started = Instant::now();
        let response = client.send_to_any(&request(), "/x", &[busy]).await.unwrap();
        assert_eq!(response.status, StatusCode::NO_CONTENT);
        assert!(started.elapsed() > Duration::from_millis(300), "it waited for the rest of the second");
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    });
}

#[test] // TS 29.500 §5.2.8: a request that may have been acted on is repeated only with an idempotency key
fn a_lost_response_is_asked_for_again_only_where_that_does_no_harm() {
    run(async {
        let lossy = crate::common::raw_server(|_, mut connection| async move {
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                respond.send_reset(h2::Reason::INTERNAL_ERROR);
            }
        });
        let (_ok, good, served) = server(SbiResponse::no_content);
        let client = client();
        let both = [root(lossy), good];
        let e = client.send_to_any(&request(), "/x", &both).await.unwrap_err();
        assert!(matches!(e, SendError::Reset(..)) && count(&served) == 0, "{e}");
        let info = RequestInfo { idempotency_key: Some("k-1".into()), ..RequestInfo::default() };
        let keyed = request().header(REQUEST_INFO, info.header().unwrap());
        client.send_to_any(&keyed, "/x", &both).await.unwrap();
        assert_eq!(*served.lock().unwrap(), [RequestInfo { retrans: true, ..info }]);
        client.send_to_any(&get(lossy, "/"), "/x", &both).await.unwrap();
        assert_eq!(count(&served), 2);
    });
}

#[test]
fn a_request_keeps_its_headers_at_each_instance() {
    run(async {
        let (_ok, good, served) = server(SbiResponse::no_content);
        let keyed = request().header(REQUEST_INFO, HeaderValue::from_static("idempotency-key=k-2"));
        client().send_to_any(&keyed, "/x", &[good]).await.unwrap();
        let key = served.lock().unwrap()[0].clone();
        assert_eq!(key, RequestInfo { idempotency_key: Some("k-2".into()), ..RequestInfo::default() });
    });
}
