//! How information elements travel between processes of ours (feature `serde`): as the octets that they have in NGAP.

use whimbrel_ids::serde_as_octets;

use crate::aper::{Aper, Reader, Writer};
use crate::ie::{
    AmfPagingTarget, NgranCgi, NrCgi, PagingDrx, RecommendedCellItem, ResetType, RrcEstablishmentCause,
    UeRadioCapabilityForPaging,
};

serde_as_octets! {
    AmfPagingTarget: element, whole;
    NgranCgi: element, whole;
    NrCgi: element, whole;
    PagingDrx: element, whole;
    RecommendedCellItem: element, whole;
    ResetType: element, whole;
    RrcEstablishmentCause: element, whole;
    UeRadioCapabilityForPaging: element, whole;
}

fn element<T: Aper>(v: &T) -> Vec<u8> {
    let mut out = Vec::new();
    v.write(&mut Writer::new(&mut out));
    out
}

/// An element without a rest but the bits that fill its last octet.
fn whole<T: Aper>(octets: &[u8]) -> Option<T> {
    let mut r = Reader::new(octets, 0, "element");
    let v = T::read(&mut r).ok()?;
    r.is_at_last_octet().then_some(v)
}
