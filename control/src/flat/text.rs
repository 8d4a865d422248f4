//! Static strings in derived forms: a decoded string is interned.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A static string.
pub(crate) type Text = &'static str;

/// Bound on interned strings: many times the number in the program.
const WORDS_MAX: usize = 1024;
/// Bound on their length: a few times the longest in the program.
const WORD_OCTETS_MAX: usize = 256;
/// The substitute beyond these bounds.
const UNKNOWN: Text = "(unknown)";

/// The interned strings, never freed. They do not affect outputs.
static WORDS: Mutex<TextWords> = Mutex::new(TextWords(BTreeSet::new()));

struct TextWords(BTreeSet<Text>);

impl TextWords {
    fn keep(&mut self, word: &str) -> Text {
        if let Some(known) = self.0.get(word) {
            return known;
        }
        if self.0.len() >= WORDS_MAX || word.len() > WORD_OCTETS_MAX {
            return UNKNOWN;
        }
        let word: Text = String::from(word).leak();
        self.0.insert(word);
        word
    }
}

pub(crate) fn serialize<S: Serializer>(word: &Text, to: S) -> Result<S::Ok, S::Error> {
    word.serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    let word = <Cow<'_, str>>::deserialize(from)?;
    Ok(WORDS.lock().unwrap_or_else(PoisonError::into_inner).keep(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_another_process_are_interned_once_and_bounded() {
        let mut words = TextWords(BTreeSet::new());
        assert!(std::ptr::eq(words.keep("congested"), words.keep("congested")));
        assert_eq!(words.keep("congested"), "congested");
        assert_eq!(words.keep(&"x".repeat(WORD_OCTETS_MAX + 1)), UNKNOWN);
        (1..WORDS_MAX).for_each(|n| assert_ne!(words.keep(&format!("word {n}")), UNKNOWN));
        assert_eq!(words.keep("one more"), UNKNOWN);
        assert_eq!(words.keep("congested"), "congested");
    }
}
