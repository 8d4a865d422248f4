//! A CPF of a region: primary of some UEs, backup of others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use whimbrel_control::config::Config;
use whimbrel_control::{Checkpoint, Delta, Disposition, Envelope, UeId, UeSummary};

use super::{Cpf, Trial, TrialOutcome};
use crate::CodeVersion;
use crate::link::{CpfCommand, CpfReport, PeerMessage, UeCheckpoint, UeQuery};
use crate::replication::{CheckpointAck, CpfId, ExecutedInput, HeldCheckpoints, Primary};

/// A UE of which this CPF is the primary.
struct ServedUe {
    term: u32,
    backups: Vec<CpfId>,
    /// The last input that was run.
    clock: u64,
    /// The checkpoint that its backups were sent last, from which the next delta starts. `None`: the next one goes out whole.
    sent: Option<Checkpoint>,
    /// The UE rests, and its record is that checkpoint: `sent` is made of it when it is needed.
    sent_rests: bool,
    /// Its checkpoint is among those that may rest.
    listed: bool,
    /// Inputs in a trial, and those that wait behind them.
    held: Option<HeldInputs>,
}

struct HeldInputs {
    trial: u64,
    /// The `tried` inputs of the trial, then those that came since.
    inputs: Vec<Envelope>,
    tried: usize,
}

impl HeldInputs {
    /// The clocks of the inputs in the trial.
    fn tried(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.inputs[..self.tried].iter().map(|input| input.clock)
    }

    /// The first and the last of them.
    fn all_tried(&self) -> (u64, u64) {
        (self.tried().next().unwrap_or(0), self.tried().next_back().unwrap_or(0))
    }
}

/// Inputs that may wait behind a trial: as many as a log holds (`UeLogLimits`).
const HELD_MAX: usize = 64;
/// UEs whose checkpoint is asked for again on the next link if this one ends: more than a link can lose. Others are asked for once.
const ASKED_MAX: usize = 65_536;

/// Checkpoints that were sent and are looked at after a message, whether their UEs rest: some hundred nanoseconds.
const RESTING_PER_MESSAGE: usize = 4;

/// UEs of a portion when something is sent for all: some ten microseconds.
const PORTION: usize = 64;

/// Outputs of a CPF.
#[derive(Debug, Default)]
pub struct CpfOutbox {
    /// To its CTA.
    pub up: Vec<CpfReport>,
    /// To other CPFs.
    pub peers: Vec<(CpfId, PeerMessage)>,
    /// To its replay sandbox; [`ReplicatedCpf::tried`] takes the outcomes, in order.
    pub trials: Vec<Trial>,
}

/// A CPF of a region, without its links.
pub struct ReplicatedCpf {
    cpf: Cpf,
    code: CodeVersion,
    served: BTreeMap<UeId, ServedUe>,
    /// Holds the fact that a checkpoint is due, not the checkpoint: it is made when it may leave, after the outputs.
    primary: Primary<Option<Checkpoint>>,
    /// UEs with a checkpoint that was sent, each once.
    sent: VecDeque<UeId>,
    holdings: HeldCheckpoints<Checkpoint>,
    /// UEs of which a delta had no base here: the CPF that was asked for the whole checkpoint, and its clock.
    asked: BTreeMap<UeId, (CpfId, u64)>,
    /// Checkpoints that were not what their senders claimed, or could not be read.
    refused: u64,
    /// UEs that have changed since UEs were stored last. `None`: none were.
    unstored: Option<BTreeSet<UeId>>,
    /// The UEs in trials, by the trial's number.
    trials: BTreeMap<u64, UeId>,
    last_trial: u64,
    #[cfg(feature = "experiments")]
    only_whole_states: bool,
}

impl ReplicatedCpf {
    /// One without UEs.
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            cpf: Cpf::new(config),
            code: CodeVersion::own(),
            served: BTreeMap::new(),
            primary: Primary::default(),
            sent: VecDeque::new(),
            holdings: HeldCheckpoints::default(),
            asked: BTreeMap::new(),
            refused: 0,
            unstored: None,
            trials: BTreeMap::new(),
            last_trial: 0,
            #[cfg(feature = "experiments")]
            only_whole_states: false,
        }
    }

    /// Acts as if it ran this code: a simulation has CPFs of several versions in one process.
    pub fn of_code(self, code: CodeVersion) -> Self {
        Self { code, ..self }
    }

    /// Sends whole checkpoints where a delta would be smaller, too: a baseline of experiments.
    #[cfg(feature = "experiments")]
    pub fn only_whole_states(&mut self) {
        self.only_whole_states = true;
    }

    /// The UEs of which it is the primary.
    pub fn cpf(&self) -> &Cpf {
        &self.cpf
    }

    /// The same, to let UEs rest between two inputs.
    pub fn cpf_mut(&mut self) -> &mut Cpf {
        &mut self.cpf
    }

    /// Answers an operator's query over the UEs of which it is the primary.
    pub fn show(&self, which: UeQuery) -> Vec<UeSummary> {
        self.cpf.show(which)
    }

    /// Number of UEs of which it is the primary.
    pub fn serves(&self) -> usize {
        self.served.len()
    }

    /// Number of its UEs whose last checkpoint is in memory beside their contexts.
    pub fn checkpoints_of_its_ues(&self) -> usize {
        self.served.values().filter(|served| served.sent.is_some()).count()
    }

    /// Number of checkpoints that it holds as a backup.
    pub fn backed(&self) -> usize {
        self.holdings.len()
    }

    /// The clock of the checkpoint that it holds of a UE as a backup.
    pub fn holds(&self, ue: UeId) -> Option<u64> {
        self.holdings.clock(ue)
    }

    /// Handles a command of its CTA.
    pub fn handle(&mut self, message: CpfCommand, out: &mut CpfOutbox) {
        match message {
            CpfCommand::Run(envelope) => self.take(envelope, out),
            CpfCommand::RunLogged(input) => {
                if let Ok(envelope) = Envelope::from_flat(input.octets()) {
                    self.take(envelope, out);
                }
            }
            CpfCommand::RunAfterTrial { ue, inputs } => self.have_tried(ue, inputs, out),
            CpfCommand::Serve { ue, term, backups } => self.serve(ue, term, backups, out),
            CpfCommand::Outdated { ue, clock, up_to_date } => {
                self.holdings.outdated(ue, clock);
                if self.holdings.fetch(ue, clock).is_none() {
                    let asked = up_to_date.into_iter().map(|of| (of, PeerMessage::Fetch { ue, clock }));
                    out.peers.extend(asked);
                }
            }
            CpfCommand::Released(batches) => self.primary.released(batches),
            CpfCommand::Forget { ue, term } => {
                if self.served.get(&ue).is_some_and(|served| served.term < term) {
                    self.served.remove(&ue);
                    self.cpf.forget(ue);
                }
                self.holdings.forget(ue, term);
                self.asked.remove(&ue);
            }
            CpfCommand::Configure(config) => self.cpf.configure(config),
            CpfCommand::Hold { ue, term, state } => self.hold(ue, term, &state),
            CpfCommand::Store { all } => self.store(all, out),
        }
        self.replicate(out);
    }

    /// Holds the checkpoint of a UE that the core has restored; one that cannot be read shows when this CPF is to serve the UE.
    fn hold(&mut self, ue: UeId, term: u32, state: &[u8]) {
        if let Ok(state) = Checkpoint::from_octets(state)
            && state.ue_id() == ue
        {
            self.holdings.take(UeCheckpoint { ue, term, clock: state.clock(), state });
        }
    }

    /// Sends the states of its UEs to be stored.
    fn store(&mut self, all: bool, out: &mut CpfOutbox) {
        let changed = self.unstored.replace(BTreeSet::new());
        let ues: Vec<UeId> = match changed.filter(|_| !all) {
            Some(changed) => changed.into_iter().collect(),
            None => self.served.keys().copied().collect(),
        };
        for ue in ues {
            match (self.served.get(&ue), self.cpf.state_for_restart(ue)) {
                (Some(served), Some(state)) => {
                    out.up.push(CpfReport::Stored { term: served.term, state: state.octets().into() });
                }
                (Some(_), None) => {
                    if let Some(unstored) = &mut self.unstored {
                        unstored.insert(ue);
                    }
                }
                (None, _) => {}
            }
        }
        out.up.push(CpfReport::AllStored);
    }

    /// A trial has ended: its inputs, and those that came since, run if it passed.
    pub fn tried(&mut self, trial: u64, became: TrialOutcome, out: &mut CpfOutbox) {
        let Some(ue) = self.trials.remove(&trial) else { return };
        let Some(served) = self.served.get_mut(&ue) else { return };
        if let TrialOutcome::CrashedAfter(unharmed) = became {
            let inputs = served.held.as_ref().map_or((0, 0), |held| {
                held.tried().nth(unharmed as usize).map_or_else(|| held.all_tried(), |clock| (clock, clock))
            });
            out.up.push(CpfReport::Poisoned { ue, term: served.term, inputs });
            return; // held inputs stay until the CTA orders to forget the UE
        }
        let held = served.held.take_if(|h| h.trial == trial);
        held.into_iter().flat_map(|h| h.inputs).for_each(|input| self.run(&input, out));
        self.replicate(out);
    }

    fn replicate(&mut self, out: &mut CpfOutbox) {
        while let Some((ue, clock, state)) = self.primary.due() {
            let Some(served) = self.served.get_mut(&ue) else { continue };
            // A UE with a running procedure has a newer checkpoint soon.
            let made = || self.cpf.checkpoint(ue).filter(|_| served.clock == clock);
            let Some(state) = state.or_else(made) else { continue };
            let term = served.term;
            let message = match served.sent.as_ref().and_then(|base| Delta::between(base, &state)) {
                Some(delta) => PeerMessage::Delta { term, delta },
                None => PeerMessage::State(UeCheckpoint { ue, term, clock, state: state.clone() }),
            };
            (served.sent, served.sent_rests) = (Some(state), false);
            if !std::mem::replace(&mut served.listed, true) {
                self.sent.push_back(ue);
            }
            #[cfg(feature = "experiments")]
            served.sent.take_if(|_| self.only_whole_states);
            out.peers.extend(served.backups.iter().map(|&to| (to, message.clone())));
        }
        self.forget_checkpoints_of_ues_at_rest();
    }

    fn forget_checkpoints_of_ues_at_rest(&mut self) {
        for _ in 0..self.sent.len().min(RESTING_PER_MESSAGE) {
            let Some(ue) = self.sent.pop_front() else { return };
            let Some(served) = self.served.get_mut(&ue) else { continue };
            let is_last = served.sent.as_ref().is_some_and(|sent| sent.clock() == served.clock);
            if is_last && self.cpf.is_at_rest(ue) {
                (served.sent, served.sent_rests, served.listed) = (None, true, false);
            } else if served.sent.is_some() {
                self.sent.push_back(ue);
            } else {
                served.listed = false;
            }
        }
    }

    fn have_tried(&mut self, ue: UeId, mut inputs: Vec<Envelope>, out: &mut CpfOutbox) {
        if let Some(input) = inputs.iter().find(|input| input.code_version != self.code.0) {
            return self.refuse(input, out);
        }
        let Some(served) = self.served.get_mut(&ue) else { return };
        // The checkpoint may be newer than the CTA knew.
        inputs.retain(|input| input.clock > served.clock);
        if let Some(input) = inputs.first().filter(|input| input.clock > served.clock + 1) {
            return self.refuse(input, out);
        }
        self.last_trial += 1;
        let id = self.last_trial;
        self.trials.insert(id, ue);
        out.trials.push(Trial { id, ue, state: self.cpf.checkpoint(ue), inputs: inputs.clone() });
        served.held = Some(HeldInputs { trial: id, tried: inputs.len(), inputs });
    }

    /// Runs an input, or holds it behind a trial.
    fn take(&mut self, envelope: Envelope, out: &mut CpfOutbox) {
        if envelope.code_version != self.code.0 {
            return self.refuse(&envelope, out);
        }
        let Some(served) = self.served.get_mut(&envelope.ue) else { return };
        match &mut served.held {
            None => self.run(&envelope, out),
            Some(held) if held.inputs.len() < held.tried + HELD_MAX => held.inputs.push(envelope),
            Some(held) => {
                let (ue, inputs) = (envelope.ue, held.all_tried());
                out.up.push(CpfReport::Poisoned { ue, term: served.term, inputs });
            }
        }
    }

    /// Refuses a UE whose log is of another code version, or leads on from a state that is not here.
    fn refuse(&mut self, envelope: &Envelope, out: &mut CpfOutbox) {
        let ue = envelope.ue;
        if let Some(ServedUe { term, .. }) = self.served.remove(&ue) {
            self.cpf.forget(ue);
            out.up.push(CpfReport::CheckpointUnusable { ue, term });
        }
    }

    /// Number of unusable checkpoints: unreadable, or not what their senders claimed.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Handles a message of another CPF.
    pub fn peer(&mut self, from: CpfId, message: PeerMessage, out: &mut CpfOutbox) {
        match message {
            PeerMessage::State(state) => self.back(state, out),
            PeerMessage::Delta { term, delta } => self.back_by(from, term, &delta, out),
            PeerMessage::Fetch { ue, clock } => {
                let held = self.sent(ue, from).or_else(|| self.holdings.fetch(ue, 0));
                let held = held.filter(|state| state.clock >= clock);
                out.peers.extend(held.map(|state| (from, PeerMessage::State(state))));
            }
        }
    }

    /// A link to another CPF has ended, and a new one is up: it is unknown how many of the last messages arrived. So that CPF is sent the
    /// last checkpoint again of each UE that it backs, and asked again for missing ones. UEs come in portions, after `after`; returns where
    /// the next portion begins, if there is one.
    pub fn peer_reconnected(
        &mut self,
        peer: CpfId,
        after: Option<UeId>,
        out: &mut CpfOutbox,
    ) -> Option<UeId> {
        if after.is_none() {
            let asked = self.asked.iter().filter(|(_, (of, _))| *of == peer);
            let asked = asked.map(|(ue, (_, clock))| (*ue, *clock));
            let missing = self.holdings.lacking().chain(asked);
            out.peers.extend(missing.map(|(ue, clock)| (peer, PeerMessage::Fetch { ue, clock })));
        }
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut portion = self.served.range((begin, Bound::Unbounded)).map(|(ue, _)| *ue);
        let ues: Vec<UeId> = portion.by_ref().take(PORTION).collect();
        let more = portion.next().and(ues.last().copied());
        out.peers
            .extend(ues.into_iter().filter_map(|p| Some((peer, PeerMessage::State(self.sent(p, peer)?)))));
        more
    }

    /// The checkpoint of a UE that was sent to its backups last, if `backup` is one of them.
    fn sent(&self, ue: UeId, backup: CpfId) -> Option<UeCheckpoint> {
        let served = self.served.get(&ue).filter(|s| s.backups.contains(&backup))?;
        let of_record = || self.cpf.checkpoint(ue).filter(|_| served.sent_rests);
        let state = served.sent.clone().or_else(of_record)?;
        Some(UeCheckpoint { ue, term: served.term, clock: state.clock(), state })
    }

    /// Applies a delta to the held checkpoint, or asks for the whole one if the base is missing.
    fn back_by(&mut self, from: CpfId, term: u32, delta: &Delta, out: &mut CpfOutbox) {
        let (ue, clock) = (delta.ue_id(), delta.clock());
        let base = self.holdings.state(ue);
        match base.and_then(|base| delta.apply(base).ok()) {
            Some(state) => self.back(UeCheckpoint { ue, term, clock, state }, out),
            None => {
                if self.asked.len() < ASKED_MAX {
                    self.asked.insert(ue, (from, clock));
                }
                out.peers.push((from, PeerMessage::Fetch { ue, clock }));
            }
        }
    }

    /// Stores a checkpoint unread; it is decoded when this CPF takes the UE over.
    fn back(&mut self, state: UeCheckpoint, out: &mut CpfOutbox) {
        let ue = state.ue;
        match self.served.get(&ue).map(|s| s.term) {
            Some(term) if state.term <= term => return, // it was sent before this CPF replaced its sender
            _ => {}
        }
        if (state.state.ue_id(), state.state.clock()) != (ue, state.clock) || state.term == u32::MAX {
            self.refused += 1;
            out.up.push(CpfReport::CheckpointUnusable { ue, term: state.term });
            return; // this CPF counts as lagging, and the CTA has the log
        }
        if self.served.remove(&ue).is_some() {
            self.cpf.forget(ue); // the UE has moved to the sender, and this CPF is its backup from now on
        }
        let term = state.term;
        if let CheckpointAck::Holds(clock) = self.holdings.take(state) {
            if self.asked.get(&ue).is_some_and(|(_, missing)| *missing <= clock) {
                self.asked.remove(&ue);
            }
            out.up.push(CpfReport::CheckpointHeld { ue, term, clock });
        }
    }

    fn serve(&mut self, ue: UeId, term: u32, backups: Vec<CpfId>, out: &mut CpfOutbox) {
        if self.holdings.term(ue).is_some_and(|held| held > term) {
            return; // the UE has moved since: the checkpoint of its new primary arrived first
        }
        if !self.served.contains_key(&ue) {
            let Some(clock) = self.take_over(ue) else {
                self.refused += 1;
                out.up.push(CpfReport::CheckpointUnusable { ue, term });
                return; // no input of the UE is run here
            };
            let served = ServedUe {
                term,
                backups: Vec::new(),
                clock,
                sent: None,
                sent_rests: false,
                listed: false,
                held: None,
            };
            self.served.insert(ue, served);
            if let Some(unstored) = &mut self.unstored {
                unstored.insert(ue);
            }
        }
        self.asked.remove(&ue);
        let Some(served) = self.served.get_mut(&ue) else { return };
        (served.term, served.backups) = (term, backups);
        if served.backups.is_empty() {
            (served.sent, served.sent_rests) = (None, false);
            return;
        }
        // Its backups, of which some may be new, get the current checkpoint. While a procedure runs, that is the one sent last: the log
        // leads on from there, and this CPF may be lost before the procedure ends.
        if let Some(state) = self.cpf.checkpoint(ue) {
            (served.sent, served.sent_rests) = (None, false);
            self.primary.again(ue, served.clock, Some(state));
        } else if let Some(state) = &served.sent {
            let state = UeCheckpoint { ue, term, clock: state.clock(), state: state.clone() };
            out.peers.extend(served.backups.iter().map(|&to| (to, PeerMessage::State(state.clone()))));
        }
    }

    /// Restores a UE from its checkpoint, or starts it without one. Returns its clock; `None` if the checkpoint is not what its sender
    /// claimed.
    fn take_over(&mut self, ue: UeId) -> Option<u64> {
        let Some((clock, state)) = self.holdings.promote(ue) else { return Some(0) };
        let state = state.context().ok().filter(|p| (p.id, p.clock) == (ue, clock))?;
        self.cpf.restore(state);
        Some(clock)
    }

    fn run(&mut self, envelope: &Envelope, out: &mut CpfOutbox) {
        let ue = envelope.ue;
        let Some(served) = self.served.get_mut(&ue) else { return };
        if envelope.clock <= served.clock {
            return; // it was run before
        }
        if envelope.clock > served.clock + 1 {
            return self.refuse(envelope, out); // this CPF lacks a state that it had acknowledged
        }
        if std::mem::take(&mut served.sent_rests) {
            served.sent = self.cpf.checkpoint(ue);
        }
        served.clock = envelope.clock;
        if let Some(unstored) = &mut self.unstored {
            unstored.insert(ue);
        }
        let batch = Box::new(self.cpf.run(envelope));
        let stays = !matches!(batch.disposition, Disposition::Ended | Disposition::Elsewhere(_));
        let checkpoint_due = stays && batch.idle && !served.backups.is_empty();
        let idle = checkpoint_due.then_some(None);
        self.primary.ran(ExecutedInput { ue, clock: envelope.clock, idle });
        let (term, clock, from) = (served.term, envelope.clock, envelope.payload.association());
        out.up.push(CpfReport::Ran { ue, term, clock, from, batch });
    }
}
