//! Memory of UE contexts, and where those go that are seldom used.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Config;
use super::section::{Pass, Section};
use super::value::{Value, words};

/// The least memory: a core without UEs takes half of it.
const LIMIT_MIN: u64 = 64 << 20;

/// Where UEs at rest are stored.
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    /// The memory of this process, in a unit of each CPF; `None`: UEs do not rest.
    pub limit: Option<OctetCount>,
    pub slow: SlowTier,
    pub file: Option<PathBuf>,
    pub rest_after: Duration,
}

/// The slow tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowTier {
    /// There is none.
    None,
    /// Compressed memory, as swap of the kernel.
    Zram,
    /// A file is the slow tier.
    File,
}

/// The same for a CPF that is a process of its own, on its command line.
#[derive(clap::Args)]
pub struct MemoryOptions {
    /// Memory of this CPF, such as "8 GiB": UEs without messages rest, and records that are seldom used go to the slow tier.
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| OctetCount::read(text))]
    memory: Option<OctetCount>,
    /// The slow tier: none, zram (the kernel's swap, which has to be on), or file.
    #[arg(long, value_name = "TIER", default_value = "none", requires = "memory", value_parser = |text: &str| SlowTier::read(text))]
    slow: SlowTier,
    /// Path of the file with `--slow file`. It has no name once it is open.
    #[arg(long, value_name = "FILE", required_if_eq("slow", "file"))]
    slow_file: Option<PathBuf>,
    /// A UE rests after so many milliseconds without messages.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    rest_after_ms: u64,
}

impl MemoryOptions {
    pub fn memory(self) -> MemoryConfig {
        let rest_after = Duration::from_millis(self.rest_after_ms);
        MemoryConfig { limit: self.memory, slow: self.slow, file: self.slow_file, rest_after }
    }

    /// The arguments for a CPF of a unit, whose file has this name without one in the configuration.
    pub fn arguments(memory: &MemoryConfig, file: &Path) -> Vec<OsString> {
        let Some(limit) = memory.limit else { return Vec::new() };
        let mut arguments: Vec<OsString> = vec!["--memory".into(), limit.show().into()];
        arguments.extend(["--slow".into(), memory.slow.show().into()]);
        arguments.extend(["--rest-after-ms".into(), memory.rest_after.as_millis().to_string().into()]);
        if memory.slow == SlowTier::File {
            arguments.extend(["--slow-file".into(), file.into()]);
        }
        arguments
    }
}

words!(SlowTier { SlowTier::None = "none", SlowTier::Zram = "zram", SlowTier::File = "file", });

/// A number of octets, written with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OctetCount(pub u64);

impl OctetCount {
    const UNITS: [(&'static str, u32); 3] = [("MiB", 20), ("GiB", 30), ("TiB", 40)];
}

impl Value for OctetCount {
    fn read(text: &str) -> Result<Self, String> {
        let read = || {
            let text = text.trim();
            let (unit, shift) = Self::UNITS.into_iter().find(|(unit, _)| text.ends_with(unit))?;
            let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            number.checked_mul(1 << shift).map(Self)
        };
        read().ok_or_else(|| "a whole number with its unit, MiB, GiB or TiB, such as 8 GiB".into())
    }

    fn show(&self) -> String {
        let fits = Self::UNITS.into_iter().rev().find(|(_, shift)| self.0 >> shift << shift == self.0);
        let (unit, shift) = fits.unwrap_or(Self::UNITS[0]);
        format!("{} {unit}", self.0 >> shift)
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> MemoryConfig {
    let doc = "Memory of UE contexts (docs/memory.md). With a limit, a UE without messages for `rest_after` is stored as a record of some \
               hundred octets, and records that are seldom used leave memory for the slow tier.";
    root.section("memory", doc, |s| {
        let memory = MemoryConfig {
            limit: s.optional(
                "limit",
                "8 GiB",
                "Memory of this process, in a unit of each CPF, 64 MiB or more. Beyond it, records that are seldom used go to the slow tier. Nothing is refused: \
                 where the slow tier is full, missing or fails, they stay in memory.",
            ),
            slow: s.value(
                "slow",
                SlowTier::None,
                "The slow tier: zram (the kernel's swap, which has to be on), file, or none: all records stay in memory.",
            ),
            file: s.optional(
                "file",
                "/var/lib/whimbrel/ues",
                "Path of the file with `slow: file`, by default beside the store. It is created at each start and has no name once it is \
                 open. It holds keys of UEs: the file system must be one of this host, encrypted if the host may be stolen.",
            ),
            rest_after: s.value("rest_after", Duration::from_secs(2), "A UE rests after this time without messages, 100ms to 1h."),
        };
        let is_enough = memory.limit.is_none_or(|limit| limit.0 >= LIMIT_MIN);
        s.bound("limit", is_enough, "a core needs more memory", format!("{} or more", OctetCount(LIMIT_MIN).show()));
        let is_within = (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&memory.rest_after);
        s.bound("rest_after", is_within, "it is out of bounds", "100ms to 1h");
        memory
    })
}

/// Reports contradictions with other keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let memory = &config.memory;
    if memory.limit.is_none() && memory.slow != SlowTier::None {
        let what = format!("a slow tier ({}) is not used without a limit", memory.slow.show());
        pass.refuse("memory.slow", what, "write `limit`, such as 8 GiB, or leave `slow` out");
    }
    let cluster = config.cluster.listen.is_some() || config.cluster.pair.is_some();
    if memory.limit.is_some() && cluster && !config.unit.enabled {
        let what = "UEs are served by CPFs that are other processes";
        pass.refuse("memory.limit", what, "leave it out, and start `whimbrel cpf` with `--memory`");
    }
    if memory.file.is_some() && memory.slow != SlowTier::File {
        pass.refuse("memory.file", "the slow tier is no file", "write `slow: file`, or leave `file` out");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn octets_carry_their_unit() {
        for (text, octets) in
            [("64 MiB", 64 << 20), ("8GiB", 8 << 30), ("1536 MiB", 3 << 29), ("2 TiB", 2 << 40)]
        {
            let read = OctetCount::read(text).unwrap();
            assert_eq!(read.0, octets, "{text}");
            assert_eq!(OctetCount::read(&read.show()), Ok(read));
        }
        assert_eq!(OctetCount(3 << 29).show(), "1536 MiB");
        for bad in ["8", "8 GB", "-1 GiB", "99999999999999 TiB", "GiB", ""] {
            assert!(OctetCount::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cpf_of_a_unit_has_the_memory_of_the_configuration_on_its_command_line() {
        #[derive(clap::Parser)]
        struct CommandLine {
            #[command(flatten)]
            memory: MemoryOptions,
        }
        let rest_after = Duration::from_millis(1500);
        for (limit, slow) in [
            (Some(OctetCount(3 << 30)), SlowTier::File),
            (Some(OctetCount(1 << 30)), SlowTier::Zram),
            (None, SlowTier::None),
        ] {
            let file = (slow == SlowTier::File).then(|| PathBuf::from("/var/ues"));
            let memory = MemoryConfig { limit, slow, file: file.clone(), rest_after };
            let arguments = MemoryOptions::arguments(&memory, Path::new("/var/ues"));
            let line = std::iter::once("cpf".into()).chain(arguments);
            let read = <CommandLine as clap::Parser>::try_parse_from(line).unwrap().memory.memory();
            assert_eq!((read.limit, read.slow, read.file), (limit, slow, file));
            assert!(limit.is_none() || read.rest_after == rest_after);
        }
    }

    #[test]
    fn what_contradicts_a_memory_limit_is_named_with_its_key() {
        for (yaml, key) in [
            ("memory: { slow: file }", "memory.slow"),
            ("memory: { limit: 8 GiB, file: /x }", "memory.file"),
            ("memory: { limit: 1 MiB }", "memory.limit"),
            ("memory: { limit: 8 GiB, rest_after: 1ms }", "memory.rest_after"),
            ("memory: { limit: 8 GiB, slow: zarm }", "zram"),
            ("memory: { limit: 8 }", "GiB"),
            ("memory: { limit: 8 GiB }\ncluster: { listen: \"127.0.0.1:7380\" }", "memory.limit"),
        ] {
            let problems = crate::config::parse(yaml, Path::new("m.yaml")).unwrap_err().to_string();
            assert!(problems.contains(key), "{yaml}: {problems}");
        }
        let of_unit = "memory: { limit: 8 GiB }\nunit: { enabled: true }";
        for good in
            ["memory: { limit: 8 GiB, slow: file, file: /x }", "memory: { limit: 64 MiB }", of_unit, ""]
        {
            assert!(crate::config::parse(good, Path::new("m.yaml")).is_ok(), "{good}");
        }
    }
}
