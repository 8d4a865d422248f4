//! Octet strings in derived forms, written as a whole and not octet by octet, as `serde` does by default.

/// `Vec<u8>`.
pub(crate) mod owned {
    use serde::{Deserializer, Serializer};
    use whimbrel_ids::serde_as;

    pub(crate) fn serialize<S: Serializer>(octets: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(octets)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        serde_as::octets(from, "a message", |octets| Some(octets.into()))
    }
}

/// `Arc<[u8]>`.
pub(crate) mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use whimbrel_ids::serde_as;

    pub(crate) fn serialize<S: Serializer>(octets: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(octets)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u8]>, D::Error> {
        serde_as::octets(from, "a message", |octets| Some(octets.into()))
    }

    /// Newtype for the optional form.
    #[derive(Serialize, Deserialize)]
    pub(super) struct SharedOctets(#[serde(with = "self")] pub(super) Arc<[u8]>);
}

/// `Option<Arc<[u8]>>`.
pub(crate) mod shared_or_none {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::shared::SharedOctets;

    pub(crate) fn serialize<S: Serializer>(octets: &Option<Arc<[u8]>>, to: S) -> Result<S::Ok, S::Error> {
        octets.clone().map(SharedOctets).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<[u8]>>, D::Error> {
        Ok(Option::<SharedOctets>::deserialize(from)?.map(|s| s.0))
    }
}
