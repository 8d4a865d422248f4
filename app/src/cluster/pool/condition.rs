//! How it stands with the CPFs, for the operator.

use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{Complaint, Recovered};

use super::Pool;
use crate::cluster::heartbeat::Ignored;
use crate::console::{Condition, Sample};

/// How long there have to be too few of them, or enough, until the log says so.
const STAYS: Duration = Duration::from_secs(2);

impl Pool {
    pub(super) fn show_condition(&mut self) {
        self.missing = if self.members.is_empty() { 0 } else { self.rings().missing() };
        let (condition, detail) = match (self.members.len(), self.missing) {
            (0, _) => (Condition::Down, "none has come: `whimbrel cpf` starts one; UEs are refused".into()),
            (1, 1..) => (Condition::Limited, "one, and nobody to take its UEs over".into()),
            (n, 1..) => {
                let (wanted, backups) = (self.terms.backups, usize::from(self.terms.backups) - self.missing);
                (Condition::Limited, format!("{n} of them: a UE has {backups} backups of {wanted}"))
            }
            (n, 0) => (Condition::Up, format!("{n} of them")),
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
            0 => info!("there are enough CPFs for UEs' backups"),
            missing => {
                let (members, wanted) = (self.members.len(), self.terms.backups);
                warn!(members, missing, wanted, "there are too few CPFs for UEs' backups");
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
                "CPFs that did not answer, heartbeats or on their links",
                heartbeats.downs,
            ),
            one(
                "whimbrel_cpf_unresponsive_total",
                "CPFs that answered heartbeats and nothing on their links",
                self.link_liveness.mute(),
            ),
            one(
                "whimbrel_cpf_false_alarms_total",
                "CPFs that were taken for dead and lived",
                heartbeats.false_alarms,
            ),
            one(
                "whimbrel_cpf_excluded_total",
                "CPFs that were given up because they broke the rules of their links",
                self.excluded_cpfs.total(),
            ),
            one(
                "whimbrel_cpf_failures_deferred_total",
                "Times that a silent CPF was not taken for dead because no other one answered either",
                heartbeats.put_off,
            ),
            one(
                "whimbrel_link_rejected_total",
                "Calls that were no CPF's and no CTA's",
                self.rejected_peers.total(),
            ),
            one(
                "whimbrel_versions_refused_total",
                "Calls of versions of the program whose messages are others",
                self.other_versions,
            ),
            one(
                "whimbrel_backups_missing",
                "Backups that a UE lacks, since there are too few CPFs",
                self.missing as u64,
            ),
            one("whimbrel_link_frames_in_total", "Messages from CPFs and the CTA replica", links.frames_in),
            one("whimbrel_link_frames_out_total", "Messages to CPFs and the CTA replica", links.frames_out),
        ];
        let ignored = answering + heartbeats.into();
        counts.into_iter().chain(ignored.samples()).chain(self.recovery_times.samples()).collect()
    }

    /// Others went on after a loss.
    pub(crate) fn recovered(&mut self, recovered: Recovered) {
        self.recovery_times.add(recovered);
    }
}

/// Tells the first time that a CPF does what it should not.
pub(crate) fn log_protocol_violation(cpf: CpfId, complaint: Complaint) {
    let (what, counted) = match complaint {
        Complaint::Fenced => ("speaks for a UE that it does not serve, or not any more: ignored", "fenced"),
        Complaint::ClaimRefused => {
            ("says to hold a state that nobody can hold yet: not believed", "claims_refused")
        }
        Complaint::Unreadable => (
            "has a state of a UE that is not what its sender said, or lacks one that it said to have: it does not serve from that",
            "states_unreadable",
        ),
        Complaint::Diverged => (
            "gave other answers when it ran messages again: the UE registers anew (a fault of ours; please report it)",
            "diverged",
        ),
        Complaint::CountAgain => (
            "uses a NAS COUNT again under the same keys: nothing of that leaves, and the UE registers anew (a fault of ours; please report it)",
            "nas_count_reuse",
        ),
        Complaint::Lagging => {
            ("does not say that it holds UEs' states: logs wait for it no longer", "replicas_lagging")
        }
    };
    warn!(cpf = cpf.0, "a CPF {what}; further times are counted (whimbrel_{counted}_total)");
}
