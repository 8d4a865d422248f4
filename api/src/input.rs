//! What handlers read of a request: the type that checks an input also describes it in the OpenAPI document.

use std::fmt::Display;

use schemars::JsonSchema;
use serde::de::value::{Error as TextError, MapAccessDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use whimbrel_ids::Supi;
use whimbrel_store::{Text, Whole};

use super::openapi::OperationDescription;
use super::problem::ProblemDetails;
use super::routes::RoutedRequest;
use super::uri;

/// A part of a request that a handler takes as an argument.
pub(super) trait HandlerInput: Sized + Send {
    /// Reads it. Errors: the problem that answers the request.
    fn read(request: &RoutedRequest) -> Result<Self, ProblemDetails>;
    /// Adds it to the description of an operation.
    fn describe(operation: &mut OperationDescription<'_>);
}

/// The variable parts of the path: a struct with a field for each.
pub(super) struct PathParts<T>(pub(super) T);

impl<T: DeserializeOwned + JsonSchema + Send> HandlerInput for PathParts<T> {
    fn read(request: &RoutedRequest) -> Result<Self, ProblemDetails> {
        let parts = uri::names(request.path).zip(request.params.iter().map(String::as_str));
        read(parts).map(Self)
    }

    fn describe(operation: &mut OperationDescription<'_>) {
        operation.add_parameters::<T>("path");
    }
}

/// The query: a struct with a field for each name. Other names are ignored.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + JsonSchema + Send> HandlerInput for Query<T> {
    fn read(request: &RoutedRequest) -> Result<Self, ProblemDetails> {
        read(request.query.iter().map(|(name, text)| (name.as_str(), text.as_str()))).map(Self)
    }

    fn describe(operation: &mut OperationDescription<'_>) {
        operation.add_parameters::<T>("query");
    }
}

/// A body in JSON.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned + JsonSchema + Send> HandlerInput for JsonBody<T> {
    fn read(request: &RoutedRequest) -> Result<Self, ProblemDetails> {
        serde_json::from_slice(&request.body).map(Self).map_err(|e| match e.classify() {
            serde_json::error::Category::Data => {
                ProblemDetails::unprocessable(format!("the body is wrong: {e}"))
            }
            _ => ProblemDetails::bad_request(format!("the body is not JSON: {e}")),
        })
    }

    fn describe(operation: &mut OperationDescription<'_>) {
        operation.add_body::<T>("application/json");
    }
}

/// The ETag of what the caller saw (RFC 9110 §13.1.1); empty if the header is absent.
pub(super) struct IfMatch(pub(super) String);

impl HandlerInput for IfMatch {
    fn read(request: &RoutedRequest) -> Result<Self, ProblemDetails> {
        Ok(Self(request.header("if-match").to_owned()))
    }

    fn describe(operation: &mut OperationDescription<'_>) {
        operation.add_header(
            "If-Match",
            false,
            "The ETag that was read: the change is made only if it still holds",
        );
    }
}

/// The same where a change must name what it changes.
pub(super) struct RequiredIfMatch(pub(super) String);

impl HandlerInput for RequiredIfMatch {
    fn read(request: &RoutedRequest) -> Result<Self, ProblemDetails> {
        match request.header("if-match") {
            "" => Err(ProblemDetails::bad_request("name what was changed: send its ETag as If-Match")),
            tag => Ok(Self(tag.to_owned())),
        }
    }

    fn describe(operation: &mut OperationDescription<'_>) {
        operation.add_header(
            "If-Match",
            true,
            "The ETag that was read: the change is made only if it still holds",
        );
    }
}

/// A SUPI in the path.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SupiPart {
    /// SUPI, imsi-999700000000001 or its digits.
    supi: Text<Supi>,
}

impl PathParts<SupiPart> {
    /// The SUPI that the path names.
    pub(super) fn supi(&self) -> Supi {
        self.0.supi.0
    }
}

/// Most items of one page.
const PAGE_MAX: u64 = 1000;
/// Items of a page where a request names no limit.
const PAGE_DEFAULT: usize = 100;

/// The bound of a page.
pub(super) type PageLimit = Whole<1, PAGE_MAX>;

/// The items that a page has at most.
pub(super) fn page(limit: Option<PageLimit>) -> usize {
    limit.and_then(|limit| usize::try_from(limit.value()).ok()).unwrap_or(PAGE_DEFAULT)
}

/// A page without a position.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LimitQuery {
    /// Most items to return; 100 if absent.
    pub(super) limit: Option<PageLimit>,
}

/// A page behind a SUPI.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PageQuery {
    /// Only SUPIs that sort after this one.
    pub(super) after: Option<Text<Supi>>,
    /// Most items to return; 100 if absent.
    pub(super) limit: Option<PageLimit>,
}

/// Reads a struct of names and texts.
fn read<'a, T: DeserializeOwned>(
    named: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<T, ProblemDetails> {
    let texts = NamedTexts { named, value: None };
    T::deserialize(MapAccessDeserializer::new(texts)).map_err(|e| ProblemDetails::bad_request(e.to_string()))
}

/// Names and texts as a map.
struct NamedTexts<'a, I> {
    named: I,
    value: Option<(&'a str, &'a str)>,
}

impl<'de, 'a, I: Iterator<Item = (&'a str, &'a str)>> MapAccess<'de> for NamedTexts<'a, I> {
    type Error = TextError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, TextError> {
        self.value = self.named.next();
        self.value.map(|(name, _)| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, TextError> {
        let (name, text) = self.value.ok_or_else(|| TextError::custom("a name is missing"))?;
        seed.deserialize(ParameterText(text)).map_err(|e| TextError::custom(format_args!("`{name}`: {e}")))
    }
}

/// The text of one parameter, which becomes what its field asks for.
struct ParameterText<'a>(&'a str);

impl ParameterText<'_> {
    fn parsed<T: std::str::FromStr<Err: Display>>(&self, expected: &str) -> Result<T, TextError> {
        self.0.parse().map_err(|_| TextError::custom(format_args!("must be {expected}")))
    }
}

impl<'de> Deserializer<'de> for ParameterText<'_> {
    type Error = TextError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_str(self.0)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_u64(self.parsed("a whole number")?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, TextError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TextError> {
        let text: serde::de::value::StrDeserializer<'_, TextError> = self.0.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Order {
        Start,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Example {
        number: u16,
        order: Option<Order>,
        limit: Option<PageLimit>,
        text: Option<String>,
    }

    #[test]
    fn a_struct_is_read_of_texts_and_a_wrong_one_is_named() {
        let read = |named: &[(&'static str, &'static str)]| {
            read::<Example>(named.iter().copied()).map_err(|p| p.detail)
        };
        let example = Example {
            number: 7,
            order: Some(Order::Start),
            limit: PageLimit::new(1000),
            text: Some("5".into()),
        };
        let all = [("number", "7"), ("order", "start"), ("limit", "1000"), ("text", "5"), ("other", "x")];
        assert_eq!(read(&all), Ok(example));
        assert!(read(&[("number", "1")]).is_ok_and(|e| e.limit.is_none() && e.order.is_none()));
        for (wrong, part) in [
            (("number", "x"), "`number`: must be a whole number"),
            (("number", "65536"), "`number`"),
            (("limit", "1001"), "`limit`: must be 1 to 1000"),
            (("limit", ""), "`limit`"),
            (("order", "stop"), "`order`"),
        ] {
            let e = read(&[wrong, ("number", "1")]).unwrap_err();
            assert!(e.contains(part), "{wrong:?}: {e}");
        }
    }
}
