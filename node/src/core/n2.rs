//! N2 on the host: which SCTP association belongs to which gNB, its addresses, and its transfer syntax.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tracing::info;
use whimbrel_control::AssociationId;
use whimbrel_control::amf::HeldName;
use whimbrel_ids::Instant;
use whimbrel_ngap::{TransferSyntax, fast, to_per};
use whimbrel_resilience::cta_replica::{Associations, LocalAssociation, MessageRoute};
use whimbrel_sctp_io::{
    AssociationId as SctpAssociation, Events, Inheritance, Mode, OpenError, Sockets, Successor, Transport,
    TransportSettings, create_store,
};

use super::control_thread::StopRequest;
use crate::clock;
use crate::config::{Config, SctpChoice};
use crate::entropy::SystemEntropy;
use crate::function::descriptors;

/// Streams asked of and granted to a gNB: stream 0, and enough that UEs do not wait for each other.
const STREAMS: u16 = 32;

/// How long gNBs have to complete the graceful end of their associations: a round trip and a delayed acknowledgement (200 ms), twice.
const ENDED_WITHIN: Duration = Duration::from_millis(500);
/// How long the kernel may take to report that an association was aborted.
const ABORTED_WITHIN: Duration = Duration::from_millis(50);

/// Addresses of a gNB that are kept: as many as our SCTP takes of one.
const ADDRESSES_MAX: usize = 8;

/// In each term the names of associations begin this many bits apart, so that a late message of an earlier term names none of this one.
const NAMES_PER_TERM_BITS: u32 = 20;

/// An association as the edge has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct N2Association {
    pub sctp: SctpAssociation,
    pub peer: SocketAddr,
    pub since: Instant,
    /// Streams towards the gNB.
    pub outbound_streams: u16,
    /// The transfer syntax that was agreed on. A gNB that takes another one takes PER, too.
    pub syntax: TransferSyntax,
    /// Messages that were received.
    pub received: u64,
    /// Since when SCTP has no room for a message to this gNB.
    stalled: Option<Instant>,
}

/// Opens N2. Errors: each mode that was tried, and why it failed.
pub fn open_n2(config: &Config, entropy: &mut SystemEntropy) -> Result<Transport, OpenError> {
    Transport::open(&settings(config), entropy.octets(), clock::now())
}

/// N2 of a unit: the sockets and associations of the primary before this one, or new sockets, which the unit's manager keeps from then on. The
/// associations are to be resumed before anything is sent or received. Errors: a sentence.
pub fn inherit_n2(config: &Config, entropy: &mut SystemEntropy) -> Result<Successor, String> {
    let settings = settings(config);
    let mut sockets = descriptors::all(N2_SOCKETS);
    let mut store = descriptors::take(N2_STORE);
    if store.is_none() {
        let created = create_store(&settings.endpoint, entropy.octets());
        let created = created.map_err(|e| format!("the memory for associations cannot be had: {e}"))?;
        descriptors::keep(N2_STORE, created.as_fd());
        store = Some(created);
    }
    if sockets.is_empty() {
        let opened = Sockets::open(&settings).map_err(|e| e.to_string())?;
        let mode = opened.report().chosen;
        for (local, fd) in opened.fds() {
            descriptors::keep(&format!("{N2_SOCKETS}{mode} {local}"), fd);
        }
        sockets = descriptors::all(N2_SOCKETS);
        // The lock on the port stays until the process ends.
        std::mem::forget(opened);
    }
    let of = |(name, fd): (String, OwnedFd)| {
        let (mode, local) = name.strip_prefix(N2_SOCKETS)?.split_once(' ')?;
        Some((mode.parse::<Mode>().ok()?, local.parse::<IpAddr>().ok()?, fd))
    };
    let sockets: Vec<(Mode, IpAddr, OwnedFd)> = sockets.into_iter().filter_map(of).collect();
    let (Some((mode, ..)), Some(store)) = (sockets.first(), store) else {
        return Err("the unit's manager has no sockets of N2".into());
    };
    let mode = *mode;
    let sockets = sockets.into_iter().map(|(_, local, fd)| (local, fd)).collect();
    Transport::inherit(&settings, Inheritance { mode, sockets, store }, clock::now())
        .map_err(|e| format!("the associations of gNBs cannot be continued: {e}"))
}

/// How the names begin under which the manager of a unit keeps the sockets, and the name of the memory of their associations.
const N2_SOCKETS: &str = "cta/n2 ";
const N2_STORE: &str = "cta/n2-associations";

/// SCTP as the configuration asks for it.
fn settings(config: &Config) -> TransportSettings {
    let mut endpoint = whimbrel_sctp_io::Config::new(config.n2.port);
    // A wildcard stands for all addresses, as the empty list does there.
    endpoint.local_addresses = config.n2.addresses.iter().copied().filter(|a| !a.is_unspecified()).collect();
    endpoint.outbound_streams = STREAMS;
    // Room for both tables of the AMF, which share theirs out among sources, and for what is aborted at this moment.
    let associations = config.limits.ran_nodes.saturating_add(config.limits.ran_nodes_waiting);
    endpoint.associations_max = associations as usize + 16;
    endpoint.heartbeat_interval = config.n2.heartbeat_interval;
    endpoint.rto_max = config.n2.rto_max;
    endpoint.path_max_retrans = config.n2.path_max_retrans;
    endpoint.association_max_retrans = config.n2.path_max_retrans;
    endpoint.adaptation = config.n2.fastwire.then_some(whimbrel_ngap::fast::DIGEST);
    let mut settings = TransportSettings::new(endpoint);
    settings.udp_port = config.n2.udp_port;
    settings.mode = match config.n2.sctp {
        SctpChoice::Auto => Mode::Auto,
        SctpChoice::Kernel => Mode::Kernel,
        SctpChoice::Raw => Mode::Raw,
        SctpChoice::Udp => Mode::Udp,
    };
    settings
}

/// What an association is labelled with for the next primary: its name.
pub(super) fn label(name: AssociationId) -> u64 {
    LABELLED | u64::from(name.0)
}

/// The name that a label stands for; `None` if the association has none yet.
pub(super) fn labelled(label: u64) -> Option<AssociationId> {
    (label & LABELLED != 0).then_some(AssociationId(label as u32))
}

/// Set in each label, so that zero is none.
const LABELLED: u64 = 1 << 32;

/// Ends every association, so that gNBs learn at once that this AMF stops (RFC 9260 §9): by SHUTDOWN, and by ABORT where DATA is still
/// unacknowledged or the gNB silent after [`ENDED_WITHIN`], or at once if the stop is not to wait.
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

/// The address of a peer that has these addresses.
pub(super) fn peer(addresses: &[IpAddr], port: u16) -> SocketAddr {
    let address = addresses.first().copied().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
    SocketAddr::new(address, port)
}

/// The transfer syntax of a gNB's association: the adaptation code point is the digest of the gNB's fastwire schema (RFC 5061 §4.2.6). With
/// another digest, or none, PER is used; some kernels send zero by themselves.
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

/// The associations that are up. The control plane's name of an association is never used again, so that a late message names none.
#[derive(Default)]
pub(super) struct N2Associations {
    links: BTreeMap<LocalAssociation, N2Association>,
    by_sctp: BTreeMap<(u32, u32), LocalAssociation>,
    names: Associations,
    /// Further addresses of peers, as SCTP has confirmed them.
    further_addresses: BTreeMap<LocalAssociation, Vec<IpAddr>>,
    last: u32,
    /// The first name of this term.
    first_name: u32,
}

impl N2Associations {
    /// An association came up. It has no name yet: its gNB may come from the other CTA and keep its name.
    pub(super) fn up(
        &mut self,
        now: Instant,
        sctp: SctpAssociation,
        peer: SocketAddr,
        outbound_streams: u16,
        syntax: TransferSyntax,
    ) -> LocalAssociation {
        self.last = self.last.wrapping_add(1);
        let physical = LocalAssociation(self.last);
        let link =
            N2Association { sctp, peer, since: now, outbound_streams, syntax, received: 0, stalled: None };
        self.links.insert(physical, link);
        self.by_sctp.insert((sctp.slot, sctp.generation), physical);
        physical
    }

    /// SCTP has confirmed that the peer of an association is at this address (RFC 9260 §5.4). What a peer only lists, in its INIT, may be an
    /// address of another one. Returns whether that is news.
    pub(super) fn confirm_address(&mut self, physical: LocalAssociation, address: IpAddr) -> bool {
        let known = self.addresses(physical);
        if known.is_empty() || known.contains(&address) || known.len() >= ADDRESSES_MAX {
            return false;
        }
        self.further_addresses.entry(physical).or_default().push(address);
        true
    }

    /// The confirmed addresses of an association's peer; it connected from the first one.
    pub(super) fn addresses(&self, physical: LocalAssociation) -> Vec<IpAddr> {
        let first = self.link(physical).map(|link| link.peer.ip());
        first
            .into_iter()
            .chain(self.further_addresses.get(&physical).into_iter().flatten().copied())
            .collect()
    }

    /// The name of an association; `None`: it has none yet.
    pub(super) fn name_of(&self, physical: LocalAssociation) -> Option<AssociationId> {
        self.names.name_of(physical)
    }

    /// An association goes on here after so many messages: its gNB restarted it, or this CTA has it from the former primary.
    pub(super) fn continues(
        &mut self,
        now: Instant,
        sctp: SctpAssociation,
        peer: SocketAddr,
        (outbound_streams, syntax): (u16, TransferSyntax),
        received: u64,
    ) -> LocalAssociation {
        let physical = self.up(now, sctp, peer, outbound_streams, syntax);
        if let Some(link) = self.links.get_mut(&physical) {
            link.received = received;
        }
        physical
    }

    /// An association stands here without a name. Returns what is to be aborted so that no source takes all places of such associations.
    pub(super) fn stands_by(
        &mut self,
        now: Instant,
        physical: LocalAssociation,
        most: u32,
    ) -> Option<SctpAssociation> {
        let address = self.link(physical).map(|link| link.peer.ip());
        let dropped = self.names.up(now, physical, address, most as usize)?;
        self.link(dropped).map(|link| link.sctp)
    }

    /// A gNB may have sent its identity on this association. Returns what is to be aborted so that no source takes all places of gNBs.
    pub(super) fn crowded_out(&self, physical: LocalAssociation, most: u32) -> Option<SctpAssociation> {
        self.link(self.names.crowded_out(physical, most as usize)?).map(|link| link.sctp)
    }

    /// Associations without a name whose gNB has not sent its identity in time, and their peers.
    pub(super) fn silent(&self, now: Instant) -> Vec<(SctpAssociation, SocketAddr)> {
        let links = self.names.silent(now).into_iter().filter_map(|physical| self.link(physical));
        links.map(|link| (link.sctp, link.peer)).collect()
    }

    /// An association of the former primary keeps its name.
    pub(super) fn keep_name(&mut self, physical: LocalAssociation, name: AssociationId) {
        self.names.name(physical, name);
    }

    /// gNBs that are connected here while the other CTA is the primary.
    pub(super) fn waiting(&self) -> usize {
        self.names.waiting()
    }

    /// Whether gNBs of the former primary may still connect.
    pub(super) fn awaits(&self) -> bool {
        self.names.next_deadline().is_some()
    }

    /// Gives an association a new name.
    pub(super) fn name_it(&mut self, physical: LocalAssociation) -> AssociationId {
        let syntax = self.link(physical).map_or(TransferSyntax::Per, |link| link.syntax);
        let name = AssociationId::new(self.first_name.wrapping_add(physical.0), syntax);
        self.names.name(physical, name);
        name
    }

    /// An association ended. Returns its name, if it has one.
    pub(super) fn down(&mut self, sctp: SctpAssociation) -> Option<AssociationId> {
        let physical = self.by_sctp.remove(&(sctp.slot, sctp.generation))?;
        self.links.remove(&physical);
        self.further_addresses.remove(&physical);
        self.names.down(physical)
    }

    /// Counts a message that an association received. Returns its number on this host.
    pub(super) fn received(&mut self, sctp: SctpAssociation) -> Option<LocalAssociation> {
        let physical = self.physical(sctp)?;
        if let Some(link) = self.links.get_mut(&physical) {
            link.received += 1;
        }
        Some(physical)
    }

    /// The number of an association on this host.
    pub(super) fn physical(&self, sctp: SctpAssociation) -> Option<LocalAssociation> {
        self.by_sctp.get(&(sctp.slot, sctp.generation)).copied()
    }

    /// Finds out to which name an NGAP message belongs.
    pub(super) fn take(&mut self, from: LocalAssociation, octets: &[u8]) -> MessageRoute {
        let address = self.link(from).map(|link| link.peer.ip());
        self.names.take(from, address, octets)
    }

    /// This CTA has taken over in this term: gNBs of the former primary keep their names. Returns the names of those that are down.
    pub(super) fn take_over(
        &mut self,
        now: Instant,
        term: u32,
        gnbs: impl IntoIterator<Item = HeldName>,
    ) -> Vec<AssociationId> {
        self.first_name = term.wrapping_shl(NAMES_PER_TERM_BITS);
        self.names.take_over(now, gnbs)
    }

    /// Returns the names of gNBs that did not connect in time: they are down.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<AssociationId> {
        self.names.tick(now)
    }

    /// When [`Self::tick`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.names.next_deadline()
    }

    fn over(&mut self, name: AssociationId) -> Option<&mut N2Association> {
        self.links.get_mut(&self.names.over(name)?)
    }

    /// The association of this number.
    pub(super) fn link(&self, physical: LocalAssociation) -> Option<N2Association> {
        self.links.get(&physical).copied()
    }

    /// The association of that name.
    pub(super) fn get(&self, name: AssociationId) -> Option<N2Association> {
        self.link(self.names.over(name)?)
    }

    /// Records whether SCTP had room for a message to this gNB. Returns for how long it has had none.
    pub(super) fn took(&mut self, now: Instant, name: AssociationId, taken: bool) -> Duration {
        let Some(link) = self.over(name) else { return Duration::ZERO };
        link.stalled = if taken { None } else { Some(link.stalled.unwrap_or(now)) };
        link.stalled.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Forgets an association, which the caller aborts.
    pub(super) fn forget(&mut self, name: AssociationId) -> Option<N2Association> {
        let link = self.get(name)?;
        self.down(link.sctp);
        Some(link)
    }

    /// All associations that are there.
    pub(super) fn all(&self) -> impl Iterator<Item = N2Association> {
        self.links.values().copied()
    }
}

impl N2Association {
    /// A received message, in the agreed transfer syntax. One in another syntax counts as unreadable (TS 38.413 §10.2).
    pub(super) fn readable<'a>(&self, octets: &'a [u8]) -> &'a [u8] {
        match (TransferSyntax::of(octets), self.syntax) {
            (TransferSyntax::Fastwire, TransferSyntax::Per) => &[],
            _ => octets,
        }
    }

    /// A message in the agreed transfer syntax. It may have been encoded for an earlier association of the gNB.
    pub(super) fn agreed<'a>(&self, octets: &'a [u8]) -> Cow<'a, [u8]> {
        match self.syntax {
            TransferSyntax::Fastwire => Cow::Borrowed(octets),
            TransferSyntax::Per => to_per(octets).map_or(Cow::Borrowed(octets), Cow::Owned),
        }
    }

    /// The stream in place of the one that the UE's procedures chose: the other CTA may have agreed on more streams.
    pub(super) fn stream(&self, chosen: u16) -> u16 {
        match self.outbound_streams {
            n if chosen < n => chosen,
            0 | 1 => 0,
            n => 1 + (chosen - 1) % (n - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_map_onto_fewer_and_stream_0_stays_apart() {
        let link = |outbound_streams| N2Association {
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

    #[test] // SCTP counts an association's messages through a restart of its gNB and through a takeover, and so do releases
    fn an_association_that_goes_on_counts_its_messages_on() {
        let mut links = N2Associations::default();
        let sctp = SctpAssociation { slot: 3, generation: 1 };
        let peer: SocketAddr = ([127, 0, 1, 1], 61_000).into();
        let name = AssociationId(7);
        assert_eq!(
            (labelled(label(name)), labelled(label(AssociationId(0))), labelled(0)),
            (Some(name), Some(AssociationId(0)), None)
        );
        let physical = links.continues(Instant(1), sctp, peer, (32, TransferSyntax::Per), 40);
        links.keep_name(physical, name);
        assert_eq!(links.received(sctp), Some(physical));
        assert_eq!(links.get(name).map(|link| link.received), Some(41));
    }

    #[test] // RFC 9260 §5.4: an address that a peer lists may be another gNB's
    fn addresses_count_when_sctp_has_confirmed_them() {
        let mut links = N2Associations::default();
        let sctp = SctpAssociation { slot: 3, generation: 1 };
        let [from, second]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let physical = links.up(Instant(1), sctp, SocketAddr::new(from, 61_000), 32, TransferSyntax::Per);
        assert_eq!(links.addresses(physical), [from]);
        assert_eq!([second, second, from].map(|a| links.confirm_address(physical, a)), [true, false, false]);
        assert_eq!(links.addresses(physical), [from, second]);
        for n in 3..=100 {
            links.confirm_address(physical, [192, 0, 2, n].into());
        }
        assert_eq!(links.addresses(physical).len(), ADDRESSES_MAX);
        links.down(sctp);
        assert!(!links.confirm_address(physical, second), "of an association that has ended");
        assert_eq!(links.addresses(physical), [] as [IpAddr; 0]);
    }

    #[test]
    fn messages_use_the_agreed_transfer_syntax() {
        let peer: SocketAddr = ([127, 0, 1, 1], 61_000).into();
        assert_eq!(syntax(true, peer, Some(fast::DIGEST)), TransferSyntax::Fastwire);
        for (offered, adaptation) in
            [(true, None), (true, Some(0)), (true, Some(7)), (false, Some(fast::DIGEST))]
        {
            assert_eq!(syntax(offered, peer, adaptation), TransferSyntax::Per);
        }
        let mut links = N2Associations::default();
        let up = |links: &mut N2Associations, slot, syntax| {
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
