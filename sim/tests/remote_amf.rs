//! Sessions of a UE that another vendor's AMF serves (TS 29.502 §5.2.2): each request is answered once, whichever CPF is lost meanwhile, and nothing
//! is left over.

use crate::common::*;
use whimbrel_control::remote_amf::{
    AmfAddress, AmfOperation, N2SmKind, SmContextAnswer, SmContextCreation, SmContextExchange,
    SmContextOperation, SmContextRef, SmContextUpdate, UserPlaneState,
};
use whimbrel_ids::{PduSessionId, Qfi, SNssai, Supi, Teid};
use whimbrel_nas::ie::{IntegrityDataRate, IntegrityMaxDataRate, PduSessionType};
use whimbrel_nas::sm::{EstablishmentRequest, Message, Pti, ReleaseComplete, ReleaseRequest};
use whimbrel_ngap::ie::{
    AssociatedQosFlowItem, GtpTunnel, QosFlowPerTnlInformation, TransportLayerAddress,
    UpTransportLayerInformation,
};
use whimbrel_ngap::transfer::PduSessionResourceSetupResponseTransfer;
use whimbrel_sim::{CpfLoss, CtaLoss, Sim, SimBuilder, default_config, ue_config};

fn builder(seed: u64) -> SimBuilder {
    Sim::builder(seed).config(default_config())
}

/// A core, and a subscriber that is not registered at its AMF.
fn populate(mut net: Sim) -> (Sim, Supi) {
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    let supi = net.ue_ref(ue).config().supi;
    net.settle(SECOND / 10);
    (net, supi)
}

fn psi() -> PduSessionId {
    PduSessionId::new(5).expect("an identity")
}

fn creation(supi: Supi) -> SmContextOperation {
    let full = IntegrityDataRate::Full;
    let mut request = EstablishmentRequest::new(IntegrityMaxDataRate { uplink: full, downlink: full });
    request.pdu_session_type = Some(PduSessionType::Ipv4);
    let creation = SmContextCreation {
        supi,
        psi: psi(),
        s_nssai: SNssai::sst(1),
        dnn: None,
        existing: false,
        n1: Message::new(psi(), Pti(3), request).to_octets(),
        tai: None,
        amf: AmfAddress { instance: None, root: "http://192.0.2.9:7777".into() },
        status_uri: "http://192.0.2.9:7777/status".into(),
    };
    SmContextOperation::Create(creation.into())
}

fn set_up_at_gnb() -> SmContextUpdate {
    let address = TransportLayerAddress::V4([127, 0, 1, 1].into());
    let tunnel = UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(address, Teid(70)));
    let flow = AssociatedQosFlowItem::new(Qfi::new(1).expect("a QFI"));
    let information = QosFlowPerTnlInformation::new(tunnel, vec![flow]);
    let transfer = PduSessionResourceSetupResponseTransfer::new(information).to_vec();
    SmContextUpdate { n2: Some((N2SmKind::PduResSetupRsp, transfer)), ..SmContextUpdate::default() }
}

fn user_plane(state: UserPlaneState) -> SmContextUpdate {
    SmContextUpdate { user_plane: Some(state), ..SmContextUpdate::default() }
}

fn n1(body: impl Into<whimbrel_nas::sm::Body>) -> SmContextUpdate {
    let n1 = Message::new(psi(), Pti(4), body).to_octets();
    SmContextUpdate { n1: Some(n1), ..SmContextUpdate::default() }
}

fn ask(net: &mut Sim, operation: SmContextOperation) -> SmContextExchange {
    let exchange = net.remote_amf_asks(operation);
    net.settle(SECOND * 8);
    exchange
}

/// The answer to a request, which has to be the only one.
fn answer(net: &mut Sim, exchange: SmContextExchange, of: &dyn Fn() -> String) -> SmContextAnswer {
    let answers = net.remote_amf().answers.get(&exchange).cloned().unwrap_or_default();
    let [answer] = &answers[..] else { panic!("{}: {exchange:?} has {} answers", of(), answers.len()) };
    answer.clone()
}

fn update(net: &mut Sim, context: SmContextRef, update: SmContextUpdate, of: &dyn Fn() -> String) {
    let exchange = ask(net, SmContextOperation::Update(context, update.into()));
    let answer = answer(net, exchange, of);
    assert!(matches!(answer, SmContextAnswer::Updated(_)), "{}: {answer:?}", of());
}

/// A session from its beginning to its end.
fn life(net: &mut Sim, supi: Supi, of: &dyn Fn() -> String) {
    let exchange = ask(net, creation(supi));
    let created = answer(net, exchange, of);
    let SmContextAnswer::Created { reference, .. } = created else { panic!("{}: {created:?}", of()) };
    update(net, reference, set_up_at_gnb(), of);
    update(net, reference, user_plane(UserPlaneState::Deactivated), of);
    update(net, reference, user_plane(UserPlaneState::Activating), of);
    update(net, reference, set_up_at_gnb(), of);
    update(net, reference, n1(ReleaseRequest::new()), of);
    update(net, reference, n1(ReleaseComplete::new()), of);
    net.settle(SECOND * 8);
    assert_eq!((net.upf_sessions(), net.cta().remote_ues()), (0, 0), "{}", of());
    let ends = |operation: &AmfOperation| matches!(operation, AmfOperation::ContextReleased { .. });
    let requests = &net.remote_amf().requests;
    let ended = requests.iter().filter(|r| ends(&r.operation)).count();
    assert_eq!((requests.len(), ended), (2, 1), "{}: an accept, and the end: {requests:?}", of());
}

#[test] // TS 23.502 §4.3.2.2.1, §4.2.6, §4.2.3.2, §4.3.4.2
fn a_session_of_another_vendors_amf_lives_and_ends() {
    let (mut net, supi) = populate(builder(1).build());
    life(&mut net, supi, &|| "no loss".into());
}

#[test] // Neutrino §4.2.5 with a request of an AMF under way
fn each_request_of_an_amf_is_answered_once_whichever_message_a_cpf_is_lost_at() {
    let begin = || populate(builder(2).cpfs(3, 1).build());
    let (before, taken) = {
        let (mut net, supi) = begin();
        let before = net.links_taken();
        life(&mut net, supi, &|| "no loss".into());
        (before, net.links_taken())
    };
    let mut taken_over = 0;
    for how in CpfLoss::ALL {
        for message in before + 1..=taken {
            let (mut net, supi) = begin();
            net.lose_cpf_at(message, how);
            life(&mut net, supi, &|| format!("{how:?} at message {message} of {before} to {taken}"));
            taken_over += net.cta().replication_counters().taken_over;
            assert_eq!(net.cta().replication_counters().diverged, 0);
        }
    }
    assert!(taken_over > (taken - before) / 4, "{taken_over} takeovers in {} messages", taken - before);
}

/// A session whose AMF repeats what was not answered, as its connection ended with the CTA. The numbers of answers are not looked at: those of a CTA that
/// is gone are lost.
fn life_with_repetitions(net: &mut Sim, supi: Supi, of: &dyn Fn() -> String) {
    let until_answered = |net: &mut Sim, operation: &dyn Fn() -> SmContextOperation| {
        for _ in 0..3 {
            let exchange = ask(net, operation());
            if let Some(answers) = net.remote_amf().answers.get(&exchange) {
                return answers[0].clone();
            }
        }
        panic!("{}: no answer", of())
    };
    let created = until_answered(net, &|| creation(supi));
    let SmContextAnswer::Created { reference, .. } = created else { panic!("{}: {created:?}", of()) };
    for change in [set_up_at_gnb(), user_plane(UserPlaneState::Deactivated)] {
        until_answered(net, &|| SmContextOperation::Update(reference, change.clone().into()));
    }
    until_answered(net, &|| SmContextOperation::Release(reference));
    net.settle(SECOND * 8);
    assert_eq!((net.upf_sessions(), net.cta().remote_ues()), (0, 0), "{}", of());
}

#[test]
fn a_session_of_another_vendors_amf_survives_the_loss_of_a_cta_at_each_input() {
    let begin = || populate(builder(3).cpfs(2, 1).cta_replica().build());
    let (before, taken) = {
        let (mut net, supi) = begin();
        let before = net.inputs_taken();
        life_with_repetitions(&mut net, supi, &|| "no loss".into());
        (before, net.inputs_taken())
    };
    for how in CtaLoss::ALL {
        for input in before + 1..=taken {
            let (mut net, supi) = begin();
            net.lose_cta_at(input, how);
            let of = || format!("{how:?} at input {input} of {before} to {taken}");
            life_with_repetitions(&mut net, supi, &of);
        }
    }
}
