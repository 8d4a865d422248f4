//! `whimbrel upgrade`: the functions are replaced one by one by another program, or by the same one, while UEs are served.
//!
//! The order is that of a cluster (docs/cluster.md, Upgrading): CPFs of the new code join until there are as many as of the old one, then
//! the old ones leave; the CTA replica is replaced, and takes over from the primary, which is replaced then; the UPF follows in the same way, and last
//! the manager itself.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tracing::info;
use whimbrel_ids::SNssai;
use whimbrel_resilience::region::UeKind;

use super::manager::Manager;
use super::program::Program;
use crate::function::Function;

/// How long a step may take: a CPF hands its UEs over within ten seconds, a CTA its state within five.
const STEP_WITHIN: Duration = Duration::from_secs(30);

/// How long a step's end is watched: CPFs join their CTA a little after they are listed, and gNBs connect to a new replica.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// How long a CTA of other code may take to offer itself to the primary after its start.
const OFFERED_WITHIN: Duration = Duration::from_secs(2);
const GNBS_CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpgradeStep {
    /// The CPFs of the new program are listed.
    NewCpfs,
    /// A former CPF has left.
    OldCpf(Function),
    /// The former replica has ended.
    OldReplica(Function),
    /// The new one is the replica, or waits to take over if it runs other code.
    NewReplica(Function),
    /// The former primary has ended, and the new CTA serves.
    OldPrimary(Function),
    /// The pair is complete again.
    LastCta,
    /// The replica of the UPF runs the new program, and can take over.
    UpfReplica,
    /// The UPF runs the new program.
    Upf,
}

/// An upgrade under way.
pub(super) struct Upgrade {
    lines: Sender<String>,
    old_cpfs: Vec<Function>,
    /// CPFs that are listed when those of the new program are.
    listed: usize,
    step: UpgradeStep,
    until: Instant,
    /// Since when what is waited for is the case.
    reached: Option<Instant>,
    /// The code of the new program.
    code: String,
    /// The UPF and its replica are not replaced.
    control_alone: bool,
}

impl Upgrade {
    /// Begins to restart the control functions with the program that is in force, while the UPF goes on. `None` if it cannot be run: the operator has got the
    /// reason.
    pub(super) fn of_control(manager: &mut Manager, lines: Sender<String>) -> Option<Self> {
        let begun = Self::begin(manager, manager.program.clone(), lines)?;
        Some(Self { control_alone: true, ..begun })
    }

    /// Begins to replace the functions by this program. `None` if it cannot be run: the operator has got the reason.
    pub(super) fn begin(manager: &mut Manager, program: Program, lines: Sender<String>) -> Option<Self> {
        let say = |text: String| {
            // If the operator's connection has ended, the log has the line.
            let _ = lines.send(text);
        };
        let code = match program.code() {
            Ok(code) => code,
            Err(sentence) => {
                say(format!("failed: {sentence}"));
                return None;
            }
        };
        let home = manager.service.records(super::records::Records::serving_ctas);
        if home.is_none_or(|home| home.cta_replica.is_none()) {
            say("failed: the unit is not complete: it has no CTA replica (`whimbrel unit`)".into());
            return None;
        }
        info!(program = %program.path().display(), code, "the functions of this unit are replaced one by one");
        manager.program = program.clone();
        Some(Self::with_cpfs(manager, &program, false, code, lines))
    }

    /// Begins to replace the functions by the canary's program: its CPFs stand already. `None` if the program cannot be run any more: the operator has
    /// got the reason.
    pub(super) fn to_canary(manager: &mut Manager, program: &Program, lines: Sender<String>) -> Option<Self> {
        match program.code() {
            Ok(code) => Some(Self::with_cpfs(manager, program, true, code, lines)),
            Err(sentence) => {
                // If the operator's connection has ended, nothing has changed.
                let _ = lines.send(format!("failed: {sentence}"));
                None
            }
        }
    }

    /// Starts a CPF of the program for each of the others, as far as the canary has none.
    fn with_cpfs(
        manager: &mut Manager,
        program: &Program,
        canary: bool,
        code: String,
        lines: Sender<String>,
    ) -> Self {
        let old = manager.cpfs(false);
        let mut stand = manager.canary_cpfs().len();
        let listed = old.len() + stand;
        let mut slices: Vec<Option<SNssai>> = old.iter().map(|(_, cpf)| cpf.slice).collect();
        slices.retain(|slice| {
            let stands = slice.is_none() && stand > 0;
            stand -= usize::from(stands);
            !stands
        });
        let (last, new) = (manager.last_cpf(), slices.len());
        for (n, slice) in (1..).zip(slices) {
            manager.add_for(Function::Cpf(last + n), program, UeKind { canary, slice });
        }
        let until = Instant::now() + STEP_WITHIN;
        let old_cpfs = old.into_iter().map(|(function, _)| function).collect();
        let listed = listed + new;
        let step = UpgradeStep::NewCpfs;
        let begun = Self { lines, old_cpfs, listed, step, until, reached: None, code, control_alone: false };
        begun.say(format!("{new} CPFs of code {} are started", begun.code));
        begun
    }

    fn say(&self, text: impl Into<String>) {
        let text = text.into();
        info!("upgrade: {text}");
        let _ = self.lines.send(text);
    }

    fn go(mut self, step: UpgradeStep) -> Option<Self> {
        (self.step, self.until, self.reached) = (step, Instant::now() + STEP_WITHIN, None);
        Some(self)
    }

    /// Does what is due. Returns what is left to do.
    pub(super) fn step(mut self, manager: &mut Manager) -> Option<Self> {
        let home = manager.service.records(super::records::Records::serving_ctas);
        let (primary, replica) = home.map_or((None, None), |home| {
            // In its present life: the record may name one that has just ended.
            let lives =
                home.cta_replica.filter(|r| manager.service.records(|all| all.cta(r.cta)) == Some(*r));
            (Some(Function::Cta(home.primary.cta)), lives.map(|r| Function::Cta(r.cta)))
        });
        let done = match self.step {
            UpgradeStep::NewCpfs => {
                manager.service.records(super::records::Records::cpf_count) >= self.listed
            }
            UpgradeStep::OldCpf(function) | UpgradeStep::OldReplica(function) => !manager.runs(function),
            UpgradeStep::NewReplica(function) => {
                let connected = manager.service.code_of(function);
                let own = connected.as_ref() == Some(&self.code) && manager.runs(function);
                // Of other code it is no replica before it takes over: it waits.
                own && (replica == Some(function) || self.offers_itself())
            }
            UpgradeStep::OldPrimary(function) => {
                !manager.runs(function) && primary.is_some_and(|p| p != function)
            }
            UpgradeStep::LastCta => replica.is_some() && replica != primary,
            UpgradeStep::UpfReplica => {
                let function = Function::UpfReplica;
                let own = manager.service.code_of(function).as_ref() == Some(&self.code);
                own && manager.service.beats_of(function) > 0
            }
            UpgradeStep::Upf => manager.service.code_of(Function::Upf).as_ref() == Some(&self.code),
        };
        if !done {
            self.reached = None;
        }
        let since = done.then(|| *self.reached.get_or_insert_with(Instant::now));
        let settled = match self.step {
            UpgradeStep::NewCpfs | UpgradeStep::OldCpf(_) => SETTLED_AFTER,
            // Where both CTAs have one endpoint, no gNB has to connect; but the primary learns of its replica only from the record that the
            // manager has just stored, and hands over only then.
            UpgradeStep::NewReplica(_) if manager.shares_n2() => SETTLED_AFTER,
            UpgradeStep::NewReplica(_) => GNBS_CONNECT_WITHIN,
            UpgradeStep::OldReplica(_) | UpgradeStep::OldPrimary(_) | UpgradeStep::LastCta => Duration::ZERO,
            UpgradeStep::UpfReplica | UpgradeStep::Upf => Duration::ZERO,
        };
        let settled = since.is_some_and(|since| since.elapsed() >= settled);
        let asks = matches!(self.step, UpgradeStep::NewCpfs | UpgradeStep::OldCpf(_));
        if !settled || asks && !manager.all_ues_have_replicas() {
            if Instant::now() < self.until {
                return Some(self);
            }
            self.say(format!(
                "failed: {:?} took longer than {} s; the functions continue as they are, and the log says more",
                self.step,
                STEP_WITHIN.as_secs()
            ));
            return None;
        }
        match self.step {
            UpgradeStep::NewCpfs | UpgradeStep::OldCpf(_) => match self.old_cpfs.pop() {
                Some(function) => {
                    self.say(format!("{function} hands its UEs over and ends"));
                    manager.ask_to_leave(function);
                    self.go(UpgradeStep::OldCpf(function))
                }
                None => {
                    manager.canary_is_everyones();
                    let Some(replica) = replica else { return Some(self) };
                    self.say(format!("{replica}, the replica, is replaced"));
                    manager.ask_to_leave(replica);
                    self.go(UpgradeStep::OldReplica(replica))
                }
            },
            UpgradeStep::OldReplica(function) => {
                manager.add(function);
                self.go(UpgradeStep::NewReplica(function))
            }
            UpgradeStep::NewReplica(_) => {
                let Some(primary) = primary else { return Some(self) };
                self.say(format!("{primary}, the primary, hands over and is replaced"));
                manager.ask_to_leave(primary);
                self.go(UpgradeStep::OldPrimary(primary))
            }
            UpgradeStep::OldPrimary(function) => {
                manager.add(function);
                manager.replace_network_functions();
                self.go(UpgradeStep::LastCta)
            }
            UpgradeStep::LastCta if self.control_alone => {
                self.say("done: the control functions have started again, and the UPF has not stopped");
                manager.renew();
                None
            }
            UpgradeStep::LastCta => {
                self.say("the replica of the UPF is replaced");
                manager.replace_upf_replica();
                self.go(UpgradeStep::UpfReplica)
            }
            UpgradeStep::UpfReplica => {
                self.say("the UPF leaves its sessions to its replica");
                manager.replace(Function::Upf);
                self.go(UpgradeStep::Upf)
            }
            UpgradeStep::Upf => {
                self.say(format!("done: the functions run code {}", self.code));
                manager.renew();
                None
            }
        }
    }

    /// A CTA of other code has offered itself to the primary by now.
    fn offers_itself(&self) -> bool {
        self.until.saturating_duration_since(Instant::now()) < STEP_WITHIN - OFFERED_WITHIN
    }
}
