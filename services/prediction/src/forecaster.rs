//! Online prediction: from what the core sees of its UEs to the few handovers that are worth preparing.
//!
//! UEs and cells are numbers here; the caller knows their identities. Everything is bounded, and all of it is soft state: a forecaster that
//! starts empty learns again.

use std::collections::{BTreeMap, VecDeque};

use crate::baseline::MarkovTwo;
use crate::city::Cell;
use crate::dwell::Dwell;
use crate::evaluate::Predictor;
use crate::history::History;
use crate::network::{NetworkMemory, TrainedNetwork};

/// How long a prediction lives (Synergy §III-C.3).
pub const LIFETIME_MS: u64 = 5_000;
/// Predictions that live at a time: the UPF's tables hold as many.
pub const PREDICTIONS_MAX: usize = 65_536;
/// UEs that are followed: as many as are scored in five seconds on one core.
pub const UES_MAX: usize = 1 << 20;
/// Cells that are known.
const CELLS_MAX: usize = 16_384;
/// Every so often each UE is scored, in slices of [`SLICE_MS`].
const SLICES: usize = 10;
/// The caller asks for predictions this often.
pub const SLICE_MS: u64 = LIFETIME_MS / SLICES as u64;
/// Below this probability a handover is not prepared: one in four comes true.
const PROBABILITY_MIN: f32 = 0.25;
/// Predictions of a UE that do not come true before it is left alone until it moves. Each may use a next hop, whose NCC has three bits (TS
/// 33.501 §6.9.2.1.1): a gNB must get another one than the UE has.
const UNFULFILLED_MAX: u8 = 5;
/// For how long a handover to a cell that was predicted too early counts as late.
const LATE_MS: u64 = LIFETIME_MS;
/// Evaluated predictions from which on a change of quality is an alarm.
const DRIFT_AFTER: u64 = 256;
/// By how much the recent share of hits may be below the lasting one.
const DRIFT: f32 = 0.2;

/// A prediction that is worth preparing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The UE of the forecast.
    pub ue: u64,
    /// The cell that will serve it.
    pub cell: u64,
    /// How likely that is within the lifetime.
    pub probability: f32,
}

/// What became of predictions and handovers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Predictions that were given out.
    pub made: u64,
    /// Handovers to the predicted cell.
    pub hits: u64,
    /// Handovers to another cell than predicted.
    pub misses: u64,
    /// Handovers to the predicted cell soon after the prediction had expired.
    pub late: u64,
    /// Handovers without a prediction.
    pub unpredicted: u64,
    /// Predictions that expired.
    pub expired: u64,
    /// Predictions beyond the bound.
    pub refused: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    cell: Cell,
    until_ms: u64,
    probability: f32,
}

#[derive(Clone, Debug, Default)]
struct Track {
    history: History,
    memory: NetworkMemory,
    connected: bool,
    live: Option<Live>,
    /// The last prediction, when it has expired.
    expired: Option<Live>,
    unfulfilled: u8,
    /// The slice in which it is scored next.
    slice: u64,
}

enum Model {
    /// A Markov chain that learns while it runs.
    Markov(MarkovTwo),
    /// A network that was trained before.
    Network(Box<TrainedNetwork>),
}

/// Follows UEs, learns, and predicts.
pub struct Forecaster {
    model: Model,
    dwell: Dwell,
    cells: BTreeMap<u64, Cell>,
    names: Vec<u64>,
    tracks: BTreeMap<u64, Track>,
    /// UEs by the slice in which they are scored, from `slice` on.
    slices: VecDeque<Vec<u64>>,
    slice: u64,
    /// Live predictions in order of their end.
    live: VecDeque<(u64, u64)>,
    counters: Counters,
    /// Shares of hits among evaluated predictions: of the last ones, and lastingly.
    recent: f32,
    lasting: f32,
    /// Sum of the probabilities of evaluated predictions.
    promised: f64,
}

impl Forecaster {
    /// With a trained network, or a Markov chain that learns from now on.
    #[must_use]
    pub fn new(network: Option<TrainedNetwork>) -> Self {
        let names: Vec<u64> = network.as_ref().map(|n| n.names().to_vec()).unwrap_or_default();
        let cells = names.iter().zip(0..).map(|(name, n)| (*name, Cell(n))).collect();
        let model = match network {
            Some(network) => Model::Network(network.into()),
            None => Model::Markov(MarkovTwo::default()),
        };
        Self {
            model,
            dwell: Dwell::default(),
            cells,
            names,
            tracks: BTreeMap::new(),
            slices: (0..SLICES).map(|_| Vec::new()).collect(),
            slice: 0,
            live: VecDeque::new(),
            counters: Counters::default(),
            recent: 0.0,
            lasting: 0.0,
            promised: 0.0,
        }
    }

    /// A connected UE is served by a cell: `handed_over`, if by a handover.
    pub fn served(&mut self, ue: u64, cell: u64, handed_over: bool, now_ms: u64) {
        let Some(cell) = self.cell(cell) else { return };
        if self.tracks.len() >= UES_MAX && !self.tracks.contains_key(&ue) {
            return;
        }
        let track = self.tracks.entry(ue).or_default();
        let moves = track.history.serving().is_some_and(|(serving, _)| serving != cell);
        if moves && handed_over {
            self.dwell.learn(&track.history, now_ms);
            if let Model::Markov(markov) = &mut self.model {
                markov.learn(&track.history, cell);
            }
            judge(track, cell, now_ms, &mut self.counters);
            if let Some(live) = track.live.take() {
                let hit = f32::from(u8::from(live.cell == cell));
                let judged = self.counters.hits + self.counters.misses;
                let step = |n: u64| 1.0 / n.min(judged).max(1) as f32;
                self.recent += (hit - self.recent) * step(64);
                self.lasting += (hit - self.lasting) * step(1_024);
                self.promised += f64::from(live.probability);
            }
        }
        if moves {
            (track.unfulfilled, track.expired) = (0, None);
        }
        track.history.enters(cell, now_ms);
        track.connected = true;
        // It is scored in the next slice: a stay may be short.
        track.slice = self.slice + 1;
        self.slices[1].push(ue);
    }

    /// A UE is idle: it has no handovers, and where it comes back is no handover either.
    pub fn rests(&mut self, ue: u64) {
        if let Some(track) = self.tracks.get_mut(&ue) {
            (track.connected, track.live, track.expired) = (false, None, None);
        }
    }

    /// Nothing is kept of a UE from now on.
    pub fn forget(&mut self, ue: u64) {
        self.tracks.remove(&ue);
    }

    /// The predictions that are due, likeliest first. Asked every [`SLICE_MS`], each UE is scored every [`LIFETIME_MS`].
    pub fn due(&mut self, now_ms: u64) -> Vec<Forecast> {
        self.expire(now_ms);
        let ues = self.slices.pop_front().unwrap_or_default();
        self.slices.push_back(Vec::new());
        let slice = self.slice;
        self.slice += 1;
        let mut candidates = Vec::new();
        for ue in ues {
            let Some(track) = self.tracks.get_mut(&ue).filter(|t| t.connected && t.slice == slice) else {
                continue; // it has moved since, and stands in another slice
            };
            track.slice = slice + SLICES as u64;
            self.slices[SLICES - 1].push(ue);
            if track.live.is_some() || track.unfulfilled >= UNFULFILLED_MAX {
                continue;
            }
            let next = match &self.model {
                Model::Markov(markov) => markov.next_cells(&track.history),
                Model::Network(network) => {
                    network.observe(&mut track.memory, &track.history, now_ms);
                    network.next_cells(&track.memory)
                }
            };
            let Some((cell, likely)) = next.first().copied() else { continue };
            let probability = likely * self.dwell.leaves_within(&track.history, now_ms, LIFETIME_MS);
            if probability >= PROBABILITY_MIN {
                candidates.push((probability, ue, cell));
            }
        }
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let room = PREDICTIONS_MAX.saturating_sub(self.live.len());
        self.counters.refused += candidates.len().saturating_sub(room) as u64;
        candidates.truncate(room);
        let until_ms = now_ms + LIFETIME_MS;
        for (probability, ue, cell) in &candidates {
            if let Some(track) = self.tracks.get_mut(ue) {
                track.live = Some(Live { cell: *cell, until_ms, probability: *probability });
                self.live.push_back((until_ms, *ue));
            }
        }
        self.counters.made += candidates.len() as u64;
        let name = |cell: Cell| self.names[usize::from(cell.0)];
        candidates
            .into_iter()
            .map(|(probability, ue, cell)| Forecast { ue, cell: name(cell), probability })
            .collect()
    }

    /// What became of it all.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// UEs that are followed, cells that are known, and predictions that live.
    #[must_use]
    pub fn sizes(&self) -> [usize; 3] {
        [self.tracks.len(), self.cells.len(), self.live.len()]
    }

    /// Whether the model was trained before.
    #[must_use]
    pub fn is_trained(&self) -> bool {
        matches!(self.model, Model::Network(_))
    }

    /// The mean probability of evaluated predictions, and the share of hits among them: equal, if the probabilities are right.
    #[must_use]
    pub fn calibration(&self) -> [f64; 2] {
        let judged = (self.counters.hits + self.counters.misses).max(1) as f64;
        [self.promised / judged, self.counters.hits as f64 / judged]
    }

    /// Whether predictions have become clearly worse than they were: roads or cells have changed since the model learnt them.
    #[must_use]
    pub fn drifts(&self) -> bool {
        self.counters.hits + self.counters.misses >= DRIFT_AFTER && self.lasting - self.recent > DRIFT
    }

    fn cell(&mut self, name: u64) -> Option<Cell> {
        if let Some(cell) = self.cells.get(&name) {
            return Some(*cell);
        }
        // The network's cells have its numbers; it knows no others.
        let room = self.names.len() < CELLS_MAX;
        let number = u16::try_from(self.names.len()).ok().filter(|_| room)?;
        self.cells.insert(name, Cell(number));
        self.names.push(name);
        Some(Cell(number))
    }

    fn expire(&mut self, now_ms: u64) {
        while let Some((until_ms, ue)) = self.live.front().copied().filter(|(until, _)| *until <= now_ms) {
            self.live.pop_front();
            let Some(track) = self.tracks.get_mut(&ue) else { continue };
            if track.live.is_some_and(|live| live.until_ms == until_ms) {
                track.expired = track.live.take();
                track.unfulfilled += 1;
                self.counters.expired += 1;
            }
        }
    }
}

/// A handover shows whether the UE's prediction was right.
fn judge(track: &Track, cell: Cell, now_ms: u64, counters: &mut Counters) {
    let late = |expired: &Live| expired.cell == cell && now_ms < expired.until_ms + LATE_MS;
    match &track.live {
        Some(live) if live.cell == cell => counters.hits += 1,
        Some(_) => counters.misses += 1,
        None if track.expired.as_ref().is_some_and(late) => counters.late += 1,
        None => counters.unpredicted += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UE drives round four cells, three seconds in each; the forecaster is asked as it should be. Gives the forecasts.
    fn drive(forecaster: &mut Forecaster, rounds: u64) -> Vec<Forecast> {
        let mut made = Vec::new();
        for step in 0..rounds * 4 {
            forecaster.served(7, 100 + step % 4, true, step * 3_000);
            for slice in 0..3_000 / SLICE_MS {
                made.extend(forecaster.due(step * 3_000 + slice * SLICE_MS));
            }
        }
        made
    }

    #[test]
    fn a_way_that_repeats_is_predicted_and_hit() {
        let mut forecaster = Forecaster::new(None);
        let made = drive(&mut forecaster, 10);
        let counters = forecaster.counters();
        assert!(counters.hits > 25 && counters.misses == 0, "{counters:?}");
        assert!(made.iter().all(|f| f.ue == 7 && f.probability >= PROBABILITY_MIN));
        assert_eq!(counters.made, made.len() as u64);
        let [promised, kept] = forecaster.calibration();
        assert!(kept == 1.0 && promised > 0.9, "{promised}");
    }

    #[test]
    fn a_ue_that_stays_is_predicted_five_times_and_a_late_one_counts_as_late() {
        let mut forecaster = Forecaster::new(None);
        drive(&mut forecaster, 10);
        let before = forecaster.counters();
        forecaster.served(7, 100, true, 120_000);
        for stay in 0..60_000 / SLICE_MS {
            // Others show that the stay may be long.
            if stay % 4 == 0 {
                forecaster.dwell.learn(&forecaster.tracks[&7].history.clone(), 120_000 + stay * SLICE_MS);
            }
            forecaster.due(120_000 + stay * SLICE_MS);
        }
        let after = forecaster.counters();
        assert!(after.expired - before.expired <= u64::from(UNFULFILLED_MAX), "{after:?}");
        forecaster.forget(7);
        drive(&mut forecaster, 1);
        assert_eq!(forecaster.sizes()[0], 1);
    }

    #[test]
    fn a_prediction_lives_five_seconds_and_then_makes_the_handover_late() {
        let mut forecaster = Forecaster::new(None);
        drive(&mut forecaster, 10);
        forecaster.served(7, 100, true, 120_000);
        (0..20).for_each(|slice| drop(forecaster.due(120_000 + slice * SLICE_MS)));
        let expired = forecaster.counters().expired;
        assert_eq!((expired, forecaster.sizes()[2]), (1, 0));
        forecaster.served(7, 101, true, 130_000);
        assert_eq!(forecaster.counters().late, 1);
    }

    #[test]
    fn an_idle_ue_and_a_forgotten_one_are_not_predicted() {
        for forget in [true, false] {
            let mut forecaster = Forecaster::new(None);
            drive(&mut forecaster, 10);
            forecaster.served(7, 100, true, 120_000);
            if forget {
                forecaster.forget(7)
            } else {
                forecaster.rests(7)
            }
            assert!((0..20).all(|n| forecaster.due(120_000 + n * SLICE_MS).is_empty()));
        }
    }

    #[test] // Synergy §III-C.3: the tables hold 65,536 predictions
    fn the_likeliest_of_a_flood_are_given_out() {
        let mut forecaster = Forecaster::new(None);
        drive(&mut forecaster, 10);
        let now_ms = 200_000;
        for ue in 0..PREDICTIONS_MAX as u64 + 1_000 {
            forecaster.served(100 + ue, 103, false, now_ms);
            forecaster.served(100 + ue, 100, true, now_ms);
        }
        let made: Vec<Forecast> =
            (0..4).flat_map(|n| forecaster.due(now_ms + n * SLICE_MS)).filter(|f| f.ue >= 100).collect();
        assert_eq!(made.len(), PREDICTIONS_MAX);
        assert!(forecaster.counters().refused >= 1_000);
        assert_eq!(forecaster.sizes()[2], PREDICTIONS_MAX);
        assert!(made.windows(2).all(|w| w[0].probability >= w[1].probability));
    }

    #[test]
    fn cells_beyond_the_bound_are_not_taken() {
        let mut forecaster = Forecaster::new(None);
        for cell in 0..CELLS_MAX as u64 + 100 {
            forecaster.served(1, cell, true, cell * 1_000);
        }
        assert_eq!(forecaster.sizes()[1], CELLS_MAX);
    }

    #[test]
    fn a_change_of_ways_raises_the_alarm() {
        let mut forecaster = Forecaster::new(None);
        drive(&mut forecaster, 200);
        assert!(!forecaster.drifts());
        // From now on the UE turns round where it drove on.
        let begin = forecaster.tracks[&7].history.serving().map_or(0, |(_, since)| since);
        let mut drifted = false;
        for step in 1..120 {
            let at = begin + step * 3_000;
            forecaster.served(7, [101, 100][(step % 2) as usize], true, at);
            (0..6).for_each(|slice| drop(forecaster.due(at + slice * SLICE_MS)));
            drifted |= forecaster.drifts();
        }
        assert!(drifted, "{:?}", forecaster.counters());
    }
}
