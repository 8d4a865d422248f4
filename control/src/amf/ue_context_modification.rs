//! UE context modification: TS 38.413 §8.3.4. The gNB gets a new K_gNB, a new UE-AMBR, new paging parameters of the UE, or a new GUAMI.

use whimbrel_ngap::Message;
use whimbrel_ngap::ie::SecurityKey;
use whimbrel_ngap::msg::UeContextModificationRequest;

use super::as_security::begin_chain;
use super::n2::{ids, send, ue_ambr};
use super::rrc_inactive;
use super::user_location::locate;
use crate::input::Input;
use crate::procedure::{Interrupt, ProcedureEnd, Ue};
use crate::refusal::Refusal;

/// K_gNB of the K_AMF that has just come into use (TS 33.501 §6.9.4.2), where the gNB has a context.
pub(crate) async fn new_key(ue: Ue) -> Result<(), ProcedureEnd> {
    let Some(mut m) = request(ue) else { return Ok(()) };
    let key = ue.with(|p| {
        let k_gnb = p.amf.security.k_amf.as_ref()?.k_gnb(p.amf.security.as_count.unwrap_or_default());
        begin_chain(&mut p.amf, &k_gnb);
        Some(SecurityKey(*k_gnb.octets()))
    });
    m.security_key = Some(key.ok_or(Refusal::NoContext)?);
    answered(ue, m).await
}

/// The UE-AMBR of a subscription that has changed (TS 23.501 §5.7.2.6), where it differs from the one that the gNB has.
pub(crate) async fn new_ambr(ue: Ue) -> Result<(), ProcedureEnd> {
    let Some(mut m) = request(ue) else { return Ok(()) };
    m.ue_aggregate_maximum_bit_rate = ue_ambr(ue, &[]);
    if m.ue_aggregate_maximum_bit_rate.is_none() {
        return Ok(());
    }
    answered(ue, m).await
}

/// Paging parameters of a UE in RRC_INACTIVE, after its 5G-GUTI or registration area has changed (TS 23.502 §4.2.4.2
/// step 2c, §4.8.1.1). If the gNB refuses them, its paging fails and the UE becomes idle.
pub(crate) async fn new_assistance(ue: Ue) -> Result<(), ProcedureEnd> {
    let Some(mut m) = request(ue) else { return Ok(()) };
    m.core_network_assistance_information_for_inactive = rrc_inactive::assistance(ue);
    if m.core_network_assistance_information_for_inactive.is_none() {
        return Ok(());
    }
    match answered(ue, m).await {
        Err(ProcedureEnd::Refused(_)) => Ok(()),
        other => other,
    }
}

/// The GUAMI of this AMF, which has taken the UE over from another one of its set: the gNB sends the UE's messages here, also when that one is unavailable. If it refuses,
/// it goes by AMF STATUS INDICATION alone.
pub(crate) async fn new_guami(ue: Ue) -> Result<(), ProcedureEnd> {
    let Some(mut m) = request(ue) else { return Ok(()) };
    m.new_guami = Some(ue.config().amf.guami());
    match answered(ue, m).await {
        Err(ProcedureEnd::Refused(_)) => Ok(()),
        other => other,
    }
}

/// The request to the gNB, if it has a UE context.
fn request(ue: Ue) -> Option<UeContextModificationRequest> {
    let there = ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.context_set_up));
    let (amf, ran) = ids(ue).filter(|_| there)?;
    Some(UeContextModificationRequest::new(amf, ran))
}

async fn answered(ue: Ue, m: UeContextModificationRequest) -> Result<(), ProcedureEnd> {
    send(ue, &m.into(), None);
    let accepts = |i: &Input| matches!(i, Input::Ngap(m) if matches!(**m, Message::UeContextModificationResponse(_) | Message::UeContextModificationFailure(_)));
    match ue.receive(accepts, ue.config().timers.gnb_answer).await {
        Ok(Input::Ngap(m)) => match *m {
            Message::UeContextModificationFailure(m) => {
                let message = "UE CONTEXT MODIFICATION FAILURE";
                Err(Refusal::RefusedByGnb { message, cause: m.cause.in_words() }.into())
            }
            Message::UeContextModificationResponse(m) => {
                m.user_location_information.iter().for_each(|place| locate(ue, place));
                m.rrc_state.iter().for_each(|state| rrc_inactive::entered(ue, *state));
                Ok(())
            }
            _ => Ok(()),
        },
        Ok(_) => Ok(()),
        Err(Interrupt::TimedOut) => {
            Err(Refusal::RadioFailure("no answer to UE CONTEXT MODIFICATION REQUEST").into())
        }
        Err(other) => Err(other.into()),
    }
}
