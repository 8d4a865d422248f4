//! Requests of AMF and AUSF to the UDM, as async calls.

use std::sync::Arc;

use whimbrel_ids::{SNssai, Supi};

use crate::envelope::Effect;
use crate::input::Input;
use crate::procedure::{Interrupt, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::{AuthData, Identity, Resynchronisation, UdmAnswer, UdmError, UdmRequest};
use crate::state::Subscription;

/// Nudm_UEAuthentication_Get: the vector of a challenge.
pub(crate) async fn auth_data(
    ue: Ue,
    identity: Identity,
    resynchronisation: Option<Resynchronisation>,
) -> Result<AuthData, ProcedureEnd> {
    let rand = ue.random();
    match ask(ue, UdmRequest::GenerateAuthData { identity, rand, resynchronisation }).await? {
        UdmAnswer::AuthData(Ok(data)) => Ok(data),
        UdmAnswer::AuthData(Err((why, supi))) => {
            ue.with(|p| p.amf.claimed = supi);
            Err(refusal(why).into())
        }
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Nudm_UECM_Registration and Nudm_SDM_Get.
pub(crate) async fn register(ue: Ue, supi: Supi) -> Result<Arc<Subscription>, ProcedureEnd> {
    match ask(ue, UdmRequest::Register(supi)).await? {
        UdmAnswer::Registered(Ok(subscription)) => Ok(subscription),
        UdmAnswer::Registered(Err(why)) => Err(refusal(why).into()),
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Nudm_SDM_Get: the subscription of a UE.
pub(crate) async fn subscription(ue: Ue, supi: Supi) -> Result<Arc<Subscription>, ProcedureEnd> {
    match ask(ue, UdmRequest::Subscription(supi)).await? {
        UdmAnswer::Registered(Ok(subscription)) => Ok(subscription),
        UdmAnswer::Registered(Err(why)) => Err(refusal(why).into()),
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Registers a broker's user under the pseudonym of its present session in place of the former one.
pub(crate) async fn register_guest(ue: Ue, supi: Supi, former: Option<Supi>) -> Result<(), ProcedureEnd> {
    match ask(ue, UdmRequest::RegisterGuest { supi, former }).await? {
        UdmAnswer::GuestRegistered => Ok(()),
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Nnsacf_NSAC_NumOfUEsUpdate: returns the slices that are full.
pub(crate) async fn enter_slices(ue: Ue, slices: Vec<(SNssai, u32)>) -> Result<Vec<SNssai>, ProcedureEnd> {
    match ask(ue, UdmRequest::EnterSlices(slices)).await? {
        UdmAnswer::Full(full) => Ok(full),
        _ => Err(Refusal::StoreUnavailable.into()),
    }
}

/// Nudm_UECM_Deregistration; nothing waits for it.
pub(crate) fn deregister(ue: Ue) {
    if let Some(supi) = ue.with(|p| p.amf.supi) {
        ue.emit(Effect::Udm(UdmRequest::Deregister(supi)), None);
    }
}

async fn ask(ue: Ue, request: UdmRequest) -> Result<UdmAnswer, ProcedureEnd> {
    let to = ue.emit(Effect::Udm(request), None);
    match ue.answer(to, ue.config().timers.guard).await {
        Ok(Input::Udm(answer)) => Ok(*answer),
        Ok(_) | Err(Interrupt::TimedOut) => Err(Refusal::StoreUnavailable.into()),
        Err(other) => Err(other.into()),
    }
}

fn refusal(why: UdmError) -> Refusal {
    match why {
        UdmError::UserNotFound => Refusal::UnknownSubscriber,
        UdmError::Barred => Refusal::Barred,
        UdmError::UnknownHomeNetworkKey(id) => Refusal::UnknownHomeNetworkKey(id),
        UdmError::OtherHomeNetwork(plmn) => Refusal::OtherHomeNetwork(plmn),
        UdmError::BadSchemeOutput => Refusal::BadSuci,
        UdmError::BadAuts => Refusal::BadAuts,
        UdmError::Unavailable => Refusal::StoreUnavailable,
    }
}
