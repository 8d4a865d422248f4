//! What operators see of the CPFs: their condition, the log lines about missing replicas, and the metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_link::DownReason;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{ProtocolViolation, TakeoverTime};

use super::{CpfPool, PoolMember};
use crate::cluster::heartbeat::IgnoredHeartbeats;
use crate::observation::{Condition, CpfView, Level, Metric, MetricSample, ReplicasView};

/// How long there have to be too few CPFs, or enough again, before the log says so.
const LASTS: Duration = Duration::from_secs(2);

impl CpfPool {
    pub(super) fn show_condition(&mut self) {
        let members = self.members.by_id.len();
        self.missing.now = if members == 0 { 0 } else { self.rings().missing() };
        let (condition, detail) = match (members, self.missing.now) {
            (0, _) => (
                Condition::Down,
                "no CPF is connected, so UEs are refused: start one with `whimbrel cpf`".into(),
            ),
            (1, 1..) => (Condition::Limited, "1 CPF, and no other one to take its UEs over".into()),
            (n, missing @ 1..) => {
                let configured = usize::from(self.cluster.in_force.replicas);
                let replicas = configured - missing;
                (Condition::Limited, format!("{n} CPFs: each UE has {replicas} of {configured} replicas"))
            }
            (n, 0) => (Condition::Up, format!("{n} CPFs")),
        };
        self.console.components(|c| c.set("cpfs", condition, detail));
    }

    /// Logs whether there are enough CPFs once that has lasted, so that a CPF that comes and goes does not fill the log.
    pub(super) fn log_missing_replicas(&mut self, now: Instant) {
        let missing = &mut self.missing;
        if self.members.by_id.is_empty() {
            missing.logged = 0;
        }
        if missing.now == missing.logged {
            missing.changed = None;
            return;
        }
        let since = *missing.changed.get_or_insert(now);
        if now < since + LASTS {
            return;
        }
        (missing.logged, missing.changed) = (missing.now, None);
        match missing.now {
            0 => info!("there are enough CPFs for all replicas of each UE"),
            missing => {
                let (members, configured) = (self.members.by_id.len(), self.cluster.in_force.replicas);
                warn!(members, missing, configured, "there are too few CPFs for all replicas of each UE");
            }
        }
    }

    /// When [`Self::log_missing_replicas`] is due.
    pub(super) fn missing_replicas_logged_at(&self) -> Option<Instant> {
        self.missing.changed.map(|since| since + LASTS)
    }

    /// How often the cluster configuration in etcd was invalid.
    pub fn rejected_configurations(&self) -> u64 {
        self.cluster.rejected
    }

    /// The members, with the UEs of which each is primary, and backup if they were counted.
    pub fn views(
        &self,
        ues: Option<BTreeMap<CpfId, (u64, u64)>>,
        primary_of: impl Fn(CpfId) -> u64,
    ) -> Vec<CpfView> {
        let rings = self.rings();
        let view = |(id, member): (&CpfId, &PoolMember)| {
            let counted = ues.as_ref().map(|ues| ues.get(id).copied().unwrap_or_default());
            CpfView {
                id: id.0,
                address: member.address.to_string(),
                region: member.region.name(),
                code: member.code.to_string(),
                slice: member.slice.map(|slice| slice.to_string()),
                state: match (member.link, member.draining, rings.serves(*id)) {
                    (None, ..) => "away",
                    (_, true, _) => "leaving",
                    (_, _, true) => "serving",
                    (_, _, false) => "waiting",
                },
                primary_of: Some(primary_of(*id)),
                backup_of: counted.map(|(_, backup)| backup),
            }
        };
        self.members.by_id.iter().map(view).collect()
    }

    /// Replicas of each UE. `ues_without`: UEs that have none.
    pub fn replicas(&self, ues_without: u64) -> ReplicasView {
        let configured = u64::from(self.cluster.in_force.replicas);
        ReplicasView { configured, missing: self.missing.now as u64, ues_without }
    }

    /// For the metrics. `answering`: the heartbeats that this CTA did not answer.
    pub fn samples(&self, answering: IgnoredHeartbeats) -> Vec<MetricSample> {
        let one = |metric, value| MetricSample { metric, label: None, value };
        let heartbeats = self.heartbeats.monitor.counters();
        let links = self.links.counters();
        let counts = [
            one(Metric::CpfHeartbeats, heartbeats.probes),
            one(Metric::CpfSilent, heartbeats.downs),
            one(Metric::CpfUnresponsive, self.liveness.unresponsive()),
            one(Metric::CpfFalseAlarms, heartbeats.false_alarms),
            one(Metric::CpfExcluded, self.incoming.excluded.total()),
            one(Metric::CpfFailuresDeferred, heartbeats.put_off),
            one(Metric::LinkRejected, self.incoming.rejected.total()),
            one(Metric::LinkVersionsRefused, self.incoming.incompatible),
            one(Metric::ReplicasMissing, self.missing.now as u64),
            one(Metric::LinkFramesReceived, links.frames_in),
            one(Metric::LinkFramesShared, links.ring_in),
            one(Metric::LinkFramesSent, links.frames_out),
        ];
        let ended = DownReason::ALL.iter().map(|reason| MetricSample {
            metric: Metric::LinksEnded,
            label: Some(reason.label().into()),
            value: links.down(*reason),
        });
        let ignored = answering + heartbeats.into();
        counts
            .into_iter()
            .chain(ended)
            .chain(ignored.samples())
            .chain(self.recovery_times.samples())
            .collect()
    }

    /// Other CPFs have taken over after a loss.
    pub fn recovered(&mut self, now: Instant, recovered: TakeoverTime) {
        if let TakeoverTime::All(took) = recovered {
            let text = "All UEs of the lost CPFs have another primary.";
            self.console.moment(now, (Level::Info, "takeover"), "CPFs", text, Some(took));
        }
        self.recovery_times.add(recovered);
    }
}

/// Logs a protocol violation of a CPF; the CTA reports the first one of each kind.
pub fn log_protocol_violation(cpf: CpfId, violation: ProtocolViolation) {
    let (what, counted) = match violation {
        ProtocolViolation::Fenced => (
            "sent a message for a UE that it does not serve, or no longer serves: ignored",
            Metric::AnswersFenced,
        ),
        ProtocolViolation::AckRefused => {
            ("acknowledged a checkpoint that cannot exist yet: ignored", Metric::CheckpointAcksRefused)
        }
        ProtocolViolation::CheckpointUnusable => (
            "has a checkpoint that is not the announced one, or lacks one that it acknowledged: it does not serve the UE from it",
            Metric::CheckpointsUnusable,
        ),
        ProtocolViolation::Diverged => (
            "gave other outputs in a replay than before: the UE has to register again (a fault of the program; please report it)",
            Metric::ReplaysDiverged,
        ),
        ProtocolViolation::NasCountReuse => (
            "would reuse a NAS COUNT under the same keys: the output is not sent, and the UE has to register again (a fault of the program; please report it)",
            Metric::NasCountReuse,
        ),
        ProtocolViolation::Lagging => {
            ("does not acknowledge checkpoints in time: logs no longer wait for it", Metric::ReplicasLagging)
        }
    };
    warn!(cpf = cpf.0, "a CPF {what}; further times are only counted ({})", counted.name());
}
