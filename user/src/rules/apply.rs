//! From the rules of a PFCP message to a draft: each value judged, tunnels and addresses chosen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use whimbrel_gtpu::PORT;
use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::{
    ApplyAction, Choice, DestinationInterface, FTeid, FailedRuleId, FarId, NetworkInstance,
    OuterHeaderCreation, PdnType, PdrId, SessionModificationFlags, SourceInterface, TransportLevelMarking,
    UeIpAddress,
};
use whimbrel_pfcp::msg::{SessionEstablishmentRequest, SessionModificationRequest};
use whimbrel_pfcp::rule::{
    CreateBar, CreateFar, CreatePdr, CreateQer, CreateTrafficEndpoint, CreateUrr, CreatedPdr,
    CreatedTrafficEndpoint, Pdi, UpdateFar, UpdatePdr, UpdateQer, UpdateUrr,
};

use super::draft::{Draft, PdrDraft};
use super::refusal::RuleRefusal;
use super::{Bar, Far, Filter, NONE, Pdr, Qer, Tunnel, Urr};
use crate::config::{Config, DnIndex};
use crate::exchange::EndMarker;
use crate::limits::{FILTERS_PER_PDR_MAX, QERS_PER_PDR_MAX, URRS_PER_PDR_MAX};
use crate::pool::Pools;
use crate::session_id::SessionId;

/// The pools of one data network.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPools {
    pub(crate) ipv4: Pools,
    /// Prefixes, as their upper 64 bits.
    pub(crate) ipv6: Pools,
}

/// Chooses tunnels and addresses for one request, and remembers what it took so that a refusal gives it back.
pub(crate) struct Allocator<'a> {
    config: &'a Config,
    session: SessionId,
    pools: &'a mut [NetworkPools],
    took_ipv4: Option<Ipv4Addr>,
    took_ipv6: Option<Ipv6Addr>,
    created_pdrs: Vec<CreatedPdr>,
    created_traffic_endpoints: Vec<CreatedTrafficEndpoint>,
    end_markers: Vec<EndMarker>,
}

/// What an accepted request brings about besides the rules.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) created_pdrs: Vec<CreatedPdr>,
    pub(crate) created_traffic_endpoints: Vec<CreatedTrafficEndpoint>,
    pub(crate) end_markers: Vec<EndMarker>,
}

type Outcome = Result<(), RuleRefusal>;

impl<'a> Allocator<'a> {
    pub(crate) fn new(config: &'a Config, session: SessionId, pools: &'a mut [NetworkPools]) -> Self {
        Self {
            config,
            session,
            pools,
            took_ipv4: None,
            took_ipv6: None,
            created_pdrs: Vec::new(),
            created_traffic_endpoints: Vec::new(),
            end_markers: Vec::new(),
        }
    }

    /// Ends an accepted request.
    pub(crate) fn keep(self) -> Changed {
        Changed {
            created_pdrs: self.created_pdrs,
            created_traffic_endpoints: self.created_traffic_endpoints,
            end_markers: self.end_markers,
        }
    }

    /// Ends a refused request: what it took is free again.
    pub(crate) fn undo(self, network: DnIndex) {
        if let Some(pools) = self.pools.get_mut(usize::from(network.0)) {
            if let Some(a) = self.took_ipv4 {
                pools.ipv4.give_back(u64::from(a.to_bits()));
            }
            if let Some(a) = self.took_ipv6 {
                pools.ipv6.give_back(upper(a));
            }
        }
    }

    /// Which data network a new session is of: what its core side says, else its DNN, else the only one
    /// there is.
    pub(crate) fn network(config: &Config, m: &SessionEstablishmentRequest) -> Result<DnIndex, RuleRefusal> {
        let core = |s: SourceInterface| matches!(s, SourceInterface::Core | SourceInterface::N6Lan);
        for pdr in m.create_pdrs.iter().filter(|p| core(p.pdi.source_interface) && p.pdi.f_teid.is_none()) {
            if let Some(n) = &pdr.pdi.network_instance {
                let unknown = || RuleRefusal::UnknownNetworkInstance(pdr.pdr_id, n.as_str().into());
                return config.data_network(n.as_str()).ok_or_else(unknown);
            }
        }
        let named = |n: &NetworkInstance| config.data_network(n.as_str());
        let fars = m.create_fars.iter().filter_map(|f| f.forwarding_parameters.as_ref());
        let of_far = fars.filter_map(|p| p.network_instance.as_ref()).find_map(named);
        let of_dnn = || m.apn_dnn.as_ref().and_then(|d| config.data_network(d.as_str()));
        let of_pdr = || m.create_pdrs.iter().filter_map(|p| p.pdi.network_instance.as_ref()).find_map(named);
        let only = || (config.data_networks.len() == 1 && m.apn_dnn.is_none()).then_some(DnIndex(0));
        of_far.or_else(of_dnn).or_else(of_pdr).or_else(only).ok_or(RuleRefusal::NoNetworkInstance)
    }

    /// The rules of a Session Establishment Request (TS 29.244 §7.5.2).
    pub(crate) fn establish(&mut self, d: &mut Draft, m: &SessionEstablishmentRequest) -> Outcome {
        if matches!(m.pdn_type, Some(PdnType::NonIp | PdnType::Ethernet)) {
            return Err(RuleRefusal::PdnType);
        }
        d.base.inactivity_s = m.user_plane_inactivity_timer.map_or(0, |t| t.0);
        m.create_traffic_endpoints.iter().try_for_each(|e| self.create_endpoint(d, e))?;
        m.create_bars.iter().for_each(|b| create_bar(d, b));
        m.create_fars.iter().try_for_each(|f| self.create_far(d, f))?;
        m.create_qers.iter().try_for_each(|q| create_qer(d, q))?;
        m.create_urrs.iter().try_for_each(|u| create_urr(d, u))?;
        m.create_pdrs.iter().try_for_each(|p| self.create_pdr(d, p))
    }

    /// The rules of a Session Modification Request (TS 29.244 §7.5.4): removals, then additions, then updates.
    pub(crate) fn modify(&mut self, d: &mut Draft, m: &SessionModificationRequest) -> Outcome {
        let gone = |id| Err(RuleRefusal::NoSuchRule(id));
        for r in &m.remove_pdrs {
            d.pdrs.remove(&r.pdr_id).map_or_else(|| gone(FailedRuleId::Pdr(r.pdr_id)), |_| Ok(()))?;
        }
        for r in &m.remove_fars {
            d.fars.remove(&r.far_id).map_or_else(|| gone(FailedRuleId::Far(r.far_id)), |_| Ok(()))?;
        }
        for r in &m.remove_urrs {
            d.urrs.remove(&r.urr_id).map_or_else(|| gone(FailedRuleId::Urr(r.urr_id)), |_| Ok(()))?;
            // A removed URR is no longer counted by any PDR (TS 29.244 §5.2.2.2.1 has the SMF say so; not
            // every one does).
            d.pdrs.values_mut().for_each(|p| p.urr_ids.retain(|u| *u != r.urr_id));
        }
        for r in &m.remove_qers {
            d.qers.remove(&r.qer_id).map_or_else(|| gone(FailedRuleId::Qer(r.qer_id)), |_| Ok(()))?;
            d.pdrs.values_mut().for_each(|p| p.qer_ids.retain(|q| *q != r.qer_id));
        }
        for r in &m.remove_bars {
            d.bars.remove(&r.bar_id).map_or_else(|| gone(FailedRuleId::Bar(r.bar_id)), |_| Ok(()))?;
        }
        for r in &m.remove_traffic_endpoints {
            d.endpoints.remove(&r.traffic_endpoint_id);
        }
        m.create_traffic_endpoints.iter().try_for_each(|e| self.create_endpoint(d, e))?;
        m.create_bars.iter().for_each(|b| create_bar(d, b));
        m.create_fars.iter().try_for_each(|f| self.create_far(d, f))?;
        m.create_qers.iter().try_for_each(|q| create_qer(d, q))?;
        m.create_urrs.iter().try_for_each(|u| create_urr(d, u))?;
        m.create_pdrs.iter().try_for_each(|p| self.create_pdr(d, p))?;
        for b in &m.update_bars {
            let bar =
                d.bars.get_mut(&b.bar_id).ok_or(RuleRefusal::NoSuchRule(FailedRuleId::Bar(b.bar_id)))?;
            bar.packets = b.suggested_buffering_packets_count.map(|c| c.0).or(bar.packets);
        }
        m.update_fars.iter().try_for_each(|f| self.update_far(d, f))?;
        m.update_qers.iter().try_for_each(|q| update_qer(d, q))?;
        m.update_urrs.iter().try_for_each(|u| update_urr(d, u))?;
        m.update_pdrs.iter().try_for_each(|p| self.update_pdr(d, p))?;
        if let Some(t) = m.user_plane_inactivity_timer {
            d.base.inactivity_s = t.0;
        }
        release_unused_tunnels(d);
        Ok(())
    }

    fn create_endpoint(&mut self, d: &mut Draft, e: &CreateTrafficEndpoint) -> Outcome {
        let id = PdrId(0); // the refusal names a PDR; an endpoint has none yet
        let mut created = CreatedTrafficEndpoint {
            traffic_endpoint_id: e.traffic_endpoint_id,
            local_f_teid: None,
            ue_ip_addresses: Vec::new(),
        };
        let mut teid = Teid(0);
        if let Some(f) = &e.local_f_teid {
            (teid, created.local_f_teid) = self.tunnel(d, f, id)?;
        }
        for a in &e.ue_ip_addresses {
            created.ue_ip_addresses.extend(self.address(d, a, id)?);
        }
        d.endpoints.insert(e.traffic_endpoint_id, teid);
        if created.local_f_teid.is_some() || !created.ue_ip_addresses.is_empty() {
            self.created_traffic_endpoints.push(created);
        }
        Ok(())
    }

    fn create_pdr(&mut self, d: &mut Draft, m: &CreatePdr) -> Outcome {
        let id = m.pdr_id;
        if d.pdrs.contains_key(&id) {
            return Err(RuleRefusal::DuplicateRule(FailedRuleId::Pdr(id)));
        }
        if !m.activate_predefined_rules.is_empty() {
            return Err(RuleRefusal::PredefinedRule(id));
        }
        let far_id = m.far_id.ok_or(RuleRefusal::PdrWithoutFar(id))?;
        let pdr = self.detect(d, id, m.precedence.0, &m.pdi)?;
        d.pdrs.insert(id, PdrDraft { pdr, far_id, qer_ids: m.qer_ids.clone(), urr_ids: m.urr_ids.clone() });
        Ok(())
    }

    fn update_pdr(&mut self, d: &mut Draft, m: &UpdatePdr) -> Outcome {
        let id = m.pdr_id;
        if !m.activate_predefined_rules.is_empty() {
            return Err(RuleRefusal::PredefinedRule(id));
        }
        let Some(mut p) = d.pdrs.get(&id).cloned() else {
            return Err(RuleRefusal::NoSuchRule(FailedRuleId::Pdr(id)));
        };
        if let Some(pdi) = &m.pdi {
            p.pdr = self.detect(d, id, p.pdr.precedence, pdi)?;
        }
        if let Some(v) = m.precedence {
            p.pdr.precedence = v.0;
        }
        p.far_id = m.far_id.unwrap_or(p.far_id);
        if !m.qer_ids.is_empty() {
            p.qer_ids = m.qer_ids.clone();
        }
        if !m.urr_ids.is_empty() {
            p.urr_ids = m.urr_ids.clone();
        }
        d.pdrs.insert(id, p);
        Ok(())
    }

    /// Judges packet detection information.
    fn detect(&mut self, d: &mut Draft, id: PdrId, precedence: u32, pdi: &Pdi) -> Result<Pdr, RuleRefusal> {
        if pdi.application_id.is_some() {
            return Err(RuleRefusal::ApplicationId(id));
        }
        if !pdi.ethernet_packet_filters.is_empty() {
            return Err(RuleRefusal::Ethernet(id));
        }
        let mut created = CreatedPdr { pdr_id: id, local_f_teid: None, ue_ip_addresses: Vec::new() };
        let mut teid = Teid(0);
        let mut endpoint = None;
        if let Some(e) = pdi.traffic_endpoint_ids.first() {
            teid = *d.endpoints.get(e).ok_or(RuleRefusal::UnknownTrafficEndpoint(id, *e))?;
            endpoint = Some(*e);
        }
        let mut choose_id = None;
        if let Some(f) = &pdi.f_teid {
            if let FTeid::Choose { choose_id: c, .. } = f {
                choose_id = *c;
            }
            (teid, created.local_f_teid) = self.tunnel(d, f, id)?;
        }
        if pdi.source_interface == SourceInterface::Access && teid.0 == 0 {
            return Err(RuleRefusal::NoFTeid(id));
        }
        for a in &pdi.ue_ip_addresses {
            created.ue_ip_addresses.extend(self.address(d, a, id)?);
        }
        if created.local_f_teid.is_some() || !created.ue_ip_addresses.is_empty() {
            self.created_pdrs.push(created);
        }
        Ok(Pdr {
            teid,
            precedence,
            qfis: pdi.qfis.iter().fold(0, |set, q| set | 1 << q.value()),
            filters: filters(d, id, pdi)?,
            source: pdi.source_interface,
            far: NONE,
            qers: [NONE; QERS_PER_PDR_MAX],
            urrs: [NONE; URRS_PER_PDR_MAX],
            pdr_id: id,
            choose_id,
            endpoint,
        })
    }

    /// The tunnel that an F-TEID means; and, if it was chosen here, what to tell of it.
    fn tunnel(&mut self, d: &mut Draft, f: &FTeid, id: PdrId) -> Result<(Teid, Option<FTeid>), RuleRefusal> {
        let (ipv4, ipv6, choose_id) = match *f {
            FTeid::Given { teid, .. } if d.base.tunnels().any(|t| t == teid) => return Ok((teid, None)),
            FTeid::Given { .. } => return Err(RuleRefusal::FTeidOfCp(id)),
            FTeid::Choose { ipv4, ipv6, choose_id } => (ipv4, ipv6, choose_id),
        };
        let ipv4 = self.config.n3_ipv4.filter(|_| ipv4);
        let ipv6 = self.config.n3_ipv6.filter(|_| ipv6);
        if ipv4.is_none() && ipv6.is_none() {
            return Err(RuleRefusal::FTeidFamily(id));
        }
        let same = |p: &&PdrDraft| choose_id.is_some() && p.pdr.choose_id == choose_id;
        let teid = match d.pdrs.values().find(same) {
            Some(p) => p.pdr.teid,
            None => self.new_tunnel(d).ok_or(RuleRefusal::TooManyTunnels(id))?,
        };
        Ok((teid, Some(FTeid::Given { teid, ipv4, ipv6 })))
    }

    fn new_tunnel(&self, d: &mut Draft) -> Option<Teid> {
        let n = d.base.tunnels.iter().position(|t| t.0 == 0)?;
        d.base.tunnels[n] = self.session.teid(n as u8, self.config.seed);
        Some(d.base.tunnels[n])
    }

    /// Sees to it that the session has an address; and, if it was chosen here, what to tell of it.
    fn address(
        &mut self,
        d: &mut Draft,
        a: &UeIpAddress,
        id: PdrId,
    ) -> Result<Option<UeIpAddress>, RuleRefusal> {
        if a.ipv6.is_some() && a.ipv6_prefix_length.is_some_and(|l| l != 64)
            || a.ipv6_prefix_delegation_bits.is_some_and(|b| b != 0)
        {
            return Err(RuleRefusal::PrefixLength(id));
        }
        let mut told = UeIpAddress { destination: a.destination, ..UeIpAddress::default() };
        match a.ipv4 {
            Some(Choice::Choose) => told.ipv4 = Some(Choice::Given(self.choose_ipv4(d)?)),
            Some(Choice::Given(given)) => self.take_ipv4(d, given, id)?,
            None => {}
        }
        match a.ipv6 {
            Some(Choice::Choose) => told.ipv6 = Some(Choice::Given(self.choose_ipv6(d)?)),
            Some(Choice::Given(given)) => self.take_ipv6(d, given, id)?,
            None => {}
        }
        Ok((told.ipv4.is_some() || told.ipv6.is_some()).then_some(told))
    }

    fn pools(&mut self, d: &Draft) -> Option<&mut NetworkPools> {
        self.pools.get_mut(usize::from(d.base.data_network.0))
    }

    fn choose_ipv4(&mut self, d: &mut Draft) -> Result<Ipv4Addr, RuleRefusal> {
        if let Some(a) = d.base.ue_ipv4 {
            return Ok(a);
        }
        let number = self.pools(d).and_then(|p| p.ipv4.take_any());
        let address = Ipv4Addr::from_bits(number.ok_or(RuleRefusal::PoolEmpty { ipv6: false })? as u32);
        (d.base.ue_ipv4, self.took_ipv4) = (Some(address), Some(address));
        Ok(address)
    }

    fn choose_ipv6(&mut self, d: &mut Draft) -> Result<Ipv6Addr, RuleRefusal> {
        if let Some(a) = d.base.ue_ipv6 {
            return Ok(a);
        }
        let number = self.pools(d).and_then(|p| p.ipv6.take_any());
        let number = number.ok_or(RuleRefusal::PoolEmpty { ipv6: true })?;
        let prefix = Ipv6Addr::from_bits(u128::from(number) << 64);
        (d.base.ue_ipv6, self.took_ipv6) = (Some(prefix), Some(prefix));
        Ok(prefix)
    }

    fn take_ipv4(&mut self, d: &mut Draft, given: Ipv4Addr, id: PdrId) -> Outcome {
        match d.base.ue_ipv4 {
            Some(a) if a == given => return Ok(()),
            Some(_) => return Err(RuleRefusal::SecondAddress(id)),
            None => {}
        }
        let free = self.pools(d).is_some_and(|p| p.ipv4.take(u64::from(given.to_bits())));
        if !free {
            return Err(RuleRefusal::AddressInUse(id));
        }
        (d.base.ue_ipv4, self.took_ipv4) = (Some(given), Some(given));
        Ok(())
    }

    fn take_ipv6(&mut self, d: &mut Draft, given: Ipv6Addr, id: PdrId) -> Outcome {
        let prefix = Ipv6Addr::from_bits(given.to_bits() >> 64 << 64);
        match d.base.ue_ipv6 {
            Some(a) if a == prefix => return Ok(()),
            Some(_) => return Err(RuleRefusal::SecondAddress(id)),
            None => {}
        }
        if !self.pools(d).is_some_and(|p| p.ipv6.take(upper(prefix))) {
            return Err(RuleRefusal::AddressInUse(id));
        }
        (d.base.ue_ipv6, self.took_ipv6) = (Some(prefix), Some(prefix));
        Ok(())
    }

    fn create_far(&mut self, d: &mut Draft, m: &CreateFar) -> Outcome {
        let id = m.far_id;
        if d.fars.contains_key(&id) {
            return Err(RuleRefusal::DuplicateRule(FailedRuleId::Far(id)));
        }
        if !m.duplicating_parameters.is_empty() {
            return Err(RuleRefusal::Duplication(id));
        }
        let mut far = Far {
            action: m.apply_action,
            destination: DestinationInterface::Access,
            tunnel: None,
            tos: 0,
            far_id: id,
            bar_id: m.bar_id,
            has_parameters: false,
        };
        if let Some(p) = &m.forwarding_parameters {
            if p.forwarding_policy.is_some() {
                return Err(RuleRefusal::ForwardingPolicy(id));
            }
            far.destination = p.destination_interface;
            far.tunnel = p.outer_header_creation.map(|o| self.outer_header(&o, id)).transpose()?;
            far.tos = marking(p.transport_level_marking, 0);
            far.has_parameters = true;
        }
        check_far(&far)?;
        d.fars.insert(id, far);
        Ok(())
    }

    fn update_far(&mut self, d: &mut Draft, m: &UpdateFar) -> Outcome {
        let id = m.far_id;
        let Some(far) = d.fars.get_mut(&id) else {
            return Err(RuleRefusal::NoSuchRule(FailedRuleId::Far(id)));
        };
        let old = far.tunnel;
        far.action = m.apply_action.unwrap_or(far.action);
        far.bar_id = m.bar_id.or(far.bar_id);
        if let Some(p) = &m.update_forwarding_parameters {
            if p.forwarding_policy.is_some() {
                return Err(RuleRefusal::ForwardingPolicy(id));
            }
            far.destination = p.destination_interface.unwrap_or(far.destination);
            if let Some(o) = &p.outer_header_creation {
                far.tunnel = Some(self.outer_header(o, id)?);
            }
            let end = p.pfcpsmreq_flags.is_some_and(|f| f.has(SessionModificationFlags::SNDEM));
            if let Some(t) = old.filter(|old| end && far.tunnel != Some(*old)) {
                self.end_markers.push(EndMarker { teid: t.teid, peer: t.peer, tos: far.tos });
            }
            far.tos = marking(p.transport_level_marking, far.tos);
            far.has_parameters = true;
        }
        check_far(far)
    }

    /// The tunnel of an outer header: over the family that both ends have, IPv4 first.
    fn outer_header(&self, o: &OuterHeaderCreation, id: FarId) -> Result<Tunnel, RuleRefusal> {
        let OuterHeaderCreation::Gtpu { teid, ipv4, ipv6 } = *o else {
            return Err(RuleRefusal::OuterHeader(id));
        };
        let ipv4 = ipv4.filter(|_| self.config.n3_ipv4.is_some()).map(IpAddr::V4);
        let ipv6 = ipv6.filter(|_| self.config.n3_ipv6.is_some()).map(IpAddr::V6);
        let address = ipv4.or(ipv6).ok_or(RuleRefusal::OuterHeader(id))?;
        Ok(Tunnel { teid, peer: SocketAddr::new(address, PORT) })
    }
}

/// The upper half of an IPv6 address.
pub(crate) const fn upper(a: Ipv6Addr) -> u64 {
    (a.to_bits() >> 64) as u64
}

/// The type of service that a marking makes of `old`.
fn marking(m: Option<TransportLevelMarking>, old: u8) -> u8 {
    m.map_or(old, |m| m.value & m.mask)
}

fn check_far(far: &Far) -> Outcome {
    let id = far.far_id;
    if far.action.has(ApplyAction::DUPL) {
        return Err(RuleRefusal::Duplication(id));
    }
    let chosen = [ApplyAction::DROP, ApplyAction::FORW, ApplyAction::BUFF]
        .iter()
        .filter(|a| far.action.has(**a))
        .count();
    if chosen != 1 {
        return Err(RuleRefusal::ApplyAction(id));
    }
    if far.action.has(ApplyAction::FORW) && !far.has_parameters {
        return Err(RuleRefusal::FarWithoutParameters(id));
    }
    match far.destination {
        DestinationInterface::Access | DestinationInterface::Core | DestinationInterface::N6Lan => Ok(()),
        _ if !far.action.has(ApplyAction::FORW) => Ok(()),
        DestinationInterface::CpFunction
        | DestinationInterface::LiFunction
        | DestinationInterface::VnInternal => Err(RuleRefusal::Destination(id)),
    }
}

fn filters(d: &Draft, id: PdrId, pdi: &Pdi) -> Result<Box<[Filter]>, RuleRefusal> {
    if pdi.sdf_filters.len() > FILTERS_PER_PDR_MAX {
        return Err(RuleRefusal::TooMany(FailedRuleId::Pdr(id)));
    }
    let filter = |sdf: &whimbrel_pfcp::ie::SdfFilter| {
        // A filter of a name alone is the one of that name elsewhere in the session (TS 29.244 §8.2.5).
        let named = || {
            let all = d.pdrs.values().flat_map(|p| p.pdr.filters.iter());
            all.into_iter().find(|f| f.id.is_some() && f.id == sdf.filter_id).cloned()
        };
        let alone = sdf.flow_description.is_none() && sdf.filter_id.is_some();
        let read = if alone { named().or_else(|| Filter::new(sdf)) } else { Filter::new(sdf) };
        read.ok_or(RuleRefusal::FlowDescription(id))
    };
    pdi.sdf_filters.iter().map(filter).collect()
}

fn create_bar(d: &mut Draft, m: &CreateBar) {
    let packets = m.suggested_buffering_packets_count.map(|c| c.0);
    d.bars.insert(m.bar_id, Bar { bar_id: m.bar_id, packets });
}

fn create_qer(d: &mut Draft, m: &CreateQer) -> Outcome {
    let qer = Qer {
        gate: m.gate_status,
        qfi: m.qfi,
        rqi: m.rqi.is_some_and(|r| r.has(whimbrel_pfcp::ie::Rqi::RQI)),
        ppi: m.paging_policy_indicator.map(|p| p.0 & 7),
        mbr_ul_kbps: m.mbr.map(|r| r.ul_kbps),
        mbr_dl_kbps: m.mbr.map(|r| r.dl_kbps),
        window_ms: m.averaging_window.map(|w| w.0),
        qer_id: m.qer_id,
    };
    match d.qers.insert(m.qer_id, qer) {
        Some(_) => Err(RuleRefusal::DuplicateRule(FailedRuleId::Qer(m.qer_id))),
        None => Ok(()),
    }
}

fn update_qer(d: &mut Draft, m: &UpdateQer) -> Outcome {
    let Some(q) = d.qers.get_mut(&m.qer_id) else {
        return Err(RuleRefusal::NoSuchRule(FailedRuleId::Qer(m.qer_id)));
    };
    q.gate = m.gate_status.unwrap_or(q.gate);
    q.qfi = m.qfi.or(q.qfi);
    q.rqi = m.rqi.map_or(q.rqi, |r| r.has(whimbrel_pfcp::ie::Rqi::RQI));
    q.ppi = m.paging_policy_indicator.map(|p| p.0 & 7).or(q.ppi);
    q.mbr_ul_kbps = m.mbr.map(|r| r.ul_kbps).or(q.mbr_ul_kbps);
    q.mbr_dl_kbps = m.mbr.map(|r| r.dl_kbps).or(q.mbr_dl_kbps);
    q.window_ms = m.averaging_window.map(|w| w.0).or(q.window_ms);
    Ok(())
}

fn create_urr(d: &mut Draft, m: &CreateUrr) -> Outcome {
    let urr = Urr {
        urr_id: m.urr_id,
        method: m.measurement_method,
        triggers: m.reporting_triggers,
        information: m.measurement_information.unwrap_or_default(),
        volume_threshold: m.volume_threshold,
        volume_quota: m.volume_quota,
        time_threshold_s: m.time_threshold.map(|t| t.0),
        time_quota_s: m.time_quota.map(|t| t.0),
        period_s: m.measurement_period.map(|t| t.0),
        quota_holding_s: m.quota_holding_time.map(|t| t.0),
        inactivity_detection_s: m.inactivity_detection_time.map(|t| t.0),
        linked: m.linked_urr_ids.as_slice().into(),
        revision: 0,
    };
    match d.urrs.insert(m.urr_id, urr) {
        Some(_) => Err(RuleRefusal::DuplicateRule(FailedRuleId::Urr(m.urr_id))),
        None => Ok(()),
    }
}

fn update_urr(d: &mut Draft, m: &UpdateUrr) -> Outcome {
    let Some(u) = d.urrs.get_mut(&m.urr_id) else {
        return Err(RuleRefusal::NoSuchRule(FailedRuleId::Urr(m.urr_id)));
    };
    u.method = m.measurement_method.unwrap_or(u.method);
    u.triggers = m.reporting_triggers.unwrap_or(u.triggers);
    u.information = m.measurement_information.unwrap_or(u.information);
    u.volume_threshold = m.volume_threshold.or(u.volume_threshold);
    u.volume_quota = m.volume_quota.or(u.volume_quota);
    u.time_threshold_s = m.time_threshold.map(|t| t.0).or(u.time_threshold_s);
    u.time_quota_s = m.time_quota.map(|t| t.0).or(u.time_quota_s);
    u.period_s = m.measurement_period.map(|t| t.0).or(u.period_s);
    u.quota_holding_s = m.quota_holding_time.map(|t| t.0).or(u.quota_holding_s);
    u.inactivity_detection_s = m.inactivity_detection_time.map(|t| t.0).or(u.inactivity_detection_s);
    if !m.linked_urr_ids.is_empty() {
        u.linked = m.linked_urr_ids.as_slice().into();
    }
    if m.volume_quota.is_some() || m.time_quota.is_some() {
        u.revision = u.revision.wrapping_add(1);
    }
    Ok(())
}

/// A tunnel that no PDR and no endpoint uses any longer is gone.
fn release_unused_tunnels(d: &mut Draft) {
    let Draft { base, pdrs, endpoints, .. } = d;
    for t in &mut base.tunnels {
        let used = pdrs.values().any(|p| p.pdr.teid == *t) || endpoints.values().any(|e| e == t);
        if !used {
            *t = Teid(0);
        }
    }
}
