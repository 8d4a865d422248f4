//! The UPFs and N4.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use whimbrel_control::UpfId;
use whimbrel_resilience::{CtaOrder, Input};
use whimbrel_user::{BurstPacket, Destination, Origin, Packet, PacketVerdict, Upf};

use crate::meter::WorkMeter;
use crate::n3::ReceivedPackets;
use crate::peer_amf::PEER_AMF_HOST;
use crate::unit::{NumberedPackets, UnitUpf, UpfInput};
use crate::{Sim, home};

/// The state of a UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpfState {
    /// It answers at once.
    Answering,
    /// Nothing reaches it.
    Silent,
    /// It carries out requests, and its answers are lost.
    Mute,
    /// A test answers: the requests are kept for [`Sim::take_pfcp`].
    ByHand,
}

/// A UPF, and the state of N4 to it.
pub(crate) struct UpfNode {
    pub(crate) upf: Upf,
    pub(crate) state: UpfState,
}

/// The UPFs, and what passes through them.
pub(crate) struct SimUserPlane {
    pub(crate) upfs: Vec<UpfNode>,
    /// PFCP requests to UPFs whose answers a test writes.
    pub(crate) requests: Vec<Vec<u8>>,
    /// What UEs have received, if datagrams travel on N3.
    pub(crate) received: Option<ReceivedPackets>,
    /// The first UPF is that of a unit.
    pub(crate) unit: Option<Box<UnitUpf>>,
    pub(crate) numbered: NumberedPackets,
}

impl Sim {
    /// The first UPF.
    pub fn upf(&mut self) -> &mut Upf {
        self.nth_upf(UpfId(0))
    }

    /// The UPF of this number.
    pub fn nth_upf(&mut self, upf: UpfId) -> &mut Upf {
        &mut self.user_plane.upfs[usize::from(upf.0)].upf
    }

    /// How many sessions the UPFs have.
    pub fn upf_sessions(&self) -> usize {
        self.user_plane.upfs.iter().map(|u| u.upf.c.session_count()).sum()
    }

    /// Sets the state of the first UPF.
    pub fn set_upf(&mut self, state: UpfState) {
        self.set_nth_upf(UpfId(0), state);
    }

    /// Sets the state of a UPF.
    pub fn set_nth_upf(&mut self, upf: UpfId, state: UpfState) {
        self.user_plane.upfs[usize::from(upf.0)].state = state;
    }

    /// A UPF requests the release of its association within this time (TS 29.244 §6.2.8.3).
    pub fn retire_upf(&mut self, upf: UpfId, grace: Duration) {
        let mut out = whimbrel_user::Outbox::default();
        let now = self.now;
        self.nth_upf(upf).c.retire(now, grace, &mut out);
        self.n4(upf, out);
    }

    /// A UPF requests its association (TS 29.244 §6.2.6.3).
    pub fn associate_upf(&mut self, upf: UpfId) {
        let mut out = whimbrel_user::Outbox::default();
        let now = self.now;
        let smf = smf(self.control.pair.host());
        self.nth_upf(upf).c.associate(now, smf, &mut out);
        self.n4(upf, out);
    }

    /// A UPF restarts with another configuration.
    pub fn replace_upf(&mut self, upf: UpfId, change: impl FnOnce(&mut whimbrel_user::Config)) {
        let mut config = home::nth_upf_config(upf.0, self.rng.draw());
        change(&mut config);
        self.advance(Duration::from_secs(2)); // recovery time stamps count seconds
        *self.nth_upf(upf) = Upf::new(config, self.now).expect("a configuration that holds");
    }

    /// How many UPFs there are.
    pub fn upfs(&self) -> u8 {
        self.user_plane.upfs.len() as u8
    }

    /// Ends the association with a UPF.
    pub fn release_upf(&mut self, upf: UpfId) {
        self.operator_order(CtaOrder::ReleaseUpf(upf));
    }

    /// The operator has a UPF drained within this time; `None`: no more.
    pub fn drain_upf(&mut self, upf: UpfId, within: Option<Duration>) {
        let until = within.map(|within| self.now + within);
        self.operator_order(CtaOrder::DrainUpf(upf, until));
    }

    /// The first UPF restarts: its sessions are gone.
    pub fn restart_upf(&mut self) {
        self.restart_nth_upf(UpfId(0));
    }

    /// A UPF restarts: its sessions are gone.
    pub fn restart_nth_upf(&mut self, upf: UpfId) {
        if upf == UpfId(0) && self.user_plane.unit.is_some() {
            return self.restart_unit_upf();
        }
        let config = home::nth_upf_config(upf.0, self.rng.draw());
        *self.nth_upf(upf) = Upf::new(config, self.now).expect("the default UPF configuration holds");
    }

    /// A UPF restarts without its sessions, and with the key that its TEIDs were made with.
    pub fn restart_nth_upf_with_its_key(&mut self, upf: UpfId) {
        let config = self.nth_upf(upf).c.config().clone();
        *self.nth_upf(upf) = Upf::new(config, self.now).expect("the configuration held before");
    }

    /// Free IPv4 addresses and IPv6 prefixes of a data network of the first UPF.
    pub fn free_addresses(&self, dn: u8) -> Option<(u64, u64)> {
        self.user_plane.upfs[0].upf.c.free_addresses(whimbrel_user::DnIndex(dn))
    }

    /// Takes the requests to UPFs whose answers the test writes.
    pub fn take_pfcp(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.user_plane.requests)
    }

    /// A PFCP message of the first UPF, written by the test.
    pub fn inject_pfcp(&mut self, octets: &[u8]) {
        self.inject_pfcp_of(UpfId(0), octets);
    }

    /// A PFCP message of a UPF, written by the test.
    pub fn inject_pfcp_of(&mut self, upf: UpfId, octets: &[u8]) {
        self.cta_input(Input::Pfcp(upf, octets));
    }

    /// A packet arrives at the first UPF. Gives the packets that it has sent, in order, buffered ones first.
    pub fn packet(&mut self, origin: Origin, octets: &[u8]) -> Vec<(Destination, Vec<u8>)> {
        let mut sent = self.upf_sent();
        let mut slots = [BurstPacket { origin, packet: Packet::of(octets), verdict: PacketVerdict::Pending }];
        let (now, began) = (self.now, self.observer.meter.as_ref().map(WorkMeter::now));
        self.upf().u.burst(now, &mut slots);
        self.upf_has_worked(began);
        sent.extend(self.upf_sent());
        let [slot] = slots;
        if let PacketVerdict::Send(to) = slot.verdict {
            sent.push((to, slot.packet.octets().to_vec()));
        }
        let mut out = whimbrel_user::Outbox::default();
        self.upf().settle(now, &mut out);
        self.n4(UpfId(0), out);
        sent
    }

    /// The packets that the first UPF has sent by itself: buffered packets, end markers.
    pub fn upf_sent(&mut self) -> Vec<(Destination, Vec<u8>)> {
        let upf = &mut self.user_plane.upfs[0].upf;
        std::iter::from_fn(|| upf.u.next_output()).map(|(to, p)| (to, p.octets().to_vec())).collect()
    }

    fn upf_has_worked(&mut self, since: Option<u64>) {
        if let (Some(meter), Some(since)) = (&mut self.observer.meter, since) {
            meter.upf(since);
        }
    }

    pub(crate) fn pfcp_leaves(&mut self, host: u64, pfcp: Vec<(UpfId, Vec<u8>)>) {
        for (id, octets) in pfcp.into_iter().filter(|_| !self.is_n4_cut(host)).collect::<Vec<_>>() {
            self.trace(|| format!("core to {id:?}: {}", pfcp_words(&octets)));
            let upf = &mut self.user_plane.upfs[usize::from(id.0)];
            match upf.state {
                UpfState::Silent => continue,
                UpfState::ByHand => {
                    self.user_plane.requests.push(octets);
                    continue;
                }
                UpfState::Answering | UpfState::Mute => {}
            }
            self.pfcp_arrives(id, smf(host), octets);
        }
    }

    /// A PFCP message arrives at a UPF.
    pub(crate) fn pfcp_arrives(&mut self, id: UpfId, from: SocketAddr, octets: Vec<u8>) {
        let taken = self.upf_takes(id, UpfInput::Pfcp(from, octets));
        if let Some((UpfInput::Pfcp(from, octets), loss)) = taken {
            let began = self.observer.meter.as_ref().map(WorkMeter::now);
            let answers = self.upf_handles_pfcp(id, (from, &octets), loss);
            self.upf_has_worked(began);
            self.n4(id, answers);
        }
    }

    pub(crate) fn n4(&mut self, upf: UpfId, out: whimbrel_user::Outbox) {
        if self.user_plane.upfs[usize::from(upf.0)].state != UpfState::Answering {
            return;
        }
        for (to, octets) in out.datagrams {
            // A datagram to a host that was replaced is lost.
            let host = self.control.pair.host();
            if to == smf(host) {
                if self.is_n4_cut(host) {
                    continue;
                }
                self.cta_input(Input::Pfcp(upf, &octets));
            } else if to == smf(PEER_AMF_HOST) {
                self.peer_amf_input(Input::Pfcp(upf, &octets));
            }
        }
    }
}

/// A PFCP message, decoded, for a trace.
pub(crate) fn pfcp_words(octets: &[u8]) -> String {
    let read = whimbrel_pfcp::Frame::parse(octets).ok().and_then(|f| whimbrel_pfcp::Message::parse(&f).ok());
    format!("{read:?}")
}

/// The SMF's PFCP address: each CTA host has its own.
pub(crate) fn smf(host: u64) -> SocketAddr {
    let last = if host == PEER_AMF_HOST { 3 } else { 1 + (host % 2) as u8 };
    SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 8805)
}
