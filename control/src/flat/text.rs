//! Fixed words of the program in derived forms: what another process says is made one of ours again.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A word that stands in the program.
pub(crate) type Text = &'static str;

/// Words that other processes may bring along: many times those that the program has.
const WORDS_MAX: usize = 1024;
/// Octets of one: a few times the longest that the program has.
const WORD_OCTETS_MAX: usize = 256;
/// What stands for a word beyond these bounds.
const UNKNOWN: Text = "(unknown)";

/// The words that came, each kept once and for good. They show in no output.
static WORDS: Mutex<Words> = Mutex::new(Words(BTreeSet::new()));

struct Words(BTreeSet<Text>);

impl Words {
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
    fn words_of_another_process_are_kept_once_and_bounded() {
        let mut words = Words(BTreeSet::new());
        assert!(std::ptr::eq(words.keep("congested"), words.keep("congested")));
        assert_eq!(words.keep("congested"), "congested");
        assert_eq!(words.keep(&"x".repeat(WORD_OCTETS_MAX + 1)), UNKNOWN);
        (1..WORDS_MAX).for_each(|n| assert_ne!(words.keep(&format!("word {n}")), UNKNOWN));
        assert_eq!(words.keep("one more"), UNKNOWN);
        assert_eq!(words.keep("congested"), "congested");
    }
}
