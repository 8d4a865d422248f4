//! A decoded message as a tree of named fields.
//!
//! The codecs' types are named after the information elements, field by field in the order of the clauses' tables, and their `Debug` form
//! has every name and value, with keys and permanent identities hidden. So the tree is read from that form, instead of being written once
//! more for each of some two hundred types. Lists of octets become hexadecimal digits.

use std::fmt::{Debug, Write};

use schemars::JsonSchema;
use serde::Serialize;

use whimbrel_node::config::value::unhex;

/// Lines of one message at most: the longest messages have some hundreds, octets not counted.
const LINES_MAX: usize = 20_000;

/// A field, with a value or with fields of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(super) struct Field {
    /// The information element, in words.
    pub(super) name: String,
    /// Its value, where it has no fields of its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) value: String,
    /// The fields within it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) fields: Vec<Field>,
    /// The octets of the value, if it consists of octets: a message may be in them.
    #[serde(skip)]
    pub(super) octets: Vec<u8>,
}

impl Field {
    pub(super) fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), ..Self::default() }
    }
}

/// The fields of a value.
pub(super) fn fields(value: &impl Debug) -> Vec<Field> {
    let mut text = String::new();
    // A `Debug` that fails is a fault of its type: what it wrote is shown.
    let _ = write!(text, "{value:#?}");
    let mut lines = text.lines().take(LINES_MAX);
    let mut root = Field::default();
    while let Some(line) = lines.next() {
        read(line, &mut lines, &mut root);
    }
    match (root.fields.len(), root.fields.pop()) {
        (1, Some(only)) if only.value.is_empty() && !only.fields.is_empty() => only.fields,
        (_, last) => {
            root.fields.extend(last);
            root.fields
        }
    }
}

/// Reads what begins in a line into its parent.
fn read<'a>(line: &'a str, lines: &mut impl Iterator<Item = &'a str>, parent: &mut Field) {
    let line = line.trim().trim_end_matches(',');
    let (name, value) = match line.split_once(": ") {
        Some((name, value)) if is_identifier(name) => (name, value),
        _ => ("", line),
    };
    let opened = value.strip_suffix(['{', '(', '[']);
    let Some(kind) = opened else {
        if !matches!(value, "None" | "[]" | "") {
            parent.fields.push(leaf(name, value));
        }
        return;
    };
    let is_list = value.ends_with('[');
    let mut field = Field { name: words(name), ..Field::default() };
    while let Some(line) = lines.next() {
        if matches!(line.trim().trim_end_matches(','), "}" | ")" | "]") {
            break;
        }
        read(line, lines, &mut field);
    }
    let kind = kind.trim();
    if is_list {
        octets(&mut field);
        for (i, item) in field.fields.iter_mut().enumerate() {
            if item.name.is_empty() || !item.fields.is_empty() && item.value.is_empty() {
                item.name = format!("{} {}", i + 1, item.name).trim().into();
            }
        }
    } else if value.ends_with('(') && field.fields.len() == 1 {
        // A type or a variant around one value: the value stands for it.
        let only = field.fields.remove(0);
        let label = if kind == "Some" { only.name.clone() } else { words(kind) };
        let name = if field.name.is_empty() { label } else { field.name };
        let is_word = !only.value.is_empty() && only.value.chars().all(|c| c.is_alphabetic() || c == ' ');
        let value = match is_word && kind != "Some" && words(kind) != name {
            true => format!("{}: {}", words(kind), only.value),
            false => only.value,
        };
        field = Field { name, value, ..only };
    } else if field.name.is_empty() {
        field.name = words(kind);
    }
    if field.value.is_empty() && field.fields.is_empty() && field.octets.is_empty() {
        field.value = if is_list { "empty".into() } else { words(kind) };
    }
    parent.fields.push(field);
}

fn leaf(name: &str, value: &str) -> Field {
    let is_type = value.chars().next().is_some_and(char::is_uppercase) && is_identifier(value);
    let value = if is_type { words(value) } else { value.trim_matches('"').to_string() };
    // Octets that are carried unread show as hexadecimal digits.
    let carries = name.contains("container") || name.contains("pdu");
    let octets = if carries { unhex(&value).unwrap_or_default() } else { Vec::new() };
    Field { name: words(name), value, octets, ..Field::default() }
}

/// A list of small numbers is octets.
fn octets(field: &mut Field) {
    let numbers = field.fields.iter().map(|f| match f.name.is_empty() && f.fields.is_empty() {
        true => f.value.parse::<u8>().ok(),
        false => None,
    });
    let Some(octets) = numbers.collect::<Option<Vec<u8>>>().filter(|o| o.len() > 2) else { return };
    field.value = octets.iter().map(|o| format!("{o:02x}")).collect();
    field.octets = octets;
    field.fields.clear();
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'#')
}

/// `pdu_session_id` and `PduSessionId` as words, with the abbreviations of the specifications in capitals.
pub(super) fn words(name: &str) -> String {
    const CAPITALS: &[&str] = &[
        "ambr", "amf", "arp", "bar", "cgi", "cm", "cn", "cp", "dl", "dnn", "drx", "eea", "eia", "far",
        "fseid", "fteid", "gtp", "guami", "guti", "id", "ie", "imeisv", "ip", "ipv4", "ipv6", "ladn", "mac",
        "mm", "n2", "n3", "nas", "nci", "nea", "ng", "ngap", "nia", "nr", "nssai", "pco", "pdr", "pdu",
        "pei", "plmn", "pti", "qer", "qfi", "ran", "rrc", "seid", "sm", "smf", "ssc", "suci", "supi", "tac",
        "tai", "teid", "tmsi", "tnl", "ue", "ul", "up", "upf", "urr",
    ];
    let mut parts: Vec<String> = Vec::new();
    let mut part = String::new();
    let mut before = '_';
    for c in name.chars() {
        let begins = c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit());
        if (c == '_' || begins) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        if c != '_' {
            part.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    parts.push(part);
    let shown = parts.iter().map(|p| match p.as_str() {
        p if CAPITALS.contains(&p) => p.to_ascii_uppercase(),
        "ids" => "IDs".into(),
        "qos" => "QoS".into(),
        "snssai" => "S-NSSAI".into(),
        "ngu" => "NG-U".into(),
        p => p.to_string(),
    });
    let text = shown.collect::<Vec<_>>().join(" ");
    text.replace("S NSSAI", "S-NSSAI")
        .replace("s NSSAI", "S-NSSAI")
        .replace("five g s TMSI", "5G-S-TMSI")
        .replace("five g", "5G")
        .replace("five qi", "5QI")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[allow(dead_code, reason = "read by Debug")]
    struct Inner {
        pdu_session_id: u8,
        nas_pdu: Option<Vec<u8>>,
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "read by Debug")]
    enum Choice {
        FollowOn,
        Items(Vec<Inner>),
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "read by Debug")]
    struct PduSessionId(u8);

    #[derive(Debug)]
    #[allow(dead_code, reason = "read by Debug")]
    enum NamedCause {
        RadioNetwork(Choice),
    }

    #[test]
    fn types_around_one_value_give_way_to_it() {
        #[derive(Debug)]
        #[allow(dead_code, reason = "read by Debug")]
        struct Named {
            session: Option<PduSessionId>,
            cause: NamedCause,
        }
        let all = fields(&Some(Named {
            session: Some(PduSessionId(5)),
            cause: NamedCause::RadioNetwork(Choice::FollowOn),
        }));
        assert_eq!(all, [Field::new("session", "5"), Field::new("cause", "radio network: follow on")]);
        assert_eq!(fields(&vec![PduSessionId(5)]), [Field::new("PDU session ID", "5")]);
        assert_eq!(words("ul_ngu_up_tnl_information"), "UL NG-U UP TNL information");
        assert_eq!(words("QosFlowIdentifier"), "QoS flow identifier");
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "read by Debug")]
    struct Outer {
        amf_ue_ngap_id: Option<u64>,
        absent: Option<u64>,
        text: &'static str,
        choice: Choice,
        plain: Choice,
        empty: Vec<u16>,
    }

    #[test]
    fn a_value_becomes_its_fields_by_name() {
        let inner = |octets: &[u8]| Inner { pdu_session_id: 5, nas_pdu: Some(octets.to_vec()) };
        let value = Outer {
            amf_ue_ngap_id: Some(7),
            absent: None,
            text: "<script>: {",
            choice: Choice::Items(vec![inner(&[0x7e, 0, 65]), inner(&[1, 2, 255])]),
            plain: Choice::FollowOn,
            empty: vec![],
        };
        let all = fields(&value);
        let names: Vec<&str> = all.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["AMF UE NGAP ID", "text", "choice", "plain"]);
        assert_eq!((all[0].value.as_str(), all[1].value.as_str()), ("7", "<script>: {"));
        let first = &all[2].fields[0];
        assert_eq!(first.fields[0], Field::new("PDU session ID", "5"));
        assert_eq!(
            (first.fields[1].value.as_str(), &first.fields[1].octets[..]),
            ("7e0041", &[0x7e, 0, 65][..])
        );
        assert_eq!(all[3].value, "follow on");
    }
}
