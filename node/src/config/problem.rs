//! Problems of a configuration file: one sentence each, which ends with the fix.

use std::fmt;
use std::path::Path;

use super::yaml::Position;

/// A problem of a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigProblem {
    /// Where in the file.
    pub at: Position,
    /// The key in dots (`amf.region`), empty for the file as a whole.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub fix: String,
}

impl fmt::Display for ConfigProblem {
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

impl ConfigProblem {
    /// Takes secrets out of the sentence: words of at least [`MASKED_MIN`] characters that have one, or are a part of one.
    pub fn mask(&mut self, secrets: &[&str]) {
        for text in [&mut self.key, &mut self.what, &mut self.fix] {
            *text = masked(text, secrets);
        }
    }
}

/// Characters of the shortest word that is masked: shorter parts of a key are no use, and words of a sentence are shorter.
const MASKED_MIN: usize = 12;

fn masked(text: &str, secrets: &[&str]) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-');
    let is_secret = |word: &str| {
        word.len() >= MASKED_MIN
            && secrets.iter().any(|s| s.contains(word) || (s.len() >= MASKED_MIN && word.contains(s)))
    };
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()).max(if is_of_word(c) {
            0
        } else {
            c.len_utf8()
        });
        let (word, after) = rest.split_at(end);
        shown.push_str(if is_secret(word) { "(secret)" } else { word });
        rest = after;
    }
    shown
}

/// Prints problems as compilers do, `file:line:column: sentence`, in the order of the file.
pub fn sentences(file: &Path, problems: &[ConfigProblem]) -> String {
    let mut sorted: Vec<&ConfigProblem> = problems.iter().collect();
    sorted.sort_by_key(|p| p.at);
    sorted.iter().map(|p| format!("{}:{}: {p}\n", file.display(), p.at)).collect()
}

/// The known word nearest to a mistyped one, if it is near enough to be meant.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
    fn a_secret_is_masked_also_in_part() {
        let secret = "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d";
        let part = &secret[..60];
        let text = format!("`{secret}` and `{part}…` are not understood; write 64 digits");
        let mut problem =
            ConfigProblem { at: Position::START, key: "x".into(), what: text, fix: String::new() };
        problem.mask(&[secret]);
        assert_eq!(problem.what, "`(secret)` and `(secret)…` are not understood; write 64 digits");
    }

    #[test]
    fn the_nearest_word_is_meant_only_if_it_is_near() {
        let known = ["plmn", "tac", "slices", "data_networks"];
        assert_eq!(did_you_mean("plnm", known), Some("plmn"));
        assert_eq!(did_you_mean("slice", known), Some("slices"));
        assert_eq!(did_you_mean("dataNetworks", known), Some("data_networks"));
        assert_eq!(did_you_mean("zebra", known), None);
    }
}
