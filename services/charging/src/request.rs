//! Requests of a consumer and their answers: the part of TS 32.291 §6.1.6 on which accounts depend.

use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Instant, Supi};

use crate::account::AccountKind;

/// Used unit containers in one request: of each of 64 rating groups some.
pub const CONTAINERS_MAX: usize = 256;

/// Rating groups of one session.
pub const RATING_GROUPS_MAX: usize = 256;

/// The greatest volume of a container, in octets: a day at 100 Gbit/s.
pub const OCTETS_MAX: u64 = 1 << 50;

/// Quotas that the function grants, and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargingPolicy {
    /// Octets of a quota for which no amount was requested, and the most of one for which some was.
    pub grant_octets: u64,
    /// Part of a quota, in percent, that is left when the next one is to be asked for. Zero: none.
    pub threshold_percent: u8,
    /// Seconds for which a quota is valid. A session without a report for twice as long is closed.
    pub validity_s: u32,
    /// The account that a subscriber without one gets, with its first credit.
    pub default_account: Option<(AccountKind, u64)>,
    /// Most open sessions at a time.
    pub sessions_max: u64,
    /// Accounts that the function makes by itself.
    pub accounts_max: u64,
    /// How long records are kept.
    pub records_kept: Duration,
}

/// A request (ChargingDataRequest, TS 32.291 §6.1.6.2.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargingDataRequest {
    /// The operation, and the session that it is about.
    pub operation: ChargingOperation,
    /// Number of the request in its session (invocationSequenceNumber).
    pub sequence: u32,
    /// Usage, and quotas that are asked for.
    pub usage: Vec<MultipleUnitUsage>,
}

/// The operation of a request (TS 32.290 §6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChargingOperation {
    /// Nchf_ConvergedCharging_Create: charging of a session begins.
    Create(Box<ChargedSession>),
    /// Nchf_ConvergedCharging_Update: usage is reported, or a quota requested.
    Update(SessionReference),
    /// Nchf_ConvergedCharging_Release: charging of the session ends.
    Release(SessionReference),
}

/// The session that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionReference {
    /// By its charging data resource, and the subscriber that the request names.
    Resource(Box<str>, Option<Supi>),
    /// By its consumer's identifiers, where the answer to Create did not arrive.
    Key(SessionKey),
}

/// The identifiers by which a repeated Create is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// The function that charges (nFConsumerIdentification). `None`: the SMF of this core.
    pub consumer: Option<Box<str>>,
    /// Subscriber of the session.
    pub supi: Supi,
    /// chargingId; without one a repeated Create is a further session.
    pub charging_id: Option<u32>,
    /// Identity of the PDU session (pduSessionID).
    pub pdu_session_id: Option<u8>,
}

impl SessionKey {
    pub(crate) fn text(&self) -> Option<String> {
        let charging_id = self.charging_id?;
        let psi = self.pdu_session_id.map(|psi| psi.to_string()).unwrap_or_default();
        let consumer = self.consumer.as_deref().map(|c| format!("/{c}")).unwrap_or_default();
        Some(format!("{}/{charging_id}/{psi}{consumer}", self.supi))
    }
}

/// A session whose charging begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargedSession {
    /// The identity of its resource, which others cannot guess.
    pub resource: Box<str>,
    /// Identifiers of the session.
    pub key: SessionKey,
    /// Where the consumer receives orders (notifyUri).
    pub notify_uri: Option<Box<str>>,
    /// Data network of the session.
    pub dnn: Option<Box<str>>,
    /// Slice of the session.
    pub s_nssai: Option<Box<str>>,
}

/// Usage of a rating group (MultipleUnitUsage, TS 32.291 §6.1.6.2.1.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultipleUnitUsage {
    /// The rating group.
    pub rating_group: u32,
    /// Octets of the quota that is asked for; the inner `None` leaves the amount to the function.
    pub requested: Option<Option<u64>>,
    /// Usage since the last report.
    pub used: Vec<UsedUnitContainer>,
}

/// Usage since the last report (UsedUnitContainer, TS 32.291 §6.1.6.2.1.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedUnitContainer {
    /// localSequenceNumber, from 1. A container that is numbered 0 is taken as one of a consumer that does not number them.
    pub number: u32,
    /// Octets of the uplink.
    pub uplink: u64,
    /// Octets of the downlink.
    pub downlink: u64,
    /// Octets of both directions, where they are not known of each.
    pub total: u64,
    /// Time of use, in seconds.
    pub time_s: u32,
    /// Time of the trigger (triggerTimestamp).
    pub at: Option<Instant>,
}

impl UsedUnitContainer {
    /// Octets that are charged.
    pub(crate) fn octets(&self) -> u64 {
        self.total.max(self.uplink.saturating_add(self.downlink))
    }
}

/// The positive answer (ChargingDataResponse, TS 32.291 §6.1.6.2.1.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargingDataResponse {
    /// The identity of the session's resource.
    pub resource: Box<str>,
    /// The rating groups for which a quota was asked.
    pub units: Vec<MultipleUnitInformation>,
}

/// The answer about a rating group (MultipleUnitInformation, TS 32.291 §6.1.6.2.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultipleUnitInformation {
    /// The rating group.
    pub rating_group: u32,
    /// Its quota, or why it gets none.
    pub result: UnitResult,
}

/// Outcome of a rating group (TS 32.291 §6.1.6.3.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnitResult {
    /// A quota is granted.
    Granted(GrantedUnit),
    /// No quota: usage is recorded (QUOTA_MANAGEMENT_NOT_APPLICABLE).
    NotApplicable,
    /// No quota, and no further usage.
    Denied(Denial),
}

/// Quota of a rating group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedUnit {
    /// Volume of the quota (totalVolume).
    pub octets: u64,
    /// Rest of the quota at which the next one is requested (volumeQuotaThreshold).
    pub threshold_octets: Option<u64>,
    /// Seconds for which the quota is valid (validityTime).
    pub validity_s: u32,
    /// The last quota: finalUnitIndication TERMINATE.
    pub is_last: bool,
}

/// Why no quota is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denial {
    /// Nothing is left (QUOTA_LIMIT_REACHED).
    QuotaLimitReached,
    /// The subscriber has no account any more (USER_UNKNOWN).
    UserUnknown,
    /// The account is barred (END_USER_SERVICE_DENIED).
    EndUserServiceDenied,
}

/// Why a request is refused. Nothing of it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargingRefusal {
    /// The subscriber has no account (USER_UNKNOWN).
    UserUnknown,
    /// The account is barred (END_USER_REQUEST_DENIED).
    EndUserRequestDenied,
    /// Nothing is left (QUOTA_LIMIT_REACHED).
    QuotaLimitReached,
    /// There is no such session, or it is another subscriber's.
    NoSuchResource,
    /// invocationSequenceNumber is lower than that of an earlier request.
    SequenceWentBack {
        /// The number of the last request.
        last: u32,
    },
    /// More than [`CONTAINERS_MAX`] containers.
    TooManyContainers,
    /// More than [`RATING_GROUPS_MAX`] rating groups.
    TooManyRatingGroups,
    /// A volume of more than [`OCTETS_MAX`], or more than a counter of the account holds.
    VolumeOutOfRange,
    /// As many sessions are open as may be.
    TooManySessions,
    /// There are as many accounts as the function makes by itself.
    TooManyAccounts,
}

impl fmt::Display for ChargingRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserUnknown => f.write_str("the subscriber has no account"),
            Self::EndUserRequestDenied => f.write_str("the account of the subscriber is barred"),
            Self::QuotaLimitReached => f.write_str("nothing is left in the account of the subscriber"),
            Self::NoSuchResource => f.write_str("there is no such charging session of the subscriber"),
            Self::SequenceWentBack { last } => {
                write!(f, "the last request of this session had the invocationSequenceNumber {last}")
            }
            Self::TooManyContainers => write!(f, "a request may have {CONTAINERS_MAX} used unit containers"),
            Self::TooManyRatingGroups => write!(f, "a session may have {RATING_GROUPS_MAX} rating groups"),
            Self::VolumeOutOfRange => {
                write!(f, "a used unit container may have {OCTETS_MAX} octets, and an account less than 2^63")
            }
            Self::TooManySessions => f.write_str("as many charging sessions are open as may be"),
            Self::TooManyAccounts => {
                f.write_str("there are as many accounts as are made without an operator")
            }
        }
    }
}

/// An order to the consumer of a session (ChargingNotifyRequest, TS 32.291 §6.1.6.2.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its number, by which it is taken off the list.
    pub id: i64,
    /// The order that is to be sent.
    pub order: NotificationType,
    /// The function that charges. `None`: the SMF of this core.
    pub consumer: Option<Box<str>>,
    /// Where the consumer receives orders.
    pub notify_uri: Option<Box<str>>,
    /// Subscriber of the session.
    pub supi: Supi,
    /// The PDU session.
    pub pdu_session_id: Option<u8>,
}

/// Orders (TS 32.291 §6.1.6.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationType {
    /// REAUTHORIZATION: usage is reported, and a quota asked for.
    Reauthorization,
    /// ABORT_CHARGING: charging of the session is aborted.
    AbortCharging,
}
