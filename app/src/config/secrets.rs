//! Secrets in the text of a configuration file: a name stands for each where the text is shown, and the secret is put back where the
//! text is saved. So keys that were configured can be kept and replaced, and are never read.

use std::ops::Range;
use std::path::Path;

use super::LoadError;
use super::problem::Problem;
use super::section::Pass;
use super::yaml::{self, Node, NodeValue, Position};

/// The text with `(secret 1)`, `(secret 2)` … in place of its secrets. Errors: one sentence.
pub(crate) fn hidden(text: &str, file: &Path) -> Result<String, LoadError> {
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for (n, place) in (1..).zip(places(text, file)?) {
        shown.push_str(&text[from..place.start]);
        shown.push_str(&name(n));
        from = place.end;
    }
    shown.push_str(&text[from..]);
    Ok(shown)
}

/// A text that was shown and edited, with the secrets of the text that it was made from. Errors: the number of a secret that the former text
/// does not have.
pub(crate) fn put_back(edited: &str, former: &str, file: &Path) -> Result<String, LoadError> {
    // A former text that is no YAML has no secret that was shown.
    let places = places(former, file).unwrap_or_default();
    let mut text = String::with_capacity(edited.len());
    let mut rest = edited;
    while let Some((before, number, after)) = next_name(rest) {
        text.push_str(before);
        let secret = number.checked_sub(1).and_then(|i| former.get(places.get(i)?.clone()));
        let Some(secret) = secret else {
            let line = 1 + text.matches('\n').count();
            let what = format!("the file has no secret {number} that could be kept");
            let fix = "write the secret itself".to_string();
            let problem = Problem { at: Position { line, column: 1 }, key: String::new(), what, fix };
            return Err(LoadError::Problems(file.into(), vec![problem]));
        };
        text.push_str(secret);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// What stands for a secret.
fn name(number: usize) -> String {
    format!("\"(secret {number})\"")
}

/// The next name of a secret: what stands before it, its number, and what follows.
fn next_name(text: &str) -> Option<(&str, usize, &str)> {
    const OPENING: &str = "\"(secret ";
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find(OPENING)?;
        let digits = text.get(at + OPENING.len()..)?;
        if let Some((number, after)) = digits.split_once(")\"")
            && let Ok(number) = number.parse()
        {
            return Some((text.get(..at)?, number, after));
        }
        from = at + OPENING.len();
    }
}

/// Where the secrets stand in a text, in its order, with their quotes.
fn places(text: &str, file: &Path) -> Result<Vec<Range<usize>>, LoadError> {
    let refused = |at, what: String, fix: &str| {
        let problem = Problem { at, key: String::new(), what, fix: fix.into() };
        LoadError::Problems(file.into(), vec![problem])
    };
    let bare = text.trim_start_matches('\u{feff}');
    let node = yaml::parse(bare).map_err(|(at, what)| refused(at, what, ""))?;
    let mut pass = Pass::default();
    super::all_keys(&mut pass, &node);
    let mut found = Vec::new();
    collect(&node, "", &pass.secrets, &mut found);
    found.sort_by_key(|(at, _)| *at);
    let skipped = text.len() - bare.len();
    let places = found.into_iter().map(|(at, value)| {
        let place = place_of(bare, at, value).ok_or_else(|| {
            let what = "a secret stands over several lines, so that the file cannot be shown".to_string();
            refused(at, what, "write it on one line, quoted")
        })?;
        Ok(place.start + skipped..place.end + skipped)
    });
    places.collect()
}

/// The scalars at or under the paths of secrets.
fn collect<'n>(node: &'n Node, path: &str, secrets: &[String], found: &mut Vec<(Position, &'n str)>) {
    let is_secret = secrets.iter().any(|secret| secret == path);
    match &node.value {
        NodeValue::Null => {}
        NodeValue::Text(text) if is_secret => found.push((node.at, text)),
        NodeValue::Text(_) => {}
        NodeValue::List(items) => {
            for (i, item) in items.iter().enumerate() {
                let below = if is_secret { path.to_owned() } else { format!("{path}[{i}]") };
                collect(item, &below, secrets, found);
            }
        }
        NodeValue::Map(map) => {
            for (key, item) in map {
                let below = if path.is_empty() { key.name.clone() } else { format!("{path}.{}", key.name) };
                collect(item, &below, secrets, found);
            }
        }
    }
}

/// The octets of a scalar that begins at a position and is on one line.
fn place_of(text: &str, at: Position, value: &str) -> Option<Range<usize>> {
    let line: &str = text.split_inclusive('\n').nth(at.line - 1)?;
    let begin = line.as_ptr() as usize - text.as_ptr() as usize;
    let column = line.char_indices().nth(at.column - 1)?.0;
    let rest = line.get(column..)?.trim_end_matches(['\n', '\r']);
    let length = match rest.chars().next()? {
        '"' => {
            let mut escaped = false;
            let close = rest.char_indices().skip(1).find(|(_, c)| {
                let closes = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                closes
            });
            close?.0 + 1
        }
        '\'' => {
            let mut from = 1;
            loop {
                let close = from + rest.get(from..)?.find('\'')?;
                match rest[close + 1..].starts_with('\'') {
                    true => from = close + 2,
                    false => break close + 1,
                }
            }
        }
        _ => rest.starts_with(value).then_some(value.len())?,
    };
    Some(begin + column..begin + column + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d";

    fn file() -> &'static Path {
        Path::new("whimbrel.yaml")
    }

    #[test]
    fn a_secret_is_shown_by_a_number_and_kept_when_the_text_is_saved() {
        for quote in ["\"", "'", ""] {
            let text = format!(
                "# ö\nplmn: 999/70\nhome_network_keys: [{{ id: 1, private_key: {quote}{KEY}{quote}, scheme: A }}]\nhome_network_keys_of: none\n"
            );
            let shown = hidden(&text, file()).unwrap();
            assert!(!shown.contains(KEY) && shown.contains("private_key: \"(secret 1)\", scheme"), "{shown}");
            assert_eq!(put_back(&shown, &text, file()).unwrap(), text);
            let edited = shown.replace("id: 1", "id: 2");
            assert_eq!(put_back(&edited, &text, file()).unwrap(), text.replace("id: 1", "id: 2"));
        }
    }

    #[test]
    fn two_secrets_keep_their_numbers_when_their_places_are_exchanged() {
        let other = KEY.replace('c', "b");
        let text = format!(
            "home_network_keys:\n  - {{ id: 1, private_key: {KEY} }}\n  - {{ id: 2, private_key: \"{other}\" }}\n"
        );
        let shown = hidden(&text, file()).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        let exchanged = format!("{}\n{}\n{}\n", lines[0], lines[2], lines[1]);
        let saved = put_back(&exchanged, &text, file()).unwrap();
        assert!(saved.find(&other) < saved.find(KEY) && saved.contains(KEY), "{saved}");
    }

    #[test]
    fn a_secret_that_the_file_does_not_have_is_refused_with_its_line() {
        let LoadError::Problems(_, problems) =
            put_back("plmn: 999/70\nx: \"(secret 3)\"\n", "plmn: 999/70\n", file()).unwrap_err()
        else {
            panic!("problems");
        };
        assert_eq!(problems[0].at.line, 2);
        // What only looks like one is text.
        for text in ["a: \"(secret )\"\n", "a: \"(secret x)\" \"(secret", "a: \"(secret"] {
            assert_eq!(put_back(text, "", file()).unwrap(), text);
        }
    }

    #[test]
    fn a_secret_over_several_lines_is_not_shown() {
        let text = format!("home_network_keys:\n  - id: 1\n    private_key: >\n      {KEY}\n");
        assert!(hidden(&text, file()).is_err());
    }
}
