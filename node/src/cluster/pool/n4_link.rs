//! The CTA's end of the link to the UPF of its unit, by which N4 goes through shared memory ([`UpfLinks`](crate::cluster::UpfLinks) is the other
//! end). Without the link N4 goes over a Unix socket: so both ends may start, die, and be of other versions as they like.

use std::net::SocketAddr;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_link::{Event, LinkId};
use whimbrel_resilience::link::{Hello, LinkRole};

use super::{CpfPool, PoolEvent};
use crate::cluster::recent::Recent;
use crate::function::UnitDirectory;

/// Between two attempts to reach the UPF: meanwhile N4 goes over a Unix socket.
const RETRY: Duration = Duration::from_millis(100);
/// Octets that may wait for a UPF that takes nothing, as many as wait in a socket of N3. What does not fit is repeated by PFCP.
const WAITING_OCTETS_MAX: usize = 4 << 20;

/// What came of a message for the UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentToUpf {
    /// The link has it.
    Sent,
    /// There is no link.
    NoLink,
    /// The UPF takes nothing, and too much waits for it.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum N4LinkState {
    /// There is no link; the next attempt is at that time.
    Down(Instant),
    /// The UPF at this address is connected to.
    Calling(LinkId, SocketAddr),
    /// The link is up.
    Up(LinkId),
}

/// The link to the UPF.
pub(super) struct N4Link {
    /// Where the UPF writes the address of its links.
    directory: UnitDirectory,
    /// The SMF's address on N4, by which the UPF knows it.
    smf: SocketAddr,
    state: N4LinkState,
    /// A UPF whose version of the link messages differs, by its address: it is not connected to again.
    refused: Option<SocketAddr>,
    /// Messages that came over the link.
    received: u64,
    recent: Recent<()>,
}

impl CpfPool {
    /// N4 with the UPF of this unit goes over a link from now on, as soon as there is one. `smf`: the SMF's address on N4.
    pub fn link_upf(&mut self, directory: UnitDirectory, smf: SocketAddr) {
        let state = N4LinkState::Down(Instant::ZERO);
        let (refused, recent) = (None, Recent::default());
        self.n4_link = Some(N4Link { directory, smf, state, refused, received: 0, recent });
    }

    /// Sends a PFCP message to the UPF of this unit.
    pub fn send_pfcp(&mut self, now: Instant, octets: &[u8]) -> SentToUpf {
        let Some(N4Link { state: N4LinkState::Up(link), recent, .. }) = &mut self.n4_link else {
            return SentToUpf::NoLink;
        };
        let link = *link;
        if self.links.waiting(link) + octets.len() > WAITING_OCTETS_MAX {
            return SentToUpf::Full;
        }
        recent.sent(now, (), octets);
        self.links.send(link, octets);
        SentToUpf::Sent
    }

    /// Messages that came from the UPF over its link.
    pub fn received_from_upf(&self) -> u64 {
        self.n4_link.as_ref().map_or(0, |n4| n4.received)
    }

    /// When the UPF is connected to next.
    pub(super) fn n4_link_deadline(&self) -> Option<Instant> {
        match self.n4_link.as_ref()?.state {
            N4LinkState::Down(at) => Some(at),
            N4LinkState::Calling(..) | N4LinkState::Up(_) => None,
        }
    }

    /// Connects to the UPF, if that is due and it takes links.
    pub(super) fn call_upf(&mut self, now: Instant) {
        let Some(n4) = &mut self.n4_link else { return };
        if !matches!(n4.state, N4LinkState::Down(at) if at <= now) {
            return;
        }
        n4.state = match n4.directory.upf_link_at().filter(|at| n4.refused != Some(*at)) {
            Some(at) => N4LinkState::Calling(self.links.connect(now, at), at),
            None => N4LinkState::Down(now + RETRY),
        };
    }

    /// Takes an event if it is of the link to the UPF. Returns whether it is.
    pub(super) fn n4_event(&mut self, now: Instant, event: &Event<'_>) -> bool {
        let Some(n4) = &mut self.n4_link else { return false };
        let (N4LinkState::Calling(own, _) | N4LinkState::Up(own)) = n4.state else { return false };
        match (event, n4.state) {
            (Event::Up { link, hello, .. }, N4LinkState::Calling(_, at)) if *link == own => {
                let refusal = match Hello::from_octets(hello) {
                    Ok(Hello { role: LinkRole::Upf, .. }) => None,
                    Ok(_) => Some("it is no UPF".to_owned()),
                    Err(e) => Some(e.to_string()),
                };
                if let Some(why) = refusal {
                    warn!("N4 with the UPF of this unit goes over a Unix socket: {why}");
                    (n4.refused, n4.state) = (Some(at), N4LinkState::Down(now + RETRY));
                    self.links.close(own);
                    return true;
                }
                info!("N4 with the UPF of this unit goes over its link from now on");
                n4.state = N4LinkState::Up(own);
                self.links.send(own, n4.smf.to_string().as_bytes());
                true
            }
            (Event::Frame { link, octets }, N4LinkState::Up(_)) if *link == own => {
                n4.received += 1;
                n4.recent.came((), octets);
                self.pool_events.push(PoolEvent::FromUpf(octets.to_vec()));
                true
            }
            (Event::Down { link, reason }, state) if *link == own => {
                if matches!(state, N4LinkState::Up(_)) {
                    warn!(%reason, "the link to the UPF of this unit was lost: N4 goes over a Unix socket until there is another one");
                    self.pool_events.push(PoolEvent::ForUpfAgain(n4.recent.take(now, ())));
                }
                n4.state = N4LinkState::Down(now + RETRY);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ids::Seid;
    use whimbrel_link::{LinkSettings, Links};
    use whimbrel_pfcp::Message;
    use whimbrel_pfcp::msg::SessionDeletionRequest;
    use whimbrel_shm::{Made, Pool as Memory, create};

    use super::*;
    use crate::clock;
    use crate::cluster::UpfLinks;
    use crate::cluster::tests::pool_of_pair;

    const SMF: &str = "127.0.0.1:8805";

    /// A CTA and its unit's directory. Their areas of the memory: the CTA has the first, the UPF the second.
    struct Unit {
        folder: tempfile::TempDir,
        made: Made,
        cta: CpfPool,
    }

    impl Unit {
        fn new() -> Self {
            let (folder, made) = (tempfile::tempdir().unwrap(), create().unwrap());
            let mut cta = pool_of_pair();
            cta.links.share(area(&made, 0)).unwrap();
            let mut unit = Self { folder, made, cta };
            let directory = unit.directory();
            unit.cta.link_upf(directory, SMF.parse().unwrap());
            unit
        }

        fn directory(&self) -> UnitDirectory {
            UnitDirectory::of(self.folder.path())
        }

        /// A UPF that begins with this hello.
        fn upf(&self, hello: Vec<u8>) -> UpfLinks {
            let mut settings = LinkSettings::new(hello);
            settings.listen = Some(([127, 0, 0, 1], 0).into());
            let mut links = Links::open(settings).unwrap();
            links.share(area(&self.made, 1)).unwrap();
            self.directory().announce_upf_link(links.local_addr().unwrap()).unwrap();
            UpfLinks::over(links)
        }

        /// Lets both work until the CTA has a link, or none.
        fn until(&mut self, upf: Option<&mut UpfLinks>, linked: bool) {
            let mut upf = upf;
            for _ in 0..10_000 {
                self.turn(upf.as_deref_mut());
                if matches!(&self.cta.n4_link, Some(n4) if matches!(n4.state, N4LinkState::Up(_)) == linked) {
                    return;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            panic!("the link is not {linked}");
        }

        /// Lets both work until so many messages have come at the UPF, and at the CTA.
        fn messages(&mut self, upf: &mut UpfLinks, at_upf: usize, at_cta: usize) {
            let mut came = (0, 0);
            for _ in 0..10_000 {
                let (of_cta, of_upf) = self.turn(Some(upf));
                came = (came.0 + of_cta.len(), came.1 + of_upf.len());
                if came == (at_upf, at_cta) {
                    return;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            panic!("{came:?} messages came, not {at_upf} and {at_cta}");
        }

        /// Returns what has come: at the UPF, with the sender, and at the CTA.
        #[allow(clippy::type_complexity, reason = "a test compares it at once")]
        fn turn(&mut self, upf: Option<&mut UpfLinks>) -> (Vec<(String, Vec<u8>)>, Vec<Vec<u8>>) {
            let mut at_upf = Vec::new();
            if let Some(upf) = upf {
                upf.receive(clock::now(), |smf, octets| at_upf.push((smf.to_string(), octets.to_vec())));
                upf.flush();
            }
            let of_upf = |event| if let PoolEvent::FromUpf(octets) = event { Some(octets) } else { None };
            let at_cta = self.cta.turn(clock::now()).into_iter().filter_map(of_upf).collect();
            self.cta.flush();
            (at_upf, at_cta)
        }
    }

    fn area(made: &Made, function: usize) -> Memory {
        made.open(function).unwrap()
    }

    fn hello() -> Vec<u8> {
        Hello::own(LinkRole::Upf).to_octets()
    }

    #[test]
    fn n4_goes_through_shared_memory_while_there_is_a_link() {
        let mut unit = Unit::new();
        unit.turn(None);
        assert_eq!(unit.cta.send_pfcp(clock::now(), b"request"), SentToUpf::NoLink);
        let mut upf = unit.upf(hello());
        unit.until(Some(&mut upf), true);
        for _ in 0..50 {
            unit.turn(Some(&mut upf)); // the ends agree on their rings
        }
        assert_eq!(unit.cta.links.shared(), 1);
        let written = unit.cta.links.counters().writes;
        assert_eq!(unit.cta.send_pfcp(clock::now(), b"request"), SentToUpf::Sent);
        unit.cta.flush();
        let (at_upf, _) = unit.turn(Some(&mut upf));
        assert_eq!(at_upf, [(SMF.to_owned(), b"request".to_vec())]);
        assert!(upf.send(clock::now(), SMF.parse().unwrap(), b"answer"));
        assert!(
            !upf.send(clock::now(), "127.0.0.1:8806".parse().unwrap(), b"answer"),
            "an SMF without a link"
        );
        upf.flush();
        assert_eq!(unit.turn(Some(&mut upf)).1, [b"answer"]);
        assert_eq!(unit.cta.links.counters().writes, written, "no socket carried it");
        // The UPF dies, and its replica takes links elsewhere.
        drop(upf);
        unit.until(None, false);
        assert_eq!(unit.cta.send_pfcp(clock::now(), b"request"), SentToUpf::NoLink);
        let mut replica = unit.upf(hello());
        unit.until(Some(&mut replica), true);
        assert_eq!(unit.cta.send_pfcp(clock::now(), b"again"), SentToUpf::Sent);
        let came = (0..100).find_map(|_| {
            unit.cta.flush();
            unit.turn(Some(&mut replica)).0.pop()
        });
        assert_eq!(came, Some((SMF.to_owned(), b"again".to_vec())));
    }

    #[test]
    fn a_upf_of_another_version_is_not_connected_to_again() {
        let mut unit = Unit::new();
        let mut other = hello();
        other[9] ^= 1;
        let mut upf = unit.upf(other);
        for _ in 0..10_000 {
            unit.turn(Some(&mut upf));
            if unit.cta.n4_link.as_ref().is_some_and(|n4| n4.refused.is_some()) {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(unit.cta.send_pfcp(clock::now(), b"request"), SentToUpf::NoLink);
        unit.cta.call_upf(clock::now() + 2 * RETRY);
        let n4 = unit.cta.n4_link.as_ref().unwrap();
        assert!(n4.refused.is_some() && matches!(n4.state, N4LinkState::Down(_)), "{:?}", n4.state);
        let mut own = unit.upf(hello());
        unit.until(Some(&mut own), true);
    }

    #[test]
    fn a_upf_that_takes_nothing_holds_n4_back_and_its_messages_arrive_in_order_when_it_goes_on() {
        let mut unit = Unit::new();
        let mut upf = unit.upf(hello());
        unit.until(Some(&mut upf), true);
        for _ in 0..50 {
            unit.turn(Some(&mut upf));
        }
        let message = |n: u32| [n.to_be_bytes().to_vec(), vec![0; 1996]].concat();
        let sent = (0..10_000)
            .take_while(|n| unit.cta.send_pfcp(clock::now(), &message(*n)) == SentToUpf::Sent)
            .count();
        assert!((WAITING_OCTETS_MAX / 2000..WAITING_OCTETS_MAX / 2000 + 300).contains(&sent), "{sent}");
        // The CTA itself is not held up.
        assert_eq!(unit.cta.send_pfcp(clock::now(), &message(0)), SentToUpf::Full);
        assert_eq!(unit.turn(None), (vec![], vec![]));
        let mut came = Vec::new();
        for _ in 0..1000 {
            came.extend(unit.turn(Some(&mut upf)).0);
        }
        assert_eq!(came.len(), sent);
        assert!((0u32..).zip(&came).all(|(n, (_, octets))| *octets == message(n)));
    }

    fn request(sequence: u32) -> Vec<u8> {
        Message::from(SessionDeletionRequest::default()).to_octets(Some(Seid(1)), sequence)
    }

    #[test] // else they would wait for T1 (TS 29.244 §6.4), where a datagram waits in the socket of the UPF's replica
    fn requests_that_a_lost_upf_has_not_answered_go_again_at_once() {
        let mut unit = Unit::new();
        let mut upf = unit.upf(hello());
        unit.until(Some(&mut upf), true);
        for sequence in 1..=3 {
            assert_eq!(unit.cta.send_pfcp(clock::now(), &request(sequence)), SentToUpf::Sent);
        }
        unit.cta.flush();
        unit.messages(&mut upf, 3, 0);
        assert!(upf.send(clock::now(), SMF.parse().unwrap(), &request(2)));
        unit.messages(&mut upf, 0, 1);
        drop(upf);
        let again = crate::cluster::tests::until(&mut unit.cta, |event| match event {
            PoolEvent::ForUpfAgain(messages) => Some(messages),
            _ => None,
        });
        assert_eq!(again, [request(1), request(3)]);
    }

    #[test] // as in the socket that the next CTA takes over
    fn what_a_lost_cta_may_not_have_taken_goes_again_at_once() {
        let mut unit = Unit::new();
        let mut upf = unit.upf(hello());
        unit.until(Some(&mut upf), true);
        unit.cta.send_pfcp(clock::now(), &request(9));
        unit.messages(&mut upf, 1, 0); // so that the UPF knows the SMF
        assert!(upf.send(clock::now(), SMF.parse().unwrap(), &request(1)));
        assert!(upf.take_unsettled().is_empty());
        unit.cta = pool_of_pair();
        let again = (0..10_000).find_map(|_| {
            std::thread::sleep(Duration::from_micros(200));
            upf.receive(clock::now(), |_, _| {});
            Some(upf.take_unsettled()).filter(|again| !again.is_empty())
        });
        assert_eq!(again, Some(vec![(SMF.parse().unwrap(), request(1))]));
    }

    #[test] // a CTA that hangs and is replaced: its link is closed when its successor has named the same SMF
    fn an_smf_has_one_link_and_the_one_that_named_it_last() {
        let mut unit = Unit::new();
        let mut upf = unit.upf(hello());
        unit.until(Some(&mut upf), true);
        unit.cta.send_pfcp(clock::now(), &request(1));
        unit.messages(&mut upf, 1, 0); // the UPF knows the SMF
        let mut successor = pool_of_pair();
        successor.link_upf(unit.directory(), SMF.parse().unwrap());
        std::mem::swap(&mut unit.cta, &mut successor);
        unit.until(Some(&mut upf), true);
        for _ in 0..100 {
            unit.turn(Some(&mut upf));
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(upf.send(clock::now(), SMF.parse().unwrap(), b"report"));
        let came = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_micros(200));
            unit.turn(Some(&mut upf)).1.pop()
        });
        assert_eq!(came, Some(b"report".to_vec()));
        std::mem::swap(&mut unit.cta, &mut successor);
        unit.until(None, false);
    }
}
