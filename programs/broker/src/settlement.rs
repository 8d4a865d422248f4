//! `whimbrel-broker statement` and `whimbrel-broker reputation`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use whimbrel_broker_client::{files, now, statement};
use whimbrel_broker_server::storage::{NamedStanding, UsageStorage};
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_open::id::OperatorId;
use whimbrel_open::usage::Statement;

use crate::cli::BrokerFile;

#[derive(Args)]
pub(crate) struct StatementOptions {
    /// PLMN, or PLMN and NID, such as 999/70 or 999/70:0000000001f.
    operator: OperatorId,
    /// Leave out receipts up to this number, which an earlier statement had.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Write the signed statement to this new file, for the operator.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the statement as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: BrokerFile,
}

pub(crate) fn statement(options: StatementOptions) -> Done {
    let StatementOptions { operator, after, out, json, config } = options;
    let (known, mut storage) = config.open()?;
    let lines = storage.receipts(operator, after, Statement::LINES_MAX).map_err(|e| e.to_string())?;
    let count = lines.len();
    let made = Statement::sign(known.domain.clone(), operator, now().as_secs(), lines, &known.signing);
    let made =
        made.ok_or("the sum of the receipts has no room in a statement; name an earlier one with --after")?;
    if let Some(file) = &out {
        let certificate = files::read_certificate(&known.certificate)?;
        files::write_private(file, &statement::text(&certificate, &made))?;
    }
    let last = made.lines.last().map(|l| l.receipt.serial);
    let totals = &made.totals;
    if json {
        return print_json(&json!({
            "broker": known.domain.to_string(), "operator": operator.to_string(), "receipts": count, "last": last,
            "claimed_ul_octets": totals.claimed.0, "claimed_dl_octets": totals.claimed.1,
            "paid_ul_octets": totals.paid.0, "paid_dl_octets": totals.paid.1, "micros": totals.micros,
        }));
    }
    let rows: Vec<Vec<String>> = [("claimed", totals.claimed), ("paid", totals.paid)]
        .map(|(what, (ul, dl))| vec![what.into(), ul.to_string(), dl.to_string()])
        .into();
    print(&table(&["OCTETS", "UPLINK", "DOWNLINK"], &rows))?;
    let last = last.map_or(String::new(), |n| format!(", the last is number {n}"));
    print(&format!("{count} receipts{last}; {} millionths are due to operator {operator}\n", totals.micros))
}

#[derive(Args)]
pub(crate) struct ReputationOptions {
    /// Print JSON, an array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: BrokerFile,
}

pub(crate) fn reputation(options: ReputationOptions) -> Done {
    let standings = options.config.storage()?.standings().map_err(|e| e.to_string())?;
    if options.json {
        let one = |s: &NamedStanding| {
            json!({
                "party": s.party, "kind": kind(s), "reputation": s.reputation, "suspect": s.suspect,
                "reports": s.standing.reports, "mismatches": s.standing.mismatches,
                "mismatch_octets": s.standing.mismatch_octets, "blames": s.standing.blames,
            })
        };
        return print_json(&standings.iter().map(one).collect());
    }
    let row = |s: &NamedStanding| {
        let of = &s.standing;
        vec![
            kind(s).into(),
            s.party.clone(),
            s.reputation.to_string(),
            of.reports.to_string(),
            of.mismatches.to_string(),
            of.blames.to_string(),
            if s.suspect { "gets no grant".into() } else { String::new() },
        ]
    };
    let head = ["KIND", "PARTY", "REPUTATION", "REPORTS", "MISMATCHES", "BLAMES", ""];
    print(&table(&head, &standings.iter().map(row).collect::<Vec<_>>()))
}

fn kind(s: &NamedStanding) -> &'static str {
    if s.is_operator { "operator" } else { "user" }
}
