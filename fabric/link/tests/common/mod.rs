//! Links on loopback, driven in turn by one thread, with time that passes when the test says so.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_link::{DownReason, Event, Events, LinkId, Links, Settings};

/// Turns until something that must happen has; the kernel needs a few for loopback.
const TURNS: usize = 20_000;

/// What happened to one end, as owned values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkReport {
    Up(LinkId, Vec<u8>, bool),
    Frame(LinkId, Vec<u8>),
    Down(LinkId, DownReason),
    TurnedAway(DownReason),
}

/// One process.
pub(crate) struct End {
    pub(crate) links: Links,
    pub(crate) told: Vec<LinkReport>,
    pub(crate) now: Instant,
    events: Events,
}

impl End {
    pub(crate) fn open(settings: Settings) -> Self {
        let links = Links::open(settings).expect("links on loopback");
        Self { links, told: Vec::new(), now: Instant(1), events: Events::default() }
    }

    /// One that can be called.
    pub(crate) fn listening(change: impl FnOnce(&mut Settings)) -> (Self, SocketAddr) {
        let mut settings = Settings::new(b"the listener".to_vec());
        settings.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(&mut settings);
        let end = Self::open(settings);
        let at = end.links.local_addr().expect("an address");
        (end, at)
    }

    pub(crate) fn calling(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(b"the caller".to_vec());
        change(&mut settings);
        Self::open(settings)
    }

    pub(crate) fn turn(&mut self) {
        self.links.drain(self.now, &mut self.events);
        for event in self.events.iter() {
            self.told.push(match event {
                Event::Up { link, hello, we_called, .. } => LinkReport::Up(link, hello.to_vec(), we_called),
                Event::Frame { link, octets } => LinkReport::Frame(link, octets.to_vec()),
                Event::Down { link, reason } => LinkReport::Down(link, reason),
                Event::TurnedAway { reason, .. } => LinkReport::TurnedAway(reason),
            });
        }
        self.links.flush();
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(crate) fn ups(&self) -> Vec<LinkId> {
        self.told
            .iter()
            .filter_map(|t| if let LinkReport::Up(link, ..) = t { Some(*link) } else { None })
            .collect()
    }

    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        self.told
            .iter()
            .filter_map(|t| if let LinkReport::Frame(_, f) = t { Some(f.clone()) } else { None })
            .collect()
    }

    pub(crate) fn ended(&self) -> Vec<DownReason> {
        let ended = |t: &LinkReport| match t {
            LinkReport::Down(_, reason) | LinkReport::TurnedAway(reason) => Some(*reason),
            _ => None,
        };
        self.told.iter().filter_map(ended).collect()
    }
}

/// Gives all ends their turns until it is done.
pub(crate) fn until(ends: &mut [&mut End], done: impl Fn(&[&mut End]) -> bool) {
    for turn in 0..TURNS {
        if done(ends) {
            return;
        }
        ends.iter_mut().for_each(|end| end.turn());
        if turn > 1000 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    let told: Vec<_> = ends.iter().map(|e| &e.told).collect();
    panic!("it does not come about: {told:?}");
}

/// A link between a caller and a listener: the names that both give it.
pub(crate) fn linked(caller: &mut End, listener: &mut End, at: SocketAddr) -> (LinkId, LinkId) {
    let link = caller.links.connect(caller.now, at);
    let (before_c, before_l) = (caller.ups().len(), listener.ups().len());
    until(&mut [caller, listener], |e| e[0].ups().len() > before_c && e[1].ups().len() > before_l);
    (link, *listener.ups().last().expect("up"))
}

/// What a peer that is no `Links` says, and how that ends; it closes at once if told to.
pub(crate) fn says(listener: &mut End, at: SocketAddr, octets: &[u8], then_closes: bool) -> DownReason {
    let before = listener.ended().len();
    let mut stranger = TcpStream::connect(at).expect("a connection");
    stranger.write_all(octets).expect("written");
    if then_closes {
        stranger.shutdown(std::net::Shutdown::Write).expect("closed");
    }
    until(&mut [listener], |e| e[0].ended().len() > before);
    // Whatever was said to it can be read, to the end.
    let mut rest = Vec::new();
    let _ = stranger.read_to_end(&mut rest);
    *listener.ended().last().expect("ended")
}
