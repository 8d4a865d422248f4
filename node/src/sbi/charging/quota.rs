//! The grant of a CHF's answer to a rating group (TS 32.291 §6.1.6.2.1.6).

use whimbrel_control::charging::{ChargingDenial, FinalUnitAction, GrantedQuota, RatingGroup};
use whimbrel_sbi_types::nchf::{
    self, ChargingDataResponse, ChargingResultCode, FinalUnitIndication, GrantedUnit, MultipleUnitInformation,
};

/// A CHF's answer about a rating group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrantReading {
    /// No quota: usage is recorded.
    Unlimited,
    Quota(GrantedQuota),
    Denied(ChargingDenial),
    Unusable(&'static str),
}

/// Reads what is granted; `None` if the answer says nothing about the rating group. `note` logs what this core does not do.
pub(super) fn read_grant(
    response: &ChargingDataResponse,
    rating_group: RatingGroup,
    note: impl Fn(&str),
) -> Option<GrantReading> {
    let all = response.multiple_unit_information.as_deref().unwrap_or_default();
    if let Some(other) = all.iter().find(|information| information.rating_group != rating_group.0) {
        note(&format!("it names rating group {}, which was not asked for", other.rating_group));
    }
    let information = all.iter().find(|information| information.rating_group == rating_group.0)?;
    let denied = |denial| Some(GrantReading::Denied(denial));
    match &information.result_code {
        Some(ChargingResultCode::QuotaManagementNotApplicable) => return Some(GrantReading::Unlimited),
        Some(ChargingResultCode::QuotaLimitReached) => return denied(ChargingDenial::QuotaLimitReached),
        Some(ChargingResultCode::EndUserServiceDenied | ChargingResultCode::EndUserServiceRejected) => {
            return denied(ChargingDenial::ServiceDenied);
        }
        Some(ChargingResultCode::UserUnknown) => return denied(ChargingDenial::UserUnknown),
        Some(ChargingResultCode::RatingFailed) => return denied(ChargingDenial::RatingFailed),
        Some(ChargingResultCode::Unknown(code)) if !code.as_str().is_empty() => {
            return Some(GrantReading::Unusable("its resultCode is not one of Release 17"));
        }
        Some(
            ChargingResultCode::Success
            | ChargingResultCode::QuotaManagement
            | ChargingResultCode::Unknown(_),
        )
        | None => {}
    }
    let Some(granted) = &information.granted_unit else { return Some(GrantReading::Unlimited) };
    Some(quota(information, granted, note))
}

fn quota(information: &MultipleUnitInformation, granted: &GrantedUnit, note: impl Fn(&str)) -> GrantReading {
    // Zero beside another amount is how some CHFs write that there is none.
    let volume = |octets: Option<u64>| octets.filter(|octets| *octets > 0);
    let seconds = |time: Option<u32>| time.filter(|time| *time > 0);
    let (total, uplink, downlink) =
        (volume(granted.total_volume), volume(granted.uplink_volume), volume(granted.downlink_volume));
    let time_s = seconds(granted.time);
    let smallest = [total, uplink, downlink].into_iter().flatten().min();
    if smallest.is_none() && time_s.is_none() {
        return match volume(granted.service_specific_units) {
            Some(_) => {
                GrantReading::Unusable("it grants service-specific units, which a PDU session has not")
            }
            None => GrantReading::Denied(ChargingDenial::QuotaLimitReached),
        };
    }
    // A threshold that the quota reaches at once would have the next one asked for without end.
    let below = |threshold: u64, quota: Option<u64>| quota.is_some_and(|quota| threshold < quota);
    GrantReading::Quota(GrantedQuota {
        total,
        uplink,
        downlink,
        time_s,
        volume_threshold: volume(information.volume_quota_threshold).filter(|t| below(*t, smallest)),
        time_threshold_s: seconds(information.time_quota_threshold)
            .filter(|t| below((*t).into(), time_s.map(u64::from))),
        validity_s: seconds(information.validity_time),
        holding_s: seconds(information.quota_holding_time),
        last: information.final_unit_indication.as_ref().and_then(|last| final_action(last, note)),
    })
}

/// The treatment of traffic after the last quota; `None` if this is not the last one, as an empty value of free5GC says.
fn final_action(last: &FinalUnitIndication, note: impl Fn(&str)) -> Option<FinalUnitAction> {
    match last.final_unit_action.as_ref()? {
        nchf::FinalUnitAction::Terminate => Some(FinalUnitAction::Terminate),
        nchf::FinalUnitAction::Redirect => {
            note("traffic after the last quota is blocked, not redirected");
            Some(FinalUnitAction::Block)
        }
        nchf::FinalUnitAction::RestrictAccess => {
            note("all traffic after the last quota is blocked, not that of its restriction alone");
            Some(FinalUnitAction::Block)
        }
        nchf::FinalUnitAction::Unknown(action) => {
            (!action.as_str().is_empty()).then_some(FinalUnitAction::Terminate)
        }
    }
}
