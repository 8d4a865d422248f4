//! Services that this core offers to network functions of other vendors: its UDM (TS 29.503), its AUSF (TS 29.509) and its PCF (TS 29.512), over
//! the subscribers of its store, its CHF (TS 32.291), over the accounts of its charging function, and its SMF (TS 29.502).

mod ausf;
mod authorization;
mod callback_uri;
mod charging;
mod context_management;
mod data_management;
pub(super) mod pdu_session;
mod policy_control;
#[cfg(test)]
mod policy_control_tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderValue, USER_AGENT};
use whimbrel_control::config::DataNetwork;
use whimbrel_control::udm::{AuthData, Identity, Resynchronisation, Subscription, UdmError};
use whimbrel_ids::{Dnn, PlmnId, Supi};
use whimbrel_sbi::headers;
use whimbrel_sbi::message::JSON;
use whimbrel_sbi::problem::{of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiClient, SbiRequest, SbiResponse};
use whimbrel_sbi_types::nnrf::{NfType, ServiceName};
use whimbrel_sbi_types::nudm_ueau;
use whimbrel_sbi_types::nudm_ueau::{
    self as ueau, AuthEvent, AuthType, AuthenticationInfoRequest, AuthenticationInfoResult,
    AuthenticationVector, Av5GHeAka, AvEapAkaPrime, AvType,
};
use whimbrel_security as security;
use whimbrel_store::{Store, SubscriberStatus};

use self::ausf::Ausf;
pub(super) use self::authorization::ServiceAuthorization;
pub(super) use self::callback_uri::{CallbackPolicy, is_of_this_host};
use self::context_management::Registrations;
use self::data_management::Subscriptions;
use self::pdu_session::SmContextInputs;
use self::policy_control::PolicyAssociations;
use super::chf::ChfHandle;
use super::identity::identity_of;
use super::udm::Consumer;
use crate::config::sbi::{OfferedService, Sbi};
use crate::observation::{Console, ConsoleCommand};

/// How long another function may take to answer a notification.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(5);

/// The services that are offered, with their state.
pub(super) struct OfferedServices {
    services: Vec<OfferedService>,
    plmn: PlmnId,
    /// The root of this core's services, without a slash at its end.
    root: String,
    authorization: ServiceAuthorization,
    callbacks: CallbackPolicy,
    store: Mutex<Store>,
    form: SubscriptionForm,
    console: Arc<Console>,
    client: SbiClient,
    ausf: Ausf,
    registrations: Mutex<Registrations>,
    subscriptions: Mutex<Subscriptions>,
    policies: PolicyAssociations,
    /// The charging function, where it is offered.
    chf: Option<ChfHandle>,
    /// The way to the UEs' machines, where the SMF is offered.
    sm_context_inputs: Option<SmContextInputs>,
}

/// The NF type of a function, as access tokens name it.
fn nf_type_of(function: OfferedService) -> NfType {
    match function {
        OfferedService::Udm => NfType::Udm,
        OfferedService::Ausf => NfType::Ausf,
        OfferedService::Pcf => NfType::Pcf,
        OfferedService::Smf => NfType::Smf,
        OfferedService::Nrf => NfType::Nrf,
        OfferedService::Chf => NfType::Chf,
    }
}

/// Makes the control plane's form of a subscription in the store.
pub type SubscriptionForm = fn(&whimbrel_store::Subscription) -> Subscription;

/// The result of a service operation.
type Served = Result<SbiResponse, SbiResponse>;

impl OfferedServices {
    pub(super) fn new(
        services: Vec<OfferedService>,
        plmn: PlmnId,
        root: String,
        (authorization, callbacks): (ServiceAuthorization, CallbackPolicy),
        (store, form): (Store, SubscriptionForm),
        (console, client): (Arc<Console>, SbiClient),
        data_networks: BTreeMap<Dnn, DataNetwork>,
    ) -> Self {
        Self {
            services,
            plmn,
            root,
            authorization,
            callbacks,
            store: Mutex::new(store),
            form,
            console,
            client,
            ausf: Ausf::default(),
            registrations: Mutex::default(),
            subscriptions: Mutex::default(),
            policies: PolicyAssociations::new(data_networks),
            chf: None,
            sm_context_inputs: None,
        }
    }

    /// Has requests for charging answered by this function.
    pub(super) fn use_chf(&mut self, chf: ChfHandle) {
        self.chf = Some(chf);
    }

    /// Has requests about SM contexts answered by the UEs' machines.
    pub(super) fn use_sm_contexts(&mut self, inputs: SmContextInputs) {
        self.sm_context_inputs = Some(inputs);
    }

    /// Answers a request; `None` if its path is of no service that is offered.
    pub(super) async fn serve(&self, request: &ReceivedRequest) -> Option<SbiResponse> {
        let mut parts = request.uri.path().trim_start_matches('/').split('/');
        let (api, version) = (parts.next()?, parts.next()?);
        let rest: Vec<&str> = parts.collect();
        let (function, service) = match (api, version) {
            ("nausf-auth", "v1") => (OfferedService::Ausf, ServiceName::NausfAuth),
            ("nchf-convergedcharging", "v3") => (OfferedService::Chf, ServiceName::NchfConvergedcharging),
            ("nudm-ueau", "v1") => (OfferedService::Udm, ServiceName::NudmUeau),
            ("nudm-uecm", "v1") => (OfferedService::Udm, ServiceName::NudmUecm),
            ("nudm-sdm", "v2") => (OfferedService::Udm, ServiceName::NudmSdm),
            ("npcf-smpolicycontrol", "v1") => (OfferedService::Pcf, ServiceName::NpcfSmpolicycontrol),
            ("npcf-am-policy-control", "v1") => (OfferedService::Pcf, ServiceName::NpcfAmPolicyControl),
            ("nsmf-pdusession", "v1") => (OfferedService::Smf, ServiceName::NsmfPdusession),
            _ => return None,
        };
        if !self.services.contains(&function) {
            return None;
        }
        if let Err(refusal) = self.authorization.check(request, &nf_type_of(function), &service, &self.root) {
            return Some(refusal);
        }
        let served = match service {
            ServiceName::NausfAuth => self.authenticate(request, &rest).await,
            ServiceName::NchfConvergedcharging => self.converged_charging(request, &rest).await,
            ServiceName::NudmUeau => self.ue_authentication(request, &rest).await,
            ServiceName::NudmUecm => self.context_management(request, &rest).await,
            ServiceName::NpcfSmpolicycontrol => self.session_policies(request, &rest),
            ServiceName::NpcfAmPolicyControl => self.ue_policies(request, &rest),
            ServiceName::NsmfPdusession => self.sm_contexts(request, &rest).await,
            _ => self.data_management(request, &rest).await,
        };
        Some(served.unwrap_or_else(|refusal| refusal))
    }

    /// Nudm_UEAuthentication (TS 29.503 §6.3.3).
    async fn ue_authentication(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        match (request.method.as_str(), path) {
            ("POST", [subscriber, "security-information", "generate-auth-data"]) => {
                let info: AuthenticationInfoRequest = request.read()?;
                let identity = identity_of(subscriber).ok_or_else(user_not_found)?;
                let token = info.resynchronization_info.as_ref();
                let data = self.auth_data(identity, &info.serving_network_name, token).await?;
                let (auth_type, vector) = match data.vector {
                    whimbrel_control::udm::Vector::FiveGAka(av) => {
                        let vector = Av5GHeAka {
                            av_type: AvType::FiveGHeAka,
                            rand: ueau::Rand(av.rand.0),
                            xres_star: ueau::XresStar(*av.xres_star.octets()),
                            autn: ueau::Autn(av.autn.0),
                            kausf: ueau::Kausf(*av.k_ausf.octets()),
                        };
                        (AuthType::FiveGAka, AuthenticationVector::FiveGHeAka(vector))
                    }
                    whimbrel_control::udm::Vector::EapAkaPrime(av, _) => {
                        let xres = ueau::Xres::new(av.xres.octets());
                        let vector = AvEapAkaPrime {
                            av_type: AvType::EapAkaPrime,
                            rand: ueau::Rand(av.rand.0),
                            xres: xres.ok_or_else(system_failure)?,
                            autn: ueau::Autn(av.autn.0),
                            ck_prime: ueau::CkPrime(*av.ck_prime.octets()),
                            ik_prime: ueau::IkPrime(*av.ik_prime.octets()),
                        };
                        (AuthType::EapAkaPrime, AuthenticationVector::EapAkaPrime(vector))
                    }
                };
                let result = AuthenticationInfoResult {
                    auth_type,
                    supported_features: None,
                    authentication_vector: Some(vector),
                    supi: Some(data.supi.into()),
                    akma_ind: None,
                    auth_aaa: None,
                    routing_id: None,
                };
                Ok(SbiResponse::json(hyper::StatusCode::OK, &result))
            }
            ("POST", [subscriber, "auth-events"]) => {
                let event: AuthEvent = request.read()?;
                let supi = super::identity::supi_of(subscriber).ok_or_else(user_not_found)?;
                self.subscription(supi)?;
                let location = format!(
                    "{}/nudm-ueau/v1/{subscriber}/auth-events/{}",
                    self.root,
                    event.time_stamp.unix_ms()
                );
                Ok(SbiResponse::created(&location, &event))
            }
            ("PUT" | "DELETE", [_, "auth-events", _]) => Ok(SbiResponse::no_content()),
            _ => Err(no_such_resource()),
        }
    }

    /// A vector for a subscriber. The serving network has to be this one.
    async fn auth_data(
        &self,
        identity: Identity,
        serving_network: &nudm_ueau::ServingNetworkName,
        resynchronisation: Option<&nudm_ueau::ResynchronizationInfo>,
    ) -> Result<AuthData, SbiResponse> {
        if *serving_network != ueau::ServingNetworkName::of_plmn(self.plmn) {
            let detail = format!("{serving_network} is not the network of this UDM");
            return Err(of_status(403, Some("SERVING_NETWORK_NOT_AUTHORIZED"), &detail));
        }
        let token = resynchronisation.map(|token| Resynchronisation {
            rand: security::Rand(token.rand.0),
            auts: security::Auts(token.auts.0),
        });
        let asked =
            self.console.commands.ask(|reply| ConsoleCommand::GenerateAuthData(identity, token, reply));
        match asked.await {
            Ok(Ok(data)) => Ok(data),
            Ok(Err(error)) => Err(refusal_of(error)),
            Err(e) => Err(problem(ProtocolCause::NfCongestion, &e.to_string())),
        }
    }

    /// The subscription in the store.
    fn subscription(&self, supi: Supi) -> Result<Subscription, SbiResponse> {
        let mut store = self.store.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let record = store.get(supi).map_err(|e| {
            tracing::error!("{e}");
            system_failure()
        })?;
        match record {
            Some(record) if record.status == SubscriberStatus::Enabled => {
                Ok((self.form)(&record.subscription))
            }
            Some(_) => Err(of_status(403, Some("ACCESS_NOT_ALLOWED"), "the subscriber is barred")),
            None => Err(user_not_found()),
        }
    }

    /// The URI of a notification, where it may be used.
    fn callback(&self, request: &ReceivedRequest, uri: &str) -> Result<Uri, SbiResponse> {
        let checked = self.callbacks.check(uri, request.peer.ip());
        checked.map_err(|why| problem(ProtocolCause::MandatoryIeIncorrect, why))
    }

    /// Reads the keys of access tokens again. Errors: one sentence.
    pub(super) fn reload_keys(&self, sbi: &Sbi, consumer: &Consumer) -> Result<(), String> {
        self.authorization.reload(sbi, consumer)
    }

    /// Sends a notification; a failure is for the log alone. `what`: its name in TS 29.500 Annex B.
    fn notify(
        &self,
        (function, what): (&'static str, &'static str),
        api_version: u8,
        uri: Uri,
        body: Vec<u8>,
    ) {
        let client = self.client.clone();
        tokio::spawn(async move {
            let to = uri.clone();
            let mut request = SbiRequest::new(hyper::Method::POST, uri, NOTIFIED_WITHIN)
                .body(JSON, body.into())
                .header(USER_AGENT, HeaderValue::from_static(function));
            if let Some(value) = headers::callback(what, api_version) {
                request = request.header(headers::CALLBACK, value);
            }
            match client.send(request).await {
                Ok(response) if response.status.is_success() => {}
                Ok(response) => tracing::debug!("{what} to {to}: HTTP status {}", response.status.as_u16()),
                Err(e) => tracing::debug!("{what} to {to}: {e}"),
            }
        });
    }
}

/// The refusal of an authentication (TS 29.503 §6.3.7.3).
fn refusal_of(error: UdmError) -> SbiResponse {
    match error {
        UdmError::UserNotFound => user_not_found(),
        UdmError::Barred => of_status(403, Some("AUTHENTICATION_REJECTED"), "the subscriber is barred"),
        UdmError::UnknownHomeNetworkKey(id) => {
            let detail = format!("home network key {id} is not configured");
            of_status(403, Some("INVALID_HN_PUBLIC_KEY_IDENTIFIER"), &detail)
        }
        UdmError::OtherHomeNetwork(plmn) => {
            of_status(404, Some("USER_NOT_FOUND"), &format!("the home network is {plmn}"))
        }
        UdmError::BadSchemeOutput => {
            of_status(403, Some("INVALID_SCHEME_OUTPUT"), "the SUCI does not decrypt")
        }
        UdmError::BadAuts => {
            of_status(403, Some("AUTHENTICATION_REJECTED"), "AUTS was made with another key")
        }
        UdmError::ServingNetworkNotAuthorized => of_status(403, Some("SERVING_NETWORK_NOT_AUTHORIZED"), ""),
        UdmError::RoamingNotAllowed => of_status(403, Some("ROAMING_NOT_ALLOWED"), ""),
        UdmError::Unavailable | UdmError::Remote(_) => system_failure(),
    }
}

fn user_not_found() -> SbiResponse {
    of_status(404, Some("USER_NOT_FOUND"), "there is no such subscriber")
}

fn system_failure() -> SbiResponse {
    problem(ProtocolCause::SystemFailure, "the subscriber store failed")
}

fn no_such_resource() -> SbiResponse {
    problem(ProtocolCause::ResourceUriStructureNotFound, "there is no such resource or method")
}

/// Sixteen unpredictable octets.
fn random() -> [u8; 16] {
    let mut octets = [0; 16];
    // It fails on systems without a source of entropy alone, on which the core does not start.
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut octets);
    octets
}

/// An unpredictable number.
pub(super) fn random_number() -> u64 {
    (u128::from_be_bytes(random()) >> 64) as u64
}

/// The name of a resource that cannot be guessed.
pub(super) fn random_name() -> String {
    random().iter().map(|octet| format!("{octet:02x}")).collect()
}
