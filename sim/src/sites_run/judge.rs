//! The promises: no UE registers again, no session is lost, no address is given twice.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::net::Ipv4Addr;

/// Broken promises that are printed one by one.
const LINES: usize = 20;

#[derive(Default)]
pub(super) struct SitesJudge {
    broken: u64,
    lines: Vec<String>,
    noted: Vec<String>,
    addresses: BTreeMap<Ipv4Addr, u32>,
}

impl SitesJudge {
    /// A promise is broken.
    pub(super) fn broken(&mut self, what: Arguments<'_>) {
        self.broken += 1;
        if self.lines.len() < LINES {
            self.lines.push(what.to_string());
        }
    }

    /// Notes a detail for the search of a fault; no promise depends on it.
    pub(super) fn notes(&mut self, what: Arguments<'_>) {
        if self.noted.len() < LINES {
            self.noted.push(what.to_string());
        }
    }

    /// A UE has got an address: the other UE that has it.
    pub(super) fn address(&mut self, address: Ipv4Addr, ue: u32) -> Option<u32> {
        self.addresses.insert(address, ue).filter(|other| *other != ue)
    }

    /// The broken promises, with how many more there are.
    pub(super) fn lines(&self) -> Vec<String> {
        let more = self.broken - self.lines.len() as u64;
        self.lines.iter().cloned().chain((more > 0).then(|| format!("and {more} more"))).collect()
    }

    pub(super) fn noted(&self) -> &[String] {
        &self.noted
    }
}
