//! Messages of peer AMFs (N14, TS 23.502 §4.9.1.3), and the UEs that they go to. What a UE's procedures decide is in `control/src/amf/n14`.
//!
//! A message names a UE's transfer by its [`Relation`]. At the target the relation leads to the UE's slot; at the source it holds the UE
//! itself. An unknown relation is refused. An AMF that asks for a context ([`N14Body::TransferUeContext`]) names the UE by its 5G-TMSI, and
//! the answer carries the relation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::amf::{
    self, ForwardedUe, HandedOverSession, N14, N14Body, PeerAmfId, Relation, TransferCompletion,
    TransferredUe, UeContextCreateData, UeProof,
};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{Checkpoint, Flat, FlatError, HandoverTarget, OutputId, Payload, UeId, UpfId};
use whimbrel_ids::{AmfId, Instant, STmsi, Tmsi};
use whimbrel_ngap::ie::{Cause, CauseMisc, CauseRadioNetwork, CauseTransport};

use super::remote_amfs::NO_GNB;
use super::{Cta, Entropy, Inspect, Outbox};

/// Why a message of a peer AMF is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum N14Error {
    /// It has this version of the N14 form, which is unknown here.
    Version(u16),
    /// It cannot be decoded.
    Malformed,
    /// The transfer that it would begin has begun.
    Repeated,
    /// It names a UE or a handover that is unknown here.
    Unknown,
    /// No peer AMF of that number is configured.
    UnknownPeer,
}

impl fmt::Display for N14Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "it is of version {version}, which is not known here"),
            Self::Malformed => f.write_str("it cannot be decoded"),
            Self::Repeated => f.write_str("it repeats a message that begins a handover or a registration"),
            Self::Unknown => f.write_str("it names a UE or a handover that is not known here"),
            Self::UnknownPeer => f.write_str("no peer AMF of its number is configured"),
        }
    }
}

/// The UEs that came from peer AMFs, by relation.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct ArrivedUes {
    by_relation: BTreeMap<(PeerAmfId, Relation), UeId>,
    /// By their 5G-GUTIs of other AMFs: a UE uses that one until it has received a new one (TS 24.501 §5.5.1.3.8 c).
    by_guti: BTreeMap<(AmfId, Tmsi), UeId>,
    by_ue: BTreeMap<UeId, ArrivedUe>,
    /// UEs that have gone to a peer AMF. Their contexts stay for a moment, to answer it again.
    gone: BTreeSet<UeId>,
    #[serde(skip)]
    fetched: FetchedUes,
}

/// The UEs whose contexts an AMF of the set fetches at this moment, by their 5G-GUTIs, and since when. It is asked of all living AMFs of the set before
/// it is asked of a replica.
#[derive(Default)]
struct FetchedUes(BTreeMap<(AmfId, Tmsi), Instant>);

/// A request for a context is repeated more often.
const FETCHED_WITHIN: Duration = Duration::from_secs(3);
const FETCHED_MAX: usize = 4096;

impl FetchedUes {
    fn note(&mut self, now: Instant, of: &UeProof) {
        if self.0.len() >= FETCHED_MAX {
            self.0.retain(|_, since| now.since(*since) < FETCHED_WITHIN);
        }
        if self.0.len() < FETCHED_MAX {
            self.0.insert((of.amf_id, of.tmsi), now);
        }
    }

    fn holds(&self, now: Instant, guti: (AmfId, Tmsi)) -> bool {
        self.0.get(&guti).is_some_and(|since| now.since(*since) < FETCHED_WITHIN)
    }
}

#[derive(Serialize, Deserialize)]
struct ArrivedUe {
    from: PeerAmfId,
    relation: Relation,
    gutis: Vec<(AmfId, Tmsi)>,
}

impl ArrivedUes {
    fn get(&self, from: PeerAmfId, relation: Relation) -> Option<UeId> {
        self.by_relation.get(&(from, relation)).copied()
    }

    /// True if a UE that has this identifier at a peer AMF is here, or is coming.
    fn is_of(&self, from: PeerAmfId, source: UeId) -> bool {
        let of = |octet| (from, Relation { source, token: [octet; 16] });
        self.by_relation.range(of(0)..=of(u8::MAX)).next().is_some()
    }

    /// A UE comes from a peer AMF, of this identifier.
    fn insert(&mut self, (from, amf_id): (PeerAmfId, AmfId), relation: Relation, state: &Flat, ue: UeId) {
        let state = Checkpoint::from_octets(state.octets()).and_then(|c| c.context());
        let gutis: Vec<_> = state.map_or_else(|_| Vec::new(), |p| p.amf.gutis(amf_id).collect());
        self.by_relation.insert((from, relation), ue);
        self.by_guti.extend(gutis.iter().map(|guti| (*guti, ue)));
        self.by_ue.insert(ue, ArrivedUe { from, relation, gutis });
    }

    /// A UE is gone.
    pub(super) fn remove(&mut self, ue: UeId) {
        self.gone.remove(&ue);
        let Some(ArrivedUe { from, relation, gutis }) = self.by_ue.remove(&ue) else { return };
        self.by_relation.remove(&(from, relation));
        for guti in gutis {
            // Another UE may have come with the same 5G-GUTI since.
            if self.by_guti.get(&guti) == Some(&ue) {
                self.by_guti.remove(&guti);
            }
        }
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// The UE from a peer AMF that this first message names by its 5G-GUTI there, or by the short form of it (`s_tmsi`), which gNBs give for a UE of this
    /// AMF's set. Whether the message is its own, the UE context decides.
    pub(super) fn arrived(&self, first: &[u8], s_tmsi: Option<STmsi>) -> Option<UeId> {
        if self.arrivals.by_guti.is_empty() {
            return None;
        }
        let own = self.config.amf.amf_id;
        let of_set = s_tmsi.filter(|s| s.set == own.set()).and_then(|s| {
            let amf_id = AmfId::new(own.region, s.set, s.pointer)?;
            self.arrivals.by_guti.get(&(amf_id, s.tmsi)).copied()
        });
        of_set.or_else(|| {
            let guti = amf::named_within(first)?;
            let ours = guti.guami.plmn == self.config.amf.plmn;
            self.arrivals.by_guti.get(&(guti.guami.amf_id, guti.tmsi)).copied().filter(|_| ours)
        })
    }

    /// The UE that a peer AMF asks for: of this AMF, or taken over from another one.
    fn shown(&self, shown: &UeProof) -> Option<UeId> {
        let ours = (shown.amf_id == self.config.amf.amf_id).then(|| self.slots.by_tmsi(shown.tmsi)).flatten();
        ours.or_else(|| self.arrivals.by_guti.get(&(shown.amf_id, shown.tmsi)).copied())
    }

    /// Handles a message of a peer AMF.
    pub(super) fn neighbour(&mut self, now: Instant, from: PeerAmfId, octets: &[u8], out: &mut Outbox) {
        if let Err(why) = self.take_from(now, from, octets, out) {
            out.n14_errors.push((from, why));
        }
    }

    fn take_from(
        &mut self,
        now: Instant,
        from: PeerAmfId,
        octets: &[u8],
        out: &mut Outbox,
    ) -> Result<(), N14Error> {
        if usize::from(from.0) >= self.config.amf.peer_amfs.len() {
            return Err(N14Error::UnknownPeer);
        }
        let N14 { relation, body } = N14::from_octets(octets).map_err(|e| match e {
            FlatError::UnknownVersion(version) => N14Error::Version(version),
            _ => N14Error::Malformed,
        })?;
        let (ue, target) = match &body {
            N14Body::CreateUeContext(_) if self.arrivals.get(from, relation).is_some() => {
                return Err(N14Error::Repeated);
            }
            N14Body::CreateUeContext(context) => self.comes(now, from, relation, context, out)?,
            N14Body::TransferUeContext(shown) => match self.shown(shown) {
                Some(ue) => (ue, None),
                None => {
                    self.arrivals.fetched.note(now, shown);
                    answer(from, relation, N14Body::UeContextNotTransferred(relation.source), out);
                    return Ok(());
                }
            },
            N14Body::UeContextTransferred(t) if self.arrivals.get(from, relation) == Some(t.asker) => {
                return Err(N14Error::Repeated);
            }
            N14Body::UeContextTransferred(t) if !self.takes(from, relation, t) => {
                answer(from, relation, N14Body::NotRegistered, out);
                return Err(N14Error::Unknown);
            }
            N14Body::UeContextTransferred(t) => (t.asker, None),
            N14Body::UeContextNotTransferred(asker) if !self.slots.holds(*asker) => {
                return Err(N14Error::Unknown);
            }
            N14Body::UeContextNotTransferred(asker) => (*asker, None),
            N14Body::ForwardUeContext(_) if self.arrivals.get(from, relation).is_some() => {
                return Err(N14Error::Repeated);
            }
            N14Body::ForwardUeContext(forwarded) => {
                match self.forwarded(now, from, relation, forwarded, out) {
                    Some(forwarded) => forwarded,
                    None => return Ok(()),
                }
            }
            // All AMFs of the set are asked. To this one, which lives, the UPF repeats its report.
            N14Body::DownlinkDataWaits { .. } => return Ok(()),
            body if body.is_of_source() => match (self.arrivals.get(from, relation), body) {
                (Some(ue), N14Body::Completed(TransferCompletion::HandedOver(given))) => {
                    given.iter().for_each(|g| self.session_came(ue, g));
                    (ue, None)
                }
                (Some(ue), _) => (ue, None),
                // Sessions given for a UE that is lost here are deleted.
                (None, N14Body::Completed(TransferCompletion::HandedOver(given))) => {
                    given.iter().for_each(|g| self.end_orphan(now, g, out));
                    return Err(N14Error::Unknown);
                }
                (None, _) => return Err(N14Error::Unknown),
            },
            body if !self.slots.holds(relation.source) => {
                let body = match body {
                    N14Body::HandoverComplete | N14Body::Registered { .. } => {
                        N14Body::Completed(TransferCompletion::Gone)
                    }
                    N14Body::UeContextCreated(_) => N14Body::ReleaseUeContext,
                    _ => return Err(N14Error::Unknown),
                };
                answer(from, relation, body, out);
                return Ok(());
            }
            _ => (relation.source, None),
        };
        self.inbox.push_back((ue, Payload::PeerAmf { from, octets: octets.into(), target }));
        Ok(())
    }

    /// True for a UE that has gone to a peer AMF, which has registered it at the UDM.
    pub(super) fn has_left(&self, ue: UeId) -> bool {
        self.arrivals.gone.contains(&ue)
    }

    /// A message of a UE goes to a peer AMF: by this one the UE may be gone, or asks for its context.
    pub(super) fn leaves(&mut self, now: Instant, ue: UeId, message: &Flat) {
        match N14::from_octets(message.octets()).map(|n14| n14.body) {
            Ok(N14Body::Completed(TransferCompletion::HandedOver(_))) => drop(self.arrivals.gone.insert(ue)),
            Ok(N14Body::TransferUeContext(shown)) => self.arrivals.fetched.note(now, &shown),
            _ => {}
        }
    }

    /// Accepts one context for the slot that asked for it; its relation leads there from now on.
    fn takes(&mut self, from: PeerAmfId, relation: Relation, t: &TransferredUe) -> bool {
        let takes = self.slots.holds(t.asker) && !self.arrivals.by_ue.contains_key(&t.asker);
        if takes && let Some(of) = self.peer(from) {
            self.arrivals.insert(of, relation, &t.state, t.asker);
        }
        takes
    }

    /// A peer AMF with its identifier.
    fn peer(&self, from: PeerAmfId) -> Option<(PeerAmfId, AmfId)> {
        self.config.amf.peer_amfs.get(usize::from(from.0)).map(|peer| (from, peer.amf_id))
    }

    fn upf_of(&self, given: &HandedOverSession) -> Option<UpfId> {
        let mut upfs = (0u8..).map(UpfId).zip(&self.config.smf.upfs);
        upfs.find(|(_, u)| u.address == Some(given.upf)).map(|(id, _)| id)
    }

    fn session_came(&mut self, ue: UeId, given: &HandedOverSession) {
        if let Some(upf) = self.upf_of(given) {
            self.session_stands(ue, upf, whimbrel_control::smf::deletion(given.up_seid));
        }
    }

    fn end_orphan(&mut self, now: Instant, given: &HandedOverSession, out: &mut Outbox) {
        if let Some(upf) = self.upf_of(given) {
            let (to, no_ue) = (OutputId { clock: 0, index: 0 }, UeId { slot: 0, generation: 0 });
            let deletion = whimbrel_control::smf::deletion(given.up_seid);
            // The UE is gone, so an unknown UPF matters no more.
            let _ = self.ask_upf(now, upf, no_ue, to, deletion, &mut out.pfcp);
        }
    }

    /// An AMF of the set that is to be removed gives a UE: it gets a slot. If it is connected, the association of its gNB is found.
    fn forwarded(
        &mut self,
        now: Instant,
        from: PeerAmfId,
        relation: Relation,
        forwarded: &ForwardedUe,
        out: &mut Outbox,
    ) -> Option<(UeId, Option<HandoverTarget>)> {
        let limits = self.config.limits;
        let state = &forwarded.ue.state;
        let context = Checkpoint::from_octets(state.octets()).and_then(|c| c.context()).ok();
        let peer = self.peer(from).filter(|(_, amf_id)| self.config.amf.is_of_set(*amf_id));
        let (Some(peer), Some(context)) = (peer, context) else {
            answer(from, relation, N14Body::NotRegistered, out);
            return None;
        };
        // Its own request is fetching it at this moment, from a replica of the same AMF.
        let is_fetched = context.amf.gutis(peer.1).any(|guti| self.arrivals.fetched.holds(now, guti));
        if is_fetched || self.arrivals.is_of(from, relation.source) {
            answer(from, relation, N14Body::NotRegistered, out);
            return None;
        }
        // It has come by itself while the AMFs did not reach each other, or has just gone to that AMF: its context knows.
        if let Some(here) = context.amf.supi.and_then(|supi| self.directory.registered(supi)) {
            return Some((here, None));
        }
        let room = self.slots.unauthenticated_ues() < limits.unauthenticated_ues;
        let ue = room.then(|| self.slots.allocate(limits.ues, NO_GNB)).flatten();
        let limit = if ue.is_none() { "ues" } else { "cpfs" };
        let Some(ue) = ue.filter(|ue| self.can_place(*ue)) else {
            ue.into_iter().for_each(|ue| self.vacate(now, ue, out));
            self.limited(now, None, limit, out);
            answer(from, relation, N14Body::NotRegistered, out);
            return None;
        };
        self.arrivals.insert(peer, relation, state, ue);
        let gnb = forwarded.gnb.and_then(|gnb| {
            let association = self.ran.find(gnb)?;
            let node = self.ran.get(association)?;
            let amf_ue_ngap_id = context.amf.connection.as_ref()?.amf_ue_ngap_id;
            let (tacs, slices) = (node.tacs.clone(), node.slices.clone());
            Some(HandoverTarget { association, amf_ue_ngap_id, tacs, slices })
        });
        if let Some(gnb) = &gnb {
            // Messages of UEs have streams other than 0 (TS 38.412 §7).
            let streams = u32::from(self.streams.get(&gnb.association).copied().unwrap_or(1)).max(2);
            self.slots.begin(ue, 0, 1 + (ue.slot % (streams - 1)) as u16);
        }
        Some((ue, gnb))
    }

    /// A UPF reports downlink data for a UE of another SMF of the set, which does not answer it. If its AMF is lost, the replica here forwards the UE in its
    /// place; the UPF repeats its report until then.
    pub(super) fn reported_to_set(&self, ue: UeId, smf: IpAddr, out: &mut Outbox) {
        let relation = Relation { source: ue, token: [0; 16] };
        for peer in self.config.amf.others_of_set() {
            answer(peer, relation, N14Body::DownlinkDataWaits { smf }, out);
        }
    }

    /// A UE is to come: it gets a slot, and an AMF-UE-NGAP-ID for the target gNB.
    fn comes(
        &mut self,
        now: Instant,
        from: PeerAmfId,
        relation: Relation,
        context: &UeContextCreateData,
        out: &mut Outbox,
    ) -> Result<(UeId, Option<HandoverTarget>), N14Error> {
        let named = self.ran.handover_target(&context.required);
        let at = named.map(|(association, node)| (association, node.tacs.clone(), node.slices.clone()));
        let Some((association, tacs, slices)) = at else {
            refuse(from, relation, CauseRadioNetwork::UnknownTargetId, out);
            return Err(N14Error::Unknown);
        };
        // An AMF that is to be removed takes no UE: another one of the set does.
        if self.removal.is_some() {
            refuse(from, relation, CauseMisc::ControlProcessingOverload, out);
            return Err(N14Error::Unknown);
        }
        let limits = self.config.limits;
        let crowded = self.slots.unauthenticated_ues_on(association) >= limits.unauthenticated_ues_per_gnb
            || self.slots.unauthenticated_ues() >= limits.unauthenticated_ues;
        let ue = (!crowded).then(|| self.slots.allocate(limits.ues, association)).flatten();
        let Some(ue) = ue else {
            self.limited(now, Some(association), "ues", out);
            refuse(from, relation, CauseMisc::ControlProcessingOverload, out);
            return Err(N14Error::Unknown);
        };
        if !self.can_place(ue) {
            self.vacate(now, ue, out);
            self.limited(now, Some(association), "cpfs", out);
            refuse(from, relation, CauseMisc::ControlProcessingOverload, out);
            return Err(N14Error::Unknown);
        }
        let Some(amf_ue_ngap_id) = self.slots.target_connection(ue) else { return Err(N14Error::Unknown) };
        // Messages of UEs have streams other than 0 (TS 38.412 §7).
        let streams = u32::from(self.streams.get(&association).copied().unwrap_or(1)).max(2);
        self.slots.begin(ue, 0, 1 + (ue.slot % (streams - 1)) as u16);
        if let Some(of) = self.peer(from) {
            self.arrivals.insert(of, relation, &context.state, ue);
        }
        Ok((ue, Some(HandoverTarget { association, amf_ue_ngap_id, tacs, slices })))
    }
}

/// The answer in place of a peer AMF that is not connected to a handover request: the UE goes to another AMF of the target's set, or stays.
pub fn handover_not_reached(message: &Flat) -> Option<Flat> {
    let N14 { relation, body } = N14::from_octets(message.octets()).ok()?;
    let body = matches!(body, N14Body::CreateUeContext(_))
        .then(|| N14Body::not_created(CauseTransport::TransportResourceUnavailable, None))?;
    Some(N14 { relation, body }.to_flat())
}

/// Refuses a UE.
fn refuse(to: PeerAmfId, relation: Relation, cause: impl Into<Cause>, out: &mut Outbox) {
    answer(to, relation, N14Body::not_created(cause, None), out);
}

fn answer(to: PeerAmfId, relation: Relation, body: N14Body, out: &mut Outbox) {
    out.n14.push((to, N14 { relation, body }.to_flat()));
}
