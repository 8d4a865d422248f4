//! Services of this core's AMF for another vendor's SMF: Namf_Communication_N1N2MessageTransfer (TS 29.518 §5.2.2.3.1) and
//! Nsmf_PDUSession_SMContextStatusNotify (TS 29.502 §5.2.2.5).

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::header::LOCATION;
use hyper::{Method, StatusCode};
use tokio::sync::oneshot;
use whimbrel_control::sm_contexts::{N2SmKind, SmfMessage, SmfOrder};
use whimbrel_ids::{PduSessionId, Supi};
use whimbrel_sbi::problem::{of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse};
use whimbrel_sbi_types::namf_comm::{
    N1MessageClass, N1N2MessageTransferCause, N1N2MessageTransferReqData, N1N2MessageTransferRspData,
    N2InformationClass, NgapIeType,
};
use whimbrel_sbi_types::nsmf_pdu_session::{ResourceStatus, SmContextStatusNotification};

use super::super::identity::supi_of;
use super::super::offered::CallbackPolicy;
use super::super::{SbiInput, SbiThread};
use super::parts::ReceivedParts;
use super::session_path;

/// The beginning of the paths of Namf_Communication for one UE.
const UE_CONTEXTS: &str = "/namf-comm/v1/ue-contexts/";

/// The beginning of the path of an SMF's callbacks; subscriber and session follow.
pub(in super::super) const SMF_PATH: &str = "/callbacks/smf";

/// How long an order may wait for the control thread.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderOutcome {
    /// The UE is connected.
    Sent,
    /// The UE is idle, and is paged for it.
    Paging,
    /// The UE is idle, and the order is not to page it.
    NotSent,
    /// There is no such UE.
    Unknown,
}

/// The URI at which the SMF notifies the end of a session.
pub(super) fn status_uri(root: &str, supi: Supi, psi: PduSessionId) -> String {
    format!("{root}{SMF_PATH}/{}/status", session_path(supi, psi))
}

/// The URI of a message for which the UE is paged.
pub(super) fn transfer_uri(root: &str, supi: Supi, psi: PduSessionId) -> String {
    let (subscriber, psi) = (super::supi_text(supi), psi.value());
    format!("{root}{UE_CONTEXTS}{subscriber}/n1-n2-messages/{psi}")
}

impl SbiThread {
    /// Answers a request to Namf_Communication; `None` if its path is of no UE context, or the SMF is this core's.
    pub(in super::super) async fn serve_smf(&self, request: &ReceivedRequest) -> Option<SbiResponse> {
        let smf = self.smf.as_ref()?;
        let rest = request.uri.path().strip_prefix(UE_CONTEXTS)?;
        if let Err(refusal) = smf.authorization.check(
            request,
            &whimbrel_sbi_types::nnrf::NfType::Amf,
            &whimbrel_sbi_types::nnrf::ServiceName::NamfComm,
            &smf.root,
        ) {
            return Some(refusal);
        }
        let Some((subscriber, "n1-n2-messages")) = rest.split_once('/') else {
            return Some(problem(
                ProtocolCause::ResourceUriStructureNotFound,
                "this AMF has no such resource",
            ));
        };
        if request.method != Method::POST {
            let status = StatusCode::METHOD_NOT_ALLOWED.as_u16();
            return Some(of_status(status, None, "messages are sent by POST"));
        }
        let Some(supi) = supi_of(subscriber) else {
            return Some(context_not_found());
        };
        Some(match transfer(request, &smf.callbacks) {
            Ok((psi, message)) => self.pass_on(supi, psi, message).await,
            Err(refusal) => refusal,
        })
    }

    async fn pass_on(&self, supi: Supi, psi: PduSessionId, message: SmfMessage) -> SbiResponse {
        let root = self.smf.as_ref().map(|smf| smf.root.as_str()).unwrap_or_default();
        let response = |status, cause| {
            SbiResponse::json(status, &N1N2MessageTransferRspData { cause, supported_features: None })
        };
        match self.order(supi, psi, SmfOrder::Transfer(message)).await {
            Some(OrderOutcome::Sent) => response(StatusCode::OK, N1N2MessageTransferCause::TransferInitiated),
            Some(OrderOutcome::NotSent) => {
                response(StatusCode::OK, N1N2MessageTransferCause::N1MsgNotTransferred)
            }
            Some(OrderOutcome::Paging) => {
                let accepted = response(StatusCode::ACCEPTED, N1N2MessageTransferCause::AttemptingToReachUe);
                match transfer_uri(root, supi, psi).parse() {
                    Ok(location) => accepted.header(LOCATION, location),
                    Err(_) => accepted,
                }
            }
            Some(OrderOutcome::Unknown) => context_not_found(),
            None => problem(ProtocolCause::NfCongestion, "the message was not taken in time"),
        }
    }

    /// Nsmf_PDUSession_SMContextStatusNotify. `path`: what follows [`SMF_PATH`].
    pub(in super::super) async fn smf_callback(&self, path: &str, request: &ReceivedRequest) -> SbiResponse {
        let parts: Vec<&str> = path.split('/').collect();
        let [subscriber, session, "status"] = parts[..] else {
            return problem(ProtocolCause::ResourceUriStructureNotFound, "there is no such callback");
        };
        if request.method != Method::POST {
            return of_status(StatusCode::METHOD_NOT_ALLOWED.as_u16(), None, "callbacks are sent by POST");
        }
        let psi = session.parse().ok().and_then(PduSessionId::new);
        let Some((supi, psi)) = supi_of(subscriber).zip(psi) else {
            return problem(ProtocolCause::ResourceContextNotFound, "the path names no session");
        };
        match request.read::<SmContextStatusNotification>() {
            Ok(notification) if notification.status_info.resource_status == ResourceStatus::Released => {}
            // What else may have changed has no effect here.
            Ok(_) => return SbiResponse::no_content(),
            Err(refusal) => return refusal,
        }
        match self.order(supi, psi, SmfOrder::Released).await {
            Some(OrderOutcome::Unknown) => context_not_found(),
            Some(_) => SbiResponse::no_content(),
            None => problem(ProtocolCause::NfCongestion, "the notification was not taken in time"),
        }
    }

    /// An order becomes an input of the UE. `None`: the control thread does not take it.
    async fn order(&self, supi: Supi, psi: PduSessionId, order: SmfOrder) -> Option<OrderOutcome> {
        self.counts.callbacks.fetch_add(1, Ordering::Relaxed);
        let (taken, is_taken) = oneshot::channel();
        if self.input.send(SbiInput::SmfOrdered { supi, psi, order: order.into(), taken }).is_ok() {
            self.console.commands.wake();
        }
        tokio::time::timeout(TAKEN_WITHIN, is_taken).await.ok()?.ok()
    }
}

fn context_not_found() -> SbiResponse {
    of_status(StatusCode::NOT_FOUND.as_u16(), Some("CONTEXT_NOT_FOUND"), "this AMF has no such UE context")
}

/// Reads a request.
fn transfer(
    request: &ReceivedRequest,
    callbacks: &CallbackPolicy,
) -> Result<(PduSessionId, SmfMessage), SbiResponse> {
    let malformed = |why: String| problem(ProtocolCause::InvalidMsgFormat, &why);
    let received = ReceivedParts::of(request.content_type(), &request.body).map_err(malformed)?;
    let received = received.ok_or_else(|| malformed("there is no body".into()))?;
    let data: N1N2MessageTransferReqData = received.json().map_err(|e| SbiResponse::from(&e))?;
    let missing = |what: &str| problem(ProtocolCause::MandatoryIeMissing, what);
    let wrong = |what: &str| problem(ProtocolCause::MandatoryIeIncorrect, what);
    let n1 = match &data.n1_message_container {
        None => None,
        Some(n1) if n1.n1_message_class == N1MessageClass::Sm => {
            Some(received.message(&n1.n1_message_content).map_err(malformed)?)
        }
        Some(_) => return Err(wrong("n1MessageContainer: this AMF passes messages of the class SM on")),
    };
    let mut session = data.pdu_session_id;
    let n2 = match data.n2_info_container {
        None => None,
        Some(n2) if n2.n2_information_class == N2InformationClass::Sm => {
            let info = n2.sm_info.ok_or_else(|| missing("n2InfoContainer: smInfo"))?;
            session = session.or(Some(info.pdu_session_id));
            let content = info.n2_info_content.ok_or_else(|| missing("n2InfoContainer: n2InfoContent"))?;
            let kind = match content.ngap_ie_type {
                Some(NgapIeType::PduResSetupReq) => N2SmKind::PduResSetupReq,
                Some(NgapIeType::PduResRelCmd) => N2SmKind::PduResRelCmd,
                Some(NgapIeType::PduResModReq) => N2SmKind::PduResModReq,
                _ => return Err(wrong("n2InfoContainer: ngapIeType")),
            };
            Some((kind, received.message(&content.ngap_data).map_err(malformed)?))
        }
        Some(_) => return Err(wrong("n2InfoContainer: this AMF passes information of the class SM on")),
    };
    if n1.is_none() && n2.is_none() {
        return Err(missing("there is neither n1MessageContainer nor n2InfoContainer"));
    }
    let psi = session.ok_or_else(|| missing("pduSessionId"))?;
    let psi = PduSessionId::new(psi.value()).ok_or_else(|| wrong("pduSessionId"))?;
    let sender: IpAddr = request.peer.ip();
    // A URI that leads inwards gets no notification; the message itself is passed on.
    let failure_uri = data.n1n2_failure_txf_notif_uri.map(|uri| uri.as_str().to_owned());
    let failure_uri = failure_uri.filter(|uri| callbacks.check(uri, sender).is_ok());
    let priority = data.arp.map(|arp| arp.priority_level.value());
    Ok((
        psi,
        SmfMessage {
            n1,
            n2,
            skip: data.skip_ind == Some(true),
            priority,
            failure_uri: failure_uri.map(String::into_boxed_str),
        },
    ))
}
