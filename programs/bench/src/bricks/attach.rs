//! Figure 3.7: latency of an attach by module. The chapter's baseline asks the home twice (authentication data, update of the location);
//! SAP asks the broker once. A roaming UE of 5G asks its home four times: authenticate, confirm, UECM registration, SDM get.
//!
//! UE and serving network are function calls here: what they compute is measured, radio and NAS are not (the chapter takes the radio out
//! as well). Home and broker answer over HTTP/2 and TLS 1.3 behind a forwarder that delays. The broker commits each grant to its
//! database; the home of the baselines computes a vector and has all else in memory.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use whimbrel_broker_client::client::Client;
use whimbrel_broker_client::now;
use whimbrel_broker_server::engine::Entrance;
use whimbrel_ids::{PlmnId, Supi};
use whimbrel_open::operator::{Operator, OperatorAttach};
use whimbrel_open::user::{UserAttach, UserSim};
use whimbrel_security::{
    Abba, AuthenticationManagementField, AuthenticationVector, Autn, HresStar, K, KSeaf, Milenage, Opc, Rand,
    ServingNetworkName, Sqn, Usim, UsimSqn,
};

use super::parties::{Broker, OPERATOR, Service, domain, failed, operator, seed, sim};
use super::{finish, forwarder};
use crate::plot::{Axis, Plot, Series};

/// Round-trip times to the home, and the chapter's figures for it in milliseconds: baseline, CellBricks. Its local setup has no totals.
const HOMES: [(u64, Option<(f64, f64)>); 3] =
    [(0, None), (7, Some((36.85, 31.68))), (70, Some((166.48, 98.62)))];
/// More than any attach here takes.
const WITHIN: Duration = Duration::from_secs(20);
const SUPI: &str = "imsi-999700000000001";

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Attaches of each kind at each distance over a warm connection.
    #[arg(long, default_value_t = 100)]
    attaches: usize,
    /// The same over a new connection each.
    #[arg(long, default_value_t = 20)]
    cold: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.attaches, self.cold) = (3, 1);
    }
}

/// Time of one attach, or the medians of several.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    ue: Duration,
    network: Duration,
    /// What the broker or the home computes.
    home: Duration,
    /// The broker's commit.
    disk: Duration,
    total: Duration,
}

impl Cost {
    fn median(costs: &[Self]) -> Self {
        let median = |of: fn(&Self) -> Duration| {
            let mut times: Vec<Duration> = costs.iter().map(of).collect();
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or_default()
        };
        Self {
            ue: median(|c| c.ue),
            network: median(|c| c.network),
            home: median(|c| c.home),
            disk: median(|c| c.disk),
            total: median(|c| c.total),
        }
    }

    /// What is left: the way to the home and back, TLS, HTTP, threads.
    fn other(&self) -> Duration {
        self.total.saturating_sub(self.ue + self.network + self.home + self.disk)
    }

    fn json(&self) -> Value {
        json!({
            "ue_ms": ms(self.ue), "network_ms": ms(self.network), "home_ms": ms(self.home), "disk_ms": ms(self.disk), "other_ms": ms(self.other()),
            "total_ms": ms(self.total),
        })
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Adds the time that `f` takes.
fn timed<T>(spent: &mut Duration, f: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = f();
    *spent += begin.elapsed();
    done
}

/// The home or broker as the serving network reaches it.
struct Far<'a> {
    runtime: &'a Runtime,
    client: Client,
    at: SocketAddr,
    entrance: &'a Entrance,
}

impl Far<'_> {
    fn ask(&self, octets: &[u8]) -> io::Result<Vec<u8>> {
        self.runtime.block_on(self.client.ask(&domain(), self.at, octets, WITHIN)).map_err(failed)
    }

    /// Microseconds that it has worked, and those of them that it has waited for its disk.
    fn worked(&self) -> (u64, u64) {
        let metrics = &self.entrance.metrics;
        (metrics.work_us(), metrics.commit_us())
    }

    /// What it spent since it had worked for so long.
    fn spent_since(&self, (work, disk): (u64, u64), cost: &mut Cost) {
        let (work_now, disk_now) = self.worked();
        cost.disk = Duration::from_micros(disk_now - disk);
        cost.home = Duration::from_micros((work_now - work).saturating_sub(disk_now - disk));
    }
}

/// An attach by SAP.
fn sap(far: &Far<'_>, operator: &Operator, sim: &mut UserSim) -> io::Result<Cost> {
    let (mut cost, worked, begin) = (Cost::default(), far.worked(), Instant::now());
    let drawn = seed()?;
    let (attach, request) = timed(&mut cost.ue, || UserAttach::begin(sim, OPERATOR, &drawn))
        .ok_or_else(|| failed("the SIM's key is of small order"))?;
    let drawn = seed()?;
    let (waiting, octets) =
        timed(&mut cost.network, || OperatorAttach::begin(operator, request, now(), &drawn));
    let answer = far.ask(&octets)?;
    let session =
        timed(&mut cost.network, || waiting.answer(&answer, &operator.trust, now())).map_err(failed)?;
    let supi: Supi = SUPI.parse().map_err(|_| failed("no SUPI"))?;
    let k_amf = |k: &[u8; 32]| KSeaf::new(*k).k_amf(supi, Abba::RELEASE_15);
    let at_network = timed(&mut cost.network, || k_amf(session.k_seaf.octets()));
    let answer = session.answer_u.to_octets();
    let tentative = timed(&mut cost.ue, || attach.answer(&answer, now())).map_err(failed)?;
    let at_ue = timed(&mut cost.ue, || k_amf(tentative.k_seaf().octets()));
    if at_ue != at_network {
        return Err(failed("UE and network have different keys"));
    }
    tentative.commit(attach, sim);
    cost.total = begin.elapsed();
    far.spent_since(worked, &mut cost);
    Ok(cost)
}

/// The subscriber of the baselines.
fn functions() -> Milenage {
    Milenage::new(&K::new([0x11; 16]), Opc::new([0x22; 16]))
}

/// The home of the baselines: [1, n] is asked for a vector, anything else for what a database would hold.
fn home() -> io::Result<Entrance> {
    let name = ServingNetworkName::new(PlmnId::TEST);
    let (mut sqn, profile) = (0u64, vec![b'p'; 600]);
    let answer = move |octets: &[u8]| {
        if octets.first() != Some(&1) {
            return profile.clone();
        }
        sqn += 1;
        let mut rand = [0; 16];
        rand.iter_mut().zip(sqn.to_be_bytes()).for_each(|(r, s)| *r = s);
        let (functions, sqn) = (functions().into(), Sqn::new(sqn, 0));
        let amf = AuthenticationManagementField::FIVE_G;
        let v = AuthenticationVector::generate(&functions, Rand(rand), sqn, amf, &name);
        [&v.rand.0[..], &v.autn.0, v.hxres_star.octets(), v.k_seaf.octets()].concat()
    };
    Entrance::answered_by(answer).map_err(failed)
}

/// A standard attach that asks the home `round_trips` times, of which the first gives the vector.
fn standard(far: &Far<'_>, usim: &mut Usim, round_trips: usize) -> io::Result<Cost> {
    let name = ServingNetworkName::new(PlmnId::TEST);
    let (mut cost, worked, begin) = (Cost::default(), far.worked(), Instant::now());
    let vector = far.ask(&[1])?;
    let short = || failed("the vector is short");
    let (rand, rest) = vector.split_first_chunk::<16>().ok_or_else(short)?;
    let (autn, rest) = rest.split_first_chunk::<16>().ok_or_else(short)?;
    let (hxres, k_seaf) = rest.split_first_chunk::<16>().ok_or_else(short)?;
    let (rand, k_seaf) = (Rand(*rand), k_seaf.first_chunk::<32>().ok_or_else(short)?);
    let answer = timed(&mut cost.ue, || usim.authenticate(&rand, &Autn(*autn), &name))
        .map_err(|e| failed(format!("the USIM refuses: {e:?}")))?;
    let right =
        timed(&mut cost.network, || HresStar::derive(&rand, &answer.res_star) == HresStar::new(*hxres));
    if !right {
        return Err(failed("the UE's answer is wrong"));
    }
    for n in 1..round_trips {
        far.ask(&[2, n as u8])?;
    }
    let supi: Supi = SUPI.parse().map_err(|_| failed("no SUPI"))?;
    let at_network = timed(&mut cost.network, || KSeaf::new(*k_seaf).k_amf(supi, Abba::RELEASE_15));
    let at_ue = timed(&mut cost.ue, || answer.k_seaf.k_amf(supi, Abba::RELEASE_15));
    if at_ue != at_network {
        return Err(failed("UE and network have different keys"));
    }
    cost.total = begin.elapsed();
    far.spent_since(worked, &mut cost);
    Ok(cost)
}

/// What was measured with the home at one distance.
struct Row {
    rtt_ms: u64,
    sap: Cost,
    standard: Cost,
    roaming: Cost,
    cold_sap: Cost,
    cold_standard: Cost,
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let broker = Broker::start(1)?;
    let (operator, mut sim, mut usim) =
        (operator(), sim(0, broker.epoch), Usim::new(functions(), UsimSqn::default()));
    let (broker, home) = (broker.engine.entrance(), home()?);
    let at_broker = Service::start(broker.clone())?;
    let at_home = Service::start(home.clone())?;
    let mut rows = Vec::new();
    for (rtt_ms, _) in HOMES {
        let rtt = Duration::from_millis(rtt_ms);
        let far = |service: &Service, entrance| {
            let at = forwarder::start(service.server.address, rtt)?;
            Ok::<_, io::Error>(Far { runtime: &runtime, client: service.client()?, at, entrance })
        };
        let (to_broker, to_home) = (far(&at_broker, &broker)?, far(&at_home, &home)?);
        // The connections are warm after this.
        sap(&to_broker, &operator, &mut sim)?;
        standard(&to_home, &mut usim, 2)?;
        let (mut with_sap, mut with_two, mut with_four) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.attaches {
            // In turn, so that what else the machine does meets all alike.
            with_sap.push(sap(&to_broker, &operator, &mut sim)?);
            with_two.push(standard(&to_home, &mut usim, 2)?);
            with_four.push(standard(&to_home, &mut usim, 4)?);
        }
        let (mut cold_sap, mut cold_standard) = (Vec::new(), Vec::new());
        for _ in 0..options.cold {
            cold_sap.push(sap(&Far { client: at_broker.client()?, ..to_broker }, &operator, &mut sim)?);
            cold_standard.push(standard(&Far { client: at_home.client()?, ..to_home }, &mut usim, 2)?);
        }
        rows.push(Row {
            rtt_ms,
            sap: Cost::median(&with_sap),
            standard: Cost::median(&with_two),
            roaming: Cost::median(&with_four),
            cold_sap: Cost::median(&cold_sap),
            cold_standard: Cost::median(&cold_standard),
        });
    }
    show(&rows);
    plot(&rows, plots)?;
    let figures: Vec<Value> = rows.iter().map(json_of).collect();
    finish("attach", &json!({ "attaches": options.attaches, "rows": figures }));
    Ok(())
}

/// How much less, or more, than the baseline.
fn compared(baseline: f64, ours: f64) -> String {
    let less = saved(baseline, ours);
    if less < 0.0 { format!("{:.1} % more", -less) } else { format!("{less:.1} % less") }
}

/// How much less than the baseline, in percent.
fn saved(baseline: f64, ours: f64) -> f64 {
    (1_000.0 * (1.0 - ours / baseline)).round() / 10.0
}

fn show(rows: &[Row]) {
    println!("medians over a warm connection, in ms; the home at a round-trip time of 0, 7 and 70 ms");
    println!(
        "{:<10} {:<20} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "home RTT", "attach", "UE", "network", "home", "disk", "other", "total"
    );
    for row in rows {
        let kinds =
            [("SAP", row.sap), ("standard, 2 trips", row.standard), ("5G roaming, 4 trips", row.roaming)];
        for (name, cost) in kinds {
            let parts = [cost.ue, cost.network, cost.home, cost.disk, cost.other(), cost.total].map(ms);
            print!("{:<10} {name:<20}", format!("{} ms", row.rtt_ms));
            parts.iter().for_each(|v| print!(" {v:>8.3}"));
            println!();
        }
    }
    println!("a new connection (TCP, TLS 1.3) for each attach, totals in ms");
    for row in rows {
        println!(
            "{:<10} SAP {:.3}, standard {:.3}",
            format!("{} ms", row.rtt_ms),
            ms(row.cold_sap.total),
            ms(row.cold_standard.total)
        );
    }
    println!("beside the paper (figure 3.7: Magma, with us-west-1 and us-east-1)");
    for (row, (_, paper)) in rows.iter().zip(HOMES) {
        let (standard, sap) = (ms(row.standard.total), ms(row.sap.total));
        let theirs = paper.map_or("no totals".into(), |(baseline, bricks)| {
            format!("{baseline} -> {bricks} ms, {}", compared(baseline, bricks))
        });
        println!(
            "{:<10} ours {standard} -> {sap} ms, {}; paper {theirs}",
            format!("{} ms", row.rtt_ms),
            compared(standard, sap)
        );
    }
}

fn json_of(row: &Row) -> Value {
    let paper = HOMES.iter().find(|(rtt, _)| *rtt == row.rtt_ms).and_then(|(_, paper)| *paper);
    let processing = row.sap.ue + row.sap.network + row.sap.home;
    json!({
        "home_rtt_ms": row.rtt_ms as f64,
        "sap": row.sap.json(), "standard": row.standard.json(), "roaming_5g": row.roaming.json(),
        "cold_sap_ms": ms(row.cold_sap.total), "cold_standard_ms": ms(row.cold_standard.total),
        "less_percent": saved(ms(row.standard.total), ms(row.sap.total)),
        "sap_processing_ms": ms(processing),
        "paper_ms": paper.map(|(baseline, bricks)| [baseline, bricks]),
    })
}

fn plot(rows: &[Row], plots: &Path) -> io::Result<()> {
    let series = |name: &str, of: fn(&Row) -> Duration| Series {
        name: name.into(),
        points: rows.iter().enumerate().map(|(i, row)| (i as f64, ms(of(row)))).collect(),
    };
    let paper = |name: &str, of: fn((f64, f64)) -> f64| Series {
        name: name.into(),
        points: HOMES.iter().enumerate().filter_map(|(i, (_, p))| Some((i as f64, of((*p)?)))).collect(),
    };
    let plot = Plot {
        title: "Attach with the home near and far (CellBricks, figure 3.7)",
        x: "round-trip time to the home",
        y: "ms",
        log_y: false,
        axis: Axis::Names(rows.iter().map(|row| format!("{} ms", row.rtt_ms)).collect()),
        series: vec![
            series("SAP", |r| r.sap.total),
            series("standard, 2 trips", |r| r.standard.total),
            series("5G roaming, 4 trips", |r| r.roaming.total),
            paper("paper: CellBricks", |(_, bricks)| bricks),
            paper("paper: baseline", |(baseline, _)| baseline),
        ],
    };
    plot.write(plots, "bricks-attach")
}
