//! What `top` shows: the newest answers, and rates from their difference to the ones before.

use std::time::Instant;

use whimbrel_api::{CoreStatus, ProcedureStatus};
use whimbrel_node::client::Client;
use whimbrel_node::observation::{GnbView, RefusalRecord};

/// Refusals asked for: more than a screen holds.
const REFUSALS: usize = 50;

/// One round of answers.
pub(super) struct Answers {
    pub(super) at: Instant,
    pub(super) status: CoreStatus,
    pub(super) gnbs: Vec<GnbView>,
    pub(super) refusals: Vec<RefusalRecord>,
}

/// Asks for everything that is shown.
pub(super) fn fetch(client: &Client) -> Result<Answers, String> {
    Ok(Answers {
        at: Instant::now(),
        status: client.get("/api/v1/status")?,
        // A core that starts or is degraded has a state, but no gNBs to tell of.
        gnbs: client.get("/api/v1/gnbs").unwrap_or_default(),
        refusals: client.get(&format!("/api/v1/refusals?limit={REFUSALS}"))?,
    })
}

/// The newest answers and the rates since the ones before.
#[derive(Default)]
pub(super) struct Model {
    pub(super) newest: Option<Answers>,
    before: Option<Answers>,
    /// Why the last round failed.
    pub(super) error: Option<String>,
}

impl Model {
    /// Takes a round's outcome; after a failure the last answers stay.
    pub(super) fn update(&mut self, round: Result<Answers, String>) {
        match round {
            Ok(answers) => {
                // A restarted program counts from zero: there is no rate to its former life.
                let same = self.newest.as_ref().is_some_and(|n| n.status.started == answers.status.started);
                self.before = self.newest.take().filter(|_| same);
                self.newest = Some(answers);
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// How much a count of the status grew in a second.
    pub(super) fn per_second(&self, count: impl Fn(&CoreStatus) -> u64) -> f64 {
        let (Some(now), Some(before)) = (&self.newest, &self.before) else { return 0.0 };
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let grown = count(&now.status).saturating_sub(count(&before.status));
        if seconds > 0.0 { grown as f64 / seconds } else { 0.0 }
    }

    /// How often a procedure ended in a second.
    pub(super) fn procedure_per_second(&self, name: &str) -> f64 {
        let ended = |p: &ProcedureStatus| if p.name == name { p.completed + p.refused } else { 0 };
        self.per_second(|s| s.procedures.iter().map(ended).sum())
    }
}
