//! The configuration file through the API: checked before it is saved, with its history, and never with its secrets.

use std::path::Path;

use super::*;

const JSON: &str = "Content-Type: application/json\r\n";
const KEY: &str = "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d";

/// A core with a configuration file that has a secret.
fn with_file() -> (TestServer, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("whimbrel.yaml");
    let store = folder.path().join("subscribers.db");
    let text = format!(
        "# of the harbour\nstore: {{ path: {}, key_file: {} }}\nplmn: 999/70\nhome_network_keys: [{{ id: 1, private_key: \"{KEY}\" }}]\n",
        store.display(),
        folder.path().join("subscribers.key").display()
    );
    std::fs::write(&file, text).unwrap();
    let (config, _) = config::load(Some(&file)).unwrap();
    let console = Console::new(clock::now()).unwrap();
    let shared = HandlerContext::new(console, Arc::new(config), Some(file.clone()));
    let server = start("127.0.0.1:0".parse().unwrap(), shared).unwrap();
    (TestServer { server, folder }, file)
}

/// The text and its tag.
fn read(a: SocketAddr) -> (String, String) {
    let own = format!("Authorization: Bearer {}\r\n", token(a));
    let (status, head, body) = answer(a, "GET", "/api/v1/config", &own, "");
    assert_eq!(status, 200, "{body}");
    let tag = head.split("etag: ").nth(1).and_then(|t| t.lines().next()).unwrap().to_string();
    let body: Value = serde_json::from_str(&body).unwrap();
    let (doc, schema) = (openapi(), serde_json::json!({"$ref": "#/components/schemas/Configuration"}));
    conforms(&doc, &schema, &body, "configuration");
    (body["text"].as_str().unwrap().into(), tag)
}

fn save(a: SocketAddr, tag: &str, body: &Value) -> (u16, Value) {
    ask(a, "PUT", "/api/v1/config", &format!("If-Match: {tag}\r\n{JSON}"), &body.to_string())
}

fn save_text(a: SocketAddr, tag: &str, text: &str) -> (u16, Value) {
    save(a, tag, &serde_json::json!({ "text": text }))
}

#[test]
fn a_change_is_checked_saved_and_becomes_a_version_that_can_be_restored() {
    let (server, file) = with_file();
    let a = server.address;
    let (doc, first) = (openapi(), std::fs::read_to_string(&file).unwrap());
    let (text, tag) = read(a);
    assert!(text.starts_with("# of the harbour\n") && text.contains("(secret 1)") && !text.contains(KEY));
    let check = |text: &str| {
        let body = serde_json::json!({ "text": text }).to_string();
        let (status, checked) = ask(a, "POST", "/api/v1/config/check", JSON, &body);
        assert_eq!(status, 200, "{checked}");
        conforms(
            &doc,
            &serde_json::json!({"$ref": "#/components/schemas/ConfigurationCheck"}),
            &checked,
            "check",
        );
        checked
    };
    // A mistake is reported with its line before anything is saved.
    let wrong = text.replace("plmn: 999/70", "plmn: nowhere\nzebra: 1");
    let problems = check(&wrong)["problems"].clone();
    assert_eq!(
        (problems[0]["line"].as_u64(), problems.as_array().map(Vec::len)),
        (Some(3), Some(2)),
        "{problems}"
    );
    let (status, refused) = save_text(a, &tag, &wrong);
    assert_eq!((status, refused["lines"].as_array().map(Vec::len)), (422, Some(2)), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), first);
    // What waits for the next start is reported, too.
    let edited = text.replace("plmn: 999/70", "plmn: 001/01\ntimers: { t3512: 30min }");
    let checked = check(&edited);
    assert_eq!(
        (checked["problems"].as_array().map(Vec::len), &checked["kept"][0]),
        (Some(0), &"plmn".into())
    );
    let (status, changed) = save_text(a, &tag, &edited);
    assert_eq!(
        (status, changed["version"].as_u64(), &changed["kept"][0]),
        (200, Some(2), &"plmn".into()),
        "{changed}"
    );
    conforms(
        &doc,
        &serde_json::json!({"$ref": "#/components/schemas/ConfigurationChange"}),
        &changed,
        "change",
    );
    let saved = std::fs::read_to_string(&file).unwrap();
    assert!(saved.contains("plmn: 001/01") && saved.contains(KEY) && !saved.contains("(secret"), "{saved}");
    // Another operator read the former one.
    assert_eq!(save_text(a, &tag, &text).0, 412);
    assert_eq!(ask(a, "PUT", "/api/v1/config", JSON, "{\"version\": 1}").0, 400, "without If-Match");
    // The host is the other way in.
    std::fs::write(&file, saved.replace("30min", "40min")).unwrap();
    let (_, tag) = read(a);
    let (_, history) = get(a, "/api/v1/config/history");
    let schema =
        serde_json::json!({"type": "array", "items": {"$ref": "#/components/schemas/ConfigurationVersion"}});
    conforms(&doc, &schema, &history, "history");
    let how: Vec<_> =
        history.as_array().unwrap().iter().map(|v| (v["by"].as_str(), v["how"].as_str())).collect();
    assert_eq!(
        how,
        [
            (Some(""), Some("changed on the host")),
            (Some("local"), Some("saved")),
            (Some(""), Some("first seen"))
        ]
    );
    let (_, former) = get(a, "/api/v1/config/history/1");
    conforms(
        &doc,
        &serde_json::json!({"$ref": "#/components/schemas/ConfigurationText"}),
        &former,
        "version",
    );
    assert!(!former.to_string().contains(KEY), "{former}");
    assert_eq!(get(a, "/api/v1/config/history/9").0, 404);
    let (status, restored) = save(a, &tag, &serde_json::json!({ "version": 1 }));
    assert_eq!(
        (status, restored["version"].as_u64(), restored["kept"].as_array().map(Vec::len)),
        (200, Some(4), Some(0)),
        "{restored}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), first, "secrets included");
}

#[test] // a full disk shows itself as a write that fails
fn a_file_that_cannot_be_written_stays_as_it_is() {
    let (server, file) = with_file();
    let a = server.address;
    let (text, tag) = read(a);
    let before = std::fs::read_to_string(&file).unwrap();
    // The new file cannot be made beside the old one.
    std::fs::create_dir_all(file.with_extension("yaml.new").join("x")).unwrap();
    let (status, problem) = save_text(a, &tag, &text.replace("999/70", "001/01"));
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        status == 409 && detail.contains("cannot be written") && detail.contains("Nothing was changed"),
        "{problem}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    assert_eq!(get(a, "/api/v1/config/history").1.as_array().map(Vec::len), Some(1));
}

#[test]
fn a_file_that_is_no_configuration_is_shown_with_what_is_wrong() {
    let (server, file) = with_file();
    let a = server.address;
    let text = std::fs::read_to_string(&file).unwrap() + "zebra: 1\n";
    std::fs::write(&file, &text).unwrap();
    let own = format!("Authorization: Bearer {}\r\n", token(a));
    let (_, _, body) = answer(a, "GET", "/api/v1/config", &own, "");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["problems"][0]["line"], 5, "{body}");
    // A file whose secrets cannot be found is not shown at all.
    std::fs::write(&file, format!("a: [\nprivate_key: {KEY}\n")).unwrap();
    let (status, _, body) = answer(a, "GET", "/api/v1/config", &own, "");
    assert!(status == 422 && !body.contains(KEY), "{status} {body}");
}

#[test]
fn only_an_admin_changes_the_configuration_and_a_viewer_does_not_see_its_text() {
    let (server, _) = with_file();
    let a = server.address;
    let token_of = |scopes: &str| {
        let body = format!("{{\"name\": \"{}\", \"scopes\": [{scopes}]}}", scopes.len());
        let (_, made) = ask(a, "POST", "/api/v1/tokens", JSON, &body);
        format!("Authorization: Bearer {}\r\n{JSON}", made["token"].as_str().unwrap())
    };
    let (viewer, operator) = (token_of("\"read\""), token_of("\"read\", \"operate\""));
    let status =
        |method: &str, path: &str, by: &str, body: &str| ask_unauthenticated(a, method, path, by, body).0;
    assert_eq!(status("GET", "/api/v1/network", &viewer, ""), 200);
    assert_eq!(status("GET", "/api/v1/config", &viewer, ""), 403);
    assert_eq!(status("GET", "/api/v1/config/history", &viewer, ""), 403);
    assert_eq!(status("GET", "/api/v1/config", &operator, ""), 200);
    assert_eq!(status("PUT", "/api/v1/config", &operator, "{\"version\": 1}"), 403);
}

#[test]
fn without_a_file_the_way_to_one_is_reported() {
    let (server, _console) = served();
    let (status, problem) = get(server.address, "/api/v1/config");
    assert!(status == 409 && problem["detail"].as_str().unwrap().contains("whimbrel config"), "{problem}");
}

/// The answer to a check, by a token with these scopes.
fn checked(a: SocketAddr, text: &str) -> Value {
    let body = serde_json::json!({ "text": text }).to_string();
    let (status, checked) = ask(a, "POST", "/api/v1/config/check", JSON, &body);
    assert_eq!(status, 200, "{checked}");
    let schema = serde_json::json!({"$ref": "#/components/schemas/ConfigurationCheck"});
    conforms(&openapi(), &schema, &checked, "check");
    checked
}

#[test] // TS 33.117 §4.2.3.2.2: secrets are not shown
fn no_check_answers_with_a_secret_of_the_file() {
    let (server, _) = with_file();
    let a = server.address;
    for text in [
        "\"(secret 1)\": 1\n".to_string(),
        "\"(secret 1)\": 1\n\"(secret 1)\": 2\n".into(),
        "plmn: \"(secret 1)\"\n".into(),
        "amf: { name: [\"(secret 1)\"], region: \"(secret 1)\" }\n".into(),
        "home_network_keys: [{ private_key_file: \"(secret 1)\" }]\n".into(),
        "home_network_keys: [{ id: 1, private_key: \"(secret 1)\" }, { id: \"(secret 1)\" }]\n".into(),
        "home_network_keys: [{ id: 1, private_key: \"(secret 1)\" }]\nlog: { level: \"(secret 1)\" }\n"
            .into(),
        // Also what the sender knows is not repeated.
        format!("home_network_keys: [{{ id: 1, private_key: {KEY} }}]\nplmn: {KEY}\ntac: [\"{KEY}\"]\n"),
    ] {
        let answer = checked(a, &text).to_string();
        assert!(!answer.contains(&KEY[..12]), "{text}: {answer}");
    }
    let log = std::fs::read_to_string(server.folder.path().join("subscribers.db.audit")).unwrap();
    assert_eq!(log.matches("user=local request=\"POST /api/v1/config/check\"").count(), 1, "{log}");
}

#[test]
fn a_check_opens_only_files_that_the_running_configuration_names() {
    let (server, file) = with_file();
    let a = server.address;
    let key = server.folder.path().join("suci.key");
    std::fs::write(&key, KEY).unwrap();
    let text = |name: &Path| {
        std::fs::read_to_string(&file)
            .unwrap()
            .replace(&format!("private_key: \"{KEY}\""), &format!("private_key_file: {}", name.display()))
    };
    for name in [&key, Path::new("/dev/zero"), Path::new("/nonexistent")] {
        let answer = checked(a, &text(name));
        let expected = format!("home_network_keys[0].private_key_file: {}", name.display());
        assert_eq!(answer["problems"].as_array().map(Vec::len), Some(0), "{answer}");
        assert_eq!(answer["not_checked"], serde_json::json!([expected]), "{answer}");
    }
    let certificates = "open: { key_file: /dev/zero, certificate: /dev/zero }\nveil:\n  broker: b.example\n  \
         address: \"192.0.2.7:7443\"\n  key_file: /dev/zero\n  certificate: /dev/zero\n  broker_key: \
         \"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\"\n  witnesses: \
         [\"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\"]\n";
    let answer = checked(a, certificates);
    assert_eq!(answer["not_checked"].as_array().map(Vec::len), Some(4), "{answer}");
    // A change is made, and says so as well.
    let (_, tag) = read(a);
    let (status, changed) = save_text(a, &tag, &text(&key));
    assert_eq!((status, changed["not_checked"].as_array().map(Vec::len)), (200, Some(1)), "{changed}");
}

#[test]
fn a_file_that_the_running_configuration_names_is_checked() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (file, key) = (folder.path().join("whimbrel.yaml"), folder.path().join("suci.key"));
    std::fs::write(&key, KEY).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "store: {{ path: {0}/s.db, key_file: {0}/s.key }}\nhome_network_keys: [{{ id: 1, private_key_file: {1} }}]\n",
        folder.path().display(),
        key.display()
    );
    std::fs::write(&file, &text).unwrap();
    let (config, _) = config::load(Some(&file)).unwrap();
    let good = config::check(&text, &file, &config);
    assert!(good.config.is_ok_and(|c| c.home_network_keys.len() == 1) && good.not_checked.is_empty());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let wrong = config::check(&text, &file, &config).config.unwrap_err().to_string();
    assert!(wrong.contains("may be read by others"), "{wrong}");
    // A device in place of the file does not hang the check.
    std::fs::remove_file(&key).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &key).unwrap();
    let wrong = config::check(&text, &file, &config).config.unwrap_err().to_string();
    assert!(wrong.contains("it is a device, not a regular file"), "{wrong}");
}
