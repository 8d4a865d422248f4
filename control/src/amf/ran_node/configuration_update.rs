//! RAN Configuration Update: TS 38.413 §8.7.2. AMF Configuration Update: TS 38.413 §8.7.3.2, §8.7.3.3, §8.7.3.4.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;
use whimbrel_ngap::ie::{
    AmfTnlAssociationToAddItem, AmfTnlAssociationToRemoveItem, AmfTnlAssociationToUpdateItem, Cause,
    CauseMisc, CpTransportLayerInformation, PlmnSupportItem, ServedGuamiItem, TimeToWait, TriggeringMessage,
};
use whimbrel_ngap::msg::{
    AmfConfigurationUpdate, AmfConfigurationUpdateFailure, RanConfigurationUpdate,
    RanConfigurationUpdateAcknowledge, RanConfigurationUpdateFailure,
};
use whimbrel_ngap::{Message, ProcedureCode, Refusal, RefusalKind};

use super::setup::{RETRY_AFTER, check_supported, gnb_id, node_name};
use super::{ANSWER_WITHIN, RanNode, RanNodes, RanOutput};
use crate::config::{Amf, Config};
use crate::envelope::AssociationId;
use crate::event::{RanEvent, SetupRefusal};

/// How often an update is repeated for a gNB that answers with a time to wait.
const ATTEMPTS: u8 = 5;

/// An AMF CONFIGURATION UPDATE that one gNB has not answered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Update {
    /// When the wait for the answer ends, or the update is repeated.
    pub(super) due: Instant,
    /// It is repeated after the time to wait of the gNB.
    waits: bool,
    /// The configuration changed again meanwhile.
    stale: bool,
    attempts: u8,
}

/// Endpoints that gNBs are to add, and earlier ones that they are to remove.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Endpoints {
    present: Vec<IpAddr>,
    former: Vec<IpAddr>,
    /// Former further endpoints that serve now.
    serving: Vec<IpAddr>,
}

/// The most that one message names (maxnoofTNLAssociations, TS 38.413 §9.2.6.7).
const ENDPOINTS_MAX: usize = 32;

/// The weight of the serving endpoint: any value but zero, as it serves alone.
const WEIGHT: u8 = 255;

impl RanNodes {
    /// §8.7.2.2: the update is accepted as a whole or not at all.
    pub(super) fn ran_configuration_update(
        &mut self,
        association: AssociationId,
        update: &RanConfigurationUpdate,
        out: &mut RanOutput,
    ) {
        let offer = match update.supported_ta_list.as_slice() {
            [] => None,
            list => match check_supported(&self.config, list) {
                Ok(offer) => Some(offer),
                Err((cause, why)) => {
                    let mut failure = RanConfigurationUpdateFailure::new(cause);
                    failure.time_to_wait = Some(RETRY_AFTER);
                    out.messages.push((association, failure.into()));
                    let gnb = self.nodes.get(&association).and_then(|n| n.gnb);
                    return out.events.push(RanEvent::SetupRefused { association, gnb, why });
                }
            },
        };
        let Some(node) = self.nodes.get_mut(&association) else { return };
        if let Some(offer) = offer {
            offer.into_node(node);
        }
        if let Some(name) = node_name(update.ran_node_name.as_ref(), update.extended_ran_node_name.as_ref()) {
            node.name = Some(name);
        }
        node.default_paging_drx = update.default_paging_drx.unwrap_or(node.default_paging_drx);
        // NG-RAN TNL associations to remove are the gNB's to close (§8.7.2.2: "if supported").
        out.messages.push((association, RanConfigurationUpdateAcknowledge::new().into()));
        out.events.push(RanEvent::Reconfigured { association });
    }

    /// §8.7.2.2 with Global RAN Node ID, as the first message of an association: a further one of a gNB that is set up on
    /// another (TS 38.412 §7).
    pub(super) fn further_association(
        &mut self,
        now: Instant,
        association: AssociationId,
        update: &RanConfigurationUpdate,
        out: &mut RanOutput,
    ) {
        let gnb = update.global_ran_node_id.as_ref().and_then(gnb_id);
        let holder = gnb.and_then(|gnb| Some((gnb, self.find(gnb)?)));
        let first = holder.and_then(|(_, a)| self.nodes.get(&a)).cloned();
        let before = self.nodes.get(&association).map(|n| n.addresses.clone());
        let refuse = |cause: Cause, out: &mut RanOutput| {
            let mut failure = RanConfigurationUpdateFailure::new(cause);
            failure.time_to_wait = Some(RETRY_AFTER);
            out.messages.push((association, failure.into()));
        };
        let (Some((gnb, holder)), Some(first), Some(addresses)) = (holder, first, before) else {
            refuse(CauseMisc::Unspecified.into(), out);
            let what = "RAN CONFIGURATION UPDATE before NG SETUP".to_owned();
            return out.events.push(RanEvent::Refused { association, what });
        };
        // It would be able to end the connections of the gNB's UEs: it has to come from where the gNB is.
        let permitted = self.may_join(association, gnb, holder);
        if let Err(why) =
            permitted.and_then(|()| self.make_room(association, None, out).map_err(SetupRefusal::Limit))
        {
            refuse(CauseMisc::Unspecified.into(), out);
            return out.events.push(RanEvent::SetupRefused { association, gnb: Some(gnb), why });
        }
        let mut node = RanNode::new(now, addresses);
        (node.gnb, node.name, node.further) = (first.gnb, first.name, true);
        (node.tacs, node.slices, node.broadcast) = (first.tacs, first.slices, first.broadcast);
        node.default_paging_drx = first.default_paging_drx;
        self.waiting = self.waiting.saturating_sub(1);
        self.nodes.insert(association, node);
        out.messages.push((association, RanConfigurationUpdateAcknowledge::new().into()));
        out.events.push(RanEvent::Reconfigured { association });
    }

    /// Applies a new version of the configuration. What has changed since NG SETUP RESPONSE is sent to the
    /// gNBs (§8.7.3.1).
    pub fn configure(&mut self, now: Instant, config: Arc<Config>) -> RanOutput {
        let mut out = RanOutput::default();
        let changed = setup_response_content(&self.config.amf) != setup_response_content(&config.amf);
        self.config = config;
        for node in self.nodes.values_mut() {
            node.serve(&self.config);
        }
        if changed {
            let serving: Vec<AssociationId> = self.serving().map(|(a, _)| a).collect();
            for association in serving {
                self.send_update(now, association, 1, &mut out);
            }
        }
        out
    }

    /// Sets the AMF's further endpoints (TS 23.501 §5.21.1.2): those of a host that would take over.
    pub fn endpoints(&mut self, now: Instant, mut endpoints: Vec<IpAddr>) -> RanOutput {
        let mut out = RanOutput::default();
        endpoints.truncate(ENDPOINTS_MAX);
        let before = self.endpoints.clone();
        let Endpoints { present, former, .. } = &mut self.endpoints;
        former.append(present);
        former.retain(|address| !endpoints.contains(address));
        former.drain(..former.len().saturating_sub(ENDPOINTS_MAX));
        *present = endpoints;
        // As in a unit, whose CTA changes on one host: some gNBs cannot answer an update (UERANSIM), or end on it (OpenAirInterface).
        if self.endpoints == before {
            return out;
        }
        let serving: Vec<AssociationId> = self.serving().map(|(a, _)| a).collect();
        for association in serving {
            self.send_update(now, association, 1, &mut out);
        }
        out
    }

    /// The host behind `lost` has failed, and another one has taken over: gNBs are to remove their associations with it (§8.7.3.2). The
    /// update does not wait for an earlier one that is unanswered: the answer may be lost with that host.
    pub fn taken_over(&mut self, now: Instant, lost: Vec<IpAddr>) -> RanOutput {
        let mut out = RanOutput::default();
        let Endpoints { present, former, serving } = &mut self.endpoints;
        if !present.is_empty() {
            *serving = std::mem::take(present);
        }
        former.retain(|address| !lost.contains(address));
        former.extend(lost);
        former.retain(|address| !serving.contains(address));
        former.drain(..former.len().saturating_sub(ENDPOINTS_MAX));
        let gnbs: Vec<AssociationId> = self.serving().map(|(a, _)| a).collect();
        for association in gnbs {
            if let Some(node) = self.nodes.get_mut(&association) {
                node.update = None;
            }
            self.send_update(now, association, 1, &mut out);
        }
        out
    }

    /// Sends the further endpoints to a gNB that has just set up.
    pub(super) fn send_endpoints(&mut self, now: Instant, association: AssociationId, out: &mut RanOutput) {
        if !self.endpoints.present.is_empty() {
            self.send_update(now, association, 1, out);
        }
    }

    /// Sends the complete update; while one is unanswered, the next waits (§8.7.3.1: one at a time).
    pub(super) fn send_update(
        &mut self,
        now: Instant,
        association: AssociationId,
        attempts: u8,
        out: &mut RanOutput,
    ) {
        let Some(node) = self.nodes.get_mut(&association) else { return };
        if let Some(update) = node.update.as_mut().filter(|u| !u.waits) {
            update.stale = true;
            return;
        }
        node.update = Some(Update { due: now + ANSWER_WITHIN, waits: false, stale: false, attempts });
        let capacity = self.relative_capacity();
        let amf = &self.config.amf;
        let mut update = AmfConfigurationUpdate::new();
        update.amf_name = Some(amf.name.clone());
        update.served_guami_list = vec![ServedGuamiItem::new(amf.guami())];
        update.relative_amf_capacity = Some(capacity);
        update.plmn_support_list = vec![PlmnSupportItem::new(amf.plmn, amf.slices.clone())];
        let Endpoints { present, former, serving } = &self.endpoints;
        // The weight distributes load among serving endpoints (TS 23.501 §5.21.1.3): one that does not serve gets zero.
        let add = |a: &IpAddr| AmfTnlAssociationToAddItem::new(endpoint(*a), 0);
        update.amf_tnl_association_to_add_list = present.iter().map(add).collect();
        let remove = |a: &IpAddr| AmfTnlAssociationToRemoveItem::new(endpoint(*a));
        update.amf_tnl_association_to_remove_list = former.iter().map(remove).collect();
        let weigh = |a: &IpAddr| {
            let mut item = AmfTnlAssociationToUpdateItem::new(endpoint(*a));
            item.tnl_address_weight_factor = Some(WEIGHT);
            item
        };
        update.amf_tnl_association_to_update_list = serving.iter().map(weigh).collect();
        out.messages.push((association, update.into()));
    }

    /// §8.7.3.2. An unexpected acknowledgement changes nothing.
    pub(super) fn update_taken(&mut self, now: Instant, association: AssociationId, out: &mut RanOutput) {
        let Some(update) = self.nodes.get_mut(&association).and_then(|n| n.update.take()) else { return };
        out.events.push(RanEvent::UpdateTaken { association });
        if update.stale {
            self.send_update(now, association, 1, out);
        }
    }

    /// §8.7.3.3: repeats the update after the gNB's time to wait; without one, the update is given up.
    pub(super) fn update_refused(
        &mut self,
        now: Instant,
        association: AssociationId,
        failure: &AmfConfigurationUpdateFailure,
        out: &mut RanOutput,
    ) {
        let Some(node) = self.nodes.get_mut(&association) else { return };
        let Some(update) = node.update.take().filter(|u| !u.waits) else { return };
        let cause = failure.cause.to_string();
        let again = failure.time_to_wait.filter(|_| update.attempts < ATTEMPTS);
        out.events.push(RanEvent::UpdateRefused { association, cause, again: again.is_some() });
        if let Some(wait) = again {
            let due = now + time_to_wait(wait);
            node.update = Some(Update { due, waits: true, ..update });
        }
    }

    pub(super) fn updates_due(&mut self, now: Instant, out: &mut RanOutput) {
        let due: Vec<(AssociationId, Update)> =
            self.nodes.iter().filter_map(|(a, n)| Some((*a, n.update.filter(|u| u.due <= now)?))).collect();
        for (association, update) in due {
            if let Some(node) = self.nodes.get_mut(&association) {
                node.update = None;
            }
            if update.waits || update.stale {
                self.send_update(now, association, update.attempts.saturating_add(1), out);
            } else {
                // SCTP delivers it or the association ends, so it is not repeated.
                let cause = "it did not answer".to_owned();
                out.events.push(RanEvent::UpdateRefused { association, cause, again: false });
            }
        }
    }
}

fn endpoint(address: IpAddr) -> CpTransportLayerInformation {
    CpTransportLayerInformation::EndpointIpAddress(match address {
        IpAddr::V4(a) => a.into(),
        IpAddr::V6(a) => a.into(),
    })
}

/// The content of NG SETUP RESPONSE.
fn setup_response_content(amf: &Amf) -> impl PartialEq + '_ {
    (&amf.name, amf.guami(), amf.relative_capacity, &amf.slices)
}

/// TS 38.413 §9.3.1.56.
fn time_to_wait(wait: TimeToWait) -> Duration {
    Duration::from_secs(match wait {
        TimeToWait::V1s => 1,
        TimeToWait::V2s => 2,
        TimeToWait::V5s => 5,
        TimeToWait::V10s => 10,
        TimeToWait::V20s => 20,
        TimeToWait::V60s => 60,
    })
}

/// RAN CONFIGURATION UPDATE FAILURE for an update that could not be taken (§8.7.2.4, §10.3.5); `None` if it was none.
pub(super) fn failure_of(refusal: &Refusal) -> Option<Message> {
    let update = refusal.procedure_code == Some(ProcedureCode::RAN_CONFIGURATION_UPDATE)
        && refusal.triggering_message == Some(TriggeringMessage::InitiatingMessage);
    if !update || matches!(refusal.kind, RefusalKind::TransferSyntax(_)) {
        return None;
    }
    let mut failure = RanConfigurationUpdateFailure::new(refusal.cause()?);
    failure.time_to_wait = Some(RETRY_AFTER);
    failure.criticality_diagnostics = Some(refusal.criticality_diagnostics());
    Some(failure.into())
}
