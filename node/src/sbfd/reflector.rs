//! The thread that answers probes to this host (`sbfd.listen`, `whimbrel reflect`).

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whimbrel_ids::Instant;
use whimbrel_resilience::sbfd::SbfdReflector;
use whimbrel_user_io::TtlSocket;

use super::{DATAGRAM_OCTETS, DropLog, FLOOD_PAUSE, PER_TURN_MAX, STOP_CHECKED_EVERY, SbfdFigures};
use crate::clock;
use crate::config::ReflectorConfig;

/// The thread that answers probes.
pub struct ReflectorThread {
    at: SocketAddr,
    figures: Arc<Mutex<SbfdFigures>>,
    drops: DropLog,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ReflectorThread {
    /// Errors: one sentence.
    pub fn start(config: ReflectorConfig) -> Result<Self, String> {
        let no_socket = |e| format!("S-BFD probes cannot be received at {}: {e}", config.listen);
        let socket = UdpSocket::bind(config.listen).map_err(no_socket)?;
        let at = socket.local_addr().map_err(no_socket)?;
        let socket = TtlSocket::of(socket).map_err(no_socket)?;
        let (figures, stop): (Arc<Mutex<SbfdFigures>>, Arc<AtomicBool>) = Default::default();
        let (shared, stopping) = (figures.clone(), stop.clone());
        let run = move || {
            super::take_priority("answers S-BFD probes", config.real_time);
            let mut reflector = SbfdReflector::new(config.discriminator, config.one_link);
            while !stopping.load(Ordering::Acquire) {
                let taken = answer(&socket, &mut reflector);
                if let Ok(mut figures) = shared.try_lock() {
                    figures.reflecting = reflector.counters();
                }
                match taken {
                    PER_TURN_MAX => std::thread::sleep(FLOOD_PAUSE),
                    _ => wait(&socket),
                }
            }
        };
        let thread = std::thread::Builder::new().name("sbfd-reflector".into()).spawn(run);
        let thread =
            thread.map_err(|e| format!("the thread that answers S-BFD probes cannot be started: {e}"))?;
        Ok(Self { at, figures, drops: DropLog::default(), stop, thread: Some(thread) })
    }

    /// Where probes are answered.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Logs packets that were dropped, each reason once an hour.
    pub fn log_drops(&mut self, now: Instant) {
        let counters = self.figures().reflecting;
        self.drops.log(now, counters);
    }

    pub fn figures(&self) -> SbfdFigures {
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReflectorThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers what waits. Returns how many datagrams there were.
fn answer(socket: &TtlSocket, reflector: &mut SbfdReflector) -> usize {
    let mut octets = [0; DATAGRAM_OCTETS];
    for n in 0..PER_TURN_MAX {
        let Ok((len, from, ttl)) = socket.receive(&mut octets) else { return n };
        if let Some(answer) = reflector.handle(clock::now(), from.ip(), ttl, &octets[..len]) {
            // An answer that is not sent is a lost one.
            let _ = socket.send_to(&answer, from);
        }
    }
    PER_TURN_MAX
}

fn wait(socket: &TtlSocket) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: STOP_CHECKED_EVERY.subsec_nanos().into() };
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    // An interrupted wait is a short one.
    let _ = poll(&mut fds, Some(&timeout));
}
