//! AMFs of other vendors, as the SMF of this core uses them: Namf_Communication_N1N2MessageTransfer (TS 29.518 §5.2.2.3.1) and
//! Nsmf_PDUSession_SMContextStatusNotify (TS 29.502 §5.2.2.5).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Uri};
use tracing::warn;
use whimbrel_control::remote_amf::{
    AmfAddress, AmfOperation, AmfRequest, N1N2Transfer, N2SmKind, TransferAnswer, TransferOutcome,
};
use whimbrel_control::udm::ServiceFault;
use whimbrel_ids::PduSessionId;
use whimbrel_sbi::message::JSON;
use whimbrel_sbi::nrf::{self, DiscoveryQuery, NrfClient};
use whimbrel_sbi::{ApiRoot, SbiClient, SbiRequest, SbiResponse, SendError, headers};
use whimbrel_sbi_types::common::{
    ArpPriorityLevel, NfInstanceId, PreemptionCapability, PreemptionVulnerability, SbiArp, Uri as UriText,
};
use whimbrel_sbi_types::namf_comm::{
    N1MessageClass, N1MessageContainer, N1N2MessageTransferReqData, N2InfoContainer, N2InfoContent,
    N2InformationClass, N2SmInformation, NgapIeType,
};
use whimbrel_sbi_types::nnrf::{NfType, ServiceName};
use whimbrel_sbi_types::nsmf_pdu_session::{ResourceStatus, SmContextStatusNotification, StatusInfo};
use whimbrel_sbi_types::to_vec;

use super::SbiFigures;
use super::callbacks::AMF_PATH;
use super::identity::supi_text;
use super::offered::pdu_session::{multipart, n1_part, n2_part, reference_text};
use super::peer::fault_of;
use crate::clock;
use crate::log_limiter::LogLimiter;

const TRANSFER: &str = "Namf_Communication_N1N2MessageTransfer";
const NOTIFY: &str = "Nsmf_PDUSession_SMContextStatusNotify";

/// How often a transfer is sent while the UE registers or is handed over (409): longer than either takes.
const ATTEMPTS_MAX: usize = 10;
/// The time between two attempts.
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// AMFs of other vendors.
pub(super) struct RemoteAmfs {
    client: SbiClient,
    /// The NRF, as this core's functions use it. None: an AMF is where its notifications are.
    nrf: Vec<NrfClient>,
    uses_tokens: bool,
    within: Duration,
    /// The root of this core's callbacks.
    root: String,
    counts: Arc<SbiFigures>,
    log: Mutex<LogLimiter<(&'static str, String)>>,
}

impl RemoteAmfs {
    pub(super) fn new(
        client: SbiClient,
        nrf: Vec<NrfClient>,
        uses_tokens: bool,
        within: Duration,
        root: String,
        counts: Arc<SbiFigures>,
    ) -> Arc<Self> {
        let log = Mutex::new(LogLimiter::new("AMFs of other vendors"));
        Arc::new(Self { client, nrf, uses_tokens, within, root, counts, log })
    }

    /// Sends a request. A transfer has an answer.
    pub(super) async fn send(&self, request: &AmfRequest) -> Option<TransferAnswer> {
        match &request.operation {
            AmfOperation::Transfer(transfer) => {
                let set_up = matches!(transfer.n2, Some((N2SmKind::PduResSetupReq, _)));
                let outcome = self.transfer(request, transfer).await;
                Some(TransferAnswer { psi: request.psi, set_up, outcome })
            }
            AmfOperation::ContextReleased { uri } => {
                self.notify(uri).await;
                None
            }
        }
    }

    async fn transfer(&self, request: &AmfRequest, transfer: &N1N2Transfer) -> TransferOutcome {
        let path = format!("/namf-comm/v1/ue-contexts/{}/n1-n2-messages", supi_text(request.supi));
        let json = to_vec(&self.transfer_data(request.psi, transfer));
        let n2 = transfer.n2.as_ref().map(|(_, octets)| octets.as_slice());
        let (content_type, body) = multipart(&json, transfer.n1.as_deref(), n2);
        let mut post = SbiRequest::new(Method::POST, Uri::default(), self.within)
            .header(USER_AGENT, HeaderValue::from_static("SMF"));
        post.body = body.into();
        post.headers.insert(CONTENT_TYPE, content_type);
        for attempt in 1.. {
            let (roots, authorized) = self.roots(&request.amf, &post).await;
            let response = match self.client.send_to_any(&authorized, &path, &roots).await {
                Ok(response) => {
                    self.counts.answered.fetch_add(1, Ordering::Relaxed);
                    response
                }
                Err(e) => return TransferOutcome::Failed(self.failed(TRANSFER, &request.amf, &e)),
            };
            let cause = cause_of(&response);
            let is_temporary = cause.starts_with("TEMPORARY_REJECT");
            return match response.status.as_u16() {
                200 | 202 => TransferOutcome::Initiated,
                404 => TransferOutcome::UeUnknown,
                409 if is_temporary && attempt < ATTEMPTS_MAX => {
                    tokio::time::sleep(AGAIN_AFTER).await;
                    continue;
                }
                409 | 504 => TransferOutcome::NotReachable,
                status => {
                    let sentence =
                        format!("{TRANSFER} at the AMF {}: HTTP status {status} {cause}", request.amf.root);
                    self.log(TRANSFER, sentence);
                    TransferOutcome::Failed(ServiceFault::Status(status))
                }
            };
        }
        TransferOutcome::NotReachable
    }

    /// N1N2MessageTransferReqData (TS 29.518 §6.1.6.2.18).
    fn transfer_data(&self, psi: PduSessionId, transfer: &N1N2Transfer) -> N1N2MessageTransferReqData {
        let n1 = transfer.n1.as_ref().map(|_| N1MessageContainer {
            n1_message_class: N1MessageClass::Sm,
            n1_message_content: n1_part(),
            nf_id: None,
            service_instance_id: None,
        });
        let n2 = transfer.n2.as_ref().map(|(kind, _)| N2InfoContainer {
            n2_information_class: N2InformationClass::Sm,
            sm_info: Some(N2SmInformation {
                pdu_session_id: psi.into(),
                n2_info_content: Some(N2InfoContent {
                    ngap_message_type: None,
                    ngap_ie_type: ie_type(*kind),
                    ngap_data: n2_part(),
                }),
                s_nssai: Some(transfer.s_nssai.into()),
                subject_to_ho: None,
            }),
        });
        let sets_up = matches!(transfer.n2, Some((N2SmKind::PduResSetupReq, _)));
        let failed_at = format!("{}{AMF_PATH}/{}", self.root, reference_text(transfer.reference));
        N1N2MessageTransferReqData {
            n1_message_container: n1,
            n2_info_container: n2,
            // An idle UE is paged for its packets and for what changes, and not for the end of a session (TS 23.502 §4.3.4.2).
            skip_ind: matches!(transfer.n2, Some((N2SmKind::PduResRelCmd, _))).then_some(true),
            pdu_session_id: Some(psi.into()),
            arp: arp(transfer).filter(|_| sets_up),
            n1n2_failure_txf_notif_uri: UriText::new(&failed_at).ok().filter(|_| sets_up),
            ..N1N2MessageTransferReqData::default()
        }
    }

    /// Where the AMF is, and the request with an access token where one is needed.
    async fn roots(&self, amf: &AmfAddress, request: &SbiRequest) -> (Vec<ApiRoot>, SbiRequest) {
        let named = || amf.root.parse::<ApiRoot>().into_iter().collect::<Vec<_>>();
        let nrf = self.nrf.iter().find(|nrf| *nrf.nf_type() == NfType::Smf).or_else(|| self.nrf.first());
        let Some(nrf) = nrf else { return (named(), request.clone()) };
        let mut query = DiscoveryQuery::new(NfType::Amf, [ServiceName::NamfComm]);
        query.target_nf_instance_id = amf.instance.as_deref().and_then(|id| NfInstanceId::new(id).ok());
        query.requester_nf_type = Some(NfType::Smf);
        let mut roots = Vec::new();
        if query.target_nf_instance_id.is_some()
            && let Ok(found) = nrf.discover(&query).await
        {
            let producers = nrf::producers(&found.instances, 0);
            roots = producers.into_iter().flat_map(|p| nrf::roots_of(p, &ServiceName::NamfComm)).collect();
        }
        if roots.is_empty() {
            roots = named();
        }
        let token = match self.uses_tokens {
            true => nrf.token(&NfType::Amf, ServiceName::NamfComm.as_str()).await.ok(),
            false => None,
        };
        let authorized = token.and_then(|token| nrf::authorized(request.clone(), &token));
        (roots, authorized.unwrap_or_else(|| request.clone()))
    }

    /// The SM context was released, again if the answer is lost.
    async fn notify(&self, uri: &str) {
        let Ok(to) = uri.parse::<Uri>() else { return };
        let body = SmContextStatusNotification {
            status_info: StatusInfo { resource_status: ResourceStatus::Released, cause: None, an_type: None },
        };
        let mut request = SbiRequest::new(Method::POST, to, self.within)
            .body(JSON, to_vec(&body).into())
            .header(USER_AGENT, HeaderValue::from_static("SMF"));
        if let Some(value) = headers::callback(NOTIFY, 1) {
            request = request.header(headers::CALLBACK, value);
        }
        for attempt in 0..2 {
            match self.client.send(request.clone()).await {
                Ok(_) => {
                    self.counts.answered.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(e) if attempt > 0 => self.log(NOTIFY, format!("{NOTIFY} at {uri} fails: {e}")),
                Err(_) => {}
            }
        }
    }

    fn failed(&self, operation: &'static str, amf: &AmfAddress, e: &SendError) -> ServiceFault {
        self.log(operation, format!("{operation} at the AMF {} fails: {e}", amf.root));
        fault_of(e)
    }

    fn log(&self, operation: &'static str, sentence: String) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.allows(clock::now(), (operation, sentence.clone())) {
            warn!("{sentence}");
        }
    }
}

/// The cause of a refusal (TS 29.500 §5.2.7.2), which is beside the error in N1N2MessageTransferError.
fn cause_of(response: &SbiResponse) -> String {
    if response.status.is_success() {
        return String::new();
    }
    let direct = response.problem().cause;
    let nested =
        || response.read::<whimbrel_sbi_types::namf_comm::N1N2MessageTransferError>().ok()?.error.cause;
    let cause = direct.or_else(nested).map(|cause| cause.as_str().to_owned()).unwrap_or_default();
    cause.chars().filter(|c| c.is_ascii_uppercase() || *c == '_' || c.is_ascii_digit()).take(64).collect()
}

fn ie_type(kind: N2SmKind) -> Option<NgapIeType> {
    match kind {
        N2SmKind::PduResSetupReq => Some(NgapIeType::PduResSetupReq),
        N2SmKind::PduResRelCmd => Some(NgapIeType::PduResRelCmd),
        N2SmKind::PduResModReq => Some(NgapIeType::PduResModReq),
        _ => None, // no SMF transfers others
    }
}

fn arp(transfer: &N1N2Transfer) -> Option<SbiArp> {
    let arp = transfer.arp;
    Some(SbiArp {
        priority_level: ArpPriorityLevel::new(arp.priority)?,
        preempt_cap: match arp.may_preempt {
            true => PreemptionCapability::MayPreempt,
            false => PreemptionCapability::NotPreempt,
        },
        preempt_vuln: match arp.preemptable {
            true => PreemptionVulnerability::Preemptable,
            false => PreemptionVulnerability::NotPreemptable,
        },
    })
}
