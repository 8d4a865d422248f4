//! Notifications of other functions, at the URIs that this core gave them (TS 29.503 §5.2.2.5, §5.3.2.3). Each URI names the subscriber, and
//! is the same after a takeover of the CTA.

use std::sync::atomic::Ordering;

use hyper::{Method, StatusCode};
use whimbrel_sbi::problem::{of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse};
use whimbrel_sbi_types::nudm_sdm::ModificationNotification;
use whimbrel_sbi_types::nudm_uecm::{DeregistrationData, DeregistrationReason};

use super::identity::supi_of;
use super::{Edge, SbiInput};

/// The beginning of the path of all callbacks.
pub(super) const PATH: &str = "/callbacks/udm";

impl Edge {
    /// Answers a callback, which becomes an input of the CTA.
    pub(super) async fn callback(&self, request: &ReceivedRequest) -> SbiResponse {
        let not_found = || problem(ProtocolCause::ResourceUriStructureNotFound, "there is no such callback");
        let Some(path) = request.uri.path().strip_prefix(PATH).and_then(|path| path.strip_prefix('/')) else {
            return not_found();
        };
        let Some((subscriber, kind)) = path.split_once('/') else { return not_found() };
        if request.method != Method::POST {
            return of_status(StatusCode::METHOD_NOT_ALLOWED.as_u16(), None, "callbacks are sent by POST");
        }
        let Some(supi) = supi_of(subscriber) else {
            return problem(ProtocolCause::ResourceContextNotFound, "the path names no subscriber");
        };
        let input = match kind {
            "deregistration" => match request.read::<DeregistrationData>() {
                Ok(data) if data.dereg_reason == DeregistrationReason::SubscriptionWithdrawn => {
                    SbiInput::SubscriptionChanged(supi)
                }
                Ok(_) => SbiInput::Deregistered(supi),
                Err(refusal) => return refusal,
            },
            "subscription" => match request.read::<ModificationNotification>() {
                Ok(_) => SbiInput::SubscriptionChanged(supi),
                Err(refusal) => return refusal,
            },
            _ => return not_found(),
        };
        if matches!(input, SbiInput::Deregistered(_))
            && let Some(udm) = &self.udm
        {
            udm.forget(supi).await;
        }
        self.counts.callbacks.fetch_add(1, Ordering::Relaxed);
        if self.input.send(input).is_ok() {
            self.console.commands.wake();
        }
        SbiResponse::no_content()
    }
}
