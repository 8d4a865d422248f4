//! Common parts of procedures: the UE handle, lanes, how procedures end, and retransmission.

pub(crate) mod active;
mod lane;
mod ue;

use std::time::Duration;

use crate::event::{Event, MessageDropReason};
use crate::input::Input;
use crate::refusal::Refusal;

pub use lane::Procedure;
pub(crate) use lane::{Interrupt, Lane, Lanes};
pub(crate) use ue::Ue;

/// How a procedure ended without completing.
#[derive(Debug)]
pub(crate) enum ProcedureEnd {
    /// It was refused, by the core or by a peer.
    Refused(Refusal),
    /// Another procedure, or the loss of the connection, interrupted it.
    Interrupted(Interrupt),
}

impl From<Refusal> for ProcedureEnd {
    fn from(r: Refusal) -> Self {
        ProcedureEnd::Refused(r)
    }
}

impl From<Interrupt> for ProcedureEnd {
    fn from(i: Interrupt) -> Self {
        ProcedureEnd::Interrupted(i)
    }
}

/// A NAS message is sent five times in all before its procedure is aborted (TS 24.501 §5.4.1.3.7 b and similar
/// clauses).
pub(crate) const ATTEMPTS: u8 = 5;

/// A message that is repeated while its timer expires.
pub(crate) struct RepeatedMessage {
    what: &'static str,
    /// The timer's name (TS 24.501 §10.2, §10.3).
    name: &'static str,
    timer: Duration,
    left: u8,
    /// It was repeated at once, because the gNB could not deliver it.
    hastened: bool,
}

impl RepeatedMessage {
    /// After the first transmission.
    pub(crate) fn new(what: &'static str, name: &'static str, timer: Duration) -> Self {
        Self { what, name, timer, left: ATTEMPTS, hastened: false }
    }
}

/// Awaits an input while the timer of a repeated message runs: `None` when the message is to be sent again.
pub(crate) async fn attempt(
    ue: Ue,
    repeated: &mut RepeatedMessage,
    accepts: fn(&Input) -> bool,
) -> Result<Option<Input>, ProcedureEnd> {
    loop {
        match ue.receive_repeating(accepts, repeated.name, repeated.timer).await {
            Ok(input) => return Ok(Some(input)),
            // Repeated at once, but only once, so that a gNB that never delivers does not exhaust the attempts.
            Err(Interrupt::NotDelivered) if repeated.hastened => {}
            Err(Interrupt::NotDelivered) => {
                repeated.hastened = true;
                break;
            }
            Err(Interrupt::TimedOut) => {
                repeated.left -= 1;
                if repeated.left == 0 {
                    return Err(Refusal::NoAnswer(repeated.what).into());
                }
                break;
            }
            Err(other) => return Err(other.into()),
        }
    }
    ue.event(Event::Repeated(repeated.what));
    Ok(None)
}

/// Drops a message that does not fit the state of the UE, with an event.
pub(crate) fn out_of_state(ue: Ue) {
    let subject = ue.with(|p| p.subject());
    ue.event(Event::Dropped { subject, why: MessageDropReason::OutOfState });
}
