//! Requests of this core's SMF to this core's charging function.

use std::collections::BTreeMap;

use whimbrel_charging::{
    ChargedSession, ChargingDataRequest, ChargingOperation as Operation, ChargingRefusal, Denial,
    MultipleUnitUsage, SessionKey, SessionReference, UnitResult, UsedUnitContainer,
};
use whimbrel_control::charging::{
    ChargingAnswer, ChargingDenial, ChargingGrant, ChargingOperation, ChargingRequest, FinalUnitAction,
    GrantedQuota, RatingGroup, UsedUnits,
};
use whimbrel_control::udm::ServiceFault;

use super::{ChargingResult, ChfHandle, Unanswered};
use crate::sbi::offered::random_name;

/// Has a request of this core's SMF executed; `reply` gets the answer on the thread of the function.
pub(crate) fn ask(
    chf: &ChfHandle,
    requested: &BTreeMap<RatingGroup, u64>,
    request: ChargingRequest,
    reply: impl FnOnce(ChargingAnswer) + Send + 'static,
) {
    let question = request_of(&request, requested, random_name());
    chf.ask(question, move |result| reply(answer_of(&request, result)));
}

/// The request in the function's form. `resource` is the identity of a session that begins.
fn request_of(
    request: &ChargingRequest,
    requested: &BTreeMap<RatingGroup, u64>,
    resource: String,
) -> ChargingDataRequest {
    let ChargingRequest { supi, psi, charging_id, sequence, operation } = request;
    let key = SessionKey {
        consumer: None,
        supi: *supi,
        charging_id: Some(*charging_id),
        pdu_session_id: Some(psi.value()),
    };
    let asked = |group: RatingGroup| Some(requested.get(&group).copied());
    let usage = |group: RatingGroup, requested, used: Option<&UsedUnits>| {
        let used = used.map(container).into_iter().collect();
        vec![MultipleUnitUsage { rating_group: group.0, requested, used }]
    };
    let resource_of = |reference: &str| SessionReference::Resource(reference.into(), Some(*supi));
    let (operation, usage) = match operation {
        ChargingOperation::Create(session, group) => {
            let session = ChargedSession {
                resource: resource.into(),
                key,
                notify_uri: None,
                dnn: Some(session.dnn.to_string().into()),
                s_nssai: Some(session.s_nssai.to_string().into()),
            };
            (Operation::Create(session.into()), usage(*group, asked(*group), None))
        }
        ChargingOperation::Update { reference, used, last } => {
            let group = used.rating_group;
            let requested = if *last { None } else { asked(group) };
            (Operation::Update(resource_of(reference)), usage(group, requested, Some(used)))
        }
        ChargingOperation::Release { reference, used, .. } => {
            // Without a reference, the answer to Create did not arrive.
            let reference = match reference.is_empty() {
                true => SessionReference::Key(key),
                false => resource_of(reference),
            };
            (Operation::Release(reference), usage(used.rating_group, None, Some(used)))
        }
    };
    ChargingDataRequest { operation, sequence: *sequence, usage }
}

fn container(used: &UsedUnits) -> UsedUnitContainer {
    UsedUnitContainer {
        number: used.number,
        uplink: used.uplink,
        downlink: used.downlink,
        total: 0,
        time_s: used.time_s,
        at: None,
    }
}

/// The answer in the SMF's form.
fn answer_of(request: &ChargingRequest, result: ChargingResult) -> ChargingAnswer {
    let response = match result {
        Ok(Ok(response)) => response,
        Ok(Err(refusal)) => return refused(request, refusal),
        Err(Unanswered::Busy) => return ChargingAnswer::Failed(ServiceFault::Busy),
        Err(Unanswered::Failed) => return ChargingAnswer::Failed(ServiceFault::NotConnected),
    };
    let quota = match response.units.first().map(|unit| unit.result) {
        Some(UnitResult::Denied(denial)) => return ChargingAnswer::Denied(denial_of(denial)),
        Some(UnitResult::Granted(unit)) => Some(GrantedQuota {
            total: Some(unit.octets),
            volume_threshold: unit.threshold_octets,
            validity_s: Some(unit.validity_s),
            last: unit.is_last.then_some(FinalUnitAction::Terminate),
            ..GrantedQuota::default()
        }),
        Some(UnitResult::NotApplicable) | None => None,
    };
    ChargingAnswer::Granted(Box::new(ChargingGrant { reference: response.resource, quota }))
}

fn denial_of(denial: Denial) -> ChargingDenial {
    match denial {
        Denial::QuotaLimitReached => ChargingDenial::QuotaLimitReached,
        Denial::UserUnknown => ChargingDenial::UserUnknown,
        Denial::EndUserServiceDenied => ChargingDenial::ServiceDenied,
    }
}

fn refused(request: &ChargingRequest, refusal: ChargingRefusal) -> ChargingAnswer {
    let is_release = matches!(request.operation, ChargingOperation::Release { .. });
    match refusal {
        ChargingRefusal::UserUnknown => ChargingAnswer::Denied(ChargingDenial::UserUnknown),
        ChargingRefusal::EndUserRequestDenied => ChargingAnswer::Denied(ChargingDenial::ServiceDenied),
        ChargingRefusal::QuotaLimitReached => ChargingAnswer::Denied(ChargingDenial::QuotaLimitReached),
        // A session that is not there needs no release.
        ChargingRefusal::NoSuchResource if is_release => ChargingAnswer::Granted(Box::default()),
        ChargingRefusal::NoSuchResource
        | ChargingRefusal::SequenceWentBack { .. }
        | ChargingRefusal::TooManyContainers
        | ChargingRefusal::TooManyRatingGroups
        | ChargingRefusal::VolumeOutOfRange => ChargingAnswer::Failed(ServiceFault::InvalidAnswer),
        ChargingRefusal::TooManySessions | ChargingRefusal::TooManyAccounts => {
            ChargingAnswer::Failed(ServiceFault::Busy)
        }
    }
}
