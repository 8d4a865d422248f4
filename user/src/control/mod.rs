//! UPF-C: the PFCP endpoint of the UP function (TS 29.244 §5, §6).

mod admission;
mod applications;
mod arrival;
mod association;
mod deletion;
mod establishment;
mod kept;
mod load;
mod modification;
mod node;
mod pending_set_up;
mod replica;
mod replies;
mod report;
mod requests;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use whimbrel_ids::{DecodeErrorKind, Instant, Seid, Teid};
use whimbrel_pfcp::ie::{ApplyAction, Cause, DestinationInterface, NodeId, OffendingIe, RecoveryTimeStamp};
use whimbrel_pfcp::msg::{
    AssociationReleaseResponse, AssociationUpdateResponse, HeartbeatResponse, PfdManagementResponse,
    SessionDeletionResponse, SessionEstablishmentResponse, SessionModificationResponse,
    VersionNotSupportedResponse,
};
use whimbrel_pfcp::{Error, Frame, HeaderError, Message, message_type};

use crate::config::{Config, ConfigError, DnIndex};
use crate::event::Event;
use crate::exchange::{UsageToken, UserPlaneChange, UserPlaneReport};
use crate::limits::WAITING_MAX;
use crate::rules::{Far, KnownApplications};
use crate::session_id::{SessionId, mix};
use association::Associations;
use kept::Keeper;
pub use kept::RestoredSessions;
use pending_set_up::PendingSetUp;
pub use replica::UpfCReplica;
use replies::{Replies, ReplyKey};
use requests::Requests;
use sessions::Sessions;

/// How long UPF-U may take to answer with figures before an SMF is answered without: well below its T1.
const FIGURES_WITHIN: Duration = Duration::from_secs(1);

/// Messages in one datagram at most; TS 29.244 §6.4A sets no bound, a datagram of 64 KiB holds fewer of any
/// use.
const BUNDLE_MAX: usize = 64;

/// What UPF-C is given.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A datagram from an SMF.
    Pfcp {
        /// Address and port that sent it.
        peer: SocketAddr,
        /// Payload of the datagram.
        octets: &'a [u8],
    },
    /// Something that UPF-U has seen.
    Report(UserPlaneReport),
    /// A deadline has passed.
    Tick,
}

/// What UPF-C answers.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// Datagrams, with their destination.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Changes for UPF-U, in order.
    pub changes: Vec<UserPlaneChange>,
    /// Events for the log and the metrics.
    pub events: Vec<Event>,
}

/// A response that waits for figures of UPF-U.
struct WaitingResponse {
    key: ReplyKey,
    cp_seid: Seid,
    response: Message,
    deadline: Instant,
    /// Places of sessions whose records are written with the response.
    touched: Vec<u32>,
}

/// The PFCP endpoint of the UP function.
pub struct UpfC {
    config: Config,
    recovery: RecoveryTimeStamp,
    associations: Associations,
    sessions: Sessions,
    replies: Replies,
    requests: Requests,
    /// Requests for associations that other SMFs have.
    pending_set_ups: Vec<PendingSetUp>,
    waiting: BTreeMap<UsageToken, WaitingResponse>,
    next_token: u32,
    /// Sessions that stand for a predicted UE alone, and until when.
    provisional: BTreeSet<(Instant, SessionId)>,
    applications: KnownApplications,
    /// Sessions whose rules name applications with new definitions.
    outdated: BTreeSet<SessionId>,
    /// Definitions of applications by SMFs have changed since they were written last.
    applications_touched: bool,
    /// The state for a successor, where one is kept.
    keeper: Option<Keeper>,
}

impl UpfC {
    /// A UP function that starts at `now`. Errors: what [`Config::check`] finds.
    pub fn new(config: Config, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        // The key of F-TEIDs may be that of an earlier run, whose TEIDs and sequence numbers are not to be repeated at once.
        let run = mix(config.seed ^ mix(now.0));
        Ok(Self {
            recovery: RecoveryTimeStamp::at(now),
            associations: Associations::default(),
            sessions: Sessions::new(&config, run),
            replies: Replies::default(),
            requests: Requests::new(run),
            pending_set_ups: Vec::new(),
            waiting: BTreeMap::new(),
            next_token: 0,
            provisional: BTreeSet::new(),
            applications: KnownApplications::new(&config.applications.known),
            outdated: BTreeSet::new(),
            applications_touched: false,
            keeper: None,
            config,
        })
    }

    /// What it was configured with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many sessions stand.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// The sessions: our name of each, and the SMF's.
    pub fn sessions(&self) -> impl Iterator<Item = (Seid, Seid)> {
        self.sessions.iter().map(|(id, s)| (id.seid(), s.cp_f_seid.seid))
    }

    /// The gNBs' tunnels that packets of a session are forwarded into, as its rules stand: address and TEID of each, in order.
    pub fn access_tunnels(&self, session: Seid) -> Vec<(IpAddr, Teid)> {
        let found = self.sessions.iter().find(|(id, _)| id.seid() == session);
        let fars = found.iter().flat_map(|(_, s)| s.rules.fars.iter());
        let forwards =
            |f: &&Far| f.destination == DestinationInterface::Access && f.action.has(ApplyAction::FORW);
        let mut tunnels: Vec<_> =
            fars.filter(forwards).filter_map(|f| f.tunnel).map(|t| (t.peer.ip(), t.teid)).collect();
        tunnels.sort_unstable();
        tunnels.dedup();
        tunnels
    }

    /// SMFs with an association.
    pub fn associations(&self) -> impl Iterator<Item = (&NodeId, SocketAddr)> {
        self.associations.iter().map(|(node, a)| (node, a.peer))
    }

    /// SMFs with an association that answer, as far as is known.
    pub fn answering_associations(&self) -> impl Iterator<Item = (&NodeId, SocketAddr)> {
        self.associations.iter().filter(|(_, a)| !a.is_silent()).map(|(node, a)| (node, a.peer))
    }

    /// Free IPv4 addresses and IPv6 prefixes of a data network.
    pub fn free_addresses(&self, dn: DnIndex) -> Option<(u64, u64)> {
        self.sessions.pools.get(usize::from(dn.0)).map(|p| (p.ipv4.free(), p.ipv6.free()))
    }

    /// Takes an input to its end.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        self.sessions.free_retired();
        match input {
            Input::Pfcp { peer, octets } => self.datagram(now, peer, octets, out),
            Input::Report(report) => self.report(now, report, out),
            Input::Tick => self.tick(now, out),
        }
        self.keep_changes(None, out);
    }

    /// When [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        // Tokens are given in order of time, so the first one waits the longest.
        let figures = self.waiting.values().next().map(|w| w.deadline);
        let provisional = self.provisional.first().map(|(at, _)| *at);
        let paths = self.associations.next_deadline(self.config.path_failure);
        let outdated = self.outdated.first().map(|_| Instant::ZERO);
        [self.requests.next_deadline(), paths, figures, provisional, outdated].into_iter().flatten().min()
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox) {
        while let Some((&token, _)) = self.waiting.first_key_value().filter(|(_, w)| w.deadline <= now) {
            self.figures(now, token, Vec::new(), out);
        }
        self.heartbeats(now, out);
        self.retransmit(now, out);
        self.give_up_silent(now, out);
        self.replies.forget_old(now);
        self.give_up_provisional(now, out);
        self.renew_some(out);
    }

    fn datagram(&mut self, now: Instant, peer: SocketAddr, octets: &[u8], out: &mut Outbox) {
        let mut rest = octets;
        for _ in 0..BUNDLE_MAX {
            match Frame::parse(rest) {
                Ok(frame) => {
                    self.message(now, peer, &frame, out);
                    let header = frame.header;
                    let key = ReplyKey { peer, sequence: header.sequence, message_type: header.message_type };
                    self.keep_changes(Some(key).filter(|_| is_request(header.message_type)), out);
                    if !frame.header.follow_on || frame.rest.is_empty() {
                        return;
                    }
                    rest = frame.rest;
                }
                Err(HeaderError::Version { sequence }) => {
                    let m = Message::from(VersionNotSupportedResponse {});
                    out.datagrams.push((peer, m.to_octets(None, sequence)));
                    return out.events.push(Event::BadMessage { peer, message_type: 0, cause: None });
                }
                Err(HeaderError::Malformed(_)) => {
                    return out.events.push(Event::BadMessage { peer, message_type: 0, cause: None });
                }
            }
        }
    }

    fn message(&mut self, now: Instant, peer: SocketAddr, frame: &Frame<'_>, out: &mut Outbox) {
        let header = frame.header;
        let key = ReplyKey { peer, sequence: header.sequence, message_type: header.message_type };
        if !self.spoken_to_by(now, key, out) {
            return;
        }
        if is_request(header.message_type) {
            match self.replies.find(&key) {
                Some(Some(octets)) => return out.datagrams.push((peer, octets.to_vec())),
                Some(None) => return, // its answer is under way
                None => {}
            }
        }
        let message = match Message::parse(frame) {
            Ok(m) => m,
            Err(e) => return self.not_understood(now, key, &e, out),
        };
        self.heard(now, peer, out);
        let session = header.seid.and_then(SessionId::from_seid);
        match message {
            Message::SessionEstablishmentRequest(m) => self.establish(now, key, *m, out),
            Message::SessionModificationRequest(m) => self.modify(now, key, session, *m, out),
            Message::HeartbeatRequest(m) => {
                let response = HeartbeatResponse { recovery_time_stamp: self.recovery };
                // Not kept for retransmission: answering twice costs nothing.
                out.datagrams.push((peer, Message::from(response).to_octets(None, header.sequence)));
                self.restart_reported(now, peer, m.recovery_time_stamp, out);
            }
            Message::HeartbeatResponse(m) => {
                if self.requests.heartbeat_answered(peer, header.sequence) {
                    self.recovered(now, peer, m.recovery_time_stamp, out);
                    self.holder_answered(now, header.sequence, m.recovery_time_stamp, out);
                }
            }
            Message::PfdManagementRequest(m) => self.manage_pfds(now, key, &m, out),
            Message::AssociationSetupRequest(m) => self.set_up(now, key, *m, out),
            Message::AssociationUpdateRequest(m) => self.update_association(now, key, *m, out),
            Message::AssociationReleaseRequest(m) => self.release(now, key, *m, out),
            Message::SessionDeletionRequest(_) => self.delete(now, key, session, out),
            Message::NodeReportResponse(_) => {
                let request = message_type::NODE_REPORT_REQUEST;
                if self.requests.answered(peer, header.sequence, request).is_none() {
                    out.events.push(Event::BadMessage {
                        peer,
                        message_type: header.message_type,
                        cause: None,
                    });
                }
            }
            Message::SessionReportResponse(m) => self.report_answered(now, key, &m, out),
            Message::AssociationSetupResponse(m) => self.associated(now, peer, header.sequence, *m, out),
            Message::AssociationUpdateResponse(_) => self.update_answered(peer, header.sequence, out),
            // TS 29.244 §7.6.5: answers to requests that a UP function does not send, and requests that only it sends.
            Message::PfdManagementResponse(_)
            | Message::AssociationReleaseResponse(_)
            | Message::VersionNotSupportedResponse(_)
            | Message::NodeReportRequest(_)
            | Message::SessionEstablishmentResponse(_)
            | Message::SessionModificationResponse(_)
            | Message::SessionDeletionResponse(_)
            | Message::SessionReportRequest(_) => {
                out.events.push(Event::BadMessage { peer, message_type: header.message_type, cause: None });
            }
        }
    }

    /// Sends the answer to a request and keeps it for the request's repetitions.
    fn answer(
        &mut self,
        now: Instant,
        key: ReplyKey,
        seid: Option<Seid>,
        response: &Message,
        out: &mut Outbox,
    ) {
        let octets = response.to_octets(seid, key.sequence);
        self.replies.keep(now, key, Some(octets.clone().into()));
        out.datagrams.push((key.peer, octets));
    }

    /// Lets a response wait for figures of UPF-U. The token that they will name; `None`, with the response sent
    /// already, where too many wait.
    fn wait(
        &mut self,
        now: Instant,
        key: ReplyKey,
        cp_seid: Seid,
        response: Message,
        out: &mut Outbox,
    ) -> Option<UsageToken> {
        if self.waiting.len() >= WAITING_MAX {
            self.answer(now, key, Some(cp_seid), &response, out);
            return None;
        }
        let token = UsageToken(self.next_token);
        self.next_token = self.next_token.wrapping_add(1);
        self.replies.keep(now, key, None);
        let (deadline, touched) = (now + FIGURES_WITHIN, self.sessions.take_touched());
        self.waiting.insert(token, WaitingResponse { key, cp_seid, response, deadline, touched });
        Some(token)
    }

    /// Answers a request whose body could not be read (TS 29.244 §7.6).
    fn not_understood(&mut self, now: Instant, key: ReplyKey, e: &Error, out: &mut Outbox) {
        let cause = e.cause();
        let offending_ie = (e.offending_ie != 0).then_some(OffendingIe(e.offending_ie));
        let node_id = self.config.node_id.clone();
        let unknown = e.decode.kind == DecodeErrorKind::Unknown && e.offending_ie == 0;
        let response: Option<Message> = match key.message_type {
            _ if unknown => None, // TS 29.244 §7.6.4: discarded
            message_type::PFD_MANAGEMENT_REQUEST => {
                Some(PfdManagementResponse { cause, offending_ie, node_id: Some(node_id) }.into())
            }
            message_type::ASSOCIATION_SETUP_REQUEST => Some(self.set_up_response(cause, None).into()),
            message_type::ASSOCIATION_UPDATE_REQUEST => Some(
                AssociationUpdateResponse {
                    node_id,
                    cause,
                    up_function_features: None,
                    cp_function_features: None,
                }
                .into(),
            ),
            message_type::ASSOCIATION_RELEASE_REQUEST => {
                Some(AssociationReleaseResponse { node_id, cause }.into())
            }
            message_type::SESSION_ESTABLISHMENT_REQUEST => Some(
                SessionEstablishmentResponse {
                    offending_ie,
                    ..SessionEstablishmentResponse::new(node_id, cause)
                }
                .into(),
            ),
            message_type::SESSION_MODIFICATION_REQUEST => Some(
                SessionModificationResponse { offending_ie, ..SessionModificationResponse::new(cause) }
                    .into(),
            ),
            message_type::SESSION_DELETION_REQUEST => {
                Some(SessionDeletionResponse { offending_ie, ..SessionDeletionResponse::new(cause) }.into())
            }
            _ => None,
        };
        let answered = response.as_ref().map(|_| cause);
        out.events.push(Event::BadMessage {
            peer: key.peer,
            message_type: key.message_type,
            cause: answered,
        });
        if let Some(response) = response {
            // The sender's SEID could not be read: zero (TS 29.244 §7.2.2.4.2).
            let seid = (key.message_type >= message_type::SESSION_ESTABLISHMENT_REQUEST).then_some(Seid(0));
            self.answer(now, key, seid, &response, out);
        }
    }
}

/// Whether it is a request that an SMF sends, so that its repetitions get the same answer.
const fn is_request(message_type: u8) -> bool {
    matches!(
        message_type,
        message_type::PFD_MANAGEMENT_REQUEST
            | message_type::ASSOCIATION_SETUP_REQUEST
            | message_type::ASSOCIATION_UPDATE_REQUEST
            | message_type::ASSOCIATION_RELEASE_REQUEST
            | message_type::SESSION_ESTABLISHMENT_REQUEST
            | message_type::SESSION_MODIFICATION_REQUEST
            | message_type::SESSION_DELETION_REQUEST
    )
}

/// The session that a message names does not exist.
const NO_SESSION: Cause = Cause::SessionContextNotFound;
