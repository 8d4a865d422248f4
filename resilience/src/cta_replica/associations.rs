//! The gNBs' associations with the replica's host, which replace those with the primary after a takeover.
//!
//! Both hosts are one AMF towards a gNB, with an endpoint each (TS 23.501 §5.21.1.2). The primary sends gNBs the replica's endpoint
//! ([`CtaOrder::Endpoints`](crate::CtaOrder::Endpoints)), and they set up a further association there, which begins with RAN CONFIGURATION UPDATE
//! and the gNB's identity (TS 38.412 §7, TS 38.413 §8.7.2.2). An [`AssociationId`] is only a name: after a takeover it stands for the
//! association that the same gNB has here, and neither its UEs nor the CTA see a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use whimbrel_control::AssociationId;
use whimbrel_control::amf::{HeldName, SETUP_WITHIN};
use whimbrel_control::config::IpPrefix;
use whimbrel_ids::{GlobalGnbId, Instant};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{CauseMisc, GlobalRanNodeId, TimeToWait};
use whimbrel_ngap::msg::{NgSetupFailure, RanConfigurationUpdateAcknowledge, RanConfigurationUpdateFailure};

/// How long a gNB without an association here may take to set one up after a takeover, before its UEs' connections count as lost: it has to
/// find out that the other host is gone.
pub const GRACE: Duration = Duration::from_secs(2);

/// An association as SCTP has it on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalAssociation(pub u32);

/// Where an NGAP message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageRoute {
    /// It is answered here, on stream 0.
    Answered(Vec<u8>),
    /// It is for the CTA, from the association of this name.
    ToAssociation(AssociationId),
    /// It is for the CTA, which is primary here now, from a new association without a name.
    NewAssociation,
    /// It has no meaning here.
    Dropped,
}

/// The associations of a CTA replica's host, before and after it takes over.
#[derive(Debug, Default)]
pub struct Associations {
    /// The gNBs that have sent their identity, and the address that each came from.
    gnbs: BTreeMap<LocalAssociation, (GlobalGnbId, Option<IpAddr>)>,
    names: BTreeMap<AssociationId, LocalAssociation>,
    named: BTreeMap<LocalAssociation, AssociationId>,
    /// Associations that have neither a name nor the identity of a gNB, since when, and the source that each is counted under.
    unidentified: BTreeMap<LocalAssociation, (Instant, Option<IpPrefix>)>,
    /// Names whose gNBs are awaited.
    awaited: BTreeMap<GlobalGnbId, HeldName>,
    /// The end of the grace period, once this host is primary.
    serves: Option<Instant>,
}

impl Associations {
    /// An association came up that has no name. If more than `most` have neither a name nor the identity of a gNB, the oldest one of the
    /// sources that have most of them is to be aborted: it is returned.
    pub fn up(
        &mut self,
        now: Instant,
        which: LocalAssociation,
        address: Option<IpAddr>,
        most: usize,
    ) -> Option<LocalAssociation> {
        self.unidentified.insert(which, (now, address.map(IpPrefix::of_source)));
        if self.unidentified.len() <= most {
            return None;
        }
        let counts = count(self.unidentified.values().map(|(_, source)| *source));
        let largest = counts.values().copied().max()?;
        let of_largest = |(_, (_, source)): &(_, &(Instant, Option<IpPrefix>))| {
            counts.get(&key(*source)).is_some_and(|n| *n == largest)
        };
        self.unidentified.iter().find(of_largest).map(|(which, _)| *which)
    }

    /// More than `most` gNBs have sent their identity, this association's as the last one: returns the association that is to be aborted. It
    /// is the oldest of the source that has most, or this one if no source has more than its own.
    pub fn crowded_out(&self, newcomer: LocalAssociation, most: usize) -> Option<LocalAssociation> {
        if self.gnbs.len() <= most {
            return None;
        }
        let source = |address: &Option<IpAddr>| address.map(IpPrefix::of_source);
        let counts = count(self.gnbs.values().map(|(_, from)| source(from)));
        let (_, own) = self.gnbs.get(&newcomer)?;
        let own = counts.get(&key(source(own))).copied()?;
        let (largest, n) = counts.iter().max_by_key(|(_, n)| **n)?;
        let of_largest = |(_, (_, from)): &(_, &(GlobalGnbId, Option<IpAddr>))| key(source(from)) == *largest;
        if *n <= own { Some(newcomer) } else { self.gnbs.iter().find(of_largest).map(|(which, _)| *which) }
    }

    /// Associations over which the identity of a gNB has not come in time, as NG SETUP has to come at the primary: they are to be aborted.
    pub fn silent(&self, now: Instant) -> Vec<LocalAssociation> {
        // They are numbered in the order in which they came up.
        let due = |(since, _): &(Instant, Option<IpPrefix>)| now.since(*since) >= SETUP_WITHIN;
        self.unidentified.iter().take_while(|(_, of)| due(of)).map(|(which, _)| *which).collect()
    }

    /// An NGAP message came over an association whose peer connected from this address.
    pub fn take(&mut self, from: LocalAssociation, address: Option<IpAddr>, octets: &[u8]) -> MessageRoute {
        if let Some(name) = self.named.get(&from) {
            return MessageRoute::ToAssociation(*name);
        }
        let message = Message::decode(octets);
        if let Ok(Message::RanConfigurationUpdate(m)) = &message
            && let Some(GlobalRanNodeId::GlobalGnbId(gnb)) = m.global_ran_node_id
        {
            match self.awaited.get(&gnb).filter(|held| held.is_at(address)).map(|held| held.name) {
                Some(name) => {
                    self.awaited.remove(&gnb);
                    self.bind(name, from);
                }
                None if self.serves.is_some() => return MessageRoute::NewAssociation,
                None => {
                    self.unidentified.remove(&from);
                    self.gnbs.insert(from, (gnb, address));
                }
            }
            return answer(RanConfigurationUpdateAcknowledge::new());
        }
        match message {
            _ if self.serves.is_some() => MessageRoute::NewAssociation,
            // NG Setup belongs to the primary's association: this host would be another AMF for the gNB.
            Ok(Message::NgSetupRequest(_)) => {
                let mut failure = NgSetupFailure::new(CauseMisc::Unspecified.into());
                failure.time_to_wait = Some(TimeToWait::V5s);
                answer(failure)
            }
            Ok(Message::RanConfigurationUpdate(_)) => {
                answer(RanConfigurationUpdateFailure::new(CauseMisc::Unspecified.into()))
            }
            _ => MessageRoute::Dropped,
        }
    }

    /// Number of gNBs with an association here while the other host is primary: the others lose their connections if that host is lost now.
    pub fn waiting(&self) -> usize {
        self.gnbs.values().map(|(gnb, _)| gnb).collect::<BTreeSet<_>>().len()
    }

    /// An association ended. Returns its name, for the CTA.
    pub fn down(&mut self, which: LocalAssociation) -> Option<AssociationId> {
        self.unidentified.remove(&which);
        self.gnbs.remove(&which);
        let name = self.named.remove(&which)?;
        self.names.remove(&name);
        Some(name)
    }

    /// This host takes over these associations ([`RanNodes::held_names`](whimbrel_control::amf::RanNodes::held_names)). Of several associations
    /// of one gNB the first continues, over the last one here that comes from where the gNB is; returns the names of the others, and of
    /// those without NG Setup: they are down.
    pub fn take_over(
        &mut self,
        now: Instant,
        names: impl IntoIterator<Item = HeldName>,
    ) -> Vec<AssociationId> {
        self.serves = Some(now + GRACE);
        let here = std::mem::take(&mut self.gnbs);
        let mut bound: BTreeSet<GlobalGnbId> = BTreeSet::new();
        let mut down = Vec::new();
        for held in names {
            match held.gnb {
                Some(gnb) if bound.insert(gnb) => {
                    let its = |(_, (id, from)): &(&LocalAssociation, &(GlobalGnbId, Option<IpAddr>))| {
                        *id == gnb && held.is_at(*from)
                    };
                    match here.iter().rev().find(its) {
                        Some((physical, _)) => self.bind(held.name, *physical),
                        None => drop(self.awaited.insert(gnb, held)),
                    }
                }
                _ => down.push(held.name),
            }
        }
        down
    }

    fn bind(&mut self, name: AssociationId, physical: LocalAssociation) {
        self.unidentified.remove(&physical);
        self.names.insert(name, physical);
        self.named.insert(physical, name);
    }

    /// Names a new association.
    pub fn name(&mut self, which: LocalAssociation, name: AssociationId) {
        self.bind(name, which);
    }

    /// The name of an association; `None`: it has none yet.
    pub fn name_of(&self, which: LocalAssociation) -> Option<AssociationId> {
        self.named.get(&which).copied()
    }

    /// The association over which a message leaves; `None`: its gNB is gone, or awaited.
    pub fn over(&self, name: AssociationId) -> Option<LocalAssociation> {
        self.names.get(&name).copied()
    }

    /// Whether a gNB is awaited that was connected to the other host.
    pub fn awaits(&self, name: AssociationId) -> bool {
        self.awaited.values().any(|held| held.name == name)
    }

    /// When [`Associations::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.serves.filter(|_| !self.awaited.is_empty())
    }

    /// Returns the names of gNBs that did not come: they are down.
    pub fn tick(&mut self, now: Instant) -> Vec<AssociationId> {
        match self.serves {
            Some(until) if until <= now => {
                std::mem::take(&mut self.awaited).into_values().map(|held| held.name).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A source as a key.
fn key(source: Option<IpPrefix>) -> Option<(IpAddr, u8)> {
    source.map(|s| (s.address, s.length))
}

/// How many associations each source has.
fn count(sources: impl Iterator<Item = Option<IpPrefix>>) -> BTreeMap<Option<(IpAddr, u8)>, usize> {
    let mut counts = BTreeMap::new();
    sources.for_each(|source| *counts.entry(key(source)).or_insert(0) += 1);
    counts
}

fn answer(message: impl Into<Message>) -> MessageRoute {
    MessageRoute::Answered(message.into().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use whimbrel_ids::PlmnId;
    use whimbrel_ngap::msg::RanConfigurationUpdate;

    const NOW: Instant = Instant(1_000_000);

    fn gnb(n: u32) -> GlobalGnbId {
        GlobalGnbId::new(PlmnId::TEST, n, 28).unwrap()
    }

    const HOME: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));

    fn held(name: u32, n: Option<u32>) -> HeldName {
        let networks = HOME.map(IpPrefix::of_source).into_iter().collect();
        HeldName { name: AssociationId(name), gnb: n.map(gnb), networks }
    }

    fn update(n: u32) -> Vec<u8> {
        let mut m = RanConfigurationUpdate::new();
        m.global_ran_node_id = Some(GlobalRanNodeId::GlobalGnbId(gnb(n)));
        Message::from(m).to_vec()
    }

    fn acknowledged(arrival: &MessageRoute) -> bool {
        let MessageRoute::Answered(octets) = arrival else { return false };
        matches!(Message::decode(octets), Ok(Message::RanConfigurationUpdateAcknowledge(_)))
    }

    #[test] // TS 38.412 §7
    fn a_gnbs_name_goes_over_the_association_that_it_has_here() {
        let mut here = Associations::default();
        assert!(acknowledged(&here.take(LocalAssociation(5), HOME, &update(1))));
        assert!(acknowledged(&here.take(LocalAssociation(6), HOME, &update(2))));
        assert!(acknowledged(&here.take(LocalAssociation(7), HOME, &update(2))));
        assert_eq!((here.waiting(), here.down(LocalAssociation(7)), here.waiting()), (2, None, 2));
        let down = here.take_over(NOW, [held(0, Some(2)), held(1, Some(1))]);
        assert_eq!(down, []);
        assert_eq!(here.over(AssociationId(0)), Some(LocalAssociation(6)));
        assert_eq!(here.take(LocalAssociation(5), HOME, &[0]), MessageRoute::ToAssociation(AssociationId(1)));
        assert_eq!(
            (here.down(LocalAssociation(5)), here.over(AssociationId(1))),
            (Some(AssociationId(1)), None)
        );
        assert_eq!(here.next_deadline(), None);
    }

    #[test]
    fn a_gnb_that_was_not_here_may_still_come() {
        let mut here = Associations::default();
        let names = [1, 2].map(|n| held(n, Some(n)));
        assert_eq!(here.take_over(NOW, names), []);
        assert!(here.awaits(AssociationId(1)));
        assert!(acknowledged(&here.take(LocalAssociation(9), HOME, &update(1))));
        assert_eq!(here.over(AssociationId(1)), Some(LocalAssociation(9)));
        assert_eq!((here.next_deadline(), here.tick(NOW)), (Some(NOW + GRACE), vec![]));
        assert_eq!(here.tick(NOW + GRACE), [AssociationId(2)]);
        assert_eq!(
            here.take(LocalAssociation(10), HOME, &update(2)),
            MessageRoute::NewAssociation,
            "it comes as a new one"
        );
        assert_eq!(here.next_deadline(), None);
    }

    #[test] // a host that names a gNB's identity at the CTA replica does not get the gNB's UEs when that takes over
    fn a_gnbs_name_goes_to_no_other_address() {
        let other = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66)));
        let mut here = Associations::default();
        assert!(acknowledged(&here.take(LocalAssociation(5), HOME, &update(1))));
        assert!(acknowledged(&here.take(LocalAssociation(6), other, &update(1))));
        assert!(acknowledged(&here.take(LocalAssociation(7), other, &update(2))));
        assert_eq!(here.take_over(NOW, [held(1, Some(1)), held(2, Some(2))]), []);
        assert_eq!(here.over(AssociationId(1)), Some(LocalAssociation(5)));
        assert_eq!(here.over(AssociationId(2)), None, "the gNB is awaited");
        assert_eq!(here.take(LocalAssociation(8), other, &update(2)), MessageRoute::NewAssociation);
        assert!(acknowledged(&here.take(LocalAssociation(9), HOME, &update(2))));
        assert_eq!(here.over(AssociationId(2)), Some(LocalAssociation(9)));
    }

    fn host(n: u8) -> Option<IpAddr> {
        Some(Ipv4Addr::new(198, 51, 100, n).into())
    }

    #[test] // one host that only connects takes no place from others, before the takeover and after it
    fn associations_without_an_identity_are_shared_out_among_sources() {
        let mut here = Associations::default();
        assert_eq!(here.up(NOW, LocalAssociation(1), HOME, 3), None);
        for n in 2..40 {
            let dropped = here.up(NOW, LocalAssociation(n), host(1), 3);
            assert_eq!(dropped, (n > 3).then(|| LocalAssociation(n - 2)), "its own oldest one");
            if let Some(which) = dropped {
                here.down(which);
            }
        }
        assert!(acknowledged(&here.take(LocalAssociation(1), HOME, &update(1))));
        assert_eq!(here.up(NOW, LocalAssociation(50), HOME, 3), None, "one with an identity is not counted");
        here.take_over(NOW, [held(1, Some(1))]);
        here.name(LocalAssociation(50), AssociationId(50));
        assert_eq!(here.unidentified.len(), 2);
    }

    #[test] // TS 38.413 §8.7.1.1, as at the primary
    fn an_association_that_stays_silent_is_aborted() {
        let mut here = Associations::default();
        for n in 1..=3 {
            here.up(NOW, LocalAssociation(n), HOME, 10);
        }
        here.up(NOW + SETUP_WITHIN, LocalAssociation(4), HOME, 10);
        assert!(acknowledged(&here.take(LocalAssociation(2), HOME, &update(1))));
        assert_eq!(here.silent(NOW + SETUP_WITHIN - Duration::from_millis(1)), []);
        assert_eq!(here.silent(NOW + SETUP_WITHIN), [LocalAssociation(1), LocalAssociation(3)]);
        // What has no meaning here is no identity.
        assert_eq!(here.take(LocalAssociation(3), HOME, &[0, 15, 0]), MessageRoute::Dropped);
        here.down(LocalAssociation(1));
        assert_eq!(here.silent(NOW + SETUP_WITHIN), [LocalAssociation(3)]);
    }

    #[test] // one host that invents gNBs makes room for those of others
    fn gnbs_here_are_shared_out_among_sources() {
        let mut here = Associations::default();
        let mut come = |n: u32, from| {
            assert!(acknowledged(&here.take(LocalAssociation(n), from, &update(n))));
            let out = here.crowded_out(LocalAssociation(n), 3);
            if let Some(which) = out {
                here.down(which);
            }
            out.map(|which| which.0)
        };
        assert_eq!([1, 2, 3].map(|n| come(n, host(1))), [None; 3]);
        assert_eq!(come(4, host(1)), Some(4), "its own source has most");
        assert_eq!(come(5, HOME), Some(1));
        assert_eq!(come(6, HOME), Some(6), "both would have the same number");
        assert_eq!(come(7, host(2)), Some(2));
    }

    #[test]
    fn of_several_associations_of_a_gnb_the_first_goes_on() {
        let mut here = Associations::default();
        here.take(LocalAssociation(5), HOME, &update(1));
        let names = [held(1, Some(1)), held(4, Some(1)), held(6, None)];
        assert_eq!(here.take_over(NOW, names), [AssociationId(4), AssociationId(6)]);
    }

    #[test] // TS 38.413 §8.7.1.4
    fn ng_setup_is_refused_while_the_other_host_is_primary() {
        let mut here = Associations::default();
        let unnamed = Message::from(RanConfigurationUpdate::new()).to_vec();
        let MessageRoute::Answered(octets) = here.take(LocalAssociation(5), HOME, &unnamed) else {
            panic!("it is answered")
        };
        assert!(matches!(Message::decode(&octets), Ok(Message::RanConfigurationUpdateFailure(_))));
        assert_eq!(here.take(LocalAssociation(5), HOME, &[0, 15, 0]), MessageRoute::Dropped);
        here.take_over(NOW, []);
        assert_eq!(here.take(LocalAssociation(5), HOME, &[0, 15, 0]), MessageRoute::NewAssociation);
    }
}
