//! Packets through the simulation's UPF: they page idle UEs, and show that a path leads to the UE's gNB.

use std::net::{IpAddr, Ipv4Addr};

use whimbrel_control::UpfId;
use whimbrel_ids::PduSessionId;
use whimbrel_user::{BurstPacket, Destination, DnIndex, Origin, Outbox, Packet, PacketVerdict};

use crate::{Sim, UeIndex};

impl Sim {
    /// The data network sends a packet to a UE's session. What the UPF decided; `None` if the session has no IPv4 address, or no UPF
    /// runs.
    pub fn downlink(&mut self, ue: UeIndex, session: PduSessionId) -> Option<PacketVerdict> {
        let to = self.ue_ref(ue).sessions().find(|s| s.id == session)?.ipv4?;
        let dn = self.network_of(ue, session);
        let packet = Packet::of(&udp(to, &[]));
        let mut slots = [BurstPacket { origin: Origin::N6 { dn }, packet, verdict: PacketVerdict::Pending }];
        let now = self.now();
        let id = self.upf_of(to);
        if self.is_dead(id) {
            return None;
        }
        let upf = &mut self.user_plane.upfs[usize::from(id.0)].upf;
        upf.u.burst(now, &mut slots);
        let mut out = Outbox::default();
        upf.settle(now, &mut out);
        while let Some((_, packet)) = upf.u.next_output() {
            upf.u.recycle(packet);
        }
        self.n4(id, out);
        self.check();
        Some(slots[0].verdict)
    }

    /// The data network sends packets of 1,000 octets to a UE's session, one after the other. The octets that the UPF has forwarded.
    pub fn burst_down(&mut self, ue: UeIndex, session: PduSessionId, packets: usize) -> u64 {
        let Some(to) = self.ue_ref(ue).sessions().find(|s| s.id == session).and_then(|s| s.ipv4) else {
            return 0;
        };
        let dn = self.network_of(ue, session);
        let packet = udp(to, &[0; 972]);
        let (now, id) = (self.now(), self.upf_of(to));
        let mut forwarded = 0;
        for _ in 0..packets {
            let mut slots = [BurstPacket {
                origin: Origin::N6 { dn },
                packet: Packet::of(&packet),
                verdict: PacketVerdict::Pending,
            }];
            let upf = &mut self.user_plane.upfs[usize::from(id.0)].upf;
            upf.u.burst(now, &mut slots);
            if matches!(slots[0].verdict, PacketVerdict::Send(_)) {
                forwarded += packet.len() as u64;
            }
        }
        let mut out = Outbox::default();
        let upf = &mut self.user_plane.upfs[usize::from(id.0)].upf;
        upf.settle(now, &mut out);
        while let Some((_, packet)) = upf.u.next_output() {
            upf.u.recycle(packet);
        }
        self.n4(id, out);
        self.check();
        forwarded
    }

    /// The network of a session.
    pub(crate) fn network_of(&self, ue: UeIndex, session: PduSessionId) -> DnIndex {
        let info = self.ue_ref(ue).sessions().find(|s| s.id == session);
        let dn = info.and_then(|s| s.dnn.as_ref()).map_or("internet", |d| d.as_str());
        DnIndex(u8::from(dn == "ims"))
    }

    /// The UPF whose pools an address is of.
    pub(crate) fn upf_of(&self, address: Ipv4Addr) -> UpfId {
        UpfId((address.octets()[1] - 45) / 2)
    }

    /// Where a UE's packets go, once nothing is under way: to the gNB at which it is connected, or into the UPF's buffer.
    ///
    /// # Panics
    /// If they go elsewhere.
    pub fn check_path(&mut self, ue: UeIndex, session: PduSessionId) {
        let gnb = self.ran.ues[ue.0].gnb;
        let here: IpAddr = self.ran.gnbs[gnb.0].gnb.config().gtp_address;
        match self.downlink(ue, session) {
            Some(PacketVerdict::Send(Destination::N3 { peer, .. })) => {
                assert_eq!(peer.ip(), here, "the packets of {ue:?} go to another gNB");
            }
            Some(PacketVerdict::Taken) | None => {}
            other => panic!("the packets of {ue:?} go nowhere: {other:?}"),
        }
    }
}

/// A server of the data network.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A UDP packet from the data network.
pub fn udp(to: Ipv4Addr, content: &[u8]) -> Vec<u8> {
    datagram(SERVER, to, content)
}

/// A UDP packet to the data network.
pub(crate) fn udp_from(ue: Ipv4Addr, content: &[u8]) -> Vec<u8> {
    datagram(ue, SERVER, content)
}

fn datagram(from: Ipv4Addr, to: Ipv4Addr, content: &[u8]) -> Vec<u8> {
    let octets = content.len() as u16;
    let [[total_high, total], [high, low]] = [28 + octets, 8 + octets].map(u16::to_be_bytes);
    let mut p = vec![0x45, 0, total_high, total, 0, 0, 0, 0, 64, 17, 0, 0];
    p.extend_from_slice(&from.octets());
    p.extend_from_slice(&to.octets());
    p.extend_from_slice(&[0, 7, 0, 7, high, low, 0, 0]);
    p.extend_from_slice(content);
    p
}
