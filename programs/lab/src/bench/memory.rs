//! `bench memory`: the core's memory per registered UE with one session.

use clap::Args;
use serde_json::json;
use whimbrel_cli::{Done, print};
use whimbrel_ran::edge::{self, Watch};
use whimbrel_ran::scenario::{ArrivalPattern, Step};

use super::attach::pools;
use super::{processors, resident, runner, scenario, session, stay_on};
use crate::playground::{Playground, SuciScheme, Wish};

#[derive(Args)]
pub(crate) struct Options {
    /// Number of UEs.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..=500_000))]
    ues: u32,
    /// Arrivals per second.
    #[arg(long, default_value_t = 3000)]
    rate: u32,
}

pub(crate) fn run(options: &Options) -> Done {
    let (core_cpu, own_cpu) = processors();
    stay_on(own_cpu);
    let wish = Wish {
        ues: options.ues,
        gnbs: 4,
        configuration: pools(),
        capture: None,
        core_cpu,
        suci: SuciScheme::Null,
        slices: vec![whimbrel_ids::SNssai::sst(1)],
        unit: false,
        added_ues: 0,
        data_limit: None,
        keeps_ues: false,
        cpfs: Vec::new(),
    };
    print(&format!("{} UEs register, open a session each and go idle\n", options.ues))?;
    let playground = Playground::start(&wish)?;
    let before = resident(playground.core_pid());
    let steps = vec![Step::Register, session(), Step::Idle];
    let config =
        runner(&playground, scenario(options.ues, 4, ArrivalPattern::Rate(options.rate.into()), steps));
    let mut shown = Shown(0);
    let reports =
        edge::run(&config, &mut shown).map_err(|e| format!("{e}\nlog of the core: {}", playground.log()))?;
    let after = resident(playground.core_pid());
    let report = reports.first().ok_or("no UE arrived")?;
    let octets = after.saturating_sub(before) / report.completed.max(1);
    print(&format!(
        "resident: {} MiB before, {} MiB after: {octets} octets a UE, its session in SMF and UPF included\n",
        before >> 20,
        after >> 20
    ))?;
    let figures = json!({"ues": report.completed, "failed": report.failed, "octets_per_ue": octets,
        "resident_before": before, "resident_after": after});
    print(&format!("{}\n", json!({"bench": "memory", "figures": figures})))?;
    if report.is_clean() { Ok(()) } else { Err(format!("{} UEs failed", report.failed)) }
}

/// A line every ten thousand UEs.
struct Shown(u64);

impl Watch for Shown {
    fn progress(&mut self, completed: u64, failed: u64, _: u64) {
        if completed / 10_000 > self.0 {
            self.0 = completed / 10_000;
            eprintln!("{completed} UEs, {failed} failed");
        }
    }
}
