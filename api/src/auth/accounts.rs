//! Users and API tokens, as sealed documents of the store. With `store.postgres` all homes have the same ones: they are read from this home's replica,
//! and changed in the database.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tracing::{info, warn};
use whimbrel_node::api_files::{accounts_file, beside};
use whimbrel_node::config::StoreConfig;
use whimbrel_node::subscribers;
use whimbrel_store::{DocumentChange, Store, StoreError};

use super::password::PasswordHash;
use super::totp::Totp;
use super::{Scope, UserRole};
use crate::problem::ProblemDetails;

/// Users and tokens at most: a company's operators, with room.
pub(super) const USERS_MAX: usize = 256;
pub(super) const TOKENS_MAX: usize = 256;

/// Octets of the file of former releases: 256 users with the hashes of their former passwords, and as many tokens, have a tenth.
const FILE_OCTETS_MAX: u64 = 4 << 20;

/// A user of the console.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ConsoleUser {
    pub(super) name: String,
    pub(super) role: UserRole,
    pub(super) password: PasswordHash,
    /// Former passwords, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) former: Vec<PasswordHash>,
    /// The second factor, if the user has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) totp: Option<Totp>,
    /// When it was made, RFC 3339.
    pub(super) created: String,
}

impl ConsoleUser {
    /// Sets a new password, and keeps `history` former ones.
    pub(super) fn set_password(&mut self, password: PasswordHash, history: usize) {
        self.former.insert(0, std::mem::replace(&mut self.password, password));
        self.former.truncate(history);
    }
}

/// An API token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ApiToken {
    pub(super) name: String,
    pub(super) scopes: Vec<Scope>,
    /// SHA-256 of the token, in hexadecimal digits: a token has 256 bits of its own, so no slow hash is needed.
    pub(super) digest: String,
    /// The name of the user that made it.
    pub(super) by: String,
    /// When, RFC 3339.
    pub(super) created: String,
}

/// All users and tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct AllAccounts {
    pub(super) users: Vec<ConsoleUser>,
    pub(super) tokens: Vec<ApiToken>,
}

/// The kinds of documents.
const USER: &str = "user";
const TOKEN: &str = "token";

impl AllAccounts {
    pub(super) fn user(&self, name: &str) -> Option<&ConsoleUser> {
        self.users.iter().find(|u| u.name == name)
    }

    pub(super) fn user_mut(&mut self, name: &str) -> Option<&mut ConsoleUser> {
        self.users.iter_mut().find(|u| u.name == name)
    }

    /// Those of a store, and their version. Errors: one of them cannot be read.
    fn read(store: &mut Store) -> Result<(i64, Self), StoreError> {
        fn parse<T: serde::de::DeserializeOwned>(
            kind: &str,
            name: &str,
            octets: &[u8],
        ) -> Result<T, StoreError> {
            serde_json::from_slice(octets).map_err(|_| StoreError::Unreadable(format!("{kind}:{name}")))
        }
        loop {
            let (at, users) = store.documents(USER)?;
            let (again, tokens) = store.documents(TOKEN)?;
            if at == again {
                let users =
                    users.iter().map(|(name, octets)| parse(USER, name, octets)).collect::<Result<_, _>>()?;
                let tokens = tokens
                    .iter()
                    .map(|(name, octets)| parse(TOKEN, name, octets))
                    .collect::<Result<_, _>>()?;
                return Ok((at, Self { users, tokens }));
            }
        }
    }

    /// The documents that differ from `before`.
    fn changes_since(&self, before: &Self) -> Result<Vec<DocumentChange>, serde_json::Error> {
        let mut changes = Vec::new();
        for user in self.users.iter().filter(|user| !before.users.contains(user)) {
            changes.push((format!("{USER}:{}", user.name), Some(serde_json::to_vec(user)?)));
        }
        for token in self.tokens.iter().filter(|token| !before.tokens.contains(token)) {
            changes.push((format!("{TOKEN}:{}", token.name), Some(serde_json::to_vec(token)?)));
        }
        let users = before.users.iter().filter(|b| self.user(&b.name).is_none());
        changes.extend(users.map(|user| (format!("{USER}:{}", user.name), None)));
        let tokens = before.tokens.iter().filter(|b| !self.tokens.iter().any(|t| t.name == b.name));
        changes.extend(tokens.map(|token| (format!("{TOKEN}:{}", token.name), None)));
        Ok(changes)
    }

    /// Adds those of another set whose names are not taken, and logs the others.
    fn add_missing(&mut self, others: Self, from: &std::path::Path, log: bool) {
        for user in others.users {
            match self.user(&user.name) {
                None => self.users.push(user),
                Some(own) if log && *own != user => warn!(
                    "the user {} of {} is another one than that of the store, which stays in force",
                    user.name,
                    from.display()
                ),
                Some(_) => {}
            }
        }
        for token in others.tokens {
            if !self.tokens.iter().any(|t| t.name == token.name) {
                self.tokens.push(token);
            }
        }
    }
}

/// The users and tokens in force, read from the store again whenever they have changed there.
pub(super) struct Accounts {
    config: StoreConfig,
    /// The store; reads alone go to it, which need no database.
    store: Option<Store>,
    /// The version of the documents that were read.
    version: Option<i64>,
    kept: AllAccounts,
    /// Second factors whose last code could not be written.
    used_codes: BTreeMap<String, Totp>,
}

impl Accounts {
    pub(super) fn new(config: StoreConfig) -> Self {
        Self { config, store: None, version: None, kept: AllAccounts::default(), used_codes: BTreeMap::new() }
    }

    /// Reads what has changed; returns the users whose password, role or second factor is another one, and those that are gone. Errors: one sentence; then only
    /// this host's commands are served.
    pub(super) fn load(&mut self) -> Result<Vec<String>, String> {
        let store = match &mut self.store {
            Some(store) => store,
            // A process without subscribers makes no store.
            None if !self.config.path.exists() && !accounts_file(&self.config.path).exists() => {
                return Ok(Vec::new());
            }
            none => none.insert(subscribers::open_with(&self.config.path, &self.config.key_in_force())?),
        };
        let version = store.documents_version().map_err(|e| e.to_string())?;
        if self.version == Some(version) {
            return Ok(Vec::new());
        }
        let (version, mut now) = AllAccounts::read(store).map_err(|e| e.to_string())?;
        let file = accounts_file(&self.config.path);
        if let Some(others) = of_file(&file)? {
            now.add_missing(others, &file, false);
        }
        self.used_codes.retain(|name, used| {
            let totp = now.user_mut(name).and_then(|user| user.totp.as_mut());
            totp.is_some_and(|totp| totp.take_over(used))
        });
        let is_same = |a: &ConsoleUser, b: &ConsoleUser| {
            (&a.password, a.role, a.totp.is_some()) == (&b.password, b.role, b.totp.is_some())
        };
        let changed =
            self.kept.users.iter().filter(|user| !now.user(&user.name).is_some_and(|n| is_same(n, user)));
        let changed = changed.map(|user| user.name.clone()).collect();
        (self.kept, self.version) = (now, Some(version));
        Ok(changed)
    }

    pub(super) fn users(&self) -> &[ConsoleUser] {
        &self.kept.users
    }

    pub(super) fn tokens(&self) -> &[ApiToken] {
        &self.kept.tokens
    }

    pub(super) fn user(&self, name: &str) -> Option<&ConsoleUser> {
        self.kept.user(name)
    }

    /// Remembers a code that is used, until the process ends or it is written. Returns false if it was used before.
    pub(super) fn use_code(&mut self, name: &str, used: &Totp) -> bool {
        let totp = self.kept.user_mut(name).and_then(|user| user.totp.as_mut());
        let is_new = totp.is_some_and(|totp| totp.use_step_of(used));
        if is_new {
            self.used_codes.insert(name.to_owned(), used.clone());
        }
        is_new
    }

    /// The store has a code.
    pub(super) fn code_is_written(&mut self, name: &str, used: &Totp) {
        if self.used_codes.get(name) == Some(used) {
            self.used_codes.remove(name);
        }
    }
}

/// The users and tokens in the file of a release that had no documents, if it is there.
fn of_file(file: &std::path::Path) -> Result<Option<AllAccounts>, String> {
    match whimbrel_files::read(file, FILE_OCTETS_MAX) {
        Ok(octets) => serde_json::from_slice(&octets)
            .map(Some)
            .map_err(|e| format!("{} does not hold users: {e}", file.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{} cannot be read: {e}", file.display())),
    }
}

/// Changes users and tokens; with `store.postgres`, at all homes. It blocks for some seconds where PostgreSQL does not answer.
pub(super) struct AccountsWriter {
    config: StoreConfig,
    store: Option<Store>,
}

impl AccountsWriter {
    pub(super) fn new(config: StoreConfig) -> Self {
        Self { config, store: None }
    }

    /// True if a former release has left its file of users.
    pub(super) fn has_former_file(&self) -> bool {
        accounts_file(&self.config.path).exists()
    }

    /// Has `change` change what the users and tokens are at this moment, all of it or nothing.
    ///
    /// Errors: those of `change`; another change at the same moment; the store or PostgreSQL fails, in one sentence.
    pub(super) fn change<R>(
        &mut self,
        change: impl FnOnce(&mut AllAccounts) -> Result<R, ProblemDetails>,
    ) -> Result<R, ProblemDetails> {
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(subscribers::open(&self.config).map_err(ProblemDetails::unavailable)?),
        };
        store.catch_up()?;
        let (seen, before) = AllAccounts::read(store)?;
        let mut now = before.clone();
        let file = accounts_file(&self.config.path);
        let of_file = of_file(&file).map_err(ProblemDetails::unavailable)?;
        let has_file = of_file.is_some();
        if let Some(others) = of_file {
            now.add_missing(others, &file, true);
        }
        let done = change(&mut now)?;
        let changes = now.changes_since(&before).map_err(|e| ProblemDetails::internal(e.to_string()))?;
        store.change_documents(seen, changes)?;
        if has_file {
            let to: PathBuf = beside(&file, ".imported");
            match fs::rename(&file, &to) {
                Ok(()) => info!("users and tokens of {} are in the store now", file.display()),
                Err(e) => warn!("{} is in the store now, and cannot be renamed: {e}", file.display()),
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn anna() -> ConsoleUser {
        let password = PasswordHash::of("correct horse").unwrap();
        ConsoleUser {
            name: "anna".into(),
            role: UserRole::Admin,
            password,
            former: Vec::new(),
            totp: None,
            created: String::new(),
        }
    }

    fn config(folder: &Path) -> StoreConfig {
        let mut config = whimbrel_node::config::default().store;
        (config.path, config.key_file) = (folder.join("s.db"), folder.join("s.key"));
        config
    }

    fn add(user: ConsoleUser) -> impl FnOnce(&mut AllAccounts) -> Result<(), ProblemDetails> {
        |all| {
            all.users.push(user);
            Ok(())
        }
    }

    #[test]
    fn accounts_are_read_back_by_another_reader_and_nothing_of_them_stands_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut reader = Accounts::new(config(folder.path()));
        assert_eq!(reader.load(), Ok(Vec::new()), "there is no store yet, and none is made");
        assert!(!folder.path().join("s.db").exists());
        let mut writer = AccountsWriter::new(config(folder.path()));
        writer.change(add(anna())).unwrap();
        reader.load().unwrap();
        assert!(reader.user("anna").is_some_and(|u| u.password.fits("correct horse")));
        for end in ["s.db", "s.db-wal"] {
            let octets = fs::read(folder.path().join(end)).unwrap();
            assert!(!octets.windows(8).any(|w| w == b"argon2id"), "{end}");
        }
        let viewer = |all: &mut AllAccounts| {
            all.user_mut("anna").unwrap().role = UserRole::Viewer;
            Ok(())
        };
        writer.change(viewer).unwrap();
        assert_eq!(reader.load(), Ok(vec!["anna".to_owned()]), "the sessions of a changed user end");
        assert_eq!(reader.load(), Ok(Vec::new()));
    }

    #[test]
    fn a_change_that_is_refused_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = AccountsWriter::new(config(folder.path()));
        let refused = writer.change(|all| {
            all.users.push(anna());
            Err::<(), _>(ProblemDetails::conflict("no"))
        });
        assert!(refused.is_err());
        let mut reader = Accounts::new(config(folder.path()));
        reader.load().unwrap();
        assert!(reader.users().is_empty());
    }

    #[test]
    fn a_code_that_could_not_be_written_stays_used_when_accounts_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut reader, mut writer) =
            (Accounts::new(config(folder.path())), AccountsWriter::new(config(folder.path())));
        let totp = Totp::new().unwrap();
        writer.change(add(ConsoleUser { totp: Some(totp.clone()), ..anna() })).unwrap();
        reader.load().unwrap();
        let used = totp.used_at(7);
        assert!(reader.use_code("anna", &used) && !reader.use_code("anna", &used), "a code works once");
        writer.change(add(ConsoleUser { name: "olaf".into(), ..anna() })).unwrap();
        assert_eq!(reader.load(), Ok(Vec::new()));
        assert!(reader.users().len() == 2 && reader.user("anna").unwrap().totp == Some(used));
    }

    #[test]
    fn users_of_a_former_release_log_in_at_once_and_move_to_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.db.accounts");
        let of_file = AllAccounts { users: vec![anna()], tokens: Vec::new() };
        fs::write(&file, serde_json::to_vec(&of_file).unwrap()).unwrap();
        let mut reader = Accounts::new(config(folder.path()));
        reader.load().unwrap();
        assert!(reader.user("anna").is_some());
        AccountsWriter::new(config(folder.path())).change(|_| Ok(())).unwrap();
        assert!(!file.exists() && folder.path().join("s.db.accounts.imported").exists());
        let mut again = Accounts::new(config(folder.path()));
        again.load().unwrap();
        assert!(again.user("anna").is_some());
        fs::write(&file, "{").unwrap();
        assert!(Accounts::new(config(folder.path())).load().unwrap_err().contains("does not hold users"));
    }
}
