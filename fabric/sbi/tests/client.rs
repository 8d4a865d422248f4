//! The consumer's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use whimbrel_sbi::server::ServerSettings;
use whimbrel_sbi::{ClientSettings, SbiClient, SbiEndpoint, SbiResponse, SbiServer, SendError};

use crate::common::{WITHIN, client, echo, get, listener, post, raw_server, reply, run};

#[test] // TS 29.500 §5.2.6: requests to one peer share a connection
fn a_hundred_requests_at_once_share_one_connection() {
    run(async {
        let server = echo(ServerSettings::default());
        let client = client();
        let requests: Vec<_> = (0..100)
            .map(|n| {
                let (client, request) = (client.clone(), post(server.address(), &format!("/a/{n}?b=c"), n));
                tokio::spawn(async move { client.send(request).await })
            })
            .collect();
        for (n, request) in requests.into_iter().enumerate() {
            let response = request.await.unwrap().unwrap();
            let body: serde_json::Value = response.read().unwrap();
            assert_eq!(body["uri"], format!("/a/{n}?b=c"));
            assert_eq!((&body["octets"], &body["method"]), (&n.into(), &"POST".into()));
            assert_eq!(body["agent"], "AMF");
        }
        assert_eq!(client.connections_opened(), 1);
        assert_eq!(server.counts().requests, 100);
    });
}

#[test]
fn a_restarted_server_is_reached_again_and_connections_that_are_used_least_are_closed() {
    run(async {
        let client = SbiClient::new(ClientSettings { connections_max: 2, ..ClientSettings::new("AMF") });
        let first = echo(ServerSettings::default());
        let at = first.address();
        client.send(get(at, "/")).await.unwrap();
        drop(first);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let listener = std::net::TcpListener::bind(at).unwrap();
        let again =
            SbiServer::start(listener, ServerSettings::default(), |_| async { SbiResponse::no_content() })
                .unwrap();
        assert_eq!(client.send(get(at, "/")).await.unwrap().status, 204);
        let others = [echo(ServerSettings::default()), echo(ServerSettings::default())];
        for other in &others {
            client.send(get(other.address(), "/")).await.unwrap();
        }
        let until = Instant::now() + WITHIN;
        while again.counts().connections > 0 {
            assert!(Instant::now() < until, "the connection that was used least recently is still open");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test] // RFC 9113 §6.8, §8.7: a request that was refused unseen is sent again, on a new connection
fn requests_that_a_goaway_or_a_refused_stream_left_out_are_sent_again() {
    run(async {
        for refusal in [h2::Reason::NO_ERROR, h2::Reason::REFUSED_STREAM] {
            let at = raw_server(move |number, mut connection| async move {
                let mut served = 0;
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    if number == 0 && served == 1 {
                        match refusal {
                            h2::Reason::NO_ERROR => connection.abrupt_shutdown(h2::Reason::NO_ERROR),
                            reason => respond.send_reset(reason),
                        }
                        continue;
                    }
                    served += 1;
                    reply(respond, 200, "{}");
                }
            });
            let client = client();
            client.send(get(at, "/first")).await.unwrap();
            let second = client.send(post(at, "/second", 2)).await;
            match refusal {
                // The abrupt shutdown of h2 says that the request was the last to be looked at.
                h2::Reason::NO_ERROR => assert!(second.is_err() || second.unwrap().status == 200),
                _ => assert_eq!(second.unwrap().status, 200),
            }
            assert_eq!(client.send(get(at, "/third")).await.unwrap().status, 200);
            assert_eq!(client.connections_opened(), 2, "{refusal:?}");
        }
    });
}

#[test] // RFC 9113 §6.8: servers of free5GC close a connection that is idle for 1 ms, as a rule while the next request is on its way
fn a_server_that_closes_idle_connections_at_once_gets_each_request_once() {
    run(async {
        let served = Arc::new(AtomicU32::new(0));
        let counted = served.clone();
        let at = raw_server(move |_, mut connection| {
            let served = counted.clone();
            async move {
                let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
                let mut accepted = 0;
                let mut under_way = 0;
                loop {
                    tokio::select! {
                        biased;
                        Some(()) = ends.recv() => under_way -= 1,
                        request = connection.accept() => {
                            let Some(Ok((request, respond))) = request else { return };
                            accepted += 1;
                            under_way += 1;
                            let (served, ended) = (served.clone(), ended.clone());
                            tokio::spawn(async move {
                                // A request without the end of its body is not served.
                                let mut body = request.into_body();
                                let mut is_whole = true;
                                while let Some(data) = body.data().await {
                                    is_whole &= data.is_ok();
                                }
                                if is_whole {
                                    served.fetch_add(1, Ordering::Relaxed);
                                    reply(respond, 200, "{}");
                                }
                                let _ = ended.send(());
                            });
                        }
                        // A client that makes a connection and then waits for a processor has its time.
                        () = tokio::time::sleep(Duration::from_millis(1)), if accepted > 0 && under_way == 0 => break,
                    }
                }
                connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                while connection.accept().await.is_some() {}
                // As servers in Go do: a reset at once could overtake the GOAWAY.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let client = client();
        let mut sent = 0;
        while sent < 40 || client.connections_opened() <= 5 {
            assert_eq!(client.send(post(at, "/", sent % 3)).await.unwrap().status, 200);
            sent += 1;
            tokio::time::sleep(Duration::from_micros(sent as u64 % 40 * 50)).await;
        }
        assert_eq!(served.load(Ordering::Relaxed), sent as u32);
    });
}

#[test] // RFC 9113 §6.8: what a GOAWAY left out is repeated; only a request that may be repeated anyway ends with its head
fn a_request_that_must_not_be_repeated_ends_with_its_body() {
    run(async {
        let (ends_with_head, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let at = raw_server(move |_, mut connection| {
            let ends_with_head = ends_with_head.clone();
            async move {
                while let Some(Ok((request, respond))) = connection.accept().await {
                    let _ = ends_with_head.send(request.body().is_end_stream());
                    reply(respond, 204, "");
                }
            }
        });
        let client = client();
        for (request, expected) in
            [(get(at, "/"), true), (post(at, "/", 0), false), (post(at, "/", 2), false)]
        {
            assert_eq!(client.send(request).await.unwrap().status, 204);
            assert_eq!(seen.recv().await, Some(expected));
        }
    });
}

#[test] // A peer that closes each connection before it looks at a request is given up, after a bounded number of them
fn connections_that_are_closed_at_once_cost_a_request_nothing_until_there_are_six() {
    run(async {
        for (closed, is_served) in [(5, true), (6, false)] {
            let at = raw_server(move |number, mut connection| async move {
                if number < closed {
                    connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                }
                while let Some(Ok((_, respond))) = connection.accept().await {
                    reply(respond, 200, "{}");
                }
                std::future::pending::<()>().await;
            });
            let client = client();
            let sent = client.send(post(at, "/", 2)).await;
            match is_served {
                true => assert_eq!(sent.unwrap().status, 200),
                false => assert!(matches!(sent, Err(SendError::Refused(_))), "{sent:?}"),
            }
            assert_eq!(client.connections_opened(), 6);
        }
    });
}

#[test] // RFC 9110 §9.2.2: after a broken connection a request is repeated once if its method is idempotent
fn a_broken_connection_costs_no_idempotent_request_and_no_other_is_repeated() {
    run(async {
        let served = Arc::new(AtomicU32::new(0));
        let counted = served.clone();
        let at = raw_server(move |number, mut connection| {
            let served = counted.clone();
            async move {
                while let Some(Ok((_, respond))) = connection.accept().await {
                    served.fetch_add(1, Ordering::Relaxed);
                    if number % 2 == 0 {
                        return;
                    }
                    reply(respond, 200, "{}");
                }
            }
        });
        let client = client();
        assert_eq!(client.send(get(at, "/")).await.unwrap().status, 200);
        assert_eq!((client.connections_opened(), served.load(Ordering::Relaxed)), (2, 2));
        let client = SbiClient::new(ClientSettings::new("AMF"));
        let e = client.send(post(at, "/", 2)).await.unwrap_err();
        assert!(matches!(e, SendError::Broken(..)) && !e.is_unprocessed(), "{e:?}");
        assert_eq!(served.load(Ordering::Relaxed), 3);
    });
}

/// True if all of a body comes.
async fn is_complete(mut body: h2::RecvStream) -> bool {
    while let Some(data) = body.data().await {
        if data.is_err() {
            return false;
        }
    }
    true
}

#[test] // RFC 9113 §6.8: streams above the last that a GOAWAY names were not looked at
fn a_graceful_goaway_ends_no_request() {
    run(async {
        let served = Arc::new(AtomicU32::new(0));
        let counted = served.clone();
        let at = raw_server(move |_, mut connection| {
            let served = counted.clone();
            async move {
                let mut requests = 0;
                while let Some(Ok((request, respond))) = connection.accept().await {
                    requests += 1;
                    if requests == 5 {
                        connection.graceful_shutdown();
                    }
                    let served = served.clone();
                    tokio::spawn(async move {
                        // A server acts on whole requests: the head of one may arrive, and the GOAWAY leave, before its body.
                        if is_complete(request.into_body()).await {
                            served.fetch_add(1, Ordering::Relaxed);
                            reply(respond, 200, "{}");
                        }
                    });
                }
            }
        });
        let client = client();
        for _ in 0..50 {
            assert_eq!(client.send(post(at, "/", 2)).await.unwrap().status, 200);
        }
        assert!(client.connections_opened() >= 5, "{}", client.connections_opened());
        assert_eq!(served.load(Ordering::Relaxed), 50, "none was sent twice");
    });
}

#[test]
fn a_reset_stream_a_silent_peer_and_a_closed_port_have_errors_of_their_own() {
    run(async {
        let at = raw_server(|_, mut connection| async move {
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                match request.uri().path() {
                    "/reset" => respond.send_reset(h2::Reason::INTERNAL_ERROR),
                    "/silent" => {
                        tokio::spawn(async move {
                            tokio::time::sleep(WITHIN).await;
                            drop(respond);
                        });
                    }
                    _ => reply(respond, 200, "{}"),
                }
            }
        });
        let endpoint = SbiEndpoint::of(&format!("http://{at}").parse().unwrap()).unwrap();
        let client = client();
        assert_eq!(
            client.send(get(at, "/reset")).await.unwrap_err(),
            SendError::Reset(endpoint.clone(), h2::Reason::INTERNAL_ERROR.into())
        );
        let mut request = get(at, "/silent");
        request.within = Duration::from_millis(200);
        assert_eq!(
            client.send(request).await.unwrap_err(),
            SendError::TimedOut(endpoint, Duration::from_millis(200))
        );
        assert_eq!(client.send(get(at, "/")).await.unwrap().status, 200);
        assert_eq!(client.connections_opened(), 1, "the connection outlives its requests");

        let closed = listener();
        let at = closed.local_addr().unwrap();
        drop(closed);
        let e = client.send(get(at, "/")).await.unwrap_err();
        assert!(matches!(&e, SendError::Connect(..)) && e.is_unprocessed(), "{e}");
        let nameless = whimbrel_sbi::SbiRequest::get("http://name.invalid/".parse().unwrap(), WITHIN);
        let e = client.send(nameless).await.unwrap_err();
        assert!(matches!(&e, SendError::Resolve(..)), "{e}");
        let relative = whimbrel_sbi::SbiRequest::get("/path".parse().unwrap(), WITHIN);
        assert!(matches!(client.send(relative).await, Err(SendError::Uri(_))));
    });
}

#[test]
fn responses_that_are_too_long_or_no_json_are_errors() {
    run(async {
        let at = raw_server(|_, mut connection| async move {
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let path = request.uri().path();
                let media_type = match path {
                    "/html" | "/missing" => "text/html",
                    "/hal" => "application/3gppHal+json",
                    _ => "application/json; charset=utf-8",
                };
                let status = if path == "/missing" { 404 } else { 200 };
                let octets = if path == "/long" { 2000 } else { 1000 };
                tokio::spawn(async move {
                    let response = hyper::Response::builder()
                        .status(status)
                        .header("content-type", media_type)
                        .body(())
                        .unwrap();
                    let mut stream = respond.send_response(response, false).unwrap();
                    let _ = stream.send_data(vec![b' '; octets].into(), true);
                });
            }
        });
        let client = client();
        let of = |path: &str| {
            let mut request = get(at, path);
            request.response_octets_max = 1000;
            client.send(request)
        };
        assert_eq!(of("/").await.unwrap().body.len(), 1000);
        assert_eq!(of("/hal").await.unwrap().body.len(), 1000);
        let missing = of("/missing").await.unwrap();
        assert_eq!((missing.status.as_u16(), missing.body.len()), (404, 0), "the status says enough");
        let e = of("/long").await.unwrap_err();
        assert!(matches!(e, SendError::TooLong(_, 1000)), "{e}");
        let e = of("/html").await.unwrap_err();
        assert!(matches!(&e, SendError::ContentType(_, t) if &**t == "text/html"), "{e}");
    });
}

#[test] // RFC 9113 §3.3: a server of HTTP/1.1 does not know the preface
fn a_server_of_http_1_is_named_as_such() {
    run(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
                // Closed with octets that were not read, TCP would reset the connection, and the answer could be lost.
                while stream.read(&mut request).await.is_ok_and(|octets| octets > 0) {}
            }
        });
        let e = client().send(get(at, "/")).await.unwrap_err();
        assert!(matches!(e, SendError::NotHttp2(_)), "{e:?}");
        assert!(e.to_string().ends_with("does not speak HTTP/2"));
    });
}

#[test]
fn more_requests_than_streams_wait_and_then_are_refused_here() {
    run(async {
        let (taken, mut requests) = tokio::sync::mpsc::unbounded_channel();
        let at = raw_server(move |_, mut connection| {
            let taken = taken.clone();
            async move {
                let mut kept = Vec::new();
                while let Some(Ok((_, respond))) = connection.accept().await {
                    kept.push(respond);
                    let _ = taken.send(());
                }
            }
        });
        let client = SbiClient::new(ClientSettings { streams_max: 2, ..ClientSettings::new("AMF") });
        let send = |within| {
            let (client, mut request) = (client.clone(), get(at, "/"));
            request.within = within;
            tokio::spawn(async move { client.send(request).await })
        };
        const FOR_EVER: Duration = Duration::from_secs(3600);
        let first = send(FOR_EVER);
        let _second = send(FOR_EVER);
        for _ in 0..2 {
            requests.recv().await.unwrap();
        }
        for ms in [0, 1, 20, 100] {
            let e = send(Duration::from_millis(ms)).await.unwrap().unwrap_err();
            assert!(matches!(e, SendError::Busy(_, 2)), "{e}");
        }
        let waiting = send(FOR_EVER);
        first.abort();
        requests.recv().await.unwrap();
        assert!(!waiting.is_finished(), "the server keeps it");
    });
}

#[test]
fn a_peer_that_takes_the_connection_and_says_nothing_costs_no_more_than_the_request_may() {
    run(async {
        let silent = listener();
        let mut request = get(silent.local_addr().unwrap(), "/");
        request.within = Duration::from_millis(300);
        let started = Instant::now();
        let e = client().send(request).await.unwrap_err();
        assert!(matches!(e, SendError::TimedOut(..)), "{e}");
        assert!(started.elapsed() < Duration::from_secs(5));
    });
}
