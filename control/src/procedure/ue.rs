//! The handle through which a procedure works on its UE.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use whimbrel_ids::{Instant, Tmsi};

use super::active;
use super::active::SpawnedProcedure;
use super::{Interrupt, Lane, Procedure};
use crate::config::Config;
use crate::envelope::{Effect, Output, OutputId};
use crate::event::Event;
use crate::input::Input;
use crate::prf::Prf;
use crate::services::namf::NamfCommunication;
use crate::services::nsmf::NsmfPduSession;
use crate::state::UeContext;
use crate::upf::UpfStates;

/// The largest future of a procedure, in octets: ten thousand UEs in a procedure need at most 40 MB.
const FUTURE_OCTETS_MAX: usize = 4096;

/// A copyable handle to the UE whose input runs, as seen from one of its lanes.
///
/// It borrows the context inside [`Ue::with`] only, never across an await. Everything else that a procedure observes
/// (time, entropy, configuration) comes from the envelope, so that a replay observes the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ue {
    lane: Lane,
}

impl Ue {
    pub(crate) fn new(lane: Lane) -> Self {
        Self { lane }
    }

    /// The same UE, seen from another lane.
    pub(crate) fn on(self, lane: Lane) -> Self {
        Self { lane }
    }

    /// Borrows the UE's context for the length of `f`.
    pub(crate) fn with<R>(self, f: impl FnOnce(&mut UeContext) -> R) -> R {
        active::with(|a| f(&mut a.ue))
    }

    /// The configuration that the envelope names.
    pub(crate) fn config(self) -> Arc<Config> {
        active::with(|a| a.config.clone())
    }

    /// The service operations of the AMF.
    pub(crate) fn amf(self) -> &'static dyn NamfCommunication {
        active::with(|a| a.functions.amf)
    }

    /// The service operations of the SMF.
    pub(crate) fn smf(self) -> &'static dyn NsmfPduSession {
        active::with(|a| a.functions.smf)
    }

    /// When the running input arrived.
    pub(crate) fn now(self) -> Instant {
        active::with(|a| a.now)
    }

    /// Sixteen octets of the input's entropy, different at each call.
    pub(crate) fn random(self) -> [u8; 16] {
        active::with(|a| {
            a.draws += 1;
            Prf::new(&a.seed).block(a.draws.into())
        })
    }

    /// The state of the UPFs at the running input.
    pub(crate) fn upfs(self) -> UpfStates {
        active::with(|a| a.upfs)
    }

    /// Takes the 5G-TMSI that the CTA offers with this input (TS 33.501 §6.12.3).
    pub(crate) fn take_tmsi(self) -> Tmsi {
        active::with(|a| {
            a.batch.tmsi_taken = true;
            a.tmsi
        })
    }

    /// Adds an effect to the batch of this input.
    pub(crate) fn emit(self, effect: Effect, downlink_count: Option<u32>) -> OutputId {
        active::with(|a| {
            let index = u16::try_from(a.batch.outputs.len()).expect("one input has few effects");
            a.batch.outputs.push(Output { effect, downlink_count });
            OutputId { clock: a.clock, index }
        })
    }

    /// Emits an event.
    pub(crate) fn event(self, event: Event) {
        active::with(|a| a.batch.events.push(event));
    }

    /// Updates the batch's fields.
    pub(crate) fn update_batch(self, f: impl FnOnce(&mut crate::envelope::Batch)) {
        active::with(|a| f(&mut a.batch));
    }

    /// Starts a procedure on a lane. A running one is interrupted, and the new one starts when it has ended; a
    /// procedure that waited to start is dropped.
    pub(crate) fn start<F>(self, lane: Lane, procedure: Procedure, future: F)
    where
        F: Future<Output = ()> + 'static,
    {
        const { assert!(size_of::<F>() <= FUTURE_OCTETS_MAX, "a procedure holds too much across its awaits") };
        active::with(|a| {
            a.ue.lanes.interrupt(lane, Interrupt::Superseded(procedure));
            a.queued.retain(|s| s.lane != lane);
            a.queued.push(SpawnedProcedure { lane, procedure, task: Box::pin(future) });
        });
    }

    /// Starts a procedure on a lane once the running one has ended. If one waits already, that one stays.
    pub(crate) fn follow<F>(self, lane: Lane, procedure: Procedure, future: F)
    where
        F: Future<Output = ()> + 'static,
    {
        const { assert!(size_of::<F>() <= FUTURE_OCTETS_MAX, "a procedure holds too much across its awaits") };
        active::with(|a| {
            if a.queued.iter().all(|s| s.lane != lane) {
                a.queued.push(SpawnedProcedure { lane, procedure, task: Box::pin(future) });
            }
        });
    }

    /// Drops the waiting procedures: the UE's context is being deleted.
    pub(crate) fn forget_queued(self) {
        active::with(|a| a.queued.clear());
    }

    /// Awaits the next input that `accepts` matches, at most for `patience`.
    pub(crate) fn receive(self, accepts: fn(&Input) -> bool, patience: Duration) -> Receive {
        Receive { ue: self, accepts, patience, answers: Vec::new(), repeats: None, armed: false }
    }

    /// Awaits the answer to a message that is repeated when the timer of this name expires; a delivery failure ends the
    /// await too.
    pub(crate) fn receive_repeating(
        self,
        accepts: fn(&Input) -> bool,
        timer: &'static str,
        patience: Duration,
    ) -> Receive {
        Receive { ue: self, accepts, patience, answers: Vec::new(), repeats: Some(timer), armed: false }
    }

    /// Awaits the answer to a request, at most for `patience`.
    pub(crate) fn answer(self, to: OutputId, patience: Duration) -> Receive {
        self.any_answer(vec![to], patience)
    }

    /// Awaits the next answer to one of several requests, at most for `patience`.
    pub(crate) fn any_answer(self, to: Vec<OutputId>, patience: Duration) -> Receive {
        Receive { ue: self, accepts: |_| false, patience, answers: to, repeats: None, armed: false }
    }
}

/// The await of one message of a call flow.
#[must_use = "a message that is not awaited is not received"]
pub(crate) struct Receive {
    ue: Ue,
    accepts: fn(&Input) -> bool,
    patience: Duration,
    answers: Vec<OutputId>,
    repeats: Option<&'static str>,
    armed: bool,
}

impl Future for Receive {
    type Output = Result<Input, Interrupt>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let lane = self.ue.lane;
        if !self.armed {
            self.armed = true;
            let deadline = Some(self.ue.now() + self.patience);
            let answers = std::mem::take(&mut self.answers);
            self.ue.with(|p| p.lanes.await_input(lane, self.accepts, deadline, answers, self.repeats));
        }
        match self.ue.with(|p| p.lanes.take_delivered(lane)) {
            Some(mail) => Poll::Ready(mail),
            None => Poll::Pending,
        }
    }
}
