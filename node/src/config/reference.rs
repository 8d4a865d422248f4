//! The reference of all configuration keys, as a page of the documentation: collected by the pass that reads and prints them.

use std::fmt::Write;

use super::operator_keys::is_operator_key;
use super::value::Value;

/// Keys that exist in builds for measurements and demonstrations alone.
const OF_OTHER_BUILDS: [&str; 4] = ["allow_direct", "heartbeat_experiment", "overstate", "record"];

/// A key of the configuration, described.
pub(super) struct DescribedKey {
    pub(super) key: &'static str,
    /// What values it takes.
    pub(super) kind: String,
    pub(super) default: String,
    /// Bounds beyond those of its kind.
    pub(super) bounds: Vec<String>,
    pub(super) doc: String,
}

impl DescribedKey {
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
struct SectionKeys {
    path: String,
    doc: String,
    entries: Vec<DescribedKey>,
}

impl SectionKeys {
    /// The dotted path of one of its keys.
    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }
}

/// All keys, by section, in the order in which they are read.
#[derive(Default)]
pub(super) struct Reference {
    parts: Vec<SectionKeys>,
}

impl Reference {
    /// Begins a section.
    pub(super) fn begin(&mut self, path: &str, doc: &str) {
        self.parts.push(SectionKeys { path: path.into(), doc: doc.into(), entries: Vec::new() });
    }

    /// Adds a key of a section.
    pub(super) fn add(&mut self, path: &str, entry: DescribedKey) {
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

    fn part(&mut self, path: &str) -> &mut SectionKeys {
        let found = self.parts.iter().position(|part| part.path == path);
        let at = found.unwrap_or_else(|| {
            self.begin(path, "");
            self.parts.len() - 1
        });
        &mut self.parts[at]
    }

    /// Writes the tables. `marks` says of a path whether an operator sets that key.
    fn write(&self, page: &mut String, marks: fn(&str) -> bool) {
        for part in &self.parts {
            if !part.path.is_empty() {
                let level = "#".repeat(3 + part.path.matches('.').count().min(2));
                let _ = writeln!(page, "\n{level} `{}`", part.path);
            }
            if !part.doc.is_empty() {
                let _ = writeln!(page, "\n{}", part.doc.trim_end_matches(':'));
            }
            if part.path.strip_suffix("[]").is_some_and(marks) {
                page.push_str("\nThe list is one of the keys that an operator sets.\n");
            }
            if part.entries.is_empty() {
                continue;
            }
            page.push_str("\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
            for entry in &part.entries {
                let (values, default, doc) = (cell(&entry.values()), cell(&entry.default), cell(&entry.doc));
                let mark = if marks(&part.path_of(entry.key)) { "**" } else { "" };
                let _ = writeln!(page, "| {mark}`{}`{mark} | {values} | {default} | {doc} |", entry.key);
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
         The program writes this page from the table with which it reads the file: `whimbrel reference configuration`. Every key is optional.\n\
         `whimbrel config` prints those in bold, which an operator sets, as a commented file; `whimbrel config --all` prints all of them. `whimbrel check FILE` reports each error with its line and its fix, and an unknown key is an error.\n\n\
         `name[]` is an item of a list.\n\n\
         ## The core\n\n\
         `whimbrel run` reads `whimbrel.yaml` in its folder, else `/etc/whimbrel/whimbrel.yaml`; `-c FILE` names another file.\n",
    );
    core.write(&mut page, is_operator_key);
    page.push_str(
        "\n## A broker\n\n`whimbrel-broker run -c FILE` reads this file ([open.md](../open.md)).\n",
    );
    broker.write(&mut page, |_| false);
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
    fn each_operator_key_is_a_key_and_the_reference_shows_it_in_bold() {
        let page = super::super::reference();
        let core = page.split("\n## A broker\n").next().unwrap_or_default();
        let lists = core.matches("The list is one of the keys that an operator sets.").count();
        assert_eq!(core.matches("\n| **`").count() + lists, super::super::operator_keys::OPERATOR_KEYS.len());
        assert!(!page[core.len()..].contains("| **`"), "a broker has no such keys");
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
