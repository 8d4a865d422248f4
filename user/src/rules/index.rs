//! A session's PDRs as a set of conditions that is searched at once, where there are more than a handful.

use std::sync::Arc;

use whimbrel_classifier::{Classifier, Fields, PacketKey, Pdi, Rank, Rule};
use whimbrel_ids::{Qfi, Teid};
use whimbrel_pfcp::ie::SourceInterface;

use super::{Application, Flow, Names, Pdr, SessionKind};

/// Filters up to which a packet meets them one after the other: `examples/forward.rs` shows where the index gains.
pub(super) const ONE_BY_ONE_MAX: usize = 24;
/// Conditions of an index, beyond which PDRs are met one after the other all the same: a filter may list eight ports of
/// each end and then has 64, so that not all that a session may have would fit into a sensible size.
const CONDITIONS_MAX: usize = 4096;

/// Which PDR a packet meets first, of those whose filters are of IP.
///
/// It holds what the PDRs say and nothing else, so that two sets of rules need not compare it.
#[derive(Clone, Debug)]
pub(crate) struct Index(Arc<Classifier>);

impl PartialEq for Index {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Index {}

/// The two sides, as [`Fields::source_interface`].
const ACCESS: u8 = 0;
const CORE: u8 = 1;

impl Index {
    /// Of PDRs in order of precedence; `None` where they are better met one after the other.
    pub(crate) fn of(kind: SessionKind, pdrs: &[Pdr]) -> Option<Self> {
        let filters: usize = pdrs.iter().map(|p| p.filters.len().max(1)).sum();
        if kind != SessionKind::Ip || filters <= ONE_BY_ONE_MAX {
            return None;
        }
        // The seed need be no secret: an attacker that knows it slows nothing down beyond the scan of all conditions.
        let mut index = Classifier::new(0);
        for (place, pdr) in (0u32..).zip(pdrs) {
            let base = Self::conditions(pdr)?;
            let filters = pdr.filters.iter().flat_map(|f| f.conditions(base));
            let alone = pdr.filters.is_empty().then_some(base);
            for pdi in filters.chain(alone) {
                if index.len() == CONDITIONS_MAX {
                    return None;
                }
                // Conditions that exclude each other are met by no packet.
                if let Some(rule) = Rule::new(Rank::new(place, index.len() as u32), &pdi) {
                    index.insert(rule);
                }
            }
        }
        Some(Self(Arc::new(index)))
    }

    /// What a PDR asks for besides its filters. `None` if its packets are seen from the other end than all others that
    /// come the same way.
    fn conditions(pdr: &Pdr) -> Option<Pdi> {
        let from_network = matches!(pdr.source, SourceInterface::Core | SourceInterface::N6Lan);
        let from_tunnel = pdr.teid != Teid(0);
        if pdr.is_uplink() != from_tunnel || from_network == from_tunnel {
            return None;
        }
        let one = (pdr.qfis.count_ones() == 1).then(|| pdr.qfis.trailing_zeros() as u8);
        Some(Pdi {
            teid: from_tunnel.then_some(pdr.teid.0),
            application: pdr.application.as_ref().map(|a| a.number),
            source_interface: Some(if from_tunnel { ACCESS } else { CORE }),
            qfi: one,
            ..Pdi::default()
        })
    }

    /// The place of the first PDR that a packet meets, of a flow known by these names. Of a PDR of several QoS flows, the packet's may be
    /// none.
    pub(crate) fn find(
        &self,
        teid: Teid,
        qfi: Option<Qfi>,
        flow: &Flow,
        applications: &[Arc<Application>],
        names: Names,
    ) -> Option<usize> {
        let from_tunnel = teid != Teid(0);
        let fields = Fields {
            teid: from_tunnel.then_some(teid.0),
            qfi: qfi.map(|q| q.value()),
            source_interface: if from_tunnel { ACCESS } else { CORE },
            ..fields(flow)
        };
        let of = |application| self.0.lookup(&PacketKey::new(&Fields { application, ..fields }));
        // A rule of no application is met whatever the packet is of.
        let its = applications.iter().filter(|a| a.has(flow, names)).map(|a| of(Some(a.number)));
        let first = its.chain([of(None)]).flatten().min();
        first.map(|rank| rank.precedence() as usize)
    }
}

/// What a set of flows compares.
pub(super) fn key(flow: &Flow) -> PacketKey {
    PacketKey::new(&fields(flow))
}

fn fields(flow: &Flow) -> Fields {
    Fields {
        remote: flow.remote,
        local: flow.local,
        ports: flow.ports,
        protocol: flow.protocol,
        tos: flow.tos,
        flow_label: flow.flow_label,
        spi: flow.spi,
        teid: None,
        f_teid_address: 0,
        qfi: None,
        source_interface: ACCESS,
        interface_type: None,
        network_instance: 0,
        traffic_endpoint: None,
        application: None,
    }
}
