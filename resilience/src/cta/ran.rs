//! gNBs themselves: their messages, operator orders, and limits on what they may cause.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::amf::{
    self, Load, OverloadOrder, RanNode, RanOutput, Rate, Reset, Warning, WarningError, reset_acknowledge,
};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, Command, N2Names, Payload, RanEvent, UeId};
use whimbrel_ids::{GlobalGnbId, Instant, RanUeNgapId, Tai};
use whimbrel_ngap::ie::{
    AmfPagingTarget, CauseMisc, NgranCgi, ResetType, UeAssociatedLogicalNgConnectionItem,
};
use whimbrel_ngap::{Message, TransferSyntax};

use super::{Cta, Entropy, Inspect, Outbox, send};

/// How often each limit was reached. Each is reported once a second at most, and always counted.
#[derive(Default)]
pub(super) struct Bounds {
    reached: BTreeMap<&'static str, u64>,
    reports: BTreeMap<&'static str, Rate>,
    pub(super) pagings: Rate,
}

impl Bounds {
    /// A limit was reached: returns whether to report it.
    fn count(&mut self, now: Instant, limit: &'static str) -> bool {
        *self.reached.entry(limit).or_default() += 1;
        self.reports.entry(limit).or_default().take(now, 1)
    }
}

/// A reset (TS 38.413 §8.7.4) that waits for the release of its UEs' connections.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingReset {
    ues: BTreeSet<UeId>,
    association: AssociationId,
    /// NG RESET ACKNOWLEDGE, encoded in the gNB's transfer syntax.
    acknowledge: Vec<u8>,
}

/// One of our own messages in fastwire.
fn to_fastwire(octets: &[u8]) -> Vec<u8> {
    let mut fast = Vec::with_capacity(2 * octets.len());
    if let Ok(message) = Message::decode(octets) {
        message.encode_in(TransferSyntax::Fastwire, &mut fast);
    }
    fast
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// How often each of the `limits` was reached.
    pub fn bounds(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.bounds.reached.iter().map(|(&limit, &n)| (limit, n))
    }

    /// Counts that a limit was reached, and reports it at most once a second.
    pub(super) fn limited(
        &mut self,
        now: Instant,
        association: Option<AssociationId>,
        limit: &'static str,
        out: &mut Outbox,
    ) {
        if self.bounds.count(now, limit) {
            out.ran_events.push(RanEvent::Limited { association, limit });
        }
    }

    pub(super) fn association_up(
        &mut self,
        now: Instant,
        association: AssociationId,
        streams: u16,
        addresses: Vec<IpAddr>,
        out: &mut Outbox,
    ) {
        self.association_down(now, association, out);
        self.streams.insert(association, streams);
        let result = self.ran.up(now, association, addresses);
        self.ran_output(now, association, result, out);
    }

    pub(super) fn association_down(&mut self, now: Instant, association: AssociationId, out: &mut Outbox) {
        if self.streams.remove(&association).is_none() {
            return;
        }
        out.ran_events.push(self.ran.down(association));
        self.path_switches.lost(association);
        self.questions.lost(association);
        self.connections_lost(association);
        self.update_load(now, out);
    }

    fn connections_lost(&mut self, association: AssociationId) {
        for ue in self.slots.on(association) {
            self.inbox.push_back((ue, Payload::Command(Command::ConnectionLost(association))));
        }
    }

    /// A message with an AMF-UE-NGAP-ID of no UE, or of none at this gNB (TS 38.413 §10.6). Messages that end a connection or are errors
    /// themselves get no answer, since they agree that there is no context, and are counted.
    pub(super) fn unknown_ue(
        &mut self,
        now: Instant,
        association: AssociationId,
        stream: u16,
        octets: &[u8],
        what: &'static str,
        out: &mut Outbox,
    ) {
        let answer = match Message::decode(octets) {
            Ok(Message::UeContextReleaseComplete(_) | Message::ErrorIndication(_)) => {
                return out.ran_events.push(RanEvent::Unserved { association, what });
            }
            Ok(_) => amf::unknown_local_id(octets),
            Err(refusal) => match refusal.error_indication() {
                Some(answer) => answer.into(),
                None => return out.ran_events.push(RanEvent::Unserved { association, what }),
            },
        };
        if !self.finds_fault_with(now, association, what, out) {
            return;
        }
        // The answer names a UE: it keeps to the stream of the message (TS 38.412 §7).
        send(association, stream, &answer, out);
    }

    /// A UE's procedure found an error in a gNB's message. Returns whether ERROR INDICATION is sent.
    pub(super) fn finds_fault(&mut self, now: Instant, association: AssociationId, out: &mut Outbox) -> bool {
        self.finds_fault_with(
            now,
            association,
            "identities or contents that a UE's connection does not know",
            out,
        )
    }

    fn finds_fault_with(
        &mut self,
        now: Instant,
        association: AssociationId,
        what: &'static str,
        out: &mut Outbox,
    ) -> bool {
        let may = self.ran.may_send_error_indication(now, association);
        match may {
            true => out.ran_events.push(RanEvent::Refused { association, what: what.to_owned() }),
            false => self.limited(now, Some(association), "error_indications", out),
        }
        may
    }

    /// A message that names no UE.
    pub(super) fn ran_node(
        &mut self,
        now: Instant,
        association: AssociationId,
        octets: &[u8],
        out: &mut Outbox,
    ) {
        let result = match Message::decode(octets) {
            Ok(message) => self.ran.handle(now, association, message),
            Err(refusal) => self.ran.unreadable(now, association, &refusal),
        };
        self.ran_output(now, association, result, out);
    }

    /// Carries out what a gNB, a timer or the operator caused: effects on UEs come before messages to the gNB.
    pub(super) fn ran_output(
        &mut self,
        now: Instant,
        association: AssociationId,
        result: RanOutput,
        out: &mut Outbox,
    ) {
        // A gNB that has set up again under its identity: its former association ends before the new one is up.
        let (renewed, events): (Vec<RanEvent>, Vec<RanEvent>) =
            result.events.into_iter().partition(|e| matches!(e, RanEvent::SameIdentity { .. }));
        out.ran_events.extend(renewed);
        for former in result.superseded {
            // Its SCTP association still exists: it counts as one without NG Setup until SCTP ends it.
            out.ran_events.push(self.ran.supersede(now, former));
            self.connections_lost(former);
        }
        for event in events {
            match event {
                RanEvent::Limited { association, limit } => self.limited(now, association, limit, out),
                event => out.ran_events.push(event),
            }
        }
        if let Some(Reset { what, acknowledge, by }) = result.reset {
            let ues = match &what {
                ResetType::NgInterface(_) => {
                    let all = self.ran.siblings(association).into_iter();
                    all.flat_map(|a| self.slots.on(a).into_iter().map(move |p| (p, a))).collect()
                }
                ResetType::PartOfNgInterface(list) => self.named(association, list),
            };
            out.ran_events.push(RanEvent::Reset { association, ues: ues.len(), by });
            for &(ue, on) in &ues {
                self.inbox.push_back((ue, Payload::Command(Command::ConnectionLost(on))));
            }
            self.run(now, out);
            if acknowledge {
                let ues = ues.into_iter().map(|(ue, _)| ue).collect();
                let mut acknowledge = Vec::new();
                reset_acknowledge(what).encode_in(association.syntax(), &mut acknowledge);
                self.resetting.push(PendingReset { ues, association, acknowledge });
                self.acknowledge_resets(out);
            }
        }
        for (to, message) in result.messages {
            send(to, 0, &message, out);
        }
        out.probes.extend(result.probes);
        for association in result.abort {
            out.abort.push(association);
            self.association_down(now, association, out);
        }
        self.update_load(now, out);
    }

    /// Acknowledges resets whose UEs' connections are all released: at once where procedures run in this process.
    pub(super) fn acknowledge_resets(&mut self, out: &mut Outbox) {
        if self.resetting.is_empty() {
            return;
        }
        for mut reset in std::mem::take(&mut self.resetting) {
            reset.ues.retain(|&ue| self.is_at_work(ue));
            match reset.ues.is_empty() {
                true => out.ngap.push((reset.association, 0, reset.acknowledge)),
                false => self.resetting.push(reset),
            }
        }
    }

    /// Updates the deadline of the gNBs' timers, and the load.
    pub(super) fn update_load(&mut self, now: Instant, out: &mut Outbox) {
        self.ran_due = self.ran.next_deadline();
        let limits = &self.config.limits;
        let percent = |used: u64, of: u32| (used.saturating_mul(100) / u64::from(of.max(1))).min(100) as u8;
        let load = Load {
            ues_percent: percent(self.slots.used() as u64, limits.ues),
            unauthenticated_ues_percent: percent(
                self.slots.unauthenticated_ues().into(),
                limits.unauthenticated_ues,
            ),
            delay: self.load.delay,
        };
        self.loaded(now, load, out);
    }

    /// Passes the load to the overload rule if it has changed.
    pub(super) fn loaded(&mut self, now: Instant, load: Load, out: &mut Outbox) {
        if std::mem::replace(&mut self.load, load) == load {
            return;
        }
        let result = self.ran.loaded(now, load);
        self.judged(result, out);
    }

    fn judged(&mut self, result: RanOutput, out: &mut Outbox) {
        self.ran_due = self.ran.next_deadline();
        out.ran_events.extend(result.events);
        for (to, message) in result.messages {
            send(to, 0, &message, out);
        }
    }

    /// The connections of a gNB that a partial reset names by either identity. A UE in handover has two.
    fn named(
        &self,
        association: AssociationId,
        list: &[UeAssociatedLogicalNgConnectionItem],
    ) -> Vec<(UeId, AssociationId)> {
        let ours = self.ran.siblings(association);
        let names = |p: UeId| self.slots.names(p).filter(|n| ours.contains(&n.association));
        let mut ues: Vec<(UeId, AssociationId)> = Vec::new();
        let mut of_targets = BTreeSet::new();
        for item in list {
            match (item.amf_ue_ngap_id, item.ran_ue_ngap_id) {
                (Some(id), _) => {
                    let Some(ue) = self.slots.by_amf_ue_ngap_id(id) else { continue };
                    let named = names(ue).find(|n| n.amf_ue_ngap_id == id);
                    ues.extend(named.map(|n| (ue, n.association)));
                }
                (None, Some(id)) => {
                    let on = |&a: &AssociationId| Some((self.slots.by_ran_ue_ngap_id(a, id)?, a));
                    match ours.iter().find_map(on) {
                        Some(found) => ues.push(found),
                        None => drop(of_targets.insert(id)),
                    }
                }
                (None, None) => {}
            }
        }
        if !of_targets.is_empty() {
            for ue in ours.iter().flat_map(|a| self.slots.coming_to(*a)) {
                let of_target = |n: &N2Names| n.ran_ue_ngap_id.is_some_and(|ran| of_targets.contains(&ran));
                ues.extend(names(ue).find(of_target).map(|n| (ue, n.association)));
            }
        }
        ues.sort_unstable();
        ues.dedup();
        ues
    }

    /// PAGING to every gNB that broadcasts one of the tracking areas (TS 38.413 §8.5.1.2), on stream 0; or, where some of the
    /// gNBs that are near are up, to these (TS 23.501 §5.4.3.2). A UE counts once, however many gNBs there are: it is paged
    /// everywhere or, beyond the bound, nowhere.
    pub(super) fn page(
        &mut self,
        now: Instant,
        tais: &[Tai],
        near: (&[AmfPagingTarget], &[NgranCgi]),
        octets: &[u8],
        out: &mut Outbox,
    ) {
        if !self.bounds.pagings.take(now, self.config.limits.pagings_per_s) {
            return self.limited(now, None, "pagings_per_s", out);
        }
        let first = self.ran.serving().filter(|(_, n)| n.is_near(near.0, near.1));
        let mut to: Vec<_> = first.map(|(association, _)| association).collect();
        if to.is_empty() {
            let of_area = |n: &&RanNode| tais.iter().any(|t| n.tacs.contains(&t.tac));
            to.extend(self.ran.serving().filter(|(_, n)| of_area(n)).map(|(association, _)| association));
        }
        // It is written once; in fastwire only if some gNB is to hear it so.
        let mut fast = None;
        for association in to {
            let octets = match association.syntax() {
                TransferSyntax::Per => octets,
                TransferSyntax::Fastwire => fast.get_or_insert_with(|| to_fastwire(octets)),
            };
            out.ngap.push((association, 0, octets.to_vec()));
        }
    }

    /// The operator sends a warning message (TS 38.413 §8.9.1). Returns the number of gNBs that get it.
    pub fn warn(&mut self, now: Instant, warning: Warning, out: &mut Outbox) -> Result<usize, WarningError> {
        let (gnbs, result) = self.ran.warn(now, warning)?;
        self.operator_output(now, result, out);
        Ok(gnbs)
    }

    /// The operator cancels a warning message (TS 38.413 §8.9.2). Returns the number of gNBs that get the request.
    pub fn cancel_warning(
        &mut self,
        now: Instant,
        message_identifier: u16,
        serial_number: u16,
        out: &mut Outbox,
    ) -> Result<usize, WarningError> {
        let (gnbs, result) = self.ran.cancel_warning(now, message_identifier, serial_number)?;
        self.operator_output(now, result, out);
        Ok(gnbs)
    }

    /// The operator orders OVERLOAD START or STOP, or leaves it to the rule.
    pub fn order_overload(&mut self, now: Instant, order: OverloadOrder, out: &mut Outbox) {
        let result = self.ran.order_overload(order);
        self.operator_output(now, result, out);
        if order == OverloadOrder::ByRule {
            self.load = Load { ues_percent: u8::MAX, ..self.load }; // so that it is judged again
            self.update_load(now, out);
        }
    }

    /// The operator resets all connections of a gNB (TS 38.413 §8.7.4.2.1). Returns whether the gNB is up.
    pub fn reset_gnb(&mut self, now: Instant, gnb: GlobalGnbId, out: &mut Outbox) -> bool {
        let Some(association) = self.ran.find(gnb) else { return false };
        let result = self.ran.reset(now, association, CauseMisc::OmIntervention, Vec::new());
        self.ran_output(now, association, result, out);
        self.run(now, out);
        true
    }

    /// The operator disconnects a gNB: its associations are aborted, and its addresses do not get its identity for a minute. Returns whether
    /// the gNB is up.
    pub fn disconnect_gnb(&mut self, now: Instant, gnb: GlobalGnbId, out: &mut Outbox) -> bool {
        let Some(result) = self.ran.disconnect(now, gnb) else { return false };
        self.operator_output(now, result, out);
        self.run(now, out);
        true
    }

    /// Other endpoints at which this AMF is reached from now on (TS 38.413 §8.7.3.2).
    pub fn endpoints(&mut self, now: Instant, endpoints: Vec<IpAddr>, out: &mut Outbox) {
        let result = self.ran.endpoints(now, endpoints);
        self.operator_output(now, result, out);
    }

    /// This host serves in the place of the one behind these endpoints, which is gone (TS 38.413 §8.7.3.2).
    pub fn taken_over(&mut self, now: Instant, lost: Vec<IpAddr>, out: &mut Outbox) {
        let result = self.ran.taken_over(now, lost);
        self.operator_output(now, result, out);
    }

    /// The program ends: gNBs get AMF STATUS INDICATION (TS 38.413 §8.7.6).
    pub fn retire(&mut self, now: Instant, out: &mut Outbox) {
        let result = self.ran.retire();
        self.operator_output(now, result, out);
    }

    pub(super) fn operator_output(&mut self, now: Instant, result: RanOutput, out: &mut Outbox) {
        // None of these resets connections, so no association is named.
        self.ran_output(now, AssociationId(u32::MAX), result, out);
    }

    /// A sample of how long messages wait at the edge, for the rule of overload.
    pub(super) fn waited(&mut self, now: Instant, delay: Duration, out: &mut Outbox) {
        self.load.delay = delay;
        let result = self.ran.waited(now, self.load);
        self.judged(result, out);
    }

    /// The gNB uses a RAN-UE-NGAP-ID for a new connection that another UE still has: the former connection is gone (TS 38.413 §9.3.3.2).
    /// Returns `true` for the same message again, which begins nothing.
    pub(super) fn free_ran_ue_ngap_id(
        &mut self,
        now: Instant,
        association: AssociationId,
        name: Option<RanUeNgapId>,
        digest: u64,
        out: &mut Outbox,
    ) -> bool {
        let Some(ue) = name.and_then(|n| self.slots.by_ran_ue_ngap_id(association, n)) else {
            return false;
        };
        if self.slots.began_with(ue, digest) {
            return true;
        }
        self.inbox.push_back((ue, Payload::Command(Command::ConnectionLost(association))));
        self.run(now, out);
        false
    }
}
