//! A UPF with a given number of sessions, and their packets in memory.

use std::net::Ipv4Addr;

use crate::upf::classifier::common::rule_sets::Random;
use whimbrel_ids::{Qfi, Seid, Teid};
use whimbrel_pfcp::ie::QerBitRate;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::samples::SampleSession;
use whimbrel_user::{
    BurstPacket, Config, DnIndex, Input, Ipv4Net, Origin, Outbox, Packet, PacketVerdict, SessionId, UpfC,
    UpfU, UserPlaneChange,
};

use super::smf::{SERVER, SMF, START, activation, association, from_gnb, g_pdu, smf_establishment, udp4};

/// More than any link has, so that meters work and stop nothing.
const RATE_KBPS: u64 = 1_000_000_000;
/// The first UE's address.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Octets of a GTP-U header with a PDU session container.
const GTPU: usize = 16;
/// Octets of the headers of IPv4 and UDP.
const HEADERS: usize = 28;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Uplink,
    Downlink,
    Both,
}

impl Traffic {
    pub(super) const ALL: [Self; 3] = [Self::Uplink, Self::Downlink, Self::Both];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uplink => "uplink",
            Self::Downlink => "downlink",
            Self::Both => "both",
        }
    }
}

/// The UPF and its UEs.
pub(super) struct Population {
    pub(super) upf: UpfU,
    teids: Vec<Teid>,
    sample: SampleSession,
}

impl Population {
    /// So many sessions with the rules that our SMF asks for: two PDRs, two FARs, two QERs and a URR each.
    pub(super) fn new(sessions: u32) -> Self {
        Self::of(&config(sessions))
    }

    /// The same, as many as there may be at most less one, of a UPF with this configuration.
    pub(super) fn of(config: &Config) -> Self {
        let sessions = config.sessions_max - 1;
        let sample = SampleSession::of(&asked_for(config), config.sessions_max, config.seed).expect("rules");
        let mut upf = UpfU::new(config).expect("a configuration");
        let mut put = |n: u32| {
            let id = SessionId { index: n, generation: n.wrapping_mul(0x9e37_79b9) };
            let (teid, change) = sample.session(id, address(n), Teid(0x8000_0000 | n));
            upf.apply(START, change);
            teid
        };
        let teids = (0..sessions).map(&mut put).collect();
        upf.take_reports();
        Self { upf, teids, sample }
    }

    /// The change that puts one more session there, that of the UE of number `n`; its uplink tunnel.
    pub(super) fn another(&self, index: u32, n: u32) -> (Teid, UserPlaneChange) {
        let id = SessionId { index, generation: n.wrapping_mul(0x9e37_79b9) };
        self.sample.session(id, address(n), Teid(0x8000_0000 | n))
    }

    /// The change that leads a session's packets to another tunnel at its gNB.
    pub(super) fn moved(&self, n: u32, tunnel: Teid) -> UserPlaneChange {
        let id = SessionId { index: n, generation: n.wrapping_mul(0x9e37_79b9) };
        self.sample.session(id, address(n), tunnel).1
    }

    /// The uplink tunnel of a session.
    pub(super) fn teid(&self, n: u32) -> Teid {
        self.teids[n as usize]
    }

    pub(super) fn sessions(&self) -> u32 {
        self.teids.len() as u32
    }
}

/// The address of a UE.
pub(super) fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + n)
}

/// Of a UPF with so many sessions.
pub(super) fn config(sessions: u32) -> Config {
    let mut config = super::smf::config();
    config.sessions_max = sessions + 1;
    config.data_networks.truncate(1);
    config.data_networks[0].ipv4_pools = vec![Ipv4Net { address: Ipv4Addr::new(10, 0, 0, 0), prefix: 8 }];
    config
}

/// What UPF-C makes of an SMF's requests for one session: the change that has all its rules.
pub(super) fn asked_for(config: &Config) -> UserPlaneChange {
    let mut c = UpfC::new(config.clone(), START).expect("a configuration");
    let mut out = Outbox::default();
    let mut ask = |seid: Option<Seid>, message: Message, sequence: u32| {
        let octets = message.to_octets(seid, sequence);
        c.handle(START, Input::Pfcp { peer: SMF, octets: &octets }, &mut out);
        let (_, answer) = out.datagrams.pop().expect("an answer");
        (Message::parse(&Frame::parse(&answer).expect("a frame")).expect("a message"), out.changes.pop())
    };
    ask(None, association(1).into(), 1);
    let mut session = smf_establishment(1, true, false);
    for qer in session.create_qers.iter_mut().filter(|qer| qer.mbr.is_some()) {
        qer.mbr = Some(QerBitRate { ul_kbps: RATE_KBPS, dl_kbps: RATE_KBPS });
    }
    let (Message::SessionEstablishmentResponse(answer), _) = ask(Some(Seid(0)), session.into(), 2) else {
        panic!("another answer")
    };
    let seid = answer.up_f_seid.map(|f| f.seid);
    let (_, change) = ask(seid, activation(Teid(1), super::smf::GNB.ip()).into(), 3);
    change.expect("rules")
}

/// Packets in memory, each in a buffer of its own as a driver has them.
pub(super) struct Packets {
    pub(super) slots: Vec<BurstPacket>,
    up: Vec<u8>,
    down: Vec<u8>,
}

impl Packets {
    /// Room for so many, with a UE's packets of so many octets.
    pub(super) fn new(count: usize, octets: usize) -> Self {
        let inner = udp4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, (1, 2), octets.max(HEADERS) - HEADERS);
        let up = g_pdu(Teid(0), Qfi::new(1).map_or(0, Qfi::value), &inner);
        let slot = |packet| BurstPacket { origin: from_gnb(), packet, verdict: PacketVerdict::Pending };
        Self { slots: Packet::many(count, 2048).map(slot).collect(), up, down: inner }
    }

    /// A new packet in each buffer, each of a newly drawn UE.
    pub(super) fn draw(&mut self, of: &Population, traffic: Traffic, random: &mut Random) {
        for slot in &mut self.slots {
            let n = random.below(u64::from(of.sessions())) as u32;
            let up = match traffic {
                Traffic::Uplink => true,
                Traffic::Downlink => false,
                Traffic::Both => random.below(2) == 0,
            };
            if up {
                let (ue, server) = (address(n).octets(), SERVER.octets());
                slot.origin = from_gnb();
                slot.packet.fill(&self.up);
                let room = slot.packet.room();
                room[4..8].copy_from_slice(&of.teids[n as usize].0.to_be_bytes());
                room[GTPU + 12..GTPU + 16].copy_from_slice(&ue);
                room[GTPU + 16..GTPU + 20].copy_from_slice(&server);
            } else {
                come_down(slot, &self.down, n);
            }
            slot.verdict = PacketVerdict::Pending;
        }
    }

    /// A new packet in each buffer, to the first UE, the second, and so on.
    pub(super) fn draw_in_turn(&mut self) {
        for (n, slot) in (0..).zip(&mut self.slots) {
            come_down(slot, &self.down, n);
            slot.verdict = PacketVerdict::Pending;
        }
    }
}

/// The packet is one to a UE.
fn come_down(slot: &mut BurstPacket, octets: &[u8], n: u32) {
    slot.origin = Origin::N6 { dn: DnIndex(0) };
    slot.packet.fill(octets);
    let room = slot.packet.room();
    room[12..16].copy_from_slice(&SERVER.octets());
    room[16..20].copy_from_slice(&address(n).octets());
}
