//! The program around the core: its store, its API, its logs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use whimbrel_postgres::PostgresSettings;
use whimbrel_security::SqnSlot;

use super::section::Section;
use super::value::{Value, words};

/// The subscriber store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    pub path: PathBuf,
    pub key_file: PathBuf,
    pub keep_ues: KeepUes,
    /// The IND of this core's SQNs, if several cores have the same subscribers.
    pub sqn_slot: Option<SqnSlot>,
    /// The database that takes all changes, of which the file is then a replica.
    pub postgres: Option<PostgresSettings>,
}

/// The name of the credential that has the key of the subscribers.
const KEY_CREDENTIAL: &str = "whimbrel.key";

impl StoreConfig {
    /// The credential that the service manager gives this process, if it gives one: systemd's, or a mounted Secret of Kubernetes.
    pub fn credential(&self) -> Option<PathBuf> {
        let folder = PathBuf::from(std::env::var_os("CREDENTIALS_DIRECTORY")?);
        Some(folder.join(KEY_CREDENTIAL)).filter(|file| file.exists())
    }

    /// The file with the key: the credential, else the configured file.
    pub fn key_in_force(&self) -> PathBuf {
        self.credential().unwrap_or_else(|| self.key_file.clone())
    }

    /// Says how the key can be kept apart, if it is in the folder of what it encrypts: a copy of the folder then has both.
    pub fn key_beside_database(&self) -> Option<String> {
        let key = self.key_in_force();
        let folder = |file: &Path| std::path::absolute(file).ok()?.parent()?.canonicalize().ok();
        let is_own_file = !std::fs::symlink_metadata(&key).is_ok_and(|found| found.is_symlink());
        (is_own_file && folder(&key).is_some() && folder(&key) == folder(&self.path)).then(|| {
            format!(
                "the key file {} is in the folder of the subscribers that it encrypts, so that a copy of the folder has both: docs/backup.md \
                 says how to keep it as a credential",
                key.display()
            )
        })
    }
}

/// When UEs are written to the disk, so that they stay registered through a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepUes {
    Never,
    OnStop,
    Always,
}

/// The HTTP API.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    pub address: SocketAddr,
    pub metrics: bool,
    /// Memory for the UEs' signalling, in MiB.
    pub signalling_mib: u32,
    /// Without a request for this long, a user's session ends.
    pub session_idle: Duration,
    /// Failed logins of a source before it has to wait.
    pub login_failures: u8,
    /// Former passwords that a new one must differ from.
    pub password_history: u8,
    pub second_factor: SecondFactor,
}

/// The second factor of users' logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondFactor {
    Off,
    Optional,
    Required,
}

words! { SecondFactor {
    SecondFactor::Off = "off", SecondFactor::Optional = "optional", SecondFactor::Required = "required",
} }

/// What is logged, and how.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
    pub supi: bool,
}

/// Levels of logging: error, an operator must act; warn, a peer broke the protocol; info, life of a function or an
/// association; debug, steps of procedures; trace, messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
}

/// Where traces of procedures go.
#[derive(Clone, Debug)]
pub struct Otlp {
    pub endpoint: Option<HttpEndpoint>,
    /// The CA certificates that sign the collector's certificate, as PEM: read with `https` alone.
    pub ca_file: PathBuf,
    pub service_name: String,
}

/// `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpEndpoint {
    /// True with `https`.
    pub has_tls: bool,
    /// Host and port, as HTTP's Host header has them.
    pub authority: String,
}

impl HttpEndpoint {
    /// The host alone, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }
}

impl Value for HttpEndpoint {
    fn read(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.trim().split_once("://").unwrap_or_default();
        let authority = matches!(scheme, "http" | "https").then(|| rest.trim_end_matches('/'));
        let is_good = |a: &&str| {
            let port = a
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
            port && !a.contains(['/', '@', '?', '#', ' '])
        };
        let authority = authority.filter(is_good).map(str::to_owned);
        authority.map(|authority| Self { has_tls: scheme == "https", authority }).ok_or_else(|| {
            "the address of a collector, such as http://127.0.0.1:4318 or https://collector.example.net:4318".into()
        })
    }

    fn show(&self) -> String {
        format!("{}://{}", if self.has_tls { "https" } else { "http" }, self.authority)
    }
}

/// Forms of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

words! { LogLevel {
    LogLevel::Error = "error", LogLevel::Warn = "warn", LogLevel::Info = "info", LogLevel::Debug = "debug",
    LogLevel::Trace = "trace",
} }
words! { KeepUes { KeepUes::Never = "never", KeepUes::OnStop = "on-stop", KeepUes::Always = "always", } }
words! { LogFormat { LogFormat::Text = "text", LogFormat::Json = "json", } }

pub(super) fn store(root: &mut Section<'_, '_>) -> StoreConfig {
    root.section("store", "Subscriber store: an SQLite file, and a key file with which the subscribers' keys are encrypted.", |s| StoreConfig {
        postgres: postgres(s),
        sqn_slot: sqn_slot(s),
        path: s.value("path", "whimbrel.db".into(), "Database file, created if missing, readable by its owner only."),
        key_file: s.value(
            "key_file",
            "whimbrel.key".into(),
            "Key file, created with the database, unless `$CREDENTIALS_DIRECTORY` has a credential `whimbrel.key` (docs/backup.md). If it is lost, so are \
             the subscribers' keys: keep a copy elsewhere.",
        ),
        keep_ues: s.value(
            "keep_ues",
            KeepUes::OnStop,
            "When registered UEs and their sessions are written beside the database, encrypted, for the next start (docs/unit.md): never; on-stop, when \
             the core is stopped in order; or always, which also keeps them when it is killed.",
        ),
    })
}

fn sqn_slot(s: &mut Section<'_, '_>) -> Option<SqnSlot> {
    let slot: Option<u8> = s.optional(
        "sqn_slot",
        "0",
        "IND of the SQNs of this core, 0 to 31: each core (or pair of CTAs) of the same subscribers has another one, so that clocks that differ cost no \
         resynchronisation (TS 33.102 Annex C.2.2). Without it a core with `store.postgres` leases one, and IND rotates in others.",
    );
    let found = slot.and_then(SqnSlot::new);
    let what = format!("IND has 5 bits, and {} does not fit", slot.unwrap_or_default());
    s.bound("sqn_slot", slot.is_none() || found.is_some(), what, "0 to 31");
    found
}

fn postgres(s: &mut Section<'_, '_>) -> Option<PostgresSettings> {
    let url: Option<String> = s.optional(
        "postgres",
        "postgresql://whimbrel@db1.example,db2.example/whimbrel",
        "PostgreSQL database of several homes (docs/postgres.md): it takes all changes of subscribers, and `path` is this home's replica, from which all UEs \
         are served. Of several hosts, the one that can be written to is used. All homes need the same `key_file`.",
    );
    let password_file = s.optional(
        "postgres_password_file",
        "/etc/whimbrel/postgres.password",
        "File with the password of that user, read at each connection. In it rather than in the URL, the password is in no backup of the configuration.",
    );
    let ca_file: Option<PathBuf> = s.optional(
        "postgres_ca_file",
        "/etc/whimbrel/postgres-ca.pem",
        "CA certificates that PostgreSQL's certificate is verified with, as PEM; with it the connection uses TLS. Needed unless all hosts are loopback \
         addresses or Unix sockets.",
    );
    let Some(url) = url else {
        if password_file.is_some() || ca_file.is_some() {
            s.refuse("postgres_password_file", "there is no database for it", "write `store.postgres`");
        }
        return None;
    };
    if let Err(why) = PostgresSettings::check_url(&url, ca_file.is_some()) {
        s.refuse("postgres", format!("the URL {why}"), "postgresql://USER@HOST/DATABASE");
    }
    Some(PostgresSettings { url, password_file, ca_file })
}

pub(super) fn api(root: &mut Section<'_, '_>) -> Api {
    root.section(
        "api",
        "HTTP API and console: state, orders, subscribers, `why`, metrics (docs/console.md). Users log in; beyond loopback it speaks HTTPS only.",
        |s| Api {
            address: s.value(
                "address",
                SocketAddr::from(([127, 0, 0, 1], 8070)),
                "Address and TCP port. Commands such as `whimbrel why` connect to it if WHIMBREL_TOKEN is set; otherwise they use the core's Unix socket.",
            ),
            metrics: s.value("metrics", true, "Serve /metrics in the Prometheus format (docs/metrics.md)."),
            signalling_mib: signalling(s),
            session_idle: session_idle(s),
            login_failures: login_failures(s),
            password_history: password_history(s),
            second_factor: s.value(
                "second_factor",
                SecondFactor::Optional,
                "A code of an app (TOTP, RFC 6238) beside the password of users: off; optional, users may set one up; or required, a user without \
                 one can do nothing but set it up. API tokens and one-time links need none.",
            ),
        },
    )
}

/// Longest time for which an unused session can stay open: a session ends after seven days anyway.
const SESSION_IDLE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

fn session_idle(s: &mut Section<'_, '_>) -> Duration {
    let doc = "Without a request for this long, a user's session ends (TS 33.117 §4.2.3.5.2).";
    let idle = s.value("session_idle", Duration::from_secs(12 * 3600), doc);
    let is_within = (Duration::from_secs(60)..=SESSION_IDLE_MAX).contains(&idle);
    s.bound("session_idle", is_within, "the time is out of bounds", "1min to 168h");
    idle
}

fn login_failures(s: &mut Section<'_, '_>) -> u8 {
    let doc = "Failed logins of a source (IPv4 /24, IPv6 /48) before it has to wait 1 s, 2 s, 4 s, up to five minutes; a name waits after four \
               times as many, from wherever (TS 33.117 §4.2.3.4.5).";
    let failures = s.value("login_failures", 5u8, doc);
    s.bound(
        "login_failures",
        (1..=50).contains(&failures),
        format!("{failures} is out of bounds"),
        "1 to 50",
    );
    failures
}

fn password_history(s: &mut Section<'_, '_>) -> u8 {
    let doc = "Former passwords that a user's new one must differ from, beside the present one (TS 33.117 §4.2.3.4.3.2).";
    let history = s.value("password_history", 3u8, doc);
    s.bound("password_history", history <= 24, format!("{history} is out of bounds"), "0 to 24");
    history
}

/// Most memory for signalling: an hour of a network with 100 registrations a second.
const SIGNALLING_MIB_MAX: u32 = 4096;

fn signalling(s: &mut Section<'_, '_>) -> u32 {
    let doc = "Memory for the messages of UEs that the console shows, in MiB: 16 hold some 80,000 messages. 0: none is kept.";
    let mib = s.value("signalling_mib", 16u32, doc);
    let bounds = format!("0 to {SIGNALLING_MIB_MAX}");
    s.bound("signalling_mib", mib <= SIGNALLING_MIB_MAX, format!("{mib} is out of bounds"), bounds);
    mib
}

pub(super) fn log(root: &mut Section<'_, '_>) -> Log {
    root.section("log", "Log, on standard error.", |s| Log {
        level: s.value("level", LogLevel::Info, "error, warn, info, debug or trace."),
        format: s.value("format", LogFormat::Text, "text, or json with one object a line."),
        supi: s.value(
            "supi",
            false,
            "Write SUPIs to the log. They are personal data: enable it only if you are allowed to.",
        ),
    })
}

pub(super) fn otlp(root: &mut Section<'_, '_>) -> Otlp {
    root.section(
        "otlp",
        "OpenTelemetry: a span for each procedure, by OTLP over HTTP (docs/observability.md).",
        |s| Otlp {
            endpoint: s.optional(
                "endpoint",
                "http://127.0.0.1:4318",
                "Collector. Without it no traces are made. Over a network that others use, write `https://`.",
            ),
            ca_file: s.value(
                "ca_file",
                "/etc/ssl/certs/ca-certificates.crt".into(),
                "The CA certificates that sign the collector's certificate, as PEM; read at the start, with `https` alone.",
            ),
            service_name: s.value(
                "service_name",
                "whimbrel".to_string(),
                "The resource's attribute service.name.",
            ),
        },
    )
}
