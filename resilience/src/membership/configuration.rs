//! The operator's configuration of the whole cluster, at etcd.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use whimbrel_ids::{Supi, Tac};

use super::MemberId;
use crate::CodeVersion;
use crate::detector::Timing;
use crate::region::{Canary, CanaryUes, GnbRegions, LISTED_MAX, Region, Regions};
use crate::replication::CpfId;

/// The operator's configuration of the whole cluster. Its values override those of each CTA's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Regions of the cluster.
    pub regions: Option<Vec<Region>>,
    /// gNBs that are of other regions than their CTA's own.
    pub areas: Option<GnbRegions>,
    /// Backups a UE.
    pub backups: Option<u8>,
    /// Heartbeats of the CPFs.
    pub heartbeat: Option<Timing>,
    /// CPFs, by their numbers at etcd, whose UEs others are to take though they run.
    pub draining: BTreeSet<CpfId>,
    /// A code version that serves some UEs beside the version in force.
    pub canary: Option<Canary>,
}

/// Its JSON form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenConfiguration {
    regions: Option<Vec<String>>,
    areas: Option<Vec<WrittenArea>>,
    replicas: Option<u64>,
    heartbeat: Option<WrittenHeartbeat>,
    #[serde(default)]
    draining: Vec<String>,
    canary: Option<WrittenCanary>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCanary {
    code: String,
    percent: Option<u8>,
    ues: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenArea {
    region: String,
    #[serde(default)]
    tacs: Vec<u32>,
    #[serde(default)]
    gnbs: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHeartbeat {
    interval_ms: u64,
    misses: u8,
}

impl Configuration {
    /// Backups of a UE that are of use: each has to fail at once for it to be lost.
    pub const BACKUPS_MAX: u8 = 7;

    /// Reads the JSON of an operator. Errors: one sentence, with the key that is wrong and what to write.
    pub fn read(octets: &[u8]) -> Result<Self, String> {
        let WrittenConfiguration { regions, areas, replicas, heartbeat, draining, canary } =
            serde_json::from_slice(octets).map_err(|e| e.to_string())?;
        Ok(Self {
            regions: regions.map(|all| read_regions(&all)).transpose()?,
            areas: areas.map(read_areas).transpose()?,
            backups: replicas.map(read_replicas).transpose()?,
            heartbeat: heartbeat.map(read_heartbeat).transpose()?,
            draining: draining.iter().map(|name| read_cpf(name)).collect::<Result<_, _>>()?,
            canary: canary.map(read_canary).transpose()?,
        })
    }
}

fn read_regions(all: &[String]) -> Result<Vec<Region>, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("`regions`: {e}");
    let all: Vec<Region> = all
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()
        .map_err(|e: crate::region::InvalidRegion| wrong(&e))?;
    Regions::new(all.clone()).map_err(|e| wrong(&e))?;
    Ok(all)
}

fn read_areas(all: Vec<WrittenArea>) -> Result<GnbRegions, String> {
    let mut areas = GnbRegions::default();
    for WrittenArea { region, tacs, gnbs } in all {
        let at: Region = region.parse().map_err(|e| format!("`areas`: {e}"))?;
        if tacs.is_empty() && gnbs.is_empty() {
            return Err(format!("`areas`: no gNB is configured in {at}: write `tacs` or `gnbs`"));
        }
        let tacs = tacs.into_iter().map(|n| {
            Tac::new(n).ok_or_else(|| format!("`areas`: {n} is no tracking area code: write 0 to 16777215"))
        });
        let tacs: Vec<Tac> = tacs.collect::<Result<_, _>>()?;
        areas
            .add(&at, gnbs, tacs)
            .map_err(|e| format!("`areas`: {e}: name each gNB and tracking area once"))?;
    }
    Ok(areas)
}

fn read_replicas(requested: u64) -> Result<u8, String> {
    let most = Configuration::BACKUPS_MAX;
    u8::try_from(requested)
        .ok()
        .filter(|n| *n <= most)
        .ok_or_else(|| format!("`replicas`: {requested} replicas of a UE are of no use: write 0 to {most}"))
}

fn read_heartbeat(written: WrittenHeartbeat) -> Result<Timing, String> {
    let WrittenHeartbeat { interval_ms, misses } = written;
    Timing::new(Duration::from_millis(interval_ms), misses)
        .map_err(|_| "`heartbeat`: write an `interval_ms` of 20 to 1000 and `misses` of 2 to 16".into())
}

fn read_canary(written: WrittenCanary) -> Result<Canary, String> {
    let code = u32::from_str_radix(&written.code, 16).map_err(|_| {
        format!("`canary`: `{}` is no code version: write what `whimbrel --version` prints", written.code)
    })?;
    let ues = match (written.percent, written.ues) {
        (Some(percent @ 0..=100), None) => CanaryUes::Percent(percent),
        (Some(percent), None) => return Err(format!("`canary`: {percent} percent: write 0 to 100")),
        (None, Some(ues)) if ues.len() <= LISTED_MAX => {
            let read = |text: &String| {
                text.parse::<Supi>()
                    .map_err(|_| format!("`canary`: `{text}` is no SUPI: write imsi- and its digits"))
            };
            CanaryUes::Listed(ues.iter().map(read).collect::<Result<_, _>>()?)
        }
        (None, Some(ues)) => {
            return Err(format!(
                "`canary`: {} UEs are listed: list {LISTED_MAX} at most, or write `percent`",
                ues.len()
            ));
        }
        _ => return Err("`canary`: write either `percent` or `ues`".into()),
    };
    Ok(Canary { code: CodeVersion(code), ues })
}

fn read_cpf(name: &str) -> Result<CpfId, String> {
    match name.parse() {
        Ok(MemberId::Cpf(cpf)) => Ok(cpf),
        _ => Err(format!("`draining`: `{name}` names no CPF: write it as it is listed, such as cpf-20318")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_not_is_left_to_the_ctas() {
        let all = br#"{"regions":["1220","north/harbour"],"areas":[{"region":"1220","tacs":[7]},{"region":"north/harbour","gnbs":[3]}],
            "replicas":2,"heartbeat":{"interval_ms":50,"misses":4},"draining":["cpf-7"]}"#;
        let read = Configuration::read(all).unwrap();
        assert_eq!(read.regions.map(|all| all.len()), Some(2));
        let areas = read.areas.unwrap();
        let of = |gnb, tac| areas.region_of(gnb, &[Tac::new(tac).unwrap()]).map(Region::to_string);
        assert_eq!(
            (of(1, 7).as_deref(), of(3, 7).as_deref(), of(1, 8)),
            (Some("1220"), Some("north/harbour"), None)
        );
        assert_eq!((read.backups, read.draining), (Some(2), [CpfId(7)].into()));
        assert_eq!(read.heartbeat.map(Timing::interval), Some(Duration::from_millis(50)));
        assert_eq!(Configuration::read(b"{}"), Ok(Configuration::default()));
    }

    #[test]
    fn a_canary_is_a_code_version_with_a_share_or_a_list_of_ues() {
        let read = |octets: &[u8]| Configuration::read(octets).map(|c| c.canary.map(|c| (c.code.0, c.ues)));
        let share = read(br#"{"canary":{"code":"0000001f","percent":10}}"#);
        assert_eq!(share, Ok(Some((0x1f, CanaryUes::Percent(10)))));
        let supi: Supi = "imsi-999700000000001".parse().unwrap();
        let listed = read(br#"{"canary":{"code":"1f","ues":["imsi-999700000000001"]}}"#);
        assert_eq!(listed, Ok(Some((0x1f, CanaryUes::Listed([supi].into())))));
        let many = vec!["imsi-999700000000001"; LISTED_MAX + 1];
        let many = format!(r#"{{"canary":{{"code":"1f","ues":{many:?}}}}}"#);
        assert!(read(many.as_bytes()).unwrap_err().contains("501 UEs are listed"));
    }

    #[test]
    fn each_error_names_its_key_and_what_to_write() {
        for (written, message) in [
            (
                r#"{"regions":["n/a","s/a"]}"#,
                "`regions`: two regions are called `a` (n/a and s/a): give one of them another name",
            ),
            (r#"{"regions":["nowhere"]}"#, "`regions`: `nowhere` is no region"),
            (
                r#"{"areas":[{"region":"n/a"}]}"#,
                "`areas`: no gNB is configured in n/a: write `tacs` or `gnbs`",
            ),
            (
                r#"{"areas":[{"region":"n/a","tacs":[16777216]}]}"#,
                "`areas`: 16777216 is no tracking area code",
            ),
            (
                r#"{"areas":[{"region":"n/a","gnbs":[1]},{"region":"n/b","gnbs":[1]}]}"#,
                "`areas`: the gNB 1 is configured in n/a and in n/b: name",
            ),
            (r#"{"replicas":8}"#, "`replicas`: 8 replicas of a UE are of no use: write 0 to 7"),
            (
                r#"{"heartbeat":{"interval_ms":5,"misses":3}}"#,
                "`heartbeat`: write an `interval_ms` of 20 to 1000",
            ),
            (r#"{"heartbeat":{"interval_ms":50}}"#, "missing field `misses`"),
            (r#"{"draining":["cta-1"]}"#, "`draining`: `cta-1` names no CPF"),
            (r#"{"canary":{"code":"x","percent":1}}"#, "`canary`: `x` is no code version"),
            (r#"{"canary":{"code":"0a","percent":101}}"#, "`canary`: 101 percent: write 0 to 100"),
            (r#"{"canary":{"code":"0a"}}"#, "`canary`: write either `percent` or `ues`"),
            (r#"{"canary":{"code":"0a","ues":["7"]}}"#, "`canary`: `7` is no SUPI"),
            (r#"{"replica":1}"#, "unknown field `replica`, expected one of `regions`, `areas`, `replicas`"),
            (r#"{"replicas":1"#, "EOF while parsing an object"),
        ] {
            let why = Configuration::read(written.as_bytes()).unwrap_err();
            assert!(why.starts_with(message), "{written}: {why}");
        }
    }
}
