//! The areas of shared memory through which the functions of a unit reach each other: their owners, and the
//! functions that get them.
//!
//! Each process of a function has an area of its own for as long as it lives. The manager creates it, gives
//! it to that process, seals it when the process has mapped it, and gives it then to the functions that are
//! linked with it. The packet parser's process sees nothing of what CTAs and CPFs send to each other: a CTA
//! has a second area for N4.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use tracing::warn;
use whimbrel_shm::Area;

use super::records::ProcessRun;
use crate::function::{AreaName, Function, PoolKind};

impl PoolKind {
    /// The number of this pool in a unit of this number.
    fn id(self, unit: u64) -> u64 {
        match self {
            Self::Control => unit,
            Self::N4 => !unit,
        }
    }

    /// The pools in which a function has an area.
    fn of(function: Function) -> &'static [Self] {
        match function {
            Function::Cta(_) => &[Self::Control, Self::N4],
            Function::Cpf(_) | Function::Network(..) => &[Self::Control],
            Function::Upf | Function::UpfReplica => &[Self::N4],
        }
    }

    /// True if the two functions are linked through this pool.
    fn links(self, one: Function, other: Function) -> bool {
        let is_cta = |function| matches!(function, Function::Cta(_));
        match self {
            Self::Control => {
                let is_network = |function| matches!(function, Function::Network(..));
                let both = Self::of(one).contains(&self) && Self::of(other).contains(&self);
                // A network function has nothing to say to CPFs or to another one.
                both && match (is_network(one), is_network(other)) {
                    (false, false) => true,
                    (true, true) => false,
                    (true, false) => is_cta(other),
                    (false, true) => is_cta(one),
                }
            }
            Self::N4 => {
                Self::of(one).contains(&self)
                    && Self::of(other).contains(&self)
                    && is_cta(one) != is_cta(other)
            }
        }
    }
}

/// The area of a process.
struct OwnedArea {
    run: ProcessRun,
    function: Function,
    area: Area,
    /// Its owner has mapped it, and it is sealed.
    is_sealed: bool,
}

/// The areas of the processes that run.
#[derive(Default)]
pub(super) struct ProcessAreas(BTreeMap<AreaName, OwnedArea>);

/// An area for a function, as descriptors with their names.
pub(super) type FunctionArea = Vec<(String, OwnedFd)>;

impl ProcessAreas {
    /// Creates those of a process that has just been started. One that gets none is reached over sockets.
    pub(super) fn create(&mut self, unit: u64, function: Function, run: ProcessRun, number: usize) {
        for pool in PoolKind::of(function) {
            match Area::create(pool.id(unit)) {
                Ok(area) => {
                    let owned = OwnedArea { run, function, area, is_sealed: false };
                    self.0.insert(AreaName { pool: *pool, number }, owned);
                }
                Err(e) => {
                    warn!(%function, "a function reaches others over sockets: no memory can be shared: {e}")
                }
            }
        }
    }

    /// A process says that it has mapped an area of its own, which it gives back. To a manager that was not there when it got it, its area is new. Returns whether it is
    /// to be given to others now. Errors: it is no area of this process.
    pub(super) fn mapped(
        &mut self,
        name: AreaName,
        (function, run, number): (Function, ProcessRun, Option<usize>),
        area: Area,
    ) -> io::Result<bool> {
        if Some(name.number) != number || !PoolKind::of(function).contains(&name.pool) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let is_its = |owned: &OwnedArea| owned.run == run;
        if !self.0.get(&name).is_some_and(is_its) {
            self.0.insert(name, OwnedArea { run, function, area, is_sealed: false });
        }
        let Some(owned) = self.0.get_mut(&name) else { return Ok(false) };
        if owned.is_sealed {
            return Ok(false);
        }
        owned.area.seal()?;
        owned.is_sealed = true;
        Ok(true)
    }

    /// Areas that a newly connected process gets: its own that it has not mapped yet, then those of the
    /// functions that it is linked with.
    pub(super) fn for_process(&self, function: Function, run: ProcessRun) -> FunctionArea {
        let is_for_it = |name: &AreaName, owned: &OwnedArea| match owned.run == run {
            true => !owned.is_sealed,
            false => owned.is_sealed && name.pool.links(owned.function, function),
        };
        // Its own first.
        let (own, others): (Vec<_>, Vec<_>) = self
            .0
            .iter()
            .filter(|(name, owned)| is_for_it(name, owned))
            .partition(|(_, owned)| owned.run == run);
        own.into_iter()
            .chain(others)
            .filter_map(|(name, owned)| given(*name, &owned.area).ok())
            .flatten()
            .collect()
    }

    /// An area, for a function that is linked with its owner.
    pub(super) fn for_linked(&self, name: AreaName, other: Function) -> Option<FunctionArea> {
        let owned = self.0.get(&name).filter(|owned| owned.is_sealed && owned.function != other)?;
        if name.pool.links(owned.function, other) { given(name, &owned.area).ok() } else { None }
    }

    /// A process has ended: no function gets its areas any more.
    pub(super) fn ended(&mut self, run: ProcessRun) {
        self.0.retain(|_, owned| owned.run != run);
    }

    /// A process is another function from now on.
    pub(super) fn rename(&mut self, run: ProcessRun, to: Function) {
        self.0.values_mut().filter(|owned| owned.run == run).for_each(|owned| owned.function = to);
    }

    /// Descriptor names of the areas' memory.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.0.keys().map(|name| {
            let [memory, _] = name.descriptors();
            memory
        })
    }
}

fn given(name: AreaName, area: &Area) -> io::Result<FunctionArea> {
    let Area { memory, bell } = area.try_clone()?;
    Ok(name.descriptors().into_iter().zip([memory, bell]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::take_areas;

    const CTA: (Function, ProcessRun, Option<usize>) =
        (Function::Cta(1), ProcessRun { pid: 1, started: 1 }, Some(0));
    const CPF: (Function, ProcessRun, Option<usize>) =
        (Function::Cpf(1), ProcessRun { pid: 2, started: 1 }, Some(1));
    const UPF: (Function, ProcessRun, Option<usize>) =
        (Function::Upf, ProcessRun { pid: 3, started: 1 }, Some(2));

    fn areas() -> ProcessAreas {
        let mut areas = ProcessAreas::default();
        for (function, run, number) in [CTA, CPF, UPF] {
            areas.create(7, function, run, number.unwrap());
        }
        areas
    }

    fn names(given: &FunctionArea) -> Vec<&str> {
        given.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("area/")).collect()
    }

    /// A process maps all its areas, and gives them back.
    fn map(areas: &mut ProcessAreas, of: (Function, ProcessRun, Option<usize>)) {
        let mut own = areas.for_process(of.0, of.1);
        let own = take_areas(&mut own);
        for (name, area) in own.into_iter().filter(|(name, _)| Some(name.number) == of.2) {
            whimbrel_shm::Pool::open(&area, name.number).unwrap();
            assert!(areas.mapped(name, of, area).unwrap());
        }
    }

    #[test]
    fn an_area_is_given_to_its_owner_alone_until_it_has_mapped_it_and_is_sealed_then() {
        let mut areas = areas();
        assert_eq!(names(&areas.for_process(CTA.0, CTA.1)), ["area/control-00", "area/n4-00"]);
        assert_eq!(names(&areas.for_process(CPF.0, CPF.1)), ["area/control-01"]);
        map(&mut areas, CTA);
        map(&mut areas, CPF);
        map(&mut areas, UPF);
        assert_eq!(names(&areas.for_process(CTA.0, CTA.1)), ["area/control-01", "area/n4-02"]);
        assert_eq!(names(&areas.for_process(CPF.0, CPF.1)), ["area/control-00"]);
        // The packet parser's process sees N4 and nothing else.
        assert_eq!(names(&areas.for_process(UPF.0, UPF.1)), ["area/n4-00"]);
        for (_, area) in take_areas(&mut areas.for_process(UPF.0, UPF.1)) {
            assert!(rustix::io::pwrite(&area.memory, b"rubbish", 4096).is_err());
        }
        let control = AreaName { pool: PoolKind::Control, number: 0 };
        assert!(areas.for_linked(control, Function::Cpf(2)).is_some());
        assert!(areas.for_linked(control, Function::Cta(2)).is_some());
        assert!(areas.for_linked(control, Function::Upf).is_none());
        let n4 = AreaName { pool: PoolKind::N4, number: 0 };
        assert!(areas.for_linked(n4, Function::UpfReplica).is_some());
        assert!(areas.for_linked(n4, Function::Cpf(2)).is_none());
        assert!(areas.for_linked(n4, Function::Cta(2)).is_none());
        areas.ended(CTA.1);
        assert!(areas.for_linked(n4, Function::Upf).is_none());
    }

    #[test]
    fn a_process_gives_no_area_of_another_and_a_new_manager_seals_what_it_gets_back() {
        let mut areas = ProcessAreas::default();
        let area = || Area::create(7).unwrap();
        let control = AreaName { pool: PoolKind::Control, number: 0 };
        assert!(areas.mapped(control, CPF, area()).is_err(), "the CTA has this number");
        assert!(
            areas.mapped(AreaName { pool: PoolKind::Control, number: 2 }, UPF, area()).is_err(),
            "no area of a UPF"
        );
        let mapped = area();
        assert!(areas.mapped(control, CTA, mapped.try_clone().unwrap()).unwrap());
        assert!(rustix::io::pwrite(&mapped.memory, b"rubbish", 4096).is_err());
        assert!(!areas.mapped(control, CTA, area()).unwrap(), "it stays the first one");
        let [(_, kept)] = &take_areas(&mut areas.for_linked(control, CPF.0).unwrap())[..] else { panic!() };
        let inode = |area: &Area| rustix::fs::fstat(&area.memory).unwrap().st_ino;
        assert_eq!(inode(kept), inode(&mapped));
    }
}
