//! N2 on the host: which SCTP association is which gNB's, where it is, and in which transfer syntax it is spoken over.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tracing::info;
use whimbrel_control::AssociationId;
use whimbrel_ids::{GlobalGnbId, Instant};
use whimbrel_ngap::{TransferSyntax, fast, to_per};
use whimbrel_resilience::cta_replica::{Associations, LocalAssociation, MessageRoute};
use whimbrel_sctp_io::{AssociationId as SctpAssociation, Events, Transport};

use super::control_thread::StopRequest;
use crate::clock;

/// How long gNBs have to complete the graceful end of their associations: a round trip and a delayed acknowledgement (200 ms), twice.
const ENDED_WITHIN: Duration = Duration::from_millis(500);
/// How long the kernel may take to tell that an association was aborted.
const ABORTED_WITHIN: Duration = Duration::from_millis(50);

/// Names of a pair's CTAs begin so far apart, so that what comes late names nobody of the next one.
const NAMES_A_TERM_BITS: u32 = 20;

/// One association.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) sctp: SctpAssociation,
    pub(crate) peer: SocketAddr,
    pub(crate) since: Instant,
    /// Streams towards the gNB.
    pub(crate) outbound_streams: u16,
    /// What was agreed on. A gNB that takes another form than PER takes PER too.
    pub(crate) syntax: TransferSyntax,
    /// Messages that have come.
    pub(crate) received: u64,
    /// It takes nothing since then: SCTP has no room for what is to be sent.
    stalled: Option<Instant>,
}

/// Ends every association, so that gNBs learn at once that nobody serves them here (RFC 9260 §9): by SHUTDOWN, and by ABORT where DATA is
/// still unacknowledged, or the gNB silent, after [`ENDED_WITHIN`], or if there is to be no waiting.
pub(super) fn end_associations(n2: &mut Transport, stop: &StopRequest) {
    let mut by = clock::now() + ENDED_WITHIN;
    n2.stop(clock::now(), by);
    let mut events = Events::default();
    loop {
        let now = clock::now();
        if stop.is_at_once() && now < by {
            by = now;
            n2.stop(now, by);
        }
        n2.drain(now, &mut events);
        n2.flush(now);
        if n2.associations().is_empty() || now > by + ABORTED_WITHIN {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Where a peer of these addresses is.
pub(super) fn peer(addresses: &[IpAddr], port: u16) -> SocketAddr {
    let address = addresses.first().copied().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
    SocketAddr::new(address, port)
}

/// What a gNB's association is agreed to carry: its adaptation code point is the digest of its fastwire (RFC 5061 §4.2.6). One that has none
/// of this core's is spoken to in ASN.1; zero is what some kernels say by themselves.
pub(super) fn syntax(offered: bool, peer: SocketAddr, adaptation: Option<u32>) -> TransferSyntax {
    match adaptation.filter(|code_point| offered && *code_point != 0) {
        Some(fast::DIGEST) => {
            info!(%peer, "a gNB uses fastwire");
            TransferSyntax::Fastwire
        }
        Some(other) => {
            let (theirs, ours) = (format!("{other:#010x}"), format!("{:#010x}", fast::DIGEST));
            info!(%peer, theirs, ours, "a gNB offers another fastwire schema than this core's: ASN.1 PER is used");
            TransferSyntax::Per
        }
        None => TransferSyntax::Per,
    }
}

/// The associations that are up. The control plane's name of one is never used again, so that what comes late names
/// nobody.
#[derive(Default)]
pub(crate) struct Links {
    links: BTreeMap<LocalAssociation, Link>,
    by_sctp: BTreeMap<(u32, u32), LocalAssociation>,
    names: Associations,
    came: u32,
    /// Names are counted from here.
    named_from: u32,
}

impl Links {
    /// An association came up, and has no name yet: it may be that of a gNB which comes from another host of this AMF.
    pub(crate) fn up(
        &mut self,
        now: Instant,
        sctp: SctpAssociation,
        peer: SocketAddr,
        outbound_streams: u16,
        syntax: TransferSyntax,
    ) -> LocalAssociation {
        self.came = self.came.wrapping_add(1);
        let physical = LocalAssociation(self.came);
        let link = Link { sctp, peer, since: now, outbound_streams, syntax, received: 0, stalled: None };
        self.links.insert(physical, link);
        self.by_sctp.insert((sctp.slot, sctp.generation), physical);
        physical
    }

    /// gNBs that have come here while another host serves.
    pub(crate) fn waiting(&self) -> usize {
        self.names.waiting()
    }

    /// Whether a gNB may come that has a name already.
    pub(crate) fn awaits(&self) -> bool {
        self.names.next_deadline().is_some()
    }

    /// An association is one of this host's own from now on. Gives its name.
    pub(crate) fn name_it(&mut self, physical: LocalAssociation) -> AssociationId {
        let syntax = self.link(physical).map_or(TransferSyntax::Per, |link| link.syntax);
        let name = AssociationId::new(self.named_from.wrapping_add(physical.0), syntax);
        self.names.name(physical, name);
        name
    }

    /// An association ended. Gives its name, if it has one.
    pub(crate) fn down(&mut self, sctp: SctpAssociation) -> Option<AssociationId> {
        let physical = self.by_sctp.remove(&(sctp.slot, sctp.generation))?;
        self.links.remove(&physical);
        self.names.down(physical)
    }

    /// A message has come over an association. Gives what this host calls it.
    pub(crate) fn received(&mut self, sctp: SctpAssociation) -> Option<LocalAssociation> {
        let physical = self.physical(sctp)?;
        if let Some(link) = self.links.get_mut(&physical) {
            link.received += 1;
        }
        Some(physical)
    }

    /// What this host calls an association.
    pub(crate) fn physical(&self, sctp: SctpAssociation) -> Option<LocalAssociation> {
        self.by_sctp.get(&(sctp.slot, sctp.generation)).copied()
    }

    /// Whose an NGAP message is.
    pub(crate) fn take(&mut self, from: LocalAssociation, octets: &[u8]) -> MessageRoute {
        self.names.take(from, octets)
    }

    /// This host serves in another one's place, in the home's term: its gNBs keep their names. Gives the names of those that are down.
    pub(crate) fn take_over(
        &mut self,
        now: Instant,
        term: u32,
        gnbs: impl IntoIterator<Item = (AssociationId, Option<GlobalGnbId>)>,
    ) -> Vec<AssociationId> {
        self.named_from = term.wrapping_shl(NAMES_A_TERM_BITS);
        self.names.take_over(now, gnbs)
    }

    /// The names of gNBs that did not come in time: they are down.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<AssociationId> {
        self.names.tick(now)
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.names.next_deadline()
    }

    fn over(&mut self, name: AssociationId) -> Option<&mut Link> {
        self.links.get_mut(&self.names.over(name)?)
    }

    /// The association of this host's name.
    pub(crate) fn link(&self, physical: LocalAssociation) -> Option<Link> {
        self.links.get(&physical).copied()
    }

    /// The association of that name.
    pub(crate) fn get(&self, name: AssociationId) -> Option<Link> {
        self.link(self.names.over(name)?)
    }

    /// SCTP has or has no room for messages to this gNB. Gives how long it had none.
    pub(crate) fn took(&mut self, now: Instant, name: AssociationId, taken: bool) -> Duration {
        let Some(link) = self.over(name) else { return Duration::ZERO };
        link.stalled = if taken { None } else { Some(link.stalled.unwrap_or(now)) };
        link.stalled.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// An association is given up by us.
    pub(crate) fn forget(&mut self, name: AssociationId) -> Option<Link> {
        let link = self.get(name)?;
        self.down(link.sctp);
        Some(link)
    }

    /// All associations.
    pub(crate) fn all(&self) -> impl Iterator<Item = Link> {
        self.links.values().copied()
    }
}

impl Link {
    /// A message as the association carries it: what came in a form that was not agreed on says nothing, and is answered as all that
    /// cannot be read (TS 38.413 §10.2).
    pub(crate) fn readable<'a>(&self, octets: &'a [u8]) -> &'a [u8] {
        match (TransferSyntax::of(octets), self.syntax) {
            (TransferSyntax::Fastwire, TransferSyntax::Per) => &[],
            _ => octets,
        }
    }

    /// A message as the association carries it. The name that a machine knows may have been that of another association of the gNB.
    pub(crate) fn agreed<'a>(&self, octets: &'a [u8]) -> Cow<'a, [u8]> {
        match self.syntax {
            TransferSyntax::Fastwire => Cow::Borrowed(octets),
            TransferSyntax::Per => to_per(octets).map_or(Cow::Borrowed(octets), Cow::Owned),
        }
    }

    /// The stream that stands for one of those that the UE's machine knows: another host of this AMF may have agreed on more.
    pub(crate) fn stream(&self, wanted: u16) -> u16 {
        match self.outbound_streams {
            n if wanted < n => wanted,
            0 | 1 => 0,
            n => 1 + (wanted - 1) % (n - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_streams_carry_what_more_did_and_stream_0_stays_apart() {
        let link = |outbound_streams| Link {
            sctp: SctpAssociation { slot: 0, generation: 0 },
            peer: ([127, 0, 0, 1], 38412).into(),
            since: Instant(1),
            outbound_streams,
            syntax: TransferSyntax::Per,
            received: 0,
            stalled: None,
        };
        assert_eq!([0, 1, 31].map(|s| link(32).stream(s)), [0, 1, 31]);
        assert_eq!([0, 1, 3, 4, 31].map(|s| link(4).stream(s)), [0, 1, 3, 1, 1]);
        assert_eq!([0, 7].map(|s| link(1).stream(s)), [0, 0]);
    }

    #[test]
    fn an_association_carries_what_was_agreed_on() {
        let peer: SocketAddr = ([127, 0, 1, 1], 61_000).into();
        assert_eq!(syntax(true, peer, Some(fast::DIGEST)), TransferSyntax::Fastwire);
        for (offered, adaptation) in
            [(true, None), (true, Some(0)), (true, Some(7)), (false, Some(fast::DIGEST))]
        {
            assert_eq!(syntax(offered, peer, adaptation), TransferSyntax::Per);
        }
        let mut links = Links::default();
        let up = |links: &mut Links, slot, syntax| {
            links.up(Instant(1), SctpAssociation { slot, generation: 0 }, peer, 32, syntax)
        };
        let (per, fast) =
            (up(&mut links, 0, TransferSyntax::Per), up(&mut links, 1, TransferSyntax::Fastwire));
        assert_eq!([per, fast].map(|p| links.name_it(p).syntax() == TransferSyntax::Fastwire), [false, true]);
        let message = whimbrel_ngap::Message::from(whimbrel_ngap::ErrorIndication::new());
        let (in_per, mut in_fast) = (message.to_vec(), Vec::new());
        message.encode_in(TransferSyntax::Fastwire, &mut in_fast);
        let [per, fast] = [per, fast].map(|p| links.link(p).unwrap());
        assert_eq!((per.readable(&in_per), per.readable(&in_fast)), (&in_per[..], &[][..]));
        assert_eq!((fast.readable(&in_per), fast.readable(&in_fast)), (&in_per[..], &in_fast[..]));
        assert_eq!((per.agreed(&in_per), per.agreed(&in_fast)), (in_per[..].into(), in_per[..].into()));
        assert_eq!((fast.agreed(&in_per), fast.agreed(&in_fast)), (in_per[..].into(), in_fast[..].into()));
    }
}
