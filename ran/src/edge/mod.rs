//! The emulated RAN on sockets: SCTP towards the AMF, GTP-U towards the UPF, TUN devices towards programs.
//!
//! One thread, one loop: receive, run the state machines, send, spin briefly, then sleep until the next input or
//! deadline. All protocol logic is in the pure modules.

mod clock;
mod namespace;
mod netlink;
mod runner;
mod session;
mod site;
mod tun;

pub use clock::Clock;
pub use namespace::{Namespace, NamespaceError};
pub use runner::{GnbPlace, RunError, RunnerConfig, Silent, Watch, run};
pub use tun::{Tun, TunConfig, TunError};
pub use whimbrel_sctp_io::Mode;
