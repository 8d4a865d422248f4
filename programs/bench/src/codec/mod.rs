//! The same values in other people's codecs.

pub(crate) mod messages;
pub(crate) mod rasn_ngap;
mod rasn_types;
pub(crate) mod synthetic;
