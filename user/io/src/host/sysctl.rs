//! Forwarding between interfaces: kernel settings that are put back as they were.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const IPV4: &str = "/proc/sys/net/ipv4/ip_forward";
const IPV6_ALL: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
const IPV6_EACH: &str = "/proc/sys/net/ipv6/conf";

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
        if ipv4 && self.set(Path::new(IPV4))? {
            done.push("let the host forward IPv4 (net.ipv4.ip_forward)".to_owned());
        }
        if ipv6 && read(Path::new(IPV6_ALL))? != "1" {
            // "all" also sets every interface's own value: each is noted, and put back after "all".
            let each = fs::read_dir(IPV6_EACH)?.flatten().map(|e| e.path().join("forwarding"));
            let each: Vec<_> = each.filter_map(|p| read(&p).ok().map(|v| (p, v))).collect();
            self.before.extend(each);
            self.before.push((IPV6_ALL.into(), read(Path::new(IPV6_ALL))?));
            self.note()?;
            fs::write(IPV6_ALL, "1")?;
            done.push("let the host forward IPv6 (net.ipv6.conf.all.forwarding)".to_owned());
        }
        Ok(done)
    }

    fn set(&mut self, path: &Path) -> io::Result<bool> {
        let value = read(path)?;
        if value == "1" {
            return Ok(false);
        }
        self.before.push((path.into(), value));
        self.note()?;
        fs::write(path, "1")?;
        Ok(true)
    }

    fn note(&self) -> io::Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let lines = self.before.iter().map(|(p, v)| format!("{}\t{v}\n", p.display()));
        fs::write(journal, lines.collect::<String>())
    }
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
