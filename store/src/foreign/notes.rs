//! Parts that an import leaves out, or reads otherwise than they were written, in sentences.

use core::fmt;
use std::collections::BTreeMap;

use super::DocumentPosition;

/// Sentences of one import at most: far more than there are reasons; what names a rule or a DNN could else grow with the file.
const SENTENCES_MAX: usize = 500;
/// Subscribers that one sentence names.
const NAMED_MAX: usize = 10;
/// The sentence that stands for those beyond [`SENTENCES_MAX`].
const FURTHER: &str = "Further parts are left out; import fewer subscribers at a time to see which.";

/// A part of an exported database that is not imported, or not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportNote {
    /// The part and the reason, in one sentence.
    pub sentence: String,
    /// Number of subscribers, or of documents of none, that have it.
    pub count: u64,
    /// The first of them, with file and line.
    pub named: Vec<String>,
}

impl fmt::Display for ImportNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.sentence, self.named.join("; "))?;
        match self.count.saturating_sub(self.named.len() as u64) {
            0 => f.write_str(")"),
            more => write!(f, "; and {more} more)"),
        }
    }
}

/// The notes of an import, as they come.
#[derive(Default)]
pub(crate) struct ImportNotes {
    by_sentence: BTreeMap<String, ImportNote>,
}

impl ImportNotes {
    /// Notes each sentence once for a document.
    pub(super) fn add(&mut self, place: &DocumentPosition, subscriber: &str, mut sentences: Vec<String>) {
        sentences.sort();
        sentences.dedup();
        for sentence in sentences {
            let known = self.by_sentence.contains_key(&sentence);
            let sentence =
                if known || self.by_sentence.len() < SENTENCES_MAX { sentence } else { FURTHER.to_owned() };
            let note = self.by_sentence.entry(sentence).or_insert_with_key(|s| ImportNote {
                sentence: s.clone(),
                count: 0,
                named: Vec::new(),
            });
            note.count += 1;
            if note.named.len() < NAMED_MAX {
                let of = if subscriber.is_empty() { String::new() } else { format!("{subscriber}: ") };
                note.named.push(format!("{of}{}, line {}", place.file, place.line));
            }
        }
    }

    pub(crate) fn into_list(self) -> Vec<ImportNote> {
        self.by_sentence.into_values().collect()
    }
}
