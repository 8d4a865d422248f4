//! `whimbrel-broker period`: settlement periods of veiled sessions (docs/veil.md), and what a witness signs of them.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use whimbrel_broker_client::files::write_durably;
use whimbrel_broker_client::{files, hex, unhex};
use whimbrel_broker_server::veil::claims::{ClaimsStorage, Paid};
use whimbrel_claims::Slots;
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_node::config::broker::veil_store;
use whimbrel_open::crypto::Signature;
use whimbrel_privacy::crypto::{SigningKey, VerifyingKey};
use whimbrel_privacy::log::Cosignature;
use whimbrel_privacy::msg::{PeriodHead, PeriodWitness};

use crate::cli::BrokerFile;

#[derive(Subcommand)]
pub(crate) enum PeriodCommand {
    /// Close the period: all sessions reported so far are its table. Prints the head, which the witnesses sign.
    Close {
        /// Sessions for which each claim has room: 32, 64, 128, 256, 512 or 1024.
        #[arg(long, value_name = "N", default_value_t = 256)]
        slots: u16,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Keep a witness's signature over the head of a period.
    AddSignature {
        /// Number of the period.
        period: u32,
        /// Key and signature, as `whimbrel-broker period sign` printed them.
        signature: String,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// At a witness: sign the head of the next period. Each period is signed once.
    Sign {
        /// The head, as `whimbrel-broker period close` printed it.
        head: String,
        /// File with the witness's key, made by `whimbrel open key`.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The key under which the broker signs, 64 hexadecimal digits.
        #[arg(long, value_name = "KEY")]
        broker_key: String,
        /// File that has the head that was signed last.
        #[arg(long, value_name = "FILE")]
        last: PathBuf,
    },
    /// List the periods, and what operators were paid for each.
    List {
        /// Print JSON, an array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: BrokerFile,
    },
}

pub(crate) fn run(command: PeriodCommand) -> Done {
    match command {
        PeriodCommand::Close { slots, config } => {
            let slots = Slots::new(slots).ok_or("`--slots` is 32, 64, 128, 256, 512 or 1024")?;
            let (known, mut storage) = open(&config)?;
            let closed = storage.close_period(&known.domain, slots, &known.veil_signing);
            match closed.map_err(|e| e.to_string())? {
                None => Err("no session was reported since the last period".into()),
                Some(head) => print(&format!("{}\n", hex(&head.to_octets()))),
            }
        }
        PeriodCommand::AddSignature { period, signature, config } => {
            let cosignature = cosignature(&signature).ok_or("this is not a witness's key and signature")?;
            let (_, mut storage) = open(&config)?;
            storage.add_cosignature(period, &cosignature).map_err(|e| e.to_string())?;
            print(&format!("period {period} has another signature\n"))
        }
        PeriodCommand::Sign { head, key, broker_key, last } => sign(&head, &key, &broker_key, &last),
        PeriodCommand::List { json, config } => {
            let (_, storage) = open(&config)?;
            let heads = storage.heads().map_err(|e| e.to_string())?;
            let paid = storage.paid().map_err(|e| e.to_string())?;
            if json { list_json(&heads, &paid) } else { list(&heads, &paid) }
        }
    }
}

fn open(config: &BrokerFile) -> Result<(whimbrel_node::config::broker::BrokerStore, ClaimsStorage), String> {
    let (known, _) = config.open()?;
    let storage = ClaimsStorage::open(&veil_store(&known.store)).map_err(|e| e.to_string())?;
    Ok((known, storage))
}

fn cosignature(text: &str) -> Option<Cosignature> {
    let octets = unhex(text.trim())?;
    let (witness, signature) = octets.split_first_chunk::<32>()?;
    let witness = VerifyingKey::from_octets(*witness)?;
    Some(Cosignature { witness, signature: Signature(signature.try_into().ok()?) })
}

/// Octets of a file with the head of a period: the head has some hundred.
const HEAD_OCTETS_MAX: u64 = 64 << 10;

fn sign(head: &str, key: &Path, broker_key: &str, file: &Path) -> Done {
    let read = |text: &str| PeriodHead::parse(&unhex(text.trim())?).ok();
    let head = read(head).ok_or("this is not the head of a period")?;
    let broker_key = unhex(broker_key.trim()).and_then(|octets| octets.try_into().ok());
    let broker_key =
        broker_key.and_then(VerifyingKey::from_octets).ok_or("`--broker-key` is not a public key")?;
    let last = match whimbrel_files::read_text(file, HEAD_OCTETS_MAX) {
        Ok(text) => Some(read(&text).ok_or_else(|| format!("{} holds no head of a period", file.display()))?),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(format!("{} cannot be read: {e}", file.display())),
    };
    let secret = files::read_secret(key)?;
    let signing = SigningKey::new(&secret);
    let mut witness = PeriodWitness::new(head.broker.clone(), broker_key, signing, last);
    let signed = witness.cosign(&head).map_err(|e| e.to_string())?;
    // What is not on disk could be signed again in another form.
    write_durably(file, hex(&head.to_octets()).as_bytes())
        .map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
    print(&format!("{}{}\n", hex(&signed.witness.octets()), hex(&signed.signature.0)))
}

fn list(heads: &[PeriodHead], paid: &[Paid]) -> Done {
    let rows: Vec<Vec<String>> = heads
        .iter()
        .map(|h| vec![h.period.to_string(), h.rows.to_string(), h.slots.to_string(), hex(&h.root)])
        .collect();
    print(&table(&["PERIOD", "SESSIONS", "SLOTS", "ROOT"], &rows))?;
    let rows: Vec<Vec<String>> = paid
        .iter()
        .map(|p| vec![p.period.to_string(), p.operator.clone(), p.claims.to_string(), p.units.to_string()])
        .collect();
    print(&table(&["PERIOD", "OPERATOR", "CLAIMS", "MB PAID"], &rows))
}

fn list_json(heads: &[PeriodHead], paid: &[Paid]) -> Done {
    let heads = heads.iter().map(|h| {
        let of = paid.iter().filter(|p| p.period == h.period);
        let paid = of.map(|p| json!({ "operator": p.operator, "claims": p.claims, "units": p.units }));
        json!({
            "period": h.period, "sessions": h.rows, "slots": h.slots, "root": hex(&h.root),
            "paid": paid.collect::<Vec<_>>(),
        })
    });
    print_json(&heads.collect())
}
