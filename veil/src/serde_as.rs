//! How values travel between processes of ours (feature `serde`): in the octets of `MESSAGES.md`, where they have any.

use whimbrel_ids::{serde_as, serde_as_octets};

use crate::crypto::VerifyingKey;
use crate::msg::{HomeQuestion, SignedGrant};
use crate::operator::Question;

serde_as! {
    VerifyingKey as [u8; 32]: VerifyingKey::octets, VerifyingKey::from_octets;
}

serde_as_octets! {
    HomeQuestion: HomeQuestion::to_octets, |v| HomeQuestion::parse(v).ok();
    Question: Question::to_octets, |v| Question::parse(v).ok();
    SignedGrant: SignedGrant::to_octets, |v| SignedGrant::parse(v).ok();
}
