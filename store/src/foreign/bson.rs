//! BSON as `mongodump` writes it: documents one after the other, each with its length.

use std::io::{self, BufRead, Read};

use serde_json::{Map, Value, json};

use super::Each;
use crate::import::ImportProblem;

/// Octets of a document at most: MongoDB's own bound, with room for its envelope.
const OCTETS_MAX: usize = (16 << 20) + (16 << 10);
/// Documents in documents: MongoDB takes 100; none of a core has more than eight.
const DEPTH_MAX: usize = 32;

/// Reads the documents of a file. The first that is no BSON ends it, because the next one's beginning is not known.
pub(super) fn documents(input: &mut dyn BufRead, each: &mut Each<'_>) -> io::Result<()> {
    for number in 1.. {
        let mut length = [0; 4];
        if input.fill_buf()?.is_empty() {
            return Ok(());
        }
        let read = input.read_exact(&mut length);
        let octets = u32::from_le_bytes(length) as usize;
        if read.is_err() || !(5..=OCTETS_MAX).contains(&octets) {
            each(
                number,
                Err(ImportProblem::Json("this is no BSON document: use mongodump's .bson file".into())),
            );
            return Ok(());
        }
        let mut body = Vec::new();
        input.take(octets as u64 - 4).read_to_end(&mut body)?;
        if body.len() < octets - 4 {
            each(number, Err(ImportProblem::Json("the document ends early: the file was cut short".into())));
            return Ok(());
        }
        let document = elements(&mut body.as_slice(), DEPTH_MAX);
        each(
            number,
            document.map(Value::Object).ok_or_else(|| ImportProblem::Json("this is no BSON document".into())),
        );
    }
    Ok(())
}

/// The elements up to the octet 0 that ends them.
fn elements(rest: &mut &[u8], depth: usize) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    loop {
        let kind = octets(rest, 1)?[0];
        if kind == 0 {
            return Some(map);
        }
        let name = name(rest)?;
        let value = value(kind, rest, depth.checked_sub(1)?)?;
        map.insert(name, value);
    }
}

/// The value of an element. Types that no core's documents have are read over; what is unknown ends the document.
fn value(kind: u8, rest: &mut &[u8], depth: usize) -> Option<Value> {
    Some(match kind {
        0x01 => json!(f64::from_le_bytes(array(rest)?)),
        0x02 => text(rest)?,
        0x03 | 0x04 => {
            let length = usize::try_from(i32::from_le_bytes(array(rest)?)).ok()?.checked_sub(4)?;
            let mut inner = octets(rest, length)?;
            let map = elements(&mut inner, depth)?;
            if kind == 0x03 { Value::Object(map) } else { map.into_iter().map(|(_, item)| item).collect() }
        }
        0x05 => {
            let length = usize::try_from(i32::from_le_bytes(array(rest)?)).ok()?;
            octets(rest, length.checked_add(1)?)?;
            Value::Null
        }
        0x06 | 0x0a | 0x7f | 0xff => Value::Null,
        0x07 => octets(rest, 12).map(|_| Value::Null)?,
        0x08 => json!(octets(rest, 1)?[0] != 0),
        0x09 | 0x11 => octets(rest, 8).map(|_| Value::Null)?,
        0x0b => (name(rest)?, name(rest)?, Value::Null).2,
        0x10 => json!(i32::from_le_bytes(array(rest)?)),
        0x12 => json!(i64::from_le_bytes(array(rest)?)),
        0x13 => octets(rest, 16).map(|_| Value::Null)?,
        _ => return None,
    })
}

/// A text with its length, which counts the octet 0 at its end.
fn text(rest: &mut &[u8]) -> Option<Value> {
    let length = usize::try_from(i32::from_le_bytes(array(rest)?)).ok()?;
    let (end, text) = octets(rest, length)?.split_last()?;
    (*end == 0).then(|| std::str::from_utf8(text).ok().map(|t| json!(t)))?
}

/// A name, up to the octet 0 that ends it.
fn name(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|octet| *octet == 0)?;
    let name = std::str::from_utf8(octets(rest, end)?).ok()?.to_owned();
    octets(rest, 1)?;
    Some(name)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    octets(rest, N)?.try_into().ok()
}

fn octets<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(octets: &[u8]) -> Vec<Result<Value, String>> {
        let mut found = Vec::new();
        documents(&mut &*octets, &mut |_, d| found.push(d.map_err(|e| e.to_string()))).unwrap();
        found
    }

    /// `{"a": 1, "b": [2.5, null], "c": "x"}` with an ObjectId before.
    fn sample() -> Vec<u8> {
        let mut inner = vec![0x01, b'0', 0];
        inner.extend(2.5f64.to_le_bytes());
        inner.extend([0x0a, b'1', 0, 0]);
        let mut body = vec![0x07, b'_', b'i', b'd', 0];
        body.extend([9; 12]);
        body.extend([0x12, b'a', 0]);
        body.extend(1i64.to_le_bytes());
        body.extend([0x04, b'b', 0]);
        body.extend((inner.len() as u32 + 4).to_le_bytes());
        body.extend(inner);
        body.extend([0x02, b'c', 0, 2, 0, 0, 0, b'x', 0, 0]);
        let mut document = (body.len() as u32 + 4).to_le_bytes().to_vec();
        document.extend(body);
        document
    }

    #[test]
    fn documents_one_after_the_other_are_read_and_a_cut_one_is_reported() {
        let two = [sample(), sample()].concat();
        let value = json!({ "_id": null, "a": 1, "b": [2.5, null], "c": "x" });
        assert_eq!(read(&two), [Ok(value.clone()), Ok(value.clone())]);
        let cut = read(&two[..two.len() - 3]);
        assert_eq!(cut[0], Ok(value));
        assert!(cut[1].as_ref().unwrap_err().contains("cut short"), "{cut:?}");
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&octets);
        }

        #[test]
        fn a_document_with_one_octet_changed_is_read_or_refused(at in 0usize..200, octet in any::<u8>()) {
            let mut octets = sample();
            let at = at % octets.len();
            octets[at] = octet;
            read(&octets);
        }
    }
}
