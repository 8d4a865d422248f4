//! JSON Patch (RFC 6902), as partial updates of a profile use it (TS 29.510 §5.2.2.3.1).

use serde_json::Value;
use whimbrel_sbi_types::common::{PatchItem, PatchOperation};

use crate::profile::PROFILE_OCTETS_MAX;
use crate::refusal::NrfRefusal;

/// Operations of one patch: more than a profile has members.
pub const OPERATIONS_MAX: usize = 64;
/// Nesting of what a patch makes. The deepest profile of Release 17 has a dozen levels.
const DEPTH_MAX: usize = 64;

/// Members that a heartbeat has (TS 29.510 §5.2.2.3.2).
const HEARTBEAT_PATHS: [&str; 3] = ["/nfStatus", "/load", "/loadTimeStamp"];

/// True if a patch is a heartbeat: it replaces the state and the load at most.
pub fn is_heartbeat(patch: &[PatchItem]) -> bool {
    patch.iter().all(|item| {
        let replaces =
            matches!(item.op, PatchOperation::Replace | PatchOperation::Add | PatchOperation::Test);
        replaces && HEARTBEAT_PATHS.contains(&item.path.as_str())
    })
}

/// The document with all operations of the patch applied, or none of them: RFC 6902 §5.
///
/// Deviation: `replace` of a member of a heartbeat that the profile lacks adds it, as functions send their load that registered without one.
pub fn apply(document: &Value, patch: &[PatchItem]) -> Result<Value, NrfRefusal> {
    if patch.len() > OPERATIONS_MAX {
        let detail = format!("a patch has {OPERATIONS_MAX} operations at most");
        return Err(NrfRefusal::new(400, "INVALID_MSG_FORMAT", detail));
    }
    let mut document = document.clone();
    for item in patch {
        let path = item.path.as_str();
        let wrong = |detail: &str| NrfRefusal::new(400, "MANDATORY_IE_INCORRECT", detail).of(path);
        step(&mut document, item).map_err(wrong)?;
        // Each operation doubles the document at most, so that this bounds what the next one works on.
        if octets_within(&document, 0).is_none_or(|octets| octets > 2 * PROFILE_OCTETS_MAX) {
            return Err(wrong("the patch makes a document that is too large or too deep"));
        }
    }
    Ok(document)
}

fn step(document: &mut Value, item: &PatchItem) -> Result<(), &'static str> {
    const NO_VALUE: &str = "the operation has no value";
    const NO_MEMBER: &str = "the document has no such member";
    let path = segments(item.path.as_str())?;
    let from = || match &item.from {
        Some(from) => segments(from.as_str()),
        None => Err("the operation has no `from`"),
    };
    match item.op {
        PatchOperation::Add => add(document, &path, item.value.clone().ok_or(NO_VALUE)?),
        PatchOperation::Remove => remove(document, &path).map(drop),
        PatchOperation::Replace => {
            let value = item.value.clone().ok_or(NO_VALUE)?;
            match find(document, &path) {
                Some(member) => {
                    *member = value;
                    Ok(())
                }
                None if HEARTBEAT_PATHS.contains(&item.path.as_str()) => add(document, &path, value),
                None => Err(NO_MEMBER),
            }
        }
        PatchOperation::Copy => {
            let value = find(document, &from()?).ok_or(NO_MEMBER)?.clone();
            add(document, &path, value)
        }
        PatchOperation::Move => {
            let from = from()?;
            // RFC 6902 §4.4: into itself is nowhere.
            if path.len() > from.len() && path.starts_with(&from) {
                return Err("a value cannot be moved into itself");
            }
            let value = remove(document, &from)?;
            add(document, &path, value)
        }
        PatchOperation::Test => match find(document, &path) {
            Some(member) if Some(&*member) == item.value.as_ref() => Ok(()),
            Some(_) => Err("the member has another value"),
            None => Err(NO_MEMBER),
        },
        PatchOperation::Unknown(_) => Err("there is no such operation"),
    }
}

/// The segments of a JSON Pointer (RFC 6901). That of the whole document is none that a patch of a profile may name.
fn segments(pointer: &str) -> Result<Vec<String>, &'static str> {
    let rest = pointer.strip_prefix('/').ok_or("the path is no JSON Pointer into the document")?;
    rest.split('/').map(segment).collect()
}

fn segment(text: &str) -> Result<String, &'static str> {
    let mut read = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        read.push(match (sign, sign == '~') {
            (_, true) => match signs.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err("the path has a wrong escape"),
            },
            (sign, false) => sign,
        });
    }
    Ok(read)
}

/// An index of an array: digits without a zero in front (RFC 6901 §4).
fn index(segment: &str) -> Option<usize> {
    let is_plain = segment == "0" || !segment.starts_with('0');
    let is_number = !segment.is_empty() && segment.bytes().all(|c| c.is_ascii_digit());
    if is_plain && is_number { segment.parse().ok() } else { None }
}

fn find<'a>(document: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(document, |at, segment| match at {
        Value::Object(members) => members.get_mut(segment),
        Value::Array(entries) => entries.get_mut(index(segment)?),
        _ => None,
    })
}

fn add(document: &mut Value, path: &[String], value: Value) -> Result<(), &'static str> {
    let (last, parent) = path.split_last().ok_or("the path names no member")?;
    match find(document, parent).ok_or("the document has no place for the member")? {
        Value::Object(members) => {
            members.insert(last.clone(), value);
            Ok(())
        }
        Value::Array(entries) if last == "-" => {
            entries.push(value);
            Ok(())
        }
        Value::Array(entries) => match index(last).filter(|index| *index <= entries.len()) {
            Some(index) => {
                entries.insert(index, value);
                Ok(())
            }
            None => Err("the path is beyond the array"),
        },
        _ => Err("the document has no place for the member"),
    }
}

fn remove(document: &mut Value, path: &[String]) -> Result<Value, &'static str> {
    const NO_MEMBER: &str = "the document has no such member";
    let (last, parent) = path.split_last().ok_or(NO_MEMBER)?;
    match find(document, parent).ok_or(NO_MEMBER)? {
        Value::Object(members) => members.remove(last).ok_or(NO_MEMBER),
        Value::Array(entries) => {
            let index = index(last).filter(|index| *index < entries.len()).ok_or(NO_MEMBER)?;
            Ok(entries.remove(index))
        }
        _ => Err(NO_MEMBER),
    }
}

/// Octets of a value, about; `None` if it is nested too deeply.
fn octets_within(value: &Value, depth: usize) -> Option<usize> {
    if depth > DEPTH_MAX {
        return None;
    }
    let mut octets: usize = 2;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => octets += 6,
        Value::String(text) => octets += text.len(),
        Value::Array(entries) => {
            for entry in entries {
                octets = octets.saturating_add(octets_within(entry, depth + 1)?);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                octets = octets.saturating_add(name.len() + 4 + octets_within(member, depth + 1)?);
            }
        }
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn items(patch: &Value) -> Vec<PatchItem> {
        let octets = serde_json::to_vec(patch).unwrap();
        whimbrel_sbi_types::from_slice::<whimbrel_sbi_types::BoundedList<PatchItem>>(&octets)
            .unwrap()
            .into_vec()
    }

    fn repeated(patch: &Value, times: usize) -> Vec<PatchItem> {
        (0..times).flat_map(|_| items(patch)).collect()
    }

    fn patched(document: Value, patch: Value) -> Result<Value, NrfRefusal> {
        apply(&document, &items(&patch))
    }

    #[test] // RFC 6902 Appendix A: as far as it is of objects
    fn operations_are_those_of_the_rfc() {
        let one = |document: Value, op: Value| patched(document, json!([op])).ok();
        for (document, op, expected) in [
            (json!({"a": 1}), json!({"op": "add", "path": "/b", "value": 2}), Some(json!({"a": 1, "b": 2}))),
            (
                json!({"a": [1, 3]}),
                json!({"op": "add", "path": "/a/1", "value": 2}),
                Some(json!({"a": [1, 2, 3]})),
            ),
            (json!({"a": [1]}), json!({"op": "add", "path": "/a/-", "value": 2}), Some(json!({"a": [1, 2]}))),
            (json!({"a": 1, "b": 2}), json!({"op": "remove", "path": "/b"}), Some(json!({"a": 1}))),
            (json!({"a": [1, 2]}), json!({"op": "remove", "path": "/a/0"}), Some(json!({"a": [2]}))),
            (
                json!({"a": 1}),
                json!({"op": "replace", "path": "/a", "value": null}),
                Some(json!({"a": null})),
            ),
            (
                json!({"a": {"b": 1}}),
                json!({"op": "move", "from": "/a/b", "path": "/c"}),
                Some(json!({"a": {}, "c": 1})),
            ),
            (
                json!({"a": 1}),
                json!({"op": "copy", "from": "/a", "path": "/b"}),
                Some(json!({"a": 1, "b": 1})),
            ),
            (json!({"a": "x"}), json!({"op": "test", "path": "/a", "value": "x"}), Some(json!({"a": "x"}))),
            (json!({"a/b": 1, "c~d": 2}), json!({"op": "remove", "path": "/a~1b"}), Some(json!({"c~d": 2}))),
            (json!({"c~d": 2}), json!({"op": "remove", "path": "/c~0d"}), Some(json!({}))),
            (json!({"": 2}), json!({"op": "remove", "path": "/"}), Some(json!({}))),
            // Refused.
            (json!({"a": 1}), json!({"op": "test", "path": "/a", "value": 2}), None),
            (json!({"a": 1}), json!({"op": "add", "path": "/b/c", "value": 2}), None),
            (json!({"a": [1]}), json!({"op": "add", "path": "/a/2", "value": 2}), None),
            (json!({"a": [1]}), json!({"op": "add", "path": "/a/01", "value": 2}), None),
            (json!({"a": [1]}), json!({"op": "remove", "path": "/a/-"}), None),
            (json!({"a": 1}), json!({"op": "replace", "path": "/b", "value": 2}), None),
            (json!({"a": 1}), json!({"op": "add", "path": "/b"}), None),
            (json!({"a": 1}), json!({"op": "copy", "path": "/b"}), None),
            (json!({"a": [{}, {}]}), json!({"op": "move", "from": "/a/0", "path": "/a/0/b"}), None),
            (json!({"a": 1}), json!({"op": "replace", "path": "a", "value": 2}), None),
            (json!({"a": 1}), json!({"op": "replace", "path": "/~2", "value": 2}), None),
            (json!({"a": 1}), json!({"op": "replace", "path": "/a/18446744073709551616", "value": 2}), None),
        ] {
            assert_eq!(one(document.clone(), op.clone()), expected, "{document} {op}");
        }
    }

    #[test] // RFC 6902 §5: one operation that fails undoes all
    fn a_patch_is_applied_as_a_whole_or_not_at_all() {
        let document = json!({"a": 1});
        let patch = items(&json!([{"op": "add", "path": "/b", "value": 2}, {"op": "remove", "path": "/c"}]));
        let refusal = apply(&document, &patch).unwrap_err();
        assert_eq!((refusal.status, refusal.param.as_deref()), (400, Some("/c")));
        assert_eq!(document, json!({"a": 1}));
    }

    #[test] // copies that double the document, and copies into the copy
    fn a_patch_cannot_make_a_large_or_deep_document() {
        let doubled = json!([{"op": "copy", "from": "/a", "path": "/a/-"}]);
        let doubled = repeated(&doubled, OPERATIONS_MAX);
        let refusal = apply(&json!({"a": ["0123456789abcdef"]}), &doubled).unwrap_err();
        assert!(refusal.detail.contains("too large or too deep"), "{refusal}");
        let nested = json!([{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/a", "value": {}}, {"op": "move", "from": "/b", "path": "/a/a"}]);
        let nested = repeated(&nested, OPERATIONS_MAX / 3);
        let mut document = json!({"a": {}});
        let refused = (0..10).find_map(|_| match apply(&document, &nested) {
            Ok(deeper) => {
                document = deeper;
                None
            }
            Err(refusal) => Some(refusal),
        });
        assert!(refused.unwrap().detail.contains("too large or too deep"));
        assert!(
            apply(
                &json!({}),
                &repeated(&json!([{"op": "add", "path": "/a", "value": 1}]), OPERATIONS_MAX + 1)
            )
            .is_err()
        );
    }

    #[test]
    fn heartbeats_are_distinguished_from_changes() {
        let is = |patch: Value| is_heartbeat(&items(&patch));
        assert!(is(
            json!([{"op": "replace", "path": "/nfStatus", "value": "REGISTERED"}, {"op": "replace", "path": "/load", "value": 3}])
        ));
        assert!(!is(
            json!([{"op": "replace", "path": "/nfStatus", "value": "REGISTERED"}, {"op": "replace", "path": "/capacity", "value": 3}])
        ));
        assert!(!is(json!([{"op": "remove", "path": "/load"}])));
        // Open5GS's functions send their load always.
        let load = patched(json!({}), json!([{"op": "replace", "path": "/load", "value": 3}]));
        assert_eq!(load, Ok(json!({"load": 3})));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u8>().prop_map(Value::from),
            "[ab/~]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab~/01-]{0,2}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test] // what is added is there, and its removal undoes it
        fn what_is_added_is_found_and_removed_again(document in any_json(), name in "[ab~/]{1,3}", value in any_json()) {
            prop_assume!(document.is_object() && document.get(&name).is_none());
            let path = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            let added = apply(&document, &items(&json!([{"op": "add", "path": path, "value": value}]))).unwrap();
            prop_assert_eq!(added.get(&name), Some(&value));
            let removed = apply(&added, &items(&json!([{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}])));
            prop_assert_eq!(removed, Ok(document));
        }

        #[test]
        fn any_patch_returns(document in any_json(), path in "[/ab~01-]{1,8}", from in "[/ab~01-]{1,8}", value in any_json(), op in 0_usize..6) {
            let op = ["add", "remove", "replace", "move", "copy", "test"][op];
            let patch = items(&json!([{"op": op, "path": path, "from": from, "value": value}]));
            let _ = apply(&document, &patch);
        }
    }
}
