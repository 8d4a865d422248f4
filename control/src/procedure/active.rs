//! The UE of the running input, in a thread-local, for the copyable handles of its procedures.
//!
//! A procedure's future lives as long as the procedure and so cannot borrow the context that it works on. It holds a
//! [`super::Ue`] instead, a plain number, and reaches the context through this thread-local, which is set during one
//! input. A borrow cannot outlive the closure it is given to, nor cross an await.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use whimbrel_ids::{Instant, Tmsi};

use super::{Lane, Procedure};
use crate::config::Config;
use crate::envelope::{Batch, Envelope};
use crate::services::NetworkFunctions;
use crate::state::UeContext;
use crate::upf::UpfStates;

/// A procedure in flight. It is never serialised: replay from the last checkpoint rebuilds it.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A procedure that starts once its lane is free.
pub(crate) struct SpawnedProcedure {
    pub(crate) lane: Lane,
    pub(crate) procedure: Procedure,
    pub(crate) task: Task,
}

/// All that one input may touch.
pub(crate) struct Active {
    pub(crate) ue: Box<UeContext>,
    pub(crate) config: Arc<Config>,
    pub(crate) batch: Batch,
    pub(crate) queued: Vec<SpawnedProcedure>,
    pub(crate) clock: u64,
    pub(crate) now: Instant,
    pub(crate) tmsi: Tmsi,
    pub(crate) seed: [u8; 16],
    pub(crate) draws: u8,
    pub(crate) upfs: UpfStates,
    pub(crate) functions: NetworkFunctions,
}

thread_local! {
    static ACTIVE: RefCell<Option<Active>> = const { RefCell::new(None) };
}

/// Sets the UE of an input.
pub(crate) fn enter(
    ue: Box<UeContext>,
    queued: Vec<SpawnedProcedure>,
    config: Arc<Config>,
    envelope: &Envelope,
    functions: NetworkFunctions,
) {
    let active = Active {
        ue,
        config,
        batch: Batch { terms: (envelope.cta_term, envelope.owner_term), ..Batch::default() },
        queued,
        clock: envelope.clock,
        now: envelope.time,
        tmsi: envelope.tmsi,
        seed: envelope.seed,
        draws: 0,
        upfs: envelope.upfs,
        functions,
    };
    // Drops what a panic may have left here: the UE is lost, the thread goes on.
    ACTIVE.with_borrow_mut(|a| *a = Some(active));
}

/// Takes the UE out, with the output of its input.
pub(crate) fn leave() -> (Box<UeContext>, Vec<SpawnedProcedure>, Batch) {
    let Active { ue, queued, mut batch, .. } =
        ACTIVE.with_borrow_mut(Option::take).expect("an input that was entered is left once");
    ue.conclude(&mut batch);
    (ue, queued, batch)
}

/// Takes out the UE that a panic left: its state is inconsistent and may only be inspected.
pub(crate) fn abandon() -> Option<Box<UeContext>> {
    ACTIVE.with_borrow_mut(Option::take).map(|a| a.ue)
}

/// Whether an input runs on this thread.
pub(crate) fn is_occupied() -> bool {
    ACTIVE.with_borrow(Option::is_some)
}

/// Borrows the state of the running input.
///
/// # Panics
/// Outside an input, or within another `with`: both are programming errors that no input can cause.
pub(crate) fn with<R>(f: impl FnOnce(&mut Active) -> R) -> R {
    ACTIVE.with_borrow_mut(|a| f(a.as_mut().expect("procedures run within an input")))
}
