//! Whether CPFs are heard on their links. Heartbeats go beside these, and tell nothing of a network that takes the ones and not the
//! others, nor of a thread that waits forever: who is not heard for a while is asked, and who does not answer while others do is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_resilience::detector::Timing;
use whimbrel_resilience::replication::CpfId;

/// Who is not heard for so long is asked. Nobody is who does work.
const ASKED_AFTER: Duration = Duration::from_millis(500);
/// So long it has for an answer at least: a hundred turns of one that does as much at a time as it may, or two packets that TCP loses one after
/// the other and sends again 0.2 and 0.6 s after the first. UEs and gNBs wait for an answer for several seconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// While somebody is asked, this process looks so often. If it comes later it was held up, and could hear nobody.
const LOOKS_WITHIN: Duration = Duration::from_millis(50);
const HELD_UP: Duration = Duration::from_millis(200);

/// One of them.
struct LastHeard {
    at: Instant,
    /// Since when it is asked.
    asked: Option<Instant>,
}

/// Those that have links.
#[derive(Default)]
pub(super) struct LinkLiveness {
    members: BTreeMap<CpfId, LastHeard>,
    looked: Instant,
    mute: u64,
}

/// What comes of a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LivenessCheck {
    /// These are to be asked something.
    pub(super) ask: Vec<CpfId>,
    /// These do not answer.
    pub(super) mute: Vec<CpfId>,
}

impl LinkLiveness {
    /// It says something, or has a link now.
    pub(super) fn heard(&mut self, now: Instant, cpf: CpfId) {
        self.members.insert(cpf, LastHeard { at: now, asked: None });
    }

    /// It is lost.
    pub(super) fn end(&mut self, cpf: CpfId) {
        self.members.remove(&cpf);
    }

    /// Looks for those that are not heard; what has come by now was taken before. Who has patience with heartbeats has it here.
    pub(super) fn look(&mut self, now: Instant, heartbeats: Timing) -> LivenessCheck {
        let held_up = now.since(std::mem::replace(&mut self.looked, now)) >= HELD_UP;
        let within = ANSWERS_WITHIN.max(heartbeats.detection_max());
        let mut look = LivenessCheck::default();
        let last_heard = self.members.values().map(|m| m.at).max();
        for (cpf, member) in &mut self.members {
            match member.asked {
                None if now >= member.at + ASKED_AFTER => {
                    member.asked = Some(now);
                    look.ask.push(*cpf);
                }
                Some(_) if held_up => member.asked = Some(now),
                // Nobody could take its UEs over, and it is likelier that this host is cut off than that all are.
                Some(at) if now >= at + within && last_heard <= Some(at) => member.asked = Some(now),
                Some(at) if now >= at + within => look.mute.push(*cpf),
                _ => {}
            }
        }
        self.mute += look.mute.len() as u64;
        look
    }

    /// When the next look is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let due =
            |m: &LastHeard| if m.asked.is_some() { self.looked + LOOKS_WITHIN } else { m.at + ASKED_AFTER };
        self.members.values().map(due).min()
    }

    /// How many did not answer.
    pub(super) fn mute(&self) -> u64 {
        self.mute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: CpfId = CpfId(1);
    const TWO: CpfId = CpfId(2);

    /// Looks every 20 ms, as heartbeats have it, from a time to another, while these answer at once. Gives the time of the first verdict.
    fn until(
        link_liveness: &mut LinkLiveness,
        ms: std::ops::Range<u64>,
        answer: &[CpfId],
    ) -> Option<(u64, Vec<CpfId>)> {
        ms.step_by(20).find_map(|ms| {
            let now = Instant(ms * 1000);
            let LivenessCheck { ask, mute } = link_liveness.look(now, Timing::default());
            ask.iter().filter(|cpf| answer.contains(cpf)).for_each(|cpf| link_liveness.heard(now, *cpf));
            (!mute.is_empty()).then_some((ms, mute))
        })
    }

    fn both() -> LinkLiveness {
        let mut link_liveness = LinkLiveness::default();
        [ONE, TWO].into_iter().for_each(|cpf| link_liveness.heard(Instant::ZERO, cpf));
        link_liveness
    }

    #[test]
    fn who_answers_is_left_alone_and_who_does_not_is_told_once() {
        let mut link_liveness = both();
        assert_eq!(until(&mut link_liveness, 0..60_000, &[ONE, TWO]), None);
        let Some((at, mute)) = until(&mut link_liveness, 60_000..70_000, &[ONE]) else { panic!("nobody is") };
        assert_eq!(mute, [TWO]);
        assert!((61_000..=61_600).contains(&at), "at {at} ms");
        link_liveness.end(TWO);
        assert_eq!(until(&mut link_liveness, at..at + 10_000, &[ONE]), None);
        assert_eq!(link_liveness.mute(), 1);
    }

    #[test] // this host is cut off, or has but one
    fn nobody_is_judged_while_nobody_is_heard() {
        let mut link_liveness = both();
        assert_eq!(until(&mut link_liveness, 0..60_000, &[]), None);
        link_liveness.heard(Instant(60_000_000), ONE); // what was on the way has come
        let Some((at, mute)) = until(&mut link_liveness, 60_000..70_000, &[ONE]) else { panic!("nobody is") };
        assert_eq!(mute, [TWO]);
        assert!((60_000..=61_000).contains(&at), "at {at} ms");
        let mut link_liveness = both();
        link_liveness.end(ONE);
        assert_eq!(until(&mut link_liveness, 0..60_000, &[]), None);
    }

    #[test] // SIGSTOP and SIGCONT: what was asked may not have left, and what was answered is not here
    fn one_that_was_held_up_itself_judges_nobody() {
        let mut link_liveness = both();
        assert_eq!(until(&mut link_liveness, 0..800, &[ONE]), None);
        assert_eq!(until(&mut link_liveness, 5_000..5_900, &[ONE]), None, "TWO was asked before");
        let Some((at, _)) = until(&mut link_liveness, 5_900..10_000, &[ONE]) else { panic!("nobody is") };
        assert!((6_000..6_100).contains(&at), "at {at} ms");
    }

    #[test]
    fn who_has_patience_with_heartbeats_has_it_here() {
        let mut link_liveness = both();
        let patient = Timing::new(Duration::from_secs(1), 16).unwrap();
        for ms in (0..17_000).step_by(20) {
            link_liveness.heard(Instant(ms * 1000), ONE);
            assert_eq!(link_liveness.look(Instant(ms * 1000), patient).mute, []);
        }
    }
}
