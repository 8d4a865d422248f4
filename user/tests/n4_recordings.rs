//! Replays exchanges on N4 with SMFs of other makes (`tests/recordings/`) without them: the UPF must answer as it did, and forward the packets
//! that came meanwhile as it did.
//!
//! The UPF chooses other SEIDs, TEIDs and sequence numbers in each run: those of the recording are exchanged for its own.

use super::common;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::START;
use whimbrel_ids::{Instant, Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::rule::{CreatedPdr, UsageReport};
use whimbrel_pfcp::{Frame, Message, message_type};
use whimbrel_user::*;

/// The addresses of all recordings.
const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 4)), 8805);
const UPF: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 11);
const GTPU_PORT: u16 = 2152;

/// The sender of a datagram or packet, and so its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordedSender {
    /// PFCP of the SMF.
    Smf,
    /// PFCP of the UPF.
    Upf,
    /// GTP-U, of a gNB or of the SMF itself, at this address.
    Tunnel(IpAddr),
    /// An IP packet of the data network.
    Network,
}

/// A line of a recording.
#[derive(Clone, Debug)]
struct RecordedDatagram {
    at: Duration,
    from: RecordedSender,
    octets: Vec<u8>,
}

fn read(recording: &str) -> Vec<RecordedDatagram> {
    let lines = recording.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines.map(|l| datagram(l).unwrap_or_else(|| panic!("{l}"))).collect()
}

/// `SECONDS FROM OCTETS`.
fn datagram(line: &str) -> Option<RecordedDatagram> {
    let mut words = line.split_whitespace();
    let at = Duration::from_secs_f64(words.next()?.parse().ok()?);
    let from = match words.next()? {
        "smf" => RecordedSender::Smf,
        "upf" => RecordedSender::Upf,
        "network" => RecordedSender::Network,
        address => RecordedSender::Tunnel(address.parse().ok()?),
    };
    let digits = words.next()?;
    let octet = |n: usize| u8::from_str_radix(digits.get(n..n + 2)?, 16).ok();
    let octets = (0..digits.len()).step_by(2).map(octet).collect::<Option<_>>()?;
    Some(RecordedDatagram { at, from, octets })
}

/// The UPF that a recording is replayed to.
struct ReplayedUpf {
    upf: Upf,
    out: Outbox,
    /// By those of the recording.
    seids: BTreeMap<Seid, Seid>,
    teids: BTreeMap<Teid, Teid>,
    sequences: BTreeMap<u32, u32>,
    /// Packets that were forwarded, and to where.
    forwarded: Vec<(Destination, Vec<u8>)>,
    /// Octets of the last usage report, uplink and downlink.
    volume: Option<(u64, u64)>,
}

impl ReplayedUpf {
    fn new() -> Self {
        let mut config = common::config();
        (config.node_id, config.n4, config.n3_ipv4) = (NodeId::Ipv4(UPF), UPF.into(), Some(UPF));
        config.data_networks.truncate(1);
        let network = &mut config.data_networks[0];
        network.ipv4_pools[0].prefix = 16;
        network.ipv6_pools[0].address = "2001:db8:cafe::".parse().unwrap();
        Self {
            upf: Upf::new(config, START).unwrap(),
            out: Outbox::default(),
            seids: BTreeMap::new(),
            teids: BTreeMap::new(),
            sequences: BTreeMap::new(),
            forwarded: Vec::new(),
            volume: None,
        }
    }

    /// A datagram or packet comes to the UPF, or one that the UPF has sent is compared.
    fn step(&mut self, d: &RecordedDatagram) {
        let now = START + d.at;
        while self.upf.next_deadline().is_some_and(|at| at <= now) {
            self.upf.tick(now, &mut self.out);
        }
        match d.from {
            RecordedSender::Smf => {
                let octets = self.renamed(&d.octets);
                self.upf.pfcp(now, SMF, &octets, &mut self.out);
            }
            RecordedSender::Upf => self.compare(&d.octets),
            RecordedSender::Tunnel(peer) => {
                let mut octets = d.octets.clone();
                if let Some(at) = octets.get_mut(4..8) {
                    let teid = Teid(u32::from_be_bytes(at.try_into().unwrap()));
                    let own = self.teids.get(&teid).copied().unwrap_or(teid);
                    at.copy_from_slice(&own.0.to_be_bytes());
                }
                let peer = SocketAddr::new(peer, GTPU_PORT);
                self.packet(now, Origin::N3 { peer, local: UPF.into() }, &octets);
            }
            RecordedSender::Network => self.packet(now, Origin::N6 { dn: DnIndex(0) }, &d.octets),
        }
        while let Some((to, packet)) = self.upf.u.next_output() {
            self.forwarded.push((to, packet.octets().to_vec()));
        }
    }

    fn packet(&mut self, now: Instant, origin: Origin, octets: &[u8]) {
        let mut slots = [BurstPacket { origin, packet: Packet::of(octets), verdict: PacketVerdict::Pending }];
        self.upf.u.burst(now, &mut slots);
        self.upf.settle(now, &mut self.out);
        let [slot] = slots;
        if let PacketVerdict::Send(to) = slot.verdict {
            self.forwarded.push((to, slot.packet.octets().to_vec()));
        }
    }

    /// A message of the SMF with the SEID, and in an answer the sequence number, of this run.
    fn renamed(&self, octets: &[u8]) -> Vec<u8> {
        let mut octets = octets.to_vec();
        let Ok(frame) = Frame::parse(&octets) else { return octets };
        let header = frame.header;
        if let Some(own) = header.seid.and_then(|seid| self.seids.get(&seid)) {
            octets[4..12].copy_from_slice(&own.0.to_be_bytes());
        }
        let is_answer = matches!(
            header.message_type,
            message_type::HEARTBEAT_RESPONSE | message_type::SESSION_REPORT_RESPONSE
        );
        if let Some(own) = self.sequences.get(&header.sequence).filter(|_| is_answer) {
            let at = if header.seid.is_some() { 12 } else { 4 };
            octets[at..at + 3].copy_from_slice(&own.to_be_bytes()[1..]);
        }
        octets
    }

    /// The UPF must have sent this message, but for its own names.
    fn compare(&mut self, recorded: &[u8]) {
        let recorded_frame = Frame::parse(recorded).expect("a recorded message");
        let kind = recorded_frame.header.message_type;
        let sent = |(_, o): &(SocketAddr, Vec<u8>)| Frame::parse(o).unwrap().header.message_type == kind;
        let at = self.out.datagrams.iter().position(sent);
        let (to, octets) =
            self.out.datagrams.remove(at.unwrap_or_else(|| panic!("message {kind} was not sent")));
        assert_eq!(to, SMF);
        let frame = Frame::parse(&octets).unwrap();
        assert_eq!(frame.header.seid, recorded_frame.header.seid, "the SMF's SEID");
        self.sequences.insert(recorded_frame.header.sequence, frame.header.sequence);
        let (recorded, sent) = (Message::parse(&recorded_frame).unwrap(), Message::parse(&frame).unwrap());
        if let (Message::SessionEstablishmentResponse(r), Message::SessionEstablishmentResponse(s)) =
            (&recorded, &sent)
            && let (Some(r), Some(s)) = (r.up_f_seid, s.up_f_seid)
        {
            self.seids.insert(r.seid, s.seid);
        }
        for (r, s) in created(&recorded).iter().zip(created(&sent)) {
            if let (Some(FTeid::Given { teid: r, .. }), Some(FTeid::Given { teid: s, .. })) =
                (r.local_f_teid, s.local_f_teid)
            {
                self.teids.insert(r, s);
            }
        }
        if let Message::SessionDeletionResponse(m) = &sent {
            let volume = m.usage_reports.last().and_then(|u| u.volume_measurement);
            self.volume = volume.and_then(|v| v.ul.zip(v.dl));
        }
        assert_eq!(gist(&sent), gist(&recorded));
    }

    /// A message cut at many lengths comes first. Nothing is to come of it.
    fn spoil(&mut self, d: &RecordedDatagram) {
        for length in (0..d.octets.len()).step_by(5) {
            let mut octets = self.renamed(&d.octets);
            // Requests of their own, or the message itself would be their repetition.
            let at = if octets[0] & 1 == 1 { 12 } else { 4 };
            octets[at] = 0xf0;
            octets[at + 1..at + 3].copy_from_slice(&(length as u16).to_be_bytes());
            self.upf.pfcp(START + d.at, SMF, &octets[..length], &mut self.out);
        }
        self.out.datagrams.clear();
    }
}

fn created(m: &Message) -> &[CreatedPdr] {
    match m {
        Message::SessionEstablishmentResponse(m) => &m.created_pdrs,
        Message::SessionModificationResponse(m) => &m.created_pdrs,
        _ => &[],
    }
}

/// The part that is the same in each run: the cause, the rules with a tunnel, what is reported. Volumes are those of the packets that the recording has.
fn gist(m: &Message) -> String {
    let tunnels: Vec<_> = created(m).iter().map(|c| (c.pdr_id, c.local_f_teid.is_some())).collect();
    let usage = |all: &[UsageReport]| -> Vec<_> {
        all.iter().map(|u| (u.urr_id, u.ur_seqn, u.usage_report_trigger)).collect()
    };
    match m {
        Message::AssociationSetupResponse(m) => format!("{:?} {:?}", m.cause, m.up_function_features),
        Message::SessionEstablishmentResponse(m) => {
            format!("{:?} {:?} {tunnels:?}", m.cause, m.offending_ie)
        }
        Message::SessionModificationResponse(m) => {
            format!("{:?} {:?} {tunnels:?} {:?}", m.cause, m.offending_ie, usage(&m.usage_reports))
        }
        Message::SessionDeletionResponse(m) => format!("{:?} {:?}", m.cause, usage(&m.usage_reports)),
        Message::SessionReportRequest(m) => {
            let data = m.downlink_data_report.as_ref().map(|d| &d.pdr_ids);
            format!("{:?} {data:?} {:?}", m.report_type, usage(&m.usage_reports))
        }
        other => format!("{other:?}").split(['(', ' ']).next().unwrap_or_default().to_owned(),
    }
}

/// Open5GS 2.7.7 sends solicitations to itself in each session, and asks for one tunnel for both families.
const OPEN5GS: &str = include_str!("../../tests/recordings/open5gs-smf-2.7.7/n4.txt");

/// The state in which the recording of Open5GS's SMF ends.
fn judge(replayed: &ReplayedUpf) {
    assert_eq!((replayed.upf.c.associations().count(), replayed.upf.c.session_count()), (1, 0));
    let [(to_network, uplink), (to_gnb, downlink)] = &*replayed.forwarded else {
        panic!("{:?}", replayed.forwarded)
    };
    assert_eq!((*to_network, uplink.len()), (Destination::N6 { dn: DnIndex(0) }, 84));
    let gnb = SocketAddr::new(Ipv4Addr::new(10, 77, 0, 2).into(), GTPU_PORT);
    assert!(matches!(to_gnb, Destination::N3 { peer, .. } if *peer == gnb));
    let (teid, qfi, inner) = common::at_gnb(downlink);
    assert_eq!(
        (teid, qfi, inner.len()),
        (Teid(2), Some(1), 84),
        "the tunnel that came with the service request"
    );
    assert_eq!(replayed.volume, Some((0, 84)), "its URR is of the downlink PDR alone");
}

#[test] // TS 29.244 §6.2.6, §6.3, §5.2.3, §5.3.1: an SMF that has rules for packets to itself
fn recorded_session_of_open5gs() {
    let mut replayed = ReplayedUpf::new();
    for d in read(OPEN5GS) {
        replayed.step(&d);
        let tunnels = replayed.upf.c.sessions().next().map(|(seid, _)| replayed.upf.c.access_tunnels(seid));
        if d.from == RecordedSender::Upf
            && Frame::parse(&d.octets).unwrap().header.message_type == 53
            && d.at.as_secs() == 12
        {
            assert_eq!(tunnels, Some(vec![(Ipv4Addr::new(10, 77, 0, 2).into(), Teid(1))]));
        }
    }
    judge(&replayed);
}

#[test] // messages cut short, and each one twice: what the SMF asks for is done all the same
fn recorded_session_with_bad_messages_in_between() {
    let mut replayed = ReplayedUpf::new();
    for d in read(OPEN5GS) {
        if d.from == RecordedSender::Smf {
            replayed.spoil(&d);
        }
        replayed.step(&d);
        if d.from == RecordedSender::Upf {
            replayed.out.datagrams.clear();
        }
        if d.from == RecordedSender::Smf && d.at.as_secs() > 12 {
            let sent = replayed.out.datagrams.len();
            replayed.step(&d);
            replayed.out.datagrams.truncate(sent);
        }
    }
    judge(&replayed);
}
