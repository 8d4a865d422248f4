//! Nchf_ConvergedCharging (TS 32.290 §6.2, TS 32.291 §6.1) of this core's charging function.

use hyper::{StatusCode, Uri};
use tokio::sync::oneshot;
use whimbrel_charging as chf;
use whimbrel_charging::{
    ChargingRefusal, Denial, NotificationType, SessionKey, SessionReference, UnitResult,
};
use whimbrel_ids::{Instant, SNssai};
use whimbrel_sbi::problem::{congestion, of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse, headers};
use whimbrel_sbi_types::common::NfInstanceId;
use whimbrel_sbi_types::nchf::{
    ChargingDataRequest, ChargingDataResponse, ChargingNotificationType, ChargingNotifyRequest,
    ChargingResultCode, ChargingTrigger, FinalUnitAction, FinalUnitIndication, GrantedUnit,
    MultipleUnitInformation, MultipleUnitUsage, NfIdentification, RequestedUnit, TriggerType,
    UsedUnitContainer,
};
use whimbrel_sbi_types::{BoundedList, to_vec};

use super::super::chf::Unanswered;
use super::{NOTIFIED_WITHIN, OfferedServices, Served, no_such_resource, random_name};

impl OfferedServices {
    pub(super) async fn converged_charging(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        let (["chargingdata", resource @ ..], "POST") = (path, request.method.as_str()) else {
            return Err(no_such_resource());
        };
        match resource {
            [] => {
                let data: ChargingDataRequest = request.read()?;
                let session = self.charged_session(request, &data)?;
                let answer = self.charge(&data, chf::ChargingOperation::Create(session.into())).await?;
                let location =
                    format!("{}/nchf-convergedcharging/v3/chargingdata/{}", self.root, answer.resource);
                Ok(SbiResponse::created(&location, &response(&data, &answer)))
            }
            [resource, "update"] => {
                let data: ChargingDataRequest = request.read()?;
                let reference = reference(resource, &data)?;
                let answer = self.charge(&data, chf::ChargingOperation::Update(reference)).await?;
                Ok(SbiResponse::json(StatusCode::OK, &response(&data, &answer)))
            }
            [resource, "release"] => {
                let data: ChargingDataRequest = request.read()?;
                let reference = reference(resource, &data)?;
                self.charge(&data, chf::ChargingOperation::Release(reference)).await?;
                Ok(SbiResponse::no_content())
            }
            _ => Err(no_such_resource()),
        }
    }

    /// The session that Create names.
    fn charged_session(
        &self,
        request: &ReceivedRequest,
        data: &ChargingDataRequest,
    ) -> Result<chf::ChargedSession, SbiResponse> {
        if data.one_time_event == Some(true) {
            let detail = "this CHF has no event-based charging";
            return Err(of_status(403, Some("CHARGING_NOT_APPLICABLE"), detail));
        }
        let subscriber = data.subscriber_identifier.as_ref().ok_or_else(|| {
            problem(ProtocolCause::MandatoryIeMissing, "a session is charged to its subscriberIdentifier")
        })?;
        let supi = subscriber.imsi().ok_or_else(|| refused(ChargingRefusal::UserUnknown))?;
        let notify_uri = data.notify_uri.as_ref().map(|uri| self.callback(request, uri.as_str()));
        let information = data.pdu_session_charging_information.as_ref();
        let session = information.and_then(|information| information.pdu_session_information.as_ref());
        let slice = session.and_then(|session| session.network_slicing_info);
        Ok(chf::ChargedSession {
            resource: random_name().into(),
            key: SessionKey {
                consumer: Some(consumer_name(&data.nf_consumer_identification)),
                supi,
                charging_id: data.charging_id.or(information.and_then(|i| i.charging_id)),
                pdu_session_id: session.map(|session| session.pdu_session_id.value()),
            },
            notify_uri: notify_uri.transpose()?.map(|uri| uri.to_string().into()),
            dnn: session.map(|session| session.dnn_id.as_str().into()),
            s_nssai: slice.map(|slice| SNssai::from(slice.s_nssai).to_string().into()),
        })
    }

    /// Has the charging function execute a request.
    async fn charge(
        &self,
        data: &ChargingDataRequest,
        operation: chf::ChargingOperation,
    ) -> Result<chf::ChargingDataResponse, SbiResponse> {
        let function = self.chf.as_ref().ok_or_else(no_such_resource)?;
        let usage = data.multiple_unit_usage.as_deref().unwrap_or_default();
        let request = chf::ChargingDataRequest {
            operation,
            sequence: data.invocation_sequence_number,
            usage: usage.iter().map(unit_usage).collect(),
        };
        let (reply, answer) = oneshot::channel();
        // The request may have ended before the answer comes.
        function.ask(request, |result| drop(reply.send(result)));
        match answer.await {
            Ok(Ok(Ok(response))) => Ok(response),
            Ok(Ok(Err(refusal))) => Err(refused(refusal)),
            Ok(Err(Unanswered::Busy)) => {
                Err(congestion("too many requests wait for their answers", NOTIFIED_WITHIN))
            }
            Ok(Err(Unanswered::Failed)) | Err(_) => {
                Err(problem(ProtocolCause::SystemFailure, "the accounts cannot be written"))
            }
        }
    }

    /// Nchf_ConvergedCharging_Notify (TS 32.290 §5.3.2.5).
    pub(crate) fn order_charging(&self, order: &chf::Notification) {
        let uri: Option<Uri> = order.notify_uri.as_ref().and_then(|uri| uri.parse().ok());
        // A consumer that has named no URI gets no orders.
        let Some(uri) = uri else { return };
        let notification_type = match order.order {
            NotificationType::Reauthorization => ChargingNotificationType::Reauthorization,
            NotificationType::AbortCharging => ChargingNotificationType::AbortCharging,
        };
        let body = ChargingNotifyRequest { notification_type, reauthorization_details: None };
        self.notify(("CHF", "Nchf_ConvergedCharging_Notify"), 3, uri, to_vec(&body));
    }
}

/// The session of an Update or a Release, which may name its subscriber.
fn reference(resource: &str, data: &ChargingDataRequest) -> Result<SessionReference, SbiResponse> {
    let supi = match &data.subscriber_identifier {
        None => None,
        Some(subscriber) => Some(subscriber.imsi().ok_or_else(|| refused(ChargingRefusal::NoSuchResource))?),
    };
    Ok(SessionReference::Resource(resource.into(), supi))
}

/// The name under which records have the consumer.
fn consumer_name(consumer: &NfIdentification) -> Box<str> {
    let NfIdentification { nf_name, nf_ipv4_address, nf_ipv6_address, nf_fqdn, .. } = consumer;
    let name = nf_name.as_ref().map(|name| name.as_str().to_owned());
    let name = name.or_else(|| nf_fqdn.as_ref().map(|fqdn| fqdn.as_str().to_owned()));
    let name = name.or_else(|| nf_ipv4_address.map(|address| address.to_string()));
    let name = name.or_else(|| nf_ipv6_address.map(|address| address.to_string()));
    name.unwrap_or_else(|| consumer.node_functionality.as_str().to_owned()).into()
}

fn unit_usage(usage: &MultipleUnitUsage) -> chf::MultipleUnitUsage {
    let containers = usage.used_unit_container.as_deref().unwrap_or_default();
    chf::MultipleUnitUsage {
        rating_group: usage.rating_group,
        requested: usage.requested_unit.as_ref().map(requested_octets),
        used: containers.iter().map(used_units).collect(),
    }
}

/// Octets that are asked for; `None` leaves the amount to the function.
fn requested_octets(requested: &RequestedUnit) -> Option<u64> {
    let RequestedUnit { total_volume, uplink_volume, downlink_volume, .. } = *requested;
    total_volume.or_else(|| match (uplink_volume, downlink_volume) {
        (None, None) => None,
        (uplink, downlink) => Some(uplink.unwrap_or(0).saturating_add(downlink.unwrap_or(0))),
    })
}

fn used_units(used: &UsedUnitContainer) -> chf::UsedUnitContainer {
    chf::UsedUnitContainer {
        number: used.local_sequence_number,
        uplink: used.uplink_volume.unwrap_or(0),
        downlink: used.downlink_volume.unwrap_or(0),
        total: used.total_volume.unwrap_or(0),
        time_s: used.time.unwrap_or(0),
        at: used
            .trigger_timestamp
            .map(|at| Instant(u64::try_from(at.unix_ms()).unwrap_or(0).saturating_mul(1000))),
    }
}

fn response(data: &ChargingDataRequest, answer: &chf::ChargingDataResponse) -> ChargingDataResponse {
    let usage = data.multiple_unit_usage.as_deref().unwrap_or_default();
    let upf =
        |group| usage.iter().find(|usage| usage.rating_group == group).and_then(|usage| usage.upf_id.clone());
    let units: Vec<_> =
        answer.units.iter().map(|unit| unit_information(unit, upf(unit.rating_group))).collect();
    ChargingDataResponse {
        invocation_time_stamp: headers::now(),
        invocation_sequence_number: data.invocation_sequence_number,
        invocation_result: None,
        session_failover: None,
        supported_features: None,
        multiple_unit_information: BoundedList::new(units).filter(|units| !units.is_empty()),
        triggers: None,
        pdu_session_charging_information: None,
    }
}

/// MultipleUnitInformation (TS 32.291 §6.1.6.2.1.6). The UPF of the request and the triggers are in it since free5GC's SMF finds the URR by the
/// one, and reports at the others alone.
fn unit_information(
    unit: &chf::MultipleUnitInformation,
    upf_id: Option<NfInstanceId>,
) -> MultipleUnitInformation {
    let granted = match unit.result {
        UnitResult::Granted(granted) => Some(granted),
        UnitResult::NotApplicable | UnitResult::Denied(_) => None,
    };
    let result_code = match unit.result {
        UnitResult::Granted(_) => ChargingResultCode::Success,
        UnitResult::NotApplicable => ChargingResultCode::QuotaManagementNotApplicable,
        UnitResult::Denied(Denial::QuotaLimitReached) => ChargingResultCode::QuotaLimitReached,
        UnitResult::Denied(Denial::UserUnknown) => ChargingResultCode::UserUnknown,
        UnitResult::Denied(Denial::EndUserServiceDenied) => ChargingResultCode::EndUserServiceDenied,
    };
    let last = granted.filter(|granted| granted.is_last);
    MultipleUnitInformation {
        result_code: Some(result_code),
        rating_group: unit.rating_group,
        granted_unit: granted
            .map(|granted| GrantedUnit { total_volume: Some(granted.octets), ..GrantedUnit::default() }),
        triggers: BoundedList::new(triggers(unit.result)).filter(|all| !all.is_empty()),
        validity_time: granted.map(|granted| granted.validity_s),
        quota_holding_time: None,
        final_unit_indication: last.map(|_| FinalUnitIndication {
            final_unit_action: Some(FinalUnitAction::Terminate),
            restriction_filter_rule: None,
            restriction_filter_rule_list: None,
            filter_id: None,
            filter_id_list: None,
            redirect_server: None,
        }),
        time_quota_threshold: None,
        volume_quota_threshold: granted.and_then(|granted| granted.threshold_octets),
        unit_quota_threshold: None,
        upf_id,
    }
}

/// Events at which the consumer of a quota reports. A denial has one, too: free5GC's SMF stops the traffic at it alone, and looks neither at
/// `resultCode` nor at `finalUnitIndication`.
fn triggers(result: UnitResult) -> Vec<ChargingTrigger> {
    let types = match result {
        UnitResult::Granted(chf::GrantedUnit { threshold_octets: Some(_), .. }) => {
            &[TriggerType::QuotaExhausted, TriggerType::ValidityTime, TriggerType::QuotaThreshold][..]
        }
        UnitResult::Granted(_) => &[TriggerType::QuotaExhausted, TriggerType::ValidityTime],
        UnitResult::Denied(_) => &[TriggerType::QuotaExhausted],
        UnitResult::NotApplicable => &[],
    };
    types.iter().cloned().map(super::super::charging::trigger).collect()
}

/// The refusal of a request (TS 32.291 §6.1.7.3, TS 29.500 §5.2.7.2).
fn refused(refusal: ChargingRefusal) -> SbiResponse {
    let detail = refusal.to_string();
    let cause = match refusal {
        ChargingRefusal::UserUnknown => return of_status(404, Some("USER_UNKNOWN"), &detail),
        ChargingRefusal::EndUserRequestDenied => {
            return of_status(403, Some("END_USER_REQUEST_DENIED"), &detail);
        }
        ChargingRefusal::QuotaLimitReached => return of_status(403, Some("QUOTA_LIMIT_REACHED"), &detail),
        ChargingRefusal::NoSuchResource => ProtocolCause::ResourceContextNotFound,
        ChargingRefusal::SequenceWentBack { .. } => ProtocolCause::MandatoryIeIncorrect,
        ChargingRefusal::TooManyContainers
        | ChargingRefusal::TooManyRatingGroups
        | ChargingRefusal::VolumeOutOfRange => ProtocolCause::OptionalIeIncorrect,
        ChargingRefusal::TooManySessions | ChargingRefusal::TooManyAccounts => {
            ProtocolCause::InsufficientResources
        }
    };
    problem(cause, &detail)
}
