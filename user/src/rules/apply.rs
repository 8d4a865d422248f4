//! From the rules of a PFCP message to a draft, in the order in which they refer to each other.

use whimbrel_pfcp::ie::{FailedRuleId, PdnType};
use whimbrel_pfcp::msg::{SessionEstablishmentRequest, SessionModificationRequest};

use super::allocate::{Allocator, release_unused_tunnels};
use super::draft::Draft;
use super::refusal::RuleRefusal;
use super::simple::{create_bar, create_qer, create_urr, update_qer, update_urr};
use super::{NONE, RuleCheck, SessionKind};
use crate::config::DataNetwork;

impl Allocator<'_> {
    /// The rules of a Session Establishment Request (TS 29.244 §7.5.2).
    pub(crate) fn establish(&mut self, d: &mut Draft, m: &SessionEstablishmentRequest) -> RuleCheck {
        let named = m.create_pdrs.iter().flat_map(|p| &p.ue_ip_address_pool_identities).next();
        let network = self.data_network(d).ok_or(RuleRefusal::NoNetworkInstance)?;
        self.reserved = network.reserved_for(named.map(|n| &*n.0), m.s_nssai);
        d.base.slice = self.config.slice_rate(m.s_nssai).unwrap_or(NONE);
        self.carries(d, network, m.pdn_type)?;
        d.base.firewalled = network.firewall.is_some() && d.base.kind == SessionKind::Ip;
        d.base.inactivity_s = m.user_plane_inactivity_timer.map_or(0, |t| t.0);
        m.create_traffic_endpoints.iter().try_for_each(|e| self.create_endpoint(d, e))?;
        m.create_bars.iter().for_each(|b| create_bar(d, b));
        m.create_fars.iter().try_for_each(|f| self.create_far(d, f))?;
        m.create_qers.iter().try_for_each(|q| create_qer(d, q))?;
        m.create_urrs.iter().try_for_each(|u| create_urr(d, u))?;
        m.create_pdrs.iter().try_for_each(|p| self.create_pdr(d, p))
    }

    /// What the session carries, if its network does (TS 23.501 §5.6.10).
    fn carries(&mut self, d: &mut Draft, network: &DataNetwork, pdn_type: Option<PdnType>) -> RuleCheck {
        d.base.kind = SessionKind::of(pdn_type);
        let carried = match d.base.kind {
            SessionKind::Ip => true,
            SessionKind::Ethernet => network.ethernet,
            SessionKind::Unstructured => network.unstructured.is_some(),
        };
        if !carried {
            return Err(RuleRefusal::PdnType);
        }
        if d.base.kind == SessionKind::Unstructured {
            d.base.point_to_point = network.unstructured.map(Box::new);
            self.choose_ipv6(d)?;
        }
        Ok(())
    }

    /// The rules of a Session Modification Request (TS 29.244 §7.5.4): removals, then additions, then updates.
    pub(crate) fn modify(&mut self, d: &mut Draft, m: &SessionModificationRequest) -> RuleCheck {
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
            bar.delay = b.downlink_data_notification_delay.map_or(bar.delay, |d| d.0);
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
}
