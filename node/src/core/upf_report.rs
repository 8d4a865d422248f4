//! What the UPF of a unit reports to the CTA that serves: its counters and conditions, so that metrics, `whimbrel top` and `whimbrel why` show
//! a unit as they show one process. A file in the runtime directory has it, half a second old at most.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::function::directory::{self, UnitDirectory};
use crate::observation::{Component, Metric, MetricSample};

/// Octets of a report; a UPF with a hundred data networks has a fourth of it.
const OCTETS_MAX: u64 = 1 << 20;
/// The parts of the core that are the UPF's.
const PARTS: [&str; 2] = ["n3", "n6"];

/// A report of the UPF to the manager.
#[derive(Debug, Default, PartialEq)]
pub(super) struct UpfReport {
    pub(super) samples: Vec<MetricSample>,
    /// Those of [`PARTS`], by their names.
    pub(super) components: Vec<(&'static str, Component)>,
}

/// Its form in the file.
#[derive(Serialize, Deserialize)]
struct WrittenReport {
    samples: Vec<(String, Option<String>, u64)>,
    components: Vec<Component>,
}

impl UpfReport {
    /// Writes the report of this UPF. Errors: those of the file system.
    pub(super) fn write<'a>(
        directory: &UnitDirectory,
        samples: &[MetricSample],
        components: impl Iterator<Item = &'a Component>,
    ) -> std::io::Result<()> {
        let of = |s: &MetricSample| (s.metric.name().to_owned(), s.label.clone(), s.value);
        let written = WrittenReport {
            samples: samples.iter().map(of).collect(),
            components: components.filter(|c| PARTS.contains(&c.name.as_str())).cloned().collect(),
        };
        directory::replace(&directory.upf_report(), &serde_json::to_vec(&written)?)
    }

    /// The last report of the UPF; empty if there is none that can be read. A metric that this version does not have is left out.
    pub(super) fn read(directory: &UnitDirectory) -> Self {
        let file = directory.upf_report();
        let fits = fs::metadata(&file).is_ok_and(|m| m.len() <= OCTETS_MAX);
        let octets = if fits { fs::read(&file).unwrap_or_default() } else { Vec::new() };
        let Ok(WrittenReport { samples, components }) = serde_json::from_slice(&octets) else {
            return Self::default();
        };
        let sample = |(name, label, value): (String, Option<String>, u64)| {
            let metric = Metric::ALL.iter().find(|m| m.name() == name && m.is_of_parts())?;
            Some(MetricSample { metric: *metric, label, value })
        };
        let component = |c: Component| Some((*PARTS.iter().find(|name| **name == c.name)?, c));
        Self {
            samples: samples.into_iter().filter_map(sample).collect(),
            components: components.into_iter().filter_map(component).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Condition;

    #[test]
    fn the_cta_reads_what_the_upf_reports_and_nothing_where_that_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let directory = UnitDirectory::of(folder.path());
        assert_eq!(UpfReport::read(&directory), UpfReport::default());
        let samples = [
            MetricSample { metric: Metric::N3UlPackets, label: None, value: 7 },
            MetricSample { metric: Metric::UpfDropped, label: Some("no_rule".into()), value: 3 },
        ];
        let component = |name: &str| Component {
            name: name.into(),
            condition: Condition::Limited,
            detail: "no address translation".into(),
        };
        let components = [component("n6"), component("store")];
        UpfReport::write(&directory, &samples, components.iter()).unwrap();
        let read = UpfReport::read(&directory);
        assert_eq!(read.samples, samples);
        assert_eq!(read.components, [("n6", component("n6"))], "the store is the CTA's");
        let text = fs::read_to_string(directory.upf_report()).unwrap();
        fs::write(directory.upf_report(), &text[..text.len() / 2]).unwrap();
        assert_eq!(UpfReport::read(&directory), UpfReport::default());
        // A metric of another version, and one that no part takes.
        let other = format!(
            r#"{{"samples":[["of_another_version",null,1],["{}",null,1]],"components":[]}}"#,
            Metric::Gnbs.name()
        );
        fs::write(directory.upf_report(), other).unwrap();
        assert_eq!(UpfReport::read(&directory), UpfReport::default());
    }
}
