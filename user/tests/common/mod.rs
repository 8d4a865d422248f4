//! An SMF, a gNB and a UE made of octets, around one UPF.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use whimbrel_gtpu::{GpduHeader, Gtpu, PduSessionInformation};
use whimbrel_ids::{Instant, Qfi, SNssai, Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::*;

pub(crate) const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)), 8805);
pub(crate) const UPF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
pub(crate) const GNB: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), 2152);
pub(crate) const GNB_TEID: Teid = Teid(0x6e62_0001);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Packets that a UE may have buffered.
pub(crate) const HELD: usize = 128;
/// Pipelines of the UPF: the tests of `shards` are those of the other files once more, with four.
pub(crate) const SHARDS: u8 =
    if matches!(module_path!().as_bytes().last_chunk(), Some(b"shards::common")) { 4 } else { 1 };
pub(crate) const START: Instant = Instant(1_800_000_000_000_000);

pub(crate) fn config() -> Config {
    Config {
        node_id: NodeId::Ipv4(UPF),
        n4: UPF.into(),
        n3_ipv4: Some(UPF),
        n3_ipv6: None,
        data_networks: vec![
            DataNetwork {
                dnn: "internet".parse().unwrap(),
                ipv4_pools: vec![Ipv4Net { address: Ipv4Addr::new(10, 45, 0, 0), prefix: 29 }],
                ipv6_pools: vec![Ipv6Net { address: "2001:db8:45::".parse().unwrap(), prefix: 48 }],
                dns_ipv6: vec!["2001:4860:4860::8888".parse().unwrap()],
                mtu: 1400,
                ethernet: false,
                unstructured: None,
                firewall: None,
                reserved: Vec::new(),
            },
            DataNetwork {
                dnn: "ims".parse().unwrap(),
                ipv4_pools: vec![Ipv4Net { address: Ipv4Addr::new(10, 46, 0, 0), prefix: 16 }],
                ipv6_pools: vec![],
                dns_ipv6: vec![],
                mtu: 1400,
                ethernet: false,
                unstructured: None,
                firewall: None,
                reserved: Vec::new(),
            },
        ],
        sessions_max: 1000,
        heartbeat_interval: None,
        path_failure: Config::PATH_FAILURE,
        echo_interval: None,
        guaranteed: None,
        slices: Vec::new(),
        shards: SHARDS,
        applications: Applications::default(),
        buffering: Buffering { packets_per_session: HELD as u16, ..Buffering::default() },
        // So few that flows give way to each other.
        flows_first: 8,
        isolation: Isolation::default(),
        flows_second: 32,
        smf_f_teids: false,
        cp_port: 8805,
        seed: 0x1234_5678_9abc_def0,
    }
}

/// A UPF as its SMF and the reference model see it.
pub(crate) trait Plane {
    /// A PFCP datagram comes; when this returns, all that came of it is done.
    fn pfcp(&mut self, now: Instant, octets: &[u8], out: &mut Outbox);

    /// Reports of the pipelines are seen to.
    fn settle(&mut self, now: Instant, out: &mut Outbox);

    /// A deadline has come.
    fn tick(&mut self, now: Instant, out: &mut Outbox);

    /// When the next one comes.
    fn next_deadline(&self) -> Option<Instant>;

    /// It is later now.
    fn reach(&mut self, _now: Instant, _out: &mut Outbox) {}

    /// What was sent, besides packets that were decided on at once, since the last call: so much at least is to come.
    fn outputs(&mut self, at_least: usize) -> Vec<(Destination, Vec<u8>)>;

    /// A packet as it comes out where nothing but the UPF touches it, as it comes out here.
    fn as_sent(&self, _to: Destination, octets: Vec<u8>) -> Vec<u8> {
        octets
    }

    /// The counters, as soon as they are as expected, or after a long wait.
    fn counters(&mut self, expected: &dyn Fn(&Counters) -> bool) -> Counters;

    /// What a session has counted.
    fn session_counters(&mut self, id: SessionId) -> Option<SessionCounters>;
}

impl Plane for Upf {
    fn pfcp(&mut self, now: Instant, octets: &[u8], out: &mut Outbox) {
        self.pfcp(now, SMF, octets, out);
    }

    fn settle(&mut self, now: Instant, out: &mut Outbox) {
        self.settle(now, out);
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox) {
        self.tick(now, out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline()
    }

    fn outputs(&mut self, _at_least: usize) -> Vec<(Destination, Vec<u8>)> {
        std::iter::from_fn(|| self.u.next_output()).map(|(to, p)| (to, p.octets().to_vec())).collect()
    }

    fn counters(&mut self, _expected: &dyn Fn(&Counters) -> bool) -> Counters {
        self.u.counters()
    }

    fn session_counters(&mut self, id: SessionId) -> Option<SessionCounters> {
        self.u.session_counters(id)
    }
}

/// Memory that outlives a UPF.
#[derive(Clone)]
pub(crate) struct Memory(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Memory {
    pub(crate) fn of(octets: u64) -> Self {
        Self(Arc::new(Mutex::new(vec![0; octets as usize])))
    }

    /// What is there now, in a memory of its own.
    pub(crate) fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }
}

impl StateMemory for Memory {
    fn octets(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        to.copy_from_slice(&self.0.lock().unwrap()[at as usize..][..to.len()]);
    }

    fn write(&mut self, at: u64, octets: &[u8]) {
        self.0.lock().unwrap()[at as usize..][..octets.len()].copy_from_slice(octets);
    }
}

/// The time since this host was started.
pub(crate) const BOOT: [u8; 16] = [7; 16];

/// A UPF that keeps its sessions there, and goes on with those that are there.
pub(crate) fn with_state(
    mut config: Config,
    now: Instant,
    memory: &Memory,
    out: &mut Outbox,
) -> (Upf, RestoredSessions) {
    let state = SessionMemory::open(Box::new(memory.clone()), &mut config, BOOT, now);
    Upf::with_state(config, now, state, out).unwrap()
}

/// A UPF, and what came out of it.
pub(crate) struct Net<U: Plane = Upf> {
    pub(crate) upf: U,
    pub(crate) now: Instant,
    pub(crate) out: Outbox,
    sequence: u32,
}

/// A session as the SMF and the gNB know it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) up_seid: Seid,
    pub(crate) cp_seid: Seid,
    pub(crate) teid: Teid,
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
}

impl Session {
    pub(crate) fn id(&self) -> SessionId {
        SessionId::from_seid(self.up_seid).unwrap()
    }
}

/// The rules of a session of one QoS flow, as an SMF sends them first: no tunnel of the gNB yet, so downlink is buffered.
///
/// user/README.md shows this layout.
pub(crate) fn establishment(cp_seid: u64, ipv4: bool, ipv6: bool) -> SessionEstablishmentRequest {
    let internet = NetworkInstance::new("internet");
    let ue = |destination| UeIpAddress {
        destination,
        ipv4: ipv4.then_some(Choice::Choose),
        ipv6: ipv6.then_some(Choice::Choose),
        ..UeIpAddress::default()
    };
    let uplink = CreatePdr {
        outer_header_removal: Some(OuterHeaderRemovalDescription::GtpuUdpIpv4.into()),
        qer_ids: vec![QerId(1)],
        urr_ids: vec![UrrId(1)],
        ..CreatePdr::new(
            PdrId(1),
            Precedence(255),
            Pdi {
                f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None }),
                network_instance: internet.clone(),
                ue_ip_addresses: vec![ue(false)],
                qfis: vec![Qfi::new(1).unwrap()],
                source_interface_type: Some(InterfaceType::N3),
                ..Pdi::from(SourceInterface::Access)
            },
            FarId(1),
        )
    };
    let downlink = CreatePdr {
        qer_ids: vec![QerId(1)],
        urr_ids: vec![UrrId(1)],
        ..CreatePdr::new(
            PdrId(2),
            Precedence(255),
            Pdi {
                network_instance: internet.clone(),
                ue_ip_addresses: vec![ue(true)],
                source_interface_type: Some(InterfaceType::N6),
                ..Pdi::from(SourceInterface::Core)
            },
            FarId(2),
        )
    };
    SessionEstablishmentRequest {
        create_pdrs: vec![uplink, downlink],
        create_fars: vec![
            CreateFar::forward(
                FarId(1),
                ForwardingParameters {
                    network_instance: internet,
                    ..ForwardingParameters::to(DestinationInterface::Core)
                },
            ),
            CreateFar::action(FarId(2), ApplyAction::BUFF | ApplyAction::NOCP),
        ],
        create_qers: vec![CreateQer {
            mbr: Some(QerBitRate { ul_kbps: 100_000, dl_kbps: 200_000 }),
            qfi: Qfi::new(1),
            ..CreateQer::new(QerId(1))
        }],
        create_urrs: vec![CreateUrr::new(UrrId(1), MeasurementMethod::VOLUM, ReportingTriggers::default())],
        pdn_type: Some(match (ipv4, ipv6) {
            (true, true) => PdnType::Ipv4v6,
            (false, true) => PdnType::Ipv6,
            _ => PdnType::Ipv4,
        }),
        apn_dnn: Some("internet".parse().unwrap()),
        ..SessionEstablishmentRequest::new(NodeId::from(SMF.ip()), FSeid::new(Seid(cp_seid), SMF.ip()))
    }
}

/// The rules of a session of the default flow alone, as the SMF of this core asks for them: its AMBR's QER and the flow's. The core's
/// simulation compares (`sim/tests/upf.rs`).
pub(crate) fn smf_establishment(cp_seid: u64, ipv4: bool, ipv6: bool) -> SessionEstablishmentRequest {
    let internet = NetworkInstance::new("internet");
    let (up, down) = (
        Pdi {
            f_teid: Some(FTeid::Choose { ipv4: true, ipv6: true, choose_id: Some(1) }),
            ..Pdi::from(SourceInterface::Access)
        },
        Pdi {
            network_instance: internet.clone(),
            ue_ip_addresses: vec![UeIpAddress {
                destination: true,
                ipv4: ipv4.then_some(Choice::Choose),
                ipv6: ipv6.then_some(Choice::Choose),
                ..UeIpAddress::default()
            }],
            ..Pdi::from(SourceInterface::Core)
        },
    );
    let pdr = |id, pdi, far| CreatePdr {
        qer_ids: vec![QerId(2), QerId(1)],
        urr_ids: vec![UrrId(1)],
        ..CreatePdr::new(PdrId(id), Precedence(255), pdi, FarId(far))
    };
    let to_network = ForwardingParameters {
        network_instance: internet,
        ..ForwardingParameters::to(DestinationInterface::Core)
    };
    SessionEstablishmentRequest {
        create_pdrs: vec![
            CreatePdr {
                outer_header_removal: Some(OuterHeaderRemovalDescription::GtpuUdpIp.into()),
                ..pdr(1, up, 1)
            },
            pdr(2, down, 2),
        ],
        create_fars: vec![
            CreateFar::forward(FarId(1), to_network),
            CreateFar { bar_id: Some(BarId(1)), ..CreateFar::action(FarId(2), ApplyAction::BUFF) },
        ],
        create_bars: vec![CreateBar {
            bar_id: BarId(1),
            downlink_data_notification_delay: None,
            suggested_buffering_packets_count: None,
        }],
        create_qers: vec![
            CreateQer {
                mbr: Some(QerBitRate { ul_kbps: 1_000_000, dl_kbps: 1_000_000 }),
                ..CreateQer::new(QerId(1))
            },
            CreateQer { qfi: Qfi::new(1), ..CreateQer::new(QerId(2)) },
        ],
        s_nssai: Some(SNssai::sst(1)),
        ..establishment(cp_seid, ipv4, ipv6)
    }
}

/// What the SMF sends when the gNB's tunnel is known.
pub(crate) fn activation(teid: Teid, gnb: IpAddr) -> SessionModificationRequest {
    SessionModificationRequest {
        update_fars: vec![UpdateFar {
            apply_action: Some(ApplyAction::FORW),
            update_forwarding_parameters: Some(UpdateForwardingParameters {
                destination_interface: Some(DestinationInterface::Access),
                outer_header_creation: Some(OuterHeaderCreation::gtpu(teid, gnb)),
                ..UpdateForwardingParameters::new()
            }),
            ..UpdateFar::new(FarId(2))
        }],
        ..SessionModificationRequest::default()
    }
}

impl Net {
    /// With an association.
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        let mut net = Self::without_association(config);
        net.associate();
        net
    }

    pub(crate) fn without_association(config: Config) -> Self {
        Self::on(Upf::new(config, START).unwrap())
    }

    /// The verdict on one packet, and the packet.
    pub(crate) fn packet(&mut self, origin: Origin, octets: &[u8]) -> (PacketVerdict, Vec<u8>) {
        let mut slots = [BurstPacket { origin, packet: Packet::of(octets), verdict: PacketVerdict::Pending }];
        self.upf.u.burst(self.now, &mut slots);
        self.upf.settle(self.now, &mut self.out);
        let [slot] = slots;
        (slot.verdict, slot.packet.octets().to_vec())
    }

    /// A UE's packet, by way of its gNB.
    pub(crate) fn uplink(&mut self, s: &Session, inner: &[u8]) -> (PacketVerdict, Vec<u8>) {
        self.packet(from_gnb(), &g_pdu(s.teid, 1, inner))
    }

    /// A packet for a UE, from the first data network.
    pub(crate) fn downlink(&mut self, inner: &[u8]) -> (PacketVerdict, Vec<u8>) {
        self.packet(Origin::N6 { dn: DnIndex(0) }, inner)
    }

    /// What the pipeline sent of its own.
    pub(crate) fn outputs(&mut self) -> Vec<(Destination, Vec<u8>)> {
        self.upf.outputs(0)
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.upf.u.counters().dropped(reason)
    }
}

impl<U: Plane> Net<U> {
    /// Without an association.
    pub(crate) fn on(upf: U) -> Self {
        Self { upf, now: START, out: Outbox::default(), sequence: 1 }
    }

    pub(crate) fn associate(&mut self) {
        let Message::AssociationSetupResponse(m) = self.ask(None, association(1).into()) else { panic!() };
        assert_eq!(m.cause, Cause::RequestAccepted);
    }

    /// Sends a request as the SMF; its answer.
    pub(crate) fn ask(&mut self, seid: Option<Seid>, m: Message) -> Message {
        let octets = m.to_octets(seid, self.sequence);
        self.sequence += 1;
        self.ask_octets(&octets).expect("an answer")
    }

    pub(crate) fn ask_octets(&mut self, octets: &[u8]) -> Option<Message> {
        self.upf.pfcp(self.now, octets, &mut self.out);
        let sent = Frame::parse(octets).unwrap().header;
        // Reports of the UPF's own may go out with it.
        let answers = |(_, o): &(SocketAddr, Vec<u8>)| {
            let h = Frame::parse(o).unwrap().header;
            (h.sequence, h.message_type) == (sent.sequence, sent.message_type + 1)
        };
        let at = self.out.datagrams.iter().position(answers)?;
        let (peer, answer) = self.out.datagrams.remove(at);
        assert_eq!(peer, SMF);
        Some(Message::parse(&Frame::parse(&answer).unwrap()).unwrap())
    }

    pub(crate) fn establish(&mut self, m: SessionEstablishmentRequest) -> SessionEstablishmentResponse {
        let Message::SessionEstablishmentResponse(m) = self.ask(Some(Seid(0)), m.into()) else { panic!() };
        *m
    }

    /// A session whose gNB is known.
    pub(crate) fn session(&mut self, cp_seid: u64, ipv4: bool, ipv6: bool) -> Session {
        let s = self.idle_session(cp_seid, ipv4, ipv6);
        self.modify(&s, activation(GNB_TEID, GNB.ip()));
        s
    }

    pub(crate) fn idle_session(&mut self, cp_seid: u64, ipv4: bool, ipv6: bool) -> Session {
        let r = self.establish(establishment(cp_seid, ipv4, ipv6));
        self.seated(cp_seid, &r)
    }

    pub(crate) fn seated(&self, cp_seid: u64, r: &SessionEstablishmentResponse) -> Session {
        assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
        let uplink = r.created_pdrs.iter().find(|p| p.pdr_id == PdrId(1)).expect("PDR 1");
        let Some(FTeid::Given { teid, .. }) = uplink.local_f_teid else { panic!("{uplink:?}") };
        let addresses = r.created_pdrs.iter().find_map(|p| p.ue_ip_addresses.first());
        Session {
            up_seid: r.up_f_seid.unwrap().seid,
            cp_seid: Seid(cp_seid),
            teid,
            ipv4: addresses.and_then(|a| a.ipv4).and_then(Choice::given),
            ipv6: addresses.and_then(|a| a.ipv6).and_then(Choice::given),
        }
    }

    pub(crate) fn modify(
        &mut self,
        s: &Session,
        m: SessionModificationRequest,
    ) -> SessionModificationResponse {
        let Message::SessionModificationResponse(m) = self.ask(Some(s.up_seid), m.into()) else { panic!() };
        *m
    }

    pub(crate) fn delete(&mut self, s: &Session) -> SessionDeletionResponse {
        let m = self.ask(Some(s.up_seid), SessionDeletionRequest {}.into());
        let Message::SessionDeletionResponse(m) = m else { panic!() };
        *m
    }

    /// The SMF answers the UPF's heartbeat requests: it started then. The other datagrams to the SMF are dropped. Returns how many it answered.
    pub(crate) fn answer_heartbeats(&mut self, started: u32) -> usize {
        let asked = |(to, octets): (SocketAddr, Vec<u8>)| {
            let header = Frame::parse(&octets).unwrap().header;
            (to == SMF && header.message_type == 1).then_some(header.sequence)
        };
        let all: Vec<u32> = std::mem::take(&mut self.out.datagrams).into_iter().filter_map(asked).collect();
        for sequence in &all {
            let m = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(started) };
            self.upf.pfcp(self.now, &Message::from(m).to_octets(None, *sequence), &mut self.out);
        }
        all.len()
    }

    /// The requests that the UPF sent to the SMF since the last look.
    pub(crate) fn reports(&mut self) -> Vec<(Seid, u32, SessionReportRequest)> {
        let mut all = Vec::new();
        for (peer, octets) in std::mem::take(&mut self.out.datagrams) {
            assert_eq!(peer, SMF);
            let frame = Frame::parse(&octets).unwrap();
            if let Message::SessionReportRequest(m) = Message::parse(&frame).unwrap() {
                all.push((frame.header.seid.unwrap(), frame.header.sequence, *m));
            }
        }
        all
    }

    /// The same, of an SMF that accepts each of them, and so gets those too that were kept while it was silent.
    pub(crate) fn accepted_reports(&mut self) -> Vec<(Seid, u32, SessionReportRequest)> {
        let mut all = Vec::new();
        loop {
            let came = self.reports();
            if came.is_empty() {
                return all;
            }
            for (seid, sequence, _) in &came {
                let answer = Message::from(SessionReportResponse::new(Cause::RequestAccepted));
                self.upf.pfcp(self.now, &answer.to_octets(Some(*seid), *sequence), &mut self.out);
            }
            all.extend(came);
        }
    }

    pub(crate) fn advance(&mut self, to: Instant) {
        while let Some(at) = self.upf.next_deadline().filter(|at| *at <= to) {
            self.now = self.now.max(at);
            self.upf.tick(self.now, &mut self.out);
        }
        self.now = to;
        self.upf.reach(to, &mut self.out);
    }
}

pub(crate) fn association(recovery: u32) -> AssociationSetupRequest {
    AssociationSetupRequest {
        announced_pools: None,
        smf_set_id: None,
        node_id: NodeId::from(SMF.ip()),
        recovery_time_stamp: RecoveryTimeStamp(recovery),
        up_function_features: None,
        cp_function_features: None,
        user_plane_ip_resource_information: vec![],
        session_retention_information: None,
        alternative_smf_ip_addresses: Vec::new(),
    }
}

pub(crate) fn from_gnb() -> Origin {
    Origin::N3 { peer: GNB, local: UPF.into() }
}

pub(crate) fn to_gnb() -> Destination {
    Destination::N3 { peer: GNB, tos: 0 }
}

pub(crate) fn g_pdu(teid: Teid, qfi: u8, inner: &[u8]) -> Vec<u8> {
    let header = GpduHeader::new(teid, Some(PduSessionInformation::Ul { qfi: Qfi::new(qfi).unwrap() }));
    let mut m = vec![0; header.octets_len()];
    header.write_before(inner.len(), &mut m).unwrap();
    m.extend_from_slice(inner);
    m
}

/// What the gNB receives: tunnel, flow, inner packet.
pub(crate) fn at_gnb(octets: &[u8]) -> (Teid, Option<u8>, Vec<u8>) {
    let m = Gtpu::parse(octets).unwrap();
    (m.teid, m.pdu_session.map(|p| p.qfi().value()), m.payload.to_vec())
}

/// An IPv4 packet of UDP.
pub(crate) fn udp4(source: Ipv4Addr, destination: Ipv4Addr, ports: (u16, u16), payload: usize) -> Vec<u8> {
    let len = (28 + payload) as u16;
    let mut p = vec![0x45, 0];
    p.extend_from_slice(&len.to_be_bytes());
    p.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0]);
    p.extend_from_slice(&source.octets());
    p.extend_from_slice(&destination.octets());
    for word in [ports.0, ports.1, len - 20, 0] {
        p.extend_from_slice(&word.to_be_bytes());
    }
    p.resize(usize::from(len), 0xab);
    p
}

/// An IPv6 packet.
pub(crate) fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0];
    p.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    p.extend_from_slice(&[protocol, 255]);
    p.extend_from_slice(&source.octets());
    p.extend_from_slice(&destination.octets());
    p.extend_from_slice(payload);
    p
}
