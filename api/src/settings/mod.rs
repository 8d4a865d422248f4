//! The configuration file through the API: shown, checked, changed, and its former versions.
//!
//! The file is the one source of truth. A change through the API writes the file and reloads it, so that it is the same as an edit on the
//! host followed by `whimbrel reload`; an edit on the host is seen at the next request and becomes a version of the history, too. Secrets in
//! the file are named, not shown (config/secrets.rs).

pub(super) mod history;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use hyper::header::{ETAG, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use self::history::{SettingsHistory, Version, VersionView};
use super::HandlerContext;
use super::input::{JsonBody, PathParts, RequiredIfMatch};
use super::problem::{LineProblem, ProblemDetails};
use super::routes::{HandlerResult, Json, RoutedRequest, TypedReply};
use whimbrel_node::config::{self, LoadError, secrets};
use whimbrel_node::observation::ConsoleCommand;
use whimbrel_store::Count;

/// The configuration file.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Configuration")]
pub(super) struct SettingsAnswer {
    /// Path of the configuration file.
    file: String,
    /// Its text, with `(secret N)` in place of secrets.
    text: String,
    /// The keys whose values in the file differ from those in force: they wait for the next start.
    kept: Vec<String>,
    /// Faults of the file, if it was changed on the host and cannot be used.
    problems: Vec<LineProblem>,
    /// The keys whose file was not opened, each with the file.
    not_checked: Vec<String>,
}

/// A text that is to be checked.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsDraft {
    /// The text; `(secret N)` stands for a secret of the file.
    text: String,
}

/// What a check found.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationCheck")]
pub(super) struct CheckAnswer {
    /// Faults of the text; if there are none, it can be saved.
    problems: Vec<LineProblem>,
    /// The keys whose change would wait for the next start.
    kept: Vec<String>,
    /// The keys whose file was not opened, since the running configuration does not name it, each with the file.
    not_checked: Vec<String>,
}

/// A change: a new text, or the number of a former version.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsChange {
    /// The new text; `(secret N)` keeps a secret.
    text: Option<String>,
    /// The number of the version to restore.
    version: Option<Count>,
}

/// A change that was made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationChange")]
pub(super) struct AppliedChange {
    /// The number of the version; `None` if the history could not be written.
    version: Option<u64>,
    /// The keys whose change waits for the next start.
    kept: Vec<String>,
    /// The keys whose file was not opened, since the running configuration does not name it: the next start reads them.
    not_checked: Vec<String>,
}

/// The defaults as text.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationDefaults")]
pub(super) struct Defaults {
    /// All keys with their defaults and reasons, as YAML.
    text: String,
}

/// The text of a former version.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationText")]
pub(super) struct FormerText {
    /// The text, with `(secret N)` in place of secrets.
    text: String,
}

/// Runs on a thread that may block, one request at a time.
async fn with_file<T: Send + 'static>(
    shared: &Arc<HandlerContext>,
    work: impl FnOnce(&HandlerContext, &Path) -> Result<T, ProblemDetails> + Send + 'static,
) -> Result<T, ProblemDetails> {
    let Some(file) = shared.file.clone() else {
        return Err(ProblemDetails::conflict(
            "the core runs with the defaults: write a configuration file (`whimbrel config` prints one) and start with -c FILE",
        ));
    };
    let shared = shared.clone();
    let done = tokio::task::spawn_blocking(move || {
        let _one_at_a_time = shared.settings.lock().unwrap_or_else(PoisonError::into_inner);
        work(&shared, &file)
    });
    done.await.map_err(|_| ProblemDetails::internal("the configuration could not be handled"))?
}

pub(super) async fn show(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<SettingsAnswer>> {
    let (settings, tag) = with_file(&shared, |shared, file| {
        let text = read(file)?;
        seen(shared, file, &text);
        let CheckAnswer { problems, kept, not_checked } = judged(shared, file, &text);
        let hidden = secrets::hidden(&text, file).map_err(|e| refused("the file cannot be shown", &e))?;
        Ok((
            SettingsAnswer { file: file.display().to_string(), text: hidden, kept, problems, not_checked },
            tag(&text),
        ))
    })
    .await?;
    Ok(TypedReply::json(&settings)?.header(ETAG, header(&tag)?))
}

pub(super) async fn defaults(_: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult<Json<Defaults>> {
    TypedReply::json(&Defaults { text: config::defaults() })
}

pub(super) async fn check(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    JsonBody(SettingsDraft { text }): JsonBody<SettingsDraft>,
) -> HandlerResult<Json<CheckAnswer>> {
    let checked = with_file(&shared, move |shared, file| {
        let former = read(file)?;
        Ok(match secrets::put_back(&text, &former, file) {
            Ok(text) => judged(shared, file, &text),
            Err(e) => CheckAnswer { problems: lines(&e), kept: Vec::new(), not_checked: Vec::new() },
        })
    });
    TypedReply::json(&checked.await?)
}

pub(super) async fn change(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    JsonBody(SettingsChange { text, version }): JsonBody<SettingsChange>,
    RequiredIfMatch(if_match): RequiredIfMatch,
) -> HandlerResult<Json<AppliedChange>> {
    let version = version.map(Count::value);
    let by = request.caller.as_ref().map(|c| c.name.clone()).unwrap_or_default();
    let (changed, config, tag) = with_file(&shared, move |shared, file| {
        let former = read(file)?;
        seen(shared, file, &former);
        if !if_match.split(',').any(|t| t.trim() == tag(&former)) {
            return Err(ProblemDetails::precondition_failed(
                "the configuration file was changed after you read it: read it again, and make your change to what it is now",
            ));
        }
        let history = SettingsHistory::of(&shared.config.store.path);
        let (text, how) = match (text, version) {
            (Some(text), None) => {
                let text = secrets::put_back(&text, &former, file);
                (text.map_err(|e| refused("the text cannot be saved", &e))?, "saved".to_string())
            }
            (None, Some(number)) => {
                (history.version(number).map_err(unreadable)?.ok_or_else(|| unknown(number))?.text, format!("version {number} restored"))
            }
            _ => return Err(ProblemDetails::bad_request("send either `text` or `version`")),
        };
        let config::CheckedConfig { config, not_checked } = config::check(&text, file, &shared.config);
        let config = config.map_err(|e| refused("the text is no usable configuration", &e))?;
        let config::ReloadedConfig { config, kept } = config::in_place_of(&shared.config, config);
        write(file, &text).map_err(|e| {
            ProblemDetails::conflict(format!(
                "{} cannot be written: {e}. Nothing was changed; change the file on the core's host, then run `whimbrel reload`",
                file.display()
            ))
        })?;
        let tag = tag(&text);
        // The file counts: it is in force although its history may lack it.
        let added = history.add(&by, &how, text);
        let version = added.inspect_err(|e| warn!("the history of the configuration cannot be written: {e}")).ok();
        Ok((AppliedChange { version, kept, not_checked }, config, tag))
    })
    .await?;
    // A core without a control thread reads the file at its next start.
    if shared.console.control().is_some() {
        shared.console.commands.send(ConsoleCommand::Reconfigure(Box::new(config)))?;
    }
    Ok(TypedReply::json(&changed)?.header(ETAG, header(&tag)?))
}

pub(super) async fn versions(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<Vec<VersionView>>> {
    let versions = with_file(&shared, |shared, file| {
        if let Ok(text) = read(file) {
            seen(shared, file, &text);
        }
        SettingsHistory::of(&shared.config.store.path).views().map_err(unreadable)
    });
    let versions: Vec<VersionView> = versions.await?;
    TypedReply::json(&versions)
}

/// A version of the configuration file.
#[derive(Deserialize, JsonSchema)]
pub(super) struct VersionPath {
    /// Number of the version.
    number: Count,
}

pub(super) async fn version(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<VersionPath>,
) -> HandlerResult<Json<FormerText>> {
    let number = path.number.value();
    let text = with_file(&shared, move |shared, file| {
        let found = SettingsHistory::of(&shared.config.store.path).version(number).map_err(unreadable)?;
        let Version { text, .. } = found.ok_or_else(|| unknown(number))?;
        secrets::hidden(&text, file).map_err(|e| refused("the version cannot be shown", &e))
    });
    TypedReply::json(&FormerText { text: text.await? })
}

fn unknown(number: u64) -> ProblemDetails {
    ProblemDetails::not_found(format!(
        "there is no version {number}; the newest {} are kept",
        history::VERSIONS_MAX
    ))
}

fn unreadable(e: std::io::Error) -> ProblemDetails {
    ProblemDetails::unavailable(format!("the history of the configuration cannot be read: {e}"))
}

fn header(tag: &str) -> Result<HeaderValue, ProblemDetails> {
    HeaderValue::try_from(tag).map_err(|e| ProblemDetails::internal(e.to_string()))
}

fn read(file: &Path) -> Result<String, ProblemDetails> {
    config::text_of(file).map_err(|e| ProblemDetails::conflict(e.to_string()))
}

/// A tag that changes with the text.
fn tag(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let first: String = digest.as_ref().iter().take(12).map(|o| format!("{o:02x}")).collect();
    format!("\"{first}\"")
}

/// What is wrong with a text, and what of it would wait for the next start.
fn judged(shared: &HandlerContext, file: &Path, text: &str) -> CheckAnswer {
    let config::CheckedConfig { config, not_checked } = config::check(text, file, &shared.config);
    match config {
        Ok(config) => {
            let kept = config::in_place_of(&shared.config, config).kept;
            CheckAnswer { problems: Vec::new(), kept, not_checked }
        }
        Err(e) => CheckAnswer { problems: lines(&e), kept: Vec::new(), not_checked },
    }
}

fn lines(e: &LoadError) -> Vec<LineProblem> {
    match e {
        LoadError::File(sentence) => vec![LineProblem { line: 1, problem: sentence.clone() }],
        LoadError::Problems(_, problems) => {
            let mut sorted: Vec<_> = problems.iter().collect();
            sorted.sort_by_key(|p| p.at);
            sorted
                .into_iter()
                .map(|p| LineProblem { line: p.at.line as u64, problem: p.to_string() })
                .collect()
        }
    }
}

fn refused(what: &str, e: &LoadError) -> ProblemDetails {
    let lines = lines(e);
    let first = lines.first().map(|l| format!(": line {}: {}", l.line, l.problem)).unwrap_or_default();
    ProblemDetails::unprocessable(format!("{what}{first}")).with_lines(lines)
}

/// Adds the file to the history if it was changed on the host.
fn seen(shared: &HandlerContext, file: &Path, text: &str) {
    let at = fs::metadata(file).and_then(|m| m.modified()).ok();
    if let Err(e) = SettingsHistory::of(&shared.config.store.path).found(text, at) {
        warn!("the history of the configuration cannot be written: {e}");
    }
}

/// All or nothing: a full disk or a crash leaves the file as it was. Owner and mode stay.
pub(super) fn write(file: &Path, text: &str) -> std::io::Result<()> {
    // A link stays a link.
    let file = fs::canonicalize(file)?;
    let former = fs::metadata(&file)?;
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let _ = fs::remove_file(&new);
    let written = (|| {
        let mode = former.permissions().mode() & 0o7777;
        let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        out.set_permissions(former.permissions())?;
        use std::os::unix::fs::MetadataExt;
        std::os::unix::fs::fchown(&out, Some(former.uid()), Some(former.gid()))?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&new, &file)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}
