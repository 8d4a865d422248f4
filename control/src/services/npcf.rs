//! Npcf_SMPolicyControl (TS 29.512): the PCF's service for the SMF. A request is an output of the UE, the answer a later input, and so is
//! what the PCF changes in mid-session.

use std::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, PduSessionId, SNssai, Seid, Supi, Tai};
use whimbrel_nas::ie::{PacketFilter, PduSessionType};

use super::ServiceFault;
use crate::policy::{FlowGate, Gbr};
use crate::state::{Ambr, Arp, UeAddress};

/// A request to the PCF about one PDU session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRequest {
    /// Subscriber of the session.
    pub supi: Supi,
    /// Identity of the session.
    pub psi: PduSessionId,
    /// The CP SEID, which no other session of the UE has or had.
    pub session: Seid,
    /// Operation of the service.
    pub operation: PolicyOperation,
}

/// Operations of Npcf_SMPolicyControl (TS 29.512 §4.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyOperation {
    /// Npcf_SMPolicyControl_Create: an association for the session.
    Create(Box<PolicySession>),
    /// Npcf_SMPolicyControl_Update: an event is reported to the PCF.
    Update {
        /// The association of the session.
        reference: Box<str>,
        /// The events, with what has changed.
        report: Box<PolicyReport>,
    },
    /// Npcf_SMPolicyControl_Delete: the session has ended.
    Delete {
        /// The association. Empty: that which the answer to Create will name, if one comes.
        reference: Box<str>,
    },
}

/// The session of an association (SmPolicyContextData, TS 29.512 §5.6.2.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySession {
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// Its data network.
    pub dnn: Dnn,
    /// Type of the session.
    pub session_type: PduSessionType,
    /// Addresses of the UE.
    pub address: UeAddress,
    /// The subscribed QoS.
    pub subscribed: SessionRule,
    /// Tracking area of the UE.
    pub tai: Option<Tai>,
}

/// QoS of a whole session (SessionRule, TS 29.512 §5.6.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRule {
    /// Aggregate maximum bit rate of the session.
    pub ambr: Option<Ambr>,
    /// 5QI and priority of the default QoS flow.
    pub default_qos: Option<(FiveQi, Arp)>,
}

/// Events that a PCF may want to know of (PolicyControlRequestTrigger, TS 29.512 §5.6.3.6): those that this SMF reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTriggers(pub u8);

impl PolicyTriggers {
    /// SE_AMBR_CH: the subscribed session AMBR has changed.
    pub const SESSION_AMBR_CHANGE: Self = Self(1);
    /// DEF_QOS_CH: the subscribed default QoS has changed.
    pub const DEFAULT_QOS_CHANGE: Self = Self(2);
    /// QOS_NOTIF: the gNB does not fulfil a guarantee any more, or fulfils it again.
    pub const QOS_NOTIFICATION: Self = Self(4);

    /// True if all of these events are in the set.
    pub fn has(self, events: Self) -> bool {
        self.0 & events.0 == events.0
    }

    /// Both sets together.
    #[must_use]
    pub fn with(self, events: Self) -> Self {
        Self(self.0 | events.0)
    }
}

/// Content of an update to the PCF (SmPolicyUpdateContextData, TS 29.512 §5.6.2.19).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// The events that have occurred.
    pub triggers: PolicyTriggers,
    /// The subscribed QoS, where it has changed.
    pub subscribed: SessionRule,
    /// Rules that are not in force.
    pub failed: Vec<(Box<str>, RuleFailure)>,
    /// Rules whose guarantee the gNB fulfils, or does not.
    pub guarantees: Vec<(Box<str>, bool)>,
}

impl PolicyReport {
    /// True if there is nothing to report.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a PCC rule is not in force (FailureCode, TS 29.512 §5.6.3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleFailure {
    /// The rule names an application, which this SMF does not support in PCC rules.
    ApplicationUnknown,
    /// The rule has no packet filter, and the data network has no flow of this name.
    MissingFlows,
    /// A packet filter is not understood, or does not fit the session.
    IncorrectFlows,
    /// QoS data that do not fit together.
    UnsuccessfulQos,
    /// The rule refers to data that are not there.
    UnknownReference,
    /// The session has as many QoS flows as it may have.
    TooManyFlows,
    /// The gNB or the UPF has no resources for it, or has released them.
    AllocationFailed,
}

/// Policies of a PCF for a session, whole or as a change (SmPolicyDecision, TS 29.512 §5.6.2.4). Entries without a value are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyDecision {
    /// QoS of the session.
    pub session_rule: SessionRule,
    /// PCC rules by their identities.
    pub rules: Vec<(Box<str>, Option<PccRule>)>,
    /// QoS data by their identities.
    pub qos: Vec<(Box<str>, Option<RuleQos>)>,
    /// Gates of traffic control data by their identities.
    pub gates: Vec<(Box<str>, Option<FlowGate>)>,
    /// The events that are to be reported.
    pub triggers: Option<PolicyTriggers>,
}

/// A PCC rule (TS 29.512 §5.6.2.6). In a change of a rule, what is not given stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PccRule {
    /// The lowest is tried first.
    pub precedence: Option<u32>,
    /// Its packets. Empty in a new rule without an application: the rule is that which the data network has under this name.
    pub filters: Vec<PacketFilter>,
    /// A packet filter was not understood.
    pub has_unknown_filter: bool,
    /// Its packets are those of an application.
    pub has_application: bool,
    /// Its QoS data; none: those of the default flow.
    pub qos: Option<Box<str>>,
    /// Its traffic control data.
    pub gate: Option<Box<str>>,
}

/// QoS of PCC rules (QosData, TS 29.512 §5.6.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleQos {
    /// 5QI of the flow; none: that of the default flow.
    pub five_qi: Option<FiveQi>,
    /// Priority of the flow; none: that of the default flow.
    pub arp: Option<Arp>,
    /// Rates of a GBR flow.
    pub gbr: Option<Gbr>,
    /// The rules use the default flow.
    pub is_default_flow: bool,
}

/// The PCF's answer, or its failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyAnswer {
    /// The policies of the session.
    Decided(Box<PolicyAssociation>),
    /// The PCF refuses this subscriber or this session.
    Denied(PolicyDenial),
    /// The PCF failed. What happens then is configured.
    Failed(ServiceFault),
}

/// The content of a positive answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyAssociation {
    /// The association at the PCF, from the answer to Create; at most 256 octets.
    pub reference: Box<str>,
    /// The policies of the session.
    pub decision: PolicyDecision,
}

/// An order of the PCF in mid-session (TS 29.512 §4.2.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyNotification {
    /// Npcf_SMPolicyControl_UpdateNotify: changed policies.
    Changed(PolicyDecision),
    /// The association ends, and with it the session; `reactivate`: the UE may set it up again at once.
    Terminated {
        /// The cause is REACTIVATION_REQUESTED.
        reactivate: bool,
    },
}

/// Why a PCF refuses (TS 29.512 §5.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyDenial {
    /// The PCF does not know the subscriber (USER_UNKNOWN).
    UserUnknown,
    /// The PCF does not permit the session (POLICY_CONTEXT_DENIED, VALIDATION_CONDITION_NOT_MET).
    ContextDenied,
}

impl fmt::Display for PolicyDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UserUnknown => "it does not know the subscriber",
            Self::ContextDenied => "it does not permit the session",
        })
    }
}

impl PolicyRequest {
    /// Octets for the digest of an output.
    pub(crate) fn digest_octets(&self) -> Vec<u8> {
        let (operation, reference): (u8, &str) = match &self.operation {
            PolicyOperation::Create(_) => (0, ""),
            PolicyOperation::Update { reference, .. } => (1, reference),
            PolicyOperation::Delete { reference } => (2, reference),
        };
        let mut octets = vec![self.psi.value(), operation];
        octets.extend_from_slice(&self.session.0.to_be_bytes());
        octets.extend_from_slice(reference.as_bytes());
        octets
    }
}
