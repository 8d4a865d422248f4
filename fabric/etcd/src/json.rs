//! The messages of etcd's gateway, with only the fields that are needed. 64-bit numbers are strings, octets are
//! base64, and zeros are omitted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::{Value, json};
use whimbrel_resilience::membership::{EtcdAnswer, EtcdFailure, EtcdReply, EtcdRequest, Kv, WatchedChange};

/// Where a request goes, and its body.
pub(crate) fn request(request: &EtcdRequest) -> (&'static str, Value) {
    match request {
        EtcdRequest::Grant { ttl_s } => ("/v3/lease/grant", json!({ "TTL": ttl_s.to_string() })),
        EtcdRequest::KeepAlive { lease } => ("/v3/lease/keepalive", json!({ "ID": lease.to_string() })),
        EtcdRequest::Revoke { lease } => ("/v3/lease/revoke", json!({ "ID": lease.to_string() })),
        EtcdRequest::Swap { key, expected, value, lease } => {
            let key = STANDARD.encode(key);
            let value = STANDARD.encode(value);
            let unchanged = json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": expected.to_string() });
            let put = json!({ "request_put": { "key": key, "value": value, "lease": lease.to_string() } });
            let read = json!({ "request_range": { "key": key } });
            ("/v3/kv/txn", json!({ "compare": [unchanged], "success": [put], "failure": [read] }))
        }
        EtcdRequest::List { prefix } => (
            "/v3/kv/range",
            json!({ "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end_of(prefix)) }),
        ),
        EtcdRequest::Watch { prefix, from } => {
            let create = json!({
                "key": STANDARD.encode(prefix),
                "range_end": STANDARD.encode(end_of(prefix)),
                "start_revision": from.to_string(),
            });
            ("/v3/watch", json!({ "create_request": create }))
        }
    }
}

/// The first key after all keys with this prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0] // in etcd: to the end
}

#[derive(serde::Deserialize)]
struct ResponseHeader {
    #[serde(deserialize_with = "number")]
    cluster_id: u64,
    #[serde(deserialize_with = "number")]
    revision: u64,
}

#[derive(serde::Deserialize)]
struct LeaseGrant {
    header: ResponseHeader,
    #[serde(rename = "ID", deserialize_with = "number")]
    id: i64,
    #[serde(rename = "TTL", deserialize_with = "number")]
    ttl: u32,
}

#[derive(serde::Deserialize)]
struct KeepAlive {
    header: ResponseHeader,
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    ttl: u32,
}

/// An item of a stream.
#[derive(serde::Deserialize)]
struct Streamed<T> {
    result: T,
}

#[derive(serde::Deserialize)]
struct Headed {
    header: ResponseHeader,
}

#[derive(serde::Deserialize)]
struct Txn {
    header: ResponseHeader,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<TxnResponse>,
}

#[derive(serde::Deserialize)]
struct TxnResponse {
    response_range: Option<TxnRange>,
}

#[derive(serde::Deserialize)]
struct TxnRange {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(serde::Deserialize)]
struct Range {
    header: ResponseHeader,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(serde::Deserialize)]
struct KeyValue {
    #[serde(deserialize_with = "octets")]
    key: Vec<u8>,
    #[serde(default, deserialize_with = "octets")]
    value: Vec<u8>,
    #[serde(default, deserialize_with = "number")]
    mod_revision: u64,
    #[serde(default, deserialize_with = "number")]
    lease: i64,
}

#[derive(serde::Deserialize)]
struct WatchResponse {
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    events: Vec<WatchEvent>,
}

#[derive(serde::Deserialize)]
struct WatchEvent {
    #[serde(default, rename = "type")]
    kind: WatchEventKind,
    kv: KeyValue,
}

#[derive(Default, serde::Deserialize)]
enum WatchEventKind {
    #[default]
    #[serde(rename = "PUT")]
    Put,
    #[serde(rename = "DELETE")]
    Delete,
}

#[derive(Default, serde::Deserialize)]
struct GatewayError {
    #[serde(default)]
    error: String,
}

/// A number as a string, or as itself: gateways differ.
fn number<'de, D: Deserializer<'de>, T: std::str::FromStr>(from: D) -> Result<T, D::Error> {
    let text = match Value::deserialize(from)? {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => return Err(D::Error::custom("no number")),
    };
    text.parse().map_err(|_| D::Error::custom("no number of its kind"))
}

fn octets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(<std::borrow::Cow<'_, str>>::deserialize(from)?.as_ref()).map_err(D::Error::custom)
}

impl From<KeyValue> for Kv {
    fn from(kv: KeyValue) -> Self {
        let KeyValue { key, value, mod_revision, lease } = kv;
        Self { key: String::from_utf8_lossy(&key).into_owned(), value, mod_revision, lease }
    }
}

/// Reads the answer to a request; `ok`: its HTTP status.
pub(crate) fn answer(request: &EtcdRequest, ok: bool, body: &[u8]) -> Result<EtcdReply, EtcdFailure> {
    if !ok {
        let GatewayError { error } = serde_json::from_slice(body).unwrap_or_default();
        return match request {
            _ if error.contains("requested lease not found") => Err(EtcdFailure::NoLease),
            _ => Err(EtcdFailure::Unreachable(format!(
                "etcd reports: {}",
                error.chars().take(200).collect::<String>()
            ))),
        };
    }
    read(request, body)
        .map_err(|e| EtcdFailure::Unreachable(format!("the answer is not from etcd 3.4 or later: {e}")))
}

fn read(request: &EtcdRequest, body: &[u8]) -> Result<EtcdReply, serde_json::Error> {
    let (header, answer) = match request {
        EtcdRequest::Grant { .. } => {
            let LeaseGrant { header, id, ttl } = serde_json::from_slice(body)?;
            (header, EtcdAnswer::Granted { lease: id, ttl_s: ttl })
        }
        EtcdRequest::KeepAlive { .. } => {
            let Streamed { result: KeepAlive { header, ttl } } = serde_json::from_slice(body)?;
            (header, EtcdAnswer::KeptAlive { ttl_s: ttl })
        }
        EtcdRequest::Revoke { .. } => (serde_json::from_slice::<Headed>(body)?.header, EtcdAnswer::Revoked),
        EtcdRequest::Swap { .. } => {
            let Txn { header, succeeded, responses } = serde_json::from_slice(body)?;
            let present = responses.into_iter().filter_map(|r| r.response_range).flat_map(|r| r.kvs).next();
            (header, if succeeded { EtcdAnswer::Swapped } else { EtcdAnswer::Differs(present.map(Kv::from)) })
        }
        EtcdRequest::List { .. } => {
            let Range { header, kvs } = serde_json::from_slice(body)?;
            (header, EtcdAnswer::Listed(kvs.into_iter().map(Kv::from).collect()))
        }
        EtcdRequest::Watch { .. } => return Err(Error::custom("a watch is not answered here")),
    };
    Ok(EtcdReply { cluster: header.cluster_id, revision: header.revision, answer })
}

/// Reads the changes of a watch; `None`: the watch ends.
pub(crate) fn watched(line: &[u8]) -> Option<Vec<WatchedChange>> {
    let Streamed { result: WatchResponse { canceled, events } } = serde_json::from_slice(line).ok()?;
    let event = |WatchEvent { kind, kv }| {
        let kv = Kv::from(kv);
        match kind {
            WatchEventKind::Put => WatchedChange::Put(kv),
            WatchEventKind::Delete => WatchedChange::Deleted { key: kv.key, revision: kv.mod_revision },
        }
    };
    (!canceled).then(|| events.into_iter().map(event).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        r#""header":{"cluster_id":"12101053776118486841","member_id":"1","revision":"7","raft_term":"2"}"#;

    fn read(request: &EtcdRequest, body: &str) -> Result<EtcdReply, EtcdFailure> {
        answer(request, true, body.replace("HEADER", HEADER).as_bytes())
    }

    fn swap() -> EtcdRequest {
        EtcdRequest::Swap { key: "a".into(), expected: 5, value: b"hello".to_vec(), lease: 9 }
    }

    fn kv() -> Kv {
        Kv { key: "a".into(), value: b"hello".to_vec(), mod_revision: 6, lease: 9 }
    }

    #[test] // as etcd 3.4.23 wrote them
    fn answers_are_read() {
        let read =
            |request: &EtcdRequest, body| read(request, body).map(|a| (a.cluster, a.revision, a.answer));
        let cluster = 12_101_053_776_118_486_841;
        for (request, body, answer) in [
            (
                EtcdRequest::Grant { ttl_s: 5 },
                r#"{HEADER,"ID":"9041998810118681093","TTL":"5"}"#,
                EtcdAnswer::Granted { lease: 9_041_998_810_118_681_093, ttl_s: 5 },
            ),
            (
                EtcdRequest::KeepAlive { lease: 1 },
                r#"{"result":{HEADER,"ID":"1","TTL":"5"}}"#,
                EtcdAnswer::KeptAlive { ttl_s: 5 },
            ),
            (
                EtcdRequest::KeepAlive { lease: 1 },
                r#"{"result":{HEADER,"ID":"1"}}"#,
                EtcdAnswer::KeptAlive { ttl_s: 0 },
            ),
            (EtcdRequest::Revoke { lease: 1 }, "{HEADER}", EtcdAnswer::Revoked),
            (
                swap(),
                r#"{HEADER,"succeeded":true,"responses":[{"response_put":{"header":{"revision":"7"}}}]}"#,
                EtcdAnswer::Swapped,
            ),
            (
                swap(),
                r#"{HEADER,"responses":[{"response_range":{"header":{"revision":"2"},"kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"6","version":"1","value":"aGVsbG8=","lease":"9"}],"count":"1"}}]}"#,
                EtcdAnswer::Differs(Some(kv())),
            ),
            (
                swap(),
                r#"{HEADER,"responses":[{"response_range":{"header":{"revision":"2"}}}]}"#,
                EtcdAnswer::Differs(None),
            ),
            (EtcdRequest::List { prefix: "a".into() }, "{HEADER}", EtcdAnswer::Listed(vec![])),
            (
                EtcdRequest::List { prefix: "a".into() },
                r#"{HEADER,"kvs":[{"key":"YQ==","mod_revision":"6","value":"aGVsbG8=","lease":9}]}"#,
                EtcdAnswer::Listed(vec![kv()]),
            ),
        ] {
            assert_eq!(read(&request, body), Ok((cluster, 7, answer)), "{body}");
        }
    }

    #[test]
    fn an_unreadable_answer_is_a_failure() {
        for body in ["", "null", "{}", "<html>", r#"{"header":{}}"#, r#"{HEADER,"kvs":[{"key":"!"}]}"#] {
            assert!(
                matches!(
                    read(&EtcdRequest::List { prefix: "a".into() }, body),
                    Err(EtcdFailure::Unreachable(_))
                ),
                "{body}"
            );
        }
        let problem = br#"{"error":"etcdserver: requested lease not found","code":5}"#;
        assert_eq!(answer(&swap(), false, problem), Err(EtcdFailure::NoLease));
        let Err(EtcdFailure::Unreachable(why)) =
            answer(&swap(), false, br#"{"error":"etcdserver: no leader"}"#)
        else {
            panic!("it is a failure")
        };
        assert!(why.contains("no leader"));
        assert!(matches!(answer(&swap(), false, b"\xff"), Err(EtcdFailure::Unreachable(_))));
    }

    #[test]
    fn a_watch_is_read_line_by_line() {
        let line = |text: &str| watched(text.replace("HEADER", HEADER).as_bytes());
        assert_eq!(line(r#"{"result":{HEADER,"created":true}}"#), Some(vec![]));
        let changes = r#"{"result":{HEADER,"events":[{"kv":{"key":"YQ==","mod_revision":"6","value":"aGVsbG8=","lease":"9"}},{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"8"}}]}}"#;
        assert_eq!(
            line(changes),
            Some(vec![WatchedChange::Put(kv()), WatchedChange::Deleted { key: "a".into(), revision: 8 }])
        );
        assert_eq!(line(r#"{"result":{HEADER,"canceled":true,"compact_revision":"2"}}"#), None);
        for text in ["", "{}", r#"{"error":{"grpc_code":14}}"#] {
            assert_eq!(line(text), None, "{text}");
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(end_of("whimbrel/west/"), b"whimbrel/west0");
        assert_eq!(end_of("a\u{7f}"), b"a\x80");
        assert_eq!(end_of(""), [0]);
        let (path, body) = request(&swap());
        assert_eq!((path, &body["compare"][0]["mod_revision"]), ("/v3/kv/txn", &json!("5")));
    }
}
