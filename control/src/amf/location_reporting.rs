//! Location reporting: TS 38.413 §8.12.1, §8.12.2, §8.12.3; TS 23.502 §4.10; TS 23.501 §5.4.7.
//!
//! What the operator wants to hear stands in the UE's context, so that each gNB to which the UE comes is asked for it:
//! in INITIAL CONTEXT SETUP REQUEST and HANDOVER REQUEST. Over Xn the source forwards it to its target (TS 23.502 §4.10).

use std::time::Duration;

use whimbrel_ids::{Instant, Tai};
use whimbrel_ngap::ie::{
    AreaOfInterest, AreaOfInterestItem, EventType, LocationReportingRequestType, NgranCgi, ReportArea,
    UePresence, UserLocationInformation,
};
use whimbrel_ngap::msg::{LocationReport, LocationReportingControl, LocationReportingFailureIndication};

use super::n2::{ids, send};
use super::paging;
use super::user_location::locate;
use crate::envelope::Locate;
use crate::event::{Event, Sign};
use crate::procedure::{Ue, out_of_state};
use crate::state::{AREAS_MAX, Locating};

/// For so long a UE that cannot be asked at once is waited for: longer than it is paged.
const PATIENCE: Duration = Duration::from_secs(30);

/// From 1900, where time stamps begin (TS 38.413 §9.3.1.75, as in NTP), to 1970, in seconds.
const NTP_TO_UNIX_S: u64 = 2_208_988_800;

impl Locating {
    /// Whether no more areas are watched than can be.
    pub(crate) fn is_bounded(&self) -> bool {
        self.areas.len() <= AREAS_MAX
    }

    /// Whether any report is awaited.
    fn awaits(&self) -> bool {
        self.now.is_some() || self.cells || self.areas.iter().any(Option::is_some)
    }

    fn reference(place: usize) -> u8 {
        place as u8 + 1
    }

    fn area(&self, reference: u8) -> Option<Tai> {
        self.areas.get(usize::from(reference).checked_sub(1)?).copied().flatten()
    }

    /// Adds an area; gives its reference. `None`: it is watched already, or there are too many.
    fn watch(&mut self, tai: Tai) -> Option<u8> {
        if self.areas.contains(&Some(tai)) {
            return None;
        }
        let place = match self.areas.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.areas.len() < AREAS_MAX => {
                self.areas.push(None);
                self.areas.len() - 1
            }
            None => return None,
        };
        *self.areas.get_mut(place)? = Some(tai);
        Some(Self::reference(place))
    }

    /// All standing reports in one request, for a gNB that has none of them.
    fn standing(&self) -> Option<LocationReportingRequestType> {
        let areas: Vec<AreaOfInterestItem> =
            (0..).zip(&self.areas).filter_map(|(n, t)| Some(item((*t)?, Self::reference(n)))).collect();
        let event = match (self.cells, areas.is_empty()) {
            (false, true) => return None,
            (true, true) => EventType::ChangeOfServeCell,
            (false, false) => EventType::UePresenceInAreaOfInterest,
            (true, false) => EventType::ChangeOfServingCellAndUePresenceInTheAreaOfInterest,
        };
        let mut r = request(event);
        r.area_of_interest_list = areas;
        Some(r)
    }

    /// Takes a request of the operator; returns the one for a gNB that has the earlier ones.
    fn take(&mut self, wish: Locate, now: Instant) -> Option<LocationReportingRequestType> {
        match wish {
            Locate::Now => {
                self.now = Some(now + PATIENCE);
                Some(request(EventType::Direct))
            }
            Locate::CellChanges if std::mem::replace(&mut self.cells, true) => None,
            Locate::CellChanges => Some(request(EventType::ChangeOfServeCell)),
            Locate::Presence(tai) => {
                let reference = self.watch(tai)?;
                let mut r = request(EventType::UePresenceInAreaOfInterest);
                r.area_of_interest_list = vec![item(tai, reference)];
                Some(r)
            }
            Locate::Stop => {
                let stood = self.standing().is_some();
                *self = Self::default();
                stood.then(|| request(EventType::CancelLocationReportingForTheUe))
            }
        }
    }
}

fn item(tai: Tai, reference: u8) -> AreaOfInterestItem {
    let mut area = AreaOfInterest::new();
    area.area_of_interest_tai_list = vec![tai];
    AreaOfInterestItem::new(area, reference)
}

fn request(event: EventType) -> LocationReportingRequestType {
    LocationReportingRequestType::new(event, ReportArea::Cell)
}

/// The operator wants to know where a UE is, or no longer. An idle UE is paged for its present place; standing reports
/// begin with its next connection.
pub(crate) fn ask(ue: Ue, wish: Locate) {
    let now = ue.now();
    let request = ue.with(|p| p.amf.locating.get_or_insert_default().take(wish, now));
    match at(ue) {
        At::Gnb => request.into_iter().for_each(|r| control(ue, r)),
        // The gNB that brought it has reported its location.
        At::New if wish == Locate::Now => found(ue),
        At::New | At::OnItsWay if wish != Locate::Now => {
            ue.with(|p| p.amf.locating.iter_mut().for_each(|l| l.unsent |= request.is_some()));
        }
        At::New | At::OnItsWay => {}
        At::Rest => paging::page_if_awaited(ue),
    }
    tidy(ue);
}

/// The gNB that can be asked for a UE's location.
enum At {
    /// Its gNB.
    Gnb,
    /// Its gNB, once that has the UE's context.
    New,
    /// The gNB where it is when its handover is over.
    OnItsWay,
    /// None: the UE is idle, or about to be.
    Rest,
}

fn at(ue: Ue) -> At {
    ue.with(|p| match &p.amf.connection {
        None => At::Rest,
        Some(c) if c.releasing => At::Rest,
        Some(_) if p.amf.target.is_some() => At::OnItsWay,
        Some(c) if !c.context_set_up => At::New,
        Some(_) => At::Gnb,
    })
}

/// LOCATION REPORTING CONTROL (§8.12.1.2).
fn control(ue: Ue, request: LocationReportingRequestType) {
    if let Some((amf_id, ran_id)) = ids(ue) {
        let mut control = LocationReportingControl::new(amf_id, ran_id);
        control.location_reporting_request_type = Some(request);
        send(ue, &control.into(), None);
    }
}

/// Sends what could not be sent to the gNB before: all that is requested, or the end of the reports.
pub(crate) fn resume(ue: Ue) {
    let Some((unsent, standing, now)) = ue.with(|p| {
        let l = p.amf.locating.as_mut()?;
        Some((std::mem::take(&mut l.unsent), l.standing(), l.now.is_some()))
    }) else {
        return;
    };
    if unsent {
        control(ue, standing.unwrap_or_else(|| request(EventType::CancelLocationReportingForTheUe)));
    }
    if now {
        control(ue, request(EventType::Direct));
    }
    tidy(ue);
}

/// The reports that a gNB is to make as soon as it has the UE's context (§8.3.1.2).
pub(crate) fn begin(ue: Ue) -> Option<LocationReportingRequestType> {
    ue.with(|p| {
        let l = p.amf.locating.as_mut()?;
        l.unsent = false;
        l.standing()
    })
}

/// The reports that the target of a handover is to make (§8.4.2.2).
pub(crate) fn standing(ue: Ue) -> Option<LocationReportingRequestType> {
    ue.with(|p| p.amf.locating.as_ref().and_then(|l| l.standing()))
}

/// Whether an idle UE is paged to hear where it is.
pub(crate) fn is_requested(ue: &crate::state::UeContext, now: Instant) -> bool {
    ue.amf.locating.as_ref().is_some_and(|l| l.now.is_some_and(|until| now < until))
}

/// The UE has a new connection, or its handover has ended, and its gNB has reported its location.
pub(crate) fn found(ue: Ue) {
    if taken(ue) {
        tell(ue);
    }
}

/// Whether its present location was requested; the request is answered with that.
fn taken(ue: Ue) -> bool {
    let wanted = ue.with(|p| p.amf.locating.as_mut().is_some_and(|l| l.now.take().is_some()));
    tidy(ue);
    wanted
}

/// Without a request it holds no memory.
fn tidy(ue: Ue) {
    ue.with(|p| p.amf.locating.take_if(|l| !l.awaits() && !l.unsent));
}

fn tell(ue: Ue) {
    let (subject, tai, cell) =
        ue.with(|p| (p.subject(), p.amf.tai, p.amf.seen.as_ref().map(|s| s.cell.clone())));
    ue.event(Event::Located { subject, tai, cell });
}

/// Emits an event for the handover predictor when the UE moves.
pub(crate) fn sign(ue: Ue, sign: impl FnOnce() -> Sign) {
    if ue.config().amf.signs {
        let (subject, tai, seen) = ue.with(|p| (p.subject(), p.amf.tai, p.amf.seen.clone()));
        ue.event(Event::Sign { subject, sign: sign(), tai, seen });
    }
}

fn is_awaited(ue: Ue) -> bool {
    ue.with(|p| p.amf.locating.as_ref().is_some_and(|l| l.awaits()))
}

/// LOCATION REPORT (§8.12.3.2). Its place of a UE in RRC_INACTIVE is the last known one, with its time (TS 23.501 §5.4.7).
pub(crate) fn reported(ue: Ue, m: &LocationReport) {
    if !is_awaited(ue) {
        return out_of_state(ue); // not requested, or the report crossed the end of the reports
    }
    if let Some(place) = &m.user_location_information {
        locate(ue, place);
        if let Some(then) = stamp(place) {
            ue.with(|p| p.amf.seen.iter_mut().for_each(|s| s.at = s.at.min(then)));
        }
        tell(ue);
        sign(ue, || Sign::Reported);
    }
    // Only requested areas are reported on; unknown references are ignored.
    for item in &m.ue_presence_in_area_of_interest_list {
        let area = ue.with(|p| p.amf.locating.as_ref()?.area(item.location_reporting_reference_id));
        let Some(area) = area else {
            out_of_state(ue);
            continue;
        };
        let subject = ue.with(|p| p.subject());
        let inside = match item.ue_presence {
            UePresence::In => Some(true),
            UePresence::Out => Some(false),
            UePresence::Unknown => None,
        };
        ue.event(Event::Presence { subject, area, inside });
    }
    taken(ue);
}

/// LOCATION REPORTING FAILURE INDICATION (§8.12.2.2). Standing wishes stay: another gNB may be able to fulfil them.
pub(crate) fn failed(ue: Ue, m: &LocationReportingFailureIndication) {
    if !is_awaited(ue) {
        return out_of_state(ue);
    }
    taken(ue);
    let (subject, why) = (ue.with(|p| p.subject()), m.cause.to_string());
    ue.event(Event::NotLocated { subject, why });
}

/// The UE does not answer to paging.
pub(crate) fn unreachable(ue: Ue) {
    if taken(ue) {
        let subject = ue.with(|p| p.subject());
        ue.event(Event::NotLocated { subject, why: "it does not answer to paging".into() });
    }
}

/// The cell in user location information.
pub(crate) fn cell(told: &UserLocationInformation) -> Option<NgranCgi> {
    match told {
        UserLocationInformation::UserLocationInformationNr(nr) => Some(NgranCgi::NrCgi(nr.nr_cgi.clone())),
        UserLocationInformation::UserLocationInformationEutra(eutra) => {
            Some(NgranCgi::EutraCgi(eutra.eutra_cgi.clone()))
        }
        _ => None,
    }
}

/// When the UE was there, if not now.
fn stamp(told: &UserLocationInformation) -> Option<Instant> {
    let stamp = match told {
        UserLocationInformation::UserLocationInformationNr(nr) => nr.time_stamp,
        UserLocationInformation::UserLocationInformationEutra(eutra) => eutra.time_stamp,
        _ => None,
    };
    let unix_s = u64::from(u32::from_be_bytes(stamp?)).checked_sub(NTP_TO_UNIX_S)?;
    Some(Instant(unix_s.saturating_mul(1_000_000)))
}
