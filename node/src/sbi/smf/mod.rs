//! Another vendor's SMF: changes that the AMF sends it become operations of Nsmf_PDUSession (TS 29.502 §5.2.2), and what it sends to UEs and
//! gNBs comes in as Namf_Communication ([`amf_services`]).

pub(super) mod amf_services;
pub(super) mod parts;

use hyper::Uri;
use whimbrel_control::sm_contexts::{
    N2Part, NewSmContext, SmContextChange, SmfAnswer, SmfMessage, SmfOperation, SmfRequest, UePlace,
    UserPlaneChange,
};
use whimbrel_control::udm::ServiceFault;
use whimbrel_ids::{PduSessionId, Pei, Supi};
use whimbrel_ngap::ie::NgranCgi;
use whimbrel_sbi::{SbiClient, SbiRequest};
use whimbrel_sbi_types::common::{
    self as body, AccessType, NrLocation, RatType, RefToBinaryData, UserLocation,
};
use whimbrel_sbi_types::namf_comm::{N1N2MessageTransferCause, N1N2MsgTxfrFailureNotification};
use whimbrel_sbi_types::nnrf::ServiceName;
use whimbrel_sbi_types::nsmf_pdu_session::{
    SmContextCreateData, SmContextCreateError, SmContextReleaseData, SmContextUpdateData,
    SmContextUpdateError, SmContextUpdatedData, SmRequestType, UpCnxState,
};
use whimbrel_sbi_types::to_vec;

use self::parts::{MessageReferences, PartsWriter, ReceivedParts, type_of};
use super::identity::supi_text;
use super::offered::pdu_session::step_name;
use super::peer::{Peer, Reply, RequestMethod};
use super::udm::Consumer;

/// The collection of SM contexts.
const COLLECTION: &str = "/nsmf-pdusession/v1/sm-contexts";

const CREATE: &str = "Nsmf_PDUSession_CreateSMContext";
const UPDATE: &str = "Nsmf_PDUSession_UpdateSMContext";
const RELEASE: &str = "Nsmf_PDUSession_ReleaseSMContext";

/// Another vendor's SMF.
pub(super) struct RemoteSmContexts {
    peer: Peer,
    client: SbiClient,
    consumer: Consumer,
    within: std::time::Duration,
}

impl RemoteSmContexts {
    pub(super) fn new(
        peer: Peer,
        client: SbiClient,
        consumer: Consumer,
        within: std::time::Duration,
    ) -> Self {
        Self { peer, client, consumer, within }
    }

    /// Executes one request. The caller executes those of one session one after the other.
    pub(super) async fn answer(&self, request: &SmfRequest) -> SmfAnswer {
        match &request.operation {
            SmfOperation::Create(new) => self.create(request, new).await,
            SmfOperation::Update { reference, change } => self.update(reference, change).await,
            SmfOperation::Release { reference, place } => self.release(reference, place).await,
            SmfOperation::ReportFailure { uri } => self.report_failure(request, uri).await,
        }
    }

    /// Nsmf_PDUSession_CreateSMContext (TS 29.502 §5.2.2.2).
    async fn create(&self, request: &SmfRequest, new: &NewSmContext) -> SmfAnswer {
        let mut parts = PartsWriter::default();
        let n1 = parts.n1(&new.n1);
        let (content_type, octets) = parts.write(&to_vec(&self.create_data(request, new, n1)));
        let body = Some((content_type, octets));
        let reply = match self.peer.send_body(CREATE, RequestMethod::Post, COLLECTION, body).await {
            Ok(reply) => reply,
            Err(fault) => return SmfAnswer::Failed(fault),
        };
        if !reply.is_success() {
            return self.refused::<SmContextCreateError>(CREATE, &reply);
        }
        match reply.created_in(COLLECTION) {
            Some(reference) => SmfAnswer::Created { reference: reference.into() },
            None => self.unusable(CREATE, "its Location names no SM context"),
        }
    }

    /// Nsmf_PDUSession_UpdateSMContext (TS 29.502 §5.2.2.3).
    async fn update(&self, reference: &str, change: &SmContextChange) -> SmfAnswer {
        let path = format!("{COLLECTION}/{reference}/modify");
        let mut parts = PartsWriter::default();
        let data = update_data(change, &mut parts);
        let body = Some(parts.write(&to_vec(&data)));
        let reply = match self.peer.send_body(UPDATE, RequestMethod::Post, &path, body).await {
            Ok(reply) => reply,
            Err(fault) => return SmfAnswer::Failed(fault),
        };
        if !reply.is_success() {
            return self.refused::<SmContextUpdateError>(UPDATE, &reply);
        }
        match read_message::<SmContextUpdatedData>(&reply) {
            Ok(message) => SmfAnswer::Done(message.into()),
            Err(why) => self.unusable(UPDATE, &why),
        }
    }

    /// Nsmf_PDUSession_ReleaseSMContext (TS 29.502 §5.2.2.4), again if the answer is lost.
    async fn release(&self, reference: &str, place: &UePlace) -> SmfAnswer {
        let path = format!("{COLLECTION}/{reference}/release");
        let data = SmContextReleaseData { ue_location: location(place), ..SmContextReleaseData::default() };
        for _ in 0..2 {
            let sent = self.peer.send(RELEASE, RequestMethod::Post, &path, Some(to_vec(&data))).await;
            if !matches!(sent, Err(ServiceFault::TimedOut | ServiceFault::NotConnected)) {
                break;
            }
        }
        SmfAnswer::Done(Box::default())
    }

    /// N1N2TransferFailureNotification (TS 29.518 §5.2.2.3.2), to the URI that came with the message: it was checked then.
    async fn report_failure(&self, request: &SmfRequest, uri: &str) -> SmfAnswer {
        let location = amf_services::transfer_uri(&self.consumer.root, request.supi, request.psi);
        let uris = uri.parse::<Uri>().ok().zip(body::Uri::new(&location).ok());
        if let Some((uri, n1n2_msg_data_uri)) = uris {
            let cause = N1N2MessageTransferCause::UeNotResponding;
            let notification = N1N2MsgTxfrFailureNotification { cause, n1n2_msg_data_uri };
            // It is sent once, as notifications are.
            let _ = self.client.send(SbiRequest::post(uri, &notification, self.within)).await;
        }
        SmfAnswer::Done(Box::default())
    }

    /// A refusal, with its messages for UE and gNB.
    fn refused<T: MessageReferences>(&self, operation: &'static str, reply: &Reply) -> SmfAnswer {
        let message = read_message::<T>(reply).unwrap_or_default();
        // With a message for the UE, it is this session that is refused.
        if message.n1.is_none() || reply.status >= 500 {
            self.peer.refused(operation, reply);
        }
        SmfAnswer::Refused { status: reply.status, message: message.into() }
    }

    fn unusable(&self, operation: &'static str, why: &str) -> SmfAnswer {
        self.peer.invalid(operation, why);
        SmfAnswer::Failed(ServiceFault::InvalidAnswer)
    }

    /// SmContextCreateData (TS 29.502 §6.1.6.2.2).
    fn create_data(
        &self,
        request: &SmfRequest,
        new: &NewSmContext,
        n1: RefToBinaryData,
    ) -> SmContextCreateData {
        let status_uri = amf_services::status_uri(&self.consumer.root, request.supi, request.psi);
        let request_type = match (new.emergency, new.existing) {
            (true, true) => SmRequestType::ExistingEmergencyPduSession,
            (true, false) => SmRequestType::InitialEmergencyRequest,
            (false, true) => SmRequestType::ExistingPduSession,
            (false, false) => SmRequestType::InitialRequest,
        };
        SmContextCreateData {
            supi: Some(request.supi.into()),
            unauthenticated_supi: None,
            pei: new.pei.and_then(pei),
            gpsi: None,
            pdu_session_id: Some(request.psi.into()),
            dnn: Some((&new.dnn).into()),
            selected_dnn: None,
            s_nssai: Some(new.s_nssai.into()),
            hplmn_snssai: None,
            serving_nf_id: self.consumer.amf.clone(),
            guami: Some(self.consumer.guami.into()),
            service_name: Some(ServiceName::NamfComm),
            serving_network: self.consumer.plmn.into(),
            request_type: Some(request_type),
            n1_sm_msg: Some(n1),
            an_type: AccessType::ThreeGppAccess,
            rat_type: Some(RatType::Nr),
            presence_in_ladn: None,
            ue_location: location(&new.place),
            ue_time_zone: None,
            sm_context_status_uri: body::Uri::new(&status_uri)
                .unwrap_or_else(|_| body::Uri::new("/").expect("a URI")),
            old_pdu_session_id: None,
            pcf_id: None,
            nrf_uri: None,
            supported_features: None,
            sel_mode: None,
            backup_amf_info: None,
            routing_indicator: None,
        }
    }
}

/// SmContextUpdateData (TS 29.502 §6.1.6.2.4).
fn update_data(change: &SmContextChange, parts: &mut PartsWriter) -> SmContextUpdateData {
    let up_cnx_state = change.user_plane.map(|to| match to {
        UserPlaneChange::Activating => UpCnxState::Activating,
        UserPlaneChange::Deactivated => UpCnxState::Deactivated,
    });
    let ho_state = change.handover.map(step_name);
    SmContextUpdateData {
        an_type: Some(AccessType::ThreeGppAccess),
        ue_location: location(&change.place),
        up_cnx_state,
        ho_state,
        to_be_switched: change.path_switch.filter(|to_be_switched| *to_be_switched),
        failed_to_be_switched: change.path_switch.filter(|switched| !switched).map(|_| true),
        n1_sm_msg: change.n1.as_deref().map(|n1| parts.n1(n1)),
        n2_sm_info_type: change.n2.as_ref().map(|(kind, _)| type_of(*kind)),
        n2_sm_info: change.n2.as_ref().map(|(_, octets)| parts.n2(octets)),
        ..SmContextUpdateData::default()
    }
}

/// The messages of an answer. free5GC writes `jsonData` around the body of some answers, and an answer without parts has no messages.
fn read_message<T: MessageReferences>(reply: &Reply) -> Result<SmfMessage, String> {
    let Some(received) = ReceivedParts::of(&reply.content_type, &reply.body)? else {
        return Ok(SmfMessage::default());
    };
    let (n1, n2) = received.messages::<T>()?;
    let n2: Option<N2Part> = n2;
    Ok(SmfMessage { n1, n2, ..SmfMessage::default() })
}

/// The place of a UE: an SMF needs tracking area and cell.
fn location(place: &UePlace) -> Option<UserLocation> {
    let (tai, cell) = place.tai.zip(place.cell.as_ref())?;
    let NgranCgi::NrCgi(cell) = cell else { return None };
    let ncgi = body::Ncgi {
        plmn_id: cell.plmn_identity.into(),
        nr_cell_id: cell.nr_cell_identity.into(),
        nid: None,
    };
    let nr_location = NrLocation {
        tai: tai.into(),
        ncgi,
        age_of_location_information: None,
        ue_location_timestamp: None,
        geographical_information: None,
        geodetic_information: None,
        global_gnb_id: None,
    };
    Some(UserLocation { eutra_location: None, nr_location: Some(nr_location), n3ga_location: None })
}

fn pei(pei: Pei) -> Option<body::Pei> {
    let digits: String = pei.digits().map(|d| char::from(b'0' + d)).collect();
    let kind = if pei.is_imeisv() { "imeisv" } else { "imei" };
    body::Pei::new(&format!("{kind}-{digits}")).ok()
}

/// Path of a session in URIs that this core gives to the SMF.
fn session_path(supi: Supi, psi: PduSessionId) -> String {
    format!("{}/{}", supi_text(supi), psi.value())
}
