//! Associations with SMFs: set-up, update, release, heartbeats (TS 29.244 §6.2.2, §6.2.6 to §6.2.8); what their restart means
//! (TS 23.527 §4.2, §4.3.1).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{
    AlternativeSmfIpAddress, AnnouncedPool, AnnouncedPools, AssociationSetupResponseFlags, Cause,
    CpFunctionFeatures, NodeId, RecoveryTimeStamp, RemoteGtpuPeer, UpFunctionFeatures,
    UserPlaneIpResourceInformation,
};
use whimbrel_pfcp::msg::{
    AssociationReleaseRequest, AssociationReleaseResponse, AssociationSetupRequest, AssociationSetupResponse,
    AssociationUpdateRequest, AssociationUpdateResponse, HeartbeatRequest,
};

use whimbrel_pfcp::{SEQUENCE_MAX, message_type};

use super::kept::StoredAssociation;
use super::load::LastReported;
use super::pending_set_up::SetUp;
use super::replies::ReplyKey;
use super::requests::PATIENCE;
use super::{Outbox, UpfC, is_request};
use crate::config::DataNetwork;
use crate::event::{AssociationEnd, Event};
use crate::exchange::UserPlaneChange;
use crate::limits::ASSOCIATIONS_MAX;
use crate::session_id::SessionId;

/// Features of this UP function, besides the allocation of F-TEIDs (FTUP).
const FEATURES: UpFunctionFeatures = UpFunctionFeatures::EMPU
    .with(UpFunctionFeatures::PDIU)
    .with(UpFunctionFeatures::UEIP)
    .with(UpFunctionFeatures::SSET)
    .with(UpFunctionFeatures::FRRT)
    .with(UpFunctionFeatures::MNOP)
    .with(UpFunctionFeatures::BUNDL)
    .with(UpFunctionFeatures::DDND)
    .with(UpFunctionFeatures::PFDM)
    .with(UpFunctionFeatures::PFDE);

/// Within this time an idle UE comes for its periodic registration (T3512 is 54 minutes unless the AMF sets another value, TS 24.501 §10.2).
const UES_HAVE_COME_AFTER: Duration = Duration::from_secs(3600);

/// The association of an SMF.
pub(super) struct Association {
    /// Names the association in its sessions.
    pub(super) id: u32,
    /// Where its messages come from.
    pub(super) peer: SocketAddr,
    /// Where else they may come from, when another SMF of its set goes on (TS 29.244 §5.22.2).
    alternatives: Vec<IpAddr>,
    /// The SMF set of its SMF: others of it may go on with its sessions (TS 29.244 §5.22.3).
    pub(super) smf_set: Option<Box<str>>,
    /// Where they came from before, and when that ended.
    former: Option<(IpAddr, Instant)>,
    /// The sequence number of the last one that it has asked.
    newest: Option<u32>,
    recovery: RecoveryTimeStamp,
    /// Since when it has answered no heartbeat, and nothing else has come.
    silent: Option<Instant>,
    /// When the last message came from it.
    last_heard: Instant,
    /// While it has left a report unanswered and has sent nothing since.
    silence: Option<ReportSilence>,
    next_heartbeat: Option<Instant>,
    /// The HEARTBEAT REQUEST that asks it whether it has restarted.
    restart_asked: Option<u32>,
    /// Since when its address has answered with another Recovery Time Stamp, without setting the association up again. The SMF has restarted
    /// and will, or it has moved and another node has its address.
    abandoned: Option<Instant>,
    /// What it does with load and overload reports.
    pub(super) features: CpFunctionFeatures,
    pub(super) reported: LastReported,
}

impl Association {
    /// True if it has left a heartbeat request or a report unanswered and has sent nothing since.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.is_some() || self.silence.is_some()
    }
}

/// An SMF that has left a report unanswered and has sent nothing since. It gets heartbeat requests alone until it speaks.
#[derive(Default)]
pub(super) struct ReportSilence {
    /// Reports that were not kept for it.
    pub(super) reports_lost: u64,
}

/// Addresses of an SMF's set that are kept.
const ALTERNATIVES_MAX: usize = 16;
/// For so long what was under way from the SMF that had the association before may come: more than a round trip, and less than an SMF that
/// restarts needs to send it again. TS 29.244 §5.22.2 does not cover this, and the Recovery Time Stamp, which a set shares, does not show it.
/// Where the set counts its requests together, as ours does, a new one of it is known at once.
const RELEASE_GRACE: Duration = Duration::from_millis(200);

/// Whether a request was numbered after another one; numbers have 24 bits (TS 29.244 §7.2.2.1).
fn is_after(sequence: u32, other: u32) -> bool {
    (1..=SEQUENCE_MAX / 2).contains(&(sequence.wrapping_sub(other) & SEQUENCE_MAX))
}

/// Where else an SMF may speak from, that speaks from here.
pub(super) fn addresses(reported: &[AlternativeSmfIpAddress], here: IpAddr) -> Vec<IpAddr> {
    let each = |a: &AlternativeSmfIpAddress| {
        let RemoteGtpuPeer { ipv4, ipv6 } = a.0;
        ipv4.map(IpAddr::V4).into_iter().chain(ipv6.map(IpAddr::V6))
    };
    reported.iter().flat_map(each).filter(|at| *at != here).take(ALTERNATIVES_MAX).collect()
}

/// All of them, by node.
#[derive(Default)]
pub(super) struct Associations {
    by_node: BTreeMap<NodeId, Association>,
    next_id: u32,
    /// Something has changed that a successor is to know.
    pub(super) touched: bool,
}

impl Associations {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeId, &Association)> {
        self.by_node.iter()
    }

    pub(super) fn get(&self, node: &NodeId) -> Option<&Association> {
        self.by_node.get(node)
    }

    /// What a successor is to know: the last number that was given, and the associations.
    pub(super) fn stored(&self) -> (u32, Vec<StoredAssociation>) {
        let stored = |(node, a): (&NodeId, &Association)| StoredAssociation {
            node: node.clone(),
            id: a.id,
            peer: a.peer,
            alternatives: a.alternatives.clone(),
            smf_set: a.smf_set.clone(),
            recovery: a.recovery,
            features: a.features,
        };
        (self.next_id, self.by_node.iter().map(stored).collect())
    }

    /// The other addresses of the SMF that speaks from this one.
    pub(super) fn others(&self, peer: SocketAddr) -> &[IpAddr] {
        self.by_node.values().find(|a| a.peer.ip() == peer.ip()).map_or(&[], |a| &a.alternatives)
    }

    /// Where the other SMFs of the set of an association's SMF are, as far as they answer.
    pub(super) fn others_of_set(&self, id: u32) -> impl Iterator<Item = SocketAddr> {
        let set = self.by_id(id).and_then(|a| a.smf_set.as_ref());
        let others = self.by_node.values().filter(move |a| a.id != id && a.smf_set.is_some());
        others.filter(move |a| a.smf_set.as_ref() == set && !a.is_silent()).map(|a| a.peer)
    }

    pub(super) fn by_id(&self, id: u32) -> Option<&Association> {
        self.by_node.values().find(|a| a.id == id)
    }

    pub(super) fn by_id_mut(&mut self, id: u32) -> Option<&mut Association> {
        self.by_node.values_mut().find(|a| a.id == id)
    }

    /// A report of an association has had no answer; it was first sent `since` then. The SMF is silent if it has sent nothing since: the silence.
    pub(super) fn note_unanswered(
        &mut self,
        now: Instant,
        association: u32,
        since: Instant,
        out: &mut Outbox,
    ) -> Option<&mut ReportSilence> {
        let (node, a) = self.by_node.iter_mut().find(|(_, a)| a.id == association)?;
        if a.silence.is_none() && a.last_heard <= since {
            a.silence = Some(ReportSilence::default());
            a.next_heartbeat = Some(now);
            out.events.push(Event::ReportsKept { node: node.clone(), peer: a.peer });
        }
        a.silence.as_mut()
    }

    /// The silence of the SMF of an association, while reports are kept for it.
    pub(super) fn silence_of(&mut self, association: u32) -> Option<&mut ReportSilence> {
        self.by_id_mut(association)?.silence.as_mut()
    }

    /// The associations of a peer. A request may come from any port; where several SMFs share an address, only the port distinguishes them.
    fn of_peer_mut(&mut self, peer: SocketAddr) -> impl Iterator<Item = (&NodeId, &mut Association)> {
        let here = self.by_node.values().filter(|a| a.peer.ip() == peer.ip()).count();
        let is_of = move |a: &Association| if here > 1 { a.peer == peer } else { a.peer.ip() == peer.ip() };
        self.by_node.iter_mut().filter(move |(_, a)| is_of(a))
    }

    pub(super) fn next_deadline(&self, path_failure: Duration) -> Option<Instant> {
        let deadlines =
            |a: &Association| a.next_heartbeat.into_iter().chain(self.given_up_at(a, path_failure));
        self.by_node.values().flat_map(deadlines).min()
    }

    /// When the sessions of an SMF that is silent are deleted. If another of its set answers, its UEs can go there with their sessions when they come.
    fn given_up_at(&self, a: &Association, path_failure: Duration) -> Option<Instant> {
        let shared = a.silent.is_some() && self.others_of_set(a.id).next().is_some();
        let patience = if shared { path_failure.max(UES_HAVE_COME_AFTER) } else { path_failure };
        a.silent.map(|since| since + patience)
    }
}

impl UpfC {
    /// Features of this UP function.
    pub(super) fn features(&self) -> UpFunctionFeatures {
        if self.config.smf_f_teids { FEATURES } else { FEATURES.with(UpFunctionFeatures::FTUP) }
    }

    /// From what SMFs allocate F-TEIDs, if they do (TS 29.244 §8.2.82 of release 15).
    pub(super) fn user_plane_ip_resources(&self) -> Vec<UserPlaneIpResourceInformation> {
        let c = &self.config;
        let resource = UserPlaneIpResourceInformation {
            ipv4: c.n3_ipv4,
            ipv6: c.n3_ipv6,
            ..UserPlaneIpResourceInformation::default()
        };
        c.smf_f_teids.then_some(resource).into_iter().collect()
    }

    pub(super) fn set_up_response(&self, cause: Cause, retained: Option<bool>) -> AssociationSetupResponse {
        AssociationSetupResponse {
            node_id: self.config.node_id.clone(),
            cause,
            recovery_time_stamp: self.recovery,
            up_function_features: cause.is_accepted().then(|| self.features()),
            cp_function_features: None,
            user_plane_ip_resource_information: self.user_plane_ip_resources(),
            announced_pools: cause.is_accepted().then(|| self.announced_pools()),
            pfcpasrsp_flags: retained.and_then(|r| r.then_some(AssociationSetupResponseFlags::PSREI)),
        }
    }

    /// The pools from which it gives UEs addresses.
    pub(super) fn announced_pools(&self) -> AnnouncedPools {
        let networks = || self.config.data_networks.iter();
        let ipv4 = networks().flat_map(DataNetwork::all_ipv4_pools).map(|p| (p.address.into(), p.prefix));
        let ipv6 = networks().flat_map(DataNetwork::all_ipv6_pools).map(|p| (p.address.into(), p.prefix));
        let pools = ipv4.chain(ipv6).map(|(address, length)| AnnouncedPool { address, length });
        AnnouncedPools(pools.collect())
    }

    /// TS 29.244 §6.2.6.2.2. An earlier association of the node is replaced; its sessions go with it unless the SMF asks to keep them.
    ///
    /// Deviation: a request that would do so while the SMF of that association lives waits until that SMF is asked ([`Self::ask_holder`]). One
    /// that comes from its address and port with its Recovery Time Stamp keeps the sessions, for that SMF has lost none.
    pub(super) fn set_up(
        &mut self,
        now: Instant,
        key: ReplyKey,
        m: AssociationSetupRequest,
        out: &mut Outbox,
    ) {
        let set_up = SetUp::of(key, m);
        let Some(a) = self.associations.by_node.get(&set_up.node) else {
            if self.associations.by_node.len() >= ASSOCIATIONS_MAX {
                let response = self.set_up_response(Cause::NoResourcesAvailable, None);
                return self.answer(now, key, None, &response.into(), out);
            }
            return self.grant(now, set_up, false, out);
        };
        let is_holder = a.peer == key.peer;
        let retains = set_up.retains || (is_holder && a.recovery == set_up.recovery);
        if a.silent.is_some() || (is_holder && (retains || self.sessions.len() == 0)) {
            return self.grant(now, set_up, retains, out);
        }
        // An SMF that has restarted sets its associations up before this; so does no other node that has its former address.
        if a.abandoned.is_some_and(|since| now.since(since) >= PATIENCE) {
            return self.grant(now, set_up, false, out);
        }
        let holder = (a.peer, a.recovery);
        self.ask_holder(now, holder, set_up, out);
    }

    /// The association is set up; `retains`: the sessions of an earlier one stay.
    pub(super) fn grant(&mut self, now: Instant, set_up: SetUp, retains: bool, out: &mut Outbox) {
        // Other requests for this association that wait were judged by what it was before.
        for p in self.take_pending(|p| p.set_up.node == set_up.node) {
            self.refuse_set_up(now, p.set_up, Cause::RequestRejected, out);
        }
        let SetUp { key, node, recovery, features, alternatives, smf_set, .. } = set_up;
        let known = self.associations.by_node.get(&node).map(|a| a.id);
        let retain = known.is_some() && retains;
        let sessions_deleted = match known {
            Some(id) if !retain => self.drop_sessions(id, out),
            _ => 0,
        };
        let id = known.filter(|_| retain).unwrap_or_else(|| {
            self.associations.next_id = self.associations.next_id.wrapping_add(1);
            self.associations.next_id
        });
        self.end_silence(now, &node, retain, out);
        self.seat(now, key.peer, id, node.clone(), recovery, features);
        // What we asked for ourselves is there, also if another SMF of the set was asked.
        for at in alternatives.iter().chain([&key.peer.ip()]) {
            self.requests.forget(*at, message_type::ASSOCIATION_SETUP_REQUEST);
        }
        if let Some(a) = self.associations.by_node.get_mut(&node) {
            (a.alternatives, a.smf_set) = (alternatives, smf_set);
        }
        out.events.push(Event::AssociationSetUp { node, peer: key.peer, sessions_deleted });
        let response = self.set_up_response(Cause::RequestAccepted, Some(retain));
        self.answer(now, key, None, &response.into(), out);
    }

    /// The associations of a former process, the one before this `life`.
    pub(super) fn restore_associations(
        &mut self,
        now: Instant,
        next_id: u32,
        all: Vec<StoredAssociation>,
        life: u32,
    ) {
        self.associations.next_id = next_id;
        for a in all.into_iter().take(ASSOCIATIONS_MAX) {
            self.seat(now, a.peer, a.id, a.node.clone(), a.recovery, Some(a.features));
            if let Some(seated) = self.associations.by_node.get_mut(&a.node) {
                (seated.alternatives, seated.smf_set) = (a.alternatives, a.smf_set);
                seated.reported = LastReported::of_life(life);
            }
        }
    }

    fn seat(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        id: u32,
        node: NodeId,
        recovery: RecoveryTimeStamp,
        features: Option<CpFunctionFeatures>,
    ) {
        let association = Association {
            id,
            peer,
            alternatives: Vec::new(),
            smf_set: None,
            former: None,
            newest: None,
            recovery,
            silent: None,
            last_heard: now,
            silence: None,
            next_heartbeat: self.config.heartbeat_interval.map(|i| now + i),
            restart_asked: None,
            abandoned: None,
            features: features.unwrap_or_default(),
            reported: LastReported::default(),
        };
        self.associations.by_node.insert(node, association);
        self.associations.touched = true;
    }

    /// An association that an SMF has granted (TS 29.244 §6.2.6.3): it replaces an earlier one of that node.
    pub(super) fn join(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        node: NodeId,
        recovery: RecoveryTimeStamp,
        features: Option<CpFunctionFeatures>,
        out: &mut Outbox,
    ) {
        let known = self.associations.by_node.get(&node).map(|a| a.id);
        if known.is_none() && self.associations.by_node.len() >= ASSOCIATIONS_MAX {
            return;
        }
        let sessions_deleted = known.map_or(0, |id| self.drop_sessions(id, out));
        self.end_silence(now, &node, false, out);
        self.associations.next_id = self.associations.next_id.wrapping_add(1);
        self.seat(now, peer, self.associations.next_id, node.clone(), recovery, features);
        out.events.push(Event::AssociationSetUp { node, peer, sessions_deleted });
    }

    /// TS 29.244 §6.2.7.2.2: of an SMF's update, what it does with load information matters here.
    pub(super) fn update_association(
        &mut self,
        now: Instant,
        key: ReplyKey,
        m: AssociationUpdateRequest,
        out: &mut Outbox,
    ) {
        // Deviation: from the port of the association alone, though TS 29.244 §6.5.2 leaves the source port open. Another program of the SMF's
        // host could otherwise lead the SMF's association elsewhere.
        let of_peer = |a: &&mut Association| a.peer == key.peer;
        let association = self.associations.by_node.get_mut(&m.node_id).filter(of_peer);
        let known = association.is_some();
        if let Some(a) = association {
            a.features = m.cp_function_features.unwrap_or(a.features);
            if !m.alternative_smf_ip_addresses.is_empty() {
                a.alternatives = addresses(&m.alternative_smf_ip_addresses, key.peer.ip());
                // The association stands: the others of the set need not grant it any more, which would end its sessions.
                for at in &a.alternatives {
                    self.requests.forget(*at, message_type::ASSOCIATION_SETUP_REQUEST);
                }
            }
        }
        self.associations.touched |= known;
        let response = AssociationUpdateResponse {
            node_id: self.config.node_id.clone(),
            cause: if known { Cause::RequestAccepted } else { Cause::NoEstablishedPfcpAssociation },
            up_function_features: known.then(|| self.features()),
            cp_function_features: None,
        };
        self.answer(now, key, None, &response.into(), out);
    }

    /// TS 29.244 §6.2.8.2.2. The sessions of the association end with it.
    pub(super) fn release(
        &mut self,
        now: Instant,
        key: ReplyKey,
        m: AssociationReleaseRequest,
        out: &mut Outbox,
    ) {
        // Deviation: from the port of the association alone, as an update.
        let of_peer = self.associations.get(&m.node_id).is_some_and(|a| a.peer == key.peer);
        let known = if of_peer { self.associations.by_node.remove(&m.node_id) } else { None };
        let cause =
            if known.is_some() { Cause::RequestAccepted } else { Cause::NoEstablishedPfcpAssociation };
        if let Some(a) = known {
            self.associations.touched = true;
            let sessions_deleted = self.drop_sessions(a.id, out);
            out.events.push(Event::AssociationEnded {
                node: m.node_id,
                sessions_deleted,
                why: AssociationEnd::Released,
            });
        }
        let response = AssociationReleaseResponse { node_id: self.config.node_id.clone(), cause };
        self.answer(now, key, None, &response.into(), out);
    }

    /// A message came, so the peer is alive.
    pub(super) fn heard(&mut self, now: Instant, peer: SocketAddr, out: &mut Outbox) {
        let mut ended = Vec::new();
        for (node, a) in self.associations.of_peer_mut(peer) {
            if a.peer == peer {
                a.silent = None;
            }
            a.last_heard = now;
            if a.silence.is_some() {
                ended.push(node.clone());
            }
        }
        for node in ended {
            self.end_silence(now, &node, true, out);
        }
    }

    /// A report about a session of this association was answered, which may come from another address than the association.
    pub(super) fn report_answer_heard(&mut self, now: Instant, association: u32, out: &mut Outbox) {
        let found = self.associations.by_node.iter_mut().find(|(_, a)| a.id == association);
        let Some((node, a)) = found else { return };
        a.last_heard = now;
        if a.silence.is_some() {
            let node = node.clone();
            self.end_silence(now, &node, true, out);
        }
    }

    /// Reports are no longer kept for the SMF of this node: it gets those that were, or they are lost.
    fn end_silence(&mut self, now: Instant, node: &NodeId, repeats: bool, out: &mut Outbox) {
        let Some(a) = self.associations.by_node.get_mut(node) else { return };
        let (id, silence) = (a.id, a.silence.take());
        let (repeated, forgotten) = match repeats {
            true => (self.requests.repeat_kept(now, id, out), 0),
            false => (0, self.requests.forget_reports(id)),
        };
        if let Some(ReportSilence { reports_lost }) = silence {
            a.next_heartbeat = self.config.heartbeat_interval.map(|i| now + i);
            let lost = reports_lost + forgotten as u64;
            out.events.push(Event::ReportsNotKept { node: node.clone(), repeated, lost });
        }
    }

    /// This UPF ends, and the reports that it keeps for SMFs which are silent are lost: an event for each SMF.
    pub fn give_up_kept_reports(&self, out: &mut Outbox) {
        for (node, a) in self.associations.iter() {
            let Some(silence) = &a.silence else { continue };
            let lost = silence.reports_lost + self.requests.kept(a.id) as u64;
            out.events.push(Event::ReportsNotKept { node: node.clone(), repeated: 0, lost });
        }
    }

    /// A message came: another SMF of a set that speaks goes on for the one that is known (TS 29.244 §5.22.2). It gets the answers to
    /// what that one had asked, and at once what that one was asked and has not answered. Whether it is to be heard: what its predecessor
    /// had under way the present one says again, if it is not done.
    pub(super) fn spoken_to_by(&mut self, now: Instant, key: ReplyKey, out: &mut Outbox) -> bool {
        let asks = is_request(key.message_type) || key.message_type == message_type::HEARTBEAT_REQUEST;
        let (peer, asked) = (key.peer, asks.then_some(key.sequence));
        let of = |a: &Association| a.peer.ip() == peer.ip() || a.alternatives.contains(&peer.ip());
        for (node, a) in self.associations.by_node.iter_mut().filter(|(_, a)| of(a)) {
            let is_new = asked.is_some_and(|n| a.newest.is_none_or(|newest| is_after(n, newest)));
            let under_way = !is_new
                && a.former.is_some_and(|(at, left)| at == peer.ip() && now.since(left) < RELEASE_GRACE);
            if under_way {
                return false;
            }
            a.newest = asked.filter(|_| is_new).or(a.newest);
            if a.peer.ip() == peer.ip() {
                continue;
            }
            let former = std::mem::replace(&mut a.peer, peer);
            a.former = Some((former.ip(), now));
            a.alternatives.retain(|at| *at != peer.ip());
            a.alternatives.push(former.ip());
            a.silent = None;
            self.associations.touched = true;
            self.requests.forget(former.ip(), message_type::ASSOCIATION_SETUP_REQUEST); // it stands
            self.requests.redirect(former.ip(), peer.ip(), out);
            self.replies.redirect(former, peer);
            let waiting = self.waiting.values_mut().filter(|w| w.key.peer == former);
            waiting.for_each(|w| w.key.peer = peer);
            let pending = self.pending_set_ups.iter_mut().filter(|p| p.set_up.key.peer == former);
            pending.for_each(|p| p.set_up.key.peer = peer);
            out.events.push(Event::AssociationMoved { node: node.clone(), peer });
        }
        true
    }

    /// Where reports go that the SMF of an association wants at this address: its F-SEIDs name the one that made the session.
    pub(super) fn speaks_for(&self, association: u32, address: IpAddr) -> IpAddr {
        let moved = self.associations.by_id(association).filter(|a| a.alternatives.contains(&address));
        moved.map_or(address, |a| a.peer.ip())
    }

    /// The address of the SMF of this node answers as one that has not set the association up.
    pub(super) fn note_abandoned(&mut self, now: Instant, node: &NodeId) {
        if let Some(a) = self.associations.by_node.get_mut(node) {
            a.abandoned.get_or_insert(now);
        }
    }

    /// A HEARTBEAT REQUEST says that its sender has started later than is known. Its sessions would be of its former life, and anybody can send
    /// such a request in its name: it is asked, and its answer counts ([`Self::recovered`]).
    pub(super) fn restart_reported(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        at: RecoveryTimeStamp,
        out: &mut Outbox,
    ) {
        self.associations.of_peer_mut(peer).for_each(|(_, a)| a.silent = None);
        let older = self.associations.of_peer_mut(peer).find(|(_, a)| a.recovery < at);
        let Some((_, a)) = older else { return };
        if a.restart_asked.is_some_and(|sequence| self.requests.awaits(sequence)) {
            return;
        }
        let request = HeartbeatRequest { recovery_time_stamp: self.recovery }.into();
        a.restart_asked = self.requests.send(now, a.peer, &request, out);
    }

    /// A peer answers when it last started; if later than known, its sessions are of its former life (TS
    /// 23.527 §4.2).
    pub(super) fn recovered(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        at: RecoveryTimeStamp,
        out: &mut Outbox,
    ) {
        self.associations.of_peer_mut(peer).for_each(|(_, a)| a.silent = None);
        let older = self.associations.of_peer_mut(peer).find(|(_, a)| a.recovery < at);
        let Some((node, a)) = older else { return };
        a.recovery = at;
        a.abandoned = Some(now);
        let (node, id) = (node.clone(), a.id);
        self.associations.touched = true;
        let sessions_deleted = self.drop_sessions(id, out);
        out.events.push(Event::AssociationEnded { node, sessions_deleted, why: AssociationEnd::Restarted });
    }

    /// A heartbeat was not answered. Forwarding goes on: the SMF may be cut off, its UEs are not.
    /// `since`: when the heartbeat was first sent.
    pub(super) fn silent(&mut self, now: Instant, peer: SocketAddr, since: Instant, out: &mut Outbox) {
        let of_peer = |(_, a): &(&NodeId, &mut Association)| {
            a.peer == peer && a.silent.is_none() && a.last_heard <= since
        };
        for (node, a) in self.associations.by_node.iter_mut().filter(of_peer) {
            a.silent = Some(now);
            out.events.push(Event::AssociationSilent { node: node.clone() });
        }
    }

    /// SMFs that were silent for too long lose their association and sessions (TS 23.527 §4.4): nothing else would ever end
    /// those.
    pub(super) fn give_up_silent(&mut self, now: Instant, out: &mut Outbox) {
        let given_up_at = |a: &Association| self.associations.given_up_at(a, self.config.path_failure);
        let lost = self.associations.iter().filter(|(_, a)| given_up_at(a).is_some_and(|at| at <= now));
        let lost = lost.map(|(node, _)| node.clone());
        for node in lost.collect::<Vec<_>>() {
            self.end_silence(now, &node, false, out);
            let Some(a) = self.associations.by_node.remove(&node) else { continue };
            self.associations.touched = true;
            let sessions_deleted = self.drop_sessions(a.id, out);
            out.events.push(Event::AssociationEnded { node, sessions_deleted, why: AssociationEnd::Silent });
        }
    }

    pub(super) fn heartbeats(&mut self, now: Instant, out: &mut Outbox) {
        let request = HeartbeatRequest { recovery_time_stamp: self.recovery }.into();
        for a in self.associations.by_node.values_mut() {
            if a.next_heartbeat.is_some_and(|at| at <= now) {
                // Reports wait for one that is silent, so its return is to be seen soon.
                let interval =
                    if a.silence.is_some() { Some(PATIENCE) } else { self.config.heartbeat_interval };
                a.next_heartbeat = interval.map(|i| now + i);
                self.requests.send(now, a.peer, &request, out);
            }
        }
    }

    fn drop_sessions(&mut self, association: u32, out: &mut Outbox) -> usize {
        self.forget_applications(association);
        let all = self.sessions.of(association);
        all.iter().for_each(|id| self.drop_session(*id, out));
        all.len()
    }

    /// Ends a session without asking for its usage.
    pub(super) fn drop_session(&mut self, session: SessionId, out: &mut Outbox) {
        if self.sessions.remove(session).is_some() {
            out.changes.push(UserPlaneChange::Remove { session, token: None });
            out.events.push(Event::SessionDeleted { session });
        }
    }
}
