//! Queries and orders to the control thread, which handles them between bursts.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;
use whimbrel_control::amf::{OverloadOrder, Warning, WarningError};
use whimbrel_control::smf::Modification;
use whimbrel_control::udm::{AuthData, Identity, Resynchronisation, UdmError};
use whimbrel_control::{Locate, UeId};
use whimbrel_ids::{GlobalGnbId, PduSessionId, Supi};

use super::cluster::ClusterView;
use super::locked;
use super::view::{
    ForesightView, GnbView, OverloadView, RemovalView, UePage, UeView, UpfDrainView, WarningView,
};
use crate::config::Config;

/// Most commands in the queue: more than the API's connections can have outstanding.
const WAITING_MAX: usize = 256;
/// A control thread that takes longer for a burst is overloaded, and the caller gets an error.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Which UEs to list.
#[derive(Clone, Debug)]
pub struct UesRequest {
    /// Only UEs whose SUPI sorts after this one.
    pub after: Option<Supi>,
    /// Most UEs to return.
    pub limit: usize,
}

/// An order about the removal of this AMF from its set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalOrder {
    /// The AMF of this name takes the UEs over; without one, the first of the set that is connected.
    Begin(Option<String>),
    /// This AMF stays.
    End,
}

/// An order about the drain of a UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpfDrainOrder {
    /// The UPF is drained, and the sessions that could not be moved are released after this time.
    Begin(Duration),
    /// The UPF gets sessions again.
    End,
}

/// A query or an order, with the channel for its answer.
#[derive(Debug)]
pub enum ConsoleCommand {
    /// The UEs, in the order of their SUPI.
    ListUes(UesRequest, oneshot::Sender<UePage>),
    /// One UE, if it exists.
    ShowUe(Supi, oneshot::Sender<Option<UeView>>),
    /// The processes that serve UEs.
    Cluster(oneshot::Sender<ClusterView>),
    /// The gNBs that are up.
    ListGnbs(oneshot::Sender<Vec<GnbView>>),
    /// Deregister a UE (TS 23.502 §4.2.2.3.3). Answer: the operation; `None` if there is no such UE.
    Deregister(Supi, oneshot::Sender<Option<u64>>),
    /// Emit an event when a UE becomes reachable (TS 23.502 §4.2.5.2). Answer: the operation; `None` if there is no such UE.
    NotifyReachable(Supi, oneshot::Sender<Option<u64>>),
    /// Locate a UE, or start or stop its location reports (TS 23.502 §4.10). Answer: whether it is registered.
    Locate(Supi, Locate, oneshot::Sender<bool>),
    /// Send a warning message (TS 38.413 §8.9.1). Answer: the operation.
    Warn(Box<Warning>, oneshot::Sender<Result<u64, WarningError>>),
    /// Cancel the warning of this message identifier and serial number (TS 38.413 §8.9.2).
    CancelWarning(u16, u16, oneshot::Sender<Result<u64, WarningError>>),
    /// The warnings, oldest first.
    ListWarnings(oneshot::Sender<Vec<WarningView>>),
    /// Whether OVERLOAD START is in force; an order is carried out first (TS 38.413 §8.7.7, §8.7.8).
    Overload(Option<OverloadOrder>, oneshot::Sender<OverloadView>),
    /// Begin or end the removal of this AMF; without an order, nothing changes. Answer: the removal, or why there is none.
    Removal(Option<RemovalOrder>, oneshot::Sender<Result<RemovalView, String>>),
    /// Begin or end the drain of the UPF of this name; without an order, nothing changes. Answer: its drain; `None` if there is no such UPF.
    UpfDrain(String, Option<UpfDrainOrder>, oneshot::Sender<Option<UpfDrainView>>),
    /// The state of the prediction of handovers.
    Foresight(oneshot::Sender<ForesightView>),
    /// Reset all connections of a gNB (TS 38.413 §8.7.4). Answer: the operation; `None` if the gNB is not up.
    ResetGnb(GlobalGnbId, oneshot::Sender<Option<u64>>),
    /// Disconnect a gNB, and keep its addresses from its identity for a minute. Answer: whether it was up.
    DisconnectGnb(GlobalGnbId, oneshot::Sender<bool>),
    /// Put a new version of the configuration in force, except for keys that need a restart.
    Reconfigure(Box<Config>),
    /// Decipher NAS messages that a UE sent (`true`) or got, as far as they are under its keys of now. No key leaves the control thread.
    OpenNas(UeId, Vec<(bool, Vec<u8>)>, oneshot::Sender<Vec<Option<Vec<u8>>>>),
    /// An authentication vector for an AUSF beside this core (TS 29.503 §5.4.2).
    GenerateAuthData(Identity, Option<Resynchronisation>, oneshot::Sender<Result<AuthData, UdmError>>),
    /// The subscriber is registered at another AMF, which uses the UDM of this core (TS 29.503 §5.3.2.3).
    DeregisteredByUdm(Supi),
    /// Modify a session (TS 23.502 §4.3.3.2). Answer: the operation; `None` if there is no such session.
    ModifySession(Supi, PduSessionId, Modification, oneshot::Sender<Option<u64>>),
}

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskError {
    /// The queue is full.
    Full,
    /// No answer came in time, or the control thread has ended.
    Silent,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AskError::Full => "too many requests wait for the control thread; try again",
            AskError::Silent => "the control thread does not answer: it is not running or is overloaded",
        })
    }
}

/// The queue, and the eventfd that signals it.
pub struct Commands {
    queue: Mutex<VecDeque<ConsoleCommand>>,
    wake: OwnedFd,
}

impl Commands {
    pub(super) fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { queue: Mutex::default(), wake })
    }

    /// Becomes readable when a command waits; for the control thread's poll set.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Wakes the control thread without a command, so that it checks whether to stop.
    pub fn wake(&self) {
        // A counter at its limit is readable already, so a failed write loses nothing.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Queues a command without waiting for an answer.
    pub fn send(&self, command: ConsoleCommand) -> Result<(), AskError> {
        let mut queue = locked(&self.queue);
        if queue.len() >= WAITING_MAX {
            return Err(AskError::Full);
        }
        queue.push_back(command);
        drop(queue);
        self.wake();
        Ok(())
    }

    /// Queues a query and awaits the answer.
    pub async fn ask<R>(
        &self,
        query: impl FnOnce(oneshot::Sender<R>) -> ConsoleCommand,
    ) -> Result<R, AskError> {
        let (reply, answer) = oneshot::channel();
        self.send(query(reply))?;
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(AskError::Silent),
        }
    }

    /// Takes the next command; the control thread calls it until there is none. Clears the wake-up first, so that a
    /// command queued meanwhile wakes again.
    pub fn take(&self) -> Option<ConsoleCommand> {
        let mut queue = locked(&self.queue);
        if queue.is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
        }
        queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(fd: BorrowedFd<'_>) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_command_makes_the_eventfd_readable_until_the_queue_is_empty() {
        let commands = Commands::new().unwrap();
        assert!(!readable(commands.wake_fd()));
        commands.send(ConsoleCommand::ListGnbs(oneshot::channel().0)).unwrap();
        assert!(readable(commands.wake_fd()));
        assert!(matches!(commands.take(), Some(ConsoleCommand::ListGnbs(_))));
        assert!(commands.take().is_none());
        assert!(!readable(commands.wake_fd()));
    }

    #[test]
    fn the_queue_is_bounded() {
        let commands = Commands::new().unwrap();
        let query = || ConsoleCommand::ListGnbs(oneshot::channel().0);
        for _ in 0..WAITING_MAX {
            commands.send(query()).unwrap();
        }
        assert_eq!(commands.send(query()), Err(AskError::Full));
    }

    #[test]
    fn an_answer_is_returned_and_a_missing_one_is_an_error() {
        let rt = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let commands = std::sync::Arc::new(Commands::new().unwrap());
        let served = commands.clone();
        let server = std::thread::spawn(move || {
            let mut answered = 0;
            while answered < 2 {
                match served.take() {
                    Some(ConsoleCommand::ListGnbs(reply)) if answered == 0 => {
                        reply.send(Vec::new()).unwrap();
                        answered += 1;
                    }
                    Some(other) => {
                        drop(other);
                        answered += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
        assert_eq!(rt.block_on(commands.ask(ConsoleCommand::ListGnbs)).unwrap().len(), 0);
        assert_eq!(rt.block_on(commands.ask(ConsoleCommand::ListGnbs)).unwrap_err(), AskError::Silent);
        server.join().unwrap();
    }
}
