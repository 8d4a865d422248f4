//! One process's end of its links: it takes what comes, and sleeps as the program does.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant as Clock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whimbrel_ids::Instant;
use whimbrel_link::{ClusterKey, Event, LinkEvents, LinkId, LinkSettings, Links, Spin};
use whimbrel_resilience::link::{Hello, LinkRole};

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// The settings of both ends.
pub(super) fn settings() -> LinkSettings {
    // Network functions take links of CTAs alone.
    let mut settings = LinkSettings::new(Hello::own(LinkRole::Cta).to_octets());
    settings.keys = vec![ClusterKey::new([1; 32])];
    settings
}

/// What a look at the links has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Nothing,
    Something,
    /// A link has ended.
    Ended,
}

/// Sleeps until something comes.
pub(super) fn sleep<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>) {
    sleep_for(SLEEP_MAX, descriptors);
}

fn sleep_for<'a>(wait: Duration, descriptors: impl Iterator<Item = BorrowedFd<'a>>) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
    let mut descriptors: Vec<_> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    // An interrupted wait is a short one.
    let _ = poll(&mut descriptors, Some(&timeout));
}

pub(super) struct End {
    pub(super) links: Links,
    events: LinkEvents,
    begun: Clock,
    spin: Spin,
    /// How often it has slept.
    pub(super) sleeps: u64,
}

impl End {
    /// `spin`: how long it looks for the next message before it sleeps.
    pub(super) fn new(links: Links, spin: Duration) -> Self {
        Self { links, events: LinkEvents::default(), begun: Clock::now(), spin: Spin::new(spin), sleeps: 0 }
    }

    pub(super) fn now(&self) -> Instant {
        Instant(1) + self.begun.elapsed()
    }

    /// Takes the frames that are there.
    pub(super) fn receive(
        &mut self,
        mut each: impl FnMut(&mut Links, LinkId, &[u8]) -> io::Result<()>,
    ) -> io::Result<Came> {
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(self.now(), &mut events);
        let mut came = Came::Nothing;
        for event in events.iter() {
            match event {
                Event::Frame { link, octets } => {
                    came = Came::Something;
                    each(&mut self.links, link, octets)?;
                }
                Event::Down { .. } => came = Came::Ended,
                Event::Up { .. } | Event::Rejected { .. } => {}
            }
        }
        self.events = events;
        Ok(came)
    }

    /// Notes that something has come.
    pub(super) fn busy(&mut self) {
        self.spin.came(self.now());
    }

    /// Looks again, or sleeps until something comes: over a link, or on this socket.
    pub(super) fn wait(&mut self, beside: Option<&UdpSocket>) {
        let now = self.now();
        if self.spin.looks_again(now) {
            std::hint::spin_loop();
            return;
        }
        let due = self.links.next_deadline().map(|due| due.since(now));
        let wait = due.unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
        if !wait.is_zero() {
            self.sleeps += 1;
            sleep_for(wait, std::iter::once(self.links.fd()).chain(beside.map(AsFd::as_fd)));
        }
    }
}
