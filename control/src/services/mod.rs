//! The service operations between network functions, named as in TS 29.502, TS 29.503 and TS 29.518.
//!
//! AMF, SMF and UDM name nothing of each other but these: requests and answers are values, and none borrows the other's data. So a
//! call may become shared memory or HTTP/2 later. `dispatch` puts the functions together; `control/tests/seams.rs` reads the imports.

pub(crate) mod namf;
pub(crate) mod nsmf;
pub(crate) mod nudm;

use std::future::Future;
use std::pin::Pin;

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
