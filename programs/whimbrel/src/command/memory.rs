//! `whimbrel memory`: where UE contexts are, and what it would cost without records.

use serde_json::json;

use whimbrel_cli::{Done, print, print_json};
use whimbrel_node::client::Client;
use whimbrel_node::observation::Metric;

/// Octets of a UE context with one session that is not stored as a record; `./x bench stores` measures them.
const DECODED_OCTETS: u64 = 1088;

/// What the core reports.
struct Reading {
    resident: u64,
    limit: u64,
    ues: u64,
    at_rest: u64,
    records: u64,
    fast: u64,
    slow: u64,
    fast_reads: u64,
    slow_reads: u64,
    moved: u64,
    stalled_us: u64,
    longest_stall_us: u64,
    longest_relocation_us: u64,
    not_stored: u64,
    damaged: u64,
}

impl Reading {
    fn of(client: &Client) -> Result<Self, String> {
        let value = |metric, label: Option<&str>| client.metric(metric, label).map(|v| v as u64);
        let one = |metric| value(metric, None);
        let micros = |metric| client.metric(metric, None).map(|seconds| (seconds * 1e6) as u64);
        Ok(Self {
            resident: one(Metric::ResidentMemory)?,
            limit: one(Metric::MemoryLimit)?,
            ues: one(Metric::Ues)?,
            at_rest: one(Metric::UesAtRest)?,
            records: one(Metric::UeRecords)?,
            fast: value(Metric::UeMemory, Some("fast"))?,
            slow: value(Metric::UeMemory, Some("slow"))?,
            fast_reads: value(Metric::UeRecordReads, Some("fast"))?,
            slow_reads: value(Metric::UeRecordReads, Some("slow"))?,
            moved: one(Metric::UeRecordsMoved)?,
            stalled_us: micros(Metric::UeRecordStall)?,
            longest_stall_us: micros(Metric::UeRecordStallLongest)?,
            longest_relocation_us: micros(Metric::UeRelocationLongest)?,
            not_stored: one(Metric::UesNotStored)?,
            damaged: one(Metric::UeRecordsDamaged)?,
        })
    }

    /// What the process would take if no UE rested.
    fn without(&self) -> u64 {
        let records = (self.fast + self.slow).max(self.records);
        (self.resident + self.at_rest * DECODED_OCTETS).saturating_sub(records.min(self.resident))
    }

    fn hit_percent(&self) -> f64 {
        let reads = self.fast_reads + self.slow_reads;
        if reads == 0 { 100.0 } else { 100.0 * self.fast_reads as f64 / reads as f64 }
    }

    fn text(&self) -> String {
        let mib = |octets: u64| format!("{} MiB", octets >> 20);
        let ms = |us: u64| format!("{:.1} ms", us as f64 / 1000.0);
        let lines = [
            ("process", format!("{} in memory, limit {}", mib(self.resident), mib(self.limit))),
            ("without records", format!("about {}", mib(self.without()))),
            ("UEs", format!("{}, of which {} rest", self.ues.max(self.at_rest), self.at_rest)),
            (
                "records",
                format!(
                    "{}, {} octets each",
                    mib(self.records),
                    self.records.checked_div(self.at_rest).unwrap_or(0)
                ),
            ),
            ("hot", format!("{} of regions in memory", mib(self.fast))),
            ("cold", format!("{} of regions in the slow tier", mib(self.slow))),
            (
                "hit ratio",
                format!("{:.2} % of {} records read", self.hit_percent(), self.fast_reads + self.slow_reads),
            ),
            ("moved", format!("{} records", self.moved)),
            (
                "stalls",
                format!(
                    "{} waiting for the slow tier, longest {}; longest relocation {}",
                    ms(self.stalled_us),
                    ms(self.longest_stall_us),
                    ms(self.longest_relocation_us)
                ),
            ),
        ];
        let mut text: String = lines.iter().map(|(name, value)| format!("{name:<16} {value}\n")).collect();
        if self.not_stored > 0 {
            text +=
                &format!("{:<16} {} times: the UE stayed in memory as it was\n", "no room", self.not_stored);
        }
        if self.damaged > 0 {
            text +=
                &format!("{:<16} {} records: their UEs have to register again\n", "damaged", self.damaged);
        }
        text
    }
}

pub(crate) fn run(client: &Client, json: bool) -> Done {
    let reading = Reading::of(client)?;
    if json {
        return print_json(&json!({
            "resident": reading.resident, "limit": reading.limit, "without_records": reading.without(),
            "ues": reading.ues, "at_rest": reading.at_rest, "records": reading.records, "hot": reading.fast,
            "cold": reading.slow, "hit_percent": reading.hit_percent(), "fast_reads": reading.fast_reads,
            "slow_reads": reading.slow_reads, "moved": reading.moved, "stalled_us": reading.stalled_us,
            "longest_stall_us": reading.longest_stall_us, "longest_relocation_us": reading.longest_relocation_us,
            "not_stored": reading.not_stored, "damaged": reading.damaged,
        }));
    }
    if reading.limit == 0 {
        return print("UEs do not rest: `memory.limit` is not configured\n");
    }
    print(&reading.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> Reading {
        Reading {
            resident: 700 << 20,
            limit: 800 << 20,
            ues: 1_000_000,
            at_rest: 999_000,
            records: 300 << 20,
            fast: 100 << 20,
            slow: 220 << 20,
            fast_reads: 900,
            slow_reads: 100,
            moved: 5,
            stalled_us: 12_000,
            longest_stall_us: 900,
            longest_relocation_us: 300,
            not_stored: 0,
            damaged: 0,
        }
    }

    #[test]
    fn the_text_says_what_is_hot_and_cold_and_what_it_would_cost_without() {
        let text = reading().text();
        for part in [
            "700 MiB in memory, limit 800 MiB",
            "about 1416 MiB", // 999,000 contexts as they are in place of 320 MiB
            "999000 rest",
            "90.00 % of 1000",
            "100 MiB of regions in memory",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("damaged") && !text.contains("no room"));
        let worse = Reading { not_stored: 3, damaged: 1, ..reading() }.text();
        assert!(worse.contains("no room") && worse.contains("register again"), "{worse}");
    }
}
