//! Answers about UEs and gNBs without any event: what may keep them from reaching the core.

use super::super::Shared;
use super::{WhyAnswer, now};
use crate::console::{Component, Condition, Gauge};
use crate::local_time::when;

fn answer(sentence: String) -> WhyAnswer {
    WhyAnswer { sentence, ..WhyAnswer::default() }
}

/// Of a UE.
pub(super) fn of_ue(shared: &Shared, who: &str) -> WhyAnswer {
    answer(format!("{}; fix: {}.", heard(shared, who), way(shared)))
}

/// Of a subscriber that the store does not let register.
pub(super) fn of_barred(shared: &Shared, who: &str, what: &str, fix: &str) -> WhyAnswer {
    answer(format!("{who} {what}, and {}; fix: {fix}.", heard(shared, "it")))
}

/// Of a gNB.
pub(super) fn of_gnb(shared: &Shared, who: &str) -> WhyAnswer {
    let fix = down(shared).unwrap_or_else(|| point(shared));
    answer(format!("{}; fix: {fix}.", heard(shared, who)))
}

/// Of an address.
pub(super) fn of_address(shared: &Shared, who: &str) -> WhyAnswer {
    let fix = "ask for the SUPI or the gNB's identity; `whimbrel ue list` and `whimbrel gnb list` show the addresses in use";
    answer(format!(
        "no UE has a session with the address {who}, and {}; fix: {fix}.",
        heard(shared, "no gNB there")
    ))
}

/// Of a 5G-TMSI that no UE has.
pub(super) fn of_tmsi(tmsi: &str) -> WhyAnswer {
    answer(format!(
        "no UE has the 5G-TMSI {tmsi} now: the core gives a new one with each registration; fix: ask for the SUPI, which `whimbrel ue list` shows."
    ))
}

fn heard(shared: &Shared, who: &str) -> String {
    let (started, now) = (shared.console.started, now());
    if shared.console.histories(|h| h.is_incomplete()) {
        return format!("nothing is remembered of {who}: only what happened last is kept");
    }
    match who.strip_prefix("no ") {
        Some(who) => format!("no {who} was heard since the core started at {}", when(started, now)),
        None => format!("nothing was heard from {who} since the core started at {}", when(started, now)),
    }
}

/// What is in the way of a UE, as an order to remove it.
fn way(shared: &Shared) -> String {
    if let Some(down) = down(shared) {
        return down;
    }
    match shared.console.metrics.gauge(Gauge::Gnbs) {
        0 => format!("no gNB is up: {}", point(shared)),
        n => format!(
            "look whether the UE sees the cell, whether its SIM is one of PLMN {}, and whether airplane mode is off ({n} gNB{} up)",
            shared.config.amf.plmn,
            if n == 1 { " is" } else { "s are" }
        ),
    }
}

/// A part of the core that is down.
fn down(shared: &Shared) -> Option<String> {
    let is_down = |c: &&Component| c.condition == Condition::Down;
    let down: Vec<String> =
        shared.console.components(|c| c.all().filter(is_down).map(|c| c.detail.clone()).collect());
    let all = down.join("; ");
    (!down.is_empty()).then(|| format!("a part of the core is down: {}", all.trim_end_matches('.')))
}

/// How a gNB finds the core.
fn point(shared: &Shared) -> String {
    let addresses: Vec<String> = shared.config.n2.addresses.iter().map(ToString::to_string).collect();
    let (port, plmn) = (shared.config.n2.port, shared.config.amf.plmn);
    format!("point the gNB at {} port {port} for N2, with PLMN {plmn}", addresses.join(" or "))
}
