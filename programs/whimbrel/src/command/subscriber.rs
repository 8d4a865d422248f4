//! `whimbrel subscriber`: works on the store's file itself, whether the core runs or not; a running core sees it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use whimbrel_api::audit::{self, AuditedAccess};
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_ids::{Dnn, PlmnId, SNssai, Supi};
use whimbrel_node::config;
use whimbrel_node::subscribers;
use whimbrel_store::{Format, OnExisting, Secrets, Store, StoreError, SubscriberRecord, WithSecrets};

use crate::cli::ConfigFile;

/// Subscribers read at once for a list.
const PAGE: usize = 1000;
/// Lines of an import after which a terminal shows their number again.
const PROGRESS_STEP: u64 = 1000;

#[derive(Subcommand)]
pub(crate) enum SubscriberCommand {
    /// Add a subscriber; by default with slice 1 and DNN internet.
    Add {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: Supi,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Show one subscriber as JSON, without keys.
    Show {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: Supi,
        /// Include the keys, with which the SIM can be cloned.
        #[arg(long)]
        secrets: bool,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// List all subscribers, one a line.
    List {
        /// Print JSON, one object a line.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Change a subscriber; properties that are not named stay.
    Edit {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: Supi,
        #[command(flatten)]
        fields: Fields,
        /// Add a slice, or data networks to a slice: 2=internet. May be repeated.
        #[arg(long, value_name = "SLICE=DNN,…", conflicts_with = "slice")]
        add_slice: Vec<String>,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Remove subscribers from the store.
    Remove {
        /// SUPIs, imsi-999700000000001 or their digits.
        #[arg(required = true)]
        supis: Vec<Supi>,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Import a CSV or JSON list, all of it or nothing. Lists of SIM vendors and other cores can be imported as they are: headings such
    /// as IMSI, KI, OPC, MSISDN are understood, separated by commas, semicolons or tabs.
    Import {
        /// File to import; - reads standard input.
        file: PathBuf,
        /// Format of the file; default: detected from its first character.
        #[arg(long)]
        format: Option<ListFormat>,
        /// What to do if a SUPI already exists.
        #[arg(long, default_value = "refuse")]
        on_existing: Existing,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Export all subscribers.
    Export {
        /// File to write, readable by its owner only; default: standard output.
        file: Option<PathBuf>,
        /// Format; default: by the file's extension, else JSON.
        #[arg(long)]
        format: Option<ListFormat>,
        /// Include the keys, which an import needs and with which every SIM can be cloned.
        #[arg(long)]
        secrets: bool,
        #[command(flatten)]
        config: ConfigFile,
    },
}

/// A subscriber's fields.
#[derive(Args)]
pub(crate) struct Fields {
    /// Permanent key K, 32 hexadecimal digits (64 are possible under TUAK). Other users of this host can see it while the command runs.
    #[arg(long)]
    k: Option<String>,
    /// OPc, 32 hexadecimal digits.
    #[arg(long, conflicts_with_all = ["op", "top", "topc"])]
    opc: Option<String>,
    /// OP instead of OPc.
    #[arg(long, conflicts_with_all = ["top", "topc"])]
    op: Option<String>,
    /// TOPc of a SIM with TUAK instead of Milenage, 64 hexadecimal digits.
    #[arg(long, conflicts_with = "top")]
    topc: Option<String>,
    /// TOP instead of TOPc.
    #[arg(long)]
    top: Option<String>,
    /// Authentication method: 5g-aka or eap-aka-prime.
    #[arg(long)]
    auth: Option<String>,
    /// Authentication management field, 4 hexadecimal digits.
    #[arg(long)]
    amf: Option<String>,
    /// enabled or barred.
    #[arg(long)]
    status: Option<String>,
    /// Number of the subscriber (MSISDN).
    #[arg(long)]
    msisdn: Option<String>,
    /// Slice with its data networks, the default one first: 1=internet,ims or 1-0000ab=internet. May be repeated.
    #[arg(long, value_name = "SLICE=DNN,…")]
    slice: Vec<String>,
    /// Further properties as JSON, merged over the others: '{"subscription": {"ue_ambr": {"uplink": "1 Gbps", …}}}'.
    #[arg(long, value_name = "JSON")]
    set: Option<String>,
}

/// Format of a list.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ListFormat {
    Csv,
    Json,
}

/// What to do if a SUPI already exists.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Existing {
    Refuse,
    Replace,
    Skip,
}

pub(crate) fn run(command: SubscriberCommand) -> Done {
    use SubscriberCommand as C;
    match command {
        C::Add { supi, fields, config } => {
            add(&mut open(&config, "add", &[supi])?, supi, &fields, served(&config)?)
        }
        C::Show { supi, secrets, config } => {
            let what = if secrets { "show with keys" } else { "show" };
            show(&mut open_current(&config, what, &[supi])?, supi, secrets)
        }
        C::List { json, config } => list(&mut open_current(&config, "list", &[])?, json),
        C::Edit { supi, fields, add_slice, config } => {
            edit(&mut open(&config, "edit", &[supi])?, supi, &fields, &add_slice)
        }
        C::Remove { supis, config } => remove(&mut open(&config, "remove", &supis)?, &supis),
        C::Import { file, format, on_existing, config } => {
            import(&mut open(&config, "import", &[])?, &file, format, on_existing, served(&config)?)
        }
        C::Export { file, format, secrets, config } => {
            let what = if secrets { "export with keys" } else { "export" };
            export(&mut open_current(&config, what, &[])?, file.as_deref(), format, secrets)
        }
    }
}

impl From<Existing> for OnExisting {
    fn from(existing: Existing) -> Self {
        match existing {
            Existing::Refuse => OnExisting::Refuse,
            Existing::Replace => OnExisting::Replace,
            Existing::Skip => OnExisting::Skip,
        }
    }
}

/// Opens the store, and records the access.
pub(super) fn open(file: &ConfigFile, what: &str, subjects: &[Supi]) -> Result<Store, String> {
    let (config, _) = config::load(file.config_file.as_deref()).map_err(|e| e.to_string())?;
    let store = subscribers::open(&config.store)?;
    let (caller, request) = (audit::user(), format!("subscriber {what}"));
    let record = |subscriber: Option<&str>| {
        let access =
            AuditedAccess { caller: &caller, user: None, request: &request, subscriber, outcome: "begun" };
        audit::record(&config.store.path, &config.audit, Some(&store), &access);
    };
    subjects.iter().for_each(|supi| record(Some(&supi.to_string())));
    if subjects.is_empty() {
        record(None);
    }
    Ok(store)
}

/// Opens the store for reading. If it is a replica whose database does not answer, what it has is shown, with a warning.
fn open_current(file: &ConfigFile, what: &str, subjects: &[Supi]) -> Result<Store, String> {
    let mut store = open(file, what, subjects)?;
    if let Err(e) = store.catch_up() {
        eprintln!("{e}; what follows is what this host had last");
    }
    Ok(store)
}

/// The PLMN that the core serves.
pub(super) fn served(file: &ConfigFile) -> Result<PlmnId, String> {
    let (config, _) = config::load(file.config_file.as_deref()).map_err(|e| e.to_string())?;
    Ok(config.amf.plmn)
}

fn sentence(e: StoreError) -> String {
    e.to_string()
}

/// The JSON form of what was named on the command line.
fn fields_of(fields: &Fields) -> Result<Map<String, Value>, String> {
    let mut map = Map::new();
    let named = [
        ("k", &fields.k),
        ("opc", &fields.opc),
        ("op", &fields.op),
        ("topc", &fields.topc),
        ("top", &fields.top),
        ("auth", &fields.auth),
        ("amf", &fields.amf),
        ("status", &fields.status),
        ("msisdn", &fields.msisdn),
    ];
    map.extend(named.into_iter().filter_map(|(name, value)| Some((name.into(), json!(value.as_ref()?)))));
    if !fields.slice.is_empty() {
        let slices = fields.slice.iter().map(|text| slice(text)).collect::<Result<Vec<_>, _>>()?;
        map.insert("subscription".into(), json!({ "slices": slices }));
    }
    if let Some(text) = &fields.set {
        match serde_json::from_str(text) {
            Ok(Value::Object(more)) => map.extend(more),
            Ok(_) => return Err("--set takes a JSON object, such as '{\"status\": \"barred\"}'".into()),
            Err(e) => return Err(format!("--set is not JSON: {e}")),
        }
    }
    Ok(map)
}

fn slice(text: &str) -> Result<Value, String> {
    let (slice, dnns) = text.split_once('=').unwrap_or((text, "internet"));
    let slice: SNssai = slice.parse().map_err(|e| format!("--slice {text}: {e}"))?;
    let dnns = dnns.split(',').enumerate().map(|(i, dnn)| {
        let dnn: Dnn = dnn.trim().parse().map_err(|e| format!("--slice {text}: {e}"))?;
        Ok(json!({ "dnn": dnn.as_str(), "default": i == 0 }))
    });
    let dnns = dnns.collect::<Result<Vec<_>, String>>()?;
    Ok(json!({ "s_nssai": slice.to_string(), "dnns": dnns }))
}

/// The slices of a subscriber with further ones, or with further data networks in those that are there.
fn with_slices(present: &SubscriberRecord, added: &[String]) -> Result<Value, String> {
    let mut slices = serde_json::to_value(&present.subscription.slices).map_err(|e| e.to_string())?;
    let Value::Array(all) = &mut slices else { return Err("the subscriber's slices cannot be read".into()) };
    for text in added {
        let more = slice(text).map_err(|e| e.replacen("--slice", "--add-slice", 1))?;
        let Some(there) = all.iter_mut().find(|s| s["s_nssai"] == more["s_nssai"]) else {
            all.push(more);
            continue;
        };
        let (Value::Array(dnns), Value::Array(more)) = (&mut there["dnns"], &more["dnns"]) else { continue };
        for dnn in more {
            if !dnns.iter().any(|d| d["dnn"] == dnn["dnn"]) {
                dnns.push(json!({ "dnn": dnn["dnn"] }));
            }
        }
    }
    Ok(slices)
}

fn add(store: &mut Store, supi: Supi, fields: &Fields, served: PlmnId) -> Done {
    let mut map = fields_of(fields)?;
    if !map.contains_key("k") {
        return Err("the permanent key is missing: give --k with the 32 hexadecimal digits of the SIM".into());
    }
    if !["opc", "op", "topc", "top"].iter().any(|name| map.contains_key(*name)) {
        return Err("OPc is missing: give --opc with the 32 hexadecimal digits of the SIM; or --op, the operator's constant, \
                    from which OPc is derived (TS 35.206 §8.2)"
            .into());
    }
    map.insert("supi".into(), json!(supi.to_string()));
    let record = subscribers::record_of(Value::Object(map))?;
    store.add(&record).map_err(sentence)?;
    if !subscribers::is_of(supi, served) {
        eprintln!("{}", other_plmn(supi, 1, served));
    }
    print(&format!("{supi} was added\n"))
}

fn edit(store: &mut Store, supi: Supi, fields: &Fields, add_slice: &[String]) -> Done {
    let mut map = fields_of(fields)?;
    if !add_slice.is_empty() {
        let present =
            store.get(supi).map_err(sentence)?.ok_or_else(|| sentence(StoreError::Unknown(supi)))?;
        let slices = with_slices(&present, add_slice)?;
        let subscription = map.entry("subscription").or_insert_with(|| json!({}));
        subscription["slices"] = slices;
    }
    if map.is_empty() {
        return Err("no change was given: see `whimbrel subscriber edit --help`".into());
    }
    let record = subscribers::patch(store, supi, &map, None).map_err(|e| e.to_string())?;
    print(&format!("{supi} was changed\n"))?;
    print_json(&serde_json::to_value(&record).unwrap_or_default())
}

fn show(store: &mut Store, supi: Supi, secrets: bool) -> Done {
    let record = store.get(supi).map_err(sentence)?.ok_or_else(|| sentence(StoreError::Unknown(supi)))?;
    let value =
        if secrets { serde_json::to_value(WithSecrets(&record)) } else { serde_json::to_value(&*record) };
    print_json(&value.map_err(|e| e.to_string())?)
}

fn list(store: &mut Store, json: bool) -> Done {
    let mut after = None;
    let mut headed = false;
    loop {
        let page = store.list(after, PAGE).map_err(sentence)?;
        let Some(last) = page.last() else { break };
        after = Some(last.supi);
        if json {
            let lines: String =
                page.iter().map(|r| serde_json::to_string(r).unwrap_or_default() + "\n").collect();
            print(&lines)?;
            continue;
        }
        let rows: Vec<Vec<String>> = page.iter().map(row).collect();
        let text = table(&["SUPI                 ", "STATUS  ", "MSISDN         ", "SLICES AND DNNS"], &rows);
        print(if headed { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text })?;
        headed = true;
    }
    if after.is_none() && !json { print("There are no subscribers.\n") } else { Ok(()) }
}

fn row(record: &SubscriberRecord) -> Vec<String> {
    let slices = record.subscription.slices.iter().map(|s| {
        let dnns: Vec<&str> = s.dnns.iter().map(|d| d.dnn.as_str()).collect();
        format!("{}={}", s.s_nssai, dnns.join(","))
    });
    let msisdn = record.msisdn.as_ref().map(|m| m.digits().to_string()).unwrap_or_default();
    vec![record.supi.to_string(), record.status.to_string(), msisdn, slices.collect::<Vec<_>>().join(" ")]
}

fn remove(store: &mut Store, supis: &[Supi]) -> Done {
    for &supi in supis {
        store.remove(supi).map_err(sentence)?;
        print(&format!("{supi} was removed\n"))?;
    }
    Ok(())
}

fn import(
    store: &mut Store,
    file: &Path,
    format: Option<ListFormat>,
    on_existing: Existing,
    served: PlmnId,
) -> Done {
    let mut input: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let opened = whimbrel_files::open_bounded(file, whimbrel_files::LIST_OCTETS_MAX)
            .map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
        Box::new(BufReader::with_capacity(256 << 10, opened))
    };
    let format = match format {
        Some(ListFormat::Csv) => Format::Csv,
        Some(ListFormat::Json) => Format::Json,
        None => Format::detect(&mut input).map_err(|e| format!("{} cannot be read: {e}", file.display()))?,
    };
    let shown = std::io::stderr().is_terminal();
    let (mut count, mut of_others, mut first_of_others) = (0u64, 0u64, None);
    let mut each = |supi| {
        count += 1;
        if !subscribers::is_of(supi, served) {
            of_others += 1;
            first_of_others.get_or_insert(supi);
        }
        if shown && count.is_multiple_of(PROGRESS_STEP) {
            eprint!("\r{count} lines read");
        }
    };
    let done = store.import(input, format, on_existing.into(), &mut each);
    if shown {
        eprintln!("\r{count} lines read");
    }
    let done = done.map_err(|e| match e {
        StoreError::Import(lines) => {
            let lines: String = lines.iter().map(|l| format!("\n  {l}")).collect();
            format!("nothing was imported from {}:{lines}", file.display())
        }
        other => sentence(other),
    })?;
    if !done.ignored_columns.is_empty() {
        eprintln!("columns not imported: {}", done.ignored_columns.join(", "));
    }
    if let Some(supi) = first_of_others {
        eprintln!("{}", other_plmn(supi, of_others, served));
    }
    print(&format!("{} added, {} replaced, {} skipped\n", done.added, done.replaced, done.skipped))
}

/// The warning about subscribers whose IMSIs do not begin with the PLMN that the core serves.
pub(super) fn other_plmn(supi: Supi, count: u64, served: PlmnId) -> String {
    let subject = match count {
        1 => format!("the IMSI of {supi} does"),
        n => format!("{n} IMSIs, the first of them {supi}, do"),
    };
    format!(
        "warning: {subject} not begin with {served}, the PLMN that this core serves: a UE of another PLMN registers here only \
         if its SIM lets it select {served}; check the IMSI, or `plmn` in the configuration"
    )
}

fn export(store: &mut Store, file: Option<&Path>, format: Option<ListFormat>, secrets: bool) -> Done {
    let secrets = if secrets { Secrets::Include } else { Secrets::Omit };
    let format = list_format(file, format);
    let Some(file) = file else {
        store.export(&mut std::io::stdout().lock(), format, secrets).map_err(sentence)?;
        return Ok(());
    };
    let cannot = |e: std::io::Error| format!("{} cannot be written: {e}", file.display());
    let made =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file).map_err(cannot)?;
    let mut out = BufWriter::new(made);
    let count = store.export(&mut out, format, secrets).map_err(sentence)?;
    out.flush().map_err(cannot)?;
    print(&format!("{count} subscribers were exported to {}\n", file.display()))
}

fn list_format(file: Option<&Path>, named: Option<ListFormat>) -> Format {
    let is_csv = file.and_then(Path::extension).is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    match named {
        Some(ListFormat::Csv) => Format::Csv,
        Some(ListFormat::Json) => Format::Json,
        None if is_csv => Format::Csv,
        None => Format::Json,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const K: &str = "465b5ce8 b199b49f aa5f0a2e e238a6bc";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        fields: Fields,
    }

    fn fields(words: &[&str]) -> Fields {
        Line::parse_from(["add"].iter().chain(words)).fields
    }

    #[test] // TS 35.206 §8.2: OPc of OP
    fn a_subscriber_without_opc_is_refused_and_both_options_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("s.db"), &folder.path().join("s.key")).unwrap();
        let (supi, plmn) = ("999700000000001".parse().unwrap(), PlmnId::TEST);
        let e = add(&mut store, supi, &fields(&["--k", K]), plmn).unwrap_err();
        assert!(e.contains("--opc ") && e.contains("--op,") && e.contains("TS 35.206"), "{e}");
        let e = add(&mut store, supi, &fields(&["--opc", K]), plmn).unwrap_err();
        assert!(e.contains("--k "), "{e}");
        add(&mut store, supi, &fields(&["--k", K, "--op", K]), plmn).unwrap();
        assert!(matches!(
            store.get(supi).unwrap().unwrap().operator_code,
            whimbrel_store::OperatorCode::Op(_)
        ));
    }

    #[test]
    fn the_warning_about_another_plmn_names_the_subscriber_and_the_served_plmn() {
        let supi: Supi = "001010000000002".parse().unwrap();
        assert!(
            !subscribers::is_of(supi, PlmnId::TEST) && subscribers::is_of(supi, "001/01".parse().unwrap())
        );
        for (count, subject) in
            [(1, "the IMSI of imsi-001010000000002"), (3, "3 IMSIs, the first of them imsi-")]
        {
            let warning = other_plmn(supi, count, PlmnId::TEST);
            assert!(warning.contains(subject) && warning.contains("999/70"), "{warning}");
        }
    }

    #[test]
    fn a_slice_is_added_beside_the_present_ones_and_a_dnn_to_its_slice() {
        let record = subscribers::record_of(json!({
            "supi": "imsi-999700000000001",
            "k": "00112233445566778899aabbccddeeff",
            "opc": "00112233445566778899aabbccddeeff",
            "subscription": { "slices": [{ "s_nssai": "1", "dnns": [{ "dnn": "internet", "default": true, "five_qi": 8 }] }] },
        }));
        let added = with_slices(&record.unwrap(), &["2-0000ab=ims".into(), "1=ims,internet".into()]).unwrap();
        let names = |i: usize| -> Vec<&str> {
            added[i]["dnns"].as_array().unwrap().iter().map(|d| d["dnn"].as_str().unwrap()).collect()
        };
        assert_eq!((names(0), names(1)), (vec!["internet", "ims"], vec!["ims"]));
        assert_eq!(added[0]["dnns"][0]["five_qi"], 8, "what was there stays");
        assert_eq!(added[1]["s_nssai"], "2-0000ab");
    }
}
