//! What the operator thinks of a broker: whether it answers and pays (chapter 3.4.3: a score for each broker).

/// What the operator has claimed from a broker, and what the broker has paid for. Both are halved now and
/// then, so that what is recent weighs more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerStanding {
    claimed: u64,
    paid: u64,
}

impl BrokerStanding {
    /// Octets that the operator serves before a broker's payment is judged: what a new broker is trusted with.
    pub const TRUSTED_OCTETS: u64 = 64 << 20;
    /// Past so many octets both are halved.
    const HALVED_AT: u64 = 16 * Self::TRUSTED_OCTETS;

    /// The operator has reported so many octets more.
    pub fn claim(&mut self, octets: u64) {
        self.claimed = self.claimed.saturating_add(octets);
        if self.claimed > Self::HALVED_AT {
            (self.claimed, self.paid) = (self.claimed / 2, self.paid / 2);
        }
    }

    /// The broker pays for so many octets more.
    pub fn pay(&mut self, octets: u64) {
        self.paid = self.paid.saturating_add(octets).min(self.claimed);
    }

    /// 0 to 100: the share of octets that is paid for, after those that a new broker is trusted with.
    pub fn reputation(&self) -> u16 {
        let judged = self.claimed.saturating_sub(Self::TRUSTED_OCTETS);
        if judged == 0 {
            return 100;
        }
        let covered = u128::from(self.paid.saturating_add(Self::TRUSTED_OCTETS).min(self.claimed));
        u16::try_from(covered * 100 / u128::from(self.claimed)).unwrap_or(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_does_not_pay_falls_after_what_it_is_trusted_with() {
        let mut silent = BrokerStanding::default();
        silent.claim(BrokerStanding::TRUSTED_OCTETS);
        assert_eq!(silent.reputation(), 100);
        silent.claim(3 * BrokerStanding::TRUSTED_OCTETS);
        assert_eq!(silent.reputation(), 25);
        silent.pay(3 * BrokerStanding::TRUSTED_OCTETS);
        assert_eq!(silent.reputation(), 100);
    }

    #[test]
    fn what_was_paid_long_ago_is_forgotten() {
        let mut standing = BrokerStanding::default();
        for _ in 0..100 {
            standing.claim(BrokerStanding::TRUSTED_OCTETS);
            standing.pay(BrokerStanding::TRUSTED_OCTETS);
        }
        (0..100).for_each(|_| standing.claim(BrokerStanding::TRUSTED_OCTETS));
        assert!(standing.reputation() < 20, "{}", standing.reputation());
    }
}
