//! Nchf_ConvergedCharging (TS 32.290, TS 32.291): the charging function's service for the SMF. A request is an output of the UE, the answer
//! a later input. What is charged of a PDU session is TS 32.255 §5.2.

use std::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, Instant, PduSessionId, SNssai, Supi, Tai};
use whimbrel_nas::ie::{PduSessionType, SscMode};

use super::ServiceFault;
use crate::envelope::OutputId;
use crate::state::{Ambr, UeAddress};

/// A request to the CHF about one PDU session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargingRequest {
    /// The subscriber that is charged.
    pub supi: Supi,
    /// Identity of the session.
    pub psi: PduSessionId,
    /// The charging identifier of the session (TS 32.255 §5.1.1).
    pub charging_id: u32,
    /// invocationSequenceNumber: a request that is sent again keeps its number.
    pub sequence: u32,
    /// Its part in the life of the session.
    pub operation: ChargingOperation,
}

/// Operations of Nchf_ConvergedCharging (TS 32.290 §6.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChargingOperation {
    /// Nchf_ConvergedCharging_Create: charging begins, and a quota is asked for.
    Create(Box<ChargedSession>, RatingGroup),
    /// Nchf_ConvergedCharging_Update: usage is reported, and another quota is asked for unless `last`.
    Update {
        /// The resource of the session at the CHF.
        reference: Box<str>,
        /// Usage since the last report.
        used: UsedUnits,
        /// No further quota is asked for.
        last: bool,
    },
    /// Nchf_ConvergedCharging_Release: the session has ended.
    Release {
        /// The resource of the session at the CHF. Empty: that which the answer to Create will name, if one comes.
        reference: Box<str>,
        /// Usage since the last report, with that of the UPF's answer to the deletion.
        used: UsedUnits,
        /// The deletion at the UPF, whose answer has the rest of the usage.
        deletion: Option<OutputId>,
    },
}

/// The rating group of traffic (TS 32.299 §7.2.165a).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RatingGroup(pub u32);

/// PDU session information of a charging session (TS 32.255 §6.2.1.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargedSession {
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// Its data network.
    pub dnn: Dnn,
    /// Type of the session.
    pub session_type: PduSessionType,
    /// SSC mode of the session.
    pub ssc_mode: SscMode,
    /// Addresses of the UE.
    pub address: UeAddress,
    /// The session AMBR that UE and UPF have.
    pub ambr: Ambr,
    /// Tracking area of the UE.
    pub tai: Option<Tai>,
    /// Start of the session.
    pub began: Instant,
}

/// Usage of a rating group (UsedUnitContainer, TS 32.291 §6.1.6.2.1.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedUnits {
    /// The rating group of the traffic.
    pub rating_group: RatingGroup,
    /// Octets of the uplink.
    pub uplink: u64,
    /// Octets of the downlink.
    pub downlink: u64,
    /// Time of use, in seconds.
    pub time_s: u32,
    /// The event that caused the report.
    pub trigger: ChargingTrigger,
    /// localSequenceNumber: each container of a session has the next one.
    pub number: u32,
}

/// Events at which usage is reported (TS 32.255 §5.2.1.2, TS 32.291 §6.1.6.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChargingTrigger {
    /// The threshold of the quota is reached.
    QuotaThreshold,
    /// The quota is used up.
    QuotaExhausted,
    /// The quota was valid until now.
    ValidityTime,
    /// No packet came for as long as the quota is held.
    QuotaHoldingTime,
    /// The CHF has ordered a report.
    ForcedReauthorisation,
    /// The session has ended.
    #[default]
    Final,
}

/// The CHF's answer, or its failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChargingAnswer {
    /// ChargingDataResponse (TS 32.291 §6.1.6.2.1.2).
    Granted(Box<ChargingGrant>),
    /// The CHF refuses this subscriber or this service.
    Denied(ChargingDenial),
    /// The CHF failed. What happens then is configured for the data network.
    Failed(ServiceFault),
}

/// The content of a positive answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargingGrant {
    /// The resource of the session at the CHF, from the answer to Create; at most 256 octets.
    pub reference: Box<str>,
    /// The quota. None: usage is recorded, and not limited (offline charging).
    pub quota: Option<GrantedQuota>,
}

/// Quota of a rating group (MultipleUnitInformation, TS 32.291 §6.1.6.2.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedQuota {
    /// Octets of both directions.
    pub total: Option<u64>,
    /// Octets of the uplink.
    pub uplink: Option<u64>,
    /// Octets of the downlink.
    pub downlink: Option<u64>,
    /// Time of use, in seconds.
    pub time_s: Option<u32>,
    /// Octets before the end of the quota at which the next one is asked for.
    pub volume_threshold: Option<u64>,
    /// Seconds before the end of the quota at which the next one is asked for.
    pub time_threshold_s: Option<u32>,
    /// Seconds for which the quota is valid.
    pub validity_s: Option<u32>,
    /// Seconds without a packet after which the quota is given back.
    pub holding_s: Option<u32>,
    /// The last quota: what happens when it is used up.
    pub last: Option<FinalUnitAction>,
}

/// Treatment of traffic after the last quota (TS 32.291 §6.1.6.3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinalUnitAction {
    /// The session is released.
    Terminate,
    /// The session stays, and nothing passes.
    Block,
}

/// Why a CHF refuses (TS 32.291 §6.1.6.3.14, §6.1.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChargingDenial {
    /// The credit is used up (QUOTA_LIMIT_REACHED).
    QuotaLimitReached,
    /// The subscriber is not known (USER_UNKNOWN).
    UserUnknown,
    /// The service is denied (END_USER_SERVICE_DENIED, END_USER_SERVICE_REJECTED).
    ServiceDenied,
    /// The service could not be rated (RATING_FAILED).
    RatingFailed,
}

impl fmt::Display for ChargingDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QuotaLimitReached => "the subscriber's credit is used up",
            Self::UserUnknown => "it does not know the subscriber",
            Self::ServiceDenied => "it denies the service to the subscriber",
            Self::RatingFailed => "it cannot rate the service",
        })
    }
}

impl ChargingRequest {
    /// Octets for the digest of an output.
    pub(crate) fn digest_octets(&self) -> Vec<u8> {
        let operation: u8 = match self.operation {
            ChargingOperation::Create(..) => 0,
            ChargingOperation::Update { .. } => 1,
            ChargingOperation::Release { .. } => 2,
        };
        let mut octets = vec![self.psi.value(), operation];
        octets.extend_from_slice(&self.charging_id.to_be_bytes());
        octets.extend_from_slice(&self.sequence.to_be_bytes());
        if let ChargingOperation::Update { used, .. } | ChargingOperation::Release { used, .. } =
            &self.operation
        {
            octets.extend_from_slice(&used.uplink.to_be_bytes());
            octets.extend_from_slice(&used.downlink.to_be_bytes());
        }
        octets
    }
}
