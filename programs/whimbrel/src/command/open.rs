//! `whimbrel open`: keys and SAP certificates in files.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use whimbrel_broker_client::ledger::{CheckedStatement, LedgerFile};
use whimbrel_broker_client::{files, hex, now, random, statement};
use whimbrel_broker_common::certificate::{Certificate, Subject, Validity};
use whimbrel_broker_common::crypto::VerifyingKey;
use whimbrel_broker_common::id::{Domain, OperatorId};
use whimbrel_cli::{Done, print, print_json};
use whimbrel_node::clock::rfc3339;
use whimbrel_node::config;

#[derive(Subcommand)]
pub(crate) enum OpenCommand {
    /// Make a private key in a new file and print its public key: of an operator, a broker or an authority.
    Key {
        /// The file, readable by its owner only.
        file: PathBuf,
    },
    /// As an authority: certify that a public key belongs to an operator or a broker.
    Certify(Box<Certify>),
    /// As an operator: check a broker's statement, line by line, against the usage reports that this core has sent.
    VerifyStatement {
        /// The broker's file.
        file: PathBuf,
        /// Configuration of the core; without it, whimbrel.yaml here or in /etc/whimbrel.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print the answer as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show what a SAP certificate says.
    Show {
        /// File of the certificate.
        file: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct Certify {
    /// The authority's private key, made by `whimbrel open key`.
    #[arg(long, value_name = "FILE")]
    authority: PathBuf,
    /// The public key to certify, 64 hexadecimal digits.
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    public_key: VerifyingKey,
    /// The operator whose key it is: PLMN, or PLMN and NID, such as 999/70 or 999/70:0000000001f.
    #[arg(long, value_name = "PLMN[:NID]", required_unless_present = "broker", conflicts_with = "broker")]
    operator: Option<OperatorId>,
    /// The broker whose key it is, by its domain.
    #[arg(long, value_name = "DOMAIN")]
    broker: Option<Domain>,
    /// How long the certificate is valid.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=825))]
    days: u16,
    /// By this number the certificate can be revoked; without it, a random one.
    #[arg(long, value_name = "N")]
    serial: Option<u64>,
    /// The certificate's file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

fn public_key(text: &str) -> Result<VerifyingKey, String> {
    files::public_key(text).ok_or_else(|| "a public key has 64 hexadecimal digits".into())
}

pub(crate) fn run(command: OpenCommand) -> Done {
    match command {
        OpenCommand::Key { file } => {
            let key = files::make_key(&file)?;
            print(&format!("public key {}\n", hex(&key.verifying_key().octets())))
        }
        OpenCommand::Certify(options) => certify(*options),
        OpenCommand::VerifyStatement { file, config, json } => {
            verify_statement(&file, config.as_deref(), json)
        }
        OpenCommand::Show { file } => print(&describe(&files::read_certificate(&file)?)),
    }
}

fn certify(options: Certify) -> Done {
    let authority = files::read_key(&options.authority)?;
    let subject = match (options.operator, options.broker) {
        (Some(id), _) => Subject::Operator(id),
        (None, Some(domain)) => Subject::Broker(domain),
        (None, None) => return Err("name the subject with --operator or --broker".into()),
    };
    let serial = options.serial.map_or_else(|| random().map(u64::from_be_bytes), Ok)?;
    // An hour back, for parties whose clocks are behind.
    let from = now().as_secs().saturating_sub(3_600);
    let until = now().as_secs() + u64::from(options.days) * 86_400;
    let validity = Validity { from, until };
    let certificate = Certificate::issue(&authority, subject, options.public_key, validity, serial);
    files::write_public(&options.out, &files::certificate_text(&certificate))?;
    print(&format!("{}written to {}\n", describe(&certificate), options.out.display()))
}

fn verify_statement(file: &Path, config: Option<&Path>, json: bool) -> Done {
    let (config, _) = config::load(config).map_err(|e| e.to_string())?;
    let open = config
        .open
        .as_ref()
        .ok_or("the configuration has no section `open`: this operator has no brokers")?;
    let (certificate, statement) = statement::read(file)?;
    let broker = open.operator.trust.broker(&certificate, now());
    let broker = broker.map_err(|e| format!("the statement's certificate is not believed: {e}"))?;
    if *broker != statement.broker {
        return Err(format!("the statement is of {}, and the certificate of {broker}", statement.broker));
    }
    if statement.operator != open.operator.id() {
        return Err(format!("the statement is for operator {}, not for this one", statement.operator));
    }
    statement.verify(&certificate.key).map_err(|e| e.to_string())?;
    let ledger = LedgerFile::open(&config.open_ledger())?;
    let CheckedStatement { lines, totals, missing } = ledger.check(&statement)?;
    if json {
        return print_json(&serde_json::json!({
            "broker": broker.to_string(), "receipts": lines, "missing": missing,
            "claimed_ul_octets": totals.claimed.0, "claimed_dl_octets": totals.claimed.1,
            "paid_ul_octets": totals.paid.0, "paid_dl_octets": totals.paid.1, "micros": totals.micros,
        }));
    }
    let later = match missing {
        0 => String::new(),
        n => format!("; {n} later receipts of this broker are not in it"),
    };
    print(&format!(
        "the statement of {broker} is right: {lines} receipts, each for a report of this operator\n\
         octets claimed {} uplink, {} downlink; paid {} and {}; due {} millionths{later}\n",
        totals.claimed.0, totals.claimed.1, totals.paid.0, totals.paid.1, totals.micros
    ))
}

/// The fields of a certificate, one a line.
fn describe(certificate: &Certificate) -> String {
    let subject = match &certificate.subject {
        Subject::Operator(id) => format!("operator {id}"),
        Subject::Broker(domain) => format!("broker {domain}"),
    };
    let date = |secs: u64| rfc3339(whimbrel_ids::Instant(secs.saturating_mul(1_000_000)));
    let (from, until) = (date(certificate.validity.from), date(certificate.validity.until));
    let (key, serial) = (hex(&certificate.key.octets()), certificate.serial);
    format!("subject     {subject}\npublic key  {key}\nvalid       {from} to {until}\nserial      {serial}\n")
}
