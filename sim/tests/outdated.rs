//! Replicas that do not get UEs' states (Neutrino §4.2.4): logs wait for a bounded time, the replicas get notice that their state is outdated and
//! which CPF has the current one, and no UE is served from an outdated state. And logs that overflow.

use std::time::Duration;

use crate::common::by_hand::{RAN_ID, octets, to_switch};
use crate::common::day::of;
use crate::common::stage::session;
use crate::common::*;
use whimbrel_control::{Command as CoreCommand, RanEvent, UeId};
use whimbrel_ngap::Message;
use whimbrel_ngap::msg::PathSwitchRequest;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::replication::{CpfId, Marking, UeLogLimits};
use whimbrel_resilience::{LogLimits, ProtocolViolation};
use whimbrel_sim::{CpfLoss, GnbIndex, Sim, UeIndex};

/// Longer than a log waits for a replica, plus the interval of the check for that.
const LONG: Duration = Duration::from_secs(40);

/// A registered UE with two replicas, of which the second gets nothing any more from the primary.
struct Scene {
    net: Sim,
    ue: UeIndex,
    id: UeId,
    serves: CpfId,
    backs: [CpfId; 2],
}

impl Scene {
    fn new(logs: LogLimits) -> Self {
        let stage = of(Sim::builder(1).cpfs(3, 2).logs(logs).build(), 1);
        let (mut net, ue) = (stage.net, stage.ues[0]);
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        let context = net.contexts().next().expect("it is registered").id;
        let serves = net.cta().served_by(context).expect("a CPF serves it");
        let backs = net.cta().backed_by(context).try_into().expect("two replicas");
        Self { net, ue, id: context, serves, backs }
    }

    /// The UE gets a session, whose state the second replica does not get from the primary.
    fn session_without_second(&mut self) {
        self.net.hold_between_cpfs(self.serves, self.backs[1]);
        self.net.command(self.ue, session());
        self.net.settle(SECOND);
        assert_eq!(self.net.cta().logged().1, 1, "the log waits");
        self.net.advance(LONG);
        assert_eq!(self.net.cta().logged(), (0, 0), "not for ever");
        assert_eq!(self.net.events.cpf_violations, [(self.backs[1], ProtocolViolation::Lagging)]);
    }

    /// The primary dies at its next message. Gives the CPF that serves the UE then.
    fn lose_primary(&mut self, next: UeCommand) -> Option<CpfId> {
        self.net.lose_cpf_at(self.net.links_taken() + 1, CpfLoss::BeforeInput);
        self.net.command(self.ue, next);
        self.net.settle(SECOND * 3);
        self.net.cta().served_by(self.id)
    }
}

#[test]
fn an_outdated_replica_gets_the_state_from_another_replica() {
    let mut scene = Scene::new(LogLimits::default());
    scene.session_without_second();
    // When the two others die one after the other, the UE does not notice.
    scene.lose_primary(UeCommand::PeriodicRegistration);
    go_idle(&mut scene.net, scene.ue);
    scene.lose_primary(UeCommand::ServiceRequest);
    let counts = scene.net.cta().replication_counters();
    assert_eq!((counts.cpfs_lost, counts.taken_over, counts.lost, counts.diverged), (2, 2, 0, 0));
    scene.net.check_user_plane();
    no_violations(&scene.net);
}

#[test]
fn a_replica_that_gets_no_state_does_not_take_over() {
    let mut scene = Scene::new(LogLimits::default());
    let [first, second] = scene.backs;
    scene.net.hold_between_cpfs(first, second);
    scene.session_without_second();
    assert_eq!(scene.lose_primary(UeCommand::PeriodicRegistration), Some(first), "the other one has it");
    go_idle(&mut scene.net, scene.ue);
    scene.net.advance(LONG);
    scene.lose_primary(UeCommand::ServiceRequest);
    let counts = scene.net.cta().replication_counters();
    assert_eq!(
        (counts.taken_over, counts.lost, counts.diverged),
        (1, 1, 0),
        "no replica has it: the UE registers again"
    );
    assert!(registered(&scene.net, scene.ue));
    no_violations(&scene.net);
}

#[test] // Neutrino §4.2.4 (1) (a) (ii)
fn a_state_that_arrives_after_the_notice_that_it_is_outdated_is_ignored() {
    let mut scene = Scene::new(LogLimits::default());
    let [first, second] = scene.backs;
    scene.net.hold_between_cpfs(first, second);
    scene.net.hold_between_cpfs(scene.serves, second);
    scene.net.command(scene.ue, session());
    scene.net.settle(SECOND);
    go_idle(&mut scene.net, scene.ue);
    scene.net.advance(LONG);
    let held = scene.net.backed();
    // What it was asked for stays stuck; what was sent before the word comes late: the session's state, and the idle UE's.
    assert!(scene.net.release_between_cpfs(scene.serves, second) >= 2);
    scene.net.settle(SECOND);
    assert_eq!(scene.net.backed(), held + 1, "the newest one is what it should hold");
    scene.lose_primary(UeCommand::ServiceRequest);
    scene.lose_primary(UeCommand::PeriodicRegistration);
    let counts = scene.net.cta().replication_counters();
    assert_eq!((counts.taken_over, counts.lost, counts.diverged), (2, 0, 0));
    no_violations(&scene.net);
}

#[test] // Neutrino §4.2.4 (4): the primary dies in the UE's second procedure, and no replica has acknowledged the state after the first one
fn the_papers_mark_at_a_second_procedure_costs_a_registration_and_ours_nothing() {
    for (marking, lost) in [(Marking::WithoutLog, 0), (Marking::AtNextProcedure, 1)] {
        let ue = UeLogLimits { marking, ..UeLogLimits::default() };
        let mut scene = Scene::new(LogLimits { ue, ..LogLimits::default() });
        scene.backs.into_iter().for_each(|replica| scene.net.hold_between_cpfs(scene.serves, replica));
        scene.net.command(scene.ue, session());
        scene.net.settle(SECOND);
        scene.lose_primary(UeCommand::PeriodicRegistration);
        let counts = scene.net.cta().replication_counters();
        assert_eq!(
            (counts.cpfs_lost, counts.taken_over, counts.lost, counts.diverged),
            (1, 1 - lost, lost, 0)
        );
        scene.net.advance(LONG); // a registration that gets no answer is tried again (TS 24.501 §5.5.1.3.7)
        assert!(registered(&scene.net, scene.ue));
        no_violations(&scene.net);
    }
}

#[test]
fn how_long_a_log_waits_is_configured() {
    for (outdated_after, waits) in [(SECOND, false), (LONG * 2, true)] {
        let mut scene = Scene::new(LogLimits { outdated_after, ..LogLimits::default() });
        scene.net.hold_between_cpfs(scene.serves, scene.backs[1]);
        scene.net.command(scene.ue, session());
        scene.net.advance(SECOND * 10);
        assert_eq!(scene.net.cta().logged().1 > 0, waits);
        scene.net.advance(LONG * 3);
        assert_eq!(scene.net.cta().logged(), (0, 0));
    }
}

#[test]
fn a_ue_whose_log_overflowed_counts_as_without_backup_until_a_replica_has_its_state() {
    let ue = UeLogLimits { inputs: 3, ..UeLogLimits::default() };
    let mut scene = Scene::new(LogLimits { ue, ..LogLimits::default() });
    assert_eq!(scene.net.cta().without_backup(), 0);
    scene.backs.into_iter().for_each(|replica| scene.net.hold_between_cpfs(scene.serves, replica));
    scene.net.command(scene.ue, session());
    scene.net.settle(SECOND);
    assert_eq!(scene.net.cta().without_backup(), 1, "it would be lost with its primary");
    scene.net.release_between_cpfs(scene.serves, scene.backs[0]);
    scene.net.settle(SECOND);
    assert_eq!(scene.net.cta().without_backup(), 0);
    no_violations(&scene.net);
}

/// A registered UE with one replica, which gets nothing any more from the primary, and so many CPFs.
fn cut_off(cpfs: u16, logs: LogLimits) -> (Sim, UeIndex, UeId, [CpfId; 2]) {
    let stage = of(Sim::builder(1).cpfs(cpfs, 1).logs(logs).build(), 1);
    let (mut net, ue) = (stage.net, stage.ues[0]);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, session());
    net.settle(SECOND);
    let context = net.contexts().next().expect("it is registered").id;
    let serves = net.cta().served_by(context).expect("a CPF serves it");
    let [backs] = net.cta().backed_by(context).try_into().expect("one replica");
    net.hold_between_cpfs(serves, backs);
    (net, ue, context, [serves, backs])
}

/// What the log does not lead on from is not held by anybody else, or how often a log was full.
fn given_up(net: &Sim) -> (usize, u64) {
    (net.cta().without_backup(), net.cta().bounds().find(|(l, _)| *l == "log").map_or(0, |(_, times)| times))
}

/// The UE sleeps and comes back, so often.
fn wakes_up(net: &mut Sim, ue: UeIndex, times: usize) {
    for _ in 0..times {
        go_idle(net, ue);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
    }
}

#[test]
fn a_busy_ue_gets_another_replica_before_its_log_is_full() {
    let (mut net, ue, context, [serves, backs]) = cut_off(3, LogLimits::default());
    for _ in 0..20 {
        wakes_up(&mut net, ue, 1);
        net.advance(SECOND / 4);
        assert_eq!(given_up(&net), (0, 0));
    }
    let [other] = net.cta().backed_by(context).try_into().expect("one replica");
    assert_ne!(other, backs);
    assert_eq!(net.events.cpf_violations, [(backs, ProtocolViolation::Lagging)]);
    // Late states arrive at a CPF that is no replica any more.
    assert!(net.release_between_cpfs(serves, backs) > 0);
    net.settle(SECOND);
    assert_eq!((net.backed(), net.cta().backed_by(context)), (1, vec![other]), "the UE stays");
    net.lose_cpf(serves);
    net.settle(SECOND);
    assert_eq!(net.cta().served_by(context), Some(other));
    wakes_up(&mut net, ue, 1);
    let counts = net.cta().replication_counters();
    assert_eq!((counts.taken_over, counts.lost, counts.diverged), (1, 0, 0));
    net.check_user_plane();
    no_violations(&net);
}

#[test]
fn a_replica_that_does_not_get_the_state_in_time_is_replaced() {
    let (mut net, ue, context, [serves, backs]) = cut_off(3, LogLimits::default());
    go_idle(&mut net, ue);
    assert_eq!(net.cta().logged().1, 1, "the log waits");
    net.advance(LONG);
    assert_eq!((net.cta().logged(), given_up(&net)), ((0, 0), (0, 0)));
    assert!(!net.cta().backed_by(context).contains(&backs));
    net.lose_cpf(serves);
    net.settle(SECOND);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!(net.cta().replication_counters().lost, 0);
    net.check_user_plane();
    no_violations(&net);
}

#[test]
fn a_ue_whose_log_overflowed_gets_another_replica() {
    let ue = UeLogLimits { inputs: 3, ..UeLogLimits::default() };
    let (mut net, ue, context, [serves, backs]) = cut_off(3, LogLimits { ue, ..LogLimits::default() });
    wakes_up(&mut net, ue, 1);
    assert_eq!(net.cta().without_backup(), 1);
    net.advance(SECOND * 10);
    assert_eq!(net.cta().without_backup(), 0);
    assert!(!net.cta().backed_by(context).contains(&backs));
    net.lose_cpf(serves);
    wakes_up(&mut net, ue, 1);
    assert_eq!(net.cta().replication_counters().lost, 0);
    no_violations(&net);
}

#[test]
fn of_two_lagging_replicas_the_first_to_get_the_state_stays() {
    let (mut net, ue, context, [serves, backs]) = cut_off(3, LogLimits::default());
    let other = (1..=3).map(CpfId).find(|c| ![serves, backs].contains(c)).expect("a third one");
    net.hold_between_cpfs(serves, other);
    go_idle(&mut net, ue);
    net.advance(LONG * 3);
    assert_eq!(net.cta().backed_by(context), [other, backs], "it is tried");
    assert_eq!(net.cta().logged().1, 1, "and what the log leads on from stays");
    net.release_between_cpfs(serves, backs);
    net.advance(LONG * 2);
    assert_eq!((net.cta().backed_by(context), net.cta().logged()), (vec![backs], (0, 0)));
    net.release_between_cpfs(serves, other);
    net.settle(SECOND);
    assert_eq!((net.backed(), net.cta().backed_by(context)), (1, vec![backs]));
    no_violations(&net);
}

#[test]
fn a_lagging_replica_stays_if_there_is_no_other_cpf() {
    let (mut net, ue, context, [_, backs]) = cut_off(2, LogLimits::default());
    wakes_up(&mut net, ue, 3);
    net.advance(LONG);
    assert_eq!((net.cta().backed_by(context), given_up(&net)), (vec![backs], (0, 0)));
    assert_eq!(net.cta().logged().1, 1, "the state is nowhere but in the log");
    // Another CPF joins.
    net.add_cpf();
    net.advance(LONG);
    assert!(net.cta().logged() == (0, 0) && !net.cta().backed_by(context).contains(&backs));
    no_violations(&net);
}

#[test] // one bound for a UE, one for all: a discarded log is reported as such, and no UE loses service
fn a_full_log_costs_the_replay_and_not_the_service() {
    let ue = UeLogLimits { inputs: 3, ..UeLogLimits::default() };
    let full = [
        ("log", LogLimits { ue, ..LogLimits::default() }),
        ("logs", LogLimits { octets: 1000, ..LogLimits::default() }),
    ];
    for (limit, logs) in full {
        let mut scene = Scene::new(logs);
        let bitten = |net: &Sim| net.cta().bounds().find(|(l, _)| *l == limit).map_or(0, |(_, times)| times);
        assert!(bitten(&scene.net) > 0, "a registration is more than that");
        let counts = |e: &&RanEvent| matches!(e, RanEvent::Limited { limit: l, .. } if *l == limit);
        assert_eq!(scene.net.events.ran.iter().filter(counts).count(), 1, "once a second at most");
        assert_eq!(
            (scene.net.events.cpf_violations.len(), scene.net.cta().replication_counters().lagging),
            (0, 0),
            "no fault of replicas"
        );
        assert_eq!(scene.net.cta().logged(), (0, 0));
        // Its replicas have caught up: it goes on as any other.
        go_idle(&mut scene.net, scene.ue);
        scene.lose_primary(UeCommand::ServiceRequest);
        assert_eq!(scene.net.cta().replication_counters().lost, 0);
        no_violations(&scene.net);
    }
}

/// A connected UE with a session, whose state only the primary has, and whose log is discarded.
fn alone() -> (Sim, UeIndex, [GnbIndex; 2]) {
    let ue = UeLogLimits { inputs: 3, ..UeLogLimits::default() };
    let stage = of(Sim::builder(1).cpfs(2, 1).logs(LogLimits { ue, ..LogLimits::default() }).build(), 1);
    let (mut net, ue) = (stage.net, stage.ues[0]);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let context = net.contexts().next().expect("it is registered").id;
    let serves = net.cta().served_by(context).expect("a CPF serves it");
    net.hold_between_cpfs(serves, net.cta().backed_by(context)[0]);
    net.command(ue, session());
    net.settle(SECOND);
    wakes_up(&mut net, ue, 1);
    assert_eq!(net.cta().without_backup(), 1);
    (net, ue, stage.gnbs)
}

#[test] // TS 38.413 §8.4.4.3: a CPF is lost, and its UEs with it, at each message while a gNB waits for a UE's paths
fn a_path_switch_of_a_ue_that_is_lost_is_refused() {
    let mut lost = 0;
    for nth in 1..=6 {
        let (mut net, ue, gnbs) = alone();
        net.tap();
        net.lose_cpf_at(net.links_taken() + nth, CpfLoss::BeforeInput);
        net.hand_over(ue, gnbs[1], Via::Xn);
        net.settle(SECOND * 20);
        let heard = net.tapped();
        let counts = |is: fn(&Message) -> bool| heard.iter().filter(|m| is(m)).count();
        let done = counts(|m| matches!(m, Message::PathSwitchRequestAcknowledge(_)));
        let refused = counts(|m| matches!(m, Message::PathSwitchRequestFailure(_)));
        assert_eq!(done + refused, 1, "at message {nth}: {heard:?}");
        lost += refused;
        net.command(ue, UeCommand::ServiceRequest);
        net.advance(LONG);
        assert!(registered(&net, ue), "at message {nth}: it registers again if it was lost");
        no_violations(&net);
    }
    assert!(lost >= 2, "{lost}: before the request was run, and while the UPF was asked");
}

/// What the second gNB hears when it asks for the path of the UE, so long after something has happened to that one.
fn asked_after(time: Duration, happens: impl FnOnce(&mut Sim, UeId)) -> Vec<Message> {
    let (mut net, _, gnbs) = alone();
    let ue = net.contexts().next().expect("it is registered");
    let (id, amf_ue_ngap_id) = (ue.id, ue.amf.connection.as_ref().expect("it is connected").amf_ue_ngap_id);
    net.take_over(gnbs[1]);
    net.advance(SECOND * 10);
    happens(&mut net, id);
    net.advance(time);
    net.inject(gnbs[1], &octets(PathSwitchRequest::new(RAN_ID, amf_ue_ngap_id, vec![to_switch(1)])));
    net.settle(SECOND);
    net.take_ngap(gnbs[1])
}

#[test] // TS 38.413 §8.4.4.3: a path switch that crosses the release of its UE, at any interval
fn a_path_switch_that_crosses_the_end_of_its_ue_is_refused() {
    for milliseconds in 0..60 {
        let ends: [fn(&mut Sim, UeId); 2] = [
            |net, ue| net.lose_cpf(net.cta().served_by(ue).expect("a CPF serves it")),
            |net, ue| net.order(ue, CoreCommand::Superseded),
        ];
        for end in ends {
            let heard = asked_after(Duration::from_millis(milliseconds), end);
            let refused = matches!(heard.as_slice(), [Message::PathSwitchRequestFailure(m)] if m.ran_ue_ngap_id == RAN_ID);
            assert!(refused, "after {milliseconds} ms: {heard:?}");
        }
    }
}
