//! PDRs and traffic endpoints (TS 29.244 §5.2.1A.2A) of a message, into a draft.

use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::{
    FTeid, FailedRuleId, OuterHeaderRemoval, PdrId, RouteNetwork, SdfFilter, SourceInterface,
};
use whimbrel_pfcp::rule::{
    CreatePdr, CreateTrafficEndpoint, CreatedPdr, CreatedTrafficEndpoint, EthernetPacketFilter, Pdi,
    UpdatePdr,
};

use super::allocate::Allocator;
use super::draft::{Draft, PdrDraft};
use super::refusal::RuleRefusal;
use super::{FrameFilter, NONE, PdiFilter, Pdr, RuleCheck, SessionKind};
use crate::limits::{FILTERS_PER_PDR_MAX, FRAMED_ROUTES_MAX, QERS_PER_PDR_MAX, URRS_PER_PDR_MAX};

impl Allocator<'_> {
    pub(super) fn create_endpoint(&mut self, d: &mut Draft, e: &CreateTrafficEndpoint) -> RuleCheck {
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

    pub(super) fn create_pdr(&mut self, d: &mut Draft, m: &CreatePdr) -> RuleCheck {
        let id = m.pdr_id;
        if d.pdrs.contains_key(&id) {
            return Err(RuleRefusal::DuplicateRule(FailedRuleId::Pdr(id)));
        }
        if !m.activate_predefined_rules.is_empty() {
            return Err(RuleRefusal::PredefinedRule(id));
        }
        let far_id = m.far_id.ok_or(RuleRefusal::PdrWithoutFar(id))?;
        let mut pdr = self.detect(d, id, m.precedence.0, &m.pdi)?;
        pdr.deletes_container = deletes_container(m.outer_header_removal);
        d.pdrs.insert(id, PdrDraft { pdr, far_id, qer_ids: m.qer_ids.clone(), urr_ids: m.urr_ids.clone() });
        Ok(())
    }

    pub(super) fn update_pdr(&mut self, d: &mut Draft, m: &UpdatePdr) -> RuleCheck {
        let id = m.pdr_id;
        if !m.activate_predefined_rules.is_empty() {
            return Err(RuleRefusal::PredefinedRule(id));
        }
        let Some(mut p) = d.pdrs.get(&id).cloned() else {
            return Err(RuleRefusal::NoSuchRule(FailedRuleId::Pdr(id)));
        };
        if let Some(pdi) = &m.pdi {
            let deletes_container = p.pdr.deletes_container;
            p.pdr = Pdr { deletes_container, ..self.detect(d, id, p.pdr.precedence, pdi)? };
        }
        if m.outer_header_removal.is_some() {
            p.pdr.deletes_container = deletes_container(m.outer_header_removal);
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
        let application = match &pdi.application_id {
            None => None,
            // Deviation: it stands instead of filters, and is looked for in sessions of IP.
            Some(_) if d.base.kind != SessionKind::Ip || !pdi.sdf_filters.is_empty() => {
                return Err(RuleRefusal::ApplicationId(id));
            }
            Some(a) => Some(
                self.applications
                    .get(&a.0)
                    .ok_or_else(|| RuleRefusal::UnknownApplication(id, a.0.clone()))?,
            ),
        };
        if !pdi.ethernet_packet_filters.is_empty() && d.base.kind != SessionKind::Ethernet {
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
        let by_tunnel = matches!(pdi.source_interface, SourceInterface::Access | SourceInterface::CpFunction);
        if by_tunnel && teid.0 == 0 {
            return Err(RuleRefusal::NoFTeid(id));
        }
        for a in &pdi.ue_ip_addresses {
            created.ue_ip_addresses.extend(self.address(d, a, id)?);
        }
        frame_routes(d, id, pdi)?;
        if created.local_f_teid.is_some() || !created.ue_ip_addresses.is_empty() {
            self.created_pdrs.push(created);
        }
        Ok(Pdr {
            teid,
            precedence,
            qfis: pdi.qfis.iter().fold(0, |set, q| set | 1 << q.value()),
            filters: filters(d, id, pdi)?,
            application,
            source: pdi.source_interface,
            far: NONE,
            qers: [NONE; QERS_PER_PDR_MAX],
            urrs: [NONE; URRS_PER_PDR_MAX],
            pdr_id: id,
            deletes_container: false,
            choose_id,
            endpoint,
        })
    }
}

/// TS 29.244 §5.16: the networks behind the UE are reached like its own address.
fn frame_routes(d: &mut Draft, id: PdrId, pdi: &Pdi) -> RuleCheck {
    let ipv4 = pdi.framed_routes.iter().map(|r| r.network());
    let ipv6 = pdi.framed_ipv6_routes.iter().map(|r| r.network());
    let new: Vec<RouteNetwork> = ipv4.chain(ipv6).filter(|n| !d.base.framed.contains(n)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let mut all: Vec<RouteNetwork> = d.base.framed.iter().copied().chain(new).collect();
    all.sort_unstable();
    all.dedup();
    if all.len() > FRAMED_ROUTES_MAX {
        return Err(RuleRefusal::TooMany(FailedRuleId::Pdr(id)));
    }
    d.base.framed = all.into();
    Ok(())
}

fn deletes_container(removal: Option<OuterHeaderRemoval>) -> bool {
    removal.is_some_and(|r| r.delete_pdu_session_container)
}

fn filters(d: &Draft, id: PdrId, pdi: &Pdi) -> Result<Box<[PdiFilter]>, RuleRefusal> {
    let inside = pdi.ethernet_packet_filters.iter().map(|f| 1 + f.sdf_filters.len() + f.mac_addresses.len());
    if pdi.sdf_filters.len() + inside.sum::<usize>() > FILTERS_PER_PDR_MAX {
        return Err(RuleRefusal::TooMany(FailedRuleId::Pdr(id)));
    }
    let filter = |sdf: &SdfFilter| {
        // A filter of a name alone is the one of that name elsewhere in the session (TS 29.244 §8.2.5).
        let named = || {
            let all = d.pdrs.values().flat_map(|p| p.pdr.filters.iter());
            all.into_iter().find(|f| f.id.is_some() && f.id == sdf.filter_id).cloned()
        };
        let alone = sdf.flow_description.is_none() && sdf.filter_id.is_some();
        let read = if alone { named().or_else(|| PdiFilter::new(sdf)) } else { PdiFilter::new(sdf) };
        read.ok_or(RuleRefusal::FlowDescription(id))
    };
    let of_frames = |m: &EthernetPacketFilter| {
        // A name alone is the filter of that name of the other direction (TS 29.244 §8.2.98, §8.2.99).
        let named = || {
            let all = d.pdrs.values().flat_map(|p| p.pdr.filters.iter()).filter_map(|f| f.frame.as_deref());
            let named = |f: &&FrameFilter| f.both_directions && f.id == m.ethernet_filter_id.map(|i| i.0);
            all.into_iter().find(named).map(FrameFilter::turned)
        };
        let filter = if FrameFilter::is_name(m) { named() } else { FrameFilter::new(m) };
        filter.and_then(PdiFilter::of_frames).ok_or(RuleRefusal::FlowDescription(id))
    };
    pdi.sdf_filters.iter().map(filter).chain(pdi.ethernet_packet_filters.iter().map(of_frames)).collect()
}
