//! The program around the core: its store, its API, its logs.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::section::Section;
use super::value::words;

/// Where subscribers are kept.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    pub(crate) key_file: PathBuf,
}

/// The HTTP API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: bool,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub(crate) level: LogLevel,
    pub(crate) format: LogFormat,
    pub(crate) supi: bool,
}

/// Levels of logging: error, an operator must act; warn, a peer broke the protocol; info, life of a function or an
/// association; debug, steps of procedures; trace, messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Forms of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

words! { LogLevel {
    LogLevel::Error = "error", LogLevel::Warn = "warn", LogLevel::Info = "info", LogLevel::Debug = "debug",
    LogLevel::Trace = "trace",
} }
words! { LogFormat { LogFormat::Text = "text", LogFormat::Json = "json", } }

pub(super) fn store(root: &mut Section<'_, '_>) -> Store {
    root.section("store", "Subscribers: one SQLite file and the key that encrypts their keys.", |s| Store {
        path: s.value("path", "whimbrel.db".into(), "The database, made at need, readable by its owner only."),
        key_file: s.value(
            "key_file",
            "whimbrel.key".into(),
            "The key file, made with the database. Without it, the subscribers' keys are lost: keep a copy elsewhere.",
        ),
    })
}

pub(super) fn api(root: &mut Section<'_, '_>) -> Api {
    root.section(
        "api",
        "HTTP API: state, subscribers, `why`, metrics. It has no login: keep it on loopback.",
        |s| Api {
            address: s.value(
                "address",
                SocketAddr::from(([127, 0, 0, 1], 8070)),
                "Address and TCP port; also where `whimbrel why`, `ue`, `gnb` and `top` ask.",
            ),
            metrics: s.value("metrics", true, "Serve /metrics for Prometheus."),
        },
    )
}

pub(super) fn log(root: &mut Section<'_, '_>) -> Log {
    root.section("log", "Logs, on standard error.", |s| Log {
        level: s.value("level", LogLevel::Info, "error, warn, info, debug or trace."),
        format: s.value("format", LogFormat::Text, "text or json (one object a line)."),
        supi: s.value(
            "supi",
            false,
            "Write SUPIs into logs. They say where a person was: off unless you may.",
        ),
    })
}
