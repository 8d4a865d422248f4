//! What UPF-C keeps for its successor, and how a successor begins with it.
//!
//! A session's record is written with the answer to the request that has changed it, before that leaves: a request that is repeated to a successor
//! finds its answer, or the session as it was before the request. While an answer waits for figures of the pipeline, the former record stands.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use whimbrel_ids::{Instant, Seid};
use whimbrel_pfcp::ie::{CpFunctionFeatures, FSeid, NodeId, RecoveryTimeStamp};

use super::replies::ReplyKey;
use super::requests::StoredRequest;
use super::sessions::SessionPlace;
use super::{Outbox, UpfC};
use crate::config::{Config, ConfigError, DnIndex};
use crate::event::Event;
use crate::limits::SESSIONS_MAX;
use crate::logger::StateRecord;
use crate::pipeline::prediction_stands;
use crate::rules::{Application, Draft, NONE, RuleRefusal, SessionRules};
use crate::session_id::SessionId;
use crate::state::{
    Blocks, FoundRecord, SPARE_BLOCKS, SessionMemory, StateRecordKind, StateRefusal, Stored, StoredReader,
    stored,
};

/// Octets of a session's record besides its rules: its names, and the answer that made it, generously.
const BESIDE_RULES_OCTETS: usize = 768;

/// The state, while it is kept.
pub(super) struct Keeper {
    blocks: Blocks,
    /// How often a UPF has begun with it.
    life: u32,
    /// Numbers of the records of applications.
    applications: u32,
}

impl Keeper {
    /// Of records that another process has written, the one before this `life`, with so many applications.
    pub(super) fn new(blocks: Blocks, life: u32, applications: u32) -> Self {
        Self { blocks, life, applications }
    }
}

/// What a successor has begun with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredSessions {
    /// Sessions that stand.
    pub sessions: usize,
    /// Sessions that could not be restored: rubbish, or none that this configuration can have.
    pub lost: usize,
    /// SMFs whose associations stand.
    pub associations: usize,
    /// Why nothing was taken over, where there was something.
    pub refusal: Option<StateRefusal>,
}

/// The UPF as a whole.
pub(super) struct Node {
    pub(super) recovery: RecoveryTimeStamp,
    pub(super) life: u32,
    pub(super) shards: u8,
    pub(super) next_association: u32,
    pub(super) associations: Vec<StoredAssociation>,
}

/// An association as the state file has it.
#[derive(Clone)]
pub(super) struct StoredAssociation {
    pub(super) node: NodeId,
    pub(super) id: u32,
    pub(super) peer: SocketAddr,
    pub(super) alternatives: Vec<IpAddr>,
    pub(super) smf_set: Option<Box<str>>,
    pub(super) recovery: RecoveryTimeStamp,
    pub(super) features: CpFunctionFeatures,
}

/// A place among the sessions, and its session.
pub(super) struct StoredPlace {
    pub(super) generation: u32,
    /// The last request that has changed it, and what was answered.
    pub(super) answered: Option<(ReplyKey, Vec<u8>)>,
    pub(super) session: Option<StoredSession>,
}

/// A session as the state file has it.
#[derive(Clone)]
pub(super) struct StoredSession {
    association: u32,
    cp_f_seid: FSeid,
    provisional_until: Option<Instant>,
    rules: Arc<SessionRules>,
    predicted: Option<(Instant, Arc<SessionRules>)>,
}

/// What the pipeline has counted.
pub(super) struct StoredCounted {
    pub(super) generation: u32,
    pub(super) counted: Box<[u8]>,
}

/// An SMF's definition of an application.
pub(super) struct StoredApplication {
    pub(super) association: u32,
    pub(super) application: Application,
}

stored!(Node { recovery, life, shards, next_association, associations });
stored!(StoredAssociation { node, id, peer, alternatives, smf_set, recovery, features });
stored!(StoredPlace { generation, answered, session });
stored!(StoredSession { association, cp_f_seid, provisional_until, rules, predicted });
stored!(StoredCounted { generation, counted });
stored!(StoredApplication { association, application });
stored!(ReplyKey { peer, sequence, message_type });

fn octets_of(value: &impl Stored) -> Vec<u8> {
    let mut octets = Vec::with_capacity(256);
    value.store(&mut octets);
    octets
}

pub(super) fn read<T: Stored>(octets: &[u8]) -> Option<T> {
    let mut from = StoredReader::new(octets);
    T::restore(&mut from).filter(|_| from.is_empty())
}

/// Whether there is room for the record of a session.
#[derive(Clone, Copy)]
pub(super) struct StateRoom<'a> {
    blocks: Option<&'a Blocks>,
    /// The session stands already.
    stands: bool,
}

impl<'a> StateRoom<'a> {
    /// Of a session that `stands`, or of a new one, which leaves room for those that do.
    pub(super) fn of(keeper: Option<&'a Keeper>, stands: bool) -> Self {
        Self { blocks: keeper.map(|k| &k.blocks), stands }
    }

    /// Lets rules pass that find room.
    pub(super) fn judge(self, rules: SessionRules) -> Result<SessionRules, RuleRefusal> {
        let Some(blocks) = self.blocks else { return Ok(rules) };
        let octets = octets_of(&rules).len() + BESIDE_RULES_OCTETS;
        if blocks.fits(octets, if self.stands { 0 } else { SPARE_BLOCKS }) {
            Ok(rules)
        } else {
            Err(RuleRefusal::StateFull)
        }
    }
}

impl UpfC {
    /// A UP function that keeps its sessions in a state, and begins with those that are there: `out` has the changes for the pipelines, which are to
    /// be applied before their first burst. Errors: what [`Config::check`] finds.
    pub fn with_state(
        config: Config,
        now: Instant,
        state: SessionMemory,
        out: &mut Outbox,
    ) -> Result<(Self, RestoredSessions), ConfigError> {
        let mut upf = Self::new(config, now)?;
        let mut restored = RestoredSessions { refusal: state.refusal(), ..RestoredSessions::default() };
        upf.recovery = state.recovery();
        let (mut blocks, mut found) = state.take();
        let node =
            found.iter().find(|f| f.kind == StateRecordKind::Node).and_then(|f| read::<Node>(&f.octets));
        let known = node.filter(|node| {
            let alike = node.shards == upf.config.shards;
            if !alike {
                restored.refusal = Some(StateRefusal::Shards { found: node.shards });
                upf.recovery = RecoveryTimeStamp::at(now);
            }
            alike
        });
        if known.is_none() {
            found.drain(..).for_each(|f| blocks.remove(f.kind, f.id));
        }
        upf.sessions.keep_touched();
        upf.keeper = Some(Keeper { blocks, life: known.as_ref().map_or(0, |n| n.life + 1), applications: 0 });
        if let Some(node) = known {
            upf.recovery = node.recovery;
            upf.requests.skip(upf.config.seed, node.life + 1);
            restored.associations = node.associations.len();
            upf.restore_associations(now, node.next_association, node.associations, node.life + 1);
            upf.restore(now, found, &mut restored, out);
        }
        upf.associations.touched = true;
        upf.keep_changes(None, out);
        Ok((upf, restored))
    }

    /// The seed and the Recovery Time Stamp of the state that is kept, and all its records, for a replica on another host;
    /// [`Self::take_records`] has those that change from now on.
    pub fn all_records(&mut self) -> (u64, RecoveryTimeStamp, Vec<StateRecord>) {
        let records = self.keeper.as_mut().map(|k| k.blocks.all()).unwrap_or_default();
        (self.config.seed, self.recovery, records)
    }

    /// Records of the state that have changed since the last call, in order.
    pub fn take_records(&mut self) -> Vec<StateRecord> {
        self.keeper.as_mut().map(|k| k.blocks.take_journal()).unwrap_or_default()
    }

    /// A number that differs whenever the state that is kept has changed; zero without one.
    pub fn state_changes(&self) -> u64 {
        self.keeper.as_ref().map_or(0, |k| k.blocks.changes())
    }

    /// Whether a state is kept.
    pub fn keeps_state(&self) -> bool {
        self.keeper.is_some()
    }

    fn restore(
        &mut self,
        now: Instant,
        found: Vec<FoundRecord>,
        restored: &mut RestoredSessions,
        out: &mut Outbox,
    ) {
        for f in found.iter().filter(|f| f.kind == StateRecordKind::Application) {
            if let Some(a) = read::<StoredApplication>(&f.octets) {
                self.applications.restore(a.association, a.application);
            }
            let keeper = self.keeper.iter_mut();
            keeper.for_each(|k| k.applications = k.applications.max(f.id.saturating_add(1)));
        }
        let of = |kind| found.iter().filter(move |f| f.kind == kind);
        let places: Vec<(u32, StoredPlace)> = of(StateRecordKind::Session)
            .filter(|f| f.id < self.config.sessions_max.min(SESSIONS_MAX))
            .filter_map(|f| Some((f.id, read(&f.octets)?)))
            .collect();
        restored.lost = of(StateRecordKind::Session).count() - places.len();
        for (_, place) in &places {
            if let Some((key, octets)) = &place.answered {
                self.replies.keep(now, *key, Some(octets.clone().into()));
            }
        }
        let mut stands = Vec::with_capacity(places.len());
        let mut all = Vec::with_capacity(places.len());
        for (index, place) in places {
            let id = SessionId { index, generation: place.generation };
            let had_one = place.session.is_some();
            let session = place.session.and_then(|s| self.judge_restored(now, s));
            restored.lost += usize::from(had_one && session.is_none());
            if session.is_some() {
                stands.push(id);
            }
            all.push((id, session));
        }
        self.sessions.restore(all);
        let counted = of(StateRecordKind::Counted).filter_map(|f| {
            let known = read::<StoredCounted>(&f.octets)?;
            Some((SessionId { index: f.id, generation: known.generation }, known.counted))
        });
        let mut counted: BTreeMap<SessionId, Box<[u8]>> = counted.collect();
        for id in stands {
            // Not if another one has its address: of two, the first stays.
            if self.sessions.get(id).is_none() {
                restored.lost += 1;
                continue;
            }
            restored.sessions += 1;
            self.restore_in_pipeline(id, counted.remove(&id), out);
        }
        for f in of(StateRecordKind::Request) {
            if let Some(request) = read::<StoredRequest>(&f.octets) {
                let session = SessionId::from_seid(Seid(request.session));
                let stands = session.filter(|id| self.sessions.get(*id).is_some());
                let association = stands.and_then(|id| self.sessions.get(id)).map_or(0, |s| s.association);
                self.requests.restore(now, f.id, request, (stands, association), out);
            }
        }
    }

    /// A session as it may stand with this configuration, its references resolved.
    pub(super) fn judge_restored(
        &mut self,
        now: Instant,
        s: StoredSession,
    ) -> Option<super::sessions::FormerSession> {
        self.associations.by_id(s.association)?;
        let rules = self.judge_rules(&s.rules)?;
        let predicted = s.predicted.filter(|(since, _)| prediction_stands(*since, now));
        let predicted = predicted.and_then(|(since, p)| Some((since, Arc::new(self.judge_rules(&p)?))));
        Some(super::sessions::FormerSession {
            association: s.association,
            cp_f_seid: s.cp_f_seid,
            // The clock may have been set back.
            provisional_until: s.provisional_until.map(|at| at.min(now + super::arrival::CONFIRMED_WITHIN)),
            rules: Arc::new(rules),
            predicted,
        })
    }

    fn judge_rules(&mut self, rules: &SessionRules) -> Option<SessionRules> {
        let DnIndex(network) = rules.data_network;
        let slice = rules.slice == NONE || usize::from(rules.slice) < self.config.slices.len();
        if usize::from(network) >= self.config.data_networks.len() || !slice {
            return None;
        }
        let mut draft = Draft::open(rules);
        for named in draft.pdrs.values_mut().filter_map(|p| p.pdr.application.as_mut()) {
            *named = self.applications.now(&named.id);
        }
        draft.close().ok()
    }

    /// Writes what an input has changed, with the answer to it if it was a request.
    pub(super) fn keep_changes(&mut self, answered: Option<ReplyKey>, out: &mut Outbox) {
        if self.keeper.is_none() {
            return;
        }
        let touched = self.sessions.take_touched();
        self.keep_sessions(touched, answered, out);
        if std::mem::take(&mut self.associations.touched) {
            self.keep_node(out);
        }
        if std::mem::take(&mut self.applications_touched) {
            self.keep_applications(out);
        }
        let Some(keeper) = &mut self.keeper else { return };
        for (sequence, request) in self.requests.take_touched() {
            match request {
                Some(request) => {
                    keeper.blocks.put(StateRecordKind::Request, sequence, &octets_of(&request)).ok();
                }
                None => keeper.blocks.remove(StateRecordKind::Request, sequence),
            }
        }
    }

    fn keep_node(&mut self, out: &mut Outbox) {
        let (next_association, associations) = self.associations.stored();
        let Some(keeper) = &mut self.keeper else { return };
        let node = Node {
            recovery: self.recovery,
            life: keeper.life,
            shards: self.config.shards,
            next_association,
            associations,
        };
        if keeper.blocks.put(StateRecordKind::Node, 0, &octets_of(&node)).is_err() {
            out.events.push(Event::StateFull { session: None });
        }
    }

    /// Writes all of them: SMFs change them seldom.
    fn keep_applications(&mut self, out: &mut Outbox) {
        let Some(Keeper { blocks, applications, .. }) = &mut self.keeper else { return };
        let mut number = 0;
        for (association, application) in self.applications.by_smfs() {
            let mut octets = Vec::new();
            association.store(&mut octets);
            application.store_definition(&mut octets);
            if blocks.put(StateRecordKind::Application, number, &octets).is_err() {
                out.events.push(Event::StateFull { session: None });
            }
            number += 1;
        }
        let before = std::mem::replace(applications, number);
        (number..before).for_each(|n| blocks.remove(StateRecordKind::Application, n));
    }

    /// Writes the places of these sessions, with the answer to the request that changed them.
    pub(super) fn keep_sessions(
        &mut self,
        mut touched: Vec<u32>,
        answered: Option<ReplyKey>,
        out: &mut Outbox,
    ) {
        let Some(Keeper { blocks, .. }) = &mut self.keeper else { return };
        touched.sort_unstable();
        touched.dedup();
        for index in touched {
            let answer = answered.and_then(|key| Some((key, self.replies.find(&key)??.to_vec())));
            let Some(SessionPlace { generation, session }) = self.sessions.place(index) else { continue };
            let stands = session.is_some();
            let place = StoredPlace {
                generation,
                answered: answer,
                session: session.map(|s| StoredSession {
                    association: s.association,
                    cp_f_seid: s.cp_f_seid,
                    provisional_until: s.provisional_until,
                    rules: Arc::clone(&s.rules),
                    predicted: s.predicted.clone(),
                }),
            };
            if blocks.put(StateRecordKind::Session, index, &octets_of(&place)).is_err() {
                out.events.push(Event::StateFull { session: Some(SessionId { index, generation }) });
            }
            if !stands {
                blocks.remove(StateRecordKind::Counted, index);
            }
        }
    }

    /// Writes what the pipeline has counted of a session.
    pub(super) fn keep_counted(&mut self, session: SessionId, counted: Box<[u8]>, out: &mut Outbox) {
        let Some(Keeper { blocks, .. }) = &mut self.keeper else { return };
        if self.sessions.get(session).is_none() {
            return;
        }
        let octets = octets_of(&StoredCounted { generation: session.generation, counted });
        if blocks.put(StateRecordKind::Counted, session.index, &octets).is_err() {
            out.events.push(Event::StateFull { session: Some(session) });
        }
    }
}
