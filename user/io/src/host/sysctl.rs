//! Forwarding between interfaces: kernel settings that are put back as they were.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const IPV4: &str = "/proc/sys/net/ipv4/ip_forward";
const IPV4_EACH: &str = "/proc/sys/net/ipv4/conf";
const IPV6_ALL: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
const IPV6_EACH: &str = "/proc/sys/net/ipv6/conf";
const IPV6_ALL_OF: &str = "/proc/sys/net/ipv6/conf/all";

/// Settings that were changed, with what they were before; dropping it puts them back.
///
/// A journal on disk names them while they are changed, so that a program that was killed leaves a note to its successor.
#[derive(Debug)]
pub(crate) struct Sysctls {
    before: Vec<(PathBuf, String)>,
    journal: Option<PathBuf>,
}

impl Sysctls {
    /// Nothing changed yet; what a killed predecessor changed is put back first.
    pub(crate) fn new(journal: Option<PathBuf>) -> Self {
        let left = journal.as_deref().and_then(|j| fs::read_to_string(j).ok()).unwrap_or_default();
        let before = left.lines().filter_map(|l| l.split_once('\t')).map(|(p, v)| (p.into(), v.to_owned()));
        let predecessor = Self { before: before.collect(), journal: journal.clone() };
        drop(predecessor);
        Self { before: Vec::new(), journal }
    }

    /// Lets the host forward. What was set, in words.
    pub(crate) fn forward(&mut self, ipv4: bool, ipv6: bool) -> io::Result<Vec<String>> {
        let mut done = Vec::new();
        if ipv4 && read(Path::new(IPV4))? != "1" {
            // It also sets every interface's own value, and whether redirects are accepted.
            self.keep(values(IPV4_EACH, "forwarding")?);
            self.keep(values(IPV4_EACH, "accept_redirects")?);
            self.set(IPV4.into(), "1")?;
            done.push("let the host forward IPv4 (net.ipv4.ip_forward)".to_owned());
        }
        if ipv6 && read(Path::new(IPV6_ALL))? != "1" {
            // A host that forwards forgets the default routes that it learned from router advertisements, unless an
            // interface accepts them all the same: 2.
            for (path, value) in values(IPV6_EACH, "accept_ra")? {
                if value == "1" && !path.starts_with(IPV6_ALL_OF) {
                    self.set(path, "2")?;
                }
            }
            self.keep(values(IPV6_EACH, "forwarding")?);
            self.set(IPV6_ALL.into(), "1")?;
            done.push("let the host forward IPv6 (net.ipv6.conf.all.forwarding)".to_owned());
        }
        Ok(done)
    }

    /// Notes what a setting that follows overwrites, to be put back after it.
    fn keep(&mut self, values: Vec<(PathBuf, String)>) {
        self.before.extend(values);
    }

    fn set(&mut self, path: PathBuf, value: &str) -> io::Result<()> {
        self.before.push((path.clone(), read(&path)?));
        self.note()?;
        fs::write(path, value)
    }

    fn note(&self) -> io::Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let lines = self.before.iter().map(|(p, v)| format!("{}\t{v}\n", p.display()));
        fs::write(journal, lines.collect::<String>())
    }
}

/// A setting of every interface, and of that of "all" last: it is put back first, for it overwrites the others.
fn values(folder: &str, name: &str) -> io::Result<Vec<(PathBuf, String)>> {
    let paths = fs::read_dir(folder)?.flatten().map(|e| e.path().join(name));
    let mut all: Vec<_> = paths.filter_map(|p| read(&p).ok().map(|v| (p, v))).collect();
    all.sort_by_key(|(p, _)| p.parent().is_some_and(|d| d.ends_with("all")));
    Ok(all)
}

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map(|v| v.trim_end().to_owned())
}

impl Drop for Sysctls {
    fn drop(&mut self) {
        // Last first: "all" before the interfaces that it overwrote. An interface that is gone needs nothing.
        for (path, value) in self.before.iter().rev() {
            fs::write(path, value).ok();
        }
        if let Some(journal) = &self.journal {
            fs::remove_file(journal).ok();
        }
    }
}
