//! The UPFs behind the packet logger: which one serves, which one is its replica.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_link::LinkId;
use whimbrel_user::logger::LoggerHello;

/// How long a logger that starts waits for a UPF that serves already, before it lets another one begin without sessions.
const ADOPTS_WITHIN: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberAction {
    /// A UPF serves from now on.
    Serve { link: LinkId, term: u64, how: ServiceStart },
    /// A UPF is to be the replica.
    Follow { link: LinkId },
    /// A UPF has been replaced.
    Replaced { link: LinkId },
    /// There is no replica.
    WithoutReplica,
}

/// How a UPF comes to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceStart {
    /// The UPF begins without sessions.
    Begins,
    /// It served before this logger knew it, or before it lost its link.
    Again,
    /// In the place of another one, whose sessions it has.
    TakesOver,
}

/// A UPF that is connected.
struct Member {
    peer: SocketAddr,
    hello: LoggerHello,
}

/// The UPF that serves.
struct ServingUpf {
    link: LinkId,
    token: u64,
    /// It has reported that it takes packets.
    begun: bool,
}

/// The UPF that is the replica.
struct Replica {
    link: LinkId,
    /// The batch that makes the state whole.
    whole_with: Option<u64>,
    whole: bool,
}

/// The UPFs that are connected.
pub(super) struct Members {
    members: BTreeMap<LinkId, Member>,
    /// Where the packet threads are, by their tokens.
    addresses: BTreeMap<u64, SocketAddr>,
    serving: Option<ServingUpf>,
    replica: Option<Replica>,
    term: u64,
    elects_from: Instant,
}

impl Members {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            members: BTreeMap::new(),
            addresses: BTreeMap::new(),
            serving: None,
            replica: None,
            term: 0,
            elects_from: now + ADOPTS_WITHIN,
        }
    }

    /// The address of a UPF that is connected.
    pub(super) fn peer(&self, link: LinkId) -> Option<SocketAddr> {
        self.members.get(&link).map(|m| m.peer)
    }

    /// The UPF that serves.
    pub(super) fn serving(&self) -> Option<LinkId> {
        self.serving.as_ref().map(|s| s.link)
    }

    /// The UPF that serves, if it takes messages and packets.
    pub(super) fn begun(&self) -> Option<LinkId> {
        self.serving.as_ref().filter(|s| s.begun).map(|s| s.link)
    }

    /// Where its packets go, and what they name.
    pub(super) fn packets_go_to(&self) -> Option<(SocketAddr, u64)> {
        let serving = self.serving.as_ref().filter(|s| s.begun)?;
        Some((*self.addresses.get(&serving.token)?, serving.token))
    }

    /// The UPF that serves takes messages and packets; whether it did not before.
    pub(super) fn begins(&mut self) -> bool {
        self.serving.as_mut().is_some_and(|s| !std::mem::replace(&mut s.begun, true))
    }

    /// The link of the replica, if there is one.
    pub(super) fn replica(&self) -> Option<LinkId> {
        self.replica.as_ref().map(|r| r.link)
    }

    /// Whether the replica has the whole state.
    pub(super) fn has_whole_replica(&self) -> bool {
        self.replica.as_ref().is_some_and(|r| r.whole)
    }

    /// Records were given to the replica, of which these make the state whole.
    pub(super) fn records_given(&mut self, batch: u64, complete: bool) {
        if let Some(replica) = self.replica.as_mut().filter(|_| complete) {
            replica.whole_with = Some(batch);
        }
    }

    /// The replica has acknowledged a batch; whether it has the whole state since this one.
    pub(super) fn acknowledged(&mut self, batch: u64) -> bool {
        let whole =
            self.replica.as_mut().filter(|r| !r.whole && r.whole_with.is_some_and(|with| with <= batch));
        whole.is_some_and(|replica| {
            replica.whole = true;
            true
        })
    }

    /// A packet thread is there. Only of a UPF that is connected.
    pub(super) fn has_address(&mut self, token: u64, at: SocketAddr) {
        if self.members.values().any(|m| m.hello.token == token) {
            self.addresses.insert(token, at);
        }
    }

    /// UPFs whose packet threads' addresses are not known.
    pub(super) fn without_address(&self) -> Vec<LinkId> {
        let unknown = |(_, m): &(&LinkId, &Member)| !self.addresses.contains_key(&m.hello.token);
        self.members.iter().filter(unknown).map(|(link, _)| *link).collect()
    }

    /// A UPF has connected.
    pub(super) fn joined(
        &mut self,
        now: Instant,
        link: LinkId,
        peer: SocketAddr,
        hello: LoggerHello,
    ) -> Vec<MemberAction> {
        self.members.insert(link, Member { peer, hello });
        match &mut self.serving {
            // It had lost the link, and is there again before its end was seen.
            Some(serving) if serving.token == hello.token => {
                let former = std::mem::replace(&mut serving.link, link);
                self.members.remove(&former);
                serving.begun = false;
                let mut changes =
                    vec![MemberAction::Serve { link, term: self.term, how: ServiceStart::Again }];
                changes.extend(self.without_replica());
                changes
            }
            // It served before the one that does now.
            Some(_) if hello.term > 0 => {
                self.members.remove(&link);
                vec![MemberAction::Replaced { link }]
            }
            _ => self.elect(now),
        }
    }

    /// A UPF's link has ended.
    pub(super) fn left(&mut self, now: Instant, link: LinkId) -> Vec<MemberAction> {
        let Some(member) = self.members.remove(&link) else { return Vec::new() };
        self.addresses.remove(&member.hello.token);
        if self.replica.as_ref().is_some_and(|r| r.link == link) {
            self.replica = None;
            let mut changes = vec![MemberAction::WithoutReplica];
            changes.extend(self.elect(now));
            return changes;
        }
        if self.serving.as_ref().is_some_and(|s| s.link == link) { self.replace(now) } else { Vec::new() }
    }

    /// The UPF that serves is lost: its replica takes over, if it has the whole state.
    pub(super) fn replace(&mut self, now: Instant) -> Vec<MemberAction> {
        let Some(former) = self.serving.take() else { return Vec::new() };
        let mut changes = Vec::new();
        if self.members.remove(&former.link).is_some() {
            changes.push(MemberAction::Replaced { link: former.link });
        }
        self.addresses.remove(&former.token);
        match self.replica.take() {
            Some(Replica { link, whole: true, .. }) => {
                changes.push(self.serve(link, self.term + 1, ServiceStart::TakesOver));
                changes.extend(self.elect(now));
            }
            // It may only have lost the link.
            incomplete => {
                changes.extend(incomplete.map(|_| MemberAction::WithoutReplica));
                self.elects_from = now + ADOPTS_WITHIN;
            }
        }
        changes
    }

    fn serve(&mut self, link: LinkId, term: u64, how: ServiceStart) -> MemberAction {
        self.term = term;
        if let Some(member) = self.members.get_mut(&link) {
            member.hello.term = term;
            self.serving = Some(ServingUpf { link, token: member.hello.token, begun: false });
        }
        MemberAction::Serve { link, term, how }
    }

    fn without_replica(&mut self) -> Vec<MemberAction> {
        // It gets the state again.
        let replica = self.replica.take();
        let follows = replica.map(|r| {
            self.replica = Some(Replica { link: r.link, whole_with: None, whole: false });
            [MemberAction::WithoutReplica, MemberAction::Follow { link: r.link }]
        });
        follows.into_iter().flatten().collect()
    }

    /// Finds a UPF that serves, and a replica, where there is none.
    pub(super) fn elect(&mut self, now: Instant) -> Vec<MemberAction> {
        let mut changes = Vec::new();
        if self.serving.is_none() {
            let last = self.members.iter().max_by_key(|(link, m)| (m.hello.term, std::cmp::Reverse(**link)));
            let last = last.map(|(link, m)| (*link, m.hello.term));
            match last {
                Some((link, term)) if term > 0 => changes.push(self.serve(link, term, ServiceStart::Again)),
                Some((link, _)) if self.elects_from <= now => {
                    changes.push(self.serve(link, self.term + 1, ServiceStart::Begins))
                }
                _ => return changes,
            }
        }
        let serving = self.serving();
        let former = self.members.iter().find(|(l, m)| Some(**l) != serving && m.hello.term > 0);
        if let Some(link) = former.map(|(link, _)| *link) {
            self.members.remove(&link);
            changes.push(MemberAction::Replaced { link });
        }
        let other = self.members.keys().find(|l| Some(**l) != serving).copied();
        if let (None, Some(link)) = (&self.replica, other) {
            self.replica = Some(Replica { link, whole_with: None, whole: false });
            changes.push(MemberAction::Follow { link });
        }
        changes
    }

    /// When [`Self::elect`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        (self.serving.is_none() && !self.members.is_empty()).then_some(self.elects_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant(1_000_000_000);
    const LATER: Instant = Instant(1_002_000_000);

    fn hello(token: u64, term: u64) -> LoggerHello {
        LoggerHello { configuration: 1, token, term }
    }

    fn peer(n: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, n], 40_000))
    }

    fn pair() -> Members {
        let mut members = Members::new(AT);
        assert_eq!(members.joined(AT, LinkId(1), peer(1), hello(11, 0)), []);
        members.joined(AT, LinkId(2), peer(2), hello(22, 0));
        let changes = members.elect(LATER);
        let serve = MemberAction::Serve { link: LinkId(1), term: 1, how: ServiceStart::Begins };
        assert_eq!(changes, [serve, MemberAction::Follow { link: LinkId(2) }]);
        assert!(members.begins() && !members.begins());
        members.records_given(7, true);
        assert!(!members.acknowledged(6) && members.acknowledged(7) && !members.acknowledged(8));
        members
    }

    #[test]
    fn the_replica_takes_over_when_it_has_the_whole_state() {
        let mut members = pair();
        members.has_address(11, peer(1));
        assert_eq!(members.packets_go_to(), Some((peer(1), 11)));
        let serve = MemberAction::Serve { link: LinkId(2), term: 2, how: ServiceStart::TakesOver };
        assert_eq!(members.left(LATER, LinkId(1)), [serve], "what waits for the replica has never left");
        assert_eq!(
            (members.serving(), members.begun(), members.packets_go_to()),
            (Some(LinkId(2)), None, None)
        );
        // The former one, which was only cut off, is no UPF any more; started again, it is the replica.
        let replaced = MemberAction::Replaced { link: LinkId(3) };
        assert_eq!(members.joined(LATER, LinkId(3), peer(1), hello(11, 1)), [replaced]);
        let follow = MemberAction::Follow { link: LinkId(4) };
        assert_eq!(members.joined(LATER, LinkId(4), peer(1), hello(33, 0)), [follow]);
    }

    #[test]
    fn one_that_gives_no_sign_of_life_is_replaced_and_has_no_effect_any_more() {
        let mut members = pair();
        members.has_address(11, peer(1));
        let replaced = MemberAction::Replaced { link: LinkId(1) };
        let serve = MemberAction::Serve { link: LinkId(2), term: 2, how: ServiceStart::TakesOver };
        assert_eq!(members.replace(LATER), [replaced, serve]);
        members.has_address(11, peer(1));
        assert_eq!(members.packets_go_to(), None, "its address is of no use");
        assert_eq!(members.left(LATER, LinkId(1)), []);
    }

    #[test]
    fn a_replica_without_the_whole_state_does_not_take_over() {
        let mut members = Members::new(AT);
        members.joined(AT, LinkId(1), peer(1), hello(11, 0));
        members.joined(LATER, LinkId(2), peer(2), hello(22, 0));
        assert_eq!(members.left(LATER, LinkId(1)), [MemberAction::WithoutReplica]);
        assert_eq!(members.serving(), None);
        // The UPF that had only lost its link goes on.
        let serve = MemberAction::Serve { link: LinkId(3), term: 1, how: ServiceStart::Again };
        let follow = MemberAction::Follow { link: LinkId(2) };
        assert_eq!(members.joined(LATER, LinkId(3), peer(1), hello(11, 1)), [serve, follow]);
    }

    #[test]
    fn a_logger_that_starts_again_adopts_the_upf_that_served_last() {
        let mut members = Members::new(AT);
        assert_eq!(members.joined(AT, LinkId(1), peer(2), hello(22, 0)), []);
        let serve = MemberAction::Serve { link: LinkId(2), term: 5, how: ServiceStart::Again };
        let follow = MemberAction::Follow { link: LinkId(1) };
        assert_eq!(members.joined(AT, LinkId(2), peer(1), hello(11, 5)), [serve, follow]);
    }

    #[test]
    fn a_upf_that_connects_again_before_its_former_link_has_ended_serves_on() {
        let mut members = pair();
        let serve = MemberAction::Serve { link: LinkId(9), term: 1, how: ServiceStart::Again };
        let again = [serve, MemberAction::WithoutReplica, MemberAction::Follow { link: LinkId(2) }];
        assert_eq!(members.joined(LATER, LinkId(9), peer(1), hello(11, 1)), again);
        assert_eq!(members.left(LATER, LinkId(1)), []);
        assert_eq!(members.serving(), Some(LinkId(9)));
        assert!(!members.has_whole_replica());
    }

    #[test]
    fn a_token_of_no_upf_has_no_address() {
        let mut members = pair();
        members.has_address(99, peer(9));
        assert_eq!(members.without_address(), [LinkId(1), LinkId(2)]);
    }
}
