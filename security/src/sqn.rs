//! Sequence numbers of authentication: TS 33.102 §6.3.3, §6.3.5 and Annex C.
//!
//! SQN = SEQ (43 bits) ‖ IND (5 bits). The network side takes SEQ from time in tenths of a second plus an offset per
//! subscriber, which only a resynchronisation changes: what must survive a crash is the offset, not every SQN.
//! The USIM side keeps the highest SEQ per IND (Annex C.2.2).

use core::fmt;

use whimbrel_ids::Instant;

/// Bits of IND: the array of Annex C.3 has 32 places.
const IND_BITS: u32 = 5;
/// Places of the USIM's array.
const IND_COUNT: usize = 1 << IND_BITS;
/// The largest value of SEQ.
const SEQ_MAX: u64 = (1 << (48 - IND_BITS)) - 1;
/// Microseconds of one step of SEQ: the unit of 0.1 s that Annex C.3.2 proposes for a time-based generator.
const TICK_MICROS: u64 = 100_000;
/// Δ of Annex C.3: the largest increase of SEQ that a USIM accepts. Together with the clock's unit it covers
/// 310 days, and it prevents an attacker from forcing SEQ to its maximum.
pub const MAX_SEQ_JUMP: u64 = 1 << 28;

/// Sequence number of 48 bits (TS 33.102 §6.3.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sqn(u64);

impl Sqn {
    /// Initial value: no SQN has been issued or accepted.
    pub const ZERO: Sqn = Sqn(0);

    /// From SEQ and IND; bits beyond 43 and 5 are dropped.
    pub const fn new(seq: u64, ind: u8) -> Self {
        Self((seq & SEQ_MAX) << IND_BITS | (ind as u64 % IND_COUNT as u64))
    }

    /// From six octets, most significant first.
    pub const fn from_octets(o: [u8; 6]) -> Self {
        Self(u64::from_be_bytes([0, 0, o[0], o[1], o[2], o[3], o[4], o[5]]))
    }

    /// The six octets, most significant first.
    pub const fn octets(self) -> [u8; 6] {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// The sequence part.
    pub const fn seq(self) -> u64 {
        self.0 >> IND_BITS
    }

    /// The place in the USIM's array.
    pub const fn ind(self) -> u8 {
        (self.0 % IND_COUNT as u64) as u8
    }

    /// The SQN as an integer, for storage.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// From [`Sqn::value`]; bits beyond 48 are dropped.
    pub const fn from_value(v: u64) -> Self {
        Self(v & ((1 << 48) - 1))
    }

    /// The next SQN of a generator that stores every SQN before it uses it: SEQ and IND are incremented by
    /// one (Annex C.1.1.3, C.3.4). SEQ stays at 2^43 − 1.
    #[must_use]
    pub const fn next(self) -> Self {
        let seq = if self.seq() < SEQ_MAX { self.seq() + 1 } else { SEQ_MAX };
        Self::new(seq, self.ind().wrapping_add(1))
    }
}

impl fmt::Debug for Sqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

/// What is added to the time to give SEQ, modulo 2^43: the one durable number of a subscriber's sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SqnOffset(u64);

impl SqnOffset {
    /// SEQ is the time itself.
    pub const ZERO: SqnOffset = SqnOffset(0);

    /// From a number kept in a store; bits beyond 43 are dropped.
    pub const fn new(v: u64) -> Self {
        Self(v & SEQ_MAX)
    }

    /// As a number to keep in a store, under 2^43.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The offset with which SEQ is `seq` at `now`.
    ///
    /// A subscriber created at `now` begins with `seq` 1: a fresh USIM takes that at once, where the bare time would
    /// exceed its Δ and cost a resynchronisation.
    pub const fn with_seq_at(now: Instant, seq: u64) -> Self {
        Self::new(seq.wrapping_sub(ticks(now)))
    }

    /// Of two offsets of one subscriber, the one whose SEQ is larger at `now`.
    #[must_use]
    pub const fn with_larger_seq(self, other: Self, now: Instant) -> Self {
        if other.seq(now) > self.seq(now) { other } else { self }
    }

    /// SEQ at `now`.
    const fn seq(self, now: Instant) -> u64 {
        ticks(now).wrapping_add(self.0) & SEQ_MAX
    }
}

const fn ticks(now: Instant) -> u64 {
    now.0 / TICK_MICROS
}

/// The IND that one of several authentication centres of a subscriber issues: 0 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqnSlot(u8);

impl SqnSlot {
    /// The slot of this number; `None` above 31.
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < IND_COUNT { Some(Self(number)) } else { None }
    }

    /// The number of the slot.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Network side: the SQN state of one subscriber in the authentication centre (Annex C.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqnState {
    /// Durable; see [`SqnOffset`].
    pub offset: SqnOffset,
    /// The last SQN issued, or [`Sqn::ZERO`]. It may be lost with the process: the clock has then moved on.
    pub last: Sqn,
}

impl SqnState {
    /// With this offset, nothing issued yet.
    pub const fn new(offset: SqnOffset) -> Self {
        Self { offset, last: Sqn::ZERO }
    }

    /// The next SQN: SEQ by the clock, or one above the last if the clock has not passed it; IND rotates, so that
    /// vectors used out of order are still fresh (Annex C.3.4). Strictly increasing until SEQ ends after 27,000 years.
    pub fn next(&mut self, now: Instant) -> Sqn {
        let seq = self.offset.seq(now).max(self.last.seq().saturating_add(1).min(SEQ_MAX));
        self.last = Sqn::new(seq, self.last.ind().wrapping_add(1));
        self.last
    }

    /// The next SQN with IND of this slot: SEQ by the clock, or one above the last if the clock has not passed it.
    ///
    /// Several authentication centres of one subscriber have a slot each, and the USIM keeps the highest SEQ for each IND (Annex C.2.2): what one
    /// of them issues is fresh although the clock of another one is ahead. Within a slot, vectors are to be used in their order.
    pub fn next_in(&mut self, now: Instant, slot: SqnSlot) -> Sqn {
        let next = self.next(now);
        self.last = Sqn::new(next.seq(), slot.0);
        self.last
    }

    /// Handles a verified AUTS: continues above SQN_MS if the USIM would reject the next SQN (TS 33.102
    /// §6.3.5).
    ///
    /// Returns the offset to make durable, if it changed.
    pub fn resynchronise(&mut self, now: Instant, sqn_ms: Sqn) -> Option<SqnOffset> {
        let next = self.offset.seq(now).max(self.last.seq().saturating_add(1));
        if next > sqn_ms.seq() && next - sqn_ms.seq() <= MAX_SEQ_JUMP {
            return None;
        }
        self.last = sqn_ms;
        self.offset = SqnOffset::with_seq_at(now, sqn_ms.seq().saturating_add(1).min(SEQ_MAX));
        Some(self.offset)
    }
}

/// Why a USIM does not take an SQN (Annex C.2.2); each leads to a synchronisation failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqnRefusal {
    /// SEQ jumps more than Δ above the highest accepted.
    TooFarAhead,
    /// SEQ is more than L below the highest accepted.
    TooOld,
    /// SEQ is not above the one last accepted for its IND.
    NotFresh,
}

/// USIM side: the array of accepted sequence numbers (Annex C.2).
#[derive(Clone, Debug)]
pub struct UsimSqn {
    seq: [u64; IND_COUNT],
    highest: Sqn,
    delta: u64,
    age_limit: Option<u64>,
}

impl Default for UsimSqn {
    fn default() -> Self {
        Self::new(MAX_SEQ_JUMP, None)
    }
}

impl UsimSqn {
    /// A fresh USIM that takes jumps of SEQ up to `delta` (Δ) and, if `limit` (L) is given, none older than that.
    pub const fn new(delta: u64, limit: Option<u64>) -> Self {
        Self { seq: [0; IND_COUNT], highest: Sqn::ZERO, delta, age_limit: limit }
    }

    /// SQN_MS: the highest accepted.
    pub const fn highest(&self) -> Sqn {
        self.highest
    }

    /// Accepts `sqn` and stores it. Errors: why it is not fresh.
    pub fn accept(&mut self, sqn: Sqn) -> Result<(), SqnRefusal> {
        let (seq, seq_ms) = (sqn.seq(), self.highest.seq());
        if seq.saturating_sub(seq_ms) > self.delta {
            return Err(SqnRefusal::TooFarAhead);
        }
        if self.age_limit.is_some_and(|l| seq_ms.saturating_sub(seq) > l) {
            return Err(SqnRefusal::TooOld);
        }
        let place = &mut self.seq[usize::from(sqn.ind()) % IND_COUNT];
        if seq <= *place {
            return Err(SqnRefusal::NotFresh);
        }
        *place = seq;
        self.highest = self.highest.max(sqn);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Instant = Instant(1_800_000_000_000_000);

    fn later(n: u64) -> Instant {
        Instant(NOW.0 + n * TICK_MICROS)
    }

    #[test] // TS 33.102 Annex C.1.1.1
    fn sqn_is_seq_then_ind() {
        let s = Sqn::new(0x7ff_ffff_ffff, 31);
        assert_eq!(s.octets(), [0xff; 6]);
        let s = Sqn::from_octets([0, 0, 0, 0, 0, 0x21]);
        assert_eq!((s.seq(), s.ind()), (1, 1));
    }

    #[test]
    fn sqn_follows_the_clock_and_never_repeats() {
        let mut he = SqnState::new(SqnOffset::with_seq_at(NOW, 1));
        assert_eq!(he.next(NOW), Sqn::new(1, 1));
        assert_eq!(he.next(NOW), Sqn::new(2, 2));
        assert_eq!(he.next(later(100)), Sqn::new(101, 3));
        assert_eq!(he.next(NOW), Sqn::new(102, 4));
    }

    #[test]
    fn a_restart_goes_on_above_what_was_issued() {
        let mut he = SqnState::new(SqnOffset::with_seq_at(NOW, 1));
        let before = he.next(later(10));
        let mut he = SqnState::new(he.offset);
        assert!(he.next(later(11)).seq() > before.seq());
    }

    #[test] // TS 33.102 §6.3.5: the sequence of a USIM that is far ahead, or far behind
    fn resynchronisation_makes_the_next_sqn_fresh() {
        for used in [0, 1, 5_000, 1 << 40] {
            let mut usim = UsimSqn::new(u64::MAX, Some(MAX_SEQ_JUMP));
            if used > 0 {
                usim.accept(Sqn::new(used, 7)).unwrap();
            }
            usim.delta = MAX_SEQ_JUMP;
            let mut he = SqnState::new(SqnOffset::ZERO);
            assert!(usim.accept(he.next(NOW)).is_err());
            assert!(he.resynchronise(later(2), usim.highest()).is_some());
            usim.accept(he.next(later(2))).unwrap();
            usim.accept(he.next(later(2))).unwrap();
            usim.accept(SqnState::new(he.offset).next(later(40))).unwrap();
        }
    }

    #[test]
    fn resynchronisation_leaves_a_sequence_that_is_already_fresh() {
        let mut he = SqnState::new(SqnOffset::with_seq_at(NOW, 500));
        assert_eq!(he.resynchronise(NOW, Sqn::new(400, 3)), None);
        assert_eq!(he.resynchronise(NOW, Sqn::new(500, 3)), Some(SqnOffset::with_seq_at(NOW, 501)));
    }

    #[test] // TS 33.102 Annex C.2.2: a slot for each of several authentication centres
    fn slots_bear_skewed_clocks_and_one_slot_of_two_centres_does_not() {
        let refused = |slots: [u8; 2], limit| {
            let mut usim = UsimSqn::new(MAX_SEQ_JUMP, limit);
            let offset = SqnOffset::with_seq_at(NOW, 1_000);
            let mut centres = [SqnState::new(offset); 2];
            let mut refused = 0;
            for n in 1..20 {
                for (place, skew) in [(0, 0), (1, 50)] {
                    let slot = SqnSlot::new(slots[place]).unwrap();
                    let sqn = centres[place].next_in(later(2 * n + skew), slot);
                    assert_eq!(sqn.ind(), slots[place]);
                    refused += u32::from(usim.accept(sqn).is_err());
                }
            }
            refused
        };
        assert_eq!(refused([0, 31], None), 0, "the second clock is 5 s ahead");
        assert!(refused([7, 7], None) > 0);
        assert!(refused([0, 31], Some(10)) > 0, "a USIM with an age limit asks for a resynchronisation");
        assert_eq!(SqnSlot::new(32), None);
    }

    #[test] // TS 33.102 §6.3.5: the offset of an AUTS that one centre took holds at the others once it is merged
    fn an_offset_of_another_centre_with_the_larger_seq_is_fresh_in_each_slot() {
        let mut usim = UsimSqn::default();
        usim.accept(Sqn::new(5_000, 3)).unwrap();
        let [zero, one] = [0, 1].map(|n| SqnSlot::new(n).unwrap());
        let old = SqnOffset::with_seq_at(NOW, 1);
        let mut here = SqnState::new(old);
        let offset = here.resynchronise(NOW, usim.highest()).unwrap();
        usim.accept(here.next_in(NOW, zero)).unwrap();
        assert_eq!(old.with_larger_seq(offset, later(9)), offset);
        assert_eq!(offset.with_larger_seq(old, later(9)), offset);
        usim.accept(SqnState::new(offset).next_in(later(9), one)).unwrap();
    }

    #[test] // TS 33.102 Annex C.2.2
    fn usim_takes_vectors_out_of_order_within_its_array() {
        let mut usim = UsimSqn::new(MAX_SEQ_JUMP, Some(10));
        usim.accept(Sqn::new(10, 1)).unwrap();
        usim.accept(Sqn::new(12, 3)).unwrap();
        usim.accept(Sqn::new(11, 2)).unwrap();
        assert_eq!(usim.accept(Sqn::new(11, 2)), Err(SqnRefusal::NotFresh));
        assert_eq!(usim.accept(Sqn::new(12, 3)), Err(SqnRefusal::NotFresh));
        assert_eq!(usim.accept(Sqn::new(1, 4)), Err(SqnRefusal::TooOld));
        assert_eq!(usim.accept(Sqn::new(13 + MAX_SEQ_JUMP, 4)), Err(SqnRefusal::TooFarAhead));
        assert_eq!(usim.highest(), Sqn::new(12, 3));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test] // any two sides agree after at most one resynchronisation
        fn one_resynchronisation_is_enough(offset: u64, seq in 0..SEQ_MAX - (1 << 30), ind in 0u8..32, gaps: [u16; 8]) {
            let mut usim = UsimSqn { highest: Sqn::new(seq, ind), ..UsimSqn::default() };
            usim.seq[usize::from(ind)] = seq;
            let mut he = SqnState::new(SqnOffset::new(offset));
            let mut at = 0;
            let mut resyncs = 0;
            for gap in gaps {
                at += u64::from(gap);
                if usim.accept(he.next(later(at))).is_err() {
                    resyncs += 1;
                    he.resynchronise(later(at), usim.highest());
                    prop_assert!(usim.accept(he.next(later(at))).is_ok());
                }
            }
            prop_assert!(resyncs <= 1);
        }
    }
}
