//! The Unix socket over which commands of this host reach the core. The kernel reports which user sends a
//! command, so that commands need no secret, and no other user of the host can take the socket's place, as it
//! could take a port.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::config::Config;
use crate::function::UnitDirectory;

/// Longest path of a socket: that of `sockaddr_un`, less the closing zero.
const PATH_OCTETS_MAX: usize = 107;
/// Commands that wait for the core to accept them: as many as it serves at once.
const BACKLOG: i32 = 64;
/// How long a core that listens at the path already may take to show it.
const IN_USE_WITHIN: Duration = Duration::from_millis(500);
/// Between two attempts while the backlog is full.
const RETRY: Duration = Duration::from_millis(10);

/// A user of this host, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(pub u32);

impl Uid {
    /// True if this user may command the core: root, and the user that this process runs as.
    pub fn commands_the_core(self) -> bool {
        self.0 == 0 || self.0 == rustix::process::geteuid().as_raw()
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid={}", self.0)
    }
}

/// The socket of the core with this configuration: in the runtime directory of a unit, otherwise beside the store.
pub fn of(config: &Config) -> PathBuf {
    match config.unit.enabled {
        true => UnitDirectory::of(&config.unit.directory).api_socket(),
        false => beside(&config.store.path),
    }
}

/// The socket beside a store.
pub fn beside(store: &Path) -> PathBuf {
    crate::api_files::beside(store, ".socket")
}

/// Why a socket cannot be opened.
#[derive(Debug)]
pub enum ListenError {
    /// Another process listens there.
    InUse(PathBuf),
    /// The system refuses it.
    System(PathBuf, io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(path) => write!(
                f,
                "another core listens at {}: stop it, or give this one a store of its own with `store.path`",
                path.display()
            ),
            Self::System(path, e) => write!(
                f,
                "the socket of this host's commands cannot be opened at {}: {e}; choose a folder that this user may write with `store.path`, or \
                 with `unit.directory` for a unit",
                path.display()
            ),
        }
    }
}

/// Listens at a path; what a core that was killed has left there is replaced.
pub fn listen(path: &Path) -> Result<UnixListener, ListenError> {
    let refused = |e| ListenError::System(path.to_path_buf(), e);
    match reach(path, IN_USE_WITHIN) {
        Ok(_) => return Err(ListenError::InUse(path.to_path_buf())),
        // One that hangs.
        Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(ListenError::InUse(path.to_path_buf())),
        Err(_) => {}
    }
    // It is complete, and its mode set, before it has its name.
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let opened = (|| {
        match fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(Short::of(&new)?.path())?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        rustix::net::listen(&listener, BACKLOG)?;
        fs::rename(&new, path)?;
        Ok(listener)
    })();
    opened.map_err(refused)
}

/// Leads from the path beside a store to the socket of a unit that its configuration does not name. Errors: those of the file system.
pub fn link(store: &Path, socket: &Path) -> io::Result<()> {
    let link = beside(store);
    match fs::remove_file(&link) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    std::os::unix::fs::symlink(std::path::absolute(socket)?, link)
}

/// Connects to the core at a path within a time.
pub fn reach(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let until = Instant::now() + within;
    let short = Short::of(path)?;
    let address = SocketAddrUnix::new(short.path())?;
    loop {
        // The kernel has no time limit for this: where the backlog is full, it would wait for as long as the core hangs.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(rustix::io::Errno::AGAIN) if Instant::now() < until => std::thread::sleep(RETRY),
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// A path that fits into a socket's address: a long one leads through a descriptor of its folder.
struct Short {
    path: PathBuf,
    _folder: Option<File>,
}

impl Short {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= PATH_OCTETS_MAX {
            return Ok(Self { path: path.to_path_buf(), _folder: None });
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = File::open(folder)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_private_and_replaces_what_a_killed_core_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.db.socket");
        let first = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = listen(&path).unwrap_err();
        assert!(matches!(second, ListenError::InUse(_)) && second.to_string().contains("`store.path`"));
        drop(first);
        let third = listen(&path).unwrap();
        reach(&path, Duration::from_secs(2)).unwrap();
        third.accept().unwrap();
        let nowhere = listen(&folder.path().join("none/w.db.socket")).unwrap_err().to_string();
        assert!(nowhere.contains("none/w.db.socket") && nowhere.contains("`unit.directory`"), "{nowhere}");
    }

    #[test]
    fn a_path_of_more_than_107_octets_is_reached_too() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(90)).join("y".repeat(90));
        fs::create_dir_all(&deep).unwrap();
        let path = deep.join("w.db.socket");
        let listener = listen(&path).unwrap();
        reach(&path, Duration::from_secs(2)).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn a_core_that_accepts_nothing_keeps_a_command_waiting_for_a_bounded_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.db.socket");
        let _listener = listen(&path).unwrap();
        let mut waiting = Vec::new();
        let e = loop {
            match reach(&path, Duration::from_millis(50)) {
                Ok(stream) => waiting.push(stream),
                Err(e) => break e,
            }
            assert!(waiting.len() <= 2 * BACKLOG as usize);
        };
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
    }
}
