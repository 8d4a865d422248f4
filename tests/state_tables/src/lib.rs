//! Tables of state machines: every state against every kind of input, as the machine itself behaves.
//!
//! A test drives the machine into each state, gives it each input, and hands the outcomes to [`StateTable`]. [`assert_page`] compares the
//! tables with a page of `docs/state-machines`, whose part below [`MARK`] they are. With the variable [`WRITE`] set it writes them there:
//! `./x tables` does that for all pages.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::Path;

/// Line of a page below which the tables stand.
pub const MARK: &str = "<!-- The tables below are written by tests: ./x tables -->";

/// Environment variable that has the tables written instead of compared.
pub const WRITE: &str = "WHIMBREL_WRITE_TABLES";

/// The outcome of one input in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The state that follows, if it is another one.
    pub next: Option<String>,
    /// Names of the messages that leave, in their order.
    pub sent: Vec<String>,
    /// Events for the user of the machine, and reasons of refusals.
    pub reported: Vec<String>,
}

impl Outcome {
    /// The outcome of an input that led from one state to another, or left it. Equal names are counted.
    pub fn between(before: &str, after: &str, sent: Vec<String>, reported: Vec<String>) -> Self {
        let next = (before != after).then(|| after.to_owned());
        Self { next, sent: counted(sent), reported: counted(reported) }
    }

    /// The cell of the table.
    fn cell(&self) -> String {
        let next = self.next.iter().map(|state| format!("→ {state}"));
        let sent = (!self.sent.is_empty()).then(|| self.sent.join(", "));
        let reported = (!self.reported.is_empty()).then(|| format!("*{}*", self.reported.join(", ")));
        let parts: Vec<String> = next.chain(sent).chain(reported).collect();
        if parts.is_empty() { "–".into() } else { parts.join("; ").replace('|', "\\|") }
    }
}

/// Each name once, with its number if there are several, in the order of first appearance.
fn counted(names: Vec<String>) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, times)) => *times += 1,
            None => counts.push((name, 1)),
        }
    }
    let shown = |(name, times)| if times == 1 { name } else { format!("{times} × {name}") };
    counts.into_iter().map(shown).collect()
}

/// One table: a row for each state, a column for each input.
#[derive(Clone, Debug)]
pub struct StateTable {
    title: String,
    inputs: Vec<String>,
    rows: Vec<(String, Vec<Outcome>)>,
}

impl StateTable {
    /// A table with the outcome of each input in each state. Names come first in `states` and `inputs`.
    pub fn new<S, I>(
        title: &str,
        states: &[(&str, S)],
        inputs: &[(&str, I)],
        mut outcome: impl FnMut(&S, &I) -> Outcome,
    ) -> Self {
        let row = |(name, state): &(&str, S)| {
            let outcomes = inputs.iter().map(|(_, input)| outcome(state, input)).collect();
            ((*name).to_owned(), outcomes)
        };
        let rows = states.iter().map(row).collect();
        Self {
            title: title.into(),
            inputs: inputs.iter().map(|(name, _)| (*name).to_owned()).collect(),
            rows,
        }
    }

    /// The table in Markdown, with its heading.
    fn markdown(&self) -> String {
        let mut text = format!("\n## {}\n\n| state |", self.title);
        for input in &self.inputs {
            let _ = write!(text, " {input} |");
        }
        let _ = writeln!(text, "\n| --- |{}", " --- |".repeat(self.inputs.len()));
        for (state, outcomes) in &self.rows {
            let _ = write!(text, "| **{state}** |");
            for outcome in outcomes {
                let _ = write!(text, " {} |", outcome.cell());
            }
            text.push('\n');
        }
        text
    }
}

/// The text above the tables of a page, and the tables below [`MARK`].
fn split(page: &str) -> Option<(&str, &str)> {
    let end = page.find(MARK)? + MARK.len();
    Some((page.get(..end)?, page.get(end..)?.trim_start_matches('\n')))
}

/// The first line in which two texts differ, in both.
fn difference(stored: &str, found: &str) -> String {
    let mut lines =
        (1..).zip(stored.lines().map(Some).chain([None]).zip(found.lines().map(Some).chain([None])));
    match lines.find(|(_, (stored, found))| stored != found) {
        Some((_, (stored, found))) => cells(stored.unwrap_or_default(), found.unwrap_or_default()),
        None => "the number of lines differs".into(),
    }
}

/// The cells in which two rows differ.
fn cells(stored: &str, found: &str) -> String {
    let row = found.split('|').nth(1).unwrap_or_default().trim();
    let pairs = (0..).zip(stored.split(" | ").zip(found.split(" | ")));
    let differing = pairs.filter(|(_, (stored, found))| stored != found);
    let lines = differing.map(|(at, (stored, found))| {
        format!("  column {at}: the page has `{}`, the machine does `{}`\n", stored.trim(), found.trim())
    });
    format!("in state {row}:\n{}", lines.collect::<String>())
}

/// Compares the tables with those of a page of `docs/state-machines`, or writes them there if [`WRITE`] is set.
///
/// # Panics
/// If the page lacks [`MARK`], or its tables are others.
pub fn assert_page(page: &str, tables: &[StateTable]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/state-machines").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("docs/state-machines/{page}: {e}"));
    let found: String = tables.iter().map(StateTable::markdown).collect();
    let found = found.trim_start_matches('\n');
    let (head, stored) =
        split(&text).unwrap_or_else(|| panic!("docs/state-machines/{page} lacks the line {MARK}"));
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, format!("{head}\n\n{found}")).expect("the page can be written");
        return;
    }
    assert!(
        stored == found,
        "docs/state-machines/{page} is not what the machine does; if the machine is right, ./x tables writes the page\n{}",
        difference(stored, found)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(closes: bool) -> StateTable {
        let states = [("OPEN", true), ("CLOSED", false)];
        let inputs = [("close", 1), ("nothing", 0)];
        StateTable::new("A door", &states, &inputs, |open, input| {
            let after = if *open && *input == 1 && closes { "CLOSED" } else { "OPEN" };
            let (before, after) = if *open { ("OPEN", after) } else { ("CLOSED", "CLOSED") };
            let sent = if before == after { vec![] } else { vec!["CLICK".into()] };
            Outcome::between(before, after, sent, vec![])
        })
    }

    #[test]
    fn a_table_has_a_row_for_each_state_and_a_column_for_each_input() {
        let text = table(true).markdown();
        let rows: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(
            rows,
            [
                "| state | close | nothing |",
                "| --- | --- | --- |",
                "| **OPEN** | → CLOSED; CLICK | – |",
                "| **CLOSED** | – | – |",
            ]
        );
    }

    #[test]
    fn a_difference_names_state_and_cells() {
        let (stored, found) = (table(true).markdown(), table(false).markdown());
        let shown = difference(&stored, &found);
        assert!(
            shown.contains("**OPEN**") && shown.contains("`→ CLOSED; CLICK`, the machine does `–`"),
            "{shown}"
        );
    }

    #[test]
    fn a_page_keeps_what_stands_above_its_tables() {
        let page = format!("# A door\n\n{MARK}\n\n## A door\n");
        assert_eq!(split(&page), Some((&*format!("# A door\n\n{MARK}"), "## A door\n")));
        assert_eq!(split("# A door\n"), None);
    }
}
