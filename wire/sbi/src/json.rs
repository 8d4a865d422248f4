//! Reading and writing of bodies, and the bounded containers that members are made of.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::str::FromStr;
use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A member's text or number that its type does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongValue {
    /// The values that are allowed.
    pub expected: &'static str,
}

impl fmt::Display for WrongValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is expected", self.expected)
    }
}

impl core::error::Error for WrongValue {}

/// A value of an enumeration that this release does not name: TS 29.501 §5.3.8 has readers accept it. The longest of Release 17 has 49
/// octets. free5GC writes an empty text for a value that it does not have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownValue(Box<str>);

impl UnknownValue {
    /// The longest value, in octets.
    pub const OCTETS_MAX: usize = 64;

    pub(crate) fn new(text: &str) -> Result<Self, WrongValue> {
        if text.len() > Self::OCTETS_MAX || !text.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(WrongValue {
                expected: "an enumeration's value of at most 64 letters, digits and signs",
            });
        }
        Ok(Self(text.into()))
    }

    /// The value as it stands in JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UnknownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// Why a body was refused, as TS 29.500 §5.2.7.2 divides causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyErrorKind {
    /// The body is no JSON, or ends early: `INVALID_MSG_FORMAT`.
    Format,
    /// A mandatory member is missing: `MANDATORY_IE_MISSING`.
    MandatoryMissing,
    /// A mandatory member, or the whole body, is not of its type: `MANDATORY_IE_INCORRECT`.
    MandatoryIncorrect,
    /// An optional member is not of its type: `OPTIONAL_IE_INCORRECT`.
    OptionalIncorrect,
}

impl BodyErrorKind {
    /// The protocol cause of TS 29.500 Table 5.2.7.2-1.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Format => "INVALID_MSG_FORMAT",
            Self::MandatoryMissing => "MANDATORY_IE_MISSING",
            Self::MandatoryIncorrect => "MANDATORY_IE_INCORRECT",
            Self::OptionalIncorrect => "OPTIONAL_IE_INCORRECT",
        }
    }
}

/// A refused body: the kind of the fault, the member, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyError {
    /// The division of TS 29.500.
    pub kind: BodyErrorKind,
    /// JSON Pointer (RFC 6901) of the member; empty for the whole body.
    pub pointer: Box<str>,
    /// The fault in a sentence.
    pub reason: Box<str>,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.pointer {
            "" => f.write_str(&self.reason),
            pointer => write!(f, "{pointer}: {}", self.reason),
        }
    }
}

impl core::error::Error for BodyError {}

/// Reads a body. Members that the type does not have are skipped (TS 29.501 §5.2.2.2). The caller bounds the octets; nesting is bounded, at
/// 128, also in members that are skipped.
pub fn from_slice<T: DeserializeOwned>(octets: &[u8]) -> Result<T, BodyError> {
    let json = match serde_json::from_slice::<Json<'_>>(octets) {
        Ok(json) => json,
        Err(e) => {
            let reason = cut(&e.to_string());
            return Err(BodyError { kind: BodyErrorKind::Format, pointer: "".into(), reason });
        }
    };
    T::deserialize(JsonNode::of(&json)).map_err(|e| explain::<T>(&json, e))
}

/// Writes a body.
pub fn to_vec<T: Serialize>(body: &T) -> Vec<u8> {
    // The only failures of `serde_json` are those of a writer and of maps with keys that are no strings, which no type here has.
    serde_json::to_vec(body).expect("types of this crate have a JSON form")
}

/// The longest reason and pointer that are sent to a peer, in octets: a sentence.
const REASON_OCTETS_MAX: usize = 200;

/// The kind of a fault, and its member.
fn explain<T: DeserializeOwned>(json: &Json<'_>, e: ReadError) -> BodyError {
    let top = e.segments.last();
    let kind = match (top, e.is_missing) {
        (Some(top), _) if is_optional::<T>(json, top) => BodyErrorKind::OptionalIncorrect,
        (_, true) => BodyErrorKind::MandatoryMissing,
        (_, false) => BodyErrorKind::MandatoryIncorrect,
    };
    let mut pointer = String::new();
    for segment in e.segments.iter().rev() {
        pointer.push('/');
        pointer.push_str(&segment.replace('~', "~0").replace('/', "~1"));
    }
    BodyError { kind, pointer: cut(&pointer), reason: cut(&e.reason) }
}

/// True if a body may lack this member: without it there is no fault.
fn is_optional<T: DeserializeOwned>(json: &Json<'_>, member: &str) -> bool {
    let Json::Object(members) = json else { return false };
    members.iter().any(|(name, _)| name == member)
        && T::deserialize(JsonNode { json, without: Some(member) }).is_ok()
}

fn cut(text: &str) -> Box<str> {
    let mut end = REASON_OCTETS_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().into()
}

/// JSON that has been parsed. All types are read from it, and so from one deserializer, which knows the place of a fault.
#[derive(Debug)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(Cow<'a, str>),
    Array(Vec<Self>),
    /// Members in their order; a name may stand there twice.
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct JsonVisitor;

        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = Json<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Json<'de>, E> {
                Ok(Json::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
                Ok(Json::Bool(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
                Ok(Json::Number(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
                Ok(Json::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
                Ok(serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
                Ok(Json::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
                Ok(Json::Text(Cow::Borrowed(text)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = from.next_element()? {
                    entries.push(entry);
                }
                Ok(Json::Array(entries))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(MemberName(name)) = from.next_key()? {
                    members.push((name, from.next_value()?));
                }
                Ok(Json::Object(members))
            }
        }

        from.deserialize_any(JsonVisitor)
    }
}

/// Name of a member, borrowed where it has no escapes.
struct MemberName<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MemberName<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Json::deserialize(from)? {
            Json::Text(name) => Ok(Self(name)),
            _ => Err(D::Error::custom("a member's name is expected")),
        }
    }
}

/// A fault with its place, innermost first.
#[derive(Debug)]
pub(crate) struct ReadError {
    reason: String,
    segments: Vec<String>,
    is_missing: bool,
}

impl ReadError {
    fn within(mut self, segment: impl ToString) -> Self {
        self.segments.push(segment.to_string());
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl core::error::Error for ReadError {}

impl serde::de::Error for ReadError {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self { reason: reason.to_string(), segments: Vec::new(), is_missing: false }
    }

    fn missing_field(name: &'static str) -> Self {
        Self { reason: "the member is missing".into(), segments: vec![name.into()], is_missing: true }
    }
}

/// A place in JSON from which a value is read.
#[derive(Clone, Copy)]
pub(crate) struct JsonNode<'a> {
    json: &'a Json<'a>,
    /// A member that is passed over.
    without: Option<&'a str>,
}

impl<'a> JsonNode<'a> {
    pub(crate) fn of(json: &'a Json<'a>) -> Self {
        Self { json, without: None }
    }
}

impl<'de> Deserializer<'de> for JsonNode<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.json {
            Json::Null => visitor.visit_unit(),
            Json::Bool(value) => visitor.visit_bool(*value),
            Json::Number(value) => match (value.as_u64(), value.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (None, Some(value)) => visitor.visit_i64(value),
                (None, None) => visitor.visit_f64(value.as_f64().unwrap_or_default()),
            },
            Json::Text(text) => visitor.visit_borrowed_str(text),
            Json::Array(entries) => visitor.visit_seq(EntriesOf { entries: entries.iter(), next: 0 }),
            Json::Object(members) => {
                visitor.visit_map(Members { members: members.iter(), without: self.without, value: None })
            }
        }
    }

    /// Null and an empty text are none: programs in Go, as free5GC, write both for what they do not have.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.json {
            Json::Null => visitor.visit_none(),
            Json::Text(text) if text.is_empty() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// From an object alone: serde would also take the members from an array, in their order.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.json {
            Json::Object(_) => self.deserialize_any(visitor),
            _ => Err(ReadError::custom("an object is expected")),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        enum identifier
    }
}

struct EntriesOf<'a> {
    entries: core::slice::Iter<'a, Json<'a>>,
    next: usize,
}

impl<'de> SeqAccess<'de> for EntriesOf<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let Some(json) = self.entries.next() else { return Ok(None) };
        let at = self.next;
        self.next += 1;
        seed.deserialize(JsonNode::of(json)).map(Some).map_err(|e| e.within(at))
    }
}

struct Members<'a> {
    members: core::slice::Iter<'a, (Cow<'a, str>, Json<'a>)>,
    without: Option<&'a str>,
    value: Option<(&'a str, &'a Json<'a>)>,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        let without = self.without;
        let Some((name, json)) = self.members.find(|(name, _)| Some(&**name) != without) else {
            return Ok(None);
        };
        self.value = Some((name, json));
        let key = BorrowedStrDeserializer::<ReadError>::new(name);
        seed.deserialize(key).map(Some).map_err(|e| e.within(name))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        // serde asks for a value behind each name.
        let (name, json) = self.value.take().ok_or_else(|| ReadError::custom("a name is expected"))?;
        seed.deserialize(JsonNode::of(json)).map_err(|e| e.within(name))
    }
}

/// Reads a member of any JSON, in which null is a value.
pub(crate) fn any_json<'de, D: Deserializer<'de>>(from: D) -> Result<Option<AnyJson>, D::Error> {
    AnyJson::deserialize(from).map(Some)
}

/// Reads an array for which null stands where it is empty: free5GC's NRF writes so.
pub(crate) fn null_as_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Reads a string by `FromStr`.
pub(crate) struct TextVisitor<T> {
    name: &'static str,
    of: PhantomData<T>,
}

impl<T> TextVisitor<T> {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }
}

impl<T: FromStr<Err = WrongValue>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as a string", self.name)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// The most entries of an array or map for which the specification has no number: more than a body of 64 KiB holds of most types.
pub const ENTRIES_MAX: usize = 256;

/// An array of a bounded number of entries.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundedList<T, const MIN: usize = 1, const MAX: usize = ENTRIES_MAX>(Vec<T>);

impl<T, const MIN: usize, const MAX: usize> BoundedList<T, MIN, MAX> {
    /// `None` if there are too few or too many.
    pub fn new(entries: Vec<T>) -> Option<Self> {
        (MIN..=MAX).contains(&entries.len()).then_some(Self(entries))
    }

    /// An array of one entry.
    pub fn one(entry: T) -> Self {
        const { assert!(MIN <= 1 && MAX >= 1) };
        Self(vec![entry])
    }

    /// The entries themselves.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const MAX: usize> Default for BoundedList<T, 0, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MIN: usize, const MAX: usize> Deref for BoundedList<T, MIN, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: fmt::Debug, const MIN: usize, const MAX: usize> fmt::Debug for BoundedList<T, MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a, T, const MIN: usize, const MAX: usize> IntoIterator for &'a BoundedList<T, MIN, MAX> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Serialize, const MIN: usize, const MAX: usize> Serialize for BoundedList<T, MIN, MAX> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Deserialize<'de>
    for BoundedList<T, MIN, MAX>
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EntriesOf<T, const MIN: usize, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Visitor<'de> for EntriesOf<T, MIN, MAX> {
            type Value = BoundedList<T, MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an array of {MIN} to {MAX} entries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = from.next_element()? {
                    if entries.len() == MAX {
                        return Err(A::Error::custom(format_args!("more than {MAX} entries")));
                    }
                    entries.push(entry);
                }
                let n = entries.len();
                BoundedList::new(entries).ok_or_else(|| A::Error::invalid_length(n, &self))
            }
        }

        from.deserialize_seq(EntriesOf(PhantomData))
    }
}

/// A map of a bounded number of entries.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundedMap<K, V, const MAX: usize = ENTRIES_MAX>(BTreeMap<K, V>);

impl<K: Ord, V, const MAX: usize> BoundedMap<K, V, MAX> {
    /// `None` if there are too many.
    pub fn new(entries: BTreeMap<K, V>) -> Option<Self> {
        (entries.len() <= MAX).then_some(Self(entries))
    }

    /// The entries themselves.
    pub fn into_map(self) -> BTreeMap<K, V> {
        self.0
    }
}

impl<K, V, const MAX: usize> Default for BoundedMap<K, V, MAX> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K, V, const MAX: usize> Deref for BoundedMap<K, V, MAX> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.0
    }
}

impl<K: fmt::Debug, V: fmt::Debug, const MAX: usize> fmt::Debug for BoundedMap<K, V, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<K: Serialize, V: Serialize, const MAX: usize> Serialize for BoundedMap<K, V, MAX> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, const MAX: usize> Deserialize<'de>
    for BoundedMap<K, V, MAX>
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EntriesOf<K, V, const MAX: usize>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, const MAX: usize> Visitor<'de>
            for EntriesOf<K, V, MAX>
        {
            type Value = BoundedMap<K, V, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object of at most {MAX} members")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = from.next_entry()? {
                    if entries.insert(key, value).is_some() {
                        return Err(A::Error::custom("a member stands there twice"));
                    }
                    if entries.len() > MAX {
                        return Err(A::Error::custom(format_args!("more than {MAX} members")));
                    }
                }
                Ok(BoundedMap(entries))
            }
        }

        from.deserialize_map(EntriesOf(PhantomData))
    }
}

/// Any JSON, as of a patch or an attribute that a vendor defines. The depth is bounded by `serde_json`, at 128.
pub type AnyJson = serde_json::Value;

/// Octets of a text of hexadecimal digits, two for each.
pub(crate) fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut octets = [0; N];
    hex_into(text, &mut octets).then_some(octets)
}

/// Octets of a text of hexadecimal digits, two for each.
pub(crate) fn hex_vec(text: &str, octets_max: usize) -> Option<Vec<u8>> {
    let mut octets = vec![0; (text.len() / 2).min(octets_max)];
    hex_into(text, &mut octets).then_some(octets)
}

fn hex_into(text: &str, octets: &mut [u8]) -> bool {
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    if text.len() != octets.len() * 2 {
        return false;
    }
    for (octet, pair) in octets.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let [Some(high), Some(low)] = [pair.first(), pair.get(1)].map(|c| c.and_then(|c| digit(*c))) else {
            return false;
        };
        *octet = high << 4 | low;
    }
    true
}

pub(crate) fn write_hex(f: &mut fmt::Formatter<'_>, octets: &[u8]) -> fmt::Result {
    octets.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
}
