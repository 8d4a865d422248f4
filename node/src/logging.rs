//! Log lines on standard error, as text or JSON, written by a thread of their own.
//!
//! A thread that logs passes a finished line to the writer and continues: a blocked terminal, or a pipe that is not read, stops
//! no UE. Lines without room are counted, and the count is logged when there is room again.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use tracing::error;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::config::{Log, LogFormat, LogLevel};

/// Lines that wait for the writer: a second of the busiest debug log.
const LINES_WAITING_MAX: usize = 8192;

/// The level in force, once the program logs.
static LEVEL: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Where lines go. Dropped, it lets the last of them be written.
pub struct Logging {
    sender: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

/// Begins to log. Errors: there is a log already, or no thread can be had.
pub fn start(log: Log) -> Result<Logging, String> {
    start_as(log, None)
}

/// The same, with the name of a function of a unit in each line: all functions of a unit write to one standard error.
pub fn start_as(log: Log, function: Option<&str>) -> Result<Logging, String> {
    let (sender, lines) = sync_channel(LINES_WAITING_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let prefix = function.map_or(String::new(), |name| match log.format {
        LogFormat::Text => format!("{name}: "),
        LogFormat::Json => format!("{{\"function\":\"{name}\","),
    });
    let cut = if function.is_some() && log.format == LogFormat::Json { 1 } else { 0 };
    let writer = LogWriter { sender: sender.clone(), lost: lost.clone(), prefix: prefix.into(), cut };
    let cannot = |e: &dyn std::fmt::Display| format!("nothing can be logged: {e}");
    let thread = std::thread::Builder::new()
        .name("log".into())
        .spawn(move || write(&lines, &lost, &mut io::stderr()))
        .map_err(|e| cannot(&e))?;
    let (filter, handle) = reload::Layer::new(filter(log.level));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_target(false).with_ansi(false).with_writer(writer);
    let set = match log.format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    set.map_err(|e| cannot(&e))?;
    let _ = LEVEL.set(handle);
    std::panic::set_hook(Box::new(log_panic));
    Ok(Logging { sender: Some(sender), thread: Some(thread) })
}

impl Drop for Logging {
    fn drop(&mut self) {
        // The subscriber keeps a sender of its own for ever, so an empty line makes the thread end.
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(Vec::new());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Logs a panic as one line, quickly, because the thread may continue with other UEs. The names of a backtrace's
/// frames take hundreds of milliseconds to look up, longer than one input may take; that is done elsewhere, and only when asked for.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    let payload = panic.payload();
    let message =
        payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    error!(at, "a fault of the program, please report it: {}", message.unwrap_or("a panic"));
    let backtrace = Backtrace::capture(); // if RUST_BACKTRACE asks for it
    if backtrace.status() == BacktraceStatus::Captured {
        let log = move || error!("backtrace of that fault:\n{backtrace}");
        let _ = std::thread::Builder::new().name("backtrace".into()).spawn(log);
    }
}

/// The level in force; `None` if nothing is logged.
pub fn level() -> Option<LogLevel> {
    let filter = LEVEL.get()?.clone_current()?;
    LogLevel::ALL.into_iter().find(|level| self::filter(*level) == filter)
}

/// Sets the level until the next start. Errors: nothing is logged by this process.
pub fn set_level(level: LogLevel) -> Result<(), String> {
    let handle = LEVEL.get().ok_or("this process writes no log")?;
    handle.reload(filter(level)).map_err(|e| format!("the level cannot be set: {e}"))
}

/// Libraries whose lines below this level would name subscribers, in the paths of requests, or repeat each frame.
const QUIET_LIBRARIES: [&str; 4] = ["h2", "hyper", "hyper_util", "rustls"];

fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let quiet = QUIET_LIBRARIES.map(|name| (name, level.min(LevelFilter::INFO)));
    Targets::new().with_default(level).with_targets(quiet)
}

fn write(lines: &Receiver<Vec<u8>>, lost: &AtomicU64, out: &mut dyn Write) {
    while let Ok(line) = lines.recv() {
        if line.is_empty() {
            break;
        }
        // There is no other place to report that the log cannot be written.
        let _ = out.write_all(&line);
        let n = lost.swap(0, Ordering::Relaxed);
        if n > 0 {
            let _ = writeln!(out, "{n} log lines were lost: they came faster than they can be written");
        }
    }
}

#[derive(Clone)]
struct LogWriter {
    sender: SyncSender<Vec<u8>>,
    lost: Arc<AtomicU64>,
    /// What each line begins with, in place of its first octets: the brace that opens an object of JSON.
    prefix: Arc<str>,
    cut: usize,
}

impl Write for LogWriter {
    /// Takes one finished line: the formatter writes each at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut whole = self.prefix.as_bytes().to_vec();
        whole.extend_from_slice(line.get(self.cut..).unwrap_or_default());
        if let Err(TrySendError::Full(_)) = self.sender.try_send(whole) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_that_is_set_is_in_force_for_later_lines() {
        // The filter that `start` installs, with a counter in place of the writer.
        let (filter, handle) = reload::Layer::<_, Registry>::new(filter(LogLevel::Info));
        let (sender, lines) = sync_channel(8);
        let writer = LogWriter { sender, lost: Arc::default(), prefix: "".into(), cut: 0 };
        let log = tracing_subscriber::registry().with(filter).with(fmt::layer().with_writer(writer));
        crate::log_limiter::with_subscriber(log, || {
            tracing::debug!("one");
            handle.reload(super::filter(LogLevel::Debug)).unwrap();
            tracing::debug!("two");
            handle.reload(super::filter(LogLevel::Error)).unwrap();
            tracing::info!("three");
        });
        let text: Vec<String> = lines.try_iter().map(|line| String::from_utf8(line).unwrap()).collect();
        assert!(text.len() == 1 && text[0].contains("two"), "{text:?}");
    }

    #[test]
    fn a_blocked_terminal_blocks_no_thread_and_lost_lines_are_counted() {
        let (sender, lines) = sync_channel(2);
        let lost = Arc::new(AtomicU64::new(0));
        let mut writer = LogWriter { sender: sender.clone(), lost: lost.clone(), prefix: "".into(), cut: 0 };
        for i in 0..5 {
            writer.write_all(format!("line {i}\n").as_bytes()).unwrap();
        }
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        drop((sender, writer));
        let mut out = Vec::new();
        write(&lines, &lost, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("line 0\n3 log lines were lost") && text.contains("line 1\n"), "{text}");
    }

    #[test]
    fn lines_of_a_unit_begin_with_the_name_of_their_function() {
        let line = |prefix: &str, cut, line: &str| {
            let (sender, lines) = sync_channel(2);
            let mut writer = LogWriter { sender, lost: Arc::default(), prefix: prefix.into(), cut };
            writer.write_all(line.as_bytes()).unwrap();
            String::from_utf8(lines.recv().unwrap()).unwrap()
        };
        assert_eq!(line("cta-1: ", 0, "ready\n"), "cta-1: ready\n");
        assert_eq!(
            line("{\"function\":\"upf\",", 1, "{\"level\":1}\n"),
            "{\"function\":\"upf\",\"level\":1}\n"
        );
    }
}
