//! A fixture for misbehaviour: a UE and a gNB that misbehave, and a canary UE at a gNB of its own that must not be affected.

use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent};
use whimbrel_ids::{AmfUeNgapId, NrCellId, PlmnId, RanUeNgapId, STmsi, Tac, Tai};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_nas::mm::{self, MessageType};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    NrCgi, RrcEstablishmentCause, UeContextRequest, UserLocationInformation, UserLocationInformationNr,
};
use whimbrel_ngap::msg::{InitialUeMessage, UplinkNasTransport};
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, UpfState, ue_config};

use super::{SECOND, core_events, gnb_config, registered};

/// The UE that misbehaves, at the first gNB.
pub(crate) const VICTIM: UeIndex = UeIndex(0);
/// The UE that must not notice, at the second.
pub(crate) const CANARY: UeIndex = UeIndex(1);
/// The third gNB, whose messages a test writes.
pub(crate) const BY_HAND: GnbIndex = GnbIndex(2);

/// A session of any kind.
pub(crate) fn session() -> UeCommand {
    let pdu_session_type = PduSessionType::Ipv4;
    UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

/// Three gNBs, the third driven by hand; a canary with a session on the second, and an unregistered UE on the first.
pub(crate) fn stage(net: Sim) -> Sim {
    let mut net = net;
    for n in 1..=3 {
        net.add_gnb(gnb_config(n));
    }
    net.settle(SECOND / 10);
    net.take_over(BY_HAND);
    for n in 0..2 {
        net.add_ue(GnbIndex(n), ue_config(n as u32 + 1));
    }
    net.command(CANARY, UeCommand::Register);
    net.command(CANARY, session());
    net.settle(SECOND);
    assert!(registered(&net, CANARY));
    net
}

/// No UE's procedures have panicked, and the canary has what it had.
pub(crate) fn unharmed(net: &Sim, what: &dyn Fn() -> String) {
    let fault = core_events(net)
        .any(|e| matches!(e, CoreEvent::Deregistered { why: DeregistrationReason::Fault, .. }));
    assert!(!fault, "a fault after {}", what());
    let sessions = net.ue_ref(CANARY).sessions().count();
    assert!(registered(net, CANARY) && sessions == 1, "the canary is affected by {}", what());
}

/// [`unharmed`]; then the UE deregisters and registers again, and no unauthenticated UE is left.
pub(crate) fn judge(net: &mut Sim, what: &dyn Fn() -> String) {
    net.settle(SECOND / 10);
    unharmed(net, what);
    net.set_upf(UpfState::Answering);
    net.ue_mut(VICTIM).faults_mut().ignore.clear();
    net.command(VICTIM, UeCommand::Deregister { switch_off: true });
    // Longer than what waits for an answer: five times T3560 (TS 24.501 table 10.2.2).
    net.settle(SECOND * 40);
    net.command(VICTIM, UeCommand::Register);
    net.settle(SECOND * 40);
    assert!(registered(net, VICTIM), "it does not come back after {}: {:?}", what(), net.ue_events(VICTIM));
    assert_eq!(net.cta().occupancy().1, 0, "unauthenticated UEs are left after {}", what());
    unharmed(net, what);
}

/// INITIAL UE MESSAGE of the third gNB with this NAS message.
pub(crate) fn first_of(ran: u32, nas: &[u8], s_tmsi: Option<STmsi>) -> InitialUeMessage {
    let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(0x30).expect("36 bits"));
    let tai = Tai { plmn: PlmnId::TEST, tac: Tac::new(1).expect("24 bits") };
    let location =
        UserLocationInformation::UserLocationInformationNr(UserLocationInformationNr::new(cell, tai));
    let cause = RrcEstablishmentCause::MoSignalling;
    let mut m = InitialUeMessage::new(RanUeNgapId(ran), nas.to_vec(), location, cause);
    m.five_g_s_tmsi = s_tmsi;
    m.ue_context_request = Some(UeContextRequest::Requested);
    m
}

/// What the core sends to the third gNB because of a first message with this NAS message.
pub(crate) fn first(net: &mut Sim, ran: u32, nas: &[u8]) -> Vec<Message> {
    say(net, first_of(ran, nas, None))
}

/// What the core sends to the third gNB because of this message.
pub(crate) fn say(net: &mut Sim, m: impl Into<Message>) -> Vec<Message> {
    let mut octets = Vec::new();
    m.into().encode(&mut octets);
    net.inject(BY_HAND, &octets);
    net.settle(SECOND / 20);
    net.take_ngap(BY_HAND)
}

/// The UE NGAP IDs of the connection on which the core sent NAS.
pub(crate) fn names(heard: &[Message]) -> Option<(AmfUeNgapId, RanUeNgapId)> {
    heard.iter().find_map(|m| match m {
        Message::DownlinkNasTransport(m) => Some((m.amf_ue_ngap_id, m.ran_ue_ngap_id)),
        _ => None,
    })
}

/// The NAS messages without protection among those of the core.
pub(crate) fn plain(heard: &[Message]) -> Vec<mm::Message> {
    let pdus = heard.iter().filter_map(|m| match m {
        Message::DownlinkNasTransport(m) => Some(&m.nas_pdu),
        _ => None,
    });
    pdus.filter_map(|pdu| mm::Message::decode(pdu).ok()).collect()
}

pub(crate) fn types(heard: &[Message]) -> Vec<MessageType> {
    plain(heard).iter().map(mm::Message::message_type).collect()
}

/// UPLINK NAS TRANSPORT of the third gNB.
pub(crate) fn uplink(
    net: &mut Sim,
    (amf, ran): (AmfUeNgapId, RanUeNgapId),
    nas: impl Into<Vec<u8>>,
) -> Vec<Message> {
    say(net, UplinkNasTransport::new(amf, ran, nas.into()))
}

/// A plain 5GMM message.
pub(crate) fn mm(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[0x7e, 0, kind], body].concat()
}

/// The concealed identity, by the null scheme, of the `n`th subscriber of the simulation, as LV-E.
pub(crate) fn suci(n: u32) -> Vec<u8> {
    let digits: Vec<u8> = format!("{n:010}").bytes().map(|b| b - b'0').collect();
    let bcd: Vec<u8> = digits.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect();
    [&[0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0][..], &bcd].concat()
}

/// REGISTRATION REQUEST, initial, of the `n`th subscriber, with this UE security capability.
pub(crate) fn registration(n: u32, capability: &[u8]) -> Vec<u8> {
    let capability = [&[0x2e, capability.len() as u8][..], capability].concat();
    mm(0x41, &[&[0x79][..], &suci(n), &capability].concat())
}

/// A capability in order.
pub(crate) const CAPABILITY: [u8; 4] = [0xf0, 0x70, 0xf0, 0x70];

/// Has the core forget a UE that misbehaves, by the operator's order.
pub(crate) fn deregister(net: &mut Sim, ue: UeIndex) {
    let supi = net.ue_ref(ue).config().supi;
    if let Some(context) = net.cta().find(supi) {
        net.order(context, CoreCommand::Deregister);
    }
}
