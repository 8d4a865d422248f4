//! Which way SCTP takes on this host, and why not another.

use core::fmt;
use std::io;

/// How SCTP reaches the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The first of the others that works, in their order.
    Auto,
    /// The kernel's own SCTP.
    Kernel,
    /// Our endpoint over raw IP sockets (needs CAP_NET_RAW).
    Raw,
    /// Our endpoint encapsulated in UDP (RFC 6951); needs no privilege, but a peer that does the same.
    Udp,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Auto => "auto",
            Mode::Kernel => "kernel",
            Mode::Raw => "raw",
            Mode::Udp => "udp",
        })
    }
}

impl core::str::FromStr for Mode {
    type Err = &'static str;

    fn from_str(s: &str) -> Result<Self, &'static str> {
        match s {
            "auto" => Ok(Mode::Auto),
            "kernel" => Ok(Mode::Kernel),
            "raw" => Ok(Mode::Raw),
            "udp" => Ok(Mode::Udp),
            _ => Err("one of auto, kernel, raw, udp"),
        }
    }
}

/// Why a mode did not open: what happened, what follows, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The mode that cannot be used.
    pub mode: Mode,
    /// The error that was met.
    pub cause: String,
    /// What follows from it.
    pub effect: &'static str,
    /// What to do about it.
    pub fix: &'static str,
    /// The system's error number, if one was behind it.
    pub errno: Option<i32>,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sctp {}: {}; {}; {}.", self.mode, self.cause, self.effect, self.fix)
    }
}

impl Obstacle {
    /// Explains an error of `mode` while doing `what`.
    pub(crate) fn of(mode: Mode, what: &str, e: &io::Error) -> Self {
        let errno = e.raw_os_error();
        let (effect, fix) = match (mode, errno) {
            (_, Some(libc::EADDRINUSE)) => {
                ("no association can be opened there", "stop the other program or choose another port")
            }
            (_, Some(libc::EADDRNOTAVAIL)) => {
                ("no peer can reach us there", "configure an address that this host has")
            }
            (Mode::Kernel, Some(libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT | libc::EAFNOSUPPORT)) => (
                "our own SCTP is used instead where that is allowed",
                "load the kernel's module with `modprobe sctp` if it is preferred",
            ),
            (Mode::Raw, Some(libc::EPERM | libc::EACCES)) => (
                "peers that speak SCTP directly over IP, as most gNBs do, cannot connect",
                "run as root or grant CAP_NET_RAW (`setcap cap_net_raw+ep`)",
            ),
            _ => ("this way to the network is closed", "see the error"),
        };
        Self { mode, cause: format!("{what}: {e}"), effect, fix, errno }
    }
}

/// What was chosen, and why what was tried before was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportReport {
    /// The mode in use.
    pub chosen: Mode,
    /// The modes tried in vain before it, each in one sentence.
    pub obstacles: Vec<Obstacle>,
    /// What works less well than it could, each in one sentence.
    pub limits: Vec<String>,
}

/// No mode opened; each obstacle in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// What stood in the way of each mode that was tried.
    pub obstacles: Vec<Obstacle>,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, o) in self.obstacles.iter().enumerate() {
            write!(f, "{}{o}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl core::error::Error for OpenError {}
