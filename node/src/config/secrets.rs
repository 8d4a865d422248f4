//! Secrets in the text of a configuration file: a name stands for each where the text is shown, and the secret is put back where the
//! text is saved. So keys that were configured can be kept and replaced, and are never read.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use super::LoadError;
use super::problem::ConfigProblem;
use super::section::{Pass, texts};
use super::yaml::{self, Node, NodeValue, Position};

/// The text with `(secret 1)`, `(secret 2)` … in place of its secrets. Errors: one sentence.
pub fn hidden(text: &str, file: &Path) -> Result<String, LoadError> {
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

/// A text that was shown and edited, with the secrets of the text that it was made from. A name of a secret is replaced where the value of
/// a secret key stands, and nowhere else: at another place its value would be shown, by an error or by the running core.
///
/// Errors: the number of a secret that the former text does not have; a text that is no YAML.
pub fn put_back(edited: &str, former: &str, file: &Path) -> Result<String, LoadError> {
    // A former text that is no YAML has no secret that was shown.
    let secrets: Vec<&str> =
        places(former, file).unwrap_or_default().into_iter().filter_map(|place| former.get(place)).collect();
    let mut text = String::with_capacity(edited.len());
    let mut from = 0;
    for (at, number, place) in names(edited, file)? {
        let Some(secret) = number.checked_sub(1).and_then(|i| secrets.get(i)) else {
            let what = format!("the file has no secret {number} that could be kept");
            return Err(refused(file, at, what, "write the secret itself"));
        };
        text.push_str(&edited[from..place.start]);
        text.push_str(secret);
        from = place.end;
    }
    text.push_str(&edited[from..]);
    Ok(text)
}

fn refused(file: &Path, at: Position, what: String, fix: &str) -> LoadError {
    LoadError::Problems(file.into(), vec![ConfigProblem { at, key: String::new(), what, fix: fix.into() }])
}

/// What stands for a secret.
fn name(number: usize) -> String {
    format!("\"(secret {number})\"")
}

/// The number in what stands for a secret.
fn number_in(value: &str) -> Option<usize> {
    value.strip_prefix("(secret ")?.strip_suffix(')')?.parse().ok()
}

/// A text's nodes, and what its keys say of secrets. Its files are not opened.
fn read(bare: &str, file: &Path) -> Result<(Node, Pass), LoadError> {
    let node = yaml::parse(bare).map_err(|(at, what)| refused(file, at, what, ""))?;
    let mut pass = Pass::without_files();
    super::all_keys(&mut pass, &node);
    Ok((node, pass))
}

/// The names of secrets that stand where the value of a secret key does, in the order of the text: each with its place and its number.
fn names(text: &str, file: &Path) -> Result<Vec<(Position, usize, Range<usize>)>, LoadError> {
    let bare = text.trim_start_matches('\u{feff}');
    let (_, pass) = read(bare, file)?;
    let skipped = text.len() - bare.len();
    let mut found: Vec<_> = pass
        .secret_places
        .iter()
        .filter_map(|(at, value)| {
            let place = place_of(bare, *at, value)?;
            Some((*at, number_in(value)?, place.start + skipped..place.end + skipped))
        })
        .collect();
    found.sort_by_key(|(at, ..)| *at);
    Ok(found)
}

/// Where the secrets stand in a text, in its order, with their quotes: the values of secret keys, and what stands under a key of that name
/// at a wrong place.
fn places(text: &str, file: &Path) -> Result<Vec<Range<usize>>, LoadError> {
    let bare = text.trim_start_matches('\u{feff}');
    let (node, pass) = read(bare, file)?;
    let mut found = pass.secret_places;
    // The keys of a list's items are known where the list is none, too.
    let mut all = Pass::describing();
    super::all_keys(&mut all, &Node { at: Position::START, value: NodeValue::Null });
    collect(&node, &all.secret_keys, &mut found);
    found.sort();
    found.dedup();
    let skipped = text.len() - bare.len();
    let places = found.iter().map(|(at, value)| {
        let place = place_of(bare, *at, value).ok_or_else(|| {
            let what = "a secret stands over several lines, so that the file cannot be shown".to_string();
            refused(file, *at, what, "write it on one line, quoted")
        })?;
        Ok(place.start + skipped..place.end + skipped)
    });
    places.collect()
}

/// The texts below each key that has the name of a secret key.
fn collect(node: &Node, secret_keys: &BTreeSet<&'static str>, found: &mut Vec<(Position, String)>) {
    match &node.value {
        NodeValue::Null | NodeValue::Text(_) => {}
        NodeValue::List(items) => items.iter().for_each(|item| collect(item, secret_keys, found)),
        NodeValue::Map(map) => {
            for (key, item) in map {
                match secret_keys.contains(key.name.as_str()) {
                    true => texts(item, found),
                    false => collect(item, secret_keys, found),
                }
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
        let former = "plmn: 999/70\n";
        let edited = format!("{former}home_network_keys:\n  - {{ private_key: \"(secret 3)\" }}\n");
        let LoadError::Problems(_, problems) = put_back(&edited, former, file()).unwrap_err() else {
            panic!("problems");
        };
        assert_eq!(problems[0].at.line, 3);
        // What only looks like one is text.
        for value in ["\"(secret )\"", "\"(secret x)\"", "\"(secret -1)\"", "secret 1"] {
            let text = format!("home_network_keys: [{{ private_key: {value} }}]\n");
            assert_eq!(put_back(&text, "", file()).unwrap(), text);
        }
    }

    #[test]
    fn a_name_of_a_secret_is_replaced_at_a_secret_key_and_nowhere_else() {
        let former = format!("home_network_keys: [{{ id: 1, private_key: {KEY} }}]\n");
        for text in [
            "\"(secret 1)\": 1\n",
            "plmn: \"(secret 1)\"\n",
            "amf: { name: \"(secret 1)\" }\n",
            "# \"(secret 1)\"\n",
            "home_network_keys: [{ private_key_file: \"(secret 1)\" }]\n",
            "home_network_keys: [{ id: \"(secret 1)\" }]\n",
            "home_network_keys: { private_key: \"(secret 1)\" }\n",
            "amf: { private_key: \"(secret 1)\" }\n",
            "\"home_network_keys[0].private_key\": \"(secret 1)\"\nhome_network_keys: [{ id: 1 }]\n",
        ] {
            assert_eq!(put_back(text, &former, file()).unwrap(), text);
        }
        let moved = "home_network_keys: [{ id: 9, private_key: '(secret 1)' }]\n";
        assert!(put_back(moved, &former, file()).unwrap().contains(KEY));
    }

    #[test]
    fn a_secret_at_a_wrong_place_is_not_shown() {
        let text =
            format!("home_network_keys: {{ private_key: {KEY} }}\namf: {{ private_key: [\"{KEY}\"] }}\n");
        let shown = hidden(&text, file()).unwrap();
        assert!(!shown.contains(KEY) && shown.contains("(secret 2)"), "{shown}");
    }

    #[test]
    fn a_secret_over_several_lines_is_not_shown() {
        let text = format!("home_network_keys:\n  - id: 1\n    private_key: >\n      {KEY}\n");
        assert!(hidden(&text, file()).is_err());
    }
}
