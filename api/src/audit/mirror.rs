//! Copies each line of the audit log, as soon as it is written, to the journal or to a syslog (RFC 5424).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::error;

use whimbrel_node::clock;
use whimbrel_node::config::Mirror;

/// The journal's socket.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Facility "log audit" (RFC 5424 table 1).
const FACILITY: u8 = 13;
/// Severity "notice" (RFC 5424 table 2).
const SEVERITY: u8 = 5;
/// Seconds between two errors in the log about a mirror that takes nothing.
const ERROR_EVERY_S: u64 = 60;

/// Sends a line. It never waits: a mirror that takes nothing must not stop the API; that is logged as an error.
pub(super) fn send(mirror: &Mirror, line: &str) {
    let sent = match mirror {
        Mirror::None => return,
        Mirror::Journald => local(Path::new(JOURNAL), &journal_entry(line)),
        Mirror::Syslog(socket) => local(socket, &syslog_message(line)),
        Mirror::SyslogServer(server) => remote(*server, &syslog_message(line)),
    };
    if let Err(e) = sent {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let now = clock::now().as_secs();
        if LAST.fetch_max(now, Ordering::Relaxed) + ERROR_EVERY_S <= now {
            error!("a line of the audit log did not reach `audit.mirror` ({mirror}): {e}; it is in the file");
        }
    }
}

fn local(socket: &Path, message: &str) -> io::Result<()> {
    let from = UnixDatagram::unbound()?;
    from.set_nonblocking(true)?;
    from.send_to(message.as_bytes(), socket).map(drop)
}

fn remote(server: SocketAddr, message: &str) -> io::Result<()> {
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let from = UdpSocket::bind(any)?;
    from.set_nonblocking(true)?;
    from.send_to(message.as_bytes(), server).map(drop)
}

/// An entry in the journal's native form; a line has no line end.
fn journal_entry(line: &str) -> String {
    format!(
        "MESSAGE={line}\nPRIORITY={SEVERITY}\nSYSLOG_FACILITY={FACILITY}\nSYSLOG_IDENTIFIER=whimbrel-audit\n"
    )
}

/// A message of RFC 5424: its time is the line's own.
fn syslog_message(line: &str) -> String {
    let (time, rest) = line.split_once(' ').unwrap_or(("-", line));
    let host = whimbrel_files::read_text(Path::new("/proc/sys/kernel/hostname"), 256).unwrap_or_default();
    let host = if host.trim().is_empty() { "-" } else { host.trim() };
    let priority = u16::from(FACILITY) * 8 + u16::from(SEVERITY);
    format!("<{priority}>1 {time} {host} whimbrel {} audit - {rest}", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{AuditedAccess, newest, record};
    use super::*;
    use whimbrel_node::config::Audit;

    const ACCESS: AuditedAccess<'_> = AuditedAccess {
        caller: "uid=0",
        user: Some("anna"),
        request: "show",
        subscriber: None,
        outcome: "200",
    };

    #[test] // TS 33.117 §4.2.3.6.2; RFC 5424 §6: HEADER, STRUCTURED-DATA, MSG
    fn a_syslog_gets_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let (store, socket) = (folder.path().join("s.db"), folder.path().join("log"));
        let receiver = UnixDatagram::bind(&socket).unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut octets = [0; 1024];
        for mirror in [Mirror::Syslog(socket), Mirror::SyslogServer(server.local_addr().unwrap())] {
            record(&store, &Audit { mirror: mirror.clone(), ..Audit::default() }, None, &ACCESS);
            let length = match mirror {
                Mirror::Syslog(_) => receiver.recv(&mut octets).unwrap(),
                _ => server.recv(&mut octets).unwrap(),
            };
            let message = String::from_utf8_lossy(&octets[..length]).into_owned();
            let line = newest(&store, 1).unwrap().remove(0);
            let (time, rest) = line.split_once(' ').unwrap();
            let words: Vec<&str> = message.splitn(8, ' ').collect();
            assert_eq!(
                (words[0], words[1], words[3], words[5], words[6], words[7]),
                ("<109>1", time, "whimbrel", "audit", "-", rest)
            );
        }
    }

    #[test]
    fn a_mirror_that_is_not_there_does_not_keep_the_line_out_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("s.db");
        let mirror = Mirror::Syslog(folder.path().join("none"));
        record(&store, &Audit { mirror, ..Audit::default() }, None, &ACCESS);
        assert_eq!(newest(&store, 10).unwrap().len(), 1);
        assert!(
            journal_entry("x").ends_with('\n') && journal_entry("x").starts_with("MESSAGE=x\nPRIORITY=5\n")
        );
    }
}
