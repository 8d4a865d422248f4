//! `whimbrel-broker veil`: veiled users, the epochs of their tokens with the witnesses' signatures, their sessions, and orders of agencies. The
//! commands write to the same database as a running broker, which takes changes up within 250 ms.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use whimbrel_broker_client::{files, hex, now, random, unhex};
use whimbrel_broker_server::storage::UsimKeys;
use whimbrel_broker_server::veil::profile::VeilSimProfile;
use whimbrel_broker_server::veil::storage::{NamedHomeUser, NamedUser, VeilStorage};
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_ids::{PlmnId, Supi};
use whimbrel_node::config::broker as config;
use whimbrel_open::id::UserId;
use whimbrel_open::msg::{EpochKey, Validity};
use whimbrel_privacy::broker::{CLASSES_MAX, Counters, HomeUser, User};
use whimbrel_privacy::crypto::{SigningKey, VerifyingKey};
use whimbrel_privacy::log::{Cosignature, LogStatement};
use whimbrel_privacy::msg::Order;
use whimbrel_privacy::user::UserSim;
use whimbrel_security::Sqn;
use zeroize::Zeroizing;

use crate::cli::{BrokerFile, date};
use crate::user::{Usim, check_name};

#[derive(Subcommand)]
pub(crate) enum VeilCommand {
    /// Veiled users, and users of ordinary UEs that operators do not know.
    User {
        #[command(subcommand)]
        command: VeilUserCommand,
    },
    /// Epochs of tokens: issuing keys in the log that witnesses sign.
    Epoch {
        #[command(subcommand)]
        command: VeilEpochCommand,
    },
    /// Signatures of witnesses over the log of issuing keys.
    Witness {
        #[command(subcommand)]
        command: WitnessCommand,
    },
    /// Keys to which veiled users seal their identities.
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// List the latest sessions of a user, as an agency names them in orders.
    Sessions {
        /// The user's name.
        name: String,
        /// Number of sessions to list.
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: u32,
        /// Print JSON, an array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Orders of agencies, which operators carry out.
    Order {
        #[command(subcommand)]
        command: OrderCommand,
    },
    /// What each user is billed for.
    Bill {
        /// Print JSON, an array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: BrokerFile,
    },
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value, read once")]
pub(crate) enum VeilUserCommand {
    /// Add a user and write the profile of its SIM; or one with a USIM, by --imsi and its keys.
    Add {
        /// Name by which this broker knows the user.
        name: String,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        usim: Usim,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// List all users.
    List {
        /// Print JSON, an array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Revoke a user's key or USIM: it gets no more grants.
    Revoke {
        /// The user's name.
        name: String,
        #[command(flatten)]
        config: BrokerFile,
    },
}

#[derive(Args)]
pub(crate) struct Fields {
    /// The user is prepaid, and gets credit in slices.
    #[arg(long)]
    prepaid: bool,
    /// The user's class, which operators see: many users share one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    class: u8,
    /// The user's public key, where the SIM made its key itself; without it, a key is made here.
    #[arg(long, value_name = "KEY", value_parser = public_key, conflicts_with = "sim")]
    public_key: Option<VerifyingKey>,
    /// File for the SIM's profile, readable by its owner only; without it, NAME.veil.json.
    #[arg(long, value_name = "FILE")]
    sim: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum VeilEpochCommand {
    /// List the epochs, the last one last, with the number of witnesses that have signed it.
    List {
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Begin an epoch with a new issuing key. Operators take it when more than half of their witnesses have signed the log.
    Begin {
        /// How long its tokens are valid.
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=365))]
        days: u16,
        #[command(flatten)]
        config: BrokerFile,
    },
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value, read once")]
pub(crate) enum WitnessCommand {
    /// Write the log as it is into a file, for the witnesses.
    Export {
        /// File that the log is written to.
        #[arg(value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// As a witness: sign the log in a file, if it extends the one signed before.
    Sign {
        /// What `export` wrote.
        log: PathBuf,
        /// The witness's private key, made by `whimbrel open key`.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The public key under which the broker signs.
        #[arg(long, value_name = "KEY", value_parser = public_key)]
        broker_key: VerifyingKey,
        /// The log that was signed last; made and replaced by this command. Keep it: without it, a fork is not seen.
        #[arg(long, value_name = "FILE")]
        state: PathBuf,
    },
    /// Add a witness's signature, as `sign` printed it.
    Add {
        /// The witness's public key and its signature.
        signature: String,
        #[command(flatten)]
        config: BrokerFile,
    },
}

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// List the keys, the current one last.
    List {
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Make a new key: users learn it at their next attach.
    Begin {
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Destroy a former key: what users seal to it can no longer be opened, and they learn the current one.
    End {
        /// Identifier of the key.
        id: u8,
        #[command(flatten)]
        config: BrokerFile,
    },
}

#[derive(Subcommand)]
pub(crate) enum OrderCommand {
    /// Add an order, as `whimbrel-broker agency order` printed it.
    Add {
        /// The order, hexadecimal digits.
        order: String,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// List the orders, and the answers, which only the agency can read.
    List {
        #[command(flatten)]
        config: BrokerFile,
    },
}

pub(crate) fn public_key(text: &str) -> Result<VerifyingKey, String> {
    let octets = unhex(text.trim()).and_then(|octets| octets.try_into().ok());
    octets.and_then(VerifyingKey::from_octets).ok_or_else(|| "a public key has 64 hexadecimal digits".into())
}

/// The database of veiled users, and what the commands know of the broker.
struct Opened {
    known: config::BrokerStore,
    plmn: PlmnId,
    signing: SigningKey,
    storage: VeilStorage,
}

fn open(file: &BrokerFile) -> Result<Opened, String> {
    let known = config::load_store(file.file.as_deref()).map_err(|e| e.to_string())?;
    let Some(plmn) = known.veil_plmn else {
        return Err("this broker has no veiled users; set `veil.plmn` in its configuration first".into());
    };
    let storage = VeilStorage::open(&config::veil_store(&known.store)).map_err(|e| e.to_string())?;
    let signing = known.veil_signing.clone();
    Ok(Opened { known, plmn, signing, storage })
}

pub(crate) fn run(command: VeilCommand) -> Done {
    match command {
        VeilCommand::User { command } => user(command),
        VeilCommand::Epoch { command } => epoch(command),
        VeilCommand::Witness { command } => witness(command),
        VeilCommand::Key { command } => key(command),
        VeilCommand::Sessions { name, limit, json, config } => sessions(&name, limit, json, &config),
        VeilCommand::Order { command } => order(command),
        VeilCommand::Bill { json, config } => bill(json, &config),
    }
}

fn user(command: VeilUserCommand) -> Done {
    match command {
        VeilUserCommand::Add { name, fields, usim, config } => {
            check_name(&name)?;
            if usize::from(fields.class) >= CLASSES_MAX {
                return Err(format!("there are {CLASSES_MAX} classes, from 0 on"));
            }
            match usim.imsi() {
                Some(supi) => add_usim(&name, &fields, (supi, &usim), &config),
                None => add(&name, &fields, &config),
            }
        }
        VeilUserCommand::List { json, config } => list(json, &config),
        VeilUserCommand::Revoke { name, config } => {
            open(&config)?.storage.revoke(&name).map_err(|e| e.to_string())?;
            print(&format!("user {name} is revoked\n"))
        }
    }
}

fn add(name: &str, fields: &Fields, config: &BrokerFile) -> Done {
    let Opened { known, plmn, signing, mut storage } = open(config)?;
    let private = Zeroizing::new(random::<32>()?);
    let key = SigningKey::new(&private);
    let user = User {
        key: fields.public_key.unwrap_or(key.verifying_key()),
        revoked: false,
        class: fields.class,
        prepaid: fields.prepaid,
        intercept: false,
        counters: Counters::default(),
    };
    let state = storage.load(now()).map_err(|e| e.to_string())?;
    let Some((id, secret)) = state.epochs.last() else { return Err("the database has no key".into()) };
    let sim = UserSim {
        user: UserId(random()?),
        broker: known.domain,
        network: plmn,
        broker_key: signing.verifying_key(),
        epoch: EpochKey { id: *id, public: secret.share() },
        signing: key,
        counter: 0,
    };
    let named = NamedUser { name: name.into(), id: sim.user, user };
    if fields.public_key.is_some() {
        storage.add_user(&named).map_err(|e| e.to_string())?;
        return print(&format!(
            "user {name} is added; its SIM needs: user {}, broker {}, plmn {plmn}, broker_key {}, epoch {}, epoch_key {}\n",
            hex(&sim.user.0),
            sim.broker,
            hex(&sim.broker_key.octets()),
            sim.epoch.id,
            hex(&sim.epoch.public.0)
        ));
    }
    let file = fields.sim.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.veil.json")));
    // The profile first: a user without a stored key could not attach.
    files::write_private(&file, &VeilSimProfile::new(&sim, &private).to_json())?;
    if let Err(e) = storage.add_user(&named) {
        let _ = fs::remove_file(&file);
        return Err(e.to_string());
    }
    print(&format!("user {name} is added; the profile of its SIM is in {}\n", file.display()))
}

fn add_usim(name: &str, fields: &Fields, (supi, usim): (Supi, &Usim), config: &BrokerFile) -> Done {
    let Opened { plmn, mut storage, .. } = open(config)?;
    if !supi.is_of(plmn) {
        return Err(format!("{supi} is not of the network {plmn} that `veil.plmn` names"));
    }
    let keys: UsimKeys = usim.keys()?;
    let user = HomeUser {
        user: UserId(random()?),
        functions: keys.functions(),
        revoked: false,
        class: fields.class,
        prepaid: fields.prepaid,
        intercept: false,
        sqn: Sqn::ZERO,
    };
    let named = NamedHomeUser { name: name.into(), supi, keys, user };
    storage.add_home_user(&named).map_err(|e| e.to_string())?;
    print(&format!("user {name} is added, with the USIM of {supi}\n"))
}

fn list(json: bool, config: &BrokerFile) -> Done {
    let state = open(config)?.storage.load(now()).map_err(|e| e.to_string())?;
    let veiled =
        state.users.iter().map(|u| (&u.name, "veiled", u.user.revoked, u.user.class, u.user.prepaid));
    let of_usim =
        state.home_users.iter().map(|u| (&u.name, "USIM", u.user.revoked, u.user.class, u.user.prepaid));
    let all = veiled.chain(of_usim);
    if json {
        let user = |(name, kind, revoked, class, prepaid)| json!({"name": name, "kind": kind, "revoked": revoked, "class": class, "prepaid": prepaid});
        return print_json(&all.map(user).collect());
    }
    let rows: Vec<Vec<String>> = all
        .map(|(name, kind, revoked, class, prepaid)| {
            let state = if revoked { "revoked" } else { kind };
            let pays = if prepaid { "before" } else { "after" };
            vec![name.clone(), state.into(), class.to_string(), pays.into()]
        })
        .collect();
    print(&table(&["NAME", "KEY", "CLASS", "PAYS"], &rows))
}

fn epoch(command: VeilEpochCommand) -> Done {
    match command {
        VeilEpochCommand::List { config } => {
            let state = open(&config)?.storage.load(now()).map_err(|e| e.to_string())?;
            let last = state.issuers.len();
            let signed = state.cosignatures.len();
            let rows: Vec<Vec<String>> = state
                .issuers
                .iter()
                .enumerate()
                .map(|(n, (entry, _))| {
                    let (from, until) = (date(entry.validity.from), date(entry.validity.until));
                    let witnesses = if n + 1 == last { signed.to_string() } else { "-".into() };
                    vec![entry.epoch.to_string(), from, until, witnesses]
                })
                .collect();
            print(&table(&["EPOCH", "FROM", "UNTIL", "WITNESSES"], &rows))
        }
        VeilEpochCommand::Begin { days, config } => {
            let Opened { known, signing, mut storage, .. } = open(&config)?;
            let from = now().as_secs();
            let validity = Validity { from, until: from + u64::from(days) * 86_400 };
            let head = storage.begin_issuing(&known.domain, validity, &signing).map_err(|e| e.to_string())?;
            print(&format!(
                "epoch {} has begun; have the witnesses sign what `whimbrel-broker veil witness export` writes\n",
                head.size - 1
            ))
        }
    }
}

fn witness(command: WitnessCommand) -> Done {
    match command {
        WitnessCommand::Export { out, config } => {
            let Opened { known, signing, storage, .. } = open(&config)?;
            let log = storage.log(&known.domain).map_err(|e| e.to_string())?;
            let statement = LogStatement::of(&log, &signing);
            files::write_public(&out, &format!("{}\n", hex(&statement.to_octets())))?;
            print(&format!("the log of {} keys is written to {}\n", log.entries().len(), out.display()))
        }
        WitnessCommand::Sign { log, key, broker_key, state } => {
            let (statement, before) =
                (read_log(&log)?, state.exists().then(|| read_log(&state)).transpose()?);
            let signing = SigningKey::new(&*files::read_secret(&key)?);
            let signed = statement.cosign(before.as_ref(), broker_key, signing);
            let signed = signed.map_err(|e| format!("the log is not signed: {e}"))?;
            files::write_public(&state, &format!("{}\n", hex(&statement.to_octets())))?;
            print(&format!("{}{}\n", hex(&signed.witness.octets()), hex(&signed.signature.0)))
        }
        WitnessCommand::Add { signature, config } => {
            let Opened { known, signing, mut storage, .. } = open(&config)?;
            let octets = unhex(signature.trim()).and_then(|o| <[u8; 96]>::try_from(o).ok());
            let octets = octets.ok_or("a signature of a witness has 192 hexadecimal digits")?;
            let head = storage.log(&known.domain).map_err(|e| e.to_string())?.head(&signing);
            let cosignature = Cosignature::from_octets(&octets).filter(|c| c.is_over(&head));
            let cosignature = cosignature.ok_or("it is no signature over the log as it is now")?;
            storage.add_cosignature(head.size, &cosignature).map_err(|e| e.to_string())?;
            print("the signature is added\n")
        }
    }
}

/// Octets of a broker's log of issuing keys: a thousand keys have a hundredth.
const LOG_OCTETS_MAX: u64 = 64 << 20;

fn read_log(file: &Path) -> Result<LogStatement, String> {
    let text = whimbrel_files::read_text(file, LOG_OCTETS_MAX)
        .map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    let octets = unhex(text.trim()).ok_or_else(|| format!("{} holds no log", file.display()))?;
    LogStatement::parse(&octets).map_err(|e| format!("{} holds no log: {e}", file.display()))
}

fn key(command: KeyCommand) -> Done {
    match command {
        KeyCommand::List { config } => {
            let state = open(&config)?.storage.load(now()).map_err(|e| e.to_string())?;
            let last = state.epochs.last().map(|(id, _)| *id);
            let rows: Vec<Vec<String>> = state
                .epochs
                .iter()
                .map(|(id, key)| {
                    let state = if Some(*id) == last { "current" } else { "former" };
                    vec![id.to_string(), state.into(), hex(&key.share().0)]
                })
                .collect();
            print(&table(&["KEY", "STATE", "PUBLIC KEY"], &rows))
        }
        KeyCommand::Begin { config } => {
            let id = open(&config)?.storage.begin_epoch().map_err(|e| e.to_string())?;
            print(&format!("key {id} is current now\n"))
        }
        KeyCommand::End { id, config } => match open(&config)?.storage.end_epoch(id) {
            Ok(true) => print(&format!("key {id} is destroyed\n")),
            Ok(false) => Err(format!("there is no former key {id}")),
            Err(e) => Err(e.to_string()),
        },
    }
}

fn sessions(name: &str, limit: u32, json: bool, config: &BrokerFile) -> Done {
    let sessions = open(config)?.storage.sessions_of(name, limit).map_err(|e| e.to_string())?;
    let of = sessions.iter().map(|s| (hex(&s.session), hex(&s.group.0), date(s.until_s)));
    if json {
        let sessions =
            of.map(|(session, group, until)| json!({"session": session, "group": group, "until": until}));
        return print_json(&sessions.collect());
    }
    let rows: Vec<Vec<String>> = of.map(|(session, group, until)| vec![session, group, until]).collect();
    print(&table(&["SESSION", "GROUP", "UNTIL"], &rows))
}

fn order(command: OrderCommand) -> Done {
    match command {
        OrderCommand::Add { order, config } => {
            let octets = unhex(order.trim()).ok_or("an order has hexadecimal digits")?;
            let order = Order::parse(&octets).map_err(|e| format!("it is no order: {e}"))?;
            open(&config)?.storage.add_order(&order).map_err(|e| e.to_string())?;
            print(&format!("order {} is passed on\n", hex(&order.hash())))
        }
        OrderCommand::List { config } => {
            let orders = open(&config)?.storage.orders().map_err(|e| e.to_string())?;
            let rows: Vec<Vec<String>> = orders
                .iter()
                .map(|(order, answer)| {
                    let answer = answer.as_ref().map_or("-".into(), |answer| hex(&answer.to_octets()));
                    vec![hex(&order.hash()), order.kind.to_string(), date(order.validity.until), answer]
                })
                .collect();
            print(&table(&["ORDER", "WHAT", "UNTIL", "ANSWER"], &rows))
        }
    }
}

fn bill(json: bool, config: &BrokerFile) -> Done {
    let billed = open(config)?.storage.billed().map_err(|e| e.to_string())?;
    if json {
        let user = |b: &whimbrel_broker_server::veil::storage::BilledSession| json!({"user": b.user, "sessions": b.sessions, "megabytes": b.units});
        return print_json(&billed.iter().map(user).collect());
    }
    let row = |b: &whimbrel_broker_server::veil::storage::BilledSession| {
        vec![b.user.clone(), b.sessions.to_string(), b.units.to_string()]
    };
    print(&table(&["USER", "SESSIONS", "MB"], &billed.iter().map(row).collect::<Vec<_>>()))
}
