//! `whimbrel-broker agency`: keys, orders and their answers, of an agency that has sessions of veiled users intercepted or located (docs/veil.md).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use whimbrel_broker_client::{files, hex, now, random, unhex};
use whimbrel_cli::{Done, print};
use whimbrel_open::crypto::PrivateKey;
use whimbrel_open::msg::Validity;
use whimbrel_privacy::crypto::SigningKey;
use whimbrel_privacy::msg::{Finding, Order, OrderAnswer, OrderKind};
use whimbrel_privacy::token::TokenHash;

#[derive(Subcommand)]
pub(crate) enum AgencyCommand {
    /// Make a private key in a new file, and print what operators and brokers configure.
    Key {
        /// The file, readable by its owner only.
        file: PathBuf,
    },
    /// Sign an order, and print it for `whimbrel-broker veil order add`.
    Order(OrderOptions),
    /// Open the answer to an order, as `whimbrel-broker veil order list` shows it.
    Open {
        /// The answer, hexadecimal digits.
        answer: String,
        /// The agency's private key.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct OrderOptions {
    /// The agency's private key.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The session, as `whimbrel-broker veil sessions` shows it.
    #[arg(long, value_name = "DIGITS", value_parser = octets)]
    session: [u8; 32],
    /// Its group, as shown there.
    #[arg(long, value_name = "DIGITS", value_parser = octets)]
    group: [u8; 32],
    /// Locate the UE instead of intercepting the session.
    #[arg(long)]
    locate: bool,
    /// How long the order holds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=44_640))]
    minutes: u32,
}

fn octets(text: &str) -> Result<[u8; 32], String> {
    unhex(text.trim()).and_then(|o| o.try_into().ok()).ok_or_else(|| "64 hexadecimal digits".into())
}

pub(crate) fn run(command: AgencyCommand) -> Done {
    match command {
        AgencyCommand::Key { file } => {
            files::make_key(&file)?;
            let secret = files::read_secret(&file)?;
            let (signing, private) = (SigningKey::new(&secret), private_of(&secret));
            print(&format!(
                "key         {}\nsealed_to   {}\n",
                hex(&signing.verifying_key().octets()),
                hex(&private.share().0)
            ))
        }
        AgencyCommand::Order(options) => {
            let signing = SigningKey::new(&*files::read_secret(&options.key)?);
            let kind = if options.locate { OrderKind::Locate } else { OrderKind::Intercept };
            let from = now().as_secs();
            let validity = Validity { from, until: from + u64::from(options.minutes) * 60 };
            let of = (options.session, TokenHash(options.group));
            let order = Order::signed(kind, of, validity, random()?, &signing);
            print(&format!("{}\n", hex(&order.to_octets())))
        }
        AgencyCommand::Open { answer, key } => {
            let octets = unhex(answer.trim()).ok_or("an answer has hexadecimal digits")?;
            let answer = OrderAnswer::parse(&octets).map_err(|e| format!("this is not an answer: {e}"))?;
            let finding = answer.open(&private_of(&*files::read_secret(&key)?));
            print(&describe(&finding.ok_or("it was not sealed to this key")?))
        }
    }
}

/// The key for answers is drawn from that of orders, so that an agency has one file.
fn private_of(secret: &[u8; 32]) -> PrivateKey {
    PrivateKey::new(whimbrel_privacy::crypto::hash(&[b"VEIL-v1 agency\0", secret]))
}

fn describe(finding: &Finding) -> String {
    match finding {
        Finding::NotHere => "the session is not there any more\n".into(),
        Finding::Intercepted => "the session is intercepted\n".into(),
        Finding::Place(place) => {
            let (tai, cell) = place.split_at(6);
            let (plmn, tac) = tai.split_at(3);
            format!("PLMN {}, TAC {}, NR CGI {}\n", hex(plmn), hex(tac), hex(cell))
        }
    }
}
