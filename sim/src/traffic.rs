//! Packets through the simulation's UPF: what wakes idle phones, and what shows that a path leads where the phone is.

use std::net::{IpAddr, Ipv4Addr};

use whimbrel_control::UpfId;
use whimbrel_ids::PduSessionId;
use whimbrel_user::{Destination, DnIndex, Origin, Outbox, Packet, Slot, Verdict};

use crate::{Sim, UeIndex};

impl Sim {
    /// The data network sends a packet to a phone's session. What the UPF decided; `None` if the session has no IPv4 address.
    pub fn downlink(&mut self, ue: UeIndex, session: PduSessionId) -> Option<Verdict> {
        let info = self.ue_ref(ue).sessions().find(|s| s.id == session)?;
        let to = info.ipv4?;
        let dn = info.dnn.as_ref().map_or("internet", |d| d.as_str());
        let dn = DnIndex(u8::from(dn == "ims"));
        let mut slots =
            [Slot { origin: Origin::N6 { dn }, packet: Packet::of(&udp(to)), verdict: Verdict::Pending }];
        let now = self.now();
        let id = self.upf_of(to);
        let upf = &mut self.upfs[usize::from(id.0)].upf;
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

    /// The UPF whose pools an address is of.
    fn upf_of(&self, address: Ipv4Addr) -> UpfId {
        UpfId((address.octets()[1] - 45) / 2)
    }

    /// Where a phone's packets go, once nothing is under way: to the gNB at which it is connected, or into the UPF's buffer.
    ///
    /// # Panics
    /// If they go elsewhere.
    pub fn check_path(&mut self, ue: UeIndex, session: PduSessionId) {
        let gnb = self.terminals[ue.0].gnb;
        let here: IpAddr = self.nodes[gnb.0].gnb.config().gtp_address;
        match self.downlink(ue, session) {
            Some(Verdict::Send(Destination::N3 { peer, .. })) => {
                assert_eq!(peer.ip(), here, "the packets of {ue:?} go to another gNB");
            }
            Some(Verdict::Taken) | None => {}
            other => panic!("the packets of {ue:?} go nowhere: {other:?}"),
        }
    }
}

/// An empty UDP packet from the data network.
fn udp(to: Ipv4Addr) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1];
    p.extend_from_slice(&to.octets());
    p.extend_from_slice(&[0, 7, 0, 7, 0, 8, 0, 0]);
    p
}
