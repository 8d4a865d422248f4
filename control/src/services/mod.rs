//! The service operations between network functions, named as in TS 29.502, TS 29.503, TS 29.512, TS 29.518 and TS 32.290.
//!
//! AMF, SMF and UDM name nothing of each other but these: requests and answers are values, and none borrows the other's data. So an
//! operation of the UDM may be answered in the same turn or, by another vendor's UDM over HTTP/2, later. `dispatch` puts the functions together;
//! `control/tests/seams.rs` reads the imports.

pub(crate) mod namf;
pub(crate) mod nchf;
pub(crate) mod npcf;
pub(crate) mod nsmf;
pub(crate) mod nudm;
pub(crate) mod remote_amf;
pub(crate) mod sm_contexts;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

/// The answer to an operation that waits for the UPF or the gNB.
pub(crate) type ServiceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The network functions that serve a UE.
#[derive(Clone, Copy)]
pub(crate) struct NetworkFunctions {
    /// Services of the AMF.
    pub(crate) amf: &'static dyn namf::NamfCommunication,
    /// Services of the SMF.
    pub(crate) smf: &'static dyn nsmf::NsmfPduSession,
}

/// A network function that may be another vendor's (TS 29.510 §6.1.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NfType {
    /// Unified data management.
    Udm,
    /// The charging function of TS 32.290.
    Chf,
    /// The policy control function (PCF).
    Pcf,
    /// The session management function of PDU sessions.
    Smf,
}

impl fmt::Display for NfType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udm => "UDM",
            Self::Chf => "CHF",
            Self::Pcf => "PCF",
            Self::Smf => "SMF",
        })
    }
}

/// Why an operation of a remote network function failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceFault {
    /// The NRF knows no instance that is registered.
    NoInstance,
    /// No instance was reached.
    NotConnected,
    /// TLS, or the access token, was not accepted by either side.
    NotTrusted,
    /// No answer came in time.
    TimedOut,
    /// An HTTP status that says nothing about the subscriber.
    Status(u16),
    /// Its answer cannot be used.
    InvalidAnswer,
    /// Too many operations await their answers.
    Busy,
}

impl fmt::Display for ServiceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInstance => f.write_str("the NRF knows no registered instance"),
            Self::NotConnected => f.write_str("no instance was reached"),
            Self::NotTrusted => f.write_str("TLS or the access token was not accepted"),
            Self::TimedOut => f.write_str("it did not answer in time"),
            Self::Status(status) => write!(f, "it answered with HTTP status {status}"),
            Self::InvalidAnswer => f.write_str("its answer cannot be used"),
            Self::Busy => f.write_str("too many operations await their answers"),
        }
    }
}
