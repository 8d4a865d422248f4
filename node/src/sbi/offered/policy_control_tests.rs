//! The PCF of this core, with this core's SMF as its consumer over HTTP/2 and with requests that no SMF should send.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value as Json, json};
use whimbrel_control::sm_policy::{
    PolicyAnswer, PolicyDecision, PolicyDenial, PolicyOperation, PolicyReport, PolicyRequest, PolicySession,
    SessionRule,
};
use whimbrel_control::udm::{
    Ambr, Arp, MobilityRestrictions, NfType, Priority, ServiceFault, SessionTypes, SubscribedDnn,
    SubscribedSlice, Subscription,
};
use whimbrel_ids::{FiveQi, PduSessionId, SNssai, Seid, Supi};
use whimbrel_nas::ie::{PduSessionType, SscMode};
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiServer, ServerSettings};
use whimbrel_sbi_types::from_slice;
use whimbrel_sbi_types::npcf_sm::SmPolicyNotification;
use whimbrel_security::{K, Opc};
use whimbrel_store::{OperatorCode, SubscriberRecord};

use super::super::policy::{PolicyControl, read_decision};
use super::super::scripted::{consumer, peer_at, runtime};
use super::{CallbackPolicy, OfferedServices, ServiceAuthorization};
use crate::config::sbi::ApiRoot;
use crate::config::value::Value;
use crate::config::{self, Config};
use crate::observation::Console;

const NETWORKS: &str = "data_networks:\n  - dnn: internet\n    flows:\n      - name: voice\n        five_qi: 1\n        guaranteed_up: 64 Kbps\n        guaranteed_down: 96 Kbps\n        filters: [\"downlink permit out 17 from any 5004 to assigned\"]\n        precedence: 12\n";

/// The PCF of a core with one subscriber, at a port of its own.
struct ServedPcf {
    services: Arc<OfferedServices>,
    store: whimbrel_store::Store,
    server: SbiServer,
    _folder: tempfile::TempDir,
}

fn supi() -> Supi {
    "imsi-999700000000001".parse().unwrap()
}

/// One data network, with the AMBR of the store.
fn form(stored: &whimbrel_store::Subscription) -> Subscription {
    let stored = stored.slices[0].dnns[0].session_ambr;
    let session_ambr = Ambr { ul_kbps: stored.uplink.kbps(), dl_kbps: stored.downlink.kbps() };
    let dnn = SubscribedDnn {
        dnn: "internet".parse().unwrap(),
        default: true,
        session_types: SessionTypes::IP,
        ssc_mode: SscMode::One,
        five_qi: FiveQi(9),
        arp: Arp { priority: 8, may_preempt: false, preemptable: true },
        session_ambr,
        static_ipv4: None,
        static_ipv6: None,
        flows: Vec::new(),
        framed_routes: Vec::new(),
        up_security: None,
    };
    Subscription {
        ue_ambr: session_ambr,
        slices: vec![SubscribedSlice { s_nssai: SNssai::sst(1), default: true, dnns: vec![dnn] }],
        rfsp: None,
        restrictions: MobilityRestrictions::default(),
        priority: Priority::default(),
    }
}

/// Within a runtime.
fn served_pcf() -> ServedPcf {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let text = format!(
        "store:\n  path: {at}/subscribers.db\n  key_file: {at}/store.key\nsbi:\n  address: 192.0.2.1:7777\n  offer: [pcf]\n{NETWORKS}"
    );
    let config: Config = config::parse(&text, Path::new("w.yaml")).unwrap_or_else(|e| panic!("{e}"));
    let sbi = config.sbi.as_ref().unwrap();
    let open = || crate::subscribers::open(&config.store).unwrap();
    let mut store = open();
    store.add(&SubscriberRecord::new(supi(), K::new([1; 16]), OperatorCode::Opc(Opc::new([2; 16])))).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let root = format!("http://{}", listener.local_addr().unwrap());
    let authorization = ServiceAuthorization::new(sbi, &consumer()).unwrap();
    let services = Arc::new(OfferedServices::new(
        sbi.offer.clone(),
        config.amf.plmn,
        root,
        (authorization, CallbackPolicy::new(vec![sbi.address])),
        (open(), form),
        (Console::new(crate::clock::now()).unwrap(), SbiClient::new(ClientSettings::new("PCF"))),
        config.control().smf.data_networks,
    ));
    let serves = services.clone();
    let server = SbiServer::start(listener, ServerSettings::default(), move |request| {
        let services = serves.clone();
        async move { services.serve(&request).await.unwrap() }
    });
    ServedPcf { services, store, server: server.unwrap(), _folder: folder }
}

impl ServedPcf {
    /// The SMF of this core, whose callbacks go to `root`.
    fn smf(&self, root: &str) -> PolicyControl {
        let at = ApiRoot::read(&format!("http://{}", self.server.address())).unwrap();
        let peer = peer_at(NfType::Pcf, at, Duration::from_secs(5));
        PolicyControl::new(peer, super::super::udm::Consumer { root: root.into(), ..consumer() })
    }

    async fn post(&self, path: &str, body: &Json) -> (u16, Json) {
        let uri = format!("http://{}/{path}", self.server.address()).parse().unwrap();
        let client = SbiClient::new(ClientSettings::new("SMF"));
        let response = client.send(SbiRequest::post(uri, body, Duration::from_secs(5))).await.unwrap();
        (response.status.as_u16(), serde_json::from_slice(&response.body).unwrap_or_default())
    }
}

fn request(dnn: &str, operation: Option<PolicyOperation>) -> PolicyRequest {
    let session = PolicySession {
        s_nssai: SNssai::sst(1),
        dnn: dnn.parse().unwrap(),
        session_type: PduSessionType::Ipv4,
        address: whimbrel_control::UeAddress::default(),
        subscribed: SessionRule::default(),
        tai: None,
    };
    let operation = operation.unwrap_or(PolicyOperation::Create(session.into()));
    PolicyRequest { supi: supi(), psi: PduSessionId::new(5).unwrap(), session: Seid(1), operation }
}

/// Rules with the guaranteed rates of their downlinks.
fn rules(decision: &PolicyDecision) -> Vec<(&str, Option<u64>)> {
    let rate =
        |id: &str| decision.qos.iter().find(|(name, _)| **name == *id)?.1?.gbr.map(|g| g.guaranteed.dl_kbps);
    decision.rules.iter().map(|(id, rule)| (&**id, rule.as_ref().and_then(|_| rate(id)))).collect()
}

#[test] // TS 29.512 §4.2.2 to §4.2.5
fn a_session_of_another_smf_has_the_flows_of_data_network_and_subscriber_until_it_ends() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let mut pcf = served_pcf();
    let notified: Arc<Mutex<Vec<PolicyDecision>>> = Arc::default();
    let kept = notified.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let callbacks = SbiServer::start(listener, ServerSettings::default(), move |request| {
        assert_eq!(request.uri.path(), "/callbacks/pcf/imsi-999700000000001/5/update");
        let notification: SmPolicyNotification = from_slice(&request.body).unwrap();
        let decision = read_decision(&notification.sm_policy_decision.unwrap(), |_| ()).unwrap();
        kept.lock().unwrap().push(decision);
        async { whimbrel_sbi::SbiResponse::no_content() }
    });
    let callbacks = callbacks.unwrap();
    let smf = pcf.smf(&format!("http://{}", callbacks.address()));
    runtime.block_on(async {
        let answer = smf.answer(&request("internet", None)).await;
        let PolicyAnswer::Decided(association) = answer else { panic!("{answer:?}") };
        let decision = &association.decision;
        assert_eq!(rules(decision), [("voice", Some(96))]);
        assert_eq!(decision.rules[0].1.as_ref().unwrap().precedence, Some(12));
        assert!(decision.session_rule.ambr.is_some() && decision.session_rule.default_qos.is_some());
        // The subscriber gets an AMBR, and the SMF hears of it; a change of something else is no news.
        for down in [7_000_000, 7_000_000] {
            pcf.store
                .edit(supi(), |record| {
                    let subscription = Arc::make_mut(&mut record.subscription);
                    subscription.slices[0].dnns[0].session_ambr.downlink =
                        whimbrel_store::BitRate::from_bps(down).unwrap();
                })
                .unwrap();
            pcf.services.changed(Some(&[supi()]));
        }
        for _ in 0..500 {
            if !notified.lock().unwrap().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let changes = notified.lock().unwrap().clone();
        let rates: Vec<_> = changes.iter().map(|c| c.session_rule.ambr.map(|ambr| ambr.dl_kbps)).collect();
        assert_eq!(rates, [Some(7_000)]);
        let reference = association.reference.clone();
        let update = PolicyOperation::Update { reference, report: Box::<PolicyReport>::default() };
        let answer = smf.answer(&request("internet", Some(update.clone()))).await;
        let PolicyAnswer::Decided(whole) = answer else { panic!("{answer:?}") };
        assert_eq!(rules(&whole.decision), [("voice", Some(96))]);
        let delete = PolicyOperation::Delete { reference: association.reference.clone() };
        smf.answer(&request("internet", Some(delete))).await;
        let answer = smf.answer(&request("internet", Some(update))).await;
        assert_eq!(answer, PolicyAnswer::Failed(ServiceFault::Status(404)));
        let answer = smf.answer(&request("elsewhere", None)).await;
        assert_eq!(answer, PolicyAnswer::Denied(PolicyDenial::ContextDenied));
    });
}

#[test]
fn requests_that_no_function_should_send_are_refused() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let pcf = served_pcf();
    let context = |changes: Json| {
        let mut context = json!({
            "supi": "imsi-999700000000001", "pduSessionId": 5, "pduSessionType": "IPV4", "dnn": "internet",
            "notificationUri": "http://127.0.0.1:9/x", "sliceInfo": { "sst": 1 },
        });
        let members = changes.as_object().unwrap().clone();
        context.as_object_mut().unwrap().extend(members);
        context
    };
    let sessions = "npcf-smpolicycontrol/v1/sm-policies";
    let ues = "npcf-am-policy-control/v1/policies";
    runtime.block_on(async {
        let unknown = json!({ "supi": "imsi-999700000000002" });
        let inward = json!({ "notificationUri": "http://192.0.2.1:7777/x" });
        let ue =
            |supi: &str| json!({ "supi": supi, "notificationUri": "http://127.0.0.1:9/x", "suppFeat": "" });
        let (_, decision) = pcf.post(sessions, &context(json!({ "suppFeat": "4000000" }))).await;
        assert_eq!(decision["suppFeat"], json!("0"));
        let (_, decision) = pcf.post(sessions, &context(json!({ "dnn": "internet" }))).await;
        assert_eq!(decision["suppFeat"], Json::Null);
        for (path, body, status, cause) in [
            (sessions, context(json!({})), 201, Json::Null),
            (sessions, context(unknown), 400, json!("USER_UNKNOWN")),
            (sessions, context(json!({ "sliceInfo": { "sst": 9 } })), 403, json!("POLICY_CONTEXT_DENIED")),
            (sessions, context(inward), 400, json!("MANDATORY_IE_INCORRECT")),
            (sessions, json!({}), 400, json!("MANDATORY_IE_MISSING")),
            (
                "npcf-smpolicycontrol/v1/sm-policies/imsi-999700000000001-6/update",
                json!({}),
                404,
                json!("POLICY_ASSOCIATION_NOT_FOUND"),
            ),
            (
                "npcf-smpolicycontrol/v1/sm-policies/x/delete",
                json!({}),
                404,
                json!("POLICY_ASSOCIATION_NOT_FOUND"),
            ),
            ("npcf-smpolicycontrol/v1/other", json!({}), 404, json!("RESOURCE_URI_STRUCTURE_NOT_FOUND")),
            (ues, ue("imsi-999700000000001"), 201, Json::Null),
            (ues, ue("imsi-999700000000002"), 400, json!("USER_UNKNOWN")),
        ] {
            let (answered, problem) = pcf.post(path, &body).await;
            assert_eq!((answered, &problem["cause"]), (status, &cause), "{path} {body} {problem}");
        }
    });
}
