//! Declarations close to the tables of the specifications, from which types with their checks and their JSON come.

/// A data type of a table, "structured data type": a struct whose `Option` members are left out when they are `None`.
///
/// Members carry the names of the table in Rust case; `#[serde(rename = "…")]` where camel case does not give the name.
macro_rules! object {
    ($($(#[$meta:meta])* pub struct $name:ident { $($body:tt)* })*) => {$(
        object!(@members [$(#[$meta])*] $name [] $($body)*);
    )*};
    (@members $head:tt $name:ident [$($done:tt)*] $(#[$meta:meta])* pub $member:ident: Option<$type:ty>, $($rest:tt)*) => {
        object!(@members $head $name [$($done)*
            $(#[$meta])* #[serde(skip_serializing_if = "Option::is_none")] pub $member: Option<$type>,] $($rest)*);
    };
    (@members $head:tt $name:ident [$($done:tt)*] $(#[$meta:meta])* pub $member:ident: $type:ty, $($rest:tt)*) => {
        object!(@members $head $name [$($done)* $(#[$meta])* pub $member: $type,] $($rest)*);
    };
    (@members [$(#[$meta:meta])*] $name:ident [$($done:tt)*]) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        #[allow(missing_docs, reason = "a member without a line of its own is that of the clause")]
        pub struct $name { $($done)* }
    };
}

/// One of several types, of which JSON gives the first that fits.
macro_rules! either {
    ($($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident($type:ty),)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        #[serde(untagged)]
        pub enum $name {
            $($(#[$doc])* $variant($type),)*
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let json = $crate::json::Json::deserialize(from)?;
                $(
                    if let Ok(value) = <$type>::deserialize($crate::json::JsonNode::of(&json)) {
                        return Ok(Self::$variant(value));
                    }
                )*
                Err(serde::de::Error::custom(concat!("one of", $(" ", stringify!($variant)),*, " is expected")))
            }
        }
    )*};
}

/// A string of bounded length with the check of its pattern. `redacted` keeps its text out of `Debug`, `or_empty` allows an empty one.
macro_rules! text {
    ($($(#[$meta:meta])* pub struct $name:ident($max:expr, $check:expr, $expected:literal) $($kind:ident)?;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// The longest text, in octets.
            pub const OCTETS_MAX: usize = $max;

            /// Checks length and pattern.
            pub fn new(text: &str) -> Result<Self, $crate::json::WrongValue> {
                let check: fn(&str) -> bool = $check;
                let is_empty = text.is_empty() && !text!(@may_be_empty $($kind)?);
                if is_empty || text.len() > Self::OCTETS_MAX || !check(text) {
                    return Err($crate::json::WrongValue { expected: $expected });
                }
                Ok(Self(text.into()))
            }

            /// The text as it stands in JSON.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(&self.0)
            }
        }

        text!(@debug $name $($kind)?);

        impl core::str::FromStr for $name {
            type Err = $crate::json::WrongValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        $crate::macros::serde_as_text!($name);
    )*};
    (@debug $name:ident redacted) => {
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    };
    (@may_be_empty or_empty) => { true };
    (@may_be_empty $($other:ident)?) => { false };
    (@debug $name:ident $($or_empty:ident)?) => {
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

/// JSON of a type that is a string there, by its `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str($crate::json::TextVisitor::new(stringify!($name)))
            }
        }
    };
}

/// A number with its range.
macro_rules! ranged {
    ($($(#[$meta:meta])* pub struct $name:ident($of:ty) in $min:literal..=$max:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name($of);

        impl $name {
            /// `None` outside of the range.
            pub const fn new(value: $of) -> Option<Self> {
                if matches!(value, $min..=$max) { Some(Self(value)) } else { None }
            }

            /// The number itself.
            pub const fn value(self) -> $of {
                self.0
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let value = <$of>::deserialize(from)?;
                Self::new(value).ok_or_else(|| serde::de::Error::custom(
                    concat!("a number from ", stringify!($min), " to ", stringify!($max), " is expected")))
            }
        }
    )*};
}

/// An enumeration. `extensible` keeps a value that this release does not name; `closed` refuses it.
macro_rules! enumeration {
    ($($(#[$meta:meta])* pub enum $name:ident: $kind:ident { $($variant:ident = $text:literal,)* })*) => {$(
        enumeration!(@$kind [$(#[$meta])*] $name { $($variant = $text,)* });
        $crate::macros::serde_as_text!($name);
    )*};
    (@extensible [$(#[$meta:meta])*] $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each name is the value's own")]
        pub enum $name {
            $($variant,)*
            /// A value that the specification of this release does not have.
            Unknown($crate::json::UnknownValue),
        }

        impl $name {
            /// The values of this release.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The value as it stands in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unknown(text) => text.as_str(),
                }
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::json::WrongValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok(match text {
                    $($text => Self::$variant,)*
                    other => Self::Unknown($crate::json::UnknownValue::new(other)?),
                })
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
    (@closed [$(#[$meta:meta])*] $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each name is the value's own")]
        pub enum $name {
            $($variant,)*
        }

        impl $name {
            /// The values of this release.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The value as it stands in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::json::WrongValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err($crate::json::WrongValue { expected: concat!("one of", $(" ", $text),*) }),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Octets of a fixed number, hexadecimal digits in JSON. `redacted` keeps them out of `Debug`.
macro_rules! octets {
    ($($(#[$meta:meta])* pub struct $name:ident($n:literal) $($redacted:ident)?;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $n]);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::json::write_hex(f, &self.0)
            }
        }

        octets!(@debug $name $($redacted)?);

        impl core::str::FromStr for $name {
            type Err = $crate::json::WrongValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                const EXPECTED: &str = concat!("hexadecimal digits of ", stringify!($n), " octets");
                $crate::json::hex(text).map(Self).ok_or($crate::json::WrongValue { expected: EXPECTED })
            }
        }

        $crate::macros::serde_as_text!($name);
    )*};
    (@debug $name:ident redacted) => {
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    };
    (@debug $name:ident) => {
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

pub(crate) use serde_as_text;
