//! An idle UE that registers at another AMF of the network, which fetches its context: TS 23.502 §4.2.2.2.2 steps 4, 5, 10,
//! TS 29.518 §5.2.2.2.1, §5.2.2.2.2.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::amfs::*;
use crate::common::by_hand::psi;
use crate::common::*;
use whimbrel_control::UeContext;
use whimbrel_control::amf::{N14, N14Body, Relation, UeProof};
use whimbrel_ids::Tmsi;
use whimbrel_nas::ie::NgKsi;
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::Message;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::N14Error;
use whimbrel_security::SecurityHeaderType;
use whimbrel_sim::{GnbIndex, N14Fault, Sim, two_amf_configs};

fn go(net: &mut Sim, to: GnbIndex) {
    if net.ue_ref(UE).is_connected() {
        go_idle(net, UE);
    }
    net.move_ue(UE, to);
    net.settle(SECOND * 6);
}

/// The UE has its two sessions where it is, with these addresses, and its record is nowhere else.
fn lives(net: &mut Sim, gnb: GnbIndex, addresses: &[Option<std::net::Ipv4Addr>]) {
    net.command(UE, UeCommand::ServiceRequest);
    net.settle(SECOND);
    match gnb {
        HERE => served_by(net, at_home(net), peer_amf(net), gnb),
        _ => served_by(net, peer_amf(net), at_home(net), gnb),
    }
    let ue = if gnb == HERE { at_home(net) } else { peer_amf(net) }.expect("it is there");
    assert_eq!(of(ue), addresses, "the UPF stays, and with it the addresses");
    let slots = net.cta().occupancy().0 + net.peer_amf().occupancy().0;
    assert_eq!(slots, 1, "one of the cores knows it");
}

fn of(ue: &UeContext) -> Vec<Option<std::net::Ipv4Addr>> {
    ue.sessions.values().map(|s| s.address.ipv4).collect()
}

fn addresses(net: &Sim) -> Vec<Option<std::net::Ipv4Addr>> {
    of(at_home(net).expect("it is here"))
}

/// The name of the UE's keys: another one after each authentication.
fn keys(net: &Sim) -> Option<NgKsi> {
    net.ue_ref(UE).security().map(|(ksi, _)| ksi)
}

#[test] // TS 23.502 §4.2.2.2.2 inter-AMF: the UE is not authenticated again, its keys and sessions come along, and its former AMF forgets it; and back
fn an_idle_ue_moves_to_another_amf_and_back() {
    let mut net = scene(21);
    let addresses = addresses(&net);
    let proved = keys(&net);
    for gnb in [THERE, HERE, THERE] {
        go(&mut net, gnb);
        lives(&mut net, gnb, &addresses);
    }
    assert_eq!(keys(&net), proved, "its keys came along");
    no_violations(&net);
    assert_eq!(net.not_taken(), []);
    for n in [1, 2] {
        net.check_path(UE, psi(n));
    }
}

#[test] // TS 23.502 §4.2.2.2.2 inter-AMF: a UE whose connection its gNB still believes in: its former AMF lets that go
fn a_ue_that_left_without_a_word() {
    let mut net = scene(22);
    let (addresses, proved) = (addresses(&net), keys(&net));
    net.lose_radio(UE);
    assert!(at_home(&net).is_some_and(UeContext::is_connected));
    net.move_ue(UE, THERE);
    net.settle(SECOND * 6);
    lives(&mut net, THERE, &addresses);
    assert_eq!((keys(&net), net.gnb_ref(HERE).contexts()), (proved, 0));
    no_violations(&net);
}

#[test] // packets that arrived while the UE was between the AMFs reach it there
fn packets_that_wait_go_along() {
    let mut net = scene(23);
    go_idle(&mut net, UE);
    net.inject_n14_fault(1, N14Fault::Cut);
    net.check_path(UE, psi(1)); // it waits, and the UE is paged in vain
    net.restore_n14();
    go(&mut net, THERE);
    net.command(UE, UeCommand::ServiceRequest);
    net.settle(SECOND);
    net.check_path(UE, psi(1));
    net.check_path(UE, psi(2));
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.2.2.2 inter-AMF loss, TS 24.501 §5.5.1.3.8 a, c: REGISTRATION ACCEPT never comes, and the UE shows its former AMF's 5G-GUTI once more
fn an_accept_that_is_lost_with_its_connection() {
    for (patience, handed_over) in [(1, false), (14, false), (40, false), (1, true), (40, true)] {
        let mut net = scene(29);
        let (addresses, proved) = (addresses(&net), keys(&net));
        let former = net.ue_ref(UE).s_tmsi();
        net.ue_mut(UE).faults_mut().ignore.push((MessageType::RegistrationAccept, 99));
        match handed_over {
            true => net.hand_over(UE, THERE, Via::N2),
            false => {
                go_idle(&mut net, UE);
                net.move_ue(UE, THERE);
            }
        }
        net.settle(SECOND * patience);
        assert_eq!(net.ue_ref(UE).s_tmsi(), former, "it has heard of no other");
        net.lose_radio(UE);
        net.ue_mut(UE).faults_mut().ignore.clear();
        net.settle(SECOND * 40);
        lives(&mut net, THERE, &addresses);
        assert_eq!(keys(&net), proved, "the UE is not authenticated again");
        no_violations(&net);
    }
}

#[test] // TS 24.501 §5.5.1.3.8 a: the same of a home whose CTA or CPF is lost at any moment of it
fn an_accept_that_is_lost_and_then_a_cta_or_a_cpf() {
    let home = || {
        let (home, peer_amf) = two_amf_configs();
        let mut net = with(Sim::builder(30).config(home).cpfs(3, 1).cta_replica().build(), peer_amf);
        go(&mut net, THERE);
        go_idle(&mut net, UE);
        net.ue_mut(UE).faults_mut().ignore.push((MessageType::RegistrationAccept, 99));
        net.move_ue(UE, HERE);
        net.settle(SECOND);
        net
    };
    let comes_again = |net: &mut Sim| {
        net.lose_radio(UE);
        net.ue_mut(UE).faults_mut().ignore.clear();
        net.settle(SECOND * 20);
    };
    let addresses = addresses(&home());
    with_each_loss(
        home,
        comes_again,
        |net| lives(net, HERE, &addresses),
        |net, _| lives(net, HERE, &addresses),
    );
}

#[test] // TS 23.502 §4.2.2.2.2 inter-AMF, TS 24.501 §5.5.1.2.4: an initial registration begins without sessions; what it had ends with its record at the former AMF
fn an_initial_registration_brings_keys_and_no_session() {
    let mut net = scene(24);
    let proved = keys(&net);
    go_idle(&mut net, UE);
    net.command(UE, UeCommand::Deregister { switch_off: true });
    net.move_ue(UE, THERE); // before the network has heard it
    net.command(UE, UeCommand::Register);
    net.settle(SECOND * 6);
    let there = peer_amf(&net).expect("it is there");
    assert_eq!((there.sessions.len(), net.upf_sessions()), (0, 0));
    assert_eq!((at_home(&net).map(|p| p.id), keys(&net)), (None, proved));
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.2.2.2 inter-AMF: a subscriber owner the other core does not know is refused there, and its record stays
fn a_ue_without_subscription_at_the_peer_amf_keeps_its_context() {
    let mut net = scene(25);
    let supi = at_home(&net).and_then(|p| p.amf.supi).expect("it is here");
    net.peer_amf_subscribers().unknown.push(supi);
    go_idle(&mut net, UE);
    net.move_ue(UE, THERE);
    net.settle(SECOND * 6);
    assert!(peer_amf(&net).is_none());
    assert_eq!(at_home(&net).map(|p| p.sessions.len()), Some(2));
    assert_eq!(net.peer_amf().occupancy().0, 0);
}

#[test] // TS 23.502 §4.2.2.2.2 inter-AMF loss: each message between the two is lost, or comes twice, or is the last, or a core dies as it comes
fn whatever_befalls_any_message_ue_and_cores_agree() {
    let (before, sent) = {
        let mut net = scene(26);
        let before = net.n14_messages();
        go(&mut net, THERE);
        (before, net.n14_messages())
    };
    assert_eq!(sent - before, 4, "a question, the context, the UE's registration, its sessions");
    for nth in before + 1..=sent {
        for fate in N14Fault::ALL {
            let mut net = scene(26);
            let what = format!("message {nth} {fate:?}");
            net.inject_n14_fault(nth, fate);
            go(&mut net, THERE);
            if matches!(fate, N14Fault::Lost | N14Fault::Repeated) {
                is_in_one_place(&mut net, &what);
                assert_eq!(net.ue_ref(UE).sessions().count(), 2, "{what}");
            }
            comes_to_rest(&mut net, &what);
        }
    }
}

#[test] // TS 23.502 §4.2.2.2.2 inter-AMF fault: a context is only given to an AMF that presents a message protected by the UE, and only accepted from an AMF that was asked
fn a_faulty_peer_amf_is_refused_and_counted() {
    let mut net = scene(27);
    go_idle(&mut net, UE);
    let ue = at_home(&net).expect("it is here");
    let (id, tmsi) = (ue.id, ue.amf.tmsi.expect("it has one"));
    let relation = Relation { source: id, token: [7; 16] };
    let amf_id = net.cta().config().amf.amf_id;
    let sent = |body| N14 { relation, body }.to_flat();
    for (tmsi, nas) in
        [(tmsi, vec![]), (tmsi, vec![0x7e, 1, 0, 0, 0, 0, 9, 0x7e, 0]), (Tmsi(!tmsi.0), vec![0x7e])]
    {
        net.inject_n14(
            sent(N14Body::TransferUeContext(UeProof { amf_id, tmsi, nas, by_replica: false })).octets(),
        );
    }
    net.inject_n14(sent(N14Body::UeContextNotTransferred(id)).octets());
    net.inject_n14(sent(N14Body::NotRegistered).octets());
    net.inject_n14(sent(N14Body::Registered { smf: [127, 0, 0, 9].into(), sessions: vec![] }).octets());
    net.settle(SECOND * 3);
    net.command(UE, UeCommand::ServiceRequest);
    net.settle(SECOND);
    served_by(&net, at_home(&net), peer_amf(&net), HERE);
    assert_eq!(net.peer_amf().occupancy().0, 0);
    assert!(net.not_taken().iter().all(|why| *why == N14Error::Unknown));
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.2.2.2 inter-AMF loss: a home of several processes loses one of them at each message of the way out and in
fn a_cta_or_a_cpf_lost_at_any_message_of_the_procedure() {
    let home = || {
        let (home, peer_amf) = two_amf_configs();
        let mut net = with(Sim::builder(28).config(home).cpfs(3, 1).cta_replica().build(), peer_amf);
        go_idle(&mut net, UE);
        net
    };
    let there_and_back = |net: &mut Sim| [THERE, HERE].into_iter().for_each(|gnb| go(net, gnb));
    let addresses = addresses(&home());
    with_each_loss(
        home,
        there_and_back,
        |net| lives(net, HERE, &addresses),
        |net, _| lives(net, HERE, &addresses),
    );
}

/// Sequence numbers and ciphertexts of the cores' messages to UEs, until new keys were proposed.
fn sent(net: &mut Sim) -> Vec<(u8, Vec<u8>)> {
    let nas = net.tapped().into_iter().filter_map(|m| match m {
        Message::DownlinkNasTransport(m) => Some(m.nas_pdu),
        Message::InitialContextSetupRequest(m) => m.nas_pdu,
        _ => None,
    });
    let proposes = |nas: &Vec<u8>| nas[1] & 0xf == SecurityHeaderType::IntegrityProtectedWithNewContext as u8;
    let ciphered = |nas: &Vec<u8>| nas[1] & 0xf == SecurityHeaderType::IntegrityProtectedAndCiphered as u8;
    nas.take_while(|nas| !proposes(nas)).filter(ciphered).map(|nas| (nas[6], nas[7..].to_vec())).collect()
}

/// No other message was sent under a used COUNT.
fn no_count_twice(sent: &[(u8, Vec<u8>)], what: &str) {
    let mut by_count = BTreeMap::new();
    for (count, text) in sent {
        assert_eq!(by_count.entry(count).or_insert(text), &text, "{what}: sequence number {count}");
    }
}

#[test] // TS 33.501 §6.4.3: a core to which a UE returns uses no COUNT that another has used meanwhile under the same keys
fn no_nas_count_is_reused_when_a_ue_returns_from_the_peer_amf() {
    let mut returned = 0;
    for step in 0..60 {
        let (home, mut there) = two_amf_configs();
        there.amf.access.authentication.after = Some(Duration::ZERO); // it challenges the UE, under the keys that came
        let mut net = with(Sim::builder(31).config(home).build(), there);
        go_idle(&mut net, UE);
        net.tap();
        net.move_ue(UE, THERE);
        net.settle(Duration::from_millis(step));
        let mut all = sent(&mut net);
        let there = all.len();
        net.move_ue(UE, HERE);
        net.settle(SECOND * 100);
        all.extend(sent(&mut net));
        let what = format!("it returns after {step} ms");
        no_count_twice(&all, &what);
        assert_eq!(net.violations().0, 0, "{what}");
        returned += usize::from(there > 0 && all.len() > there);
    }
    assert!(returned > 5, "it has returned {returned} times from where it was spoken to");
}

#[test] // the same of one that was handed over, while the two cores do not reach each other
fn no_nas_count_is_reused_after_a_handover_that_the_source_has_not_noticed() {
    let mut net = scene(32);
    net.tap();
    net.ue_mut(UE).faults_mut().ignore.push((MessageType::RegistrationAccept, 99));
    net.inject_n14_fault(net.n14_messages() + 3, N14Fault::Cut);
    net.hand_over(UE, THERE, Via::N2);
    net.settle(SECOND * 20);
    assert!(at_home(&net).is_some() && peer_amf(&net).is_some(), "each believes that it has the UE");
    let mut all = sent(&mut net);
    let there = all.len();
    net.ue_mut(UE).faults_mut().ignore.clear();
    net.move_ue(UE, HERE);
    net.settle(SECOND * 40);
    all.extend(sent(&mut net));
    assert!(there > 0 && all.len() > there, "{there} of {}", all.len());
    no_count_twice(&all, "it returns");
    assert_eq!(net.violations().0, 0);
}

#[test] // DESIGN §4 rule 10: the gNB has heard nothing of the UE yet, and knows its own name of the connection alone
fn a_panic_while_another_amf_is_asked_leaves_no_context_at_the_gnb() {
    let mut net = scene(33);
    go(&mut net, THERE);
    go_idle(&mut net, UE);
    net.inject_n14_fault(net.n14_messages() + 1, N14Fault::Lost); // so it asks for a second
    net.move_ue(UE, HERE);
    net.settle(SECOND / 10);
    let asks = net.contexts().next().expect("it has come").id;
    assert_eq!(net.gnb_ref(HERE).contexts(), 1);
    net.order(asks, whimbrel_control::Command::Panic);
    net.settle(SECOND / 10);
    assert_eq!((net.contexts().count(), net.gnb_ref(HERE).contexts()), (0, 0));
    comes_to_rest(&mut net, "afterwards");
}

#[test] // TS 23.502 §4.2.2.2.2 step 14d: the UDM may deregister the UE from the former AMF while the transfer of its context still runs
fn a_deregistration_by_the_udm_while_the_context_is_transferred_takes_nothing_from_the_ue() {
    for milliseconds in 0..12 {
        let mut net = scene(31);
        let (addresses, supi) = (addresses(&net), net.ue_ref(UE).config().supi);
        go_idle(&mut net, UE);
        net.move_ue(UE, THERE);
        while net.peer_amf().find(supi).is_none() {
            net.advance(SECOND / 1000);
        }
        net.advance(SECOND / 1000 * milliseconds);
        net.deregister_by_udm(supi);
        net.settle(SECOND * 6);
        lives(&mut net, THERE, &addresses);
        no_violations(&net);
        for n in [1, 2] {
            net.check_path(UE, psi(n));
        }
    }
}
