//! The state of a TCP connection: transitory or established (RFC 5382 §5, RFC 7857 §2).
//!
//! Sequence numbers are not followed: a guessed reset shortens a connection's time, and its next segment restores it.

/// Bits of the flags of a segment (RFC 9293 §3.1).
pub(super) mod flag {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const RST: u8 = 4;
    pub(crate) const ACK: u8 = 16;
}

const SYN_UE: u8 = 1;
const SYN_OUTSIDE: u8 = 2;
const FIN_UE: u8 = 4;
const FIN_OUTSIDE: u8 = 8;
const RESET: u8 = 16;
const OPEN: u8 = 32;
/// Its handshake was not seen: the flow is newer than the connection.
const FOUND: u8 = 64;

/// The flags seen on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tcp(u8);

impl Tcp {
    /// Whether a segment may start a flow. A UE's segment may belong to a connection that is older than the flow; FIN and RST
    /// start none.
    pub(super) fn may_begin(flags: u8, from_ue: bool) -> bool {
        let greets = flags & (flag::SYN | flag::ACK | flag::RST | flag::FIN) == flag::SYN;
        let goes_on = flags & (flag::SYN | flag::RST | flag::FIN) == 0 && flags & flag::ACK != 0;
        greets || (from_ue && goes_on)
    }

    /// The state after the first segment.
    pub(super) fn begin(flags: u8, from_ue: bool) -> Self {
        let found = if flags & flag::SYN == 0 { FOUND } else { 0 };
        Self(found).after(flags, from_ue)
    }

    /// The state after a further segment.
    pub(super) fn after(self, flags: u8, from_ue: bool) -> Self {
        let Self(mut seen) = self;
        let (syn, fin) = if from_ue { (SYN_UE, FIN_UE) } else { (SYN_OUTSIDE, FIN_OUTSIDE) };
        if flags & flag::RST != 0 {
            return Self(seen | RESET);
        }
        if flags & flag::SYN != 0 {
            if self.is_ending() && flags & flag::ACK == 0 {
                seen = 0; // the ports are reused
            }
            return Self(seen | syn);
        }
        seen &= !RESET;
        if seen & FOUND != 0 {
            seen |= syn;
        }
        if flags & flag::FIN != 0 {
            seen |= fin;
        }
        let greeted = seen & SYN_UE != 0 && seen & SYN_OUTSIDE != 0;
        if greeted && flags & flag::ACK != 0 {
            seen |= OPEN;
        }
        Self(seen)
    }

    fn is_ending(self) -> bool {
        self.0 & RESET != 0 || self.0 & (FIN_UE | FIN_OUTSIDE) == FIN_UE | FIN_OUTSIDE
    }

    /// Whether the handshake is complete, and there was neither a RST nor a FIN of both sides.
    pub(super) fn lasts(self) -> bool {
        self.0 & OPEN != 0 && !self.is_ending()
    }
}

#[cfg(test)]
mod tests {
    use super::flag::*;
    use super::*;

    fn after(segments: &[(u8, bool)]) -> Tcp {
        let ((flags, from_ue), rest) = segments.split_first().unwrap();
        rest.iter().fold(Tcp::begin(*flags, *from_ue), |t, (f, p)| t.after(*f, *p))
    }

    const GREETED: [(u8, bool); 3] = [(SYN, true), (SYN | ACK, false), (ACK, true)];

    fn greeted_and(more: &[(u8, bool)]) -> Tcp {
        after(&[&GREETED[..], more].concat())
    }

    #[test] // RFC 5382 REQ-5
    fn a_connection_lasts_when_both_have_greeted() {
        assert!(!after(&GREETED[..1]).lasts() && !after(&GREETED[..2]).lasts());
        assert!(after(&GREETED).lasts());
        assert!(!after(&[(SYN, true), (ACK, false)]).lasts(), "an answer without a greeting");
    }

    #[test] // RFC 5382 REQ-2
    fn both_may_greet_at_once() {
        assert!(after(&[(SYN, true), (SYN, false), (SYN | ACK, true), (ACK, false)]).lasts());
    }

    #[test]
    fn flow_ends_when_both_ends_are_closed_and_its_ports_may_be_reused() {
        let half = greeted_and(&[(FIN | ACK, true), (ACK, false)]);
        assert!(half.lasts(), "the other end may go on for long");
        let both = half.after(FIN | ACK, false);
        assert!(!both.lasts());
        assert!(!both.after(ACK, true).lasts(), "the last acknowledgement");
        let reopened = both.after(SYN, true);
        assert!(!reopened.lasts() && reopened.after(SYN | ACK, false).after(ACK, true).lasts());
    }

    #[test] // RFC 7857 §2.2
    fn a_reset_shortens_its_time_and_a_segment_restores_it() {
        let reset = greeted_and(&[(RST, false)]);
        assert!(!reset.lasts());
        assert!(reset.after(ACK, true).lasts());
    }

    #[test]
    fn what_may_begin_a_flow() {
        assert!(Tcp::may_begin(SYN, true) && Tcp::may_begin(SYN, false));
        assert!(Tcp::may_begin(ACK, true) && !Tcp::may_begin(ACK, false));
        for flags in [SYN | ACK, RST, FIN | ACK, RST | ACK, SYN | FIN, 0] {
            assert!(!Tcp::may_begin(flags, true), "{flags}");
            assert!(!Tcp::may_begin(flags, false), "{flags}");
        }
        let found = Tcp::begin(ACK, true);
        assert!(!found.lasts() && found.after(ACK, false).lasts(), "when the other end goes on too");
    }
}
