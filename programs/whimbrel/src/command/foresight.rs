//! `whimbrel foresight show|train|eval`: the prediction of handovers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use whimbrel_broker_client::{files, hex};
use whimbrel_cli::{Done, print, print_json};
use whimbrel_node::config::MODEL_OCTETS_MAX;
use whimbrel_node::observation::ForesightView;
use whimbrel_prediction::{
    Cell, City, CitySize, Evaluation, MarkovTwo, Point, Relations, Signals, TrainedNetwork, Trainer, Trip,
    TripSample,
};

use crate::cli::Running;

#[derive(Subcommand)]
pub(crate) enum ForesightCommand {
    /// Show what the running core predicts, and what became of it.
    Show {
        #[command(flatten)]
        at: Running,
    },
    /// Train a predictor and write it into a signed file.
    Train(Train),
    /// Compare a predictor with a Markov chain on trips that it has not seen.
    Eval(Eval),
}

/// Where trips come from.
#[derive(Args)]
pub(crate) struct Trips {
    /// Trips as lines `ue,ms,cell[,x,y]`, sorted by UE and time; without it, those of a generated city.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Antennas as lines `cell,x,y` in metres, for --trace.
    #[arg(long, value_name = "FILE", requires = "trace")]
    cells: Option<PathBuf>,
    /// Seed of the generated city.
    #[arg(long, default_value_t = 1)]
    city: u64,
    /// Trips in the generated city.
    #[arg(long, default_value_t = 2_000)]
    trips: u64,
}

#[derive(Args)]
pub(crate) struct Train {
    #[command(flatten)]
    from: Trips,
    /// The file to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The private key that signs it, made by `whimbrel open key`.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Use positions too, which gNBs have to report.
    #[arg(long)]
    positions: bool,
}

#[derive(Args)]
pub(crate) struct Eval {
    #[command(flatten)]
    from: Trips,
    /// File of the predictor.
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The public key whose signature is trusted, 64 hexadecimal digits.
    #[arg(long, value_name = "KEY")]
    key: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &ForesightCommand) -> Done {
    match command {
        ForesightCommand::Show { at } => show(at),
        ForesightCommand::Train(options) => train(options),
        ForesightCommand::Eval(options) => eval(options),
    }
}

fn show(at: &Running) -> Done {
    let view: ForesightView = at.client()?.get("/api/v1/foresight")?;
    if at.json {
        return print_json(&json!(view));
    }
    if !view.enabled {
        return print("handovers are not predicted; set `foresight.enabled` to change that\n");
    }
    let by = if view.trained { "a trained network" } else { "a Markov chain that learns as UEs move" };
    let targets = if view.early_containers { ", with their targets" } else { "" };
    print(&format!(
        "predicted by {by}; handovers are prepared in the core{targets}\n\
         {} UEs and {} cells are known; {} of at most {} predictions live, {} s each\n\
         made {}: hits {}, misses {}, expired {}, refused {}; targets prepared {}\n\
         handovers: late {}, unpredicted {}\n\
         mean probability {:.2}, share of hits {:.2}{}\n",
        view.ues,
        view.cells,
        view.live,
        view.live_max,
        view.lifetime_s,
        view.made,
        view.hits,
        view.misses,
        view.expired,
        view.refused,
        view.prepared,
        view.late,
        view.unpredicted,
        view.probability,
        view.share,
        if view.drifts { "; it has become clearly worse: train it again" } else { "" }
    ))
}

/// Trips, and the cells in them by name and antenna.
struct Read {
    trips: Vec<Trip>,
    cells: Vec<(u64, Point)>,
}

impl Trips {
    /// Reads or generates them; `skip` trips of the city were used already. Errors: one sentence.
    fn read(&self, skip: u64) -> Result<Read, String> {
        if let Some(trace) = &self.trace {
            let antennas = self.cells.as_deref().map(antennas).transpose()?.unwrap_or_default();
            return trips_of(&text_of(trace)?, antennas)
                .map_err(|(line, what)| format!("{}:{line}: {what}", trace.display()));
        }
        let city = City::new(self.city, CitySize::CITY);
        let cells =
            (0..=u16::MAX).take(city.cell_count()).map(|c| (u64::from(c), city.antenna(Cell(c)))).collect();
        let trips = (skip..skip + self.trips).map(|n| Trip::new(&city, n)).collect();
        Ok(Read { trips, cells })
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    whimbrel_files::read_text(path, whimbrel_files::LIST_OCTETS_MAX)
        .map_err(|e| format!("{} cannot be read: {e}", path.display()))
}

/// The antennas of a file. Errors: one sentence.
fn antennas(path: &Path) -> Result<BTreeMap<u64, Point>, String> {
    let text = text_of(path)?;
    let mut all = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [cell, x, y] = fields[..] else {
            return Err(format!("{}:{number}: a line is `cell,x,y`", path.display()));
        };
        let point = coordinates(x, y).map_err(|what| format!("{}:{number}: {what}", path.display()))?;
        all.insert(name(cell).map_err(|what| format!("{}:{number}: {what}", path.display()))?, point);
    }
    Ok(all)
}

fn name(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of a cell"))
}

fn coordinates(x: &str, y: &str) -> Result<Point, String> {
    let metres = |text: &str| text.parse::<f64>().ok().filter(|m| m.is_finite());
    match (metres(x), metres(y)) {
        (Some(x), Some(y)) => Ok(Point { x, y }),
        _ => Err(format!("`{x},{y}` is no position in metres")),
    }
}

/// The trips of a trace. Duplicates are dropped; a trip ends where the UE changes or its time does not go on. Errors: line and reason.
fn trips_of(text: &str, antennas: BTreeMap<u64, Point>) -> Result<Read, (usize, String)> {
    /// A pause of this length ends a trip: the UE was idle.
    const PAUSE_MS: u64 = 600_000;
    let mut numbers: BTreeMap<u64, Cell> = BTreeMap::new();
    let mut cells: Vec<(u64, Point)> = Vec::new();
    for (cell, antenna) in antennas {
        numbers.insert(cell, Cell(cells.len() as u16));
        cells.push((cell, antenna));
    }
    let mut trips: Vec<Trip> = Vec::new();
    let mut last: Option<(String, u64)> = None;
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let (ue, ms, cell, position) = match fields[..] {
            [ue, ms, cell] => (ue, ms, cell, None),
            [ue, ms, cell, x, y] => (ue, ms, cell, Some(coordinates(x, y).map_err(|what| (number, what))?)),
            _ => return Err((number, "a line is `ue,ms,cell` or `ue,ms,cell,x,y`".into())),
        };
        let at_ms: u64 = ms.parse().map_err(|_| (number, format!("`{ms}` is no time in milliseconds")))?;
        let cell = name(cell).map_err(|what| (number, what))?;
        if let Entry::Vacant(unknown) = numbers.entry(cell) {
            let next = u16::try_from(cells.len()).map_err(|_| (number, "there are too many cells".into()))?;
            unknown.insert(Cell(next));
            cells.push((cell, position.unwrap_or_default()));
        }
        let sample = TripSample { at_ms, position: position.unwrap_or_default(), cell: numbers[&cell] };
        let goes_on = last.as_ref().is_some_and(|(of, before)| of == ue && at_ms < *before + PAUSE_MS);
        match (trips.last_mut(), &last) {
            (Some(_), Some((of, before))) if of == ue && at_ms <= *before => continue,
            (Some(trip), _) if goes_on => trip.samples.push(sample),
            _ => trips.push(Trip { samples: vec![sample] }),
        }
        last = Some((ue.to_owned(), at_ms));
    }
    Ok(Read { trips, cells })
}

fn train(options: &Train) -> Done {
    let seed = files::read_secret(&options.key)?;
    let Read { trips, cells } = options.from.read(0)?;
    let mut relations = Relations::default();
    trips.iter().for_each(|trip| relations.add(trip));
    let signals = if options.positions { Signals::Positions } else { Signals::Cells };
    let count = cells.len();
    let mut trainer = Trainer::new(1, signals, cells, &relations, trips.len() as u64);
    let mut surprise = 0.0;
    for trip in &trips {
        if let Some(of_trip) = trainer.learn(trip) {
            surprise += (of_trip - surprise) * 0.01;
        }
    }
    let network = trainer.into_network();
    std::fs::write(&options.out, network.to_file(&seed))
        .map_err(|e| format!("{} cannot be written: {e}", options.out.display()))?;
    print(&format!(
        "trained on {} trips over {count} cells, {} numbers; the surprise of a handover is now {surprise:.2} nats\n\
         {} is signed; its public key for `foresight.keys`: {}\n",
        trips.len(),
        network.parameters(),
        options.out.display(),
        hex(&whimbrel_prediction::public_key(&seed))
    ))
}

fn eval(options: &Eval) -> Done {
    let key = files::public_key(&options.key).ok_or("--key is a public key of 64 hexadecimal digits")?;
    let file = whimbrel_files::read(&options.model, MODEL_OCTETS_MAX)
        .map_err(|e| format!("{} cannot be read: {e}", options.model.display()))?;
    let network = TrainedNetwork::from_file(&file, &[key.octets()])
        .map_err(|e| format!("{}: {e}", options.model.display()))?;
    // Other trips of the city than those of `train`.
    let Read { trips, cells } = options.from.read(1_000_000)?;
    if cells.iter().map(|(name, _)| *name).ne(network.names().iter().copied()) {
        return Err("the predictor was trained for other cells than the trips have".into());
    }
    let mut markov = MarkovTwo::default();
    let half = trips.len() / 2;
    trips[..half].iter().for_each(|trip| Evaluation::train(&mut markov, trip));
    let (mut ours, mut theirs) = (Evaluation::default(), Evaluation::default());
    for trip in &trips[half..] {
        ours.add(&network, trip);
        theirs.add(&markov, trip);
    }
    let percent = |e: &Evaluation| [0, 1, 2, 3].map(|n| (1_000.0 * e.right(n)).round() / 10.0);
    let (ours, theirs) = (percent(&ours), percent(&theirs));
    if options.json {
        return print_json(&json!({"predictor": ours, "markov_2": theirs, "trips": trips.len() - half}));
    }
    let row = |name: &str, of: [f64; 4]| {
        format!("{name:<20} {:>7.1} {:>7.1} {:>7.1} {:>7.1}\n", of[0], of[1], of[2], of[3])
    };
    print(&format!(
        "right predictions in percent, by the time before the handover\n{:<20} {:>7} {:>7} {:>7} {:>7}\n{}{}",
        "",
        "0-1 s",
        "1-5 s",
        "5-10 s",
        "> 10 s",
        row("predictor", ours),
        row("Markov, order 2", theirs)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_with_jumps_duplicates_and_holes_gives_trips() {
        let text = "a,0,7\na,500,7\na,500,8\na,400,9\na,1000,8\na,9000000,8\n\nb,0,7,1.5,-2\nb,10,9,2,3\n";
        let Read { trips, cells } = trips_of(text, BTreeMap::new()).unwrap();
        let lengths: Vec<usize> = trips.iter().map(|t| t.samples.len()).collect();
        assert_eq!(
            lengths,
            [3, 1, 2],
            "a pause and another UE begin trips; a time that does not go on is dropped"
        );
        let names: Vec<u64> = cells.iter().map(|c| c.0).collect();
        assert_eq!(names, [7, 8, 9]);
        assert_eq!(trips[2].samples[0].position, Point { x: 1.5, y: -2.0 });
    }

    #[test]
    fn a_malformed_trace_is_refused_with_its_line() {
        for (text, line) in
            [("a,0", 1), ("a,0,7\na,x,7", 2), ("a,0,c", 1), ("a,0,7,1,nan", 1), ("a,0,7,1", 1)]
        {
            assert_eq!(trips_of(text, BTreeMap::new()).err().map(|e| e.0), Some(line), "{text}");
        }
    }
}
