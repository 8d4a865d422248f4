//! PDU sessions and the NAS transport that carries them: TS 24.501 §5.4.5, §6.

use core::time::Duration;

use whimbrel_ids::{Dnn, Instant, PduSessionId, Qfi, SNssai};
use whimbrel_nas::ie::{
    Container, ExtendedPco, IntegrityDataRate, IntegrityMaxDataRate, Ipcp, MaxPacketFilters,
    PayloadContainer, PayloadContainerType, PcoDirection, PduAddressKind, PduSessionSet, PduSessionType,
    QosFlowDescriptions, QosRules, RequestType, SmCapability, SmCause, container_id,
};
use whimbrel_nas::mm::{DlNasTransport, UlNasTransport};
use whimbrel_nas::sm::{
    Body, EstablishmentAccept, EstablishmentRequest, Message, ModificationCommandReject,
    ModificationComplete, ModificationRequest, Pti, ReleaseComplete, ReleaseRequest, SmStatus,
};

use super::{
    Event, MeasuredProcedure, MmState, Output, Profile, QosRequest, Reason, SessionInfo, SessionRequest, Ue,
    Violation, event, not_possible, violation,
};
use crate::outbox::Outbox;

/// T3580, T3582: await the answers to establishment and release (TS 24.501 §10.3, table 10.3.1).
const T3580_T3582: Duration = Duration::from_secs(16);
/// On the fifth expiry the procedure is aborted (§6.4.1.6 a, §6.4.3.5 a).
const SENDS_MAX: u8 = 5;
/// Supported packet filters: the minimum of the IE.
const PACKET_FILTERS: u16 = 17;

/// The 5GSM state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SessionState {
    /// PDU SESSION ACTIVE PENDING.
    Establishing,
    /// PDU SESSION ACTIVE.
    Active,
    /// PDU SESSION MODIFICATION PENDING.
    Modifying,
    /// PDU SESSION INACTIVE PENDING.
    Releasing,
}

/// A session of the UE.
#[derive(Clone, Debug)]
pub(super) struct UeSession {
    pub(super) id: PduSessionId,
    pub(super) user_plane: bool,
    state: SessionState,
    pti: Pti,
    request: SessionRequest,
    emergency: bool,
    /// The session that it replaces (SSC mode 3).
    former: Option<PduSessionId>,
    /// When its request was sent first.
    since: Instant,
    /// When T3580 or T3582 expires.
    until: Instant,
    sends: u8,
    /// The pending request.
    wish: Option<Box<QosRequest>>,
    info: Option<Box<SessionInfo>>,
}

impl UeSession {
    pub(super) fn info(&self) -> Option<&SessionInfo> {
        self.info.as_deref()
    }

    pub(super) fn deadline(&self) -> Instant {
        self.until
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.state == SessionState::Active
    }
}

impl Ue {
    /// PDU SESSION ESTABLISHMENT REQUEST (§6.4.1.2).
    pub(super) fn establish_session(
        &mut self,
        now: Instant,
        request: SessionRequest,
        out: &mut Outbox<Output>,
    ) {
        self.begin_session(now, request, false, None, out);
    }

    /// The same for an emergency: the network chooses DNN and slice (§6.4.1.2).
    pub(super) fn establish_emergency_session(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4v6 };
        self.begin_session(now, request, true, None, out);
    }

    fn begin_session(
        &mut self,
        now: Instant,
        request: SessionRequest,
        emergency: bool,
        former: Option<PduSessionId>,
        out: &mut Outbox<Output>,
    ) {
        let free = |id: &PduSessionId| self.sessions.iter().all(|s| s.id != *id);
        let Some(id) = (1..=15).filter_map(PduSessionId::new).find(free) else {
            return not_possible(now, MeasuredProcedure::SessionEstablishment, out);
        };
        let pti = self.new_pti();
        self.sessions.push(UeSession {
            id,
            user_plane: false,
            state: SessionState::Establishing,
            pti,
            request,
            emergency,
            former,
            since: now,
            until: Instant::FAR_FUTURE,
            sends: 0,
            wish: None,
            info: None,
        });
        self.send_session_request(now, id, out);
    }

    /// PDU SESSION MODIFICATION REQUEST (§6.4.2.2).
    pub(super) fn modify_session(
        &mut self,
        now: Instant,
        id: PduSessionId,
        wish: Box<QosRequest>,
        out: &mut Outbox<Output>,
    ) {
        let pti = self.new_pti();
        let Some(session) = self.sessions.iter_mut().find(|s| s.id == id && s.state == SessionState::Active)
        else {
            return not_possible(now, MeasuredProcedure::SessionModification, out);
        };
        session.state = SessionState::Modifying;
        session.wish = Some(wish);
        session.pti = pti;
        session.since = now;
        session.sends = 0;
        self.send_session_request(now, id, out);
    }

    /// PDU SESSION RELEASE REQUEST (§6.4.3.2).
    pub(super) fn release_session(&mut self, now: Instant, id: PduSessionId, out: &mut Outbox<Output>) {
        let pti = self.new_pti();
        let Some(session) = self.sessions.iter_mut().find(|s| s.id == id && s.state == SessionState::Active)
        else {
            return not_possible(now, MeasuredProcedure::SessionRelease, out);
        };
        session.state = SessionState::Releasing;
        session.pti = pti;
        session.since = now;
        session.sends = 0;
        self.send_session_request(now, id, out);
    }

    fn new_pti(&mut self) -> Pti {
        let pti = Pti(self.next_pti);
        self.next_pti = if self.next_pti >= 254 { 1 } else { self.next_pti + 1 };
        pti
    }

    /// Sends or repeats the pending request of a session.
    fn send_session_request(&mut self, now: Instant, id: PduSessionId, out: &mut Outbox<Output>) {
        let profile = self.config.profile.clone();
        let Some(session) = self.sessions.iter_mut().find(|s| s.id == id) else { return };
        session.sends += 1;
        session.until = now + T3580_T3582;
        let (emergency, former) = (session.emergency, session.former);
        let (body, request) = match session.state {
            SessionState::Establishing => {
                (Body::from(establishment_request(&session.request, &profile)), Some(session.request.clone()))
            }
            SessionState::Releasing => (Body::from(ReleaseRequest::new()), None),
            SessionState::Modifying => {
                let wish = session.wish.as_deref().cloned().unwrap_or_default();
                let mut m = ModificationRequest::new();
                m.qos_rules = QosRules::new(&wish.rules);
                m.qos_flow_descriptions = QosFlowDescriptions::new(&wish.flows);
                (Body::from(m), None)
            }
            SessionState::Active => return,
        };
        let message = Message::new(id, session.pti, body);
        self.transport_as(&message, request, emergency, former, out);
    }

    /// UL NAS TRANSPORT of a 5GSM message (§5.4.5.2.2).
    fn transport(&mut self, message: &Message, request: Option<SessionRequest>, out: &mut Outbox<Output>) {
        self.transport_as(message, request, false, None, out);
    }

    fn transport_as(
        &mut self,
        message: &Message,
        request: Option<SessionRequest>,
        emergency: bool,
        former: Option<PduSessionId>,
        out: &mut Outbox<Output>,
    ) {
        let Some(container) = PayloadContainer::new(message.to_octets()) else { return };
        let mut m = UlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
        m.pdu_session_id = message.pdu_session_id;
        if let Some(request) = request {
            let kind =
                if emergency { RequestType::InitialEmergencyRequest } else { RequestType::InitialRequest };
            m.request_type = Some(kind);
            m.old_pdu_session_id = former;
            m.s_nssai = request.s_nssai.map(Into::into);
            m.dnn = request.dnn;
        }
        self.send(m, out);
    }

    /// DL NAS TRANSPORT (§5.4.5.3.3).
    pub(super) fn downlink_transport(&mut self, now: Instant, m: DlNasTransport, out: &mut Outbox<Output>) {
        if m.payload_container_type != PayloadContainerType::N1_SM_INFORMATION {
            return event(Event::Payload(m.payload_container_type.value()), out);
        }
        if let (Some(cause), Some(id)) = (m.cause, m.pdu_session_id) {
            // The network could not forward the UE's message, and returns it.
            let retry_after = m.back_off_timer.and_then(|t| t.duration());
            return self.session_refused(now, id, Reason::Mm(cause), retry_after, out);
        }
        match Message::decode(&m.payload_container) {
            Ok(message) => self.session_message(now, message, out),
            Err(e) => {
                violation(Violation::Malformed(e.message_type), out);
                if let (Some(cause), Some((id, pti))) = (e.sm_cause(), e.sm_header) {
                    let status = Message {
                        pdu_session_id: PduSessionId::new(id),
                        pti: Pti(pti),
                        body: SmStatus::new(cause).into(),
                    };
                    self.transport(&status, None, out);
                }
            }
        }
    }

    fn session_message(&mut self, now: Instant, message: Message, out: &mut Outbox<Output>) {
        if let Body::SmStatus(m) = &message.body {
            return event(Event::SessionStatus(m.cause), out);
        }
        let Some(id) = message.pdu_session_id else {
            return violation(Violation::Malformed(Some(message.message_type().value())), out);
        };
        let Some(session) = self.sessions.iter().find(|s| s.id == id) else {
            return self.session_unknown(id, &message, out);
        };
        let answers = session.pti == message.pti;
        match message.body {
            Body::EstablishmentAccept(m) if session.state == SessionState::Establishing && answers => {
                self.session_accepted(id, m, out);
            }
            Body::EstablishmentReject(m) if session.state == SessionState::Establishing && answers => {
                let retry_after = m.back_off_timer.and_then(|t| t.duration());
                self.session_refused(now, id, Reason::Sm(m.cause), retry_after, out);
            }
            Body::ModificationReject(m) if session.state == SessionState::Modifying && answers => {
                let retry_after = m.back_off_timer.and_then(|t| t.duration());
                self.session_refused(now, id, Reason::Sm(m.cause), retry_after, out);
            }
            Body::ReleaseReject(m) if session.state == SessionState::Releasing && answers => {
                self.session_refused(now, id, Reason::Sm(m.cause), None, out);
            }
            Body::ReleaseCommand(m) => self.session_release_commanded(id, message.pti, m.cause, out),
            Body::ModificationCommand(m) if session.state != SessionState::Establishing => {
                self.session_modified(id, message.pti, &m, out);
                if m.cause == Some(SmCause::ReactivationRequested) {
                    self.succeed_session(now, id, out);
                }
            }
            // A repeated answer, or one to an ended transaction (§7.3.1).
            _ => self.session_status(id, message.pti, SmCause::PtiMismatch, out),
        }
    }

    /// §7.3.2: a message for a session that the UE does not have.
    fn session_unknown(&mut self, id: PduSessionId, message: &Message, out: &mut Outbox<Output>) {
        match message.body {
            // The earlier answer was lost: repeats it, so that both sides release the session.
            Body::ReleaseCommand(_) => {
                let answer = Message::new(id, message.pti, ReleaseComplete::new());
                self.transport(&answer, None, out);
            }
            _ => self.session_status(id, message.pti, SmCause::InvalidPduSessionIdentity, out),
        }
    }

    fn session_status(&mut self, id: PduSessionId, pti: Pti, cause: SmCause, out: &mut Outbox<Output>) {
        self.transport(&Message::new(id, pti, SmStatus::new(cause)), None, out);
    }

    /// PDU SESSION ESTABLISHMENT ACCEPT (§6.4.1.3).
    fn session_accepted(&mut self, id: PduSessionId, m: EstablishmentAccept, out: &mut Outbox<Output>) {
        let qfi = default_flow(&m.qos_rules);
        if qfi.is_none() {
            violation(Violation::QosRules(id), out);
        }
        let info = session_info(id, m, qfi);
        let usable = match info.pdu_session_type {
            PduSessionType::Ipv4 => info.ipv4.is_some(),
            PduSessionType::Ipv6 => info.interface_id.is_some(),
            PduSessionType::Ipv4v6 => info.ipv4.is_some() && info.interface_id.is_some(),
            PduSessionType::Unstructured | PduSessionType::Ethernet => true,
        };
        if !usable {
            violation(Violation::SessionAddress(id), out);
        }
        let Some(session) = self.sessions.iter_mut().find(|s| s.id == id) else { return };
        session.state = SessionState::Active;
        session.until = Instant::FAR_FUTURE;
        session.info = Some(Box::new(info.clone()));
        event(Event::SessionUp { since: session.since, session: Box::new(info) }, out);
    }

    /// A session procedure failed: a session in establishment is deleted, one in release stays.
    fn session_refused(
        &mut self,
        now: Instant,
        id: PduSessionId,
        reason: Reason,
        retry_after: Option<Duration>,
        out: &mut Outbox<Output>,
    ) {
        let Some(place) = self.sessions.iter().position(|s| s.id == id) else { return };
        let (since, procedure) = match self.sessions.get_mut(place) {
            Some(session) if session.state == SessionState::Modifying => {
                session.state = SessionState::Active;
                session.wish = None;
                session.until = Instant::FAR_FUTURE;
                (session.since, MeasuredProcedure::SessionModification)
            }
            Some(session) if session.state == SessionState::Releasing => {
                session.state = SessionState::Active;
                session.until = Instant::FAR_FUTURE;
                (session.since, MeasuredProcedure::SessionRelease)
            }
            Some(session) if session.state == SessionState::Establishing => {
                let since = session.since;
                self.sessions.remove(place);
                (since, MeasuredProcedure::SessionEstablishment)
            }
            _ => (now, MeasuredProcedure::SessionEstablishment),
        };
        event(Event::Refused { since, procedure, session: Some(id), reason, retry_after }, out);
    }

    /// PDU SESSION RELEASE COMMAND (§6.3.3.3).
    fn session_release_commanded(
        &mut self,
        id: PduSessionId,
        pti: Pti,
        cause: SmCause,
        out: &mut Outbox<Output>,
    ) {
        let Some(place) = self.sessions.iter().position(|s| s.id == id) else { return };
        let session = self.sessions.remove(place);
        self.transport(&Message::new(id, pti, ReleaseComplete::new()), None, out);
        let since = (session.state == SessionState::Releasing && session.pti == pti).then_some(session.since);
        event(Event::SessionReleased { since, session: id, cause: Some(cause) }, out);
    }

    /// PDU SESSION MODIFICATION COMMAND (§6.3.2.3).
    fn session_modified(
        &mut self,
        id: PduSessionId,
        pti: Pti,
        m: &whimbrel_nas::sm::ModificationCommand,
        out: &mut Outbox<Output>,
    ) {
        let session = self.sessions.iter_mut().find(|s| s.id == id);
        if let Some(info) = session.and_then(|s| s.info.as_deref_mut()) {
            if let Some(ambr) = m.session_ambr {
                info.ambr_kbps = (ambr.downlink.kbps(), ambr.uplink.kbps());
            }
            info.qfi = m.qos_rules.as_ref().and_then(default_flow).or(info.qfi);
            if let Err(cause) = super::qos::apply(info, m) {
                violation(Violation::QosRules(id), out);
                let reject = Message::new(id, pti, ModificationCommandReject::new(cause));
                return self.transport(&reject, None, out);
            }
        }
        self.transport(&Message::new(id, pti, ModificationComplete::new()), None, out);
        let asked = self
            .sessions
            .iter_mut()
            .find(|s| s.id == id && s.state == SessionState::Modifying && s.pti == pti);
        let since = asked.map(|session| {
            session.state = SessionState::Active;
            session.wish = None;
            session.until = Instant::FAR_FUTURE;
            session.since
        });
        event(Event::SessionModified { since, session: id }, out);
    }

    /// §6.3.2.3: a session of SSC mode 3 is to be replaced; the new session is requested once.
    fn succeed_session(&mut self, now: Instant, former: PduSessionId, out: &mut Outbox<Output>) {
        if self.sessions.iter().any(|s| s.former == Some(former)) {
            return;
        }
        let request = self.sessions.iter().find(|s| s.id == former).map(|s| s.request.clone());
        if let Some(request) = request {
            self.begin_session(now, request, false, Some(former), out);
        }
    }

    pub(super) fn user_plane_changed(&mut self, id: PduSessionId, up: bool, out: &mut Outbox<Output>) {
        if let Some(session) = self.sessions.iter_mut().find(|s| s.id == id) {
            session.user_plane = up;
            event(Event::UserPlane { session: id, up }, out);
        }
    }

    /// The connection has ended: deactivates all user planes; returns the sessions that had one.
    pub(super) fn take_user_planes_down(&mut self) -> Vec<PduSessionId> {
        let had = self.sessions.iter_mut().filter(|s| s.user_plane);
        had.map(|s| {
            s.user_plane = false;
            s.id
        })
        .collect()
    }

    /// The sessions without a user plane, for the uplink data status.
    pub(super) fn inactive_sessions(&self) -> PduSessionSet {
        self.sessions.iter().filter(|s| s.info.is_some() && !s.user_plane).map(|s| s.id).collect()
    }

    /// Releases sessions that the network no longer has (§5.5.1.3.4, §5.6.1.4).
    pub(super) fn keep_sessions(&mut self, at_network: PduSessionSet, out: &mut Outbox<Output>) {
        let gone = |s: &UeSession| s.info.is_some() && !at_network.contains(s.id);
        for session in self.sessions.iter().filter(|s| gone(s)) {
            event(Event::SessionReleased { since: None, session: session.id, cause: None }, out);
        }
        self.sessions.retain(|s| !gone(s));
    }

    /// Releases all sessions with the registration.
    pub(super) fn drop_sessions(&mut self, out: &mut Outbox<Output>) {
        for session in core::mem::take(&mut self.sessions) {
            let event_of = match session.state {
                SessionState::Establishing => Event::Refused {
                    since: session.since,
                    procedure: MeasuredProcedure::SessionEstablishment,
                    session: Some(session.id),
                    reason: Reason::ConnectionLost,
                    retry_after: None,
                },
                SessionState::Active | SessionState::Modifying | SessionState::Releasing => {
                    Event::SessionReleased { since: None, session: session.id, cause: None }
                }
            };
            event(event_of, out);
        }
    }

    /// T3580 or T3582 has expired for a session (§6.4.1.6 a, §6.4.3.5 a).
    pub(super) fn tick_sessions(&mut self, now: Instant, out: &mut Outbox<Output>) {
        while let Some(session) = self.sessions.iter_mut().find(|s| s.until <= now) {
            let (id, sends) = (session.id, session.sends);
            session.until = now + T3580_T3582;
            if sends >= SENDS_MAX {
                self.session_given_up(now, id, out);
            } else if self.connected && self.state == MmState::Registered {
                self.send_session_request(now, id, out);
            } else if let Some(session) = self.sessions.iter_mut().find(|s| s.id == id) {
                // Without a connection the request waits for one; the expiry counts.
                session.sends += 1;
                if self.state == MmState::Registered {
                    self.request_service(now, whimbrel_nas::ie::ServiceType::Signalling, out);
                }
            }
        }
    }

    fn session_given_up(&mut self, now: Instant, id: PduSessionId, out: &mut Outbox<Output>) {
        let releasing = self.sessions.iter().any(|s| s.id == id && s.state == SessionState::Releasing);
        self.session_refused(now, id, Reason::TimedOut, None, out);
        if releasing {
            // §6.4.3.5 a: the UE releases it locally, and informs the network by the PDU session status.
            self.sessions.retain(|s| s.id != id);
            event(Event::SessionReleased { since: None, session: id, cause: None }, out);
        }
    }
}

fn establishment_request(request: &SessionRequest, profile: &Profile) -> EstablishmentRequest {
    let full = IntegrityDataRate::Full;
    let mut m = EstablishmentRequest::new(IntegrityMaxDataRate { uplink: full, downlink: full });
    m.pdu_session_type = Some(request.pdu_session_type);
    m.ssc_mode = Some(profile.ssc_mode);
    m.sm_capability = Some(SmCapability::default().with_reflective_qos(profile.reflective_qos));
    m.max_packet_filters = MaxPacketFilters::new(PACKET_FILTERS);
    m.extended_pco = ExtendedPco::new(PcoDirection::FromUe, &pco(request, profile));
    m
}

/// The requested PCO parameters (TS 24.008 §10.5.6.3).
fn pco(request: &SessionRequest, profile: &Profile) -> Vec<Container> {
    let ipv4 = matches!(request.pdu_session_type, PduSessionType::Ipv4 | PduSessionType::Ipv4v6);
    let ipv6 = matches!(request.pdu_session_type, PduSessionType::Ipv6 | PduSessionType::Ipv4v6);
    let ims = request.dnn.as_ref().is_some_and(|dnn| dnn.as_str() == "ims");
    let mut ids = Vec::new();
    let mut ask = |requested: bool, id| ids.extend(requested.then_some(id));
    ask(ipv4 || ipv6, container_id::ADDRESS_VIA_NAS);
    ask(ipv4, container_id::DNS_SERVER_IPV4);
    ask(ipv6, container_id::DNS_SERVER_IPV6);
    ask(ipv4, container_id::IPV4_LINK_MTU);
    ask(ims && ipv4, container_id::P_CSCF_IPV4);
    ask(ims && ipv6, container_id::P_CSCF_IPV6);
    let mut containers: Vec<Container> = ids.into_iter().map(Container::request).collect();
    if profile.ipcp && ipv4 {
        let option = |kind| (kind, Box::from([0; 4]));
        let options = vec![option(Ipcp::PRIMARY_DNS), option(Ipcp::SECONDARY_DNS)];
        let packet = Ipcp { code: Ipcp::CONFIGURE_REQUEST, identifier: 1, options };
        containers.insert(0, Container::ipcp(&packet));
    }
    containers
}

/// The flow of the default rule.
fn default_flow(rules: &QosRules) -> Option<Qfi> {
    let rules = rules.rules().ok()?;
    rules.iter().find(|r| r.default)?.binding.map(|b| b.qfi)
}

fn session_info(id: PduSessionId, m: EstablishmentAccept, qfi: Option<Qfi>) -> SessionInfo {
    let (ipv4, interface_id) = match m.pdu_address.map(|a| a.kind) {
        Some(PduAddressKind::Ipv4(ipv4)) => (Some(ipv4), None),
        Some(PduAddressKind::Ipv6 { interface_id }) => (None, Some(interface_id)),
        Some(PduAddressKind::Ipv4v6 { ipv4, interface_id }) => (Some(ipv4), Some(interface_id)),
        None => (None, None),
    };
    let s_nssai: Option<SNssai> = m.s_nssai.map(|s| s.s_nssai);
    let dnn: Option<Dnn> = m.dnn;
    let mut info = SessionInfo {
        id,
        pdu_session_type: m.pdu_session_type,
        ipv4: ipv4.filter(|a| !a.is_unspecified()),
        interface_id,
        dns_ipv4: Vec::new(),
        dns_ipv6: Vec::new(),
        p_cscf_ipv4: Vec::new(),
        p_cscf_ipv6: Vec::new(),
        mtu: None,
        qfi,
        rules: m.qos_rules.rules().unwrap_or_default(),
        flows: m.qos_flow_descriptions.and_then(|f| f.flows().ok()).unwrap_or_default(),
        ambr_kbps: (m.session_ambr.downlink.kbps(), m.session_ambr.uplink.kbps()),
        dnn,
        s_nssai,
        rq_timer: m.rq_timer.and_then(|t| t.duration()),
        cause: m.cause,
    };
    if let Some(pco) = &m.extended_pco {
        pco.containers(PcoDirection::ToUe).for_each(|c| take_container(&mut info, &c));
    }
    info
}

fn take_container(info: &mut SessionInfo, container: &Container) {
    match container.id {
        container_id::DNS_SERVER_IPV4 => add(&mut info.dns_ipv4, container.as_ipv4()),
        container_id::DNS_SERVER_IPV6 => add(&mut info.dns_ipv6, container.as_ipv6()),
        container_id::P_CSCF_IPV4 => add(&mut info.p_cscf_ipv4, container.as_ipv4()),
        container_id::P_CSCF_IPV6 => add(&mut info.p_cscf_ipv6, container.as_ipv6()),
        container_id::IPV4_LINK_MTU => info.mtu = container.as_u16().or(info.mtu),
        container_id::IPCP => {
            let packet = Ipcp::parse(&container.contents);
            let address =
                |kind| packet.as_ref().and_then(|p| p.address(kind)).filter(|a| !a.is_unspecified());
            add(&mut info.dns_ipv4, address(Ipcp::PRIMARY_DNS));
            add(&mut info.dns_ipv4, address(Ipcp::SECONDARY_DNS));
        }
        _ => {}
    }
}

/// Adds missing ones.
fn add<T: PartialEq>(list: &mut Vec<T>, item: Option<T>) {
    if let Some(item) = item.filter(|i| !list.contains(i)) {
        list.push(item);
    }
}
