//! The UPFs as UEs' state machines see them: identifiers, and the state of each when an input arrives.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// UPFs of one SMF: enough for an operator's region, and [`UpfStates`] stays within half a cache line.
pub const UPFS_MAX: usize = 16;

/// A UPF: its index in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UpfId(pub u8);

/// A set of UPFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpfSet(u16);

impl UpfSet {
    /// Whether a UPF is in the set.
    pub fn contains(self, upf: UpfId) -> bool {
        self.0.checked_shr(upf.0.into()).unwrap_or(0) & 1 == 1
    }

    /// The UPFs in the set.
    pub fn iter(self) -> impl Iterator<Item = UpfId> {
        (0..UPFS_MAX as u8).map(UpfId).filter(move |upf| self.contains(*upf))
    }

    /// The UPFs of both sets.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Removes a UPF.
    pub fn remove(&mut self, upf: UpfId) {
        self.0 &= !1u16.checked_shl(upf.0.into()).unwrap_or(0);
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<UpfId> for UpfSet {
    fn from_iter<T: IntoIterator<Item = UpfId>>(all: T) -> Self {
        Self(all.into_iter().fold(0, |set, upf| set | 1u16.checked_shl(upf.0.into()).unwrap_or(0)))
    }
}

/// The state of every UPF, part of each envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpfStates {
    /// UPFs that may get new sessions, a bit each.
    usable: u16,
    load: [u8; UPFS_MAX],
    reduction: [u8; UPFS_MAX],
}

/// The state of one UPF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpfState {
    /// Its association is up, it answers, and it is not in graceful release.
    pub usable: bool,
    /// Its load in percent, as last reported (TS 29.244 §6.2.3).
    pub load: u8,
    /// The share of new sessions, in percent, that it asks to be reduced (TS 29.244 §6.2.4).
    pub reduction: u8,
}

impl UpfStates {
    /// Every UPF can be used and none is loaded.
    pub const ALL_USABLE: Self = Self { usable: u16::MAX, load: [0; UPFS_MAX], reduction: [0; UPFS_MAX] };

    /// The state of a UPF; beyond the bound: not usable.
    pub fn get(&self, upf: UpfId) -> UpfState {
        let at = usize::from(upf.0);
        let (Some(&load), Some(&reduction)) = (self.load.get(at), self.reduction.get(at)) else {
            return UpfState::default();
        };
        UpfState { usable: self.usable >> at & 1 == 1, load, reduction }
    }

    /// Sets the state of a UPF.
    pub fn set(&mut self, upf: UpfId, state: UpfState) {
        let at = usize::from(upf.0);
        let (Some(load), Some(reduction)) = (self.load.get_mut(at), self.reduction.get_mut(at)) else {
            return;
        };
        (*load, *reduction) = (state.load.min(100), state.reduction.min(100));
        self.usable = self.usable & !(1 << at) | u16::from(state.usable) << at;
    }
}

/// Usable UPFs, then load and reduction of each up to the last non-zero one: most networks have few UPFs.
impl Serialize for UpfStates {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut loads = [(0, 0); UPFS_MAX];
        for (loads, of) in loads.iter_mut().zip(self.load.iter().copied().zip(self.reduction)) {
            *loads = of;
        }
        let n = loads.iter().rposition(|of| *of != (0, 0)).map_or(0, |last| last + 1);
        (self.usable, &loads[..n]).serialize(to)
    }
}

impl<'de> Deserialize<'de> for UpfStates {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (usable, loads): (u16, Vec<(u8, u8)>) = Deserialize::deserialize(from)?;
        if loads.len() > UPFS_MAX || loads.iter().any(|of| of.0 > 100 || of.1 > 100) {
            return Err(serde::de::Error::custom("no UpfStates"));
        }
        let mut states = Self { usable, ..Self::default() };
        for (at, of) in loads.into_iter().enumerate() {
            (states.load[at], states.reduction[at]) = of;
        }
        Ok(states)
    }
}

const _: () = assert!(UPFS_MAX <= u16::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_it_was_made_of() {
        let set: UpfSet = [UpfId(0), UpfId(15), UpfId(200)].into_iter().collect();
        assert_eq!([0, 1, 15, 16, 200].map(|n| set.contains(UpfId(n))), [true, false, true, false, false]);
        assert!(UpfSet::default().is_empty() && !set.is_empty());
        let mut both = set.union([UpfId(3)].into_iter().collect());
        both.remove(UpfId(0));
        assert_eq!(both.iter().collect::<Vec<_>>(), [UpfId(3), UpfId(15)]);
    }

    #[test]
    fn the_state_of_one_upf_does_not_affect_another() {
        let mut states = UpfStates::default();
        let state = UpfState { usable: true, load: 250, reduction: 7 };
        states.set(UpfId(15), state);
        assert_eq!(states.get(UpfId(15)), UpfState { load: 100, ..state });
        assert_eq!(states.get(UpfId(14)), UpfState::default());
        states.set(UpfId(16), state);
        assert_eq!(states.get(UpfId(16)), UpfState::default());
        states.set(UpfId(15), UpfState::default());
        assert_eq!(states, UpfStates::default());
    }
}
