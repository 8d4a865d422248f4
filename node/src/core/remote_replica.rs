//! A UPF behind a packet logger until it serves: the logger says whether it is the first, or the replica of the one that serves, whose records it applies as they
//! come (docs/design/packet-logger.md).

use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};
use whimbrel_pfcp::ie::RecoveryTimeStamp;
use whimbrel_user::logger::LoggerFrame;
use whimbrel_user::{HostAddresses, Outbox, ReceivedState, UpfCReplica};
use whimbrel_user_io::{Handle, StateFile, UserPlane, boot_id};

use super::logger_link::{LoggerLink, begin_again};
use super::upf::{self, LocalUpf, plane_config};
use crate::clock;
use crate::config;
use crate::entropy::SystemEntropy;

/// How the wait has ended.
pub enum AssignmentOutcome {
    /// It serves, without sessions.
    First(Box<LoggerLink>, HostAddresses),
    /// It serves, with the sessions of the UPF before it.
    TakenOver(Box<LocalUpf>),
    /// A signal has come.
    Stopped,
}

/// The replica's UPF-C and its packet thread, which waits.
struct Replica {
    endpoint: UpfCReplica,
    plane: Handle,
    whole: bool,
}

impl Replica {
    fn new(
        c: &config::Config,
        logger: &LoggerLink,
        known: (u64, RecoveryTimeStamp),
        host: &HostAddresses,
    ) -> Result<Self, String> {
        let mut user = upf::user_plane_config(c, 0);
        user.shards = 1;
        let memory =
            StateFile::in_memory(&user).map_err(|e| format!("there is no memory for the state: {e}"))?;
        let state = ReceivedState::begin(Box::new(memory), &mut user, known, boot_id(), clock::now());
        let end = logger.end().map_err(|e| e.to_string())?;
        let plane = UserPlane::start_behind_logger(plane_config(c, &user, true, true), end)
            .map_err(|e| e.to_string())?;
        plane.set_host_addresses(host.clone());
        let endpoint = UpfCReplica::remote(user, clock::now(), state).map_err(|e| e.to_string())?;
        Ok(Self { endpoint, plane, whole: false })
    }

    fn catch_up(&mut self) {
        let mut out = Outbox::default();
        self.endpoint.catch_up(clock::now(), &mut out);
        upf::apply(&self.plane, out.changes);
    }
}

/// Opens the link to the packet logger. Errors: one sentence.
fn open(c: &config::Config, entropy: &mut SystemEntropy) -> Result<LoggerLink, String> {
    let logger = c.packet_logger.address.ok_or("`packet_logger.address` is not configured")?;
    let mut user = upf::user_plane_config(c, 0);
    user.shards = 1;
    LoggerLink::open(c, logger, user.state_key(), u64::from_ne_bytes(entropy.octets()))
}

/// Waits until this UPF serves, or a signal has come. Errors: one sentence.
pub fn await_assignment(
    c: &config::Config,
    entropy: &mut SystemEntropy,
    signals: &UnixStream,
) -> Result<AssignmentOutcome, String> {
    let mut logger = Box::new(open(c, entropy)?);
    let (mut replica, mut host): (Option<Replica>, _) = (None, HostAddresses::default());
    info!("this UPF connects to the packet logger {}", logger.logger());
    loop {
        for frame in logger.receive(clock::now()) {
            match frame {
                LoggerFrame::HostAddresses(_) => {
                    host = frame.addresses();
                    replica.iter().for_each(|r| r.plane.set_host_addresses(host.clone()));
                }
                // Another UPF serves than the one whose sessions these are.
                LoggerFrame::Replaced => begin_again(),
                LoggerFrame::State { .. } if replica.is_some() => begin_again(),
                LoggerFrame::State { seed, recovery } => {
                    replica = Some(Replica::new(c, &logger, (seed, recovery), &host)?);
                }
                LoggerFrame::Records { batch, complete, records } => {
                    if let Some(replica) = &mut replica {
                        replica.endpoint.receive(records);
                        replica.catch_up();
                        if complete {
                            replica.whole = true;
                            let sessions = replica.endpoint.session_count();
                            info!(
                                sessions,
                                "this UPF is the replica of the one that serves, and stands ready"
                            );
                        }
                    }
                    logger.send(&LoggerFrame::Acknowledge { batch });
                }
                LoggerFrame::Serve { .. } => {
                    return match replica.take().filter(|r| r.whole) {
                        Some(replica) => take_over(c, *logger, replica).map(AssignmentOutcome::TakenOver),
                        None => Ok(AssignmentOutcome::First(logger, host)),
                    };
                }
                LoggerFrame::Follow
                | LoggerFrame::SendState
                | LoggerFrame::SendAddress
                | LoggerFrame::FromSmf { .. }
                | LoggerFrame::Acknowledge { .. }
                | LoggerFrame::Serves
                | LoggerFrame::ToSmf { .. }
                | LoggerFrame::Handled { .. } => {}
            }
        }
        logger.flush();
        if wait(&logger, signals)? {
            return Ok(AssignmentOutcome::Stopped);
        }
    }
}

fn take_over(c: &config::Config, mut logger: LoggerLink, replica: Replica) -> Result<Box<LocalUpf>, String> {
    let Replica { endpoint, plane, .. } = replica;
    let begun = std::time::Instant::now();
    let mut out = Outbox::default();
    let taken = endpoint.take_over(clock::now(), &mut out);
    let (endpoint, restored) = taken.map_err(|refusal| {
        format!(
            "the sessions of the UPF that served cannot be taken over, so this one begins again: {refusal}"
        )
    })?;
    upf::apply(&plane, std::mem::take(&mut out.changes));
    plane.begin();
    logger.send(&LoggerFrame::Serves);
    logger.flush();
    let took = begun.elapsed();
    upf::log_restored(restored);
    info!(us = took.as_micros() as u64, "the UPF that served is lost, and this replica goes on in its place");
    Ok(Box::new(LocalUpf::of_remote_replica(c, endpoint, plane, out, logger)))
}

/// Waits until the link has something, or a signal has come: whether it has.
fn wait(logger: &LoggerLink, signals: &UnixStream) -> Result<bool, String> {
    let within = logger.next_deadline().map(|at| at.since(clock::now()));
    let timeout = within.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
    let mut fds = [PollFd::from_borrowed_fd(logger.fd(), PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!fds[1].revents().is_empty()),
        Err(e) => {
            warn!("waiting for the packet logger failed: {e}");
            Err(format!("the packet logger cannot be awaited: {e}"))
        }
    }
}
