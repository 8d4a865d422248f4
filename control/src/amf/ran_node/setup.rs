//! NG Setup: TS 38.413 §8.7.1; the relative capacity in it is TS 23.501 §5.19.3. After a restart of the AMF all gNBs set up
//! again (TS 23.527 §6.2.1).

use serde::{Deserialize, Serialize};
use whimbrel_ids::{GlobalGnbId, Instant, PlmnId, SNssai, Tac};
use whimbrel_ngap::ie::{
    Cause, CauseMisc, CauseRadioNetwork, GlobalRanNodeId, PagingDrx, PlmnSupportItem, ResetAll, ResetType,
    ServedGuamiItem, SupportedTaItem, TimeToWait, TriggeringMessage,
};
use whimbrel_ngap::msg::{NgSetupFailure, NgSetupRequest, NgSetupResponse};
use whimbrel_ngap::{Message, ProcedureCode, Refusal, RefusalKind};

use super::identity::Ownership;
use super::{RanNode, RanNodes, RanOutput, Reset};
use crate::config::Config;
use crate::envelope::AssociationId;
use crate::event::{RanEvent, ResetBy, SetupRefusal};

impl RanNodes {
    pub(super) fn ng_setup(
        &mut self,
        now: Instant,
        association: AssociationId,
        request: &NgSetupRequest,
        out: &mut RanOutput,
    ) {
        let named = gnb_id(&request.global_ran_node_id);
        let applicant = match self.admit_node(request) {
            Ok(applicant) => applicant,
            Err((cause, why)) => return refuse(association, named, cause, why, out),
        };
        let gnb = applicant.gnb;
        if self.waits_for_holder(association, gnb) {
            return;
        }
        match self.judge_ownership(now, association, gnb) {
            Ownership::Granted => {}
            Ownership::Probed(holder) => {
                return self.begin_claim(now, (association, holder), applicant, out);
            }
            Ownership::Refused(cause, why) => return refuse(association, named, cause, why, out),
        }
        if let Err(limit) = self.make_room(association, Some(gnb), out) {
            let cause = CauseMisc::ControlProcessingOverload.into();
            return refuse(association, named, cause, SetupRefusal::Limit(limit), out);
        }
        self.set_up(now, association, applicant, out);
    }

    /// Makes room for one more association of a gNB; those under the identity `except` are replaced by it. Errors: the limit.
    pub(super) fn make_room(
        &self,
        association: AssociationId,
        except: Option<GlobalGnbId>,
        out: &mut RanOutput,
    ) -> Result<(), u32> {
        let limit = self.config.limits.ran_nodes;
        let stays = |n: &RanNode| n.gnb.is_some() && (except.is_none() || n.gnb != except);
        let others = self.nodes.iter().filter(|(a, n)| **a != association && stays(n));
        if others.count() >= limit as usize {
            let dropped = self.makes_room(association).ok_or(limit)?;
            out.events.push(RanEvent::Limited { association: Some(dropped), limit: "ran_nodes" });
            out.abort.push(dropped);
        }
        Ok(())
    }

    /// The newcomer is the gNB of this identity from now on.
    pub(super) fn set_up(
        &mut self,
        now: Instant,
        association: AssociationId,
        applicant: Applicant,
        out: &mut RanOutput,
    ) {
        let Applicant { gnb, name, default_paging_drx, offer } = applicant;
        out.messages.push((association, self.ng_setup_response().into()));
        out.events.push(RanEvent::Up { association, gnb, name: name.clone() });
        // A second NG SETUP on an association starts over: earlier connections end (§8.7.1.1).
        if self.is_set_up(association) {
            let what = ResetType::NgInterface(ResetAll::ResetAll);
            out.reset = Some(Reset { what, acknowledge: false, by: ResetBy::Gnb });
        } else {
            self.waiting = self.waiting.saturating_sub(1);
        }
        let same =
            |(a, n): (&AssociationId, &RanNode)| (*a != association && n.gnb == Some(gnb)).then_some(*a);
        let superseded: Vec<AssociationId> = self.nodes.iter().filter_map(same).collect();
        for &former in &superseded {
            out.events.push(RanEvent::SameIdentity { association, former, gnb });
        }
        out.superseded.extend(superseded);
        let mut node = RanNode::new(now, Vec::new());
        if let Some(before) = self.nodes.remove(&association) {
            // A peer's rate limits survive its reconnection.
            (node.first_messages, node.errors_sent, node.errors_logged) =
                (before.first_messages, before.errors_sent, before.errors_logged);
            (node.addresses, node.since) = (before.addresses, before.since);
        }
        (node.gnb, node.name, node.default_paging_drx) = (Some(gnb), name, default_paging_drx);
        offer.into_node(&mut node);
        node.serve(&self.config); // it may have changed while a holder was probed
        self.nodes.insert(association, node);
        self.refuse_claim(gnb, association, out);
        self.send_endpoints(now, association, out);
        self.send_overload_state(association, out);
        self.reload_warnings(now, association, out);
    }

    fn admit_node(&self, request: &NgSetupRequest) -> Result<Applicant, (Cause, SetupRefusal)> {
        let gnb = gnb_id(&request.global_ran_node_id)
            .ok_or((CauseMisc::Unspecified.into(), SetupRefusal::NodeType))?;
        Ok(Applicant {
            gnb,
            name: node_name(request.ran_node_name.as_ref(), request.extended_ran_node_name.as_ref()),
            default_paging_drx: request.default_paging_drx,
            offer: check_supported(&self.config, &request.supported_ta_list)?,
        })
    }

    fn ng_setup_response(&self) -> NgSetupResponse {
        let amf = &self.config.amf;
        NgSetupResponse::new(
            amf.name.clone(),
            vec![ServedGuamiItem::new(amf.guami())],
            self.relative_capacity(),
            vec![PlmnSupportItem::new(amf.plmn, amf.slices.clone())],
        )
    }
}

/// NG SETUP FAILURE with a time to wait.
pub(super) fn refuse(
    association: AssociationId,
    gnb: Option<GlobalGnbId>,
    cause: Cause,
    why: SetupRefusal,
    out: &mut RanOutput,
) {
    let mut failure = NgSetupFailure::new(cause);
    failure.time_to_wait = Some(match why {
        SetupRefusal::Disconnected => TimeToWait::V60s,
        _ => RETRY_AFTER,
    });
    out.messages.push((association, failure.into()));
    out.events.push(RanEvent::SetupRefused { association, gnb, why });
}

/// A gNB that has sent NG SETUP REQUEST, as it is once it is set up.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Applicant {
    pub(super) gnb: GlobalGnbId,
    name: Option<String>,
    default_paging_drx: PagingDrx,
    offer: Offer,
}

/// The time to wait of a refused gNB: short enough for an operator that corrects its configuration, long enough for the
/// log.
pub(super) const RETRY_AFTER: TimeToWait = TimeToWait::V10s;

/// NG SETUP FAILURE for a request that could not be taken (§8.7.1.4, §10.3.5); `None` if it was none.
pub(super) fn failure_of(refusal: &Refusal) -> Option<Message> {
    let request = refusal.procedure_code == Some(ProcedureCode::NG_SETUP)
        && refusal.triggering_message == Some(TriggeringMessage::InitiatingMessage);
    if !request || matches!(refusal.kind, RefusalKind::TransferSyntax(_)) {
        return None; // §10.2: a transfer syntax error is answered by ERROR INDICATION
    }
    let mut failure = NgSetupFailure::new(refusal.cause()?);
    failure.time_to_wait = Some(RETRY_AFTER);
    failure.criticality_diagnostics = Some(refusal.criticality_diagnostics());
    Some(failure.into())
}

/// The identity of a node that is a gNB.
pub(super) fn gnb_id(id: &GlobalRanNodeId) -> Option<GlobalGnbId> {
    match id {
        GlobalRanNodeId::GlobalGnbId(gnb) => Some(*gnb),
        _ => None,
    }
}

/// The name of a node: the extended one where it has one (TS 38.413 §9.3.1.193).
pub(super) fn node_name(
    name: Option<&String>,
    extended: Option<&whimbrel_ngap::ie::ExtendedRanNodeName>,
) -> Option<String> {
    let utf8 = extended.and_then(|e| e.ran_node_name_utf8_string.as_ref());
    let visible = extended.and_then(|e| e.ran_node_name_visible_string.as_ref());
    utf8.or(visible).or(name).cloned()
}

/// The areas and slices that a gNB broadcasts for the served PLMN, and those of them that are served.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    broadcast: Vec<(Tac, Vec<SNssai>)>,
    tacs: Vec<Tac>,
    slices: Vec<SNssai>,
}

impl Offer {
    /// The part that this configuration serves.
    fn of(config: &Config, broadcast: Vec<(Tac, Vec<SNssai>)>) -> Self {
        let served = || broadcast.iter().filter(|(tac, _)| config.amf.tacs.contains(tac));
        let mut tacs: Vec<Tac> = served().map(|(tac, _)| *tac).collect();
        let mut slices: Vec<SNssai> = served().flat_map(|(_, slices)| slices).copied().collect();
        tacs.sort_unstable();
        tacs.dedup();
        slices.sort_unstable();
        slices.dedup();
        Self { broadcast, tacs, slices }
    }

    pub(super) fn into_node(self, node: &mut RanNode) {
        (node.broadcast, node.tacs, node.slices) = (self.broadcast, self.tacs, self.slices);
    }
}

impl RanNode {
    /// A new configuration serves other areas.
    pub(super) fn serve(&mut self, config: &Config) {
        Offer::of(config, std::mem::take(&mut self.broadcast)).into_node(self);
    }
}

/// The served part of a gNB's areas and slices (§8.7.1.4): at least one tracking area of the served PLMN, with at least
/// one common slice.
pub(super) fn check_supported(
    config: &Config,
    list: &[SupportedTaItem],
) -> Result<Offer, (Cause, SetupRefusal)> {
    let amf = &config.amf;
    let all = || list.iter().flat_map(|ta| ta.broadcast_plmn_list.iter().map(move |b| (ta.tac, b)));
    let broadcast: Vec<(Tac, Vec<SNssai>)> = all()
        .filter(|(_, b)| b.plmn_identity == amf.plmn)
        .map(|(tac, b)| {
            let slices = b.tai_slice_support_list.iter().chain(&b.extended_tai_slice_support_list);
            (tac, slices.copied().collect())
        })
        .collect();
    if broadcast.is_empty() {
        let mut offered: Vec<PlmnId> = all().map(|(_, b)| b.plmn_identity).collect();
        offered.sort_unstable();
        offered.dedup();
        let why = SetupRefusal::Plmn {
            offered: offered.iter().map(ToString::to_string).collect(),
            served: amf.plmn.to_string(),
        };
        return Err((CauseMisc::UnknownPlmnOrSNpn.into(), why));
    }
    let offer = Offer::of(config, broadcast);
    if offer.tacs.is_empty() {
        let why = SetupRefusal::Tac {
            offered: offer.broadcast.iter().map(|(tac, _)| tac.value()).collect(),
            served: amf.tacs.iter().map(|t| t.value()).collect(),
        };
        return Err((CauseMisc::UnknownPlmnOrSNpn.into(), why));
    }
    if !offer.slices.iter().any(|s| amf.slices.contains(s)) {
        let why = SetupRefusal::Slice {
            offered: offer.slices.iter().map(ToString::to_string).collect(),
            served: amf.slices.iter().map(ToString::to_string).collect(),
        };
        return Err((CauseRadioNetwork::SliceNotSupported.into(), why));
    }
    Ok(offer)
}
