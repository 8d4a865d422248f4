//! The runtime directory of a unit: what its manager leaves for the next one. It is on a file system that a reboot empties, as /run is.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use whimbrel_resilience::CodeVersion;

use super::Function;
use crate::entropy::SystemEntropy;

/// Longest path of the socket: that of `sockaddr_un`, less the closing zero.
const SOCKET_PATH_MAX: usize = 107;

/// A unit's runtime directory.
#[derive(Clone, Debug)]
pub struct UnitDirectory(PathBuf);

/// Held by the manager while it lives; the kernel releases it with the process.
pub struct ManagerLock(#[allow(dead_code, reason = "it is held")] File);

impl UnitDirectory {
    pub fn of(path: &Path) -> Self {
        Self(path.to_path_buf())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The manager's socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("manager")
    }

    /// The socket of this host's commands.
    pub fn api_socket(&self) -> PathBuf {
        self.0.join("api")
    }

    /// The key of the links between the functions.
    pub fn key_file(&self) -> PathBuf {
        self.0.join("links.key")
    }

    /// What the UPF reports to the CTAs.
    pub fn upf_report(&self) -> PathBuf {
        self.0.join("upf.report")
    }

    /// The sessions of the UPF.
    pub fn upf_state(&self) -> PathBuf {
        self.0.join("upf.state")
    }

    /// The socket of an end of N4 within the unit: `smf` or `upf`.
    pub fn n4(&self, end: &str) -> PathBuf {
        self.0.join(format!("n4.{end}"))
    }

    /// Where the UPF takes links for N4.
    fn upf_link(&self) -> PathBuf {
        self.0.join("upf.link")
    }

    /// The address at which the UPF takes links for N4, if it has written one.
    pub fn upf_link_at(&self) -> Option<SocketAddr> {
        fs::read_to_string(self.upf_link()).ok()?.parse().ok()
    }

    /// Writes the address at which this UPF takes links for N4. Errors: those of the file system.
    pub fn announce_upf_link(&self, at: SocketAddr) -> std::io::Result<()> {
        replace(&self.upf_link(), at.to_string().as_bytes())
    }

    /// Where the network functions of the unit write the addresses at which they take links, one file each.
    fn function_links(&self) -> PathBuf {
        self.0.join("links")
    }

    /// The network functions that have run, with the addresses at which they take links.
    pub fn function_links_at(&self) -> Vec<(Function, SocketAddr)> {
        let Ok(files) = fs::read_dir(self.function_links()) else { return Vec::new() };
        let of = |file: fs::DirEntry| {
            let function = file.file_name().to_str()?.parse().ok()?;
            Some((function, fs::read_to_string(file.path()).ok()?.parse().ok()?))
        };
        files.filter_map(|file| of(file.ok()?)).collect()
    }

    /// Writes the address at which a network function takes links. Errors: those of the file system.
    pub fn announce_function_link(&self, function: Function, at: SocketAddr) -> std::io::Result<()> {
        let folder = self.function_links();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        replace(&folder.join(function.to_string()), at.to_string().as_bytes())
    }

    /// Removes what [`Self::announce_function_link`] wrote: the function has left.
    pub fn withdraw_function_link(&self, function: Function) {
        // One that never ran has written none.
        let _ = fs::remove_file(self.function_links().join(function.to_string()));
    }

    /// Beside this file the primary CTA writes the associations of gNBs down.
    pub fn associations(&self) -> PathBuf {
        self.0.join("n2")
    }

    /// The last inputs of UEs, as the primary CTA notes them.
    pub fn last_inputs(&self) -> PathBuf {
        self.0.join("inputs")
    }

    /// The gNBs and UPFs of the primary CTA.
    fn peers(&self) -> PathBuf {
        self.0.join("peers")
    }

    /// Keeps what the primary CTA knows of its gNBs and UPFs, for one of the same code. Errors: those of the file system.
    pub fn keep_peers(&self, peers: &[u8]) -> std::io::Result<()> {
        replace(&self.peers(), &[format!("{}\n", CodeVersion::own()).as_bytes(), peers].concat())
    }

    /// What a CTA of this code has kept of them.
    pub fn kept_peers(&self) -> Option<Vec<u8>> {
        let octets = fs::read(self.peers()).ok()?;
        octets.strip_prefix(format!("{}\n", CodeVersion::own()).as_bytes()).map(<[u8]>::to_vec)
    }

    /// The processes that the manager has started.
    pub fn functions(&self) -> PathBuf {
        self.0.join("functions")
    }

    /// The canary under way.
    pub fn canary(&self) -> PathBuf {
        self.0.join("canary")
    }

    /// The records by which the functions agree.
    pub fn records(&self) -> PathBuf {
        self.0.join("records")
    }

    /// Removes what is of the functions that have run: none of them runs.
    pub fn clear(&self) {
        let associations = self.associations().with_extension("running");
        for file in [
            self.functions(),
            self.records(),
            self.canary(),
            self.socket(),
            self.api_socket(),
            self.upf_state(),
            self.upf_report(),
            self.upf_link(),
            self.n4("smf"),
            self.n4("upf"),
            self.last_inputs(),
            self.peers(),
            associations,
        ] {
            // One that is not there need not go.
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir_all(self.function_links());
    }

    /// The unit's token. Errors: one sentence.
    pub fn token(&self) -> Result<String, String> {
        let file = self.0.join("token");
        let text = fs::read_to_string(&file).map_err(|e| {
            format!("no unit runs with the directory {}: its token cannot be read: {e}", self.0.display())
        })?;
        Ok(text.trim_end().to_owned())
    }

    /// Makes the directory and its secrets where they are missing, and takes the manager's lock. Errors: one sentence.
    pub fn take(&self) -> Result<ManagerLock, String> {
        let wrong = |what: &str, e: &dyn std::fmt::Display| {
            format!(
                "{what} {} cannot be made: {e}; choose a directory that this user may write with `unit.directory`",
                self.0.display()
            )
        };
        if self.socket().as_os_str().len() > SOCKET_PATH_MAX {
            return Err(wrong("a socket in", &"the path is too long"));
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)
            .map_err(|e| wrong("the runtime directory", &e))?;
        let lock = self.0.join("lock");
        let mut lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&lock)
            .map_err(|e| wrong("a file in", &e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(self.0.join("lock")).unwrap_or_default();
                return Err(format!(
                    "another manager runs with the directory {} (process {}): stop it first, or choose another directory with \
                     `unit.directory`",
                    self.0.display(),
                    holder.trim()
                ));
            }
            Err(fs::TryLockError::Error(e)) => return Err(wrong("a lock in", &e)),
        }
        let written = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
        written.map_err(|e| wrong("a file in", &e))?;
        for secret in [self.0.join("token"), self.key_file()] {
            if !secret.exists() {
                let octets: [u8; 32] = SystemEntropy::new()?.octets();
                let text = octets.iter().fold(String::new(), |text, o| text + &format!("{o:02x}"));
                replace(&secret, (text + "\n").as_bytes()).map_err(|e| wrong("a file in", &e))?;
            }
        }
        Ok(ManagerLock(lock))
    }
}

/// Writes a file that its owner alone may read, as a whole or not at all. Errors: those of the file system.
pub fn replace(file: &Path, octets: &[u8]) -> std::io::Result<()> {
    let new = file.with_extension("new");
    let _ = fs::remove_file(&new);
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?.write_all(octets)?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_manager_holds_a_directory_and_the_next_one_finds_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let directory = UnitDirectory::of(&folder.path().join("unit"));
        assert!(directory.token().unwrap_err().contains("no unit runs"));
        let lock = directory.take().unwrap();
        let token = directory.token().unwrap();
        assert_eq!(token.len(), 64);
        let second = directory.take().err().unwrap();
        assert!(
            second.contains("another manager runs") && second.contains(&std::process::id().to_string()),
            "{second}"
        );
        drop(lock);
        let _lock = directory.take().unwrap();
        assert_eq!(directory.token().unwrap(), token);
        for name in ["token", "links.key"] {
            let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_reported_with_the_key_to_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = UnitDirectory::of(&file.join("unit")).take().err().unwrap();
        assert!(error.contains("cannot be made") && error.contains("`unit.directory`"), "{error}");
        let long = folder.path().join("x".repeat(120));
        assert!(UnitDirectory::of(&long).take().err().unwrap().contains("too long"));
    }
}
