//! The table of UEs: which UE has which slot, and what the CTA stores of each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use whimbrel_control::{
    AssociationId, Batch, N2Names, Output, Prf, RELEASE_GRACE, SlotTable, UPFS_MAX, UeId, UpfId, UpfSet,
};
use whimbrel_ids::{AmfUeNgapId, Instant, RanUeNgapId, Tmsi};

mod deadlines;
mod entry;

use deadlines::Deadlines;
use entry::{AtGnb, BoxedAtGnb, Elsewhere, FormerGnbs, LEFT_MAX, NO_COUNT, UeRecord};

/// Deadlines that are searched for a rejected UE: in a flood of them the first is one, and a search in vain costs less than the answer to
/// the message that causes it.
const REJECTED_SEARCHED_MAX: usize = 16;

/// Slots, found by index; free ones are reused oldest first, so that a late message meets a stale generation.
#[derive(Serialize, Deserialize)]
pub(super) struct UeSlots {
    entries: SlotTable<UeRecord>,
    free: std::collections::VecDeque<u32>,
    deadlines: Deadlines,
    /// Connections by the gNB's names of them: a gNB has one connection of a name (TS 38.413 §9.3.3.2).
    by_ran: BTreeMap<(AssociationId, RanUeNgapId), u32>,
    /// UEs for which a gNB is a handover target or asks for the path.
    coming: BTreeSet<(AssociationId, u32)>,
    tmsi: TmsiKey,
    /// The AMF pointer, which each AMF-UE-NGAP-ID of this AMF has: those of the AMFs of a set differ.
    pointer: u8,
    /// Connections that another AMF of the set has named, and that are this one's by now.
    taken_over: BTreeMap<AmfUeNgapId, u32>,
    unauthenticated_ues: u32,
    /// Unauthenticated UEs by the gNB that brought them.
    unauthenticated_ues_on: BTreeMap<AssociationId, u32>,
    /// UEs with sessions at each UPF.
    ues_at: [u32; UPFS_MAX],
}

/// Connections of a UE that may have begun after its state was stored, at the most.
const CONNECTIONS_SKIPPED: u16 = 256;

/// The tag of a connection: ten bits.
const TAG_MASK: u16 = (1 << 10) - 1;

/// A slot that is full of tags is 32 bits: 24 of slot, 8 of tag.
const TMSI_TAG_BITS: u32 = 8;

/// The key of the permutation that makes 5G-TMSIs of slots, and the permutation.
#[derive(Deserialize)]
#[serde(from = "[u8; 16]")]
struct TmsiKey {
    key: [u8; 16],
    prf: Prf,
}

impl From<[u8; 16]> for TmsiKey {
    fn from(key: [u8; 16]) -> Self {
        Self { key, prf: Prf::new(&key) }
    }
}

impl Serialize for TmsiKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.key.serialize(to)
    }
}

/// What is stored of a slot for the next start of the core.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct StoredSlot {
    pub(super) ue: UeId,
    connection: u16,
    tmsi_tag: u8,
    downlink_count: Option<u32>,
    /// The stream of its connection. It is written apart.
    #[serde(skip)]
    pub(super) stream: u16,
}

impl UeSlots {
    pub(super) fn new(tmsi_key: &[u8; 16], pointer: u8) -> Self {
        Self {
            entries: SlotTable::default(),
            free: std::collections::VecDeque::new(),
            deadlines: Deadlines::default(),
            by_ran: BTreeMap::new(),
            coming: BTreeSet::new(),
            tmsi: TmsiKey::from(*tmsi_key),
            pointer,
            taken_over: BTreeMap::new(),
            unauthenticated_ues: 0,
            unauthenticated_ues_on: BTreeMap::new(),
            ues_at: [0; UPFS_MAX],
        }
    }

    /// The key of the permutation that makes 5G-TMSIs.
    pub(super) fn tmsi_key(&self) -> [u8; 16] {
        self.tmsi.key
    }

    /// What is stored of a UE's slot.
    pub(super) fn stored(&self, ue: UeId) -> Option<StoredSlot> {
        let e = self.entries.get(ue.slot as usize).filter(|e| e.used && e.generation == ue.generation)?;
        let UeRecord { connection, tmsi_tag, stream, .. } = *e;
        Some(StoredSlot { ue, connection, tmsi_tag, downlink_count: e.downlink_count(), stream })
    }

    /// Begins with UEs of an earlier run, whose 5G-TMSIs were made with this key.
    pub(super) fn begin_with(&mut self, tmsi_key: &[u8; 16]) {
        self.tmsi = TmsiKey::from(*tmsi_key);
    }

    /// Whether no UE has a slot.
    pub(super) fn is_free(&self, slot: u32) -> bool {
        self.entries.get(slot as usize).is_none_or(|e| !e.used)
    }

    /// Restores a UE, at this clock of its log and with sessions at these UPFs. `exact`: its downlink COUNT is the last that was used.
    pub(super) fn restore(&mut self, stored: StoredSlot, clock: u64, upfs: UpfSet, exact: bool) {
        let StoredSlot { ue, connection, tmsi_tag, downlink_count, stream } = stored;
        // A gNB may have a connection of the UE that is newer than its stored state: its AMF-UE-NGAP-ID is not given again.
        let connection = if exact { connection } else { connection.wrapping_add(CONNECTIONS_SKIPPED) };
        while self.entries.len() <= ue.slot as usize {
            self.entries.push(UeRecord::vacant());
        }
        self.entries[ue.slot as usize] = UeRecord {
            generation: ue.generation,
            connection,
            former: connection,
            tmsi_tag,
            named: true,
            used: true,
            downlink_count: downlink_count.filter(|_| exact).unwrap_or(NO_COUNT),
            clock,
            stream,
            ..UeRecord::vacant()
        };
        self.set_upfs(ue.slot, upfs);
    }

    /// All UEs are restored: the slots between theirs are free.
    pub(super) fn end_of_restoration(&mut self) {
        let slots = (0u32..).zip(self.entries.iter());
        self.free = slots.filter(|(_, e)| !e.used).map(|(slot, _)| slot).collect();
    }

    /// Each UE has a deadline now.
    pub(super) fn all_due(&mut self, now: Instant) {
        let used: Vec<u32> =
            (0u32..).zip(self.entries.iter()).filter(|(_, e)| e.used).map(|(slot, _)| slot).collect();
        used.into_iter().for_each(|slot| self.set_deadline(slot, Some(now)));
    }

    /// At most `max` authenticated UEs from a slot on, and where the next ones begin, if there are more slots.
    pub(super) fn authenticated_from(&self, first: u32, max: usize) -> (Vec<UeId>, Option<u32>) {
        let mut found = Vec::new();
        for slot in first..self.entries.len() as u32 {
            let e = &self.entries[slot as usize];
            if !e.used || e.radio.unauthenticated_at.is_some() {
                continue;
            }
            if found.len() == max {
                return (found, Some(slot));
            }
            found.push(UeId { slot, generation: e.generation });
        }
        (found, None)
    }

    /// UEs that did not authenticate yet.
    pub(super) fn unauthenticated_ues(&self) -> u32 {
        self.unauthenticated_ues
    }

    /// Those of one gNB.
    pub(super) fn unauthenticated_ues_on(&self, association: AssociationId) -> u32 {
        self.unauthenticated_ues_on.get(&association).copied().unwrap_or(0)
    }

    /// An unauthenticated UE that was rejected and whose connection is about to be released: only such a UE has its next deadline exactly
    /// `delay` after its last input. `of`: only UEs of this gNB.
    pub(super) fn rejected_ue(
        &self,
        now: Instant,
        delay: Duration,
        of: Option<AssociationId>,
    ) -> Option<UeId> {
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now + delay).take(REJECTED_SEARCHED_MAX);
        let slot = due.map(|(_, slot)| slot).find(|&slot| {
            let e = &self.entries[slot as usize];
            e.radio.unauthenticated_at.is_some_and(|on| of.is_none_or(|of| of == on))
                && e.deadline == e.time + delay
        });
        self.occupant(slot?)
    }

    /// Slots in use.
    pub(super) fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Allocates a slot for an unknown UE at this gNB; `None` at the limit.
    pub(super) fn allocate(&mut self, ues_max: u32, association: AssociationId) -> Option<UeId> {
        let slot = match self.free.pop_front() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.entries.len()).ok()?;
                if slot >= ues_max.min(UeId::SLOTS) {
                    return None;
                }
                self.entries.push(UeRecord::vacant());
                slot
            }
        };
        let e = &mut self.entries[slot as usize];
        e.used = true;
        e.named = false;
        e.generation = e.generation.wrapping_add(1);
        (e.former, e.former_until) = (e.connection, e.time);
        let AtGnb { elsewhere, .. } = *e.radio;
        *e.radio = AtGnb { unauthenticated_at: Some(association), elsewhere, ..BoxedAtGnb::NOWHERE };
        (e.clock, e.heard_on) = (0, FormerGnbs::NONE);
        (e.left, e.downlink_count) = (FormerGnbs::default(), NO_COUNT);
        let generation = e.generation;
        self.unauthenticated_ues += 1;
        *self.unauthenticated_ues_on.entry(association).or_default() += 1;
        Some(UeId { slot, generation })
    }

    /// Frees a slot. Its gNBs may not know it yet, however long the UE was silent.
    pub(super) fn release(&mut self, ue: UeId, now: Instant) {
        let Some(e) = self.entry(ue) else { return };
        e.used = false;
        e.time = e.time.max(now);
        self.no_longer_unauthenticated(ue.slot);
        self.set_connection(ue.slot, None);
        self.set_coming(ue.slot, None, None);
        self.set_deadline(ue.slot, None);
        self.set_upfs(ue.slot, UpfSet::default());
        self.free.push_back(ue.slot);
    }

    /// The UE is authenticated, or gone.
    fn no_longer_unauthenticated(&mut self, slot: u32) {
        let radio = &mut self.entries[slot as usize].radio;
        let Some(association) = radio.unauthenticated_at else { return };
        radio.unauthenticated_at = None;
        radio.shrink();
        self.unauthenticated_ues -= 1;
        if let Some(n) = self.unauthenticated_ues_on.get_mut(&association) {
            *n -= 1;
            if *n == 0 {
                self.unauthenticated_ues_on.remove(&association);
            }
        }
    }

    fn set_connection(&mut self, slot: u32, at: Option<N2Names>) {
        let e = &mut self.entries[slot as usize];
        if e.radio.at == at {
            return;
        }
        let before = std::mem::replace(&mut e.radio.at, at);
        e.radio.shrink();
        e.leave(before);
        if let Some(before) = before.and_then(ran_name)
            && self.by_ran.get(&before) == Some(&slot)
        {
            self.by_ran.remove(&before);
        }
        if let Some(before) = before.map(|names| names.amf_ue_ngap_id)
            && self.taken_over.get(&before) == Some(&slot)
        {
            self.taken_over.remove(&before);
        }
        if let Some(names) = at.filter(|names| !self.is_of_slot(names.amf_ue_ngap_id, slot)) {
            self.taken_over.insert(names.amf_ue_ngap_id, slot);
        }
        if let Some(at) = at.and_then(ran_name) {
            self.by_ran.insert(at, slot);
        }
    }

    /// Sets the handover target, and the gNB that asks for the path.
    fn set_coming(&mut self, slot: u32, target: Option<N2Names>, elsewhere: Option<Elsewhere>) {
        let e = &mut self.entries[slot as usize];
        let of = |target: Option<N2Names>, elsewhere: Option<Elsewhere>| {
            [target.map(|t| t.association), elsewhere.map(|e| e.association)].into_iter().flatten()
        };
        let former = e.radio.target;
        if (former, e.radio.elsewhere) == (target, elsewhere) {
            return;
        }
        let (before, after) = (of(former, e.radio.elsewhere), of(target, elsewhere));
        (e.radio.target, e.radio.elsewhere) = (target, elsewhere);
        e.radio.shrink();
        if target != former {
            e.leave(former);
        }
        for association in before {
            self.coming.remove(&(association, slot));
        }
        self.coming.extend(after.map(|association| (association, slot)));
    }

    /// True for an AMF-UE-NGAP-ID that another AMF of the set has given.
    fn is_of_peer(&self, id: AmfUeNgapId) -> bool {
        pointer_of(id) != self.pointer
    }

    fn entry(&mut self, ue: UeId) -> Option<&mut UeRecord> {
        self.entries.get_mut(ue.slot as usize).filter(|e| e.used && e.generation == ue.generation)
    }

    /// Whether the UE still has its slot.
    pub(super) fn holds(&self, ue: UeId) -> bool {
        self.entries.get(ue.slot as usize).is_some_and(|e| e.used && e.generation == ue.generation)
    }

    fn occupant(&self, slot: u32) -> Option<UeId> {
        let e = self.entries.get(slot as usize).filter(|e| e.used)?;
        Some(UeId { slot, generation: e.generation })
    }

    /// The UE in the slot that a 5G-TMSI of ours names, if it was assigned one. Whether it is the one in force, the UE context decides.
    pub(super) fn by_tmsi(&self, tmsi: Tmsi) -> Option<UeId> {
        let slot = self.tmsi.prf.restore(tmsi.0) >> TMSI_TAG_BITS;
        self.occupant(slot).filter(|_| self.entries[slot as usize].named)
    }

    /// The UE in the slot that an AMF-UE-NGAP-ID names, unless it is an ID of the slot's former UE.
    pub(super) fn by_amf_ue_ngap_id(&self, id: AmfUeNgapId) -> Option<UeId> {
        if let Some(slot) = self.taken_over.get(&id) {
            return self.occupant(*slot);
        }
        let (_, slot) = of_connection(id);
        let ue = self.occupant(slot).filter(|_| !self.is_of_peer(id))?;
        (self.is_of_slot(id, slot) || self.names(ue).any(|n| n.amf_ue_ngap_id == id)).then_some(ue)
    }

    /// The UE in this slot was given this AMF-UE-NGAP-ID here. A connection that another AMF of the set has handed on has one of that AMF, or one that
    /// this AMF gave it in another slot, before it went to that one.
    fn is_of_slot(&self, id: AmfUeNgapId, slot: u32) -> bool {
        let (tag, of) = of_connection(id);
        let Some(e) = self.entries.get(slot as usize).filter(|_| of == slot && !self.is_of_peer(id)) else {
            return false;
        };
        let since = |tag: u16| tag_distance(tag, e.former);
        (1..=since(e.connection)).contains(&since(tag))
    }

    /// Whether an AMF-UE-NGAP-ID was of a UE that was just released: its gNB's messages cross our UE CONTEXT RELEASE COMMAND. It need not
    /// be the UE's last one, which a cancelled handover may have used.
    pub(super) fn has_just_left(&self, now: Instant, id: AmfUeNgapId) -> bool {
        if self.is_of_peer(id) {
            return false;
        }
        let (tag, slot) = of_connection(id);
        self.entries.get(slot as usize).is_some_and(|e| {
            let (last, left) = if e.used { (e.former, e.former_until) } else { (e.connection, e.time) };
            usize::from(tag_distance(last, tag)) <= LEFT_MAX && now.since(left) < RELEASE_GRACE
        })
    }

    /// The UE with this RAN-UE-NGAP-ID at an association.
    pub(super) fn by_ran_ue_ngap_id(&self, association: AssociationId, id: RanUeNgapId) -> Option<UeId> {
        self.occupant(*self.by_ran.get(&(association, id))?)
    }

    /// Whether the UE's connection began with this message.
    pub(super) fn began_with(&self, ue: UeId, first: u64) -> bool {
        self.entries.get(ue.slot as usize).is_some_and(|e| e.first == first)
    }

    /// The stream of the UE's connection.
    pub(super) fn stream_begun(&self, ue: UeId) -> u16 {
        self.entries.get(ue.slot as usize).map_or(0, |e| e.stream)
    }

    /// The UE's connection began with this message, on this stream.
    pub(super) fn begin(&mut self, ue: UeId, first: u64, stream: u16) {
        if let Some(e) = self.entry(ue) {
            (e.first, e.stream) = (first, stream);
        }
    }

    /// The gNB uses this stream for a UE's connection. If the connection came from another AMF, that is the one which the gNB had chosen before, and it
    /// stays (TS 38.412 §7).
    pub(super) fn uses_stream(&mut self, ue: UeId, association: AssociationId, stream: u16) {
        let came =
            |e: &&mut UeRecord| e.first == 0 && e.radio.at.is_some_and(|n| n.association == association);
        if let Some(e) = self.entry(ue).filter(came) {
            e.stream = stream;
        }
    }

    /// The identity of a new N2 connection of this UE.
    pub(super) fn new_connection(&mut self, ue: UeId) -> Option<AmfUeNgapId> {
        let pointer = self.pointer;
        let is_free = |tag| !self.taken_over.contains_key(&connection_id(pointer, tag, ue.slot));
        let last = self.entries.get(ue.slot as usize)?.connection;
        let next = (1..=TAG_MASK).map(|n| last.wrapping_add(n)).find(|tag| is_free(*tag))?;
        let e = self.entry(ue)?;
        e.connection = next;
        // A UE that stays long uses all tags in turn: the older half of them is free by then.
        if e.connection.wrapping_sub(e.former) > TAG_MASK / 2 {
            e.former = e.former.wrapping_add(1);
        }
        let id = connection_id(pointer, e.connection, ue.slot);
        if e.radio.made.is_some_and(|(of_before, _)| of_before == id) {
            e.radio.made = None;
        }
        Some(id)
    }

    /// The identity of a connection that this UE may get by a handover; its stream is that of the one that it has.
    pub(super) fn target_connection(&mut self, ue: UeId) -> Option<AmfUeNgapId> {
        self.new_connection(ue)
    }

    /// The UE's connections: at the serving gNB, and at the target gNB.
    pub(super) fn names(&self, ue: UeId) -> impl Iterator<Item = N2Names> + use<> {
        let e = self.entries.get(ue.slot as usize).filter(|e| e.used && e.generation == ue.generation);
        e.map_or([None; 2], |e| [e.radio.at, e.radio.target]).into_iter().flatten()
    }

    /// Whether a gNB has a connection of the UE, asks for one, or recently had one.
    pub(super) fn concerns(&self, ue: UeId, association: AssociationId) -> bool {
        let e = self.entries.get(ue.slot as usize).filter(|e| e.used && e.generation == ue.generation);
        e.is_some_and(|e| {
            let now = [e.radio.at, e.radio.target].map(|names| names.map(|n| n.association));
            let asks = e.radio.elsewhere.map(|e| e.association);
            now.contains(&Some(association)) || asks == Some(association) || e.left.contains(association)
        })
    }

    /// The target gNB has made a context for the UE.
    pub(super) fn made(&mut self, ue: UeId, ours: AmfUeNgapId, theirs: RanUeNgapId) {
        let is_target = |e: &&mut UeRecord| e.radio.target.is_some_and(|t| t.amf_ue_ngap_id == ours);
        if let Some(e) = self.entry(ue).filter(is_target) {
            e.radio.made = Some((ours, theirs));
        }
    }

    /// Whether a gNB refers to a second context that it made under the same AMF-UE-NGAP-ID.
    pub(super) fn is_made_twice(&self, ue: UeId, ours: AmfUeNgapId, theirs: RanUeNgapId) -> bool {
        let made = self.entries.get(ue.slot as usize).and_then(|e| e.radio.made);
        let is_its = |n: N2Names| n.amf_ue_ngap_id == ours && n.ran_ue_ngap_id == Some(theirs);
        made.is_some_and(|made| made.0 == ours && made.1 != theirs) && !self.names(ue).any(is_its)
    }

    /// Records the downlink NAS COUNTs of a batch, in order. `new_keys`: whether an output starts new keys. Returns whether no COUNT was
    /// used before under its keys (TS 33.501 §6.4.3.1).
    pub(super) fn use_counts<'a>(
        &mut self,
        ue: UeId,
        batch: &'a Batch,
        new_keys: fn(&'a Output) -> bool,
    ) -> bool {
        let Some(e) = self.entry(ue) else { return true };
        batch.outputs.iter().all(|output| {
            let Some(count) = output.downlink_count else { return true };
            let before = e.downlink_count();
            e.downlink_count = count;
            before.is_none_or(|before| before < count) || new_keys(output)
        })
    }

    /// The UPFs of a UE's sessions.
    fn set_upfs(&mut self, slot: u32, upfs: UpfSet) {
        let former = std::mem::replace(&mut self.entries[slot as usize].upfs, upfs);
        if former == upfs {
            return;
        }
        let counts = &mut self.ues_at;
        former.iter().for_each(|upf| counts[usize::from(upf.0)] -= 1);
        upfs.iter().for_each(|upf| counts[usize::from(upf.0)] += 1);
    }

    /// UEs with sessions at a UPF.
    pub(super) fn ues_at(&self, upf: UpfId) -> u32 {
        self.ues_at.get(usize::from(upf.0)).copied().unwrap_or(0)
    }

    /// At most `max` UEs with sessions at a UPF from a slot on, and where the next ones begin, if there are more.
    pub(super) fn with_sessions_at(&self, upf: UpfId, first: u32, max: usize) -> (Vec<UeId>, Option<u32>) {
        let mut found = Vec::new();
        if self.ues_at(upf) == 0 {
            return (found, None);
        }
        for slot in first..self.entries.len() as u32 {
            let e = &self.entries[slot as usize];
            if !e.used || !e.upfs.contains(upf) {
                continue;
            }
            if found.len() == max {
                return (found, Some(slot));
            }
            found.push(UeId { slot, generation: e.generation });
        }
        (found, None)
    }

    /// The UEs, and the UPFs of each one's sessions.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (UeId, UpfSet)> {
        let used = (0u32..).zip(self.entries.iter()).filter(|(_, e)| e.used);
        used.map(|(slot, e)| (UeId { slot, generation: e.generation }, e.upfs))
    }

    /// A message of the UE came over this association.
    pub(super) fn heard(&mut self, ue: UeId, association: AssociationId) {
        if let Some(e) = self.entry(ue) {
            e.heard_on = association;
        }
    }

    /// The association of the UE's last message.
    pub(super) fn heard_on(&self, ue: UeId) -> Option<AssociationId> {
        self.entries.get(ue.slot as usize)?.heard_on()
    }

    /// A gNB that does not serve the UE has sent PATH SWITCH REQUEST on this stream.
    pub(super) fn asked_elsewhere(
        &mut self,
        ue: UeId,
        association: AssociationId,
        of: AmfUeNgapId,
        stream: u16,
    ) {
        if let Some(e) = self.entry(ue) {
            let (target, before) = (e.radio.target, e.clock);
            self.set_coming(ue.slot, target, Some(Elsewhere { association, of, stream, before }));
        }
    }

    /// The AMF-UE-NGAP-ID in the PATH SWITCH REQUEST that is being processed for the UE.
    pub(super) fn path_switch_pending(&self, ue: UeId) -> Option<AmfUeNgapId> {
        self.entries.get(ue.slot as usize)?.radio.elsewhere.map(|e| e.of)
    }

    /// The stream of the UE's messages on an association.
    pub(super) fn stream(&self, ue: UeId, association: AssociationId) -> u16 {
        self.entries.get(ue.slot as usize).map_or(0, |e| match e.radio.elsewhere {
            Some(elsewhere)
                if elsewhere.association == association
                    && e.radio.at.is_none_or(|n| n.association != association) =>
            {
                elsewhere.stream
            }
            _ => e.stream,
        })
    }

    /// The 5G-TMSI that this UE gets next.
    pub(super) fn tmsi(&self, ue: UeId) -> Tmsi {
        let tag = self.entries[ue.slot as usize].tmsi_tag;
        Tmsi(self.tmsi.prf.permute(ue.slot << TMSI_TAG_BITS | u32::from(tag)))
    }

    /// The 5G-TMSI of [`Self::tmsi`] was assigned.
    pub(super) fn tmsi_taken(&mut self, ue: UeId) {
        if let Some(e) = self.entry(ue) {
            (e.tmsi_tag, e.named) = (e.tmsi_tag.wrapping_add(1), true);
        }
    }

    /// Stamps the next input of a UE: its clock, and a time later than any before.
    pub(super) fn stamp(&mut self, ue: UeId, now: Instant) -> Option<(u64, Instant)> {
        let e = self.entry(ue)?;
        e.clock += 1;
        e.time = now.max(Instant(e.time.0 + 1));
        Some((e.clock, e.time))
    }

    /// Records what a batch says about the UE.
    pub(super) fn note(&mut self, ue: UeId, clock: u64, batch: &Batch) {
        let Some(e) = self.entry(ue) else { return };
        let association = batch.connected.map(|n| n.association);
        if e.radio.at.map(|n| n.association) != association
            && let Some(elsewhere) = e.radio.elsewhere.filter(|e| Some(e.association) == association)
        {
            e.stream = elsewhere.stream;
        }
        let elsewhere = e.radio.elsewhere.filter(|e| batch.target.is_some() || e.before >= clock);
        self.set_upfs(ue.slot, batch.upfs);
        self.set_connection(ue.slot, batch.connected);
        self.set_coming(ue.slot, batch.target, elsewhere);
        if batch.authenticated {
            self.no_longer_unauthenticated(ue.slot);
        }
        self.set_deadline(ue.slot, batch.next_deadline);
    }

    fn set_deadline(&mut self, slot: u32, deadline: Option<Instant>) {
        let e = &mut self.entries[slot as usize];
        let deadline = deadline.filter(|at| *at != Instant::FAR_FUTURE);
        let former = e.deadline();
        if former == deadline {
            return;
        }
        if let Some(before) = former {
            self.deadlines.remove(before, slot);
        }
        if let Some(at) = deadline {
            self.deadlines.insert(at, slot);
        }
        e.deadline = deadline.unwrap_or(Instant::FAR_FUTURE);
    }

    /// The earliest deadline of a UE.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| at)
    }

    /// Takes the next UE whose deadline has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<UeId> {
        let (at, slot) = self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.set_deadline(slot, None);
        self.occupant(slot)
    }

    /// UEs with a connection.
    pub(super) fn connected(&self) -> usize {
        self.by_ran.len()
    }

    /// The UEs that have a connection.
    pub(super) fn with_connections(&self) -> impl Iterator<Item = UeId> {
        self.by_ran.values().filter_map(|&slot| self.occupant(slot))
    }

    /// UEs with a connection on an association.
    pub(super) fn connected_over(&self, association: AssociationId) -> usize {
        self.by_ran.range(names_on(association)).count()
    }

    /// The UEs with a connection on an association, or that may get one, in the order of RAN-UE-NGAP-IDs.
    pub(super) fn on(&self, association: AssociationId) -> Vec<UeId> {
        let connected = self.by_ran.range(names_on(association)).map(|(_, &slot)| slot);
        let coming = self.coming.range((association, 0)..=(association, u32::MAX)).map(|&(_, slot)| slot);
        connected.chain(coming).filter_map(|slot| self.occupant(slot)).collect()
    }

    /// The UEs for which the gNB of an association is a handover target or asks for the path.
    pub(super) fn coming_to(&self, association: AssociationId) -> Vec<UeId> {
        let all = (association, 0)..=(association, u32::MAX);
        self.coming.range(all).filter_map(|&(_, slot)| self.occupant(slot)).collect()
    }
}

/// All RAN-UE-NGAP-IDs of an association.
fn names_on(association: AssociationId) -> RangeInclusive<(AssociationId, RanUeNgapId)> {
    (association, RanUeNgapId(0))..=(association, RanUeNgapId(u32::MAX))
}

/// The RAN-UE-NGAP-ID of a connection, unique at its association.
fn ran_name(names: N2Names) -> Option<(AssociationId, RanUeNgapId)> {
    Some((names.association, names.ran_ue_ngap_id?))
}

/// The tag and the slot of an AMF-UE-NGAP-ID.
fn of_connection(id: AmfUeNgapId) -> (u16, u32) {
    ((id.value() >> 24) as u16 & TAG_MASK, id.value() as u32 & (UeId::SLOTS - 1))
}

/// The AMF pointer in an AMF-UE-NGAP-ID.
fn pointer_of(id: AmfUeNgapId) -> u8 {
    (id.value() >> 34) as u8
}

/// How many tags one is after another.
fn tag_distance(tag: u16, from: u16) -> u16 {
    tag.wrapping_sub(from) & TAG_MASK
}

/// AMF pointer, tag of the connection and slot: 6, 10 and 24 bits.
fn connection_id(pointer: u8, tag: u16, slot: u32) -> AmfUeNgapId {
    let tag = u64::from(tag & TAG_MASK);
    AmfUeNgapId::new(u64::from(pointer & 0x3f) << 34 | tag << 24 | u64::from(slot)).expect("40 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GNB: AssociationId = AssociationId(7);
    /// The AMF pointer.
    const OWN: u8 = 3;

    fn names(amf_ue_ngap_id: AmfUeNgapId) -> N2Names {
        N2Names { association: GNB, amf_ue_ngap_id, ran_ue_ngap_id: None }
    }

    fn batch(
        at: Option<(AssociationId, RanUeNgapId)>,
        target: Option<AssociationId>,
        authenticated: bool,
        next_deadline: Option<Instant>,
    ) -> Batch {
        let names = |association, ran_ue_ngap_id| N2Names {
            association,
            amf_ue_ngap_id: connection_id(OWN, 0, 0),
            ran_ue_ngap_id,
        };
        let connected = at.map(|(association, ran)| names(association, Some(ran)));
        let target = target.map(|association| names(association, None));
        Batch { connected, target, authenticated, next_deadline, ..Batch::default() }
    }

    #[test] // TS 38.413 §9.3.3.2
    fn a_ue_is_found_by_the_gnbs_name_of_its_connection_while_it_has_that_connection() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let (a, b) = (s.allocate(2, GNB).unwrap(), s.allocate(2, GNB).unwrap());
        let (name, other) = (RanUeNgapId(1), AssociationId(8));
        s.note(a, 1, &batch(Some((GNB, name)), None, false, None));
        s.note(b, 1, &batch(Some((other, name)), None, false, None));
        assert_eq!(s.by_ran_ue_ngap_id(GNB, name), Some(a));
        assert_eq!((s.on(GNB), s.on(other)), (vec![a], vec![b]));
        // Another UE gets the ID before the first is released.
        s.note(b, 1, &batch(Some((GNB, name)), None, false, None));
        s.note(a, 1, &batch(None, None, false, None));
        assert_eq!(s.by_ran_ue_ngap_id(GNB, name), Some(b));
        s.release(b, Instant::ZERO);
        assert_eq!(s.by_ran_ue_ngap_id(GNB, name), None);
        assert!(s.by_ran.is_empty());
    }

    #[test] // TS 23.501 §5.21.2.2.1: a connection that is handed on keeps its names, also when it comes back
    fn a_ue_is_found_by_the_name_that_another_amf_or_slot_has_given_its_connection() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let connected = |id| Batch { connected: Some(names(id)), ..Batch::default() };
        let former = s.allocate(8, GNB).unwrap();
        let own = s.new_connection(former).unwrap();
        s.note(former, 1, &connected(own));
        // It is at another AMF and comes back, while its former slot stays for a moment.
        let back = s.allocate(8, GNB).unwrap();
        s.note(back, 1, &connected(own));
        assert_eq!(s.by_amf_ue_ngap_id(own), Some(back));
        s.note(former, 2, &Batch::default());
        s.release(former, Instant::ZERO);
        assert_eq!(s.by_amf_ue_ngap_id(own), Some(back));
        // The next UE of that slot gets other names.
        let next = s.allocate(8, GNB).unwrap();
        assert_eq!(next.slot, former.slot);
        let others: Vec<_> = (0..TAG_MASK).map(|_| s.new_connection(next).unwrap()).collect();
        assert!(!others.contains(&own));
        // One that the other AMF has given.
        let of_peer = connection_id(OWN + 1, 0, former.slot);
        s.note(back, 2, &connected(of_peer));
        assert_eq!((s.by_amf_ue_ngap_id(of_peer), s.by_amf_ue_ngap_id(own)), (Some(back), None));
        s.release(back, Instant::ZERO);
        assert_eq!((s.by_amf_ue_ngap_id(of_peer), s.taken_over.len()), (None, 0));
    }

    #[test]
    fn unauthenticated_ues_are_counted_for_the_gnb_that_brought_them() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let (a, b) = (s.allocate(2, GNB).unwrap(), s.allocate(2, AssociationId(8)).unwrap());
        assert_eq!((s.unauthenticated_ues(), s.unauthenticated_ues_on(GNB)), (2, 1));
        s.note(a, 1, &batch(None, None, true, None));
        s.release(a, Instant::ZERO);
        s.release(b, Instant::ZERO);
        assert_eq!(
            (s.unauthenticated_ues(), s.unauthenticated_ues_on(GNB), s.unauthenticated_ues_on.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_ue_is_found_by_tmsi_and_by_connection() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let a = s.allocate(10, GNB).unwrap();
        let b = s.allocate(10, GNB).unwrap();
        let tmsi = s.tmsi(b);
        assert_eq!(s.by_tmsi(tmsi), None, "the UE was given none yet");
        s.tmsi_taken(b);
        assert_eq!(s.by_tmsi(tmsi), Some(b));
        assert_ne!(s.tmsi(b), tmsi);
        let id = s.new_connection(a).unwrap();
        assert_ne!(Some(id), s.new_connection(a));
        assert_eq!(s.by_amf_ue_ngap_id(id), Some(a));
    }

    #[test]
    fn messages_of_a_former_connection_do_not_reach_the_next_ue_of_the_slot() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let a = s.allocate(1, GNB).unwrap();
        let of_a = s.new_connection(a).unwrap();
        s.stamp(a, Instant(5_000_000)).unwrap();
        s.target_connection(a).unwrap(); // of a handover that is cancelled
        let left = Instant(15_000_000);
        s.release(a, left);
        assert!(s.has_just_left(left, of_a));
        let b = s.allocate(1, GNB).unwrap();
        assert_eq!((s.by_amf_ue_ngap_id(of_a), s.has_just_left(left, of_a)), (None, true));
        assert!(!s.has_just_left(left + RELEASE_GRACE, of_a));
        assert!(!s.has_just_left(left, connection_id(OWN, 100, a.slot)), "no UE had that ID lately");
        // It has more connections than there are tags, and is found by each of the last ones.
        let held = s.new_connection(b).unwrap();
        s.note(b, 1, &Batch { connected: Some(names(held)), ..Batch::default() });
        for _ in 0..200_000 {
            let before = s.new_connection(b).unwrap();
            let last = s.new_connection(b).unwrap();
            assert_eq!([before, last, held].map(|id| s.by_amf_ue_ngap_id(id)), [Some(b); 3]);
        }
    }

    #[test]
    fn a_reused_slot_is_not_found_by_its_former_ue_id() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let a = s.allocate(1, GNB).unwrap();
        assert_eq!(s.allocate(1, GNB), None, "the limit holds");
        s.release(a, Instant::ZERO);
        assert!(!s.holds(a));
        let b = s.allocate(1, GNB).unwrap();
        assert_eq!(b.slot, a.slot);
        assert_ne!(b.generation, a.generation);
        assert_eq!(s.stamp(a, Instant(5)), None);
        assert_eq!(s.stamp(b, Instant(5)), Some((1, Instant(5))));
    }

    #[test]
    fn time_of_one_ue_strictly_increases() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let a = s.allocate(1, GNB).unwrap();
        let (_, first) = s.stamp(a, Instant(5)).unwrap();
        let (_, second) = s.stamp(a, Instant(5)).unwrap();
        assert!(second > first);
    }

    #[test]
    fn deadlines_come_due_in_order_and_once() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let (a, b) = (s.allocate(2, GNB).unwrap(), s.allocate(2, GNB).unwrap());
        s.note(a, 1, &batch(None, None, true, Some(Instant(20))));
        s.note(b, 1, &batch(None, None, true, Some(Instant(10))));
        assert_eq!(s.due(Instant(5)), None);
        assert_eq!(s.due(Instant(30)), Some(b));
        assert_eq!(s.due(Instant(30)), Some(a));
        assert_eq!(s.due(Instant(30)), None);
        assert_eq!(s.unauthenticated_ues(), 0);
    }

    #[test] // TS 38.412 §7: both directions keep to the stream that the gNB chose, also of a gNB to which the UE moves
    fn the_stream_of_a_gnb_that_asks_for_the_ue() {
        let mut s = UeSlots::new(&[1; 16], OWN);
        let a = s.allocate(1, GNB).unwrap();
        let (source, target) = (AssociationId(1), AssociationId(2));
        let name = RanUeNgapId(4);
        s.begin(a, 0, 3);
        s.note(a, 1, &batch(Some((source, name)), None, true, None));
        s.asked_elsewhere(a, target, AmfUeNgapId::new(9).unwrap(), 7);
        assert_eq!((s.stream(a, source), s.stream(a, target)), (3, 7));
        s.note(a, 1, &batch(Some((source, name)), Some(target), true, None));
        assert_eq!((s.on(source), s.on(target)), (vec![a], vec![a]));
        assert_eq!(s.stream(a, target), 7, "until it is decided");
        s.note(a, 1, &batch(Some((target, name)), None, true, None));
        assert_eq!(s.stream(a, target), 7);
        assert_eq!((s.on(source), s.on(target)), (vec![], vec![a]));
        s.asked_elsewhere(a, source, AmfUeNgapId::new(9).unwrap(), 5);
        s.note(a, 1, &batch(Some((target, name)), None, true, None));
        assert_eq!(s.stream(a, source), 7, "it was refused");
    }
}
