//! Subscribers as the commands and the API handle them, over the store.

use std::path::Path;

use serde_json::{Map, Value};
use whimbrel_ids::{PlmnId, Supi};
use whimbrel_postgres::PostgresDatabase;
use whimbrel_store::{Store, StoreError, SubscriberRecord, WithSecrets};

use crate::config;

/// Opens the store that the configuration names, or makes it; with `store.postgres`, its changes go to that database. Errors: the store's sentence.
pub fn open(config: &config::StoreConfig) -> Result<Store, String> {
    let key = config.key_in_force();
    // The package's link to the credential of a service that is stopped: a new key would not be the store's.
    if key.is_symlink() && !key.exists() {
        return Err(format!(
            "the key {} is a credential of the service, which is not running: start it (`systemctl start whimbrel`), or give the command the \
             credential (docs/backup.md)",
            key.display()
        ));
    }
    let mut store = open_with(&config.path, &key)?;
    if let Some(settings) = &config.postgres {
        let database = PostgresDatabase::new(settings.clone())?;
        store.follow(Box::new(database)).map_err(|e| e.to_string())?;
    }
    Ok(store)
}

/// The name of this home for an operator.
pub fn home_name(config: &config::Config) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} at {}", config.amf.name, host.trim())
}

/// Why the database that several homes share cannot be read.
#[derive(Debug)]
pub enum NoDatabase {
    /// The configuration names none.
    NotConfigured,
    /// One sentence for the operator.
    Failed(String),
}

/// The database that the configuration names, with this home's replica, for what no replica has.
pub fn open_database(config: &config::StoreConfig) -> Result<(PostgresDatabase, Store), NoDatabase> {
    let settings = config.postgres.clone().ok_or(NoDatabase::NotConfigured)?;
    let replica = open(config).map_err(NoDatabase::Failed)?;
    Ok((PostgresDatabase::new(settings).map_err(NoDatabase::Failed)?, replica))
}

/// Opens a store with this key file.
pub fn open_with(path: &Path, key_file: &Path) -> Result<Store, String> {
    Store::open(path, key_file).map_err(|e| e.to_string())
}

/// Whether an IMSI begins with the digits of a PLMN (TS 23.003 §2.2).
pub fn is_of(supi: Supi, plmn: PlmnId) -> bool {
    supi.digits().zip(plmn.digits()).all(|(a, b)| a == b)
}

/// Why a change was not made.
#[derive(Debug)]
pub enum EditError {
    /// The store refused.
    Store(StoreError),
    /// What the subscriber would have become is not valid.
    Invalid(String),
}

impl std::fmt::Display for EditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EditError::Store(e) => e.fmt(f),
            EditError::Invalid(e) => write!(f, "the subscriber was not changed: {e}"),
        }
    }
}

/// A record of its JSON form. Errors: what is wrong, with no key in it.
pub fn record_of(value: Value) -> Result<SubscriberRecord, String> {
    serde_json::from_value(value).map_err(|e| e.to_string())
}

/// Changes a subscriber by a merge patch (RFC 7396) of its JSON form, and returns what it has become. `seen`: the record that the caller has seen, and
/// that it must still be.
pub fn patch(
    store: &mut Store,
    supi: Supi,
    patch: &Map<String, Value>,
    seen: Option<&SubscriberRecord>,
) -> Result<SubscriberRecord, EditError> {
    // The keys go together: setting one of OP, OPc, TOP and TOPc removes the others and sets the algorithm.
    let mut patch = patch.clone();
    const CODES: [&str; 4] = ["op", "opc", "top", "topc"];
    if let Some(one) = CODES.into_iter().find(|code| patch.get(*code).is_some_and(Value::is_string)) {
        for other in CODES.into_iter().filter(|code| *code != one).chain(["algorithm"]) {
            patch.entry(other).or_insert(Value::Null);
        }
    }
    let patch = Value::Object(patch);
    let mut problem = None;
    // Within the store's transaction, so that a resynchronisation meanwhile is not undone.
    let edited = store.edit(supi, |record| match patched(record, &patch) {
        _ if seen.is_some_and(|seen| *seen != *record) => {
            problem = Some(EditError::Store(StoreError::ChangedMeanwhile(supi)));
        }
        Ok(new) => *record = new,
        Err(e) => problem = Some(EditError::Invalid(e)),
    });
    match (problem, edited) {
        (Some(e), _) => Err(e),
        (None, Ok(record)) => Ok((*record).clone()),
        (None, Err(e)) => Err(EditError::Store(e)),
    }
}

fn patched(record: &SubscriberRecord, patch: &Value) -> Result<SubscriberRecord, String> {
    let mut value = serde_json::to_value(WithSecrets(record)).map_err(|e| e.to_string())?;
    merge(&mut value, patch);
    record_of(value)
}

/// RFC 7396 §2: `null` removes, maps merge, all else replaces.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test] // RFC 7396 Appendix A
    fn merge_patch() {
        for (mut target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            merge(&mut target, &patch);
            assert_eq!(target, result);
        }
    }
}
