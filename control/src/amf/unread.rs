//! Messages that are not accepted, and their answers: TS 24.501 §7.2.1, TS 24.501 §7.4, TS 24.501 §7.5.1; a faulty request is
//! rejected: TS 24.501 §5.5.1.2.8 b, TS 24.501 §5.5.1.3.8 b, TS 24.501 §5.6.1.8 b.

use whimbrel_nas::NasError;
use whimbrel_nas::ie::MmCause;
use whimbrel_nas::mm::{Message, MessageType, MmStatus, RegistrationReject, ServiceReject};

use crate::event::MessageDropReason;

/// Why a message was not accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    /// For the counters.
    pub(crate) why: MessageDropReason,
    error: Option<Erroneous>,
}

#[derive(Clone, Copy, Debug)]
struct Erroneous {
    message_type: u8,
    cause: MmCause,
    protected: bool,
}

impl From<MessageDropReason> for Unread {
    fn from(why: MessageDropReason) -> Self {
        Self { why, error: None }
    }
}

impl Unread {
    /// Of octets that are no NAS message. `protected`: their MAC verified.
    pub(super) fn of(error: &NasError, protected: bool) -> Self {
        let cause = error.message_type.zip(error.mm_cause());
        let error = cause.map(|(message_type, cause)| Erroneous { message_type, cause, protected });
        Self { why: MessageDropReason::NotNas, error }
    }

    /// The answer: a reject of a request, else 5GMM STATUS, which a UE accepts only protected (TS 24.501 §4.4.4.2).
    pub(super) fn answer(&self) -> Option<Message> {
        let Erroneous { message_type, cause, protected } = self.error?;
        match message_type {
            REGISTRATION_REQUEST => Some(RegistrationReject::new(cause).into()),
            SERVICE_REQUEST => Some(ServiceReject::new(cause).into()),
            _ => protected.then(|| MmStatus::new(cause).into()),
        }
    }
}

const REGISTRATION_REQUEST: u8 = MessageType::RegistrationRequest as u8;
const SERVICE_REQUEST: u8 = MessageType::ServiceRequest as u8;
