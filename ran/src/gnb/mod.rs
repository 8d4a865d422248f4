//! One gNB as the AMF and the UPF see it: TS 38.413 from the NG-RAN node's side.
//!
//! The machine is pure. It checks the core's conformance: each [`Event::Violation`] fails a test.
//!
//! | clause of TS 38.413 | where |
//! | --- | --- |
//! | §8.7 interface management: setup, configuration update, reset, error indication | `interface` |
//! | §8.6 NAS transport, §8.5 paging | `nas_transport` |
//! | §8.3 UE context, §8.14.1 radio capability | `ue_context` |
//! | §8.2 PDU session resources | `pdu_session` |
//! | §8.4 handover: common parts, Xn with path switch, N2 | `handover`, `xn`, `n2_handover` |
//! | §8.2.4, §8.2.5, §8.3.5, §8.7.6, §8.8, §8.9, §8.12 | `notices` |
//! | TS 33.501 §6.9.2 keys | `keys` |
//! | TS 29.281 tunnels | `tunnel` |
//! | TS 38.410 §6.6 several AMFs | `amf_selection` |

mod amf_selection;
mod config;
mod container;
mod handover;
mod interface;
mod keys;
mod n2_handover;
mod nas_transport;
mod notices;
mod pdu_session;
mod served;
mod slab;
mod tunnel;
mod ue_context;
mod violation;
mod xn;

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_ids::{
    AmfUeNgapId, GlobalGnbId, Guami, Instant, PduSessionId, Qfi, RanUeNgapId, SNssai, STmsi, Teid,
};
use whimbrel_ngap::{
    Cause, ErrorIndication, LocationReportingRequestType, Message, NgSetupFailure, PagingPriority,
    TransferSyntax, UeAggregateMaximumBitRate, UeSecurityCapabilities,
};

use crate::history::HeldQos;
use crate::outbox::Outbox;
use crate::radio::{DownlinkMessage, UeId, UplinkMessage};
use handover::Handover;
use keys::Keys;
use slab::Slab;
use tunnel::GnbTunnel;

pub use amf_selection::{AmfIndex, AmfInput, AmfSelection};
pub(crate) use amf_selection::{ForAmf, ForGnb};
pub use config::{Faults, GnbConfig, SupportedTa};
pub use handover::{Neighbour, Via};
pub use served::{ServedSession, ServedUe};
pub use tunnel::GTPU_HEADROOM;
pub use violation::{Violation, cause_text};
pub use xn::{XnHandoverRequest, XnHandoverRequestAcknowledge, XnMessage};

/// Input of a gNB.
#[derive(Debug)]
pub enum Input<'a> {
    /// The SCTP association is up.
    AssociationUp {
        /// Number of outbound streams.
        streams: u16,
        /// The agreed transfer syntax; received messages may be in either.
        syntax: TransferSyntax,
    },
    /// The association is lost. If a further one is up, the gNB continues over that.
    AssociationDown,
    /// A further association with the AMF is up (TS 38.412 §7), with one of the endpoints of [`Output::Associate`].
    FurtherAssociationUp,
    /// The further association is lost.
    FurtherAssociationDown,
    /// An NGAP message was received over the further association.
    FurtherNgap {
        /// Its SCTP stream.
        stream: u16,
        /// The message as it came.
        octets: &'a [u8],
    },
    /// An NGAP message was received.
    Ngap {
        /// Its SCTP stream.
        stream: u16,
        /// The message as it came.
        octets: &'a [u8],
    },
    /// A datagram was received on port 2152.
    Gtpu {
        /// Source address and UDP port.
        source: (IpAddr, u16),
        /// The datagram as it came.
        datagram: &'a [u8],
    },
    /// A message of another gNB over Xn.
    Xn {
        /// Identifier of the sending gNB.
        from: GlobalGnbId,
        /// The message over Xn.
        message: XnMessage,
    },
    /// Start a handover.
    HandOver {
        /// The UE that is to be handed over.
        ue: UeId,
        /// The gNB that is the target.
        to: Neighbour,
        /// The kind of handover.
        via: Via,
    },
    /// Cancel a handover in preparation, with this cause.
    CancelHandover(UeId, Cause),
    /// A message of a UE.
    Radio(UeId, UplinkMessage),
    /// The UE is to be released: UE CONTEXT RELEASE REQUEST with this cause. With "radio connection with UE lost", the
    /// UE receives nothing from now on.
    Release(UeId, Cause),
    /// The guarantee of a GBR flow is no longer fulfilled, or is again: PDU SESSION RESOURCE NOTIFY.
    Notify {
        /// The UE of the flow.
        ue: UeId,
        /// Session of the flow.
        session: PduSessionId,
        /// Identifier of the flow.
        qfi: Qfi,
        /// Whether it is fulfilled now.
        fulfilled: bool,
    },
    /// Release a UE's session: PDU SESSION RESOURCE NOTIFY.
    LetSessionGo(UeId, PduSessionId),
    /// Change the downlink tunnels of a UE's sessions: PDU SESSION RESOURCE MODIFY INDICATION.
    IndicateModification(UeId),
    /// A UE enters or leaves RRC_INACTIVE; reported if the core has requested it.
    Inactive(UeId, bool),
    /// Drop these UEs: NG RESET of part of the interface.
    ResetSome(&'a [UeId]),
    /// Drop all UEs: NG RESET of the whole interface.
    Reset,
    /// Change the gNB's areas or name: RAN CONFIGURATION UPDATE.
    Reconfigure(GnbConfig),
    /// A timer may have expired.
    Tick,
}

/// Output of a gNB.
#[derive(Debug)]
pub enum Output {
    /// Send an NGAP message.
    Ngap {
        /// On this SCTP stream.
        stream: u16,
        /// The message as it leaves.
        octets: Vec<u8>,
    },
    /// Set up an association with this further endpoint of the AMF, if there is none.
    Associate(IpAddr),
    /// End the association with this endpoint of the AMF, which was removed.
    Dissociate(IpAddr),
    /// Send an NGAP message over the further association.
    FurtherNgap {
        /// On this SCTP stream.
        stream: u16,
        /// The message as it leaves.
        octets: Vec<u8>,
    },
    /// Send a datagram from port 2152.
    Gtpu {
        /// To this address and UDP port.
        to: (IpAddr, u16),
        /// The datagram as it leaves.
        datagram: Vec<u8>,
    },
    /// Send a message to another gNB over Xn.
    Xn {
        /// Identifier of the receiving gNB.
        to: GlobalGnbId,
        /// The message over Xn.
        message: XnMessage,
    },
    /// A packet for a UE.
    Packet {
        /// The UE that gets the packet.
        ue: UeId,
        /// Session of the packet.
        session: PduSessionId,
        /// The QoS flow, if the datagram names one.
        qfi: Option<Qfi>,
        /// Reflective QoS indicator (TS 23.501 §5.7.5).
        rqi: bool,
        /// The packet without its tunnel's header.
        packet: Vec<u8>,
    },
    /// A message for a UE.
    Radio(UeId, DownlinkMessage),
    /// Page the UE with this identity.
    Page(STmsi),
    /// An event for the report.
    Event(Event),
}

/// Event of a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// NG SETUP RESPONSE: the AMF's name.
    SetUp {
        /// The AMF's name.
        amf_name: String,
    },
    /// NG SETUP FAILURE.
    SetupFailed(NgSetupFailure),
    /// No answer to NG SETUP REQUEST.
    SetupTimedOut,
    /// RAN CONFIGURATION UPDATE was accepted or refused.
    Reconfigured(Result<(), Cause>),
    /// NG RESET ACKNOWLEDGE was received.
    ResetAcknowledged,
    /// The AMF reset the interface or some of its connections.
    ResetByAmf {
        /// Number of released UEs.
        ues: usize,
    },
    /// A UE context was set up, with AS security.
    ContextSetUp(UeId),
    /// A UE context was released, with this cause.
    ContextReleased(UeId, Cause),
    /// At the target: a handover has completed. For Xn after the path switch, for N2 after HANDOVER NOTIFY.
    HandedOver {
        /// The UE that was handed over.
        ue: UeId,
        /// The kind of handover.
        via: Via,
        /// The sessions that the core could not switch.
        released: Vec<PduSessionId>,
    },
    /// A handover has failed, with this cause.
    HandoverFailed {
        /// The UE that stays.
        ue: UeId,
        /// The kind of handover.
        via: Via,
        /// Cause of the failure.
        cause: Cause,
    },
    /// HANDOVER CANCEL ACKNOWLEDGE was received.
    HandoverCancelled(UeId),
    /// HANDOVER REQUEST was ignored because of a configured fault.
    HandoverRequestIgnored,
    /// GTP-U Error Indication: the peer does not know a tunnel into which packets were sent.
    TunnelUnknownToPeer(Teid),
    /// PDU SESSION RESOURCE MODIFY CONFIRM was received.
    ModificationConfirmed(UeId),
    /// The broadcast of a warning starts or stops.
    Warning {
        /// Message identifier of the warning.
        message: u16,
        /// Serial number of the warning.
        serial: u16,
        /// Whether it is broadcast from now on.
        on_air: bool,
    },
    /// DOWNLINK RAN CONFIGURATION TRANSFER was received, with this encoded SON Configuration Transfer.
    ConfigurationTransferred(Vec<u8>),
    /// PAGING was received with this priority.
    PagedUrgently(PagingPriority),
    /// A UE's connection was rejected because of AMF overload.
    Barred(UeId),
    /// OVERLOAD START or OVERLOAD STOP was received.
    Overload(bool),
    /// A violation of the standard by the core.
    Violation {
        /// The UE, if it concerns one.
        ue: Option<UeId>,
        /// The rule that the core has broken.
        violation: Violation,
    },
}

/// The state of the NG interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NgInterfaceState {
    /// There is no association.
    Down,
    /// NG SETUP REQUEST was sent.
    SettingUp {
        /// The deadline of the answer.
        until: Instant,
    },
    /// Failed; to be tried again at this time.
    Waiting {
        /// When to try again.
        until: Instant,
    },
    /// Refused, and not to be tried again.
    Refused,
    /// The interface is set up.
    Up,
}

/// A UE-associated logical NG connection.
#[derive(Debug)]
struct UeConnection {
    ue: UeId,
    ran_ue_ngap_id: RanUeNgapId,
    amf_ue_ngap_id: Option<AmfUeNgapId>,
    /// The one SCTP stream of this UE (TS 38.412 §7).
    stream: u16,
    /// INITIAL CONTEXT SETUP has succeeded.
    set_up: bool,
    /// The UE does not receive: it has left, or has not arrived.
    radio_lost: bool,
    sessions: Vec<tunnel::GnbSession>,
    /// Since AS security was set up.
    keys: Option<Keys>,
    guami: Option<Guami>,
    capabilities: Option<UeSecurityCapabilities>,
    ambr: Option<UeAggregateMaximumBitRate>,
    allowed_nssai: Vec<SNssai>,
    handover: Handover,
    /// At the target of an Xn handover: sessions that were not admitted.
    refused_sessions: Vec<PduSessionId>,
    /// DOWNLINK RAN STATUS TRANSFER was received.
    status_transferred: bool,
    /// The core has requested reports of RRC state transitions.
    reports_inactive: bool,
    /// The core's location reporting request.
    location_reporting: Option<LocationReportingRequestType>,
}

/// A deadline of the gNB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Of a context.
    Context(u32),
    /// Of a tunnel that outlives its context.
    Passing(u32),
}

/// An emulated gNB.
#[derive(Debug)]
pub struct Gnb {
    config: GnbConfig,
    interface: NgInterfaceState,
    /// A further association is up, and the AMF knows that it is this gNB's.
    further: bool,
    streams: u16,
    /// The transfer syntax of the association, or of a former one: the transport converts for the present one.
    syntax: TransferSyntax,
    served_guamis: Vec<Guami>,
    contexts: Slab<UeConnection>,
    /// The newest context of each UE that has one: a table by number would have a place for each UE of the network.
    by_ue: BTreeMap<UeId, u32>,
    tunnels: Slab<GnbTunnel>,
    due: BTreeSet<(Instant, Due)>,
    faults: Faults,
    /// The traffic reduction of the last OVERLOAD START.
    overload: Option<notices::Overload>,
    pagings: u64,
    /// Dropped downlink packets without a UE or buffer space.
    dropped_downlink: u64,
}

impl Gnb {
    /// A gNB that has no association yet.
    pub fn new(config: GnbConfig) -> Self {
        Self {
            config,
            interface: NgInterfaceState::Down,
            further: false,
            streams: 1,
            syntax: TransferSyntax::Per,
            served_guamis: Vec::new(),
            contexts: Slab::new(),
            by_ue: BTreeMap::new(),
            tunnels: Slab::new(),
            due: BTreeSet::new(),
            faults: Faults::default(),
            overload: None,
            pagings: 0,
            dropped_downlink: 0,
        }
    }

    /// Configuration of the gNB.
    pub fn config(&self) -> &GnbConfig {
        &self.config
    }

    /// Its faults, mutable.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Its identity for neighbours.
    pub fn as_neighbour(&self) -> Neighbour {
        Neighbour { id: self.config.id, tai: self.config.tai() }
    }

    /// Number of tunnels, of sessions and of running handovers.
    pub fn tunnels(&self) -> usize {
        self.tunnels.ids().count()
    }

    /// Dropped downlink packets without a UE or buffer space.
    pub fn dropped_downlink(&self) -> u64 {
        self.dropped_downlink
    }

    /// Whether NG SETUP has succeeded and the association is up.
    pub fn is_up(&self) -> bool {
        self.interface == NgInterfaceState::Up
    }

    /// Whether a further association is up.
    pub fn has_further(&self) -> bool {
        self.further
    }

    /// How many UEs have a context here.
    pub fn contexts(&self) -> usize {
        self.contexts.ids().count()
    }

    /// Number of PAGING messages for its areas.
    pub fn pagings(&self) -> u64 {
        self.pagings
    }

    /// Handles one input.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox<Output>) {
        match input {
            Input::AssociationUp { streams, syntax } => {
                self.syntax = syntax;
                self.association_up(now, streams, out);
            }
            Input::AssociationDown => self.association_down(now, out),
            Input::FurtherAssociationUp => self.further_association_up(out),
            Input::FurtherAssociationDown => self.further = false,
            Input::FurtherNgap { stream, octets } => self.further_ngap(now, stream, octets, out),
            Input::Ngap { stream, octets } => self.ngap(now, stream, octets, out),
            Input::Radio(ue, UplinkMessage::Connect(connect)) => self.initial_ue_message(ue, connect, out),
            Input::Radio(ue, UplinkMessage::Nas(nas)) => self.uplink_nas(ue, nas, out),
            Input::Radio(ue, UplinkMessage::Gone) => self.ue_gone(ue, out),
            Input::Radio(ue, UplinkMessage::HandoverComplete { target, .. }) => {
                self.ue_arrived(now, ue, target, out);
            }
            Input::Gtpu { source, datagram } => self.gtpu(now, source, datagram, out),
            Input::Xn { from, message } => self.xn(now, from, message, out),
            Input::HandOver { ue, to, via } => self.hand_over(now, ue, to, via, out),
            Input::CancelHandover(ue, cause) => self.cancel_handover(now, ue, cause, out),
            Input::Release(ue, cause) => self.request_release(ue, cause, out),
            Input::Notify { ue, session, qfi, fulfilled } => {
                self.notify_qos_flow(ue, session, qfi, fulfilled, out);
            }
            Input::LetSessionGo(ue, session) => self.release_session(ue, session, out),
            Input::IndicateModification(ue) => self.indicate_modification(ue, out),
            Input::Inactive(ue, inactive) => self.report_inactive(ue, inactive, out),
            Input::ResetSome(ues) => self.reset_connections(now, ues, out),
            Input::Reset => self.reset_all(now, out),
            Input::Reconfigure(config) => self.reconfigure(config, out),
            Input::Tick => self.tick(now, out),
        }
    }

    /// When it needs an [`Input::Tick`].
    pub fn next_deadline(&self) -> Option<Instant> {
        let own = match self.interface {
            NgInterfaceState::SettingUp { until } | NgInterfaceState::Waiting { until } => Some(until),
            NgInterfaceState::Down | NgInterfaceState::Refused | NgInterfaceState::Up => None,
        };
        own.into_iter().chain(self.due.first().map(|(at, _)| *at)).min()
    }

    fn ngap(&mut self, now: Instant, stream: u16, octets: &[u8], out: &mut Outbox<Output>) {
        let message = match Message::decode(octets) {
            Ok(message) => message,
            Err(refusal) => {
                if let Some(answer) = refusal.error_indication() {
                    self.send(0, &answer.into(), out);
                }
                return violation(None, Violation::Refused(refusal), out);
            }
        };
        let name = message.name();
        let wants_zero = interface::is_non_ue_associated(&message);
        if wants_zero && stream != 0 || !wants_zero && stream == 0 && self.streams > 1 {
            violation(None, Violation::WrongStream { message: name, stream }, out);
        }
        let at = ReceivedMessage { name, stream };
        match message {
            Message::NgSetupResponse(m) => self.setup_response(m, out),
            Message::NgSetupFailure(m) => self.setup_failure(now, m, out),
            Message::RanConfigurationUpdateAcknowledge(_) => event(Event::Reconfigured(Ok(())), out),
            Message::RanConfigurationUpdateFailure(m) => event(Event::Reconfigured(Err(m.cause)), out),
            Message::AmfConfigurationUpdate(m) => self.amf_configuration_update(m, out),
            Message::NgReset(m) => self.reset_by_amf(now, m, out),
            Message::NgResetAcknowledge(_) => event(Event::ResetAcknowledged, out),
            Message::OverloadStart(m) => self.handle_overload(Some(m), out),
            Message::OverloadStop(_) => self.handle_overload(None, out),
            Message::WriteReplaceWarningRequest(m) => self.broadcast_warning(&m, out),
            Message::PwsCancelRequest(m) => self.cancel_warning(&m, out),
            Message::PduSessionResourceModifyConfirm(m) => self.handle_modify_confirm(at, &m, out),
            Message::LocationReportingControl(m) => self.location_control(at, m, out),
            Message::DownlinkRanConfigurationTransfer(m) => {
                let transfer = m.son_configuration_transfer_dl.unwrap_or_default();
                event(Event::ConfigurationTransferred(transfer), out);
            }
            Message::AmfStatusIndication(m) => self.amf_status_indication(&m),
            Message::ErrorIndication(m) => self.error_indication(now, &m, out),
            Message::Paging(m) => self.paging(&m, out),
            Message::DownlinkNasTransport(m) => self.downlink_nas(at, m, out),
            Message::InitialContextSetupRequest(m) => self.initial_context_setup(at, m, out),
            Message::UeContextModificationRequest(m) => self.ue_context_modification(at, &m, out),
            Message::UeRadioCapabilityCheckRequest(m) => self.radio_capability_check(at, &m, out),
            Message::UeContextReleaseCommand(m) => self.release_command(now, at, &m, out),
            Message::PduSessionResourceSetupRequest(m) => self.session_setup(at, m, out),
            Message::PduSessionResourceModifyRequest(m) => self.session_modify(now, at, m, out),
            Message::PduSessionResourceReleaseCommand(m) => self.session_release(at, m, out),
            Message::PathSwitchRequestAcknowledge(m) => self.path_switched(at, m, out),
            Message::PathSwitchRequestFailure(m) => self.path_switch_failed(now, at, &m, out),
            Message::HandoverCommand(m) => self.handover_command(now, at, &m, out),
            Message::HandoverPreparationFailure(m) => self.handover_preparation_failed(at, m, out),
            Message::DownlinkUeAssociatedNrppaTransport(m) => self.nrppa(at, &m, out),
            Message::HandoverRequest(m) => self.handover_request(at, m, out),
            Message::HandoverCancelAcknowledge(m) => self.cancel_acknowledged(at, &m, out),
            Message::DownlinkRanStatusTransfer(m) => self.status_transferred(at, &m, out),
            _ => violation(None, Violation::Unexpected(name), out),
        }
    }

    /// The context of a message. The AMF UE NGAP ID is checked, or stored from the first message.
    ///
    /// Unknown or inconsistent AP IDs are answered by ERROR INDICATION (§8.7.4.2, §10.6).
    fn context(
        &mut self,
        at: ReceivedMessage,
        amf_ue_ngap_id: AmfUeNgapId,
        ran_ue_ngap_id: RanUeNgapId,
        out: &mut Outbox<Output>,
    ) -> Option<&mut UeConnection> {
        use whimbrel_ngap::CauseRadioNetwork::{InconsistentRemoteUeNgapId, UnknownLocalUeNgapId};
        let known = self.contexts.get(ran_ue_ngap_id.0).map(|c| (c.amf_ue_ngap_id, c.ue, c.stream));
        let (breach, ue, cause) = match known {
            None => {
                let breach = Violation::UnknownUe { message: at.name, ran_ue_ngap_id };
                (breach, None, UnknownLocalUeNgapId)
            }
            Some((Some(known), ue, _)) if known != amf_ue_ngap_id => {
                let breach = Violation::InconsistentAmfUeNgapId { known, given: amf_ue_ngap_id };
                (breach, Some(ue), InconsistentRemoteUeNgapId)
            }
            Some((_, ue, stream)) => {
                if at.stream != stream && at.stream != 0 {
                    let breach = Violation::WrongStream { message: at.name, stream: at.stream };
                    violation(Some(ue), breach, out);
                }
                let context = self.contexts.get_mut(ran_ue_ngap_id.0)?;
                context.amf_ue_ngap_id = Some(amf_ue_ngap_id);
                return Some(context);
            }
        };
        let mut answer = ErrorIndication::new();
        answer.amf_ue_ngap_id = Some(amf_ue_ngap_id);
        answer.ran_ue_ngap_id = Some(ran_ue_ngap_id);
        answer.cause = Some(Cause::RadioNetwork(cause));
        self.send(at.stream, &answer.into(), out);
        violation(ue, breach, out);
        None
    }

    /// The last received QoS of the UE's active sessions.
    pub(crate) fn qos_of(&self, ue: UeId) -> impl Iterator<Item = HeldQos> {
        let kbps = |bps: u64| bps.div_ceil(1000);
        self.of_ue(ue).into_iter().flat_map(|c| &c.sessions).map(move |s| HeldQos {
            id: s.id,
            flows: s.flows.iter().map(|f| f.qfi).collect(),
            ambr_kbps: s.ambr.as_ref().map_or((0, 0), |ambr| {
                (
                    kbps(ambr.pdu_session_aggregate_maximum_bit_rate_dl),
                    kbps(ambr.pdu_session_aggregate_maximum_bit_rate_ul),
                )
            }),
        })
    }

    fn of_ue(&self, ue: UeId) -> Option<&UeConnection> {
        self.contexts.get(*self.by_ue.get(&ue)?)
    }

    fn send(&self, stream: u16, message: &Message, out: &mut Outbox<Output>) {
        let mut octets = Vec::with_capacity(128);
        message.encode_in(self.syntax, &mut octets);
        out.push(Output::Ngap { stream, octets });
    }

    /// Removes a context and its tunnels; the UE is released if it is still connected.
    fn drop_context(
        &mut self,
        now: Instant,
        id: RanUeNgapId,
        out: &mut Outbox<Output>,
    ) -> Option<UeConnection> {
        let context = self.contexts.remove(id.0)?;
        self.close_tunnels(now, &context.sessions);
        if self.by_ue.get(&context.ue) == Some(&id.0) {
            self.by_ue.remove(&context.ue);
            if !context.radio_lost {
                out.push(Output::Radio(context.ue, DownlinkMessage::Released));
            }
        }
        Some(context)
    }

    /// A new connection; its UE is unknown until it arrives in a handover. It uses the stream that the AMF has chosen,
    /// else one of the gNB's choice.
    fn new_context(&mut self, ue: UeId, stream: Option<u16>) -> Option<RanUeNgapId> {
        let ue_streams = self.streams.saturating_sub(1);
        // Stream 0 is for non-UE-associated signalling; the others are distributed (TS 38.412 §7).
        let own = |id| if ue_streams == 0 { 0 } else { 1 + (id % u32::from(ue_streams)) as u16 };
        let id = self.contexts.insert(|id| UeConnection {
            ue,
            ran_ue_ngap_id: RanUeNgapId(id),
            amf_ue_ngap_id: None,
            stream: stream.unwrap_or_else(|| own(id)),
            set_up: false,
            radio_lost: false,
            sessions: Vec::new(),
            keys: None,
            guami: None,
            capabilities: None,
            ambr: None,
            allowed_nssai: Vec::new(),
            handover: Handover::None,
            refused_sessions: Vec::new(),
            status_transferred: false,
            reports_inactive: false,
            location_reporting: None,
        })?;
        if ue != UeId::NOT_ARRIVED {
            self.name_ue(ue, RanUeNgapId(id));
        }
        Some(RanUeNgapId(id))
    }

    /// Makes a connection the UE's newest; an older one stays until the AMF releases it, without the UE.
    fn name_ue(&mut self, ue: UeId, id: RanUeNgapId) {
        let older = self.by_ue.insert(ue, id.0);
        if let Some(older) = older.filter(|o| *o != id.0).and_then(|older| self.contexts.get_mut(older)) {
            older.radio_lost = true;
        }
    }
}

/// A received message and its stream.
#[derive(Clone, Copy)]
struct ReceivedMessage {
    name: &'static str,
    stream: u16,
}

fn event(event: Event, out: &mut Outbox<Output>) {
    out.push(Output::Event(event));
}

fn violation(ue: Option<UeId>, violation: Violation, out: &mut Outbox<Output>) {
    event(Event::Violation { ue, violation }, out);
}
