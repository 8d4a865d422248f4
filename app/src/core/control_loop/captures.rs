//! What of N2, N3 and N4 goes into the capture file.

use whimbrel_control::AssociationId;
use whimbrel_ids::Instant;
use whimbrel_ngap::to_per;

use super::ControlLoop;

impl ControlLoop {
    pub(super) fn capture_ngap(
        &mut self,
        now: Instant,
        name: AssociationId,
        stream: u16,
        octets: &[u8],
        inbound: bool,
    ) {
        let (Some(capture), Some(link)) = (&mut self.capture, self.n2.links.get(name)) else { return };
        let own = self.config.n2.addresses.iter().find(|a| a.is_ipv4() == link.peer.is_ipv4());
        let Some(own) = own.or(self.config.n2.addresses.first()) else { return };
        let own = std::net::SocketAddr::new(*own, self.config.n2.port);
        let (from, to) = if inbound { (link.peer, own) } else { (own, link.peer) };
        // Dissectors read PER only.
        let per = to_per(octets);
        capture.ngap(now, from, to, stream, per.as_deref().unwrap_or(octets));
    }

    /// PFCP with the UPF of this process, which crosses no socket.
    pub(super) fn capture_pfcp(&mut self, now: Instant, octets: &[u8], answer: bool) {
        let (Some(capture), Some(upf)) = (&mut self.capture, &self.upfs.local) else { return };
        let (smf, upf) = upf.ends();
        let (from, to) = if answer { (upf, smf) } else { (smf, upf) };
        capture.udp(now, from, to, octets);
    }

    /// N3, and N4 with external SMFs.
    pub(super) fn capture_datagrams(&mut self) {
        let (Some(capture), Some(upf)) = (&mut self.capture, &mut self.upfs.local) else { return };
        for datagram in upf.take_tapped() {
            capture.udp(datagram.at, datagram.from, datagram.to, &datagram.octets);
        }
    }
}
