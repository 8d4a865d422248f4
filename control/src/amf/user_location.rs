//! User location information of NGAP (TS 38.413 §9.3.1.16): where the UE is.

use whimbrel_ids::Tai;
use whimbrel_ngap::ie::UserLocationInformation;

use super::location_reporting;
use crate::procedure::Ue;
use crate::state::LastSeenCell;

/// The tracking area in user location information.
pub(crate) fn location(location: &UserLocationInformation) -> Option<Tai> {
    match location {
        UserLocationInformation::UserLocationInformationNr(nr) => Some(nr.tai),
        UserLocationInformation::UserLocationInformationEutra(eutra) => Some(eutra.tai),
        _ => None,
    }
}

/// Stores the UE's location.
pub(crate) fn locate(ue: Ue, reported: &UserLocationInformation) {
    let at = ue.now();
    let (tai, cell) = (location(reported), location_reporting::cell(reported));
    ue.with(|p| {
        p.amf.location.is_area_check_pending |= tai.is_some() && p.amf.location.tai != tai;
        p.amf.location.tai = tai.or(p.amf.location.tai);
        if let Some(cell) = cell {
            p.amf.location.seen = Some(LastSeenCell { cell, at });
        }
    });
}
