//! The AMF's side of a gNB: what its phones share, one machine per association.
//!
//! NG SETUP (TS 38.413 §8.7.1), RAN CONFIGURATION UPDATE (§8.7.2), NG RESET (§8.7.4), ERROR INDICATION (§8.7.5).

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Tac};
use whimbrel_ngap::ie::{
    Cause, CauseMisc, CauseProtocol, CauseRadioNetwork, GlobalRanNodeId, PlmnSupportItem, ResetAll,
    ResetType, ServedGuamiItem, SupportedTaItem, TargetId, TimeToWait, UeAssociatedLogicalNgConnectionItem,
};
use whimbrel_ngap::msg::{
    ErrorIndication, NgReset, NgResetAcknowledge, NgSetupFailure, NgSetupRequest, NgSetupResponse,
    RanConfigurationUpdate, RanConfigurationUpdateAcknowledge, RanConfigurationUpdateFailure,
};
use whimbrel_ngap::{Message, Refusal};

use crate::config::Config;
use crate::envelope::AssociationId;
use crate::event::{RanEvent, SetupRefusal};

/// A gNB that complains about everything fills no log: beyond this many, its complaints are not told.
const ERROR_INDICATIONS_LOGGED_PER_NODE: u32 = 1000;

/// One gNB.
#[derive(Clone, Debug, Default)]
pub struct RanNode {
    /// Its identity, once NG SETUP was accepted.
    pub gnb: Option<GlobalGnbId>,
    /// What it calls itself.
    pub name: Option<String>,
    /// The tracking areas that it broadcasts for the served network.
    pub tacs: Vec<Tac>,
    /// The slices that it supports there.
    pub slices: Vec<SNssai>,
    error_indications: u32,
}

/// All gNBs.
pub struct RanNodes {
    config: Arc<Config>,
    nodes: BTreeMap<AssociationId, RanNode>,
}

/// What a gNB's message caused.
#[derive(Debug, Default)]
pub struct RanOutput {
    /// Answers on stream 0.
    pub messages: Vec<Message>,
    /// What happened.
    pub events: Vec<RanEvent>,
    /// Phones whose connections the gNB has dropped; its reset is acknowledged after the last of them.
    pub reset: Option<ResetType>,
    /// Another association of the same gNB, which has lost it: a gNB that lost its power comes back on a new one before
    /// SCTP finds out about the old one.
    pub superseded: Option<AssociationId>,
}

impl RanNodes {
    /// No gNB yet.
    pub fn new(config: Arc<Config>) -> Self {
        Self { config, nodes: BTreeMap::new() }
    }

    /// Puts a new version of the configuration in force.
    pub fn configure(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// An association came up; nobody has set up on it yet.
    pub fn up(&mut self, association: AssociationId) {
        self.nodes.insert(association, RanNode::default());
    }

    /// An association ended.
    pub fn down(&mut self, association: AssociationId) -> RanEvent {
        let gnb = self.nodes.remove(&association).and_then(|n| n.gnb);
        RanEvent::Down { association, gnb }
    }

    /// The gNB of an association.
    pub fn get(&self, association: AssociationId) -> Option<&RanNode> {
        self.nodes.get(&association)
    }

    /// All associations.
    pub fn iter(&self) -> impl Iterator<Item = (AssociationId, &RanNode)> {
        self.nodes.iter().map(|(a, n)| (*a, n))
    }

    /// Whether phones may be served over this association: NG SETUP comes first (TS 38.413 §8.7.1.1).
    pub fn is_set_up(&self, association: AssociationId) -> bool {
        self.nodes.get(&association).is_some_and(|n| n.gnb.is_some())
    }

    /// The gNB that HANDOVER REQUIRED names (TS 38.413 §9.3.1.25), where it is connected: its association and what it is.
    pub fn handover_target(&self, octets: &[u8]) -> Option<(AssociationId, &RanNode)> {
        let Ok(Message::HandoverRequired(m)) = Message::decode(octets) else { return None };
        let TargetId::TargetRanNodeId(target) = m.target_id else { return None };
        let GlobalRanNodeId::GlobalGnbId(gnb) = target.global_ran_node_id else { return None };
        self.nodes.iter().find(|(_, n)| n.gnb == Some(gnb)).map(|(a, n)| (*a, n))
    }

    /// A message that concerns no single phone.
    pub fn handle(&mut self, association: AssociationId, message: Message) -> RanOutput {
        let mut out = RanOutput::default();
        match message {
            Message::NgSetupRequest(m) => self.ng_setup(association, &m, &mut out),
            Message::RanConfigurationUpdate(m) if self.is_set_up(association) => {
                self.configuration_update(association, &m, &mut out);
            }
            Message::NgReset(m) if self.is_set_up(association) => reset(m, &mut out),
            Message::ErrorIndication(m) => self.error_indication(association, &m, &mut out),
            // Acknowledges what was asked of the gNB; nothing waits for it.
            Message::NgResetAcknowledge(_) | Message::AmfConfigurationUpdateAcknowledge(_) => {}
            _ => refuse(
                association,
                CauseProtocol::MessageNotCompatibleWithReceiverState,
                "a message that this state does not await",
                &mut out,
            ),
        }
        out
    }

    /// A message that could not be read (TS 38.413 §10).
    pub fn unreadable(&self, association: AssociationId, refusal: &Refusal) -> RanOutput {
        let mut out = RanOutput::default();
        out.messages.extend(refusal.error_indication().map(Message::from));
        out.events.push(RanEvent::Refused { association, what: refusal.to_string() });
        out
    }

    fn ng_setup(&mut self, association: AssociationId, request: &NgSetupRequest, out: &mut RanOutput) {
        let gnb = gnb_id(request).ok_or((CauseMisc::Unspecified.into(), SetupRefusal::NodeType));
        let ready = self.nodes.values().filter(|n| n.gnb.is_some()).count();
        let limit = self.config.limits.ran_nodes;
        let accepted = gnb.and_then(|gnb| {
            if ready >= limit as usize && !self.is_set_up(association) {
                return Err((CauseMisc::ControlProcessingOverload.into(), SetupRefusal::Limit(limit)));
            }
            check_supported(&self.config, &request.supported_ta_list)
                .map(|(tacs, slices)| (gnb, tacs, slices))
        });
        match accepted {
            Ok((gnb, tacs, slices)) => {
                out.messages.push(self.ng_setup_response().into());
                let name = request.ran_node_name.clone();
                out.events.push(RanEvent::Up { association, gnb, name: name.clone() });
                // A second NG SETUP on a live association starts over: earlier connections are gone (§8.7.1.1).
                if self.is_set_up(association) {
                    out.reset = Some(ResetType::NgInterface(ResetAll::ResetAll));
                }
                let same = |(a, n): (&AssociationId, &RanNode)| {
                    (*a != association && n.gnb == Some(gnb)).then_some(*a)
                };
                out.superseded = self.nodes.iter().find_map(same);
                let node = RanNode { gnb: Some(gnb), name, tacs, slices, error_indications: 0 };
                self.nodes.insert(association, node);
            }
            Err((cause, why)) => {
                let mut failure = NgSetupFailure::new(cause);
                failure.time_to_wait = Some(TimeToWait::V10s);
                out.messages.push(failure.into());
                out.events.push(RanEvent::SetupRefused { association, gnb: gnb_id(request), why });
            }
        }
    }

    fn ng_setup_response(&self) -> NgSetupResponse {
        let amf = &self.config.amf;
        NgSetupResponse::new(
            amf.name.clone(),
            vec![ServedGuamiItem::new(amf.guami())],
            amf.relative_capacity,
            vec![PlmnSupportItem::new(amf.plmn, amf.slices.clone())],
        )
    }

    fn configuration_update(
        &mut self,
        association: AssociationId,
        update: &RanConfigurationUpdate,
        out: &mut RanOutput,
    ) {
        let checked = match update.supported_ta_list.as_slice() {
            [] => None,
            list => Some(check_supported(&self.config, list)),
        };
        if let Some(Err((cause, why))) = checked {
            out.messages.push(RanConfigurationUpdateFailure::new(cause).into());
            let gnb = self.nodes.get(&association).and_then(|n| n.gnb);
            out.events.push(RanEvent::SetupRefused { association, gnb, why });
            return;
        }
        if let Some(node) = self.nodes.get_mut(&association) {
            if let Some(Ok((tacs, slices))) = checked {
                (node.tacs, node.slices) = (tacs, slices);
            }
            if update.ran_node_name.is_some() {
                node.name.clone_from(&update.ran_node_name);
            }
        }
        out.messages.push(RanConfigurationUpdateAcknowledge::new().into());
    }

    fn error_indication(&mut self, association: AssociationId, m: &ErrorIndication, out: &mut RanOutput) {
        let Some(node) = self.nodes.get_mut(&association) else { return };
        node.error_indications = node.error_indications.saturating_add(1);
        if node.error_indications <= ERROR_INDICATIONS_LOGGED_PER_NODE {
            let cause = m.cause.as_ref().map_or_else(|| "no cause".to_owned(), ToString::to_string);
            out.events.push(RanEvent::ErrorIndication { association, cause });
        }
    }
}

/// The identity of a requester that is a gNB.
fn gnb_id(request: &NgSetupRequest) -> Option<GlobalGnbId> {
    match request.global_ran_node_id {
        GlobalRanNodeId::GlobalGnbId(gnb) => Some(gnb),
        _ => None,
    }
}

/// NG RESET (§8.7.4.2.2): what the gNB drops is dropped here, then acknowledged.
fn reset(m: NgReset, out: &mut RanOutput) {
    out.reset = Some(m.reset_type);
}

/// The acknowledgement of a reset, once its last phone was told.
pub fn reset_acknowledge(reset: ResetType) -> Message {
    let list: Vec<UeAssociatedLogicalNgConnectionItem> = match reset {
        ResetType::NgInterface(_) => Vec::new(),
        ResetType::PartOfNgInterface(list) => list,
    };
    let mut acknowledge = NgResetAcknowledge::new();
    acknowledge.ue_associated_logical_ng_connection_list = list;
    acknowledge.into()
}

/// An ERROR INDICATION for a message that names no phone, or a wrong one.
pub(crate) fn error_indication(cause: impl Into<Cause>) -> ErrorIndication {
    let mut m = ErrorIndication::new();
    m.cause = Some(cause.into());
    m
}

fn refuse(association: AssociationId, cause: CauseProtocol, what: &str, out: &mut RanOutput) {
    out.messages.push(error_indication(cause).into());
    out.events.push(RanEvent::Refused { association, what: what.to_owned() });
}

/// What of a gNB's supported areas and slices is served here (TS 38.413 §8.7.1.4): at least one tracking area of
/// the served network, with at least one slice in common.
fn check_supported(
    config: &Config,
    list: &[SupportedTaItem],
) -> Result<(Vec<Tac>, Vec<SNssai>), (Cause, SetupRefusal)> {
    let amf = &config.amf;
    let broadcasts = || list.iter().flat_map(|ta| ta.broadcast_plmn_list.iter().map(move |b| (ta.tac, b)));
    let of_plmn = || broadcasts().filter(|(_, b)| b.plmn_identity == amf.plmn);
    if of_plmn().next().is_none() {
        let mut offered: Vec<PlmnId> = broadcasts().map(|(_, b)| b.plmn_identity).collect();
        offered.sort_unstable();
        offered.dedup();
        let why = SetupRefusal::Plmn {
            offered: offered.iter().map(ToString::to_string).collect(),
            served: amf.plmn.to_string(),
        };
        return Err((CauseMisc::UnknownPlmnOrSNpn.into(), why));
    }
    let served = || of_plmn().filter(|(tac, _)| amf.tacs.contains(tac));
    if served().next().is_none() {
        let why = SetupRefusal::Tac {
            offered: of_plmn().map(|(tac, _)| tac.value()).collect(),
            served: amf.tacs.iter().map(|t| t.value()).collect(),
        };
        return Err((CauseMisc::UnknownPlmnOrSNpn.into(), why));
    }
    let mut slices: Vec<SNssai> = served()
        .flat_map(|(_, b)| b.tai_slice_support_list.iter().chain(&b.extended_tai_slice_support_list))
        .copied()
        .collect();
    slices.sort_unstable();
    slices.dedup();
    if !slices.iter().any(|s| amf.slices.contains(s)) {
        let why = SetupRefusal::Slice {
            offered: slices.iter().map(ToString::to_string).collect(),
            served: amf.slices.iter().map(ToString::to_string).collect(),
        };
        return Err((CauseRadioNetwork::SliceNotSupported.into(), why));
    }
    Ok((served().map(|(tac, _)| tac).collect(), slices))
}
