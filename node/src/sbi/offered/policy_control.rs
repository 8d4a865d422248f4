//! Npcf_SMPolicyControl and Npcf_AMPolicyControl (TS 29.512 §4.2, TS 29.507 §4.2): sessions of other vendors' SMFs get the flows that the
//! configuration gives their data network and the store gives their subscriber. Associations are not on the disk: after a restart, an SMF
//! makes another one at its next event.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::header::{HeaderValue, LOCATION};
use hyper::{StatusCode, Uri};
use whimbrel_control::config::DataNetwork;
use whimbrel_control::policy::{FlowGate, FlowPolicy, Gbr, Setup, describe, merged};
use whimbrel_control::udm::{SubscribedDnn, Subscription};
use whimbrel_ids::{Dnn, SNssai, Supi};
use whimbrel_sbi::problem::{of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse};
use whimbrel_sbi_types::common::{self as body, ShortText, SupportedFeatures};
use whimbrel_sbi_types::npcf_am::{PolicyAssociation, PolicyAssociationRequest};
use whimbrel_sbi_types::npcf_sm::{
    AuthorizedDefaultQos, FlowDescription, FlowDirection, FlowInformation, FlowStatus, PccRule,
    PolicyControlRequestTrigger, QosData, SessionRule, SmPolicyContextData, SmPolicyControl,
    SmPolicyDecision, SmPolicyDeleteData, SmPolicyNotification, SmPolicyUpdateContextData,
    TrafficControlData,
};
use whimbrel_sbi_types::{BoundedList, BoundedMap, to_vec};

use super::super::identity::{supi_of, supi_text};
use super::super::subscription::{arp_body, rates};
use super::{OfferedServices, Served, no_such_resource, random_name};

/// Associations of both kinds: as many as an AMF may have UEs.
const ASSOCIATIONS_MAX: usize = 1 << 20;

/// The session rule's identity.
const SESSION_RULE: &str = "session";

/// A subscriber's session: a second association for it takes the place of the first, whose answer the SMF has lost.
type SessionId = (Supi, u8);

/// The policies of this core's data networks, and the associations of other functions.
#[derive(Default)]
pub(super) struct PolicyAssociations {
    data_networks: BTreeMap<Dnn, DataNetwork>,
    sessions: Mutex<BTreeMap<SessionId, SessionAssociation>>,
    ues: Mutex<BTreeMap<String, Supi>>,
}

/// An association of one session.
struct SessionAssociation {
    context: SmPolicyContextData,
    /// The root of the SMF's notifications.
    callback: Uri,
    /// The decision that the SMF has.
    decision: SmPolicyDecision,
}

impl PolicyAssociations {
    pub(super) fn new(data_networks: BTreeMap<Dnn, DataNetwork>) -> Self {
        Self { data_networks, ..Self::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionId, SessionAssociation>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ues(&self) -> MutexGuard<'_, BTreeMap<String, Supi>> {
        self.ues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfferedServices {
    /// Npcf_SMPolicyControl (TS 29.512 §5.3).
    pub(super) fn session_policies(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        match (request.method.as_str(), path) {
            ("POST", ["sm-policies"]) => self.create_session_policy(request),
            ("GET", ["sm-policies", id]) => {
                let sessions = self.policies.sessions();
                let association =
                    session_of(id).and_then(|id| sessions.get(&id)).ok_or_else(no_such_association)?;
                let (context, policy) = (association.context.clone(), association.decision.clone());
                Ok(SbiResponse::json(StatusCode::OK, &SmPolicyControl { context, policy }))
            }
            ("POST", ["sm-policies", id, "update"]) => {
                let _: SmPolicyUpdateContextData = request.read()?;
                let id = session_of(id).ok_or_else(no_such_association)?;
                let context =
                    self.policies.sessions().get(&id).map(|association| association.context.clone());
                let decision = self.decide(id.0, &context.ok_or_else(no_such_association)?)?;
                if let Some(association) = self.policies.sessions().get_mut(&id) {
                    association.decision = decision.clone();
                }
                Ok(SbiResponse::json(StatusCode::OK, &decision))
            }
            ("POST", ["sm-policies", id, "delete"]) => {
                if !request.body.is_empty() {
                    let _: SmPolicyDeleteData = request.read()?;
                }
                let removed = session_of(id).and_then(|id| self.policies.sessions().remove(&id));
                removed.map(|_| SbiResponse::no_content()).ok_or_else(no_such_association)
            }
            _ => Err(no_such_resource()),
        }
    }

    /// Npcf_SMPolicyControl_Create (TS 29.512 §4.2.2).
    fn create_session_policy(&self, request: &ReceivedRequest) -> Served {
        let context: SmPolicyContextData = request.read()?;
        let supi = supi_of(&context.supi.to_string()).ok_or_else(unknown_user)?;
        let callback = self.callback(request, context.notification_uri.as_str())?;
        let decision = self.decide(supi, &context)?;
        // None of the optional features (TS 29.512 §5.8).
        let supp_feat = context.supp_feat.as_ref().and_then(|_| SupportedFeatures::new("0").ok());
        let created = SmPolicyDecision { supp_feat, ..decision.clone() };
        let response = SbiResponse::json(StatusCode::CREATED, &created);
        let session = (supi, context.pdu_session_id.value());
        let mut sessions = self.policies.sessions();
        if sessions.len() >= ASSOCIATIONS_MAX && !sessions.contains_key(&session) {
            return Err(problem(ProtocolCause::InsufficientResources, "there are too many associations"));
        }
        let location = self.session_uri(session);
        sessions.insert(session, SessionAssociation { context, callback, decision });
        Ok(with_location(response, &location))
    }

    fn session_uri(&self, (supi, psi): SessionId) -> String {
        format!("{}/npcf-smpolicycontrol/v1/sm-policies/{}-{psi}", self.root, supi_text(supi))
    }

    /// The policies of a session.
    fn decide(&self, supi: Supi, context: &SmPolicyContextData) -> Result<SmPolicyDecision, SbiResponse> {
        let subscription = self.policy_subscription(supi)?;
        let dnn: Option<Dnn> = context.dnn.as_str().parse().ok();
        let s_nssai = SNssai::from(context.slice_info);
        let slice = subscription.slice(s_nssai);
        let subscribed = slice.and_then(|slice| slice.dnns.iter().find(|d| Some(&d.dnn) == dnn.as_ref()));
        let subscribed = subscribed.ok_or_else(|| {
            of_status(
                403,
                Some("POLICY_CONTEXT_DENIED"),
                "the subscriber has no such data network in this slice",
            )
        })?;
        let network = dnn.as_ref().and_then(|dnn| self.policies.data_networks.get(dnn));
        Ok(decision(network.map_or(&[], |network| &network.flows), subscribed))
    }

    fn policy_subscription(&self, supi: Supi) -> Result<Subscription, SbiResponse> {
        // TS 29.512 §5.7.3 has other words for it than the UDM.
        self.subscription(supi).map_err(|refusal| match refusal.status {
            StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => unknown_user(),
            _ => refusal,
        })
    }

    /// Subscribers have changed: SMFs get the policies that differ (Npcf_SMPolicyControl_UpdateNotify, TS 29.512 §4.2.3.2). A session whose
    /// subscriber or data network is gone keeps its policies until the SMF ends it.
    pub(super) fn policies_changed(&self, subscribers: Option<&[Supi]>) {
        let affected: Vec<(SessionId, SmPolicyContextData)> = self
            .policies
            .sessions()
            .iter()
            .filter(|((supi, _), _)| subscribers.is_none_or(|all| all.contains(supi)))
            .map(|(id, s)| (*id, s.context.clone()))
            .collect();
        for (id, context) in affected {
            let Ok(decision) = self.decide(id.0, &context) else { continue };
            let mut sessions = self.policies.sessions();
            let Some(association) = sessions.get_mut(&id) else { continue };
            if association.decision == decision {
                continue;
            }
            let change = change(&association.decision, decision.clone());
            association.decision = decision;
            let callback = format!("{}/update", association.callback).parse::<Uri>();
            drop(sessions);
            let resource = self.session_uri(id);
            let notification = SmPolicyNotification {
                resource_uri: body::Uri::new(&resource).ok(),
                sm_policy_decision: Some(change),
            };
            if let Ok(callback) = callback {
                self.notify(("PCF", "Npcf_SMPolicyControl_UpdateNotify"), 1, callback, to_vec(&notification));
            }
        }
    }

    /// Npcf_AMPolicyControl (TS 29.507 §5.3): the UE has what its subscription says.
    pub(super) fn ue_policies(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        match (request.method.as_str(), path) {
            ("POST", ["policies"]) => {
                let data: PolicyAssociationRequest = request.read()?;
                let supi = supi_of(&data.supi.to_string()).ok_or_else(unknown_user)?;
                self.callback(request, data.notification_uri.as_str())?;
                self.policy_subscription(supi)?;
                let mut ues = self.policies.ues();
                if ues.len() >= ASSOCIATIONS_MAX {
                    return Err(problem(
                        ProtocolCause::InsufficientResources,
                        "there are too many associations",
                    ));
                }
                let id = random_name();
                let location = format!("{}/npcf-am-policy-control/v1/policies/{id}", self.root);
                ues.insert(id, supi);
                let association = PolicyAssociation {
                    request: Some(data),
                    triggers: None,
                    serv_area_res: None,
                    rfsp: None,
                    target_rfsp: None,
                    smf_sel_info: None,
                    ue_ambr: None,
                    ue_slice_mbrs: None,
                    pras: None,
                    supp_feat: SupportedFeatures::new("0").map_err(|_| no_such_resource())?,
                };
                Ok(with_location(SbiResponse::json(StatusCode::CREATED, &association), &location))
            }
            ("DELETE", ["policies", id]) => {
                let removed = self.policies.ues().remove(*id);
                removed.map(|_| SbiResponse::no_content()).ok_or_else(no_such_association)
            }
            _ => Err(no_such_resource()),
        }
    }
}

/// Reads the identity of a session's association.
fn session_of(id: &str) -> Option<SessionId> {
    let (supi, psi) = id.rsplit_once('-')?;
    Some((supi_of(supi)?, psi.parse().ok()?))
}

fn with_location(response: SbiResponse, location: &str) -> SbiResponse {
    match HeaderValue::from_str(location) {
        Ok(value) => response.header(LOCATION, value),
        Err(_) => response, // an identity of this core is a header value always
    }
}

fn unknown_user() -> SbiResponse {
    of_status(400, Some("USER_UNKNOWN"), "there is no such subscriber")
}

fn no_such_association() -> SbiResponse {
    of_status(404, Some("POLICY_ASSOCIATION_NOT_FOUND"), "there is no such policy association")
}

/// The whole decision for a session (SmPolicyDecision, TS 29.512 §5.6.2.4). Flows that UEs or the operator ask for are not in it.
fn decision(network: &[FlowPolicy], subscribed: &SubscribedDnn) -> SmPolicyDecision {
    let session_rule = SessionRule {
        auth_sess_ambr: Some(rates(subscribed.session_ambr)),
        auth_def_qos: Some(AuthorizedDefaultQos {
            five_qi: body::FiveQi::new(subscribed.five_qi.0),
            arp: arp_body(subscribed.arp),
            priority_level: None,
            aver_window: None,
            max_data_burst_vol: None,
            maxbr_ul: None,
            maxbr_dl: None,
            gbr_ul: None,
            gbr_dl: None,
            ext_max_data_burst_vol: None,
        }),
        sess_rule_id: short(SESSION_RULE),
        ref_um_data: None,
        ref_um_n3g_data: None,
        ref_cond_data: None,
    };
    let flows: Vec<&FlowPolicy> =
        merged(network, &subscribed.flows).filter(|flow| flow.setup == Setup::Always).collect();
    let of = |flow: &FlowPolicy| short(flow.name.as_str());
    let rules = flows.iter().map(|flow| (of(flow), Some(rule(flow)))).collect();
    let qos = flows.iter().map(|flow| (of(flow), Some(qos(flow)))).collect();
    let gates = flows.iter().map(|flow| (of(flow), Some(gate(flow)))).collect();
    SmPolicyDecision {
        sess_rules: BoundedMap::new([(short(SESSION_RULE), Some(session_rule))].into()),
        pcc_rules: unless_empty(rules),
        qos_decs: unless_empty(qos),
        traff_cont_decs: unless_empty(gates),
        policy_ctrl_req_triggers: BoundedList::new(vec![
            PolicyControlRequestTrigger::SeAmbrCh,
            PolicyControlRequestTrigger::DefQosCh,
        ]),
        ..SmPolicyDecision::default()
    }
}

/// The new decision, with null for each entry of the former one that it does not have.
fn change(former: &SmPolicyDecision, new: SmPolicyDecision) -> SmPolicyDecision {
    fn with_removals<V: Clone>(
        former: &Option<BoundedMap<ShortText, Option<V>>>,
        new: Option<BoundedMap<ShortText, Option<V>>>,
    ) -> Option<BoundedMap<ShortText, Option<V>>> {
        let mut all = new.map(BoundedMap::into_map).unwrap_or_default();
        for id in former.iter().flat_map(|former| former.keys()) {
            all.entry(id.clone()).or_insert(None);
        }
        unless_empty(all)
    }
    SmPolicyDecision {
        pcc_rules: with_removals(&former.pcc_rules, new.pcc_rules),
        qos_decs: with_removals(&former.qos_decs, new.qos_decs),
        traff_cont_decs: with_removals(&former.traff_cont_decs, new.traff_cont_decs),
        ..new
    }
}

fn rule(flow: &FlowPolicy) -> PccRule {
    let flows = flow.filters.iter().map(|filter| {
        let text = describe(filter);
        let (direction, description) = match text.split_once(' ') {
            Some(("uplink", rest)) => (FlowDirection::Uplink, rest),
            Some(("downlink", rest)) => (FlowDirection::Downlink, rest),
            _ => (FlowDirection::Bidirectional, text.as_str()),
        };
        FlowInformation {
            flow_description: FlowDescription::new(description).ok(),
            pack_filt_id: None,
            packet_filter_usage: Some(true),
            tos_traffic_class: None,
            spi: None,
            flow_label: None,
            flow_direction: Some(direction),
        }
    });
    let id = short(flow.name.as_str());
    PccRule {
        flow_infos: BoundedList::new(flows.collect()),
        app_id: None,
        cont_ver: None,
        pcc_rule_id: id.clone(),
        precedence: Some(flow.precedence.into()),
        app_reloc: None,
        ref_qos_data: Some(BoundedList::one(id.clone())),
        ref_alt_qos_params: None,
        ref_tc_data: Some(BoundedList::one(id)),
        ref_chg_data: None,
        ref_chg_n3g_data: None,
        ref_um_data: None,
        ref_um_n3g_data: None,
        ref_cond_data: None,
        ref_qos_mon: None,
    }
}

fn qos(flow: &FlowPolicy) -> QosData {
    let bits = |kbps: u64| Some(body::SbiBitRate(kbps.saturating_mul(1000)));
    let of = |rate: fn(&Gbr) -> u64| flow.gbr.as_ref().and_then(|gbr| bits(rate(gbr)));
    QosData {
        qos_id: short(flow.name.as_str()),
        five_qi: body::FiveQi::new(flow.five_qi.0),
        maxbr_ul: of(|gbr| gbr.maximum.ul_kbps),
        maxbr_dl: of(|gbr| gbr.maximum.dl_kbps),
        gbr_ul: of(|gbr| gbr.guaranteed.ul_kbps),
        gbr_dl: of(|gbr| gbr.guaranteed.dl_kbps),
        arp: arp_body(flow.arp),
        qnc: None,
        priority_level: None,
        aver_window: None,
        max_data_burst_vol: None,
        reflective_qos: None,
        sharing_key_dl: None,
        sharing_key_ul: None,
        max_packet_loss_rate_dl: None,
        max_packet_loss_rate_ul: None,
        def_qos_flow_indication: None,
        ext_max_data_burst_vol: None,
        packet_delay_budget: None,
        packet_error_rate: None,
    }
}

fn gate(flow: &FlowPolicy) -> TrafficControlData {
    let FlowGate { uplink, downlink } = flow.gate;
    TrafficControlData {
        tc_id: short(flow.name.as_str()),
        flow_status: Some(match (uplink, downlink) {
            (true, true) => FlowStatus::Enabled,
            (true, false) => FlowStatus::EnabledUplink,
            (false, true) => FlowStatus::EnabledDownlink,
            (false, false) => FlowStatus::Disabled,
        }),
        redirect_info: None,
        mute_notif: None,
        traffic_steering_pol_id_dl: None,
        traffic_steering_pol_id_ul: None,
        route_to_locs: None,
    }
}

/// A map without entries is left out (TS 29.512 §A.2).
fn unless_empty<V>(entries: BTreeMap<ShortText, V>) -> Option<BoundedMap<ShortText, V>> {
    BoundedMap::new(entries).filter(|entries| !entries.is_empty())
}

/// A flow's name is short enough always.
fn short(text: &str) -> ShortText {
    ShortText::new(text).unwrap_or_else(|_| unreachable!("a name of at most 16 letters"))
}
