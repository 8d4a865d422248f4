//! Datagrams on the GTP-U port: TS 29.281 §4.3.0, §4.4, §11.

use std::net::{IpAddr, SocketAddr};

use whimbrel_gtpu::signalling::{
    ErrorIndication, echo_response, echo_response_sequence, error_indication,
    supported_extension_headers_notification,
};
use whimbrel_gtpu::{Gtpu, GtpuError, PORT, message_type};
use whimbrel_ids::{Instant, Teid};

use super::burst::NO_SESSION;
use super::inner::InnerPacket;
use super::packet::Packet;
use super::stages::Ingress;
use super::{Destination, DropReason, Origin, PacketVerdict, UpfU, run_in};
use crate::exchange::{SessionKey, UserPlaneReport};
use crate::rules::SessionKind;

/// TEID of messages that are about no tunnel (TS 29.281 §5.1).
const NO_TUNNEL: Teid = Teid(0);

impl UpfU {
    pub(super) fn datagram(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        local: IpAddr,
        hops: u8,
        packet: &mut Packet,
    ) -> PacketVerdict {
        let back = Destination::N3 { peer, tos: 0 };
        if self.shared.guard.is_ue(peer.ip()) {
            return PacketVerdict::Drop(DropReason::GtpuFromUe);
        }
        let m = match Gtpu::parse(packet.octets()) {
            Ok(m) => m,
            Err(GtpuError::Malformed(_)) => {
                return match echo_response_sequence(packet.octets()) {
                    None => PacketVerdict::Drop(DropReason::GtpuMalformed),
                    sequence => self.echo_response(now, peer.ip(), sequence),
                };
            }
            Err(GtpuError::UnknownExtension(_)) => {
                return self.with_unknown_extension(now, (peer, local), hops, packet);
            }
        };
        match m.message_type {
            message_type::G_PDU => {
                let ingress = Ingress { teid: m.teid, container: m.pdu_session };
                let (at, end) = (m.payload_at, m.payload_at + m.payload.len());
                packet.truncate(end);
                self.g_pdu(now, (peer, local), hops, ingress, at, packet)
            }
            message_type::END_MARKER => {
                let (teid, end) = (m.teid, m.payload_at + m.payload.len());
                packet.truncate(end);
                self.end_marker(now, teid, peer.ip(), hops, packet)
            }
            message_type::ECHO_REQUEST => {
                let sequence = m.sequence.unwrap_or(0);
                if !self.shared.common.may_answer_echo(now) {
                    return PacketVerdict::Drop(DropReason::EchoRate);
                }
                self.shared.counters.echo_requests += 1;
                self.shared.send_octets(back, echo_response(sequence).as_ref());
                PacketVerdict::Taken
            }
            message_type::ECHO_RESPONSE => {
                let sequence = m.sequence;
                self.echo_response(now, peer.ip(), sequence)
            }
            message_type::ERROR_INDICATION => match ErrorIndication::parse(m.payload) {
                // It comes from where the packet went (TS 29.281 §7.3.1); from elsewhere it is forged.
                Ok(e) if e.peer != peer.ip() => PacketVerdict::Drop(DropReason::ErrorIndicationForged),
                Ok(e) => self.tunnel_lost(e, hops),
                Err(_) => PacketVerdict::Drop(DropReason::GtpuMalformed),
            },
            _ => PacketVerdict::Drop(DropReason::GtpuUnexpected),
        }
    }

    /// A message with an extension header that the endpoint of a tunnel must understand. A forwarding tunnel has its endpoint elsewhere: there
    /// the message goes on unless an intermediate node must understand the header, too (TS 29.281 §5.2.1).
    #[cold]
    fn with_unknown_extension(
        &mut self,
        now: Instant,
        (peer, local): (SocketAddr, IpAddr),
        hops: u8,
        packet: &mut Packet,
    ) -> PacketVerdict {
        if let Ok(m) = Gtpu::parse_in_transit(packet.octets())
            && matches!(m.message_type, message_type::G_PDU | message_type::END_MARKER)
        {
            if let Err(handed) = self.index_of(m.teid, hops) {
                return handed;
            }
            let ingress = Ingress { teid: m.teid, container: m.pdu_session };
            let (kind, at, end) = (m.message_type, m.payload_at, m.payload_at + m.payload.len());
            let relays = self.tunnel(m.teid).is_some_and(|(index, place)| {
                self.sessions.full(index).is_some_and(|s| s.rules.is_relay(place))
            });
            if relays {
                packet.truncate(end);
                return match kind {
                    message_type::G_PDU => self.g_pdu(now, (peer, local), hops, ingress, at, packet),
                    _ => self.end_marker(now, ingress.teid, peer.ip(), hops, packet),
                };
            }
        }
        if self.shared.common.may_send_error(now) {
            let back = Destination::N3 { peer, tos: 0 };
            self.shared.send_octets(back, supported_extension_headers_notification(0).as_ref());
        }
        PacketVerdict::Drop(DropReason::GtpuUnknownExtension)
    }

    fn g_pdu(
        &mut self,
        now: Instant,
        (peer, local): (SocketAddr, IpAddr),
        hops: u8,
        ingress: Ingress,
        payload_at: usize,
        packet: &mut Packet,
    ) -> PacketVerdict {
        let index = match self.index_of(ingress.teid, hops) {
            Ok(index) => index,
            Err(handed) => return handed,
        };
        let Some((index, place)) = self.place(now, index, ingress.teid, peer.ip()) else {
            if self.strays.are_kept() && ingress.teid != NO_TUNNEL {
                return self.keep_stray(
                    now,
                    SessionKey::Tunnel(ingress.teid),
                    Origin::N3 { peer, local },
                    packet,
                );
            }
            return self.unknown_tunnel(now, (peer, local), ingress.teid);
        };
        let payload = packet.octets().get(payload_at..).unwrap_or_default();
        if self.sessions.full(index).is_none() && InnerPacket::parse(payload).is_none() {
            return PacketVerdict::Drop(DropReason::InnerMalformed); // of a plain session: for that it is not unfolded
        }
        if self.predictions.awaits(index) {
            self.may_have_moved(now, index, ingress.teid, peer.ip());
        }
        if !self.is_placed(now, index, ingress.teid, peer.ip()) {
            return self.await_place(now, index, ingress.teid, (peer, local), packet);
        }
        // Those that waited go first, where another session has named the gNB meanwhile.
        if self.unplaced.has_any_from(index, peer.ip()) {
            self.place_waiting(now, index);
        }
        let Some(session) = self.sessions.get(index) else {
            return self.unknown_tunnel(now, (peer, local), ingress.teid);
        };
        if session.rules.relays != 0 || session.rules.kind != SessionKind::Ip {
            return self.not_plain(now, (index, place), ingress, payload_at, packet);
        }
        packet.pull(payload_at);
        let Some(inner) = InnerPacket::parse(packet.octets()) else {
            return PacketVerdict::Drop(DropReason::InnerMalformed);
        };
        packet.truncate(inner.octets);
        let verdict = run_in(session, &mut self.shared, now, ingress, &inner, packet);
        self.after(now, index, verdict);
        verdict
    }

    /// A local tunnel's session and its place there. The session, or the tunnel, may begin with this packet.
    fn place(&mut self, now: Instant, index: u32, teid: Teid, peer: IpAddr) -> Option<(u32, usize)> {
        let found = self.sessions.place(index, teid);
        if found.is_some()
            || self.predictions.is_empty(now)
            || !self.comes_true(now, SessionKey::Tunnel(teid), Some(peer))
        {
            return found.map(|place| (index, place));
        }
        self.tunnel(teid)
    }

    /// A G-PDU of a session that is not of IP, or whose packets are forwarded from gNB to gNB.
    #[cold]
    fn not_plain(
        &mut self,
        now: Instant,
        (index, place): (u32, usize),
        ingress: Ingress,
        payload_at: usize,
        packet: &mut Packet,
    ) -> PacketVerdict {
        let session = self.sessions.get(index);
        let (relay, kind) =
            session.map_or_else(Default::default, |s| (s.rules.is_relay(place), s.rules.kind));
        if relay && packet.len() > payload_at {
            return self.relay(now, index, ingress, packet);
        }
        packet.pull(payload_at);
        match kind {
            SessionKind::Ip => {}
            SessionKind::Ethernet => return self.frame_from_ue(now, index, ingress, packet),
            SessionKind::Unstructured => return self.octets_from_ue(now, index, ingress, packet),
        }
        let Some(inner) = InnerPacket::parse(packet.octets()) else {
            return PacketVerdict::Drop(DropReason::InnerMalformed);
        };
        packet.truncate(inner.octets);
        self.in_session(now, index, ingress, &inner, packet)
    }

    /// Sends an Error Indication to the peer's GTP-U port, whatever port the packet came from (TS 29.281 §4.4.2.3, §7.3.1; TS 23.527
    /// §5.3.2); none about TEID zero, which names no tunnel.
    #[cold]
    pub(super) fn unknown_tunnel(
        &mut self,
        now: Instant,
        (peer, local): (SocketAddr, IpAddr),
        teid: Teid,
    ) -> PacketVerdict {
        let wrong = self.shared.guesses.wrong(now, peer.ip());
        self.shared.counters.peers_suspended += u64::from(wrong.suspends);
        if wrong.indicate && teid != NO_TUNNEL && self.shared.common.may_send_error(now) {
            let to = Destination::N3 { peer: SocketAddr::new(peer.ip(), PORT), tos: 0 };
            self.shared.send_octets(to, error_indication(teid, local, peer.port()).as_ref());
            self.shared.counters.error_indications_sent += 1;
        }
        PacketVerdict::Drop(DropReason::UnknownTunnel)
    }

    /// The session of a local tunnel, and the tunnel's place in it.
    pub(super) fn tunnel(&self, teid: Teid) -> Option<(u32, usize)> {
        let index = match &self.smf_teids {
            Some(teids) => teids.get(teid)?,
            None => self.teids.index_of(teid),
        };
        let place = self.sessions.place(index, teid)?;
        Some((index, place))
    }

    /// The index of the session that a local tunnel is of, if it is of any. Errors: the packet goes to the shard of the tunnel, or to the next one to be
    /// asked whose it is.
    #[inline]
    pub(super) fn index_of(&self, teid: Teid, hops: u8) -> Result<u32, PacketVerdict> {
        let Some(teids) = &self.smf_teids else {
            let index = self.teids.index_of(teid);
            return if self.shard.is_own(index) { Ok(index) } else { Err(self.hand(index)) };
        };
        match teids.get(teid) {
            Some(index) => Ok(index),
            None => self.ask_next(hops).map_or(Ok(NO_SESSION), Err),
        }
    }

    /// TS 23.527 §5.3, §5.3.1: a peer does not know a tunnel: reported to the SMF, once until the rules change.
    fn tunnel_lost(&mut self, e: ErrorIndication, hops: u8) -> PacketVerdict {
        let index = self.remote.get(&(e.teid, e.peer));
        let session = index.and_then(|i| self.sessions.get(*i));
        let Some(session) = session else {
            return self.ask_next(hops).unwrap_or(PacketVerdict::Drop(DropReason::UnknownTunnel));
        };
        self.shared.counters.error_indications_received += 1;
        if !std::mem::replace(&mut session.state.error_reported, true) {
            self.shared.report(UserPlaneReport::ErrorIndication {
                session: session.state.id(),
                teid: e.teid,
                peer: e.peer,
            });
        }
        PacketVerdict::Taken
    }
}
