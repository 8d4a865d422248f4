//! EAP-AKA': TS 33.501 §6.1.3.1 and Annex F, TS 24.501 §5.4.1.2, RFC 9048.
//!
//! EAP-Success travels in SECURITY MODE COMMAND, EAP-Failure in AUTHENTICATION REJECT (TS 24.501 §5.4.1.2.2.4, TS 24.501 §5.4.1.2.2.5).

use whimbrel_ids::Supi;
use whimbrel_nas::ie::{EapMessage, MmCause, NgKsi};
use whimbrel_nas::mm::{self, AuthenticationRequest};
use whimbrel_security::{EapAkaPrimeServer, EapAkaPrimeVector, EapIdentity, EapRefusal, EapVerdict};

use super::ask::ask_past;
use super::authentication::{ChallengeProof, ChallengeStep, ProvedKey, abba};
use super::five_g_aka::is_answer;
use crate::procedure::{ProcedureEnd, RepeatedMessage, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::Resynchronisation;
use crate::state::DownlinkProtection;

/// One challenge (TS 33.501 §6.1.3.1 steps 3 to 11); the AUSF's part is [`EapAkaPrimeServer`]'s.
pub(super) async fn challenge(
    ue: Ue,
    supi: Supi,
    vector: Box<EapAkaPrimeVector>,
    identity: EapIdentity,
    ng_ksi: NgKsi,
    identifier: u8,
) -> Result<ChallengeStep, ProcedureEnd> {
    let name = vector.serving_network;
    let server = Box::new(EapAkaPrimeServer::new(*vector, &identity, identifier));
    let past = |m: &mm::Message| match m {
        mm::Message::AuthenticationResponse(m) => m.eap_message.as_ref().is_some_and(|e| server.is_past(e)),
        _ => false,
    };
    match *send(ue, server.challenge(), ng_ksi, past).await? {
        mm::Message::AuthenticationResponse(m) => match m.eap_message {
            Some(response) => match server.judge(&response) {
                EapVerdict::Accepted(k_ausf) => {
                    let key = ProvedKey::Seaf(k_ausf.k_seaf(&name));
                    let eap_success = EapMessage::new(server.success());
                    Ok(ChallengeStep::Proved(ChallengeProof { supi, key, eap_success, grant: None }))
                }
                EapVerdict::SynchronizationFailure(auts) => {
                    Ok(ChallengeStep::Resynchronise(Resynchronisation { rand: server.rand(), auts }))
                }
                EapVerdict::Refused(refused) => fail(ue, &server, refused, ng_ksi).await,
            },
            // An absent EAP message counts as a wrong one.
            None => fail(ue, &server, EapRefusal::WrongResponse, ng_ksi).await,
        },
        // TS 24.501 §5.4.1.2.2.10.
        mm::Message::AuthenticationFailure(f) if f.cause == MmCause::NgKsiAlreadyInUse => {
            Ok(ChallengeStep::KsiInUse)
        }
        mm::Message::AuthenticationFailure(f) => {
            let refusal = Refusal::ChallengeRefused(f.cause.value());
            Ok(ChallengeStep::Failed(refusal, EapMessage::new(server.failure(false))))
        }
        _ => Err(Refusal::Protocol("an answer that was not awaited").into()),
    }
}

/// AUTHENTICATION REQUEST with an EAP message, repeated under T3560 (TS 24.501 §5.4.1.2.2.2). Answers to an earlier EAP
/// request are ignored (RFC 3748 §4.1).
async fn send(
    ue: Ue,
    eap: Vec<u8>,
    ng_ksi: NgKsi,
    past: impl Fn(&mm::Message) -> bool,
) -> Result<Box<mm::Message>, ProcedureEnd> {
    let mut request = AuthenticationRequest::new(ng_ksi, abba()?);
    request.eap_message = EapMessage::new(eap);
    let timer = RepeatedMessage::new("AUTHENTICATION REQUEST", "T3560", ue.config().timers.t3560);
    ask_past(ue, Box::new(request.into()), DownlinkProtection::Current, timer, is_answer, past).await
}

/// RFC 4187 §6.3.1, §6.3.2: unless the UE ended the exchange itself, a notification precedes EAP-Failure.
async fn fail(
    ue: Ue,
    server: &EapAkaPrimeServer,
    refused: EapRefusal,
    ng_ksi: NgKsi,
) -> Result<ChallengeStep, ProcedureEnd> {
    let notified = matches!(refused, EapRefusal::WrongResponse | EapRefusal::Malformed(_));
    if notified {
        // Whatever the UE answers, the authentication has failed.
        let _ = send(ue, server.failure_notification(), ng_ksi, |_| false).await?;
    }
    let refusal = match refused {
        EapRefusal::WrongResponse => Refusal::WrongResponse,
        EapRefusal::AuthenticationReject => Refusal::MacFailure,
        EapRefusal::ClientError(_) => Refusal::ChallengeRefused(MmCause::ProtocolErrorUnspecified.value()),
        EapRefusal::Malformed(_) => Refusal::ChallengeRefused(MmCause::InvalidMandatoryInformation.value()),
    };
    Ok(ChallengeStep::Failed(refusal, EapMessage::new(server.failure(notified))))
}
