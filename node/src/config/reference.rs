//! The reference of all configuration keys, as a page of the documentation: collected by the pass that reads and prints them.

use std::fmt::Write;

use super::value::Value;

/// Keys that exist in builds for measurements and demonstrations alone.
const OF_OTHER_BUILDS: [&str; 4] = ["allow_direct", "heartbeat_experiment", "overstate", "record"];

/// One key.
pub(super) struct Entry {
    pub(super) key: &'static str,
    /// What values it takes.
    pub(super) kind: String,
    pub(super) default: String,
    /// Bounds beyond those of its kind.
    pub(super) bounds: Vec<String>,
    pub(super) doc: String,
}

impl Entry {
    /// What values it takes, with its bounds.
    fn values(&self) -> String {
        let bounds = self.bounds.join("; ");
        match self.kind.strip_prefix("a whole number") {
            _ if bounds.is_empty() => self.kind.clone(),
            Some(_) => format!("a whole number, {bounds}"),
            None => format!("{}, {bounds}", self.kind),
        }
    }
}

/// The keys of one section.
struct Part {
    path: String,
    doc: String,
    entries: Vec<Entry>,
}

/// All keys, by section, in the order in which they are read.
#[derive(Default)]
pub(super) struct Reference {
    parts: Vec<Part>,
}

impl Reference {
    /// Begins a section.
    pub(super) fn begin(&mut self, path: &str, doc: &str) {
        self.parts.push(Part { path: path.into(), doc: doc.into(), entries: Vec::new() });
    }

    /// Adds a key of a section.
    pub(super) fn add(&mut self, path: &str, entry: Entry) {
        if OF_OTHER_BUILDS.contains(&entry.key) {
            return;
        }
        self.part(path).entries.push(entry);
    }

    /// Adds bounds to a key.
    pub(super) fn bound(&mut self, path: &str, key: &str, bounds: String) {
        let found = self.part(path).entries.iter_mut().find(|entry| entry.key == key);
        debug_assert!(found.is_some(), "`{key}` of `{path}` has bounds and was not read");
        if let Some(entry) = found {
            entry.bounds.push(bounds);
        }
    }

    fn part(&mut self, path: &str) -> &mut Part {
        let found = self.parts.iter().position(|part| part.path == path);
        let at = found.unwrap_or_else(|| {
            self.begin(path, "");
            self.parts.len() - 1
        });
        &mut self.parts[at]
    }

    fn write(&self, page: &mut String) {
        for part in &self.parts {
            if !part.path.is_empty() {
                let level = "#".repeat(3 + part.path.matches('.').count().min(2));
                let _ = writeln!(page, "\n{level} `{}`", part.path);
            }
            if !part.doc.is_empty() {
                let _ = writeln!(page, "\n{}", part.doc.trim_end_matches(':'));
            }
            if part.entries.is_empty() {
                continue;
            }
            page.push_str("\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
            for entry in &part.entries {
                let (values, default, doc) = (cell(&entry.values()), cell(&entry.default), cell(&entry.doc));
                let _ = writeln!(page, "| `{}` | {values} | {default} | {doc} |", entry.key);
            }
        }
    }
}

/// What values a type takes, in words: what its refusal asks for, without the example.
pub(super) fn kind_of<T: Value>() -> String {
    if T::SECRET {
        return "hexadecimal digits, quoted; a secret".into();
    }
    let expected = T::read("").err().unwrap_or_else(|| "a text".into());
    expected.split(", such as ").next().unwrap_or_default().to_owned()
}

/// A text within a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The page: the keys of a core, and those of a broker.
pub(super) fn page(core: &Reference, broker: &Reference) -> String {
    let mut page = String::from(
        "# Configuration reference\n\n\
         The program writes this page from the table with which it reads the file: `whimbrel reference configuration`. `whimbrel config` prints the same keys\n\
         as a commented file. Every key is optional. `whimbrel check FILE` reports each error with its line and its fix, and an unknown key is an error.\n\n\
         `name[]` is an item of a list.\n\n\
         ## The core\n\n\
         `whimbrel run` reads `whimbrel.yaml` in its folder, else `/etc/whimbrel/whimbrel.yaml`; `-c FILE` names another file.\n",
    );
    core.write(&mut page);
    page.push_str(
        "\n## A broker\n\n`whimbrel broker run -c FILE` reads this file ([open.md](../open.md)).\n",
    );
    broker.write(&mut page);
    page
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::value::SecretHex;
    use super::*;

    #[test]
    fn kinds_say_what_is_accepted_and_show_no_example() {
        assert_eq!(kind_of::<Duration>(), "a duration with its unit");
        assert_eq!(kind_of::<bool>(), "true or false");
        assert_eq!(kind_of::<String>(), "a text");
        assert!(kind_of::<SecretHex>().contains("secret"));
    }

    #[test] // CONTRIBUTING.md: what the documents say of a key is what the code does
    fn the_configuration_reference_is_current() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/configuration.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == super::super::reference(), "docs/reference is stale: ./x reference");
    }

    #[test]
    fn every_key_has_a_kind_and_bounds_are_those_that_are_checked() {
        let page = super::super::reference();
        let row = |key: &str| page.lines().find(|l| l.starts_with(&format!("| `{key}`"))).unwrap_or_default();
        assert!(
            row("t3550").contains("| a duration with its unit, 100ms to 10min | `6s` |"),
            "{}",
            row("t3550")
        );
        assert!(page.contains("\n### `upfs[]`\n") && row("private_key").contains("a secret"));
        let wrong =
            super::super::parse("timers: { t3550: 11min }", std::path::Path::new("w.yaml")).unwrap_err();
        assert!(wrong.to_string().contains("write 100ms to 10min"), "{wrong}");
    }
}
