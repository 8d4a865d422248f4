//! Rounds over the UEs in search of late backups, in slices, since there may be a hundred thousand UEs.

use std::ops::Bound;
use std::time::Duration;

use whimbrel_control::UeId;
use whimbrel_ids::Instant;

use super::Outbox;
use super::cpfs::{BETWEEN_SLICES, Cpfs, LATE_BACKUP_TIMEOUT};

/// Pause between two rounds at most.
pub(super) const BETWEEN_ROUNDS: Duration = Duration::from_secs(5);
/// UEs that one slice examines, half a microsecond each, and the cost of giving one another backup in the same unit.
const SLICE: usize = 256;
const RELIEVED_WORK: usize = 16;
/// UEs that get another backup in one round at most; then the next round comes sooner. Nothing waits for it: the log holds what a late
/// backup lacks.
const RELIEVED_MAX: usize = 256;
const SOONER: Duration = Duration::from_secs(1);

/// How far a round has come. It is not part of a snapshot: the primary CTA begins the round again when it makes one, as the replica does.
#[derive(Default)]
pub(super) struct Round {
    /// The UEs without a usable backup have been examined.
    without_backup: bool,
    /// The last UE that was examined.
    after: Option<UeId>,
    relieved: usize,
}

impl Cpfs {
    /// As a snapshot holds it.
    pub(super) fn as_it_travels(&mut self) -> &Self {
        self.late_backups.round = None;
        self
    }

    /// Examines the next UEs for late backups, first those without a usable backup.
    pub(super) fn scan_more(&mut self, now: Instant, out: &mut Outbox) {
        if now < self.late_backups.next {
            return;
        }
        let mut round = self.late_backups.round.take().unwrap_or_else(|| {
            self.waiting.await_release.extend(&self.trusted);
            Round::default()
        });
        let pause = BETWEEN_ROUNDS.min(self.logs.outdated_after);
        let mut work = 0;
        while work < SLICE {
            let Some((ue, patience)) = self.next_scanned(&mut round) else {
                self.late_backups.next = now + pause;
                return;
            };
            work += 1;
            if self.scan(now, ue, patience, out) {
                work += RELIEVED_WORK;
                round.relieved += 1;
            }
            if round.relieved == RELIEVED_MAX {
                self.late_backups.next = now + pause.min(SOONER);
                return;
            }
        }
        self.late_backups.next = now + BETWEEN_SLICES;
        self.late_backups.round = Some(round);
    }

    /// The next UE of a round, and how long its backups may be late.
    fn next_scanned(&self, round: &mut Round) -> Option<(UeId, Duration)> {
        let patience = self.logs.outdated_after;
        let further =
            |after: Option<UeId>| (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        if !round.without_backup {
            // These wait while no CPF could become their backup.
            let next =
                self.without_backup.range(further(round.after)).next().filter(|_| self.rings.has_more());
            if let Some(ue) = next {
                round.after = Some(*ue);
                return Some((*ue, LATE_BACKUP_TIMEOUT.min(patience)));
            }
            (round.without_backup, round.after) = (true, None);
        }
        let (ue, _) = self.logged.ues.range(further(round.after)).next()?;
        round.after = Some(*ue);
        Some((*ue, patience))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use whimbrel_control::{Envelope, Payload};
    use whimbrel_ids::Tmsi;

    use super::*;
    use crate::region::{Region, Regions};
    use crate::replication::CpfId;

    pub(in super::super) fn ue(slot: u32) -> UeId {
        UeId { slot, generation: 0 }
    }

    fn tick(slot: u32) -> Envelope {
        Envelope {
            code_version: 1,
            ue: ue(slot),
            cta_term: 1,
            owner_term: 1,
            clock: 1,
            time: Instant(1),
            seed: [1; 16],
            tmsi: Tmsi(5),
            config_version: 1,
            upfs: Default::default(),
            payload: Payload::Tick,
        }
    }

    /// This many CPFs, and UEs whose backups lack their checkpoints.
    pub(in super::super) fn cpfs(members: u16, ues: u32) -> Cpfs {
        let here: Region = "1223".parse().unwrap();
        let mut map = Regions::new([here.clone()]).unwrap();
        (1..=members).for_each(|id| map.join(CpfId(id), &here).unwrap());
        let mut cpfs = Cpfs::new(map.rings(&here, 1).unwrap(), Instant(1));
        let mut out = Outbox::default();
        for slot in 0..ues {
            cpfs.hand_over(tick(slot), &mut out);
            out.cpfs.clear();
            let ue = ue(slot);
            let ledger = cpfs.ledgers.get_mut(&ue).unwrap();
            let (by, term) = ledger.assignment();
            ledger.batch(Instant(1), by, term, 1, 7, true);
            cpfs.pruned(ue);
        }
        cpfs
    }

    /// Runs a round to its end. Returns the number of slices, and the messages of the longest.
    fn round(cpfs: &mut Cpfs, mut now: Instant) -> (usize, usize) {
        let (mut slices, mut longest) = (0, 0);
        loop {
            let mut out = Outbox::default();
            cpfs.scan_more(now, &mut out);
            (slices, longest) = (slices + 1, longest.max(out.cpfs.len()));
            if cpfs.late_backups.round.is_none() {
                return (slices, longest);
            }
            assert_eq!(cpfs.late_backups.next, now + BETWEEN_SLICES);
            now = cpfs.late_backups.next;
        }
    }

    const LATE: Instant = Instant(40_000_000);

    #[test]
    fn many_ues_are_examined_in_slices() {
        let mut cpfs = cpfs(2, 10 * SLICE as u32);
        assert_eq!(round(&mut cpfs, LATE), (11, 0), "no CPF could become a backup");
        assert_eq!(cpfs.late_backups.next, cpfs.late_backups.next.max(LATE + BETWEEN_ROUNDS));
    }

    #[test]
    fn slices_and_rounds_are_bounded_and_every_ue_gets_another_backup() {
        let ues = 3 * RELIEVED_MAX;
        let mut cpfs = cpfs(3, ues as u32);
        let mut now = LATE;
        for relieved in 1..=3 {
            let (slices, longest) = round(&mut cpfs, now);
            assert!(
                slices >= RELIEVED_MAX * RELIEVED_WORK / SLICE && longest <= SLICE / RELIEVED_WORK,
                "{slices}, {longest}"
            );
            assert_eq!(cpfs.pending_reassignments.len(), relieved * RELIEVED_MAX);
            assert!(cpfs.late_backups.next < now + BETWEEN_ROUNDS);
            now = cpfs.late_backups.next;
        }
        round(&mut cpfs, now);
        assert_eq!(cpfs.late_backups.next, cpfs.late_backups.next.max(now + BETWEEN_ROUNDS), "no UE is left");
    }

    #[test] // else a CTA replica that begins in the middle of one would not follow
    fn a_snapshot_restarts_the_round() {
        let mut cpfs = cpfs(3, 1000);
        cpfs.scan_more(LATE, &mut Outbox::default());
        let (mut other, _): (Cpfs, _) =
            postcard::take_from_bytes(&postcard::to_allocvec(cpfs.as_it_travels()).unwrap()).unwrap();
        let mut now = cpfs.late_backups.next;
        for _ in 0..100 {
            let (mut here, mut there) = (Outbox::default(), Outbox::default());
            cpfs.scan_more(now, &mut here);
            other.scan_more(now, &mut there);
            assert_eq!(
                (here.cpfs.len(), cpfs.late_backups.next),
                (there.cpfs.len(), other.late_backups.next)
            );
            now = cpfs.late_backups.next;
        }
    }

    #[test] // numbers come again
    fn batches_of_a_lost_cpf_do_not_count_for_the_next_one_of_its_number() {
        let mut cpfs = cpfs(3, 1);
        cpfs.taken.insert(CpfId(2), 7);
        cpfs.cpf_lost(LATE, CpfId(2), &mut Outbox::default());
        assert!(cpfs.taken.is_empty());
    }

    #[test]
    #[ignore = "measures"]
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the clock that the core must not")]
    fn what_a_slice_costs() {
        for (members, of) in [(2, "no CPF could become a backup"), (3, "others become backups")] {
            let mut cpfs = cpfs(members, 100_000);
            let (mut now, mut longest, mut slices) = (LATE, Duration::ZERO, 0);
            while now < LATE + BETWEEN_ROUNDS {
                let mut out = Outbox::default();
                let begun = std::time::Instant::now();
                cpfs.scan_more(now, &mut out);
                longest = longest.max(begun.elapsed());
                (now, slices) = (cpfs.late_backups.next, slices + 1);
            }
            println!("100,000 late UEs, {of}: {slices} slices, the longest {longest:?}");
        }
    }
}
