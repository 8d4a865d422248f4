//! Both parties measure: the statements of honest operators balance, and one that begins to overstate is shunned.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_cli::{print, table};
use whimbrel_ran::scenario::Step;

use super::{at_operator, steps};
use crate::playground::NAME;
use crate::playground::open::{BROKERS, OPERATORS, OpenPlayground};

/// What the lying operator adds to what it has measured, in per cent.
const OVERSTATED_PERCENT: u32 = 25;
/// Report cycles within which it is to be shunned.
const CYCLES_MAX: usize = 3;
/// Below this the brokers of the demonstration refuse an operator (`policy.reputation_floor`).
const FLOOR: u64 = 15;
/// Sessions of a broker's users at an operator without which no operator is made to overstate.
const SESSIONS_MIN: u64 = 30;
/// How long the last reports may take to be settled.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// The operator that begins to overstate.
const OVERSTATING: usize = OPERATORS - 1;

/// Shows the statements of all honest rounds, then has one operator overstate. Gives the figures. Errors: what does not hold.
pub(super) fn run(playground: &mut OpenPlayground, sessions: u64) -> Result<Value, String> {
    let honest = settle(playground, sessions)?;
    if sessions < SESSIONS_MIN * (OPERATORS * BROKERS) as u64 {
        print("so few users cannot tell a lying operator from lying users: let more of them load pages\n")?;
        return Ok(json!({"sessions": sessions, "octets": honest}));
    }
    print(&format!(
        "operator {} begins to claim {OVERSTATED_PERCENT} % more than it measures; before, its reputation is {}\n",
        playground.operators[OVERSTATING].id,
        shown(playground)?
    ))?;
    playground.overstate(OVERSTATING, OVERSTATED_PERCENT)?;
    let mut cycles = 0;
    while !is_shunned(playground)? && cycles < CYCLES_MAX {
        let ues = playground.ues_of_round(OVERSTATING, cycles, super::ROUNDS + cycles);
        let begin = Instant::now();
        let report = at_operator(&playground.operators[OVERSTATING], ues, 100 + cycles as u64, picture())?;
        cycles += 1;
        // Nothing is settled before the reports of the last UEs have come.
        let until = Instant::now() + SETTLED_WITHIN;
        while !is_shunned(playground)? && Instant::now() < until && begin.elapsed() < 2 * SETTLED_WITHIN / 5 {
            std::thread::sleep(Duration::from_millis(100));
        }
        print(&format!(
            "after report cycle {cycles} with {} UEs its reputation is {}\n",
            report.completed + report.failed,
            shown(playground)?
        ))?;
    }
    if !is_shunned(playground)? {
        return Err(format!("the lying operator is not shunned after {cycles} report cycles"));
    }
    let ues = playground.ues_of_round(OVERSTATING, 0, super::ROUNDS + CYCLES_MAX);
    let count = ues.len() as u64;
    let refused = at_operator(&playground.operators[OVERSTATING], ues, 200, picture())?;
    if refused.completed > 0 || refused.failed != count {
        return Err(format!("{} UEs were still granted at the lying operator", refused.completed));
    }
    let others = playground.ues_of_round(0, 0, super::ROUNDS + CYCLES_MAX + 1);
    let elsewhere = at_operator(&playground.operators[0], others, 201, picture())?;
    if elsewhere.failed > 0 {
        return Err(format!("{} UEs failed at an honest operator", elsewhere.failed));
    }
    print(&format!(
        "both brokers shun it: {count} of {count} UEs are refused there, and {} are served at an honest operator\n",
        elsewhere.completed
    ))?;
    Ok(
        json!({"sessions": sessions, "octets": honest, "overstated_percent": OVERSTATED_PERCENT, "shunned_after_cycles": cycles}),
    )
}

/// Registers, loads a picture over a session and leaves.
fn picture() -> Vec<Step> {
    steps(format!("http://{NAME}/picture"))
}

fn reputations(playground: &OpenPlayground) -> Result<Vec<Option<u64>>, String> {
    (0..BROKERS).map(|broker| playground.reputation(broker, OVERSTATING)).collect()
}

fn is_shunned(playground: &OpenPlayground) -> Result<bool, String> {
    Ok(reputations(playground)?.iter().all(|r| r.is_some_and(|r| r < FLOOR)))
}

fn shown(playground: &OpenPlayground) -> Result<String, String> {
    let all = reputations(playground)?;
    Ok(all.iter().map(|r| r.map_or("unknown".into(), |r| r.to_string())).collect::<Vec<_>>().join(" and "))
}

/// Waits until every session is settled, and compares the statements of all brokers for all operators with what the operators have
/// measured and the users confirm. Gives the octets.
fn settle(playground: &OpenPlayground, sessions: u64) -> Result<u64, String> {
    let until = Instant::now() + SETTLED_WITHIN;
    loop {
        let (rows, octets, missing) = statements(playground, sessions)?;
        if missing.is_none() {
            print(&table(
                &["broker", "operator", "receipts", "octets claimed", "octets paid", "millionths"],
                &rows,
            ))?;
            print(
                "each operator has checked each statement line by line: octets measured, confirmed and paid are the same\n",
            )?;
            return Ok(octets);
        }
        if Instant::now() > until {
            let why = missing.unwrap_or_default();
            return Err(format!("the statements do not balance: {why}\n{}", table(&[""; 6], &rows)));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

type Statements = (Vec<Vec<String>>, u64, Option<String>);

/// The statements as rows, their octets, and why they do not balance yet.
fn statements(playground: &OpenPlayground, sessions: u64) -> Result<Statements, String> {
    let (mut rows, mut octets, mut missing, mut receipts) = (Vec::new(), 0, None, 0);
    for broker in 0..BROKERS {
        for operator in 0..OPERATORS {
            let (made, checked, is_whole) = playground.statement(broker, operator)?;
            let id = &playground.operators[operator].id;
            if made != checked {
                return Err(format!("operator {id} does not find what the broker states"));
            }
            let claimed = made.claimed.0 + made.claimed.1;
            let paid = made.paid.0 + made.paid.1;
            if claimed != paid {
                missing = Some(format!("operator {id} claims {claimed} octets and is paid for {paid}"));
            }
            if !is_whole {
                missing = Some(format!("operator {id} has got further receipts since"));
            }
            receipts += made.receipts;
            octets += paid;
            rows.push(vec![
                format!("broker{}", broker + 1),
                id.to_string(),
                made.receipts.to_string(),
                claimed.to_string(),
                paid.to_string(),
                made.micros.to_string(),
            ]);
        }
    }
    if receipts < sessions {
        missing.get_or_insert(format!("{receipts} receipts for {sessions} sessions"));
    }
    Ok((rows, octets, missing))
}
