//! The check of the equipment's identity: TS 23.502 §4.2.2.2.2 steps 11 and 12, TS 24.501 §5.4.3.2.

use whimbrel_nas::ie::{IdentityType, MobileIdentity};
use whimbrel_nas::mm::{self, IdentityRequest};

use super::ask::ask;
use crate::input::Input;
use crate::procedure::{ProcedureEnd, RepeatedMessage, Ue};
use crate::refusal::Refusal;
use crate::state::DownlinkProtection;

/// N5g-eir_EquipmentIdentityCheck, by the operator's list. If the list is not empty and SECURITY MODE COMPLETE had no
/// IMEISV, the UE is asked for it, under protection.
pub(crate) async fn check(ue: Ue) -> Result<(), ProcedureEnd> {
    let config = ue.config();
    // A broker's UE does not reveal its equipment, which would link its sessions to each other.
    if config.amf.access.refused_equipment.is_empty() || ue.with(|p| p.amf.supi.is_some_and(|s| s.is_nai())) {
        return Ok(());
    }
    if ue.with(|p| p.amf.pei.is_none()) {
        let question = Box::new(IdentityRequest::new(IdentityType::Imeisv).into());
        let timer = RepeatedMessage::new("IDENTITY REQUEST", "T3570", config.timers.t3570);
        let accepts =
            |i: &Input| matches!(i, Input::Mm(m) if matches!(**m, mm::Message::IdentityResponse(_)));
        let answer = ask(ue, question, DownlinkProtection::Current, timer, accepts).await?;
        if let mm::Message::IdentityResponse(m) = *answer
            && let MobileIdentity::Pei(pei) = m.mobile_identity
        {
            ue.with(|p| p.amf.pei = Some(pei));
        }
    }
    match ue.with(|p| p.amf.pei) {
        Some(pei) if config.amf.access.refuses(pei) => Err(Refusal::EquipmentRefused.into()),
        // Without a PEI, the UE cannot be found on the list (TS 23.501 §5.2.2).
        None => Err(Refusal::EquipmentUnknown.into()),
        Some(_) => Ok(()),
    }
}
