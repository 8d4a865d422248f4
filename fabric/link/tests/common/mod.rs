//! Links on loopback, driven in turn by one thread, with time that passes when the test says so.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_link::{DownReason, Event, LinkEvents, LinkId, LinkSettings, Links};

/// Turns within which an expected event must happen; the kernel needs a few for loopback.
const TURNS: usize = 20_000;

/// The events of one end, as owned values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkReport {
    Up(LinkId, Vec<u8>, bool),
    Frame(LinkId, Vec<u8>),
    Down(LinkId, DownReason),
    Rejected(DownReason),
}

/// An end of a link, as a process of its own.
pub(crate) struct End {
    pub(crate) links: Links,
    pub(crate) reports: Vec<LinkReport>,
    pub(crate) now: Instant,
    events: LinkEvents,
}

impl End {
    pub(crate) fn open(settings: LinkSettings) -> Self {
        let links = Links::open(settings).expect("links on loopback");
        Self { links, reports: Vec::new(), now: Instant(1), events: LinkEvents::default() }
    }

    /// An end with a listener.
    pub(crate) fn listening(change: impl FnOnce(&mut LinkSettings)) -> (Self, SocketAddr) {
        let mut settings = LinkSettings::new(b"the listener".to_vec());
        settings.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(&mut settings);
        let end = Self::open(settings);
        let at = end.links.local_addr().expect("an address");
        (end, at)
    }

    pub(crate) fn calling(change: impl FnOnce(&mut LinkSettings)) -> Self {
        let mut settings = LinkSettings::new(b"the caller".to_vec());
        change(&mut settings);
        Self::open(settings)
    }

    pub(crate) fn turn(&mut self) {
        self.links.drain(self.now, &mut self.events);
        for event in self.events.iter() {
            self.reports.push(match event {
                Event::Up { link, hello, we_called, .. } => LinkReport::Up(link, hello.to_vec(), we_called),
                Event::Frame { link, octets } => LinkReport::Frame(link, octets.to_vec()),
                Event::Down { link, reason } => LinkReport::Down(link, reason),
                Event::Rejected { reason, .. } => LinkReport::Rejected(reason),
            });
        }
        self.links.flush();
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(crate) fn ups(&self) -> Vec<LinkId> {
        self.reports
            .iter()
            .filter_map(|t| if let LinkReport::Up(link, ..) = t { Some(*link) } else { None })
            .collect()
    }

    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        self.reports
            .iter()
            .filter_map(|t| if let LinkReport::Frame(_, f) = t { Some(f.clone()) } else { None })
            .collect()
    }

    pub(crate) fn ended(&self) -> Vec<DownReason> {
        let ended = |t: &LinkReport| match t {
            LinkReport::Down(_, reason) | LinkReport::Rejected(reason) => Some(*reason),
            _ => None,
        };
        self.reports.iter().filter_map(ended).collect()
    }
}

/// Gives all ends their turns, which take some time each, until a condition holds.
pub(crate) fn until(ends: &mut [&mut End], done: impl Fn(&[&mut End]) -> bool) {
    for turn in 0..TURNS {
        if done(ends) {
            return;
        }
        for end in ends.iter_mut() {
            end.pass(Duration::from_micros(20));
            end.turn();
        }
        if turn > 1000 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    let reports: Vec<_> = ends.iter().map(|e| &e.reports).collect();
    panic!("the condition does not hold in time: {reports:?}");
}

/// A link between a caller and a listener: its numbers at both ends.
pub(crate) fn linked(caller: &mut End, listener: &mut End, at: SocketAddr) -> (LinkId, LinkId) {
    let link = caller.links.connect(caller.now, at);
    let (before_c, before_l) = (caller.ups().len(), listener.ups().len());
    until(&mut [caller, listener], |e| e[0].ups().len() > before_c && e[1].ups().len() > before_l);
    (link, *listener.ups().last().expect("up"))
}

/// Sends octets as a peer that is not a `Links`, and closes at once if `then_closes`. Returns why the link ended.
pub(crate) fn send_raw(listener: &mut End, at: SocketAddr, octets: &[u8], then_closes: bool) -> DownReason {
    let before = listener.ended().len();
    let mut peer = TcpStream::connect(at).expect("a connection");
    peer.write_all(octets).expect("written");
    if then_closes {
        peer.shutdown(std::net::Shutdown::Write).expect("closed");
    }
    until(&mut [listener], |e| e[0].ended().len() > before);
    // What was sent to it can be read, to the end.
    let mut rest = Vec::new();
    let _ = peer.read_to_end(&mut rest);
    *listener.ended().last().expect("ended")
}
