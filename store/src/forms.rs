//! The forms of values in JSON, in paths and in queries. The type that reads a value gives its JSON Schema, so that each range and each
//! expression stands once.

use core::fmt::Display;
use core::str::FromStr;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use whimbrel_ids::{Dnn, SNssai, Supi, Tac};

use crate::text;

/// A value whose text has a form that a regular expression describes: its `FromStr` reads each text of that form.
pub trait TextForm: FromStr<Err: Display> {
    /// The form as JSON Schema has it (ECMA 262), anchored at both ends.
    const PATTERN: &'static str;
    /// Characters of the longest text, where the expression does not bound them.
    const LENGTH_MAX: Option<usize> = None;
}

impl TextForm for Supi {
    const PATTERN: &'static str = "^((imsi-)?[0-9]{6,15}|nai-[0-9a-f]{32}@[0-9a-z.-]{1,220})$";
}

impl TextForm for SNssai {
    const PATTERN: &'static str = "^([0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])(-[0-9A-Fa-f]{6})?$";
}

impl TextForm for Dnn {
    const PATTERN: &'static str = "^[0-9A-Za-z-]{1,63}(\\.[0-9A-Za-z-]{1,63})*$";
    const LENGTH_MAX: Option<usize> = Some(Self::LEN_MAX);
}

/// A value that is read from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<T>(pub T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        text::deserialize(d).map(Self)
    }
}

impl<T: TextForm> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::PATTERN.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "string", "pattern": T::PATTERN });
        if let Some(most) = T::LENGTH_MAX {
            schema.insert("maxLength".into(), most.into());
        }
        schema
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<const MIN: u64, const MAX: u64>(u64);

/// A number that counts from 0 and that each language of clients has a type for.
pub type Count = Whole<0, { i64::MAX as u64 }>;
/// A tracking area code (TS 23.003 §19.4.2.3).
pub type TacNumber = Whole<0, { (1 << 24) - 1 }>;

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    /// `None` outside the range.
    pub const fn new(value: u64) -> Option<Self> {
        if value >= MIN && value <= MAX { Some(Self(value)) } else { None }
    }

    /// As a number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl TacNumber {
    /// The tracking area code.
    pub fn tac(self) -> Option<Tac> {
        Tac::new(u32::try_from(self.0).ok()?)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = u64::deserialize(d)?;
        Self::new(value).ok_or_else(|| D::Error::custom(format_args!("must be {MIN} to {MAX}")))
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Whole<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{MIN} to {MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Languages have a type for 64 bits with a sign.
        let format = if MAX > u64::from(u32::MAX >> 1) { "int64" } else { "int32" };
        json_schema!({ "type": "integer", "format": format, "minimum": MIN, "maximum": MAX })
    }
}

/// The text of `OCTETS` octets: that many pairs of hexadecimal digits.
pub(crate) enum HexDigits<const OCTETS: usize> {}

impl<const OCTETS: usize> JsonSchema for HexDigits<OCTETS> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{OCTETS} octets").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": format!("^[0-9A-Fa-f]{{{}}}$", 2 * OCTETS) })
    }
}

/// The text of K: 32 hexadecimal digits, or 64 under TUAK.
pub(crate) enum LongTermKeyDigits {}

impl JsonSchema for LongTermKeyDigits {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "LongTermKeyDigits".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9A-Fa-f]{32}){1,2}$" })
    }
}

/// The text of an authentication management field whose separation bit is set.
pub(crate) enum AmfDigits {}

impl JsonSchema for AmfDigits {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AmfDigits".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[89A-Fa-f][0-9A-Fa-f]{3}$" })
    }
}
