//! The UPF of the experiment: PFCP octets go in and come out, and packets of the data network go in.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use whimbrel_ids::Instant;
use whimbrel_user::{BurstPacket, Config, DnIndex, Origin, Outbox, Packet, PacketVerdict, Upf};

use super::EPOCH;

/// Where the SMF's PFCP comes from.
const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8805);

/// A UPF without sockets.
pub(super) struct UpfNode(Box<Upf>);

impl UpfNode {
    pub(super) fn new(config: Config) -> io::Result<Self> {
        Upf::new(config, EPOCH).map(|upf| Self(Box::new(upf))).map_err(|e| io::Error::other(e.to_string()))
    }

    /// Takes a PFCP message, or a packet for a UE, which begins with the version of IPv4. `answer` gets each PFCP message that this causes.
    pub(super) fn handle(&mut self, octets: &[u8], mut answer: impl FnMut(&[u8])) {
        // No timer of the UPF is due within the experiment.
        let (now, mut out) = (Instant(EPOCH.0 + 1), Outbox::default());
        if octets.first().is_some_and(|octet| octet >> 4 == 4) {
            let origin = Origin::N6 { dn: DnIndex(0) };
            let mut slot =
                [BurstPacket { origin, packet: Packet::of(octets), verdict: PacketVerdict::Pending }];
            self.0.u.burst(now, &mut slot);
            self.0.settle(now, &mut out);
        } else {
            self.0.pfcp(now, SMF, octets, &mut out);
        }
        out.datagrams.iter().for_each(|(_, octets)| answer(octets));
        while let Some((_, packet)) = self.0.u.next_output() {
            self.0.u.recycle(packet);
        }
    }
}
