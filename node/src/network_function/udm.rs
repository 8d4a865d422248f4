//! The UDM: it reveals SUCIs, generates authentication vectors, and gives subscriptions (TS 29.503).

use whimbrel_control::UeId;
use whimbrel_control::udm::{Directory, UdmAnswer, UdmError, UdmRequest};
use whimbrel_ids::Instant;
use whimbrel_resilience::link::{FunctionAnswer, FunctionOrder, FunctionRequest};

use super::{LOOKED_EVERY, Producer, RequestId};
use crate::config::Config;
use crate::core::StoredSubscribers;
use crate::subscribers;

/// Registrations are the CTA's matter.
const NO_UE: UeId = UeId { slot: 0, generation: 0 };

/// Subscribers, and the keys of the home network.
pub(super) struct UdmProducer {
    directory: Directory,
    subscribers: StoredSubscribers,
    refresh_at: Instant,
}

impl UdmProducer {
    /// Opens the store. Errors: one sentence.
    pub(super) fn open(config: &Config) -> Result<Self, String> {
        let directory =
            Directory::new(config.amf.plmn, config.home_network_keys()).with_sqn_slot(config.store.sqn_slot);
        let subscribers = StoredSubscribers::new(subscribers::open(&config.store)?);
        Ok(Self { directory, subscribers, refresh_at: Instant::ZERO })
    }

    fn answer(&mut self, now: Instant, request: &UdmRequest) -> UdmAnswer {
        let request = match request {
            UdmRequest::Register(supi) => UdmRequest::Subscription(*supi),
            UdmRequest::Deregister(_) => return UdmAnswer::Deregistered,
            UdmRequest::RegisterGuest { .. } => return UdmAnswer::GuestRegistered,
            other => other.clone(),
        };
        self.directory.handle(now, NO_UE, request, &mut self.subscribers).answer
    }
}

impl Producer for UdmProducer {
    fn handle(&mut self, now: Instant, _from: RequestId, request: FunctionRequest) -> Option<FunctionAnswer> {
        let FunctionRequest::Udm(request) = request else { return None };
        // The CTA asks because the store has changed.
        if matches!(request, UdmRequest::Subscription(_)) {
            // A store that fails says so with the request.
            let _ = self.subscribers.refresh();
        }
        let mut answer = self.answer(now, &request);
        let is_unknown = matches!(
            answer,
            UdmAnswer::AuthData(Err((UdmError::UserNotFound, _)))
                | UdmAnswer::Registered(Err(UdmError::UserNotFound))
        );
        // The subscriber may have been added a moment ago.
        if is_unknown
            && self.subscribers.refresh().is_ok_and(|changes| changes != whimbrel_store::Changes::None)
        {
            answer = self.answer(now, &request);
        }
        Some(FunctionAnswer::Udm(answer))
    }

    fn turn(&mut self, now: Instant) -> (Vec<(RequestId, FunctionAnswer)>, Vec<FunctionOrder>) {
        if self.refresh_at <= now {
            self.refresh_at = now + LOOKED_EVERY;
            let _ = self.subscribers.refresh();
            // The CTA's replica reads the same store.
            self.subscribers.saved();
        }
        (Vec::new(), Vec::new())
    }
}
