//! The schema for other readers of the plain form, in the schema language of FlatBuffers.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::layout::Inline;

/// Declarations, each once, in the order of their dependencies.
#[derive(Debug, Default)]
pub struct Schema {
    names: BTreeSet<String>,
    text: String,
}

impl Schema {
    /// Adds the declaration of `name`, unless it is there; `body` may add others first.
    pub fn declare(&mut self, name: &str, body: impl FnOnce(&mut Schema) -> String) {
        if self.names.insert(name.to_owned()) {
            let body = body(self);
            self.text.push_str(&body);
        }
    }

    /// The field of a table, as a line of its declaration.
    pub fn field(name: &str, of: &str, inline: Inline, required: bool) -> String {
        match (inline, required) {
            (Inline::Scalar(_), false) => format!("  {name}: {of} = null;\n"),
            (Inline::Scalar(_) | Inline::Union, _) | (_, false) => format!("  {name}: {of};\n"),
            (_, true) => format!("  {name}: {of} (required);\n"),
        }
    }

    /// Declares the table around a single value that a plain union, or a vector of unions, asks for; gives its name.
    pub fn wrapper(&mut self, name: &str, of: &str, inline: Inline) -> String {
        self.declare(name, |_| format!("table {name} {{\n{}}}\n", Self::field("value", of, inline, true)));
        name.to_owned()
    }

    /// Declares a union of named alternatives: name, number, table.
    pub fn union(&mut self, name: &str, alternatives: &[(String, u8, String)]) {
        self.declare(name, |_| {
            let mut text = format!("union {name} {{\n");
            for (alternative, number, table) in alternatives {
                let _ = writeln!(text, "  {alternative}: {table} = {number},");
            }
            text + "}\n"
        });
    }

    /// The declarations as text.
    pub fn into_text(self) -> String {
        self.text
    }
}
