//! A control function of a region: serves phones, backs others.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use whimbrel_control::config::Config;
use whimbrel_control::{Checkpoint, Delta, Disposition, Envelope, Glimpse, PhoneId};

use super::{Cpf, Trial, Tried};
use crate::CodeVersion;
use crate::link::{Down, Peer, Show, State, Up};
use crate::replication::{CpfId, Holdings, Primary, Ran, Taken};

/// A phone that is served here.
struct Served {
    term: u32,
    backups: Vec<CpfId>,
    /// The last input that was run.
    clock: u64,
    /// The state that its backups were sent last: the next one goes to them as what differs. `None`: they, or some of them, get it whole.
    sent: Option<Checkpoint>,
    /// Inputs that are being tried, and those behind them.
    held: Option<Held>,
}

struct Held {
    trial: u64,
    /// Those that are being tried, and how many these are; then what came since.
    inputs: Vec<Envelope>,
    tried: usize,
}

impl Held {
    /// The clocks of the inputs that are being tried.
    fn tried(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.inputs[..self.tried].iter().map(|input| input.clock)
    }

    /// The first and the last of them.
    fn all_tried(&self) -> (u64, u64) {
        (self.tried().next().unwrap_or(0), self.tried().next_back().unwrap_or(0))
    }
}

/// Inputs that come while others of their phone are being tried, at most: as many as an aggregator keeps for a replay (`Bounds`).
const HELD_MAX: usize = 64;
/// Phones whose state is asked for again on the next link, should this one end: more than a link can lose. Others are asked for once.
const ASKED_MAX: usize = 65_536;

/// Phones of a portion, where something is said of all: some ten microseconds.
const PORTION: usize = 64;

/// What leaves a member.
#[derive(Debug, Default)]
pub struct MemberOutbox {
    /// To its aggregator.
    pub up: Vec<Up>,
    /// To other members.
    pub peers: Vec<(CpfId, Peer)>,
    /// To its taster; each is answered by [`Member::tried`], in order.
    pub trials: Vec<Trial>,
}

/// A control function with its links, without the links.
pub struct Member {
    cpf: Cpf,
    code: CodeVersion,
    served: BTreeMap<PhoneId, Served>,
    /// After an input it waits that the state be sent, not the state: that is made when it leaves, which is after the answers have.
    primary: Primary<Option<Checkpoint>>,
    holdings: Holdings<Checkpoint>,
    /// Phones of which a delta had no base here: who was asked for the whole, and of which clock.
    asked: BTreeMap<PhoneId, (CpfId, u64)>,
    /// States that were not what their senders said, or could not be read when they were needed.
    refused: u64,
    /// The phones of which inputs are being tried, by the trials' numbers.
    trials: BTreeMap<u64, PhoneId>,
    last_trial: u64,
    only_whole_states: bool,
}

impl Member {
    /// One that serves and backs nobody yet.
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            cpf: Cpf::new(config),
            code: CodeVersion::own(),
            served: BTreeMap::new(),
            primary: Primary::default(),
            holdings: Holdings::default(),
            asked: BTreeMap::new(),
            refused: 0,
            trials: BTreeMap::new(),
            last_trial: 0,
            only_whole_states: false,
        }
    }

    /// As if it ran this code: a simulation has members of several versions in one process.
    pub fn of_code(self, code: CodeVersion) -> Self {
        Self { code, ..self }
    }

    /// Sends states whole, also where what differs is smaller: a baseline of experiments.
    pub fn only_whole_states(&mut self) {
        self.only_whole_states = true;
    }

    /// The phones that it serves.
    pub fn cpf(&self) -> &Cpf {
        &self.cpf
    }

    /// The phones that an operator wants to see, of those that it serves.
    pub fn show(&self, which: Show) -> Vec<Glimpse> {
        self.cpf.show(which)
    }

    /// How many phones it serves.
    pub fn serves(&self) -> usize {
        self.served.len()
    }

    /// How many phones' states it holds for others.
    pub fn backed(&self) -> usize {
        self.holdings.len()
    }

    /// The clock of the state that it holds of a phone for another.
    pub fn holds(&self, phone: PhoneId) -> Option<u64> {
        self.holdings.clock(phone)
    }

    /// Takes a message of its aggregator.
    pub fn handle(&mut self, message: Down, out: &mut MemberOutbox) {
        match message {
            Down::Run(envelope) => self.take(envelope, out),
            Down::Logged(input) => {
                if let Ok(envelope) = Envelope::from_flat(input.octets()) {
                    self.take(envelope, out);
                }
            }
            Down::Try { phone, inputs } => self.have_tried(phone, inputs, out),
            Down::Serve { phone, term, backups } => self.serve(phone, term, backups, out),
            Down::Outdated { phone, clock, up_to_date } => {
                self.holdings.outdated(phone, clock);
                if self.holdings.fetch(phone, clock).is_none() {
                    let asked = up_to_date.into_iter().map(|of| (of, Peer::Fetch { phone, clock }));
                    out.peers.extend(asked);
                }
            }
            Down::Released(batches) => self.primary.released(batches),
            Down::Forget { phone, term } => {
                if self.served.get(&phone).is_some_and(|served| served.term < term) {
                    self.served.remove(&phone);
                    self.cpf.forget(phone);
                }
                self.holdings.forget(phone, term);
                self.asked.remove(&phone);
            }
            Down::Configure(config) => self.cpf.configure(config),
        }
        self.replicate(out);
    }

    /// A trial has ended: its inputs, and those that came since, are run if none did harm.
    pub fn tried(&mut self, trial: u64, became: Tried, out: &mut MemberOutbox) {
        let Some(phone) = self.trials.remove(&trial) else { return };
        let Some(served) = self.served.get_mut(&phone) else { return };
        if let Tried::EndedAfter(unharmed) = became {
            let inputs = served.held.as_ref().map_or((0, 0), |held| {
                held.tried().nth(unharmed as usize).map_or_else(|| held.all_tried(), |clock| (clock, clock))
            });
            out.up.push(Up::Poisoned { phone, term: served.term, inputs });
            return; // what is held stays so until the aggregator says that the phone is gone
        }
        let held = served.held.take_if(|h| h.trial == trial);
        held.into_iter().flat_map(|h| h.inputs).for_each(|input| self.run(&input, out));
        self.replicate(out);
    }

    fn replicate(&mut self, out: &mut MemberOutbox) {
        while let Some((phone, clock, state)) = self.primary.due() {
            let Some(served) = self.served.get_mut(&phone) else { continue };
            // Who is at something again has a newer state soon.
            let made = || self.cpf.checkpoint(phone).filter(|_| served.clock == clock);
            let Some(state) = state.or_else(made) else { continue };
            let term = served.term;
            let message = match served.sent.as_ref().and_then(|base| Delta::between(base, &state)) {
                Some(delta) => Peer::Delta { term, delta },
                None => Peer::State(State { phone, term, clock, state: state.clone() }),
            };
            served.sent = Some(state).filter(|_| !self.only_whole_states);
            out.peers.extend(served.backups.iter().map(|&to| (to, message.clone())));
        }
    }

    fn have_tried(&mut self, phone: PhoneId, mut inputs: Vec<Envelope>, out: &mut MemberOutbox) {
        if let Some(input) = inputs.iter().find(|input| input.code_version != self.code.0) {
            return self.refuse(input, out);
        }
        let Some(served) = self.served.get_mut(&phone) else { return };
        // The state may be newer than the aggregator knew when it chose these.
        inputs.retain(|input| input.clock > served.clock);
        if let Some(input) = inputs.first().filter(|input| input.clock > served.clock + 1) {
            return self.refuse(input, out);
        }
        self.last_trial += 1;
        let id = self.last_trial;
        self.trials.insert(id, phone);
        out.trials.push(Trial { id, phone, state: self.cpf.checkpoint(phone), inputs: inputs.clone() });
        served.held = Some(Held { trial: id, tried: inputs.len(), inputs });
    }

    /// Runs an input, or keeps it behind those that are being tried.
    fn take(&mut self, envelope: Envelope, out: &mut MemberOutbox) {
        if envelope.code_version != self.code.0 {
            return self.refuse(&envelope, out);
        }
        let Some(served) = self.served.get_mut(&envelope.phone) else { return };
        match &mut served.held {
            None => self.run(&envelope, out),
            Some(held) if held.inputs.len() < held.tried + HELD_MAX => held.inputs.push(envelope),
            Some(held) => {
                let (phone, inputs) = (envelope.phone, held.all_tried());
                out.up.push(Up::Poisoned { phone, term: served.term, inputs });
            }
        }
    }

    /// The log of a phone is another version's, or leads on from a state that is not here: the phone is not served here.
    fn refuse(&mut self, envelope: &Envelope, out: &mut MemberOutbox) {
        let phone = envelope.phone;
        if let Some(Served { term, .. }) = self.served.remove(&phone) {
            self.cpf.forget(phone);
            out.up.push(Up::Unreadable { phone, term });
        }
    }

    /// How many states that were sent here could not be served from: unreadable, or not what their senders said.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a message of another member.
    pub fn peer(&mut self, from: CpfId, message: Peer, out: &mut MemberOutbox) {
        match message {
            Peer::State(state) => self.back(state, out),
            Peer::Delta { term, delta } => self.back_by(from, term, &delta, out),
            Peer::Fetch { phone, clock } => {
                let held = self.sent(phone, from).or_else(|| self.holdings.fetch(phone, 0));
                let held = held.filter(|state| state.clock >= clock);
                out.peers.extend(held.map(|state| (from, Peer::State(state))));
            }
        }
    }

    /// A link to another member has ended, and a new one leads there: how many of the last messages came is not known. So that one is sent again what
    /// it was sent last of each phone that it backs, and asked again for what is lacked here. Phones in portions, after this one; gives where the next
    /// portion begins, if there is one.
    pub fn reached_again(
        &mut self,
        peer: CpfId,
        after: Option<PhoneId>,
        out: &mut MemberOutbox,
    ) -> Option<PhoneId> {
        if after.is_none() {
            let asked = self.asked.iter().filter(|(_, (of, _))| *of == peer);
            let asked = asked.map(|(phone, (_, clock))| (*phone, *clock));
            let wanted = self.holdings.lacking().chain(asked);
            out.peers.extend(wanted.map(|(phone, clock)| (peer, Peer::Fetch { phone, clock })));
        }
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut portion = self.served.range((begin, Bound::Unbounded)).map(|(phone, _)| *phone);
        let phones: Vec<PhoneId> = portion.by_ref().take(PORTION).collect();
        let more = portion.next().and(phones.last().copied());
        out.peers.extend(phones.into_iter().filter_map(|p| Some((peer, Peer::State(self.sent(p, peer)?)))));
        more
    }

    /// The state of a phone that is served here, as its backups were sent it last, of which this is one.
    fn sent(&self, phone: PhoneId, backup: CpfId) -> Option<State> {
        let served = self.served.get(&phone).filter(|s| s.backups.contains(&backup))?;
        let state = served.sent.clone()?;
        Some(State { phone, term: served.term, clock: state.clock(), state })
    }

    /// Takes what differs in a phone's state from the one that is held. Who holds another one asks for the whole.
    fn back_by(&mut self, from: CpfId, term: u32, delta: &Delta, out: &mut MemberOutbox) {
        let (phone, clock) = (delta.phone_id(), delta.clock());
        let base = self.holdings.state(phone);
        match base.and_then(|base| delta.apply(base).ok()) {
            Some(state) => self.back(State { phone, term, clock, state }, out),
            None => {
                if self.asked.len() < ASKED_MAX {
                    self.asked.insert(phone, (from, clock));
                }
                out.peers.push((from, Peer::Fetch { phone, clock }));
            }
        }
    }

    /// Takes a phone's state. It is kept as it came, and read when the phone has to be served from it.
    fn back(&mut self, state: State, out: &mut MemberOutbox) {
        let phone = state.phone;
        match self.served.get(&phone).map(|s| s.term) {
            Some(term) if state.term <= term => return, // it was sent before its sender was replaced by this one
            _ => {}
        }
        if (state.state.phone_id(), state.state.clock()) != (phone, state.clock) || state.term == u32::MAX {
            self.refused += 1;
            out.up.push(Up::Unreadable { phone, term: state.term });
            return; // it counts as lagging, and the aggregator has the log
        }
        if self.served.remove(&phone).is_some() {
            self.cpf.forget(phone); // it has moved to who sends this, and is backed here from now on
        }
        let term = state.term;
        if let Taken::Holds(clock) = self.holdings.take(state) {
            if self.asked.get(&phone).is_some_and(|(_, wanted)| *wanted <= clock) {
                self.asked.remove(&phone);
            }
            out.up.push(Up::Holds { phone, term, clock });
        }
    }

    fn serve(&mut self, phone: PhoneId, term: u32, backups: Vec<CpfId>, out: &mut MemberOutbox) {
        if self.holdings.term(phone).is_some_and(|held| held > term) {
            return; // it has moved on since: the state of who serves it now was here first
        }
        if !self.served.contains_key(&phone) {
            let Some(clock) = self.take_over(phone) else {
                self.refused += 1;
                out.up.push(Up::Unreadable { phone, term });
                return; // no input of the phone is run here
            };
            self.served.insert(phone, Served { term, backups: Vec::new(), clock, sent: None, held: None });
        }
        self.asked.remove(&phone);
        let Some(served) = self.served.get_mut(&phone) else { return };
        (served.term, served.backups) = (term, backups);
        if served.backups.is_empty() {
            served.sent = None;
            return;
        }
        // Its backups, of which some are new, get what stands. Where a procedure runs, that is what was sent last: the log leads on from there, and
        // who serves the phone may be lost before the procedure ends.
        if let Some(state) = self.cpf.checkpoint(phone) {
            served.sent = None;
            self.primary.again(phone, served.clock, Some(state));
        } else if let Some(state) = &served.sent {
            let state = State { phone, term, clock: state.clock(), state: state.clone() };
            out.peers.extend(served.backups.iter().map(|&to| (to, Peer::State(state.clone()))));
        }
    }

    /// Goes on with a phone from what is held of it, or from nothing. Gives the clock of that; nothing if it is not what its sender said.
    fn take_over(&mut self, phone: PhoneId) -> Option<u64> {
        let Some((clock, state)) = self.holdings.promote(phone) else { return Some(0) };
        let state = state.phone().ok().filter(|p| (p.id, p.clock) == (phone, clock))?;
        self.cpf.restore(state);
        Some(clock)
    }

    fn run(&mut self, envelope: &Envelope, out: &mut MemberOutbox) {
        let phone = envelope.phone;
        let Some(served) = self.served.get_mut(&phone) else { return };
        if envelope.clock <= served.clock {
            return; // it was run before
        }
        if envelope.clock > served.clock + 1 {
            return self.refuse(envelope, out); // it lacks what it said to have
        }
        served.clock = envelope.clock;
        let batch = Box::new(self.cpf.run(envelope));
        let stays = !matches!(batch.disposition, Disposition::Ended | Disposition::Elsewhere(_));
        let wanted = stays && batch.idle && !served.backups.is_empty();
        let idle = wanted.then_some(None);
        self.primary.ran(Ran { phone, clock: envelope.clock, idle });
        let (term, clock, from) = (served.term, envelope.clock, envelope.payload.association());
        out.up.push(Up::Ran { phone, term, clock, from, batch });
    }
}
