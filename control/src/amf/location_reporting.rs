//! Location reporting: TS 38.413 §8.12.1, §8.12.2, §8.12.3; TS 23.502 §4.10; TS 23.501 §5.4.7.
//!
//! The operator's requests are part of the UE's context, so that each new gNB of the UE gets them, in INITIAL CONTEXT
//! SETUP REQUEST and HANDOVER REQUEST. Over Xn the source forwards it to its target (TS 23.502 §4.10).

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
use crate::config::Prediction;
use crate::envelope::Locate;
use crate::event::{Event, Sign};
use crate::procedure::{Ue, out_of_state};
use crate::state::{AREAS_MAX, LocationRequests};

/// How long a request for the present location stays pending: longer than the UE is paged.
const PATIENCE: Duration = Duration::from_secs(30);

/// Seconds from 1900, the epoch of time stamps (TS 38.413 §9.3.1.75, as in NTP), to 1970.
const NTP_TO_UNIX_S: u64 = 2_208_988_800;

impl LocationRequests {
    /// Whether the number of watched areas is within the limit.
    pub(crate) fn is_bounded(&self) -> bool {
        self.areas.len() <= AREAS_MAX
    }

    /// Whether any report is awaited.
    fn awaits(&self) -> bool {
        self.direct_until.is_some() || self.is_cell_change_requested || self.areas.iter().any(Option::is_some)
    }

    fn reference(place: usize) -> u8 {
        place as u8 + 1
    }

    fn area(&self, reference: u8) -> Option<Tai> {
        self.areas.get(usize::from(reference).checked_sub(1)?).copied().flatten()
    }

    /// Adds an area and returns its reference. `None`: it is watched already, or there are too many.
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

    /// One request with all standing reports, for a new gNB.
    fn standing(&self) -> Option<LocationReportingRequestType> {
        let areas: Vec<AreaOfInterestItem> =
            (0..).zip(&self.areas).filter_map(|(n, t)| Some(item((*t)?, Self::reference(n)))).collect();
        let event = match (self.is_cell_change_requested, areas.is_empty()) {
            (false, true) => return None,
            (true, true) => EventType::ChangeOfServeCell,
            (false, false) => EventType::UePresenceInAreaOfInterest,
            (true, false) => EventType::ChangeOfServingCellAndUePresenceInTheAreaOfInterest,
        };
        let mut r = request(event);
        r.area_of_interest_list = areas;
        Some(r)
    }

    /// Stores a request of the operator; returns the one to send to a gNB that has the earlier requests.
    fn take(&mut self, wish: Locate, now: Instant) -> Option<LocationReportingRequestType> {
        match wish {
            Locate::Now => {
                self.direct_until = Some(now + PATIENCE);
                Some(request(EventType::Direct))
            }
            Locate::CellChanges if std::mem::replace(&mut self.is_cell_change_requested, true) => None,
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

/// The operator requests or cancels location reports. An idle UE is paged for its present location; standing reports
/// begin with its next connection.
pub(crate) fn ask(ue: Ue, wish: Locate) {
    let now = ue.now();
    let request = ue.with(|p| p.amf.location.requests.get_or_insert_default().take(wish, now));
    match at(ue) {
        At::Gnb => request.into_iter().for_each(|r| control(ue, r)),
        // The gNB has reported the UE's location with its first message.
        At::New if wish == Locate::Now => found(ue),
        At::New | At::OnItsWay if wish != Locate::Now => {
            ue.with(|p| p.amf.location.requests.iter_mut().for_each(|l| l.unsent |= request.is_some()));
        }
        At::New | At::OnItsWay => {}
        At::Rest => paging::page_if_awaited(ue),
    }
    tidy(ue);
}

/// Which gNB can be asked for a UE's location.
enum At {
    /// The serving gNB, at once.
    Gnb,
    /// The serving gNB, once it has the UE's context.
    New,
    /// The serving gNB after the handover.
    OnItsWay,
    /// None: the UE is idle, or in AN release.
    Rest,
}

fn at(ue: Ue) -> At {
    ue.with(|p| match &p.amf.connection {
        None => At::Rest,
        Some(c) if c.releasing => At::Rest,
        Some(_) if p.amf.mobility.target.is_some() => At::OnItsWay,
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

/// Sends the requests that could not be sent before, or the cancel.
pub(crate) fn resume(ue: Ue) {
    let Some((unsent, standing, now)) = ue.with(|p| {
        let l = p.amf.location.requests.as_mut()?;
        Some((std::mem::take(&mut l.unsent), l.standing(), l.direct_until.is_some()))
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

/// The reports to request in INITIAL CONTEXT SETUP REQUEST (§8.3.1.2).
pub(crate) fn begin(ue: Ue) -> Option<LocationReportingRequestType> {
    ue.with(|p| {
        let l = p.amf.location.requests.as_mut()?;
        l.unsent = false;
        l.standing()
    })
}

/// The reports to request in HANDOVER REQUEST (§8.4.2.2).
pub(crate) fn standing(ue: Ue) -> Option<LocationReportingRequestType> {
    ue.with(|p| p.amf.location.requests.as_ref().and_then(|l| l.standing()))
}

/// Whether an idle UE is paged because its location is requested.
pub(crate) fn is_requested(ue: &crate::state::UeContext, now: Instant) -> bool {
    ue.amf.location.requests.as_ref().is_some_and(|l| l.direct_until.is_some_and(|until| now < until))
}

/// The UE has a new connection, or its handover has ended, and its gNB has reported its location.
pub(crate) fn found(ue: Ue) {
    if taken(ue) {
        report(ue);
    }
}

/// Whether the present location was requested. Clears the request.
fn taken(ue: Ue) -> bool {
    let requested =
        ue.with(|p| p.amf.location.requests.as_mut().is_some_and(|l| l.direct_until.take().is_some()));
    tidy(ue);
    requested
}

/// Frees the record when no request is left.
fn tidy(ue: Ue) {
    ue.with(|p| p.amf.location.requests.take_if(|l| !l.awaits() && !l.unsent));
}

fn report(ue: Ue) {
    let (subject, tai, cell) =
        ue.with(|p| (p.subject(), p.amf.location.tai, p.amf.location.seen.as_ref().map(|s| s.cell.clone())));
    ue.event(Event::Located { subject, tai, cell });
}

/// Whether the movement of this UE may be predicted: it is not veiled, and the operator has not excluded the subscriber, nor the data
/// network of one of its sessions.
pub(crate) fn is_predicted(ue: Ue) -> bool {
    let config = ue.config();
    let Prediction { excluded_dnns, excluded_supis, .. } = &config.amf.prediction;
    let excluded = ue.with(|p| {
        p.veil.is_some()
            || p.amf.supi.is_none_or(|supi| excluded_supis.contains(&supi))
            || p.sessions.values().any(|s| excluded_dnns.contains(&s.dnn))
    });
    config.amf.signs && !excluded
}

/// Emits an event for the handover predictor when the UE moves.
pub(crate) fn sign(ue: Ue, sign: impl FnOnce() -> Sign) {
    if is_predicted(ue) {
        let (subject, tai, seen) =
            ue.with(|p| (p.subject(), p.amf.location.tai, p.amf.location.seen.clone()));
        ue.event(Event::Sign { subject, sign: sign(), tai, seen });
    }
}

fn is_awaited(ue: Ue) -> bool {
    ue.with(|p| p.amf.location.requests.as_ref().is_some_and(|l| l.awaits()))
}

/// LOCATION REPORT (§8.12.3.2). For a UE in RRC_INACTIVE it has the last known location, with its time (TS 23.501 §5.4.7).
pub(crate) fn reported(ue: Ue, m: &LocationReport) {
    if !is_awaited(ue) {
        return out_of_state(ue); // not requested, or it crossed the cancel
    }
    if let Some(place) = &m.user_location_information {
        locate(ue, place);
        if let Some(then) = stamp(place) {
            ue.with(|p| p.amf.location.seen.iter_mut().for_each(|s| s.at = s.at.min(then)));
        }
        report(ue);
        sign(ue, || Sign::Reported);
    }
    // Reports on areas that were not requested are ignored.
    for item in &m.ue_presence_in_area_of_interest_list {
        let area = ue.with(|p| p.amf.location.requests.as_ref()?.area(item.location_reporting_reference_id));
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

/// LOCATION REPORTING FAILURE INDICATION (§8.12.2.2). Standing requests stay: another gNB may be able to fulfil them.
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
pub(crate) fn cell(location: &UserLocationInformation) -> Option<NgranCgi> {
    match location {
        UserLocationInformation::UserLocationInformationNr(nr) => Some(NgranCgi::NrCgi(nr.nr_cgi.clone())),
        UserLocationInformation::UserLocationInformationEutra(eutra) => {
            Some(NgranCgi::EutraCgi(eutra.eutra_cgi.clone()))
        }
        _ => None,
    }
}

/// The time stamp of the location, if it is not the present one.
fn stamp(location: &UserLocationInformation) -> Option<Instant> {
    let stamp = match location {
        UserLocationInformation::UserLocationInformationNr(nr) => nr.time_stamp,
        UserLocationInformation::UserLocationInformationEutra(eutra) => eutra.time_stamp,
        _ => None,
    };
    let unix_s = u64::from(u32::from_be_bytes(stamp?)).checked_sub(NTP_TO_UNIX_S)?;
    Some(Instant(unix_s.saturating_mul(1_000_000)))
}
