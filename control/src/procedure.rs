//! What all procedures share: how they end, and how a message is repeated until it is answered.

use std::time::Duration;

use whimbrel_nas::mm;

use crate::amf::{Security, send_nas};
use crate::event::{Dropped, Event};
use crate::input::Input;
use crate::refusal::Refusal;
use crate::shard::{Interrupt, Ue};

/// How a procedure ended that did not complete.
#[derive(Debug)]
pub(crate) enum End {
    /// It was refused, by us or by a peer.
    Refused(Refusal),
    /// Another procedure, or the loss of the connection, took its place.
    Interrupted(Interrupt),
}

impl From<Refusal> for End {
    fn from(r: Refusal) -> Self {
        End::Refused(r)
    }
}

impl From<Interrupt> for End {
    fn from(i: Interrupt) -> Self {
        End::Interrupted(i)
    }
}

/// A NAS message is sent five times in all before its procedure is aborted (TS 24.501 §5.4.1.3.7 b and its kin).
const ATTEMPTS: u8 = 5;

/// A message that is repeated while its timer expires.
pub(crate) struct Repeated {
    what: &'static str,
    /// The timer's name (TS 24.501 §10.2, §10.3).
    name: &'static str,
    timer: Duration,
    left: u8,
    /// It was sent again at once, because the gNB could not deliver it.
    hastened: bool,
}

impl Repeated {
    /// A message that was just sent for the first time.
    pub(crate) fn new(what: &'static str, name: &'static str, timer: Duration) -> Self {
        Self { what, name, timer, left: ATTEMPTS, hastened: false }
    }
}

/// Awaits an input while the timer of a repeated message runs: `None` when the message is to be sent again.
pub(crate) async fn attempt(
    ue: Ue,
    repeated: &mut Repeated,
    accepts: fn(&Input) -> bool,
) -> Result<Option<Input>, End> {
    loop {
        match ue.receive_repeating(accepts, repeated.name, repeated.timer).await {
            Ok(input) => return Ok(Some(input)),
            // Sent again at once, but only once: a gNB that never delivers does not use up the attempts in a moment.
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

/// Sends a 5GMM message and repeats it until one of the accepted messages comes.
pub(crate) async fn ask(
    ue: Ue,
    message: Box<mm::Message>,
    security: Security,
    repeated: Repeated,
    accepts: fn(&Input) -> bool,
) -> Result<Box<mm::Message>, End> {
    ask_past(ue, message, security, repeated, accepts, |_| false).await
}

/// The same, where the UE may still be answering an earlier question: what is `stale` is passed over, as often as that one can have
/// been repeated.
pub(crate) async fn ask_past(
    ue: Ue,
    message: Box<mm::Message>,
    security: Security,
    mut repeated: Repeated,
    accepts: fn(&Input) -> bool,
    stale: impl Fn(&mm::Message) -> bool,
) -> Result<Box<mm::Message>, End> {
    let mut passed = 0;
    send_nas(ue, &message, security);
    loop {
        match attempt(ue, &mut repeated, accepts).await? {
            Some(Input::Mm(answer)) if passed < ATTEMPTS && stale(&answer) => {
                passed += 1;
                let subject = ue.with(|p| p.subject());
                ue.event(Event::Dropped { subject, why: Dropped::Duplicate });
            }
            Some(Input::Mm(answer)) => return Ok(answer),
            _ => send_nas(ue, &message, security),
        }
    }
}
