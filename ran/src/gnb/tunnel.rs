//! The user plane of a gNB: packets of phones into tunnels and out of them (TS 29.281, TS 38.415).

use core::net::IpAddr;

use whimbrel_gtpu::{GpduHeader, Gtpu, GtpuError, PduSessionInformation, message_type, signalling};
use whimbrel_ids::{PduSessionId, Qfi, Teid};

use super::Gnb;
use crate::radio::PhoneId;

/// Room to leave before a packet for the header of its tunnel.
pub const GTPU_HEADROOM: usize = whimbrel_gtpu::HEADER_OCTETS_MAX;

/// A session whose radio bearers and tunnel stand.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: PduSessionId,
    pub(super) downlink_teid: Teid,
    peer: IpAddr,
    qfi: Qfi,
    header: GpduHeader,
}

impl Session {
    pub(super) fn new(
        id: PduSessionId,
        downlink_teid: Teid,
        peer: IpAddr,
        uplink_teid: Teid,
        qfi: Qfi,
    ) -> Self {
        let header = GpduHeader::new(uplink_teid, Some(PduSessionInformation::Ul { qfi }));
        Self { id, downlink_teid, peer, qfi, header }
    }

    /// Uplink packets go elsewhere from now on.
    pub(super) fn redirect(&mut self, peer: IpAddr, uplink_teid: Teid) {
        self.peer = peer;
        self.header = GpduHeader::new(uplink_teid, Some(PduSessionInformation::Ul { qfi: self.qfi }));
    }
}

/// What a GTP-U datagram was for.
#[derive(Debug)]
pub enum Downlink<'a> {
    /// A packet for a phone.
    Packet {
        /// The phone.
        phone: PhoneId,
        /// Its session.
        session: PduSessionId,
        /// The QoS flow, if the datagram told.
        qfi: Option<Qfi>,
        /// The packet.
        packet: &'a [u8],
    },
    /// To be sent back to where the datagram came from: echo response, error indication for an unknown tunnel.
    Answer(signalling::Octets),
    /// The peer does not know the tunnel into which a phone's packet was sent.
    PeerHasNoTunnel {
        /// The tunnel, as the peer was told of it.
        teid: Teid,
    },
    /// Nothing to be done: echo response, end marker, and so on.
    Nothing,
    /// It cannot be read.
    Malformed(GtpuError),
}

impl Gnb {
    /// Writes the tunnel's header before a phone's packet: `buffer[..at]` is headroom of at least [`GTPU_HEADROOM`]
    /// octets, the packet begins at `at`. Returns the peer's address and where the datagram begins; `None` if the session
    /// has no tunnel now.
    pub fn encapsulate(
        &self,
        phone: PhoneId,
        session: PduSessionId,
        buffer: &mut [u8],
        at: usize,
    ) -> Option<(IpAddr, usize)> {
        let session = self.of_phone(phone)?.sessions.iter().find(|s| s.id == session)?;
        let payload_len = buffer.len().checked_sub(at)?;
        let taken = session.header.write_before(payload_len, buffer.get_mut(..at)?)?;
        Some((session.peer, at - taken))
    }

    /// Says what a datagram from port 2152 is for. `source_port` is its sender's.
    pub fn decapsulate<'a>(&self, datagram: &'a [u8], source_port: u16) -> Downlink<'a> {
        let gtpu = match Gtpu::parse(datagram) {
            Ok(gtpu) => gtpu,
            Err(e) => return Downlink::Malformed(e),
        };
        match gtpu.message_type {
            message_type::G_PDU => match self.tunnels.get(gtpu.teid.0) {
                Some(&(phone, session)) => {
                    let qfi = gtpu.pdu_session.map(PduSessionInformation::qfi);
                    Downlink::Packet { phone, session, qfi, packet: gtpu.payload }
                }
                None => Downlink::Answer(signalling::error_indication(
                    gtpu.teid,
                    self.config.gtp_address,
                    source_port,
                )),
            },
            message_type::ECHO_REQUEST => {
                Downlink::Answer(signalling::echo_response(gtpu.sequence.unwrap_or_default()))
            }
            message_type::ERROR_INDICATION => match signalling::ErrorIndication::parse(gtpu.payload) {
                Ok(m) => Downlink::PeerHasNoTunnel { teid: m.teid },
                Err(e) => Downlink::Malformed(e.into()),
            },
            _ => Downlink::Nothing,
        }
    }
}
