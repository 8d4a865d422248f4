//! Mobility restrictions: TS 23.501 §5.3.4.1, TS 24.501 §5.3.13, TS 24.501 §5.3.5; in NGAP TS 38.413 §9.3.1.85.
//!
//! In a forbidden area, or over a barred RAT, a UE is rejected. In a non-allowed area it may register, but its service
//! requests are rejected.

use whimbrel_ids::{Tac, Tai};
use whimbrel_nas::ie::{PartialServiceArea, PartialTaiList, ServiceAreaList};
use whimbrel_ngap::ie::{ForbiddenAreaInformationItem, MobilityRestrictionList, ServiceAreaInformationItem};

use crate::procedure::Ue;
use crate::refusal::Refusal;
use crate::state::{MobilityRestrictions, ServiceArea, UeContext};

/// The most tracking areas of one list (TS 24.501 §9.11.3.49, TS 38.413 §9.3.1.85: 16).
const AREAS_MAX: usize = 16;

/// Whether the UE may be here (TS 23.501 §5.3.4.1.1).
pub(crate) fn permitted(ue: Ue, tai: Tai) -> Result<(), Refusal> {
    ue.with(|p| match restrictions(p) {
        Some(r) if r.nr_barred => Err(Refusal::RadioBarred),
        Some(r) if r.forbidden_areas.contains(&tai.tac) => Err(Refusal::AreaForbidden(tai)),
        _ => Ok(()),
    })
}

/// Whether the UE may start services in its present area (TS 24.501 §5.3.5.2).
pub(crate) fn service_allowed(ue: Ue) -> Result<(), Refusal> {
    let restricted = ue.with(|p| {
        let (tai, area) = (p.amf.location.tai?, restrictions(p)?.service_area.as_ref()?);
        (!area.allows(tai.tac)).then_some(tai)
    });
    restricted.map_or(Ok(()), |tai| Err(Refusal::RestrictedServiceArea(tai)))
}

/// The service area list for REGISTRATION ACCEPT (TS 24.501 §5.5.1.2.4, §9.11.3.49).
pub(crate) fn service_area_list(ue: Ue) -> Option<ServiceAreaList> {
    let plmn = ue.config().amf.plmn;
    ue.with(|p| {
        let (non_allowed, tacs) = match restrictions(p)?.service_area.as_ref()? {
            ServiceArea::Allowed(tacs) => (false, tacs),
            ServiceArea::NotAllowed(tacs) => (true, tacs),
        };
        let tacs = some(tacs);
        let areas = PartialServiceArea::Areas(PartialTaiList::OnePlmn { plmn, tacs });
        Some(ServiceAreaList { non_allowed, parts: vec![areas] })
    })
}

/// The mobility restriction list for gNBs, by which they avoid forbidden handover targets.
pub(crate) fn mobility_restriction_list(ue: Ue) -> Option<MobilityRestrictionList> {
    let plmn = ue.config().amf.plmn;
    ue.with(|p| {
        let r = restrictions(p)?;
        let mut list = MobilityRestrictionList::new(plmn);
        if !r.forbidden_areas.is_empty() {
            let forbidden = ForbiddenAreaInformationItem::new(plmn, r.forbidden_areas.clone());
            list.forbidden_area_information = vec![forbidden];
        }
        if let Some(area) = &r.service_area {
            let mut item = ServiceAreaInformationItem::new(plmn);
            match area {
                ServiceArea::Allowed(tacs) => item.allowed_tacs = some(tacs),
                ServiceArea::NotAllowed(tacs) => item.not_allowed_tacs = some(tacs),
            }
            list.service_area_information = vec![item];
        }
        let says = !(list.forbidden_area_information.is_empty() && list.service_area_information.is_empty());
        says.then_some(list)
    })
}

fn restrictions(p: &UeContext) -> Option<&MobilityRestrictions> {
    p.amf.subscription.as_ref().map(|s| &s.restrictions)
}

/// As many as a list holds; the subscription has no more.
fn some(tacs: &[Tac]) -> Vec<Tac> {
    tacs.iter().copied().take(AREAS_MAX).collect()
}
