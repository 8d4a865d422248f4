//! The state of one UE: a small, plain, movable object, driven by an ordered log of inputs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{AmfUeNgapId, Instant, PduSessionId, Pei, RanUeNgapId, SNssai, Supi, Tai, Tmsi};
use whimbrel_nas::ie::{DrxParameters, NgKsi, UeSecurityCapability};
use whimbrel_ngap::ie::{NgranCgi, RrcEstablishmentCause};
use whimbrel_security::{KAmf, NasCount, NasSecurityContext};

use crate::amf::{
    Between, Departure, InboundTransfer, Locating, NextHop, PagingAid, SAID_ELSEWHERE, Target, VoiceMatch,
};
use crate::envelope::{AssociationId, Batch, N2Names, Subject, UeId};
use crate::flat::octets;
use crate::shard::Lanes;
use crate::smf::{PendingSetup, SmContext};
use crate::udm::{Ambr, Subscription};

/// Everything the core knows of one UE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UeContext {
    /// Whose slot it is.
    pub id: UeId,
    /// Clock of the last input.
    pub clock: u64,
    /// The highest terms that stamped an input: of the CTA, and of the UE's assignment to its shard.
    pub terms: (u32, u32),
    /// The AMF's part.
    pub amf: AmfContext,
    /// The SMF's part, by PDU session identity.
    pub sessions: BTreeMap<PduSessionId, Box<SmContext>>,
    /// Procedures in flight.
    #[serde(skip)]
    pub(crate) lanes: Lanes,
}

/// What the AMF knows of a UE (TS 23.502 Table 4.2.2.2.2-1, TS 29.518 §6.1.6.2.25).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AmfContext {
    /// The subscriber, once authenticated.
    pub supi: Option<Supi>,
    /// The equipment, once told under protection.
    pub pei: Option<Pei>,
    /// 5GMM-REGISTERED.
    pub registered: bool,
    /// The 5G-TMSI in force.
    pub tmsi: Option<Tmsi>,
    /// The one before it, still good until the UE confirms the new one (TS 24.501 §5.5.1.2.4).
    pub former_tmsi: Option<Tmsi>,
    /// The security context in force.
    pub security: Option<Box<NasSecurityContext>>,
    /// The one that a security mode command proposes.
    pub(crate) proposed: Option<Box<NasSecurityContext>>,
    /// As the UE sent it, for verbatim replay (TS 24.501 §5.4.2.2).
    pub ue_security_capability: Option<UeSecurityCapability>,
    /// The N2 connection.
    pub connection: Option<Box<Connection>>,
    /// Where the UE was last seen.
    pub tai: Option<Tai>,
    /// The cell where it was last seen (TS 23.501 §5.4.7).
    pub seen: Option<Seen>,
    /// What the operator wants to hear of its place.
    pub(crate) locating: Option<Box<Locating>>,
    /// It was elsewhere before, and what may be had there has yet to be judged (TS 23.501 §5.3.4.1.1, §5.6.5).
    pub(crate) moved: bool,
    /// The registration area: where the UE may be without telling, and is paged (TS 23.501 §5.9.4, TS 24.501 §5.3.4).
    pub registration_area: Box<[Tai]>,
    /// The slices that the UE may use here.
    pub allowed_nssai: Vec<SNssai>,
    /// Those that it asked for last.
    pub(crate) requested_nssai: Box<[SNssai]>,
    /// Registered for emergency services (TS 24.501 §3.1): nothing else is served.
    pub emergency: bool,
    /// When the key in force was proved, and how many registrations it has carried since.
    pub(crate) authenticated_at: Option<Instant>,
    pub(crate) registrations: u32,
    /// The UDM's notification that the subscription has changed waits to be looked into.
    pub(crate) subscription_stale: bool,
    /// The UE is still to be told that its slices have changed.
    pub(crate) slicing_changed: bool,
    /// What was agreed on reaching it while it is idle, where that is not what is agreed with everybody.
    pub(crate) reach: Option<Box<Reach>>,
    /// What the subscriber may use; shared.
    pub subscription: Option<Arc<Subscription>>,
    /// The radio's view of the UE, stored and returned unread (TS 23.501 §5.4.4.1).
    #[serde(with = "octets::shared_or_none")]
    pub radio_capability: Option<Arc<[u8]>>,
    /// Whether that radio carries IMS voice here.
    pub(crate) voice_match: VoiceMatch,
    /// When the UE is deregistered unless it shows up (TS 24.501 §5.3.7).
    pub reachable_until: Option<Instant>,
    /// When an unused connection is let go.
    pub connection_until: Option<Instant>,
    /// Digest of the initial NAS message that the running or last procedure answers: tells a repetition
    /// (TS 24.501 §5.5.1.2.8 d).
    pub(crate) answering: u64,
    /// Who the UE says that it is, before it proved it: for explanations only.
    pub(crate) claimed: Option<Supi>,
    /// K_AMF of the context in force, from which the keys of the radio are derived.
    pub(crate) k_amf: Option<KAmf>,
    /// Its name.
    pub ng_ksi: Option<NgKsi>,
    /// The chain of keys of the radio.
    pub(crate) next_hop: Option<Box<NextHop>>,
    /// The gNB that takes the UE over, while that is not certain.
    pub target: Option<Box<Target>>,
    /// The other AMF of a handover between two. What is at something does not travel, so neither does this.
    #[serde(skip)]
    pub(crate) between: Option<Box<Between>>,
    /// The gNB that the UE has left, while packets of it are still forwarded.
    pub source: Option<Box<Source>>,
    /// The connections that it had until just now and whose gNBs may not have heard so yet.
    pub(crate) parted: Option<Box<Parted>>,
    /// What gNBs told that helps to page it.
    pub(crate) paging_aid: Option<Box<PagingAid>>,
    /// The operator wants it deregistered, and it has yet to be reached (TS 23.502 §4.2.2.3.3).
    pub(crate) deregistration_wanted: bool,
    /// Somebody is to be told once it can be reached (TS 23.502 §4.2.5.2).
    pub(crate) reachability_wanted: bool,
    /// The uplink COUNT that K_gNB is derived with (TS 33.501 §6.8.1.2.2).
    pub(crate) as_count: Option<NasCount>,
}

impl AmfContext {
    /// What was agreed on reaching it while it is idle.
    pub(crate) fn reach(&self) -> Reach {
        self.reach.as_deref().copied().unwrap_or_default()
    }

    /// The AMF that takes the UE over, as long as its record is here.
    pub(crate) fn departure(&self) -> Option<&Departure> {
        match self.between.as_deref() {
            Some(Between::Departure(d)) => Some(d),
            _ => None,
        }
    }

    pub(crate) fn departure_mut(&mut self) -> Option<&mut Departure> {
        match self.between.as_deref_mut() {
            Some(Between::Departure(d)) => Some(d),
            _ => None,
        }
    }

    /// The UE does not leave. Where it may have been heard there, COUNTs of its keys may have been used.
    pub(crate) fn take_departure(&mut self) -> Option<Departure> {
        match *self.between.take_if(|b| matches!(**b, Between::Departure(_)))? {
            Between::Departure(d) => {
                if d.may_have_come() {
                    self.security.iter_mut().for_each(|s| s.leave_out(SAID_ELSEWHERE));
                }
                Some(d)
            }
            Between::InboundTransfer(_) => None,
        }
    }

    /// The AMF that the UE comes from, as long as it is not certain what came along.
    pub(crate) fn arrival(&self) -> Option<&InboundTransfer> {
        match self.between.as_deref() {
            Some(Between::InboundTransfer(a)) => Some(a),
            _ => None,
        }
    }

    pub(crate) fn set_reach(&mut self, reach: Reach) {
        self.reach = (reach != Reach::default()).then(|| reach.into());
    }
}

/// Connections that have ended without their gNBs having said so.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Parted(Vec<(AssociationId, AmfUeNgapId, Instant)>);

/// How long messages of a gNB may cross the one that lets it know that a connection is over: SCTP repeats what was lost after
/// a second (RTO.Initial of RFC 9260 §16).
pub const CROSSING: Duration = Duration::from_secs(2);

impl Parted {
    /// Connections that one UE can leave within that time, and that are kept in mind.
    const MAX: usize = 4;

    /// A connection is over.
    pub(crate) fn add(&mut self, now: Instant, association: AssociationId, id: AmfUeNgapId) {
        self.forget(now);
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push((association, id, now + CROSSING));
    }

    /// Whether a gNB may not have heard yet that this connection is over.
    pub(crate) fn has(&self, now: Instant, association: AssociationId, id: AmfUeNgapId) -> bool {
        self.0.iter().any(|&(a, i, until)| (a, i) == (association, id) && until > now)
    }

    /// Whether this was the name of such a connection, at whatever gNB.
    pub(crate) fn names(&self, now: Instant, id: AmfUeNgapId) -> bool {
        self.0.iter().any(|&(_, i, until)| i == id && until > now)
    }

    /// The gNB has heard.
    pub(crate) fn confirmed(&mut self, association: AssociationId, id: AmfUeNgapId) {
        self.0.retain(|&(a, i, _)| (a, i) != (association, id));
    }

    /// Whether none is left, after those whose time is over.
    pub(crate) fn forget(&mut self, now: Instant) -> bool {
        self.0.retain(|&(.., until)| until > now);
        self.0.is_empty()
    }
}

/// Where and when a UE was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The cell.
    pub cell: NgranCgi,
    /// The time.
    pub at: Instant,
}

/// How an idle UE is reached (TS 23.501 §5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// The periodic registration timer that it was given, where that is not everybody's.
    pub(crate) t3512: Option<Duration>,
    /// It is not paged (MICO), but for this long after it went idle (T3324).
    pub(crate) mico: Option<Duration>,
    /// T3512 runs while it is connected too, from here on (TS 24.501 §5.3.7, strictly periodic).
    pub(crate) strictly_periodic: Option<Instant>,
    /// Until when it can be paged; `None`: always.
    pub(crate) until: Option<Instant>,
    /// Its paging cycle, where it asked for one (TS 24.501 §9.11.3.2A).
    pub(crate) drx: Option<DrxParameters>,
    /// Its extended paging cycle and paging time window (TS 24.008 §10.5.5.32).
    pub(crate) edrx: Option<u8>,
}

/// A UE's connection to a gNB: the NGAP UE association (TS 38.413 §3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The gNB's association.
    pub association: AssociationId,
    /// Our name of it.
    pub amf_ue_ngap_id: AmfUeNgapId,
    /// The gNB's name of it.
    pub ran_ue_ngap_id: RanUeNgapId,
    /// The gNB holds a UE context (INITIAL CONTEXT SETUP succeeded).
    pub context_set_up: bool,
    /// It was asked to, and has not answered yet.
    pub context_pending: bool,
    /// The gNB asked for one (UE Context Request, TS 38.413 §8.6.1).
    pub context_requested: bool,
    /// The UE-AMBR that was told on this connection (TS 38.413 §8.2.1.2).
    pub ambr_told: Option<Ambr>,
    /// Mobile-originated data or signalling that follows: the connection is kept (TS 24.501 §5.5.1.2.4).
    pub follow_on: bool,
    /// The NAS messages on this connection are protected (TS 24.501 §4.4.4.1).
    pub secured: bool,
    /// The gNB was told to let it go: nothing more is said on it (TS 38.413 §8.3.3).
    pub releasing: bool,
    /// Why it was set up, as the UE told its gNB (TS 38.413 §9.3.1.111).
    pub establishment_cause: RrcEstablishmentCause,
    /// The gNB has told that the UE rests in RRC_INACTIVE (TS 38.413 §8.3.5).
    pub rrc_inactive: bool,
    /// Setups of session resources that the gNB has yet to answer. A lane awaits each of them, so no checkpoint has any.
    #[serde(skip)]
    pub(crate) pending_setups: Vec<PendingSetup>,
}

/// The gNB that a UE has left (TS 23.502 §4.9.1.3.3 steps 14 and 15).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The connection there; none where the gNB has let go of it, or is another AMF's.
    pub(crate) connection: Option<Connection>,
    /// How long packets are still forwarded; none before the UE's paths have followed it.
    pub(crate) until: Option<Instant>,
}

impl UeContext {
    /// A UE of which nothing is known.
    pub fn new(id: UeId) -> Self {
        Self {
            id,
            clock: 0,
            terms: (0, 0),
            amf: AmfContext::default(),
            sessions: BTreeMap::new(),
            lanes: Lanes::default(),
        }
    }

    /// Who it is, as far as is known.
    pub fn subject(&self) -> Subject {
        Subject { supi: self.amf.supi.or(self.amf.claimed), pei: self.amf.pei }
    }

    /// 5GMM-REGISTERED, 5GMM-CONNECTED or idle: in words, for people.
    pub fn is_connected(&self) -> bool {
        self.amf.connection.is_some()
    }

    /// Whether nothing is left of the UE here but a connection that is released after a while: it was rejected, or has deregistered, and may
    /// register again on it (TS 24.501 §5.3.1.3).
    pub fn awaits_release(&self) -> bool {
        !self.amf.registered && self.amf.connection_until.is_some() && self.amf.connection.is_some()
    }

    /// Whether a 5G-TMSI names this UE.
    pub(crate) fn bears(&self, tmsi: Tmsi) -> bool {
        self.amf.tmsi == Some(tmsi) || self.amf.former_tmsi == Some(tmsi)
    }

    /// When the first lifetime of a session of SSC mode 3 ends (TS 23.502 §4.3.5.2 step 5).
    pub(crate) fn leaving_until(&self) -> Option<Instant> {
        self.sessions.values().map(|s| s.until).min().filter(|until| *until != Instant::FAR_FUTURE)
    }

    /// The connections that it has: at the gNB that serves it, at the one that takes it over, at the one that it has left.
    pub fn n2_names(&self) -> [Option<N2Names>; 3] {
        let of = |c: &Connection| N2Names {
            association: c.association,
            amf_ue_ngap_id: c.amf_ue_ngap_id,
            ran_ue_ngap_id: Some(c.ran_ue_ngap_id),
        };
        let target = self.amf.target.as_ref().map(|t| N2Names {
            association: t.association,
            amf_ue_ngap_id: t.amf_ue_ngap_id,
            ran_ue_ngap_id: t.ran_ue_ngap_id,
        });
        let source = self.amf.source.as_ref().and_then(|s| s.connection.as_ref());
        [self.amf.connection.as_deref().map(of), target, source.map(of)]
    }

    /// Whether no procedure is in flight.
    pub fn is_idle(&self) -> bool {
        self.lanes.idle()
    }

    /// Completes the batch of an input with what holds after it.
    pub(crate) fn conclude(&self, batch: &mut Batch) {
        batch.idle = self.lanes.idle();
        let [serving, target, _] = self.n2_names();
        (batch.connected, batch.target) = (serving, target);
        batch.upfs = self.sessions.values().map(|s| s.upf).collect();
        let own = [
            self.lanes.next_deadline(),
            self.amf.reachable_until,
            self.amf.connection_until,
            self.amf.source.as_ref().and_then(|s| s.until),
            self.leaving_until(),
        ];
        batch.next_deadline = own.into_iter().flatten().min();
    }
}
