//! Reads types that serde knows from a YAML tree, so that each error has its line: the scenarios of emulated UEs.

use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::yaml::{Node, NodeValue, Position, YamlKey};

/// A part of the tree that the type does not take: the place, if it is known, and the reason.
#[derive(Debug)]
pub struct TypeMismatch {
    pub at: Option<Position>,
    pub what: String,
}

impl TypeMismatch {
    /// The innermost place is the one that helps.
    fn at(mut self, at: Position) -> Self {
        self.at.get_or_insert(at);
        self
    }
}

impl Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for TypeMismatch {}

impl de::Error for TypeMismatch {
    fn custom<T: Display>(what: T) -> Self {
        Self { at: None, what: what.to_string() }
    }
}

fn wrong<T>(at: Position, what: String) -> Result<T, TypeMismatch> {
    Err(TypeMismatch { at: Some(at), what })
}

/// A number; scalars are text until they are read as another type.
macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
            match &self.value {
                NodeValue::Text(text) => match text.trim().parse::<$type>() {
                    Ok(number) => visitor.$visit(number).map_err(|e: TypeMismatch| e.at(self.at)),
                    Err(_) => wrong(self.at, format!("`{text}` is not the number that is expected here")),
                },
                _ => wrong(self.at, format!("a number is expected here, not {}", self.kind())),
            }
        })*
    };
}

impl<'de> de::Deserializer<'de> for &'de Node {
    type Error = TypeMismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        let value = match &self.value {
            NodeValue::Null => visitor.visit_unit(),
            NodeValue::Text(text) => visitor.visit_str(text),
            NodeValue::List(items) => visitor.visit_seq(Items(items.iter())),
            NodeValue::Map(map) => visitor.visit_map(Entries { rest: map.iter(), value: None }),
        };
        value.map_err(|e| e.at(self.at))
    }

    numbers! {
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_i64 visit_i64 i64,
        deserialize_f64 visit_f64 f64,
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        match &self.value {
            NodeValue::Text(text) if text == "true" => visitor.visit_bool(true),
            NodeValue::Text(text) if text == "false" => visitor.visit_bool(false),
            _ => wrong(self.at, "true or false is expected here".into()),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        match self.value {
            NodeValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeMismatch> {
        let variant = match &self.value {
            NodeValue::Text(name) => Variant { name, at: self.at, value: None },
            NodeValue::Map(map) => match map.as_slice() {
                [(key, value)] => Variant { name: &key.name, at: key.at, value: Some(value) },
                _ => return wrong(self.at, format!("one key is expected here, not {}", map.len())),
            },
            _ => return wrong(self.at, format!("one of {} is expected here", variants.join(", "))),
        };
        visitor.visit_enum(variant)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = TypeMismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, TypeMismatch> {
        self.0.next().map(|item| seed.deserialize(item)).transpose()
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, (YamlKey, Node)>,
    value: Option<&'de Node>,
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = TypeMismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, TypeMismatch> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        let name: StrDeserializer<'_, TypeMismatch> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|e| e.at(key.at))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, TypeMismatch> {
        match self.value.take() {
            Some(value) => seed.deserialize(value),
            None => Err(de::Error::custom("a value was asked for before its key")),
        }
    }
}

/// One of several: a word, or a word with what belongs to it.
struct Variant<'de> {
    name: &'de str,
    at: Position,
    value: Option<&'de Node>,
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = TypeMismatch;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), TypeMismatch> {
        let name: StrDeserializer<'_, TypeMismatch> = self.name.into_deserializer();
        let variant = seed.deserialize(name).map_err(|e| e.at(self.at))?;
        Ok((variant, self))
    }
}

/// `session` alone is a session with defaults.
static NOTHING: Node = Node { at: Position::START, value: NodeValue::Map(Vec::new()) };

impl<'de> de::VariantAccess<'de> for Variant<'de> {
    type Error = TypeMismatch;

    fn unit_variant(self) -> Result<(), TypeMismatch> {
        match self.value {
            Some(value) if value.value != NodeValue::Null => {
                wrong(value.at, format!("`{}` takes nothing behind it", self.name))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, TypeMismatch> {
        let given = self.value.filter(|v| v.value != NodeValue::Null);
        let missing = |_| format!("`{}` needs an argument", self.name);
        match given {
            Some(value) => seed.deserialize(value),
            None => {
                seed.deserialize(&NOTHING).map_err(|e| TypeMismatch { at: Some(self.at), what: missing(e) })
            }
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, TypeMismatch> {
        de::Deserializer::deserialize_any(self.value.unwrap_or(&NOTHING), visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeMismatch> {
        de::Deserializer::deserialize_any(self.value.unwrap_or(&NOTHING), visitor)
    }
}
