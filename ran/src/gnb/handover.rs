//! Common parts of N2 and Xn handover: TS 38.413 §8.4, TS 38.423 §8.2.1, TS 38.300 §9.2.3.2.

use whimbrel_ids::{GlobalGnbId, Instant, PduSessionId, RanUeNgapId, Tai, Teid};
use whimbrel_ngap::{Cause, CauseRadioNetwork, EventType};

use super::container::TargetParameters;
use super::keys::{ARFCN_DL, pci};
use super::xn::XnMessage;
use super::{Due, Event, Gnb, GnbTunnel, Output, UeConnection, Violation, event, violation};
use crate::outbox::Outbox;
use crate::radio::{DownlinkMessage, UeId};

/// A neighbour gNB with its one cell (TS 38.300 §15.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Identifier of the gNB.
    pub id: GlobalGnbId,
    /// The tracking area of its cell.
    pub tai: Tai,
}

/// The kind of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// Xn handover with path switch (TS 23.502 §4.9.1.2).
    Xn,
    /// N2 handover (TS 23.502 §4.9.1.3).
    N2,
}

/// The handover state of a context.
#[derive(Debug)]
pub(super) enum Handover {
    /// No handover is running.
    None,
    /// At the source gNB, while the target prepares.
    Preparing { via: Via, to: Neighbour, until: Instant, asked: Vec<PduSessionId> },
    /// Source of an N2 handover: HANDOVER CANCEL was sent.
    Cancelling { until: Instant },
    /// Source: the handover command was sent to the UE.
    Executing { via: Via, until: Instant },
    /// Target: the UE is expected. For N2 the core cancels it; an Xn source may be lost.
    Awaiting { from: HandoverOrigin, until: Option<Instant> },
    /// Target of an Xn handover: PATH SWITCH REQUEST was sent.
    Switching { from: HandoverOrigin, asked: Vec<PduSessionId>, until: Instant },
}

/// The source of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandoverOrigin {
    /// Another gNB, over Xn, with its identifier of the context.
    Xn(GlobalGnbId, RanUeNgapId),
    /// The core asked, over N2.
    N2,
}

impl Handover {
    fn until(&self) -> Option<Instant> {
        match self {
            Self::Preparing { until, .. }
            | Self::Cancelling { until }
            | Self::Executing { until, .. }
            | Self::Switching { until, .. } => Some(*until),
            Self::Awaiting { until, .. } => *until,
            Self::None => None,
        }
    }
}

impl UeConnection {
    /// The cause when the UE cannot be reached.
    pub(super) fn lost_cause(&self) -> CauseRadioNetwork {
        match self.handover {
            Handover::Executing { via: Via::Xn, .. } => CauseRadioNetwork::XnHandoverTriggered,
            Handover::Executing { via: Via::N2, .. } => CauseRadioNetwork::NgIntraSystemHandoverTriggered,
            _ => CauseRadioNetwork::RadioConnectionWithUeLost,
        }
    }
}

impl Gnb {
    /// Starts a handover to another gNB.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        ue: UeId,
        to: Neighbour,
        via: Via,
        out: &mut Outbox<Output>,
    ) {
        let cause = Cause::RadioNetwork(CauseRadioNetwork::HandoverDesirableForRadioReason);
        let context = self.of_ue(ue).filter(|c| c.set_up && !c.radio_lost && c.keys.is_some());
        let free = context.filter(|c| matches!(c.handover, Handover::None));
        // HANDOVER REQUIRED lists at least one session (§9.2.3.1).
        let Some(id) = free.filter(|c| !c.sessions.is_empty()).map(|c| c.ran_ue_ngap_id) else {
            return event(Event::HandoverFailed { ue, via, cause }, out);
        };
        match via {
            Via::Xn => self.xn_handover_request(now, id, to, out),
            Via::N2 => self.handover_required(now, id, to, out),
        }
    }

    /// Sets the handover state and its deadline.
    pub(super) fn set_handover(&mut self, id: RanUeNgapId, handover: Handover) {
        if let Some(until) = handover.until() {
            self.due.insert((until, Due::Context(id.0)));
        }
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.handover = handover;
        }
    }

    /// Source: sends the handover command to the UE and forwards its packets to the target.
    pub(super) fn command_ue(
        &mut self,
        now: Instant,
        id: RanUeNgapId,
        (via, to): (Via, Neighbour),
        command: TargetParameters,
        admitted: &[(PduSessionId, Option<(core::net::IpAddr, Teid)>)],
        out: &mut Outbox<Output>,
    ) {
        self.set_handover(id, Handover::Executing { via, until: now + self.config.handover_overall });
        let Some(context) = self.contexts.get_mut(id.0) else { return };
        let ue = context.ue;
        for session in &mut context.sessions {
            let to = admitted.iter().find(|(id, _)| *id == session.id);
            session.forward_to = to.and_then(|(_, to)| *to);
        }
        context.radio_lost = true;
        if self.faults.lose_command {
            return;
        }
        let sessions = admitted.iter().map(|(id, _)| *id).collect();
        out.push(Output::Radio(
            ue,
            DownlinkMessage::Handover {
                to: to.id,
                tai: to.tai,
                target: command.target,
                ncc: command.ncc,
                key_set_change: command.key_set_change,
                pci: pci(to.id),
                arfcn_dl: ARFCN_DL,
                sessions,
            },
        ));
    }

    /// Target: the UE has arrived (RRCReconfigurationComplete, TS 38.331 §5.3.5.3).
    pub(super) fn ue_arrived(&mut self, now: Instant, ue: UeId, id: RanUeNgapId, out: &mut Outbox<Output>) {
        let context = self.contexts.get_mut(id.0);
        let Some((context, from)) = context.and_then(|c| match c.handover {
            Handover::Awaiting { from, .. } => Some((c, from)),
            _ => None,
        }) else {
            return out.push(Output::Radio(ue, DownlinkMessage::Released));
        };
        context.ue = ue;
        context.radio_lost = false;
        context.handover = Handover::None;
        let (stream, keys) = (context.stream, context.keys.as_ref().map(|k| *k.k_gnb.octets()));
        if let Some(k_gnb) = keys {
            out.push(Output::Radio(ue, DownlinkMessage::HandoverKey { k_gnb }));
        }
        self.name_ue(ue, id);
        self.deliver_forwarded(id.0, out);
        if self.faults.silent_arrival {
            return;
        }
        match from {
            HandoverOrigin::Xn(..) => self.path_switch_request(now, id, from, out),
            HandoverOrigin::N2 => self.handover_notify(id, stream, out),
        }
        // The serving cell has changed (§8.12.3).
        let requested = self.contexts.get(id.0).and_then(|c| c.location_reporting.clone());
        if let Some(requested) = requested.filter(|w| w.event_type != EventType::UePresenceInAreaOfInterest) {
            self.report_location(id, requested, out);
        }
    }

    /// The deadline of a context has expired.
    pub(super) fn handover_expired(&mut self, now: Instant, id: RanUeNgapId, out: &mut Outbox<Output>) {
        let Some(context) = self.contexts.get(id.0) else { return };
        if context.handover.until().is_none_or(|until| until > now) {
            return;
        }
        let ue = context.ue;
        match context.handover {
            Handover::Preparing { via: Via::N2, .. } => {
                let cause = Cause::RadioNetwork(CauseRadioNetwork::TngrelocprepExpiry);
                event(Event::HandoverFailed { ue, via: Via::N2, cause: cause.clone() }, out);
                self.send_cancel(now, id, cause, out);
            }
            Handover::Preparing { via: Via::Xn, .. } => {
                let cause = Cause::RadioNetwork(CauseRadioNetwork::TxnrelocoverallExpiry);
                self.set_handover(id, Handover::None);
                event(Event::HandoverFailed { ue, via: Via::Xn, cause }, out);
            }
            Handover::Cancelling { .. } => {
                self.set_handover(id, Handover::None);
                violation(Some(ue), Violation::NoAnswer("HandoverCancel"), out);
            }
            Handover::Executing { via, .. } => self.overall_expired(id, via, out),
            Handover::Switching { .. } => {
                self.set_handover(id, Handover::None);
                violation(Some(ue), Violation::NoAnswer("PathSwitchRequest"), out);
            }
            Handover::Awaiting { .. } => {
                self.drop_context(now, id, out);
            }
            Handover::None => {}
        }
    }

    /// TNGRELOCoverall or TXnRELOCoverall: the UE has left and its arrival was not reported (§8.3.2, §8.4.1).
    fn overall_expired(&mut self, id: RanUeNgapId, via: Via, out: &mut Outbox<Output>) {
        let Some(context) = self.contexts.get(id.0) else { return };
        let ue = context.ue;
        let cause = Cause::RadioNetwork(match via {
            Via::Xn => CauseRadioNetwork::TxnrelocoverallExpiry,
            Via::N2 => CauseRadioNetwork::TngrelocoverallExpiry,
        });
        self.set_handover(id, Handover::None);
        event(Event::HandoverFailed { ue, via, cause: cause.clone() }, out);
        self.request_context_release(id, cause, out);
    }

    /// The source cancels before the command was sent to the UE.
    pub(super) fn cancel_handover(&mut self, now: Instant, ue: UeId, cause: Cause, out: &mut Outbox<Output>) {
        let Some(context) = self.of_ue(ue) else { return };
        let id = context.ran_ue_ngap_id;
        match context.handover {
            Handover::Preparing { via: Via::N2, .. } => self.send_cancel(now, id, cause, out),
            Handover::Preparing { via: Via::Xn, to, .. } => {
                self.set_handover(id, Handover::None);
                out.push(Output::Xn { to: to.id, message: XnMessage::HandoverCancel { source: id } });
            }
            _ => {}
        }
    }

    /// Target: a tunnel into which the source forwards.
    pub(super) fn open_forwarding(&mut self, id: RanUeNgapId, session: PduSessionId) -> Option<Teid> {
        let teid = Teid(self.tunnels.insert(|_| GnbTunnel::Forwarded(id.0, session))?);
        let context = self.contexts.get_mut(id.0)?;
        let session = context.sessions.iter_mut().find(|s| s.id == session)?;
        session.forwarding_teid = Some(teid);
        session.reordering = Some(Box::default());
        Some(teid)
    }
}
