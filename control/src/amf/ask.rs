//! 5GMM requests to the UE, repeated until they are answered.

use whimbrel_nas::mm;

use super::n2::send_nas;
use crate::event::{Event, MessageDropReason};
use crate::input::Input;
use crate::procedure::{ATTEMPTS, ProcedureEnd, RepeatedMessage, Ue, attempt};
use crate::state::DownlinkProtection;

/// Sends a 5GMM message and repeats it until one of the accepted messages comes.
pub(crate) async fn ask(
    ue: Ue,
    message: Box<mm::Message>,
    security: DownlinkProtection,
    repeated: RepeatedMessage,
    accepts: fn(&Input) -> bool,
) -> Result<Box<mm::Message>, ProcedureEnd> {
    ask_past(ue, message, security, repeated, accepts, |_| false).await
}

/// The same, where the UE may still be answering an earlier request: inputs that `stale` recognises are ignored, as often as that
/// request may have been repeated.
pub(crate) async fn ask_past(
    ue: Ue,
    message: Box<mm::Message>,
    security: DownlinkProtection,
    mut repeated: RepeatedMessage,
    accepts: fn(&Input) -> bool,
    stale: impl Fn(&mm::Message) -> bool,
) -> Result<Box<mm::Message>, ProcedureEnd> {
    let mut passed = 0;
    send_nas(ue, &message, security);
    loop {
        match attempt(ue, &mut repeated, accepts).await? {
            Some(Input::Mm(answer)) if passed < ATTEMPTS && stale(&answer) => {
                passed += 1;
                let subject = ue.with(|p| p.subject());
                ue.event(Event::Dropped { subject, why: MessageDropReason::Duplicate });
            }
            Some(Input::Mm(answer)) => return Ok(answer),
            _ => send_nas(ue, &message, security),
        }
    }
}
