//! The load of CPFs, by which new UEs are placed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;

use crate::replication::CpfId;

/// After this time recent work counts half.
const HALVED_EVERY: Duration = Duration::from_secs(1);
/// A CPF may have so much more than the mean: a quarter, which most rings keep by themselves, and as many UEs or inputs as no CPF notices.
const UES_BEYOND: u64 = 16;
const INPUTS_BEYOND: u64 = 256;

/// UEs and recent inputs of each CPF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpfLoads {
    of: BTreeMap<CpfId, CpfLoad>,
    halved: Instant,
}

/// The load of one CPF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpfLoad {
    /// UEs of which it is the primary.
    pub ues: u64,
    /// Inputs that it was sent, with weights that halve each second.
    pub inputs: u64,
}

impl CpfLoads {
    /// A UE has another primary; `None`: it has begun, or is gone.
    pub fn moved(&mut self, from: Option<CpfId>, to: Option<CpfId>) {
        if from == to {
            return;
        }
        if let Some(load) = from.and_then(|cpf| self.of.get_mut(&cpf)) {
            load.ues = load.ues.saturating_sub(1);
        }
        if let Some(cpf) = to {
            self.of.entry(cpf).or_default().ues += 1;
        }
    }

    /// A CPF is sent an input.
    pub fn works(&mut self, now: Instant, cpf: CpfId) {
        if now.since(self.halved) >= HALVED_EVERY {
            let rounds = now.since(self.halved).as_secs().min(64) as u32;
            self.of.values_mut().for_each(|load| load.inputs = load.inputs.checked_shr(rounds).unwrap_or(0));
            self.halved = now;
        }
        self.of.entry(cpf).or_default().inputs += 1;
    }

    /// A CPF is gone, and its number may come again.
    pub fn gone(&mut self, cpf: CpfId) {
        if let Some(load) = self.of.get_mut(&cpf) {
            load.inputs = 0;
        }
        self.of.retain(|_, load| *load != CpfLoad::default());
    }

    /// The load of a CPF.
    pub fn of(&self, cpf: CpfId) -> CpfLoad {
        self.of.get(&cpf).copied().unwrap_or_default()
    }

    /// The first of these CPFs, in the order in which a ring gives them, that may have a further UE: none gets one while it has much more UEs or
    /// work than the mean of all. If each has too much of either, the one with the least work.
    pub(super) fn first_with_room(&self, in_order: &[CpfId]) -> Option<CpfId> {
        let n = in_order.len() as u64;
        let loads = || in_order.iter().map(|cpf| self.of(*cpf));
        let ues: u64 = loads().map(|load| load.ues).sum();
        let inputs: u64 = loads().map(|load| load.inputs).sum();
        let has_room = |load: CpfLoad| {
            load.ues * n * 4 <= ues * 5 + UES_BEYOND * n * 4
                && load.inputs * n * 4 <= inputs * 5 + INPUTS_BEYOND * n * 4
        };
        let first = in_order.iter().find(|cpf| has_room(self.of(**cpf)));
        first.or_else(|| in_order.iter().min_by_key(|cpf| self.of(**cpf).inputs)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [CpfId; 3] = [CpfId(1), CpfId(2), CpfId(3)];

    #[test]
    fn a_ue_goes_to_the_first_cpf_on_its_ring_that_has_not_many_more_ues_than_the_others() {
        let mut loads = CpfLoads::default();
        let mut placed = [0; 3];
        for _ in 0..3000 {
            let cpf = loads.first_with_room(&ALL).unwrap();
            loads.moved(None, Some(cpf));
            placed[usize::from(cpf.0) - 1] += 1;
        }
        // Each UE would go to the first one if the ring alone decided.
        assert!(placed[0] <= 1250 + UES_BEYOND && placed[1] <= 1250 + UES_BEYOND, "{placed:?}");
        assert!(placed[2] >= 400, "{placed:?}");
        (0..UES_BEYOND).for_each(|_| loads.moved(Some(CpfId(1)), None));
        assert_eq!(loads.first_with_room(&ALL), Some(CpfId(1)), "it has room again");
    }

    #[test]
    fn a_cpf_that_has_much_work_gets_no_ue_until_the_work_is_past() {
        let mut loads = CpfLoads::default();
        let now = Instant(5_000_000);
        (0..2000).for_each(|_| loads.works(now, CpfId(1)));
        assert_eq!(loads.first_with_room(&ALL), Some(CpfId(2)));
        loads.works(now + HALVED_EVERY * 2, CpfId(2));
        assert_eq!(loads.of(CpfId(1)).inputs, 500);
        loads.works(now + HALVED_EVERY * 4, CpfId(2));
        assert_eq!(loads.first_with_room(&ALL), Some(CpfId(1)));
        loads.works(now + HALVED_EVERY * 100, CpfId(2));
        assert_eq!(loads.of(CpfId(1)).inputs, 0);
    }

    #[test]
    fn of_cpfs_that_have_too_much_of_something_the_one_with_the_least_work_gets_the_ue() {
        let mut loads = CpfLoads::default();
        (0..100).for_each(|_| loads.moved(None, Some(CpfId(1))));
        (0..1000).for_each(|_| loads.works(Instant(1), CpfId(2)));
        assert_eq!(loads.first_with_room(&ALL[..2]), Some(CpfId(1)));
        assert_eq!(loads.first_with_room(&[]), None);
    }
}
