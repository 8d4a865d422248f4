//! The UPF's replica: a process with all sessions of the UPF, whose packet threads stand ready on the UPF's own sockets and devices. It takes no time of a
//! processor until that UPF has ended, and is the UPF then (docs/design/upf-replica.md).

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};
use whimbrel_user::{FollowedState, Outbox, UpfCReplica};
use whimbrel_user_io::{
    Handle, StateChangeWatch, StateFile, StateLock, UserPlane, boot_id, is_state_file_truncated,
};

use super::n4::N4Socket;
use super::upf::{self, LocalUpf, inherited_ports, plane_config};
use crate::clock;
use crate::config;
use crate::function::descriptors;

/// Time between two looks at what the UPF has written, where changes cannot be announced to this process.
const CATCH_UP_EVERY: Duration = Duration::from_secs(1);
/// Time between two attempts to open the state of a UPF that has just started.
const RETRY: Duration = Duration::from_millis(20);

/// How a replica's wait has ended.
pub enum ReplicaWaitOutcome {
    /// The UPF has ended, and this process has its sessions. The host is to be set up yet.
    Ready(Box<ReadyReplica>),
    /// The UPF has ended, and this process begins with its state file.
    Cold(StateFile),
    /// A signal has come.
    Stopped,
}

/// A replica that takes over.
pub struct ReadyReplica {
    endpoint: UpfCReplica,
    plane: Handle,
    plane_config: whimbrel_user_io::Config,
}

/// Waits, as the replica, until the UPF has ended or a signal has come. Errors: one sentence.
pub fn await_end_of_upf(
    c: &config::Config,
    path: &Path,
    signals: &UnixStream,
) -> Result<ReplicaWaitOutcome, String> {
    let cannot = |e: std::io::Error| format!("the state file {} cannot be awaited: {e}", path.display());
    let (state, lock) = loop {
        match StateFile::follow(path, &upf::user_plane_config(c, 0)) {
            Ok(opened) => break opened,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                if wait(signals, None, None, Some(RETRY)).map_err(cannot)? == WakeReason::Signal {
                    return Ok(ReplicaWaitOutcome::Stopped);
                }
            }
            Err(e) => return Err(cannot(e)),
        }
    };
    let (ended, holder) = watch(lock).map_err(cannot)?;
    let mut ready = prepare(c, state)?;
    // Before the first look, so that what is written during it brings another one.
    let changes = ready.is_some().then(|| StateChangeWatch::of(path)).transpose();
    let changes = changes.unwrap_or_else(|e| {
        warn!("changes cannot be announced to this replica, which looks for them every second: {e}");
        None
    });
    let within = if ready.is_some() && changes.is_none() { Some(CATCH_UP_EVERY) } else { None };
    if let Some(ready) = &mut ready {
        ready.catch_up();
        let sessions = ready.endpoint.session_count();
        info!(sessions, "this replica has the sessions of the UPF, and stands ready");
    }
    descriptors::stands_ready();
    loop {
        match wait(signals, Some(&ended), changes.as_ref(), within).map_err(cannot)? {
            WakeReason::Time => {
                changes.iter().for_each(StateChangeWatch::clear);
                ready.iter_mut().for_each(|ready| ready.catch_up());
                if is_state_file_truncated() {
                    return Err(cannot(std::io::Error::new(
                        std::io::ErrorKind::UnexpectedEof,
                        "another process has truncated it",
                    )));
                }
            }
            WakeReason::Signal => return Ok(ReplicaWaitOutcome::Stopped),
            WakeReason::End => break,
        }
    }
    descriptors::takes_over();
    match ready {
        Some(ready) => Ok(ReplicaWaitOutcome::Ready(ready)),
        None => {
            let lock =
                holder.join().map_err(|_| "the thread that awaits the end of the UPF ended in a panic")?;
            lock.into_state(&upf::user_plane_config(c, 0)).map(ReplicaWaitOutcome::Cold).map_err(cannot)
        }
    }
}

/// All but to take packets. `None`: this process can only wait, because packets come by AF_XDP, or because the state is not of such a UPF.
/// Errors: one sentence.
fn prepare(c: &config::Config, state: StateFile) -> Result<Option<Box<ReadyReplica>>, String> {
    let mut user = upf::user_plane_config(c, 0);
    let held = state.try_clone_file().map_err(|e| e.to_string())?;
    let state = match FollowedState::open(Box::new(state), &mut user, boot_id()) {
        Ok(Some(state)) => state,
        Ok(None) => return Ok(None),
        Err(refusal) => {
            warn!("this replica waits without the sessions of the UPF: {refusal}");
            return Ok(None);
        }
    };
    let mut plane_config = plane_config(c, &user, true, true);
    plane_config.held = Some(Arc::new(held));
    let Some(ports) = inherited_ports(&plane_config) else { return Ok(None) };
    let Some(plane) = UserPlane::stand_by(plane_config.clone(), ports).map_err(|e| e.to_string())? else {
        info!("packets come by AF_XDP, so this replica opens its rings when the UPF has ended");
        return Ok(None);
    };
    let endpoint = UpfCReplica::new(user, clock::now(), state).map_err(|e| e.to_string())?;
    Ok(Some(Box::new(ReadyReplica { endpoint, plane, plane_config })))
}

impl ReadyReplica {
    /// Applies what the UPF has written since the last call.
    fn catch_up(&mut self) {
        let mut out = Outbox::default();
        self.endpoint.catch_up(clock::now(), &mut out);
        upf::apply(&self.plane, out.changes);
    }

    /// Packets are taken from now on. Errors: why the sessions cannot be taken over, in one sentence.
    pub fn take_over(self, c: &config::Config, n4: Option<N4Socket>) -> Result<LocalUpf, String> {
        let Self { endpoint, plane, plane_config } = self;
        let begun = std::time::Instant::now();
        let mut out = Outbox::default();
        let taken = endpoint.take_over(clock::now(), &mut out);
        let (endpoint, restored) = taken.map_err(|refusal| {
            format!(
                "the sessions of the UPF cannot be taken over, so another process begins with them: {refusal}"
            )
        })?;
        upf::apply(&plane, std::mem::take(&mut out.changes));
        plane.begin();
        let took = begun.elapsed();
        upf::show_beats(&plane);
        upf::log_restored(restored);
        info!(us = took.as_micros() as u64, "the UPF has ended, and this replica goes on in its place");
        Ok(LocalUpf::of_replica(c, endpoint, plane, n4, out, &plane_config))
    }
}

/// What has ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    /// It is time for another look.
    Time,
    End,
    Signal,
}

/// Has a thread wait for the state file; the stream ends when this process has it.
fn watch(lock: StateLock) -> std::io::Result<(UnixStream, JoinHandle<StateLock>)> {
    let (ended, held) = UnixStream::pair()?;
    let holder = std::thread::Builder::new().name("lock".into()).spawn(move || {
        while let Err(e) = lock.acquire() {
            warn!("waiting for the end of the UPF failed, and is tried again: {e}");
            std::thread::sleep(CATCH_UP_EVERY);
        }
        drop(held);
        lock
    })?;
    Ok((ended, holder))
}

/// `within`: the longest wait, if it has a bound.
fn wait(
    signals: &UnixStream,
    ended: Option<&UnixStream>,
    changes: Option<&StateChangeWatch>,
    within: Option<Duration>,
) -> std::io::Result<WakeReason> {
    let streams = std::iter::once(signals.as_fd()).chain(ended.map(AsFd::as_fd));
    let all = streams.chain(changes.map(AsFd::as_fd));
    let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let timeout = within
        .map(|within| Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok(match (is_ready(1), is_ready(0)) {
        (true, _) => WakeReason::End,
        (false, true) => WakeReason::Signal,
        (false, false) => WakeReason::Time,
    })
}
