//! A session's rules at the UPF: TS 29.244 §5.2, TS 23.501 §5.8.2. Each QoS rule is a PDR in each direction, each QoS flow a
//! QER; flows without guaranteed rates share the QER of the session's AMBR.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_ids::{Qfi, Seid};
use whimbrel_nas::ie::{PacketFilter, PduSessionType};
use whimbrel_pfcp::ie::{
    ApplicationId, ApplyAction, BarId, Choice, DestinationInterface, DownlinkDataNotificationDelay, FSeid,
    FTeid, FarId, FramedIpv6Route, FramedRoute, Gate, GateStatus, InterfaceType, MeasurementMethod,
    MeasurementPeriod, NetworkInstance, OuterHeaderCreation, OuterHeaderRemoval,
    OuterHeaderRemovalDescription, PdnType, PdrId, Precedence, QerBitRate, QerId, ReportingTriggers, Rqi,
    SessionEstablishmentFlags, SourceInterface, SuggestedBufferingPacketsCount, TimeQuota, TimeThreshold,
    UeIpAddress, UrrId, UserPlaneInactivityTimer, Volume,
};
use whimbrel_pfcp::msg::SessionEstablishmentRequest;
use whimbrel_pfcp::rule::{
    CreateBar, CreateFar, CreatePdr, CreateQer, CreateUrr, ForwardingParameters, Pdi, UpdateUrr,
};

use super::marking::downlink_far;
use crate::config::{Buffering, N3IpVersion, RuleForm};
use crate::filter;
use crate::policy::{DEFAULT_PRECEDENCE, FlowGate};
use crate::services::nchf::GrantedQuota;
use crate::state::{
    Ambr, DEFAULT_QFI, DEFAULT_RULE, FlowRule, QosFlow, SmContext, SubscribedDnn, Tunnel, UsageReporting,
};

/// The PDR of the default rule for uplink packets.
pub(super) const UPLINK_PDR: PdrId = pdr_id(DEFAULT_RULE, true);
/// The same for downlink packets.
pub(super) const DOWNLINK_PDR: PdrId = pdr_id(DEFAULT_RULE, false);
/// The uplink FAR.
pub(super) const UPLINK_FAR: FarId = FarId(1);
/// The downlink FAR.
pub(super) const DOWNLINK_FAR: FarId = FarId(2);
/// The BAR for buffering while the UE is idle.
pub(super) const BAR: BarId = BarId(1);
/// The QER of the session AMBR.
pub(super) const SESSION_QER: QerId = QerId(1);
/// The URR of the session's volume.
pub(super) const SESSION_URR: UrrId = UrrId(1);
/// The URR of a charged session, which has the quota.
pub(super) const CHARGING_URR: UrrId = UrrId(2);

/// The PDR of a QoS rule in one direction.
const fn pdr_id(rule: u8, uplink: bool) -> PdrId {
    PdrId(rule as u16 * 2 - uplink as u16)
}

/// The QER of a flow; the session's comes before them.
pub(super) const fn qer_id(qfi: Qfi) -> QerId {
    QerId(1 + qfi.value() as u32)
}

/// Buffering for an idle UE (TS 29.244 §5.2.4). Without configuration the BAR is empty; extended buffering changes it later.
fn bar(b: &Buffering) -> CreateBar {
    CreateBar {
        bar_id: BAR,
        downlink_data_notification_delay: (b.notification_delay > 0)
            .then_some(DownlinkDataNotificationDelay(b.notification_delay)),
        suggested_buffering_packets_count: b.packets.map(SuggestedBufferingPacketsCount),
    }
}

pub(super) fn rates(ambr: Ambr) -> QerBitRate {
    QerBitRate { ul_kbps: ambr.ul_kbps, dl_kbps: ambr.dl_kbps }
}

/// The rules of a new session (TS 23.502 §4.4.1.2).
pub(super) fn establishment(
    s: &SmContext,
    dnn: &SubscribedDnn,
    node: IpAddr,
    buffering: &Buffering,
    inactivity: Duration,
    reporting: UsageReporting,
    form: RuleForm,
) -> SessionEstablishmentRequest {
    let mut request = SessionEstablishmentRequest::new(node.into(), FSeid::new(s.cp_seid, node));
    request.pdn_type = Some(pdn_type(s.session_type));
    request.apn_dnn = Some(s.dnn.clone());
    request.s_nssai = Some(s.s_nssai);

    // The UPF chooses one tunnel for all of the session's uplink rules.
    let choose = chosen_tunnel(form.n3_ip_version, Some(CHOOSE_ID));
    let address = requested_address(s, dnn);
    let pdrs = Pdrs { session: s, f_teid: choose, address, form };
    request.create_pdrs = [true, false].iter().map(|&uplink| pdrs.default(uplink)).collect();
    for pdr in request.create_pdrs.iter_mut().filter(|_| !dnn.framed_routes.is_empty()) {
        frame(&mut pdr.pdi, s, &dnn.framed_routes);
    }
    for (flow, rule) in rules_of(&s.qos.flows) {
        request.create_pdrs.extend([true, false].iter().filter_map(|&up| pdrs.dedicated(flow, rule, up)));
    }

    let mut to_network = ForwardingParameters::to(DestinationInterface::Core);
    to_network.network_instance = NetworkInstance::new(s.dnn.as_str());
    to_network.destination_interface_type = form.interface_types.then_some(InterfaceType::N6);
    // There is no gNB tunnel yet: packets are buffered.
    let wait = |(id, _)| CreateFar { bar_id: Some(BAR), ..CreateFar::action(id, ApplyAction::BUFF) };
    request.create_fars = vec![CreateFar::forward(UPLINK_FAR, to_network)];
    request.create_fars.extend(s.qos.marks.fars().map(wait));
    request.create_bars = vec![bar(buffering)];
    // TS 29.244 §8.2.83: in seconds.
    let seconds = u32::try_from(inactivity.as_secs()).unwrap_or(u32::MAX);
    request.user_plane_inactivity_timer = (seconds > 0).then_some(UserPlaneInactivityTimer(seconds));
    let mut session = CreateQer::new(SESSION_QER);
    session.mbr = Some(rates(s.qos.ambr));
    let mut default = CreateQer::new(qer_id(DEFAULT_QFI));
    default.qfi = Some(DEFAULT_QFI);
    request.create_qers = vec![session, default];
    request.create_qers.extend(s.qos.flows.iter().map(create_qer));
    request.create_urrs = vec![session_urr(reporting)];
    request.create_urrs.extend(s.charging.as_deref().map(|c| charging_urr(c.quota.as_ref())));
    request
}

/// The rules of a session at an intermediate UPF (TS 23.502 §4.9.1.2.3 step 4): packets pass from gNB to anchor and back as they are, with
/// their QoS flow. `an`: the gNB's tunnel; while it is not known, downlink packets are buffered. `None` before the anchor has given its tunnel.
pub(super) fn intermediate(
    s: &SmContext,
    cp_seid: Seid,
    node: IpAddr,
    buffering: &Buffering,
    an: Option<Tunnel>,
    form: RuleForm,
) -> Option<SessionEstablishmentRequest> {
    let anchor = s.n3?;
    let mut request = SessionEstablishmentRequest::new(node.into(), FSeid::new(cp_seid, node));
    request.pdn_type = Some(pdn_type(s.session_type));
    request.apn_dnn = Some(s.dnn.clone());
    request.s_nssai = Some(s.s_nssai);
    let pdr = |id, source, interface, far| {
        let mut pdi = Pdi::from(source);
        pdi.f_teid = Some(chosen_tunnel(form.n3_ip_version, None));
        pdi.source_interface_type = Some(interface);
        let mut pdr = CreatePdr::new(id, Precedence(DEFAULT_PRECEDENCE.into()), pdi, far);
        pdr.outer_header_removal = Some(removed_header(form.n3_ip_version));
        pdr
    };
    request.create_pdrs = vec![
        pdr(UPLINK_PDR, SourceInterface::Access, InterfaceType::N3, UPLINK_FAR),
        pdr(DOWNLINK_PDR, SourceInterface::Core, InterfaceType::N9, DOWNLINK_FAR),
    ];
    let into = |interface, to: Tunnel| {
        let mut parameters = ForwardingParameters::to(interface);
        parameters.outer_header_creation = Some(OuterHeaderCreation::gtpu(to.teid, to.address));
        parameters
    };
    let mut to_anchor = into(DestinationInterface::Core, anchor);
    to_anchor.destination_interface_type = Some(InterfaceType::N9);
    let marking = s.qos.marks.of_default_flow().fars().next().and_then(|(_, marking)| marking);
    let downlink = match an {
        Some(an) => {
            let mut to_gnb = into(DestinationInterface::Access, an);
            to_gnb.transport_level_marking = marking;
            CreateFar::forward(DOWNLINK_FAR, to_gnb)
        }
        None => CreateFar::action(DOWNLINK_FAR, ApplyAction::BUFF),
    };
    request.create_fars =
        vec![CreateFar::forward(UPLINK_FAR, to_anchor), CreateFar { bar_id: Some(BAR), ..downlink }];
    request.create_bars = vec![bar(buffering)];
    Some(request)
}

fn pdn_type(session_type: PduSessionType) -> PdnType {
    match session_type {
        PduSessionType::Ipv4 => PdnType::Ipv4,
        PduSessionType::Ipv6 => PdnType::Ipv6,
        PduSessionType::Ipv4v6 => PdnType::Ipv4v6,
        PduSessionType::Ethernet => PdnType::Ethernet,
        PduSessionType::Unstructured => PdnType::NonIp,
    }
}

/// The rules of a session that its UPF has lost: those of a new one, with the tunnel and the addresses that it had. Downlink packets are
/// buffered. `None` before a UPF has given a tunnel.
pub(super) fn restoration(
    s: &SmContext,
    dnn: &SubscribedDnn,
    node: IpAddr,
    buffering: &Buffering,
    inactivity: Duration,
    reporting: UsageReporting,
    form: RuleForm,
) -> Option<SessionEstablishmentRequest> {
    let n3 = s.n3?;
    let mut request = establishment(s, dnn, node, buffering, inactivity, reporting, form);
    request.pfcpsereq_flags = Some(SessionEstablishmentFlags::RESTI);
    for pdr in &mut request.create_pdrs {
        if pdr.pdi.f_teid.is_some() {
            pdr.pdi.f_teid = Some(FTeid::given(n3.teid, n3.address));
        }
        for ue in &mut pdr.pdi.ue_ip_addresses {
            ue.ipv4 = ue.ipv4.and(s.address.ipv4.map(Choice::Given));
            ue.ipv6 = ue.ipv6.and(s.address.ipv6.map(Choice::Given));
        }
    }
    for (id, _) in s.qos.marks.fars() {
        let fars = request.create_fars.iter_mut().filter(|f| f.far_id == id);
        fars.for_each(|far| far.apply_action = ApplyAction::BUFF | ApplyAction::NOCP);
    }
    Some(request)
}

/// The session's volume (TS 29.244 §5.2.2.2.1).
fn session_urr(reporting: UsageReporting) -> CreateUrr {
    let UsageReporting { threshold, cycle_s } = reporting;
    let mut triggers = ReportingTriggers::default();
    if threshold.is_some() {
        triggers = triggers.with(ReportingTriggers::VOLTH);
    }
    if cycle_s.is_some() {
        triggers = triggers.with(ReportingTriggers::PERIO);
    }
    let mut urr = CreateUrr::new(SESSION_URR, MeasurementMethod::VOLUM, triggers);
    urr.volume_threshold = threshold.map(|total| Volume { total: Some(total), ..Volume::default() });
    urr.measurement_period = cycle_s.map(|seconds| MeasurementPeriod(seconds.into()));
    urr
}

/// The quota of a charged session (TS 29.244 §5.2.2.2.1). Without a quota, usage is measured alone.
fn charging_urr(quota: Option<&GrantedQuota>) -> CreateUrr {
    let change = quota_change(quota);
    let mut urr = CreateUrr::new(
        CHARGING_URR,
        change.measurement_method.unwrap_or(MeasurementMethod::VOLUM),
        change.reporting_triggers.unwrap_or_default(),
    );
    urr.volume_quota = change.volume_quota;
    urr.volume_threshold = change.volume_threshold;
    urr.time_quota = change.time_quota;
    urr.time_threshold = change.time_threshold;
    urr.measurement_period = change.measurement_period;
    urr
}

/// Interval of reports while traffic passes without a quota, in seconds.
const WITHOUT_QUOTA_S: u32 = 300;

/// The change of a charged session's quota. Absent IEs stay as they are at the UPF (TS 29.244 §7.5.4.4), so each limit that the new quota
/// does not have is replaced by one that is not reached.
pub(super) fn quota_change(quota: Option<&GrantedQuota>) -> UpdateUrr {
    let mut urr = UpdateUrr::new(CHARGING_URR);
    let mut triggers = ReportingTriggers::default();
    let Some(q) = quota else {
        urr.measurement_method = Some(MeasurementMethod::VOLUM | MeasurementMethod::DURAT);
        urr.reporting_triggers = Some(ReportingTriggers::PERIO);
        urr.measurement_period = Some(MeasurementPeriod(WITHOUT_QUOTA_S));
        urr.volume_quota = Some(Volume { total: Some(u64::MAX), ..Volume::default() });
        urr.time_quota = Some(TimeQuota(u32::MAX));
        return urr;
    };
    urr.measurement_method = Some(MeasurementMethod::VOLUM | MeasurementMethod::DURAT);
    let volume = Volume { total: q.total, ul: q.uplink, dl: q.downlink };
    let limited = [volume.total, volume.ul, volume.dl].iter().any(Option::is_some);
    urr.volume_quota = Some(if limited { volume } else { Volume { total: Some(u64::MAX), ..volume } });
    triggers = triggers.with(ReportingTriggers::VOLQU);
    // The last quota is used up without another question.
    let before_end = |threshold: Option<u64>| threshold.filter(|t| *t > 0 && q.last.is_none());
    if let Some(threshold) = before_end(q.volume_threshold).filter(|_| limited) {
        let at = |granted: Option<u64>| granted.map(|g| g.saturating_sub(threshold)).filter(|at| *at > 0);
        let at = Volume { total: at(volume.total), ul: at(volume.ul), dl: at(volume.dl) };
        if [at.total, at.ul, at.dl].iter().any(Option::is_some) {
            triggers = triggers.with(ReportingTriggers::VOLTH);
            urr.volume_threshold = Some(at);
        }
    }
    urr.time_quota = Some(TimeQuota(q.time_s.unwrap_or(u32::MAX)));
    triggers = triggers.with(ReportingTriggers::TIMQU);
    if let Some(granted) = q.time_s
        && let Some(threshold) = before_end(q.time_threshold_s.map(u64::from))
        && let Some(at) = u64::from(granted).checked_sub(threshold).filter(|at| *at > 0)
    {
        triggers = triggers.with(ReportingTriggers::TIMTH);
        urr.time_threshold = Some(TimeThreshold(u32::try_from(at).unwrap_or(u32::MAX)));
    }
    if let Some(validity) = q.validity_s.filter(|s| *s > 0) {
        triggers = triggers.with(ReportingTriggers::PERIO);
        urr.measurement_period = Some(MeasurementPeriod(validity));
    }
    urr.reporting_triggers = Some(triggers);
    urr
}

/// TS 23.501 §5.6.14, TS 29.244 §5.16: framed routes of the session's address families.
fn frame(pdi: &mut Pdi, s: &SmContext, routes: &[(IpAddr, u8)]) {
    let (v4, v6) = super::families(s.session_type);
    for &(address, length) in routes {
        match address {
            IpAddr::V4(a) if v4 => pdi.framed_routes.extend(FramedRoute::new(a, length)),
            IpAddr::V6(a) if v6 => pdi.framed_ipv6_routes.extend(FramedIpv6Route::new(a, length)),
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
    }
}

/// CHOOSE ID: one tunnel for several PDRs (TS 29.244 §8.2.3).
const CHOOSE_ID: u8 = 1;

/// A tunnel that the UPF is to choose (TS 29.244 §8.2.3).
pub(super) fn chosen_tunnel(version: N3IpVersion, choose_id: Option<u8>) -> FTeid {
    FTeid::Choose { ipv4: version != N3IpVersion::Ipv6, ipv6: version != N3IpVersion::Ipv4, choose_id }
}

/// The outer header of packets from a tunnel (TS 29.244 §8.2.64).
pub(super) fn removed_header(version: N3IpVersion) -> OuterHeaderRemoval {
    OuterHeaderRemoval::from(match version {
        N3IpVersion::Ipv4 => OuterHeaderRemovalDescription::GtpuUdpIpv4,
        N3IpVersion::Ipv6 => OuterHeaderRemovalDescription::GtpuUdpIpv6,
        N3IpVersion::Both => OuterHeaderRemovalDescription::GtpuUdpIp,
    })
}

/// The UE IP address, static or chosen by the UPF; none for a session that is not of type IP.
fn requested_address(s: &SmContext, dnn: &SubscribedDnn) -> Option<UeIpAddress> {
    let (v4, v6) = super::families(s.session_type);
    (v4 || v6).then(|| UeIpAddress {
        destination: true,
        ipv4: v4.then(|| dnn.static_ipv4.map_or(Choice::Choose, Choice::Given)),
        ipv6: v6.then(|| dnn.static_ipv6.map_or(Choice::Choose, Choice::Given)),
        ..UeIpAddress::default()
    })
}

pub(super) fn rules_of(flows: &[QosFlow]) -> impl Iterator<Item = (&QosFlow, &FlowRule)> {
    flows.iter().flat_map(|f| f.rules.iter().map(move |r| (f, r)))
}

/// Builds PDRs that share a tunnel and an address.
pub(super) struct Pdrs<'a> {
    pub(super) session: &'a SmContext,
    pub(super) f_teid: FTeid,
    pub(super) address: Option<UeIpAddress>,
    pub(super) form: RuleForm,
}

impl Pdrs<'_> {
    fn pdi(&self, uplink: bool) -> Pdi {
        let mut pdi;
        if uplink {
            pdi = Pdi::from(SourceInterface::Access);
            pdi.f_teid = Some(self.f_teid);
        } else {
            pdi = Pdi::from(SourceInterface::Core);
            pdi.network_instance = NetworkInstance::new(self.session.dnn.as_str());
            pdi.ue_ip_addresses = self.address.into_iter().collect();
        }
        let interface = if uplink { InterfaceType::N3 } else { InterfaceType::N6 };
        pdi.source_interface_type = self.form.interface_types.then_some(interface);
        pdi
    }

    fn pdr(&self, rule: u8, far: Option<FarId>, precedence: u8, pdi: Pdi, qers: Vec<QerId>) -> CreatePdr {
        let uplink = far.is_none();
        let far = far.unwrap_or(UPLINK_FAR);
        let mut pdr = CreatePdr::new(pdr_id(rule, uplink), Precedence(precedence.into()), pdi, far);
        pdr.outer_header_removal = uplink.then(|| removed_header(self.form.n3_ip_version));
        pdr.qer_ids = qers;
        pdr.urr_ids = match &self.session.charging {
            Some(_) => vec![SESSION_URR, CHARGING_URR],
            None => vec![SESSION_URR],
        };
        pdr
    }

    fn default(&self, uplink: bool) -> CreatePdr {
        let qers = vec![qer_id(DEFAULT_QFI), SESSION_QER];
        let far = (!uplink).then_some(DOWNLINK_FAR);
        self.pdr(DEFAULT_RULE, far, DEFAULT_PRECEDENCE, self.pdi(uplink), qers)
    }

    /// `None` if the rule has no filter of the direction.
    pub(super) fn dedicated(&self, flow: &QosFlow, rule: &FlowRule, uplink: bool) -> Option<CreatePdr> {
        let filters: Vec<&PacketFilter> = rule.filters.iter().filter(|f| filter::is_of(f, uplink)).collect();
        if filters.is_empty() && rule.application.is_none() {
            return None;
        }
        let mut pdi = self.pdi(uplink);
        pdi.application_id = rule.application.clone().map(ApplicationId);
        if self.session.session_type == PduSessionType::Ethernet {
            pdi.ethernet_packet_filters = filters.iter().map(|f| filter::ethernet(f, uplink)).collect();
        } else {
            pdi.sdf_filters = filters.iter().map(|f| filter::sdf(f)).collect();
        }
        // An uplink packet matches only with its rule's QFI (TS 23.501 §5.7.1.6); for a rule that the UE does not know, with the
        // default flow's.
        pdi.qfis = match (uplink, rule.application.is_some()) {
            (true, false) => vec![flow.qfi],
            (true, true) => vec![flow.qfi, DEFAULT_QFI],
            (false, _) => Vec::new(),
        };
        let mut qers = vec![qer_id(flow.qfi)];
        if flow.gbr.is_none() {
            qers.push(SESSION_QER); // GBR flows are not part of the AMBR (TS 23.501 §5.7.2.6)
        }
        let far = (!uplink).then_some(downlink_far(flow.mark));
        Some(self.pdr(rule.id, far, rule.precedence, pdi, qers))
    }
}

pub(super) fn gate(g: FlowGate) -> GateStatus {
    let of = |open| if open { Gate::Open } else { Gate::Closed };
    GateStatus { ul: of(g.uplink), dl: of(g.downlink) }
}

pub(super) fn create_qer(flow: &QosFlow) -> CreateQer {
    let mut qer = CreateQer::new(qer_id(flow.qfi));
    qer.qfi = Some(flow.qfi);
    qer.gate_status = gate(flow.gate);
    qer.rqi = flow.reflective.then_some(Rqi::RQI);
    qer.mbr = flow.gbr.map(|g| rates(g.maximum));
    qer.gbr = flow.gbr.map(|g| rates(g.guaranteed));
    qer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.244 §5.2.2.2.1; chapter 3.4.3 of CellBricks: T measures in the cycles of its terms
    fn the_volume_of_a_session_is_reported_in_cycles_and_after_the_octets_of_a_grant() {
        let of = |threshold, cycle_s| {
            let urr = session_urr(UsageReporting { threshold, cycle_s });
            (urr.reporting_triggers, urr.measurement_period, urr.volume_threshold.and_then(|v| v.total))
        };
        let (perio, volth) = (ReportingTriggers::PERIO, ReportingTriggers::VOLTH);
        assert_eq!(of(None, None), (ReportingTriggers::default(), None, None));
        assert_eq!(of(None, Some(60)), (perio, Some(MeasurementPeriod(60)), None));
        assert_eq!(of(Some(9), None), (volth, None, Some(9)));
        assert_eq!(of(Some(9), Some(60)), (perio.with(volth), Some(MeasurementPeriod(60)), Some(9)));
    }
}
