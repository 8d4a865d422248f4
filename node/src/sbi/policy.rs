//! Another vendor's policy control function: what the SMF asks becomes operations of Npcf_SMPolicyControl (TS 29.512 §4.2, §5).

mod access;
mod decision;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use whimbrel_control::sm_policy::{
    PolicyAnswer, PolicyAssociation, PolicyDecision, PolicyDenial, PolicyOperation, PolicyReport,
    PolicyRequest, PolicySession, PolicyTriggers,
};
use whimbrel_control::udm::ServiceFault;
use whimbrel_ids::{PduSessionId, Seid, Supi};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_sbi_types::common::{self as body, ShortText};
use whimbrel_sbi_types::npcf_sm::{
    PolicyControlRequestTrigger, QosNotifType, QosNotificationControlInfo, RuleReport, RuleStatus,
    SmPolicyContextData, SmPolicyDecision, SmPolicyDeleteData, SmPolicyUpdateContextData,
};
use whimbrel_sbi_types::{BoundedList, from_slice, to_vec};

use self::access::AmPolicies;
pub(super) use self::decision::read_decision;
use super::callbacks;
use super::identity::supi_text;
use super::peer::{Peer, Reply, RequestMethod};
use super::subscription::{default_qos, rates};
use super::udm::Consumer;

/// The collection of policy associations.
const COLLECTION: &str = "/npcf-smpolicycontrol/v1/sm-policies";

/// Associations that are remembered, as many as UEs. Past this all are forgotten: then an association that was made twice stays at the PCF.
const ASSOCIATIONS_MAX: usize = 1 << 20;

/// Deviation: DN-Authorization (feature 27, TS 29.512 §5.8), although authorization profiles of a DN-AAA are not used: without it, Open5GS's PCF
/// gives no session AMBR.
const SUPPORTED_FEATURES: &str = "4000000";

const CREATE: &str = "Npcf_SMPolicyControl_Create";
const UPDATE: &str = "Npcf_SMPolicyControl_Update";
const DELETE: &str = "Npcf_SMPolicyControl_Delete";

/// A session with an association. The SEID is unique in a UE.
type PolicySessionId = (Supi, PduSessionId, Seid);

/// Another vendor's PCF.
pub(super) struct PolicyControl {
    peer: Arc<Peer>,
    consumer: Consumer,
    ues: AmPolicies,
    /// The associations that were made here.
    created: Mutex<BTreeMap<PolicySessionId, Box<str>>>,
}

impl PolicyControl {
    pub(super) fn new(peer: Peer, consumer: Consumer) -> Self {
        let peer = Arc::new(peer);
        let ues = AmPolicies::new(peer.clone(), consumer.clone());
        Self { peer, consumer, ues, created: Mutex::default() }
    }

    /// A UE has registered.
    pub(super) async fn registered(&self, supi: Supi) {
        self.ues.associate(supi).await;
    }

    /// A UE is deregistered.
    pub(super) async fn deregistered(&self, supi: Supi) {
        self.ues.end(supi).await;
    }

    /// Executes one request. The caller executes those of one session one after the other.
    pub(super) async fn answer(&self, request: &PolicyRequest) -> PolicyAnswer {
        let session = (request.supi, request.psi, request.session);
        match &request.operation {
            PolicyOperation::Create(context) => {
                self.ues.associate(request.supi).await;
                let answer = self.create(request, context).await;
                if let PolicyAnswer::Decided(association) = &answer {
                    let former = self.remember(session, association.reference.clone());
                    // The answer to the first of two requests was lost. Both peers known here name the same association twice.
                    if let Some(former) = former.filter(|former| *former != association.reference) {
                        self.delete(&former).await;
                    }
                }
                answer
            }
            PolicyOperation::Update { reference, report } => self.update(reference, report).await,
            PolicyOperation::Delete { reference } => {
                let created = self.created().remove(&session);
                let reference = created.as_ref().filter(|_| reference.is_empty()).unwrap_or(reference);
                if !reference.is_empty() {
                    self.delete(reference).await;
                }
                PolicyAnswer::Decided(Box::default())
            }
        }
    }

    fn remember(&self, session: PolicySessionId, reference: Box<str>) -> Option<Box<str>> {
        let mut created = self.created();
        if created.len() >= ASSOCIATIONS_MAX {
            created.clear();
        }
        created.insert(session, reference)
    }

    /// Npcf_SMPolicyControl_Create (TS 29.512 §4.2.2).
    async fn create(&self, request: &PolicyRequest, context: &PolicySession) -> PolicyAnswer {
        let octets = to_vec(&self.context_data(request, context));
        let reply = match self.peer.send(CREATE, RequestMethod::Post, COLLECTION, Some(octets)).await {
            Ok(reply) => reply,
            Err(fault) => return PolicyAnswer::Failed(fault),
        };
        // free5GC's PCF answers some refusals with status 200: only a created association has a Location.
        if !reply.is_success() {
            return self.refused(CREATE, &reply);
        }
        let Some(reference) = reply.created_in(COLLECTION) else {
            return self.unusable(CREATE, "its Location names no association");
        };
        match self.read(CREATE, &reply.body) {
            Ok(decision) => {
                PolicyAnswer::Decided(PolicyAssociation { reference: reference.into(), decision }.into())
            }
            Err(failure) => {
                self.delete(reference).await;
                failure
            }
        }
    }

    /// Npcf_SMPolicyControl_Update (TS 29.512 §4.2.4).
    async fn update(&self, reference: &str, report: &PolicyReport) -> PolicyAnswer {
        let path = format!("{COLLECTION}/{reference}/update");
        let octets = to_vec(&update_data(report));
        let reply = match self.peer.send(UPDATE, RequestMethod::Post, &path, Some(octets)).await {
            Ok(reply) => reply,
            Err(fault) => return PolicyAnswer::Failed(fault),
        };
        if reply.is_success() {
            return match self.read(UPDATE, &reply.body) {
                Ok(decision) => {
                    PolicyAnswer::Decided(PolicyAssociation { reference: reference.into(), decision }.into())
                }
                Err(failure) => failure,
            };
        }
        // Deviation: Open5GS's PCF knows no user where it knows no association.
        if reply.status == 404 || reply.cause() == Some("USER_UNKNOWN") {
            return PolicyAnswer::Failed(ServiceFault::Status(404));
        }
        self.refused(UPDATE, &reply)
    }

    /// Npcf_SMPolicyControl_Delete (TS 29.512 §4.2.5), again if the answer is lost. An association that is not there needs no deletion.
    async fn delete(&self, reference: &str) {
        let path = format!("{COLLECTION}/{reference}/delete");
        for _ in 0..2 {
            let octets = to_vec(&SmPolicyDeleteData::default());
            let sent = self.peer.send(DELETE, RequestMethod::Post, &path, Some(octets)).await;
            if !matches!(sent, Err(ServiceFault::TimedOut | ServiceFault::NotConnected)) {
                return;
            }
        }
    }

    fn refused(&self, operation: &'static str, reply: &Reply) -> PolicyAnswer {
        match reply.cause().filter(|_| (400..500).contains(&reply.status)).and_then(denial_of) {
            Some(denial) => PolicyAnswer::Denied(denial),
            None => {
                self.peer.refused(operation, reply);
                PolicyAnswer::Failed(ServiceFault::Status(reply.status))
            }
        }
    }

    fn read(&self, operation: &'static str, octets: &[u8]) -> Result<PolicyDecision, PolicyAnswer> {
        if octets.is_empty() {
            return Ok(PolicyDecision::default());
        }
        let decision: SmPolicyDecision =
            from_slice(octets).map_err(|e| self.unusable(operation, &e.to_string()))?;
        let note = |text: &str| self.peer.note(operation, text);
        read_decision(&decision, note).map_err(|why| self.unusable(operation, why))
    }

    fn unusable(&self, operation: &'static str, why: &str) -> PolicyAnswer {
        self.peer.invalid(operation, why);
        PolicyAnswer::Failed(ServiceFault::InvalidAnswer)
    }

    /// SmPolicyContextData (TS 29.512 §5.6.2.3).
    fn context_data(&self, request: &PolicyRequest, session: &PolicySession) -> SmPolicyContextData {
        let supi = supi_text(request.supi);
        let uri = format!("{}{}/{supi}/{}", self.consumer.root, callbacks::PCF_PATH, request.psi.value());
        let prefix = session.address.ipv6.map(|prefix| format!("{prefix}/64"));
        SmPolicyContextData {
            acc_net_ch_id: None,
            gpsi: None,
            supi: request.supi.into(),
            inter_grp_ids: None,
            pdu_session_id: request.psi.into(),
            pdu_session_type: match session.session_type {
                PduSessionType::Ipv4 => body::PduSessionType::Ipv4,
                PduSessionType::Ipv6 => body::PduSessionType::Ipv6,
                PduSessionType::Ipv4v6 => body::PduSessionType::Ipv4v6,
                PduSessionType::Unstructured => body::PduSessionType::Unstructured,
                PduSessionType::Ethernet => body::PduSessionType::Ethernet,
            },
            charging_characteristics: None,
            dnn: (&session.dnn).into(),
            dnn_sel_mode: None,
            notification_uri: body::Uri::new(&uri).unwrap_or_else(|_| body::Uri::new("/").expect("a URI")),
            access_type: Some(body::AccessType::ThreeGppAccess),
            rat_type: Some(body::RatType::Nr),
            serving_network: Some(self.consumer.plmn.into()),
            user_location_info: None,
            ue_time_zone: None,
            pei: None,
            ipv4_address: session.address.ipv4,
            ipv6_address_prefix: prefix.and_then(|prefix| body::Ipv6Prefix::new(&prefix).ok()),
            ip_domain: None,
            subs_sess_ambr: session.subscribed.ambr.map(rates),
            auth_prof_index: None,
            subs_def_qos: session.subscribed.default_qos.and_then(|(five_qi, arp)| default_qos(five_qi, arp)),
            num_of_pack_filter: None,
            online: None,
            offline: None,
            ps_data_off_status: None,
            ref_qos_indication: None,
            slice_info: session.s_nssai.into(),
            serv_nf_id: None,
            supp_feat: body::SupportedFeatures::new(SUPPORTED_FEATURES).ok(),
            smf_id: Some(self.consumer.smf.clone()),
            recovery_time: None,
            ipv4_frame_route_list: None,
            ipv6_frame_route_list: None,
        }
    }

    fn created(&self) -> std::sync::MutexGuard<'_, BTreeMap<PolicySessionId, Box<str>>> {
        self.created.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// SmPolicyUpdateContextData (TS 29.512 §5.6.2.19).
fn update_data(report: &PolicyReport) -> SmPolicyUpdateContextData {
    let names = [
        (PolicyTriggers::SESSION_AMBR_CHANGE, PolicyControlRequestTrigger::SeAmbrCh),
        (PolicyTriggers::DEFAULT_QOS_CHANGE, PolicyControlRequestTrigger::DefQosCh),
        (PolicyTriggers::QOS_NOTIFICATION, PolicyControlRequestTrigger::QosNotif),
    ];
    let triggers: Vec<_> =
        names.into_iter().filter(|(event, _)| report.triggers.has(*event)).map(|(_, name)| name).collect();
    let failed = report.failed.iter().filter_map(|(rule, why)| {
        Some(RuleReport {
            pcc_rule_ids: BoundedList::one(ShortText::new(rule).ok()?),
            rule_status: RuleStatus::Inactive,
            cont_vers: None,
            failure_code: Some(decision::failure_code(*why)),
            alt_qos_param_id: None,
        })
    });
    let guarantees = report.guarantees.iter().filter_map(|(rule, fulfilled)| {
        Some(QosNotificationControlInfo {
            ref_pcc_rule_ids: BoundedList::one(ShortText::new(rule).ok()?),
            notif_type: if *fulfilled { QosNotifType::Guaranteed } else { QosNotifType::NotGuaranteed },
            cont_ver: None,
            alt_qos_param_id: None,
        })
    });
    SmPolicyUpdateContextData {
        rep_policy_ctrl_req_triggers: Some(triggers)
            .filter(|triggers| !triggers.is_empty())
            .and_then(BoundedList::new),
        rule_reports: Some(failed.collect::<Vec<_>>())
            .filter(|all| !all.is_empty())
            .and_then(BoundedList::new),
        qnc_reports: Some(guarantees.collect::<Vec<_>>())
            .filter(|all| !all.is_empty())
            .and_then(BoundedList::new),
        subs_sess_ambr: report.subscribed.ambr.map(rates),
        subs_def_qos: report.subscribed.default_qos.and_then(|(five_qi, arp)| default_qos(five_qi, arp)),
        ..SmPolicyUpdateContextData::default()
    }
}

/// The meaning of a refusal's cause (TS 29.512 §5.7.3); `None` if it is not about the subscriber.
fn denial_of(cause: &str) -> Option<PolicyDenial> {
    match cause {
        "USER_UNKNOWN" => Some(PolicyDenial::UserUnknown),
        "POLICY_CONTEXT_DENIED" | "VALIDATION_CONDITION_NOT_MET" => Some(PolicyDenial::ContextDenied),
        _ => None,
    }
}
