//! `whimbrel upgrade PROGRAM --canary`: CPFs of a new program serve some UEs beside the others, until an operator promotes or rolls back the
//! canary, or it fails more than they do.
//!
//! The CTAs learn of it by the configuration record, as a cluster's CTAs do from etcd; what each version has done is asked of the primary CTA
//! by a thread of its own, so that a CTA that hangs holds nothing up.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};
use whimbrel_resilience::region::LISTED_MAX;

use super::manager::Manager;
use super::program::Program;
use super::upgrade::Upgrade;
use crate::client::Client;
use crate::clock;
use crate::config::CanaryBounds;
use crate::function::directory;
use crate::function::messages::{CanaryOrder, CanaryStatus, Phase, Share};
use crate::observation::VersionView;

/// How long CPFs may take to be on the rings, or off them.
const JOINED_WITHIN: Duration = Duration::from_secs(30);
/// How long UEs may take to end the procedures that run at CPFs which are rolled back: five times T3560 (TS 24.501 table 10.2.2).
const LEFT_WITHIN: Duration = Duration::from_secs(40);
/// Time between two looks at what the versions have done.
const LOOKED_EVERY: Duration = Duration::from_millis(500);

/// What the manager has written for the next one, if it dies.
#[derive(Serialize, Deserialize)]
struct CanaryRecord {
    status: Option<CanaryStatus>,
    /// What became of the last one.
    last: Option<String>,
}

/// What the primary CTA shows.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct CtaObservation {
    cpfs: Vec<SeenCpf>,
    versions: Vec<VersionView>,
}

#[derive(Clone, Debug, Deserialize)]
struct SeenCpf {
    code: String,
    state: String,
    primary_of: Option<u64>,
}

impl CtaObservation {
    fn of<'a>(&'a self, code: &'a str) -> impl Iterator<Item = &'a SeenCpf> + 'a {
        self.cpfs.iter().filter(move |cpf| cpf.code == code)
    }

    fn serving(&self, code: &str) -> usize {
        self.of(code).filter(|cpf| cpf.state == "serving").count()
    }

    /// UEs of which these CPFs are primaries.
    fn ues(&self, code: &str) -> u64 {
        self.of(code).map(|cpf| cpf.primary_of.unwrap_or(1)).sum()
    }
}

/// The thread that looks; it ends with this.
struct Look(Arc<Mutex<Option<(Instant, CtaObservation)>>>);

impl Look {
    fn start(manager: &Manager) -> Self {
        let seen = Arc::new(Mutex::new(None));
        let looks = Arc::downgrade(&seen);
        let config = manager.config();
        let client = Client::of_unit(config);
        let look = move || {
            while let Some(to) = looks.upgrade() {
                let began = Instant::now();
                if let Ok(seen) = client.get::<CtaObservation>("/api/v1/cluster") {
                    *to.lock().unwrap_or_else(PoisonError::into_inner) = Some((began, seen));
                }
                drop(to);
                std::thread::sleep(LOOKED_EVERY);
            }
        };
        if let Err(e) = std::thread::Builder::new().name("canary".into()).spawn(look) {
            warn!("the canary is not rolled back by itself: its figures cannot be read: {e}");
        }
        Self(seen)
    }

    /// What was seen since a time.
    fn since(&self, at: Instant) -> Option<CtaObservation> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().filter(|(began, _)| *began >= at).map(|(_, seen)| seen.clone())
    }
}

/// A canary under way.
pub(super) struct Canary {
    status: CanaryStatus,
    /// The program of its CPFs; `None`: a former manager has run it, and it may not be run any more.
    program: Option<Program>,
    /// The caller that waits for the end of a step.
    lines: Option<Sender<String>>,
    look: Look,
    /// When the phase began.
    since: Instant,
    /// Its CPFs were asked to leave.
    leaving: bool,
}

impl Canary {
    /// Begins one. `None` if it cannot begin: the operator has got the reason.
    pub(super) fn begin(
        manager: &mut Manager,
        program: Program,
        share: Share,
        lines: Sender<String>,
    ) -> Option<Self> {
        let status = match Self::may_begin(manager, &program, share) {
            Ok(status) => status,
            Err(sentence) => {
                // If the operator's connection has ended, nothing has changed.
                let _ = lines.send(format!("failed: {sentence}"));
                return None;
            }
        };
        let since = Instant::now();
        let n = manager.config().unit.canary.cpfs;
        let look = Look::start(manager);
        let canary =
            Self { status, program: Some(program.clone()), lines: Some(lines), look, since, leaving: false };
        canary.write(manager);
        manager.add_canary_cpfs(n, &program);
        let CanaryStatus { program, code, share, .. } = &canary.status;
        info!(program = %program.display(), code, "a canary begins: {n} CPFs of its program start, for {share}");
        canary.say(format!("{n} CPFs of code {} are started", canary.status.code));
        canary.keep(manager);
        Some(canary)
    }

    fn may_begin(manager: &Manager, program: &Program, share: Share) -> Result<CanaryStatus, String> {
        match &share {
            Share::Percent(percent) if !(1..=100).contains(percent) => {
                return Err(format!("{percent} % is no share of UEs: write 1% to 100%"));
            }
            Share::Ues(ues) if ues.is_empty() || ues.len() > LISTED_MAX => {
                return Err(format!(
                    "{} UEs are listed: list 1 to {LISTED_MAX}, or write a share",
                    ues.len()
                ));
            }
            _ => {}
        }
        let code = program.code()?;
        if manager.runs_code(&code) {
            return Err(format!(
                "the CPFs of this unit run code {code} already: a canary is another version"
            ));
        }
        if !manager.is_complete() {
            return Err("the unit is not complete: it has no CTA replica (`whimbrel unit`)".into());
        }
        let since = clock::rfc3339(clock::now());
        let program = program.path().to_path_buf();
        Ok(CanaryStatus { program, code, share, since, phase: Phase::Starts })
    }

    /// What the manager before has left of one.
    pub(super) fn resume(manager: &Manager) -> (Option<Self>, Option<String>) {
        let octets = std::fs::read(manager.canary_file()).unwrap_or_default();
        let Ok(CanaryRecord { status, last }) = serde_json::from_slice(&octets) else { return (None, None) };
        let canary = status.map(|mut status| {
            if status.phase == Phase::IsPromoted {
                // The upgrade ended with its manager: the operator promotes it once more, or rolls it back.
                status.phase = Phase::Serves;
            }
            info!(code = status.code, "the canary of the former manager continues");
            let look = Look::start(manager);
            let opened = Program::open(&status.program, manager.program_rules());
            let program = opened
                .inspect_err(|e| warn!("the canary cannot be promoted, and gets no further CPF: {e}"))
                .ok();
            Self { status, program, lines: None, look, since: Instant::now(), leaving: false }
        });
        (canary, last)
    }

    /// What operators see.
    pub(super) fn status(&self) -> &CanaryStatus {
        &self.status
    }

    /// The program of its CPFs, unless they are to end.
    pub(super) fn serves_with(&self) -> Option<Program> {
        let serves = matches!(self.status.phase, Phase::Starts | Phase::Serves);
        self.program.clone().filter(|_| serves)
    }

    /// Its program, which is that of the unit when it is promoted.
    pub(super) fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// Carries out an order.
    pub(super) fn order(&mut self, manager: &mut Manager, order: CanaryOrder, lines: Sender<String>) {
        let refuse = |sentence: &str| {
            // If the operator's connection has ended, nothing has changed.
            let _ = lines.send(format!("failed: {sentence}"));
        };
        match (order, self.status.phase) {
            (CanaryOrder::Begin { .. }, _) => {
                refuse("a canary is under way: promote it or roll it back first (`whimbrel canary`)");
            }
            (_, Phase::IsPromoted) => refuse("the canary is being promoted"),
            (_, Phase::IsRolledBack) => refuse("the canary is being rolled back"),
            (CanaryOrder::RollBack {}, _) => {
                self.lines = Some(lines);
                self.roll_back(manager, "an operator ordered it");
            }
            (_, Phase::Starts) => {
                refuse("the CPFs of the canary are not on the rings yet: wait, or roll it back")
            }
            (CanaryOrder::Share(Share::Percent(percent)), _) if !(1..=100).contains(&percent) => {
                refuse("a canary has 1 to 100 % of UEs: to end it, write `whimbrel canary roll-back`");
            }
            (CanaryOrder::Share(Share::Ues(ues)), _) if ues.is_empty() || ues.len() > LISTED_MAX => {
                refuse("too many UEs are listed, or none");
            }
            (CanaryOrder::Share(share), _) => {
                info!(code = self.status.code, "the canary is for {share} from now on");
                self.status.share = share;
                self.write(manager);
                self.keep(manager);
                let _ = lines.send(format!("done: the canary is for {}", self.status.share));
            }
            (CanaryOrder::Promote {}, Phase::Serves) => self.promote(manager, lines),
        }
    }

    fn promote(&mut self, manager: &mut Manager, lines: Sender<String>) {
        let Some(program) = self.program.clone() else {
            let path = self.status.program.display();
            let _ = lines.send(format!(
                "failed: {path} may not be run any more, as the log says: roll the canary back"
            ));
            return;
        };
        let former = std::mem::replace(&mut self.status.share, Share::Percent(100));
        self.write(manager);
        match Upgrade::to_canary(manager, &program, lines) {
            Some(upgrade) => {
                info!(
                    code = self.status.code,
                    "the canary is promoted: all functions are replaced by its program"
                );
                self.go(manager, Phase::IsPromoted);
                manager.set_upgrade(upgrade);
            }
            None => {
                self.status.share = former;
                self.write(manager);
            }
        }
    }

    /// It is rolled back by itself: the caller that waits for its begin gets the reason.
    fn fails(&mut self, manager: &mut Manager, why: &str) {
        self.say(format!("failed: {why}"));
        self.lines = None;
        self.roll_back(manager, why);
    }

    fn roll_back(&mut self, manager: &mut Manager, why: &str) {
        warn!(code = self.status.code, "the canary is rolled back: {why}; its UEs move to the other CPFs");
        self.status.share = Share::Percent(0);
        self.write(manager);
        manager.add_missing_cpfs();
        manager.set_canary_outcome(format!("{}: code {} was rolled back: {why}", now(), self.status.code));
        self.say(format!("the canary is rolled back: {why}"));
        self.go(manager, Phase::IsRolledBack);
    }

    fn go(&mut self, manager: &Manager, phase: Phase) {
        (self.status.phase, self.since) = (phase, Instant::now());
        self.keep(manager);
    }

    /// Does what is due. Returns what is left of the canary.
    pub(super) fn step(mut self, manager: &mut Manager) -> Option<Self> {
        let seen = self.look.since(self.since);
        let code = self.status.code.clone();
        let cpfs = manager.canary_cpfs();
        match self.status.phase {
            Phase::Starts | Phase::Serves => {
                if let Some(why) = self.verdict(manager, seen.as_ref()) {
                    self.fails(manager, &why);
                    return Some(self);
                }
                let on_rings = seen.is_some_and(|seen| seen.serving(&code) >= cpfs.len());
                if self.status.phase == Phase::Starts && on_rings {
                    self.say(format!(
                        "done: the canary serves {}; `whimbrel canary` shows it",
                        self.status.share
                    ));
                    info!(code, "the canary serves {}", self.status.share);
                    self.lines = None;
                    self.go(manager, Phase::Serves);
                } else if self.status.phase == Phase::Starts && self.since.elapsed() >= JOINED_WITHIN {
                    self.fails(
                        manager,
                        "its CPFs were not on the rings within 30 s; versions whose link messages differ cannot serve together, and the \
                         log says more",
                    );
                }
                Some(self)
            }
            Phase::IsPromoted => {
                if manager.upgrades() {
                    return Some(self);
                }
                // It did not come to its end.
                warn!(
                    code,
                    "the canary continues beside the functions that were not replaced: promote it once more, or roll it back"
                );
                self.go(manager, Phase::Serves);
                Some(self)
            }
            Phase::IsRolledBack => {
                let left = seen.is_some_and(|seen| seen.ues(&code) == 0);
                if !self.leaving && (left || self.since.elapsed() >= LEFT_WITHIN) {
                    self.leaving = true;
                    let all = cpfs.into_iter().chain(manager.canary_network_functions());
                    all.for_each(|function| manager.ask_to_leave(function));
                }
                let is_left =
                    manager.canary_cpfs().is_empty() && manager.canary_network_functions().is_empty();
                if !self.leaving || !is_left {
                    return Some(self);
                }
                self.end(manager);
                info!(code, "the canary has ended: all UEs are served by the former version");
                self.say("done: the canary has ended");
                None
            }
        }
    }

    /// The functions are replaced by its program as far as that concerns CPFs: there is one version again.
    pub(super) fn promoted(self, manager: &mut Manager) {
        manager.set_canary_outcome(format!("{}: code {} was promoted", now(), self.status.code));
        self.end(manager);
    }

    fn end(&self, manager: &Manager) {
        manager.service.configure(b"{}");
        keep(manager, None);
    }

    /// Why it is to be rolled back, if it is.
    fn verdict(&self, manager: &Manager, seen: Option<&CtaObservation>) -> Option<String> {
        let bounds = manager.config().unit.canary;
        let ended = manager.canary_ends();
        let none = Vec::new();
        let versions = seen.map_or(&none, |seen| &seen.versions);
        judge(&bounds, &self.status.code, versions, ended)
    }

    /// Has the CTAs know it.
    fn write(&self, manager: &Manager) {
        let CanaryStatus { code, share, .. } = &self.status;
        let share = match share {
            Share::Percent(percent) => format!(r#""percent":{percent}"#),
            Share::Ues(ues) => {
                let all: Vec<String> = ues.iter().map(|supi| format!("\"{supi}\"")).collect();
                format!(r#""ues":[{}]"#, all.join(","))
            }
        };
        manager.service.configure(format!(r#"{{"canary":{{"code":"{code}",{share}}}}}"#).as_bytes());
    }

    fn keep(&self, manager: &Manager) {
        keep(manager, Some(&self.status));
    }

    fn say(&self, text: impl Into<String>) {
        if let Some(lines) = &self.lines {
            // If the operator's connection has ended, the log has the line.
            let _ = lines.send(text.into());
        }
    }
}

fn now() -> String {
    clock::rfc3339(clock::now())
}

fn keep(manager: &Manager, status: Option<&CanaryStatus>) {
    let kept = CanaryRecord { status: status.cloned(), last: manager.canary_outcome() };
    let octets = serde_json::to_vec(&kept).unwrap_or_default();
    if let Err(e) = directory::replace(&manager.canary_file(), &octets) {
        error!("the canary cannot be written down, so the next manager does not know it: {e}");
    }
}

/// Why a canary of this code is to be rolled back, if it is. `ended`: how often its processes have ended unasked, whether or not they had joined.
fn judge(bounds: &CanaryBounds, code: &str, versions: &[VersionView], ended: u64) -> Option<String> {
    let sum = |new: bool| {
        let of = versions.iter().filter(|v| (v.code == code) == new);
        of.fold((0, 0, 0), |(all, failed, lost), v| {
            (all + v.procedures, failed + v.failed, lost + v.cpfs_lost)
        })
    };
    let ((new, new_failed, new_lost), (old, old_failed, old_lost)) = (sum(true), sum(false));
    let new_lost = new_lost.max(ended);
    if new_lost > old_lost + bounds.deaths {
        return Some(format!(
            "{new_lost} of its CPFs were lost, and {old_lost} of the others (unit.canary.deaths)"
        ));
    }
    if new < bounds.samples.max(1) {
        return None;
    }
    // In parts of a million: shares of the two, and the margin.
    let share = |failed: u64, all: u64| failed.saturating_mul(1_000_000).checked_div(all).unwrap_or(0);
    let (of_new, of_old) = (share(new_failed, new), share(old_failed, old));
    let percent = |parts: u64| parts as f64 / 10_000.0;
    (of_new > of_old + u64::from(bounds.error_margin) * 10_000).then(|| {
        format!(
            "{:.1} % of its {new} procedures failed, and {:.1} % of the others' {old} (unit.canary.error_margin)",
            percent(of_new),
            percent(of_old)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: CanaryBounds = CanaryBounds { cpfs: 2, error_margin: 2, samples: 100, deaths: 2 };

    fn version(code: &str, procedures: u64, failed: u64, cpfs_lost: u64) -> VersionView {
        VersionView { code: code.into(), procedures, failed, cpfs_lost, ..VersionView::default() }
    }

    fn judged(new: (u64, u64, u64), old: (u64, u64, u64), ended: u64) -> Option<String> {
        let versions = [version("b", new.0, new.1, new.2), version("a", old.0, old.1, old.2)];
        judge(&BOUNDS, "b", &versions, ended)
    }

    #[test]
    fn a_canary_is_rolled_back_if_more_of_its_procedures_fail_than_of_the_others() {
        assert_eq!(judged((99, 99, 0), (1000, 0, 0), 0), None, "too few procedures");
        assert_eq!(judged((100, 2, 0), (1000, 0, 0), 0), None, "within the margin");
        let why = judged((100, 3, 0), (1000, 0, 0), 0).unwrap();
        assert!(
            why.starts_with("3.0 % of its 100 procedures failed, and 0.0 % of the others' 1000"),
            "{why}"
        );
        assert_eq!(judged((100, 12, 0), (1000, 100, 0), 0), None, "the others fail as often");
        assert!(judged((1000, 130, 0), (1000, 100, 0), 0).is_some());
        assert_eq!(judged((0, 0, 0), (0, 0, 0), 0), None);
    }

    #[test]
    fn a_canary_is_rolled_back_if_it_loses_more_cpfs_than_the_others() {
        assert_eq!(judged((0, 0, 2), (0, 0, 0), 0), None);
        assert!(judged((0, 0, 3), (0, 0, 0), 0).unwrap().contains("3 of its CPFs were lost"));
        assert_eq!(judged((0, 0, 3), (0, 0, 1), 0), None, "the others are lost, too");
        assert!(judged((0, 0, 0), (0, 0, 0), 3).is_some(), "they end before they join");
        assert!(judge(&BOUNDS, "b", &[], 3).is_some(), "no CTA answers");
    }

    #[test]
    fn cpfs_of_other_code_do_not_count_as_the_canarys() {
        let cpf = |code: &str, state: &str, ues| SeenCpf {
            code: code.into(),
            state: state.into(),
            primary_of: ues,
        };
        let cpfs =
            vec![cpf("a", "serving", Some(5)), cpf("b", "serving", Some(3)), cpf("b", "waiting", None)];
        let seen = CtaObservation { cpfs, versions: vec![] };
        assert_eq!(
            (seen.serving("b"), seen.ues("b"), seen.ues("c")),
            (1, 4, 0),
            "what is not counted is not none"
        );
    }
}
