//! Another vendor's charging function: what the SMF asks becomes operations of Nchf_ConvergedCharging (TS 32.290 §5.3, TS 32.291 §6.1).

mod quota;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;

use whimbrel_control::charging::{
    ChargedSession, ChargingAnswer, ChargingDenial, ChargingGrant, ChargingOperation, ChargingRequest,
    ChargingTrigger, RatingGroup, UsedUnits,
};
use whimbrel_control::udm::ServiceFault;
use whimbrel_ids::{Instant, PduSessionId, Supi};
use whimbrel_nas::ie::{PduSessionType, SscMode};
use whimbrel_sbi_types::common::{self as body, DateTime, ShortText};
use whimbrel_sbi_types::nchf::{
    self, ChargingDataRequest, ChargingDataResponse, MultipleUnitUsage, NfIdentification, NodeFunctionality,
    PduSessionChargingInformation, QuotaManagementIndicator, RequestedUnit, TriggerCategory, TriggerType,
    UsedUnitContainer,
};
use whimbrel_sbi_types::{BoundedList, from_slice, to_vec};

use self::quota::{GrantReading, read_grant};
use super::callbacks;
use super::identity::supi_text;
use super::peer::{Peer, Reply, RequestMethod};
use super::udm::Consumer;
use crate::clock;

/// The collection of charging data resources. Release 17 has v3; CHFs of Release 15 and 16, which have v2, are not asked.
const COLLECTION: &str = "/nchf-convergedcharging/v3/chargingdata";

/// Sessions whose last request is remembered, as many as UEs. Past this all are forgotten: then a repeated request is not marked as such.
const SESSIONS_MAX: usize = 1 << 20;

const CREATE: &str = "Nchf_ConvergedCharging_Create";
const UPDATE: &str = "Nchf_ConvergedCharging_Update";
const RELEASE: &str = "Nchf_ConvergedCharging_Release";

/// A session that is charged: its charging identifier is unique in this core.
type ChargedSessionId = (Supi, PduSessionId, u32);

/// The last request about a session, so that a repeated one is known as such.
#[derive(Default)]
struct LastRequest {
    sequence: u32,
    /// `None` while none has come, and after a failure.
    answer: Option<ChargingAnswer>,
    /// The CHF limits nothing: usage is recorded.
    is_offline: bool,
    /// The session's resource at the CHF, where Create was answered here.
    created: Option<Box<str>>,
}

/// Another vendor's CHF.
pub(super) struct Charging {
    peer: Peer,
    consumer: Consumer,
    /// This core's address.
    address: IpAddr,
    /// Octets that are asked for.
    requested: BTreeMap<RatingGroup, u64>,
    last_requests: Mutex<BTreeMap<ChargedSessionId, LastRequest>>,
}

/// The parts of a request that depend on its operation.
struct Report<'a> {
    rating_group: RatingGroup,
    /// Octets that are asked for. Zero: none.
    requested: u64,
    used: Option<(UsedUnits, TriggerType)>,
    /// The session ends.
    is_final: bool,
    session: Option<&'a ChargedSession>,
    is_offline: bool,
    is_repeated: bool,
}

impl Charging {
    pub(super) fn new(
        peer: Peer,
        consumer: Consumer,
        address: IpAddr,
        requested: BTreeMap<RatingGroup, u64>,
    ) -> Self {
        Self { peer, consumer, address, requested, last_requests: Mutex::default() }
    }

    /// Executes one request. The caller executes those of one session one after the other.
    pub(super) async fn answer(&self, request: &ChargingRequest) -> ChargingAnswer {
        let session = (request.supi, request.psi, request.charging_id);
        let (is_repeated, is_offline, created) = {
            let mut last_requests = self.last_requests();
            if last_requests.len() >= SESSIONS_MAX && !last_requests.contains_key(&session) {
                last_requests.clear();
            }
            let is_known = last_requests.contains_key(&session);
            let last = last_requests.entry(session).or_default();
            let is_repeated = is_known && last.sequence == request.sequence;
            // Its answer crossed the repetition.
            if is_repeated && let Some(answer) = &last.answer {
                return answer.clone();
            }
            (last.sequence, last.answer) = (request.sequence, None);
            (is_repeated, last.is_offline, last.created.clone())
        };
        let answer = match &request.operation {
            ChargingOperation::Create(charged, rating_group) => {
                self.create(request, charged, *rating_group, is_repeated).await
            }
            ChargingOperation::Update { reference, used, last } => {
                let requested = if *last { 0 } else { self.requested_octets(used.rating_group) };
                let report = Report {
                    rating_group: used.rating_group,
                    requested,
                    used: Some((*used, trigger_type(used.trigger))),
                    is_final: false,
                    session: None,
                    is_offline,
                    is_repeated,
                };
                self.update(request, reference, report).await
            }
            ChargingOperation::Release { reference, .. } if reference.is_empty() && created.is_none() => {
                ChargingAnswer::Granted(Box::default()) // it has no session
            }
            ChargingOperation::Release { reference, used, .. } => {
                let reference = created.as_deref().filter(|_| reference.is_empty()).unwrap_or(reference);
                let report = Report {
                    rating_group: used.rating_group,
                    requested: 0,
                    used: Some((*used, trigger_type(used.trigger))),
                    is_final: true,
                    session: None,
                    is_offline,
                    is_repeated,
                };
                self.release(request, request.sequence, reference, report).await
            }
        };
        let mut last_requests = self.last_requests();
        if matches!(
            (&request.operation, &answer),
            (ChargingOperation::Release { .. }, ChargingAnswer::Granted(_))
        ) {
            last_requests.remove(&session);
        } else if let Some(last) = last_requests.get_mut(&session)
            && let ChargingAnswer::Granted(grant) = &answer
        {
            if matches!(request.operation, ChargingOperation::Create(..)) {
                (last.is_offline, last.created) = (grant.quota.is_none(), Some(grant.reference.clone()));
            }
            last.answer = Some(answer.clone());
        }
        answer
    }

    /// Nchf_ConvergedCharging_Create (TS 32.290 §5.3.2.2).
    async fn create(
        &self,
        request: &ChargingRequest,
        charged: &ChargedSession,
        rating_group: RatingGroup,
        is_repeated: bool,
    ) -> ChargingAnswer {
        let requested = self.requested_octets(rating_group);
        let report = Report {
            rating_group,
            requested,
            used: None,
            is_final: false,
            session: Some(charged),
            is_offline: false,
            is_repeated,
        };
        let reply = match self.post(CREATE, COLLECTION, request, request.sequence, &report).await {
            Ok(reply) => reply,
            Err(answer) => return answer,
        };
        let Some(reference) = reply.created_in(COLLECTION) else {
            return self.unusable(CREATE, "its Location names no resource");
        };
        let mut answer = self.read(CREATE, &reply.body, rating_group);
        if answer.is_none() {
            // Deviation: free5GC grants nothing before a first report, even if that reports no usage. A CHF that has no quotas says so there.
            let report = Report {
                used: Some((
                    UsedUnits { rating_group, ..UsedUnits::default() },
                    TriggerType::StartOfServiceDataFlow,
                )),
                session: None,
                ..report
            };
            answer = match self
                .post(UPDATE, &path_of(reference, "update"), request, request.sequence, &report)
                .await
            {
                Ok(reply) => self.read(UPDATE, &reply.body, rating_group),
                Err(answer) => Some(answer),
            };
        }
        match answer.unwrap_or_else(|| ChargingAnswer::Granted(Box::default())) {
            ChargingAnswer::Granted(grant) => {
                ChargingAnswer::Granted(Box::new(ChargingGrant { reference: reference.into(), ..*grant }))
            }
            refusal @ (ChargingAnswer::Denied(_) | ChargingAnswer::Failed(_)) => {
                // The SMF does not hear of the resource, which would stay at the CHF. What the CHF has reserved comes free with a report of no usage.
                let unused = UsedUnits { rating_group, ..UsedUnits::default() };
                let report = Report {
                    rating_group,
                    requested: 0,
                    used: Some((unused, TriggerType::Final)),
                    is_final: true,
                    session: None,
                    is_offline: false,
                    is_repeated: false,
                };
                let next = request.sequence.saturating_add(1);
                let _ = self.release(request, next, reference, report).await;
                refusal
            }
        }
    }

    /// Nchf_ConvergedCharging_Update (TS 32.290 §5.3.2.3).
    async fn update(&self, request: &ChargingRequest, reference: &str, report: Report<'_>) -> ChargingAnswer {
        let path = path_of(reference, "update");
        match self.post(UPDATE, &path, request, request.sequence, &report).await {
            // Nothing was asked for.
            Ok(_) if report.requested == 0 => ChargingAnswer::Granted(Box::default()),
            Ok(reply) => self
                .read(UPDATE, &reply.body, report.rating_group)
                .unwrap_or_else(|| ChargingAnswer::Granted(Box::default())),
            Err(answer) => answer,
        }
    }

    /// Nchf_ConvergedCharging_Release (TS 32.290 §5.3.2.4).
    async fn release(
        &self,
        request: &ChargingRequest,
        sequence: u32,
        reference: &str,
        report: Report<'_>,
    ) -> ChargingAnswer {
        match self.post(RELEASE, &path_of(reference, "release"), request, sequence, &report).await {
            // A resource that is not there needs no second release.
            Ok(_) | Err(ChargingAnswer::Failed(ServiceFault::Status(404))) => {
                ChargingAnswer::Granted(Box::default())
            }
            Err(answer) => answer,
        }
    }

    /// Sends a request. A refusal is the answer already.
    async fn post(
        &self,
        operation: &'static str,
        path: &str,
        request: &ChargingRequest,
        sequence: u32,
        report: &Report<'_>,
    ) -> Result<Reply, ChargingAnswer> {
        let mut data = self.data(request, sequence, report);
        let mut reply = self.peer.send(operation, RequestMethod::Post, path, Some(to_vec(&data))).await;
        // A request whose answer is lost may have been counted: the CHF knows the second one by its number (TS 32.290 §5.5).
        if matches!(reply, Err(ServiceFault::TimedOut | ServiceFault::NotConnected)) {
            data.retransmission_indicator = Some(true);
            reply = self.peer.send(operation, RequestMethod::Post, path, Some(to_vec(&data))).await;
        }
        let reply = reply.map_err(ChargingAnswer::Failed)?;
        if reply.is_success() {
            return Ok(reply);
        }
        match reply.cause().filter(|_| (400..500).contains(&reply.status)).and_then(denial_of) {
            Some(denial) => Err(ChargingAnswer::Denied(denial)),
            None => {
                self.peer.refused(operation, &reply);
                Err(ChargingAnswer::Failed(ServiceFault::Status(reply.status)))
            }
        }
    }

    /// Reads ChargingDataResponse; `None` if it says nothing about the rating group.
    fn read(
        &self,
        operation: &'static str,
        octets: &[u8],
        rating_group: RatingGroup,
    ) -> Option<ChargingAnswer> {
        let response: ChargingDataResponse = match from_slice(octets) {
            Ok(response) => response,
            Err(e) => return Some(self.unusable(operation, &e.to_string())),
        };
        if let Some(problem) = response.invocation_result.as_ref().and_then(|result| result.error.as_ref()) {
            let cause = problem.cause.as_ref().map(|cause| cause.as_str());
            if let Some(denial) = cause.and_then(denial_of) {
                return Some(ChargingAnswer::Denied(denial));
            }
            return Some(self.unusable(operation, "it reports that charging has failed"));
        }
        let note = |text: &str| self.peer.note(operation, text);
        Some(match read_grant(&response, rating_group, note)? {
            GrantReading::Unlimited => ChargingAnswer::Granted(Box::default()),
            GrantReading::Quota(quota) => ChargingAnswer::Granted(Box::new(ChargingGrant {
                quota: Some(quota),
                ..ChargingGrant::default()
            })),
            GrantReading::Denied(denial) => ChargingAnswer::Denied(denial),
            GrantReading::Unusable(why) => self.unusable(operation, why),
        })
    }

    fn unusable(&self, operation: &'static str, why: &str) -> ChargingAnswer {
        self.peer.invalid(operation, why);
        ChargingAnswer::Failed(ServiceFault::InvalidAnswer)
    }

    /// ChargingDataRequest (TS 32.291 §6.1.6.2.1.1).
    fn data(&self, request: &ChargingRequest, sequence: u32, report: &Report<'_>) -> ChargingDataRequest {
        let supi = supi_text(request.supi);
        let uri = format!("{}{}/{supi}/{}", self.consumer.root, callbacks::CHF_PATH, request.psi.value());
        let (nf_ipv4_address, nf_ipv6_address) = match self.address {
            IpAddr::V4(address) => (Some(address), None),
            IpAddr::V6(address) => (None, Some(address)),
        };
        ChargingDataRequest {
            subscriber_identifier: Some(request.supi.into()),
            charging_id: Some(request.charging_id),
            nf_consumer_identification: NfIdentification {
                nf_name: ShortText::new(self.consumer.smf.as_str()).ok(),
                nf_ipv4_address,
                nf_ipv6_address,
                nf_plmn_id: Some(self.consumer.plmn.into()),
                node_functionality: NodeFunctionality::Smf,
                nf_fqdn: None,
            },
            invocation_time_stamp: now(),
            invocation_sequence_number: sequence,
            retransmission_indicator: report.is_repeated.then_some(true),
            one_time_event: None,
            notify_uri: body::Uri::new(&uri).ok(),
            supported_features: None,
            service_specification_info: None,
            multiple_unit_usage: Some(BoundedList::one(usage(report))),
            triggers: report.is_final.then(|| BoundedList::one(trigger(TriggerType::Final))),
            pdu_session_charging_information: Some(self.session_information(request, report.session)),
        }
    }

    /// PDUSessionChargingInformation (TS 32.291 §6.1.6.2.2.1). Without a session: of one that the CHF knows.
    fn session_information(
        &self,
        request: &ChargingRequest,
        charged: Option<&ChargedSession>,
    ) -> PduSessionChargingInformation {
        let of_amf = |plmn: whimbrel_ids::PlmnId| nchf::ServingNetworkFunctionId {
            serving_network_function_information: NfIdentification {
                nf_name: ShortText::new(self.consumer.amf.as_str()).ok(),
                nf_ipv4_address: None,
                nf_ipv6_address: None,
                nf_plmn_id: Some(plmn.into()),
                node_functionality: NodeFunctionality::Amf,
                nf_fqdn: None,
            },
            amf_id: Some(body::AmfId(self.consumer.guami.amf_id.octets())),
        };
        let information = charged.map(|charged| nchf::PduSessionInformation {
            network_slicing_info: Some(nchf::NetworkSlicingInfo { s_nssai: charged.s_nssai.into() }),
            pdu_session_id: request.psi.into(),
            pdu_type: Some(match charged.session_type {
                PduSessionType::Ipv4 => body::PduSessionType::Ipv4,
                PduSessionType::Ipv6 => body::PduSessionType::Ipv6,
                PduSessionType::Ipv4v6 => body::PduSessionType::Ipv4v6,
                PduSessionType::Unstructured => body::PduSessionType::Unstructured,
                PduSessionType::Ethernet => body::PduSessionType::Ethernet,
            }),
            ssc_mode: Some(match charged.ssc_mode {
                SscMode::One => body::SscMode::SscMode1,
                SscMode::Two => body::SscMode::SscMode2,
                SscMode::Three => body::SscMode::SscMode3,
            }),
            h_plmn_id: None,
            serving_network_function_id: Some(of_amf(self.consumer.plmn)),
            rat_type: Some(body::RatType::Nr),
            dnn_id: (&charged.dnn).into(),
            dnn_selection_mode: None,
            charging_characteristics: None,
            charging_characteristics_selection_mode: None,
            start_time: Some(date_time(charged.began)),
            stop_time: None,
            session_stop_indicator: None,
            pdu_address: address_of(charged),
            diagnostics: None,
            authorized_qos_information: None,
            subscribed_qos_information: None,
            authorized_session_ambr: Some(body::SbiAmbr {
                uplink: body::SbiBitRate(charged.ambr.ul_kbps.saturating_mul(1000)),
                downlink: body::SbiBitRate(charged.ambr.dl_kbps.saturating_mul(1000)),
            }),
            subscribed_session_ambr: None,
            serving_cn_plmn_id: Some(self.consumer.plmn.into()),
        });
        PduSessionChargingInformation {
            charging_id: Some(request.charging_id),
            pdu_session_information: information,
            ..PduSessionChargingInformation::default()
        }
    }

    /// Octets that a request for a quota asks for. A group of which the configuration says nothing leaves the amount to the CHF.
    fn requested_octets(&self, rating_group: RatingGroup) -> u64 {
        self.requested.get(&rating_group).copied().unwrap_or(u64::MAX)
    }

    fn last_requests(&self) -> std::sync::MutexGuard<'_, BTreeMap<ChargedSessionId, LastRequest>> {
        self.last_requests.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// MultipleUnitUsage (TS 32.291 §6.1.6.2.1.5).
fn usage(report: &Report<'_>) -> MultipleUnitUsage {
    // Deviation: zero octets are asked for with a last report, where nothing could be asked for; free5GC refuses reports without a request.
    let total_volume = (report.requested != u64::MAX).then_some(report.requested);
    let requested_unit = RequestedUnit { total_volume, ..RequestedUnit::default() };
    let container = report.used.as_ref().map(|(used, event)| UsedUnitContainer {
        service_id: None,
        quota_management_indicator: Some(match report.is_offline {
            true => QuotaManagementIndicator::OfflineCharging,
            false => QuotaManagementIndicator::OnlineCharging,
        }),
        triggers: Some(BoundedList::one(trigger(event.clone()))),
        trigger_timestamp: Some(now()),
        time: Some(used.time_s),
        total_volume: Some(used.uplink.saturating_add(used.downlink)),
        uplink_volume: Some(used.uplink),
        downlink_volume: Some(used.downlink),
        service_specific_units: None,
        event_time_stamps: None,
        local_sequence_number: used.number,
        pdu_container_information: None,
    });
    MultipleUnitUsage {
        rating_group: report.rating_group.0,
        requested_unit: (!report.is_offline).then_some(requested_unit),
        used_unit_container: container.map(BoundedList::one),
        upf_id: None,
    }
}

pub(super) fn trigger(trigger_type: TriggerType) -> nchf::ChargingTrigger {
    nchf::ChargingTrigger {
        trigger_type: Some(trigger_type),
        trigger_category: Some(TriggerCategory::ImmediateReport),
        time_limit: None,
        volume_limit: None,
        volume_limit64: None,
        event_limit: None,
        max_number_ofccc: None,
        tariff_time_change: None,
    }
}

fn trigger_type(event: ChargingTrigger) -> TriggerType {
    match event {
        ChargingTrigger::QuotaThreshold => TriggerType::QuotaThreshold,
        ChargingTrigger::QuotaExhausted => TriggerType::QuotaExhausted,
        ChargingTrigger::ValidityTime => TriggerType::ValidityTime,
        ChargingTrigger::QuotaHoldingTime => TriggerType::Qht,
        ChargingTrigger::ForcedReauthorisation => TriggerType::ForcedReauthorisation,
        ChargingTrigger::Final => TriggerType::Final,
    }
}

/// PDUAddress (TS 32.291 §6.1.6.2.2.5).
fn address_of(charged: &ChargedSession) -> Option<nchf::PduAddress> {
    let (ipv4, ipv6) = (charged.address.ipv4, charged.address.ipv6);
    let prefix = ipv6.and_then(|prefix| nchf::Ipv6AddressWithPrefix::new(&format!("{prefix}/64")).ok());
    (ipv4.is_some() || prefix.is_some()).then(|| nchf::PduAddress {
        pdu_ipv4_address: ipv4,
        pdu_ipv6_address_with_prefix: prefix,
        ..nchf::PduAddress::default()
    })
}

fn path_of(reference: &str, operation: &str) -> String {
    format!("{COLLECTION}/{reference}/{operation}")
}

/// The meaning of a refusal's cause (TS 32.291 §6.1.7.3); `None` if it is not about the subscriber.
fn denial_of(cause: &str) -> Option<ChargingDenial> {
    match cause {
        "QUOTA_LIMIT_REACHED" => Some(ChargingDenial::QuotaLimitReached),
        "USER_UNKNOWN" => Some(ChargingDenial::UserUnknown),
        "END_USER_REQUEST_DENIED"
        | "END_USER_REQUEST_REJECTED"
        | "END_USER_SERVICE_DENIED"
        | "END_USER_SERVICE_REJECTED" => Some(ChargingDenial::ServiceDenied),
        "RATING_FAILED" => Some(ChargingDenial::RatingFailed),
        _ => None,
    }
}

fn now() -> DateTime {
    date_time(clock::now())
}

fn date_time(at: Instant) -> DateTime {
    DateTime::from_unix_ms(i64::try_from(at.0 / 1000).unwrap_or(i64::MAX))
}
