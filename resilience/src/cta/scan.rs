//! UEs whose backups are late with their states are looked for in rounds, bit by bit: there may be a hundred thousand of them.

use std::ops::Bound;
use std::time::Duration;

use whimbrel_control::UeId;
use whimbrel_ids::Instant;

use super::Outbox;
use super::cpfs::{BETWEEN_SLICES, Cpfs, HASTE};

/// Between the end of a round and the next one, at most.
pub(super) const BETWEEN_ROUNDS: Duration = Duration::from_secs(5);
/// UEs that are looked at in a slice, half a microsecond each, and what giving one another backup takes, as so many of these.
const SLICE: usize = 256;
const RELIEVED_WORK: usize = 16;
/// UEs that are given another backup in one round, at most; then the next round comes sooner. Nobody waits for more: what a late backup lacks
/// the log has.
const RELIEVED_MAX: usize = 256;
const SOONER: Duration = Duration::from_secs(1);

/// How far a round has come. No snapshot has it: who makes one begins the round anew, as does who goes on from it.
#[derive(Default)]
pub(super) struct Round {
    /// Those that nobody else could go on with have been looked at.
    without_backup: bool,
    /// The last one that was.
    after: Option<UeId>,
    relieved: usize,
}

impl Cpfs {
    /// As who goes on from a snapshot has it.
    pub(super) fn as_it_travels(&mut self) -> &Self {
        self.round = None;
        self
    }

    /// Looks at the next UEs that somebody may be late with, first at those that nobody else could go on with.
    pub(super) fn scan_more(&mut self, now: Instant, out: &mut Outbox) {
        if now < self.scan {
            return;
        }
        let mut round = self.round.take().unwrap_or_else(|| {
            self.waiting.untold.extend(&self.trusted);
            Round::default()
        });
        let pause = BETWEEN_ROUNDS.min(self.logs.outdated_after);
        let mut work = 0;
        while work < SLICE {
            let Some((ue, patience)) = self.next_scanned(&mut round) else {
                self.scan = now + pause;
                return;
            };
            work += 1;
            if self.scan(now, ue, patience, out) {
                work += RELIEVED_WORK;
                round.relieved += 1;
            }
            if round.relieved == RELIEVED_MAX {
                self.scan = now + pause.min(SOONER);
                return;
            }
        }
        self.scan = now + BETWEEN_SLICES;
        self.round = Some(round);
    }

    /// The next UE of a round, and for how long who backs it may be late.
    fn next_scanned(&self, round: &mut Round) -> Option<(UeId, Duration)> {
        let patience = self.logs.outdated_after;
        let further =
            |after: Option<UeId>| (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        if !round.without_backup {
            // Where nobody could take a place, these wait.
            let next =
                self.without_backup.range(further(round.after)).next().filter(|_| self.rings.has_more());
            if let Some(ue) = next {
                round.after = Some(*ue);
                return Some((*ue, HASTE.min(patience)));
            }
            (round.without_backup, round.after) = (true, None);
        }
        let (ue, _) = self.logged.range(further(round.after)).next()?;
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

    /// So many CPFs, and UEs whose backups have not got their states.
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

    /// Has a round go on until it ends. Gives its slices, and the messages of the longest.
    fn round(cpfs: &mut Cpfs, mut now: Instant) -> (usize, usize) {
        let (mut slices, mut longest) = (0, 0);
        loop {
            let mut out = Outbox::default();
            cpfs.scan_more(now, &mut out);
            (slices, longest) = (slices + 1, longest.max(out.cpfs.len()));
            if cpfs.round.is_none() {
                return (slices, longest);
            }
            assert_eq!(cpfs.scan, now + BETWEEN_SLICES);
            now = cpfs.scan;
        }
    }

    const LATE: Instant = Instant(40_000_000);

    #[test]
    fn many_ues_are_looked_at_in_slices() {
        let mut cpfs = cpfs(2, 10 * SLICE as u32);
        assert_eq!(round(&mut cpfs, LATE), (11, 0), "nobody could take a place");
        assert_eq!(cpfs.scan, cpfs.scan.max(LATE + BETWEEN_ROUNDS));
    }

    #[test]
    fn a_slice_and_a_round_give_so_many_ues_another_backup_and_all_get_one() {
        let ues = 3 * RELIEVED_MAX;
        let mut cpfs = cpfs(3, ues as u32);
        let mut now = LATE;
        for relieved in 1..=3 {
            let (slices, longest) = round(&mut cpfs, now);
            assert!(
                slices >= RELIEVED_MAX * RELIEVED_WORK / SLICE && longest <= SLICE / RELIEVED_WORK,
                "{slices}, {longest}"
            );
            assert_eq!(cpfs.unsettled.len(), relieved * RELIEVED_MAX);
            assert!(cpfs.scan < now + BETWEEN_ROUNDS);
            now = cpfs.scan;
        }
        round(&mut cpfs, now);
        assert_eq!(cpfs.scan, cpfs.scan.max(now + BETWEEN_ROUNDS), "there is nobody left");
    }

    #[test] // else a CTA replica that begins in the middle of one would not follow
    fn a_round_begins_anew_where_a_snapshot_is_made() {
        let mut cpfs = cpfs(3, 1000);
        cpfs.scan_more(LATE, &mut Outbox::default());
        let (mut other, _): (Cpfs, _) =
            postcard::take_from_bytes(&postcard::to_allocvec(cpfs.as_it_travels()).unwrap()).unwrap();
        let mut now = cpfs.scan;
        for _ in 0..100 {
            let (mut here, mut there) = (Outbox::default(), Outbox::default());
            cpfs.scan_more(now, &mut here);
            other.scan_more(now, &mut there);
            assert_eq!((here.cpfs.len(), cpfs.scan), (there.cpfs.len(), other.scan));
            now = cpfs.scan;
        }
    }

    #[test] // numbers come again
    fn what_one_said_in_a_former_life_is_not_released_in_the_next() {
        let mut cpfs = cpfs(3, 1);
        cpfs.taken.insert(CpfId(2), 7);
        cpfs.given_up(LATE, CpfId(2), &mut Outbox::default());
        assert!(cpfs.taken.is_empty());
    }

    #[test]
    #[ignore = "measures"]
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the clock that the core must not")]
    fn what_a_slice_costs() {
        for (members, of) in [(2, "nobody could take a place"), (3, "others take the places")] {
            let mut cpfs = cpfs(members, 100_000);
            let (mut now, mut longest, mut slices) = (LATE, Duration::ZERO, 0);
            while now < LATE + BETWEEN_ROUNDS {
                let mut out = Outbox::default();
                let begun = std::time::Instant::now();
                cpfs.scan_more(now, &mut out);
                longest = longest.max(begun.elapsed());
                (now, slices) = (cpfs.scan, slices + 1);
            }
            println!("100,000 late UEs, {of}: {slices} slices, the longest {longest:?}");
        }
    }
}
