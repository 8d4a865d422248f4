//! SMFs of the fuzzer on N4: sessions as they should be, altered on their way to the UPF. And one that is well-behaved,
//! whose sessions must go on being served.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use whimbrel_ids::{Qfi, Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::{self, *};
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};

use crate::mutate;
use crate::program::CORE;
use crate::rng::Rng;

/// SMFs of the fuzzer.
const SMFS: u8 = 3;
/// Sessions that an SMF remembers.
const SESSIONS_MAX: usize = 48;
/// Messages of the fuzzer that may be under way: a round trip for each would leave the UPF idle most of the time, and without a bound its receive buffer
/// would drop them.
const UNDER_WAY_MAX: u64 = 16;
/// Sooner than an SMF would, as floods of the fuzzer fill the UPF's receive buffer.
const RESENT_AFTER: Duration = Duration::from_millis(100);
/// How long the well-behaved SMF waits for an answer, on a busy host.
const PATIENCE: Duration = Duration::from_secs(5);

struct Smf {
    address: Ipv4Addr,
    socket: UdpSocket,
    sessions: Vec<Seid>,
    /// Requests of the UPF that may be answered: sequence number, our SEID.
    asked: Vec<(u32, Option<Seid>)>,
    sequence: u32,
    answers_heartbeats: bool,
}

impl Smf {
    fn open(address: Ipv4Addr, answers_heartbeats: bool) -> Result<Self, String> {
        let cannot = |e: std::io::Error| format!("PFCP at {address}: {e}");
        let socket = UdpSocket::bind((address, 8805)).map_err(cannot)?;
        // The well-behaved one waits for answers; the others take what is there.
        socket.set_read_timeout(Some(Duration::from_millis(1))).map_err(cannot)?;
        socket.set_nonblocking(!answers_heartbeats).map_err(cannot)?;
        Ok(Self { address, socket, sessions: Vec::new(), asked: Vec::new(), sequence: 1, answers_heartbeats })
    }

    fn send(&mut self, octets: &[u8]) {
        let _ = self.socket.send_to(octets, (CORE, 8805));
    }

    fn octets(&mut self, seid: Option<Seid>, m: impl Into<Message>) -> Vec<u8> {
        self.sequence = (self.sequence + 1) & 0xff_ffff;
        m.into().to_octets(seid, self.sequence)
    }

    /// Takes what came; answers to sequence `until` end the wait.
    fn take(&mut self, until: Option<u32>) -> Option<Message> {
        let mut buffer = [0; 9000];
        for _ in 0..64 {
            let Ok((n, _)) = self.socket.recv_from(&mut buffer) else { return None };
            let Ok(frame) = Frame::parse(buffer.get(..n).unwrap_or_default()) else { continue };
            let (sequence, seid) = (frame.header.sequence, frame.header.seid);
            let Ok(message) = Message::parse(&frame) else { continue };
            match &message {
                Message::SessionEstablishmentResponse(m) => {
                    self.sessions.extend(m.up_f_seid.map(|f| f.seid));
                    let more = self.sessions.len().saturating_sub(SESSIONS_MAX);
                    self.sessions.drain(..more);
                }
                Message::SessionReportRequest(_) | Message::HeartbeatRequest(_) => {
                    self.asked.push((sequence, seid));
                    self.asked.truncate(16);
                }
                _ => {}
            }
            if self.answers_heartbeats && matches!(message, Message::HeartbeatRequest(_)) {
                let alive = Message::from(HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(1) });
                self.send(&alive.to_octets(None, sequence));
            }
            if until == Some(sequence) {
                return Some(message);
            }
        }
        None
    }

    fn association(&mut self) -> Vec<u8> {
        let node_id = NodeId::from(IpAddr::from(self.address));
        self.octets(
            None,
            AssociationSetupRequest {
                announced_pools: None,
                smf_set_id: None,
                node_id,
                recovery_time_stamp: RecoveryTimeStamp(1),
                up_function_features: None,
                cp_function_features: None,
                user_plane_ip_resource_information: vec![],
                session_retention_information: None,
                alternative_smf_ip_addresses: Vec::new(),
            },
        )
    }

    fn establishment(&self, rng: &mut Rng) -> SessionEstablishmentRequest {
        let (ipv4, ipv6) = [(true, false), (true, true), (false, true)][rng.below(3)];
        establishment(self.address, 1 + rng.below(200) as u64, ipv4, ipv6)
    }
}

/// The SMFs, and the one whose sessions must be served.
pub(crate) struct Smfs {
    bad: Vec<Smf>,
    good: Smf,
    sent: Vec<Vec<u8>>,
    tried: Instant,
    /// Messages since the UPF last answered the well-behaved SMF: it takes all datagrams in their order.
    under_way: u64,
    pub(crate) messages: u64,
}

impl Smfs {
    pub(crate) fn open() -> Result<Self, String> {
        let bad = (1..=SMFS)
            .map(|n| Smf::open(Ipv4Addr::new(127, 0, 3, n), false))
            .collect::<Result<Vec<_>, _>>()?;
        let mut good = Smf::open(Ipv4Addr::new(127, 0, 3, 100), true)?;
        let octets = good.association();
        good.send(&octets);
        let mut all = Self { bad, good, sent: Vec::new(), tried: Instant::now(), under_way: 0, messages: 0 };
        for smf in &mut all.bad {
            let octets = smf.association();
            smf.send(&octets);
        }
        std::thread::sleep(Duration::from_millis(50));
        Ok(all)
    }

    /// Sends one message; what comes is taken.
    pub(crate) fn perform(&mut self, seed: u64) {
        let rng = &mut Rng::new(seed);
        let (at, other) = (rng.below(self.bad.len()), rng.below(self.bad.len()));
        let foreign = self.bad.get(other).and_then(|s| s.sessions.get(rng.below(s.sessions.len())).copied());
        let Some(smf) = self.bad.get_mut(at) else { return };
        let own = smf.sessions.get(rng.below(smf.sessions.len())).copied();
        let seid = match rng.below(10) {
            0 => foreign,
            1 => Some(Seid(rng.number() >> rng.below(64))),
            2 => own.map(|s| Seid(s.0.wrapping_add(1))),
            _ => own,
        };
        let seid = Some(seid.unwrap_or(Seid(0)));
        let node_id = NodeId::from(IpAddr::from(smf.address));
        let mut m = match rng.below(40) {
            0 => smf.association(),
            1 => smf.octets(None, msg::AssociationReleaseRequest { node_id }),
            2 => smf.octets(None, HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) }),
            3..=13 => {
                let m = smf.establishment(rng);
                smf.octets(Some(Seid(0)), m)
            }
            14..=18 => {
                smf.octets(seid, activation(Teid(rng.below(40) as u32), Ipv4Addr::new(127, 0, 2, 1).into()))
            }
            19..=26 => {
                let m = modification(rng);
                smf.octets(seid, m)
            }
            27..=30 => smf.octets(seid, SessionDeletionRequest {}),
            31..=33 => {
                // An answer to what the UPF asked, or to nothing.
                let (sequence, seid) =
                    smf.asked.pop().unwrap_or((rng.below(40) as u32, Some(Seid(1 + rng.below(200) as u64))));
                let cause = [Cause::RequestAccepted, Cause::SessionContextNotFound][rng.below(2)];
                Message::from(SessionReportResponse::new(cause)).to_octets(seid, sequence)
            }
            34 => {
                let n = rng.below(64);
                rng.octets(n)
            }
            35..=36 => self.sent.get(rng.below(self.sent.len())).cloned().unwrap_or_default(),
            _ => {
                // Some type of message with elements of some other.
                let inner = smf.establishment(rng);
                let mut m = smf.octets(seid, inner);
                m[1] = [3, 5, 9, 12, 14, 50, 51, 52, 53, 54, 55, 56, 57, 6, 7, 8, 1, 2][rng.below(18)];
                m
            }
        };
        if rng.below(10) < 6 {
            mutate::pfcp(rng, &mut m);
        }
        let smf = &mut self.bad[at];
        let times = if rng.once_in(400) { 500 } else { 1 };
        (0..times).for_each(|_| smf.send(&m));
        self.messages += times;
        self.under_way += times;
        self.sent.insert(0, m);
        self.sent.truncate(64);
        smf.take(None);
    }

    /// A heartbeat of the well-behaved SMF after some messages, and every second one of its sessions from beginning to end. Errors: what was not served.
    pub(crate) fn canary(&mut self) -> Result<(), String> {
        if self.under_way >= UNDER_WAY_MAX {
            let octets =
                self.good.octets(None, HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) });
            self.ask("heartbeat", &octets)?;
            self.under_way = 0;
        }
        if self.tried.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        self.tried = Instant::now();
        let begin = Instant::now();
        let m = establishment(self.good.address, 7, true, false);
        let octets = self.good.octets(Some(Seid(0)), m);
        let Message::SessionEstablishmentResponse(m) = self.ask("establishment", &octets)? else {
            return Err("another answer than one to an establishment".into());
        };
        let seid = m.up_f_seid.map(|f| f.seid);
        if m.cause != Cause::RequestAccepted || seid.is_none() {
            return Err(format!(
                "the session of a well-behaved SMF was refused: {:?} {:?}",
                m.cause, m.offending_ie
            ));
        }
        let octets = self.good.octets(seid, activation(Teid(9), Ipv4Addr::new(127, 0, 2, 9).into()));
        match self.ask("modification", &octets)? {
            Message::SessionModificationResponse(m) if m.cause == Cause::RequestAccepted => {}
            other => return Err(format!("the modification of a well-behaved SMF: {other:?}")),
        }
        let octets = self.good.octets(seid, SessionDeletionRequest {});
        match self.ask("deletion", &octets)? {
            Message::SessionDeletionResponse(m) if m.cause == Cause::RequestAccepted => {}
            other => return Err(format!("the deletion of a well-behaved SMF: {other:?}")),
        }
        match begin.elapsed() > PATIENCE {
            true => Err(format!("the session of a well-behaved SMF took {:?}", begin.elapsed())),
            false => Ok(()),
        }
    }

    /// Asks as SMFs do: again after a while, under the same number (TS 29.244 §6.4).
    fn ask(&mut self, what: &str, octets: &[u8]) -> Result<Message, String> {
        let sequence = self.good.sequence;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            self.good.send(octets);
            let sent = Instant::now();
            while sent.elapsed() < RESENT_AFTER {
                if let Some(m) = self.good.take(Some(sequence)) {
                    return Ok(m);
                }
            }
        }
        Err(format!("the {what} of a well-behaved SMF was not answered within {PATIENCE:?}"))
    }

    /// The SMFs go, and their sessions with them.
    pub(crate) fn leave(&mut self) {
        for smf in self.bad.iter_mut().chain([&mut self.good]) {
            let node_id = NodeId::from(IpAddr::from(smf.address));
            for _ in 0..3 {
                let octets = smf.octets(None, msg::AssociationReleaseRequest { node_id: node_id.clone() });
                smf.send(&octets);
                smf.take(None);
            }
        }
    }
}

/// Rules of a session of one flow, as an SMF sends them first.
fn establishment(smf: Ipv4Addr, cp_seid: u64, ipv4: bool, ipv6: bool) -> SessionEstablishmentRequest {
    let internet = NetworkInstance::new("internet");
    let ue = |destination| UeIpAddress {
        destination,
        ipv4: ipv4.then_some(Choice::Choose),
        ipv6: ipv6.then_some(Choice::Choose),
        ..UeIpAddress::default()
    };
    let pdi = |source, interface_type, destination| Pdi {
        network_instance: internet.clone(),
        ue_ip_addresses: vec![ue(destination)],
        source_interface_type: Some(interface_type),
        ..Pdi::from(source)
    };
    let mut from_access = pdi(SourceInterface::Access, InterfaceType::N3, false);
    from_access.f_teid = Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None });
    from_access.qfis = Qfi::new(1).into_iter().collect();
    let uplink = CreatePdr {
        outer_header_removal: Some(OuterHeaderRemovalDescription::GtpuUdpIpv4.into()),
        qer_ids: vec![QerId(1)],
        urr_ids: vec![UrrId(1)],
        ..CreatePdr::new(PdrId(1), Precedence(255), from_access, FarId(1))
    };
    let to_ue = pdi(SourceInterface::Core, InterfaceType::N6, true);
    let downlink = CreatePdr {
        qer_ids: vec![QerId(1)],
        urr_ids: vec![UrrId(1)],
        ..CreatePdr::new(PdrId(2), Precedence(255), to_ue, FarId(2))
    };
    let forward = ForwardingParameters {
        network_instance: internet.clone(),
        ..ForwardingParameters::to(DestinationInterface::Core)
    };
    let rate = QerBitRate { ul_kbps: 100_000, dl_kbps: 200_000 };
    SessionEstablishmentRequest {
        create_pdrs: vec![uplink, downlink],
        create_fars: vec![
            CreateFar::forward(FarId(1), forward),
            CreateFar::action(FarId(2), ApplyAction::BUFF | ApplyAction::NOCP),
        ],
        create_qers: vec![CreateQer { mbr: Some(rate), qfi: Qfi::new(1), ..CreateQer::new(QerId(1)) }],
        create_urrs: vec![CreateUrr::new(UrrId(1), MeasurementMethod::VOLUM, ReportingTriggers::default())],
        pdn_type: Some(match (ipv4, ipv6) {
            (true, true) => PdnType::Ipv4v6,
            (false, true) => PdnType::Ipv6,
            _ => PdnType::Ipv4,
        }),
        apn_dnn: "internet".parse().ok(),
        ..SessionEstablishmentRequest::new(
            NodeId::from(IpAddr::from(smf)),
            FSeid::new(Seid(cp_seid), smf.into()),
        )
    }
}

/// The gNB's tunnel is known.
fn activation(teid: Teid, gnb: IpAddr) -> SessionModificationRequest {
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

/// Rules come, change and go.
fn modification(rng: &mut Rng) -> SessionModificationRequest {
    let mut m = SessionModificationRequest::default();
    let id = 1 + rng.below(6) as u16;
    match rng.below(5) {
        0 => {
            let pdi = Pdi::from([SourceInterface::Access, SourceInterface::Core][rng.below(2)]);
            m.create_pdrs =
                vec![CreatePdr::new(PdrId(id), Precedence(rng.number() as u32), pdi, FarId(id.into()))];
            m.create_fars = vec![CreateFar::action(FarId(id.into()), ApplyAction::DROP)];
        }
        1 => m.create_qers = vec![CreateQer { qfi: Qfi::new(id as u8), ..CreateQer::new(QerId(id.into())) }],
        2 => {
            let buffer = UpdateFar {
                apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP),
                ..UpdateFar::new(FarId(2))
            };
            m.update_fars = vec![buffer];
        }
        3 => {
            let method = MeasurementMethod::VOLUM;
            m.create_urrs = vec![CreateUrr::new(UrrId(id.into()), method, ReportingTriggers::default())];
        }
        _ => m.update_fars = vec![UpdateFar::new(FarId(id.into()))],
    }
    m
}
