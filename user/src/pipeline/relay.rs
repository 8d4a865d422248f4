//! Forwarding tunnels of a handover: what one gNB sends into them goes on to another, as it is.
//!
//! Spec: TS 29.281 §5.2.2.2, TS 23.502 §4.9.1.3.2 steps 11 and 12 and §4.11.1.2.1 (indirect data forwarding), TS 23.501 §5.8.2.9 (end
//! markers), TS 29.244 §8.2.64 (extension headers are carried on), TS 29.281 §5.2.1.
//!
//! How a CP function asks for one, in a Session Modification Request of the session that is handed over:
//!
//! - Create FAR: FORW; Forwarding Parameters: Destination Interface *Access*, Outer Header Creation GTP-U with the
//!   target gNB's forwarding tunnel (DL Forwarding UP TNL Information of its HANDOVER REQUEST ACKNOWLEDGE);
//! - Create PDR: PDI with Source Interface *Access* and F-TEID *CHOOSE*, no SDF filter, no UE address (the 3GPP interface
//!   type may say "N3 for data forwarding"); Outer Header Removal GTP-U/UDP/IP; that FAR; no QER and no URR.
//!
//! The answer's Created PDR has the F-TEID for the source gNB (HANDOVER COMMAND). Remove PDR and Remove FAR end it; the
//! clause grants packets under way a timer, which is the CP function's. Uplink forwarding is the same in the other
//! direction. A session has [`crate::TUNNELS_PER_SESSION_MAX`] local tunnels at once.
//!
//! A packet keeps its GTP-U header but for the TEID, with its extension headers: the PDU session container in the
//! direction that it has, the PDCP numbers that the gNBs tell each other, and types that the UPF does not know. Those whose type says that an
//! intermediate node does not forward them are removed (TS 29.281 §5.2.1). What is inside is not looked at, for
//! forwarded packets of a data radio bearer need not be IP. End markers go the same way, and so behind what they end.
//!
//! On the session's own tunnels an end marker goes on to where the rule's packets go, if that is a tunnel (an
//! intermediate UPF's), and is otherwise dropped.

use std::net::IpAddr;

use whimbrel_gtpu::{GpduHeader, remove_extensions_in_transit};
use whimbrel_ids::{Instant, Teid};
use whimbrel_pfcp::ie::ApplyAction;

use super::packet::Packet;
use super::stages::{self, Ingress};
use super::{Destination, DropReason, PacketVerdict, UpfU};
use crate::rules::PeerTunnel;

/// Where the TEID stands in a GTP-U header (TS 29.281 §5.1).
const TEID_AT: std::ops::Range<usize> = 4..8;

impl UpfU {
    /// A G-PDU of a forwarding tunnel, with its GTP-U header, cut to its own length.
    pub(super) fn relay(
        &mut self,
        now: Instant,
        index: u32,
        ingress: Ingress,
        packet: &mut Packet,
    ) -> PacketVerdict {
        let Some(session) = self.sessions.get(index) else {
            return PacketVerdict::Drop(DropReason::UnknownTunnel);
        };
        let (rules, state) = (&session.rules, &mut session.state);
        let of_tunnel = rules.pdrs.iter().filter(|p| p.teid == ingress.teid);
        let Some(pdr) = of_tunnel.clone().find(|p| p.accepts(ingress.qfi())) else {
            let mismatch = of_tunnel.clone().next().is_some();
            return PacketVerdict::Drop(if mismatch {
                DropReason::QfiMismatch
            } else {
                DropReason::NoMatchingPdr
            });
        };
        let Some((far, tunnel)) = rules.fars.get(usize::from(pdr.far)).and_then(|f| Some((f, f.tunnel?)))
        else {
            return PacketVerdict::Drop(DropReason::NoTunnel);
        };
        let octets = packet.len();
        if let Err(reason) = stages::enforce(state, rules, pdr, now, false, octets) {
            return PacketVerdict::Drop(reason);
        }
        stages::account(state, &mut self.shared, rules, pdr, now, false, octets);
        if !readdress(packet, tunnel.teid) {
            return PacketVerdict::Drop(DropReason::GtpuMalformed);
        }
        self.shared.counters.relayed += 1;
        PacketVerdict::Send(Destination::N3 { peer: tunnel.peer, tos: far.tos })
    }

    /// An end marker: behind the packets that it ends, to where they went.
    pub(super) fn end_marker(
        &mut self,
        now: Instant,
        teid: Teid,
        peer: IpAddr,
        hops: u8,
        packet: &mut Packet,
    ) -> PacketVerdict {
        if let Err(handed) = self.index_of(teid, hops) {
            return handed;
        }
        self.shared.counters.end_markers_received += 1;
        let Some((index, place)) = self.tunnel(teid) else {
            return PacketVerdict::Drop(DropReason::UnknownTunnel); // without an error indication: TS 29.281 §7.3.1
        };
        if self.sessions.hot(index).is_some_and(|hot| hot.leads_out()) {
            return PacketVerdict::Drop(DropReason::EndMarkerIgnored); // of a plain session: for that it is not unfolded
        }
        let placed = self.is_placed(now, index, teid, peer);
        let Some(session) = self.sessions.get(index) else {
            return PacketVerdict::Drop(DropReason::UnknownTunnel);
        };
        let rules = &session.rules;
        let far = rules.pdrs.iter().find(|p| p.teid == teid).and_then(|p| rules.fars.get(usize::from(p.far)));
        let onwards = far.filter(|f| f.action.has(ApplyAction::FORW)).and_then(|f| Some((f.tunnel?, f.tos)));
        let Some((PeerTunnel { teid, peer }, tos)) = onwards else {
            return PacketVerdict::Drop(DropReason::EndMarkerIgnored);
        };
        if !placed {
            return PacketVerdict::Drop(DropReason::GtpuForeignPeer);
        }
        if rules.is_relay(place) {
            if !readdress(packet, teid) {
                return PacketVerdict::Drop(DropReason::GtpuMalformed);
            }
        } else {
            let header = GpduHeader::new(teid, None);
            packet.fill(&header.end_marker()[..header.octets_len()]);
        }
        self.shared.counters.end_markers_relayed += 1;
        PacketVerdict::Send(Destination::N3 { peer, tos })
    }
}

/// Writes another TEID, and removes extension headers that are not forwarded; false if there is no header.
fn readdress(packet: &mut Packet, teid: Teid) -> bool {
    let removed = remove_extensions_in_transit(packet.octets_mut());
    packet.pull(removed);
    match packet.octets_mut().get_mut(TEID_AT) {
        Some(at) => {
            at.copy_from_slice(&teid.0.to_be_bytes());
            true
        }
        None => false,
    }
}
