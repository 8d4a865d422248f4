//! PostgreSQL's own server in a folder of its own, and homes that follow a database of it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use whimbrel_postgres::{PostgresDatabase, PostgresSettings};
use whimbrel_store::Store;

#[path = "../../../tests/common/mod.rs"]
mod store_common;

/// The folder of the store's crate, from this crate's.
pub(crate) const STORE_FOLDER: &str = "..";

pub(crate) use store_common::{csv, record};

/// The folder in which Debian has the programs of the server, the newest last.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|folder| folder.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

/// True if the tests can run; they pass without the server, and `./x test` says so.
pub(crate) fn is_installed() -> bool {
    programs().is_some()
}

/// A server of its own, which ends with this value or with the test.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    running: Option<Child>,
    /// Number in the name of its socket, and its TCP port if it listens.
    port: u16,
}

impl Server {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let server = Self { folder, running: None, port: 5432 };
        let data = server.data();
        server.done(
            "initdb",
            &["-D", &data, "-U", "whimbrel", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"],
        );
        server
    }

    /// A server that runs.
    pub(crate) fn started() -> Self {
        let mut server = Self::new();
        server.start(&[]);
        server
    }

    pub(crate) fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A program of the server, as a user other than root: it refuses to run as root.
    pub(crate) fn program(&self, name: &str) -> Command {
        self.as_user(&programs().unwrap().join(name))
    }

    /// A program that the server's user runs.
    pub(crate) fn as_user(&self, program: &Path) -> Command {
        let is_root =
            std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
        let mut command = match is_root {
            false => Command::new(program),
            true => {
                let mut as_other = Command::new("setpriv");
                as_other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
                as_other
            }
        };
        command.current_dir(self.folder.path()).env("PGHOST", self.folder.path()).env("PGUSER", "whimbrel");
        command.env("PGPORT", self.port.to_string());
        command
    }

    /// Runs a program of the server to its end.
    pub(crate) fn done(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.program(name).args(arguments).output().unwrap();
        assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn start(&mut self, settings: &[&str]) {
        if let Some(port) = settings.iter().find_map(|s| s.strip_prefix("port=")) {
            self.port = port.parse().unwrap();
        }
        let mut server = self.program("postgres");
        server.args(["-D", &self.data(), "-k", &self.folder.path().display().to_string()]);
        for setting in ["listen_addresses=", "fsync=off", "max_wal_senders=4"].iter().chain(settings) {
            server.args(["-c", setting]);
        }
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        // The shell kills the server when this process has ended, however it ends.
        let mut watched = Command::new("sh");
        watched
            .arg("-c")
            .arg("\"$@\" </dev/null & read x; kill -QUIT $!; wait")
            .arg("sh")
            .arg(server.get_program());
        watched.args(server.get_args()).current_dir(self.folder.path());
        watched.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        self.running = Some(watched.spawn().unwrap());
        while !self.program("pg_isready").stdout(Stdio::null()).status().unwrap().success() {
            assert_eq!(self.running.as_mut().unwrap().try_wait().unwrap(), None, "the server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the server, without a checkpoint.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(Path::new(&self.data()).join("postmaster.pid"));
    }

    /// Stops the server in order.
    pub(crate) fn stop(&mut self) {
        self.done("pg_ctl", &["stop", "-D", &self.data(), "-m", "fast"]);
        self.kill();
    }

    /// Runs SQL and returns its output.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        self.done("psql", &["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql])
    }

    pub(crate) fn url(&self, user: &str, database: &str) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgresql://{user}@{folder}/{database}")
    }

    pub(crate) fn settings(&self, database: &str) -> PostgresSettings {
        PostgresSettings { url: self.url("whimbrel", database), password_file: None, ca_file: None }
    }

    /// A connection of its own.
    pub(crate) fn database(&self, database: &str) -> PostgresDatabase {
        PostgresDatabase::new(self.settings(database)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A home: a file that follows a database.
pub(crate) struct Home {
    folder: tempfile::TempDir,
    settings: PostgresSettings,
}

/// The key file of all homes.
const KEY: &str = "abababababababababababababababababababababababababababababababab\n";

impl Home {
    pub(crate) fn new(settings: PostgresSettings) -> Self {
        Self::with_key(settings, KEY)
    }

    pub(crate) fn with_key(settings: PostgresSettings, key: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.key"), key).unwrap();
        std::fs::set_permissions(folder.path().join("s.key"), std::fs::Permissions::from_mode(0o600))
            .unwrap();
        Self { folder, settings }
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.folder.path().join("s.db")
    }

    /// The file alone, as a core without `store.postgres` opens it.
    pub(crate) fn alone(&self) -> Store {
        Store::open(&self.db(), &self.folder.path().join("s.key")).unwrap()
    }

    /// The file, following the database.
    pub(crate) fn store(&self) -> Store {
        let mut store = self.alone();
        store.follow(Box::new(PostgresDatabase::new(self.settings.clone()).unwrap())).unwrap();
        store
    }
}

/// The server that tests share which need none of their own, and a number for the next database in it.
fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(Server::started)
}

/// A new database of the shared server.
pub(crate) fn new_database() -> (&'static Server, String) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
    shared().sql("postgres", &format!("CREATE DATABASE {name}"));
    (shared(), name)
}

/// The folder of a store, as the tests of the store name it: here its store follows a new database.
pub(crate) struct Folder(Home);

impl Folder {
    pub(crate) fn new() -> Self {
        let (server, name) = new_database();
        Self(Home::new(server.settings(&name)))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.folder.path()
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.0.db()
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.0.folder.path().join("s.key")
    }

    pub(crate) fn store(&self) -> Store {
        self.0.store()
    }
}
