//! The charging function of this core: embedded, for the SMF of this core, and offered, for the SMFs of others.

use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};
use whimbrel_charging::{Account, AccountKind, AccountStatus, ChargingFunction};
use whimbrel_control::charging::{
    ChargingAnswer, ChargingDenial, ChargingGrant, ChargingOperation, ChargingRequest, ChargingTrigger,
    FinalUnitAction, UsedUnits,
};
use whimbrel_control::{OutputId, UeId};
use whimbrel_ids::Supi;
use whimbrel_resilience::ChargingQuery;
use whimbrel_sbi::message::JSON;
use whimbrel_sbi::{
    ClientSettings, ReceivedRequest, SbiClient, SbiRequest, SbiResponse, SbiServer, ServerSettings,
};

use super::charging_tests::{charging_at, create, request, used};
use super::{NetworkFunctions, SbiInput};
use crate::config::sbi::ApiRoot;
use crate::config::value::Value;
use crate::config::{self, Config};
use crate::observation::{Condition, Console};
use crate::{accounts, clock};

/// Longest time that a test waits for an event.
const WITHIN: Duration = Duration::from_secs(10);

/// A core with a charging function.
struct ChargingCore {
    config: Config,
    console: Arc<Console>,
    functions: NetworkFunctions,
    _folder: tempfile::TempDir,
}

/// `requested_octets` of its data network is 1000, as the consumers of the tests ask for.
fn core(sbi: &str, change: impl FnOnce(&mut Config)) -> ChargingCore {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let text = format!(
        "store:\n  path: {at}/subscribers.db\n  key_file: {at}/store.key\nsbi:\n{sbi}chf:\n  threshold_percent: 20\n\
         data_networks:\n  - dnn: internet\n",
    );
    let charging = "    charging:\n      rating_group: 1\n      requested_octets: 1000\n";
    let text = if sbi.contains("chf: embedded") { text + charging } else { text };
    let mut config = config::parse(&text, Path::new("w.yaml")).unwrap_or_else(|e| panic!("{e}"));
    change(&mut config);
    let console = Console::new(clock::now()).unwrap();
    let functions = start(&config, &console);
    ChargingCore { config, console, functions, _folder: folder }
}

fn start(config: &Config, console: &Arc<Console>) -> NetworkFunctions {
    NetworkFunctions::start(config, console.clone(), |_| panic!("no subscription is asked for"))
        .unwrap()
        .unwrap()
}

fn supi() -> Supi {
    "imsi-999700000000001".parse().unwrap()
}

fn wait<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < WITHIN, "it did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl ChargingCore {
    fn accounts(&self) -> ChargingFunction {
        accounts::open(&self.config).unwrap()
    }

    fn with_credit(self, octets: i64) -> Self {
        let mut accounts = self.accounts();
        accounts.put_account(supi(), AccountKind::Prepaid, AccountStatus::Active).unwrap();
        accounts.credit(clock::now(), supi(), octets, None).unwrap().unwrap();
        self
    }

    fn account(&self) -> Account {
        self.accounts().account(supi()).unwrap().unwrap()
    }

    fn next(&mut self) -> SbiInput {
        let functions = &mut self.functions;
        wait(|| functions.turn().pop())
    }

    fn charge(&mut self, request: ChargingRequest) -> ChargingAnswer {
        let (ue, to) = (UeId { slot: 1, generation: 2 }, OutputId { clock: 3, index: 4 });
        self.functions.charge(ChargingQuery { ue, to, request });
        match self.next() {
            SbiInput::Charged(of, answered, answer) => {
                assert_eq!((of, answered), (ue, to));
                *answer
            }
            _ => panic!("the answer is another input"),
        }
    }

    /// Stops it, and starts it over the same file.
    fn restart(&mut self) {
        let (config, console) = (&self.config, &self.console);
        // The former one has its thread until it is replaced, as a core that is upgraded.
        self.functions = start(config, console);
    }
}

fn granted(answer: ChargingAnswer) -> ChargingGrant {
    match answer {
        ChargingAnswer::Granted(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

fn report(sequence: u32, downlink: u64, reference: &str) -> ChargingRequest {
    let trigger = ChargingTrigger::QuotaThreshold;
    let used = UsedUnits { uplink: 0, downlink, number: sequence, ..used(trigger) };
    request(sequence, ChargingOperation::Update { reference: reference.into(), used, last: false })
}

fn release(sequence: u32, downlink: u64, reference: &str) -> ChargingRequest {
    let used = UsedUnits { uplink: 0, downlink, number: sequence, ..used(ChargingTrigger::Final) };
    let reference = reference.into();
    request(sequence, ChargingOperation::Release { reference, used, deletion: None })
}

#[test] // TS 32.255 §5.2.2.2, without HTTP and without `sbi.address`
fn the_smf_of_this_core_is_charged_by_the_embedded_function() {
    let mut core = core("  chf: embedded\n", |_| {}).with_credit(2_500);
    let first = granted(core.charge(create()));
    let quota = first.quota.unwrap();
    assert_eq!((quota.total, quota.volume_threshold, quota.last), (Some(1_000), Some(200), None));
    assert_eq!(quota.validity_s, Some(3_600));
    assert_eq!(granted(core.charge(create())), first, "a takeover asks again");
    let update = report(1, 800, &first.reference);
    let second = granted(core.charge(update.clone()));
    core.restart();
    assert_eq!(granted(core.charge(update)), second, "a restart between request and answer");
    assert_eq!((core.account().used_octets, core.account().reserved_octets), (800, 1_000));
    let last = granted(core.charge(report(2, 1_000, &first.reference))).quota.unwrap();
    assert_eq!((last.total, last.last), (Some(700), Some(FinalUnitAction::Terminate)));
    let denied = core.charge(report(3, 700, &first.reference));
    assert_eq!(denied, ChargingAnswer::Denied(ChargingDenial::QuotaLimitReached));
    granted(core.charge(release(4, 33, &first.reference)));
    let account = core.account();
    assert_eq!((account.used_octets, account.overdraft_octets, account.reserved_octets), (2_533, 33, 0));
    let records = core.accounts().records(None, 0, 10).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].dnn.as_deref(), records[0].total().total_octets), (Some("internet"), 2_533));
    let status = core.console.components(|c| c.get("chf").map(|chf| chf.condition));
    assert_eq!(status, Some(Condition::Up));
    let samples = core.functions.samples();
    let answered = samples.iter().find(|sample| sample.label.as_deref() == Some("answered"));
    assert_eq!(answered.map(|sample| sample.value), Some(4), "since the restart");
}

#[test]
fn the_embedded_function_refuses_an_unknown_subscriber_and_releases_a_session_whose_answer_was_lost() {
    let mut core = core("  chf: embedded\n", |_| {});
    assert_eq!(core.charge(create()), ChargingAnswer::Denied(ChargingDenial::UserUnknown));
    granted(core.charge(release(1, 0, "")));
    let mut core = core.with_credit(5_000);
    granted(core.charge(create()));
    // The answer to Create was lost.
    granted(core.charge(release(1, 7, "")));
    assert_eq!((core.account().used_octets, core.account().reserved_octets), (7, 0));
}

#[test] // TS 32.290 §5.3.2.5
fn orders_of_the_embedded_function_reach_the_session() {
    let mut core = core("  chf: embedded\n", |_| {}).with_credit(1_000);
    granted(core.charge(create()));
    let notified = |core: &mut ChargingCore| match core.next() {
        SbiInput::ChargingNotified { supi: of, psi, abort } => {
            assert_eq!((of, psi.value()), (supi(), 5));
            abort
        }
        _ => panic!("it is another input"),
    };
    core.accounts().credit(clock::now(), supi(), 500, None).unwrap().unwrap();
    assert!(!notified(&mut core), "the last quota was granted, and there is more now");
    core.accounts().remove_account(supi()).unwrap();
    assert!(notified(&mut core));
}

#[test]
fn a_file_that_fails_is_a_fault_of_the_chf() {
    let mut core = core("  chf: embedded\n", |_| {}).with_credit(1_000);
    // Another program has taken the table away.
    let damaged = core.config.charging_file();
    for suffix in ["", "-wal", "-shm"] {
        let path = damaged.with_file_name(format!("charging.db{suffix}"));
        let len = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        let _ = std::fs::write(path, vec![0xff; len as usize]);
    }
    let answer = core.charge(create());
    assert!(matches!(answer, ChargingAnswer::Failed(_)), "{answer:?}");
    let status = core.console.components(|c| c.get("chf").map(|chf| chf.condition));
    assert_eq!(status, Some(Condition::Limited));
}

/// A core that offers its CHF, and the root at which it does.
fn offering(lines: &str, change: impl FnOnce(&mut Config)) -> (ChargingCore, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let sbi = format!("  address: 127.0.0.1:{port}\n  offer: [chf]\n{lines}");
    (core(&sbi, change), format!("http://127.0.0.1:{port}"))
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

async fn post(uri: &str, body: impl Into<Vec<u8>>) -> SbiResponse {
    send(Method::POST, uri, body).await
}

async fn send(method: Method, uri: &str, body: impl Into<Vec<u8>>) -> SbiResponse {
    let client = SbiClient::new(ClientSettings::new("SMF"));
    let request = SbiRequest::new(method, uri.parse().unwrap(), WITHIN).body(JSON, body.into().into());
    client.send(request).await.unwrap()
}

fn cause(response: &SbiResponse) -> (u16, String) {
    let body: Json = serde_json::from_slice(&response.body).unwrap_or_default();
    (response.status.as_u16(), body["cause"].as_str().unwrap_or_default().to_owned())
}

/// A request of another vendor's SMF.
fn data(sequence: u32, usage: Json) -> Json {
    json!({
        "subscriberIdentifier": "imsi-999700000000001",
        "chargingId": 9,
        "nfConsumerIdentification": {
            "nFName": "SMF", // as free5GC's
            "nodeFunctionality": "SMF",
        },
        "invocationTimeStamp": "2026-11-29T12:00:00Z",
        "invocationSequenceNumber": sequence,
        "multipleUnitUsage": [usage],
        "pDUSessionChargingInformation": {
            "pduSessionInformation": {
                "networkSlicingInfo": { "sNSSAI": { "sst": 1, "sd": "00000a" } },
                "pduSessionID": 5,
                "dnnId": "ims",
            },
        },
    })
}

fn octets(request: &Json) -> Vec<u8> {
    serde_json::to_vec(request).unwrap()
}

#[test] // TS 32.290 §5.3.2: the consumer of this core at the producer of this core
fn the_consumer_of_this_core_is_charged_by_the_producer_of_this_core() {
    let (core, root) = offering("", |_| {});
    let core = core.with_credit(2_500);
    let charging = charging_at(ApiRoot::read(&root).unwrap(), WITHIN);
    run(async {
        // The consumer of the tests is at 192.0.2.1, where no order has to arrive.
        let first = granted(charging.answer(&create()).await);
        let quota = first.quota.unwrap();
        assert_eq!((quota.total, quota.volume_threshold, quota.last), (Some(1_000), Some(200), None));
        let quota = granted(charging.answer(&report(1, 900, &first.reference)).await).quota.unwrap();
        assert_eq!(quota.total, Some(1_000));
        let quota = granted(charging.answer(&report(2, 1_000, &first.reference)).await).quota.unwrap();
        assert_eq!((quota.total, quota.last), (Some(600), Some(FinalUnitAction::Terminate)));
        let denied = charging.answer(&report(3, 600, &first.reference)).await;
        assert_eq!(denied, ChargingAnswer::Denied(ChargingDenial::QuotaLimitReached));
        granted(charging.answer(&release(4, 1, &first.reference)).await);
        let refused = ChargingRequest { charging_id: 78, ..create() };
        let refused = charging.answer(&refused).await;
        assert_eq!(refused, ChargingAnswer::Denied(ChargingDenial::QuotaLimitReached));
    });
    let account = core.account();
    assert_eq!((account.used_octets, account.overdraft_octets), (2_501, 1));
}

#[test] // TS 32.291 §6.1.3: statuses, Location, members
fn another_vendors_smf_gets_what_the_specification_says() {
    let (core, root) = offering("", |_| {});
    let core = core.with_credit(5_000);
    let collection = format!("{root}/nchf-convergedcharging/v3/chargingdata");
    run(async {
        let upf = "5e7a0f4b-5a9e-4c5c-9f10-d50a2c2bd4a1";
        let asking = json!({ "ratingGroup": 1, "requestedUnit": { "totalVolume": 600 }, "uPFID": upf });
        let created = post(&collection, octets(&data(0, asking.clone()))).await;
        assert_eq!(created.status, StatusCode::CREATED);
        let location = created.location().unwrap().to_owned();
        assert!(location.starts_with(&format!("{collection}/")), "{location}");
        let body: Json = serde_json::from_slice(&created.body).unwrap();
        let unit = &body["multipleUnitInformation"][0];
        assert_eq!(
            (&unit["resultCode"], &unit["ratingGroup"], &unit["grantedUnit"]["totalVolume"]),
            (&json!("SUCCESS"), &json!(1), &json!(600))
        );
        assert_eq!((&unit["validityTime"], &unit["volumeQuotaThreshold"]), (&json!(3_600), &json!(120)));
        // free5GC's SMF finds the URR by the one, and reports at the others alone.
        let triggers: Vec<&Json> =
            unit["triggers"].as_array().unwrap().iter().map(|trigger| &trigger["triggerType"]).collect();
        assert_eq!(unit["uPFID"], json!(upf));
        assert_eq!(triggers, [&json!("QUOTA_EXHAUSTED"), &json!("VALIDITY_TIME"), &json!("QUOTA_THRESHOLD")]);
        assert_eq!(body["invocationSequenceNumber"], json!(0));
        let again = post(&collection, octets(&data(0, asking))).await;
        assert_eq!(again.location(), Some(&*location), "the same request again");
        let reporting = |number: u32, octets: u64| {
            json!({
                "ratingGroup": 1,
                "requestedUnit": {},
                "usedUnitContainer": [{ "localSequenceNumber": number, "uplinkVolume": 1, "downlinkVolume": octets }],
            })
        };
        let updated = post(&format!("{location}/update"), octets(&data(1, reporting(1, 99)))).await;
        assert_eq!(updated.status, StatusCode::OK);
        let body: Json = serde_json::from_slice(&updated.body).unwrap();
        let unit = &body["multipleUnitInformation"][0];
        assert_eq!(unit["grantedUnit"]["totalVolume"], json!(4_900), "the rest, which is the last");
        assert_eq!(unit["finalUnitIndication"]["finalUnitAction"], json!("TERMINATE"));
        assert_eq!(unit["volumeQuotaThreshold"], Json::Null);
        let denied = post(&format!("{location}/update"), octets(&data(2, reporting(2, 4_899)))).await;
        let body: Json = serde_json::from_slice(&denied.body).unwrap();
        let unit = &body["multipleUnitInformation"][0];
        assert_eq!((&unit["resultCode"], &unit["grantedUnit"]), (&json!("QUOTA_LIMIT_REACHED"), &Json::Null));
        // free5GC's SMF stops the traffic at this alone.
        let triggers = unit["triggers"].as_array().unwrap();
        assert_eq!((triggers.len(), &triggers[0]["triggerType"]), (1, &json!("QUOTA_EXHAUSTED")));
        let released = post(&format!("{location}/release"), octets(&data(3, reporting(3, 9)))).await;
        assert_eq!((released.status, released.body.len()), (StatusCode::NO_CONTENT, 0));
        let late = post(&format!("{location}/update"), octets(&data(4, reporting(4, 9)))).await;
        assert_eq!(cause(&late), (404, "RESOURCE_CONTEXT_NOT_FOUND".into()));
    });
    let record = &core.accounts().records(None, 0, 10).unwrap()[0];
    assert_eq!(record.consumer.as_deref(), Some("SMF"));
    assert_eq!((record.dnn.as_deref(), record.pdu_session_id), (Some("ims"), Some(5)));
    assert_eq!((record.s_nssai.as_deref(), record.total().total_octets), (Some("1-00000a"), 5_010));
}

#[test] // TS 29.500 §5.2.7.2, TS 32.291 §6.1.7
fn a_wrong_request_is_answered_with_its_cause() {
    let (core, root) = offering("", |config| config.chf.policy.sessions_max = 1);
    let core = core.with_credit(5_000);
    let collection = format!("{root}/nchf-convergedcharging/v3/chargingdata");
    let asking = json!({ "ratingGroup": 1, "requestedUnit": {} });
    let with = |key: &str, value: Json| {
        let mut request = data(0, asking.clone());
        request[key] = value;
        octets(&request)
    };
    let using = |sequence: u32, volume: Json| {
        let used = json!([{ "localSequenceNumber": 8, "totalVolume": volume }]);
        octets(&data(sequence, json!({ "ratingGroup": 1, "usedUnitContainer": used })))
    };
    run(async {
        for (body, expected) in [
            (b"{".to_vec(), (400, "INVALID_MSG_FORMAT")),
            (b"{}".to_vec(), (400, "MANDATORY_IE_MISSING")),
            (with("invocationSequenceNumber", json!(-1)), (400, "MANDATORY_IE_INCORRECT")),
            (with("subscriberIdentifier", Json::Null), (400, "MANDATORY_IE_MISSING")),
            (with("subscriberIdentifier", json!("imsi-999700000000002")), (404, "USER_UNKNOWN")),
            (with("subscriberIdentifier", json!("nai-a@b.example")), (404, "USER_UNKNOWN")),
            (with("oneTimeEvent", json!(true)), (403, "CHARGING_NOT_APPLICABLE")),
            (with("notifyUri", json!(format!("{root}/callbacks/chf"))), (400, "MANDATORY_IE_INCORRECT")),
            (with("notifyUri", json!("http://169.254.169.254/")), (400, "MANDATORY_IE_INCORRECT")),
            (using(0, json!(1_u64 << 63)), (400, "OPTIONAL_IE_INCORRECT")),
            (using(0, json!(18_446_744_073_709_551_616.0)), (400, "OPTIONAL_IE_INCORRECT")),
        ] {
            let what = String::from_utf8_lossy(&body).into_owned();
            let (status, cause) = cause(&post(&collection, body).await);
            assert_eq!((status, &*cause), expected, "{what}");
        }
        assert_eq!(post(&collection, vec![b' '; 16 << 20]).await.status, StatusCode::PAYLOAD_TOO_LARGE);
        let created = post(&collection, octets(&data(7, asking.clone()))).await;
        let location = created.location().unwrap().to_owned();
        let (update, another) =
            (format!("{location}/update"), format!("{collection}/{}/update", "0".repeat(32)));
        let beyond = with("chargingId", json!(10));
        for (uri, body, expected) in [
            (&collection, beyond, (500, "INSUFFICIENT_RESOURCES")),
            (&another, octets(&data(8, asking.clone())), (404, "RESOURCE_CONTEXT_NOT_FOUND")),
            (&update, octets(&data(6, asking.clone())), (400, "MANDATORY_IE_INCORRECT")),
            (&update, using(8, json!(1_u64 << 63)), (400, "OPTIONAL_IE_INCORRECT")),
            (
                &update,
                with("subscriberIdentifier", json!("imsi-999700000000002")),
                (404, "RESOURCE_CONTEXT_NOT_FOUND"),
            ),
            (&format!("{location}/delete"), vec![], (404, "RESOURCE_URI_STRUCTURE_NOT_FOUND")),
            (
                &format!("{root}/nchf-convergedcharging/v2/chargingdata"),
                vec![],
                (404, "RESOURCE_URI_STRUCTURE_NOT_FOUND"),
            ),
        ] {
            let (status, cause) = cause(&post(uri, body).await);
            assert_eq!((status, &*cause), expected, "{uri}");
        }
        let read = send(Method::GET, &location, vec![]).await;
        assert_eq!(cause(&read).0, 404);
    });
    assert_eq!(core.account().used_octets, 0);
    assert_eq!(core.accounts().totals().unwrap(), (1, 1));
}

/// A server of another function, and what it got.
fn listening() -> (SbiServer, Arc<Mutex<Vec<ReceivedRequest>>>) {
    let received: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
    let into = received.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = SbiServer::start(listener, ServerSettings::default(), move |request: ReceivedRequest| {
        into.lock().unwrap().push(request);
        async { SbiResponse::no_content() }
    });
    (server.unwrap(), received)
}

#[test] // TS 32.290 §5.3.2.5
fn another_vendors_smf_is_notified() {
    let (core, root) = offering("", |_| {});
    let core = core.with_credit(1_000);
    run(async {
        let (smf, received) = listening();
        let mut request = data(0, json!({ "ratingGroup": 1, "requestedUnit": {} }));
        request["notifyUri"] = json!(format!("http://{}/notify/5", smf.address()));
        let collection = format!("{root}/nchf-convergedcharging/v3/chargingdata");
        assert_eq!(post(&collection, octets(&request)).await.status, StatusCode::CREATED);
        core.accounts().put_account(supi(), AccountKind::Prepaid, AccountStatus::Barred).unwrap();
        let orders = || received.lock().unwrap().len();
        let until = async |count: usize| {
            let came = async {
                while orders() < count {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(WITHIN, came).await.unwrap();
        };
        until(1).await;
        core.accounts().remove_account(supi()).unwrap();
        until(2).await;
        let received = received.lock().unwrap();
        for (order, expected) in received.iter().zip(["REAUTHORIZATION", "ABORT_CHARGING"]) {
            assert_eq!((order.uri.path(), &order.method), ("/notify/5", &Method::POST));
            let body: Json = serde_json::from_slice(&order.body).unwrap();
            assert_eq!(body["notificationType"], json!(expected));
        }
    });
}

#[test] // TS 29.510 §5.2.2.2
fn the_chf_registers_at_the_nrf() {
    let profiles: Arc<Mutex<Vec<Json>>> = Arc::default();
    let into = profiles.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entered = runtime.enter();
    let _nrf = SbiServer::start(listener, ServerSettings::default(), move |request: ReceivedRequest| {
        let body: Json = serde_json::from_slice(&request.body).unwrap_or_default();
        into.lock().unwrap().push(body.clone());
        async move { SbiResponse::created("/nnrf-nfm/v1/nf-instances/x", &body) }
    })
    .unwrap();
    drop(entered);
    let (_core, _) = offering(&format!("  nrf: http://{address}\n"), |_| {});
    let profile = wait(|| {
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
        let profiles = profiles.lock().unwrap();
        profiles.iter().find(|profile| profile["nfType"] == json!("CHF")).cloned()
    });
    let service = match &profile["nfServices"] {
        Json::Array(services) => services[0].clone(),
        _ => profile["nfServiceList"].as_object().unwrap().values().next().unwrap().clone(),
    };
    assert_eq!(service["serviceName"], json!("nchf-convergedcharging"));
    assert_eq!(service["versions"][0]["apiVersionInUri"], json!("v3"));
    assert_eq!(profile["nfStatus"], json!("REGISTERED"));
}
