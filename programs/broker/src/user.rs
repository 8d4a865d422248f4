//! `whimbrel-broker user`.

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use whimbrel_broker_client::{files, hex, now, random, unhex};
use whimbrel_broker_server::profile::SimProfile;
use whimbrel_broker_server::storage::{NamedHomeUser, NamedUser, Storage, UsimKeys};
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_ids::Supi;
use whimbrel_open::broker::{HomeUser, User};
use whimbrel_open::crypto::{SigningKey, VerifyingKey};
use whimbrel_open::id::UserId;
use whimbrel_open::msg::{EpochKey, Qos};
use whimbrel_open::user::UserSim;
use whimbrel_security::Sqn;
use whimbrel_store::BitRate;
use zeroize::Zeroizing;

use crate::cli::BrokerFile;

/// Users read at once for a list.
const PAGE: usize = 1_000;
/// Characters of a name.
const NAME_CHARS_MAX: usize = 100;
/// Octets of the file with a USIM's keys: two keys and white space.
const KEYS_OCTETS_MAX: u64 = 1 << 10;

#[derive(Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user and write the profile of its SIM; or one with a USIM, by --imsi and its keys.
    Add {
        /// Name by which this broker knows the user.
        name: String,
        #[command(flatten)]
        fields: Box<Fields>,
        #[command(flatten)]
        usim: Box<Usim>,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// List all users.
    List {
        /// Print JSON, an object a line.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Show one user as JSON.
    Show {
        /// The user's name.
        name: String,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Revoke a user's key or USIM: it gets no more grants. A running broker takes it up within a second.
    Revoke {
        /// The user's name.
        name: String,
        #[command(flatten)]
        config: BrokerFile,
    },
}

/// A public key as it is typed. Errors: one sentence.
fn public_key(text: &str) -> Result<VerifyingKey, String> {
    files::public_key(text).ok_or_else(|| "a public key has 64 hexadecimal digits".into())
}

#[derive(Args)]
pub(crate) struct Fields {
    /// Session AMBR uplink that operators must offer.
    #[arg(long, value_name = "RATE", default_value = "10 Mbps")]
    uplink: BitRate,
    /// Session AMBR downlink that operators must offer.
    #[arg(long, value_name = "RATE", default_value = "50 Mbps")]
    downlink: BitRate,
    /// 5QI of the default QoS flow (TS 23.501 §5.7.4).
    #[arg(long = "5qi", value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u8).range(1..))]
    five_qi: u8,
    /// The user's public key, where the SIM made its key itself; without it, a key is made here.
    #[arg(long, value_name = "KEY", value_parser = public_key, conflicts_with = "sim")]
    public_key: Option<VerifyingKey>,
    /// File for the SIM's profile, readable by its owner only; without it, NAME.sim.json.
    #[arg(long, value_name = "FILE")]
    sim: Option<PathBuf>,
}

/// The USIM of an ordinary UE.
#[derive(Args)]
pub(crate) struct Usim {
    /// IMSI of an ordinary UE, which has a USIM with K in place of a key pair; its first digits are `home.plmn`.
    #[arg(long, value_name = "IMSI", conflicts_with_all = ["public_key", "sim"])]
    imsi: Option<Supi>,
    /// Permanent key K, 32 hexadecimal digits. Other users of this host can see it while the command runs.
    #[arg(long, requires_all = ["imsi", "opc"])]
    k: Option<String>,
    /// OPc, 32 hexadecimal digits.
    #[arg(long, requires = "k")]
    opc: Option<String>,
    /// File with K and OPc, each of 32 hexadecimal digits, separated by white space; - reads standard input.
    #[arg(long, value_name = "FILE", requires = "imsi", conflicts_with = "k")]
    keys: Option<PathBuf>,
}

impl Usim {
    /// The subscriber of the USIM.
    pub(crate) fn imsi(&self) -> Option<Supi> {
        self.imsi
    }

    /// Errors: one sentence.
    pub(crate) fn keys(&self) -> Result<UsimKeys, String> {
        let text = Zeroizing::new(match (&self.k, &self.opc, &self.keys) {
            (Some(k), Some(opc), None) => format!("{k} {opc}"),
            (None, None, Some(file)) => {
                let read = match file.as_os_str() == "-" {
                    true => std::io::read_to_string(std::io::stdin().take(KEYS_OCTETS_MAX)),
                    false => whimbrel_files::open(file)
                        .and_then(|f| std::io::read_to_string(f.take(KEYS_OCTETS_MAX))),
                };
                read.map_err(|e| format!("{} cannot be read: {e}", file.display()))?
            }
            _ => return Err("the keys of the USIM are missing; give --keys, or --k and --opc".into()),
        });
        let mut keys = text.split_whitespace().map(|digits| unhex(digits)?.try_into().ok());
        match (keys.next().flatten(), keys.next().flatten(), keys.next()) {
            (Some(k), Some(opc), None) => Ok(UsimKeys { k, opc }),
            _ => Err("K and OPc are two times 32 hexadecimal digits, separated by white space".into()),
        }
    }
}

pub(crate) fn run(command: UserCommand) -> Done {
    match command {
        UserCommand::Add { name, fields, usim, config } => match usim.imsi {
            Some(imsi) => add_usim(&name, &fields, (imsi, &usim), &config),
            None => add(&name, &fields, &config),
        },
        UserCommand::List { json, config } => list(&mut config.storage()?, json),
        UserCommand::Show { name, config } => {
            let mut storage = config.storage()?;
            let of_usim = storage.home_users().map_err(|e| e.to_string())?;
            match of_usim.iter().find(|u| u.name == name) {
                Some(user) => print_json(&shown_usim(user)),
                None => print_json(&shown(&storage.user(&name).map_err(|e| e.to_string())?)),
            }
        }
        UserCommand::Revoke { name, config } => {
            config.storage()?.revoke_user(&name).map_err(|e| e.to_string())?;
            print(&format!("the key of {name} is revoked\n"))
        }
    }
}

/// Errors: one sentence.
pub(crate) fn check_name(name: &str) -> Done {
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(format!("a name has 1 to {NAME_CHARS_MAX} characters"));
    }
    Ok(())
}

fn qos(fields: &Fields) -> Result<Qos, String> {
    let kbps = |rate: BitRate| {
        u32::try_from(rate.kbps())
            .map_err(|_| format!("{rate} is more than a grant can carry; write at most 4 Tbps"))
    };
    Ok(Qos { ul_kbps: kbps(fields.uplink)?, dl_kbps: kbps(fields.downlink)?, five_qi: fields.five_qi })
}

/// A user with a USIM.
fn add_usim(name: &str, fields: &Fields, (supi, usim): (Supi, &Usim), config: &BrokerFile) -> Done {
    check_name(name)?;
    let (known, mut storage) = config.open()?;
    match known.home_plmn {
        None => {
            return Err("this broker has no ordinary UEs; set `home.plmn` in its configuration first".into());
        }
        Some(plmn) if !supi.is_of(plmn) => {
            return Err(format!("{supi} is not of the home network {plmn} that `home.plmn` names"));
        }
        Some(_) => {}
    }
    let keys = usim.keys()?;
    let user = HomeUser {
        user: UserId(random()?),
        functions: keys.functions(),
        revoked: false,
        qos: qos(fields)?,
        intercept: false,
        filters: Vec::new(),
        sqn: Sqn::ZERO,
    };
    let new = NamedHomeUser { name: name.into(), supi, keys, user };
    storage.add_home_user(&new).map_err(|e| e.to_string())?;
    print(&format!("user {name} is added, with the USIM of {supi}\n"))
}

fn add(name: &str, fields: &Fields, config: &BrokerFile) -> Done {
    check_name(name)?;
    let (known, mut storage) = config.open()?;
    let private = Zeroizing::new(random::<32>()?);
    let signing = SigningKey::new(&private);
    let user = User {
        key: fields.public_key.unwrap_or(signing.verifying_key()),
        revoked: false,
        qos: qos(fields)?,
        intercept: false,
        filters: Vec::new(),
        counter: 0,
        ticket: 0,
    };
    let id = UserId(random()?);
    let state = storage.load(now()).map_err(|e| e.to_string())?;
    let Some(epoch) = state.epochs.last() else { return Err("the database has no epoch key".into()) };
    let epoch = EpochKey { id: epoch.id, public: epoch.key.share() };
    let sim = UserSim {
        user: id,
        broker: known.domain,
        broker_key: known.key,
        epoch,
        signing,
        counter: 0,
        ticket: None,
    };
    if fields.public_key.is_some() {
        storage.add_users(&[NamedUser { name: name.into(), id, user }]).map_err(|e| e.to_string())?;
        return print(&format!(
            "user {name} is added; its SIM needs: user {}, broker {}, broker_key {}, epoch {}, epoch_key {}\n",
            hex(&id.0),
            sim.broker,
            hex(&sim.broker_key.octets()),
            epoch.id,
            hex(&epoch.public.0)
        ));
    }
    let file = fields.sim.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.sim.json")));
    let profile =
        serde_json::to_string_pretty(&SimProfile::new(&sim, &private)).map_err(|e| e.to_string())?;
    // The profile first: a user without a stored key could not attach.
    files::write_private(&file, &(profile + "\n"))?;
    if let Err(e) = storage.add_users(&[NamedUser { name: name.into(), id, user }]) {
        let _ = std::fs::remove_file(&file);
        return Err(e.to_string());
    }
    print(&format!("user {name} is added; the profile of its SIM is in {}\n", file.display()))
}

fn list(storage: &mut dyn Storage, json: bool) -> Done {
    let (mut after, mut rows) = (String::new(), Vec::new());
    loop {
        let page = storage.list_users(&after, PAGE).map_err(|e| e.to_string())?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.name);
        for user in &page {
            if json {
                print(&(shown(user).to_string() + "\n"))?;
            } else {
                let Qos { ul_kbps, dl_kbps, five_qi } = user.user.qos;
                let state = if user.user.revoked { "revoked" } else { "valid" };
                let counter = user.user.counter.to_string();
                rows.push(vec![
                    user.name.clone(),
                    state.into(),
                    rate(ul_kbps),
                    rate(dl_kbps),
                    five_qi.to_string(),
                    counter,
                ]);
            }
        }
    }
    for user in storage.home_users().map_err(|e| e.to_string())? {
        if json {
            print(&(shown_usim(&user).to_string() + "\n"))?;
            continue;
        }
        let HomeUser { qos, revoked, sqn, .. } = user.user;
        let state = if revoked { "revoked" } else { "USIM" };
        let counter = sqn.seq().to_string();
        rows.push(vec![
            user.name,
            state.into(),
            rate(qos.ul_kbps),
            rate(qos.dl_kbps),
            qos.five_qi.to_string(),
            counter,
        ]);
    }
    if json { Ok(()) } else { print(&table(&["NAME", "KEY", "UPLINK", "DOWNLINK", "5QI", "COUNTER"], &rows)) }
}

fn rate(kbps: u32) -> String {
    BitRate::from_bps(u64::from(kbps) * 1_000).map_or("0".into(), |r| r.to_string())
}

/// Without K and OPc, with which the USIM can be cloned.
fn shown_usim(user: &NamedHomeUser) -> Value {
    let Qos { ul_kbps, dl_kbps, five_qi } = user.user.qos;
    json!({
        "name": user.name,
        "id": hex(&user.user.user.0),
        "imsi": user.supi.value(),
        "revoked": user.user.revoked,
        "uplink_kbps": ul_kbps,
        "downlink_kbps": dl_kbps,
        "five_qi": five_qi,
        "seq": user.user.sqn.seq(),
    })
}

fn shown(user: &NamedUser) -> Value {
    let Qos { ul_kbps, dl_kbps, five_qi } = user.user.qos;
    json!({
        "name": user.name,
        "id": hex(&user.id.0),
        "public_key": hex(&user.user.key.octets()),
        "revoked": user.user.revoked,
        "uplink_kbps": ul_kbps,
        "downlink_kbps": dl_kbps,
        "five_qi": five_qi,
        "counter": user.user.counter,
    })
}
