//! The support bundle: an archive of the state of a core, its configuration, its log and its host, from which keys, tokens and identities
//! of subscribers are removed.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use ring::digest::{SHA256, digest};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};
use whimbrel_node::client::Client;
use whimbrel_node::clock;
use whimbrel_node::config;
use whimbrel_resilience::CodeVersion;

use crate::archive::Writer;

/// What the API is asked for. No list of UEs or subscribers is among it.
const OF_API: [&str; 7] = [
    "/api/v1/status",
    "/api/v1/alarms",
    "/api/v1/gnbs",
    "/api/v1/refusals?limit=200",
    "/api/v1/events?since=0",
    "/api/v1/overload",
    "/api/v1/log-level",
];
/// What the kernel says of the host.
const OF_HOST: [&str; 6] = [
    "/proc/version",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/net/dev",
    "/proc/net/sctp/assocs",
    "/etc/os-release",
];
/// Lines of the journal.
const JOURNAL_LINES: &str = "5000";

/// Writes a bundle; what cannot be read is reported in its place. Returns the names of the files in it. Errors: it cannot be written.
pub(crate) fn write(to: &Path, client: &Client, file: Option<&Path>) -> Result<Vec<String>, String> {
    let cannot = |e: io::Error| format!("{} cannot be written: {e}", to.display());
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(cannot)?;
    let mask = Mask::new().map_err(|e| format!("the system gives no random octets: {e}"))?;
    let (mut archive, mut names) = (Writer::new(io::BufWriter::new(out)), Vec::new());
    let mut add = |name: &str, text: &str| {
        names.push(name.to_owned());
        archive.octets(name, mask.masked(text).as_bytes())
    };
    let mut all = || -> io::Result<()> {
        let about = json!({
            "program": env!("CARGO_PKG_VERSION"), "code": CodeVersion::own().to_string(), "created": clock::rfc3339(clock::now()),
        });
        add("about.json", &pretty(&about))?;
        add("configuration.json", &configuration(file))?;
        for path in OF_API {
            let answer = client.get::<Value>(path).unwrap_or_else(|e| json!({ "error": e }));
            let name = path.trim_start_matches("/api/v1/").split('?').next().unwrap_or_default();
            add(&format!("api/{name}.json"), &pretty(&answer))?;
        }
        add("api/metrics.txt", &client.metrics().unwrap_or_else(|e| e))?;
        for path in OF_HOST {
            let name = format!("host{}", path.replace("/proc", "").replace("/etc", ""));
            add(&name, &fs::read_to_string(path).unwrap_or_else(|e| e.to_string()))?;
        }
        add("journal.txt", &journal())
    };
    let written = all();
    let ended = written.and_then(|()| archive.finish().map(drop));
    if ended.is_err() {
        let _ = fs::remove_file(to);
    }
    ended.map_err(cannot)?;
    Ok(names)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The configuration without its secrets and comments.
fn configuration(file: Option<&Path>) -> String {
    match file.map(config::marked) {
        None => "\"the defaults\"".into(),
        Some(Ok(marked)) => pretty(&marked.redacted),
        Some(Err(e)) => pretty(&json!({ "error": e.to_string() })),
    }
}

/// The newest lines of the service's log.
fn journal() -> String {
    let arguments = ["--unit=whimbrel", "--no-pager", "--output=short-iso", "--lines", JOURNAL_LINES];
    match Command::new("journalctl").args(arguments).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(e) => format!("journalctl cannot be run: {e}"),
    }
}

/// Replaces identities by pseudonyms that are the same within one bundle and lead nowhere beyond it.
struct Mask([u8; 16]);

impl Mask {
    fn new() -> io::Result<Self> {
        let mut salt = [0; 16];
        let filled = getrandom(&mut salt, GetRandomFlags::empty())?;
        if filled < salt.len() { Err(io::Error::other("too few")) } else { Ok(Self(salt)) }
    }

    /// The text with a pseudonym for each run of digits that is as long as an IMSI, an IMEI or an MSISDN can be, if it follows such a
    /// prefix, or has 14 to 16 digits.
    fn masked(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, digits) = rest.split_at(at);
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let (run, behind) = digits.split_at(end);
            out += before;
            let is_named = ["imsi-", "imei-", "imeisv-", "msisdn-", "suci-"].iter().any(|p| out.ends_with(p));
            let is_part = out.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_');
            if is_named && run.len() >= 5
                || (14..=16).contains(&run.len()) && !is_part && !behind.starts_with('.')
            {
                out += &self.pseudonym(run);
            } else {
                out += run;
            }
            rest = behind;
        }
        out + rest
    }

    fn pseudonym(&self, digits: &str) -> String {
        let digest = digest(&SHA256, &[&self.0, digits.as_bytes()].concat());
        let first: String = digest.as_ref().iter().take(4).map(|octet| format!("{octet:02x}")).collect();
        format!("~{first}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Reader;

    fn files(bundle: &Path) -> Vec<(String, String)> {
        let mut reader = Reader::new(fs::File::open(bundle).unwrap());
        let mut files = Vec::new();
        while let Some((name, _)) = reader.next_file().unwrap() {
            let mut content = Vec::new();
            reader.content(&mut content).unwrap();
            files.push((name, String::from_utf8(content).unwrap()));
        }
        files
    }

    #[test]
    fn a_bundle_has_no_key_of_the_configuration_and_says_what_cannot_be_had() {
        let folder = tempfile::tempdir().unwrap();
        let key = "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d";
        let file = folder.path().join("whimbrel.yaml");
        let text = format!(
            "plmn: 001/01\n# the former key was {key}\nhome_network_keys:\n  - {{ id: 3, scheme: A, private_key: \"{key}\" }}\n"
        );
        fs::write(&file, text).unwrap();
        let bundle = folder.path().join("bundle.tar");
        let client = Client::new("127.0.0.1:1".parse().unwrap());
        let names = write(&bundle, &client, Some(&file)).unwrap();
        let files = files(&bundle);
        assert_eq!(names, files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        let of = |name: &str| &files.iter().find(|(n, _)| n == name).unwrap().1;
        assert!(
            of("configuration.json").contains("001/01") && of("configuration.json").contains("(removed)")
        );
        assert!(of("api/status.json").contains("no core answers"));
        assert!(!files.iter().any(|(_, text)| text.contains(&key[..16])));
        assert!(
            write(&bundle, &client, None).unwrap_err().contains("cannot be written"),
            "it is not overwritten"
        );
    }

    #[test]
    fn identities_become_pseudonyms_and_other_numbers_stay() {
        let mask = Mask([7; 16]);
        let text = "imsi-999700000000001 at gnb-999/70-1, 999700000000001 again, imei-353490069873319, 10.45.0.9:2152, msisdn-49170123, \
                    {\"seq\":12345678901234567890}, 2026-01-02T03:04:05.678Z, whimbrel_x 123456789012345.5";
        let masked = mask.masked(text);
        assert!(
            !masked.contains("999700000000001")
                && !masked.contains("353490069873319")
                && !masked.contains("49170123"),
            "{masked}"
        );
        for kept in [
            "gnb-999/70-1",
            "10.45.0.9:2152",
            "12345678901234567890",
            "2026-01-02T03:04:05.678Z",
            "123456789012345.5",
        ] {
            assert!(masked.contains(kept), "{kept}: {masked}");
        }
        let pseudonym = mask.pseudonym("999700000000001");
        assert_eq!(masked.matches(&pseudonym).count(), 2, "the same each time: {masked}");
        assert_ne!(pseudonym, Mask([8; 16]).pseudonym("999700000000001"));
    }
}
