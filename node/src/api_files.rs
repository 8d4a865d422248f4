//! Files of the API, which stand beside the store of subscribers.

use std::path::{Path, PathBuf};

/// The file of the local token, with which commands of this host reach the core that has that store.
pub fn local_token_file(store: &Path) -> PathBuf {
    beside(store, ".token")
}

/// The file with the users and tokens of the API.
pub fn accounts_file(store: &Path) -> PathBuf {
    beside(store, ".accounts")
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
