//! Verifiable billing (chapter 3.4.3): the user and the operator measure a session apart and report to the
//! broker; the broker compares, pays what both confirm, and learns which to believe.
//!
//! | part | here |
//! | --- | --- |
//! | signed, sealed reports of the user and the operator | [`Report`], [`SealedReport`] |
//! | a session's counter at the user and the operator | [`Meter`] |
//! | what the operator sends and the broker answers | [`Delivery`], [`DeliveryAnswer`] |
//! | the broker's signed receipts, and statements of them | [`Receipt`], [`Statement`] |
//! | sessions and payment at the broker | [`Accounts`] |
//! | residuals, blame and reputation at the broker | [`Judge`] |
//! | what the operator thinks of its brokers | [`BrokerStanding`] |
//!
//! All volumes are totals since the session began, so that a report that is lost costs nothing once the next one arrives.

mod accounts;
mod delivery;
mod judge;
mod meter;
mod receipt;
mod report;
mod standing;

pub use accounts::{Account, Accounted, Accounts, OpenSession, Outcome, PayRule};
pub use delivery::{Delivery, DeliveryAnswer, DeliveryBody, DeliveryError};
pub use judge::{Blame, Comparison, Judge, JudgeRule, Party, Standing};
pub use meter::Meter;
pub use receipt::{Receipt, ReceiptCheck, SignedReceipt, Statement, StatementError, Totals, Verdict};
pub use report::{Direction, Report, ReportedBy, SealedReport, SignedReport};
pub use standing::BrokerStanding;
