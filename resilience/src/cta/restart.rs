//! UEs across a restart of the core: what is stored of each, and a CTA that begins with those that were stored.
//!
//! The edge writes what stands in [`Outbox::stored`] to a disk. A UE is stored by its checkpoint and what the CTA knows of its slot, so that its 5G-GUTI
//! leads to it again. Its clock begins again: no log, and no answer of a peer, reaches beyond the restart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_control::amf::RanNodes;
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{
    AssociationId, Checkpoint, Command, FlatError, Payload, RESTORED_CLOCK, UeContext, UeId, UpfId, UpfSet,
};
use whimbrel_ids::{AmfId, Guami, Instant, PduSessionId, PlmnId};

use super::cpfs::Service;
use super::slots::StoredSlot;
use super::{Cta, Entropy, Inspect, Outbox, send};
use crate::link::CpfCommand;
use crate::replication::CpfId;

/// What all UEs of a store have in common. `Debug` shows no key.
#[derive(Clone, Serialize, Deserialize)]
pub struct StoredAmf {
    plmn: PlmnId,
    amf_id: [u8; 3],
    tmsi_key: [u8; 16],
    /// The UPFs by their numbers, as sessions name them.
    upfs: Vec<String>,
}

impl fmt::Debug for StoredAmf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredAmf({:?}, {:?})", self.plmn, self.amf_id)
    }
}

/// What a CTA knows of its gNBs and UPFs, as it leaves it for the next one on its host, and by their names in the configuration the UPFs' recovery time
/// stamps.
#[derive(Serialize, Deserialize)]
struct Peers<Gnbs, Streams> {
    gnbs: Gnbs,
    streams: Streams,
    upfs: Vec<(String, (u32, Option<u32>))>,
}

/// What has stood while the control plane of a host started again: associations of gNBs, and the UPFs with their sessions.
pub struct SurvivingState<'a> {
    /// What [`Cta::stored_peers`] of the CTA before gave last.
    pub peers: &'a [u8],
    /// The associations that go on.
    pub associations: &'a BTreeSet<AssociationId>,
    /// The clock of the last input of a UE whose outputs may have left; `None`: it is not known.
    pub last_input: &'a dyn Fn(UeId) -> Option<u64>,
}

/// One UE. `Debug` shows no key.
#[derive(Clone, Serialize, Deserialize)]
pub struct StoredUe {
    slot: StoredSlot,
    /// The UE was sent nothing that this state lacks, as far as this CTA knows.
    current: bool,
    context: Vec<u8>,
}

impl StoredUe {
    /// The UE, by its slot.
    pub fn id(&self) -> UeId {
        self.slot.ue
    }

    /// Its state.
    ///
    /// Errors: those of [`Checkpoint::from_octets`].
    pub fn checkpoint(&self) -> Result<Checkpoint, FlatError> {
        Checkpoint::from_octets(&self.context)
    }
}

impl fmt::Debug for StoredUe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredUe({:?}, {} octets)", self.slot.ue, self.context.len())
    }
}

/// What an edge is to write.
#[derive(Clone, Debug)]
pub enum ToStore {
    /// A UE, in place of what was stored of it before.
    Ue(Box<StoredUe>),
    /// The UE is gone.
    Gone(UeId),
    /// The CPF has sent all UEs of which it is the primary.
    All(CpfId),
}

/// A record of a store.
#[derive(Serialize, Deserialize)]
enum StoredRecord {
    /// The first one.
    Amf(StoredAmf),
    Ue(Box<StoredUe>),
    Gone(UeId),
    /// The same with the stream of the UE's connection.
    UeOnStream(u16, Box<StoredUe>),
}

impl StoredRecord {
    fn octets(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("plain data can be written")
    }
}

impl StoredAmf {
    /// The record that a store begins with.
    pub fn record(&self) -> Vec<u8> {
        StoredRecord::Amf(self.clone()).octets()
    }
}

impl ToStore {
    /// The record to append to a store; none for [`ToStore::All`]. It holds keys.
    pub fn record(self) -> Option<Vec<u8>> {
        match self {
            Self::Ue(ue) => Some(StoredRecord::UeOnStream(ue.slot.stream, ue).octets()),
            Self::Gone(ue) => Some(StoredRecord::Gone(ue).octets()),
            Self::All(_) => None,
        }
    }
}

/// What the records of a store come to.
#[derive(Clone, Debug)]
pub struct StoredUes {
    /// What the UEs have in common.
    pub amf: StoredAmf,
    /// The stored UEs, by slot.
    pub ues: BTreeMap<UeId, StoredUe>,
}

impl StoredUes {
    /// Reads records, in order; those that follow one that cannot be read are lost. `None`: they do not begin as a store does. With the UEs comes whether
    /// all records were read.
    pub fn read<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Option<(Self, bool)> {
        let mut records = records.into_iter().map(postcard::from_bytes::<StoredRecord>);
        let Some(Ok(StoredRecord::Amf(amf))) = records.next() else { return None };
        let mut ues = BTreeMap::new();
        for record in records {
            match record {
                Ok(StoredRecord::Ue(ue)) => drop(ues.insert(ue.id(), *ue)),
                Ok(StoredRecord::UeOnStream(stream, mut ue)) => {
                    ue.slot.stream = stream;
                    ues.insert(ue.id(), *ue);
                }
                Ok(StoredRecord::Gone(ue)) => drop(ues.remove(&ue)),
                Ok(StoredRecord::Amf(_)) | Err(_) => return Some((Self { amf, ues }, false)),
            }
        }
        Some((Self { amf, ues }, true))
    }

    /// The records for the time in which these UEs are served again: none is the newest state of its UE any more.
    pub fn outdated_records(&self) -> Vec<Vec<u8>> {
        let outdated = self.ues.values().map(|ue| StoredUe { current: false, ..ue.clone() });
        let records = outdated.filter_map(|ue| ToStore::Ue(ue.into()).record());
        std::iter::once(self.amf.record()).chain(records).collect()
    }
}

/// Why the UEs of a store cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// They are of an AMF with another PLMN, region, set or pointer: their 5G-GUTIs would not lead here.
    OtherAmf,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherAmf => f.write_str("they are of an AMF with another GUAMI (`plmn`, `amf`)"),
        }
    }
}

/// The outcome of a restoration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestorationOutcome {
    /// UEs that are registered again.
    pub ues: usize,
    /// Sessions of the restored UEs.
    pub sessions: usize,
    /// Of the UEs, those that go on as if the core had not stopped: their sessions stand at the UPFs, and connected UEs stay connected.
    pub continued: usize,
    /// Of the UEs, those that are authenticated before they are served.
    pub doubtful: usize,
    /// UEs that cannot be restored: they register again.
    pub refused: usize,
}

/// UEs that were restored and have had no input yet: they wait for a CPF, and their sessions for their UPFs. So do the sessions of a UPF that has
/// restarted.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RestoringUes {
    ues: bool,
    upfs: UpfSet,
    /// Each command once for a UE, in the order in which they came.
    commands: BTreeMap<UeId, Vec<Command>>,
}

impl RestoringUes {
    /// Sessions are restored when this UPF is connected.
    pub(super) fn awaits(&mut self, upf: UpfId) {
        self.upfs = self.upfs.union([upf].into_iter().collect());
    }

    /// The UE gets the command when it has a CPF.
    pub(super) fn wait(&mut self, ue: UeId, command: Command) {
        let commands = self.commands.entry(ue).or_default();
        if !commands.contains(&command) {
            commands.push(command);
        }
    }

    /// They are not: the UPF does not come back.
    pub(super) fn forget(&mut self, upf: UpfId) {
        self.upfs.remove(upf);
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// The associations that are up.
    pub fn associations(&self) -> impl Iterator<Item = AssociationId> {
        self.streams.keys().copied()
    }

    /// The CPFs of the region that are not lost.
    pub fn trusted_cpfs(&self) -> impl Iterator<Item = CpfId> {
        self.trusted()
    }

    /// Whether restored sessions wait for a UPF that is not connected yet: a UE that is served before loses them.
    pub fn awaits_upfs(&self) -> bool {
        !self.restoring.upfs.is_empty()
    }

    /// What all UEs of a store have in common.
    pub fn stored_amf(&self) -> StoredAmf {
        let upfs = self.config.smf.upfs.iter().map(|upf| upf.name.clone()).collect();
        let Guami { plmn, amf_id } = self.config.amf.guami();
        StoredAmf { plmn, amf_id: amf_id.octets(), tmsi_key: self.slots.tmsi_key(), upfs }
    }

    /// Stores UEs: all, or those that have changed since the last time. UEs with a running procedure other than paging are left out; a CPF of a region sends them.
    pub(super) fn store_ues(&mut self, all: bool, out: &mut Outbox) {
        match &mut self.service {
            Service::Region(cpfs) => {
                out.cpfs.extend(cpfs.trusted.iter().map(|&cpf| (cpf, CpfCommand::Store { all })));
            }
            Service::Here(cpf) => {
                let changed = self.unstored.replace(BTreeSet::new());
                let ues: Vec<UeId> = match changed.filter(|_| !all) {
                    Some(changed) => changed.into_iter().collect(),
                    None => cpf.ue_ids().collect(),
                };
                for ue in ues {
                    if let Some(state) = cpf.state_for_restart(ue) {
                        out.stored.extend(stored(self.slots.stored(ue), &state, true));
                    } else if self.slots.holds(ue)
                        && let Some(unstored) = &mut self.unstored
                    {
                        unstored.insert(ue);
                    }
                }
            }
        }
    }

    /// A CPF sends the state of a UE of which it is the primary, to be stored.
    pub(super) fn store_state(&mut self, from: CpfId, term: u32, state: &[u8], out: &mut Outbox) {
        let (Service::Region(cpfs), Ok(state)) = (&self.service, Checkpoint::from_octets(state)) else {
            return;
        };
        let Some(ledger) = cpfs.ledgers.get(&state.ue_id()) else { return };
        if ledger.assignment() == (from, term) {
            // What the UE is sent for inputs that the CPF had not run yet is not in it: the keys are doubtful then.
            let current = state.clock() == ledger.clock() && ledger.released() == ledger.clock();
            out.stored.extend(stored(self.slots.stored(state.ue_id()), &state, current));
        }
    }

    /// What the next CTA of this host needs to go on with its gNBs and UPFs ([`SurvivingState`]). It holds no key.
    pub fn stored_peers(&self) -> Vec<u8> {
        let names = self.config.smf.upfs.iter().map(|upf| upf.name.clone());
        let upfs = names.zip(self.upfs.recovery_time_stamps()).collect();
        let peers = Peers { gnbs: &self.ran, streams: &self.streams, upfs };
        postcard::to_allocvec(&peers).expect("plain data can be written")
    }

    /// Begins with UEs that were stored; before the first input. `exact`: nothing has happened since they were stored, as the core was stopped in
    /// order.
    ///
    /// Errors: [`RestoreError::OtherAmf`].
    pub fn restore(
        &mut self,
        now: Instant,
        ues: StoredUes,
        exact: bool,
    ) -> Result<RestorationOutcome, RestoreError> {
        self.restore_among(now, ues, exact, None, &mut Outbox::default())
    }

    /// The same where gNBs and UPFs have noticed nothing. UEs whose stored state is their last go on as they were; gNBs release the others.
    ///
    /// Errors: [`RestoreError::OtherAmf`].
    pub fn restore_among(
        &mut self,
        now: Instant,
        StoredUes { amf, ues }: StoredUes,
        exact: bool,
        surviving: Option<SurvivingState<'_>>,
        out: &mut Outbox,
    ) -> Result<RestorationOutcome, RestoreError> {
        let guami = Guami { plmn: amf.plmn, amf_id: AmfId::from_octets(amf.amf_id) };
        if guami != self.config.amf.guami() {
            return Err(RestoreError::OtherAmf);
        }
        let surviving = surviving.filter(|surviving| self.go_on_with(now, surviving, out));
        self.slots.begin_with(&amf.tmsi_key);
        let numbers =
            amf.upfs.iter().map(|name| self.config.smf.upfs.iter().position(|upf| upf.name == *name));
        let numbers: Vec<Option<UpfId>> =
            numbers.map(|n| n.and_then(|n| u8::try_from(n).ok()).map(UpfId)).collect();
        // A UE that goes on names its UPFs by the numbers that they had.
        let renumbered = (0u8..).zip(&numbers).any(|(n, now)| *now != Some(UpfId(n)));
        let mut restored = RestorationOutcome::default();
        for ue in ues.into_values() {
            let fits =
                |id: UeId| id.slot < self.config.limits.ues.min(UeId::SLOTS) && self.slots.is_free(id.slot);
            let read = ue.checkpoint().and_then(|state| Ok((state.clock(), state.context()?))).ok();
            let Some((clock, read)) = read.filter(|(_, p)| p.id == ue.id() && fits(p.id)) else {
                restored.refused += 1;
                continue;
            };
            let connection =
                read.amf.connection.as_ref().map(|c| (c.association, c.amf_ue_ngap_id, c.ran_ue_ngap_id));
            let stands = |association: AssociationId| {
                surviving.as_ref().is_some_and(|s| s.associations.contains(&association))
            };
            let unchanged = ue.current
                && !renumbered
                && surviving
                    .as_ref()
                    .is_some_and(|s| (s.last_input)(ue.id()).is_some_and(|last| last <= clock));
            let exact = ue.current && exact || unchanged;
            let continues = if unchanged { read.continued(stands) } else { Err(read) };
            let goes_on = continues.is_ok();
            let context = match continues {
                Ok(context) => Some(context),
                Err(read) => read.restarted(now, exact, &self.config.timers),
            };
            if let Some((association, ours, theirs)) = connection.filter(|(a, ..)| !goes_on && stands(*a)) {
                let streams = self.streams.get(&association).copied().unwrap_or(1);
                let stream = ue.slot.stream.min(streams.saturating_sub(1));
                send(association, stream, &whimbrel_control::amf::release_of(ours, Some(theirs)), out);
            }
            let Some(context) = context.map(|context| with_upfs(context, &numbers)) else {
                restored.refused += 1;
                continue;
            };
            restored.ues += 1;
            restored.sessions += context.sessions.len();
            restored.continued += usize::from(goes_on);
            restored.doubtful += usize::from(!exact);
            self.place(ue.slot, context, exact, goes_on);
        }
        self.slots.end_of_restoration();
        self.restoring.ues = restored.ues > 0;
        self.resume_restored(now);
        Ok(restored)
    }

    /// Takes what the CTA before knew of its gNBs and UPFs. Returns whether that can be read.
    fn go_on_with(&mut self, now: Instant, surviving: &SurvivingState<'_>, out: &mut Outbox) -> bool {
        let Ok(peers) =
            postcard::from_bytes::<Peers<RanNodes, BTreeMap<AssociationId, u16>>>(surviving.peers)
        else {
            return false;
        };
        (self.ran, self.streams) = (peers.gnbs, peers.streams);
        self.streams.retain(|association, _| surviving.associations.contains(association));
        let gone: Vec<AssociationId> =
            self.ran.iter().map(|(a, _)| a).filter(|a| !self.streams.contains_key(a)).collect();
        out.ran_events.extend(gone.into_iter().map(|association| self.ran.down(association)));
        let configured = self.ran.configure(now, self.config.clone());
        self.ran_output(now, AssociationId(u32::MAX), configured, out);
        for (number, upf) in (0u8..).zip(&self.config.smf.upfs) {
            let former = peers.upfs.iter().find(|(name, _)| *name == upf.name);
            if let (Some((_, stamps)), Some(n4)) = (former, self.upfs.get(UpfId(number))) {
                n4.continue_from(*stamps);
            }
        }
        true
    }

    fn place(&mut self, slot: StoredSlot, context: Box<UeContext>, exact: bool, goes_on: bool) {
        let ue = slot.ue;
        let upfs: UpfSet = context.sessions.values().map(|s| s.upf).collect();
        for s in context.sessions.values() {
            if let (Some(n4), Some(seid)) = (self.upfs.get(s.upf), s.up_seid) {
                n4.restore_addresses(seid, &s.dnn, s.address.ipv4, s.address.ipv6);
            }
        }
        self.slots.restore(slot, RESTORED_CLOCK, upfs, exact);
        if goes_on {
            self.slots.note(ue, RESTORED_CLOCK, &context.as_batch());
            for (upf, deletion) in context.deletions_of_sessions() {
                self.session_stands(ue, upf, deletion);
            }
        } else {
            self.restoring.upfs = self.restoring.upfs.union(upfs);
        }
        if let (Some(supi), true) = (context.amf.supi, context.remote_amf.is_some()) {
            self.remote_ues.insert(supi, ue);
        } else if let Some(supi) = context.amf.supi {
            self.directory.restore(ue, supi, &context.limited_slices(&self.config));
        }
        match &mut self.service {
            Service::Here(cpf) => cpf.restore(context),
            Service::Region(cpfs) => {
                if let Some(state) = Checkpoint::of(&context) {
                    cpfs.restored.insert(ue, state.octets().into());
                }
            }
        }
    }

    /// Once a CPF serves, restored UEs run an input, from which their timers follow. Once a UPF is connected, too, it gets their sessions.
    pub(super) fn resume_restored(&mut self, now: Instant) {
        let serves = match &self.service {
            Service::Here(_) => true,
            Service::Region(cpfs) => cpfs.rings.members().next().is_some(),
        };
        if !serves {
            return;
        }
        if std::mem::take(&mut self.restoring.ues) {
            self.slots.all_due(now);
        }
        for (ue, commands) in std::mem::take(&mut self.restoring.commands) {
            self.inbox.extend(commands.into_iter().map(|command| (ue, Payload::Command(command))));
        }
        for upf in self.restoring.upfs.iter().collect::<Vec<_>>() {
            if self.upfs.is_up(upf) {
                self.restoring.upfs.remove(upf);
                self.command_sessions_of(upf, Command::RestoreSessions(upf));
            }
        }
    }
}

/// The context with the present numbers of UPFs; sessions of one that is gone are dropped.
fn with_upfs(mut context: Box<UeContext>, numbers: &[Option<UpfId>]) -> Box<UeContext> {
    let sessions: BTreeMap<PduSessionId, _> = std::mem::take(&mut context.sessions);
    for (psi, mut session) in sessions {
        if let Some(Some(upf)) = numbers.get(usize::from(session.upf.0)) {
            session.upf = *upf;
            context.sessions.insert(psi, session);
        }
    }
    context
}

fn stored(slot: Option<StoredSlot>, state: &Checkpoint, current: bool) -> Option<ToStore> {
    let context = state.octets().to_vec();
    Some(ToStore::Ue(Box::new(StoredUe { slot: slot?, current, context })))
}
