//! Notifications of other functions, at the URIs that this core gave them (TS 29.503 §5.2.2.5, §5.3.2.3). Each URI names the subscriber, and
//! is the same after a takeover of the CTA.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::{Method, StatusCode};
use tokio::sync::oneshot;
use whimbrel_control::remote_amf::SmContextOperation;
use whimbrel_control::sm_policy::PolicyNotification;
use whimbrel_ids::PduSessionId;
use whimbrel_sbi::problem::{of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse};
use whimbrel_sbi_types::namf_comm::N1N2MsgTxfrFailureNotification;
use whimbrel_sbi_types::nchf::{ChargingNotificationType, ChargingNotifyRequest};
use whimbrel_sbi_types::npcf_sm::{
    SmPolicyAssociationReleaseCause, SmPolicyNotification, SmTerminationNotification,
};
use whimbrel_sbi_types::nudm_sdm::ModificationNotification;
use whimbrel_sbi_types::nudm_uecm::{DeregistrationData, DeregistrationReason};

use super::identity::supi_of;
use super::offered::pdu_session::{self, SmContextInputs};
use super::policy::read_decision;
use super::smf::amf_services::SMF_PATH;
use super::{SbiInput, SbiThread};

/// The beginning of the path of a UDM's callbacks.
pub(super) const PATH: &str = "/callbacks/udm";

/// The beginning of the path of a CHF's callbacks; subscriber and session follow.
pub(super) const CHF_PATH: &str = "/callbacks/chf";

/// The beginning of the path of a PCF's callbacks; subscriber, session and operation follow.
pub(super) const PCF_PATH: &str = "/callbacks/pcf";

/// The beginning of the path at which AMFs report that a transfer has failed; the SM context follows.
pub(super) const AMF_PATH: &str = "/callbacks/amf";

/// How long an order of a PCF may wait for the control thread.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

impl SbiThread {
    /// Answers a callback, which becomes an input of the CTA.
    pub(super) async fn callback(&self, request: &ReceivedRequest) -> SbiResponse {
        let not_found = || problem(ProtocolCause::ResourceUriStructureNotFound, "there is no such callback");
        if let Some(path) = request.uri.path().strip_prefix(CHF_PATH).and_then(|path| path.strip_prefix('/'))
        {
            return self.charging_callback(path, request);
        }
        if let Some(path) = request.uri.path().strip_prefix(PCF_PATH).and_then(|path| path.strip_prefix('/'))
        {
            return self.policy_callback(path, request).await;
        }
        if let Some(path) = request.uri.path().strip_prefix(SMF_PATH).and_then(|path| path.strip_prefix('/'))
        {
            return self.smf_callback(path, request).await;
        }
        if let Some(path) = request.uri.path().strip_prefix(AMF_PATH).and_then(|path| path.strip_prefix('/'))
        {
            return self.amf_callback(path, request).await;
        }
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

    /// Namf_Communication_N1N2TransferFailureNotification (TS 29.518 §5.2.2.3.2).
    async fn amf_callback(&self, path: &str, request: &ReceivedRequest) -> SbiResponse {
        if request.method != Method::POST {
            return of_status(StatusCode::METHOD_NOT_ALLOWED.as_u16(), None, "callbacks are sent by POST");
        }
        let reference = match pdu_session::reference(path) {
            Ok(reference) => reference,
            Err(refusal) => return refusal,
        };
        if let Err(refusal) = request.read::<N1N2MsgTxfrFailureNotification>() {
            return refusal;
        }
        self.counts.callbacks.fetch_add(1, Ordering::Relaxed);
        let inputs = SmContextInputs::new(self.input.clone(), self.console.clone());
        match inputs.ask(SmContextOperation::TransferFailed(reference)).await {
            Ok(answer) => pdu_session::response("", answer),
            Err(refusal) => refusal,
        }
    }

    /// Nchf_ConvergedCharging_Notify (TS 32.290 §5.3.2.5).
    fn charging_callback(&self, path: &str, request: &ReceivedRequest) -> SbiResponse {
        let Some((subscriber, session)) = path.split_once('/') else {
            return problem(ProtocolCause::ResourceUriStructureNotFound, "there is no such callback");
        };
        if request.method != Method::POST {
            return of_status(StatusCode::METHOD_NOT_ALLOWED.as_u16(), None, "callbacks are sent by POST");
        }
        let psi = session.parse().ok().and_then(PduSessionId::new);
        let Some((supi, psi)) = supi_of(subscriber).zip(psi) else {
            return problem(ProtocolCause::ResourceContextNotFound, "the path names no session");
        };
        let abort = match request.read::<ChargingNotifyRequest>().map(|order| order.notification_type) {
            Ok(ChargingNotificationType::Reauthorization) => false,
            Ok(ChargingNotificationType::AbortCharging) => true,
            Ok(ChargingNotificationType::Unknown(_)) => {
                return of_status(
                    StatusCode::BAD_REQUEST.as_u16(),
                    None,
                    "this notificationType has no effect",
                );
            }
            Err(refusal) => return refusal,
        };
        self.counts.callbacks.fetch_add(1, Ordering::Relaxed);
        if self.input.send(SbiInput::ChargingNotified { supi, psi, abort }).is_ok() {
            self.console.commands.wake();
        }
        SbiResponse::no_content()
    }

    /// Npcf_SMPolicyControl_UpdateNotify (TS 29.512 §4.2.3). It is answered when the order is taken, before the session is changed, which an
    /// idle UE delays. Rules that do not come into force are reported afterwards.
    async fn policy_callback(&self, path: &str, request: &ReceivedRequest) -> SbiResponse {
        let parts: Vec<&str> = path.split('/').collect();
        if request.method != Method::POST {
            return of_status(StatusCode::METHOD_NOT_ALLOWED.as_u16(), None, "callbacks are sent by POST");
        }
        // Npcf_AMPolicyControl: what a PCF decides about a UE has no effect here.
        if let [_, "update" | "terminate"] = parts[..] {
            return SbiResponse::no_content();
        }
        let [subscriber, session, operation] = parts[..] else {
            return problem(ProtocolCause::ResourceUriStructureNotFound, "there is no such callback");
        };
        let psi = session.parse().ok().and_then(PduSessionId::new);
        let Some((supi, psi)) = supi_of(subscriber).zip(psi) else {
            return problem(ProtocolCause::ResourceContextNotFound, "the path names no session");
        };
        let notification = match operation {
            "update" => match request.read::<SmPolicyNotification>() {
                Ok(SmPolicyNotification { sm_policy_decision: Some(decision), .. }) => {
                    match read_decision(&decision, |_| ()) {
                        Ok(decision) => PolicyNotification::Changed(decision),
                        Err(why) => return problem(ProtocolCause::MandatoryIeIncorrect, why),
                    }
                }
                Ok(_) => return problem(ProtocolCause::MandatoryIeMissing, "there is no smPolicyDecision"),
                Err(refusal) => return refusal,
            },
            "terminate" => match request.read::<SmTerminationNotification>() {
                Ok(order) => PolicyNotification::Terminated {
                    reactivate: order.cause == SmPolicyAssociationReleaseCause::ReactivationRequested,
                },
                Err(refusal) => return refusal,
            },
            _ => return problem(ProtocolCause::ResourceUriStructureNotFound, "there is no such callback"),
        };
        self.counts.callbacks.fetch_add(1, Ordering::Relaxed);
        let (taken, is_taken) = oneshot::channel();
        let input = SbiInput::PolicyNotified { supi, psi, notification: notification.into(), taken };
        if self.input.send(input).is_ok() {
            self.console.commands.wake();
        }
        match tokio::time::timeout(TAKEN_WITHIN, is_taken).await {
            Ok(Ok(true)) => SbiResponse::no_content(),
            Ok(Ok(false)) => problem(ProtocolCause::ResourceContextNotFound, "the subscriber is not here"),
            Ok(Err(_)) | Err(_) => problem(ProtocolCause::NfCongestion, "the order was not taken in time"),
        }
    }
}
