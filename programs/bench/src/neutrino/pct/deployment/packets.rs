//! The user plane of the deployment: packets of UEs' applications through their gNB's tunnel and the UPF's pipeline to a host of the data network,
//! and back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use whimbrel_ids::PduSessionId;
use whimbrel_ran::{UeId as RadioUe, gnb};
use whimbrel_user::{BurstPacket, Destination, DnIndex, Origin, Outbox, Packet, PacketVerdict};

use super::super::apps::{App, Note, Says};
use super::{Deployment, SERVER, Travelling};
use crate::upf::smf::udp4;

/// Headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// Bits a second of a UE's radio downwards.
const RADIO_BPS: u64 = 100_000_000;
/// The data network that UEs' sessions lead to.
const DN: DnIndex = DnIndex(0);

/// A packet under way.
pub(super) enum Carried {
    /// An application of a UE has something to send.
    Wakes(u32),
    /// A gNB's datagram reaches the UPF.
    Uplink { gnb: usize, local: IpAddr, datagram: Vec<u8> },
    /// A packet reaches the host.
    AtHost(Vec<u8>),
    /// A packet of the host reaches the UPF.
    Downlink(Vec<u8>),
    /// A datagram of the UPF reaches a gNB.
    AtGnb { gnb: usize, datagram: Vec<u8> },
    /// A packet reaches a UE.
    AtUe(u32, Note),
}

/// An application, and the UE's packets that wait for a path.
struct Running {
    app: App,
    begins: u64,
    session: PduSessionId,
    address: Ipv4Addr,
    waiting: Vec<Vec<u8>>,
    /// Until then the UE's radio is busy downwards.
    radio_until: u64,
}

/// The applications of UEs.
#[derive(Default)]
pub(in super::super) struct UserPlane {
    running: std::collections::BTreeMap<u32, Running>,
    ues: std::collections::BTreeMap<Ipv4Addr, u32>,
    /// One way between UPF and host, in nanoseconds.
    pub(in super::super) host_ns: u64,
    /// What a UE has to send waits while it is at a procedure, and not only while its gNB has no path for it.
    pub(in super::super) waits_for_procedures: bool,
    /// Packets that the UPF dropped.
    pub(in super::super) dropped: u64,
}

impl Deployment {
    /// An application of a UE begins so many nanoseconds after the next measurement does. The UE has a session.
    pub(in super::super) fn install(&mut self, n: u32, begins: u64, app: App) {
        let session = self.ues[n as usize].ue.sessions().find_map(|s| Some((s.id, s.ipv4?)));
        let Some((session, address)) = session else { return };
        let running = Running { app, begins, session, address, waiting: Vec::new(), radio_until: 0 };
        self.user_plane.ues.insert(address, n);
        self.user_plane.running.insert(n, running);
    }

    /// The applications, which are gone afterwards.
    pub(in super::super) fn uninstall(&mut self) -> impl Iterator<Item = (u32, App)> {
        self.user_plane.ues.clear();
        std::mem::take(&mut self.user_plane.running).into_iter().map(|(n, running)| (n, running.app))
    }

    /// They begin, counted from this time.
    pub(super) fn applications_begin(&mut self, from: u64) {
        let all: Vec<_> = self.user_plane.running.iter().map(|(n, r)| (*n, from + r.begins)).collect();
        all.into_iter().for_each(|(n, at)| self.send(at, Travelling::Packet(Carried::Wakes(n))));
    }

    pub(super) fn packet(&mut self, carried: Carried) {
        match carried {
            Carried::Wakes(n) => {
                let under_way = self.progress.is_under_way(n);
                let Some(running) = self.user_plane.running.get_mut(&n) else { return };
                let (says, again) = running.app.wakes(self.now, under_way);
                if let Some(after) = again {
                    self.send(self.now + after, Travelling::Packet(Carried::Wakes(n)));
                }
                self.ue_sends(n, says);
            }
            Carried::Uplink { gnb, local, datagram } => {
                let peer = SocketAddr::new(self.gnbs[gnb].config().gtp_address, whimbrel_gtpu::PORT);
                self.at_upf(Origin::N3 { peer, local }, &datagram);
            }
            Carried::AtHost(packet) => self.at_host(&packet),
            Carried::Downlink(packet) => self.at_upf(Origin::N6 { dn: DN }, &packet),
            Carried::AtGnb { gnb, datagram } => {
                let source = (self.upf_address(), whimbrel_gtpu::PORT);
                self.gnb(gnb, gnb::Input::Gtpu { source, datagram: &datagram });
            }
            Carried::AtUe(n, note) => {
                let Some(running) = self.user_plane.running.get_mut(&n) else { return };
                if let Some(says) = running.app.ue_gets(self.now, note) {
                    self.ue_sends(n, says);
                }
            }
        }
    }

    fn ue_sends(&mut self, n: u32, says: Says) {
        let Some(running) = self.user_plane.running.get_mut(&n) else { return };
        running.waiting.push(packet(running.address, SERVER, says));
        self.path_may_stand(n);
    }

    /// What a UE has to send leaves if there is a path: through the tunnel of the gNB at which it is.
    pub(super) fn path_may_stand(&mut self, n: u32) {
        let Some(running) = self.user_plane.running.get_mut(&n).filter(|r| !r.waiting.is_empty()) else {
            return;
        };
        if self.user_plane.waits_for_procedures && self.progress.is_under_way(n) {
            return;
        }
        let at = self.ues[n as usize].gnb;
        let gnb = &self.gnbs[at];
        let mut leaving = Vec::new();
        running.waiting.retain(|packet| {
            let mut datagram = vec![0; gnb::GTPU_HEADROOM];
            datagram.extend_from_slice(packet);
            let tunnel =
                gnb.encapsulate(RadioUe(n), running.session, None, &mut datagram, gnb::GTPU_HEADROOM);
            let Some((local, begin)) = tunnel else { return true };
            datagram.drain(..begin);
            leaving.push(Carried::Uplink { gnb: at, local, datagram });
            false
        });
        let there = self.there(self.now);
        leaving.into_iter().for_each(|carried| self.send(there, Travelling::Packet(carried)));
    }

    fn upf_address(&self) -> IpAddr {
        self.upf_at.into()
    }

    /// The pipeline takes a packet, and what it decides is done.
    fn at_upf(&mut self, origin: Origin, octets: &[u8]) {
        let now = self.instant();
        let mut slot = [BurstPacket { origin, packet: Packet::of(octets), verdict: PacketVerdict::Pending }];
        self.upf.u.burst(now, &mut slot);
        let mut out = Outbox::default();
        self.upf.settle(now, &mut out);
        let there = self.there(self.now);
        out.datagrams.into_iter().for_each(|(_, octets)| self.send(there, Travelling::Pfcp(octets)));
        while let Some((to, packet)) = self.upf.u.next_output() {
            self.leaves_upf(to, packet.octets());
            self.upf.u.recycle(packet);
        }
        let [slot] = slot;
        match slot.verdict {
            PacketVerdict::Send(to) => self.leaves_upf(to, slot.packet.octets()),
            PacketVerdict::Drop(_) => self.user_plane.dropped += 1,
            _ => {}
        }
    }

    fn leaves_upf(&mut self, to: Destination, octets: &[u8]) {
        let octets = octets.to_vec();
        match to {
            Destination::N6 { .. } => {
                let there = self.now + self.user_plane.host_ns;
                self.send(there, Travelling::Packet(Carried::AtHost(octets)));
            }
            Destination::N3 { peer, .. } => {
                let gnb = self.gnbs.iter().position(|g| g.config().gtp_address == peer.ip());
                let there = self.there(self.now);
                if let Some(gnb) = gnb {
                    self.send(there, Travelling::Packet(Carried::AtGnb { gnb, datagram: octets }));
                }
            }
            Destination::Frames { .. } => {}
        }
    }

    fn at_host(&mut self, received: &[u8]) {
        let Some((source, note)) = read(received) else { return };
        let Some(&n) = self.user_plane.ues.get(&source) else { return };
        let Some(running) = self.user_plane.running.get_mut(&n) else { return };
        let answers = running.app.host_gets(self.now, note);
        let there = self.now + self.user_plane.host_ns;
        for says in answers {
            let packet = packet(SERVER, source, says);
            self.send(there + says.after, Travelling::Packet(Carried::Downlink(packet)));
        }
    }

    /// A gNB hands a packet to a UE: it is there when the radio has carried it.
    pub(super) fn over_radio(&mut self, n: u32, octets: &[u8]) {
        let Some((_, note)) = read(octets) else { return };
        let Some(running) = self.user_plane.running.get_mut(&n) else { return };
        let takes = octets.len() as u64 * 8 * 1_000_000_000 / RADIO_BPS;
        running.radio_until = running.radio_until.max(self.now) + takes;
        let at = running.radio_until;
        self.send(at, Travelling::Packet(Carried::AtUe(n, note)));
    }
}

fn packet(source: Ipv4Addr, destination: Ipv4Addr, says: Says) -> Vec<u8> {
    let mut packet = udp4(source, destination, (5000, 5000), says.octets);
    packet[HEADERS..][..Note::OCTETS].copy_from_slice(&says.note.octets());
    packet
}

/// Where a packet comes from, and what it says.
fn read(packet: &[u8]) -> Option<(Ipv4Addr, Note)> {
    let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    Some((source.into(), Note::read(packet.get(HEADERS..)?)?))
}
