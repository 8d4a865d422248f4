//! The functions of a unit as its manager has them: which there have to be, what is kept of each, and what
//! the next manager adopts.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::warn;
use whimbrel_control::udm::NfType;
use whimbrel_ids::SNssai;
use whimbrel_resilience::region::UeKind;

use crate::function::{Function, UnitDirectory};
use crate::unit::process::Process;
use crate::unit::program::{Program, ProgramRules};
use crate::unit::records::ProcessRun;
use crate::unit::restarts::Restarts;

/// A function of the unit.
pub(super) struct ManagedFunction {
    pub(super) process: Option<Process>,
    /// The program that it runs.
    pub(super) program: Program,
    /// The number of its areas, of which each process that is started gets new ones; `None`: all numbers are taken, or its manager knew of none.
    pub(super) area: Option<usize>,
    /// The UEs that it serves, of a CPF or a network function.
    pub(super) ues: UeKind,
    pub(super) since: Instant,
    pub(super) restarts: Restarts,
    /// When it is started again; `None` with no process: never.
    pub(super) due: Option<Instant>,
    /// The function is asked to end, and is not to start again.
    pub(super) leaves: bool,
    /// The function is asked to end, and starts again at once.
    pub(super) replaced: bool,
    /// A CTA: since when it has neither served nor been the replica, and whether this process has served.
    pub(super) unused: Option<Instant>,
    pub(super) served: bool,
    pub(super) ended: u64,
    /// The beats that had come at the last look, and looks since then without another one.
    pub(super) beats: u64,
    pub(super) silent: u32,
}

/// A running function, as the manager that starts next adopts it.
#[derive(Serialize, Deserialize)]
pub(super) struct FunctionRecord {
    pub(super) function: String,
    pub(super) run: ProcessRun,
    pub(super) program: PathBuf,
    #[serde(default)]
    pub(super) area: Option<usize>,
    #[serde(default, rename = "cpf")]
    pub(super) ues: UeKind,
}

impl ManagedFunction {
    /// A function that is started at once.
    pub(super) fn new(program: Program, area: Option<usize>, ues: UeKind) -> Self {
        Self { due: Some(Instant::now()), ..Self::of(None, program, area, ues) }
    }

    fn of(process: Option<Process>, program: Program, area: Option<usize>, ues: UeKind) -> Self {
        Self {
            process,
            program,
            area,
            ues,
            since: Instant::now(),
            restarts: Restarts::default(),
            due: None,
            leaves: false,
            replaced: false,
            unused: None,
            served: false,
            ended: 0,
            beats: 0,
            silent: 0,
        }
    }
}

/// A number for areas that no function has; `None` if all are taken.
pub(super) fn free_area<'a>(functions: impl Iterator<Item = &'a ManagedFunction>) -> Option<usize> {
    let taken: Vec<usize> = functions.filter_map(|managed| managed.area).collect();
    (0..whimbrel_shm::FUNCTIONS).find(|area| !taken.contains(area))
}

/// The functions that a unit with so many CPFs of each slice, and of none, lacks beside these, in the order in which they start. After an
/// upgrade its CPFs have other numbers than at first; those of a canary do not count.
pub(super) fn missing(
    required: &[(Option<SNssai>, u16)],
    there: &[(Function, UeKind)],
) -> Vec<(Function, UeKind)> {
    let is_free = |function: &Function| there.iter().all(|(other, _)| other != function);
    let others =
        [Function::Upf, Function::UpfReplica, Function::Cta(1), Function::Cta(2)].into_iter().filter(is_free);
    let lacking = required.iter().flat_map(|(slice, n)| {
        let of = UeKind { canary: false, slice: *slice };
        let is_its =
            |(function, cpf): &&(Function, UeKind)| matches!(function, Function::Cpf(_)) && *cpf == of;
        let lacking = usize::from(*n).saturating_sub(there.iter().filter(is_its).count());
        std::iter::repeat_n(of, lacking)
    });
    let free = (1..=u16::MAX).map(Function::Cpf).filter(is_free);
    others.map(|function| (function, UeKind::default())).chain(free.zip(lacking)).collect()
}

/// The same for network functions: so many of each kind, for each slice and for none.
pub(super) fn missing_network(
    required: &[(NfType, Option<SNssai>, u16)],
    there: &[(Function, UeKind)],
) -> Vec<(Function, UeKind)> {
    let mut all: Vec<(Function, UeKind)> = there.to_vec();
    for (nf, slice, n) in required {
        let ues = UeKind { canary: false, slice: *slice };
        let is_its = |(function, of): &&(Function, UeKind)| {
            matches!(function, Function::Network(kind, _) if kind == nf) && *of == ues
        };
        for _ in all.iter().filter(is_its).count()..usize::from(*n) {
            let free = (1..).map(|n| Function::Network(*nf, n));
            let free = free.take(usize::from(u16::MAX)).find(|f| all.iter().all(|(other, _)| other != f));
            all.extend(free.map(|function| (function, ues)));
        }
    }
    all.split_off(there.len())
}

/// The functions that an earlier manager has started and that still run.
/// Of a program that may not be run any more, they are started again with `own`.
pub(super) fn adopt(
    directory: &UnitDirectory,
    own: &Program,
    rules: &ProgramRules,
) -> BTreeMap<Function, ManagedFunction> {
    let read = fs::read(directory.functions()).and_then(|octets| Ok(serde_json::from_slice(&octets)?));
    let records: Vec<FunctionRecord> = read.unwrap_or_else(|e| {
        if e.kind() != std::io::ErrorKind::NotFound {
            warn!("no function of an earlier manager is adopted: their list cannot be read: {e}");
        }
        Vec::new()
    });
    let functions = records.into_iter().filter_map(|FunctionRecord { function, run, program, area, ues }| {
        let process = Process::adopt(run)?;
        let opened = Program::open(&program, rules)
            .inspect_err(|e| warn!(function, "it is started again with the manager's program: {e}"));
        let program = opened.unwrap_or_else(|_| own.clone());
        let managed = ManagedFunction::of(Some(process), program, area, ues);
        Some((function.parse().ok()?, managed))
    });
    functions.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_manager_starts_what_the_functions_that_it_adopts_lack_and_no_cpf_too_many() {
        use Function::{Cpf, Cta, Upf, UpfReplica};
        let missing = |cpfs, there: &[Function]| -> Vec<Function> {
            let there: Vec<_> = there.iter().map(|function| (*function, UeKind::default())).collect();
            super::missing(&[(None, cpfs)], &there).into_iter().map(|(function, _)| function).collect()
        };
        assert_eq!(missing(2, &[]), [Upf, UpfReplica, Cta(1), Cta(2), Cpf(1), Cpf(2)]);
        let after = [Upf, UpfReplica, Cta(1), Cta(2), Cpf(3), Cpf(4)];
        assert_eq!(missing(2, &after), [], "after an upgrade");
        assert_eq!(missing(3, &[Upf, Cta(2), Cpf(1), Cpf(4)]), [UpfReplica, Cta(1), Cpf(2)]);
        let amid = [Upf, UpfReplica, Cta(1), Cta(2), Cpf(1), Cpf(2), Cpf(3)];
        assert_eq!(missing(2, &amid), [], "amid an upgrade");
    }

    #[test]
    fn a_list_of_functions_that_cannot_be_read_is_logged_and_none_is_adopted() {
        use crate::log_limiter::Lines;
        let folder = tempfile::tempdir().unwrap();
        let directory = UnitDirectory::of(folder.path());
        let lines = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (own, rules) = (Program::own().unwrap(), ProgramRules::new(None).unwrap());
        crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
            assert!(adopt(&directory, &own, &rules).is_empty());
            assert_eq!(lines.load(Ordering::Relaxed), 0, "there was no manager before");
            fs::write(directory.functions(), "[{\"function\":\"upf\",").unwrap();
            assert!(adopt(&directory, &own, &rules).is_empty());
            assert_eq!(lines.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn network_functions_are_counted_by_kind_and_slice_and_get_free_numbers() {
        use Function::Network;
        let placed = |canary, slice| UeKind { canary, slice };
        let slice = Some(SNssai::sst(2));
        let required = [(NfType::Udm, None, 2), (NfType::Pcf, None, 1), (NfType::Pcf, slice, 1)];
        let (udm, pcf) = (|n| Network(NfType::Udm, n), |n| Network(NfType::Pcf, n));
        let common = placed(false, None);
        let all = [(udm(1), common), (udm(2), common), (pcf(1), common), (pcf(2), placed(false, slice))];
        assert_eq!(missing_network(&required, &[]), all);
        assert_eq!(missing_network(&required, &all), []);
        let amid = [(udm(2), common), (udm(1), placed(true, None)), (pcf(2), placed(false, slice))];
        assert_eq!(missing_network(&required, &amid), [(udm(3), common), (pcf(1), common)]);
        assert_eq!(missing_network(&[], &amid), []);
    }

    #[test]
    fn cpfs_of_a_canary_and_of_slices_are_counted_by_themselves() {
        use Function::{Cpf, Cta, Upf, UpfReplica};
        let slice = Some(SNssai::sst(2));
        let (common, own) = (UeKind::default(), UeKind { canary: false, slice });
        let canary = UeKind { canary: true, slice: None };
        let others = [Upf, UpfReplica, Cta(1), Cta(2)].map(|function| (function, common));
        let required = [(None, 2), (slice, 1)];
        let there = |cpfs: &[(Function, UeKind)]| [&others[..], cpfs].concat();
        assert_eq!(missing(&required, &there(&[])), [(Cpf(1), common), (Cpf(2), common), (Cpf(3), own)]);
        let amid = there(&[(Cpf(1), common), (Cpf(3), own), (Cpf(4), canary), (Cpf(5), canary)]);
        assert_eq!(missing(&required, &amid), [(Cpf(2), common)], "the canary's do not count");
    }
}
