//! The CTA that follows this one: its CTA replica, or one that runs other code and waits for this one to stop.

use std::net::{IpAddr, SocketAddr};

use tracing::info;
use whimbrel_ids::Instant;
use whimbrel_link::LinkId;
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{CpfEntry, CpfTable, ToCpf, ToCtaReplica, ToPrimaryCta};
use whimbrel_resilience::membership::{CtaInstance, MemberId};
use whimbrel_resilience::replication::CpfId;

use super::{Pool, PoolEvent, PoolMember, seen_from};

/// The CTA that follows this one.
pub(super) struct ReplicaLink {
    link: LinkId,
    number: u16,
    address: SocketAddr,
    /// It runs other code, so it cannot follow inputs: it offers to take over when this one stops.
    offer: Option<ToPrimaryCta>,
}

impl ReplicaLink {
    pub(super) fn is_at(&self, link: LinkId) -> bool {
        self.link == link
    }
}

impl Pool {
    /// Another CTA offers to follow this one.
    pub(super) fn follows(
        &mut self,
        now: Instant,
        link: LinkId,
        (peer, code): (SocketAddr, CodeVersion),
        message: ToPrimaryCta,
    ) {
        let ToPrimaryCta::Follow { place, address, endpoints, smf } = message else { return };
        if self.follower.is_some() || self.awaited.is_some() {
            return self.links.close(link); // it calls again
        }
        let address = SocketAddr::new(seen_from(address.ip(), peer.ip()), address.port());
        let number = place.cta;
        if code != CodeVersion::own() {
            info!(cta = number, %address, %code, own = %CodeVersion::own(), "a CTA that runs other code takes over when this one stops");
            self.said.push(PoolEvent::SuccessorOffered(place, endpoints.clone(), smf));
            let offer = Some(ToPrimaryCta::Follow { place, address, endpoints, smf });
            self.follower = Some(ReplicaLink { link, number, address, offer });
            return;
        }
        self.follower = Some(ReplicaLink { link, number, address, offer: None });
        self.watch.begin(now, MemberId::Cta(number), address);
        self.said.push(PoolEvent::FromReplica(ToPrimaryCta::Follow { place, address, endpoints, smf }));
    }

    /// The one that waits for this one to stop.
    pub(crate) fn awaited(&self) -> Option<CtaInstance> {
        match self.follower.as_ref()?.offer.as_ref()? {
            ToPrimaryCta::Follow { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// Its offer is taken: it follows now, and no input may come before it has taken over.
    pub(crate) fn take_offer(&mut self, now: Instant) -> Option<ToPrimaryCta> {
        let follower = self.follower.as_mut()?;
        let offer = follower.offer.take()?;
        self.watch.begin(now, MemberId::Cta(follower.number), follower.address);
        Some(offer)
    }

    pub(super) fn cta_replica_lost(&mut self) {
        if let Some(ReplicaLink { offer, .. }) = &self.follower {
            let lost = if offer.is_some() { PoolEvent::SuccessorLost } else { PoolEvent::CtaReplicaLost };
            self.part();
            self.said.push(lost);
        }
    }

    /// The CTA replica is spoken with no more.
    pub(crate) fn part(&mut self) {
        let Some(ReplicaLink { link, number, .. }) = self.follower.take() else { return };
        self.links.close(link);
        self.watch.end(MemberId::Cta(number));
        self.replicated_at(None);
    }

    /// The CTA replica that can take over at any moment is reached there, or there is none.
    pub(crate) fn replicated_at(&mut self, cta_replica: Option<SocketAddr>) {
        if self.cta_replica != cta_replica {
            self.cta_replica = cta_replica;
            self.tell_all(&ToCpf::CtaReplica(cta_replica));
        }
    }

    /// The CTA replica may follow from a snapshot of so many octets.
    pub(crate) fn begin_cta_replica(&mut self, octets: u64, endpoints: Vec<IpAddr>) {
        self.tell_cta_replica(&ToCtaReplica::Begin { octets, heartbeats: self.heartbeats, endpoints });
        self.tell_members();
    }

    /// To the CTA replica, if there is one.
    pub(crate) fn tell_cta_replica(&mut self, message: &ToCtaReplica<'_>) {
        let Some(follower) = &self.follower else { return };
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(follower.link, &self.frame);
    }

    /// Whoever takes this one's place must know its CPFs, before it hears what they cause.
    pub(super) fn tell_members(&mut self) {
        if self.awaited().is_some() {
            return; // it hears of them when it begins to follow
        }
        self.tell_cta_replica(&ToCtaReplica::Cpfs(self.as_members()));
    }

    /// Its CPFs, for that one.
    pub(crate) fn as_members(&self) -> CpfTable {
        let at = |(id, m): (&CpfId, &PoolMember)| CpfEntry {
            id: *id,
            address: m.address,
            region: m.region.to_string(),
            code: m.code,
            draining: m.draining,
            listed: m.listed.filter(|_| m.seen),
        };
        let members = self.members.iter().map(at).collect();
        CpfTable { life: self.life, newest: self.newest, members }
    }
}
