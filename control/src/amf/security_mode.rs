//! NAS security mode control: TS 24.501 §5.4.2, TS 24.501 §4.4.2.5 (the context taken into use), TS 33.501 §6.7.2, TS 33.501 §6.8.1.1.2.

use std::rc::Rc;

use whimbrel_ids::Supi;
use whimbrel_nas::ie::{
    self, AdditionalSecurityInformation, ImeisvRequest, MobileIdentity, NgKsi, SecurityAlgorithms,
    UeSecurityCapability,
};
use whimbrel_nas::mm::{self, RegistrationRequest, SecurityModeCommand, SecurityModeComplete};
use whimbrel_security::{
    Bearer, CipheringAlgorithm, IntegrityAlgorithm, KAmf, NasCounts, NasSecurityContext, NasSide,
};

use super::ask::ask;
use super::authentication::{ABBA, Authenticated};
use super::emergency::NO_KEYS_KSI;
use crate::config::Config;
use crate::input::Input;
use crate::procedure::{ProcedureEnd, RepeatedMessage, Ue};
use crate::refusal::Refusal;
use crate::state::DownlinkProtection;

/// Proof that a NAS security context is in force for an authenticated subscriber.
pub(crate) struct Secured {
    /// The initial message, complete, as the UE sent it again under protection (TS 24.501 §4.4.6).
    pub(crate) initial_message: Option<Rc<RegistrationRequest>>,
}

/// Takes the keys of an authentication into use. `again_whole`: the UE is to repeat its complete request under them.
pub(crate) async fn secure_nas(
    ue: Ue,
    request: Option<&RegistrationRequest>,
    authenticated: Authenticated,
    again_whole: bool,
) -> Result<Secured, ProcedureEnd> {
    let capability = capability(ue, request)?;
    let algorithms = select(&ue.config(), &capability)?;
    command(ue, capability, algorithms, authenticated, again_whole).await
}

/// Null integrity and null ciphering for a UE that is not authenticated (TS 33.501 §10.2.2.2, TS 33.501 §5.5.2). Only
/// for emergency services.
pub(super) async fn secure_with_null_algorithms(
    ue: Ue,
    request: &RegistrationRequest,
) -> Result<Secured, ProcedureEnd> {
    let capability = capability(ue, Some(request))?;
    let k_amf = KAmf::new([0; 32]); // a fixed value, which is no secret
    ue.with(|p| p.amf.supi = None);
    let algorithms = (CipheringAlgorithm::Nea0, IntegrityAlgorithm::Nia0);
    let keys = Keys { supi: None, k_amf, ng_ksi: NO_KEYS_KSI, eap_success: None };
    command(ue, capability, algorithms, keys, true).await
}

/// The UE security capability in the request, or the stored one.
fn capability(ue: Ue, request: Option<&RegistrationRequest>) -> Result<UeSecurityCapability, Refusal> {
    let sent = request.and_then(|r| r.ue_security_capability);
    let none = Refusal::NoCommonAlgorithm { ciphering: 0, integrity: 0 };
    sent.or_else(|| ue.with(|p| p.amf.ue_security_capability)).ok_or(none)
}

/// The key that the command takes into use, and its subscriber.
struct Keys {
    supi: Option<Supi>,
    k_amf: KAmf,
    ng_ksi: NgKsi,
    eap_success: Option<ie::EapMessage>,
}

impl From<Authenticated> for Keys {
    fn from(a: Authenticated) -> Self {
        let Authenticated { supi, k_amf, ng_ksi, eap_success } = a;
        Self { supi: Some(supi), k_amf, ng_ksi, eap_success }
    }
}

/// SECURITY MODE COMMAND and its answer.
async fn command(
    ue: Ue,
    capability: UeSecurityCapability,
    (ciphering, integrity): (CipheringAlgorithm, IntegrityAlgorithm),
    keys: impl Into<Keys>,
    again_whole: bool,
) -> Result<Secured, ProcedureEnd> {
    let Keys { supi, k_amf, ng_ksi, eap_success } = keys.into();
    let context = NasSecurityContext::new(
        NasSide::Network,
        Bearer::NAS_3GPP,
        &k_amf,
        ciphering,
        integrity,
        NasCounts::default(),
    );
    ue.with(|p| {
        p.amf.security.proposed = Some(Box::new(context));
        p.amf.ue_security_capability = Some(capability);
    });

    let algorithms = SecurityAlgorithms {
        ciphering: ie::CipheringAlgorithm::from_u8(ciphering.identity())
            .unwrap_or(ie::CipheringAlgorithm::Nea0),
        integrity: ie::IntegrityAlgorithm::from_u8(integrity.identity())
            .unwrap_or(ie::IntegrityAlgorithm::Nia0),
    };
    let mut command = SecurityModeCommand::new(algorithms, ng_ksi, capability);
    let hides_equipment = supi.is_some_and(|s| s.is_nai());
    command.imeisv_request = (!hides_equipment).then_some(ImeisvRequest { requested: true });
    // A request without protection is to be repeated, complete, under the new keys (RINMR).
    command.additional_security =
        again_whole.then(|| AdditionalSecurityInformation::default().with_retransmission_requested(true));
    if let Some(eap_success) = eap_success {
        command.eap_message = Some(eap_success); // TS 24.501 §5.4.2.2
        command.abba = ie::Abba::new(ABBA.0);
    }
    let timer = RepeatedMessage::new("SECURITY MODE COMMAND", "T3560", ue.config().timers.t3560);
    let accepts = |i: &Input| matches!(i, Input::Mm(m) if matches!(**m, mm::Message::SecurityModeComplete(_) | mm::Message::SecurityModeReject(_)));
    let answer = ask(ue, Box::new(command.into()), DownlinkProtection::Proposed, timer, accepts).await;
    let proposed = ue.with(|p| p.amf.security.proposed.take());
    match *answer? {
        mm::Message::SecurityModeComplete(m) => {
            let now = ue.now();
            ue.with(|p| {
                p.amf.security.current = proposed;
                p.amf.supi = supi.or(p.amf.supi);
                p.amf.security.k_amf = Some(k_amf);
                p.amf.security.authenticated_at = Some(now);
                p.amf.security.registrations = 0;
                p.amf.security.ng_ksi = Some(ng_ksi);
            });
            Ok(complete(ue, m))
        }
        mm::Message::SecurityModeReject(m) => Err(Refusal::SecurityModeRejected(m.cause.value()).into()),
        _ => Err(Refusal::Protocol("an answer that was not awaited").into()),
    }
}

/// The content of SECURITY MODE COMPLETE: the IMEISV and the complete initial message.
fn complete(ue: Ue, m: SecurityModeComplete) -> Secured {
    if let Some(MobileIdentity::Pei(pei)) = m.imeisv {
        ue.with(|p| p.amf.pei = Some(pei));
    }
    let inner = m.nas_message_container.and_then(|c| mm::Message::decode(&c).ok());
    let initial_message = match inner {
        Some(mm::Message::RegistrationRequest(m)) => Some(Rc::new(m)),
        // TS 24.501 §5.4.2.4: the container has to hold the requested message.
        _ => None,
    };
    Secured { initial_message }
}

/// The first of the network's algorithms that the UE supports (TS 33.501 §6.7.1.1; TS 33.512 §4.2.2.3.2, §4.2.2.3.3,
/// §4.2.2.6.1).
fn select(
    config: &Config,
    capability: &UeSecurityCapability,
) -> Result<(CipheringAlgorithm, IntegrityAlgorithm), Refusal> {
    let ciphering = config.amf.ciphering.iter().find(|a| capability.supports_nea(a.identity()));
    let integrity = config.amf.integrity.iter().find(|a| capability.supports_nia(a.identity()));
    match (ciphering, integrity) {
        (Some(&c), Some(&i)) => Ok((c, i)),
        _ => Err(Refusal::NoCommonAlgorithm { ciphering: capability.nea(), integrity: capability.nia() }),
    }
}
