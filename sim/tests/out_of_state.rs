//! In every state of a UE, any message of it or its gNB: no panic, no other UE is affected, and the UE can leave and
//! come back (TS 24.501 §7.4, TS 38.413 §10.4).

use crate::common::pdu::Pdu;
use crate::common::stage::*;
use crate::common::*;
use whimbrel_control::Command as CoreCommand;
use whimbrel_ids::{AmfUeNgapId, RanUeNgapId, Seid};
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ngap::msg::{PathSwitchRequest, UplinkNasTransport};
use whimbrel_ngap::{Message, Source};
use whimbrel_pfcp::ie::Cause as PfcpCause;
use whimbrel_pfcp::msg::{
    SessionDeletionRequest, SessionDeletionResponse, SessionEstablishmentResponse,
    SessionModificationResponse, SessionReportResponse,
};
use whimbrel_pfcp::{self as pfcp, Frame, Message as Pfcp};
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, Sim, UpfState};

/// What the UE is at when it is surprised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unknown,
    Authentication,
    SecurityMode,
    Accepted,
    Connected,
    Session,
    SessionAccept,
    SessionRelease,
    Idle,
    Paged,
    Releasing,
    Deregistering,
    /// It was rejected as unknown, and its connection stays for a moment (TS 24.501 §5.3.1.3).
    Rejected,
    /// It has deregistered, and its connection with the session's resources stays for a moment.
    Deregistered,
    /// A target is being asked (TS 23.502 §4.9.1.3.2).
    HandoverPreparation,
    /// The source got HANDOVER COMMAND (§4.9.1.3.3).
    HandoverExecution,
    /// A target has the UE, and its path waits for the UPF (§4.9.1.2.2).
    PathSwitch,
}

const STATES: [State; 17] = [
    State::Unknown,
    State::Authentication,
    State::SecurityMode,
    State::Accepted,
    State::Connected,
    State::Session,
    State::SessionAccept,
    State::SessionRelease,
    State::Idle,
    State::Paged,
    State::Releasing,
    State::Deregistering,
    State::Rejected,
    State::Deregistered,
    State::HandoverPreparation,
    State::HandoverExecution,
    State::PathSwitch,
];

/// A canary with a session on the second gNB, and a UE in that state on the first. The third is by hand: it is the target of
/// handovers.
fn in_state(state: State) -> Sim {
    let mut net = stage(Sim::builder(state as u64).build());
    let deaf = match state {
        State::Unknown => return net,
        State::Authentication => Some(MessageType::AuthenticationRequest),
        State::SecurityMode => Some(MessageType::SecurityModeCommand),
        State::Accepted => Some(MessageType::RegistrationAccept),
        _ => None,
    };
    net.ue_mut(VICTIM).faults_mut().ignore.extend(deaf.map(|m| (m, 99)));
    net.command(VICTIM, UeCommand::Register);
    net.settle(SECOND);
    if deaf.is_some() || state == State::Connected {
        return net;
    }
    if state == State::SessionAccept {
        net.ue_mut(VICTIM).faults_mut().ignore.push((MessageType::DlNasTransport, 99));
    }
    net.command(VICTIM, session());
    net.settle(SECOND);
    let ue = {
        let supi = net.ue_ref(VICTIM).config().supi;
        net.cta().find(supi).expect("it is registered")
    };
    match state {
        State::SessionRelease => {
            net.ue_mut(VICTIM).faults_mut().ignore.push((MessageType::DlNasTransport, 99));
            let id = net.ue_ref(VICTIM).sessions().next().map(|s| s.id);
            net.command(VICTIM, UeCommand::ReleaseSession(id.expect("it has a session")));
            net.settle(SECOND / 10);
        }
        State::Idle => go_idle(&mut net, VICTIM),
        State::Paged => {
            go_idle(&mut net, VICTIM);
            net.leave_coverage(VICTIM);
        }
        State::Releasing => net.release(VICTIM, CauseRadioNetwork::UserInactivity.into()),
        State::Deregistering => {
            let deaf = (MessageType::DeregistrationRequestUeTerminated, 99);
            net.ue_mut(VICTIM).faults_mut().ignore.push(deaf);
            net.order(ue, CoreCommand::Deregister);
            net.settle(SECOND / 10);
        }
        State::Rejected => {
            go_idle(&mut net, VICTIM);
            net.order(ue, CoreCommand::Superseded);
            net.command(VICTIM, UeCommand::ServiceRequest);
            net.settle(SECOND / 20);
            assert!(victim(&net).is_some_and(|p| p.awaits_release()));
        }
        State::Deregistered => {
            net.command(VICTIM, UeCommand::Deregister { switch_off: false });
            net.settle(SECOND / 20);
            assert!(victim(&net).is_some_and(|p| p.awaits_release() && p.sessions.len() == 1));
        }
        State::HandoverPreparation | State::HandoverExecution => {
            // The UE does not hear the command: it stays where it is.
            net.ue_mut(VICTIM).faults_mut().ignore_handovers = 1;
            net.hand_over(VICTIM, BY_HAND, Via::N2);
            net.settle(SECOND / 20);
            if state == State::HandoverExecution {
                let (amf, _) = names_of(&net, true).expect("a target was asked");
                let list = vec![by_hand::admitted(1, true)];
                net.inject(BY_HAND, &octets(by_hand::acknowledgement(amf, list)));
                net.settle(SECOND / 20);
            }
            assert!(victim(&net).is_some_and(|p| p.amf.mobility.target.is_some()), "{state:?}");
        }
        State::PathSwitch => {
            let victim = victim(&net).expect("it is known");
            let amf = victim.amf.connection.as_ref().expect("it is connected").amf_ue_ngap_id;
            let mut m = PathSwitchRequest::new(by_hand::RAN_ID, amf, vec![by_hand::to_switch(1)]);
            m.user_location_information = Some(by_hand::location(1));
            net.set_upf(UpfState::ByHand);
            net.inject(BY_HAND, &octets(m));
            assert!(!net.take_pfcp().is_empty(), "the UPF is asked");
        }
        _ => {}
    }
    net
}

fn octets(m: impl Into<Message>) -> Vec<u8> {
    m.into().to_vec()
}

/// The UE that is surprised, as the core has it.
fn victim(net: &Sim) -> Option<&whimbrel_control::UeContext> {
    net.cta().contexts().find(|p| p.amf.supi != Some(net.ue_ref(CANARY).config().supi))
}

/// The names of its connection: where it is served, or at the target.
fn names_of(net: &Sim, at_target: bool) -> Option<(AmfUeNgapId, RanUeNgapId)> {
    let amf = &victim(net)?.amf;
    match at_target {
        false => amf.connection.as_ref().map(|c| (c.amf_ue_ngap_id, c.ran_ue_ngap_id)),
        true => amf
            .mobility
            .target
            .as_ref()
            .map(|t| (t.amf_ue_ngap_id, t.ran_ue_ngap_id.unwrap_or(by_hand::RAN_ID))),
    }
}

/// Every 5GMM message as a UE or a network would write it, with little within (TS 24.501 §8.2).
fn nas_messages() -> Vec<Vec<u8>> {
    let suci: [u8; 15] = [0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0x10];
    let tmsi: [u8; 9] = [0, 7, 0xf4, 0, 0x40, 1, 2, 3, 4];
    let mm = |kind: u8, body: &[u8]| [&[0x7e, 0, kind], body].concat();
    let sm = |kind: u8, body: &[u8]| {
        let message = [&[0x2e, 1, 1, kind], body].concat();
        mm(0x67, &[&[1, 0, message.len() as u8][..], &message, &[0x12, 1, 0x81]].concat())
    };
    let mut all: Vec<Vec<u8>> = (0x41..=0x68).map(|kind| mm(kind, &[])).collect();
    all.extend([0x09, 0x0a, 0x0b].map(|kind| mm(0x41, &[&[kind | 0x70][..], &suci].concat())));
    all.push(mm(0x41, &[&[0x01][..], &tmsi].concat()));
    all.extend([mm(0x45, &[&[0x01][..], &suci].concat()), mm(0x45, &[&[0x09][..], &tmsi].concat())]);
    all.extend([mm(0x4c, &[&[0x10][..], &tmsi].concat()), mm(0x4c, &[&[0x00][..], &tmsi].concat())]);
    all.extend([mm(0x57, &[&[0x2d, 16][..], &[7; 16]].concat()), mm(0x59, &[0x14]), mm(0x59, &[0x1a])]);
    all.extend([mm(0x59, &[&[0x15, 0x30, 14][..], &[7; 14]].concat()), mm(0x59, &[0x47])]);
    all.extend([
        mm(0x5c, &suci),
        mm(0x5c, &[0, 1, 0]),
        mm(0x5e, &[0x71, 0, 3, 0x7e, 0, 0x43]),
        mm(0x5f, &[0x18]),
    ]);
    all.extend([mm(0x64, &[0x62]), mm(0x67, &[0x01, 0, 0]), mm(0x67, &[0x02, 0, 1, 0])]);
    all.extend(
        [0xc1, 0xc2, 0xc3, 0xc5, 0xc6, 0xc7, 0xc9, 0xca, 0xcb, 0xcc, 0xd1, 0xd2, 0xd3, 0xd4]
            .map(|k| sm(k, &[])),
    );
    all.extend([
        sm(0xc1, &[0xff, 0xff, 0x91, 0xa1]),
        sm(0xcd, &[0x1a]),
        sm(0xd6, &[0x2b]),
        sm(0xd6, &[0x61]),
    ]);
    all
}

#[test] // TS 24.501 §7.4, TS 33.117 §4.4.4
fn any_nas_message_in_any_state() {
    let messages = nas_messages();
    for state in STATES {
        for message in &messages {
            let mut net = in_state(state);
            net.command(VICTIM, UeCommand::Say(message.clone()));
            judge(&mut net, &|| format!("{message:02x?} in {state:?}"));
        }
    }
}

/// An NGAP message with the names of that connection in place of those that it has.
fn with_names(octets: &[u8], amf: AmfUeNgapId, ran: RanUeNgapId) -> Vec<u8> {
    let mut sample = Vec::new();
    Message::from(UplinkNasTransport::new(amf, ran, vec![])).encode(&mut sample);
    let names = Pdu::of(&sample);
    let mut message = Pdu::of(octets);
    for (id, named) in [
        (AMF_UE_NGAP_ID, AMF_UE_NGAP_ID),
        (SOURCE_AMF_UE_NGAP_ID, AMF_UE_NGAP_ID),
        (RAN_UE_NGAP_ID, RAN_UE_NGAP_ID),
    ] {
        message.set(id, names.value(named).expect("it has both"));
    }
    message.to_octets()
}

/// Elements that name a UE (TS 38.413 §9.4.7).
const AMF_UE_NGAP_ID: u16 = 10;
const RAN_UE_NGAP_ID: u16 = 85;
const SOURCE_AMF_UE_NGAP_ID: u16 = 100;

/// One message of each name, made at random.
fn ngap_messages() -> Vec<(&'static str, Vec<u8>)> {
    let mut source = Source::without_fragments(38_413);
    let mut all = std::collections::BTreeMap::new();
    for _ in 0..4000 {
        let message = Message::sample(&mut source);
        let mut octets = Vec::new();
        message.encode(&mut octets);
        if octets.len() < 8000 {
            all.entry(message.name()).or_insert(octets);
        }
    }
    all.into_iter().collect()
}

#[test] // TS 38.413 §10.4, TS 33.117 §4.4.4
fn any_ngap_message_in_any_state() {
    let messages = ngap_messages();
    assert!(messages.len() > 75, "{}", messages.len());
    for state in STATES {
        for (name, octets) in &messages {
            let mut net = in_state(state);
            let unknown = (AmfUeNgapId::new(77).expect("40 bits"), RanUeNgapId(1));
            let (amf, ran) = names_of(&net, false).unwrap_or(unknown);
            net.inject(GnbIndex(0), &with_names(octets, amf, ran));
            // What ends the interface takes the UEs of this gNB with it: it comes back like one that was restarted.
            net.restart_gnb(GnbIndex(0));
            judge(&mut net, &|| format!("{name} in {state:?}"));
        }
    }
}

#[test] // TS 38.413 §8.4.2 to §8.4.5, §10.4: of the gNB to which the UE is being handed over
fn any_ngap_message_of_a_target() {
    let messages = ngap_messages();
    for state in [State::HandoverPreparation, State::HandoverExecution, State::PathSwitch] {
        for (name, octets) in &messages {
            let mut net = in_state(state);
            let (amf, ran) = names_of(&net, true).expect("it has a target");
            net.inject(BY_HAND, &with_names(octets, amf, ran));
            judge(&mut net, &|| format!("{name} of the target in {state:?}"));
        }
    }
}

#[test] // TS 24.501 §7.2, §4.4.4.3: envelopes that are none, too short, under a MAC and a COUNT made up
fn any_envelope_in_any_state() {
    let inner = [0x7e, 0, 0x45, 0x09, 0, 7, 0xf4, 0, 0x40, 1, 2, 3, 4];
    let mut envelopes: Vec<Vec<u8>> =
        vec![vec![], vec![0x7e], vec![0x7e, 0], vec![0x7e, 2, 0x5f, 0x74], vec![0x2e, 1, 1, 0xc1]];
    for header in 0..=15u8 {
        envelopes.push([&[0x7e, header, 1, 2, 3, 4, 5][..], &inner].concat());
        envelopes.push(vec![0x7e, header, 1, 2, 3, 4]);
        envelopes
            .push([&[0x7e, header, 0, 0, 0, 0, 0][..], &[0x7e, header, 0, 0, 0, 0, 0].repeat(50)].concat());
    }
    for state in STATES {
        for envelope in &envelopes {
            let mut net = in_state(state);
            let Some((amf, ran)) = names_of(&net, false) else { continue };
            // Before protection has begun, a few messages pass without (TS 24.501 §4.4.4.3); afterwards none does anything.
            let protected = victim(&net).and_then(|p| p.amf.connection.as_ref()).is_some_and(|c| c.secured);
            let look =
                |net: &Sim| victim(net).map(|p| (p.amf.registered, p.sessions.len(), p.is_connected()));
            let before = look(&net);
            net.inject(GnbIndex(0), &octets(UplinkNasTransport::new(amf, ran, envelope.clone())));
            assert!(!protected || before == look(&net), "{envelope:02x?} in {state:?}");
            net.take_ngap(BY_HAND);
            unharmed(&net, &|| format!("{envelope:02x?} in {state:?}"));
        }
        judge(&mut in_state(state), &|| format!("{state:?}"));
    }
}

/// The states in which the UPF has been asked for something and has not answered.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Nothing,
    Establishment,
    Activation,
    Deactivation,
    Deletion,
    PathSwitch,
}

/// A UE for which the UPF was asked that; and the requests.
fn asked(what: Asked) -> (Sim, Vec<Vec<u8>>) {
    let mut net = match what {
        Asked::Establishment => in_state(State::Connected),
        Asked::Activation => in_state(State::Idle),
        Asked::PathSwitch => {
            let mut net = in_state(State::Session);
            let amf = names_of(&net, false).expect("it is connected").0;
            let mut m = PathSwitchRequest::new(by_hand::RAN_ID, amf, vec![by_hand::to_switch(1)]);
            m.user_location_information = Some(by_hand::location(1));
            net.set_upf(UpfState::ByHand);
            net.inject(BY_HAND, &octets(m));
            net
        }
        _ => in_state(State::Session),
    };
    net.set_upf(UpfState::ByHand);
    match what {
        Asked::Establishment => net.command(VICTIM, session()),
        Asked::Activation => net.command(VICTIM, UeCommand::ServiceRequest),
        Asked::Deactivation => net.release(VICTIM, CauseRadioNetwork::UserInactivity.into()),
        Asked::Deletion => {
            let id = net.ue_ref(VICTIM).sessions().next().map(|s| s.id);
            net.command(VICTIM, UeCommand::ReleaseSession(id.expect("it has a session")));
        }
        Asked::Nothing | Asked::PathSwitch => {}
    }
    net.settle(SECOND / 10);
    let requests = net.take_pfcp();
    (net, requests)
}

/// Answers that may come to a request: the right one, others, of others, too late and too often.
fn answers(request: &[u8], canary: Seid) -> Vec<(String, Vec<u8>)> {
    let frame = Frame::parse(request).expect("a request of ours");
    let sequence = frame.header.sequence;
    let message = Pfcp::parse(&frame).expect("a request of ours");
    let ours = match &message {
        Pfcp::SessionEstablishmentRequest(m) => Some(m.cp_f_seid.seid),
        _ => frame.header.seid,
    };
    let causes = [
        PfcpCause::RequestAccepted,
        PfcpCause::SessionContextNotFound,
        PfcpCause::MandatoryIeMissing,
        PfcpCause::NoResourcesAvailable,
        PfcpCause::SystemFailure,
    ];
    let mut all = Vec::new();
    for cause in causes {
        let of_kinds: [Pfcp; 5] = [
            SessionModificationResponse::new(cause).into(),
            SessionDeletionResponse::new(cause).into(),
            SessionEstablishmentResponse::new(std::net::IpAddr::from([127, 0, 0, 8]).into(), cause).into(),
            SessionReportResponse::new(cause).into(),
            pfcp::msg::HeartbeatResponse { recovery_time_stamp: pfcp::ie::RecoveryTimeStamp(1) }.into(),
        ];
        for m in of_kinds {
            for seid in [ours, Some(Seid(0)), Some(canary), Some(Seid(u64::MAX)), None] {
                for sequence in [sequence, sequence ^ 1, 0, 0xff_ffff] {
                    let what = format!("{cause:?} {seid:?} {sequence} to {sequence:x}");
                    all.push((what, m.to_octets(seid, sequence)));
                }
            }
        }
    }
    all
}

#[test] // TS 29.244 §6.4, §7.2.2.4.2: answers that are not awaited, of another session, of another kind, refusals, twice
fn any_pfcp_answer_to_any_request() {
    let all = [
        Asked::Nothing,
        Asked::Establishment,
        Asked::Activation,
        Asked::Deactivation,
        Asked::Deletion,
        Asked::PathSwitch,
    ];
    for what in all {
        let (net, requests) = asked(what);
        let canary = {
            let supi = net.ue_ref(CANARY).config().supi;
            let ue = net.cta().contexts().find(|p| p.amf.supi == Some(supi)).expect("the canary");
            ue.sessions.values().next().expect("its session").cp_seid
        };
        let request = requests
            .first()
            .cloned()
            .unwrap_or_else(|| Pfcp::from(SessionDeletionRequest {}).to_octets(Some(Seid(1)), 77));
        drop(net);
        let answers = answers(&request, canary);
        // In handfuls, so that the end comes in a time that one waits for; which of them, the seed says.
        for (n, handful) in answers.chunks(25).enumerate() {
            let (mut net, _) = asked(what);
            for (reported, answer) in handful {
                net.inject_pfcp(answer);
                net.inject_pfcp(answer);
                unharmed(&net, &|| format!("{reported} in {what:?}"));
            }
            judge(&mut net, &|| format!("handful {n} in {what:?}"));
        }
    }
}

#[test] // TS 29.244 §7.5.8: reports of no session, of the canary's, of the UE's own, in each state, of each kind
fn any_pfcp_report_in_any_state() {
    for state in STATES {
        let mut net = in_state(state);
        let seids: Vec<Seid> =
            net.cta().contexts().flat_map(|p| p.sessions.values().map(|s| s.cp_seid)).collect();
        let own = victim(&net).and_then(|p| p.sessions.values().next()).map(|s| s.cp_seid);
        for seid in
            [Some(Seid(0)), Some(Seid(1)), Some(Seid(u64::MAX)), own, own.map(|s| Seid(s.0 ^ 1)), None]
        {
            for flags in 0..=255u8 {
                let report_type = [0, 39, 0, 1, flags];
                let body = [&report_type[..], &[0, 83, 0, 6, 0, 56, 0, 2, 0, flags & 3]].concat();
                // Session ScheduleReport Request, with a Downlink Data ScheduleReport of some PDR, and the type as the flags have it.
                let mut octets = vec![0x21, 56];
                octets.extend((body.len() as u16 + 12).to_be_bytes());
                octets.extend(seid.map_or(0, |s| s.0).to_be_bytes());
                octets.extend([0, 1, flags, 0]);
                octets.extend(body);
                net.inject_pfcp(&octets);
            }
        }
        assert!(!seids.is_empty());
        judge(&mut net, &|| format!("reports in {state:?}"));
    }
}
