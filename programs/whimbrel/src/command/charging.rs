//! `whimbrel charging …`: accounts, credit and charging records of the core's own charging function.

use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::Running;
use whimbrel_charging::Account;
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_node::client::{Client, path_part};

/// Accounts or records of one request.
const PAGE: u64 = 500;

#[derive(Subcommand)]
pub(crate) enum ChargingCommand {
    /// List accounts, or show one with its open sessions.
    Accounts {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: Option<String>,
        #[command(flatten)]
        at: Running,
    },
    /// Make an account, or change its kind and status.
    Put(AccountOptions),
    /// Remove an account. The charging of its sessions is aborted.
    Remove {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: String,
        #[command(flatten)]
        at: Running,
    },
    /// Add octets to the credit of an account.
    Credit {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: String,
        /// Octets; fewer than zero take back what is left.
        #[arg(allow_negative_numbers = true)]
        octets: i64,
        /// Number of the payment or voucher: the same one again changes nothing.
        #[arg(long)]
        reference: Option<String>,
        #[command(flatten)]
        at: Running,
    },
    /// Print charging records, oldest first.
    Records {
        /// Only those of this subscriber.
        #[arg(long)]
        supi: Option<String>,
        /// Only records with greater numbers.
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Those of all homes that share PostgreSQL, with the name of each one's home; their numbers are of their arrival there.
        #[arg(long)]
        all_homes: bool,
        /// Print the records as CSV.
        #[arg(long, conflicts_with = "json")]
        csv: bool,
        #[command(flatten)]
        at: Running,
    },
}

#[derive(Args)]
pub(crate) struct AccountOptions {
    /// SUPI, imsi-999700000000001 or its digits.
    supi: String,
    /// How the subscriber pays.
    #[arg(long, value_enum)]
    kind: KindOption,
    /// No quota is granted.
    #[arg(long)]
    barred: bool,
    #[command(flatten)]
    at: Running,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindOption {
    /// From a credit in octets.
    Prepaid,
    /// Without a limit.
    Postpaid,
}

#[derive(Deserialize)]
struct AccountPage {
    accounts: Vec<Account>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct RecordPage {
    records: Vec<Value>,
    next: Option<u64>,
}

fn path_of(supi: &str) -> String {
    format!("/api/v1/charging/accounts/{}", path_part(supi))
}

pub(crate) fn run(command: ChargingCommand) -> Done {
    match command {
        ChargingCommand::Accounts { supi: None, at } => list(&at.client()?, at.json),
        ChargingCommand::Accounts { supi: Some(supi), at } => show(&at.client()?, &supi, at.json),
        ChargingCommand::Put(options) => put(&options),
        ChargingCommand::Remove { supi, at } => {
            let _: Value = at.client()?.send("DELETE", &path_of(&supi), None)?;
            print(&format!("The account of {supi} was removed.\n"))
        }
        ChargingCommand::Credit { supi, octets, reference, at } => {
            let body = json!({ "octets": octets, "reference": reference });
            let path = format!("{}/credit", path_of(&supi));
            changed(at.client()?.send("POST", &path, Some(&body))?, at.json)
        }
        ChargingCommand::Records { supi, after, all_homes, csv, at } => {
            let of = RecordSelection { supi: supi.as_deref(), all_homes };
            match csv {
                true => print_csv(&at.client()?, of, after),
                false => records(&at.client()?, of, after, at.json),
            }
        }
    }
}

fn put(options: &AccountOptions) -> Done {
    let kind = match options.kind {
        KindOption::Prepaid => "prepaid",
        KindOption::Postpaid => "postpaid",
    };
    let status = if options.barred { "barred" } else { "active" };
    let body = json!({ "kind": kind, "status": status });
    changed(options.at.client()?.send("PUT", &path_of(&options.supi), Some(&body))?, options.at.json)
}

/// Prints the account that a change has made.
fn changed(account: Account, json: bool) -> Done {
    match json {
        true => print_json(&json!(account)),
        false => print(&table(&HEADINGS, &[row(&account)])),
    }
}

const HEADINGS: [&str; 8] =
    ["SUPI", "KIND", "STATUS", "BALANCE", "RESERVED", "USED", "OVERDRAFT", "POSTPAID"];

fn row(account: &Account) -> Vec<String> {
    let word = |value: Value| value.as_str().unwrap_or_default().to_owned();
    vec![
        account.supi.to_string(),
        word(json!(account.kind)),
        word(json!(account.status)),
        account.balance_octets.to_string(),
        account.reserved_octets.to_string(),
        account.used_octets.to_string(),
        account.overdraft_octets.to_string(),
        account.postpaid_octets.to_string(),
    ]
}

/// Lists the accounts, one a line; octets.
fn list(client: &Client, json: bool) -> Done {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let from = after.take().map(|s: String| format!("&after={}", path_part(&s))).unwrap_or_default();
        let page: AccountPage = client.get(&format!("/api/v1/charging/accounts?limit={PAGE}{from}"))?;
        for account in &page.accounts {
            if json {
                print(&(serde_json::to_string(account).unwrap_or_default() + "\n"))?;
            }
            rows.push(row(account));
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    match (json, rows.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => print("There is no account.\n"),
        (false, false) => print(&table(&HEADINGS, &rows)),
    }
}

fn show(client: &Client, supi: &str, json: bool) -> Done {
    let view: Value = client.get(&path_of(supi))?;
    if json {
        return print_json(&view);
    }
    let account: Account =
        serde_json::from_value(view["account"].clone()).map_err(|e| format!("the core's answer: {e}"))?;
    print(&table(&HEADINGS, &[row(&account)]))?;
    let rows: Vec<Vec<String>> = view["sessions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|session| {
            let total = |name: &str| -> u64 {
                let groups = session["rating_groups"].as_array().into_iter().flatten();
                groups.filter_map(|group| group[name].as_u64()).sum()
            };
            vec![
                text(&session["pdu_session_id"]),
                text(&session["dnn"]),
                text(&session["start"]),
                text(&session["reserved_octets"]),
                total("uplink_octets").to_string(),
                total("downlink_octets").to_string(),
            ]
        })
        .collect();
    match rows.is_empty() {
        true => print("No session is open.\n"),
        false => print(&table(&["SESSION", "DNN", "START", "RESERVED", "UPLINK", "DOWNLINK"], &rows)),
    }
}

/// A member as a cell.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The records to print.
#[derive(Clone, Copy)]
struct RecordSelection<'a> {
    supi: Option<&'a str>,
    all_homes: bool,
}

fn query(of: RecordSelection<'_>, after: u64) -> String {
    let supi = of.supi.map(|supi| format!("&supi={}", path_part(supi))).unwrap_or_default();
    let homes = if of.all_homes { "&homes=all" } else { "" };
    format!("limit={PAGE}&after={after}{supi}{homes}")
}

/// Prints records, one a line.
fn records(client: &Client, of: RecordSelection<'_>, mut after: u64, json: bool) -> Done {
    let mut rows = Vec::new();
    loop {
        let page: RecordPage = client.get(&format!("/api/v1/charging/records?{}", query(of, after)))?;
        for record in &page.records {
            if json {
                print(&format!("{record}\n"))?;
            }
            let columns =
                ["number", "supi", "dnn", "start", "end", "uplink_octets", "downlink_octets", "cause"];
            let home = of.all_homes.then(|| text(&record["home"]));
            rows.push(columns.map(|name| text(&record[name])).into_iter().chain(home).collect());
        }
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    match (json, rows.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => print("There is no record.\n"),
        (false, false) => {
            let headings = ["NUMBER", "SUPI", "DNN", "START", "END", "UPLINK", "DOWNLINK", "CAUSE", "HOME"];
            let columns = headings.len() - usize::from(!of.all_homes);
            print(&table(&headings[..columns], &rows))
        }
    }
}

/// Prints records as CSV, with one heading.
fn print_csv(client: &Client, of: RecordSelection<'_>, mut after: u64) -> Done {
    for page in 0.. {
        let mut octets = Vec::new();
        client.copy(&format!("/api/v1/charging/records.csv?{}", query(of, after)), &mut octets)?;
        let text = String::from_utf8_lossy(&octets);
        let (heading, lines) = text.split_once("\r\n").unwrap_or((&text, ""));
        if page == 0 {
            print(&format!("{heading}\r\n"))?;
        }
        print(lines)?;
        // Each line begins with the number of its record.
        let last = lines.lines().last().and_then(|line| line.split(',').next()?.parse().ok());
        match last {
            Some(last) if lines.lines().count() as u64 >= PAGE => after = last,
            Some(_) | None => break,
        }
    }
    Ok(())
}
