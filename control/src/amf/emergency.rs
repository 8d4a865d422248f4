//! Emergency services: TS 23.501 §5.16.4.1, TS 24.501 §5.5.1.2.4 emergency, TS 24.501 §5.5.1.2.6, TS 33.501 §10.2.2, TS 23.501 §5.3.4.1.1.
//!
//! They are off unless the operator configures them. A UE that authenticates is registered with its keys; one that
//! cannot is registered only if the operator allows that too, and then with null integrity and null ciphering (TS
//! 33.501 §5.5.2).

use std::rc::Rc;

use whimbrel_nas::ie::{MobileIdentity, NgKsi, RegistrationKind};
use whimbrel_nas::mm::RegistrationRequest;

use super::authentication::{ClaimedIdentity, FailedAuthentication, HomeNetworks, authenticate};
use super::identification::ask_suci;
use super::security_mode::{Secured, secure_nas, secure_with_null_algorithms};
use crate::config::Emergency;
use crate::procedure::{ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::Identity;
use crate::state::DownlinkProtection;

/// Whether a UE registers for emergency services.
pub(crate) fn is_emergency(request: &RegistrationRequest) -> bool {
    request.registration_type.kind == RegistrationKind::Emergency
}

/// The steps before REGISTRATION ACCEPT. Area, slice and subscription are not checked (TS 23.501 §5.16.4.1).
pub(crate) async fn admission(
    ue: Ue,
    request: Rc<RegistrationRequest>,
    protected: bool,
) -> Result<Rc<RegistrationRequest>, ProcedureEnd> {
    let config = ue.config();
    let emergency = config.amf.access.emergency.as_ref().ok_or(Refusal::Emergency)?;
    let request = if protected {
        request
    } else {
        let Secured { initial_message } = secured(ue, &request, emergency.unauthenticated).await?;
        initial_message.unwrap_or(request)
    };
    enter(ue, emergency);
    Ok(request)
}

/// Marks the UE as registered for emergency services only, and ends its other sessions.
fn enter(ue: Ue, emergency: &Emergency) {
    super::session_resources::release_all(ue);
    if ue.with(|p| p.amf.subscription.is_some()) {
        super::udm_client::deregister(ue);
    }
    ue.with(|p| {
        p.amf.emergency = true;
        p.amf.subscription = None;
        (p.grant, p.veil) = (None, None);
        p.amf.slices.allowed = vec![emergency.s_nssai];
        p.amf.slices.requested = Box::default();
    });
    ue.update_batch(|b| b.authenticated = true);
}

/// Authenticates the UE and secures NAS if the UE has credentials, else uses null algorithms.
async fn secured(
    ue: Ue,
    request: &RegistrationRequest,
    unauthenticated: bool,
) -> Result<Secured, ProcedureEnd> {
    let claim = match &request.mobile_identity {
        MobileIdentity::Suci(suci) => Some(suci.clone()),
        // A UE without USIM identifies itself by its PEI (TS 24.501 §5.5.1.2.2).
        MobileIdentity::Pei(pei) => {
            ue.with(|p| p.amf.pei = Some(*pei));
            None
        }
        _ => match ask_suci(ue, DownlinkProtection::Plain).await {
            Ok(suci) => Some(suci),
            Err(ProcedureEnd::Refused(_)) => None,
            Err(interrupted) => return Err(interrupted),
        },
    };
    let Some(suci) = claim else {
        return if unauthenticated {
            secure_with_null_algorithms(ue, request).await
        } else {
            Err(Refusal::Emergency.into())
        };
    };
    let claim = ClaimedIdentity::Received(Identity::Suci(suci));
    let failure =
        if unauthenticated { FailedAuthentication::Tolerated } else { FailedAuthentication::Rejected };
    // An emergency call does not wait for a broker.
    match authenticate(ue, claim, request.ng_ksi, failure, HomeNetworks::Own).await {
        Ok((authenticated, _)) => {
            let supi = authenticated.supi;
            let secured = secure_nas(ue, Some(request), authenticated, true).await?;
            ue.with(|p| p.amf.supi = Some(supi));
            Ok(secured)
        }
        // TS 24.501 §5.4.1.3.5: the network may continue all the same.
        Err(ProcedureEnd::Refused(_)) if unauthenticated => secure_with_null_algorithms(ue, request).await,
        Err(end) => Err(end),
    }
}

/// The key set of a UE that was not authenticated (TS 24.501 §5.4.2.2).
pub(crate) const NO_KEYS_KSI: NgKsi = match NgKsi::native(0) {
    Some(ksi) => ksi,
    None => NgKsi::NO_KEY,
};
