//! Which party the broker believes: residuals, blame, and reputation (chapter 3.4.3, which leaves the score open).
//!
//! - **Residual.** Each comparison gives a signed residual: by which share of the octets the operator claims
//!   more than the user's report lets expect. Honest counters differ by up to 0.9 % a report and to both
//!   sides; a one-sided CUSUM with an allowance of 0.5 % stays near 0 for them and rises by half a percent a
//!   report for an operator that adds 1 %.
//! - **Blame.** A pair whose sum is high says that one of two is dishonest, not which. The score of a pair is
//!   its vote, from 0 to 1. An operator is blamed when the mean vote of at least five users is high, a user
//!   when that of at least three operators is: the fewer they are, the higher. Of an operator's users those
//!   that reported last weigh most. A vote weighs less the more its voter is in dispute with *others*, and
//!   nothing if the voter is blamed itself; newcomers weigh half.
//! - **Caps.** A pair has one vote, whatever it reports, and adds at most ten good comparisons to a reputation.
//! - **Reputation.** From that of a newcomer up to 100 by good comparisons of many pairs; each blame divides
//!   it by four, and is half forgotten after 30 days.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::{OperatorId, UserId};

/// What two reports of a session say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Identity of the user.
    pub user: UserId,
    /// Identity of the operator.
    pub operator: OperatorId,
    /// Octets since the last comparison that the operator should have counted by the user's report.
    pub expected: u64,
    /// By how many more octets the operator claims: below 0, fewer.
    pub excess_octets: i64,
    /// By how many octets the rule of chapter 3.4.3 is broken; 0: it holds.
    pub beyond_tolerance_octets: i64,
}

/// The numbers of the judge.
#[derive(Clone, Copy, Debug)]
pub struct JudgeRule {
    /// What is taken from each residual, in millionths: half of the smallest overstatement that is to be found.
    pub allowance_ppm: i64,
    /// The sum of residuals at which a pair's vote is 1, in millionths.
    pub full_vote_ppm: i64,
    /// A residual counts as at most so much, in millionths: one report alone fills no pair's sum twice.
    pub residual_cap_ppm: i64,
    /// Octets under which a residual is a share of this many.
    pub reference_octets_min: u64,
    /// Users without which no operator is blamed.
    pub users_min: usize,
    /// Operators without which no user is blamed.
    pub operators_min: usize,
    /// The reputation of a newcomer.
    pub newcomer_reputation: u16,
}

impl JudgeRule {
    /// An operator that adds 1 % to noise of up to 0.9 % is found after some eight reports a user.
    pub const DEFAULT: Self = Self {
        allowance_ppm: 5_000,
        full_vote_ppm: 40_000,
        residual_cap_ppm: 45_000,
        reference_octets_min: 16 << 10,
        users_min: 5,
        operators_min: 3,
        newcomer_reputation: 20,
    };
}

/// Good comparisons of one pair that count.
const PAIR_GOOD_MAX: u32 = 10;
/// Good comparisons that lead halfway from a newcomer's reputation to the highest.
const GOOD_HALFWAY: u64 = 100;
/// The highest reputation.
const REPUTATION_MAX: u64 = 100;
/// A vote, a weight and a blame, in thousandths.
const UNIT_MILLI: u64 = 1_000;
/// A voter that weighs less does not count towards the least number.
const WEIGHT_MIN: u64 = 300;
/// An operator is judged by as many users, those that reported last.
const RECENT_USERS: usize = 60;
/// So much the least number of voters must weigh on average, in thousandths: six newcomers weigh as much as five that are known a
/// little.
const MIN_MEAN_WEIGHT: u64 = 510;
/// After so many further users a vote weighs half: an operator that begins to overstate is not covered by users that saw it honest.
const HALF_WEIGHT_USERS: usize = 20;
/// The mean vote above which many counterparts blame, in thousandths, and the square of what is added for few: with five of them it is
/// 0.85, with sixty 0.6, so that a third of a party's counterparts that are dishonest do not reach it by chance.
const BLAME_THRESHOLD: u64 = 500;
const SMALL_SAMPLE_MARGIN_SQUARED: u64 = 600_000;
/// Voters that are looked at: the error of the mean of so many is far below what separates dishonest parties from others.
const VOTERS_MAX: usize = 64;
/// After this time half of a blame is forgotten.
const HALF_LIFE_S: u64 = 30 * 86_400;

/// A party of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// The operator claims too much.
    Operator(OperatorId),
    /// The user confirms too little.
    User(UserId),
}

/// The party to blame for a residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The party that is blamed.
    pub party: Party,
    /// How many counterparts say so.
    pub counterparts: usize,
    /// Their mean vote, in thousandths.
    pub vote: u64,
}

/// The record that the broker has of a user–the operator pair.
#[derive(Clone, Copy, Debug, Default)]
struct UserOperatorPair {
    /// CUSUM, in millionths.
    cusum_ppm: i64,
    reports: u32,
    good: u32,
}

/// The reputation of a party at the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Number of comparisons.
    pub reports: u64,
    /// Good comparisons that count.
    pub good: u64,
    /// Comparisons against the rule of chapter 3.4.3.
    pub mismatches: u64,
    /// By how many octets in all.
    pub mismatch_octets: u64,
    /// Number of blames.
    pub blames: u32,
    /// What is not forgotten of them, in thousandths, at `bad_updated_s`.
    bad: u64,
    bad_updated_s: u64,
}

impl Standing {
    /// What is not forgotten of blames, in thousandths.
    fn bad_at(&self, now_s: u64) -> u64 {
        let age = now_s.saturating_sub(self.bad_updated_s);
        let (halves, rest) = (age / HALF_LIFE_S, age % HALF_LIFE_S);
        let bad = self.bad.checked_shr(u32::try_from(halves).unwrap_or(u32::MAX)).unwrap_or(0);
        bad - bad * rest / (2 * HALF_LIFE_S)
    }

    fn record_blame(&mut self, now_s: u64) {
        (self.bad, self.bad_updated_s) = (self.bad_at(now_s) + UNIT_MILLI, now_s);
        self.blames = self.blames.saturating_add(1);
    }

    /// The reputation, 0 to 100.
    pub fn reputation(&self, newcomer: u16, now_s: u64) -> u16 {
        let newcomer = u64::from(newcomer).min(REPUTATION_MAX);
        let earned = newcomer + (REPUTATION_MAX - newcomer) * self.good / (self.good + GOOD_HALFWAY);
        // A quarter for each blame: half for each half.
        let halvings = 2 * self.bad_at(now_s);
        let left = earned.checked_shr(u32::try_from(halvings / UNIT_MILLI).unwrap_or(u32::MAX)).unwrap_or(0);
        u16::try_from(left - left * (halvings % UNIT_MILLI) / (2 * UNIT_MILLI)).unwrap_or(u16::MAX)
    }
}

/// The broker's memory of all parties.
#[derive(Clone, Debug)]
pub struct Judge {
    rule: JudgeRule,
    pairs: BTreeMap<(OperatorId, UserId), UserOperatorPair>,
    /// The users that reported last of each operator, the newest at the end.
    recent: BTreeMap<OperatorId, VecDeque<UserId>>,
    by_user: BTreeMap<UserId, BTreeSet<OperatorId>>,
    operators: BTreeMap<OperatorId, Standing>,
    users: BTreeMap<UserId, Standing>,
}

impl Judge {
    /// Knows no party.
    pub fn new(rule: JudgeRule) -> Self {
        Self {
            rule,
            pairs: BTreeMap::new(),
            recent: BTreeMap::new(),
            by_user: BTreeMap::new(),
            operators: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }

    /// Takes a comparison in. Gives the blames that it leads to, the operator's before the user's.
    pub fn observe(&mut self, now_s: u64, c: &Comparison) -> Vec<Blame> {
        let rule = self.rule;
        let reference = c.expected.max(rule.reference_octets_min);
        let residual = i128::from(c.excess_octets) * 1_000_000 / i128::from(reference);
        let most = i128::from(rule.residual_cap_ppm);
        let residual = i64::try_from(residual.clamp(-most, most)).unwrap_or(0);
        let recent = self.recent.entry(c.operator).or_default();
        recent.retain(|user| *user != c.user);
        recent.push_back(c.user);
        if recent.len() > RECENT_USERS {
            recent.pop_front();
        }
        let pair = self.pairs.entry((c.operator, c.user)).or_default();
        self.by_user.entry(c.user).or_default().insert(c.operator);
        pair.cusum_ppm = (pair.cusum_ppm + residual - rule.allowance_ppm).clamp(0, 2 * rule.full_vote_ppm);
        pair.reports = pair.reports.saturating_add(1);
        let suspicious = pair.cusum_ppm > rule.full_vote_ppm / 2;
        let good = c.beyond_tolerance_octets == 0 && !suspicious && pair.good < PAIR_GOOD_MAX;
        pair.good += u32::from(good);
        let standings =
            [self.operators.entry(c.operator).or_default(), self.users.entry(c.user).or_default()];
        for standing in standings {
            standing.reports += 1;
            standing.good += u64::from(good);
            standing.mismatches += u64::from(c.beyond_tolerance_octets != 0);
            standing.mismatch_octets =
                standing.mismatch_octets.saturating_add(c.beyond_tolerance_octets.unsigned_abs());
        }
        if !suspicious {
            return Vec::new();
        }
        self.judge_operator(c.operator, now_s).into_iter().chain(self.judge_user(c.user, now_s)).collect()
    }

    /// The vote of a pair, in thousandths.
    fn vote(&self, pair: &UserOperatorPair) -> u64 {
        (pair.cusum_ppm.min(self.rule.full_vote_ppm).unsigned_abs() * UNIT_MILLI)
            / self.rule.full_vote_ppm.unsigned_abs().max(1)
    }

    fn is_bad(standing: Option<&Standing>, now_s: u64) -> bool {
        standing.is_some_and(|s| s.bad_at(now_s) >= UNIT_MILLI / 2)
    }

    /// What a voter weighs, in thousandths: one that is in dispute with most of its other counterparts little.
    fn weight(&self, standing: Option<&Standing>, now_s: u64, others: impl Iterator<Item = u64>) -> u64 {
        if Self::is_bad(standing, now_s) {
            return 0;
        }
        let (mut sum, mut count) = (0_u64, 0);
        for vote in others.take(VOTERS_MAX) {
            (sum, count) = (sum + vote, count + 1);
        }
        let in_dispute = sum.checked_div(count).unwrap_or(0);
        let known = standing.map_or(0, |s| s.good).min(u64::from(PAIR_GOOD_MAX));
        let known = UNIT_MILLI / 2 + UNIT_MILLI / 2 * known / u64::from(PAIR_GOOD_MAX);
        (UNIT_MILLI - in_dispute) * known / UNIT_MILLI
    }

    /// What a user weighs in the judgement of an operator.
    fn weight_of_user(&self, user: UserId, judged: OperatorId, now_s: u64) -> u64 {
        let others = self
            .pairs_of_user(user)
            .filter(|(o, _)| *o != judged && !Self::is_bad(self.operators.get(o), now_s));
        self.weight(self.users.get(&user), now_s, others.map(|(_, pair)| self.vote(pair)))
    }

    fn weight_of_operator(&self, operator: OperatorId, judged: UserId, now_s: u64) -> u64 {
        let others = self
            .pairs_of_operator(operator)
            .filter(|(u, _)| *u != judged && !Self::is_bad(self.users.get(u), now_s));
        self.weight(self.operators.get(&operator), now_s, others.map(|(_, pair)| self.vote(pair)))
    }

    fn pairs_of_user(&self, user: UserId) -> impl Iterator<Item = (OperatorId, &UserOperatorPair)> {
        let of_user = self.by_user.get(&user).into_iter().flatten();
        of_user.filter_map(move |operator| Some((*operator, self.pairs.get(&(*operator, user))?)))
    }

    fn pairs_of_operator(&self, operator: OperatorId) -> impl Iterator<Item = (UserId, &UserOperatorPair)> {
        let all = (operator, UserId([0; 16]))..=(operator, UserId([0xff; 16]));
        self.pairs.range(all).map(|((_, user), pair)| (*user, pair))
    }

    fn judge_operator(&mut self, operator: OperatorId, now_s: u64) -> Option<Blame> {
        let recent = self.recent.get(&operator).into_iter().flatten();
        let voters = recent.filter_map(|user| Some((*user, self.pairs.get(&(operator, *user))?)));
        let count = voters.clone().count();
        let votes: Vec<_> = voters
            .enumerate()
            .map(|(n, (user, pair))| Ballot {
                weight: self.weight_of_user(user, operator, now_s),
                recency_weight: recency_weight(count - 1 - n),
                vote: self.vote(pair),
            })
            .collect();
        let (counterparts, vote) = verdict(&votes, self.rule.users_min)?;
        self.operators.entry(operator).or_default().record_blame(now_s);
        let users: Vec<UserId> = self.pairs_of_operator(operator).map(|(user, _)| user).collect();
        users.into_iter().for_each(|user| self.reset_cusum((operator, user)));
        Some(Blame { party: Party::Operator(operator), counterparts, vote })
    }

    fn judge_user(&mut self, user: UserId, now_s: u64) -> Option<Blame> {
        let voters: Vec<_> = self
            .pairs_of_user(user)
            .take(VOTERS_MAX)
            .map(|(operator, pair)| Ballot {
                weight: self.weight_of_operator(operator, user, now_s),
                recency_weight: UNIT_MILLI,
                vote: self.vote(pair),
            })
            .collect();
        let (counterparts, vote) = verdict(&voters, self.rule.operators_min)?;
        self.users.entry(user).or_default().record_blame(now_s);
        let operators: Vec<OperatorId> = self.pairs_of_user(user).map(|(operator, _)| operator).collect();
        operators.into_iter().for_each(|operator| self.reset_cusum((operator, user)));
        Some(Blame { party: Party::User(user), counterparts, vote })
    }

    /// The next blame needs new evidence.
    fn reset_cusum(&mut self, pair: (OperatorId, UserId)) {
        if let Some(pair) = self.pairs.get_mut(&pair) {
            pair.cusum_ppm = 0;
        }
    }

    /// What is known of an operator.
    pub fn operator(&self, operator: OperatorId) -> Standing {
        self.operators.get(&operator).copied().unwrap_or_default()
    }

    /// An operator's reputation.
    pub fn reputation(&self, operator: OperatorId, now_s: u64) -> u16 {
        self.operator(operator).reputation(self.rule.newcomer_reputation, now_s)
    }

    /// All operators of which there are reports.
    pub fn operators(&self) -> impl Iterator<Item = (OperatorId, &Standing)> {
        self.operators.iter().map(|(o, s)| (*o, s))
    }

    /// All users of which there are reports.
    pub fn users(&self) -> impl Iterator<Item = (UserId, &Standing)> {
        self.users.iter().map(|(u, s)| (*u, s))
    }

    /// Whether a user is on the list of suspects: blamed, and not forgotten.
    pub fn is_suspect(&self, user: UserId, now_s: u64) -> bool {
        Self::is_bad(self.users.get(&user), now_s)
    }
}

/// A vote, what its voter weighs and how recent it is, in thousandths.
struct Ballot {
    weight: u64,
    recency_weight: u64,
    vote: u64,
}

/// What a vote weighs after which so many further users have reported.
fn recency_weight(further: usize) -> u64 {
    let (halves, rest) = (further / HALF_WEIGHT_USERS, further % HALF_WEIGHT_USERS);
    let whole = UNIT_MILLI >> halves;
    whole - whole * rest as u64 / (2 * HALF_WEIGHT_USERS as u64)
}

/// Whether weighted votes of enough counterparts blame: how many they are, and their mean vote.
fn verdict(ballots: &[Ballot], counterparts_min: usize) -> Option<(usize, u64)> {
    let counted = || ballots.iter().filter(|b| b.weight >= WEIGHT_MIN);
    let weight: u64 = counted().map(|b| b.weight * b.recency_weight).sum();
    let vote: u64 = counted().map(|b| b.weight * b.recency_weight * b.vote).sum();
    let counterparts = counted().count();
    let mean = vote.checked_div(weight)?;
    if counted().map(|b| b.weight).sum::<u64>() < MIN_MEAN_WEIGHT * counterparts_min as u64 {
        return None;
    }
    let more = SMALL_SAMPLE_MARGIN_SQUARED.checked_div(counterparts as u64)?.isqrt();
    (counterparts >= counterparts_min && mean > BLAME_THRESHOLD + more).then_some((counterparts, mean))
}
