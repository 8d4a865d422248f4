//! Log lines on standard error, as text or JSON, written by a thread of their own.
//!
//! Whoever logs hands over a finished line and goes on: a terminal that is held, or a pipe that nobody reads, stops
//! no UE. Lines that find no room are counted, and the count is told when there is room again.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use tracing::error;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{Log, LogFormat, LogLevel};

/// Lines that wait for the writer: a second of the busiest debug log.
const LINES_WAITING_MAX: usize = 8192;

/// Where lines go. Dropped, it lets the last of them be written.
pub(crate) struct Logging {
    sender: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

/// Begins to log. Errors: there is a log already, or no thread can be had.
pub(crate) fn start(log: Log) -> Result<Logging, String> {
    let (sender, lines) = sync_channel(LINES_WAITING_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let writer = Writer { sender: sender.clone(), lost: lost.clone() };
    let cannot = |e: &dyn std::fmt::Display| format!("nothing can be logged: {e}");
    let thread = std::thread::Builder::new()
        .name("log".into())
        .spawn(move || write(&lines, &lost, &mut io::stderr()))
        .map_err(|e| cannot(&e))?;
    let format =
        tracing_subscriber::fmt().with_max_level(level(log.level)).with_target(false).with_ansi(false);
    let set = match log.format {
        LogFormat::Text => format.with_writer(writer).try_init(),
        LogFormat::Json => format.json().flatten_event(true).with_writer(writer).try_init(),
    };
    set.map_err(|e| cannot(&e))?;
    std::panic::set_hook(Box::new(tell_of));
    Ok(Logging { sender: Some(sender), thread: Some(thread) })
}

impl Drop for Logging {
    fn drop(&mut self) {
        // The subscriber keeps a sender of its own for ever, so the thread is told to end by an empty line.
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(Vec::new());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A panic is a line in the log as any other, and as quickly written: who panicked may go on with other UEs. The names of a backtrace's
/// frames take hundreds of milliseconds to look up, longer than one input may take; that is done elsewhere, and only when asked for.
fn tell_of(panic: &PanicHookInfo<'_>) {
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    let payload = panic.payload();
    let said =
        payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    error!(at, "a fault of ours, please report it: {}", said.unwrap_or("a panic"));
    let backtrace = Backtrace::capture(); // if RUST_BACKTRACE asks for it
    if backtrace.status() == BacktraceStatus::Captured {
        let tell = move || error!("the way to that fault:\n{backtrace}");
        let _ = std::thread::Builder::new().name("backtrace".into()).spawn(tell);
    }
}

fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn write(lines: &Receiver<Vec<u8>>, lost: &AtomicU64, out: &mut dyn Write) {
    while let Ok(line) = lines.recv() {
        if line.is_empty() {
            break;
        }
        // Nobody can be told that the log cannot be written.
        let _ = out.write_all(&line);
        let n = lost.swap(0, Ordering::Relaxed);
        if n > 0 {
            let _ = writeln!(out, "{n} log lines were lost: they came faster than they can be written");
        }
    }
}

#[derive(Clone)]
struct Writer {
    sender: SyncSender<Vec<u8>>,
    lost: Arc<AtomicU64>,
}

impl Write for Writer {
    /// Takes one finished line: the formatter writes each at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(line.to_vec()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_terminal_holds_nobody_and_losses_are_told() {
        let (sender, lines) = sync_channel(2);
        let lost = Arc::new(AtomicU64::new(0));
        let mut writer = Writer { sender: sender.clone(), lost: lost.clone() };
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
}
