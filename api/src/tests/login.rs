//! Login, sessions, roles, tokens, one-time links; TLS beyond loopback; the audit log's names.

use super::*;
use whimbrel_node::client::Client;
use whimbrel_node::local_socket;

const JSON: &str = "Content-Type: application/json\r\n";
const PASSWORD: &str = "a curlew in the mud";

/// A session: its cookie and its CSRF token, as headers.
struct LoginSession {
    cookie: String,
    csrf: String,
}

impl LoginSession {
    fn get(&self, a: SocketAddr, path: &str) -> (u16, Value) {
        ask_unauthenticated(a, "GET", path, &self.cookie, "")
    }

    fn send(&self, a: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
        ask_unauthenticated(a, method, path, &format!("{}{}{JSON}", self.cookie, self.csrf), body)
    }
}

fn log_in(a: SocketAddr, body: &str) -> Result<LoginSession, u16> {
    let (status, head, body) = answer(a, "POST", "/api/v1/session", JSON, body);
    if status != 200 {
        return Err(status);
    }
    let cookie = head.split("set-cookie: ").nth(1).and_then(|c| c.split(';').next()).unwrap().to_string();
    assert!(head.contains("httponly; samesite=strict; max-age=") && !head.contains("; secure"), "{head}");
    let me: Value = serde_json::from_str(&body).unwrap();
    let csrf = format!("X-CSRF-Token: {}\r\n", me["csrf"].as_str().unwrap());
    Ok(LoginSession { cookie: format!("Cookie: {cookie}\r\n"), csrf })
}

fn by_password(a: SocketAddr, name: &str, password: &str) -> Result<LoginSession, u16> {
    log_in(a, &serde_json::json!({ "name": name, "password": password }).to_string())
}

fn make_user(a: SocketAddr, name: &str, role: &str) {
    let body = serde_json::json!({ "name": name, "role": role, "password": PASSWORD }).to_string();
    let (status, answer) = ask(a, "POST", "/api/v1/users", JSON, &body);
    assert_eq!(status, 201, "{answer}");
}

#[test] // TS 33.117 §4.2.3.4.1.1
fn nothing_of_the_core_is_shown_without_a_login() {
    let (server, _console) = served();
    let a = server.address;
    for route in ROUTES {
        let path = route.path.replace("{supi}", UE).replace(['{', '}'], "");
        let (status, body) = ask_unauthenticated(a, route.method.as_str(), &path, JSON, "");
        let open = ["/metrics", "/openapi.json"].contains(&route.path);
        let expected = match (open, route.path, route.method.as_str()) {
            (true, ..) => 200,
            (_, "/api/v1/session", "POST") => 400,
            _ => 401,
        };
        assert_eq!(status, expected, "{} {path}: {body}", route.method);
        for wrong in
            ["Authorization: Bearer x\r\n", "Authorization: Basic eDp4\r\n", "Cookie: whimbrel_session=x\r\n"]
        {
            let (status, _) =
                ask_unauthenticated(a, route.method.as_str(), &path, &format!("{wrong}{JSON}"), "");
            assert!(status == 401 || status == expected, "{} {path} {wrong}: {status}", route.method);
        }
    }
}

#[test]
fn a_one_time_link_makes_the_first_admin_and_works_once() {
    let (server, _console) = served();
    let a = server.address;
    assert_eq!(ask_unauthenticated(a, "POST", "/api/v1/links", "", "").0, 401);
    let (status, link) = ask(a, "POST", "/api/v1/links", "", "");
    assert_eq!(status, 201);
    conforms(&openapi(), &serde_json::json!({"$ref": "#/components/schemas/Link"}), &link, "link");
    let secret = link["path"].as_str().unwrap().strip_prefix("/#/link/").unwrap();
    let body = format!("{{\"link\": \"{secret}\"}}");
    let session = log_in(a, &body).unwrap();
    assert_eq!(log_in(a, &body).err(), Some(401), "it was used");
    assert_eq!(session.get(a, "/api/v1/session").1["without_users"], true);
    let user = |role: &str, password: &str| {
        serde_json::json!({ "name": "anna", "role": role, "password": password }).to_string()
    };
    assert_eq!(
        session.send(a, "POST", "/api/v1/users", &user("viewer", PASSWORD)).0,
        422,
        "not the first one"
    );
    assert_eq!(session.send(a, "POST", "/api/v1/users", &user("admin", "short")).0, 422);
    assert_eq!(session.send(a, "POST", "/api/v1/users", &user("admin", PASSWORD)).0, 201);
    assert_eq!(session.send(a, "POST", "/api/v1/users", &user("admin", PASSWORD)).0, 409);
    for name in ["local", "", "a b", "x\ny", "<script>"] {
        let body = serde_json::json!({ "name": name, "role": "viewer", "password": PASSWORD }).to_string();
        assert_eq!(session.send(a, "POST", "/api/v1/users", &body).0, 422, "{name:?}");
    }
    assert_eq!(session.send(a, "POST", "/api/v1/links", "").0, 403, "only the core's host makes links");
    let anna = by_password(a, "anna", PASSWORD).unwrap();
    assert_eq!(anna.get(a, "/api/v1/users").1[0]["name"], "anna");
    assert!(!anna.get(a, "/api/v1/users").1.to_string().contains("hash"));
    assert_eq!(anna.send(a, "DELETE", "/api/v1/users/anna", "").0, 409, "the only admin");
}

#[test]
fn a_change_needs_the_sessions_csrf_token_and_ends_with_the_session() {
    let (server, _console) = served();
    let a = server.address;
    make_user(a, "anna", "admin");
    let anna = by_password(a, "anna", PASSWORD).unwrap();
    let path = format!("/api/v1/ues/{UE}/deregister");
    assert_eq!(ask_unauthenticated(a, "POST", &path, &anna.cookie, "").0, 403);
    let wrong = format!("{}X-CSRF-Token: {}\r\n", anna.cookie, "0".repeat(64));
    assert_eq!(ask_unauthenticated(a, "POST", &path, &wrong, "").0, 403);
    assert_eq!(anna.send(a, "POST", &path, "").0, 202);
    assert_eq!(anna.send(a, "DELETE", "/api/v1/session", "").0, 204);
    assert_eq!(anna.get(a, "/api/v1/status").0, 401);
}

#[test]
fn a_role_bounds_what_a_user_does() {
    let (server, _console) = served();
    let a = server.address;
    make_user(a, "anna", "admin");
    make_user(a, "olaf", "operator");
    make_user(a, "vera", "viewer");
    let (olaf, vera) = (by_password(a, "olaf", PASSWORD).unwrap(), by_password(a, "vera", PASSWORD).unwrap());
    let order = format!("/api/v1/ues/{UE}/deregister");
    assert_eq!((vera.get(a, "/api/v1/ues").0, vera.send(a, "POST", &order, "").0), (200, 403));
    assert_eq!((olaf.get(a, "/api/v1/ues").0, olaf.send(a, "POST", &order, "").0), (200, 202));
    let subscriber = format!("{{\"supi\": \"{UE}\", \"k\": \"{K}\", \"opc\": \"{K}\"}}");
    assert_eq!(vera.send(a, "POST", "/api/v1/subscribers", &subscriber).0, 403);
    assert_eq!(olaf.send(a, "POST", "/api/v1/subscribers", &subscriber).0, 201);
    for path in ["/api/v1/users", "/api/v1/tokens", "/api/v1/audit"] {
        assert_eq!((vera.get(a, path).0, olaf.get(a, path).0), (403, 403), "{path}");
    }
    // A change of the role ends the sessions that had the old one.
    assert_eq!(ask(a, "PATCH", "/api/v1/users/olaf", JSON, "{\"role\": \"viewer\"}").0, 200);
    assert_eq!(olaf.get(a, "/api/v1/ues").0, 401);
    let new = serde_json::json!({ "old": PASSWORD, "new": "another long one" }).to_string();
    assert_eq!(vera.send(a, "PUT", "/api/v1/session/password", &new.replace(PASSWORD, "wrong")).0, 403);
    assert_eq!(vera.send(a, "PUT", "/api/v1/session/password", &new).0, 204);
    assert!(by_password(a, "vera", PASSWORD).is_err() && by_password(a, "vera", "another long one").is_ok());
}

const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";

#[test]
fn a_token_has_its_scopes_until_it_is_removed() {
    let (server, _console) = served();
    let a = server.address;
    let make = |scopes: &str| {
        ask(a, "POST", "/api/v1/tokens", JSON, &format!("{{\"name\": \"grafana\", \"scopes\": [{scopes}]}}"))
    };
    assert_eq!((make("").0, make("\"everything\"").0), (422, 422));
    let (status, made) = make("\"read\"");
    assert_eq!(status, 201, "{made}");
    let header = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    assert_eq!(ask_unauthenticated(a, "GET", "/api/v1/ues", &header, "").0, 200);
    assert_eq!(ask_unauthenticated(a, "POST", &format!("/api/v1/ues/{UE}/deregister"), &header, "").0, 403);
    assert_eq!(ask_unauthenticated(a, "GET", "/api/v1/tokens", &header, "").0, 403);
    let (_, all) = get(a, "/api/v1/tokens");
    conforms(
        &openapi(),
        &serde_json::json!({"type": "array", "items": {"$ref": "#/components/schemas/Token"}}),
        &all,
        "all",
    );
    assert!(all[0]["token"].is_null(), "it is shown once");
    assert_eq!(ask(a, "DELETE", "/api/v1/tokens/grafana", "", "").0, 204);
    assert_eq!(ask_unauthenticated(a, "GET", "/api/v1/ues", &header, "").0, 401);
}

#[test] // TS 33.117 §4.2.3.4.5: brute force
fn failed_logins_have_to_wait() {
    let (server, _console) = served();
    let a = server.address;
    make_user(a, "anna", "admin");
    for _ in 0..5 {
        assert_eq!(by_password(a, "anna", "wrong").err(), Some(401));
    }
    assert_eq!(by_password(a, "anna", PASSWORD).err(), Some(429), "the right one waits, too");
    assert_eq!(by_password(a, "unknown", PASSWORD).err(), Some(429), "the address waits with any name");
    assert_eq!(get(a, "/api/v1/status").0, 200, "a caller that is logged in does not wait");
    // A one-time link is the way in while the source waits, and wrong ones are not counted.
    assert_eq!(log_in(a, "{\"link\": \"wrong\"}").err(), Some(401));
    let (_, link) = ask(a, "POST", "/api/v1/links", "", "");
    let secret = link["path"].as_str().unwrap().strip_prefix("/#/link/").unwrap();
    assert!(log_in(a, &format!("{{\"link\": \"{secret}\"}}")).is_ok());
}

#[test] // TS 33.117 §4.2.3.2.4
fn the_audit_log_names_the_user_and_no_secret() {
    let (server, _console) = served();
    let a = server.address;
    make_user(a, "anna", "admin");
    let anna = by_password(a, "anna", PASSWORD).unwrap();
    anna.get(a, &format!("/api/v1/ues/{UE}"));
    anna.send(a, "POST", &format!("/api/v1/ues/{UE}/deregister"), "");
    let _ = by_password(a, "anna", "not the password");
    ask_unauthenticated(a, "GET", "/api/v1/subscribers", "", "");
    let (status, lines) = anna.get(a, "/api/v1/audit?limit=10");
    let text = lines.to_string();
    assert_eq!(status, 200, "{text}");
    for part in [
        " user=anna request=\\\"GET /api/v1/ues/{supi}\\\" subscriber=",
        " user=anna request=\\\"POST /api/v1/ues/{supi}/deregister\\\"",
        " user=local request=\\\"POST /api/v1/users\\\" subscriber=- outcome=201",
        " user=anna request=\\\"POST /api/v1/session\\\" subscriber=- outcome=401",
        "request=\\\"GET /api/v1/subscribers\\\" subscriber=- outcome=401",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for secret in [PASSWORD, "not the password", UE, token(a)] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[test]
fn commands_of_this_host_need_no_token_over_their_socket_and_get_nothing_over_loopback() {
    use std::os::unix::fs::PermissionsExt;
    let (server, _console) = served();
    let store = server.folder.path().join("subscribers.db");
    let socket = local_socket::beside(&store);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let client = Client::new(server.address).by_store(&store);
    let link: Value = client.send("POST", "/api/v1/links", None).unwrap();
    assert!(link["path"].is_string(), "{link}");
    let ues: Value = client.get("/api/v1/ues").unwrap();
    assert_eq!(ues["ues"][0]["supi"], UE);
    let audit = std::fs::read_to_string(server.folder.path().join("subscribers.db.audit")).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    assert!(audit.contains(&format!("caller=uid={uid} user=local request=\"GET /api/v1/ues\"")), "{audit}");
    // The same sender is not authenticated when it comes over the TCP port on loopback.
    for (method, path) in [("POST", "/api/v1/links"), ("GET", "/api/v1/ues"), ("POST", "/api/v1/reload")] {
        assert_eq!(ask_unauthenticated(server.address, method, path, "", "").0, 401, "{method} {path}");
    }
    let e = Client::new(server.address).with_certificate_of(&store).get::<Value>("/api/v1/ues").unwrap_err();
    assert!(e.contains("WHIMBREL_TOKEN"), "{e}");
    assert!(!server.folder.path().join("subscribers.db.token").exists(), "no secret is beside the store");
}

#[test]
fn a_second_core_with_the_same_store_leaves_the_socket_to_the_first() {
    let (server, _console) = served();
    let store = server.folder.path().join("subscribers.db");
    let mut config = config::default();
    config.store.path = store.clone();
    let shared = HandlerContext::new(Console::new(clock::now()).unwrap(), Arc::new(config), None);
    let second = start("127.0.0.1:0".parse().unwrap(), shared).unwrap();
    drop(second);
    let ues: Value = Client::new(server.address).by_store(&store).get("/api/v1/ues").unwrap();
    assert_eq!(ues["ues"][0]["supi"], UE, "the first one answers");
}

#[test]
fn the_socket_of_commands_may_come_after_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config::default();
    config.store.path = folder.path().join("subscribers.db");
    config.store.key_file = folder.path().join("subscribers.key");
    let store = config.store.path.clone();
    let shared = HandlerContext::new(Console::new(clock::now()).unwrap(), Arc::new(config), None);
    let (give, given) = std::sync::mpsc::channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = crate::start_on(listener, move || given.try_recv().ok(), address, shared).unwrap();
    assert_eq!(get(server.address, "/openapi.json").0, 200, "the network is served meanwhile");
    give.send(local_socket::listen(&local_socket::beside(&store)).unwrap()).unwrap();
    let status: Value = Client::new(server.address).by_store(&store).get("/api/v1/status").unwrap();
    assert!(status["condition"].is_string(), "{status}");
}

#[test]
fn a_server_without_a_socket_of_commands_stops() {
    let (_, console) = served();
    let at = "127.0.0.1:0".parse().unwrap();
    let server = start(at, HandlerContext::of_cpf(console, at)).unwrap();
    let began = std::time::Instant::now();
    drop(server);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn beyond_loopback_only_https_is_spoken_and_the_cookie_is_secure() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config::default();
    config.store.path = folder.path().join("subscribers.db");
    config.store.key_file = folder.path().join("subscribers.key");
    config.api.address = "0.0.0.0:0".parse().unwrap();
    let shared = HandlerContext::new(Console::new(clock::now()).unwrap(), Arc::new(config.clone()), None);
    let server = start(config.api.address, shared).unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], server.address.port()));
    let (status, problem) = ask_unauthenticated(local, "GET", "/api/v1/status", "", "");
    assert_eq!(
        (status, problem["detail"].as_str()),
        (400, Some("beyond loopback the API speaks HTTPS only: write https:// instead of http://"))
    );
    let local = Client::of(&config);
    let status: Value = local.get("/api/v1/status").unwrap();
    assert_eq!(status["plmn"], "999/70");
    // Even the metrics need a login there.
    let client = Client::new(server.address).with_certificate_of(&config.store.path);
    assert!(client.url().starts_with("https://"));
    assert!(client.get::<Value>("/metrics").unwrap_err().contains("WHIMBREL_TOKEN"));
    let without = Client::new(server.address).with_certificate_of(&folder.path().join("none.db"));
    let e = without.get::<Value>("/api/v1/status").unwrap_err();
    assert!(!e.contains("WHIMBREL_TOKEN"), "it does not trust the certificate: {e}");
}

#[test] // TS 33.117 §4.2.5: nothing but the page's own files runs in it, and no other page frames it
fn answers_carry_the_headers_that_protect_the_browser() {
    let (server, _console) = served();
    let a = server.address;
    for path in ["/", "/console/app.js", "/api/v1/status", "/api/v1/nothing"] {
        let (_, head, _) = answer(a, "GET", path, "", "");
        for header in [
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
        ] {
            assert!(head.contains(header), "{path} {header}: {head}");
        }
        assert!(!head.contains("unsafe-inline") && !head.contains("unsafe-eval"), "{head}");
    }
    let (status, head, _) = answer(a, "GET", "/console/style.css", "", "");
    assert_eq!(status, 200);
    let tag = head.split("etag: ").nth(1).and_then(|t| t.lines().next()).unwrap();
    assert_eq!(answer(a, "GET", "/console/style.css", &format!("If-None-Match: {tag}\r\n"), "").0, 304);
    assert_eq!(answer(a, "POST", "/console/style.css", "", "").0, 405);
}

#[test] // RFC 9110 §13.1.1: two operators edit the same subscriber
fn a_change_of_what_another_user_changed_is_refused_and_nothing_is_lost() {
    let (server, _console) = served();
    let a = server.address;
    let body = format!("{{\"supi\": \"{UE}\", \"k\": \"{K}\", \"opc\": \"{K}\"}}");
    assert_eq!(ask(a, "POST", "/api/v1/subscribers", JSON, &body).0, 201);
    let path = format!("/api/v1/subscribers/{UE}");
    let own = format!("Authorization: Bearer {}\r\n", token(a));
    let tag = || {
        let (_, head, _) = answer(a, "GET", &path, &own, "");
        format!("If-Match: {}\r\n{JSON}", head.split("etag: ").nth(1).and_then(|t| t.lines().next()).unwrap())
    };
    let first = tag();
    assert_eq!(ask(a, "PATCH", &path, &first, "{\"status\": \"barred\"}").0, 200);
    let (status, problem) = ask(a, "PATCH", &path, &first, "{\"msisdn\": \"491701234567\"}");
    assert_eq!(status, 412, "{problem}");
    assert_eq!(ask(a, "DELETE", &path, &first, "").0, 412);
    assert_eq!(get(a, &path).1["status"], "barred");
    // A change of the keys alone is a change as well, and the tag shows none of them.
    let second = tag();
    assert_eq!(ask(a, "PATCH", &path, JSON, "{\"k\": \"00112233445566778899aabbccddeeff\"}").0, 200);
    assert_eq!(ask(a, "PATCH", &path, &second, "{\"msisdn\": \"491701234567\"}").0, 412);
    assert_eq!(ask(a, "PATCH", &path, &tag(), "{\"msisdn\": \"491701234567\"}").0, 200);
}

#[test]
fn an_import_reports_each_wrong_line() {
    let (server, _console) = served();
    let row = |i: u64| match i % 100 {
        0 => format!("9997000000{i:05},{K},zebra\n"),
        _ => format!("9997000000{i:05},{K},{K}\n"),
    };
    let list: String = std::iter::once("supi,k,opc\n".to_string()).chain((1..=3700).map(row)).collect();
    let (status, problem) =
        ask(server.address, "POST", "/api/v1/subscribers/import", "Content-Type: text/csv\r\n", &list);
    let lines = problem["lines"].as_array().unwrap();
    assert_eq!((status, lines.len(), lines[0]["line"].as_u64()), (422, 37, Some(101)), "{problem}");
    conforms(&openapi(), &serde_json::json!({"$ref": "#/components/schemas/Problem"}), &problem, "problem");
    assert!(!problem.to_string().contains(K), "keys do not leave");
}

#[test] // RFC 6265bis §4.1.3.2
fn the_cookie_of_a_tls_server_is_bound_to_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config::default();
    config.store.path = folder.path().join("subscribers.db");
    let console = Console::new(clock::now()).unwrap();
    for (address, cookie) in [
        ("127.0.0.1:8070", "whimbrel_session=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=7"),
        ("192.0.2.1:8070", "__Host-whimbrel_session=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=7; Secure"),
    ] {
        config.api.address = address.parse().unwrap();
        let shared = HandlerContext::new(console.clone(), Arc::new(config.clone()), None);
        assert_eq!(crate::auth::handlers::set_cookie(&shared, "x", 7).unwrap(), cookie);
    }
}

/// The keys of the API in a server's configuration.
fn served_with(change: impl FnOnce(&mut config::Api)) -> (TestServer, Arc<HandlerContext>) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config::default();
    config.store.path = folder.path().join("subscribers.db");
    config.store.key_file = folder.path().join("subscribers.key");
    change(&mut config.api);
    let console = Console::new(clock::now()).unwrap();
    let shared = HandlerContext::new(console, Arc::new(config), None);
    let server = start("127.0.0.1:0".parse().unwrap(), shared.clone()).unwrap();
    (TestServer { server, folder }, shared)
}

/// The present code of a secret in base 32, and the number of its 30 s.
fn code(secret: &str) -> (String, u64) {
    let step = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() / 30;
    (code_of(secret, step), step)
}

/// The code of a secret in base 32 in the 30 s of this number.
fn code_of(secret: &str, step: u64) -> String {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits: String = secret.chars().map(|c| format!("{:05b}", ALPHABET.find(c).unwrap())).collect();
    let octets: Vec<u8> = bits
        .as_bytes()
        .chunks_exact(8)
        .map(|b| u8::from_str_radix(std::str::from_utf8(b).unwrap(), 2).unwrap())
        .collect();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &octets);
    let tag = ring::hmac::sign(&key, &step.to_be_bytes());
    let at = usize::from(tag.as_ref()[19] & 0xf);
    let number = u32::from_be_bytes(tag.as_ref()[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

#[test] // RFC 6238
fn a_user_with_a_second_factor_needs_its_code_and_the_local_command_resets_it() {
    let (server, _console) = served();
    let a = server.address;
    make_user(a, "anna", "admin");
    let anna = by_password(a, "anna", PASSWORD).unwrap();
    let other = by_password(a, "anna", PASSWORD).unwrap();
    let path = "/api/v1/session/second-factor";
    assert_eq!(anna.send(a, "POST", path, "{\"password\": \"wrong\"}").0, 403);
    assert_eq!(anna.send(a, "PUT", path, "{\"code\": \"123456\"}").0, 409, "it was not begun");
    let (status, made) = anna.send(a, "POST", path, &serde_json::json!({ "password": PASSWORD }).to_string());
    conforms(
        &openapi(),
        &serde_json::json!({"$ref": "#/components/schemas/SecondFactor"}),
        &made,
        "second factor",
    );
    assert_eq!(status, 201, "{made}");
    let secret = made["secret"].as_str().unwrap();
    assert!(made["uri"].as_str().unwrap().contains(&format!("otpauth://totp/Whimbrel:anna?secret={secret}")));
    assert_eq!(anna.send(a, "PUT", path, "{\"code\": \"x\"}").0, 422);
    assert!(by_password(a, "anna", PASSWORD).is_ok(), "it is not in force yet");
    let (first, _) = code(secret);
    assert_eq!(anna.send(a, "PUT", path, &format!("{{\"code\": \"{first}\"}}")).0, 204);
    assert_eq!(anna.get(a, "/api/v1/session").1["second_factor"], true);
    assert_eq!(other.get(a, "/api/v1/status").0, 401, "sessions of the password alone have ended");
    let (_, users) = get(a, "/api/v1/users");
    assert!(users[0]["second_factor"] == true && !users.to_string().contains(secret), "{users}");
    // The password alone does not suffice, nor does a code that was used.
    let login = |code: Option<&str>| {
        let mut body = serde_json::json!({ "name": "anna", "password": PASSWORD });
        if let Some(code) = code {
            body["code"] = code.into();
        }
        ask_unauthenticated(a, "POST", "/api/v1/session", JSON, &body.to_string())
    };
    let (status, problem) = login(None);
    assert_eq!((status, problem["needs"].as_str()), (401, Some("code")), "{problem}");
    conforms(&openapi(), &serde_json::json!({"$ref": "#/components/schemas/Problem"}), &problem, "problem");
    assert_eq!(login(Some(&first)).0, 401);
    assert_eq!(login(Some("x")).0, 401);
    // A one-time link stands for both factors.
    let (_, link) = ask(a, "POST", "/api/v1/links", "", "");
    let secret = link["path"].as_str().unwrap().strip_prefix("/#/link/").unwrap();
    assert!(log_in(a, &format!("{{\"link\": \"{secret}\"}}")).is_ok());
    assert_eq!(ask(a, "DELETE", "/api/v1/users/anna/second-factor", "", "").0, 204);
    assert_eq!(anna.get(a, "/api/v1/status").0, 401);
    assert!(by_password(a, "anna", PASSWORD).is_ok());
    assert_eq!(ask(a, "DELETE", "/api/v1/users/unknown/second-factor", "", "").0, 404);
}

#[test]
fn a_user_with_a_second_factor_logs_in_while_the_accounts_cannot_be_written() {
    let (server, _console) = served();
    let a = server.address;
    make_user(a, "anna", "admin");
    let anna = by_password(a, "anna", PASSWORD).unwrap();
    let path = "/api/v1/session/second-factor";
    let (_, made) = anna.send(a, "POST", path, &serde_json::json!({ "password": PASSWORD }).to_string());
    let secret = made["secret"].as_str().unwrap();
    let (first, step) = code(secret);
    assert_eq!(anna.send(a, "PUT", path, &format!("{{\"code\": \"{first}\"}}")).0, 204);
    // No user can be written, as on a full disk.
    let store = rusqlite::Connection::open(server.folder.path().join("subscribers.db")).unwrap();
    store
        .execute_batch("CREATE TRIGGER full BEFORE UPDATE ON document BEGIN SELECT RAISE(FAIL, 'full'); END")
        .unwrap();
    let next = code_of(secret, step + 1);
    let body = serde_json::json!({ "name": "anna", "password": PASSWORD, "code": next }).to_string();
    assert!(log_in(a, &body).is_ok());
    assert_eq!(log_in(a, &body).err(), Some(401), "a code works once, all the same");
}

#[test]
fn where_a_second_factor_is_required_a_user_without_one_can_only_set_it_up() {
    let (server, _shared) = served_with(|api| api.second_factor = config::SecondFactor::Required);
    let a = server.address;
    make_user(a, "anna", "admin");
    let anna = by_password(a, "anna", PASSWORD).unwrap();
    let (_, me) = anna.get(a, "/api/v1/session");
    assert_eq!((&me["must_enrol"], me["scopes"].as_array().map(Vec::len)), (&true.into(), Some(0)), "{me}");
    assert_eq!(anna.get(a, "/api/v1/status").0, 403);
    let path = "/api/v1/session/second-factor";
    let (_, made) = anna.send(a, "POST", path, &serde_json::json!({ "password": PASSWORD }).to_string());
    let (first, _) = code(made["secret"].as_str().unwrap());
    assert_eq!(anna.send(a, "PUT", path, &format!("{{\"code\": \"{first}\"}}")).0, 204);
    assert_eq!(anna.get(a, "/api/v1/status").0, 200);
}

#[test] // TS 33.117 §4.2.3.4.3.2
fn a_password_that_was_used_before_is_refused() {
    let (server, _shared) = served_with(|api| api.password_history = 1);
    let a = server.address;
    make_user(a, "anna", "admin");
    let anna = by_password(a, "anna", PASSWORD).unwrap();
    let change = |old: &str, new: &str| {
        let body = serde_json::json!({ "old": old, "new": new }).to_string();
        anna.send(a, "PUT", "/api/v1/session/password", &body).0
    };
    assert_eq!(change(PASSWORD, PASSWORD), 422);
    assert_eq!(change(PASSWORD, "the second one"), 204);
    assert_eq!(change("the second one", PASSWORD), 422);
    let body = serde_json::json!({ "password": PASSWORD }).to_string();
    assert_eq!(ask(a, "PATCH", "/api/v1/users/anna", JSON, &body).0, 422, "by an admin neither");
    assert_eq!(change("the second one", "the third one"), 204);
    assert_eq!(change("the third one", PASSWORD), 204, "one former password is remembered");
}

#[test] // TS 33.117 §4.2.3.5.2
fn a_session_ends_when_it_was_idle_for_the_configured_time() {
    let (server, _shared) = served_with(|api| api.session_idle = Duration::ZERO);
    let a = server.address;
    make_user(a, "anna", "admin");
    assert_eq!(by_password(a, "anna", PASSWORD).unwrap().get(a, "/api/v1/status").0, 401);
}

#[test]
fn a_role_that_changes_counts_at_the_next_request() {
    let (server, shared) = served_with(|_| {});
    let a = server.address;
    make_user(a, "anna", "admin");
    make_user(a, "olaf", "operator");
    let olaf = by_password(a, "olaf", PASSWORD).unwrap();
    assert_eq!(olaf.get(a, "/api/v1/config/history").0, 409, "olaf may ask");
    // As a login at the moment of the change leaves it: the session is there, and the role is another one.
    shared.auth.change_role("olaf", crate::auth::UserRole::Viewer);
    assert_eq!(olaf.get(a, "/api/v1/config/history").0, 401, "the change has ended the session");
    let olaf = by_password(a, "olaf", PASSWORD).unwrap();
    assert_eq!(olaf.get(a, "/api/v1/config/history").0, 403);
}

#[test]
fn a_user_that_is_changed_while_a_password_is_hashed_does_not_log_in_with_the_former_one() {
    let (server, _console) = served();
    let a = server.address;
    make_user(a, "anna", "admin");
    make_user(a, "olaf", "operator");
    for round in 0..8 {
        let old = if round == 0 { PASSWORD.to_string() } else { format!("the password {round}") };
        let new = format!("the password {}", round + 1);
        let login = std::thread::spawn(move || by_password(a, "olaf", &old).ok());
        let body = serde_json::json!({ "password": new }).to_string();
        assert_eq!(ask(a, "PATCH", "/api/v1/users/olaf", JSON, &body).0, 200);
        if let Some(session) = login.join().unwrap() {
            assert_eq!(session.get(a, "/api/v1/status").0, 401, "the change has ended this session");
        }
        assert!(by_password(a, "olaf", &new).is_ok());
    }
}

#[test] // TS 33.117 §4.2.3.2.4
fn a_refused_request_of_a_known_user_is_recorded_by_name_and_counted() {
    let (server, shared) = served_with(|_| {});
    let a = server.address;
    make_user(a, "anna", "admin"); // the first one
    make_user(a, "vera", "viewer");
    let vera = by_password(a, "vera", PASSWORD).unwrap();
    let path = format!("/api/v1/ues/{UE}/deregister");
    shared.auth.set_rate(0, 2);
    let statuses: Vec<u16> = (0..4).map(|_| vera.send(a, "POST", &path, "").0).collect();
    assert_eq!(statuses, [403, 403, 429, 429]);
    let text = std::fs::read_to_string(server.folder.path().join("subscribers.db.audit")).unwrap();
    let line = " user=vera request=\"POST /api/v1/ues/{supi}/deregister\" subscriber=";
    let refused = text.lines().filter(|l| l.contains(line) && l.contains("outcome=403")).count();
    assert_eq!(refused, 2, "{text}");
}

#[test] // TS 33.117 §4.2.3.6.3
fn refusals_that_anybody_can_cause_are_counted_and_do_not_push_others_out() {
    let (server, _console) = served();
    let a = server.address;
    for i in 0..200 {
        assert_eq!(ask_unauthenticated(a, "GET", &format!("/api/v1/subscribers/{i}"), "", "").0, 401);
    }
    let log = server.folder.path().join("subscribers.db.audit");
    let lines = || std::fs::read_to_string(&log).unwrap();
    assert_eq!(lines().lines().count(), 1, "{}", lines());
    assert!(lines().contains("caller=127.0.0.1:"), "{}", lines());
    let TestServer { server, folder } = server;
    drop(server);
    let text = std::fs::read_to_string(&log).unwrap();
    let counted =
        "caller=127.0.0.0/24 request=\"GET /api/v1/subscribers/{supi}\" subscriber=- outcome=401 times=199 ";
    assert!(text.lines().count() == 2 && text.contains(counted), "{text}");
    assert_eq!(crate::audit::verify(&folder.path().join("subscribers.db")).unwrap().lines, 2);
}
