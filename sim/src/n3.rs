//! User packets on N3, if a test asks for it: from the UPF to gNBs, between gNBs, and to the UEs.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_control::UpfId;
use whimbrel_gtpu::{HEADER_OCTETS_MAX, PORT};
use whimbrel_ids::PduSessionId;
use whimbrel_ran::UeId;
use whimbrel_user::{Destination, Origin};

use crate::traffic::{udp, udp_from};
use crate::unit::UpfInput;
use crate::{InFlight, Sim, UeIndex, gnb};

/// The latency of N3: longer than N2, so that messages about a tunnel overtake the packets in it.
pub const N3_LATENCY: Duration = Duration::from_millis(1);

/// A datagram in flight.
#[derive(Debug)]
pub(crate) struct N3Datagram {
    from: IpAddr,
    to: IpAddr,
    octets: Vec<u8>,
}

/// The packets that UEs have received, and those that the data network has.
#[derive(Debug, Default)]
pub(crate) struct ReceivedPackets {
    by_ues: Vec<(UeIndex, u32)>,
    by_network: Vec<u32>,
}

impl Sim {
    /// Datagrams travel from now on.
    pub fn carry(&mut self) {
        self.user_plane.received.get_or_insert_default();
    }

    /// The data network sends a packet of this number to a UE's session.
    pub fn send_down(&mut self, ue: UeIndex, session: PduSessionId, number: u32) {
        let info = self.ue_ref(ue).sessions().find(|s| s.id == session);
        let Some(to) = info.and_then(|s| s.ipv4) else { return };
        let (dn, upf) = (self.network_of(ue, session), self.upf_of(to));
        self.reaches_upf(upf, vec![(Origin::N6 { dn }, udp(to, &number.to_be_bytes()))]);
        self.upfs_send();
    }

    /// A UE sends a packet of this number to the data network, if its gNB has a tunnel for it now. Returns whether it did.
    pub fn send_up(&mut self, ue: UeIndex, session: PduSessionId, number: u32) -> bool {
        let info = self.ue_ref(ue).sessions().find(|s| s.id == session);
        let Some(from) = info.and_then(|s| s.ipv4) else { return false };
        let packet = udp_from(from, &number.to_be_bytes());
        let mut datagram = [vec![0; HEADER_OCTETS_MAX], packet].concat();
        let gnb = self.gnb_ref(self.gnb_of(ue));
        let address = gnb.config().gtp_address;
        let sent = gnb.encapsulate(UeId(ue.0 as u32), session, None, &mut datagram, HEADER_OCTETS_MAX);
        if let Some((to, at)) = sent {
            self.datagram(address, to, datagram.split_off(at));
        }
        sent.is_some()
    }

    /// The numbers of the packets that the data network has got, in order, since the last call.
    pub fn received_by_network(&mut self) -> Vec<u32> {
        self.user_plane.received.as_mut().map(|r| std::mem::take(&mut r.by_network)).unwrap_or_default()
    }

    /// The numbers of the packets that a UE has got, in order, since the last call.
    pub fn received(&mut self, ue: UeIndex) -> Vec<u32> {
        let Some(ReceivedPackets { by_ues, .. }) = &mut self.user_plane.received else { return Vec::new() };
        by_ues.extract_if(.., |(to, _)| *to == ue).map(|(_, number)| number).collect()
    }

    /// All that UEs have got since the last call, in order.
    pub(crate) fn all_received(&mut self) -> Vec<(UeIndex, u32)> {
        self.user_plane.received.as_mut().map(|r| std::mem::take(&mut r.by_ues)).unwrap_or_default()
    }

    /// A burst of packets arrives at a UPF.
    pub(crate) fn reaches_upf(&mut self, id: UpfId, packets: Vec<(Origin, Vec<u8>)>) {
        let taken = self.upf_takes(id, UpfInput::Packets(packets));
        if let Some((UpfInput::Packets(packets), loss)) = taken {
            let out = self.upf_handles_packets(id, &packets, loss);
            self.n4(id, out);
        }
    }

    /// Sends the packets that UPFs send by themselves. How many there were.
    pub(crate) fn upfs_send(&mut self) -> u64 {
        let mut sent = 0;
        if self.user_plane.received.is_none() {
            return sent;
        }
        for id in (0u8..).map(UpfId).take(self.user_plane.upfs.len()) {
            while let Some((to, packet)) = self.nth_upf(id).u.next_output() {
                self.leaves_upf(id, to, packet.octets());
                self.nth_upf(id).u.recycle(packet);
                sent += 1;
            }
        }
        sent
    }

    pub(crate) fn leaves_upf(&mut self, id: UpfId, to: Destination, octets: &[u8]) {
        match to {
            Destination::N3 { peer, .. } => self.datagram(upf_address(id), peer.ip(), octets.to_vec()),
            Destination::N6 { .. } | Destination::Frames { .. } => {
                if let (Some(received), Some(number)) = (&mut self.user_plane.received, octets.last_chunk()) {
                    received.by_network.push(u32::from_be_bytes(*number));
                }
            }
        }
    }

    fn datagram(&mut self, from: IpAddr, to: IpAddr, octets: Vec<u8>) {
        self.send(self.now + N3_LATENCY, InFlight::N3(N3Datagram { from, to, octets }));
    }

    /// A gNB sends a datagram.
    pub(crate) fn gnb_sends(&mut self, from: IpAddr, to: IpAddr, octets: Vec<u8>) {
        if self.user_plane.received.is_some() {
            self.datagram(from, to, octets);
        }
    }

    /// A gNB delivers a packet to a UE, which receives it if it is at that gNB.
    pub(crate) fn gnb_delivers(&mut self, ue: UeId, there: bool, packet: &[u8]) {
        if let (Some(ReceivedPackets { by_ues, .. }), true, Some(number)) =
            (&mut self.user_plane.received, there, packet.last_chunk())
        {
            by_ues.push((UeIndex(ue.0 as usize), u32::from_be_bytes(*number)));
        }
    }

    pub(crate) fn datagram_arrives(&mut self, N3Datagram { from, to, octets }: N3Datagram) {
        let gnb = self.ran.gnbs.iter().position(|n| n.gnb.config().gtp_address == to);
        if let Some(gnb) = gnb {
            let input = gnb::Input::Gtpu { source: (from, PORT), datagram: &octets };
            return self.gnb(crate::GnbIndex(gnb), input);
        }
        let upf = (0u8..).map(UpfId).take(self.user_plane.upfs.len()).find(|id| upf_address(*id) == to);
        if let Some(upf) = upf {
            let origin = Origin::N3 { peer: (from, PORT).into(), local: to };
            self.reaches_upf(upf, vec![(origin, octets)]);
        }
    }
}

fn upf_address(id: UpfId) -> IpAddr {
    crate::home::nth_upf_address(id.0).into()
}
