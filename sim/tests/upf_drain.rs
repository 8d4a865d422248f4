//! A UPF is drained before maintenance: new sessions go to another one, those of SSC mode 3 and 2 are moved, and the rest ends at a stated time (TS 23.502
//! §4.3.5, TS 29.244 §6.2.8.3).

use std::time::Duration;

use crate::common::*;
use whimbrel_control::UpfId;
use whimbrel_control::config::Upf;
use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::{SmCause, SscMode};
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_resilience::UpfDrainProgress;
use whimbrel_sim::{
    CpfLoss, CtaLoss, GnbIndex, Sim, SimBuilder, UeIndex, UpfState, default_config, ue_config,
};

const GNB: GnbIndex = GnbIndex(0);
/// The UPF that is drained: it is chosen as long as it can be used.
const A: UpfId = UpfId(0);
const B: UpfId = UpfId(1);
/// UEs with a session of SSC mode 1, 2 and 3.
const FIXED: UeIndex = UeIndex(0);
const RESTARTED: UeIndex = UeIndex(1);
const REPLACED: UeIndex = UeIndex(2);
const UES: [(UeIndex, SscMode); 3] =
    [(FIXED, SscMode::One), (RESTARTED, SscMode::Two), (REPLACED, SscMode::Three)];
/// After that time the sessions of SSC mode 1 are released.
const WITHIN: Duration = Duration::from_secs(300);

/// Two UPFs, of which the first has all sessions: one of each SSC mode.
fn scene(builder: SimBuilder) -> Sim {
    let mut config = default_config();
    let upf = |name: &str, priority| Upf { name: name.into(), priority, ..Upf::default() };
    config.smf.upfs = vec![upf("a", 0), upf("b", 1)];
    let mut net = builder.config(config).build();
    net.add_gnb(gnb_config(1));
    for (n, (ue, mode)) in (1..).zip(UES) {
        let mut config = ue_config(n);
        let mut profile = (*config.profile).clone();
        profile.ssc_mode = mode;
        config.profile = profile.into();
        let mut subscription = subscription();
        subscription.slices[0].dnns[0].ssc_mode = mode;
        net.home().subscribe_one(config.supi, subscription);
        assert_eq!(net.add_ue(GNB, config), ue);
    }
    net.settle(SECOND / 10);
    for (ue, _) in UES {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        ask_for_session(&mut net, ue);
    }
    assert_eq!(sessions(&mut net), [3, 0]);
    net
}

fn ask_for_session(net: &mut Sim, ue: UeIndex) {
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
}

fn sessions(net: &mut Sim) -> [usize; 2] {
    [A, B].map(|upf| net.nth_upf(upf).c.session_count())
}

fn at_ue(net: &Sim, ue: UeIndex) -> Vec<PduSessionId> {
    net.ue_ref(ue).sessions().map(|s| s.id).collect()
}

fn ues_left(net: &Sim) -> Option<u32> {
    let mut drains = net.cta().upf_drains();
    drains.next().map(|UpfDrainProgress { upf, ues_left, .. }| {
        assert_eq!(upf, A);
        ues_left
    })
}

/// The causes with which the network has released sessions of a UE.
fn released(net: &Sim, ue: UeIndex) -> Vec<SmCause> {
    let cause = |e: &Event| match e {
        Event::SessionReleased { cause, .. } => *cause,
        _ => None,
    };
    net.ue_events(ue).iter().filter_map(|(_, e)| cause(e)).collect()
}

const AGAIN: SmCause = SmCause::ReactivationRequested;

#[test] // TS 23.501 §6.3.3, §5.6.9.2; TS 23.502 §4.3.5.1, §4.3.5.2
fn sessions_that_can_be_moved_leave_a_drained_upf_at_once_and_the_rest_at_the_stated_time() {
    for idle in [false, true] {
        let mut net = scene(Sim::builder(1).recorded());
        if idle {
            UES.iter().for_each(|(ue, _)| go_idle(&mut net, *ue));
        }
        net.drain_upf(A, Some(WITHIN));
        net.settle(SECOND * 5);
        // SSC mode 3: another one first. SSC mode 2: released, for the UE to set it up again.
        assert_eq!(at_ue(&net, REPLACED).len(), 2, "idle: {idle}");
        assert_eq!((at_ue(&net, RESTARTED), released(&net, RESTARTED)), (vec![], vec![AGAIN]));
        assert_eq!((at_ue(&net, FIXED).len(), released(&net, FIXED)), (1, vec![]));
        assert!(!idle || !net.ue_ref(FIXED).is_connected(), "it was not paged");
        assert_eq!((sessions(&mut net), ues_left(&net)), ([2, 1], Some(2)));
        ask_for_session(&mut net, RESTARTED);
        assert_eq!(sessions(&mut net), [2, 2]);
        net.settle(Duration::from_secs(200)); // the lifetime of the former session
        assert_eq!(
            (at_ue(&net, REPLACED).len(), released(&net, REPLACED)),
            (1, vec![SmCause::RegularDeactivation])
        );
        assert_eq!(
            (sessions(&mut net), ues_left(&net)),
            ([1, 2], Some(1)),
            "the address of SSC mode 1 stays"
        );
        net.settle(WITHIN);
        assert_eq!((at_ue(&net, FIXED), released(&net, FIXED)), (vec![], vec![AGAIN]));
        assert_eq!((sessions(&mut net), ues_left(&net)), ([0, 2], Some(0)));
        ask_for_session(&mut net, FIXED);
        assert_eq!(sessions(&mut net), [0, 3]);
        net.check_user_plane();
        no_violations(&net);
    }
}

#[test] // a UE that was not reached gets the session again when it comes: PDU session status, TS 24.501 §5.6.1.4
fn a_ue_that_does_not_answer_loses_its_session_at_the_drained_upf() {
    let mut net = scene(Sim::builder(2).recorded());
    go_idle(&mut net, FIXED);
    let config = gnb_config(2);
    let other = net.add_gnb(config);
    net.settle(SECOND);
    net.disconnect_gnb(whimbrel_ids::GlobalGnbId::new(whimbrel_ids::PlmnId::TEST, 2, 28).expect("28 bits"));
    net.move_ue(FIXED, other); // where no page reaches it
    net.drain_upf(A, Some(Duration::ZERO));
    net.settle(Duration::from_secs(25));
    assert_eq!(
        (at_ue(&net, FIXED).len(), ues_left(&net)),
        (1, Some(2)),
        "it is paged, and the session of SSC mode 3 lives"
    );
    net.settle(Duration::from_secs(10));
    assert_eq!((sessions(&mut net), ues_left(&net)), ([0, 1], Some(0)));
    net.move_ue(FIXED, GNB);
    net.command(FIXED, UeCommand::ServiceRequest);
    net.settle(SECOND * 3);
    assert_eq!(at_ue(&net, FIXED), [], "it learns of it when it comes");
    ask_for_session(&mut net, FIXED);
    assert_eq!(sessions(&mut net), [0, 2]);
    no_violations(&net);
}

#[test] // the order stands while the UPF is away, and until the operator ends it
fn a_drained_upf_gets_no_session_until_the_drain_ends() {
    let mut net = scene(Sim::builder(3).recorded());
    net.drain_upf(A, Some(Duration::ZERO));
    net.settle(Duration::from_secs(40));
    assert_eq!(ues_left(&net), Some(0));
    net.restart_nth_upf(A);
    net.settle(Duration::from_secs(40));
    assert!(net.cta().upf_is_up());
    let others = [FIXED, RESTARTED];
    others.iter().for_each(|ue| ask_for_session(&mut net, *ue));
    assert_eq!(sessions(&mut net), [0, 3]);
    net.drain_upf(A, None);
    assert_eq!(ues_left(&net), None);
    net.command(FIXED, UeCommand::ReleaseSession(at_ue(&net, FIXED)[0]));
    net.settle(SECOND);
    ask_for_session(&mut net, FIXED);
    assert_eq!(sessions(&mut net), [1, 2], "sessions that went stay where they are");
    no_violations(&net);
}

#[test] // TS 29.244 §6.2.7.3, §6.2.8.3: a UPF that grants the time for it is drained, and then released
fn a_upf_that_asks_for_its_release_is_drained() {
    let mut net = scene(Sim::builder(4).recorded());
    net.retire_upf(A, WITHIN);
    net.settle(SECOND * 5);
    assert_eq!(
        (at_ue(&net, REPLACED).len(), at_ue(&net, RESTARTED).len(), at_ue(&net, FIXED).len()),
        (2, 0, 1)
    );
    assert_eq!((sessions(&mut net), ues_left(&net)), ([2, 1], Some(2)));
    ask_for_session(&mut net, RESTARTED);
    net.settle(WITHIN - SECOND * 20);
    assert_eq!(released(&net, FIXED), [AGAIN]);
    assert_eq!((sessions(&mut net), ues_left(&net)), ([0, 2], None));
    assert_eq!(net.nth_upf(A).c.associations().count(), 0, "it was released before its time");
    no_violations(&net);
}

#[test] // a UPF that is drained dies: its sessions end, as after any death
fn a_drained_upf_dies() {
    let mut net = scene(Sim::builder(5).recorded());
    net.drain_upf(A, Some(WITHIN));
    net.settle(SECOND);
    net.set_nth_upf(A, UpfState::Silent);
    net.advance(Duration::from_secs(60));
    assert_eq!((released(&net, FIXED), ues_left(&net)), (vec![AGAIN], Some(0)));
    assert_eq!(sessions(&mut net)[1], 1);
    no_violations(&net);
}

#[test] // Neutrino §4.2.5: a CPF or a CTA is lost at each message of a drain
fn a_cta_or_a_cpf_lost_at_any_message_of_a_drain() {
    let home = || scene(Sim::builder(6).cpfs(3, 1).cta_replica());
    let drained = |net: &mut Sim| {
        net.drain_upf(A, Some(SECOND * 3));
        net.settle(SECOND * 8);
        net.advance(Duration::from_secs(130)); // paging of UEs that a lost CTA left idle, and the lifetime of the former session
    };
    let is_drained = |net: &mut Sim, what: &str| {
        assert_eq!((sessions(net), ues_left(net)), ([0, 1], Some(0)), "{what}");
        assert_eq!(at_ue(net, REPLACED).len(), 1, "{what}");
        for (ue, _) in UES {
            if at_ue(net, ue).is_empty() {
                ask_for_session(net, ue);
            }
        }
        assert_eq!(sessions(net), [0, 3], "{what}");
        net.check_user_plane();
    };
    let mut net = home();
    drained(&mut net);
    is_drained(&mut net, "no loss");
    no_violations(&net);
    // One kind of loss at each, in turn: a drain has many inputs, which are alike.
    let mut net = home();
    let (input, message) = (net.inputs_taken() + 1, net.links_taken() + 1);
    drained(&mut net);
    for (input, how) in (input..=net.inputs_taken()).zip(CtaLoss::ALL.into_iter().cycle()) {
        let mut net = home();
        net.lose_cta_at(input, how);
        drained(&mut net);
        is_drained(&mut net, &format!("{how:?} at input {input}"));
    }
    for (message, how) in (message..=net.links_taken()).zip(CpfLoss::ALL.into_iter().cycle()) {
        let mut net = home();
        net.lose_cpf_at(message, how);
        drained(&mut net);
        is_drained(&mut net, &format!("{how:?} at message {message}"));
    }
}
