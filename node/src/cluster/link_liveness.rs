//! Whether CPFs answer on their links. Heartbeats go over UDP beside these, so they show neither a network that passes UDP and not
//! TCP, nor a thread that waits for ever: a CPF that sends nothing for a while is probed, and is lost if it does not answer while others do.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_resilience::detector::Timing;
use whimbrel_resilience::replication::CpfId;

/// A CPF that sends nothing for so long is probed. A CPF that serves UEs is never silent for so long.
const PROBED_AFTER: Duration = Duration::from_millis(500);
/// The least time that it has for an answer: a hundred turns of a CPF under full load, or two packets that TCP loses one after the other
/// and sends again 0.2 and 0.6 s after the first. UEs and gNBs wait for an answer for several seconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How often this process checks while a probe is unanswered. If it is later than that, it was held up and could not receive.
const CHECKED_EVERY: Duration = Duration::from_millis(50);
const HELD_UP: Duration = Duration::from_millis(200);

/// What is known of one link.
struct LinkState {
    /// When something came last.
    heard: Instant,
    /// Since when a probe is unanswered.
    probed: Option<Instant>,
}

/// The liveness of all CPFs' links.
#[derive(Default)]
pub(super) struct LinkLiveness {
    members: BTreeMap<CpfId, LinkState>,
    checked: Instant,
    unresponsive: u64,
}

/// What comes of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LivenessCheck {
    /// CPFs to be probed.
    pub(super) probe: Vec<CpfId>,
    /// CPFs that do not answer.
    pub(super) unresponsive: Vec<CpfId>,
}

impl LinkLiveness {
    /// A CPF sent something, or its link is up now.
    pub(super) fn heard(&mut self, now: Instant, cpf: CpfId) {
        self.members.insert(cpf, LinkState { heard: now, probed: None });
    }

    /// Its link is closed.
    pub(super) fn end(&mut self, cpf: CpfId) {
        self.members.remove(&cpf);
    }

    /// Checks the links, after everything that has arrived was taken. A longer detection time of heartbeats holds here, too.
    pub(super) fn check(&mut self, now: Instant, heartbeats: Timing) -> LivenessCheck {
        let held_up = now.since(std::mem::replace(&mut self.checked, now)) >= HELD_UP;
        let within = ANSWERS_WITHIN.max(heartbeats.detection_max());
        let mut check = LivenessCheck::default();
        let last_heard = self.members.values().map(|m| m.heard).max();
        for (cpf, member) in &mut self.members {
            match member.probed {
                None if now >= member.heard + PROBED_AFTER => {
                    member.probed = Some(now);
                    check.probe.push(*cpf);
                }
                Some(_) if held_up => member.probed = Some(now),
                // No other CPF could take its UEs over, and it is likelier that this host is cut off than that all CPFs are.
                Some(at) if now >= at + within && last_heard <= Some(at) => member.probed = Some(now),
                Some(at) if now >= at + within => check.unresponsive.push(*cpf),
                _ => {}
            }
        }
        self.unresponsive += check.unresponsive.len() as u64;
        check
    }

    /// When the next check is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let due = |m: &LinkState| match m.probed {
            Some(_) => self.checked + CHECKED_EVERY,
            None => m.heard + PROBED_AFTER,
        };
        self.members.values().map(due).min()
    }

    /// How many CPFs did not answer.
    pub(super) fn unresponsive(&self) -> u64 {
        self.unresponsive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: CpfId = CpfId(1);
    const TWO: CpfId = CpfId(2);

    /// Checks every 20 ms, as heartbeats have it, over a range of time, while the CPFs in `answer` answer at once. Returns the first verdict
    /// and its time.
    fn until(
        liveness: &mut LinkLiveness,
        ms: std::ops::Range<u64>,
        answer: &[CpfId],
    ) -> Option<(u64, Vec<CpfId>)> {
        ms.step_by(20).find_map(|ms| {
            let now = Instant(ms * 1000);
            let LivenessCheck { probe, unresponsive } = liveness.check(now, Timing::default());
            probe.iter().filter(|cpf| answer.contains(cpf)).for_each(|cpf| liveness.heard(now, *cpf));
            (!unresponsive.is_empty()).then_some((ms, unresponsive))
        })
    }

    fn both() -> LinkLiveness {
        let mut liveness = LinkLiveness::default();
        [ONE, TWO].into_iter().for_each(|cpf| liveness.heard(Instant::ZERO, cpf));
        liveness
    }

    #[test]
    fn a_cpf_that_stops_answering_is_reported_once_and_one_that_answers_never() {
        let mut liveness = both();
        assert_eq!(until(&mut liveness, 0..60_000, &[ONE, TWO]), None);
        let verdict = until(&mut liveness, 60_000..70_000, &[ONE]);
        let Some((at, unresponsive)) = verdict else { panic!("no verdict") };
        assert_eq!(unresponsive, [TWO]);
        assert!((61_000..=61_600).contains(&at), "at {at} ms");
        liveness.end(TWO);
        assert_eq!(until(&mut liveness, at..at + 10_000, &[ONE]), None);
        assert_eq!(liveness.unresponsive(), 1);
    }

    #[test] // this host is cut off, or there is one CPF only
    fn no_cpf_is_reported_while_none_answers() {
        let mut liveness = both();
        assert_eq!(until(&mut liveness, 0..60_000, &[]), None);
        liveness.heard(Instant(60_000_000), ONE); // a delayed message arrives
        let verdict = until(&mut liveness, 60_000..70_000, &[ONE]);
        let Some((at, unresponsive)) = verdict else { panic!("no verdict") };
        assert_eq!(unresponsive, [TWO]);
        assert!((60_000..=61_000).contains(&at), "at {at} ms");
        let mut liveness = both();
        liveness.end(ONE);
        assert_eq!(until(&mut liveness, 0..60_000, &[]), None);
    }

    #[test] // SIGSTOP and SIGCONT: a probe may not have left, and its answer not have been read
    fn a_process_that_was_held_up_reports_no_cpf() {
        let mut liveness = both();
        assert_eq!(until(&mut liveness, 0..800, &[ONE]), None);
        assert_eq!(until(&mut liveness, 5_000..5_900, &[ONE]), None, "TWO was probed before");
        let verdict = until(&mut liveness, 5_900..10_000, &[ONE]);
        let Some((at, _)) = verdict else { panic!("no verdict") };
        assert!((6_000..6_100).contains(&at), "at {at} ms");
    }

    #[test]
    fn a_longer_detection_time_of_heartbeats_holds_for_links_too() {
        let mut liveness = both();
        let patient = Timing::new(Duration::from_secs(1), 16).unwrap();
        for ms in (0..17_000).step_by(20) {
            liveness.heard(Instant(ms * 1000), ONE);
            assert_eq!(liveness.check(Instant(ms * 1000), patient).unresponsive, []);
        }
    }
}
