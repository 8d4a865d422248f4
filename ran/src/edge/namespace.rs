//! A network namespace for the TUN devices of UEs and for the programs that use them.
//!
//! Only threads of its own enter it, so that the rest of the process, with SCTP and GTP-U, stays in its namespace.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::netlink::Netlink;

/// iproute2's directories of namespace names and of their replacements for files of /etc.
const NAMES: &str = "/run/netns";
const SETTINGS: &str = "/etc/netns";
const RESOLVER: &str = "/etc/resolv.conf";
/// First line of files that this program writes there; others are not touched.
const RESOLVER_HEAD: &str = "# Written by `whimbrel-lab ran` from what the PDU session announced.\n";
/// The loopback device has this index in every namespace.
const LOOPBACK: u32 = 1;

/// A namespace could not be created or entered.
#[derive(Debug)]
pub struct NamespaceError {
    /// Its name, if any.
    pub name: Option<String>,
    /// The system's error.
    pub error: io::Error,
}

impl fmt::Display for NamespaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "network namespace {name:?}: {}", self.error)?,
            None => write!(f, "a network namespace for the UE: {}", self.error)?,
        }
        if matches!(self.error.kind(), io::ErrorKind::PermissionDenied) {
            f.write_str("; it needs root (or, without a name, `unshare -Urn`)")?;
        }
        Ok(())
    }
}

impl std::error::Error for NamespaceError {}

/// A network namespace. What was created for it is removed when it is dropped; a namespace that existed before stays.
#[derive(Debug)]
pub struct Namespace {
    /// Keeps it alive.
    file: File,
    name: Option<String>,
    /// This program created the name, and removes it.
    made: bool,
    resolver: Mutex<Option<Resolver>>,
}

/// The `resolv.conf` of a namespace's programs.
#[derive(Clone, Debug)]
struct Resolver {
    path: PathBuf,
    /// This program wrote it, and removes it.
    ours: bool,
}

impl Namespace {
    /// A namespace without a name, for this process and its children. Its loopback device is up.
    pub fn private() -> Result<Self, NamespaceError> {
        let failed = |error| NamespaceError { name: None, error };
        let file = fresh().map_err(failed)?;
        Self::with(file, None, false).map_err(failed)
    }

    /// The namespace that `ip netns` has under this name; created if there is none. Its loopback device is up.
    pub fn named(name: &str) -> Result<Self, NamespaceError> {
        let failed = |error| NamespaceError { name: Some(name.to_owned()), error };
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "this is no name for it")));
        }
        let path = Path::new(NAMES).join(name);
        let (file, made) = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let file = fresh().map_err(failed)?;
                publish(&file, &path).map_err(failed)?;
                (file, true)
            }
            opened => (opened.map_err(failed)?, false),
        };
        Self::with(file, Some(name.to_owned()), made).map_err(failed)
    }

    fn with(file: File, name: Option<String>, made: bool) -> io::Result<Self> {
        let this = Self { file, name, made, resolver: Mutex::default() };
        this.inside(|| Netlink::open()?.bring_up(LOOPBACK, None))??;
        Ok(this)
    }

    /// Runs a function in the namespace, on a thread of its own: sockets that it opens stay there. Errors: the namespace cannot be entered.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let entered = || -> io::Result<T> {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        std::thread::scope(|s| s.spawn(entered).join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace ended")))
    }

    /// Sets the DNS servers for programs in the namespace: in `/etc/netns/NAME/resolv.conf`, which `ip netns exec` uses too,
    /// or for a namespace without a name in a private file. A file of another program is not changed.
    pub fn set_dns(&self, servers: &[IpAddr]) -> io::Result<()> {
        let path = match &self.name {
            Some(name) => Path::new(SETTINGS).join(name).join("resolv.conf"),
            None => std::env::temp_dir().join(format!("whimbrel-resolv-{}.conf", std::process::id())),
        };
        let mut resolver = self.resolver.lock().unwrap_or_else(PoisonError::into_inner);
        match fs::read_to_string(&path).map(|text| text.starts_with(RESOLVER_HEAD)) {
            Ok(true) => fs::remove_file(&path)?,
            Ok(false) => {
                *resolver = Some(Resolver { path, ours: false });
                return Ok(());
            }
            Err(_) => {}
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let lines: String = servers.iter().map(|s| format!("nameserver {s}\n")).collect();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)?;
        *resolver = Some(Resolver { path, ours: true });
        file.write_all(format!("{RESOLVER_HEAD}{lines}").as_bytes())
    }

    /// Starts a program in the namespace, with its DNS servers in place of the host's.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let resolver = self.resolver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.inside(|| {
            if let Some(resolver) = resolver {
                replace_resolver(&resolver.path)?;
            }
            command.spawn()
        })?
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If this fails, another program has removed it.
        let resolver = self.resolver.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Resolver { path, ours: true }) = resolver {
            let _gone = fs::remove_file(&path);
            if let Some(folder) = path.parent().filter(|_| self.name.is_some()) {
                let _used = fs::remove_dir(folder);
            }
        }
        if let Some(name) = self.name.as_ref().filter(|_| self.made) {
            let path = Path::new(NAMES).join(name);
            let _gone = unmount(&path, UnmountFlags::DETACH);
            let _gone = fs::remove_file(&path);
        }
    }
}

/// A new namespace.
fn fresh() -> io::Result<File> {
    let make = || {
        // SAFETY: the flag is not CLONE_FILES, and nothing of this thread but its network is shared no more; the thread ends.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        File::open("/proc/thread-self/ns/net")
    };
    std::thread::scope(|s| s.spawn(make).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that makes it ended")))
}

/// Gives a namespace the name that `ip netns` looks for.
fn publish(file: &File, path: &Path) -> io::Result<()> {
    fs::create_dir_all(NAMES)?;
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)?;
    let done = mount_bind(format!("/proc/self/fd/{}", file.as_raw_fd()), path);
    if done.is_err() {
        let _gone = fs::remove_file(path);
    }
    Ok(done?)
}

/// Gives the calling thread and its children another resolv.conf.
fn replace_resolver(with: &Path) -> io::Result<()> {
    if !Path::new(RESOLVER).exists() {
        return Ok(());
    }
    // SAFETY: the flag is not CLONE_FILES; this thread alone has mounts of its own from now on, and it ends after a spawn.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Mounts do not propagate to other namespaces.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    Ok(mount_bind(with, RESOLVER)?)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn sh(namespace: &Namespace, script: &str) -> String {
        let mut command = Command::new("sh");
        let child = namespace.spawn(command.args(["-c", script]).stdout(Stdio::piped())).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn a_program_in_a_namespace_has_its_network_and_its_dns_and_nothing_is_left() {
        let Ok(private) = Namespace::private() else {
            eprintln!("skipped: a network namespace needs root");
            return;
        };
        let name = format!("wbran-{}", std::process::id());
        let path = Path::new(NAMES).join(&name);
        let settings = Path::new(SETTINGS).join(&name);
        let named = Namespace::named(&name).unwrap();
        let links = "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '";
        for namespace in [&private, &named] {
            assert!(sh(namespace, links).contains("lo"));
            assert_eq!(
                sh(namespace, &format!("{links} | grep -c eth; cat {RESOLVER}")).lines().next(),
                Some("0")
            );
            namespace.set_dns(&["192.0.2.53".parse().unwrap(), "2001:db8::53".parse().unwrap()]).unwrap();
            let text = sh(namespace, &format!("cat {RESOLVER}"));
            assert!(text.ends_with("nameserver 192.0.2.53\nnameserver 2001:db8::53\n"), "{text}");
        }
        assert!(!fs::read_to_string(RESOLVER).unwrap_or_default().contains("192.0.2.53"));
        // A second object for the same name does not remove it.
        drop(Namespace::named(&name).unwrap());
        assert!(path.exists() && settings.exists());
        let files: Vec<_> =
            [&private, &named].map(|n| n.resolver.lock().unwrap().clone().unwrap().path).into();
        drop((private, named));
        assert!(!path.exists() && !settings.exists() && files.iter().all(|f| !f.exists()));
    }

    #[test]
    fn a_resolv_conf_of_another_program_stays() {
        let name = format!("wbran-own-{}", std::process::id());
        let Ok(namespace) = Namespace::named(&name) else {
            eprintln!("skipped: a network namespace needs root");
            return;
        };
        let file = Path::new(SETTINGS).join(&name).join("resolv.conf");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "nameserver 192.0.2.1\n").unwrap();
        namespace.set_dns(&["192.0.2.53".parse().unwrap()]).unwrap();
        assert_eq!(sh(&namespace, &format!("cat {RESOLVER}")), "nameserver 192.0.2.1\n");
        drop(namespace);
        assert_eq!(fs::read_to_string(&file).unwrap(), "nameserver 192.0.2.1\n");
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", "..", "a/b", ".x"] {
            assert!(Namespace::named(name).is_err(), "{name:?}");
        }
    }
}
