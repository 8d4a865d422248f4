//! Attaches that a broker answers in a second of one core: its machine alone, and the whole thread with a database that is on disk before
//! an answer leaves.

use std::io;
use std::path::Path;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use whimbrel_broker_client::now;
use whimbrel_open::admission::Peer;
use whimbrel_open::broker::{Broker as Machine, BrokerEvent};
use whimbrel_open::msg::EpochKey;
use whimbrel_open::operator::{Operator, OperatorAttach};
use whimbrel_open::user::UserAttach;

use super::finish;
use super::parties::{Broker, OPERATOR, broker_config, epoch_key, failed, operator, seed, sim, user};
use crate::plot::{Axis, Plot, Series};

/// Attaches a second and broker core that are to be reached.
const GOAL: f64 = 2_000.0;
/// Identifier of the epoch key of the machine alone.
const EPOCH: u8 = 1;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Users, each of which attaches once.
    #[arg(long, default_value_t = 20_000)]
    attaches: usize,
    /// Requests that wait at once.
    #[arg(long, default_value_t = 256)]
    waiting: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.attaches, self.waiting) = (40, 16);
    }
}

/// The request of each user, signed by the operator.
fn requests(count: usize, operator: &Operator, epoch: EpochKey) -> io::Result<Vec<Vec<u8>>> {
    let request = |n| {
        let mut sim = sim(n, epoch);
        let (_, request) = UserAttach::begin(&mut sim, OPERATOR, &seed()?)
            .ok_or_else(|| failed("the broker's key is of small order"))?;
        Ok(OperatorAttach::begin(operator, request, now(), &seed()?).1)
    };
    (0..count).map(request).collect()
}

/// Processor time of this thread, in seconds: other programs on the machine do not count.
fn processor_time() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// The machine alone: attaches a second of processor time.
fn machine(count: usize, operator: &Operator) -> io::Result<f64> {
    let key = epoch_key();
    let epoch = EpochKey { id: EPOCH, public: key.share() };
    let mut machine = Machine::new(broker_config(), (EPOCH, key), [7; 16])
        .ok_or_else(|| failed("the certificate is of another key"))?;
    (0..count).map(user).for_each(|u| machine.set_user(u.id, u.user));
    let requests = requests(count, operator, epoch)?;
    let begin = processor_time();
    for octets in &requests {
        let output = machine.answer(octets, now(), &seed()?);
        if !matches!(output.event, BrokerEvent::Granted(_)) {
            return Err(failed(format!("not granted: {:?}", output.event)));
        }
    }
    Ok(count as f64 / (processor_time() - begin))
}

/// The thread with its database: attaches a second of the thread's work, and of the clock on the wall.
fn service(options: &Options, operator: &Operator) -> io::Result<(f64, f64)> {
    let broker = Broker::start(options.attaches)?;
    let requests = requests(options.attaches, operator, broker.epoch)?;
    let entrance = broker.engine.entrance();
    let (begin, worked) = (Instant::now(), entrance.metrics.work_us());
    for chunk in requests.chunks(options.waiting) {
        let asked: Vec<_> = chunk.iter().filter_map(|octets| entrance.ask(Peer(1), octets.clone())).collect();
        for answer in asked {
            answer.blocking_recv().map_err(failed)?;
        }
    }
    let wall = begin.elapsed().as_secs_f64();
    let granted = entrance.metrics.granted();
    if granted != options.attaches as u64 {
        return Err(failed(format!("{granted} of {} attaches were granted", options.attaches)));
    }
    // What the thread counts after the last answer may be a batch short: at least the wall's.
    let work = (entrance.metrics.work_us() - worked) as f64 / 1e6;
    Ok((granted as f64 / work.max(1e-6), granted as f64 / wall))
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let operator = operator();
    let alone = machine(options.attaches, &operator)?.round();
    let (core, wall) = service(options, &operator)?;
    let (core, wall) = (core.round(), wall.round());
    println!(
        "attaches a second of one core: machine alone {alone}, with the database {core} ({wall} by the clock on the wall); goal {GOAL}"
    );
    let bars = [alone, core, wall, GOAL];
    let plot = Plot {
        title: "Attaches that a broker answers",
        x: "",
        y: "attaches a second of one core",
        log_y: false,
        axis: Axis::Names(["machine", "with database", "by the wall", "goal"].map(String::from).to_vec()),
        series: vec![Series {
            name: "ours".into(),
            points: bars.iter().enumerate().map(|(i, v)| (i as f64, *v)).collect(),
        }],
    };
    plot.write(plots, "bricks-broker")?;
    finish(
        "broker",
        &json!({
            "attaches": options.attaches, "machine_per_s": alone, "per_s_per_core": core, "per_s_wall": wall, "goal_per_s": GOAL,
        }),
    );
    Ok(())
}
