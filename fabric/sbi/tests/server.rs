//! The producer's side against peers that break its bounds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use whimbrel_sbi::headers::{ResponseDeadline, now};
use whimbrel_sbi::server::{BodyBound, ServerSettings};
use whimbrel_sbi::{SbiResponse, SbiServer};
use whimbrel_sbi_types::nausf::AuthenticationInfo;

use crate::common::{WITHIN, client, echo, get, listener, post, raw, request, run};

/// Waits until something holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + WITHIN;
    while !holds() {
        assert!(Instant::now() < end, "{what} within {WITHIN:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test] // TS 29.500 §5.2.7.2: 413 for a body that is too large, whose octets are not kept
fn a_body_of_16_mib_is_refused_with_or_without_its_length() {
    run(async {
        let bounds = vec![BodyBound { path_prefix: "/large".into(), octets_max: 20 << 20 }];
        let server = echo(ServerSettings { body_bounds: bounds, ..ServerSettings::default() });
        let response = client().send(post(server.address(), "/small", 16 << 20)).await.unwrap();
        assert_eq!(response.status, StatusCode::PAYLOAD_TOO_LARGE);
        let response = client().send(post(server.address(), "/large", 16 << 20)).await.unwrap();
        assert_eq!(response.status, StatusCode::OK);
        // Without content-length: the stream ends before all is sent.
        let mut sender = raw(server.address()).await.ready().await.unwrap();
        let (response, mut body) = sender.send_request(request("POST", "/small"), false).unwrap();
        let sent = tokio::spawn(async move {
            for n in 0..1024 {
                body.reserve_capacity(16 << 10);
                match std::future::poll_fn(|cx| body.poll_capacity(cx)).await {
                    Some(Ok(_)) if body.send_data(vec![0; 16 << 10].into(), false).is_ok() => {}
                    _ => return n,
                }
            }
            1024
        });
        assert_eq!(response.await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert!(sent.await.unwrap() < 100, "the rest of the body was taken");
        assert_eq!(server.counts().requests_refused, 2);
    });
}

#[test] // TS 29.500 §5.2.7.2: INVALID_MSG_FORMAT, MANDATORY_IE_MISSING and their like name the member
fn bodies_that_cannot_be_read_are_answered_with_their_cause() {
    run(async {
        let server = SbiServer::start(listener(), ServerSettings::default(), |request| async move {
            match request.read::<AuthenticationInfo>() {
                Ok(_) => SbiResponse::no_content(),
                Err(refusal) => refusal,
            }
        });
        let server = server.unwrap();
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let name = r#""servingNetworkName":"5G:mnc070.mcc999.3gppnetwork.org""#;
        let supi = r#""supiOrSuci":"imsi-999700000000001""#;
        for (body, status, cause, member) in [
            (format!("{{{supi},{name}}}"), 204, None, None),
            (format!("{{{supi},{name},\"later\":{deep}}}"), 400, Some("INVALID_MSG_FORMAT"), None),
            (deep.clone(), 400, Some("INVALID_MSG_FORMAT"), None),
            (format!("{{{supi},{name},\"pei\":{deep}}}"), 400, Some("INVALID_MSG_FORMAT"), None),
            ("{".into(), 400, Some("INVALID_MSG_FORMAT"), None),
            (String::new(), 400, Some("INVALID_MSG_FORMAT"), None),
            (format!("{{{supi}}}"), 400, Some("MANDATORY_IE_MISSING"), Some("/servingNetworkName")),
            (
                format!("{{{name},\"supiOrSuci\":7}}"),
                400,
                Some("MANDATORY_IE_INCORRECT"),
                Some("/supiOrSuci"),
            ),
            (
                format!("{{{supi},{name},\"resynchronizationInfo\":{{\"rand\":\"00\",\"auts\":\"00\"}}}}"),
                400,
                Some("OPTIONAL_IE_INCORRECT"),
                Some("/resynchronizationInfo/rand"),
            ),
        ] {
            let request = post(server.address(), "/", 0).body("application/json", body.clone().into());
            let response = client().send(request).await.unwrap();
            let shown = &body[..body.len().min(120)];
            assert_eq!(response.status.as_u16(), status, "{shown}: {response:?}");
            let problem = response.problem();
            assert_eq!(problem.cause.as_ref().map(|c| c.as_str()), cause, "{shown}");
            let named = problem.invalid_params.as_ref().and_then(|p| p.first()).map(|p| p.param.as_str());
            assert_eq!(named, member, "{shown}");
        }
    });
}

#[test] // RFC 9113 §10.5: a peer that resets every stream is cut off, and others are served
fn a_peer_that_resets_every_stream_is_cut_off() {
    run(async {
        let server = SbiServer::start(listener(), ServerSettings::default(), |_| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            SbiResponse::no_content()
        });
        let server = server.unwrap();
        let mut sender = raw(server.address()).await;
        let mut requests = 0;
        while requests < 100_000 {
            let Ok(ready) = sender.clone().ready().await else { break };
            sender = ready;
            let Ok((_, mut body)) = sender.send_request(request("POST", "/"), false) else { break };
            body.send_reset(h2::Reason::CANCEL);
            requests += 1;
            if requests % 16 == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert!(requests < 100_000, "the connection is still open");
        until("the connection is closed", || server.counts().connections == 0).await;
        assert!(server.counts().requests < 5000, "{:?}", server.counts());
        assert_eq!(client().send(get(server.address(), "/")).await.unwrap().status, 204);
    });
}

/// A peer that waits until a request is served, and then gives it up (CVE-2023-44487, in the form that limits on unserved streams miss).
struct GivingUp {
    server: SbiServer,
    sender: h2::client::SendRequest<Bytes>,
    requests: u64,
}

impl GivingUp {
    /// At a server that answers requests for `/answered` alone.
    async fn start() -> Self {
        let server = SbiServer::start(listener(), ServerSettings::default(), |request| async move {
            match request.uri.path() {
                "/answered" => SbiResponse::no_content(),
                _ => std::future::pending().await,
            }
        });
        let server = server.unwrap();
        let sender = raw(server.address()).await;
        until("the connection is accepted", || server.counts().connections == 1).await;
        Self { server, sender, requests: 0 }
    }

    /// Gives requests up, each after it has come to the handler. False if the connection was closed meanwhile.
    async fn give_up(&mut self, requests: u64) -> bool {
        for _ in 0..requests {
            let Ok(mut sender) = self.sender.clone().ready().await else { return false };
            let Ok((response, _)) = sender.send_request(request("GET", "/"), true) else { return false };
            self.requests += 1;
            let end = Instant::now() + WITHIN;
            while self.server.counts().requests < self.requests {
                if self.server.counts().connections == 0 {
                    return false;
                }
                assert!(Instant::now() < end, "the request does not come to the handler");
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            drop(response);
        }
        true
    }

    /// Takes an answer. False if the connection is closed.
    async fn take_answer(&mut self) -> bool {
        let Ok(mut sender) = self.sender.clone().ready().await else { return false };
        let Ok((response, _)) = sender.send_request(request("GET", "/answered"), true) else { return false };
        self.requests += 1;
        response.await.is_ok_and(|response| response.status() == StatusCode::NO_CONTENT)
    }

    async fn is_cut_off(&self) {
        until("the connection is closed", || self.server.counts().connections == 0).await;
        assert_eq!(self.server.counts().connections_aborted, 1);
        // Others are served.
        let other = client().send(get(self.server.address(), "/answered")).await;
        assert_eq!(other.unwrap().status, StatusCode::NO_CONTENT);
    }
}

#[test] // RFC 9113 §10.5: 512 requests in a row may be given up, as by a consumer that stops, and no more
fn a_peer_that_gives_more_than_512_requests_up_is_cut_off() {
    run(async {
        let mut peer = GivingUp::start().await;
        assert!(peer.give_up(512).await, "{}", peer.requests);
        assert!(peer.take_answer().await, "512 are within the bound");
        assert!(peer.give_up(1).await, "the answered one makes up for one");
        assert!(peer.take_answer().await);
        // The second may be refused already.
        let _ = peer.give_up(2).await;
        peer.is_cut_off().await;
    });
}

#[test] // RFC 9113 §10.5: an answer that is taken now and then does not lift the bound
fn a_peer_that_gives_nine_of_ten_requests_up_is_cut_off() {
    run(async {
        let mut peer = GivingUp::start().await;
        while peer.requests < 2000 && peer.give_up(9).await && peer.take_answer().await {}
        // 512 are exceeded by eight with each ten requests.
        assert!((513..=660).contains(&peer.requests), "{}", peer.requests);
        peer.is_cut_off().await;
    });
}

#[test] // A consumer that gives up as many requests as it takes answers to, as one whose UEs go, is served on
fn a_peer_that_gives_every_second_request_up_is_served() {
    run(async {
        let mut peer = GivingUp::start().await;
        for _ in 0..600 {
            assert!(peer.give_up(1).await && peer.take_answer().await, "{}", peer.requests);
        }
        assert_eq!(peer.server.counts().connections_aborted, 0);
    });
}

#[test]
fn half_a_request_and_half_a_preface_do_not_hold_a_connection() {
    run(async {
        let settings = ServerSettings {
            body_within: Duration::from_millis(200),
            idle_within: Duration::from_millis(400),
            ..ServerSettings::default()
        };
        let server = echo(settings);
        let mut sender = raw(server.address()).await.ready().await.unwrap();
        let (response, mut body) = sender.send_request(request("POST", "/"), false).unwrap();
        body.send_data(Bytes::from_static(b"{"), false).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
        let mut half = TcpStream::connect(server.address()).await.unwrap();
        half.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        let silent = TcpStream::connect(server.address()).await.unwrap();
        until("all connections are closed", || server.counts().connections == 0).await;
        drop((sender, silent));
    });
}

#[test] // A peer that opens no window takes no response: it is cut off after a bounded time
fn a_peer_that_takes_no_response_is_cut_off() {
    run(async {
        let settings =
            ServerSettings { request_within: Duration::from_millis(200), ..ServerSettings::default() };
        let server = SbiServer::start(listener(), settings, |_| async {
            SbiResponse::with_body(StatusCode::OK, "application/json", vec![b' '; 1 << 20].into())
        });
        let server = server.unwrap();
        let mut sender = raw(server.address()).await.ready().await.unwrap();
        // Its body is kept and not read: no window is opened.
        let response = sender.send_request(request("GET", "/"), true).unwrap().0.await.unwrap();
        until("the connection is closed", || server.counts().connections == 0).await;
        assert_eq!(server.counts().connections_aborted, 1);
        drop(response);
    });
}

#[test]
fn a_header_list_that_is_too_long_is_refused() {
    run(async {
        let server = echo(ServerSettings::default());
        let mut sender = raw(server.address()).await.ready().await.unwrap();
        let mut long = request("GET", "/");
        long.headers_mut().insert("x-long", "a".repeat(20 << 10).parse().unwrap());
        let response = sender.send_request(long, true).unwrap().0.await;
        let refused = match response {
            Ok(response) => response.status() == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Err(_) => true,
        };
        assert!(refused);
        assert_eq!(server.counts().requests, 0);
        assert_eq!(client().send(get(server.address(), "/")).await.unwrap().status, 200);
    });
}

#[test]
fn connections_of_one_source_are_bounded_and_streams_too() {
    run(async {
        let settings =
            ServerSettings { connections_of_source_max: 3, streams_max: 4, ..ServerSettings::default() };
        let server = SbiServer::start(listener(), settings, |_| std::future::pending());
        let server = server.unwrap();
        let held: Vec<TcpStream> = {
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(TcpStream::connect(server.address()).await.unwrap());
            }
            held
        };
        until("three connections are open", || server.counts().connections == 3).await;
        let mut fourth = TcpStream::connect(server.address()).await.unwrap();
        assert_eq!(fourth.read(&mut [0; 8]).await.unwrap_or(0), 0, "it is closed at once");
        assert_eq!(server.counts().connections_refused, 1);
        drop(held);
        until("they are gone", || server.counts().connections == 0).await;
        let mut sender = raw(server.address()).await;
        let mut kept = Vec::new();
        for _ in 0..6 {
            sender = match tokio::time::timeout(Duration::from_millis(300), sender.clone().ready()).await {
                Ok(ready) => ready.unwrap(),
                Err(_) => break,
            };
            kept.push(sender.send_request(request("GET", "/"), true).unwrap());
        }
        until("four requests are served", || server.counts().requests == 4).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(server.counts().requests, 4);
    });
}

#[test] // TS 29.500 §6.11.2: a request whose sender waits no longer is refused with TIMED_OUT_REQUEST
fn late_requests_are_refused_where_that_is_configured() {
    run(async {
        let late = |at| {
            let mut request = get(at, "/");
            let sent = whimbrel_sbi_types::common::DateTime::from_unix_ms(now().unix_ms() - 60_000);
            ResponseDeadline { sent, within: Duration::from_secs(5) }.write(&mut request.headers);
            request
        };
        let server = echo(ServerSettings { refuses_late_requests: true, ..ServerSettings::default() });
        let response = client().send(late(server.address())).await.unwrap();
        assert_eq!(response.status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(response.problem().cause.unwrap().as_str(), "TIMED_OUT_REQUEST");
        let server = echo(ServerSettings::default());
        assert_eq!(client().send(late(server.address())).await.unwrap().status, StatusCode::OK);
    });
}

#[test]
fn a_handler_that_panics_or_hangs_is_answered_for() {
    run(async {
        let within = |seconds| ServerSettings {
            request_within: Duration::from_secs(seconds),
            ..ServerSettings::default()
        };
        let hanging = SbiServer::start(listener(), within(2), |_| std::future::pending());
        let hung = client().send(get(hanging.unwrap().address(), "/")).await.unwrap();
        assert_eq!(hung.problem().cause.unwrap().as_str(), "TIMED_OUT_REQUEST");
        // A panic whose backtrace is printed takes seconds.
        let panicking = SbiServer::start(listener(), within(60), |_| async { panic!("as the test has it") });
        let panicking = panicking.unwrap();
        let mut request = get(panicking.address(), "/");
        request.within = Duration::from_secs(60);
        let panicked = client().send(request).await.unwrap();
        assert_eq!(panicked.problem().cause.unwrap().as_str(), "SYSTEM_FAILURE");
    });
}

#[test]
fn bodies_of_other_media_types_are_refused() {
    run(async {
        let server = echo(ServerSettings::default());
        let response =
            client().send(post(server.address(), "/", 3).body("text/csv", "a,b".into())).await.unwrap();
        assert_eq!(response.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    });
}

#[test]
fn octets_that_are_no_http_2_close_the_connection() {
    run(async {
        let server = echo(ServerSettings::default());
        for octets in
            [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], &[0xff; 64], &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]]
        {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(octets).await.unwrap();
            let mut answer = Vec::new();
            let read = stream.read_to_end(&mut answer);
            // What was not read at the close is a reset.
            let _ = tokio::time::timeout(WITHIN, read).await.expect("the connection is closed");
        }
        until("all connections are closed", || server.counts().connections == 0).await;
    });
}
