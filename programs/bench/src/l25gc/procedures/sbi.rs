//! The service operations that a core with a process for each network function exchanges within a procedure: each is a request with its answer
//! over HTTP/2 with JSON, one after the other, as the procedure waits for each.

use std::io;
use std::sync::atomic::AtomicBool;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;

use super::super::forms::{Form, N1N2MessageTransfer, PostSmContexts, UeAuthentications, UpdateSmContexts};
use super::super::messages::{ask_json, http, runtime, serve_http};
use super::network::Step;

/// A message that stands for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Authentication,
    CreateContext,
    UpdateContext,
    Transfer,
}

use Operation::{Authentication, CreateContext, Transfer, UpdateContext};

/// The operations of a procedure (TS 23.502), without discovery and without the data repository, which another core may ask besides: fewer than
/// free5GC exchanges. Where an operation's own message is none of figure 9's, one of these of about its size stands for it.
fn operations(step: Step) -> &'static [Operation] {
    match step {
        // §4.2.2.2.2: Nausf_UEAuthentication and Nudm_UEAuthentication, each with its confirmation; Nudm_UECM_Registration; Nudm_SDM_Get of access
        // and of sessions, Nudm_SDM_Subscribe; Npcf_AMPolicyControl_Create.
        Step::Registration => &[
            Authentication,
            Authentication,
            Authentication,
            Authentication,
            UpdateContext,
            UpdateContext,
            UpdateContext,
            UpdateContext,
            UpdateContext,
        ],
        // §4.3.2.2.1: Nsmf_PDUSession_CreateSMContext, Nudm_SDM_Get, Npcf_SMPolicyControl_Create, Namf_Communication_N1N2MessageTransfer,
        // Nsmf_PDUSession_UpdateSMContext.
        Step::Session => &[CreateContext, UpdateContext, UpdateContext, Transfer, UpdateContext],
        // §4.9.1.3: Nsmf_PDUSession_UpdateSMContext when the handover is required, prepared, and done.
        Step::Handover => &[UpdateContext, UpdateContext, UpdateContext],
        // §4.2.3.2: Nsmf_PDUSession_UpdateSMContext with the request, and with the gNB's answer.
        Step::ServiceRequest => &[UpdateContext, UpdateContext],
        // §4.2.3.3: Namf_Communication_N1N2MessageTransfer, then the same.
        Step::Paging => &[Transfer, UpdateContext, UpdateContext],
    }
}

/// How many operations a procedure has.
pub(super) fn count(step: Step) -> usize {
    operations(step).len()
}

/// A function's connections to others.
pub(super) struct Sbi {
    runtime: tokio::runtime::Runtime,
    authentication: SendRequest<Full<Bytes>>,
    create: SendRequest<Full<Bytes>>,
    update: SendRequest<Full<Bytes>>,
    transfer: SendRequest<Full<Bytes>>,
}

impl Sbi {
    /// Connects to functions that run on threads of their own until they are stopped.
    pub(super) fn start<'scope>(
        threads: &'scope std::thread::Scope<'scope, '_>,
        stop: &'scope AtomicBool,
    ) -> io::Result<Self> {
        let runtime = runtime()?;
        let authentication = runtime.block_on(http(serve_http::<UeAuthentications>(threads, stop)?))?;
        let create = runtime.block_on(http(serve_http::<PostSmContexts>(threads, stop)?))?;
        let update = runtime.block_on(http(serve_http::<UpdateSmContexts>(threads, stop)?))?;
        let transfer = runtime.block_on(http(serve_http::<N1N2MessageTransfer>(threads, stop)?))?;
        Ok(Self { runtime, authentication, create, update, transfer })
    }

    /// All operations of a procedure.
    pub(super) fn run(&mut self, step: Step) -> io::Result<()> {
        for operation in operations(step) {
            match operation {
                Authentication => {
                    self.runtime.block_on(ask_json(&mut self.authentication, &UeAuthentications::sample()))?
                }
                CreateContext => {
                    self.runtime.block_on(ask_json(&mut self.create, &PostSmContexts::sample()))?;
                }
                UpdateContext => {
                    self.runtime.block_on(ask_json(&mut self.update, &UpdateSmContexts::sample()))?;
                }
                Transfer => {
                    self.runtime.block_on(ask_json(&mut self.transfer, &N1N2MessageTransfer::sample()))?;
                }
            }
        }
        Ok(())
    }
}
