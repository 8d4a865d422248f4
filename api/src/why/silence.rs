//! Answers about UEs and gNBs of which no message has arrived: what may keep them from reaching the core.

use super::super::HandlerContext;
use super::{WhyAnswer, now};
use whimbrel_node::local_time::when;
use whimbrel_node::observation::{Component, Condition, Metric};

fn answer(sentence: String) -> WhyAnswer {
    WhyAnswer { sentence, ..WhyAnswer::default() }
}

/// About a UE.
pub(super) fn of_ue(shared: &HandlerContext, name: &str) -> WhyAnswer {
    answer(format!("{}; fix: {}.", silence(shared, name), obstacle(shared)))
}

/// About a subscriber that is missing or barred.
pub(super) fn of_barred(shared: &HandlerContext, name: &str, what: &str, fix: &str) -> WhyAnswer {
    answer(format!("{name} {what}, and {}; fix: {fix}.", silence(shared, "it")))
}

/// About a gNB.
pub(super) fn of_gnb(shared: &HandlerContext, name: &str) -> WhyAnswer {
    let fix = down(shared).unwrap_or_else(|| point(shared));
    answer(format!("{}; fix: {fix}.", silence(shared, name)))
}

/// About an address.
pub(super) fn of_address(shared: &HandlerContext, address: &str) -> WhyAnswer {
    let fix = "ask for the SUPI or the gNB's identity; `whimbrel ue list` and `whimbrel gnb list` show the addresses in use";
    answer(format!(
        "no UE has a session with the address {address}, and {}; fix: {fix}.",
        silence(shared, "a gNB there")
    ))
}

/// About a 5G-TMSI that no UE has.
pub(super) fn of_tmsi(tmsi: &str) -> WhyAnswer {
    answer(format!(
        "no UE has the 5G-TMSI {tmsi} now: the core assigns a new one at each registration; fix: ask for the SUPI, which `whimbrel ue list` shows."
    ))
}

/// That no message of it is in the history.
fn silence(shared: &HandlerContext, name: &str) -> String {
    if shared.console.histories(|h| h.is_incomplete()) {
        return format!("the history has nothing about {name}; older events were deleted to make room");
    }
    let started = when(shared.console.started, now());
    format!("no message from {name} has arrived since the core started at {started}")
}

/// What may keep a UE from reaching the core, as an order to remove it.
fn obstacle(shared: &HandlerContext) -> String {
    if let Some(down) = down(shared) {
        return down;
    }
    match shared.console.metrics.value(Metric::Gnbs) {
        0 => format!("no gNB is up: {}", point(shared)),
        n => format!(
            "check that the UE sees the cell, that its SIM belongs to PLMN {}, and that airplane mode is off ({n} gNB{} up)",
            shared.config.amf.plmn,
            if n == 1 { " is" } else { "s are" }
        ),
    }
}

/// A part of the core that is down.
fn down(shared: &HandlerContext) -> Option<String> {
    let is_down = |c: &&Component| c.condition == Condition::Down;
    let down: Vec<String> =
        shared.console.components(|c| c.all().filter(is_down).map(|c| c.detail.clone()).collect());
    let all = down.join("; ");
    (!down.is_empty()).then(|| format!("a part of the core is down: {}", all.trim_end_matches('.')))
}

/// How a gNB finds the core.
fn point(shared: &HandlerContext) -> String {
    let addresses: Vec<String> = shared.config.n2.addresses.iter().map(ToString::to_string).collect();
    let (port, plmn) = (shared.config.n2.port, shared.config.amf.plmn);
    format!("point the gNB at {} port {port} for N2, with PLMN {plmn}", addresses.join(" or "))
}
