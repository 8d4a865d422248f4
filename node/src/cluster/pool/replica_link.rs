//! The other CTA of a pair: the replica of this one, or a CTA that runs other code and waits for this one to stop.

use std::net::{IpAddr, SocketAddr};

use tracing::info;
use whimbrel_ids::Instant;
use whimbrel_link::LinkId;
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{self, CpfEntry, ToCpf, ToCtaReplica, ToPrimaryCta};
use whimbrel_resilience::membership::{CtaInstance, MemberId};
use whimbrel_resilience::replication::CpfId;

use super::{CpfPool, PoolEvent, PoolMember, or_address_of};

/// What this CTA knows of the other one.
pub(super) struct ReplicaSide {
    /// This CTA is one of a pair.
    possible: bool,
    link: Option<ReplicaLink>,
    /// Where a replica is reached that can take over at any moment.
    reached_at: Option<SocketAddr>,
}

/// The link to the other CTA.
struct ReplicaLink {
    link: LinkId,
    number: u16,
    address: SocketAddr,
    /// It runs other code, so it cannot replicate inputs: this is its offer to take over when this CTA stops.
    offer: Option<ToPrimaryCta>,
}

impl ReplicaSide {
    pub(super) fn new(possible: bool) -> Self {
        Self { possible, link: None, reached_at: None }
    }

    pub(super) fn is_possible(&self) -> bool {
        self.possible
    }

    pub(super) fn is_on(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|replica| replica.link == link)
    }

    pub(super) fn reached_at(&self) -> Option<SocketAddr> {
        self.reached_at
    }
}

impl CpfPool {
    /// Another CTA offers to be the replica of this one.
    pub(super) fn replica_offered(
        &mut self,
        now: Instant,
        link: LinkId,
        (peer, code): (SocketAddr, CodeVersion),
        message: ToPrimaryCta,
    ) {
        let ToPrimaryCta::Follow { place, address, endpoints, smf } = message else { return };
        if self.replica.link.is_some() || self.reconnection.until.is_some() {
            return self.links.close(link); // it connects again
        }
        let address = SocketAddr::new(or_address_of(address.ip(), peer.ip()), address.port());
        let number = place.cta;
        if code != CodeVersion::own() {
            info!(cta = number, %address, %code, own = %CodeVersion::own(), "a CTA that runs other code takes over when this one stops");
            self.pool_events.push(PoolEvent::SuccessorOffered(place, endpoints.clone(), smf));
            let offer = Some(ToPrimaryCta::Follow { place, address, endpoints, smf });
            self.replica.link = Some(ReplicaLink { link, number, address, offer });
            return;
        }
        self.replica.link = Some(ReplicaLink { link, number, address, offer: None });
        self.heartbeats.monitor.begin(now, MemberId::Cta(number), address);
        let offer = ToPrimaryCta::Follow { place, address, endpoints, smf };
        self.pool_events.push(PoolEvent::FromReplica(offer));
    }

    /// The CTA that waits for this one to stop.
    pub fn successor(&self) -> Option<CtaInstance> {
        match self.replica.link.as_ref()?.offer.as_ref()? {
            ToPrimaryCta::Follow { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// Accepts its offer: no input may be taken from now on until it has taken over.
    pub fn take_offer(&mut self, now: Instant) -> Option<ToPrimaryCta> {
        let replica = self.replica.link.as_mut()?;
        let offer = replica.offer.take()?;
        self.heartbeats.monitor.begin(now, MemberId::Cta(replica.number), replica.address);
        Some(offer)
    }

    pub(super) fn cta_replica_lost(&mut self) {
        if let Some(ReplicaLink { offer, .. }) = &self.replica.link {
            let lost = if offer.is_some() { PoolEvent::SuccessorLost } else { PoolEvent::CtaReplicaLost };
            self.disconnect_replica();
            self.pool_events.push(lost);
        }
    }

    /// Closes the link to the other CTA.
    pub fn disconnect_replica(&mut self) {
        let Some(ReplicaLink { link, number, .. }) = self.replica.link.take() else { return };
        self.links.close(link);
        self.heartbeats.monitor.end(MemberId::Cta(number));
        self.announce_replica(None);
    }

    /// Sends CPFs the address of the CTA replica that can take over at any moment, or that there is none.
    pub fn announce_replica(&mut self, at: Option<SocketAddr>) {
        if self.replica.reached_at != at {
            self.replica.reached_at = at;
            self.send_to_all(&ToCpf::CtaReplica(at));
        }
    }

    /// Accepts the other CTA as the replica, which begins from a snapshot of this size.
    pub fn begin_replica(&mut self, octets: u64, endpoints: Vec<IpAddr>) {
        let heartbeats = self.heartbeats.key;
        self.send_to_replica(&ToCtaReplica::Begin { octets, heartbeats, endpoints });
        self.send_members();
    }

    /// Sends to the other CTA, if there is one.
    pub fn send_to_replica(&mut self, message: &ToCtaReplica<'_>) {
        let Some(replica) = &self.replica.link else { return };
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(replica.link, &self.frame);
    }

    /// Sends the CPFs to the replica, which has to know them before it gets the inputs that they cause.
    pub(super) fn send_members(&mut self) {
        if self.successor().is_some() {
            return; // it gets them when its offer is accepted
        }
        self.send_to_replica(&ToCtaReplica::Cpfs(self.to_members()));
    }

    /// The CPFs, for the replica.
    pub fn to_members(&self) -> link::CpfTable {
        let at = |(id, m): (&CpfId, &PoolMember)| CpfEntry {
            id: *id,
            address: m.address,
            region: m.region.to_string(),
            code: m.code,
            draining: m.draining,
            listed: m.listed.filter(|_| m.seen),
            slice: m.slice,
        };
        let members = self.members.by_id.iter().map(at).collect();
        link::CpfTable { life: self.members.life, newest: self.members.newest, members }
    }
}
