//! Signals that end a process in order.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tracing::error;

/// A stream that receives an octet for each SIGINT and SIGTERM.
pub fn termination_signals() -> Result<UnixStream, String> {
    let cannot = |e: std::io::Error| format!("signals cannot be awaited: {e}");
    let (read, write) = UnixStream::pair().map_err(cannot)?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, write.try_clone().map_err(cannot)?).map_err(cannot)?;
    }
    read.set_read_timeout(Some(Duration::from_millis(500))).map_err(cannot)?;
    Ok(read)
}

/// A flag that SIGINT and SIGTERM set. Errors: one sentence.
pub fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| format!("signals cannot be awaited: {e}"))?;
    }
    Ok(stop)
}

/// Waits for a signal, or until what runs is no longer alive. Returns `true` if a signal came.
pub fn wait(signals: &mut UnixStream, is_alive: impl Fn() -> bool) -> bool {
    let mut octet = [0];
    while is_alive() {
        match signals.read(&mut octet) {
            Ok(_) => return true,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => {
                error!("signals cannot be awaited: {e}");
                return true;
            }
        }
    }
    false
}
