//! Octets by hotness, and the hotness from which records are hot.

/// Bin 0 holds counter 0; bin i holds counters from 2^(i−1) to 2^i − 1.
pub(crate) const BINS: usize = 17;

/// The bin of a counter.
#[inline]
pub(crate) fn bin_of(counter: u16) -> usize {
    (u16::BITS - counter.leading_zeros()) as usize
}

/// Octets of records by the bin of their counters. Exponential bins: most counters are small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram([u64; BINS]);

impl Histogram {
    pub(crate) fn add(&mut self, counter: u16, octets: usize) {
        self.0[bin_of(counter)] += octets as u64;
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, octets)| *sum += octets);
    }

    /// The same after each counter was halved so often: a bin moves down by one each time.
    pub(crate) fn halved(&self, times: u32) -> Self {
        let mut halved = Self::default();
        for (bin, octets) in self.0.iter().enumerate() {
            halved.0[bin.saturating_sub(times as usize)] += octets;
        }
        halved
    }

    /// Octets in the bin of the largest counters.
    pub(crate) fn hottest_octets(&self) -> u64 {
        self.0[BINS - 1]
    }

    /// The bins that fit into so many octets of fast memory, from the hottest down.
    pub(crate) fn cutoff(&self, fast_octets: u64, partial_fill: bool) -> Cutoff {
        let mut left = fast_octets;
        for bin in (1..BINS).rev() {
            if self.0[bin] > left {
                return Cutoff { whole_from: bin + 1, partial_octets: if partial_fill { left } else { 0 } };
            }
            left -= self.0[bin];
        }
        Cutoff { whole_from: 1, partial_octets: 0 }
    }

    /// The mean bin of its octets, in thousandths: how hot a region is as a whole.
    pub(crate) fn mean_bin(&self) -> u64 {
        let octets: u64 = self.0.iter().sum();
        let weighted: u64 = self.0.iter().zip(0..).map(|(octets, bin)| octets * bin).sum();
        (weighted * 1000).checked_div(octets).unwrap_or(0)
    }

    /// Octets of records that are hot under a cutoff, the bin that is taken in part counted whole.
    pub(crate) fn hot_octets(&self, cutoff: Cutoff) -> u64 {
        self.0[cutoff.lowest_bin().min(BINS)..].iter().sum()
    }
}

/// Which records are hot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cutoff {
    /// Records in this bin and above are hot.
    whole_from: usize,
    /// So many octets of the bin below are hot as well: what the whole bins leave of fast memory.
    partial_octets: u64,
}

impl Cutoff {
    fn lowest_bin(self) -> usize {
        if self.partial_octets > 0 { self.whole_from - 1 } else { self.whole_from }
    }

    /// Whether a record of this hotness and size is hot. What is taken of the partial bin is used up.
    pub(crate) fn takes(&mut self, counter: u16, octets: usize) -> bool {
        let bin = bin_of(counter);
        if bin >= self.whole_from {
            return true;
        }
        let octets = octets as u64;
        let fits = bin + 1 == self.whole_from && octets <= self.partial_octets;
        if fits {
            self.partial_octets -= octets;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(octets: &[(u16, usize)]) -> Histogram {
        let mut histogram = Histogram::default();
        octets.iter().for_each(|(counter, octets)| histogram.add(*counter, *octets));
        histogram
    }

    #[test]
    fn bins_are_powers_of_two_and_zero_has_its_own() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8, u16::MAX].map(bin_of), [0, 1, 2, 2, 3, 3, 4, 16]);
    }

    #[test]
    fn the_cutoff_is_above_the_bin_that_no_longer_fits() {
        let histogram = histogram(&[(0, 1000), (1, 100), (4, 50), (100, 20)]);
        let mut cutoff = histogram.cutoff(80, false);
        assert!(cutoff.takes(4, 50) && cutoff.takes(100, 20) && !cutoff.takes(1, 1));
        assert_eq!(histogram.hot_octets(cutoff), 70);
    }

    #[test]
    fn the_cutoff_bin_fills_what_is_left_of_fast_memory() {
        let histogram = histogram(&[(1, 100), (100, 20)]);
        let mut cutoff = histogram.cutoff(60, true);
        assert!(cutoff.takes(100, 20));
        assert!(cutoff.takes(1, 30) && !cutoff.takes(1, 30) && cutoff.takes(1, 10) && !cutoff.takes(1, 1));
    }

    #[test]
    fn halving_counters_moves_each_bin_down_by_one() {
        for counter in [0, 1, 2, 3, 4, 7, 8, 1000, u16::MAX] {
            for times in 0..17 {
                let halved = counter.checked_shr(times).unwrap_or(0);
                assert_eq!(
                    histogram(&[(counter, 9)]).halved(times),
                    histogram(&[(halved, 9)]),
                    "{counter} {times}"
                );
            }
        }
    }

    #[test]
    fn records_that_were_never_counted_are_never_hot() {
        let mut cutoff = histogram(&[(0, 1000), (1, 1)]).cutoff(u64::MAX, true);
        assert!(cutoff.takes(1, 1) && !cutoff.takes(0, 1));
    }
}
