//! The amount that the broker pays for a cycle, signed so that the operator can show it to a judge, and statements that add receipts up.

use std::collections::BTreeMap;

use whimbrel_broker_common::signed_message;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::report::{Direction, Report};
use crate::crypto::{Signature, Signed, SigningKey, VerifyingKey};
use crate::id::{Domain, OperatorId, Pseudonym};
use crate::msg::{MessageField, Price, SapMessageType, emit_part, read_part, read_signature};

/// Why the broker pays what it pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The user confirms what the operator claims, within the tolerance.
    Confirmed = 1,
    /// The user confirms less: the broker pays what the user confirms.
    Reduced = 2,
    /// The credit of the grant is used up.
    CreditUsed = 3,
    /// An ordinary UE sends no reports: the broker believes the operator, up to a small cap.
    OperatorsWord = 4,
}

impl core::fmt::Display for Verdict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Reduced => "reduced to what the user confirms",
            Self::CreditUsed => "credit used up",
            Self::OperatorsWord => "on the operator's word",
        })
    }
}

/// Octets and money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Octets that the operator claims, uplink and downlink.
    pub claimed: (u64, u64),
    /// Octets that the broker pays for.
    pub paid: (u64, u64),
    /// The amount that the broker pays, in millionths of a unit of the currency.
    pub micros: u64,
}

impl Totals {
    /// `None` on overflow.
    pub fn plus(&self, more: &Self) -> Option<Self> {
        let pair = |a: (u64, u64), b: (u64, u64)| Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?));
        Some(Self {
            claimed: pair(self.claimed, more.claimed)?,
            paid: pair(self.paid, more.paid)?,
            micros: self.micros.checked_add(more.micros)?,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        for v in [self.claimed.0, self.claimed.1, self.paid.0, self.paid.1, self.micros] {
            out.extend_from_slice(&v.to_be_bytes());
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "totals";
        let (claimed, paid) = ((r.u64(IE)?, r.u64(IE)?), (r.u64(IE)?, r.u64(IE)?));
        Ok(Self { claimed, paid, micros: r.u64(IE)? })
    }
}

/// What so many octets cost, in millionths of a unit, rounded down: the broker rounds the total of a session, not each cycle.
pub(super) fn cost(price: &Price, (ul, dl): (u64, u64)) -> u64 {
    let of = |octets: u64, per_mib: u32| u128::from(octets) * u128::from(per_mib);
    let micros = (of(ul, price.ul_micros_per_mib) + of(dl, price.dl_micros_per_mib)) >> 20;
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// The amount that the broker pays for the time since the session's last receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Domain of the broker.
    pub broker: Domain,
    /// Identity of the operator.
    pub operator: OperatorId,
    /// The number of the receipt, ascending by one for each operator, from 1.
    pub serial: u64,
    /// When, in seconds since the Unix epoch.
    pub time: u64,
    /// Pseudonym of the session.
    pub pseudonym: Pseudonym,
    /// The cycle of the operator's report.
    pub cycle: u32,
    /// H of the operator's signed report.
    pub report: [u8; 32],
    /// Reason of the amount.
    pub verdict: Verdict,
    /// What the operator claims and the broker pays since the session's last receipt.
    pub totals: Totals,
}

impl Receipt {
    fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::Receipt.begin();
        self.broker.emit(&mut out);
        self.operator.emit(&mut out);
        out.extend_from_slice(&self.serial.to_be_bytes());
        out.extend_from_slice(&self.time.to_be_bytes());
        out.extend_from_slice(&self.pseudonym.0);
        out.extend_from_slice(&self.cycle.to_be_bytes());
        out.extend_from_slice(&self.report);
        out.push(self.verdict as u8);
        self.totals.emit(&mut out);
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "receipt";
        SapMessageType::Receipt.read(r)?;
        let (broker, operator) = (Domain::read(r)?, OperatorId::read(r)?);
        let (serial, time) = (r.u64(IE)?, r.u64(IE)?);
        let (pseudonym, cycle, report) = (Pseudonym(r.array(IE)?), r.u32(IE)?, r.array(IE)?);
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let verdict = match r.u8(IE)? {
            1 => Verdict::Confirmed,
            2 => Verdict::Reduced,
            3 => Verdict::CreditUsed,
            4 => Verdict::OperatorsWord,
            _ => return Err(invalid),
        };
        let totals = Totals::read(r)?;
        Ok(Self { broker, operator, serial, time, pseudonym, cycle, report, verdict, totals })
    }

    /// Signs it as the broker.
    pub fn sign(self, key: &SigningKey) -> SignedReceipt {
        SignedReceipt { receipt: self, signature: Signature::NONE }.with_signature(key)
    }
}

/// A receipt and the broker's signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedReceipt {
    /// The receipt that is signed.
    pub receipt: Receipt,
    /// The broker's signature.
    pub signature: Signature,
}

impl SignedReceipt {
    /// The longest, in octets.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 10 + 8 + 8 + 16 + 4 + 32 + 1 + 40 + 64;

    fn signed_octets(&self) -> Vec<u8> {
        self.receipt.to_octets()
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { receipt: Receipt::read(r)?, signature: read_signature(r)? })
    }
}

signed_message!(SignedReceipt as Signed::Receipt);

/// A settlement statement: receipts of one operator, without a gap, and their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Domain of the broker.
    pub broker: Domain,
    /// Identity of the operator.
    pub operator: OperatorId,
    /// When, in seconds since the Unix epoch.
    pub time: u64,
    /// The lines, whose numbers ascend by one.
    pub lines: Vec<SignedReceipt>,
    /// Sum of the lines.
    pub totals: Totals,
    /// The broker's signature.
    pub signature: Signature,
}

/// What is wrong with a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementError {
    /// The broker did not sign it.
    Signature,
    /// The broker did not sign this line.
    LineSignature(u64),
    /// This line is of another broker or operator.
    OtherParty(u64),
    /// A line before this one is missing, or this one stands twice.
    Gap(u64),
    /// The sum is not that of the lines.
    Sum,
    /// This line pays for a report that the operator did not send.
    UnknownReport(u64),
    /// This line names other octets than the operator's report.
    Claim(u64),
    /// This line pays for more than the operator claims, or another amount than the price gives.
    Amount(u64),
}

impl core::fmt::Display for StatementError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Signature => f.write_str("the broker's signature of the statement is wrong"),
            Self::LineSignature(n) => write!(f, "receipt {n}: the broker's signature is wrong"),
            Self::OtherParty(n) => write!(f, "receipt {n}: it is of another broker or for another operator"),
            Self::Gap(n) => write!(f, "receipt {n}: the receipt before it is missing"),
            Self::Sum => f.write_str("the totals are not the sum of the receipts"),
            Self::UnknownReport(n) => write!(f, "receipt {n}: this operator sent no such report"),
            Self::Claim(n) => write!(f, "receipt {n}: the octets are not those of this operator's report"),
            Self::Amount(n) => write!(f, "receipt {n}: the amount is not what octets and price give"),
        }
    }
}

impl core::error::Error for StatementError {}

impl Statement {
    /// The most lines: what keeps a file under 512 MiB.
    pub const LINES_MAX: usize = 1 << 20;

    /// Adds lines up and signs as the broker. `None` on overflow of the sum, or on more lines than the bound.
    pub fn sign(
        broker: Domain,
        operator: OperatorId,
        time: u64,
        lines: Vec<SignedReceipt>,
        key: &SigningKey,
    ) -> Option<Self> {
        if lines.len() > Self::LINES_MAX {
            return None;
        }
        let totals = sum(&lines)?;
        let signature = Signature::NONE;
        Some(Self { broker, operator, time, lines, totals, signature }.with_signature(key))
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::Statement.begin();
        self.broker.emit(&mut out);
        self.operator.emit(&mut out);
        out.extend_from_slice(&self.time.to_be_bytes());
        self.totals.emit(&mut out);
        out.extend_from_slice(&(self.lines.len() as u32).to_be_bytes());
        self.lines.iter().for_each(|l| emit_part(&l.to_octets(), &mut out));
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "statement";
        SapMessageType::Statement.read(r)?;
        let (broker, operator, time) = (Domain::read(r)?, OperatorId::read(r)?, r.u64(IE)?);
        let totals = Totals::read(r)?;
        let too_many = r.error(DecodeErrorKind::TooMany, IE);
        let count = r.u32(IE)? as usize;
        if count > Self::LINES_MAX {
            return Err(too_many);
        }
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(SignedReceipt::parse(read_part(r, SignedReceipt::OCTETS_MAX, "receipt")?)?);
        }
        Ok(Self { broker, operator, time, lines, totals, signature: read_signature(r)? })
    }

    /// True if the broker, whose key is `key`, has signed the statement and each line, no line is missing and the sum is right.
    pub fn verify(&self, key: &VerifyingKey) -> Result<(), StatementError> {
        if !self.is_signed_by(key) {
            return Err(StatementError::Signature);
        }
        let mut former = None;
        for line in &self.lines {
            let receipt = &line.receipt;
            let serial = receipt.serial;
            if receipt.broker != self.broker || receipt.operator != self.operator {
                return Err(StatementError::OtherParty(serial));
            }
            if !line.is_signed_by(key) {
                return Err(StatementError::LineSignature(serial));
            }
            if former.is_some_and(|n: u64| n.checked_add(1) != Some(serial)) {
                return Err(StatementError::Gap(serial));
            }
            former = Some(serial);
        }
        if sum(&self.lines) == Some(self.totals) { Ok(()) } else { Err(StatementError::Sum) }
    }
}

signed_message!(Statement as Signed::Statement);

fn sum(lines: &[SignedReceipt]) -> Option<Totals> {
    lines.iter().try_fold(Totals::default(), |sum, line| sum.plus(&line.receipt.totals))
}

/// What the operator has received for each of its sessions: checks the broker's receipts against the
/// operator's own reports, in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub struct ReceiptCheck {
    sessions: BTreeMap<Pseudonym, Totals>,
}

impl ReceiptCheck {
    /// Checks one receipt. `report`: the operator's own report that the receipt names; `price`: that of the session's grant.
    pub fn take(
        &mut self,
        receipt: &Receipt,
        report: Option<&Report>,
        price: &Price,
    ) -> Result<(), StatementError> {
        let n = receipt.serial;
        let report = report.filter(|r| r.pseudonym == receipt.pseudonym && r.cycle == receipt.cycle);
        let report = report.ok_or(StatementError::UnknownReport(n))?;
        let session = self.sessions.entry(receipt.pseudonym).or_default();
        let sum = session.plus(&receipt.totals).ok_or(StatementError::Claim(n))?;
        let octets = |d: &Direction| d.octets;
        if sum.claimed != (octets(&report.uplink), octets(&report.downlink)) {
            return Err(StatementError::Claim(n));
        }
        let within = sum.paid.0 <= sum.claimed.0 && sum.paid.1 <= sum.claimed.1;
        let due = cost(price, sum.paid);
        let capped = matches!(receipt.verdict, Verdict::CreditUsed | Verdict::OperatorsWord);
        if !within || sum.micros > due || (sum.micros < due && !capped) {
            return Err(StatementError::Amount(n));
        }
        *session = sum;
        Ok(())
    }
}
