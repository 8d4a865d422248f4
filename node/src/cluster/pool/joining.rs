//! How CPFs join, resume after a takeover, leave and are lost.

use crate::clock;
use crate::observation::{Level, Metric};
use std::net::SocketAddr;

use tracing::{info, warn};
use whimbrel_ids::{Instant, SNssai};
use whimbrel_link::LinkId;
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{
    self, CpfCommand, CpfEntry, Hello, HelloError, LinkRole, ToCpf, ToCta, ToPrimaryCta,
};
use whimbrel_resilience::membership::{CpfRoster, MemberId};
use whimbrel_resilience::region::Region;
use whimbrel_resilience::replication::CpfId;

use super::{
    CpfPool, PendingLinks, PoolEvent, PoolMember, RECONNECT_WITHIN, RECONNECTED_FOR, ResumingCpf,
    TURNS_WITHIN, is_out_of_reach, or_address_of,
};

impl CpfPool {
    /// Sets the links that were pending when this CTA became the primary.
    pub(in crate::cluster) fn set_pending(&mut self, pending: PendingLinks) {
        self.incoming.pending = pending;
    }

    /// This CTA becomes the primary, in place of a former one if there was one. The former one's CPFs are added before etcd's records are
    /// applied, which concern them: else rings without them would be announced.
    pub(in crate::cluster) fn begin(
        &mut self,
        now: Instant,
        former: Option<(link::CpfTable, Vec<ResumingCpf>)>,
        etcd: CpfRoster,
    ) {
        if let Some((members, resuming)) = former {
            self.take_over(now, members, resuming);
        }
        self.apply_etcd(etcd);
    }

    /// Adds the CPFs of the former primary: they are members as soon as they reconnect. Those in `resuming` have reconnected already.
    pub(in crate::cluster) fn take_over(
        &mut self,
        now: Instant,
        former: link::CpfTable,
        resuming: Vec<ResumingCpf>,
    ) {
        (self.members.life, self.members.newest) = (former.life, former.newest);
        (self.reconnection.until, self.reconnection.turned) = (Some(now + RECONNECT_WITHIN), now);
        for CpfEntry { id, address, region, code, draining, listed, slice } in former.members {
            let Ok(region) = region.parse::<Region>() else { continue }; // such a CPF counts as lost
            let seen = listed.is_some();
            let (link, served, confirmed) = (None, true, 0);
            let member =
                PoolMember { link, address, region, code, slice, served, draining, listed, seen, confirmed };
            self.members.by_id.insert(id, member);
        }
        self.rebuild_map();
        for ResumingCpf { link, life, id, has } in resuming {
            self.resume(now, link, life, id, has);
        }
        // The others may hang on a former primary that hangs itself. A connection from here informs them of the
        // takeover.
        let unaware = self.members.by_id.iter().filter(|(_, m)| m.link.is_none());
        for (id, at) in unaware.map(|(id, m)| (*id, m.address)).collect::<Vec<_>>() {
            self.reconnection.calling.insert(self.links.connect(now, at), id);
        }
        self.show_condition();
    }

    /// CPFs of the former primary that have not reconnected in time are lost. The time in which this process was held up does not count.
    pub(super) fn end_reconnection(&mut self, now: Instant) {
        let late = now.since(std::mem::replace(&mut self.reconnection.turned, now));
        if let Some(until) = self.reconnection.until.as_mut().filter(|_| late > TURNS_WITHIN) {
            *until = *until + late;
        }
        let all = self.reconnection.until.is_some() && self.members.by_id.values().all(|m| m.link.is_some());
        let since = self.reconnection.all_since.filter(|_| all).or(all.then_some(now));
        self.reconnection.all_since = since;
        let all = since.is_some_and(|since| now.since(since) >= RECONNECTED_FOR);
        if self.reconnection.until.take_if(|until| all || *until <= now).is_none() {
            return;
        }
        self.reconnection.all_since = None;
        let missing = self.members.by_id.iter().filter(|(_, m)| m.link.is_none()).map(|(id, _)| *id);
        for cpf in missing.collect::<Vec<_>>() {
            warn!(cpf = cpf.0, "a CPF of the former primary CTA did not reconnect in time");
            self.lost(cpf);
        }
    }

    /// A link is up, and its peer has sent its hello.
    pub(super) fn link_up(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &[u8]) {
        match Hello::from_octets(hello) {
            Ok(Hello { role: LinkRole::Cta, .. }) if !self.replica.is_possible() => {
                if self.incoming.rejected.allows(now, peer, "cta") {
                    warn!(%peer, "another CTA connects, but `cluster.etcd` is not configured here, so nothing decides which of the two is the primary");
                }
                self.links.close(link);
            }
            Ok(hello) => drop(self.incoming.pending.insert(link, (peer, hello))),
            Err(e) => {
                self.incoming.incompatible += u64::from(matches!(e, HelloError::LinkVersions { .. }));
                if self.incoming.rejected.allows(now, peer, e.label()) {
                    warn!(%peer, "a link is refused: {e}");
                }
                self.links.close(link);
            }
        }
    }

    /// The first frame of a link says what its peer wants.
    pub(super) fn first_frame(
        &mut self,
        now: Instant,
        link: LinkId,
        (peer, Hello { role, code }): (SocketAddr, Hello),
        octets: &[u8],
    ) {
        let expected = match role {
            LinkRole::Cta => match ToPrimaryCta::read(octets) {
                Ok(message @ ToPrimaryCta::Follow { .. }) => {
                    return self.replica_offered(now, link, (peer, code), message);
                }
                _ => "is not an offer to become the CTA replica",
            },
            LinkRole::Cpf => match ToCta::read(octets) {
                Ok(ToCta::Join { region, address, slice }) => {
                    return self.join(now, link, (peer, code), (&region, slice), address);
                }
                Ok(ToCta::Resume { life, id, has }) => return self.resume(now, link, life, id, has),
                _ => "neither joins nor resumes",
            },
            LinkRole::Upf => "is of a UPF, which CTAs connect to",
            LinkRole::Function => "is of a network function, which CTAs connect to",
        };
        if self.incoming.rejected.allows(now, peer, "offer") {
            warn!(%peer, "a link is refused: its first message {expected}");
        }
        self.links.close(link);
    }

    /// A CPF joins.
    fn join(
        &mut self,
        now: Instant,
        link: LinkId,
        (peer, code): (SocketAddr, CodeVersion),
        (region, slice): (&Region, Option<SNssai>),
        address: SocketAddr,
    ) {
        let id = self.next_number();
        let address = SocketAddr::new(or_address_of(address.ip(), peer.ip()), address.port());
        if let Err((label, sentence)) = self.may_join(now, id, region, address, peer) {
            if self.incoming.rejected.allows(now, peer, label) {
                warn!(%peer, "a CPF is refused: {sentence}");
            }
            return self.links.close(link);
        }
        self.members.newest = id.0;
        let member = PoolMember {
            link: Some(link),
            address,
            region: region.clone(),
            code,
            slice,
            served: false,
            draining: false,
            listed: None,
            seen: false,
            confirmed: 0,
        };
        self.members.by_id.insert(id, member);
        self.members.by_link.insert(link, id);
        self.heartbeats.monitor.begin(now, MemberId::Cpf(id), address);
        self.liveness.heard(now, id);
        let logged = self.incoming.excluded.may_log_join(now, address);
        if logged {
            info!(cpf = id.0, %address, %region, %code, "a CPF joined");
            let text = format!("It joined at {address}, in the region {region}.");
            self.console.moment(now, (Level::Info, "joined"), &format!("CPF {}", id.0), &text, None);
        }
        let (life, heartbeats) = (self.members.life, self.heartbeats.key);
        let keep = self.replica.is_possible();
        self.send_on(link, &ToCpf::Welcome { life, id, heartbeats, keep });
        self.send_on(link, &ToCpf::CtaReplica(self.replica.reached_at()));
        self.send_on(link, &ToCpf::Command(CpfCommand::Configure(self.config.clone())));
        self.members_changed();
        if logged && !self.rings().serves(id) {
            info!(cpf = id.0, "the CPF waits: it runs other code than the CPFs on the rings of its region");
        }
    }

    /// Errors: the reason's label for the counter, and a sentence.
    fn may_join(
        &self,
        now: Instant,
        id: CpfId,
        region: &Region,
        address: SocketAddr,
        peer: SocketAddr,
    ) -> Result<(), (&'static str, String)> {
        if let Err(e) = self.cluster.regions.clone().join(id, region) {
            return Err(("region", format!("{e}; add its region to `cluster.other_regions`")));
        }
        if is_out_of_reach(address.ip(), peer.ip()) {
            let sentence = format!(
                "it announces the loopback address {address}, which other hosts cannot reach; start it with `--listen` and an address of \
                 its host"
            );
            return Err(("loopback", sentence));
        }
        if !self.incoming.excluded.may_join(now, address) {
            let sentence =
                format!("the CPF at {address} was excluded a moment ago after a protocol violation, for 5 s");
            return Err(("excluded", sentence));
        }
        Ok(())
    }

    /// The numbers begin again after the last one: by then no process refers to the former holders.
    fn next_number(&self) -> CpfId {
        let newest = self.members.newest;
        let behind = (newest.saturating_add(1)..=u16::MAX).chain(1..=newest).map(CpfId);
        let mut free = behind.filter(|id| !self.members.by_id.contains_key(id));
        free.next().expect("there are far fewer links than numbers")
    }

    /// A CPF of the former primary has reconnected.
    fn resume(&mut self, now: Instant, link: LinkId, life: u64, id: CpfId, has: u64) {
        if life == self.members.life && self.reconnection.until.is_some() {
            self.disconnect(id); // the end of its former link may not have been noticed yet
        }
        let same_life = life == self.members.life;
        match self.members.by_id.get_mut(&id).filter(|m| same_life && m.link.is_none()) {
            Some(member) => {
                member.link = Some(link);
                self.heartbeats.monitor.begin(now, MemberId::Cpf(id), member.address);
                self.liveness.heard(now, id);
                self.members.by_link.insert(link, id);
                self.pool_events.push(PoolEvent::Resumes(id, has));
            }
            None => {
                self.send_on(link, &ToCpf::Forgotten);
                self.links.close(link);
            }
        }
    }

    /// A CPF connects to both CTAs in turn while it may reconnect, so its link may end just as this CTA takes over: it connects again.
    pub(super) fn disconnect(&mut self, cpf: CpfId) {
        let Some(link) = self.members.by_id.get_mut(&cpf).and_then(|m| m.link.take()) else { return };
        self.members.by_link.remove(&link);
        self.links.close(link);
        self.liveness.end(cpf);
        self.queries.gone(cpf);
        let resumes = |event: &mut PoolEvent| matches!(event, PoolEvent::Resumes(of, _) if *of == cpf);
        if self.pool_events.extract_if(.., resumes).count() == 0 {
            self.pool_events.push(PoolEvent::Disconnected(cpf));
        }
    }

    /// A CPF has resumed. `taken`: how many of its messages are here.
    pub fn resumed(&mut self, cpf: CpfId, taken: u64) {
        let Some(link) = self.members.by_id.get(&cpf).and_then(|m| m.link) else { return };
        info!(cpf = cpf.0, "a CPF of the former primary CTA resumed");
        self.send_on(link, &ToCpf::Resumed { taken, heartbeats: self.heartbeats.key });
        self.send_on(link, &ToCpf::CtaReplica(self.replica.reached_at()));
        let peers = ToCpf::Peers(self.peers());
        self.send_on(link, &peers);
    }

    /// A CPF cannot resume.
    pub fn forget(&mut self, cpf: CpfId) {
        warn!(
            cpf = cpf.0,
            "a CPF of the former primary CTA cannot resume because messages are missing: it has to join again"
        );
        self.lost(cpf);
    }

    /// A CPF asks to leave.
    pub(super) fn leaves(&mut self, cpf: CpfId) {
        info!(cpf = cpf.0, "a CPF leaves: its UEs move to other CPFs");
        let text = "It leaves: its UEs move to other CPFs.";
        self.console.moment(clock::now(), (Level::Info, "left"), &format!("CPF {}", cpf.0), text, None);
        if self.members.by_id.get(&cpf).is_some_and(|m| !m.served) {
            return self.lost(cpf);
        }
        if let Some(member) = self.members.by_id.get_mut(&cpf) {
            member.draining = true;
        }
        self.send_members();
        if !self.update_rings() {
            self.pool_events.push(PoolEvent::Rings(self.rings())); // a CPF that was on no ring leaves all the same
        }
    }

    /// A CPF is registered in etcd under this number.
    pub(super) fn listed(&mut self, cpf: CpfId, number: CpfId) {
        info!(cpf = cpf.0, listed = %MemberId::Cpf(number), "a CPF is registered");
        let seen = self.cluster.roll.lists(number);
        if let Some(member) = self.members.by_id.get_mut(&cpf) {
            (member.listed, member.seen) = (Some(number), seen);
        }
        self.send_members();
        self.update_rings();
    }

    /// A CPF violated the protocol: it is lost, and may not join for a while.
    pub(super) fn exclude(&mut self, now: Instant, cpf: CpfId, why: &str) {
        let Some(address) = self.members.by_id.get(&cpf).map(|m| m.address) else { return };
        if self.incoming.excluded.exclude(now, address) {
            warn!(cpf = cpf.0, %address, "a CPF is excluded for 5 s after a protocol violation: {why}; further times are only counted ({})", Metric::CpfExcluded.name());
            return self.lost(cpf);
        }
        self.remove(cpf);
        self.pool_events.push(PoolEvent::LostRepeatedly(cpf));
    }

    /// A CPF that is on no ring has no UE left. One that asked to leave goes; one that etcd drains stays.
    pub fn drained(&mut self, cpf: CpfId) {
        if self.members.by_id.get(&cpf).is_some_and(|m| !m.draining) {
            return info!(cpf = cpf.0, "the UEs of a CPF have moved to other CPFs");
        }
        info!(cpf = cpf.0, "a CPF left");
        self.lost(cpf);
    }

    /// The link to a lost CPF is closed: if the CPF lives, it learns so, and joins again.
    pub(super) fn lost(&mut self, cpf: CpfId) {
        if self.remove(cpf) {
            self.pool_events.push(PoolEvent::Lost(cpf));
        }
    }

    /// Returns whether it was a member.
    fn remove(&mut self, cpf: CpfId) -> bool {
        let Some(member) = self.members.by_id.remove(&cpf) else { return false };
        if let Some(link) = member.link {
            self.members.by_link.remove(&link);
            self.links.close(link);
        }
        self.heartbeats.monitor.end(MemberId::Cpf(cpf));
        self.liveness.end(cpf);
        self.queries.gone(cpf);
        self.members_changed();
        true
    }

    fn members_changed(&mut self) {
        self.send_to_all(&ToCpf::Peers(self.peers()));
        self.send_members();
        self.update_rings();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use whimbrel_resilience::link::CpfTable;

    use super::*;
    use crate::clock;
    use crate::cluster::tests::pool_of_pair;

    #[test] // a unit had no CTA replica for two seconds after each takeover
    fn a_cta_replica_is_accepted_as_soon_as_all_cpfs_have_reconnected() {
        let (mut pool, now) = (pool_of_pair(), clock::now());
        let at: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let cpf = CpfEntry {
            id: CpfId(1),
            address: at,
            region: "home/site".into(),
            code: CodeVersion::own(),
            draining: false,
            listed: None,
            slice: None,
        };
        pool.take_over(now, CpfTable { life: 7, newest: 1, members: vec![cpf] }, Vec::new());
        let accepts = |pool: &mut CpfPool, after_ms| {
            pool.end_reconnection(now + Duration::from_millis(after_ms));
            pool.reconnection.until.is_none()
        };
        assert!(!accepts(&mut pool, 500), "the CPF has not reconnected");
        let link = pool.links.connect(now, at);
        let connected = |pool: &mut CpfPool, link| pool.members.by_id.get_mut(&CpfId(1)).unwrap().link = link;
        connected(&mut pool, Some(link));
        assert!(!accepts(&mut pool, 600), "its link may end at once");
        connected(&mut pool, None);
        assert!(!accepts(&mut pool, 700), "it does");
        connected(&mut pool, Some(link));
        assert!(!accepts(&mut pool, 800));
        assert!(accepts(&mut pool, 900));
    }
}
