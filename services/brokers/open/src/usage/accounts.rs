//! The sessions at the broker: which reports count, what they confirm, and what is paid for them (chapter 3.4.3).
//!
//! Reports hold totals, so that the broker compares the newest cycle that both parties have reported. A
//! report that is lost, late or out of order delays a receipt and loses nothing.

use std::collections::BTreeMap;

use whimbrel_ids::Instant;

use super::judge::Comparison;
use super::receipt::{Receipt, Totals, Verdict, cost};
use super::report::{Direction, Report, ReportedBy, SignedReport};
use crate::CLOCK_SKEW_MAX_S;
use crate::crypto::{VerifyingKey, hash};
use crate::id::{Domain, OperatorId, Pseudonym, UserId};
use crate::msg::{Grant, Price, Qos};

/// The amount that the broker pays, and for how long it takes reports.
#[derive(Clone, Copy, Debug)]
pub struct PayRule {
    /// The tolerance ratio of chapter 3.4.3 (ε), in millionths of a cycle's octets.
    pub tolerance_ppm: u64,
    /// Octets by which two honest parties may differ, whatever the volume: they end their cycles within milliseconds, not at once.
    pub slack_octets: u64,
    /// The amount that the broker pays at most for a session that the operator alone reports, in millionths of a unit.
    pub word_cap_micros: u64,
    /// How long after the end of a grant reports are taken, in seconds.
    pub late_max_s: u64,
}

impl PayRule {
    /// ε: what two counters of one flow differ by at most, 0.9 %, and a little.
    pub const DEFAULT: Self =
        Self { tolerance_ppm: 10_000, slack_octets: 3_000, word_cap_micros: 50_000, late_max_s: 86_400 };
}

/// The record that the broker has of a session that it has granted.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// Pseudonym of the session.
    pub pseudonym: Pseudonym,
    /// The user of the session.
    pub user: UserId,
    /// Identity of the operator.
    pub operator: OperatorId,
    /// What the operator takes.
    pub price: Price,
    /// What the operator gives: no session moves more.
    pub qos: Qos,
    /// The amount that the broker pays at most.
    pub credit_micros: u64,
    /// First and last second of the grant.
    pub validity_s: (u64, u64),
    /// The user sends no reports: an ordinary UE.
    pub word_only: bool,
}

impl OpenSession {
    /// Of a grant to one of the broker's users.
    pub fn of_grant(grant: &Grant, user: UserId) -> Self {
        Self {
            pseudonym: grant.pseudonym,
            user,
            operator: grant.operator,
            price: grant.terms.price,
            qos: grant.qos,
            credit_micros: grant.credit_micros,
            validity_s: (grant.validity.from, grant.validity.until),
            word_only: grant.is_of_ordinary_ue(),
        }
    }
}

/// What came of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// The report counts.
    Accepted = 0,
    /// It was here before.
    Doubled = 1,
    /// Its party has signed another report of this cycle.
    Conflicting = 2,
    /// Its totals are lower than those of an earlier cycle, or higher than those of a later one.
    Backwards = 3,
    /// The session has been settled.
    Late = 4,
    /// The broker has granted no such session.
    UnknownSession = 5,
    /// It is not signed by the party that it names, or the operator reports on another operator's session.
    OtherParty = 6,
    /// Its cycle ends after now.
    Future = 7,
    /// It claims more octets than the granted rate gives in the time.
    Implausible = 8,
    /// It does not open: it is sealed to another key, or holds no report.
    Sealed = 9,
}

impl Outcome {
    /// All, in the order of their code points.
    pub const ALL: [Self; 10] = [
        Self::Accepted,
        Self::Doubled,
        Self::Conflicting,
        Self::Backwards,
        Self::Late,
        Self::UnknownSession,
        Self::OtherParty,
        Self::Future,
        Self::Implausible,
        Self::Sealed,
    ];

    /// True if the same report can never be accepted later: the operator drops it. A sealed one may open under another key.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Sealed)
    }
}

impl core::fmt::Display for Outcome {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Doubled => "it was here before",
            Self::Conflicting => "its party has signed another report of this cycle",
            Self::Backwards => "its totals do not ascend with the cycles",
            Self::Late => "the session has been settled",
            Self::UnknownSession => "there is no such session",
            Self::OtherParty => "it is not signed by a party of the session",
            Self::Future => "its cycle ends after now",
            Self::Implausible => "it claims more octets than the granted rate gives",
            Self::Sealed => "it does not open",
        })
    }
}

/// What a party has reported of a cycle.
#[derive(Clone, Copy, Debug)]
struct Point {
    uplink: Direction,
    downlink: Direction,
    closed: bool,
    end_ms: u64,
    report: [u8; 32],
}

/// How long after the one party the other may close a session: its last message may be repeated for some seconds. A session that goes on
/// for longer was opened again.
const CLOSED_WITHIN_MS: u64 = 10_000;

impl Point {
    fn octets(&self) -> (u64, u64) {
        (self.uplink.octets, self.downlink.octets)
    }

    /// Whether no total is above `later`'s.
    fn is_before(&self, later: &Self) -> bool {
        let le =
            |a: &Direction, b: &Direction| a.octets <= b.octets && a.packets <= b.packets && a.lost <= b.lost;
        le(&self.uplink, &later.uplink) && le(&self.downlink, &later.downlink)
    }
}

/// The newest reports of one party.
#[derive(Clone, Debug, Default)]
struct PartyReports {
    points: BTreeMap<u32, Point>,
}

impl PartyReports {
    /// Cycles that are remembered: reports that are out of order by more count as late.
    const KEPT: usize = 64;

    fn judge(&self, cycle: u32, point: &Point) -> Outcome {
        if let Some(known) = self.points.get(&cycle) {
            let same = known.report == point.report;
            return if same { Outcome::Doubled } else { Outcome::Conflicting };
        }
        let before = self.points.range(..cycle).next_back();
        let after = self.points.range(cycle..).next();
        if before.is_none() && self.points.len() >= Self::KEPT {
            return Outcome::Late;
        }
        let fits =
            before.is_none_or(|(_, p)| p.is_before(point)) && after.is_none_or(|(_, p)| point.is_before(p));
        if fits { Outcome::Accepted } else { Outcome::Backwards }
    }

    fn insert(&mut self, cycle: u32, point: Point) {
        self.points.insert(cycle, point);
        while self.points.len() > Self::KEPT {
            self.points.pop_first();
        }
    }

    /// The totals at the end of a cycle.
    fn at(&self, cycle: u32) -> Option<&Point> {
        self.points.get(&cycle)
    }

    /// The cycle whose totals stand at the end of this one of the other party's: after the session was closed they stay.
    fn facing(&self, cycle: u32, other: &Point) -> Option<u32> {
        if self.points.contains_key(&cycle) {
            return Some(cycle);
        }
        let (newest, point) = self.points.last_key_value()?;
        let stands = point.closed && other.end_ms <= point.end_ms.saturating_add(CLOSED_WITHIN_MS);
        (stands && *newest < cycle).then_some(*newest)
    }
}

/// A session at the broker.
#[derive(Clone, Debug)]
pub struct Account {
    /// What was granted.
    pub session: OpenSession,
    of_user: PartyReports,
    of_operator: PartyReports,
    /// The cycles that were compared last: the operator's, the user's.
    compared: Option<(u32, u32)>,
    /// The sum of the receipts.
    pub totals: Totals,
    /// What the operator should have counted by the user's reports, both directions, at the last comparison.
    expected: u64,
    /// The difference that has been judged.
    judged: i64,
}

/// What a report led to.
#[derive(Clone, Debug)]
pub struct Accounted {
    /// What came of it.
    pub outcome: Outcome,
    /// To be signed, made durable and sent to the operator.
    pub receipt: Option<Receipt>,
    /// For the judge.
    pub comparison: Option<Comparison>,
}

/// All sessions of a broker.
#[derive(Clone, Debug)]
pub struct Accounts {
    broker: Domain,
    rule: PayRule,
    sessions: BTreeMap<Pseudonym, Account>,
    /// The number of each operator's last receipt.
    serials: BTreeMap<OperatorId, u64>,
}

impl Accounts {
    /// Accounts without a session.
    pub fn new(broker: Domain, rule: PayRule) -> Self {
        Self { broker, rule, sessions: BTreeMap::new(), serials: BTreeMap::new() }
    }

    /// A session was granted.
    pub fn open(&mut self, session: OpenSession) {
        let account = || Account {
            session: session.clone(),
            of_user: PartyReports::default(),
            of_operator: PartyReports::default(),
            compared: None,
            totals: Totals::default(),
            expected: 0,
            judged: 0,
        };
        self.sessions.entry(session.pseudonym).or_insert_with(account);
    }

    /// A session, as long as reports of it are taken.
    pub fn session(&self, pseudonym: Pseudonym) -> Option<&Account> {
        self.sessions.get(&pseudonym)
    }

    /// The numbers of receipts go on after this one, for a broker that has started again.
    pub fn continue_after(&mut self, operator: OperatorId, serial: u64) {
        let last = self.serials.entry(operator).or_default();
        *last = (*last).max(serial);
    }

    /// Forgets sessions of which no report is taken any more.
    pub fn settle(&mut self, now: Instant) {
        let late = self.rule.late_max_s;
        self.sessions.retain(|_, a| now.as_secs() <= a.session.validity_s.1.saturating_add(late));
    }

    /// Judges a report that `from` has delivered, whose certificate has `operator_key`. It changes nothing.
    pub fn check(
        &self,
        now: Instant,
        (from, operator_key): (OperatorId, &VerifyingKey),
        user_key: impl Fn(UserId) -> Option<VerifyingKey>,
        signed: &SignedReport,
    ) -> Outcome {
        let report = &signed.report;
        let Some(account) = self.sessions.get(&report.pseudonym) else { return Outcome::UnknownSession };
        let session = &account.session;
        if report.broker != self.broker || report.operator != session.operator {
            return Outcome::OtherParty;
        }
        // A user's report may come through any operator: it is sealed, and late when its own operator did not pass it on.
        let key = match report.by {
            ReportedBy::Operator => (from == session.operator).then_some(*operator_key),
            ReportedBy::User => user_key(session.user).filter(|_| !session.word_only),
        };
        if !key.is_some_and(|key| signed.is_signed_by(&key)) {
            return Outcome::OtherParty;
        }
        let (begun, until) = session.validity_s;
        if now.as_secs() > until.saturating_add(self.rule.late_max_s) {
            return Outcome::Late;
        }
        let age_s = now.as_secs().saturating_sub(begun).saturating_add(CLOCK_SKEW_MAX_S);
        if report.end_ms / 1_000 > age_s {
            return Outcome::Future;
        }
        if !is_plausible(report, &session.qos) {
            return Outcome::Implausible;
        }
        account.side(report.by).judge(report.cycle, &point(signed))
    }

    /// Takes a report that [`Accounts::check`] accepts.
    pub fn take(&mut self, now: Instant, signed: &SignedReport) -> Accounted {
        let (report, point) = (&signed.report, point(signed));
        let nothing = |outcome| Accounted { outcome, receipt: None, comparison: None };
        let Some(account) = self.sessions.get_mut(&report.pseudonym) else {
            return nothing(Outcome::UnknownSession);
        };
        let outcome = account.side(report.by).judge(report.cycle, &point);
        if outcome != Outcome::Accepted {
            return nothing(outcome);
        }
        match report.by {
            ReportedBy::User => account.of_user.insert(report.cycle, point),
            ReportedBy::Operator => account.of_operator.insert(report.cycle, point),
        }
        let paid = match account.session.word_only {
            true => account.believe(&self.rule).map(|paid| (paid, None)),
            false => account.compare(&self.rule).map(|(paid, comparison)| (paid, Some(comparison))),
        };
        let Some((paid, comparison)) = paid else { return nothing(outcome) };
        let operator = account.session.operator;
        let serial = self.serials.entry(operator).or_default();
        *serial += 1;
        let receipt = Receipt {
            broker: self.broker.clone(),
            operator,
            serial: *serial,
            time: now.as_secs(),
            pseudonym: report.pseudonym,
            cycle: paid.cycle,
            report: paid.report,
            verdict: paid.verdict,
            totals: paid.totals,
        };
        Accounted { outcome, receipt: Some(receipt), comparison }
    }
}

/// What is paid now.
struct Paid {
    cycle: u32,
    report: [u8; 32],
    verdict: Verdict,
    totals: Totals,
}

impl Account {
    fn side(&self, by: ReportedBy) -> &PartyReports {
        match by {
            ReportedBy::User => &self.of_user,
            ReportedBy::Operator => &self.of_operator,
        }
    }

    /// The newest cycle of the operator's of which both have reported, and the user's there, unless these were compared.
    fn comparable(&self) -> Option<(u32, u32)> {
        let last = self.compared.map_or(0, |(cycle, _)| cycle);
        let (ours, newest) = self.of_operator.points.last_key_value()?;
        // The operator has closed the session in an earlier cycle than the user.
        let (theirs, later) = self.of_user.points.last_key_value()?;
        let pair = match self.of_operator.facing(*theirs, later) {
            Some(n) if n == *ours && newest.closed && theirs > ours => Some((n, *theirs)),
            _ => {
                let mut cycles = self.of_operator.points.range(last..).rev();
                cycles.find_map(|(n, point)| Some((*n, self.of_user.facing(*n, point)?)))
            }
        };
        pair.filter(|pair| self.compared != Some(*pair))
    }

    /// Pays what both confirm, and says by how much they differ.
    fn compare(&mut self, rule: &PayRule) -> Option<(Paid, Comparison)> {
        let (cycle, of_user) = self.comparable()?;
        let (ours, theirs) = (*self.of_operator.at(cycle)?, *self.of_user.at(of_user)?);
        let former = self.compared.and_then(|(n, m)| self.of_operator.at(n).zip(self.of_user.at(m)));
        let none = Point {
            uplink: Direction::default(),
            downlink: Direction::default(),
            closed: false,
            end_ms: 0,
            report: [0; 32],
        };
        let (former_ours, former_theirs) = former.map_or((none, none), |(t, u)| (*t, *u));
        let mismatch = mismatch(rule, (&former_ours, &ours), (&former_theirs, &theirs));
        self.compared = Some((cycle, of_user));

        let (claimed, confirmed) = (ours.octets(), theirs.octets());
        let lesser = (claimed.0.min(confirmed.0), claimed.1.min(confirmed.1));
        let sum = (self.totals.paid.0.max(lesser.0), self.totals.paid.1.max(lesser.1));
        let due = cost(&self.session.price, sum);
        let micros = due.min(self.session.credit_micros);
        let verdict = match (due > micros, mismatch > 0) {
            (true, _) => Verdict::CreditUsed,
            (false, true) => Verdict::Reduced,
            (false, false) => Verdict::Confirmed,
        };
        let totals = self.advance(Totals { claimed, paid: sum, micros });

        let total = claimed.0 + claimed.1;
        let expected = expected(&theirs);
        let slack = rule.slack_octets.cast_signed();
        let difference = total.cast_signed() - expected.cast_signed();
        let beyond = difference.signum() * (difference.abs() - slack).max(0);
        let comparison = Comparison {
            user: self.session.user,
            operator: self.session.operator,
            expected: expected.saturating_sub(self.expected),
            excess_octets: beyond - self.judged,
            beyond_tolerance_octets: mismatch,
        };
        (self.expected, self.judged) = (expected, beyond);
        Some((Paid { cycle, report: ours.report, verdict, totals }, comparison))
    }

    /// Pays what the operator claims, up to the cap.
    fn believe(&mut self, rule: &PayRule) -> Option<Paid> {
        let (cycle, ours) = self.of_operator.points.last_key_value().map(|(n, p)| (*n, *p))?;
        if self.compared.is_some_and(|(n, _)| n >= cycle) {
            return None;
        }
        self.compared = Some((cycle, 0));
        let claimed = ours.octets();
        let due = cost(&self.session.price, claimed);
        let micros = due.min(rule.word_cap_micros).min(self.session.credit_micros);
        let totals = self.advance(Totals { claimed, paid: claimed, micros });
        Some(Paid { cycle, report: ours.report, verdict: Verdict::OperatorsWord, totals })
    }

    /// Goes on to these totals. Gives what is new.
    fn advance(&mut self, to: Totals) -> Totals {
        let before = core::mem::replace(&mut self.totals, to);
        let less = |a: (u64, u64), b: (u64, u64)| (a.0.saturating_sub(b.0), a.1.saturating_sub(b.1));
        Totals {
            claimed: less(to.claimed, before.claimed),
            paid: less(to.paid, before.paid),
            micros: to.micros.saturating_sub(before.micros),
        }
    }
}

fn point(signed: &SignedReport) -> Point {
    let SignedReport { report, .. } = signed;
    let (uplink, downlink) = (report.uplink, report.downlink);
    let (closed, end_ms) = (report.closed, report.end_ms);
    Point { uplink, downlink, closed, end_ms, report: hash(&signed.to_octets()) }
}

/// What the operator should have counted by what the user has, if both are honest: the downlink with what was
/// lost on the radio, the uplink without it.
fn expected(of_user: &Point) -> u64 {
    let (up, down) = (&of_user.uplink, &of_user.downlink);
    let with_lost = match down.packets {
        0 => u128::from(down.octets),
        packets => {
            u128::from(down.octets) * u128::from(packets.saturating_add(down.lost)) / u128::from(packets)
        }
    };
    let without_lost = u128::from(up.octets) * u128::from(1_000_000 - up.loss_ppm()) / 1_000_000;
    // A user that claims to have lost nearly all packets gains nothing: the broker pays for what arrives.
    u64::try_from(with_lost + without_lost)
        .map_or(2 * Direction::COUNT_MAX, |e| e.min(2 * Direction::COUNT_MAX))
}

/// The rule of chapter 3.4.3 in both directions, over the time since the last comparison: by how many octets
/// the operator claims more than the user's octets, loss and ε allow; below 0: by how many less. 0: no
/// mismatch.
fn mismatch(rule: &PayRule, ours: (&Point, &Point), theirs: (&Point, &Point)) -> i64 {
    let since = |(a, b): (&Direction, &Direction)| Direction {
        octets: b.octets.saturating_sub(a.octets),
        packets: b.packets.saturating_sub(a.packets),
        lost: b.lost.saturating_sub(a.lost),
        ..*b
    };
    let beyond = |claimed: u64, reference: u64, more_ppm: u64, less_ppm: u64| {
        let allowed = |ppm: u64| {
            let share = u128::from(claimed.max(reference)) * u128::from(ppm.min(1_000_000)) / 1_000_000;
            share as i64 + rule.slack_octets.cast_signed()
        };
        let difference = claimed.cast_signed() - reference.cast_signed();
        match difference {
            d if d > allowed(more_ppm) => d - allowed(more_ppm),
            d if -d > allowed(less_ppm) => d + allowed(less_ppm),
            _ => 0,
        }
    };
    let epsilon = rule.tolerance_ppm;
    let downlink = since((&theirs.0.downlink, &theirs.1.downlink));
    let uplink = since((&theirs.0.uplink, &theirs.1.uplink));
    let claimed = |of: fn(&Point) -> u64| of(ours.1).saturating_sub(of(ours.0));
    // Downlink: the operator sends, the user receives what is not lost. Uplink: the user sends, the operator receives what is not lost.
    let down =
        beyond(claimed(|p| p.downlink.octets), downlink.octets, downlink.loss_ppm() + epsilon, epsilon);
    let up = beyond(claimed(|p| p.uplink.octets), uplink.octets, epsilon, uplink.loss_ppm() + epsilon);
    // A claim that is too high is not excused by one that is too low.
    if down > 0 || up > 0 { down.max(0) + up.max(0) } else { down + up }
}

/// Whether the granted rate gives as many octets in the time, with a tenth and a MiB more for bursts.
fn is_plausible(report: &Report, qos: &Qos) -> bool {
    let most = |kbps: u32| {
        let octets = u128::from(kbps) * u128::from(report.end_ms) / 8;
        octets + octets / 10 + (1 << 20)
    };
    u128::from(report.uplink.octets) <= most(qos.ul_kbps)
        && u128::from(report.downlink.octets) <= most(qos.dl_kbps)
}
