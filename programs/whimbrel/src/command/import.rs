//! `whimbrel import`: subscribers of other cores, from the exported files of their databases.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use whimbrel_cli::{Done, print};
use whimbrel_node::subscribers;
use whimbrel_store::{Core, Run, StoreError};

use super::subscriber::{Existing, open, other_plmn, served};
use crate::cli::ConfigFile;

#[derive(Subcommand)]
pub(crate) enum ImportCommand {
    /// Import Open5GS's collection `subscribers`: a file of mongoexport (JSON) or mongodump (BSON).
    Open5gs(ImportOptions),
    /// Import free5GC's collections `subscriptionData.*` and `policyData.ues.*`: their files of mongoexport (JSON) or mongodump (BSON), together.
    Free5gc(ImportOptions),
    /// Import Ella Core's database: the file ella.db of its data folder or its backup.
    Ella(ImportOptions),
    /// Import OpenAirInterface's database oai_db: a dump of MySQL (SQL).
    Oai(ImportOptions),
    /// Import srsRAN 4G's list user_db.csv.
    Srsran(ImportOptions),
}

#[derive(Args)]
pub(crate) struct ImportOptions {
    /// Exported files, or folders of them; - reads standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Check everything, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// What to do if a SUPI already exists.
    #[arg(long, default_value = "refuse")]
    on_existing: Existing,
    #[command(flatten)]
    config: ConfigFile,
}

pub(crate) fn run(command: &ImportCommand) -> Done {
    match command {
        ImportCommand::Open5gs(options) => import(Core::Open5gs, options),
        ImportCommand::Free5gc(options) => import(Core::Free5gc, options),
        ImportCommand::Ella(options) => import(Core::EllaCore, options),
        ImportCommand::Oai(options) => import(Core::OpenAirInterface, options),
        ImportCommand::Srsran(options) => import(Core::Srsran4g, options),
    }
}

fn import(core: Core, options: &ImportOptions) -> Done {
    let files = opened(core, &options.files)?;
    let served = served(&options.config)?;
    let mut store = open(&options.config, "import", &[])?;
    let (mut of_others, mut first_of_others) = (0, None);
    let mut each = |supi| {
        if !subscribers::is_of(supi, served) {
            of_others += 1;
            first_of_others.get_or_insert(supi);
        }
    };
    let run = if options.dry_run { Run::Rehearse } else { Run::Keep };
    let done = store.import_database(
        core,
        files,
        options.on_existing.into(),
        run,
        &whimbrel_node::core::check_flow,
        &mut each,
    );
    let done = done.map_err(|e| match e {
        StoreError::Import(lines) => {
            let lines: String = lines.iter().map(|l| format!("\n  {l}")).collect();
            format!("nothing was imported:{lines}")
        }
        other => other.to_string(),
    })?;
    for note in &done.notes {
        eprintln!("note: {note}");
    }
    if let Some(supi) = first_of_others {
        eprintln!("{}", other_plmn(supi, of_others, served));
    }
    let end = if options.dry_run { "; nothing was changed (--dry-run)" } else { "" };
    print(&format!("{} added, {} replaced, {} skipped{end}\n", done.added, done.replaced, done.skipped))
}

/// A file by its name.
type Input = (String, Box<dyn BufRead>);

/// The files, and of folders the collections in them.
fn opened(core: Core, paths: &[PathBuf]) -> Result<Vec<Input>, String> {
    let mut files: Vec<Input> = Vec::new();
    for path in paths {
        let cannot = |e: std::io::Error| format!("{} cannot be read: {e}", path.display());
        if path.as_os_str() == "-" {
            files.push(("standard input".into(), Box::new(std::io::stdin().lock())));
            continue;
        }
        let mut found = vec![path.clone()];
        if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(cannot)?.flatten().map(|entry| entry.path());
            found = entries.filter(|entry| is_collection(core, entry)).collect();
            found.sort();
            if found.is_empty() {
                return Err(format!("{} has no exported file of subscribers", path.display()));
            }
        }
        for file in found {
            let opened = whimbrel_files::open_bounded(&file, whimbrel_files::LIST_OCTETS_MAX)
                .map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
            files.push((file.display().to_string(), Box::new(BufReader::with_capacity(256 << 10, opened))));
        }
    }
    Ok(files)
}

/// Whether a file of a folder holds subscribers; `mongodump` writes a file of metadata beside each collection, and free5GC's web console
/// keeps a copy of the keys for itself.
fn is_collection(core: Core, file: &std::path::Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.strip_suffix(".bson").or(name.strip_suffix(".json")).unwrap_or_default();
    match core {
        Core::Open5gs => stem == "subscribers",
        Core::Free5gc => {
            let is_collection = stem.starts_with("subscriptionData.") || stem.starts_with("policyData.ues.");
            is_collection && !stem.ends_with(".metadata") && !stem.ends_with(".webAuthenticationSubscription")
        }
        Core::EllaCore => name == "ella.db",
        Core::OpenAirInterface => name.ends_with(".sql"),
        Core::Srsran4g => name == "user_db.csv",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_folder_of_mongodump_is_imported_and_a_dry_run_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dump = folder.path().join("free5gc");
        std::fs::create_dir(&dump).unwrap();
        let k = "465b5ce8b199b49faa5f0a2ee238a6bc";
        let keys = json!({ "ueId": "imsi-999700000000001", "encPermanentKey": k, "encOpcKey": k });
        let access =
            json!({ "ueId": "imsi-999700000000001", "nssai": { "defaultSingleNssais": [{ "sst": 1 }] } });
        for (name, text) in [
            ("subscriptionData.authenticationData.authenticationSubscription.json", keys.to_string()),
            ("subscriptionData.provisionedData.amData.json", access.to_string()),
            ("subscriptionData.provisionedData.amData.metadata.json", "{\"options\":{}}".into()),
            ("tenantData.json", "not read".into()),
        ] {
            std::fs::write(dump.join(name), text).unwrap();
        }
        let file = folder.path().join("whimbrel.yaml");
        let [db, key] = ["s.db", "s.key"].map(|name| folder.path().join(name));
        let text = format!("store: {{ path: {}, key_file: {} }}\n", db.display(), key.display());
        std::fs::write(&file, text).unwrap();
        let options = |dry_run| ImportOptions {
            files: vec![dump.clone()],
            dry_run,
            on_existing: Existing::Refuse,
            config: ConfigFile { config_file: Some(file.clone()) },
        };
        let count = || whimbrel_store::Store::open(&db, &key).unwrap().count().unwrap();
        import(Core::Free5gc, &options(true)).unwrap();
        assert_eq!(count(), 0);
        import(Core::Free5gc, &options(false)).unwrap();
        assert_eq!(count(), 1);
        let e = import(Core::Free5gc, &options(false)).unwrap_err();
        assert!(e.contains("imsi-999700000000001 is a subscriber already"), "{e}");
        assert!(import(Core::Open5gs, &options(true)).unwrap_err().contains("no exported file"));
    }
}
