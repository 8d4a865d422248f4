//! The user plane of a gNB: tunnels (TS 29.281, TS 38.415), and forwarding during a handover (TS 38.300 §9.2.3.2.3).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_gtpu::{GpduHeader, Gtpu, PduSessionInformation, message_type, signalling};
use whimbrel_ids::{Instant, PduSessionId, Qfi, SNssai, Teid};
use whimbrel_ngap::{
    PduSessionAggregateMaximumBitRate, PduSessionType, QosFlowLevelQosParameters, SecurityIndication,
};

use super::{Due, Event, Gnb, Output, Violation, event, violation};
use crate::outbox::Outbox;
use crate::radio::UeId;

/// Headroom before a packet for its GTP-U header.
pub const GTPU_HEADROOM: usize = whimbrel_gtpu::HEADER_OCTETS_MAX;
/// Limit of each of the two queues of a session in handover: half a second of full packets at 100 Mbit/s.
const HELD_MAX: usize = 4096;
/// How long packets of the new path wait for the end marker of the old one; no standard value, well above the delay on a
/// loaded test machine.
pub(super) const REORDERING: Duration = Duration::from_secs(2);
/// How long packets of a removed flow may be in transit; no standard value.
pub(super) const LATE: Duration = Duration::from_secs(1);
/// How long the source forwards after the release of the UE, without an end marker; no standard value.
const PASSING: Duration = Duration::from_secs(2);

/// A QoS flow of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionFlow {
    pub(super) qfi: Qfi,
    pub(super) parameters: QosFlowLevelQosParameters,
}

/// An active session.
#[derive(Debug)]
pub(super) struct GnbSession {
    pub(super) id: PduSessionId,
    pub(super) s_nssai: SNssai,
    pub(super) downlink_teid: Teid,
    /// The uplink tunnel.
    pub(super) uplink: (IpAddr, Teid),
    pub(super) flows: Vec<SessionFlow>,
    /// Removed flows, and until when their last packets may arrive.
    pub(super) former_flows: Vec<(Qfi, Instant)>,
    pub(super) ambr: Option<PduSessionAggregateMaximumBitRate>,
    pub(super) pdu_session_type: PduSessionType,
    pub(super) security: Option<SecurityIndication>,
    /// The new tunnel, until it is confirmed.
    pub(super) next_downlink_teid: Option<Teid>,
    /// At the source of a handover: the forwarding tunnel.
    pub(super) forward_to: Option<(IpAddr, Teid)>,
    /// At the target: the tunnel of forwarded packets.
    pub(super) forwarding_teid: Option<Teid>,
    /// At the target: queued packets, to keep their order.
    pub(super) reordering: Option<Box<Reordering>>,
}

/// Queued packets at the target of a handover.
#[derive(Debug, Default)]
pub(super) struct Reordering {
    /// Forwarded ones, until the UE arrives.
    forwarded: VecDeque<BufferedPacket>,
    /// Those of the new path, until the end marker.
    direct: VecDeque<BufferedPacket>,
    /// The end marker was received.
    ended: bool,
    /// When the wait for the end marker ends.
    pub(super) until: Option<Instant>,
}

#[derive(Debug)]
struct BufferedPacket {
    qfi: Option<Qfi>,
    rqi: bool,
    packet: Vec<u8>,
}

/// The use of a TEID of the gNB.
#[derive(Clone, Copy, Debug)]
pub(super) enum GnbTunnel {
    /// Packets of the UPF for a session of a context.
    N3(u32, PduSessionId),
    /// Packets that the source of a handover forwards.
    Forwarded(u32, PduSessionId),
    /// The UE has left; packets are forwarded to this tunnel.
    Passing(IpAddr, Teid),
}

impl Gnb {
    /// Writes the tunnel's header before a UE's packet: `buffer[..at]` is headroom of at least [`GTPU_HEADROOM`]
    /// octets, the packet begins at `at`; `qfi` is the flow that the UE's rules chose. Returns the peer's address and
    /// the start of the datagram; `None` if the session has no tunnel.
    pub fn encapsulate(
        &self,
        ue: UeId,
        session: PduSessionId,
        qfi: Option<Qfi>,
        buffer: &mut [u8],
        at: usize,
    ) -> Option<(IpAddr, usize)> {
        let context = self.of_ue(ue).filter(|c| !c.radio_lost)?;
        let session = context.sessions.iter().find(|s| s.id == session)?;
        let qfi = qfi.or(session.flows.first().map(|f| f.qfi))?;
        let header = GpduHeader::new(session.uplink.1, Some(PduSessionInformation::Ul { qfi }));
        let payload_len = buffer.len().checked_sub(at)?;
        let taken = header.write_before(payload_len, buffer.get_mut(..at)?)?;
        Some((session.uplink.0, at - taken))
    }

    /// Handles a datagram to port 2152.
    pub(super) fn gtpu(
        &mut self,
        now: Instant,
        source: (IpAddr, u16),
        datagram: &[u8],
        out: &mut Outbox<Output>,
    ) {
        let gtpu = match Gtpu::parse(datagram) {
            Ok(gtpu) => gtpu,
            Err(e) => return violation(None, Violation::Gtpu(e), out),
        };
        match gtpu.message_type {
            message_type::G_PDU => self.packet(now, source, &gtpu, out),
            message_type::END_MARKER => self.end_marker(gtpu.teid, out),
            message_type::ECHO_REQUEST => {
                let answer = signalling::echo_response(gtpu.sequence.unwrap_or_default());
                out.push(Output::Gtpu { to: source, datagram: answer.as_ref().to_vec() });
            }
            message_type::ERROR_INDICATION => match signalling::ErrorIndication::parse(gtpu.payload) {
                Ok(m) => event(Event::TunnelUnknownToPeer(m.teid), out),
                Err(e) => violation(None, Violation::Gtpu(e.into()), out),
            },
            _ => {}
        }
    }

    fn packet(&mut self, now: Instant, source: (IpAddr, u16), gtpu: &Gtpu<'_>, out: &mut Outbox<Output>) {
        let held = || BufferedPacket {
            qfi: gtpu.pdu_session.map(PduSessionInformation::qfi),
            rqi: matches!(gtpu.pdu_session, Some(PduSessionInformation::Dl { rqi: true, .. })),
            packet: gtpu.payload.to_vec(),
        };
        let (context, id) = match self.tunnels.get(gtpu.teid.0) {
            Some(&(GnbTunnel::N3(context, id) | GnbTunnel::Forwarded(context, id))) => (context, id),
            Some(&GnbTunnel::Passing(to, teid)) => return forward(to, teid, gtpu, out),
            None => {
                let answer = signalling::error_indication(gtpu.teid, self.config.gtp_address, source.1);
                // To the well-known port of the packet's source (TS 29.281 §4.4.2).
                let to = (source.0, whimbrel_gtpu::PORT);
                return out.push(Output::Gtpu { to, datagram: answer.as_ref().to_vec() });
            }
        };
        let Some(known) = self.contexts.get_mut(context) else { return };
        let (ue, lost) = (known.ue, known.radio_lost);
        let Some(session) = known.sessions.iter_mut().find(|s| s.id == id) else { return };
        if session.forwarding_teid == Some(gtpu.teid) {
            match session.reordering.as_mut().filter(|_| lost) {
                Some(reordering) => keep(&mut reordering.forwarded, held(), &mut self.dropped_downlink),
                None => deliver(ue, id, held(), out),
            }
            return;
        }
        let known_flow = |qfi| {
            let late = || session.former_flows.iter().any(|(f, until)| *f == qfi && now < *until);
            session.flows.iter().any(|f| f.qfi == qfi) || late()
        };
        if !gtpu.pdu_session.map(PduSessionInformation::qfi).is_some_and(known_flow) {
            violation(Some(ue), Violation::DownlinkFlow(id), out);
        }
        if let Some((to, teid)) = session.forward_to {
            return forward(to, teid, gtpu, out);
        }
        match &mut session.reordering {
            Some(reordering) => {
                keep(&mut reordering.direct, held(), &mut self.dropped_downlink);
                if reordering.until.is_none() {
                    reordering.until = Some(now + REORDERING);
                    self.due.insert((now + REORDERING, Due::Context(context)));
                }
            }
            None if lost => self.dropped_downlink += 1,
            None => deliver(ue, id, held(), out),
        }
    }

    /// End marker (TS 29.281 §7.3.2): the last packet of this path.
    fn end_marker(&mut self, teid: Teid, out: &mut Outbox<Output>) {
        match self.tunnels.get(teid.0).copied() {
            Some(GnbTunnel::N3(context, id)) => {
                let session = self.contexts.get(context).and_then(|c| c.sessions.iter().find(|s| s.id == id));
                if let Some((to, teid)) = session.and_then(|s| s.forward_to) {
                    send_end_marker(to, teid, out);
                }
            }
            Some(GnbTunnel::Passing(to, next)) => {
                send_end_marker(to, next, out);
                self.tunnels.remove(teid.0);
            }
            Some(GnbTunnel::Forwarded(context, id)) => {
                let Some(known) = self.contexts.get_mut(context) else { return };
                let (ue, lost) = (known.ue, known.radio_lost);
                let Some(session) = known.sessions.iter_mut().find(|s| s.id == id) else { return };
                if lost {
                    if let Some(reordering) = &mut session.reordering {
                        reordering.ended = true;
                    }
                } else {
                    release(ue, session, out);
                    self.tunnels.remove(teid.0);
                }
            }
            None => {}
        }
    }

    /// The UE has arrived: delivers the forwarded packets, and those of the new path after the end marker.
    pub(super) fn deliver_forwarded(&mut self, context: u32, out: &mut Outbox<Output>) {
        let Some(known) = self.contexts.get_mut(context) else { return };
        for session in &mut known.sessions {
            let Some(reordering) = &mut session.reordering else { continue };
            reordering.forwarded.drain(..).for_each(|held| deliver(known.ue, session.id, held, out));
            if reordering.ended
                && let Some(teid) = release(known.ue, session, out)
            {
                self.tunnels.remove(teid.0);
            }
        }
    }

    /// The wait for the end marker has ended.
    pub(super) fn reordering_expired(&mut self, now: Instant, context: u32, out: &mut Outbox<Output>) {
        let Some(known) = self.contexts.get_mut(context) else { return };
        for session in &mut known.sessions {
            let due = session.reordering.as_ref().and_then(|r| r.until).is_some_and(|until| until <= now);
            if due && !known.radio_lost {
                violation(Some(known.ue), Violation::MissingEndMarker(session.id), out);
                if let Some(teid) = release(known.ue, session, out) {
                    self.tunnels.remove(teid.0);
                }
            }
        }
    }

    /// Releases the tunnels of a context. Forwarding continues for a while, since the UPF's last packets and its end
    /// marker may be in transit.
    pub(super) fn close_tunnels(&mut self, now: Instant, sessions: &[GnbSession]) {
        for session in sessions {
            for teid in session.forwarding_teid.iter().chain(&session.next_downlink_teid) {
                self.tunnels.remove(teid.0);
            }
            match (session.forward_to, self.tunnels.get_mut(session.downlink_teid.0)) {
                (Some((to, teid)), Some(tunnel)) => {
                    *tunnel = GnbTunnel::Passing(to, teid);
                    self.due.insert((now + PASSING, Due::Passing(session.downlink_teid.0)));
                }
                _ => {
                    self.tunnels.remove(session.downlink_teid.0);
                }
            }
        }
    }
}

/// Ends the queueing of a session at the target; returns the unused forwarding tunnel.
fn release(ue: UeId, session: &mut GnbSession, out: &mut Outbox<Output>) -> Option<Teid> {
    for held in session.reordering.take().into_iter().flat_map(|r| r.direct) {
        deliver(ue, session.id, held, out);
    }
    session.forwarding_teid.take()
}

fn keep(queue: &mut VecDeque<BufferedPacket>, held: BufferedPacket, dropped: &mut u64) {
    if queue.len() < HELD_MAX {
        queue.push_back(held);
    } else {
        *dropped += 1;
    }
}

fn deliver(ue: UeId, session: PduSessionId, held: BufferedPacket, out: &mut Outbox<Output>) {
    out.push(Output::Packet { ue, session, qfi: held.qfi, rqi: held.rqi, packet: held.packet });
}

/// Forwards a packet into the tunnel of another gNB, or of the UPF, with its flow.
fn forward(to: IpAddr, teid: Teid, gtpu: &Gtpu<'_>, out: &mut Outbox<Output>) {
    let header = GpduHeader::new(teid, gtpu.pdu_session);
    let mut datagram = vec![0; GTPU_HEADROOM + gtpu.payload.len()];
    let (room, payload) = datagram.split_at_mut(GTPU_HEADROOM);
    payload.copy_from_slice(gtpu.payload);
    let Some(taken) = header.write_before(gtpu.payload.len(), room) else { return };
    datagram.drain(..GTPU_HEADROOM - taken);
    out.push(Output::Gtpu { to: (to, whimbrel_gtpu::PORT), datagram });
}

fn send_end_marker(to: IpAddr, teid: Teid, out: &mut Outbox<Output>) {
    let header = GpduHeader::new(teid, None);
    let datagram = header.end_marker().into_iter().take(header.octets_len()).collect();
    out.push(Output::Gtpu { to: (to, whimbrel_gtpu::PORT), datagram });
}
