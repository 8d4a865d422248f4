//! Log lines and events are sentences with fields: no debug form of a type stands in them.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use whimbrel_control::amf::WarningOutcome;
use whimbrel_control::event::ResetBy;
use whimbrel_control::{FailedFlow, SessionOutcome};
use whimbrel_ids::{NrCellId, PduSessionId, PlmnId, Qfi, SNssai, Supi, Tac, Tai};
use whimbrel_ngap::ie::{NgranCgi, NrCgi};

use super::*;

/// The log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The lines that `act` logs from `info` on, and the texts of the events that it pushes.
fn texts(act: impl FnOnce(&mut Observer)) -> Vec<String> {
    let console = Console::new(Instant::ZERO).unwrap();
    let config = Arc::new(crate::config::default().control());
    let mut observer = Observer::new(console.clone(), config, true);
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_ansi(false)
        .with_target(false)
        .with_writer(lines.clone())
        .finish();
    crate::log_limiter::with_subscriber(subscriber, || act(&mut observer));
    let mut all: Vec<String> =
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect();
    all.extend(console.events(|e| e.since(0, usize::MAX)).into_iter().map(|e| e.text));
    all
}

/// Whether a text shows how a type of ours is built.
fn shows_a_type(text: &str) -> bool {
    ["{", "}", "Some(", "None", "Ok(", "Err(", "::", "event="].iter().any(|part| text.contains(part))
}

const ON: AssociationId = AssociationId(1);

fn gnb() -> GlobalGnbId {
    GlobalGnbId::new(PlmnId::TEST, 1, 28).unwrap()
}

fn tai() -> Tai {
    Tai { plmn: PlmnId::TEST, tac: Tac::new(1).unwrap() }
}

fn cell() -> NgranCgi {
    NgranCgi::NrCgi(NrCgi::new(PlmnId::TEST, NrCellId::new(0x10).unwrap()))
}

/// Every kind of event of a gNB; a new kind has to be added here, because `kind_of_ran` names it.
fn ran_events() -> Vec<RanEvent> {
    let association = ON;
    let (what, cause) = ("it cannot be read".to_string(), "misc unspecified".to_string());
    let setup = |why| RanEvent::SetupRefused { association, gnb: Some(gnb()), why };
    let texts = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let warned =
        |outcome| RanEvent::Warned { association, message_identifier: 4370, serial_number: 1, outcome };
    vec![
        RanEvent::Up { association, gnb: gnb(), name: Some("cell".into()) },
        RanEvent::Up { association, gnb: gnb(), name: None },
        setup(SetupRefusal::Plmn { offered: texts(&["001/01"]), served: "999/70".into() }),
        setup(SetupRefusal::Tac { offered: vec![7], served: vec![1] }),
        setup(SetupRefusal::Slice { offered: texts(&["1"]), served: texts(&["2"]) }),
        setup(SetupRefusal::NotListed),
        setup(SetupRefusal::OutsideNetworks),
        setup(SetupRefusal::FurtherElsewhere { holder: AssociationId(2) }),
        setup(SetupRefusal::Disconnected),
        setup(SetupRefusal::Limit(5)),
        setup(SetupRefusal::NodeType),
        RanEvent::Reset { association, ues: 3, by: ResetBy::Gnb },
        RanEvent::Reset { association, ues: 3, by: ResetBy::Operator },
        RanEvent::ResetAcknowledged { association },
        RanEvent::ResetUnacknowledged { association },
        RanEvent::Refused { association, what },
        RanEvent::ErrorIndication { association, cause: cause.clone() },
        RanEvent::Reconfigured { association },
        RanEvent::SameIdentity { association, former: AssociationId(2), gnb: gnb() },
        RanEvent::IdentityContested { gnb: gnb(), holder: association, other: AssociationId(2) },
        RanEvent::IdentityClaimed { association, holder: AssociationId(2), gnb: gnb() },
        RanEvent::HolderSilent { association, holder: AssociationId(2), gnb: gnb() },
        RanEvent::Disconnected { association, gnb: gnb() },
        RanEvent::NeverSetUp { association },
        RanEvent::UpdateTaken { association },
        RanEvent::UpdateRefused { association, cause, again: true },
        RanEvent::Overload { on: true },
        RanEvent::Overload { on: false },
        RanEvent::Transferred { from: association, to: AssociationId(2) },
        RanEvent::Unserved { association, what: "HANDOVER NOTIFY" },
        warned(WarningOutcome::Broadcasting(Some(2))),
        warned(WarningOutcome::Broadcasting(None)),
        warned(WarningOutcome::Nowhere),
        warned(WarningOutcome::Cancelled(3)),
        RanEvent::WarningUnanswered { gnb: gnb(), message_identifier: 4370, serial_number: 1 },
        RanEvent::WarningsLost { association, cells: 2, restarted: true },
        RanEvent::WarningsLost { association, cells: 2, restarted: false },
        RanEvent::Limited { association: Some(association), limit: "error_indications" },
        RanEvent::Limited { association: None, limit: "ues" },
        RanEvent::Down { association, gnb: Some(gnb()) },
        RanEvent::Down { association, gnb: None },
    ]
}

/// Every kind of event of a UE.
fn ue_events() -> Vec<Event> {
    let subject = UeIdentities { supi: "imsi-999700000000001".parse::<Supi>().ok(), pei: None };
    let psi = PduSessionId::new(1).unwrap();
    let dnn = || "internet".parse().unwrap();
    let refused = |refusal| Event::Refused {
        procedure: Procedure::Registration,
        subject,
        ran_ue_ngap_id: Some(RanUeNgapId(7)),
        refusal,
    };
    let message = "PDU SESSION RESOURCE MODIFY RESPONSE";
    let by_gnb = || Refusal::RefusedByGnb { message, cause: "misc unspecified (5)".into() };
    let flow = FailedFlow {
        qfi: Qfi::new(2).unwrap(),
        name: "voice".parse().ok(),
        cause: "misc unspecified (5)".into(),
    };
    let operation = |outcome| Event::SessionOperation {
        subject,
        psi,
        procedure: Procedure::PduSessionModificationByNetwork,
        order: None,
        outcome,
    };
    let sign = |sign| Event::Sign { subject, sign, tai: Some(tai()), seen: None };
    let why = [
        DeregistrationReason::Superseded,
        DeregistrationReason::Implicitly,
        DeregistrationReason::ByOperator,
        DeregistrationReason::BySubscription,
        DeregistrationReason::Fault,
        DeregistrationReason::StateLost,
        DeregistrationReason::GrantExpired,
        DeregistrationReason::CreditUsedUp,
    ];
    let mut all = vec![
        Event::Completed { procedure: Procedure::Registration, subject, took: Duration::ZERO },
        refused(by_gnb()),
        refused(Refusal::RadioFailure("no answer to INITIAL CONTEXT SETUP REQUEST")),
        refused(Refusal::Upf(Some(64))),
        refused(Refusal::SliceNotAllowed(SNssai::sst(1))),
        refused(Refusal::TaiNotServed(tai())),
        refused(Refusal::OutOfLadn(dnn(), tai())),
        refused(Refusal::NoCommonAlgorithm { ciphering: 0x80, integrity: 0 }),
        Event::Session { subject, psi, dnn: dnn(), change: SessionChange::Established },
        Event::Reachable { subject },
        Event::SecurityCapabilitiesDiffer { subject },
        Event::UpSecurityPolicyDiffers { subject, psi },
        Event::Located { subject, tai: Some(tai()), cell: Some(cell()) },
        Event::Located { subject, tai: None, cell: None },
        Event::Presence { subject, area: tai(), inside: Some(true) },
        Event::Presence { subject, area: tai(), inside: None },
        Event::NotLocated { subject, why: "misc unspecified".into() },
        Event::CellTraffic { subject, trace: [1; 8], cell: cell() },
        Event::Granted { subject, broker: "b.example".into(), grant: vec![6, 1] },
        Event::UsageReported { subject, sealed: vec![9, 1] },
        Event::VeilGranted {
            subject,
            broker: "b.example".into(),
            group: [1; 32],
            session: [2; 32],
            presence: [3; 32],
        },
        Event::VeilFailed { sealed: vec![0x8e, 1] },
        Event::Dropped { subject, why: MessageDropReason::Integrity },
        Event::Repeated("REGISTRATION ACCEPT"),
        sign(Sign::Reported),
        sign(Sign::Required("radioNetwork user-inactivity".into(), tai())),
        sign(Sign::Arrived),
        sign(Sign::Connected),
        sign(Sign::Prepared),
        operation(SessionOutcome::Completed { failed_flows: vec![flow], not_at_gnb: None, more: false }),
        operation(SessionOutcome::Refused { refusal: by_gnb(), more: false }),
    ];
    all.extend(why.map(|why| Event::Deregistered { subject, why }));
    all
}

/// The place of a kind of event, so that the lists above are complete.
fn kind_of_ran(event: &RanEvent) -> usize {
    match event {
        RanEvent::Up { .. } => 0,
        RanEvent::SetupRefused { .. } => 1,
        RanEvent::Down { .. } => 2,
        RanEvent::Reset { .. } => 3,
        RanEvent::ResetUnacknowledged { .. } => 4,
        RanEvent::Refused { .. } => 5,
        RanEvent::ErrorIndication { .. } => 6,
        RanEvent::Reconfigured { .. } => 7,
        RanEvent::SameIdentity { .. } => 8,
        RanEvent::NeverSetUp { .. } => 9,
        RanEvent::UpdateTaken { .. } => 10,
        RanEvent::UpdateRefused { .. } => 11,
        RanEvent::ResetAcknowledged { .. } => 12,
        RanEvent::Overload { .. } => 13,
        RanEvent::Transferred { .. } => 14,
        RanEvent::Unserved { .. } => 15,
        RanEvent::Warned { .. } => 16,
        RanEvent::WarningUnanswered { .. } => 17,
        RanEvent::WarningsLost { .. } => 18,
        RanEvent::Limited { .. } => 19,
        RanEvent::IdentityContested { .. } => 20,
        RanEvent::IdentityClaimed { .. } => 21,
        RanEvent::HolderSilent { .. } => 22,
        RanEvent::Disconnected { .. } => 23,
    }
}

fn kind_of_ue(event: &Event) -> usize {
    match event {
        Event::Completed { .. } => 0,
        Event::Refused { .. } => 1,
        Event::Session { .. } => 2,
        Event::Deregistered { .. } => 3,
        Event::Reachable { .. } => 4,
        Event::SecurityCapabilitiesDiffer { .. } => 5,
        Event::UpSecurityPolicyDiffers { .. } => 6,
        Event::Located { .. } => 7,
        Event::Presence { .. } => 8,
        Event::NotLocated { .. } => 9,
        Event::CellTraffic { .. } => 10,
        Event::Dropped { .. } => 11,
        Event::Repeated(_) => 12,
        Event::Sign { .. } => 13,
        Event::SessionOperation { .. } => 14,
        Event::Granted { .. } => 15,
        Event::UsageReported { .. } => 16,
        Event::VeilGranted { .. } => 17,
        Event::VeilFailed { .. } => 18,
    }
}

#[test]
fn no_log_line_and_no_event_shows_the_debug_form_of_a_type() {
    let kinds: BTreeSet<usize> = ran_events().iter().map(kind_of_ran).collect();
    assert_eq!(kinds, (0..24).collect());
    let kinds: BTreeSet<usize> = ue_events().iter().map(kind_of_ue).collect();
    assert_eq!(kinds, (0..19).collect());
    let all = texts(|observer| {
        observer.association_up(ON, "192.0.2.1:38412");
        for event in ue_events() {
            let ue = UeId { slot: 1, generation: 1 };
            observer.ue(Instant::ZERO, &UeEvent { ue, on: Some(ON), event });
        }
        for event in ran_events() {
            observer.ran(Instant::ZERO, &event);
        }
    });
    assert!(all.len() > 40, "{all:#?}");
    all.iter().for_each(|text| assert!(!shows_a_type(text), "{text}"));
}

#[test] // TS 38.413 §8.7.4
fn a_reset_by_the_operator_is_not_reported_as_the_gnbs() {
    let of = |by| texts(|o| o.ran(Instant::ZERO, &RanEvent::Reset { association: ON, ues: 3, by })).concat();
    let (by_operator, by_gnb) = (of(ResetBy::Operator), of(ResetBy::Gnb));
    assert!(by_operator.contains("the operator reset the connections of a gNB"), "{by_operator}");
    assert!(by_gnb.contains("a gNB reset its connections") && !by_gnb.contains("operator"), "{by_gnb}");
}

/// The Rust sources under a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            found.push(entry);
        }
    }
}

/// What stands between the parentheses of a macro's call that begins here.
fn arguments(text: &str) -> &str {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return &text[..i],
            ')' => depth -= 1,
            _ => {}
        }
    }
    text
}

#[test]
fn no_log_macro_from_info_on_takes_a_debug_form() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for folder in ["node/src", "api/src", "programs/whimbrel/src", "fabric", "user/io/src", "store/src"] {
        sources(&root.join(folder), &mut files);
    }
    let mut calls = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for level in ["info!", "warn!", "error!"] {
            for (at, _) in text.match_indices(&format!("{level}(")) {
                calls += 1;
                let call = arguments(&text[at + level.len()..]);
                let debug = [", ?", "(?", "= ?", "\n?", " ?", ":?}"].iter().any(|form| call.contains(form));
                assert!(!debug, "{}: {level}{call})", file.display());
            }
        }
    }
    assert!(calls > 100, "the macros are found: {calls}");
}
