//! Usage reports at a broker: operators' reports are checked, compared and paid, and the resulting
//! reputations decide later attaches (chapter 3.4.3; the rules are those of `whimbrel_open::usage`).

use std::collections::{BTreeMap, BTreeSet};

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_open::broker::{Broker, BrokerConfig};
use whimbrel_open::id::{OperatorId, UserId};
use whimbrel_open::msg::{Grant, Rejection};
use whimbrel_open::usage::{
    Accounts, Blame, Delivery, DeliveryAnswer, Judge, JudgeRule, OpenSession, Outcome, Party, PayRule,
    SignedReceipt, SignedReport,
};

use crate::storage::{Epoch, KnownOperator, NamedStanding, UsageBatch, UsageState};

/// The accounts and the judge of a broker.
#[derive(Debug)]
pub struct Accounting {
    accounts: Accounts,
    judge: Judge,
    newcomer_reputation: u16,
}

/// The result of a delivery.
#[derive(Debug)]
pub struct DeliveryOutcome {
    /// Its sender, and the highest number of a receipt that it has; an error says why it was rejected.
    pub sender: Result<(OperatorId, u64), Rejection>,
    /// What came of each report.
    pub outcomes: Vec<Outcome>,
    /// To be made durable before the answer leaves.
    pub batch: UsageBatch,
    /// The parties that are blamed now.
    pub blames: Vec<Blame>,
}

impl Accounting {
    /// Restores the accounts from the stored state.
    pub fn new(config: &BrokerConfig, state: UsageState) -> Self {
        let newcomer = config.policy.reputation_newcomer;
        let mut accounting = Self {
            accounts: Accounts::new(config.domain.clone(), PayRule::DEFAULT),
            judge: Judge::new(JudgeRule { newcomer_reputation: newcomer, ..JudgeRule::DEFAULT }),
            newcomer_reputation: newcomer,
        };
        state.grants.iter().for_each(|(user, grant)| accounting.open_session(grant, *user));
        for (at, report) in &state.reports {
            // The receipts of these have left.
            let accounted = accounting.accounts.take(*at, report);
            if let Some(comparison) = accounted.comparison {
                accounting.judge.observe(at.as_secs(), &comparison);
            }
        }
        state.serials.iter().for_each(|(o, serial)| accounting.accounts.continue_after(*o, *serial));
        accounting
    }

    /// A session was granted to a user.
    pub fn open_session(&mut self, grant: &Grant, user: UserId) {
        self.accounts.open(OpenSession::of_grant(grant, user));
    }

    /// Drops settled sessions.
    pub fn forget_settled(&mut self, now: Instant) {
        self.accounts.settle(now);
    }

    /// Authenticates a delivery and processes its reports. `names`: the staff's names of users.
    pub fn process_delivery(
        &mut self,
        octets: &[u8],
        now: Instant,
        broker: &Broker,
        epochs: &[Epoch],
        names: &BTreeMap<UserId, String>,
    ) -> DeliveryOutcome {
        let rejected = |cause| DeliveryOutcome {
            sender: Err(cause),
            outcomes: Vec::new(),
            batch: UsageBatch::default(),
            blames: Vec::new(),
        };
        let config = &broker.config;
        let Ok(delivery) = Delivery::parse(octets) else { return rejected(Rejection::Malformed) };
        let from = match delivery.authenticate(&config.domain, &config.trust, now) {
            Ok(from) => from,
            Err(cause) => return rejected(cause),
        };
        let mut delivered =
            DeliveryOutcome { sender: Ok((from, delivery.received)), ..rejected(Rejection::Busy) };
        let mut parties = BTreeSet::new();
        for sealed in &delivery.reports {
            let key = epochs.iter().find(|e| e.id == sealed.key_id).map(|e| &e.key);
            let report = key.and_then(|key| sealed.open(key));
            let outcome = report.map_or(Outcome::Sealed, |report| {
                let key = &delivery.certificate.key;
                self.report(now, (from, key), broker, report, &mut delivered, &mut parties)
            });
            delivered.outcomes.push(outcome);
        }
        delivered.batch.standings = parties.into_iter().map(|p| self.standing(p, now, names)).collect();
        delivered
    }

    fn report(
        &mut self,
        now: Instant,
        from: (OperatorId, &whimbrel_open::crypto::VerifyingKey),
        broker: &Broker,
        report: SignedReport,
        delivered: &mut DeliveryOutcome,
        parties: &mut BTreeSet<Party>,
    ) -> Outcome {
        let user_key = |user| broker.user(user).map(|u| u.key);
        let outcome = self.accounts.check(now, from, user_key, &report);
        if outcome != Outcome::Accepted {
            return outcome;
        }
        let accounted = self.accounts.take(now, &report);
        delivered.batch.reports.push((now, report));
        let receipt = accounted.receipt.map(|r| r.sign(&broker.config.signing));
        delivered.batch.receipts.extend(receipt);
        if let Some(comparison) = accounted.comparison {
            parties.extend([Party::Operator(comparison.operator), Party::User(comparison.user)]);
            delivered.blames.extend(self.judge.observe(now.as_secs(), &comparison));
        }
        accounted.outcome
    }

    fn standing(&self, party: Party, now: Instant, names: &BTreeMap<UserId, String>) -> NamedStanding {
        let of_user =
            |user| self.judge.users().find(|(u, _)| *u == user).map(|(_, s)| *s).unwrap_or_default();
        let (party, is_operator, standing, suspect) = match party {
            Party::Operator(id) => (id.to_string(), true, self.judge.operator(id), false),
            Party::User(id) => {
                let name = names.get(&id).cloned().unwrap_or_else(|| whimbrel_broker_client::hex(&id.0));
                (name, false, of_user(id), self.judge.is_suspect(id, now.as_secs()))
            }
        };
        let reputation = standing.reputation(self.newcomer_reputation, now.as_secs());
        NamedStanding { party, is_operator, reputation, suspect, standing }
    }

    /// Applies reputations and suspicions to later attaches. A reputation set by the staff takes precedence.
    pub fn apply_reputations(&self, now: Instant, broker: &mut Broker, operators: &[KnownOperator]) {
        let now_s = now.as_secs();
        let set = |id: OperatorId| operators.iter().any(|o| o.id == id && o.reputation.is_some());
        for (id, standing) in self.judge.operators().filter(|(id, _)| !set(*id)) {
            broker.set_reputation(id, standing.reputation(self.newcomer_reputation, now_s));
        }
        for (id, _) in self.judge.users() {
            broker.set_suspect(id, self.judge.is_suspect(id, now_s));
        }
    }

    /// Logs the parties that reports blame.
    pub fn log(&self, now: Instant, blames: &[Blame], names: &BTreeMap<UserId, String>) {
        for Blame { party, counterparts, .. } in blames {
            match party {
                Party::Operator(id) => warn!(
                    operator = %id,
                    reputation = self.judge.reputation(*id, now.as_secs()),
                    "usage reports of the operator exceed those of {counterparts} users: reputation lowered"
                ),
                Party::User(id) => warn!(
                    user = names.get(id).map_or("unknown", String::as_str),
                    "usage reports of the user are below those of {counterparts} operators: no further grants"
                ),
            }
        }
    }
}

impl DeliveryOutcome {
    /// The answer for the operator, with the receipts that it lacks.
    pub fn answer(&self, octets: &[u8], broker: &Broker, receipts: Vec<SignedReceipt>) -> Vec<u8> {
        let config = &broker.config;
        let certificate = config.certificate.clone();
        match self.sender {
            Err(cause) => DeliveryAnswer::rejected(certificate, octets, cause),
            Ok(_) => {
                let outcomes = self.outcomes.iter().map(|o| *o as u8).collect();
                let (key, signing) = (broker.epoch(), &config.signing);
                DeliveryAnswer::signed(certificate, octets, key, outcomes, receipts, signing)
            }
        }
        .to_octets()
    }

    /// Logs what was not accepted, once for each reason.
    pub fn log(&self) {
        match self.sender {
            Err(cause) => {
                info!("rejected usage reports: the operator could not be authenticated: {cause}");
            }
            Ok((operator, _)) => {
                let odd = |o: &&Outcome| !matches!(o, Outcome::Accepted | Outcome::Doubled);
                for outcome in self.outcomes.iter().filter(odd).collect::<BTreeSet<_>>() {
                    info!(%operator, "a usage report was not accepted: {outcome}");
                }
            }
        }
    }
}
