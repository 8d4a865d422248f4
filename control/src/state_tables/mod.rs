//! Tables of the UE's state machines, each state against each input: docs/state-machines/amf-ue.md and smf-session.md.

use whimbrel_nas::{mm, sm};
use whimbrel_ngap::Message;

use crate::envelope::{Batch, Disposition, Effect};
use crate::event::Event;
use crate::services::nudm::UdmRequest;
use crate::ue_harness::{UeHarness, pdu_of};

mod amf_ue;
mod smf_session;

/// The names of what leaves in these batches.
fn sent(harness: &mut UeHarness, batches: &[Batch]) -> Vec<String> {
    let outputs = batches.iter().flat_map(|b| &b.outputs);
    let name = |effect: &Effect| match effect {
        Effect::N2 { octets, .. } => n2_name(harness, Message::decode(octets).unwrap()),
        Effect::N4 { octets, .. } | Effect::N4Answer { octets, .. } => n4_name(octets),
        Effect::Page { .. } => "PAGING".into(),
        Effect::Udm(request) => format!("UDM: {}", udm_name(request)),
        Effect::Charging(_) => "CHF: charging of a session".into(),
        Effect::Policy(_) => "PCF: policies of a session".into(),
        Effect::SmContext(_) => "SMF: SM context of a session".into(),
        Effect::PeerAmf { .. } => "N14 message".into(),
        Effect::Broker(_) => "question to the broker".into(),
        Effect::SmContextAnswered(..) => "answer to an AMF".into(),
        Effect::RemoteAmf(_) => "request to an AMF".into(),
    };
    outputs.map(|o| &o.effect).map(name).collect()
}

fn n2_name(harness: &mut UeHarness, message: Message) -> String {
    let name = capitals(message.name());
    let cause = match &message {
        Message::UeContextReleaseCommand(m) => Some(m.cause.in_words()),
        Message::ErrorIndication(m) => m.cause.as_ref().map(|c| c.in_words()),
        Message::HandoverPreparationFailure(m) => Some(m.cause.in_words()),
        _ => None,
    };
    let transports_only_nas = matches!(message, Message::DownlinkNasTransport(_));
    let nas = pdu_of(message).map(|pdu| nas_name(harness, pdu));
    match (nas, cause) {
        (Some(nas), _) if transports_only_nas => nas,
        (Some(nas), _) => format!("{name} ({nas})"),
        (None, Some(cause)) => format!("{name} ({})", cause.replace(" (", " #").replace(')', "")),
        (None, None) => name,
    }
}

fn nas_name(harness: &mut UeHarness, pdu: Vec<u8>) -> String {
    // SECURITY MODE COMMAND is not ciphered, and its keys are not the UE's yet.
    let under_new_keys = |pdu: &[u8]| mm::Message::decode(pdu.get(7..)?).ok();
    let message = harness.open(pdu.clone()).or_else(|| under_new_keys(&pdu));
    message.map_or("a NAS message".into(), |m| mm_name(&m))
}

fn mm_name(message: &mm::Message) -> String {
    let cause = match message {
        mm::Message::RegistrationReject(m) => Some(m.cause),
        mm::Message::ServiceReject(m) => Some(m.cause),
        mm::Message::MmStatus(m) => Some(m.cause),
        mm::Message::DlNasTransport(m) => {
            if let Ok(payload) = sm::Message::decode(&m.payload_container)
                && m.cause.is_none()
            {
                return sm_name(&payload.body);
            }
            m.cause
        }
        _ => None,
    };
    let cause = cause.map(|c| format!(" #{}", c.value())).unwrap_or_default();
    format!("{}{cause}", message.message_type())
}

fn sm_name(body: &sm::Body) -> String {
    let cause = match body {
        sm::Body::EstablishmentReject(m) => Some(m.cause),
        sm::Body::ModificationReject(m) => Some(m.cause),
        sm::Body::ReleaseReject(m) => Some(m.cause),
        sm::Body::ReleaseCommand(m) => Some(m.cause),
        sm::Body::SmStatus(m) => Some(m.cause),
        _ => None,
    };
    let cause = cause.map(|c| format!(" #{}", c.value())).unwrap_or_default();
    format!("{}{cause}", body.message_type())
}

fn n4_name(octets: &[u8]) -> String {
    let frame = whimbrel_pfcp::Frame::parse(octets).unwrap();
    let message = whimbrel_pfcp::Message::parse(&frame).unwrap();
    format!("PFCP {}", capitals(&variant(&message)))
}

fn udm_name(request: &UdmRequest) -> &'static str {
    match request {
        UdmRequest::GenerateAuthData { resynchronisation: None, .. } => "a vector",
        UdmRequest::GenerateAuthData { resynchronisation: Some(_), .. } => "a vector after resynchronisation",
        UdmRequest::Register(_) => "registration and subscription",
        UdmRequest::EnterSlices(_) => "entry into slices",
        UdmRequest::Subscription(_) => "subscription",
        UdmRequest::Deregister(_) => "deregistration",
        UdmRequest::ConfirmAuthentication { .. } => "ResultConfirmation",
        UdmRequest::RegisterSession { .. } => "UECM_Registration of the SMF",
        UdmRequest::DeregisterSession(..) => "UECM_Deregistration of the SMF",
        UdmRequest::RegisterGuest { .. } => "registration of a guest",
    }
}

/// The events of these batches, and messages that are for another UE.
fn reported(batches: &[Batch]) -> Vec<String> {
    let mut names = Vec::new();
    for batch in batches {
        names.extend(batch.events.iter().map(event_name));
        if matches!(batch.disposition, Disposition::OtherUe | Disposition::Elsewhere(_)) {
            names.push("for another UE".into());
        }
    }
    names
}

fn event_name(event: &Event) -> String {
    match event {
        Event::Completed { procedure, .. } => format!("{} completed", words(&variant(procedure))),
        Event::Refused { refusal, .. } => format!("refused: {}", words(&variant(refusal))),
        Event::Session { change, .. } => format!("session {}", words(&variant(change))),
        Event::Deregistered { why, .. } => format!("deregistered: {}", words(&variant(why))),
        Event::Dropped { why, .. } => format!("dropped: {}", words(&variant(why))),
        Event::Repeated(message) => format!("{} repeated", &**message),
        Event::SessionOperation { outcome, .. } => format!("operation: {}", words(&variant(outcome))),
        other => words(&variant(other)),
    }
}

/// The name of an enum's variant.
fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// `UeContextReleaseCommand` as "UE CONTEXT RELEASE COMMAND".
fn capitals(name: &str) -> String {
    words(name).to_ascii_uppercase()
}

/// `OutOfState` as "out of state".
fn words(name: &str) -> String {
    let spaced = name.chars().flat_map(|c| [c.is_ascii_uppercase().then_some(' '), Some(c)]);
    spaced.flatten().collect::<String>().trim().to_ascii_lowercase()
}
