//! Another vendor's UDM: what the machines of UEs ask becomes operations of TS 29.503.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tracing::debug;
use whimbrel_control::udm::{
    AuthData, AuthMethod, Identity, Resynchronisation, ServiceFault, UdmAnswer, UdmError, UdmRequest, Vector,
};
use whimbrel_ids::{Dnn, Guami, PduSessionId, PlmnId, SNssai, Supi};
use whimbrel_sbi_types::common::{self as body, DateTime, NfInstanceId};
use whimbrel_sbi_types::nudm_sdm::{SdmSubscription, SmSubsData, SmfSelectionSubscriptionData};
use whimbrel_sbi_types::nudm_ueau::{
    self as ueau, AuthEvent, AuthType, AuthenticationInfoRequest, AuthenticationInfoResult,
    AuthenticationVector, ResynchronizationInfo,
};
use whimbrel_sbi_types::nudm_uecm::{
    Amf3GppAccessRegistration, Amf3GppAccessRegistrationModification, ImsVoPs, SmfRegistration,
};
use whimbrel_sbi_types::{BoundedList, from_slice, to_vec};
use whimbrel_security as security;

use super::identity::{identity_text, supi_text};
use super::peer::{Peer, Reply, RequestMethod as Method};
use super::subscription;
use crate::clock;

/// Subscriptions to changes whose identity is remembered; past this, all are forgotten, and a UDM ends them with the registration.
const SUBSCRIPTIONS_MAX: usize = 1 << 20;

/// Data networks of a subscriber, in all slices, whose data are read.
const DATA_NETWORKS_MAX: usize = 32;

/// This core's functions as the UDM knows them.
#[derive(Clone, Debug)]
pub(super) struct Consumer {
    pub(super) plmn: PlmnId,
    pub(super) guami: Guami,
    pub(super) amf: NfInstanceId,
    pub(super) smf: NfInstanceId,
    pub(super) ausf: NfInstanceId,
    pub(super) udm: NfInstanceId,
    pub(super) pcf: NfInstanceId,
    pub(super) nrf: NfInstanceId,
    pub(super) chf: NfInstanceId,
    pub(super) ims_vops: bool,
    /// The root of this core's services, and of its callbacks, without a slash at their ends.
    pub(super) root: String,
    pub(super) callback_root: String,
}

/// Another vendor's UDM, and the subscriptions to changes there.
pub(super) struct Udm {
    peer: Peer,
    consumer: Consumer,
    /// Subscriptions to changes, by the path under which each is deleted.
    subscriptions: Mutex<BTreeMap<Supi, String>>,
}

impl Udm {
    pub(super) fn new(peer: Peer, consumer: Consumer) -> Self {
        Self { peer, consumer, subscriptions: Mutex::default() }
    }

    /// Executes one request.
    pub(super) async fn answer(&self, request: &UdmRequest) -> UdmAnswer {
        match request {
            UdmRequest::GenerateAuthData { identity, resynchronisation, .. } => {
                UdmAnswer::AuthData(self.generate_auth_data(identity, resynchronisation.as_ref()).await)
            }
            UdmRequest::Register(supi) => {
                let registered = match self.register(*supi).await {
                    Ok(()) => self.subscription(*supi).await,
                    Err(error) => Err(error),
                };
                if registered.is_ok() {
                    self.subscribe(*supi).await;
                }
                UdmAnswer::Registered(registered.map(Into::into))
            }
            UdmRequest::Subscription(supi) => {
                UdmAnswer::Registered(self.subscription(*supi).await.map(Into::into))
            }
            UdmRequest::Deregister(supi) => {
                self.deregister(*supi).await;
                UdmAnswer::Deregistered
            }
            UdmRequest::ConfirmAuthentication { supi, method, success } => {
                self.confirm(*supi, *method, *success).await;
                UdmAnswer::Noted
            }
            UdmRequest::RegisterSession { supi, psi, s_nssai, dnn } => {
                self.register_session(*supi, *psi, *s_nssai, dnn).await;
                UdmAnswer::Noted
            }
            UdmRequest::DeregisterSession(supi, psi) => {
                let path = session_path(*supi, *psi);
                self.noted("Nudm_UECM_Deregistration (SMF)", Method::Delete, &path, None).await;
                UdmAnswer::Noted
            }
            // Answered by the CTA.
            UdmRequest::EnterSlices(_) | UdmRequest::RegisterGuest { .. } => UdmAnswer::Noted,
        }
    }

    /// Nudm_UEAuthentication_Get (TS 29.503 §5.4.2.2).
    async fn generate_auth_data(
        &self,
        identity: &Identity,
        resynchronisation: Option<&Resynchronisation>,
    ) -> Result<AuthData, (UdmError, Option<Supi>)> {
        let claimed = match identity {
            Identity::Supi(supi) => Some(*supi),
            Identity::Suci(suci) => suci.plain_supi(),
        };
        let of_subscriber = |error| (error, claimed);
        let name = identity_text(identity).ok_or(of_subscriber(UdmError::BadSchemeOutput))?;
        let request = AuthenticationInfoRequest {
            supported_features: None,
            serving_network_name: ueau::ServingNetworkName::of_plmn(self.consumer.plmn),
            resynchronization_info: resynchronisation.map(|token| ResynchronizationInfo {
                rand: ueau::Rand(token.rand.0),
                auts: ueau::Auts(token.auts.0),
            }),
            ausf_instance_id: self.consumer.ausf.clone(),
            cell_cag_info: None,
            n5gc_ind: None,
            nswo_ind: None,
            disaster_roaming_ind: None,
        };
        let operation = "Nudm_UEAuthentication_Get";
        let path = format!("/nudm-ueau/v1/{name}/security-information/generate-auth-data");
        let reply = self.peer.send(operation, Method::Post, &path, Some(to_vec(&request))).await;
        let reply = reply.map_err(|fault| of_subscriber(UdmError::Remote(fault)))?;
        if reply.status != 200 {
            let key_id = match identity {
                Identity::Suci(suci) => suci.key_id(),
                Identity::Supi(_) => 0,
            };
            return Err(of_subscriber(self.refused(operation, &reply, key_id)));
        }
        let unusable = |why: &str| {
            self.peer.invalid(operation, why);
            of_subscriber(UdmError::Remote(ServiceFault::InvalidAnswer))
        };
        let result: AuthenticationInfoResult =
            from_slice(&reply.body).map_err(|e| unusable(&e.to_string()))?;
        let supi = match result.supi {
            Some(supi) => supi.imsi().ok_or_else(|| unusable("its SUPI is no IMSI"))?,
            None => claimed.ok_or_else(|| unusable("it has no SUPI for this SUCI"))?,
        };
        let serving_network = security::ServingNetworkName::new(self.consumer.plmn);
        let vector = match result.authentication_vector {
            Some(AuthenticationVector::FiveGHeAka(av)) => {
                Vector::FiveGAka(Box::new(security::AuthenticationVector::from_home(
                    security::Rand(av.rand.0),
                    security::Autn(av.autn.0),
                    security::ResStar::new(av.xres_star.0),
                    security::KAusf::new(av.kausf.0),
                    &serving_network,
                )))
            }
            Some(AuthenticationVector::EapAkaPrime(av)) => {
                let xres: Option<[u8; 8]> = av.xres.octets().try_into().ok();
                let vector = security::EapAkaPrimeVector {
                    rand: security::Rand(av.rand.0),
                    autn: security::Autn(av.autn.0),
                    xres: security::milenage::Res::new(
                        xres.ok_or_else(|| unusable("its XRES has not 8 octets"))?,
                    ),
                    ck_prime: security::Ck::new(av.ck_prime.0),
                    ik_prime: security::Ik::new(av.ik_prime.0),
                    serving_network,
                };
                let identity = security::EapIdentity::new(supi, home_of(identity, self.consumer.plmn));
                Vector::EapAkaPrime(Box::new(vector), identity)
            }
            None => return Err(unusable("it has no authentication vector")),
        };
        Ok(AuthData { supi, vector })
    }

    /// Nudm_UEAuthentication_ResultConfirmation (TS 29.503 §5.4.2.3).
    async fn confirm(&self, supi: Supi, method: AuthMethod, success: bool) {
        let event = AuthEvent {
            nf_instance_id: self.consumer.ausf.clone(),
            success,
            time_stamp: now(),
            auth_type: match method {
                AuthMethod::FiveGAka => AuthType::FiveGAka,
                AuthMethod::EapAkaPrime => AuthType::EapAkaPrime,
            },
            serving_network_name: ueau::ServingNetworkName::of_plmn(self.consumer.plmn),
            auth_removal_ind: None,
            nf_set_id: None,
        };
        let path = format!("/nudm-ueau/v1/{}/auth-events", supi_text(supi));
        let operation = "Nudm_UEAuthentication_ResultConfirmation";
        let reply = self.peer.send(operation, Method::Post, &path, Some(to_vec(&event))).await;
        // One UE with a wrong SIM must not fill the log: Open5GS refuses each confirmation of a failure.
        if let Ok(reply) = reply
            && !reply.is_success()
        {
            debug!("{operation} was answered with HTTP status {}", reply.status);
        }
    }

    /// Nudm_UECM_Registration of the AMF (TS 29.503 §5.3.2.2.2).
    async fn register(&self, supi: Supi) -> Result<(), UdmError> {
        let name = supi_text(supi);
        let uri = format!("{}/{name}/deregistration", self.consumer.callback_root);
        let registration = Amf3GppAccessRegistration {
            amf_instance_id: self.consumer.amf.clone(),
            supported_features: None,
            purge_flag: None,
            pei: None,
            ims_vo_ps: Some(match self.consumer.ims_vops {
                true => ImsVoPs::HomogeneousSupport,
                false => ImsVoPs::HomogeneousNonSupport,
            }),
            dereg_callback_uri: body::Uri::new(&uri)
                .map_err(|_| UdmError::Remote(ServiceFault::InvalidAnswer))?,
            amf_service_name_dereg: None,
            pcscf_restoration_callback_uri: None,
            amf_service_name_pcscf_rest: None,
            initial_registration_ind: Some(true),
            emergency_registration_ind: None,
            guami: self.consumer.guami.into(),
            backup_amf_info: None,
            dr_flag: None,
            rat_type: body::RatType::Nr,
            urrp_indicator: None,
            amf_ee_subscription_id: None,
            eps_interworking_info: None,
            ue_srvcc_capability: None,
            registration_time: Some(now()),
            no_ee_subscription_ind: None,
            supi: None,
            ue_reachable_ind: None,
            re_registration_required: None,
            admin_dereg_sub_withdrawn: None,
            data_restoration_callback_uri: None,
            reset_ids: None,
            disaster_roaming_ind: None,
        };
        let operation = "Nudm_UECM_Registration";
        let path = format!("/nudm-uecm/v1/{name}/registrations/amf-3gpp-access");
        let reply = self.peer.send(operation, Method::Put, &path, Some(to_vec(&registration))).await;
        let reply = reply.map_err(UdmError::Remote)?;
        if reply.is_success() { Ok(()) } else { Err(self.refused(operation, &reply, 0)) }
    }

    /// Nudm_SDM_Get of the data sets that a registration and its sessions need (TS 29.503 §5.2.2.2).
    async fn subscription(&self, supi: Supi) -> Result<whimbrel_control::udm::Subscription, UdmError> {
        let name = supi_text(supi);
        let plmn = percent_encoded(&to_vec(&body::PlmnId::from(self.consumer.plmn)));
        let get = |path: String| async move {
            let operation = "Nudm_SDM_Get";
            let reply = self.peer.send(operation, Method::Get, &path, None).await;
            let reply = reply.map_err(UdmError::Remote)?;
            match reply.status {
                200 => Ok(Some(reply.body)),
                // The subscriber has no such data.
                404 if reply.cause() == Some("DATA_NOT_FOUND") => Ok(None),
                _ => Err(self.refused(operation, &reply, 0)),
            }
        };
        let of = |data_set: &str, query: &str| {
            get(format!("/nudm-sdm/v2/{name}/{data_set}?plmn-id={plmn}{query}"))
        };
        let (am, selection) = tokio::join!(of("am-data", ""), of("smf-select-data", ""));
        let unusable = |data_set: &'static str, e: whimbrel_sbi_types::BodyError| {
            self.peer.invalid("Nudm_SDM_Get", &format!("{data_set}: {e}"));
            UdmError::Remote(ServiceFault::InvalidAnswer)
        };
        let am = am?.map(|octets| from_slice(&octets)).transpose().map_err(|e| unusable("am-data", e))?;
        let selection = selection?.map(|octets| from_slice(&octets)).transpose();
        let selection: SmfSelectionSubscriptionData =
            selection.map_err(|e| unusable("smf-select-data", e))?.unwrap_or_default();
        // As an SMF asks, for a slice and a data network: without them, free5GC's answer does not name the slice.
        let mut queries = subscription::data_networks_of(&selection);
        queries.truncate(DATA_NETWORKS_MAX);
        let mut queries: Vec<String> = queries
            .iter()
            .map(|(s_nssai, dnn)| {
                let slice = percent_encoded(&to_vec(&body::Snssai::from(*s_nssai)));
                format!("&single-nssai={slice}&dnn={}", percent_encoded(dnn.as_bytes()))
            })
            .collect();
        if queries.is_empty() {
            queries.push(String::new());
        }
        let mut sessions = Vec::new();
        for query in queries {
            if let Some(octets) = of("sm-data", &query).await? {
                let data: SmSubsData = from_slice(&octets).map_err(|e| unusable("sm-data", e))?;
                sessions.extend_from_slice(data.individual());
            }
        }
        Ok(subscription::from_data_sets(&am.unwrap_or_default(), &selection, &sessions))
    }

    /// Nudm_SDM_Subscribe (TS 29.503 §5.2.2.3), once for each registration. Without it, changes come with the next registration.
    async fn subscribe(&self, supi: Supi) {
        if locked(&self.subscriptions).contains_key(&supi) {
            return;
        }
        let name = supi_text(supi);
        let resource = |data_set: &str| {
            body::Uri::new(&format!("{}/nudm-sdm/v2/{name}/{data_set}", self.peer.root_text())).ok()
        };
        let resources = ["am-data", "smf-select-data", "sm-data"].into_iter().filter_map(resource).collect();
        let callback = format!("{}/{name}/subscription", self.consumer.callback_root);
        let (Some(monitored_resource_uris), Ok(callback_reference)) =
            (BoundedList::new(resources), body::Uri::new(&callback))
        else {
            return;
        };
        let subscription = SdmSubscription {
            nf_instance_id: self.consumer.amf.clone(),
            implicit_unsubscribe: Some(true),
            expires: None,
            callback_reference: Some(callback_reference),
            amf_service_name: None,
            monitored_resource_uris,
            single_nssai: None,
            dnn: None,
            subscription_id: None,
            plmn_id: None,
            immediate_report: None,
            supported_features: None,
            nf_change_filter: None,
            unique_subscription: None,
            data_restoration_callback_uri: None,
        };
        let path = format!("/nudm-sdm/v2/{name}/sdm-subscriptions");
        let operation = "Nudm_SDM_Subscribe";
        let reply = self.noted(operation, Method::Post, &path, Some(to_vec(&subscription))).await;
        let Some(location) = reply.and_then(|reply| reply.location) else { return };
        let Some(id) = location.rsplit('/').next().filter(|id| !id.is_empty() && id.len() <= 256) else {
            return;
        };
        let mut subscriptions = locked(&self.subscriptions);
        if subscriptions.len() >= SUBSCRIPTIONS_MAX {
            subscriptions.clear();
        }
        subscriptions.insert(supi, format!("{path}/{id}"));
    }

    /// Nudm_UECM_Deregistration of the AMF (TS 29.503 §5.3.2.4.2) and Nudm_SDM_Unsubscribe.
    async fn deregister(&self, supi: Supi) {
        self.forget(supi).await;
        let change = Amf3GppAccessRegistrationModification {
            guami: self.consumer.guami.into(),
            purge_flag: Some(true),
            pei: None,
            ims_vo_ps: None,
            backup_amf_info: None,
            ue_srvcc_capability: None,
        };
        let path = format!("/nudm-uecm/v1/{}/registrations/amf-3gpp-access", supi_text(supi));
        self.noted("Nudm_UECM_Deregistration", Method::MergePatch, &path, Some(to_vec(&change))).await;
    }

    /// Nudm_SDM_Unsubscribe: the UE is no longer this AMF's.
    pub(super) async fn forget(&self, supi: Supi) {
        let subscription = locked(&self.subscriptions).remove(&supi);
        if let Some(path) = subscription {
            self.noted("Nudm_SDM_Unsubscribe", Method::Delete, &path, None).await;
        }
    }

    /// Nudm_UECM_Registration of the SMF (TS 29.503 §5.3.2.2.4).
    async fn register_session(&self, supi: Supi, psi: PduSessionId, s_nssai: SNssai, dnn: &Dnn) {
        let registration = SmfRegistration {
            smf_instance_id: self.consumer.smf.clone(),
            smf_set_id: None,
            supported_features: None,
            pdu_session_id: psi.into(),
            single_nssai: s_nssai.into(),
            dnn: Some(dnn.into()),
            emergency_services: None,
            pcscf_restoration_callback_uri: None,
            plmn_id: self.consumer.plmn.into(),
            pgw_fqdn: None,
            pgw_ip_addr: None,
            epdg_ind: None,
            dereg_callback_uri: None,
            registration_reason: None,
            registration_time: Some(now()),
            pcf_id: None,
            data_restoration_callback_uri: None,
            reset_ids: None,
        };
        let path = session_path(supi, psi);
        self.noted("Nudm_UECM_Registration (SMF)", Method::Put, &path, Some(to_vec(&registration))).await;
    }

    /// An operation whose failure is logged and has no other effect.
    async fn noted(
        &self,
        operation: &'static str,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Option<Reply> {
        let reply = self.peer.send(operation, method, path, body).await.ok()?;
        if reply.is_success() {
            return Some(reply);
        }
        self.peer.refused(operation, &reply);
        None
    }

    /// The error of a refusal (TS 29.503 §6.1.7.3, §6.2.7.3, §6.3.7.3). One that says nothing about the subscriber is logged.
    fn refused(&self, operation: &'static str, reply: &Reply, key_id: u8) -> UdmError {
        match (reply.status, reply.cause()) {
            // free5GC's UDM has DATA_NOT_FOUND for a subscriber that it does not have.
            (404, Some("USER_NOT_FOUND" | "CONTEXT_NOT_FOUND" | "DATA_NOT_FOUND") | None) => {
                UdmError::UserNotFound
            }
            (403, Some("AUTHENTICATION_REJECTED")) => UdmError::Barred,
            (403, Some("SERVING_NETWORK_NOT_AUTHORIZED")) => UdmError::ServingNetworkNotAuthorized,
            (403, Some("ROAMING_NOT_ALLOWED" | "ACCESS_NOT_ALLOWED" | "RAT_NOT_ALLOWED")) => {
                UdmError::RoamingNotAllowed
            }
            (403, Some("INVALID_HN_PUBLIC_KEY_IDENTIFIER")) => UdmError::UnknownHomeNetworkKey(key_id),
            (403, Some("INVALID_SCHEME_OUTPUT")) | (501, Some("UNSUPPORTED_PROTECTION_SCHEME")) => {
                UdmError::BadSchemeOutput
            }
            (status, _) => {
                self.peer.refused(operation, reply);
                UdmError::Remote(ServiceFault::Status(status))
            }
        }
    }
}

fn session_path(supi: Supi, psi: PduSessionId) -> String {
    format!("/nudm-uecm/v1/{}/registrations/smf-registrations/{}", supi_text(supi), psi.value())
}

/// The network of the identity, to which an EAP identity belongs.
fn home_of(identity: &Identity, own: PlmnId) -> PlmnId {
    match identity {
        Identity::Suci(whimbrel_nas::ie::Suci::Imsi { plmn, .. }) => *plmn,
        _ => own,
    }
}

/// Octets in a query (RFC 3986 §2.1).
fn percent_encoded(octets: &[u8]) -> String {
    let plain = |c: &u8| c.is_ascii_alphanumeric() || b"-._~".contains(c);
    octets.iter().map(|c| if plain(c) { char::from(*c).to_string() } else { format!("%{c:02X}") }).collect()
}

fn now() -> DateTime {
    DateTime::from_unix_ms((clock::now().0 / 1000) as i64)
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
