//! Replicas of UEs at a peer AMF, ahead of their way there: the level-2 replicas of regions that have a CTA each (Neutrino §4.3).
//!
//! The source sends the checkpoints of its UEs, as of their idle points, to its peers over N14. When a UE goes to one of them, [`PeerReplicas::send`]
//! puts into CREATE UE CONTEXT, or into the answer about a UE that registers there, not the UE's state, but a [`Delta`]: the clock and CRC of the checkpoint that the
//! peer has, and what has changed since. The peer completes the message ([`PeerReplicas::receive`]). If it lacks that very checkpoint, it asks for the whole
//! message, which the source keeps until then.
//!
//! A peer that is lost is served from its replicas ([`PeerReplicas::answer_in_place_of`]): its UEs come here one by one, and are authenticated, since their newest
//! NAS COUNTs may not be in the replica (TS 23.501 §5.21.2.3).
//!
//! All of this stands between a CTA and its link to a peer. What a CTA takes and sends are whole messages, so its log, its replica and the UE's procedures
//! do not know of it; whatever is lost here costs octets and a round trip, and no UE. It starts empty with each process.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use whimbrel_control::amf::{
    ForwardedUe, N14, N14Body, PeerAmfId, Relation, TransferCompletion, TransferredUe, UeProof,
    UeTransferState,
};
use whimbrel_control::{Checkpoint, Delta, Flat, UeId};
use whimbrel_ids::{AmfId, PduSessionId, Tmsi};

use crate::ToStore;

/// Octets of a checkpoint that is sent ahead: many times that of a UE with eight sessions. A larger one travels when it is needed.
const CHECKPOINT_OCTETS_MAX: usize = 32 * 1024;
/// Messages whose whole form is kept for a peer that may ask for it: more handovers than begin in the time that its answer takes.
const OFFERED_MAX: usize = 256;
/// UEs of lost peers that are on their way here: far more than come within a few seconds.
const PROMOTED_MAX: usize = 4096;
/// How long a peer is without a link before its replicas answer in its place: a peer that is a pair of CTAs is connected again before that when one dies.
pub const PEER_LOST_AFTER: Duration = Duration::from_secs(1);

/// What to do with a message of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessageOutcome {
    /// It is for the CTA, as it came.
    Input,
    /// It is for the CTA in this form: completed.
    Completed(Flat),
    /// This is the answer.
    Answer(Flat),
    /// It was about replicas alone.
    Taken,
}

/// Counts of all peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReplicaCounters {
    /// Checkpoints, or their differences, that were sent ahead.
    pub sent: u64,
    /// Messages that carried a clock in place of a UE's state.
    pub offered: u64,
    /// Messages of peers that were completed from a replica.
    pub completed: u64,
    /// Messages of peers for which the whole was asked, since no replica of that clock is here.
    pub requested: u64,
    /// UEs of lost peers that were served from their replicas.
    pub promoted: u64,
}

/// Checkpoints by UE, of which the one that was stored longest ago gives way.
#[derive(Debug, Default)]
struct Checkpoints {
    by_ue: BTreeMap<UeId, (u64, Checkpoint)>,
    by_age: BTreeMap<u64, UeId>,
    next: u64,
}

impl Checkpoints {
    fn get(&self, ue: UeId) -> Option<&Checkpoint> {
        self.by_ue.get(&ue).map(|(_, checkpoint)| checkpoint)
    }

    fn remove(&mut self, ue: UeId) -> bool {
        let removed = self.by_ue.remove(&ue);
        removed.is_some_and(|(age, _)| self.by_age.remove(&age).is_some())
    }

    /// Stores one. Returns the UE whose checkpoint gave way.
    fn insert(&mut self, checkpoint: Checkpoint, max: usize) -> Option<UeId> {
        let ue = checkpoint.ue_id();
        self.remove(ue);
        let full = self.by_ue.len() >= max;
        let oldest = full.then(|| self.by_age.values().next().copied()).flatten();
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
        self.next += 1;
        self.by_age.insert(self.next, ue);
        self.by_ue.insert(ue, (self.next, checkpoint));
        oldest
    }
}

/// The names by which a replica is found, and the UPFs of its sessions.
#[derive(Debug, Default)]
struct ReplicaNames {
    gutis: Vec<(AmfId, Tmsi)>,
    upfs: Vec<(PduSessionId, IpAddr)>,
}

/// A peer AMF with its states.
#[derive(Debug)]
struct PeerAmfReplicas {
    amf_id: AmfId,
    /// The N4 address of its SMF, since it was connected.
    smf: Option<IpAddr>,
    /// UEs of which each side holds the other's at most.
    max: usize,
    /// Of UEs of this AMF, as the peer was sent them.
    sent: Checkpoints,
    /// Of UEs of the peer.
    held: Checkpoints,
    names: BTreeMap<UeId, ReplicaNames>,
    by_guti: BTreeMap<(AmfId, Tmsi), UeId>,
    /// Messages that went with a clock in place of a state, whole.
    offered: VecDeque<(Relation, Flat)>,
}

/// The replicas of UEs at peer AMFs, and of peer AMFs' UEs here.
#[derive(Debug, Default)]
pub struct PeerReplicas {
    peers: BTreeMap<PeerAmfId, PeerAmfReplicas>,
    /// The N4 addresses of this SMF's UPFs, by their numbers.
    upfs: Vec<Option<IpAddr>>,
    /// Transfers that a replica has answered.
    promoted: VecDeque<(PeerAmfId, Relation)>,
    counters: PeerReplicaCounters,
}

impl PeerReplicas {
    /// With a peer for each of these, and the number of UEs of which either side holds the other's at most. With 0, none is sent or held. `upfs`: the N4
    /// addresses of this SMF's UPFs, by their numbers.
    pub fn new(
        peers: impl IntoIterator<Item = (PeerAmfId, AmfId, usize)>,
        upfs: Vec<Option<IpAddr>>,
    ) -> Self {
        let peers = peers.into_iter().filter(|(_, _, max)| *max > 0);
        let of = |amf_id, max| PeerAmfReplicas {
            amf_id,
            smf: None,
            max,
            sent: Checkpoints::default(),
            held: Checkpoints::default(),
            names: BTreeMap::new(),
            by_guti: BTreeMap::new(),
            offered: VecDeque::new(),
        };
        let peers = peers.map(|(id, amf_id, max)| (id, of(amf_id, max))).collect();
        Self { peers, upfs, promoted: VecDeque::new(), counters: PeerReplicaCounters::default() }
    }

    /// Whether checkpoints are sent to any peer: then the CTA is asked for those of UEs that have changed ([`crate::CtaOrder::StoreUes`]).
    pub fn is_used(&self) -> bool {
        !self.peers.is_empty()
    }

    /// What was counted.
    pub fn counters(&self) -> PeerReplicaCounters {
        self.counters
    }

    /// Of how many UEs of peers a checkpoint is here.
    pub fn held(&self) -> usize {
        self.peers.values().map(|peer| peer.held.by_ue.len()).sum()
    }

    /// A peer is connected, again or for the first time: it may have restarted, and what was on its way is lost.
    pub fn connected(&mut self, peer: PeerAmfId, smf: IpAddr) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.smf = Some(smf);
            (peer.sent, peer.offered) = Default::default();
        }
    }

    /// A UE of this AMF has changed, or is gone. Appends what peers are sent of it.
    pub fn changed(&mut self, stored: &ToStore, out: &mut Vec<(PeerAmfId, Flat)>) {
        match stored {
            ToStore::Ue(stored) => self.has_checkpoint(stored.id(), stored.checkpoint().ok(), out),
            ToStore::Gone(ue) => self.has_checkpoint(*ue, None, out),
            ToStore::All(_) => {}
        }
    }

    fn has_checkpoint(&mut self, ue: UeId, checkpoint: Option<Checkpoint>, out: &mut Vec<(PeerAmfId, Flat)>) {
        let checkpoint = checkpoint.filter(|c| c.octets().len() <= CHECKPOINT_OCTETS_MAX);
        // A UE that has gone to another AMF stays here for a moment, for messages on their way.
        let context = checkpoint.as_ref().and_then(|c| c.context().ok());
        let has_gone = context.as_ref().is_some_and(|ue| !ue.amf.registered);
        let checkpoint = checkpoint.filter(|_| !has_gone);
        let upfs = context.map(|ue| ue.session_upfs(&self.upfs)).unwrap_or_default();
        for (&to, peer) in &mut self.peers {
            let about =
                |ue, body| (to, N14 { relation: Relation { source: ue, token: [0; 16] }, body }.to_flat());
            let Some(checkpoint) = &checkpoint else {
                if peer.sent.remove(ue) {
                    out.push(about(ue, N14Body::ReplicaGone));
                }
                continue;
            };
            let former = peer.sent.get(ue);
            if former.is_some_and(|former| former.octets() == checkpoint.octets()) {
                continue;
            }
            let delta = former.and_then(|former| Delta::between(former, checkpoint));
            let replica = delta.map_or_else(|| checkpoint.clone().into_flat(), Delta::into_flat);
            self.counters.sent += 1;
            out.push(about(
                ue,
                N14Body::Replica(UeTransferState { state: replica, upfs: upfs.clone() }.into()),
            ));
            if let Some(gone) = peer.sent.insert(checkpoint.clone(), peer.max) {
                out.push(about(gone, N14Body::ReplicaGone));
            }
        }
    }

    /// A message goes to a peer: where that has the UE's checkpoint, with its clock and what has changed since in place of the state.
    pub fn send(&mut self, to: PeerAmfId, message: Flat) -> Flat {
        let Some(peer) = self.peers.get_mut(&to) else { return message };
        let Ok(N14 { relation, mut body }) = N14::from_octets(message.octets()) else { return message };
        let Some(state) = state_of(&mut body) else { return message };
        let whole = Checkpoint::from_octets(state.octets());
        let delta = whole.ok().and_then(|whole| Delta::between(peer.sent.get(whole.ue_id())?, &whole));
        let Some(delta) = delta else { return message };
        *state = delta.into_flat();
        if peer.offered.len() >= OFFERED_MAX {
            peer.offered.pop_front();
        }
        peer.offered.push_back((relation, message));
        self.counters.offered += 1;
        N14 { relation, body }.to_flat()
    }

    /// A request goes to a peer that has no link for [`PEER_LOST_AFTER`]: what its replicas answer in its place. `None`: only the peer itself could answer it.
    pub fn answer_in_place_of(&mut self, peer: PeerAmfId, message: &Flat) -> Option<Flat> {
        let N14 { relation, body } = N14::from_octets(message.octets()).ok()?;
        let (relation, body) = match body {
            N14Body::TransferUeContext(shown) => {
                let peer_replicas = self.peers.get(&peer).filter(|_| shown.by_replica);
                let replica = peer_replicas.and_then(|peer| peer.promote(relation.source, &shown));
                match replica {
                    Some((ue, transferred)) => {
                        self.counters.promoted += 1;
                        let relation = Relation { source: ue, ..relation };
                        self.promoted.truncate(PROMOTED_MAX - 1);
                        self.promoted.push_front((peer, relation));
                        (relation, N14Body::UeContextTransferred(transferred.into()))
                    }
                    None => (relation, N14Body::UeContextNotTransferred(relation.source)),
                }
            }
            N14Body::DownlinkDataWaits { smf } => {
                let (token, forwarded) =
                    self.peers.get(&peer).and_then(|p| p.forward(relation.source, smf))?;
                self.counters.promoted += 1;
                let relation = Relation { token, ..relation };
                self.promoted.truncate(PROMOTED_MAX - 1);
                self.promoted.push_front((peer, relation));
                (relation, N14Body::ForwardUeContext(forwarded.into()))
            }
            N14Body::Registered { .. } if self.promoted.contains(&(peer, relation)) => {
                (relation, N14Body::Completed(TransferCompletion::Gone))
            }
            _ => return None,
        };
        Some(N14 { relation, body }.to_flat())
    }

    /// A message has come from a peer.
    pub fn receive(&mut self, from: PeerAmfId, octets: &[u8]) -> PeerMessageOutcome {
        let Ok(N14 { relation, mut body }) = N14::from_octets(octets) else {
            return PeerMessageOutcome::Input;
        };
        match (&mut body, self.peers.get_mut(&from)) {
            (N14Body::Replica(replica), Some(peer)) => match peer.hold(relation.source, replica) {
                true => PeerMessageOutcome::Taken,
                false => {
                    PeerMessageOutcome::Answer(N14 { relation, body: N14Body::WholeRequested }.to_flat())
                }
            },
            (N14Body::ReplicaGone, Some(peer)) => {
                peer.forget(relation.source);
                PeerMessageOutcome::Taken
            }
            (N14Body::WholeRequested, Some(peer)) => {
                peer.sent.remove(relation.source);
                let at = peer.offered.iter().position(|(offered, _)| *offered == relation);
                match at.and_then(|at| peer.offered.remove(at)) {
                    Some((_, whole)) => PeerMessageOutcome::Answer(whole),
                    None => PeerMessageOutcome::Taken,
                }
            }
            // Nothing is exchanged with this peer by this AMF's configuration.
            (N14Body::Replica(_) | N14Body::ReplicaGone | N14Body::WholeRequested, None) => {
                PeerMessageOutcome::Taken
            }
            (body, peer) => {
                let delta = state_of(body).and_then(|state| Delta::from_octets(state.octets()).ok());
                let Some(delta) = delta else { return PeerMessageOutcome::Input };
                let base = peer.and_then(|peer| peer.held.get(delta.ue_id()));
                match base.and_then(|base| delta.apply(base).ok()) {
                    Some(checkpoint) => {
                        state_of(body).into_iter().for_each(|state| *state = checkpoint.clone().into_flat());
                        self.counters.completed += 1;
                        PeerMessageOutcome::Completed(N14 { relation, body: body.clone() }.to_flat())
                    }
                    None => {
                        self.counters.requested += 1;
                        PeerMessageOutcome::Answer(N14 { relation, body: N14Body::WholeRequested }.to_flat())
                    }
                }
            }
        }
    }
}

impl PeerAmfReplicas {
    /// Takes a checkpoint of a UE of the peer, or what has changed since the last one. `false`: the last one is not here.
    fn hold(&mut self, ue: UeId, replica: &UeTransferState) -> bool {
        let octets = replica.state.octets();
        let checkpoint = match Checkpoint::from_octets(octets) {
            Ok(checkpoint) => Some(checkpoint),
            Err(_) => Delta::from_octets(octets).ok().and_then(|d| d.apply(self.held.get(d.ue_id())?).ok()),
        };
        let fits = |c: &Checkpoint| c.ue_id() == ue && c.octets().len() <= CHECKPOINT_OCTETS_MAX;
        match checkpoint.filter(fits) {
            Some(checkpoint) => {
                self.forget_names(ue);
                if let Ok(context) = checkpoint.context() {
                    let gutis: Vec<_> = context.amf.gutis(self.amf_id).collect();
                    self.by_guti.extend(gutis.iter().map(|guti| (*guti, ue)));
                    self.names.insert(ue, ReplicaNames { gutis, upfs: replica.upfs.clone() });
                }
                if let Some(gone) = self.held.insert(checkpoint, self.max) {
                    self.forget_names(gone);
                }
                true
            }
            None => {
                self.forget(ue);
                false
            }
        }
    }

    fn forget(&mut self, ue: UeId) {
        self.held.remove(ue);
        self.forget_names(ue);
    }

    fn forget_names(&mut self, ue: UeId) {
        for guti in self.names.remove(&ue).into_iter().flat_map(|names| names.gutis) {
            if self.by_guti.get(&guti) == Some(&ue) {
                self.by_guti.remove(&guti);
            }
        }
    }

    /// The UE for which downlink data waits, as its lost AMF would forward it, and the token of that: a replica is forwarded under one relation.
    fn forward(&self, ue: UeId, smf: IpAddr) -> Option<([u8; 16], ForwardedUe)> {
        let mut context = self.held.get(ue).filter(|_| self.smf == Some(smf))?.context().ok()?;
        let mut token = [0; 16];
        token[..8].copy_from_slice(&context.clock.to_be_bytes());
        context.doubt_nas_counts();
        let state = Checkpoint::of(&context)?.into_flat();
        let upfs = self.names.get(&ue)?.upfs.clone();
        Some((token, ForwardedUe { ue: UeTransferState { state, upfs }, gnb: None }))
    }

    /// The UE that shows this 5G-GUTI, as its lost AMF would give it. Whether the request is its own, the asking UE context decides.
    fn promote(&self, asker: UeId, shown: &UeProof) -> Option<(UeId, TransferredUe)> {
        let ue = *self.by_guti.get(&(shown.amf_id, shown.tmsi))?;
        let mut context = self.held.get(ue)?.context().ok()?;
        context.doubt_nas_counts();
        let state = Checkpoint::of(&context)?.into_flat();
        Some((ue, TransferredUe { asker, state, upfs: self.names.get(&ue)?.upfs.clone() }))
    }
}

/// The UE's state in a message, if it carries one.
fn state_of(body: &mut N14Body) -> Option<&mut Flat> {
    match body {
        N14Body::CreateUeContext(context) => Some(&mut context.state),
        N14Body::UeContextTransferred(transferred) => Some(&mut transferred.state),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_control::UeContext;
    use whimbrel_control::amf::TransferredUe;

    use super::*;

    const PEER: PeerAmfId = PeerAmfId(0);

    fn ue(slot: u32) -> UeId {
        UeId { slot, generation: 1 }
    }

    fn checkpoint(slot: u32, clock: u64) -> Checkpoint {
        let mut context = UeContext::new(ue(slot));
        context.clock = clock;
        context.amf.tmsi = Some(Tmsi(slot));
        context.amf.registered = true;
        context.amf.radio.capability = Some([slot as u8; 200].as_slice().into());
        Checkpoint::of(&context).unwrap()
    }

    /// A message with a state.
    fn transferred(slot: u32, clock: u64) -> Flat {
        let state = checkpoint(slot, clock).into_flat();
        let transferred = TransferredUe { asker: ue(99), state, upfs: Vec::new() };
        let relation = Relation { source: ue(slot), token: [5; 16] };
        N14 { relation, body: N14Body::UeContextTransferred(transferred.into()) }.to_flat()
    }

    fn with(max: usize) -> PeerReplicas {
        PeerReplicas::new([(PEER, AmfId::new(2, 1, 1).expect("within its bits"), max)], Vec::new())
    }

    fn both(max: usize) -> (PeerReplicas, PeerReplicas) {
        (with(max), with(max))
    }

    /// A UE of `from` has a checkpoint of that clock, or none any more, of which `to` learns; answers go back.
    fn replicate(from: &mut PeerReplicas, to: &mut PeerReplicas, slot: u32, clock: Option<u64>) {
        let mut out = Vec::new();
        from.has_checkpoint(ue(slot), clock.map(|clock| checkpoint(slot, clock)), &mut out);
        for (_, message) in out {
            if let PeerMessageOutcome::Answer(answer) = to.receive(PEER, message.octets()) {
                assert_eq!(from.receive(PEER, answer.octets()), PeerMessageOutcome::Taken);
            }
        }
    }

    /// The request about a UE with this 5G-TMSI of the peer, which no living AMF has.
    fn shown(tmsi: u32) -> Flat {
        request(tmsi, true)
    }

    fn request(tmsi: u32, by_replica: bool) -> Flat {
        let amf_id = AmfId::new(2, 1, 1).expect("within its bits");
        let shown = UeProof { amf_id, tmsi: Tmsi(tmsi), nas: vec![0x7e], by_replica };
        N14 { relation: Relation { source: ue(99), token: [6; 16] }, body: N14Body::TransferUeContext(shown) }
            .to_flat()
    }

    #[test] // TS 23.501 §5.21.2.3
    fn a_replica_answers_in_place_of_a_lost_peer_and_doubts_nas_counts() {
        let (mut source, mut target) = both(8);
        replicate(&mut source, &mut target, 1, Some(7));
        let answer = target.answer_in_place_of(PEER, &shown(1)).expect("it is a request");
        let N14 { relation, body } = N14::from_octets(answer.octets()).unwrap();
        let N14Body::UeContextTransferred(transferred) = body else { panic!("it is here") };
        assert_eq!((relation.source, relation.token, transferred.asker), (ue(1), [6; 16], ue(99)));
        let context = Checkpoint::from_octets(transferred.state.octets()).unwrap().context().unwrap();
        assert!(context.amf.has_unknown_nas_counts());
        // Then it says that the peer is gone; of a UE that the peer has really given, only the peer can.
        let registered = |relation| {
            N14 { relation, body: N14Body::Registered { smf: [127, 0, 0, 1].into(), sessions: vec![] } }
                .to_flat()
        };
        let gone = target.answer_in_place_of(PEER, &registered(relation)).expect("it was promoted");
        assert!(matches!(
            N14::from_octets(gone.octets()).unwrap().body,
            N14Body::Completed(TransferCompletion::Gone)
        ));
        let other = Relation { token: [9; 16], ..relation };
        assert!(target.answer_in_place_of(PEER, &registered(other)).is_none());
        assert_eq!(target.counters().promoted, 1);
    }

    #[test] // TS 29.244 §5.22.3
    fn a_replica_forwards_a_ue_of_a_lost_peer_for_which_downlink_data_waits() {
        let (mut source, mut target) = both(8);
        let smf = [127, 0, 0, 1].into();
        target.connected(PEER, smf);
        replicate(&mut source, &mut target, 1, Some(7));
        let waits = |slot, smf| {
            let relation = Relation { source: ue(slot), token: [0; 16] };
            N14 { relation, body: N14Body::DownlinkDataWaits { smf } }.to_flat()
        };
        assert!(target.answer_in_place_of(PEER, &waits(2, smf)).is_none(), "no replica of that UE is here");
        assert!(
            target.answer_in_place_of(PEER, &waits(1, [127, 0, 0, 2].into())).is_none(),
            "another SMF's UE"
        );
        let answers = [(), ()].map(|()| target.answer_in_place_of(PEER, &waits(1, smf)).expect("it is held"));
        let [first, again] = answers.map(|answer| N14::from_octets(answer.octets()).unwrap());
        assert_eq!(first.relation, again.relation, "the CTA takes it once");
        let N14Body::ForwardUeContext(forwarded) = first.body else { panic!("it is forwarded") };
        let context = Checkpoint::from_octets(forwarded.ue.state.octets()).unwrap().context().unwrap();
        assert!(context.amf.has_unknown_nas_counts() && forwarded.gnb.is_none());
    }

    #[test] // another AMF of the set may have the UE, as it was: that is asked first
    fn a_replica_does_not_answer_while_living_amfs_are_asked() {
        let (mut source, mut target) = both(8);
        replicate(&mut source, &mut target, 1, Some(7));
        let answer = target.answer_in_place_of(PEER, &request(1, false)).expect("it is a request");
        let body = N14::from_octets(answer.octets()).unwrap().body;
        assert!(matches!(body, N14Body::UeContextNotTransferred(_)));
        assert_eq!(target.counters().promoted, 0);
    }

    #[test] // its context stays at the source for three seconds
    fn a_ue_that_has_gone_to_another_amf_has_no_replica_any_more() {
        let (mut source, mut target) = both(8);
        replicate(&mut source, &mut target, 1, Some(7));
        let mut context = checkpoint(1, 8).context().unwrap();
        context.amf.registered = false;
        let mut out = Vec::new();
        source.has_checkpoint(ue(1), Checkpoint::of(&context), &mut out);
        let [(_, gone)] = out.try_into().expect("one message");
        assert_eq!(target.receive(PEER, gone.octets()), PeerMessageOutcome::Taken);
        assert_eq!(target.held(), 0);
    }

    #[test]
    fn a_lost_peer_without_a_replica_of_the_ue_has_not_transferred_it() {
        let (mut source, mut target) = both(8);
        replicate(&mut source, &mut target, 1, Some(7));
        replicate(&mut source, &mut target, 1, None); // the UE is gone
        for tmsi in [1, 2] {
            let answer = target.answer_in_place_of(PEER, &shown(tmsi)).expect("it is a request");
            let body = N14::from_octets(answer.octets()).unwrap().body;
            assert!(matches!(body, N14Body::UeContextNotTransferred(asker) if asker == ue(99)));
        }
        assert_eq!((target.held(), target.counters().promoted), (0, 0));
    }

    #[test] // Neutrino §4.3: the clock travels in place of the state, and the target has the same message in the end
    fn a_message_is_completed_from_the_replica() {
        let (mut source, mut target) = both(8);
        replicate(&mut source, &mut target, 1, Some(7));
        let whole = transferred(1, 9);
        let offer = source.send(PEER, whole.clone());
        assert!(offer.octets().len() < whole.octets().len());
        assert_eq!(target.receive(PEER, offer.octets()), PeerMessageOutcome::Completed(whole));
        assert_eq!((source.counters().offered, target.counters().completed), (1, 1));
    }

    #[test]
    fn a_stale_replica_is_refused_and_the_state_is_sent() {
        let (mut source, mut target) = both(8);
        replicate(&mut source, &mut target, 1, Some(7));
        source.has_checkpoint(ue(1), Some(checkpoint(1, 8)), &mut Vec::new()); // it is lost on its way
        let whole = transferred(1, 9);
        let offer = source.send(PEER, whole.clone());
        let PeerMessageOutcome::Answer(requested) = target.receive(PEER, offer.octets()) else {
            panic!("it is stale")
        };
        assert_eq!(source.receive(PEER, requested.octets()), PeerMessageOutcome::Answer(whole.clone()));
        assert_eq!(target.receive(PEER, whole.octets()), PeerMessageOutcome::Input);
        // Asked again, the source has nothing more to say; the next message goes whole.
        assert_eq!(source.receive(PEER, requested.octets()), PeerMessageOutcome::Taken);
        assert_eq!(source.send(PEER, whole.clone()), whole);
    }

    #[test] // the next checkpoint goes whole, and is a base again
    fn a_peer_that_lost_its_replicas_gets_them_again() {
        let (mut source, mut target) = both(8);
        replicate(&mut source, &mut target, 1, Some(7));
        target = with(8);
        replicate(&mut source, &mut target, 1, Some(8));
        assert_eq!(target.held(), 0, "what has changed is no checkpoint");
        replicate(&mut source, &mut target, 1, Some(9));
        assert_eq!(target.held(), 1);
        source.connected(PEER, [127, 0, 0, 1].into());
        assert_eq!(
            source.send(PEER, transferred(1, 10)),
            transferred(1, 10),
            "a peer that has connected again has nothing"
        );
    }

    #[test]
    fn each_side_holds_no_more_ues_than_configured() {
        let (mut source, mut target) = both(2);
        (1..=3).for_each(|slot| replicate(&mut source, &mut target, slot, Some(7)));
        assert_eq!(target.held(), 2);
        assert_eq!(source.send(PEER, transferred(1, 9)), transferred(1, 9), "the oldest gave way at both");
        replicate(&mut source, &mut target, 3, None);
        assert_eq!(target.held(), 1, "a UE that is gone is held no longer");
        // A peer that keeps to no bound.
        let (mut other, _) = both(100);
        (10..50).for_each(|slot| replicate(&mut other, &mut target, slot, Some(1)));
        assert_eq!(target.held(), 2);
    }

    #[test] // nothing is exchanged: messages pass as they are, and a peer's replicas are dropped
    fn without_a_number_nothing_is_sent_or_held() {
        let (mut source, mut target) = (with(8), with(0));
        assert!(source.is_used() && !target.is_used());
        replicate(&mut source, &mut target, 1, Some(7));
        assert_eq!(target.held(), 0);
        let whole = transferred(1, 9);
        assert_eq!(target.send(PEER, whole.clone()), whole);
        let offer = source.send(PEER, whole.clone());
        let PeerMessageOutcome::Answer(requested) = target.receive(PEER, offer.octets()) else {
            panic!("it has no replica")
        };
        assert_eq!(source.receive(PEER, requested.octets()), PeerMessageOutcome::Answer(whole));
    }

    #[test] // a replica of one UE under the name of another, and octets of nothing
    fn a_forged_replica_is_not_held() {
        let (_, mut target) = both(8);
        let forged = |body| N14 { relation: Relation { source: ue(2), token: [0; 16] }, body }.to_flat();
        let replica = forged(N14Body::Replica(
            UeTransferState { state: checkpoint(1, 7).into_flat(), upfs: Vec::new() }.into(),
        ));
        assert!(matches!(target.receive(PEER, replica.octets()), PeerMessageOutcome::Answer(_)));
        assert_eq!(target.held(), 0);
        assert_eq!(target.receive(PEER, b"nothing"), PeerMessageOutcome::Input, "the CTA refuses it");
        let unknown = PeerAmfId(9);
        assert_eq!(target.receive(unknown, forged(N14Body::ReplicaGone).octets()), PeerMessageOutcome::Taken);
    }
}
