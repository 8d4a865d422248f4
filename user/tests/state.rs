//! A UPF that keeps a state dies, and another process goes on: TS 23.527 §4.2 from the SMF's side.

use super::common;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use proptest::prelude::*;
use whimbrel_ids::{Instant, Qfi, Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::*;

/// A UPF of all that there is: Ethernet, unstructured sessions, slices with a rate, applications.
fn rich_config() -> Config {
    let mut config = config();
    config.data_networks[0].ethernet = true;
    let peer = "[2001:db8::5]:6000".parse().unwrap();
    config.data_networks[0].unstructured = Some(PointToPoint { peer, port: 6000 });
    config.slices =
        vec![SliceRate { slice: whimbrel_ids::SNssai::sst(2), ul_kbps: 1_000_000, dl_kbps: 1_000_000 }];
    let flow = "permit out 6 from 198.51.100.0/24 443 to assigned".parse().unwrap();
    let pfds = vec![Pfd { flows: vec![flow], names: vec![] }];
    config.applications.known = vec![Application { id: "video".into(), pfds }];
    config
}

/// A UPF and its state.
struct Kept {
    net: Net,
    memory: Memory,
    config: Config,
}

impl Kept {
    fn new(config: Config) -> Self {
        Self::of(config, 1 << 20)
    }

    fn of(config: Config, octets: u64) -> Self {
        let memory = Memory::of(octets);
        let mut out = Outbox::default();
        let (upf, restored) = with_state(config.clone(), START, &memory, &mut out);
        assert_eq!(restored, RestoredSessions::default());
        let mut net = Net::on(upf);
        net.associate();
        Self { net, memory, config }
    }

    /// The UPF dies, and another one begins.
    fn dies(&mut self) -> RestoredSessions {
        let (upf, restored) = with_state(self.config.clone(), self.net.now, &self.memory, &mut self.net.out);
        self.net.upf = upf;
        restored
    }

    fn recovery(&mut self) -> RecoveryTimeStamp {
        let m = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) };
        let Message::HeartbeatResponse(m) = self.net.ask(None, m.into()) else { panic!() };
        m.recovery_time_stamp
    }

    /// The request itself, whatever its number.
    fn raw(&mut self, seid: Seid, m: impl Into<Message>, sequence: u32) -> Option<Vec<u8>> {
        let octets = m.into().to_octets(Some(seid), sequence);
        self.net.upf.pfcp(self.net.now, SMF, &octets, &mut self.net.out);
        self.net.out.datagrams.pop().map(|(_, octets)| octets)
    }
}

#[test] // TS 23.527 §4.2: an SMF, a gNB and a UE notice nothing
fn a_successor_is_the_same_upf_to_its_peers() {
    let mut it = Kept::new(config());
    let recovery = it.recovery();
    let (one, other) = (it.net.session(1, true, true), it.net.session(2, true, false));
    let gone = it.net.session(3, true, false);
    it.net.delete(&gone);
    it.net.advance(START + Duration::from_secs(40));
    let restored = it.dies();
    assert_eq!(restored, RestoredSessions { sessions: 2, lost: 0, associations: 1, refusal: None });
    assert_eq!(it.recovery(), recovery);
    for s in [&one, &other] {
        let down = it.net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 9));
        assert_eq!((down.0, at_gnb(&down.1).0), (PacketVerdict::Send(to_gnb()), GNB_TEID));
        let up = it.net.uplink(s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 9)).0;
        assert_eq!(up, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
    }
    // Its SEID serves, and no session gets what another one has or had just now.
    assert_eq!(it.net.modify(&one, activation(Teid(9), GNB.ip())).cause, Cause::RequestAccepted);
    let new = it.net.session(4, true, true);
    for s in [&one, &other, &gone] {
        assert!(new.teid != s.teid && new.up_seid != s.up_seid);
    }
    assert!(new.ipv4 != one.ipv4 && new.ipv4 != other.ipv4 && new.ipv6 != one.ipv6);
    assert_eq!(it.net.delete(&other).cause, Cause::RequestAccepted);
    it.dies();
    assert_eq!(it.net.upf.c.session_count(), 2);
}

#[test] // TS 29.244 §6.4: a request that is repeated gets the same answer, no matter which process gave it
fn a_repeated_request_gets_its_answer_from_the_successor() {
    let mut it = Kept::new(config());
    let answer = it.raw(Seid(0), establishment(1, true, false), 70).unwrap();
    let Ok(Message::SessionEstablishmentResponse(m)) = Message::parse(&Frame::parse(&answer).unwrap()) else {
        panic!()
    };
    let s = it.net.seated(1, &m);
    it.dies();
    assert_eq!(it.raw(Seid(0), establishment(1, true, false), 70), Some(answer));
    // Done twice, it would be refused: the rules are there.
    let more = || {
        let pdi =
            Pdi { f_teid: Some(FTeid::given(s.teid, UPF.into())), ..Pdi::from(SourceInterface::Access) };
        let create_pdrs = vec![CreatePdr::new(PdrId(9), Precedence(3), pdi, FarId(1))];
        SessionModificationRequest { create_pdrs, ..Default::default() }
    };
    let answer = it.raw(s.up_seid, more(), 71).unwrap();
    it.dies();
    assert_eq!(it.raw(s.up_seid, more(), 71), Some(answer));
    let Message::SessionModificationResponse(m) = it.net.ask(Some(s.up_seid), more().into()) else {
        panic!()
    };
    assert_eq!(m.cause, Cause::RuleCreationModificationFailure);
    let answer = it.raw(s.up_seid, SessionDeletionRequest {}, 72).unwrap();
    it.dies();
    assert_eq!(it.raw(s.up_seid, SessionDeletionRequest {}, 72), Some(answer));
}

#[test] // the answer waits for figures: until it leaves, the request is not done
fn a_deletion_that_is_not_answered_is_done_by_the_successor() {
    let mut it = Kept::new(config());
    let s = it.net.session(1, true, false);
    it.net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 72));
    it.net.upf.keep_all_counted(it.net.now, &mut it.net.out);
    let octets = Message::from(SessionDeletionRequest {}).to_octets(Some(s.up_seid), 80);
    let c = &mut it.net.upf.c;
    c.handle(it.net.now, Input::Pfcp { peer: SMF, octets: &octets }, &mut it.net.out);
    assert!(it.net.out.datagrams.is_empty(), "it waits for the pipeline");
    it.net.out.changes.clear();
    assert_eq!(it.dies().sessions, 1);
    let answer = it.raw(s.up_seid, SessionDeletionRequest {}, 80).unwrap();
    let Ok(Message::SessionDeletionResponse(m)) = Message::parse(&Frame::parse(&answer).unwrap()) else {
        panic!()
    };
    assert_eq!(m.usage_reports[0].volume_measurement.unwrap().ul, Some(100));
    assert_eq!(it.dies().sessions, 0);
}

#[test] // TS 29.244 §5.2.2: usage is reported once, and what a kill can lose is what passed after the last look
fn usage_is_neither_reported_twice_nor_lost_but_for_the_last_second() {
    let mut it = Kept::new(config());
    let mut m = establishment(1, true, false);
    m.create_urrs[0].reporting_triggers = ReportingTriggers::VOLTH | ReportingTriggers::VOLQU;
    m.create_urrs[0].volume_threshold = Some(Volume { total: Some(250), ..Volume::default() });
    m.create_urrs[0].volume_quota = Some(Volume { total: Some(1_000), ..Volume::default() });
    let r = it.net.establish(m);
    let s = it.net.seated(1, &r);
    it.net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let packet = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 72);
    (0..2).for_each(|_| _ = it.net.uplink(&s, &packet));
    it.net.advance(it.net.now + COUNTED_EVERY);
    it.dies();
    // The third reaches the threshold with the two that were counted before.
    it.net.uplink(&s, &packet);
    let reports = it.net.reports();
    let [(_, sequence, first)] = &reports[..] else { panic!("{reports:?}") };
    let figures = |m: &SessionReportRequest| {
        let u = &m.usage_reports[0];
        (u.ur_seqn, u.volume_measurement.unwrap().total)
    };
    assert_eq!(figures(first), (UrSeqn(0), Some(300)));
    // It is not answered: the successor repeats it under its number, and counts from there.
    it.dies();
    let reports = it.net.reports();
    let [(_, again, second)] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((again, figures(second)), (sequence, figures(first)));
    let answer = Message::from(SessionReportResponse::new(Cause::RequestAccepted));
    let octets = answer.to_octets(Some(s.up_seid), *sequence);
    it.net.upf.pfcp(it.net.now, SMF, &octets, &mut it.net.out);
    it.dies();
    assert!(it.net.reports().is_empty(), "it is answered");
    (0..3).for_each(|_| _ = it.net.uplink(&s, &packet));
    let (_, _, third) = it.net.reports().remove(0);
    assert_eq!(figures(&third), (UrSeqn(1), Some(300)));
    // These are lost: no look came between. The quota of 1,000 octets counts 600.
    (0..2).for_each(|_| _ = it.net.uplink(&s, &packet));
    it.dies();
    let passed = (0..9)
        .take_while(|_| it.net.uplink(&s, &packet).0 != PacketVerdict::Drop(DropReason::QuotaExhausted));
    assert_eq!(passed.count(), 4);
}

#[test]
fn a_full_state_refuses_new_sessions_and_serves_those_that_it_has() {
    let mut it = Kept::of(config(), 4096 + 256 * 40);
    let mut sessions = Vec::new();
    let refused = loop {
        let mut m = establishment(1 + sessions.len() as u64, true, false);
        m.apn_dnn = Some("ims".parse().unwrap());
        m.create_pdrs.iter_mut().for_each(|p| p.pdi.network_instance = NetworkInstance::new("ims"));
        let r = it.net.establish(m);
        if r.cause != Cause::RequestAccepted {
            break r;
        }
        sessions.push(it.net.seated(1 + sessions.len() as u64, &r));
        assert!(sessions.len() < 40, "there is a block for each at most");
    };
    assert_eq!((refused.cause, refused.failed_rule_id), (Cause::NoResourcesAvailable, None));
    assert_eq!(it.net.upf.c.session_count(), sessions.len());
    for s in &sessions {
        assert_eq!(it.net.modify(s, activation(GNB_TEID, GNB.ip())).cause, Cause::RequestAccepted);
    }
    assert_eq!(it.dies().sessions, sessions.len());
    it.net.delete(&sessions[0]);
    it.net.delete(&sessions[1]);
    assert_eq!(it.dies().sessions, sessions.len() - 2);
}

/// What a successor makes of changed octets, configuration or host.
fn refusal(change: impl FnOnce(&mut Vec<u8>, &mut Config, &mut [u8; 16])) -> Option<StateRefusal> {
    let mut it = Kept::new(config());
    it.net.session(1, true, false);
    let recovery = it.recovery();
    let mut boot = BOOT;
    change(&mut it.memory.0.lock().unwrap(), &mut it.config, &mut boot);
    it.net.now = START + Duration::from_secs(9);
    let mut config = it.config.clone();
    let state = SessionMemory::open(Box::new(it.memory.clone()), &mut config, boot, it.net.now);
    let refused = state.refusal();
    let (upf, restored) = Upf::with_state(config, it.net.now, state, &mut it.net.out).unwrap();
    it.net.upf = upf;
    assert_eq!(restored.refusal.is_some(), restored.sessions == 0, "{restored:?}");
    // To SMFs it is a UPF that has restarted.
    assert_eq!(it.recovery() == recovery, restored.refusal.is_none());
    refused.or(restored.refusal)
}

#[test]
fn a_state_that_is_not_this_upfs_is_refused_and_begun_again() {
    assert_eq!(refusal(|_, _, _| ()), None);
    assert_eq!(refusal(|m, _, _| m[0] ^= 1), Some(StateRefusal::Foreign));
    assert_eq!(refusal(|m, _, _| m[8] = 9), Some(StateRefusal::Version { found: 9 }));
    assert_eq!(refusal(|m, _, _| m[40] ^= 1), Some(StateRefusal::Damaged));
    assert_eq!(refusal(|_, _, boot| boot[3] = 1), Some(StateRefusal::Boot));
    assert_eq!(refusal(|_, c, _| c.n3_ipv4 = Some(GNB_ADDRESS)), Some(StateRefusal::Configuration));
    assert_eq!(refusal(|_, c, _| _ = c.data_networks.pop()), Some(StateRefusal::Configuration));
    assert_eq!(refusal(|_, c, _| c.shards = 4), Some(StateRefusal::Shards { found: 1 }));
    // More addresses of a network are no other network.
    let more = Ipv4Net { address: Ipv4Addr::new(10, 47, 0, 0), prefix: 16 };
    assert_eq!(refusal(|_, c, _| c.data_networks[0].ipv4_pools.push(more)), None);
}

const GNB_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

#[test] // TS 29.244 §6.2.5: PFDs are of the association, which goes on
fn provisioned_applications_go_on() {
    let mut it = Kept::new(rich_config());
    let contents = PfdContents {
        flow_descriptions: vec!["permit out 17 from 203.0.113.0/24 to assigned".into()],
        ..PfdContents::default()
    };
    let pfd_contexts = vec![PfdContext { pfd_contents: vec![contents] }];
    let application_id = ApplicationId("game".into());
    let m = PfdManagementRequest {
        applications: vec![ApplicationPfds { application_id, pfd_contexts }],
        node_id: None,
    };
    let Message::PfdManagementResponse(m) = it.net.ask(None, m.into()) else { panic!() };
    assert_eq!(m.cause, Cause::RequestAccepted);
    let s = it.net.session(1, true, false);
    let barred = |it: &mut Kept| {
        let packet = udp4(Ipv4Addr::new(203, 0, 113, 8), s.ipv4.unwrap(), (1, 2), 9);
        it.net.downlink(&packet).0 == PacketVerdict::Drop(DropReason::FarDrop)
    };
    let pdi = Pdi { application_id: Some(ApplicationId("game".into())), ..Pdi::from(SourceInterface::Core) };
    let m = SessionModificationRequest {
        create_pdrs: vec![CreatePdr::new(PdrId(9), Precedence(3), pdi, FarId(9))],
        create_fars: vec![CreateFar::action(FarId(9), ApplyAction::DROP)],
        ..Default::default()
    };
    assert_eq!(it.net.modify(&s, m).cause, Cause::RequestAccepted);
    assert!(barred(&mut it));
    assert_eq!(it.dies().sessions, 1);
    assert!(barred(&mut it));
    // The SMF removes them, for good.
    it.net.ask(None, PfdManagementRequest::default().into());
    it.net.advance(it.net.now + Duration::from_millis(1));
    it.dies();
    assert!(!barred(&mut it));
}

#[test]
fn a_predicted_session_is_predicted_still_and_given_up_as_any() {
    let mut it = Kept::new(config());
    let mut m = establishment(1, true, false);
    m.on_arrival = Some(OnArrival);
    let to_gnb = ForwardingParameters {
        outer_header_creation: Some(OuterHeaderCreation::gtpu(GNB_TEID, GNB.ip())),
        ..ForwardingParameters::to(DestinationInterface::Access)
    };
    m.create_fars[1] = CreateFar::forward(FarId(2), to_gnb);
    let octets = Message::from(m).to_octets(Some(Seid(0)), 90);
    let Some(Message::SessionEstablishmentResponse(r)) = it.net.ask_octets(&octets) else { panic!() };
    let s = it.net.seated(1, &r);
    assert_eq!(it.dies().sessions, 1);
    let up = |it: &mut Kept| it.net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 9)).0;
    assert!(matches!(up(&mut it), PacketVerdict::Send(_)), "its UE has come");
    it.net.advance(it.net.now + Duration::from_secs(30));
    assert_eq!(it.net.upf.c.session_count(), 0, "the SMF has not confirmed it");
    assert_eq!(it.dies().sessions, 0);
}

#[test]
fn an_association_that_is_released_stays_released() {
    let mut it = Kept::new(config());
    it.net.session(1, true, false);
    let m = whimbrel_pfcp::msg::AssociationReleaseRequest { node_id: SMF.ip().into() };
    it.dies();
    it.net.ask(None, m.into());
    assert_eq!(it.net.upf.c.session_count(), 0);
    let restored = it.dies();
    assert_eq!((restored.sessions, restored.associations), (0, 0));
}

/// An establishment of any kind of session and rules, as the bits of `n` say.
fn rich(cp: u64, n: u32) -> SessionEstablishmentRequest {
    let bit = |i: u32| n >> i & 1 != 0;
    let mut m = establishment(cp, bit(0), !bit(0) || bit(1));
    match n >> 2 & 7 {
        0 => m.pdn_type = Some(PdnType::Ethernet),
        1 => m.pdn_type = Some(PdnType::NonIp),
        _ => {}
    }
    let ip = n >> 2 & 7 > 1;
    if !ip {
        m.create_pdrs.iter_mut().for_each(|p| p.pdi.ue_ip_addresses.clear());
    }
    if ip && bit(5) {
        let routes = vec![FramedRoute::new(Ipv4Addr::new(192, 168, cp as u8, 0), 24).unwrap()];
        m.create_pdrs.iter_mut().for_each(|p| p.pdi.framed_routes = routes.clone());
    }
    if bit(6) {
        m.s_nssai = Some(whimbrel_ids::SNssai::sst(2));
    }
    if bit(7) {
        m.create_bars = vec![CreateBar {
            bar_id: BarId(3),
            downlink_data_notification_delay: Some(DownlinkDataNotificationDelay(4)),
            suggested_buffering_packets_count: Some(SuggestedBufferingPacketsCount(9)),
        }];
        m.create_fars[1].bar_id = Some(BarId(3));
    }
    if bit(8) {
        let qer = &mut m.create_qers[0];
        qer.gbr = Some(QerBitRate { ul_kbps: 10, dl_kbps: 20 });
        (qer.rqi, qer.averaging_window) = (Some(Rqi::RQI), Some(AveragingWindow(500)));
        qer.paging_policy_indicator = Some(PagingPolicyIndicator(3));
    }
    if bit(9) {
        let urr = &mut m.create_urrs[0];
        urr.measurement_method = MeasurementMethod::VOLUM | MeasurementMethod::DURAT;
        urr.reporting_triggers = ReportingTriggers::VOLTH | ReportingTriggers::PERIO;
        urr.volume_threshold = Some(Volume { ul: Some(5), dl: None, total: Some(9) });
        (urr.time_quota, urr.measurement_period) = (Some(TimeQuota(7)), Some(MeasurementPeriod(600)));
        urr.monitoring_time = Some(NtpTime::at(START + Duration::from_secs(99)));
        let linked_urr_ids = vec![UrrId(1)];
        let other = CreateUrr::new(UrrId(2), MeasurementMethod::EVENT, ReportingTriggers::default());
        m.create_urrs.push(CreateUrr { linked_urr_ids, ..other });
    }
    if bit(10) {
        m.user_plane_inactivity_timer = Some(UserPlaneInactivityTimer(50));
    }
    if ip && n >> 11 & 3 == 1 {
        let ports = (0..[1, 3, 16][(n >> 13) as usize % 3]).map(|i| {
            SdfFilter::flow(&format!(
                "permit out 17 from 2001:db8::/32 {},70-80 to assigned {}",
                100 + i,
                i + 1
            ))
        });
        m.create_pdrs[1].pdi.sdf_filters = ports.collect();
        m.create_pdrs[1].pdi.sdf_filters[0].filter_id = Some(5);
        m.create_pdrs[1].pdi.sdf_filters[0].tos_traffic_class = Some([0x20, 0xfc]);
    } else if ip && n >> 11 & 3 == 2 {
        m.create_pdrs[1].pdi.application_id = Some(ApplicationId("video".into()));
    }
    if n >> 2 & 7 == 0 && bit(13) {
        let mac =
            MacAddress { source: Some([2, 0, 0, 0, 0, 1]), upper_source: Some([3; 6]), ..Default::default() };
        m.create_pdrs[1].pdi.ethernet_packet_filters = vec![EthernetPacketFilter {
            ethernet_filter_id: Some(EthernetFilterId(4)),
            ethernet_filter_properties: Some(EthernetFilterProperties::BIDE),
            mac_addresses: vec![mac],
            ethertype: Some(Ethertype(0x0800)),
            c_tag: Some(VlanTag([5, 0x13, 0x23])),
            s_tag: None,
            sdf_filters: vec![SdfFilter::flow("permit out 6 from any to assigned 80")],
        }];
    }
    m
}

/// A change of a session.
fn change(n: u32) -> SessionModificationRequest {
    match n % 6 {
        0 => activation(Teid(n), GNB.ip()),
        1 => SessionModificationRequest {
            update_fars: vec![UpdateFar {
                apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP),
                ..UpdateFar::new(FarId(2))
            }],
            ..Default::default()
        },
        2 => SessionModificationRequest {
            create_qers: vec![CreateQer { qfi: Qfi::new(9), ..CreateQer::new(QerId(9)) }],
            create_fars: vec![CreateFar::action(FarId(9), ApplyAction::DROP)],
            create_pdrs: vec![CreatePdr {
                qer_ids: vec![QerId(9)],
                ..CreatePdr::new(PdrId(9), Precedence(n), Pdi::from(SourceInterface::Core), FarId(9))
            }],
            ..Default::default()
        },
        3 => SessionModificationRequest {
            remove_pdrs: vec![RemovePdr { pdr_id: PdrId(9) }],
            remove_fars: vec![RemoveFar { far_id: FarId(9) }],
            remove_qers: vec![RemoveQer { qer_id: QerId(9) }],
            ..Default::default()
        },
        4 => SessionModificationRequest {
            update_urrs: vec![UpdateUrr {
                volume_quota: Some(Volume { total: Some(n.into()), ..Volume::default() }),
                ..UpdateUrr::new(UrrId(1))
            }],
            cp_f_seid: Some(FSeid::new(Seid(u64::from(n) | 1 << 40), SMF.ip())),
            ..Default::default()
        },
        _ => SessionModificationRequest { on_arrival: Some(OnArrival), ..activation(Teid(n), GNB.ip()) },
    }
}

/// The rules of each session, as the changes have them: those that are, and those that are predicted.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rules(BTreeMap<SessionId, [Option<Arc<SessionRules>>; 2]>);

impl Rules {
    fn apply(&mut self, change: &UserPlaneChange) {
        match change {
            UserPlaneChange::Put { session, rules, .. } | UserPlaneChange::Restore { session, rules, .. } => {
                self.0.insert(*session, [Some(Arc::clone(rules)), None]);
            }
            UserPlaneChange::Predict { session, rules, .. } => {
                self.0.entry(*session).or_default()[1] = Some(Arc::clone(rules));
            }
            UserPlaneChange::Remove { session, .. } => _ = self.0.remove(session),
            UserPlaneChange::NoSession { .. } => {}
        }
    }
}

/// What a UPF is asked for in [`rich`] and [`change`], and how it answers.
struct Asked {
    c: UpfC,
    out: Outbox,
    rules: Rules,
    seids: BTreeMap<u64, Seid>,
}

impl Asked {
    fn new(config: &Config, memory: &Memory) -> Self {
        let (mut owned, mut out) = (config.clone(), Outbox::default());
        let state = SessionMemory::open(Box::new(memory.clone()), &mut owned, BOOT, START);
        let (mut c, _) = UpfC::with_state(owned, START, state, &mut out).unwrap();
        let m = Message::from(association(1)).to_octets(None, 1);
        c.handle(START, Input::Pfcp { peer: SMF, octets: &m }, &mut out);
        Self { c, out: Outbox::default(), rules: Rules::default(), seids: BTreeMap::new() }
    }

    /// Asks, and answers in the pipeline's place. The request, and the answers.
    fn ask(
        &mut self,
        sequence: u32,
        (cp, bits, kind): (u64, u32, u8),
    ) -> (Vec<u8>, Vec<(std::net::SocketAddr, Vec<u8>)>) {
        let Self { c, out, rules, seids } = self;
        let known = seids.get(&cp).copied();
        let m = match (kind, known) {
            (0, Some(seid)) => Message::from(SessionDeletionRequest {}).to_octets(Some(seid), sequence),
            (1..=5, Some(seid)) => Message::from(change(bits)).to_octets(Some(seid), sequence),
            _ => Message::from(rich(cp + 1, bits)).to_octets(Some(Seid(0)), sequence),
        };
        c.handle(START, Input::Pfcp { peer: SMF, octets: &m }, out);
        // Figures that answers wait for.
        out.changes.iter().for_each(|change| rules.apply(change));
        let token = |change: &UserPlaneChange| match change {
            UserPlaneChange::Put { session, effects, .. } => Some((*session, effects.token?)),
            UserPlaneChange::Remove { session, token } => Some((*session, (*token)?)),
            _ => None,
        };
        for (session, token) in out.changes.iter().filter_map(token).collect::<Vec<_>>() {
            let report = UserPlaneReport::Usage { session, token: Some(token), reports: vec![] };
            c.handle(START, Input::Report(report), out);
        }
        for e in &out.events {
            match e {
                Event::SessionEstablished { session, cp_seid, .. } => {
                    _ = seids.insert(cp_seid.0 - 1, session.seid())
                }
                Event::SessionDeleted { session } => seids.retain(|_, s| *s != session.seid()),
                _ => {}
            }
        }
        (m, std::mem::take(out).datagrams)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever requests came, a successor has the rules that the pipeline had, and answers what comes next as the one that died would have.
    #[test]
    fn any_requests_leave_a_state_of_the_same_rules(
        requests in proptest::collection::vec((0..6u64, any::<u32>(), 0..8u8), 1..40),
        shards in 0..2u32,
    ) {
        let config = Config { shards: 1 << (2 * shards), ..rich_config() };
        let memory = Memory::of(1 << 19);
        let (mut asked, mut out) = (Asked::new(&config, &memory), Outbox::default());
        for (n, request) in requests.into_iter().enumerate() {
            let (m, answers) = asked.ask(10 + n as u32, request);
            let (c, rules) = (&asked.c, &asked.rules);

            let copy = memory.copy();
            let mut owned = config.clone();
            let state = SessionMemory::open(Box::new(copy), &mut owned, BOOT, START);
            let (mut successor, restored) = UpfC::with_state(owned, START, state, &mut out).unwrap();
            prop_assert_eq!(restored.lost, 0);
            prop_assert_eq!(successor.session_count(), c.session_count());
            prop_assert_eq!(successor.free_addresses(DnIndex(0)), c.free_addresses(DnIndex(0)));
            let mut again = Rules::default();
            std::mem::take(&mut out).changes.iter().for_each(|change| again.apply(change));
            prop_assert_eq!(&again, rules);
            // The same request again: the same answer.
            successor.handle(START, Input::Pfcp { peer: SMF, octets: &m }, &mut out);
            let repeated = std::mem::take(&mut out).datagrams;
            prop_assert_eq!(repeated, answers);
        }
    }

    /// A replica that has looked at the state now and then goes on as a process that begins with the state: the same rules, answers and names.
    #[test]
    fn a_replica_that_follows_the_state_takes_over_as_a_successor_that_reads_it(
        requests in proptest::collection::vec(((0..6u64, any::<u32>(), 0..8u8), any::<bool>()), 1..40),
        shards in 0..2u32,
    ) {
        let config = Config { shards: 1 << (2 * shards), ..rich_config() };
        let memory = Memory::of(1 << 19);
        let mut asked = Asked::new(&config, &memory);
        let mut owned = config.clone();
        let state = FollowedState::open(Box::new(memory.clone()), &mut owned, BOOT).unwrap().unwrap();
        let mut replica = UpfCReplica::new(owned, START, state).unwrap();
        let (mut out, mut last) = (Outbox::default(), None);
        for (n, (request, looks)) in requests.into_iter().enumerate() {
            last = Some(asked.ask(10 + n as u32, request));
            if looks {
                replica.catch_up(START, &mut out);
            }
        }
        let mut owned = config.clone();
        let state = SessionMemory::open(Box::new(memory.copy()), &mut owned, BOOT, START);
        let mut at_once = Outbox::default();
        let (mut successor, expected) = UpfC::with_state(owned, START, state, &mut at_once).unwrap();
        let rules = asked.rules.clone();
        drop(asked);
        let (mut replica, restored) = replica.take_over(START, &mut out).unwrap();
        prop_assert_eq!(restored, expected);
        prop_assert_eq!(replica.free_addresses(DnIndex(0)), successor.free_addresses(DnIndex(0)));
        let mut again = Rules::default();
        std::mem::take(&mut out).changes.iter().for_each(|change| again.apply(change));
        prop_assert_eq!(&again, &rules);
        let (mut one, mut other) = (Outbox::default(), Outbox::default());
        let (m, answers) = last.unwrap();
        let new = Message::from(rich(90, 5)).to_octets(Some(Seid(0)), 7_000);
        for octets in [&m, &new] {
            replica.handle(START, Input::Pfcp { peer: SMF, octets }, &mut one);
            successor.handle(START, Input::Pfcp { peer: SMF, octets }, &mut other);
        }
        prop_assert_eq!(&one.datagrams[..answers.len()], &answers[..]);
        prop_assert_eq!(one.datagrams, other.datagrams);
        // And it leaves a state for the next one.
        let mut owned = config;
        let state = FollowedState::open(Box::new(memory), &mut owned, BOOT).unwrap().unwrap();
        let next = UpfCReplica::new(owned, START, state).unwrap().take_over(START, &mut out).unwrap();
        prop_assert_eq!(next.0.session_count(), replica.session_count());
    }
}

#[test] // TS 29.244 §5.2.4: what waits for an idle UE waits on in the process that takes over
fn packets_that_wait_for_an_idle_ue_wait_in_the_successor() {
    for shards in [1, 4] {
        let config = Config { shards, ..config() };
        let mut it = Kept::of(config.clone(), SessionMemory::octets_for(&config));
        let kept = it.memory.clone();
        it.net.upf.u.keep_held(START, &config, &|| Box::new(kept.clone()));
        let (idle, other) = (it.net.session(1, true, false), it.net.session(2, true, false));
        let buffer = || {
            let far = UpdateFar {
                apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP),
                ..UpdateFar::new(FarId(2))
            };
            SessionModificationRequest { update_fars: vec![far], ..Default::default() }
        };
        for s in [&idle, &other] {
            assert_eq!(it.net.modify(s, buffer()).cause, Cause::RequestAccepted);
        }
        let to = |s: &Session, n| udp4(SERVER, s.ipv4.unwrap(), (1, n), 9);
        for n in [5, 6, 7] {
            assert_eq!(it.net.downlink(&to(&idle, n)).0, PacketVerdict::Taken);
        }
        assert_eq!(it.net.downlink(&to(&other, 9)).0, PacketVerdict::Taken);
        // Those of the other one leave before the process dies.
        it.net.modify(&other, activation(GNB_TEID, GNB.ip()));
        assert_eq!(it.net.outputs().len(), 1);
        it.dies();
        it.net.upf.u.keep_held(START, &config, &|| Box::new(kept.clone()));
        assert!(it.net.outputs().is_empty());
        it.net.modify(&idle, activation(GNB_TEID, GNB.ip()));
        let left: Vec<_> = it.net.outputs().iter().map(|(_, p)| at_gnb(p).2).collect();
        assert_eq!(left, [to(&idle, 5), to(&idle, 6), to(&idle, 7)]);
        it.dies();
        it.net.upf.u.keep_held(START, &config, &|| Box::new(kept.clone()));
        it.net.modify(&idle, activation(GNB_TEID, GNB.ip()));
        assert!(it.net.outputs().is_empty(), "they have left");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A replica on another host, which joins at some time and gets each record that changes from then on, goes on as a process that begins with the state.
    #[test]
    fn a_replica_on_another_host_takes_over_as_a_successor_that_reads_the_state(
        requests in proptest::collection::vec(((0..6u64, any::<u32>(), 0..8u8), any::<bool>()), 1..40),
        joins in 0..40usize,
    ) {
        let config = rich_config();
        let memory = Memory::of(1 << 19);
        let mut asked = Asked::new(&config, &memory);
        let (joins, mut replica, mut last) = (joins.min(requests.len() - 1), None, None);
        let mut out = Outbox::default();
        for (n, (request, looks)) in requests.into_iter().enumerate() {
            if n == joins {
                let (seed, recovery, records) = asked.c.all_records();
                let mut owned = Config { seed: 1, ..config.clone() };
                let own = Box::new(Memory::of(1 << 19));
                let state = ReceivedState::begin(own, &mut owned, (seed, recovery), [7; 16], START);
                let mut joined = UpfCReplica::remote(owned, START, state).unwrap();
                joined.receive(records);
                replica = Some(joined);
            }
            last = Some(asked.ask(10 + n as u32, request));
            if let Some(replica) = &mut replica {
                replica.receive(asked.c.take_records());
                if looks {
                    replica.catch_up(START, &mut out);
                }
            }
        }
        let mut owned = config.clone();
        let state = SessionMemory::open(Box::new(memory.copy()), &mut owned, BOOT, START);
        let mut at_once = Outbox::default();
        let (mut successor, expected) = UpfC::with_state(owned, START, state, &mut at_once).unwrap();
        let (mut replica, restored) = replica.unwrap().take_over(START, &mut out).unwrap();
        prop_assert_eq!(restored, expected);
        prop_assert_eq!(replica.free_addresses(DnIndex(0)), successor.free_addresses(DnIndex(0)));
        let mut again = Rules::default();
        std::mem::take(&mut out).changes.iter().for_each(|change| again.apply(change));
        prop_assert_eq!(&again, &asked.rules);
        let (mut one, mut other) = (Outbox::default(), Outbox::default());
        let (m, answers) = last.unwrap();
        let new = Message::from(rich(90, 5)).to_octets(Some(Seid(0)), 7_000);
        for octets in [&m, &new] {
            replica.handle(START, Input::Pfcp { peer: SMF, octets }, &mut one);
            successor.handle(START, Input::Pfcp { peer: SMF, octets }, &mut other);
        }
        prop_assert_eq!(&one.datagrams[..answers.len()], &answers[..]);
        prop_assert_eq!(one.datagrams, other.datagrams);
        // And it has a state of its own for the next one.
        prop_assert_eq!(replica.all_records().2.is_empty(), false);
    }
}

#[test] // usage that the pipeline had counted when the UPF was last written down is the replica's
fn a_replica_goes_on_with_the_usage_that_was_counted() {
    let mut it = Kept::new(config());
    let s = it.net.session(1, true, false);
    let mut owned = it.config.clone();
    let state = FollowedState::open(Box::new(it.memory.clone()), &mut owned, BOOT).unwrap().unwrap();
    let (mut out, mut shards) = (Outbox::default(), Shards::new(&owned).unwrap());
    let mut replica = UpfCReplica::new(owned, START, state).unwrap();
    replica.catch_up(START, &mut out);
    it.net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 72));
    it.net.upf.keep_all_counted(it.net.now, &mut it.net.out);
    let (c, restored) = replica.take_over(START, &mut out).unwrap();
    assert_eq!(restored, RestoredSessions { sessions: 1, lost: 0, associations: 1, refusal: None });
    out.changes.drain(..).for_each(|change| shards.apply(START, change));
    it.net.upf = Upf { c, u: shards };
    let Message::SessionDeletionResponse(m) = it.net.ask(Some(s.up_seid), SessionDeletionRequest {}.into())
    else {
        panic!()
    };
    assert_eq!(m.usage_reports[0].volume_measurement.unwrap().ul, Some(100));
}

#[test]
fn a_replica_does_not_go_on_with_a_state_that_was_begun_again() {
    let memory = Memory::of(1 << 19);
    let mut owned = config();
    assert!(
        FollowedState::open(Box::new(memory.clone()), &mut owned, BOOT).unwrap().is_none(),
        "nothing is there"
    );
    let it = Kept::of(config(), 1 << 19);
    let follow = |owned: &mut Config| FollowedState::open(Box::new(it.memory.clone()), owned, BOOT);
    let state = follow(&mut owned).unwrap().unwrap();
    let replica = UpfCReplica::new(owned.clone(), START, state).unwrap();
    let mut other = Config { sessions_max: 77, ..config() };
    assert_eq!(follow(&mut other).err(), Some(StateRefusal::Configuration));
    SessionMemory::open(Box::new(it.memory.clone()), &mut other, BOOT, START);
    let mut out = Outbox::default();
    assert_eq!(replica.take_over(START, &mut out).err(), Some(StateRefusal::Configuration));
}

#[test]
fn a_clock_that_was_set_back_delays_nothing_for_long() {
    let mut it = Kept::new(config());
    let mut m = establishment(1, true, false);
    m.create_urrs[0].reporting_triggers = ReportingTriggers::PERIO;
    m.create_urrs[0].measurement_period = Some(MeasurementPeriod(60));
    let r = it.net.establish(m);
    let s = it.net.seated(1, &r);
    it.net.modify(&s, activation(GNB_TEID, GNB.ip()));
    it.net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 9));
    it.net.upf.keep_all_counted(it.net.now, &mut it.net.out);
    it.net.now = Instant(START.0 - 3_600_000_000);
    it.dies();
    it.net.advance(it.net.now + Duration::from_secs(60));
    assert_eq!(it.net.reports().len(), 1);
}

/// A session as an SMF asks a UPF that has lost it to restore it (TS 23.527 §4.3, TS 29.244 table 7.5.2.1-1).
fn restoration(s: &Session, cp_seid: u64) -> SessionEstablishmentRequest {
    let mut m = establishment(cp_seid, true, true);
    m.pfcpsereq_flags = Some(SessionEstablishmentFlags::RESTI);
    m.create_pdrs[0].pdi.f_teid = Some(FTeid::given(s.teid, UPF.into()));
    for pdr in &mut m.create_pdrs {
        let ue = &mut pdr.pdi.ue_ip_addresses[0];
        (ue.ipv4, ue.ipv6) = (s.ipv4.map(Choice::Given), s.ipv6.map(Choice::Given));
    }
    let to_gnb = ForwardingParameters {
        outer_header_creation: Some(OuterHeaderCreation::gtpu(GNB_TEID, GNB.ip())),
        ..ForwardingParameters::to(DestinationInterface::Access)
    };
    m.create_fars[1] = CreateFar::forward(FarId(2), to_gnb);
    m
}

#[test] // TS 23.527 §4.3: without its state, a UPF takes sessions back with the tunnels and addresses that they had
fn a_session_that_was_lost_is_restored_with_its_tunnel_and_addresses() {
    let mut net = Net::new();
    let all: Vec<_> = (1..=3).map(|n| net.session(n, true, true)).collect();
    // It begins without sessions, and with the same key of TEIDs.
    let mut net = Net::new();
    for (n, s) in (1..).zip(&all) {
        let r = net.establish(restoration(s, n));
        assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
        assert!(r.created_pdrs.is_empty(), "nothing was chosen");
        let up = net.uplink(s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 9)).0;
        assert_eq!(up, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
        assert_eq!(net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 9)).0, PacketVerdict::Send(to_gnb()));
    }
    // A tunnel is restored once, and a new session gets another one.
    assert_eq!(net.establish(restoration(&all[0], 9)).cause, Cause::PfcpSessionRestorationFailure);
    let new = net.session(10, true, true);
    assert!(all.iter().all(|s| s.teid != new.teid && s.ipv4 != new.ipv4));
    assert_eq!(net.upf.c.session_count(), 4);
}

#[test] // TS 29.244 §5.5.3: the UPF chooses F-TEIDs, but for a restoration
fn a_tunnel_that_an_smf_gives_is_taken_for_a_restoration_alone() {
    let mut net = Net::new();
    let s = net.session(1, true, true);
    net.delete(&s);
    let m = SessionEstablishmentRequest { pfcpsereq_flags: None, ..restoration(&s, 2) };
    assert_eq!(net.establish(m).cause, Cause::InvalidFTeidAllocationOption);
    assert_eq!(net.upf.c.free_addresses(DnIndex(0)), Net::new().upf.c.free_addresses(DnIndex(0)));
}

#[test] // TS 23.527 §4.3: a gNB that gets an error indication releases the session, which the SMF is about to restore
fn no_error_indication_is_sent_while_sessions_may_be_restored() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    net.delete(&s);
    let packet = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 9);
    let sent = |net: &Net| net.upf.u.counters().error_indications_sent;
    net.upf.u.hold_errors(net.now + Duration::from_secs(60));
    net.uplink(&s, &packet);
    assert_eq!(sent(&net), 0);
    net.advance(net.now + Duration::from_secs(60));
    net.uplink(&s, &packet);
    assert_eq!(sent(&net), 1);
}

#[test] // a gNB may still send packets of the run before
fn a_upf_that_starts_again_with_its_key_does_not_give_the_same_f_teids_again() {
    let mut net = Net::new();
    let teids = |net: &mut Net| [1, 2, 3].map(|n| net.session(n, true, false).teid);
    let before = teids(&mut net);
    let config = net.upf.c.config().clone();
    let mut net = Net::on(Upf::new(config, net.now + Duration::from_secs(2)).unwrap());
    net.associate();
    let after = teids(&mut net);
    assert!(before.iter().all(|teid| !after.contains(teid)), "{before:?}, {after:?}");
}
