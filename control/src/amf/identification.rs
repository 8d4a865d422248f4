//! Identification: TS 24.501 §5.4.3, TS 33.501 §6.12.4, TS 23.502 §4.2.2.2.2 steps 4 to 7.

use whimbrel_nas::ie::{IdentityType, MobileIdentity, Suci};
use whimbrel_nas::mm::{self, IdentityRequest, RegistrationRequest};

use super::ask::ask;
use crate::input::Input;
use crate::procedure::{ProcedureEnd, RepeatedMessage, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::Identity;
use crate::state::DownlinkProtection;

/// The UE's SUCI, from its request or by IDENTITY REQUEST. A 5G-GUTI without a context, here or at the AMF that assigned
/// it, does not identify the UE (TS 23.527 §6.2.2).
pub(crate) async fn identify(ue: Ue, request: &RegistrationRequest) -> Result<Identity, ProcedureEnd> {
    if let MobileIdentity::Suci(suci) = &request.mobile_identity {
        return Ok(Identity::Suci(suci.clone()));
    }
    ask_suci(ue, DownlinkProtection::Plain).await.map(Identity::Suci)
}

/// IDENTITY REQUEST for the SUCI (TS 24.501 §5.4.3.2).
pub(crate) async fn ask_suci(ue: Ue, security: DownlinkProtection) -> Result<Suci, ProcedureEnd> {
    let question = Box::new(IdentityRequest::new(IdentityType::Suci).into());
    let timer = RepeatedMessage::new("IDENTITY REQUEST", "T3570", ue.config().timers.t3570);
    let accepts = |i: &Input| matches!(i, Input::Mm(m) if matches!(**m, mm::Message::IdentityResponse(_)));
    match *ask(ue, question, security, timer, accepts).await? {
        mm::Message::IdentityResponse(m) => match m.mobile_identity {
            MobileIdentity::Suci(suci) => Ok(suci),
            _ => Err(Refusal::NoIdentity.into()),
        },
        _ => Err(Refusal::NoIdentity.into()),
    }
}
