//! The links between the CPFs of a cluster, which carry checkpoints.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tracing::{debug, info, warn};
use whimbrel_control::UeId;
use whimbrel_ids::Instant;
use whimbrel_link::{DownReason, LinkId, Links};
use whimbrel_resilience::link::{LinkError, ToPeer};
use whimbrel_resilience::replication::CpfId;

use super::{CpfProcess, Membership};
use crate::cluster::rejected_peers::RejectedPeers;
use crate::log_limiter::LogLimiter;
use crate::observation::Metric;

/// Between two attempts to connect to a CPF that has only old messages to get.
const RECONNECT_PEER_AFTER: Duration = Duration::from_secs(1);
/// Octets that may wait on a link while messages are sent again: far below the bound at which the link ends.
const WAITING_MAX: usize = 1 << 20;

/// What this process knows of other CPFs, whatever its membership.
pub(super) struct PeerCpfs {
    /// The addresses of CPFs that have connected to this one.
    callers: BTreeMap<LinkId, SocketAddr>,
    pub(super) rejected: RejectedPeers,
    /// Limits the lines about lost and restored links: a CPF that takes this one for a member of an earlier life closes each link.
    log_links: LogLimiter<(CpfId, &'static str)>,
    /// Limits the lines about wrong checkpoints.
    pub(super) log_checkpoints: LogLimiter<&'static str>,
    /// Messages of other CPFs that could not be read.
    pub(super) unreadable: u64,
    log_unreadable: LogLimiter<IpAddr>,
}

impl Default for PeerCpfs {
    fn default() -> Self {
        Self {
            callers: BTreeMap::new(),
            rejected: RejectedPeers::default(),
            log_links: LogLimiter::new("links to other CPFs"),
            log_checkpoints: LogLimiter::new("checkpoints of other CPFs"),
            unreadable: 0,
            log_unreadable: LogLimiter::new("messages of other CPFs"),
        }
    }
}

/// The other members of the cluster.
#[derive(Default)]
pub(super) struct MemberPeers {
    addresses: BTreeMap<CpfId, SocketAddr>,
    /// The links over which this CPF sends.
    links: BTreeMap<CpfId, LinkId>,
    /// CPFs whose link was lost, so that the last messages to them may not have arrived.
    resync: BTreeMap<CpfId, Resync>,
}

/// How far messages have been sent again.
enum Resync {
    /// The CPF is not connected yet; at this time it is connected to, unless it is anyway.
    From(Instant),
    /// It is connected, and the messages of UEs up to this one have been sent again.
    After(Option<UeId>),
}

impl MemberPeers {
    /// How many other CPFs there are, and for how many messages are still to be sent again.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.addresses.len(), self.resync.len())
    }

    pub(super) fn into_links(self) -> impl Iterator<Item = LinkId> {
        self.links.into_values()
    }

    /// Sets the members of the cluster. `own`: this CPF.
    pub(super) fn set(&mut self, own: CpfId, members: Vec<(CpfId, SocketAddr)>, links: &mut Links) {
        self.addresses = members.into_iter().filter(|(id, _)| *id != own).collect();
        let addresses = &self.addresses;
        self.links.retain(|id, link| {
            let stays = addresses.contains_key(id);
            if !stays {
                links.close(*link);
            }
            stays
        });
        self.resync.retain(|id, _| addresses.contains_key(id));
    }

    fn on(&self, link: LinkId) -> Option<CpfId> {
        self.links.iter().find(|(_, of)| **of == link).map(|(peer, _)| *peer)
    }
}

impl CpfProcess {
    /// A link to or from another CPF is up.
    pub(super) fn peer_link_up(
        &mut self,
        now: Instant,
        link: LinkId,
        (address, we_called): (SocketAddr, bool),
    ) {
        self.peers.callers.extend((!we_called).then_some((link, address)));
        let Some(peers) = self.membership.as_mut().map(|m| &mut m.peers) else { return };
        let Some(peer) = peers.on(link) else { return };
        if let Some(resync) = peers.resync.get_mut(&peer) {
            if self.peers.log_links.allows(now, (peer, "reached")) {
                info!(cpf = peer.0, "the link to another CPF is up again: checkpoints are sent again");
            }
            *resync = Resync::After(None);
        }
    }

    /// A link to or from another CPF was lost.
    pub(super) fn peer_link_lost(&mut self, now: Instant, link: LinkId, reason: DownReason) {
        self.peers.callers.remove(&link);
        let Some(peers) = self.membership.as_mut().map(|m| &mut m.peers) else { return };
        let Some(peer) = peers.on(link) else { return };
        peers.links.remove(&peer);
        let before = peers.resync.insert(peer, Resync::From(now + RECONNECT_PEER_AFTER));
        if !matches!(before, Some(Resync::From(_))) && self.peers.log_links.allows(now, (peer, "ended")) {
            info!(cpf = peer.0, %reason, "the link to another CPF was lost and is set up again; further losses are not logged for an hour");
        }
    }

    /// A message of another CPF, such as a checkpoint.
    pub(super) fn peer_message(&mut self, now: Instant, link: LinkId, octets: &[u8]) {
        match (ToPeer::read(octets), &mut self.membership) {
            (
                Ok(ToPeer { life, from, message }),
                Some(Membership { life: present, member: Some(member), .. }),
            ) if life == *present => {
                let refused = member.refused();
                member.peer(from, message, &mut self.out);
                if member.refused() > refused && self.peers.log_checkpoints.allows(now, "state") {
                    warn!(
                        cpf = from.0,
                        "a CPF sent a checkpoint of another UE, or of another point of its log, than announced: it is not stored; the CTA counts further ones"
                    );
                }
            }
            // Or this CPF has not got the CTA's message yet that the sender acts on. The sender sends again.
            (Ok(_), _) => {
                debug!("a message of a CPF belongs to another life of its CTA");
                self.peers.callers.remove(&link);
                self.links.close(link);
            }
            // The next messages can be read all the same. If the link ended here, the sender would send all of it again on the next link,
            // each second, and the checkpoints after this message would never arrive.
            (Err(why), _) => self.unreadable_message(now, link, why),
        }
    }

    fn unreadable_message(&mut self, now: Instant, link: LinkId, why: LinkError) {
        self.peers.unreadable += 1;
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        let peer = self.peers.callers.get(&link).copied().unwrap_or(unspecified);
        if self.peers.log_unreadable.allows(now, peer.ip()) {
            let members = self.membership.iter().flat_map(|m| &m.peers.addresses);
            let numbers = members.filter(|(_, at)| at.ip() == peer.ip()).map(|(id, _)| id.0);
            let cpfs = numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
            warn!(
                %peer, cpfs,
                "a message of a CPF at this address cannot be read: {why}; its other messages are handled, and further ones are only counted ({})", Metric::CpfMessagesUnreadable.name()
            );
        }
    }

    /// Connects to CPFs whose link was lost, and sends them again what may not have arrived. Returns whether there is more to send at once.
    pub(super) fn resend_to_peers(&mut self, now: Instant) -> bool {
        let Some(Membership { member: Some(member), peers, .. }) = &mut self.membership else { return false };
        let MemberPeers { addresses, links, resync } = peers;
        let mut busy = false;
        resync.retain(|peer, resync| {
            match resync {
                Resync::From(at) => {
                    if now >= *at
                        && let Some(at) = addresses.get(peer)
                    {
                        links.entry(*peer).or_insert_with(|| self.links.connect(now, *at));
                    }
                }
                Resync::After(ue) => {
                    if links.get(peer).is_none_or(|link| self.links.waiting(*link) > WAITING_MAX) {
                        return true;
                    }
                    *ue = self.watchdog.during(|| member.peer_reconnected(*peer, *ue, &mut self.out));
                    busy |= ue.is_some();
                    return ue.is_some();
                }
            }
            true
        });
        busy
    }

    /// Sends the member's messages to other CPFs.
    pub(super) fn send_to_peers(&mut self, now: Instant) {
        let Some(m) = &mut self.membership else { return };
        for (to, message) in self.out.peers.drain(..) {
            // A CPF that is no member any more: the CTA names another receiver of the UE's state.
            let Some(at) = m.peers.addresses.get(&to) else { continue };
            let link = *m.peers.links.entry(to).or_insert_with(|| self.links.connect(now, *at));
            self.frame.clear();
            ToPeer { life: m.life, from: m.id, message }.write(&mut self.frame);
            self.links.send(link, &self.frame);
        }
    }
}
