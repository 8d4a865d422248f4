//! Whatever state a phone is in, whatever it or its gNB says: no fault, nobody else is touched, and the phone can leave and
//! come back (TS 24.501 §7.4, TS 38.413 §10.4).

mod common;

use common::pdu::Pdu;
use common::*;
use whimbrel_control::event::Deregistered;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent};
use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ngap::msg::UplinkNasTransport;
use whimbrel_ngap::{Message, Source};
use whimbrel_ran::ue::{Command, SessionRequest};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, phone_config};

const VICTIM: UeIndex = UeIndex(0);
const CANARY: UeIndex = UeIndex(1);

/// What the phone is at when it is surprised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Stranger,
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
}

const STATES: [State; 12] = [
    State::Stranger,
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
];

fn session() -> Command {
    let pdu_session_type = PduSessionType::Ipv4;
    Command::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

/// Two gNBs, a canary with a session on the second, and a phone in that state on the first.
fn in_state(state: State) -> Sim {
    let mut net = Sim::new(state as u64);
    let gnbs = [net.add_gnb(gnb_config(1)), net.add_gnb(gnb_config(2))];
    net.settle(SECOND / 10);
    for (gnb, n) in gnbs.into_iter().zip(1..) {
        net.add_ue(gnb, phone_config(n));
    }
    net.command(CANARY, Command::Register);
    net.command(CANARY, session());
    net.settle(SECOND);
    let deaf = match state {
        State::Stranger => return net,
        State::Authentication => Some(MessageType::AuthenticationRequest),
        State::SecurityMode => Some(MessageType::SecurityModeCommand),
        State::Accepted => Some(MessageType::RegistrationAccept),
        _ => None,
    };
    net.ue_mut(VICTIM).faults_mut().ignore.extend(deaf.map(|m| (m, 99)));
    net.command(VICTIM, Command::Register);
    net.settle(SECOND);
    if deaf.is_some() || state == State::Connected {
        return net;
    }
    if state == State::SessionAccept {
        net.ue_mut(VICTIM).faults_mut().ignore.push((MessageType::DlNasTransport, 99));
    }
    net.command(VICTIM, session());
    net.settle(SECOND);
    let phone = {
        let supi = net.ue_ref(VICTIM).config().supi;
        net.cta().find(supi).expect("it is registered")
    };
    match state {
        State::SessionRelease => {
            net.ue_mut(VICTIM).faults_mut().ignore.push((MessageType::DlNasTransport, 99));
            let id = net.ue_ref(VICTIM).sessions().next().map(|s| s.id);
            net.command(VICTIM, Command::ReleaseSession(id.expect("it has a session")));
            net.settle(SECOND / 10);
        }
        State::Idle => go_idle(&mut net, VICTIM),
        State::Paged => {
            go_idle(&mut net, VICTIM);
            net.unplug(VICTIM);
        }
        State::Releasing => net.release(VICTIM, CauseRadioNetwork::UserInactivity.into()),
        State::Deregistering => {
            let deaf = (MessageType::DeregistrationRequestUeTerminated, 99);
            net.ue_mut(VICTIM).faults_mut().ignore.push(deaf);
            net.order(phone, CoreCommand::Deregister);
            net.settle(SECOND / 10);
        }
        _ => {}
    }
    net
}

/// Nobody failed, and the canary has what it had; then the phone leaves, and comes back.
fn judge(mut net: Sim, what: &dyn Fn() -> String) {
    net.settle(SECOND / 10);
    let fault =
        core_events(&net).any(|e| matches!(e, CoreEvent::Deregistered { why: Deregistered::Fault, .. }));
    assert!(!fault, "a fault after {}", what());
    let sessions = net.ue_ref(CANARY).sessions().count();
    assert!(registered(&net, CANARY) && sessions == 1, "the canary suffers of {}", what());
    net.ue_mut(VICTIM).faults_mut().ignore.clear();
    net.command(VICTIM, Command::Deregister { switch_off: true });
    // Longer than what waits for an answer: five times T3560 (TS 24.501 table 10.2.2).
    net.settle(SECOND * 40);
    net.command(VICTIM, Command::Register);
    net.settle(SECOND * 40);
    assert!(registered(&net, VICTIM), "it does not come back after {}: {:?}", what(), net.ue_events(VICTIM));
}

/// Every 5GMM message as a phone or a network would write it, with little within (TS 24.501 §8.2).
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

#[test] // TS 24.501 §7.4
fn any_nas_message_in_any_state() {
    let messages = nas_messages();
    for state in STATES {
        for message in &messages {
            let mut net = in_state(state);
            net.command(VICTIM, Command::Say(message.clone()));
            judge(net, &|| format!("{message:02x?} in {state:?}"));
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

/// Elements that name a phone (TS 38.413 §9.4.7).
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

#[test] // TS 38.413 §10.4
fn any_ngap_message_in_any_state() {
    let messages = ngap_messages();
    assert!(messages.len() > 75, "{}", messages.len());
    for state in STATES {
        for (name, octets) in &messages {
            let mut net = in_state(state);
            let connection = net.cta().phones().find_map(|p| {
                let c = p.amf.connection.as_ref()?;
                (p.amf.supi != Some(net.ue_ref(CANARY).config().supi))
                    .then_some((c.amf_ue_ngap_id, c.ran_ue_ngap_id))
            });
            let nobody = (AmfUeNgapId::new(77).expect("40 bits"), RanUeNgapId(1));
            let (amf, ran) = connection.unwrap_or(nobody);
            net.inject(GnbIndex(0), &with_names(octets, amf, ran));
            // What ends the interface takes the phones of this gNB with it: it comes back like one that was restarted.
            net.restart_gnb(GnbIndex(0));
            judge(net, &|| format!("{name} in {state:?}"));
        }
    }
}
