//! The UPF's end of the links by which N4 of a unit goes through shared memory. The primary CTA connects, and its first frame is the address of its SMF
//! on N4; each further frame, both ways, is a PFCP message. An SMF of this unit that has no link is reached over a Unix socket.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_link::{Event, LinkEvents, LinkId, Links};
use whimbrel_resilience::link::{Hello, LinkRole};

use super::recent::Recent;
use super::rejected_peers::RejectedPeers;
use super::{settings, share_memory};
use crate::function::UnitFunction;

/// Octets that may wait for a CTA that takes nothing. What does not fit is repeated by PFCP.
const WAITING_OCTETS_MAX: usize = 4 << 20;

/// A CTA that has connected.
struct Caller {
    link: LinkId,
    /// Its SMF, once it has named it.
    smf: Option<SocketAddr>,
}

/// The links of a UPF.
pub struct UpfLinks {
    links: Links,
    events: LinkEvents,
    callers: Vec<Caller>,
    rejected: RejectedPeers,
    /// Messages that were not sent because too much waits.
    unsent: u64,
    recent: Recent<SocketAddr>,
    /// Messages that lost CTAs may not have taken.
    unsettled: Vec<(SocketAddr, Vec<u8>)>,
}

impl UpfLinks {
    /// Takes links of the CTAs of this unit, if it shares memory with them.
    pub fn open(own: &UnitFunction) -> Option<Self> {
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let opened = settings(at, LinkRole::Upf, Some(&own.directory.key_file()))
            .and_then(|settings| Links::open(settings).map_err(|e| e.to_string()))
            .and_then(|mut links| match share_memory(&mut links) {
                false => Ok(None),
                true => {
                    let at = links.local_addr().ok_or("the system does not say where it listens")?;
                    own.directory.announce_upf_link(at).map_err(|e| e.to_string())?;
                    Ok(Some(links))
                }
            });
        match opened {
            Ok(links) => links.map(Self::over),
            Err(e) => {
                warn!("N4 goes over a Unix socket: no link can be taken: {e}");
                None
            }
        }
    }

    pub(super) fn over(links: Links) -> Self {
        let (events, callers) = (LinkEvents::default(), Vec::new());
        let (rejected, recent, unsettled) = (RejectedPeers::default(), Recent::default(), Vec::new());
        Self { links, events, callers, rejected, unsent: 0, recent, unsettled }
    }

    /// Hands what has come to `each`, with the SMF that sent it. Returns whether anything came.
    pub fn receive(&mut self, now: Instant, mut each: impl FnMut(SocketAddr, &[u8])) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            match event {
                Event::Up { link, peer, hello, .. } => self.link_up(now, link, peer, hello),
                Event::Frame { link, octets } => {
                    let Some(caller) = self.callers.iter().find(|c| c.link == link) else { continue };
                    match caller.smf {
                        Some(smf) => {
                            self.recent.came(smf, octets);
                            each(smf, octets);
                        }
                        None => self.first_frame(now, link, octets),
                    }
                }
                Event::Down { link, .. } => {
                    let smf = self.callers.iter().find(|c| c.link == link).and_then(|c| c.smf);
                    self.callers.retain(|c| c.link != link);
                    smf.iter().for_each(|smf| self.lost(now, *smf));
                }
                Event::Rejected { peer, reason } => {
                    if self.rejected.allows(now, peer, reason.label()) {
                        warn!(%peer, %reason, "a link for N4 was rejected; further ones from this address are only counted");
                    }
                }
            }
        }
        let came = !events.is_empty();
        self.events = events;
        came
    }

    fn link_up(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &[u8]) {
        let (label, why) = match Hello::from_octets(hello) {
            Ok(Hello { role: LinkRole::Cta, .. }) => return self.callers.push(Caller { link, smf: None }),
            Ok(_) => ("role", "it is no CTA".to_owned()),
            Err(e) => (e.label(), e.to_string()),
        };
        if self.rejected.allows(now, peer, label) {
            warn!(%peer, "a link for N4 is refused, so N4 goes over a Unix socket: {why}");
        }
        self.links.close(link);
    }

    /// The first frame of a link names its SMF, which has no other link from then on: a CTA that has taken over has the SMF's address.
    fn first_frame(&mut self, now: Instant, link: LinkId, octets: &[u8]) {
        let smf = std::str::from_utf8(octets).ok().and_then(|text| text.parse().ok());
        let Some(smf) = smf else {
            warn!("a link for N4 is closed: its first message is no address");
            self.callers.retain(|c| c.link != link);
            return self.links.close(link);
        };
        for former in self.callers.extract_if(.., |c| c.smf == Some(smf)) {
            self.links.close(former.link);
        }
        self.lost(now, smf);
        self.callers.iter_mut().filter(|c| c.link == link).for_each(|c| c.smf = Some(smf));
        info!(%smf, "N4 with an SMF goes over its link from now on");
    }

    /// The CTA of an SMF is lost, or another one is in its place.
    fn lost(&mut self, now: Instant, smf: SocketAddr) {
        let again = self.recent.take(now, smf);
        self.unsettled.extend(again.into_iter().map(|octets| (smf, octets)));
    }

    /// Messages that lost CTAs may not have taken: they are to be sent again.
    pub fn take_unsettled(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.unsettled)
    }

    /// Sends a message to an SMF. Returns whether it has a link.
    pub fn send(&mut self, now: Instant, to: SocketAddr, octets: &[u8]) -> bool {
        let Some(caller) = self.callers.iter().find(|c| c.smf == Some(to)) else { return false };
        if self.links.waiting(caller.link) + octets.len() > WAITING_OCTETS_MAX {
            self.unsent += 1;
        } else {
            self.recent.sent(now, to, octets);
            self.links.send(caller.link, octets);
        }
        true
    }

    /// Messages that were not sent because a CTA takes nothing.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        self.links.flush();
    }

    /// What to wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.links.fd()
    }

    /// When [`Self::receive`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.links.next_deadline()
    }
}
