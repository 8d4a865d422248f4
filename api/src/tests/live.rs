//! The event stream: what it sends, how it resumes, and when it ends.

use super::*;

/// An open stream.
struct Stream {
    stream: TcpStream,
    text: String,
}

impl Stream {
    fn open(a: SocketAddr, query: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(a).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!(
            "GET /api/v1/events{query} HTTP/1.1\r\nHost: {a}\r\nAccept: text/event-stream\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        Self { stream, text: String::new() }
    }

    fn local(a: SocketAddr, query: &str, headers: &str) -> Self {
        Self::open(a, query, &format!("Authorization: Bearer {}\r\n{headers}", token(a)))
    }

    /// Reads until a text has come; all that came so far.
    fn until(&mut self, text: &str) -> &str {
        let mut part = [0; 4096];
        while !self.text.contains(text) {
            let n = self.stream.read(&mut part).unwrap();
            assert!(n > 0, "the stream ended without {text}: {}", self.text);
            self.text += &String::from_utf8_lossy(&part[..n]);
        }
        &self.text
    }

    fn last_id(&self) -> &str {
        self.text.rsplit("id: ").next().and_then(|t| t.lines().next()).unwrap()
    }
}

fn push(console: &Console, text: &str) {
    console.events(|e| e.push(clock::now(), Level::Info, "test", UE, text));
}

#[test]
fn new_events_are_sent_and_a_stream_resumes_where_it_was() {
    let (server, console) = served();
    let a = server.address;
    push(&console, "before");
    let mut stream = Stream::local(a, "", "");
    stream.until("event: counts");
    push(&console, "<script>alert(1)</script>");
    refused(&console);
    let text = stream.until("imsi-999700000000002");
    assert!(!text.contains("before") && text.contains("event: event\ndata: {\"seq\":2"), "{text}");
    assert!(text.contains("event: ue\ndata: {\"subject\":\"imsi-999700000000002\"}"), "{text}");
    let last = stream.last_id().to_string();
    drop(stream);
    push(&console, "while it slept");
    let mut again = Stream::local(a, "", &format!("Last-Event-ID: {last}\r\n"));
    let text = again.until("while it slept");
    assert!(!text.contains("script") && !text.contains("event: reset"), "{text}");
    // The same in the query, for the first request of a page.
    assert!(
        !Stream::local(a, &format!("?last_event_id={last}"), "").until("while it slept").contains("reset")
    );
}

#[test]
fn a_client_that_missed_too_much_or_comes_from_another_run_gets_a_reset() {
    let (server, console) = served();
    let a = server.address;
    let mut stream = Stream::local(a, "", "Last-Event-ID: 1-2-3\r\n");
    stream.until("event: reset");
    stream.until("event: counts");
    let last = stream.last_id().to_string();
    drop(stream);
    (0..5000).for_each(|i| push(&console, &i.to_string()));
    let mut again = Stream::local(a, "", &format!("Last-Event-ID: {last}\r\n"));
    again.until("event: reset");
    again.until("\"text\":\"4999\"");
}

#[test]
fn streams_are_bounded_and_end_with_the_session() {
    let (server, _console) = served();
    let a = server.address;
    let body = r#"{"name": "anna", "role": "admin", "password": "a curlew in the mud"}"#;
    let json = "Content-Type: application/json\r\n";
    assert_eq!(ask(a, "POST", "/api/v1/users", json, body).0, 201);
    let login = r#"{"name": "anna", "password": "a curlew in the mud"}"#;
    let (_, head, me) = answer(a, "POST", "/api/v1/session", json, login);
    let cookie = head.split("set-cookie: ").nth(1).and_then(|c| c.split(';').next()).unwrap();
    let csrf = serde_json::from_str::<Value>(&me).unwrap()["csrf"].as_str().unwrap().to_string();
    let mut stream = Stream::open(a, "", &format!("Cookie: {cookie}\r\n"));
    stream.until("event: counts");
    let headers = format!("Cookie: {cookie}\r\nX-CSRF-Token: {csrf}\r\n");
    assert_eq!(ask_unauthenticated(a, "DELETE", "/api/v1/session", &headers, "").0, 204);
    let mut rest = Vec::new();
    while stream.stream.read(&mut [0; 512]).is_ok_and(|n| n > 0) {
        rest.push(());
        assert!(rest.len() < 100, "the stream goes on without its session");
    }
    let _open: Vec<_> = (0..super::super::live::STREAMS_MAX)
        .map(|_| {
            let mut stream = Stream::local(a, "", "");
            stream.until("event: counts");
            stream
        })
        .collect();
    assert!(Stream::local(a, "", "").until("event streams are in use").starts_with("HTTP/1.1 503"));
    assert_eq!(get(a, "/api/v1/status").0, 200);
}

#[test]
fn a_stream_ends_when_its_token_is_revoked() {
    let (server, _console) = served();
    let a = server.address;
    let json = "Content-Type: application/json\r\n";
    let (_, made) = ask(a, "POST", "/api/v1/tokens", json, "{\"name\": \"lost\", \"scopes\": [\"read\"]}");
    let lost = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let mut stream = Stream::open(a, "", &lost);
    stream.until("event: counts");
    assert_eq!(ask(a, "DELETE", "/api/v1/tokens/lost", "", "").0, 204);
    let mut reads = 0;
    while stream.stream.read(&mut [0; 512]).is_ok_and(|n| n > 0) {
        reads += 1;
        assert!(reads < 100, "the stream goes on without its token");
    }
    Stream::local(a, "", "").until("event: counts");
}

#[test]
fn one_token_does_not_take_all_streams() {
    let (server, _console) = served();
    let a = server.address;
    let json = "Content-Type: application/json\r\n";
    let (_, made) = ask(a, "POST", "/api/v1/tokens", json, "{\"name\": \"flood\", \"scopes\": [\"read\"]}");
    let flood = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let _taken: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = Stream::open(a, "", &flood);
            stream.until("event: counts");
            stream
        })
        .collect();
    assert!(Stream::open(a, "", &flood).until("event streams open").starts_with("HTTP/1.1 429"));
    Stream::local(a, "", "").until("event: counts");
}
