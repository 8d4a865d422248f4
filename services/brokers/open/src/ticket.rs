//! Tickets: a UE that attached before is served first while the broker is flooded.
//!
//! A ticket names its user and a number, under the broker's own key. The broker keeps one number for each user, the lowest that is
//! not used up, and so remembers no tickets: one is good if its number is not below that.

use whimbrel_broker_common::envelope::Cipher;

use crate::crypto::{SAP, Seed};
use crate::id::UserId;
use crate::msg::{TICKET_OCTETS, Ticket};

/// The keys under which a broker makes tickets.
///
/// Nonces are random, so a key must be renewed before it has made 2^32 tickets: at 2,000 attaches a second, every three weeks.
pub(crate) struct Tickets {
    current: Cipher,
    former: Option<Cipher>,
}

impl core::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Tickets(…)")
    }
}

impl Tickets {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { current: Cipher::new(&key), former: None }
    }

    /// Takes a new key. Tickets of the former one stay good until the next renewal.
    pub(crate) fn renew(&mut self, key: [u8; 16]) {
        self.former = Some(core::mem::replace(&mut self.current, Cipher::new(&key)));
    }

    /// A ticket of `user` with this number.
    pub(crate) fn issue(&self, user: UserId, number: u64, seed: &Seed) -> Ticket {
        let nonce = SAP.draw::<12>(seed, "ticket nonce");
        let plain = [&user.0[..], &number.to_be_bytes()].concat();
        let mut ticket = [0; TICKET_OCTETS];
        ticket[..12].copy_from_slice(&nonce[..]);
        ticket[12..].copy_from_slice(&self.current.seal(&nonce, &plain));
        Ticket(ticket)
    }

    /// Whose ticket it is and its number, if this broker made it.
    pub(crate) fn open(&self, ticket: &Ticket) -> Option<(UserId, u64)> {
        let (nonce, sealed) = ticket.0.split_first_chunk::<12>()?;
        let former = || self.former.as_ref().and_then(|key| key.open(nonce, sealed));
        let plain = self.current.open(nonce, sealed).or_else(former)?;
        let (user, number) = plain.split_first_chunk::<16>()?;
        Some((UserId(*user), u64::from_be_bytes(number.try_into().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: UserId = UserId([7; 16]);

    #[test]
    fn a_ticket_opens_for_its_broker_until_the_second_renewal() {
        let mut tickets = Tickets::new([1; 16]);
        let ticket = tickets.issue(USER, 5, &Seed::new([1; 32]));
        assert_eq!(tickets.open(&ticket), Some((USER, 5)));
        tickets.renew([2; 16]);
        assert_eq!(tickets.open(&ticket), Some((USER, 5)));
        tickets.renew([3; 16]);
        assert_eq!(tickets.open(&ticket), None);
    }

    #[test]
    fn a_forged_ticket_does_not_open_and_two_of_a_user_look_different() {
        let tickets = Tickets::new([1; 16]);
        let [mut a, b] = [1, 2].map(|n| tickets.issue(USER, 5, &Seed::new([n; 32])));
        assert!(a.0.iter().zip(b.0).filter(|(a, b)| *a == b).count() < TICKET_OCTETS / 4);
        a.0[20] ^= 1;
        assert_eq!(tickets.open(&a), None);
    }
}
