//! Tunnels and addresses for a session's rules: chosen or taken, and given back where the rules are refused.

use std::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::{Choice, FTeid, NetworkInstance, PdrId, SourceInterface, UeIpAddress};
use whimbrel_pfcp::msg::SessionEstablishmentRequest;
use whimbrel_pfcp::rule::{CreatedPdr, CreatedTrafficEndpoint};

use super::RuleCheck;
use super::application::KnownApplications;
use super::draft::{Draft, PdrDraft};
use super::refusal::RuleRefusal;
use crate::config::{Config, DataNetwork, DnIndex};
use crate::exchange::EndMarker;
use crate::pool::Pools;
use crate::session_id::SessionId;
use crate::smf_f_teids::SmfTeids;

/// The pools of one data network.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPools {
    pub(crate) ipv4: Pools,
    /// Prefixes, as their upper 64 bits.
    pub(crate) ipv6: Pools,
}

/// Chooses tunnels and addresses for one request, and remembers what it took so that a refusal gives it back.
pub(crate) struct Allocator<'a> {
    pub(super) config: &'a Config,
    pub(super) applications: &'a KnownApplications,
    session: SessionId,
    pools: &'a mut [NetworkPools],
    /// The tunnels of all sessions, where SMFs allocate them.
    smf_teids: Option<&'a SmfTeids>,
    /// Which of the network's reserved pools the session's addresses come from.
    pub(super) reserved: Option<usize>,
    /// The session stood before: it has the tunnels that the request gives.
    pub(crate) restores: bool,
    took_ipv4: Option<Ipv4Addr>,
    took_ipv6: Option<Ipv6Addr>,
    pub(super) created_pdrs: Vec<CreatedPdr>,
    pub(super) created_traffic_endpoints: Vec<CreatedTrafficEndpoint>,
    pub(super) end_markers: Vec<EndMarker>,
}

/// What an accepted request brings about besides the rules.
#[derive(Debug, Default)]
pub(crate) struct RequestEffects {
    pub(crate) created_pdrs: Vec<CreatedPdr>,
    pub(crate) created_traffic_endpoints: Vec<CreatedTrafficEndpoint>,
    pub(crate) end_markers: Vec<EndMarker>,
}

impl<'a> Allocator<'a> {
    pub(crate) fn new(
        config: &'a Config,
        applications: &'a KnownApplications,
        session: SessionId,
        pools: &'a mut [NetworkPools],
        smf_teids: Option<&'a SmfTeids>,
    ) -> Self {
        Self {
            config,
            applications,
            session,
            pools,
            smf_teids,
            reserved: None,
            restores: false,
            took_ipv4: None,
            took_ipv6: None,
            created_pdrs: Vec::new(),
            created_traffic_endpoints: Vec::new(),
            end_markers: Vec::new(),
        }
    }

    /// Ends an accepted request.
    pub(crate) fn keep(self) -> RequestEffects {
        RequestEffects {
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

    /// The tunnel that an F-TEID means; and, if it was chosen here, what to tell of it.
    pub(super) fn tunnel(
        &mut self,
        d: &mut Draft,
        f: &FTeid,
        id: PdrId,
    ) -> Result<(Teid, Option<FTeid>), RuleRefusal> {
        if let Some(teids) = self.smf_teids {
            return Ok((self.smf_tunnel(d, teids, f, id)?, None));
        }
        let (ipv4, ipv6, choose_id) = match *f {
            FTeid::Given { teid, .. } if d.base.tunnels().any(|t| t == teid) => return Ok((teid, None)),
            FTeid::Given { teid, .. } if self.restores => {
                return Ok((self.former_tunnel(d, teid, id)?, None));
            }
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

    /// A tunnel that the SMF allocated.
    fn smf_tunnel(&self, d: &mut Draft, teids: &SmfTeids, f: &FTeid, id: PdrId) -> Result<Teid, RuleRefusal> {
        let FTeid::Given { teid, ipv4, ipv6 } = *f else { return Err(RuleRefusal::FTeidOfUp(id)) };
        let elsewhere = ipv4.is_some_and(|a| self.config.n3_ipv4 != Some(a))
            || ipv6.is_some_and(|a| self.config.n3_ipv6 != Some(a));
        if teid == Teid(0) || elsewhere || ipv4.is_none() && ipv6.is_none() {
            return Err(RuleRefusal::FTeidNotLocal(id));
        }
        if d.base.tunnels.contains(&teid) {
            return Ok(teid);
        }
        if teids.get(teid).is_some_and(|session| session != self.session.index) {
            return Err(if self.restores { RuleRefusal::TunnelInUse } else { RuleRefusal::FTeidInUse(id) });
        }
        let n = d.base.tunnels.iter().position(|t| t.0 == 0).ok_or(RuleRefusal::TooManyTunnels(id))?;
        d.base.tunnels[n] = teid;
        Ok(teid)
    }

    /// A tunnel that the session had before the UPF lost it (TS 23.527 §4.3).
    fn former_tunnel(&self, d: &mut Draft, teid: Teid, id: PdrId) -> Result<Teid, RuleRefusal> {
        let teids = self.config.teids();
        if teids.index_of(teid) != self.session.index {
            return Err(RuleRefusal::TunnelInUse);
        }
        let n = d.base.tunnels.iter().position(|t| t.0 == 0).ok_or(RuleRefusal::TooManyTunnels(id))?;
        d.base.tunnels[n] = teid;
        let given = teids.given_before(self.session, teid).wrapping_add(1);
        d.base.tunnels_given = d.base.tunnels_given.max(given);
        Ok(teid)
    }

    fn new_tunnel(&self, d: &mut Draft) -> Option<Teid> {
        let n = d.base.tunnels.iter().position(|t| t.0 == 0)?;
        let teids = self.config.teids();
        // The one that would be zero is left out, and those that the session has had since all names of its index were given.
        loop {
            let given = d.base.tunnels_given;
            d.base.tunnels_given = given.wrapping_add(1);
            if let Some(teid) = teids.teid(self.session, given).filter(|t| !d.base.tunnels.contains(t)) {
                d.base.tunnels[n] = teid;
                return Some(teid);
            }
        }
    }

    /// Sees to it that the session has an address; and, if it was chosen here, what to tell of it.
    pub(super) fn address(
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
        let mut given = UeIpAddress { destination: a.destination, ..UeIpAddress::default() };
        match a.ipv4 {
            Some(Choice::Choose) => given.ipv4 = Some(Choice::Given(self.choose_ipv4(d)?)),
            Some(Choice::Given(given)) => self.take_ipv4(d, given, id)?,
            None => {}
        }
        match a.ipv6 {
            Some(Choice::Choose) => given.ipv6 = Some(Choice::Given(self.choose_ipv6(d)?)),
            Some(Choice::Given(given)) => self.take_ipv6(d, given, id)?,
            None => {}
        }
        Ok((given.ipv4.is_some() || given.ipv6.is_some()).then_some(given))
    }

    pub(super) fn data_network(&self, d: &Draft) -> Option<&'a DataNetwork> {
        self.config.data_networks.get(usize::from(d.base.data_network.0))
    }

    fn pools(&mut self, d: &Draft) -> Option<&mut NetworkPools> {
        self.pools.get_mut(usize::from(d.base.data_network.0))
    }

    fn choose_ipv4(&mut self, d: &mut Draft) -> Result<Ipv4Addr, RuleRefusal> {
        if let Some(a) = d.base.ue_ipv4 {
            return Ok(a);
        }
        let of = self.data_network(d).map(|n| n.ipv4_range(self.reserved)).unwrap_or_default();
        let of_shard = (self.session.index, self.config.shards);
        let number = self.pools(d).and_then(|p| p.ipv4.take_any(of, of_shard));
        let address = Ipv4Addr::from_bits(number.ok_or(RuleRefusal::PoolEmpty { ipv6: false })? as u32);
        (d.base.ue_ipv4, self.took_ipv4) = (Some(address), Some(address));
        Ok(address)
    }

    pub(super) fn choose_ipv6(&mut self, d: &mut Draft) -> Result<Ipv6Addr, RuleRefusal> {
        if let Some(a) = d.base.ue_ipv6 {
            return Ok(a);
        }
        let of = self.data_network(d).map(|n| n.ipv6_range(self.reserved)).unwrap_or_default();
        let of_shard = (self.session.index, self.config.shards);
        let number = self.pools(d).and_then(|p| p.ipv6.take_any(of, of_shard));
        let number = number.ok_or(RuleRefusal::PoolEmpty { ipv6: true })?;
        let prefix = Ipv6Addr::from_bits(u128::from(number) << 64);
        (d.base.ue_ipv6, self.took_ipv6) = (Some(prefix), Some(prefix));
        Ok(prefix)
    }

    fn take_ipv4(&mut self, d: &mut Draft, given: Ipv4Addr, id: PdrId) -> RuleCheck {
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

    fn take_ipv6(&mut self, d: &mut Draft, given: Ipv6Addr, id: PdrId) -> RuleCheck {
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
}

/// The upper half of an IPv6 address.
pub(crate) const fn upper(a: Ipv6Addr) -> u64 {
    (a.to_bits() >> 64) as u64
}

/// A tunnel that no PDR and no endpoint uses any longer is gone.
pub(super) fn release_unused_tunnels(d: &mut Draft) {
    let Draft { base, pdrs, endpoints, .. } = d;
    for t in &mut base.tunnels {
        let used = pdrs.values().any(|p| p.pdr.teid == *t) || endpoints.values().any(|e| e == t);
        if !used {
            *t = Teid(0);
        }
    }
}
