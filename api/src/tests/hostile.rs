//! What clients should not send: each case is one input that felled another core's HTTP interface, or could.

use super::*;
use whimbrel_node::client::Client;

const JSON: &str = "Content-Type: application/json\r\n";
const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";

/// It is refused as the client's mistake, in words, and the next request gets its answer.
fn refused(address: SocketAddr, (method, path, headers, body): (&str, &str, &str, &str)) {
    let (status, problem) = ask(address, method, path, headers, body);
    let shown = path.get(..path.len().min(80)).unwrap_or_default();
    assert!((400..500).contains(&status), "{method} {shown}: {status} {problem}");
    assert_eq!(get(address, "/api/v1/status").0, 200, "after {method} {shown}");
}

#[test]
fn path_parts_that_are_empty_zero_long_or_lead_elsewhere() {
    let (server, _console) = served();
    let long = format!("/api/v1/subscribers/{}", "9".repeat(4096));
    for path in [
        "/api/v1/subscribers//",
        "//api/v1//subscribers//x",
        "/api/v1/subscribers/%00",
        "/api/v1/subscribers/..",
        "/api/v1/subscribers/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/api/v1/subscribers/../../etc/passwd",
        "/api/v1/subscribers/imsi-",
        "/api/v1/subscribers/imsi-99970000000000١",
        &long,
    ] {
        refused(server.address, ("GET", path, "", ""));
        refused(server.address, ("DELETE", path, "", ""));
    }
}

#[test]
fn another_subscriber_in_the_body_than_in_the_path() {
    let (server, _console) = served();
    let a = server.address;
    for n in [1, 2] {
        let body = format!("{{\"supi\": \"imsi-99970000000000{n}\", \"k\": \"{K}\", \"opc\": \"{K}\"}}");
        assert_eq!(ask(a, "POST", "/api/v1/subscribers", JSON, &body).0, 201);
    }
    let before = get(a, "/api/v1/subscribers").1;
    let theft = "{\"supi\": \"imsi-999700000000002\", \"status\": \"barred\"}";
    refused(a, ("PATCH", "/api/v1/subscribers/imsi-999700000000001", JSON, theft));
    assert_eq!(get(a, "/api/v1/subscribers").1, before, "neither is changed");
}

#[test]
fn identities_and_addresses_that_are_empty_short_or_of_the_wrong_kind() {
    let (server, _console) = served();
    let a = server.address;
    let subscriber =
        |supi: &str, more: &str| format!("{{\"supi\": {supi}, \"k\": \"{K}\", \"opc\": \"{K}\"{more}}}");
    for supi in ["\"\"", "\"imsi-\"", "\"imsi-9997\"", "null", "0", "-1", "[]", "{}", "true"] {
        refused(a, ("POST", "/api/v1/subscribers", JSON, &subscriber(supi, "")));
    }
    let slices = |dnn: &str| {
        format!(
            ", \"subscription\": {{\"slices\": [{{\"s_nssai\": \"1\", \"default\": true, \"dnns\": [{dnn}]}}]}}"
        )
    };
    for more in [
        slices("{\"dnn\": \"\"}"),
        slices("{\"dnn\": \"internet\", \"static_ipv4\": \"\"}"),
        slices("{\"dnn\": \"internet\", \"static_ipv4\": \"10.45.0\"}"),
        slices("{\"dnn\": \"internet\", \"5qi\": 256}"),
        slices("{\"dnn\": \"internet\", \"five_qi\": -1}"),
        slices("\"5\""),
        ", \"subscription\": {\"slices\": []}".to_owned(),
        ", \"subscription\": {\"ue_ambr\": {\"uplink\": \"abc\", \"downlink\": \"1 Gbps\"}}".to_owned(),
        ", \"subscription\": {\"ue_ambr\": {\"uplink\": 9223372036854775808, \"downlink\": 0}}".to_owned(),
        ", \"subscription\": 5".to_owned(),
        ", \"status\": \"root\"".to_owned(),
        ", \"nothing_of_ours\": 1".to_owned(),
    ] {
        refused(a, ("POST", "/api/v1/subscribers", JSON, &subscriber("\"imsi-999700000000001\"", &more)));
    }
    assert_eq!(
        get(a, "/api/v1/subscribers").1["subscribers"],
        serde_json::json!([]),
        "no subscriber was imported"
    );
}

#[test]
fn bodies_too_deep_too_long_of_no_type_or_that_say_a_thing_twice() {
    let (server, _console) = served();
    let a = server.address;
    let deep = "[".repeat(10_000);
    let deeper = "{\"a\":".repeat(10_000);
    let twice =
        format!("{{\"supi\": \"imsi-999700000000001\", \"supi\": \"x\", \"k\": \"{K}\", \"opc\": \"{K}\"}}");
    let long = format!("{{\"k\": \"{}\"}}", "a".repeat(300_000));
    for body in [&deep, &deeper, &long, &twice, "{\"status\": NaN}", "{\"k\": 1e999}", "\u{0}", "{"] {
        refused(a, ("POST", "/api/v1/subscribers", JSON, body));
    }
    for kind in
        ["", "Content-Type: text/html\r\n", "Content-Type: multipart/form-data\r\n", "Content-Type: ;\r\n"]
    {
        refused(a, ("POST", "/api/v1/subscribers", kind, "{}"));
    }
}

#[test]
fn a_body_announced_of_100_mb_is_not_waited_for() {
    let (server, _console) = served();
    let a = server.address;
    let head = format!(
        "POST /api/v1/subscribers HTTP/1.1\r\nHost: {a}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{JSON}Content-Length: 104857600\r\n\r\n",
        token(a)
    );
    let answer = raw(a, &[head.as_bytes(), &vec![b' '; 600 << 10]].concat());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(get(a, "/api/v1/status").0, 200);
}

#[test]
fn changes_of_one_subscriber_at_once_leave_one_of_them() {
    let (server, _console) = served();
    let a = server.address;
    let path = format!("/api/v1/subscribers/{UE}");
    let body = format!("{{\"supi\": \"{UE}\", \"k\": \"{K}\", \"opc\": \"{K}\"}}");
    let adders: Vec<_> = (0..6)
        .map(|_| {
            let body = body.clone();
            std::thread::spawn(move || ask(a, "POST", "/api/v1/subscribers", JSON, &body).0)
        })
        .collect();
    let mut added: Vec<u16> = adders.into_iter().map(|t| t.join().unwrap()).collect();
    added.sort_unstable();
    assert_eq!(added, [201, 409, 409, 409, 409, 409]);
    let changers: Vec<_> = (0..8)
        .map(|n| {
            let path = path.clone();
            std::thread::spawn(move || match n % 4 {
                0 => ask(a, "DELETE", &path, "", "").0,
                1 => ask(a, "PATCH", &path, JSON, "{\"status\": \"barred\"}").0,
                2 => ask(a, "PATCH", &path, JSON, "{\"status\": \"enabled\"}").0,
                _ => get(a, &path).0,
            })
        })
        .collect();
    for status in changers.into_iter().map(|t| t.join().unwrap()) {
        assert!(matches!(status, 200 | 204 | 404 | 409), "{status}");
    }
    assert_eq!(get(a, &path).0, 404, "it was removed, and no change brought it back");
    refused(a, ("DELETE", &path, "", ""));
}

#[test]
fn an_import_of_many_lines_with_one_bad_changes_nothing() {
    let (server, _console) = served();
    let a = server.address;
    let lines: String = (1..=20_000).map(|i| format!("99970000{i:07},{K},{K}\n")).collect();
    let list = format!("supi,k,opc\n{lines}999700000020001,{K}\n");
    refused(a, ("POST", "/api/v1/subscribers/import", "Content-Type: text/csv\r\n", &list));
    assert_eq!(get(a, "/api/v1/subscribers").1["subscribers"], serde_json::json!([]));
}

#[test]
fn a_slow_import_does_not_hold_up_the_next_for_long() {
    let (server, _console) = served();
    let a = server.address;
    let mut slow = TcpStream::connect(a).unwrap();
    let head = format!(
        "POST /api/v1/subscribers/import HTTP/1.1\r\nHost: {a}\r\nAuthorization: Bearer {}\r\nContent-Length: 1000\r\n\r\nsupi",
        token(a)
    );
    slow.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let csv = "Content-Type: text/csv\r\n";
    let (status, problem) = ask(a, "POST", "/api/v1/subscribers/import", csv, "supi,k,opc\n");
    assert_eq!(status, 503, "{problem}");
    drop(slow);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ask(a, "POST", "/api/v1/subscribers/import", csv, "supi,k,opc\n").0, 200);
}

#[test]
fn clients_that_never_read_do_not_block_others() {
    let (server, _console) = served();
    let a = server.address;
    let _deaf: Vec<_> = (0..60)
        .map(|_| {
            let mut stream = TcpStream::connect(a).unwrap();
            let request = format!("GET /openapi.json HTTP/1.1\r\nHost: {a}\r\n\r\n");
            // Answers of many megabytes pile up for clients that do not read them.
            stream.write_all(request.repeat(100).as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(get(a, "/api/v1/status").0, 200);
}

/// A login whose body never comes.
fn login_without_body(a: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(a).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!("POST /api/v1/session HTTP/1.1\r\nHost: {a}\r\n{JSON}Content-Length: 64\r\n\r\n");
    // The server may have closed it for another one.
    let _ = stream.write_all(head.as_bytes());
    stream
}

#[test]
fn one_sender_does_not_take_all_connections() {
    let (server, _console) = served();
    let a = server.address;
    let mut held: Vec<_> = (0..140).map(|_| login_without_body(a)).collect();
    assert_eq!(get(a, "/api/v1/status").0, 200, "a new connection is accepted");
    let store = server.folder.path().join("subscribers.db");
    let status: Value = Client::new(a).by_store(&store).get("/api/v1/status").unwrap();
    assert_eq!(status["plmn"], "999/70", "commands have connections of their own");
    let mut octet = [0];
    assert!(matches!(held[0].read(&mut octet), Ok(0) | Err(_)), "the oldest connection was closed");
    let closed = Client::new(a).by_store(&store).metric(Metric::ApiConnectionsClosed, None).unwrap();
    assert!(closed >= 140.0 - 64.0, "{closed}");
}

#[test]
fn a_body_without_authentication_is_awaited_for_five_seconds() {
    let (server, _console) = served();
    let mut stream = login_without_body(server.address);
    let mut answer = String::new();
    let began = std::time::Instant::now();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
}

#[test] // TS 33.117 §4.4.4: what fuzzing kept, as requests over the socket: each gets an answer, and none that is our fault
fn kept_requests_are_answered() {
    let (server, _console) = served();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../node/fuzz/seeds/api");
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let (target, body) = text.split_once('\n').unwrap_or((&text, ""));
        for method in ["GET", "POST", "PATCH", "DELETE"] {
            let (status, _) = ask(server.address, method, target, JSON, body);
            assert!((200..500).contains(&status), "{method} {target}: {status}");
        }
    }
    assert_eq!(get(server.address, "/api/v1/status").0, 200);
}
