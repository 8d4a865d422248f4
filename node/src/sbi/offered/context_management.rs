//! Nudm_UEContextManagement (TS 29.503 §5.3, §6.2): which AMF and SMF serve a subscriber. Registrations are not on the disk: after a restart,
//! AMFs register again with their UEs' next registration.

use std::collections::BTreeMap;

use hyper::{StatusCode, Uri};
use whimbrel_ids::Supi;
use whimbrel_sbi::problem::{of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse};
use whimbrel_sbi_types::common::AccessType;
use whimbrel_sbi_types::nudm_uecm::{
    Amf3GppAccessRegistration, Amf3GppAccessRegistrationModification, DeregistrationData,
    DeregistrationReason, SmfRegistration, SmfRegistrationInfo,
};
use whimbrel_sbi_types::{BoundedList, to_vec};

use super::super::identity::supi_of;
use super::{OfferedServices, Served, no_such_resource, user_not_found};
use crate::observation::ConsoleCommand;

/// Subscribers whose registrations are kept: as many as an AMF may have UEs (`limits.ues`).
const SUBSCRIBERS_MAX: usize = 1 << 20;
/// Sessions of a UE (TS 24.501 §9.4).
const SESSIONS_MAX: usize = 15;

/// The registrations, by subscriber.
#[derive(Default)]
pub(super) struct Registrations(BTreeMap<Supi, OfSubscriber>);

#[derive(Default)]
struct OfSubscriber {
    amf: Option<(Amf3GppAccessRegistration, Uri)>,
    smfs: BTreeMap<u8, SmfRegistration>,
}

impl Registrations {
    fn entry(&mut self, supi: Supi) -> Result<&mut OfSubscriber, SbiResponse> {
        if self.0.len() >= SUBSCRIBERS_MAX && !self.0.contains_key(&supi) {
            return Err(problem(ProtocolCause::InsufficientResources, "too many UEs are registered"));
        }
        Ok(self.0.entry(supi).or_default())
    }

    /// The sessions of a subscriber.
    pub(super) fn sessions(&self, supi: Supi) -> impl Iterator<Item = (u8, &SmfRegistration)> {
        self.0.get(&supi).into_iter().flat_map(|of| of.smfs.iter().map(|(psi, smf)| (*psi, smf)))
    }

    fn tidy(&mut self, supi: Supi) {
        if self.0.get(&supi).is_some_and(|of| of.amf.is_none() && of.smfs.is_empty()) {
            self.0.remove(&supi);
        }
    }
}

impl OfferedServices {
    pub(super) async fn context_management(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        let [subscriber, "registrations", rest @ ..] = path else { return Err(no_such_resource()) };
        let supi = supi_of(subscriber).ok_or_else(user_not_found)?;
        let registered = || self.registrations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let location = || format!("{}{}", self.root, request.uri.path());
        let none = || of_status(404, Some("CONTEXT_NOT_FOUND"), "there is no such registration");
        match (request.method.as_str(), rest) {
            ("PUT", ["amf-3gpp-access"]) => {
                let registration: Amf3GppAccessRegistration = request.read()?;
                self.subscription(supi)?;
                let callback = self.callback(request, registration.dereg_callback_uri.as_str())?;
                let former = registered().entry(supi)?.amf.replace((registration.clone(), callback));
                // The AMF of this core may have the UE, too (TS 23.502 §4.2.2.2.2 step 14d).
                let _ = self.console.commands.send(ConsoleCommand::DeregisteredByUdm(supi));
                match former {
                    None => Ok(SbiResponse::created(&location(), &registration)),
                    Some((former, to)) => {
                        if former.amf_instance_id != registration.amf_instance_id {
                            self.deregister_at(to, DeregistrationReason::UeInitialRegistration);
                        }
                        Ok(SbiResponse::json(StatusCode::OK, &registration))
                    }
                }
            }
            ("GET", ["amf-3gpp-access"]) => {
                let all = registered();
                let (amf, _) = all.0.get(&supi).and_then(|of| of.amf.as_ref()).ok_or_else(none)?;
                Ok(SbiResponse::json(StatusCode::OK, amf))
            }
            ("PATCH", ["amf-3gpp-access"]) => {
                let change: Amf3GppAccessRegistrationModification = request.read()?;
                let mut all = registered();
                let of = all.0.get_mut(&supi).ok_or_else(none)?;
                let (amf, _) = of.amf.as_mut().ok_or_else(none)?;
                if amf.guami != change.guami {
                    return Err(of_status(403, Some("INVALID_GUAMI"), "the UE is registered at another AMF"));
                }
                if change.purge_flag == Some(true) {
                    of.amf = None;
                    all.tidy(supi);
                } else {
                    amf.pei = change.pei.or(amf.pei.take());
                    amf.ims_vo_ps = change.ims_vo_ps.or(amf.ims_vo_ps.take());
                }
                Ok(SbiResponse::no_content())
            }
            ("PUT", ["smf-registrations", psi]) => {
                let registration: SmfRegistration = request.read()?;
                self.subscription(supi)?;
                let psi: u8 =
                    psi.parse().ok().filter(|psi| *psi == registration.pdu_session_id.value()).ok_or_else(
                        || {
                            problem(
                                ProtocolCause::MandatoryIeIncorrect,
                                "the path names another session than the body",
                            )
                        },
                    )?;
                let mut all = registered();
                let of = all.entry(supi)?;
                if of.smfs.len() >= SESSIONS_MAX && !of.smfs.contains_key(&psi) {
                    return Err(problem(ProtocolCause::InsufficientResources, "the UE has 15 sessions"));
                }
                match of.smfs.insert(psi, registration.clone()) {
                    None => Ok(SbiResponse::created(&location(), &registration)),
                    Some(_) => Ok(SbiResponse::json(StatusCode::OK, &registration)),
                }
            }
            ("GET", ["smf-registrations"]) => {
                let all = registered();
                let list = BoundedList::new(all.sessions(supi).map(|(_, smf)| smf.clone()).collect())
                    .ok_or_else(none)?;
                Ok(SbiResponse::json(StatusCode::OK, &SmfRegistrationInfo { smf_registration_list: list }))
            }
            ("GET", ["smf-registrations", psi]) => {
                let all = registered();
                let found = all.sessions(supi).find(|(own, _)| psi.parse() == Ok(*own));
                Ok(SbiResponse::json(StatusCode::OK, found.ok_or_else(none)?.1))
            }
            ("DELETE", ["smf-registrations", psi]) => {
                let mut all = registered();
                let of = all.0.get_mut(&supi).ok_or_else(none)?;
                psi.parse().ok().and_then(|psi: u8| of.smfs.remove(&psi)).ok_or_else(none)?;
                all.tidy(supi);
                Ok(SbiResponse::no_content())
            }
            _ => Err(no_such_resource()),
        }
    }

    /// A subscriber has registered at the AMF of this core: another one deletes its UE (TS 23.502 §4.2.2.2.2 step 14d).
    pub(crate) fn registered_here(&self, supi: Supi) {
        let mut all = self.registrations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let former = all.0.get_mut(&supi).and_then(|of| of.amf.take());
        all.tidy(supi);
        drop(all);
        if let Some((_, to)) = former {
            self.deregister_at(to, DeregistrationReason::UeInitialRegistration);
        }
    }

    /// A subscriber is gone from the store: its AMF deregisters the UE (TS 23.502 §4.2.2.3.3).
    pub(super) fn withdrawn(&self, supi: Supi) {
        let mut all = self.registrations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let amf = all.0.remove(&supi).and_then(|of| of.amf);
        drop(all);
        if let Some((_, to)) = amf {
            self.deregister_at(to, DeregistrationReason::SubscriptionWithdrawn);
        }
    }

    fn deregister_at(&self, to: Uri, dereg_reason: DeregistrationReason) {
        let data = DeregistrationData {
            dereg_reason,
            access_type: Some(AccessType::ThreeGppAccess),
            pdu_session_id: None,
            new_smf_instance_id: None,
        };
        self.notify(("UDM", "Nudm_UECM_DeregistrationNotification"), 1, to, to_vec(&data));
    }
}
