//! Prediction of handovers at the edge: what the UEs' events show goes to the forecaster, and its predictions become inputs of the UEs'
//! machines.
//!
//! A UE is a slot number here: neither the forecaster nor its memory knows a subscriber. A gNB reports cells of its own alone, a bounded
//! number of them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use whimbrel_control::amf::RanNodes;
use whimbrel_control::event::Sign;
use whimbrel_control::{Event, Procedure, UeEvent, UeId};
use whimbrel_ids::{GlobalGnbId, Instant, Tai};
use whimbrel_ngap::ie::NgranCgi;
use whimbrel_prediction::{Forecaster, LIFETIME_MS, PREDICTIONS_MAX, SLICE_MS};

use crate::config::Config;
use crate::observation::{Condition, ForesightView, Metric, MetricSample};

/// Cells of one gNB that are taken: more than gNBs have (TS 38.413 §9.4.7 allows 16,384 in a list).
const CELLS_PER_GNB_MAX: u32 = 256;

/// The forecaster and what it does not know.
pub(super) struct Foresight {
    forecaster: Forecaster,
    /// Where the cells are.
    places: BTreeMap<u64, (GlobalGnbId, Tai)>,
    cells_of: BTreeMap<GlobalGnbId, u32>,
    /// When the next slice of UEs is scored.
    due: Instant,
    /// Predictions that have not become inputs yet.
    waiting: WaitingPredictions,
    /// Targets that were prepared.
    prepared: u64,
    early_containers: bool,
}

impl Foresight {
    /// As configured; `None` if it is off. Errors: the predictor cannot be used, one sentence.
    pub(super) fn open(config: &Config, now: Instant) -> Result<Option<Self>, String> {
        if !config.foresight.enabled {
            return Ok(None);
        }
        let forecaster = Forecaster::new(config.foresight.network()?);
        Ok(Some(Self {
            forecaster,
            places: BTreeMap::new(),
            cells_of: BTreeMap::new(),
            due: now,
            waiting: WaitingPredictions::default(),
            prepared: 0,
            early_containers: config.foresight.early_containers,
        }))
    }

    /// An event of a UE.
    pub(super) fn event(&mut self, now: Instant, event: &UeEvent, nodes: &RanNodes) {
        let ue = key(event.ue);
        match &event.event {
            Event::Sign { sign: Sign::Prepared, .. } => self.prepared += 1,
            Event::Sign { sign: Sign::Required(..), .. } => {}
            Event::Sign { sign, tai: Some(tai), seen: Some(seen), .. } => {
                let gnb = event.on.and_then(|on| nodes.get(on)).and_then(|node| node.gnb);
                let cell = gnb.and_then(|gnb| self.cell(&seen.cell, gnb, *tai));
                if let Some(cell) = cell {
                    self.forecaster.served(ue, cell, *sign != Sign::Connected, ms(now));
                }
            }
            Event::Completed { procedure: Procedure::AnRelease, .. } => self.forecaster.rests(ue),
            Event::Completed {
                procedure: Procedure::DeregistrationByUe | Procedure::DeregistrationByNetwork,
                ..
            }
            | Event::Deregistered { .. } => self.forecaster.forget(ue),
            _ => {}
        }
    }

    /// The predictions that are due: each UE and the cell where it is expected.
    pub(super) fn due(&mut self, now: Instant) -> Vec<ExpectedUe> {
        if now >= self.due {
            // After a pause the slices that were missed are not made up for.
            self.due = now + Duration::from_millis(SLICE_MS);
            let due = self.forecaster.due(ms(now));
            let place = |f: &whimbrel_prediction::Forecast| {
                self.places.get(&f.cell).map(|(gnb, tai)| (of_key(f.ue), *gnb, *tai))
            };
            self.waiting.add(now, due.iter().filter_map(place));
        }
        self.waiting.take(now)
    }

    /// When [`Self::due`] has something to do.
    pub(super) fn next_deadline(&self) -> Instant {
        self.waiting.next_deadline().map_or(self.due, |at| at.min(self.due))
    }

    pub(super) fn samples(&self) -> Vec<MetricSample> {
        let c = self.forecaster.counters();
        let [ues, _, live] = self.forecaster.sizes().map(|n| n as u64);
        let one = |metric, value| MetricSample { metric, label: None, value };
        let of = |label: &'static str, value| MetricSample {
            metric: Metric::ForesightPredictions,
            label: Some(label.into()),
            value,
        };
        vec![
            of("made", c.made),
            of("hit", c.hits),
            of("miss", c.misses),
            of("late", c.late),
            of("expired", c.expired),
            of("refused", c.refused),
            of("prepared", self.prepared),
            one(Metric::ForesightUnpredicted, c.unpredicted),
            one(Metric::ForesightUes, ues),
            one(Metric::ForesightLive, live),
        ]
    }

    pub(super) fn view(&self) -> ForesightView {
        let c = self.forecaster.counters();
        let [ues, cells, live] = self.forecaster.sizes();
        let [probability, share] = self.forecaster.calibration();
        ForesightView {
            enabled: true,
            trained: self.forecaster.is_trained(),
            early_containers: self.early_containers,
            ues,
            cells,
            live,
            live_max: PREDICTIONS_MAX,
            lifetime_s: LIFETIME_MS / 1_000,
            made: c.made,
            hits: c.hits,
            misses: c.misses,
            late: c.late,
            expired: c.expired,
            refused: c.refused,
            unpredicted: c.unpredicted,
            prepared: self.prepared,
            probability,
            share,
            drifts: self.forecaster.drifts(),
        }
    }

    pub(super) fn condition(&self) -> (Condition, &'static str) {
        match self.forecaster.drifts() {
            true => (
                Condition::Limited,
                "predictions of handovers have become worse: roads or cells have changed; train the predictor again",
            ),
            false => (Condition::Up, "handovers are predicted"),
        }
    }

    /// The number of a cell, if it is one of this gNB's.
    fn cell(&mut self, cell: &NgranCgi, gnb: GlobalGnbId, tai: Tai) -> Option<u64> {
        let NgranCgi::NrCgi(cgi) = cell else { return None };
        let id = cgi.nr_cell_identity.value();
        let is_its =
            cgi.plmn_identity == gnb.plmn && id >> (36 - u32::from(gnb.bits())) == u64::from(gnb.gnb_id);
        if !is_its {
            return None;
        }
        let [a, b, c] = gnb.plmn.nas_octets();
        let name = u64::from(u32::from_be_bytes([0, a, b, c])) << 36 | id;
        if !self.places.contains_key(&name) {
            let cells = self.cells_of.entry(gnb).or_default();
            if *cells == CELLS_PER_GNB_MAX {
                return None;
            }
            *cells += 1;
        }
        self.places.insert(name, (gnb, tai));
        Some(name)
    }
}

/// A UE, and the gNB and tracking area where it is expected.
type ExpectedUe = (UeId, GlobalGnbId, Tai);

/// Predictions at one turn of the control loop: each costs some ten messages, and the UEs' own must not wait for many of them.
const AT_ONCE_MAX: usize = 4;

/// The predictions of a slice, which are spread over the time until the next one.
#[derive(Default)]
struct WaitingPredictions {
    all: VecDeque<ExpectedUe>,
    pace: Duration,
    next: Instant,
}

impl WaitingPredictions {
    fn add(&mut self, now: Instant, all: impl Iterator<Item = ExpectedUe>) {
        self.all.extend(all);
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX).max(1);
        (self.pace, self.next) = (Duration::from_millis(SLICE_MS) / number, now);
    }

    fn take(&mut self, now: Instant) -> Vec<ExpectedUe> {
        let mut due = Vec::new();
        while self.next <= now && due.len() < AT_ONCE_MAX {
            let Some(first) = self.all.pop_front() else { break };
            due.push(first);
            self.next = self.next + self.pace;
        }
        due
    }

    fn next_deadline(&self) -> Option<Instant> {
        (!self.all.is_empty()).then_some(self.next)
    }
}

fn key(ue: UeId) -> u64 {
    u64::from(ue.slot) << 16 | u64::from(ue.generation)
}

fn of_key(key: u64) -> UeId {
    UeId { slot: (key >> 16) as u32, generation: key as u16 }
}

fn ms(now: Instant) -> u64 {
    now.0 / 1_000
}

#[cfg(test)]
mod tests {
    use whimbrel_ids::{NrCellId, PlmnId, Tac};
    use whimbrel_ngap::ie::NrCgi;

    use super::*;

    fn cell_of(gnb: u64, cell: u64) -> NgranCgi {
        NgranCgi::NrCgi(NrCgi::new(PlmnId::TEST, NrCellId::new(gnb << 8 | cell).unwrap()))
    }

    #[test]
    fn a_gnb_is_believed_for_a_bounded_number_of_its_own_cells() {
        let mut config = crate::config::default();
        assert!(Foresight::open(&config, Instant(0)).unwrap().is_none(), "it is off by default");
        config.foresight.enabled = true;
        let mut foresight = Foresight::open(&config, Instant(0)).unwrap().unwrap();
        let gnb = GlobalGnbId::new(PlmnId::TEST, 7, 28).unwrap();
        let tai = Tai { plmn: PlmnId::TEST, tac: Tac::new(1).unwrap() };
        assert_eq!(foresight.cell(&cell_of(8, 1), gnb, tai), None, "it is another gNB's");
        let own: Vec<_> = (0..256).map(|cell| foresight.cell(&cell_of(7, cell), gnb, tai)).collect();
        assert!(own.iter().all(Option::is_some));
        let few = GlobalGnbId::new(PlmnId::TEST, 0, 22).unwrap();
        let beyond = (0..300).filter_map(|cell| foresight.cell(&cell_of(0, cell), few, tai)).count();
        assert_eq!(beyond, CELLS_PER_GNB_MAX as usize);
    }

    #[test]
    fn predictions_of_a_slice_are_spread_over_it() {
        let gnb = GlobalGnbId::new(PlmnId::TEST, 7, 28).unwrap();
        let tai = Tai { plmn: PlmnId::TEST, tac: Tac::new(1).unwrap() };
        let slice = |from: u32| (from..from + 125).map(move |slot| (UeId { slot, generation: 1 }, gnb, tai));
        let mut waiting = WaitingPredictions::default();
        let begin = Instant(1_000_000);
        let mut taken = 0;
        for n in 0..2u32 {
            let begin = begin + Duration::from_millis(SLICE_MS) * n;
            waiting.add(begin, slice(n * 125));
            for ms in 0..SLICE_MS {
                let now = begin + Duration::from_millis(ms);
                let due = waiting.take(now);
                assert!(due.len() <= 1, "{} at once", due.len());
                taken += due.len() as u32;
                assert!(taken >= n * 125 + (ms * 125 / SLICE_MS) as u32, "they are late");
            }
            assert_eq!((taken, waiting.next_deadline()), ((n + 1) * 125, None));
        }
        // After a pause, a few at a time.
        waiting.add(begin, slice(250));
        let late = begin + Duration::from_secs(60);
        assert_eq!((waiting.take(late).len(), waiting.take(late).len()), (AT_ONCE_MAX, AT_ONCE_MAX));
    }

    #[test]
    fn a_ue_has_its_number_back() {
        let ue = UeId { slot: UeId::SLOTS - 1, generation: 65_535 };
        assert_eq!(of_key(key(ue)), ue);
    }
}
