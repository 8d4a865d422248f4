//! UEs that run all procedures one after the other, in a region with CPFs.

use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::{self, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, ue_config};

use super::by_hand::psi;
use super::stage::session;
use super::*;

/// Two gNBs and some UEs.
pub(crate) struct Stage {
    pub(crate) net: Sim,
    pub(crate) gnbs: [GnbIndex; 2],
    pub(crate) ues: Vec<UeIndex>,
}

/// With three CPFs, and one replica per UE.
pub(crate) fn stage(seed: u64, ues: u32) -> Stage {
    of(Sim::builder(seed).cpfs(3, 1).build(), ues)
}

pub(crate) fn of(mut net: Sim, ues: u32) -> Stage {
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
    net.settle(SECOND);
    let ues = (1..=ues).map(|n| net.add_ue(gnbs[0], ue_config(n))).collect();
    Stage { net, gnbs, ues }
}

/// What one UE does, step by step.
type Step = (&'static str, fn(&mut Stage, UeIndex));

/// Longer than any partition of a test.
const PARTITION: Duration = Duration::from_secs(4);

/// [`go_idle`], also if a partition delays it.
fn release(net: &mut Sim, ue: UeIndex) {
    net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
    net.settle(SECOND);
    if net.ue_ref(ue).is_connected() {
        net.settle(PARTITION);
    }
    assert!(!net.ue_ref(ue).is_connected(), "the UE is idle");
}

const DAY: [Step; 11] = [
    ("registration", |s, ue| s.net.command(ue, UeCommand::Register)),
    ("session establishment", |s, ue| s.net.command(ue, session())),
    ("AN release", |s, ue| release(&mut s.net, ue)),
    ("service request", |s, ue| s.net.command(ue, UeCommand::ServiceRequest)),
    ("Xn handover", |s, ue| s.net.hand_over(ue, s.gnbs[1], Via::Xn)),
    ("N2 handover", |s, ue| s.net.hand_over(ue, s.gnbs[0], Via::N2)),
    ("periodic registration", |s, ue| {
        release(&mut s.net, ue);
        s.net.command(ue, UeCommand::PeriodicRegistration);
    }),
    ("a second session", |s, ue| s.net.command(ue, session())),
    ("session release", |s, ue| s.net.command(ue, UeCommand::ReleaseSession(psi(1)))),
    ("mobility registration", |s, ue| s.net.command(ue, UeCommand::Register)),
    ("deregistration", |s, ue| s.net.command(ue, UeCommand::Deregister { switch_off: false })),
];

/// All UEs run the procedures; after each one UEs and core agree.
pub(crate) fn live(stage: &mut Stage, what: &dyn Fn() -> String) {
    live_patiently(stage, SECOND * 3, what);
    no_violations(&stage.net);
}

/// The same where messages may be lost or come twice: each step has so long to come to its end.
pub(crate) fn live_patiently(stage: &mut Stage, patience: Duration, what: &dyn Fn() -> String) {
    for (step, act) in DAY {
        for ue in stage.ues.clone() {
            act(stage, ue);
        }
        stage.net.settle(patience);
        for &ue in &stage.ues {
            let refused =
                stage.net.ue_events(ue).iter().find(|(_, e)| matches!(e, ue::Event::Refused { .. }));
            assert!(refused.is_none(), "{} in {step}: {refused:?}", what());
            let at_home = step != "deregistration";
            assert_eq!(registered(&stage.net, ue), at_home, "{} in {step}", what());
        }
        let agreed = stage.net.agree();
        assert_eq!(agreed, Ok(()), "{} in {step}", what());
    }
    assert_eq!(stage.net.contexts().count(), 0, "{}: all UEs have deregistered", what());
    assert_eq!((stage.net.upf_sessions(), stage.net.cta().logged()), (0, (0, 0)), "{}", what());
}
