//! Users and API tokens, in a file that only the core's own user can read.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::password::PasswordHash;
use super::totp::Totp;
use super::{Scope, UserRole};

/// Users and tokens at most: a company's operators, with room.
pub(super) const USERS_MAX: usize = 256;
pub(super) const TOKENS_MAX: usize = 256;

/// Octets of the file: 256 users with the hashes of their former passwords, and as many tokens, have a tenth.
const FILE_OCTETS_MAX: u64 = 4 << 20;

/// A user of the console.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StoredAccounts {
    users: Vec<ConsoleUser>,
    tokens: Vec<ApiToken>,
}

/// The file and what it holds.
pub(super) struct Accounts {
    file: PathBuf,
    kept: Option<StoredAccounts>,
}

impl Accounts {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, kept: None }
    }

    /// Reads the file at first use. Errors: one sentence; then only this host's commands are served.
    pub(super) fn load(&mut self) -> Result<(), String> {
        if self.kept.is_some() {
            return Ok(());
        }
        let kept = match whimbrel_files::read(&self.file, FILE_OCTETS_MAX) {
            Ok(octets) => serde_json::from_slice(&octets)
                .map_err(|e| format!("{} does not hold users: {e}", self.file.display()))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => StoredAccounts::default(),
            Err(e) => return Err(format!("{} cannot be read: {e}", self.file.display())),
        };
        self.kept = Some(kept);
        Ok(())
    }

    pub(super) fn users(&self) -> &[ConsoleUser] {
        self.kept.as_ref().map(|k| k.users.as_slice()).unwrap_or_default()
    }

    pub(super) fn tokens(&self) -> &[ApiToken] {
        self.kept.as_ref().map(|k| k.tokens.as_slice()).unwrap_or_default()
    }

    pub(super) fn user(&self, name: &str) -> Option<&ConsoleUser> {
        self.users().iter().find(|u| u.name == name)
    }

    /// Changes the users and tokens, and the file with them. Errors: one sentence; nothing is changed then.
    pub(super) fn change(
        &mut self,
        change: impl FnOnce(&mut Vec<ConsoleUser>, &mut Vec<ApiToken>),
    ) -> Result<(), String> {
        self.load()?;
        let mut kept = self.kept.clone().unwrap_or_default();
        change(&mut kept.users, &mut kept.tokens);
        self.write(&kept).map_err(|e| format!("{} cannot be written: {e}", self.file.display()))?;
        self.kept = Some(kept);
        Ok(())
    }

    /// Changes the users and tokens until the process ends; the file gets it with the next change that can be written.
    pub(super) fn change_in_memory(
        &mut self,
        change: impl FnOnce(&mut Vec<ConsoleUser>, &mut Vec<ApiToken>),
    ) {
        if let Some(kept) = &mut self.kept {
            change(&mut kept.users, &mut kept.tokens);
        }
    }

    /// All or nothing: a full disk or a crash leaves the file as it was.
    fn write(&self, kept: &StoredAccounts) -> std::io::Result<()> {
        let mut new = self.file.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let _ = fs::remove_file(&new);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(kept)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn accounts_are_read_back_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.db.accounts");
        let mut accounts = Accounts::new(file.clone());
        accounts.change(|users, _| users.push(anna())).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let mut again = Accounts::new(file.clone());
        again.load().unwrap();
        assert!(again.user("anna").is_some_and(|u| u.password.fits("correct horse")));
        fs::write(&file, "{").unwrap();
        assert!(Accounts::new(file).load().unwrap_err().contains("does not hold users"));
    }

    #[test]
    fn a_change_that_cannot_be_written_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let mut accounts = Accounts::new(folder.path().join("none/s.db.accounts"));
        assert!(accounts.change(|users, _| users.push(anna())).unwrap_err().contains("cannot be written"));
        assert!(accounts.users().is_empty());
    }

    #[test]
    fn a_change_in_memory_is_written_with_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.db.accounts");
        let mut accounts = Accounts::new(file.clone());
        accounts.change(|users, _| users.push(anna())).unwrap();
        accounts.change_in_memory(|users, _| users[0].created = "later".into());
        assert_eq!(accounts.user("anna").unwrap().created, "later");
        let written = |file: &PathBuf| {
            let mut again = Accounts::new(file.clone());
            again.load().unwrap();
            again.user("anna").unwrap().created.clone()
        };
        assert_eq!(written(&file), "");
        accounts.change(|users, _| users[0].role = UserRole::Viewer).unwrap();
        assert_eq!(written(&file), "later");
    }
}
