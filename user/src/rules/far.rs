//! FARs of a message, into a draft.

use std::net::{IpAddr, SocketAddr};

use whimbrel_gtpu::PORT;
use whimbrel_pfcp::ie::{
    ApplyAction, DestinationInterface, FailedRuleId, FarId, OuterHeaderCreation, SessionModificationFlags,
    TransportLevelMarking,
};
use whimbrel_pfcp::rule::{CreateFar, UpdateFar};

use super::allocate::Allocator;
use super::draft::Draft;
use super::refusal::RuleRefusal;
use super::{Far, PeerTunnel, RuleCheck};
use crate::exchange::EndMarker;

impl Allocator<'_> {
    pub(super) fn create_far(&mut self, d: &mut Draft, m: &CreateFar) -> RuleCheck {
        let id = m.far_id;
        if d.fars.contains_key(&id) {
            return Err(RuleRefusal::DuplicateRule(FailedRuleId::Far(id)));
        }
        let mut far = Far {
            action: m.apply_action,
            destination: DestinationInterface::Access,
            tunnel: None,
            tos: 0,
            far_id: id,
            bar_id: m.bar_id,
            has_parameters: false,
            copies_to: None,
        };
        if let Some(p) = one(&m.duplicating_parameters, id)? {
            let outer = (Some(p.destination_interface), p.outer_header_creation, &p.forwarding_policy);
            far.copies_to = Some(Box::new(self.copies(outer, id)?));
        }
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

    pub(super) fn update_far(&mut self, d: &mut Draft, m: &UpdateFar) -> RuleCheck {
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
                let marker = EndMarker { teid: t.teid, peer: t.peer, tos: far.tos };
                // Flows that share a tunnel have a FAR each.
                if !self.end_markers.iter().any(|m| (m.teid, m.peer) == (t.teid, t.peer)) {
                    self.end_markers.push(marker);
                }
            }
            far.tos = marking(p.transport_level_marking, far.tos);
            far.has_parameters = true;
        }
        if let Some(p) = one(&m.update_duplicating_parameters, id)? {
            let outer = (p.destination_interface, p.outer_header_creation, &p.forwarding_policy);
            far.copies_to = Some(Box::new(self.copies(outer, id)?));
        }
        check_far(far)
    }

    /// Where copies go: in GTP-U to the LI function (TS 29.244 §8.2.24). Nothing else duplicates here.
    fn copies<P>(
        &self,
        (to, outer, policy): (Option<DestinationInterface>, Option<OuterHeaderCreation>, &Option<P>),
        id: FarId,
    ) -> Result<PeerTunnel, RuleRefusal> {
        let is_li = to == Some(DestinationInterface::LiFunction) && policy.is_none();
        let outer = outer.filter(|_| is_li).ok_or(RuleRefusal::Duplication(id))?;
        self.outer_header(&outer, id)
    }

    /// The tunnel of an outer header: over the family that both ends have, IPv4 first.
    fn outer_header(&self, o: &OuterHeaderCreation, id: FarId) -> Result<PeerTunnel, RuleRefusal> {
        let OuterHeaderCreation::Gtpu { teid, ipv4, ipv6 } = *o else {
            return Err(RuleRefusal::OuterHeader(id));
        };
        let ipv4 = ipv4.filter(|_| self.config.n3_ipv4.is_some()).map(IpAddr::V4);
        let ipv6 = ipv6.filter(|_| self.config.n3_ipv6.is_some()).map(IpAddr::V6);
        let address = ipv4.or(ipv6).ok_or(RuleRefusal::OuterHeader(id))?;
        // Whoever is there is a UE, or this UPF itself, and no gNB.
        let own = [self.config.n3_ipv4.map(IpAddr::V4), self.config.n3_ipv6.map(IpAddr::V6)];
        if own.contains(&Some(address)) || self.config.has_pool_of(address) {
            return Err(RuleRefusal::OuterHeader(id));
        }
        Ok(PeerTunnel { teid, peer: SocketAddr::new(address, PORT) })
    }
}

/// The only one of several parameters, if there are any. Errors: one FAR duplicates to one place.
fn one<T>(all: &[T], id: FarId) -> Result<Option<&T>, RuleRefusal> {
    if all.len() > 1 { Err(RuleRefusal::Duplication(id)) } else { Ok(all.first()) }
}

/// The type of service that a marking makes of `old`.
fn marking(m: Option<TransportLevelMarking>, old: u8) -> u8 {
    m.map_or(old, |m| m.value & m.mask)
}

fn check_far(far: &Far) -> RuleCheck {
    let id = far.far_id;
    // Copies are made of what is forwarded.
    if far.action.has(ApplyAction::DUPL) && !(far.action.has(ApplyAction::FORW) && far.copies_to.is_some()) {
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
        // N4-u: in GTP-U to a tunnel of the SMF (TS 29.244 §5.3.1).
        DestinationInterface::CpFunction if far.tunnel.is_some() => Ok(()),
        DestinationInterface::CpFunction
        | DestinationInterface::LiFunction
        | DestinationInterface::VnInternal => Err(RuleRefusal::Destination(id)),
    }
}
