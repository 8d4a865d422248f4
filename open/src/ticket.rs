//! Tickets: who attached before passes first while the broker is flooded.

use std::collections::BTreeSet;

use aes_gcm::Aes128Gcm;
use aes_gcm::aead::KeyInit;
use core::time::Duration;
use whimbrel_ids::Instant;

use crate::crypto::{Seed, seal, unseal};
use crate::msg::{TICKET_OCTETS, Ticket};

/// How long a ticket is good: long enough for a phone that is off over a holiday.
pub const TICKET_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// The most used tickets that B remembers: 24 octets each, so 24 MiB and something. Beyond, no ticket is taken until some expire.
const USED_MAX: usize = 1 << 20;

/// The broker's tickets: it keeps the key and those that were used, not those that it gave out.
pub struct Tickets {
    cipher: Aes128Gcm,
    /// Used ones: expiry in seconds, serial number.
    used: BTreeSet<(u64, u64)>,
}

impl core::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Tickets({} used, …)", self.used.len())
    }
}

impl Tickets {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { cipher: Aes128Gcm::new(&key.into()), used: BTreeSet::new() }
    }

    /// A new ticket.
    pub(crate) fn issue(&self, now: Instant, seed: &Seed) -> Ticket {
        let (nonce, serial) = (seed.derive::<12>("ticket nonce"), seed.derive::<8>("ticket serial"));
        let until = (now + TICKET_LIFE).as_secs();
        let plain = [&serial[..], &until.to_be_bytes()].concat();
        let sealed = seal(&self.cipher, &nonce, &plain);
        let mut ticket = [0; TICKET_OCTETS];
        ticket[..12].copy_from_slice(&nonce[..]);
        ticket[12..].copy_from_slice(&sealed);
        Ticket(ticket)
    }

    /// Whether the ticket is ours, good now and unused; then it is used up.
    pub fn redeem(&mut self, ticket: &Ticket, now: Instant) -> bool {
        while self.used.first().is_some_and(|(until, _)| *until < now.as_secs()) {
            self.used.pop_first();
        }
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&ticket.0[..12]);
        let Some(plain) = unseal(&self.cipher, &nonce, &ticket.0[12..]) else { return false };
        let (serial, until) = plain.split_at(8);
        let number = |octets: &[u8]| octets.iter().fold(0, |v, o| v << 8 | u64::from(*o));
        let (serial, until) = (number(serial), number(until));
        until >= now.as_secs() && self.used.len() < USED_MAX && self.used.insert((until, serial))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_800_000_000_000_000);

    #[test]
    fn a_ticket_is_good_once_and_until_it_expires() {
        let mut tickets = Tickets::new([1; 16]);
        let [a, b] = [1, 2].map(|n| tickets.issue(NOW, &Seed::new([n; 32])));
        assert!(tickets.redeem(&a, NOW) && !tickets.redeem(&a, NOW));
        assert!(!tickets.redeem(&b, NOW + TICKET_LIFE + Duration::from_secs(1)));
        assert!(tickets.used.is_empty());
        assert!(tickets.redeem(&b, NOW + TICKET_LIFE));
    }

    #[test]
    fn a_forged_or_another_brokers_ticket_is_not_taken() {
        let mut tickets = Tickets::new([1; 16]);
        let mut ticket = tickets.issue(NOW, &Seed::new([1; 32]));
        assert!(!Tickets::new([2; 16]).redeem(&ticket, NOW));
        ticket.0[20] ^= 1;
        assert!(!tickets.redeem(&ticket, NOW));
    }
}
