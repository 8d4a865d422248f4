//! The account of a subscriber, and its arithmetic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_ids::Supi;

/// The greatest credit of an account, in octets: the greatest number that every reader of JSON has exactly (RFC 8259 §6).
pub const CREDIT_MAX: u64 = (1 << 53) - 1;

/// How a subscriber pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccountKind {
    /// From a credit in octets.
    Prepaid,
    /// Without a limit: usage is recorded.
    Postpaid,
}

/// Permission of a subscriber to use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccountStatus {
    /// Quotas are granted.
    #[default]
    Active,
    /// No quota is granted.
    Barred,
}

/// The account of a subscriber, in octets.
///
/// `credited + overdraft = balance + reserved + used`, and an account with an overdraft has no balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Subscriber that has the account.
    #[serde(with = "supi_text")]
    #[schemars(with = "String")]
    pub supi: Supi,
    /// How it pays.
    pub kind: AccountKind,
    /// Permission to use the network.
    pub status: AccountStatus,
    /// Octets that were credited in all.
    pub credited_octets: u64,
    /// Octets that are left and not reserved.
    pub balance_octets: u64,
    /// Octets that are reserved for open sessions.
    pub reserved_octets: u64,
    /// Octets that were used on credit.
    pub used_octets: u64,
    /// Octets that were used beyond the credit. The next credit pays them first.
    pub overdraft_octets: u64,
    /// Octets that were used while the account was postpaid.
    pub postpaid_octets: u64,
}

/// A SUPI as people write it.
mod supi_text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use whimbrel_ids::Supi;

    pub(super) fn serialize<S: Serializer>(supi: &Supi, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(supi)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Supi, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|_| D::Error::custom("no SUPI such as imsi-999700000000001"))
    }
}

impl Account {
    /// An account without credit.
    pub fn new(supi: Supi, kind: AccountKind) -> Self {
        Self {
            supi,
            kind,
            status: AccountStatus::Active,
            credited_octets: 0,
            balance_octets: 0,
            reserved_octets: 0,
            used_octets: 0,
            overdraft_octets: 0,
            postpaid_octets: 0,
        }
    }

    /// Changes the credit. `None` if the account would have more than [`CREDIT_MAX`], or if more is taken back than is left.
    pub(crate) fn credit(&mut self, octets: i64) -> Option<()> {
        let (change, credited) = (octets.unsigned_abs(), self.credited_octets);
        if octets < 0 {
            self.balance_octets = self.balance_octets.checked_sub(change)?;
            self.credited_octets = credited.checked_sub(change)?;
            return Some(());
        }
        self.credited_octets = credited.checked_add(change).filter(|credited| *credited <= CREDIT_MAX)?;
        self.pay_in(change);
        Some(())
    }

    /// Adds free octets, of which an overdraft is paid first.
    fn pay_in(&mut self, octets: u64) {
        let paid = octets.min(self.overdraft_octets);
        self.overdraft_octets -= paid;
        self.balance_octets += octets - paid;
    }

    /// Reserves up to `requested` octets of what is left.
    pub(crate) fn reserve(&mut self, requested: u64) -> u64 {
        let granted = requested.min(self.balance_octets);
        self.balance_octets -= granted;
        self.reserved_octets += granted;
        granted
    }

    /// Gives a reservation back.
    pub(crate) fn give_back(&mut self, reserved: u64) {
        self.reserved_octets -= reserved;
        self.pay_in(reserved);
    }

    /// Settles usage: from its reservation, then from what is left, then as overdraft. Returns what remains of the reservation; `None` if a
    /// counter cannot hold the usage.
    pub(crate) fn settle(&mut self, reserved: u64, used: u64) -> Option<u64> {
        const COUNTER_MAX: u64 = i64::MAX.unsigned_abs();
        let add = |counter: u64| counter.checked_add(used).filter(|sum| *sum <= COUNTER_MAX);
        if self.kind == AccountKind::Postpaid {
            self.give_back(reserved);
            self.postpaid_octets = add(self.postpaid_octets)?;
            return Some(0);
        }
        self.used_octets = add(self.used_octets)?;
        let from_reservation = used.min(reserved);
        let from_balance = (used - from_reservation).min(self.balance_octets);
        self.reserved_octets -= from_reservation;
        self.balance_octets -= from_balance;
        self.overdraft_octets += used - from_reservation - from_balance;
        Some(reserved - from_reservation)
    }

    /// True if each octet is in one place.
    pub fn is_balanced(&self) -> bool {
        let sources = u128::from(self.credited_octets) + u128::from(self.overdraft_octets);
        let places = [self.balance_octets, self.reserved_octets, self.used_octets];
        sources == places.map(u128::from).iter().sum::<u128>()
            && (self.overdraft_octets == 0 || self.balance_octets == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(credit: i64) -> Account {
        let mut account = Account::new("imsi-999700000000001".parse().unwrap(), AccountKind::Prepaid);
        account.credit(credit).unwrap();
        account
    }

    #[test]
    fn usage_beyond_the_credit_is_an_overdraft_that_the_next_credit_pays() {
        let mut account = account(100);
        assert_eq!(account.reserve(60), 60);
        assert_eq!(account.settle(60, 130), Some(0));
        assert_eq!((account.balance_octets, account.overdraft_octets, account.used_octets), (0, 30, 130));
        assert!(account.is_balanced());
        account.credit(50).unwrap();
        assert_eq!((account.balance_octets, account.overdraft_octets), (20, 0));
        assert!(account.is_balanced());
    }

    #[test]
    fn a_reservation_that_is_given_back_pays_an_overdraft_first() {
        let mut account = account(100);
        let (first, second) = (account.reserve(50), account.reserve(50));
        account.settle(first, 80).unwrap();
        assert_eq!(account.overdraft_octets, 30);
        account.give_back(second);
        assert_eq!((account.balance_octets, account.overdraft_octets, account.reserved_octets), (20, 0, 0));
        assert!(account.is_balanced());
    }

    #[test]
    fn credit_is_bounded_and_is_not_taken_back_below_nothing() {
        let mut account = account(100);
        assert_eq!(account.clone().credit(-101), None);
        account.reserve(40);
        assert_eq!(account.clone().credit(-61), None);
        account.credit(-60).unwrap();
        assert!(account.is_balanced());
        assert_eq!(account.credit(CREDIT_MAX as i64), None);
    }

    #[test]
    fn usage_that_no_counter_holds_is_refused() {
        let mut account = account(0);
        let half = 1 << 62;
        account.settle(0, half).unwrap();
        assert_eq!(account.settle(0, half), None);
    }
}
