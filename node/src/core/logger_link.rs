//! A UPF's end of the link to its packet logger: N4, the state for the replica, and which UPF serves (docs/design/packet-logger.md).

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_link::{ClusterKey, DownReason, Event, LinkEvents, LinkId, LinkSettings, Links};
use whimbrel_pfcp::ie::RecoveryTimeStamp;
use whimbrel_user::logger::{LoggerFrame, LoggerHello, StateRecord};
use whimbrel_user_io::LoggerEnd;

use crate::config::Config;

/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);
/// How long a link may be silent: a host that is gone sends no end.
pub const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Octets that may wait on a link: the state of 500,000 sessions.
pub const QUEUE_OCTETS_MAX: usize = 512 << 20;
/// Octets of records in one frame, at most, but for a single longer record.
const RECORDS_OCTETS: usize = 128 << 10;

/// The settings of a link with this hello. Errors: one sentence.
pub fn settings(hello: Vec<u8>, key_file: Option<&Path>) -> Result<LinkSettings, String> {
    let mut settings = LinkSettings::new(hello);
    if let Some(file) = key_file {
        settings.keys = ClusterKey::read(file).map_err(|e| e.to_string())?;
    }
    settings.silence_max = SILENCE_MAX;
    settings.queue_octets_max = QUEUE_OCTETS_MAX;
    Ok(settings)
}

/// The link to the packet logger.
pub struct LoggerLink {
    logger: SocketAddr,
    settings: LinkSettings,
    hello: LoggerHello,
    links: Links,
    link: Option<LinkId>,
    events: LinkEvents,
    retry_at: Instant,
    /// The logger has sent a frame over this link: it takes this UPF.
    taken: bool,
    /// The log has that it does not.
    refusal_logged: bool,
    end: LoggerEnd,
}

impl LoggerLink {
    /// Of this configuration, whose packets name the token. Errors: one sentence.
    pub fn open(c: &Config, logger: SocketAddr, configuration: u64, token: u64) -> Result<Self, String> {
        let hello = LoggerHello { configuration, token, term: 0 };
        let settings = settings(hello.to_octets(), c.packet_logger.key_file.as_deref())?;
        let links = Links::open(settings.clone()).map_err(|e| e.to_string())?;
        let end = LoggerEnd::open(logger, token)
            .map_err(|e| format!("packets cannot be exchanged with the packet logger {logger}: {e}"))?;
        let events = LinkEvents::default();
        let retry_at = Instant::ZERO;
        let (taken, refusal_logged) = (false, false);
        Ok(Self { logger, settings, hello, links, link: None, events, retry_at, taken, refusal_logged, end })
    }

    /// The way of the packets. Errors: those of dup(2).
    pub fn end(&self) -> std::io::Result<LoggerEnd> {
        self.end.try_clone()
    }

    /// Where the logger is.
    pub fn logger(&self) -> SocketAddr {
        self.logger
    }

    /// What has come; connects, and connects again.
    pub fn receive(&mut self, now: Instant) -> Vec<LoggerFrame> {
        if self.link.is_none() && self.retry_at <= now {
            self.retry_at = now + RETRY;
            self.link = Some(self.links.connect(now, self.logger));
        }
        self.links.drain(now, &mut self.events);
        let mut frames = Vec::new();
        for event in self.events.iter() {
            match event {
                Event::Up { .. } => {}
                Event::Frame { octets, .. } => {
                    if !std::mem::replace(&mut self.taken, true) {
                        self.refusal_logged = false;
                        info!("the packet logger {} is connected", self.logger);
                    }
                    match LoggerFrame::read(octets) {
                        Some(LoggerFrame::SendAddress) => self.end.show_address(),
                        Some(frame) => frames.push(frame),
                        None => warn!("the packet logger sent a frame that this version does not know"),
                    }
                }
                Event::Down { link, reason } if Some(link) == self.link => {
                    self.link = None;
                    if std::mem::take(&mut self.taken) {
                        warn!("the packet logger {} is lost, and connected again: {reason}", self.logger);
                    } else if !std::mem::replace(&mut self.refusal_logged, true) {
                        warn!(
                            "the packet logger {} cannot be used yet: {}; this UPF tries again until it can",
                            self.logger,
                            not_taken(reason)
                        );
                    }
                }
                Event::Down { .. } | Event::Rejected { .. } => {}
            }
        }
        if let Some(LoggerFrame::Serve { term }) =
            frames.iter().rev().find(|f| matches!(f, LoggerFrame::Serve { .. }))
        {
            self.serves_in(*term);
        }
        frames
    }

    /// From now on it serves in this term, which the logger is to know when it connects again.
    fn serves_in(&mut self, term: u64) {
        self.hello.term = term;
        self.settings.hello = self.hello.to_octets();
        self.links.set_hello(self.settings.hello.clone());
    }

    /// Sends a frame, at the latest with [`Self::flush`].
    pub fn send(&mut self, frame: &LoggerFrame) {
        if let Some(link) = self.link {
            self.links.send(link, &frame.to_octets());
        }
    }

    /// Sends the whole state.
    pub fn send_state(&mut self, (seed, recovery, records): (u64, RecoveryTimeStamp, Vec<StateRecord>)) {
        self.send(&LoggerFrame::State { seed, recovery });
        self.send_some(records, true);
    }

    /// Sends records that have changed.
    pub fn send_records(&mut self, records: Vec<StateRecord>) {
        if !records.is_empty() {
            self.send_some(records, false);
        }
    }

    fn send_some(&mut self, records: Vec<StateRecord>, whole: bool) {
        let mut some = Vec::new();
        let mut octets = 0;
        for record in records {
            octets += record.octets();
            some.push(record);
            if octets >= RECORDS_OCTETS {
                let records = std::mem::take(&mut some);
                self.send(&LoggerFrame::Records { batch: 0, complete: false, records });
                octets = 0;
            }
        }
        self.send(&LoggerFrame::Records { batch: 0, complete: whole, records: some });
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        self.links.flush();
    }

    /// Readable when [`Self::receive`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.links.fd()
    }

    /// When [`Self::receive`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let retry = self.link.is_none().then_some(self.retry_at);
        self.links.next_deadline().into_iter().chain(retry).min()
    }
}

/// Why a link that the logger has sent nothing over has ended, as the log has it.
fn not_taken(reason: DownReason) -> String {
    match reason {
        DownReason::Closed => {
            "it refuses this UPF, and its log says why (another version, or another configuration)".into()
        }
        other => other.to_string(),
    }
}

/// Another UPF serves: this process begins again, as its replica.
pub fn begin_again() -> ! {
    use std::os::unix::process::CommandExt as _;
    let e = std::process::Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).exec();
    tracing::error!("this UPF cannot begin again as the replica, and ends: {e}");
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock;
    use crate::log_limiter::Lines;

    #[test]
    fn a_logger_that_refuses_the_upf_again_and_again_is_logged_once_and_so_is_its_consent() {
        let mut settings = settings(Vec::new(), None).unwrap();
        settings.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut logger = Links::open(settings).unwrap();
        let at = logger.local_addr().unwrap();
        let config = crate::config::parse("", Path::new("test")).unwrap();
        let mut upf = LoggerLink::open(&config, at, 1, 2).unwrap();
        let lines = Arc::new(AtomicUsize::new(0));
        let (mut refused, mut taken, mut events) = (0, 0, LinkEvents::default());
        crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
            let until = clock::now() + Duration::from_secs(60);
            while taken == 0 && clock::now() < until {
                taken = upf.receive(clock::now()).len();
                upf.flush();
                upf.retry_at = Instant::ZERO;
                logger.drain(clock::now(), &mut events);
                for event in events.iter() {
                    let Event::Up { link, .. } = event else { continue };
                    match refused {
                        0..5 => logger.close(link),
                        _ => logger.send(link, &LoggerFrame::Follow.to_octets()),
                    }
                    refused += 1;
                }
                logger.flush();
            }
        });
        assert_eq!((refused, taken), (6, 1));
        assert_eq!(lines.load(Ordering::Relaxed), 2, "one refusal, and one line when it is connected");
    }
}
