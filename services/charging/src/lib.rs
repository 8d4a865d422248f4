//! The charging function (CHF) as such: accounts of subscribers, charging sessions with their quotas, and charging records, in one SQLite
//! file.
//!
//! Spec: TS 32.290 §5.3 (operations), TS 32.291 §6.1.6 (content), TS 32.255 §5.2 (PDU sessions), TS 32.296 §5 (accounts), Release 17.
//!
//! | supported | not supported |
//! | --- | --- |
//! | prepaid accounts in octets, postpaid accounts | money, tariffs, service-specific units, quotas of time |
//! | session-based charging with unit reservation, several rating groups | event-based charging, roaming |
//! | one charging record for each session | partial records |
//!
//! Each operation is one durable transaction, and nothing is kept in memory: a process that is killed loses nothing, and several processes
//! may use the file. The caller gives the time and the random identity of a resource.

#![forbid(unsafe_code)]

mod account;
mod error;
mod function;
mod ledger;
mod record;
mod request;
mod schema;

pub use account::{Account, AccountKind, AccountStatus, CREDIT_MAX};
pub use error::{ChargingError, CreditRefusal};
pub use function::{ChargingFunction, EXPIRED_AT_ONCE_MAX, PAGE_MAX};
pub use record::{CSV_HEADING, ChargingRecord, ClosingCause, OpenSession, RatingGroupUsage};
pub use request::{
    CONTAINERS_MAX, ChargedSession, ChargingDataRequest, ChargingDataResponse, ChargingOperation,
    ChargingPolicy, ChargingRefusal, Denial, GrantedUnit, MultipleUnitInformation, MultipleUnitUsage,
    Notification, NotificationType, OCTETS_MAX, RATING_GROUPS_MAX, SessionKey, SessionReference, UnitResult,
    UsedUnitContainer,
};
