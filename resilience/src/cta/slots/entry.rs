//! One UE's entry in the table of the CTA, and the form in which a CTA replica gets it.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use whimbrel_control::{AssociationId, N2Names, UpfSet};
use whimbrel_ids::{AmfUeNgapId, Instant, RanUeNgapId};

/// What the CTA stores of one UE. Most UEs are idle: what only others have is in a box.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "StoredUeRecord", into = "StoredUeRecord")]
pub(super) struct UeRecord {
    pub(super) clock: u64,
    pub(super) time: Instant,
    /// [`Instant::FAR_FUTURE`]: none.
    pub(super) deadline: Instant,
    /// When the slot's former UE was released.
    pub(super) former_until: Instant,
    /// Digest of the message that began its connection.
    pub(super) first: u64,
    pub(super) radio: BoxedAtGnb,
    /// The gNBs of its former connections.
    pub(super) left: FormerGnbs,
    /// The association of its last message; [`FormerGnbs::NONE`]: none.
    pub(super) heard_on: AssociationId,
    /// The downlink NAS COUNT that was used last; [`NO_COUNT`]: none.
    pub(super) downlink_count: u32,
    /// The last connection of the slot's former UE.
    pub(super) former: u16,
    pub(super) generation: u16,
    /// Distinguishes the N2 connections of one slot within the AMF-UE-NGAP-ID.
    pub(super) connection: u16,
    /// The UPFs of its sessions.
    pub(super) upfs: UpfSet,
    /// The stream of its connection: both directions keep to the one that the gNB chose (TS 38.412 §7).
    pub(super) stream: u16,
    /// Distinguishes the 5G-TMSIs of one slot.
    pub(super) tmsi_tag: u8,
    /// The UE was assigned a 5G-TMSI; before that no message can name it.
    pub(super) named: bool,
    pub(super) used: bool,
}

/// No NAS COUNT: these have 24 bits.
pub(super) const NO_COUNT: u32 = u32::MAX;

const _: () = assert!(size_of::<UeRecord>() <= 88, "what an idle UE takes");

/// What the CTA stores of a UE that is at a gNB, or is not authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtGnb {
    /// The gNB of a UE that is not authenticated yet.
    pub(super) unauthenticated_at: Option<AssociationId>,
    /// The UE's names at the gNB.
    pub(super) at: Option<N2Names>,
    /// The connection at the gNB that takes it over.
    pub(super) target: Option<N2Names>,
    /// Both NGAP IDs of the context that a gNB made last at HANDOVER REQUEST.
    pub(super) made: Option<(AmfUeNgapId, RanUeNgapId)>,
    pub(super) elsewhere: Option<Elsewhere>,
}

/// An [`AtGnb`], without memory while all of it is absent.
#[derive(Clone, Debug, Default)]
pub(super) struct BoxedAtGnb(Option<Box<AtGnb>>);

impl BoxedAtGnb {
    pub(super) const NOWHERE: AtGnb =
        AtGnb { unauthenticated_at: None, at: None, target: None, made: None, elsewhere: None };

    pub(super) fn shrink(&mut self) {
        self.0.take_if(|held| **held == Self::NOWHERE);
    }
}

impl Deref for BoxedAtGnb {
    type Target = AtGnb;

    fn deref(&self) -> &AtGnb {
        self.0.as_deref().unwrap_or(&Self::NOWHERE)
    }
}

impl DerefMut for BoxedAtGnb {
    fn deref_mut(&mut self) -> &mut AtGnb {
        self.0.get_or_insert_with(|| Self::NOWHERE.into())
    }
}

/// The gNBs of a UE's former connections, the newest first: their messages may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FormerGnbs([AssociationId; LEFT_MAX]);

impl FormerGnbs {
    /// The mark of no association.
    pub(super) const NONE: AssociationId = AssociationId(u32::MAX);

    pub(super) fn contains(self, association: AssociationId) -> bool {
        self.0.contains(&association)
    }

    pub(super) fn add(&mut self, association: AssociationId) {
        let at = self.0.iter().position(|&a| a == association).unwrap_or(LEFT_MAX - 1);
        self.0[..=at].rotate_right(1);
        self.0[0] = association;
    }
}

impl Default for FormerGnbs {
    fn default() -> Self {
        Self([Self::NONE; LEFT_MAX])
    }
}

/// An entry as a CTA replica gets it.
#[derive(Serialize, Deserialize)]
struct StoredUeRecord {
    generation: u16,
    connection: u16,
    tmsi_tag: u8,
    named: bool,
    used: bool,
    unauthenticated_at: Option<AssociationId>,
    former: (u16, Instant),
    at: Option<N2Names>,
    first: u64,
    target: Option<N2Names>,
    made: Option<(AmfUeNgapId, RanUeNgapId)>,
    upfs: UpfSet,
    heard_on: Option<AssociationId>,
    stream: u16,
    elsewhere: Option<Elsewhere>,
    left: [Option<AssociationId>; LEFT_MAX],
    downlink_count: Option<u32>,
    clock: u64,
    time: Instant,
    deadline: Option<Instant>,
}

impl From<UeRecord> for StoredUeRecord {
    fn from(e: UeRecord) -> Self {
        let AtGnb { unauthenticated_at, at, target, made, elsewhere } = *e.radio;
        Self {
            generation: e.generation,
            connection: e.connection,
            tmsi_tag: e.tmsi_tag,
            named: e.named,
            used: e.used,
            unauthenticated_at,
            former: (e.former, e.former_until),
            at,
            first: e.first,
            target,
            made,
            upfs: e.upfs,
            heard_on: e.heard_on(),
            stream: e.stream,
            elsewhere,
            left: e.left.0.map(|association| Some(association).filter(|a| *a != FormerGnbs::NONE)),
            downlink_count: e.downlink_count(),
            clock: e.clock,
            time: e.time,
            deadline: e.deadline(),
        }
    }
}

impl From<StoredUeRecord> for UeRecord {
    fn from(e: StoredUeRecord) -> Self {
        let (unauthenticated_at, at, target) = (e.unauthenticated_at, e.at, e.target);
        let held = AtGnb { unauthenticated_at, at, target, made: e.made, elsewhere: e.elsewhere };
        Self {
            clock: e.clock,
            time: e.time,
            deadline: e.deadline.unwrap_or(Instant::FAR_FUTURE),
            former: e.former.0,
            former_until: e.former.1,
            first: e.first,
            radio: BoxedAtGnb((held != BoxedAtGnb::NOWHERE).then(|| held.into())),
            left: FormerGnbs(e.left.map(|association| association.unwrap_or(FormerGnbs::NONE))),
            heard_on: e.heard_on.unwrap_or(FormerGnbs::NONE),
            downlink_count: e.downlink_count.unwrap_or(NO_COUNT),
            generation: e.generation,
            connection: e.connection,
            upfs: e.upfs,
            stream: e.stream,
            tmsi_tag: e.tmsi_tag,
            named: e.named,
            used: e.used,
        }
    }
}

/// As many former connections as the UE context keeps.
pub(super) const LEFT_MAX: usize = 4;

/// A gNB without a connection of the UE has sent PATH SWITCH REQUEST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Elsewhere {
    pub(super) association: AssociationId,
    /// The connection that it names.
    pub(super) of: AmfUeNgapId,
    /// The stream that it uses.
    pub(super) stream: u16,
    /// The last input before that.
    pub(super) before: u64,
}

impl UeRecord {
    /// One that no UE has had.
    pub(super) fn vacant() -> Self {
        Self {
            clock: 0,
            time: Instant::ZERO,
            deadline: Instant::FAR_FUTURE,
            former: 0,
            former_until: Instant::ZERO,
            first: 0,
            radio: BoxedAtGnb::default(),
            left: FormerGnbs::default(),
            heard_on: FormerGnbs::NONE,
            downlink_count: NO_COUNT,
            generation: 0,
            connection: 0,
            upfs: UpfSet::default(),
            stream: 0,
            tmsi_tag: 0,
            named: false,
            used: false,
        }
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, connection: Option<N2Names>) {
        connection.into_iter().for_each(|names| self.left.add(names.association));
    }

    pub(super) fn heard_on(&self) -> Option<AssociationId> {
        Some(self.heard_on).filter(|association| *association != FormerGnbs::NONE)
    }

    pub(super) fn downlink_count(&self) -> Option<u32> {
        Some(self.downlink_count).filter(|count| *count != NO_COUNT)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.deadline).filter(|at| *at != Instant::FAR_FUTURE)
    }
}
