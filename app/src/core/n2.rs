//! N2 on the host: which SCTP association is which gNB's, and where it is.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use whimbrel_control::AssociationId;
use whimbrel_ids::Instant;
use whimbrel_sctp_io::AssociationId as SctpAssociation;

/// One association.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) sctp: SctpAssociation,
    pub(super) peer: SocketAddr,
    pub(super) since: Instant,
    /// It takes nothing since then: SCTP has no room for what is to be sent.
    pub(super) stalled: Option<Instant>,
}

/// The associations that are up. The control plane's name of one is never used again, so that what comes late names
/// nobody.
#[derive(Default)]
pub(super) struct Links {
    by_name: BTreeMap<AssociationId, Link>,
    by_sctp: BTreeMap<(u32, u32), AssociationId>,
    named: u32,
}

impl Links {
    /// An association came up.
    pub(super) fn up(
        &mut self,
        now: Instant,
        sctp: SctpAssociation,
        peer: &[IpAddr],
        port: u16,
    ) -> (AssociationId, Link) {
        self.named = self.named.wrapping_add(1);
        let name = AssociationId(self.named);
        let address = peer.first().copied().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
        let link = Link { sctp, peer: SocketAddr::new(address, port), since: now, stalled: None };
        self.by_name.insert(name, link);
        self.by_sctp.insert((sctp.slot, sctp.generation), name);
        (name, link)
    }

    /// An association ended.
    pub(super) fn down(&mut self, sctp: SctpAssociation) -> Option<AssociationId> {
        let name = self.by_sctp.remove(&(sctp.slot, sctp.generation))?;
        self.by_name.remove(&name);
        Some(name)
    }

    /// The control plane's name of an association.
    pub(super) fn name(&self, sctp: SctpAssociation) -> Option<AssociationId> {
        self.by_sctp.get(&(sctp.slot, sctp.generation)).copied()
    }

    /// The association of that name.
    pub(super) fn get(&self, name: AssociationId) -> Option<Link> {
        self.by_name.get(&name).copied()
    }

    /// SCTP has or has no room for messages to this gNB. Gives how long it had none.
    pub(super) fn took(&mut self, now: Instant, name: AssociationId, taken: bool) -> std::time::Duration {
        let Some(link) = self.by_name.get_mut(&name) else { return std::time::Duration::ZERO };
        link.stalled = if taken { None } else { Some(link.stalled.unwrap_or(now)) };
        link.stalled.map_or(std::time::Duration::ZERO, |since| now.since(since))
    }

    /// An association is given up by us.
    pub(super) fn forget(&mut self, name: AssociationId) -> Option<Link> {
        let link = self.by_name.remove(&name)?;
        self.by_sctp.remove(&(link.sctp.slot, link.sctp.generation));
        Some(link)
    }

    /// All associations.
    pub(super) fn all(&self) -> impl Iterator<Item = Link> {
        self.by_name.values().copied()
    }
}
