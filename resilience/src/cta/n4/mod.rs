//! The CTA's end of N4: the one PFCP entity that UPFs see, no matter which CPF runs a UE's procedures.
//!
//! It sets up the association (TS 29.244 §6.2.6.2.1, TS 23.502 §4.4.3.1), without which there is no session (TS 29.244 §6.2.1), supervises
//! it, assigns sequence numbers, repeats unanswered requests from the same address under the same number (TS 29.244 §6.4), and answers a
//! repeated report from memory. So a takeover between CPFs is invisible to a UPF. Requests of the UPF are in [`node`].

mod control;
mod node;
#[cfg(test)]
mod tests;
mod ue_addresses;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::config::UePool;
use whimbrel_control::{OutputId, UeId, UpfId, UpfState};
use whimbrel_ids::{Dnn, Instant, Seid};
use whimbrel_pfcp::ie::{
    AlternativeSmfIpAddress, AnnouncedPool, AnnouncedPools, AssociationSetupResponseFlags as SetupFlags,
    Cause, CpFunctionFeatures, RecoveryTimeStamp, SmfSetId, UpFunctionFeatures,
};
use whimbrel_pfcp::msg::{
    AssociationReleaseRequest, AssociationSetupRequest, AssociationUpdateRequest, HeartbeatRequest,
    SessionEstablishmentResponse, SessionReportResponse, SessionRetentionInformation,
};
use whimbrel_pfcp::{Frame, Message, SEQUENCE_MAX, message_type};

use super::UpfChange;
use control::Control;
use ue_addresses::{SessionAddresses, UeAddresses};

/// T1 of TS 29.244 §6.4: how long an answer may take. A UPF answers within milliseconds; a second is patient.
const T1: Duration = Duration::from_secs(1);
/// N1 of TS 29.244 §6.4: how often a request is sent in all.
const N1: u8 = 3;
/// Between heartbeats (TS 23.527 §4.2 leaves it to the operator).
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Between attempts to set up an association, and heartbeats on a path that failed.
const RETRY: Duration = Duration::from_secs(2);
/// Before an association is tried again with a UPF that asked for its release: it is under maintenance.
const RELEASED: Duration = Duration::from_secs(60);
/// How long the sessions of a UPF that does not answer are kept, so that they continue if only the path had failed (TS 23.527 §4.4 leaves
/// it to the operator): UEs have no user plane for so long before their sessions are released for reactivation.
const PATH_FAILURE: Duration = Duration::from_secs(30);
/// Requests with an unknown outcome: as many as a UPF that fails between two heartbeats can leave at a thousand sessions a second. Beyond
/// it the oldest are dropped.
const DOUBTFUL_MAX: usize = 8192;
/// Changes of one session that wait for an earlier one: more than a UE's procedures ask for at once.
const WAITING_MAX: usize = 16;
/// Reports whose answers are remembered: more than a UPF can have outstanding within its own T1.
const REPORTS_REMEMBERED: usize = 1024;
/// Features that a UPF needs: it allocates F-TEIDs and UE addresses (TS 29.244 §5.5, §5.21).
const NEEDED: UpFunctionFeatures = UpFunctionFeatures::FTUP.with(UpFunctionFeatures::UEIP);
/// The same for a UPF whose UE addresses the SMF allocates.
const NEEDED_WITH_POOLS: UpFunctionFeatures = UpFunctionFeatures::FTUP;
/// Our features: load and overload control information are used.
const FEATURES: CpFunctionFeatures = CpFunctionFeatures::LOAD.with(CpFunctionFeatures::OVRL);

/// What came over N4.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum N4Arrival {
    /// The answer to a session request; `None`: there was none in time.
    Answer { ue: UeId, to: OutputId, octets: Option<Vec<u8>> },
    /// A report on a session.
    Report { ue: UeId, psi: u8, octets: Vec<u8> },
    /// Downlink data of a session of another SMF of the set, which does not answer the UPF.
    ReportOfAnotherSmf { ue: UeId, smf: IpAddr },
    /// The UPF's state changed.
    Upf(UpfChange),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Purpose {
    Association,
    Heartbeat,
    Update,
    Release,
    Session { ue: UeId, to: OutputId },
}

#[derive(Debug, Serialize, Deserialize)]
struct PendingN4Request {
    purpose: Purpose,
    octets: Vec<u8>,
    sent: u8,
    deadline: Instant,
    /// The UE addresses that the request gives.
    addresses: Option<SessionAddresses>,
}

/// The association with a UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum N4Association {
    /// There is no association.
    Down,
    /// Established, with the UPF's recovery time stamp.
    Up(#[serde(with = "started")] RecoveryTimeStamp),
    /// Established, but the UPF does not answer; it counts as lost at that time.
    Silent(#[serde(with = "started")] RecoveryTimeStamp, Instant),
}

/// PFCP messages to send, by UPF.
pub(super) type OutgoingPfcp = Vec<(UpfId, Vec<u8>)>;

/// N4 with one UPF.
#[derive(Serialize, Deserialize)]
pub(super) struct N4 {
    upf: UpfId,
    node_id: IpAddr,
    #[serde(with = "started")]
    recovery: RecoveryTimeStamp,
    sequence: u32,
    link: N4Association,
    /// It has the needed features.
    fit: bool,
    /// It has asked for its release by that time (TS 29.244 §6.2.8.3).
    leaving: Option<Instant>,
    control: Control,
    /// The addresses of the SMF set (TS 29.244 §5.22.2), and whether the UPF has yet to get them.
    alternatives: Vec<IpAddr>,
    address_update_due: bool,
    /// The SMF set of this SMF.
    smf_set: Option<String>,
    /// When to try an association or a heartbeat next.
    next: Instant,
    pending: BTreeMap<u32, PendingN4Request>,
    /// Their deadlines, oldest first, since all wait equally long; answered ones are skipped.
    due: VecDeque<(Instant, u32)>,
    /// Requests that timed out while the association was established: whether the UPF has carried them out is unknown. They are repeated
    /// unchanged whenever the UPF answers, so that no orphaned session stays there.
    doubtful: BTreeMap<u32, PendingN4Request>,
    /// Sessions with a change under way, and the changes that wait for it: a repeated request must not undo a later one.
    changing: BTreeMap<Seid, VecDeque<(UeId, OutputId, Vec<u8>)>>,
    /// Answers to reports and to the UPF's association setup request, by the UPF's sequence number, newest last.
    answered: VecDeque<(u32, Vec<u8>)>,
    reports: VecDeque<(u32, UeId)>,
    addresses: UeAddresses,
    /// The networks from which its UEs get addresses: those that the SMF gives, or those that the UPF has announced.
    pools: Vec<(IpAddr, u8)>,
    /// It has restarted, and its sessions are given up unless it is connected by then.
    restored_by: Option<Instant>,
    /// Its recovery time stamp in the former run of this SMF, whose sessions it is asked to retain (TS 29.244 §6.2.6.2.1).
    #[serde(skip)]
    retains: Option<RecoveryTimeStamp>,
    /// The UPF has retained sessions unasked, and was asked again with a later stamp.
    #[serde(skip)]
    asked_again: bool,
}

/// The form of a recovery time stamp in snapshots.
mod started {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(at: &RecoveryTimeStamp, to: S) -> Result<S::Ok, S::Error> {
        at.0.serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<RecoveryTimeStamp, D::Error> {
        u32::deserialize(from).map(RecoveryTimeStamp)
    }
}

impl N4 {
    pub(super) fn new(upf: UpfId, node_id: IpAddr, pools: &[UePool], started: Instant) -> Self {
        Self {
            upf,
            node_id,
            recovery: RecoveryTimeStamp::at(started),
            // Not from one: a UPF remembers its answers from before our restart (TS 29.244 §6.4).
            sequence: (started.0 >> 10) as u32 & SEQUENCE_MAX,
            link: N4Association::Down,
            fit: false,
            leaving: None,
            control: Control::default(),
            next: started,
            pending: BTreeMap::new(),
            due: VecDeque::new(),
            alternatives: Vec::new(),
            address_update_due: false,
            smf_set: None,
            doubtful: BTreeMap::new(),
            changing: BTreeMap::new(),
            answered: VecDeque::new(),
            reports: VecDeque::new(),
            addresses: UeAddresses::new(pools),
            pools: pools.iter().flat_map(networks_of).collect(),
            restored_by: None,
            retains: None,
            asked_again: false,
        }
    }

    /// Of an SMF of this set.
    #[must_use]
    pub(super) fn of_smf_set(self, smf_set: Option<String>) -> Self {
        Self { smf_set, ..self }
    }

    /// When this SMF started, and the UPF's recovery time stamp, if it is connected: the next run needs both to go on with the sessions.
    pub(super) fn recovery_time_stamps(&self) -> (u32, Option<u32>) {
        let upf = match self.link {
            N4Association::Up(at) | N4Association::Silent(at, _) => Some(at.0),
            N4Association::Down => None,
        };
        (self.recovery.0, upf)
    }

    /// Goes on with the sessions of the former run, which had these [`Self::recovery_time_stamps`]: no context of the SMF was lost, so it has not restarted
    /// in the sense of TS 23.527 §4.2.
    pub(super) fn continue_from(&mut self, (own, upf): (u32, Option<u32>)) {
        self.recovery = RecoveryTimeStamp(own);
        self.retains = upf.map(RecoveryTimeStamp);
    }

    /// Whether the association is established and the UPF answers.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, N4Association::Up(_))
    }

    /// The state by which UPFs for new sessions are selected.
    pub(super) fn state(&self) -> UpfState {
        UpfState {
            usable: self.is_up() && self.fit && self.leaving.is_none(),
            load: self.control.load(),
            reduction: self.control.reduction(),
        }
    }

    /// A UPF of ours announces its pools.
    fn take_pools(&mut self, announced: Option<AnnouncedPools>) {
        if self.addresses.is_empty() {
            let pools = announced.unwrap_or_default().0;
            self.pools = pools.into_iter().map(|p| (p.address, p.length)).collect();
        }
    }

    /// A network from which both UPFs give UEs addresses, while both have an association.
    pub(super) fn shared_pool(&self, other: &Self) -> Option<AnnouncedPool> {
        let associated = self.link != N4Association::Down && other.link != N4Association::Down;
        let pools = |n4: &Self| {
            n4.pools.clone().into_iter().map(|(address, length)| AnnouncedPool { address, length })
        };
        pools(self).find(|pool| associated && pools(other).any(|p| p.overlaps(pool)))
    }

    /// When the UPF wants to be left, if it does.
    pub(super) fn leaving(&self) -> Option<Instant> {
        self.leaving
    }

    /// Sends a UE's request, or keeps it while another change of the session is under way. Without an association it is answered at once:
    /// there is none. So is what a CPF says that is no PFCP message.
    pub(super) fn request(
        &mut self,
        now: Instant,
        ue: UeId,
        to: OutputId,
        octets: Vec<u8>,
        out: &mut OutgoingPfcp,
    ) -> Option<N4Arrival> {
        if self.link == N4Association::Down || Frame::parse(&octets).is_err() {
            if let Some(seid) = deleted_session(&octets) {
                self.addresses.deleted(seid);
            }
            return Some(N4Arrival::Answer { ue, to, octets: None });
        }
        if !self.addresses.is_empty() && octets.get(1) == Some(&message_type::SESSION_ESTABLISHMENT_REQUEST) {
            return self.establish(now, ue, to, octets, out);
        }
        if let Some(seid) = changed_session(&octets) {
            match self.changing.get_mut(&seid) {
                Some(waiting) if waiting.len() == WAITING_MAX => {
                    return Some(N4Arrival::Answer { ue, to, octets: None });
                }
                Some(waiting) => {
                    waiting.push_back((ue, to, octets));
                    return None;
                }
                None => self.changing.insert(seid, VecDeque::new()),
            };
        }
        self.send(now, Purpose::Session { ue, to }, octets, out);
        None
    }

    /// Sends a request for a session whose UE addresses may be the SMF's to allocate.
    fn establish(
        &mut self,
        now: Instant,
        ue: UeId,
        to: OutputId,
        octets: Vec<u8>,
        out: &mut OutgoingPfcp,
    ) -> Option<N4Arrival> {
        let (mut octets, mut addresses) = (octets, None);
        let request = Frame::parse(&octets).ok().and_then(|frame| Message::parse(&frame).ok());
        if let Some(Message::SessionEstablishmentRequest(mut request)) = request {
            match self.addresses.choose(&mut request) {
                Ok(chosen) => addresses = chosen,
                Err(_) => {
                    let cause = Cause::AllDynamicAddressesAreOccupied;
                    let refusal = SessionEstablishmentResponse::new(self.node_id.into(), cause);
                    let octets = Message::from(refusal).to_octets(Some(request.cp_f_seid.seid), 0);
                    return Some(N4Arrival::Answer { ue, to, octets: Some(octets) });
                }
            }
            if addresses.is_some() {
                octets = Message::from(*request).to_octets(Some(Seid(0)), 0);
            }
        }
        self.send(now, Purpose::Session { ue, to }, octets, out);
        if let Some(pending) = self.pending.get_mut(&self.sequence) {
            pending.addresses = addresses;
        }
        None
    }

    /// A session of the former run has these addresses.
    pub(super) fn restore_addresses(
        &mut self,
        up_seid: Seid,
        dnn: &Dnn,
        ipv4: Option<Ipv4Addr>,
        ipv6: Option<Ipv6Addr>,
    ) {
        self.addresses.restore(up_seid, dnn, ipv4, ipv6);
    }

    /// A session request was answered or given up: the next change of its session goes.
    fn settled(&mut self, now: Instant, request: &[u8], out: &mut OutgoingPfcp) {
        let Some(seid) = changed_session(request) else { return };
        match self.changing.get_mut(&seid).and_then(VecDeque::pop_front) {
            Some((ue, to, octets)) => self.send(now, Purpose::Session { ue, to }, octets, out),
            None => drop(self.changing.remove(&seid)),
        }
    }

    /// Ends the association, and with it its sessions (TS 29.244 §6.2.8.2).
    pub(super) fn release(&mut self, now: Instant, out: &mut OutgoingPfcp, arrived: &mut Vec<N4Arrival>) {
        if self.link == N4Association::Down {
            return;
        }
        self.forget_sessions(now);
        self.end(UpfChange::Released, arrived);
        self.next = Instant::FAR_FUTURE; // until this one is answered or given up
        let request = AssociationReleaseRequest { node_id: self.node_id.into() };
        self.send(now, Purpose::Release, Message::from(request).to_octets(None, 0), out);
    }

    fn send(&mut self, now: Instant, purpose: Purpose, mut octets: Vec<u8>, out: &mut OutgoingPfcp) {
        self.sequence = if self.sequence == SEQUENCE_MAX { 1 } else { self.sequence + 1 };
        stamp(&mut octets, self.sequence);
        out.push((self.upf, octets.clone()));
        let request = PendingN4Request { purpose, octets, sent: 1, deadline: now + T1, addresses: None };
        self.pending.insert(self.sequence, request);
        self.due.push_back((now + T1, self.sequence));
    }

    /// A UE answers a report: stored, in case the UPF repeats it.
    pub(super) fn answer_report(&mut self, ue: UeId, octets: Vec<u8>, out: &mut OutgoingPfcp) {
        let Ok(frame) = Frame::parse(&octets) else { return };
        let sequence = frame.header.sequence;
        self.reports.retain(|r| *r != (sequence, ue));
        if self.answered.len() == REPORTS_REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back((sequence, octets.clone()));
        out.push((self.upf, octets));
    }

    /// Takes a datagram of the UPF.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        octets: &[u8],
        out: &mut OutgoingPfcp,
        arrived: &mut Vec<N4Arrival>,
    ) {
        let Ok(frame) = Frame::parse(octets) else { return };
        match frame.header.message_type {
            message_type::HEARTBEAT_REQUEST
            | message_type::NODE_REPORT_REQUEST
            | message_type::ASSOCIATION_SETUP_REQUEST
            | message_type::ASSOCIATION_UPDATE_REQUEST
            | message_type::ASSOCIATION_RELEASE_REQUEST => self.asked(now, &frame, out, arrived),
            message_type::SESSION_REPORT_REQUEST => {
                self.control.take(now, &frame);
                self.report(frame, octets, out, arrived);
            }
            message_type::SESSION_ESTABLISHMENT_RESPONSE
            | message_type::SESSION_MODIFICATION_RESPONSE
            | message_type::SESSION_DELETION_RESPONSE => {
                self.control.take(now, &frame);
                self.response(now, frame, octets, out, arrived);
            }
            message_type::HEARTBEAT_RESPONSE
            | message_type::ASSOCIATION_SETUP_RESPONSE
            | message_type::ASSOCIATION_UPDATE_RESPONSE
            | message_type::ASSOCIATION_RELEASE_RESPONSE => self.response(now, frame, octets, out, arrived),
            _ => {}
        }
    }

    fn report(
        &mut self,
        frame: Frame<'_>,
        octets: &[u8],
        out: &mut OutgoingPfcp,
        arrived: &mut Vec<N4Arrival>,
    ) {
        let sequence = frame.header.sequence;
        if let Some((_, answer)) = self.answered.iter().find(|(s, _)| *s == sequence) {
            out.push((self.upf, answer.clone()));
            return;
        }
        let Some((ue, psi)) = frame.header.seid.and_then(UeId::from_seid) else {
            if let Some(arrival) = self.of_another_smf(&frame) {
                return arrived.push(arrival);
            }
            let response = SessionReportResponse::new(Cause::SessionContextNotFound);
            out.push((self.upf, Message::from(response).to_octets(Some(Seid(0)), sequence)));
            return;
        };
        if self.reports.contains(&(sequence, ue)) {
            return; // The UE is at it already.
        }
        if self.reports.len() == REPORTS_REMEMBERED {
            self.reports.pop_front();
        }
        self.reports.push_back((sequence, ue));
        arrived.push(N4Arrival::Report { ue, psi, octets: octets.to_vec() });
    }

    /// TS 29.244 §5.22.3: it names the session by the CP F-SEID that another SMF of the set has given. It has no answer: the UPF reports again to
    /// the SMF that takes the session over.
    fn of_another_smf(&self, frame: &Frame<'_>) -> Option<N4Arrival> {
        self.smf_set.as_ref()?;
        let Ok(Message::SessionReportRequest(report)) = Message::parse(frame) else { return None };
        let old = report.old_cp_f_seid.filter(|_| report.downlink_data_report.is_some())?;
        let (ue, _) = UeId::from_seid(old.seid)?;
        let smf = old.ipv4.map(IpAddr::from).or(old.ipv6.map(IpAddr::from))?;
        Some(N4Arrival::ReportOfAnotherSmf { ue, smf })
    }

    fn response(
        &mut self,
        now: Instant,
        frame: Frame<'_>,
        octets: &[u8],
        out: &mut OutgoingPfcp,
        arrived: &mut Vec<N4Arrival>,
    ) {
        let sequence = frame.header.sequence;
        let of_this_association = self.pending.contains_key(&sequence);
        let doubtful = || self.doubtful.remove(&sequence);
        let Some(pending) = self.pending.remove(&sequence).or_else(doubtful) else { return };
        self.skip_answered();
        match pending.purpose {
            Purpose::Session { ue, to } => {
                let with_addresses =
                    pending.addresses.and_then(|a| self.addresses.answered(a, &pending.octets, octets));
                if let Some(seid) = deleted_session(&pending.octets) {
                    self.addresses.deleted(seid);
                }
                let octets = Some(with_addresses.unwrap_or_else(|| octets.to_vec()));
                arrived.push(N4Arrival::Answer { ue, to, octets });
                self.settled(now, &pending.octets, out);
                // It has restarted since the last heartbeat, or never got our answer to its own setup request, which no heartbeat shows.
                if of_this_association && self.is_up() && knows_no_association(&frame) {
                    self.lost(now, arrived);
                }
            }
            Purpose::Release => self.next = now + RELEASED,
            Purpose::Update => self.next = now,
            Purpose::Association => match Message::parse(&frame) {
                Ok(Message::AssociationSetupResponse(m)) if m.cause.is_accepted() => {
                    let retained = m.pfcpasrsp_flags.is_some_and(|f| f.has(SetupFlags::PSREI));
                    // The SMF before this one started in the same second, so that the UPF took this one for it. Asked once only: of a UPF that
                    // says so in any case there would never be an association.
                    if retained && self.retains.is_none() && !std::mem::replace(&mut self.asked_again, true) {
                        self.forget_sessions(now);
                        self.next = now;
                        return;
                    }
                    self.asked_again = false;
                    self.judge_retained(m.recovery_time_stamp, retained, arrived);
                    self.take_pools(m.announced_pools);
                    self.associated(now, m.recovery_time_stamp, m.up_function_features, arrived);
                    if self.address_update_due {
                        self.next = now; // the request left before the addresses were known
                    }
                }
                _ => self.next = now + RETRY,
            },
            Purpose::Heartbeat => match Message::parse(&frame) {
                Ok(Message::HeartbeatResponse(m)) => {
                    self.next = now + HEARTBEAT;
                    self.heartbeat_answered(now, m.recovery_time_stamp, out, arrived);
                }
                _ => self.next = now + RETRY,
            },
        }
    }

    /// A UPF that was asked to retain sessions has answered. One that has restarted, or has not retained them, gets them again.
    fn judge_retained(&mut self, peer: RecoveryTimeStamp, retained: bool, arrived: &mut Vec<N4Arrival>) {
        if self.retains.take().is_some_and(|before| before != peer || !retained) {
            arrived.push(N4Arrival::Upf(UpfChange::Restarted));
        }
    }

    /// The association is established.
    fn associated(
        &mut self,
        now: Instant,
        peer: RecoveryTimeStamp,
        features: Option<UpFunctionFeatures>,
        arrived: &mut Vec<N4Arrival>,
    ) {
        self.link = N4Association::Up(peer);
        self.fit = features.is_some_and(|f| f.has(self.needed()));
        (self.leaving, self.restored_by) = (None, None);
        self.control = Control::default();
        self.next = now + HEARTBEAT;
        arrived.push(N4Arrival::Upf(if self.fit { UpfChange::Up } else { UpfChange::Unfit }));
    }

    fn needed(&self) -> UpFunctionFeatures {
        if self.addresses.is_empty() { NEEDED } else { NEEDED_WITH_POOLS }
    }

    /// The UPF answers a heartbeat: the same one, perhaps after a silence, or a restarted one.
    fn heartbeat_answered(
        &mut self,
        now: Instant,
        peer: RecoveryTimeStamp,
        out: &mut OutgoingPfcp,
        arrived: &mut Vec<N4Arrival>,
    ) {
        match self.link {
            N4Association::Up(before) if before == peer => {}
            // TS 23.527 §4.4: only the path had failed, and the sessions go on.
            N4Association::Silent(before, _) if before == peer => {
                self.link = N4Association::Up(peer);
                self.announce_again(now);
                arrived.push(N4Arrival::Upf(UpfChange::Back));
            }
            // Another recovery time stamp: the UPF restarted and has no sessions (TS 23.527 §4.3.2).
            N4Association::Up(_) | N4Association::Silent(..) => self.restarted(now, arrived),
            N4Association::Down => {}
        }
        out.extend(self.doubtful.values().map(|p| (self.upf, p.octets.clone())));
    }

    /// S-BFD found that the path has failed, sooner than a heartbeat could. The next heartbeat leaves at once, unless one is under way: if it is answered, the
    /// UPF is back.
    pub(super) fn path_failed(&mut self, now: Instant, arrived: &mut Vec<N4Arrival>) {
        if let N4Association::Up(peer) = self.link {
            self.link = N4Association::Silent(peer, now + PATH_FAILURE);
            self.next = if self.next == Instant::FAR_FUTURE { self.next } else { now };
            arrived.push(N4Arrival::Upf(UpfChange::Silent));
        }
    }

    /// TS 23.527 §4.4: the UPF does not answer. Its sessions are kept for a while.
    fn silent(&mut self, now: Instant, arrived: &mut Vec<N4Arrival>) {
        match self.link {
            N4Association::Up(peer) => {
                self.link = N4Association::Silent(peer, now + PATH_FAILURE);
                self.next = now + RETRY;
                arrived.push(N4Arrival::Upf(UpfChange::Silent));
            }
            N4Association::Silent(_, until) if now < until => self.next = now + RETRY,
            N4Association::Silent(..) => self.lost(now, arrived),
            N4Association::Down => {}
        }
    }

    /// The UPF has lost its sessions, and has no association: it gets both again.
    fn restarted(&mut self, now: Instant, arrived: &mut Vec<N4Arrival>) {
        self.end(UpfChange::Restarted, arrived);
        self.restored_by = Some(now + PATH_FAILURE);
        self.next = now;
    }

    /// The association is lost, and with it its sessions.
    fn lost(&mut self, now: Instant, arrived: &mut Vec<N4Arrival>) {
        self.forget_sessions(now);
        self.end(UpfChange::Lost, arrived);
        self.next = now;
    }

    /// The SMF gives up the sessions of this UPF. It starts again as after a restart, with a later Recovery
    /// Time Stamp: a UPF that still has the sessions ends them then (TS 23.527 §4.2), and with the former
    /// stamp it would keep them.
    fn forget_sessions(&mut self, now: Instant) {
        self.addresses.clear();
        let later = RecoveryTimeStamp(self.recovery.0.saturating_add(1));
        self.recovery = RecoveryTimeStamp::at(now).max(later);
    }

    fn end(&mut self, how: UpfChange, arrived: &mut Vec<N4Arrival>) {
        self.link = N4Association::Down;
        (self.leaving, self.restored_by) = (None, None);
        // A restarted UPF restarts its sequence numbers.
        self.answered.clear();
        self.reports.clear();
        arrived.push(N4Arrival::Upf(how));
        self.due.clear();
        // With the association, its sessions are gone (TS 29.244 §6.2.6.2.2).
        let doubtful = std::mem::take(&mut self.doubtful).into_values().filter_map(|p| p.addresses);
        doubtful.for_each(|addresses| self.addresses.give_back(addresses));
        for (_, pending) in std::mem::take(&mut self.pending) {
            if let Some(addresses) = pending.addresses {
                self.addresses.give_back(addresses);
            }
            if let Purpose::Session { ue, to } = pending.purpose {
                arrived.push(N4Arrival::Answer { ue, to, octets: None });
            }
        }
        let waiting = std::mem::take(&mut self.changing).into_values().flatten();
        arrived.extend(waiting.map(|(ue, to, _)| N4Arrival::Answer { ue, to, octets: None }));
    }

    /// Repeats or gives up requests that are due, and supervises the association.
    pub(super) fn tick(&mut self, now: Instant, out: &mut OutgoingPfcp, arrived: &mut Vec<N4Arrival>) {
        self.control.tick(now);
        while let Some(&(at, sequence)) = self.due.front()
            && at <= now
        {
            self.due.pop_front();
            let Some(pending) = self.pending.get_mut(&sequence).filter(|p| p.deadline == at) else {
                continue;
            };
            if pending.sent < N1 {
                pending.sent += 1;
                pending.deadline = now + T1;
                self.due.push_back((pending.deadline, sequence));
                out.push((self.upf, pending.octets.clone()));
                continue;
            }
            let Some(pending) = self.pending.remove(&sequence) else { continue };
            match pending.purpose {
                Purpose::Session { ue, to } => {
                    arrived.push(N4Arrival::Answer { ue, to, octets: None });
                    self.settled(now, &pending.octets, out);
                    self.store_doubtful(sequence, pending);
                }
                Purpose::Heartbeat => self.silent(now, arrived),
                Purpose::Update => self.next = now, // a heartbeat finds out
                Purpose::Association => {
                    self.next = now + RETRY;
                    if self.restored_by.is_none() {
                        arrived.push(N4Arrival::Upf(UpfChange::Unanswered));
                    }
                }
                Purpose::Release => self.next = now + RELEASED,
            }
        }
        if self.restored_by.is_some_and(|by| by <= now) {
            self.lost(now, arrived);
        }
        if self.next <= now {
            self.keep_alive(now, out);
        }
    }

    fn keep_alive(&mut self, now: Instant, out: &mut OutgoingPfcp) {
        self.next = Instant::FAR_FUTURE; // until this one is answered or given up
        let (purpose, message) = if self.link == N4Association::Down {
            self.address_update_due = false;
            let request = AssociationSetupRequest {
                node_id: self.node_id.into(),
                recovery_time_stamp: self.recovery,
                up_function_features: None,
                cp_function_features: Some(self.features()),
                session_retention_information: self.retains.map(|_| SessionRetentionInformation::default()),
                user_plane_ip_resource_information: Vec::new(),
                alternative_smf_ip_addresses: self.alternatives(),
                announced_pools: None,
                smf_set_id: self.smf_set.as_deref().map(|set| SmfSetId(set.into())),
            };
            (Purpose::Association, Message::from(request))
        } else if self.is_up() && std::mem::take(&mut self.address_update_due) {
            let update = AssociationUpdateRequest {
                node_id: self.node_id.into(),
                up_function_features: None,
                cp_function_features: Some(self.features()),
                pfcp_association_release_request: None,
                graceful_release_period: None,
                user_plane_ip_resource_information: Vec::new(),
                alternative_smf_ip_addresses: self.alternatives(),
            };
            (Purpose::Update, update.into())
        } else {
            (Purpose::Heartbeat, HeartbeatRequest { recovery_time_stamp: self.recovery }.into())
        };
        self.send(now, purpose, message.to_octets(None, 0), out);
    }

    /// Stores a request that has timed out, if it may have created or left a session. A modification is not stored: it would undo later
    /// ones.
    fn store_doubtful(&mut self, sequence: u32, pending: PendingN4Request) {
        let kind = pending.octets.get(1).copied();
        let makes_or_ends =
            [message_type::SESSION_ESTABLISHMENT_REQUEST, message_type::SESSION_DELETION_REQUEST];
        if !kind.is_some_and(|k| makes_or_ends.contains(&k)) {
            return;
        }
        if self.doubtful.len() == DOUBTFUL_MAX
            && let Some((_, oldest)) = self.doubtful.pop_first()
            && let Some(addresses) = oldest.addresses
        {
            self.addresses.give_back(addresses);
        }
        self.doubtful.insert(sequence, pending);
    }

    /// Skips deadlines of answered requests.
    fn skip_answered(&mut self) {
        while let Some(&(at, sequence)) = self.due.front()
            && self.pending.get(&sequence).is_none_or(|p| p.deadline != at)
        {
            self.due.pop_front();
        }
    }

    /// Sends the UPF the addresses of the SMF set, as with a CTA replica. This CTA's own is among them: a replica that takes over sends the
    /// same from its own.
    pub(super) fn announce(&mut self, now: Instant, alternatives: Vec<IpAddr>) {
        self.alternatives = alternatives;
        self.announce_again(now);
    }

    fn announce_again(&mut self, now: Instant) {
        self.address_update_due = !self.alternatives.is_empty();
        if self.address_update_due && self.is_up() && self.next != Instant::FAR_FUTURE {
            self.next = now;
        }
    }

    /// With alternative addresses it is a member of an SMF set.
    fn features(&self) -> CpFunctionFeatures {
        match self.alternatives.is_empty() {
            true => FEATURES,
            false => FEATURES.with(CpFunctionFeatures::SSET),
        }
    }

    /// The node ID's address stays listed after a takeover, since F-SEIDs of sessions name it.
    fn alternatives(&self) -> Vec<AlternativeSmfIpAddress> {
        let own = Some(self.node_id)
            .filter(|own| !self.alternatives.is_empty() && !self.alternatives.contains(own));
        self.alternatives.iter().copied().chain(own).map(Into::into).collect()
    }

    /// When [`N4::tick`] has something to do.
    pub(super) fn next_deadline(&self) -> Instant {
        let due = self.due.front().map_or(Instant::FAR_FUTURE, |&(at, _)| at);
        let restored_by = self.restored_by.unwrap_or(Instant::FAR_FUTURE);
        due.min(self.next).min(self.control.next_deadline()).min(restored_by)
    }
}

/// The networks of a configured pool.
fn networks_of(pool: &UePool) -> impl Iterator<Item = (IpAddr, u8)> + use<> {
    let ipv4 = pool.ipv4.map(|(first, length)| (first.into(), length));
    ipv4.into_iter().chain(pool.ipv6.map(|(first, length)| (first.into(), length)))
}

/// Whether an answer has cause "No established PFCP Association". Such an answer is short.
fn knows_no_association(frame: &Frame<'_>) -> bool {
    const REFUSAL_OCTETS_MAX: usize = 48;
    frame.body.len() <= REFUSAL_OCTETS_MAX
        && matches!(
            Message::parse(frame),
            Ok(Message::SessionEstablishmentResponse(m)) if m.cause == Cause::NoEstablishedPfcpAssociation
        )
}

/// The session that a request modifies. Establishment and deletion are no changes: the former has no SEID yet, the latter undoes nothing.
fn changed_session(request: &[u8]) -> Option<Seid> {
    let is_change = request.get(1) == Some(&message_type::SESSION_MODIFICATION_REQUEST);
    let seid = request.get(4..12).filter(|_| is_change)?;
    Some(Seid(u64::from_be_bytes(seid.try_into().ok()?)))
}

/// The session, by its UP SEID, that a request deletes.
fn deleted_session(request: &[u8]) -> Option<Seid> {
    let is_deletion = request.get(1) == Some(&message_type::SESSION_DELETION_REQUEST);
    let seid = request.get(4..12).filter(|_| is_deletion)?;
    Some(Seid(u64::from_be_bytes(seid.try_into().ok()?)))
}

/// Writes the sequence number into an encoded message (TS 29.244 §7.2.2.1).
fn stamp(octets: &mut [u8], sequence: u32) {
    let has_seid = octets.first().is_some_and(|f| f & 1 != 0);
    let at = if has_seid { 12 } else { 4 };
    if let Some(place) = octets.get_mut(at..at + 3) {
        place.copy_from_slice(&sequence.to_be_bytes()[1..]);
    }
}
