//! The CTA's side of one UE.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;

use super::CpfId;

/// How much of one UE's log is kept. Of no inputs at all: a UE whose CPF is lost in the middle of a procedure
/// registers anew, and one that rests goes on where its state is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UeLogLimits {
    /// Inputs. A registration with a session is eleven; a procedure that fails at every step stays below this.
    pub inputs: usize,
    /// Octets of inputs: half the largest NAS message beside its NGAP message would still pass.
    pub octets: usize,
    /// For how long it is kept for replicas that lag.
    pub marking: Marking,
}

impl Default for UeLogLimits {
    fn default() -> Self {
        Self { inputs: 64, octets: 32 * 1024, marking: Marking::default() }
    }
}

/// When a replica that has not said to hold what a UE's last procedure led to may not serve the UE any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Marking {
    /// When the log that leads on from what it holds is given up: a further procedure changes nothing (DESIGN §4 rule 6).
    #[default]
    WithoutLog,
    /// When the UE begins its next procedure (Neutrino §4.2.4, point 4): a baseline of experiments, under which UEs register anew that need
    /// not. What the log has of former procedures is of no use then, and is given up with the mark.
    AtNextProcedure,
}

/// One input that may have to be run again. Its place tells its clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry<I> {
    input: I,
    /// Digest of the batch that was released for it, if one was: half of it, which one fault of ours in four thousand million gets past.
    released: u32,
    octets: u32,
}

/// What keeping an input takes beside the input itself, as octets with their length.
pub const BESIDE_INPUT: usize = size_of::<Entry<Box<[u8]>>>();

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Replica {
    cpf: CpfId,
    /// The term under which it became one: what it had of an earlier one it was told to forget.
    since: u32,
    /// The state that it is known to hold: 0 is that of a UE of which nothing is known, which everybody has.
    acked: u64,
    /// Since when a checkpoint, or progress, is expected of it.
    behind: Option<Instant>,
    /// The log waits for it.
    awaited: bool,
}

impl Replica {
    fn joining(cpf: CpfId, since: u32) -> Self {
        Self { cpf, since, acked: 0, behind: None, awaited: true }
    }
}

/// What becomes of a batch that a CPF gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its outputs leave.
    Release,
    /// Its outputs have left before, unchanged.
    Suppress,
    /// The input ran before, with other outputs: the context is suspect (DESIGN §4 rule 9).
    Diverged,
    /// Its sender does not serve the UE, or not any more, or is not at this input.
    Fenced,
}

/// What the loss of a CPF means for a UE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeoverOutcome<I> {
    /// Nothing that its service needs.
    Unaffected,
    /// Another serves it.
    Serve {
        /// Which.
        by: CpfId,
        /// Under this term of the assignment.
        term: u32,
        /// What it has still to run, oldest first, by clock.
        replay: Vec<(u64, I)>,
    },
    /// Nobody holds a state that the log begins at: the UE registers anew.
    Lost,
}

/// A replica whose state the log does not lead on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lagging {
    /// Which.
    pub replica: CpfId,
    /// The state that it lacks: anything older is outdated (Neutrino §4.2.4).
    pub clock: u64,
    /// The other replicas that have it. Its primary has it too, and is told to send it.
    pub up_to_date: Vec<CpfId>,
}

/// One UE's log, and who may serve it.
///
/// `I` is an input as it is kept; what it holds beyond its octets does not matter here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ledger<I> {
    bounds: UeLogLimits,
    term: u32,
    primary: CpfId,
    /// The last input.
    clock: u64,
    /// The last input whose batch left.
    released: u64,
    /// The state that the retained log begins at.
    base: u64,
    retained: VecDeque<Entry<I>>,
    octets: usize,
    /// Those whose places others are to take stand last.
    replicas: Vec<Replica>,
    /// The newest point where the UE was idle: where replicas are expected.
    idle: u64,
}

impl<I: Clone> Ledger<I> {
    /// A UE that begins: `primary` serves it, `backups` will have its state.
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

    /// Who serves the UE, and under which term.
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

    /// Whether half of what may be kept is: time to see who it is kept for.
    pub fn is_half_full(&self) -> bool {
        let UeLogLimits { inputs, octets, .. } = self.bounds;
        self.retained.len() > inputs / 2 || self.octets > octets / 2
    }

    /// Those that hold the UE's state beside its primary, or shall.
    pub fn backups(&self) -> impl Iterator<Item = CpfId> {
        self.replicas.iter().map(|r| r.cpf)
    }

    /// Whether one serves the UE, or backs it.
    pub fn concerns(&self, cpf: CpfId) -> bool {
        self.primary == cpf || self.backups().any(|backup| backup == cpf)
    }

    /// Stamps an input and keeps it, as `input` makes it: what keeping it takes, in octets, and itself. At a bound the log is given up, as in
    /// [`Self::give_up_log`].
    pub fn append(&mut self, input: impl FnOnce(u64) -> (usize, I)) -> (u64, Option<Vec<Lagging>>) {
        self.clock += 1;
        let clock = self.clock;
        if self.bounds.inputs == 0 {
            self.base = clock;
            return (clock, None);
        }
        let (octets, input) = input(clock);
        let kept = u32::try_from(octets).unwrap_or(u32::MAX);
        self.retained.push_back(Entry { input, released: 0, octets: kept });
        self.octets += kept as usize;
        if self.retained.len() <= self.bounds.inputs && self.octets <= self.bounds.octets {
            return (clock, None);
        }
        (clock, Some(self.give_up_log()))
    }

    /// Before an input: those that lag are marked, by [`Marking::AtNextProcedure`], and are to be told. A UE that goes on before it is known to
    /// rest is spared, which favours the baseline.
    pub fn mark(&mut self) -> Vec<Lagging> {
        if self.bounds.marking != Marking::AtNextProcedure || !self.rests() {
            return Vec::new();
        }
        let idle = self.idle;
        let marked = self.lagging(|r| r.awaited && r.acked < idle, idle);
        self.forget(idle);
        marked
    }

    /// There is no room for the log: the UE loses its replay until its replicas have caught up, never its service. Those that lack what is
    /// given up are to be told.
    pub fn give_up_log(&mut self) -> Vec<Lagging> {
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
    ) -> Verdict {
        if (from, term) != (self.primary, self.term) || clock > self.clock {
            return Verdict::Fenced;
        }
        let base = self.base;
        let entry =
            clock.checked_sub(base + 1).and_then(|at| self.retained.get_mut(usize::try_from(at).ok()?));
        if clock <= self.released {
            return match entry {
                Some(entry) if entry.released != digest as u32 => Verdict::Diverged,
                _ => Verdict::Suppress,
            };
        }
        if clock != self.released + 1 {
            return Verdict::Fenced; // the link keeps order: this is not the primary's next
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
        Verdict::Release
    }

    /// A replica holds the UE's state after this input, as it was sent under this term.
    pub fn acknowledged(&mut self, now: Instant, replica: CpfId, term: u32, clock: u64) {
        // Nobody can hold what was not released (rule 1): who claims it is not believed.
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

    /// The replicas of which nothing came in `patience`: if another is where it should be, the log waits for them no longer
    /// (Neutrino §4.2.4; there the log is dropped even if nobody has the state).
    pub fn scan(&mut self, now: Instant, patience: Duration) -> Vec<Lagging> {
        let idle = self.idle;
        if self.holders(idle).next().is_none() {
            return Vec::new(); // what the log holds nobody else does: it stays, up to its bounds
        }
        let late = |r: &Replica| r.awaited && r.behind.is_some_and(|since| now.since(since) >= patience);
        let lagging = self.lagging(late, idle);
        self.prune();
        lagging
    }

    /// The replicas of which nothing came in `patience`, whoever else has what they lack.
    pub fn late(&mut self, now: Instant, patience: Duration) -> Vec<CpfId> {
        let idle = self.idle;
        for r in self.replicas.iter_mut().filter(|r| r.acked < idle) {
            r.behind.get_or_insert(now); // it has become one since the UE rests
        }
        let late = |r: &&Replica| r.behind.is_some_and(|since| now.since(since) >= patience);
        self.replicas.iter().filter(late).map(|r| r.cpf).collect()
    }

    /// Others are to take the places of these.
    pub fn put_last(&mut self, late: &[CpfId]) {
        self.replicas.sort_by_key(|r| late.contains(&r.cpf));
    }

    /// Those replicas are waited for no longer, until they show progress.
    fn lagging(&mut self, which: impl Fn(&Replica) -> bool, clock: u64) -> Vec<Lagging> {
        let up_to_date: Vec<CpfId> = self.holders(clock).collect();
        let mut lagging = Vec::new();
        for r in self.replicas.iter_mut().filter(|r| which(r)) {
            r.awaited = false;
            lagging.push(Lagging { replica: r.cpf, clock, up_to_date: up_to_date.clone() });
        }
        lagging
    }

    /// A CPF is lost, and all others may run what it ran.
    pub fn failed(&mut self, cpf: CpfId) -> TakeoverOutcome<I> {
        self.failed_among(cpf, |_| true)
    }

    /// A CPF is lost; `alike`: who runs the same code as it. Another may serve from a state that lacks nothing which was released, since
    /// nothing is run again then; the log begins anew there.
    pub fn failed_among(&mut self, cpf: CpfId, alike: impl Fn(CpfId) -> bool) -> TakeoverOutcome<I> {
        self.replicas.retain(|r| r.cpf != cpf);
        if cpf != self.primary {
            if !self.replicas.is_empty() {
                self.prune(); // who takes the place of the last one begins where the log begins
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

    /// What is kept of the log after an input, by clock.
    fn after(&self, clock: u64) -> Vec<(u64, I)> {
        let kept = (self.base + 1..).zip(&self.retained).skip_while(|(at, _)| *at <= clock);
        kept.map(|(at, e)| (at, e.input.clone())).collect()
    }

    /// Whether no procedure of the UE runs, and all that was caused has left.
    pub fn rests(&self) -> bool {
        self.clock == self.released && self.released == self.idle
    }

    /// A replica serves the UE from now on, if the UE rests and its state is there: the fast form of a handover between CPFs
    /// (Neutrino §4.3), whose check of the clock this is. `keep`: who served it is a replica then, which has that state too.
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

    /// Whether a replica holds all of the UE's state, so that [`Self::move_to`] may be had at once.
    pub fn holds(&self, cpf: CpfId) -> bool {
        self.replicas.iter().any(|r| r.cpf == cpf && r.acked == self.clock)
    }

    /// Whether a replica has said of no state yet that it holds it.
    pub fn is_joining(&self, cpf: CpfId) -> bool {
        self.replicas.iter().any(|r| r.cpf == cpf && r.acked == 0)
    }

    /// Whether somebody could go on with the UE if its CPF were lost.
    pub fn is_backed(&self) -> bool {
        self.replicas.iter().any(|r| r.acked >= self.base)
    }

    /// Another CPF shall hold the UE's state too. It can serve once its state reaches the log.
    pub fn add_backup(&mut self, cpf: CpfId) {
        if cpf != self.primary && self.replicas.iter().all(|r| r.cpf != cpf) {
            self.replicas.push(Replica::joining(cpf, self.term));
        }
    }

    /// A replica is to go: it does if nobody would miss it, since the others have what it has, or there is no other and the primary alone
    /// is to have the state. Whether it did. A new term begins: what is sent from then on was not meant by the word to forget, should it be a
    /// replica again before that word is there.
    pub fn dismiss(&mut self, cpf: CpfId) -> bool {
        let missed = self.replicas.iter().any(|r| r.cpf != cpf && r.acked < self.idle);
        !missed && self.let_go(cpf)
    }

    /// The same where it is known that enough others have the UE's state, if not all.
    pub fn let_go(&mut self, cpf: CpfId) -> bool {
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

    /// Forgets what every replica that the log waits for has. Where there is none, nobody could run it again.
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

    fn ledger() -> Ledger<&'static str> {
        Ledger::new(PRIMARY, [BACKUP], BOUNDS)
    }

    fn ran(ledger: &mut Ledger<&'static str>, clock: u64, digest: u64) -> Verdict {
        ledger.batch(NOW, PRIMARY, 1, clock, digest, true)
    }

    #[test]
    fn what_every_replica_holds_is_forgotten() {
        let mut ledger = ledger();
        assert_eq!(ledger.append(|_| (40, "registration request")), (1, None));
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
        assert_eq!((ledger.inputs(), ledger.octets()), (1, 40));
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert_eq!((ledger.inputs(), ledger.octets()), (0, 0));
    }

    #[test]
    fn who_runs_other_code_serves_from_a_state_that_lacks_nothing_and_runs_nothing_again() {
        let (other, behind) = (CpfId(3), CpfId(4));
        let mut ledger: Ledger<&'static str> = Ledger::new(PRIMARY, [other, behind], BOUNDS);
        ledger.append(|_| (10, "a"));
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
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
        assert_eq!(ledger.failed_among(PRIMARY, |c| c == behind), pinned, "who runs the same goes before");
    }

    #[test]
    fn a_ue_is_backed_if_somebody_could_go_on_with_it() {
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
    fn who_has_lacked_the_state_for_too_long_is_late_and_goes_when_another_has_it() {
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
        assert!(ledger.let_go(BACKUP));
        assert_eq!((ledger.assignment(), ledger.inputs()), ((PRIMARY, 2), 0));
    }

    #[test]
    fn a_replica_that_claims_what_was_never_released_is_not_believed() {
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
    fn a_replay_that_gives_other_octets_is_found_out() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "service request"));
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Suppress);
        assert_eq!(ran(&mut ledger, 1, 8), Verdict::Diverged);
    }

    #[test] // DESIGN: "terms and fencing"
    fn who_was_replaced_and_who_runs_ahead_are_not_heard() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "service request"));
        assert_eq!(ran(&mut ledger, 2, 7), Verdict::Fenced, "there is no second input");
        assert!(matches!(ledger.failed(PRIMARY), TakeoverOutcome::Serve { .. }));
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Fenced);
        assert_eq!(ledger.batch(NOW, BACKUP, 2, 1, 7, true), Verdict::Release);
    }

    #[test]
    fn at_its_bound_the_log_is_given_up_and_who_lacks_it_is_named() {
        for (inputs, octets) in [(4, 1), (2, 60)] {
            let mut ledger = ledger();
            let lagging: Vec<Lagging> =
                (0..inputs).flat_map(|_| ledger.append(|_| (octets, "uplink")).1).flatten().collect();
            assert_eq!(lagging, [Lagging { replica: BACKUP, clock: inputs, up_to_date: vec![] }]);
            assert_eq!(ledger.octets(), 0);
            assert_eq!(ledger.clone().failed(PRIMARY), TakeoverOutcome::Lost);
            for clock in 1..=inputs {
                assert_eq!(ran(&mut ledger, clock, 7), Verdict::Release, "service goes on");
            }
            ledger.acknowledged(NOW, BACKUP, 1, inputs);
            assert!(matches!(ledger.failed(PRIMARY), TakeoverOutcome::Serve { by: BACKUP, .. }));
        }
    }

    #[test]
    fn the_log_stays_for_who_takes_the_place_of_the_last_backup() {
        let third = CpfId(3);
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ledger.batch(NOW, PRIMARY, 1, 1, 7, false), Verdict::Release);
        assert_eq!(ledger.failed(BACKUP), TakeoverOutcome::Unaffected);
        ledger.add_backup(third);
        let replay = vec![(1, "registration request")];
        assert_eq!(ledger.failed(PRIMARY), TakeoverOutcome::Serve { by: third, term: 2, replay });
    }

    #[test]
    fn without_a_log_a_ue_at_rest_goes_on_and_one_in_the_middle_of_something_is_lost() {
        let mut ledger = Ledger::new(PRIMARY, [BACKUP], UeLogLimits { inputs: 0, ..BOUNDS });
        assert_eq!(ledger.append(|_| (40, "registration request")), (1, None));
        assert_eq!((ledger.inputs(), ledger.octets()), (0, 0));
        assert_eq!(ledger.clone().failed(PRIMARY), TakeoverOutcome::Lost);
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        let TakeoverOutcome::Serve { by, replay, .. } = ledger.clone().failed(PRIMARY) else {
            panic!("it rests")
        };
        assert_eq!((by, replay), (BACKUP, vec![]));
        ledger.append(|_| (40, "service request"));
        assert_eq!(ledger.failed(PRIMARY), TakeoverOutcome::Lost);
    }

    #[test] // Neutrino §4.3
    fn a_ue_moves_to_a_replica_that_has_its_state_and_no_other() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert!(!ledger.move_to(BACKUP, true), "an input is under way");
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
        assert!(!ledger.move_to(BACKUP, true), "it does not have the state");
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert!(!ledger.move_to(CpfId(9), true), "it is no replica");
        assert!(ledger.move_to(BACKUP, true));
        assert_eq!(ledger.assignment(), (BACKUP, 2));
        ledger.append(|_| (1, "service request"));
        assert_eq!(ran(&mut ledger, 2, 7), Verdict::Fenced, "who served it does not any more");
        assert_eq!(ledger.batch(NOW, BACKUP, 2, 2, 7, false), Verdict::Release);
        let replay = vec![(2, "service request")];
        assert_eq!(ledger.failed(BACKUP), TakeoverOutcome::Serve { by: PRIMARY, term: 3, replay });
    }

    #[test] // it was told to forget what it had
    fn who_is_a_replica_again_is_not_believed_what_it_said_before() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
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
    fn a_ue_that_is_in_the_middle_of_something_stays() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ledger.batch(NOW, PRIMARY, 1, 1, 7, false), Verdict::Release);
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert!(!ledger.rests() && !ledger.move_to(BACKUP, true));
    }

    #[test] // Neutrino §4.2.4
    fn a_replica_that_lags_holds_the_log_up_only_so_long() {
        const PATIENCE: Duration = Duration::from_secs(30);
        let third = CpfId(3);
        let mut ledger = Ledger::new(PRIMARY, [BACKUP, third], BOUNDS);
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
        ledger.acknowledged(NOW, BACKUP, 1, 1);
        assert_eq!(ledger.scan(NOW + PATIENCE - Duration::from_micros(1), PATIENCE), []);
        let up_to_date = vec![BACKUP];
        assert_eq!(ledger.scan(NOW + PATIENCE, PATIENCE), [Lagging { replica: third, clock: 1, up_to_date }]);
        assert_eq!(ledger.inputs(), 0);
        assert_eq!(ledger.scan(NOW + PATIENCE * 2, PATIENCE), [], "told once");
    }

    /// A UE whose second procedure has begun before its backup said that it holds what the first one led to, and the loss of who serves it.
    fn lost_in_the_second_procedure(
        marking: Marking,
        acknowledged_late: bool,
    ) -> TakeoverOutcome<&'static str> {
        let mut ledger = Ledger::new(PRIMARY, [BACKUP], UeLogLimits { marking, ..BOUNDS });
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
        let marked = ledger.mark();
        match marking {
            Marking::WithoutLog => assert_eq!(marked, []),
            Marking::AtNextProcedure => {
                assert_eq!(marked, [Lagging { replica: BACKUP, clock: 1, up_to_date: vec![] }]);
                assert_eq!(ledger.mark(), [], "told once");
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
    fn the_log_stays_while_nobody_else_has_what_it_holds() {
        let mut ledger = ledger();
        ledger.append(|_| (1, "registration request"));
        assert_eq!(ran(&mut ledger, 1, 7), Verdict::Release);
        assert_eq!(ledger.scan(NOW + Duration::from_secs(3600), Duration::from_secs(30)), []);
        assert!(matches!(ledger.failed(PRIMARY), TakeoverOutcome::Serve { .. }));
    }
}
