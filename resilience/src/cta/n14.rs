//! Messages of peer AMFs (N14, TS 23.502 §4.9.1.3), and the UEs that they go to. What a UE's procedures decide is in `control/src/amf/n14`.
//!
//! A message names a UE's transfer by its [`Relation`]. At the target the relation leads to the UE's slot; at the source it holds the UE
//! itself. An unknown relation is refused. An AMF that asks for a context ([`N14Body::TransferUeContext`]) names the UE by its 5G-TMSI, and
//! the answer carries the relation.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_control::amf::{
    self, HandedOverSession, N14, N14Body, PeerAmfId, Relation, TransferCompletion, TransferredUe,
    UeContextCreateData,
};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{Checkpoint, Flat, FlatError, HandoverTarget, OutputId, Payload, UeId, UpfId};
use whimbrel_ids::{Instant, Tmsi};
use whimbrel_ngap::ie::{Cause, CauseMisc, CauseRadioNetwork};

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
    /// By their 5G-TMSIs there: a UE uses that one until it has received a new one (TS 24.501 §5.5.1.3.8 c).
    by_tmsi: BTreeMap<(PeerAmfId, Tmsi), UeId>,
    by_ue: BTreeMap<UeId, ArrivedUe>,
}

#[derive(Serialize, Deserialize)]
struct ArrivedUe {
    from: PeerAmfId,
    relation: Relation,
    tmsis: [Option<Tmsi>; 2],
}

impl ArrivedUes {
    fn get(&self, from: PeerAmfId, relation: Relation) -> Option<UeId> {
        self.by_relation.get(&(from, relation)).copied()
    }

    fn insert(&mut self, from: PeerAmfId, relation: Relation, state: &Flat, ue: UeId) {
        let state = Checkpoint::from_octets(state.octets()).and_then(|c| c.context());
        let tmsis = state.map_or_else(|_| Default::default(), |p| [p.amf.tmsi, p.amf.former_tmsi]);
        self.by_relation.insert((from, relation), ue);
        self.by_tmsi.extend(tmsis.into_iter().flatten().map(|tmsi| ((from, tmsi), ue)));
        self.by_ue.insert(ue, ArrivedUe { from, relation, tmsis });
    }

    /// A UE is gone.
    pub(super) fn remove(&mut self, ue: UeId) {
        let Some(ArrivedUe { from, relation, tmsis }) = self.by_ue.remove(&ue) else { return };
        self.by_relation.remove(&(from, relation));
        for tmsi in tmsis.into_iter().flatten() {
            // Another UE may have come with the same 5G-TMSI since.
            if self.by_tmsi.get(&(from, tmsi)) == Some(&ue) {
                self.by_tmsi.remove(&(from, tmsi));
            }
        }
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// The UE from a peer AMF that this first message names by its 5G-GUTI there. Whether the message is its own, the UE context decides.
    pub(super) fn arrived(&self, first: &[u8]) -> Option<UeId> {
        if self.arrivals.by_tmsi.is_empty() {
            return None;
        }
        let guti = amf::named_within(first)?;
        let neighbours = (0u8..).map(PeerAmfId).zip(&self.config.amf.peer_amfs);
        let of_guti = |amf_id| guti.guami.plmn == self.config.amf.plmn && guti.guami.amf_id == amf_id;
        let (from, _) = neighbours.into_iter().find(|(_, n)| of_guti(n.amf_id))?;
        self.arrivals.by_tmsi.get(&(from, guti.tmsi)).copied()
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
            N14Body::TransferUeContext(shown) => match self.slots.by_tmsi(shown.tmsi) {
                Some(ue) => (ue, None),
                None => {
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

    /// Accepts one context for the slot that asked for it; its relation leads there from now on.
    fn takes(&mut self, from: PeerAmfId, relation: Relation, t: &TransferredUe) -> bool {
        let takes = self.slots.holds(t.asker) && !self.arrivals.by_ue.contains_key(&t.asker);
        if takes {
            self.arrivals.insert(from, relation, &t.state, t.asker);
        }
        takes
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
        self.arrivals.insert(from, relation, &context.state, ue);
        Ok((ue, Some(HandoverTarget { association, amf_ue_ngap_id, tacs, slices })))
    }
}

/// Refuses a UE.
fn refuse(to: PeerAmfId, relation: Relation, cause: impl Into<Cause>, out: &mut Outbox) {
    answer(to, relation, N14Body::not_created(cause, None), out);
}

fn answer(to: PeerAmfId, relation: Relation, body: N14Body, out: &mut Outbox) {
    out.n14.push((to, N14 { relation, body }.to_flat()));
}
