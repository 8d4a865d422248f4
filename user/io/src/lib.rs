//! Packet sources and sinks of the user plane, and the thread that joins them to [`whimbrel_user::UpfU`].
//!
//! [`UserPlane::start`] makes GTP-U sockets and a TUN device for each data network, puts AF_XDP in front of the sockets
//! where that is asked for and the host can, sets the host up as it is asked to, and starts one packet thread. The [`Handle`] takes the changes of UPF-C, gives back the reports, and undoes everything
//! when it is dropped.

mod beats;
mod channel;
mod config;
mod error;
mod front;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod gre;
mod handle;
mod harvest;
mod host;
mod inter_thread_queues;
#[cfg(feature = "measure")]
pub mod measure;
mod ports;
mod queue;
mod state;
mod sys;
mod tap;
mod thread;
mod xdp;

#[cfg(feature = "measure")]
use std::path::Path;

pub use beats::{Beat, Beats, ThreadState, readable, run_in_real_time};
pub use channel::{Receiver, Sender, channel};
pub use config::{
    Clock, Config, DataNetworkDevice, FramesDevice, N3Io, RouterLink, SpreadBy, Vlan, system_clock,
};
pub use error::{HostProblem, HostReport, NoInterface, Notice, Obstacle, StartError};
pub use front::Front as LoggerFront;
pub use gre::GreTunnel;
pub use handle::{Handle, QueueFull};
pub use harvest::{Harvest, HarvestCounters};
pub use ports::af_xdp::Rings;
pub use ports::descriptors::Descriptors;
pub use ports::logged::LoggerEnd;
#[cfg(feature = "measure")]
pub use ports::memory::MemoryOuterEnd;
#[cfg(feature = "measure")]
pub use ports::pcap::Replay;
pub use state::{StateChangeWatch, StateFile, StateLock, announce_changes, boot_id, is_state_file_truncated};
pub use sys::datagrams::TtlSocket;
pub use tap::TappedDatagram;
pub use thread::{CHANGES_AT_ONCE, CHANGES_MAX, IoCounters};

/// The user plane of this process.
pub struct UserPlane;

impl UserPlane {
    /// Starts it on sockets and TUN devices. Errors: a [`StartError`], a sentence for the operator each; nothing stays
    /// set then.
    pub fn start(config: Config) -> Result<Handle, StartError> {
        handle::start(config, None)
    }

    /// Starts it on sockets and TUN devices that are open: those that the process before it had, or another one holds. Errors: likewise.
    pub fn start_on(config: Config, descriptors: Descriptors) -> Result<Handle, StartError> {
        handle::start(config, Some(descriptors))
    }

    /// Starts it behind a packet logger, with one packet thread, which takes packets from [`Handle::begin`] on. Nothing is set on this host. Errors: as
    /// with [`Self::start`].
    pub fn start_behind_logger(config: Config, end: LoggerEnd) -> Result<Handle, StartError> {
        handle::start_behind_logger(config, end)
    }

    /// Packet threads on the sockets and devices of another process that stand ready to take packets as soon as [`Handle::begin`] is called: that process
    /// has ended then. [`Handle::set_up_host`] follows. `None`: packets come by AF_XDP, and interfaces are of one process at a time. Errors: as
    /// with [`Self::start_on`].
    pub fn stand_by(config: Config, descriptors: Descriptors) -> Result<Option<Handle>, StartError> {
        handle::stand_by(config, descriptors)
    }

    /// Starts it on files instead, with one packet thread: frames of a capture are received when [`Replay::begin`] says so, those that
    /// are sent are written to another.
    ///
    /// Errors: `System` of the files, of which the first must have frames of Ethernet in the form of libpcap.
    #[cfg(feature = "measure")]
    pub fn start_on_capture(config: Config, from: &Path, to: &Path) -> Result<(Handle, Replay), StartError> {
        handle::start_on_capture(config, from, to)
    }

    /// Starts it on memory instead: what is put into the [`MemoryOuterEnd`] is received, what is sent comes out of it.
    #[cfg(feature = "measure")]
    pub fn start_in_memory(config: Config) -> Result<(Handle, MemoryOuterEnd), StartError> {
        handle::start_in_memory(config)
    }
}
