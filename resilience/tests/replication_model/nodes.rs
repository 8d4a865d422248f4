//! The nodes of the model: the product's own CTA, CTA replica and CPF, each with what stands between it and its links.
//!
//! They cannot be copied, and need not be: a node is what it has heard since the beginning. So a node is kept as its history, and run again
//! from the beginning when it hears something that it has not heard there before; what came of each step is remembered. Two histories that
//! led a CTA to the same state are one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_control::config::Config;
use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, UeId};
use whimbrel_ids::Instant;
use whimbrel_resilience::cta_replica::{CtaReplica, LinkEnd, PrimaryCta};
use whimbrel_resilience::link::{CpfCommand, CpfReport, PeerMessage, ToCpf, ToCta, ToPeer};
use whimbrel_resilience::region::{GnbRegions, Region, Regions, Rings};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{
    CpfOutbox, Entropy, Input, LogLimits, Outbox, ProtocolViolation, ReplicatedCpf, TrialOutcome,
};
use whimbrel_security::HomeNetworkKeys;
use whimbrel_sim::SimSubscribers;

pub(crate) type Octets = Arc<[u8]>;

/// Constant entropy, so that a UE's messages do not depend on when the others are served.
pub(crate) struct Constant;

impl Entropy for Constant {
    fn draw(&mut self) -> [u8; 16] {
        [7; 16]
    }
}

type Serving = PrimaryCta<SimSubscribers, Constant>;

/// The only gNB's association.
pub(crate) const GNB: AssociationId = AssociationId(0);
/// When all happens, unless time is let pass.
pub(crate) const NOW: Instant = Instant(1_793_700_000_000_000);

/// What a node hears.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum In {
    // To the CTA:
    Ngap(Octets),
    Up {
        from: CpfId,
        has: u64,
        octets: Octets,
    },
    /// Its CTA replica holds so many inputs.
    Held(u64),
    /// The rings are of these.
    Rings(BTreeSet<CpfId>),
    /// One is lost, and the rings are of these.
    Lost(CpfId, BTreeSet<CpfId>),
    Move(UeId, CpfId),
    Tick(Instant),
    Resumes {
        cpf: CpfId,
        has: u64,
    },
    // To the CTA replica:
    Record {
        octets: Octets,
        left: u64,
    },
    TakesOver,
    // To a CPF:
    Down {
        taken: u64,
        octets: Octets,
    },
    Peer(Octets),
    /// A link to another one that ended is there again.
    Reached(CpfId),
    Tried(u64),
    /// The link to the CTA goes on with another one, which has so many of its messages.
    Resumed(u64),
}

/// What comes of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Out {
    pub ngap: Vec<Octets>,
    pub down: Vec<(CpfId, u64, Octets)>,
    pub records: Vec<(Octets, u64)>,
    /// The CTA replica holds so many.
    pub held: Option<u64>,
    pub up: Vec<(u64, Octets)>,
    pub peers: Vec<(CpfId, Octets)>,
    pub trials: Vec<u64>,
    /// They have nothing any more and may go.
    pub drained: Vec<CpfId>,
    /// Whether it caused something, now or when its CTA replica has it.
    pub caused: bool,
    pub wrong: Option<&'static str>,
}

/// What the model asks of a CTA.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The primary and the backups of each UE.
    pub served: BTreeMap<UeId, (CpfId, Vec<CpfId>)>,
    pub taken_over: u64,
    pub moved: u64,
    pub lost: u64,
    /// Replicas that the log waited for no longer.
    pub lagging: u64,
    pub failing_over: bool,
    /// When it has something to do by itself.
    pub due: Instant,
    /// Inputs that wait for the CTA replica.
    pub waiting: usize,
    /// The last input of a CTA; how many messages of its CTA a CPF has.
    pub last: u64,
    /// Inputs that are kept for UEs.
    pub logged: usize,
    /// CPFs whose links have still to be resumed after a takeover.
    pub unsettled: Vec<CpfId>,
    /// Messages of each CPF that are here to stay.
    pub taken: BTreeMap<CpfId, u64>,
    /// The clocks of the states that a CPF has, as primary or as replica.
    pub holds: BTreeMap<UeId, u64>,
}

/// A node in a state.
pub(crate) struct Node {
    id: u64,
    root: usize,
    last: Option<(NodeRef, In)>,
    pub facts: Facts,
}

#[derive(Clone)]
pub(crate) struct NodeRef(Arc<Node>);

impl std::ops::Deref for NodeRef {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.0
    }
}

impl PartialEq for NodeRef {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for NodeRef {}

impl Hash for NodeRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl std::fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.id)
    }
}

/// How a node begins.
pub(crate) enum Root {
    /// From this snapshot, with CPFs that have so many messages; followed by a CTA replica or not.
    Active {
        snapshot: Vec<u8>,
        has: BTreeMap<CpfId, u64>,
        replicated: bool,
    },
    CtaReplica {
        snapshot: Vec<u8>,
    },
    Cpf {
        id: CpfId,
        heard: Vec<In>,
    },
}

/// What differs between the worlds that are tried.
#[derive(Clone)]
pub(crate) struct Terms {
    pub config: Arc<Config>,
    pub backups: usize,
    pub logs: LogLimits,
    /// As in the paper: a checkpoint leaves with the batch, not after its release.
    pub hasty: bool,
}

impl Terms {
    pub(crate) fn rings<'a>(&self, members: impl IntoIterator<Item = &'a CpfId>) -> Rings {
        let home: Region = "coast/home".parse().expect("a region's name");
        let mut regions = Regions::new([home.clone()]).expect("it is the only one");
        members.into_iter().for_each(|cpf| regions.join(*cpf, &home).expect("each is there once"));
        regions.rings_with(&home, GnbRegions::default(), self.backups).expect("the region is known")
    }

    pub(crate) fn directory(&self) -> Directory {
        Directory::new(self.config.amf.plmn, HomeNetworkKeys::new())
    }
}

/// What became of a node that heard something, and what came of it, by the digest of both.
type Heard = BTreeMap<u64, (NodeRef, Arc<Out>)>;

/// All states of all nodes that were met so far.
pub(crate) struct Nodes {
    terms: Terms,
    roots: Vec<Root>,
    heard: Mutex<Heard>,
}

impl Nodes {
    pub(crate) fn new(terms: Terms, roots: Vec<Root>) -> Self {
        Self { terms, roots, heard: Mutex::default() }
    }

    pub(crate) fn root(&self, root: usize) -> NodeRef {
        let machine = self.begin(root);
        let facts = machine.facts();
        NodeRef(Arc::new(Node { id: digest(&(root, "root")), root, last: None, facts }))
    }

    fn begin(&self, root: usize) -> Machine {
        let terms = &self.terms;
        match &self.roots[root] {
            Root::Active { snapshot, has, replicated } => {
                let mut active = settled(terms, snapshot, has);
                if *replicated {
                    active.snapshot().expect("all is at rest");
                    active.begin_holding();
                }
                Machine::Active(PrimaryNode::new(active))
            }
            Root::CtaReplica { snapshot } => Machine::CtaReplica(Following {
                cta_replica: follow(terms, snapshot),
                doubtful: VecDeque::new(),
            }),
            Root::Cpf { id, heard } => {
                let mut cpf = AtCpf::new(*id, terms);
                heard.iter().for_each(|heard| drop(cpf.hear(heard, terms.hasty)));
                Machine::Cpf(cpf)
            }
        }
    }

    /// What becomes of a node that hears this, and what comes of it.
    pub(crate) fn hear(&self, node: &NodeRef, heard: &In) -> (NodeRef, Arc<Out>) {
        let key = digest(&(node.id, heard));
        let known =
            |nodes: &Self| nodes.heard.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known(self) {
            return known;
        }
        let mut history = Vec::new();
        let mut at = node;
        while let Some((before, heard)) = &at.last {
            history.push(heard);
            at = before;
        }
        let mut machine = self.begin(node.root);
        for heard in history.into_iter().rev() {
            machine = machine.hear(heard, &self.terms).0;
        }
        let (machine, out) = machine.hear(heard, &self.terms);
        let facts = machine.facts();
        let next = Node {
            id: digest(&(node.root, machine.state())),
            root: node.root,
            last: Some((node.clone(), heard.clone())),
            facts,
        };
        let became = (NodeRef(Arc::new(next)), Arc::new(out));
        let mut all = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(key, became.clone());
        became
    }

    pub(crate) fn steps(&self) -> usize {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

pub(crate) fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn follow(terms: &Terms, snapshot: &[u8]) -> CtaReplica<SimSubscribers, Constant> {
    CtaReplica::new(snapshot, terms.directory(), SimSubscribers::default(), Constant, ())
        .expect("a snapshot is read as it was written")
}

/// A CTA that goes on from a snapshot, with CPFs that have so many of its messages.
pub(crate) fn settled(terms: &Terms, snapshot: &[u8], has: &BTreeMap<CpfId, u64>) -> Serving {
    let mut active = follow(terms, snapshot).take_over().0;
    for (cpf, has) in has {
        let again = active.resume(*cpf, *has).expect("they stood so");
        assert!(again.is_empty(), "nothing was under way");
    }
    active
}

/// A node at work.
pub(crate) enum Machine {
    Active(PrimaryNode),
    CtaReplica(Following),
    Cpf(AtCpf),
}

impl Machine {
    pub(crate) fn hear(self, heard: &In, terms: &Terms) -> (Self, Out) {
        match self {
            Self::Active(mut active) => {
                let out = active.hear(heard, terms);
                (Self::Active(active), out)
            }
            Self::CtaReplica(cta_replica) if *heard == In::TakesOver => {
                let (active, out) = cta_replica.take_over();
                (Self::Active(active), out)
            }
            Self::CtaReplica(mut cta_replica) => {
                let out = cta_replica.hear(heard);
                (Self::CtaReplica(cta_replica), out)
            }
            Self::Cpf(mut cpf) => {
                let out = cpf.hear(heard, terms.hasty);
                (Self::Cpf(cpf), out)
            }
        }
    }

    fn facts(&self) -> Facts {
        match self {
            Self::Active(active) => active.facts(),
            Self::Cpf(cpf) => cpf.facts(),
            Self::CtaReplica(_) => Facts::default(),
        }
    }

    /// What distinguishes one state from another.
    fn state(self) -> u64 {
        match self {
            Self::Active(active) => active.state(),
            Self::CtaReplica(cta_replica) => {
                let doubtful: Vec<u64> = cta_replica.doubtful.iter().map(|(_, d)| *d).collect();
                digest(&(doubtful, cta_replica.take_over().0.state()))
            }
            Self::Cpf(cpf) => cpf.state(),
        }
    }
}

/// A CTA that serves.
pub(crate) struct PrimaryNode {
    pub active: Serving,
    /// What waits for the CTA replica, by input.
    pending: VecDeque<u64>,
}

impl PrimaryNode {
    pub(crate) fn new(active: Serving) -> Self {
        Self { active, pending: VecDeque::new() }
    }

    fn hear(&mut self, heard: &In, terms: &Terms) -> Out {
        let mut out = Out::default();
        match heard {
            In::Ngap(octets) => self.input(NOW, Input::Ngap(GNB, 1, octets), &mut out),
            In::Up { from, has, octets } => {
                self.active.confirmed(*from, *has);
                let ToCta::Report(message) = ToCta::read(octets).expect("a CPF wrote it") else {
                    unreachable!("nothing else goes up here")
                };
                self.input(NOW, Input::Cpf(*from, message), &mut out);
            }
            In::Held(number) => {
                let mut left = Outbox::default();
                self.active.acknowledged(*number, &mut left);
                self.leave(left, &mut out);
                self.active.mark_outputs_sent();
                while self.pending.len() > self.active.waiting() {
                    self.pending.pop_front();
                }
                let last = self.active.last() - self.active.waiting() as u64;
                out.records.extend(self.active.sent_report().map(|r| (r.octets().into(), last)));
            }
            In::Rings(members) => self.input(NOW, Input::Rings(terms.rings(members)), &mut out),
            In::Lost(cpf, members) => {
                self.input(NOW, Input::Rings(terms.rings(members)), &mut out);
                self.input(NOW, Input::CpfLost(*cpf), &mut out);
            }
            In::Move(ue, to) => self.input(NOW, Input::Move(*ue, *to), &mut out),
            In::Tick(at) => self.input(*at, Input::Tick, &mut out),
            In::Resumes { cpf, has } => match self.active.resume(*cpf, *has) {
                Some(again) => {
                    let again = again.into_iter().map(|message| (*cpf, message)).collect();
                    self.leave(Outbox { cpfs: again, ..Outbox::default() }, &mut out);
                }
                None => out.wrong = Some("a link cannot go on after a takeover"),
            },
            _ => unreachable!("a CTA does not hear {heard:?}"),
        }
        out
    }

    fn input(&mut self, now: Instant, input: Input<'_>, out: &mut Out) {
        let left = self.active.last() - self.active.waiting() as u64;
        let mut leaves = Outbox::default();
        let record = self.active.handle(now, input, &mut leaves);
        if let Some(record) = record {
            out.records.push((record.octets().into(), left));
            self.pending.extend(self.active.newest_held_outputs().map(digest_of));
            out.caused |= self.active.newest_held_outputs().is_some_and(|caused| !is_nothing(caused));
        }
        out.caused |= !is_nothing(&leaves);
        self.leave(leaves, out);
    }

    fn leave(&mut self, leaves: Outbox, out: &mut Out) {
        out.drained.extend(&leaves.drained);
        out.ngap.extend(leaves.ngap.into_iter().map(|(_, _, octets)| octets.into()));
        for (to, message) in leaves.cpfs {
            out.down.push((to, self.active.durable_messages(to), down(message)));
        }
        if leaves.cpf_violations.iter().any(|(_, c)| {
            matches!(
                c,
                ProtocolViolation::Diverged
                    | ProtocolViolation::NasCountReuse
                    | ProtocolViolation::CheckpointUnusable
            )
        }) {
            out.wrong = Some("a CPF is complained of");
        }
    }

    fn facts(&self) -> Facts {
        let cta = self.active.cta();
        let served = some_ues().filter_map(|p| Some((p, (cta.served_by(p)?, cta.backed_by(p))))).collect();
        let counts = cta.replication_counters();
        Facts {
            served,
            taken_over: counts.taken_over,
            moved: counts.moved,
            lost: counts.lost + counts.poisoned,
            lagging: counts.lagging,
            failing_over: cta.is_failing_over(),
            due: cta.next_deadline(),
            waiting: self.active.waiting(),
            last: self.active.last(),
            logged: cta.logged().1,
            unsettled: self.active.unresumed_cpfs().collect(),
            taken: (0..16)
                .map(CpfId)
                .map(|c| (c, self.active.durable_messages(c)))
                .filter(|(_, n)| *n > 0)
                .collect(),
            holds: BTreeMap::new(),
        }
    }

    fn state(mut self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.pending, self.active.last(), self.active.waiting()).hash(&mut hasher);
        let cpfs: Vec<u64> = (0..16).map(|n| self.active.durable_messages(CpfId(n))).collect();
        cpfs.hash(&mut hasher);
        self.active.sent_report().map(|r| r.octets().to_vec()).hash(&mut hasher);
        let unsettled: Vec<CpfId> = self.active.unresumed_cpfs().collect();
        unsettled.hash(&mut hasher);
        for cpf in unsettled {
            self.active.resume(cpf, u64::MAX); // which it cannot, and nothing but that changes
        }
        self.active.continue_without_replica(&mut Outbox::default());
        let snapshot = self.active.snapshot().expect("nothing is in the way of one");
        snapshot.octets().hash(&mut hasher);
        hasher.finish()
    }
}

/// All that the model's UEs may be.
fn some_ues() -> impl Iterator<Item = UeId> {
    (0..4).flat_map(|slot| (0..3).map(move |generation| UeId { slot, generation }))
}

/// Whether what an input caused is nothing but word of what was released before.
fn is_nothing(out: &Outbox) -> bool {
    let words = out.cpfs.iter().all(|(_, message)| matches!(message, CpfCommand::Released(_)));
    out.ngap.is_empty() && words && out.pfcp.is_empty() && out.drained.is_empty()
}

/// What stands in an outbox.
fn digest_of(out: &Outbox) -> u64 {
    let downs: Vec<(CpfId, Octets)> = out.cpfs.iter().map(|(to, m)| (*to, down(m.clone()))).collect();
    digest(&(&out.ngap, downs, &out.pfcp, &out.drained))
}

pub(crate) fn down(message: CpfCommand) -> Octets {
    let mut octets = Vec::new();
    ToCpf::Command(message).write(&mut octets);
    octets.into()
}

/// The CTA replica.
pub(crate) struct Following {
    cta_replica: CtaReplica<SimSubscribers, Constant>,
    /// What inputs caused that may not have left the other one, by number.
    doubtful: VecDeque<(u64, u64)>,
}

impl Following {
    fn hear(&mut self, heard: &In) -> Out {
        let In::Record { octets, left } = heard else { unreachable!("a CTA replica hears nothing else") };
        let before = self.cta_replica.held();
        match self.cta_replica.take(octets) {
            Ok(held) => {
                while self.doubtful.front().is_some_and(|(number, _)| number <= left) {
                    self.doubtful.pop_front();
                }
                if held > before {
                    self.doubtful.extend(self.cta_replica.newest().map(|out| (held, digest_of(out))));
                }
                Out { held: (held > before).then_some(held), ..Out::default() }
            }
            Err(_) => Out { wrong: Some("the CTA replica cannot follow"), ..Out::default() },
        }
    }

    fn take_over(self) -> (PrimaryNode, Out) {
        let (active, first) = self.cta_replica.take_over();
        let mut work = PrimaryNode::new(active);
        let mut out = Out::default();
        work.leave(first, &mut out);
        (work, out)
    }
}

/// A CPF with its end of the link to its CTA.
pub(crate) struct AtCpf {
    member: ReplicatedCpf,
    id: CpfId,
    pub(crate) end: LinkEnd<CpfReport>,
    past: Past,
}

/// What a CPF has heard, as far as it can matter: of one UE in order, of several in any; except that states wait behind
/// what was run before them, whosesoever, until all of that was released.
#[derive(Default, Hash)]
struct Past {
    ues: BTreeMap<UeId, u64>,
    trials: Vec<Octets>,
    /// Since nothing waited last.
    since: Vec<Octets>,
    ran: u64,
    released: u64,
}

impl Past {
    fn hears(&mut self, heard: &Octets, ue: Option<UeId>) {
        self.since.push(heard.clone());
        match ue {
            Some(ue) => self.of(ue, heard),
            None => self.trials.push(heard.clone()),
        }
    }

    fn of(&mut self, ue: UeId, what: &impl Hash) {
        let so_far = self.ues.entry(ue).or_default();
        *so_far = digest(&(*so_far, what));
    }

    fn rests(&mut self) {
        if self.released >= self.ran {
            self.since.clear();
        }
    }
}

/// Whose a message between CPFs is.
fn whose(message: &PeerMessage) -> UeId {
    match message {
        PeerMessage::State(state) => state.ue,
        PeerMessage::Delta { delta, .. } => delta.ue_id(),
        PeerMessage::Fetch { ue, .. } => *ue,
    }
}

/// The sender of a message between CPFs.
pub(crate) fn sender(octets: &Octets) -> CpfId {
    ToPeer::read(octets).expect("another one wrote it").from
}

impl AtCpf {
    pub(crate) fn new(id: CpfId, terms: &Terms) -> Self {
        let member = ReplicatedCpf::new(terms.config.clone());
        Self { member, id, end: LinkEnd::default(), past: Past::default() }
    }

    pub(crate) fn hear(&mut self, heard: &In, hasty: bool) -> Out {
        let mut does = CpfOutbox::default();
        let mut out = Out::default();
        match heard {
            In::Down { taken, octets } => {
                self.end.took();
                self.end.confirmed(*taken);
                let ToCpf::Command(message) = ToCpf::read(octets).expect("a CTA wrote it") else {
                    unreachable!("nothing else goes down here")
                };
                match &message {
                    CpfCommand::Released(batches) => self.past.released = self.past.released.max(*batches),
                    CpfCommand::Run(envelope) => self.past.hears(octets, Some(envelope.ue)),
                    CpfCommand::Serve { ue, .. }
                    | CpfCommand::Outdated { ue, .. }
                    | CpfCommand::Hold { ue, .. }
                    | CpfCommand::Forget { ue, .. } => {
                        self.past.hears(octets, Some(*ue));
                    }
                    CpfCommand::RunAfterTrial { .. }
                    | CpfCommand::RunLogged(_)
                    | CpfCommand::Store { .. }
                    | CpfCommand::Configure(_) => self.past.hears(octets, None),
                }
                self.member.handle(message, &mut does);
            }
            In::Peer(octets) => {
                let ToPeer { from, message, .. } = ToPeer::read(octets).expect("another one wrote it");
                self.past.hears(octets, Some(whose(&message)));
                self.member.peer(from, message, &mut does);
            }
            In::Reached(to) => {
                let mut after = None;
                while let Some(last) = self.member.peer_reconnected(*to, after, &mut does) {
                    after = Some(last);
                }
            }
            In::Tried(trial) => {
                self.past.hears(&trial.to_be_bytes()[..].into(), None);
                self.member.tried(*trial, TrialOutcome::Passed, &mut does);
            }
            In::Resumed(taken) => {
                let again = self.end.resume(*taken).map(|again| again.cloned().collect::<Vec<_>>());
                match again {
                    Some(again) => out.up.extend(again.into_iter().map(|message| self.frame(message))),
                    None => out.wrong = Some("a link cannot go on after a takeover"),
                }
            }
            _ => unreachable!("a CPF does not hear {heard:?}"),
        }
        if hasty {
            self.member.handle(CpfCommand::Released(u64::MAX), &mut does);
        }
        for message in does.up {
            self.past.ran += u64::from(matches!(message, CpfReport::Ran { .. }));
            self.end.sent(message.clone());
            out.up.push(self.frame(message));
        }
        for (to, message) in does.peers {
            let ue = whose(&message);
            let mut octets = Vec::new();
            ToPeer { life: 1, from: self.id, message }.write(&mut octets);
            self.past.of(ue, &octets);
            out.peers.push((to, octets.into()));
        }
        self.past.rests();
        out.trials.extend(does.trials.iter().map(|t| t.id));
        out
    }

    fn frame(&self, message: CpfReport) -> (u64, Octets) {
        let mut octets = Vec::new();
        ToCta::Report(message).write(&mut octets);
        (self.end.taken(), octets.into())
    }

    fn facts(&self) -> Facts {
        let served = |ue| Some(self.member.cpf().context(ue)?.clock);
        let holds = some_ues().filter_map(|p| Some((p, served(p).or_else(|| self.member.holds(p))?)));
        Facts { last: self.end.taken(), holds: holds.collect(), ..Facts::default() }
    }

    fn state(mut self) -> u64 {
        let links = (self.end.taken(), self.end.known(), self.end.kept());
        let known = self.end.known();
        let kept: Vec<CpfReport> = self.end.resume(known).into_iter().flatten().cloned().collect();
        let kept: Vec<(u64, Octets)> = kept.into_iter().map(|message| self.frame(message)).collect();
        digest(&(self.past, links, kept))
    }
}
