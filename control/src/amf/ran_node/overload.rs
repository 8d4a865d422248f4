//! Overload Start and Stop: TS 38.413 §8.7.7, §8.7.8, TS 23.501 §5.19.5.2.
//!
//! Three loads are compared with thresholds: the UE table, the table of unauthenticated UEs, and the time that messages wait. gNBs
//! get OVERLOAD START when one load reaches its upper threshold, and OVERLOAD STOP when all have stayed below their lower
//! thresholds for a while. The waiting time counts only after several samples in a row: a single late one is a stall of the host.
//! The operator can overrule the decision.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;
use whimbrel_ngap::ie::{OverloadAction, OverloadResponse};
use whimbrel_ngap::msg::{OverloadStart, OverloadStop};

use super::{RanNode, RanNodes, RanOutput};
use crate::config::OverloadRule;
use crate::envelope::AssociationId;
use crate::event::RanEvent;

/// The loads that decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Slots in use, in percent of `limits.ues`.
    pub ues_percent: u8,
    /// UEs that are not authenticated yet, in percent of `limits.unauthenticated_ues`.
    pub unauthenticated_ues_percent: u8,
    /// How long a message waits before it is processed.
    pub delay: Duration,
}

/// The source of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverloadOrder {
    /// The thresholds of the configuration decide.
    #[default]
    ByRule,
    /// The operator has ordered overload, whatever the load.
    Start,
    /// The operator has ordered no overload, whatever the load.
    Stop,
}

/// The overload state.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Overload {
    order: OverloadOrder,
    on: bool,
    /// Samples in a row in which messages waited too long.
    late: u8,
    /// All loads are below the lower thresholds since this time.
    calm_since: Option<Instant>,
    /// When the overload ends if the loads stay below them.
    over_at: Option<Instant>,
}

impl Overload {
    pub(super) fn due(&self) -> Option<Instant> {
        self.over_at
    }
}

fn is_high(load: Load, late: u8, rule: &OverloadRule) -> bool {
    load.ues_percent >= rule.start_percent
        || load.unauthenticated_ues_percent >= rule.start_percent
        || late >= rule.start_samples
}

fn is_low(load: Load, rule: &OverloadRule) -> bool {
    load.ues_percent < rule.stop_percent
        && load.unauthenticated_ues_percent < rule.stop_percent
        && load.delay < rule.stop_delay
}

impl RanNodes {
    /// Whether gNBs have OVERLOAD START.
    pub fn is_overloaded(&self) -> bool {
        self.overload.on
    }

    /// The source of the present decision.
    pub fn overload_order(&self) -> OverloadOrder {
        self.overload.order
    }

    /// Sets or clears the operator's order.
    pub fn order_overload(&mut self, order: OverloadOrder) -> RanOutput {
        let mut out = RanOutput::default();
        self.overload.order = order;
        (self.overload.calm_since, self.overload.over_at) = (None, None);
        match order {
            OverloadOrder::Start => self.overload(true, &mut out),
            OverloadOrder::Stop | OverloadOrder::ByRule => self.overload(false, &mut out),
        }
        out
    }

    /// Updates the load with a new sample of the waiting time; one is taken each half second.
    pub fn waited(&mut self, now: Instant, load: Load) -> RanOutput {
        let is_late = load.delay >= self.config.overload.start_delay;
        self.overload.late = if is_late { self.overload.late.saturating_add(1) } else { 0 };
        self.loaded(now, load)
    }

    /// Updates the load with the last sample of the waiting time.
    pub fn loaded(&mut self, now: Instant, load: Load) -> RanOutput {
        let mut out = RanOutput::default();
        if self.overload.order != OverloadOrder::ByRule {
            return out;
        }
        let rule = self.config.overload;
        if is_high(load, self.overload.late, &rule) {
            (self.overload.calm_since, self.overload.over_at) = (None, None);
            self.overload(true, &mut out);
        } else if !is_low(load, &rule) {
            (self.overload.calm_since, self.overload.over_at) = (None, None);
        } else if self.overload.on && self.overload.calm_since.is_none() {
            self.overload.calm_since = Some(now);
            self.overload.over_at = Some(now + rule.hold);
        }
        out
    }

    pub(super) fn overload_due(&mut self, now: Instant, out: &mut RanOutput) {
        if self.overload.over_at.is_some_and(|at| at <= now) {
            (self.overload.calm_since, self.overload.over_at) = (None, None);
            self.overload(false, out);
        }
    }

    fn overload(&mut self, on: bool, out: &mut RanOutput) {
        if std::mem::replace(&mut self.overload.on, on) == on {
            return;
        }
        out.events.push(RanEvent::Overload { on });
        let all: Vec<AssociationId> = self.serving().map(|(a, _)| a).collect();
        for association in all {
            self.send_overload_state(association, out);
        }
    }

    /// Sends a gNB the message that it lacks: OVERLOAD START or OVERLOAD STOP.
    pub(super) fn send_overload_state(&mut self, association: AssociationId, out: &mut RanOutput) {
        let (on, reduction) = (self.overload.on, self.config.overload.reduction_percent);
        let Some(node) = self.nodes.get_mut(&association).filter(|n| RanNode::serves(n)) else { return };
        if std::mem::replace(&mut node.overloaded, on) == on {
            return;
        }
        if !on {
            return out.messages.push((association, OverloadStop::new().into()));
        }
        let mut start = OverloadStart::new();
        // New connections for data are rejected first; emergencies, high priority and answers to paging are permitted (TS
        // 38.413 §9.3.1.105).
        let action = OverloadAction::PermitHighPrioritySessionsAndMobileTerminatedServicesOnly;
        start.amf_overload_response = Some(OverloadResponse::OverloadAction(action));
        start.amf_traffic_load_reduction_indication = Some(reduction.clamp(1, 99));
        out.messages.push((association, start.into()));
    }
}
