//! The processes that serve UEs as the API shows them, and the timeline of what happened to them.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;

use crate::clock;

/// Entries of the timeline: a cluster has some a day.
const MOMENTS_MAX: usize = 256;

/// The cluster as the API shows it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Cluster")]
pub struct ClusterView {
    /// `single`: UEs are served in this process; `region`: by CPFs; `pair`: by CPFs, and a second CTA can take over.
    pub deployment: &'static str,
    /// The CTA that answers, and its replica if there is one.
    pub ctas: Vec<CtaView>,
    /// The CPFs that have joined.
    pub cpfs: Vec<CpfView>,
    /// The UPFs of this core's sessions.
    pub upfs: Vec<UpfView>,
    /// During a canary: what the CPFs of each code version have done since it began.
    pub versions: Vec<VersionView>,
    /// Replicas that each UE shall have beside its primary, and how many of them CPFs are missing for.
    pub replicas: ReplicasView,
    /// The log from which replicas continue.
    pub log: LogView,
    /// What happened since the start, newest first.
    pub timeline: Vec<Moment>,
}

/// A CTA as the API shows it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Cta")]
pub struct CtaView {
    /// `primary` or `replica`.
    pub role: &'static str,
    /// The term in which it is the primary; `None` without a second CTA.
    pub term: Option<u32>,
    /// Whether it can do its part.
    pub up: bool,
    /// In a sentence.
    pub detail: String,
}

/// A CPF as the API shows it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Cpf")]
pub struct CpfView {
    /// Number of the CPF.
    pub id: u16,
    /// Where it takes messages of other CPFs.
    pub address: String,
    /// The region whose ring it is on, or would be.
    pub region: String,
    /// The version of its code.
    pub code: String,
    /// The slice whose UEs it serves, if it serves one alone.
    pub slice: Option<String>,
    /// `serving`: on its ring; `waiting`: joined, on no ring; `leaving`: its UEs move; `away`: may reconnect.
    pub state: &'static str,
    /// UEs of which it is the primary.
    pub primary_of: Option<u64>,
    /// UEs of which it holds a checkpoint; `None` if there are too many to count on demand.
    pub backup_of: Option<u64>,
}

/// What the CPFs of one code version have done since the canary began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Version")]
pub struct VersionView {
    /// The version, by its code.
    pub code: String,
    /// Whether it is the canary's.
    pub canary: bool,
    /// UEs of which they are primaries.
    pub ues: u64,
    /// Procedures that have ended.
    pub procedures: u64,
    /// Procedures that were refused or failed, and UEs that were discarded after a fault or lost with their CPF.
    pub failed: u64,
    /// CPFs that were lost.
    pub cpfs_lost: u64,
    /// Time in which they answer half of the inputs of UEs.
    pub answer_p50_us: Option<u64>,
    /// Time in which they answer 99 of 100.
    pub answer_p99_us: Option<u64>,
}

/// A UPF as the API shows it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Upf")]
pub struct UpfView {
    /// Name of the UPF in the configuration.
    pub name: String,
    /// Where it takes PFCP; `None`: it is in this program.
    pub address: Option<String>,
    /// Whether it gets new sessions.
    pub usable: bool,
    /// Its load in percent: as last reported, or its UEs in percent of its `capacity`, if that is more.
    pub load: u8,
    /// UEs with sessions there.
    pub ues: u32,
    /// True while it is drained.
    pub drained: bool,
}

/// Replicas of each UE.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Replicas")]
pub struct ReplicasView {
    /// Replicas of each UE, as configured.
    pub configured: u64,
    /// Of these, how many there are too few CPFs for.
    pub missing: u64,
    /// UEs that would be lost with their primary.
    pub ues_without: u64,
}

/// The log of UEs' inputs, in figures.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Log")]
pub struct LogView {
    /// UEs with inputs since their checkpoint.
    pub ues: u64,
    /// Octets of these inputs.
    pub octets: u64,
    /// Inputs that were replayed since the start.
    pub replayed: u64,
    /// UEs that were taken over since the start.
    pub taken_over: u64,
    /// UEs that were lost since the start.
    pub lost: u64,
}

/// Something that happened to a process.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Moment {
    /// When, RFC 3339.
    pub at: String,
    /// `joined`, `left`, `lost`, `takeover`, `replica`, `upf`.
    pub kind: &'static str,
    /// The process that the moment is about.
    pub subject: String,
    /// The moment in a sentence.
    pub text: String,
    /// How long it took.
    pub took_us: Option<u64>,
}

/// A bounded list of moments; the oldest are dropped first.
#[derive(Default)]
pub struct Timeline(VecDeque<Moment>);

impl Timeline {
    /// Adds a moment.
    pub fn push(
        &mut self,
        at: Instant,
        kind: &'static str,
        subject: impl Into<String>,
        text: impl Into<String>,
        took_us: Option<u64>,
    ) {
        if self.0.len() == MOMENTS_MAX {
            self.0.pop_front();
        }
        let (subject, text) = (subject.into(), text.into());
        self.0.push_back(Moment { at: clock::rfc3339(at), kind, subject, text, took_us });
    }

    /// All of them, newest first.
    pub fn newest_first(&self) -> Vec<Moment> {
        self.0.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeline_is_bounded_and_its_newest_moment_is_first() {
        let mut timeline = Timeline::default();
        for i in 0..MOMENTS_MAX as u64 + 5 {
            timeline.push(Instant(i), "lost", format!("CPF {i}"), "A CPF is lost.", None);
        }
        let all = timeline.newest_first();
        assert_eq!((all.len(), all[0].subject.as_str()), (MOMENTS_MAX, "CPF 260"));
        assert_eq!(all[MOMENTS_MAX - 1].subject, "CPF 5");
    }
}
