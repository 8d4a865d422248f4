//! UPF-C of the UPF's replica: it follows the state that the UPF writes, so that it can go on with all sessions as soon as that UPF has ended.
//!
//! It does nothing that another process could see. Each look at the state gives the changes for its pipelines, which stand ready with the
//! sessions and get no packet. A takeover is one more look, for what was written since the last one.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_ids::{Instant, Seid};

use super::kept::{Keeper, Node, RestoredSessions, StoredApplication, StoredCounted, StoredPlace, read};
use super::requests::StoredRequest;
use super::{Outbox, UpfC};
use crate::config::{Config, ConfigError};
use crate::exchange::{Effects, UserPlaneChange};
use crate::limits::SESSIONS_MAX;
use crate::logger::StateRecord;
use crate::rules::KnownApplications;
use crate::session_id::SessionId;
use crate::state::{FollowedState, ReceivedState, ReplicaState, SeenRecord, StateRecordKind, StateRefusal};

/// UPF-C of a replica.
pub struct UpfCReplica {
    upf: UpfC,
    state: ReplicaState,
    node: Option<Node>,
    applications: BTreeMap<u32, StoredApplication>,
    /// What the pipelines have counted of sessions.
    counted: BTreeMap<u32, StoredCounted>,
    /// Usage reports that await their answers.
    requests: BTreeMap<u32, StoredRequest>,
    /// The writes of places without a session: they were freed in that order.
    vacated: BTreeMap<u32, u64>,
    /// Sessions that could not be seated: an association or an address may be seen at the next look.
    unseated: BTreeMap<u32, (u64, StoredPlace)>,
    /// Records that cannot be read.
    damaged: usize,
}

impl UpfCReplica {
    /// Has seen nothing of the state yet. Errors: what [`Config::check`] finds.
    pub fn new(config: Config, now: Instant, state: FollowedState) -> Result<Self, ConfigError> {
        Self::of(config, now, ReplicaState::Followed(state))
    }

    /// The replica of a UPF on another host, whose records [`Self::receive`] takes. Errors: likewise.
    pub fn remote(config: Config, now: Instant, state: ReceivedState) -> Result<Self, ConfigError> {
        Self::of(config, now, ReplicaState::Received(state))
    }

    fn of(config: Config, now: Instant, state: ReplicaState) -> Result<Self, ConfigError> {
        Ok(Self {
            upf: UpfC::new(config, now)?,
            state,
            node: None,
            applications: BTreeMap::new(),
            counted: BTreeMap::new(),
            requests: BTreeMap::new(),
            vacated: BTreeMap::new(),
            unseated: BTreeMap::new(),
            damaged: 0,
        })
    }

    /// Sessions that it has.
    pub fn session_count(&self) -> usize {
        self.upf.session_count()
    }

    /// Takes records of a UPF on another host; [`Self::catch_up`] applies them.
    pub fn receive(&mut self, records: impl IntoIterator<Item = StateRecord>) {
        if let ReplicaState::Received(state) = &mut self.state {
            records.into_iter().for_each(|record| state.receive(record));
        }
    }

    /// Looks at what has changed in the state since the last call: `out` has the changes for the pipelines.
    pub fn catch_up(&mut self, now: Instant, out: &mut Outbox) {
        let seen = self.state.look();
        self.follow(now, seen, out);
    }

    fn follow(&mut self, now: Instant, seen: Vec<SeenRecord>, out: &mut Outbox) {
        let (mut places, mut recounted) = (std::mem::take(&mut self.unseated), Vec::new());
        let mut applications = false;
        for SeenRecord { kind, id, write, octets } in seen {
            match kind {
                StateRecordKind::Node => self.follow_node(now, octets.as_deref()),
                StateRecordKind::Application => {
                    set(&mut self.applications, id, octets.as_deref());
                    applications = true;
                }
                StateRecordKind::Request => set(&mut self.requests, id, octets.as_deref()),
                StateRecordKind::Counted => {
                    set(&mut self.counted, id, octets.as_deref());
                    recounted.push(id);
                }
                StateRecordKind::Session if id >= self.upf.config.sessions_max.min(SESSIONS_MAX) => {}
                StateRecordKind::Session => {
                    let place = octets.as_deref().and_then(read::<StoredPlace>);
                    self.damaged += usize::from(octets.is_some() && place.is_none());
                    let gone = StoredPlace { generation: 0, answered: None, session: None };
                    places.insert(id, (write, place.unwrap_or(gone)));
                }
            }
        }
        if applications {
            self.follow_applications();
        }
        self.follow_places(now, places, &mut recounted, out);
        for index in recounted {
            self.restore(index, out);
        }
    }

    fn follow_node(&mut self, now: Instant, octets: Option<&[u8]>) {
        self.node = octets.and_then(read);
        if let Some(node) = &self.node {
            self.upf.associations = Default::default();
            let (next, all) = (node.next_association, node.associations.clone());
            self.upf.restore_associations(now, next, all, node.life);
        }
    }

    /// The definitions of applications have changed. Sessions that name one get the new definition as they do in the UPF: at the next tick.
    fn follow_applications(&mut self) {
        let before = self.upf.applications.provisioned(None);
        self.upf.applications = KnownApplications::new(&self.upf.config.applications.known);
        for a in self.applications.values() {
            self.upf.applications.restore(a.association, a.application.clone());
        }
        let after = self.upf.applications.provisioned(None);
        self.upf.renew(&[before, after].concat());
    }

    /// Sessions leave their places before others come: an address may be that of one which has just ended.
    fn follow_places(
        &mut self,
        now: Instant,
        places: BTreeMap<u32, (u64, StoredPlace)>,
        recounted: &mut Vec<u32>,
        out: &mut Outbox,
    ) {
        for (index, (_, place)) in &places {
            let Some((session, former)) = self.upf.sessions.unseat(*index) else { continue };
            if let Some(at) = former.provisional_until {
                self.upf.provisional.remove(&(at, session));
            }
            if place.session.is_none()
                || place.generation != session.generation
                || former.provisional_until.is_some()
            {
                out.changes.push(UserPlaneChange::Remove { session, token: None });
            }
        }
        let mut in_order: Vec<(u32, (u64, StoredPlace))> = places.into_iter().collect();
        in_order.sort_unstable_by_key(|(_, (write, _))| *write);
        for (index, (write, place)) in in_order {
            let id = SessionId { index, generation: place.generation };
            if let Some((key, octets)) = &place.answered {
                self.upf.replies.keep(now, *key, Some(octets.clone().into()));
            }
            let Some(session) = &place.session else {
                self.upf.sessions.vacate(id);
                self.vacated.insert(index, write);
                continue;
            };
            self.vacated.remove(&index);
            let kept = self.upf.judge_restored(now, session.clone());
            if kept.is_some_and(|kept| self.upf.sessions.seat(id, kept)) {
                recounted.push(index);
            } else {
                out.changes.push(UserPlaneChange::Remove { session: id, token: None });
                self.unseated.insert(index, (write, place));
            }
        }
        recounted.sort_unstable();
        recounted.dedup();
    }

    /// The pipelines get a session, with what it has counted.
    fn restore(&mut self, index: u32, out: &mut Outbox) {
        let Some(s) = self.upf.sessions.at(index) else { return };
        let session = SessionId { index, generation: s.generation() };
        let counted = self.counted.get(&index).filter(|c| c.generation == session.generation);
        self.upf.restore_in_pipeline(session, counted.map(|c| c.counted.clone()), out);
    }

    /// The UPF whose state it is has ended: this is the UPF now. Errors: why it cannot go on with the sessions.
    pub fn take_over(
        mut self,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(UpfC, RestoredSessions), StateRefusal> {
        if !self.state.stands() {
            return Err(StateRefusal::Configuration);
        }
        let seen = self.state.look_at_all();
        self.follow(now, seen, out);
        let Self { mut upf, state, node, applications, requests, vacated, unseated, damaged, .. } = self;
        let node = node.ok_or(StateRefusal::Damaged)?;
        if node.shards != upf.config.shards {
            return Err(StateRefusal::Shards { found: node.shards });
        }
        let restored = RestoredSessions {
            sessions: upf.sessions.len(),
            lost: unseated.len() + damaged + state.lost(),
            associations: node.associations.len(),
            refusal: None,
        };
        let free = |index: &u32| upf.sessions.at(*index).is_none();
        let mut freed: Vec<(u64, u32)> = vacated
            .into_iter()
            .filter(|(index, _)| free(index))
            .map(|(index, write)| (write, index))
            .collect();
        freed.sort_unstable();
        upf.sessions.set_free(freed.into_iter().map(|(_, index)| index).collect());
        upf.recovery = state.recovery();
        let life = node.life + 1;
        let applications = applications.keys().next_back().map_or(0, |last| last.saturating_add(1));
        upf.keeper = Some(Keeper::new(state.take_over(), life, applications));
        upf.sessions.keep_touched();
        upf.requests.skip(upf.config.seed, life);
        upf.recovery = node.recovery;
        upf.associations = Default::default();
        upf.restore_associations(now, node.next_association, node.associations, life);
        for (sequence, request) in requests {
            let session = SessionId::from_seid(Seid(request.session));
            let stands = session.filter(|id| upf.sessions.get(*id).is_some());
            let association = stands.and_then(|id| upf.sessions.get(id)).map_or(0, |s| s.association);
            upf.requests.restore(now, sequence, request, (stands, association), out);
        }
        upf.keep_changes(None, out);
        Ok((upf, restored))
    }
}

fn set<T: crate::state::Stored>(all: &mut BTreeMap<u32, T>, id: u32, octets: Option<&[u8]>) {
    match octets.and_then(read) {
        Some(value) => _ = all.insert(id, value),
        None => _ = all.remove(&id),
    }
}

impl UpfC {
    /// The pipelines get a session that stood before this process did, with what it had counted.
    pub(super) fn restore_in_pipeline(
        &mut self,
        session: SessionId,
        counted: Option<Box<[u8]>>,
        out: &mut Outbox,
    ) {
        let Some(s) = self.sessions.get(session) else { return };
        let (rules, predicted) = (Arc::clone(&s.rules), s.predicted.clone());
        if let Some(at) = s.provisional_until {
            self.provisional.insert((at, session));
            out.changes.push(UserPlaneChange::Predict { session, rules, effects: Effects::default() });
            return;
        }
        out.changes.push(UserPlaneChange::Restore { session, rules, counted });
        if let Some((_, rules)) = predicted {
            out.changes.push(UserPlaneChange::Predict { session, rules, effects: Effects::default() });
        }
    }
}
