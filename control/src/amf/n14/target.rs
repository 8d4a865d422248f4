//! The AMF that a UE comes to: TS 23.502 §4.9.1.3, TS 29.518 §5.2.2.2.3.
//!
//! Until HANDOVER NOTIFY the source AMF serves the UE, and a failure deletes all that is stored here. The subscription is read from the
//! UDM, not taken from the source.

use std::rc::Rc;
use std::time::Duration;

use whimbrel_ids::{Instant, PduSessionId, SNssai, Tai};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    Cause, CauseMisc, CauseProtocol, CauseRadioNetwork, NewSecurityContextInd, PduSessionResourceItem,
    SecurityContext, SecurityKey,
};
use whimbrel_ngap::msg::{
    DownlinkRanEarlyStatusTransfer, DownlinkRanStatusTransfer, HandoverNotify, HandoverRequestAcknowledge,
    HandoverRequired,
};
use whimbrel_ngap::transfer::HandoverResourceAllocationUnsuccessfulTransfer;

use super::{registration, send_n14};
use crate::amf::as_security::Fresh;
use crate::amf::context_setup::release_session_resources;
use crate::amf::handover::{self, FailedHandover};
use crate::amf::handover_request::request;
use crate::amf::mobility_restrictions::permitted;
use crate::amf::n2::emit;
use crate::amf::user_location::{locate, location};
use crate::amf::{end, target, udm_client};
use crate::envelope::HandoverTarget;
use crate::event::Event;
use crate::flat::{Checkpoint, FlatError};
use crate::input::Input;
use crate::n14::{
    Keys, N14Body, PeerAmfId, PreparedResources, Relation, TransferCompletion, UeContextCreateData,
};
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, Ue, out_of_state};
use crate::refusal::Refusal;
use crate::services::nsmf::{AdmittedSession, TakenOverSessions};
use crate::state::{
    AmfContext, Connection, ContextTransfer, InboundTransfer, IncomingSession, Target, UeContext, UeLocation,
    UeRadio, UeSecurity, UeSlices,
};

impl Keys {
    pub(super) fn of(fresh: &Fresh) -> Self {
        let SecurityContext { next_hop_chaining_count: ncc, next_hop_nh: nh, .. } = &fresh.context;
        Self { nh: nh.0, ncc: *ncc, new: fresh.new.is_some() }
    }

    fn fresh(&self) -> Fresh {
        Fresh {
            context: SecurityContext::new(self.ncc, SecurityKey(self.nh)),
            new: self.new.then_some(NewSecurityContextInd::True),
        }
    }
}

/// The peer AMF that awaits our answers, and the relation that they are about.
type To = (PeerAmfId, Relation);

/// The procedure's data besides the UE's context.
struct PreparedTarget {
    required: HandoverRequired,
    to: HandoverTarget,
    keys: Fresh,
    /// The connection at the source; its UE-related fields are copied to the new one.
    connection: Connection,
    coming: Vec<IncomingSession>,
    /// Sessions that are not served here, with the cause.
    refused: Vec<(PduSessionId, Cause)>,
}

/// CREATE UE CONTEXT. `to`: the target gNB of the HANDOVER REQUIRED in it, if it is connected here.
pub(crate) fn create(
    ue: Ue,
    from: PeerAmfId,
    relation: Relation,
    context: Box<UeContextCreateData>,
    to: Option<HandoverTarget>,
) {
    if ue.with(|p| p.amf.supi.is_some()) {
        return out_of_state(ue); // an incoming UE gets a slot of its own
    }
    let arrival = (from, relation);
    let prepared = match prepare(ue, &context, to) {
        Ok(prepared) => Rc::new(prepared),
        Err((cause, refusal)) => {
            not_created(ue, arrival, cause, None);
            return handover::refused(ue, refusal); // without registration, the record ends with this input
        }
    };
    ue.with(|p| {
        p.amf.mobility.context_transfer =
            Some(ContextTransfer::Inbound(InboundTransfer::new(from, relation)).into());
        p.amf.mobility.target = Some(Target::asked_for(&prepared.to).into());
    });
    let ue = ue.on(Lane::Handover);
    ue.start(Lane::Handover, Procedure::Handover, async move {
        let began = ue.now();
        match ready(ue, arrival, prepared.clone()).await {
            Ok((answer, admitted, notify)) => {
                if let Err(ProcedureEnd::Refused(refusal)) =
                    arrive(ue, arrival, &prepared, &admitted, &answer, &notify).await
                {
                    ended(ue, refusal);
                } else {
                    came(ue, began);
                }
            }
            Err(FailedHandover::Refused { cause, refusal, container, target_knows }) => {
                if let Some(target) = ue.with(|p| p.amf.mobility.target.take())
                    && !target_knows
                {
                    target::release_target(ue, &target, cause.clone());
                }
                not_created(ue, arrival, cause, container);
                ended(ue, refusal);
            }
            // The source has cancelled it, or the gNB is lost.
            Err(FailedHandover::Interrupted(_)) => {
                let cause = CauseRadioNetwork::HoFailureInTarget5GcNgranNodeOrTargetSystem;
                not_created(ue, arrival, cause.into(), None);
                ended(ue, Refusal::RadioFailure("the handover from another AMF was called off"));
            }
        }
    });
}

/// Checks a received context (TS 23.502 §4.9.1.3.2 steps 3 and 4) and takes it over.
fn prepare(
    ue: Ue,
    context: &UeContextCreateData,
    to: Option<HandoverTarget>,
) -> Result<PreparedTarget, (Cause, Refusal)> {
    let broken = |what| (CauseProtocol::SemanticError.into(), Refusal::Protocol(what));
    let refuse = |cause: CauseRadioNetwork, refusal| Err((cause.into(), refusal));
    let Ok(Message::HandoverRequired(required)) = Message::decode(&context.required) else {
        return Err(broken("a UE context without HANDOVER REQUIRED"));
    };
    let tai = handover::to_gnb(&required).map_err(|(cause, refusal)| (cause.into(), refusal))?;
    let config = ue.config();
    if !config.amf.serves(tai) {
        return refuse(CauseRadioNetwork::UnknownTargetId, Refusal::TaiNotServed(tai));
    }
    let Some(to) = to.filter(|to| to.tacs.contains(&tai.tac)) else {
        let what = "a UE context for a gNB that is not connected here, or not in that tracking area";
        return refuse(CauseRadioNetwork::UnknownTargetId, Refusal::Protocol(what));
    };
    let state = Checkpoint::from_octets(context.state.octets()).and_then(|c| c.context());
    let UeContext { amf, sessions, grant, veil, .. } = *state.map_err(|e| match e {
        FlatError::UnknownVersion(_) => broken("a UE context of another version of this program"),
        _ => broken("a UE context that cannot be read"),
    })?;
    let complete = amf.supi.is_some()
        && amf.registered
        && !amf.emergency
        && amf.security.current.is_some()
        && amf.security.k_amf.is_some()
        && amf.security.next_hop.is_some()
        && amf.ue_security_capability.is_some();
    let Some(connection) = amf.connection.as_deref().filter(|_| complete).cloned() else {
        return Err(broken("a UE context of a UE that is not connected and registered"));
    };
    let TakenOverSessions { sessions, coming, refused } =
        ue.smf().take_over_sessions(ue, sessions, &context.upfs);
    let allowed: Vec<SNssai> =
        amf.slices.allowed.iter().copied().filter(|s| config.amf.slices.contains(s)).collect();
    if allowed.is_empty() {
        let what = Refusal::Protocol("a UE context of a UE that may use none of the slices here");
        return refuse(CauseRadioNetwork::SliceNotSupported, what);
    }
    ue.with(|p| {
        p.sessions = sessions;
        (p.grant, p.veil) = (grant, veil);
        p.amf = record(amf, allowed, tai);
    });
    Ok(PreparedTarget { required, to, keys: context.keys.fresh(), connection, coming, refused })
}

/// The part of the source's context that is kept. Identities, timers and areas are assigned again when the UE
/// registers.
pub(super) fn record(amf: AmfContext, allowed_nssai: Vec<SNssai>, tai: Tai) -> AmfContext {
    AmfContext {
        supi: amf.supi,
        pei: amf.pei,
        ue_security_capability: amf.ue_security_capability,
        security: UeSecurity { proposed: None, ..amf.security },
        location: UeLocation { tai: Some(tai), is_area_check_pending: true, ..UeLocation::default() },
        slices: UeSlices {
            allowed: allowed_nssai,
            requested: amf.slices.requested,
            is_update_pending: false,
        },
        radio: UeRadio { paging_aid: None, ..amf.radio },
        ..AmfContext::default()
    }
}

/// Steps 4 to 12: asks the gNB, answers the source AMF, and awaits the UE.
async fn ready(
    ue: Ue,
    (from, relation): To,
    prepared: Rc<PreparedTarget>,
) -> Result<(Box<HandoverRequestAcknowledge>, Vec<AdmittedSession>, Box<HandoverNotify>), FailedHandover> {
    subscribed(ue).await?;
    let mut asked = request(ue, &prepared.required, &prepared.to, Some(&prepared.keys), &[])?;
    for (psi, cause) in &mut asked.refused {
        if let Some((_, why)) = prepared.refused.iter().find(|(refused, _)| refused == psi) {
            cause.clone_from(why);
        }
    }
    let mut answer = handover::resources(ue).await?;
    let (admitted, _) = handover::admit(ue, &asked, &answer)?;
    answer.pdu_session_resource_failed_to_setup_list_ho_ack.extend(asked.refused.into_iter().map(
        |(psi, cause)| {
            PduSessionResourceItem::new(
                psi,
                HandoverResourceAllocationUnsuccessfulTransfer::new(cause).to_vec(),
            )
        },
    ));
    let mut acknowledge = Vec::new();
    Message::from((*answer).clone()).encode(&mut acknowledge);
    let sessions = prepared.coming.iter().map(|c| (c.psi, c.cp_seid)).collect();
    let created = PreparedResources { acknowledge, smf: ue.config().smf.node_id, sessions };
    send_n14(ue, from, relation, N14Body::UeContextCreated(created.into()));
    handover::executing_now(ue);
    let notify = handover::notified(ue).await?;
    Ok((answer, admitted, notify))
}

/// Nudm_SDM_Get: a UE without subscription here is rejected, and its mobility restrictions are those of this UDM.
async fn subscribed(ue: Ue) -> Result<(), FailedHandover> {
    let failed = |cause: Cause, refusal| FailedHandover::early(cause, refusal);
    let Some((supi, tai)) = ue.with(|p| p.amf.supi.zip(p.amf.location.tai)) else {
        return Err(failed(CauseMisc::Unspecified.into(), Refusal::NoIdentity));
    };
    let subscription = match udm_client::subscription(ue, supi).await {
        Ok(subscription) => subscription,
        Err(ProcedureEnd::Refused(refusal)) => {
            return Err(failed(CauseRadioNetwork::HoTargetNotAllowed.into(), refusal));
        }
        Err(ProcedureEnd::Interrupted(why)) => return Err(why.into()),
    };
    ue.with(|p| p.amf.subscription = Some(subscription));
    permitted(ue, tai).map_err(|refusal| failed(CauseRadioNetwork::HoTargetNotAllowed.into(), refusal))
}

/// HANDOVER NOTIFY: from now on this AMF serves the UE (§4.9.1.3.3 steps 5 to 11).
async fn arrive(
    ue: Ue,
    (from, relation): To,
    prepared: &PreparedTarget,
    admitted: &[AdmittedSession],
    answer: &HandoverRequestAcknowledge,
    m: &HandoverNotify,
) -> Result<(), ProcedureEnd> {
    let Some(mut target) = ue.with(|p| {
        let target = p.amf.mobility.target.take()?;
        p.amf.connection = Some(Box::new(Connection {
            association: target.association,
            amf_ue_ngap_id: target.amf_ue_ngap_id,
            ran_ue_ngap_id: m.ran_ue_ngap_id,
            context_set_up: true,
            context_pending: false,
            context_requested: false,
            ambr_sent: None,
            releasing: false,
            rrc_inactive: false,
            pending_setups: Vec::new(),
            ..prepared.connection.clone()
        }));
        p.amf.registered = true;
        if let Some(ContextTransfer::Inbound(a)) = p.amf.mobility.context_transfer.as_deref_mut() {
            a.coming.clone_from(&prepared.coming);
        }
        Some(target)
    }) else {
        return Ok(());
    };
    ue.update_batch(|b| b.authenticated = true);
    target::reject_queued_path_switch(ue, &mut target);
    ue.smf().await_sessions(ue, admitted);
    if let Some(l) = m.user_location_information.as_ref().filter(|l| location(l).is_some()) {
        locate(ue, l);
    }
    send_n14(ue, from, relation, N14Body::HandoverComplete);
    target::over(ue, *target);
    for psi in handover::not_admitted(answer, admitted) {
        release_session_resources(ue, psi, None);
    }
    if let Some(supi) = ue.with(|p| p.amf.supi) {
        udm_client::register(ue, supi).await?; // Nudm_UECM_Registration
    }
    match completed(ue, (from, relation), || N14Body::HandoverComplete).await? {
        Some(TransferCompletion::HandedOver(given)) => {
            ue.smf().sessions_handed_over(ue, &prepared.coming, &given)
        }
        Some(TransferCompletion::Cancelled) => {
            return Err(Refusal::RadioFailure("the source AMF had called the handover off").into());
        }
        Some(TransferCompletion::Gone) | None => {
            ue.smf().claim_sessions(ue, &prepared.coming, admitted).await?
        }
    }
    Ok(())
}

/// How often the source is informed that the UE has arrived, and how long each attempt waits for the answer.
const ATTEMPTS: u8 = 3;
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// N2InfoNotify or RegistrationStatusUpdate is repeated until it is answered; `None`: the source does not answer.
pub(super) async fn completed(
    ue: Ue,
    (from, relation): To,
    message: impl Fn() -> N14Body,
) -> Result<Option<TransferCompletion>, Interrupt> {
    let answer = |i: &Input| matches!(i, Input::PeerAmf(b) if matches!(**b, N14Body::Completed(_)));
    for attempt in 1..=ATTEMPTS {
        match ue.receive(answer, PATIENCE).await {
            Ok(Input::PeerAmf(body)) => match *body {
                N14Body::Completed(completed) => return Ok(Some(completed)),
                _ => return Ok(None),
            },
            Ok(_) => return Ok(None),
            Err(Interrupt::TimedOut) if attempt < ATTEMPTS => {
                send_n14(ue, from, relation, message());
            }
            Err(Interrupt::TimedOut) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}

/// The handover has succeeded. The forwarding tunnels are released once forwarded packets have passed.
fn came(ue: Ue, began: Instant) {
    ue.with(|p| p.amf.mobility.context_transfer = None);
    let subject = ue.with(|p| p.subject());
    ue.event(Event::Completed { procedure: Procedure::Handover, subject, took: ue.now().since(began) });
    end::arm_inactivity_timer(ue);
    target::release_source_later(ue);
}

/// The handover failed before the UE arrived. The source SMF still has its sessions, so the UPFs get no request.
fn ended(ue: Ue, refusal: Refusal) {
    ue.with(|p| {
        p.sessions.clear();
        p.amf.mobility.context_transfer = None;
    });
    end::refused(ue, Procedure::Handover, refusal);
}

fn not_created(ue: Ue, (from, relation): To, cause: Cause, container: Option<Vec<u8>>) {
    send_n14(ue, from, relation, N14Body::not_created(cause, container));
}

/// Deletes the UE's context. If the source has not reported yet which sessions it has handed over, the UPF deletes
/// those that are this SMF's.
pub(crate) fn forget(ue: Ue) {
    let coming = ue.with(|p| p.amf.inbound().map(|a| a.coming.clone())).unwrap_or_default();
    if coming.is_empty() {
        registration::not_here(ue);
    }
    ue.smf().disown_sessions(ue, &coming);
}

/// Handles a message of the source AMF.
pub(crate) fn handle(ue: Ue, from: PeerAmfId, relation: Relation, body: N14Body) {
    let ours = ue.with(|p| p.amf.inbound().is_some_and(|a| (a.from, a.relation) == (from, relation)));
    if !ours {
        return out_of_state(ue); // of a handover that has ended
    }
    match body {
        N14Body::RanStatus(octets) => ran_status(ue, &octets),
        // The UE has arrived meanwhile: HANDOVER COMPLETE was sent, and its answer decides.
        N14Body::ReleaseUeContext if ue.with(|p| p.amf.mobility.target.is_none()) => {}
        N14Body::ReleaseUeContext => drop(target::abandon(ue)),
        body => super::deliver(ue, body),
    }
}

/// §4.9.1.3.3 step 2c.
fn ran_status(ue: Ue, octets: &[u8]) {
    let to = ue.with(|p| {
        p.amf
            .mobility
            .target
            .as_ref()
            .and_then(|t| Some((t.association, t.amf_ue_ngap_id, t.ran_ue_ngap_id?)))
    });
    let Some((association, amf, ran)) = to else { return out_of_state(ue) };
    let message: Message = match Message::decode(octets) {
        Ok(Message::UplinkRanStatusTransfer(m)) => {
            DownlinkRanStatusTransfer::new(amf, ran, m.ran_status_transfer_transparent_container).into()
        }
        Ok(Message::UplinkRanEarlyStatusTransfer(m)) => {
            DownlinkRanEarlyStatusTransfer::new(amf, ran, m.early_status_transfer_transparent_container)
                .into()
        }
        _ => return out_of_state(ue),
    };
    emit(ue, association, &message, None);
}
