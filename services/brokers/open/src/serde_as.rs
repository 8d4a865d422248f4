//! How values travel between processes of ours (feature `serde`): in the octets of `MESSAGES.md`, where they have any.

use whimbrel_ids::serde_as_octets;

use crate::msg::{SignedGrant, Terms};
use crate::operator::Question;

serde_as_octets! {
    Terms: Terms::to_octets, |v| Terms::parse(v).ok();
    Question: Question::to_octets, |v| Question::parse(v).ok();
    SignedGrant: SignedGrant::to_octets, |v| SignedGrant::parse(v).ok();
}
