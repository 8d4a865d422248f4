//! User packets on N3, if a test asks for it: from the UPF to gNBs, between gNBs, and to the UEs.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_control::UpfId;
use whimbrel_gtpu::PORT;
use whimbrel_ids::PduSessionId;
use whimbrel_ran::UeId;
use whimbrel_user::{Destination, Origin};

use crate::traffic::udp;
use crate::unit::UpfInput;
use crate::{InFlight, Sim, UeIndex, gnb};

/// The latency of N3: longer than N2, so that messages about a tunnel overtake the packets in it.
pub const N3_LATENCY: Duration = Duration::from_millis(1);

/// A datagram in flight.
#[derive(Debug)]
pub(crate) struct Datagram {
    from: IpAddr,
    to: IpAddr,
    octets: Vec<u8>,
}

/// The packets that UEs have received.
#[derive(Debug, Default)]
pub(crate) struct Received(Vec<(UeIndex, u32)>);

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

    /// The numbers of the packets that a UE has got, in order, since the last call.
    pub fn received(&mut self, ue: UeIndex) -> Vec<u32> {
        let Some(Received(all)) = &mut self.user_plane.received else { return Vec::new() };
        all.extract_if(.., |(to, _)| *to == ue).map(|(_, number)| number).collect()
    }

    /// All that UEs have got since the last call, in order.
    pub(crate) fn all_received(&mut self) -> Vec<(UeIndex, u32)> {
        self.user_plane.received.as_mut().map(|Received(all)| std::mem::take(all)).unwrap_or_default()
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
        if let Destination::N3 { peer, .. } = to {
            self.datagram(upf_address(id), peer.ip(), octets.to_vec());
        }
    }

    fn datagram(&mut self, from: IpAddr, to: IpAddr, octets: Vec<u8>) {
        self.send(self.now + N3_LATENCY, InFlight::N3(Datagram { from, to, octets }));
    }

    /// A gNB sends a datagram.
    pub(crate) fn gnb_sends(&mut self, from: IpAddr, to: IpAddr, octets: Vec<u8>) {
        if self.user_plane.received.is_some() {
            self.datagram(from, to, octets);
        }
    }

    /// A gNB delivers a packet to a UE, which receives it if it is at that gNB.
    pub(crate) fn gnb_delivers(&mut self, ue: UeId, there: bool, packet: &[u8]) {
        if let (Some(Received(all)), true, Some(number)) =
            (&mut self.user_plane.received, there, packet.last_chunk())
        {
            all.push((UeIndex(ue.0 as usize), u32::from_be_bytes(*number)));
        }
    }

    pub(crate) fn datagram_arrives(&mut self, Datagram { from, to, octets }: Datagram) {
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
