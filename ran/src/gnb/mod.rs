//! One gNB as the AMF and the UPF see it: TS 38.413 from the NG-RAN node's side.
//!
//! The machine is pure. It checks what a gNB must check and says so loudly: [`Event::Violation`] is a failed test.
//!
//! | clause of TS 38.413 | where |
//! | --- | --- |
//! | §8.7 interface management: setup, configuration update, reset, error indication | `interface` |
//! | §8.6 NAS transport, §8.5 paging | `nas_transport` |
//! | §8.3 UE context, §8.14.1 radio capability | `ue_context` |
//! | §8.2 PDU session resources | `pdu_session` |
//! | TS 29.281 tunnels | `tunnel` |

mod config;
mod interface;
mod nas_transport;
mod pdu_session;
mod slab;
mod tunnel;
mod ue_context;
mod violation;

use whimbrel_ids::{AmfUeNgapId, Guami, Instant, PduSessionId, RanUeNgapId, STmsi};
use whimbrel_ngap::{Cause, ErrorIndication, Message, NgSetupFailure};

use crate::outbox::Outbox;
use crate::radio::{Down, PhoneId, Up};
use slab::Slab;

pub use config::{GnbConfig, SupportedTa};
pub use tunnel::{Downlink, GTPU_HEADROOM};
pub use violation::{Violation, cause_text};

/// What happens to a gNB.
#[derive(Debug)]
pub enum Input<'a> {
    /// The SCTP association stands, with so many outbound streams.
    AssociationUp {
        /// Outbound streams.
        streams: u16,
    },
    /// The association is lost.
    AssociationDown,
    /// An NGAP message came.
    Ngap {
        /// The SCTP stream on which it came.
        stream: u16,
        /// The message.
        octets: &'a [u8],
    },
    /// A phone sent something.
    Radio(PhoneId, Up),
    /// The phone is to be released: UE CONTEXT RELEASE REQUEST with this cause. With "radio connection with UE lost",
    /// the phone hears no more from now on.
    Release(PhoneId, Cause),
    /// The gNB's phones are forgotten: NG RESET of the whole interface.
    Reset,
    /// The gNB's areas or name have changed: RAN CONFIGURATION UPDATE.
    Reconfigure(GnbConfig),
    /// Time has passed.
    Tick,
}

/// What a gNB wants done.
#[derive(Debug)]
pub enum Output {
    /// Send an NGAP message.
    Ngap {
        /// On this SCTP stream.
        stream: u16,
        /// The message.
        octets: Vec<u8>,
    },
    /// Hand this to a phone.
    Radio(PhoneId, Down),
    /// Page: the phone of this identity, if it camps here and is idle, answers.
    Page(STmsi),
    /// Something to know.
    Event(Event),
}

/// What happened at a gNB.
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
    /// RAN CONFIGURATION UPDATE was taken, or not.
    Reconfigured(Result<(), Cause>),
    /// NG RESET ACKNOWLEDGE came.
    ResetAcknowledged,
    /// The AMF reset the interface or some of its connections: so many phones were released.
    ResetByAmf {
        /// How many.
        phones: usize,
    },
    /// A phone's context stands, with AS security.
    ContextSetUp(PhoneId),
    /// A phone's context is gone, for this cause.
    ContextReleased(PhoneId, Cause),
    /// The AMF said that it is overloaded, or no longer.
    Overload(bool),
    /// The core broke the standard.
    Violation {
        /// The phone that it hit, if it hit one.
        phone: Option<PhoneId>,
        /// How.
        violation: Violation,
    },
}

/// Where the gNB stands towards the AMF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interface {
    /// No association.
    Down,
    /// NG SETUP REQUEST was sent.
    SettingUp {
        /// When patience ends.
        until: Instant,
    },
    /// Failed; to be tried again at this time.
    Waiting {
        /// When to try again.
        until: Instant,
    },
    /// Refused, and not to be tried again.
    Refused,
    /// In service.
    Up,
}

/// A UE-associated logical NG connection.
#[derive(Debug)]
struct Context {
    phone: PhoneId,
    ran_ue_ngap_id: RanUeNgapId,
    amf_ue_ngap_id: Option<AmfUeNgapId>,
    /// The one SCTP stream of this phone (TS 38.412 §7).
    stream: u16,
    /// INITIAL CONTEXT SETUP has succeeded.
    set_up: bool,
    has_ue_ambr: bool,
    /// The phone does not hear any more.
    radio_lost: bool,
    sessions: Vec<tunnel::Session>,
}

/// An emulated gNB.
#[derive(Debug)]
pub struct Gnb {
    config: GnbConfig,
    interface: Interface,
    streams: u16,
    served_guamis: Vec<Guami>,
    contexts: Slab<Context>,
    /// The newest context of each phone, by its number; zero for none.
    by_phone: Vec<u32>,
    tunnels: Slab<(PhoneId, PduSessionId)>,
    pagings: u64,
}

impl Gnb {
    /// A gNB that has no association yet.
    pub fn new(config: GnbConfig) -> Self {
        Self {
            config,
            interface: Interface::Down,
            streams: 1,
            served_guamis: Vec::new(),
            contexts: Slab::new(),
            by_phone: Vec::new(),
            tunnels: Slab::new(),
            pagings: 0,
        }
    }

    /// How it is set up.
    pub fn config(&self) -> &GnbConfig {
        &self.config
    }

    /// Whether NG SETUP has succeeded and the association stands.
    pub fn is_up(&self) -> bool {
        self.interface == Interface::Up
    }

    /// How many phones have a context here.
    pub fn contexts(&self) -> usize {
        self.contexts.ids().count()
    }

    /// How many PAGING messages came for its areas.
    pub fn pagings(&self) -> u64 {
        self.pagings
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox<Output>) {
        match input {
            Input::AssociationUp { streams } => self.association_up(now, streams, out),
            Input::AssociationDown => self.association_down(out),
            Input::Ngap { stream, octets } => self.ngap(now, stream, octets, out),
            Input::Radio(phone, Up::Connect(connect)) => self.initial_ue_message(phone, connect, out),
            Input::Radio(phone, Up::Nas(nas)) => self.uplink_nas(phone, nas, out),
            Input::Radio(phone, Up::Gone) => self.phone_gone(phone, out),
            Input::Release(phone, cause) => self.request_release(phone, cause, out),
            Input::Reset => self.reset_all(out),
            Input::Reconfigure(config) => self.reconfigure(config, out),
            Input::Tick => self.tick(now, out),
        }
    }

    /// When it wants a [`Input::Tick`], if at all.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.interface {
            Interface::SettingUp { until } | Interface::Waiting { until } => Some(until),
            Interface::Down | Interface::Refused | Interface::Up => None,
        }
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
        let at = Arrival { name, stream };
        match message {
            Message::NgSetupResponse(m) => self.setup_response(m, out),
            Message::NgSetupFailure(m) => self.setup_failure(now, m, out),
            Message::RanConfigurationUpdateAcknowledge(_) => event(Event::Reconfigured(Ok(())), out),
            Message::RanConfigurationUpdateFailure(m) => event(Event::Reconfigured(Err(m.cause)), out),
            Message::AmfConfigurationUpdate(m) => self.amf_configuration_update(m, out),
            Message::NgReset(m) => self.reset_by_amf(m, out),
            Message::NgResetAcknowledge(_) => event(Event::ResetAcknowledged, out),
            Message::OverloadStart(_) => event(Event::Overload(true), out),
            Message::OverloadStop(_) => event(Event::Overload(false), out),
            Message::AmfStatusIndication(m) => self.amf_status_indication(&m),
            Message::ErrorIndication(m) => self.error_indication(&m, out),
            Message::Paging(m) => self.paging(&m, out),
            Message::DownlinkNasTransport(m) => self.downlink_nas(at, m, out),
            Message::InitialContextSetupRequest(m) => self.initial_context_setup(at, m, out),
            Message::UeContextModificationRequest(m) => self.ue_context_modification(at, &m, out),
            Message::UeContextReleaseCommand(m) => self.release_command(at, &m, out),
            Message::PduSessionResourceSetupRequest(m) => self.session_setup(at, m, out),
            Message::PduSessionResourceModifyRequest(m) => self.session_modify(at, m, out),
            Message::PduSessionResourceReleaseCommand(m) => self.session_release(at, m, out),
            // What a gNB of this kind takes without doing anything (§8.11, §8.10.1).
            Message::LocationReportingControl(_) | Message::DownlinkRanConfigurationTransfer(_) => {}
            _ => violation(None, Violation::Unexpected(name), out),
        }
    }

    /// The context that a message names, with its AMF UE NGAP ID checked, or learnt from the first message.
    ///
    /// What does not fit is answered by ERROR INDICATION (§8.7.4.2, §10.6).
    fn context(
        &mut self,
        at: Arrival,
        amf_ue_ngap_id: AmfUeNgapId,
        ran_ue_ngap_id: RanUeNgapId,
        out: &mut Outbox<Output>,
    ) -> Option<&mut Context> {
        use whimbrel_ngap::CauseRadioNetwork::{InconsistentRemoteUeNgapId, UnknownLocalUeNgapId};
        let known = self.contexts.get(ran_ue_ngap_id.0).map(|c| (c.amf_ue_ngap_id, c.phone, c.stream));
        let (breach, phone, cause) = match known {
            None => {
                let breach = Violation::UnknownUe { message: at.name, ran_ue_ngap_id };
                (breach, None, UnknownLocalUeNgapId)
            }
            Some((Some(known), phone, _)) if known != amf_ue_ngap_id => {
                let breach = Violation::InconsistentAmfUeNgapId { known, given: amf_ue_ngap_id };
                (breach, Some(phone), InconsistentRemoteUeNgapId)
            }
            Some((_, phone, stream)) => {
                if at.stream != stream && at.stream != 0 {
                    let breach = Violation::WrongStream { message: at.name, stream: at.stream };
                    violation(Some(phone), breach, out);
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
        violation(phone, breach, out);
        None
    }

    fn of_phone(&self, phone: PhoneId) -> Option<&Context> {
        self.contexts.get(*self.by_phone.get(phone.index())?)
    }

    fn send(&self, stream: u16, message: &Message, out: &mut Outbox<Output>) {
        out.push(Output::Ngap { stream, octets: message.to_vec() });
    }

    /// Forgets a context and its tunnels; the phone hears of it if it still listens.
    fn drop_context(&mut self, id: RanUeNgapId, out: &mut Outbox<Output>) -> Option<Context> {
        let context = self.contexts.remove(id.0)?;
        for session in &context.sessions {
            self.tunnels.remove(session.downlink_teid.0);
        }
        if let Some(newest) = self.by_phone.get_mut(context.phone.index()).filter(|n| **n == id.0) {
            *newest = 0;
            if !context.radio_lost {
                out.push(Output::Radio(context.phone, Down::Released));
            }
        }
        Some(context)
    }

    /// A new connection of a phone; an older one stays until the AMF releases it, but the phone has left it.
    fn new_context(&mut self, phone: PhoneId) -> Option<RanUeNgapId> {
        let ue_streams = self.streams.saturating_sub(1);
        let id = self.contexts.insert(|id| Context {
            phone,
            ran_ue_ngap_id: RanUeNgapId(id),
            amf_ue_ngap_id: None,
            // Stream 0 is for signalling of no phone; those above are shared out (TS 38.412 §7).
            stream: if ue_streams == 0 { 0 } else { 1 + (id % u32::from(ue_streams)) as u16 },
            set_up: false,
            has_ue_ambr: false,
            radio_lost: false,
            sessions: Vec::new(),
        })?;
        if self.by_phone.len() <= phone.index() {
            self.by_phone.resize(phone.index() + 1, 0);
        }
        let older = self.by_phone.get_mut(phone.index()).map(|n| core::mem::replace(n, id));
        if let Some(older) = older.and_then(|older| self.contexts.get_mut(older)) {
            older.radio_lost = true;
        }
        Some(RanUeNgapId(id))
    }
}

/// Which message came, and on which stream.
#[derive(Clone, Copy)]
struct Arrival {
    name: &'static str,
    stream: u16,
}

fn event(event: Event, out: &mut Outbox<Output>) {
    out.push(Output::Event(event));
}

fn violation(phone: Option<PhoneId>, violation: Violation, out: &mut Outbox<Output>) {
    event(Event::Violation { phone, violation }, out);
}
