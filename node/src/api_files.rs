//! Files of the API, which stand beside the store of subscribers.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file of the local token, with which commands of this host reach the core that has that store.
pub fn local_token_file(store: &Path) -> PathBuf {
    beside(store, ".token")
}

/// The file in which former releases had the users and tokens of the API.
pub fn accounts_file(store: &Path) -> PathBuf {
    beside(store, ".accounts")
}

/// The audit log.
pub fn audit_file(store: &Path) -> PathBuf {
    beside(store, ".audit")
}

/// The parts of an audit log that were set aside, with their numbers, oldest first.
pub fn audit_parts(file: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let prefix = format!("{}.", file.file_name().unwrap_or_default().to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.parse().ok()) {
            found.push((number, folder.join(&name)));
        }
    }
    found.sort();
    Ok(found)
}

/// The API's certificate chain, as PEM.
pub fn certificate_file(store: &Path) -> PathBuf {
    beside(store, ".api.crt")
}

/// The private key of the API's certificate, as PEM.
pub fn api_key_file(store: &Path) -> PathBuf {
    beside(store, ".api.key")
}

/// The accounts of the charging function, unless the configuration names another file.
pub fn charging_file(store: &Path) -> PathBuf {
    store.with_file_name("charging.db")
}

/// The path of a file whose name is the store's with a suffix.
pub fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
