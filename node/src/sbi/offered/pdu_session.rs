//! Nsmf_PDUSession (TS 29.502 §5.2.2): sessions of UEs that AMFs of other vendors serve. A request is an input of the UE's machine, which this core's CPFs
//! run as they run that of any UE; its answer is an output of that machine.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tracing::warn;
use whimbrel_control::remote_amf::{
    AMF_URI_OCTETS_MAX, AmfAddress, HandoverStep, N2SmKind, SmContextAnswer, SmContextCreation,
    SmContextOperation, SmContextRef, SmContextUpdate, SmContextUpdated, UserPlaneState,
};
use whimbrel_ids::{PduSessionId, Seid, Tai};
use whimbrel_sbi::problem::{congestion, of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse};
use whimbrel_sbi_types::common::{Dnn, ProblemDetails, RefToBinaryData, ShortText, UserLocation};
use whimbrel_sbi_types::multipart::{BodyPart, Multipart, NAS_5G, NGAP};
use whimbrel_sbi_types::nsmf_pdu_session::{
    HoState, SmContextCreateData, SmContextCreateError, SmContextCreatedData, SmContextReleaseData,
    SmContextUpdateData, SmContextUpdatedData, SmRequestType, UpCnxState,
};
use whimbrel_sbi_types::{from_slice, to_vec};

use super::super::SbiInput;
use super::super::identity::supi_of;
use super::super::smf::parts::{kind_of, type_of};
use super::{OfferedServices, Served, no_such_resource};
use crate::clock;
use crate::log_limiter::LogLimiter;
use crate::observation::Console;

#[cfg(test)]
#[path = "pdu_session_tests.rs"]
mod tests;

/// How long a UE's machine may take: longer than it waits for a UPF, and shorter than the server allows.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// The path of SM contexts, below the root of the services.
const COLLECTION: &str = "/nsmf-pdusession/v1/sm-contexts";

/// The identity of the part with a 5GSM message.
const N1_PART: &str = "n1SmMsg";
/// The identity of the part with N2 SM information.
const N2_PART: &str = "n2SmInfo";

/// The way of requests to the UEs' machines.
#[derive(Clone)]
pub(crate) struct SmContextInputs {
    input: mpsc::Sender<SbiInput>,
    console: Arc<Console>,
    log: Arc<Mutex<LogLimiter<String>>>,
}

impl SmContextInputs {
    pub(crate) fn new(input: mpsc::Sender<SbiInput>, console: Arc<Console>) -> Self {
        let log = LogLimiter::new("requests of AMFs of other vendors");
        Self { input, console, log: Arc::new(Mutex::new(log)) }
    }

    /// Logs a refusal, each kind once an hour.
    fn refused(&self, request: &ReceivedRequest, refusal: &SbiResponse) {
        let details = refusal.problem();
        let texts = [details.cause.map(|c| c.to_string()), details.detail.map(|d| d.to_string())];
        let texts: Vec<String> = texts.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        let sentence = format!(
            "a request of {} about an SM context is refused with HTTP status {} ({})",
            request.peer.ip(),
            refusal.status.as_u16(),
            texts.join(": ")
        );
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.allows(clock::now(), sentence.clone()) {
            warn!("{sentence}");
        }
    }

    /// The answer of the UE's machine.
    pub(crate) async fn ask(&self, operation: SmContextOperation) -> Result<SmContextAnswer, SbiResponse> {
        let (reply, answer) = oneshot::channel();
        if self.input.send(SbiInput::SmContextRequested { operation, reply }).is_err() {
            return Err(problem(ProtocolCause::SystemFailure, "this core is stopping"));
        }
        self.console.commands.wake();
        match tokio::time::timeout(ANSWERED_WITHIN, answer).await {
            Ok(Ok(answer)) => Ok(*answer),
            Ok(Err(_)) => {
                Err(congestion("too many requests about SM contexts wait for their answers", ANSWERED_WITHIN))
            }
            Err(_) => Err(problem(ProtocolCause::TimedOutRequest, "the UPF or another function is slow")),
        }
    }
}

impl OfferedServices {
    pub(super) async fn sm_contexts(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        let inputs = self.sm_context_inputs.as_ref().ok_or_else(no_such_resource)?;
        let served = self.sm_context(inputs, request, path).await;
        if let Err(refusal) = &served {
            inputs.refused(request, refusal);
        }
        served
    }

    async fn sm_context(&self, inputs: &SmContextInputs, request: &ReceivedRequest, path: &[&str]) -> Served {
        let (["sm-contexts", resource @ ..], "POST") = (path, request.method.as_str()) else {
            return Err(no_such_resource());
        };
        let operation = match resource {
            [] => {
                let body = AmfBody::<SmContextCreateData>::read(request)?;
                SmContextOperation::Create(self.creation(request, &body)?.into())
            }
            [name, "modify"] => {
                let body = AmfBody::<SmContextUpdateData>::read(request)?;
                SmContextOperation::Update(reference(name)?, self.update(request, &body)?.into())
            }
            [name, "release"] => {
                let reference = reference(name)?;
                if !request.body.is_empty() {
                    AmfBody::<SmContextReleaseData>::read(request)?;
                }
                SmContextOperation::Release(reference)
            }
            _ => return Err(no_such_resource()),
        };
        let answer = inputs.ask(operation).await?;
        Ok(response(&self.root, answer))
    }

    fn creation(
        &self,
        request: &ReceivedRequest,
        body: &AmfBody<SmContextCreateData>,
    ) -> Result<SmContextCreation, SbiResponse> {
        let data = &body.data;
        let missing = |what: &str| problem(ProtocolCause::MandatoryIeMissing, what);
        let supi = data.supi.as_ref().ok_or_else(|| missing("a session is that of its supi"))?;
        let supi = supi_of(supi.as_str()).ok_or_else(|| {
            of_status(403, Some("SUBSCRIPTION_DENIED"), "subscribers of this core have IMSIs")
        })?;
        let psi = data.pdu_session_id.ok_or_else(|| missing("pduSessionId is needed"))?;
        let psi = PduSessionId::new(psi.value())
            .ok_or_else(|| problem(ProtocolCause::MandatoryIeIncorrect, "a UE has the sessions 1 to 15"))?;
        let s_nssai = data.s_nssai.ok_or_else(|| missing("sNssai is needed"))?;
        let n1 = body.part(data.n1_sm_msg.as_ref())?.ok_or_else(|| missing("n1SmMsg is needed"))?;
        let status_uri = self.callback(request, data.sm_context_status_uri.as_str())?;
        let dnn = data.selected_dnn.as_ref().or(data.dnn.as_ref());
        Ok(SmContextCreation {
            supi,
            psi,
            s_nssai: s_nssai.into(),
            dnn: dnn.map(network_identifier).transpose()?,
            existing: matches!(
                data.request_type,
                Some(SmRequestType::ExistingPduSession | SmRequestType::ExistingEmergencyPduSession)
            ),
            n1,
            tai: tracking_area(data.ue_location.as_ref()),
            amf: amf_address(Some(data.serving_nf_id.to_string()), &status_uri)?,
            status_uri: bounded(&status_uri.to_string())?,
        })
    }

    fn update(
        &self,
        request: &ReceivedRequest,
        body: &AmfBody<SmContextUpdateData>,
    ) -> Result<SmContextUpdate, SbiResponse> {
        let data = &body.data;
        let n2 = match (body.part(data.n2_sm_info.as_ref())?, &data.n2_sm_info_type) {
            (Some(octets), Some(kind)) => {
                let kind = kind_of(kind).ok_or_else(|| {
                    problem(ProtocolCause::OptionalIeIncorrect, "this n2SmInfoType is not known here")
                })?;
                Some((kind, octets))
            }
            (Some(_), None) => {
                return Err(problem(ProtocolCause::MandatoryIeMissing, "n2SmInfo has no n2SmInfoType"));
            }
            (None, _) => None,
        };
        let status_uri = data.sm_context_status_uri.as_ref();
        let status_uri = status_uri.map(|uri| self.callback(request, uri.as_str())).transpose()?;
        let instance = data.serving_nf_id.as_ref().map(ToString::to_string);
        let amf = status_uri.as_ref().map(|uri| amf_address(instance, uri)).transpose()?;
        Ok(SmContextUpdate {
            user_plane: data.up_cnx_state.as_ref().and_then(user_plane_of),
            handover: data.ho_state.as_ref().and_then(step_of),
            n1: body.part(data.n1_sm_msg.as_ref())?,
            n2,
            failed_to_be_switched: data.failed_to_be_switched == Some(true),
            release: data.release == Some(true),
            tai: tracking_area(data.ue_location.as_ref()),
            amf,
            status_uri: status_uri.map(|uri| bounded(&uri.to_string())).transpose()?,
        })
    }
}

/// A request with its JSON body read, and its other parts.
struct AmfBody<'a, T> {
    data: T,
    parts: Option<Multipart<'a>>,
}

impl<'a, T: DeserializeOwned> AmfBody<'a, T> {
    /// A body of several parts, or JSON alone.
    fn read(request: &'a ReceivedRequest) -> Result<Self, SbiResponse> {
        let content_type = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        let is_json = content_type.trim_start().to_ascii_lowercase().starts_with("application/json");
        let parts = match is_json {
            true => None,
            false => Some(
                Multipart::read(content_type, &request.body)
                    .map_err(|e| problem(ProtocolCause::InvalidMsgFormat, &e.to_string()))?,
            ),
        };
        let json = parts.as_ref().map_or(&request.body[..], |parts| parts.json);
        let data = from_slice(json).map_err(|e| SbiResponse::from(&e))?;
        Ok(Self { data, parts })
    }

    /// The part to which the JSON body refers.
    fn part(&self, reference: Option<&RefToBinaryData>) -> Result<Option<Vec<u8>>, SbiResponse> {
        let Some(reference) = reference else { return Ok(None) };
        let part = self.parts.as_ref().and_then(|parts| parts.part(reference.content_id.as_str()));
        let part = part.ok_or_else(|| {
            problem(ProtocolCause::InvalidMsgFormat, "the body has no part with the Content-Id that it names")
        })?;
        Ok(Some(part.octets.to_vec()))
    }
}

/// Reads the name of an SM context.
///
/// Deviation: with `urn:uuid:` in front, which free5GC's AMF adds to each.
pub(crate) fn reference(name: &str) -> Result<SmContextRef, SbiResponse> {
    let unknown = || of_status(404, Some("CONTEXT_NOT_FOUND"), "there is no such SM context");
    let name = name.strip_prefix("urn:uuid:").unwrap_or(name);
    let is_name = name.len() == 16 && name.bytes().all(|c| c.is_ascii_hexdigit());
    let number = is_name.then(|| u64::from_str_radix(name, 16).ok()).flatten();
    number.map(Seid).ok_or_else(unknown)
}

/// Writes the name that [`reference`] reads.
pub(crate) fn reference_text(reference: SmContextRef) -> String {
    format!("{:016x}", reference.0)
}

/// The network identifier of a DNN, without the operator identifier that may follow (TS 23.003 §9.1).
fn network_identifier(dnn: &Dnn) -> Result<whimbrel_ids::Dnn, SbiResponse> {
    let text = dnn.as_str();
    let text = text.split_once(".mnc").map_or(text, |(identifier, _)| identifier);
    text.parse().map_err(|_| problem(ProtocolCause::OptionalIeIncorrect, "the dnn is none"))
}

fn tracking_area(location: Option<&UserLocation>) -> Option<Tai> {
    location?.nr_location.as_ref().map(|nr| (&nr.tai).into())
}

/// The AMF whose notifications have this URI.
fn amf_address(instance: Option<String>, uri: &Uri) -> Result<AmfAddress, SbiResponse> {
    let (scheme, authority) = uri
        .scheme_str()
        .zip(uri.authority())
        .ok_or_else(|| problem(ProtocolCause::MandatoryIeIncorrect, "smContextStatusUri is not absolute"))?;
    let root = bounded(&format!("{scheme}://{authority}"))?;
    Ok(AmfAddress { instance: instance.map(Into::into), root })
}

fn bounded(text: &str) -> Result<Box<str>, SbiResponse> {
    match text.len() <= AMF_URI_OCTETS_MAX {
        true => Ok(text.into()),
        false => Err(problem(ProtocolCause::MandatoryIeIncorrect, "smContextStatusUri is too long")),
    }
}

/// The response with an answer of a UE's machine.
pub(crate) fn response(root: &str, answer: SmContextAnswer) -> SbiResponse {
    match answer {
        SmContextAnswer::Created { reference, psi, s_nssai } => {
            let body = SmContextCreatedData {
                pdu_session_id: Some(psi.into()),
                s_nssai: Some(s_nssai.into()),
                ..SmContextCreatedData::default()
            };
            SbiResponse::created(&format!("{root}{COLLECTION}/{}", reference_text(reference)), &body)
        }
        SmContextAnswer::Updated(updated) => {
            let SmContextUpdated { user_plane, handover, n1, n2 } = *updated;
            let body = SmContextUpdatedData {
                up_cnx_state: user_plane.map(user_plane_name),
                ho_state: handover.map(step_name),
                n1_sm_msg: n1.as_ref().map(|_| part_named(N1_PART)),
                n2_sm_info: n2.as_ref().map(|_| part_named(N2_PART)),
                n2_sm_info_type: n2.as_ref().map(|(kind, _)| type_of(*kind)),
                ..SmContextUpdatedData::default()
            };
            match body == SmContextUpdatedData::default() {
                true => SbiResponse::no_content(),
                false => with_parts(StatusCode::OK, &body, n1.as_deref(), n2.as_ref()),
            }
        }
        SmContextAnswer::Refused { error, n1, n2 } => {
            if n1.is_none() && n2.is_none() {
                return of_status(error.status(), Some(error.as_str()), "");
            }
            let body = SmContextCreateError {
                error: ProblemDetails {
                    status: Some(error.status()),
                    cause: ShortText::new(error.as_str()).ok(),
                    ..ProblemDetails::default()
                },
                n1_sm_msg: n1.as_ref().map(|_| part_named(N1_PART)),
                n2_sm_info: n2.as_ref().map(|_| part_named(N2_PART)),
                n2_sm_info_type: n2.as_ref().map(|(kind, _)| type_of(*kind)),
                recovery_time: None,
            };
            let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::FORBIDDEN);
            with_parts(status, &body, n1.as_deref(), n2.as_ref())
        }
    }
}

fn with_parts(
    status: StatusCode,
    body: &impl Serialize,
    n1: Option<&[u8]>,
    n2: Option<&(N2SmKind, Vec<u8>)>,
) -> SbiResponse {
    if n1.is_none() && n2.is_none() {
        return SbiResponse::json(status, body);
    }
    let (content_type, octets) = multipart(&to_vec(body), n1, n2.map(|(_, octets)| octets.as_slice()));
    let mut response = SbiResponse::empty(status);
    response.body = octets.into();
    response.headers.insert(CONTENT_TYPE, content_type);
    response
}

/// A body of several parts, with its media type.
pub(crate) fn multipart(json: &[u8], n1: Option<&[u8]>, n2: Option<&[u8]>) -> (HeaderValue, Vec<u8>) {
    let n1 = n1.map(|octets| BodyPart { content_id: N1_PART, content_type: NAS_5G, octets });
    let n2 = n2.map(|octets| BodyPart { content_id: N2_PART, content_type: NGAP, octets });
    let (content_type, octets) = Multipart { json, parts: n1.into_iter().chain(n2).collect() }.write();
    (HeaderValue::try_from(content_type).expect("a boundary is of ASCII"), octets)
}

/// The reference to the part with a 5GSM message.
pub(crate) fn n1_part() -> RefToBinaryData {
    part_named(N1_PART)
}

/// The reference to the part with N2 SM information.
pub(crate) fn n2_part() -> RefToBinaryData {
    part_named(N2_PART)
}

fn part_named(name: &str) -> RefToBinaryData {
    RefToBinaryData { content_id: ShortText::new(name).expect("a short text") }
}

fn user_plane_of(state: &UpCnxState) -> Option<UserPlaneState> {
    match state {
        UpCnxState::Activated => Some(UserPlaneState::Activated),
        UpCnxState::Deactivated | UpCnxState::Suspended => Some(UserPlaneState::Deactivated),
        UpCnxState::Activating => Some(UserPlaneState::Activating),
        UpCnxState::Unknown(_) => None,
    }
}

fn user_plane_name(state: UserPlaneState) -> UpCnxState {
    match state {
        UserPlaneState::Activated => UpCnxState::Activated,
        UserPlaneState::Deactivated => UpCnxState::Deactivated,
        UserPlaneState::Activating => UpCnxState::Activating,
    }
}

fn step_of(state: &HoState) -> Option<HandoverStep> {
    match state {
        HoState::Preparing => Some(HandoverStep::Preparing),
        HoState::Prepared => Some(HandoverStep::Prepared),
        HoState::Completed => Some(HandoverStep::Completed),
        HoState::Cancelled => Some(HandoverStep::Cancelled),
        HoState::None | HoState::Unknown(_) => None,
    }
}

pub(in super::super) fn step_name(step: HandoverStep) -> HoState {
    match step {
        HandoverStep::Preparing => HoState::Preparing,
        HandoverStep::Prepared => HoState::Prepared,
        HandoverStep::Completed => HoState::Completed,
        HandoverStep::Cancelled => HoState::Cancelled,
    }
}
