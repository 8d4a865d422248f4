//! Paths and queries of requests (RFC 3986), without anything else: whatever octets come here, something comes back.

use std::collections::BTreeMap;

/// The variable parts of a path that matches a pattern in which `{name}` stands for one part; the inner `None` if one of them
/// cannot be decoded.
pub(super) fn matches(pattern: &str, path: &str) -> Option<Option<Vec<String>>> {
    let (mut want, mut have) = (pattern.split('/'), path.split('/'));
    let mut params = Vec::new();
    loop {
        match (want.next(), have.next()) {
            (None, None) => break,
            (Some(w), Some(h)) if w.starts_with('{') && !h.is_empty() => params.push(h),
            (Some(w), Some(h)) if w == h => {}
            _ => return None,
        }
    }
    Some(params.into_iter().map(|p| percent_decoded(p, false)).collect())
}

/// The names of a pattern's variable parts.
pub(super) fn names(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// A query's names and values; of a name given twice the last counts. `None` if one cannot be decoded.
pub(super) fn query(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((percent_decoded(name, true)?, percent_decoded(value, true)?))
        })
        .collect()
}

/// RFC 3986 §2.1; in queries a plus sign is a space.
fn percent_decoded(text: &str, plus: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut octets = text.bytes();
    while let Some(octet) = octets.next() {
        match octet {
            b'%' => {
                let mut digit = || (octets.next()? as char).to_digit(16);
                out.push((digit()? << 4 | digit()?) as u8);
            }
            b'+' if plus => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}
