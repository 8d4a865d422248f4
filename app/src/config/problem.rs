//! Problems of a configuration file: one sentence each, which ends with the fix.

use std::fmt;
use std::path::Path;

use super::yaml::Position;

/// One problem.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    /// Where in the file.
    pub(crate) at: Position,
    /// The key in dots (`amf.region`), empty for the file as a whole.
    pub(crate) key: String,
    /// What is wrong.
    pub(crate) what: String,
    /// What to write instead.
    pub(crate) fix: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        if !self.fix.is_empty() {
            write!(f, "; {}", self.fix)?;
        }
        Ok(())
    }
}

/// Prints problems as compilers do, `file:line:column: sentence`, in the order of the file.
pub(crate) fn sentences(file: &Path, problems: &[Problem]) -> String {
    let mut sorted: Vec<&Problem> = problems.iter().collect();
    sorted.sort_by_key(|p| p.at);
    sorted.iter().map(|p| format!("{}:{}: {p}\n", file.display(), p.at)).collect()
}

/// The known word nearest to a mistyped one, if it is near enough to be meant.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |a: &str| distance(&word.to_ascii_lowercase(), &a.to_ascii_lowercase());
    let (distance, best) = known.into_iter().map(|k| (near(k), k)).min()?;
    (distance <= 1 + best.len() / 4).then_some(best)
}

/// Levenshtein distance with swaps of adjacent characters (optimal string alignment), of words cut to 64 characters.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_meant_only_if_it_is_near() {
        let known = ["plmn", "tac", "slices", "data_networks"];
        assert_eq!(did_you_mean("plnm", known), Some("plmn"));
        assert_eq!(did_you_mean("slice", known), Some("slices"));
        assert_eq!(did_you_mean("dataNetworks", known), Some("data_networks"));
        assert_eq!(did_you_mean("zebra", known), None);
    }
}
