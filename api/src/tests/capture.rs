//! Captures of single UEs, and callers that send more than their part.

use whimbrel_control::UeId;
use whimbrel_node::observation::{Interface, Names};
use whimbrel_user_io::TappedDatagram;

use super::*;

/// A message; what it says does not matter here.
const MESSAGE: [u8; 4] = [0, 15, 0x40, 0];

/// A core that keeps the signalling of the UE.
fn with_signalling() -> (TestServer, Arc<Console>) {
    let (server, console) = served();
    push(&console);
    console.signalling(|s| s.name(UE.parse().unwrap(), UE_ID));
    (server, console)
}

const UE_ID: UeId = UeId { slot: 4, generation: 1 };

fn push(console: &Console) {
    let names = Names { ue: Some(UE_ID), ..Names::default() };
    console
        .signalling(|s| s.push(clock::now(), (Interface::N2, true), "gnb-999/70-1".into(), names, &MESSAGE));
}

#[test]
fn a_capture_has_the_messages_of_its_ue_and_a_live_one_goes_on() {
    let (server, console) = with_signalling();
    let a = server.address;
    let octets = |path: &str| {
        let head = format!("GET {path} HTTP/1.0\r\nHost: {a}\r\nAuthorization: Bearer {}\r\n\r\n", token(a));
        let mut stream = TcpStream::connect(a).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut whole = Vec::new();
    octets(&format!("/api/v1/ues/{UE}/capture")).read_to_end(&mut whole).unwrap();
    let has = |octets: &[u8], what: &[u8]| octets.windows(what.len()).filter(|w| *w == what).count();
    assert!(whole.starts_with(b"HTTP/1.0 200 OK") && has(&whole, b"from gnb-999/70-1") == 1);
    assert!(has(&whole, &MESSAGE) == 1);
    // Live: what comes later follows, and packets of the UE's tunnels alone.
    let mut live = octets(&format!("/api/v1/ues/{UE}/capture?live=true"));
    let mut came = Vec::new();
    let mut until = |stream: &mut TcpStream, enough: &dyn Fn(&[u8]) -> bool| {
        let mut part = [0; 4096];
        while !enough(&came) {
            let n = stream.read(&mut part).unwrap();
            assert!(n > 0, "the capture ended");
            came.extend_from_slice(&part[..n]);
        }
    };
    until(&mut live, &|came| has(came, &MESSAGE) == 1);
    assert!(console.taps.is_tapping());
    push(&console);
    until(&mut live, &|came| has(came, &MESSAGE) == 2);
    // The UE of the test has the tunnel that `TunnelView::default()` names: none that is an address.
    let of_another_ue = TappedDatagram {
        at: clock::now(),
        from: "127.0.0.2:2152".parse().unwrap(),
        to: "127.0.0.1:2152".parse().unwrap(),
        octets: b"\x30\xff\0\0\0\0\0\x07of another UE".to_vec(),
    };
    console.taps.push(&of_another_ue);
    push(&console);
    until(&mut live, &|came| has(came, &MESSAGE) == 3);
    assert_eq!(has(&came, b"of another UE"), 0);
    // A client that leaves ends the copying of packets.
    drop(live);
    let begun = std::time::Instant::now();
    while console.taps.is_tapping() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!console.taps.is_tapping());
}

#[test]
fn a_capture_needs_the_scope_of_deciphered_nas_and_its_number_is_bounded() {
    let (server, console) = with_signalling();
    let a = server.address;
    let json = "Content-Type: application/json\r\n";
    let (_, made) = ask(a, "POST", "/api/v1/tokens", json, "{\"name\": \"viewer\", \"scopes\": [\"read\"]}");
    let viewer = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let path = format!("/api/v1/ues/{UE}/capture");
    assert_eq!(ask_unauthenticated(a, "GET", &path, &viewer, "").0, 403);
    assert_eq!(get(a, &format!("{path}?live=maybe")).0, 400);
    let taken: Vec<u64> = std::iter::from_fn(|| console.taps.open()).collect();
    let (status, problem) = get(a, &format!("{path}?live=true"));
    assert!(status == 503 && taken.len() == 4, "{problem}");
}

#[test]
fn a_token_that_floods_the_api_waits_and_the_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config::default();
    config.store.path = folder.path().join("subscribers.db");
    let shared = HandlerContext::new(Console::new(clock::now()).unwrap(), Arc::new(config), None);
    // A rate at which no second of this test earns another request.
    shared.auth.set_rate(0, 20);
    let server = start("127.0.0.1:0".parse().unwrap(), shared).unwrap();
    let a = server.address;
    let json = "Content-Type: application/json\r\n";
    let token_of = |name: &str| {
        let body = format!("{{\"name\": \"{name}\", \"scopes\": [\"read\"]}}");
        let (_, made) = ask(a, "POST", "/api/v1/tokens", json, &body);
        format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap())
    };
    let (flood, other) = (token_of("flood"), token_of("other"));
    let status = |by: &str| ask_unauthenticated(a, "GET", "/api/v1/status", by, "");
    let taken = (0..60).filter(|_| status(&flood).0 == 200).count();
    assert_eq!(taken, 20);
    let (refused, problem) = status(&flood);
    assert!(
        refused == 429 && problem["detail"].as_str().unwrap().starts_with("token:flood sends"),
        "{problem}"
    );
    assert_eq!(status(&other).0, 200);
    assert!((0..60).all(|_| get(a, "/api/v1/status").0 == 200), "commands of this host are not counted");
}
