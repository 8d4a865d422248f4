//! How messages and information elements travel between processes of ours (feature `serde`): as the octets that they have in NAS.

use whimbrel_ids::{Reader, serde_as, serde_as_octets};

use crate::codec::{HalfIe, Ie};
use crate::ie::{
    DrxParameters, MobileIdentity, NgKsi, PacketFilter, PduSessionType, SmCause, SscMode, Suci,
    UeSecurityCapability,
};
use crate::mm;
use crate::sm::Pti;

serde_as! {
    NgKsi as u8: HalfIe::half, half;
    PduSessionType as u8: HalfIe::half, half;
    SscMode as u8: HalfIe::half, half;
    SmCause as u8: |v| v.value(), SmCause::from_u8;
    Pti as u8: |v| v.0, |v| Some(Pti(v));
}

serde_as_octets! {
    mm::Message: |v: &mm::Message| v.to_octets(), |v| mm::Message::decode(v).ok();
    DrxParameters: element, whole;
    PacketFilter: element, whole;
    UeSecurityCapability: UeSecurityCapability::octets, UeSecurityCapability::from_octets;
    Suci: |v: &Suci| element(&MobileIdentity::Suci(v.clone())), |v| match whole(v)? {
        MobileIdentity::Suci(suci) => Some(suci),
        _ => None,
    };
}

/// A half octet as it is written: an unused value that reads as another is none.
fn half<T: HalfIe>(v: u8) -> Option<T> {
    T::from_half(v).filter(|t| t.half() == v)
}

fn element<T: Ie>(v: &T) -> Vec<u8> {
    let mut out = Vec::new();
    v.encode(&mut out);
    out
}

/// An element without a rest.
fn whole<T: Ie>(octets: &[u8]) -> Option<T> {
    let mut r = Reader::new(octets);
    let v = T::decode(&mut r).ok()?;
    r.is_empty().then_some(v)
}
