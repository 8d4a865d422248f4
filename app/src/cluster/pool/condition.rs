//! How it stands with the CPFs, for the operator.

use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{ProtocolViolation, TakeoverTime};

use super::Pool;
use crate::cluster::heartbeat::Ignored;
use crate::console::{Condition, Sample};

/// How long there have to be too few of them, or enough, until the log says so.
const STAYS: Duration = Duration::from_secs(2);

impl Pool {
    pub(super) fn show_condition(&mut self) {
        self.missing = if self.members.is_empty() { 0 } else { self.rings().missing() };
        let (condition, detail) = match (self.members.len(), self.missing) {
            (0, _) => (
                Condition::Down,
                "no CPF is connected, so UEs are refused: start one with `whimbrel cpf`".into(),
            ),
            (1, 1..) => (Condition::Limited, "1 CPF, and no other one to take its UEs over".into()),
            (n, 1..) => {
                let (configured, backups) =
                    (self.terms.backups, usize::from(self.terms.backups) - self.missing);
                (Condition::Limited, format!("{n} CPFs: each UE has {backups} of {configured} replicas"))
            }
            (n, 0) => (Condition::Up, format!("{n} CPFs")),
        };
        self.console.components(|c| c.set("CPFs", condition, detail));
    }

    /// Tells whether there are enough, when that has been so for a while: one that comes and goes again and again fills no log.
    pub(super) fn tell_missing(&mut self, now: Instant) {
        if self.members.is_empty() {
            self.missing_told = 0;
        }
        if self.missing == self.missing_told {
            self.missing_since = None;
            return;
        }
        let since = *self.missing_since.get_or_insert(now);
        if now < since + STAYS {
            return;
        }
        (self.missing_told, self.missing_since) = (self.missing, None);
        match self.missing {
            0 => info!("there are enough CPFs for all replicas of each UE"),
            missing => {
                let (members, configured) = (self.members.len(), self.terms.backups);
                warn!(members, missing, configured, "there are too few CPFs for all replicas of each UE");
            }
        }
    }

    /// When [`Self::tell_missing`] is due.
    pub(super) fn missing_told_at(&self) -> Option<Instant> {
        self.missing_since.map(|since| since + STAYS)
    }

    /// How often what etcd says of the cluster could not be put in force.
    pub(crate) fn not_taken(&self) -> u64 {
        self.not_taken
    }

    /// For the metrics, with what was ignored where this CTA answers heartbeats.
    pub(crate) fn samples(&self, answering: Ignored) -> Vec<Sample> {
        let one = |name, help, value| Sample { name, help, label: None, value };
        let heartbeats = self.watch.counters();
        let links = self.links.counters();
        let counts = [
            one(
                "whimbrel_cpf_heartbeats_total",
                "Heartbeats sent to CPFs and the CTA replica",
                heartbeats.probes,
            ),
            one(
                "whimbrel_cpf_silent_total",
                "CPFs that did not answer heartbeats, or nothing on their links",
                heartbeats.downs,
            ),
            one(
                "whimbrel_cpf_unresponsive_total",
                "CPFs that answered heartbeats and nothing on their links",
                self.link_liveness.mute(),
            ),
            one(
                "whimbrel_cpf_false_alarms_total",
                "CPFs that were declared lost and were alive",
                heartbeats.false_alarms,
            ),
            one(
                "whimbrel_cpf_excluded_total",
                "CPFs that were excluded after a protocol violation on their links",
                self.excluded_cpfs.total(),
            ),
            one(
                "whimbrel_cpf_failures_deferred_total",
                "Times that a silent CPF was not declared lost because no other CPF answered either",
                heartbeats.put_off,
            ),
            one(
                "whimbrel_link_rejected_total",
                "Incoming links that were rejected",
                self.rejected_peers.total(),
            ),
            one(
                "whimbrel_versions_refused_total",
                "Incoming links of program versions with incompatible messages",
                self.other_versions,
            ),
            one(
                "whimbrel_backups_missing",
                "Replicas that each UE lacks because there are too few CPFs",
                self.missing as u64,
            ),
            one("whimbrel_link_frames_in_total", "Messages from CPFs and the CTA replica", links.frames_in),
            one("whimbrel_link_frames_out_total", "Messages to CPFs and the CTA replica", links.frames_out),
        ];
        let ignored = answering + heartbeats.into();
        counts.into_iter().chain(ignored.samples()).chain(self.recovery_times.samples()).collect()
    }

    /// Others went on after a loss.
    pub(crate) fn recovered(&mut self, recovered: TakeoverTime) {
        self.recovery_times.add(recovered);
    }
}

/// Tells the first time that a CPF does what it should not.
pub(crate) fn log_protocol_violation(cpf: CpfId, complaint: ProtocolViolation) {
    let (what, counted) = match complaint {
        ProtocolViolation::Fenced => {
            ("sent a message for a UE that it does not serve, or no longer serves: ignored", "fenced")
        }
        ProtocolViolation::AckRefused => {
            ("acknowledged a checkpoint that cannot exist yet: ignored", "checkpoint_acks_refused")
        }
        ProtocolViolation::CheckpointUnusable => (
            "has a checkpoint that is not the announced one, or lacks one that it acknowledged: it does not serve the UE from it",
            "states_unreadable",
        ),
        ProtocolViolation::Diverged => (
            "gave other outputs in a replay than before: the UE has to register again (a fault of ours; please report it)",
            "diverged",
        ),
        ProtocolViolation::NasCountReuse => (
            "would reuse a NAS COUNT under the same keys: the output is not sent, and the UE has to register again (a fault of ours; please report it)",
            "nas_count_reuse",
        ),
        ProtocolViolation::Lagging => {
            ("does not acknowledge checkpoints in time: logs no longer wait for it", "replicas_lagging")
        }
    };
    warn!(cpf = cpf.0, "a CPF {what}; further times are only counted (whimbrel_{counted}_total)");
}
