//! Tunnels that peers name and no session has: a peer that names many is guessing, or has lost track.
//!
//! Each is counted (`unknown_tunnel`), and answered by an error indication within two bounds, of all peers and of each. A peer that names more in a
//! second than a gNB does after a restart of this UPF is suspended for a while: packets of a session are taken from it only if that session's rules
//! name it, not because others' do. So a gNB that guesses hits no tunnel but its own; the permutation of TEIDs
//! ([`Teids`](crate::session_id::Teids)) keeps guesses from being better than chance.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_ids::Instant;

use crate::limits::{ERROR_INDICATIONS_PER_PEER_MAX, TEID_GUESSING_PEERS_MAX, UNKNOWN_TUNNELS_PER_PEER_MAX};

/// How long a peer is suspended after the last second in which it named too many: longer than it takes to say them all again.
const SUSPENDED_FOR: Duration = Duration::from_secs(60);

struct GuessedPeer {
    address: IpAddr,
    /// The present second, and what happened in it.
    second: u64,
    wrong: u32,
    answered: u32,
    suspended_until: Instant,
    last: Instant,
}

/// Peers that named such tunnels lately, in one pipeline; the one that did so longest ago gives way.
#[derive(Default)]
pub(super) struct Guesses(Vec<GuessedPeer>);

/// What is to be done about a tunnel that no session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// An Error Indication may be sent to the peer.
    pub(super) indicate: bool,
    /// It was suspended by this one.
    pub(super) suspends: bool,
}

impl Guesses {
    /// A peer has named a tunnel that no session has.
    pub(super) fn wrong(&mut self, now: Instant, address: IpAddr) -> Wrong {
        let at = match self.0.iter().position(|p| p.address == address) {
            Some(at) => at,
            None => self.place(address),
        };
        let Some(peer) = self.0.get_mut(at) else { return Wrong { indicate: false, suspends: false } };
        if peer.second != now.as_secs() {
            (peer.second, peer.wrong, peer.answered) = (now.as_secs(), 0, 0);
        }
        peer.last = now;
        peer.wrong = peer.wrong.saturating_add(1);
        let mut suspends = false;
        if peer.wrong > UNKNOWN_TUNNELS_PER_PEER_MAX {
            suspends = peer.suspended_until <= now;
            peer.suspended_until = now + SUSPENDED_FOR;
        }
        let indicate = peer.answered < ERROR_INDICATIONS_PER_PEER_MAX;
        peer.answered += u32::from(indicate);
        Wrong { indicate, suspends }
    }

    /// A place for one more. One that is suspended gives way last.
    fn place(&mut self, address: IpAddr) -> usize {
        let new = GuessedPeer {
            address,
            second: 0,
            wrong: 0,
            answered: 0,
            suspended_until: Instant::ZERO,
            last: Instant::ZERO,
        };
        if self.0.len() < TEID_GUESSING_PEERS_MAX {
            self.0.push(new);
            return self.0.len() - 1;
        }
        let oldest = self.0.iter().enumerate().min_by_key(|(_, p)| (p.suspended_until, p.last));
        let at = oldest.map_or(0, |(at, _)| at);
        if let Some(place) = self.0.get_mut(at) {
            *place = new;
        }
        at
    }

    /// Whether a peer is suspended.
    pub(super) fn suspends(&self, now: Instant, address: IpAddr) -> bool {
        self.0.iter().any(|p| p.address == address && p.suspended_until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + n).into())
    }

    #[test]
    fn peer_with_too_many_unknown_tunnels_in_a_second_is_suspended_and_gets_no_error_indication() {
        let (mut guesses, now) = (Guesses::default(), Instant(1_800_000_000_000_000));
        let answers: Vec<_> =
            (0..=UNKNOWN_TUNNELS_PER_PEER_MAX).map(|_| guesses.wrong(now, peer(1))).collect();
        assert_eq!(answers.iter().filter(|w| w.indicate).count(), ERROR_INDICATIONS_PER_PEER_MAX as usize);
        assert_eq!(answers.iter().position(|w| w.suspends), Some(UNKNOWN_TUNNELS_PER_PEER_MAX as usize));
        assert!(guesses.suspends(now, peer(1)) && !guesses.suspends(now, peer(2)));
        assert_eq!(guesses.wrong(now, peer(2)), Wrong { indicate: true, suspends: false });
        let next = now + Duration::from_secs(1);
        assert!(guesses.wrong(next, peer(1)).indicate, "in the next second it gets Error Indications again");
        assert!(guesses.suspends(now + SUSPENDED_FOR - Duration::from_secs(1), peer(1)));
        assert!(!guesses.suspends(now + SUSPENDED_FOR, peer(1)));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_those_that_are_suspended() {
        let (mut guesses, now) = (Guesses::default(), Instant(1_800_000_000_000_000));
        for _ in 0..=UNKNOWN_TUNNELS_PER_PEER_MAX {
            guesses.wrong(now, peer(1));
        }
        for n in 100..10_000 {
            guesses.wrong(now + Duration::from_micros(n.into()), peer(n));
        }
        assert!(guesses.suspends(now, peer(1)));
        assert_eq!(guesses.0.len(), TEID_GUESSING_PEERS_MAX);
    }
}
