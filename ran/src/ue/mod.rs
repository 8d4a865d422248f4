//! One UE: NAS of TS 24.501 from the UE's side, with the USIM of TS 33.102 and TS 33.501.
//!
//! A pure state machine: its messages go through a cell to an AMF, and it reports [`Event`]s.
//!
//! | clause of TS 24.501 | where |
//! | --- | --- |
//! | §4.4 NAS security | `protection` |
//! | §5.4.1, §5.4.2, §5.4.3, §5.4.4 | `authentication`, `security_mode`, `identity`, `configuration_update` |
//! | §5.5.1, §5.5.2, §5.6.1 | `registration`, `deregistration`, `service` |
//! | §5.4.5, §6 NAS transport and sessions | `session` |
//! | attach and usage reports through a broker (CellBricks, chapter 3.4) | `sap` |
//! | veiled attach (LOCA, chapter 4.4.2) | `veil` |
//! | TS 33.501 §6.9.2 handover and its keys | `handover` |
//! | §10.2 timers | `timer` |

mod authentication;
mod config;
mod configuration_update;
mod deregistration;
mod event;
mod filter;
mod handover;
mod identity;
mod protection;
mod qos;
mod registration;
mod sap;
mod security_mode;
mod service;
mod session;
mod timer;
mod veil;

use std::collections::VecDeque;

use whimbrel_ids::{Guti, Instant, PduSessionId, Qfi, SNssai, STmsi, Tai};
use whimbrel_nas::ie::{
    MmCause, NgKsi, PduSessionType, RegistrationKind, ServiceType, SliceRejectCause, Suci, TaiList,
};
use whimbrel_nas::mm::Message;
use whimbrel_ngap::RrcEstablishmentCause;
use whimbrel_security::{NasCount, NasSecurityContext, SecurityHeaderType, Usim};

use crate::outbox::Outbox;
use crate::radio::{Connect, DownlinkMessage, UplinkMessage};
use authentication::Partial;
use handover::AsKeys;
use protection::Security;
use sap::Sap;
use session::UeSession;
use timer::UeTimers;

pub use config::{
    Alter, AskFor, AtOnce, Faults, Profile, QosRequest, SapCard, SessionRequest, SuciSource, UeConfig,
    VeilCard,
};
pub use event::{Discard, Event, MeasuredProcedure, Reason, SessionInfo, Violation};
pub use timer::Timer;

/// Command to a UE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UeCommand {
    /// Register: initially if it is not registered, else as a mobility update.
    Register,
    /// Register for emergency services.
    RegisterForEmergency,
    /// Set up an emergency session.
    EstablishEmergencySession,
    /// Periodic registration now.
    PeriodicRegistration,
    /// Set up a session.
    EstablishSession(SessionRequest),
    /// Change the QoS of a session.
    ModifySession(PduSessionId, Box<QosRequest>),
    /// Release a session.
    ReleaseSession(PduSessionId),
    /// Activate the user plane of all sessions: SERVICE REQUEST with uplink data status.
    ServiceRequest,
    /// The UE is to deregister.
    Deregister {
        /// Switch off: no answer is awaited.
        switch_off: bool,
    },
    /// Send these octets as a 5GMM message in any state, protected if security is established: for tests of the core.
    Say(Vec<u8>),
}

/// Input of a UE.
#[derive(Debug)]
pub enum Input {
    /// A command of the scenario.
    Command(UeCommand),
    /// A message of its gNB.
    Radio(DownlinkMessage),
    /// It camps on a cell of this tracking area: given first, and again whenever it moves.
    Cell(Tai),
    /// It is paged.
    Paged,
    /// A timer may have expired.
    Tick,
}

/// Output of a UE.
#[derive(Debug)]
pub enum Output {
    /// Send this to the gNB.
    Radio(UplinkMessage),
    /// An event for the report.
    Event(Event),
}

/// 5GMM main states of the UE (TS 24.501 §5.1.3.2.1), as far as distinguished here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmState {
    /// The state 5GMM-DEREGISTERED.
    Deregistered,
    /// The state 5GMM-REGISTERED-INITIATED.
    RegisteredInitiated,
    /// The state 5GMM-REGISTERED.
    Registered,
    /// The state 5GMM-DEREGISTERED-INITIATED.
    DeregisteredInitiated,
    /// The state 5GMM-SERVICE-REQUEST-INITIATED.
    ServiceRequestInitiated,
}

/// The mobility procedure that runs, or ran last.
#[derive(Clone, Debug)]
struct Initial {
    /// When its first message was sent.
    since: Instant,
    /// The complete initial message, plain, for SECURITY MODE COMPLETE (TS 24.501 §4.4.6).
    message: Vec<u8>,
    /// It was sent without protection, with only its cleartext IEs.
    cleartext_only: bool,
    /// The kind of registration, if it is one.
    kind: RegistrationKind,
}

/// An emulated UE.
#[derive(Debug)]
pub struct Ue {
    config: UeConfig,
    usim: Usim,
    /// Its faults, if any.
    faults: Option<Box<Faults>>,
    state: MmState,
    connected: bool,
    /// Security is established on this connection: plain messages are neither sent nor accepted.
    secure: bool,
    cell: Option<Tai>,
    guti: Option<Guti>,
    registration_area: TaiList,
    last_visited_tai: Option<Tai>,
    allowed_nssai: Vec<SNssai>,
    rejected_nssai: Box<[(SNssai, SliceRejectCause)]>,
    security: Option<Security>,
    partial: Option<Partial>,
    /// Why the UE refused the last challenge, while it awaits another one.
    refused_challenge: Option<MmCause>,
    /// Why the UE refused the last SECURITY MODE COMMAND.
    refused_security_mode: Option<MmCause>,
    /// COUNT from which K_gNB is derived (TS 33.501 §6.8.1.1.2.2).
    k_gnb_count: Option<NasCount>,
    /// Keys of the access stratum on this connection.
    as_keys: Option<Box<AsKeys>>,
    fresh_suci: Option<Suci>,
    /// Its attach through a broker, if it is a broker's.
    sap: Box<Sap>,
    suci_counter: u32,
    initial: Option<Initial>,
    /// Commands that wait for the running procedure.
    pending: VecDeque<UeCommand>,
    /// Registration attempt counter (§5.5.1.2.7).
    registration_attempts: u8,
    /// Service request attempt counter (§5.6.1.7).
    service_attempts: u8,
    deregistration_attempts: u8,
    /// Register again as soon as the connection is released.
    register_again: bool,
    timers: UeTimers,
    t3512: core::time::Duration,
    /// The establishment cause of a valid access identity (TS 24.501 §4.5.6).
    priority: Option<RrcEstablishmentCause>,
    /// Strictly periodic registration: T3512 runs in connected mode too (TS 24.501 §5.3.7).
    strictly_periodic: bool,
    t3502: core::time::Duration,
    sessions: Vec<UeSession>,
    next_pti: u8,
}

impl Ue {
    /// A UE that is switched on and not registered.
    pub fn new(config: UeConfig) -> Self {
        Self {
            usim: Usim::new(config.milenage(), config.sqn.clone()),
            faults: config.profile.faults.clone(),
            config,
            state: MmState::Deregistered,
            connected: false,
            secure: false,
            cell: None,
            guti: None,
            registration_area: TaiList::default(),
            last_visited_tai: None,
            allowed_nssai: Vec::new(),
            rejected_nssai: Box::default(),
            security: None,
            partial: None,
            refused_challenge: None,
            refused_security_mode: None,
            k_gnb_count: None,
            as_keys: None,
            fresh_suci: None,
            sap: Box::default(),
            suci_counter: 0,
            initial: None,
            pending: VecDeque::new(),
            registration_attempts: 0,
            service_attempts: 0,
            deregistration_attempts: 0,
            register_again: false,
            timers: UeTimers::new(),
            t3512: Timer::T3512.default_value(),
            priority: None,
            strictly_periodic: false,
            t3502: Timer::T3502.default_value(),
            sessions: Vec::new(),
            next_pti: 1,
        }
    }

    /// Configuration of the UE.
    pub fn config(&self) -> &UeConfig {
        &self.config
    }

    /// What it keeps without power: its configuration, its SIM, and the sequence numbers that its USIM has accepted.
    pub fn without_power(&self) -> UeConfig {
        UeConfig { sqn: self.usim.sqn.clone(), ..self.config.clone() }
    }

    /// Changes the USIM.
    pub fn insert(&mut self, usim: Usim) {
        self.usim = usim;
    }

    /// Its faults, mutable.
    pub fn faults_mut(&mut self) -> &mut Faults {
        self.faults.get_or_insert_default()
    }

    fn faults(&self) -> &Faults {
        static NONE: Faults = Faults::NONE;
        self.faults.as_deref().unwrap_or(&NONE)
    }

    /// Its 5GMM state.
    pub fn state(&self) -> MmState {
        self.state
    }

    /// Whether it has a connection (5GMM-CONNECTED mode).
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// The 5G-GUTI that the UE has.
    pub fn guti(&self) -> Option<Guti> {
        self.guti
    }

    /// Its 5G-S-TMSI, by which it is paged.
    pub fn s_tmsi(&self) -> Option<STmsi> {
        self.guti.map(Guti::s_tmsi)
    }

    /// Its ngKSI and security context, with the next COUNTs.
    pub fn security(&self) -> Option<(NgKsi, &NasSecurityContext)> {
        self.security.as_ref().map(|s| (s.ng_ksi, &s.nas))
    }

    /// The allowed slices.
    pub fn allowed_nssai(&self) -> &[SNssai] {
        &self.allowed_nssai
    }

    /// The rejected slices, with causes.
    pub fn rejected_nssai(&self) -> &[(SNssai, SliceRejectCause)] {
        &self.rejected_nssai
    }

    /// Its registration area.
    pub fn registration_area(&self) -> &TaiList {
        &self.registration_area
    }

    /// Its active sessions, in the order of their setup.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionInfo> {
        self.sessions.iter().filter_map(UeSession::info)
    }

    /// The QoS flow of an uplink packet by the session's QoS rules; `None` if no rule matches (TS 23.501 §5.7.1.5).
    pub fn flow_of(&self, id: PduSessionId, packet: &[u8]) -> Option<Qfi> {
        let info = self.sessions().find(|s| s.id == id)?;
        filter::flow_of(
            &info.rules,
            info.pdu_session_type == PduSessionType::Ethernet,
            filter::TrafficDirection::Up,
            packet,
        )
    }

    /// The expected QoS flow of a downlink packet, by the session's QoS rules.
    pub fn downlink_flow_of(&self, id: PduSessionId, packet: &[u8]) -> Option<Qfi> {
        let info = self.sessions().find(|s| s.id == id)?;
        filter::flow_of(
            &info.rules,
            info.pdu_session_type == PduSessionType::Ethernet,
            filter::TrafficDirection::Down,
            packet,
        )
    }

    /// Whether a session request is unanswered.
    pub fn awaits_session(&self) -> bool {
        self.sessions.iter().any(|s| !s.is_at_rest())
    }

    /// Whether a session has a user plane.
    pub fn has_user_plane(&self, id: PduSessionId) -> bool {
        self.sessions.iter().any(|s| s.id == id && s.user_plane)
    }

    /// Handles one input.
    pub fn handle(&mut self, now: Instant, input: Input, out: &mut Outbox<Output>) {
        match input {
            Input::Command(UeCommand::Say(plain)) => self.say(plain, out),
            Input::Command(command) => self.pending.push_back(command),
            Input::Cell(tai) => self.camp(now, tai, out),
            Input::Paged => self.paged(now, out),
            // A message from before the gNB knew that the UE has left.
            Input::Radio(_) if !self.connected => {}
            Input::Radio(DownlinkMessage::Nas(octets)) => self.receive(now, &octets, out),
            Input::Radio(DownlinkMessage::AsSecurity { k_gnb }) => self.as_security(&k_gnb, out),
            Input::Radio(DownlinkMessage::Handover {
                to,
                tai,
                target,
                ncc,
                key_set_change,
                pci,
                arfcn_dl,
                sessions,
            }) => {
                if key_set_change {
                    self.change_key_set();
                }
                self.hand_over(now, (to, target), tai, (ncc, pci, arfcn_dl), &sessions, out);
            }
            Input::Radio(DownlinkMessage::HandoverKey { k_gnb }) => self.judge_handover_key(&k_gnb, out),
            Input::Radio(DownlinkMessage::NextHop { ncc, nh }) => self.judge_next_hop(ncc, &nh, out),
            Input::Radio(DownlinkMessage::UserPlane { session, up }) => {
                self.user_plane_changed(session, up, out)
            }
            Input::Radio(DownlinkMessage::Released) => self.released(now, Reason::ConnectionLost, out),
            Input::Radio(DownlinkMessage::Rejected) => self.released(now, Reason::Barred, out),
            Input::Tick => self.tick(now, out),
        }
        self.drive(now, out);
        self.meter_usage(now, out);
    }

    /// When it needs an [`Input::Tick`].
    pub fn next_deadline(&self) -> Option<Instant> {
        let sessions = self.sessions.iter().map(UeSession::deadline);
        let next = sessions.chain(self.usage_deadline()).fold(self.timers.next(), Instant::min);
        (next != Instant::FAR_FUTURE).then_some(next)
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox<Output>) {
        while let Some(timer) = self.timers.expired(now) {
            match timer {
                Timer::T3510 => self.registration_failed(now, Reason::TimedOut, out),
                Timer::T3502 | Timer::T3511 | Timer::T3346 => self.registration_due(now, out),
                Timer::T3512 => self.register(now, RegistrationKind::PeriodicUpdating, out),
                Timer::T3516 => self.forget_challenge(),
                Timer::T3517 => self.service_timed_out(now, out),
                Timer::T3519 => self.fresh_suci = None,
                Timer::T3520 => self.challenge_unanswered(now, out),
                Timer::T3521 => self.deregistration_timed_out(now, out),
                // The next request for service tries again.
                Timer::T3525 => self.service_attempts = 0,
                Timer::T3540 => self.leave(now, out),
            }
        }
        self.tick_sessions(now, out);
    }

    /// Starts waiting commands unless a procedure runs (one mobility procedure at a time, TS 24.501 §5.1.3).
    fn drive(&mut self, now: Instant, out: &mut Outbox<Output>) {
        while let Some(command) = self.pending.front() {
            let busy = !matches!(self.state, MmState::Deregistered | MmState::Registered);
            // Switch-off does not wait.
            let switch_off = matches!(command, UeCommand::Deregister { switch_off: true });
            if busy && !switch_off {
                return;
            }
            // After a deregistration or a reject the connection is released first: by the network, or when T3540
            // expires (§5.3.1.3).
            if *command == UeCommand::Register
                && self.state == MmState::Deregistered
                && self.connected
                && self.faults().at_once.is_none()
            {
                return;
            }
            let needs_connection = matches!(
                command,
                UeCommand::EstablishSession(_)
                    | UeCommand::EstablishEmergencySession
                    | UeCommand::ModifySession(..)
                    | UeCommand::ReleaseSession(_)
            );
            if needs_connection && self.state == MmState::Registered && !self.connected {
                return self.request_service(now, ServiceType::Signalling, out);
            }
            let Some(command) = self.pending.pop_front() else { return };
            self.carry_out(now, command, out);
        }
    }

    fn carry_out(&mut self, now: Instant, command: UeCommand, out: &mut Outbox<Output>) {
        match (command, self.state) {
            (UeCommand::Register, MmState::Deregistered) => {
                self.register(now, RegistrationKind::Initial, out)
            }
            (UeCommand::RegisterForEmergency, _) => self.register(now, RegistrationKind::Emergency, out),
            (UeCommand::EstablishEmergencySession, MmState::Registered) => {
                self.establish_emergency_session(now, out);
            }
            (UeCommand::EstablishEmergencySession, _) => {
                not_possible(now, MeasuredProcedure::SessionEstablishment, out);
            }
            (UeCommand::Register, _) => self.register(now, RegistrationKind::MobilityUpdating, out),
            (UeCommand::PeriodicRegistration, MmState::Registered) => {
                self.register(now, RegistrationKind::PeriodicUpdating, out);
            }
            (UeCommand::EstablishSession(request), MmState::Registered) => {
                self.establish_session(now, request, out)
            }
            (UeCommand::ModifySession(id, request), MmState::Registered) => {
                self.modify_session(now, id, request, out);
            }
            (UeCommand::ReleaseSession(id), MmState::Registered) => self.release_session(now, id, out),
            (UeCommand::ServiceRequest, MmState::Registered) => {
                self.request_service(now, ServiceType::Data, out)
            }
            (UeCommand::Deregister { switch_off }, state) if state != MmState::Deregistered => {
                self.deregister(now, switch_off, out);
            }
            (UeCommand::Deregister { .. }, _) => {
                event(Event::Deregistered { since: Some(now), cause: None }, out)
            }
            (UeCommand::EstablishSession(_), _) => {
                not_possible(now, MeasuredProcedure::SessionEstablishment, out)
            }
            (UeCommand::ModifySession(..), _) => {
                not_possible(now, MeasuredProcedure::SessionModification, out)
            }
            (UeCommand::ReleaseSession(_), _) => not_possible(now, MeasuredProcedure::SessionRelease, out),
            (UeCommand::Say(plain), _) => self.say(plain, out),
            (UeCommand::PeriodicRegistration, _) => not_possible(now, MeasuredProcedure::Registration, out),
            (UeCommand::ServiceRequest, _) => not_possible(now, MeasuredProcedure::ServiceRequest, out),
        }
    }

    /// Sends the first message of a procedure: on the present connection, or with a new one.
    fn send_initial(&mut self, nas: Vec<u8>, cause: RrcEstablishmentCause, out: &mut Outbox<Output>) {
        if self.connected {
            return out.push(Output::Radio(UplinkMessage::Nas(nas)));
        }
        let claimed = self.faults().claim.or(self.priority);
        let cause = claimed.filter(|_| cause != RrcEstablishmentCause::Emergency).unwrap_or(cause);
        self.connected = true;
        self.secure = false;
        let in_area = self.cell.is_some_and(|tai| self.registration_area.contains(tai));
        let guami = self.guti.map(|g| g.guami);
        let s_tmsi = self.s_tmsi().filter(|_| in_area);
        out.push(Output::Radio(UplinkMessage::Connect(Connect { nas, cause, s_tmsi, guami })));
    }

    /// Sends given octets, as the first message of a connection if there is none; the UE's state does not change.
    fn say(&mut self, plain: Vec<u8>, out: &mut Outbox<Output>) {
        if self.connected && !self.secure {
            return out.push(Output::Radio(UplinkMessage::Nas(plain)));
        }
        let header = match self.connected {
            true => SecurityHeaderType::IntegrityProtectedAndCiphered,
            false => SecurityHeaderType::IntegrityProtected,
        };
        let nas = self.protect_as(header, &plain).map_or(plain, |(nas, _)| nas);
        self.send_initial(nas, RrcEstablishmentCause::MoSignalling, out);
    }

    /// After a reject: registers again now if configured not to wait for the release.
    fn register_unless_it_waits(&mut self) {
        if self.faults().at_once.is_some() && core::mem::take(&mut self.register_again) {
            self.pending.push_front(UeCommand::Register);
        }
    }

    /// Local release of the connection (TS 24.501 §5.3.1.3).
    fn leave(&mut self, now: Instant, out: &mut Outbox<Output>) {
        if self.connected {
            out.push(Output::Radio(UplinkMessage::Gone));
            self.connection_ended(now, out);
        }
    }

    fn connection_ended(&mut self, now: Instant, out: &mut Outbox<Output>) {
        self.connected = false;
        self.secure = false;
        self.as_keys = None;
        self.timers.stop(Timer::T3540);
        for id in self.take_user_planes_down() {
            event(Event::UserPlane { session: id, up: false }, out);
        }
        if self.state == MmState::Registered {
            if !(self.strictly_periodic && self.timers.runs(Timer::T3512)) {
                self.timers.start_for(Timer::T3512, now, self.t3512);
            }
            event(Event::Idle, out);
        }
        if core::mem::take(&mut self.register_again) {
            self.pending.push_front(UeCommand::Register);
        }
    }

    /// The gNB released or rejected the connection.
    fn released(&mut self, now: Instant, why: Reason, out: &mut Outbox<Output>) {
        if !self.connected {
            return;
        }
        match self.state {
            MmState::RegisteredInitiated => {
                self.connection_ended(now, out);
                self.registration_failed(now, why, out);
            }
            MmState::ServiceRequestInitiated => {
                self.service_failed(now, why, out);
                self.connection_ended(now, out);
            }
            // §5.5.2.2.6 c: deregistration goes on without the network.
            MmState::DeregisteredInitiated => {
                self.connection_ended(now, out);
                self.deregistered(None, out);
            }
            MmState::Registered | MmState::Deregistered => self.connection_ended(now, out),
        }
    }

    /// Sends a 5GMM message, protected if security is established.
    fn send(&mut self, message: impl Into<Message>, out: &mut Outbox<Output>) {
        let plain = message.into().to_octets();
        let nas = if self.secure { self.protect(plain) } else { plain };
        out.push(Output::Radio(UplinkMessage::Nas(nas)));
    }
}

fn event(event: Event, out: &mut Outbox<Output>) {
    out.push(Output::Event(event));
}

fn violation(violation: Violation, out: &mut Outbox<Output>) {
    event(Event::Violation(violation), out);
}

fn not_possible(now: Instant, procedure: MeasuredProcedure, out: &mut Outbox<Output>) {
    let reason = Reason::NotPossible;
    event(Event::Refused { since: now, procedure, session: None, reason, retry_after: None }, out);
}
