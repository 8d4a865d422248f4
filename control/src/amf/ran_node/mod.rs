//! The AMF's state of gNBs: non-UE-associated procedures, one entry per association (TS 38.413 §8.7 to §8.10).
//!
//! | clause | where |
//! | --- | --- |
//! | §8.7.1 NG Setup | `setup`; two gNBs under one identity, `identity`; shares of each source, `source` |
//! | §8.7.2 RAN Configuration Update, §8.7.3 AMF Configuration Update | `configuration_update` |
//! | §8.7.4 NG Reset | `reset` |
//! | §8.7.5 Error Indication | `error_indication` |
//! | §8.7.6 AMF Status Indication | here |
//! | §8.7.7 Overload Start, §8.7.8 Overload Stop | `overload` |
//! | §8.8 configuration transfer | `configuration_transfer` |
//! | §8.9 warning messages | `warning`, their text in `cbs` |
//! | §8.10.5 NRPPa of no UE | `nrppa` |

mod cbs;
mod configuration_transfer;
mod configuration_update;
mod error_indication;
mod identity;
mod nrppa;
mod overload;
mod rate;
mod reset;
mod setup;
mod source;
#[cfg(test)]
mod tests;
mod warning;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{GlobalGnbId, Instant, SNssai, Tac};
use whimbrel_ngap::ie::{
    AmfPagingTarget, CauseProtocol, GlobalRanNodeId, NgranCgi, PagingDrx, ResetType, TargetId,
    UnavailableGuamiItem,
};
use whimbrel_ngap::msg::AmfStatusIndication;
use whimbrel_ngap::{Message, Refusal};

use crate::config::Config;
use crate::envelope::AssociationId;
use crate::event::{RanEvent, ResetBy};

use configuration_update::{Endpoints, Update};
use identity::{BarredSources, PendingNgSetup};
use overload::Overload;
use reset::Resets;
use warning::Warnings;

pub use cbs::{TextCoding, cbs_pages};
pub use identity::HeldName;
pub use overload::{Load, OverloadOrder};
pub use rate::Rate;
pub use reset::reset_acknowledge;
pub use warning::{Warning, WarningArea, WarningError, WarningState, WarningStatus, nr_cell};

pub(crate) use error_indication::error_indication;

/// A gNB, as seen from one of its associations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RanNode {
    /// Its identity, once NG SETUP was accepted.
    pub gnb: Option<GlobalGnbId>,
    /// Its RAN node name.
    pub name: Option<String>,
    /// The tracking areas that it broadcasts for the served network and that are served.
    pub tacs: Vec<Tac>,
    /// The slices that it supports there.
    pub slices: Vec<SNssai>,
    /// Its default paging DRX.
    pub default_paging_drx: PagingDrx,
    /// A further association of a gNB that is set up on another one (TS 38.412 §7): non-UE-associated messages are not sent on
    /// it.
    pub further: bool,
    /// Whether OVERLOAD START is in force there.
    pub overloaded: bool,
    /// The peer's addresses, each confirmed by SCTP (RFC 9260 §5.4); the first one is the one that it connected from.
    addresses: Vec<IpAddr>,
    /// When the association came up.
    since: Instant,
    /// All areas that it broadcasts for the served network, with their slices: a later configuration may serve more of them.
    broadcast: Vec<(Tac, Vec<SNssai>)>,
    /// When the association came up, or by when NG SETUP is due.
    setup_due: Option<Instant>,
    /// The identity that was set up here until another association took it over; no message has come over this one
    /// since.
    displaced: Option<GlobalGnbId>,
    update: Option<Update>,
    resets: Resets,
    /// Rate limits: its first messages, ERROR INDICATIONs sent to it, and logged ERROR INDICATIONs from it.
    first_messages: Rate,
    errors_sent: Rate,
    errors_logged: Rate,
}

impl RanNode {
    fn new(since: Instant, addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            since,
            gnb: None,
            name: None,
            tacs: Vec::new(),
            slices: Vec::new(),
            default_paging_drx: PagingDrx::default(),
            further: false,
            overloaded: false,
            broadcast: Vec::new(),
            setup_due: None,
            displaced: None,
            update: None,
            resets: Resets::default(),
            first_messages: Rate::default(),
            errors_sent: Rate::default(),
            errors_logged: Rate::default(),
        }
    }

    /// One that has to send NG SETUP in time.
    fn waiting(now: Instant, addresses: Vec<IpAddr>) -> Self {
        Self { setup_due: Some(now + SETUP_WITHIN), ..Self::new(now, addresses) }
    }

    /// Whether one of these is this gNB, its area, or a cell of it. An NR cell identity begins with the gNB's (TS 38.413
    /// §9.3.1.7).
    pub fn is_near(&self, near: &[AmfPagingTarget], cells: &[NgranCgi]) -> bool {
        let Some(gnb) = self.gnb else { return false };
        let named = |t: &AmfPagingTarget| match t {
            AmfPagingTarget::GlobalRanNodeId(GlobalRanNodeId::GlobalGnbId(id)) => *id == gnb,
            AmfPagingTarget::GlobalRanNodeId(_) => false,
            AmfPagingTarget::Tai(tai) => self.tacs.contains(&tai.tac),
        };
        let cell = |c: &NgranCgi| match c {
            NgranCgi::NrCgi(c) => {
                let prefix = c.nr_cell_identity.value() >> (36 - u32::from(gnb.bits()));
                c.plmn_identity == gnb.plmn && prefix == u64::from(gnb.gnb_id)
            }
            NgranCgi::EutraCgi(_) => false,
        };
        near.iter().any(named) || cells.iter().any(cell)
    }

    /// Whether non-UE-associated messages are sent to the gNB over this association.
    fn serves(&self) -> bool {
        self.gnb.is_some() && !self.further
    }
}

/// All gNBs of the AMF, with their associations.
#[derive(Serialize, Deserialize)]
pub struct RanNodes {
    config: Arc<Config>,
    nodes: BTreeMap<AssociationId, RanNode>,
    overload: Overload,
    warnings: Warnings,
    /// Number of associations without NG SETUP.
    waiting: u32,
    endpoints: Endpoints,
    /// The AMF of the set that takes this one's UEs over, by its name, while this one is to be removed: gNBs get relative capacity 0.
    successor: Option<String>,
    /// Contested identities, and until when NG SETUP of the second gNB is refused.
    contested: BTreeMap<GlobalGnbId, Instant>,
    /// Identities whose holder is probed, because NG SETUP came from an address that it does not have.
    claims: BTreeMap<GlobalGnbId, PendingNgSetup>,
    /// Identities whose holder the operator has disconnected.
    barred: BTreeMap<GlobalGnbId, BarredSources>,
}

/// The effects of a gNB's message, a timer or an operator's order.
#[derive(Debug, Default)]
pub struct RanOutput {
    /// Non-UE-associated messages, sent on stream 0.
    pub messages: Vec<(AssociationId, Message)>,
    /// Events for the log and the console.
    pub events: Vec<RanEvent>,
    /// UEs whose connections have ended.
    pub reset: Option<Reset>,
    /// Earlier associations of the same gNB: a gNB that restarts sets up a new one before SCTP has found the old ones
    /// dead.
    pub superseded: Vec<AssociationId>,
    /// Associations to be aborted: the peer breaks the rules of NG Setup, or the operator disconnects it.
    pub abort: Vec<AssociationId>,
    /// Associations whose peer is asked for a sign of life below NGAP, by HEARTBEAT (RFC 9260 §8.3); [`RanNodes::answered_probe`] says that
    /// there was one.
    pub probes: Vec<AssociationId>,
}

/// Connections that a gNB has dropped.
#[derive(Debug)]
pub struct Reset {
    /// Which of its UEs' connections.
    pub what: ResetType,
    /// NG RESET ACKNOWLEDGE is sent after the last of them.
    pub acknowledge: bool,
    /// The side that started it.
    pub by: ResetBy,
}

/// How long a gNB's answer is awaited (as the guard of UEs' procedures).
const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Addresses of a peer that are kept: as many as our SCTP takes of one.
const ADDRESSES_MAX: usize = 8;

/// NG SETUP has to come first on an association (TS 38.413 §8.7.1.1), and within this time.
pub const SETUP_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

impl RanNodes {
    /// No gNB yet.
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            nodes: BTreeMap::new(),
            overload: Overload::default(),
            warnings: Warnings::default(),
            waiting: 0,
            endpoints: Endpoints::default(),
            successor: None,
            contested: BTreeMap::new(),
            claims: BTreeMap::new(),
            barred: BTreeMap::new(),
        }
    }

    /// An association came up, from these confirmed addresses; no gNB has set up on it yet. Beyond the limit of such associations one of the source
    /// that has most is aborted.
    pub fn up(&mut self, now: Instant, association: AssociationId, addresses: Vec<IpAddr>) -> RanOutput {
        let mut out = RanOutput::default();
        self.waiting += 1;
        self.nodes.insert(association, RanNode::waiting(now, addresses));
        if self.waiting > self.config.limits.ran_nodes_waiting
            && let Some(dropped) = self.oldest_waiting_of_the_largest_source()
        {
            out.events.push(RanEvent::Limited { association: Some(dropped), limit: "ran_nodes_waiting" });
            out.abort.push(dropped);
        }
        out
    }

    /// SCTP has confirmed that an association's peer is at a further address that it had listed (RFC 9260 §5.4): from there it may come back.
    pub fn confirm_address(&mut self, association: AssociationId, address: IpAddr) {
        let Some(node) = self.nodes.get_mut(&association) else { return };
        if node.addresses.len() < ADDRESSES_MAX && !node.addresses.contains(&address) {
            node.addresses.push(address);
        }
    }

    /// Another association has taken over the gNB of this one. SCTP keeps it until the peer closes it or NG SETUP is
    /// due.
    pub fn supersede(&mut self, now: Instant, association: AssociationId) -> RanEvent {
        let former = self.nodes.get(&association);
        let displaced = former.and_then(|n| n.gnb);
        let addresses = former.map(|n| n.addresses.clone()).unwrap_or_default();
        let event = self.down(association);
        self.waiting += 1;
        self.nodes.insert(association, RanNode { displaced, ..RanNode::waiting(now, addresses) });
        event
    }

    /// An association ended. A further one of the same gNB takes its place.
    pub fn down(&mut self, association: AssociationId) -> RanEvent {
        let node = self.nodes.remove(&association);
        if node.as_ref().is_some_and(|n| n.gnb.is_none()) {
            self.waiting = self.waiting.saturating_sub(1);
        }
        let gnb = node.as_ref().and_then(|n| n.gnb);
        self.claims_without(association, gnb);
        if let Some(gone) = node.filter(RanNode::serves)
            && let Some(heir) = self.nodes.values_mut().find(|n| n.further && n.gnb == gone.gnb)
        {
            (heir.further, heir.update, heir.overloaded) = (false, gone.update, gone.overloaded);
        }
        RanEvent::Down { association, gnb }
    }

    /// The peer's addresses, of a gNB that is set up, over all of its associations.
    pub fn addresses(&self, gnb: GlobalGnbId) -> Vec<IpAddr> {
        let its = self.nodes.values().filter(|n| n.gnb == Some(gnb));
        its.flat_map(|n| n.addresses.iter().map(IpAddr::to_canonical)).collect()
    }

    /// The gNB of an association.
    pub fn get(&self, association: AssociationId) -> Option<&RanNode> {
        self.nodes.get(&association)
    }

    /// The association for non-UE-associated messages to a gNB.
    pub fn find(&self, gnb: GlobalGnbId) -> Option<AssociationId> {
        self.nodes.iter().find(|(_, n)| n.serves() && n.gnb == Some(gnb)).map(|(a, _)| *a)
    }

    /// All associations with their gNBs.
    pub fn iter(&self) -> impl Iterator<Item = (AssociationId, &RanNode)> {
        self.nodes.iter().map(|(a, n)| (*a, n))
    }

    /// The gNBs that are set up, each once.
    pub fn serving(&self) -> impl Iterator<Item = (AssociationId, &RanNode)> {
        self.iter().filter(|(_, n)| n.serves())
    }

    /// All associations of the gNB of one.
    pub fn siblings(&self, association: AssociationId) -> Vec<AssociationId> {
        let gnb = self.nodes.get(&association).and_then(|n| n.gnb);
        match gnb {
            None => vec![association],
            gnb => self.iter().filter(|(_, n)| n.gnb == gnb).map(|(a, _)| a).collect(),
        }
    }

    /// Whether UEs may be served over this association: NG SETUP comes first (TS 38.413 §8.7.1.1).
    pub fn is_set_up(&self, association: AssociationId) -> bool {
        self.nodes.get(&association).is_some_and(|n| n.gnb.is_some())
    }

    /// The gNB that HANDOVER REQUIRED names (TS 38.413 §9.3.1.25), where it is connected: its association and what it is.
    pub fn handover_target(&self, octets: &[u8]) -> Option<(AssociationId, &RanNode)> {
        let Ok(Message::HandoverRequired(m)) = Message::decode(octets) else { return None };
        let TargetId::TargetRanNodeId(target) = m.target_id else { return None };
        let GlobalRanNodeId::GlobalGnbId(gnb) = target.global_ran_node_id else { return None };
        let association = self.find(gnb)?;
        Some((association, self.nodes.get(&association)?))
    }

    /// Whether one more INITIAL UE MESSAGE of a gNB is within its rate limit, so that one gNB's flood does not starve
    /// the others.
    pub fn admit_first_message(&mut self, now: Instant, association: AssociationId) -> bool {
        let per_s = self.config.limits.first_messages_per_s;
        self.nodes.get_mut(&association).is_some_and(|n| n.first_messages.take(now, per_s))
    }

    /// Handles a non-UE-associated message. One that comes after the end of its association is dropped: NG SETUP there would leave a gNB
    /// that nothing ends, and that has its identity.
    pub fn handle(&mut self, now: Instant, association: AssociationId, message: Message) -> RanOutput {
        let mut out = RanOutput::default();
        if !self.nodes.contains_key(&association) {
            return out;
        }
        self.is_alive(now, association, &mut out);
        let ready = self.is_set_up(association);
        match message {
            Message::NgSetupRequest(m) => self.ng_setup(now, association, &m, &mut out),
            Message::RanConfigurationUpdate(m) if ready => {
                self.ran_configuration_update(association, &m, &mut out);
            }
            Message::RanConfigurationUpdate(m) => self.further_association(now, association, &m, &mut out),
            Message::ErrorIndication(m) => self.error_indicated(now, association, &m, &mut out),
            Message::NgReset(m) if ready => reset::by_gnb(m, &mut out),
            Message::NgResetAcknowledge(m) if ready => self.reset_acknowledged(association, &m, &mut out),
            Message::AmfConfigurationUpdateAcknowledge(_) if ready => {
                self.update_taken(now, association, &mut out)
            }
            Message::AmfConfigurationUpdateFailure(m) if ready => {
                self.update_refused(now, association, &m, &mut out);
            }
            Message::WriteReplaceWarningResponse(m) if ready => self.warned(association, &m, &mut out),
            Message::PwsCancelResponse(m) if ready => self.warning_cancelled(association, &m, &mut out),
            Message::PwsRestartIndication(m) if ready => self.pws_restarted(now, association, &m, &mut out),
            Message::PwsFailureIndication(m) if ready => self.pws_failed(association, &m, &mut out),
            Message::UplinkRanConfigurationTransfer(m) if ready => {
                self.configuration_transfer(association, m, &mut out);
            }
            Message::UplinkNonUeAssociatedNrppaTransport(_) if ready => {
                nrppa::without_lmf(association, &mut out)
            }
            other => {
                // Requests get an answer; late answers do not.
                let begins = other.kind() == whimbrel_ngap::ie::TriggeringMessage::InitiatingMessage;
                let what = "a message that this state does not await";
                let answer =
                    begins.then(|| error_indication(CauseProtocol::MessageNotCompatibleWithReceiverState));
                self.refuse_message(now, association, answer, what, &mut out);
            }
        }
        out
    }

    /// A message that could not be read (TS 38.413 §10): a failure of its procedure where there is one, else ERROR INDICATION.
    pub fn unreadable(&mut self, now: Instant, association: AssociationId, refusal: &Refusal) -> RanOutput {
        let mut out = RanOutput::default();
        if !self.nodes.contains_key(&association) {
            return out;
        }
        self.is_alive(now, association, &mut out);
        if let Some(failure) =
            setup::failure_of(refusal).or_else(|| configuration_update::failure_of(refusal))
        {
            out.messages.push((association, failure));
            out.events.push(RanEvent::Refused { association, what: refusal.to_string() });
        } else {
            self.refuse_message(now, association, refusal.error_indication(), &refusal.to_string(), &mut out);
        }
        out
    }

    /// The AMF is to be removed, and the one of this name takes its UEs over; `None`: it stays. gNBs get relative capacity 0, and send no new UEs (TS 23.501
    /// §5.19.4), or the configured one again.
    pub fn hand_over_to(&mut self, now: Instant, successor: Option<String>) -> RanOutput {
        let mut out = RanOutput::default();
        self.successor = successor;
        let serving: Vec<AssociationId> = self.serving().map(|(a, _)| a).collect();
        serving.into_iter().for_each(|association| self.send_update(now, association, 1, &mut out));
        out
    }

    /// This AMF's share of new UEs among those of the set.
    fn relative_capacity(&self) -> u8 {
        if self.successor.is_some() { 0 } else { self.config.amf.relative_capacity }
    }

    /// The AMF stops, or its UEs are another one's: gNBs get AMF STATUS INDICATION and select another AMF, the successor if there is one (§8.7.6.2, TS 23.501
    /// §5.21.2.2.1).
    pub fn retire(&self) -> RanOutput {
        let gone = || {
            let mut item = UnavailableGuamiItem::new(self.config.amf.guami());
            item.backup_amf_name.clone_from(&self.successor);
            AmfStatusIndication::new(vec![item])
        };
        let messages = self.serving().map(|(association, _)| (association, gone().into())).collect();
        RanOutput { messages, ..RanOutput::default() }
    }

    /// Handles expired timers.
    pub fn tick(&mut self, now: Instant) -> RanOutput {
        let mut out = RanOutput::default();
        for (&association, node) in &mut self.nodes {
            if node.setup_due.is_some_and(|due| due <= now) {
                // NG SETUP that waits for the holder of its identity is answered first.
                node.setup_due = identity::decides(&self.claims, association, now);
                if node.setup_due.is_none() {
                    out.abort.push(association);
                }
            }
        }
        for association in out.abort.clone() {
            self.is_alive(now, association, &mut out);
            out.events.push(RanEvent::NeverSetUp { association });
        }
        self.claims_due(now, &mut out);
        self.updates_due(now, &mut out);
        self.resets_due(now, &mut out);
        self.warnings_due(now, &mut out);
        self.overload_due(now, &mut out);
        out
    }

    /// When [`RanNodes::tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let nodes = self.nodes.values().flat_map(|n| {
            [n.setup_due, n.update.as_ref().map(|u| u.due), n.resets.due()].into_iter().flatten()
        });
        nodes.chain(self.warnings.due()).chain(self.overload.due()).chain(self.next_claim()).min()
    }
}
