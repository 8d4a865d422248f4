//! The CTA's side of one UE.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;

use super::CpfId;

/// Limits of one UE's log. With `inputs` 0 a UE whose CPF is lost in the middle of a procedure registers again, and an idle one continues
/// from its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UeLogLimits {
    /// Inputs. A registration with a session is eleven; a procedure that fails at every step stays below this.
    pub inputs: usize,
    /// Octets of inputs: half the largest NAS message with its NGAP message would still fit.
    pub octets: usize,
    /// When the log is not kept for a lagging backup any longer.
    pub marking: Marking,
}

impl Default for UeLogLimits {
    fn default() -> Self {
        Self { inputs: 64, octets: 32 * 1024, marking: Marking::default() }
    }
}

/// When a backup that has not acknowledged the checkpoint of a UE's last procedure may not take the UE over any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Marking {
    /// When the log that leads on from its checkpoint is dropped: a further procedure changes nothing.
    #[default]
    WithoutLog,
    /// When the UE begins its next procedure (Neutrino §4.2.4, point 4): a baseline of experiments, under which UEs register again without
    /// need. The log of former procedures is useless then, and is dropped with the mark.
    #[cfg(any(test, feature = "experiments"))]
    AtNextProcedure,
}

/// One input that may have to be replayed. Its position gives its clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct LoggedInput<I> {
    input: I,
    /// Half the digest of its released batch, if one was: one wrong replay in four thousand million is not noticed.
    released: u32,
    octets: u32,
}

/// Octets that a log entry takes beside the input itself.
pub const BESIDE_INPUT: usize = size_of::<LoggedInput<Box<[u8]>>>();

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Replica {
    cpf: CpfId,
    /// The term under which it became a backup: it was ordered to forget checkpoints of earlier ones.
    since: u32,
    /// The clock that it has acknowledged; 0 is the state before the first input, which every CPF has.
    acked: u64,
    /// Since when an acknowledgement is overdue.
    behind: Option<Instant>,
    /// The log is kept for it.
    awaited: bool,
}

impl Replica {
    fn joining(cpf: CpfId, since: u32) -> Self {
        Self { cpf, since, acked: 0, behind: None, awaited: true }
    }
}

/// What the CTA does with a CPF's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchVerdict {
    /// Its outputs leave.
    Release,
    /// Its outputs have left before, unchanged: nothing leaves.
    Suppress,
    /// The input ran before with other outputs: the context cannot be trusted.
    Diverged,
    /// Its sender is not the UE's primary under this term, or this is not the next input.
    Fenced,
}

/// What the loss of a CPF means for a UE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeoverOutcome<I> {
    /// Nothing that its service needs.
    Unaffected,
    /// A backup becomes its primary.
    Serve {
        /// The CPF that takes over.
        by: CpfId,
        /// Under this term of the assignment.
        term: u32,
        /// The inputs to replay, oldest first, by clock.
        replay: Vec<(u64, I)>,
    },
    /// No backup has a checkpoint at which the log begins: the UE registers again.
    Lost,
}

/// A backup whose checkpoint is older than the beginning of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaggingBackup {
    /// The replica that lags.
    pub replica: CpfId,
    /// The clock that it needs: older checkpoints are outdated (Neutrino §4.2.4).
    pub clock: u64,
    /// The other backups that have it. The primary has it too, and is asked to send it.
    pub up_to_date: Vec<CpfId>,
}

/// One UE's assignment and log.
///
/// `I` is an input as it is kept; what it holds beyond its octets does not matter here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UeLog<I> {
    bounds: UeLogLimits,
    term: u32,
    primary: CpfId,
    /// The last input.
    clock: u64,
    /// The last input whose batch left.
    released: u64,
    /// The clock of the state at which the log begins.
    base: u64,
    retained: VecDeque<LoggedInput<I>>,
    octets: usize,
    /// Backups that are to be replaced stand last.
    replicas: Vec<Replica>,
    /// The clock of the newest idle point, whose checkpoint backups should have.
    idle: u64,
}

impl<I: Clone> UeLog<I> {
    /// A UE that begins.
    pub fn new(primary: CpfId, backups: impl IntoIterator<Item = CpfId>, bounds: UeLogLimits) -> Self {
        let backups = backups.into_iter().filter(|c| *c != primary);
        Self {
            bounds,
            term: 1,
            primary,
            clock: 0,
            released: 0,
            base: 0,
            retained: VecDeque::new(),
            octets: 0,
            replicas: backups.map(|cpf| Replica::joining(cpf, 1)).collect(),
            idle: 0,
        }
    }

    /// A UE that begins with a state of this clock, which its primary and all its backups are given.
    pub fn restored(self, clock: u64) -> Self {
        let replicas = self.replicas.into_iter().map(|r| Replica { acked: clock, ..r }).collect();
        Self { clock, released: clock, base: clock, idle: clock, replicas, ..self }
    }

    /// The primary and the term.
    pub fn assignment(&self) -> (CpfId, u32) {
        (self.primary, self.term)
    }

    /// The last input's clock.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The clock of the last input whose outputs left.
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Octets of inputs that are kept.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Inputs that are kept.
    pub fn inputs(&self) -> usize {
        self.retained.len()
    }

    /// Whether the log is half full: time to look for late backups.
    pub fn is_half_full(&self) -> bool {
        let UeLogLimits { inputs, octets, .. } = self.bounds;
        self.retained.len() > inputs / 2 || self.octets > octets / 2
    }

    /// The backups, with or without a checkpoint yet.
    pub fn backups(&self) -> impl Iterator<Item = CpfId> {
        self.replicas.iter().map(|r| r.cpf)
    }

    /// Whether a CPF is primary or backup of the UE.
    pub fn concerns(&self, cpf: CpfId) -> bool {
        self.primary == cpf || self.backups().any(|backup| backup == cpf)
    }

    /// Appends an input that `input` makes: its octets in the log, and itself. At a limit the log is dropped, as in [`Self::give_up_log`].
    pub fn append(&mut self, input: impl FnOnce(u64) -> (usize, I)) -> (u64, Option<Vec<LaggingBackup>>) {
        self.clock += 1;
        let clock = self.clock;
        if self.bounds.inputs == 0 {
            self.base = clock;
            return (clock, None);
        }
        let (octets, input) = input(clock);
        let kept = u32::try_from(octets).unwrap_or(u32::MAX);
        self.retained.push_back(LoggedInput { input, released: 0, octets: kept });
        self.octets += kept as usize;
        if self.retained.len() <= self.bounds.inputs && self.octets <= self.bounds.octets {
            return (clock, None);
        }
        (clock, Some(self.give_up_log()))
    }

    /// Before an input: marks lagging backups under [`Marking::AtNextProcedure`], and returns them. A UE that goes on before it is known to
    /// be idle is spared, which favours the baseline.
    #[cfg(any(test, feature = "experiments"))]
    pub fn mark(&mut self) -> Vec<LaggingBackup> {
        if self.bounds.marking != Marking::AtNextProcedure || !self.rests() {
            return Vec::new();
        }
        let idle = self.idle;
        let marked = self.lagging(|r| r.awaited && r.acked < idle, idle);
        self.forget(idle);
        marked
    }

    /// Drops the log for lack of room: the UE cannot be replayed until its backups have caught up, but stays served. Returns the backups
    /// that lack what is dropped.
    pub fn give_up_log(&mut self) -> Vec<LaggingBackup> {
        let clock = self.clock;
        self.forget(clock);
        self.lagging(|r| r.acked < clock, clock)
    }

    /// Judges the batch of an input. `idle`: no procedure of the UE runs after it.
    pub fn batch(
        &mut self,
        now: Instant,
        from: CpfId,
        term: u32,
        clock: u64,
        digest: u64,
        idle: bool,
    ) -> BatchVerdict {
        if (from, term) != (self.primary, self.term) || clock > self.clock {
            return BatchVerdict::Fenced;
        }
        let base = self.base;
        let entry =
            clock.checked_sub(base + 1).and_then(|at| self.retained.get_mut(usize::try_from(at).ok()?));
        if clock <= self.released {
            return match entry {
                Some(entry) if entry.released != digest as u32 => BatchVerdict::Diverged,
                _ => BatchVerdict::Suppress,
            };
        }
        if clock != self.released + 1 {
            return BatchVerdict::Fenced; // the link keeps order: this is not the primary's next
        }
        if let Some(entry) = entry {
            entry.released = digest as u32;
        }
        self.released = clock;
        if idle {
            self.idle = clock;
            for r in self.replicas.iter_mut().filter(|r| r.acked < clock) {
                r.behind.get_or_insert(now);
            }
        }
        self.prune();
        BatchVerdict::Release
    }

    /// A backup holds the checkpoint of this clock, sent under this term.
    pub fn acknowledged(&mut self, now: Instant, replica: CpfId, term: u32, clock: u64) {
        // A checkpoint of a clock that was not released cannot exist (rule 1).
        let clock = clock.min(self.released);
        let idle = self.idle;
        let is_its = |r: &&mut Replica| r.cpf == replica && r.since <= term;
        let Some(r) = self.replicas.iter_mut().find(is_its) else { return };
        if clock > r.acked {
            r.acked = clock;
            r.awaited = true;
            r.behind = (clock < idle).then_some(now);
        }
        self.prune();
    }

    /// Backups without an acknowledgement for `patience`: if another one is up to date, the log is not kept for them any longer (Neutrino
    /// §4.2.4; there the log is dropped even if no backup has the checkpoint).
    pub fn scan(&mut self, now: Instant, patience: Duration) -> Vec<LaggingBackup> {
        let idle = self.idle;
        if self.holders(idle).next().is_none() {
            return Vec::new(); // no backup has what the log holds: it stays, up to its limits
        }
        let late = |r: &Replica| r.awaited && r.behind.is_some_and(|since| now.since(since) >= patience);
        let lagging = self.lagging(late, idle);
        self.prune();
        lagging
    }

    /// Backups without an acknowledgement for `patience`, whether or not another one is up to date.
    pub fn late(&mut self, now: Instant, patience: Duration) -> Vec<CpfId> {
        let idle = self.idle;
        for r in self.replicas.iter_mut().filter(|r| r.acked < idle) {
            r.behind.get_or_insert(now); // it became a backup after the idle point
        }
        let late = |r: &&Replica| r.behind.is_some_and(|since| now.since(since) >= patience);
        self.replicas.iter().filter(late).map(|r| r.cpf).collect()
    }

    /// Marks backups that are to be replaced.
    pub fn put_last(&mut self, late: &[CpfId]) {
        self.replicas.sort_by_key(|r| late.contains(&r.cpf));
    }

    /// The log is not kept for these backups until they make progress.
    fn lagging(&mut self, which: impl Fn(&Replica) -> bool, clock: u64) -> Vec<LaggingBackup> {
        let up_to_date: Vec<CpfId> = self.holders(clock).collect();
        let mut lagging = Vec::new();
        for r in self.replicas.iter_mut().filter(|r| which(r)) {
            r.awaited = false;
            lagging.push(LaggingBackup { replica: r.cpf, clock, up_to_date: up_to_date.clone() });
        }
        lagging
    }

    /// A CPF is lost, and all others run the same code.
    pub fn failed(&mut self, cpf: CpfId) -> TakeoverOutcome<I> {
        self.failed_among(cpf, |_| true)
    }

    /// A CPF is lost; `alike`: whether another runs the same code. One with other code may take over only from a checkpoint that contains
    /// everything released, since nothing is replayed then; the log restarts there.
    pub fn failed_among(&mut self, cpf: CpfId, alike: impl Fn(CpfId) -> bool) -> TakeoverOutcome<I> {
        self.replicas.retain(|r| r.cpf != cpf);
        if cpf != self.primary {
            if !self.replicas.is_empty() {
                self.prune(); // a successor of the last backup needs the state at which the log begins
            }
            return TakeoverOutcome::Unaffected;
        }
        let able = self.replicas.iter().filter(|r| r.acked >= self.base);
        let able = able.filter(|r| r.acked >= self.released || alike(r.cpf));
        let Some(&Replica { cpf: by, acked, .. }) = able.max_by_key(|r| (alike(r.cpf), r.acked)) else {
            return TakeoverOutcome::Lost;
        };
        if !alike(by) {
            self.forget(acked);
        }
        self.replicas.retain(|r| r.cpf != by);
        self.term += 1;
        self.primary = by;
        TakeoverOutcome::Serve { by, term: self.term, replay: self.after(acked) }
    }

    /// The log after an input, by clock.
    fn after(&self, clock: u64) -> Vec<(u64, I)> {
        let kept = (self.base + 1..).zip(&self.retained).skip_while(|(at, _)| *at <= clock);
        kept.map(|(at, e)| (at, e.input.clone())).collect()
    }

    /// Whether no procedure of the UE runs, and all outputs have left.
    pub fn rests(&self) -> bool {
        self.clock == self.released && self.released == self.idle
    }

    /// Makes a backup the primary, if no procedure runs and it has the current checkpoint: the fast form of a handover between CPFs
    /// (Neutrino §4.3). `keep`: the former primary becomes a backup, which has that state too.
    pub fn move_to(&mut self, cpf: CpfId, keep: bool) -> bool {
        if !self.rests() || !self.holds(cpf) {
            return false;
        }
        self.replicas.retain(|r| r.cpf != cpf);
        let former = std::mem::replace(&mut self.primary, cpf);
        self.term += 1;
        if keep {
            self.replicas.push(Replica { acked: self.clock, ..Replica::joining(former, self.term) });
        }
        self.prune();
        true
    }

    /// Whether a backup has the current checkpoint, so that [`Self::move_to`] succeeds at once.
    pub fn holds(&self, cpf: CpfId) -> bool {
        self.replicas.iter().any(|r| r.cpf == cpf && r.acked == self.clock)
    }

    /// Whether a backup has not acknowledged any checkpoint yet.
    pub fn is_joining(&self, cpf: CpfId) -> bool {
        self.replicas.iter().any(|r| r.cpf == cpf && r.acked == 0)
    }

    /// Whether a backup could take the UE over if its primary were lost.
    pub fn is_backed(&self) -> bool {
        self.replicas.iter().any(|r| r.acked >= self.base)
    }

    /// Adds a backup. It can take over once its checkpoint reaches the log.
    pub fn add_backup(&mut self, cpf: CpfId) {
        if cpf != self.primary && self.replicas.iter().all(|r| r.cpf != cpf) {
            self.replicas.push(Replica::joining(cpf, self.term));
        }
    }

    /// Removes a backup if the others have what it has, or it is the only one. Returns whether it did. A new term begins, so that
    /// checkpoints sent later survive the order to forget, should the CPF become a backup again before that order arrives.
    pub fn dismiss(&mut self, cpf: CpfId) -> bool {
        let missed = self.replicas.iter().any(|r| r.cpf != cpf && r.acked < self.idle);
        !missed && self.remove_backup(cpf)
    }

    /// The same where enough others are known to have the checkpoint, if not all.
    pub fn remove_backup(&mut self, cpf: CpfId) -> bool {
        if !self.rests() {
            return false;
        }
        self.replicas.retain(|r| r.cpf != cpf);
        self.term += 1;
        self.prune();
        true
    }

    fn holders(&self, clock: u64) -> impl Iterator<Item = CpfId> {
        self.replicas.iter().filter(move |r| r.acked >= clock).map(|r| r.cpf)
    }

    /// Drops what every backup has for which the log is kept. Without such a backup nothing could be replayed.
    fn prune(&mut self) {
        let awaited = self.replicas.iter().filter(|r| r.awaited).map(|r| r.acked).min();
        let held = self.replicas.iter().map(|r| r.acked).max();
        self.forget(awaited.or(held).unwrap_or(self.released));
    }

    fn forget(&mut self, upto: u64) {
        while self.base < upto
            && let Some(e) = self.retained.pop_front()
        {
            self.octets -= e.octets as usize;
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIMARY: CpfId = CpfId(1);
    const BACKUP: CpfId = CpfId(2);
    const NOW: Instant = Instant(1_000_000);
    const BOUNDS: UeLogLimits = UeLogLimits { inputs: 3, octets: 100, marking: Marking::WithoutLog };

    fn ledger() -> UeLog<&'static str> {
        UeLog::new(PRIMARY, [BACKUP], BOUNDS)
    }

    fn ran(ledger: &mut UeLog<&'static str>, clock: u64, digest: u64) -> BatchVerdict {
        ledger.batch(NOW, PRIMARY, 1, clock, digest, true)
    }

    #[test]
    fn what_every_replica_holds_is_forgotten() {
        let mut ledger = ledger();
        assert_eq!(ledger.append(|_| (40, "registration request")), (1, None));
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        assert_eq!((ledger.inputs(), ledger.octets()), (1, 40));
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert_eq!((ledger.inputs(), ledger.octets()), (0, 0));
    }

    #[test]
    fn a_cpf_with_other_code_takes_over_only_where_nothing_is_replayed() {
        let (other, behind) = (CpfId(3), CpfId(4));
        let mut ledger: UeLog<&'static str> = UeLog::new(PRIMARY, [other, behind], BOUNDS);
        ledger.append(|_| (10, "a"));
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        let before = ledger.clone();
        assert_eq!(
            ledger.clone().failed_among(PRIMARY, |_| false),
            TakeoverOutcome::Lost,
            "it would run what was released"
        );
        ledger.acknowledged(NOW, other, 1, 1);
        ledger.append(|_| (10, "b"));
        let replay = vec![(2, "b")];
        let serve = TakeoverOutcome::Serve { by: other, term: 2, replay };
        assert_eq!(ledger.failed_among(PRIMARY, |_| false), serve, "of that nothing has left");
        assert_eq!(
            ledger.failed_among(other, |c| c == behind),
            TakeoverOutcome::Lost,
            "what ran before is another version's"
        );

        let mut ledger = before;
        ledger.acknowledged(NOW, other, 1, 1);
        let replay = vec![(1, "a")];
        let pinned = TakeoverOutcome::Serve { by: behind, term: 2, replay };
        assert_eq!(
            ledger.failed_among(PRIMARY, |c| c == behind),
            pinned,
            "a CPF with the same code goes first"
        );
    }

    #[test]
    fn a_ue_is_backed_if_a_backup_could_take_it_over() {
        let (mut ledger, next) = (ledger(), CpfId(3));
        assert!(ledger.is_backed(), "the log has it all");
        ledger.append(|_| (40, "registration request"));
        ran(&mut ledger, 1, 7);
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert!(ledger.is_backed());
        ledger.failed(BACKUP);
        ledger.add_backup(next);
        assert!(!ledger.is_backed(), "its state has not come there");
        ledger.acknowledged(NOW, next, 1, 1);
        assert!(ledger.is_backed());
    }

    #[test]
    fn a_late_backup_is_removed_when_another_has_the_checkpoint() {
        let (mut ledger, next, patience) = (ledger(), CpfId(3), Duration::from_secs(30));
        ledger.append(|_| (40, "registration request"));
        ran(&mut ledger, 1, 7);
        assert_eq!(
            (ledger.late(NOW, patience), ledger.late(NOW + patience, patience)),
            (vec![], vec![BACKUP])
        );
        ledger.add_backup(next);
        ledger.put_last(&[BACKUP]);
        assert_eq!(ledger.backups().collect::<Vec<_>>(), [next, BACKUP]);
        // It has become one while the UE rests, and counts from the first look at it.
        assert_eq!(ledger.late(NOW + patience, patience), [BACKUP]);
        assert_eq!(ledger.late(NOW + patience * 2, patience), [next, BACKUP]);
        assert!(!ledger.dismiss(BACKUP), "what the log leads on from is there alone");
        ledger.acknowledged(NOW, next, 1, 1);
        assert!(ledger.remove_backup(BACKUP));
        assert_eq!((ledger.assignment(), ledger.inputs()), ((PRIMARY, 2), 0));
    }

    #[test]
    fn an_acknowledgement_beyond_what_was_released_is_capped() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        ledger.acknowledged(NOW, BACKUP, 1, u64::MAX);
        assert_eq!(ledger.inputs(), 1);
        let TakeoverOutcome::Serve { by, term, replay } = ledger.failed(PRIMARY) else {
            panic!("the log has it all")
        };
        assert_eq!((by, term, replay), (BACKUP, 2, vec![(1, "registration request")]));
    }

    #[test] // DESIGN: "key stream"
    fn a_replay_with_other_octets_diverges() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "service request"));
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Suppress);
        assert_eq!(ran(&mut ledger, 1, 8), BatchVerdict::Diverged);
    }

    #[test] // DESIGN: "terms and fencing"
    fn batches_of_a_former_term_and_of_future_inputs_are_fenced() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "service request"));
        assert_eq!(ran(&mut ledger, 2, 7), BatchVerdict::Fenced, "there is no second input");
        assert!(matches!(ledger.failed(PRIMARY), TakeoverOutcome::Serve { .. }));
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Fenced);
        assert_eq!(ledger.batch(NOW, BACKUP, 2, 1, 7, true), BatchVerdict::Release);
    }

    #[test]
    fn a_full_log_is_dropped_and_lagging_backups_are_returned() {
        for (inputs, octets) in [(4, 1), (2, 60)] {
            let mut ledger = ledger();
            let lagging: Vec<LaggingBackup> =
                (0..inputs).flat_map(|_| ledger.append(|_| (octets, "uplink")).1).flatten().collect();
            assert_eq!(lagging, [LaggingBackup { replica: BACKUP, clock: inputs, up_to_date: vec![] }]);
            assert_eq!(ledger.octets(), 0);
            assert_eq!(ledger.clone().failed(PRIMARY), TakeoverOutcome::Lost);
            for clock in 1..=inputs {
                assert_eq!(ran(&mut ledger, clock, 7), BatchVerdict::Release, "service goes on");
            }
            ledger.acknowledged(NOW, BACKUP, 1, inputs);
            assert!(matches!(ledger.failed(PRIMARY), TakeoverOutcome::Serve { by: BACKUP, .. }));
        }
    }

    #[test]
    fn the_log_is_kept_for_the_successor_of_the_last_backup() {
        let third = CpfId(3);
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ledger.batch(NOW, PRIMARY, 1, 1, 7, false), BatchVerdict::Release);
        assert_eq!(ledger.failed(BACKUP), TakeoverOutcome::Unaffected);
        ledger.add_backup(third);
        let replay = vec![(1, "registration request")];
        assert_eq!(ledger.failed(PRIMARY), TakeoverOutcome::Serve { by: third, term: 2, replay });
    }

    #[test]
    fn without_a_log_an_idle_ue_continues_and_one_in_a_procedure_is_lost() {
        let mut ledger = UeLog::new(PRIMARY, [BACKUP], UeLogLimits { inputs: 0, ..BOUNDS });
        assert_eq!(ledger.append(|_| (40, "registration request")), (1, None));
        assert_eq!((ledger.inputs(), ledger.octets()), (0, 0));
        assert_eq!(ledger.clone().failed(PRIMARY), TakeoverOutcome::Lost);
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        let TakeoverOutcome::Serve { by, replay, .. } = ledger.clone().failed(PRIMARY) else {
            panic!("it rests")
        };
        assert_eq!((by, replay), (BACKUP, vec![]));
        ledger.append(|_| (40, "service request"));
        assert_eq!(ledger.failed(PRIMARY), TakeoverOutcome::Lost);
    }

    #[test] // Neutrino §4.3
    fn a_ue_moves_only_to_a_backup_with_its_checkpoint() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert!(!ledger.move_to(BACKUP, true), "an input is under way");
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        assert!(!ledger.move_to(BACKUP, true), "it does not have the state");
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert!(!ledger.move_to(CpfId(9), true), "it is no replica");
        assert!(ledger.move_to(BACKUP, true));
        assert_eq!(ledger.assignment(), (BACKUP, 2));
        ledger.append(|_| (1, "service request"));
        assert_eq!(ran(&mut ledger, 2, 7), BatchVerdict::Fenced, "the former primary is fenced");
        assert_eq!(ledger.batch(NOW, BACKUP, 2, 2, 7, false), BatchVerdict::Release);
        let replay = vec![(2, "service request")];
        assert_eq!(ledger.failed(BACKUP), TakeoverOutcome::Serve { by: PRIMARY, term: 3, replay });
    }

    #[test] // it was ordered to forget its checkpoints
    fn acknowledgements_of_a_former_term_do_not_count_for_a_backup_that_returns() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        assert!(ledger.dismiss(BACKUP));
        assert!(!ledger.concerns(BACKUP) && ledger.concerns(PRIMARY));
        ledger.add_backup(BACKUP);
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert!(!ledger.holds(BACKUP), "of a state that it had under the former term");
        let (_, term) = ledger.assignment();
        ledger.acknowledged(NOW, BACKUP, term, 1);
        assert!(ledger.holds(BACKUP));
    }

    #[test]
    fn a_ue_in_a_procedure_does_not_move() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ledger.batch(NOW, PRIMARY, 1, 1, 7, false), BatchVerdict::Release);
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert!(!ledger.rests() && !ledger.move_to(BACKUP, true));
    }

    #[test] // Neutrino §4.2.4
    fn the_log_is_kept_for_a_lagging_backup_only_for_the_patience() {
        const PATIENCE: Duration = Duration::from_secs(30);
        let third = CpfId(3);
        let mut ledger = UeLog::new(PRIMARY, [BACKUP, third], BOUNDS);
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert_eq!(ledger.scan(NOW + PATIENCE - Duration::from_micros(1), PATIENCE), []);
        let up_to_date = vec![BACKUP];
        assert_eq!(
            ledger.scan(NOW + PATIENCE, PATIENCE),
            [LaggingBackup { replica: third, clock: 1, up_to_date }]
        );
        assert_eq!(ledger.inputs(), 0);
        assert_eq!(ledger.scan(NOW + PATIENCE * 2, PATIENCE), [], "reported once");
    }

    /// A UE whose primary is lost in its second procedure, before its backup acknowledged the checkpoint of the first.
    fn lost_in_the_second_procedure(
        marking: Marking,
        acknowledged_late: bool,
    ) -> TakeoverOutcome<&'static str> {
        let mut ledger = UeLog::new(PRIMARY, [BACKUP], UeLogLimits { marking, ..BOUNDS });
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        let marked = ledger.mark();
        match marking {
            Marking::WithoutLog => assert_eq!(marked, []),
            Marking::AtNextProcedure => {
                assert_eq!(marked, [LaggingBackup { replica: BACKUP, clock: 1, up_to_date: vec![] }]);
                assert_eq!(ledger.mark(), [], "reported once");
            }
        }
        ledger.append(|_| (1, "service request"));
        if acknowledged_late {
            ledger.acknowledged(NOW, BACKUP, 1, 1);
        }
        ledger.failed(PRIMARY)
    }

    #[test] // Neutrino §4.2.4 (4), failure scenario 3; DESIGN §4 rule 6
    fn a_second_procedure_costs_the_papers_ue_its_registration_and_ours_nothing() {
        let replay = vec![(1, "registration request"), (2, "service request")];
        let both = TakeoverOutcome::Serve { by: BACKUP, term: 2, replay };
        assert_eq!(lost_in_the_second_procedure(Marking::WithoutLog, false), both);
        assert_eq!(lost_in_the_second_procedure(Marking::AtNextProcedure, false), TakeoverOutcome::Lost);
    }

    #[test] // Neutrino §4.2.4 (2)
    fn the_papers_mark_goes_when_the_state_comes() {
        let rest = TakeoverOutcome::Serve { by: BACKUP, term: 2, replay: vec![(2, "service request")] };
        for marking in [Marking::WithoutLog, Marking::AtNextProcedure] {
            assert_eq!(lost_in_the_second_procedure(marking, true), rest);
        }
    }

    #[test]
    fn the_log_is_kept_while_no_backup_has_what_it_holds() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ran(&mut ledger, 1, 7), BatchVerdict::Release);
        assert_eq!(ledger.scan(NOW + Duration::from_secs(3600), Duration::from_secs(30)), []);
        assert!(matches!(ledger.failed(PRIMARY), TakeoverOutcome::Serve { .. }));
    }
}
