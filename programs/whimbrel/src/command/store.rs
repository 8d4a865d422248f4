//! `whimbrel store`: all subscribers from one store to another, the homes that share a store, and the rotation of its key.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use whimbrel_api::audit::{self, AuditedAccess};
use whimbrel_cli::{Done, print};
use whimbrel_node::config::{self, StoreConfig};
use whimbrel_postgres::{PostgresDatabase, PostgresSettings};
use whimbrel_store::{DatabaseFailure, SealedDocument, SealedSubscriber, SharedStore, Store, StoreError};

use super::subscriber::Existing;
use crate::cli::ConfigFile;

/// Subscribers of one step: 5 MB.
const STEP: usize = 4_096;

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy all subscribers, users of the console and API tokens to another store, encrypted as they are: both have the key file of `store.key_file`.
    Copy {
        /// A subscribers' file, or `postgres`: the database of `store.postgres`.
        source: String,
        /// A subscribers' file, which is made if it is missing, or `postgres`.
        destination: String,
        /// Treatment of SUPIs, users and tokens that the destination has; refuse: if the destination has any.
        #[arg(long, default_value = "refuse")]
        on_existing: Existing,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Encrypt the subscribers' keys, the users and the tokens with a new key that is put in front of the present one in `store.key_file`; with
    /// `store.postgres`, those of all homes. Cores that run read the key file again. A rotation that was interrupted is finished by the same command.
    RotateKey {
        /// Remove the former key from the key file, once nothing needs it any more.
        #[arg(long)]
        drop_former: bool,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// List the homes that share the subscribers in PostgreSQL, with the slots of their SQNs and the UEs that are registered at them.
    Homes {
        /// Remove this AMF, as the list names it, with its slot and its registrations: it is gone for good.
        #[arg(long, value_name = "AMF")]
        remove: Option<String>,
        #[command(flatten)]
        config: ConfigFile,
    },
}

pub(crate) fn run(command: StoreCommand) -> Done {
    match command {
        StoreCommand::Copy { source, destination, on_existing, config } => {
            run_copy(source, destination, on_existing, config)
        }
        StoreCommand::Homes { remove, config } => run_homes(remove, config),
        StoreCommand::RotateKey { drop_former, config } => run_rotate_key(drop_former, config),
    }
}

fn run_homes(remove: Option<String>, config: ConfigFile) -> Done {
    let (config, _) = config::load(config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let sentence = |e: StoreError| e.to_string();
    let store = Store::open(&config.store.path, &config.store.key_in_force()).map_err(sentence)?;
    let mut database = PostgresDatabase::new(settings(&config.store)?)?;
    let Some(amf) = remove else {
        let mut list = String::from("AMF            CTA  SQN slot  registered  last seen   home\n");
        for home in database.homes(&store).map_err(sentence)? {
            let slot = home.sqn_slot.map_or("-".into(), |slot| slot.to_string());
            let seen = format!("{} s ago", home.seconds_ago);
            list += &format!(
                "{:<14} {:>3}  {slot:>8}  {:>10}  {seen:<10}  {}\n",
                home.amf, home.cta, home.registrations, home.name
            );
        }
        return print(&list);
    };
    let request = format!("store homes --remove {amf}");
    let access = AuditedAccess {
        caller: &audit::user(),
        user: None,
        request: &request,
        subscriber: None,
        outcome: "begun",
    };
    audit::record(&config.store.path, &config.audit, None, &access);
    database.remove_home(&store, &amf).map_err(sentence)?;
    print(&format!("the AMF {amf} was removed; its slot is free\n"))
}

fn run_rotate_key(drop_former: bool, config: ConfigFile) -> Done {
    let (config, _) = config::load(config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let key = config.store.key_in_force();
    if key != config.store.key_file || key.is_symlink() {
        return Err(format!(
            "the key {} is a credential, which this command cannot change: put a line with a new key of 64 hexadecimal digits in front of the one in \
             its source, restart, and run the command with `store.key_file` set to a file of the same content (docs/backup.md)",
            key.display()
        ));
    }
    let request = format!("store rotate-key{}", if drop_former { " --drop-former" } else { "" });
    let access = AuditedAccess {
        caller: &audit::user(),
        user: None,
        request: &request,
        subscriber: None,
        outcome: "begun",
    };
    audit::record(&config.store.path, &config.audit, None, &access);
    let sentence = |e: StoreError| e.to_string();
    let open = || Store::open(&config.store.path, &key).map_err(sentence);
    let mut store = open()?;
    let mut database = config.store.postgres.clone().map(PostgresDatabase::new).transpose()?;
    if drop_former {
        if let Some(database) = &mut database {
            database.catch_up(&mut store).map_err(sentence)?;
        }
        store.drop_former_key().map_err(sentence)?;
        return print(&format!("{} has one key\n", key.display()));
    }
    // What is not finished is sealed with the former key of the file, and a third key would be one too many.
    let is_finished = store.is_sealed_with_key().map_err(sentence)?
        && match &mut database {
            None => true,
            Some(database) => match database.catch_up(&mut store) {
                Ok(()) => true,
                Err(StoreError::Database(DatabaseFailure::FormerKey)) => false,
                Err(e) => return Err(sentence(e)),
            },
        };
    if is_finished {
        store.add_key().map_err(sentence)?;
        store = open()?;
    }
    let (subscribers, documents) = match &mut database {
        None => store.seal_again().map_err(sentence)?,
        Some(database) => {
            let sealed = database.seal_again(&store).map_err(sentence)?;
            database.catch_up(&mut store).map_err(sentence)?;
            sealed
        }
    };
    let next = match database {
        None => "",
        Some(_) => {
            " copy it to all other homes, which serve their UEs and change nothing until they have it, and then"
        }
    };
    print(&format!(
        "the keys of {subscribers} subscribers, and {documents} users and tokens, are sealed with the new key in {};{next} run \
         `whimbrel store rotate-key --drop-former` at each home\n",
        key.display()
    ))
}

fn run_copy(source: String, destination: String, on_existing: Existing, config: ConfigFile) -> Done {
    let (config, _) = config::load(config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let request = format!("store copy {source} {destination}");
    let access = AuditedAccess {
        caller: &audit::user(),
        user: None,
        request: &request,
        subscriber: None,
        outcome: "begun",
    };
    audit::record(&config.store.path, &config.audit, None, &access);
    let (from, to) = (Place::of(&source), Place::of(&destination));
    if from == to {
        return Err("source and destination are the same: name a file, and `postgres` or another file".into());
    }
    if let Place::File(file) = &from
        && !file.exists()
    {
        return Err(format!("there is no subscribers' file {}", file.display()));
    }
    let written = copy(&config.store, &from, &to, on_existing)?;
    let stay = match written.read - written.written {
        0 => String::new(),
        stay => format!("; {stay} were there already and stay as they were"),
    };
    let documents = match written.documents {
        0 => String::new(),
        count => format!(", and {count} users of the console and API tokens"),
    };
    print(&format!(
        "{} subscribers were copied from {source} to {destination}{documents}{stay}\n",
        written.written
    ))
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Postgres,
    File(PathBuf),
}

impl Place {
    fn of(text: &str) -> Self {
        match text {
            "postgres" => Self::Postgres,
            file => Self::File(file.into()),
        }
    }
}

/// Counts of a copy.
struct CopyCounts {
    read: u64,
    written: u64,
    documents: u64,
}

fn copy(config: &StoreConfig, from: &Place, to: &Place, on_existing: Existing) -> Result<CopyCounts, String> {
    let sentence = |e: StoreError| e.to_string();
    let open = |file: &Path| Store::open(file, &config.key_in_force()).map_err(sentence);
    let database = || PostgresDatabase::new(settings(config)?);
    let (counts, documents) = match (from, to) {
        (Place::File(from), Place::File(to)) => {
            let (from, mut to) = (open(from)?, open(to)?);
            check_room(
                on_existing,
                to.count().map_err(sentence)?,
                &to.sealed_documents().map_err(sentence)?,
            )?;
            let counts = steps(
                |after| from.sealed_after(after, STEP),
                |rows| to.put_sealed(rows, replaces(on_existing)),
            )?;
            let documents = from.sealed_documents().map_err(sentence)?;
            (counts, to.put_sealed_documents(&documents, replaces(on_existing)))
        }
        (Place::File(from), Place::Postgres) => {
            let (from, mut to) = (open(from)?, database()?);
            let there = to.sealed_after(&from, "", 1).map_err(sentence)?;
            check_room(on_existing, there.len() as u64, &to.sealed_documents(&from).map_err(sentence)?)?;
            let counts = steps(
                |after| from.sealed_after(after, STEP),
                |rows| to.put_sealed(&from, rows, replaces(on_existing)),
            )?;
            let documents = from.sealed_documents().map_err(sentence)?;
            (counts, to.put_sealed_documents(&from, &documents, replaces(on_existing)))
        }
        (Place::Postgres, Place::File(to)) => {
            // The file is needed to compare keys; what is read is written to it as another connection.
            let (mut from, mut to, key) = (database()?, open(to)?, open(to)?);
            check_room(
                on_existing,
                to.count().map_err(sentence)?,
                &to.sealed_documents().map_err(sentence)?,
            )?;
            let counts = steps(
                |after| from.sealed_after(&key, after, STEP),
                |rows| to.put_sealed(rows, replaces(on_existing)),
            )?;
            let documents = from.sealed_documents(&key).map_err(sentence)?;
            (counts, to.put_sealed_documents(&documents, replaces(on_existing)))
        }
        (Place::Postgres, Place::Postgres) => return Err("source and destination are the same".into()),
    };
    Ok(CopyCounts { documents: documents.map_err(sentence)?, ..counts })
}

fn settings(config: &StoreConfig) -> Result<PostgresSettings, String> {
    config
        .postgres
        .clone()
        .ok_or_else(|| "the configuration names no database: write `store.postgres`".into())
}

fn replaces(on_existing: Existing) -> bool {
    matches!(on_existing, Existing::Replace)
}

fn check_room(on_existing: Existing, subscribers: u64, documents: &[SealedDocument]) -> Done {
    if (subscribers > 0 || !documents.is_empty()) && matches!(on_existing, Existing::Refuse) {
        return Err("the destination has subscribers, or users of the console, already, and nothing was copied: say with --on-existing whether those of both are replaced or \
                    skipped"
            .into());
    }
    Ok(())
}

fn steps(
    mut read: impl FnMut(&str) -> Result<Vec<SealedSubscriber>, StoreError>,
    mut write: impl FnMut(&[SealedSubscriber]) -> Result<u64, StoreError>,
) -> Result<CopyCounts, String> {
    let mut counts = CopyCounts { read: 0, written: 0, documents: 0 };
    let mut after = String::new();
    let at = |counts: &CopyCounts, e: StoreError| match counts.written {
        0 => e.to_string(),
        n => format!("after {n} subscribers: {e}; what was copied is there, and --on-existing skip goes on"),
    };
    loop {
        let rows = read(&after).map_err(|e| at(&counts, e))?;
        let Some(last) = rows.last() else { return Ok(counts) };
        after.clone_from(&last.supi);
        counts.written += write(&rows).map_err(|e| at(&counts, e))?;
        counts.read += rows.len() as u64;
    }
}
