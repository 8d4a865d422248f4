//! The aggregator that follows this one: its mirror, or one that runs other code and waits for this one to stop.

use std::net::{IpAddr, SocketAddr};

use tracing::info;
use whimbrel_ids::Instant;
use whimbrel_link::LinkId;
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{MemberAt, Members, ToActive, ToCpf, ToMirror};
use whimbrel_resilience::membership::{MemberId, Place};
use whimbrel_resilience::replication::CpfId;

use super::{Joined, Pool, Said, seen_from};

/// The aggregator that follows this one.
pub(super) struct Follower {
    link: LinkId,
    number: u16,
    address: SocketAddr,
    /// It runs other code, so it cannot follow inputs: it offers to take over when this one stops.
    offer: Option<ToActive>,
}

impl Follower {
    pub(super) fn is_at(&self, link: LinkId) -> bool {
        self.link == link
    }
}

impl Pool {
    /// Another aggregator offers to follow this one.
    pub(super) fn follows(
        &mut self,
        now: Instant,
        link: LinkId,
        (peer, code): (SocketAddr, CodeVersion),
        message: ToActive,
    ) {
        let ToActive::Follow { place, address, endpoints, smf } = message else { return };
        if self.follower.is_some() || self.awaited.is_some() {
            return self.links.close(link); // it calls again
        }
        let address = SocketAddr::new(seen_from(address.ip(), peer.ip()), address.port());
        let number = place.cta;
        if code != CodeVersion::own() {
            info!(aggregator = number, %address, %code, own = %CodeVersion::own(), "an aggregator that runs other code takes over when this one stops");
            self.said.push(Said::Awaited(place, endpoints.clone(), smf));
            let offer = Some(ToActive::Follow { place, address, endpoints, smf });
            self.follower = Some(Follower { link, number, address, offer });
            return;
        }
        self.follower = Some(Follower { link, number, address, offer: None });
        self.watch.begin(now, MemberId::Cta(number), address);
        self.said.push(Said::Pair(ToActive::Follow { place, address, endpoints, smf }));
    }

    /// The one that waits for this one to stop.
    pub(crate) fn awaited(&self) -> Option<Place> {
        match self.follower.as_ref()?.offer.as_ref()? {
            ToActive::Follow { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// Its offer is taken: it follows now, and no input may come before it has taken over.
    pub(crate) fn take_offer(&mut self, now: Instant) -> Option<ToActive> {
        let follower = self.follower.as_mut()?;
        let offer = follower.offer.take()?;
        self.watch.begin(now, MemberId::Cta(follower.number), follower.address);
        Some(offer)
    }

    pub(super) fn mirror_lost(&mut self) {
        if let Some(Follower { offer, .. }) = &self.follower {
            let lost = if offer.is_some() { Said::AwaitedLost } else { Said::MirrorLost };
            self.part();
            self.said.push(lost);
        }
    }

    /// The mirror is spoken with no more.
    pub(crate) fn part(&mut self) {
        let Some(Follower { link, number, .. }) = self.follower.take() else { return };
        self.links.close(link);
        self.watch.end(MemberId::Cta(number));
        self.mirrored_at(None);
    }

    /// The mirror that can take over at any moment is reached there, or there is none.
    pub(crate) fn mirrored_at(&mut self, mirror: Option<SocketAddr>) {
        if self.mirror != mirror {
            self.mirror = mirror;
            self.tell_all(&ToCpf::Mirror(mirror));
        }
    }

    /// The mirror may follow from a snapshot of so many octets.
    pub(crate) fn begin_mirror(&mut self, octets: u64, endpoints: Vec<IpAddr>) {
        self.tell_mirror(&ToMirror::Begin { octets, heartbeats: self.heartbeats, endpoints });
        self.tell_members();
    }

    /// To the mirror, if there is one.
    pub(crate) fn tell_mirror(&mut self, message: &ToMirror<'_>) {
        let Some(follower) = &self.follower else { return };
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(follower.link, &self.frame);
    }

    /// Whoever takes this one's place must know its control functions, before it hears what they cause.
    pub(super) fn tell_members(&mut self) {
        if self.awaited().is_some() {
            return; // it hears of them when it begins to follow
        }
        self.tell_mirror(&ToMirror::Members(self.as_members()));
    }

    /// Its control functions, for that one.
    pub(crate) fn as_members(&self) -> Members {
        let at = |(id, m): (&CpfId, &Joined)| MemberAt {
            id: *id,
            address: m.address,
            region: m.region.to_string(),
            code: m.code,
            draining: m.draining,
            listed: m.listed.filter(|_| m.seen),
        };
        let members = self.members.iter().map(at).collect();
        Members { life: self.life, newest: self.newest, members }
    }
}
